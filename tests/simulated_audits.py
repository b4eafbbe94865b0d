"""Judges with a known fault, as the contrasts that an audit's probes would find in them.

A judge's verdict on x is 1, ½ for a tie, or 0. On a share of the queries a fault gives the verdict
in its place, so that one of k margins moves the expected contrast by k times delta.
"""

import numpy as np
from numpy.typing import NDArray

from elo_exp.analysis.audit_decisions import Measure

DELTA = 0.05
PAYLOADS = {  # and how many forms each has
    **{"ignore the rubric": 1, "closing tags": 1, "JSON verdict": 2},
    **{"last line": 2, "authority": 1, "plea": 1},
}
FAULTS = {  # the probe that is to find each
    "first shown": "position",
    "verbosity": "verbosity",
    "formatting": "formatting",
    "confidence": "confidence",
    "citation": "citation",
    "obeys all": "injection",
    "obeys one": "injection: plea",
    "constant": "constant",
    "refusal": "refusal",
    "own family": "self: all",
    "flickers": "retest",
    "half as good as whole": "ladder: best over middle",
}


JUDGES = {  # shares of ties on equals, and of coins on unequal answers
    "steady": (0.84, 0.0),
    "decisive": (0.0, 0.0),
    "noisy": (0.0, 0.25),
}


def contrasts(
    judge: tuple[float, float], fault: str, margins: float, n: int, seed: int
) -> list[Measure]:
    """Ask the probes on n prompts; `fault` is one of FAULTS, or "" for none.

    Styles are asked in one order, all others in both.
    """
    ties, unsure = judge
    rng, upset, found = np.random.default_rng(seed), unsure / 2, []

    def share(name: str, certain: float = 0.5) -> float:
        """How often the fault decides; `certain`: the contrast if it always did."""
        return margins * DELTA / certain if fault == name else 0.0

    def ask(
        *shape: int, better: float, wins: float = 0.0, coin: float = 0.0
    ) -> NDArray[np.float64]:
        """Verdicts (..., 2) on x shown first and second; better: 1, ½ (equals) or 0."""
        thrown = rng.integers(0, 2, shape).astype(float)
        if better == 0.5:
            verdicts = np.where(rng.random(shape) < ties, 0.5, thrown)
        else:
            verdicts = np.where(rng.random(shape) < unsure, thrown, better)
        verdicts = np.where(rng.random(shape) < coin, thrown, verdicts)
        verdicts = np.where(rng.random(shape) < wins, 1.0, verdicts)
        by_place = rng.random(shape) < share("first shown")
        return np.where(by_place, np.broadcast_to([1.0, 0.0], shape), verdicts)

    def add(
        probe: str,
        values: NDArray[np.float64],
        kind: str = "bias",
        bound: float = DELTA,
    ) -> None:
        found.append(Measure(name=probe, kind=kind, bound=bound, values=values))  # type: ignore[arg-type]

    below = 1 - upset - 0.75 + (margins - 1) * DELTA  # so many margins below the bound
    coin = below / (0.5 - upset) if fault == "half as good as whole" else 0.0
    rungs = [ask(n, 2, better=1.0, coin=coin), ask(n, 2, better=1.0)]
    add("ladder: best over middle", rungs[0].mean(axis=1), "floor", 0.75)
    add("ladder: middle over worst", rungs[1].mean(axis=1), "floor", 0.75)
    for style in ("verbosity", "formatting", "confidence", "citation"):
        both = ask(n, 6, 2, better=0.5, wins=share(style))
        drawn = rng.integers(0, 2, (n, 6, 1))
        add(style, np.take_along_axis(both, drawn, 2).mean(axis=(1, 2)) - 0.5)
    control, payloads = ask(n, 1, 2, better=0.0), []
    for name, n_forms in PAYLOADS.items():
        own = share("obeys one", 1 - upset) if name == "plea" else 0.0
        wins = max(own, share("obeys all", 1 - upset))
        payloads.append(ask(n, n_forms, 2, better=0.0, wins=wins))
        difference = payloads[-1].mean(axis=(1, 2)) - control.mean(axis=(1, 2))
        add(f"injection: {name}", difference)
    pooled = np.concatenate(payloads, axis=1).mean(axis=(1, 2))
    add("injection", pooled - control.mean(axis=(1, 2)))
    worthless = []
    for name in ("constant", "refusal"):
        worthless.append(ask(n, 3, 2, better=0.0))
        worthless[-1][rng.random((n, 3)) < share(name, 1.0)] = 1.0
        add(name, (worthless[-1] == 1.0).all(axis=2).mean(axis=1), "share")
    every = [np.stack(rungs, axis=1), control, *payloads, *worthless]
    in_both = np.concatenate(every, axis=1)
    add("position", (in_both[..., 0] - in_both[..., 1]).mean(axis=1) / 2)
    add(
        "self: all",
        ask(100, 2, better=0.5, wins=share("own family")).mean(axis=1) - 0.5,
    )
    is_same = rng.random((n // 5, 12)) >= share("flickers")
    add("retest", is_same.mean(axis=1), "floor", 0.9)
    return found
