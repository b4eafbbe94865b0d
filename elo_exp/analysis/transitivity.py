"""Whether any ranking can explain a judge's verdicts: pairs that do not fit, and cycles.

Letters: m rated models; p of the pairs i < j that met; q of n prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from elo_exp.analysis.win_rates import in_name_order, pairs_that_met
from elo_exp.arrays import Array, Index, Mask, records
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import Fit, bread, residuals, win_probability
from elo_exp.ratings.games import games
from elo_exp.records import Record

_MAX_PAIRS = 2_000  # of the test: 63 models, whose pairs take seconds
_SINGULAR = 1e-10  # of the largest variance: what rounding leaves of zero


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResidual(Record):
    """The observed and the expected win rate of one pair, a tie being half a win."""

    dimension: str
    model_a: str
    model_b: str
    n_games: int
    observed: float
    expected: float  # by Bradley-Terry
    z: float | None = None  # the difference in its own prompt-clustered standard errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles(Record):
    """How often three models beat one another in a circle, on a prompt where all three met."""

    dimension: str
    models: tuple[str, ...]
    n_prompts: int  # on which a triple met
    n_cyclic_prompts: int  # on which a triple is a cycle
    n_triples: int  # over all prompts
    n_cyclic: int

    @property
    def share(self) -> float | None:
        """Of prompts with a cycle."""
        return self.n_cyclic_prompts / self.n_prompts if self.n_prompts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitivityTest(Record):
    """Whether one rating for each model explains all pairs; None where the games do not tell."""

    dimension: str
    n_models: int  # with a rating
    n_pairs: int  # of them that met
    n_prompts: int  # there is no test unless there are more than `df`
    df: int  # pairs that are free once the ratings are known
    chi_square: float | None = None  # robust: clustered by prompt; at most n_prompts
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResidualWins:
    """The wins of each pair that Bradley-Terry does not explain, among the m models that it rates.

    A prompt's part in them is e_q - v D B s_q: its own residuals e_q (p,), less what its scores
    s_q (m,) move the expected wins through the abilities; D (p, m) has 1 for the first of a pair
    and -1 for the second, B is the inverse information and v = n_games expected (1 - expected).
    """

    rated: Mask  # (models,)
    n_prompts: int
    first: Index  # (p,) of the rated
    second: Index  # (p,)
    n_games: Index  # (p,)
    expected: Array  # (p,) win rate of the first
    residual: Array  # (p,) wins less expected wins
    own: sparse.csr_array  # e (n, p)
    design: sparse.csr_array  # D (p, m)
    by_ability: Array  # E'S B (p, m)
    of_abilities: Array  # B S'S B (m, m)

    @classmethod
    def of(cls, battles: Battles, *, use: str) -> ResidualWins:
        fit = Fit.of(games(in_name_order(battles), use=use))
        played, inverse = fit.played, bread(fit.theta, fit.played)
        first, second, pair = pairs_that_met(played.first, played.second)
        expected = win_probability(fit.theta)[first, second]
        residual = residuals(fit.theta, played)
        m, p = len(fit.theta), len(first)
        own = sparse.csr_array(
            (residual, (played.cluster, pair)), shape=(played.n_clusters, p)
        )
        signs, models = np.repeat([1.0, -1.0], p), np.append(first, second)
        design = sparse.csr_array(
            (signs, (np.tile(np.arange(p), 2), models)), shape=(p, m)
        )
        scores = own @ design
        return cls(
            rated=fit.rated,
            n_prompts=played.n_clusters,
            first=first,
            second=second,
            n_games=np.bincount(pair),
            expected=expected,
            residual=np.asarray(np.bincount(pair, residual), dtype=np.float64),
            own=own,
            design=design,
            by_ability=(own.T @ scores).toarray() @ inverse,
            of_abilities=inverse @ (scores.T @ scores).toarray() @ inverse,
        )

    @property
    def n_models(self) -> int:
        return len(self.of_abilities)

    @property
    def slope(self) -> Array:
        """v (p,)"""
        return self.n_games * self.expected * (1.0 - self.expected)

    def variances(self) -> Array:
        """The clustered variances (p,) of the residual wins."""
        own = self.own.power(2).sum(axis=0)
        cross = self.design.multiply(self.by_ability).sum(axis=1)
        square = self.design.multiply(self.design @ self.of_abilities).sum(axis=1)
        return np.asarray(own - 2.0 * self.slope * cross + self.slope**2 * square)

    def covariance(self) -> Array:
        """The clustered covariance (p, p) of the residual wins, of rank p - m + 1 at most."""
        moved = self.slope[:, None] * self.design.toarray()
        cross = self.by_ability @ moved.T
        own = (self.own.T @ self.own).toarray()
        return np.asarray(own - cross - cross.T + moved @ self.of_abilities @ moved.T)


def transitivity_test(wins: ResidualWins, *, dimension: str) -> TransitivityTest:
    """Test Bradley-Terry against the saturated model, a win rate for each pair.

    The statistic is the prompt-clustered score chi-square of the residual wins, with
    (m - 1) (m - 2) / 2 degrees of freedom if all pairs met. Their covariance is estimated from n
    prompts, so p is Hotelling's: F with df and n - df. With eight models and 143 prompts,
    chi-square and Wald's statistic reject 16 % of transitive tournaments at the 5 % level.
    """
    n, n_pairs = wins.n_prompts, len(wins.residual)
    df = n_pairs - wins.n_models + 1 if n_pairs else 0
    chi_square = p_value = None
    if 0 < df < n and n_pairs <= _MAX_PAIRS:
        chi_square = _chi_square(wins, df)
    if chi_square is not None:
        f = chi_square / (n - chi_square) * (n - df) / df
        p_value = float(special.fdtrc(df, n - df, f))
    return TransitivityTest(
        dimension=dimension,
        n_models=wins.n_models,
        n_pairs=n_pairs,
        n_prompts=n,
        df=df,
        chi_square=chi_square,
        p_value=p_value,
    )


def _chi_square(wins: ResidualWins, df: int) -> float | None:
    """None where the covariance lacks the rank df, or every prompt says exactly the same."""
    values, vectors = np.linalg.eigh(wins.covariance())
    values, vectors = values[-df:], vectors[:, -df:]
    if values[0] <= _SINGULAR * values[-1]:
        return None
    statistic = float(((vectors.T @ wins.residual) ** 2 / values).sum())
    return statistic if statistic < wins.n_prompts * (1.0 - _SINGULAR) else None


def pair_residuals(
    wins: ResidualWins, models: Sequence[str], *, dimension: str
) -> list[PairResidual]:
    """Compare observed and expected win rates of every pair of rated models that met.

    models  names of all models of the games, the unrated included
    """
    variance = wins.variances()
    has_error = (variance > _SINGULAR * wins.n_games) & (wins.n_prompts > 1)
    # Else every prompt says exactly the same.
    has_error &= wins.residual**2 < wins.n_prompts * variance * (1.0 - _SINGULAR)
    z = np.full(len(variance), np.nan)
    z[has_error] = wins.residual[has_error] / np.sqrt(variance[has_error])
    names = np.array(models, dtype=object)[wins.rated]
    return records(
        PairResidual,
        dimension=dimension,
        model_a=names[wins.first],
        model_b=names[wins.second],
        n_games=wins.n_games,
        observed=wins.expected + wins.residual / wins.n_games,
        expected=wins.expected,
        z=z,
    )


# Cycles


def cycles(battles: Battles, *, dimension: str) -> Cycles:
    """Count the cycles among all models.

    A pair of several battles on a prompt goes to who won more of them; a tie breaks a cycle. A
    triple counts on the prompts on which its three pairs met.
    """
    named = in_name_order(battles.select(battles.question < len(battles.questions)))
    m = max(len(named.models), 1)
    code = (named.question.astype(np.intp) * m + named.model_a) * m + named.model_b
    pairs, pair = np.unique(code, return_inverse=True)  # that met, on each prompt
    lead = np.bincount(pair, np.sign(named.scores() - 0.5), len(pairs))
    prompt, first, second = pairs // (m * m), pairs // m % m, pairs % m
    ends = np.append(prompt * m + first, prompt * m + second)
    node, at = np.unique(ends, return_inverse=True)  # a model on a prompt
    a, b = at[: len(pairs)], at[len(pairs) :]
    met = _links(np.append(a, b), np.append(b, a), len(node))
    won = _links(
        np.append(a[lead > 0], b[lead < 0]),
        np.append(b[lead > 0], a[lead < 0]),
        len(node),
    )
    _, of_node = np.unique(node // m, return_inverse=True)
    triples = np.bincount(of_node, (met @ met).multiply(met).sum(axis=1)) / 6
    circles = np.bincount(of_node, (won @ won).multiply(won.T).sum(axis=1)) / 3
    return Cycles(
        dimension=dimension,
        models=battles.models,
        n_prompts=int((triples > 0.5).sum()),
        n_cyclic_prompts=int((circles > 0.5).sum()),
        n_triples=round(triples.sum()),
        n_cyclic=round(circles.sum()),
    )


def _links(start: Index, end: Index, n: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(start)), (start, end)), shape=(n, n))
