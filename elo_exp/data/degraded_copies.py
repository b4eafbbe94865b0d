"""Degraded copies of answers: a judge that compares answers must name such a copy the loser.

A copy has the length of its answer, a quarter of the words and no order, so that a judge that only weighs length cannot
tell the two apart. Words and prompts are drawn by a hash: copies, and the keys of their verdicts, are the same in
every run.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle, islice

from elo_exp.data.conversations import change_own_words, own_words
from elo_exp.records import Comparison, make_fingerprint

# The name of the degraded copy as an entrant
DEGRADED_COPY = "degraded_copy"
CONTROL_PROMPTS = 10
_SEED = 20261128
# One word of so many stands in a copy
_WORDS_PER_KEPT_WORD = 4
_MIN_WORDS = 4
_MIN_CHARACTERS = 8


def degrade(text: str) -> str:
    """Return a copy of an answer that is worse than it, whatever the answer is judged by.

    A quarter of the words, drawn by a hash, stand four times in an order drawn by a hash. Characters take the place of
    words in an answer of fewer than four words, such as one in a script without spaces. An answer of fewer than eight
    characters becomes empty.

    Examples
    --------
    >>> degrade("Water boils at 100 degrees at sea level.")
    'degrees boils degrees boils degrees boils degrees boils'
    >>> degrade("Paris"), degrade("")
    ('', '')
    """
    units, between = text.split(), " "
    if len(units) < _MIN_WORDS:
        units, between = list(text.strip()), ""
        if len(units) < _MIN_CHARACTERS:
            return ""
    draws = {i: make_fingerprint([_SEED, i, unit]) for i, unit in enumerate(units)}
    sampled_units = [units[i] for i in sorted(draws, key=draws.__getitem__)]
    sampled_units = sampled_units[: len(units) // _WORDS_PER_KEPT_WORD]
    return between.join(islice(cycle(sampled_units), len(units)))


def control_comparisons(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Compare degraded copies of entrant_b's answers with these answers, on ten prompts.

    Prompts are drawn by a hash, first among the answers whose copies are not empty. A prompt whose answer is empty
    has no copy.

    Parameters
    ----------
    comparisons : iterable of Comparison
        On one dimension, all with the same entrant_b.

    Returns
    -------
    list of Comparison
        Their entrant_a is the degraded copy. Ten or none: [] if fewer prompts have an answer.
    """
    copies: dict[str, tuple[bool, str, Comparison]] = {}
    for comparison in comparisons:
        if comparison.draw_b:
            continue
        answer = comparison.response_b
        copy = change_own_words(comparison, answer, degrade)
        if copy.split() == answer.split():
            continue
        control = replace(
            comparison,
            entrant_a=DEGRADED_COPY,
            response_a=copy,
            draw_a=0,
            is_control=True,
        )
        is_empty = not own_words(control, copy).strip()
        draw = make_fingerprint([_SEED, comparison.prompt_id])
        copies[comparison.prompt_id] = is_empty, draw, control
    sample = sorted(copies.values(), key=lambda row: row[:2])[:CONTROL_PROMPTS]
    return (
        [control for _, _, control in sample] if len(sample) == CONTROL_PROMPTS else []
    )
