"""A Weights & Biases workspace as code: panels that compare the runs of a project, or of one group.

It uses the names that runs log, those of `report.tracked`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.report.findings import METHODS
from elo_exp.runs import FinishedRun

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

_COLUMNS = (
    "judge_model.value",
    "mode.value.name",
    "elo.value.k",
    "elo.value.n_perms",
    "entrants.value",
)
_SPEND = ("dollars", "judge_calls", "verdicts_stored")
_MAX_MODELS = 8  # those with the best ratings


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """What panels can show, because all runs have it."""

    dimensions: tuple[str, ...]
    models: tuple[str, ...]  # best first
    method: str  # whose intervals are shown
    has_elo: bool
    has_judge: bool
    figures: tuple[str, ...]


def logged(runs: Sequence[FinishedRun]) -> Logged:
    """Return what the first run logged and all others logged, too."""
    first = runs[0]
    dimensions = [d for d in first.dimensions if all(d in r.dimensions for r in runs)]
    places = list(product(runs, dimensions))
    methods = [
        method
        for method in first.methods(dimensions[0])
        if all(method in run.methods(d) for run, d in places)
    ]
    fitted = [method for method in methods if method != "elo"]
    method = "bradley_terry" if "bradley_terry" in fitted else (*fitted, "elo")[0]
    boards = [run.board(method, dimension) for run, dimension in places]
    models = [
        model
        for model in first.board(method, dimensions[0])
        if all(model in board and board[model].ci_low is not None for board in boards)
    ]
    files = [set(run.manifest.get("files", ())) for run in runs]
    figures = [f for f in sorted(set.intersection(*files)) if f.endswith(".png")]
    return Logged(
        dimensions=tuple(dimensions),
        models=tuple(models[:_MAX_MODELS]),
        method=method,
        has_elo="elo" in methods,
        has_judge=all(run.manifest.get("judge_quality") for run in runs),
        figures=tuple(path.removesuffix(".png") for path in figures),
    )


def workspace(
    found: Logged, *, entity: str, project: str, name: str, group: str | None
) -> Workspace:
    """Return the panels for the runs of a group, or of the whole project where it is None."""
    from wandb_workspaces import workspaces
    from wandb_workspaces.expr import Metric

    panels = {
        "Result, with 95 % intervals": (3, _result(found)),
        "Judge quality": (4, _judge(found)),
        "Order experiment": (3, _order_experiment(found)),
        "Verdicts": (1, _tables(found)),
        "Cost and progress": (3, _cost_and_progress()),
        "Figures of each run": (2, _figures(found)),
        "Settings": (1, _settings()),
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[
            workspaces.Section(
                name=title,
                panels=shown,
                is_open=True,
                layout_settings=workspaces.SectionLayoutSettings(
                    columns=columns, rows=2
                ),
            )
            for title, (columns, some) in panels.items()
            if (shown := list(some))
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=[Metric("Group") == group] if group else [],
            pinned_columns=[f"config:{key}" for key in _COLUMNS],
        ),
    )


def _overlay(key: str, title: str, x_label: str) -> Any:
    """The line charts that all runs have logged under a key, in one."""
    from wandb_workspaces.reports.v2.interface import CustomChart

    return CustomChart(
        query={"summaryTable": {"tableKey": f"{key}_table"}},
        chart_name="wandb/lineseries/v0",
        chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
        chart_strings={"title": title, "xname": x_label},
    )


def _result(found: Logged) -> Iterator[Any]:
    """All intervals in one chart, and those of each entrant run by run."""
    from wandb_workspaces.reports.v2.interface import BarPlot

    label = METHODS.get(found.method, found.method)
    for dimension in found.dimensions:
        yield _overlay(f"ratings/{dimension}", f"{dimension}: {label}", "rating")
    for dimension, model in product(found.dimensions, found.models):
        ends: list[Any] = [
            f"{found.method}{end}/{dimension}/{model}"
            for end in ("_ci_low", "", "_ci_high")
        ]
        yield BarPlot(title=f"{dimension}: {model}, {label}", metrics=ends)


def _order_experiment(found: Logged) -> Iterator[Any]:
    """The K sweeps of all runs in one chart, Elo by the K of each run, and running means."""
    from wandb_workspaces.reports.v2 import interface as wr

    for dimension in found.dimensions if found.has_elo else ():
        yield _overlay(f"k_sensitivity/{dimension}", f"{dimension}: Elo by K", "K")
        for model in found.models:
            yield wr.ScatterPlot(
                title=f"{dimension}: {model}",
                x=wr.Config("elo.k"),
                y=wr.SummaryMetric(f"elo/{dimension}/{model}"),
                log_x=True,
            )
        y: list[Any] = [f"trace/{dimension}/{model}" for model in found.models]
        title = f"{dimension}: running mean of Elo"
        yield wr.LinePlot(
            title=title, x="n_perms", y=y, log_x=True, title_x="permutations"
        )


def _judge(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import BarPlot

    for rate in JudgeQuality.RATES if found.has_judge else ():
        metrics: list[Any] = [f"judge/{name}/{rate}" for name in found.dimensions]
        yield BarPlot(title=rate.replace("_", " "), metrics=metrics)


def _tables(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import WeavePanelSummaryTable

    for name in ("leaderboard", *(("judge", "verdicts") if found.has_judge else ())):
        yield WeavePanelSummaryTable(table_name=name)


def _cost_and_progress() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import BarPlot, LinePlot

    for name in _SPEND:
        yield BarPlot(title=name.replace("_", " "), metrics=[f"usage/{name}"])
    for name in ("progress/judged", "progress/flips", "cost/dollars"):
        yield LinePlot(title=name, x="progress/seconds", y=[name])


def _figures(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import MediaBrowser

    for key in found.figures:
        title = key.removeprefix("figures/").replace("_", " ")
        yield MediaBrowser(title=title, media_keys=[key], num_columns=1)


def _settings() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import RunComparer

    yield RunComparer(diff_only="split")
