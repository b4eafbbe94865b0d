"""What a run will cost and what it can detect, before anything is paid; and what it has cost."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.power import minimum_detectable_difference
from elo_exp.api.costs import PER_MILLION, money, sample
from elo_exp.api.transport import UnreachableError
from elo_exp.judges import Judge, PaidJudge
from elo_exp.records import Comparison, Item, JudgeRequest, UserError
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

_COUNTED = 3  # requests of each prefix whose tokens the API is asked to count


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Expected tokens and dollars of some queries."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0  # by the chosen transport and prompt cache
    dollars_plain: float = 0.0  # by single messages without a prompt cache
    counted: int = 0  # queries that the API has counted; 0: estimated from the length


def estimate(requests: Sequence[JudgeRequest], judge: PaidJudge) -> Estimate:
    """Estimate what requests cost.

    Where the API counts tokens free of charge, it counts a sample, and the others are scaled.
    """
    if requests and (counter := judge.token_counter()) is not None:
        _fit(judge, requests, counter)
    predict, prices = judge.estimator.predict, judge.prices_of(judge.model)
    assert prices is not None
    n_prefix = sum(predict(len(request.system)) for request in requests)
    n_user = sum(predict(request.n_chars) for request in requests) - n_prefix
    n_output = len(requests) * judge.expected_output_tokens
    ttl = first_ttl(requests, judge)
    hit_rate = judge.expected_hit_rate if ttl else 0.0
    prefix = hit_rate * prices.cache_read + (1 - hit_rate) * prices.write(ttl)
    rest = n_user * prices.input + n_output * prices.output
    factor = prices.factor(judge.transport == "batches")
    return Estimate(
        input_tokens=round(n_prefix + n_user),
        output_tokens=n_output,
        dollars=(n_prefix * prefix + rest) * PER_MILLION * factor,
        dollars_plain=(n_prefix * prices.input + rest) * PER_MILLION,
        counted=judge.estimator.n_counted,
    )


def _fit(
    judge: PaidJudge,
    requests: Sequence[JudgeRequest],
    counter: Callable[[Mapping[str, Any]], int],
) -> None:
    some = sample(requests, n_each=_COUNTED)
    try:
        n_tokens = sum(counter(judge.params(request, None)) for request in some)
    except (UnreachableError, UserError) as error:
        logger.warning(
            "warning: the API does not count tokens now (%s); they are estimated", error
        )
    else:
        judge.estimator.fit(some, n_tokens)


def first_ttl(requests: Sequence[JudgeRequest], judge: PaidJudge) -> str | None:
    """Return the time to live to request of the prompt cache at first; None where it cannot pay.

    A cache that is to be measured begins with an hour in batches, and with 5 minutes in single
    messages, which follow each other closely.
    """
    prices = judge.prices_of(judge.model)
    if judge.cache in (None, "none") or prices is None:
        return None
    n_chars = max((len(request.system) for request in requests), default=0)
    if judge.estimator.predict(n_chars) < prices.min_cacheable_tokens:
        return None
    if judge.cache == "measured":
        return "1h" if judge.transport == "batches" else "5m"
    return judge.cache


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The queries of one dimension; `stored` to `left_out` count distinct ones."""

    dimension: str
    n_prompts: int
    n_entrants: int
    pairs: int  # or, in a plan of scores, responses
    queries: int
    stored: int
    under_way: int  # in batches that have been submitted
    new: int  # to be paid for, if the judge is paid
    left_out: int = 0  # neither stored nor asked, with judging.stored_only
    estimate: Estimate = Estimate()

    @property
    def shared(self) -> int:
        """Queries whose text equals that of another, so that one reply serves both."""
        distinct = self.stored + self.under_way + self.new + self.left_out
        return self.queries - distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """budget_usd  the cap; None for a judge that costs nothing
    spent_usd   part of the cap that this run has spent
    """

    judge_model: str
    rows: tuple[PlanRow, ...]
    budget_usd: float | None = None
    budget_setting: str = ""
    spent_usd: float = 0.0
    of_scores: bool = False

    @property
    def new(self) -> int:
        return sum(row.new for row in self.rows)

    @property
    def dollars(self) -> float:
        return sum(row.estimate.dollars for row in self.rows)

    @property
    def fits(self) -> bool:
        """Whether the expected cost is within the cap."""
        if self.budget_usd is None or not self.new:
            return True
        return self.dollars <= self.budget_usd - self.spent_usd

    def check(self, usage: Usage | None = None, *, hint: str = "") -> None:
        """Raise UserError where the cap would stop the run before its end.

        usage  of the run so far; None: it has not begun
        hint   what else the user can do
        """
        if self.fits:
            return
        spent = f", of which ${self.spent_usd:.4f} are spent" if self.spent_usd else ""
        what, fewer = "verdicts", "judging.limit_pairs=N"
        if self.of_scores:
            what, fewer = "scores", "oracle.n_prompts=N"
        raise UserError(
            f"{self.budget_setting}: {self.new} {what} by {self.judge_model} are expected to cost "
            f"${self.dollars:.4f}, and the cap is ${self.budget_usd:.4f}{spent}. Raise it with "
            f"{self.budget_setting}=..., or judge fewer: {fewer}. "
            f"{hint}{_spent_before(usage or Usage())}".rstrip()
        )


def _spent_before(usage: Usage) -> str:
    if spent := usage.dollars + sum(usage.dollars_by_entrant.values()):
        return f"${spent:.4f} was spent before."
    return "" if usage.responses_unpriced else "Nothing was spent."


def plan(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    stored: Collection[str],
    under_way: Collection[str],
    *,
    stored_only: bool = False,
) -> Plan:
    """Plan requests, a row for each dimension; makes no paid call.

    stored, under_way  keys of replies that need no paying
    stored_only        whether the judge is asked nothing
    """
    by_dimension: dict[str, list[JudgeRequest]] = {}
    for request in requests:
        by_dimension.setdefault(request.subject.dimension, []).append(request)
    paid = judge if isinstance(judge, PaidJudge) else None
    return Plan(
        judge_model=judge.model,
        rows=tuple(
            _row(some, paid, stored, under_way, stored_only)
            for some in by_dimension.values()
        ),
        budget_usd=paid.budget.cap if paid else None,
        budget_setting=paid.budget_setting if paid else "",
        spent_usd=paid.budget.spent if paid else 0.0,
        of_scores=any(isinstance(request.subject, Item) for request in requests),
    )


def _row(
    requests: Sequence[JudgeRequest],
    judge: PaidJudge | None,
    stored: Collection[str],
    under_way: Collection[str],
    stored_only: bool,
) -> PlanRow:
    unique = {request.key: request for request in requests}
    missing = [request for key, request in unique.items() if key not in stored]
    asked = [] if stored_only else missing
    new = [request for request in asked if request.key not in under_way]
    subjects = [request.subject for request in requests]
    return PlanRow(
        dimension=subjects[0].dimension,
        n_prompts=len({subject.prompt_id for subject in subjects}),
        n_entrants=len({name for subject in subjects for name in subject.entrants}),
        pairs=len({_unordered(subject) for subject in subjects}),
        queries=len(requests),
        stored=len(unique) - len(missing),
        under_way=len(asked) - len(new),
        new=len(new),
        left_out=len(missing) - len(asked),
        estimate=estimate(new, judge) if judge else Estimate(),
    )


def _unordered(subject: Comparison | Item) -> tuple[Hashable, ...]:
    draw_idx = subject.draw_idx if isinstance(subject, Item) else 0
    return subject.prompt_id, frozenset(subject.entrants), draw_idx


# As text


def plan_table(plan: Plan) -> str:
    """Format a plan: a line for each dimension, their total, and notes."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(file=io.StringIO(), width=160, markup=False, highlight=False)
    columns = ["responses" if plan.of_scores else "pairs", "queries", "stored", "new"]
    columns += ["tokens in", "out", "$ expected", "$ plain"]
    total = [sum(some) for some in zip(*map(_numbers, plan.rows), strict=True)]
    table = Table(box=SIMPLE_HEAD, show_footer=len(plan.rows) > 1)
    table.add_column("dimension", "total", no_wrap=True)
    for name, cell in zip(columns, _cells(total) or [""] * 8, strict=True):
        table.add_column(name, cell, justify="right", no_wrap=True)
    if not plan.of_scores:
        table.add_column("detects", justify="right", no_wrap=True)
    for row in plan.rows:
        points = minimum_detectable_difference(row.n_prompts, row.n_entrants)
        detects = f"{points:.0f} Elo" if math.isfinite(points) else "-"
        cells = [row.dimension, *_cells(_numbers(row)), detects]
        table.add_row(*cells[: len(table.columns)])
    with console.capture() as capture:
        console.print(f"plan: judge {plan.judge_model}, {_cost_basis(plan)}")
        console.print(table)
        for note in _notes(plan):
            console.print(f"  {note}", soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _numbers(row: PlanRow) -> list[float]:
    made = row.estimate
    counts = [row.pairs, row.queries, row.stored, row.new]
    tokens = [made.input_tokens, made.output_tokens]
    return [*counts, *tokens, made.dollars, made.dollars_plain]


def _cells(numbers: Sequence[float]) -> list[str]:
    return [f"{n:,}" if i < 6 else f"{n:,.2f}" for i, n in enumerate(numbers)]


def _cost_basis(plan: Plan) -> str:
    if plan.budget_usd is None:
        return "which costs nothing"
    counted = max((row.estimate.counted for row in plan.rows), default=0)
    tokens = "estimated from the length"
    if counted:
        tokens = f"scaled from {counted} that the API counted"
    return f"cap {money(plan.budget_usd)} ({plan.budget_setting}), tokens {tokens}"


def _notes(plan: Plan) -> Iterator[str]:
    if n := sum(row.shared for row in plan.rows):
        yield f"{n:,} queries equal another, and share its reply."
    if n := sum(row.under_way for row in plan.rows):
        yield f"{n:,} queries are in submitted batches: their replies are collected, not paid again."
    if n := sum(row.left_out for row in plan.rows):
        yield f"{n:,} queries have no stored reply and are left out: judging.stored_only=true."
    if not plan.of_scores:
        yield "detects: the smallest difference with 80 % power, from simulated verdicts."
    if plan.budget_usd is not None and plan.new:
        yield "$ expected: by the chosen transport and prompt cache; $ plain: single messages, no cache."
    if not plan.fits:
        left = (plan.budget_usd or 0.0) - plan.spent_usd
        yield (
            f"The cap is too low: ${plan.dollars:.4f} of ${left:.4f}. Such a run stops before its "
            "judge is paid."
        )


def spend(usage: Usage) -> str:
    """Format what judges were paid, and the most that lost answers may have cost beside it."""
    if not usage.dollars and not usage.calls_lost:
        return "nothing spent"
    by_dimension = sorted(usage.dollars_by_dimension.items())
    parts = ", ".join(f"{name} ${dollars:.4f}" for name, dollars in by_dimension)
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    line = (
        f"spent ${usage.dollars:.4f}{f' ({parts})' if parts else ''}: "
        f"{usage.input_tokens:,} tokens in, {written:,} written to the prompt cache, "
        f"{usage.cache_read_tokens:,} read from it, {usage.output_tokens:,} out"
    )
    if n := usage.calls_lost:
        answers = "1 answer was" if n == 1 else f"{n} answers were"
        line += (
            f"; {answers} lost on the way: judges and entrants cost at most "
            f"${usage.dollars_at_most:.4f}"
        )
    return line
