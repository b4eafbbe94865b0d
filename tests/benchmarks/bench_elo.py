"""How fast permutation Elo is: beside plain Python, two peers and its lower bound, in one run.

    python -m tests.benchmarks.bench_elo

The work is the rating stage of a headline run: 4 entrants, 3 dimensions, 500 random orders of the decisive matches, the
ratings at K = 16 and the sweep over K = 1, 4, 8, 16 and 32. Plain Python, as one would write it first, plays the one
and then the other; a second row lets it take K = 16 from the sweep, as everybody else does. Once with 858 decisive
matches in each dimension, as many as there are pairs, and twice with counts that differ, so that the dimensions share
fewer shuffles. Every figure is the processor time of the fastest of interleaved repeats, on one thread: read the
ratios, not the seconds. The slow contestants run a part of the permutations, and their time is scaled up; the table
says so. Each result is also compared with plain Python's, rating by rating.
"""

from __future__ import annotations

import os

os.environ.update(
    OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"
)  # numpy reads them when it is imported

import functools
import importlib.util
import itertools
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS
from elo_exp.ratings.elo import replay
from elo_exp.ratings.games import Games as Games_
from elo_exp.ratings.games import games as games_of
from elo_exp.records import Battle

Array = npt.NDArray[np.float64]
Games = list[tuple[str, str]]  # (winner, loser), one dimension
Samples = list[Array]  # final ratings (permutation, entrant, K) of each dimension

ENTRANTS = ("base_olmo", "full_poe", "security_only", "security_plus_robustness")
STRENGTHS = {
    "base_olmo": 1.0,
    "full_poe": 2.0,
    "security_only": 0.8,
    "security_plus_robustness": 1.5,
}
N_PROMPTS = 143
K = 16.0
KS = (1.0, 4.0, 8.0, 16.0, 32.0)
N_PERMS = 500
SEED = 20260425
R0 = 1400.0
WORKLOADS = (
    (858, 858, 858),
    (558, 858, 858),
    (558, 701, 858),
)  # decisive matches of each dimension
PRODUCT = "elo_exp replay"
REPEATS = 11
TOLERANCE = 1e-9  # rating points, between the product and plain Python
EXP_BLOCK = 2048  # 16 KiB in and 16 KiB out stay in the L1 cache


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """`run` plays `n_perms` permutations of all dimensions and Ks; None where there are no ratings to compare."""

    name: str
    n_perms: int
    run: Callable[[int], Samples | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of one contestant after the race; `seconds` is for all permutations."""

    name: str
    n_perms: int
    seconds: float
    difference: float | None  # from plain Python, rating points


def games(n: int, rng: np.random.Generator) -> Games:
    """The n decisive matches of one dimension, in prompt order: each prompt has every pair of entrants."""
    pairs = list(itertools.combinations(ENTRANTS, 2)) * N_PROMPTS
    kept = np.sort(rng.choice(len(pairs), size=n, replace=False))
    played = []
    for a, b in (pairs[i] for i in kept):
        a_wins = rng.random() < STRENGTHS[a] / (STRENGTHS[a] + STRENGTHS[b])
        played.append((a, b) if a_wins else (b, a))
    return played


def plain_python(dimensions: Sequence[Games], n_perms: int) -> Samples:
    """The ratings at K, then the sweep over all Ks, which is what is compared."""
    plain_sweep(dimensions, n_perms, ks=(K,))
    return plain_sweep(dimensions, n_perms)


def plain_sweep(
    dimensions: Sequence[Games], n_perms: int, *, ks: Sequence[float] = KS
) -> Samples:
    """The definition: a dict of ratings, a pass for each permutation and each K."""
    samples = [np.empty((n_perms, len(ENTRANTS), len(ks))) for _ in dimensions]
    for ratings_pmk, played in zip(samples, dimensions, strict=True):
        for i, k in enumerate(ks):
            rng = np.random.default_rng(SEED)
            for p in range(n_perms):
                ratings = dict.fromkeys(ENTRANTS, R0)
                for t in rng.permutation(len(played)).tolist():
                    winner, loser = played[t]
                    expected = 1 / (
                        1 + 10 ** ((ratings[loser] - ratings[winner]) / 400)
                    )
                    gain = k * (1 - expected)
                    ratings[winner] += gain
                    ratings[loser] -= gain
                ratings_pmk[p, :, i] = list(ratings.values())
    return samples


def product(dimensions: Sequence[Games], n_perms: int) -> Samples:
    """The stage as a run of elo_exp plays it, shuffles included."""
    return [
        R0
        + POINTS * replay(columns(tuple(played)), ks=KS, n_perms=n_perms, seed=SEED)[0]
        for played in dimensions
    ]


@functools.cache
def columns(played: tuple[tuple[str, str], ...]) -> Games_:
    """As they are read from a file; ENTRANTS are sorted, as the models of battles are."""
    rows = [Battle(model_a=a, model_b=b, winner="model_a") for a, b in played]
    return games_of(Battles.from_rows(rows), use="consistent")


def evalica_api(dimensions: Sequence[Games], n_perms: int) -> Samples:
    """evalica.elo, called once for each permutation and K; shuffles shared by the Ks."""
    import evalica

    samples = [np.empty((n_perms, len(ENTRANTS), len(KS))) for _ in dimensions]
    for ratings_pmk, played in zip(samples, dimensions, strict=True):
        rng = np.random.default_rng(SEED)
        won = [evalica.Winner.X] * len(played)
        for p in range(n_perms):
            winners, losers = zip(
                *(played[t] for t in rng.permutation(len(played)).tolist()), strict=True
            )
            for i, k in enumerate(KS):
                result = evalica.elo(winners, losers, won, initial=R0, k=k)
                ratings_pmk[p, :, i] = result.scores[list(ENTRANTS)]
    return samples


def lockstep(dimensions: Sequence[Games], n_perms: int) -> Samples:
    """As FastChat bootstraps Elo: numpy steps match by match through all permutations of one dimension at one K.

    Written from the description of its vectorised Elo; the shuffles are shared by the Ks.
    """
    index = {name: i for i, name in enumerate(ENTRANTS)}
    perms = np.arange(n_perms)
    alpha = np.log(10) / 400
    samples = []
    for played in dimensions:
        rng = np.random.default_rng(SEED)
        sides = np.array([(index[winner], index[loser]) for winner, loser in played])
        orders = np.array([rng.permutation(len(played)) for _ in perms])
        ratings_kpm = np.full((len(KS), n_perms, len(ENTRANTS)), R0)
        for k, ratings in zip(KS, ratings_kpm, strict=True):
            for order in orders.T:
                winner, loser = sides[order].T
                gap = ratings[perms, winner] - ratings[perms, loser]
                gain = k / (1 + np.exp(alpha * gap))
                ratings[perms, winner] += gain
                ratings[perms, loser] -= gain
        samples.append(np.moveaxis(ratings_kpm, 0, 2))
    return samples


def exponentials(dimensions: Sequence[Games], n_perms: int) -> None:
    """np.exp alone, once for each match, permutation and K: what no replay with numpy's exp can undercut."""
    count = sum(map(len, dimensions)) * n_perms * len(KS)
    arguments = np.linspace(-2.0, 2.0, EXP_BLOCK)
    results = np.empty_like(arguments)
    for _ in range(count // EXP_BLOCK):
        np.exp(arguments, out=results)
    rest = count % EXP_BLOCK
    np.exp(arguments[:rest], out=results[:rest])


def contestants(dimensions: Sequence[Games]) -> list[Contestant]:
    """Plain Python first, np.exp last; evalica only where it is installed."""
    entries: list[tuple[str, int, Callable[[Sequence[Games], int], Samples | None]]] = [
        ("plain Python", 50, plain_python),
        ("plain Python, K shared", 50, plain_sweep),
        (PRODUCT, N_PERMS, product),
        ("evalica.elo", 2, evalica_api),
        ("FastChat-style numpy", N_PERMS, lockstep),
        ("np.exp alone", N_PERMS, exponentials),
    ]
    if importlib.util.find_spec("evalica") is None:
        entries = [entry for entry in entries if entry[2] is not evalica_api]
    return [
        Contestant(name=name, n_perms=n_perms, run=functools.partial(play, dimensions))
        for name, n_perms, play in entries
    ]


def race(entries: Sequence[Contestant]) -> list[Row]:
    """Time every contestant in turn, REPEATS times over; plain Python, the first, is what results are held against."""
    seconds = {entry.name: float("inf") for entry in entries}
    samples: dict[str, Samples | None] = {}
    for _ in range(REPEATS):
        for entry in entries:
            start = time.process_time()
            samples[entry.name] = entry.run(entry.n_perms)
            elapsed = time.process_time() - start
            seconds[entry.name] = min(
                seconds[entry.name], elapsed * N_PERMS / entry.n_perms
            )
    reference = samples[entries[0].name]
    return [
        Row(
            name=entry.name,
            n_perms=entry.n_perms,
            seconds=seconds[entry.name],
            difference=None
            if entry is entries[0]
            else largest_difference(samples[entry.name], reference),
        )
        for entry in entries
    ]


def largest_difference(
    samples: Samples | None, reference: Samples | None
) -> float | None:
    """Between any two ratings of the permutations that both have played."""
    if samples is None or reference is None:
        return None
    n = min(len(samples[0]), len(reference[0]))
    return max(
        float(np.abs(ours[:n] - theirs[:n]).max())
        for ours, theirs in zip(samples, reference, strict=True)
    )


def machine() -> str:
    evalica = (
        f"evalica {version('evalica')}"
        if importlib.util.find_spec("evalica")
        else "evalica not installed"
    )
    return (
        f"python {platform.python_version()}, numpy {np.__version__}, {evalica}, "
        f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores, 1 thread used"
    )


def line(row: Row, rows: Sequence[Row]) -> str:
    plain, bound = rows[0].seconds, rows[-1].seconds
    difference = "-" if row.difference is None else f"{row.difference:.1e}"
    timed = f"{row.n_perms} perms" + (
        f", x {N_PERMS / row.n_perms:g}" if row.n_perms < N_PERMS else ""
    )
    return (
        f"  {row.name:<24}{row.seconds:>8.4f}{plain / row.seconds:>16.1f}{row.seconds / bound:>14.1f}"
        f"{difference:>16}   {timed}"
    )


def main() -> int:
    print(machine())
    print(
        f"{len(ENTRANTS)} entrants, {N_PERMS} permutations, K = {', '.join(f'{k:g}' for k in KS)}; ",
        end="",
    )
    print(f"fastest of {REPEATS} interleaved repeats\n")
    print(
        f"{'decisive matches':<24}{'seconds':>10}{'times as fast':>16}{'times the':>14}{'largest diff.':>16}"
    )
    print(
        f"{'':<24}{'':>10}{'as plain Python':>16}{'np.exp bound':>14}{'from plain':>16}   timed on"
    )
    agreed = True
    for lengths in WORKLOADS:
        rng = np.random.default_rng(SEED)
        rows = race(contestants([games(n, rng) for n in lengths]))
        arguments = sum(lengths) * N_PERMS * len(KS)
        print(f"\n{' + '.join(map(str, lengths))}  ({arguments / 1e6:.3f} M updates)")
        for row in rows:
            print(line(row, rows))
        ours = next(row.difference for row in rows if row.name == PRODUCT)
        agreed = agreed and ours is not None and ours <= TOLERANCE
    print(
        f"\nelo_exp and plain Python agree within {TOLERANCE:g} rating points: {'yes' if agreed else 'NO'}"
    )
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
