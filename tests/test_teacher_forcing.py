"""Teacher forcing: log-probabilities of drawn tokens, reproducible to the last bit.

The tests under "Defects" are named after those of the original experiment.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp import HOME, pipeline
from elo_exp.data import bank
from elo_exp.entrants import Policy
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.models import causal_lm, teacher_forcing
from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.teacher_forcing import Forced, totals
from elo_exp.records import Prompt, Response, UserError
from elo_exp.store.store import Store
from tests.commands import attempt_program
from tests.data import BANK, shipped
from tests.tiny_models import tiny_model

PROMPTS = bank.load(BANK)[:6]
BY_ID = {prompt.prompt_id: prompt for prompt in PROMPTS}
ROUNDING = 1e-3  # nats: more than float32 makes of batches and of keys that are kept


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    causal_lm.release()


def policy(cache: Path, name: str = "base", **changes: Any) -> HuggingFaceEntrant:
    made = shipped(
        "entrant",
        f"tiny_{name}",
        **{"cache_dir": str(cache), "max_new_tokens": 12, **changes},
    )
    assert isinstance(made, HuggingFaceEntrant)
    return made


def answers(of: Policy, prompts: Sequence[Prompt] = PROMPTS) -> dict[str, Response]:
    return {response.prompt_id: response for response in of.generate(prompts)}


def forced(by: Policy, responses: Mapping[str, Response]) -> dict[str, float | None]:
    return {
        each.prompt_id: each.total_logprob
        for each in by.teacher_force(BY_ID, list(responses.values()))
    }


def recorded(responses: Mapping[str, Response]) -> dict[str, float]:
    return {
        name: response.diagnostics["total_logprob"]
        for name, response in responses.items()
    }


def rendered(lm: CausalLM, prompt: Prompt, template: str | None = None) -> list[int]:
    return causal_lm.chat_ids(
        lm, prompt.text, system_prompt=None, chat_template=template
    )


# What a log-probability is


def test_it_is_the_sum_over_the_tokens_each_after_those_before_it(cache):
    """A pass over the whole prefix for each token."""
    base = policy(cache, temperature=0.7)
    response = answers(base, PROMPTS[:1])[PROMPTS[0].prompt_id]
    lm = causal_lm.load(base.weights)
    ids, expected = rendered(lm, PROMPTS[0]), 0.0
    for token in response.diagnostics["token_ids"]:
        with torch.inference_mode():
            logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
        expected += float((logits / 0.7).log_softmax(dim=-1)[token])
        ids.append(token)
    (total,) = forced(base, {response.prompt_id: response}).values()
    assert total == pytest.approx(expected, abs=1e-4)
    assert response.diagnostics["total_logprob"] == pytest.approx(expected, abs=1e-4)


def test_an_answer_longer_than_a_block_is_the_same_sum(cache, monkeypatch):
    base = policy(cache)
    responses = answers(base)
    whole = forced(base, responses)
    monkeypatch.setattr(teacher_forcing, "_ROWS", 5)
    assert forced(base, responses) == pytest.approx(whole, abs=1e-9)


def test_a_log_probability_is_finite_and_not_above_zero():
    assert teacher_forcing.check_logprob(0.0, "ann, p1") == 0.0
    with pytest.raises(
        ArithmeticError, match="ann, p1: the log-probability is 0.001, above zero"
    ):
        teacher_forcing.check_logprob(1e-3, "ann, p1")
    with pytest.raises(
        UserError, match="ann, p1: the log-probability is nan. Use dtype=float32"
    ):
        teacher_forcing.check_logprob(math.nan, "ann, p1")


# What is recorded


def test_an_answer_records_its_tokens_only_with_logprobs(cache):
    quiet = policy(cache, logprobs=False)
    (full,) = answers(policy(cache), PROMPTS[:1]).values()
    (plain,) = answers(quiet, PROMPTS[:1]).values()
    assert set(full.diagnostics) - set(plain.diagnostics) == {
        "token_ids",
        "total_logprob",
        "tokenizer",
    }
    assert full.response_text == plain.response_text
    assert len(full.diagnostics["token_ids"]) == full.diagnostics["n_tokens_generated"]
    json.dumps(full.to_dict())


@pytest.mark.parametrize("changes", [{"temperature": None}, {"top_p": 0.9}], ids=str)
def test_logprobs_need_a_temperature_and_the_whole_vocabulary(cache, changes):
    with pytest.raises(
        UserError,
        match="logprobs: found true with .* Expected a temperature and top_p=1.0",
    ):
        policy(cache, **changes)


# Defects of the original, by their numbers there


def test_defect_1_an_answer_is_scored_under_the_template_that_it_was_drawn_under(cache):
    of = policy(cache, "unhelpful")
    responses = answers(of)
    check = pipeline.generation_check(
        responses, forced(of, responses), allowed=ROUNDING
    )
    assert (check.n_checked, check.n_failed) == (6, 0)


def test_defect_1_another_template_is_found_by_the_check_of_draws_and_not_of_clones(
    cache,
):
    """The original drew under one template and scored under another; its clones agreed."""
    responses = answers(policy(cache))
    bare = {
        "base": policy(cache, chat_template="none"),
        "clone": policy(cache, "clone", chat_template="none"),
    }
    clones = pipeline.clone_check(
        PROMPTS, responses, bare, logging_policy="base", n_answers=6, seed=1
    )
    draws = pipeline.generation_check(
        responses, forced(bare["base"], responses), allowed=ROUNDING
    )
    assert (clones.n_checked, clones.n_failed) == (6, 0)
    assert (draws.n_checked, draws.n_failed) == (6, 6)
    with pytest.raises(
        UserError, match="as drawn and as forced: 6 of 6 answers differ by more"
    ):
        draws.check()


def test_defect_2_special_tokens_of_the_template_are_tokens_and_not_text(cache):
    lm = causal_lm.load(policy(cache).weights)
    names = ("<|user|>", "<|assistant|>")
    ids = rendered(lm, PROMPTS[0])
    counts = Counter(ids)
    assert [counts[lm.tokenizer.convert_tokens_to_ids(name)] for name in names] == [
        1,
        1,
    ]
    assert lm.tokenizer.decode(ids) == f"<|user|>\n{PROMPTS[0].text}\n<|assistant|>\n"


def test_defect_3_the_tokens_are_scored_and_never_the_text(cache):
    base = policy(cache)
    responses = answers(base)
    tokenizer = causal_lm.load(base.weights).tokenizer
    again = {
        name: tokenizer(r.response_text, add_special_tokens=False)["input_ids"]
        for name, r in responses.items()
    }
    assert any(
        again[name] != r.diagnostics["token_ids"] for name, r in responses.items()
    )
    silent = {
        name: dataclasses.replace(response, response_text="")
        for name, response in responses.items()
    }
    assert forced(base, silent) == forced(base, responses)


def test_defect_3_the_end_token_is_scored_only_where_the_model_generated_it(
    cache, monkeypatch
):
    """A frequent token is declared an end token, so that some answers end and some do not."""
    base = policy(cache)
    full = answers(base)
    said = Counter(
        token for r in full.values() for token in set(r.diagnostics["token_ids"][2:])
    )
    end, _ = said.most_common(1)[0]
    lm = causal_lm.load(base.weights)
    monkeypatch.setattr(lm.model.generation_config, "eos_token_id", [0, end])
    responses = answers(base)
    reasons = Counter(response.finish_reason for response in responses.values())
    assert set(reasons) == {"stop", "length"}
    for response in responses.values():
        assert (response.diagnostics["token_ids"][-1] == end) == (
            response.finish_reason == "stop"
        )
    assert forced(base, responses) == pytest.approx(recorded(responses), abs=ROUNDING)
    items = {
        name: Forced(
            prompt_ids=rendered(lm, BY_ID[name]),
            token_ids=response.diagnostics["token_ids"][:-1],
        )
        for name, response in responses.items()
    }
    without_the_last = dict(totals(lm, items, temperature=1.0, label="ann"))
    assert all(
        without_the_last[name] > total
        for name, total in forced(base, responses).items()
    )


def test_defect_4_the_temperature_is_applied_to_the_logits_that_are_scored(cache):
    cool, warm = (policy(cache, temperature=t) for t in (0.5, 1.0))
    responses = answers(cool)
    by_cool, by_warm = forced(cool, responses), forced(warm, responses)
    assert by_cool == pytest.approx(recorded(responses), abs=ROUNDING)
    assert all(abs(by_cool[name] - by_warm[name]) > 10 * ROUNDING for name in responses)


def test_defect_4_a_clone_loaded_anew_agrees_to_the_last_bit(cache, caplog):
    policies = {
        "base": policy(cache),
        "clone": policy(cache, "clone"),
        "premium": policy(cache, "premium"),
    }
    responses = answers(policies["base"])
    caplog.clear()
    with caplog.at_level("INFO"):
        check = pipeline.clone_check(
            PROMPTS, responses, policies, logging_policy="base", n_answers=4, seed=1
        )
    assert (check.n_checked, check.n_failed, check.max_difference) == (4, 0, 0.0)
    assert sum(record.message.startswith("loading") for record in caplog.records) == 2
    check.check()


def test_what_does_not_fit_the_model_has_no_log_probability_and_is_counted(
    cache, tmp_path, caplog
):
    base = policy(cache)
    responses = answers(base)
    long = dataclasses.replace(
        responses[PROMPTS[0].prompt_id],
        diagnostics={
            **responses[PROMPTS[0].prompt_id].diagnostics,
            "token_ids": [7] * 2040,
        },
    )
    with Store(tmp_path / "store.sqlite") as store, caplog.at_level("WARNING"):
        found = pipeline.teacher_force(
            PROMPTS, {**responses, long.prompt_id: long}, {"base": base}, store
        )["base"]
    assert found[long.prompt_id] is None
    assert all(found[prompt.prompt_id] < 0 for prompt in PROMPTS[1:])
    assert caplog.messages == [
        "warning: base: 1 of 6 prompts with their answers are longer than it takes, and have no log-probability"
    ]


# The same again


def test_neither_order_nor_company_nor_the_number_of_threads_changes_a_bit(cache):
    base = policy(cache)
    responses = answers(base)
    expected = forced(base, responses)
    assert forced(base, responses) == expected
    assert forced(base, dict(reversed(responses.items()))) == expected
    assert {
        name: forced(base, {name: response})[name]
        for name, response in responses.items()
    } == expected
    torch.set_num_threads(2)
    try:
        assert forced(base, responses) == expected
    finally:
        torch.set_num_threads(1)


ELSEWHERE = """
import json, sys
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.records import Prompt, Response
settings, prompts, responses = json.loads(sys.argv[1])
prompts = {row["prompt_id"]: Prompt.from_dict(row) for row in prompts}
made = HuggingFaceEntrant(**settings).teacher_force(prompts, [Response.from_dict(row) for row in responses])
print(json.dumps({forced.prompt_id: forced.total_logprob for forced in made}))
"""


def test_another_process_changes_no_bit(cache, tmp_path):
    base = policy(cache)
    responses = answers(base, PROMPTS[:3])
    rows = [
        [row.to_dict() for row in some] for some in (PROMPTS[:3], responses.values())
    ]
    given = json.dumps([dataclasses.asdict(base), *rows])
    ran = attempt_program(
        sys.executable, "-c", ELSEWHERE, given, folder=tmp_path, PYTHONPATH=str(HOME)
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == forced(base, responses)


# Whose tokens they are


def test_tokens_of_another_tokenizer_are_refused(cache, tmp_path, monkeypatch):
    other = policy(
        cache, model=str(tiny_model(tmp_path / "other", n_layers=2)), entrant_id="other"
    )
    responses = answers(policy(cache), PROMPTS[:1])
    message = "other: the answer of tiny_base to .* has the tokens of another tokenizer, or of one"
    with pytest.raises(UserError, match=message):
        forced(other, responses)
    base = policy(cache)
    config = causal_lm.load(base.weights).model.generation_config
    monkeypatch.setattr(config, "eos_token_id", [0, 9])
    with pytest.raises(UserError, match="or of one with other end tokens"):
        forced(base, responses)


def test_an_answer_without_recorded_tokens_is_not_tokenised_again(cache):
    message = "has no recorded token_ids. Expected .* entrant.tiny_base.logprobs=true"
    with pytest.raises(UserError, match=message):
        forced(policy(cache), answers(policy(cache, logprobs=False), PROMPTS[:1]))
