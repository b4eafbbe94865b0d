"""The first line of a run: what there is to rate or to compare, or what is judged, by whom and as what."""

from collections.abc import Iterable, Mapping, Sequence

from elo_exp.formatting import join_names
from elo_exp.judges import role_suffix


def battles(n: int, n_dimensions: int, by: Sequence[str] = ()) -> str:
    """Return the first line of a run that rates battles.

    by  of several judges: those who are rated apart
    """
    size = f"{_format_count(n, 'battle')} in {_format_count(n_dimensions, 'dimension')}"
    return f"{size}; a board each of {join_names(by)}" if by else size


def scores(n_items: int, n_dimensions: int) -> str:
    return f"scores of {_format_count(n_items, 'item')} in {_format_count(n_dimensions, 'dimension')}"


def runs(n: int) -> str:
    return _format_count(n, "finished run")


BASELINE_LINE = "baseline: words are counted, nobody judged"


def describe_judging(
    dimensions: Sequence[str],
    judge: str,
    roles: Iterable[str],
    *,
    study: str | None,
    cap: float | None,
) -> str:
    """Return the first line of a run: what is judged, by whom, as what, and what it may cost.

    roles  what the judge is told that it is
    cap    in dollars; None where nothing is paid
    """
    subject = (
        f"study {study}: {join_names(dimensions)}" if study else join_names(dimensions)
    )
    cap_text = "" if cap is None else f"; at most ${cap:,.2f}".removesuffix(".00")
    return f"{subject}; judge {judge}{role_suffix(roles)}{cap_text}"


def draws(wanted: int, n: int, by_entrant: Mapping[str, int]) -> list[str]:
    """Say who has one draw where several are wanted, and whose recorded answers are fewer.

    n           the draws that are compared
    by_entrant  how many each has
    """
    single = [name for name, n_draws in by_entrant.items() if n_draws == 1]
    if len(single) == len(by_entrant):
        return [f"draws: found {wanted}, and no entrant varies: one draw each"]
    lines = []
    if n < wanted:
        fewest = [name for name, n_draws in by_entrant.items() if n_draws == n]
        lines.append(
            f"draws: {n} of each entrant and not {wanted}, as {join_names(fewest)} has no more recorded answers "
            "to some prompt"
        )
    if single:
        lines.append(
            f"draws: one of {join_names(single)}, which meets each of the others"
        )
    return lines


def _format_count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
