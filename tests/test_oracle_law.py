"""Fewer labels say no more: neither of a policy, nor of which policy to take.

Ranks are those of `analysis.conclusions.oracle`. A policy without labels of its own that is given with
caution states that it borrows its calibration, and whether that was checked; it claims no more than one
that is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from elo_exp.analysis.conclusions.oracle_conclusion import CHOICES, POLICY_STATUSES
from elo_exp.arrays import Array
from elo_exp.errors import UserError
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.estimates import BORROWED, Analysis
from tests.oracle_simulation import analysed
from tests.oracle_worlds import World, study
from tests.test_label_sampling import study as chosen_study
from tests.test_own_labels import policies


def worlds(n: int) -> Iterator[Dataset]:
    """Policies that seldom fail, labels chosen by score or at random, and logged answers with weights."""
    for seed in range(n):
        yield policies(("pass or fail", "graded")[seed % 2], seed, (25, 60)[seed % 2])[
            0
        ]
        yield chosen_study(seed, ("random", "low", "chances")[seed % 3])[0]
        targets = {"good": World(shift=0.4), "styled": World(style=0.8, dislike=0.15)}
        yield study(targets, seed, n_labels=120, n_own=(0, 40)[seed % 2], n=400)


def claims(data: Dataset) -> tuple[list[int], int, Array]:
    """Ranks of what is said of each policy and of the choice, and the lengths of intervals."""
    try:
        found: Analysis = analysed(data, ["direct"])
    except UserError:  # too few labels for a curve: nothing is said
        return [0] * len(data.policies), 0, np.full(len(data.policies), np.inf)
    headlines = [e for e in found.estimates if e.headline]
    ranks = [
        0 if e.rests_on == BORROWED else POLICY_STATUSES.index(e.status)
        for e in headlines
    ]
    lengths = [
        np.inf if e.ci_low is None or e.ci_high is None else e.ci_high - e.ci_low
        for e in headlines
    ]
    state = found.comparison.choice.state
    return ranks, CHOICES.index(state), np.array(lengths)


def hidden(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """The same answers, a share of whose labels is blanked at random."""
    is_blank = rows.is_labelled & (rng.random(len(rows)) < share)
    return dataclasses.replace(rows, label=np.where(is_blank, np.nan, rows.label))


def blanked(data: Dataset, policy: str | None, share: float, seed: int) -> Dataset:
    """Blank a share of one policy's own labels; None: of all labels."""
    rng = np.random.default_rng(seed)

    def of(rows: dict[str, Rows]) -> dict[str, Rows]:
        return {
            name: hidden(some, share, rng) if policy in (name, None) else some
            for name, some in rows.items()
        }

    logged = data.logged_rows if policy else hidden(data.logged_rows, share, rng)
    return dataclasses.replace(
        data,
        logged_rows=logged,
        fresh_draws=of({**data.fresh_draws}),
        probe_draws=of({**data.probe_draws}),
    )


@pytest.mark.parametrize("n", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_a_policy_without_its_labels_is_said_no_more_of_and_chosen_no_more(n: int):
    for data in worlds(n):
        ranks, choice, _ = claims(data)
        for i, policy in enumerate(data.policies):
            fewer, unsure, _ = claims(blanked(data, policy, 1.0, 0))
            assert fewer[i] <= ranks[i]
            assert unsure <= choice
        nothing, no_choice, _ = claims(blanked(data, None, 1.0, 0))
        assert (max(nothing), no_choice) == (0, 0)


@pytest.mark.slow
def test_a_share_of_blanked_labels_raises_no_state_beyond_noise():
    """Half of the labels, at random: intervals are wider, and states rise in as few studies as noise makes."""
    raised, ratios = [], []
    for seed, data in enumerate(worlds(20)):
        ranks, choice, lengths = claims(data)
        fewer, unsure, wider = claims(blanked(data, None, 0.5, seed))
        raised += [after > before for before, after in zip(ranks, fewer, strict=True)]
        raised.append(unsure > choice)
        known = np.isfinite(lengths) & np.isfinite(wider)
        ratios += (wider[known] / lengths[known]).tolist()
    print(len(raised), np.mean(raised), np.mean(ratios), np.quantile(ratios, 0.05))
    assert np.mean(raised) <= 0.02
    assert np.mean(ratios) >= 1.2
