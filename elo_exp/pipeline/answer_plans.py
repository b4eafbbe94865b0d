"""The price of the answers that entrants have not given yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from elo_exp.entrants import ApiEntrant
from elo_exp.pipeline.generating import (
    ASSUMED_CHARS_PER_TOKEN,
    Entrants,
    MissingAnswers,
    Prompts,
    answer_key,
    assume_responses,
)
from elo_exp.store.answer_store import Store


@dataclass(frozen=True, kw_only=True)
class AnswerPlan:
    """The answers of one entrant that the cache lacks.

    n_wanted        answers that the run needs
    n_chars         characters that each of them is assumed to have
    is_upper_bound  whether that is the entrant's limit, as none of its answers is known
    dollars         None: no price is known, or the entrant is a model on this machine
    budget_usd      most that the entrant may cost; None: no cap
    keys            of the missing answers
    """

    entrant: str
    n_wanted: int
    new: int
    n_chars: int
    is_upper_bound: bool
    is_paid: bool
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None
    budget_usd: float | None = None
    keys: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def fits(self) -> bool:
        """Whether the cost is within the entrant's own cap."""
        return self.budget_usd is None or (self.dollars or 0.0) <= self.budget_usd


def plan_answers(
    prompts: Prompts, entrants: Entrants, store: Store, *, allow_missing: bool
) -> list[AnswerPlan]:
    """Plan the missing answers of each entrant that is a model; no model is asked."""
    missing: dict[str, list[MissingAnswers]] = {}
    responses = assume_responses(
        prompts,
        {name: entrant for name, entrant in entrants.items() if not entrant.is_instant},
        store,
        allow_missing=allow_missing,
        on_missing=lambda group: missing.setdefault(group.entrant, []).append(group),
    )
    return [
        _plan_entrant(name, groups, entrants, n_wanted=len(responses[name]))
        for name, groups in missing.items()
    ]


def _plan_entrant(
    name: str, groups: Sequence[MissingAnswers], entrants: Entrants, *, n_wanted: int
) -> AnswerPlan:
    entrant, n_new = entrants[name], sum(len(group.prompts) for group in groups)
    n_chars = sum(group.n_chars * len(group.prompts) for group in groups) // n_new
    is_upper_bound = not groups[0].is_measured
    is_paid = isinstance(entrant, ApiEntrant) and entrant.may_bill
    plan = AnswerPlan(
        entrant=name,
        n_wanted=max(n_wanted, n_new),
        new=n_new,
        n_chars=n_chars,
        is_upper_bound=is_upper_bound,
        is_paid=is_paid,
    )
    if not (is_paid and isinstance(entrant, ApiEntrant)):
        return plan
    n_input_chars = sum(
        len(str(message.get("content") or ""))
        for group in groups
        for prompt in group.prompts
        for message in prompt.sent(entrant.system_prompt)
    )
    tokens = {
        "input_tokens": round(n_input_chars / ASSUMED_CHARS_PER_TOKEN),
        "output_tokens": round(n_new * n_chars / ASSUMED_CHARS_PER_TOKEN),
    }
    prices = entrant.prices_of(entrant.model)
    return AnswerPlan(
        **{
            **vars(plan),
            **tokens,
            "dollars": None if prices is None else prices.dollars(tokens),
            "budget_usd": entrant.budget_usd,
            "keys": frozenset(
                answer_key(name, entrant, prompt)
                for group in groups
                for prompt in group.prompts
            ),
        }
    )
