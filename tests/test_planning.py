"""What a run will cost and what it can resolve, said before anything is paid; and what it has cost."""

from __future__ import annotations

import dataclasses
import io
import itertools
import logging
import math
import multiprocessing
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp import progress
from elo_exp.api.planning import (
    Estimate,
    Plan,
    PlanRow,
    plan,
)
from elo_exp.data.pairing import pair_up
from elo_exp.pipeline.bill import plan_table, spend
from elo_exp.records import JudgeReply, JudgeRequest, Prompt, Response, UserError
from elo_exp.store.usage import TOKEN_CLASSES, Usage, paid
from tests.data import shipped

# The plan


PROMPTS = [
    Prompt(
        prompt_id="p1",
        text="What stops bleeding?",
        source="medqa",
        subject="er",
        gold_answer="Pressure.",
    ),
    Prompt(prompt_id="p2", text="When will I die?", source="curated", subject="er"),
]
TEXTS = {
    "ann": {"p1": "Firm pressure.", "p2": "I cannot say."},
    "bob": {"p1": "A prayer.", "p2": "In March."},
    "cat": {"p1": "A prayer.", "p2": "Soon."},
}


def requests_of(
    *dimensions: str, texts: Mapping[str, Mapping[str, str]] = TEXTS
) -> list[JudgeRequest]:
    """Every pair of entrants on every prompt that has a rubric, in both orders."""
    responses = {
        name: {
            p: Response(entrant_id=name, prompt_id=p, response_text=text)
            for p, text in some.items()
        }
        for name, some in texts.items()
    }
    rubrics = [shipped("rubric", dimension) for dimension in dimensions]
    return [
        rubric.request(comparison, judge="opus", position_swap=swap)
        for rubric in rubrics
        for comparison in pair_up(PROMPTS, responses, rubric)
        for swap in (False, True)
    ]


def a_dollar_each(requests: Sequence[JudgeRequest]) -> Estimate:
    n = len(requests)
    return Estimate(
        input_tokens=1000 * n,
        output_tokens=10 * n,
        dollars=float(n),
        dollars_plain=2.0 * n,
    )


def planned(
    requests: Sequence[JudgeRequest],
    *stored: str,
    under_way: Collection[str] = (),
    budget_usd: float | None = 100.0,
) -> Plan:
    return plan(
        requests,
        stored,
        under_way,
        judge_model="opus",
        estimate=a_dollar_each,
        budget_usd=budget_usd,
    )


def test_a_worked_example_of_a_plan_with_equal_texts() -> None:
    """Bob and Cat say the same on p1, so that half of what is asked there has been asked already:

    pair       orders on p1                      on p2
    ann bob    2                                 2
    ann cat    0: they are those of ann and bob  2
    bob cat    1: both orders are one text       2
    --------------------------------------------------
    of 12      3                                 6

    Of the nine distinct queries one on p1 and two on p2 have been answered before, and two more on p2 are in a batch
    that is under way, with one of those that have an answer: four are to pay.
    """
    requests = requests_of("clinical_utility")
    on_p1 = [r.key for r in requests if r.subject.prompt_id == "p1"]
    on_p2 = [r.key for r in requests if r.subject.prompt_id == "p2"]
    assert (len(requests), len(set(on_p1)), len(set(on_p2))) == (12, 3, 6)
    under_way = [on_p2[0], on_p2[1], on_p2[2], "something else"]
    found = planned(
        requests,
        on_p1[0],
        on_p2[0],
        on_p2[5],
        "an answer to something else",
        under_way=under_way,
    )
    (row,) = found.rows
    assert (row.dimension, row.n_prompts, row.n_entrants, row.pairs) == (
        "clinical_utility",
        2,
        3,
        6,
    )
    assert (row.queries, row.stored, row.under_way, row.to_pay) == (12, 3, 2, 4)
    assert (found.to_pay, found.dollars, row.estimate.dollars_plain) == (4, 4.0, 8.0)


def test_only_what_is_to_pay_is_estimated_each_once_and_in_order() -> None:
    requests = requests_of("clinical_utility")
    stored, under_way = {requests[0].key}, {requests[5].key}
    asked: list[str] = []

    def estimate(some: Sequence[JudgeRequest]) -> Estimate:
        asked.extend(request.key for request in some)
        return Estimate()

    plan(
        requests,
        stored,
        under_way,
        judge_model="opus",
        estimate=estimate,
        budget_usd=1.0,
    )
    assert asked == [
        key
        for key in dict.fromkeys(r.key for r in requests)
        if key not in stored | under_way
    ]


def test_every_dimension_has_its_row_and_its_own_prompts() -> None:
    """Factuality needs a reference, which p2 has not."""
    found = planned(requests_of("factuality", "clinical_utility"))
    assert [
        (r.dimension, r.n_prompts, r.pairs, r.queries, r.to_pay) for r in found.rows
    ] == [
        ("factuality", 1, 3, 6, 3),
        ("clinical_utility", 2, 6, 12, 9),
    ]
    assert (found.to_pay, found.dollars) == (12, 12.0)


def test_a_plan_in_which_all_is_answered_costs_nothing() -> None:
    requests = requests_of("clinical_utility")
    found = planned(requests, *(request.key for request in requests), budget_usd=0.0)
    assert (found.to_pay, found.dollars, found.rows[0].stored) == (0, 0.0, 9)
    found.check()


def test_a_plan_of_nothing_has_no_rows() -> None:
    found = planned([])
    assert (found.rows, found.to_pay, found.dollars) == ((), 0, 0)
    found.check()


NAMES = st.lists(st.sampled_from(["yes", "no", "perhaps"]), min_size=2, max_size=4)


@given(texts=NAMES, order=st.randoms(use_true_random=False))
def test_law_every_query_is_stored_or_under_way_or_to_pay_or_shares_an_answer(
    texts: list[str], order: Any
) -> None:
    """Three texts at most, whoever says them: at most nine distinct queries a prompt."""
    requests = requests_of(
        "clinical_utility",
        texts={f"e{n}": {"p1": text} for n, text in enumerate(texts)},
    )
    keys = sorted({request.key for request in requests})
    stored, under_way = (
        set(order.sample(keys, order.randint(0, len(keys)))) for _ in range(2)
    )
    (row,) = planned(requests, *stored, under_way=under_way).rows
    n = len(texts)
    assert (row.pairs, row.queries) == (n * (n - 1) // 2, n * (n - 1))
    assert (row.stored, row.under_way) == (len(stored), len(under_way - stored))
    assert row.stored + row.under_way + row.to_pay == len(keys) <= min(row.queries, 9)


# The cap


def row_of(dollars: float = 12.5, **changes: Any) -> PlanRow:
    facts: dict[str, Any] = {
        "dimension": "factuality",
        "n_prompts": 143,
        "n_entrants": 4,
        "pairs": 858,
    }
    tokens = {"input_tokens": 5_834_400, "output_tokens": 943_800}
    estimate = Estimate(
        **tokens,
        dollars=dollars,
        dollars_plain=3 * dollars,
        counted=changes.pop("counted", 0),
    )
    counts: dict[str, int] = {
        "queries": 1716,
        "stored": 16,
        "under_way": 0,
        "to_pay": 1600,
    }
    return PlanRow(**{**facts, **counts, "estimate": estimate, **changes})


def plan_of(*rows: PlanRow, budget_usd: float | None = 100.0) -> Plan:
    return Plan(judge_model="claude-opus-5-5", rows=rows, budget_usd=budget_usd)


def test_a_run_that_cannot_end_within_its_cap_is_refused_before_it_begins() -> None:
    with pytest.raises(UserError) as error:
        plan_of(row_of(12.5), row_of(12.25, to_pay=1), budget_usd=20).check()
    assert str(error.value) == (
        "judging.budget_usd: 1601 verdicts by claude-opus-5-5 are expected to cost $24.7500, and the cap is "
        "$20.0000. Raise it with judging.budget_usd=..., or ask for less: judging.limit_pairs=N. Nothing "
        "was spent."
    )


def test_what_the_run_has_spent_already_is_no_longer_there_to_be_spent() -> None:
    """As in the later rounds of an arena."""
    later = dataclasses.replace(plan_of(row_of(12.5), budget_usd=20), spent_usd=7.75)
    with pytest.raises(UserError) as error:
        later.check(Usage(dollars=7.75))
    assert (
        "expected to cost $12.5000, and the cap is $20.0000, of which $7.7500 are spent. Raise"
        in str(error.value)
    )
    assert str(error.value).endswith("$7.7500 was spent before.")
    assert "The cap is too low: $12.5000 of $12.2500. " in plan_table(later)
    dataclasses.replace(later, spent_usd=7.5).check()


def test_a_cap_that_lacks_a_part_of_a_cent_is_told_from_the_costs() -> None:
    with pytest.raises(UserError, match=r"cost \$20\.0010, and the cap is \$20\.0000"):
        plan_of(row_of(20.001), budget_usd=20).check()


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(), "Nothing was spent."),
        (Usage(dollars=0.25, judge_calls=3), "$0.2500 was spent before."),
        (Usage(dollars_by_entrant={"ann": 0.5}), "$0.5000 was spent before."),
        (Usage(responses_generated=3), "Nothing was spent."),
        (Usage(responses_generated=3, responses_unpriced=3), "judging.limit_pairs=N."),
    ],
)
def test_a_refusal_says_that_nothing_was_spent_only_where_that_is_known(
    usage: Usage, words: str
) -> None:
    with pytest.raises(UserError) as refusal:
        plan_of(row_of(20.001), budget_usd=20).check(usage)
    assert str(refusal.value).endswith(words)


@pytest.mark.parametrize(
    ("rows", "budget_usd"),
    [
        ([row_of(12.5)], 12.5),
        ([row_of(12.5)], math.inf),
        ([row_of(12.5)], None),
        ([row_of(12.5, to_pay=0)], 0.0),
        ([], 0.0),
    ],
    ids=[
        "to the last cent",
        "no cap",
        "a free judge",
        "nothing to pay",
        "nothing to ask",
    ],
)
def test_a_run_that_can_is_not(rows: list[PlanRow], budget_usd: float | None) -> None:
    plan_of(*rows, budget_usd=budget_usd).check()


# The bill


def cells(text: str, first: str) -> list[str]:
    """The line of a table that starts with this word, cell by cell."""
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [first]]
    return re.split(r"\s{2,}", line.strip())


def test_the_table_has_the_numbers() -> None:
    text = plan_table(
        plan_of(
            row_of(13.289, counted=3), row_of(0.211, dimension="calibration", counted=6)
        )
    )
    assert text.splitlines()[0] == (
        "plan: judge claude-opus-5-5, cap $100.00 (judging.budget_usd), tokens scaled from 6 that the API counted"
    )
    heads = [
        "dimension",
        "pairs",
        "queries",
        "stored",
        "to pay",
        "tokens in",
        "out",
        "$ expected",
        "$ plain",
    ]
    assert cells(text, "dimension") == [*heads, "resolves"]
    counts = ["858", "1,716", "16", "1,600", "5,834,400", "943,800"]
    assert cells(text, "factuality") == [
        "factuality",
        *counts,
        "13.29",
        "39.87",
        "62 Elo",
    ]
    assert cells(text, "calibration") == [
        "calibration",
        *counts,
        "0.21",
        "0.63",
        "62 Elo",
    ]
    totals = ["1,716", "3,432", "32", "3,200", "11,668,800", "1,887,600"]
    assert cells(text, "total") == ["total", *totals, "13.50", "40.50"]
    assert (
        "  200 queries ask what another asks, and share its answer."
        in text.splitlines()
    )
    assert "$ plain: single messages without a cache." in text
    assert "cap is too low" not in text


def test_one_dimension_needs_no_total_and_tokens_that_nobody_counted_are_said_to_be_estimated() -> (
    None
):
    text = plan_table(plan_of(row_of(queries=1616)))
    assert "total" not in text
    assert "share its answer" not in text
    assert "tokens estimated from the length" in text


def test_what_is_under_way_is_neither_paid_again_nor_said_to_share_an_answer() -> None:
    lines = plan_table(
        plan_of(
            row_of(under_way=150, to_pay=1500), row_of(under_way=1000, queries=2616)
        )
    ).splitlines()
    assert (
        "  1,150 queries are in batches that have been submitted: their answers are collected, not paid again."
        in lines
    )
    assert "  50 queries ask what another asks, and share its answer." in lines


def test_the_table_of_a_free_judge_speaks_of_no_cap() -> None:
    text = plan_table(planned(requests_of("clinical_utility"), budget_usd=None))
    assert text.splitlines()[0] == "plan: judge opus, which costs nothing"
    assert "cap" not in text
    assert "$ expected:" not in text


def test_a_cap_that_is_too_low_is_said() -> None:
    line = "  The cap is too low: $12.5000 of $12.0000. Such a run stops before its judge is paid."
    assert plan_table(plan_of(row_of(12.5), budget_usd=12)).splitlines()[-1] == line
    assert "too low" not in plan_table(plan_of(row_of(12.5), budget_usd=12.5))


def test_nothing_is_cut_off_in_the_table_of_a_large_run() -> None:
    """450,000 pairs a dimension, some three hundred times the bank that ships, and one dimension with a long name."""
    tokens = {"input_tokens": 3_060_000_000, "output_tokens": 495_000_000}
    estimate = Estimate(**tokens, dollars=11_069.25, dollars_plain=22_138.5)
    counts = {
        "n_prompts": 9000,
        "pairs": 450_000,
        "queries": 900_000,
        "stored": 100_000,
        "to_pay": 800_000,
    }
    dimensions = ("factuality", "calibration", "completeness_and_safety")
    rows = [
        row_of(**counts, dimension=dimension, estimate=estimate)
        for dimension in dimensions
    ]
    text = plan_table(plan_of(*rows, budget_usd=1_234_567.89))
    assert "cap $1,234,567.89 (judging.budget_usd)" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 160
    sums = [
        "1,350,000",
        "2,700,000",
        "300,000",
        "2,400,000",
        "9,180,000,000",
        "1,485,000,000",
    ]
    assert cells(text, "total") == ["total", *sums, "33,207.75", "66,415.50"]


def test_names_in_brackets_are_no_mark_up() -> None:
    text = plan_table(
        Plan(judge_model="[red]", rows=(row_of(dimension="[bold]"),), budget_usd=100.0)
    )
    assert text.startswith("plan: judge [red], cap")
    assert cells(text, "[bold]")[1] == "858"


def test_a_table_of_nothing_can_be_printed() -> None:
    assert plan_table(plan_of()).startswith(
        "plan: judge claude-opus-5-5, cap $100.00 (judging.budget_usd)"
    )


# What it has cost


def made(
    dollars: float, dimension: str | None = "factuality", **tokens: int
) -> JudgeReply:
    return JudgeReply(
        key="k", text="VERDICT: A", dollars=dollars, dimension=dimension, usage=tokens
    )


def test_a_worked_example_of_a_run_s_usage() -> None:
    """Two paid answers on factuality, one on calibration, one that was free, and a response."""
    usage = Usage()
    usage.count(
        made(0.25, input_tokens=900, cache_write_1h_tokens=2500, output_tokens=500)
    )
    usage.count(
        made(0.125, input_tokens=800, cache_read_tokens=2500, output_tokens=400)
    )
    usage.count(
        made(
            0.5,
            "calibration",
            input_tokens=700,
            cache_write_5m_tokens=2000,
            output_tokens=300,
        )
    )
    usage.count(made(0.0, "clinical_utility"))
    usage.count(Response(entrant_id="ann", prompt_id="p1", response_text="Yes."))
    usage.count(
        Response(
            entrant_id="ann",
            prompt_id="p2",
            response_text="No.",
            diagnostics={"dollars": 0.0625},
        )
    )
    assert (usage.judge_calls, usage.responses_generated, usage.dollars) == (
        4,
        2,
        0.875,
    )
    assert [getattr(usage, name) for name in TOKEN_CLASSES] == [
        2400,
        2000,
        2500,
        2500,
        1200,
    ]
    assert usage.dollars_by_dimension == {"factuality": 0.375, "calibration": 0.5}
    assert usage.dollars_by_entrant == {"ann": 0.0625}
    assert paid(dataclasses.asdict(usage)) == 0.9375
    assert spend(usage) == (
        "spent $0.8750 (calibration $0.5000, factuality $0.3750): 2,400 tokens in, 4,500 written to the prompt cache, "
        "2,500 read from it, 1,200 out"
    )


def test_what_was_paid_for_no_dimension_is_in_the_sum_alone() -> None:
    usage = Usage()
    usage.count(made(0.5, None))
    assert (usage.dollars, usage.dollars_by_dimension) == (0.5, {})
    assert spend(usage).startswith("spent $0.5000: 0 tokens in")


def test_two_runs_share_no_bill() -> None:
    one, two = Usage(), Usage()
    one.count(made(0.5))
    assert (two.dollars, two.dollars_by_dimension) == (0, {})


def test_the_metrics_are_numbers_under_flat_names() -> None:
    usage = Usage(
        verdicts_wanted=7,
        cache="the 1-hour cache: 98 % of 500 requests found the prefix in the cache",
    )
    usage.count(made(0.5, input_tokens=900))
    usage.count(
        Response(
            entrant_id="ann",
            prompt_id="p1",
            response_text="Yes.",
            diagnostics={"dollars": 0.25},
        )
    )
    metrics = usage.metrics()
    assert metrics["dollars_by_entrant/ann"] == 0.25
    assert all(type(value) in {int, float} for value in metrics.values())
    assert metrics["dollars"] == metrics["dollars/factuality"] == 0.5
    assert (
        metrics["verdicts_wanted"],
        metrics["input_tokens"],
        metrics["judge_calls"],
    ) == (
        7,
        900,
        1,
    )
    assert {"cache", "dollars_by_dimension"}.isdisjoint(metrics)


# While it waits


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quiet_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_last_note", [-math.inf])


@pytest.mark.usefixtures("quiet_so_far")
def test_a_log_is_told_what_is_waited_for_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for n in range(100):
        progress.note(f"{n} under way")
    assert caplog.messages == ["0 under way"]


@pytest.mark.usefixtures("quiet_so_far")
def test_a_note_may_hold_anything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress.note("100 % of {these} are %s [bold]under way[/]")
    assert caplog.messages == ["100 % of {these} are %s [bold]under way[/]"]


@pytest.mark.usefixtures("quiet_so_far")
def test_a_terminal_shows_it_beside_the_bar_while_there_is_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    for n in progress.track(range(3), label="judging", total=3):
        progress.note(
            f"${n} of $9 spent; [/v1/messages] is [bold]slow"
        )  # no mark-up, whatever a server may say
    assert "$2 of $9 spent; [/v1/messages] is [bold]slow" in terminal.getvalue()
    assert caplog.messages == []
    progress.note("after the bar")
    assert "after the bar" not in terminal.getvalue()
    assert caplog.messages == ["after the bar"]


def test_the_workers_of_a_launcher_which_share_a_terminal_show_no_bars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(
        multiprocessing, "parent_process", multiprocessing.current_process
    )
    assert list(progress.track(range(3), label="judging", total=3)) == [0, 1, 2]
    assert terminal.getvalue() == ""


def test_work_that_takes_long_says_how_much_of_it_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = itertools.count(0.0, 4.0)  # every look at the clock, four seconds later
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.meter("playing match orders", total=500) as tell:
        for _ in range(8):
            tell(62.5)
    assert caplog.messages[0].startswith("playing match orders: ")
    assert caplog.messages[-1].endswith(" of 500")


@pytest.mark.parametrize("seconds", [0.0, 4.0])
def test_a_terminal_shows_a_bar_of_work_only_where_it_takes_long(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "_SECONDS_UNSEEN", 2.0 - seconds)
    with progress.meter("playing match orders", total=500) as tell:
        tell(250.0)
        tell(300.0)  # more than all, which rounding may say
    assert ("playing match orders" in terminal.getvalue()) == (seconds > 2.0)


@pytest.mark.usefixtures("quiet_so_far")
def test_a_bar_that_was_broken_off_takes_no_more_notes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())

    def work() -> None:
        for _ in progress.track(range(3), label="judging", total=3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    progress.note("going on")
    assert caplog.messages == ["going on"]
