"""Have entrants answer what the store lacks, and policies score those answers (teacher forcing).

One check guards the log-probabilities: a forced answer's are those recorded when it was drawn.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from elo_exp import models
from elo_exp.api.jobs import Completion, Job, Message
from elo_exp.data.pairing import Responses
from elo_exp.data.thoughts import split_thought
from elo_exp.entrants import (
    Entrant,
    HostedEntrant,
    ModelEntrant,
    OfflineEntrant,
    Policy,
)
from elo_exp.files import utc_now
from elo_exp.pipeline.paying import pay
from elo_exp.progress import track
from elo_exp.records import (
    ForcedLogprob,
    Prompt,
    Record,
    Response,
    UserError,
    canonical_json,
    fingerprint,
)
from elo_exp.store.claims import get_or_create
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

Entrants = Mapping[str, Entrant]
Prompts = Sequence[Prompt]
Totals = Mapping[str, float | None]  # log-probability in nats, by prompt_id
E = TypeVar("E", bound=Entrant)
R = TypeVar("R")

_CHUNK = 64  # free answers in one transaction
_NAMED = 3  # missing answers that an error names
_ODD = {  # by finish_reason, empty text or thought
    "length": "cut off at their limit",
    "refusal": "refused",
    "empty": "empty",
    "unclosed": "in thought to the end (allow more tokens, or set chat_template_kwargs)",
}
_CHARS_PER_TOKEN = 4  # of English, in an answer that is assumed
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


def generate(
    prompts: Prompts,
    entrants: Entrants,
    store: Store,
    *,
    allow_missing: bool,
) -> Responses:
    """Return every entrant's response to every prompt.

    Raises UserError where some are missing, unless `allow_missing`.
    """
    keys = {name: _keys(name, entrant, prompts) for name, entrant in entrants.items()}
    responses = by_load(
        entrants,
        lambda name: _answers(name, entrants[name], prompts, keys[name], store),
    )
    usage = store.usage
    logger.info(
        "responses: %d new, %d stored",
        usage.responses_generated,
        usage.responses_stored,
    )
    return _complete(responses, prompts, allow_missing)


def by_load(entrants: Mapping[str, E], work: Callable[[str], R]) -> dict[str, R]:
    """Apply `work` to each entrant's name, loading equal weights once.

    Entrants with equal weights take turns, and the weights are released after the last of them. The
    results have the entrants' order.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, entrant in entrants.items():
        groups.setdefault(getattr(entrant, "weights", None), []).append(name)
    made: dict[str, R] = {}
    for names in groups.values():
        try:
            made.update((name, work(name)) for name in names)
        finally:
            models.release()
    return {name: made[name] for name in entrants}


def _complete(
    responses: Mapping[str, Mapping[str, Response]],
    prompts: Prompts,
    allow_missing: bool,
) -> Responses:
    """The responses in the order of the prompts. Raises UserError where some are missing."""
    ids = [prompt.prompt_id for prompt in prompts]
    missing = [
        f"{name} on {i}"
        for name, some in responses.items()
        for i in ids
        if i not in some
    ]
    report_missing("responses", missing, len(ids) * len(responses), allow_missing)
    return {
        name: {i: some[i] for i in ids if i in some} for name, some in responses.items()
    }


def report_missing(
    what: str,
    missing: Sequence[str],
    n_wanted: int,
    allowed: bool,
    *,
    hint: str = "Supply them",
) -> None:
    """Warn of missing answers where that is allowed, else raise UserError.

    missing  a name each, which starts with the entrant or dimension to count them by
    hint     what the user can do
    """
    if not missing:
        return
    by_owner = sorted(Counter(name.split()[0] for name in missing).items())
    counts = ", ".join(f"{owner} {n}" for owner, n in by_owner)
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    line = f"{len(missing)} of {n_wanted} {what} are missing ({counts}): {named}."
    if not allowed:
        raise UserError(f"{line} {hint}, or go on without with allow_missing=true.")
    logger.warning("warning: %s Going on without them.", line)


def _answers(
    name: str,
    entrant: Entrant,
    prompts: Prompts,
    keys: Mapping[str, str],
    store: Store,
) -> dict[str, Response]:
    """The entrant's responses by prompt_id; new ones are stored before they are returned."""
    usage, n_before = store.usage, store.usage.responses_generated
    stored = store.get(Response, list(keys.values()))
    wanted = {keys[p.prompt_id]: p for p in prompts if keys[p.prompt_id] not in stored}
    responses = {response.prompt_id: response for response in stored.values()}
    new = _new(entrant, wanted, store)
    for response in track(new, label=f"answering: {name}", total=len(wanted)):
        responses[response.prompt_id] = _as_stored(response)
    # What other processes have made meanwhile counts as stored.
    usage.responses_wanted += len(prompts)
    usage.responses_stored += len(responses) - (usage.responses_generated - n_before)
    if isinstance(entrant, HostedEntrant):
        made = [
            responses[p.prompt_id] for p in wanted.values() if p.prompt_id in responses
        ]
        usage.responses_unpriced += sum("dollars" not in r.diagnostics for r in made)
        if entrant.budget.spent:
            logger.info("entrant %s: spent $%.4f", name, entrant.budget.spent)
    counts = Counter[str | None]()
    for r in responses.values():
        counts.update((r.finish_reason, r.diagnostics.get("thought")))
        counts["empty"] += not r.response_text.strip()
    if odd := [
        f"{counts[kind]} {words}" for kind, words in _ODD.items() if counts[kind]
    ]:
        text = "warning: %s: of %d answers %s; they are judged as they are"
        logger.warning(text, name, len(responses), ", ".join(odd))
    return responses


def _as_stored(response: Response) -> Response:
    return Response.from_dict(json.loads(canonical_json(response.to_dict())))


def _new(
    entrant: Entrant, wanted: Mapping[str, Prompt], store: Store
) -> Iterator[Response]:
    """New responses to prompts by key.

    Answers that take hours or money are made by one process, and the others wait for it. A recorded
    answer is kept without its dollars, which another run has paid.
    """
    keys = {prompt.prompt_id: key for key, prompt in wanted.items()}
    how: dict[str, Any] = {
        "record": Response,
        "key": lambda r: keys[r.prompt_id],
        "what": "responses",
    }
    if isinstance(entrant, HostedEntrant):
        if wanted:
            entrant.preflight()
        jobs = {}
        for key, p in wanted.items():
            names = {"entrant_id": entrant.entrant_id, "prompt_id": p.prompt_id}
            jobs[key] = Job(key=key, names=names, request=p)
        return pay(jobs, entrant, store, make=_response, **how)
    assert isinstance(entrant, OfflineEntrant)
    if isinstance(entrant, ModelEntrant):
        return get_or_create(wanted, store, make=entrant.generate, **how)
    answers = (
        replace(
            r, diagnostics={k: x for k, x in r.diagnostics.items() if k != "dollars"}
        )
        for r in entrant.generate(list(wanted.values()))
    )
    return store.keep(answers, key=how["key"], chunk=_CHUNK)


def _response(
    _: str,
    names: Mapping[str, Any],
    completion: Completion,
    dollars: float | None,
    message: Message,
) -> Response:
    reason = _FINISH_REASONS.get(completion.stop_reason, completion.stop_reason)
    text, thought = split_thought(completion.text)
    if reason == "stop" and thought["thought"] == "unclosed":
        reason = "length"
    return Response(
        **names,
        response_text=text,
        finish_reason=reason,
        diagnostics={
            "model": completion.model,
            **thought,
            **{name: n for name, n in completion.usage.items() if n},
            **({} if dollars is None else {"dollars": dollars}),
            **completion.diagnostics,
        },
        timestamp=utc_now(),
    )


# Without a new answer


def assume_responses(
    prompts: Prompts,
    entrants: Entrants,
    store: Store,
    *,
    allow_missing: bool,
    at_least: bool = False,
) -> Responses:
    """Return responses for a plan: stored ones, and placeholders for what models have not answered.

    A placeholder has the mean length of the model's stored answers, or, where there are none, the
    model's limit; with `at_least` one character. No model answers; answers of other entrants are
    neither stored nor counted. Raises UserError where some are missing, unless `allow_missing`.
    """
    assumed: dict[str, dict[str, Response]] = {}
    for name, entrant in entrants.items():
        responses = assumed[name] = {}
        try:
            responses |= stored_responses(prompts, {name: entrant}, store)[name]
        except UserError as error:  # a plan needs no model
            if not isinstance(entrant, ModelEntrant):
                raise
            text = "%s: no answer counts as stored, as its model is not here (%s)"
            logger.info(text, name, str(error).partition(". ")[0])
        missing = [prompt for prompt in prompts if prompt.prompt_id not in responses]
        if isinstance(entrant, ModelEntrant):
            lengths = [len(response.response_text) for response in responses.values()]
            n_chars = 1 if at_least else _CHARS_PER_TOKEN * entrant.max_answer_tokens
            if lengths:
                n_chars = sum(lengths) // len(lengths)
            if missing and not at_least:
                text = "%s: %d missing answers are assumed to have %d characters"
                logger.info(text, name, len(missing), n_chars)
            for prompt in missing:  # each unlike any other
                text = f"{name} on {prompt.prompt_id}: " + "as it may say " * n_chars
                responses[prompt.prompt_id] = Response(
                    entrant_id=name,
                    prompt_id=prompt.prompt_id,
                    response_text=text[:n_chars],
                )
        elif missing:
            assert isinstance(entrant, OfflineEntrant)
            for response in entrant.generate(missing):
                responses[response.prompt_id] = _as_stored(response)
    return _complete(assumed, prompts, allow_missing)


def stored_responses(
    prompts: Prompts, entrants: Entrants, store: Store
) -> dict[str, dict[str, Response]]:
    """Return the stored responses by entrant and prompt_id."""
    responses = {}
    for name, entrant in entrants.items():
        stored = store.get(Response, list(_keys(name, entrant, prompts).values()))
        responses[name] = {r.prompt_id: r for r in stored.values()}
    return responses


def needs_paid_answers(prompts: Prompts, entrants: Entrants, store: Store) -> bool:
    """Whether the store lacks an answer of an API that may bill it."""
    paid = {
        name: entrant
        for name, entrant in entrants.items()
        if isinstance(entrant, HostedEntrant) and entrant.may_bill
    }
    return not all_generated(prompts, paid, store)


def all_generated(prompts: Prompts, entrants: Entrants, store: Store) -> bool:
    """Whether the store has every entrant's response to every prompt."""
    stored = stored_responses(prompts, entrants, store)
    return all(len(responses) == len(prompts) for responses in stored.values())


def _keys(name: str, entrant: Entrant, prompts: Prompts) -> dict[str, str]:
    return {
        prompt.prompt_id: fingerprint(
            [name, prompt.prompt_id, entrant.cache_key(prompt)]
        )
        for prompt in prompts
    }


# Log-probabilities


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


def as_policies(entrants: Entrants) -> dict[str, Policy]:
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
        first = next(iter(policies))
        limit = policies[first].max_answer_tokens
        if entrant.max_answer_tokens != limit:
            raise UserError(
                f"entrant.{name}: cuts its answers at {entrant.max_answer_tokens} tokens, "
                f"{first} at {limit}. Expected one max_new_tokens for all: an answer that "
                "is cut elsewhere is another answer."
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
    check_nats     what `generation_check` allows
    check_answers  answers that have to pass it before the rest is forced
    """
    by_id = {p.prompt_id: p for p in prompts if p.prompt_id in responses}
    ids, drawn_by = list(by_id), {r.entrant_id for r in responses.values()}
    usage = store.usage
    usage.logprobs_wanted += len(policies) * len(by_id)

    def force(name: str) -> Totals:
        policy = policies[name]
        keys = _logprob_keys(policy, by_id.values(), responses)
        stored = store.get(ForcedLogprob, list(keys.values()))
        totals = {one.prompt_id: one.total_logprob for one in stored.values()}

        def make(mine: Sequence[Response]) -> Iterator[ForcedLogprob]:
            for i, total in policy.teacher_force(by_id, mine):
                yield ForcedLogprob(
                    entrant_id=policy.entrant_id,
                    prompt_id=i,
                    total_logprob=total,
                    n_tokens=len(responses[i].diagnostics["token_ids"]),
                    timestamp=utc_now(),
                )

        for some in (ids[:check_answers], ids[check_answers:]):
            wanted = {keys[i]: responses[i] for i in some if keys[i] not in stored}
            made = get_or_create(
                wanted,
                store,
                record=ForcedLogprob,
                key=lambda forced: keys[forced.prompt_id],
                make=make,
                what="log-probabilities",
            )
            label = f"teacher forcing: {name}"
            for one in track(made, label=label, total=len(wanted)):
                totals[one.prompt_id] = one.total_logprob
            if policy.entrant_id in drawn_by:
                generation_check(responses, totals, allowed=check_nats)
        return {i: totals[i] for i in ids}

    totals = by_load(policies, force)
    usage.logprobs_stored = usage.logprobs_wanted - usage.logprobs_forced
    logger.info(
        "log-probabilities: %d new, %d stored",
        usage.logprobs_forced,
        usage.logprobs_stored,
    )
    for name, found in totals.items():
        if n_absent := list(found.values()).count(None):
            logger.warning(
                "warning: %s: %d of %d prompts with their answers exceed its context, and have no "
                "log-probability", name, n_absent, len(found),
            )  # fmt: skip
    return totals


def n_forced(
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
    return {name: len(store.get(ForcedLogprob, some)) for name, some in keys.items()}


def _logprob_keys(
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


def generation_check(
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
    apart, n_tokens = [0.0], 0
    for i, total in forced.items():
        if total is not None:
            drawn = responses[i].diagnostics
            apart.append(abs(drawn["total_logprob"] - total))
            n_tokens += len(drawn["token_ids"])
    check = LogprobCheck(
        n_checked=len(apart) - 1,
        mean_difference=sum(apart) / max(n_tokens, 1),
        max_difference=max(apart),
        allowed=allowed,
    )
    if check.mean_difference > allowed:
        raise UserError(
            f"log-probabilities as drawn and as forced: {check.n_checked} answers differ by "
            f"{check.mean_difference:.2g} nats a token on average, more than {allowed:g}. What is "
            "scored is not what was drawn: check temperature, chat template and tokenizer of the "
            "policy and its server, or allow it with oracle.check_nats."
        )
    return check
