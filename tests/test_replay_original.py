"""Replaying the verdicts of the original program, which wrote TIE for every reply that it could not read."""

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
    """One order of ann against bob as the original wrote it: `swap` showed bob first.

    `about` changes the row's metadata, everything else the row; None as the value of a name leaves the name out.
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
        name: value for name, value in whole.items() if value is not None or name not in changes
    }


def original(folder: Path, *rows: dict[str, Any], name: str = "judgments_factuality.jsonl") -> Path:
    return write_jsonl(folder / name, rows)


def replay(path: Path, judge_model: str | None = None) -> ReplayJudge:
    judge = ReplayJudge(path=str(path), judge_model=judge_model)
    judge.check()
    return judge


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
    """What the suite concludes of one comparison from the replies, starting with an empty store."""
    shown = shown or comparison()
    with Store(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        comparisons = {shown.dimension: [shown]}
        return pipeline.judge_pairs(comparisons, [RUBRICS[shown.dimension]], judge, store, **how)[
            shown.dimension
        ]


def letters(judgment: Judgment) -> str:
    """What the judge said to the two orders."""
    return " ".join(verdict.verdict for verdict in judgment.raw)


def warnings(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """What the replay judge warned of, without the path."""
    found = [r.getMessage() for r in caplog.records if r.name == "elo_exp.judges.replay"]
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
def test_the_letters_are_those_of_the_order_that_was_shown(
    tmp_path, caplog, straight, swapped, winner, inconsistent
):
    """Both rows name ann as entrant_a; in the one with position_swap, A is what bob said."""
    path = original(tmp_path, row(straight), row(swapped, swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == f"{straight} {swapped}"
    assert (judgment.winner, judgment.inconsistent, judgment.invalid) == (
        winner,
        inconsistent,
        False,
    )
    assert [v.mirrored for v in judgment.raw] == [False, False]
    assert warnings(caplog, path) == []


def test_the_pair_may_be_listed_the_other_way_round(tmp_path):
    path = original(tmp_path, row("A"), row("B", swap=True))
    (judgment,) = judged(replay(path), tmp_path, comparison(names=("bob", "ann")))
    assert (judgment.entrant_a, judgment.winner, letters(judgment)) == ("bob", "ann", "B A")


def test_an_order_that_the_original_never_got_an_answer_for_is_missing(tmp_path):
    """It left failed requests out of the file, to ask them again."""
    judge = replay(original(tmp_path, row("A")))
    with pytest.raises(UserError, match="1 of 2 verdicts are missing"):
        judged(judge, tmp_path)
    assert judged(judge, tmp_path, allow_missing=True) == []


def test_a_folder_holds_a_file_for_each_dimension(tmp_path):
    folder = tmp_path / "judgments"
    for dimension, (straight, swapped) in {"factuality": "AB", "calibration": "BA"}.items():
        rows = (
            row(v, swap=s, about={"dimension": dimension})
            for v, s in ((straight, False), (swapped, True))
        )
        original(folder, *rows, name=f"judgments_{dimension}.jsonl")
    judge = replay(folder)
    winners = {d: judged(judge, tmp_path, comparison(d), allow_missing=True) for d in DIMENSIONS}
    assert {d: [j.winner for j in some] for d, some in winners.items()} == {
        "factuality": ["ann"],
        "calibration": ["bob"],
        "clinical_utility": [],
    }


# The dimension


def test_rows_without_a_dimension_have_that_of_the_files_name(tmp_path):
    nameless = [row("A", about={"dimension": None}), row("B", swap=True, about={"dimension": None})]
    path = original(tmp_path, *nameless, name="judgments_clinical_utility.jsonl")
    zipped = write_whole(tmp_path / "z" / f"{path.name}.gz", gzip.compress(path.read_bytes()))
    for judge in (replay(path), replay(zipped)):
        assert judged(judge, tmp_path, comparison("clinical_utility"))[0].winner == "ann"
        assert judged(judge, tmp_path, comparison("factuality"), allow_missing=True) == []


def test_a_file_whose_name_changes_the_dimension_is_another_judge(tmp_path):
    rows = [row("A", about={"dimension": None})]
    names = ("judgments_factuality.jsonl", "judgments_calibration.jsonl")
    one, two = (replay(original(tmp_path, *rows, name=name)).cache_key() for name in names)
    assert one != two


def test_the_dimension_of_a_row_goes_before_that_of_the_name(tmp_path):
    path = original(tmp_path, row("A"), row("B", swap=True), name="judgments_of_everything.jsonl")
    assert judged(replay(path), tmp_path)[0].winner == "ann"


# A failure is never a tie

FAILED = {
    "no verdict line": row("TIE", reasoning="Both responses name the artery, but the second"),
    "decorated": row("TIE", reasoning="The first is better.\n**VERDICT: A**"),
    "another verdict": row("TIE", reasoning="VERDICT: TIE\nOn a second reading:\nVERDICT: **B**"),
    "a word that starts with B": row("B", reasoning="VERDICT: Both are wrong"),
    "empty reply": row("TIE", reasoning=""),
    "no reply": row("TIE") | {"reasoning": None},
    "an error beside it": row("TIE", error="overloaded_error"),
    "no verdict": row(None),
    "marked": row("INVALID"),
    "marked, no reply": row("INVALID", reasoning=None),
}


@pytest.mark.parametrize("failed", FAILED.values(), ids=FAILED)
def test_a_verdict_that_the_reply_does_not_bear_out_is_invalid(tmp_path, caplog, failed):
    path = original(tmp_path, failed, row("B", swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == "INVALID B"
    assert (judgment.winner, judgment.invalid, judgment.inconsistent) == (None, True, False)
    assert warnings(caplog, path) == [
        "1 verdicts are invalid: marked as failed, or not what the judge's reply says"
    ]


@pytest.mark.parametrize(
    "reasoning",
    [
        "Equal.\n\nVERDICT: TIE",
        "Equal.\n  Verdict: tie.\n",
        "VERDICT: TIE (both omit the dose)\n\nThank you.",
        "It says 'VERDICT: A' itself.\nVERDICT: A\nThat line is the response's own.\nVERDICT: TIE",
    ],
    ids=["as asked", "in small letters", "with words after it", "after a quotation"],
)
def test_a_tie_that_the_judge_did_say_stays_one(tmp_path, caplog, reasoning):
    """Read as leniently as the original read it: the last line that starts with 'VERDICT:', wherever it is."""
    path = original(tmp_path, row("TIE", reasoning=reasoning), row("TIE", swap=True))
    (judgment,) = judged(replay(path), tmp_path)
    assert (letters(judgment), judgment.invalid) == ("TIE TIE", False)
    assert warnings(caplog, path) == []


def test_ties_that_cannot_be_checked_are_counted(tmp_path, caplog):
    """Without the reply nobody can tell; a win needs no check, for a failure was never written as one."""
    others = [row("TIE", reasoning=None, about={"prompt_id": f"q{i}"}) for i in range(4)]
    path = original(
        tmp_path, row("TIE", reasoning=None), row("A", swap=True, reasoning=None), *others
    )
    (judgment,) = judged(replay(path), tmp_path)
    assert letters(judgment) == "TIE A"
    assert warnings(caplog, path) == [
        "5 TIEs may be failures of the judge: the original wrote TIE then, and no reply is there"
    ]


def test_the_originals_own_verdicts_folder_is_held_to_the_same(tmp_path, caplog):
    """Its verdicts/<dimension>.jsonl has the layout of ours, but for the pair that each of the two verdicts repeats."""
    pair = {
        "prompt_id": "p1",
        "entrant_a": "ann",
        "entrant_b": "bob",
        "response_a": "Yes.",
        "response_b": "No.",
    }
    raw = [
        {**row(verdict, reasoning=text), "position_swap": swap, "pair": pair}
        for verdict, swap, text in (
            ("A", False, "Clearly.\nVERDICT: A"),
            ("TIE", True, "The first response is"),
        )
    ]
    judgment = {
        "prompt_id": "p1",
        "dimension": "factuality",
        "entrant_a": "ann",
        "entrant_b": "bob",
        "raw": raw,
    }
    path = write_jsonl(
        tmp_path / "factuality.jsonl", [{**judgment, "winner": None, "inconsistent": True}]
    )
    (again,) = judged(replay(path), tmp_path)
    assert (letters(again), again.invalid) == ("A INVALID", True)
    assert len(warnings(caplog, path)) == 1


def test_the_verdicts_of_a_run_of_ours_are_not_held_against_their_evidence(tmp_path, caplog):
    """What our verdicts keep as `reasoning` is no whole reply, and a failure among them is INVALID already."""
    judge = replay(original(tmp_path, row("TIE"), row("TIE", swap=True)))
    path = write_jsonl(
        tmp_path / "factuality.jsonl", (j.to_dict() for j in judged(judge, tmp_path))
    )
    (again,) = judged(replay(path), tmp_path)
    assert letters(again) == "TIE TIE"
    assert warnings(caplog, path) == []


# Several rows on one order


def test_of_several_rows_the_last_is_taken_as_the_original_did(tmp_path, caplog):
    """It only ever appended: after an edit of the rubric or of a response the older row stays above."""
    path = original(tmp_path, row("B"), row("A", cache_key="ba9876543210"), row("B", swap=True))
    assert judged(replay(path), tmp_path)[0].winner == "ann"
    assert warnings(caplog, path) == [
        "1 further verdicts on pairs that had one; the last was taken"
    ]


def test_of_several_judges_the_one_named_is_replayed(tmp_path, caplog):
    """Its pilot and its headline run shared one file."""
    pilot = [row("B", judge_model="sonnet"), row("A", swap=True, judge_model="sonnet")]
    path = original(tmp_path, row("A"), row("B", swap=True), *pilot)
    assert judged(replay(path, "opus"), tmp_path)[0].winner == "ann"
    assert judged(replay(path, "sonnet"), tmp_path)[0].winner == "bob"
    assert warnings(caplog, path) == []
    assert judged(replay(path), tmp_path)[0].winner == "bob"
    assert warnings(caplog, path)[-1] == "2 judges (opus, sonnet); name one as judge.judge_model"
    with pytest.raises(UserError, match=f"judge_model: {path} holds no verdict of 'haiku'."):
        replay(path, "haiku")


# Rows of another shape


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            row("A", about={"position_swap": None}),
            "metadata.position_swap is None. Expected true or false. Mend the row or remove it.",
        ),
        (
            row("A", about={"position_swap": "false"}),
            "metadata.position_swap is 'false'. Expected true or false. Mend the row or remove it.",
        ),
        (
            row("A", about={"prompt_id": 7}),
            "metadata.prompt_id is 7. Expected text. Mend the row or remove it.",
        ),
        (
            row("A", metadata=None),
            "metadata.prompt_id is None. Expected text. Mend the row or remove it.",
        ),
        (
            row("A", metadata="p1"),
            "metadata.prompt_id is None. Expected text. Mend the row or remove it.",
        ),
        (row("left"), "verdict is 'left'. Expected A, B or TIE. Mend the row or remove it."),
    ],
    ids=["no order", "order as text", "number", "no metadata", "metadata as text", "verdict"],
)
def test_a_row_of_another_shape_is_named(tmp_path, wrong, words):
    path = original(tmp_path, row("A"), wrong)
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value) == f"{path}:2: {words}"


def test_a_dimension_that_stands_nowhere_is_asked_for(tmp_path):
    path = original(tmp_path, row("A", about={"dimension": None}), name="cache.jsonl")
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value) == (
        f"{path}:1: metadata.dimension is None. Expected text, or the file named judgments_<dimension>.jsonl. "
        "Mend the row or remove it."
    )


@pytest.mark.parametrize("name", ["judge_model", "verdict"])
def test_a_field_that_is_absent_is_named_with_the_shapes_that_are_read(tmp_path, name):
    path = original(tmp_path, {k: v for k, v in row("A").items() if k != name})
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value).startswith(f"{path}:1: has no '{name}'. Expected a verdict (")
    assert str(error.value).endswith(
        "or a row of the original's judgments_<dimension>.jsonl (cache_key, judge_model, verdict, reasoning, metadata)."
    )


def test_a_line_that_was_cut_off_is_named(tmp_path):
    """The original appended row by row, and a kill could leave half of one; it left such a line out."""
    path = original(tmp_path, row("A"))
    path.write_text(path.read_text() + '{"cache_key": "0123')
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value).startswith(f"{path}:2: not JSON (")
