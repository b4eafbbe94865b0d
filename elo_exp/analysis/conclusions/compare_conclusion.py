"""The conclusion about changes between finished runs and the first of them, by dimension or for estimates.

state     evidence
none      nothing is known in the first and in another run
untested  a change has no error: nothing tells it from chance
nested    all verdicts of one run are in the other, so that only the choice of prompts differs
refitted  the same verdicts have other ratings: only the fit differs
same      the same verdicts have the same ratings
unmoved   changes are tested, and none is significant (Holm, over all runs and dimensions)
moved     a change is significant
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.conclusions import Conclusion, Effect, Scope
from elo_exp.analysis.conclusions.sweep_conclusion import SweepConclusion
from elo_exp.records import Record

STATES = ("none", "untested", "nested", "refitted", "same", "unmoved", "moved")
# A smaller shift is rounding
_MIN_SHIFT_IN_POINTS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Record):
    """The change of an entrant's rating, or of a policy's value, from the first run."""

    name: str
    run: str
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConclusion(Conclusion):
    """The changes; `subject` changed most, and `others` changed, too.

    n_tested  changes that are tested
    changes   the significant ones, the largest first
    firsts    top entrant of each run; None for estimates
    """

    n_tested: int
    changes: tuple[Change, ...]
    firsts: SweepConclusion | None = None


def conclude(
    rows: Sequence[Mapping[str, Any]],
    relations: Sequence[str] = (),
    *,
    dimension: str | None = None,
    unit: str = "score",
    firsts: SweepConclusion | None = None,
) -> CompareConclusion:
    """Conclude which changes from the first run are significant.

    Parameters
    ----------
    rows
        Of ratings: `model`, `run`, `shift`, `shift_ci_low`, `shift_ci_high`, `shift_p_holm`; or of
        estimates, `policy` and the same of `difference`. None where nothing is known.
    relations
        How the verdicts of each other run are related to those of the first: same, nested or other.
    dimension
        Of the ratings; None of estimates.
    unit
        Of ratings and estimates: points, or score.
    firsts
        Top entrant of each run.
    """
    name, column = "model", "shift"
    if dimension is None:
        name, column = "policy", "difference"
    known_rows = [row for row in rows if row[column] is not None]
    tested_rows = [row for row in known_rows if row[f"{column}_p_holm"] is not None]
    changes = [
        Change(
            name=row[name],
            run=row["run"],
            effect=Effect(
                value=row[column],
                low=row[f"{column}_ci_low"],
                high=row[f"{column}_ci_high"],
                unit=unit,
                p_value=row[f"{column}_p_holm"],
            ),
        )
        for row in sorted(tested_rows, key=lambda row: -abs(row[column]))
        if row[f"{column}_p_holm"] <= ALPHA
    ]
    names = list(dict.fromkeys(change.name for change in changes))
    if changes:
        state = "moved"
    elif tested_rows:
        state = "unmoved"
    else:
        state = _untested_state([abs(row[column]) for row in known_rows], relations)
    return CompareConclusion(
        state=state,
        subject=names[0] if names else None,
        effect=changes[0].effect if changes else None,
        others=tuple(names[1:]),
        scope=Scope(dimension=dimension),
        n_tested=len(tested_rows),
        changes=tuple(changes),
        firsts=firsts,
    )


def _untested_state(shifts: Sequence[float], relations: Sequence[str]) -> str:
    """Return the state if no change is tested."""
    if not shifts:
        return "none"
    if not relations or "other" in relations:
        return "untested"
    if "nested" in relations:
        return "nested"
    return "refitted" if max(shifts) > _MIN_SHIFT_IN_POINTS else "same"
