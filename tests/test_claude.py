"""Claude as judge, in this process: what it is sent, what its verdict depends on, what it costs, what it refuses.

Where something is sent, it goes through the real SDK to a real server on 127.0.0.1, which keeps the bill. What a
rubric shows and reads is in tests/test_rubrics.py; lost answers, kills and caps are in tests/test_faults.py.
"""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from elo_exp import progress
from elo_exp.api import anthropic as anthropic_api
from elo_exp.api import batches
from elo_exp.api.anthropic import check_lifetime, read_text
from elo_exp.api.jobs import max_cost
from elo_exp.api.transport import Clock
from elo_exp.data.rubrics import Rubric
from elo_exp.errors import UserError
from elo_exp.judges.claude import ClaudeJudge
from elo_exp.pipeline.planning import estimate_cost
from elo_exp.records import JudgeRequest, Judgment
from elo_exp.store import processes
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import LOW_BALANCE, Reshaped, longer, tokens
from tests.data import COMPARISON, DIMENSIONS, shipped
from tests.http_server import Call, Instead, ResetBefore, SlowBody, Stage, Status
from tests.paying import (
    BATCH,
    BATCHES,
    RUBRIC,
    SINGLE,
    STORE,
    claude,
    comparisons,
    judged,
    paying,
    request,
    stored,
)

__all__ = ["paying"]
pytestmark = pytest.mark.usefixtures("paying")

RUBRICS = [shipped("rubric", dimension) for dimension in DIMENSIONS]
MODELS = dict(claude().models)
OPUS_ID = "claude-opus-5-5"
OPUS = MODELS[OPUS_ID]
both_transports = pytest.mark.parametrize("transport", ["batches", "messages"])


def requests(made: ClaudeJudge, n: int, rubric: Rubric = RUBRIC) -> list[JudgeRequest]:
    """Both orders of so many comparisons: 2n queries."""
    some = comparisons(n, dimension=rubric.dimension)
    orders = itertools.product(some, (False, True))
    return [request(made, one, rubric, swap=swap) for one, swap in orders]


def asked(server: AnthropicServer) -> list[Mapping[str, Any]]:
    """The parameters of every request that the server was sent to answer."""
    calls = [call for call in server.meter.calls if call.method == "POST"]
    sent = [c.json()["requests"] for c in calls if re.search(BATCHES, c.path)]
    batched = [each["params"] for each in itertools.chain.from_iterable(sent)]
    return batched + [c.json() for c in calls if re.search(SINGLE, c.path)]


def most(made: ClaudeJudge, one: JudgeRequest, ttl: str | None = None) -> float:
    """The most that a request may cost."""
    is_batched = made.transport == "batches"
    return max_cost(made, made.params(one, ttl), ttl, batched=is_batched)


# What is sent


def test_the_message_of_a_request_is_this(tmp_path):
    """Byte for byte. The id is the start of the SHA-256 of ["Why?","No.","Yes."], what is shown in this order. What is
    generated first cannot be made up to fit: the evidence comes before the verdict."""
    header, text = tmp_path / "header.md", tmp_path / "rubric.md"
    header.write_text("# version: v1\n\nJudge well.\n", encoding="utf-8")
    text.write_text("\n# version: v3\n\nTruth wins.\n\n", encoding="utf-8")
    tiny = shipped("rubric", "factuality", path=str(text), system_path=str(header))
    made = claude()
    shown = dataclasses.replace(COMPARISON, gold_answer="Sure.")
    sent = made.params(request(made, shown, tiny, swap=True), "1h")
    user = """\
<question>
Why?
</question>

<reference_answer>
Sure.
</reference_answer>

<response_a id="8472d26cc870792c">
No.
</response_a id="8472d26cc870792c">

<response_b id="8472d26cc870792c">
Yes.
</response_b id="8472d26cc870792c">

The question once more:

<question>
Why?
</question>

Compare response A with response B on the one dimension that the rubric defines, and on nothing else. Reply with the
JSON object alone: "evidence_a", "evidence_b", "verdict".
"""
    schema = sent["output_config"]["format"].pop("schema")
    assert list(schema["properties"]) == ["evidence_a", "evidence_b", "verdict"]
    assert sent == {
        "model": "claude-opus-5-5",
        "max_tokens": 2000,
        "system": [
            {
                "type": "text",
                "text": "# version: v1\n\nJudge well.\n\n# version: v3\n\nTruth wins.\n",
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            }
        ],
        "messages": [{"role": "user", "content": user}],
        "output_config": {"effort": "low", "format": {"type": "json_schema"}},
    }


@pytest.mark.parametrize(
    ("model", "transport"),
    [*((model, "batches") for model in MODELS), ("claude-opus-5-5", "messages")],
)
def test_every_model_takes_what_it_is_sent(model, transport):
    """The server refuses, as new models do, sampling parameters, prefill, tools and whatever else it does not know.
    Every call pins the version of the API."""
    with AnthropicServer(verdicts=longer) as server:
        made = claude(server.url, model=model, transport=transport)
        verdicts, _ = judged(made, 1)
    assert [judgment.winner for judgment in verdicts] == ["ann"]
    assert len(asked(server)) == 2
    versions = {call.headers["anthropic-version"] for call in server.meter.calls}
    assert versions == {"2026-10-21"}
    has_format = ["output_config" in params for params in asked(server)]
    assert has_format == [model != "claude-haiku-4-5"] * 2


# What it says


def test_the_text_of_a_message_is_its_text_blocks():
    thinking = {"type": "thinking", "thinking": "VERDICT: B", "signature": "x"}
    one, two = {"type": "text", "text": '{"a":'}, {"type": "text", "text": " 1}"}
    assert read_text({"content": [thinking, one, two]}) == '{"a": 1}'
    for content in ([thinking], [], None, ["VERDICT: A"], [{"type": "text"}]):
        assert read_text({"content": content}) == ""


# What it refuses to be told

MISTAKES: list[tuple[Mapping[str, Any], str]] = [
    ({"quarantine_seconds": 60.0}, "quarantine_seconds must be 360 or more; got 60.0."),
    (
        {"model": "claude-haiku-4-5", "effort": "low"},
        'effort must be null for claude-haiku-4-5, which has no effort levels; got "low".',
    ),
    (
        {"model": "claude-opus-9"},
        'model must be a model whose prices are known; got "claude-opus-9".',
    ),
    (
        {"base_url": "http://ann:hush@host"},
        "base_url must be http(s)://HOST, without a name or password in it.",
    ),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES)
def test_a_setting_out_of_range_is_named_with_what_was_found_and_expected(
    changes, words
):
    with pytest.raises(UserError) as refusal:
        claude(**changes)
    assert words in str(refusal.value)
    assert "hush" not in str(refusal.value)


def test_without_a_key_or_a_budget_nobody_is_asked(monkeypatch):
    with AnthropicServer() as server:
        with pytest.raises(
            UserError,
            match=r"^judging.budget_usd must be above 0 .*, as claude-.* costs money; got 0\.",
        ):
            claude(server.url, budget_usd=0.0).preflight()
        monkeypatch.setenv("ANTHROPIC_API_KEY", "")  # set to nothing is not set
        with pytest.raises(
            UserError,
            match=r"^The judge needs an Anthropic API key, and ANTHROPIC_API_KEY is not set\. Nothing was sent",
        ):
            claude(server.url).preflight()
        assert server.meter.calls == []


# Models that go


def test_a_retired_model_is_refused_and_a_deprecated_one_warned_of_once(caplog):
    """The server's list of models says it, also of batches, in which the SDK warns of nothing."""
    check_lifetime.cache_clear()
    with AnthropicServer() as server:
        kept = {"id": OPUS_ID, "type": "model", "lifecycle": "retired"}
        server.fault("GET", "/v1/models/", Instead(json.dumps(kept).encode()))
        with pytest.raises(
            UserError,
            match=f"^judge.model must be a model that the server still has; {OPUS_ID} was retired",
        ):
            judged(claude(server.url, model=OPUS_ID), 1)
        assert server.meter.posts(f"{SINGLE}|{BATCHES}") == 0
        kept |= {"lifecycle": "deprecated", "retires_at": "2999-11-30T09:00:00Z"}
        server.fault("GET", "/v1/models/", Instead(json.dumps(kept).encode()), nth=None)
        for n in (1, 2, 3):
            judged(claude(server.url, model=OPUS_ID), n)
    line = f"warning: judge.model: {OPUS_ID} retires on 2999-11-30"
    assert [
        text.partition(". ")[0] for text in caplog.messages if "retires" in text
    ] == [line]


# What it costs

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 500,
    "cache_creation": {
        "ephemeral_5m_input_tokens": 200,
        "ephemeral_1h_input_tokens": 300,
    },
    "cache_read_input_tokens": 4000,
    "output_tokens": 50,
}
ODD_USAGE: list[tuple[Any, dict[str, int]]] = [
    (
        USAGE,
        {
            "input_tokens": 100,
            "cache_write_5m_tokens": 200,
            "cache_write_1h_tokens": 300,
            "cache_read_tokens": 4000,
            "output_tokens": 50,
        },
    ),
    # writes of a server that does not tell them apart are five-minute ones
    ({"cache_creation_input_tokens": 500}, {"cache_write_5m_tokens": 500}),
    (None, {}),
    ({**dict.fromkeys(USAGE, "9"), "cache_creation": "none"}, {}),
]


@pytest.mark.parametrize(("usage", "counts"), ODD_USAGE)
def test_tokens_are_counted_by_class_and_what_is_no_count_is_none(usage, counts):
    completion = claude().parse(
        {"content": [], "stop_reason": "end_turn", "usage": usage}
    )
    assert {name: n for name, n in completion.usage.items() if n} == counts


# The plan


@pytest.mark.parametrize(
    ("cache", "transport", "factor", "prefix_price"),
    [  # at $4 a million: a hit costs $.2, and 70% are expected; writes cost $8 or $5
        ("measured", "batches", 0.5, 0.7 * 0.2 + 0.3 * 8),
        ("measured", "messages", 1.0, 0.7 * 0.2 + 0.3 * 5),
        ("5m", "batches", 0.5, 0.7 * 0.2 + 0.3 * 5),
        ("none", "messages", 1.0, 4),
    ],
)
def test_the_plan_without_a_key_counts_characters_and_the_cache_at_the_expected_hit_rate(
    cache,
    transport,
    factor,
    prefix_price,
    monkeypatch,
):
    """Three characters a token is on the safe side: less than English needs."""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    made = claude(cache=cache, transport=transport)
    some = requests(made, 2)
    prefix = sum(len(one.system) / 3 for one in some)
    user, output = sum(len(one.user) / 3 for one in some), 4 * 550
    found = estimate_cost(some, made)
    assert (found["counted"], found["output_tokens"]) == (0, output)
    assert found["input_tokens"] == round(prefix + user)
    rest = user * 4 + output * 20
    dollars = (prefix * prefix_price + rest) * 1e-6 * factor
    assert found["dollars"] == pytest.approx(dollars)
    plain = (prefix * 4 + rest) * 1e-6
    assert found["dollars_plain"] == pytest.approx(plain)
    assert plain > sum(tokens(len(one.system + one.user)) for one in some) * 4e-6


def test_what_is_reserved_for_one_request_is_not_guessed_from_how_dense_others_are():
    dense = dataclasses.replace(COMPARISON, response_a="\u836f" * 30_000)
    made = claude(cache="1h")
    assert most(made, request(made, dense)) >= 30_000 * 4 * 1e-6 * 0.5


# Single messages


def test_messages_warm_the_cache_with_one_of_each_rubric_before_any_other():
    """Two first; what is sent after them waits until both are answered."""
    stages: list[Stage] = []

    def watch(stage: Stage, call: Call) -> None:
        if re.search(SINGLE, call.path) and stage != "answered":
            stages.append(stage)

    with AnthropicServer(verdicts=longer, on_call=watch) as server:
        made = claude(server.url, transport="messages", concurrency=3)
        judged(made, 5, rubrics=RUBRICS[:2])
    assert sorted(stages[:4]) == ["accepted"] * 2 + ["before"] * 2
    assert len({params["system"][0]["text"] for params in asked(server)[:2]}) == 2


# Login pages, gateways, and servers that count nothing

ODD = [
    b"<html>Log in first</html>",
    b'{"type": "error", "error": {"message": "No."}}',
]
each_odd = pytest.mark.parametrize("content", ODD, ids=lambda content: content[:8])
ASKED = {
    "the list of batches": ("GET", BATCHES),
    "a poll": ("GET", BATCH),
    "the results": ("GET", "/results$"),
    "a submission": ("POST", BATCHES),
    "a message": ("POST", SINGLE),
}


@each_odd
@pytest.mark.parametrize(("method", "path"), ASKED.values(), ids=list(ASKED))
def test_what_is_no_answer_ends_the_run_or_is_waited_for_and_nothing_paid_twice(
    method, path, content
):
    """A page ends the run, unless it came in place of a file of results."""
    transport = "messages" if path == SINGLE else "batches"
    is_page = content.startswith(b"<") and path != "/results$"
    ends = pytest.raises(UserError, match="answered with a web page")
    with AnthropicServer(verdicts=longer) as server:
        server.fault(method, path, Instead(content))
        made = claude(server.url, transport=transport, quarantine_seconds=0.1)
        with ends if is_page else nullcontext():
            judgments, _ = judged(made, 1)
        if is_page:
            judgments, _ = judged(made, 1)
    assert [judgment.winner for judgment in judgments] == ["ann"]
    assert set(server.meter.billed_bodies.values()) == {1}


def judged_while_lost(*nths: int) -> tuple[AnthropicServer, list[Judgment]]:
    """Two queries in batches of one, of which these submissions do not arrive."""
    with AnthropicServer(verdicts=longer) as server:
        for nth in nths:
            server.fault("POST", BATCHES, ResetBefore(), nth=nth)
        made = claude(server.url, cache="none", chunk_size=1, quarantine_seconds=0.03)
        return server, judged(made, 1)[0]


def test_submissions_that_are_lost_but_not_in_a_row_do_not_stop_a_run():
    """Four do not arrive, one does; four do not, one does."""
    server, (judgment,) = judged_while_lost(1, 2, 3, 4, 6, 7, 8, 9)
    assert judgment.winner == "ann"
    assert server.meter.posts(BATCHES) == 10
    assert set(server.meter.billed_bodies.values()) == {1}


def test_the_fifth_submission_in_a_row_that_is_lost_stops_a_run():
    with pytest.raises(
        UserError,
        match=r"^5 submissions in a row to .* got no answer and did not arrive\.",
    ):
        judged_while_lost(1, 2, 3, 4, 5)


@each_odd
def test_the_preflight_notices_what_is_no_such_server_and_a_plan_estimates_there(
    content, caplog
):
    words = r"^http.* cannot be reached \((it answered with something else than a model|http.* with a web page)"
    with AnthropicServer() as server:
        server.fault("GET", "/v1/models/", Instead(content), nth=None)
        server.fault("POST", "/count_tokens$", Instead(content), nth=None)
        made = claude(server.url)
        with pytest.raises(UserError, match=words):
            judged(made, 1)
        assert estimate_cost(requests(made, 1), made)["counted"] == 0
    assert server.meter.posts(f"{SINGLE}|{BATCHES}") == 0
    assert re.search(
        r"does not count tokens now \((it answered with something else|http.* with a web page)",
        caplog.text,
    )


HOPELESS = {
    r"asks to wait for 1440 minutes \(Refused by the": Status(
        429, headers={"retry-after": "86400"}
    ),
    r"has no money or quota left \(Your credit balance is too low": Status(
        429, message=LOW_BALANCE.message
    ),
}


@pytest.mark.parametrize(
    ("transport", "path"), [("batches", BATCHES), ("messages", SINGLE)]
)
@pytest.mark.parametrize(("words", "refusal"), HOPELESS.items())
def test_a_429_that_does_not_pass_today_ends_the_run(words, refusal, transport, path):
    with AnthropicServer(verdicts=longer) as server:
        server.fault("POST", path, refusal, nth=None)
        with pytest.raises(
            UserError, match=f"[Tt]he judge's API .*{words}.*run the same command again"
        ):
            judged(claude(server.url, transport=transport), 1)
    assert server.meter.posts(path) <= 2
    assert server.meter.billed_bodies.total() == 0


def test_refusals_are_said_and_those_of_every_second_request_are_waited_for(
    monkeypatch, caplog
):
    monkeypatch.setattr(progress, "_last_note_time", [-math.inf])
    caplog.set_level("INFO")
    wait = {"retry-after-ms": "1"}
    with AnthropicServer(verdicts=longer) as server:
        for nth in range(1, 30, 2):
            server.fault("POST", SINGLE, Status(429, headers=wait), nth=nth)
        made = claude(server.url, transport="messages", cache="none", concurrency=4)
        assert judged(made, 20)[1].judge_calls == 40
    assert re.search(
        r"gave no answer once \(429: Refused by the .*\); one request asks again in 0 s",
        caplog.text,
    )


Change = Callable[[Any], Any]


SILENT: dict[str, Change] = {
    "without usage": lambda message: {**message, "usage": None},
    "without the tokens out": lambda message: {**message, "usage": {"input_tokens": 7}},
}


@pytest.mark.parametrize(
    ("change", "transport"),
    list(zip(SILENT.values(), ["messages", "batches"], strict=True)),
    ids=list(SILENT),
)
def test_what_does_not_say_what_it_took_is_held_against_the_cap_at_its_most(
    change, transport, caplog
):
    """There is room for seven answers, and an eighth might pass the cap."""
    with AnthropicServer(outcomes=lambda params, n: Reshaped(change)) as server:
        made = claude(
            server.url,
            transport=transport,
            cache="none",
            chunk_size=3,
            expected_output_tokens=1,
        )
        made.budget.cap = 7.5 * most(made, requests(made, 1)[0])
        with pytest.raises(
            UserError, match=r"^judging\.budget_usd is too low .*: \$0\.000\d+ of"
        ):
            judged(made, 10)
    assert len(stored(STORE)) == server.meter.billed_bodies.total() == 7
    assert caplog.text.count("the judge's API does not say how many tokens") == 1


# Time, and death


@pytest.mark.system
@both_transports
def test_an_answer_that_drips_is_given_up(transport, monkeypatch):
    """Each byte comes in time, and all of them would take minutes."""
    monkeypatch.setattr(anthropic_api, "_TIMEOUT_SECONDS", 0.5)
    drip = SlowBody(pause=0.1, piece=1)
    with AnthropicServer(verdicts=longer) as server:
        for method, path in (("POST", SINGLE), ("GET", BATCH), ("GET", "/results$")):
            server.fault(method, path, drip)
        judgments, _ = judged(claude(server.url, transport=transport), 1)
    assert [judgment.winner for judgment in judgments] == ["ann"]


def test_a_batch_that_is_watched_past_its_expiry_is_given_up_on(
    monkeypatch,
):
    """By the time that has passed here, and the days that the server gives it. Nobody is advised to pay again."""
    hours = [0]

    class Hours(Clock):
        def elapsed(self) -> float:  # type: ignore[override]
            return 3600.0 * hours[0]

        def sleep(self, seconds: float) -> None:  # type: ignore[override]
            hours[0] += 1

    monkeypatch.setattr(batches, "Clock", Hours)
    words = "has not ended, though it should have expired"
    server = AnthropicServer(verdicts=longer, polls_to_end=10**6)
    with server, pytest.raises(UserError, match=words) as error:
        judged(claude(server.url), 1)
    assert "repay" not in str(error.value)
    assert 25 <= hours[0] <= 27


@both_transports
def test_a_job_whose_sweep_has_died_pays_for_nothing(transport, monkeypatch):
    monkeypatch.setattr(processes, "is_alive", lambda *process: False)
    monkeypatch.setenv(processes._SWEEP_PROCESS_VARIABLE, '["here", "now", 1, "1"]')
    with AnthropicServer(verdicts=longer) as server:
        with pytest.raises(UserError, match="The sweep that started this job has end"):
            judged(claude(server.url, transport=transport), 1)
        assert server.meter.posts(f"{SINGLE}|{BATCHES}") == 0
