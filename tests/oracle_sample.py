"""The recorded sample: 1,000 logged answers, three policies, 480 labels."""

from __future__ import annotations

from functools import cache

from elo_exp.oracle.data import (
    Dataset,
    FreshDraw,
    Truth,
    build_dataset,
    read_draws,
    read_logged,
    read_truth,
)
from tests.data import shared_data

# Of the labels that the truths are means of, as published with the sample.
STD_ERRORS = {"clone": 0.0103, "parallel_universe_prompt": 0.0096, "unhelpful": 0.0079}
POLICIES = tuple(STD_ERRORS)


def draws(folder: str) -> dict[str, list[FreshDraw]]:
    return {
        policy: read_draws(shared_data("oracle_sample") / folder, policy) or []
        for policy in POLICIES
    }


@cache
def sample(*, probe: bool = False) -> Dataset:
    logged = read_logged(shared_data("oracle_sample") / "logged.jsonl")
    probes = draws("probe") if probe else {}
    return build_dataset(
        logged, fresh=draws("fresh"), probe=probes, policies=None, n_folds=5, seed=42
    )


def truth() -> dict[str, Truth]:
    return read_truth(shared_data("oracle_sample") / "truth.json")
