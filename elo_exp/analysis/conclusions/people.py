"""What people's labels say of a judge's leads: confirmed, contradicted or open."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.ratings.games import MIN_ANNOTATORS

# The first that applies
STATES = ("contradicted", "confirmed", "open")
_UNDONE = ("leads", "caution", "unchecked", "words")  # states that name a first


def of_lead(
    lead: Difference,
    people: Difference | None,
    *,
    n_more: int | None,
    scope: Scope,
    n_annotators: int = MIN_ANNOTATORS,
) -> Conclusion:
    """Return what people say of a lead of the judge, by the table of docs/people.md.

    contradicted  people have the other one ahead, by Holm's test over all pairs of their labels
    confirmed     people have the same one ahead, by the same test
    open          all else; the reason is `few_labels`, whose value is `n_more`, or `annotators`, whose value is
                  `n_annotators`: one or two people do not speak for others

    The effect is people's, of the judge's first over its second.

    people  the difference by labels alone; None where they do not link the two
    n_more  labels more that would decide it; 0: so many would have shown it; None: not known
    """
    effect, state = None, "open"
    if people is not None:
        is_same = people.higher == lead.higher
        effect = _effect(people, is_same=is_same)
        if people.significant and n_annotators >= MIN_ANNOTATORS:
            state = "confirmed" if is_same else "contradicted"
    reason = Reason(name="few_labels", value=n_more)
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


def _effect(people: Difference, *, is_same: bool) -> Effect:
    """People's difference, of the judge's first over its second."""
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


def of_judge(
    row: Mapping[str, Any], leads: Sequence[Conclusion], *, kind: str
) -> Conclusion | None:
    """Return the judge's conclusion after a lead of its first was contradicted; None where none was.

    Nobody leads then: the state is `caution`, or the weaker `unchecked` or `words` that it was, and the
    first reason is `people`.

    row    the conclusion as ratings.json has it
    leads  of its dimension
    kind   of the judge
    """
    against = [
        lead
        for lead in leads
        if lead.state == "contradicted" and lead.subject == row.get("first")
    ]
    if row["state"] not in _UNDONE or not against:
        return None
    worst = min(against, key=_by_people)
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
    is_words = row["state"] == "words"
    value = None if effect.value is None else -effect.value
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
        reasons=(Reason(name="people", value=value, about=about, judges=not is_words),),
        is_checked=row["state"] != "unchecked",
        scope=Scope(
            judge=row.get("judge"),
            kind=kind,
            dimension=worst.scope.dimension,
            n_prompts=row.get("n_prompts"),
        ),
    )


def _by_people(lead: Conclusion) -> float:
    """The difference that people see, or the end of it that is known."""
    effect = lead.effect
    assert effect is not None
    return min(x for x in (effect.value, effect.low, effect.high) if x is not None)
