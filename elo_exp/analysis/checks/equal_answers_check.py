"""Whether two entrants gave the same answers to half of the prompts or more."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_counts,
)
from elo_exp.formatting import format_count


class _EqualAnswers(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        if pairs := evidence.diagnosis.get("equal_answers"):
            top_pair = pairs[0]
            yield Check(
                name=self.name,
                state=PASSED,
                is_notable=True,
                value=top_pair.n_equal / top_pair.n_prompts,
                n=top_pair.n_equal,
                of=top_pair.n_prompts,
                about={"pairs": pairs},
            )

    def describe_counts(self, check: Check) -> str:
        top_pair, *other_pairs = (check.about or {})["pairs"]
        more_text = (
            f"; {format_count(len(other_pairs))} more pairs" if other_pairs[1:] else ""
        )
        more_text = "; one more pair" if len(other_pairs) == 1 else more_text
        models = f"{top_pair.first} and {top_pair.second}"
        return f"{models}, {format_counts(check)} prompts{more_text}"

    def explain_note(self, check: Check) -> str:
        return f"Was the setting applied in which they differ? {self.describe_counts(check)}."


CHECK = _EqualAnswers(
    name="equal_answers",
    title="Identical answers of two entrants",
    accepted="under half of the prompts",
    finding="Two entrants gave the same answer to {values} of prompts (accepted: under half).",
    number=90,
)
