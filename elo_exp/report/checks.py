"""Checks of a judge's quality, by dimension: what was measured, and whether it passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.responses import ResponseCheck
from elo_exp.data.battles import Battles

MAX_FLIPS = 0.10
FIRST_SHOWN = 0.45, 0.55
MAX_INVALID = 0.02
MISFIT = 0.10  # of a win rate, observed minus predicted
ALPHA = 0.05  # of the test of transitivity
_FATAL = ("injection", "constant", "ladder")  # probes


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
    responses: Sequence[ResponseCheck] = (),
) -> list[Check]:
    """Check a judge on one dimension.

    diagnosis  of this dimension, as in Standings
    quality    None where the judgments are not known
    responses  what is odd about the entrants' answers; empty where they are not known
    leaders    the two best entrants, if their difference is significant: it is to hold at equal length
    """
    return [
        *_flips(battles, quality),
        *_position(diagnosis.get("position")),
        *_length(diagnosis.get("length"), leaders),
        *(_of_judgments(quality) if quality and quality.n_judgments else ()),
        *_invalid_by_entrant(diagnosis.get("invalid") or ()),
        *_responses(responses, leaders[:1]),
        *_audit(diagnosis.get("audit")),
        *_fit(diagnosis.get("pair_residuals") or ()),
        *_transitivity(diagnosis.get("transitivity"), diagnosis.get("cycles")),
    ]


def _flips(battles: Battles, quality: JudgeQuality | None) -> Iterator[Check]:
    """Judged in one order alone, flips cannot be measured: the result needs care."""
    if quality is not None:
        n, of = quality.n_flips, quality.n_two_order
        in_one_order = quality.n_one_order > 0
    else:
        both = battles.select(battles.both_orders())
        n, of = int(both.is_inconsistent().sum()), len(both)
        in_one_order = bool(battles.one_order().any())
        if not of and not in_one_order:
            return
    rate = n / of if of else None
    state = "caution" if in_one_order else "unchecked"
    yield Check(
        name="flips",
        state=state if rate is None else _state(rate <= MAX_FLIPS),
        value=rate,
        n=n,
        of=of,
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


def _invalid_by_entrant(rows: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Failures that fall on one entrant move its rating."""
    if not any(row["n_invalid"] for row in rows):
        return
    worst = max(rows, key=lambda row: row["share"] or 0.0)
    differing = [row for row in rows if row["differs"]]
    yield Check(
        name="invalid_by_entrant",
        state=_state(not differing),
        value=worst["share"],
        about={"worst": worst, "differing": differing},
    )


def _responses(
    found: Sequence[ResponseCheck], leader: Sequence[str]
) -> Iterator[Check]:
    """One answer to many prompts is no answer to any of them, however the judge ranks it."""
    if not found:
        return
    flagged = {
        row.model: {name: getattr(row, name) for name in row.flags}
        for row in found
        if row.flags
    }
    state = "caution" if flagged.keys() & set(leader) else "note"
    yield Check(
        name="responses",
        state=state if flagged else "pass",
        value=len(flagged) / len(found),
        about={"flagged": flagged, "cut off": sum(row.n_cut_off for row in found)},
    )


def _audit(found: Mapping[str, Any] | None) -> Iterator[Check]:
    """A judge that obeys an answer, or does not tell good from bad, decides nothing."""
    if found is None:
        return
    biased = [
        row["probe"] for row in found.get("results", ()) if row["verdict"] == "biased"
    ]
    is_fatal = any(probe.partition(":")[0] in _FATAL for probe in biased)
    state = "caution" if is_fatal else "note" if biased else "pass"
    is_known = "results" in found
    yield Check(
        name="audit",
        state=state if is_known else "unchecked",
        value=float(len(biased)) if is_known else None,
        about=found,
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
    """Length fails where it takes away the lead's significance or more than half of its size.

    Better entrants may also write more, so a preference for length alone is no failure.
    """
    effect = control["effect"] if control else {}
    if control is None or effect.get("effect") is None:
        return
    value, low, high = (
        _longer_wins(effect[name]) for name in ("effect", "ci_low", "ci_high")
    )
    lead, gap = control.get("lead") or {}, _gap(control["ratings"], leaders)
    is_of_leaders = [lead.get("first"), lead.get("second")] == [*leaders]
    at_equal_length = lead["difference"] if is_of_leaders else None
    state = "pass"
    if low is not None and high is not None and not low <= 0.5 <= high:
        state = "note"
        if gap is not None and at_equal_length is not None:
            is_significant = (lead["ci_low"] or 0.0) > 0.0
            holds = is_significant and at_equal_length >= gap / 2
            state = "note" if holds else "caution"
    yield Check(
        name="length",
        state=state,
        value=value,
        low=low,
        high=high,
        about={
            "scale": effect["scale"],
            "gap": gap,
            "gap_at_equal_length": at_equal_length,
        },
    )


def _longer_wins(effect: float | None) -> float | None:
    """Win rate of the longer of two equally rated answers, where lengths differ by the scale."""
    return None if effect is None else (1 + math.tanh(effect * math.tanh(1) / 2)) / 2


def _gap(ratings: Sequence[Mapping[str, Any]], leaders: Sequence[str]) -> float | None:
    """How far the first is ahead of the second by the same games, length left in."""
    known = {row["model"]: row["rating"] for row in ratings}
    points = [known.get(model) for model in leaders]
    found = [value for value in points if value is not None]
    return found[0] - found[1] if len(found) == 2 else None


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
