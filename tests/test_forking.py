"""A command run by a server of forking.py is told, says and ends as one of a new Python."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forking
from tests.commands import QUICK, attempt, attempt_program, environment


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The words for a Python that has imported json."""
    folder = tmp_path_factory.mktemp("s")
    with forking.begin(
        str(folder / "python"), ["json"], folder=folder, variables=environment(folder)
    ):
        yield forking.asking(str(folder / "python"))


def begun(python: list[str], script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*python, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_it_has_the_folder_the_variables_the_arguments_and_the_files_of_who_asks(
    python: list[str], tmp_path: Path
):
    script = "import os, sys; print(os.getcwd(), os.environ['WHO'], sys.argv); print(repr(input()), file=sys.stderr)"
    asked = subprocess.run(
        [*python, "-c", script, "a b"],
        cwd=tmp_path,
        env={"WHO": "ann"},
        input="her line\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout == f"{tmp_path} ann ['-c', 'a b']\n"
    assert asked.stderr == "'her line'\n"


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no such file')", 1, "no such file\n"),
        (
            "import atexit; atexit.register(lambda: print('bye', file=__import__('sys').stderr))",
            0,
            "bye\n",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import sys; sys.stdout.close()", 0, ""),
    ],
)
def test_it_ends_as_a_command_does(
    script: str, code: int, said: str, python: list[str], tmp_path: Path
):
    ran = attempt_program(*python, "-c", script, folder=tmp_path)
    assert (ran.code, ran.out, ran.err) == (code, "", said)


def test_an_error_of_ours_is_a_traceback(python: list[str], tmp_path: Path):
    ran = attempt_program(*python, "-c", "1 / 0", folder=tmp_path)
    assert ran.code == 1
    assert ran.err.startswith("Traceback")
    assert ran.err.endswith("\nZeroDivisionError: division by zero\n")


def test_commands_share_nothing_but_the_imports(python: list[str], tmp_path: Path):
    script = "import json, os; print(hasattr(json, 'mark'), 'MARK' in os.environ); json.mark = os.environ['MARK'] = '1'"
    both = [attempt_program(*python, "-c", script, folder=tmp_path).out for _ in range(2)]
    assert both == ["False False\n"] * 2


def test_ctrl_c_reaches_it(python: list[str]):
    script = "import time; print('here', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)"
    with begun(python, script) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


def test_it_is_killed_with_who_asked(python: list[str]):
    with begun(
        python, "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.communicate(timeout=30)  # which waits for all that hold its output
    give_up = time.monotonic() + 30
    while is_there(pid) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not is_there(pid)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("elo.kk=3",),
        ("experiment=store", "store.action=purge"),
        (*QUICK, "plan=true", "judge=opus"),
        (*QUICK, "hydra.run.dir=run", "judging.stored_only=true"),
        ("-m", "elo.k=8,-1", *QUICK, "hydra.sweep.dir=sweep"),
    ],
    ids=" ".join,
)
def test_it_says_what_a_new_python_says(arguments: tuple[str, ...], tmp_path: Path):
    asked, new = (
        attempt(*arguments, folder=tmp_path / name, anew=name == "new") for name in ("ask", "new")
    )
    assert asked.code == new.code
    assert asked.out.replace(str(asked.folder), str(new.folder)) == new.out
    assert asked.err == new.err
