"""Conclusions about policies by calibrated scores: about each policy, and about the choice between them.

The state of a policy is the status of its reported estimate: `report`, `caution` or `refuse`. States of the choice:

nobody    no policy has an estimate
unknown   a policy has too few target-policy labels, so nothing can be decided about it
prompts   as unknown, but every answer of such a policy is labelled; or there is no second policy
labels    a policy other than the top one may be better by more than the tolerance: label more
labelled  another policy may be better by more than the tolerance, and every answer is labelled
near      another policy may be better, by no more than the tolerance
best      no other policy may be better
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope

# Weakest first
POLICY_STATUSES = ("refuse", "caution", "report")
# States of the choice, weakest first
CHOICES = ("nobody", "unknown", "prompts", "labels", "labelled", "near", "best")
DECIDED = ("labelled", "near", "best")


def conclude_policy(
    policy: str,
    status: str,
    effect: Effect | None,
    gates: Iterable[tuple[str, str]],
    scope: Scope,
) -> Conclusion:
    """Conclude about the mean label of one policy.

    Parameters
    ----------
    status : {"report", "caution", "refuse"}
        The worst status that a gate calls for.
    effect : Effect or None
        The mean label, in units of the scale, and its 95% interval; None if it is refused.
    gates : iterable of (name, words)
        The gates that call for the status.
    """
    reasons = tuple(Reason(name=name, about={"words": words}) for name, words in gates)
    return Conclusion(
        state=status,
        subject=policy,
        effect=None if status == "refuse" else effect,
        reasons=reasons,
        scope=scope,
    )


def conclude_choice(
    ranked: Sequence[str],
    *,
    possible_best: Sequence[str],
    unknown: Sequence[str],
    untold: Sequence[str],
    selected: Sequence[str] = (),
    most_lost: float | None,
    tolerance: float,
    is_labelled: bool,
    scope: Scope,
) -> Conclusion:
    """Conclude which policy to choose, or that more labels are needed.

    Parameters
    ----------
    ranked : sequence of str
        Policies with an estimate, the highest value first.
    possible_best : sequence of str
        Ranked policies that no other policy is above, by simultaneous intervals.
    unknown : sequence of str
        Policies that may be better than all of these and have answers to label.
    untold : sequence of str
        Policies that may be better than all of these, with every answer labelled.
    selected : sequence of str
        Policies without an estimate, because their labels are not a random sample.
    most_lost : float or None
        Upper 95% bound of the distance of the top policy to the best, in units of the scale (Hsu 1984); None if
        there is no second policy with an estimate.
    tolerance : float
        A loss that does not matter, in the same units.
    is_labelled : bool
        Whether every answer of all policies that may be best is labelled.

    References
    ----------
    .. [1] J. C. Hsu (1984), "Constrained simultaneous confidence intervals for multiple comparisons with
       the best", Annals of Statistics 12(3), 1136-1144.
    """
    rivals = tuple(name for name in possible_best if name != ranked[0])
    effect = None
    if most_lost is not None:
        effect = Effect(value=most_lost, low=0.0, high=most_lost, unit="score")
    conclusion = Conclusion(
        state="nobody",
        subject=ranked[0] if ranked else None,
        rival=rivals[0] if rivals else None,
        effect=effect,
        others=tuple(unknown) or tuple(untold) or rivals,
        reasons=(Reason(name="sample", about={"policies": list(selected)}),)
        * bool(selected),
        scope=scope,
    )
    if unknown:
        return replace(conclusion, state="unknown")
    if not ranked:
        return conclusion
    if untold or most_lost is None:
        return replace(conclusion, state="prompts")
    if most_lost <= 0.0:
        return replace(conclusion, state="best")
    if most_lost <= tolerance:
        return replace(conclusion, state="near")
    return replace(conclusion, state="labelled" if is_labelled else "labels")
