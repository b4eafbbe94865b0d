"""Have entrants answer what the store lacks; for a plan, assume what they would answer."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from elo_exp import models
from elo_exp.api.jobs import Completion, Job, Message
from elo_exp.data.pairing import Responses
from elo_exp.data.thoughts import split_thought
from elo_exp.entrants import (
    ApiEntrant,
    Entrant,
    NoRoomError,
    draws_of,
)
from elo_exp.errors import EvidenceError, SettingError, UserError
from elo_exp.files import utc_now
from elo_exp.masking import mask_text
from elo_exp.pipeline.conversing import converse, list_first_turns
from elo_exp.pipeline.missing import report_missing
from elo_exp.pipeline.paying import NoWatch, pay_for_answers
from elo_exp.pipeline.watching import quote_beginning
from elo_exp.progress import track
from elo_exp.records import Prompt, Response, Slot, canonical_json, make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import get_or_create

logger = logging.getLogger(__name__)

Entrants = Mapping[str, Entrant]
Prompts = Sequence[Prompt]
E = TypeVar("E", bound=Entrant)
R = TypeVar("R")

# Answers that cost nothing
_ANSWERS_PER_TRANSACTION = 64
# By finish_reason, empty text or thought
_ODD_ANSWER_PHRASES = {
    "length": "cut off at their limit",
    "refusal": "refused",
    "tool_calls": "end in a call of a tool, which nobody runs",
    "empty": "empty",
    "unclosed": "in thought to the end (allow more tokens, or set chat_template_kwargs)",
}
# As in English
ASSUMED_CHARS_PER_TOKEN = 4
# Of an entrant that does not say where its answers are cut off
_ASSUMED_ANSWER_TOKENS = 500
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


@dataclass(frozen=True, kw_only=True)
class MissingAnswers:
    """Prompts of one turn that an entrant has not answered.

    n_chars      characters that a plan assumes of each answer
    is_measured  whether that is the mean of answers that are known, and not the entrant's limit
    """

    entrant: str
    prompts: Prompts
    n_chars: int
    is_measured: bool


def generate(
    prompts: Prompts,
    entrants: Entrants,
    store: Store,
    *,
    allow_missing: bool,
    canary: int = 0,
    counts_absent: bool = True,
) -> Responses:
    """Return every entrant's response to every prompt; one that does not vary is asked for the first draw alone.

    counts_absent  an answer that a file of answers lacks is no reason to stop: it counts as missing

    Raises EvidenceError if some are missing, unless `allow_missing`, and if a model's first `canary` new answers
    hold nothing; 0: nobody looks.
    """
    prompts_by_entrant = {
        name: _list_askable(prompts, entrant) for name, entrant in entrants.items()
    }
    keys = {
        name: _answer_keys(
            name, entrant, list_first_turns(entrant, prompts_by_entrant[name])
        )
        for name, entrant in entrants.items()
    }

    def answer_prompts(name: str) -> dict[Slot, Response]:
        entrant = entrants[name]

        def answer(turn: int, turn_prompts: Prompts) -> dict[Slot, Response]:
            turn_keys = (
                _answer_keys(name, entrant, turn_prompts) if turn else keys[name]
            )
            label = f"{name}, turn {turn + 1}" if turn else name
            return _answer_prompts(
                label, entrant, turn_prompts, turn_keys, store, canary, allow_missing
            )

        return converse(entrant, prompts_by_entrant[name], answer)

    responses = map_by_weights(entrants, answer_prompts)
    usage = store.usage
    logger.info(
        "answers: %d new, %d from cache",
        usage.responses_generated,
        usage.responses_stored,
    )
    required_prompts = _list_required(prompts, entrants, counts_absent)
    hint = next(
        (
            entrant.missing_answers_hint
            for name, entrant in entrants.items()
            if required_prompts[name] and not responses[name]
        ),
        "Supply them",
    )
    return _order_responses(responses, required_prompts, allow_missing, hint=hint)


def repeat_prompts(prompts: Prompts, n: int) -> list[Prompt]:
    """Return prompts that ask for n answers each: for the first of all of them, then for the second."""
    repeat_draws = (replace(p, draw_idx=i) for i in range(1, n) for p in prompts)
    return [*prompts, *repeat_draws]


def _list_askable(
    prompts: Prompts, entrant: Entrant, *, with_absent: bool = False
) -> list[Prompt]:
    """Return the prompts and draws that an entrant can be asked for.

    with_absent  also those to which it is known to have no answer
    """
    n_draws_wanted = 1 + max((prompt.draw_idx for prompt in prompts), default=0)
    n = draws_of(entrant, n_draws_wanted)
    askable = [prompt for prompt in prompts if prompt.draw_idx < n]
    return askable if with_absent else [p for p in askable if not entrant.lacks(p)]


def _list_required(
    prompts: Prompts, entrants: Entrants, counts_absent: bool
) -> dict[str, Prompts]:
    """Return, by entrant, the prompts that must have an answer."""
    return {
        name: _list_askable(prompts, entrant, with_absent=not counts_absent)
        for name, entrant in entrants.items()
    }


def map_by_weights(entrants: Mapping[str, E], work: Callable[[str], R]) -> dict[str, R]:
    """Apply `work` to each entrant's name, loading equal weights once.

    Entrants with equal weights take turns, and the weights are released after the last of them. The
    results have the entrants' order.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, entrant in entrants.items():
        groups.setdefault(entrant.loaded_weights, []).append(name)
    results: dict[str, R] = {}
    for names in groups.values():
        try:
            results.update((name, work(name)) for name in names)
        finally:
            models.release_weights()
    return {name: results[name] for name in entrants}


def _order_responses(
    responses: Responses,
    prompts_by_entrant: Mapping[str, Prompts],
    allow_missing: bool,
    *,
    hint: str = "Supply them",
) -> Responses:
    """Return the responses in the order of the prompts. Raises EvidenceError if some are missing.

    prompts_by_entrant  to which an answer has to be there
    hint                what to do about missing ones
    """
    slots = {
        name: [prompt.slot for prompt in entrant_prompts]
        for name, entrant_prompts in prompts_by_entrant.items()
    }
    missing = [
        f"{name} on {i}{f', draw {draw + 1}' if draw else ''}"
        for name, answers in responses.items()
        for i, draw in slots[name]
        if (i, draw) not in answers
    ]
    n_asked = sum(map(len, slots.values()))
    report_missing("responses", missing, n_asked, allow_missing, hint=hint)
    return {
        name: {slot: answers[slot] for slot in slots[name] if slot in answers}
        for name, answers in responses.items()
    }


def _answer_prompts(
    name: str,
    entrant: Entrant,
    prompts: Prompts,
    keys: Mapping[Slot, str],
    store: Store,
    canary: int,
    allow_missing: bool,
) -> dict[Slot, Response]:
    """Return the entrant's responses by slot; new ones are stored before they are returned."""
    usage, n_before = store.usage, store.usage.responses_generated
    stored = store.get(Response, list(keys.values()))
    missing = {keys[p.slot]: p for p in prompts if keys[p.slot] not in stored}
    responses = {response.slot: response for response in stored.values()}
    first_answers = _FirstAnswers(name, canary, len(missing))
    new_answers = _make_answers(entrant, missing, store, first_answers, allow_missing)
    for response in track(new_answers, label=f"answering: {name}", total=len(missing)):
        responses[response.slot] = _round_trip(response)
    # What other processes have made meanwhile counts as stored.
    usage.responses_wanted += len(prompts)
    usage.responses_stored += len(responses) - (usage.responses_generated - n_before)
    if isinstance(entrant, ApiEntrant):
        new_responses = [
            responses[p.slot] for p in missing.values() if p.slot in responses
        ]
        usage.responses_unpriced += sum(
            "dollars" not in r.diagnostics for r in new_responses
        )
        if entrant.budget.spent:
            logger.info("entrant %s: spent $%.4f", name, entrant.budget.spent)
    counts = Counter[str | None]()
    for r in responses.values():
        counts.update((r.finish_reason, r.diagnostics.get("thought")))
        counts["empty"] += not r.response_text.strip()
    if odd_counts := [
        f"{counts[kind]} {words}"
        for kind, words in _ODD_ANSWER_PHRASES.items()
        if counts[kind]
    ]:
        message_format = (
            "warning: %s: among %d answers, %s; they are judged as they are"
        )
        logger.warning(message_format, name, len(responses), ", ".join(odd_counts))
    return responses


@dataclass
class _FirstAnswers(NoWatch):
    """A model's first new answers, which are not all to be void.

    n_first   so many are looked at; 0: none
    n_wanted  of all
    """

    name: str
    n_first: int
    n_wanted: int
    seen: list[Response] = field(default_factory=list)

    def see(self, answer: Response) -> None:
        """Take in an answer. Raises EvidenceError where it is the last of the first, and all of them are void."""
        if len(self.seen) >= self.n_first:
            return
        self.seen.append(answer)
        is_last = len(self.seen) == self.n_first < self.n_wanted
        if is_last and all(map(_is_void, self.seen)):
            first_answer = self.seen[0]
            raise EvidenceError(
                f"All of the first {self.n_first} answers of entrant {self.name} are empty or end within a thought. "
                "They are stored, and are not asked for again.",
                f"  The first: {quote_beginning(first_answer.response_text)} "
                f"({first_answer.finish_reason or 'no finish_reason'})",
                "  Allow more tokens, or turn thinking off (chat_template_kwargs). To go on anyway, set judging.canary=0.",
            )

    def watch_each(self, answers: Iterator[Response]) -> Iterator[Response]:
        """Pass on answers, and look at each when the next is asked for: by then it is stored."""
        for answer in answers:
            yield answer
            self.see(answer)


def _is_void(response: Response) -> bool:
    is_unclosed = response.diagnostics.get("thought") == "unclosed"
    return is_unclosed or not response.response_text.strip()


def _round_trip(response: Response) -> Response:
    return Response.from_dict(json.loads(canonical_json(response.to_dict())))


def _make_answers(
    entrant: Entrant,
    wanted: Mapping[str, Prompt],
    store: Store,
    first_answers: _FirstAnswers,
    allow_missing: bool,
) -> Iterator[Response]:
    """Yield new responses to prompts by key.

    Answers that take hours or money are made by one process, and the others wait for it. A recorded
    answer is kept without its dollars, which another run has paid.
    """
    keys = {prompt.slot: key for key, prompt in wanted.items()}
    options: dict[str, Any] = {
        "record": Response,
        "key": lambda r: keys[r.slot],
        "noun": "responses",
    }
    if isinstance(entrant, ApiEntrant):
        if wanted:
            entrant.preflight()
        jobs = {}
        for key, p in wanted.items():
            names: dict[str, Any] = {"entrant_id": entrant.entrant_id}
            names |= {"prompt_id": p.prompt_id}
            names |= {"draw_idx": p.draw_idx} if p.draw_idx else {}
            jobs[key] = Job(key=key, names=names, request=p)
        return pay_for_answers(
            jobs, entrant, store, make=_make_response, watch=first_answers, **options
        )
    if not entrant.is_instant:

        def make(prompts: Sequence[Prompt]) -> Iterator[Response]:
            return first_answers.watch_each(
                _generate_fitting(entrant, prompts, allow_missing)
            )

        return get_or_create(wanted, store, make=make, **options)
    answers = (
        replace(
            r, diagnostics={k: x for k, x in r.diagnostics.items() if k != "dollars"}
        )
        for r in _generate_checked(entrant, list(wanted.values()))
    )
    return store.keep(answers, key=options["key"], chunk=_ANSWERS_PER_TRANSACTION)


def _generate_checked(entrant: Entrant, prompts: Prompts) -> Iterator[Response]:
    """Yield answers to prompts. Raises SettingError for anything else that the entrant yields."""
    if not prompts:
        return
    name = f"{type(entrant).__name__}.generate"
    must = "be a generator that yields self.respond(prompt, text) for each prompt"
    slots = {prompt.slot for prompt in prompts}
    responses = entrant.generate(prompts)
    if not isinstance(responses, Iterable):
        raise SettingError(f"{name} must {must}; it returned {responses!r:.80}.")
    for response in responses:
        if not isinstance(response, Response):
            raise SettingError(f"{name} must {must}; it yielded {response!r:.80}.")
        if response.slot not in slots or response.entrant_id != entrant.entrant_id:
            raise SettingError(
                f"{name} must {must}; it yielded an answer that it was not asked for.",
                f"  The answer is of {response.entrant_id!r:.50} to {response.prompt_id!r:.50}, draw {response.draw_idx}.",
            )
        yield response


def _generate_fitting(
    entrant: Entrant, prompts: Sequence[Prompt], allow_missing: bool
) -> Iterator[Response]:
    """Yield answers to prompts. If answers may be missing, leave out the prompts that leave no room for one."""
    try:
        yield from _generate_checked(entrant, prompts)
    except NoRoomError as error:
        if not allow_missing:
            raise
        logger.warning("warning: %s", error)
        fitting_prompts = [prompt for prompt in prompts if prompt not in error.prompts]
        yield from _generate_checked(entrant, fitting_prompts)


def _make_response(
    _: str,
    names: Mapping[str, Any],
    completion: Completion,
    dollars: float | None,
    message: Message,
) -> Response:
    reason = mask_text(completion.stop_reason)
    reason = _FINISH_REASONS.get(reason, reason)
    text, thought = split_thought(completion.text)
    if reason == "stop" and thought["thought"] == "unclosed":
        reason = "length"
    return Response(
        **names,
        response_text=text,
        finish_reason=reason,
        diagnostics={
            "model": completion.model and mask_text(completion.model),
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
    counts_absent: bool = True,
    on_missing: Callable[[MissingAnswers], None] = lambda missing: None,
) -> Responses:
    """Return responses for a plan: stored ones, and placeholders for what models have not answered.

    A placeholder has the mean length of the model's stored answers, or, where there are none, the
    model's limit; with `at_least` one character. No model answers; answers of other entrants are
    neither stored nor counted. Raises EvidenceError if some are missing, unless `allow_missing`.

    on_missing  called with the prompts that a model has not answered
    """

    def assume(
        name: str, entrant: Entrant, lengths: list[int], turn: int, prompts: Prompts
    ) -> dict[Slot, Response]:
        responses: dict[Slot, Response] = {}
        try:
            responses |= _read_stored(name, entrant, store, turn, prompts)
        except UserError as error:  # a plan needs no model
            if entrant.is_instant:
                raise
            message_format = "%s: its model is not available, so none of its cached answers are used (%s)"
            logger.info(message_format, name, str(error).partition(". ")[0])
        missing = [prompt for prompt in prompts if prompt.slot not in responses]
        if not entrant.is_instant:
            lengths += [len(response.response_text) for response in responses.values()]
            n_chars = (
                1
                if at_least
                else ASSUMED_CHARS_PER_TOKEN
                * (entrant.max_answer_tokens or _ASSUMED_ANSWER_TOKENS)
            )
            if lengths:
                n_chars = sum(lengths) // len(lengths)
            if missing:
                on_missing(
                    MissingAnswers(
                        entrant=name,
                        prompts=missing,
                        n_chars=n_chars,
                        is_measured=bool(lengths),
                    )
                )
            for prompt in missing:  # each unlike any other
                draw = f", {prompt.draw_idx}" if prompt.draw_idx else ""
                placeholder = f"{name} on {prompt.prompt_id}{draw}: "
                placeholder += "as it may say " * n_chars
                responses[prompt.slot] = Response(
                    entrant_id=name,
                    prompt_id=prompt.prompt_id,
                    response_text=placeholder[:n_chars],
                    draw_idx=prompt.draw_idx,
                )
        elif missing:
            for response in _generate_checked(entrant, missing):
                responses[response.slot] = _round_trip(response)
        return responses

    responses_by_entrant = {}
    prompts_by_entrant = {
        name: _list_askable(prompts, entrant) for name, entrant in entrants.items()
    }
    for name, entrant in entrants.items():
        lengths: list[int] = []  # of stored answers, to earlier turns as well
        answer = partial(assume, name, entrant, lengths)
        responses_by_entrant[name] = converse(entrant, prompts_by_entrant[name], answer)
    required_prompts = _list_required(prompts, entrants, counts_absent)
    return _order_responses(responses_by_entrant, required_prompts, allow_missing)


def find_known_responses(
    prompts: Prompts, entrants: Entrants, store: Store
) -> dict[str, dict[Slot, Response]]:
    """Return the responses that no model has to make: stored and recorded ones, and those of probes.

    None is stored, and a model that is not here has none.
    """

    def find_known(
        name: str, entrant: Entrant, turn: int, prompts: Prompts
    ) -> dict[Slot, Response]:
        try:
            known_answers = _read_stored(name, entrant, store, turn, prompts)
        except UserError:
            known_answers = {}
        if entrant.is_instant:
            lacking_prompts = [p for p in prompts if p.slot not in known_answers]
            free_answers = map(_round_trip, _generate_checked(entrant, lacking_prompts))
            known_answers |= {response.slot: response for response in free_answers}
        return known_answers

    return {
        name: converse(
            entrant, _list_askable(prompts, entrant), partial(find_known, name, entrant)
        )
        for name, entrant in entrants.items()
    }


def read_stored_responses(
    prompts: Prompts, entrants: Entrants, store: Store
) -> dict[str, dict[Slot, Response]]:
    """Return the stored responses by entrant and slot."""
    return {
        name: converse(
            entrant,
            _list_askable(prompts, entrant),
            partial(_read_stored, name, entrant, store),
        )
        for name, entrant in entrants.items()
    }


def _read_stored(
    name: str, entrant: Entrant, store: Store, _: int, prompts: Prompts
) -> dict[Slot, Response]:
    """Return the stored responses of an entrant to prompts of one turn."""
    stored = store.get(Response, list(_answer_keys(name, entrant, prompts).values()))
    return {response.slot: response for response in stored.values()}


def needs_paid_answers(prompts: Prompts, entrants: Entrants, store: Store) -> bool:
    """Whether the store lacks an answer of an API that may bill it."""
    paid_entrants = {
        name: entrant
        for name, entrant in entrants.items()
        if isinstance(entrant, ApiEntrant) and entrant.may_bill
    }
    return not has_all_responses(prompts, paid_entrants, store)


def has_all_responses(prompts: Prompts, entrants: Entrants, store: Store) -> bool:
    """Whether the store has every entrant's response to every prompt."""
    stored = read_stored_responses(prompts, entrants, store)
    return all(
        len(stored[name]) == len(_list_askable(prompts, entrant))
        for name, entrant in entrants.items()
    )


def _answer_keys(name: str, entrant: Entrant, prompts: Prompts) -> dict[Slot, str]:
    return {prompt.slot: answer_key(name, entrant, prompt) for prompt in prompts}


def answer_key(name: str, entrant: Entrant, prompt: Prompt) -> str:
    """Return the key of an entrant's answer to a prompt."""
    return make_fingerprint(
        [name, prompt.prompt_id, entrant.cache_key(prompt)]
        + [prompt.draw_idx] * (prompt.draw_idx > 0)
    )
