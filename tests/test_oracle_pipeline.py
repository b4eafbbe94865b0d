"""The oracle experiment from prompts to estimates: tiny random policies answer, and are forced, scored and labelled.

One story runs through this file: a run that is killed, one that goes on, one that finds everything done.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.records import UserError
from elo_exp.store.admin import Filter, StoreSummary, count
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Says, plain_text, sha256
from tests.commands import attempt, start
from tests.openai_server import alone
from tests.oracle_demo import (
    N_LABELS,
    N_PROBES,
    N_PROMPTS,
    POLICIES,
    Result,
    answered,
    oracle_of,
    ran,
    said,
    small,
)
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
    result: Result
    usage: Usage
    status_after: str
    again: Result
    usage_again: Usage


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("oracle")
    planned, before = (
        str(said(folder, *small(), f"{errand}=true")) for errand in ("plan", "status")
    )
    killed_with = kill_while_forcing(folder)
    killed = str(said(folder, *small(), "status=true"))
    result, usage = ran(folder, *small(), name="run")
    after = str(said(folder, *small(), "status=true"))
    again, usage_again = ran(folder, *small())
    return Told(
        folder,
        planned,
        before,
        killed_with,
        killed,
        result,
        usage,
        after,
        again,
        usage_again,
    )


def kill_while_forcing(folder: Path) -> dict[str, int]:
    """The command, killed when the first log-probability is in the store; what is in there by then."""
    store = folder / "cache" / "store.sqlite"
    given = (
        "experiment=oracle",
        "tracker=local",
        f"cache_dir={folder}/cache",
        *small(),
    )
    process = start(
        *given, folder=folder, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"
    )
    end = time.monotonic() + _SECONDS
    while (
        "ForcedLogprob" not in (found := kinds(store))
        and time.monotonic() < end
        and process.poll() is None
    ):
        time.sleep(0.002)
    process.kill()
    _, errors = process.communicate()
    assert "ForcedLogprob" in found, errors
    return kinds(store)


def kinds(store: Path) -> dict[str, int]:
    return (
        dict(rows(store, "SELECT kind, COUNT(*) FROM answers GROUP BY kind"))
        if store.exists()
        else {}
    )


def estimates(result: Result) -> list[dict[str, Any]]:
    return [estimate.to_dict() for estimate in result.analysis.estimates]


def of(result: Result, policy: str) -> list[dict[str, Any]]:
    return [row for row in estimates(result) if row["policy"] == policy]


# The story


def test_a_killed_run_goes_on_and_makes_nothing_twice(told: Told):
    n_responses, n_forced = (
        told.killed_with["Response"],
        told.killed_with["ForcedLogprob"],
    )
    assert n_responses < len(POLICIES) * N_PROMPTS
    assert told.usage.responses_generated == len(POLICIES) * N_PROMPTS - n_responses
    assert (
        told.usage.logprobs_forced == (len(POLICIES) - 1) * N_PROMPTS - n_forced
    )  # the clone's are those of the base
    assert (
        told.usage.judge_calls
        == len(POLICIES) * N_PROMPTS + N_LABELS + len(TARGETS) * N_PROBES
    )


def test_a_second_run_asks_nobody_and_finds_the_same(told: Told):
    usage = told.usage_again
    assert (usage.responses_generated, usage.logprobs_forced, usage.judge_calls) == (
        0,
        0,
        0,
    )
    assert estimates(told.again) == estimates(told.result)


def test_the_kill_changes_no_estimate(told: Told, tmp_path: Path):
    """The same in one go, with one policy and its labels: answers depend on nothing but their own keys."""
    alone, _ = ran(tmp_path, *small("tiny_base", "tiny_clone"), "estimator=[direct]")
    assert of(alone, "tiny_clone") == [
        row for row in of(told.result, "tiny_clone") if row["estimator"] == "direct"
    ]


def test_status_says_what_is_done_and_what_is_missing(told: Told):
    assert "93 of 93" not in told.status_before
    assert told.status_before.endswith(
        "missing: 465 answers, 465 log-probabilities, 465 scores, 138 labels. Run without status=true to "
        "continue."
    )
    lines = {
        line.split()[0]: line
        for line in told.status_killed.splitlines()
        if line.strip()
    }
    assert lines["tiny_base"].count("93 of 93") == 1
    assert lines["tiny_premium"].split()[1:4] == ["0", "of", "93"]
    assert told.status_after.endswith("complete")


def test_a_plan_generates_nothing_and_counts_what_judge_and_oracle_would_be_asked(
    told: Told,
):
    judge, oracle_ = told.planned.split("oracle: its slices of them")
    assert judge.split("usefulness")[1].split()[:4] == ["465", "465", "0", "465"]
    assert oracle_.split("usefulness")[1].split()[:4] == ["138", "138", "0", "138"]
    assert (
        "answers, 465 log-probabilities" in told.status_before
    )  # which was asked for after the plan


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
        drawn, cloned = result.report.facts["collection"]["checks"]
        assert (
            drawn["n_checked"],
            drawn["n_failed"],
            drawn["max_difference"] < 1e-3,
        ) == (
            N_PROMPTS,
            0,
            True,
        )
        assert (cloned["n_checked"], cloned["n_failed"], cloned["max_difference"]) == (
            20,
            0,
            0.0,
        )


def test_the_files_are_those_that_recorded_answers_are_read_from(told: Told):
    run_dir = told.folder / "run"
    names = {"logged": "logged.jsonl", "fresh_dir": "fresh", "probe_dir": "probe"}
    files = [f"oracle.{name}={run_dir}/{path}" for name, path in names.items()]
    again, usage = ran(told.folder, *files)
    assert estimates(again) == estimates(told.result)
    assert usage == Usage()
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


def test_every_policy_that_is_chosen_is_labelled_by_the_fraction_that_is_set(
    told: Told,
):
    """No list of policies stands in the code, and no fraction that is set goes unused."""
    data = told.result.analysis.data
    assert data.policies == TARGETS
    assert {
        policy: len(draws) for policy, draws in data.probe.items()
    } == dict.fromkeys(TARGETS, N_PROBES)
    assert data.n_labels == N_LABELS


def test_the_summary_counts_what_there_is(told: Told):
    info = json.loads(
        (told.folder / "run" / "dataset_info.json").read_text(encoding="utf-8")
    )
    by_policy = {row["policy"]: row for row in info["policies"]}
    assert list(by_policy) == list(POLICIES)
    assert (
        by_policy["tiny_clone"]["n_exactly_one"],
        by_policy["tiny_clone"]["n_extreme"],
    ) == (
        N_PROMPTS,
        0,
    )
    assert by_policy["tiny_premium"]["n_extreme"] > 0
    assert {row["labels"]["n"] for row in info["policies"]} == {N_LABELS, N_PROBES}
    assert info["n_rows"]["logged.jsonl"] == N_PROMPTS
    assert "tiny_unhelpful" in told.result.report.text
    said_last = Reader(told.result.report.page("oracle", {}, [])).said.split(
        "What was collected"
    )[1]
    assert "tiny_unhelpful" in said_last


def test_a_larger_label_fraction_keeps_the_labels_that_are_there(told: Told):
    """Which are paid for: half of them are asked of the oracle, not all."""
    _, usage = ran(
        told.folder,
        *small(),
        "oracle.label_fraction=1",
        "oracle.validation_fraction=0",
        "estimator=[direct]",
    )
    assert usage.judge_calls == N_PROMPTS - N_LABELS


def test_a_shard_answers_and_is_forced_and_is_neither_scored_nor_labelled(
    tmp_path: Path,
):
    done = answered(tmp_path, *small("tiny_base", "tiny_premium"), shard="1/10")
    assert (
        done
        == "shard 1/10: 20 responses and 20 log-probabilities made; run without shard= to score them"
    )
    assert "JudgeReply" not in kinds(tmp_path / "cache" / "store.sqlite")


def test_a_step_that_fails_is_not_done(told: Told, tmp_path: Path):
    """An oracle that has no answers ends the run with the reason, and the labels stay missing."""
    (prompt_id,) = [
        row["prompt_id"] for row in logged(told) if row["oracle_label"] is not None
    ][:1]
    write_jsonl(
        tmp_path / "labels.jsonl",
        [{"prompt_id": prompt_id, "policy": "tiny_base", "judge_score": 0.5}],
    )
    replay = ("judge@oracle_judge=replay", f"oracle_judge.path={tmp_path}/labels.jsonl")
    with pytest.raises(UserError, match="137 of 138 scores are missing"):
        ran(told.folder, *small(), *replay)
    assert "missing: 137 labels." in str(
        said(told.folder, *small(), *replay, "status=true")
    )


def test_an_oracle_that_is_too_dear_is_refused_before_the_judge_is_paid(told: Told):
    dear = (
        "judge@oracle_judge=openai_compatible",
        "oracle_judge.base_url=http://127.0.0.1:9/v1",
        "oracle_judge.model=big",
    )
    prices = (
        "oracle_judge.input_usd_per_million=1000",
        "oracle_judge.output_usd_per_million=1000",
    )
    given = (*small(), "scoring=interval", *dear, *prices, "oracle.budget_usd=1")
    with pytest.raises(
        UserError,
        match=r"oracle.budget_usd: \d+ scores by big are expected to cost .* cap is \$1",
    ):
        ran(told.folder, *given)
    assert "missing: 465 scores, 138 labels." in str(
        said(told.folder, *given, "status=true")
    )


# Two judges that are paid


N_PAID = 10  # prompts, answered by two policies: all answers are scored, the logged ones labelled
N_CHECKED = 2  # of the target's, labelled too
JUDGE, ORACLE = "claude-haiku-5-5", "claude-opus-5-5"
# The oracle's labels come one at a time, and are dearer than they are expected to be.
PAID = (
    *small("tiny_base", "tiny_premium"),
    *(
        "judge=haiku",
        "judge.poll_initial_seconds=0.01",
        "judge.poll_max_seconds=0.02",
        "judging.budget_usd=1",
    ),
    *(
        "judge@oracle_judge=opus",
        "oracle_judge.transport=messages",
        "oracle_judge.concurrency=1",
    ),
    *(
        f"oracle.n_prompts={N_PAID}",
        "oracle.label_fraction=1",
        "oracle_judge.expected_output_tokens=1",
    ),
)
LOW_CAP = 0.15


@dataclass(frozen=True)
class Ended:
    """What a run concluded, or in which words it was refused."""

    estimates: list[dict[str, Any]]
    refusal: str = ""


def in_this_process(folder: Path, *given: str) -> Ended:
    with oracle_of(folder, *given) as (experiment, context):
        try:
            analysis, *_ = experiment.analyse(context.store)
            return Ended([estimate.to_dict() for estimate in analysis.estimates])
        except UserError as refusal:
            return Ended([], str(refusal))
        finally:
            for judge in (
                experiment.judge,
                experiment.oracle_judge,
            ):  # a client's sockets are the process's until it ends
                if (client := vars(judge.api).get("_client")) is not None:
                    client.close()


def by_the_command(folder: Path, *given: str) -> Ended:
    variables = {name: os.environ[name] for name in ("ANTHROPIC_API_KEY", "NO_PROXY")}
    places = (f"cache_dir={folder}/cache", "tracker=local", "figures=false")
    ran = attempt("experiment=oracle", *places, *given, folder=folder, **variables)
    if ran.code == 0:
        return Ended(ran.read("estimates.json"))
    assert ran.code == 2, ran.err
    (line,) = (line for line in ran.err.splitlines() if line.startswith("elo_exp: "))
    assert ran.err.endswith(f"{line}\n")
    return Ended([], line.removeprefix("elo_exp: "))


@dataclass(frozen=True)
class Paid:
    """Four runs on one store, in this order, and what the server was asked and the judges were paid in between."""

    server: AnthropicServer
    wrong_key: Ended
    n_billed_wrong_key: int
    low_cap: Ended
    paid_low_cap: dict[str | None, StoreSummary]
    raised: Ended
    n_calls_raised: int
    again: Ended
    paid: dict[str | None, StoreSummary]


@pytest.fixture(
    scope="module",
    params=[in_this_process, pytest.param(by_the_command, marks=pytest.mark.slow)],
)
def paid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Paid:
    folder = tmp_path_factory.mktemp("paid")
    with (
        pytest.MonkeyPatch.context() as machine,
        AnthropicServer(outcomes=number, thinking_tokens=1000) as server,
    ):
        alone(machine, folder)

        def run(key: str, cap: float) -> Ended:
            machine.setenv("ANTHROPIC_API_KEY", key)
            urls = (
                f"{judge}.base_url={server.url}" for judge in ("judge", "oracle_judge")
            )
            return request.param(folder, *PAID, *urls, f"oracle.budget_usd={cap}")

        wrong_key, n_billed = run("wrong-key", 5), server.meter.billed_bodies.total()
        low_cap, paid_low_cap = run("test-key", LOW_CAP), holdings(folder)
        raised, n_calls = run("test-key", 5), len(server.meter.calls)
        again = run("test-key", 5)
        return Paid(
            server,
            wrong_key,
            n_billed,
            low_cap,
            paid_low_cap,
            raised,
            n_calls,
            again,
            holdings(folder),
        )


def number(params: Mapping[str, Any], _: int) -> Says:
    """A score that depends on what is shown and to whom."""
    score = (
        int(
            sha256([params["model"], plain_text(params["messages"][-1]["content"])])[
                :8
            ],
            16,
        )
        % 11
    )
    return Says(json.dumps({"score": score, "evidence": ""}))


def holdings(folder: Path) -> dict[str | None, StoreSummary]:
    """What the store has of each judge."""
    with Store(folder / "cache" / "store.sqlite") as store:
        return {held.source: held for held in count(store, Filter(rubric="usefulness"))}


def test_a_wrong_key_ends_the_run_in_one_line_before_anything_is_paid(paid: Paid):
    assert "Check ANTHROPIC_API_KEY" in paid.wrong_key.refusal
    assert paid.n_billed_wrong_key == 0


def test_the_oracles_cap_stops_the_oracle_alone_and_what_is_paid_is_kept(paid: Paid):
    judge, oracle_ = paid.paid_low_cap[JUDGE], paid.paid_low_cap[ORACLE]
    assert re.match(
        r"oracle\.budget_usd: \$0\.\d\d of \$0\.15 are spent, and the next",
        paid.low_cap.refusal,
    )
    assert judge.n == 2 * N_PAID
    assert 0 < oracle_.n < N_PAID + N_CHECKED
    assert 0 < oracle_.dollars <= LOW_CAP


def test_a_higher_cap_goes_on_and_every_query_of_both_is_paid_for_once(paid: Paid):
    assert (paid.paid[JUDGE].n, paid.paid[ORACLE].n) == (2 * N_PAID, N_PAID + N_CHECKED)
    assert list(paid.server.meter.billed_bodies.values()) == [1] * (
        3 * N_PAID + N_CHECKED
    )
    assert paid.paid[JUDGE] == paid.paid_low_cap[JUDGE]


def test_the_same_command_again_asks_neither_and_estimates_the_same(paid: Paid):
    assert len(paid.server.meter.calls) == paid.n_calls_raised
    assert paid.again == paid.raised
    assert paid.raised.estimates
