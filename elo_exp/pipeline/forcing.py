"""Teacher-force the logging policy's answers under every policy, where the store lacks the result.

Two checks guard the log-probabilities: a clone's are equal to the logging policy's, and a forced
answer's are those recorded when it was drawn.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.entrants import Entrant, Policy
from elo_exp.pipeline.generating import by_load
from elo_exp.progress import track
from elo_exp.records import (
    ForcedLogprob,
    Prompt,
    Record,
    Response,
    UserError,
    fingerprint,
)
from elo_exp.store.claims import get_or_create
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

Totals = Mapping[str, float | None]  # log-probability in nats, by prompt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobCheck(Record):
    """A comparison of log-probabilities that should be equal.

    differences  what is compared, in words
    n_failed     of the `n_checked`, those that differ by more than `allowed`, in nats
    worst        policy and prompt of the largest difference; None where nothing was checked
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
                f"than {self.allowed:g} nats, {self.worst} by {self.max_difference:.3g}. "
                f"{self.hint}"
            )


def as_policies(entrants: Mapping[str, Entrant]) -> dict[str, Policy]:
    """Return the entrants as policies, whose answers can be weighted by those of the first.

    Raises UserError for one that records no log-probabilities, or has another limit of tokens.
    """
    policies: dict[str, Policy] = {}
    for name, entrant in entrants.items():
        if not (isinstance(entrant, Policy) and entrant.logprobs):
            raise UserError(
                f"entrant.{name}: records no log-probabilities. Expected logprobs=true, with a "
                "temperature and top_p=1.0; or leave it out."
            )
        policies[name] = entrant
    first, *_ = policies
    limit = policies[first].max_answer_tokens
    for name, policy in policies.items():
        if policy.max_answer_tokens != limit:
            raise UserError(
                f"entrant.{name}: cuts its answers at {policy.max_answer_tokens} tokens, "
                f"{first} at {limit}. Expected one max_new_tokens for all: an answer that "
                "is cut elsewhere is another answer."
            )
    return policies


def teacher_force(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
) -> dict[str, Totals]:
    """Return the log-probability of each response under each policy.

    It is None, with a warning, where prompt and answer exceed the policy's context. Clones share
    what is stored, and policies with equal weights one load.

    responses  of the logging policy, by prompt_id, with recorded tokens
    """
    by_id = {p.prompt_id: p for p in prompts if p.prompt_id in responses}
    usage = store.usage
    usage.logprobs_wanted += len(policies) * len(by_id)
    totals = by_load(
        policies, lambda name: _totals(name, policies[name], by_id, responses, store)
    )
    logger.info(
        "log-probabilities: %d new, %d stored",
        usage.logprobs_forced,
        usage.logprobs_stored,
    )
    for name, some in totals.items():
        if n_absent := sum(total is None for total in some.values()):
            logger.warning(
                "warning: %s: %d of %d prompts with their answers exceed its context, and have no "
                "log-probability", name, n_absent, len(some),
            )  # fmt: skip
    return totals


def _totals(
    name: str,
    policy: Policy,
    prompts: Mapping[str, Prompt],
    responses: Mapping[str, Response],
    store: Store,
) -> Totals:
    """Stored and new log-probabilities; new ones are stored before they are returned."""
    usage, n_before = store.usage, store.usage.logprobs_forced
    keys = _keys(policy, prompts.values(), responses)
    stored = store.get(ForcedLogprob, list(keys.values()))
    wanted = {key: responses[i] for i, key in keys.items() if key not in stored}
    new = get_or_create(
        wanted,
        store,
        record=ForcedLogprob,
        key=lambda forced: keys[forced.prompt_id],
        make=lambda mine: policy.teacher_force(prompts, mine),
        what="log-probabilities",
    )
    label = f"teacher forcing: {name}"
    forced = [*stored.values(), *track(new, label=label, total=len(wanted))]
    usage.logprobs_stored += len(forced) - (usage.logprobs_forced - n_before)
    totals = {one.prompt_id: one.total_logprob for one in forced}
    return {i: totals[i] for i in prompts}


def n_forced(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
) -> dict[str, int]:
    """Count the responses with a stored log-probability, by policy."""
    return {
        name: len(
            store.get(ForcedLogprob, [*_keys(policy, prompts, responses).values()])
        )
        for name, policy in policies.items()
    }


def _keys(
    policy: Policy, prompts: Iterable[Prompt], responses: Mapping[str, Response]
) -> dict[str, str]:
    """The keys of the log-probabilities of the prompts that have a response, by prompt_id."""
    keys = {}
    for prompt in prompts:
        if response := responses.get(prompt.prompt_id):
            recorded = response.diagnostics
            tokens = [recorded.get(name) for name in ("tokenizer", "token_ids")]
            parts = ["forced", prompt.prompt_id, policy.logprob_key(prompt), *tokens]
            keys[prompt.prompt_id] = fingerprint(parts)
    return keys


def clone_check(
    prompts: Sequence[Prompt],
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    *,
    logging_policy: str,
    n_answers: int,
    seed: int,
) -> LogprobCheck:
    """Compare the logging policy's log-probabilities with its clones', which give weights of 1.

    A sample of `n_answers` responses is forced anew, without the store, and each policy loads its
    weights anew. Without clones, nothing is checked.
    """
    by_id = {p.prompt_id: p for p in prompts if p.prompt_id in responses}
    drawn = random.Random(seed).sample(sorted(by_id), min(n_answers, len(by_id)))

    def keys(name: str) -> list[Mapping[str, object]]:
        return [policies[name].logprob_key(by_id[i]) for i in drawn]

    def totals(name: str) -> Totals:
        policy = policies[name]
        policy.release()
        try:
            forced = policy.teacher_force(by_id, [responses[i] for i in drawn])
            return {made.prompt_id: made.total_logprob for made in forced}
        finally:
            policy.release()

    clones = [
        name
        for name in policies
        if name != logging_policy and keys(name) == keys(logging_policy)
    ]
    expected = totals(logging_policy) if clones else {}
    return _compare(
        {
            f"{name} on {i}": (expected[i], total)
            for name in clones
            for i, total in totals(name).items()
        },
        differences=f"log-probabilities of {logging_policy} and its clones",
        allowed=0.0,
        hint=(
            "Force both on one machine with one version of each library; on a GPU take device=cpu."
        ),
    )


def generation_check(
    responses: Mapping[str, Response], forced: Totals, *, allowed: float
) -> LogprobCheck:
    """Compare the log-probabilities recorded when answers were drawn with the forced ones.

    forced   by prompt_id, under the policy that drew the responses
    allowed  difference per answer in nats; float32 rounds by 1e-3
    """
    return _compare(
        {
            f"{response.entrant_id} on {i}": (
                response.diagnostics["total_logprob"],
                forced[i],
            )
            for i, response in responses.items()
            if forced.get(i) is not None
        },
        differences="log-probabilities as drawn and as forced",
        allowed=allowed,
        hint="In float32 that means that what is scored is not what was drawn. Arithmetic of 16 "
        "bits rounds by more than that: take dtype=float32, or allow it with oracle.check_nats.",
    )


def _compare(
    pairs: Mapping[str, tuple[float | None, float | None]],
    *,
    differences: str,
    allowed: float,
    hint: str,
) -> LogprobCheck:
    """Check pairs of log-probabilities, by policy and prompt; None differs from any number."""
    apart = {}
    for place, (one, other) in pairs.items():
        if one is None or other is None:
            apart[place] = 0.0 if one is other else math.inf
        else:
            apart[place] = abs(one - other)
    worst = max(apart, key=apart.__getitem__, default=None)
    return LogprobCheck(
        differences=differences,
        n_checked=len(apart),
        n_failed=sum(difference > allowed for difference in apart.values()),
        max_difference=max(apart.values(), default=0.0),
        allowed=allowed,
        worst=worst,
        hint=hint,
    )
