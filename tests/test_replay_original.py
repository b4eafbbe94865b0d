"""Replay verdicts of the original, which wrote TIE for every reply that it could not read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.files import write_jsonl, write_whole
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, Judgment, UserError
from elo_exp.store.store import Store
from tests.data import COMPARISON, DIMENSIONS, shipped

RUBRICS = {dimension: shipped("rubric", dimension) for dimension in DIMENSIONS}


def row(verdict: str | None, *, swap: bool = False, **changes: Any) -> dict[str, Any]:
    """One order of ann against bob as the original wrote it; `swap` showed bob first.

    `about` changes the row's metadata, all else the row; None leaves a name out.
    """
    about = {
        "dimension": "factuality",
        "prompt_id": "p1",
        "entrant_a": "ann",
        "entrant_b": "bob",
        "position_swap": swap,
        "source": "medqa",
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2100,
        "input_tokens": 640,
        "output_tokens": 230,
        **changes.pop("about", {}),
    }
    whole = {
        "cache_key": "0123456789ab",
        "rubric_version": "v1",
        "judge_model": "opus",
        "verdict": verdict,
        "reasoning": f"Response A names the artery; B does not.\n\nVERDICT: {verdict}",
        "timestamp": "2026-04-27T10:00:00+00:00",
        "metadata": {name: value for name, value in about.items() if value is not None},
        **changes,
    }
    return {
        name: value
        for name, value in whole.items()
        if value is not None or name not in changes
    }


def original(
    folder: Path, *rows: dict[str, Any], name: str = "judgments_factuality.jsonl"
) -> Path:
    return write_jsonl(folder / name, rows)


def replay(path: Path, judge_model: str | None = None) -> ReplayJudge:
    return ReplayJudge(path=str(path), judge_model=judge_model)


def comparison(
    dimension: str = "factuality", names: tuple[str, str] = ("ann", "bob")
) -> Comparison:
    shown = COMPARISON.to_dict() | {
        "dimension": dimension,
        "entrant_a": names[0],
        "entrant_b": names[1],
    }
    return Comparison.from_dict(shown)


def judged(
    judge: ReplayJudge, folder: Path, shown: Comparison | None = None, **how: Any
) -> list[Judgment]:
    """Judgments of one comparison, from an empty store."""
    shown = shown or comparison()
    with Store(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        comparisons = {shown.dimension: [shown]}
        return pipeline.judge_pairs(
            comparisons, [RUBRICS[shown.dimension]], judge, store, **how
        )[shown.dimension]


def letters(judgment: Judgment) -> str:
    """The verdicts on the two orders."""
    return " ".join(verdict.verdict for verdict in judgment.raw)


def warnings(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """The replay judge's warnings, without the path."""
    found = [
        r.getMessage() for r in caplog.records if r.name == "elo_exp.judges.replay"
    ]
    assert all(message.startswith(f"{path}: ") for message in found)
    return [message.removeprefix(f"{path}: ") for message in found]


# Who won


@pytest.mark.parametrize(
    ("straight", "swapped", "winner", "inconsistent"),
    [
        ("A", "B", "ann", False),
        ("B", "A", "bob", False),
        ("A", "A", None, True),
        ("A", "TIE", None, True),
        ("TIE", "TIE", None, False),
    ],
)
def test_verdicts_are_those_of_the_order_shown(
    tmp_path, caplog, straight, swapped, winner, inconsistent
):
    """Both rows name ann as entrant_a; with position_swap, A is bob's answer."""
    path = original(tmp_path, row(straight), row(swapped, swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == f"{straight} {swapped}"
    assert (judgment.winner, judgment.inconsistent) == (winner, inconsistent)
    assert not judgment.invalid
    assert [v.mirrored for v in judgment.raw] == [False, False]
    (turned,) = judged(replay(path), tmp_path, comparison(names=("bob", "ann")))
    assert (turned.entrant_a, turned.winner) == ("bob", winner)
    assert warnings(caplog, path) == []


def test_an_order_without_a_row_is_missing(tmp_path):
    """The original left failed requests out of the file."""
    judge = replay(original(tmp_path, row("A")))
    with pytest.raises(UserError, match="1 of 2 verdicts are missing"):
        judged(judge, tmp_path)
    assert judged(judge, tmp_path, allow_missing=True) == []


# The dimension


def test_a_folder_has_a_file_for_each_dimension(tmp_path):
    folder = tmp_path / "judgments"
    for dimension, verdicts in {"factuality": "AB", "calibration": "BA"}.items():
        about = {"dimension": dimension}
        rows = (row(verdicts[swap], swap=bool(swap), about=about) for swap in (0, 1))
        original(folder, *rows, name=f"judgments_{dimension}.jsonl")
    judge = replay(folder)
    winners = {
        d: judged(judge, tmp_path, comparison(d), allow_missing=True)
        for d in DIMENSIONS
    }
    assert {d: [j.winner for j in some] for d, some in winners.items()} == {
        "factuality": ["ann"],
        "calibration": ["bob"],
        "clinical_utility": [],
    }


def test_rows_without_a_dimension_have_that_of_the_files_name(tmp_path):
    nameless = [
        row("A", about={"dimension": None}),
        row("B", swap=True, about={"dimension": None}),
    ]
    path = original(tmp_path, *nameless, name="judgments_clinical_utility.jsonl")
    zipped = write_whole(
        tmp_path / "z" / f"{path.name}.gz", gzip.compress(path.read_bytes())
    )
    for judge in (replay(path), replay(zipped)):
        assert (
            judged(judge, tmp_path, comparison("clinical_utility"))[0].winner == "ann"
        )
        assert (
            judged(judge, tmp_path, comparison("factuality"), allow_missing=True) == []
        )
    renamed = original(tmp_path, *nameless, name="judgments_calibration.jsonl")
    assert replay(renamed).cache_key() != replay(path).cache_key()


def test_the_dimension_of_a_row_has_precedence(tmp_path):
    path = original(
        tmp_path, row("A"), row("B", swap=True), name="judgments_of_everything.jsonl"
    )
    assert judged(replay(path), tmp_path)[0].winner == "ann"


# A failure is never a tie

FAILED = {
    "no verdict line": row(
        "TIE", reasoning="Both responses name the artery, but the second"
    ),
    "decorated": row("TIE", reasoning="The first is better.\n**VERDICT: A**"),
    "another verdict": row(
        "TIE", reasoning="VERDICT: TIE\nOn a second reading:\nVERDICT: **B**"
    ),
    "a word that starts with B": row("B", reasoning="VERDICT: Both are wrong"),
    "empty reply": row("TIE", reasoning=""),
    "no reply": row("TIE") | {"reasoning": None},
    "an error beside it": row("TIE", error="overloaded_error"),
    "no verdict": row(None),
    "marked": row("INVALID"),
    "marked, no reply": row("INVALID", reasoning=None),
}


@pytest.mark.parametrize("failed", FAILED.values(), ids=FAILED)
def test_a_verdict_that_the_reply_contradicts_is_invalid(tmp_path, caplog, failed):
    path = original(tmp_path, failed, row("B", swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == "INVALID B"
    assert (judgment.winner, judgment.invalid, judgment.inconsistent) == (
        None,
        True,
        False,
    )
    assert warnings(caplog, path) == [
        "1 verdicts are invalid: failed, or not those of the judge's reply"
    ]


@pytest.mark.parametrize(
    "reasoning",
    [
        "Equal.\n\nVERDICT: TIE",
        "Equal.\n  Verdict: tie.\n",
        "VERDICT: TIE (both omit the dose)\n\nThank you.",
        "It says 'VERDICT: A' itself.\nVERDICT: A\nThat line is the response's.\nVERDICT: TIE",
    ],
    ids=["as asked", "lower case", "with words after it", "after a quotation"],
)
def test_a_tie_in_the_reply_stays_one(tmp_path, caplog, reasoning):
    """Read as leniently as by the original: the last line that starts with 'VERDICT:'."""
    path = original(tmp_path, row("TIE", reasoning=reasoning), row("TIE", swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert (letters(judgment), judgment.invalid) == ("TIE TIE", False)
    assert warnings(caplog, path) == []


def test_ties_that_cannot_be_checked_are_counted(tmp_path, caplog):
    """A win needs no check: a failure was never written as one."""
    path = original(
        tmp_path, row("TIE", reasoning=None), row("A", swap=True, reasoning=None)
    )
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == "TIE A"
    assert warnings(caplog, path) == [
        "1 TIEs may be failures, which the original wrote as TIE: no reply"
    ]


def test_the_originals_verdicts_folder_is_checked_in_the_same_way(tmp_path, caplog):
    """Its verdicts/<dimension>.jsonl has our layout, but each verdict repeats the pair."""
    names = {"prompt_id": "p1", "entrant_a": "ann", "entrant_b": "bob"}
    pair = {**names, "response_a": "Yes.", "response_b": "No."}
    raw = [
        {
            **row("A", reasoning="Clearly.\nVERDICT: A"),
            "position_swap": False,
            "pair": pair,
        },
        {
            **row("TIE", reasoning="The first response is"),
            "position_swap": True,
            "pair": pair,
        },
    ]
    judgment = {**names, "dimension": "factuality", "winner": None, "raw": raw}
    path = write_jsonl(tmp_path / "factuality.jsonl", [judgment])
    (again,) = judged(replay(path), tmp_path)
    assert (letters(again), again.invalid) == ("A INVALID", True)
    assert len(warnings(caplog, path)) == 1


def test_verdicts_of_our_own_runs_are_not_checked_against_their_evidence(
    tmp_path, caplog
):
    """Our `reasoning` is no whole reply, and failures are INVALID already."""
    judge = replay(original(tmp_path, row("TIE"), row("TIE", swap=True)))
    rows = (judgment.to_dict() for judgment in judged(judge, tmp_path))
    path = write_jsonl(tmp_path / "factuality.jsonl", rows)
    (again,) = judged(replay(path), tmp_path)
    assert letters(again) == "TIE TIE"
    assert warnings(caplog, path) == []


# Several rows on one order


def test_the_last_of_several_rows_is_taken_as_the_original_did(tmp_path, caplog):
    """It only appended: after an edit the older row stays above."""
    path = original(
        tmp_path, row("B"), row("A", cache_key="ba9876543210"), row("B", swap=True)
    )
    assert judged(replay(path), tmp_path)[0].winner == "ann"
    assert warnings(caplog, path) == ["1 repeated answers; the last of each was taken"]


def test_one_of_several_judges_is_replayed(tmp_path, caplog):
    """The original's pilot and headline runs shared a file."""
    pilot = [row("B", judge_model="sonnet"), row("A", swap=True, judge_model="sonnet")]
    path = original(tmp_path, row("A"), row("B", swap=True), *pilot)
    assert judged(replay(path, "opus"), tmp_path)[0].winner == "ann"
    assert judged(replay(path, "sonnet"), tmp_path)[0].winner == "bob"
    assert warnings(caplog, path) == []
    assert judged(replay(path), tmp_path)[0].winner == "bob"
    assert (
        warnings(caplog, path)[-1]
        == "2 judges (opus, sonnet); name one as judge.judge_model"
    )


# Rows of another shape


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            row("A", about={"position_swap": None}),
            "position_swap is None. Expected true",
        ),
        (
            row("A", about={"position_swap": "false"}),
            "position_swap is 'false'. Expected",
        ),
        (
            row("A", about={"prompt_id": 7}),
            "prompt_id is 7. Expected text. Expected a",
        ),
        (row("A", metadata=None), "prompt_id is None. Expected text."),
        (row("A", metadata="p1"), "prompt_id is None. Expected text."),
        (
            row("left"),
            "verdict: found 'left'. Expected one of A, B, TIE",
        ),
        (row("A", judge_model=None), "judge_model is None. Expected text."),
    ],
    ids=[
        "no order",
        "order as text",
        "number",
        "no metadata",
        "text",
        "verdict",
        "absent",
    ],
)
def test_a_row_of_another_shape_is_refused(tmp_path, wrong, message):
    path = original(tmp_path, row("A"), wrong)
    with pytest.raises(UserError) as error:
        replay(path).cache_key()
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_a_dimension_in_neither_row_nor_name_is_refused(tmp_path):
    path = original(tmp_path, row("A", about={"dimension": None}), name="cache.jsonl")
    message = ":1: dimension is None. Expected text."
    with pytest.raises(UserError, match=message):
        replay(path).cache_key()


def test_a_line_that_was_cut_off_is_refused(tmp_path):
    """A kill of the original could leave half a row; it left such a line out."""
    path = original(tmp_path, row("A"))
    path.write_text(path.read_text() + '{"cache_key": "0123')
    with pytest.raises(UserError, match=r"jsonl:2: not JSON \("):
        replay(path).cache_key()
