"""How fast permutation Elo is: beside plain Python, two peers and its lower bound, in one run.

    python -m tests.benchmarks.bench_elo

The work is the rating stage of a headline run: 4 entrants, 3 dimensions, 500 random orders of the
decisive matches, at K = 16 and the sweep over K = 1, 4, 8, 16 and 32. Plain Python, as one would
write it first, plays the one and then the other.
Once with as many decisive matches in each dimension as there are pairs, and once with fewer. Every
figure is the processor time of the fastest of interleaved repeats, on one thread: read the ratios,
not the seconds. Each result is also compared with plain Python's, rating by rating.

Then a long file, of 300,000 decisive matches of 20 models, 100 orders: whole orders as a multiple of
their ends, by K.
"""

from __future__ import annotations

import os

# numpy reads them when it is imported
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.elo import play_orders
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.games import Games
from elo_exp.ratings.games import make_games as games_of
from elo_exp.ratings.tail import Tail, find_tail
from elo_exp.records import Battle
from tests.benchmarks.races import Contestant, machine, show

Sides = list[tuple[str, str]]  # (winner, loser), one dimension

STRENGTHS = {"base": 1.0, "full_poe": 2.0, "security": 0.8, "security_robust": 1.5}
ENTRANTS = tuple(STRENGTHS)
N_PROMPTS = 143
K = 16.0
KS = (1.0, 4.0, 8.0, 16.0, 32.0)
N_PERMS = 500
SEED = 20260425
R0 = 1400.0
WORKLOADS = ((858, 858, 858), (558, 701, 858))  # decisive matches of each dimension
TOLERANCE = 1e-9  # rating points, between elo_exp and plain Python
LONG, N_LONG = (300_000, 20), 100  # matches and models; orders
EXP_BLOCK = 2048  # 16 KiB in and 16 KiB out stay in the L1 cache


def games(n: int, rng: np.random.Generator) -> Sides:
    """The n decisive matches of one dimension: each prompt has every pair of entrants."""
    pairs = list(itertools.combinations(ENTRANTS, 2)) * N_PROMPTS
    kept = np.sort(rng.choice(len(pairs), size=n, replace=False))
    played = []
    for a, b in (pairs[i] for i in kept):
        a_wins = rng.random() < STRENGTHS[a] / (STRENGTHS[a] + STRENGTHS[b])
        played.append((a, b) if a_wins else (b, a))
    return played


def plain_python(dimensions: Sequence[Sides], n_perms: int) -> Array:
    """The ratings at K, then the sweep over all Ks, which is what is compared."""
    plain_sweep(dimensions, n_perms, ks=(K,))
    return plain_sweep(dimensions, n_perms)


def plain_sweep(
    dimensions: Sequence[Sides], n_perms: int, *, ks: Sequence[float] = KS
) -> Array:
    """The definition: a dict of ratings, a pass for each permutation and each K. (p, d, m, k)"""
    found = np.empty((n_perms, len(dimensions), len(ENTRANTS), len(ks)))
    for d, played in enumerate(dimensions):
        for i, k in enumerate(ks):
            rng = np.random.default_rng(SEED)
            for p in range(n_perms):
                ratings = dict.fromkeys(ENTRANTS, R0)
                for t in rng.permutation(len(played)).tolist():
                    winner, loser = played[t]
                    gap = ratings[loser] - ratings[winner]
                    gain = k * (1 - 1 / (1 + 10 ** (gap / 400)))
                    ratings[winner] += gain
                    ratings[loser] -= gain
                found[p, d, :, i] = list(ratings.values())
    return found


def elo_exp(dimensions: Sequence[Sides], n_perms: int) -> Array:
    """The stage as a run plays it, shuffles included."""
    log_odds = [
        play_orders(columns(tuple(played)), ks=KS, n_perms=n_perms, seed=SEED)[0]
        for played in dimensions
    ]
    return R0 + POINTS_PER_LOG_ODDS * np.stack(log_odds, axis=1)


@functools.cache
def columns(played: tuple[tuple[str, str], ...]) -> Games:
    rows = [Battle(model_a=a, model_b=b, winner="model_a") for a, b in played]
    return games_of(Battles.from_rows(rows), orders="reconciled")


def evalica_api(dimensions: Sequence[Sides], n_perms: int) -> Array:
    """evalica.elo, called once for each permutation and K; shuffles shared by the Ks."""
    import evalica

    found = np.empty((n_perms, len(dimensions), len(ENTRANTS), len(KS)))
    for d, played in enumerate(dimensions):
        rng = np.random.default_rng(SEED)
        won = [evalica.Winner.X] * len(played)
        for p in range(n_perms):
            order = rng.permutation(len(played)).tolist()
            winners, losers = zip(*(played[t] for t in order), strict=True)
            for i, k in enumerate(KS):
                result = evalica.elo(winners, losers, won, initial=R0, k=k)
                found[p, d, :, i] = result.scores[list(ENTRANTS)]
    return found


def lockstep(dimensions: Sequence[Sides], n_perms: int) -> Array:
    """As FastChat bootstraps Elo: numpy steps match by match through all permutations of one dimension
    at one K. Written from the description of its vectorised Elo; the shuffles are shared by the Ks."""
    index = {name: i for i, name in enumerate(ENTRANTS)}
    perms, alpha = np.arange(n_perms), np.log(10) / 400
    found = np.full((len(dimensions), len(KS), n_perms, len(ENTRANTS)), R0)
    for played, by_k in zip(dimensions, found, strict=True):
        rng = np.random.default_rng(SEED)
        sides = np.array([(index[winner], index[loser]) for winner, loser in played])
        orders = np.array([rng.permutation(len(played)) for _ in perms])
        for k, ratings in zip(KS, by_k, strict=True):
            for order in orders.T:
                winner, loser = sides[order].T
                gap = ratings[perms, winner] - ratings[perms, loser]
                gain = k / (1 + np.exp(alpha * gap))
                ratings[perms, winner] += gain
                ratings[perms, loser] -= gain
    return found.transpose(2, 0, 3, 1)


def exponentials(dimensions: Sequence[Sides], n_perms: int) -> None:
    """np.exp alone, once for each match, permutation and K: no replay with it can be faster."""
    arguments = np.linspace(-2.0, 2.0, EXP_BLOCK)
    results = np.empty_like(arguments)
    for _ in range(sum(map(len, dimensions)) * n_perms * len(KS) // EXP_BLOCK):
        np.exp(arguments, out=results)


def contestant(
    name: str,
    play: Callable[[Sequence[Sides], int], Array | None],
    dimensions: Sequence[Sides],
    *needs: str,
    n_perms: int = N_PERMS,
) -> Contestant:
    run = functools.partial(play, dimensions, n_perms)
    return Contestant(name=name, run=run, needs=needs, share=n_perms / N_PERMS)


def long_file() -> Games:
    """Matches of LONG models, each on a prompt of its own."""
    n, m = LONG
    rng = np.random.default_rng(SEED)
    theta = rng.normal(0.0, 0.8, m)
    first = rng.integers(m, size=n)
    second = (first + 1 + rng.integers(m - 1, size=n)) % m
    won = rng.random(n) < 1 / (1 + np.exp(theta[second] - theta[first]))
    return Games(
        n_models=m,
        first=np.where(won, first, second),
        second=np.where(won, second, first),
        score=np.ones(n),
        cluster=np.arange(n),
        prompts=np.arange(n),
        position=np.zeros(n),
        is_one_order=False,
        battle=np.arange(n),
    )


def race_of_ends() -> None:
    """Whole orders beside the ends that decide, by K."""
    played = long_file()
    for k in (4.0, 16.0):
        end = find_tail(played.wins(), [k])
        rules: dict[str, Any] = {"ks": [k], "n_perms": N_LONG, "seed": SEED}

        def run(end: Tail | None, rules: dict[str, Any] = rules) -> Array:
            return np.asarray(
                POINTS_PER_LOG_ODDS
                * play_orders(played, end=end, **rules)[0].mean(axis=0)
            )

        contestants = [
            Contestant(name="ends", run=functools.partial(run, end)),
            Contestant(
                name="whole orders", run=functools.partial(run, None), once=True
            ),
        ]
        n, m = LONG
        title = (
            f"{n:,} decisive matches of {m} models, {N_LONG} orders, K = {k:g}: the last "
            f"{end.lengths[k]:,}"
        )
        show(title, contestants, repeats=3)


def main() -> int:
    print(machine("evalica"))
    difference = 0.0
    for lengths in WORKLOADS:
        rng = np.random.default_rng(SEED)
        dimensions = [games(n, rng) for n in lengths]
        contestants = [
            contestant("elo_exp", elo_exp, dimensions),
            contestant("plain Python", plain_python, dimensions, n_perms=50),
            contestant("evalica.elo", evalica_api, dimensions, "evalica", n_perms=2),
            contestant("FastChat-style numpy", lockstep, dimensions),
            contestant("np.exp alone", exponentials, dimensions),
        ]
        title = f"{' + '.join(map(str, lengths))} decisive matches, 500 orders, 5 K"
        reference = plain_sweep(dimensions, N_PERMS)
        found = show(title, contestants, repeats=7, reference=reference)
        difference = max(difference, found)
    race_of_ends()
    agrees = difference <= TOLERANCE
    print(f"\nelo_exp and plain Python agree: {'yes' if agrees else 'NO'}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
