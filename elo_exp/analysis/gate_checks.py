"""Checks behind the claims of a gate: could the judge have seen a worse candidate, and does anything favour this one?

A module of checks/ may have GATE_CHECK, a GateCheckDefinition: what the check is called in a gate, what it accepts, how it
is made for each claim, and how its results are worded. Page, files and conclusion loop over `gate_check_definitions()`.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    FAILED,
    LAST_NUMBER,
    NOT_DONE,
    PASSED,
    STATES,
    Check,
    check_definitions,
    collect_definitions,
    name_file_of_mistakes,
    refuse_unknown,
    refuse_wrong_result,
)
from elo_exp.analysis.conclusions import Reason
from elo_exp.analysis.exact_shares import exact_interval
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import PromptPoints
from elo_exp.data.pairing import Responses
from elo_exp.formatting import NO_VALUE, format_count, format_number, format_percent
from elo_exp.records import Comparison, Judgment


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEvidence:
    """Evidence about a candidate, its baseline and their judge on one rubric.

    candidate, baseline  their names in `responses`
    comparisons        of the two; entrant_a is the candidate
    judgments          of these
    quality            of these judgments
    controls           comparisons of degraded copies of the baseline's answers
    control_judgments  of these
    wants_control      False if the user left the control out
    responses          the answers, by entrant
    points             of the candidate, by prompt
    clusters           the group of each of these prompts
    margin             the loss that is tolerated, as share of points
    pass_alpha, fail_alpha  levels of the bounds of a pass and of a fail
    kin                who is of the judge's family
    is_family_known    whether a name tells the candidate's family
    allows_kin         whether the user allows a judge of the same family
    audit              as audit.json has it; {} if there is none
    """

    candidate: str
    baseline: str
    comparisons: Sequence[Comparison]
    judgments: Sequence[Judgment]
    quality: JudgeQuality
    controls: Sequence[Comparison]
    control_judgments: Sequence[Judgment]
    wants_control: bool
    responses: Responses
    points: Mapping[str, PromptPoints]
    clusters: Sequence[str]
    margin: float
    pass_alpha: float
    fail_alpha: float
    kin: JudgeFamily
    is_family_known: bool
    allows_kin: bool
    audit: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class GateCheckDefinition(ABC):
    """A check of a gate: its name and words, and what it accepts; its methods make and explain results.

    name              in files
    title             its name in the table of checks and next to a result: a noun
    accepted          results that pass, in words; its numbers decide
    number            position of its row and of its result
    weight            position among the reasons against a pass; None: the position of its row
    blocking_states   states that block the claim that the check was made for
    is_about_judge    whether a failure is the judge's fault; otherwise it is the fault of an answer
    is_measured_only  whether it passes with any value: its row shows the value and no state
    shows_blind_judge whether a judge that fails it cannot have seen a worse candidate: a reason before all numbers
    is_caution_of_fail whether a fail stays a fail with a caution. A wrong fail costs a second look at the answers, and a
                      wrong pass is merged
    leaves_no_result  whether nothing was compared if it fails
    """

    name: str
    title: str
    accepted: str
    number: int = LAST_NUMBER
    weight: int | None = None
    blocking_states: tuple[str, ...] = (FAILED, CANNOT_TELL)
    is_about_judge: bool = True
    is_measured_only: bool = False
    shows_blind_judge: bool = False
    is_caution_of_fail: bool = False
    leaves_no_result: bool = False

    def __post_init__(self) -> None:
        refuse_unknown("blocking_states", self.blocking_states, STATES)

    @abstractmethod
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        """Return what stands for or against the claim that the candidate is not worse."""

    def check_fail(self, evidence: CandidateEvidence) -> Check | None:
        """Return what stands for or against the claim that the candidate is worse; None if it has no say there."""
        return None

    def blocks(self, check: Check) -> bool:
        """Return whether a result stands against the claim that it was made for."""
        return check.state in self.blocking_states

    def format_finding(self, check: Check) -> str:
        """Return what it found, for a table."""
        if check.value is None:
            return "not measured (one order)" if check.is_one_order else NO_VALUE
        shares = f"{format_count(check.n)} of {format_count(check.of)}"
        if check.low is None or check.high is None:
            return shares
        ends = f"{format_number(100 * check.low)} to {format_number(100 * check.high)}"
        return f"{format_percent(check.value)} ({ends}), {shares}"

    def explain_reason(self, reason: Reason, subject: str) -> str:
        """Return the sentence that says why the check weakens the result. subject: the candidate's name."""
        return (
            f"{self.title}: {format_percent(reason.value)} (accepted: {self.accepted})."
        )

    def describe_results(self, checks: Sequence[Check]) -> list[str]:
        """Return lines about its results below the table of win rates. checks: one for each dimension."""
        return []


@functools.cache
def gate_check_definitions() -> Mapping[str, GateCheckDefinition]:
    """Return every check of a gate by its name, in the order of results.

    Returns
    -------
    mapping of str to GateCheckDefinition
    """
    definitions: list[GateCheckDefinition] = collect_definitions(
        "GATE_CHECK", GateCheckDefinition
    )
    return {d.name: d for d in sorted(definitions, key=lambda d: (d.number, d.name))}


def refuse_broken_checks() -> None:
    """Refuse a check whose file has a mistake, before anything is paid.

    Returns
    -------
    None

    Raises
    ------
    FileError
        For the first file that cannot be imported, or whose definition is not complete.
    """
    check_definitions()
    gate_check_definitions()


def check_pass_claim(evidence: CandidateEvidence) -> list[Check]:
    """Check what stands for and against the claim that the candidate is not worse.

    Parameters
    ----------
    evidence : CandidateEvidence
        Of one dimension.

    Returns
    -------
    list of Check
        One for each definition, in their order.
    """
    checks = list[Check]()
    for definition in gate_check_definitions().values():
        with name_file_of_mistakes(definition):
            check = definition.check_pass(evidence)
            refuse_wrong_result(check, definition.name)
            definition.format_finding(check)
            checks.append(check)
    return checks


def check_fail_claim(evidence: CandidateEvidence) -> list[Check]:
    """Check what stands for and against the claim that the candidate is worse.

    Parameters
    ----------
    evidence : CandidateEvidence
        Of one dimension.

    Returns
    -------
    list of Check
        In the order of their definitions; those that have a say there.
    """
    checks = list[Check]()
    for definition in gate_check_definitions().values():
        with name_file_of_mistakes(definition):
            check = definition.check_fail(evidence)
            if check is not None:
                refuse_wrong_result(check, definition.name)
                checks.append(check)
    return checks


def list_blocking_checks(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that stand against the claim that they were made for.

    Parameters
    ----------
    checks : sequence of Check
        Of one dimension.

    Returns
    -------
    list of Check
        The weightiest first.
    """
    definitions = gate_check_definitions()
    blocking = [check for check in checks if definitions[check.name].blocks(check)]

    def get_weight(check: Check) -> int:
        definition = definitions[check.name]
        return definition.number if definition.weight is None else definition.weight

    return sorted(blocking, key=get_weight)


# For the modules of checks/


def measure_share(name: str, n: int, n_all: int) -> Check:
    """Report a share with its exact 95% interval; the bound of the gate counts it, so it passes whatever it is.

    Parameters
    ----------
    name : str
        Of the check.
    n, n_all : int
        How many there are, of how many.

    Returns
    -------
    Check
        Not done if there are none to count.
    """
    if not n_all:
        return Check(name=name, state=NOT_DONE, n=n, of=n_all)
    low, high = exact_interval(n / n_all, n_all)
    return Check(
        name=name, state=PASSED, value=n / n_all, low=low, high=high, n=n, of=n_all
    )
