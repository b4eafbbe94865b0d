"""`experiment=rate`: on real battles the scores of another library, reproduced; on battles that cannot be rated, no
number without a word."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from elo_exp import files
from elo_exp.analysis import agreement
from elo_exp.arena.report import write_bootstraps
from elo_exp.data import battles
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.elo import PermutationElo
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, UserError
from elo_exp.report import artifacts
from tests.commands import Ran, attempt, run, start
from tests.data import by_dimension, shared_data
from tests.pages import Reader
from tests.standings import standings

COLUMNS = {
    name: name for name in (*battles.REQUIRED, "source", "question_id", "judge_model")
}


def golden(name: str) -> tuple[list[Battle], dict[str, dict[str, float]]]:
    """The battles of a golden file, in file order, and the scores by algorithm and model."""
    folder = shared_data("golden")
    columns = COLUMNS | {"model_a": "left", "model_b": "right"}
    read = battles.read(folder / f"{name}.csv", columns=columns, filters={})
    scores: dict[str, dict[str, float]] = {}
    with (folder / f"{name}-golden.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            scores.setdefault(row["algorithm"], {})[row["item"]] = float(row["score"])
    return read.battles.rows(), scores


@pytest.mark.parametrize("name", ["simple", "food", "llmfao"])
def test_elo_in_file_order_equals_the_golden_scores(name: str) -> None:
    some, scores = golden(name)
    order = {"n_perms": 1, "ties": "half", "shuffle": False}
    method = PermutationElo(
        k=4,
        k_sweep=[],
        seed=0,
        initial_rating=1000,
        n_bootstraps=0,
        perms_per_bootstrap=1,
        **order,
    )
    board = method.rate(by_dimension({"overall": some}))["overall"]
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(
        scores["elo"], abs=1e-9
    )


@pytest.mark.parametrize("name", ["simple", "food", "llmfao"])
def test_bradley_terry_equals_the_golden_scores_up_to_their_scale(name: str) -> None:
    some, scores = golden(name)
    board = BradleyTerry(
        initial_rating=0, use="both", interval="sandwich", n_bootstraps=2, seed=0
    ).rate(by_dimension({"overall": some}))["overall"]
    logs = {
        model: math.log10(score) for model, score in scores["bradley_terry"].items()
    }
    centre = sum(logs.values()) / len(logs)
    expected = {model: 400 * (log - centre) for model, log in logs.items()}
    assert {r.model: r.rating for r in board.ratings} == pytest.approx(
        expected, abs=1e-4
    )


def test_the_crowd_of_llmfao_is_rated_as_the_golden_file_is() -> None:
    """The same 8,931 battles, once as published and once normalised among other judges."""
    published, _ = golden("llmfao")
    path: Path = shared_data("llmfao") / "battles.jsonl.gz"
    crowd = battles.read(path, columns=COLUMNS, filters={"judge_model": "crowd"})
    assert (len(crowd.battles), crowd.n_filtered) == (8931, 6472)
    method = BradleyTerry(
        initial_rating=1000, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    ours, theirs = (
        method.rate(by_dimension({"d": crowd.battles.rows()}))["d"],
        method.rate(by_dimension({"d": published}))["d"],
    )
    assert {r.model: r.rating for r in ours.ratings} == pytest.approx(
        {r.model: r.rating for r in theirs.ratings}
    )
    json.dumps([r.to_dict() for r in ours.ratings], allow_nan=False)


# What real data say, as docs/ratings.md has it

JUDGES = ("crowd", "gpt-4", "gpt-3.5-turbo-instruct")


@pytest.fixture(scope="module")
def by_judge() -> dict[str, Battles]:
    read = battles.read(
        shared_data("llmfao/battles.jsonl.gz"), columns=COLUMNS, filters={}
    )
    judge_of = np.array(read.battles.judges)[read.battles.judge]
    return {judge: read.battles.select(judge_of == judge).compact() for judge in JUDGES}


def bradley_terry(
    some: Mapping[str, Battles], interval: str = "sandwich"
) -> dict[str, Leaderboard]:
    return BradleyTerry(
        initial_rating=1400, use="both", interval=interval, n_bootstraps=300, seed=1
    ).rate(some)


def test_real_judges_agree_on_the_order_of_models_rather_than_on_a_pair(
    by_judge: dict[str, Battles],
) -> None:
    boards = bradley_terry(by_judge)
    found = {}
    for a in agreement.pairwise_kappa(by_judge, dimension="d"):
        first, second = boards[a.first], boards[a.second]
        order = agreement.rank_correlation(
            first, second, names=(a.first, a.second), dimension="d"
        )
        found[a.first, a.second] = (
            a.n_comparisons,
            a.agreement,
            a.kappa,
            a.std_error,
            order.n_models,
            order.rho,
        )
    assert found == {
        ("crowd", "gpt-4"): pytest.approx(
            (2139, 0.414, 0.153, 0.040, 59, 0.710), abs=0.001
        ),
        ("crowd", "gpt-3.5-turbo-instruct"): pytest.approx(
            (2139, 0.374, 0.090, 0.025, 59, 0.727), abs=0.001
        ),
        ("gpt-4", "gpt-3.5-turbo-instruct"): pytest.approx(
            (3236, 0.540, 0.183, 0.046, 70, 0.727), abs=0.001
        ),
    }


@pytest.mark.parametrize(
    ("judge", "interval", "ratio"),
    [
        ("crowd", "sandwich", 1.71),
        ("crowd", "bootstrap", 1.75),
        ("gpt-4", "sandwich", 1.34),
        (JUDGES[2], "sandwich", 1.12),
    ],
)
def test_real_errors_are_larger_over_prompts_than_over_rows(
    by_judge: dict[str, Battles], judge: str, interval: str, ratio: float
) -> None:
    """Rows on one prompt are not independent; counted as if they were, they make errors too small. The intervals differ
    more, as 13 prompts tell an error less well than 8,931 rows."""
    some = by_judge[judge]
    nameless = len(some.questions) + np.arange(len(some), dtype=np.int32)
    rows = dataclasses.replace(some, question=nameless)
    boards = bradley_terry({"prompts": by_judge[judge]}, interval) | bradley_terry(
        {"rows": rows}, interval
    )
    error = {
        name: np.mean([r.std_error for r in board.ratings])
        for name, board in boards.items()
    }
    assert error["prompts"] / error["rows"] == pytest.approx(
        ratio, abs=0.08 if interval == "bootstrap" else 0.01
    )
    if judge == "crowd" and interval == "sandwich":
        width = {
            name: np.mean([r.ci_high - r.ci_low for r in board.ratings])
            for name, board in boards.items()
        }
        assert width == pytest.approx({"prompts": 139, "rows": 73}, abs=0.5)


# Battles that cannot be rated, or not well, through the command: the right answer, a named flag, or one clear line

METHODS = ("bradley_terry", "davidson", "rao_kupper")
RATE = ("experiment=rate", "tracker=local", "elo.n_perms=20")
SEVEN_TO_THREE = [("A", "B", "model_a")] * 7 + [("A", "B", "model_b")] * 3
CASES = {
    "base": SEVEN_TO_THREE,
    "one": [("A", "B", "model_a")],
    "one tie": [("A", "B", "tie")],
    "ties": [("A", "B", "tie"), ("B", "C", "tie (bothbad)")] * 3,
    "circle": [("A", "B", "model_a"), ("B", "C", "model_a"), ("C", "A", "model_a")],
    "winless": [*SEVEN_TO_THREE, ("W", "A", "model_b"), ("W", "B", "model_b")],
    "unbeaten": [*SEVEN_TO_THREE, ("U", "A", "model_a"), ("U", "B", "model_a")],
    "apart": [*SEVEN_TO_THREE, ("C", "D", "model_a"), ("C", "D", "model_b")],
    "won and tied": [("A", "B", "model_a"), ("A", "B", "tie")],
}
AHEAD = 200 * math.log10(7 / 3)  # half the gap of two models, seven wins to three
AS_ALONE = {"A": 1400 + AHEAD, "B": 1400 - AHEAD}
RATINGS = {
    "base": AS_ALONE,
    "one": {"A": "unbeaten", "B": "winless"},
    "one tie": {"A": 1400, "B": 1400},
    "ties": {"A": 1400, "B": 1400, "C": 1400},
    "circle": {"A": 1400, "B": 1400, "C": 1400},
    "winless": AS_ALONE | {"W": "winless"},
    "unbeaten": AS_ALONE | {"U": "unbeaten"},
    "apart": AS_ALONE | {"C": "disconnected", "D": "disconnected"},
}


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as a file of the kind that its name says."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        files.write_csv(path, rows)
    else:
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    return path


def row(model_a: str, model_b: str, winner: str | None, **more: Any) -> dict[str, Any]:
    return {"model_a": model_a, "model_b": model_b, "winner": winner, **more}


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Every case is a dimension of one file, rated by all methods."""
    folder = tmp_path_factory.mktemp("rated")
    rows = [
        row(*battle, dimension=case, question_id=f"{case} {q}")
        for case, some in CASES.items()
        for q, battle in enumerate(some)
    ]
    path = write(folder / "battles.csv", rows)
    methods = f"rating=[{','.join(METHODS)}]"
    return run(
        *RATE,
        f"battles={path}",
        "battles_columns.dimension=dimension",
        methods,
        folder=folder,
    )


def said(ran: Ran, case: str, method: str) -> dict[str, float | str]:
    """By model: its rating, or the flag that says why there is none."""
    ratings = ran.read("ratings.json")["dimensions"][case][method]["ratings"]
    assert all((r["rating"] is None) == (r["flag"] is not None) for r in ratings)
    return {r["model"]: r["flag"] or r["rating"] for r in ratings}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", RATINGS)
def test_whoever_can_be_rated_is_and_whoever_cannot_is_named(
    rated: Ran, case: str, method: str
) -> None:
    """The others are rated as if the winless, unbeaten and disconnected were absent."""
    assert said(rated, case, method) == {
        model: answer if isinstance(answer, str) else pytest.approx(answer, abs=1e-6)
        for model, answer in RATINGS[case].items()
    }


def test_a_win_and_a_tie_rate_two_models_only_if_a_tie_is_half_a_win(
    rated: Ran,
) -> None:
    """As three half wins to one; where a tie is an outcome of its own, A never lost and no gap is too large."""
    ahead = 200 * math.log10(3)
    assert said(rated, "won and tied", "bradley_terry") == pytest.approx(
        {"A": 1400 + ahead, "B": 1400 - ahead}
    )
    for method in ("davidson", "rao_kupper"):
        assert said(rated, "won and tied", method) == {"A": "unbeaten", "B": "winless"}


def test_no_file_holds_a_number_that_is_none(rated: Ran) -> None:
    checked = set()
    for path in rated.run_dir.rglob("*"):
        if path.suffix not in (".json", ".jsonl", ".csv", ".html"):
            continue
        text = re.sub(
            r"data:image/png;base64,[^\"]*", "", path.read_text(encoding="utf-8")
        )
        assert not re.search(
            r"(?<![\w-])-?(nan|inf|infinity)(?![\w-])", text, re.IGNORECASE
        ), path
        checked.add(path.name)
    assert {
        "ratings.json",
        "elo_results.json",
        "battles.jsonl",
        "pairwise_winrates.csv",
        "report.html",
    } <= checked


def test_those_without_a_rating_are_named_on_the_console_and_in_the_report(
    rated: Ran,
) -> None:
    page = Reader((rated.run_dir / "report.html").read_text(encoding="utf-8"))
    for case, model in [("winless", "W"), ("unbeaten", "U"), ("apart", "C")]:
        flag = RATINGS[case][model]
        block = rated.out.partition(f"\n{case}: ")[2].partition("\n\n  ")[2]
        (line,) = (
            line.split()
            for line in block.partition("\n\n")[0].splitlines()
            if model in line.split()
        )
        assert flag in line
        assert [row for row in page.cells if row[1:3] == [model, flag]]
    for where in (rated.out, page.said):
        assert (
            "Not rated: W (winless: no finite rating, below all that have one)."
            in where
        )
    assert "Nobody can be rated." in page.said


def test_beside_every_k_stands_how_far_elo_has_gone(rated: Ran) -> None:
    """1 - exp(-K n / (2 (m - 1) 173.7)), and whether that is enough."""
    elo = rated.read("ratings.json")["dimensions"]["base"]["elo"]
    gone = {row["k"]: row["convergence"] for row in elo["by_k"]}
    assert gone == pytest.approx(
        {k: 1 - math.exp(-k * 10 / (2 * 173.7178)) for k in (1.0, 4.0, 8.0, 16.0, 32.0)}
    )
    assert {row["converged"] for row in elo["by_k"]} == {False}
    assert "Elo at K = 16, 37 % converged (below 95 %: raise K)" in rated.out


def test_the_console_shows_the_method_that_was_chosen_and_cuts_no_number(
    tmp_path: Path,
) -> None:
    """Names may be longer than their column; what does not fit goes on in the next line."""
    long = "a-model/" + "with-a-name-" * 8
    battles_ = [row(a.replace("A", long), b, w) for a, b, w in SEVEN_TO_THREE]
    path = write(tmp_path / "battles.jsonl", battles_)
    out = run(
        *RATE,
        f"battles={path}",
        "rating=[davidson]",
        "elo.n_bootstraps=0",
        folder=tmp_path,
    ).out
    assert "Davidson" in out
    assert "Bradley-Terry" not in out
    assert f"{AS_ALONE['A']:.1f}" in out
    assert "…" not in out


def test_resamples_of_a_dimension_with_a_slash_stay_in_the_run_folder(
    tmp_path: Path,
) -> None:
    winners = ("model_a", "model_b") * 3
    some = [
        Battle(model_a="ann", model_b="bob", winner=w, question_id=str(i))
        for i, w in enumerate(winners)
    ]
    boards = bradley_terry(by_dimension({"a/b": some, "x/../../up": some}), "bootstrap")
    names = {
        path.relative_to(tmp_path).as_posix()
        for path in write_bootstraps(tmp_path, boards)
    }
    assert names == {
        "bootstrap_ratings_a%2Fb.csv",
        "bootstrap_ratings_x%2F..%2F..%2Fup.csv",
    }


def test_a_console_without_the_characters_of_a_table_gets_their_escapes(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "battles.jsonl",
        [row(a.replace("A", "µ"), b, w) for a, b, w in SEVEN_TO_THREE],
    )
    ran = run(
        *RATE,
        f"battles={path}",
        "elo.n_bootstraps=0",
        folder=tmp_path,
        anew=True,
        PYTHONIOENCODING="ascii",
    )
    assert r"\xb1 SEM" in ran.out
    assert any(r"\xb5" in line.split() for line in ran.out.splitlines())


@pytest.mark.parametrize("n_perms", [1, 100])
def test_an_ordering_error_of_nothing_but_rounding_is_shown_as_none(
    n_perms: int,
) -> None:
    """All orders of equal matches give one rating; the mean of a hundred equal floats differs from them in its last
    digit."""
    found = standings(
        {"d": [Battle(model_a="ann", model_b="bob", winner="model_a")] * 3},
        n_perms=n_perms,
        k=16,
    )
    board = found.primary("d")
    assert board is not None
    assert any(rating.ordering_error for rating in board.ratings) == (n_perms > 1)
    shown = {
        words[1]: words[3]
        for words in map(str.split, artifacts.table(found).splitlines())
        if len(words) > 3
    }
    assert (shown["ann"], shown["bob"]) == ("-", "-")


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("A", "A", "tie")], "'A' battles itself. Expected two different models."),
        (
            [row("A", "B", "both")],
            "winner is 'both'. Expected one of model_a, model_b, tie, tie (bothbad), 'A' or 'B'.",
        ),
        (
            [row("A", "B", "nan")],
            "winner is 'nan'. Expected one of model_a, model_b, tie, tie (bothbad), 'A' or 'B'.",
        ),
        (
            [row("A", "B", "tie"), row("A", "B", None)],
            "column 'winner' is empty. Expected a winner.",
        ),
        (
            [{"modelA": "A", "model_b": "B", "winner": "tie"}],
            "has no column 'model_a' (found 'modelA', 'model_b', 'winner'). Name it with "
            "battles_columns.model_a=COLUMN.",
        ),
    ],
)
def test_a_row_that_is_no_battle_stops_the_run_with_its_place(
    ending: str, rows: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"battles{ending}", rows)
    with pytest.raises(UserError) as error:
        battles.read(path, columns=COLUMNS, filters={})
    place = {
        ".jsonl": f":{len(rows)}",
        ".csv": f":{1 + len(rows)}",
        ".parquet": f": row {len(rows)}",
    }[ending]
    hint = (
        ""
        if "has no column" in message
        else " battles_on_error=drop leaves such rows out."
    )
    assert str(error.value) == f"{path}{place}: {message}{hint}"


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_a_file_without_a_row_has_no_battle(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"battles{ending}", [])
    with pytest.raises(
        UserError, match=re.escape(f"{path}: no battle is left (0 filtered out).")
    ):
        battles.read(path, columns=COLUMNS, filters={})


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "battles.csv", [row("A", "B", "tie"), row("A", "B", "both")]
    )
    ran = attempt(*RATE, f"battles={path}", folder=tmp_path)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith(
        f"elo_exp: {path}:3: winner is 'both'. Expected one of model_a,"
    )
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_nan_is_nothing_and_not_a_name(ending: str, tmp_path: Path) -> None:
    """Programs that hold tables in memory write it where a cell is empty."""
    rows = [
        row("A", "B", "tie", question_id=math.nan),
        row("A", "B", "tie", question_id=1.0),
    ]
    read = battles.read(
        write(tmp_path / f"battles{ending}", rows), columns=COLUMNS, filters={}
    )
    assert [b.question_id for b in read.battles.rows()] == [None, "1.0"]
    nameless = write(tmp_path / "nameless.jsonl", [row("A", math.nan, "tie")])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="column 'model_b' is empty. Expected a model."):
        battles.read(nameless, columns=COLUMNS, filters={})


def test_a_file_whose_questions_are_not_found_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt question column would make every battle an observation of its own without a word."""
    path = write(tmp_path / "battles.jsonl", [row("A", "B", "tie", question="q1")])
    battles.read(path, columns=COLUMNS, filters={})
    (message,) = caplog.messages
    assert "no battle names its question" in message
    assert "(found 'model_a', 'model_b', 'winner', 'question')" in message
    caplog.clear()
    battles.read(path, columns=COLUMNS | {"question_id": "question"}, filters={})
    assert not caplog.messages


@pytest.mark.slow
def test_a_million_rows_are_rated(tmp_path: Path) -> None:
    """Twenty models, a tenth of a unit of log-odds between neighbours, a fifth of the battles of equals ties."""
    rng = np.random.default_rng(0)
    n, m = 10**6, 20
    first = rng.integers(m, size=n)
    second = (first + rng.integers(1, m, size=n)) % m
    win = np.exp((first - second) / 20)
    at = rng.random(n) * (win + 0.5 + 1 / win)  # Davidson's three weights, nu = 1/2
    winner = np.where(at < win, "model_a", np.where(at < win + 0.5, "tie", "model_b"))
    lines = zip(
        first.tolist(),
        second.tolist(),
        winner.tolist(),
        (np.arange(n) // 10).tolist(),
        strict=True,
    )
    path = tmp_path / "million.csv"
    path.write_text(
        "model_a,model_b,winner,question_id\n"
        + "".join(f"m{a},m{b},{w},q{q}\n" for a, b, w, q in lines)
    )
    quick = (
        "elo.n_perms=1",
        "elo.k_sweep=[]",
        "elo.n_bootstraps=0",
        "rating=[davidson]",
    )
    command = start(
        "experiment=rate", "tracker=local", f"battles={path}", *quick, folder=tmp_path
    )
    out, err = command.communicate(timeout=900)
    ran = Ran(tmp_path, command.returncode, out, err)
    assert ran.code == 0, err
    ratings = ran.read("ratings.json")["dimensions"]["overall"]["davidson"]["ratings"]
    assert sum(r["n_battles"] for r in ratings) == 2 * n
    found = {r["model"]: (r["rating"], r["std_error"]) for r in ratings}
    for i in range(m):
        rating, error = found[f"m{i}"]
        assert error < 2
        assert rating == pytest.approx(
            1400 + 400 / math.log(10) * (i - (m - 1) / 2) / 10, abs=4 * error
        )


@pytest.mark.slow
def test_a_million_battles_take_less_than_a_gigabyte_and_a_half(tmp_path: Path) -> None:
    """Of 50 models on 2,000 prompts; how far it is it says meanwhile."""
    rng = np.random.default_rng(1)
    first = rng.integers(50, size=1_000_000)
    second = (first + rng.integers(1, 50, size=len(first))) % 50
    columns = (first, second, rng.choice(["model_a", "model_b", "tie"], size=len(first)), rng.integers(2000, size=len(first)))  # fmt: skip  # noqa: E501
    rows = "".join(
        f"m{a},m{b},{winner},q{question}\n"
        for a, b, winner, question in zip(*columns, strict=True)
    )
    (tmp_path / "battles.csv").write_text(
        f"model_a,model_b,winner,question_id\n{rows}", encoding="utf-8"
    )
    running = start(
        "experiment=rate", "battles=battles.csv", "tracker=local", folder=tmp_path
    )
    assert running.stdout is not None and running.stderr is not None
    with running.stdout, running.stderr:
        _, running.returncode, used = os.wait4(
            running.pid, 0
        )  # what it says fits into a pipe
        said = running.stdout.read() + running.stderr.read()
    assert running.returncode == 0, said
    assert "read 1000000 battles" in said
    assert "playing match orders of drawn prompts: " in said
    assert used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) < 1.5e9
