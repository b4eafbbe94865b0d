"""What a run will cost and what it can detect, before anything is paid."""

import dataclasses
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.power import assumed_sigma, detectable_difference
from elo_exp.api.costs import PER_MILLION
from elo_exp.api.jobs import describe_spending
from elo_exp.api.transport import UnreachableError
from elo_exp.data.rubrics import extract_role
from elo_exp.errors import BudgetError, UserError
from elo_exp.judges import ApiJudge, Judge, NoJudge
from elo_exp.records import Comparison, Item, JudgeRequest
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import total_dollars

logger = logging.getLogger(__name__)

# For each dimension
_MAX_COUNTED_REQUESTS = 3
_REDUCE_HINTS = {
    "verdicts": "judging.limit_pairs=N",
    "scores": "prompts.n=N, or oracle.n_prompts=N with experiment=oracle",
    "verdicts and scores": "prompts.n=N",
    "audit verdicts": "audit.n_prompts=N",
}
_CACHE_PHRASES = {"5m": "the 5-minute cache", "1h": "the 1-hour cache"}


def estimate_cost(requests: Sequence[JudgeRequest], judge: ApiJudge) -> dict[str, Any]:
    """Estimate what requests of one dimension cost, in the last fields of a PlanRow.

    Where the API counts tokens free of charge, it counts a sample, and the others are scaled.
    """
    prices, estimator = judge.prices_of(judge.model), judge.estimator
    assert prices is not None
    if requests and (count := judge.token_counter()):
        sample = requests[:: max(1, len(requests) // _MAX_COUNTED_REQUESTS)][
            :_MAX_COUNTED_REQUESTS
        ]
        try:
            n_tokens = sum(count(judge.params(request, None)) for request in sample)
            estimator.fit(sample, n_tokens)
        except (UnreachableError, UserError) as error:
            message = (
                "warning: the API does not count tokens now (%s); they are estimated"
            )
            logger.warning(message, error)
    n_prefix = sum(estimator.predict(len(request.system)) for request in requests)
    n_user = sum(estimator.predict(request.n_chars) for request in requests) - n_prefix
    n_output = len(requests) * judge.expected_output_tokens
    ttl, _ = choose_first_ttl(requests, judge)
    hit_rate = judge.expected_hit_rate if ttl else 0.0
    prefix_price = hit_rate * prices.cache_read + (
        1 - hit_rate
    ) * prices.prefix_write_price(ttl)
    other_dollars = n_user * prices.input + n_output * prices.output
    factor = prices.batch_discount(judge.transport == "batches")
    return {
        "input_tokens": round(n_prefix + n_user),
        "output_tokens": n_output,
        "dollars": (n_prefix * prefix_price + other_dollars) * PER_MILLION * factor,
        "dollars_plain": (n_prefix * prices.input + other_dollars) * PER_MILLION,
        "counted": estimator.n_counted,
    }


def choose_first_ttl(
    requests: Sequence[JudgeRequest], judge: ApiJudge
) -> tuple[str | None, str | None]:
    """Return the time to live to request of the prompt cache at first, and the reason for the
    report; None where a cache cannot pay.

    A cache that is to be measured begins with an hour in batches, and with 5 minutes in single
    messages, which follow each other closely.
    """
    prices = judge.prices_of(judge.model)
    if judge.cache is None or prices is None:
        return None, None
    if judge.cache == "none":
        return None, "none: so it was chosen"
    n_chars = max((len(request.system) for request in requests), default=0)
    min_tokens = prices.min_cacheable_tokens
    if judge.estimator.predict(n_chars) < min_tokens:
        why = f"none: {judge.model} caches no prefix of fewer than {min_tokens} tokens"
        return None, why
    ttl = judge.cache
    if ttl == "measured":
        ttl = "1h" if judge.transport == "batches" else "5m"
    return ttl, f"{_CACHE_PHRASES[ttl]} ({ttl}), not measured"


def choose_measured_ttl(
    hits: Sequence[bool], judge: ApiJudge, ttl: str
) -> tuple[str | None, str]:
    """Return the time to live that a measured share of cache hits pays for, and the reason; warn
    where it is less than `ttl`."""
    share, prices = sum(hits) / len(hits), judge.prices_of(judge.model)
    best_ttl = prices.best_ttl(share) if prices else None
    cache = _CACHE_PHRASES[best_ttl] if best_ttl else "no cache from here on"
    why = f"{cache}: {share:.0%} of {len(hits)} requests found the prefix in the cache"
    if best_ttl == ttl:
        logger.info("prompt cache: %s", why)
    else:
        message = "warning: prompt cache: %s. Fewer than the %s cache pays for."
        logger.warning(message, why, ttl)
    return best_ttl, why


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """The queries of one dimension; `stored` to `left_out` count distinct ones.

    is_control  whether they are on degraded copies, which check the judge
    is_scored   whether single answers are scored, and none compared
    """

    dimension: str
    n_prompts: int
    n_entrants: int
    pairs: int  # or single answers that are scored
    queries: int
    stored: int
    under_way: int  # in batches that have been submitted
    new: int  # to be paid for, if the judge is paid
    both_orders: float = 1.0  # share of the pairs judged in both orders
    opponents: float | None = None  # of each entrant on a prompt; None: all others
    left_out: int = 0  # neither stored nor asked, with judging.stored_only
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0  # by the chosen transport and prompt cache
    dollars_plain: float = 0.0  # by single messages without a prompt cache
    counted: int = 0  # queries that the API has counted; 0: estimated from the length
    is_control: bool = False
    is_scored: bool = False
    new_keys: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def shared(self) -> int:
        """Queries whose text equals that of another, so that one reply serves both."""
        n_distinct = self.stored + self.under_way + self.new + self.left_out
        return self.queries - n_distinct

    @property
    def detects(self) -> float:
        """Gap in rating points that is found with 80% power, if verdicts vary as in simulations."""
        sigma = assumed_sigma(
            self.n_entrants, both_orders=self.both_orders, opponents=self.opponents
        )
        return detectable_difference(sigma, self.n_prompts)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """budget_usd  the budget in dollars; None for a judge that is free
    spent_usd   dollars of the budget that this run has spent
    what        verdicts, scores, both or audit verdicts
    roles       roles that the prompts of the requests give the judge
    is_upper_bound  whether answers that nobody knows yet are counted at their limit
    """

    judge_model: str
    rows: tuple[PlanRow, ...]
    budget_usd: float | None = None
    budget_setting: str = ""
    spent_usd: float = 0.0
    what: str = "verdicts"
    keys: Sequence[str] = ()  # of all queries
    roles: Sequence[str] = ()
    is_upper_bound: bool = False

    @property
    def is_paid(self) -> bool:
        return self.budget_usd is not None

    @property
    def new(self) -> int:
        return sum(row.new for row in self.rows)

    @property
    def dollars(self) -> float:
        return sum(row.dollars for row in self.rows)

    @property
    def fits(self) -> bool:
        """Whether the expected cost is within the cap."""
        cap = math.inf if self.budget_usd is None else self.budget_usd
        return not self.new or self.dollars <= cap - self.spent_usd

    @classmethod
    def of_all(cls, plans: Sequence["Plan"]) -> "Plan":
        """Add up the plans of several judges that share one cap."""
        capped_plans = [plan for plan in plans if plan.budget_usd is not None]
        return dataclasses.replace(
            [*capped_plans, *plans][0],
            judge_model=", ".join(plan.judge_model for plan in plans),
            rows=tuple(row for plan in plans for row in plan.rows),
            keys=[key for plan in plans for key in plan.keys],
            roles=list(dict.fromkeys(role for plan in plans for role in plan.roles)),
            is_upper_bound=any(plan.is_upper_bound for plan in plans),
        )

    def check(self, store: Store, *, hint: str = "") -> None:
        """Raise BudgetError where the run's cap, or one of the store, would stop the run before its end.

        hint  what else the user can do
        """
        fullest_cap = store.find_tightest_cap()
        if self.fits and (
            not self.new or fullest_cap is None or self.dollars <= fullest_cap.remaining
        ):
            return
        usage = store.usage
        spent_note = (
            f", of which ${self.spent_usd:.4f} are spent" if self.spent_usd else ""
        )
        spent_before = "" if usage.responses_unpriced else "Nothing was spent."
        if dollars := total_dollars(dataclasses.asdict(usage)):
            spent_before = f"${dollars:.4f} was spent before."
        setting, cap = (
            self.budget_setting,
            f"the cap is ${self.budget_usd or 0.0:.4f}{spent_note}",
        )
        if self.fits and fullest_cap is not None:
            setting, cap = fullest_cap.setting, describe_spending(fullest_cap)
        raise BudgetError(
            f"{self.new} {self.what} by {self.judge_model} are expected to cost "
            f"${self.dollars:.4f}, and {cap}. {spent_before}".rstrip(),
            *([f"  {hint}"] if hint else []),
            f"  Raise the cap with {setting}=..., or judge fewer: {_REDUCE_HINTS[self.what]}.",
        )


def make_plan(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    stored: Collection[str],
    under_way: Collection[str],
    *,
    stored_only: bool = False,
    noun: str = "verdicts",
) -> Plan:
    """Plan requests, a row for each dimension, and one for its control; makes no paid call.

    stored, under_way  keys of replies that need no paying
    stored_only        whether the judge is asked nothing
    Raises UserError where no judge is chosen.
    """
    if isinstance(judge, NoJudge):
        judge.cache_key()
    by_dimension = defaultdict(list)
    for request in requests:
        subject = request.subject
        is_control = isinstance(subject, Comparison) and subject.is_control
        by_dimension[subject.dimension, is_control].append(request)
    paid_judge = judge if isinstance(judge, ApiJudge) else None
    rows = []
    for (dimension, is_control), dimension_requests in by_dimension.items():
        unique = {request.key: request for request in dimension_requests}
        missing = [request for key, request in unique.items() if key not in stored]
        to_ask = [] if stored_only else missing
        new_requests = [request for request in to_ask if request.key not in under_way]
        subjects = [request.subject for request in dimension_requests]
        units = {(s.prompt_id, *sorted(s.entrants), _draw_index(s)) for s in subjects}
        n_prompts = len({subject.prompt_id for subject in subjects})
        n_slots = len(
            {(subject.prompt_id, _draw_index(subject)) for subject in subjects}
        )
        n_entrants = len({name for subject in subjects for name in subject.entrants})
        row = PlanRow(
            dimension=dimension,
            n_prompts=n_prompts,
            n_entrants=n_entrants,
            pairs=len(units),
            queries=len(dimension_requests),
            both_orders=sum(not r.repeat for r in dimension_requests) / len(units)
            - 1.0,
            opponents=max(1.0, 2 * len(units) / (n_slots * n_entrants)),
            stored=len(unique) - len(missing),
            under_way=len(to_ask) - len(new_requests),
            new=len(new_requests),
            left_out=len(missing) - len(to_ask),
            is_control=is_control,
            is_scored=isinstance(subjects[0], Item),
            new_keys=frozenset(request.key for request in new_requests),
            **(estimate_cost(new_requests, paid_judge) if paid_judge else {}),
        )
        rows.append(row)
    return Plan(
        judge_model=judge.model,
        rows=tuple(rows),
        budget_usd=paid_judge.budget.cap if paid_judge else None,
        budget_setting=paid_judge.budget_setting if paid_judge else "",
        spent_usd=paid_judge.budget.spent if paid_judge else 0.0,
        what=noun,
        keys=[request.key for request in requests],
        roles=_list_roles(requests) if judge.receives_instructions else (),
    )


def _draw_index(subject: Comparison | Item) -> int:
    """Return which of several answers to a prompt is asked about."""
    if isinstance(subject, Item):
        return subject.draw_idx
    return max(subject.draw_a, subject.draw_b)


def _list_roles(requests: Sequence[JudgeRequest]) -> list[str]:
    systems = dict.fromkeys(request.system for request in requests)
    return list(dict.fromkeys(role for role in map(extract_role, systems) if role))
