"""One law for store, ledger, claims, Batcher and RequestPool together.

Requests are lost, late, refused or killed, other processes work beside the run, and useless replies stop runs. All the
same, nothing is paid twice, nothing paid is lost, no cap is passed, and a rerun sends nothing.

A state machine: the server and the clock are made up, the clients are threads of which one runs at a time, and each may
be killed at any call or commit. tests/test_faults.py says the same of real processes and the real SDK.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from elo_exp import interrupts
from elo_exp.api import batches, calls
from elo_exp.api.anthropic import parse_message
from elo_exp.api.batch_protocol import (
    BatchSettings,
    Login,
    RemoteBatch,
    ResultRow,
)
from elo_exp.api.costs import Budget, Prices, TokenEstimator
from elo_exp.api.jobs import Completion
from elo_exp.api.submission_search import SubmissionSearch
from elo_exp.api.transport import (
    NO_CONNECTION_STATUS,
    RefusedError,
    UnknownOutcomeError,
    UnreachableError,
)
from elo_exp.errors import UserError
from elo_exp.judges import BatchJudge
from elo_exp.pipeline import judging
from elo_exp.pipeline.watching import ReplyGuard
from elo_exp.store import batch_rows, claims, ledger
from elo_exp.store.answer_store import Store

N = 10
QUARANTINE, LATE = 60.0, 30.0  # seconds
PRICES = Prices(
    input=2.0,
    output=10.0,
    cache_write_5m=2.5,
    cache_write_1h=4.0,
    cache_read=0.1,
    batch_factor=0.5,
    min_cacheable_tokens=0,
)
AWAY = {
    "no connection": RefusedError("nobody listens", status=NO_CONNECTION_STATUS),
    "loading": UnknownOutcomeError("the model is being loaded", status=503),
}
NEVER = 10**6  # moments after which a client is killed
PLENTY = 1.0  # dollars; a question costs .0001 in a batch, and may cost .00016


class KilledError(BaseException):
    """As by SIGKILL: nothing that the process still does has an effect."""


@dataclass
class Question:
    """As much of a JudgeRequest as paying for it takes."""

    key: str
    system: str
    n_chars: int = 100

    @property
    def subject(self) -> SimpleNamespace:
        return SimpleNamespace(dimension=self.system)

    @property
    def names(self) -> dict[str, str]:
        return {"dimension": "law", "prompt_id": self.key}


QUESTIONS = [Question(key=f"k{n}", system=f"rubric {n % 2}") for n in range(N)]


@dataclass
class Sent:
    """A batch as the server has taken it."""

    batch_id: str
    requests: Mapping[str, Any]
    client: Client
    n_checks: int = 0
    rows: list[ResultRow] | None = None  # once it has ended
    rest: str | None = None  # what became of the requests that were not run
    refusal: RefusedError | None = None


@dataclass
class World:
    """The server, and the clock of everybody. `plan` holds what goes wrong next."""

    now: float = 0.0
    plan: list[str] = field(default_factory=list)
    batches: list[Sent] = field(default_factory=list)  # newest first
    late: list[tuple[float, Sent]] = field(default_factory=list)
    in_batches: Counter[str] = field(
        default_factory=Counter
    )  # how often each question was billed
    singly: Counter[str] = field(default_factory=Counter)
    billed: float = 0.0
    n_submissions: int = 0
    running: list[Client] = field(default_factory=list)
    current: Client | None = None

    def goes_wrong(self, *kinds: str) -> str | None:
        """The first of these kinds that is planned, which is then over."""
        kind = next((kind for kind in self.plan if kind in kinds), None)
        if kind is not None:
            self.plan.remove(kind)
        return kind

    def tick(self) -> None:
        """A moment at which the client that is at work may be killed."""
        client = self.current
        if client is None:
            return
        client.countdown -= 1
        if client.countdown < 0:
            client.is_alive = False
        if not client.is_alive:
            raise KilledError

    def sleep(self, seconds: float) -> None:
        """Let time pass, and another client go on."""
        self.now += seconds
        for due, batch in [each for each in self.late if each[0] <= self.now]:
            self.late.remove((due, batch))
            self.batches.insert(0, batch)
        if self.current is not None:
            self.current.hand_over()

    def end(self, batch: Sent) -> None:
        kind = self.goes_wrong(
            "expired", "api_error", "no message", "no room", "half is run"
        )
        rows: list[ResultRow] = []
        run = dict(batch.requests)
        if kind == "no room":
            batch.refusal, run = RefusedError("no room", status=429), {}
        elif kind == "half is run":
            batch.rest, kind = "expired", None
            run = dict(islice(run.items(), len(run) // 2))
        for number, (custom_id, params) in enumerate(run.items()):
            if kind and number % 3 == 0:
                outcome = kind if kind != "no message" else "api_error"
                row = ResultRow(custom_id=custom_id, outcome=outcome)
            else:
                row = ResultRow(
                    custom_id=custom_id,
                    outcome="succeeded",
                    message=self.bill(params, batch.client),
                )
                self.in_batches[params["messages"]] += 1
            rows.append(row)
        batch.rows = rows[::-1]

    def bill(
        self, params: Mapping[str, Any], client: Client, *, factor: float = 0.5
    ) -> Any:
        dollars = PRICES.dollars({"input_tokens": 50, "output_tokens": 10}) * factor
        self.billed += dollars
        client.exposure += dollars
        return {
            "content": [{"type": "text", "text": f"to {params['messages']}"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 50, "output_tokens": 10},
        }


class Wire:
    """What one client sees of the server: a BatchApi, and single messages."""

    endpoint = "https://law"
    is_ordered = True
    timeout_seconds = 300.0

    def __init__(self, world: World, client: Client) -> None:
        self._world, self._client = world, client

    def login(self) -> Login:
        return Login("key", None)

    def create(self, nonce: str, requests: Mapping[str, Any]) -> str:
        world = self._world
        world.tick()
        world.n_submissions += 1
        batch = Sent(f"b{world.n_submissions}", requests, self._client)
        match world.goes_wrong("refused", "too large", "never", "late", "lost"):
            case "refused":
                raise RefusedError("wait", status=429, retry_after=1.0)
            case "too large" if len(requests) > 1:
                raise RefusedError("too large", status=413)
            case "never":
                raise UnknownOutcomeError("reset")
            case "late":
                world.late.append((world.now + LATE, batch))
                raise UnknownOutcomeError("reset")
            case "lost":
                self._accept(batch)
                raise UnknownOutcomeError("reset")
        self._accept(batch)
        world.tick()
        return batch.batch_id

    def _accept(self, batch: Sent) -> None:
        self._client.check_cap(batch.requests.values(), 0.5)
        self._world.batches.insert(0, batch)

    def check(self, batch_id: str) -> RemoteBatch | None:
        self._ask()
        return next(
            (self._seen(b) for b in self._world.batches if b.batch_id == batch_id), None
        )

    def recent(self) -> Iterator[RemoteBatch]:
        self._ask()
        yield from [self._seen(batch) for batch in self._world.batches]

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow]:
        self._ask()
        found = next(b for b in self._world.batches if b.batch_id == batch.batch_id)
        assert found.rows is not None
        if self._world.goes_wrong("cut"):
            yield from found.rows[:1]
            raise UnreachableError("cut")
        yield from found.rows

    def first_id(self, batch: RemoteBatch) -> str | None:
        return next((row.custom_id for row in self.results(batch)), None)

    def send(self, params: Mapping[str, Any]) -> Any:
        world = self._world
        world.tick()
        world.n_submissions += 1
        kind = world.goes_wrong("refused", "never", "lost", "expired", *AWAY)
        if kind in AWAY:
            raise AWAY[kind]
        if kind == "refused":
            raise RefusedError("wait", status=429, retry_after=0.0)
        if kind == "never":
            raise UnknownOutcomeError("reset")
        self._client.check_cap([params], 1.0)
        message = world.bill(params, self._client, factor=1.0)
        world.singly[params["messages"]] += 1
        world.tick()
        if kind == "lost":
            raise UnknownOutcomeError("reset")
        return message

    def cancel(self, batch_id: str) -> bool:
        raise NotImplementedError

    def _ask(self) -> None:
        self._world.tick()
        if self._world.goes_wrong("unreachable"):
            raise UnreachableError("reset")

    def _seen(self, batch: Sent) -> RemoteBatch:
        batch.n_checks += 1
        if batch.rows is None and batch.n_checks > 2:
            self._world.end(batch)
        n = len(batch.requests)
        n_run = n if batch.rows is None else len(batch.rows)
        return RemoteBatch(
            batch_id=batch.batch_id,
            size=n,
            n_rows=n_run,
            missing_outcome=batch.rest,
            refusal=batch.refusal,
            is_ended=batch.rows is not None,
        )


class Client(BatchJudge):
    """A process that asks all questions, in a thread that runs when the baton is handed to it."""

    # A process is equal to itself alone
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    model = "law"
    part = "judge"
    server = "the judge's API"
    budget_setting = "judging.budget_usd"
    cache = "measured"
    max_tokens = 20
    concurrency = 1
    wait_minutes = 1.0
    expected_output_tokens = 1
    expected_hit_rate = 1.0

    def __init__(
        self,
        world: World,
        path: Path,
        *,
        transport: str,
        chunk: int,
        cap: float,
        kill: int,
        canary: int = 0,
    ) -> None:
        self._world, self._path = world, path
        self.transport = transport
        self.countdown = kill
        self.canary = canary
        self.cap = cap
        self.is_alive = True
        self.exposure = 0.0  # what this run was billed
        self.api = Wire(world, self)
        self.budget = Budget(cap)
        self.estimator = TokenEstimator(1.0)
        self.batch_settings = BatchSettings(
            chunk_size=chunk,
            poll_initial_seconds=1.0,
            poll_max_seconds=5.0,
            quarantine_seconds=QUARANTINE,
        )
        self.found: dict[str, str] = {}
        self.error: BaseException | None = None
        self.is_done = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # ---- the judge

    def preflight(self) -> None: ...

    def cache_key(self) -> dict[str, Any]:
        return {}

    def token_counter(self) -> None: ...

    def prices_of(self, model: str) -> Prices:
        return PRICES

    def params(self, request: Question, ttl: str | None) -> dict[str, Any]:
        return {"system": request.system, "messages": request.key, "ttl": ttl}

    def parse(self, message: Mapping[str, Any]) -> Completion:
        return parse_message(message)

    # ---- the cap

    def check_cap(self, bodies: Any, factor: float) -> None:
        """What this run was billed, and may be billed for all that it has sent, stays within its cap."""
        open_ = [batch for batch in self._world.batches if batch.client is self]
        waiting = [
            body for b in open_ if b.rows is None for body in b.requests.values()
        ]
        worst = sum(self._worst(body, 0.5) for body in waiting)
        worst += sum(self._worst(body, factor) for body in bodies)
        assert self.exposure + worst <= self.cap + 1e-9

    def _worst(self, body: Mapping[str, Any], factor: float) -> float:
        return PRICES.max_cost(body, self.max_tokens, body["ttl"], batched=factor < 1)

    # ---- the process

    def step(self) -> None:
        """Let it run until it sleeps, ends or is killed."""
        self._world.current = self
        self._go.release()
        self._back.acquire()
        self._world.current = None

    def hand_over(self) -> None:
        self._back.release()
        self._go.acquire()
        self._world.tick()

    def _watch(self) -> ReplyGuard:
        """Two replies of three hold nothing."""
        return ReplyGuard(
            {question.key: question for question in QUESTIONS},  # type: ignore[misc]
            {},
            self,
            reads=lambda question, reply: int(question.key[1:]) % 3 == 0,
            canary=self.canary,
            max_invalid=0.5,
            is_known=False,
            noun="verdicts",
        )

    def _run(self) -> None:
        self._go.acquire()
        try:
            with Store(self._path) as store:
                for reply in judging._pay(QUESTIONS, self, store, self._watch()):  # type: ignore[arg-type]
                    self.found[reply.key] = reply.text
        except BaseException as error:
            self.error = error
        self.is_alive, self.is_done = False, True
        self._back.release()


class Connection(sqlite3.Connection):
    """The moments before and after a commit are those at which a client may be killed. Nobody cuts the power."""

    tick: Callable[[], None] = staticmethod(lambda: None)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            sql = sql.replace("synchronous=FULL", "synchronous=OFF")
            return super().execute(sql, *values)
        Connection.tick()
        done = super().execute(sql)
        Connection.tick()
        return done


class PaidOnce(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.sqlite"
        with Store(self.path):
            pass
        Connection.tick = self.world.tick  # type: ignore[assignment]
        self.people: list[Client] = []  # by process id
        clock = SimpleNamespace(
            elapsed=lambda: self.world.now,
            wall=lambda: self.world.now,
            sleep=self.world.sleep,
            monotonic=lambda: self.world.now,
            time=lambda: self.world.now,
        )
        self.patch = pytest.MonkeyPatch()
        connect = sqlite3.connect
        for where, name, value in (
            (batches, "Clock", lambda: clock),
            (claims, "time", clock),
            (interrupts, "pause", self.world.sleep),
            (calls, "_FIRST_BACK_OFF_SECONDS", 0.0),
            (claims, "identify_this_process", self.identity),
            (claims, "is_alive", self.is_alive),
            (claims.Claims, "_keep_alive", lambda claims: None),
            (
                sqlite3,
                "connect",
                lambda *a, **k: connect(*a, **{"factory": Connection, **k}),
            ),
        ):
            self.patch.setattr(where, name, value)

    def identity(self) -> tuple[str, str, int, str]:
        assert self.world.current is not None
        self.people.append(self.world.current)
        return "here", "now", len(self.people) - 1, "1"

    def is_alive(self, host: str, boot: str, pid: int, start: str) -> bool:
        return self.people[pid].is_alive

    @rule(
        transport=st.sampled_from(["batches", "batches", "messages"]),
        chunk=st.integers(1, 6),
        kill=st.one_of(st.just(NEVER), st.integers(0, 60)),
        cap=st.sampled_from([PLENTY, 0.0008]),
        canary=st.sampled_from([0, 0, 1, 2, 3]),
    )
    def starts(
        self, transport: str, chunk: int, kill: int, cap: float, canary: int
    ) -> None:
        if len(self.world.running) < 2:
            client = Client(
                self.world,
                self.path,
                transport=transport,
                chunk=chunk,
                cap=cap,
                kill=kill,
                canary=canary,
            )
            self.world.running.append(client)

    @rule(which=st.integers(0, 1), steps=st.integers(1, 60))
    def goes_on(self, which: int, steps: int) -> None:
        for _ in range(steps):
            if self.world.running:
                self.step(self.world.running[which % len(self.world.running)])

    @rule(
        kinds=st.lists(
            st.sampled_from(
                (
                    "lost",
                    "never",
                    "late",
                    "refused",
                    "too large",
                    "cut",
                    "expired",
                    "api_error",
                    "no message",
                    "no room",
                    "half is run",
                    "unreachable",
                    *AWAY,
                )
            ),
            max_size=3,
        )
    )
    def something_goes_wrong(self, kinds: list[str]) -> None:
        self.world.plan += kinds

    @rule(seconds=st.sampled_from([1.0, 40.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.sleep(seconds)

    def step(self, client: Client) -> None:
        client.step()
        if client.is_done:
            self.world.running.remove(client)
            if not isinstance(client.error, KilledError | UserError | None):
                raise client.error

    @invariant()
    def nothing_is_paid_twice(self) -> None:
        """What was paid again had been lost as a single call, and stands in the books as a loss."""
        assert max(self.world.in_batches.values(), default=0) <= 1
        with closing(sqlite3.connect(self.path)) as db:
            lost = Counter(key for (key,) in db.execute("SELECT key FROM losses"))
            known = {
                json.loads(value)["key"]
                for (value,) in db.execute("SELECT value FROM answers")
            }
        paid = self.world.in_batches + self.world.singly
        assert all(
            n <= (key in known) + lost[key] + self.in_a_batch(key)
            for key, n in paid.items()
        )

    def in_a_batch(self, key: str) -> bool:
        """Whether it was answered in a batch whose results are still to be read."""
        return self.world.in_batches[key] > 0

    def finish(self) -> Client:
        """A run that nothing happens to."""
        self.world.plan.clear()
        client = Client(
            self.world, self.path, transport="batches", chunk=5, cap=PLENTY, kill=NEVER
        )
        self.world.running.append(client)
        for _ in range(2000):
            if client.is_done:
                break
            self.step(client)
        assert client.is_done
        assert client.error is None, client.error
        return client

    def teardown(self) -> None:
        try:
            for client in list(self.world.running):  # they die where they stand
                client.is_alive = False
                self.step(client)
            last = self.finish()
            assert last.found == {
                question.key: f"to {question.key}" for question in QUESTIONS
            }
            self.nothing_is_paid_twice()
            self.books_agree()
            n = self.world.n_submissions
            self.finish()
            assert self.world.n_submissions == n
        finally:
            self.patch.undo()
            self.folder.cleanup()

    def books_agree(self) -> None:
        """Nothing is open, nothing claimed; the answers and the losses cover the bill."""
        with closing(sqlite3.connect(self.path)) as db:
            states = {state for (state,) in db.execute("SELECT state FROM batches")}
            assert states <= {"settled", "abandoned"}
            assert db.execute("SELECT COUNT(*) FROM claims").fetchone() == (0,)
            answers = [
                json.loads(value)
                for (value,) in db.execute("SELECT value FROM answers")
            ]
            (lost,) = db.execute(
                "SELECT COALESCE(SUM(dollars), 0) FROM losses"
            ).fetchone()
        known = sum(answer["dollars"] for answer in answers)
        assert known - 1e-9 <= self.world.billed <= known + lost + 1e-9


def run(n: int) -> None:
    run_state_machine_as_test(
        PaidOnce,
        settings=settings(
            max_examples=n,
            stateful_step_count=12,
            deadline=None,
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.system
def test_law_nothing_is_paid_twice_and_nothing_paid_is_lost():
    run(20)


@pytest.mark.faults
def test_law_in_many_more_histories():
    run(3000)


def forget_loss(
    claims: claims.Claims,
    key: str,
    *,
    lost: str | None = None,
    end_call: Callable[..., None] = claims.Claims.end_call,
) -> None:
    end_call(claims, key)


@dataclass(frozen=True)
class Mistake:
    """A mistake in the code, and a short history in which it breaks the law."""

    patched: Sequence[tuple[Any, str, Any]]
    history: Sequence[tuple[str, dict[str, Any]]]


def start(**settings: Any) -> tuple[str, dict[str, Any]]:
    defaults = {"transport": "batches", "chunk": 1, "kill": NEVER, "cap": PLENTY}
    return "starts", {**defaults, "canary": 0, **settings}


def go_on(steps: int, which: int = 0) -> tuple[str, dict[str, Any]]:
    return "goes_on", {"steps": steps, "which": which}


LOST_REQUEST = ("something_goes_wrong", {"kinds": ["lost"]})
MISTAKES = {
    "no quarantine": Mistake(
        [(SubmissionSearch, "_search", lambda self, batch: (False, True))],
        [LOST_REQUEST, start(), go_on(1)],
    ),
    "no losses": Mistake(
        [(claims.Claims, "end_call", forget_loss)],
        [LOST_REQUEST, start(transport="messages"), go_on(200)],
    ),
    "no reserves": Mistake(
        [(Budget, "reserve", lambda *given: None)], [start(cap=0.0008), go_on(5)]
    ),
    "batches are forgotten": Mistake(
        [
            (module, "PENDING_KEYS_SQL", "SELECT key FROM queries WHERE FALSE")
            for module in (batch_rows, ledger)
        ],
        [start(), start(canary=3, chunk=3, kill=37), go_on(21, which=1)],
    ),
}


def play(history: Sequence[tuple[str, dict[str, Any]]]) -> None:
    law = PaidOnce()
    try:
        for rule_name, arguments in history:
            getattr(law, rule_name)(**arguments)
            law.nothing_is_paid_twice()
    finally:
        law.teardown()


@pytest.mark.parametrize("name", MISTAKES)
def test_control_the_law_sees_a_mistake(name: str, monkeypatch: pytest.MonkeyPatch):
    play(MISTAKES[name].history)
    for owner, attribute, value in MISTAKES[name].patched:
        monkeypatch.setattr(owner, attribute, value)
    with pytest.raises(AssertionError):
        play(MISTAKES[name].history)
