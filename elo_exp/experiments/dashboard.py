"""A Weights & Biases workspace for the runs of a project or a sweep; it needs a key.

python -m elo_exp experiment=dashboard 'runs=[outputs/multirun_...]'
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from elo_exp import runs
from elo_exp.experiments import Context, Report
from elo_exp.records import UserError
from elo_exp.report import workspace

_KINDS = ("tournament", "rate")  # whose metrics have the same names


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
        found = _logged(self.runs)
        if not tracker.is_online:
            raise UserError(
                "tracker: a workspace is saved to Weights & Biases, and found no key, or offline "
                "mode. Set WANDB_API_KEY, or give `wandb login`, and tracker.mode=online."
            )
        import wandb

        try:
            view = workspace.workspace(
                found,
                entity=tracker.entity or str(wandb.Api().default_entity),
                project=tracker.project,
                name=f"elo_exp {group or tracker.project}",
                group=group,
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


def _logged(folders: Sequence[str]) -> workspace.Logged:
    """What panels can show of the runs. Raises UserError where they share nothing."""
    if not folders:
        raise UserError(
            "runs: names no run folder. Name a sweep, or some runs of the project: "
            "'runs=[DIR1,DIR2]'."
        )
    chosen = runs.read(folders).runs
    for r in chosen:
        if r.manifest.get("experiment") not in _KINDS:
            kind = r.manifest.get("experiment")
            raise UserError(
                f"runs: {r.folder} is of experiment={kind}. Expected runs of {' or '.join(_KINDS)}."
            )
    if not chosen:
        raise UserError(
            "runs: found no finished run. Name a sweep with finished jobs, or some runs."
        )
    if not any(all(d in r.dimensions for r in chosen) for d in chosen[0].dimensions):
        raise UserError(
            "runs: they have no dimension in common. Name runs that share one."
        )
    return workspace.logged(chosen)
