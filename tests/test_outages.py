"""A server that goes away while it is asked is waited for, and nothing is paid twice or lost meanwhile.

The real SDK talks to real servers on 127.0.0.1, of which one is stopped and another started on its port.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from elo_exp.api.outages import RetryDecision, ServerWatch
from elo_exp.api.transport import NO_CONNECTION_STATUS, RefusedError
from elo_exp.errors import UserError
from elo_exp.judges.openai_compatible import OpenAiCompatibleJudge
from elo_exp.store.answer_store import Store
from tests.commands import QUICK, attempt
from tests.data import shipped
from tests.http_server import AcceptThenReset, Call, ResetBefore, Stage, Status
from tests.openai_server import OpenAiServer, alone
from tests.paying import STORE, judged

N = 6  # comparisons, each judged in both orders
LONG, SHORT = 5.0, 0.01  # minutes


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path, caplog) -> None:
    alone(monkeypatch, tmp_path)
    caplog.set_level(logging.INFO)


def ask(url: str, wait_minutes: float, n: int = N, **changes: Any) -> int:
    """Judge so many comparisons; return how many queries were new."""
    return judged(made(url, wait_minutes, **changes), n)[1].judge_calls


def made(url: str, wait_minutes: float, **changes: Any) -> OpenAiCompatibleJudge:
    """conf/judge/openai_compatible.yaml with an address and a model."""
    given = {"base_url": url, "model": "large", "wait_minutes": wait_minutes}
    judge: OpenAiCompatibleJudge = shipped(
        "judge", "openai_compatible", **{"concurrency": 4, **given, **changes}
    )
    return judge


def n_stored() -> tuple[int, int]:
    """Answers, and calls that were lost."""
    with Store(STORE) as store:
        [(answers,)] = store.query("SELECT COUNT(*) FROM answers")
        [(lost,)] = store.query("SELECT COUNT(*) FROM losses")
    return answers, lost


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of the server, once each."""
    words = ("waiting up to", "is back")
    return [text for text in caplog.messages if any(word in text for word in words)]


@contextmanager
def meanwhile(
    caplog: pytest.LogCaptureFixture, act: Callable[[], None]
) -> Iterator[None]:
    """Act once it is said that the server is waited for."""

    def watch() -> None:
        while not said(caplog) and not is_over.is_set():
            time.sleep(0.01)
        act()

    is_over = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class Stopping(OpenAiServer):
    """A server that stops once it has given so many answers."""

    def stop_after(self, n: int) -> None:
        def watch(stage: Stage, call: Call) -> None:
            if (
                stage == "answered"
                and self.billed.total() >= n
                and not self.closing.is_set()
            ):
                self.closing.set()
                threading.Thread(target=self._http.stop).start()

        self.on_call = watch

    def again(self) -> OpenAiServer:
        """Another on its port."""

        class Again(OpenAiServer):
            port = self._http.server_port

        return Again()


def test_a_server_that_is_stopped_and_started_again_is_waited_for(caplog):
    with Stopping() as first, ExitStack() as stack:
        first.stop_after(5)
        back: list[OpenAiServer] = []

        def start() -> None:
            first._thread.join()
            back.append(stack.enter_context(first.again()))

        with meanwhile(caplog, start):
            assert ask(first.url, LONG) == 2 * N
    [second] = back
    assert [text.split(" ", 1)[0] for text in said(caplog)] == [first.url] * 2
    assert (
        "does not answer ([Errno 111] Connection refused): waiting up to 5 min"
        in said(caplog)[0]
    )
    assert "is back after " in said(caplog)[1]
    n_answers, n_lost = n_stored()
    assert n_answers == 2 * N
    billed = first.billed + second.billed
    assert 2 * N <= billed.total() <= 2 * N + n_lost
    assert n_lost <= 4  # those on their way when it stopped


def test_one_that_stays_away_ends_the_run_in_a_line_and_the_same_command_goes_on(
    caplog,
):
    with Stopping() as first:
        first.stop_after(5)
        words = r"^http.* does not answer \(.*refused\), and the run has waited for 1 second\. Every answer"
        with pytest.raises(UserError, match=words):
            ask(first.url, SHORT)
    n_before, n_lost = n_stored()
    assert 5 <= n_before < 2 * N
    with first.again() as second:
        assert ask(first.url, SHORT) == 2 * N - n_before
    assert (first.billed + second.billed).total() <= 2 * N + n_lost
    assert not any("is back" in text for text in said(caplog))


@pytest.mark.system
def test_a_server_that_was_never_there_is_not_waited_for(tmp_path):
    with OpenAiServer() as server:
        pass
    ran = attempt(
        "judge=openai_compatible",
        f"judge.base_url={server.url}",
        "judge.model=large",
        *QUICK[2:],
        folder=tmp_path,
    )
    assert ran.code == 2
    assert "cannot be reached" in ran.err
    assert "waiting" not in ran.err + ran.out


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock of outages that a test sets."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "elo_exp.api.outages.time", SimpleNamespace(monotonic=lambda: made.now)
    )
    return made


@pytest.fixture
def outages() -> Iterator[ServerWatch]:
    made_now = ServerWatch(made("http://127.0.0.1:9/v1", LONG), 1.0)
    yield made_now
    made_now.close()


def test_one_request_at_a_time_asks_whether_the_server_is_back(outages, clock):
    """Those that were sent before it went do not count."""
    refused = RefusedError("Connection refused", status=NO_CONNECTION_STATUS)
    outages.note_sent("before")
    outages.note_sent("first")
    assert outages.may_send(2)
    assert outages.note_failure("first", refused, is_alone=False) is RetryDecision.AGAIN
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert not outages.may_send(1)
        assert outages.seconds_left() == pause
        clock.now += pause
        assert outages.may_send(1)
        outages.note_sent("second")
        assert not outages.may_send(2)
        assert (
            outages.note_failure("second", refused, is_alone=False)
            is RetryDecision.AGAIN
        )
    clock.now += 30.0
    outages.note_sent("third")
    outages.note_answer("before")
    assert outages.is_server_out
    outages.note_answer("third")
    assert not outages.is_server_out
    assert [n for n in range(9) if outages.may_send(n)] == [0, 1]
    outages.note_answer("fourth")  # each answer lets one more go
    assert [n for n in range(9) if outages.may_send(n)] == [0, 1, 2]


def test_all_who_ask_a_server_wait_together(outages, clock):
    other = ServerWatch(made("http://127.0.0.1:9/v1", LONG), 1.0)
    refused = RefusedError("Too many", status=429, retry_after=7.0)
    outages.note_sent("one")
    outages.note_failure("one", refused, is_alone=False)
    assert other.seconds_left() == 7.0
    other.close()
    outages.close()
    anew = ServerWatch(made("http://127.0.0.1:9/v1", LONG), 1.0)
    assert anew.may_send(0)
    anew.close()
    outages.__init__(made("http://127.0.0.1:9/v1", LONG), 1.0)  # type: ignore[misc]


def test_a_server_that_refuses_everybody_is_asked_24_times_in_ten_minutes(clock):
    """Beside the requests that were on their way when it began to."""
    limited = ServerWatch(made("http://127.0.0.1:9/v1", 10.0), 1.0)
    refused = RefusedError("Too many", status=429)
    limited.note_sent("first")
    limited.note_failure("first", refused, is_alone=False)
    n_asked = 0
    with pytest.raises(
        UserError, match=r"\(429: Too many\), and the run has waited for 10 min"
    ):
        while n_asked < 100:
            clock.now += limited.seconds_left()
            n_asked += 1
            limited.note_sent(f"q{n_asked}")
            limited.note_failure(f"q{n_asked}", refused, is_alone=False)
    assert n_asked == 24
    limited.close()


def test_a_server_that_loads_its_model_is_waited_for(caplog):
    """As llama.cpp's: it lists the model, and has no answers yet."""
    with OpenAiServer() as server:
        server.fault(Status(503, message="Loading model"), nth=None)
        with meanwhile(caplog, server.faults.clear):
            assert ask(server.url, LONG) == 2 * N
    assert "(Loading model): waiting up to 5 minutes" in said(caplog)[0]
    assert len(said(caplog)) == 2
    assert n_stored()[0] == server.billed.total() == 2 * N


@pytest.mark.system
def test_a_tunnel_whose_other_end_is_gone_is_no_server(caplog):
    """It takes every connection, and closes it: the list of models shows that nobody answers."""
    with OpenAiServer() as server:

        def tear(stage: Stage, call: Call) -> None:
            if server.billed.total() >= 5 and not server.faults:
                server.add_fault("GET", "", ResetBefore(), nth=None)
                server.fault(ResetBefore(), nth=None)

        def mend() -> None:
            server.on_call = None
            server.faults.clear()

        server.on_call = tear
        with meanwhile(caplog, mend):
            assert ask(server.url, LONG) == 2 * N
    assert len(said(caplog)) == 2
    assert n_stored()[0] == server.billed.total() == 2 * N


def test_a_request_that_fails_alone_at_a_server_that_is_there_is_given_up():
    """It may be what the server cannot take."""
    with OpenAiServer() as server:
        server.fault(AcceptThenReset(), nth=None)
        with pytest.raises(UserError, match="missing"):
            ask(server.url, 0.1, n=1, concurrency=1)
        server.faults.clear()
        assert ask(server.url, LONG, n=1) == 2


def test_the_last_request_that_a_server_cannot_take_is_given_up_after_the_wait():
    with OpenAiServer() as server:

        def spoil(stage: Stage, call: Call) -> None:
            if stage == "answered" and server.billed.total() == 3:
                server.fault(Status(503), nth=None)

        server.on_call = spoil
        with pytest.raises(UserError, match="missing"):
            ask(server.url, SHORT, n=2, concurrency=1)
        server.on_call = None
        server.faults.clear()
        assert ask(server.url, LONG, n=2) == 1
