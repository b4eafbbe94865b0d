"""Conclusions from people's labels about a judge's leads: confirmed, contradicted or open."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Adjustment, Conclusion, Effect, Reason, Scope
from elo_exp.analysis.human_agreement import is_at_chance
from elo_exp.ratings.games import MIN_ANNOTATORS

# The first that applies
STATES = ("contradicted", "confirmed", "open")
_STATES_NAMING_A_LEADER = ("leads", "caution", "unchecked", "words")


def conclude_lead(
    lead: Difference,
    people: Difference | None,
    *,
    n_more: int | None,
    scope: Scope,
    n_annotators: int = MIN_ANNOTATORS,
    n_skipped: int = 0,
) -> Conclusion:
    """Return the state of a lead of the judge by people's labels, by the table of docs/people.md.

    contradicted  people have the other entrant ahead, by Holm's test over all pairs of their labels
    confirmed     people have the same entrant ahead, by the same test
    open          otherwise. The reason is `few_labels` with the value `n_more`; `annotators` with the value
                  `n_annotators`, because one or two people do not speak for others; or `skipped` with `n_skipped`

    The effect is the difference by people between the judge's first and second entrant.

    people     the difference by labels alone; None if no labels connect the two
    n_skipped  skipped comparisons, if the difference is significant only without them
    n_more     additional labels that would decide; 0: the present number would have shown it; None: not known
    """
    effect, state = None, "open"
    if people is not None:
        is_same = people.higher == lead.higher
        effect = _make_effect(people, is_same=is_same)
        if people.significant and n_annotators >= MIN_ANNOTATORS:
            state = "confirmed" if is_same else "contradicted"
    reason = Reason(name="few_labels", value=n_more)
    if n_skipped:
        reason = Reason(name="skipped", value=float(n_skipped))
    if n_annotators < MIN_ANNOTATORS:
        reason = Reason(name="annotators", value=float(n_annotators))
    is_open = state == "open"
    return Conclusion(
        state=state,
        subject=lead.higher,
        rival=lead.lower,
        effect=effect,
        reasons=(reason,) if is_open else (),
        scope=dataclasses.replace(scope, dimension=lead.dimension),
    )


def _make_effect(people: Difference, *, is_same: bool) -> Effect:
    """Return the difference by people between the judge's leader and its second entrant."""
    value, low, high = people.difference, people.ci_low, people.ci_high
    if not is_same:
        value, low, high = (None if end is None else -end for end in (value, high, low))
    return Effect(
        value=value,
        low=low,
        high=high,
        p_value=people.p_holm,
        one_sided=people.one_sided,
        n_prompts=people.n_prompts,
        significant=people.significant,
    )


def conclude_judge(
    row: Mapping[str, Any],
    leads: Sequence[Conclusion],
    *,
    kind: str,
    agreement: Mapping[str, Any] | None = None,
    n_hiding: int = 0,
) -> Conclusion | None:
    """Return the judge's conclusion corrected by people's labels; None if they do not speak against it.

    They speak against it if they contradict a lead of its top entrant, if its agreement with people may be chance, or
    if either could be true on the skipped comparisons.

    Then no entrant leads: the state becomes `caution`, or stays the weaker `unchecked` or `words`, and the
    first reason is `people`.

    row        the conclusion as in ratings.json
    leads      the leads on its dimension
    kind       kind of the judge
    agreement  of the judge with people, a row of `agreement.kappa`
    n_hiding   skipped comparisons, if they may hide that people disagree
    """
    contradicted_leads = [
        lead
        for lead in leads
        if lead.state == "contradicted" and lead.subject == row.get("first")
    ]
    is_chance = agreement is not None and bool(is_at_chance(agreement))
    if row["state"] not in _STATES_NAMING_A_LEADER or not (
        contradicted_leads or is_chance or n_hiding
    ):
        return None
    is_words = row["state"] == "words"
    reasons = []
    if contradicted_leads:
        reasons.append(
            _make_contradiction_reason(
                min(contradicted_leads, key=_difference_by_people), is_words=is_words
            )
        )
    if agreement is not None and is_chance:
        about = {
            name: agreement[name] for name in ("ci_low", "ci_high", "n_comparisons")
        }
        reasons.append(
            Reason(
                name="chance",
                value=agreement["kappa"],
                about=about,
                judges=not is_words,
            )
        )
    if not reasons:
        skipped_reason = Reason(
            name="skipped", value=float(n_hiding), judges=not is_words
        )
        reasons.append(skipped_reason)
    dimension = leads[0].scope.dimension if leads else None
    return Conclusion(
        state=row["state"] if row["state"] in ("words", "unchecked") else "caution",
        subject=row["first"],
        rival=row.get("second"),
        effect=Effect(
            value=row.get("difference"),
            low=row.get("ci_low"),
            high=row.get("ci_high"),
            p_value=row.get("p_holm"),
            one_sided=bool(row.get("one_sided")),
            n_prompts=row.get("n_prompts"),
        ),
        reasons=tuple(reasons),
        is_checked=row["state"] != "unchecked",
        scope=Scope(
            judge=row.get("judge"),
            kind=kind,
            dimension=dimension,
            n_prompts=row.get("n_prompts"),
        ),
        adjustment=Adjustment.of(row),
    )


def _make_contradiction_reason(worst: Conclusion, *, is_words: bool) -> Reason:
    effect = worst.effect
    assert effect is not None
    about = {
        "rival": worst.rival,
        "low": None if effect.high is None else -effect.high,
        "high": None if effect.low is None else -effect.low,
        "p_value": effect.p_value,
        "one_sided": effect.one_sided,
        "n_prompts": effect.n_prompts,
    }
    value = None if effect.value is None else -effect.value
    return Reason(name="people", value=value, about=about, judges=not is_words)


def _difference_by_people(lead: Conclusion) -> float:
    """Return the difference by people, or the known end of its interval."""
    effect = lead.effect
    assert effect is not None
    return min(x for x in (effect.value, effect.low, effect.high) if x is not None)
