"""On how many prompts three entrants beat each other in a circle: a share without a limit."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_counts,
)


class _Cycles(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        cycles = evidence.diagnosis.get("cycles")
        if cycles is None or not cycles.n_triples:
            return
        n, n_prompts = cycles.n_cyclic_prompts, cycles.n_prompts
        yield Check(
            name=self.name,
            state=PASSED,
            value=n / n_prompts if n_prompts else None,
            n=n,
            of=n_prompts,
        )

    def describe_counts(self, check: Check) -> str:
        return format_counts(check)


CHECK = _Cycles(
    name="cycles",
    title="Prompts on which three entrants beat each other in a circle",
    accepted="no limit",
    finding="Three entrants beat each other in a circle on {values} of prompts.",
    number=140,
)
