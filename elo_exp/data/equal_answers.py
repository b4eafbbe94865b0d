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
from elo_exp.records import Comparison, Record

Meeting = tuple[tuple[str, str], str | int]  # of two entrants, on a prompt


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


def of_comparisons(comparisons: Sequence[Comparison]) -> list[EqualAnswers]:
    """Return the pairs whose answers are equal on half of their prompts or more, the most equal first.

    Comparisons may be of several dimensions: a prompt counts once for each pair.
    """
    equal = [one for one in comparisons if one.response_a == one.response_b]
    pairs = {_pair(one) for one in equal}
    met = (one for one in comparisons if _pair(one) in pairs)
    return _counted(
        ((_pair(one), one.prompt_id) for one in equal),
        ((_pair(one), one.prompt_id) for one in met),
    )


def _pair(comparison: Comparison) -> tuple[str, str]:
    return comparison.entrant_a, comparison.entrant_b


def of_responses(responses: Responses) -> list[EqualAnswers]:
    """Return the same of entrants that need not meet, on the prompts that both have answered."""
    by_text: dict[tuple[str, Any], list[str]] = {}
    for name, answers in responses.items():
        for prompt_id, answer in answers.items():
            said = answer.messages or answer.response_text
            by_text.setdefault((prompt_id, said), []).append(name)
    equal = [
        (pair, prompt_id)
        for (prompt_id, _), names in by_text.items()
        for pair in combinations(names, 2)
    ]
    pairs = {pair for pair, _ in equal}
    met = (
        (pair, prompt_id)
        for pair in pairs
        for prompt_id in responses[pair[0]].keys() & responses[pair[1]].keys()
    )
    return _counted(equal, met)


def of_battles(battles: Battles) -> list[EqualAnswers]:
    """Return the same of battles, which tell equal answers by their mark `equal_answers`."""
    equal = battles.select(battles.equal_answers)
    pairs = {pair for pair, _ in _meetings(equal)}
    if not pairs:
        return []
    met = ((pair, prompt) for pair, prompt in _meetings(battles) if pair in pairs)
    n_alike = {}
    if battles.count is not None:
        own = battles.question >= len(battles.questions)
        counts = battles.question[own].tolist(), battles.count[own].tolist()
        n_alike = dict(zip(*counts, strict=True))
    return _counted(_meetings(equal), met, n_alike)


def _meetings(battles: Battles) -> Iterator[Meeting]:
    ends = np.sort([battles.model_a, battles.model_b], axis=0).tolist()
    for i, j, question in zip(*ends, battles.question.tolist(), strict=True):
        yield (battles.models[i], battles.models[j]), question


def _counted(
    equal: Iterable[Meeting],
    met: Iterable[Meeting],
    n_alike: Mapping[str | int, int] = MappingProxyType({}),
) -> list[EqualAnswers]:
    """Count each prompt of a pair once: on which the answers were equal, and on which they met.

    n_alike  how many prompts one stands for, where it is more than one
    """
    n_equal, n_prompts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for counter, meetings in ((n_equal, equal), (n_prompts, met)):
        for pair, prompt in dict.fromkeys(meetings):
            counter[pair] += n_alike.get(prompt, 1)
    counted = [
        EqualAnswers(first=a, second=b, n_equal=n, n_prompts=n_prompts[a, b])
        for (a, b), n in n_equal.items()
    ]
    worth = [pair for pair in counted if pair.is_worth_saying]
    return sorted(worth, key=lambda pair: -pair.n_equal / pair.n_prompts)
