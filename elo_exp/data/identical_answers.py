"""How often two entrants gave the same answer: then a judge has nothing to compare, and a setting may be without effect."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.records import Comparison, Record, Response, Slot

# Two entrants, and the prompt on which they meet
PairOnPrompt = tuple[tuple[str, str], str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualAnswers(Record):
    """Two entrants, and to how many of the prompts that both answered they gave the same text, byte for byte."""

    first: str
    second: str
    n_equal: int
    n_prompts: int

    @property
    def is_all(self) -> bool:
        return self.n_equal == self.n_prompts

    @property
    def is_worth_saying(self) -> bool:
        """Whether it is half of the prompts or more."""
        return 2 * self.n_equal >= self.n_prompts


def count_equal_in_comparisons(comparisons: Sequence[Comparison]) -> list[EqualAnswers]:
    """Return the pairs whose answers are equal on half of their prompts or more, the most equal first.

    Comparisons may be of several dimensions and draws: a prompt counts once for each pair, as equal where all are.
    """
    is_equal = [
        (
            (_pair(comparison), comparison.prompt_id),
            comparison.response_a == comparison.response_b,
        )
        for comparison in comparisons
    ]
    pairs = {pair for (pair, _), equal in is_equal if equal}
    return _count_prompts(
        (meeting, equal) for meeting, equal in is_equal if meeting[0] in pairs
    )


def _pair(comparison: Comparison) -> tuple[str, str]:
    return comparison.entrant_a, comparison.entrant_b


def count_equal_in_responses(responses: Responses) -> list[EqualAnswers]:
    """Return the same of entrants that need not meet, on the prompts that both have answered.

    Equal are those whose answers to a prompt are so draw by draw; a single answer is that of each draw.
    """
    texts = {name: _group_texts(answers) for name, answers in responses.items()}
    by_text: dict[tuple[str, tuple[Any, ...]], list[str]] = {}
    for name, entrant_texts in texts.items():
        for prompt_id, answer_texts in entrant_texts.items():
            by_text.setdefault((prompt_id, answer_texts), []).append(name)
    equal = {
        (pair, prompt_id)
        for (prompt_id, _), names in by_text.items()
        for pair in combinations(names, 2)
    }
    pairs = {pair for pair, _ in equal}
    return _count_prompts(
        ((pair, prompt_id), (pair, prompt_id) in equal)
        for pair in pairs
        for prompt_id in texts[pair[0]].keys() & texts[pair[1]].keys()
    )


def _group_texts(answers: Mapping[Slot, Response]) -> dict[str, tuple[Any, ...]]:
    """Return the texts, or messages, by prompt: one for each draw, or a single one that all draws share."""
    by_prompt: dict[str, list[Any]] = {}
    for (prompt_id, _), answer in sorted(answers.items(), key=lambda item: item[0][1]):
        content = answer.messages or answer.response_text
        by_prompt.setdefault(prompt_id, []).append(content)
    return {
        prompt_id: tuple(contents) if len(set(contents)) > 1 else (contents[0],)
        for prompt_id, contents in by_prompt.items()
    }


def count_equal_in_battles(battles: Battles) -> list[EqualAnswers]:
    """Return the same of battles, which tell equal answers by their mark `equal_answers`."""
    equal = battles.select(battles.equal_answers)
    pairs = {pair for pair, _ in _iterate_meetings(equal)}
    if not pairs:
        return []
    marked_meetings = zip(
        _iterate_meetings(battles), battles.equal_answers.tolist(), strict=True
    )
    n_alike = {}
    if battles.count is not None:
        names_no_question = battles.question >= len(battles.questions)
        counts = (
            battles.question[names_no_question].tolist(),
            battles.count[names_no_question].tolist(),
        )
        n_alike = dict(zip(*counts, strict=True))
    return _count_prompts(
        (meeting for meeting in marked_meetings if meeting[0][0] in pairs), n_alike
    )


def _iterate_meetings(battles: Battles) -> Iterator[PairOnPrompt]:
    ends = np.sort([battles.model_a, battles.model_b], axis=0).tolist()
    for i, j, question in zip(*ends, battles.question.tolist(), strict=True):
        yield (battles.models[i], battles.models[j]), question


def _count_prompts(
    marked_meetings: Iterable[tuple[PairOnPrompt, bool]],
    n_alike: Mapping[str | int, int] = MappingProxyType({}),
) -> list[EqualAnswers]:
    """Count each prompt of a pair once: on which they met, and on which their answers were equal whenever they met.

    marked_meetings  meetings, and whether the answers were equal
    n_alike          how many prompts a question stands for, if more than one
    """
    is_equal: dict[PairOnPrompt, bool] = {}
    for meeting, equal in marked_meetings:
        is_equal[meeting] = equal and is_equal.get(meeting, True)
    n_equal, n_prompts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (pair, prompt), equal in is_equal.items():
        n_prompts[pair] += n_alike.get(prompt, 1)
        n_equal[pair] += equal * n_alike.get(prompt, 1)
    all_pairs = [
        EqualAnswers(first=a, second=b, n_equal=n, n_prompts=n_prompts[a, b])
        for (a, b), n in n_equal.items()
    ]
    notable_pairs = [pair for pair in all_pairs if pair.is_worth_saying]
    return sorted(notable_pairs, key=lambda pair: -pair.n_equal / pair.n_prompts)
