"""A sweep of Weights & Biases' own: its agents give the words of docs/examples/wandb_sweep.yaml to the command."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from elo_exp.paths import HOME
from tests.commands import QUICK, SCRIPTS, attempt_program, run
from tests.project_server import Given, ProjectServer
from tests.test_trackers import rows_of

FILE = HOME / "docs/examples/wandb_sweep.yaml"


def sweep() -> Any:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def grid() -> list[dict[str, Any]]:
    """What a job is given of each parameter, as the server tells an agent."""
    axes = {name: given["values"] for name, given in sweep()["parameters"].items()}
    return [
        {name: {"value": value} for name, value in zip(axes, values, strict=True)}
        for values in product(*axes.values())
    ]


@pytest.mark.system
def test_the_words_of_the_shipped_file_run_and_log_its_metric(tmp_path: Path):
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args  # in seconds

    (macro,) = (word for word in sweep()["command"] if "args" in word)
    words = create_sweep_command_args({"args": grid()[0]})[macro.strip("${}")]
    ran = run(*QUICK, *words, folder=tmp_path)
    config = ran.read("manifest.json")["config"]
    assert (config["elo"]["k"], config["elo"]["n_perms"]) == (8, 100)
    (summary,) = rows_of(ran.run_dir)["summary"]
    assert summary[sweep()["metric"]["name"]] > 0


@dataclass
class SweepServer(ProjectServer):
    """Also hands the jobs of one sweep to an agent, one after the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.left = [(f"job{n}", args) for n, args in enumerate(grid())]
        self.config: dict[str, Any] = {}
        self.given: list[str] = []

    def _own(self) -> Given:
        return {
            "id": "S", "name": "S1", "state": "RUNNING", "config": yaml.safe_dump(self.config), "runs": {"edges": []},
            "project": {"id": "P", "name": "elo_exp", "entity": {"id": "E", "name": "me"}},
        }  # fmt: skip

    def _UpsertSweep(self, given: Given) -> Given:  # noqa: N802
        self.config = yaml.safe_load(given["config"])
        return {"upsertSweep": {"sweep": self._own(), "configValidationWarnings": []}}

    def _SweepWithRuns(self, _: Given) -> Given:  # noqa: N802
        return {"project": {"sweep": self._own()}}

    def _CreateAgent(self, _: Given) -> Given:  # noqa: N802
        return {"createAgent": {"agent": {"id": "A"}}}

    def _Heartbeat(self, given: Given) -> Given:  # noqa: N802
        commands: list[Given] = []
        if not json.loads(given["runState"]) and self.left:
            name, args = self.left.pop(0)
            self.given.append(name)
            commands = [{"type": "run", "run_id": name, "args": args, "program": None}]
        agent = {"agent": {"id": "A"}, "commands": json.dumps(commands)}
        return {"agentHeartbeat": agent}


@pytest.mark.slow
def test_an_agent_runs_the_jobs_of_the_shipped_file(tmp_path: Path):
    """`wandb sweep` and `wandb agent`, as shipped, before a server that keeps the sweep: the runs have its ids."""
    with SweepServer() as server:
        path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
        variables = server.variables | {"PATH": path, "PYTHONPATH": str(HOME)}
        wandb = (sys.executable, "-m", "wandb")
        made = attempt_program(*wandb, "sweep", str(FILE), folder=tmp_path, **variables)
        assert made.code == 0, made.err
        (agent,) = re.findall(r"wandb agent (\S+)", made.err)
        begun = (*wandb, "agent", "--count", "2", agent)
        ran = attempt_program(*begun, folder=tmp_path, **variables)
    assert ran.code == 0, ran.err
    assert server.given == [*server.runs]
    assert len(server.runs) == 2, server.unknown
    for job in server.runs.values():
        assert job.exits == [0]
        assert job.summary[server.config["metric"]["name"]] > 0
