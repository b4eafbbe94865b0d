"""What an audit says of a judge: the decision on each probe, and where later runs find it.

A probe asks questions whose right answer is known, and gives one contrast a prompt, the mean over
the forms, levels and orders in which it was asked. Prompts are the independent observations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri, stdtr

from elo_exp import files
from elo_exp.analysis.comparisons import ALPHA, holm
from elo_exp.arrays import Array, known
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record, fingerprint

_PSEUDO_PROMPTS = 2  # one on each side of the estimate, at a distance of 1
_MIN_DIFFERING = 5  # contrasts, for a test without pseudo-prompts
_CLOSE = -0.2, 0.25  # margins from the bound, between which more prompts may not decide

Kind = Literal["bias", "share", "floor", "reported"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrasts:
    """What a judge did on one probe.

    kind    bias: zero is right. share: at most `bound` is right. floor: at least `bound` is
            right. reported: nothing is decided
    bound   the margin of a bias, the most of a share, the least of a floor
    values  (n,) one contrast a prompt, within [-1, 1]; NaN where verdicts are missing or invalid
    """

    probe: str
    kind: Kind
    bound: float
    values: Array

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


def decide(contrasts: Sequence[Contrasts], delta: float) -> list[Result]:
    """Decide on every probe of an audit whether the judge is ok, biased, or nobody can tell.

    ok      the interval lies within the bound: two one-sided tests at 5 % (Schuirmann 1987)
    biased  significant after Holm over all probes, and the estimate is at the bound or beyond it

    delta  the margin of a bias, in which the distance to other bounds is measured, too
    """
    tested = [replace(c, values=c.values[np.isfinite(c.values)]) for c in contrasts]
    adjusted = holm(np.array([_p_value(some) for some in tested]))
    n_tests = int(np.isfinite(adjusted).sum())
    return [
        _result(some, p_value, n_tests, delta)
        for some, p_value in zip(tested, adjusted.tolist(), strict=True)
    ]


def _p_value(contrasts: Contrasts) -> float:
    """NaN: no test."""
    values = contrasts.values
    if not len(values) or contrasts.kind == "reported":
        return math.nan
    _, counts = np.unique(values, return_counts=True)
    is_plain = len(values) - counts.max() >= _MIN_DIFFERING
    error, df = _std_error(values, 0 if is_plain else _PSEUDO_PROMPTS)
    return float((1 + contrasts.is_bias) * stdtr(df, -contrasts.distance / error))


def _std_error(values: Array, n_pseudo: int) -> tuple[float, float]:
    """Return the error of the mean, and its degrees of freedom, with so many pseudo-prompts, which
    keep an interval open where all contrasts are equal."""
    n = len(values) + n_pseudo
    squares = float(((values - values.mean()) ** 2).sum()) + n_pseudo
    return math.sqrt(squares / (n - 1) / n), n - 1.0


def _result(contrasts: Contrasts, p_value: float, n_tests: int, delta: float) -> Result:
    is_reported = contrasts.kind == "reported"
    result = Result(
        probe=contrasts.probe,
        kind=contrasts.kind,
        bound=contrasts.bound,
        n=len(contrasts.values),
        verdict="reported" if is_reported else "cannot tell",
    )
    if not result.n:
        return result
    mean = float(contrasts.values.mean())
    error, df = _std_error(contrasts.values, _PSEUDO_PROMPTS)
    half = float(t_quantile(df, level=1 - 2 * ALPHA)) * error
    low = max(mean - half, 0.0 if contrasts.kind in ("share", "floor") else -1.0)
    high = min(mean + half, 1.0)
    result = replace(result, estimate=mean, low=low, high=high, p_value=known(p_value))
    if is_reported:
        return result
    if max(contrasts.excess(low), contrasts.excess(high)) < 0:
        return replace(result, verdict="ok")
    if p_value < ALPHA and contrasts.excess(mean) >= 0:
        return replace(result, verdict="biased")
    return replace(result, need=_prompts_needed(contrasts, n_tests, delta))


def _prompts_needed(contrasts: Contrasts, n_tests: int, delta: float) -> int | None:
    excess, sd = (
        contrasts.excess(contrasts.values.mean()),
        float(contrasts.values.std()),
    )
    unit = contrasts.bound if contrasts.is_bias else delta
    if _CLOSE[0] * unit < excess < _CLOSE[1] * unit:
        return None
    if excess < 0:
        margin = unit if contrasts.is_bias else -excess
        need = prompts_for_ok(sd, margin, two_sided=contrasts.is_bias)
    else:
        z = _z_found(n_tests, two_sided=contrasts.is_bias)
        need = _prompts(z, sd, contrasts.distance)
    return need if need > len(contrasts.values) else None


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


# One object of audit.json, beside the store


def keep(store_dir: Path, audit: Mapping[str, Any]) -> None:
    """Write an audit where later runs find it; a newer one replaces it."""
    files.write_json(_place(store_dir, audit["judge_key"], audit["rubric_key"]), audit)


def find(store_dir: Path, judge_key: str, rubric_key: str) -> dict[str, Any] | None:
    """Return the last audit of this judge under this rubric, to the byte."""
    path = _place(store_dir, judge_key, rubric_key)
    return files.read_json(path) if path.exists() else None


def _place(store_dir: Path, judge_key: str, rubric_key: str) -> Path:
    return store_dir / "audits" / f"{fingerprint([judge_key, rubric_key])}.json"
