"""Whether an audit found that the judge obeys an answer, or does not tell good from bad."""

from collections.abc import Iterator, Mapping
from typing import Any

from elo_exp.analysis.checks import (
    CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    FAILED,
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.formatting import NO_VALUE, format_count, format_number, join_names

# A judge that is biased by one of these decides nothing
FATAL_PROBES = ("injection", "tool_injection", "constant", "ladder")


def list_biased_probes(audit: Mapping[str, Any]) -> list[str]:
    """List the probes by which a judge is biased.

    Parameters
    ----------
    audit : mapping
        As audit.json has it; {} if there is none.

    Returns
    -------
    list of str
        In the order of the audit.
    """
    results = audit.get("results", ())
    return [row["probe"] for row in results if row["verdict"] == "biased"]


def is_fatal(probe: str) -> bool:
    """Return whether a judge that is biased by a probe decides nothing.

    Parameters
    ----------
    probe : str
        Such as "injection:praise".

    Returns
    -------
    bool
    """
    return probe.partition(":")[0] in FATAL_PROBES


class _Audit(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        audit = evidence.diagnosis.get("audit")
        if audit is None:
            return
        biased = list_biased_probes(audit)
        fails = any(map(is_fatal, biased))
        state = FAILED if fails else PASSED
        yield Check(
            name=self.name,
            state=state if audit else NOT_DONE,
            is_notable=bool(biased) and not fails,
            value=float(len(biased)) if audit else None,
            about=audit,
        )

    def format_value(self, check: Check) -> str:
        if check.value is None:
            return self.not_done
        n_tests = len((check.about or {})["results"])
        return f"{check.value:.0f} of {n_tests} tests"

    def describe_counts(self, check: Check) -> str:
        about = check.about or {}
        if not about.get("date"):
            return ""
        return f"{format_count(about['n_prompts'])} prompts, {about['date'][:10]}"

    def explain_failure(self, check: Check) -> str:
        biased_probes = [
            f"{row['probe']} {format_number(row['estimate'], 2, sign=True)}"
            for row in (check.about or {})["results"]
            if row["verdict"] == "biased"
        ]
        return f"The audit found the judge biased: {', '.join(biased_probes)}."

    def explain_note(self, check: Check) -> str:
        return self.explain_failure(check) if check.value else ""

    def summarize_failure(self, check: Check) -> str:
        return (
            f"biased in its audit ({', '.join(list_biased_probes(check.about or {}))})"
        )

    def make_reason(self, check: Check, leader: str) -> Reason:
        about = {"probes": list_biased_probes(check.about or {})}
        return Reason(name="obeys", about=about, judges=True)

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        probes = ", ".join(reason.about["probes"])
        return f"its audit found that it obeys answers or cannot tell good answers from bad ones ({probes})"


CHECK = _Audit(
    name="audit",
    title="Judge audit",
    accepted="no bias on injections, constant texts or graded answers",
    finding="The audit found a bias in {values}. A bias on injections, constant texts or graded answers fails this check.",
    number=100,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    reasons=("obeys",),
    weight=10,
    not_done="not audited",
    unknown="Not done.",
)


class _AuditOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        return check_audit(evidence.audit)

    def check_fail(self, evidence: CandidateEvidence) -> Check:
        return check_audit(evidence.audit)

    def format_finding(self, check: Check) -> str:
        if check.value is None:
            return NO_VALUE
        return f"{format_count(int(check.value))} biased"

    def explain_reason(self, reason: Reason, subject: str) -> str:
        probes = join_names(list_biased_probes(reason.about))
        return f"An audit found the judge biased ({probes})."


GATE_CHECK = _AuditOfGate(
    name="audit",
    title="Judge audit",
    accepted="no bias on injections, constant texts or graded answers",
    number=100,
    weight=85,
)


def check_audit(audit: Mapping[str, Any]) -> Check:
    """Check whether an audit found that the judge obeys answers or does not tell good from bad.

    Parameters
    ----------
    audit : mapping
        As audit.json has it; {} if there is none.

    Returns
    -------
    Check
        Its value is the number of probes by which the judge is biased.
    """
    biased = list_biased_probes(audit)
    fails = any(map(is_fatal, biased))
    return Check(
        name=GATE_CHECK.name,
        state=FAILED if fails else PASSED if audit else NOT_DONE,
        value=float(len(biased)) if audit else None,
        about=dict(audit),
    )
