"""What the oracle experiment says of policies, of their calibration and of what was collected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Effect
from elo_exp.formatting import format_count, format_number
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import (
    BORROWED,
    Analysis,
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
    """How the status of an estimate is shown, and counted: "2 with caution"."""

    counted_as: str


STATE_ROWS = index_by_state(
    [
        EstimateStateRow(
            state=REPORT, chip="Report", tone="supported", counted_as="reported"
        ),
        EstimateStateRow(
            state=CAUTION, chip="Caution", tone="caution", counted_as="with caution"
        ),
        EstimateStateRow(
            state=REFUSE, chip="Refused", tone="open", counted_as="refused"
        ),
    ]
)

SIMULATED_NOTE = (
    "Simulated policies: known distributions over six answers to each prompt; judge and oracle compare words. It shows "
    "that the machinery works and says nothing about models."
)


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def describe_policy(conclusion: Conclusion, digits: int) -> str:
    """Say what may be said of one policy: its mean label, that with a reason, or no number."""
    reasons = "; ".join(str(reason.about["words"]) for reason in conclusion.reasons)
    effect = conclusion.effect
    if effect is None or effect.value is None:
        return f"{conclusion.subject}: nothing may be reported; {reasons}"
    assert effect.low is not None and effect.high is not None
    value = with_interval(effect.value, effect.low, effect.high, digits)
    ending = f", with caution: {reasons}" if conclusion.state == CAUTION else ""
    return f"{conclusion.subject}: {value}{ending}"


def as_row(conclusion: Conclusion, digits: int) -> dict[str, Any]:
    """Return what may be said of a policy as manifest.json has it."""
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
    """Name the best policy, where no other may be by paired differences that hold at once.

    leading  by policy, the estimate that is quoted
    """
    ranking, policies = analysis.comparison.ranking, analysis.data.policies
    digits = analysis.data.scale.decimals + 1

    def format_policy_value(policy: str) -> str:
        row = leading[policy]
        assert row.value is not None and row.ci_low is not None
        assert row.ci_high is not None
        numbers = with_interval(row.value, row.ci_low, row.ci_high, digits)
        return f"{policy} {numbers}"

    if analysis.options.compat:
        return "Estimates of cje-eval 0.3"
    if not ranking:
        return "No policy can be reported"
    best_policy = ranking[0]["policy"]
    if len(ranking) == 1:
        is_sure = leading[best_policy].status == REPORT
        ending = "" if is_sure else ", with caution"
        return f"{best_policy}:{format_policy_value(best_policy).removeprefix(best_policy)}{ending}"
    possible = analysis.comparison.next_step.possible_best
    if len(possible) > 1:
        return (
            f"No clear best policy: {' or '.join(map(format_policy_value, possible))}"
        )
    is_borrowed = leading[best_policy].rests_on == BORROWED
    text = (
        f"{best_policy} {'leads by borrowed calibration' if is_borrowed else 'is best'}"
    )
    if len(ranking) < len(policies):
        text += f" of the {len(ranking)} policies with an estimate"
    if any(row.status == CAUTION for row in leading.values()):
        text += ", with caution"
    text += f":{format_policy_value(best_policy).removeprefix(best_policy)}"
    difference = analysis.comparison.differences[0]
    numbers = with_interval(
        difference["value"], difference["low"], difference["high"], digits
    )
    return f"{text}, {numbers} above {difference['b']}"


def advice(comparison: PolicyComparison, digits: int) -> str:
    """Say which policy to take, or what to label to know."""
    if comparison.choice.state == "nobody":
        return "No policy has an estimate, and every answer is labelled. More prompts would tell."
    if comparison.choice.state == "prompts":
        return _advise_more_prompts(comparison)
    if comparison.next_step.decision_ready:
        return _advise_choice(comparison, digits)
    return _advise_labels(comparison)


def _advise_more_prompts(comparison: PolicyComparison) -> str:
    other_policies = comparison.choice.others
    if not other_policies:
        return "Nothing to choose: there is no other policy."
    verb = "has" if len(other_policies) == 1 else "have"
    return (
        f"No choice: {', '.join(other_policies)} {verb} too few answers for an estimate that rests on its own labels, "
        "and every answer is labelled. More prompts would tell."
    )


def _advise_choice(comparison: PolicyComparison, digits: int) -> str:
    choice, step = comparison.choice, comparison.next_step
    lost, tolerance = (
        format_number(x, digits) for x in (step.most_lost, step.tolerance)
    )
    if choice.state == "best":
        reason = "it is best"
    elif choice.state == "near":
        reason = f"at most {lost} below the best (tolerance {tolerance})"
    else:
        reason = (
            f"every answer is labelled; it is at most {lost} below the best. More prompts would "
            "tell more"
        )
    return f"Take {choice.subject}: {reason}."


def _advise_labels(comparison: PolicyComparison) -> str:
    choice, step = comparison.choice, comparison.next_step
    n, now = format_count(step.n_labels), format_count(comparison.n_labels_now)
    policies = ", ".join(step.policies)
    if choice.state == "labels":
        return (
            f"Label {n} answers each of {policies} to the same prompts ({now} now): 4 in 5 such "
            "rounds end the search."
        )
    if choice.reasons:
        selected = ", ".join(choice.reasons[0].about["policies"])
        return (
            f"Label a random sample of the answers of {selected}, or give the chance of each answer as "
            "label_chance: the labels that there are were not chosen at random."
        )
    reason = "without labels of their own nothing can be decided about them"
    if comparison.n_labels_now >= MIN_OWN_LABELS:
        reason = f"{now} are too few for an estimate"
    return f"Label {n} or more answers of {policies}: {reason}."


def transport(audit: TransportAudit, *, margin: float, digits: int) -> str:
    """Say whether a score means the same for a policy, within a margin."""
    if audit.status == NOT_DONE:
        return "not done, fewer than 20 of its answers are labelled"
    assert audit.residual is not None and audit.half_width is not None
    residual = f"{audit.residual:+.{digits}f} ± {audit.half_width:.{digits}f}"
    if audit.status == PASSED:
        return f"passed, within {margin:g} ({residual})"
    if audit.status == FAILED:
        return f"failed, off by {residual}; only its own labels are used"
    if audit.is_off:
        return f"cannot tell, off by {residual}; more than {margin:g} or less is not settled"
    return f"cannot tell, {audit.n} of about {format_count(audit.n_needed)} labels needed ({residual})"


def compare_with_truth(
    estimates: Sequence[PolicyEstimate], truth: Mapping[str, Truth], digits: int
) -> str | None:
    """Say how near headlines came to a known truth, by status; None where none is known."""
    parts = []
    for state, state_row in STATE_ROWS.items():
        known_rows = [
            (row, truth[row.policy].mean)
            for row in estimates
            if row.headline and row.policy in truth and row.status == state
        ]
        if not known_rows:
            continue
        line = f"{len(known_rows)} {state_row.counted_as}"
        if errors := [
            abs(row.value - mean) for row, mean in known_rows if row.value is not None
        ]:
            n_covered = sum(
                row.ci_low <= mean <= row.ci_high
                for row, mean in known_rows
                if row.ci_low is not None and row.ci_high is not None
            )
            line += f", at most {max(errors):.{digits}f} off it, {n_covered} of their intervals hold it"
        parts.append(line)
    return f"Truth known: {'; '.join(parts)}." if parts else None


def describe_logprob_check(check: Mapping[str, Any]) -> str:
    """Say how far log-probabilities at generation are from those by teacher forcing."""
    return (
        f"log-probabilities as drawn and as forced: {format_count(check['n_checked'])} compared, "
        f"{check['mean_difference']:.2g} nats a token apart"
    )
