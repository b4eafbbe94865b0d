"""Sentences about entrants without a rating, separate groups and scored items."""

from collections.abc import Sequence

from elo_exp.formatting import (
    NO_VALUE,
    all_prompts,
    format_count,
    format_number,
    format_p_equation,
    join_names,
)
from elo_exp.ratings.leaderboard import Leaderboard, Rating

_REASON_BY_FLAG = {
    "unbeaten": "won every comparison, and no chain of wins leads from the rated entrants to those that it beat",
    "winless": "lost every comparison, and no chain of wins leads from those that beat it to the rated entrants",
    "disconnected": "no chain of wins leads to the other entrants and back",
    "separated": "the ties leave the rating open",
}


# In place of a rating
FLAG_LABELS = {
    "unbeaten": "won every comparison",
    "winless": "lost every comparison",
    "disconnected": "not linked",
    "separated": "not determined",
}


def rating(row: Rating, digits: int = 0) -> str:
    """Say a rating, or the end that is known: "over 1967"; else the bound to the next entrant."""
    if row.rating is not None:
        return format_number(row.rating, digits)
    if row.ci_low is not None:
        return f"over {format_number(row.ci_low, digits)}"
    if row.ci_high is not None:
        return f"under {format_number(row.ci_high, digits)}"
    label = FLAG_LABELS.get(row.flag, row.flag) if row.flag else NO_VALUE
    return step(row, digits) or label


def ranks(row: Rating) -> str:
    """Say the ranks that an entrant may have, "2–3", or its only rank."""
    if row.rank is None:
        return NO_VALUE
    if row.rank_low is None or row.rank_low == row.rank_high:
        return str(row.rank)
    return f"{row.rank_low}–{row.rank_high}"


def step(row: Rating, digits: int = 0) -> str | None:
    """Say how far an entrant without a rating is from the next: "at least 353 above b".

    Up to five prompts bound no lead above zero: "won all 3 prompts against b".
    """
    if row.neighbour is None or row.lead_bound is None:
        return None
    is_above = row.neighbour_is_below
    if row.lead_bound > 0:
        side = "above" if is_above else "below"
        return (
            f"at least {format_number(row.lead_bound, digits)} {side} {row.neighbour}"
        )
    verb = "won" if is_above else "lost"
    return f"{verb} {all_prompts(row.n_separating or 0)} against {row.neighbour}"


def name_test(*, has_looks: bool) -> str:
    """Return the test by which pairwise differences are significant."""
    if has_looks:
        return "5% error over all pairs at planned interim analyses, Holm"
    return "5% error over all pairs, Holm"


def list_unrated(
    board: Leaderboard | None, groups: Sequence[Sequence[Rating]]
) -> list[str]:
    """Return a sentence for each group apart, each reason for no rank, and ratings from one prompt.

    groups  of entrants that are not linked to the others
    """
    if board is None:
        return []
    lines = [
        f"A separate group: {join_names([row.model for row in rows])} (no chain of wins leads to "
        "the other entrants and back, so the ratings of the groups cannot be compared)."
        for rows in groups
    ]
    separate_models = {row.model for rows in groups for row in rows}
    for flag, reason in _REASON_BY_FLAG.items():
        models = [
            row.model
            for row in board.ratings
            if row.rank is None
            and row.flag == flag
            and row.model not in separate_models
        ]
        if models:
            lines.append(f"Not rated: {join_names(models)} ({reason}).")
    models_on_one_prompt = [row.model for row in board.ratings if row.n_prompts == 1]
    if models_on_one_prompt and board.n_clusters != 1:
        lines.append(
            f"No interval, because there is only one prompt: {join_names(models_on_one_prompt)}."
        )
    return lines


def items(board: Leaderboard) -> str:
    """Return which items of scores were compared, and McNemar's test of two entrants' zeros and ones."""
    parameters = board.parameters
    text = f"{_format_count(board, 'n_common')} of {_format_count(board, 'n_items')} items in common"
    if board.n_clusters is not None and board.n_clusters < (
        parameters["n_common"] or 0
    ):
        text += f", in {format_count(board.n_clusters)} clusters"
    if parameters["n_missing"]:
        noun = "score" if parameters["n_missing"] == 1 else "scores"
        text += f", {_format_count(board, 'n_missing')} missing {noun} left out"
    text += "."
    if "mcnemar_mid_p" in parameters:
        top_model, other_model = board.models
        text += (
            f" Only {top_model} is right on {_format_count(board, 'n_only_first')} of them, only {other_model} "
            f"on {_format_count(board, 'n_only_second')} (McNemar’s mid-p test: "
            f"{format_p_equation(parameters['mcnemar_mid_p'])})."
        )
    return text


def _format_count(board: Leaderboard, name: str) -> str:
    value = board.parameters[name]
    return format_count(None if value is None else int(value))
