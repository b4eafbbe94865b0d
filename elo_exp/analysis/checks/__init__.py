"""Checks of a judge, and of the answers that it judged, by dimension: one module a check.

A module of this folder has CHECK, a CheckDefinition: what the check is called, what it accepts, which claims it stands
against, how it is made and how its results are worded. The sentences stand here, and not in report/, so that a check is
one file and its limit one number. Pages, console, files, metrics and conclusions loop over `check_definitions()`.
For a gate, a module has GATE_CHECK, with CHECK or without it: analysis/gate_checks.py describes these.
"""

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.exact_shares import effective_number
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.arrays import Mask
from elo_exp.data.battles import Battles
from elo_exp.errors import FileError, SettingError, describe_mistake
from elo_exp.formatting import format_count, format_percent, format_percent_interval
from elo_exp.records import Rows

# States of a check: the data rule its fault out, show it, leave it open; nobody can know
PASSED, FAILED, CANNOT_TELL, NOT_DONE = "passed", "failed", "cannot tell", "not done"
STATES = PASSED, FAILED, CANNOT_TELL, NOT_DONE
# Claims: the top entrant leads, two entrants are level
LEADS, LEVEL = "leads", "level"
CLAIMS = LEADS, LEVEL
# Claims that a fault could produce by itself. Position bias cancels if each pair was judged in both
# orders, and flips are noise: neither produces a lead then.
CLAIMS_FROM_FAVOURING_AN_ENTRANT = LEADS, LEVEL
CLAIMS_FROM_HIDING_A_DIFFERENCE = (LEVEL,)
# Behind all checks that give their place
LAST_NUMBER = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check in one dimension.

    name   of its definition
    state  passed (the data rule the fault out), failed, cannot tell, or not done
    value  None where it was not measured
    low, high  of a 95% interval
    n, of  counts behind the value
    about  names or further numbers, by what they are
    is_notable  whether a reader is to notice what it found, which blocks nothing
    """

    name: str
    state: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    of: int | None = None
    about: Mapping[str, Any] | None = None
    is_notable: bool = False

    @property
    def definition(self) -> "CheckDefinition":
        """What the check is in a tournament."""
        return check_definitions()[self.name]

    @property
    def is_failed_by_judge(self) -> bool:
        """Whether the judge failed it; unusual answers are the entrant's."""
        return self.state == FAILED and self.definition.is_about_judge

    @property
    def is_one_order(self) -> bool:
        """Whether flips are unknown because comparisons were judged in one order alone."""
        return bool((self.about or {}).get("n_one_order"))

    def blocks(self, claim: str) -> bool:
        """Return whether it stands against a claim: its fault could produce it, and is not ruled out.

        A check that was not done does not: nobody can know. If each pair was judged in one order alone,
        somebody could have.

        claim  any of `CLAIMS`
        """
        if self.is_one_order:
            return True
        is_open = self.state in self.definition.blocking_states
        return is_open and claim in self.definition.blocked_claims


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeEvidence:
    """What is known of a judge in one dimension.

    diagnosis  as in Standings
    quality    of the judgments; None if they are not known
    leaders    the two best entrants, if their difference is significant: it is to hold at equal length
    responses  what is odd about the entrants' answers; empty if they are not known
    """

    battles: Battles
    diagnosis: Diagnosis
    quality: JudgeQuality | None = None
    leaders: Sequence[str] = ()
    responses: Rows = ()

    @property
    def has_battles(self) -> bool:
        return len(self.battles) > 0


def refuse_unknown(field: str, values: object, accepted_words: Sequence[str]) -> None:
    """Raise SettingError for a field of a definition that is not a tuple of known words.

    Parameters
    ----------
    field : str
        Its name.
    values : object
        What it holds.
    accepted_words : sequence of str
        The words.
    """
    if not isinstance(values, tuple) or not {*values} <= {*accepted_words}:
        raise SettingError(
            f"{field} must be a tuple of words from {', '.join(map(repr, accepted_words))}; got {values!r}."
        )


@dataclass(frozen=True, kw_only=True)
class CheckDefinition(ABC):
    """A check: its name and words, what it accepts and stands against; its methods make and explain results.

    name             in files and metrics
    title            of its row on a page
    accepted         what passes, in words; its numbers are those that decide
    finding          the sentence of the page about a value, with {values} for the value of each rubric; None: the value and
                     what is accepted
    number           results come in the order of these numbers
    row              rows of a page come in the order of these; None: as results do
    blocked_claims   any of CLAIMS that its fault could produce by itself
    blocking_states  in which it stands against them
    is_about_judge   whether it is the judge's fault; else the fault of an entrant
    leaves_no_result whether nothing was compared if it fails
    reasons          names of the reasons that it gives to conclusions; (): its own name
    weight           of these reasons among all of the judge, or of entrants; the least is said first
    console_label    before its value in the line of the judge; None: only a failure is in that line
    missing_label    in that line if it has no value. If a check with such a label has none, the judge is not checked
    warning          on the console if it fails, before rubrics and values; None: no warning
    not_done         in place of a value
    unknown          the sentence of the page if no rubric has a value
    compared_rate    the share of `judge_quality` that a sweep compares between jobs
    """

    name: str
    title: str
    accepted: str
    finding: str | None = None
    number: int = LAST_NUMBER
    row: int | None = None
    blocked_claims: tuple[str, ...] = ()
    blocking_states: tuple[str, ...] = (FAILED, CANNOT_TELL)
    is_about_judge: bool = True
    leaves_no_result: bool = False
    reasons: tuple[str, ...] = ()
    weight: int = LAST_NUMBER
    console_label: str | None = None
    missing_label: str | None = None
    warning: str | None = None
    not_done: str = "not checked"
    unknown: str = "Not checked."
    compared_rate: str | None = None

    def __post_init__(self) -> None:
        refuse_unknown("blocked_claims", self.blocked_claims, CLAIMS)
        refuse_unknown("blocking_states", self.blocking_states, STATES)

    @abstractmethod
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Yield the result; nothing if the evidence has no such thing."""

    def format_value(self, check: Check) -> str:
        """Return what it measured, for a table."""
        if check.value is None:
            return "not measured: one order" if check.is_one_order else self.not_done
        return format_percent(check.value)

    def explain_note(self, check: Check) -> str:
        """Say what a result means that did not pass, or that a reader is to notice; empty if its value says all."""
        return self.explain_failure(check) if check.state == FAILED else ""

    def describe_counts(self, check: Check) -> str:
        """Return the counts, intervals and names behind a value."""
        return format_counts(check) if check.of else ""

    def explain_failure(self, check: Check) -> str:
        """Say why it failed, as a sentence of the page."""
        return f"{self.title}: {self.format_value(check)}."

    def summarize_failure(self, check: Check) -> str:
        """Say that it failed, in the line of the judge on the console."""
        return f"{self.title[:1].lower()}{self.title[1:]}: {self.format_value(check)}"

    def make_reason(self, check: Check, leader: str) -> Reason:
        """Return why less may be said of the leader."""
        return Reason(
            name=self.reason_names[0],
            value=check.value,
            about=dict(check.about or {}),
            judges=self.is_about_judge,
        )

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        """Return such a reason, as the end of the sentence about the leader."""
        return (
            f"{self.title[:1].lower()}{self.title[1:]}: {format_percent(reason.value)}"
        )

    @property
    def reason_names(self) -> tuple[str, ...]:
        return self.reasons or (self.name,)


DEFINITION_NAMES = "CHECK", "GATE_CHECK"


def collect_definitions(variable: str, kind: type) -> list[Any]:
    """Return the definitions of one kind.

    Parameters
    ----------
    variable : str
        That holds them in the modules of this folder, one of `DEFINITION_NAMES`.
    kind : type
        Their class.

    Returns
    -------
    list
        Of the modules that have one.

    Raises
    ------
    FileError
        For a module that cannot be imported, has no definition, or one that is not of its kind or has the name of
        another.
    """
    path_by_name = dict[str, str]()
    definitions = []
    for info in pkgutil.iter_modules(__path__):
        module_name = f"{__name__}.{info.name}"
        spec = importlib.util.find_spec(module_name)
        path = str(spec.origin if spec else info.name)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise FileError(describe_mistake(error, path)) from error
        if not any(hasattr(module, name) for name in DEFINITION_NAMES):
            raise FileError.bad_file(
                path,
                "defines neither CHECK nor GATE_CHECK",
                "",
                "  Add a line such as:",
                "  CHECK = MyCheck(name=..., title=..., accepted=...)",
            )
        if not hasattr(module, variable):
            continue
        definition = getattr(module, variable)
        is_of_kind = isinstance(definition, kind)
        if not is_of_kind:
            raise FileError.bad_file(
                path,
                f"sets {variable} to {definition!r:.60}",
                f"It must be an instance of a subclass of {kind.__name__}.",
            )
        if definition.name in path_by_name:
            raise FileError.bad_file(
                path,
                f"names its check {definition.name!r}, as {path_by_name[definition.name]} does",
                "Choose another name.",
            )
        path_by_name[definition.name] = path
        definitions.append(definition)
    return definitions


@contextlib.contextmanager
def name_file_of_mistakes(definition: object) -> Iterator[None]:
    """Raise an exception of a check as FileError, which names the file of the check and the line."""
    try:
        yield
    except Exception as error:
        path = str(sys.modules[type(definition).__module__].__file__)
        raise FileError(describe_mistake(error, path)) from error


def refuse_wrong_result(check: object, name: str) -> None:
    """Raise ValueError for what is no result of a check.

    Parameters
    ----------
    check : object
        What the check returned.
    name : str
        Of the check.
    """
    if not isinstance(check, Check):
        raise ValueError(f"the result must be a Check; got {check!r:.60}.")
    if check.name != name:
        raise ValueError(
            f"the result must be named {name!r}, as Check(name=self.name, ...) is; got {check.name!r}."
        )
    if check.state not in STATES:
        raise ValueError(
            f"the state of the result must be one of {', '.join(STATES)}; got {check.state!r}."
        )


@functools.cache
def check_definitions() -> Mapping[str, CheckDefinition]:
    """Return every check by its name, in the order of results."""
    definitions: list[CheckDefinition] = collect_definitions("CHECK", CheckDefinition)
    return {d.name: d for d in sorted(definitions, key=lambda d: (d.number, d.name))}


def list_definitions_by_row() -> list[CheckDefinition]:
    """Return every check in the order of a page's rows and of the console."""
    return sorted(
        check_definitions().values(),
        key=lambda d: d.number if d.row is None else d.row,
    )


def find_check_of_reason(name: str) -> CheckDefinition | None:
    """Return the check that gives reasons of this name; None if they come from no check."""
    for definition in check_definitions().values():
        if name in definition.reason_names:
            return definition
    return None


def list_reason_names(*, is_about_judge: bool) -> list[str]:
    """Return the names of reasons that checks give to a ranking for a caution, the weightiest first."""
    definitions = [
        definition
        for definition in check_definitions().values()
        if definition.is_about_judge is is_about_judge
        and {LEADS, LEVEL} & {*definition.blocked_claims}
        and not definition.leaves_no_result
    ]
    definitions.sort(key=lambda definition: definition.weight)
    return [name for definition in definitions for name in definition.reason_names]


def check_judge(
    battles: Battles,
    diagnosis: Diagnosis,
    quality: JudgeQuality | None = None,
    leaders: Sequence[str] = (),
    responses: Rows = (),
) -> list[Check]:
    """Check a judge on one dimension.

    Parameters
    ----------
    battles : Battles
        Of the dimension.
    diagnosis : Diagnosis
        Of this dimension.
    quality : JudgeQuality, optional
        Of the judgments; None where they are not known.
    leaders : sequence of str, optional
        The two best entrants, if their difference is significant: it is to hold at equal length.
    responses : rows, optional
        What is odd about the entrants' answers; empty where they are not known.

    Returns
    -------
    list of Check
        In a fixed order; what could not be measured is "not done".
    """
    evidence = JudgeEvidence(
        battles=battles,
        diagnosis=diagnosis,
        quality=quality,
        leaders=leaders,
        responses=responses,
    )
    checks = list[Check]()
    for definition in check_definitions().values():
        with name_file_of_mistakes(definition):
            checks += _measure_and_word(definition, evidence)
    return checks


def _measure_and_word(
    definition: CheckDefinition, evidence: JudgeEvidence
) -> list[Check]:
    """Return the results of a check whose texts can be made: a mistake in them ends a run before it writes anything."""
    checks = [*definition.measure(evidence)]
    for check in checks:
        refuse_wrong_result(check, definition.name)
        definition.format_value(check)
        definition.describe_counts(check)
        if check.state == FAILED:
            definition.explain_failure(check)
            definition.summarize_failure(check)
    return checks


# For the modules of this folder


def state_of_share(low: float, high: float, *, most: float, least: float = 0.0) -> str:
    """Return the state of a check whose share has an interval and limits.

    Parameters
    ----------
    low, high : float
        The ends of the interval.
    most, least : float
        The limits.

    Returns
    -------
    str
        Passed if the whole interval is inside the limits, failed if it is outside, else cannot tell.
    """
    if least <= low and high <= most:
        return PASSED
    return FAILED if low > most or high < least else CANNOT_TELL


def effective_share(battles: Battles, is_hit: Mask, chosen: Mask) -> float:
    """Return how many independent comparisons each of the chosen is worth: those of a prompt or cluster go together.

    Parameters
    ----------
    battles : Battles
        n battles.
    is_hit : Mask, shape (n,)
        Those that the share counts.
    chosen : Mask, shape (n,)
        Those of which it is a share.

    Returns
    -------
    float
        In (0, 1]; 1 for battles that stand for several.
    """
    if battles.count is not None or not chosen.any():
        return 1.0
    hits = is_hit[chosen].astype(np.float64)
    return effective_number(hits, battles.units()[chosen].astype(np.int64)) / len(hits)


def format_counts(check: Check) -> str:
    """Return the counts behind a share.

    Parameters
    ----------
    check : Check
        With `n` and `of`.

    Returns
    -------
    str
        Such as "21 of 100".
    """
    return f"{format_count(check.n)} of {format_count(check.of)}"


def explain_open_share(check: Check) -> str:
    """Say why the data cannot tell whether a share is accepted.

    Parameters
    ----------
    check : Check
        Of a share, with or without an interval.

    Returns
    -------
    str
        A sentence.
    """
    if check.low is None:
        return "The data give no interval, so they cannot tell."
    ends = format_percent_interval(check.low, check.high)
    return f"The 95% interval, {ends}, goes beyond the accepted range, so the data cannot tell."


def format_interval_before_counts(check: Check) -> str:
    """Return the interval of a share, with a comma for the counts behind it.

    Parameters
    ----------
    check : Check
        With or without an interval.

    Returns
    -------
    str
        Such as "95% CI 10.0 to 30.0%, "; empty without an interval.
    """
    if check.low is None:
        return ""
    ends = format_percent_interval(check.low, check.high, 1)
    return f"95% CI {ends}, "
