"""How the order experiment is said: how far random orders move Elo, and how far it comes at a K."""

import math
from collections.abc import Sequence

from elo_exp.formatting import format_number, format_percent_floor
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard


def n_orders(boards: Sequence[Leaderboard]) -> int:
    """Return in how many random orders the battles of each board were replayed; 1 if none was kept."""
    samples = boards[0].samples
    return 1 if samples is None else len(samples)


def summarize(boards: Sequence[Leaderboard], k: float) -> str:
    """Return in half a line what the experiment replays, and how well it knows its means."""
    text = f"mean Elo of {n_orders(boards)} random orders at K = {k:g}"
    errors = [row.ordering_error for board in boards for row in board.ratings]
    if worst := max((error for error in errors if error), default=None):
        text += f"; the order moves it by {format_number(worst, 2)} points at most"
    return text


def lede(boards: Sequence[Leaderboard], k: float) -> str:
    """Return what the experiment does, and how well it knows its means."""
    text = f"Permutation Elo replays the same battles in {n_orders(boards)} random orders at K = {k:g}."
    errors = [row.ordering_error for board in boards for row in board.ratings]
    if worst := max((error for error in errors if error), default=None):
        text += f" The Monte Carlo error of the mean is at most {format_number(worst, 2)} points."
    return f"{text} For conclusions use the leaderboard: it depends neither on order nor on K."


def convergence(elo_convergence: Convergence, k: float, ks: Sequence[float]) -> str:
    """Return how far Elo has come at K on its way to its limit, and from which K on it is far enough.

    ks  of the sweep
    """
    if not elo_convergence.limit:
        return "no limit, because an entrant only wins or only loses."
    progress = elo_convergence.by_k.get(k)
    if progress is None:
        return "first and last are within 20 points in the limit, which is too close for a share of it."
    text = (
        f"at K = {k:g} Elo has covered {format_percent_floor(progress.convergence)} of the gap between first and "
        f"last that it converges to (slowest: {progress.slowest}, {format_percent_floor(progress.slowest_share)})"
    )
    if progress.is_converged:
        return f"{text}, which is enough to read its gaps."
    if elo_convergence.sufficient_k is None:
        return f"{text}; no K up to 64 covers 95% for all: too few battles for Elo."
    enough = next(
        (sweep_k for sweep_k in ks if sweep_k >= elo_convergence.sufficient_k), None
    )
    suffices = "" if enough is None else f": K = {enough:g} of the sweep suffices"
    return f"{text}; 95% for all from K = {math.ceil(elo_convergence.sufficient_k)} on{suffices}."
