"""An audit of a judge: from verdicts on probes' questions to the decision on each probe.

A probe asks questions whose right answer is known, and gives one contrast a prompt, the mean over
the forms, levels and orders in which it was asked. Prompts are the independent observations.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA, adjust_by_holm
from elo_exp.arrays import Array, make_row
from elo_exp.data.pairing import pair_repeats
from elo_exp.probes import Kind, Question
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Comparison, JudgeRequest, Judgment, make_fingerprint

_MIN_REPEAT_AGREEMENT = 0.9
_MIN_KAPPA_CHANGE_OF_PARAPHRASE = -0.1
_SCORE_OF_FIRST_SHOWN = {"A": 1.0, "TIE": 0.5, "B": 0.0, "INVALID": math.nan}
# If fewer differ, a test has pseudo-prompts
_MIN_DIFFERING_CONTRASTS = 5
# In units of the margin from the bound: more prompts may not decide between these
_UNDECIDABLE_EXCESS = -0.2, 0.25
_VERDICTS_WORST_FIRST = ("biased", "cannot tell", "ok", "reported")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question, of which x is the comparison's first response.

    probe        empty: of no probe, as labelled pairs are
    queries      in each order; then again; then under each of the paraphrases of the rubric
    """

    probe: str
    kind: Kind
    bound: float
    question: Question
    comparison: Comparison
    queries: Sequence[JudgeRequest]
    paraphrases: Sequence[str] = ()


JudgedQuestions = Sequence[tuple[AskedQuestion, Judgment]]
AnsweredQuestion = tuple[
    AskedQuestion, Judgment, float
]  # a question with a valid judgment: its contrast


@dataclass(frozen=True, kw_only=True, eq=False)
class Measure:
    """What a judge did on a probe, on one form of a probe that has a control, on a rung of the ladder,
    or on all questions together: how often it prefers the first shown (position), or agrees with
    itself when asked again (retest) or under the rubric in other words.

    kind     bias: zero is right. share: at most `bound` is right. floor: at least `bound` is
             right. reported: nothing is decided
    bound    the margin of a bias, the most of a share, the least of a floor
    values   (n,) one contrast a prompt, the mean of its questions' contrasts, within [-1, 1]
    n_unanswered  further prompts whose contrasts are not known, because no verdict on them is valid
    reach    the largest bias that a prompt can show: 0.5, or 1 beside a control
    """

    name: str
    kind: Kind
    bound: float
    values: Array
    answered: Sequence[AnsweredQuestion] = ()
    n_unanswered: int = 0
    reach: float = 1.0

    def fill_unanswered(self, contrast: float) -> "Measure":
        """Return the same measure as if each unanswered prompt had this contrast."""
        filled = np.append(self.values, np.full(self.n_unanswered, contrast))
        return replace(self, values=filled, n_unanswered=0)

    def extremes(self) -> "tuple[Measure, Measure]":
        """Return the measure if unanswered prompts speak for the judge as much as they can, and against it.

        A bias is then furthest from the direction in which it is seen, or as large as it may be.
        """
        if self.kind == "bias":
            sign = math.copysign(1.0, self.values.mean() if len(self.values) else 1.0)
            best, worst = -sign * self.reach, sign * self.reach
        else:
            best, worst = (1.0, 0.0) if self.kind == "floor" else (0.0, 1.0)
        return self.fill_unanswered(best), self.fill_unanswered(worst)

    def excess(self, mean: float) -> float:
        """How far a mean is beyond the bound; below zero within it."""
        if self.kind == "floor":
            return self.bound - mean
        return (abs(mean) if self.kind == "bias" else mean) - self.bound


# Measures


def measure_probes(judged: JudgedQuestions, delta: float) -> list[Measure]:
    """Return what was measured on one dimension.

    Parameters
    ----------
    judged : sequence of (Asked, Judgment)
        Every question that was asked, with its judgment.
    delta : float
        The margin of the position bias, as mean score of the first shown less one half.

    Returns
    -------
    list of Measure
        By name, with a contrast for each prompt.
    """
    controls: dict[str, dict[str, list[float]]] = {}
    for item, judgment in judged:
        if item.question.is_control:
            by_prompt = controls.setdefault(item.probe, defaultdict(list))
            valid = [] if judgment.invalid else [_preference(judgment)]
            by_prompt[item.comparison.prompt_id] += valid
    non_controls = [pair for pair in judged if not pair[0].question.is_control]
    letters = Counter(
        verdict.verdict
        for item, judgment in non_controls
        if item.kind == "floor"
        for verdict in judgment.orders
    )
    by_chance = sum(n * n for n in letters.values()) / max(letters.total(), 1) ** 2
    answers_by_measure = defaultdict[tuple[str, Kind, float], list[AnsweredQuestion]](
        list
    )
    prompts_by_measure = defaultdict[tuple[str, Kind, float], set[str]](set)
    for item, judgment in non_controls:
        preference, control = _preference(judgment), [0.5]
        if item.probe in controls:
            control = controls[item.probe][item.comparison.prompt_id]
        first_scores = [
            _SCORE_OF_FIRST_SHOWN[verdict.verdict] for verdict in judgment.orders
        ]
        contrast = {
            "bias": preference - fmean(control) if control else math.nan,
            "floor": preference,
            "share": float(preference == 1.0),
            "reported": first_scores.count(0.5) / len(first_scores),
        }[item.kind]
        contrasts: dict[tuple[str, Kind, float], float] = {}
        if item.probe:
            contrasts[item.probe, item.kind, item.bound] = contrast
        if item.probe in controls or item.kind == "floor":
            form = f"{item.probe}: {item.question.form}"
            contrasts[form, item.kind, item.bound] = contrast
        if item.question.both_orders:
            contrasts["position", "bias", delta] = fmean(first_scores) - 0.5
        if len(judgment.raw) > len(first_scores):
            contrasts["retest", "floor", _MIN_REPEAT_AGREEMENT] = equal_share = (
                _share_equal(judgment, 1)
            )
        for repeat, file in enumerate(item.paraphrases, start=2):
            # of two kappas, both with the chance of the verdicts under the rubric itself
            kappa_difference = (_share_equal(judgment, repeat) - equal_share) / (
                (1 - by_chance) or math.nan
            )
            contrasts[f"rubric: {file}", "floor", _MIN_KAPPA_CHANGE_OF_PARAPHRASE] = (
                kappa_difference
            )
        for measure, contrast in contrasts.items():
            answers = answers_by_measure[measure]
            prompts_by_measure[measure].add(item.comparison.prompt_id)
            if not (judgment.invalid or math.isnan(contrast)):
                answers.append((item, judgment, contrast))
    return [
        Measure(
            name=name,
            kind=kind,
            bound=bound,
            values=(values := _average_by_prompt(answers)),
            answered=answers,
            n_unanswered=len(prompts_by_measure[name, kind, bound]) - len(values),
            reach=1.0 if name.partition(": ")[0] in controls else 0.5,
        )
        for (name, kind, bound), answers in sorted(answers_by_measure.items())
    ]


def _average_by_prompt(answers: Sequence[AnsweredQuestion]) -> Array:
    prompts = [item.comparison.prompt_id for item, _, _ in answers]
    number = np.unique(prompts, return_inverse=True)[1]
    return np.bincount(number, [value for _, _, value in answers]) / np.bincount(number)


def _preference(judgment: Judgment) -> float:
    """Return the mean score of x over the orders."""
    return fmean(
        abs(_SCORE_OF_FIRST_SHOWN[verdict.verdict] - verdict.position_swap)
        for verdict in judgment.orders
    )


def _share_equal(judgment: Judgment, repeat: int) -> float:
    """Return the share of equal verdicts on a repeat; NaN if none is valid."""
    equal = [
        before.verdict == again.verdict
        for before, again in pair_repeats(judgment)
        if again.repeat == repeat
    ]
    return fmean(equal) if equal else math.nan


# Decisions


def decide(measured: Sequence[Measure], delta: float) -> list[dict[str, Any]]:
    """Decide on every probe of an audit whether the judge is ok, biased, or nobody can tell.

    ok: the interval lies within the bound, two one-sided tests at 5% [1]_. biased: significant after
    Holm over all probes, and the estimate is at the bound or beyond it. Both also if the contrasts of
    prompts without a valid verdict were what speaks most against that.

    Parameters
    ----------
    measured : sequence of Measure
        All that the judge was tried on in one dimension.
    delta : float
        The margin of a bias, in which the distance to other bounds is measured, too.

    Returns
    -------
    list of dict
        A row for each measure, worst first: `n` prompts with a contrast; the mean contrast and the ends
        `low` and `high` of its 90% interval, within what it can be; `p_value`, that there is a bias, or
        that the bound is passed, adjusted for all probes; `verdict`: ok, biased, cannot tell or
        reported; `need`, the prompts that decide with 80% power, None where decided or too close to the
        bound. None where there is no number.

    References
    ----------
    .. [1] D. J. Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power
       approach for assessing the equivalence of average bioavailability", Journal of Pharmacokinetics
       and Biopharmaceutics 15(6), 657-680.
    """
    adjusted = adjust_by_holm(np.array([_p_value(measure) for measure in measured]))
    n_tests = int(np.isfinite(adjusted).sum())
    results = [
        _decide_measure(measure, p_value, n_tests, delta)
        for measure, p_value in zip(measured, adjusted.tolist(), strict=True)
    ]
    return sorted(results, key=lambda row: _VERDICTS_WORST_FIRST.index(row["verdict"]))


def _p_value(measure: Measure) -> float:
    """Return the p value; NaN: no test. Of two the larger if prompts are unanswered: they may speak for the judge."""
    if measure.n_unanswered and len(measure.values) and measure.kind != "reported":
        best, p_of_answered = (
            measure.extremes()[0],
            _p_value(replace(measure, n_unanswered=0)),
        )
        is_overturned = (
            measure.kind == "bias" and measure.values.mean() * best.values.mean() <= 0
        )
        return 1.0 if is_overturned else max(p_of_answered, _p_value(best))
    values, is_bias = measure.values, measure.kind == "bias"
    if not len(values) or measure.kind == "reported":
        return math.nan
    _, counts = np.unique(values, return_counts=True)
    if len(values) - counts.max() < _MIN_DIFFERING_CONTRASTS:
        values = _add_pseudo_prompts(values)
    distance = measure.excess(float(values.mean())) + measure.bound * is_bias
    return float(
        (1 + is_bias)
        * scipy.special.stdtr(len(values) - 1, -distance / _std_error(values))
    )


def _add_pseudo_prompts(values: Array) -> Array:
    """Add a contrast on each side of the mean at a distance of 1: if all contrasts are equal, the
    interval stays open."""
    return np.append(values, values.mean() + np.array([-1.0, 1.0]))


def _std_error(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _interval(measure: Measure) -> tuple[float, float]:
    """Return the ends of the 90% interval of the mean contrast, within what it can be."""
    values, mean = measure.values, float(measure.values.mean())
    quantile = t_quantile(len(values) + 1.0, level=1 - 2 * ALPHA)
    half_width = float(quantile) * _std_error(_add_pseudo_prompts(values))
    lowest = -1.0 if measure.kind == "bias" or measure.bound < 0 else 0.0
    return max(mean - half_width, lowest), min(mean + half_width, 1.0)


def _decide_measure(
    measure: Measure, p_value: float, n_tests: int, delta: float
) -> dict[str, Any]:
    values, kind, bound, is_bias = (
        measure.values,
        measure.kind,
        measure.bound,
        measure.kind == "bias",
    )
    verdict = "reported" if kind == "reported" else "cannot tell"
    mean = low = high = math.nan
    need = None
    if len(values):
        mean, sd = float(values.mean()), float(values.std())
        low, high = _interval(measure)
    if len(values) and kind != "reported":
        excess, unit = measure.excess(mean), bound if is_bias else delta
        best, worst = measure.extremes()
        ends = [end for extreme in (measure, best, worst) for end in _interval(extreme)]
        least_excess = min(
            measure.excess(float(extreme.values.mean())) for extreme in (measure, best)
        )
        if max(map(measure.excess, ends)) < 0:
            verdict = "ok"
        elif p_value < ALPHA and least_excess >= 0:
            verdict = "biased"
        elif excess <= _UNDECIDABLE_EXCESS[0] * unit:
            need = _prompts_needed(
                _z_to_pass(is_bias), sd, unit if is_bias else -excess
            )
        elif excess >= _UNDECIDABLE_EXCESS[1] * unit:
            need = _prompts_needed(
                _z_to_detect(n_tests, is_bias), sd, excess + bound * is_bias
            )
    return make_row(
        probe=measure.name,
        kind=kind,
        bound=bound,
        n=len(values),
        verdict=verdict,
        estimate=mean,
        low=low,
        high=high,
        p_value=p_value,
        need=need if need and need > len(values) else None,
    )


# Power, by the normal distribution


def detectable_effects(
    measured: Sequence[Measure],
) -> list[tuple[str, int, float, int]]:
    """Return what each probe would find, by the variation of its contrasts.

    Parameters
    ----------
    measured : sequence of Measure
        Of simulated replies; those without prompts, or that decide nothing, are left out.

    Returns
    -------
    list of (name, n_prompts, effect, need)
        `effect` is the smallest that is found with 80% power, in the unit of the contrast, and `need`
        the prompts for a judge without a fault, which varies in biases alone, to be called ok.
    """
    deciding_measures = [
        measure
        for measure in measured
        if len(measure.values) and measure.kind != "reported"
    ]
    rows = []
    for measure in deciding_measures:
        n, sd, is_bias = (
            len(measure.values),
            float(measure.values.std()),
            measure.kind == "bias",
        )
        effect = _z_to_detect(len(deciding_measures)) * sd / math.sqrt(n)
        margin = abs(measure.bound - (measure.kind == "floor" and measure.bound > 0))
        need = _prompts_needed(_z_to_pass(is_bias), sd * is_bias, margin)
        rows.append((measure.name, n, effect, need))
    return rows


def _z_to_pass(is_two_sided: bool) -> float:
    """Return the standard errors in the margin at which 80% of judges without a fault are ok."""
    return float(
        scipy.special.ndtri(1 - ALPHA)
        + scipy.special.ndtri(0.9 if is_two_sided else 0.8)
    )


def _z_to_detect(n_tests: int, is_two_sided: bool = True) -> float:
    """Return the size of an effect that is significant in 80% of audits, in standard errors, at Holm's first step."""
    return float(
        scipy.special.ndtri(1 - ALPHA / n_tests / (1 + is_two_sided))
        + scipy.special.ndtri(0.8)
    )


def _prompts_needed(z: float, sd: float, distance: float) -> int:
    """Return the least n at which z standard errors are at most `distance`: (z sd / distance)^2, and more for
    the pseudo-prompts, whose part in the variance of a contrast is 2 / n."""
    plain, pseudo = (z * sd / distance) ** 2, 2.0 * (z / distance) ** 2
    return math.ceil(plain / 2 + math.sqrt(plain**2 / 4 + pseudo))


def audit_path(store_dir: Path, judge_key: str, rubric_key: str) -> Path:
    """Return where the last audit of a judge under a rubric lies, beside the store.

    Parameters
    ----------
    store_dir : Path
        The folder of the store.
    judge_key, rubric_key : str
        Of the judge and of the rubric's text, to the byte.

    Returns
    -------
    Path
        Of a JSON file, whether it is there or not.
    """
    return store_dir / "audits" / f"{make_fingerprint([judge_key, rubric_key])}.json"
