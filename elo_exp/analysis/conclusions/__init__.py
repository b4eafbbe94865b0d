"""What may be said of a result: one conclusion each, from evidence, by the table of its kind.

A module here holds the table of one kind (tournament, gate, arena, oracle, audit, sweep, compare): a pure
function from what was measured to a `Conclusion`. How a conclusion is said is in report/sentences; every place
that shows it (console, page, files, tracker) shows the same object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Record):
    """How large something is: an estimate with its 95% interval, of a gate with one-sided bounds. None: not known.

    unit       points, share or score
    p_value    of the test that the conclusion rests on, adjusted for its family of tests
    one_sided  whether the subject took every point, so that only the near end is known
    n_prompts  of a one-sided effect: on which it did; 0 where battles name none
    look       the planned look at which it was tested
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = "points"
    p_value: float | None = None
    one_sided: bool = False
    n_prompts: int | None = None
    look: int | None = None
    significant: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment(Record):
    """What an effect is adjusted for.

    features  of the answers that the fit holds equal: length, headers, lists, bold
    raw       the same effect without the control; None if it is not known
    """

    features: tuple[str, ...]
    raw: Effect | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Adjustment | None":
        """Read it from a conclusion, as ratings.json has it; None if nothing is held equal."""
        if not row.get("adjusted_for"):
            return None
        raw = None
        if row.get("raw_difference") is not None:
            low, high = row.get("raw_ci_low"), row.get("raw_ci_high")
            raw = Effect(value=row["raw_difference"], low=low, high=high)
        return cls(features=tuple(row["adjusted_for"]), raw=raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Record):
    """Why less may be said.

    name    of the check that failed: flips, kin, answers, stratum, ...
    value   what it measured; None where it could not
    about   names and further numbers, by what they are, JSON
    judges  whether it is the judge's: then the judge prefers, and nobody leads
    """

    name: str
    value: float | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    judges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold(Record):
    """How often an audited judge names the better answer of labelled pairs: a share, its 95% interval, and how many.

    n_invalid  of the pairs, without a valid verdict in each order: wrong in the share and at the low end, right at the
               high end
    """

    share: float
    low: float | None
    high: float | None
    n_pairs: int
    n_invalid: int = 0

    @classmethod
    def of(cls, audit: Mapping[str, Any]) -> "Gold | None":
        """Read it from an audit, as audit.json has it; None without labelled pairs."""
        for row in audit.get("gold", ()):
            if row["subset"] == "all" and row["accuracy"] is not None:
                return cls(
                    share=row["accuracy"],
                    low=row["low"],
                    high=row["high"],
                    n_pairs=row["n"],
                    n_invalid=row.get("n_invalid", 0),
                )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(Record):
    """Of what a conclusion is true.

    judge      its name; None where nobody judged
    kind       of the judge: model, words (it compares words), people (votes) or scores (of items)
    dimension  None where there is one alone
    n_prompts  of a tournament: on which the pair was compared that the sentence is about; None where the battles
               name none
    n_effective  how many prompts of equal size would tell as much; None: as many as there are
    source     the file or the arena that votes are from
    gold       how often the judge agrees with labelled pairs; None where no audit has asked it
    is_baseline  whether words were counted in answers of unknown quality: nothing can be found so
    is_pointwise whether the judge scored answers one by one, and compared none
    """

    judge: str | None = None
    kind: str = "model"
    dimension: str | None = None
    n_prompts: int | None = None
    n_effective: float | None = None
    source: str | None = None
    gold: Gold | None = None
    is_baseline: bool = False
    is_pointwise: bool = False

    @property
    def n_counted_prompts(self) -> float | None:
        """Return the prompts that guards count: effective ones; None where the battles name none."""
        return self.n_prompts if self.n_effective is None else self.n_effective


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion(Record):
    """What may be said of one result.

    state    one of the states of its table
    subject  whom it is about: the first of a ranking, a candidate, a policy, a judge
    rival    whom it is compared with
    others   names that the sentence needs besides: those that may be as good, or met nobody
    reasons  why less is said than the numbers alone would allow, the weightiest first
    is_checked  whether the judge's position bias was measured, or there is no judge
    adjustment  what the effect is adjusted for; None: nothing
    worst_case  the lead if what is missing counts against the subject; None if nothing between the two is missing
    """

    state: str
    subject: str | None = None
    rival: str | None = None
    effect: Effect | None = None
    others: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    is_checked: bool = True
    scope: Scope = field(default_factory=Scope)
    adjustment: Adjustment | None = None
    worst_case: WorstCase | None = None
