"""An audit of a judge: from verdicts on probes' questions to the decision on each probe.

A probe asks questions whose right answer is known, and gives one contrast a prompt, the mean over
the forms, levels and orders in which it was asked. Prompts are the independent observations.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.special import ndtri, stdtr

from elo_exp.analysis.comparisons import ALPHA, holm
from elo_exp.arrays import Array, known
from elo_exp.data.pairing import outcome, reconcile, repeated
from elo_exp.probes import Kind, Question
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import (
    Comparison,
    JudgeRequest,
    Judgment,
    Record,
    Verdict,
    fingerprint,
)

GOLD = "gold"  # the questions of labelled pairs, which are no probe
REPHRASED = 2  # the repeat that is asked under the first paraphrase
_SAME = 0.9  # the least share of equal verdicts that is ok on a repeat
_LESS_KAPPA = -0.1  # the least difference of kappa that is ok under a paraphrase
_SCORE = {"a": 1.0, "tie": 0.5, "b": 0.0}
_PSEUDO_PROMPTS = 2  # one on each side of the estimate, at a distance of 1
_MIN_DIFFERING = 5  # contrasts, for a test without pseudo-prompts
_CLOSE = -0.2, 0.25  # margins from the bound, between which more prompts may not decide

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Measure:
    """What a judge did on a probe, on one form of a probe that has a control, on a rung of the ladder,
    or on all questions together: how often it prefers the first shown (position), or agrees with
    itself when asked again (retest) or under the rubric in other words.

    kind     bias: zero is right. share: at most `bound` is right. floor: at least `bound` is
             right. reported: nothing is decided
    bound    the margin of a bias, the most of a share, the least of a floor
    values   (n,) one contrast a prompt, within [-1, 1], of its valid judgments
    answered each question with what its judgment tells, from 0 to 1
    """

    name: str
    kind: Kind
    bound: float
    values: Array
    answered: Sequence[tuple[Asked, float]] = ()

    @property
    def is_bias(self) -> bool:
        return self.kind == "bias"

    def excess(self, mean: float) -> float:
        """How far a mean is beyond the bound; below zero within it."""
        if self.kind == "floor":
            return self.bound - mean
        return (abs(mean) if self.is_bias else mean) - self.bound

    @property
    def distance(self) -> float:
        """What is tested: of a bias, on both sides, the mean from zero; of others from the bound."""
        mean = float(self.values.mean())
        return abs(mean) if self.is_bias else self.excess(mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """The decision on one probe.

    n          prompts with a contrast
    low, high  of the 90 % interval of the mean contrast, within what it can be
    p_value    that there is a bias, or that the bound is passed; adjusted for all probes (Holm)
    verdict    ok, biased, cannot tell, reported
    need       prompts that decide with 80 % power; None where decided or too close to the bound
    """

    probe: str
    kind: str
    bound: float
    n: int
    verdict: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    need: int | None = None


# Measures


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
        _measure(name, own[0].kind, own[0].bound, own, _VALUES[own[0].kind])
        for name, own in groups.items()
    ]
    plain = [one for one in asked if not one.question.is_control]
    in_both = [one for one in plain if one.question.both_orders]
    again = [one for one in plain if any(query.repeat for query in one.queries)]
    rungs = [one for one in asked if one.kind == "floor"]
    if in_both:
        found.append(_measure("position", "bias", delta, in_both, _first_shown))
    if again:
        found.append(_measure("retest", "floor", _SAME, again, _same))
    letters = Counter(v.verdict for r in rungs if r.judgment for v in r.judgment.orders)
    equal = sum(n * n for n in letters.values()) / max(letters.total(), 1) ** 2
    for repeat, file in enumerate(paraphrases if rungs else (), start=REPHRASED):
        value = partial(_less_kappa, repeat=repeat, may_differ=1.0 - equal)
        found.append(_measure(f"rubric: {file}", "floor", _LESS_KAPPA, rungs, value))
    return found


def _measure(
    name: str, kind: Kind, bound: float, asked: Sequence[Asked], value: Value
) -> Measure:
    """The contrasts are the mean answers to each prompt, of a bias less those to its control, or a half."""
    answered = [
        (one, told)
        for one in asked
        if one.judgment is not None
        and not one.judgment.invalid
        and (told := value(one.judgment)) is not None
    ]
    by_prompt = defaultdict[str, tuple[list[float], list[float]]](lambda: ([], []))
    for one, told in answered:
        by_prompt[one.comparison.prompt_id][one.question.is_control].append(told)
    has_control = any(one.question.is_control for one in asked)
    right = 0.5 if kind == "bias" else 0.0
    values = [
        fmean(answers) - (fmean(controls) if controls else right)
        for answers, controls in by_prompt.values()
        if answers and (controls or not has_control)
    ]
    return Measure(
        name=name, kind=kind, bound=bound, values=np.array(values), answered=answered
    )


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


_VALUES: dict[Kind, Value] = {
    "bias": _preference,
    "floor": _preference,
    "share": lambda judgment: float(judgment.winner == judgment.entrant_a),
    "reported": lambda judgment: fmean(v.verdict == "TIE" for v in judgment.orders),
}


# Decisions


def decide(measured: Sequence[Measure], delta: float) -> list[Result]:
    """Decide on every probe of an audit whether the judge is ok, biased, or nobody can tell.

    ok      the interval lies within the bound: two one-sided tests at 5 % (Schuirmann 1987)
    biased  significant after Holm over all probes, and the estimate is at the bound or beyond it

    delta  the margin of a bias, in which the distance to other bounds is measured, too
    """
    adjusted = holm(np.array([_p_value(one) for one in measured]))
    n_tests = int(np.isfinite(adjusted).sum())
    return [
        _result(one, p_value, n_tests, delta)
        for one, p_value in zip(measured, adjusted.tolist(), strict=True)
    ]


def _p_value(measure: Measure) -> float:
    """NaN: no test."""
    values = measure.values
    if not len(values) or measure.kind == "reported":
        return math.nan
    _, counts = np.unique(values, return_counts=True)
    is_plain = len(values) - counts.max() >= _MIN_DIFFERING
    error, df = _std_error(values, 0 if is_plain else _PSEUDO_PROMPTS)
    return float((1 + measure.is_bias) * stdtr(df, -measure.distance / error))


def _std_error(values: Array, n_pseudo: int = _PSEUDO_PROMPTS) -> tuple[float, float]:
    """Return the error of the mean, and its degrees of freedom, with so many pseudo-prompts, which
    keep an interval open where all contrasts are equal."""
    n = len(values) + n_pseudo
    squares = float(((values - values.mean()) ** 2).sum()) + n_pseudo
    return math.sqrt(squares / (n - 1) / n), n - 1.0


def _result(measure: Measure, p_value: float, n_tests: int, delta: float) -> Result:
    values, kind = measure.values, measure.kind
    result = Result(
        probe=measure.name,
        kind=kind,
        bound=measure.bound,
        n=len(values),
        verdict="reported" if kind == "reported" else "cannot tell",
    )
    if not result.n:
        return result
    mean, sd = float(values.mean()), float(values.std())
    error, df = _std_error(values)
    half = float(t_quantile(df, level=1 - 2 * ALPHA)) * error
    low = max(mean - half, 0.0 if kind in ("share", "floor") else -1.0)
    high = min(mean + half, 1.0)
    result = replace(result, estimate=mean, low=low, high=high, p_value=known(p_value))
    excess = measure.excess(mean)
    if kind == "reported":
        return result
    if max(measure.excess(low), measure.excess(high)) < 0:
        return replace(result, verdict="ok")
    if p_value < ALPHA and excess >= 0:
        return replace(result, verdict="biased")
    unit = measure.bound if measure.is_bias else delta
    if _CLOSE[0] * unit < excess < _CLOSE[1] * unit:
        return result
    if excess < 0:
        margin = unit if measure.is_bias else -excess
        need = prompts_for_ok(sd, margin, two_sided=measure.is_bias)
    else:
        z = _z_found(n_tests, two_sided=measure.is_bias)
        need = _prompts(z, sd, measure.distance)
    return replace(result, need=need) if need > result.n else result


# Power, by the normal distribution


def smallest_effect(n: int, sd: float, n_tests: int) -> float:
    """Return the bias that `decide` finds among so many probes with 80 % power.

    sd  of the contrasts over prompts
    """
    return _z_found(n_tests) * sd / math.sqrt(n)


def prompts_for_ok(sd: float, margin: float, *, two_sided: bool = True) -> int:
    """Return how many prompts call a judge without any bias ok with 80 % power."""
    z = ndtri(1 - ALPHA) + ndtri(0.9 if two_sided else 0.8)
    return _prompts(float(z), sd, margin)


def _z_found(n_tests: int, *, two_sided: bool = True) -> float:
    """Standard errors of an effect that is significant in 80 % of audits, at Holm's first step."""
    return float(ndtri(1 - ALPHA / n_tests / (1 + two_sided)) + ndtri(0.8))


def _prompts(z: float, sd: float, distance: float) -> int:
    """The least n whose z standard errors are at most `distance`: (z sd / distance)^2, and some for
    the pseudo-prompts, whose part in the variance of a contrast is 2 / n."""
    plain, pseudo = (z * sd / distance) ** 2, _PSEUDO_PROMPTS * (z / distance) ** 2
    return math.ceil(plain / 2 + math.sqrt(plain**2 / 4 + pseudo))


def points(effect: float) -> float:
    """Return the rating difference at which a share of one half becomes one half + effect."""
    share = min(max(0.5 + effect, 0.001), 0.999)
    return 400.0 * math.log10(share / (1.0 - share))


def path(store_dir: Path, judge_key: str, rubric_key: str) -> Path:
    """Return where the last audit of this judge under this rubric, to the byte, lies beside the store."""
    return store_dir / "audits" / f"{fingerprint([judge_key, rubric_key])}.json"
