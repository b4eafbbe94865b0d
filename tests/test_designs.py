"""Tournaments in which not every pair is judged in both orders on every prompt."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from elo_exp.errors import UserError
from tests.commands import QUICK, run
from tests.experiments import printed

SIX = tuple(
    f"+entrant.e{i}={{_target_:elo_exp.entrants.probe.ProbeEntrant,entrant_id:e{i},style:hedged,"
    f"lapse_style:swapped,lapse_rate:0.{i},bank_path:'${{prompts.bank_path}}'}}"
    for i in (5, 6)
)
TWENTY = (*SIX, "+mode.strata.medqa=20", "rubric=[factuality]")
FOUR = ("judging.orders=one", "judging.opponents=4")


@pytest.mark.system
def test_four_opponents_and_both_orders_for_some_are_planned_judged_and_shown(
    tmp_path: Path,
):
    plan = printed(tmp_path, *TWENTY, *FOUR, "plan=true") or ""
    every = printed(tmp_path, *TWENTY, "plan=true") or ""
    some, of_all = (
        [
            int(n)
            for n in re.findall(r"factuality +(\d+) +(\d+) .* (\d+)$", text, re.M)[0]
        ]
        for text in (plan, every)
    )
    assert (some[0], *of_all[:2]) == (240, 300, 600)
    assert 240 <= some[1] < 360  # equal answers are one query for both orders
    assert some[2] > of_all[2]
    third = "judging.flip_share=0.3"
    ran = run(
        *QUICK, "judging.limit_pairs=null", *TWENTY, *FOUR, third, folder=tmp_path
    )
    rows = ran.rows("verdicts/factuality.jsonl")
    met = Counter(
        (row["prompt_id"], row[side])
        for row in rows
        for side in ("entrant_a", "entrant_b")
    )
    assert len(met) == 20 * 6 and set(met.values()) == {4}
    (quality,) = ran.read("manifest.json")["judge_quality"]
    assert 40 < quality["n_two_order"] < 110 and quality["n_one_order"] > 110
    assert quality["flip_rate"] is not None
    said, rated = (
        one.read("ratings.json")["conclusions"]["factuality"]
        for one in (ran, run(str(ran.run_dir / "battles.jsonl"), folder=tmp_path))
    )
    assert rated["worst_case"] is None  # the second orders were not planned
    assert rated["difference"] == pytest.approx(said["difference"])
    page = ran.page.text
    assert "orders: one, and both for 30" in page
    assert "4 on each prompt" in page and "flips not measured" not in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("judging.opponents=4",), "6 entrants and judging.orders=both"),
        ((*FOUR, "~entrant.e6"), "judging.opponents=4 does not fit 5 entrants"),
        (
            (*FOUR[:1], "judging.opponents=6"),
            "judging.opponents=6 does not fit 6 entrants",
        ),
        (
            ("judging.flip_share=0.2",),
            "judging.flip_share must be 0 unless judging.orders=one",
        ),
    ],
)
def test_a_design_that_cannot_be_is_refused(
    tmp_path: Path, given: tuple[str, ...], words: str
):
    with pytest.raises(UserError, match=words):
        printed(tmp_path, *SIX, *given)
