"""How many tokens texts have: counted for some requests, and predicted from the length of the
others."""

from __future__ import annotations

from collections.abc import Sequence

from elo_exp.records import JudgeRequest

# of UTF-8; English has 3 to 4, and a Chinese character of 3 bytes may be a token and a half
_BYTES_A_TOKEN = 2.0


class TokenEstimator:
    """Predicts tokens from characters.

    chars_per_token  what is assumed until something has been counted
    """

    def __init__(self, chars_per_token: float) -> None:
        self._chars_per_token = chars_per_token
        self._n_tokens = 0
        self._n_chars = 0
        self.n_counted = 0  # requests

    def fit(self, requests: Sequence[JudgeRequest], n_tokens: int) -> None:
        """Take in that these requests have so many tokens together."""
        self.n_counted += len(requests)
        self._n_tokens += n_tokens
        self._n_chars += sum(request.n_chars for request in requests)

    def predict(self, n_chars: int) -> float:
        """The expected number of tokens of a text of so many characters."""
        if self._n_chars:
            return n_chars * self._n_tokens / self._n_chars
        return n_chars / self._chars_per_token


def most_tokens(n_bytes: int) -> float:
    """The most tokens that a text may have, however dense."""
    return n_bytes / _BYTES_A_TOKEN


def sample(requests: Sequence[JudgeRequest], *, n_each: int) -> list[JudgeRequest]:
    """So many requests of each prefix, spread evenly."""
    by_prefix: dict[str, list[JudgeRequest]] = {}
    for request in requests:
        by_prefix.setdefault(request.system, []).append(request)
    return [
        one
        for some in by_prefix.values()
        for one in some[:: max(1, len(some) // n_each)][:n_each]
    ]
