"""A Weights & Biases workspace as code: panels that lay the runs of a project, or of one group, side by side.

It names what runs log, as `report.artifacts.metrics` and the tracker call it, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.records import UserError
from elo_exp.report.findings import METHODS
from elo_exp.runs import FinishedRun

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Section, Workspace

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
    """What the runs have in common that panels can show."""

    dimensions: tuple[str, ...]
    models: tuple[str, ...]  # best first
    method: str  # whose intervals are shown
    has_elo: bool
    has_judge: bool
    figures: tuple[str, ...]


def logged(runs: Sequence[FinishedRun]) -> Logged:
    """What the first run logged, without what another did not."""
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
    """`group`: whose runs are shown; None for all of the project."""
    from wandb_workspaces import workspaces
    from wandb_workspaces.expr import Metric

    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[section for section in _sections(found) if section.panels],
        runset_settings=workspaces.RunsetSettings(
            filters=[Metric("Group") == group] if group else [],
            pinned_columns=[f"config:{key}" for key in _COLUMNS],
        ),
    )


def as_json(view: Workspace) -> dict[str, Any]:
    """As it is sent to the server. Nothing is sent."""
    spec = view._to_model().model_dump_json(by_alias=True, exclude_none=True)
    return dict(json.loads(spec))


def save(view: Workspace) -> str:
    """Its address on the server, in the account of the key where no entity is named. Raises UserError if it cannot be
    reached."""
    import wandb

    try:
        view.entity = view.entity or str(wandb.Api().default_entity)
        view.save()  # type: ignore[no-untyped-call]
        return str(view.url)
    except (wandb.errors.Error, OSError) as error:
        said = str(error).splitlines()[0]
        raise UserError(
            f"the workspace cannot be saved to Weights & Biases ({said}). The JSON file is there."
        ) from None


def _sections(found: Logged) -> Iterator[Section]:
    from wandb_workspaces.workspaces import Section, SectionLayoutSettings

    def section(name: str, panels: Iterator[Any], columns: int = 3) -> Section:
        shape = SectionLayoutSettings(columns=columns, rows=2)
        return Section(
            name=name, panels=list(panels), is_open=True, layout_settings=shape
        )

    yield section("Ratings, with 95 % intervals", _ratings(found))
    yield section("How Elo depends on K", _by_k(found))
    yield section("Were there enough match orders?", _traces(found))
    yield section("Can the judge be trusted?", _judge(found))
    yield section("What it cost", _spend(), columns=len(_SPEND))
    yield section("Figures of each run", _pictures(found), columns=2)
    yield section("In what the runs differ", _comparer(), columns=1)


def _ratings(found: Logged) -> Iterator[Any]:
    """Of each entrant, run by run: the ends of its interval and its rating."""
    from wandb_workspaces.reports.v2.interface import BarPlot

    for dimension in found.dimensions:
        for model in found.models:
            of = f"{dimension}/{model}"
            title = f"{dimension}: {model}, {METHODS.get(found.method, found.method)}"
            yield BarPlot(
                title=title,
                metrics=[
                    f"{found.method}{end}/{of}" for end in ("_ci_low", "", "_ci_high")
                ],
            )


def _by_k(found: Logged) -> Iterator[Any]:
    """The sweep over K of every run in one chart, and each run's own K."""
    from wandb_workspaces.reports.v2.interface import (
        Config,
        CustomChart,
        ScatterPlot,
        SummaryMetric,
    )

    for dimension in found.dimensions if "k_sensitivity" in found.figures else ():
        yield CustomChart(
            query={
                "summaryTable": {"tableKey": f"charts/k_sensitivity/{dimension}_table"}
            },
            chart_name="wandb/lineseries/v0",
            chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
            chart_strings={"title": f"{dimension}: Elo by K", "xname": "K"},
        )
    for dimension in found.dimensions if found.has_elo else ():
        for model in found.models:
            y = f"elo/{dimension}/{model}"
            yield ScatterPlot(
                title=f"{dimension}: {model}",
                x=Config("elo.k"),
                y=SummaryMetric(y),
                log_x=True,
            )


def _traces(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import LinePlot

    for dimension in found.dimensions if found.has_elo else ():
        y: list[Any] = [f"trace/{dimension}/{model}" for model in found.models]
        yield LinePlot(
            title=f"{dimension}: running mean Elo",
            x="n_perms",
            y=y,
            log_x=True,
            title_x="match orders",
        )


def _judge(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import BarPlot, WeavePanelSummaryTable

    if not found.has_judge:
        return
    for rate in JudgeQuality.RATES:
        metrics: list[Any] = [
            f"judge/{dimension}/{rate}" for dimension in found.dimensions
        ]
        yield BarPlot(title=rate.replace("_", " "), metrics=metrics)
    if found.figures:  # the jobs of a sweep that have none have no tables either
        yield WeavePanelSummaryTable(table_name="verdicts")


def _spend() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import BarPlot

    for name in _SPEND:
        yield BarPlot(title=name.replace("_", " "), metrics=[f"usage/{name}"])


def _pictures(found: Logged) -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import MediaBrowser

    for name in found.figures:
        yield MediaBrowser(
            title=name.replace("_", " "), media_keys=[f"figures/{name}"], num_columns=1
        )


def _comparer() -> Iterator[Any]:
    from wandb_workspaces.reports.v2.interface import RunComparer

    yield RunComparer(diff_only="split")
