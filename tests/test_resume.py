"""A sweep that was stopped goes on in its folder: its finished jobs are left as they are, the rest is run."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from elo_exp.files import read_json
from elo_exp.launching import hydra_callback as sweeping
from elo_exp.models import checkpoints
from elo_exp.paths import HOME
from elo_exp.trackers import RunInfo
from tests.commands import QUICK, attempt, run, start

MEDICAL = ("study=medical", "mode=demo")  # of a copy of its bank
SWEEP = (
    "-m",
    "elo.n_perms=5",
    "judging.limit_pairs=40",
    "tracker=local",
    "rubric=[factuality]",
)


def manifests(folder: Path) -> dict[str, bytes]:
    """The manifests of the finished jobs."""
    found = {
        path.parent.name: path.read_bytes() for path in folder.glob("*/manifest.json")
    }
    return {job: text for job, text in found.items() if json.loads(text)["finished_at"]}


def judge_calls(folder: Path) -> int:
    usages = (json.loads(text)["usage"] for text in manifests(folder).values())
    return sum(usage["judge_calls"] for usage in usages)


def sweeps(folder: Path) -> list[Path]:
    return sorted((folder / "outputs").glob("multirun_*"))


def bank(folder: Path, name: str) -> Path:
    """A copy of the shipped prompts, made where there is none yet."""
    path = folder / f"{name}.jsonl"
    if not path.exists():
        shutil.copy(HOME / "prompts/bank.jsonl", path)
    return path


@pytest.mark.system
def test_a_sweep_that_was_killed_goes_on_in_the_folder_that_is_named(tmp_path):
    """It is killed in its second job, which waits for its prompts. A job whose settings have changed
    since is run again."""
    for k in (4, 16, 32):
        bank(tmp_path, f"bank{k}")
    os.mkfifo(tmp_path / "bank8.jsonl")
    sweep = (*SWEEP, *MEDICAL, "prompts.bank_path=bank${elo.k}.jsonl")
    process = start(*sweep, "elo.k=4,8,16", folder=tmp_path)
    while not any(manifests(sweep) for sweep in sweeps(tmp_path)):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    (tmp_path / "bank8.jsonl").unlink()
    bank(tmp_path, "bank8")
    (folder,) = sweeps(tmp_path)
    before = manifests(folder)
    assert list(before) == ["0"]
    again = run(*sweep, "elo.k=4,8,16", f"hydra.sweep.dir={folder}", folder=tmp_path)
    assert sweeps(tmp_path) == [folder]
    assert "sweep: 3 of 3 jobs finished" in again.out
    after = manifests(folder)
    assert sorted(after) == list("012")
    assert after["0"] == before["0"]
    assert "job 0: it has finished before, and is not run again" in again.out
    first = json.loads(after["0"])["usage"]
    assert judge_calls(folder) == first["verdicts_distinct"] > 0
    assert (folder / "figures/k_by_n_perms.png").is_file()

    other = run(*sweep, "elo.k=4,8,32", f"hydra.sweep.dir={folder}", folder=tmp_path)
    assert "job 1: it has finished before" in other.out
    assert "job 2: it has finished before" not in other.out
    assert json.loads(manifests(folder)["2"])["config"]["elo"]["k"] == 32


@pytest.mark.system
def test_a_failed_job_is_tried_again_and_so_is_one_whose_prompts_changed(
    tmp_path,
):
    """Two jobs, of which the second reads a file that is not there before somebody writes it."""
    one, two = bank(tmp_path, "one"), tmp_path / "two.jsonl"
    banks = f"prompts.bank_path={one},{two}"
    sweep = ("-m", banks, *MEDICAL, *QUICK, "hydra.sweep.dir=sweep")
    failed = attempt(*sweep, folder=tmp_path)
    first = manifests(failed.run_dir)
    assert (failed.code, list(first)) == (1, ["0"])
    assert "hydra.sweep.dir=sweep" in failed.out
    bank(tmp_path, "two")
    run(*sweep, folder=tmp_path)
    both = manifests(failed.run_dir)
    assert (both["0"], set(both)) == (first["0"], {"0", "1"})
    lines = one.read_text(encoding="utf-8").splitlines(keepends=True)
    one.write_text("".join(lines[:-1]), encoding="utf-8")
    run(*sweep, folder=tmp_path)
    changed = manifests(failed.run_dir)
    assert changed["0"] != both["0"]
    assert changed["1"] == both["1"]


# Changes of what a job has read


@pytest.fixture(scope="module")
def on_file(tmp_path_factory) -> Path:
    """A finished job that reads answers, verdicts, prompts and rubric from files of its own."""
    folder = tmp_path_factory.mktemp("on_file")
    files = {
        "path": "rubrics/factuality.md",
        "system_path": "prompts/judge_system.md",
        "template_path": "prompts/pairwise.md",
        "schema_path": "prompts/verdict_schema.json",
    }
    own = [*MEDICAL, f"prompts.bank_path={bank(folder, 'bank')}"]
    for name, path in files.items():
        own.append(f"rubric.factuality.{name}={shutil.copy(HOME / path, folder)}")
    run(*QUICK, *own, "hydra.run.dir=asked", folder=folder)
    read = ("recorded_dir=asked/responses", "judge=replay", "judge.path=asked/verdicts")
    run("-m", *QUICK, *own, *read, "hydra.sweep.dir=sweep", folder=folder)
    return folder / "sweep/0"


@pytest.fixture(autouse=True)
def in_the_folder_of_the_sweep(request, monkeypatch):
    if "on_file" in request.fixturenames:
        monkeypatch.chdir(request.getfixturevalue("on_file").parents[1])


def is_finished(job: Path) -> bool:
    config = read_json(job / "manifest.json")["config"]
    info = RunInfo(
        run_dir=job, name="", group="sweep", job_type="tournament", config=config
    )
    return sweeping.read_finished_headline(info) is not None


@pytest.mark.system
@pytest.mark.parametrize(
    "changed",
    [
        "bank.jsonl",
        "asked/responses/responses_probe_hedged.jsonl",
        "asked/verdicts/factuality.jsonl",
        "asked/verdicts/more.jsonl",
        "factuality.md",
        "judge_system.md",
        "pairwise.md",
        "verdict_schema.json",
    ],
)
def test_a_change_of_any_file_that_a_job_reads_is_noticed(on_file, changed):
    """Also of a file that is new in a folder of verdicts."""
    file = Path(changed)
    before = file.read_bytes() if file.exists() else None
    assert is_finished(on_file)
    file.write_bytes((before or b"") + b"\n")
    assert not is_finished(on_file)
    file.unlink()
    if before is not None:
        file.write_bytes(before)


@pytest.mark.system
def test_weights_that_have_changed_are_noticed(on_file, tmp_path):
    """Of the files of a model's folder only those that make the model count."""
    model, weights = tmp_path / "model", tmp_path / "model/model.safetensors"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    weights.write_bytes(bytes(3 << 20))  # the hash of a file of this size is stored
    job = Path(shutil.copytree(on_file, tmp_path / "job"))
    manifest = read_json(job / "manifest.json")
    cache_dir = Path(manifest["config"]["cache_dir"])
    files = checkpoints.list_loaded_files(model)
    manifest["weights"] = {"entrant mine": checkpoints.hash_files(files, cache_dir)}
    (job / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (model / "notes.md").write_text("no file of the model", encoding="utf-8")
    assert is_finished(job)
    weights.write_bytes(bytes(3 << 20)[:-1] + b"1")
    assert not is_finished(job)
    weights.unlink()
    assert not is_finished(job)
