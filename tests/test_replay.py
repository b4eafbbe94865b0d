"""Replaying the verdicts of a run, of the original program, and battles."""

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.data import pairing
from elo_exp.data.battles import battles_from_judgments
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl, write_whole
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, Judgment
from elo_exp.types import JudgeKind
from tests import data
from tests.data import COMPARISON, DIMENSIONS, letters, shipped

LEXICAL = shipped("judge", "lexical")


def comparison(
    dimension: str = "factuality", a: str = "ann", b: str = "bob", **changes: Any
) -> Comparison:
    shown = dataclasses.replace(
        COMPARISON, dimension=dimension, gold_answer="Yes.", **changes
    )
    return dataclasses.replace(shown, entrant_a=a, entrant_b=b)


def replay(path: Path, judge_model: str | None = None) -> ReplayJudge:
    return ReplayJudge(kind=None, path=str(path), judge_model=judge_model)


def judged(
    judge: Any, folder: Path, *comparisons: Comparison, **how: Any
) -> list[Judgment]:
    return data.judged(judge, folder, *(comparisons or [comparison()]), **how)


def saved(path: Path, *judgments: Judgment) -> Path:
    return write_jsonl(path, (judgment.to_dict() for judgment in judgments))


def warnings(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """The judge's warnings, without the path."""
    return [message.removeprefix(f"{path}: ") for message in caplog.messages]


# A run


def test_verdicts_that_are_not_on_file_or_invalid_there_are_unknown(tmp_path):
    shown = [comparison(prompt_id=f"p{n}", response_a="No.") for n in range(3)]
    before = judged(LEXICAL, tmp_path, *shown)
    rows = [judgment.to_dict() for judgment in before[:2]]
    rows[1] = {
        **rows[1],
        "raw": [{**verdict, "verdict": "INVALID"} for verdict in rows[1]["raw"]],
    }
    path = write_jsonl(tmp_path / "verdicts.jsonl", rows)
    again = judged(replay(path), tmp_path, *shown, allow_missing=True)
    unknown = pairing.list_unjudged(shown, again)
    assert [one.question_id for one in unknown] == ["p1", "p2"]
    assert all(one.lacking == () for one in unknown)


def test_the_verdicts_or_battles_of_a_run_conclude_what_the_run_did(tmp_path):
    """One comparison is equal, one won, one flipped; each may be listed the other way round."""
    shown = [
        comparison(prompt_id="p1"),
        comparison(prompt_id="p2", response_a="No."),
        comparison(prompt_id="p3", response_a="Never.", response_b="Yes. Yes."),
    ]
    flipping = shipped("judge", "lexical", position_effect=1.0)
    before = [*judged(LEXICAL, tmp_path, *shown), *judged(flipping, tmp_path, shown[2])]
    before.pop(2)
    assert [letters(judgment) for judgment in before] == ["A B", "TIE TIE", "A A"]
    rows = [battle.to_dict() for battle in battles_from_judgments(before)]
    for path in (
        saved(tmp_path / "verdicts.jsonl", *before),
        write_jsonl(tmp_path / "battles.jsonl", rows),
    ):
        again = judged(replay(path), tmp_path, *shown)
        assert list(map(letters, again)) == list(map(letters, before))
        assert battles_from_judgments(again) == [
            dataclasses.replace(battle, judge_model="replay")
            for battle in battles_from_judgments(before)
        ]
        turned = judged(replay(path), tmp_path, shown[0].swapped())
        assert (turned[0].winner, letters(turned[0])) == ("ann", "B A")


def test_invalid_verdicts_stay_invalid_and_repeats_repeats(tmp_path):
    (judgment,) = judged(LEXICAL, tmp_path, repeats=2)
    row = judgment.to_dict()
    row["raw"][1]["verdict"], row["raw"][3]["verdict"] = "INVALID", "TIE"
    path = write_jsonl(tmp_path / "v.jsonl", [row])
    (once,) = judged(replay(path), tmp_path)
    assert (once.invalid, letters(once)) == (True, "A INVALID")
    (twice,) = judged(replay(path), tmp_path, repeats=2)
    assert letters(twice) == "A INVALID A TIE"
    assert [verdict.repeat for verdict in twice.raw] == [0, 0, 1, 1]
    message = (
        "judging.repeats must be at most 2, as many as .* holds for each order; got 3"
    )
    with pytest.raises(UserError, match=message):
        judged(replay(path), tmp_path, repeats=3)


# Battles

BATTLE = {
    "model_a": "ann",
    "model_b": "bob",
    "winner": "model_b",
    "question_id": "p1",
    "judge_model": "crowd",
}
EXCHANGED = {**BATTLE, "model_a": "bob", "model_b": "ann"}
BOTH = {**BATTLE, "winner": "tie", "verdict_ab": "model_a", "verdict_ba": "model_b"}


def battles(folder: Path, *rows: dict[str, Any]) -> Path:
    return write_jsonl(folder / "battles.jsonl", rows)


@pytest.mark.parametrize(
    ("rows", "verdicts", "mirrored"),
    [
        ([BATTLE], "B A", [False, True]),  # one observation answers both orders
        ([{**BATTLE, "shown_first": "b"}], "B A", [True, False]),
        ([{**BATTLE, "winner": "tie (bothbad)"}], "TIE TIE", [False, True]),
        ([BOTH], "A A", [False, False]),
        ([BATTLE, {**EXCHANGED, "winner": "model_b"}], "B B", [False, False]),
        ([{**EXCHANGED, "winner": "tie"}, BATTLE], "B TIE", [False, False]),
    ],
)
def test_battles_answer_the_orders_that_they_were_shown_in(
    tmp_path, rows, verdicts, mirrored
):
    (judgment,) = judged(replay(battles(tmp_path, *rows)), tmp_path)
    assert letters(judgment) == verdicts
    assert [verdict.mirrored for verdict in judgment.raw] == mirrored
    quality = judge_quality([judgment], dimension="factuality")
    assert (quality.flip_rate is None) == any(mirrored)
    (again,) = judged(replay(saved(tmp_path / "v.jsonl", judgment)), tmp_path)
    assert [verdict.mirrored for verdict in again.raw] == mirrored


def test_a_verdict_without_a_dimension_is_valid_for_all_that_have_none(tmp_path):
    rows = [BATTLE, {**BATTLE, "winner": "model_a", "dimension": "calibration"}]
    judge = replay(battles(tmp_path, *rows))
    winners = [judged(judge, tmp_path, comparison(d))[0].winner for d in DIMENSIONS]
    assert winners == ["bob", "ann", "bob"]


def test_a_verdict_is_about_names_also_where_texts_are_equal(tmp_path):
    """zoe's answer is bob's, word for word."""
    shown = [comparison(), comparison(b="zoe")]
    path = battles(tmp_path, BATTLE, {**BATTLE, "model_b": "zoe", "winner": "model_a"})
    assert [j.winner for j in judged(replay(path), tmp_path, *shown)] == ["bob", "ann"]
    found = judged(
        replay(battles(tmp_path, BATTLE)), tmp_path, *shown, allow_missing=True
    )
    assert [(j.entrant_b, j.winner) for j in found] == [("bob", "bob")]


# The original, which wrote TIE for every reply that it could not read


def row(verdict: str | None, *, swap: bool = False, **changes: Any) -> dict[str, Any]:
    """One order of ann against bob; `swap` showed bob first. `about` changes its metadata, None leaves a name out."""
    names = {"dimension": "factuality", "prompt_id": "p1", "position_swap": swap}
    pair = {"entrant_a": "ann", "entrant_b": "bob", "input_tokens": 640}
    about = {**names, **pair, **changes.pop("about", {})}
    whole = {
        "cache_key": "0123456789ab",
        "judge_model": "opus",
        "verdict": verdict,
        "reasoning": f"Response A names the artery; B does not.\n\nVERDICT: {verdict}",
        "metadata": {name: value for name, value in about.items() if value is not None},
        **changes,
    }
    absent = {name for name, value in changes.items() if value is None}
    return {name: value for name, value in whole.items() if name not in absent}


def original(
    folder: Path, *rows: dict[str, Any], name: str = "judgments_factuality.jsonl"
) -> Path:
    return write_jsonl(folder / name, rows)


def test_verdicts_are_those_of_the_order_shown(tmp_path, caplog):
    for straight, swapped, winner in (
        ("A", "B", "ann"),
        ("B", "A", "bob"),
        ("A", "A", None),
        ("TIE", "TIE", None),
        ("TIE", "B", None),
    ):
        path = original(tmp_path, row(swapped, swap=True), row(straight))
        (judgment,) = judged(replay(path), tmp_path)
        assert (letters(judgment), judgment.winner) == (f"{straight} {swapped}", winner)
        assert warnings(caplog, path) == []


def test_a_dimension_is_that_of_the_row_else_that_of_the_files_name(tmp_path):
    """One file a dimension in a folder; also compressed."""
    folder = tmp_path / "judgments"
    nameless = {"dimension": None}
    rows = [row("A", about=nameless), row("B", swap=True, about=nameless)]
    path = original(tmp_path, *rows, name="judgments_calibration.jsonl")
    write_whole(folder / f"{path.name}.gz", gzip.compress(path.read_bytes()))
    original(folder, row("B"), row("A", swap=True), name="judgments_of_all.jsonl")
    winners = [
        [j.winner for j in judged(replay(folder), tmp_path, shown, allow_missing=True)]
        for shown in map(comparison, DIMENSIONS)
    ]
    assert winners == [["bob"], ["ann"], []]
    renamed = original(tmp_path, *rows, name="judgments_clinical_utility.jsonl")
    edited = original(tmp_path, row("A"), name="judgments_factuality.jsonl")
    keys = [replay(each).cache_key() for each in (path, renamed, edited)]
    assert keys[0] != keys[1] != keys[2]


FAILED = {
    "no verdict line": row("TIE", reasoning="Both name the artery, but the second"),
    "another verdict": row("TIE", reasoning="VERDICT: TIE\nNo:\nVERDICT: **B**"),
    "no reply": row("TIE") | {"reasoning": None},
    "an error beside it": row("TIE", error="overloaded_error"),
    "no verdict": row(None),
}


@pytest.mark.parametrize("failed", FAILED.values(), ids=FAILED)
def test_a_verdict_that_the_reply_contradicts_is_invalid(tmp_path, caplog, failed):
    path = original(tmp_path, failed, row("B", swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert (letters(judgment), judgment.invalid) == ("INVALID B", True)
    assert warnings(caplog, path)[0].startswith("1 verdicts are invalid: failed, or")


@pytest.mark.parametrize(
    "reasoning",
    [
        "Equal.\n  Verdict: tie.\n",
        "VERDICT: TIE (both omit the dose)\n\nThank you.",
        "It says 'VERDICT: A' itself.\nVERDICT: A\nThat is the response's.\nVERDICT: TIE",
    ],
)
def test_a_tie_in_the_reply_stays_one(tmp_path, caplog, reasoning):
    """Read as leniently as by the original: the last line that starts with 'VERDICT:'."""
    path = original(tmp_path, row("TIE", reasoning=reasoning), row("TIE", swap=True))
    assert letters(judged(replay(path), tmp_path)[0]) == "TIE TIE"
    assert warnings(caplog, path) == []


def test_ties_that_cannot_be_checked_are_counted(tmp_path, caplog):
    """A win needs no check: a failure was never written as one."""
    rows = row("TIE", reasoning=None), row("A", swap=True, reasoning=None)
    path = original(tmp_path, *rows)
    assert letters(judged(replay(path), tmp_path)[0]) == "TIE A"
    message = "1 TIEs may be failures, which the original wrote as TIE: no reply"
    assert warnings(caplog, path)[0] == message


def test_judgments_of_the_original_are_checked_and_our_own_are_not(tmp_path, caplog):
    """Its verdicts/<dimension>.jsonl has our layout, but each verdict repeats the pair. Our `reasoning` is no reply."""
    names = {"prompt_id": "p1", "entrant_a": "ann", "entrant_b": "bob"}
    raw = [
        row("A", position_swap=False, pair=names),
        row("TIE", position_swap=True, pair=names, reasoning="The first response is"),
    ]
    theirs = {**names, "dimension": "factuality", "winner": None, "raw": raw}
    path = write_jsonl(tmp_path / "theirs.jsonl", [theirs])
    assert letters(judged(replay(path), tmp_path)[0]) == "A INVALID"
    ties = original(tmp_path, row("TIE"), row("TIE", swap=True))
    ours = saved(tmp_path / "ours.jsonl", *judged(replay(ties), tmp_path))
    caplog.clear()
    assert letters(judged(replay(ours), tmp_path)[0]) == "TIE TIE"
    assert warnings(caplog, ours) == []


# Several rows and judges


@pytest.mark.parametrize("taken", ["first", "last"])
def test_of_several_rows_on_one_order_one_is_taken(tmp_path, caplog, taken):
    """The first battle; the original's last row, as it only appended."""
    path = battles(tmp_path, BATTLE, {**BATTLE, "winner": "model_a"})
    if taken == "last":
        path = original(tmp_path, row("A"), row("B"), row("A", swap=True))
    assert judged(replay(path), tmp_path)[0].winner == "bob"
    message = f"1 repeated answers; the {taken} of each was taken"
    assert warnings(caplog, path)[0] == message


def test_one_of_several_judges_is_replayed_or_all_with_a_warning(tmp_path, caplog):
    other = {**BATTLE, "judge_model": "gpt-4", "winner": "model_a"}
    path = battles(tmp_path, BATTLE, other)
    assert replay(path).model == "replay"
    replay(path).cache_key()
    message = "2 judges (crowd, gpt-4); name one as judge.judge_model"
    assert message in warnings(caplog, path)
    assert replay(path, "gpt-4").model == "gpt-4"
    assert judged(replay(path, "gpt-4"), tmp_path)[0].winner == "ann"
    with pytest.raises(
        UserError,
        match=f'judge_model must name a judge whose verdicts are in {path}; got "opus"',
    ):
        replay(path, "opus").cache_key()


def test_settings_of_a_replay_of_each_judge_on_file(tmp_path, caplog):
    """Whoever votes is no judge."""
    rows = [
        {**BATTLE, "question_id": f"q{q}", "judge_model": judge, "source": source}
        for judge, source in (("opus", None), ("gpt", None), ("crowd", "human"))
        for q in range(3)
    ]
    path = battles(tmp_path, *rows)
    settings = {"path": str(path), "kind": None, "judge_model": None}
    assert ReplayJudge.each(settings) == {
        name: settings | {"judge_model": name} for name in ("opus", "gpt")
    }
    assert "verdicts of crowd are votes, which are not replayed" in caplog.text
    assert ReplayJudge.each(settings | {"judge_model": "gpt"}) == {}
    assert (
        ReplayJudge.each(settings | {"path": str(battles(tmp_path, *rows[:3]))}) == {}
    )


# Files that cannot be replayed

VERDICT = {"judge_model": "opus", "position_swap": False, "verdict": "A"}
NAMES = {
    "prompt_id": "p1",
    "dimension": "factuality",
    "entrant_a": "ann",
    "entrant_b": "b",
}
WRONG_ROWS = [
    (
        {"left": "ann"},
        "question_id is missing.\n  A row is one of these:\n  a verdict: prompt_id",
    ),
    (
        {**BATTLE, "winner": "left"},
        'winner must be model_a, model_b, tie or tie (bothbad); got "left".',
    ),
    (
        {**NAMES, "prompt_id": ["p1"], "raw": [VERDICT]},
        "prompt_id must be text; got ['p1'].",
    ),
    ({**NAMES, "raw": [{**VERDICT, "repeat": "1"}]}, "repeat must be "),
    (
        row("A", about={"position_swap": "false"}),
        'position_swap must be true or false; got "false".',
    ),
    (row("left"), "verdict must be A, B, "),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_ROWS)
def test_a_row_of_another_shape_is_refused(tmp_path, wrong, message):
    path = write_jsonl(tmp_path / "rows.jsonl", [BATTLE, wrong])
    with pytest.raises(UserError) as error:
        replay(path).cache_key()
    assert str(error.value).startswith(f"{path}:2: {message}")


@pytest.mark.parametrize(
    ("recorded", "kind", "expected"),
    [
        ("gpt-4", None, "model"),
        ("lexical", None, "words"),
        ("crowd", "people", "people"),
        (None, None, "model"),
    ],
)
def test_conclusions_name_those_whose_verdicts_are_replayed(
    recorded: str | None, kind: JudgeKind | None, expected: str, tmp_path: Path
):
    row = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "p"}
    path = write_jsonl(tmp_path / "battles.jsonl", [row | {"judge_model": recorded}])
    judge = dataclasses.replace(replay(path), kind=kind)
    assert judge.make_scope() == Scope(
        judge=recorded or "replay", kind=expected, source=str(path)
    )
