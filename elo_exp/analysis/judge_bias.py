"""What moves a judge besides quality: the position in which a response is shown, and its length.

Both are a column x in Bradley-Terry: logit P(i beats j) = theta_i - theta_j + effect x, with errors
clustered by prompt. Letters: m models; g games; n clusters, which are prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from elo_exp.analysis.win_rates import mean_error
from elo_exp.arrays import Array, Mask, known, records
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, Fit, bread, strongest_component
from elo_exp.ratings.extended import Curves, fit_extended
from elo_exp.ratings.games import Games, Kinds, games
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile
from elo_exp.records import Comparison, Record

Lengths = Mapping[tuple[str, str], int]  # characters, by prompt and model

# log-odds of a game: as certain only if the maximum lies at infinity
_LARGEST_GAP = 25.0
# of a column's sum of squares: what rounding leaves of one the models explain
_COLLINEAR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEffect(Record):
    """How much it helps a response to be shown first; None where the verdicts do not tell."""

    dimension: str
    n_prompts: int  # with a decisive verdict
    n_verdicts: int  # single ones, of battles that were asked in both orders
    n_decisive: int  # those that name a winner: all that is used
    effect: float | None = None  # log-odds; above zero the first shown wins more often
    std_error: float | None = None  # clustered by prompt
    # that of two equal responses the first shown wins, if one does
    p_first: float | None = None
    ci_low: float | None = None  # of p_first
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect(Record):
    """How much it helps a response to be longer: log-odds effect * tanh(difference / scale).

    None where the games do not tell.
    """

    dimension: str
    n_prompts: int
    n_games: int
    # battles left out, because the length of a response is unknown
    n_without_length: int
    # characters: the root mean square difference of two responses
    scale: float | None = None
    effect: float | None = None
    std_error: float | None = None  # clustered by prompt
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRating(Record):
    """A model's Bradley-Terry rating as it is, and at equal length; from the same games."""

    dimension: str
    model: str
    mean_length: float  # characters, over the games
    rating: float | None = None
    std_error: float | None = None
    rating_at_equal_length: float | None = None
    std_error_at_equal_length: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTercile(Record):
    """How often the longer response wins where lengths differ by so much; a tie is half a win."""

    dimension: str
    shortest: int  # the least difference, in characters
    longest: int
    n_prompts: int
    n_games: int
    win_rate: float
    std_error: float | None = None  # clustered by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLead(Record):
    """By how much the best model would be ahead of the second at equal length, in rating points."""

    first: str
    second: str
    difference: float
    std_error: float | None = None  # clustered by prompt
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControl:
    """The length effect and what it does to the ratings, best first, and to the lead."""

    effect: LengthEffect
    ratings: tuple[LengthRating, ...]
    lead: LengthLead | None = None  # None where fewer than two are rated
    terciles: tuple[LengthTercile, ...]


# Position


def position_effect(battles: Battles, *, dimension: str) -> PositionEffect:
    """Estimate the position effect from the single verdicts of battles asked in both orders.

    A battle of one order, of one that is the other mirrored, or of equal answers says nothing about
    order and is left out. So are ties: of the verdicts between equals that name a winner, p_first
    name the first shown, however many ties there are (Davidson 1970).
    """
    verdicts = games(battles.select(battles.both_orders()), use="both")
    shown_first = np.tile(
        [1.0, -1.0], len(verdicts.score) // 2
    )  # of the game, or the second
    decisive = verdicts.score != 0.5
    played = verdicts.select(decisive)
    fit = CovariateFit.of(played, shown_first[decisive])
    half_width = _half_width(played) * fit.std_error[-1]
    return PositionEffect(
        dimension=dimension,
        n_prompts=played.n_clusters,
        n_verdicts=len(verdicts.score),
        n_decisive=len(played.score),
        effect=known(fit.effect),
        std_error=known(float(fit.std_error[-1])),
        p_first=known(float(special.expit(fit.effect))),
        ci_low=known(float(special.expit(fit.effect - half_width))),
        ci_high=known(float(special.expit(fit.effect + half_width))),
    )


def _half_width(games: Games) -> float:
    """Standard errors on each side of a 95 % interval."""
    return float(t_quantile(degrees_of_freedom(games.n_clusters)))


# Length


def response_lengths(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], int]:
    """Return the characters of every response that is compared, by prompt and entrant."""
    return {
        (c.prompt_id, entrant): len(response)
        for c in comparisons
        for entrant, response in (
            (c.entrant_a, c.response_a),
            (c.entrant_b, c.response_b),
        )
    }


def length_control(
    battles: Battles,
    lengths: Lengths,
    *,
    dimension: str,
    initial_rating: float,
    use: str,
) -> LengthControl:
    """Estimate the effect of length in Bradley-Terry, a tie being half a win; Dubois et al. (2024).

    The difference of lengths has no sign of its own, so its scale is the root mean square.

    use  both: two games where both orders were asked; consistent: the reconciled winner
    """
    characters = _length_table(battles, lengths)
    question = np.minimum(battles.question, len(battles.questions))
    is_known = np.isfinite(characters[question, battles.model_a])
    is_known &= np.isfinite(characters[question, battles.model_b])
    played = games(battles.select(is_known), use=use)
    question = played.prompts[played.cluster]
    of_first, of_second = (
        characters[question, played.first],
        characters[question, played.second],
    )
    difference = of_first - of_second
    scale = math.sqrt((difference**2).mean()) if len(difference) else 0.0
    is_told = scale > 0.0 and (played.score != 0.5).any()
    fit = CovariateFit.of(
        played, np.tanh(difference / scale) if is_told else np.zeros_like(difference)
    )
    half_width = _half_width(played) * fit.std_error[-1]
    ratings = _length_ratings(
        battles.models,
        played,
        np.append(of_first, of_second),
        fit,
        dimension=dimension,
        initial_rating=initial_rating,
    )
    return LengthControl(
        effect=LengthEffect(
            dimension=dimension,
            n_prompts=played.n_clusters,
            n_games=len(difference),
            n_without_length=int((~is_known).sum()),
            scale=scale or None,
            effect=known(fit.effect),
            std_error=known(float(fit.std_error[-1])),
            ci_low=known(float(fit.effect - half_width)),
            ci_high=known(float(fit.effect + half_width)),
        ),
        ratings=ratings,
        lead=_length_lead(battles.models, ratings, fit, _half_width(played)),
        terciles=_terciles(played, difference, dimension),
    )


def _length_lead(
    models: Sequence[str],
    ratings: Iterable[LengthRating],
    controlled: CovariateFit,
    half_width: float,
) -> LengthLead | None:
    """half_width: standard errors on each side of a 95 % interval"""
    best = [r.model for r in ratings if r.rating_at_equal_length is not None][:2]
    if len(best) < 2:
        return None
    contrast = np.zeros(len(controlled.covariance))
    names = [models[i] for i in np.flatnonzero(controlled.rated).tolist()]
    contrast[[names.index(model) for model in best]] = POINTS, -POINTS
    difference = float(contrast[:-1] @ controlled.theta)
    variance = contrast @ controlled.covariance @ contrast
    std_error = float(np.sqrt(np.maximum(variance, 0.0)))
    return LengthLead(
        first=best[0],
        second=best[1],
        difference=difference,
        std_error=known(std_error),
        ci_low=known(difference - half_width * std_error),
        ci_high=known(difference + half_width * std_error),
    )


def _length_table(battles: Battles, lengths: Lengths) -> Array:
    """(questions + 1, models): characters, NaN where unknown; the last row: names no question."""
    question = {name: i for i, name in enumerate(battles.questions)}
    model = {name: i for i, name in enumerate(battles.models)}
    table = np.full((len(question) + 1, len(model)), np.nan)
    for (prompt, name), n in lengths.items():
        if prompt in question and name in model:
            table[question[prompt], model[name]] = n
    return table


def _length_ratings(
    models: Sequence[str],
    played: Games,
    characters: Array,
    controlled: CovariateFit,
    *,
    dimension: str,
    initial_rating: float,
) -> tuple[LengthRating, ...]:
    """Best first; `characters` (2 g,): of the first of each game, then of the second."""
    side, m = np.append(played.first, played.second), len(models)
    n_games = np.bincount(side, minlength=m)
    raw = Fit.of(played)
    columns = np.full((5, m), np.nan)
    columns[0] = np.bincount(side, characters, m) / np.maximum(n_games, 1)
    columns[1, raw.rated] = initial_rating + POINTS * raw.theta
    columns[2, raw.rated] = POINTS * np.sqrt(np.maximum(np.diag(raw.covariance), 0.0))
    columns[3, controlled.rated] = initial_rating + POINTS * controlled.theta
    columns[4, controlled.rated] = POINTS * controlled.std_error[:-1]
    order = np.argsort(-columns[1], kind="stable")  # those without a rating are last
    order = order[n_games[order] > 0]
    found = records(
        LengthRating,
        dimension=dimension,
        model=np.array(models, dtype=object)[order],
        mean_length=columns[0, order],
        rating=columns[1, order],
        std_error=columns[2, order],
        rating_at_equal_length=columns[3, order],
        std_error_at_equal_length=columns[4, order],
    )
    return tuple(found)


def _terciles(
    games: Games, difference: Array, dimension: str
) -> tuple[LengthTercile, ...]:
    """Split the games between responses of different lengths in three, as evenly as they allow."""
    apart = np.abs(difference)
    if not apart.any():
        return ()
    ends = np.quantile(apart[apart > 0], [1 / 3, 2 / 3])
    tercile = np.where(apart > 0, np.digitize(apart, ends, right=True), -1)
    longer_wins = np.where(difference > 0, games.score, 1.0 - games.score)
    found = []
    for number in range(3):
        chosen = tercile == number
        if not chosen.any():
            continue
        rate = float(longer_wins[chosen].mean())
        found.append(
            LengthTercile(
                dimension=dimension,
                shortest=int(apart[chosen].min()),
                longest=int(apart[chosen].max()),
                n_prompts=len(np.unique(games.cluster[chosen])),
                n_games=int(chosen.sum()),
                win_rate=rate,
                std_error=mean_error(longer_wins[chosen] - rate, games.cluster[chosen]),
            )
        )
    return tuple(found)


# Bradley-Terry with a column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateFit:
    """Abilities and the effect of a column at the maximum of the likelihood, in log-odds.

    NaN where there is no finite maximum, or no single one (no game, a column that decides every
    game or that the models explain); an error also where the prompts do not differ.
    """

    rated: Mask  # (models,): the m models that have a finite ability together
    theta: Array  # (m,), mean zero
    effect: float
    covariance: Array  # (m + 1, m + 1), with the effect last, clustered by prompt

    @property
    def std_error(self) -> Array:
        """Of the abilities and the effect (m + 1,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @classmethod
    def of(cls, games: Games, column: Array) -> CovariateFit:
        """Fit by maximum likelihood; column (g,) is oriented towards the first of each game."""
        rated = strongest_component(games.wins())
        played, x = games.among(rated), column[rated[games.first] & rated[games.second]]
        m, score = played.n_models, played.score

        def curves(gap: Array, effect: float) -> Curves | None:
            total = gap + effect * x
            if np.abs(total).max() > _LARGEST_GAP:
                return None
            p = special.expit(total)
            return Curves(
                value=score * total - np.logaddexp(0.0, total),
                by_gap=score - p,
                by_other=x * (score - p),
                by_gap_twice=p * (p - 1.0),
                by_both=x * p * (p - 1.0),
                by_other_twice=x**2 * p * (p - 1.0),
            )

        parameters = np.full(m + 1, np.nan)
        covariance = np.full((m + 1, m + 1), np.nan)
        # What of the column is left to the effect, where all are equals.
        cross = played.by_cluster(x).sum(axis=0)
        left = x @ x - cross @ bread(np.zeros(m), played) @ cross / 4.0
        if left > _COLLINEAR * (x @ x):
            kinds = Kinds(
                first=played.first,
                second=played.second,
                score=score,
                order=np.arange(len(x)),
            )
            found, error = fit_extended(played, kinds, curves, np.zeros(m + 1))
            gap = found[played.first] - found[played.second] + found[m] * x
            if np.abs(gap).max() < _LARGEST_GAP - 1.0:
                parameters, covariance = found, error
        return cls(
            rated=rated,
            theta=parameters[:-1],
            effect=float(parameters[-1]),
            covariance=covariance,
        )
