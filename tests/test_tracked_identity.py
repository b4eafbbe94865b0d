"""One run in a tracker for each job, however often it was killed and given again, and no other job's.

Its id is made of the token of its folder and of the settings that change what it concludes.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elo_exp.files import read_json
from elo_exp.runs.manifest import claim_run_id
from tests.commands import QUICK, attempt_program, command, environment, run
from tests.project_server import ProjectServer
from tests.test_trackers import rows_of

SETTINGS = {"elo": {"k": 16}, "seed": 1}

# The id


def test_an_id_is_that_of_the_folder_and_of_the_settings_that_matter(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    first = claim_run_id(here, SETTINGS)
    assert claim_run_id(here, SETTINGS) == first
    assert claim_run_id(here, {**SETTINGS, "tracker": {}, "figures": False}) == first
    other = claim_run_id(here, {**SETTINGS, "elo": {"k": 32}})
    assert other != first
    assert claim_run_id(here, SETTINGS) == first  # and back
    assert claim_run_id(there, SETTINGS) != first
    moved = here.rename(tmp_path / "moved")
    assert claim_run_id(moved, SETTINGS) == first
    assert first.startswith(f"{read_json(moved / 'manifest.json')['token']}-")


@pytest.mark.system
def test_a_run_keeps_the_token_of_its_folder_and_its_id_goes_to_the_tracker(
    tmp_path: Path,
):
    """Also of a sweep that is repeated in its folder."""
    given = ("experiment=rate", "tracker=local", "figures=false", "elo.n_perms=5")
    (tmp_path / "battles.csv").write_text(
        "model_a,model_b,winner\na,b,model_a\nb,a,model_a\n", encoding="utf-8"
    )
    ids = []
    for _ in range(2):
        words = ("-m", "elo.k=4,8", "resume=false", "hydra.sweep.dir=both")
        ran = run(*given, "battles=battles.csv", *words, folder=tmp_path)
        folders = [ran.run_dir / job for job in ("0", "1", "")]
        ids.append([rows_of(folder)["run"][0]["id"] for folder in folders])
        assert all(rows_of(folder)["exit"] == [0] for folder in folders)
    assert ids[0] == ids[1]
    assert len({*ids[0]}) == 3
    logs = [ran.run_dir / job / "tracker/log.jsonl" for job in "01"]
    before = [log.read_bytes() for log in logs]
    words = ("-m", "elo.k=4,8", "hydra.sweep.dir=both")  # both have finished
    run(*given, "battles=battles.csv", *words, folder=tmp_path)
    assert [log.read_bytes() for log in logs] == before
    assert rows_of(ran.run_dir)["run"][0]["id"] == ids[0][2]
    earlier = rows_of(ran.run_dir / "0/earlier")["run"]  # its log is kept
    assert [row["id"] for row in earlier] == ids[0][:1]
    token = read_json(ran.run_dir / "0/manifest.json")["token"]
    assert ids[0][0].startswith(f"{token}-")


# Killed, and given again


@pytest.fixture
def server() -> Iterator[ProjectServer]:
    with ProjectServer() as found:
        yield found


# The token is written, the tracker has begun, the tracker has results
WHERE = ("manifest.json", "wandb/*run-*/run-*.wandb", "ratings.json")


def job(
    folder: Path, name: str, kill_at: str | None = None, *more: str, **variables: str
) -> int:
    """Run a job in a folder; kill it once this attempt has left a file."""
    words = (*QUICK, "tracker=wandb", f"hydra.run.dir={name}", *more)

    def files() -> dict[Path, int]:
        found = (folder / name).glob(kill_at) if kill_at else ()
        return {path: path.stat().st_mtime_ns for path in found}

    before = files()
    process = subprocess.Popen(
        command(*words, strict=False),
        cwd=folder,
        env=environment(folder) | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while kill_at and process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # it was set aside
            if not files().items() <= before.items():
                process.kill()
        time.sleep(0.01)
    return process.wait()


def pieces(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*"))


@pytest.mark.system
def test_offline_the_last_attempt_is_the_whole_run_and_earlier_pieces_are_set_aside(
    tmp_path: Path, server: ProjectServer
):
    """`wandb sync` of several pieces of one id sends none, or a fragment, if the first was killed."""
    offline = {"WANDB_MODE": "offline"}
    for kill_at in WHERE:
        assert job(tmp_path, "run", kill_at, **offline) < 0
    assert pieces(tmp_path / "run")
    assert job(tmp_path, "run", **offline) == 0
    (piece,) = pieces(tmp_path / "run")
    aside = [*(tmp_path / "run/earlier/wandb").glob("offline-run-*")]
    assert len(aside) >= 2
    token = read_json(tmp_path / "run/manifest.json")["token"]
    assert f"-{token}-" in piece.name
    sync = (sys.executable, "-m", "wandb", "sync", str(piece))
    synced = attempt_program(*sync, folder=tmp_path, **server.variables)
    assert (synced.code, "ERROR" in synced.err) == (0, False), synced.err
    (found,) = server.runs.values()
    assert found.exits == [0]
    kept = {one.collection: one.version for one in server.artifacts.values()}
    made = {"bank-bank", "verdicts-lexical", "leaderboard", "run-files"}
    assert dict.fromkeys(made, 0).items() <= kept.items()
    assert found.used == []  # the bank is an output of a run that was offline
    assert (
        found.summary["headline"]
        == read_json(tmp_path / "run/manifest.json")["headline"]
    )


@pytest.mark.system
def test_online_it_is_one_run_and_what_only_the_killed_attempt_logged_is_gone(
    tmp_path: Path, server: ProjectServer
):
    for kill_at in WHERE[::2]:
        assert job(tmp_path, "run", kill_at, **server.variables) < 0
    for found in server.runs.values():
        found.summary |= {"order/factuality/other": 1.0, "progress/seconds": 100.0}
    assert job(tmp_path, "run", **server.variables) == 0
    (found,) = server.runs.values()
    assert found.exits == [0]
    assert "order/factuality/other" not in found.summary
    assert found.summary["progress/seconds"] > 100  # it goes on
    manifest = read_json(tmp_path / "run/manifest.json")
    assert found.summary["headline"] == manifest["headline"]
    assert found.summary["order_mean/mc_error"] > 0
    assert "ratings/factuality_table" in found.summary
    assert found.id.startswith(f"{manifest['token']}-")
    assert not [*tmp_path.rglob("artifacts")]  # no copy of what was uploaded
    copied = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    (copied / "manifest.json").unlink()  # without its token: another run
    assert job(tmp_path, "copy", **server.variables) == 0
    assert len(server.runs) == 2
    check_versions(server, tmp_path)
    assert not server.unknown


def check_versions(server: ProjectServer, folder: Path) -> None:
    """Two runs with the same settings have one leaderboard; another K has the next, of the same answers and verdicts.

    A comparison fetches that one, and uses both.
    """

    def versions() -> dict[str, list[list[str]]]:
        found: dict[str, list[list[str]]] = {}
        for one in sorted(server.artifacts.values(), key=lambda one: one.version):
            found.setdefault(one.collection, []).append(one.aliases)
        return found

    first, second = (f"run-{run.id}" for run in server.runs.values())
    same = sorted(("latest", first, second))
    assert [sorted(aliases) for aliases in versions()["leaderboard"]] == [same]
    given = ("elo.k=32", "tracker.registry=wandb-registry-elo_exp/board")
    assert job(folder, "other", None, *given, **server.variables) == 0
    third = f"run-{[*server.runs][2]}"
    found = versions()
    assert found["leaderboard"] == [sorted((first, second)), ["latest", third]]
    linked = [(one.collection, one.version) for one in server.links["board"]]
    assert linked == [("leaderboard", 1)]
    made = [name for name in found if name.startswith(("responses-", "verdicts-"))]
    assert {*made} >= {"verdicts-lexical", "responses-probe_reference"}
    assert all(len(found[name]) == 1 for name in ("bank-bank", *made))
    used = [[server.artifacts[a] for a in run.used] for run in server.runs.values()]
    assert {bank.collection for (bank,) in used} == {"bank-bank"}
    compared = run(
        "experiment=compare",
        "runs=[wandb:me/elo_exp/leaderboard:v1,run]",
        "tracker=wandb",
        "figures=false",
        folder=folder,
        strict=False,
        **server.variables,
    )
    assert compared.read("compare.json")["differences"] == {
        "elo.k": {"leaderboard_v1": 32, "run": 16}
    }
    assert "run 1  leaderboard_v1: tournament" in compared.out
    uses = [server.artifacts[a] for a in [*server.runs.values()][-1].used]
    assert [(a.collection, a.version) for a in uses] == [
        ("leaderboard", 1),
        ("leaderboard", 0),
    ]
    assert versions()["leaderboard"] == found["leaderboard"]


@pytest.mark.slow
def test_what_a_sweep_prints_leaves_out_what_was_cut_off(
    tmp_path: Path, server: ProjectServer
):
    """A killed job of other settings in its folder: `wandb sync` of its piece, too, would send none."""
    sweep = ("-m", "hydra.sweep.dir=both")
    at, offline = "0/wandb/offline-run-*/run-*.wandb", {"WANDB_MODE": "offline"}
    assert job(tmp_path, "both", at, *sweep, "elo.k=4,8", **offline) < 0
    words = (*QUICK, "tracker=wandb", *sweep, "elo.k=16,32")
    ran = run(*words, folder=tmp_path, strict=False, **offline)
    assert len([*tmp_path.glob("both/0/wandb/offline-*")]) == 2
    (line,) = (line for line in ran.out.splitlines() if line.startswith("tracked"))
    sync = line.partition("Upload: wandb ")[2]
    shell = ("bash", "-c", f"{sys.executable} -m wandb {sync}")
    synced = attempt_program(*shell, folder=tmp_path, **server.variables)
    assert (synced.code, "ERROR" in synced.err) == (0, False), synced.err
    names = [found.fields["displayName"] for found in server.runs.values()]
    assert sorted(names) == ["k=16", "k=32", "sweep-summary"]
