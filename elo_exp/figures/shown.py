"""Whom figures show, in which order and colour, and the words about the data that their captions share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import clustered_interval
from elo_exp.figures import names
from elo_exp.figures.canvas import GREY, PALETTE, Look, colors
from elo_exp.figures.lettering import length
from elo_exp.report.findings import companion
from elo_exp.report.markup import p_value
from elo_exp.results import Leaderboard

MAX_MODELS = 40  # rows of a figure
_MAX_NAMED = 3  # of a dimension, in a caption


def method(standings: Standings) -> str:
    """Whose ratings are drawn beside Elo, and whose covariance: Bradley-Terry, or the first chosen in its place."""
    return companion(standings) or "bradley_terry"


def best_first(standings: Standings) -> list[str]:
    """Models by their mean Elo over the dimensions; those without one come last."""
    boards = [
        board for dimension in standings.dimensions if (board := standings.primary(dimension))
    ]

    def mean(model: str) -> float:
        found = [
            r.rating
            for b in boards
            if model in b.models
            if (r := b.rating(model)).rating is not None
        ]
        return sum(found) / len(found) if found else -math.inf

    return sorted(standings.models, key=lambda model: (-mean(model), model))


def rated(standings: Standings) -> list[str]:
    """The dimensions that have Elo ratings; one without a decisive match has none."""
    return [dimension for dimension in standings.dimensions if standings.elo[dimension]]


def entrant_colors(standings: Standings) -> dict[str, str]:
    """A colour for each model, the same in every figure; of too many, the best have one and the others are grey."""
    return colors(
        standings.models if len(standings.models) <= len(PALETTE) else best_first(standings)
    )


def colored(standings: Standings) -> dict[str, str]:
    """The models with a colour of their own: those of which lines are drawn."""
    return {model: color for model, color in entrant_colors(standings).items() if color != GREY}


def labels(standings: Standings) -> Mapping[str, str]:
    """What each model is called, the same in every figure."""
    return names.labels(standings.models)


def model_key(colors: Mapping[str, str], called: Mapping[str, str]) -> list[tuple[str, Look]]:
    """The key of lines that have the models' colours; `called`: their labels."""
    return [(called[model], {"color": color, "lw": 2.5}) for model, color in colors.items()]


def room(labels: Collection[str], size: float = 8) -> float:
    """Inches that these take beside a panel."""
    return max((length(label, size) for label in labels), default=0.0) + 0.12


def n_matches(standings: Standings, dimension: str) -> str:
    board = standings.primary(dimension)
    return f"{board.n_matches if board else 0:,} matches"


def of_best(n_shown: int, n: int, things: str = "entrants") -> str:
    """What is left out, for a caption."""
    return f" Only the best {n_shown} of {n} {things} are shown." if n_shown < n else ""


def in_color(n_colored: int, n: int) -> str:
    """Whose lines have a colour where all are drawn, for a caption."""
    return (
        f" The best {n_colored} of {n} entrants are in colour, the others grey."
        if n_colored < n
        else ""
    )


def left_out(standings: Standings, boards: Mapping[str, Leaderboard]) -> str:
    """Who has no rating on these leaderboards, by dimension, and why, for a caption."""
    said = []
    for dimension, board in boards.items():
        flags = {r.model: r.flag or "no rating" for r in board.ratings if r.rating is None}
        flags |= {model: "no battle" for model in standings.models if model not in board.models}
        some = [f"{model} ({flag})" for model, flag in list(flags.items())[:_MAX_NAMED]]
        some += [f"{len(flags) - _MAX_NAMED} more"] if len(flags) > _MAX_NAMED else []
        said += [f"{dimension} {', '.join(some)}"] if some else []
    return f" Left out, without a rating: {'; '.join(said)}." if said else ""


def sample(standings: Standings, dimensions: Sequence[str]) -> str:
    """What the ratings rest on, for a caption."""
    said = []
    for dimension in dimensions:
        battles = standings.battles[dimension]
        prompts = len({b.question_id for b in battles if b.question_id is not None})
        parts = [f"{prompts:,} prompts"] if prompts else []
        parts += [f"{sum(not b.is_tie for b in battles):,} of {len(battles):,} battles decisive"]
        said.append(f"{dimension} {', '.join(parts)}")
    return f" n: {'; '.join(said)}."


def share_ends(
    name: str, share: float | None, std_error: float | None, n_prompts: int
) -> dict[str, float | None]:
    """Columns `name`_ci_low and `name`_ci_high: 95 % of a share over prompts, which stays within [0, 1]."""
    ends = None if share is None else clustered_interval(share, std_error, n_prompts)
    return dict(zip((f"{name}_ci_low", f"{name}_ci_high"), ends or (None, None), strict=True))


def said_p(p: float | None) -> str:
    return "" if p is None else f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"


def interval(board: Leaderboard) -> str:
    """Name the kind of a leaderboard's intervals, for a caption."""
    shown = board.interval is not None and any(r.ci_low is not None for r in board.ratings)
    return f"95 %, {board.interval}" if shown else "no interval"
