"""An OpenAI-compatible API, in this process: what it is sent, what its errors mean, and what is made of its answers.

The real SDK talks to a real server on 127.0.0.1, which keeps the bill.
"""

import json
import logging
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from elo_exp.api.openai import (
    OpenAiApi,
    check_extra_body,
    parse_completion,
)
from elo_exp.api.transport import (
    NO_CONNECTION_STATUS,
    RefusedError,
    UnknownOutcomeError,
    read_retry_after,
)
from elo_exp.errors import UserError
from tests.http_server import (
    AcceptThenHang,
    AcceptThenReset,
    AcceptThenStatus,
    Fault,
    Status,
)
from tests.openai_server import Body, OpenAiServer, alone

PARAMS = {
    "model": "small",
    "messages": [{"role": "user", "content": "Why?"}],
    "max_tokens": 50,
}


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


def api(
    base_url: str, *, key_variable: str | None = None, timeout_seconds: float = 5.0
) -> OpenAiApi:
    return OpenAiApi(
        base_url,
        key_variable=key_variable,
        timeout_seconds=timeout_seconds,
        part="judge",
    )


# What is sent, and what comes back


def test_what_would_go_past_a_setting_is_no_extra():
    check_extra_body({"top_k": 20, "reasoning_effort": "low", "min_tokens": 3})
    for name in (
        "max_tokens",
        "max_completion_tokens",
        "n",
        "best_of",
        "model",
        "stream",
    ):
        words = f"^extra_body must leave out {name}, which would bypass the settings"
        with pytest.raises(UserError, match=words):
            check_extra_body({"seed": 1, name: 20})


ODD = {
    "object": "chat.completion",
    "created": "yesterday",
    "choices": [
        {
            "index": "0",
            "message": {"content": "Yes."},
            "finish_reason": "eos",
            "logprobs": 3,
        }
    ],
    "usage": {"prompt_tokens": 7.0, "completion_tokens": None, "cost": "free"},
    "timings": {"predicted_ms": 12.5},
}


def test_a_completion_in_a_shape_of_the_servers_own_is_read_without_a_warning():
    """Warnings are errors here; the SDK's types would complain of each of these."""
    with OpenAiServer(
        outcomes=lambda params, n: Body(json.dumps(ODD).encode())
    ) as server:
        assert api(server.url).send(PARAMS) == ODD
    read = parse_completion(ODD, max_tokens=50)
    assert (read.text, read.stop_reason, read.usage) == ("Yes.", "eos", {})


PARTS = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Yes."}]


@pytest.mark.parametrize(
    ("content", "text"),
    [("Yes.", "Yes."), (None, ""), ("half \ud83d", "half ?"), (PARTS, "Yes.")],
    ids=["text", "none", "half an emoji", "parts"],
)
def test_the_text_of_a_completion_is_its_content_after_its_thought(content, text):
    message = {"content": content, "reasoning_content": None}
    completion = {"choices": [{"message": message}]}
    assert parse_completion(completion, max_tokens=50).text == text
    message["reasoning_content"] = "I think"
    closing = "</think>" if text else ""
    said = parse_completion(completion, max_tokens=50).text
    assert said == f"<think>I think{closing}{text}"


REFUSAL = {"content": None, "refusal": "I cannot."}


@pytest.mark.parametrize(
    ("finish_reason", "message", "n_tokens", "reason"),
    [
        ("stop", {"refusal": None}, 50, "end_turn"),
        ("length", {}, 50, "max_tokens"),
        ("tool_calls", {}, 9, "tool_calls"),
        ("stop", REFUSAL, 9, "refusal"),
        (None, {}, 49, "end_turn"),
        (None, {}, 50, "max_tokens"),  # the limit
    ],
)
def test_why_a_completion_ended_is_said_as_of_claude(
    finish_reason, message, n_tokens, reason
):
    usage = {"prompt_tokens": 7, "completion_tokens": n_tokens}
    choice = {"message": message} | (
        {"finish_reason": finish_reason} if finish_reason else {}
    )
    completion = {"choices": [choice], "usage": usage}
    assert parse_completion(completion, max_tokens=50).stop_reason == reason


def usage(prompt: Any, completion: Any, cached: Any = 0) -> dict[str, Any]:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": completion, **details}


@pytest.mark.parametrize(
    ("given", "tokens", "counted"),
    [
        (usage(100, 9, 64), (64, 36, 9), True),
        (usage(100, 9, 5000), (5000, 100, 9), True),  # counted apart from the prompt
        (usage(100, 0, [64]), (0, 100, 0), True),
        (usage(100, "9"), (0, 100, 0), False),
        (usage(math.nan, math.inf, -64), (0, 0, 0), False),
        (None, (0, 0, 0), False),
    ],
)
def test_tokens_are_counted_by_class_and_odd_counts_count_nothing(
    given, tokens, counted
):
    names = ("cache_read_tokens", "input_tokens", "output_tokens")
    completion = {"choices": [{"message": {}}], "usage": given}
    usage = dict(zip(names, tokens, strict=True)) if counted else {}
    assert parse_completion(completion, max_tokens=50).usage == usage


# Errors


def failure(server: OpenAiServer, **how: Any) -> RefusedError | UnknownOutcomeError:
    """What becomes of one completion, which is asked for once."""
    with pytest.raises((RefusedError, UnknownOutcomeError)) as failed:
        api(server.url, **how).send(PARAMS)
    assert len(server.asked) == 1
    return failed.value  # type: ignore[no-any-return]


def failing(beside: dict[str, Any], **choice: Any) -> bytes:
    """A completion of a gateway that has begun its answer before the model behind it fails."""
    body = {"choices": [{"message": {"content": ""}, **choice}], **beside}
    return json.dumps(body).encode()


ELSE = "something else than a chat completion"
ERROR = {"error": {"message": "No GPU."}}
ELSE = "answered with something else than a chat completion"
ERROR = {"error": {"message": "No GPU."}}
TOO_LONG = r"^No \(too_long\)"
CHECK = rf"{TOO_LONG}\. Check judge.model and judge.base_url, which mostly ends in"


def instead(content: bytes) -> dict[str, Any]:
    return {"outcomes": lambda params, n: Body(content)}


FAILURES: list[tuple[dict[str, Any], Fault | None, type[Exception], str]] = [
    # certainly not accepted
    ({}, Status(400, "too_long", "No."), RefusedError, TOO_LONG),
    ({}, Status(404, "too_long", "No."), RefusedError, CHECK),
    ({}, Status(429, "too_long", "No."), RefusedError, TOO_LONG),
    # perhaps accepted, and not repeated by the SDK
    ({}, Status(500, message="Oops."), UnknownOutcomeError, "Oops"),
    ({}, AcceptThenReset(), UnknownOutcomeError, "Connection error"),
    ({}, AcceptThenStatus(502), UnknownOutcomeError, "Failed after it was done"),
    (
        {},
        AcceptThenHang(9.0),
        UnknownOutcomeError,
        "whole answer within 0.3 s|timed out",
    ),
    (
        instead(b"<html>Welcome</html>"),
        None,
        UnknownOutcomeError,
        "/v1/chat/completions answered with a web page",
    ),
    (
        instead(json.dumps(ERROR).encode()),
        None,
        UnknownOutcomeError,
        rf"{ELSE} \(No GPU",
    ),
    (
        instead(b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
        None,
        UnknownOutcomeError,
        ELSE,
    ),
    (
        instead(failing({}, finish_reason="error")),
        None,
        UnknownOutcomeError,
        "an error in",
    ),
    (
        instead(failing(ERROR, finish_reason="stop")),
        None,
        UnknownOutcomeError,
        "an error in",
    ),
]


@pytest.mark.parametrize(("how", "fault", "kind", "words"), FAILURES, ids=range(12))
def test_a_failure_is_refused_or_doubtful_in_the_servers_words(how, fault, kind, words):
    with OpenAiServer(**how) as server:
        if fault:
            server.fault(fault)
        error = failure(server, timeout_seconds=0.3)
    assert type(error) is kind
    assert re.search(words, str(error))
    if isinstance(error, RefusedError):
        assert isinstance(fault, Status)
        assert error.status == fault.code
        assert server.billed.total() == 0


DATED = {
    "date": "Sat, 28 Nov 2026 15:00:00 GMT",
    "retry-after": "Sat, 28 Nov 2026 15:01:30 GMT",
}


@pytest.mark.system
def test_without_a_connection_nothing_was_accepted():
    with OpenAiServer() as server:
        pass
    nobody = server.url
    with pytest.raises(RefusedError, match="refused") as error:
        api(nobody).send(PARAMS)
    assert error.value.status == NO_CONNECTION_STATUS
    with pytest.raises(
        UserError,
        match=r"(?s)cannot be reached \(\[Errno 111\].*Nothing was charged\..*base_url",
    ):
        api(nobody).check_model("small")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, None),
        (DATED, 90.0),
        ({**DATED, "retry-after": DATED["date"]}, 0.0),
        ({"retry-after": "Sun, 29 Nov 2020 10:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_what_the_server_asks(headers, seconds):
    assert read_retry_after(headers) == seconds


# The key

KEY = "sk-proj-Qm7vXbT2hWz"


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_the_key_is_that_of_the_variable_that_is_named(where, monkeypatch):
    """Not the one that the SDK would look for, nor a header that the environment would have it send."""
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer a-third")
    if where == "environment":
        monkeypatch.setenv("MY_KEY", KEY)
    else:
        Path(".env").write_text(f"MY_KEY={KEY}\n", encoding="utf-8")
    with OpenAiServer(key=KEY) as server:
        asked = api(server.url, key_variable="MY_KEY")
        asked.check_model("small")
        asked.send(PARAMS)
    assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("name", ["sk-proj-Qm7vXbT2hWz", "", "MY KEY"])
def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(name):
    with pytest.raises(
        UserError, match="^key_variable must be the name of an environment variable"
    ) as refusal:
        api("http://127.0.0.1:1/v1", key_variable=name)
    assert "Qm7v" not in str(refusal.value)


def test_a_server_that_quotes_the_key_is_not_quoted(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    with OpenAiServer(key="another") as server:
        error = failure(server, key_variable="MY_KEY")
        assert str(error) == "the key is not accepted. Check MY_KEY"
        with pytest.raises(
            UserError, match=r"refuses \(401\): the key is not accepted\. Check MY_KEY"
        ) as refusal:
            api(server.url, key_variable="MY_KEY").check_model("small")
        server.fault(Status(403, message=f"{KEY} is not for this model."))
        with pytest.raises(RefusedError) as forbidden:
            api(server.url, key_variable="MY_KEY").send(PARAMS)
    assert (
        str(forbidden.value)
        == "$MY_KEY is not for this model. The key in MY_KEY may not do this"
    )
    assert KEY not in f"{error!r} {refusal.value!r} {forbidden.value!r} {caplog.text}"


# Before anything is asked


def test_the_check_asks_for_the_list_of_models_and_warns_of_one_that_is_not_there(
    caplog,
):
    """Not refused: llama.cpp lists a file, and takes any name."""
    with OpenAiServer() as server:
        api(server.url).check_model("small")
        assert caplog.messages == []
        api(server.url).check_model("smal")
    words = f"judge.model: {server.url} does not list smal; it lists small, large"
    assert caplog.messages == [f"warning: {words}"]
    asked = {(call.method, call.path) for call in server.calls}
    assert asked == {("GET", "/v1/models")}


@pytest.mark.parametrize(
    "listing",
    [
        *map(Status, (403, 404, 405, 500)),
        Status(401, message="Missing scopes: model.read."),
    ],
)
def test_a_server_that_does_not_list_its_models_is_gone_on_with(listing):
    """OpenAI answers 401 to a key that is restricted to completions, with the scopes that it lacks."""
    with OpenAiServer(listing=listing) as server:
        api(server.url).check_model("small")
    assert server.calls[0].path == "/v1/models"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": KEY}, "It asks for a key: set judge.key_variable"),
        ({"listing": Status(503, message="Loading.")}, r"no answers now \(Loading\)"),
        ({"listing": Body(b"<html>Log in</html>")}, "does not answer as an OpenAI"),
        ({"listing": Body(b'{"ok": true}')}, "does not answer as an OpenAI"),
    ],
)
def test_a_server_that_cannot_answer_is_named_before_anything_is_spent(settings, words):
    with OpenAiServer(**settings) as server, pytest.raises(UserError, match=words):
        api(server.url).check_model("small")


def test_without_the_package_the_command_that_installs_it_is_named(
    monkeypatch,
):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(
        UserError,
        match=r"need the Python package openai, which is not installed\. Install it:\n  pip install 'elo-exp\[openai\]'$",
    ):
        api("http://host/v1").check_model("small")
