"""The tables of STATISTICS.md section 1 that stand in for those of Boubdir et al. (2023): Elo's mean over match orders.

The outcomes are fixed counts, only their order is drawn. A mean is right within 4 permSD / sqrt(n_perms) + .3 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, abilities
from elo_exp.ratings.elo import Matches, replay
from elo_exp.records import Battle

Counts = Mapping[
    tuple[int, int], tuple[int, int]
]  # the pair, and how often its first and its second won

# Three players, 1000 games of A and B, 1000 of B and C: mean ratings, their scatter over orders (where the table has
# one for each player), and the share of single orders that rank all three correctly.
THREE: dict[
    str, tuple[Counts, dict[int, tuple[tuple[float, ...], tuple[float, ...], float]]]
] = {
    "clubs": (
        {(0, 1): (750, 250), (1, 2): (750, 250)},
        {
            1: ((1535.1, 1400.0, 1264.9), (3.3, 5.1, 3.3), 1.0),
            16: ((1594.6, 1400.5, 1205.0), (30, 30, 30), 1.0),
        },
    ),
    "spades": (
        {(0, 1): (750, 250), (1, 2): (510, 490)},
        {
            1: ((1500.0, 1342.6, 1357.5), (3.2, 5.4, 3.7), 0.04),
            16: ((1531.5, 1337.6, 1330.9), (30, 30, 30), 0.55),
        },
    ),
    "diamonds": (
        {(0, 1): (510, 490), (1, 2): (750, 250)},
        {
            1: ((1442.5, 1457.5, 1300.1), (3.7, 5.4, 3.3), 0.04),
            16: ((1468.9, 1462.6, 1268.6), (30, 30, 30), 0.55),
        },
    ),
    "hearts": (
        {(0, 1): (540, 460), (1, 2): (510, 490)},
        {
            1: ((1416.8, 1393.1, 1390.1), (3.7, 5.7, 3.8), 0.62),
            16: ((1422.6, 1393.2, 1384.2), (30, 30, 30), 0.35),
        },
    ),
}
# Two players: the wins of both; by K the mean gap, its scatter over orders, the share of orders with the wrong sign.
KS = (1, 8, 16, 32)
TWO = {
    "N=1000 p=.51": (
        510,
        490,
        [(6.6, 8.1, 0.21), (7.0, 36, 0.42), (7.3, 52, 0.44), (7.3, 77, 0.46)],
        6.95,
    ),
    "N=1000 p=.55": (
        550,
        450,
        [(32.9, 8.2, 0), (35.7, 36, 0.16), (35.9, 53, 0.25), (36.4, 77, 0.32)],
        34.86,
    ),
    "N=1000 p=.60": (
        600,
        400,
        [(66.2, 7.9, 0), (71.6, 35, 0.02), (72.4, 53, 0.09), (73.2, 77, 0.18)],
        70.44,
    ),
    "N=1000 p=.80": (
        800,
        200,
        [(212, 6.4, 0), (243, 35, 0), (245, 52, 0), (250, 75, 0)],
        240.8,
    ),
    "N=300 p=.59": (
        177,
        123,
        [(36.2, 2.9, 0), (63.3, 32, 0.02), (64.7, 49, 0.09), (66.4, 74, 0.19)],
        63.2,
    ),
    "N=300 p=.51": (
        153,
        147,
        [(4.0, 2.9, 0.09), (7.1, 32, 0.41), (7.7, 50, 0.44), (6.8, 75, 0.47)],
        6.95,
    ),
}


def elo(counts: Counts, ks: Sequence[float], *, n_perms: int) -> Array:
    """Final ratings (p, m, k)."""
    sides = [
        side
        for (a, b), (won, lost) in counts.items()
        for side in [(a, b)] * won + [(b, a)] * lost
    ]
    battles = [
        Battle(model_a="abc"[i], model_b="abc"[j], winner="model_a") for i, j in sides
    ]
    played = Matches.of(Battles.from_rows(battles))
    return 1400 + POINTS * replay([played], ks=ks, n_perms=n_perms, seed=20260425)[0]


def bradley_terry(counts: Counts) -> Array:
    m = 1 + max(max(pair) for pair in counts)
    wins = np.zeros((m, m))
    for (a, b), (won, lost) in counts.items():
        wins[a, b], wins[b, a] = won, lost
    return POINTS * abilities(wins)


def tolerance(scatter: float, n_perms: int) -> float:
    return 4 * scatter / math.sqrt(n_perms) + 0.3


def check_three(case: str, *, n_perms: int) -> dict[int, tuple[list[float], float]]:
    """Mean ratings and the share of orders that rank correctly, by K, after comparing the means with the table."""
    counts, table = THREE[case]
    ratings = elo(counts, list(table), n_perms=n_perms)
    found = {}
    for i, (k, (expected, scatter, _)) in enumerate(table.items()):
        mean = ratings[:, :, i].mean(axis=0)
        for rating, told, sd in zip(mean, expected, scatter, strict=True):
            assert rating == pytest.approx(told, abs=tolerance(sd, n_perms))
        right = (np.diff(ratings[:, :, i], axis=1) < 0).all(axis=1)
        found[k] = (mean.round(1).tolist(), float(right.mean()))
    return found


@pytest.mark.parametrize("case", THREE)
def test_three_players_are_rated_as_the_table_has_it(case: str) -> None:
    """With K = 1 Elo has not converged, and puts spades and diamonds in the wrong order; Bradley-Terry does not."""
    means = {k: mean for k, (mean, _) in check_three(case, n_perms=300).items()}
    assert (np.diff(bradley_terry(THREE[case][0])) < 0).all()
    assert (sorted(means[1], reverse=True) == means[1]) == (case in ("clubs", "hearts"))


@pytest.mark.slow
@pytest.mark.parametrize("case", THREE)
def test_three_players_in_many_orders(case: str) -> None:
    found = check_three(case, n_perms=4000)
    for k, (mean, share) in found.items():
        print(
            f"\n{case} K={k}: {' / '.join(f'{rating:.1f}' for rating in mean)}, right order {share:.2f}",
            end="",
        )
        assert share == pytest.approx(THREE[case][1][k][2], abs=0.05)


def check_two(case: str, *, n_perms: int) -> list[tuple[float, float, float]]:
    """Mean gap, its scatter, the share of wrong signs, by K, after comparing the means with the table."""
    won, lost, table, _ = TWO[case]
    ratings = elo({(0, 1): (won, lost)}, KS, n_perms=n_perms)
    gap = ratings[:, 0] - ratings[:, 1]
    for mean, (told, scatter, _) in zip(gap.mean(axis=0), table, strict=True):
        assert mean == pytest.approx(told, abs=tolerance(scatter, n_perms))
    return list(
        zip(
            gap.mean(axis=0),
            gap.std(axis=0, ddof=1),
            (gap < 0).mean(axis=0),
            strict=True,
        )
    )


@pytest.mark.parametrize("case", TWO)
def test_two_players_are_as_far_apart_as_the_table_has_it(case: str) -> None:
    won, lost, _, level = TWO[case]
    check_two(case, n_perms=300)
    ahead, behind = bradley_terry({(0, 1): (won, lost)})
    assert ahead - behind == pytest.approx(level, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("case", TWO)
def test_two_players_in_many_orders(case: str) -> None:
    found = check_two(case, n_perms=10_000)
    for k, (mean, scatter, wrong), (_, told, share) in zip(
        KS, found, TWO[case][2], strict=True
    ):
        print(f"\n{case} K={k}: {mean:.1f} ({scatter:.1f}; {wrong:.2f})", end="")
        assert scatter == pytest.approx(told, rel=0.06)
        assert wrong == pytest.approx(share, abs=0.02)
