"""A Weights & Biases workspace as code: panels that compare the runs of a project, or of one group.

It uses the names that runs log, those of `report.artifacts.metrics` and of the tracker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.records import UserError
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
_PICTURES = (
    "ratings",
    "pairwise_winrates",
    "predicted_and_observed",
    "k_sensitivity",
    "permutation_traces",
    "length_effect",
)
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
    dimensions = tuple(
        d for d in first.dimensions if all(d in r.dimensions for r in runs)
    )
    methods = [
        m
        for m in first.methods(dimensions[0])
        if all(m in r.methods(d) for r in runs for d in dimensions)
    ]
    method = next(
        (m for m in ("bradley_terry", *methods) if m in methods and m != "elo"), "elo"
    )
    models = [
        model
        for model, rating in first.board(method, dimensions[0]).items()
        if rating.rating is not None
        and all(_is_rated(r, method, d, model) for r in runs for d in dimensions)
    ]
    return Logged(
        dimensions=dimensions,
        models=tuple(models[:_MAX_MODELS]),
        method=method,
        has_elo="elo" in methods,
        has_judge=all(r.manifest.get("judge_quality") for r in runs),
        figures=tuple(
            f
            for f in _PICTURES
            if all((r.folder / f"figures/{f}.png").is_file() for r in runs)
        ),
    )


def _is_rated(r: FinishedRun, method: str, dimension: str, model: str) -> bool:
    rating = r.board(method, dimension).get(model)
    return rating is not None and rating.ci_low is not None


def workspace(
    found: Logged, *, entity: str, project: str, name: str, group: str | None
) -> Workspace:
    """Return the panels for the runs of a group, or of the whole project where it is None."""
    from wandb_workspaces import workspaces
    from wandb_workspaces.expr import Metric

    panels = {
        "Result, with 95 % intervals": (3, _ratings(found)),
        "Elo by K": (3, _by_k(found)),
        "Order experiment": (3, _traces(found)),
        "Judge quality": (3, _judge(found)),
        "Cost": (len(_SPEND), _spend()),
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


def as_json(view: Workspace) -> dict[str, Any]:
    """Return what is sent to the server, and send nothing."""
    spec = view._to_model().model_dump_json(by_alias=True, exclude_none=True)
    return dict(json.loads(spec))


def save(view: Workspace) -> str:
    """Save the workspace, in the account of the key where no entity is named; return its address.

    Raises UserError where the server cannot be reached.
    """
    import wandb

    try:
        view.entity = view.entity or str(wandb.Api().default_entity)
        view.save()  # type: ignore[no-untyped-call]
        return str(view.url)
    except (wandb.errors.Error, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the workspace cannot be saved to Weights & Biases ({reason}). The JSON file is there."
        ) from None


def _ratings(found: Logged) -> Iterator[Any]:
    """For each entrant the ends of its interval and its rating, run by run."""
    from wandb_workspaces.reports.v2.interface import BarPlot

    label = METHODS.get(found.method, found.method)
    for dimension, model in product(found.dimensions, found.models):
        place = f"{dimension}/{model}"
        ends: list[Any] = [
            f"{found.method}{end}/{place}" for end in ("_ci_low", "", "_ci_high")
        ]
        yield BarPlot(title=f"{dimension}: {model}, {label}", metrics=ends)


def _by_k(found: Logged) -> Iterator[Any]:
    """The K sweeps of all runs in one chart, and Elo by the K of each run."""
    from wandb_workspaces.reports.v2 import interface as wr

    for dimension in found.dimensions if "k_sensitivity" in found.figures else ():
        table = {"tableKey": f"charts/k_sensitivity/{dimension}_table"}
        yield wr.CustomChart(
            query={"summaryTable": table},
            chart_name="wandb/lineseries/v0",
            chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
            chart_strings={"title": f"{dimension}: Elo by K", "xname": "K"},
        )
    models = found.models if found.has_elo else ()
    for dimension, model in product(found.dimensions, models):
        yield wr.ScatterPlot(
            title=f"{dimension}: {model}",
            x=wr.Config("elo.k"),
            y=wr.SummaryMetric(f"elo/{dimension}/{model}"),
            log_x=True,
        )


def _traces(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import LinePlot

    for dimension in found.dimensions if found.has_elo else ():
        y: list[Any] = [f"trace/{dimension}/{model}" for model in found.models]
        title = f"{dimension}: running mean of Elo"
        yield LinePlot(
            title=title, x="n_perms", y=y, log_x=True, title_x="permutations"
        )


def _judge(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2 import interface as wr

    for rate in JudgeQuality.RATES if found.has_judge else ():
        metrics: list[Any] = [f"judge/{name}/{rate}" for name in found.dimensions]
        yield wr.BarPlot(title=rate.replace("_", " "), metrics=metrics)
    if (
        found.has_judge and found.figures
    ):  # jobs of a sweep without figures log no tables
        yield wr.WeavePanelSummaryTable(table_name="verdicts")


def _spend() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import BarPlot

    for name in _SPEND:
        yield BarPlot(title=name.replace("_", " "), metrics=[f"usage/{name}"])


def _figures(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import MediaBrowser

    for name in found.figures:
        title, keys = name.replace("_", " "), [f"figures/{name}"]
        yield MediaBrowser(title=title, media_keys=keys, num_columns=1)


def _settings() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import RunComparer

    yield RunComparer(diff_only="split")
