"""A test server, the processes that judge with it, the ways to kill them, and what must hold whatever has happened.

    with world(tmp_path) as here:
        here.kill_on("accepted", "POST", BATCHES, nth=3)
        assert here.run().code == -SIGKILL
        assert here.run().code == 0
        here.check(reference())

The clients are real processes with the real SDK. They are forked from one that has imported everything, so that a
start costs milliseconds; the I1 to I10 are those of the design, and each is a function below that asserts it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from elo_exp.api.costs import PER_MILLION
from elo_exp.records import canonical_json
from elo_exp.store.usage import TOKEN_FIELDS
from tests import judging_process
from tests.anthropic_server import AnthropicServer, n_input_tokens
from tests.anthropic_verdicts import NoisyBradleyTerry, plain_text
from tests.batch_server import BatchServer
from tests.data import described, shipped
from tests.gemini_server import GeminiServer
from tests.http_server import Call, Stage
from tests.openai_batch_server import OpenAiBatchServer
from tests.stores import Place, rows

# Calls by what they are for, whichever provider's
BATCHES = r"/v1(beta)?/(messages/)?batches$|:batchGenerateContent$"
BATCH = r"/v1(beta)?/(messages/)?batches/[^/:]+$"
RESULTS = r"/(results|content)$"
MESSAGES = r"/v1/(messages|chat/completions)$|:generateContent$"
COUNT = r"/count_tokens$"
MODEL = r"/v1(beta)?/models(/[^/:]+)?$"
UPLOAD = r"/v1/files$"

N_QUERIES = judging_process.N_PROMPTS * 3 * 2 * 2
SERVERS: Mapping[str, type[BatchServer]] = {
    "anthropic": AnthropicServer,
    "openai": OpenAiBatchServer,
    "gemini": GeminiServer,
}
PRICES: Mapping[str, Mapping[str, float]] = {
    **described("judge", "claude").models,
    **{
        model: dataclasses.asdict(shipped("judge", name, model=model).prices_of(model))
        for name, model in judging_process.JUDGES.values()
        if model
    },
}
# Who is better is known, some verdicts are ties and some follow the position: a table in which a loss would show.
JUDGE = NoisyBradleyTerry(
    strengths={"ann:": 0.0, "bob:": 0.7, "cid:": 1.4},
    position_bias=0.5,
    tie_rate=0.2,
    seed=20260425,
)
NOTHING: Mapping[str, int] = {}
_METERED = {  # the server's words for the classes of tokens, and ours
    "input_tokens": "input_tokens",
    "cache_creation_5m": "cache_write_5m_tokens",
    "cache_creation_1h": "cache_write_1h_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "output_tokens": "output_tokens",
}
_SECONDS = 60.0  # a client that takes this long hangs

_forks = multiprocessing.get_context("forkserver")
multiprocessing.set_forkserver_preload(["tests.judging_process"])


@dataclass(frozen=True)
class Ran:
    """A client that has ended: its exit code, or minus the signal that it died of; all that it said; its results."""

    code: int | None
    said: str
    out: Path

    @functools.cached_property
    def result(self) -> dict[str, Any]:
        assert self.code == 0, f"exit code {self.code}: {self.said}"
        result: dict[str, Any] = json.loads(self.out.read_text(encoding="utf-8"))
        return result

    @property
    def table(self) -> str:
        return canonical_json(self.result["judgments"])

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.result["usage"]
        return usage


class Client:
    """A process that is judging, begun and not waited for."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        name = f"client{len(list(folder.glob('client*.txt')))}"
        self._said, self._out = folder / f"{name}.txt", folder / f"{name}.json"
        self._said.touch()
        self._process = _forks.Process(
            target=judging_process.forked,
            args=([*arguments, "--out", str(self._out)], str(self._said)),
            daemon=True,
        )
        self._process.start()

    def send(self, which: signal.Signals) -> None:
        assert self._process.pid is not None
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self._process.pid, which)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.send(signal.SIGKILL)
        wait([self._process.sentinel], timeout=_SECONDS)

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait(self) -> Ran:
        self._process.join(_SECONDS)
        if self._process.exitcode is None:
            self.kill()
            self._process.join()
            raise AssertionError(
                f"the client hangs; it was killed after {_SECONDS:.0f} s. It said: {self.said}"
            )
        return Ran(self._process.exitcode, self.said, self._out)


@dataclass(frozen=True)
class Reference:
    """What a run finds out that nothing happens to."""

    table: str
    answers: Mapping[tuple[str, ...], str]
    commits: int
    calls: Mapping[tuple[str, str], int]  # how many of a method to a path


class World:
    """A server, a store, and the clients that use both. `arguments` are those of every client."""

    def __init__(
        self, folder: Path, server: Any, arguments: Sequence[str], provider: str
    ) -> None:
        self.folder, self.server, self.arguments = folder, server, arguments
        self.provider = provider
        self.store: Place = folder / "store.sqlite"
        self._victim: Future[Client] = Future()

    def start(self, *arguments: str) -> Client:
        places = ["--url", self.server.url, "--store", str(self.store)]
        places += ["--provider", self.provider]
        client = Client(self.folder, [*places, *self.arguments, *arguments])
        if not self._victim.done():
            self._victim.set_result(client)
        return client

    def run(self, *arguments: str) -> Ran:
        return self.start(*arguments).wait()

    def known(self, *arguments: str) -> Reference:
        """The run of this provider's judge that nothing happens to."""
        return reference(*arguments, provider=self.provider)

    def kill_on(self, moment: Stage, method: str, path: str, *, nth: int) -> None:
        """Kill the next client that is started, at this moment of the nth such call."""
        self._victim = Future()
        calls = itertools.count(1)

        def perhaps_kill(stage: Stage, call: Call) -> None:
            is_such = call.method == method and re.search(path, call.path)
            if stage == moment and is_such and next(calls) == nth:
                self._victim.result(_SECONDS).kill()

        self.server.on_call = perhaps_kill

    def heal(self) -> None:
        """From now on nothing goes wrong any more."""
        self.server.faults.clear()
        self.server.on_call = None

    # ---- the invariants ---------------------------------------------------------------------------------------------

    def check(
        self,
        reference: Reference,
        *arguments: str,
        foreign: Mapping[str, int] = NOTHING,
    ) -> None:
        """Everything that must hold once a client has finished, whatever has happened before. `foreign` are the batches
        of others at the server, and their sizes."""
        paid_once(self.server, n=len(reference.answers) + sum(foreign.values()))
        ledger_agrees(self.server, self.store, besides=foreign)
        stored_within(self.store, reference, all_of_them=True)
        if not foreign:
            bill_agrees(self.server, self.store)
        bodies_are_right(self.server)
        asked_again_costs_nothing(self, reference, *arguments)


@contextmanager
def world(
    folder: Path, *arguments: str, provider: str = "anthropic", **settings: Any
) -> Iterator[World]:
    """A server whose batches end at once, unless the settings say otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    with SERVERS[provider](
        **{"verdicts": JUDGE, "polls_to_end": 0, **settings}
    ) as server:
        here = World(folder, server, arguments, provider)
        try:
            yield here
        finally:
            for (
                client
            ) in multiprocessing.active_children():  # of a test that has failed
                client.kill()


@functools.cache
def reference(*arguments: str, **settings: Any) -> Reference:
    """The run that nothing happens to, made once."""
    with (
        tempfile.TemporaryDirectory() as folder,
        world(Path(folder), *arguments, **settings) as here,
    ):
        ran = here.run()
        calls = Counter(
            (call.method, shape(call.path)) for call in here.server.meter.calls
        )
        return Reference(ran.table, answers(here.store), ran.result["commits"], calls)


def shape(path: str) -> str:
    """The pattern that a path matches."""
    return next(
        pattern
        for pattern in (BATCHES, RESULTS, COUNT, BATCH, MESSAGES, MODEL, UPLOAD)
        if re.search(pattern, path)
    )


def paid_once(server: BatchServer, *, n: int) -> None:
    """I1: each of the n questions was billed, and billed once."""
    while (
        not all(batch.ended_at for batch in server.batches) or server.late
    ):  # what is still to come is billed, too
        time.sleep(0.01)
    billed = server.meter.billed_bodies
    twice = [body for body, times in billed.items() if times > 1]
    assert not twice, f"paid twice: {len(twice)} of {len(billed)}"
    assert not server.meter.paid_twice, (
        f"paid twice: {len(server.meter.paid_twice)} keys"
    )
    assert len(billed) == n, f"{len(billed)} of {n} questions were paid"


def ledger_agrees(
    server: BatchServer, store: Place, *, besides: Collection[str] = ()
) -> None:
    """I2: the ledger knows each batch of ours that the server has taken, and nothing is left under way."""
    query = f"SELECT state, batch_id FROM batches WHERE endpoint = '{server.url}'"
    rows = read(store, query)
    known, taken = (
        {batch_id for _, batch_id in rows if batch_id},
        {batch.id for batch in server.batches} - set(besides),
    )
    assert known == taken, f"batches that one side does not know: {known ^ taken}"
    assert {state for state, _ in rows} <= {"settled", "abandoned"}, (
        f"a batch is left under way: {rows}"
    )
    assert read(store, "SELECT COUNT(*) FROM claims") == [(0,)], "a claim is left"


def asked_again_costs_nothing(here: World, known: Reference, *arguments: str) -> None:
    """I3: the same command once more submits nothing. I5: its table is that of the run that nothing happened to."""
    n_posts = here.server.meter.posts()
    again = here.run(*arguments)
    assert again.code == 0, again.said
    assert here.server.meter.posts() == n_posts, (
        "the repeated run has submitted something"
    )
    assert again.table == known.table, (
        "the table is another than that of an unkilled run"
    )


def stored_within(store: Place, known: Reference, *, all_of_them: bool = False) -> None:
    """I4: the store is sound, and each answer in it is the one that a run finds to which nothing happens."""
    found = answers(store)
    assert found.items() <= known.answers.items(), (
        "the store holds an answer that was never given"
    )
    assert not all_of_them or len(found) == len(known.answers), (
        f"{len(found)} of {len(known.answers)} are stored"
    )


def bill_agrees(server: BatchServer, store: Place) -> None:
    """I6: what the replies in the store say they cost is what the server has billed, to the token."""
    found = replies(store)
    spent = {name: sum(r["usage"].get(name, 0) for r in found) for name in TOKEN_FIELDS}
    billed, dollars = metered(server)
    assert Counter(spent) == billed, f"the store says {spent}, the bill {billed}"
    assert sum(r["dollars"] for r in found) == pytest.approx(dollars, abs=1e-9)
    assert charged(store) == pytest.approx(dollars, abs=1e-9)


def bill_is_bounded(server: BatchServer, store: Place) -> None:
    """I6 of single calls: what answers may have been lost cost at most, with those in the store, covers the bill."""
    known = sum(reply.get("dollars", 0.0) for reply in replies(store))
    ((lost,),) = read(store, "SELECT COALESCE(SUM(dollars), 0) FROM losses")
    _, billed = metered(server)
    assert known - 1e-9 <= billed <= known + lost + 1e-9, (
        f"${known} + ${lost}, the bill ${billed}"
    )
    under_way = read(store, "SELECT 1 FROM losses WHERE why IS NULL")
    assert not under_way, "a call is left under way"
    assert charged(store) == pytest.approx(known + lost, abs=1e-9)


def charged(store: Place) -> float:
    """What the store has charged to this month, where no call is under way any more."""
    assert not read(store, "SELECT name FROM charges"), "a call stays charged"
    query = "SELECT SUM(dollars) FROM spending WHERE scope LIKE 'month %'"
    ((dollars,),) = read(store, query)
    return float(dollars or 0.0)


def metered(server: BatchServer) -> tuple[Counter[str], float]:
    """The server's bill in our words: tokens by class, and dollars."""
    tokens, dollars = Counter[str](), 0.0
    for (model, tier), spent in server.meter.tokens_by_model.items():
        prices = PRICES[model]
        factor = prices["batch_factor"] if tier == "batch" else 1.0
        for theirs, ours in _METERED.items():
            tokens[ours] += spent[theirs]
            price = prices[ours.removesuffix("_tokens")]
            dollars += spent[theirs] * price * PER_MILLION * factor
    return tokens, dollars


def usage_agrees(server: BatchServer, usage: Mapping[str, Any]) -> None:
    """I6: what a run reports that it has cost is what the server has billed in its time."""
    billed, dollars = metered(server)
    assert Counter({name: usage[name] for name in TOKEN_FIELDS}) == billed
    assert usage["dollars"] == pytest.approx(dollars, abs=1e-9)


def bodies_are_right(server: BatchServer) -> None:
    """I8: one prefix for all of a rubric. I9: the ids of all history are unique. I7, that nothing is sent which the
    models refuse, is the server's to say."""
    sent = [each for call in submissions(server) for each in server.submitted(call)]
    sent = [each for each in sent if not each["custom_id"].startswith("somebody-else-")]
    custom_ids = [each["custom_id"] for each in sent]
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{40}", each) for each in custom_ids)
    assert len(set(custom_ids)) == len(custom_ids)
    posts = [call for call in server.meter.calls if call.method == "POST"]
    single = [call.json() for call in posts if re.search(MESSAGES, call.path)]
    prefixes: dict[str, str] = {}
    for params in [*(each["params"] for each in sent), *single]:
        system, prefix = prefix_of(params)
        assert prefixes.setdefault(system, prefix) == prefix


def prefix_of(params: Mapping[str, Any]) -> tuple[str, str]:
    """The system text of a request, and all that the prompt cache of any provider goes by."""
    told = {"messages", "system", "contents", "systemInstruction"}
    rest = {name: x for name, x in sorted(params.items()) if name not in told}
    if "contents" in params:
        texts = params["systemInstruction"]["parts"]
    else:
        texts = [*params.get("system", ()), *params["messages"][:-1]]
    (system,) = (plain_text(one.get("text") or one.get("content")) for one in texts)
    return system, json.dumps([system, rest])


def submissions(server: BatchServer) -> list[Call]:
    """The submissions of batches, whatever has become of them."""
    return [
        call
        for call in server.meter.calls
        if call.method == "POST" and re.search(BATCHES, call.path)
    ]


# ---- what a store holds ---------------------------------------------------------------------------------------------


_IS_MADE = "SELECT to_regclass('elo_exp_store')"


def read(store: Place, query: str) -> list[Any]:
    """Rows of a copy of the store, so that the next client finds what the last one has left, its journal included.
    Fails where the store is not sound."""
    if isinstance(store, str):
        return rows(store, query) if rows(store, _IS_MADE) != [(None,)] else []
    if not store.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        for path in store.parent.glob(f"{store.name}*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / store.name)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            return db.execute(query).fetchall() if "answers" in tables else []


def replies(store: Place) -> list[dict[str, Any]]:
    return [json.loads(value) for (value,) in read(store, "SELECT value FROM answers")]


def answers(store: Place) -> dict[tuple[str, ...], str]:
    """What each question in the store was answered, by what is asked about: the keys hold the server's port."""
    names = ("dimension", "prompt_id", "entrant_a", "entrant_b")
    return {
        tuple(reply[name] for name in names): reply["text"] for reply in replies(store)
    }


# ---- the budget -----------------------------------------------------------------------------------------------------


class Watch:
    """Notes, whenever something is submitted, the most that all of it may cost in the end.

    For each question that is under way that is its input, the prefix being written to the cache at the highest price
    asked for, and all the output that it may have; of the others, what was billed.
    """

    def __init__(self, server: AnthropicServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._single = Counter[str]()
        self.exposures: list[float] = []
        server.on_call = self

    def __call__(self, stage: Stage, call: Call) -> None:
        if call.method != "POST" or not re.search(f"{BATCHES}|{MESSAGES}", call.path):
            return
        with self._lock:
            if re.search(MESSAGES, call.path):
                key = canonical_json(call.json())
                if stage == "before":
                    self._single[key] += 1
                    self.exposures.append(self._exposure([]))
                elif stage == "accepted":
                    self._single[key] -= 1
            elif stage == "before":
                self.exposures.append(
                    self._exposure([each["params"] for each in call.json()["requests"]])
                )

    def _exposure(self, new: Sequence[Mapping[str, Any]]) -> float:
        batches = [batch for batch in self._server.batches if batch.ended_at is None]
        batched = [each["params"] for batch in batches for each in batch.requests]
        single = [json.loads(key) for key in self._single.elements()]
        worst_batched = sum(worst(each, 0.5) for each in [*batched, *new])
        worst_single = sum(worst(each, 1.0) for each in single)
        return metered(self._server)[1] + worst_batched + worst_single


def worst(params: Mapping[str, Any], factor: float) -> float:
    """The most that one request may cost."""
    prices = PRICES[params["model"]]
    (system,) = params["system"]
    ttl = (system.get("cache_control") or {}).get("ttl")
    n_prefix = len(system["text"]) / 4
    n_user = n_input_tokens(dict(params)) - n_prefix
    write = prices[f"cache_write_{ttl}"] if ttl else 0.0
    prefix = n_prefix * max(prices["input"], write)
    rest = n_user * prices["input"] + params["max_tokens"] * prices["output"]
    return float(prefix + rest) * PER_MILLION * factor


# ---- a process of its own -------------------------------------------------------------------------------------------


def attempt(here: World) -> subprocess.CompletedProcess[str]:
    """The same client as a fresh interpreter, warnings being errors."""
    program = [sys.executable, "-W", "error", "-m", "tests.judging_process"]
    out = str(here.folder / "fresh.json")
    places = ["--url", here.server.url, "--store", str(here.store), "--out", out]
    command = [*program, *places, *here.arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def said_to(params: Mapping[str, Any]) -> str:
    """The user's message of a request."""
    return plain_text(params["messages"][-1]["content"])
