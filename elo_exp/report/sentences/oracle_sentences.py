"""The sentences of the oracle experiment: on policies, their calibration and the collected data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Effect
from elo_exp.formatting import format_count, format_interval, format_number, join_names
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import (
    BORROWED,
    OWN,
    WEIGHTS,
    Analysis,
    LabelCount,
    PolicyComparison,
    PolicyEstimate,
)
from elo_exp.oracle.gates import (
    CAUTION,
    MIN_OWN_LABELS,
    REFUSE,
    REPORT,
    TransportAudit,
)
from elo_exp.oracle.label_sampling import FAILED, NOT_DONE, PASSED
from elo_exp.report.sentences.scope_line import describe_oracle_scope
from elo_exp.report.sentences.state_rows import StateRow, index_by_state


@dataclass(frozen=True, kw_only=True)
class EstimateStateRow(StateRow):
    """How the status of an estimate is shown and counted: "2 reported with caution"."""

    counted_as: str


STATE_ROWS = index_by_state(
    [
        EstimateStateRow(
            state=REPORT, chip="Report", tone="supported", counted_as="reported"
        ),
        EstimateStateRow(
            state=CAUTION,
            chip="Caution",
            tone="caution",
            counted_as="reported with caution",
        ),
        EstimateStateRow(
            state=REFUSE, chip="Refused", tone="open", counted_as="refused"
        ),
    ]
)

SIMULATED_NOTE = (
    "This is a demonstration with simulated policies. Each policy chooses one of six answers to a prompt with known "
    "probabilities, and judge and oracle only compare words. The result says nothing about real models."
)

# What an estimate rests on, as readers see it; files have the keys
_TEXT_BY_BASIS = {
    OWN: "target-policy labels",
    WEIGHTS: "importance weights",
    BORROWED: "borrowed calibration",
}


def describe_basis(rests_on: str) -> str:
    """Return what an estimate rests on, in words; empty if it rests on nothing special."""
    return _TEXT_BY_BASIS.get(rests_on, rests_on)


def describe_labels(count: LabelCount, n_calibrating: int) -> str:
    """Count the labels of one policy's own answers, and the labels of the calibration."""
    return f"labels: {format_count(count.n_labelled)} of its own answers, {format_count(n_calibrating)} in the calibration"


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def describe_policy(conclusion: Conclusion, digits: int) -> str:
    """Return the conclusion on one policy: its mean label, perhaps with a reason for caution, or no number."""
    reasons = "; ".join(str(reason.about["words"]) for reason in conclusion.reasons)
    effect = conclusion.effect
    if effect is None or effect.value is None:
        return f"{conclusion.subject}: no estimate can be reported. Reason: {reasons}"
    assert effect.low is not None and effect.high is not None
    value = with_interval(effect.value, effect.low, effect.high, digits)
    ending = f". Caution: {reasons}" if conclusion.state == CAUTION else ""
    return f"{conclusion.subject}: {value}{ending}"


def as_row(conclusion: Conclusion, digits: int) -> dict[str, Any]:
    """Return the conclusion on a policy as manifest.json has it."""
    effect = conclusion.effect or Effect(value=None)
    return {
        "state": conclusion.state,
        "sentence": describe_policy(conclusion, digits),
        "reasons": [
            {"name": reason.name, "value": reason.value, "words": reason.about["words"]}
            for reason in conclusion.reasons
        ],
        "value": effect.value,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "n_prompts": conclusion.scope.n_prompts,
        "judge": conclusion.scope.judge,
        "whose": describe_oracle_scope(str(conclusion.scope.judge)),
    }


def with_interval(value: float, low: float, high: float, digits: int) -> str:
    """Return "0.526 [0.485, 0.566]"."""
    return f"{format_number(value, digits)} [{format_number(low, digits)}, {format_number(high, digits)}]"


def title(analysis: Analysis, leading: Mapping[str, PolicyEstimate]) -> str:
    """Name the best policy, if the simultaneous intervals of paired differences exclude all others.

    leading  by policy, the estimate that is quoted
    """
    ranking, policies = analysis.comparison.ranking, analysis.data.policies
    if analysis.options.compat:
        return "Estimates of cje-eval 0.3"
    if not ranking:
        return "No policy can be reported"
    best_policy = ranking[0]["policy"]
    if len(ranking) == 1:
        is_sure = leading[best_policy].status == REPORT
        ending = "" if is_sure else ", with caution"
        return f"Only {best_policy} has an estimate{ending}"
    possible = analysis.comparison.next_step.possible_best
    if len(possible) > 1:
        names = f"{', '.join(possible[:-1])} or {possible[-1]}"
        return f"No clear best policy: {names} may be best"
    is_borrowed = leading[best_policy].rests_on == BORROWED
    text = f"{best_policy} {'leads' if is_borrowed else 'is the best'}"
    if len(ranking) < len(policies):
        text += f" of the {len(ranking)} policies with an estimate"
    elif not is_borrowed:
        text += " policy"
    if is_borrowed:
        text += ", by a borrowed calibration"
    if any(row.status == CAUTION for row in leading.values()):
        text += ", with caution"
    return text


def describe_finding(analysis: Analysis, leading: Mapping[str, PolicyEstimate]) -> str:
    """Return the numbers behind the title; empty without a ranking.

    leading  by policy, the estimate that is quoted
    """
    comparison, digits = analysis.comparison, analysis.data.scale.decimals + 1
    if analysis.options.compat or not comparison.ranking:
        return ""
    sentences = []
    for policy in comparison.next_step.possible_best or (
        comparison.ranking[0]["policy"],
    ):
        row = leading[policy]
        interval = format_interval(row.ci_low, row.ci_high, digits)
        sentences.append(
            f"{policy} has a mean label of {format_number(row.value, digits)} (95% interval {interval})."
        )
    if len(sentences) == 1 and comparison.differences:
        difference = comparison.differences[0]
        interval = format_interval(difference["low"], difference["high"], digits)
        sentences.append(
            f"It is {format_number(difference['value'], digits)} ({interval}) above {difference['b']}. The interval of "
            "the difference holds together with those of all other differences."
        )
    return " ".join(sentences)


def advice(comparison: PolicyComparison, digits: int) -> str:
    """Say which policy to choose, or which answers to label first."""
    if comparison.choice.state == "nobody":
        return (
            "No policy has an estimate, and every answer is labelled. Use more prompts."
        )
    if comparison.choice.state == "prompts":
        return _advise_more_prompts(comparison)
    if comparison.next_step.decision_ready:
        return _advise_choice(comparison, digits)
    return _advise_labels(comparison)


def _advise_more_prompts(comparison: PolicyComparison) -> str:
    other_policies = comparison.choice.others
    if not other_policies:
        return "There is nothing to choose, because there is no other policy."
    verb = "has" if len(other_policies) == 1 else "have"
    return (
        f"No choice is possible: {_list_all(other_policies)} {verb} too few answers for an estimate by target-policy "
        "labels, and every answer is labelled. Use more prompts."
    )


def _advise_choice(comparison: PolicyComparison, digits: int) -> str:
    choice, step = comparison.choice, comparison.next_step
    lost, tolerance = (
        format_number(x, digits) for x in (step.most_lost, step.tolerance)
    )
    if choice.state == "best":
        reason = "it is the best."
    elif choice.state == "near":
        reason = f"it is at most {lost} below the best (tolerance {tolerance})."
    else:
        reason = (
            f"it is at most {lost} below the best, and every answer is labelled. To know more, use more "
            "prompts."
        )
    return f"Choose {choice.subject}: {reason}"


def _advise_labels(comparison: PolicyComparison) -> str:
    choice, step = comparison.choice, comparison.next_step
    n, now = format_count(step.n_labels), format_count(comparison.n_labels_now)
    policies = _list_all(step.policies)
    if choice.state == "labels":
        return (
            f"Label {n} answers of each of {policies}, on the same prompts ({now} are labelled now). In 4 of 5 cases, "
            "this is enough to choose."
        )
    if choice.reasons:
        selected = _list_all(choice.reasons[0].about["policies"])
        return (
            f"Label a random sample of the answers of {selected}. The present labels were not chosen at random. If you "
            "know the chance of each answer to be labelled, give it as label_chance."
        )
    reason = "Without target-policy labels, nothing can be decided about a policy."
    if comparison.n_labels_now >= MIN_OWN_LABELS:
        reason = f"The {now} labels of now are too few for an estimate."
    return f"Label {n} or more answers of {policies}. {reason}"


def _list_all(policies: Sequence[str]) -> str:
    return join_names(policies, len(policies))


def transport(audit: TransportAudit, *, margin: float, digits: int) -> str:
    """Say whether the calibration holds for a policy, within a margin."""
    if audit.status == NOT_DONE:
        return f"not done (fewer than {MIN_OWN_LABELS} of its answers are labelled)"
    assert audit.residual is not None and audit.half_width is not None
    residual = (
        f"mean error {format_number(audit.residual, digits, sign=True)} ± "
        f"{format_number(audit.half_width, digits)}"
    )
    if audit.status == PASSED:
        return f"passed ({residual}, limit {margin:g})"
    if audit.status == FAILED:
        return f"failed ({residual}, limit {margin:g}), so only target-policy labels are used"
    if audit.is_off:
        return f"cannot tell ({residual}, which may be above or below the limit of {margin:g})"
    return f"cannot tell ({residual}, {audit.n} of about {format_count(audit.n_needed)} needed labels)"


def compare_with_truth(
    estimates: Sequence[PolicyEstimate], truth: Mapping[str, Truth], digits: int
) -> str | None:
    """Compare reported estimates with a known truth, by status; None if no truth is known."""
    parts = []
    for state, state_row in STATE_ROWS.items():
        known_rows = [
            (row, truth[row.policy].mean)
            for row in estimates
            if row.headline and row.policy in truth and row.status == state
        ]
        if not known_rows:
            continue
        n = len(known_rows)
        line = f"{n} {state_row.counted_as}"
        if errors := [
            abs(row.value - mean) for row, mean in known_rows if row.value is not None
        ]:
            n_covered = sum(
                row.ci_low <= mean <= row.ci_high
                for row, mean in known_rows
                if row.ci_low is not None and row.ci_high is not None
            )
            line += f" (largest error {max(errors):.{digits}f}, truth inside the interval in {n_covered} of {n})"
        parts.append(line)
    return f"Estimates against the known truth: {', '.join(parts)}." if parts else None


def describe_logprob_check(check: Mapping[str, Any]) -> str:
    """Compare log-probabilities from generation with those from teacher forcing."""
    return (
        f"log-probabilities: generation and teacher forcing differ by {check['mean_difference']:.2g} nats per token, on "
        f"average over {format_count(check['n_checked'])} answers"
    )
