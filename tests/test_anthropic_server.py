"""The test server through the real SDK: the protocol, what a lost answer costs, the bill, a judge of known bias."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types.messages import MessageBatchIndividualResponse

from elo_exp import HOME
from tests.anthropic_server import (
    AcceptThenHang,
    AcceptThenReset,
    AcceptThenStatus,
    AlienRow,
    AnthropicServer,
    Call,
    Clock,
    ClockJump,
    DoubleAccept,
    DropRows,
    DupRow,
    Fault,
    LateAccept,
    Limits,
    NeverEnd,
    ResetBefore,
    SlowBody,
    Status,
    Truncate,
    UnknownType,
)
from tests.anthropic_verdicts import (
    LOW_BALANCE,
    Canceled,
    Errored,
    Expired,
    NoisyBradleyTerry,
    Outcome,
    Says,
    Shown,
    StopReason,
    longer,
    sha256,
)

TEMPLATE = (HOME / "prompts" / "pairwise.md").read_text(encoding="utf-8")
SCHEMA = json.loads((HOME / "prompts" / "verdict_schema.json").read_text(encoding="utf-8"))
BATCHES = r"/v1/messages/batches$"
RESULTS = r"/results$"
OPUS = "claude-opus-5-5"
RUBRIC = "The response with fewer errors wins. " * 100  # 3,700 characters: 925 tokens
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def served(**settings: Any) -> Iterator[tuple[AnthropicServer, anthropic.Anthropic]]:
    """A server whose clock stands still, and a client that does not retry."""
    with (
        AnthropicServer(**{"clock": Clock(scale=0), **settings}) as server,
        anthropic.Anthropic(base_url=server.url, api_key="test-key", max_retries=0) as client,
    ):
        yield server, client


def shown_to_judge(question: str = "Why?", a: str = "Yes.", b: str = "No.") -> str:
    nonce = sha256([question, a, b])[:16]
    return TEMPLATE.format(
        question=question, response_a=a, response_b=b, nonce=nonce, reference="", expected=""
    )


def params(
    user: str = "Why?", *, ttl: str | None = None, rubric: str = RUBRIC, **changes: Any
) -> dict[str, Any]:
    mark = {"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}
    return {
        "model": OPUS,
        "max_tokens": 1000,
        "system": [{"type": "text", "text": rubric, **mark}],
        "messages": [{"role": "user", "content": user}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
        **changes,
    }


def requests(*asked: dict[str, Any], nonce: str = "0a1b2c3d") -> list[Any]:
    return [{"custom_id": f"{nonce}-{n:040x}", "params": one} for n, one in enumerate(asked)]


def questions(n: int, **changes: Any) -> list[Any]:
    return requests(*(params(f"Question {k}", **changes) for k in range(n)))


def rows(client: anthropic.Anthropic, asked: Sequence[Any]) -> list[MessageBatchIndividualResponse]:
    """The results of a batch, from its submission to its end."""
    return list(client.messages.batches.results(client.messages.batches.create(requests=asked).id))


def run(client: anthropic.Anthropic, *asked: dict[str, Any]) -> list[Any]:
    """What came of each request of a batch, in the order of the requests."""
    return [
        row.result for row in sorted(rows(client, requests(*asked)), key=lambda row: row.custom_id)
    ]


def verdict(message: anthropic.types.Message) -> str:
    return json.loads(message.content[-1].text)["verdict"]


# The life of a batch


def test_a_batch_is_submitted_polled_and_read():
    with served(verdicts=["A", "B", "TIE"], polls_to_end=2) as (server, client):
        batch = client.messages.batches.create(requests=questions(3))
        assert batch.processing_status == "in_progress"
        assert batch.request_counts.processing == 3
        assert batch.expires_at - batch.created_at == batch.created_at.resolution * DAY * 10**6
        assert (
            batch.ended_at,
            batch.cancel_initiated_at,
            batch.archived_at,
            batch.results_url,
        ) == (None,) * 4
        with pytest.raises(anthropic.AnthropicError, match="No `results_url`"):
            client.messages.batches.results(batch.id)  # which is the first look at it
        assert server.meter.billed == {}

        batch = client.messages.batches.retrieve(batch.id)
        assert (batch.processing_status, batch.request_counts.succeeded) == ("ended", 3)
        assert batch.results_url == f"{server.url}/v1/messages/batches/{batch.id}/results"
        found = {row.custom_id: row.result for row in client.messages.batches.results(batch.id)}
        assert [verdict(found[request["custom_id"]].message) for request in questions(3)] == [
            "A",
            "B",
            "TIE",
        ]

        message = found[questions(1)[0]["custom_id"]].message
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert (message.model, message.stop_reason, message.usage.service_tier) == (
            OPUS,
            "end_turn",
            "batch",
        )
        assert server.meter.billed == {f"{n:040x}": 1 for n in range(3)}
        assert (server.meter.posts(), server.meter.posts(BATCHES), server.meter.gets(RESULTS)) == (
            1,
            1,
            1,
        )
        (held,) = server.batches
        assert (held.id, held.status, held.n, held.requests) == (batch.id, "ended", 3, [])


def test_a_batch_ends_by_the_clock():
    with served(seconds_to_end=HOUR) as (server, client):
        batch = client.messages.batches.create(requests=questions(1))
        assert client.messages.batches.retrieve(batch.id).processing_status == "in_progress"
        server.clock.advance(HOUR)
        assert client.messages.batches.retrieve(batch.id).processing_status == "ended"


def test_a_batch_may_end_while_nobody_looks():
    with served(polls_to_end=0, seconds_to_end=HOUR) as (server, client):
        client.messages.batches.create(requests=questions(1))
        assert server.batches[0].status == "in_progress"
        server.clock.advance(HOUR)
        assert server.batches[0].status == "ended"


def test_results_come_in_any_order_and_each_once():
    ids = [request["custom_id"] for request in questions(20)]
    orders = {}
    for order in ("given", "reversed", "shuffled"):
        with served(order=order) as (_, client):
            orders[order] = [row.custom_id for row in rows(client, questions(20))]
    assert orders["given"] == ids
    assert orders["reversed"] == ids[::-1]
    assert orders["shuffled"] not in (ids, ids[::-1])
    assert sorted(orders["shuffled"]) == ids


def test_batches_are_listed_newest_first_in_pages():
    with served() as (server, client):
        assert client.messages.batches.list().data == []
        newest_first = [client.messages.batches.create(requests=questions(1)).id for _ in range(5)][
            ::-1
        ]
        assert [batch.id for batch in server.batches] == newest_first[::-1]

        page = client.messages.batches.list(limit=2)
        assert [batch.id for batch in page.data] == newest_first[:2]
        assert (page.has_more, page.first_id, page.last_id) == (
            True,
            newest_first[0],
            newest_first[1],
        )
        assert [batch.id for batch in page] == newest_first  # the SDK asks for the other pages
        before = client.messages.batches.list(limit=2, before_id=newest_first[3])
        assert [batch.id for batch in before.data] == newest_first[1:3]
        for limit in (0, 1001):
            with pytest.raises(anthropic.BadRequestError, match=f"limit: found '{limit}'"):
                client.messages.batches.list(limit=limit)


def test_a_canceled_batch_has_answered_some_of_its_requests():
    with served(polls_to_end=99) as (server, client):
        batch = client.messages.batches.create(requests=questions(4))
        canceled = client.messages.batches.cancel(batch.id)
        assert canceled.processing_status == "canceling"
        assert canceled.cancel_initiated_at is not None
        ended = client.messages.batches.retrieve(batch.id)
        assert (ended.processing_status, ended.request_counts.processing) == ("ended", 0)
        assert (ended.request_counts.succeeded, ended.request_counts.canceled) == (2, 2)
        types = Counter(row.result.type for row in client.messages.batches.results(batch.id))
        assert types == {"succeeded": 2, "canceled": 2}
        assert len(server.meter.billed) == 2
        with pytest.raises(anthropic.BadRequestError, match="has ended and cannot be canceled"):
            client.messages.batches.cancel(batch.id)


def test_only_a_batch_that_has_ended_can_be_deleted():
    with served(polls_to_end=2) as (_, client):
        batch = client.messages.batches.create(requests=questions(1))
        with pytest.raises(anthropic.BadRequestError, match="has not ended"):
            client.messages.batches.delete(batch.id)
        for _ in range(2):
            client.messages.batches.retrieve(batch.id)
        assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
        assert client.messages.batches.list().data == []
        for use in (
            client.messages.batches.retrieve,
            client.messages.batches.cancel,
            client.messages.batches.delete,
        ):
            with pytest.raises(anthropic.NotFoundError):
                use(batch.id)


def test_results_before_the_end_are_refused():
    with served(polls_to_end=9) as (_, client):
        batch = client.messages.batches.create(requests=questions(1))
        with pytest.raises(anthropic.BadRequestError, match="has not ended"):
            client.get(f"/v1/messages/batches/{batch.id}/results", cast_to=object)


# Time


def test_a_batch_expires_after_a_day_and_costs_nothing():
    with served(seconds_to_end=2 * DAY) as (server, client):
        batch = client.messages.batches.create(requests=questions(3))
        server.clock.advance(DAY - 1)
        assert client.messages.batches.retrieve(batch.id).processing_status == "in_progress"
        server.clock.advance(2)
        ended = client.messages.batches.retrieve(batch.id)
        assert (ended.processing_status, ended.request_counts.expired) == ("ended", 3)
        assert ended.ended_at == ended.expires_at
        assert {row.result.type for row in client.messages.batches.results(batch.id)} == {"expired"}
        assert server.meter.billed == server.meter.billed_bodies == {}


def test_a_batch_that_ended_in_time_has_not_expired():
    with served(polls_to_end=1, seconds_to_end=HOUR) as (server, client):
        batch = client.messages.batches.create(requests=questions(1))
        client.messages.batches.retrieve(batch.id)
        server.clock.advance(2 * DAY)
        assert client.messages.batches.retrieve(batch.id).request_counts.succeeded == 1


def test_results_are_archived_after_29_days():
    with served() as (server, client):
        batch = client.messages.batches.create(requests=questions(1))
        url = client.messages.batches.retrieve(batch.id).results_url
        server.clock.advance(29 * DAY + 1)
        old = client.messages.batches.retrieve(batch.id)
        assert (old.processing_status, old.results_url, old.request_counts.succeeded) == (
            "ended",
            None,
            1,
        )
        assert (old.archived_at - old.created_at).days == 29
        with pytest.raises(anthropic.NotFoundError, match="archived"):
            client.get(url, cast_to=object)


def test_the_clock_may_jump_during_a_call_and_a_batch_may_never_end():
    with served() as (server, client):
        server.fault("POST", BATCHES, NeverEnd(), nth=None)
        first, second = (client.messages.batches.create(requests=questions(2)).id for _ in range(2))
        assert client.messages.batches.retrieve(first).processing_status == "in_progress"
        client.messages.batches.cancel(second)
        assert client.messages.batches.retrieve(second).processing_status == "ended"
        server.fault("GET", first, ClockJump(DAY + 1))
        assert client.messages.batches.retrieve(first).request_counts.expired == 2


# What is refused


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ([], "requests: List should have at least 1 item"),
        (questions(4), "requests: List should have at most 3 items"),
        (
            [{"custom_id": "a" * 65, "params": {}}],
            "requests.0.custom_id: String should have at most 64 characters",
        ),
        ([{"custom_id": "a.b", "params": {}}], "requests.0.custom_id: String should match pattern"),
        ([{"custom_id": "a\n", "params": {}}], "requests.0.custom_id: String should match pattern"),
        ([{"custom_id": "", "params": {}}], "requests.0.custom_id: String should match pattern"),
        ([{"params": {}}], "requests.0.custom_id: Field required"),
        ([{"custom_id": "a"}], "requests.0.params: Field required"),
        (
            [{"custom_id": "a", "params": {}}] * 2,
            "requests.1.custom_id: 'a' is not unique in the batch",
        ),
    ],
)
def test_a_batch_is_refused_for_its_ids_and_size(asked, complaint):
    with served(limits=Limits(max_requests=3)) as (server, client):
        with pytest.raises(anthropic.BadRequestError, match="invalid_request_error") as refused:
            client.messages.batches.create(requests=asked)
        assert complaint in refused.value.body["error"]["message"]
        assert refused.value.request_id == refused.value.body["request_id"]
        assert server.batches == []


def test_a_batch_is_refused_for_its_bytes():
    with served(limits=Limits(max_bytes=10_000)) as (server, client):
        with pytest.raises(anthropic.ContentTooLargeError, match="exceeds 10000 bytes") as refused:
            client.messages.batches.create(requests=questions(3))
        assert refused.value.type == "request_too_large"
        assert len(rows(client, questions(1))) == 1  # the connection is still in order
        assert len(server.batches) == 1


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"authorization": "Bearer test-key"}, None),
        ({"authorization": "", "x-api-key": "test-key"}, None),
        ({"anthropic-version": "2023-06-01"}, None),
        ({"authorization": "Bearer other"}, anthropic.AuthenticationError),
        ({"authorization": "", "x-api-key": "other"}, anthropic.AuthenticationError),
        ({"anthropic-version": "2024-01-01"}, anthropic.BadRequestError),
        ({"anthropic-version": ""}, anthropic.BadRequestError),
    ],
)
def test_the_key_and_the_version_are_in_the_headers(headers, refused):
    with served() as (_, client):
        if refused is None:
            client.messages.batches.list(extra_headers=headers)
        else:
            with pytest.raises(refused):
                client.messages.batches.list(extra_headers=headers)


def test_unknown_paths_and_bodies_are_refused():
    with served() as (_, client):
        with pytest.raises(anthropic.NotFoundError, match="Not found: GET /v1/nothing"):
            client.get("/v1/nothing", cast_to=object)
        with pytest.raises(anthropic.BadRequestError, match="not valid JSON"):
            client.post("/v1/messages", content=b"{", cast_to=object)


PREFILL = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "{"}]
MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
REFUSED_PARAMS = [
    ({"temperature": 1.0}, "temperature: not supported"),
    ({"top_p": 1.0}, "top_p: not supported"),
    ({"top_k": 1}, "top_k: not supported"),
    ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    ({"max_tokens": None}, "max_tokens: Field required"),
    ({"stream": True}, "stream: not supported here"),
    ({"messages": []}, "messages: at least one message"),
    (
        {"messages": [{"role": "user", "content": ""}]},
        "messages.0.content: text content must be non-empty",
    ),
    ({"messages": PREFILL}, "messages: the conversation must end with a user message"),
    ({"tool_choice": {"type": "any"}}, 'tool_choice: "any" is not supported'),
    ({"tool_choice": {"type": "tool", "name": "verdict"}}, 'tool_choice: "tool" is not supported'),
    ({"thinking": {"type": "disabled"}}, '"thinking.type.disabled" is not supported'),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        '"thinking.type.enabled" is not supported',
    ),
    (
        {"output_config": {"effort": "extreme"}},
        "output_config.effort: Input should be one of low, medium",
    ),
    (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format: Input should be of type",
    ),
    (
        {"system": [{**MARKED, "cache_control": {"type": "ephemeral", "ttl": "2h"}}]},
        "cache_control: found",
    ),
    (
        {"system": [MARKED] * 5},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    ({"sytem": "A rubric."}, "sytem: Extra inputs are not permitted"),
    ({"model": "claude-opus-9"}, "model: claude-opus-9"),
    ({"model": "claude-opus-4-1"}, "model: claude-opus-4-1"),  # retired
]


@pytest.mark.parametrize(("changes", "complaint"), REFUSED_PARAMS)
def test_a_request_is_refused_when_it_is_run(changes, complaint):
    """In a batch the others are answered; outside it is an HTTP error. Neither is billed."""
    with served() as (server, client):
        good, bad = run(client, params(), params(**changes))
        assert good.type == "succeeded"
        assert (bad.type, bad.error.type) == ("errored", "error")
        assert bad.error.error.message.startswith(complaint)
        assert bad.error.error.type == (
            "not_found_error" if "model" in changes else "invalid_request_error"
        )
        with pytest.raises(anthropic.APIStatusError) as refused:
            client.post("/v1/messages", body=params(**changes), cast_to=object)
        assert refused.value.status_code == (404 if "model" in changes else 400)
        assert refused.value.body["error"]["message"].startswith(complaint)
        assert server.meter.billed == {f"{0:040x}": 1}
        assert server.meter.billed_bodies.total() == 1


def test_models_differ_in_what_they_refuse():
    with served() as (_, client):
        for model in ("claude-haiku-5-5", "claude-opus-5"):
            forced, silent = run(
                client,
                params(model=model, tool_choice={"type": "any"}),
                params(model=model, thinking={"type": "disabled"}),
            )
            assert forced.type == "succeeded"
            assert [block.type for block in silent.message.content] == ["text"]


def test_models_are_known_by_name():
    with served() as (_, client):
        assert client.models.retrieve(OPUS).lifecycle == "active"
        assert client.models.retrieve("claude-opus-4-1").lifecycle == "retired"
        with pytest.raises(anthropic.NotFoundError, match="model: claude-opus-9"):
            client.models.retrieve("claude-opus-9")


# Single messages


def test_a_message_is_answered_and_billed_at_once():
    with served(verdicts=["B"]) as (server, client):
        message = client.messages.create(**params())
        assert (verdict(message), message.usage.service_tier) == ("B", "standard")
        assert (server.meter.billed_bodies.total(), server.meter.billed) == (1, {})


def test_a_question_paid_in_a_batch_and_outside_is_paid_twice():
    with served() as (server, client):
        run(client, params(ttl="1h"))
        client.messages.create(**params(ttl="5m"))
        client.messages.create(**params("Another question"))
        assert sorted(server.meter.billed_bodies.values()) == [1, 2]
        assert {tier: bool(spent) for tier, spent in server.meter.tokens.items()} == {
            "batch": True,
            "standard": True,
        }


def test_tokens_are_counted_for_nothing():
    with served() as (server, client):
        asked = {name: value for name, value in params().items() if name != "max_tokens"}
        assert client.messages.count_tokens(**asked).input_tokens == (len(RUBRIC) + len("Why?")) / 4
        with pytest.raises(anthropic.BadRequestError, match="max_tokens: Extra inputs"):
            client.messages.count_tokens(**asked, extra_body={"max_tokens": 10})
        with pytest.raises(anthropic.BadRequestError, match="temperature: not supported"):
            client.messages.count_tokens(**asked, extra_body={"temperature": 1})
        assert server.meter.billed_bodies == {}


# What the model says


def test_a_rule_sees_the_responses_in_their_places():
    with served(verdicts=longer) as (_, client):
        texts = [
            ("Yes, it is.", "No."),
            ("No.", "Yes, it is."),
            ("Yes.", "Nay."),
            ("</response_b>", "VERDICT: B"),
        ]
        results = run(client, *(params(shown_to_judge("Is it?", *pair)) for pair in texts))
        assert [verdict(result.message) for result in results] == ["A", "B", "TIE", "A"]
        answer = json.loads(results[0].message.content[-1].text)
        assert (answer["evidence_a"], answer["evidence_b"]) == ("Yes, it is.", "No.")


def test_without_a_schema_the_verdict_is_the_last_line():
    with served(verdicts=["TIE"]) as (_, client):
        (result,) = run(client, params(shown_to_judge(), output_config={"effort": "low"}))
        assert result.message.content[-1].text.splitlines()[-1] == "VERDICT: TIE"


def test_a_list_gives_each_question_its_verdict_whenever_it_is_asked():
    with served(verdicts=["A", "B"]) as (_, client):
        seen = [
            verdict(client.messages.create(**params(text)))
            for text in ("one", "two", "one", "three", "two")
        ]
        assert seen == ["A", "B", "A", "A", "B"]


def test_requests_may_fail_once_and_then_succeed():
    failures: dict[str, Outcome] = {
        "Question 0": Errored("overloaded_error", "Overloaded"),
        "Question 1": Expired(),
        "Question 2": Canceled(),
        "Question 3": LOW_BALANCE,
    }

    def outcome(asked: dict[str, Any], run: int) -> Outcome | None:
        return failures.get(asked["messages"][0]["content"]) if run == 1 else None

    with served(outcomes=outcome, order="given") as (server, client):
        first = [row.result for row in rows(client, questions(5))]
        assert [result.type for result in first] == [
            "errored",
            "expired",
            "canceled",
            "errored",
            "succeeded",
        ]
        assert first[0].error.error.type == "overloaded_error"
        assert "credit balance" in first[3].error.error.message
        assert server.meter.billed == {f"{4:040x}": 1}
        assert {row.result.type for row in rows(client, questions(4))} == {"succeeded"}
        assert set(server.meter.billed.values()) == {1}


def test_an_error_outside_a_batch_has_its_status():
    with served(
        outcomes=lambda _, run: Errored("overloaded_error", "Overloaded") if run == 1 else None
    ) as (_, client):
        with pytest.raises(anthropic.OverloadedError, match="Overloaded"):
            client.messages.create(**params())
        assert client.messages.create(**params()).stop_reason == "end_turn"


def test_refusals_and_broken_answers_are_paid():
    ends = [
        StopReason("refusal", "reasoning_extraction"),
        StopReason("max_tokens"),
        Says("I cannot say."),
    ]
    with served(order="given") as (server, client):
        server.outcomes = lambda asked, _: ends[int(asked["messages"][0]["content"][-1])]
        refusal, cut, prose = (row.result.message for row in rows(client, questions(3)))
        assert (refusal.stop_reason, refusal.stop_details.category) == (
            "refusal",
            "reasoning_extraction",
        )
        assert [block.type for block in refusal.content] == ["thinking"]
        assert cut.stop_reason == "max_tokens"
        with pytest.raises(ValueError, match="Unterminated string"):
            verdict(cut)
        assert (prose.stop_reason, prose.content[-1].text) == ("end_turn", "I cannot say.")
        assert len(server.meter.billed) == 3


def test_thinking_takes_its_share_of_max_tokens():
    with served(thinking_tokens=20) as (_, client):
        message = client.messages.create(**params(max_tokens=25))
        assert message.stop_reason == "max_tokens"
        assert len(message.content[-1].text) == 20
        assert (
            message.usage.output_tokens,
            message.usage.output_tokens_details.thinking_tokens,
        ) == (25, 20)


# What it costs


def classes(message: anthropic.types.Message) -> tuple[int, int, int, int]:
    """Uncached input, 5-minute writes, 1-hour writes, reads."""
    usage = message.usage
    written = usage.cache_creation
    assert (
        usage.cache_creation_input_tokens
        == written.ephemeral_5m_input_tokens + written.ephemeral_1h_input_tokens
    )
    return (
        usage.input_tokens,
        written.ephemeral_5m_input_tokens,
        written.ephemeral_1h_input_tokens,
        usage.cache_read_input_tokens,
    )


def test_a_prefix_is_written_once_and_read_while_it_is_remembered():
    """The rubric is 925 tokens, the question 1. A read renews the five minutes."""
    with served() as (server, client):
        seen = []
        for wait in (0, 4 * MINUTE, 4 * MINUTE, 6 * MINUTE):
            server.clock.advance(wait)
            seen.append(classes(client.messages.create(**params(ttl="5m"))))
        assert seen == [(1, 925, 0, 0), (1, 0, 0, 925), (1, 0, 0, 925), (1, 925, 0, 0)]


def test_a_prefix_may_be_remembered_for_an_hour():
    with served() as (server, client):
        seen = []
        for wait in (0, 59 * MINUTE, 61 * MINUTE):
            server.clock.advance(wait)
            seen.append(classes(client.messages.create(**params(ttl="1h"))))
        assert seen == [(1, 0, 925, 0), (1, 0, 0, 925), (1, 0, 925, 0)]


def test_the_prefix_is_all_that_the_question_shares():
    """Model, tools, system text and output_config; not the question, and not the ttl."""
    tool = {"name": "look_up", "input_schema": {"type": "object"}}
    with served() as (_, client):
        client.messages.create(**params(ttl="1h"))
        for same in (params("Why not?", ttl="1h"), params(ttl="5m")):
            assert classes(client.messages.create(**same))[3] == 925
        for changes in (
            {"rubric": RUBRIC + "!"},
            {"model": "claude-opus-5"},
            {"tools": [tool]},
            {"output_config": {"effort": "high"}},
        ):
            assert classes(client.messages.create(**params(ttl="1h", **changes)))[3] == 0


def test_a_short_prefix_is_never_cached():
    with served() as (_, client):
        for changes in ({"rubric": "x" * 4 * 511}, {"model": "claude-haiku-4-5"}, {"ttl": None}):
            for _ in range(2):
                assert classes(client.messages.create(**params(**{"ttl": "1h", **changes})))[
                    1:
                ] == (0, 0, 0)


def test_a_batch_does_not_read_what_a_single_message_wrote():
    with served() as (_, client):
        client.messages.create(**params(ttl="1h"))
        prewarm, *_ = run(client, params("Question 0", ttl="1h"))
        assert classes(prewarm.message)[2:] == (925, 0)
        later = run(client, *(params(f"Question {n}", ttl="1h") for n in range(1, 4)))
        assert [classes(result.message)[2:] for result in later] == [(0, 925)] * 3


def test_some_reads_miss_and_write_again():
    with served(miss_rate=0.3) as (_, client):
        usages = [classes(row.result.message) for row in rows(client, questions(400, ttl="1h"))]
        assert Counter(usage[2:] for usage in usages).keys() == {(925, 0), (0, 925)}
        assert 0.2 < sum(usage[2] > 0 for usage in usages) / 400 < 0.4


def test_the_meter_is_the_sum_of_the_usages():
    with served() as (server, client):
        spent: Counter[str] = Counter()
        for ttl in ("5m", "1h"):
            for row in rows(client, questions(5, ttl=ttl, rubric=RUBRIC + ttl)):
                usage = row.result.message.usage
                spent["input_tokens"] += usage.input_tokens
                spent["output_tokens"] += usage.output_tokens
                spent["cache_read_input_tokens"] += usage.cache_read_input_tokens
                spent["cache_creation_5m"] += usage.cache_creation.ephemeral_5m_input_tokens
                spent["cache_creation_1h"] += usage.cache_creation.ephemeral_1h_input_tokens
        assert server.meter.tokens == {"batch": spent, "standard": {}}
        assert server.meter.tokens_by_model == {(OPUS, "batch"): spent}
        assert (spent["cache_creation_5m"], spent["cache_creation_1h"]) == (926, 926)
        with urllib.request.urlopen(f"{server.url}/__meter") as answer:
            summary = json.load(answer)
        assert summary["tokens"] == {f"{OPUS} batch": spent}
        assert (summary["questions"], summary["paid_twice"], summary["bodies_paid_twice"]) == (
            5,
            5,
            0,
        )


# Lost answers


def test_nothing_has_happened_when_the_connection_is_reset_before():
    with served() as (server, client):
        server.fault("POST", BATCHES, ResetBefore())
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.batches.create(requests=questions(1))
        assert server.batches == []
        assert len(rows(client, questions(1))) == 1


def test_an_answer_lost_after_acceptance_leaves_a_batch():
    with served() as (server, client):
        server.fault("POST", BATCHES, AcceptThenReset())
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.batches.create(requests=questions(3))
        (batch,) = client.messages.batches.list().data
        assert batch.request_counts.processing == 3
        assert [held.id for held in server.batches] == [batch.id]


def test_the_default_retries_of_the_sdk_pay_twice(monkeypatch):
    """The client sees one batch and one id. This is why a batch is never created with retries."""
    monkeypatch.setattr("anthropic._base_client.INITIAL_RETRY_DELAY", 0.01)  # seconds
    with served() as (server, client):
        server.fault("POST", BATCHES, AcceptThenReset())
        seen = client.with_options(max_retries=2).messages.batches.create(requests=questions(3)).id
        assert [batch.id == seen for batch in server.batches] == [False, True]
        for batch in server.batches:
            client.messages.batches.retrieve(batch.id)
        assert set(server.meter.billed.values()) == {2}
        assert len(server.meter.paid_twice) == 3


def test_an_answer_may_say_that_it_failed_though_it_was_accepted():
    with served() as (server, client):
        server.fault("POST", BATCHES, AcceptThenStatus(529))
        with pytest.raises(anthropic.OverloadedError):
            client.messages.batches.create(requests=questions(1))
        assert len(server.batches) == 1


def test_an_answer_may_come_after_the_client_has_given_up():
    with served() as (server, client):
        server.fault("POST", BATCHES, AcceptThenHang(60))  # ends with the server
        with pytest.raises(anthropic.APITimeoutError):
            client.with_options(timeout=0.1).messages.batches.create(requests=questions(1))
        assert len(server.batches) == 1


def test_a_batch_may_arrive_after_the_connection_has_broken():
    with served() as (server, client):
        server.fault("POST", BATCHES, LateAccept(10 * MINUTE))
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.batches.create(requests=questions(2))
        server.clock.advance(10 * MINUTE - 1)
        assert client.messages.batches.list().data == []
        server.clock.advance(1)
        (batch,) = client.messages.batches.list().data
        assert batch.request_counts.processing == 2
        assert batch.created_at.timestamp() == pytest.approx(server.clock.now())


def test_a_batch_may_be_accepted_twice():
    with served() as (server, client):
        server.fault("POST", BATCHES, DoubleAccept())
        seen = client.messages.batches.create(requests=questions(2)).id
        first, second = server.batches
        assert first.id == seen
        assert first.custom_ids == second.custom_ids


def test_a_call_may_be_refused_for_a_while():
    with served() as (server, client):
        batch = client.messages.batches.create(requests=questions(1))
        server.fault("GET", batch.id, Status(404, message="Where is it?"), nth=1)
        server.fault("GET", batch.id, Status(429, headers={"retry-after": "7"}), nth=2)
        with pytest.raises(anthropic.NotFoundError, match="Where is it?"):
            client.messages.batches.retrieve(batch.id)
        with pytest.raises(anthropic.RateLimitError) as refused:
            client.messages.batches.retrieve(batch.id)
        assert (refused.value.type, refused.value.response.headers["retry-after"]) == (
            "rate_limit_error",
            "7",
        )
        assert client.messages.batches.retrieve(batch.id).processing_status == "ended"


@pytest.mark.parametrize(
    ("code", "etype", "kind"),
    [
        (401, "authentication_error", anthropic.AuthenticationError),
        (402, "billing_error", anthropic.PaymentRequiredError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (413, "request_too_large", anthropic.ContentTooLargeError),
        (422, "invalid_request_error", anthropic.UnprocessableEntityError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.OverloadedError),
    ],
)
def test_any_status_can_be_had(code, etype, kind):
    with served() as (server, client):
        server.fault("POST", BATCHES, Status(code), nth=None)
        for _ in range(2):
            with pytest.raises(kind) as refused:
                client.messages.batches.create(requests=questions(1))
            assert refused.value.type == etype
        assert server.batches == []


# Results that arrive incomplete, or with more than was asked


@contextmanager
def spoilt(
    fault: Fault, n: int = 50
) -> Iterator[Callable[[], list[MessageBatchIndividualResponse]]]:
    """A way to read the results of a batch, the first time with a fault, and from then on without."""
    with served() as (server, client):
        batch = client.messages.batches.create(requests=questions(n))
        server.fault("GET", RESULTS, fault)
        yield lambda: list(client.messages.batches.results(batch.id))
        whole = list(client.messages.batches.results(batch.id))
        assert sorted(row.custom_id for row in whole) == [
            request["custom_id"] for request in questions(n)
        ]
        assert set(server.meter.billed.values()) == {1}


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("rst", httpx2.ReadError),
        ("eof", httpx2.RemoteProtocolError),
        ("clean", json.JSONDecodeError),
    ],
)
def test_a_stream_cut_within_a_row_raises_what_is_no_error_of_the_sdk(how, error):
    with spoilt(Truncate(10_000, how)) as read:
        with pytest.raises(error) as raised:
            read()
        assert not isinstance(raised.value, anthropic.AnthropicError)


def test_a_stream_cut_between_rows_raises_nothing():
    """43 of 50 rows, and no error: only the counts of the batch tell."""
    with spoilt(Truncate(after_rows=43, how="clean")) as read:
        assert len(read()) == 43


def test_rows_may_be_missing_doubled_alien_or_of_a_new_type():
    with spoilt(DropRows(7)) as read:
        assert len(read()) == 43
    with spoilt(DupRow()) as read:
        found = read()
        assert (len(found), found[-1]) == (51, found[0])
    with spoilt(AlienRow()) as read:
        found = read()
        assert (len(found), found[0].custom_id) == (51, "alien")
    with spoilt(UnknownType()) as read:
        assert Counter(row.result.type for row in read()) == {"paused": 1, "succeeded": 49}


def test_faults_of_one_call_add_up():
    with served() as (server, client):
        for fault in (DropRows(2), DupRow(), AlienRow()):
            server.fault("GET", RESULTS, fault)
        assert len(rows(client, questions(10))) == 10


def test_a_body_may_come_slowly():
    with spoilt(SlowBody(pause=0.01, piece=2000), n=10) as read:
        began = time.monotonic()
        assert len(read()) == 10
        assert time.monotonic() - began > 0.03


# What a test can do at an exact moment


def test_each_call_is_told_stage_by_stage():
    with served() as (server, client):
        stages: list[tuple[str, str, str]] = []
        server.on_call = lambda stage, call: stages.append(
            (stage, call.method, call.path.rpartition("/")[2])
        )
        (row,) = rows(client, questions(1))
        assert row.result.type == "succeeded"
        batch = server.batches[0].id
        told = [
            *((stage, "POST", "batches") for stage in ("before", "accepted", "answered")),
            *((stage, "GET", batch) for stage in ("before", "accepted", "answered")),
            *((stage, "GET", "results") for stage in ("before", "accepted", "halfway", "answered")),
        ]
        give_up = time.monotonic() + 10
        while len(stages) < len(told) and time.monotonic() < give_up:
            time.sleep(
                0.001
            )  # the client may have read the last byte before the server says that it has sent it
        assert stages == told


SUBMIT = """
import http.client, sys
port, body = sys.stdin.readline(), sys.stdin.readline()
connection = http.client.HTTPConnection("127.0.0.1", int(port))
connection.request("POST", "/v1/messages/batches", body, {"x-api-key": "test-key", "anthropic-version": "2026-10-21"})
connection.getresponse()
sys.stdin.read()
"""


@pytest.mark.parametrize("stage", ["before", "accepted", "answered"])
def test_a_client_can_be_killed_at_a_stage(stage):
    """What the server has read it goes on to do: a killed client is a lost answer, not a call taken back."""
    client = subprocess.Popen([sys.executable, "-c", SUBMIT], stdin=subprocess.PIPE, text=True)
    killed = threading.Event()

    def kill(now: str, call: Call) -> None:
        if now == stage:
            client.kill()
            client.wait()
            killed.set()

    with served() as (server, _):
        server.on_call = kill
        client.stdin.write(
            f"{server.url.rpartition(':')[2]}\n{json.dumps({'requests': questions(2)})}\n"
        )
        client.stdin.flush()
        assert killed.wait(10)
    client.communicate()
    assert client.returncode == -signal.SIGKILL
    assert [batch.n for batch in server.batches] == [2]


def test_bodies_are_kept_if_asked_for():
    with served(keep_bodies=True) as (server, client):
        client.messages.create(**params())
        (call,) = server.meter.calls
        assert call.json() == params()
        assert call.headers["authorization"] == "Bearer test-key"
        assert call.headers["anthropic-version"] == "2026-10-21"
        assert call.size == len(call.body)
    with served() as (server, client):
        client.messages.create(**params())
        with pytest.raises(ValueError, match="its body was not kept. Use AnthropicServer"):
            server.meter.calls[0].json()


def test_a_mistake_in_the_test_shows_at_the_end():
    with (
        pytest.raises(ValueError, match="A rule needs all three; a list of verdicts needs none"),
        served(verdicts=longer) as (_, client),
        pytest.raises(anthropic.InternalServerError, match="the test server failed"),
    ):
        client.messages.create(**params("No responses here"))


# A judge whose truth is known

MARKERS = {"[ann]": 1.0, "[bob]": 0.0, "[cat]": -0.5}
BIAS, TIES = 0.6, 0.2
JUDGE = NoisyBradleyTerry(strengths=MARKERS, position_bias=BIAS, tie_rate=TIES, seed=7)


def pair(first: str, second: str, n: int) -> Shown:
    user = shown_to_judge(f"Question {n}", f"{first} Yes.", f"{second} No.")
    return Shown.of("A rubric.", user)


def test_the_chances_of_a_verdict():
    """By hand: [ann] before [bob], d = 1 + 0.6 = 1.6, nu = 2 * 0.2 / 0.8 = 0.5.

    exp(0.8) = 2.2255, exp(-0.8) = 0.4493; their sum with 0.5 is 3.1749.
    """
    chances = JUDGE.chances(pair("[ann]", "[bob]", 0))
    assert chances == pytest.approx({"A": 0.7010, "B": 0.1415, "TIE": 0.1575}, abs=1e-4)
    fair = NoisyBradleyTerry(strengths=MARKERS, tie_rate=TIES)
    assert fair.chances(pair("[cat]", "[cat]", 0)) == pytest.approx(
        {"A": 0.4, "B": 0.4, "TIE": 0.2}
    )
    blind = NoisyBradleyTerry(strengths={"[ann]": 1.0, "": 0.0})  # the empty marker: everybody else
    assert blind.strength("[zoe]") == 0.0
    with pytest.raises(ValueError, match="holds none of the markers"):
        JUDGE.strength("[zoe]")


def log_odds(first: str, second: str, n: int = 4000) -> float:
    counts = Counter(JUDGE(pair(first, second, k)) for k in range(n))
    return math.log(counts["A"] / counts["B"])


def test_strengths_and_bias_are_recovered_from_the_verdicts():
    """Shown first, ann beats bob with odds exp(s + b); shown second, with odds exp(s - b). So s and b are half the
    difference and half the sum of the two log odds of the first place. Four standard errors are about 0.15."""
    for ours, theirs in (("[ann]", "[bob]"), ("[bob]", "[cat]"), ("[ann]", "[cat]")):
        first, second = log_odds(ours, theirs), log_odds(theirs, ours)
        assert (first - second) / 2 == pytest.approx(MARKERS[ours] - MARKERS[theirs], abs=0.15)
        assert (first + second) / 2 == pytest.approx(BIAS, abs=0.15)


def test_the_noisy_judge_answers_alike_in_every_order_and_batch():
    texts = [pair("[ann]", "[bob]", n).user for n in range(40)]
    told = {text: JUDGE(Shown.of(RUBRIC, text)) for text in texts}
    assert set(told.values()) == {"A", "B", "TIE"}
    for order in (texts, texts[::-1]):
        with served(verdicts=JUDGE) as (_, client):
            assert [verdict(result.message) for result in run(client, *map(params, order))] == [
                told[t] for t in order
            ]


# At hand


def test_it_runs_on_its_own():
    arguments = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.anthropic_server",
        "--polls-to-end",
        "1",
    ]
    arguments += ["--seconds-to-end", "0", "--verdicts", "length"]
    with subprocess.Popen(arguments, cwd=HOME, stdout=subprocess.PIPE, text=True) as program:
        try:
            url, command = program.stdout.readline().strip(), program.stdout.readline()
            assert f"judge=opus judge.base_url={url}\n" in command
            with anthropic.Anthropic(base_url=url, api_key="test-key", max_retries=0) as client:
                (result,) = run(client, params(shown_to_judge(a="Longer.", b="Short.")))
            assert verdict(result.message) == "A"
        finally:
            os.kill(program.pid, signal.SIGINT)
        summary, _ = program.communicate(timeout=10)
    assert program.returncode == 0
    assert json.loads(summary)["questions"] == 1
