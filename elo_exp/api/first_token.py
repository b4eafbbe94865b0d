"""What an answer of one token could have been, by the log-probabilities that OpenAI-compatible servers send."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.api.costs import read_token_count

# Likeliest tokens, as many as servers give
N_TOP_LOGPROBS = 20
# Below it, no name is meant.
_MIN_NAMES_MASS = 0.5
# Vocabularies have signs of their own for the space before a word.
_SPACES = " \t\n\u2581\u0120"
_THINKING_MARKERS = ("<think", "<|channel", "[THINK")


def has_logprobs(message: Mapping[str, Any]) -> bool:
    """Return whether an answer comes with the log-probabilities of its first token."""
    return bool(_first_token_chances(message))


def is_thinking(message: Mapping[str, Any]) -> bool:
    """Return whether an answer is a thought, or begins one."""
    reply, chances = message["choices"][0]["message"], _first_token_chances(message)
    likeliest_token = max(chances, key=chances.__getitem__, default="")
    return bool(
        reply.get("reasoning")
        or reply.get("reasoning_content")
        or read_token_count(
            message, "usage", "completion_tokens_details", "reasoning_tokens"
        )
        or likeliest_token.strip().startswith(_THINKING_MARKERS)
    )


def name_probabilities(
    message: Mapping[str, Any], names: Sequence[str]
) -> dict[str, float] | None:
    """Return how likely each name is among them; None where they have less than half of all together.

    A name is known by how it begins, without leading spaces: T, TI and TIE are TIE.
    """
    mass = dict.fromkeys(names, 0.0)
    for token, chance in _first_token_chances(message).items():
        beginning = token.lstrip(_SPACES).rstrip()
        for name in names:
            if beginning and name.startswith(beginning):
                mass[name] += chance
    total = sum(mass.values())
    if total < _MIN_NAMES_MASS or is_thinking(message):
        return None
    return {name: chance / total for name, chance in mass.items()}


def _first_token_chances(message: Mapping[str, Any]) -> dict[str, float]:
    """The tokens that could have come first, with their probabilities; the one that came is among them."""
    content = (message["choices"][0].get("logprobs") or {}).get("content") or []
    rows = [*(content[0].get("top_logprobs") or ()), content[0]] if content else []
    return {
        str(row["token"]): math.exp(row["logprob"]) for row in rows if "token" in row
    }
