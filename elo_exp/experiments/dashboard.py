"""A Weights & Biases workspace for the runs of a project or a sweep; it needs a key.

python -m elo_exp experiment=dashboard 'runs=[outputs/multirun_...]'
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, runtime_checkable

from elo_exp.analysis.judge_quality import RATES
from elo_exp.experiments import Context, Report
from elo_exp.records import UserError
from elo_exp.runs.reading import FinishedRun, read_runs

_KINDS = ("tournament", "rate")  # whose metrics have the same names
_SETTINGS = (
    *("judge_model.value", "mode.value.name", "elo.value.k", "elo.value.n_perms"),
    "entrants.value",
)
_SPEND = ("dollars", "judge_calls", "verdicts_stored")
_PROGRESS = ("progress/judged", "progress/flips", "cost/dollars")
_MAX_MODELS = 8  # those with the best ratings


@runtime_checkable
class Project(Protocol):
    """A tracker whose runs are kept together on a server."""

    project: str
    entity: str | None

    @property
    def is_online(self) -> bool:
        """Whether a key is at hand, and nobody wishes to stay offline."""


@dataclass(kw_only=True)
class DashboardSettings:
    group: str | None


@dataclass(kw_only=True)
class Dashboard:
    """Never runs: the workspace is saved in place of a run."""

    runs: list[str]
    dashboard: DashboardSettings

    def dry_run(self, context: Context) -> str:
        tracker, group = context.tracker, self.dashboard.group
        if not isinstance(tracker, Project):
            raise UserError(
                "tracker: has no workspaces. A dashboard is for tracker=wandb; trackio has its own."
            )
        if importlib.util.find_spec("wandb_workspaces") is None:
            raise UserError(
                "dashboard: needs wandb-workspaces, which is not installed: pip install "
                "'elo-exp[dashboard]'."
            )
        chosen, dimensions = _read(self.runs)
        if not tracker.is_online:
            raise UserError(
                "tracker: a workspace is saved to Weights & Biases, and found no key, or offline "
                "mode. Set WANDB_API_KEY, or give `wandb login`, and tracker.mode=online."
            )
        import wandb
        from wandb_workspaces import workspaces
        from wandb_workspaces.expr import Metric

        panels = _panels(chosen, dimensions)
        try:
            view = workspaces.Workspace(
                entity=tracker.entity or str(wandb.Api().default_entity),
                project=tracker.project,
                name=f"elo_exp {group or tracker.project}",
                sections=[
                    workspaces.Section(
                        name=title,
                        panels=some,
                        is_open=True,
                        layout_settings=workspaces.SectionLayoutSettings(
                            columns=columns, rows=2
                        ),
                    )
                    for title, (columns, some) in panels.items()
                    if some
                ],
                runset_settings=workspaces.RunsetSettings(
                    filters=[Metric("Group") == group] if group else [],
                    pinned_columns=[f"config:{key}" for key in _SETTINGS],
                ),
            )
            view.save()  # type: ignore[no-untyped-call]
        except (wandb.errors.Error, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"tracker: Weights & Biases does not save the workspace ({reason}). Check "
                "WANDB_API_KEY, tracker.entity and tracker.project."
            ) from None
        return str(view.url)

    def run(self, context: Context) -> Report:
        raise NotImplementedError("experiment=dashboard saves a workspace only")


def _read(folders: Sequence[str]) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs and the dimensions that all have. Raises UserError where they share none."""
    if not folders:
        raise UserError(
            "runs: names no run folder. Name a sweep, or some runs of the project: "
            "'runs=[DIR1,DIR2]'."
        )
    chosen, _ = read_runs(folders)
    for r in chosen:
        kind = r.manifest.get("experiment")
        if kind not in _KINDS:
            raise UserError(
                f"runs: {r.folder} is of experiment={kind}. Expected runs of {' or '.join(_KINDS)}."
            )
    if not chosen:
        raise UserError(
            "runs: found no finished run. Name a sweep with finished jobs, or some runs."
        )
    dimensions = [d for d in chosen[0].boards if all(d in r.boards for r in chosen)]
    if not dimensions:
        raise UserError(
            "runs: they have no dimension in common. Name runs that share one."
        )
    return chosen, dimensions


def _panels(
    chosen: Sequence[FinishedRun], dimensions: Sequence[str]
) -> dict[str, tuple[int, list[Any]]]:
    """Return by section the number of columns and the panels of what all runs have logged.

    Its names are those of `report.artifacts`.
    """
    from wandb_workspaces.reports.v2 import interface as wr

    def overlay(key: str, title: str, x_label: str) -> wr.CustomChart:
        """The line charts that all runs have logged under a key, in one."""
        return wr.CustomChart(
            query={"summaryTable": {"tableKey": f"{key}_table"}},
            chart_name="wandb/lineseries/v0",
            chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
            chart_strings={"title": title, "xname": x_label},
        )

    first, places = chosen[0], list(product(chosen, dimensions))
    method = first.primary(dimensions[0])
    label = first.stored(method, dimensions[0]).get("label", method)
    boards = [r.board(method, dimension) for r, dimension in places]
    models = [
        model
        for model in boards[0]
        if all(model in board and board[model].ci_low is not None for board in boards)
    ][:_MAX_MODELS]
    lines = list(product(dimensions, models))
    is_judged = all(r.manifest.get("judge_quality") for r in chosen)
    has_elo = all(r.board("elo", dimension) for r, dimension in places)
    files = set.intersection(*(set(r.manifest.get("files", ())) for r in chosen))
    pictures = sorted(f.removesuffix(".png") for f in files if f.endswith(".png"))
    result = [
        *(overlay(f"ratings/{d}", f"{d}: {label}", "rating") for d in dimensions),
        *(
            wr.BarPlot(
                title=f"{d}: {model}, {label}",
                metrics=[
                    f"{method}{end}/{d}/{model}" for end in ("_ci_low", "", "_ci_high")
                ],
            )
            for d, model in lines
        ),
    ]
    judge = [
        wr.BarPlot(
            title=rate.replace("_", " "),
            metrics=[f"judge/{dimension}/{rate}" for dimension in dimensions],
        )
        for rate in RATES
    ]
    order = [
        *(overlay(f"k_sensitivity/{d}", f"{d}: Elo by K", "K") for d in dimensions),
        *(
            wr.ScatterPlot(
                title=f"{d}: {model}",
                x=wr.Config("elo.k"),
                y=wr.SummaryMetric(f"elo/{d}/{model}"),
                log_x=True,
            )
            for d, model in lines
        ),
        *(
            wr.LinePlot(
                title=f"{d}: running mean of Elo",
                x="n_perms",
                y=[f"trace/{d}/{model}" for model in models],
                log_x=True,
                title_x="permutations",
            )
            for d in dimensions
        ),
    ]
    tables = ("leaderboard", "judge", "verdicts") if is_judged else ("leaderboard",)
    spend = [
        *(wr.BarPlot(title=n, metrics=[f"usage/{n}"]) for n in _SPEND),
        *(wr.LinePlot(title=n, x="progress/seconds", y=[n]) for n in _PROGRESS),
    ]
    return {
        "Result, with 95 % intervals": (3, result),
        "Judge quality": (4, judge if is_judged else []),
        "Order experiment": (3, order if has_elo else []),
        "Verdicts": (
            1,
            [wr.WeavePanelSummaryTable(table_name=name) for name in tables],
        ),
        "Cost and progress": (3, spend),
        "Figures of each run": (
            2,
            [wr.MediaBrowser(media_keys=[name], num_columns=1) for name in pictures],
        ),
        "Settings": (1, [wr.RunComparer(diff_only="split")]),
    }
