"""What may be said of policies, as files, as metrics and as the table on the console."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.files import write_csv, write_json, write_whole
from elo_exp.oracle.ablation import AblationRow, summaries
from elo_exp.oracle.analysis import Analysis
from elo_exp.oracle.estimates import PolicyEstimate
from elo_exp.oracle.gates import REFUSE
from elo_exp.oracle.logged import Truth
from elo_exp.oracle.weights import EXTREME
from elo_exp.results import Plot

_MAX_EXTREME = 50  # weights of a policy that are listed
_LEGEND = (
    "± SE: over prompts, with what the number of labels adds. report: may be published as it stands; caution: with "
    "what is said beside it; refuse: the data do not tell. ESS: how many equally weighted rows the weights come to."
)
_COMPAT = "compat=cje-0.3: estimates and errors as that library gives them, which refuses nothing. See docs/oracle.md."


def write(
    run_dir: Path,
    analysis: Analysis,
    truth: Mapping[str, Truth],
    ablation: Sequence[AblationRow],
    plots: Sequence[Plot],
) -> list[Path]:
    """docs/oracle.md describes the files."""
    written = [
        write_json(
            run_dir / "estimates.json", [estimate.to_dict() for estimate in analysis.estimates]
        ),
        write_json(run_dir / "weight_diagnostics.json", diagnostics(analysis)),
        write_json(
            run_dir / "label_budget.json", [budget.to_dict() for budget in analysis.budgets]
        ),
        write_csv(run_dir / "extreme_weights.csv", list(extreme_weights(analysis))),
        *(write_whole(run_dir / "figures" / f"{plot.name}.png", plot.png) for plot in plots),
        *(write_whole(run_dir / "figures" / f"{plot.name}.svg", plot.svg) for plot in plots),
        *(write_csv(run_dir / "figures" / f"{plot.name}.csv", plot.rows) for plot in plots),
    ]
    if ablation:
        found = {
            "summary": [summary.to_dict() for summary in summaries(ablation)],
            "estimates": [row.to_dict() for row in ablation],
        }
        written.append(write_json(run_dir / "ablation.json", found))
    return written


def diagnostics(analysis: Analysis) -> dict[str, Any]:
    """Everything that the verdicts were made from."""
    weights = {w.policy: w.to_dict() for w in analysis.weights}
    calibration, labelled = analysis.calibration, analysis.calibration.labelled
    residual = labelled.label - calibration.cross_fitted(labelled)
    return {
        "policies": {
            overlap.policy: {
                "weights": weights.get(overlap.policy),
                "score_overlap": overlap.to_dict(),
                "transport": audit.to_dict(),
            }
            for overlap, audit in zip(analysis.overlaps, analysis.audits, strict=True)
        },
        "calibration": {
            "mode": calibration.mode,
            "n_labels": len(labelled),
            "label_share": len(labelled) / len(analysis.data.logged),
            "rmse_cross_fitted": float(np.sqrt((residual**2).mean())),
            "lowest_score": float(labelled.score.min()),
            "highest_score": float(labelled.score.max()),
            "curve": [
                {"index": float(index), "value": float(value)}
                for index, value in zip(
                    calibration.full.levels.knots, calibration.full.levels.levels, strict=True
                )
            ],
        },
    }


def extreme_weights(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Logged answers that a policy makes more than five times likelier or less likely, the furthest first."""
    data = analysis.data
    for policy in data.policies:
        if policy not in data.target_logprob:
            continue
        ratio = data.target_logprob[policy] - data.logging_logprob
        known = np.where(np.isfinite(ratio), np.abs(ratio), 0.0)
        for i in np.argsort(-known, kind="stable")[:_MAX_EXTREME]:
            if known[i] > math.log(EXTREME):
                yield {
                    "policy": policy,
                    "prompt_id": data.prompts[data.logged.prompt[i]],
                    "log_ratio": float(ratio[i]),
                    "logging_logprob": float(data.logging_logprob[i]),
                    "target_logprob": float(data.target_logprob[policy][i]),
                    "judge_score": float(data.logged.score[i]),
                }


def metrics(analysis: Analysis, truth: Mapping[str, Truth]) -> dict[str, float]:
    """Final values: estimate/<policy>/<estimator>, std_error/..., refused/..., ess/<policy>, overlap/<policy>."""
    found: dict[str, float | None] = {}
    for e in analysis.estimates:
        name = f"{e.policy}/{e.estimator}"
        found |= {
            f"estimate/{name}": e.value,
            f"std_error/{name}": e.std_error,
            f"refused/{name}": e.status == REFUSE,
        }
        if e.value is not None and e.policy in truth:
            found[f"error/{name}"] = e.value - truth[e.policy].mean
    for w in analysis.weights:
        found |= {f"ess/{w.policy}": w.ess, f"ess_calibrated/{w.policy}": w.ess_calibrated}
    found |= {f"overlap/{overlap.policy}": overlap.affinity for overlap in analysis.overlaps}
    return {name: float(value) for name, value in found.items() if value is not None}


def headline(analysis: Analysis, truth: Mapping[str, Truth]) -> float:
    """The root mean square error of what is not refused where the truth is known, else its mean standard error."""
    values = [(e.policy, e.value, e.std_error) for e in analysis.estimates if e.value is not None]
    errors = [value - truth[policy].mean for policy, value, _ in values if policy in truth]
    if errors:
        return math.sqrt(sum(error**2 for error in errors) / len(errors))
    return sum(error or 0.0 for _, _, error in values) / len(values) if values else 0.0


def table(analysis: Analysis, truth: Mapping[str, Truth]) -> str:
    """Which numbers may be used, and why not the others; a block for each policy."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    console = Console(file=text, width=120, markup=False)
    for policy in analysis.data.policies:
        console.print(_title(analysis, policy, truth.get(policy)), highlight=False)
        grid = Table(box=SIMPLE_HEAD)
        for column in ("estimator", "value", "± SE", "95 %", "n", "ESS"):
            grid.add_column(
                column, justify="left" if column == "estimator" else "right", no_wrap=True
            )
        grid.add_column("use", no_wrap=True)
        grid.add_column("why not", overflow="fold")
        for estimate in analysis.of(policy):
            grid.add_row(*_cells(estimate))
        console.print(grid)
    console.print(_COMPAT if analysis.options.compat else _LEGEND)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _title(analysis: Analysis, policy: str, truth: Truth | None) -> str:
    (overlap,) = (o for o in analysis.overlaps if o.policy == policy)
    (audit,) = (a for a in analysis.audits if a.policy == policy)
    weights = [w for w in analysis.weights if w.policy == policy]
    facts = [
        f"{w.n:,} logged answers{f', {w.n_failed:,} without log-probability' if w.n_failed else ''}"
        for w in weights
    ]
    facts += (
        [f"{len(analysis.data.fresh[policy]):,} fresh draws"]
        if policy in analysis.data.fresh
        else []
    )
    facts += [f"{len(analysis.calibration.labelled):,} labels"]
    checks = [f"overlap of judge scores {overlap.affinity:.2f}"]
    checks += [f"raw ESS {100 * w.ess / w.n:.3g} %" for w in weights if w.ess is not None]
    off = f" ({audit.residual:+.3f} ± {audit.half_width:.3f})" if audit.residual is not None else ""
    checks += [f"transport {audit.status.replace('_', ' ')}{off}"]
    checks += [f"truth {truth.mean:.4f}"] if truth is not None else []
    return f"{policy}: {', '.join(facts)}\n{', '.join(checks)}"


def _cells(e: PolicyEstimate) -> tuple[str, ...]:
    known = (
        e.value is not None
        and e.std_error is not None
        and e.ci_low is not None
        and e.ci_high is not None
    )
    return (
        e.estimator,
        f"{e.value:.4f}" if known else "-",
        f"{e.std_error:.4f}" if known else "-",
        f"{e.ci_low:.3f} .. {e.ci_high:.3f}{'*' if e.ci_clipped else ''}" if known else "-",
        f"{e.n:,}",
        "-" if e.ess is None else f"{e.ess:,.0f}",
        e.status,
        e.reason,
    )
