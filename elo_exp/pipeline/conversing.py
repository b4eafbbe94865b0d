"""Conversations turn by turn: each turn is a prompt of its own, whose answer is stored and paid for by itself.

A conversation is put together on reading, and never stored: a run that was killed in its third turn has paid for the
first two once, and goes on from them.
"""

from collections.abc import Callable, Mapping, Sequence

from elo_exp.data import conversations
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.records import Prompt, Response, Slot

# The answers to turns, by slot, from the number of the turn, from 0, and prompts of one turn
Answering = Callable[[int, Sequence[Prompt]], Mapping[Slot, Response]]


def list_first_turns(entrant: Entrant, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
    """Return what an entrant is asked first.

    Raises SettingError for messages that it does not take.
    """
    if _answers_all_turns_at_once(entrant) or not any(
        prompt.messages for prompt in prompts
    ):
        return prompts
    if not entrant.turns:
        unsupported_prompt = next(prompt for prompt in prompts if prompt.messages)
        raise SettingError(
            f"entrant.{entrant.entrant_id} takes no messages, and prompt {unsupported_prompt.prompt_id!r} has some.",
            "  Leave the entrant out, or use one whose class has `turns = True` (CONTRIBUTING.md).",
        )
    return [
        conversations.build_turn_prompt(p, []) if p.messages else p for p in prompts
    ]


def converse(
    entrant: Entrant, prompts: Sequence[Prompt], answer: Answering
) -> dict[Slot, Response]:
    """Return an entrant's answers to prompts, each of as many turns as are asked.

    In each round all prompts that have such a turn are answered at once. A conversation ends with its first turn without
    an answer, and is left out.
    """
    first_prompts = list_first_turns(entrant, prompts)
    if first_prompts is prompts:
        return dict(answer(0, prompts))
    responses_by_slot: dict[Slot, list[Response]] = {
        prompt.slot: [] for prompt in prompts
    }
    open_prompts, turn_prompts, turn_number = list(prompts), first_prompts, 0
    while open_prompts:
        turn_answers = answer(turn_number, turn_prompts)
        for slot, response in turn_answers.items():
            responses_by_slot[slot].append(response)
        open_prompts = [
            prompt
            for prompt in open_prompts
            if prompt.slot in turn_answers
            and _n_missing_turns(prompt, responses_by_slot)
        ]
        turn_prompts = [
            conversations.build_turn_prompt(p, responses_by_slot[p.slot])
            for p in open_prompts
        ]
        turn_number += 1
    return {
        prompt.slot: conversations.join_turns(prompt, responses_by_slot[prompt.slot])
        for prompt in prompts
        if not _n_missing_turns(prompt, responses_by_slot)
    }


def _n_missing_turns(
    prompt: Prompt, responses_by_slot: Mapping[Slot, Sequence[Response]]
) -> int:
    return conversations.n_turns(prompt) - len(responses_by_slot[prompt.slot])


def _answers_all_turns_at_once(entrant: Entrant) -> bool:
    """Whether one answer of the entrant has all turns."""
    return entrant.whole
