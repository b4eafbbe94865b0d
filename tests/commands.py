"""The command as a user gives it: a process of its own, an empty home, no Weights & Biases settings, no terminal.

That process is a fork of one that has made the imports already (forking.py): they are most of a short command. `anew`
is a Python that begins with nothing, as the user's does.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from tests import forking

SCRIPTS = Path(sys.executable).parent
SMALL = ("judging.limit_pairs=40", "elo.n_perms=20")  # enough for every artifact, in two seconds
LOCAL = (*SMALL, "tracker=local")
DRAWN = (*LOCAL, "rubric=[factuality]")
QUICK = (*DRAWN, "figures=false")  # they take as long as all the rest
_SECONDS = 120  # a run that takes this long hangs
IMPORTS = (  # without anthropic, openai and wandb: what is logged and said depends on when they are imported
    *("matplotlib.pyplot", "elo_exp.figures.sweep", "rich.console", "tests.warm"),
    *(
        f"elo_exp.experiments.{name}"
        for name in ("arena", "compare", "dashboard", "oracle", "rate", "tournament")
    ),
)
_ONE_SERVER = threading.Lock()
_PRIVATE = ("WANDB_", "HYDRA_", "ANTHROPIC_", "OPENAI_", "HF_", "XDG_", "COMP_")


@dataclass(frozen=True)
class Ran:
    """A command that has ended. `folder` is where it was given."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def run_dir(self) -> Path:
        return self.folder / self.out.splitlines()[-1]

    def read(self, name: str) -> Any:
        """A JSON file of the run folder."""
        return json.loads((self.run_dir / name).read_text(encoding="utf-8"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A JSON lines file of the run folder."""
        return [
            json.loads(line)
            for line in (self.run_dir / name).read_text(encoding="utf-8").splitlines()
        ]


def environment(folder: Path) -> dict[str, str]:
    """The environment of a machine on which nobody has logged in anywhere; the fonts are not looked for each time."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return kept | {"HOME": str(folder / "home"), "MPLCONFIGDIR": matplotlib.get_cachedir()}


def _server() -> str:
    """The socket of a process that has imported what commands import; it ends when this one does."""
    with _ONE_SERVER:
        return _begun()


@functools.cache
def _begun() -> str:
    ending = ExitStack()
    atexit.register(ending.close)
    folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
    path = str(folder / "python")
    ending.enter_context(
        forking.begin(path, IMPORTS, folder=folder, variables=environment(folder), strict=True)
    )
    return path


def command(*arguments: str, strict: bool = True, anew: bool = False) -> list[str]:
    """`python -m elo_exp`, warnings being errors; not `strict` for wandb, which leaves folders for Python to clear."""
    python = forking.asking(_server()) if strict and not anew else [sys.executable]
    return [*python, *(("-W", "error") if strict else ()), "-m", "elo_exp", *arguments]


def start(*arguments: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """The command, begun and not waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        command(*arguments, anew=True),
        cwd=folder,
        env=environment(folder) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def attempt(
    *arguments: str, folder: Path, strict: bool = True, anew: bool = False, **variables: str
) -> Ran:
    """The command, run to its end, whatever that is."""
    return attempt_program(
        *command(*arguments, strict=strict, anew=anew), folder=folder, **variables
    )


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


def run(
    *arguments: str, folder: Path, strict: bool = True, anew: bool = False, **variables: str
) -> Ran:
    """The command, which has to succeed."""
    ran = attempt(*arguments, folder=folder, strict=strict, anew=anew, **variables)
    assert ran.code == 0, ran.err
    return ran
