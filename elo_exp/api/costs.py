"""What a call costs, and the cap that no run submits past."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elo_exp.types import Dollars, Natural, NonNegative

PER_MILLION = 1e-6


@dataclass(kw_only=True)
class Prices:
    """Dollars per million tokens, and what a model's prompt cache takes."""

    input: Dollars
    output: Dollars
    cache_write_5m: Dollars
    cache_write_1h: Dollars
    cache_read: Dollars
    batch_factor: NonNegative  # what a batch pays of all of these
    min_cacheable_tokens: Natural  # a shorter prefix is never cached

    def dollars(self, usage: Mapping[str, int], *, factor: float = 1.0) -> float:
        """What tokens by class cost; `factor` is `batch_factor` in a batch and 1 elsewhere."""
        prices = {
            "input_tokens": self.input,
            "cache_write_5m_tokens": self.cache_write_5m,
            "cache_write_1h_tokens": self.cache_write_1h,
            "cache_read_tokens": self.cache_read,
            "output_tokens": self.output,
        }
        return (
            sum(usage.get(name, 0) * price for name, price in prices.items()) * PER_MILLION * factor
        )

    def write(self, ttl: str | None) -> float:
        """The price of a prefix that is not in the cache, where a breakpoint of this time to live asks for it."""
        return {None: self.input, "5m": self.cache_write_5m, "1h": self.cache_write_1h}[ttl]

    def break_even(self, ttl: str) -> float:
        """The share of requests that must find the prefix in the cache for the breakpoint to save money.

        With a share h the prefix costs h·read + (1 - h)·write, without a breakpoint it costs input: they are equal at
        h = (write - input) / (write - read).
        """
        saving = self.write(ttl) - self.cache_read
        return (self.write(ttl) - self.input) / saving if saving > 0 else math.inf

    def best_ttl(self, hit_rate: float) -> str | None:
        """The longest time to live that a measured hit rate pays for; None where none does."""
        return next((ttl for ttl in ("1h", "5m") if hit_rate >= self.break_even(ttl)), None)


def token_prices(
    *,
    input_usd_per_million: float,
    output_usd_per_million: float,
    cached_input_usd_per_million: float,
) -> Prices:
    """Of a model whose prompt cache is never asked for; what the server finds there all the same is `cached` input."""
    return Prices(
        input=input_usd_per_million,
        output=output_usd_per_million,
        cache_write_5m=input_usd_per_million,
        cache_write_1h=input_usd_per_million,
        cache_read=cached_input_usd_per_million,
        batch_factor=1.0,
        min_cacheable_tokens=0,
    )


def money(dollars: float, *, beside: float | None = None) -> str:
    """Dollars and cents, with as many digits more as the amount has, to a millionth: $0.005 is not $0.01.

    beside  the amount whose digits it has instead
    """
    exact = f"{dollars if beside is None else beside:.6f}".rstrip("0")
    n_digits = max(2, len(exact.partition(".")[2]))
    return f"${dollars:,.{n_digits}f}"


class Budget:
    """A cap in dollars over everything that a run submits.

    What is spent is measured; what is under way is reserved at the most that it may cost, so that spending cannot
    pass the cap whatever comes back. Reservations fall away as results come in, and make room for the next.
    """

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.spent = 0.0
        self._reserved: dict[str, float] = {}

    @property
    def reserved(self) -> float:
        return math.fsum(self._reserved.values())

    @property
    def room(self) -> float:
        return self.cap - self.spent - self.reserved

    @property
    def spent_of_cap(self) -> str:
        return f"{money(self.spent, beside=self.cap)} of {money(self.cap)}"

    def state(self, error: str) -> str:
        """What has become of the cap while nothing is under way; error: the last that left a cost open, if any."""
        spent, held = f"{self.spent_of_cap} are spent", money(self.reserved, beside=self.cap)
        if not self.reserved:
            return spent
        last = f"; the last error: {error}" if error else ""
        return f"{spent}, {held} are held for answers that were lost or do not say what they cost{last}"

    def reserve(self, name: str, dollars: float) -> None:
        self._reserved[name] = dollars

    def release(self, name: str) -> None:
        self._reserved.pop(name, None)

    def fits(self, reserves: list[float]) -> int:
        """How many of these, from the first, there is room for."""
        room = self.room
        for count, dollars in enumerate(reserves):
            room -= dollars
            if not room >= -1e-9:
                return count
        return len(reserves)
