"""How fast Bradley-Terry is, with its intervals: beside evalica, FastChat's algorithm and arena-rank, in one run.

    python -m tests.benchmarks.bench_bradley_terry

Three workloads: 100,000 battles of 130 models, from strings to ratings with a sandwich; 100 bootstraps of them;
2,000,000 battles of 300 models whose strings are numbers already. Every figure is the processor time of the fastest of
interleaved repeats, on one thread: read the ratios, not the seconds. The error is the largest difference from abilities
whose gradient is zero in extended precision. A fourth table says what elo_exp holds in memory at a time.

The first call of a contestant is not timed: arena-rank compiles its optimiser in each fit, but the rest only once. The
slow ones fit a part of the bootstraps, and their time is scaled up; the table says so.
"""

from __future__ import annotations

import os

# Read when numpy and jax are imported.
os.environ.update(
    OPENBLAS_NUM_THREADS="1",
    OMP_NUM_THREADS="1",
    JAX_PLATFORMS="cpu",
    TF_CPP_MIN_LOG_LEVEL="3",
)
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import functools
import importlib.util
import platform
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, BradleyTerry, Fit, bootstrap
from elo_exp.ratings.games import Games
from elo_exp.records import Battle

Array = npt.NDArray[np.float64]

WINNERS = ("model_b", "tie", "model_a")  # by twice the score of model_a
TIES = 0.3
SPREAD = 0.8  # standard deviation of the abilities, in log-odds
POPULARITY = 0.5  # and of the logarithm of how often a model is drawn
SEED = 20260425
N_BOOTSTRAPS = 100
SIZES = (
    100_000,
    200_000,
    400_000,
    800_000,
    2_000_000,
)  # battles, of which the memory is measured
A_QUESTION = 10  # battles on each question, where questions are clusters
REPEATS = 15
FEW = 3  # repeats of what takes seconds
TOLERANCE = 1e-8  # rating points, between the product and the reference
PEERS = {
    "evalica": "evalica",
    "pandas": "pandas",
    "scipy": "scipy",
    "arena_rank": "arena-rank",
}  # module: package


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Battles as columns of strings."""

    model_a: list[str]
    model_b: list[str]
    winner: list[str]
    reference: Array  # (m,) the maximum, in rating points, mean zero

    @functools.cached_property
    def frame(self) -> Any:
        import pandas

        return pandas.DataFrame(
            {"model_a": self.model_a, "model_b": self.model_b, "winner": self.winner}
        )

    @functools.cached_property
    def battles(self) -> list[Battle]:
        columns = zip(self.model_a, self.model_b, self.winner, strict=True)
        return [Battle(model_a=a, model_b=b, winner=winner) for a, b, winner in columns]

    @functools.cached_property
    def games(self) -> Games:
        return games_of_columns(self.model_a, self.model_b, self.winner)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """`run` gives ratings (m,) in points, up to their mean, models sorted; None where that says nothing."""

    name: str
    run: Callable[[], Array | None]
    needs: tuple[str, ...] = ()  # modules
    repeats: int = REPEATS
    share: float = 1.0  # of the work that it does
    note: str = ""


def workload(n: int, m: int) -> Workload:
    """n battles of m models. Every row has strings of its own, as rows that are read from a file."""
    rng = np.random.default_rng(SEED)
    names = [f"organisation/model-{i:03d}-instruct" for i in range(m)]
    theta = rng.normal(scale=SPREAD, size=m)
    share = np.exp(rng.normal(scale=POPULARITY, size=m))
    a, b = rng.choice(m, p=share / share.sum(), size=(2, n))
    b = np.where(a == b, (b + 1) % m, b)
    won = rng.random(n) < 1 / (1 + np.exp(theta[b] - theta[a]))
    twice = np.where(rng.random(n) < TIES, 1, 2 * won)
    return Workload(
        model_a=_own_strings(names, a),
        model_b=_own_strings(names, b),
        winner=_own_strings(WINNERS, twice),
        reference=reference(a, b, twice / 2, m),
    )


def _own_strings(names: Sequence[str], numbers: npt.NDArray[Any]) -> list[str]:
    return [(name := names[i])[:3] + name[3:] for i in numbers.tolist()]


def reference(a: npt.NDArray[Any], b: npt.NDArray[Any], score: Array, m: int) -> Array:
    """By many steps of Newton's method, the gradient in extended precision."""
    wins = np.zeros((m, m), dtype=np.longdouble)
    np.add.at(wins, (a, b), score)
    np.add.at(wins, (b, a), 1 - score)
    n_games = wins + wins.T
    theta = np.zeros(m, dtype=np.longdouble)
    for _ in range(20):
        p = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))
        weight = (n_games * p * (1 - p)).astype(np.float64)
        curvature = np.diag(weight.sum(axis=1)) - weight + 1 / m
        theta = theta + np.linalg.solve(
            curvature, (wins - n_games * p).sum(axis=1).astype(np.float64)
        )
    return np.asarray(POINTS * (theta - theta.mean()), dtype=np.float64)


# elo_exp


def fit_and_sandwich(games: Games) -> Array:
    fit = Fit.of(games)
    assert np.isfinite(fit.covariance).all()
    return POINTS * fit.theta


def games_of_columns(
    model_a: Sequence[str],
    model_b: Sequence[str],
    winner: Sequence[str],
    question: Sequence[str] | None = None,
) -> Games:
    """A game for each row; without questions, each is a prompt of its own. Models are sorted."""
    number = {name: i for i, name in enumerate(sorted({*model_a, *model_b}))}
    score = {word: i / 2 for i, word in enumerate(WINNERS)}
    n = len(winner)
    cluster = np.arange(n)
    if question is not None:
        place = {name: i for i, name in enumerate(dict.fromkeys(question))}
        cluster = np.fromiter(map(place.__getitem__, question), np.intp, n)
    first, second = (
        np.fromiter(map(number.__getitem__, side), np.intp, n)
        for side in (model_a, model_b)
    )
    return Games(
        n_models=len(number),
        first=first,
        second=second,
        score=np.fromiter(map(score.__getitem__, winner), np.float64, n),
        cluster=cluster,
        prompts=np.arange(cluster.max() + 1),
    )


def from_lists(
    model_a: Sequence[str], model_b: Sequence[str], winner: Sequence[str]
) -> Array:
    return fit_and_sandwich(games_of_columns(model_a, model_b, winner))


def from_frame(frame: Any) -> Array:
    return from_lists(
        *(frame[column].tolist() for column in ("model_a", "model_b", "winner"))
    )


def from_records(battles: Sequence[Battle]) -> Array:
    method = BradleyTerry(
        initial_rating=0.0, use="both", interval="sandwich", n_bootstraps=2, seed=0
    )
    return method.rate({"d": Battles.from_rows(battles)})["d"].rating


def bootstrapped(work: Workload, n: int) -> None:
    fit = Fit.of(games_of_columns(work.model_a, work.model_b, work.winner))
    bootstrap({"d": fit}, n_bootstraps=n, seed=SEED)


# The peers


def evalica_on(model_a: Any, model_b: Any, winners: Any) -> Array:
    import evalica

    scores = evalica.bradley_terry(model_a, model_b, winners).scores.sort_index()
    return np.asarray(POINTS * np.log(scores.to_numpy()))


def evalica_lists(work: Workload) -> Array:
    return evalica_on(
        work.model_a, work.model_b, [_evalica_winners()[w] for w in work.winner]
    )


def evalica_frame(frame: Any, *, as_lists: bool) -> Array:
    sides = [frame["model_a"], frame["model_b"]]
    return evalica_on(
        *(s.tolist() if as_lists else s for s in sides),
        frame["winner"].map(_evalica_winners()).tolist(),
    )


def evalica_bootstrapped(work: Workload, n: int) -> None:
    import evalica

    winners = [_evalica_winners()[w] for w in work.winner]
    evalica.bootstrap(
        evalica.bradley_terry,
        work.model_a,
        work.model_b,
        winners,
        n_resamples=n,
        bootstrap_method="percentile",
        random_state=SEED,
    )


@functools.cache
def _evalica_winners() -> dict[str, Any]:
    import evalica

    return {
        "model_a": evalica.Winner.X,
        "model_b": evalica.Winner.Y,
        "tie": evalica.Winner.Draw,
    }


@dataclass(frozen=True, kw_only=True)
class DistinctRows:
    """What FastChat keeps: each (model_a, model_b, outcome) that was seen, and how often."""

    sides: npt.NDArray[Any]  # (r, 2)
    score: Array  # (r,)
    count: Array  # (r,)


def fastchat_rows(frame: Any) -> tuple[DistinctRows, list[str]]:
    import pandas

    n = len(frame)
    number, names = pandas.factorize(
        pandas.concat([frame["model_a"], frame["model_b"]])
    )
    twice = np.ones(n, dtype=np.int32)
    twice[(frame["winner"] == "model_a").to_numpy(dtype=bool)] = 2
    twice[(frame["winner"] == "model_b").to_numpy(dtype=bool)] = 0
    return distinct_rows(number[:n], number[n:], twice), list(names)


def distinct_rows(
    a: npt.NDArray[Any], b: npt.NDArray[Any], twice: npt.NDArray[Any]
) -> DistinctRows:
    rows, count = np.unique(
        np.stack([a, b, twice], axis=1).astype(np.int32), return_counts=True, axis=0
    )
    return DistinctRows(
        sides=rows[:, :2], score=rows[:, 2] / 2, count=count.astype(np.float64)
    )


def fastchat_fit(rows: DistinctRows, weight: Array, m: int) -> Array:
    """FastChat's fit in words of our own: L-BFGS-B from zero, a logistic loss over distinct rows, its
    gradient scattered row by row. In units of 400 points."""
    from scipy.optimize import minimize
    from scipy.special import expit

    base, sign = np.log(10.0), np.array([1.0, -1.0])

    def loss(ratings: Array) -> tuple[float, Array]:
        of_side = ratings[rows.sides]
        p = expit(base * (of_side[:, 0] - of_side[:, 1]))
        value = -np.sum(
            weight * (rows.score * np.log(p) + (1 - rows.score) * np.log(1 - p))
        )
        gradient = np.zeros(m)
        np.add.at(
            gradient, rows.sides, (base * weight * (p - rows.score))[:, None] * sign
        )
        return float(value), gradient

    options = {"maxiter": 100, "gtol": 1e-6}
    return np.asarray(
        minimize(loss, np.zeros(m), jac=True, method="L-BFGS-B", options=options).x
    )


def fastchat(frame: Any) -> Array:
    rows, names = fastchat_rows(frame)
    return 400 * fastchat_fit(rows, rows.count, len(names))[np.argsort(names)]


def fastchat_from_numbers(games: Games) -> Array:
    rows = distinct_rows(games.first, games.second, 2 * games.score)
    return 400 * fastchat_fit(rows, rows.count, games.n_models)


def fastchat_bootstrapped(work: Workload, n: int) -> None:
    """Multinomial counts of the distinct rows, each fitted from nothing, in one process."""
    rows, names = fastchat_rows(work.frame)
    total = rows.count.sum()
    for count in np.random.default_rng(SEED).multinomial(
        int(total), rows.count / total, size=n
    ):
        fastchat_fit(rows, count / total, len(names))


def arena_rank_dataset(frame: Any) -> Any:
    from arena_rank.utils.data_utils import PairDataset

    return PairDataset.from_pandas(frame)


def arena_rank_fit(dataset: Any) -> Array:
    from arena_rank.models.bradley_terry import BradleyTerry as Theirs

    found = Theirs(n_competitors=dataset.n_competitors).compute_ratings_and_cis(dataset)
    assert np.isfinite(np.asarray(found["variances"])).all()
    return np.asarray(found["ratings"])


def arena_rank(frame: Any) -> Array:
    return arena_rank_fit(arena_rank_dataset(frame))


# The race


def from_strings(work: Workload) -> list[tuple[str, list[Contestant]]]:
    """By input; the first of each is elo_exp. Each peer gets the input that suits it, evalica all that it takes."""
    frame = functools.partial(getattr, work, "frame")
    few = {"repeats": FEW}
    return [
        (
            "lists",
            [
                Contestant(
                    name="elo_exp",
                    run=lambda: from_lists(work.model_a, work.model_b, work.winner),
                ),
                Contestant(
                    name="evalica",
                    run=lambda: evalica_lists(work),
                    needs=("evalica",),
                    note="no intervals",
                ),
            ],
        ),
        (
            "a DataFrame",
            [
                Contestant(
                    name="elo_exp", run=lambda: from_frame(frame()), needs=("pandas",)
                ),
                Contestant(
                    name="evalica, its columns",
                    run=lambda: evalica_frame(frame(), as_lists=False),
                    needs=("evalica", "pandas"),
                    note="no intervals",
                ),
                Contestant(
                    name="evalica, lists of them",
                    run=lambda: evalica_frame(frame(), as_lists=True),
                    needs=("evalica", "pandas"),
                    note="no intervals",
                ),
                Contestant(
                    name="FastChat's algorithm",
                    run=lambda: fastchat(frame()),
                    needs=("pandas", "scipy"),
                    note="no intervals",
                ),
                Contestant(
                    name="arena-rank",
                    run=lambda: arena_rank(frame()),
                    needs=("arena_rank", "pandas"),
                    **few,
                ),
            ],
        ),
        (
            "records",
            [
                Contestant(
                    name="elo_exp",
                    run=lambda: from_records(work.battles),
                    note="what a run has; to a leaderboard",
                )
            ],
        ),
    ]


def bootstraps(work: Workload) -> list[tuple[str, list[Contestant]]]:
    def contestant(
        name: str, run: Callable[[Workload, int], None], n: int, *needs: str
    ) -> Contestant:
        note = f"{n} of {N_BOOTSTRAPS}" if n < N_BOOTSTRAPS else ""
        share = n / N_BOOTSTRAPS
        return Contestant(
            name=name,
            run=lambda: run(work, n),
            needs=needs,
            repeats=FEW,
            share=share,
            note=note,
        )

    return [
        (
            "strings",
            [
                contestant("elo_exp", bootstrapped, N_BOOTSTRAPS),
                contestant(
                    "FastChat's algorithm", fastchat_bootstrapped, 25, "pandas", "scipy"
                ),
                contestant("evalica.bootstrap", evalica_bootstrapped, 5, "evalica"),
            ],
        )
    ]


def from_numbers(work: Workload) -> list[tuple[str, list[Contestant]]]:
    few = {"repeats": FEW}
    dataset = functools.cache(lambda: arena_rank_dataset(work.frame))
    return [
        (
            "numbers",
            [
                Contestant(name="elo_exp", run=lambda: fit_and_sandwich(work.games)),
                Contestant(
                    name="FastChat's algorithm",
                    run=lambda: fastchat_from_numbers(work.games),
                    needs=("scipy",),
                    note="no intervals",
                    **few,
                ),
                Contestant(
                    name="arena-rank",
                    run=lambda: arena_rank_fit(dataset()),
                    needs=("arena_rank", "pandas"),
                    note="from distinct rows, ready",
                    **few,
                ),
            ],
        )
    ]


def race(
    entries: Sequence[Contestant],
) -> tuple[dict[str, float], dict[str, Array | None]]:
    """Seconds for all of the work, and ratings, by name: every contestant in turn, over and over."""
    seconds = {entry.name: float("inf") for entry in entries}
    ratings: dict[str, Array | None] = {}
    for turn in range(max(entry.repeats for entry in entries) + 1):
        for entry in entries:
            if turn > entry.repeats:
                continue
            start = time.process_time()
            ratings[entry.name] = entry.run()
            elapsed = time.process_time() - start
            if turn > 0:
                seconds[entry.name] = min(seconds[entry.name], elapsed / entry.share)
    return seconds, ratings


def show(
    title: str, groups: Sequence[tuple[str, Sequence[Contestant]]], reference: Array
) -> bool:
    """Print a table; whether every elo_exp in it is within the tolerance of the reference."""
    print(f"\n{title}")
    print(f"  {'':<26}{'':>10}{'times as long as elo_exp from':>32}{'largest':>12}")
    print(f"  {'':<26}{'seconds':>10}{'the same':>16}{groups[0][0]:>16}{'error':>12}")
    agreed, first = True, None
    for given, entries in groups:
        present = [entry for entry in entries if all(map(installed, entry.needs))]
        if not present:
            continue
        print(f"  from {given}")
        seconds, ratings = race(present)
        ours = seconds["elo_exp"]
        first = first or ours
        for entry in present:
            found, took = ratings[entry.name], seconds[entry.name]
            error = (
                None
                if found is None
                else float(np.abs(found - found.mean() - reference).max())
            )
            shown = "-" if error is None else f"{error:.1e}"
            print(
                f"    {entry.name:<24}{took:>10.4f}{took / ours:>16.1f}{took / first:>16.1f}{shown:>12}   {entry.note}"
            )
            agreed = agreed and (
                entry.name != "elo_exp" or error is None or error <= TOLERANCE
            )
    return agreed


# Memory


def show_memory() -> None:
    """What is held beyond the strings, at its most, from them to ratings with a sandwich."""
    print(
        "\nfrom lists of strings to ratings with a sandwich, 130 models: time, and memory beyond the lists"
    )
    print(
        f"  {'battles':>10}   {'each by itself':>32}   {f'{A_QUESTION} on each question':>32}"
    )
    for n in SIZES:
        work = workload(n, 130)
        questions = [f"question-{t // A_QUESTION}" for t in range(n)]
        cells = []
        for question in (None, questions):
            run = functools.partial(_with_questions, work, question)
            start = time.process_time()
            run()
            elapsed = time.process_time() - start
            tracemalloc.start()
            run()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            cells.append(
                f"{elapsed * 1e3:>8.0f} ms{peak / 1e6:>8.1f} MB{peak / n:>6.0f} B each"
            )
        print(f"  {n:>10,}   " + "   ".join(cells))


def _with_questions(work: Workload, question: Sequence[str] | None) -> Array:
    return fit_and_sandwich(
        games_of_columns(work.model_a, work.model_b, work.winner, question)
    )


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def main() -> int:
    warnings.simplefilter("ignore")  # of the peers
    there = [
        f"{package} {version(package)}"
        for module, package in PEERS.items()
        if installed(module)
    ]
    print(
        f"python {platform.python_version()}, numpy {np.__version__}, {', '.join(there)}; 1 thread used"
    )
    if absent := [
        package for module, package in PEERS.items() if not installed(module)
    ]:
        print(
            f"left out, because not installed: {', '.join(absent)}. pip install -e '.[bench]'"
        )
    work = workload(100_000, 130)
    title = "100,000 battles, 130 models: ratings and sandwich"
    agreed = show(title, from_strings(work), work.reference)
    show(
        f"100,000 battles, 130 models: {N_BOOTSTRAPS} bootstraps",
        bootstraps(work),
        work.reference,
    )
    work = workload(2_000_000, 300)
    title = "2,000,000 battles, 300 models: ratings and sandwich"
    agreed = show(title, from_numbers(work), work.reference) and agreed
    show_memory()
    print(
        f"\nelo_exp within {TOLERANCE:g} rating points of the reference: {'yes' if agreed else 'NO'}"
    )
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
