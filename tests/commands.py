"""The command as a user gives it: an empty home, no settings of the shell's, no terminal.

It runs in this process, through the entrypoint, so that nothing is imported twice; with `anew` in one of its own, for
tests about processes and what they import, and for Weights & Biases, which keeps a service running.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import (
    ExitStack,
    chdir,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from tests.pages import Reader
from tests.settings_files import read_settings_once

SCRIPTS = Path(sys.executable).parent
SMALL = (
    "judging.limit_pairs=40",
    "elo.n_perms=20",
)  # enough for every artifact, in two seconds
LOCAL = (*SMALL, "tracker=local")
DRAWN = (*LOCAL, "rubric=[factuality]")
QUICK = (*DRAWN, "figures=false")  # they take as long as all the rest
_SECONDS = 600  # a program that takes this long hangs
_READ_AT_IMPORT = ("HF_", "OPENAI_LOG", "PYTHONPATH", "TRACKIO_")
_INHERITED = dict(os.environ)
_ONE_AT_A_TIME = threading.RLock()  # a process has one folder, environment and output


@dataclass(frozen=True)
class Ran:
    """A command that has ended. `folder` is where it was given."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def run_dir(self) -> Path:
        lines = self.out.splitlines()
        named = [line for line in lines if line.startswith("files ")]
        return self.folder / (named or lines)[-1].removeprefix("files").strip()

    def read(self, name: str) -> Any:
        """A JSON file of the run folder."""
        return json.loads((self.run_dir / name).read_text(encoding="utf-8"))

    @property
    def page(self) -> Reader:
        """The report of the run."""
        return Reader((self.run_dir / "report.html").read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A JSON lines file of the run folder."""
        text = (self.run_dir / name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def environment(folder: Path) -> dict[str, str]:
    """What conftest.py has left of the shell's, an empty home, and Matplotlib's list of fonts."""
    home = {"HOME": str(folder / "home"), "MPLCONFIGDIR": matplotlib.get_cachedir()}
    return _INHERITED | home


def command(*arguments: str, strict: bool = True) -> list[str]:
    """`python -m elo_exp`, warnings being errors; not `strict` for wandb, which leaves folders for Python to clear."""
    return [
        sys.executable,
        *(("-W", "error") if strict else ()),
        "-m",
        "elo_exp",
        *arguments,
    ]


def start(*arguments: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """The command in a process of its own, begun and not waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(folder) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(
    *arguments: str,
    folder: Path,
    strict: bool = True,
    anew: bool = False,
    **variables: str,
) -> Ran:
    """The command, which has to succeed."""
    ran = attempt(*arguments, folder=folder, strict=strict, anew=anew, **variables)
    assert ran.code == 0, ran.err
    return ran


def attempt(
    *arguments: str,
    folder: Path,
    strict: bool = True,
    anew: bool = False,
    **variables: str,
) -> Ran:
    """The command, run to its end, whatever that is; in a process of its own if `anew` or not `strict`."""
    if (
        anew
        or not strict
        or any(name.startswith(_READ_AT_IMPORT) for name in variables)
    ):
        return attempt_program(
            *command(*arguments, strict=strict), folder=folder, **variables
        )
    from elo_exp.__main__ import main

    folder.mkdir(parents=True, exist_ok=True)
    with _as_process("elo_exp", *arguments, folder=folder, variables=variables) as (
        out,
        err,
    ):
        code = _exit_code(main)
    return Ran(folder, code, out.getvalue(), err.getvalue())


def attempt_program(*program: str, folder: Path, **variables: str) -> Ran:
    """Another program under the same conditions."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        program,
        cwd=folder,
        env=environment(folder) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_SECONDS,
        check=False,
    )
    return Ran(folder, done.returncode, done.stdout, done.stderr)


class _Console(io.TextIOWrapper):
    """The text written so far can be read, also after the program has closed it."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    def getvalue(self) -> str:
        return self._bytes.getvalue().decode()


def _exit_code(main: Any) -> int:
    """What the process would end with: an uncaught error leaves its traceback, as Python does."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _as_process(
    *argv: str, folder: Path, variables: dict[str, str]
) -> Iterator[tuple[_Console, _Console]]:
    """Give the arguments, folder, environment and output that a new process would have, and take them back."""
    out, err = _Console(), _Console()
    with ExitStack() as stack:
        stack.enter_context(_ONE_AT_A_TIME)
        stack.enter_context(_logging_restored())
        stack.enter_context(patch.object(sys, "argv", list(argv)))
        stack.enter_context(
            patch.dict(os.environ, environment(folder) | variables, clear=True)
        )
        stack.enter_context(chdir(folder))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(read_settings_once())
        stack.callback(GlobalHydra.instance().clear)
        HydraConfig.instance().cfg = None  # --cfg with --resolve leaves one
        yield out, err


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Close the handlers of the command, which has replaced those of pytest."""
    root, ours = logging.getLogger(), logging.getLogger("elo_exp")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        for handler in root.handlers[:]:
            root.removeHandler(handler)
            handler.close()
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(level)
        ours.setLevel(our_level)


def serve() -> None:
    """Run the command for each JSON object of standard input, and answer with what it ended with, a line each."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # where programs begun by a command write
    for line in sys.stdin:
        given = json.loads(line)
        ran = attempt(*given["arguments"], folder=Path.cwd(), **given["variables"])
        print(json.dumps([ran.code, ran.out, ran.err]), file=answers, flush=True)


if __name__ == "__main__":
    serve()
