"""An audit of a judge: its plan, and its results on the console and as a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.audit import Measure, prompts_for_ok, smallest_effect
from elo_exp.console import text_table
from elo_exp.report.page import text


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One dimension: what audit.json and verdicts.jsonl have of it, and what it rests on."""

    audit: Mapping[str, Any]
    verdicts: Sequence[Mapping[str, Any]]
    measures: Sequence[Measure]


def plan_text(measured: Mapping[str, Sequence[Measure]]) -> str:
    """Return what each probe can find, and whether it can be called ok.

    measured  by dimension, of a simulated judge
    """
    cells = []
    for dimension, measures in measured.items():
        decided = [measure for measure in measures if measure.kind != "reported"]
        for measure in decided:
            values, is_bias = measure.values, measure.is_bias
            n, sd = len(values), float(values.std())
            effect = smallest_effect(n, sd, len(decided))
            # A judge without a fault varies in biases alone.
            margin = abs(
                measure.bound - (measure.kind == "floor" and measure.bound > 0)
            )
            need = prompts_for_ok(sd * is_bias, margin, two_sided=is_bias)
            reach = "yes" if need <= n else f"from {need:,}"
            cells.append([dimension, measure.name, f"{n:,}", f"{effect:.2f}", reach])
    head = ["dimension", "probe", "prompts", "finds", "ok in reach"]
    table = text_table(head, cells, text=["probe"])
    return text("audit_plan", table=table)
