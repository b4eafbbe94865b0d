"""What an answer looks like, whatever it says: its length and its markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, get_args

from elo_exp.data.conversations import own_words
from elo_exp.records import Battle, Comparison

Feature = Literal["length", "headers", "lists", "bold"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
_MARKDOWN = (
    r"^#{1,6}\s",
    r"^[^\S\n]*(?:\d+\.|[-*+])\s",
    r"\*\*[^*\n]+\*\*|__[^_\n]+__",
)


def count_style(text: str) -> tuple[int, ...]:
    """Count the characters, and outside of code blocks headers, list items and bold spans.

    What is counted is what the style control of LMArena's leaderboard counts, but for characters in
    place of tokens.
    """
    prose = re.sub(r"```([^`]*)```", "", text)
    markdown_counts = (
        len(re.findall(pattern, prose, re.MULTILINE)) for pattern in _MARKDOWN
    )
    return len(text), *markdown_counts


def add_style(
    battles: Sequence[Battle], comparisons: Iterable[Comparison]
) -> list[Battle]:
    """Add the counts of the answers that a judge compared; of conversations, of the entrant's own words."""
    texts = {}
    for c in comparisons:
        texts[c.prompt_id, c.entrant_a, c.draw_a] = own_words(c, c.response_a)
        texts[c.prompt_id, c.entrant_b, c.draw_b] = own_words(c, c.response_b)
    style = {answer: count_style(text) for answer, text in texts.items()}
    return [
        replace(
            battle,
            style_a=style.get((str(battle.question_id), battle.model_a, battle.draw_a)),
            style_b=style.get((str(battle.question_id), battle.model_b, battle.draw_b)),
        )
        for battle in battles
    ]
