"""The control of a gate: degraded copies of the baseline's answers, which a working judge rejects."""

from dataclasses import dataclass

from elo_exp.analysis.noninferiority import MIN_PROMPTS_FOR_VERDICT
from elo_exp.data.degraded_copies import control_comparisons
from elo_exp.report.viewer import Comparisons


@dataclass(frozen=True, kw_only=True)
class GateControl:
    """Comparisons of degraded copies, judged next to those of the candidate; none without `is_wanted`."""

    is_wanted: bool

    def make(self, comparisons: Comparisons) -> Comparisons:
        """Return comparisons of degraded copies; none on a dimension with too few prompts."""
        return {
            name: control_comparisons(pairs)
            if self.is_wanted
            and len({comparison.prompt_id for comparison in pairs})
            >= MIN_PROMPTS_FOR_VERDICT
            else []
            for name, pairs in comparisons.items()
        }

    def add(self, comparisons: Comparisons) -> Comparisons:
        """Return the comparisons with those of the control.

        If the candidate gave the baseline's answers, return none, because no judge is called.
        """
        if are_equal(comparisons):
            return dict.fromkeys(comparisons, ())
        controls = self.make(comparisons)
        return {name: [*pairs, *controls[name]] for name, pairs in comparisons.items()}


def are_equal(comparisons: Comparisons) -> bool:
    """Return whether the candidate gave the baseline's answer to every prompt."""
    all_comparisons = [
        comparison for pairs in comparisons.values() for comparison in pairs
    ]
    return bool(all_comparisons) and all(
        comparison.response_a == comparison.response_b for comparison in all_comparisons
    )
