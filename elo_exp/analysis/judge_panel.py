"""Several judges of the same entrants: how much their preferences differ, and estimates across judges of this kind.

The model. Judge j rates entrant m, in log-odds, at

    phi_jm = s_j theta_m + preference_jm,    preference ~ N(0, tau^2).

The combined leaderboard is theta, the mean over judges, on their scale. Letters: j of J judges; m of M entrants; k of K
prompts; c contrasts of the entrants, such as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA, Difference, adjust_by_holm
from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import fit_columns
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit, inverse_information, residuals
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile

MIN_JUDGES_FOR_JOINT_FIT = (
    3  # two judges have a leaderboard each, and no combined interval
)
JOINT_BOARD_LABEL = "Bradley-Terry, mean of judges"
# With two entrants, a judge's preference cannot be separated from a different scale
_MIN_ENTRANTS = 3
# Of the variance between judges: with 2, intervals of 95% cover .90
_MIN_DF = 4
# Shares of prompts that differ by less are equal but for rounding
_MIN_RELATIVE_DIFFERENCE = 1e-9
# If the squares of theta add up to less, all entrants are equal
_MIN_SUM_OF_SQUARES = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgePanelFit:
    """What J judges made of M entrants on K prompts, in log-odds.

    abilities  (J, M) of mean zero
    shared     (M, M) the covariance that prompts leave in the mean of the judges
    own        (M, M) and that of one judge, as far as no other judge shares it
    n_prompts  K: those that move anything
    n_effective  how many prompts of equal size would tell as much; None: as many as there are
    """

    judges: tuple[str, ...]
    models: tuple[str, ...]
    abilities: Array
    prompt_covariance: Array
    judge_covariance: Array
    n_prompts: int
    n_effective: float | None = None

    @classmethod
    def fit(
        cls, battles: Mapping[str, Battles], *, orders: str
    ) -> JudgePanelFit | Reason:
        """Fit Bradley-Terry to the verdicts of each judge.

        Parameters
        ----------
        battles : mapping of str to Battles
            By judge, of one dimension.
        orders : {"both", "one", "reconciled"}
            What is a game, as in `games`.

        Returns
        -------
        Panel or Reason
            Why there is none: `few_entrants`, `no_verdicts` of a judge, `no_prompts` where some of its battles name
            none, `unrated`, the entrants that it cannot rate with the others, `no_error` where prompts do not differ, or
            `apart` where two judges have no prompt in common.
        """
        if silent_judges := [
            name for name, judge_battles in battles.items() if not len(judge_battles)
        ]:
            return Reason(name="no_verdicts", about={"judge": silent_judges[0]})
        fits = {
            name: fit_columns(make_games(judge_battles, orders=orders))
            for name, judge_battles in battles.items()
        }
        models = sorted(
            {
                model
                for judge_battles in battles.values()
                for model in judge_battles.models
            }
        )
        if obstacle := _find_obstacle(battles, fits, models):
            return obstacle
        prompts = {
            name: _number_prompts(battles[name], fit) for name, fit in fits.items()
        }
        for judge_a, judge_b in combinations(prompts, 2):
            if prompts[judge_a].keys().isdisjoint(prompts[judge_b]):
                return Reason(name="apart", about={"judge": judge_a, "other": judge_b})
        shared_covariance, own_covariance, n_prompts, n_effective = (
            _compute_covariances([*fits.values()], [*prompts.values()])
        )
        return cls(
            judges=tuple(fits),
            models=tuple(models),
            abilities=np.array([fit.theta for fit in fits.values()]),
            prompt_covariance=shared_covariance,
            judge_covariance=own_covariance,
            n_prompts=n_prompts,
            n_effective=n_effective,
        )

    @property
    def n_counted_prompts(self) -> float:
        """Return the prompts that degrees of freedom count: effective ones."""
        return self.n_prompts if self.n_effective is None else self.n_effective

    @property
    def board(self) -> Array:
        """Average the abilities (M,) over the judges."""
        return np.asarray(self.abilities.mean(axis=0))

    @property
    def judge_preferences(self) -> Array:
        """Return each judge's abilities (J, M) minus the combined ones on its scale, noise included."""
        theta, scale = self.board, np.ones(len(self.judges))
        if (total := theta @ theta) > _MIN_SUM_OF_SQUARES:
            scale = self.abilities @ theta / total  # of mean 1
        return np.asarray(self.abilities - scale[:, None] * theta)

    @property
    def df(self) -> int:
        """Count the degrees of freedom of the variance between judges: (J - 1)(M - 2)."""
        return (len(self.judges) - 1) * (len(self.models) - 2)

    @property
    def has_joint_board(self) -> bool:
        """Whether there are enough judges and entrants for a reliable interval: 3 judges and 4 degrees of freedom."""
        return len(self.judges) >= MIN_JUDGES_FOR_JOINT_FIT and self.df >= _MIN_DF

    @property
    def mean_square(self) -> float:
        """Return the mean square of judge preferences: tau^2 plus the part of the prompts."""
        return float((self.judge_preferences**2).sum()) / self.df

    @property
    def tau(self) -> float:
        """Estimate the standard deviation of judge preferences in rating points; 0 if prompts explain all of it."""
        own_variance = _compute_quadratic_forms(self.judge_covariance, None)
        return POINTS_PER_LOG_ODDS * math.sqrt(
            max(self.mean_square - own_variance.mean() / 2.0, 0.0)
        )

    def estimates(
        self,
        contrasts: Array | None = None,
        *,
        more_judges: int = 0,
        times_prompts: float = 1.0,
    ) -> tuple[Array, Array, Array]:
        """Estimate contrasts of the combined leaderboard across judges of this kind.

        The variance is that between judges, |c|^2 tau^2 / J, and that between prompts, which all verdicts on a
        prompt share, whoever gave them: two-way clustering [1]_. tau is one for all entrants: the mean square of
        tastes on (J - 1)(M - 2) degrees of freedom, less what prompts add to it. Degrees of freedom of the sum are
        Satterthwaite's [2]_.

        Parameters
        ----------
        contrasts : Array, shape (c, M), optional
            Each of sum zero; None: all pairs, the first less the second.
        more_judges : int, default 0
            What the errors would be with so many judges more of the same spread.
        times_prompts : float, default 1.0
            And with so many times the prompts.

        Returns
        -------
        value, std_error, df : Array, shape (c,)
            In log-odds.

        References
        ----------
        .. [1] A. C. Cameron, J. B. Gelbach and D. L. Miller (2011), "Robust inference with multiway clustering",
           Journal of Business & Economic Statistics 29(2), 238-249.
        .. [2] F. E. Satterthwaite (1946), "An approximate distribution of estimates of variance components",
           Biometrics Bulletin 2(6), 110-114.
        """
        n_judges, m = self.abilities.shape
        value = _compute_contrasts(self.board, contrasts)
        variance_of_mean, own_variance = (
            _compute_quadratic_forms(matrix, contrasts)
            for matrix in (self.prompt_covariance, self.judge_covariance)
        )
        n_judges_after = n_judges + more_judges
        squares = _compute_quadratic_forms(np.eye(m), contrasts)
        tastes = (
            np.maximum(squares * self.mean_square - own_variance, 0.0) / n_judges_after
        )
        variance_of_prompts = (
            np.maximum(variance_of_mean - own_variance / n_judges, 0.0)
            if more_judges
            else variance_of_mean
        )
        prompts = (
            variance_of_prompts
            + (own_variance / n_judges_after if more_judges else 0.0)
        ) / times_prompts
        variance = tastes + prompts
        df = variance**2 / (
            tastes**2 / ((n_judges_after - 1) * (m - 2))
            + prompts**2 / max(self.n_counted_prompts * times_prompts - 1.0, 1.0)
            + np.finfo(np.float64).tiny
        )
        return value, np.sqrt(variance), df

    def half_width(self, *, more_judges: int = 0, times_prompts: float = 1.0) -> float:
        """Return half of the median 95% interval of a difference, in rating points; parameters as in `estimates`.

        Satterthwaite's degrees of freedom fall where the smaller of two variances does; more of anything is not taken
        to leave fewer than there are.
        """
        _, _, current_df = self.estimates()
        _, std_error, df = self.estimates(
            more_judges=more_judges, times_prompts=times_prompts
        )
        df = np.maximum(df, current_df)
        return POINTS_PER_LOG_ODDS * float(np.median(t_quantile(df) * std_error))

    def largest_preference(self) -> tuple[str, str, float]:
        """Return the judge and the entrant that it rates most unlike the others, and by how many rating points.

        Positive: higher than the mean of the others has it, on this judge's scale. Noise is in it.
        """
        tastes, n = self.judge_preferences, len(self.judges)
        j, m = np.unravel_index(np.abs(tastes).argmax(), tastes.shape)
        points = POINTS_PER_LOG_ODDS * float(tastes[j, m]) * n / (n - 1)
        return self.judges[j], self.models[m], points


def _find_obstacle(
    battles: Mapping[str, Battles], fits: Mapping[str, Fit], models: Sequence[str]
) -> Reason | None:
    """Return why the fits of judges have nothing in common to estimate."""
    if len(models) < _MIN_ENTRANTS:
        return Reason(name="few_entrants", about={"n": len(models)})
    for name, judge_battles in battles.items():
        if judge_battles.n_unnamed():
            return Reason(name="no_prompts", about={"judge": name})
        rated_models = np.array(judge_battles.models, dtype=object)[
            fits[name].is_rated
        ].tolist()
        if absent := [model for model in models if model not in rated_models]:
            return Reason(name="unrated", about={"judge": name, "models": absent})
        if not np.isfinite(fits[name].covariance).all():
            return Reason(name="no_error", about={"judge": name})
    return None


def _number_prompts(battles: Battles, fit: Fit) -> dict[str, int]:
    """Return the row of each prompt in a fit, by the prompt's name."""
    codes = fit.games.prompts.tolist()
    names = battles.unit_names
    return {names[code]: row for row, code in enumerate(codes)}


def _compute_covariances(
    fits: Sequence[Fit], prompts: Sequence[Mapping[str, int]]
) -> tuple[Array, Array, int, float | None]:
    """Compute the covariances (M, M) that prompts leave in the mean of judges and in one judge's own part; and K.

    The last is how many prompts of equal size would tell as much, if prompts have unequal shares of the games. A
    prompt's part is then taken as if the fits had left the prompt out, as `Balance` takes it.

    psi_jk is how far prompt k moves the abilities by judge j. Their products are summed over prompts before they are
    multiplied by what M entrants make of them, so that no array has K rows.
    """
    index = {name: k for k, name in enumerate(dict.fromkeys(chain(*prompts)))}
    n_judges, m = len(fits), len(fits[0].theta)
    score_blocks, breads = [], []
    for fit, rows in zip(fits, prompts, strict=True):
        scores, inverse = fit.influence_by_cluster, np.eye(m)
        if scores is None:
            scores = fit.games.sum_by_cluster(residuals(fit.theta, fit.games))
            inverse = inverse_information(fit.theta, fit.games)
        sparse_scores = scipy.sparse.coo_array(scores)
        sparse_scores.eliminate_zeros()
        row = np.array([index[name] for name in rows], dtype=np.intp)
        coordinates = row[sparse_scores.coords[0]], sparse_scores.coords[1]
        shape = len(index), m
        score_blocks.append(
            scipy.sparse.csr_array((sparse_scores.data, coordinates), shape=shape)
        )
        breads.append(inverse)
    all_scores = scipy.sparse.hstack(score_blocks, format="csr")  # (K, J M)
    n_prompts, n_effective = int(np.count_nonzero(np.diff(all_scores.indptr))), None
    share = _shares_of_games(fits, prompts, index)
    if (
        n_prompts > 1
        and share.max() - share.min() > _MIN_RELATIVE_DIFFERENCE * share.max()
    ):
        n_effective = float(1.0 / (share**2).sum())
        factor = (1.0 - 1.0 / len(share)) / (1.0 - share)
        all_scores = scipy.sparse.csr_array(
            scipy.sparse.diags_array(factor) @ all_scores
        )
    products = (all_scores.T @ all_scores).toarray().reshape(n_judges, m, n_judges, m)
    b = np.array(breads)
    covariances = np.einsum("jab,jbkc,kcd->jakd", b, products, b, optimize=True)
    covariance_of_mean = covariances.sum(axis=(0, 2)) / n_judges**2
    sum_over_judges = np.einsum("jajd->ad", covariances)
    own_covariance = (sum_over_judges - n_judges * covariance_of_mean) / max(
        n_judges - 1, 1
    )
    covariance_of_mean *= n_prompts / max(n_prompts - 1, 1)
    return covariance_of_mean, own_covariance, n_prompts, n_effective


def _shares_of_games(
    fits: Sequence[Fit],
    prompts: Sequence[Mapping[str, int]],
    index: Mapping[str, int],
) -> Array:
    """Return the share (K,) of each prompt in the games, averaged over judges."""
    total = np.zeros(len(index))
    for fit, rows in zip(fits, prompts, strict=True):
        played = fit.games
        n_games = np.bincount(played.cluster, played.count, played.n_rows)
        row = np.array([index[name] for name in rows], dtype=np.intp)
        total[row] += n_games[list(rows.values())] / n_games.sum()
    return np.asarray(total / len(fits))


def _compute_contrasts(abilities: Array, contrasts: Array | None) -> Array:
    """Compute contrasts (c,) of abilities (M,); None: of all pairs."""
    if contrasts is not None:
        return np.asarray(contrasts @ abilities)
    i, j = np.triu_indices(len(abilities), k=1)
    return np.asarray(abilities[i] - abilities[j])


def _compute_quadratic_forms(matrix: Array, contrasts: Array | None) -> Array:
    """Compute c' A c for each contrast (c,), not below zero; None: for all pairs, without a matrix of contrasts."""
    if contrasts is not None:
        forms = np.einsum("ca,ab,cb->c", contrasts, matrix, contrasts, optimize=True)
    else:
        diagonal, (i, j) = np.diag(matrix), np.triu_indices(len(matrix), k=1)
        forms = diagonal[i] + diagonal[j] - matrix[i, j] - matrix[j, i]
    return np.asarray(np.maximum(forms, 0.0))


def joint_leaderboard(panel: JudgePanelFit, *, initial_rating: float) -> Leaderboard:
    """Return the combined leaderboard of several judges.

    Parameters
    ----------
    panel : JudgePanelFit
        Of J judges.
    initial_rating : float
        Rating points of the mean.

    Returns
    -------
    Leaderboard
        In rating points, each with the 95% interval of its distance to the mean of all. `parameters` has `tau` and
        the numbers of `judges`.

    Raises
    ------
    ValueError
        If the judges are too few for a combined leaderboard, because no interval would cover.
    """
    _refuse_few_judges(panel)
    m = len(panel.models)
    value, std_error, df = panel.estimates(np.eye(m) - 1.0 / m)
    half_width = POINTS_PER_LOG_ODDS * t_quantile(df) * std_error
    rating = initial_rating + POINTS_PER_LOG_ODDS * value
    n_prompts = panel.n_prompts
    return Leaderboard(
        label=JOINT_BOARD_LABEL,
        interval="judges and prompts",
        models=panel.models,
        rating=rating,
        std_error=POINTS_PER_LOG_ODDS * std_error,
        ci_low=rating - half_width,
        ci_high=rating + half_width,
        n_prompts=np.full(m, float(n_prompts)),
        n_clusters=n_prompts,
        parameters={"tau": panel.tau, "judges": float(len(panel.judges))},
    )


def compute_joint_differences(panels: Mapping[str, JudgePanelFit]) -> list[Difference]:
    """Test every difference on the combined leaderboards, adjusted over all pairs and dimensions by Holm.

    Parameters
    ----------
    panels : mapping of str to Panel
        By dimension, each with a combined leaderboard.

    Returns
    -------
    list of Difference
        In rating points, the better one first.

    Raises
    ------
    ValueError
        If the judges are too few for a combined leaderboard, because no interval would cover.
    """
    rows = []
    for dimension, panel in panels.items():
        _refuse_few_judges(panel)
        value, std_error, df = panel.estimates()
        half_width = POINTS_PER_LOG_ODDS * t_quantile(df) * std_error
        p_values = 2.0 * scipy.special.stdtr(df, -np.abs(value / std_error))
        for i, (a, b) in enumerate(combinations(panel.models, 2)):
            points = POINTS_PER_LOG_ODDS * float(abs(value[i]))
            rows.append(
                Difference(
                    dimension=dimension,
                    higher=a if value[i] >= 0 else b,
                    lower=b if value[i] >= 0 else a,
                    difference=points,
                    std_error=POINTS_PER_LOG_ODDS * float(std_error[i]),
                    ci_low=points - float(half_width[i]),
                    ci_high=points + float(half_width[i]),
                    p_value=float(p_values[i]),
                )
            )
    p_holm = adjust_by_holm(
        np.array([d.p_value for d in rows], dtype=np.float64)
    ).tolist()
    return [
        replace(difference, p_holm=p, significant=p <= ALPHA)
        for difference, p in zip(rows, p_holm, strict=True)
    ]


def _refuse_few_judges(panel: JudgePanelFit) -> None:
    if not panel.has_joint_board:
        n, m = len(panel.judges), len(panel.models)
        raise ValueError(
            f"A combined leaderboard of {m} entrants needs {judges_needed(m)} judges; got {n}."
        )


def judges_needed(n_entrants: int) -> int | None:
    """Return how many judges a combined leaderboard of so many entrants needs.

    Parameters
    ----------
    n_entrants : int

    Returns
    -------
    int or None
        Three from four entrants on, of three five; None of two, whose tastes cannot be told from scales.

    Examples
    --------
    >>> [judges_needed(m) for m in (2, 3, 4, 12)]
    [None, 5, 3, 3]
    """
    if n_entrants < _MIN_ENTRANTS:
        return None
    return max(MIN_JUDGES_FOR_JOINT_FIT, 1 + math.ceil(_MIN_DF / (n_entrants - 2)))


def list_contradictions(
    tested: Mapping[str, list[Difference]],
) -> list[tuple[str, str, str, str]]:
    """Return where two judges contradict each other, each by its own Holm.

    Parameters
    ----------
    tested : mapping of str to list of Difference
        By judge, of one dimension.

    Returns
    -------
    list of (judge, judge, entrant, entrant)
        The first judge has the first entrant ahead of the second, significantly, and the second judge the reverse.
    """
    ahead = {
        name: {(d.higher, d.lower): None for d in judge_pairs if d.significant}
        for name, judge_pairs in tested.items()
    }
    return [
        (judge_a, judge_b, higher, lower)
        for judge_a, judge_b in combinations(ahead, 2)
        for higher, lower in ahead[judge_a]
        if (lower, higher) in ahead[judge_b]
    ]
