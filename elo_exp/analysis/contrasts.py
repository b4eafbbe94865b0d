"""From the verdicts on probes' questions to one contrast a prompt.

A measure is a probe, one form of a probe that has a control, a rung of the ladder, or what all
questions tell together: whether the first shown is preferred (position), whether a judge agrees with
itself (retest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from elo_exp.analysis.audit import Contrasts, Kind
from elo_exp.data.pairing import outcome, repeated
from elo_exp.probes import Question
from elo_exp.records import Comparison, JudgeRequest, Judgment

PARAPHRASE = "rubric: "  # before the name of its file
REPHRASED = 2  # the repeat that is asked under a paraphrase
SAME = 0.9  # the least share of equal verdicts that is ok, on a repeat and under a paraphrase
_BY_LETTER = {"A": 1.0, "TIE": 0.5, "B": 0.0}
_BY_SIDE = {"a": 1.0, "tie": 0.5, "b": 0.0}

Value = Callable[[Judgment], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, of which x is the comparison's first response, and its judgment, once there is one."""

    probe: str
    kind: Kind
    bound: float
    question: Question
    comparison: Comparison
    queries: Sequence[JudgeRequest]
    judgment: Judgment | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """value  what a valid judgment tells, from 0 to 1; None: nothing"""

    name: str
    kind: Kind
    bound: float
    asked: Sequence[Asked]
    value: Value

    def values(self) -> list[tuple[Asked, float]]:
        return [
            (one, value)
            for one in self.asked
            if one.judgment is not None
            and not one.judgment.invalid
            and (value := self.value(one.judgment)) is not None
        ]

    def contrasts(self) -> Contrasts:
        """Return the mean answer to each prompt: of a bias, less that to the control or a half."""
        found: dict[str, tuple[list[float], list[float]]] = {}
        for one, value in self.values():
            both = found.setdefault(one.comparison.prompt_id, ([], []))
            both[one.question.is_control].append(value)
        has_control = any(one.question.is_control for one in self.asked)
        right = 0.5 if self.kind == "bias" else 0.0
        values = [
            fmean(answers) - (fmean(controls) if controls else right)
            for answers, controls in found.values()
            if answers and (controls or not has_control)
        ]
        return Contrasts(
            probe=self.name, kind=self.kind, values=np.array(values), bound=self.bound
        )


def measures(asked: Sequence[Asked], delta: float) -> list[Measure]:
    """Return what can be measured on one dimension, whether it has been judged or not."""
    groups: dict[str, list[Asked]] = {}
    for one in asked:
        groups.setdefault(one.probe, []).append(one)
    for name, own in list(groups.items()):
        controls = [one for one in own if one.question.is_control]
        is_ladder = own[0].kind == "floor" and not name.startswith(PARAPHRASE)
        for one in own:
            if (controls or is_ladder) and not one.question.is_control:
                form = f"{name}: {one.question.form}"
                groups.setdefault(form, [*controls]).append(one)
    found = [
        Measure(name, own[0].kind, own[0].bound, own, _value(own[0]))
        for name, own in groups.items()
    ]
    plain = [one for one in asked if not one.question.is_control]
    in_both = [one for one in plain if one.question.both_orders]
    again = [one for one in plain if any(query.repeat == 1 for query in one.queries)]
    found.append(Measure("position", "bias", delta, in_both, _first_shown))
    found.append(Measure("retest", "floor", SAME, again, _same))
    return [measure for measure in found if measure.asked]


# What a judgment tells


def _value(one: Asked) -> Value:
    if one.probe.startswith(PARAPHRASE):
        return _rephrased
    return {"share": _wins, "reported": _ties}.get(one.kind, _preference)


def _preference(judgment: Judgment) -> float:
    return fmean(_BY_SIDE[outcome(verdict) or "tie"] for verdict in judgment.orders)


def _wins(judgment: Judgment) -> float:
    return float(judgment.winner == judgment.entrant_a)


def _ties(judgment: Judgment) -> float:
    return fmean(verdict.verdict == "TIE" for verdict in judgment.orders)


def _first_shown(judgment: Judgment) -> float:
    return fmean(_BY_LETTER[verdict.verdict] for verdict in judgment.orders)


def _same(judgment: Judgment, repeat: int = 1) -> float | None:
    equal = [
        before.verdict == again.verdict
        for before, again in repeated(judgment)
        if again.repeat == repeat
    ]
    return fmean(equal) if equal else None


def _rephrased(judgment: Judgment) -> float | None:
    """1 where a paraphrase has as many equal verdicts as a repeat under the rubric itself."""
    other, own = _same(judgment, REPHRASED), _same(judgment)
    return None if other is None or own is None else 1.0 + other - own
