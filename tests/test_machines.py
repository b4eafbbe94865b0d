"""Four processes on two hosts share one PostgreSQL: nothing is made twice, and the work of a host that goes down goes on.

The hosts are namespaces of this machine, of names of their own: no process of one is looked for by its number from the
other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from elo_exp.errors import UserError
from elo_exp.store.answer_store import Store
from elo_exp.store.judge_identities import list_judges
from tests.commands import QUICK, command, environment
from tests.documented import blocks
from tests.http_server import Call, Stage
from tests.openai_server import OpenAiServer
from tests.stores import empty_schema, rows

HOSTS = ("node-1", "node-1", "node-2", "node-2")
ON_A_HOST = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
N_PROMPTS = 8


@pytest.fixture(autouse=True)
def hosts() -> None:
    try:
        subprocess.run([*ON_A_HOST, "node", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process may be given a host's name of its own here")


def start(host: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [*ON_A_HOST, host, *command(*words)],
        cwd=folder,
        env=environment(folder) | {"NO_PROXY": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def judged(server: OpenAiServer, place: str) -> list[str]:
    """Words of a tournament that is judged at the server."""
    return [
        "judge=openai_compatible",
        f"judge.base_url={server.url}",
        "judge.model=large",
        "judge.concurrency=2",
        f"+mode.strata.medqa={N_PROMPTS}",
        f"store={place}",
        *QUICK[2:],
    ]


def answered(server: OpenAiServer) -> list[str]:
    """Words of a model that answers at the server."""
    entrant = "entrant.openai_compatible"
    return [
        "entrant=[openai_compatible,probe_reference]",
        f"{entrant}.base_url={server.url}",
        f"{entrant}.model=small",
        f"{entrant}.concurrency=2",
    ]


def made(place: str) -> list[dict[str, object]]:
    """What the server was asked for, as it is stored: answers of the model, and replies of the judge."""
    values = [
        json.loads(value) for (value,) in rows(place, "SELECT value FROM answers")
    ]
    return [v for v in values if v.get("entrant_id") != "probe_reference"]


@pytest.mark.faults
def test_four_processes_on_two_hosts_make_nothing_twice_and_the_work_of_a_lost_host_goes_on(
    tmp_path: Path,
):
    place = empty_schema()

    def take_time(stage: Stage, call: Call) -> None:
        if stage == "before":
            time.sleep(0.5)

    with OpenAiServer(on_call=take_time) as server:
        given = answered(server) + judged(server, place)
        running = [
            (host, start(host, tmp_path / str(n), *given))
            for n, host in enumerate(HOSTS)
        ]
        try:
            while server.billed.total() < N_PROMPTS + 4:  # it judges
                assert all(process.poll() is None for _, process in running)
                time.sleep(0.05)
            held = "SELECT DISTINCT host FROM claims JOIN owners USING (owner)"
            [(lost_host,)] = rows(place, held)
            killed_at = time.monotonic()
            for host, process in running:
                if host == lost_host:
                    process.kill()
            for host, process in running:
                out, _ = process.communicate(timeout=500)
                assert process.returncode == (-9 if host == lost_host else 0), out
            seconds = time.monotonic() - killed_at
        finally:
            for _, process in running:
                process.kill()
    assert seconds < 200, f"{seconds:.0f} s"
    ((n_lost,),) = rows(place, "SELECT COUNT(*) FROM losses")
    assert n_lost <= 2  # those on their way when the host was lost
    assert len(made(place)) == len(server.billed)
    assert server.billed.total() <= len(server.billed) + n_lost
    assert rows(place, "SELECT COUNT(*) FROM claims") == [(0,)]


@pytest.mark.faults
def test_four_processes_on_two_hosts_make_each_answer_and_each_verdict_once(
    tmp_path: Path,
):
    place = empty_schema()
    with OpenAiServer() as server:
        given = answered(server) + judged(server, place)
        running = [
            start(host, tmp_path / str(n), *given) for n, host in enumerate(HOSTS)
        ]
        for process in running:
            out, _ = process.communicate(timeout=500)
            assert process.returncode == 0, out
    assert set(server.billed.values()) == {1}
    assert len(made(place)) == server.billed.total() > 2 * N_PROMPTS
    boards = {
        (found[0] / "elo_results.json").read_text()
        for n in range(len(HOSTS))
        if (found := list((tmp_path / str(n) / "outputs").glob("demo_*")))
    }
    assert len(boards) == 1


@pytest.mark.faults
def test_four_processes_on_two_hosts_never_pass_the_cap_of_the_month(tmp_path: Path):
    place, cap = empty_schema(), 0.1
    with OpenAiServer() as server:
        given = [
            "entrant=[probe_reference,probe_hedged,probe_partial]",
            *judged(server, place),
            "judge.input_usd_per_million=2",
            "judge.output_usd_per_million=8",
            "judge.expected_output_tokens=1",  # the plan fits, and the verdicts do not
            "judge.chars_per_token=50",
            "judging.budget_usd=50",
            f"caps.month_usd={cap}",
        ]
        running = [
            start(host, tmp_path / str(n), *given) for n, host in enumerate(HOSTS)
        ]
        for process in running:
            out, _ = process.communicate(timeout=500)
            assert process.returncode == 2, out
            assert re.search(r"caps.month_usd: .* are spent in", out), out
    usage = server.usage
    spent = usage["prompt_tokens"] * 2e-6 + usage["completion_tokens"] * 8e-6
    assert 0.4 * cap < spent <= cap
    ((booked,),) = rows(
        place, "SELECT dollars FROM spending WHERE scope LIKE 'month %'"
    )
    assert spent == pytest.approx(booked)
    assert set(server.billed.values()) == {1}


def as_nobody(line: str, folder: Path, **variables: str) -> str:
    """What a shell prints; the server of a database is not run by root."""
    ran = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "USER": "me"} | variables,
        user="nobody" if os.getuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.faults
def test_the_script_of_the_page_starts_a_server_that_asks_for_the_password(
    monkeypatch: pytest.MonkeyPatch,
):
    """And twice begun is once begun. The command finds the password where the script has left it."""
    if not (shutil.which("initdb") and shutil.which("pg_ctl")):
        pytest.skip("no initdb and pg_ctl on PATH")
    (script,) = (b.text for b in blocks("docs/clusters.md") if "initdb --" in b.text)
    with tempfile.TemporaryDirectory(prefix="elo_exp_login_", dir="/tmp") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o777)
        script = script.replace("/scratch/$USER", name).replace("5433", str(port))
        script = script.replace("$(hostname -f)", "127.0.0.1")
        try:
            said = [as_nobody(script, folder).splitlines()[-1] for _ in range(2)]
            url = f"postgresql://me@127.0.0.1:{port}/elo_exp"
            assert said == [f"export STORE={url}"] * 2
            password_file = folder / ".pgpass"
            assert password_file.stat().st_mode & 0o077 == 0
            monkeypatch.setenv("PGPASSFILE", str(copy_of(password_file)))
            with Store(url) as store:
                assert list_judges(store) == []
            monkeypatch.setenv("PGPASSFILE", "/dev/null")
            with pytest.raises(UserError, match="no password supplied"):
                Store(url)
        finally:
            as_nobody(f"pg_ctl --pgdata={name}/elo_exp_store stop", folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def copy_of(file: Path) -> Path:
    """Of one's own: another's is not read by libpq."""
    copy = file.with_name("copy")
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)
    return copy
