"""The first line of a run: what there is to rate or to compare, or what is judged, by whom and as what."""

from collections.abc import Iterable, Mapping, Sequence

from elo_exp.formatting import join_names
from elo_exp.judges import role_suffix


def battles(n: int, n_dimensions: int, by: Sequence[str] = ()) -> str:
    """Return the first line of a run that rates battles.

    by  of several judges: those who are rated apart
    """
    size = f"{_format_count(n, 'battle')} on {_format_count(n_dimensions, 'rubric')}"
    return f"{size}; a leaderboard for each of {join_names(by)}" if by else size


def scores(n_items: int, n_dimensions: int) -> str:
    return f"scores of {_format_count(n_items, 'item')} on {_format_count(n_dimensions, 'rubric')}"


def runs(n: int) -> str:
    return _format_count(n, "finished run")


BASELINE_LINE = "baseline: word overlap; no model judges the answers"


def describe_judging(
    dimensions: Sequence[str],
    judge: str,
    roles: Iterable[str],
    *,
    study: str | None,
    cap: float | None,
) -> str:
    """Return the first line of a run: the judge, its role, the rubrics and the budget.

    roles  the role that the prompt gives the judge
    cap    budget in dollars; None if nothing is paid
    """
    rubrics = f"{_format_count(len(dimensions), 'rubric')} ({join_names(dimensions)})"
    preset = f"preset {study}, " if study else ""
    budget = "" if cap is None else f", budget ${cap:,.2f}".removesuffix(".00")
    return f"{preset}{rubrics}, judge {judge}{role_suffix(roles)}{budget}"


def draws(wanted: int, n: int, by_entrant: Mapping[str, int]) -> list[str]:
    """Say which entrants have fewer answers per prompt than `draws` asks for.

    n           answers per prompt that are compared
    by_entrant  answers per prompt of each entrant
    """
    single = [name for name, n_draws in by_entrant.items() if n_draws == 1]
    if len(single) == len(by_entrant):
        return [
            f"draws: {wanted} answers per prompt were asked for, but no entrant varies its answers: one each"
        ]
    lines = []
    if n < wanted:
        fewest = [name for name, n_draws in by_entrant.items() if n_draws == n]
        lines.append(
            f"draws: {n} answers per prompt instead of {wanted}, because {join_names(fewest)} has no more recorded "
            "answers to some prompt"
        )
    if single:
        lines.append(
            f"draws: one answer per prompt of {join_names(single)}, compared with each answer of the others"
        )
    return lines


def _format_count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
