"""Tournaments that people label: answers whose quality is known, a judge with a taste of its own, and crowds on record.

Qualities are theta of an entrant and u of its answer to a prompt, in log-odds; a reader sees them with noise.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import expit

from elo_exp.arena import joint_fit
from elo_exp.arrays import Array
from elo_exp.data import labels
from elo_exp.data.battles import Battles
from elo_exp.files import read_jsonl
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile
from elo_exp.records import Battle, Comparison
from tests.data import shared_data

BRADLEY_TERRY = BradleyTerry(
    initial_rating=0.0, orders="both", interval="sandwich", n_bootstraps=2, seed=0
)
SPREAD, BY_PROMPT, NOISE = 0.5, 0.9, 0.5  # standard deviations, in log-odds


def rated(rows: Sequence[Battle]) -> Leaderboard:
    return BRADLEY_TERRY.rate({"d": Battles.from_rows(rows)})["d"]


@dataclass(frozen=True)
class Labelled:
    """A tournament of m entrants on so many prompts, of which people label n comparisons."""

    m: int
    n: int
    n_prompts: int = 100

    @functools.cached_property
    def names(self) -> list[str]:
        return [f"m{i}" for i in range(self.m)]

    @functools.cached_property
    def comparisons(self) -> list[Comparison]:
        return [
            Comparison(
                prompt_id=f"q{k}",
                dimension="d",
                source="s",
                prompt_text="?",
                entrant_a=a,
                entrant_b=b,
                response_a=a,
                response_b=b,
            )
            for k in range(self.n_prompts)
            for a, b in combinations(self.names, 2)
        ]

    def draw(self, seed: int) -> tuple[list[Battle], Array]:
        """The labels of a tournament, and the true ratings: those of all prompts and readers, in points."""
        rng = np.random.default_rng(seed)
        theta = SPREAD * rng.standard_normal(self.m)
        quality = theta + BY_PROMPT * rng.standard_normal((self.n_prompts, self.m))
        seen = quality + NOISE * rng.standard_normal(quality.shape)
        shown = labels.draw_comparisons(self.comparisons, self.n, seed=seed)
        votes = []
        for one in shown:
            k, a, b = (
                int(name[1:]) for name in (one.prompt_id, one.entrant_a, one.entrant_b)
            )
            is_first = rng.random() < expit(seen[k, a] - seen[k, b])
            votes.append(
                Battle(
                    model_a=one.entrant_a,
                    model_b=one.entrant_b,
                    winner="model_a" if is_first else "model_b",
                    question_id=one.prompt_id,
                    dimension="d",
                )
            )
        return labels.average_votes(votes), self._truth(theta)

    def _truth(self, theta: Array) -> Array:
        """The ratings of expected shares, every pair met equally often."""
        node, weight = np.polynomial.hermite_e.hermegauss(41)
        spread = np.sqrt(2.0 * (BY_PROMPT**2 + NOISE**2))
        rows = []
        for i, j in combinations(range(self.m), 2):
            chance = expit(theta[i] - theta[j] + spread * node)
            share = float(chance @ weight / weight.sum())
            rows.append(
                Battle(
                    model_a=f"m{i}",
                    model_b=f"m{j}",
                    winner="tie",
                    score=share,
                    question_id=f"{i} {j}",
                )
            )
        return rated(rows).rating


def of_labels(world: Labelled, repeats: int) -> dict[str, float]:
    """How often intervals of differences by labels alone hold the truth, and claims are right and wrong."""
    found = []
    for seed in range(repeats):
        votes, truth = world.draw(seed)
        board = rated(votes)
        at = np.array([board.models.index(name) for name in world.names])
        contrast = np.array(
            [np.eye(world.m)[i] - np.eye(world.m)[j] for i, j in combinations(range(world.m), 2)]
        )  # fmt: skip
        assert board.covariance is not None and board.n_clusters is not None
        covariance = board.covariance[np.ix_(at, at)]
        difference, true = contrast @ board.rating[at], contrast @ truth
        error = np.einsum("pi,ij,pj->p", contrast, covariance, contrast) ** 0.5
        if not np.isfinite(difference + error).all():
            continue
        half = t_quantile(board.n_clusters - 1.0) * error
        is_claimed = np.abs(difference) > half
        found.append(
            [
                np.mean(np.abs(difference - true) <= half),
                np.median(half),
                np.mean(is_claimed & (difference * true > 0)),
                np.mean(is_claimed & (difference * true < 0)),
            ]
        )
    names = ("coverage", "half_width", "right", "wrong")
    means = np.mean(found, axis=0).tolist()
    return {**dict(zip(names, means, strict=True)), "n": len(found)}


# A crowd on record: llmfao


@functools.cache
def llmfao() -> tuple[tuple[Battle, ...], Battles]:
    """Votes of a crowd on 59 models, and the verdicts of GPT-4 on the same comparisons."""
    path = shared_data("llmfao/battles.jsonl.gz")
    rows = [row for _, row in read_jsonl(path)]
    names = ("model_a", "model_b", "winner", "source", "question_id")
    crowd = [row for row in rows if row["source"] == "human"]
    models = {row[side] for row in crowd for side in ("model_a", "model_b")}
    judge = [
        row
        for row in rows
        if row["judge_model"] == "gpt-4" and {row["model_a"], row["model_b"]} <= models
    ]
    votes, verdicts = (
        [Battle(**{name: row[name] for name in names}) for row in some]
        for some in (crowd, judge)
    )
    return tuple(votes), Battles.from_rows(verdicts)


def of_crowd(n: int, repeats: int) -> Mapping[str, dict[str, float]]:
    """Return how often intervals of n votes hold the ratings by all other votes, and by how much they miss.

    The error of the other votes counts, too. One row is by the votes alone, one by the joint fit with the verdicts.
    """
    votes, verdicts = llmfao()
    names = sorted({model for vote in votes for model in vote.models})
    none = verdicts.select(np.zeros(len(verdicts), dtype=np.bool_))
    rng = np.random.default_rng(7)
    found: dict[str, list[list[float]]] = {"labels": [], "joint": []}

    def placed(board: Leaderboard) -> tuple[Array, Array]:
        at = {model: i for i, model in enumerate(board.models)}
        rating, error = np.full(len(names), np.nan), np.full(len(names), np.nan)
        assert board.covariance is not None
        for place, name in enumerate(names):
            if name in at:
                rating[place] = board.rating[at[name]]
                error[place] = board.covariance[at[name], at[name]] ** 0.5
        return rating, error

    for _ in range(repeats):
        chosen = {*rng.choice(len(votes), n, replace=False).tolist()}
        some = [vote for i, vote in enumerate(votes) if i in chosen]
        truth, of_truth = placed(
            rated([vote for i, vote in enumerate(votes) if i not in chosen])
        )
        fit = joint_fit.fit_jointly(Battles.from_rows(some), verdicts, none, ())
        assert list(fit.models) == names
        joint = (
            POINTS_PER_LOG_ODDS * fit.theta,
            POINTS_PER_LOG_ODDS * np.sqrt(np.diag(fit.covariance)),
        )
        for name, (rating, error), t in (
            ("labels", placed(rated(some)), 1.98),
            ("joint", joint, fit.t_quantile),
        ):
            known = np.isfinite(rating + error + truth)
            off = rating[known] - truth[known]
            off -= off.mean()
            is_held = np.abs(off) <= np.hypot(t * error[known], 1.96 * of_truth[known])
            found[name].append([is_held.mean(), (off**2).mean() ** 0.5, known.mean()])
    return {
        name: dict(zip(("coverage", "rmse", "rated"), np.mean(some, axis=0).tolist(), strict=True))
        for name, some in found.items()
    }  # fmt: skip
