"""What a server of Weights & Biases is sent, and what it costs a run that hangs, refuses or closes.

Seconds, and neither files nor the exit code: the run is logged once more offline, whole, and what the console says
uploads it. Real processes, before a server on this machine.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.commands import QUICK, Ran, attempt, attempt_program
from tests.http_server import AcceptThenHang, Fault, ResetBefore, Status
from tests.project_server import KEY, ProjectServer
from tests.test_trackers import Logged

pytestmark = pytest.mark.system

OPERATIONS = (
    *("Viewer", "ServerFeaturesQuery", "RunResumeStatus", "UpsertBucket"),
    *("ArtifactType", "CreateArtifact$", "CreateArtifactManifest", "CreateArtifactFiles"),
    *("CommitArtifact", "UseArtifact", "ArtifactByID", "CreateRunFiles"),
    *("file_stream", "/storage/"),
)  # fmt: skip
FAULTS: dict[str, Fault] = {
    "hangs": AcceptThenHang(900),
    "403": Status(403, message="permission denied"),
    "500": Status(500),
    "closes": ResetBefore(),
}
OFFLINE = "This run and those that follow are logged offline"
WAIT_S = 5
_OWN_S = 25  # that the SDK may take to begin, twice, on a machine that others use
RATE = ("experiment=rate", "battles=battles.csv", "figures=false", "elo.n_perms=5")


@pytest.fixture
def server() -> Iterator[ProjectServer]:
    with ProjectServer() as found:
        yield found


def follow(folder: Path, variables: Mapping[str, str], *given: str) -> Ran:
    """A small run that is followed."""
    folder.mkdir(exist_ok=True)
    (folder / "battles.csv").write_text(
        "model_a,model_b,winner\na,b,model_a\nb,a,model_a\n", encoding="utf-8"
    )
    words = (*RATE, "tracker=wandb", f"tracker.wait_s={WAIT_S}", "hydra.run.dir=run")
    return attempt(*words, *given, folder=folder, strict=False, **variables)


def written(run_dir: Path) -> set[str]:
    own = {path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*")}
    return {
        name for name in own if not name.startswith(("wandb", "earlier", "tracker"))
    }


def check(folder: Path, server: ProjectServer, operation: str, kind: str) -> None:
    """A fault of one operation, from the first call on: the run is as without a tracker, and can be uploaded whole."""
    for method in ("POST", "PUT"):
        server.add_fault(method, operation, FAULTS[kind], nth=None)
    started = time.monotonic()
    ran = follow(folder, server.variables)
    took = time.monotonic() - started
    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
    reached = [run for run in server.runs.values() if run.exits]
    if OFFLINE not in ran.err:  # the server did without that operation
        assert ran.err.count("warning") == 0, ran.err
        assert f"{server.url}/me/elo_exp/runs/" in ran.out
        assert reached
    else:
        assert ran.err.count("warning: Weights & Biases ") == 1
        server.faults.clear()
        (line,) = (line for line in ran.out.splitlines() if "Upload: " in line)
        command = line.partition("Upload: wandb ")[2]
        program = ("sh", "-c", f"{sys.executable} -m wandb {command}")
        synced = attempt_program(*program, folder=folder, **server.variables)
        assert (synced.code, "ERROR" in synced.err) == (0, False), synced.err
    (found,) = server.runs.values()
    assert found.exits[-1] == 0
    assert found.summary["headline"] == ran.read("manifest.json")["headline"]
    assert "elo/overall/a" in found.summary or any(
        k.startswith("elo/") for k in found.summary
    )
    assert {"leaderboard", "run-files"} <= {
        a.collection for a in server.artifacts.values() if a.version >= 0
    }
    started = time.monotonic()
    words = (*RATE, "tracker=local", "hydra.run.dir=local")
    here = attempt(*words, folder=folder, anew=True)
    lost = took - (time.monotonic() - started)
    assert lost < 2 * WAIT_S + 30 + _OWN_S
    assert (here.code, written(here.run_dir)) == (0, written(ran.run_dir))


def test_a_server_that_hangs_costs_seconds_and_a_warning(
    tmp_path: Path, server: ProjectServer
):
    check(tmp_path, server, "CommitArtifact", "hangs")


def test_a_server_that_refuses_the_run_is_told_in_one_line(tmp_path: Path):
    with ProjectServer(refusal=403) as server:
        ran = follow(tmp_path, server.variables)
    message = f"refuses the run (permission denied). {OFFLINE}"
    assert (ran.code, ran.err.count(message)) == (0, 1)
    assert "does not answer" not in ran.err
    assert "Upload: wandb sync run/wandb/offline-*" in ran.out


def test_a_sweep_waits_once_for_a_server_that_does_not_answer(tmp_path: Path):
    nobody = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    sweep = ("-m", "elo.k=8,16", "hydra.sweep.dir=both", "tracker.wait_s=1")
    ran = follow(tmp_path, nobody, *sweep)
    assert ran.code == 0
    assert ran.err.count("warning: Weights & Biases does not answer") == 1
    assert "refuses" not in ran.err
    for job in ("0", "1", ""):
        (_,) = (ran.run_dir / job).glob("wandb/offline-*")
    assert Logged(ran.run_dir / "1", tmp_path).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_operation_fails_and_however(
    tmp_path: Path, server: ProjectServer, operation: str, kind: str
):
    check(tmp_path, server, operation, kind)


# What is sent


def windows(*texts: str) -> set[str]:
    """All that stands in 20 consecutive characters which JSON and HTML write as they are."""
    plain = (
        part for text in texts for part in re.findall("[A-Za-z0-9 .,()-]{20,}", text)
    )
    return {part[n : n + 20] for part in plain for n in range(len(part) - 19)}


def test_without_texts_none_leaves_and_no_key_ever_does(
    tmp_path: Path, server: ProjectServer
):
    canaries = {
        f"{name}_API_KEY": f"canary-{name}-0123456789"
        for name in ("ANTHROPIC", "OPENAI", "GEMINI")
    }
    words = (
        *(*QUICK, "tracker=wandb", "tracker.texts=false", "hydra.run.dir=run"),
        "+hydra.job.env_set.STORAGE='postgresql://me:canary-password@host/db'",
    )
    ran = attempt(*words, folder=tmp_path, strict=False, **server.variables, **canaries)
    assert (ran.code, ran.err.count("warning")) == (0, 0), ran.err
    (found,) = server.runs.values()
    line = f"tracked       {server.url}/me/elo_exp/runs/{found.id} (without prompts, answers and reasons)"
    assert line in ran.out.splitlines()
    # the numbers are there, and whose they are
    assert found.summary["headline"] == ran.read("manifest.json")["headline"]
    assert found.exits == [0]
    assert "failed" not in found.fields["tags"]
    *conclusion, command = found.fields["notes"].splitlines()
    assert conclusion == [
        ran.read("ratings.json")["conclusions"]["factuality"]["sentence"]
    ]
    assert command.startswith("python -m elo_exp judging.limit_pairs=40 ")
    kept = {one.collection for one in server.artifacts.values() if one.version >= 0}
    assert {"leaderboard", "run-files"} <= kept
    assert not any(name.startswith(("verdicts", "responses", "bank")) for name in kept)
    # prompts, answers and reasons are not
    rows = [*ran.rows("matches/matches.jsonl"), *ran.rows("verdicts/factuality.jsonl")]
    texts = [
        row[key]
        for row in rows
        for key in ("prompt_text", "response_a", "response_b")
        if key in row
    ]
    texts += [one["reasoning"] for row in rows for one in row.get("raw", ())]
    own = windows(*texts)
    there = (ran.run_dir / "matches/matches.jsonl").read_text(encoding="utf-8")
    assert len(own & windows(there)) > 1000
    assert not own & windows(server.received.decode(errors="replace"))
    # and nor is a key, there or here
    here = [path for path in (ran.run_dir / "wandb").rglob("*") if path.is_file()]
    for text in (server.received, *(path.read_bytes() for path in here)):
        assert b"canary-" not in text
    metadata = server.files[f"{found.id}/wandb-metadata.json"]
    assert b"postgresql://me:***@host/db" in metadata
