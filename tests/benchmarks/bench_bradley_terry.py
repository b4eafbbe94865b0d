"""How fast Bradley-Terry is, with its intervals, beside evalica, FastChat and arena-rank.

    python -m tests.benchmarks.bench_bradley_terry

Three workloads: 100,000 battles of 130 models, from strings to ratings with a sandwich; 100
bootstraps of them; 2,000,000 battles of 300 models whose strings are numbers already. Every figure
is the processor time of the fastest of interleaved repeats, on one thread: read the ratios, not the
seconds. The difference is the largest from abilities whose gradient is zero in extended precision.
"""

from __future__ import annotations

import os

# Read when numpy and jax are imported.
os.environ.update(
    OPENBLAS_NUM_THREADS="1",
    OMP_NUM_THREADS="1",
    JAX_PLATFORMS="cpu",
    TF_CPP_MIN_LOG_LEVEL="3",
    XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
)

import functools
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.arrays import Array, Index
from elo_exp.ratings.bootstrap import bootstrap_abilities
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit
from elo_exp.ratings.games import Games
from tests.benchmarks.races import Contestant, machine, show

WINNERS = ("model_b", "tie", "model_a")  # by twice the score of model_a
TIES = 0.3
SPREAD = 0.8  # standard deviation of the abilities, in log-odds
POPULARITY = 0.5  # and of the logarithm of how often a model is drawn
SEED = 20260425
N_BOOTSTRAPS = 100
TOLERANCE = 1e-8  # rating points, between elo_exp and the reference


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Battles as numbers, and as columns of strings."""

    models: tuple[str, ...]
    a: Index
    b: Index
    score: Array

    @functools.cached_property
    def strings(self) -> tuple[list[str], list[str], list[str]]:
        """Every row has strings of its own, as rows that are read from a file."""
        columns = (
            (self.models, self.a),
            (self.models, self.b),
            (WINNERS, (2 * self.score).astype(int)),
        )
        return tuple(
            [names[i][:3] + names[i][3:] for i in numbers.tolist()]
            for names, numbers in columns
        )  # type: ignore[return-value]

    @functools.cached_property
    def frame(self) -> Any:
        import pandas

        return pandas.DataFrame(
            dict(zip(("model_a", "model_b", "winner"), self.strings, strict=True))
        )

    @functools.cached_property
    def reference(self) -> Array:
        """Ratings (m,) by many steps of Newton's method, the gradient in extended precision."""
        m = len(self.models)
        wins = np.zeros((m, m), dtype=np.longdouble)
        np.add.at(wins, (self.a, self.b), self.score)
        np.add.at(wins, (self.b, self.a), 1 - self.score)
        n_games, theta = wins + wins.T, np.zeros(m, dtype=np.longdouble)
        for _ in range(20):
            p = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
            weight = (n_games * p * (1 - p)).astype(np.float64)
            curvature = np.diag(weight.sum(axis=1)) - weight + 1 / m
            gradient = (wins - n_games * p).sum(axis=1).astype(np.float64)
            theta = theta + np.linalg.solve(curvature, gradient)
        return centred(np.asarray(POINTS_PER_LOG_ODDS * theta, dtype=np.float64))


def workload(n: int, m: int) -> Workload:
    """n battles of m models."""
    rng = np.random.default_rng(SEED)
    theta = rng.normal(scale=SPREAD, size=m)
    share = np.exp(rng.normal(scale=POPULARITY, size=m))
    a, b = rng.choice(m, p=share / share.sum(), size=(2, n))
    b = np.where(a == b, (b + 1) % m, b)
    won = rng.random(n) < 1 / (1 + np.exp(theta[b] - theta[a]))
    score = np.where(rng.random(n) < TIES, 0.5, won)
    models = tuple(f"organisation/model-{i:03d}-instruct" for i in range(m))
    return Workload(models=models, a=a, b=b, score=score)


def centred(ratings: Array) -> Array:
    return ratings - ratings.mean()


# elo_exp


def games_of_numbers(a: Index, b: Index, score: Array) -> Games:
    every = np.arange(len(a))
    m = 1 + int(max(a.max(), b.max()))
    return Games(
        n_models=m,
        first=a,
        second=b,
        score=score,
        cluster=every,
        prompts=every,
        battle=every,
        position=np.zeros(len(a)),
        is_one_order=False,
    )


def games_of_strings(
    model_a: Sequence[str], model_b: Sequence[str], winner: Sequence[str]
) -> Games:
    """Each on a prompt of its own; models are sorted."""
    number = {name: i for i, name in enumerate(sorted({*model_a, *model_b}))}
    score = {word: i / 2 for i, word in enumerate(WINNERS)}
    a, b = (np.array([number[name] for name in side]) for side in (model_a, model_b))
    return games_of_numbers(a, b, np.array([score[word] for word in winner]))


def fit(games: Games) -> Array:
    """With a sandwich."""
    found = Fit.from_games(games)
    assert np.isfinite(found.covariance).all()
    return POINTS_PER_LOG_ODDS * found.theta


def bootstrapped(work: Workload) -> None:
    found = Fit.from_games(games_of_strings(*work.strings))
    bootstrap_abilities({"d": found}, n_bootstraps=N_BOOTSTRAPS, seed=SEED)


# The peers


def evalica_rows(work: Workload) -> tuple[list[str], list[str], list[Any]]:
    import evalica

    theirs = dict(
        zip(
            WINNERS,
            (evalica.Winner.Y, evalica.Winner.Draw, evalica.Winner.X),
            strict=True,
        )
    )
    model_a, model_b, winner = work.strings
    return model_a, model_b, [theirs[word] for word in winner]


def evalica_fit(work: Workload) -> Array:
    import evalica

    scores = evalica.bradley_terry(*evalica_rows(work)).scores.sort_index()
    return centred(POINTS_PER_LOG_ODDS * np.log(scores.to_numpy()))


def fastchat_rows(work: Workload) -> tuple[npt.NDArray[Any], Array]:
    """What FastChat keeps: each (model_a, model_b, outcome) that was seen, and how often."""
    import pandas

    frame = work.frame
    number, _ = pandas.factorize(
        pandas.concat([frame["model_a"], frame["model_b"]]), sort=True
    )
    twice = frame["winner"].map({word: i for i, word in enumerate(WINNERS)})
    columns = np.stack([*np.split(number, 2), twice], axis=1).astype(np.int32)
    rows, count = np.unique(columns, return_counts=True, axis=0)
    return rows, count.astype(np.float64)


def fastchat_fit(rows: npt.NDArray[Any], weight: Array) -> Array:
    """FastChat in words of our own: L-BFGS-B from zero, a logistic loss over distinct rows, its
    gradient scattered row by row. In units of 400 points."""
    from scipy.optimize import minimize
    from scipy.special import expit

    base, sign, m = np.log(10.0), np.array([1.0, -1.0]), rows[:, :2].max() + 1
    sides, score = rows[:, :2], rows[:, 2] / 2

    def loss(ratings: Array) -> tuple[float, Array]:
        of_side = ratings[sides]
        p = expit(base * (of_side[:, 0] - of_side[:, 1]))
        value = -np.sum(weight * (score * np.log(p) + (1 - score) * np.log(1 - p)))
        gradient = np.zeros(m)
        np.add.at(gradient, sides, (base * weight * (p - score))[:, None] * sign)
        return float(value), gradient

    options = {"maxiter": 100, "gtol": 1e-6}
    found = minimize(loss, np.zeros(m), jac=True, method="L-BFGS-B", options=options)
    return centred(400 * found.x)


def fastchat_bootstrapped(work: Workload) -> None:
    """Multinomial counts of the distinct rows, each fitted from nothing, in one process."""
    rows, count = fastchat_rows(work)
    total = count.sum()
    rng = np.random.default_rng(SEED)
    for drawn in rng.multinomial(int(total), count / total, size=25):
        fastchat_fit(rows, drawn / total)


def arena_rank_fit(work: Workload) -> Array:
    from arena_rank.models.bradley_terry import BradleyTerry as Theirs
    from arena_rank.utils.data_utils import PairDataset

    dataset = PairDataset.from_pandas(work.frame)
    found = Theirs(n_competitors=dataset.n_competitors).compute_ratings_and_cis(dataset)
    assert np.isfinite(np.asarray(found["variances"])).all()
    return centred(np.asarray(found["ratings"]))


def main() -> int:
    warnings.simplefilter("ignore")  # of the peers
    print(machine("evalica", "pandas", "scipy", "arena-rank"))
    small, large = workload(100_000, 130), workload(2_000_000, 300)
    numbers = functools.cache(lambda: games_of_numbers(large.a, large.b, large.score))
    pandas_and_arena_rank = ("pandas", "arena_rank")
    off = show(
        "100,000 battles, 130 models: strings to ratings and sandwich",
        [
            Contestant(
                name="elo_exp", run=lambda: fit(games_of_strings(*small.strings))
            ),
            Contestant(
                name="evalica, no intervals",
                run=lambda: evalica_fit(small),
                needs=("evalica",),
            ),
            Contestant(
                name="FastChat, no intervals",
                run=lambda: fastchat_fit(*fastchat_rows(small)),
                needs=("pandas",),
            ),
            Contestant(
                name="arena-rank",
                run=lambda: arena_rank_fit(small),
                needs=pandas_and_arena_rank,
                once=True,
            ),
        ],
        repeats=7,
        reference=small.reference,
    )
    show(
        "100,000 battles, 130 models: 100 bootstraps",
        [
            Contestant(name="elo_exp", run=lambda: bootstrapped(small)),
            Contestant(
                name="FastChat",
                run=lambda: fastchat_bootstrapped(small),
                needs=("pandas",),
                share=0.25,
                once=True,
            ),
        ],
        repeats=3,
    )
    off = max(
        off,
        show(
            "2,000,000 battles, 300 models: ratings and sandwich; the peers from strings",
            [
                Contestant(name="elo_exp, numbers", run=lambda: fit(numbers())),
                Contestant(
                    name="elo_exp",
                    run=lambda: fit(games_of_strings(*large.strings)),
                    once=True,
                ),
                Contestant(
                    name="arena-rank",
                    run=lambda: arena_rank_fit(large),
                    needs=pandas_and_arena_rank,
                    once=True,
                ),
            ],
            repeats=3,
            reference=large.reference,
        ),
    )
    print(f"\nelo_exp agrees with the reference: {'yes' if off <= TOLERANCE else 'NO'}")
    return 0 if off <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
