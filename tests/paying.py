"""What the tests share that pay Claude: a key, a judge that polls fast, and what to ask it."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api import calls as pool
from elo_exp.data.rubrics import Rubric
from elo_exp.judges import Judge
from elo_exp.judges.claude import ClaudeJudge
from elo_exp.records import Comparison, JudgeRequest, Judgment, make_fingerprint
from elo_exp.store import claims
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from tests.data import COMPARISON, shipped

STORE = Path("store.sqlite")
RUBRIC: Rubric = shipped("rubric", "factuality")
SINGLE, BATCHES, BATCH = "/v1/messages$", "/batches$", "/batches/[^/]+$"
_MADE: list[ClaudeJudge] = []


@pytest.fixture
def paying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A key, in an empty folder, so that nobody's .env is read; back-offs are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pool, "_FIRST_BACK_OFF_SECONDS", 0.01)
    monkeypatch.setattr(claims, "CLAIM_POLL_SECONDS", 0.01)
    yield
    for made in _MADE:  # a client's sockets are the process's until it ends
        if (client := vars(made.api).get("_client")) is not None:
            client.close()
    _MADE.clear()


def claude(
    base_url: str | None = None, name: str = "opus", **changes: Any
) -> ClaudeJudge:
    """conf/judge/<name>.yaml, polling fast, with a cap that nothing here reaches."""
    settings: dict[str, Any] = {
        "poll_initial_seconds": 0.01,
        "poll_max_seconds": 0.02,
        "budget_usd": 50.0,
        **({"base_url": base_url} if base_url else {}),
        **({"effort": None} if changes.get("model") == "claude-haiku-4-5" else {}),
    }
    _MADE.append(shipped("judge", name, **{**settings, **changes}))
    return _MADE[-1]


def comparisons(n: int, *, dimension: str = "factuality") -> list[Comparison]:
    """So many questions; responses of one length, so that a plan can be worked out by hand."""
    return [
        dataclasses.replace(
            COMPARISON,
            prompt_id=f"p{number:03}",
            dimension=dimension,
            prompt_text=f"Why {number:03}?",
            response_a=f"Yes {number:03}, at once.",
            response_b=f"No {number:03}.",
            gold_answer="Yes.",
        )
        for number in range(n)
    ]


def request(
    made: Judge,
    comparison: Comparison = COMPARISON,
    rubric: Rubric = RUBRIC,
    *,
    swap: bool = False,
) -> JudgeRequest:
    """A query as the pipeline makes it."""
    key = make_fingerprint([made.model, made.cache_key()])
    return rubric.request(
        comparison, judge=key, position_swap=swap, key_fields=made.key_fields
    )


def judged(
    made: Judge, n: int = 3, *, rubrics: Sequence[Rubric] = (RUBRIC,)
) -> tuple[list[Judgment], Usage]:
    """So many comparisons, judged in both orders on each rubric; and what that cost."""
    wanted = {r.dimension: comparisons(n, dimension=r.dimension) for r in rubrics}
    with Store(STORE) as store:
        found = pipeline.judge_pairs(wanted, rubrics, made, store)
        return [judgment for some in found.values() for judgment in some], store.usage


def stored(path: Path) -> list[dict[str, Any]]:
    with Store(path) as store:
        rows = store.query("SELECT value FROM answers")
    return [json.loads(value) for (value,) in rows]
