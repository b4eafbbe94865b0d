"""Teacher forcing: log-probabilities of drawn tokens, reproducible to the last bit, stored once.

The tests under "Defects" are named after those of the original experiment.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.errors import UserError
from elo_exp.models import checkpoints
from elo_exp.records import Response
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from tests.data import BANK, shipped
from tests.tiny_models import answers, forced, tiny_model

PROMPTS = bank.load_bank(BANK)[:6]
BY_ID = {prompt.prompt_id: prompt for prompt in PROMPTS}
ROUNDING = 1e-3  # nats: more than float32 makes of batches and of keys that are kept
NAMES = ("base", "clone", "unhelpful", "premium")
Totals = dict[str, float | None]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    models.release_weights()


def policy(cache: Path, name: str = "base", **changes: Any) -> HuggingFaceEntrant:
    settings = {"cache_dir": str(cache), "max_new_tokens": 12, **changes}
    made = shipped("entrant", f"tiny_{name}", **settings)
    assert isinstance(made, HuggingFaceEntrant)
    return made


def recorded(responses: Mapping[str, Response]) -> dict[str, float]:
    return {name: r.diagnostics["total_logprob"] for name, r in responses.items()}


def with_tokens(response: Response, tokens: Sequence[int]) -> Response:
    diagnostics = {**response.diagnostics, "token_ids": list(tokens)}
    return dataclasses.replace(response, diagnostics=diagnostics)


@pytest.fixture(scope="module")
def policies(cache) -> dict[str, HuggingFaceEntrant]:
    return {name: policy(cache, name) for name in NAMES}


@pytest.fixture(scope="module")
def responses(policies) -> dict[str, Response]:
    """The logging policy's, base."""
    return answers(policies["base"], PROMPTS)


# What a log-probability is


def test_it_is_the_sum_over_the_tokens_each_after_those_before_it(cache):
    """A pass over the whole prefix for each token."""
    base = policy(cache, temperature=0.7)
    response = answers(base, PROMPTS[:1])[PROMPTS[0].prompt_id]
    lm = models.load_weights(base.weights)
    ids, expected = base.chat_ids(lm, PROMPTS[0].sent(None)), 0.0
    for token in response.diagnostics["token_ids"]:
        with torch.inference_mode():
            logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
        expected += float((logits / 0.7).log_softmax(dim=-1)[token])
        ids.append(token)
    (total,) = forced(base, {response.prompt_id: response}).values()
    assert total == pytest.approx(expected, abs=1e-4)
    assert response.diagnostics["total_logprob"] == pytest.approx(expected, abs=1e-4)


def test_an_answer_longer_than_a_block_is_the_same_sum(
    policies, responses, monkeypatch
):
    whole = forced(policies["base"], responses)
    monkeypatch.setattr(checkpoints, "_LOGPROB_BLOCK_ROWS", 5)
    assert forced(policies["base"], responses) == pytest.approx(whole, abs=1e-9)


def test_a_log_probability_that_overflows_is_refused(policies, responses, monkeypatch):
    lm = models.load_weights(policies["base"].weights)
    broken = torch.full((32,), torch.nan)
    monkeypatch.setattr(lm.model.model.norm.weight, "data", broken)
    message = (
        "tiny_base gives the answer to .* a log-probability of nan. Use dtype=float32"
    )
    with pytest.raises(UserError, match=message):
        forced(policies["base"], responses)


def test_an_answer_records_its_tokens_only_with_logprobs(cache, responses):
    quiet = policy(cache, logprobs=False)
    plain = answers(quiet, PROMPTS)[PROMPTS[0].prompt_id]
    full = responses[PROMPTS[0].prompt_id]
    more = set(full.diagnostics) - set(plain.diagnostics)
    assert more == {"token_ids", "total_logprob", "tokenizer"}
    assert full.response_text == plain.response_text
    assert len(full.diagnostics["token_ids"]) == full.diagnostics["n_tokens_generated"]
    message = (
        r"has no recorded tokens\. Generate .*\n  entrant\.tiny_base\.logprobs=true"
    )
    with pytest.raises(UserError, match=message):  # the text is not tokenised again
        forced(policy(cache), {plain.prompt_id: plain})
    for changes in ({"temperature": None}, {"top_p": 0.9}):
        with pytest.raises(
            UserError,
            match="logprobs must be false unless temperature is set and top_p is 1; got ",
        ):
            policy(cache, **changes)


@pytest.mark.system
def test_tokens_of_another_tokenizer_are_refused(
    cache, policies, responses, tmp_path, monkeypatch
):
    model = tiny_model(tmp_path / "other", n_layers=2)
    other = policy(cache, model=str(model), entrant_id="other")
    message = "other cannot score the answer of tiny_base to .*: their tokenizers or end tokens differ"
    with pytest.raises(UserError, match=message):
        forced(other, responses)
    config = models.load_weights(policies["base"].weights).model.generation_config
    monkeypatch.setattr(config, "eos_token_id", [0, 9])
    with pytest.raises(UserError, match="their tokenizers or end tokens differ"):
        forced(policies["base"], responses)


# Defects of the original, by their numbers there


def test_defect_1_another_template_fails_the_check_of_draws_and_not_of_clones(
    cache, responses
):
    """The original drew under one template and scored under another; its clones agreed."""
    bare = {name: policy(cache, name, chat_template="none") for name in NAMES[:2]}
    found = forced(bare["base"], responses)
    assert forced(bare["clone"], responses) == found
    message = "of 6 answers, drawn and scored again, differ by .* nats a token on average, more than"
    with pytest.raises(UserError, match=message):
        pipeline.compare_logprobs(responses, found, allowed=0.02)
    same = policy(cache, "unhelpful")
    drawn = answers(same, PROMPTS)
    check = pipeline.compare_logprobs(drawn, forced(same, drawn), allowed=None)
    assert (check.n_checked, check.allowed) == (6, 1e-4)


def test_defect_3_the_tokens_are_scored_and_never_the_text(policies, responses):
    base = policies["base"]
    tokenizer = models.load_weights(base.weights).tokenizer
    assert any(
        tokenizer(r.response_text)["input_ids"] != r.diagnostics["token_ids"]
        for r in responses.values()
    )
    silent = {
        name: dataclasses.replace(response, response_text="")
        for name, response in responses.items()
    }
    assert forced(base, silent) == forced(base, responses)


def test_defect_3_the_end_token_is_scored_only_where_the_model_generated_it(
    policies, responses
):
    """A frequent token is declared an end token, so that some answers end and some do not."""
    base = policies["base"]
    each = [set(r.diagnostics["token_ids"][2:]) for r in responses.values()]
    end, _ = Counter(token for some in each for token in some).most_common(1)[0]
    models.load_weights(base.weights).model.generation_config.eos_token_id = [0, end]
    drawn = answers(base, PROMPTS)
    reasons = {r.finish_reason for r in drawn.values()}
    assert reasons == {"stop", "length"}
    for response in drawn.values():
        ends = response.diagnostics["token_ids"][-1] == end
        assert ends == (response.finish_reason == "stop")
    found = forced(base, drawn)
    assert found == pytest.approx(recorded(drawn), abs=ROUNDING)
    cut = {n: with_tokens(r, r.diagnostics["token_ids"][:-1]) for n, r in drawn.items()}
    shorter = forced(base, cut)
    assert all(shorter[name] > total for name, total in found.items())


@pytest.mark.system
def test_defect_4_a_clone_loaded_anew_agrees_to_the_last_bit(policies, responses):
    found = forced(policies["base"], responses)
    models.release_weights()
    assert forced(policies["clone"], responses) == found


@pytest.mark.system
def test_neither_order_nor_company_nor_the_number_of_threads_changes_a_bit(
    policies, responses
):
    base = policies["base"]
    expected = forced(base, responses)
    assert forced(base, dict(reversed(responses.items()))) == expected
    alone = [forced(base, {name: response}) for name, response in responses.items()]
    assert {name: total for one in alone for name, total in one.items()} == expected
    torch.set_num_threads(2)
    try:
        assert forced(base, responses) == expected
    finally:
        torch.set_num_threads(1)


# The stage


def force(path: Path, policies: Any, responses: Any) -> tuple[Any, Usage]:
    with Store(path) as store:
        found = pipeline.teacher_force(
            PROMPTS, responses, policies, store, check_nats=None, check_answers=2
        )
        return found, store.usage


@pytest.mark.system
def test_a_clone_shares_the_logging_policys_log_probabilities_and_nothing_is_forced_twice(
    policies, responses, tmp_path, caplog
):
    store = tmp_path / "store.sqlite"
    some = {prompt.prompt_id: responses[prompt.prompt_id] for prompt in PROMPTS[:2]}
    with caplog.at_level("INFO"):
        found, usage = force(store, policies, some)
    assert set(found["base"]) == set(some)
    with Store(store) as opened:
        counts = pipeline.count_forced(PROMPTS, responses, policies, opened)
    assert counts == dict.fromkeys(NAMES, 2)
    loads = [message for message in caplog.messages if message.startswith("loading")]
    assert len(loads) == 2  # of base, which unhelpful shares, and of premium
    assert (usage.logprobs_forced, usage.logprobs_stored) == (6, 2)
    first, usage = force(store, policies, responses)
    assert (usage.logprobs_forced, usage.logprobs_stored) == (12, 12)
    second, usage = force(store, policies, responses)
    assert (usage.logprobs_wanted, usage.logprobs_forced) == (24, 0)
    assert second == first
    assert [(name, list(totals)) for name, totals in first.items()] == [
        (name, list(BY_ID)) for name in NAMES
    ]
    assert first["clone"] == first["base"]
    for other in ("unhelpful", "premium"):
        assert all(first[other][name] != first["base"][name] for name in responses)


def test_what_does_not_fit_the_model_has_no_log_probability_and_is_counted(
    policies, responses, tmp_path, caplog
):
    name = PROMPTS[0].prompt_id
    long = {**responses, name: with_tokens(responses[name], [7] * 2040)}
    base = {"base": policies["base"]}
    with caplog.at_level("WARNING"):
        found, _ = force(tmp_path / "store.sqlite", base, long)
    assert [key for key, total in found["base"].items() if total is None] == [name]
    (warning,) = caplog.messages
    assert "base: 1 of 6 prompts with their answers exceed its context" in warning


def test_an_entrant_that_is_no_policy_is_refused(policies, cache):
    assert pipeline.require_policies(policies) == policies
    probe = shipped("entrant", "probe_reference")
    for other, message in (
        (probe, "records no log-probabilities. Leave it out, or set"),
        (policy(cache, logprobs=False), "records no log-probabilities."),
        (
            policy(cache, max_new_tokens=9),
            "cuts its answers at 9 tokens, entrant.base at 12.",
        ),
    ):
        pair = {"base": policies["base"], "ann": other}
        with pytest.raises(UserError, match=f"^entrant.ann {message}"):
            pipeline.require_policies(pair)


@pytest.mark.parametrize("shift", [0.0, 0.05, -0.05, 0.07, -0.07])
def test_drawn_and_forced_totals_may_differ_by_what_is_allowed(responses, shift):
    """One answer of five with 12 tokens is shifted: .06 nats are .001 a token; null is not checked."""
    found: Totals = dict(recorded(responses))
    found[PROMPTS[2].prompt_id] += shift
    found[PROMPTS[0].prompt_id] = None
    if abs(shift) > 0.06:
        with pytest.raises(
            UserError,
            match=r"more than 0.001\.\n  The policy does not score what it drew",
        ):
            pipeline.compare_logprobs(responses, found, allowed=1e-3)
        return
    check = pipeline.compare_logprobs(responses, found, allowed=1e-3)
    assert check.n_checked == 5
    assert check.mean_difference == pytest.approx(abs(shift) / 60)
    assert check.max_difference == pytest.approx(abs(shift))
