"""Games as columns: what a rating is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import SCORES, Battles

_MAX_DENSE = 2**22  # clusters x models: smaller arrays are faster dense


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Games:
    """g games: `first` scored `score` against `second`. Games of one cluster are dependent."""

    n_models: int
    first: Index  # (g,)
    second: Index  # (g,)
    score: Array  # (g,) in [0, 1]
    cluster: Index  # (g,) 0 .. n_clusters - 1, none of them empty
    prompts: Index  # (n_clusters,) the code of each cluster's prompt, the same in every dimension

    @property
    def n_clusters(self) -> int:
        return len(self.prompts)

    def sums(self, terms: Array | None = None) -> Array:
        """Sum terms (g,) over the games of i, the first, with j: (m, m); None counts the games."""
        m = self.n_models
        total = np.bincount(self.first * m + self.second, terms, m * m)
        return total.reshape(m, m).astype(np.float64)

    def wins(self) -> Array:
        """Count how often i beat j (m, m), a tie as half a win for each."""
        won, played = self.sums(self.score), self.sums()
        return won + (played - won).T

    def ties(self) -> Array:
        """Count how often i and j tied (m, m), symmetric."""
        tied = self.sums((self.score == 0.5).astype(np.float64))
        return tied + tied.T

    def by_cluster(self, slope: Array, *others: Array) -> Array | sparse.csr_array:
        """Sum slope_g (e_first - e_second), and then each of the other terms, over the games (g,)
        of each cluster: (n_clusters, m + len(others)), sparse where it is large."""
        n, m = self.n_clusters, self.n_models
        columns = [np.bincount(self.cluster, other, n)[:, None] for other in others]
        if n * m <= _MAX_DENSE:
            gained = np.bincount(self.cluster * m + self.first, slope, n * m)
            lost = np.bincount(self.cluster * m + self.second, slope, n * m)
            return np.hstack([(gained - lost).reshape(n, m), *columns])
        gained = sparse.csr_array((slope, (self.cluster, self.first)), shape=(n, m))
        lost = sparse.csr_array((slope, (self.cluster, self.second)), shape=(n, m))
        return sparse.hstack([gained - lost, *columns], format="csr")

    def clusters_met(self) -> Index:
        """Count the clusters (m,) in which each model plays."""
        rows = np.concatenate([self.cluster, self.cluster])
        columns = np.concatenate([self.first, self.second])
        shape = (self.n_clusters, self.n_models)
        there = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
        return np.bincount(there.indices, minlength=self.n_models)

    def among(self, chosen: Mask) -> Games:
        """Return the games among the chosen models (m,), models and clusters numbered anew."""
        games = self.select(chosen[self.first] & chosen[self.second])
        number = np.cumsum(chosen) - 1
        return replace(
            games,
            n_models=int(chosen.sum()),
            first=number[games.first],
            second=number[games.second],
        )

    def select(self, kept: Mask) -> Games:
        """Return the games at a mask (g,), clusters numbered anew."""
        present, cluster = numbered(self.cluster[kept])
        return replace(
            self,
            first=self.first[kept],
            second=self.second[kept],
            score=self.score[kept],
            cluster=cluster,
            prompts=self.prompts[present],
        )


def games(battles: Battles, *, use: str) -> Games:
    """Return the games of battles; those on one prompt are a cluster.

    use  both: two games where both orders were judged; consistent: the reconciled winner
    """
    first, second = battles.model_a.astype(np.intp), battles.model_b.astype(np.intp)
    score, prompt = battles.scores(), battles.question
    if use == "both":
        twice = (battles.verdict_ab >= 0) & (battles.verdict_ba >= 0)
        score = np.where(twice, SCORES[battles.verdict_ab], score)
        row = np.repeat(np.arange(len(battles)), 1 + twice)
        again = np.flatnonzero(row[1:] == row[:-1]) + 1
        first, second, score, prompt = first[row], second[row], score[row], prompt[row]
        score[again] = SCORES[battles.verdict_ba[row[again]]]
    prompts, cluster = numbered(prompt)
    return Games(
        n_models=len(battles.models),
        first=first,
        second=second,
        score=score,
        cluster=cluster,
        prompts=prompts,
    )


def numbered(codes: NDArray[np.integer[Any]]) -> tuple[Index, Index]:
    """Return the codes that are present, ascending, and the place (n,) of each code among them."""
    is_present = np.bincount(codes) > 0
    return np.flatnonzero(is_present), (np.cumsum(is_present) - 1)[codes]
