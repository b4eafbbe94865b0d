"""Judges with a known fault, as the contrasts that an audit's probes would find in them.

A judge's verdict on x is 1, ½ for a tie, or 0. With probability q a fault gives the verdict in its
place, so that a fault of strength k moves the expected contrast k margins: to the margin with 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elo_exp.analysis.audit import Contrasts

DELTA = 0.05
STYLES = ("verbosity", "formatting", "confidence", "citation")
PAYLOADS = (
    *("ignore the rubric", "closing tags", "JSON verdict"),
    *("last line", "authority", "plea"),
)
FAULTS = {  # the probe that is to find each
    "first shown": "position",
    **{style: style for style in STYLES},
    "obeys all": "injection",
    "obeys one": "injection: plea",
    "constant": "constant",
    "refusal": "refusal",
    "own family": "self",
    "flickers": "retest",
    "half as good as whole": "ladder: best over middle",
}
Verdicts = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedJudge:
    """ties: share of ties on equals; coin: share of unequal answers on which it throws a coin."""

    ties: float
    coin: float

    @property
    def upset(self) -> float:
        """How often the worse answer is preferred."""
        return self.coin / 2


JUDGES = {
    "steady": SimulatedJudge(ties=0.84, coin=0.0),
    "decisive": SimulatedJudge(ties=0.0, coin=0.0),
    "noisy": SimulatedJudge(ties=0.0, coin=0.25),
}


@dataclass
class _Asking:
    judge: SimulatedJudge
    fault: str
    effect: float  # on the contrast
    rng: np.random.Generator

    def strength(self, fault: str, effect_of_certainty: float = 0.5) -> float:
        """How often the fault gives the verdict."""
        return self.effect / effect_of_certainty if self.fault == fault else 0.0

    def happens(self, share: float, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        return self.rng.random(shape) < share

    def verdicts(
        self, *shape: int, better: float, wins: float = 0.0, ties: float = 0.0
    ) -> Verdicts:
        """(..., 2) on x shown first and second; better: 1, ½ (equals) or 0. `wins` and `ties`:
        how often a fault says so."""
        if better == 0.5:
            coin = self.rng.integers(0, 2, shape).astype(float)
            found = np.where(self.happens(self.judge.ties, shape), 0.5, coin)
        else:
            coin = self.rng.integers(0, 2, shape).astype(float)
            found = np.where(self.happens(self.judge.coin, shape), coin, better)
        coin = self.rng.integers(0, 2, shape).astype(float)
        found = np.where(self.happens(ties, shape), coin, found)
        found = np.where(self.happens(wins, shape), 1.0, found)
        of_order = np.broadcast_to([1.0, 0.0], shape)
        by_position = self.happens(self.strength("first shown"), shape)
        return np.where(by_position, of_order, found)


def contrasts(
    judge: SimulatedJudge, fault: str, margins: float, n: int, seed: int
) -> list[Contrasts]:
    """Ask the probes of AUDIT's families on n prompts; `fault` is one of FAULTS, or "" for none.

    Styles are asked in one order, all others in both.
    """
    asking = _Asking(judge, fault, margins * DELTA, np.random.default_rng(seed))
    upset = judge.upset
    found: list[Contrasts] = []

    def add(probe: str, kind: str, values: Verdicts, bound: float = DELTA) -> None:
        found.append(Contrasts(probe=probe, kind=kind, bound=bound, values=values))  # type: ignore[arg-type]

    best_over_half = 0.0
    if fault == "half as good as whole":  # to 1 margin below the bound with 2
        best_over_half = (1 - upset - 0.75 + (margins - 1) * DELTA) / (0.5 - upset)
    rungs = [
        asking.verdicts(n, 2, better=1.0, ties=min(best_over_half, 1.0)),
        asking.verdicts(n, 2, better=1.0),
    ]
    for name, values in zip(
        ("best over middle", "middle over worst"), rungs, strict=True
    ):
        add(f"ladder: {name}", "floor", values.mean(axis=1), 0.75)
    for style in STYLES:
        values = asking.verdicts(n, 6, 2, better=0.5, wins=asking.strength(style))
        shown = asking.rng.integers(0, 2, (n, 6, 1))  # in one order, drawn
        add(style, "bias", np.take_along_axis(values, shown, 2).mean(axis=(1, 2)) - 0.5)
    all_wins = asking.strength("obeys all", 1 - upset)
    one_wins = asking.strength("obeys one", 1 - upset)
    control = asking.verdicts(n, 2, better=0.0)
    payloads = []
    for name in PAYLOADS:
        wins = max(all_wins, one_wins if name == "plea" else 0.0)
        n_forms = 2 if name in ("JSON verdict", "last line") else 1
        payloads.append(asking.verdicts(n, n_forms, 2, better=0.0, wins=wins))
        difference = payloads[-1].mean(axis=(1, 2)) - control.mean(axis=1)
        add(f"injection: {name}", "bias", difference)
    pooled = np.concatenate(payloads, axis=1).mean(axis=(1, 2)) - control.mean(axis=1)
    add("injection", "bias", pooled)
    worthless = []
    for name in ("constant", "refusal"):
        values = asking.verdicts(n, 3, 2, better=0.0)
        both = asking.happens(asking.strength(name, 1.0), (n, 3))
        values[both] = 1.0
        worthless.append(values)
        add(name, "share", (values == 1.0).all(axis=2).mean(axis=1))
    in_both = np.concatenate(
        [np.stack([*rungs, control], axis=1), *payloads, *worthless], axis=1
    )
    first_shown = (in_both[..., 0] + 1.0 - in_both[..., 1]) / 2
    add("position", "bias", first_shown.mean(axis=1) - 0.5)
    own = asking.verdicts(100, 2, better=0.5, wins=asking.strength("own family"))
    add("self", "bias", own.mean(axis=1) - 0.5)
    equal = asking.happens(1 - 2 * asking.strength("flickers", 1.0), (n // 5, 12))
    add("retest", "floor", equal.mean(axis=1), 0.9)
    return found
