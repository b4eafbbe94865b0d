"""What a run will cost and what it can detect, before anything is paid; what it has cost; its progress."""

import dataclasses
import io
import itertools
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import progress
from elo_exp.data.pairing import pair_up
from elo_exp.errors import UserError
from elo_exp.pipeline.plan_table import plan_table, spend
from elo_exp.pipeline.planning import Plan, PlanRow, make_plan
from elo_exp.records import JudgeReply, Response
from elo_exp.store.answer_store import Store
from elo_exp.store.caps import Account, Caps, pay, reserve_charge
from elo_exp.store.database import Database
from elo_exp.store.usage import TOKEN_FIELDS, Usage, total_dollars
from tests.data import BLEEDING, prompt, responses, shipped

PROMPTS = [BLEEDING, prompt(2, "When will I die?")]
RESPONSES = responses(
    ann=["Firm pressure.", "I cannot say."],
    bob=["A prayer.", "In March."],
    cat=["A prayer.", "Soon."],
)
UTILITY = shipped("rubric", "clinical_utility")
# A dollar a query: 100 tokens out at a cent each.
DOLLAR = shipped(
    "judge",
    "openai_compatible",
    base_url="http://127.0.0.1:9/v1",
    model="dollar",
    output_usd_per_million=10_000.0,
    expected_output_tokens=100,
)


# The plan


def test_a_worked_example_with_equal_texts():
    """Bob and Cat give the same answer to p1, so that half of its queries equal others:

    pair       orders on p1                      on p2
    ann bob    2                                 2
    ann cat    0: they are those of ann and bob  2
    bob cat    1: both orders are one text       2
    --------------------------------------------------
    of 12      3                                 6

    Of the nine distinct queries one on p1 and two on p2 are stored, and two more on p2 are in a submitted batch, with
    one of the stored ones: four are new.
    """
    requests = [
        UTILITY.request(comparison, judge="x", position_swap=swap)
        for comparison in pair_up(PROMPTS, RESPONSES, UTILITY)
        for swap in (False, True)
    ]
    on_p1 = [r.key for r in requests if r.subject.prompt_id == "p1"]
    on_p2 = [r.key for r in requests if r.subject.prompt_id == "p2"]
    stored = [on_p1[0], on_p2[0], on_p2[5], "another query"]
    under_way = [*on_p2[:3], "another query"]
    found = make_plan(requests, DOLLAR, stored, under_way)
    (row,) = found.rows
    assert (row.n_prompts, row.n_entrants, row.pairs, row.queries) == (2, 3, 6, 12)
    assert (row.stored, row.under_way, row.new, row.shared) == (3, 2, 4, 3)
    assert (found.new, found.dollars) == (4, pytest.approx(4.0))
    (row,) = make_plan(requests, DOLLAR, stored, under_way, stored_only=True).rows
    assert (row.stored, row.new, row.left_out, row.shared) == (3, 0, 6, 3)
    assert row.dollars == 0


def test_a_worked_example_of_power_with_two_opponents_each():
    """Six entrants on eight prompts, each of which meets two others in one order: six pairs a prompt for fifteen.

    quality    5 / (2 x 6) x (2 + 1) x 36,100 =  45,125
    noise      5 / (2 x 6) x 2 x 115,900      =  96,583
    ---------------------------------------------------
    of one prompt, squared points               141,708, whose root is 376.4
    found with 80% power: (2.365 + 0.896) x 376.4 / sqrt(8) = 434 points
    """
    prompts = [prompt(n, f"Question {n}?") for n in range(1, 9)]
    answers = responses(
        **{name: [f"{name} {n}" for n in range(8)] for name in "abcdef"}
    )
    pairs = pair_up(prompts, answers, UTILITY, opponents=2)
    requests = [UTILITY.request(pair, judge="x", position_swap=False) for pair in pairs]
    (row,) = make_plan(requests, DOLLAR, [], []).rows
    assert (row.n_prompts, row.n_entrants, row.pairs) == (8, 6, 48)
    assert (row.opponents, row.both_orders) == (2, 0)
    assert row.detects == pytest.approx(434, abs=0.5)


# The cap


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as made:
        yield made


def row_of(dollars: float = 12.5, *, counted: int = 0, **changes: Any) -> PlanRow:
    row = PlanRow(
        dimension="factuality",
        n_prompts=143,
        n_entrants=4,
        pairs=858,
        queries=1716,
        stored=16,
        under_way=0,
        new=1600,
        input_tokens=5_834_400,
        output_tokens=943_800,
        dollars=dollars,
        dollars_plain=3 * dollars,
        counted=counted,
    )
    return dataclasses.replace(row, **changes)


def plan_of(*rows: PlanRow, cap: float | None = 100.0, spent: float = 0.0) -> Plan:
    return Plan(
        judge_model="claude-opus-5-5",
        rows=rows,
        budget_usd=cap,
        budget_setting="judging.budget_usd",
        spent_usd=spent,
    )


@pytest.mark.parametrize(
    ("usage", "spent", "cap", "before"),
    [
        (Usage(), 0.0, "$24.7490", "Nothing was spent."),
        (Usage(responses_unpriced=3), 0.0, "$24.7490", ""),
        (
            Usage(dollars_by_entrant={"ann": 0.5}),
            0.0,
            "$24.7490",
            "$0.5000 was spent before.",
        ),
        (
            Usage(dollars=7.75),
            7.75,
            "$24.7490, of which $7.7500 are spent",
            "$7.7500 was spent before.",
        ),
    ],
)
def test_a_run_that_exceeds_its_cap_is_refused_before_it_begins(
    usage, spent, cap, before, store
):
    over = plan_of(row_of(12.5), row_of(12.25, new=1), cap=24.749, spent=spent)
    with pytest.raises(UserError) as error:
        store.usage = usage
        over.check(store)
    assert str(error.value) == (
        "1601 verdicts by claude-opus-5-5 are expected to cost $24.7500, and "
        f"the cap is {cap}. {before}".rstrip()
        + "\n  Raise the cap with judging.budget_usd=..., or judge fewer: judging.limit_pairs=N."
    )
    assert (
        f"The budget is too low: the run needs $24.7500, and ${24.749 - spent:.4f} "
        in plan_table(over)
    )


def test_what_is_spent_is_gone_from_the_cap(store):
    """A cent too much: 12.50 of the 12.49 that are left of 20, which alone would do."""
    words = r"cost \$12\.5000, and the cap is \$20\.0000, of which \$7\.5100 are spent"
    with pytest.raises(UserError, match=words):
        plan_of(row_of(12.5), cap=20, spent=7.51).check(store)


def test_a_plan_that_a_cap_of_the_store_has_no_room_for_is_refused(store):
    """The run's own cap would hold it; what needs no judge passes whatever was spent."""
    store.account = Account(caps=Caps(month_usd=15.0))

    def paid(db: Database) -> None:
        reserve_charge(db, store.account, "batch", 4.0)
        pay(db, "batch", 1.0)

    store.write(paid)
    with pytest.raises(UserError) as error:
        plan_of(row_of(12.5), cap=20).check(store)
    month = time.strftime("%Y-%m", time.gmtime())
    assert (
        "1600 verdicts by claude-opus-5-5 are expected to cost $12.5000, and $5.00 of "
        f"$15.00 are spent in {month}, $4.00 of it held for calls under way. Nothing was "
        "spent.\n  Raise the cap with caps.month_usd=..., or judge fewer: judging.limit_pairs=N."
    ) == str(error.value)
    plan_of(row_of(10.0), cap=20).check(store)
    plan_of(row_of(12.5, new=0), cap=20).check(store)


@pytest.mark.parametrize(
    "fits",
    [
        plan_of(row_of(12.5), cap=12.5),
        plan_of(row_of(12.5), cap=20, spent=7.5),
        plan_of(row_of(12.5), cap=None),
        plan_of(row_of(12.5, new=0), cap=0.0),
        plan_of(cap=0.0),
    ],
    ids=["last cent", "some spent", "free judge", "nothing new", "no query"],
)
def test_a_run_within_its_cap_is_not_refused(fits, store):
    fits.check(store)
    assert "too low" not in plan_table(fits)


# As text


def cells(text: str, first: str) -> list[str]:
    """The line of a table that starts with this word, cell by cell."""
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [first]]
    return re.split(r"\s{2,}", line.strip())


def test_the_table_has_the_numbers_and_their_sums():
    rows = [
        row_of(13.289, counted=3, under_way=50, new=1550),
        row_of(0.211, dimension="[bold]", counted=6, new=1500, left_out=100),
    ]
    text = plan_table(plan_of(*rows))
    lines = text.splitlines()
    assert lines[:2] == [
        "plan: judge claude-opus-5-5",
        "  budget $100.00 (judging.budget_usd), tokens estimated from 6 calls whose tokens the API counted",
    ]
    assert lines[3].split() == ["judge", "in", "to", "pay", "tokens", "tokens", "expected", "detectable"]  # fmt: skip
    assert lines[4].split() == ["rubric", "comparisons", "calls", "cache", "for", "in", "out", "$", "gap"]  # fmt: skip
    tokens = ["5,834,400", "943,800"]
    first = ["858", "1,716", "16", "1,550", *tokens, "13.29", "62"]
    assert cells(text, "factuality") == ["factuality", *first]
    second = ["858", "1,716", "16", "1,500", *tokens, "0.21", "62"]
    assert cells(text, "[bold]") == ["[bold]", *second]  # no mark-up
    totals = ["1,716", "3,432", "32", "3,050", "11,668,800", "1,887,600"]
    assert cells(text, "total") == ["total", *totals, "13.50"]
    notes = lines[-5:]
    assert [note.partition("calls")[2] for note in notes[:3]] == [
        " repeat the text of another and share its reply.",
        " are in submitted batches: replies are collected and not paid for again.",
        " have no reply in the cache and will not be made (judging.stored_only=true).",
    ]
    assert notes[3].startswith("  Detectable gap: ")
    assert notes[4].endswith(" Single messages without a cache cost $40.50.")


# What it has cost


def test_a_worked_example_of_a_run_s_usage():
    """Replies on three dimensions and on none, of which one was free, and two responses."""
    usage = Usage()
    for dollars, dimension, tokens in [
        (0.25, "factuality", {"input_tokens": 900, "cache_write_1h_tokens": 2500}),
        (0.125, "factuality", {"cache_read_tokens": 2500, "output_tokens": 400}),
        (0.5, "calibration", {"cache_write_5m_tokens": 2000, "output_tokens": 300}),
        (0.0, "clinical_utility", {}),
        (0.125, None, {}),
    ]:
        reply = JudgeReply(
            key="k", text="", dollars=dollars, dimension=dimension, usage=tokens
        )
        usage.add_answer(reply)
    for diagnostics in ({}, {"dollars": 0.0625}):
        response = Response(
            entrant_id="ann",
            prompt_id="p1",
            response_text="Yes.",
            diagnostics=diagnostics,
        )
        usage.add_answer(response)
    assert (usage.judge_calls, usage.responses_generated) == (5, 2)
    tokens_by_class = [getattr(usage, name) for name in TOKEN_FIELDS]
    assert tokens_by_class == [900, 2000, 2500, 2500, 700]
    assert usage.dollars_by_dimension == {"factuality": 0.375, "calibration": 0.5}
    assert total_dollars(dataclasses.asdict(usage)) == 1.0625
    assert spend(usage) == (
        "spent $1.0000 (calibration $0.5000, factuality $0.3750): 900 tokens in, 4,500 written to "
        "the prompt cache, 2,500 read from it, 700 out"
    )
    metrics = usage.metrics()
    assert metrics["dollars"] == 1.0
    assert metrics["dollars/factuality"] == 0.375
    assert metrics["dollars_by_entrant/ann"] == 0.0625
    assert all(type(value) in {int, float} for value in metrics.values())
    usage.add_lost_calls(0.5)
    assert spend(usage).endswith(
        ". 1 answer was lost on the way: judges and entrants cost at most $1.5625"
    )
    assert spend(Usage()) == "nothing spent"


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logged(monkeypatch, caplog) -> Callable[[], Sequence[str]]:
    monkeypatch.setattr(progress, "_last_note_time", [-math.inf])
    caplog.set_level(logging.INFO)
    return lambda: caplog.messages


def test_a_terminal_shows_notes_beside_the_bar_while_there_is_one(monkeypatch, logged):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for n in progress.track(range(3), label="judging", total=3):
        progress.show_note(f"${n} of $9 spent; [/v1/messages] is [bold]slow")
    assert "$2 of $9 spent; [/v1/messages] is [bold]slow" in terminal.getvalue()
    assert logged() == []
    progress.show_note("after the bar")
    assert logged() == ["after the bar"]


def test_long_work_logs_how_much_of_it_is_done(monkeypatch, logged):
    now = itertools.count(0.0, 4.0)  # each look at the clock, four seconds later
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.track_amount("playing match orders", total=500) as tell:
        for _ in range(8):
            tell(62.5)
    assert logged()[0].startswith("playing match orders: ")
    assert logged()[-1].endswith(" of 500")
