"""The oracle experiment from prompts to estimates: tiny random policies answer, and are forced, scored and labelled.

One story runs through this file: a run that is killed, one that goes on, one that finds everything done.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.experiments.oracle import OracleResult
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.records import UserError
from elo_exp.results import Usage
from tests.commands import start
from tests.oracle_demo import N_LABELS, N_PROBES, N_PROMPTS, POLICIES, ran, said, small
from tests.pages import Reader
from tests.stores import rows

TARGETS = POLICIES[1:]
_SECONDS = 60.0  # a run that has forced nothing by then hangs


@dataclass(frozen=True)
class Told:
    """What was said and found, in the order of the story."""

    folder: Path
    planned: str
    status_before: str
    killed_with: dict[str, int]  # answers in the store, by kind
    status_killed: str
    result: OracleResult
    usage: Usage
    status_after: str
    again: OracleResult
    usage_again: Usage


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("oracle")
    planned, before = (str(said(folder, *small(), f"{errand}=true")) for errand in ("plan", "status"))
    killed_with = kill_while_forcing(folder)
    killed = str(said(folder, *small(), "status=true"))
    result, parts = ran(folder, *small())
    result.write(folder / "run", [])
    after = str(said(folder, *small(), "status=true"))
    again, parts_again = ran(folder, *small())
    return Told(
        folder, planned, before, killed_with, killed, result, parts.store.usage, after, again, parts_again.store.usage
    )


def kill_while_forcing(folder: Path) -> dict[str, int]:
    """The command, killed when the first log-probability is in the store; what is in there by then."""
    store = folder / "cache" / "store.sqlite"
    given = ("experiment=oracle", "tracker=local", f"cache_dir={folder}/cache", *small())
    process = start(*given, folder=folder, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    end = time.monotonic() + _SECONDS
    while "ForcedLogprob" not in (found := kinds(store)) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    _, errors = process.communicate()
    assert "ForcedLogprob" in found, errors
    return kinds(store)


def kinds(store: Path) -> dict[str, int]:
    return dict(rows(store, "SELECT kind, COUNT(*) FROM answers GROUP BY kind")) if store.exists() else {}


def estimates(result: OracleResult) -> list[dict[str, Any]]:
    return [estimate.to_dict() for estimate in result.analysis.estimates]


def of(result: OracleResult, policy: str) -> list[dict[str, Any]]:
    return [row for row in estimates(result) if row["policy"] == policy]


# The story


def test_a_killed_run_goes_on_and_makes_nothing_twice(told: Told):
    n_responses, n_forced = told.killed_with["Response"], told.killed_with["ForcedLogprob"]
    assert n_responses < len(POLICIES) * N_PROMPTS
    assert told.usage.responses_generated == len(POLICIES) * N_PROMPTS - n_responses
    assert told.usage.logprobs_forced == (len(POLICIES) - 1) * N_PROMPTS - n_forced  # the clone's are those of the base
    assert told.usage.judge_calls == len(POLICIES) * N_PROMPTS + N_LABELS + len(TARGETS) * N_PROBES


def test_a_second_run_asks_nobody_and_finds_the_same(told: Told):
    usage = told.usage_again
    assert (usage.responses_generated, usage.logprobs_forced, usage.judge_calls) == (0, 0, 0)
    assert estimates(told.again) == estimates(told.result)


def test_the_kill_changes_no_estimate(told: Told, tmp_path: Path):
    """The same in one go, with one policy and its labels: answers depend on nothing but their own keys."""
    alone, _ = ran(tmp_path, *small("tiny_base", "tiny_clone"), "estimator=[direct]")
    assert of(alone, "tiny_clone") == [row for row in of(told.result, "tiny_clone") if row["estimator"] == "direct"]


def test_status_says_what_is_done_and_what_is_missing(told: Told):
    assert "93 of 93" not in told.status_before
    assert told.status_before.endswith(
        "missing: 465 answers, 465 log-probabilities, 465 scores, 138 labels. The same command without status=true "
        "goes on."
    )
    lines = {line.split()[0]: line for line in told.status_killed.splitlines() if line.strip()}
    assert lines["tiny_base"].count("93 of 93") == 1
    assert lines["tiny_premium"].split()[1:4] == ["0", "of", "93"]
    assert told.status_after.endswith("complete")


def test_a_plan_generates_nothing_and_counts_what_judge_and_oracle_would_be_asked(told: Told):
    judge, oracle_ = told.planned.split("oracle: its slices of them")
    assert judge.split("usefulness")[1].split()[:4] == ["465", "465", "0", "465"]
    assert oracle_.split("usefulness")[1].split()[:4] == ["138", "138", "0", "138"]
    assert "answers, 465 log-probabilities" in told.status_before  # which was asked for after the plan


# What comes out


def test_the_weights_of_a_clone_are_exactly_one(told: Told):
    data = told.result.analysis.data
    assert (data.target_logprob["tiny_clone"] == data.logging_logprob).all()
    for policy in TARGETS[1:]:
        assert not (data.target_logprob[policy] == data.logging_logprob).any()


def test_a_clone_is_worth_what_the_labels_of_the_logged_answers_say(told: Told):
    label = told.result.analysis.data.logged.label
    mean = np.nanmean(label)
    found = [row for row in of(told.result, "tiny_clone") if row["value"] is not None]
    assert len(found) >= 5
    assert all(row["ci_low"] <= mean <= row["ci_high"] for row in found)


def test_both_checks_are_made_in_every_run(told: Told):
    for result in (told.result, told.again):
        drawn, cloned = result.facts()["collection"]["checks"]
        assert (drawn["n_checked"], drawn["n_failed"], drawn["max_difference"] < 1e-3) == (N_PROMPTS, 0, True)
        assert (cloned["n_checked"], cloned["n_failed"], cloned["max_difference"]) == (20, 0, 0.0)


def test_the_files_are_those_that_recorded_answers_are_read_from(told: Told):
    run_dir = told.folder / "run"
    names = {"logged": "logged.jsonl", "fresh_dir": "fresh", "probe_dir": "probe"}
    files = [f"oracle.{name}={run_dir}/{path}" for name, path in names.items()]
    again, parts = ran(told.folder, *files)
    assert estimates(again) == estimates(told.result)
    assert parts.store.usage == Usage()
    asked = {
        "prompt_id",
        "prompt",
        "response",
        "policy",
        "judge_score",
        "oracle_label",
        "total_logprob",
        "target_logps",
    }
    assert all(asked <= set(row) for row in logged(told))


def logged(told: Told) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(told.folder / "run" / "logged.jsonl")]


def test_every_policy_that_is_chosen_is_labelled_by_the_fraction_that_is_set(told: Told):
    """No list of policies stands in the code, and no fraction that is set goes unused."""
    data = told.result.analysis.data
    assert data.policies == TARGETS
    assert {policy: len(draws) for policy, draws in data.probe.items()} == dict.fromkeys(TARGETS, N_PROBES)
    assert data.n_labels == N_LABELS


def test_the_summary_counts_what_there_is(told: Told):
    info = json.loads((told.folder / "run" / "dataset_info.json").read_text(encoding="utf-8"))
    by_policy = {row["policy"]: row for row in info["policies"]}
    assert list(by_policy) == list(POLICIES)
    assert (by_policy["tiny_clone"]["n_exactly_one"], by_policy["tiny_clone"]["n_extreme"]) == (N_PROMPTS, 0)
    assert by_policy["tiny_premium"]["n_extreme"] > 0
    assert {row["labels"]["n"] for row in info["policies"]} == {N_LABELS, N_PROBES}
    assert info["n_rows"]["logged.jsonl"] == N_PROMPTS
    assert "tiny_unhelpful" in told.result.table()
    said_last = Reader(told.result.page("oracle", {}, [])).said.split("What was collected")[1]
    assert "tiny_unhelpful" in said_last


def test_a_larger_label_fraction_keeps_the_labels_that_are_there(told: Told):
    """Which are paid for: half of them are asked of the oracle, not all."""
    _, parts = ran(
        told.folder, *small(), "oracle.label_fraction=1", "oracle.validation_fraction=0", "estimator=[direct]"
    )
    assert parts.store.usage.judge_calls == N_PROMPTS - N_LABELS


def test_a_shard_answers_and_is_forced_and_is_neither_scored_nor_labelled(tmp_path: Path):
    done = said(tmp_path, *small("tiny_base", "tiny_premium"), "shard=1/10")
    assert done == "shard 1/10: 20 responses and 20 log-probabilities made; run without shard= to score them"
    assert "JudgeReply" not in kinds(tmp_path / "cache" / "store.sqlite")


def test_a_step_that_fails_is_not_done(told: Told, tmp_path: Path):
    """An oracle that has no answers ends the run with the reason, and the labels stay missing."""
    (prompt_id,) = [row["prompt_id"] for row in logged(told) if row["oracle_label"] is not None][:1]
    write_jsonl(tmp_path / "labels.jsonl", [{"prompt_id": prompt_id, "policy": "tiny_base", "judge_score": 0.5}])
    replay = ("judge@oracle_judge=replay", f"oracle_judge.path={tmp_path}/labels.jsonl")
    with pytest.raises(UserError, match="137 of 138 scores are missing"):
        ran(told.folder, *small(), *replay)
    assert "missing: 137 labels." in str(said(told.folder, *small(), *replay, "status=true"))


def test_an_oracle_that_is_too_dear_is_refused_before_the_judge_is_paid(told: Told):
    dear = (
        "judge@oracle_judge=openai_compatible",
        "oracle_judge.base_url=http://127.0.0.1:9/v1",
        "oracle_judge.model=big",
    )
    prices = ("oracle_judge.input_usd_per_million=1000", "oracle_judge.output_usd_per_million=1000")
    given = (*small(), "scoring=interval", *dear, *prices, "oracle.budget_usd=1")
    with pytest.raises(UserError, match=r"oracle.budget_usd: \d+ scores by big are expected to cost .* cap is \$1"):
        ran(told.folder, *given)
    assert "missing: 465 scores, 138 labels." in str(said(told.folder, *given, "status=true"))
