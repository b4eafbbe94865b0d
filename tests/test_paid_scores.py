"""Scores that cost money: each is paid for once, over crashes and second runs, and each of two judges keeps to its cap.

Everything goes through the real clients to a real server on 127.0.0.1, which keeps the bill.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data.scoring import ScoreRubric
from elo_exp.judges.claude import ClaudeJudge
from elo_exp.records import Item, Score, UserError
from elo_exp.store.admin import Filter, count
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage
from tests import openai_server
from tests.anthropic_server import AnthropicServer, Status
from tests.anthropic_verdicts import Outcome, Says, StopReason, plain_text
from tests.data import shipped
from tests.stores import process

SCORE, INTERVAL = shipped("scoring", "score"), shipped("scoring", "interval")
SINGLE = "/v1/messages$"
MADE: list[ClaudeJudge] = []


@pytest.fixture(autouse=True)
def a_machine_with_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    openai_server.alone(monkeypatch, tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    yield
    for made in MADE:  # a client's sockets are the process's until it ends
        if (client := vars(made.api).get("_client")) is not None:
            client.close()
    MADE.clear()


def claude(url: str, name: str = "opus", **changes: Any) -> ClaudeJudge:
    """conf/judge/<name>.yaml, polling fast, with a cap that is not reached."""
    quick = {
        "poll_initial_seconds": 0.01,
        "poll_max_seconds": 0.02,
        "budget_usd": 50.0,
        "cache": "none",
    }
    MADE.append(shipped("judge", name, base_url=url, **{**quick, **changes}))
    return MADE[-1]


def items(n: int, rubric: ScoreRubric = SCORE) -> list[Item]:
    """Responses that say themselves what they are worth."""
    return [
        Item(
            prompt_id=f"p{number:02}",
            dimension=rubric.dimension,
            source="test",
            prompt_text=f"Why {number:02}?",
            entrant_id="ann",
            response_text=f"Because of {number % 11} out of ten.",
        )
        for number in range(n)
    ]


def worth(user: str) -> int:
    found = re.search(r"Because of (\d+) out of ten", user)
    assert found
    return int(found[1])


def model(params: Mapping[str, Any], _: int) -> Outcome:
    """What a judge says that believes the response; in JSON where it is held to a schema."""
    number = worth(plain_text(params["messages"][-1]["content"]))
    schema = ((params.get("output_config") or {}).get("format") or {}).get("schema")
    if schema is None:
        return Says(f"It says so itself.\nSCORE: {number}")
    interval = {"low": number, "high": 10}
    numbers = {"score": number, **interval}
    return Says(
        json.dumps(
            {
                name: numbers.get(name, "It says so itself.")
                for name in schema["required"]
            }
        )
    )


def score(
    made: Any, path: Path, n: int = 6, rubric: ScoreRubric = SCORE, **how: Any
) -> tuple[list[Score], Usage]:
    with Store(path) as store:
        return pipeline.score_responses(
            items(n, rubric), rubric, made, store, **how
        ), store.usage


def numbers(scores: list[Score]) -> list[float | None]:
    return [score.judge_score for score in scores]


TENTHS = [i / 10 for i in range(6)]


SCORING = """
import sys
from pathlib import Path
from tests.test_paid_scores import claude, score
score(claude(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_batch_that_was_under_way_when_the_process_was_killed_is_collected_and_not_paid_again(
    tmp_path: Path,
):
    path = tmp_path / "store.sqlite"
    with AnthropicServer(outcomes=model, polls_to_end=1_000_000) as server:
        with process(SCORING, server.url, path) as other:
            while (
                not any(batch.polls for batch in server.batches)
                and other.poll() is None
            ):
                time.sleep(0.01)
        server.polls_to_end = 1
        found, usage = score(claude(server.url), path)
        again, free = score(claude(server.url, budget_usd=0.0), path)
    assert numbers(found) == numbers(again) == TENTHS
    assert (usage.judge_calls, free.judge_calls) == (6, 0)
    assert list(server.meter.billed_bodies.values()) == [1] * 6
    assert len(server.batches) == 1


def test_messages_pay_each_score_once_over_a_run_that_was_broken_off(tmp_path: Path):
    path = tmp_path / "store.sqlite"
    with AnthropicServer(outcomes=model) as server:
        server.fault("POST", SINGLE, Status(402, "billing_error", message="No."), nth=4)
        with pytest.raises(UserError, match="Every answer so far is stored"):
            score(claude(server.url, transport="messages", concurrency=1), path)
        found, usage = score(claude(server.url, transport="messages"), path)
    assert numbers(found) == TENTHS
    assert usage.judge_calls == 3
    assert list(server.meter.billed_bodies.values()) == [1] * 6


@pytest.mark.parametrize("transport", ["batches", "messages"])
def test_an_interval_is_asked_for_by_its_schema_and_read_as_a_variance(
    tmp_path: Path, transport: str
):
    with AnthropicServer(outcomes=model) as server:
        found, _ = score(
            claude(server.url, transport=transport),
            tmp_path / "store.sqlite",
            6,
            INTERVAL,
        )
    assert numbers(found) == TENTHS
    assert [s.judge_score_variance for s in found] == pytest.approx(
        [((1 - x) / 3.92) ** 2 for x in TENTHS]
    )


def test_a_model_that_takes_no_schema_says_its_score_in_the_last_line(tmp_path: Path):
    with AnthropicServer(outcomes=model) as server:
        old = claude(server.url, "claude", model="claude-haiku-4-5", effort=None)
        found, _ = score(old, tmp_path / "store.sqlite")
    assert numbers(found) == TENTHS


@pytest.mark.parametrize("reason", ["refusal", "max_tokens"])
def test_what_a_judge_refuses_or_does_not_finish_is_paid_for_and_no_number(
    tmp_path: Path, reason: str, caplog: pytest.LogCaptureFixture
):
    def stopped(params: Mapping[str, Any], n: int) -> Outcome:
        third = worth(plain_text(params["messages"][-1]["content"])) == 3
        return StopReason(reason) if third else model(params, n)

    path = tmp_path / "store.sqlite"
    with AnthropicServer(outcomes=stopped, verdicts=["A"]) as server:
        found, _ = score(claude(server.url), path)
        _, again = score(claude(server.url, budget_usd=0.0), path)
    assert numbers(found) == [*TENTHS[:3], None, *TENTHS[4:]]
    assert found[3].stop_reason == reason
    assert f"1 of 6 replies hold no score (1 {reason})" in caplog.text
    assert again.judge_calls == 0


def test_judge_and_oracle_in_one_process_keep_their_own_caps_and_name_their_own_settings(
    tmp_path: Path,
):
    path = tmp_path / "store.sqlite"
    with AnthropicServer(outcomes=model, thinking_tokens=1000) as server:
        judge = claude(server.url, "haiku", transport="messages", budget_usd=2.0)
        oracle = claude(
            server.url,
            transport="messages",
            budget_usd=0.15,
            expected_output_tokens=1,
            concurrency=1,
        )
        oracle.budget_setting = "oracle.budget_usd"
        score(judge, path, 10)
        with pytest.raises(
            UserError,
            match=r"^oracle\.budget_usd: \$0\.\d\d of \$0\.15 are spent, and the next",
        ):
            score(oracle, path, 10)
        score(
            claude(server.url, "haiku", transport="messages", budget_usd=0.0), path, 10
        )
    with Store(path) as store:
        paid = {held.source: held for held in count(store, Filter(rubric="usefulness"))}
    assert paid["claude-haiku-5-5"].n == 10
    assert 0 < paid["claude-opus-5-5"].n < 10
    assert 0 < paid["claude-opus-5-5"].dollars <= 0.15


def test_a_plan_beyond_the_oracles_cap_is_refused_in_its_words(tmp_path: Path):
    with AnthropicServer(outcomes=model) as server:
        oracle = claude(server.url, budget_usd=0.01)
        oracle.budget_setting = "oracle.budget_usd"
        with pytest.raises(
            UserError,
            match=r"^oracle\.budget_usd: 6 scores by claude-opus-5-5 .* oracle\.n_prompts",
        ):
            score(oracle, tmp_path / "store.sqlite")
        with Store(tmp_path / "store.sqlite") as store:
            table = pipeline.plan_table(
                pipeline.plan_scores(items(6), SCORE, oracle, store)
            )
    assert "cap $0.01 (oracle.budget_usd)" in table
    assert server.meter.billed_bodies.total() == 0


def test_equal_texts_are_asked_once(tmp_path: Path):
    twice = [
        *items(3),
        *(dataclasses.replace(item, draw_idx=1, entrant_id="bob") for item in items(3)),
    ]
    with (
        AnthropicServer(outcomes=model) as server,
        Store(tmp_path / "store.sqlite") as store,
    ):
        found = pipeline.score_responses(twice, SCORE, claude(server.url), store)
    assert numbers(found) == TENTHS[:3] * 2
    assert {(s.policy, s.draw_idx) for s in found} == {("ann", 0), ("bob", 1)}
    assert server.meter.billed_bodies.total() == 3


@pytest.mark.parametrize("structured", ["json_schema", "none"])
def test_a_server_that_speaks_openai_scores_and_is_asked_once(
    tmp_path: Path, structured: str
):
    def completion(params: Mapping[str, Any], _: int) -> openai_server.Says:
        number = worth(params["messages"][-1]["content"])
        return openai_server.Says(json.dumps({"evidence": "", "score": number}))

    path = tmp_path / "store.sqlite"
    with openai_server.OpenAiServer(outcomes=completion) as server:
        made = shipped(
            "judge",
            "openai_compatible",
            base_url=server.url,
            model="large",
            structured=structured,
        )
        found, _ = score(made, path)
        _, again = score(made, path)
    assert numbers(found) == TENTHS
    assert again.judge_calls == 0
    assert list(server.billed.values()) == [1] * 6
    formats = {
        json.dumps(params.get("response_format", {}).get("json_schema", {}).get("name"))
        for params in server.asked
    }
    assert formats == {'"score"' if structured == "json_schema" else "null"}
