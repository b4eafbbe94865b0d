"""Every entrant's responses: made where the store does not have them."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.api.jobs import Completion, Job, Message, summary
from elo_exp.api.requests import RequestPool
from elo_exp.data.pairing import Responses
from elo_exp.entrants import Entrant, HostedEntrant, ModelEntrant, OfflineEntrant
from elo_exp.files import utc_now
from elo_exp.pipeline.loads import by_load
from elo_exp.pipeline.missing import report_missing
from elo_exp.progress import track
from elo_exp.records import Prompt, Response, UserError, canonical_json, fingerprint
from elo_exp.store.claims import Claims
from elo_exp.store.single_flight import get_or_create, share
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_CHUNK = 64  # free answers in one transaction
_PAUSE_SECONDS = 1.0  # between looks at what other processes pay for
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_CHARS_PER_TOKEN = 4  # of English, in an answer that is not there yet


def generate(
    prompts: Sequence[Prompt],
    entrants: Mapping[str, Entrant],
    store: Store,
    *,
    allow_missing: bool,
) -> Responses:
    """Every entrant's response to every prompt. Raises UserError where some are missing, unless
    that is allowed.

    Entrants with equal weights answer one after the other, and the weights go when the last of them
    has answered.
    """
    keys = {
        name: _response_keys(name, entrant, prompts)
        for name, entrant in entrants.items()
    }
    found = by_load(
        entrants,
        lambda name: _answers(name, entrants[name], prompts, keys[name], store),
    )
    usage = store.usage
    logger.info(
        "responses: %d made, %d from the store",
        usage.responses_generated,
        usage.responses_stored,
    )
    missing = [
        f"{name} on {p.prompt_id}"
        for name in entrants
        for p in prompts
        if p.prompt_id not in found[name]
    ]
    if missing:
        report_missing(
            "responses", missing, len(entrants) * len(prompts), allow_missing
        )
    return {
        name: {
            p.prompt_id: found[name][p.prompt_id]
            for p in prompts
            if p.prompt_id in found[name]
        }
        for name in entrants
    }


def _answers(
    name: str,
    entrant: Entrant,
    prompts: Sequence[Prompt],
    keys: Mapping[str, str],
    store: Store,
) -> dict[str, Response]:
    """The entrant's responses by prompt; those that are new are in the store before they are
    here."""
    usage = store.usage
    stored = store.get(Response, list(keys.values()))
    wanted = {keys[p.prompt_id]: p for p in prompts if keys[p.prompt_id] not in stored}
    found = {r.prompt_id: r for r in stored.values()}
    n_before = usage.responses_generated
    usage.responses_wanted += len(prompts)
    usage.responses_stored += len(stored)
    for response in track(
        _made(entrant, wanted, store), label=f"answering: {name}", total=len(wanted)
    ):
        found[response.prompt_id] = _as_stored(response)
    n_made = usage.responses_generated - n_before
    usage.responses_stored += (
        len(found) - len(stored) - n_made
    )  # what other processes have made meanwhile
    if isinstance(entrant, HostedEntrant):
        new = [found[p.prompt_id] for p in wanted.values() if p.prompt_id in found]
        usage.responses_unpriced += sum(
            "dollars" not in response.diagnostics for response in new
        )
    if n_cut := sum(response.finish_reason == "length" for response in found.values()):
        logger.info(
            "%s: %d of %d answers are cut off at their limit and judged so",
            name,
            n_cut,
            len(found),
        )
    return found


def _as_stored(response: Response) -> Response:
    return Response.from_dict(json.loads(canonical_json(response.to_dict())))


def _made(
    entrant: Entrant, wanted: Mapping[str, Prompt], store: Store
) -> Iterator[Response]:
    """The entrant's responses to what is wanted, by key. One whose answers take hours or money
    makes those that no other process is making, and waits for the others."""
    keys = {prompt.prompt_id: key for key, prompt in wanted.items()}

    def key(response: Response) -> str:
        return keys[response.prompt_id]

    if isinstance(entrant, HostedEntrant):
        return _pay_once(wanted, entrant, store, key=key)
    assert isinstance(entrant, OfflineEntrant)
    if isinstance(entrant, ModelEntrant):
        return get_or_create(
            wanted,
            store,
            record=Response,
            key=key,
            make=entrant.generate,
            what="responses",
        )
    answers = map(_unpaid, entrant.generate(list(wanted.values())))
    return store.keep(answers, key=key, chunk=_CHUNK)


def _pay_once(
    wanted: Mapping[str, Prompt],
    entrant: HostedEntrant,
    store: Store,
    *,
    key: Callable[[Response], str],
) -> Iterator[Response]:
    """The answers of an entrant behind an API."""
    failed: dict[str, str] = {}

    def record(
        _: str,
        names: Mapping[str, Any],
        completion: Completion,
        dollars: float | None,
        message: Message,
    ) -> Response:
        return _response(
            entrant.entrant_id, str(names["prompt_id"]), completion, dollars
        )

    def pay(mine: Mapping[str, Prompt], claims: Claims) -> Iterator[Response]:
        if not mine:
            return
        entrant.preflight()
        jobs = [
            Job(key=key, names={"prompt_id": prompt.prompt_id}, request=prompt)
            for key, prompt in mine.items()
        ]
        pool = RequestPool(
            entrant.api.send, entrant, claims, record, concurrency=entrant.concurrency
        )
        counts = Counter[str]()
        for response in pool.run(jobs, None):
            counts["answers"] += 1
            counts["refused"] += response.finish_reason == "refusal"
            counts["empty"] += not response.response_text.strip()
            yield response
        failed.update(pool.failed)
        _report(entrant, counts, pool.failed)

    return share(
        wanted,
        store,
        record=Response,
        key=key,
        make=pay,
        failed=failed,
        what="responses",
        pause_seconds=_PAUSE_SECONDS,
    )


def _response(
    entrant_id: str, prompt_id: str, completion: Completion, dollars: float | None
) -> Response:
    diagnostics: dict[str, Any] = {
        "model": completion.model,
        **{name: n for name, n in completion.usage.items() if n},
    }
    if dollars is not None:
        diagnostics["dollars"] = dollars
    return Response(
        entrant_id=entrant_id,
        prompt_id=prompt_id,
        response_text=completion.text,
        finish_reason=_FINISH_REASONS.get(
            completion.stop_reason, completion.stop_reason
        ),
        diagnostics=diagnostics,
        timestamp=utc_now(),
    )


def _report(
    entrant: HostedEntrant, counts: Counter[str], failed: Mapping[str, str]
) -> None:
    odd = ", ".join(
        f"{counts[kind]} {kind}" for kind in ("refused", "empty") if counts[kind]
    )
    if odd:
        logger.warning(
            "warning: entrant %s: of %d answers %s",
            entrant.entrant_id,
            counts["answers"],
            odd,
        )
    if entrant.budget.spent:
        logger.info("entrant %s: spent $%.4f", entrant.entrant_id, entrant.budget.spent)
    if failed:
        logger.warning("warning: entrant %s: %s", entrant.entrant_id, summary(failed))


def _unpaid(response: Response) -> Response:
    """Without the dollars of an answer that was made elsewhere, as recorded ones are: that bill is
    another run's."""
    diagnostics = {
        name: value for name, value in response.diagnostics.items() if name != "dollars"
    }
    return dataclasses.replace(response, diagnostics=diagnostics)


def assumed(
    prompts: Sequence[Prompt],
    entrants: Mapping[str, Entrant],
    store: Store,
    *,
    allow_missing: bool,
    at_least: bool = False,
) -> Responses:
    """What a plan takes for the responses: a model that has not answered a prompt yet is taken to
    answer at the mean length of its stored answers, or, where there are none, as long as it may;
    `at_least`: as short. No model is asked; what others answer is neither stored nor counted.
    Raises UserError where some of that is missing, unless that is allowed."""
    responses: dict[str, Mapping[str, Response]] = {}
    missing = []
    for name, entrant in entrants.items():
        stored = _stored_for_plan(name, entrant, prompts, store)
        found = {r.prompt_id: r for r in stored.values()}
        absent = [p for p in prompts if p.prompt_id not in found]
        if absent and isinstance(entrant, ModelEntrant):
            lengths = [len(r.response_text) for r in stored.values()]
            unknown = 1 if at_least else _CHARS_PER_TOKEN * entrant.max_answer_tokens
            n_chars = sum(lengths) // len(lengths) if lengths else unknown
            if not at_least:
                yet = "%s: %d answers are yet to be made, taken to be of %d characters"
                logger.info(yet, name, len(absent), n_chars)
            found |= {p.prompt_id: _assumed(name, p, n_chars) for p in absent}
        elif absent:
            assert isinstance(entrant, OfflineEntrant)
            found |= {r.prompt_id: _as_stored(r) for r in entrant.generate(absent)}
        missing += [
            f"{name} on {p.prompt_id}" for p in prompts if p.prompt_id not in found
        ]
        responses[name] = {
            p.prompt_id: found[p.prompt_id] for p in prompts if p.prompt_id in found
        }
    if missing:
        report_missing(
            "responses", missing, len(entrants) * len(prompts), allow_missing
        )
    return responses


def _stored_for_plan(
    name: str, entrant: Entrant, prompts: Sequence[Prompt], store: Store
) -> dict[str, Response]:
    """Stored responses by key; none of a model that is absent, since a plan needs no model."""
    try:
        keys = _response_keys(name, entrant, prompts)
    except UserError as error:
        if not isinstance(entrant, ModelEntrant):
            raise
        logger.warning(
            "warning: %s: %s The plan counts no answer as stored.", name, error
        )
        return {}
    return store.get(Response, list(keys.values()))


def _assumed(name: str, prompt: Prompt, n_chars: int) -> Response:
    """A response of this length, unlike any other."""
    text = f"{name} on {prompt.prompt_id}: " + "as it may say " * n_chars
    return Response(
        entrant_id=name, prompt_id=prompt.prompt_id, response_text=text[:n_chars]
    )


def sharded(prompts: Sequence[Prompt], shard: tuple[int, int]) -> list[Prompt]:
    """The prompts that one of n processes answers: every n-th, from its own number on."""
    number, n = shard
    return list(prompts[number::n])


def stored_responses(
    prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store
) -> dict[str, dict[str, Response]]:
    """Of every entrant's responses those that the store holds, by prompt_id. No model is asked."""
    found = {}
    for name, entrant in entrants.items():
        keys = _response_keys(name, entrant, prompts)
        stored = store.get(Response, list(keys.values()))
        found[name] = {
            prompt_id: stored[key] for prompt_id, key in keys.items() if key in stored
        }
    return found


def api_is_to_answer(
    prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store
) -> bool:
    """Whether the store lacks an answer that an API is to give, and may bill."""
    paid = {
        name: e
        for name, e in entrants.items()
        if isinstance(e, HostedEntrant) and e.may_bill
    }
    return not all_generated(prompts, paid, store)


def all_generated(
    prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store
) -> bool:
    """Whether the store holds every entrant's response to every prompt."""
    keys = [
        key
        for name, entrant in entrants.items()
        for key in _response_keys(name, entrant, prompts).values()
    ]
    return len(store.get(Response, keys)) == len(set(keys))


def _response_keys(
    name: str, entrant: Entrant, prompts: Sequence[Prompt]
) -> dict[str, str]:
    return {
        p.prompt_id: fingerprint([name, p.prompt_id, entrant.cache_key(p)])
        for p in prompts
    }
