"""Checks of a judge's quality, by dimension: what was measured, and whether it passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.data.battles import Battles

MAX_FLIPS = 0.10
FIRST_SHOWN = 0.45, 0.55
MAX_INVALID = 0.02
MISFIT = 0.10  # of a win rate, observed minus predicted
ALPHA = 0.05  # of the test of transitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one dimension.

    state  pass, caution (failed: the result needs care), note (worth knowing), unchecked
    value  None where it was not measured
    low, high  of a 95 % interval
    n, of  counts behind the value
    about  names or further numbers, by what they are
    """

    name: str
    state: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    of: int | None = None
    about: Mapping[str, Any] | None = None


def checks(
    battles: Battles,
    diagnosis: Mapping[str, Any],
    quality: JudgeQuality | None = None,
    leaders: Sequence[str] = (),
) -> list[Check]:
    """Check a judge on one dimension.

    diagnosis  of this dimension, as in Standings
    quality    None where the judgments are not known
    leaders    the two best entrants, whose difference is to hold at equal length
    """
    return [
        *_flips(battles, quality),
        *_position(diagnosis.get("position")),
        *_length(diagnosis.get("length"), leaders),
        *(_of_judgments(quality) if quality and quality.n_judgments else ()),
        *_fit(diagnosis.get("pair_residuals") or ()),
        *_transitivity(diagnosis.get("transitivity"), diagnosis.get("cycles")),
    ]


def _flips(battles: Battles, quality: JudgeQuality | None) -> Iterator[Check]:
    both_orders = battles.both_orders()
    n, of = int(battles.select(both_orders).is_inconsistent().sum()), both_orders.sum()
    if quality is not None:
        n, of = quality.n_flips, quality.n_two_order
    if quality is None and not of:
        return
    rate = n / of if of else None
    yield Check(
        name="flips",
        state="unchecked" if rate is None else _state(rate <= MAX_FLIPS),
        value=rate,
        n=n,
        of=int(of),
    )


def _of_judgments(quality: JudgeQuality) -> Iterator[Check]:
    invalid = quality.invalid_rate
    yield Check(
        name="invalid",
        state=_state(invalid is not None and invalid <= MAX_INVALID),
        value=invalid,
        n=quality.n_invalid,
        of=quality.n_judgments,
        about={"refused": quality.n_refused, "cut off": quality.n_cut_off},
    )
    yield Check(
        name="ties",
        state="pass" if quality.tie_rate is not None else "unchecked",
        value=quality.tie_rate,
        n=quality.n_equal_answers,
    )


def _state(is_passed: bool, otherwise: str = "caution") -> str:
    return "pass" if is_passed else otherwise


def _position(effect: Mapping[str, Any] | None) -> Iterator[Check]:
    """The interval is to meet the accepted range; without one, the share itself."""
    if not effect or effect["p_first"] is None:
        return
    value, low, high = effect["p_first"], effect["ci_low"], effect["ci_high"]
    least, most = (value, value) if low is None else (low, high)
    yield Check(
        name="first_shown",
        state=_state(least <= FIRST_SHOWN[1] and most >= FIRST_SHOWN[0]),
        value=value,
        low=low,
        high=high,
        n=effect["n_decisive"],
    )


def _length(
    control: Mapping[str, Any] | None, leaders: Sequence[str]
) -> Iterator[Check]:
    """Length fails where the lead needs it: better entrants may also write more."""
    effect = control["effect"] if control else {}
    if control is None or effect.get("effect") is None:
        return
    value, low, high = (
        _longer_wins(effect[name]) for name in ("effect", "ci_low", "ci_high")
    )
    ratings = {row["model"]: row for row in control["ratings"]}
    gap, gap_at_equal = (
        _gap(ratings, leaders, name) for name in ("rating", "rating_at_equal_length")
    )
    state = "pass"
    if low is not None and high is not None and not low <= 0.5 <= high:
        state = "note"
    if gap is not None and gap_at_equal is not None and gap_at_equal < gap / 2:
        state = "caution"
    yield Check(
        name="length",
        state=state,
        value=value,
        low=low,
        high=high,
        about={
            "scale": effect["scale"],
            "gap": gap,
            "gap_at_equal_length": gap_at_equal,
        },
    )


def _longer_wins(effect: float | None) -> float | None:
    """Win rate of the longer of two equally rated answers, where lengths differ by the scale."""
    return None if effect is None else (1 + math.tanh(effect * math.tanh(1) / 2)) / 2


def _gap(
    ratings: Mapping[str, Mapping[str, Any]], leaders: Sequence[str], name: str
) -> float | None:
    points = [ratings.get(model, {}).get(name) for model in leaders]
    known = [value for value in points if value is not None]
    return known[0] - known[1] if len(known) == 2 else None


def _fit(residuals: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    if not residuals:
        return
    worst = max(residuals, key=lambda row: abs(row["observed"] - row["expected"]))
    value = worst["observed"] - worst["expected"]
    yield Check(
        name="fit",
        state=_state(abs(value) <= MISFIT, "note"),
        value=value,
        about={"first": worst["model_a"], "second": worst["model_b"]},
    )


def _transitivity(
    test: Mapping[str, Any] | None, cycles: Mapping[str, Any] | None
) -> Iterator[Check]:
    if test and test["df"] > 0:
        p = test["p_value"]
        state = "unchecked" if p is None else _state(p > ALPHA, "note")
        yield Check(name="transitivity", state=state, value=p, about=test)
    if cycles and cycles["n_triples"]:
        n, of = cycles["n_cyclic_prompts"], cycles["n_prompts"]
        yield Check(
            name="cycles", state="pass", value=n / of if of else None, n=n, of=of
        )
