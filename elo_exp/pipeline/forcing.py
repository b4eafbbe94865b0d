"""Have policies score the answers that one of them drew (teacher forcing).

One check guards the log-probabilities: a forced answer's are those recorded when it was drawn.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.entrants import Policy
from elo_exp.errors import SettingError, UserError
from elo_exp.files import utc_now
from elo_exp.pipeline.generating import Entrants, Prompts, map_by_weights
from elo_exp.progress import track
from elo_exp.records import ForcedLogprob, Prompt, Record, Response, make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import get_or_create

logger = logging.getLogger(__name__)

Totals = Mapping[str, float | None]  # log-probability in nats, by prompt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobCheck(Record):
    """A comparison of answers' log-probabilities as drawn and as forced.

    mean_difference  in nats a token; at most `allowed`
    max_difference   of an answer, in nats
    """

    n_checked: int
    mean_difference: float
    max_difference: float
    allowed: float


def require_policies(entrants: Entrants) -> dict[str, Policy]:
    """Return the entrants as policies, whose answers can be weighted by those of the first.

    Raises SettingError for one that records no log-probabilities, or has another limit of tokens.
    """
    policies: dict[str, Policy] = {}
    for name, entrant in entrants.items():
        if not (isinstance(entrant, Policy) and entrant.logprobs):
            raise SettingError(
                f"entrant.{name} records no log-probabilities. Leave it out, or set a temperature and:",
                f"  entrant.{name}.logprobs=true entrant.{name}.top_p=1.0",
            )
        policies[name] = entrant
        first_name = next(iter(policies))
        limit = policies[first_name].max_answer_tokens
        if entrant.max_answer_tokens != limit:
            raise SettingError(
                f"entrant.{name} cuts its answers at {entrant.max_answer_tokens} tokens, entrant.{first_name} at {limit}.",
                "  Set one max_new_tokens for all: an answer that is cut elsewhere is another answer.",
            )
    return policies


def teacher_force(
    prompts: Prompts,
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
    *,
    check_nats: float | None,
    check_answers: int,
) -> dict[str, Totals]:
    """Return the log-probability of each response under each policy.

    It is None, with a warning, where prompt and answer exceed the policy's context. Clones share
    what is stored, and policies with equal weights one load.

    responses      of the logging policy, by prompt_id, with recorded tokens
    check_nats     what `compare_logprobs` allows
    check_answers  answers that have to pass it before the rest is forced
    """
    by_id = {p.prompt_id: p for p in prompts if p.prompt_id in responses}
    ids, answering_ids = list(by_id), {r.entrant_id for r in responses.values()}
    usage = store.usage
    usage.logprobs_wanted += len(policies) * len(by_id)

    def force(name: str) -> Totals:
        policy = policies[name]
        keys = _logprob_keys(policy, by_id.values(), responses)
        stored = store.get(ForcedLogprob, list(keys.values()))
        totals = {forced.prompt_id: forced.total_logprob for forced in stored.values()}

        def make(claimed: Sequence[Response]) -> Iterator[ForcedLogprob]:
            for prompt_id, logprob in policy.teacher_force(by_id, claimed):
                yield ForcedLogprob(
                    entrant_id=policy.entrant_id,
                    prompt_id=prompt_id,
                    total_logprob=logprob,
                    n_tokens=len(responses[prompt_id].diagnostics["token_ids"]),
                    timestamp=utc_now(),
                )

        for batch_ids in (ids[:check_answers], ids[check_answers:]):
            wanted = {keys[i]: responses[i] for i in batch_ids if keys[i] not in stored}
            forced_answers = get_or_create(
                wanted,
                store,
                record=ForcedLogprob,
                key=lambda forced: keys[forced.prompt_id],
                make=make,
                noun="log-probabilities",
            )
            label = f"teacher forcing: {name}"
            for answer in track(forced_answers, label=label, total=len(wanted)):
                totals[answer.prompt_id] = answer.total_logprob
            if policy.entrant_id in answering_ids:
                compare_logprobs(responses, totals, allowed=check_nats)
        return {i: totals[i] for i in ids}

    totals = map_by_weights(policies, force)
    usage.logprobs_stored = usage.logprobs_wanted - usage.logprobs_forced
    logger.info(
        "log-probabilities: %d new, %d from cache",
        usage.logprobs_forced,
        usage.logprobs_stored,
    )
    for name, by_prompt in totals.items():
        if n_absent := list(by_prompt.values()).count(None):
            logger.warning(
                "warning: %s: %d of %d prompts with their answers exceed its context length and have no "
                "log-probability", name, n_absent, len(by_prompt),
            )  # fmt: skip
    return totals


def count_forced(
    prompts: Prompts,
    responses: Mapping[str, Response],
    policies: Mapping[str, Policy],
    store: Store,
) -> dict[str, int]:
    """Count the responses with a stored log-probability, by policy."""
    keys = {
        name: list(_logprob_keys(policy, prompts, responses).values())
        for name, policy in policies.items()
    }
    return {
        name: len(store.get(ForcedLogprob, policy_keys))
        for name, policy_keys in keys.items()
    }


def _logprob_keys(
    policy: Policy, prompts: Iterable[Prompt], responses: Mapping[str, Response]
) -> dict[str, str]:
    """The keys of the log-probabilities of the prompts that have a response, by prompt_id."""
    keys = {}
    for prompt in prompts:
        if response := responses.get(prompt.prompt_id):
            diagnostics = response.diagnostics
            tokens = [diagnostics.get(name) for name in ("tokenizer", "token_ids")]
            parts = ["forced", prompt.prompt_id, policy.logprob_key(prompt), *tokens]
            keys[prompt.prompt_id] = make_fingerprint(parts)
    return keys


def compare_logprobs(
    responses: Mapping[str, Response], forced: Totals, *, allowed: float | None
) -> LogprobCheck:
    """Compare the log-probabilities recorded when answers were drawn with the forced ones.

    forced   by prompt_id, under the policy that drew the responses; those that are None are left
             out
    allowed  mean difference in nats a token; None: 1e-4 where answers were drawn in float32, .02 in
             other arithmetic
    Raises UserError where they differ by more.
    """
    if allowed is None:
        dtypes = {r.diagnostics.get("dtype") for r in responses.values()}
        allowed = 1e-4 if dtypes == {"float32"} else 0.02
    differences, n_tokens = [0.0], 0
    for i, logprob in forced.items():
        if logprob is not None:
            diagnostics = responses[i].diagnostics
            differences.append(abs(diagnostics["total_logprob"] - logprob))
            n_tokens += len(diagnostics["token_ids"])
    check = LogprobCheck(
        n_checked=len(differences) - 1,
        mean_difference=sum(differences) / max(n_tokens, 1),
        max_difference=max(differences),
        allowed=allowed,
    )
    if check.mean_difference > allowed:
        raise UserError(
            f"The log-probabilities of {check.n_checked} answers, drawn and scored again, differ by "
            f"{check.mean_difference:.2g} nats a token on average, more than {allowed:g}.",
            "  The policy does not score what it drew. Check temperature, chat template and tokenizer of policy and server.",
            "  To allow the difference, raise oracle.check_nats.",
        )
    return check
