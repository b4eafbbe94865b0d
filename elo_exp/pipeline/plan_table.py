"""The plan and its interim analyses, printed before anything is paid, and the bill afterwards."""

import math
from collections.abc import Mapping, Sequence

from elo_exp.analysis.power import assumed_sigma
from elo_exp.analysis.sequential_tests import (
    boundaries,
    expected_share,
    family_wise_alpha,
    plan_looks,
)
from elo_exp.api.costs import format_dollars
from elo_exp.console import format_table, wrap_lines
from elo_exp.judges import role_suffix
from elo_exp.pipeline.answer_plans import AnswerPlan
from elo_exp.pipeline.planning import Plan, PlanRow
from elo_exp.pipeline.run_plan import RunPlan, SweepCost
from elo_exp.store.usage import Usage

_GAPS_POINTS = (0, 60, 100, 200)
_COUNT_FIELDS = ("pairs", "queries", "stored", "new", "input_tokens", "output_tokens")


def plan_table(plan: Plan) -> str:
    """Format a plan: a line for each rubric, their total, and notes."""
    return "\n".join([_format_heading(plan), _format_rows(plan), *_list_notes(plan)])


def _format_rows(plan: Plan) -> str:
    """Format a line for each rubric, and their total."""
    head = _name_columns("rubric", _name_units(plan), plan)
    lines = [_sum_cells(_row_name(row), row, is_paid=plan.is_paid) for row in plan.rows]
    if _has_detectable_gap(plan):
        head.append("detectable\ngap")
        for cells, row in zip(lines, plan.rows, strict=True):
            is_known = math.isfinite(row.detects) and not (
                row.is_control or row.is_scored
            )
            cells.append(f"{row.detects:.0f}" if is_known else "-")
    if len(lines) > 1:
        lines.append(_sum_cells("total", *plan.rows, is_paid=plan.is_paid))
    return format_table(head, lines)


def _name_units(plan: Plan) -> str:
    """Return the heading of the number of subjects."""
    if plan.what == "scores":
        return "answers"
    is_mixed = plan.what == "verdicts and scores"
    return "comparisons\nor answers" if is_mixed else "comparisons"


def _has_detectable_gap(plan: Plan) -> bool:
    return plan.what in ("verdicts", "verdicts and scores")


def _name_columns(subject: str, units: str, plan: Plan) -> list[str]:
    new = "to pay\nfor" if plan.is_paid else "new"
    columns = [subject, units, "judge\ncalls", "in\ncache", new]
    columns += ["tokens\nin", "tokens\nout"]
    dollars = "at most\n$" if plan.is_upper_bound else "expected\n$"
    return [*columns, dollars] if plan.is_paid else columns


def _row_name(row: PlanRow) -> str:
    return f"{row.dimension} (control)" if row.is_control else row.dimension


def plan_of_judges(plans: Mapping[str, Plan]) -> str:
    """Format the plans of several judges: a table each, and their sum, which must fit the one budget.

    plans  by the judge's name
    """
    combined_plan = Plan.of_all([*plans.values()])
    is_paid = combined_plan.is_paid
    head = _name_columns("judge", _name_units(combined_plan), combined_plan)
    lines = [
        _sum_cells(name, *plan.rows, is_paid=is_paid) for name, plan in plans.items()
    ]
    budget = "free"
    if combined_plan.budget_usd is not None:
        amount = format_dollars(combined_plan.budget_usd)
        budget = f"one budget of {amount} ({combined_plan.budget_setting})"
    return "\n".join(
        [
            *(
                "\n".join([_format_heading(plan, name), _format_rows(plan)])
                for name, plan in plans.items()
            ),
            f"plan: {len(plans)} judges, one after the other, {budget}",
            format_table(
                head,
                [*lines, _sum_cells("total", *combined_plan.rows, is_paid=is_paid)],
            ),
            *_list_notes(combined_plan),
        ]
    )


def _sum_cells(name: str, *rows: PlanRow, is_paid: bool) -> list[str]:
    """Return a name and the sums over some rows."""
    counts = [
        f"{sum(getattr(row, field) for row in rows):,}" for field in _COUNT_FIELDS
    ]
    dollars = [f"{sum(row.dollars for row in rows):,.2f}"] if is_paid else []
    return [name, *counts, *dollars]


def _format_heading(plan: Plan, name: str | None = None) -> str:
    judge_prefix = f"{name}, " if name else ""
    judge = f"plan: judge {judge_prefix}{plan.judge_model}{role_suffix(plan.roles)}"
    if plan.budget_usd is None:
        return f"{judge}, free"
    budget = f"budget {format_dollars(plan.budget_usd)} ({plan.budget_setting})"
    basis = "the length of the texts"
    if n_counted := max((row.counted for row in plan.rows), default=0):
        basis = f"{n_counted} calls whose tokens the API counted"
    return f"{judge}\n  {budget}, tokens estimated from {basis}"


def _list_notes(plan: Plan) -> list[str]:
    notes = []
    if n := sum(row.shared for row in plan.rows):
        share = "shares" if n == 1 else "share"
        notes.append(
            f"{_count_calls(n, 'repeats', 'repeat')} the text of another and {share} its reply."
        )
    if n := sum(row.under_way for row in plan.rows):
        notes.append(
            f"{_count_calls(n, 'is', 'are')} in submitted batches: replies are collected and not paid for again."
        )
    if n := sum(row.left_out for row in plan.rows):
        notes.append(
            f"{_count_calls(n, 'has', 'have')} no reply in the cache and will not be made (judging.stored_only=true)."
        )
    if _has_detectable_gap(plan):
        notes.append(
            "Detectable gap: the smallest true gap in points that 4 of 5 runs of this size find "
            "(from simulations)."
        )
    dollars_plain = sum(row.dollars_plain for row in plan.rows)
    if dollars_plain > plan.dollars:
        notes.append(
            f"{'At most' if plan.is_upper_bound else 'Expected'} $ is for the chosen transport and prompt cache. "
            "Single messages without a "
            f"cache cost ${dollars_plain:,.2f}."
        )
    if plan.budget_usd is not None and not plan.fits:
        notes.append(
            f"The budget is too low: the run needs ${plan.dollars:.4f}, and ${plan.budget_usd - plan.spent_usd:.4f} "
            "are left. It would stop before the judge is paid."
        )
    return wrap_lines(f"  {note}" for note in notes)


def answers_table(plans: Sequence[AnswerPlan]) -> str:
    """Format what missing answers cost: a row for each entrant that may be paid, and what is assumed of each answer."""
    paid_plans = [plan for plan in plans if plan.is_paid]
    notes = [
        f"{plan.entrant}: {plan.new:,} answers not generated yet; cost estimated from {plan.n_chars:,} characters each"
        f"{', its limit' * plan.is_upper_bound}."
        for plan in plans
    ]
    for plan in paid_plans:
        if plan.dollars is None:
            notes.append(
                f"{plan.entrant}: no price is set, so its answers are not in the cost."
            )
        if not plan.fits:
            cap = format_dollars(plan.budget_usd or 0.0)
            notes.append(
                f"entrant.{plan.entrant}.budget_usd is too low: {cap}. The entrant would stop before its last answer."
            )
    if not paid_plans:
        return "\n".join(wrap_lines(notes))
    lines = wrap_lines(f"  {note}" for note in notes)
    rows = [
        [
            plan.entrant,
            *(f"{n:,}" for n in (plan.n_wanted, plan.n_wanted - plan.new, plan.new)),
            *(f"{n:,}" for n in (plan.input_tokens, plan.output_tokens)),
            _format_price(plan),
        ]
        for plan in paid_plans
    ]
    head = [
        "entrant",
        "answers",
        "in\ncache",
        "to pay\nfor",
        "tokens\nin",
        "tokens\nout",
        "$",
    ]
    return "\n".join(
        [
            "plan: answers of entrants that may cost money",
            format_table(head, rows),
            *lines,
        ]
    )


def _format_price(plan: AnswerPlan) -> str:
    if plan.dollars is None:
        return "unknown"
    return f"{'at most ' * plan.is_upper_bound}{plan.dollars:,.2f}"


def describe_total(plan: RunPlan) -> list[str]:
    """Describe what answers and verdicts cost together; nothing if one table has it all."""
    if not (plan.judge_dollars and plan.answer_dollars):
        return []
    at_most = "at most " * plan.is_upper_bound
    all_dollars, answer_dollars, call_dollars = (
        format_dollars(round(dollars, 2))
        for dollars in (plan.dollars, plan.answer_dollars, plan.judge_dollars)
    )
    return [
        f"total: {at_most}{all_dollars}, of which {answer_dollars} for answers and {call_dollars} for judge calls"
    ]


def describe_sweep_cost(cost: SweepCost, n_jobs: int) -> str:
    """Describe what the jobs of a sweep cost together."""
    at_most = "at most " * cost.is_upper_bound
    price = format_dollars(round(cost.dollars, 2)) if cost.dollars else "free"
    parts = [f"{cost.n_calls:,} new judge call{'s' * (cost.n_calls != 1)}"]
    if cost.n_answers:
        parts = [f"{cost.n_answers:,} answers to pay for", *parts]
    return f"total of {n_jobs} jobs: {at_most}{price}, {' and '.join(parts)}. What several jobs need counts once."


def describe_calls(n_calls: int, n_distinct: int) -> str:
    """Count judge calls: "4,548 judge calls, 1,283 of which repeat the text of another"."""
    text = "1 judge call" if n_calls == 1 else f"{n_calls:,} judge calls"
    n = n_calls - n_distinct
    if not n:
        return text
    verb = "repeats" if n == 1 else "repeat"
    return f"{text}, {n:,} of which {verb} the text of another"


def _count_calls(n: int, singular: str, plural: str) -> str:
    """Return the beginning of a note, with its verb: "1 judge call repeats", "12 judge calls are"."""
    return f"1 judge call {singular}" if n == 1 else f"{n:,} judge calls {plural}"


def looks_table(plan: Plan, n_looks: int, *, drop: bool) -> str:
    """Format the interim analyses of a plan: the expected share of the bill and the power, by the gap between entrants."""
    n_tests = sum(math.comb(row.n_entrants, 2) for row in plan.rows)
    alpha = family_wise_alpha(drop=drop) / n_tests
    rows = []
    for row in plan.rows:
        looks = plan_looks(row.n_prompts, n_looks)
        times = tuple(look / row.n_prompts for look in looks)
        bounds = boundaries(alpha, times)
        sigma = assumed_sigma(row.n_entrants, both_orders=row.both_orders)
        rows.append([row.dimension, " ".join(map(str, looks))])
        for gap in _GAPS_POINTS:
            drift = gap * math.sqrt(row.n_prompts) / sigma
            share, power = expected_share(times, bounds, drift)
            rows[-1].append(f"{share:.0%} {power:4.0%}")
    head = ["rubric", "prompts at each analysis", *map("gap {}".format, _GAPS_POINTS)]
    return "\n".join(
        [
            "interim analyses: the table above is the worst case, in which no pair is decided early",
            format_table(head, rows),
            "  For each gap in points between all entrants: the expected share of the bill, and the power.",
        ]
    )


def spend(usage: Usage) -> str:
    """Format the bill of the judges, and the most that lost answers may have added to it."""
    if not usage.dollars and not usage.calls_lost:
        return "nothing spent"
    by_dimension = sorted(usage.dollars_by_dimension.items())
    parts = ", ".join(f"{name} ${dollars:.4f}" for name, dollars in by_dimension)
    n_written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    text = (
        f"spent ${usage.dollars:.4f}{f' ({parts})' if parts else ''}: {usage.input_tokens:,} "
        f"tokens in, {n_written:,} written to the prompt cache, {usage.cache_read_tokens:,} read "
        f"from it, {usage.output_tokens:,} out"
    )
    if not usage.calls_lost:
        return text
    lost_answers = (
        "1 answer was" if usage.calls_lost == 1 else f"{usage.calls_lost} answers were"
    )
    return (
        f"{text}. {lost_answers} lost on the way: judges and entrants cost at most "
        f"${usage.dollars_at_most:.4f}"
    )
