"""A server that refuses everybody is asked by one request at a time; an exhausted account ends the run; a page is no answer.

For the real SDKs of all providers, with servers on 127.0.0.1 that keep the bill.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from elo_exp.api import calls
from elo_exp.api.outages import MIN_UNANSWERED_FOR_OUTAGE
from elo_exp.api.transport import out_of_credit
from elo_exp.errors import UserError
from tests import test_gemini, test_openai_batches
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Errored, longer
from tests.gemini_server import GeminiServer
from tests.http_server import Call, Instead, Stage, Status
from tests.openai_batch_server import OpenAiBatchServer
from tests.openai_server import alone
from tests.paying import claude, judged

CONCURRENCY = 4


@dataclass(frozen=True)
class Provider:
    """single and batches are patterns of the paths to which requests are sent."""

    server: Callable[..., Any]
    judge: Callable[..., Any]
    single: str
    batches: str
    exhausted: Status


PROVIDERS = {
    "anthropic": Provider(
        AnthropicServer,
        claude,
        "/v1/messages$",
        "/batches$",
        Status(
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
        ),
    ),
    "openai": Provider(
        OpenAiBatchServer,
        test_openai_batches.judge,
        "/chat/completions$",
        "/batches$",
        Status(
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
    ),
    "gemini": Provider(
        GeminiServer,
        test_gemini.judge,
        ":generateContent$",
        ":batchGenerateContent$",
        Status(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
    ),
}
each_provider = pytest.mark.parametrize("name", PROVIDERS)
each_transport = pytest.mark.parametrize("transport", ["messages", "batches"])


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
    alone(monkeypatch, tmp_path)
    for name in ("ANTHROPIC", "OPENAI", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "test-key")


@contextmanager
def serving(
    name: str, transport: str, *, outcomes: Any = None, **changes: Any
) -> Iterator[tuple[Provider, Any, Callable[[], Any], str]]:
    """A server, a maker of judges that ask it, and the pattern of the paths to which this transport sends."""
    provider = PROVIDERS[name]
    with provider.server(verdicts=longer, outcomes=outcomes) as server:
        settings = {"transport": transport, "concurrency": CONCURRENCY, **changes}

        def make() -> Any:
            return provider.judge(server.url, **settings)

        path = provider.batches if transport == "batches" else provider.single
        yield provider, server, make, path


@pytest.mark.system
@pytest.mark.parametrize("code", [429, 529, 500])
@each_provider
def test_few_requests_are_sent_to_a_server_that_refuses_all_of_them(
    name, code, monkeypatch
):
    """In mid-run, with 42 queries left. Those on their way are refused, and then one at a time: after 0.1 s, 0.2 s, 0.4 s
    and 0.5 s, when the wait is over.
    """
    monkeypatch.setattr(calls, "_FIRST_BACK_OFF_SECONDS", 0.1)
    with serving(name, "messages", wait_minutes=0.02) as (_, server, make, path):

        def refuse(stage: Stage, call: Call) -> None:
            if not server.faults and server.meter.billed_bodies.total() >= 18:
                server.fault("POST", path, Status(code), nth=None)

        server.on_call = refuse
        with pytest.raises(
            UserError, match=r"does not answer \(.*has waited for 1 sec"
        ):
            judged(make(), 30)
        n_answered = server.meter.billed_bodies.total()
        n_refused = server.meter.posts(path) - n_answered
        n_first = (
            MIN_UNANSWERED_FOR_OUTAGE if code == 500 else 1
        )  # by which an outage begins
        assert n_first <= n_refused <= CONCURRENCY + n_first + 5
        server.on_call = None
        server.faults.clear()
        assert judged(make(), 30)[1].judge_calls == 60 - n_answered
    assert set(server.meter.billed_bodies.values()) == {1}


@pytest.mark.parametrize("kind", ["rate_limit_error", "api_error"])
@pytest.mark.parametrize("which", ["000", "007"])
@each_provider
def test_one_poisonous_request_delays_no_other(name, which, kind):
    """The first, or one among the others. It has its attempts, and the rest is answered."""

    poisonous = list[
        str
    ]()  # of the two orders of a comparison, the one that comes first

    def poison(params: Any, n: int) -> Any:
        text = json.dumps(params["contents" if name == "gemini" else "messages"])
        if f"Why {which}" in text and not poisonous:
            poisonous.append(text)
        return Errored(kind, "Not this one.") if text in poisonous else None

    given = {"outcomes": poison, "wait_minutes": 0.3}
    with serving(name, "messages", **given) as (_, server, make, path):
        started = time.monotonic()
        with pytest.raises(UserError, match="1 .*missing"):
            judged(make(), 10)
        assert time.monotonic() - started < 30.0
        assert server.meter.billed_bodies.total() == 19
        assert server.meter.posts(path) <= 19 + calls.MAX_ATTEMPTS + 2


@each_transport
@each_provider
def test_an_exhausted_account_ends_the_run_in_a_line(name, transport):
    with serving(name, transport) as (provider, server, make, path):
        server.fault("POST", path, provider.exhausted, nth=None)
        with pytest.raises(
            UserError,
            match="account at .* has no money or quota left .*run the same command",
        ) as raised:
            judged(make(), 6)
        assert "\n" not in str(raised.value)
        assert server.meter.posts(path) <= CONCURRENCY
        server.faults.clear()
        judged(make(), 6)
    assert set(server.meter.billed_bodies.values()) == {1}


@pytest.mark.parametrize("code", [200, 501])
@each_transport
@each_provider
def test_a_page_in_place_of_json_ends_the_run_after_one_attempt(name, transport, code):
    """It may be a login page, which no request gets past, or the address may be that of a server of pages."""
    page = Instead(b"\xef\xbb\xbf<!DOCTYPE html><html>Log in first</html>", code)
    with serving(name, transport, quarantine_seconds=0.1) as (_, server, make, path):
        server.fault("POST", path, page)
        words = rf"{re.escape(server.url)}/\S+ answered with a web page instead of JSON"
        with pytest.raises(UserError, match=words):
            judged(make(), 1)
        assert server.meter.posts(path) == 1
        assert judged(make(), 1)[1].judge_calls == 2
    assert set(server.meter.billed_bodies.values()) == {1}


@each_provider
def test_batches_whose_server_says_nothing_end_the_run_and_are_collected_later(name):
    with serving(name, "batches", wait_minutes=0.01, chunk_size=4) as found:
        _, server, make, _ = found

        def leave(stage: Stage, call: Call) -> None:
            if stage == "answered" and call.method == "POST" and not server.faults:
                server.fault("GET", "", Status(503, message="Away."), nth=None)

        server.on_call = leave
        with pytest.raises(
            UserError, match=r"does not answer \(.*has waited for 1 second"
        ):
            judged(make(), 6)
        server.on_call = None
        server.faults.clear()
        judged(make(), 6)
    assert set(server.meter.billed_bodies.values()) == {1}


GEMINI_MINUTE = {
    "error": {
        "details": [
            {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProject-Free"}]},
            {"retryDelay": "34s"},
        ]
    }
}
GEMINI_DAY = {
    "error": {
        "details": [
            {"violations": [{"quotaId": "GenerateRequestsPerDayPerProject-FreeTier"}]},
            {"retryDelay": "34s"},
        ]
    }
}
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("kind", "words", "body", "is_exhausted"),
    [
        ("billing_error", "", None, True),
        (None, "You have reached your specified API usage limits.", None, True),
        (None, QUOTA, None, True),
        (None, "", {"error": {"code": "billing_hard_limit_reached"}}, True),
        (None, QUOTA, GEMINI_DAY, True),
        (None, QUOTA, GEMINI_MINUTE, False),
        (None, f"{QUOTA} Please retry in 34.07s.", None, False),
        ("rate_limit_error", "Too many requests per minute.", None, False),
        ("RESOURCE_EXHAUSTED", "Resource has been exhausted.", None, False),
        (None, "Rate limit reached on requests per day (RPD).", None, False),
    ],
)
def test_an_exhausted_quota_is_known_by_the_words_of_all_providers(
    kind, words, body, is_exhausted
):
    assert out_of_credit(kind, words, body) is is_exhausted
