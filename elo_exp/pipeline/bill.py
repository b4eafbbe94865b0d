"""What a run will cost and what it has cost, in words."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator

from elo_exp.analysis.power import minimum_detectable_difference
from elo_exp.api.costs import money
from elo_exp.api.planning import Plan, PlanRow
from elo_exp.store.usage import Usage


def plan_table(plan: Plan) -> str:
    """What a run will ask and pay, and what it can resolve, a line for each dimension."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    console = Console(file=text, width=160, markup=False)
    grid = Table(box=SIMPLE_HEAD, show_footer=len(plan.rows) > 1)
    total = [
        sum(column)
        for column in zip(*(_plan_numbers(row) for row in plan.rows), strict=True)
    ]
    footer = (
        [f"{n:,}" for n in total[:6]] + [f"{dollars:,.2f}" for dollars in total[6:]]
        if total
        else [""] * 8
    )
    grid.add_column("dimension", "total", no_wrap=True)
    judged = "responses" if plan.of_scores else "pairs"
    names = (
        judged,
        "queries",
        "stored",
        "to pay",
        "tokens in",
        "out",
        "$ expected",
        "$ plain",
    )
    for name, sum_ in zip(names, footer, strict=True):
        grid.add_column(name, sum_, justify="right", no_wrap=True)
    if not plan.of_scores:
        grid.add_column("resolves", justify="right", no_wrap=True)
    for row in plan.rows:
        numbers = _plan_numbers(row)
        cells = [f"{n:,}" for n in numbers[:6]] + [
            f"{dollars:,.2f}" for dollars in numbers[6:]
        ]
        difference = minimum_detectable_difference(row.n_prompts, row.n_entrants)
        resolves = f"{difference:.0f} Elo" if math.isfinite(difference) else "-"
        grid.add_row(row.dimension, *cells, *([] if plan.of_scores else [resolves]))
    console.print(
        f"plan: judge {plan.judge_model}, {_plan_words(plan)}", highlight=False
    )
    console.print(grid)
    for note in _plan_notes(plan):
        console.print(note, highlight=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _plan_notes(plan: Plan) -> Iterator[str]:
    shared = sum(
        row.queries - row.stored - row.under_way - row.to_pay - row.left_out
        for row in plan.rows
    )
    if shared:
        yield f"  {shared:,} queries ask what another asks, and share its answer."
    if n := sum(row.under_way for row in plan.rows):
        yield f"  {n:,} queries are in batches that have been submitted: their answers are collected, not paid again."
    if n := sum(row.left_out for row in plan.rows):
        yield f"  {n:,} queries have no answer in the store, and nobody is asked: judging.stored_only=true."
    if not plan.of_scores:
        found = "the smallest difference that 80 % of such runs find"
        yield f"  resolves: {found}, if verdicts scatter as in our simulations."
    if plan.budget_usd is not None and plan.to_pay:
        yield "  $ expected: by the chosen transport and prompt cache; $ plain: single messages without a cache."
    if plan.budget_usd is not None and not plan.fits:
        left = plan.budget_usd - plan.spent_usd
        yield f"  The cap is too low: ${plan.dollars:.4f} of ${left:.4f}. Such a run stops before its judge is paid."


def spend(usage: Usage) -> str:
    """What the judge was paid, in one line, and the most that lost answers may have cost beside
    it."""
    if not usage.dollars and not usage.calls_lost:
        return "nothing spent"
    parts = ", ".join(
        f"{name} ${dollars:.4f}"
        for name, dollars in sorted(usage.dollars_by_dimension.items())
    )
    parts = f" ({parts})" if parts else ""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    line = (
        f"spent ${usage.dollars:.4f}{parts}: {usage.input_tokens:,} tokens in, {written:,} written "
        "to the prompt "
        f"cache, {usage.cache_read_tokens:,} read from it, {usage.output_tokens:,} out"
    )
    if usage.calls_lost:
        answers = (
            "1 answer was"
            if usage.calls_lost == 1
            else f"{usage.calls_lost} answers were"
        )
        line += (
            f"; {answers} lost on the way: judges and entrants cost "
            f"${usage.dollars_at_most:.4f} at most"
        )
    return line


def _plan_numbers(row: PlanRow) -> tuple[float, ...]:
    estimate = row.estimate
    counts = (
        row.pairs,
        row.queries,
        row.stored,
        row.to_pay,
        estimate.input_tokens,
        estimate.output_tokens,
    )
    return (*counts, estimate.dollars, estimate.dollars_plain)


def _plan_words(plan: Plan) -> str:
    if plan.budget_usd is None:
        return "which costs nothing"
    counted = max((row.estimate.counted for row in plan.rows), default=0)
    tokens = (
        f"tokens scaled from {counted} that the API counted"
        if counted
        else "tokens estimated from the length"
    )
    return f"cap {money(plan.budget_usd)} ({plan.budget_setting}), {tokens}"
