"""From the verdicts on probes' questions to one contrast a prompt.

A measure is a probe, one form of a probe that has a control, a rung of the ladder, or what all
questions tell together: whether the first shown is preferred (position), whether a judge agrees with
itself when asked again (retest) or under the rubric in other words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np

from elo_exp.analysis.audit import Contrasts, Kind
from elo_exp.data.pairing import outcome, reconcile, repeated
from elo_exp.probes import Question
from elo_exp.records import Comparison, JudgeRequest, Judgment, Verdict

GOLD = "gold"  # the questions of labelled pairs, which are no probe
REPHRASED = 2  # the repeat that is asked under the first paraphrase
_SAME = 0.9  # the least share of equal verdicts that is ok on a repeat
_LESS_KAPPA = -0.1  # the least difference of kappa that is ok under a paraphrase
_SCORE = {"a": 1.0, "tie": 0.5, "b": 0.0}

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
        found = defaultdict[str, tuple[list[float], list[float]]](lambda: ([], []))
        for one, value in self.values():
            found[one.comparison.prompt_id][one.question.is_control].append(value)
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


def measures(
    asked: Sequence[Asked], delta: float, paraphrases: Sequence[str] = ()
) -> list[Measure]:
    """Return what can be measured on one dimension, whether it has been judged or not."""
    groups: dict[str, list[Asked]] = {}
    for one in asked:
        groups.setdefault(one.probe, []).append(one)
    groups.pop(GOLD, None)
    for name, own in list(groups.items()):
        controls = [one for one in own if one.question.is_control]
        for one in own:
            if (controls or one.kind == "floor") and not one.question.is_control:
                form = f"{name}: {one.question.form}"
                groups.setdefault(form, [*controls]).append(one)
    found = [
        Measure(name, own[0].kind, own[0].bound, own, _VALUES[own[0].kind])
        for name, own in groups.items()
    ]
    plain = [one for one in asked if not one.question.is_control]
    in_both = [one for one in plain if one.question.both_orders]
    again = [one for one in plain if any(query.repeat for query in one.queries)]
    rungs = [one for one in asked if one.kind == "floor"]
    found.append(Measure("position", "bias", delta, in_both, _first_shown))
    found.append(Measure("retest", "floor", _SAME, again, _same))
    for repeat, path in enumerate(paraphrases, start=REPHRASED):
        value = partial(_less_kappa, repeat=repeat, may_differ=1.0 - _chance(rungs))
        found.append(Measure(f"rubric: {path}", "floor", _LESS_KAPPA, rungs, value))
    return [measure for measure in found if measure.asked]


def simulate(asked: Sequence[Asked], rng: np.random.Generator) -> list[Asked]:
    """Judge all answers as equals, without ties: a judge whose audit takes the most prompts.

    It goes by a taste that all questions of a probe on a prompt share, one for the question, and
    chance, in equal parts, so that every fourth pair of orders disagrees.
    """
    taste: dict[tuple[str, str], float] = defaultdict(rng.standard_normal)
    judged = []
    for one in asked:
        shared = taste[one.comparison.prompt_id, one.probe]
        liking = shared + rng.standard_normal()
        verdicts = [
            Verdict(
                cache_key="",
                rubric_version="",
                judge_model="",
                position_swap=query.position_swap,
                repeat=query.repeat,
                verdict="AB"[
                    (liking + rng.standard_normal() > 0) == query.position_swap
                ],
            )
            for query in one.queries
        ]
        judged.append(replace(one, judgment=reconcile(one.comparison, verdicts)))
    return judged


# What a judgment tells


def _preference(judgment: Judgment) -> float:
    return fmean(_SCORE[outcome(verdict) or ""] for verdict in judgment.orders)


def _first_shown(judgment: Judgment) -> float:
    return fmean(_SCORE[verdict.verdict.lower()] for verdict in judgment.orders)


def _same(judgment: Judgment, repeat: int = 1) -> float | None:
    equal = [
        before.verdict == again.verdict
        for before, again in repeated(judgment)
        if again.repeat == repeat
    ]
    return fmean(equal) if equal else None


def _less_kappa(judgment: Judgment, *, repeat: int, may_differ: float) -> float | None:
    """Kappa under a paraphrase less that of a repeat, the chance being that of the verdicts under
    the rubric itself; the mean over questions is the difference."""
    other, own = _same(judgment, repeat), _same(judgment)
    if other is None or own is None or not may_differ:
        return None
    return (other - own) / may_differ


def _chance(asked: Sequence[Asked]) -> float:
    """The probability that two verdicts drawn from all are equal."""
    judgments = [one.judgment for one in asked if one.judgment]
    letters = Counter(v.verdict for some in judgments for v in some.orders)
    return sum(n * n for n in letters.values()) / max(letters.total(), 1) ** 2


_VALUES: dict[Kind, Value] = {
    "bias": _preference,
    "floor": _preference,
    "share": lambda judgment: float(judgment.winner == judgment.entrant_a),
    "reported": lambda judgment: fmean(v.verdict == "TIE" for v in judgment.orders),
}
