"""Gemini's batches: what is sent, what may come back, what it costs; and that nothing is paid twice.

The real SDK talks to a real server on 127.0.0.1 that keeps the bill. tests/test_faults.py kills it, and has it fail, at
every write and every call.
"""

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api.gemini_answers import (
    batch_in,
    message_in,
    page_in,
    parse_message,
    parse_result_rows,
    row_in,
)
from elo_exp.api.gemini_sdk import GeminiSdk
from elo_exp.api.transport import UnexpectedResponseError
from elo_exp.errors import UserError
from elo_exp.judges.gemini import GeminiJudge
from elo_exp.store.answer_store import Store
from elo_exp.store.ledger import Ledger
from tests.anthropic_verdicts import Canceled, Errored, Reshaped, StopReason, longer
from tests.batch_server import Fate
from tests.commands import QUICK, attempt, run
from tests.data import shipped
from tests.gemini_server import GeminiServer
from tests.http_server import AcceptThenReset, Status
from tests.openai_server import alone
from tests.paying import STORE, comparisons, judged, request, stored

CREATE, GET, LIST = ":batchGenerateContent$", "/batches/[^/:]+$", "/batches$"
N = 6  # comparisons: 12 queries


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("GEMINI_API_KEY", "test-key")


@pytest.fixture
def server() -> Iterator[GeminiServer]:
    with GeminiServer(verdicts=longer, polls_to_end=0) as running:
        yield running


def judge(url: str = "http://127.0.0.1:9", **changes: Any) -> GeminiJudge:
    """conf/judge/gemini.yaml, polling fast, with a cap that nothing here reaches."""
    given: dict[str, Any] = {
        "base_url": url,
        "budget_usd": 50.0,
        "chunk_size": 5,
        "poll_initial_seconds": 0.01,
        "poll_max_seconds": 0.02,
        "quarantine_seconds": 0.3,
        "timeout_seconds": 5.0,
        **changes,
    }
    made: GeminiJudge = shipped("judge", "gemini", **given)
    return made


def dollars(server: GeminiServer) -> float:
    """The server's bill at half of $1.50, $0.075 and $7.50 for a million tokens."""
    spent = server.meter.tokens_by_model["gemini-4-hydrogen", "batch"]
    return 0.5e-6 * (
        1.5 * spent["input_tokens"]
        + 0.075 * spent["cache_read_input_tokens"]
        + 7.5 * spent["output_tokens"]
    )


def paid_once(server: GeminiServer, n: int = 2 * N) -> None:
    """Each query was billed once; every answer is stored, at what it was billed; the same command sends nothing."""
    assert not server.meter.paid_twice
    assert server.meter.billed_bodies.total() == len(server.meter.billed_bodies) == n
    replies = stored(STORE)
    assert sum(reply["dollars"] for reply in replies) == pytest.approx(dollars(server))
    with Store(STORE) as store:
        assert {one.state for one in Ledger(store).batches()} <= {"settled", "abandoned"}  # fmt: skip
        [(charged,)] = store.query("SELECT SUM(dollars) FROM spending")
    assert charged == pytest.approx(dollars(server))
    n_posts = server.meter.posts()
    judged(judge(server.url), N)
    assert server.meter.posts() == n_posts


def test_a_batch_has_its_requests_inside_and_the_nonce_as_its_name(server):
    made = judge(server.url, temperature=0.5)
    judged(made, 1)
    [batch] = [one.submission for one in server.batches]
    first = batch["inputConfig"]["requests"]["requests"][0]
    asked = request(made, comparisons(1)[0])
    assert first["metadata"]["key"] == f"{batch['displayName']}-{asked.key}"
    sent = first["request"]
    assert sent["contents"] == [{"parts": [{"text": asked.user}], "role": "user"}]
    assert sent["systemInstruction"]["parts"] == [{"text": asked.system}]
    config = sent["generationConfig"]
    assert (config["maxOutputTokens"], config["temperature"]) == (2000, 0.5)
    assert config["responseMimeType"] == "application/json"
    assert list(config["responseJsonSchema"]["properties"]) == ["evidence_a", "evidence_b", "verdict"]  # fmt: skip
    [level] = config["thinkingConfig"].values()
    assert level.lower() == "low"


def test_thoughts_stand_beside_an_answer_and_are_billed_as_output(server):
    found, usage = judged(judge(server.url), N)
    assert {one.winner for one in found} == {"ann"}
    assert usage.output_tokens > 2 * N * server.thinking_tokens
    assert usage.dollars == pytest.approx(dollars(server), abs=1e-9)
    paid_once(server)


def test_single_answers_go_on_with_what_batches_have_left(server):
    judged(judge(server.url), 2)
    judged(judge(server.url, transport="messages"), N)
    assert server.meter.posts(":generateContent$") == 2 * (N - 2)
    assert not server.meter.paid_twice
    assert {*server.meter.billed_bodies.values()} == {1}


def test_a_batch_whose_answer_is_lost_is_found_by_its_name_in_shuffled_pages(server):
    server.fault("POST", CREATE, AcceptThenReset(), nth=3)
    server.fault("GET", LIST, Status(500), nth=1)
    judged(judge(server.url, chunk_size=3), N)
    paid_once(server)


def test_a_server_that_does_not_say_how_many_requests_a_batch_has(server):
    server.has_stats = False
    server.fault("POST", CREATE, AcceptThenReset(), nth=2)
    server.fates = {1: Fate(n_run=2)}
    judged(judge(server.url), N)
    paid_once(server)


FATES: Mapping[str, Fate] = {
    "expired": Fate(),
    "expired with results": Fate(n_run=2),
    "cancelled": Fate(unanswered=Canceled(), n_run=3),
    "no room": Fate(code="8"),
    "failed in a way that may pass": Fate(code="13"),
}


@pytest.mark.parametrize("name", FATES)
@pytest.mark.parametrize("nth", [1, 2])
def test_what_was_not_run_is_asked_again_and_the_rest_is_paid_once(server, name, nth):
    server.fates = {nth: FATES[name]}
    judged(judge(server.url), N)
    paid_once(server)


def test_six_refusals_in_a_row_for_want_of_room_are_answered_and_halved(server):
    server.fates = dict.fromkeys(range(1, 7), Fate(code="8"))
    judged(judge(server.url, chunk_size=12), N)
    assert [batch.n for batch in server.batches][:2] == [12, 6]
    paid_once(server)


def test_batches_that_are_cancelled_are_collected_and_the_rest_is_paid_once(server):
    """Half of each is answered until it ends; what was not run is then asked by the next run."""
    server.polls_to_end = 10**9
    made = judge(server.url)
    server.fault("GET", GET, Status(401), nth=None)
    with pytest.raises(UserError, match="refuses"):
        judged(made, N)
    server.faults.clear()
    with Store(STORE) as store:
        assert pipeline.cancel(made, store) == 3
        pipeline.collect(judge(server.url), store)
        assert pipeline.cancel(made, store) == 0
    assert server.meter.billed_bodies.total() == 5
    server.polls_to_end = 0
    judged(judge(server.url), N)
    paid_once(server)


def test_a_batch_that_is_invalid_ends_the_run_and_costs_nothing(server):
    server.fates = {1: Fate(code="3")}
    with pytest.raises(UserError, match=r"refuses the batch \(400\): .*\(code 3\)"):
        judged(judge(server.url, chunk_size=2 * N), N)
    assert server.meter.billed_bodies.total() == 0
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.parametrize("kind", ["timeout_error", "rate_limit_error", "api_error"])
def test_a_row_that_failed_in_a_way_that_may_pass_is_asked_again(server, kind):
    """The batch has then partially succeeded, a state that the SDK does not know as an end."""
    server.outcomes = lambda params, n: Errored(kind) if n == 1 else None
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.parametrize(("reason", "stored_as"), [("SAFETY", "refusal"), ("MAX_TOKENS", "max_tokens")])  # fmt: skip
def test_a_refusal_and_an_answer_that_is_cut_off_are_paid_stored_and_invalid(
    server, reason, stored_as
):
    server.outcomes = lambda params, n: StopReason(reason)
    found, _ = judged(judge(server.url), N)
    assert all(one.invalid for one in found)
    assert {reply["stop_reason"] for reply in stored(STORE)} == {stored_as}
    paid_once(server)


def test_an_answer_without_counts_is_held_at_its_most(server):
    server.counts_tokens = False
    _, usage = judged(judge(server.url), 1)
    assert usage.dollars == 0
    assert usage.dollars_at_most > dollars(server)


def test_a_row_without_an_answer_may_have_been_billed(server):
    spoil = Reshaped(lambda answer: {"usageMetadata": answer["usageMetadata"]})
    server.outcomes = lambda params, n: spoil if n == 1 else None
    _, usage = judged(judge(server.url), 1)
    assert usage.dollars < dollars(server) <= usage.dollars_at_most


def test_results_that_are_gone_are_one_line_and_nothing_is_paid_again(server):
    server.polls_to_end = 10**9
    server.fault("GET", GET, Status(403), nth=None)
    with pytest.raises(UserError, match="refuses"):
        judged(judge(server.url), N)
    server.faults.clear()
    server.polls_to_end = 0
    assert all(batch.ended_at for batch in server.batches)
    server.clock.advance(4 * 86_400)
    words = "(?s)only 0 of 5 results can be read.*store.action=repay"
    with pytest.raises(UserError, match=words):
        judged(judge(server.url), N)


def test_a_batch_of_more_than_18_mb_is_halved_before_it_is_sent(server, monkeypatch):
    monkeypatch.setattr("elo_exp.api.gemini._MAX_BATCH_BYTES", 60_000)
    judged(judge(server.url, chunk_size=2 * N), N)
    assert max(batch.n for batch in server.batches) < 2 * N
    paid_once(server)


@pytest.mark.parametrize(("status", "words"), [(401, "GEMINI_API_KEY"), (404, "judge.model")])  # fmt: skip
def test_a_server_that_refuses_the_key_or_the_model_is_one_line(server, status, words):
    server.fault("GET", "/models/", Status(status))
    with pytest.raises(UserError, match=rf"refuses \({status}\): .*{words}"):
        judged(judge(server.url), 1)
    assert server.meter.posts() == 0


def test_a_server_that_cannot_be_reached_is_one_line():
    with pytest.raises(UserError, match=r"cannot be reached .*Nothing was charged\."):
        judged(judge(), 1)


def test_a_key_that_is_not_set_and_a_model_without_prices_are_one_line(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY")
    with pytest.raises(
        UserError,
        match=r"^The judge needs a Gemini API key, and GEMINI_API_KEY is not set\. Nothing was sent",
    ):
        judged(judge(), 1)
    with pytest.raises(
        UserError, match='model must be a model whose prices are known; got "gemini-9"'
    ):
        judge(model="gemini-9")


# Answers of any shape


def batch(state: str = "BATCH_STATE_SUCCEEDED", **changes: Any) -> dict[str, Any]:
    return {"name": "batches/b", "metadata": {"state": state}, **changes}


def test_the_end_of_a_batch_is_read_from_the_name_of_its_state():
    ends = {
        "BATCH_STATE_SUCCEEDED": None,
        "BATCH_STATE_PARTIALLY_SUCCEEDED": "api_error",
        "JOB_STATE_CANCELLED": "canceled",
        "JOB_STATE_EXPIRED": "expired",
    }
    for state, rest in ends.items():
        found = batch_in(batch(state))
        assert (found.is_ended, found.missing_outcome, found.refusal) == (
            True,
            rest,
            None,
        )
    for state in ("BATCH_STATE_PENDING", "BATCH_STATE_RUNNING", "SOMETHING"):
        assert not batch_in(batch(state)).is_ended
    stats = {"batchStats": {"requestCount": "7"}, "displayName": "n"}
    named = batch(metadata={"state": "BATCH_STATE_SUCCEEDED", **stats})
    assert (batch_in(named).size, batch_in(named).nonce) == (7, "n")
    assert batch_in(named).n_rows == 7


def test_a_batch_that_failed_is_a_refusal_unless_that_may_pass():
    failed = "BATCH_STATE_FAILED"
    for code, status in ((8, 429), (3, 400), (7, 400)):
        found = batch_in(batch(failed, error={"code": code, "message": "No."}))
        assert found.refusal is not None and found.refusal.status == status
    found = batch_in(batch(failed, error={"code": 14}))
    assert (found.refusal, found.missing_outcome) == (None, "api_error")
    assert batch_in(batch(failed)).refusal is not None


def test_rows_are_read_from_wherever_they_stand():
    rows = {"inlinedResponses": {"inlinedResponses": [{"metadata": {"key": "k"}}]}}
    for found in (
        batch(response=rows),
        batch(response={"output": rows}),
        batch(metadata={"state": "BATCH_STATE_SUCCEEDED", "output": rows}),
    ):
        assert [row.custom_id for row in parse_result_rows(found)] == ["k"]
    assert parse_result_rows(batch()) == []


@pytest.mark.parametrize("odd", [None, [], "page", {}, {"name": 1}, {"name": "b"}])
def test_what_is_no_batch_is_said(odd):
    with pytest.raises(UnexpectedResponseError, match="something else than a batch"):
        batch_in(odd)


def test_no_batch_is_an_empty_list_and_a_page_s_error_is_none():
    assert page_in({}) == ([], None)
    for odd in (None, [], {"error": {"message": "No."}}):
        with pytest.raises(UnexpectedResponseError):
            page_in(odd)


@pytest.mark.parametrize(
    ("line", "outcome", "is_billed"),
    [
        ({"error": {"code": 4}}, "timeout_error", False),
        ({"error": {"code": 8}}, "rate_limit_error", False),
        ({"error": {"code": 3, "message": "bad"}}, "error 3", False),
        ({"response": {}}, "api_error", True),
        ({"response": None}, "api_error", True),
        ({"response": {"candidates": []}}, "api_error", True),
        ({"paused": {}}, None, False),
        (None, None, False),
    ],
)
def test_a_row_is_read_whatever_its_shape(line, outcome, is_billed):
    found = row_in(line and {"metadata": {"key": "x"}, **line})
    assert (found.outcome, found.possibly_billed) == (outcome, is_billed)
    assert found.message is None


def test_a_thought_is_no_part_of_an_answer():
    parts = [{"text": "Hm.", "thought": True}, {"text": "A"}, {"text": "!"}, {"x": 1}]
    answer = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    found = parse_message(message_in(answer))
    assert (found.text, found.stop_reason, found.usage) == ("A!", "end_turn", {})
    blocked = parse_message(message_in({"promptFeedback": {"blockReason": "OTHER"}}))
    assert (blocked.text, blocked.stop_reason) == ("", "refusal")


# The command


@pytest.mark.system
def test_the_command_plans_without_a_key_and_pays_once(server, tmp_path):
    words = (
        *("judge=gemini", f"judge.base_url={server.url}", "judging.limit_pairs=4"),
        *("judge.poll_initial_seconds=0.01", "judging.budget_usd=5", *QUICK),
        "rubric=[factuality]",
    )
    planned = run(*words, "plan=true", folder=tmp_path)
    assert "gemini-4-hydrogen" in planned.out
    assert server.meter.count("GET") == server.meter.posts() == 0
    missing = attempt(*words, folder=tmp_path, GEMINI_API_KEY="")
    assert missing.code == 2 and "GEMINI_API_KEY is not set" in missing.err
    key = {"GEMINI_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
    run(*words, folder=tmp_path, **key)
    assert {*server.meter.billed.values()} == {1}
    n_posts = server.meter.posts()
    run(*words, folder=tmp_path, **key)
    assert server.meter.posts() == n_posts


def test_the_package_is_asked_for_if_others_of_google_are_there(monkeypatch):
    """Some of them make the namespace `google`, in which `genai` is a name that cannot be imported."""
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.delitem(sys.modules, "google.genai", raising=False)
    with pytest.raises(
        UserError,
        match=r"google-genai, which is not installed\. Install it:\n  pip install 'elo-exp\[gemini\]'",
    ):
        GeminiSdk("http://localhost", lambda: "key", 1.0)
