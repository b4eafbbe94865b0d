"""A Weights & Biases workspace for the runs of a project or a sweep: as a JSON file, and on the server with a key.

python -m elo_exp experiment=dashboard 'runs=[outputs/multirun_...]'
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from elo_exp import runs
from elo_exp.experiments import Parts, Result
from elo_exp.files import write_json
from elo_exp.records import UserError
from elo_exp.report import workspace
from elo_exp.settings import Settings

NEEDS: frozenset[str] = frozenset()
_KINDS = ("tournament", "rate")  # whose metrics have the same names


@runtime_checkable
class Project(Protocol):
    """A tracker whose runs are kept together on a server."""

    project: str
    entity: str | None

    @property
    def is_online(self) -> bool:
        """Whether a key is at hand, and nobody wishes to stay offline."""


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    return {}


def check(settings: Settings, parts: Parts) -> None:
    if not isinstance(parts.tracker, Project):
        raise UserError(
            "tracker: has no workspaces. A dashboard is for tracker=wandb; trackio has its own."
        )
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise UserError(
            "dashboard: needs wandb-workspaces, which is not installed: pip install 'elo-exp[dashboard]'."
        )
    _logged(settings)


def errand(settings: Settings, parts: Parts) -> str:
    tracker = parts.tracker
    assert isinstance(tracker, Project)
    group = settings.dashboard.group
    view = workspace.workspace(
        _logged(settings),
        entity=tracker.entity or "",
        project=tracker.project,
        name=f"elo_exp {group or tracker.project}",
        group=group,
    )
    path = write_json(Path(settings.dashboard.file), workspace.as_json(view))
    if not tracker.is_online:
        return f"the workspace is in {path}; with a Weights & Biases key it is saved to {tracker.project} too"
    return f"{workspace.save(view)}\n{path}"


def run(settings: Settings, parts: Parts) -> Result:
    raise NotImplementedError("experiment=dashboard does an errand only")


def _logged(settings: Settings) -> workspace.Logged:
    """What panels can show of the runs. Raises UserError where they share nothing."""
    if not settings.runs:
        raise UserError(
            "runs: names no run folder. Name a sweep, or some runs of the project: 'runs=[DIR1,DIR2]'."
        )
    chosen = runs.read(settings.runs).runs
    for r in chosen:
        if r.manifest.get("experiment") not in _KINDS:
            kind = r.manifest.get("experiment")
            raise UserError(
                f"runs: {r.folder} is of experiment={kind}. A dashboard is of {' and '.join(_KINDS)} runs."
            )
    if not chosen:
        raise UserError(
            "runs: found no finished run. Name a sweep with finished jobs, or some runs."
        )
    if not any(all(d in r.dimensions for r in chosen) for d in chosen[0].dimensions):
        raise UserError("runs: they have no dimension in common. Name runs that share one.")
    return workspace.logged(chosen)
