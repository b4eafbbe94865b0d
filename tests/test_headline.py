"""A headline run, `mode=headline judge=opus`, against a server with a judge of known strengths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from elo_exp.files import read_jsonl, write_jsonl
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import NoisyBradleyTerry
from tests.commands import Ran, run
from tests.data import BANK, DIMENSIONS

pytestmark = pytest.mark.system

ELO = {
    "base_olmo": -75.0,
    "security_only": -25.0,
    "security_plus_robustness": 25.0,
    "full_poe": 75.0,
}
ELO_A_LOGIT = 400 / math.log(10)
JUDGE = NoisyBradleyTerry(
    strengths={f"[{entrant}]": elo / ELO_A_LOGIT for entrant, elo in ELO.items()},
    position_bias=0.35,  # logits for the response shown first
    tie_rate=0.08,  # of verdicts on equals
    seed=3,
)
N_QUERIES = 2 * 6 * (93 + 143 + 143)


@dataclass(frozen=True)
class Headline:
    ran: Ran
    server: AnthropicServer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headline]:
    folder = tmp_path_factory.mktemp("headline")
    prompts = [row["prompt_id"] for _, row in read_jsonl(BANK)]
    for entrant in ELO:
        rows = [
            {"prompt_id": p, "response_text": f"[{entrant}] What I would say to {p}."}
            for p in prompts
        ]
        write_jsonl(folder / f"responses/responses_{entrant}.jsonl", rows)
    with AnthropicServer(verdicts=JUDGE, polls_to_end=2) as server:
        ran = run(
            "mode=headline",
            "judge=opus",
            f"judge.base_url={server.url}",
            "judge.poll_initial_seconds=0.02",
            "judge.poll_max_seconds=0.1",
            "recorded_dir=responses",
            "figures=false",
            "tracker=local",
            folder=folder,
            ANTHROPIC_API_KEY=server.key,
            NO_PROXY="127.0.0.1",
        )
        yield Headline(ran, server)


def test_every_query_is_asked_and_paid_once_in_measured_chunks(whole: Headline):
    """A query for each rubric to fill the cache, nineteen more of each to see what it says, then chunks of 1,000."""
    assert len(whole.server.meter.billed) == N_QUERIES == 4548
    assert set(whole.server.meter.billed.values()) == {1}
    sizes = [batch.n for batch in whole.server.batches]
    assert sizes == [1, 1, 1, 57, 1000, 1000, 1000, 1000, 488]
    cache = whole.ran.read("manifest.json")["usage"]["cache"]
    said = "the 1-hour cache: 100% of 57 requests found the prefix in the cache"
    assert cache == said
    assert "plan: judge claude" in whole.ran.err.partition("prompt cache:")[0]


def test_bradley_terry_over_both_orders_recovers_the_strengths(whole: Headline):
    """More than two of 12 ratings are outside their 95% intervals once in fifty times.

    Ties count half a win, which draws the ratings together: by 6 points of 75 at most.
    """
    dimensions = whole.ran.read("ratings.json")["dimensions"]
    assert dimensions.keys() == {*DIMENSIONS}
    rows = [r for by in dimensions.values() for r in by["bradley_terry"]["ratings"]]
    missed = [
        row
        for row in rows
        if not row["ci_low"] <= 1400 + ELO[row["model"]] <= row["ci_high"]
    ]
    assert len(rows) == 12
    assert len(missed) <= 2, missed


def test_the_bill_is_the_servers_to_the_token(whole: Headline):
    usage = whole.ran.read("manifest.json")["usage"]
    metered = whole.server.meter.tokens["batch"]
    ours = {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_read_input_tokens": usage["cache_read_tokens"],
        "cache_creation_1h": usage["cache_write_1h_tokens"],
        "cache_creation_5m": usage["cache_write_5m_tokens"],
    }
    assert {name: n for name, n in ours.items() if n} == dict(+metered)
    per_million = (4 * metered["input_tokens"] + 20 * metered["output_tokens"]) + (
        0.2 * metered["cache_read_input_tokens"] + 8 * metered["cache_creation_1h"]
    )
    assert usage["dollars"] == pytest.approx(per_million * 1e-6 / 2)
    assert sum(usage["dollars_by_dimension"].values()) == pytest.approx(
        usage["dollars"]
    )
    assert f"spent ${usage['dollars']:.4f} (calibration $" in whole.ran.err
    logged = whole.ran.rows("tracker/log.jsonl")
    (summary,) = [row["value"] for row in logged if row["kind"] == "summary"]
    assert summary["usage/dollars"] == usage["dollars"]


def test_what_is_stored_is_rated_at_another_k_without_a_query_a_key_or_a_budget(
    whole: Headline,
):
    before = whole.server.meter.posts("")
    url = f"judge.base_url={whole.server.url}"
    given = ("mode=headline", url, "recorded_dir=responses", "judging.budget_usd=0")
    fast = ("elo.k=4", "elo.n_perms=50", "figures=false", "tracker=local")
    again = run(*given, *fast, folder=whole.ran.folder)
    assert again.read("manifest.json")["usage"]["dollars"] == 0
    assert whole.server.meter.posts("") == before
