"""What the tests share that judge in batches of each provider: real SDKs, against servers on 127.0.0.1 that keep the bill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api import batch_results
from elo_exp.judges import BatchJudge
from elo_exp.store.answer_store import Store
from tests.anthropic_verdicts import longer
from tests.batch_server import BatchServer
from tests.data import shipped
from tests.killing import SERVERS
from tests.openai_server import alone
from tests.paying import RUBRIC, comparisons
from tests.stores import Place, rows

N_PAIRS = 20  # 40 queries, in one batch
JUDGES = {
    "anthropic": ("claude", {"cache": "none"}),
    "openai": ("openai", {"model": "gpt-6.2-sol", "timeout_seconds": 5.0}),
    "gemini": ("gemini", {"timeout_seconds": 5.0}),
}
RESULTS = {
    "anthropic": "/results$",
    "openai": "/content$",
    "gemini": "/batches/[^/:]+$",
}
each_provider = pytest.mark.parametrize("provider", SERVERS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A machine with keys, in an empty folder."""
    alone(monkeypatch, tmp_path)
    for provider in SERVERS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", "test-key")
    monkeypatch.setattr(
        batch_results, "_ROWS_PER_TRANSACTION", 7
    )  # results in one transaction


@contextmanager
def serving(provider: str, **settings: Any) -> Iterator[BatchServer]:
    given = {"verdicts": longer, "polls_to_end": 0, **settings}
    with SERVERS[provider](**given) as server:
        yield server


def judge(provider: str, server: BatchServer, chunk_size: int = 1000) -> BatchJudge:
    name, changes = JUDGES[provider]
    made: BatchJudge = shipped(
        "judge",
        name,
        base_url=server.url,
        budget_usd=50.0,
        chunk_size=chunk_size,
        poll_initial_seconds=0.01,
        poll_max_seconds=0.02,
        quarantine_seconds=0.3,
        **changes,
    )
    return made


def judged(
    provider: str,
    server: BatchServer,
    place: Place,
    chunk_size: int = 1000,
    n: int = N_PAIRS,
) -> int:
    """The command, as it is given again and again: how many verdicts it has in the end."""
    with Store(place) as store:
        found = pipeline.judge_pairs(
            {"factuality": comparisons(n)},
            [RUBRIC],
            judge(provider, server, chunk_size),
            store,
        )
    return 2 * len(found["factuality"])


def n_stored(place: Place) -> int:
    return int(rows(place, "SELECT COUNT(*) FROM answers")[0][0])
