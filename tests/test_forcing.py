"""The stage of log-probabilities: stored as they are made, never made twice, and checked."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp import pipeline
from elo_exp.data import bank
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.models import causal_lm
from elo_exp.records import Response, UserError
from elo_exp.results import Usage
from elo_exp.store.store import Store
from tests.data import BANK, shipped

PROMPTS = bank.load(BANK)[:5]
NAMES = ("base", "clone", "unhelpful", "premium")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def policies(cache: Path) -> dict[str, HuggingFaceEntrant]:
    return {name: policy(cache, name) for name in NAMES}


@pytest.fixture(scope="module")
def responses(policies: dict[str, HuggingFaceEntrant]) -> Iterator[dict[str, Response]]:
    """Of the logging policy, base."""
    yield {response.prompt_id: response for response in policies["base"].generate(PROMPTS)}
    causal_lm.release()


def policy(cache: Path, name: str, **changes: Any) -> Any:
    return shipped(
        "entrant", f"tiny_{name}", **{"cache_dir": str(cache), "max_new_tokens": 8, **changes}
    )


def force(store: Path, policies: Any, responses: Any, prompts: Any = PROMPTS) -> tuple[Any, Usage]:
    with Store(store) as opened:
        return pipeline.teacher_force(prompts, responses, policies, opened), opened.usage


def test_a_clones_log_probabilities_are_those_of_the_logging_policy_and_others_are_not(
    policies, responses, tmp_path
):
    found, _ = force(tmp_path / "store.sqlite", policies, responses)
    assert list(found) == list(NAMES)
    assert all(
        list(totals) == [prompt.prompt_id for prompt in PROMPTS] for totals in found.values()
    )
    assert found["clone"] == found["base"]
    for other in ("unhelpful", "premium"):
        assert all(found[other][name] != found["base"][name] for name in responses)


def test_a_clone_costs_nothing_and_nothing_is_forced_twice(policies, responses, tmp_path):
    store = tmp_path / "store.sqlite"
    first, usage = force(store, policies, responses)
    assert (usage.logprobs_wanted, usage.logprobs_forced, usage.logprobs_stored) == (20, 15, 5)
    second, usage = force(store, policies, responses)
    assert (usage.logprobs_wanted, usage.logprobs_forced, usage.logprobs_stored) == (20, 0, 20)
    assert second == first


def test_what_an_earlier_run_has_forced_is_not_forced_again(policies, responses, tmp_path):
    store = tmp_path / "store.sqlite"
    force(store, policies, responses, PROMPTS[:2])
    _, usage = force(store, policies, responses)
    assert (usage.logprobs_forced, usage.logprobs_stored) == (
        9,
        11,
    )  # three prompts of three policies, the clone


def test_only_answered_prompts_are_forced_and_how_many_are_is_known_without_a_model(
    policies, responses, tmp_path
):
    some = {prompt.prompt_id: responses[prompt.prompt_id] for prompt in PROMPTS[:3]}
    with Store(tmp_path / "store.sqlite") as store:
        assert pipeline.n_forced(PROMPTS, some, policies, store) == dict.fromkeys(NAMES, 0)
        assert set(
            pipeline.teacher_force(PROMPTS, some, {"base": policies["base"]}, store)["base"]
        ) == set(some)
        assert pipeline.n_forced(PROMPTS, some, policies, store) == {
            "base": 3,
            "clone": 3,
            "unhelpful": 0,
            "premium": 0,
        }


def test_policies_with_the_same_weights_share_a_load(policies, responses, tmp_path, caplog):
    causal_lm.release()
    with caplog.at_level(logging.INFO):
        force(tmp_path / "store.sqlite", policies, responses)
    assert (
        sum(message.startswith("loading") for message in caplog.messages) == 2
    )  # base's and premium's


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.9},
        {"system_prompt": "Be brief."},
        {"chat_template": "none"},
        {"dtype": "bfloat16"},
    ],
    ids=str,
)
def test_a_policy_is_another_where_a_setting_could_change_what_it_says(policies, cache, changes):
    assert policy(cache, "base", **changes).logprob_key(PROMPTS[0]) != policies["base"].logprob_key(
        PROMPTS[0]
    )


@pytest.mark.parametrize(
    "changes", [{"max_new_tokens": 9}, {"batch_size": 2}, {"entrant_id": "ann"}], ids=str
)
def test_and_the_same_where_none_could(policies, cache, changes):
    assert policy(cache, "base", **changes).logprob_key(PROMPTS[0]) == policies["base"].logprob_key(
        PROMPTS[0]
    )


# Who is a policy


def test_every_tiny_model_is_a_policy(policies):
    assert pipeline.as_policies(policies, logging_policy="base") == policies


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "probe",
            "entrant.ann: records no log-probabilities. Expected logprobs=true, with a temperature and top_p=1.0",
        ),
        ("silent", "entrant.ann: records no log-probabilities."),
        (
            "longer",
            "entrant.ann: cuts its answers at 9 tokens, base at 8. Expected one max_new_tokens for all",
        ),
    ],
)
def test_who_is_none_is_told_what_is_missing(policies, cache, name, words):
    others = {
        "probe": shipped("entrant", "probe_reference"),
        "silent": policy(cache, "base", logprobs=False),
        "longer": policy(cache, "base", max_new_tokens=9),
    }
    with pytest.raises(UserError) as error:
        pipeline.as_policies({"base": policies["base"], "ann": others[name]}, logging_policy="base")
    assert str(error.value).startswith(words)


def test_the_logging_policy_is_one_of_them(policies):
    with pytest.raises(
        UserError,
        match="logging_policy: found 'p0'. Expected one of base, clone, unhelpful, premium.",
    ):
        pipeline.as_policies(policies, logging_policy="p0")


# The checks


def test_where_no_policy_is_a_clone_there_is_nothing_to_check(policies, responses):
    without = {name: policies[name] for name in ("base", "unhelpful", "premium")}
    check = pipeline.clone_check(
        PROMPTS, responses, without, logging_policy="base", n_answers=5, seed=1
    )
    assert (check.n_checked, check.n_failed, check.worst) == (0, 0, None)
    check.check()


def test_a_clone_whose_weights_have_changed_under_the_run_is_found_out(
    policies, responses, cache, tmp_path
):
    """Two folders of the same content, until somebody trains on in one of them."""
    for name in ("one", "two"):
        shutil.copytree(policies["base"].weights.model, tmp_path / name)
    pair = {
        name: policy(cache, "base", model=str(tmp_path / name), entrant_id=name)
        for name in ("one", "two")
    }
    assert pair["one"].logprob_key(PROMPTS[0]) == pair["two"].logprob_key(PROMPTS[0])
    shutil.copy(Path(policies["premium"].weights.model) / "model.safetensors", tmp_path / "two")
    check = pipeline.clone_check(
        PROMPTS, responses, pair, logging_policy="one", n_answers=3, seed=1
    )
    assert (check.n_checked, check.n_failed) == (3, 3)
    with pytest.raises(
        UserError,
        match="log-probabilities of one and its clones: 3 of 3 answers differ by more than 0",
    ):
        check.check()


def test_which_answers_are_checked_depends_on_the_seed_alone(policies, responses):
    def checked(seed: int, order: int) -> Any:
        some = dict([*responses.items()][::order])
        return pipeline.clone_check(
            PROMPTS, some, policies, logging_policy="base", n_answers=2, seed=seed
        )

    assert checked(1, 1) == checked(1, -1)
    assert checked(1, 1).n_checked == 2


@pytest.mark.parametrize(
    ("shift", "n_failed"), [(0.0, 0), (0.0009, 0), (0.0011, 1), (-0.0011, 1), (5.0, 1)], ids=str
)
def test_draws_and_forced_totals_may_differ_by_what_is_allowed(responses, shift, n_failed):
    """One answer's total is moved; what is allowed is a thousandth of a nat."""
    forced = {name: r.diagnostics["total_logprob"] for name, r in responses.items()}
    moved = PROMPTS[2].prompt_id
    check = pipeline.generation_check(
        responses, {**forced, moved: forced[moved] + shift}, allowed=1e-3
    )
    assert (check.n_checked, check.n_failed) == (5, n_failed)
    assert check.max_difference == pytest.approx(abs(shift))


def test_an_answer_that_could_not_be_forced_is_not_counted_as_checked(responses):
    forced = {name: r.diagnostics["total_logprob"] for name, r in responses.items()}
    check = pipeline.generation_check(
        responses, {**forced, PROMPTS[0].prompt_id: None}, allowed=1e-3
    )
    assert (check.n_checked, check.n_failed) == (4, 0)
