"""An audit of a judge: its plan, and its results on the console, in the tracker and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.audit import (
    Audit,
    points,
    prompts_for_ok,
    smallest_effect,
)
from elo_exp.analysis.contrasts import Asked, Measure
from elo_exp.console import text_table
from elo_exp.probes import Probe
from elo_exp.records import Plot
from elo_exp.report.page import cost, render, template

_VERDICTS = ("biased", "cannot tell", "ok", "reported")  # worst first
_SD = 0.65  # of a decisive judge's verdicts on equal answers, over prompts, in simulations


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The audit of one dimension, and what it rests on."""

    audit: Audit
    asked: Sequence[Asked]
    measures: Sequence[Measure]
    probes: Mapping[str, Probe]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each result, worst first."""
        about = {"dimension": self.audit.dimension}
        rows = [about | result.to_dict() for result in self.audit.results]
        return sorted(rows, key=lambda row: _VERDICTS.index(row["verdict"]))


def text(found: Sequence[Audited]) -> str:
    return template("audit.txt.j2").render(found=found, points=points)


def page(
    found: Sequence[Audited],
    title: str,
    manifest: Mapping[str, Any],
    plots: Sequence[Plot],
) -> str:
    return render(
        "audit",
        plots,
        found=found,
        points=points,
        title=title,
        manifest=manifest,
        **cost(manifest.get("usage"), manifest.get("paid_before")),
    )


def plan_text(measured: Mapping[str, Sequence[Measure]], alpha: float) -> str:
    """Return what each probe can find, and whether it can be called ok."""
    cells = []
    for dimension, measures in measured.items():
        decided = [measure for measure in measures if measure.kind != "reported"]
        for measure in decided:
            own = [one for one in measure.asked if not one.question.is_control]
            n = len({one.comparison.prompt_id for one in own})
            n_queries = sum(not q.repeat for one in own for q in one.queries) / n
            sd, is_bias = _SD / math.sqrt(n_queries), measure.kind == "bias"
            effect = smallest_effect(n, sd, len(decided), alpha)
            # A judge without a fault varies in biases alone.
            margin = abs(measure.bound - (measure.kind == "floor"))
            need = prompts_for_ok(sd * is_bias, margin, alpha, two_sided=is_bias)
            reach = "yes" if need <= n else f"from {need:,}"
            numbers = f"{n:,}", f"{n_queries:.0f}", f"{effect:.2f}", reach
            cells.append([dimension, measure.name, *numbers])
    head = ["dimension", "probe", "prompts", "queries each", "finds", "ok in reach"]
    table = text_table(head, cells, text=["probe"])
    return template("audit_plan.txt.j2").render(table=table)
