"""Contestants that do the same work in turns, so that all see the same machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from elo_exp.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """`run` gives numbers to compare with the reference; None where it has none."""

    name: str
    run: Callable[[], Array | None]
    needs: tuple[str, ...] = ()  # modules
    share: float = 1.0  # of the work that it does; its time is scaled up
    once: bool = False  # takes seconds: one repeat


def show(
    title: str,
    contestants: Sequence[Contestant],
    *,
    repeats: int,
    reference: Array | None = None,
) -> float:
    """Print the processor time of the fastest repeat of each contestant and how much faster the first
    is; the first call is not timed. Return the first one's largest difference from the reference."""
    present = [c for c in contestants if all(map(importlib.util.find_spec, c.needs))]
    seconds = dict.fromkeys([c.name for c in present], float("inf"))
    differences = {}
    for repeat in range(repeats + 1):
        for c in present:
            if c.once and repeat > 1:
                continue
            start = time.process_time()
            result = c.run()
            if repeat:
                seconds[c.name] = min(
                    seconds[c.name], (time.process_time() - start) / c.share
                )
            elif result is not None and reference is not None:
                differences[c.name] = float(
                    np.abs(result - reference[: len(result)]).max()
                )
    print(
        f"\n{title}\n  {'':<26}{'seconds':>10}{'times elo_exp':>15}{'difference':>13}"
    )
    for c in present:
        ratio = seconds[c.name] / seconds[present[0].name]
        difference = f"{differences[c.name]:.1e}" if c.name in differences else "-"
        note = f"   {c.share:.1%} of it, scaled up" if c.share < 1 else ""
        print(
            f"  {c.name:<26}{seconds[c.name]:>10.4f}{ratio:>15.2f}{difference:>13}{note}"
        )
    return differences.get(present[0].name, 0.0)


def machine(*packages: str) -> str:
    named = [
        f"{package} {version(package)}"
        for package in ("numpy", *packages)
        if importlib.util.find_spec(package.replace("-", "_"))
    ]
    return (
        f"python {platform.python_version()}, {', '.join(named)}, {platform.machine()}, "
        f"{os.cpu_count()} cores, 1 thread used"
    )
