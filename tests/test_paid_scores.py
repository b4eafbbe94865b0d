"""Scores that cost money: each is paid for once, over crashes and second runs, and each of two judges keeps to its cap.

Everything goes through the real clients to a real server on 127.0.0.1, which keeps the bill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data.scoring import ScoreRubric
from elo_exp.records import Item
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from tests import openai_server
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Outcome, Says, plain_text
from tests.data import shipped
from tests.paying import claude, paying

__all__ = ["paying"]

SCORE, INTERVAL = shipped("scoring", "score"), shipped("scoring", "interval")
TENTHS = [i / 10 for i in range(6)]
STORE = Path("store.sqlite")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path, paying) -> None:
    openai_server.alone(monkeypatch, tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


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
    made: Any, n: int = 6, rubric: ScoreRubric = SCORE
) -> tuple[list[float | None], Usage]:
    with Store(STORE) as store:
        scores = pipeline.score_responses(items(n, rubric), rubric, made, store)
        return [score.judge_score for score in scores], store.usage


@pytest.mark.parametrize("transport", ["batches", "messages"])
def test_an_interval_is_asked_for_by_its_schema_and_read_as_a_variance(transport):
    with AnthropicServer(outcomes=model) as server, Store(STORE) as store:
        made = claude(server.url, transport=transport)
        some = items(6, INTERVAL)
        found = pipeline.score_responses(some, INTERVAL, made, store)
    assert [s.judge_score for s in found] == TENTHS
    variances = [((1 - x) / 3.92) ** 2 for x in TENTHS]
    assert [s.judge_score_variance for s in found] == pytest.approx(variances)


def test_a_model_that_takes_no_schema_says_its_score_in_the_last_line():
    with AnthropicServer(outcomes=model) as server:
        made = claude(server.url, "claude", model="claude-haiku-4-5")
        assert score(made)[0] == TENTHS
