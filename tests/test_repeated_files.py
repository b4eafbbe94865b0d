"""Files that are rated again after rows were added: results that were shown before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.repeated_files import (
    EarlierFileResult,
    find_earlier_results,
    hashes_of_battles,
    hashes_of_scores,
    to_evidence,
)
from elo_exp.data.battles import Battles
from elo_exp.data.scores import Score
from elo_exp.files import write_jsonl
from elo_exp.records import Battle
from tests.commands import run


def battle(n: int, a: str = "new", b: str = "old", **changes: Any) -> Battle:
    winner = ("model_a", "tie", "model_b")[n % 3]
    told = {"question_id": f"q{n}", "winner": winner, "judge_model": "j"}
    return Battle(model_a=a, model_b=b, source="llm-judge", **(told | changes))


def shown(battles: Battles, leader: str | None = None) -> EarlierFileResult:
    return EarlierFileResult(
        rows=to_evidence(hashes_of_battles(battles)), leader=leader
    )


def looked_at(
    now: Battles, *before: EarlierFileResult
) -> dict[str, tuple[int, str | None]]:
    rows = find_earlier_results(before, hashes_of_battles(now))
    return {row.first: (row.n_looks, row.first_leader) for row in rows}


def test_rows_that_were_added_make_an_earlier_result_a_look():
    few, more = (Battles.from_rows([*map(battle, range(n))]) for n in (25, 60))
    both = {"new": (1, None), "old": (1, None)}
    assert looked_at(more, shown(few)) == both
    assert looked_at(few, shown(few)) == looked_at(few, shown(more)) == {}
    assert looked_at(more, shown(few, "new"), shown(few))["new"] == (2, "new")
    other = [battle(n, winner="tie", judge_model="k") for n in range(25)]
    assert looked_at(more, shown(Battles.from_rows(other))) == {}


def test_a_row_is_the_same_whichever_side_comes_first_and_however_others_are_coded():
    some = [*map(battle, range(25))]
    sides = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    turned = [
        battle(n, "old", "new", winner=sides[one.winner]) for n, one in enumerate(some)
    ]
    third = [battle(n, "a", "new") for n in range(100, 110)]
    now = Battles.from_rows([*third, *turned[::-1]])
    before = shown(Battles.from_rows(some))
    assert looked_at(now, before) == {"new": (1, None)}  # nothing was added to old
    kept = hashes_of_battles(now)["old"]
    assert np.array_equal(kept, hashes_of_battles(Battles.from_rows(some))["old"])


def test_battles_without_a_question_and_corrected_rows():
    unnamed = Battles.from_rows([battle(n, question_id=None) for n in range(30)])
    assert looked_at(unnamed, shown(unnamed)) == {}
    some = [*map(battle, range(40))]
    corrected = [battle(0, winner="tie"), *some[1:], battle(50)]
    assert looked_at(Battles.from_rows(corrected), shown(Battles.from_rows(some)))


def test_scores_are_known_again_too():
    rows = [
        Score(dimension="d", entrant=name, item=f"i{i}", value=i / 40)
        for i in range(40)
        for name in ("new", "old")
    ]
    before = EarlierFileResult(
        rows=to_evidence(hashes_of_scores(rows[:50])), leader=None
    )
    assert len(find_earlier_results([before], hashes_of_scores(rows))) == 2
    assert not find_earlier_results([before], hashes_of_scores(rows[:50]))


@pytest.mark.system
def test_a_lead_in_a_file_that_grew_says_that_it_was_shown_before(tmp_path: Path):
    """24 verdicts show nothing, and 90 a lead."""
    rng = np.random.default_rng(4)
    rows = [
        {
            "question_id": f"q{q}",
            "model_a": "new",
            "model_b": "old",
            "winner": "new" if q >= 24 and rng.random() < 0.85 else ("new", "old")[q % 2],
            "judge_model": "gpt-9",
        }
        for q in range(90)
    ]  # fmt: skip
    for name, n in (("few", 24), ("grown", 90)):
        write_jsonl(tmp_path / f"{name}.jsonl", rows[:n])
    told = ("tracker=local", "figures=false", "elo.n_perms=2")
    run("battles=few.jsonl", "experiment=rate", *told, folder=tmp_path)
    grown = run("battles=grown.jsonl", "experiment=rate", *told, folder=tmp_path)
    conclusion = grown.read("ratings.json")["conclusions"]["overall"]
    assert "shown once before verdicts were added" in " ".join(grown.out.split())
    assert [reason["name"] for reason in conclusion["reasons"]] == ["looked"]
    assert "shown once before verdicts were added" in grown.page.said
