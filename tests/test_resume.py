"""A sweep that was stopped goes on in its folder: its finished jobs are left as they are, the rest is run."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from elo_exp import HOME
from elo_exp import sweeps as sweeping
from elo_exp.models import checkpoints
from elo_exp.trackers import RunInfo
from tests.commands import QUICK, Ran, attempt, run, start

SWEEP = (
    "-m",
    "elo.k=4,8,16,32",
    "elo.n_perms=5",
    "judging.limit_pairs=40",
    "tracker=local",
    "rubric=[factuality]",
)

RUBRIC = ("path", "system_path", "template_path", "schema_path")


def manifests(folder: Path) -> dict[str, bytes]:
    """Of the finished jobs."""
    found = {
        path.parent.name: path.read_bytes() for path in folder.glob("*/manifest.json")
    }
    return {job: text for job, text in found.items() if json.loads(text)["finished_at"]}


def judge_calls(folder: Path) -> int:
    return sum(
        json.loads(text)["usage"]["judge_calls"] for text in manifests(folder).values()
    )


def sweeps(folder: Path) -> list[Path]:
    return sorted((folder / "outputs").glob("multirun_*"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], Ran]:
    """What was finished when the sweep was killed, and the same command again."""
    folder = tmp_path_factory.mktemp("killed")
    process = start(*SWEEP, folder=folder)
    give_up = time.monotonic() + 60
    while not any(manifests(sweep) for sweep in sweeps(folder)):
        assert time.monotonic() < give_up
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (sweep,) = sweeps(folder)
    return manifests(sweep), run(*SWEEP, f"hydra.sweep.dir={sweep}", folder=folder)


def test_the_sweep_goes_on_in_the_folder_that_is_named(
    killed: tuple[dict[str, bytes], Ran],
):
    before, again = killed
    assert 0 < len(before) < 4
    assert sweeps(again.folder) == [again.run_dir]


def test_finished_jobs_are_left_as_they_are(killed: tuple[dict[str, bytes], Ran]):
    before, again = killed
    after = manifests(again.run_dir)
    assert sorted(after) == list("0123")
    assert {job: after[job] for job in before} == before
    for job in before:
        assert f"job {job}: it has finished before, and is not run again" in again.out


def test_no_judge_is_asked_twice(killed: tuple[dict[str, bytes], Ran]):
    _, again = killed
    first = json.loads(manifests(again.run_dir)["0"])["usage"]
    assert judge_calls(again.run_dir) == first["verdicts_distinct"] > 0


def test_the_summary_is_complete(killed: tuple[dict[str, bytes], Ran]):
    _, again = killed
    assert "sweep: 4 of 4 jobs finished" in again.out
    jobs = json.loads((again.run_dir / "sweep_jobs.json").read_text(encoding="utf-8"))
    assert [job["finished"] for job in jobs] == [True] * 4
    assert (again.run_dir / "figures/k_by_n_perms.png").is_file()


def test_without_its_folder_or_with_resume_false_all_is_run_anew(
    killed: tuple[dict[str, bytes], Ran],
):
    _, again = killed
    third = run(*SWEEP, folder=again.folder)
    assert third.run_dir != again.run_dir
    assert judge_calls(third.run_dir) == 0
    anew = run(
        *SWEEP, f"hydra.sweep.dir={again.run_dir}", "resume=false", folder=again.folder
    )
    assert "finished before" not in anew.out


def with_a_missing_bank(folder: Path, *more: str) -> Ran:
    """Two jobs, of which the second reads a file that is not there before somebody writes it."""
    return attempt(
        "-m",
        f"prompts.bank_path={bank(folder, 'one')},{folder / 'two.jsonl'}",
        *QUICK,
        "hydra.sweep.dir=sweep",
        *more,
        folder=folder,
    )


def bank(folder: Path, name: str) -> Path:
    """A copy of the shipped prompts, made where there is none yet."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    if not path.exists():
        path.write_bytes((HOME / "prompts/bank.jsonl").read_bytes())
    return path


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return with_a_missing_bank(tmp_path_factory.mktemp("failed"))


def test_a_job_whose_prompts_have_changed_since_is_run_again(tmp_path: Path):
    first = with_a_missing_bank(tmp_path)
    before = manifests(first.run_dir)
    changed = bank(tmp_path, "one")
    changed.write_text(
        "".join(changed.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]),
        encoding="utf-8",
    )
    again = with_a_missing_bank(tmp_path)
    assert again.run_dir == first.run_dir
    assert list(before) == list(manifests(again.run_dir)) == ["0"]
    assert manifests(again.run_dir) != before


@pytest.fixture(scope="module")
def on_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job that reads answers, verdicts, prompts and rubric from files of its own."""
    folder = tmp_path_factory.mktemp("on_file")
    names = (
        "rubrics/factuality.md",
        "prompts/judge_system.md",
        "prompts/pairwise.md",
        "prompts/verdict_schema.json",
    )
    paths = {
        name: shutil.copy(HOME / path, folder)
        for name, path in zip(RUBRIC, names, strict=True)
    }
    own = [f"rubric.factuality.{name}={path}" for name, path in paths.items()]
    own.append(f"prompts.bank_path={bank(folder, 'bank')}")
    run(*QUICK, *own, "hydra.run.dir=asked", folder=folder)
    read = ("recorded_dir=asked/responses", "judge=replay", "judge.path=asked/verdicts")
    run("-m", *QUICK, *own, *read, "hydra.sweep.dir=sweep", folder=folder)
    return folder / "sweep/0"


def is_finished(job: Path) -> bool:
    config = json.loads((job / "manifest.json").read_text(encoding="utf-8"))["config"]
    info = RunInfo(
        run_dir=job, name="", group="sweep", job_type="tournament", config=config
    )
    return sweeping.finished(info) is not None


@pytest.mark.parametrize(
    "changed",
    [
        "bank.jsonl",
        "asked/responses/responses_probe_hedged.jsonl",
        "asked/verdicts/factuality.jsonl",
        "factuality.md",
        "judge_system.md",
        "pairwise.md",
        "verdict_schema.json",
    ],
)
def test_a_change_of_any_file_that_a_job_reads_is_noticed(
    on_file: Path, monkeypatch: pytest.MonkeyPatch, changed: str
):
    monkeypatch.chdir(on_file.parents[1])
    file = Path(changed)
    before = file.read_bytes()
    assert is_finished(on_file)
    file.write_bytes(before + b"\n")
    assert not is_finished(on_file)
    file.write_bytes(before)
    assert is_finished(on_file)


def test_a_file_that_is_new_in_a_folder_of_verdicts_is_noticed(
    on_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(on_file.parents[1])
    verdicts = Path("asked/verdicts")
    more = shutil.copy(verdicts / "factuality.jsonl", verdicts / "more.jsonl")
    assert not is_finished(on_file)
    Path(more).unlink()


def test_weights_that_have_changed_are_noticed(
    on_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(on_file.parents[1])
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    (model / "model.safetensors").write_bytes(
        bytes(3 << 20)
    )  # the hash of a file of this size is remembered
    (model / "notes.md").write_text("no file of the model", encoding="utf-8")
    job = Path(shutil.copytree(on_file, tmp_path / "job"))
    manifest = json.loads((job / "manifest.json").read_text(encoding="utf-8"))
    hashes = checkpoints.hashes(
        checkpoints.weight_files(str(model)), Path(manifest["config"]["cache_dir"])
    )
    manifest["weights"] = {"entrant mine": hashes}
    (job / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert is_finished(job)
    (model / "notes.md").write_text("other notes", encoding="utf-8")
    assert is_finished(job)
    (model / "model.safetensors").write_bytes(bytes(3 << 20)[:-1] + b"1")
    assert not is_finished(job)
    (model / "model.safetensors").unlink()
    assert not is_finished(job)


def test_a_job_whose_answers_have_changed_is_run_again(tmp_path: Path):
    """The second job finds no answers at first; until they are there, those of the first are replaced."""
    made = run(*QUICK, folder=tmp_path).run_dir / "responses"
    shutil.copytree(made, tmp_path / "one")
    sweep = ("-m", *QUICK, "recorded_dir=one,two", "hydra.sweep.dir=sweep")
    attempt(*sweep, folder=tmp_path)
    before = manifests(tmp_path / "sweep")
    shutil.copytree(made, tmp_path / "two")
    answers = tmp_path / "one/responses_probe_swapped.jsonl"
    answers.write_text(
        answers.read_text(encoding="utf-8").replace("Certainly. ", ""), encoding="utf-8"
    )
    again = run(*sweep, folder=tmp_path)
    after = manifests(tmp_path / "sweep")
    assert list(before) == ["0"]
    assert (sorted(after), "finished before" in again.out) == (["0", "1"], False)
    written = tmp_path / "sweep/0/responses/responses_probe_swapped.jsonl"
    assert "Certainly. " not in written.read_text(encoding="utf-8")


def test_a_failed_job_is_tried_again_and_the_others_are_not(failed: Ran):
    before = manifests(failed.run_dir)
    assert (failed.code, list(before)) == (1, ["0"])
    assert "hydra.sweep.dir=sweep" in failed.out
    bank(failed.folder, "two")
    mended = with_a_missing_bank(failed.folder)
    assert mended.code == 0
    assert mended.run_dir == failed.run_dir
    after = manifests(mended.run_dir)
    assert after["0"] == before["0"]
    assert "1" in after


def test_a_job_whose_settings_have_changed_is_run_again(tmp_path: Path):
    """In a folder that was named by hand."""
    sweep = ("-m", *QUICK, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    run(*sweep, "elo.k=8,16", folder=tmp_path)
    ran = run(*sweep, "elo.k=8,32", folder=tmp_path)
    assert "job 0: it has finished before" in ran.out
    assert "job 1: it has finished before" not in ran.out
    ks = [
        json.loads(text)["config"]["elo"]["k"]
        for _, text in sorted(manifests(ran.run_dir).items())
    ]
    assert ks == [8, 32]
