"""Checks behind the claim of a gate: could the judge have seen a worse candidate, and does anything favour this one?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    FAILED,
    NOT_DONE,
    NOT_WORSE,
    PASSED,
    Check,
)
from elo_exp.analysis.checks.audit_check import is_fatal, list_biased_probes
from elo_exp.analysis.checks.length_check import MIN_SUPPORT
from elo_exp.analysis.exact_shares import exact_interval
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.arrays import Array

# Of the baseline's mean length: a smaller mean difference moves no judge by a margin
MIN_RELATIVE_LENGTH_DIFFERENCE = 0.05
_CONFIDENCE_LEVEL = 0.95
# Of a gate, the weightiest first
_BLOCKING_CHECKS = (
    *("same_verdict", "control", "flips", "first_shown", "invalid", "length"),
    *("responses", "audit", "kin"),
)


def order_checks(quality: JudgeQuality) -> list[Check]:
    """Report flips, position, ties and invalid verdicts, the shares with exact 95 % intervals.

    The lower bound of the gate counts flips and invalid verdicts against the candidate. So these checks pass if they
    were done, whatever they found.

    Parameters
    ----------
    quality : JudgeQuality
        Of the judgments of one dimension.

    Returns
    -------
    list of Check
        "flips" cannot tell if each comparison was judged in one order alone.
    """
    n_one_order = quality.n_one_order
    n_letters = quality.n_decisive_verdicts, quality.tie_rate
    flips = _check_share("flips", quality.n_flips, quality.n_two_order)
    if not quality.n_two_order and n_one_order:
        flips = Check(
            name="flips", state=CANNOT_TELL, of=0, about={"n_one_order": n_one_order}
        )
    return [
        flips,
        _check_share("first_shown", quality.n_first_shown_wins, n_letters[0]),
        Check(
            name="ties",
            state=NOT_DONE if quality.tie_rate is None else PASSED,
            value=quality.tie_rate,
            n=quality.n_equal_answers,
        ),
        _check_share("invalid", quality.n_invalid, quality.n_judgments),
    ]


def _check_share(name: str, n: int, n_all: int) -> Check:
    if not n_all:
        return Check(name=name, state=NOT_DONE, n=n, of=n_all)
    low, high = exact_interval(n / n_all, n_all)
    return Check(
        name=name, state=PASSED, value=n / n_all, low=low, high=high, n=n, of=n_all
    )


def length_check(
    points: Array,
    difference: Array,
    clusters: Array,
    *,
    margin: float,
    alpha: float,
    mean_length: float,
    is_of_fail: bool = False,
) -> Check:
    """Check whether the judge's preference for length could by itself produce the pass, or the fail.

    The bonus is what the candidate's lengths add to its share: the regression of the points on tanh(difference /
    scale), times the mean of that. The check passes if the lower bound of the share less the bonus, the share at equal
    length, is above 1/2 - margin. It fails if the upper bound is not. A mean difference of under 5 % of the baseline's
    mean length passes: no such difference is known to move a judge by a margin. The check of a fail passes if the
    upper bound is below 1/2 and the candidate's answer is not the shorter one on 5 % of the prompts: otherwise equal
    length is extrapolated. It fails if the lower bound is not below 1/2.

    Parameters
    ----------
    points : Array, shape (n,)
        Of the candidate on the prompts with valid verdicts, as they count in the lower bound.
    difference : Array, shape (n,)
        Of the lengths of candidate and baseline, in characters.
    clusters : Array, shape (n,)
        The group of each prompt.
    margin : float
        The loss that is tolerated, as share of points.
    alpha : float
        Level of the bounds.
    mean_length : float
        Of the baseline's answers, in characters.
    is_of_fail : bool, default False
        Whether the claim is that the candidate is worse.

    Returns
    -------
    Check
        Its value is the bonus, with a 95 % interval that is None if length cannot be told apart from the candidate.
    """
    scale = float(np.sqrt((difference**2).mean())) if len(difference) else 0.0
    if not scale:
        state = PASSED if len(difference) else NOT_DONE
        return Check(name="length", state=state, value=0.0, low=0.0, high=0.0)
    x = np.tanh(difference / scale)
    share, mean_x = float(points.mean()), float(x.mean())
    about = {"share": share, "mean_difference": float(difference.mean())}
    centered_x = x - mean_x
    spread = float(centered_x @ centered_x)
    _, group = np.unique(clusters, return_inverse=True)
    n_groups = int(group.max()) + 1
    is_small = (
        abs(float(difference.mean())) < MIN_RELATIVE_LENGTH_DIFFERENCE * mean_length
    )
    if spread < 1e-9 * len(x) or n_groups < 3:
        state = PASSED if is_small else CANNOT_TELL
        return Check(name="length", state=state, about=about)
    slope = float(centered_x @ points) / spread
    residual = points - share - slope * centered_x
    bonus, df = slope * mean_x, n_groups - 2

    def error(weights: Array) -> float:
        sums = np.bincount(group, weights * residual)
        return math.sqrt(float(sums @ sums) * n_groups / df)

    bonus_weights = mean_x * centered_x / spread
    half_width = error(bonus_weights) * float(
        scipy.special.stdtrit(df, 0.5 + _CONFIDENCE_LEVEL / 2)
    )
    at_equal_length = share - bonus
    reach = error(1.0 / len(x) - bonus_weights) * float(
        scipy.special.stdtrit(df, 1 - alpha)
    )
    lowest, highest = at_equal_length - reach, at_equal_length + reach
    is_shown, is_refuted = lowest > 0.5 - margin, highest <= 0.5 - margin
    if is_of_fail:
        not_shorter = float((difference >= 0).mean())
        is_shown = highest < 0.5 and not_shorter >= MIN_SUPPORT
        is_refuted = lowest >= 0.5
    state = PASSED if is_shown or is_small else FAILED if is_refuted else CANNOT_TELL
    low, high = bonus - half_width, bonus + half_width
    about |= {
        "share_at_equal_length": at_equal_length,
        "lowest": lowest,
        "highest": highest,
    }
    return Check(
        name="length", state=state, value=bonus, low=low, high=high, about=about
    )


def answers_check(
    favoured: Mapping[str, Any], rival: Mapping[str, Any] | None
) -> Check:
    """Check whether the answers of the one that a claim favours are unusual and those of the other are not.

    Parameters
    ----------
    favoured, rival : mapping
        Rows of `check_responses`: of candidate and baseline if the claim is a pass, of baseline and candidate if it
        is a fail; None: the rival's answers are not known.

    Returns
    -------
    Check
        Its value is the number of flags that the favoured one has and the rival has not.
    """
    rival_flags = set(rival["flags"]) if rival else set()
    flags = [name for name in favoured["flags"] if name not in rival_flags]
    return Check(
        name="responses",
        state=FAILED if flags else PASSED,
        value=float(len(flags)),
        about={
            "flagged": {favoured["model"]: {name: favoured[name] for name in flags}},
            "flags": flags,
        },
    )


def family_check(
    kin: JudgeFamily,
    *,
    candidate: str,
    baseline: str,
    is_known: bool,
    is_unbiased: bool,
) -> Check:
    """Check whether the judge is of the candidate's family and not of the baseline's.

    Parameters
    ----------
    kin : JudgeFamily
        Who is of the judge's family.
    candidate, baseline : str
        Their names there.
    is_known : bool
        Whether a name tells the family of judge and candidate.
    is_unbiased : bool
        Whether the user allows it, or an audit found that the judge does not favour its own.

    Returns
    -------
    Check
        Not done if a family is not known.
    """
    is_favoured = candidate in kin.models and baseline not in kin.models
    state = FAILED if is_favoured and not is_unbiased else PASSED
    return Check(
        name="kin",
        state=state if is_known else NOT_DONE,
        about={"family": kin.family, "models": [*kin.models], "first": candidate},
    )


def audit_check(audit: Mapping[str, Any]) -> Check:
    """Check whether an audit found that the judge obeys answers or does not tell good from bad.

    Parameters
    ----------
    audit : mapping
        As audit.json has it; {} if there is none.

    Returns
    -------
    Check
        Its value is the number of probes by which the judge is biased.
    """
    biased = list_biased_probes(audit)
    fails = any(map(is_fatal, biased))
    return Check(
        name="audit",
        state=FAILED if fails else PASSED if audit else NOT_DONE,
        value=float(len(biased)) if audit else None,
        about=dict(audit),
    )


def blocking_checks(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that stand against "not worse".

    Parameters
    ----------
    checks : sequence of Check
        Of one dimension; without a control, this was left out.

    Returns
    -------
    list of Check
        The weightiest first.
    """
    all_checks = [*checks]
    if not any(check.name == "control" for check in all_checks):
        all_checks.append(
            Check(name="control", state=NOT_DONE, about={"why": "left out"})
        )
    blocking = [check for check in all_checks if check.blocks(NOT_WORSE)]
    return sorted(blocking, key=lambda check: _BLOCKING_CHECKS.index(check.name))
