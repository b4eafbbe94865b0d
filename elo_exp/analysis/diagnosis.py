"""What is known of a judge on one dimension, as `judge` of ratings.json has it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from elo_exp.analysis.families import KinDiagnosis
from elo_exp.analysis.goodness_of_fit import CycleCounts, TransitivityTest
from elo_exp.analysis.judge_bias import PositionEffect
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.records import Record, Rows


class Diagnosis(TypedDict, total=False):
    """The diagnoses of one dimension, by name; what was not asked is absent.

    position       how often the answer that is shown first wins
    transitivity   the test whether one rating explains all pairs, with each pair in `pair_residuals`
    cycles         on how many prompts three entrants beat each other in a circle
    equal_answers  pairs of entrants that gave the same answers to half of the prompts or more
    length         of `length_control`
    repeats        agreement of repeated queries
    invalid        a row for each entrant: whether invalid verdicts fall on it
    looks          a row for each planned look; `earlier_looks`: one for each pair whose result was shown before
    strata         of `heterogeneity`, with the ratings of each stratum
    known_order    how often the order of entrants of known quality was recovered
    kin            which entrants are of the judge's family
    audit          as audit.json has it; {}: the judge was not audited
    """

    position: PositionEffect
    transitivity: TransitivityTest
    pair_residuals: Rows
    cycles: CycleCounts
    equal_answers: Sequence[EqualAnswers]
    length: Mapping[str, Any]
    repeats: Mapping[str, Any]
    invalid: Rows
    looks: Rows
    earlier_looks: Rows
    strata: Mapping[str, Any]
    known_order: Mapping[str, Any]
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
