"""The oracle experiment from prompts to estimates, on tiny random policies.

A run continues what was begun, and repeats nothing; two paid judges keep to their caps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import Report
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.store.admin import AnswerFilter, StoreSummary, count_answers_by_source
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Says, plain_text, sha256
from tests.data import BANK
from tests.openai_server import alone
from tests.oracle_demo import ran, said, small

POLICIES = ("tiny_base", "tiny_clone", "tiny_premium")
TARGETS = POLICIES[1:]
N_PROMPTS, N_LABELS, N_PROBES = 40, 20, 10  # a half and a quarter of the prompts
CHOSEN = (*small(*POLICIES), f"oracle.n_prompts={N_PROMPTS}")


@dataclass(frozen=True)
class Told:
    """What was printed and found, in this order."""

    folder: Path
    status_before: str
    shard: Report
    status_after_shard: str
    report: Report
    usage: Usage
    again: Report
    usage_again: Usage


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("oracle")
    before = said(folder, *CHOSEN, "status=true")
    shard, _ = ran(folder, *CHOSEN, "shard=1/4")
    begun = said(folder, *CHOSEN, "status=true")
    first, again = ran(folder, *CHOSEN), ran(folder, *CHOSEN)
    return Told(folder, before, shard, begun, *first, *again)


@pytest.mark.system
def test_a_run_continues_what_was_begun_and_repeats_nothing(told: Told, tmp_path: Path):
    """Answers depend on nothing but their keys: two policies alone are estimated as among three."""
    n_answers = len(POLICIES) * N_PROMPTS
    assert told.usage.responses_generated == 3 * n_answers / 4
    n_distinct = 2 * N_PROMPTS  # the clone's log-probabilities are those of the base
    assert told.usage.logprobs_forced == 3 * n_distinct / 4
    assert told.usage.judge_calls == n_answers + N_LABELS + len(TARGETS) * N_PROBES
    usage = told.usage_again
    made = (usage.responses_generated, usage.logprobs_forced, usage.judge_calls)
    assert made == (0, 0, 0)
    assert told.again.tables == told.report.tables
    two = (*small("tiny_base", "tiny_clone"), CHOSEN[-1], "estimator=[direct]")
    alone, _ = ran(tmp_path, *two)
    rows = told.report.tables["estimates"]
    clone = [row for row in rows if row["policy"] == "tiny_clone"]
    assert alone.tables["estimates"] == [clone[0], clone[-1]]


@pytest.mark.system
def test_a_shard_is_answered_and_forced_and_neither_scored_nor_labelled(told: Told):
    assert told.shard.text.startswith(
        "shard 1/4: 30 responses and 20 log-probabilities made, "
    )
    missing = "Missing: 120 answers, 120 log-probabilities, 120 scores, 40 labels."
    assert missing in told.status_before
    missing = "Missing: 90 answers, 90 log-probabilities, 120 scores, 40 labels."
    assert missing in told.status_after_shard
    assert said(told.folder, *CHOSEN, "status=true").endswith("Complete.")


@pytest.mark.system
def test_the_weights_of_a_clone_are_exactly_one(told: Told):
    for row in logged(told):
        targets = row["target_logps"]
        assert targets.pop("tiny_clone") == row["total_logprob"]
        assert row["total_logprob"] not in targets.values()
    (drawn,) = told.report.facts["collection"]["checks"]
    assert (drawn["n_checked"], drawn["allowed"]) == (N_PROMPTS, 1e-4)
    assert drawn["max_difference"] < 1e-3


@pytest.mark.system
def test_the_files_are_those_that_recorded_answers_are_read_from(
    told: Told, tmp_path: Path
):
    run_dir = told.folder / "run"
    names = {"logged": "logged.jsonl", "fresh_dir": "fresh", "probe_dir": "probe"}
    files = [f"oracle.{name}={run_dir}/{path}" for name, path in names.items()]
    again, usage = ran(tmp_path, *files)
    assert again.tables == told.report.tables
    assert usage == Usage()
    assert {"prompt", "response"} <= logged(told)[0].keys()


def logged(told: Told) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(told.folder / "run" / "logged.jsonl")]


@pytest.mark.system
def test_every_chosen_policy_is_labelled_by_its_fraction_and_summarised(told: Told):
    facts = told.report.facts
    assert facts["policies"] == list(TARGETS)
    assert facts["n_probe"] == dict.fromkeys(TARGETS, N_PROBES)
    assert facts["n_labels"] == N_LABELS
    _, clone, premium = facts["collection"]["policies"]
    assert (clone["n_exactly_one"], clone["n_extreme"]) == (N_PROMPTS, 0)
    assert premium["n_extreme"] > 0
    written = (told.folder / "run" / "dataset_info.json").read_text(encoding="utf-8")
    assert json.loads(written)["policies"] == facts["collection"]["policies"]


@pytest.mark.system
def test_a_larger_label_fraction_keeps_the_labels_that_are_there(
    told: Told, tmp_path: Path
):
    """Which may have been paid for: the oracle is asked for half of them, not all."""
    fractions = ("oracle.label_fraction=1", "oracle.validation_fraction=0")
    store = f"cache_dir={told.folder}/cache"
    _, usage = ran(tmp_path, *CHOSEN, *fractions, "estimator=[direct]", store)
    assert usage.judge_calls == N_PROMPTS - N_LABELS


# Entrants without log-probabilities


def hosted_run(folder: Path, server: AnthropicServer, *settings: str) -> Any:
    """Claude and recorded answers beside others, scored and labelled by comparing words."""
    given = [f"entrant.claude.base_url={server.url}", "oracle.n_prompts=24"]
    given += [f"entrant.recorded.path={folder}/recorded.jsonl", *settings]
    return ran(folder, *given)


@pytest.fixture
def claude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AnthropicServer]:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    bank = [row for _, row in read_jsonl(BANK)]
    answers = [
        {"prompt_id": row["prompt_id"], "response_text": f"Rest. {row['text']}"}
        for row in bank
    ]
    write_jsonl(tmp_path / "recorded.jsonl", answers)
    with AnthropicServer(outcomes=lambda params, _: Says("Take rest.")) as server:
        yield server


@pytest.mark.system
def test_claude_and_recorded_answers_are_policies_and_nothing_is_paid_twice(
    tmp_path: Path, claude: AnthropicServer
):
    """No one is scored on another's answers: all are labelled on the same prompts."""
    chosen = ("entrant=[claude,recorded]", "oracle.label_fraction=.9")
    report, usage = hosted_run(tmp_path, claude, *chosen)
    assert sum(claude.meter.billed_bodies.values()) == usage.responses_generated - 24
    assert set(claude.meter.billed_bodies.values()) == {1}
    rows = {(e["policy"], e["estimator"]): e for e in report.tables["estimates"]}
    for policy in ("claude", "recorded"):
        assert rows[policy, "anchored"]["rests_on"] == "own labels"
        assert rows[policy, "direct"]["value"] is not None
        assert rows[policy, "dr_cpo"]["reason"] == "no log-probabilities"
    labelled = {
        row["prompt_id"]
        for policy in ("claude", "recorded")
        for _, row in read_jsonl(tmp_path / f"run/fresh/{policy}.jsonl")
        if row["oracle_label"] is not None
    }
    assert len(labelled) == 22
    again, _ = hosted_run(tmp_path, claude, *chosen)
    assert again.tables == report.tables
    assert set(claude.meter.billed_bodies.values()) == {1}


@pytest.mark.system
def test_beside_policies_with_log_probabilities_others_get_what_does_without(
    tmp_path: Path, claude: AnthropicServer
):
    chosen = "entrant=[claude,tiny_base,tiny_clone,recorded]"
    quick = small("tiny_base", "tiny_clone")[1:]
    fractions = ("oracle.label_fraction=1", "oracle.validation_fraction=1")
    report, _ = hosted_run(tmp_path, claude, chosen, *quick, *fractions)
    assert report.facts["logging_policy"] == "tiny_base"
    assert report.facts["policies"] == ["claude", "tiny_clone", "recorded"]
    rows = {(e["policy"], e["estimator"]): e for e in report.tables["estimates"]}
    assert rows["tiny_clone", "snips"]["value"] is not None
    assert rows["claude", "snips"]["reason"] == "no log-probabilities"
    assert rows["claude", "anchored"]["rests_on"] == "own labels"


@pytest.mark.system
def test_what_stops_a_judge_or_an_entrant_does_so_before_an_entrant_is_paid(
    tmp_path: Path, claude: AnthropicServer, monkeypatch: pytest.MonkeyPatch
):
    chosen = ("entrant=[claude,recorded]", "oracle.label_fraction=.9")
    url = f"judge.base_url={claude.url}"
    paid = ("judge=haiku", url, "judge@oracle_judge=haiku", f"oracle_{url}")
    capped = ("judging.budget_usd=1", "oracle.budget_usd=.0001")
    with pytest.raises(
        UserError, match=r"(?s)^44 scores by claude-haiku.*oracle\.budget_usd="
    ):
        hosted_run(tmp_path, claude, *chosen, *paid, *capped)
    with pytest.raises(
        UserError, match="^Entrant claude lacks answers to some prompts"
    ):
        hosted_run(tmp_path, claude, *chosen, "judging.stored_only=true")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(UserError, match="ANTHROPIC_API_KEY"):
        hosted_run(tmp_path, claude, *chosen)
    assert not claude.meter.billed_bodies


# Two judges that are paid

N_PAID = 10  # prompts, answered by two policies: all answers are scored and labelled
JUDGE, ORACLE = "claude-haiku-5-5", "claude-opus-5-5"
# The oracle's labels come one at a time, and are dearer than they are expected to be.
PAID = (
    "entrant=[probe_hedged,probe_partial]",
    "judge=haiku",
    "judge.poll_initial_seconds=0.01",
    "judge.poll_max_seconds=0.02",
    "judging.budget_usd=1",
    "judge@oracle_judge=opus",
    "oracle_judge.transport=messages",
    "oracle_judge.concurrency=1",
    "oracle_judge.expected_output_tokens=1",
    f"oracle.n_prompts={N_PAID}",
    "oracle.label_fraction=1",
)
LOW_CAP = 0.25


def number(params: Mapping[str, Any], _: int) -> Says:
    """A score that depends on what is shown and to whom."""
    shown = [params["model"], plain_text(params["messages"][-1]["content"])]
    score = int(sha256(shown)[:8], 16) % 11
    return Says(json.dumps({"score": score, "evidence": ""}))


def stored(folder: Path) -> dict[str | None, StoreSummary]:
    """What the store has of each judge."""
    with Store(folder / "cache" / "store.sqlite") as store:
        return {
            some.source: some
            for some in count_answers_by_source(
                store, AnswerFilter(rubric="usefulness")
            )
        }


def paid_run(folder: Path, server: AnthropicServer, cap: float) -> Any:
    urls = [f"{part}.base_url={server.url}" for part in ("judge", "oracle_judge")]
    return ran(folder, *PAID, *urls, f"oracle.budget_usd={cap}")[0].tables


@pytest.mark.system
def test_two_paid_judges_keep_to_their_caps_and_are_paid_once_for_each_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A low cap, a higher one, and the same again, on one store."""
    alone(monkeypatch, tmp_path)
    with AnthropicServer(outcomes=number, thinking_tokens=1000) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        spent = r"oracle\.budget_usd is too low for the next request.*: \$0\.\d\d of \$0\.25 are spent"
        with pytest.raises(UserError, match=spent):
            paid_run(tmp_path, server, LOW_CAP)
        low = stored(tmp_path)
        assert low[JUDGE].n == 2 * N_PAID
        assert 0 < low[ORACLE].n < 2 * N_PAID
        assert 0 < low[ORACLE].dollars <= LOW_CAP

        first = paid_run(tmp_path, server, 5)
        paid, n_calls = stored(tmp_path), len(server.meter.calls)
        assert paid[JUDGE] == low[JUDGE]
        assert paid[ORACLE].n == 2 * N_PAID
        bills = list(server.meter.billed_bodies.values())
        assert bills == [1] * (4 * N_PAID)

        assert paid_run(tmp_path, server, 5) == first
        assert len(server.meter.calls) == n_calls
