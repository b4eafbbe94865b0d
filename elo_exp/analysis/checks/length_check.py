"""Whether the length of answers could by itself produce the leader's lead, or the result of a gate."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
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
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.analysis.judge_bias import LengthControl
from elo_exp.arrays import Array
from elo_exp.formatting import format_number, format_p_equation, format_percent

# share of a pair's games in which the leader's answer is not longer, or not shorter, from which on equal
# length is within the data
MIN_SUPPORT = 0.05
# Of the baseline's mean length: a smaller mean difference moves no judge by a margin
MIN_RELATIVE_LENGTH_DIFFERENCE = 0.05
_CONFIDENCE_LEVEL = 0.95


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
            about = check.about or {}
            if about.get("p_sign") is not None:
                return f"sign test, {format_p_equation(about['p_sign'])}"
            return "same length" if about and not about["scale"] else self.not_done
        return format_percent(check.value, 1)

    def describe_counts(self, check: Check) -> str:
        about = check.about
        if not about or not about["scale"]:
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

    def explain_note(self, check: Check) -> str:
        about = check.about
        if check.state == NOT_DONE or not about:
            return ""
        if check.state == FAILED:
            return self._explain_failed_lead(check)
        if about.get("p_sign") is not None:
            return _explain_sign_test(check, about)
        if about["gap"] is not None and about["gap_at_equal_length"] is not None:
            return _explain_lead(check, about)
        if about["scale"]:
            return "No lead is significant, so length has no lead to explain."
        return "All answers are equally long."

    def explain_failure(self, check: Check) -> str:
        share = check.value
        note = self._explain_failed_lead(check)
        if share is None or note.endswith("whole lead."):
            return note
        longer = share > 0.5
        return (
            f"{note} The {'longer' if longer else 'shorter'} of two equally rated answers wins "
            f"{format_percent(share if longer else 1.0 - share)} of comparisons."
        )

    def _explain_failed_lead(self, check: Check) -> str:
        about, share = check.about or {}, check.value
        is_unknown = about["gap_at_equal_length"] is None or share is None
        if is_unknown or about.get("is_extrapolated") or share is None:
            return "The length of the answers could explain the whole lead."
        return (
            f"At equal length the lead would be {format_number(about['gap_at_equal_length'])} points instead of "
            f"{format_number(about['gap'])}."
        )

    def make_reason(self, check: Check, leader: str) -> Reason:
        about = dict(check.about or {})
        value = about["gap_at_equal_length"]
        return Reason(name=self.name, value=value, about=about, judges=True)

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        least = reason.about.get("least")
        if reason.value is None or reason.about.get("is_extrapolated"):
            return "the length of its answers could explain the whole lead"
        text = f"at equal length the lead is {format_number(reason.value)} points"
        is_maybe_none = least is not None and least <= 0.0
        return f"{text} and may be zero" if is_maybe_none else text


def _explain_lead(check: Check, about: Mapping[str, Any]) -> str:
    """Say what is left of the leader's lead at equal length."""
    lead = (
        f"The lead over {about['second']} is {format_number(about['gap'])} points, and "
        f"{format_number(about['gap_at_equal_length'])} at equal length"
    )
    if check.state == PASSED:
        return f"{lead} (at least {format_number(about['least'])}), so length alone does not explain it."
    if about["is_extrapolated"]:
        side = "longer" if about["n_longer"] > about["n_shorter"] else "shorter"
        return (
            f"The leader’s answers are {side} than those of {about['second']} in nearly all comparisons, so its lead at "
            "equal length is not known."
        )
    return f"{lead}, which may be zero."


def _explain_sign_test(check: Check, about: Mapping[str, Any]) -> str:
    """Say what the prompts tell on which length cannot explain a lead that no fit bounds."""
    test = f"sign tests, {format_p_equation(about['p_sign'])}"
    begin = "No lead at equal length can be computed, because a rating is not finite."
    if check.state == PASSED:
        return (
            f"{begin} The leader also wins where its answer is not the longer one, and where it is not the "
            f"shorter one ({test})."
        )
    return (
        f"{begin} Too few prompts show whether the leader also wins if its answer is not the longer one, or not the shorter "
        f"one ({test})."
    )


def _check_length(control: LengthControl | None, leaders: Sequence[str]) -> Check:
    """Check whether the length of answers could by itself produce the leader's lead.

    It could not if the lead is above zero at the largest effect that the data leave possible: the
    one-sided 95% bound of the lead at equal length. If one side's answer is the longer one nearly
    always, equal length is extrapolated and nothing is known there. If no fit bounds that effect, as of a leader that
    won every prompt, the leader has to win where its answers are not longer, and where they are not
    shorter. Without such a leader nothing is known of length then.
    """
    if control is None or not control.effect.n_games:
        return Check(name="length", state=NOT_DONE)
    effect = control.effect
    value = low = high = None
    if effect.effect is not None:
        # The win rate of the longer of two equals whose lengths differ by the scale
        value, low, high = (
            None if end is None else float(scipy.special.expit(end * math.tanh(1)))
            for end in (effect.effect, effect.ci_low, effect.ci_high)
        )
    is_effect = low is not None and high is not None and not low <= 0.5 <= high
    leader = leaders[0] if leaders else None
    leads = [lead for lead in control.weakest_leads if lead.first == leader]
    tests = [test for test in control.sign_tests if test.first == leader]
    state, is_notable = PASSED, is_effect
    about: dict[str, Any] = {
        "scale": effect.scale,
        "second": None,
        "gap": None,
        "least": None,
        "gap_at_equal_length": None,
    }
    if leads:
        lead = leads[0]
        about |= {
            "second": lead.second,
            "gap": lead.gap,
            "least": lead.least,
            "gap_at_equal_length": lead.difference,
            "n_longer": lead.n_longer,
            "n_shorter": lead.n_shorter,
        }
        n_one_sided = max(lead.n_longer, lead.n_shorter)
        is_within = n_one_sided <= (1.0 - MIN_SUPPORT) * lead.n_games
        about["is_extrapolated"] = not is_within
        holds = is_within and lead.least is not None and lead.least > 0.0
        if is_effect and lead.difference < lead.gap / 2:
            holds = False
        if not holds:
            state, is_notable = FAILED if is_effect else CANNOT_TELL, False
    elif leader is not None and effect.scale:
        p_values = [max(test.p_not_longer, test.p_not_shorter) for test in tests]
        about["p_sign"] = max(p_values, default=1.0)
        state = PASSED if about["p_sign"] <= ALPHA else CANNOT_TELL
    elif value is None and effect.scale:
        state = NOT_DONE
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
    title="Longer answer wins",
    accepted="length explains neither the lead nor half of it",
    finding="The longer of two equally rated answers wins {values} of comparisons "
    "(accepted if length explains neither the lead nor half of it).",
    number=70,
    row=35,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=60,
    console_label="longer answer wins",
    warning="length may explain the lead, or half of it; the longer answer wins",
    unknown="Not checked: no effect of length could be estimated.",
)


class _LengthOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        return self._check(evidence, alpha=evidence.pass_alpha)

    def check_fail(self, evidence: CandidateEvidence) -> Check:
        return self._check(evidence, alpha=evidence.fail_alpha, is_of_fail=True)

    def _check(
        self, evidence: CandidateEvidence, *, alpha: float, is_of_fail: bool = False
    ) -> Check:
        differences_by_prompt: dict[str, list[int]] = {}
        lengths = [len(comparison.response_b) for comparison in evidence.comparisons]
        for comparison in evidence.comparisons:
            difference = len(comparison.response_a) - len(comparison.response_b)
            differences_by_prompt.setdefault(comparison.prompt_id, []).append(
                difference
            )
        points = evidence.points
        cluster_by_prompt = dict(zip(points, evidence.clusters, strict=True))
        valid = [
            prompt
            for prompt, outcome in points.items()
            if outcome.lowest == outcome.highest and prompt in differences_by_prompt
        ]
        return check_length_of_claim(
            np.array([points[prompt].lowest for prompt in valid]),
            np.array([fmean(differences_by_prompt[prompt]) for prompt in valid]),
            np.array([cluster_by_prompt[prompt] for prompt in valid], dtype=object),
            margin=evidence.margin,
            alpha=alpha,
            mean_length=fmean(lengths) if lengths else 0.0,
            is_of_fail=is_of_fail,
        )

    def format_finding(self, check: Check) -> str:
        if check.value is None:
            return "not known: always longer, or always shorter"
        ends = " to ".join(
            format_number(end, 3, sign=True) for end in (check.low, check.high)
        )
        return f"{format_number(check.value, 3, sign=True)} ({ends})"

    def explain_reason(self, reason: Reason, subject: str) -> str:
        about = reason.about
        longer = "longer" if about["mean_difference"] > 0 else "shorter"
        if about["state"] == FAILED:
            return (
                f"{subject}'s answers are {longer}, and the judge prefers {longer} answers. At equal length the win rate "
                f"would be {format_number(about['share_at_equal_length'], 3)}."
            )
        if about.get("lowest") is None:
            limit = "is not known"
        elif about["favours"] == "baseline":
            limit = f"may be as high as {format_number(min(about['highest'], 1.0), 3)}"
        else:
            limit = f"may be as low as {format_number(max(about['lowest'], 0.0), 3)}"
        return (
            f"{subject}'s answers are {longer}, and the effect of length on the judge is not known well enough. At equal "
            f"length the win rate {limit}."
        )


GATE_CHECK = _LengthOfGate(
    name="length",
    title="Length",
    accepted="lower bound at equal length above 1/2 minus the margin",
    number=70,
    is_caution_of_fail=True,
)


def check_length_of_claim(
    points: Array,
    difference: Array,
    clusters: Array,
    *,
    margin: float,
    alpha: float,
    mean_length: float,
    is_of_fail: bool = False,
) -> Check:
    """Check whether the judge's preference for length could by itself produce the pass, or the fail.

    The bonus is what the candidate's lengths add to its share: the regression of the points on tanh(difference /
    scale), times the mean of that. The check passes if the lower bound of the share less the bonus, the share at equal
    length, is above 1/2 - margin. It fails if the upper bound is not. A mean difference of under 5% of the baseline's
    mean length passes: no such difference is known to move a judge by a margin. The check of a fail passes if the
    upper bound is below 1/2 and the candidate's answer is not the shorter one on 5% of the prompts: otherwise equal
    length is extrapolated. It fails if the lower bound is not below 1/2.

    Parameters
    ----------
    points : Array, shape (n,)
        Of the candidate on the prompts with valid verdicts, as they count in the lower bound.
    difference : Array, shape (n,)
        Of the lengths of candidate and baseline, in characters.
    clusters : Array, shape (n,)
        The group of each prompt.
    margin : float
        The loss that is tolerated, as share of points.
    alpha : float
        Level of the bounds.
    mean_length : float
        Of the baseline's answers, in characters.
    is_of_fail : bool, default False
        Whether the claim is that the candidate is worse.

    Returns
    -------
    Check
        Its value is the bonus, with a 95% interval that is None if length cannot be told apart from the candidate.
    """
    scale = float(np.sqrt((difference**2).mean())) if len(difference) else 0.0
    if not scale:
        state = PASSED if len(difference) else NOT_DONE
        return Check(name=GATE_CHECK.name, state=state, value=0.0, low=0.0, high=0.0)
    x = np.tanh(difference / scale)
    share, mean_x = float(points.mean()), float(x.mean())
    about = {"share": share, "mean_difference": float(difference.mean())}
    centered_x = x - mean_x
    spread = float(centered_x @ centered_x)
    _, group = np.unique(clusters, return_inverse=True)
    n_groups = int(group.max()) + 1
    is_small = (
        abs(float(difference.mean())) < MIN_RELATIVE_LENGTH_DIFFERENCE * mean_length
    )
    if spread < 1e-9 * len(x) or n_groups < 3:
        state = PASSED if is_small else CANNOT_TELL
        return Check(name=GATE_CHECK.name, state=state, about=about)
    slope = float(centered_x @ points) / spread
    residual = points - share - slope * centered_x
    bonus, df = slope * mean_x, n_groups - 2

    def error(weights: Array) -> float:
        sums = np.bincount(group, weights * residual)
        return math.sqrt(float(sums @ sums) * n_groups / df)

    bonus_weights = mean_x * centered_x / spread
    half_width = error(bonus_weights) * float(
        scipy.special.stdtrit(df, 0.5 + _CONFIDENCE_LEVEL / 2)
    )
    at_equal_length = share - bonus
    reach = error(1.0 / len(x) - bonus_weights) * float(
        scipy.special.stdtrit(df, 1 - alpha)
    )
    lowest, highest = at_equal_length - reach, at_equal_length + reach
    is_shown, is_refuted = lowest > 0.5 - margin, highest <= 0.5 - margin
    if is_of_fail:
        not_shorter = float((difference >= 0).mean())
        is_shown = highest < 0.5 and not_shorter >= MIN_SUPPORT
        is_refuted = lowest >= 0.5
    state = PASSED if is_shown or is_small else FAILED if is_refuted else CANNOT_TELL
    low, high = bonus - half_width, bonus + half_width
    about |= {
        "share_at_equal_length": at_equal_length,
        "lowest": lowest,
        "highest": highest,
    }
    return Check(
        name=GATE_CHECK.name, state=state, value=bonus, low=low, high=high, about=about
    )
