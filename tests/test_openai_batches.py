"""OpenAI's form of batches: what is sent, what may come back, what it costs; and that nothing is paid twice.

The real SDK talks to a real server on 127.0.0.1 that keeps the bill. tests/test_faults.py kills it, and has it fail, at
every write and every call.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api.openai_batches import batch_in, row_in
from elo_exp.api.transport import UnexpectedResponseError
from elo_exp.errors import UserError
from elo_exp.judges.openai import OpenAiJudge
from elo_exp.store.answer_store import Store
from elo_exp.store.ledger import Ledger
from tests.anthropic_verdicts import Canceled, Errored, Reshaped, longer
from tests.batch_server import AlienRow, DupRow, Fate
from tests.commands import QUICK, attempt, run
from tests.data import shipped
from tests.http_server import AcceptThenReset, ResetBefore, Status, Truncate
from tests.openai_batch_server import OpenAiBatchServer, Zero
from tests.openai_server import alone
from tests.paying import RUBRIC, STORE, comparisons, judged, request, stored

UPLOAD, BATCHES, BATCH, CONTENT = "/files$", "/batches$", "/batches/[^/]+$", "/content$"
N = 6  # comparisons: 12 queries


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch, tmp_path) -> None:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")


@pytest.fixture
def server() -> Iterator[OpenAiBatchServer]:
    with OpenAiBatchServer(verdicts=longer, polls_to_end=0) as running:
        yield running


def judge(url: str, name: str = "openai", **changes: Any) -> OpenAiJudge:
    """conf/judge/<name>.yaml, polling fast, with a cap that nothing here reaches."""
    given: dict[str, Any] = {
        "base_url": url,
        "budget_usd": 50.0,
        "chunk_size": 5,
        "poll_initial_seconds": 0.01,
        "poll_max_seconds": 0.02,
        "quarantine_seconds": 0.3,
        "timeout_seconds": 5.0,
        **({} if name == "gpt" else {"model": "gpt-6.2-sol"}),
        **changes,
    }
    made: OpenAiJudge = shipped("judge", name, **given)
    return made


def paid_once(server: OpenAiBatchServer, n: int = 2 * N) -> None:
    """Each query was billed once; every answer is stored, at what it was billed; the same command sends nothing."""
    assert not server.meter.paid_twice
    assert server.meter.billed_bodies.total() == len(server.meter.billed_bodies) == n
    replies = stored(STORE)
    assert len(replies) == n
    assert sum(reply["dollars"] for reply in replies) == pytest.approx(dollars(server))
    with Store(STORE) as store:
        assert {one.state for one in Ledger(store).batches()} <= {
            "settled",
            "abandoned",
        }
        assert store.query("SELECT COUNT(*) FROM charges") == [(0,)]
        [(charged,)] = store.query("SELECT SUM(dollars) FROM spending")
    assert charged == pytest.approx(dollars(server))
    n_posts = server.meter.posts()
    judged(judge(server.url), N)
    assert server.meter.posts() == n_posts


def dollars(server: OpenAiBatchServer) -> float:
    """The server's bill, worked out from conf/judge/openai.yaml's prices."""
    prices = shipped("judge", "openai", model="gpt-6.2-sol").prices_of("gpt-6.2-sol")
    spent = server.meter.tokens_by_model["gpt-6.2-sol", "batch"]
    return 0.5e-6 * (
        spent["input_tokens"] * prices.input
        + spent["cache_creation_5m"] * prices.cache_write_5m
        + spent["cache_read_input_tokens"] * prices.cache_read
        + spent["output_tokens"] * prices.output
    )


# What is sent, and what it costs


def test_a_batch_is_a_file_of_requests_whose_metadata_hold_the_nonce(server):
    made = judge(server.url, extra_body={"reasoning_effort": "low"})
    judged(made, 1)
    [submission] = [one.submission for one in server.batches]
    [first, second] = map(json.loads, server.files["file-0"].splitlines())
    assert first["custom_id"].partition("-")[0] == submission["metadata"]["nonce"]
    assert first["custom_id"].partition("-")[2] == request(made, comparisons(1)[0]).key
    assert (first["method"], first["url"]) == ("POST", "/v1/chat/completions")
    body = made.params(request(made, comparisons(1)[0]), None)
    assert first["body"] == {
        **{name: value for name, value in body.items() if name != "extra_body"},
        "reasoning_effort": "low",
    }
    assert second["body"] != first["body"]


def test_what_it_costs_is_what_the_server_has_metered_at_half_price(server):
    """Reasoning counts as output; input is read from the cache, written to it, or neither."""
    found, usage = judged(judge(server.url), N)
    assert {one.winner for one in found} == {"ann"}
    spent = server.meter.tokens_by_model["gpt-6.2-sol", "batch"]
    assert spent["cache_creation_5m"] and spent["cache_read_input_tokens"]
    assert usage.dollars == pytest.approx(dollars(server), abs=1e-9)
    assert usage.cache_write_5m_tokens == spent["cache_creation_5m"]
    paid_once(server)


@pytest.mark.parametrize(("first", "then"), [("api", "openai"), ("openai", "api")])
def test_verdicts_of_openai_compatible_are_found_again_with_equal_settings(
    server, first, then
):
    same = {"model": "large", "max_tokens": 700, "base_url": server.url}
    named = {"max_tokens_name": "max_completion_tokens", "key_variable": "OPENAI_API_KEY"}  # fmt: skip
    prices = {"input": 1, "cached_input": 1, "cache_write": 1, "output": 1}
    models = {"large": {**prices, "batch_factor": 0.5}}
    judges = {
        "api": shipped(
            "judge",
            "openai_compatible",
            **(same | named),
            budget_usd=50.0,
            input_usd_per_million=1.0,
            cached_input_usd_per_million=1.0,
            output_usd_per_million=1.0,
        ),
        "openai": judge(server.url, **same, models=models),
    }
    table, _ = judged(judges[first], N)
    n_posts = server.meter.posts()
    assert n_posts
    again, usage = judged(judges[then], N)
    assert server.meter.posts() == n_posts
    assert usage.judge_calls == 0
    assert [one.winner for one in again] == [one.winner for one in table]


def test_a_judge_of_single_requests_leaves_alone_what_is_in_a_batch_under_way(server):
    """Its queries have the same keys: they are neither sent again nor waited for without an end."""
    server.polls_to_end = 10**9
    server.fault("GET", BATCH, Status(401), nth=None)
    made = judge(server.url)
    with pytest.raises(UserError, match="refuses"):
        judged(made, N)
    single = shipped(
        "judge",
        "openai_compatible",
        base_url=server.url,
        model=made.model,
        max_tokens=made.max_tokens,
        max_tokens_name=made.max_tokens_name,
        key_variable="OPENAI_API_KEY",
        budget_usd=50.0,
        input_usd_per_million=1.0,
        cached_input_usd_per_million=1.0,
        output_usd_per_million=1.0,
    )
    words = r"(?s)12 of these queries to .* are in batches under way.*store.action=wait judge=openai"
    with pytest.raises(UserError, match=words):
        judged(single, N)
    server.faults.clear()
    server.polls_to_end = 0
    judged(judge(server.url), N)
    paid_once(server)


def test_single_messages_go_on_with_what_batches_have_left(server):
    judged(judge(server.url), 2)
    judged(judge(server.url, transport="messages"), N)
    assert server.meter.posts("/chat/completions$") == 2 * (N - 2)
    assert not server.meter.paid_twice
    assert {*server.meter.billed_bodies.values()} == {1}


def test_a_model_whose_prices_are_not_known_is_refused():
    with pytest.raises(
        UserError,
        match='model must be a model whose prices are known; got "gpt-9".\n  Known: ',
    ):
        judge("http://127.0.0.1:9/v1", model="gpt-9")


def test_the_most_that_a_request_may_cost_has_all_of_it_written_to_the_cache():
    """Two bytes are a token, worked out by hand: a body of 200 bytes, and an answer of 10 tokens."""
    prices = judge("http://127.0.0.1:9/v1").prices_of("gpt-6.2-sol")
    body = {"x": "a" * (200 - len('{"x": ""}'))}
    most = prices.max_cost(body, 10, None, batched=True)
    assert most == pytest.approx(0.5e-6 * (100 * 2.5 + 10 * 10))


# Servers


def test_a_server_without_batches_is_one_line(server):
    server.takes_batches = False
    words = r"takes no batches \(404 for /batches\)\. Set judge.transport=messages"
    with pytest.raises(UserError, match=words):
        judged(judge(server.url), 1)
    assert server.meter.posts() == 0
    judged(judge(server.url, transport="messages"), 1)


def test_a_server_that_drops_the_metadata_is_warned_of_once_and_known_by_its_results(
    server, caplog
):
    server.repeats_metadata = False
    server.fault("POST", BATCHES, AcceptThenReset(), nth=2)
    judged(judge(server.url), N)
    paid_once(server)
    said = [one for one in caplog.messages if "does not repeat the metadata" in one]
    assert len(said) == 1


@pytest.mark.parametrize("host", ["api.together.xyz", "api.together.ai"])
def test_together_is_refused_in_batches_since_nothing_proves_whose_one_is(host):
    with pytest.raises(
        UserError, match=f"transport must be messages for {host}, .*; got batches"
    ):
        judge(f"https://{host}/v1", quarantine_seconds=900)
    judge(f"https://{host}/v1", quarantine_seconds=900, transport="messages")


def test_a_list_that_lags_behind_is_looked_through_until_the_quarantine_has_passed(
    server,
):
    server.lag_seconds = 0.2
    server.fault("POST", BATCHES, AcceptThenReset(), nth=2)
    judged(judge(server.url, quarantine_seconds=2.0), N)
    paid_once(server)


def test_the_quarantine_is_longer_than_a_submission_may_take():
    with pytest.raises(
        UserError, match="quarantine_seconds must be 660 or more; got 300"
    ):
        judge("https://api.openai.com/v1", quarantine_seconds=300, timeout_seconds=600)


def test_two_submissions_whose_answers_are_lost_are_told_apart_before_their_sizes_are_known(
    server,
):
    """While a file is looked through its batch has no size: what is not the one's may be the other's."""
    server.seconds_to_end = 0.2
    for nth in (1, 2):
        server.fault("POST", BATCHES, AcceptThenReset(), nth=nth)
    judged(judge(server.url), N)
    paid_once(server)


# Uploads, which begin nothing


UPLOADS: Mapping[str, Any] = {
    "reset": ResetBefore(),
    "reset after": AcceptThenReset(),
    "500": Status(500),
    "429": Status(429, headers={"retry-after": "0.02"}),
    "cut": Truncate(at_byte=3, how="clean"),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_that_goes_wrong_is_made_again(server, name):
    server.fault("POST", UPLOAD, UPLOADS[name], nth=2)
    judged(judge(server.url), N)
    paid_once(server)


def test_a_file_that_is_too_large_is_halved(server):
    server.max_bytes = 30_000
    judged(judge(server.url, chunk_size=12), N)
    assert max(batch.n for batch in server.batches) < 12
    paid_once(server)


@pytest.mark.parametrize("code", [401, 403])
def test_an_upload_that_is_refused_stops_the_run(server, code):
    server.fault("POST", UPLOAD, Status(code), nth=1)
    with pytest.raises(UserError, match=rf"refuses the batch \({code}\)"):
        judged(judge(server.url), N)
    judged(judge(server.url), N)
    paid_once(server)


# Batches that end early


FATES: Mapping[str, Fate] = {
    "expired": Fate(n_run=2),
    "expired before it began": Fate(),
    "expired, and silent": Fate(n_run=2, is_silent=True),
    "cancelled": Fate(unanswered=Canceled(), n_run=3),
    "cancelled, and silent": Fate(unanswered=Canceled(), n_run=3, is_silent=True),
}


@pytest.mark.parametrize("name", FATES)
@pytest.mark.parametrize("nth", [1, 2])
def test_what_was_not_run_is_asked_again_and_the_rest_is_paid_once(server, name, nth):
    """Such requests are counted nowhere: they lie in the error file, or in no file."""
    server.fates = {nth: FATES[name]}
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.parametrize("chunk", [12, 5])
def test_six_refusals_in_a_row_for_want_of_room_are_answered_and_halved(
    server, chunk, caplog
):
    """The server accepts a batch, and fails it later: it is halved where none of ours is under way, and else waits."""
    caplog.set_level(logging.INFO)
    limit = Fate(code="token_limit_exceeded")
    server.fates = dict.fromkeys(range(1, 7), limit)
    judged(judge(server.url, chunk_size=chunk), N)
    paid_once(server)
    sizes = [batch.n for batch in server.batches]
    assert min(sizes) == 1, sizes
    assert any("takes no batch of" in one for one in caplog.messages)


def test_a_batch_for_which_there_is_no_room_waits_until_one_of_ours_has_ended(
    server, caplog
):
    caplog.set_level(logging.INFO)
    server.polls_to_end = 4
    server.fates = {2: Fate(code="token_limit_exceeded")}
    judged(judge(server.url), N)
    paid_once(server)
    assert [batch.n for batch in server.batches] == [5, 5, 2, 5]
    assert any("has no room for 5 requests yet" in one for one in caplog.messages)


def test_a_single_request_for_which_there_is_never_room_ends_the_run(server):
    server.fates = dict.fromkeys(range(1, 99), Fate(code="token_limit_exceeded"))
    with pytest.raises(
        UserError, match=r"no room for a single request \(Enqueued token"
    ):
        judged(judge(server.url), N)
    server.fates = {}
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("invalid_json_line", r"refuses the batch \(400\): "),
        ("billing_hard_limit_reached", r"has no money or quota left \("),
    ],
)
def test_a_batch_that_fails_for_another_reason_ends_the_run_and_costs_nothing(
    server, code, words
):
    server.fates = {1: Fate(code=code)}
    with pytest.raises(UserError, match=rf"{words}.*\({code}\)"):
        judged(judge(server.url, chunk_size=2 * N), N)
    assert server.meter.billed_bodies.total() == 0
    judged(judge(server.url), N)
    paid_once(server)


def test_batches_that_are_cancelled_are_collected_and_the_rest_is_paid_once(server):
    """Half of each is answered until it ends; what was not run is then asked by the next run."""
    server.polls_to_end = 10**9
    made = judge(server.url)
    server.fault("GET", BATCH, Status(401), nth=None)
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


# Rows


ROWS: Mapping[str, Any] = {
    "400": Errored("invalid_request_error", "too long"),
    "429": Errored("rate_limit_exceeded"),
    "500": Errored("server_error"),
    "no status": Zero(),
}


@pytest.mark.parametrize("name", ["429", "500", "no status"])
def test_a_row_that_failed_in_a_way_that_may_pass_is_asked_again(server, name):
    server.outcomes = lambda params, n: ROWS[name] if n == 1 else None
    judged(judge(server.url), N)
    paid_once(server)


def test_a_row_that_is_invalid_is_left_out(server):
    server.outcomes = lambda params, n: (
        ROWS["400"] if "Why 001?" in params["messages"][1]["content"] else None
    )
    wanted = {"factuality": comparisons(3)}
    with Store(STORE) as store:
        asking = pipeline.JudgingSettings(allow_missing=True)
        found = pipeline.judge_pairs(wanted, [RUBRIC], judge(server.url), store, asking)
    assert [one.prompt_id for one in found["factuality"]] == ["p000", "p002"]
    assert server.meter.billed_bodies.total() == 4


def test_a_row_with_status_200_and_no_choices_may_have_been_billed(server):
    """It is asked again, and counted at the most that it may have cost."""
    spoil = Reshaped(lambda completion: {**completion, "choices": None})
    server.outcomes = lambda params, n: spoil if n == 1 else None
    _, usage = judged(judge(server.url), 1)
    assert server.meter.billed_bodies.total() == 4
    assert usage.dollars < dollars(server) <= usage.dollars_at_most
    with Store(STORE) as store:
        [(charged,)] = store.query("SELECT SUM(dollars) FROM spending")
    assert charged >= dollars(server)


@pytest.mark.parametrize("fault", [DupRow(), AlienRow()])
def test_a_row_that_comes_twice_or_is_another_s_is_ignored(server, fault):
    server.fault("GET", CONTENT, fault, nth=1)
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.parametrize("how", ["clean", "rst", "eof"])
@pytest.mark.parametrize("nth", [1, 2], ids=["output", "errors"])
def test_a_file_that_is_cut_short_is_read_again(server, how, nth):
    """Of a batch that has expired, whose error file says less than its output file."""
    server.fates = {1: Fate(n_run=3)}
    for byte in (0, 1, 200, 800):
        server.fault("GET", CONTENT, Truncate(at_byte=byte, how=how), nth=nth)
    judged(judge(server.url), N)
    paid_once(server)


@pytest.mark.system
def test_files_that_are_gone_are_one_line_and_nothing_is_paid_again(server):
    server.fault("GET", CONTENT, Status(404), nth=None)
    words = "(?s)only 0 of 5 results can be read.*It submits nothing again.*store.action=repay"
    for _ in range(2):
        with pytest.raises(UserError, match=words):
            judged(judge(server.url), N)
    server.faults.clear()
    judged(judge(server.url), N)
    paid_once(server)


# Answers of any shape


def batch(**changes: Any) -> dict[str, Any]:
    counts = {"total": 8, "completed": 4, "failed": 0}
    known = {"id": "b", "status": "cancelled", "created_at": 1, "request_counts": counts}  # fmt: skip
    return {**known, **changes}


def test_a_batch_that_was_cancelled_counts_what_was_run_alone():
    found = batch_in(batch(expires_at=86_401, metadata={"nonce": "n"}))
    assert (found.size, found.n_rows, found.missing_outcome) == (8, 4, "canceled")
    assert (found.is_ended, found.nonce, found.lifetime_seconds) == (True, "n", 86_400)
    assert batch_in(batch(status="completed")).n_rows == 8
    assert batch_in(batch(status="mystery")).is_ended is False
    looked_through = {"total": 0, "completed": 0, "failed": 0}
    assert batch_in(batch(status="validating", request_counts=looked_through)).size is None  # fmt: skip


def test_a_batch_that_failed_is_a_refusal_that_came_late():
    errors = {"data": [{"code": "token_limit_exceeded", "message": "Full."}]}
    none = {"total": 0, "completed": 0, "failed": 0}
    found = batch_in(batch(status="failed", errors=errors, request_counts=none))
    assert found.refusal is not None
    assert (str(found.refusal), found.refusal.status) == ("Full. (token_limit_exceeded)", 429)  # fmt: skip
    for odd in (None, {}, {"data": []}, {"data": [{}]}, "x"):
        found = batch_in(batch(status="failed", errors=odd, request_counts=none))
        assert found.refusal is not None and found.refusal.status == 400


@pytest.mark.parametrize(
    "odd", [None, [], "page", {}, {"id": 1}, batch(status=None), batch(created_at="x")]
)
def test_what_is_no_batch_is_said(odd):
    with pytest.raises(UnexpectedResponseError, match="something else than a batch"):
        batch_in(odd)


@pytest.mark.parametrize(
    ("line", "outcome", "is_billed"),
    [
        ({"response": {"status_code": 200, "body": {"choices": None}}}, "api_error", True),
        ({"response": {"status_code": 200, "body": None}}, "api_error", True),
        ({"response": {"status_code": 0, "body": None}}, "api_error", False),
        ({"response": None, "error": {"code": "batch_expired"}}, "expired", False),
        ({"response": None, "error": {"code": "batch_cancelled"}}, "canceled", False),
        ({"response": {"status_code": 429, "body": {"error": {"code": "rate_limit_exceeded"}}}}, "rate_limit_error", False),
        ({"response": {"status_code": 400, "body": {"error": {"code": None, "type": "bad"}}}}, "bad", False),
        ({"response": {"status_code": 400, "body": "nginx"}}, "api_error", False),
        ({"kind": "paused"}, None, False),
        (None, None, False),
    ],
)  # fmt: skip
def test_a_row_is_read_whatever_its_shape(line, outcome, is_billed):
    found = row_in(line and {"custom_id": "x", **line})
    assert (found.outcome, found.possibly_billed) == (outcome, is_billed)
    assert found.message is None


# The command


@pytest.mark.system
def test_the_command_plans_without_a_key_at_batch_price_and_pays_once(server, tmp_path):
    words = (
        *("judge=gpt", f"judge.base_url={server.url}", "judging.limit_pairs=4"),
        *("judge.poll_initial_seconds=0.01", "judging.budget_usd=5", *QUICK),
        "rubric=[factuality]",
    )
    planned = run(*words, "plan=true", folder=tmp_path)
    assert "gpt-6.2-sol" in planned.out
    assert server.meter.count("GET") == server.meter.posts() == 0
    missing = attempt(*words, folder=tmp_path, OPENAI_API_KEY="")
    assert missing.code == 2 and "OPENAI_API_KEY is not set" in missing.err
    key = {"OPENAI_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
    run(*words, folder=tmp_path, **key)
    assert {*server.meter.billed.values()} == {1}
    n_posts = server.meter.posts()
    run(*words, folder=tmp_path, **key)
    assert server.meter.posts() == n_posts
    at = ("judge=gpt", f"judge.base_url={server.url}")
    waited = run("experiment=store", "store.action=wait", *at, folder=tmp_path, **key)
    assert "no open batches" in waited.out
