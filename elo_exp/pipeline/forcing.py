"""How likely every policy is to give the logging policy's answers: forced where the store does not
know it.

Two checks say whether the numbers mean what they should: a clone's weights are exactly 1, and an
answer is as likely when it is forced as it was when it was drawn.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elo_exp.entrants import Entrant, Policy
from elo_exp.pipeline.loads import by_load
from elo_exp.progress import track
from elo_exp.records import (
    ForcedLogprob,
    Prompt,
    Record,
    Response,
    UserError,
    fingerprint,
)
from elo_exp.store.single_flight import get_or_create
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobCheck(Record):
    """Log-probabilities that should be the same, compared.

    differences  what is compared, in words
    n_failed     of the `n_checked`, those that differ by more than `allowed`, in nats
    worst        the policy and the prompt with the largest difference; None where nothing was
                 checked
    hint         what the user can do about a failure
    """

    differences: str
    n_checked: int
    n_failed: int
    max_difference: float
    allowed: float
    worst: str | None
    hint: str

    def check(self) -> None:
        """Raise UserError where it has failed."""
        if self.n_failed:
            raise UserError(
                f"{self.differences}: {self.n_failed} of {self.n_checked} answers differ by more "
                f"than {self.allowed:g} "
                f"nats, {self.worst} by {self.max_difference:.3g}. {self.hint}"
            )


def as_policies(
    entrants: Mapping[str, Entrant], *, logging_policy: str
) -> dict[str, Policy]:
    """The entrants as policies, whose answers can be weighted against those of the logging policy.
    Raises UserError for one that records no log-probabilities or cuts its answers at another
    length."""
    if logging_policy not in entrants:
        raise UserError(
            f"logging_policy: found {logging_policy!r}. Expected one of {', '.join(entrants)}."
        )
    policies = {
        name: entrant
        for name, entrant in entrants.items()
        if isinstance(entrant, Policy) and entrant.logprobs
    }
    for name in entrants:
        if name not in policies:
            raise UserError(
                f"entrant.{name}: records no log-probabilities. Expected logprobs=true, with a "
                "temperature and "
                "top_p=1.0; or leave it out."
            )
    limit = policies[logging_policy].max_answer_tokens
    for name, policy in policies.items():
        if policy.max_answer_tokens != limit:
            raise UserError(
                f"entrant.{name}: cuts its answers at {policy.max_answer_tokens} tokens, "
                f"{logging_policy} at {limit}. "
                "Expected one max_new_tokens for all: an answer that is cut elsewhere is another "
                "answer."
            )
    return policies


def teacher_force(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
) -> dict[str, dict[str, float | None]]:
    """How likely each policy is to give each of one policy's answers: by policy, then prompt_id, in
    nats.

    responses  of the logging policy, by prompt_id, with recorded tokens
    None, which is counted and warned of, is where prompt and answer are longer than the policy
    takes. Equal policies share what is stored, and those with equal weights a load.
    """
    by_id = {
        prompt.prompt_id: prompt for prompt in prompts if prompt.prompt_id in responses
    }
    store.usage.logprobs_wanted += len(policies) * len(by_id)
    found = by_load(
        policies, lambda name: _forced(name, policies[name], by_id, responses, store)
    )
    usage = store.usage
    logger.info(
        "log-probabilities: %d forced, %d from the store",
        usage.logprobs_forced,
        usage.logprobs_stored,
    )
    for name, of_policy in found.items():
        if n_absent := sum(total is None for total in of_policy.values()):
            logger.warning(
                "warning: %s: %d of %d prompts with their answers are longer than it takes, and "
                "have no "
                "log-probability", name, n_absent, len(of_policy),
            )  # fmt: skip
    return found


def n_forced(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
) -> dict[str, int]:
    """Of how many of the responses the store knows how likely they are, by policy."""
    answered = [prompt for prompt in prompts if prompt.prompt_id in responses]
    keys = {
        name: [_key(policy, prompt, responses[prompt.prompt_id]) for prompt in answered]
        for name, policy in policies.items()
    }
    return {
        name: len(store.get(ForcedLogprob, of_policy))
        for name, of_policy in keys.items()
    }


def clone_check(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    *,
    logging_policy: str,
    n_answers: int,
    seed: int,
) -> LogprobCheck:
    """Whether the clones of the logging policy find its answers exactly as likely as it does
    itself: their weights 1.

    Of `n_answers` of the responses, drawn with the seed, nothing is taken from the store, and each
    policy loads its weights anew. Where no policy is a clone, nothing is checked.
    """
    by_id = {
        prompt.prompt_id: prompt for prompt in prompts if prompt.prompt_id in responses
    }
    drawn = random.Random(seed).sample(sorted(by_id), min(n_answers, len(by_id)))
    logging_one = policies[logging_policy]
    clones = {
        name: policy
        for name, policy in policies.items()
        if name != logging_policy
        and all(
            policy.logprob_key(by_id[i]) == logging_one.logprob_key(by_id[i])
            for i in drawn
        )
    }

    def totals(policy: Policy) -> dict[str, float | None]:
        policy.release()
        try:
            some = [responses[prompt_id] for prompt_id in drawn]
            return {
                forced.prompt_id: forced.total_logprob
                for forced in policy.teacher_force(by_id, some)
            }
        finally:
            policy.release()

    expected = totals(logging_one) if clones else {}
    found = {name: totals(policy) for name, policy in clones.items()}
    return _compared(
        {
            f"{name} on {i}": (expected[i], total)
            for name, some in found.items()
            for i, total in some.items()
        },
        differences=f"log-probabilities of {logging_policy} and its clones",
        allowed=0.0,
        hint=(
            "Force both on one machine with one version of each library; on a GPU take device=cpu."
        ),
    )


def generation_check(
    responses: Mapping[str, Response],
    forced: Mapping[str, float | None],
    *,
    allowed: float,
) -> LogprobCheck:
    """Whether answers are as likely when they are forced as they were when they were drawn.

    forced   by prompt_id, under the policy that gave the responses
    allowed  nats, of one answer; 1e-3 is what rounding makes in float32
    """
    return _compared(
        {
            f"{response.entrant_id} on {prompt_id}": (
                response.diagnostics["total_logprob"],
                forced[prompt_id],
            )
            for prompt_id, response in responses.items()
            if forced.get(prompt_id) is not None
        },
        differences="log-probabilities as drawn and as forced",
        allowed=allowed,
        hint="In float32 that means that what is scored is not what was drawn. Arithmetic of 16 bits rounds by more "
        "than that: take dtype=float32, or allow it with oracle.check_nats.",
    )


def _compared(
    pairs: Mapping[str, tuple[float | None, float | None]],
    *,
    differences: str,
    allowed: float,
    hint: str,
) -> LogprobCheck:
    """pairs  two log-probabilities, by the policy and the prompt; one of two that is None is infinitely far off"""
    found = {
        place: 0.0
        if one == other
        else math.inf
        if one is None or other is None
        else abs(one - other)
        for place, (one, other) in pairs.items()
    }
    worst = max(found, key=found.__getitem__, default=None)
    return LogprobCheck(
        differences=differences,
        n_checked=len(found),
        n_failed=sum(difference > allowed for difference in found.values()),
        max_difference=0.0 if worst is None else found[worst],
        allowed=allowed,
        worst=worst,
        hint=hint,
    )


def _forced(
    name: str,
    policy: Policy,
    prompts: Mapping[str, Prompt],
    responses: Mapping[str, Response],
    store: Store,
) -> dict[str, float | None]:
    """By prompt_id; those that are new are in the store before they are here."""
    keys = {
        prompt_id: _key(policy, prompt, responses[prompt_id])
        for prompt_id, prompt in prompts.items()
    }
    stored = store.get(ForcedLogprob, list(keys.values()))
    wanted = {
        keys[name]: responses[name] for name in prompts if keys[name] not in stored
    }
    n_forced_before = store.usage.logprobs_forced

    made = get_or_create(
        wanted,
        store,
        record=ForcedLogprob,
        key=lambda forced: keys[forced.prompt_id],
        make=lambda mine: policy.teacher_force(prompts, mine),
        what="log-probabilities",
    )
    found = [
        *stored.values(),
        *track(made, label=f"teacher forcing: {name}", total=len(wanted)),
    ]
    store.usage.logprobs_stored += len(found) - (
        store.usage.logprobs_forced - n_forced_before
    )
    totals = {forced.prompt_id: forced.total_logprob for forced in found}
    return {prompt_id: totals[prompt_id] for prompt_id in prompts}


def _key(policy: Policy, prompt: Prompt, response: Response) -> str:
    recorded = [response.diagnostics.get(name) for name in ("tokenizer", "token_ids")]
    return fingerprint(
        ["forced", prompt.prompt_id, policy.logprob_key(prompt), *recorded]
    )
