"""The headline of a policy: its direct estimate, moved towards one that does not borrow.

The direct estimate takes the logging policy's calibration as its own, and is biased where a score
means something else for the policy. Two estimates do not borrow: one corrected by labels of the
policy's own answers, one by logged labels under the raw importance weights. They are noisier, so
the headline moves towards them by what their distance shows beyond noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elo_exp.oracle import weights
from elo_exp.oracle.diagnostics import MIN_AUDIT, MIN_LABELS, PolicyDiagnostics
from elo_exp.oracle.evidence import (
    FRESH_DRAWS,
    RAW_WEIGHTS,
    Estimate,
    clustered_error,
)
from elo_exp.oracle.gates import REFUSE, STATUSES, decide, raw_weight_findings
from elo_exp.ratings.leaderboard import t_quantile

OWN, WEIGHTS, BORROWED = "own labels", "raw weights", "borrowed calibration"
REQUIRES = {  # what a headline that rests on this requires, as an estimator does
    OWN: (FRESH_DRAWS,),
    WEIGHTS: (RAW_WEIGHTS, FRESH_DRAWS),
    BORROWED: (FRESH_DRAWS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """The headline's estimate.

    anchor    what it rests on alone, for differences between policies
    rests_on  own labels, raw weights or borrowed calibration
    why       what would have been needed, where the calibration is borrowed
    """

    estimate: Estimate
    anchor: Estimate
    rests_on: str
    why: str = ""


def anchored(checked: PolicyDiagnostics) -> Anchored:
    """Move the borrowed estimate d towards the anchor a: d + share (a - d).

    The share is D^2 / (D^2 + s^2) for D = a - d of paired standard error s. The squared half-width
    mixes those of d and a, with the part kappa of d: 1 - share for raw weights, half of that for
    own labels. Where the policy's scores are not among those of the labelled answers, own labels
    stand alone, and so they do without logged answers, where the curve is through them, too. Raises
    NotEstimableError without fresh draws or labels at their scores.
    """
    evidence = checked.evidence
    found, why = _anchors(checked)
    is_alone = checked.overlap.refuses or evidence.data.logging_policy is None
    if is_alone and OWN in found:
        return Anchored(estimate=found[OWN], anchor=found[OWN], rests_on=OWN)
    base = evidence.borrowed
    if evidence.is_logging_policy:
        return Anchored(estimate=base, anchor=base, rests_on=OWN)
    if not found:
        return Anchored(estimate=base, anchor=base, rests_on=BORROWED, why=why)

    def preference(name: str) -> tuple[int, float]:
        status, _ = decide(checked, found[name], REQUIRES[name])
        return STATUSES.index(status), found[name].std_error

    rests_on = min(found, key=preference)
    anchor = found[rests_on]
    paired, _ = clustered_error(
        anchor.influence - base.influence,
        (anchor.influence != 0) | (base.influence != 0),
    )
    distance = anchor.value - base.value
    share = distance**2 / (distance**2 + paired**2) if distance else 0.0
    kappa = (1 - share) / (2 if rests_on == OWN else 1)
    squared = kappa * base.half_width**2 + (1 - kappa) * anchor.half_width**2
    std_error = squared**0.5 / float(t_quantile(anchor.degrees_of_freedom))
    from_labels = anchor.std_error_labels * std_error / anchor.std_error
    estimate = replace(
        anchor,
        value=base.value + share * distance,
        std_error=std_error,
        std_error_labels=from_labels,
    )
    return Anchored(estimate=estimate, anchor=anchor, rests_on=rests_on)


def _anchors(checked: PolicyDiagnostics) -> tuple[dict[str, Estimate], str]:
    """The estimates that do not borrow, by what they rest on, and why others are missing."""
    evidence, found = checked.evidence, {}
    (own, weight), labelled = evidence.own, evidence.logged.labelled
    if (n_own := len(own.rows)) >= MIN_AUDIT:
        found[OWN] = evidence.corrected_mean(own, weight, n_own=n_own)
    why = f"{n_own} of its own answers are labelled ({MIN_AUDIT} needed)"
    if checked.weights is None or not labelled.any():
        return found, f"{why}, and there are no weights"
    raw = evidence.cut[labelled]
    effective = weights.effective_sample_size(raw)
    refused = [
        reason
        for status, reason in raw_weight_findings(checked.weights)
        if status == REFUSE
    ]
    if effective >= MIN_LABELS and not refused:
        at = evidence.calibration(evidence.logged[labelled])
        found[WEIGHTS] = evidence.corrected_mean(at, raw)
    elif refused:
        why += f", and the logs tell too little ({refused[0]})"
    else:
        why += (
            f", and the logs tell too little (weights come to {effective:.0f} of "
            f"{len(raw)} labels, {MIN_LABELS} needed)"
        )
    return found, why
