"""How often each entrant beats each other one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.records import Battle, Record
from elo_exp.results import Z95
from elo_exp.statistics.likelihood import games, models, pairs
from elo_exp.statistics.student import half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate(Record):
    """Counts of one pair in one dimension; the pair is sorted by name and `ties` includes the inconsistent ones."""

    dimension: str
    entrant_a: str
    entrant_b: str
    a_wins: int
    b_wins: int
    ties: int
    inconsistent: int


_NO_VARIATION = 1e-12  # of a game's: what rounding leaves of none


def count(battles: Sequence[Battle], *, dimension: str) -> list[WinRate]:
    """Wins, ties and inconsistent judgments of every pair that met; pairs and their sides sorted by name."""
    a_wins: Counter[tuple[str, str]] = Counter()
    b_wins: Counter[tuple[str, str]] = Counter()
    ties: Counter[tuple[str, str]] = Counter()
    inconsistent: Counter[tuple[str, str]] = Counter()
    for battle in battles:
        pair = (min(battle.model_a, battle.model_b), max(battle.model_a, battle.model_b))
        if battle.is_tie:
            ties[pair] += 1
            inconsistent[pair] += battle.is_inconsistent
        elif (battle.winner == "model_a") == (battle.model_a == pair[0]):
            a_wins[pair] += 1
        else:
            b_wins[pair] += 1
    return [
        WinRate(
            dimension=dimension,
            entrant_a=pair[0],
            entrant_b=pair[1],
            a_wins=a_wins[pair],
            b_wins=b_wins[pair],
            ties=ties[pair],
            inconsistent=inconsistent[pair],
        )
        for pair in sorted(a_wins.keys() | b_wins.keys() | ties.keys())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How often the first of a pair, by name, wins."""

    n_prompts: int
    n_games: int
    share: float
    std_error: float | None  # prompt-clustered; None where the prompts do not differ


def shares(battles: Sequence[Battle], *, use: str, ties: str) -> dict[tuple[str, str], Share]:
    """By pair, sorted by name. A pair without a game that counts is absent.

    use   both: two games where both orders were asked; consistent: the reconciled winner
    ties  half: of a win for each; drop: left out
    """
    names = models(battles)
    played = games(battles, names, use=use)
    met = pairs(played)
    pair, half_points = np.divmod(met.code, 3)
    kept = half_points != 1 if ties == "drop" else np.ones(len(pair), dtype=bool)
    pair, score, cluster = pair[kept], half_points[kept] / 2.0, played.cluster[kept]
    n_games = np.bincount(pair, minlength=len(met.first))
    mean = np.bincount(pair, score, len(met.first)) / np.maximum(n_games, 1)
    place, number = np.unique(pair * played.n_clusters + cluster, return_inverse=True)
    moved = np.bincount(number, score - mean[pair])  # by each prompt of each pair
    of_pair = place // max(played.n_clusters, 1)
    n_prompts = np.bincount(of_pair, minlength=len(n_games))
    squares = np.bincount(of_pair, moved**2, len(n_games))
    return {
        (names[met.first[p]], names[met.second[p]]): Share(
            n_prompts=int(n_prompts[p]),
            n_games=int(n_games[p]),
            share=float(mean[p]),
            std_error=_error(squares[p], n_prompts[p], n_games[p]),
        )
        for p in np.flatnonzero(n_games)
    }


def _error(squares: float, n_prompts: int, n_games: int) -> float | None:
    if n_prompts < 2 or squares <= _NO_VARIATION * n_games:
        return None
    return math.sqrt(n_prompts / (n_prompts - 1) * squares) / float(n_games)


# Intervals


def share_interval(share: float, n: float, *, half_width: float = Z95) -> tuple[float, float]:
    """95 % of a share of n battles, within [0, 1] and of some length also where all or none was won (Wilson 1927).

    half_width  standard errors that a plain interval has on each side
    """
    weight = half_width**2 / n
    center = (share + weight / 2) / (1 + weight)
    half = math.sqrt(weight * share * (1 - share) + weight**2 / 4) / (1 + weight)
    return max(center - half, 0.0), min(center + half, 1.0)


def clustered_interval(
    share: float, std_error: float | None, n_prompts: int
) -> tuple[float, float] | None:
    """95 % of a share whose error comes from prompts, within [0, 1]; None where they do not tell an error.

    It is Wilson's, of as many battles as have this error if each is an observation, with Student's t in place of 1.96
    (Franco et al. 2019).
    """
    if (
        std_error is None or not 0.0 < share < 1.0
    ):  # of nothing but wins, or of none, prompts tell no error
        return None
    return share_interval(
        share, share * (1 - share) / std_error**2, half_width=half_width(n_prompts)
    )
