"""What an audit says of a judge: the decision on each probe, and audit.json.

A probe asks questions whose right answer is known, and gives one contrast a prompt, the mean over
the forms, levels and orders in which it was asked. Prompts are the independent observations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy.special import ndtri, stdtr

from elo_exp import files
from elo_exp.analysis.comparisons import holm
from elo_exp.arrays import Array, known
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import Record, UserError, fingerprint

_PSEUDO_PROMPTS = 2  # one on each side of the estimate, at a distance of 1
_MIN_DIFFERING = 5  # contrasts, for a test without pseudo-prompts
_CLOSE = (
    -0.2,
    0.25,
)  # margins beyond the bound: no number of prompts decides so close to it

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

    def excess(self, mean: float) -> float:
        """How far a mean is beyond the bound; below zero within it."""
        if self.kind == "floor":
            return self.bound - mean
        return (abs(mean) if self.kind == "bias" else mean) - self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """The decision on one probe.

    n          prompts with a contrast
    low, high  of the 90 % interval (of 1 - 2 alpha) of the mean contrast, within what it can be
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


def decide(
    contrasts: Sequence[Contrasts], delta: float, alpha: float = 0.05
) -> list[Result]:
    """Decide on every probe of an audit whether the judge is ok, biased, or nobody can tell.

    ok      the interval lies within the bound: two one-sided tests, alpha each (Schuirmann 1987)
    biased  significant after Holm over all probes, and the estimate is at the bound or beyond it

    delta  the margin of a bias, in which the distance to other bounds is measured, too
    """
    tested = [replace(c, values=c.values[np.isfinite(c.values)]) for c in contrasts]
    adjusted = holm(np.array([_p_value(some) for some in tested]))
    n_tests = int(np.isfinite(adjusted).sum())
    return [
        _result(some, p_value, n_tests, delta, alpha)
        for some, p_value in zip(tested, adjusted.tolist(), strict=True)
    ]


def _p_value(contrasts: Contrasts) -> float:
    """Test a bias against zero on both sides, the others beyond their bound; NaN: no test."""
    values = contrasts.values
    if not len(values) or contrasts.kind == "reported":
        return math.nan
    _, counts = np.unique(values, return_counts=True)
    is_plain = len(values) - counts.max() >= _MIN_DIFFERING
    error, df = _std_error(values, 0 if is_plain else _PSEUDO_PROMPTS)
    if contrasts.kind == "bias":
        return float(2 * stdtr(df, -abs(values.mean()) / error))
    return float(stdtr(df, -contrasts.excess(values.mean()) / error))


def _std_error(values: Array, n_pseudo: int) -> tuple[float, float]:
    """Return the error of the mean, and its degrees of freedom, with so many pseudo-prompts, which
    keep an interval open where all contrasts are equal."""
    n = len(values) + n_pseudo
    squares = float(((values - values.mean()) ** 2).sum()) + n_pseudo
    return math.sqrt(squares / (n - 1) / n), n - 1.0


def _result(
    contrasts: Contrasts, p_value: float, n_tests: int, delta: float, alpha: float
) -> Result:
    result = Result(
        probe=contrasts.probe,
        kind=contrasts.kind,
        bound=contrasts.bound,
        n=len(contrasts.values),
        verdict="reported" if contrasts.kind == "reported" else "cannot tell",
    )
    if not result.n:
        return result
    estimate = float(contrasts.values.mean())
    error, df = _std_error(contrasts.values, _PSEUDO_PROMPTS)
    half = float(t_quantile(df, level=1 - 2 * alpha)) * error
    least = 0.0 if contrasts.kind in ("share", "floor") else -1.0
    low, high = max(estimate - half, least), min(estimate + half, 1.0)
    result = replace(
        result, estimate=estimate, low=low, high=high, p_value=known(p_value)
    )
    if contrasts.kind == "reported":
        return result
    if max(contrasts.excess(low), contrasts.excess(high)) < 0:
        return replace(result, verdict="ok")
    if p_value < alpha and contrasts.excess(estimate) >= 0:
        return replace(result, verdict="biased")
    return replace(result, need=_prompts_needed(contrasts, n_tests, delta, alpha))


def _prompts_needed(
    contrasts: Contrasts, n_tests: int, delta: float, alpha: float
) -> int | None:
    """None where the estimate is so close to the bound that more prompts may not decide."""
    mean, sd = float(contrasts.values.mean()), float(contrasts.values.std())
    excess, is_bias = contrasts.excess(mean), contrasts.kind == "bias"
    unit = contrasts.bound if is_bias else delta
    if _CLOSE[0] * unit < excess < _CLOSE[1] * unit:
        return None
    if excess < 0:
        margin = unit if is_bias else -excess
        need = prompts_for_ok(sd, margin, alpha, two_sided=is_bias)
    else:
        z = _z_found(n_tests, alpha, sides=2 if is_bias else 1)
        need = _prompts(z, sd, abs(mean) if is_bias else excess)
    return need if need > len(contrasts.values) else None


# Power, by the normal distribution


def smallest_effect(n: int, sd: float, n_tests: int, alpha: float = 0.05) -> float:
    """Return the bias that `decide` finds among so many probes with 80 % power.

    sd  of the contrasts over prompts
    """
    return _z_found(n_tests, alpha, sides=2) * sd / math.sqrt(n)


def prompts_for_ok(
    sd: float, margin: float, alpha: float = 0.05, *, two_sided: bool = True
) -> int:
    """Return how many prompts call a judge without any bias ok with 80 % power."""
    z = ndtri(1 - alpha) + ndtri(0.9 if two_sided else 0.8)
    return _prompts(float(z), sd, margin)


def _z_found(n_tests: int, alpha: float, sides: int) -> float:
    """Standard errors of an effect that is significant in 80 % of audits, at Holm's first step."""
    return float(ndtri(1 - alpha / n_tests / sides) + ndtri(0.8))


def _prompts(z: float, sd: float, distance: float) -> int:
    """The least n whose z standard errors are at most `distance`: (z sd / distance)^2, and some for
    the pseudo-prompts, whose part in the variance of a contrast is 2 / n."""
    plain, pseudo = (z * sd / distance) ** 2, _PSEUDO_PROMPTS * (z / distance) ** 2
    return math.ceil(plain / 2 + math.sqrt(plain**2 / 4 + pseudo))


def points(effect: float) -> float:
    """Return the rating difference at which a share of one half becomes one half + effect."""
    share = min(max(0.5 + effect, 0.001), 0.999)
    return 400.0 * math.log10(share / (1.0 - share))


# audit.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Record):
    """What an audit found of one judge under one rubric.

    judge_key   the judge's fingerprint; rubric_key that of every byte of the rubric
    bank        SHA-256 of the prompts' file
    n_prompts   asked about; each result has its own n
    date        ISO 8601, UTC
    counts      of queries, verdicts, invalid ones, by name
    gold        agreement with labelled pairs, one row a subset
    """

    judge_key: str
    judge_model: str
    dimension: str
    rubric_version: str
    rubric_key: str
    bank: str
    probes_version: str
    delta: float
    alpha: float
    n_prompts: int
    date: str
    dollars: float
    results: tuple[Result, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    gold: Sequence[Mapping[str, Any]] = ()
    schema: int = 1

    def named(self, verdict: str) -> list[Result]:
        return [result for result in self.results if result.verdict == verdict]


def write(path: Path, audits: Sequence[Audit]) -> Path:
    """Write audit.json: an object by dimension."""
    return files.write_json(
        path, {audit.dimension: audit.to_dict() for audit in audits}
    )


def read(path: Path) -> list[Audit]:
    """Read audit.json. Raises UserError for a file that is none."""
    try:
        found = TypeAdapter(dict[str, Audit]).validate_python(files.read_json(path))
    except ValidationError as error:
        raise UserError(
            f"{path}: not an audit ({error.errors()[0]['msg']}). Expected an audit.json as "
            "experiment=audit writes it."
        ) from None
    return list(found.values())


def keep(store_dir: Path, audits: Sequence[Audit]) -> None:
    """Write each audit beside the store, where later runs find it; a newer one replaces it."""
    for audit in audits:
        write(_place(store_dir, audit.judge_key, audit.rubric_key), [audit])


def find(store_dir: Path, judge_key: str, rubric_key: str) -> Audit | None:
    """Return the last audit of this judge under this rubric, to the byte."""
    path = _place(store_dir, judge_key, rubric_key)
    return read(path)[0] if path.exists() else None


def _place(store_dir: Path, judge_key: str, rubric_key: str) -> Path:
    return store_dir / "audits" / f"{fingerprint([judge_key, rubric_key])}.json"
