"""What a call costs, and the cap that no run submits past."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from omegaconf import OmegaConf

from elo_exp.api.costs import Budget, Prices
from tests.data import described

_NAMES = [field.name for field in dataclasses.fields(Prices)]
_MODELS: Any = OmegaConf.to_container(described("judge", "claude").models)
FACTS = {
    model: Prices(**{name: facts[name] for name in _NAMES})
    for model, facts in _MODELS.items()
}
OPUS = FACTS["claude-opus-5-5"]


def prices(**changes: Any) -> Prices:
    """Opus, but for the changes."""
    return Prices(**{**vars(OPUS), **changes})


# What tokens cost


def test_a_worked_example() -> None:
    """One request to Opus in a batch, its rubric read from the cache.

    input        900 x $4.00    0.003600
    read       2,500 x $0.20    0.000500
    output       550 x $20.00   0.011000
    ------------------------------------
    alone                       0.015100
    in a batch       x 0.5      0.007550
    """
    usage = {"input_tokens": 900, "cache_read_tokens": 2500, "output_tokens": 550}
    assert OPUS.dollars(usage) == pytest.approx(0.0151, abs=1e-12)
    assert OPUS.dollars(usage, batched=True) == pytest.approx(0.00755, abs=1e-12)


def test_every_model_that_ships_has_prices_that_make_sense() -> None:
    assert FACTS.keys() >= {"claude-opus-4-7", "claude-sonnet-4-6"}  # of the original
    for model, facts in FACTS.items():
        assert (
            0
            < facts.cache_read
            < facts.input
            <= facts.cache_write_5m
            <= facts.cache_write_1h
        ), model
        assert facts.input < facts.output, model
        assert facts.batch_factor == 0.5, model


# The table of a headline run: 4,632 requests with a rubric of 2,500 tokens, 900 of their own and 550 out, 300 of them
# thought. Worked out from the price lists before this program was, in dollars.

N, PREFIX, OWN, OUT = 4632, 2500, 900, 550
TABLE = {
    #                    alone   batch    alone  batch  batch  batch  batch
    # cache              none    none     1h     1h     1h     1h     5m
    # share of hits                       .98    .98    .70    .30    .70
    "claude-opus-5-5": (113.95, 56.97, 71.75, 35.87, 48.52, 66.58, 43.31),
    "claude-sonnet-5-5": (56.97, 28.49, 35.87, 17.94, 24.26, 33.29, 21.65),
    "claude-haiku-5-5": (2.85, 1.42, 1.85, 0.93, 1.23, 1.67, 1.10),
    "claude-haiku-4-5": (28.49, 14.24),  # the rubric is too short for its cache
}
COLUMNS: list[tuple[bool, str | None, float]] = [
    (False, None, 0.0),
    (True, None, 0.0),
    (False, "1h", 0.98),
    (True, "1h", 0.98),
    (True, "1h", 0.70),
    (True, "1h", 0.30),
    (True, "5m", 0.70),
]


def usage_of_run(ttl: str | None, hit_rate: float) -> dict[str, int]:
    read = round(N * PREFIX * hit_rate)
    missed = {
        None: "input_tokens",
        "5m": "cache_write_5m_tokens",
        "1h": "cache_write_1h_tokens",
    }[ttl]
    usage = {
        "input_tokens": N * OWN,
        "cache_read_tokens": read,
        "output_tokens": N * OUT,
    }
    return {**usage, missed: usage.get(missed, 0) + N * PREFIX - read}


@pytest.mark.parametrize("model", TABLE)
def test_second_opinion_the_table_of_costs(model: str) -> None:
    for column, dollars in zip(COLUMNS, TABLE[model], strict=False):
        in_batch, ttl, hit_rate = column
        usage = usage_of_run(ttl, hit_rate)
        found = FACTS[model].dollars(usage, batched=in_batch)
        assert found == pytest.approx(dollars, abs=0.0051), column


# The prompt cache


EVEN_5M, EVEN_1H = 1 / 4.8, 4 / 7.8  # Opus: (5 - 4) / (5 - .2) and (8 - 4) / (8 - .2)


@pytest.mark.parametrize(
    ("hit_rate", "ttl"),
    [
        (0.0, None),
        (math.nextafter(EVEN_5M, 0), None),
        (EVEN_5M, "5m"),
        (0.3, "5m"),
        (math.nextafter(EVEN_1H, 0), "5m"),
        (EVEN_1H, "1h"),
        (0.98, "1h"),
        (1.0, "1h"),
        (math.nan, None),
    ],
)
def test_the_longest_cache_that_pays_is_chosen(
    hit_rate: float, ttl: str | None
) -> None:
    assert OPUS.best_ttl(hit_rate) == ttl


# The cap, which the law of test_paid_once.py holds over reserves and releases


@pytest.mark.parametrize(
    ("cap", "reserves", "n"),
    [
        (10.0, [4.0, 7.0, 1.0], 1),  # from the first, without leaving any out
        (10.0, [], 0),
        (0.3, [0.1, 0.1, 0.1], 3),  # which is a little more than .3, to a computer
        (0.3, [0.1, 0.1, 0.100001], 2),
        (0.0, [0.01], 0),
        (0.0, [0.0, 0.0], 2),
        (-1.0, [0.01], 0),
        (math.nan, [1e9], 0),
        (5.0, [1.0, math.nan, 1.0], 1),
    ],
)
def test_what_fits(cap: float, reserves: list[float], n: int) -> None:
    assert Budget(cap).count_affordable(reserves) == n


# 4,000 bytes as JSON, of which the cacheable prefix has 2,000: 2,000 tokens at most, and 1,000. The Chinese characters
# have three bytes each, and may be a token and a half.
BODY = {"system": "r" * 1998, "messages": "血" * 657 + "."}


@pytest.mark.parametrize(
    ("ttl", "batched", "changes", "dollars"),
    [
        (None, False, {}, 0.028),  # 2,000 x $4 + 1,000 x $20 a million
        ("5m", False, {}, 0.029),  # 1,000 x $5 + 1,000 x $4 + 1,000 x $20
        ("1h", False, {}, 0.032),  # 1,000 x $8 + 1,000 x $4 + 1,000 x $20
        (None, True, {}, 0.014),
        ("5m", True, {}, 0.0145),
        ("1h", True, {}, 0.016),
        # a server that writes for less than it reads may still not write
        ("5m", False, {"cache_write_5m": 1.0}, 0.028),
        ("1h", False, {"cache_write_1h": 1.0}, 0.028),
    ],
)
def test_a_worked_example_of_the_cap_for_each_price(
    ttl: str | None, batched: bool, changes: dict[str, float], dollars: float
) -> None:
    """Ten requests fit a cap of ten times the most that one may cost, and nine a cap a thousandth of a cent lower."""
    worst = prices(**changes).max_cost(BODY, 1000, ttl, batched=batched)
    assert worst == pytest.approx(dollars, abs=1e-12)
    assert Budget(10 * dollars).count_affordable([worst] * 11) == 10
    assert Budget(10 * dollars - 1e-5).count_affordable([worst] * 11) == 9
