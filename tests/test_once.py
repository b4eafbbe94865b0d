"""Two processes that need the same responses at once: each is made by one of them, and the other waits for it.

The processes are real, the model is slow, and the server behind it counts what it is asked.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elo_exp import pipeline
from elo_exp.records import Prompt
from elo_exp.store.store import Store
from tests.data import shipped
from tests.http_server import Call, Stage
from tests.openai_server import OpenAiServer, alone
from tests.stores import failing, go_on, process, rows, said

N = 6
PROMPTS = [
    Prompt(prompt_id=f"p{i}", text=f"Why {i}?", source="test", subject="test")
    for i in range(N)
]
ANSWERER = """
import logging, sys
from pathlib import Path
from elo_exp import pipeline
from elo_exp.store.store import Store
from tests.data import shipped
from tests.test_once import PROMPTS

path, url, concurrency = sys.argv[1:]
entrant = shipped("entrant", "openai_compatible", base_url=url, model="small", concurrency=int(concurrency))
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
with Store(Path(path)) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    responses = pipeline.generate(PROMPTS, {"slow": entrant}, store, allow_missing=False)["slow"]
    usage = store.usage
    print("made", usage.responses_generated, usage.responses_stored, *(r.timestamp for r in responses.values()))
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    alone(monkeypatch, tmp_path)
    return tmp_path / "store.sqlite"


@contextmanager
def two_processes(
    path: Path, server: OpenAiServer, *, concurrency: int
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """Both have opened the store, and begin when they are told. In the end they have let go of all they had claimed."""
    arguments = (ANSWERER, path, server.url, concurrency)
    with process(*arguments) as first, process(*arguments) as second:
        assert (said(first), said(second)) == (["ready"], ["ready"])
        yield first, second
    assert rows(path, "SELECT owner FROM claims UNION SELECT owner FROM owners") == []


def asked(server: OpenAiServer) -> Counter[str]:
    """How often the model was asked each question."""
    return Counter(call["messages"][-1]["content"] for call in server.asked)


def line(other: subprocess.Popen[str], first: str) -> list[str]:
    """The words of the next line that begins with this one."""
    return next(words for words in iter(lambda: said(other), []) if words[0] == first)


def test_each_response_is_made_once_and_both_have_all_of_them(path: Path):
    """The first is held at its first question until the second has said for whom it waits."""
    is_asked, second_waits = threading.Event(), threading.Event()

    def slow(stage: Stage, call: Call) -> None:
        is_asked.set()
        second_waits.wait()

    with (
        OpenAiServer(on_call=slow) as server,
        two_processes(path, server, concurrency=2) as (first, second),
    ):
        go_on(first)
        is_asked.wait()
        go_on(second)
        words = " ".join(line(second, "waiting"))
        second_waits.set()
        made, found = line(first, "made"), line(second, "made")
    holder = f"process {first.pid} on {socket.gethostname()} ({N})"
    assert words == f"waiting for {N} responses that others make: {holder}"
    assert asked(server) == {prompt.text: 1 for prompt in PROMPTS}
    assert (made[1:3], found[1:3]) == ([str(N), "0"], ["0", str(N)])
    assert made[3:] == found[3:]


def test_what_costs_nothing_is_not_claimed(path: Path):
    """Nobody can claim anything here."""
    with Store(path) as store, failing(path, "INSERT ON owners"):
        of = {"probe": shipped("entrant", "probe_swapped")}
        found = pipeline.generate(PROMPTS, of, store, allow_missing=False)
    assert len(found["probe"]) == N
