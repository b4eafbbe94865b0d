"""What moves a judge besides quality: the position in which a response is shown, and its length.

Both are a column x in Bradley-Terry: logit P(i beats j) = theta_i - theta_j + effect x, with errors
clustered by prompt. Letters: m models; g games; n clusters, which are prompts.
"""

from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.fitted import Fitted
from elo_exp.analysis.win_rates import mean_error
from elo_exp.arrays import Array, one_row, rows, spread
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import with_columns
from elo_exp.ratings.fit import POINTS, Fit
from elo_exp.ratings.games import Games, games
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile

# Position


def position_effect(fitted: Fitted, *, dimension: str) -> dict[str, Any]:
    """Estimate the position effect from the single verdicts of battles judged in both orders.

    Without any, from those judged in one, which is not the same in all. A battle of one order that
    is the other mirrored, or of equal answers, does not show an effect of order and is left out. So
    are ties: of the verdicts between equals that name a winner, p_first name the first shown,
    however many ties there are [1]_.

    Parameters
    ----------
    fitted : Fitted
        Of the dimension.
    dimension : str
        Of the row.

    Returns
    -------
    dict
        `judge.DIMENSION.position` of ratings.json: `n_prompts`, `n_verdicts`, `n_decisive`; `effect` in
        log-odds, above zero where the first shown wins more often, with its prompt-clustered
        `std_error`; `p_first`, a share, with the ends of its 95 % interval by Student's t, `ci_low` and
        `ci_high`. None where the effect is not identified.

    References
    ----------
    .. [1] R. R. Davidson (1970), "On extending the Bradley-Terry model to accommodate ties in paired
       comparison experiments", Journal of the American Statistical Association 65, 317-328.
    """
    in_both = fitted.battles.both_orders()
    verdicts = fitted.games_of(in_both if in_both.any() else fitted.battles.one_order())
    played = verdicts.select(verdicts.score != 0.5)
    _, (effect,), (error,) = with_columns(Fit.of(played), played, played.shown[:, None])
    half = t_quantile(degrees_of_freedom(played.n_clusters)) * error
    return one_row(
        dimension=dimension,
        n_prompts=played.n_clusters,
        n_verdicts=verdicts.n_games,
        n_decisive=played.n_games,
        effect=effect,  # log-odds; above zero the first shown wins more often
        std_error=error,
        p_first=scipy.special.expit(effect),
        ci_low=scipy.special.expit(effect - half),
        ci_high=scipy.special.expit(effect + half),
    )


# Length


def length_control(
    battles: Battles,
    *,
    dimension: str,
    initial_rating: float,
) -> dict[str, Any]:
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
    dict
        `judge.DIMENSION.length` of ratings.json. `effect`: a row with the effect in log-odds, its
        prompt-clustered error and 95 % interval, and `scale` in characters. `ratings`: a row for each
        model that played, the best first, with `mean_length` in characters, and ratings and errors in
        rating points as they are and `at_equal_length`. `lead`: by how much the best would be ahead of
        the second at equal length, or None. `terciles`: how often the longer answer wins, in thirds of
        the games by how much longer it is. None where a value is not identified.

    References
    ----------
    .. [1] Y. Dubois, B. Galambosi, P. Liang and T. B. Hashimoto (2024), "Length-controlled AlpacaEval: a
       simple way to debias automatic evaluators", arXiv:2404.04475.
    """
    characters = battles.style()[:, :, 0]
    is_known = ~np.isnan(characters.sum(axis=1))
    played = games(battles.select(is_known), orders="both")
    of_first, of_second = characters[is_known][played.battle].T
    difference = of_first - of_second
    scale = float(np.sqrt((difference**2).mean())) if len(difference) else 0.0
    x = np.zeros_like(difference)
    if scale > 0.0 and (played.score != 0.5).any():
        x = np.tanh(difference / scale)
    raw = Fit.of(played)
    controlled, (effect,), (error,) = with_columns(raw, played, x[:, None])
    t = float(t_quantile(degrees_of_freedom(played.n_clusters)))
    of_length = one_row(
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
    characters_of = np.bincount(side, np.append(of_first, of_second), m)
    (rating, std_error), (at_equal, error_at_equal) = (
        (
            POINTS * spread(fit.theta, raw.rated, m),
            POINTS
            * spread(np.sqrt(np.maximum(np.diag(fit.covariance), 0.0)), raw.rated, m),
        )
        for fit in (raw, controlled)
    )
    order = np.argsort(-rating, kind="stable")  # those without a rating are last
    order = order[n_games[order] > 0]
    names = np.array(battles.models, dtype=object)
    ratings = rows(
        dimension=dimension,
        model=names[order],
        mean_length=(characters_of / np.maximum(n_games, 1))[order],
        rating=initial_rating + rating[order],
        std_error=std_error[order],
        rating_at_equal_length=initial_rating + at_equal[order],
        std_error_at_equal_length=error_at_equal[order],
    )
    lead, best = None, order[np.isfinite(at_equal[order])][:2]
    # by how much the best would be ahead of the second, in rating points
    if len(best) > 1:
        gap = at_equal[best[0]] - at_equal[best[1]]
        i, j = (np.cumsum(raw.rated) - 1)[best]
        cov = controlled.covariance
        variance = max(cov[i, i] + cov[j, j] - 2.0 * cov[i, j], 0.0)
        error = POINTS * np.sqrt(variance)
        lead = one_row(
            first=names[best[0]],
            second=names[best[1]],
            difference=gap,
            std_error=error,
            ci_low=gap - t * error,
            ci_high=gap + t * error,
        )
    return {
        "effect": of_length,
        "ratings": ratings,
        "lead": lead,
        "terciles": _terciles(played, difference, dimension),
    }


def _terciles(games: Games, difference: Array, dimension: str) -> list[dict[str, Any]]:
    """How often the longer wins, in thirds of the games by how much longer it is; a tie is half."""
    apart = np.abs(difference)
    if not apart.any():
        return []
    ends = np.quantile(apart[apart > 0], [1 / 3, 2 / 3])
    tercile = np.where(apart > 0, np.digitize(apart, ends, right=True), -1)
    longer_wins = np.where(difference > 0, games.score, 1.0 - games.score)
    terciles = []
    for number in np.unique(tercile[tercile >= 0]):
        chosen = tercile == number
        wins, cluster = longer_wins[chosen], games.cluster[chosen]
        terciles.append(
            {
                "dimension": dimension,
                "shortest": int(apart[chosen].min()),
                "longest": int(apart[chosen].max()),
                "n_prompts": len(np.unique(cluster)),
                "n_games": int(chosen.sum()),
                "win_rate": float(wins.mean()),
                "std_error": mean_error(wins - wins.mean(), cluster),
            }
        )
    return terciles
