"""Games as columns: what a rating is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, Mask, count_codes
from elo_exp.data.battle_judges import find_annotators
from elo_exp.data.battles import SCORES, Battles

# Fewer people speak for themselves alone, and say nothing of others
MIN_ANNOTATORS = 3
# Relative difference of prompt counts that rounding leaves between equal sizes
_RELATIVE_SIZE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balance:
    """How evenly the games of m models are spread over n prompts.

    One prompt with a third of a model's games pulls the fit towards itself, so that what it leaves unexplained is too
    small, and an error from so few large prompts is uncertain.

    n_effective   (m,) how many prompts of equal size would tell as much about each model:
                  (sum c)^2 / sum c^2 of its numbers c of games on each prompt [1]_
    n_effective_clusters  the same of all games
    hidden        (m,) by what the variance of a model is multiplied, 1 if it has equally many games on each of its k
                  prompts: each prompt's part is taken as if the fit had left the prompt out, times
                  (1 - 1 / k) / (1 - h) for the share h of the games [2]_

    References
    ----------
    .. [1] A. V. Carter, K. T. Schnepel and D. G. Steigerwald (2017), "Asymptotic behavior of a t-test robust
       to cluster heterogeneity", Review of Economics and Statistics 99(4), 698-709.
    .. [2] J. G. MacKinnon, M. O. Nielsen and M. D. Webb (2023), "Fast and reliable jackknife and bootstrap methods
       for cluster-robust inference", Journal of Applied Econometrics 38(5), 671-694.
    """

    n_effective: Array
    n_effective_clusters: float
    variance_factor: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Games:
    """g rows, each a game or so many alike: `first` scored `score` against `second`.

    Games of one cluster are dependent. A cluster is a unit of `Battles.units`: a prompt, prompts that
    belong together, or so many prompts alike, of which each has an equal part in its games.
    """

    n_models: int
    first: Index  # (g,)
    second: Index  # (g,)
    score: Array  # (g,) in [0, 1]
    cluster: Index  # (g,) 0 .. n_clusters - 1, none of them empty
    prompts: Index  # (n_clusters,) the code of each cluster's unit, the same in every dimension
    # (g,) 1 if `first` was shown first, -1 if second, 0 if it is unknown or does not matter
    position: Array
    # of some battles one order alone was judged, not the same in all
    is_one_order: bool
    battle: Index  # (g,) the place of each game's battle
    # (g,) the number of the person who judged, from 1, and 0 of all unnamed people; None where nobody is named
    annotator: Index | None = None
    count: Index | None = None  # (g,) how many games each row stands for; None: one
    # (n_rows,) how many prompts each cluster stands for; None: one
    prompts_per_cluster: Index | None = None

    @property
    def n_rows(self) -> int:
        """Of the matrices by cluster."""
        return len(self.prompts)

    @property
    def n_clusters(self) -> int:
        """Count the prompts."""
        return (
            len(self.prompts)
            if self.prompts_per_cluster is None
            else int(self.prompts_per_cluster.sum())
        )

    @property
    def n_games(self) -> int:
        return len(self.score) if self.count is None else int(self.count.sum())

    @property
    def games_per_prompt(self) -> Index | None:
        """(g,) how many of a row's games are on one prompt of its cluster; None: one."""
        if self.count is None or self.prompts_per_cluster is None:
            return None
        return np.asarray(self.count // self.prompts_per_cluster[self.cluster])

    def weight_by_count(self, terms: Array) -> Array:
        """Multiply terms (g,) by the games that each row stands for."""
        return terms if self.count is None else terms * self.count

    def weight_for_squares(self, terms: Array) -> Array:
        """Multiply terms (g,) so that the squares of a cluster's sums are those of all its prompts."""
        games_per_prompt = self.games_per_prompt
        if games_per_prompt is None or self.prompts_per_cluster is None:
            return terms
        return (
            terms * games_per_prompt * np.sqrt(self.prompts_per_cluster[self.cluster])
        )

    def sum_by_pair(self, terms: Array | None = None) -> Array:
        """Sum terms (g,) over the games of i, the first, with j: (m, m); None counts the games."""
        m = self.n_models
        weights = self.count if terms is None else self.weight_by_count(terms)
        total = np.bincount(self.first * m + self.second, weights, m * m)
        return total.reshape(m, m).astype(np.float64)

    def wins(self) -> Array:
        """Count how often i beat j (m, m), a tie as half a win for each."""
        return self.sum_by_pair(self.score) + self.sum_by_pair(1.0 - self.score).T

    def ties(self) -> Array:
        """Count how often i and j tied (m, m), symmetric."""
        tied = self.sum_by_pair((self.score == 0.5).astype(np.float64))
        return tied + tied.T

    def sum_by_cluster(
        self, slope: Array, *other_terms: Array
    ) -> scipy.sparse.csr_array:
        """Sum slope_g (e_first - e_second), and then each of the other terms, over the games (g,)
        of each cluster: (n_rows, m + len(others)). The sums of k prompts alike are one row, which
        is multiplied by sqrt(k): their outer products add up to those of the prompts."""
        n, m = self.n_rows, self.n_models
        slope, other_terms = (
            self.weight_for_squares(slope),
            tuple(map(self.weight_for_squares, other_terms)),
        )
        sums = difference_matrix(
            self.cluster, self.first, self.second, slope, shape=(n, m)
        )
        columns = [
            np.bincount(self.cluster, terms, n)[:, None] for terms in other_terms
        ]
        return scipy.sparse.hstack([sums, *columns], format="csr") if columns else sums

    def balance(self, by_cluster: scipy.sparse.csr_array) -> Balance:
        """Measure how evenly the games are spread over the prompts, whose sums `by_cluster` returned."""
        n, m = self.n_rows, self.n_models
        games_per_prompt = (
            np.ones(len(self.score)) if self.count is None else self.count * 1.0
        )
        if (on_each := self.games_per_prompt) is not None:
            games_per_prompt = on_each * 1.0
        weight = (
            np.ones(n)
            if self.prompts_per_cluster is None
            else self.prompts_per_cluster * 1.0
        )
        cluster_sizes = np.bincount(self.cluster, games_per_prompt, n)
        rows, columns = np.tile(self.cluster, 2), np.append(self.first, self.second)
        sizes = scipy.sparse.csr_array(
            (np.tile(games_per_prompt, 2), (rows, columns)), (n, m)
        )
        model, size = sizes.indices, sizes.data
        times = np.repeat(weight, np.diff(sizes.indptr))
        total, squares, n_prompts = (
            np.bincount(model, times * size**power, m) for power in (1, 2, 0)
        )
        n_effective = _effective_count(total, squares, n_prompts)
        hidden = np.ones(m)
        if (is_uneven := (n_effective != n_prompts) & (n_prompts > 1)).any():
            leverage_factor, is_chosen = np.ones(len(size)), is_uneven[model]
            model_index = model[is_chosen]
            leverage_factor[is_chosen] = 1.0 - 1.0 / n_prompts[model_index]
            leverage_factor[is_chosen] /= 1.0 - size[is_chosen] / total[model_index]
            parts = by_cluster[:, :m] ** 2
            part_sums = np.asarray(parts.sum(axis=0))
            leverage_weights = sizes.copy()
            leverage_weights.data = leverage_factor**2
            corrected_sums = np.asarray((parts * leverage_weights).sum(axis=0))
            hidden[is_uneven] = (
                corrected_sums / np.where(part_sums > 0, part_sums, 1.0)
            )[is_uneven]
        return Balance(
            n_effective=n_effective,
            n_effective_clusters=float(
                _effective_count(
                    weight @ cluster_sizes, weight @ cluster_sizes**2, weight.sum()
                )
            ),
            variance_factor=np.maximum(hidden, 1.0),
        )

    def leverage_factors(self) -> tuple[Array, float]:
        """Return what a fit hides of each cluster, and how many prompts of equal size would tell as much as all.

        The first, (n_rows,), is (1 - 1 / n) / (1 - h) for a prompt with the share h of the games: by so much its part
        grows if the fit leaves it out. All are 1 if prompts have equally many games.
        """
        n = self.n_rows
        games_per_prompt = (
            np.ones(len(self.score)) if self.count is None else self.count * 1.0
        )
        if (on_each := self.games_per_prompt) is not None:
            games_per_prompt = on_each * 1.0
        weight = (
            np.ones(n)
            if self.prompts_per_cluster is None
            else self.prompts_per_cluster * 1.0
        )
        cluster_sizes = np.bincount(self.cluster, games_per_prompt, n)
        n_prompts, total = weight.sum(), weight @ cluster_sizes
        n_effective = float(
            _effective_count(total, weight @ cluster_sizes**2, n_prompts)
        )
        if n_effective == n_prompts or n_prompts < 2:
            return np.ones(n), n_effective
        return (1.0 - 1.0 / n_prompts) / (1.0 - cluster_sizes / total), n_effective

    def cluster_by_annotator(self) -> tuple[Games, Games] | None:
        """Return the games with annotators as clusters, and with an annotator's games on a prompt as one each.

        None unless three annotators or more are named: fewer say nothing of others.
        """
        if self.annotator is None or self.prompts_per_cluster is not None:
            return None
        names, annotator = number_codes(self.annotator)
        if np.count_nonzero(names) < MIN_ANNOTATORS:
            return None
        pair_codes = annotator * self.n_rows + self.cluster
        present_pairs, pair = np.unique(pair_codes, return_inverse=True)
        return (
            replace(self, cluster=annotator, prompts=names),
            replace(self, cluster=pair, prompts=np.arange(len(present_pairs))),
        )

    def sum_over_prompts(self, by_cluster: Array | scipy.sparse.csr_array) -> Array:
        """Sum what `by_cluster` returned over the prompts."""
        if self.prompts_per_cluster is None:
            return np.asarray(by_cluster.sum(axis=0))
        return np.asarray(np.sqrt(self.prompts_per_cluster) @ by_cluster)

    def count_prompts(self, by_cluster: scipy.sparse.csr_array) -> Index:
        """Count the prompts (m,) of each model in what `by_cluster` returned, which stores what
        adds up to zero, too."""
        count = None
        if self.prompts_per_cluster is not None:
            count = np.repeat(self.prompts_per_cluster, np.diff(by_cluster.indptr))
        return count_codes(by_cluster.indices, count, self.n_models)

    def restrict_to(self, is_chosen: Mask) -> Games:
        """Return the games among the chosen models (m,), models and clusters numbered anew."""
        if is_chosen.all():
            return self
        games = self.select(is_chosen[self.first] & is_chosen[self.second])
        number = np.cumsum(is_chosen) - 1
        return replace(
            games,
            n_models=int(is_chosen.sum()),
            first=number[games.first],
            second=number[games.second],
        )

    def select(self, selection: Mask | Index) -> Games:
        """Return the games at a mask (g,) or at indices, clusters numbered anew."""
        if selection.dtype == np.bool_ and selection.all():
            return self
        names = "first", "second", "score", "position", "battle", "count", "annotator"
        columns: dict[str, Any] = {
            name: column[selection]
            for name in names
            if (column := getattr(self, name)) is not None
        }
        present, columns["cluster"] = number_codes(self.cluster[selection])
        alike = (
            None
            if self.prompts_per_cluster is None
            else self.prompts_per_cluster[present]
        )
        return replace(
            self, prompts=self.prompts[present], prompts_per_cluster=alike, **columns
        )


def _effective_count(total: Any, squares: Any, n_prompts: Any) -> Any:
    """Return (sum c)^2 / sum c^2: exactly their number if all c are equal, 0 if there are none."""
    n_effective = np.divide(
        total * total, squares, out=np.zeros_like(total * 1.0), where=squares > 0
    )
    is_equal = np.abs(n_effective - n_prompts) <= _RELATIVE_SIZE_TOLERANCE * n_prompts
    return np.where(is_equal, n_prompts, n_effective)


def difference_matrix(
    row: Index, first: Index, second: Index, slope: Array, *, shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """Sum slope (e_first - e_second) in each row of a matrix.

    Parameters
    ----------
    row, first, second : Index, shape (g,)
        The row that each term belongs to, and its two columns.
    slope : Array, shape (g,)
        The terms.
    shape : tuple of int
        Rows and columns of the matrix.

    Returns
    -------
    sparse array
        Of that shape; terms that add up to zero are stored.
    """
    entries, columns = np.append(slope, -slope), np.append(first, second)
    return scipy.sparse.csr_array((entries, (np.tile(row, 2), columns)), shape=shape)


def group_kinds(played: Games) -> tuple[Index, Index, Array, Index]:
    """Return the different games, the side that scored more as their first.

    Parameters
    ----------
    played : Games
        g games of m models.

    Returns
    -------
    first, second : Index, shape (k,)
        The models of each kind.
    score : Array, shape (k,)
        Of the first, in [0.5, 1].
    kind : Index, shape (g,)
        The kind of each row, which stands for `played.count` games.
    """
    swap, m = played.score < 0.5, played.n_models
    first = np.where(swap, played.second, played.first)
    second = np.where(swap, played.first, played.second)
    scores, level = np.unique(np.abs(played.score - 0.5), return_inverse=True)
    codes, kind = number_codes((level * m + first) * m + second)
    return codes // m % m, codes % m, 0.5 + scores[codes // m**2], kind


def make_games(battles: Battles, *, orders: str) -> Games:
    """Return the games of battles; those on one prompt are a cluster.

    Where one order alone was judged, the position of the sides is part of the fit.

    Parameters
    ----------
    battles : Battles
        n battles of one dimension.
    orders : {"both", "one", "reconciled"}
        both, one: two games where both orders were judged, the second ones last; reconciled: one, of
        the reconciled winner. A battle with a share is one game of that share.

    Returns
    -------
    Games
        g rows, n to 2 n.
    """
    first, second = battles.model_a.astype(np.intp), battles.model_b.astype(np.intp)
    score, prompt = battles.scores(), battles.units()
    row = np.arange(len(battles))
    ab, ba = battles.verdict_ab >= 0, battles.verdict_ba >= 0
    shown = ab.astype(np.float64) - ba
    if orders != "reconciled":
        has_both_orders = ab & ba & np.isnan(battles.score)
        score = np.where(has_both_orders, SCORES[battles.verdict_ab], score)
        score = np.append(score, SCORES[battles.verdict_ba[has_both_orders]])
        row = np.append(row, np.flatnonzero(has_both_orders))
        first, second, prompt = first[row], second[row], prompt[row]
        has_position = has_both_orders & ~battles.equal_answers
        shown = np.append(
            shown + has_position, -has_position[has_both_orders].astype(np.float64)
        )
    prompts, cluster = number_codes(prompt)
    count = alike = None
    if battles.count is not None:
        count = battles.count[row].astype(np.intp)
        alike = np.ones(len(prompts), dtype=np.intp)
        is_unnamed = prompt >= battles.n_named_units
        alike[cluster[is_unnamed]] = count[is_unnamed]
    annotators = find_annotators(battles)
    return Games(
        n_models=len(battles.models),
        first=first,
        second=second,
        score=score,
        cluster=cluster,
        prompts=prompts,
        position=shown,
        is_one_order=bool(battles.has_single_order().any()),
        battle=row,
        annotator=None if annotators is None else annotators[row].astype(np.intp) + 1,
        count=count,
        prompts_per_cluster=alike,
    )


def number_codes(codes: NDArray[np.integer[Any]]) -> tuple[Index, Index]:
    """Number the codes that are present.

    Parameters
    ----------
    codes : NDArray of int, shape (n,)
        From zero on.

    Returns
    -------
    present : Index
        The different codes, ascending.
    place : Index, shape (n,)
        Of each code among them.

    Examples
    --------
    >>> present, place = number_codes(np.array([7, 2, 7]))
    >>> present.tolist(), place.tolist()
    ([2, 7], [1, 0, 1])
    """
    is_present = np.bincount(codes) > 0
    return np.flatnonzero(is_present), (np.cumsum(is_present) - 1)[codes]
