"""Whether the length of answers could by itself produce the leader's lead."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import scipy

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    FAILED,
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_interval_before_counts,
)
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.formatting import format_number, format_percent

# share of a pair's games in which the leader's answer is not longer, or not shorter, from which on equal
# length is within the data
MIN_SUPPORT = 0.05


class _Length(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Better entrants may also write more, so a preference for length alone is no failure.

        It is one if the largest effect of length that the data leave possible could by itself produce the lead, or if
        a significant one takes away more than half of its size.
        """
        if "length" in evidence.diagnosis or evidence.has_battles:
            yield _check_length(evidence.diagnosis.get("length"), evidence.leaders)

    def format_value(self, check: Check) -> str:
        if check.value is None:
            return super().format_value(check)
        return format_percent(check.value, 1)

    def describe_counts(self, check: Check) -> str:
        about = check.about
        if not about:
            return ""
        interval = format_interval_before_counts(check)
        text = f"{interval}{format_number(about['scale'])} characters apart"
        gap, at_equal_length = about["gap"], about["gap_at_equal_length"]
        if gap is None or at_equal_length is None:
            return text
        lead = f"lead {format_number(gap)}, at equal length {format_number(at_equal_length)}"
        least = about.get("least")
        bound = f" (at least {format_number(least)})" if least is not None else ""
        return f"{text}; {lead}{bound}"

    def explain_failure(self, check: Check) -> str:
        about, share = check.about or {}, check.value
        is_unknown = about["gap_at_equal_length"] is None or share is None
        if is_unknown or about.get("is_extrapolated") or share is None:
            return "The length of the answers could explain the lead by itself."
        longer = share > 0.5
        return (
            f"At equal length the lead would be {format_number(about['gap_at_equal_length'])} points, not "
            f"{format_number(about['gap'])}: the {'longer' if longer else 'shorter'} of two equally rated "
            f"answers wins {format_percent(share if longer else 1.0 - share)} of comparisons."
        )

    def make_reason(self, check: Check, leader: str) -> Reason:
        about = dict(check.about or {})
        value = about["gap_at_equal_length"]
        return Reason(name=self.name, value=value, about=about, judges=True)

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        least = reason.about.get("least")
        if reason.value is None or reason.about.get("is_extrapolated"):
            return "the length of its answers could explain all of it"
        text = f"at equal length the lead is {format_number(reason.value)}"
        is_maybe_none = least is not None and least <= 0.0
        return f"{text}, and may be none" if is_maybe_none else text


def _check_length(control: Mapping[str, Any] | None, leaders: Sequence[str]) -> Check:
    """Check whether the length of answers could by itself produce the leader's lead.

    It could not if the lead is above zero at the largest effect that the data leave possible: the
    one-sided 95 % bound of the lead at equal length. If one side's answer is the longer one nearly
    always, equal length is extrapolated and nothing is known there. If no fit bounds that effect, as of a leader that
    won every prompt, the leader has to win where its answers are not longer, and where they are not
    shorter.
    """
    effect = control["effect"] if control else {}
    if control is None or not effect.get("n_games"):
        return Check(name="length", state=NOT_DONE)
    value = low = high = None
    if effect["effect"] is not None:
        # The win rate of the longer of two equals whose lengths differ by the scale
        value, low, high = (
            None if end is None else float(scipy.special.expit(end * math.tanh(1)))
            for end in (effect["effect"], effect["ci_low"], effect["ci_high"])
        )
    is_effect = low is not None and high is not None and not low <= 0.5 <= high
    leader = leaders[0] if leaders else None
    leads = [row for row in control.get("weakest_leads", ()) if row["first"] == leader]
    tests = [row for row in control.get("sign_tests", ()) if row["first"] == leader]
    state, is_notable = PASSED, is_effect
    about = {"scale": effect["scale"], "second": None, "gap": None, "least": None}
    about["gap_at_equal_length"] = None
    if leads:
        lead = leads[0]
        about |= {name: lead[name] for name in ("second", "gap", "least")}
        about["gap_at_equal_length"] = lead["difference"]
        n_one_sided = max(lead["n_longer"], lead["n_shorter"])
        is_within = n_one_sided <= (1.0 - MIN_SUPPORT) * lead["n_games"]
        about["is_extrapolated"] = not is_within
        holds = is_within and lead["least"] is not None and lead["least"] > 0.0
        if is_effect and lead["difference"] < lead["gap"] / 2:
            holds = False
        if not holds:
            state, is_notable = FAILED if is_effect else CANNOT_TELL, False
    elif leader is not None and effect["scale"]:
        p_values = [max(t["p_not_longer"], t["p_not_shorter"]) for t in tests]
        state = PASSED if p_values and max(p_values) <= ALPHA else CANNOT_TELL
    return Check(
        name="length",
        state=state,
        value=value,
        low=low,
        high=high,
        about=about,
        is_notable=is_notable,
    )


CHECK = _Length(
    name="length",
    title="Longer wins, of equally rated answers",
    accepted="no effect that is possible explains the lead, or half of it",
    number=70,
    row=35,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=60,
    console_label="longer wins",
    warning="length explains the lead, or half of it; the longer answer wins",
)
