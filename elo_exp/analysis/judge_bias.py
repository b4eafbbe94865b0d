"""What moves a judge besides quality: the position in which a response is shown, and its length.

Both are a column x in Bradley-Terry: logit P(i beats j) = theta_i - theta_j + effect x, with errors
clustered by prompt. Letters: m models; g games; n clusters, which are prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from elo_exp.analysis.bounded_means import lower_bound, upper_bound
from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.win_rates import clustered_error_of_mean
from elo_exp.arrays import Array, Index, fill_nan, make_row, make_rows
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import make_contrast, with_columns
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit
from elo_exp.ratings.games import Games, make_games
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile
from elo_exp.records import Record

# Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEffect(Record):
    """How much a judge prefers what is shown first: `judge.DIMENSION.position` of ratings.json.

    n_decisive      of the verdicts, those that name a winner
    effect          in log-odds, above zero if the first shown wins more often; with its prompt-clustered `std_error`
    p_first         of the verdicts between equals that name a winner, the share that names the first shown
    ci_low, ci_high the ends of the 95% interval of that share
    is_raw          whether there is no finite effect, and the share is that of all decisive verdicts
    """

    dimension: str
    n_prompts: int = 0
    n_verdicts: int = 0
    n_decisive: int = 0
    effect: float | None = None
    std_error: float | None = None
    p_first: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    is_raw: bool = False


def position_effect(fitted: DimensionFit, *, dimension: str) -> PositionEffect:
    """Estimate the position effect from the single verdicts of battles judged in both orders.

    Without any, from those judged in one, which is not the same in all. A battle of one order that
    is the other mirrored, or of equal answers, does not show an effect of order and is left out. So
    are ties: of the verdicts between equals that name a winner, p_first name the first shown,
    however many ties there are [1]_.

    Parameters
    ----------
    fitted : DimensionFit
        Of the dimension.
    dimension : str
        Of the row.

    Returns
    -------
    PositionEffect
        `effect` and its error are None where the fit has no finite ones; the interval of `p_first` is by
        Student's t. If there is no finite effect, as of a judge that always names the first, `is_raw` is
        true and these are the raw share of decisive verdicts with a bounded-mean interval over prompts,
        that of Clopper and Pearson if each prompt says one thing. An effect without an error has that
        interval, too.

    References
    ----------
    .. [1] R. R. Davidson (1970), "On extending the Bradley-Terry model to accommodate ties in paired
       comparison experiments", Journal of the American Statistical Association 65, 317-328.
    """
    in_both = fitted.battles.has_both_orders()
    verdicts = fitted.select_games(
        in_both if in_both.any() else fitted.battles.has_single_order()
    )
    played = verdicts.select(verdicts.score != 0.5)
    _, (effect,), (error,) = with_columns(
        Fit.from_games(played), played, played.position[:, None]
    )
    _, n_effective = played.leverage_factors()
    half_width = t_quantile(degrees_of_freedom(n_effective)) * error
    share, low, high = scipy.special.expit(
        [effect, effect - half_width, effect + half_width]
    )
    is_raw = not np.isfinite(effect)
    if not np.isfinite(low) and played.n_games:
        names_first = np.where(played.position > 0, played.score, 1.0 - played.score)
        if is_raw:
            share = float(np.average(names_first, weights=played.count))
        n_by_prompt = np.bincount(played.cluster, played.count)
        mean = (
            np.bincount(played.cluster, names_first * _games_per_row(played))
            / n_by_prompt
        )
        low = min(share, lower_bound(mean, alpha=0.025))
        high = max(share, upper_bound(mean, alpha=0.025))
    row = make_row(
        dimension=dimension,
        n_prompts=played.n_clusters,
        n_verdicts=verdicts.n_games,
        n_decisive=played.n_games,
        effect=effect,
        std_error=error,
        p_first=share,
        ci_low=low,
        ci_high=high,
        is_raw=is_raw,
    )
    return PositionEffect(**row)


def _games_per_row(played: Games) -> Array:
    """Return how many games each row stands for."""
    return (
        np.ones(len(played.score))
        if played.count is None
        else np.asarray(played.count, dtype=np.float64)
    )


# Length


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect(Record):
    """How far the log-odds of a game move with the difference of the lengths of two answers.

    n_without_length  further battles, whose answers are not known
    scale             of the difference, in characters; None if no lengths differ
    effect            in log-odds, with its prompt-clustered error and 95% interval; None if it is not identified
    """

    dimension: str
    n_prompts: int
    n_games: int
    n_without_length: int
    scale: float | None
    effect: float | None
    std_error: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualLengthRating(Record):
    """A model's rating as it is, and as it would be if all answers were equally long; None if not identified.

    mean_length  of its answers, in characters
    """

    dimension: str
    model: str
    mean_length: float | None
    rating: float | None
    std_error: float | None
    rating_at_equal_length: float | None
    std_error_at_equal_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualLengthLead(Record):
    """By how much the best would be ahead of the second at equal length, in rating points."""

    first: str
    second: str
    difference: float | None
    std_error: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakestLead(Record):
    """The lead of a model that length could explain most easily, in rating points.

    gap         as it is
    difference  at equal length
    least       its one-sided 95% bound at equal length
    n_longer, n_shorter  of the `n_games` of the two, with the longer and the shorter answer by the first. They say
                whether equal length lies within the data, or is extrapolated
    """

    first: str
    second: str
    gap: float
    difference: float
    least: float | None
    n_games: int
    n_longer: int
    n_shorter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignTest(Record):
    """A test of a lead that no fit bounds, by the prompts on which length cannot explain it.

    p_not_longer, p_not_shorter  on the prompts where the first's answer is not the longer, or shorter
    """

    first: str
    second: str
    p_not_longer: float
    p_not_shorter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTercile(Record):
    """How often the longer answer wins, in a third of the games by how much longer it is; a tie is half.

    shortest, longest  difference in the third, in characters
    """

    dimension: str
    shortest: int
    longest: int
    n_prompts: int
    n_games: int
    win_rate: float
    std_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControl(Record):
    """What the length of answers has to do with the verdicts of a judge.

    ratings        of the models that played, the best first
    lead           of the best at equal length; None if fewer than two have a rating
    weakest_leads  of each of the best three; empty if no fit bounds the effect
    sign_tests     of leads that no fit bounds
    terciles       in the order of the difference
    """

    effect: LengthEffect
    ratings: Sequence[EqualLengthRating] = ()
    lead: EqualLengthLead | None = None
    weakest_leads: Sequence[WeakestLead] = ()
    sign_tests: Sequence[SignTest] = ()
    terciles: Sequence[LengthTercile] = ()


def length_control(
    battles: Battles,
    *,
    dimension: str,
    initial_rating: float,
) -> LengthControl:
    """Estimate the effect of length in Bradley-Terry, a tie being half a win.

    The log-odds of a game move by effect * tanh(difference / scale), as in [1]_. The difference of
    lengths has no sign of its own, so its scale is the root mean square.

    Parameters
    ----------
    battles : Battles
        Of one dimension, with the style of their answers; those without are left out and counted.
    dimension : str
        Of the rows.
    initial_rating : float
        Rating points of the mean.

    Returns
    -------
    LengthControl
        As `judge.DIMENSION.length` of ratings.json has it.

    References
    ----------
    .. [1] Y. Dubois, B. Galambosi, P. Liang and T. B. Hashimoto (2024), "Length-controlled AlpacaEval: a
       simple way to debias automatic evaluators", arXiv:2404.04475.
    """
    characters = battles.style()[:, :, 0]
    is_known = ~np.isnan(characters.sum(axis=1))
    played = make_games(battles.select(is_known), orders="both")
    length_of_first, length_of_second = characters[is_known][played.battle].T
    difference = length_of_first - length_of_second
    x, scale = make_contrast(difference)
    if not (played.score != 0.5).any():
        x = np.zeros_like(difference)
    raw_fit = Fit.from_games(played)
    controlled_fit, (effect,), (error,) = with_columns(raw_fit, played, x[:, None])
    _, n_effective = played.leverage_factors()
    t = float(t_quantile(degrees_of_freedom(n_effective)))
    effect_row = make_row(
        dimension=dimension,
        n_prompts=played.n_clusters,
        n_games=len(difference),
        n_without_length=int((~is_known).sum()),
        scale=scale or None,  # characters
        effect=effect,
        std_error=error,
        ci_low=effect - t * error,
        ci_high=effect + t * error,
    )
    m, side = len(battles.models), np.append(played.first, played.second)
    n_games = np.bincount(side, minlength=m)
    characters_by_model = np.bincount(
        side, np.append(length_of_first, length_of_second), m
    )
    (rating, std_error), (rating_at_equal, error_at_equal) = (
        (
            POINTS_PER_LOG_ODDS * fill_nan(fit.theta, raw_fit.is_rated, m),
            POINTS_PER_LOG_ODDS
            * fill_nan(
                np.sqrt(np.maximum(np.diag(fit.covariance), 0.0)), raw_fit.is_rated, m
            ),
        )
        for fit in (raw_fit, controlled_fit)
    )
    order = np.argsort(-rating, kind="stable")  # those without a rating are last
    order = order[n_games[order] > 0]
    names = np.array(battles.models, dtype=object)
    ratings = make_rows(
        dimension=dimension,
        model=names[order],
        mean_length=(characters_by_model / np.maximum(n_games, 1))[order],
        rating=initial_rating + rating[order],
        std_error=std_error[order],
        rating_at_equal_length=initial_rating + rating_at_equal[order],
        std_error_at_equal_length=error_at_equal[order],
    )
    lead, best = None, order[np.isfinite(rating_at_equal[order])][:2]
    # by how much the best would be ahead of the second, in rating points
    if len(best) > 1:
        gap = rating_at_equal[best[0]] - rating_at_equal[best[1]]
        i, j = (np.cumsum(raw_fit.is_rated) - 1)[best]
        cov = controlled_fit.covariance
        variance = max(cov[i, i] + cov[j, j] - 2.0 * cov[i, j], 0.0)
        error = POINTS_PER_LOG_ODDS * np.sqrt(variance)
        lead = EqualLengthLead(
            **make_row(
                first=names[best[0]],
                second=names[best[1]],
                difference=gap,
                std_error=error,
                ci_low=gap - t * error,
                ci_high=gap + t * error,
            )
        )
    model_names = [*battles.models]
    is_finite = bool(
        np.isfinite(controlled_fit.theta).all() and len(controlled_fit.theta)
    )
    return LengthControl(
        effect=LengthEffect(**effect_row),
        ratings=[EqualLengthRating(**row) for row in ratings],
        lead=lead,
        weakest_leads=_find_weakest_leads(
            raw_fit, controlled_fit, played, difference, model_names, order
        ),
        sign_tests=_test_signs(raw_fit, is_finite, played, difference, model_names)
        if difference.any()
        else [],
        terciles=_split_by_tercile(played, difference, dimension),
    )


_N_BEST_ENTRANTS = 3


def _find_weakest_leads(
    raw_fit: Fit,
    controlled_fit: Fit,
    played: Games,
    difference: Array,
    names: list[str],
    order: Index,
) -> list[WeakestLead]:
    """Return, for each of the best three, the lead that is least certain at equal length.

    At the largest effect of length that the data leave possible the lead is `least`. Empty where a rating is not
    finite, so that nothing bounds the effect.
    """
    fit_number = np.cumsum(raw_fit.is_rated) - 1
    rated_models = [i for i in order if raw_fit.is_rated[i]]
    if len(rated_models) < 2 or not np.isfinite(controlled_fit.theta).all():
        return []
    cov, theta = controlled_fit.covariance, POINTS_PER_LOG_ODDS * controlled_fit.theta
    _, n_effective = played.leverage_factors()
    t, leads = t_quantile(degrees_of_freedom(n_effective), level=0.90), []
    for leader in rated_models[:_N_BEST_ENTRANTS]:
        i, other_models = fit_number[leader], [j for j in rated_models if j != leader]
        other_numbers = fit_number[other_models]
        variance = cov[i, i] + np.diag(cov)[other_numbers] - 2.0 * cov[i, other_numbers]
        bounds = (
            theta[i]
            - theta[other_numbers]
            - t * POINTS_PER_LOG_ODDS * np.sqrt(np.maximum(variance, 0.0))
        )
        worst = int(np.argmin(np.nan_to_num(bounds, nan=np.inf)))
        j, rival = other_numbers[worst], other_models[worst]
        sides = (played.first, played.second)
        is_met = ((sides[0] == leader) & (sides[1] == rival)) | (
            (sides[0] == rival) & (sides[1] == leader)
        )
        is_counted = (
            is_met if is_met.any() else (sides[0] == leader) | (sides[1] == leader)
        )
        excess_length = np.where(sides[0] == leader, difference, -difference)[
            is_counted
        ]
        leads.append(
            WeakestLead(
                **make_row(
                    first=names[leader],
                    second=names[rival],
                    gap=POINTS_PER_LOG_ODDS * (raw_fit.theta[i] - raw_fit.theta[j]),
                    difference=theta[i] - theta[j],
                    least=bounds[worst],
                    n_games=len(excess_length),
                    n_longer=int((excess_length > 0.0).sum()),
                    n_shorter=int((excess_length < 0.0).sum()),
                )
            )
        )
    return leads


def _test_signs(
    raw_fit: Fit, is_finite: bool, played: Games, difference: Array, names: list[str]
) -> list[SignTest]:
    """Test leads that no fit bounds, on prompts where the leader's answer is not the longer, or shorter.

    A preference for length, of either sign, wins none of these. Sign tests of a prompt's mean score, one
    p value for each sign; of entrants that took every point, and of all if no fit is finite at equal length.
    """
    tests = []
    pairs = np.unique(np.stack([played.first, played.second], axis=1), axis=0)
    ordered_pairs = {tuple(pair) for pair in pairs.tolist()} | {
        tuple(pair[::-1]) for pair in pairs.tolist()
    }
    for i, j in sorted(ordered_pairs):
        if is_finite and raw_fit.is_rated[i] and raw_fit.is_rated[j]:
            continue
        forward = (played.first == i) & (played.second == j)
        backward = (played.first == j) & (played.second == i)
        sign = np.where(forward, 1.0, -1.0)
        score = np.where(forward, played.score, 1.0 - played.score) - 0.5
        is_of_pair = forward | backward
        if score[is_of_pair].sum() <= 0.0:
            continue
        p_values = [
            _sign_test_p_value(score[mask], played.cluster[mask])
            for mask in (
                is_of_pair & (sign * difference <= 0.0),
                is_of_pair & (sign * difference >= 0.0),
            )
        ]
        tests.append(
            SignTest(
                first=names[i],
                second=names[j],
                p_not_longer=p_values[0],
                p_not_shorter=p_values[1],
            )
        )
    return tests


def _sign_test_p_value(score: Array, cluster: Index) -> float:
    """Return the one-sided p value of the number of prompts with a sum above zero; 1 without prompts."""
    sums = np.bincount(cluster, score) if len(score) else np.zeros(0)
    n_above, n_below = int((sums > 0.0).sum()), int((sums < 0.0).sum())
    n = n_above + n_below
    return float(scipy.stats.binom.sf(n_above - 1, n, 0.5)) if n else 1.0


def _split_by_tercile(
    games: Games, difference: Array, dimension: str
) -> list[LengthTercile]:
    """Count how often the longer answer wins, in thirds of the games by how much longer it is; a tie is half."""
    length_gap = np.abs(difference)
    if not length_gap.any():
        return []
    ends = np.quantile(length_gap[length_gap > 0], [1 / 3, 2 / 3])
    tercile = np.where(length_gap > 0, np.digitize(length_gap, ends, right=True), -1)
    longer_wins = np.where(difference > 0, games.score, 1.0 - games.score)
    terciles = []
    for number in np.unique(tercile[tercile >= 0]):
        is_in_tercile = tercile == number
        wins, cluster = longer_wins[is_in_tercile], games.cluster[is_in_tercile]
        terciles.append(
            LengthTercile(
                dimension=dimension,
                shortest=int(length_gap[is_in_tercile].min()),
                longest=int(length_gap[is_in_tercile].max()),
                n_prompts=len(np.unique(cluster)),
                n_games=int(is_in_tercile.sum()),
                win_rate=float(wins.mean()),
                std_error=clustered_error_of_mean(wins - wins.mean(), cluster),
            )
        )
    return terciles
