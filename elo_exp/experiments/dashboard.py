"""What moved over finished runs, as a workspace or a report of Weights & Biases; it needs a key.

python -m elo_exp experiment=dashboard 'runs=[outputs/multirun_...]'
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from elo_exp.analysis.conclusions.sweep_conclusion import (
    conclude,
    find_job_lead,
    have_same_ratings,
)
from elo_exp.analysis.judge_quality import RATES, JudgeQuality
from elo_exp.errors import (
    EvidenceError,
    FileError,
    ServerError,
    SettingError,
    UserError,
)
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.report.artifacts import average_sweep_numbers
from elo_exp.report.sentences import sweep_sentences as words
from elo_exp.runs.manifest import SETTINGS_WITHOUT_EFFECT, run_id
from elo_exp.runs.reading import RATING_EXPERIMENTS, FinishedRun, read_runs
from elo_exp.trackers import Project

if TYPE_CHECKING:
    from wandb_workspaces import workspaces
    from wandb_workspaces.reports.v2 import interface as wr

# The column that names the chosen option of a config group; for the first two groups it is a label
_COLUMN_BY_OPTION = {"judge": "judge_model", "entrant": "entrants", "mode": "mode.name"}
_RUN_COLUMNS = (*_COLUMN_BY_OPTION.values(), "elo.k", "elo.n_perms")
_SPEND_METRICS = ("dollars", "judge_calls", "verdicts_stored")
_PROGRESS_METRICS = ("progress/judged", "progress/flips", "cost/dollars")
_MAX_MODELS = 8
_REPORT_WIDTH_COLUMNS = 24
_PANEL_HEIGHT = 8
_MAX_TITLE_CHARS = 128
# A smaller difference counts as none
_MIN_DIFFERENCE = 1e-9

PanelsBySection = Mapping[
    str, tuple[int, Sequence[Any]]
]  # by section, with its columns


@dataclass(kw_only=True)
class DashboardSettings:
    """baseline  the folder of the run whose difference from others W&B shows; None: of no run"""

    kind: Literal["workspace", "report"]
    baseline: str | None


@dataclass(kw_only=True)
class Dashboard(Experiment):
    """A dashboard, which is saved in place of a run."""

    runs: list[str]
    dashboard: DashboardSettings

    def dry_run(self, context: Context) -> None:
        tracker = context.tracker
        if not isinstance(tracker, Project):
            raise SettingError(
                "experiment=dashboard needs tracker=wandb: only Weights & Biases has workspaces and reports."
            )
        with context.needs.collect():
            _require_workspaces()
        runs, _ = _read_runs(self.runs)
        for run in runs:
            run_id(run.folder, run.manifest)
        self._find_baseline_id()
        with context.needs.collect():
            if not tracker.is_online:
                raise ServerError(
                    "A dashboard is saved on Weights & Biases, but there is no key or the tracker is offline. "
                    "Run wandb login or set WANDB_API_KEY, and set:",
                    "  tracker.mode=online",
                ).mark_as_need("WANDB_API_KEY")

    def act(self, context: Context) -> str:
        """Save the dashboard, and return its address."""
        import wandb

        tracker = context.tracker
        assert isinstance(tracker, Project)
        runs, dimensions = _read_runs(self.runs)
        ids = [run_id(run.folder, run.manifest) for run in runs]
        baseline = self._find_baseline_id()
        changes, kind = _find_changes(runs), self.dashboard.kind
        with _translate_errors(kind):
            entity = tracker.entity or str(wandb.Api().default_entity)
        location = _DashboardLocation(
            entity=entity, project=tracker.project, ids=ids, columns=changes.columns
        )
        panels = {"What moved": (3, changes.panels()), **_make_panels(runs, dimensions)}
        if kind == "report":
            dashboard: Any = location.report(
                panels, _write_conclusions(runs, dimensions, changes)
            )
        else:
            groups = {run.manifest.get("group") for run in runs}
            group = groups.pop() if len(groups) == 1 else None
            dashboard = location.workspace(
                panels, str(group or tracker.project), baseline
            )
        with _translate_errors(kind):
            dashboard.save()
        return str(dashboard.url)

    def _find_baseline_id(self) -> str | None:
        """Return the id of the baseline's run. Raises SettingError."""
        folder = self.dashboard.baseline
        if folder is None:
            return None
        if self.dashboard.kind == "report":
            raise SettingError(
                "dashboard.baseline works only with dashboard.kind=workspace: a report shows no differences from a "
                "run. Leave it out."
            )
        runs, _ = read_runs([folder])
        if len(runs) != 1:
            raise SettingError(
                f"dashboard.baseline must be the folder of one run; {folder} holds {len(runs)}."
            )
        return run_id(runs[0].folder, runs[0].manifest)

    def run(self, context: Context) -> Report:
        raise NotImplementedError("experiment=dashboard saves a dashboard only")


@contextmanager
def _translate_errors(kind: str) -> Iterator[None]:
    """Raise ServerError if the server does not answer, or does not know the project."""
    import wandb

    try:
        yield
    except (wandb.errors.Error, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ServerError(
            f"Weights & Biases did not save the {kind}: {reason}.",
            "  Check WANDB_API_KEY, tracker.entity and tracker.project.",
            "  If the runs are not there yet, upload them with wandb sync.",
        ) from None


@dataclass(frozen=True, kw_only=True)
class _DashboardLocation:
    """Where a dashboard is kept, and the ids of the runs that it shows.

    columns  of the table of runs
    """

    entity: str
    project: str
    ids: Sequence[str]
    columns: Sequence[str]

    def workspace(
        self, panels: PanelsBySection, name: str, baseline: str | None
    ) -> workspaces.Workspace:
        from wandb_workspaces import workspaces
        from wandb_workspaces.expr import Metric

        return workspaces.Workspace(
            entity=self.entity,
            project=self.project,
            name=f"elo_exp {name}",
            sections=[
                workspaces.Section(
                    name=title,
                    panels=list(section_panels),
                    is_open=True,
                    layout_settings=workspaces.SectionLayoutSettings(
                        columns=columns, rows=2
                    ),
                )
                for title, (columns, section_panels) in panels.items()
                if section_panels
            ],
            settings=workspaces.WorkspaceSettings(max_runs=max(10, len(self.ids))),
            runset_settings=workspaces.RunsetSettings(
                filters=[Metric("ID").isin(list(self.ids))],
                pinned_columns=list(self.columns),
                baseline_run=baseline,
            ),
        )

    def report(self, panels: PanelsBySection, conclusions: Sequence[str]) -> wr.Report:
        """`conclusions`: what the runs conclude together; the first line is the title."""
        from wandb_workspaces.expr import Metric
        from wandb_workspaces.reports.v2 import interface as wr

        title = conclusions[0][:_MAX_TITLE_CHARS]
        lines = conclusions if title != conclusions[0] else conclusions[1:]
        blocks: list[Any] = [wr.P(text=line) for line in lines]
        for heading, (columns, section_panels) in panels.items():
            for n, panel in enumerate(section_panels):
                width = _REPORT_WIDTH_COLUMNS // columns
                panel.layout = wr.Layout(
                    x=n % columns * width,
                    y=n // columns * _PANEL_HEIGHT,
                    w=width,
                    h=_PANEL_HEIGHT,
                )
            runs = wr.Runset(
                entity=self.entity,
                project=self.project,
                filters=[Metric("ID").isin(list(self.ids))],
                pinned_columns=list(self.columns),
            )
            grid = wr.PanelGrid(runsets=[runs], panels=list(section_panels))
            blocks += [wr.H2(text=heading), grid] if section_panels else []
        return wr.Report(
            entity=self.entity,
            project=self.project,
            title=title,
            blocks=blocks,
            width="fluid",
        )


def _require_workspaces() -> None:
    """Raise UserError if the package that saves dashboards is not installed."""
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise UserError(
            "experiment=dashboard needs the package wandb-workspaces, which is not installed. Install it:",
            "  pip install 'elo-exp[dashboard]'",
        ).mark_as_need("pip install 'elo-exp[dashboard]'")


def _read_runs(folders: Sequence[str]) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs and the dimensions that all have.

    Raises FileError or SettingError for runs that cannot be shown together, and EvidenceError if they share none.
    """
    if not folders:
        raise SettingError.no_value(
            "runs",
            needed_for="experiment=dashboard",
            value="run folders or the folder of a sweep",
            example="python -m elo_exp experiment=dashboard tracker=wandb 'runs=[DIR1,DIR2]'",
        )
    runs, _ = read_runs(folders)
    for r in runs:
        kind = r.manifest.get("experiment")
        if kind not in RATING_EXPERIMENTS:
            raise SettingError(
                f"runs must be runs of {' or '.join(RATING_EXPERIMENTS)}; {r.folder} is a run of experiment={kind}."
            )
    if not runs:
        raise FileError(
            f"runs must name a sweep with finished jobs, or finished runs; {', '.join(folders)} has none."
        )
    dimensions = [d for d in runs[0].boards if all(d in r.boards for r in runs)]
    if not dimensions:
        raise EvidenceError(
            "The runs have no rubric in common, so a dashboard cannot show them together. Choose runs that share one."
        )
    return runs, dimensions


@dataclass(frozen=True, kw_only=True)
class _ChangedSettings:
    """Settings and numbers that all runs log and that differ between them.

    keys              of their settings, as W&B searches for them
    identifying_keys  keys of settings that say which run it is
    axis              the key by which numbers are drawn; None where no number was swept
    numbers           names of the summary
    """

    keys: Sequence[str]
    identifying_keys: Sequence[str]
    axis: str | None
    numbers: Sequence[str]

    @property
    def columns(self) -> list[str]:
        """Of the table of runs."""

        def column(key: str) -> str:
            top, dot, subpath = key.partition(".")
            return f"config:{top}.value{dot}{subpath}"

        numbers = [f"summary:{name}" for name in self.numbers]
        return [*map(column, self.keys), *numbers, *map(column, self.identifying_keys)]

    def panels(self) -> list[Any]:
        from wandb_workspaces.reports.v2 import interface as wr

        if not self.numbers:
            return []
        metrics: list[wr.Config | wr.SummaryMetric] = [
            *map(wr.Config, self.keys),
            *map(wr.SummaryMetric, self.numbers),
        ]
        columns = [wr.ParallelCoordinatesPlotColumn(metric=m) for m in metrics]
        plot = wr.ParallelCoordinatesPlot(title="What moved", columns=columns)
        if self.axis is None:
            bars = [wr.BarPlot(title=name, metrics=[name]) for name in self.numbers]
            return [plot, *bars]
        scatters = [
            wr.ScatterPlot(
                title=name,
                x=wr.Config(self.axis),
                y=wr.SummaryMetric(name),
                log_x=self.axis == "elo.k",
            )
            for name in self.numbers
        ]
        return [plot, *scatters]


def _find_changes(runs: Sequence[FinishedRun]) -> _ChangedSettings:
    values = {
        key: run_values
        for key in (*_list_overridden_keys(runs), *_RUN_COLUMNS)
        if None not in (run_values := [_read_setting(run, key) for run in runs])
    }
    keys = [key for key, run_values in values.items() if len({*run_values}) > 1]
    axes = [k for k in keys if not any(isinstance(v, str) for v in values[k])]
    numbers_by_run = [_read_numbers(run) for run in runs]
    names = [
        name
        for name in numbers_by_run[0]
        if all(name in numbers for numbers in numbers_by_run)
    ]
    spans = {name: [numbers[name] for numbers in numbers_by_run] for name in names}
    return _ChangedSettings(
        keys=keys,
        identifying_keys=[
            key for key in _RUN_COLUMNS if key in values and key not in keys
        ],
        axis="elo.k" if "elo.k" in axes else next(iter(axes), None),
        numbers=[
            n for n, span in spans.items() if max(span) - min(span) > _MIN_DIFFERENCE
        ],
    )


def _list_overridden_keys(runs: Sequence[FinishedRun]) -> list[str]:
    """List the settings that the commands of these runs set differently, as W&B searches for them."""
    commands = [
        dict(word.lstrip("+").split("=", 1) for word in words if "=" in word)
        for words in (run.manifest.get("overrides", ()) for run in runs)
    ]
    keys = [
        key
        for key in dict.fromkeys(key for command in commands for key in command)
        if len({command.get(key) for command in commands}) > 1
        and key.partition(".")[0] not in (*SETTINGS_WITHOUT_EFFECT, "hydra")
    ]
    return list(dict.fromkeys(_COLUMN_BY_OPTION.get(key, key) for key in keys))


def _read_setting(run: FinishedRun, key: str) -> float | str | None:
    """Read a setting of a run; None if it is neither a number nor a text."""
    config, labels = run.manifest.get("config", {}), dict[str, Any]()
    if config.get("judge"):
        labels["judge_model"] = run.manifest.get("judge_model")
    if config.get("entrant"):
        labels["entrants"] = ", ".join(config["entrant"])
    node: Any = {**config, **labels}
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node if isinstance(node, int | float | str) else None


def _read_numbers(run: FinishedRun) -> dict[str, float]:
    """Read the numbers of a run that a sweep may change, by their tracker names; undefined ones are absent."""
    manifest = run.manifest
    values: Mapping[str, Any] = {
        **average_sweep_numbers(
            {d: run.stored_board("elo", d).get("order", {}) for d in run.boards},
            run.results,
            [JudgeQuality.from_dict(row) for row in manifest.get("judge_quality", ())],
        ),
        "usage/dollars": (manifest.get("usage") or {}).get("dollars"),
    }
    return {name: float(v) for name, v in values.items() if isinstance(v, int | float)}


def _write_conclusions(
    runs: Sequence[FinishedRun], dimensions: Sequence[str], changes: _ChangedSettings
) -> list[str]:
    """Write what the runs conclude together, as on the page of a sweep: whether they agree, then by dimension."""
    names = [run.folder.name for run in runs]
    is_sweep = len({run.folder.parent for run in runs}) == 1
    is_sweep = is_sweep and all(map(str.isdigit, names))
    noun = "job" if is_sweep else "run"
    names = names if is_sweep else [str(n) for n in range(1, len(runs) + 1)]
    run_by_name = dict(zip(names, runs, strict=True))
    conclusions = {d: _conclude_dimension(run_by_name, d) for d in dimensions}
    methods = {
        str(r.stored_board(r.primary_method(d), d).get("label", r.primary_method(d)))
        for r, d in product(runs, dimensions)
    }
    headline = words.headline(
        [*conclusions.values()],
        ", ".join(sorted(methods)),
        changes.keys,
        elo_moved=any(name.startswith("order_mean/") for name in changes.numbers),
        noun=noun,
    )
    is_same = all(conclusion.is_same for conclusion in conclusions.values())
    return [
        headline,
        *(
            f"{d}: {words.sentence(conclusion, is_same=is_same, noun=noun)}."
            for d, conclusion in conclusions.items()
        ),
        *words.list_scope_lines(
            {n: run.conclusions for n, run in run_by_name.items()}, noun
        ),
    ]


def _conclude_dimension(runs: Mapping[str, FinishedRun], dimension: str) -> Any:
    """Conclude what the runs show together on one dimension."""
    boards = {}
    for name, run in runs.items():
        method = run.primary_method(dimension)
        ratings = run.board(method, dimension).values()
        boards[name] = [{**row.to_dict(), "method": method} for row in ratings]
    first_run = next(iter(runs.values()))
    return conclude(
        [
            find_job_lead(name, rows, runs[name].conclusions.get(dimension))
            for name, rows in boards.items()
        ],
        dimension=dimension,
        is_same=have_same_ratings(list(boards.values())),
        unit=first_run.stored_board(first_run.primary_method(dimension), dimension).get(
            "unit", "points"
        ),
    )


def _make_panels(
    runs: Sequence[FinishedRun], dimensions: Sequence[str]
) -> dict[str, tuple[int, list[Any]]]:
    """Return by section the number of columns and the panels of what all runs have logged, besides what moved.

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

    first_run, run_dimensions = runs[0], list(product(runs, dimensions))
    method = first_run.primary_method(dimensions[0])
    label = first_run.stored_board(method, dimensions[0]).get("label", method)
    boards = [r.board(method, dimension) for r, dimension in run_dimensions]
    models = [
        model
        for model in boards[0]
        if all(model in board and board[model].ci_low is not None for board in boards)
    ][:_MAX_MODELS]
    lines = list(product(dimensions, models))
    is_judged = all(r.manifest.get("judge_quality") for r in runs)
    has_elo = all(r.board("elo", dimension) for r, dimension in run_dimensions)
    files = set.intersection(*(set(r.manifest.get("files", ())) for r in runs))
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
    tables = ["leaderboard", *(["judge"] if is_judged else [])]
    if is_judged and all(_read_setting(r, "tracker.texts") is not False for r in runs):
        tables.append("verdicts")
    spend = [
        *(wr.BarPlot(title=n, metrics=[f"usage/{n}"]) for n in _SPEND_METRICS),
        *(wr.LinePlot(title=n, x="progress/seconds", y=[n]) for n in _PROGRESS_METRICS),
    ]
    return {
        "Result, with 95% intervals": (3, result),
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
