"""`experiment=rate`: on real battles the scores of another library, reproduced; on battles that cannot be rated, no
number without a word."""

import csv
import dataclasses
import html
import math
import re
import shlex
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.data import battle_columns, battle_files
from elo_exp.ratings.bradley_terry import BradleyTerry
from tests.commands import Ran, attempt, run
from tests.data import shared_data, shipped, write_table

COLUMNS = {name: name for name in battle_columns.FIELDS if name != "dimension"}


def bradley_terry(interval: str = "sandwich") -> BradleyTerry:
    return BradleyTerry(
        initial_rating=1400, orders="both", interval=interval, n_bootstraps=300, seed=1
    )


def test_ratings_equal_the_golden_scores():
    """Elo in file order, and Bradley-Terry, whose scores there have a scale of their own."""
    folder = shared_data("golden")
    in_file_order = shipped(
        "elo", "default", k=4, ties="half", k_sweep=[], n_perms=1, shuffle=False,
        initial_rating=1000, n_bootstraps=0,
    )  # fmt: skip
    for name in ("simple", "food", "llmfao"):
        battles, _ = battle_files.read(
            folder / f"{name}.csv", columns=COLUMNS, filters={}
        )
        scores: dict[str, dict[str, float]] = {}
        with (folder / f"{name}-golden.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                scores.setdefault(row["algorithm"], {})[row["item"]] = float(
                    row["score"]
                )
        logs = {
            model: 400 * math.log10(score)
            for model, score in scores["bradley_terry"].items()
        }
        centre = 1400 - sum(logs.values()) / len(logs)
        expected = {model: centre + log for model, log in logs.items()}
        for method, answer, error in (
            (in_file_order, scores["elo"], 1e-9),
            (bradley_terry(), expected, 1e-4),
        ):
            board = method.rate({"overall": battles})["overall"]
            found = dict(zip(board.models, board.rating.tolist(), strict=True))
            assert found == pytest.approx(answer, abs=error)


# What real data say, as docs/evidence.md has it

GPT_3 = "gpt-3.5-turbo-instruct"


@pytest.mark.system
def test_real_errors_are_larger_over_prompts_than_over_rows():
    """Rows on one prompt are not independent; counted as if they were, they make errors too small. The intervals differ
    more, as 13 prompts tell an error less well than 8,931 rows, and half of the battles of some models are on one."""
    every, _ = battle_files.read(
        shared_data("llmfao/battles.jsonl.gz"), columns=COLUMNS, filters={}
    )
    judge_of = np.array(every.judges)[every.judge]
    for judge, interval, ratio, margin in (
        ("crowd", "bootstrap", 2.1, 0.08),
        ("gpt-4", "sandwich", 1.57, 0.01),
        (GPT_3, "sandwich", 1.28, 0.01),
        ("crowd", "sandwich", 1.99, 0.01),
    ):
        some = every.select(judge_of == judge).compact()
        nameless = len(some.questions) + np.arange(len(some), dtype=np.int32)
        rows = dataclasses.replace(some, question=nameless)
        boards = bradley_terry(interval).rate({"prompts": some})
        boards |= bradley_terry(interval).rate({"rows": rows})
        error = {name: board.std_error.mean() for name, board in boards.items()}
        assert error["prompts"] / error["rows"] == pytest.approx(ratio, abs=margin)
    width = {name: (b.ci_high - b.ci_low).mean() for name, b in boards.items()}
    assert width == pytest.approx({"prompts": 210.5, "rows": 73}, abs=0.5)


# Battles that cannot be rated, or not well, through the command: the right answer, a named flag, or one clear line

METHODS = ("bradley_terry", "davidson", "rao_kupper")
RATE = ("experiment=rate", "tracker=local", "figures=false", "elo.n_perms=20")
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
    path = write_table(folder / "battles.csv", rows)
    methods = f"rating=[{','.join(METHODS)}]"
    return run(
        *RATE,
        f"battles={path}",
        methods,
        folder=folder,
    )


def said(ran: Ran, case: str, method: str) -> dict[str, float | str]:
    """By model: its rating, or the flag that says why there is none."""
    ratings = ran.read("ratings.json")["dimensions"][case][method]["ratings"]
    assert all((r["rating"] is None) == (r["flag"] is not None) for r in ratings)
    return {r["model"]: r["flag"] or r["rating"] for r in ratings}


@pytest.mark.system
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", RATINGS)
def test_whoever_can_be_rated_is_and_whoever_cannot_is_named(rated, case, method):
    """The others are rated as if the winless, unbeaten and disconnected were absent."""
    assert said(rated, case, method) == {
        model: answer if isinstance(answer, str) else pytest.approx(answer, abs=1e-6)
        for model, answer in RATINGS[case].items()
    }


@pytest.mark.system
def test_a_win_and_a_tie_rate_two_models_only_if_a_tie_is_half_a_win(
    rated,
):
    """As three half wins to one; where a tie is an outcome of its own, A never lost and no gap is too large."""
    ahead = 200 * math.log10(3)
    assert said(rated, "won and tied", "bradley_terry") == pytest.approx(
        {"A": 1400 + ahead, "B": 1400 - ahead}
    )
    for method in ("davidson", "rao_kupper"):
        assert said(rated, "won and tied", method) == {"A": "unbeaten", "B": "winless"}


def test_no_file_holds_a_number_that_is_none(rated):
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


def test_those_without_a_rating_are_ranked_by_whom_they_beat(rated):
    """On one prompt: all points with probability .025 where they are 636 points apart the other way."""
    least, most = f"{1400 + AHEAD - 636.4:.0f}", f"{1400 - AHEAD + 636.4:.0f}"
    for cells in (["1 / 1–3", "U", f"over {least}"], ["3 / 1–3", "W", f"under {most}"]):
        assert cells in [row[:3] for row in rated.page.cells]
    assert re.search(rf"1-3 +U +over {least} +\[{least}, …\)", rated.out)
    assert re.search(rf"1-3 +W +under {most} +\(…, {most}\]", rated.out)
    assert "Not rated: U" not in rated.out + rated.page.said
    conclusions = rated.read("ratings.json")["conclusions"]
    assert {conclusion["state"] for conclusion in conclusions.values()} == {"few"}


def test_a_loser_does_not_lead_over_an_unbeaten_entrant(tmp_path):
    """A beats B and C on all 60 prompts, and B beats C three to one."""
    rows = [
        row(
            a,
            b,
            "model_b" if (a, q % 4) == ("B", 0) else "model_a",
            **{"question_id": q, "source": "human"},
        )
        for q in range(60)
        for a, b in ("AB", "AC", "BC")
    ]
    path = write_table(tmp_path / "unbeaten.csv", rows)
    quick = ("tracker=local", "figures=false", "elo.n_perms=2")
    ran = run(str(path), *quick, folder=tmp_path)
    said = (
        "if each of the 180 votes is by a different person, A is ahead of B by at least 479 points, having won all 60 "
        "prompts, p < .001"
    )
    assert f"overall (60 prompts) {said}. " in " ".join(ran.out.split())
    assert re.search(rf"<h1[^>]*>\s*{html.escape(said)}\s*</h1>", ran.page.text)
    found = ran.read("ratings.json")
    assert found["conclusions"]["overall"]["sentence"] == said
    tracked = {}
    for one in ran.rows("tracker/log.jsonl"):
        tracked |= one["value"] if one["kind"] == "summary" else {}
    assert tracked["conclusion/overall/sentence"] == said
    assert "B leads" not in ran.out + ran.page.text
    board = found["dimensions"]["overall"]["bradley_terry"]["ratings"]
    assert [r["model"] for r in board] == ["A", "B", "C"]
    first, second, _ = board
    assert (first["rating"], first["ci_high"], first["flag"]) == (
        None,
        None,
        "unbeaten",
    )
    assert (first["rank"], first["rank_low"], first["rank_high"]) == (1, 1, 1)
    assert first["ci_low"] == pytest.approx(second["rating"] + 479.1, abs=0.1)
    lead = found["differences"]["bradley_terry"][0]
    assert (lead["higher"], lead["lower"], lead["difference"]) == ("A", "B", None)
    assert (lead["one_sided"], lead["n_prompts"]) == (True, 60)


def test_entrants_that_nothing_links_to_the_first_have_a_board_of_their_own(
    rated,
):
    """C and D met only each other: level, and not comparable with A and B."""
    found = rated.read("ratings.json")["dimensions"]["apart"]["bradley_terry"]
    (group,) = found["groups"]
    assert [(r["model"], r["rating"], r["rank"]) for r in group] == [
        ("C", pytest.approx(1400), 1),
        ("D", pytest.approx(1400), 1),
    ]
    page = rated.page
    for where in (" ".join(rated.out.split()), page.said):
        assert "A separate group: C and D (no chain of wins" in where
        assert "Not rated: C" not in where
    assert "a separate group, not comparable with those above:" in rated.out
    assert ["1", "C", "1400"] in [row[:3] for row in page.cells]


def test_beside_every_k_stands_how_far_elo_has_gone(rated):
    elo = rated.read("ratings.json")["dimensions"]["base"]["elo"]
    gone = [row["slowest_share"] for row in elo["by_k"]]
    assert gone == sorted(gone) and 0 < gone[0] < gone[-1] < 1
    assert {row["converged"] for row in elo["by_k"]} == {False}
    (main,) = (row for row in elo["by_k"] if row["k"] == 16)
    assert elo["parameters"] == {**main, "sufficient_k": None}


def rate_seven_to_three(folder: Path, name: str, *overrides: str, **how: Any) -> Ran:
    """A is called `name`."""
    rows = [row(a.replace("A", name), b, w) for a, b, w in SEVEN_TO_THREE]
    path = write_table(folder / "battles.jsonl", rows)
    given = (f"battles={path}", "elo.n_bootstraps=0", *overrides)
    return run(*RATE, *given, folder=folder, **how)


def test_the_console_shows_the_method_that_was_chosen_within_110_columns(
    tmp_path,
):
    """Of a long name it shows the beginning and the end."""
    name = "a-model/" + "with-a-name-" * 8 + "9"
    out = rate_seven_to_three(tmp_path, name, "rating=[davidson]").out
    assert "Davidson" in out
    assert "Bradley-Terry" not in out
    line = next(line for line in out.splitlines() if "●" in line)
    assert "-name-9 " in line
    assert max(map(len, out.partition("files  ")[0].splitlines())) <= 110


def test_of_many_entrants_the_console_shows_the_first_ten_and_the_last(
    tmp_path,
):
    """Each wins two of three battles against all those after it."""
    names = [f"m{i:02}" for i in range(15)]
    won = ("model_a", "model_a", "model_b")
    rows = [row(*pair, winner) for pair in combinations(names, 2) for winner in won]
    path = write_table(tmp_path / "battles.jsonl", rows)
    out = run(*RATE, f"battles={path}", "elo.n_perms=2", folder=tmp_path).out
    shown = [line.split()[1] for line in out.splitlines() if "●" in line]
    assert shown == [*names[:10], "m14"]
    assert "4 more in the report" in out


def test_a_lead_is_the_difference_of_the_ratings_that_are_shown(tmp_path):
    """X won 8 of 10 battles and Y 75 of 100: 50 points, although Y is known much better."""
    won = {"x": (10, 8), "y": (100, 75)}
    rows = [
        row(name, "z", "model_a" if i < n_won else "model_b", question_id=f"q{i}")
        for name, (n, n_won) in won.items()
        for i in range(n)
    ]
    path = write_table(tmp_path / "battles.jsonl", rows)
    ran = run(*RATE, f"battles={path}", "elo.n_perms=2", folder=tmp_path)
    found = ran.read("ratings.json")
    ratings = found["dimensions"]["overall"]["bradley_terry"]["ratings"]
    x, y = (next(r["rating"] for r in ratings if r["model"] == model) for model in "xy")
    lead = found["differences"]["bradley_terry"][0]
    assert lead["difference"] == pytest.approx(x - y) == pytest.approx(50, abs=0.5)
    conclusion = found["conclusions"]["overall"]
    assert (conclusion["difference"], conclusion["state"]) == (x - y, "few")
    said = f"10 prompts are too few to rank the entrants; x is ahead of y by {x - y:.0f} points ["
    assert conclusion["sentence"].startswith(said)
    assert conclusion["sentence"] in " ".join(ran.out.split())
    assert conclusion["whose"].startswith(
        "These points reflect the preferences of an unnamed judge on "
    )


@pytest.mark.system
def test_a_console_without_the_characters_of_a_table_gets_their_escapes(
    tmp_path,
):
    out = rate_seven_to_three(tmp_path, "µ", anew=True, PYTHONIOENCODING="ascii").out
    assert "+/- is the random error of this average" in out
    assert any(r"\xb5" in line.split() for line in out.splitlines())


def test_files_of_several_programs_are_rated_together_by_their_names_alone(
    tmp_path,
):
    """A share is used by Bradley-Terry and refused by a model of ties."""
    one = {"left": "A", "right": "B", "question_id": "p"}
    evalica = write_table(tmp_path / "a b,c.csv", [one | {"winner": "left"}] * 2)
    two = {"generator_1": "A", "generator_2": "B", "preference": 1.9, "annotator": "j"}
    rows = [two | {"instruction": text} for text in "xy"]
    alpaca = write_table(tmp_path / "lr=1.jsonl", rows)
    quick = ("tracker=local", "figures=false", "elo.n_perms=5", "elo.n_bootstraps=0")
    ran = run(str(evalica), *quick, str(alpaca), folder=tmp_path)
    manifest = ran.read("manifest.json")
    assert "experiment=rate" in manifest["overrides"]
    files = {file["file"]: file for file in manifest["battles_files"]}
    assert [file["format"] for file in files.values()] == ["evalica", "alpaca_eval"]
    assert set(manifest["input_paths"].values()) == set(files)
    assert files[str(alpaca)]["rows"] == {"used": 2, "tied": 0, "invalid": 0}
    assert (
        f"{alpaca}: read as alpaca_eval: 2 used, 0 tied, 0 invalid; assumed" in ran.err
    )
    board = ran.read("ratings.json")["dimensions"]["overall"]["bradley_terry"]
    first, second = (row["rating"] for row in board["ratings"])
    assert first - second == pytest.approx(400 * math.log10(2.2 / 1.8))
    ties = attempt(str(alpaca), *quick, "rating=[davidson]", folder=tmp_path)
    assert (ties.code, ties.err.splitlines()[-2:]) == (
        2,
        [
            "elo_exp: Davidson needs wins, losses and ties, and 2 battles have a share in between. Use:",
            "  'rating=[bradley_terry]'",
        ],
    )


@pytest.mark.system
@pytest.mark.parametrize("is_alpaca", [True, False])
def test_a_first_that_gives_one_answer_to_all_prompts_does_not_lead(
    tmp_path, is_alpaca
):
    """The texts of alpaca_eval, or of any table, stand beside the winners, and need no judge to be seen."""

    def annotated(said: list[str]) -> Ran:
        rows: list[dict[str, Any]] = [
            {
                **{"generator_1": "old", "generator_2": "new", "annotator": "j"},
                **{"output_1": f"Take {i} mg, and see a doctor.", "output_2": text},
                **{"instruction": f"Question {i}?", "preference": 2 if i % 4 else 1},
            }
            for i, text in enumerate(said)
        ]
        if not is_alpaca:
            rows = [
                {
                    **{
                        "model_a": "old",
                        "model_b": "new",
                        "prompt": row["instruction"],
                    },
                    **{"response_a": row["output_1"], "response_b": row["output_2"]},
                    "winner": "model_b" if row["preference"] == 2 else "model_a",
                }
                for row in rows
            ]
        path = write_table(tmp_path / f"{len(set(said))}.jsonl", rows)
        quick = ("tracker=local", "figures=false", "elo.n_perms=2")
        return run(str(path), *quick, "elo.n_bootstraps=0", folder=tmp_path)

    null = annotated(["Choose me, I am the best answer."] * 60)
    own = annotated([f"Take {i} mg, and call your doctor." for i in range(60)])
    reasons = {
        ran: {
            reason["name"]: reason["value"]
            for reason in ran.read("ratings.json")["conclusions"]["overall"]["reasons"]
        }
        for ran in (null, own)
    }
    assert reasons[null]["answers"] == 1.0
    assert "answers" not in reasons[own]
    assert "the same text: new 100%" in null.out
    assert "leads" not in null.out


@pytest.mark.system
def test_a_table_with_words_of_its_own_is_rated_by_one_command(tmp_path):
    """Left and right won eight and four times; a row that was skipped has no verdict, and is no tie."""
    words = ["left"] * 8 + ["right"] * 4 + ["skipped"]
    names = {"left_model": "A", "right_model": "B"}
    rows = [names | {"vote": word, "q": i} for i, word in enumerate(words)]
    path = write_table(tmp_path / "votes.csv", rows)
    columns = {"model_a": "left_model", "model_b": "right_model", "winner": "vote"}
    columns |= {"question_id": "q"}
    given = [f"battles_columns.{name}={column}" for name, column in columns.items()]
    quick = ("tracker=local", "figures=false", "elo.n_perms=2")
    lost = attempt(str(path), *given, *quick, folder=tmp_path)
    assert (lost.code, lost.err.startswith(f"elo_exp: {path}:2: winner must be")) == (
        2,
        True,
    )
    *_, pasted = shlex.split(lost.err)
    assert pasted == "battles_values={left:model_a,right:model_b,skipped:?}"
    said = attempt(str(path), *given, *quick, pasted, folder=tmp_path)
    assert "elo_exp: battles_values.skipped must be one of " in said.err
    values = pasted.replace("?", "null")
    ran = run(str(path), *given, *quick, values, folder=tmp_path)
    first, second = ran.err.splitlines()[:2]
    assert first == f"{path}: read as battles: 12 used, 0 tied, 1 invalid"
    assert second == "rate: 12 battles on 1 rubric"
    board = ran.read("ratings.json")["dimensions"]["overall"]["bradley_terry"]
    a, b = (row["rating"] for row in board["ratings"])
    assert a - b == pytest.approx(400 * math.log10(2))


def test_a_file_that_cannot_be_read_leaves_no_run(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", [row("A", "A", "tie")])
    ran = attempt(*RATE, f"battles={path}", folder=tmp_path / "here")
    assert ran.code == 2
    assert ran.err.startswith(f"elo_exp: {path}:1: the models must differ; got ")
    assert not list(tmp_path.glob("here/outputs/rate*"))


# Whose verdicts


def judged_rows(n_prompts: int = 40, **more: Any) -> list[dict[str, Any]]:
    """claude-3 beats gpt-4 on three prompts of four, in both orders."""
    return [
        row("claude-3", "gpt-4", winner, question_id=f"q{q}")
        | {"verdict_ab": winner, "verdict_ba": winner, **more}
        for q in range(n_prompts)
        for winner in ["model_b" if q % 4 == 0 else "model_a"]
    ]


@pytest.mark.parametrize(
    ("columns", "whose"),
    [
        ({}, "These points reflect the preferences of an unnamed judge on 40 prompts."),
        ({"source": "human"}, "These points reflect the votes in "),
        (
            {"source": "human", "judge_model": "crowd"},
            "These points reflect the votes in ",
        ),
        ({"judge_model": "human"}, "These points reflect the votes in "),
        (
            {"judge_model": "judgy"},
            "These points reflect the preferences of judgy on 40 prompts.",
        ),
        ({"judge_model": "lexical"}, "Points count shared words and say nothing"),
    ],
)
def test_only_what_is_said_to_be_votes_is(
    columns: dict[str, str], whose: str, tmp_path: Path
):
    path = write_table(tmp_path / "battles.jsonl", judged_rows(**columns))
    ran = run(*RATE, f"battles={path}", "elo.n_perms=2", folder=tmp_path)
    conclusion = ran.read("ratings.json")["conclusions"]["overall"]
    assert conclusion["whose"].startswith(whose)


@pytest.mark.parametrize(
    ("judge", "more", "reasons"),
    [
        ("claude-opus", (), ["kin"]),
        ("gpt-5", (), []),
        ("claude-opus", ("judging.families={}",), []),
    ],
)
def test_a_first_of_the_family_of_a_files_judge_needs_care(
    judge: str, more: tuple[str, ...], reasons: list[str], tmp_path: Path
):
    path = write_table(tmp_path / "battles.jsonl", judged_rows(judge_model=judge))
    ran = run(*RATE, f"battles={path}", "elo.n_perms=2", *more, folder=tmp_path)
    conclusion = ran.read("ratings.json")["conclusions"]["overall"]
    assert [reason["name"] for reason in conclusion["reasons"]] == reasons
