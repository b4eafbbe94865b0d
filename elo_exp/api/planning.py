"""What a run will cost and what it can resolve, before anything is paid."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elo_exp.api.costs import PER_MILLION
from elo_exp.api.jobs import Model
from elo_exp.api.token_estimator import TokenEstimator, sample
from elo_exp.api.transport import UnreachableError
from elo_exp.records import Comparison, Item, JudgeRequest, UserError
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

_COUNTED = 3  # requests of each prefix whose tokens the API is asked to count
BUDGET_SETTING = "judging.budget_usd"  # where the judge names no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What some queries would cost.

    dollars_plain  if they were single messages without a prompt cache
    counted        how many of them the API has counted; the others are estimated by their length
    """

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    dollars_plain: float = 0.0
    counted: int = 0


class Estimable(Model, Protocol):
    """What an estimate needs to know of a judge."""

    transport: str
    cache: str | None
    estimator: TokenEstimator
    expected_output_tokens: int
    expected_hit_rate: float

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None: ...


def estimate(requests: Sequence[JudgeRequest], judge: Estimable) -> Estimate:
    """What the requests would cost. Where the API counts tokens it counts some, and the others are
    scaled from them."""
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
    judge: Estimable,
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


def first_ttl(requests: Sequence[JudgeRequest], judge: Estimable) -> str | None:
    """The time to live to ask of the prompt cache at first; None where it would not pay.

    One that is to be measured begins with an hour in batches; single messages are asked within
    minutes.
    """
    prices = judge.prices_of(judge.model)
    if judge.cache in (None, "none") or prices is None:
        return None
    longest = max(
        (judge.estimator.predict(len(r.system)) for r in requests), default=0.0
    )
    if longest < prices.min_cacheable_tokens:
        return None
    if judge.cache == "measured":
        return "1h" if judge.transport == "batches" else "5m"
    return judge.cache


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What one dimension takes. A query may be wanted more than once; it is paid for once.

    pairs      or, in a plan of scores, responses
    queries    wanted
    stored     distinct queries that the store can answer
    under_way  distinct queries in batches that have been submitted
    to_pay     distinct queries that are neither
    left_out   distinct queries that the store cannot answer and nobody is asked
    """

    dimension: str
    n_prompts: int
    n_entrants: int
    pairs: int
    queries: int
    stored: int
    under_way: int
    to_pay: int
    estimate: Estimate
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    judge_model: str
    rows: tuple[PlanRow, ...]
    budget_usd: float | None = None  # None for a judge that costs nothing
    budget_setting: str = BUDGET_SETTING  # which holds it
    of_scores: bool = False  # of responses one by one, and not of pairs
    spent_usd: float = 0.0  # of the cap, by the run so far

    @property
    def to_pay(self) -> int:
        return sum(row.to_pay for row in self.rows)

    @property
    def dollars(self) -> float:
        return sum(row.estimate.dollars for row in self.rows)

    @property
    def fits(self) -> bool:
        """Whether all of it is expected to stay within the cap."""
        return (
            self.budget_usd is None or self.dollars <= self.budget_usd - self.spent_usd
        )

    def check(self, usage: Usage | None = None, *, hint: str = "") -> None:
        """Raise UserError where the cap would stop the run before its end.

        usage  of the run so far; None: it has not begun
        hint   what else the user can do
        """
        if self.fits or not self.to_pay:
            return
        verdicts, fewer = "verdicts", "judging.limit_pairs=N"
        if self.of_scores:
            verdicts, fewer = "scores", "oracle.n_prompts=N"
        spent = f", of which ${self.spent_usd:.4f} are spent" if self.spent_usd else ""
        message = (
            f"{self.budget_setting}: {self.to_pay} {verdicts} by {self.judge_model} are expected "
            f"to cost ${self.dollars:.4f}, and the cap is ${self.budget_usd:.4f}{spent}. Raise it "
            f"with {self.budget_setting}=..., or ask for less: {fewer}. {hint}"
        )
        raise UserError(f"{message}{_so_far(usage or Usage())}".rstrip())


def _so_far(usage: Usage) -> str:
    """What was spent, in words; none of answers that have cost what nobody counts."""
    if spent := usage.dollars + sum(usage.dollars_by_entrant.values()):
        return f"${spent:.4f} was spent before."
    return "" if usage.responses_unpriced else "Nothing was spent."


def plan(
    requests: Sequence[JudgeRequest],
    stored: Collection[str],
    under_way: Collection[str],
    *,
    judge_model: str,
    estimate: Callable[[Sequence[JudgeRequest]], Estimate],
    budget_usd: float | None,
    budget_setting: str = BUDGET_SETTING,
    stored_only: bool = False,
    spent_usd: float = 0.0,
) -> Plan:
    """Plan these queries, a row for each dimension; the keys in `stored` and `under_way` need no
    paying.

    stored_only  whether the store alone is to answer
    spent_usd    of the cap, by the run so far
    """
    by_dimension: dict[str, list[JudgeRequest]] = {}
    for request in requests:
        by_dimension.setdefault(request.subject.dimension, []).append(request)
    rows = []
    for dimension, some in by_dimension.items():
        subjects = [request.subject for request in some]
        unique = {request.key: request for request in some}
        unstored = [request for key, request in unique.items() if key not in stored]
        new = [request for request in unstored if request.key not in under_way]
        if stored_only:
            new = []
        row = PlanRow(
            dimension=dimension,
            n_prompts=len({subject.prompt_id for subject in subjects}),
            n_entrants=len({name for s in subjects for name in s.entrants}),
            pairs=len({_judged(subject) for subject in subjects}),
            queries=len(some),
            stored=len(unique) - len(unstored),
            under_way=0 if stored_only else len(unstored) - len(new),
            to_pay=len(new),
            estimate=Estimate() if stored_only else estimate(new),
            left_out=len(unstored) if stored_only else 0,
        )
        rows.append(row)
    return Plan(
        judge_model=judge_model,
        rows=tuple(rows),
        budget_usd=budget_usd,
        budget_setting=budget_setting,
        of_scores=any(isinstance(request.subject, Item) for request in requests),
        spent_usd=spent_usd,
    )


def _judged(subject: Comparison | Item) -> tuple[Hashable, ...]:
    """The pair, in whichever order, or the response."""
    if isinstance(subject, Item):
        return subject.prompt_id, subject.entrant_id, subject.draw_idx
    return subject.prompt_id, *sorted(subject.entrants)
