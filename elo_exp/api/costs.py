"""What requests cost, and the cap that no run submits past."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elo_exp.errors import SettingError
from elo_exp.records import JudgeRequest
from elo_exp.types import Dollars, Natural, NonNegative

PER_MILLION = 1e-6
UNCOUNTED_COST_NOTE = (
    "does not say how many tokens it took: its cost is not counted, and the most that it may have "
    "been is held in the budget"
)
# In UTF-8, English has 3 to 4; a Chinese character of 3 bytes may be a token and a half.
_MIN_BYTES_PER_TOKEN = 2.0
# A server that says more counts something else.
_MAX_PLAUSIBLE_TOKENS = 10**9
# Each with its synonyms
_REQUIRED_COUNTS = (
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
)


@dataclass(kw_only=True)
class Prices:
    """Dollars per million tokens, and what a model's prompt cache takes.

    batch_factor          what a batch pays of all of these
    min_cacheable_tokens  a shorter prefix is never cached
    """

    input: Dollars
    output: Dollars
    cache_write_5m: Dollars
    cache_write_1h: Dollars
    cache_read: Dollars
    batch_factor: NonNegative
    min_cacheable_tokens: Natural

    def dollars(self, usage: Mapping[str, int], *, batched: bool = False) -> float:
        """Cost of tokens by class."""
        prices = {
            "input_tokens": self.input,
            "cache_write_5m_tokens": self.cache_write_5m,
            "cache_write_1h_tokens": self.cache_write_1h,
            "cache_read_tokens": self.cache_read,
            "output_tokens": self.output,
        }
        total = sum(usage.get(name, 0) * price for name, price in prices.items())
        return total * PER_MILLION * self.batch_discount(batched)

    def max_cost(
        self,
        params: Mapping[str, Any],
        max_tokens: int,
        ttl: str | None,
        *,
        batched: bool,
    ) -> float:
        """Worst-case cost of a request: dense text, a prefix that is missed, the longest answer."""
        n_prefix = _n_bytes(params.get("system", "")) / _MIN_BYTES_PER_TOKEN
        n_input = _n_bytes(params) / _MIN_BYTES_PER_TOKEN
        prefix_dollars = n_prefix * max(self.input, self.prefix_write_price(ttl))
        other_dollars = (n_input - n_prefix) * self.input + max_tokens * self.output
        return (
            (prefix_dollars + other_dollars)
            * PER_MILLION
            * self.batch_discount(batched)
        )

    def batch_discount(self, batched: bool) -> float:
        return self.batch_factor if batched else 1.0

    def prefix_write_price(self, ttl: str | None) -> float:
        """The price of a prefix that is not in the cache, where a breakpoint of this time to live
        asks for it."""
        return {None: self.input, "5m": self.cache_write_5m, "1h": self.cache_write_1h}[
            ttl
        ]

    def break_even_hit_rate(self, ttl: str) -> float:
        """The share of requests that must find the prefix in the cache for the breakpoint to save
        money.

        With a share h the prefix costs h·read + (1 - h)·write, without a breakpoint it costs input:
        they are equal at h = (write - input) / (write - read).
        """
        saving = self.prefix_write_price(ttl) - self.cache_read
        return (
            (self.prefix_write_price(ttl) - self.input) / saving
            if saving > 0
            else math.inf
        )

    def best_ttl(self, hit_rate: float) -> str | None:
        """The longest time to live that a measured hit rate pays for; None where none does."""
        return next(
            (ttl for ttl in ("1h", "5m") if hit_rate >= self.break_even_hit_rate(ttl)),
            None,
        )


@dataclass(kw_only=True)
class AutomaticCache(Prices):
    """Prices of a server that decides by itself what its prompt cache has: all of a request may be written to it, at
    `cache_write_5m`."""

    def max_cost(
        self,
        params: Mapping[str, Any],
        max_tokens: int,
        ttl: str | None,
        *,
        batched: bool,
    ) -> float:
        """Worst-case cost of a request: dense text, all of it written to the cache, the longest answer."""
        max_prices = replace(self, input=max(self.input, self.cache_write_5m))
        return Prices.max_cost(max_prices, params, max_tokens, ttl, batched=batched)


def _n_bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def make_token_prices(
    tokens_in: float, tokens_out: float, cached: float, *, batch_factor: float = 1.0
) -> Prices:
    """Prices in dollars per million tokens of a model whose prompt cache is never asked for; what
    the server finds there is `cached` input."""
    return Prices(
        input=tokens_in,
        output=tokens_out,
        cache_write_5m=tokens_in,
        cache_write_1h=tokens_in,
        cache_read=cached,
        batch_factor=batch_factor,
        min_cacheable_tokens=0,
    )


def read_token_count(message: Any, *path: str) -> int:
    """The count to which these names lead in an answer; 0 where there is none. It may say
    anything."""
    value = message
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return int(value) if _is_count(value) else 0


def has_token_counts(message: Mapping[str, Any]) -> bool:
    """Whether an answer counts what it took in and gave out; else its cost is not known."""
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return False
    counts = {
        name: count
        for name, count in usage.items()
        if name.endswith("_tokens") and count is not None
    }
    is_complete = all(
        any(name in counts for name in names) for names in _REQUIRED_COUNTS
    )
    return is_complete and all(map(_is_count, counts.values()))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _MAX_PLAUSIBLE_TOKENS


def format_dollars(dollars: float, *, beside: float | None = None) -> str:
    """Dollars and cents, with as many digits more as the amount has, to a millionth: $0.005 is not
    $0.01.

    beside  the amount whose digits it has instead
    """
    digits = f"{dollars if beside is None else beside:.6f}".rstrip("0")
    n_digits = max(2, len(digits.partition(".")[2]))
    return f"${dollars:,.{n_digits}f}"


def entrant_budget(budget_usd: float | None, prices: Prices | None) -> Budget:
    """The budget of an entrant; None: no cap, or no known prices. Raises SettingError where a cap
    cannot be held."""
    if budget_usd is None:
        return Budget(math.inf)
    if not budget_usd > 0:
        raise SettingError.bad_value(
            "budget_usd", budget_usd, "be above 0 (US dollars), or null for no cap"
        )
    if prices is None:
        raise SettingError.bad_value(
            "budget_usd",
            budget_usd,
            "be null while the prices of the model are not set",
            "  To hold the cap, set the price of a million tokens, too.",
        )
    return Budget(budget_usd)


class Budget:
    """A cap in dollars over everything that a run submits to one model.

    What is spent is measured; what is under way is reserved at the most that it may cost, so that
    spending cannot pass the cap whatever comes back. Reservations fall away as results come in, and
    make room for the next; those of answers that were lost or do not say what they cost stay.
    """

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.spent = 0.0
        self._reserved: dict[str, float] = {}

    @property
    def reserved(self) -> float:
        return math.fsum(self._reserved.values())

    @property
    def spent_of_cap(self) -> str:
        return f"{format_dollars(self.spent, beside=self.cap)} of {format_dollars(self.cap)}"

    def describe(self, error: str) -> str:
        """What has become of the cap while nothing is under way; error: the last that left a cost
        open, if any."""
        spent_dollars, held_dollars = (
            f"{self.spent_of_cap} are spent",
            format_dollars(self.reserved, beside=self.cap),
        )
        if not self.reserved:
            return spent_dollars
        last_error = f" (the last error: {error})" if error else ""
        return (
            f"{spent_dollars}, {held_dollars} are held for answers that were lost or do not say what they "
            f"cost{last_error}"
        )

    def reserve(self, name: str, dollars: float) -> None:
        self._reserved[name] = dollars

    def release(self, name: str) -> None:
        self._reserved.pop(name, None)

    def count_affordable(self, reserves: Sequence[float]) -> int:
        """How many of these, from the first, there is room for."""
        return count_fitting(reserves, self.cap - self.spent - self.reserved)


def count_fitting(reserves: Sequence[float], room: float) -> int:
    """How many of these, from the first, there is room for."""
    for count, dollars in enumerate(reserves):
        room -= dollars
        if not room >= -1e-9:
            return count
    return len(reserves)


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
