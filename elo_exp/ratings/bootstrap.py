"""The prompt bootstrap: prompts drawn with replacement, the same draws for every dimension."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from elo_exp.arrays import Array
from elo_exp.ratings.fit import (
    Fit,
    find_strongest_component,
    fit_abilities,
    inverse_information,
    win_probability,
)
from elo_exp.ratings.games import Games, number_codes

# A resample that needs more is fitted by Newton's method proper.
_MAX_CHORD_STEPS = 30
# So many stay in the processor's cache.
_MAX_NUMBERS_PER_BLOCK = 2**17


def bootstrap_abilities(
    fits: Mapping[str, Fit], *, n_bootstraps: int, seed: int
) -> dict[str, Array]:
    """Fit Bradley-Terry to draws of the prompts with replacement.

    A resample that leaves no finite abilities has none: a prior that gave it some would decide what
    they are.

    Parameters
    ----------
    fits : mapping of str to Fit
        By dimension; those whose prompts do not differ are left out.
    n_bootstraps : int
        b.
    seed : int
        Of the draws, which all dimensions share.

    Returns
    -------
    dict of str to Array, shape (b, r)
        Abilities in log-odds, mean zero, by dimension; a row is NaN where they are not finite.
    """
    fits = {
        name: fit for name, fit in fits.items() if np.isfinite(fit.covariance).any()
    }
    times_by_dimension = draw_prompts(
        [fit.games for fit in fits.values()], n_bootstraps=n_bootstraps, seed=seed
    )
    samples = {}
    for (name, fit), times in zip(fits.items(), times_by_dimension, strict=True):
        played, m = fit.games, len(fit.theta)
        pair = np.append(
            played.first * m + played.second, played.second * m + played.first
        )
        entries = np.append(played.score, 1.0 - played.score)
        if (games_per_prompt := played.games_per_prompt) is not None:
            entries *= np.tile(games_per_prompt, 2)
        wins = scipy.sparse.csr_array(  # (rows, m * m): of each prompt
            (entries, (np.tile(played.cluster, 2), pair)), shape=(played.n_rows, m * m)
        )
        size = max(1, _MAX_NUMBERS_PER_BLOCK // max(wins.shape))
        samples[name] = np.concatenate(
            [
                _fit_resamples(
                    fit, (times[start : start + size] @ wins).reshape(-1, m, m)
                )
                for start in range(0, n_bootstraps, size)
            ]
        )
    return samples


def draw_prompts(
    dimensions: Sequence[Games], *, n_bootstraps: int, seed: int
) -> list[NDArray[np.integer[Any]]]:
    """Draw prompts with replacement, all dimensions the same ones.

    Parameters
    ----------
    dimensions : sequence of Games
        Each with n prompts of its own, which may be others in every dimension.
    n_bootstraps : int
        b.
    seed : int
        Of `numpy.random.default_rng`.

    Returns
    -------
    list of NDArray of int, shape (b, n) each
        How often each prompt of each dimension is drawn; of prompts alike, how often any of them is.
    """
    if not dimensions:
        return []
    codes = [played.prompts for played in dimensions]
    unit_codes, number = number_codes(np.concatenate(codes))
    n, rng = len(unit_codes), np.random.default_rng(seed)
    times: NDArray[np.integer[Any]]
    if all(played.prompts_per_cluster is None for played in dimensions):
        times = np.empty((n_bootstraps, n), dtype=np.uint8)
        for resample in times:
            resample[:] = np.bincount(rng.integers(n, size=n), minlength=n)
    else:
        n_alike = np.ones(n, dtype=np.intp)
        for played in dimensions:
            if played.prompts_per_cluster is not None:
                n_alike[np.searchsorted(unit_codes, played.prompts)] = (
                    played.prompts_per_cluster
                )
        total = n_alike.sum()
        times = np.empty((n_bootstraps, n), dtype=np.int32)
        for resample in times:
            resample[:] = rng.multinomial(total, n_alike / total)
    splits = np.cumsum([len(unit_numbers) for unit_numbers in codes])[:-1]
    return [times[:, columns] for columns in np.split(number, splits)]


def _fit_resamples(fit: Fit, wins: Array) -> Array:
    """Return the abilities (b, m) of resamples' wins (b, m, m), NaN if they are not finite."""
    n_games, inverse = (
        wins + wins.swapaxes(1, 2),
        inverse_information(fit.theta, fit.games),
    )
    theta = np.tile(fit.theta, (len(wins), 1))
    for _ in range(_MAX_CHORD_STEPS):  # Newton's, with the curvature of all prompts
        step = (wins - n_games * win_probability(theta)).sum(axis=2) @ inverse
        theta += step
        is_unconverged = np.abs(step).max(axis=1, initial=0.0) >= 1e-7
        if not is_unconverged.any():
            break
    for b, resample in enumerate(wins):
        if not find_strongest_component(resample).all():
            theta[b] = np.nan
        elif is_unconverged[b]:
            theta[b] = fit_abilities(resample)
    return theta
