"""Plain tables of scores, long and wide, under the names that people use."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.data import formats, scores
from elo_exp.data.file_kinds import recognise_kinds
from elo_exp.errors import FileError
from tests.commands import attempt, run
from tests.csv_files import write_xlsx


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def read(path: Path, metric: str | None = None, cluster: str | None = None) -> Any:
    found, _ = scores.read_scores(
        {path: formats.recognise(path)}, metric=metric, cluster=cluster
    )
    return [(row.entrant, row.item, row.draw, row.value) for row in found]


LONG = [
    ["q1", "small", 0.25],
    ["q1", "large", 1],
    ["q2", "small", 0],
    ["q2", "large", ""],
]
EXPECTED = [
    ("small", "q1", "", 0.25),
    ("large", "q1", "", 1.0),
    ("small", "q2", "", 0.0),
    ("large", "q2", "", None),
]


@pytest.mark.parametrize(
    "head",
    [
        ("item_id", "model_id", "score"),
        ("qid", "agent", "correct"),
        (" Question ID".replace(" ID", "_id"), "System", "Accuracy"),
        ("instance_id", "model_name", "resolved"),
        ("id", "checkpoint", "reward"),
        ("prompt", "variant", "grade"),
    ],
)
def test_a_row_for_each_score_is_read(head: Sequence[str], tmp_path: Path):
    path = write_csv(tmp_path / "scores.csv", head, LONG)
    assert recognise_kinds(path)[0] == "scores"
    assert read(path) == EXPECTED


def test_words_for_right_and_wrong_are_scores(tmp_path: Path):
    rows = [
        ["q1", "a", "True"],
        ["q1", "b", "false"],
        ["q2", "a", "PASS"],
        ["q2", "b", "no"],
    ]
    path = write_csv(tmp_path / "scores.csv", ("item", "model", "passed"), rows)
    assert [value for *_, value in read(path)] == [1.0, 0.0, 1.0, 0.0]


def test_repeats_are_draws_and_a_cluster_column_counts(tmp_path: Path):
    head = ("item_id", "model_id", "score", "epoch", "site")
    rows = [[f"q{n // 2}", "a", n % 2, n % 2, f"s{n // 4}"] for n in range(8)]
    path = write_csv(tmp_path / "scores.csv", head, rows)
    found = read(path, cluster="site")
    assert [(item, draw) for _, item, draw, _ in found][:2] == [
        ("q0 in s0", "0"),
        ("q0 in s0", "1"),
    ]


def test_a_metric_is_another_column(tmp_path: Path):
    rows = [["q1", "a", 1, 0.3], ["q1", "b", 0, 0.4]]
    path = write_csv(tmp_path / "scores.csv", ("item", "model", "score", "f1"), rows)
    assert [value for *_, value in read(path, metric="f1")] == [0.3, 0.4]


def test_several_metrics_of_a_long_table_are_rubrics(tmp_path: Path):
    rows = [["q1", "a", metric, 1] for metric in ("exact", "f1")]
    path = write_csv(
        tmp_path / "scores.csv", ("item", "model", "metric", "value"), rows
    )
    found, _ = scores.read_scores(
        {path: formats.recognise(path)}, metric=None, cluster=None
    )
    assert [row.dimension for row in found] == ["exact", "f1"]


def test_a_column_for_each_entrant_is_read(tmp_path: Path):
    rows = [["q1", 1, 0.5, 3.2], ["q2", 0, "", 1.1]]
    path = write_csv(
        tmp_path / "wide.csv", ("item_id", "small", "large", "cost_usd"), rows
    )
    assert recognise_kinds(path) == ("scores",)
    assert read(path) == [
        ("small", "q1", "", 1.0),
        ("large", "q1", "", 0.5),
        ("small", "q2", "", 0.0),
        ("large", "q2", "", None),
    ]


def test_repeats_without_a_number_are_named(tmp_path: Path):
    rows = [["q1", "a", 1], ["q1", "a", 0], ["q1", "b", 1], ["q2", "b", 1]]
    write_csv(tmp_path / "s.csv", ("item", "model", "score"), rows)
    ran = attempt("s.csv", "tracker=local", folder=tmp_path)
    assert ran.code == 2
    assert "a has 2 scores of item q1 on score. If they are repeats" in ran.err


def test_checkpoints_may_be_columns(tmp_path: Path):
    rows = [["q1", 7, 0, 0.5], ["q2", 7, 1, 1]]
    path = write_csv(tmp_path / "wide.csv", ("id", "seed", "step_0", "step_200"), rows)
    assert {entrant for entrant, *_ in read(path)} == {"step_0", "step_200"}


def test_a_wide_spreadsheet_is_read(tmp_path: Path):
    path = write_xlsx(
        tmp_path / "wide.xlsx",
        {"scores": [["id", "small", "large"], ["q1", 1.0, 0.0], ["q2", 0.0, 0.5]]},
    )
    assert [value for *_, value in read(path)] == [1.0, 0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("head", "rows", "kinds"),
    [
        (("id", "prompt", "level"), [["1", "Why?", 3]], ("prompts",)),
        (("question", "answer"), [["Why?", "So."]], ("answers", "prompts")),
        (("id", "human"), [["1", 0.5]], ()),
        (("id", "small", "large"), [["1", "yes, it is", "no"]], ()),
        (("id", "small", "large", "note"), [["1", 1, 0, "odd"]], ()),
        (("question", "model", "answer", "score"), [["Why?", "a", "So.", "good"]], ("answers", "prompts")),
    ],
)  # fmt: skip
def test_other_tables_are_no_scores(
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    kinds: tuple[str, ...],
    tmp_path: Path,
):
    assert recognise_kinds(write_csv(tmp_path / "t.csv", head, rows)) == kinds


def test_a_score_that_is_no_number_names_its_row(tmp_path: Path):
    path = write_csv(
        tmp_path / "s.csv",
        ("item", "model", "score"),
        [["q1", "a", 1], ["q2", "a", "fine"]],
    )
    with pytest.raises(
        FileError, match=r's\.csv:3 has the score "fine", which is no number'
    ):
        read(path)


def test_answers_with_scores_are_rated_and_can_be_judged(tmp_path: Path):
    rows = [
        [f"Is {n} even?", model, f"{model} {n}", n % 2]
        for n in range(4)
        for model in "ab"
    ]
    path = write_csv(tmp_path / "t.csv", ("question", "model", "answer", "score"), rows)
    assert recognise_kinds(path) == ("scores", "answers", "prompts")
    rated = run("t.csv", "tracker=local", "figures=false", folder=tmp_path)
    assert "judge=sonnet would judge its answers" in rated.err
    judged = attempt("t.csv", "judge=sonnet", "plan=true", folder=tmp_path)
    assert judged.code == 0, judged.err
    assert "prompts: 4 of 4 answered by both entrants" in judged.err


def test_a_long_table_of_198_items_and_5_epochs_is_clustered_by_item(tmp_path: Path):
    """The shape of an acceptance file of inspect_ai: the difference of means, with the error of items."""
    rng = np.random.default_rng(4206)
    ability = rng.normal(size=198)
    rows, means = list[list[Any]](), dict[str, Any]()
    for model, gain in (("small", 0.0), ("large", 0.3)):
        p = 1 / (1 + np.exp(-(ability + gain)))
        drawn = rng.random((198, 5)) < p[:, None]
        means[model] = drawn.mean(axis=1)
        rows += [
            [f"q{item}", model, int(drawn[item, epoch]), epoch + 1]
            for item in range(198)
            for epoch in range(5)
        ]
    write_csv(tmp_path / "scores.csv", ("item_id", "model_id", "score", "epoch"), rows)
    ran = run("scores.csv", "tracker=local", "figures=false", folder=tmp_path)
    (pair,) = ran.read("ratings.json")["differences"]["mean_score"]
    differences = means["large"] - means["small"]
    assert pair["difference"] == pytest.approx(differences.mean())
    assert pair["std_error"] == pytest.approx(
        differences.std(ddof=1) / np.sqrt(198), rel=0.01
    )
