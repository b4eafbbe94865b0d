"""How many tokens an API says that its answer took. It may say anything, and the answer is paid for all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOT_COUNTED = (
    "does not say how many tokens it took: its cost is not counted, and the budget is held by what it may have been at "
    "most"
)
_MOST_TOKENS = 10**9  # no call takes as many: what says so counts something else
_PAID = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
)  # each by one of its names


def n_tokens(message: Any, *path: str) -> int:
    """The count to which these names lead in an answer; 0 where there is none."""
    found = message
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return int(found) if _is_count(found) else 0


def is_counted(message: Mapping[str, Any]) -> bool:
    """Whether an answer says what it took in and gave out, and all that it says there are counts: else its cost is not
    known."""
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return False
    said = {
        name: count
        for name, count in usage.items()
        if name.endswith("_tokens") and count is not None
    }
    return all(any(name in said for name in names) for names in _PAID) and all(
        map(_is_count, said.values())
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _MOST_TOKENS
