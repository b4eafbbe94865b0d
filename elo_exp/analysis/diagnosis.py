"""What is known of a judge on one dimension, as `judge` of ratings.json has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.families import KinDiagnosis
from elo_exp.analysis.goodness_of_fit import (
    CycleCounts,
    StrataTest,
    TransitivityTest,
    VariedGap,
)
from elo_exp.analysis.judge_bias import LengthControl, PositionEffect
from elo_exp.analysis.judge_quality import InvalidShare
from elo_exp.analysis.repeated_files import EarlierLook
from elo_exp.analysis.sequential_tests import Look
from elo_exp.analysis.stratum_reversals import RivalAhead
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.records import Record, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOrder(Record):
    """How often ratings recover the order of entrants of known quality.

    models         of these, the best first
    n_pairs        of two of them
    n_recovered    of these pairs, whose difference has the right sign
    n_significant  of these, whose difference is significant
    """

    dimension: str
    models: Sequence[str]
    n_pairs: int
    n_recovered: int
    n_significant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataDiagnosis(StrataTest):
    """Whether ratings differ between strata of the prompts.

    ratings          rows of a model on a stratum; empty with one stratum
    most_varied_gap  None if no gap varies
    leader           of all prompts; None if nobody is rated
    ahead            who is ahead of it on which stratum
    """

    ratings: Rows
    most_varied_gap: VariedGap | None
    leader: str | None
    ahead: Sequence[RivalAhead]

    @property
    def is_significant(self) -> bool:
        """Whether ratings differ significantly."""
        return self.p_value is not None and self.p_value < ALPHA


class Diagnosis(TypedDict, total=False):
    """The diagnoses of one dimension, by name; what was not asked is absent.

    position       how often the answer that is shown first wins
    transitivity   the test whether one rating explains all pairs, with each pair in `pair_residuals`
    cycles         on how many prompts three entrants beat each other in a circle
    equal_answers  pairs of entrants that gave the same answers to half of the prompts or more
    length         what the length of answers has to do with the verdicts
    repeats        agreement of repeated queries
    invalid        for each entrant, whether invalid verdicts fall on it
    looks          the planned looks; `earlier_looks`: one for each pair whose result was shown before
    strata         whether ratings differ between strata of the prompts
    known_order    how often the order of entrants of known quality was recovered
    kin            which entrants are of the judge's family
    audit          as audit.json has it; {}: the judge was not audited
    """

    position: PositionEffect
    transitivity: TransitivityTest
    pair_residuals: Rows
    cycles: CycleCounts
    equal_answers: Sequence[EqualAnswers]
    length: LengthControl
    repeats: Mapping[str, Any]
    invalid: Sequence[InvalidShare]
    looks: Sequence[Look]
    earlier_looks: Sequence[EarlierLook]
    strata: StrataDiagnosis
    known_order: KnownOrder
    kin: KinDiagnosis
    audit: Mapping[str, Any]


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as ratings.json has it.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of one dimension.

    Returns
    -------
    dict
        The same names, with a mapping in place of each record.
    """
    return {name: _to_json(value) for name, value in diagnosis.items()}


def _to_json(value: object) -> object:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    return value
