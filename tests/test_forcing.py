"""The log-probability stage: stored as they are computed, never twice, and checked."""

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
from elo_exp.store.store import Store
from elo_exp.store.usage import Usage
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
    """The logging policy's, base."""
    yield {
        response.prompt_id: response for response in policies["base"].generate(PROMPTS)
    }
    causal_lm.release()


def policy(cache: Path, name: str, **changes: Any) -> Any:
    return shipped(
        "entrant",
        f"tiny_{name}",
        **{"cache_dir": str(cache), "max_new_tokens": 8, **changes},
    )


def force(
    store: Path, policies: Any, responses: Any, prompts: Any = PROMPTS
) -> tuple[Any, Usage]:
    with Store(store) as opened:
        return pipeline.teacher_force(
            prompts, responses, policies, opened
        ), opened.usage


def test_a_clone_shares_the_logging_policys_log_probabilities_and_costs_nothing(
    policies, responses, tmp_path, caplog
):
    store = tmp_path / "store.sqlite"
    causal_lm.release()
    with caplog.at_level(logging.INFO):
        first, usage = force(store, policies, responses)
    loads = [message for message in caplog.messages if message.startswith("loading")]
    assert len(loads) == 2  # of base, which unhelpful shares, and of premium
    assert list(first) == list(NAMES)
    ids = [prompt.prompt_id for prompt in PROMPTS]
    assert all(list(totals) == ids for totals in first.values())
    assert first["clone"] == first["base"]
    for other in ("unhelpful", "premium"):
        assert all(first[other][name] != first["base"][name] for name in responses)
    assert (usage.logprobs_wanted, usage.logprobs_forced, usage.logprobs_stored) == (
        20,
        15,
        5,
    )
    second, usage = force(store, policies, responses)
    assert (usage.logprobs_wanted, usage.logprobs_forced, usage.logprobs_stored) == (
        20,
        0,
        20,
    )
    assert second == first


def test_what_an_earlier_run_has_forced_is_not_forced_again(
    policies, responses, tmp_path
):
    store = tmp_path / "store.sqlite"
    force(store, policies, responses, PROMPTS[:2])
    _, usage = force(store, policies, responses)
    # Three prompts of three policies, and the clone's.
    assert (usage.logprobs_forced, usage.logprobs_stored) == (9, 11)


def test_only_answered_prompts_are_forced_and_counted(policies, responses, tmp_path):
    some = {prompt.prompt_id: responses[prompt.prompt_id] for prompt in PROMPTS[:3]}
    with Store(tmp_path / "store.sqlite") as store:
        assert pipeline.n_forced(PROMPTS, some, policies, store) == dict.fromkeys(
            NAMES, 0
        )
        found = pipeline.teacher_force(PROMPTS, some, {"base": policies["base"]}, store)
        assert set(found["base"]) == set(some)
        counts = pipeline.n_forced(PROMPTS, some, policies, store)
    assert counts == {"base": 3, "clone": 3, "unhelpful": 0, "premium": 0}


def test_the_key_of_a_log_probability_has_all_that_can_change_it_and_nothing_else(
    policies, cache
):
    def key(**changes: Any) -> Any:
        return policy(cache, "base", **changes).logprob_key(PROMPTS[0])

    others = [
        {"temperature": 0.9},
        {"system_prompt": "Be brief."},
        {"chat_template": "none"},
        {"dtype": "bfloat16"},
    ]
    assert all(key(**change) != key() for change in others)
    same = [{"max_new_tokens": 9}, {"batch_size": 2}, {"entrant_id": "ann"}]
    assert all(key(**change) == key() for change in same)


# Policies


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("probe", "entrant.ann: records no log-probabilities. Expected logprobs=true"),
        ("silent", "entrant.ann: records no log-probabilities."),
        (
            "longer",
            "entrant.ann: cuts its answers at 9 tokens, base at 8. Expected one max_new",
        ),
    ],
)
def test_an_entrant_that_is_no_policy_is_refused(policies, cache, name, message):
    assert pipeline.as_policies(policies, logging_policy="base") == policies
    others = {
        "probe": shipped("entrant", "probe_reference"),
        "silent": policy(cache, "base", logprobs=False),
        "longer": policy(cache, "base", max_new_tokens=9),
    }
    with pytest.raises(UserError) as error:
        pipeline.as_policies(
            {"base": policies["base"], "ann": others[name]}, logging_policy="base"
        )
    assert str(error.value).startswith(message)


def test_the_logging_policy_is_one_of_the_policies(policies):
    with pytest.raises(
        UserError, match="logging_policy: found 'p0'. Expected one of base, clone"
    ):
        pipeline.as_policies(policies, logging_policy="p0")


# Checks


def test_without_a_clone_there_is_nothing_to_check(policies, responses):
    without = {name: policies[name] for name in ("base", "unhelpful", "premium")}
    check = pipeline.clone_check(
        PROMPTS, responses, without, logging_policy="base", n_answers=5, seed=1
    )
    assert (check.n_checked, check.n_failed, check.worst) == (0, 0, None)
    check.check()


def test_a_clone_whose_weights_change_during_the_run_is_found_out(
    policies, responses, cache, tmp_path
):
    for name in ("one", "two"):
        shutil.copytree(policies["base"].weights.model, tmp_path / name)
    pair = {
        name: policy(cache, "base", model=str(tmp_path / name), entrant_id=name)
        for name in ("one", "two")
    }
    assert pair["one"].logprob_key(PROMPTS[0]) == pair["two"].logprob_key(PROMPTS[0])
    shutil.copy(
        Path(policies["premium"].weights.model) / "model.safetensors", tmp_path / "two"
    )
    check = pipeline.clone_check(
        PROMPTS, responses, pair, logging_policy="one", n_answers=3, seed=1
    )
    assert (check.n_checked, check.n_failed) == (3, 3)
    message = (
        "log-probabilities of one and its clones: 3 of 3 answers differ by more than 0"
    )
    with pytest.raises(UserError, match=message):
        check.check()


def test_the_checked_answers_depend_on_the_seed_alone(policies, responses):
    def checked(order: int) -> Any:
        some = dict([*responses.items()][::order])
        return pipeline.clone_check(
            PROMPTS, some, policies, logging_policy="base", n_answers=2, seed=1
        )

    assert checked(1) == checked(-1)
    assert checked(1).n_checked == 2


@pytest.mark.parametrize(
    ("shift", "n_failed"), [(0.0, 0), (0.0009, 0), (0.0011, 1), (-0.0011, 1)], ids=str
)
def test_drawn_and_forced_totals_may_differ_by_what_is_allowed(
    responses, shift, n_failed
):
    """One answer's total is shifted; a thousandth of a nat is allowed; null is not checked."""
    forced = {name: r.diagnostics["total_logprob"] for name, r in responses.items()}
    forced[PROMPTS[2].prompt_id] += shift
    forced[PROMPTS[0].prompt_id] = None
    check = pipeline.generation_check(responses, forced, allowed=1e-3)
    assert (check.n_checked, check.n_failed) == (4, n_failed)
    assert check.max_difference == pytest.approx(abs(shift))
