"""Several judges of the same entrants: how far their tastes differ, and what is true whichever such judge is asked.

The model. Judge j rates entrant m, in log-odds, at

    phi_jm = s_j theta_m + taste_jm,    taste ~ N(0, tau^2),

so that the board is theta, the mean over judges, on their scale. Letters: j of J judges; m of M entrants; k of K
prompts; c contrasts of the entrants, such as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA, Difference, holm
from elo_exp.analysis.conclusions import Reason
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import fit_columns
from elo_exp.ratings.fit import POINTS, Fit, bread, residuals
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile

JOINT_FROM = 3  # judges: two have each a board of their own, and no interval together
LABEL = "Bradley-Terry, mean of judges"  # of a joint board
_MIN_ENTRANTS = 3  # with two, a taste cannot be told from another scale
_MIN_DF = 4  # of the variance between judges: with 2, intervals of 95 % cover .90
_EQUAL_SHARES = 1e-9  # relative difference of prompts' shares that rounding leaves
_NO_SPREAD = 1e-12  # of the squares of theta


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
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
    shared: Array
    own: Array
    n_prompts: int
    n_effective: float | None = None

    @classmethod
    def of(cls, battles: Mapping[str, Battles], *, orders: str) -> Panel | Reason:
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
        if none := [name for name, some in battles.items() if not len(some)]:
            return Reason(name="no_verdicts", about={"judge": none[0]})
        fits = {
            name: fit_columns(games(some, orders=orders))
            for name, some in battles.items()
        }
        models = sorted({model for some in battles.values() for model in some.models})
        if obstacle := _obstacle(battles, fits, models):
            return obstacle
        prompts = {name: _prompts(battles[name], fit) for name, fit in fits.items()}
        for one, other in combinations(prompts, 2):
            if prompts[one].keys().isdisjoint(prompts[other]):
                return Reason(name="apart", about={"judge": one, "other": other})
        shared, own, n_prompts, n_effective = _covariances(
            [*fits.values()], [*prompts.values()]
        )
        return cls(
            judges=tuple(fits),
            models=tuple(models),
            abilities=np.array([fit.theta for fit in fits.values()]),
            shared=shared,
            own=own,
            n_prompts=n_prompts,
            n_effective=n_effective,
        )

    @property
    def worth(self) -> float:
        """Return the prompts that degrees of freedom count: effective ones."""
        return self.n_prompts if self.n_effective is None else self.n_effective

    @property
    def board(self) -> Array:
        """Average the abilities (M,) over the judges."""
        return np.asarray(self.abilities.mean(axis=0))

    @property
    def tastes(self) -> Array:
        """Return what is left of each judge's abilities (J, M) beside the board on its scale, noise included."""
        theta, scale = self.board, np.ones(len(self.judges))
        if (total := theta @ theta) > _NO_SPREAD:
            scale = self.abilities @ theta / total  # of mean 1
        return np.asarray(self.abilities - scale[:, None] * theta)

    @property
    def df(self) -> int:
        """Count the degrees of freedom of the variance between judges: (J - 1)(M - 2)."""
        return (len(self.judges) - 1) * (len(self.models) - 2)

    @property
    def has_joint(self) -> bool:
        """Whether judges and entrants are enough for an interval that covers: three judges, and 4 degrees of freedom."""
        return len(self.judges) >= JOINT_FROM and self.df >= _MIN_DF

    @property
    def mean_square(self) -> float:
        """Return the mean square of tastes, which is tau^2 and what prompts add to it."""
        return float((self.tastes**2).sum()) / self.df

    @property
    def tau(self) -> float:
        """Estimate the standard deviation of tastes in rating points; 0 where prompts explain all of it."""
        own = _quadratic(self.own, None)
        return POINTS * math.sqrt(max(self.mean_square - own.mean() / 2.0, 0.0))

    def estimates(
        self,
        contrasts: Array | None = None,
        *,
        more_judges: int = 0,
        times_prompts: float = 1.0,
    ) -> tuple[Array, Array, Array]:
        """Estimate contrasts of the board, whichever such judges are asked.

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
        value = _values(self.board, contrasts)
        of_mean, own = (_quadratic(one, contrasts) for one in (self.shared, self.own))
        after = n_judges + more_judges
        squares = _quadratic(np.eye(m), contrasts)
        tastes = np.maximum(squares * self.mean_square - own, 0.0) / after
        shared = np.maximum(of_mean - own / n_judges, 0.0) if more_judges else of_mean
        prompts = (shared + (own / after if more_judges else 0.0)) / times_prompts
        variance = tastes + prompts
        df = variance**2 / (
            tastes**2 / ((after - 1) * (m - 2))
            + prompts**2 / max(self.worth * times_prompts - 1.0, 1.0)
            + np.finfo(np.float64).tiny
        )
        return value, np.sqrt(variance), df

    def half_width(self, *, more_judges: int = 0, times_prompts: float = 1.0) -> float:
        """Return half of the median 95 % interval of a difference, in rating points; parameters as in `estimates`.

        Satterthwaite's degrees of freedom fall where the smaller of two variances does; more of anything is not taken
        to leave fewer than there are.
        """
        _, _, now = self.estimates()
        _, std_error, df = self.estimates(
            more_judges=more_judges, times_prompts=times_prompts
        )
        df = np.maximum(df, now)
        return POINTS * float(np.median(t_quantile(df) * std_error))

    def widest_taste(self) -> tuple[str, str, float]:
        """Return the judge and the entrant that it rates most unlike the others, and by how many rating points.

        Positive: higher than the mean of the others has it, on this judge's scale. Noise is in it.
        """
        tastes, n = self.tastes, len(self.judges)
        j, m = np.unravel_index(np.abs(tastes).argmax(), tastes.shape)
        points = POINTS * float(tastes[j, m]) * n / (n - 1)
        return self.judges[j], self.models[m], points


def _obstacle(
    battles: Mapping[str, Battles], fits: Mapping[str, Fit], models: Sequence[str]
) -> Reason | None:
    """Why the fits of judges have nothing in common to estimate."""
    if len(models) < _MIN_ENTRANTS:
        return Reason(name="few_entrants", about={"n": len(models)})
    for name, some in battles.items():
        if some.n_unnamed():
            return Reason(name="no_prompts", about={"judge": name})
        rated = np.array(some.models, dtype=object)[fits[name].rated].tolist()
        if absent := [model for model in models if model not in rated]:
            return Reason(name="unrated", about={"judge": name, "models": absent})
        if not np.isfinite(fits[name].covariance).all():
            return Reason(name="no_error", about={"judge": name})
    return None


def _prompts(battles: Battles, fit: Fit) -> dict[str, int]:
    """The row of each prompt in a fit, by its name."""
    codes = fit.played.prompts.tolist()
    names = battles.unit_names
    return {names[code]: row for row, code in enumerate(codes)}


def _covariances(
    fits: Sequence[Fit], prompts: Sequence[Mapping[str, int]]
) -> tuple[Array, Array, int, float | None]:
    """The covariances (M, M) that prompts leave in the mean of judges, and in one judge beside the mean; and K.

    The last is how many prompts of equal size would tell as much, if prompts have unequal shares of the games. A
    prompt's part is then taken as if the fits had left the prompt out, as `Balance` takes it.

    psi_jk is how far prompt k moves the abilities by judge j. Their products are summed over prompts before they are
    multiplied by what M entrants make of them, so that no array has K rows.
    """
    place = {name: k for k, name in enumerate(dict.fromkeys(chain(*prompts)))}
    n_judges, m = len(fits), len(fits[0].theta)
    moved, breads = [], []
    for fit, rows in zip(fits, prompts, strict=True):
        scores, inverse = fit.parts, np.eye(m)
        if scores is None:
            scores = fit.played.by_cluster(residuals(fit.theta, fit.played))
            inverse = bread(fit.theta, fit.played)
        own = scipy.sparse.coo_array(scores)
        own.eliminate_zeros()
        at = np.array([place[name] for name in rows], dtype=np.intp)
        where = at[own.coords[0]], own.coords[1]
        shape = len(place), m
        moved.append(scipy.sparse.csr_array((own.data, where), shape=shape))
        breads.append(inverse)
    every = scipy.sparse.hstack(moved, format="csr")  # (K, J M)
    n_prompts, n_effective = int(np.count_nonzero(np.diff(every.indptr))), None
    share = _shares_of_games(fits, prompts, place)
    if n_prompts > 1 and share.max() - share.min() > _EQUAL_SHARES * share.max():
        n_effective = float(1.0 / (share**2).sum())
        left_out = (1.0 - 1.0 / len(share)) / (1.0 - share)
        every = scipy.sparse.csr_array(scipy.sparse.diags_array(left_out) @ every)
    products = (every.T @ every).toarray().reshape(n_judges, m, n_judges, m)
    b = np.array(breads)
    crossed = np.einsum("jab,jbkc,kcd->jakd", b, products, b, optimize=True)
    of_mean = crossed.sum(axis=(0, 2)) / n_judges**2
    of_each = np.einsum("jajd->ad", crossed)
    own = (of_each - n_judges * of_mean) / max(n_judges - 1, 1)
    of_mean *= n_prompts / max(n_prompts - 1, 1)
    return of_mean, own, n_prompts, n_effective


def _shares_of_games(
    fits: Sequence[Fit],
    prompts: Sequence[Mapping[str, int]],
    place: Mapping[str, int],
) -> Array:
    """The share (K,) of each prompt in the games, as a mean over judges."""
    total = np.zeros(len(place))
    for fit, rows in zip(fits, prompts, strict=True):
        played = fit.played
        own = np.bincount(played.cluster, played.count, played.n_rows)
        at = np.array([place[name] for name in rows], dtype=np.intp)
        total[at] += own[list(rows.values())] / own.sum()
    return np.asarray(total / len(fits))


def _values(abilities: Array, contrasts: Array | None) -> Array:
    """Contrasts (c,) of abilities (M,); None: of all pairs."""
    if contrasts is not None:
        return np.asarray(contrasts @ abilities)
    i, j = np.triu_indices(len(abilities), k=1)
    return np.asarray(abilities[i] - abilities[j])


def _quadratic(matrix: Array, contrasts: Array | None) -> Array:
    """c' A c of each contrast (c,), not below zero; None: of all pairs, whose matrix of contrasts is never made."""
    if contrasts is not None:
        found = np.einsum("ca,ab,cb->c", contrasts, matrix, contrasts, optimize=True)
    else:
        own, (i, j) = np.diag(matrix), np.triu_indices(len(matrix), k=1)
        found = own[i] + own[j] - matrix[i, j] - matrix[j, i]
    return np.asarray(np.maximum(found, 0.0))


def leaderboard(panel: Panel, *, initial_rating: float) -> Leaderboard:
    """Return the joint board of several judges.

    Parameters
    ----------
    panel : Panel
        Of J judges.
    initial_rating : float
        Rating points of the mean.

    Returns
    -------
    Leaderboard
        In rating points, each with the 95 % interval of its distance to the mean of all. `parameters` has `tau` and
        the numbers of `judges`.

    Raises
    ------
    ValueError
        Of judges without a joint board: no interval would cover.
    """
    _refuse_few(panel)
    m = len(panel.models)
    value, std_error, df = panel.estimates(np.eye(m) - 1.0 / m)
    half = POINTS * t_quantile(df) * std_error
    rating = initial_rating + POINTS * value
    n_prompts = panel.n_prompts
    return Leaderboard(
        label=LABEL,
        interval="judges and prompts",
        models=panel.models,
        rating=rating,
        std_error=POINTS * std_error,
        ci_low=rating - half,
        ci_high=rating + half,
        n_prompts=np.full(m, float(n_prompts)),
        n_clusters=n_prompts,
        parameters={"tau": panel.tau, "judges": float(len(panel.judges))},
    )


def differences(panels: Mapping[str, Panel]) -> list[Difference]:
    """Test every difference on the joint boards, adjusted over all pairs and dimensions by Holm.

    Parameters
    ----------
    panels : mapping of str to Panel
        By dimension, each with a joint board.

    Returns
    -------
    list of Difference
        In rating points, the better one first.

    Raises
    ------
    ValueError
        Of judges without a joint board: no interval would cover.
    """
    found = []
    for dimension, panel in panels.items():
        _refuse_few(panel)
        value, std_error, df = panel.estimates()
        half = POINTS * t_quantile(df) * std_error
        p_values = 2.0 * scipy.special.stdtr(df, -np.abs(value / std_error))
        for i, (a, b) in enumerate(combinations(panel.models, 2)):
            points = POINTS * float(abs(value[i]))
            found.append(
                Difference(
                    dimension=dimension,
                    higher=a if value[i] >= 0 else b,
                    lower=b if value[i] >= 0 else a,
                    difference=points,
                    std_error=POINTS * float(std_error[i]),
                    ci_low=points - float(half[i]),
                    ci_high=points + float(half[i]),
                    p_value=float(p_values[i]),
                )
            )
    p_holm = holm(np.array([d.p_value for d in found], dtype=np.float64)).tolist()
    return [
        replace(one, p_holm=p, significant=p <= ALPHA)
        for one, p in zip(found, p_holm, strict=True)
    ]


def _refuse_few(panel: Panel) -> None:
    if not panel.has_joint:
        n, m = len(panel.judges), len(panel.models)
        raise ValueError(
            f"found {n} judges of {m} entrants, expected {judges_needed(m)} judges"
        )


def judges_needed(n_entrants: int) -> int | None:
    """Return how many judges make a joint board of so many entrants.

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
    return max(JOINT_FROM, 1 + math.ceil(_MIN_DF / (n_entrants - 2)))


def disagreements(
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
        name: {(d.higher, d.lower): None for d in some if d.significant}
        for name, some in tested.items()
    }
    return [
        (one, other, higher, lower)
        for one, other in combinations(ahead, 2)
        for higher, lower in ahead[one]
        if (lower, higher) in ahead[other]
    ]
