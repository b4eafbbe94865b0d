"""A run that is asked to end stores what is under way: by Ctrl-C, SIGTERM and SIGHUP, and by its caller.

The signals are real, and so are the SDKs and the servers on 127.0.0.1. Each question is asked of the server again by the
same command only if it had not been sent.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import elo_exp
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import QUICK, attempt, attempt_program, command, run, start
from tests.http_server import AcceptThenHang, Call, Stage
from tests.openai_server import OpenAiServer, alone
from tests.stores import rows
from tests.test_launchers import JOBLIB, N_PROMPTS, answered, bank, ended, key, paid

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def n_stored(folder: Path) -> int:
    [(n,)] = rows(folder / "outputs/cache/store.sqlite", "SELECT COUNT(*) FROM answers")
    return int(n)


def asked_once(server: OpenAiServer, folder: Path) -> tuple[str, ...]:
    """A command that asks a server for an answer to each prompt, two at a time."""
    name = "entrant.openai_compatible"
    return (
        *("experiment=answer", "entrant=[openai_compatible]", "tracker=local"),
        *(f"{name}.base_url={server.url}", f"{name}.model=small"),
        *(f"{name}.concurrency=2", "mode=demo", "study=medical", bank(folder)),
    )


def at_the_third(act: Callable[[], None]) -> Callable[[Stage, Call], None]:
    """Act when the server has done what the third call asked for, and not yet answered."""
    seen = list[str]()

    def watch(stage: Stage, call: Call) -> None:
        if stage == "accepted" and call.method == "POST":
            seen.append(call.path)
            if len(seen) == 3:
                act()
                time.sleep(0.3)

    return watch


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_lets_the_command_store_what_is_on_its_way(
    tmp_path: Path, number: int, code: int
):
    before = [signal.getsignal(one) for one, _ in SIGNALS]
    with OpenAiServer() as server:
        server.on_call = at_the_third(send(number))
        given = asked_once(server, tmp_path)
        ran = attempt(*given, folder=tmp_path)
        assert ran.code == code, ran.err
        assert "run the same command again." in ran.err.splitlines()[-1]
        assert n_stored(tmp_path) == server.billed.total() in (3, 4)
        server.on_call = None
        run(*given, folder=tmp_path)
    assert set(server.billed.values()) == {1}
    assert server.billed.total() == n_stored(tmp_path) == N_PROMPTS
    assert [signal.getsignal(one) for one, _ in SIGNALS] == before


def test_ctrl_c_while_the_program_is_imported_prints_no_traceback(tmp_path: Path):
    """Python names each module that it has imported: the signal comes with the first of Hydra's, long before the last."""
    with start("--version", folder=tmp_path, PYTHONPROFILEIMPORTTIME="1") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "hydra." in line:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "KeyboardInterrupt" not in err
    assert "Traceback" not in err


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(
    tmp_path: Path, number: int
):
    """As SIGHUP is under nohup, and SIGINT of what a script starts in the background."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with OpenAiServer() as server:
            server.on_call = at_the_third(send(number))
            run(*asked_once(server, tmp_path), folder=tmp_path)
    finally:
        signal.signal(number, before)
    assert n_stored(tmp_path) == N_PROMPTS


@pytest.mark.system
def test_a_second_signal_ends_the_command_at_once(tmp_path: Path):
    with OpenAiServer() as server:
        server.fault(AcceptThenHang(600.0), nth=None)
        process = start(*asked_once(server, tmp_path), folder=tmp_path)
        while server.billed.total() < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Send SIGTERM again to give them up" in err


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_a_batch_be_submitted_and_the_same_command_collects_it(
    tmp_path: Path, number: int
):
    with AnthropicServer(verdicts=longer, outcomes=answered) as server:

        def watch(stage: Stage, call: Call) -> None:
            is_batch = call.method == "POST" and call.path.endswith("/batches")
            if stage == "accepted" and is_batch:
                os.kill(os.getpid(), number)
                time.sleep(0.3)

        server.on_call = watch
        given = paid(server, tmp_path)
        broken = attempt(*given, folder=tmp_path, **key(server))
        assert broken.code == 128 + number, broken.err
        assert "batches still under way on the server" in broken.err
        states = "SELECT state FROM batches"
        assert rows(tmp_path / "outputs/cache/store.sqlite", states) == [("submitted",)]
        server.on_call = None
        run(*given, folder=tmp_path, **key(server))
    assert len(server.batches) == 1
    assert set(server.meter.billed_bodies.values()) == {1}


@pytest.mark.system
def test_a_signal_ends_a_sweep_whose_jobs_are_in_this_process(tmp_path: Path):
    with OpenAiServer() as server:
        server.on_call = at_the_third(send(signal.SIGTERM))
        given = (*asked_once(server, tmp_path), "-m", "name=a,b")
        ran = attempt(*given, folder=tmp_path)
        assert ran.code == 143, ran.err
        assert n_stored(tmp_path) == server.billed.total() in (3, 4)
        server.on_call = None
        run(*given, folder=tmp_path)
    assert set(server.billed.values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("is_for_all", [False, True], ids=["sweep", "all"])
def test_a_signal_lets_the_workers_of_a_sweep_store_what_is_on_their_way(
    tmp_path: Path, is_for_all: bool
):
    """As `kill` sends it to the command alone, and a closed terminal to all of its processes."""
    held = threading.Event()

    def watch(stage: Stage, call: Call) -> None:
        if stage == "accepted" and call.method == "POST":
            held.set()
            time.sleep(2.0)

    with OpenAiServer(on_call=watch) as server:
        given = (*asked_once(server, tmp_path), "-m", "name=a,b,c", *JOBLIB)
        sweep = start(*given, folder=tmp_path)
        assert held.wait(300)
        owners = rows(tmp_path / "outputs/cache/store.sqlite", "SELECT pid FROM owners")
        others = {pid for (pid,) in owners} - {sweep.pid} if is_for_all else set()
        for pid in (sweep.pid, *others):
            os.kill(pid, signal.SIGTERM)
        broken = ended(sweep, tmp_path)
        assert broken.code == 143, broken.err
        assert n_stored(tmp_path) == server.billed.total() < N_PROMPTS
        server.on_call = None
        run(*given, folder=tmp_path, anew=True)
    assert set(server.billed.values()) == {1}
    assert not list(tmp_path.glob("outputs/multirun*/.stop"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "word"), [("TERM@60", "srun"), ("B:TERM@60", "exec")]
)
@pytest.mark.skipif(
    shutil.which("sinfo") is None
    or subprocess.run(["sinfo"], capture_output=True, check=False).returncode != 0,
    reason="there is no Slurm here",
)
def test_slurm_ends_a_run_before_its_limit_and_the_answers_are_stored(
    tmp_path: Path, option: str, word: str
):
    """As docs/slurm.md has it. Slurm sends the signal half a minute earlier than it is asked to."""

    def watch(stage: Stage, call: Call) -> None:
        if stage == "accepted" and call.method == "POST":
            time.sleep(25.0)  # the third pair is not asked for before the signal

    with OpenAiServer(on_call=watch) as server:
        given = asked_once(server, tmp_path)
        script = f"{word} {shlex.join(command(*given))}"
        options = ("--wait", "--time=2", f"--signal={option}", "--output=log")
        ended_by = attempt_program(
            "sbatch", *options, f"--wrap={script}", folder=tmp_path, NO_PROXY="*"
        )
        log = (tmp_path / "log").read_text()
        assert ended_by.code == 143, log
        assert "interrupted (SIGTERM). Every answer so far is stored" in log
        assert 0 < n_stored(tmp_path) == server.billed.total() < N_PROMPTS
        server.on_call = None
        run(*given, folder=tmp_path)
    assert set(server.billed.values()) == {1}


# Programs that call the library


@pytest.mark.system
def test_a_program_ends_a_run_by_its_event(tmp_path: Path, monkeypatch):
    alone(monkeypatch, tmp_path)
    stop, raised = threading.Event(), list[BaseException]()
    with OpenAiServer() as server:
        given = asked_once(server, tmp_path)

        def call() -> None:
            try:
                elo_exp.run(*given, stop=stop)
            except BaseException as error:
                raised.append(error)

        server.on_call = at_the_third(stop.set)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(120)
        [error] = raised
        assert isinstance(error, elo_exp.StoppedError)
        assert isinstance(error, elo_exp.UserError)
        assert n_stored(tmp_path) == server.billed.total() in (3, 4)
        server.on_call = None
        with pytest.raises(elo_exp.StoppedError, match="The call was stopped"):
            elo_exp.run(*given, stop=stop)
        elo_exp.run(*given, stop=threading.Event())
    assert set(server.billed.values()) == {1}


def test_a_run_without_calls_ends_by_its_event(tmp_path: Path, monkeypatch):
    """Words are counted here, thousands of times."""
    monkeypatch.chdir(tmp_path)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(elo_exp.StoppedError):
        for _ in range(100):
            elo_exp.run("judge=lexical", *QUICK[1:], stop=stop)


@pytest.mark.slow
def test_a_program_without_a_handler_is_ended_by_the_signal_once_answers_are_stored(
    tmp_path: Path,
):
    """As it would have been without us."""
    program = "import sys, elo_exp; elo_exp.run(*sys.argv[1:]); print('went on')"
    held = threading.Event()

    def watch(stage: Stage, call: Call) -> None:
        if stage == "accepted" and call.method == "POST":
            held.set()
            time.sleep(1.0)

    with OpenAiServer(on_call=watch) as server:
        given = asked_once(server, tmp_path)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *given],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
        )
        assert held.wait(120)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
        assert (process.returncode, out) == (-signal.SIGTERM, b"")
        assert 0 < n_stored(tmp_path) == server.billed.total() < N_PROMPTS


def test_a_program_keeps_its_own_handler(tmp_path: Path, monkeypatch):
    """The run goes on: the program may set `stop`."""
    alone(monkeypatch, tmp_path)
    came = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with OpenAiServer() as server:
            server.on_call = at_the_third(send(signal.SIGTERM))
            elo_exp.run(*asked_once(server, tmp_path))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
    assert n_stored(tmp_path) == N_PROMPTS
