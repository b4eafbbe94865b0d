"""What else moves a judge than who is better: the place in which a response is shown, and its length.

covariates.py fits both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.analysis.covariates import Fit, fit, mean_error
from elo_exp.arrays import Array, Mask
from elo_exp.ratings.games import Games
from elo_exp.records import Battle, Comparison, Record
from elo_exp.statistics.likelihood import POINTS, games, models, results
from elo_exp.statistics.student import half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEffect(Record):
    """How much it helps a response to be shown first; None where the verdicts do not say."""

    dimension: str
    n_prompts: int  # with a decisive verdict
    n_verdicts: int  # single ones, of battles that were asked in both orders
    n_decisive: int  # those that name a winner: all that is used
    effect: float | None = None  # log-odds; above zero the first shown wins more often
    std_error: float | None = None  # prompt-clustered
    p_first: float | None = None  # that of two equal responses the first shown wins, if either does
    ci_low: float | None = None  # of p_first
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect(Record):
    """How much it helps a response to be longer: log-odds effect * tanh(difference / scale); None where the games do
    not say."""

    dimension: str
    n_prompts: int
    n_games: int
    n_without_length: int  # battles left out, because the length of a response is unknown
    scale: float | None = None  # characters: the root mean square difference of two responses
    effect: float | None = None
    std_error: float | None = None  # prompt-clustered
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRating(Record):
    """A model's Bradley-Terry rating as it is, and between responses of equal length; from the same games."""

    dimension: str
    model: str
    mean_length: float  # characters, over the games
    rating: float | None = None
    std_error: float | None = None
    rating_at_equal_length: float | None = None
    std_error_at_equal_length: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTercile(Record):
    """How often the longer response wins, a tie being half a win, where lengths differ by so many characters."""

    dimension: str
    shortest: int  # the least difference, in characters
    longest: int
    n_prompts: int
    n_games: int
    win_rate: float
    std_error: float | None = None  # prompt-clustered


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControl:
    """The length effect and what it does to the ratings; best first."""

    effect: LengthEffect
    ratings: tuple[LengthRating, ...]
    terciles: tuple[LengthTercile, ...]


Lengths = Mapping[tuple[str, str], int]  # characters, by prompt and model


def position_effect(battles: Sequence[Battle], *, dimension: str) -> PositionEffect:
    """From the single verdicts of the battles that were asked in both orders.

    A battle of one order, of one that is the other turned round, or of equal answers says nothing of order and is left
    out. So are ties: of verdicts between equals that name a winner, p_first name the first shown, however many there
    are (Davidson 1970); with a tie as half a win, ties would hide a part of the effect.
    """
    asked = [b for b in battles if b.has_both_orders]
    verdicts = games(asked, models(asked), use="both")
    shown_first = np.tile([1.0, -1.0], len(asked))  # the first of the game, or the second
    decisive = verdicts.score != 0.5
    left, cluster = np.unique(verdicts.cluster[decisive], return_inverse=True)
    played = dataclasses.replace(
        verdicts,
        first=verdicts.first[decisive],
        second=verdicts.second[decisive],
        score=verdicts.score[decisive],
        cluster=cluster,
        prompts=verdicts.prompts[left],
    )
    found = fit(played, shown_first[decisive, None])
    effect, error = (
        (float(found.effects[0]), float(found.std_errors[-1])) if found else (math.nan, math.nan)
    )
    return PositionEffect(
        dimension=dimension,
        n_prompts=played.n_clusters,
        n_verdicts=len(verdicts.score),
        n_decisive=int(decisive.sum()),
        effect=_finite(effect),
        std_error=_finite(error),
        p_first=_finite(_probability(effect)),
        ci_low=_finite(_probability(effect - half_width(played.n_clusters) * error)),
        ci_high=_finite(_probability(effect + half_width(played.n_clusters) * error)),
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _probability(log_odds: float) -> float:
    return (1.0 + math.tanh(log_odds / 2.0)) / 2.0


# Length


def response_lengths(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], int]:
    """The characters of every response that is compared, by prompt and entrant."""
    return {
        (c.prompt_id, entrant): len(response)
        for c in comparisons
        for entrant, response in ((c.entrant_a, c.response_a), (c.entrant_b, c.response_b))
    }


def length_control(
    battles: Sequence[Battle], lengths: Lengths, *, dimension: str, initial_rating: float, use: str
) -> LengthControl:
    """The effect of length in Bradley-Terry, a tie being half a win; Dubois et al. (2024).

    The difference of lengths has no sign of its own, so its scale is the root mean square. `use` both: two games where
    both orders were asked; consistent: the reconciled winner.
    """
    known = [b for b in battles if None not in _lengths(b, lengths)]
    played = games(known, models(known), use=use)
    n_games = np.array([len(results(b, use=use)) for b in known], dtype=np.intp)
    of_game = np.repeat(
        np.array([_lengths(b, lengths) for b in known], dtype=np.float64).reshape(-1, 2),
        n_games,
        axis=0,
    )
    difference = of_game[:, 0] - of_game[:, 1]
    scale = math.sqrt(float((difference**2).mean())) if known else 0.0
    is_decisive = bool((played.score != 0.5).any())
    found = fit(played, np.tanh(difference / scale)[:, None]) if is_decisive and scale else None
    effect, error = (
        (float(found.effects[0]), float(found.std_errors[-1])) if found else (math.nan, math.nan)
    )
    return LengthControl(
        effect=LengthEffect(
            dimension=dimension,
            n_prompts=played.n_clusters,
            n_games=len(difference),
            n_without_length=len(battles) - len(known),
            scale=scale or None,
            effect=_finite(effect),
            std_error=_finite(error),
            ci_low=_finite(effect - half_width(played.n_clusters) * error),
            ci_high=_finite(effect + half_width(played.n_clusters) * error),
        ),
        ratings=_length_ratings(
            models(known),
            played,
            of_game,
            found,
            dimension=dimension,
            initial_rating=initial_rating,
        ),
        terciles=_terciles(played, difference, dimension),
    )


def _length_ratings(
    names: Sequence[str],
    played: Games,
    of_game: Array,
    controlled: Fit | None,
    *,
    dimension: str,
    initial_rating: float,
) -> tuple[LengthRating, ...]:
    """Best first as they are; `of_game` (g, 2): the lengths of both responses."""
    raw = fit(played, np.zeros((len(of_game), 0)))
    side = np.concatenate([played.first, played.second])
    mean_length = np.bincount(side, of_game.T.ravel(), len(names)) / np.bincount(
        side, minlength=len(names)
    )
    ratings = [
        LengthRating(
            dimension=dimension,
            model=name,
            mean_length=float(mean_length[i]),
            rating=_point(raw, i, initial_rating),
            std_error=_error(raw, i),
            rating_at_equal_length=_point(controlled, i, initial_rating),
            std_error_at_equal_length=_error(controlled, i),
        )
        for i, name in enumerate(names)
    ]
    return tuple(sorted(ratings, key=lambda r: (r.rating is None, -(r.rating or 0.0), r.model)))


def _lengths(battle: Battle, lengths: Lengths) -> tuple[int | None, int | None]:
    if battle.question_id is None:
        return None, None
    return lengths.get((battle.question_id, battle.model_a)), lengths.get(
        (battle.question_id, battle.model_b)
    )


def _point(found: Fit | None, i: int, initial_rating: float) -> float | None:
    return None if found is None else _finite(initial_rating + POINTS * float(found.theta[i]))


def _error(found: Fit | None, i: int) -> float | None:
    return None if found is None else _finite(POINTS * float(found.std_errors[i]))


def _terciles(games: Games, difference: Array, dimension: str) -> tuple[LengthTercile, ...]:
    """The games between responses of different lengths in three parts, as equal as equal differences allow."""
    apart = np.abs(difference)
    differs = apart > 0
    if not differs.any():
        return ()
    part = np.digitize(apart, np.quantile(apart[differs], [1 / 3, 2 / 3]), right=True)
    longer = np.where(difference > 0, games.score, 1.0 - games.score)
    found = []
    for number in range(3):
        chosen: Mask = differs & (part == number)
        if not chosen.any():
            continue
        rate = float(longer[chosen].mean())
        found.append(
            LengthTercile(
                dimension=dimension,
                shortest=int(apart[chosen].min()),
                longest=int(apart[chosen].max()),
                n_prompts=len(np.unique(games.cluster[chosen])),
                n_games=int(chosen.sum()),
                win_rate=rate,
                std_error=mean_error(longer[chosen] - rate, games.cluster[chosen]),
            )
        )
    return tuple(found)
