"""The API key is in no file and no output of a run, whatever happens to the run.

Real commands with a recognisable key, most of them failing; then every byte of every file in their
folder and all their output are searched for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elo_exp.api.anthropic import api_key
from elo_exp.errors import UserError
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt
from tests.http_server import Status

# Each piece is searched for: a file may break a text in two, at the edge of a page for example.
PIECES = ("Qm7vXbT2hWz", "Ld9sRkE4yNj", "Vp6cUgA8fHx")
SECRET = "sk-ant-api03-" + "-".join(PIECES)
ANOTHER = "sk-ant-api03-" + "-".join(piece[::-1] for piece in PIECES)
KEY = {"ANTHROPIC_API_KEY": SECRET}
# One prompt, two entrants, both orders.
TINY = (
    "judge=opus",
    "judge.poll_initial_seconds=0.02",
    "judge.poll_max_seconds=0.05",
    "judge.quarantine_seconds=0.1",
    "elo.n_perms=5",
    "figures=false",
    "+mode.strata.medqa=1",
    "entrant=[probe_reference,probe_partial]",
    "rubric=[factuality]",
    "judging.allow_equal=true",
    "judging.budget_usd=5",
)
LOCAL, WANDB = "tracker=local", ("tracker=wandb", "tracker.mode=offline")
BROKEN = """
from dataclasses import dataclass

from elo_exp.judges.claude import ClaudeJudge


@dataclass(kw_only=True)
class BrokenJudge(ClaudeJudge):
    def params(self, request, ttl):
        next(self.api.recent(), None)
        raise RuntimeError("a mistake of ours")
"""


def found(folder: Path) -> list[str]:
    """Files below a folder with any of the pieces, in UTF-8 or UTF-16."""
    sought = [piece.encode(code) for piece in PIECES for code in ("utf-8", "utf-16-le")]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.relative_to(folder).as_posix()
        for path in files
        if any(piece in path.read_bytes() for piece in sought)
    ]


@dataclass
class Case:
    """A command's words, environment and .env, beside `judge=opus` and an address."""

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: KEY)
    dotenv: bytes | None = None
    code: int = 0
    says: str = ""  # on stderr
    listens: bool = True
    prepare: Callable[[AnthropicServer], Any] = lambda server: None
    server_key: str = SECRET
    tracker: tuple[str, ...] = (LOCAL,)
    anew: bool = False  # in a process of its own


def failing(path: str, code: int, nth: int = 1) -> Callable[[AnthropicServer], Any]:
    return lambda server: server.fault(
        "POST", path, Status(code, message="No."), nth=nth
    )


DOTENV = f'# mine\nexport ANTHROPIC_API_KEY="{SECRET}"\n'.encode()
CASES: dict[str, Case] = {
    "wandb, refused": Case(
        tracker=WANDB,
        code=2,
        says="refuses the batch (401)",
        prepare=failing("/batches$", 401),
    ),
    "wandb, messages, key in .env, debug logs": Case(
        ("judge.transport=messages",), {"ANTHROPIC_LOG": "debug"}, DOTENV, tracker=WANDB
    ),
    "batches after a 500, debug logs": Case(
        ("hydra.verbose=true",),
        prepare=failing("/batches$", 500),
        says="no answer to a submission",
    ),
    "a sweep of which one job is refused": Case(
        ("-m", "judge.effort=low,high"),
        code=1,
        says="401",
        prepare=failing("/batches$", 401, nth=2),
    ),
    "wrong key": Case(
        code=2, says="refuses (401): invalid x-api-key", server_key=ANOTHER
    ),
    "nobody listens": Case(
        code=2, says="http://127.0.0.1:9 cannot be reached", listens=False
    ),
    "a mistake of ours": Case(
        ("judge._target_=broken.BrokenJudge",),
        code=1,
        says="RuntimeError: a mistake of ours",
        anew=True,
    ),
    "an unknown setting": Case(
        ("judge.api_keyy=1",), code=2, says="Unknown setting: judge.api_keyy"
    ),
    "a line break in the key": Case(
        ("hydra.verbose=true",),
        {"ANTHROPIC_API_KEY": "\n".join(PIECES)},
        code=2,
        says="elo_exp: ANTHROPIC_API_KEY holds a space, a line break or",
    ),
}


def do(case: Case, folder: Path) -> tuple[Ran, set[str]]:
    """Run a command. Returns what came of it, and how the server was told the key."""
    (folder / "broken.py").write_text(BROKEN, encoding="utf-8")
    if case.dotenv:
        (folder / ".env").write_bytes(case.dotenv)
    with AnthropicServer(verdicts=longer, key=case.server_key) as server:
        case.prepare(server)
        address = server.url if case.listens else "http://127.0.0.1:9"
        words = sorted(case.words, key=lambda word: word != "-m")  # flags first
        words += [*TINY, *case.tracker, f"judge.base_url={address}"]
        ran = attempt(
            *words,
            folder=folder,
            strict=LOCAL in case.tracker,
            anew=case.anew,
            **{"NO_PROXY": "127.0.0.1", **case.variables},
        )
        headers = {call.headers.get("authorization", "") for call in server.meter.calls}
    return ran, headers


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=name,
            marks=[pytest.mark.system]
            * (LOCAL not in case.tracker or case.anew or "-m" in case.words),
        )
        for name, case in CASES.items()
    ],
)
def test_the_key_is_in_no_file_and_no_output(case: Case, tmp_path: Path):
    ran, headers = do(case, tmp_path)
    assert ran.code == case.code, ran.err
    assert case.says in ran.err
    if case.listens and case.code in (0, 1):
        assert headers == {f"Bearer {SECRET}"}  # the key was used
    assert found(tmp_path) == ([".env"] if case.dotenv else [])
    for text in (ran.out, ran.err):
        assert not any(piece in text for piece in PIECES), text


# .env


DOTENVS = {
    "plain": f"ANTHROPIC_API_KEY={SECRET}\n".encode(),
    "spaces": f"ANTHROPIC_API_KEY = '{SECRET}'  # mine".encode(),
    "Windows": f"\ufeffOTHER=1\r\nANTHROPIC_API_KEY={SECRET}\r\n".encode(),
    "among others": f"these are not settings\nANTHROPIC_API_KEY={SECRET}\n".encode(),
    "UTF-16": f"ANTHROPIC_API_KEY={SECRET}\r\n".encode("utf-16"),
    "Latin-1": f"# Schlüssel\nANTHROPIC_API_KEY={SECRET}\n".encode("latin-1"),
}


@pytest.mark.parametrize("text", DOTENVS.values(), ids=list(DOTENVS))
def test_the_key_is_read_from_a_file_as_people_write_them_or_refused_in_one_line(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (tmp_path / ".env").write_bytes(text)
    try:
        assert api_key() == SECRET
    except UserError as refusal:
        assert ".env" in str(refusal)
        assert not any(piece in str(refusal) for piece in PIECES)


def test_the_environment_precedes_the_file_and_space_around_the_key_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A key from .env is not passed on to W&B's processes; other names in it are ignored."""
    monkeypatch.chdir(tmp_path)
    text = f"ANTHROPIC_API_KEY={SECRET}\nWANDB_MODE=online\n"
    (tmp_path / ".env").write_text(text, encoding="utf-8")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    before = dict(os.environ)
    assert api_key() == SECRET
    assert dict(os.environ) == before
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {ANOTHER}\r\n")
    assert api_key() == ANOTHER
