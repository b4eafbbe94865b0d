"""How many tokens texts have: counted on some queries, the others being taken to be as dense."""

from __future__ import annotations

from collections.abc import Sequence

from elo_exp.records import JudgeRequest

_BYTES_A_TOKEN = 2.0  # of UTF-8; English has 3 to 4, and a Chinese character of 3 bytes may be a token and a half


class Density:
    """chars_per_token  what is taken to hold until something has been counted"""

    def __init__(self, chars_per_token: float) -> None:
        self._chars_per_token = chars_per_token
        self._n_tokens = 0
        self._n_chars = 0
        self.n_counted = 0  # queries

    def learn(self, requests: Sequence[JudgeRequest], n_tokens: int) -> None:
        """These queries have so many tokens together."""
        self.n_counted += len(requests)
        self._n_tokens += n_tokens
        self._n_chars += sum(request.n_chars for request in requests)

    def tokens(self, n_chars: int) -> float:
        """As many as are to be expected."""
        return (
            n_chars * self._n_tokens / self._n_chars
            if self._n_chars
            else n_chars / self._chars_per_token
        )


def most_tokens(n_bytes: int) -> float:
    """As many as a text may have, however dense."""
    return n_bytes / _BYTES_A_TOKEN


def sample(requests: Sequence[JudgeRequest], *, n_each: int) -> list[JudgeRequest]:
    """So many queries of each prefix, spread evenly."""
    by_prefix: dict[str, list[JudgeRequest]] = {}
    for request in requests:
        by_prefix.setdefault(request.system, []).append(request)
    return [
        one for some in by_prefix.values() for one in some[:: max(1, len(some) // n_each)][:n_each]
    ]
