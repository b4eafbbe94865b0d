"""Sentences about the order experiment: how much the match order moves Elo, and how far Elo comes at a K."""

import math
from collections.abc import Sequence

from elo_exp.formatting import format_number, format_percent_floor
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard


def n_orders(boards: Sequence[Leaderboard]) -> int:
    """Return the number of match orders that were replayed for each leaderboard; 1 if none was kept."""
    samples = boards[0].samples
    return 1 if samples is None else len(samples)


def summarize(boards: Sequence[Leaderboard], k: float) -> str:
    """Return in half a line what the experiment averages, and the random error of its means."""
    text = f"mean over {n_orders(boards)} random match orders at K = {k:g}"
    errors = [row.ordering_error for board in boards for row in board.ratings]
    if worst := max((error for error in errors if error), default=None):
        text += f", random error up to {format_number(worst, 2)} points"
    return text


def lede(boards: Sequence[Leaderboard], k: float) -> str:
    """Return what the experiment does, and the random error of its means."""
    text = f"Elo replays the same matches in {n_orders(boards)} random orders at K = {k:g} and averages the ratings."
    errors = [row.ordering_error for board in boards for row in board.ratings]
    if worst := max((error for error in errors if error), default=None):
        text += f" The random error of the mean is at most {format_number(worst, 2)} points."
    return f"{text} For conclusions use the leaderboard, which depends neither on the order nor on K."


def convergence(elo_convergence: Convergence, k: float, ks: Sequence[float]) -> str:
    """Return the share of the final gap that Elo covers at K, and the K from which on it covers enough.

    ks  of the sweep
    """
    if not elo_convergence.limit:
        return "Elo has no limit, because an entrant won or lost every comparison."
    progress = elo_convergence.by_k.get(k)
    if progress is None:
        return "the final gap between the top and the bottom entrant is below 20 points, too small for a share of it."
    text = (
        f"at K = {k:g} Elo covers {format_percent_floor(progress.convergence)} of the final gap between the top and the "
        f"bottom entrant (slowest: {progress.slowest}, {format_percent_floor(progress.slowest_share)})"
    )
    if progress.is_converged:
        return f"{text}, which is enough to read its gaps."
    if elo_convergence.sufficient_k is None:
        return f"{text}. No K up to 64 covers 95% for every entrant, because there are too few matches for Elo."
    enough = next(
        (sweep_k for sweep_k in ks if sweep_k >= elo_convergence.sufficient_k), None
    )
    suffices = "" if enough is None else f", so use K = {enough:g} of the sweep"
    return f"{text}. It covers 95% for every entrant from K = {math.ceil(elo_convergence.sufficient_k)} on{suffices}."
