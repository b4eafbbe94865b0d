"""The jobs of a sweep as processes of a launcher, all at once, on one store: nothing is made or paid for twice.

    python -m elo_exp -m elo.k=8,16,32,64 hydra/launcher=joblib hydra.launcher.n_jobs=4

joblib has worker processes on this machine. submitit sends jobs to Slurm; submitit_local runs the same here.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from elo_exp.files import read_json, write_jsonl
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Says, longer, plain_text
from tests.commands import QUICK, Ran, attempt, run, start
from tests.data import BANK
from tests.stores import rows

pytestmark = pytest.mark.system

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
SUBMITIT = ("hydra/launcher=submitit_local",)
N_PROMPTS = 6
N_QUERIES = 2 * N_PROMPTS  # one pair of entrants on one rubric, in both orders


def bank(folder: Path) -> str:
    """An override that chooses some questions of our own."""
    row = {"source": "test", "subject": "test", "gold_answer": "Because."}
    some = [
        {**row, "prompt_id": f"p{n}", "text": f"Why {n}?"} for n in range(N_PROMPTS)
    ]
    return f"prompts.bank_path={write_jsonl(folder / 'bank.jsonl', some)}"


def paid(server: AnthropicServer, folder: Path) -> list[str]:
    """A tournament of Claude against a probe with Claude as judge, both at this server."""
    return [
        "entrant=[claude,probe_reference]",
        f"entrant.claude.base_url={server.url}",
        "judge=haiku",
        f"judge.base_url={server.url}",
        "judging.budget_usd=1",
        "judge.poll_initial_seconds=0.1",
        "judge.poll_max_seconds=0.2",
        *("study=medical", "mode=demo", bank(folder)),
        *QUICK,
    ]


def key(server: AnthropicServer) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": server.key, "NO_PROXY": "127.0.0.1"}


def answered(params: dict[str, Any], n: int) -> Says | None:
    """What Claude says where it is not asked to judge."""
    asked = plain_text(params["messages"][0]["content"])
    return None if "<response_a" in asked else Says(f"Because of {asked}")


def ended(command: subprocess.Popen[str], folder: Path) -> Ran:
    try:
        out, err = command.communicate(timeout=600)
    finally:
        command.kill()
    return Ran(folder, command.returncode, out, err)


def results(sweep: Ran) -> list[str]:
    """The ratings of each of its two jobs."""
    return [(sweep.run_dir / job / "elo_results.json").read_text() for job in "01"]


def store(folder: Path) -> Path:
    return folder / "outputs/cache/store.sqlite"


# Four at once


def test_jobs_of_two_launchers_at_once_make_and_pay_for_everything_once(
    tmp_path: Path,
):
    """Six answers and twelve queries are wanted by each of them; equal settings have equal results."""
    with AnthropicServer(
        verdicts=longer, outcomes=answered, seconds_to_end=1.0
    ) as server:
        given = ("-m", "elo.k=8,16", *paid(server, tmp_path))
        sweeps = [
            start(*given, *launcher, folder=tmp_path, **key(server))
            for launcher in (JOBLIB, SUBMITIT)
        ]
        by_joblib, by_submitit = (ended(sweep, tmp_path) for sweep in sweeps)
    assert (by_joblib.code, by_submitit.code) == (0, 0), by_joblib.err + by_submitit.err
    assert len(server.meter.billed) == N_QUERIES
    assert len(server.meter.billed_bodies) == N_QUERIES + N_PROMPTS
    assert set(server.meter.billed_bodies.values()) == {1}
    assert results(by_joblib) == results(by_submitit)
    assert results(by_joblib)[0] != results(by_joblib)[1]  # of another K
    for sweep in (by_joblib, by_submitit):
        assert "sweep: 2 of 2 jobs finished" in sweep.out
        manifests = [sweep.run_dir / job / "manifest.json" for job in "01"]
        groups = {read_json(path)["group"] for path in manifests}
        assert groups == {read_json(sweep.run_dir / "sweep.json")["group"]}
    for table in ("claims", "owners"):
        assert rows(store(tmp_path), f"SELECT * FROM {table}") == []


# Killed, interrupted, refused


def test_a_model_that_is_absent_in_one_of_three_jobs_is_said_before_any_is_queued(
    tmp_path: Path,
):
    """One line; jobs have stores of their own, by number, as they do on a cluster."""
    models = "tiny-random/0,./absent,tiny-random/1"
    given = (
        "experiment=answer",
        "entrant=[huggingface]",
        "entrant.huggingface.dtype=float32",
        "entrant.huggingface.max_new_tokens=2",
        "cache_dir=jobs/${hydra:job.num}",
        "study=medical",
        "mode=demo",
        bank(tmp_path),
        "tracker=local",
        "-m",
        *SUBMITIT,
    )
    swept = "entrant.huggingface.model="
    refused = attempt(*given, swept + models, folder=tmp_path)
    assert (refused.code, refused.out) == (2, ""), refused.err
    (line,) = [one for one in refused.err.splitlines() if "elo_exp: " in one]
    assert line.startswith("elo_exp: job 1 (experiment=answer ")
    assert (
        f"{swept}./absent): ./absent (revision main) is neither a folder here" in line
    )
    assert list(tmp_path.glob("outputs/multirun_*")) == []
    mended = models.replace("./absent,", "")
    sweep = attempt(*given, swept + mended, folder=tmp_path, anew=True)
    assert (sweep.code, "2 of 2 jobs finished" in sweep.out) == (0, True), sweep.err


def workers(path: Path) -> list[int]:
    """Both processes that want the verdicts, the one first whose batch the server has."""
    query = "SELECT pid, state FROM owners LEFT JOIN batches USING (owner) ORDER BY state IS NULL"
    found: list[Any] = []
    give_up = time.monotonic() + 600
    while [state for _, state in found] != ["submitted", None]:
        assert time.monotonic() < give_up
        time.sleep(0.02)
        with suppress(sqlite3.OperationalError):  # the store is being made
            found = rows(path, query) if path.exists() else []
    return [pid for pid, _ in found]


@pytest.mark.parametrize(
    ("launcher", "number", "code", "line"),
    [
        pytest.param(JOBLIB, signal.SIGKILL, 2, "A job was killed", id="joblib"),
        pytest.param(
            *(SUBMITIT, signal.SIGKILL, 2, "A job was killed"),
            id="submitit",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(JOBLIB, signal.SIGINT, 130, "interrupted. Every answer"),
            id="Ctrl-C",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_after_a_kill_the_same_command_finishes_and_pays_for_nothing_twice(
    tmp_path: Path, launcher: Sequence[str], number: int, code: int, line: str
):
    """While the batch is worked on, its process is killed, or Ctrl-C reaches all processes."""
    slow = {"verdicts": longer, "outcomes": answered, "seconds_to_end": 3.0}
    with AnthropicServer(**slow) as server:
        command = ("-m", "elo.k=8,16", *launcher, *paid(server, tmp_path))
        sweep = start(*command, folder=tmp_path, **key(server))
        first, second = workers(store(tmp_path))
        processes = [first] if code == 2 else [sweep.pid, first, second]
        for process in processes:
            os.kill(process, number)
        broken = ended(sweep, tmp_path)
        assert broken.code == code
        assert f"elo_exp: {line}" in broken.err
        assert "Traceback" not in broken.err.partition("Exception ignored in")[0]
        again = run(*command, folder=tmp_path, anew=True, **key(server))
    assert "sweep: 2 of 2 jobs finished" in again.out
    assert len(server.batches) == 1
    assert set(server.meter.billed_bodies.values()) == {1}


BANKS = ("-m", f"prompts.bank_path={BANK},missing.jsonl", "study=medical", "mode=demo")


@pytest.mark.slow
def test_a_mistake_in_a_worker_is_one_line_as_without_launchers(tmp_path: Path):
    ran = attempt(*BANKS, *JOBLIB, *QUICK, folder=tmp_path, anew=True)
    assert (ran.code, "Traceback" in ran.err) == (1, False)
    assert "job 1 failed: UserError: File not found: missing.jsonl" in ran.out
    assert "sweep: 1 of 2 jobs finished" in ran.out


def test_a_mistake_in_a_job_that_would_be_queued_stops_all(tmp_path: Path):
    ran = attempt(*BANKS, *SUBMITIT, *QUICK, folder=tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "): File not found: missing.jsonl" in ran.err


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ("ray", "is not installed. Install it:\n  pip install 'elo-exp[ray]'\n"),
        (
            "submitit_slurm",
            "needs Slurm, and srun is not installed here. Start the sweep",
        ),
    ],
)
def test_a_launcher_that_cannot_start_is_named(
    tmp_path: Path, launcher: str, message: str
):
    chosen = f"hydra/launcher={launcher}"
    ran = attempt("-m", "elo.k=8,16", chosen, folder=tmp_path, PATH="/nowhere")
    assert ran.code == 2
    assert ran.err.startswith(f"elo_exp: {chosen} {message}")
