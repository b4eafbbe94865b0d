"""The published oracle sample: 1,000 logged answers, 480 labels, numbers that others printed."""

from __future__ import annotations

from functools import cache

from elo_exp.oracle.data import Dataset, Truth, read_dataset, read_truth
from tests.data import shared_data

# Of the labels that the truths are means of, as published with the sample.
STD_ERRORS = {"clone": 0.0103, "parallel_universe_prompt": 0.0096, "unhelpful": 0.0079}
POLICIES = tuple(STD_ERRORS)


@cache
def sample(*, probe: bool = False) -> Dataset:
    folder = shared_data("oracle_sample")
    return read_dataset(
        folder / "logged.jsonl",
        fresh_dir=folder / "fresh",
        probe_dir=folder / "probe" if probe else None,
        seed=42,
    )


def truth() -> dict[str, Truth]:
    return read_truth(shared_data("oracle_sample") / "truth.json")
