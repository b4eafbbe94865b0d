"""A local model as judge: the likeliest label is the verdict, and probabilities are kept."""

import json
import math
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp import models
from elo_exp.errors import UserError
from elo_exp.judges.local import LABELS, SCORE_PREFIX
from elo_exp.pipeline import get_replies
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.answer_store import Store
from tests.data import COMPARISON, shipped
from tests.tiny_models import tiny_model

# The tiny tokenizer makes five tokens of a word. The third is longest.
TEXTS = ["Yes.", "Pressure on the wound.", "It may depend. " * 9, "Never."]
SETTINGS = {"dtype": "float32", "device": "cpu", "cache_dir": "absent"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    return tiny_model(folder, kind="llama", n_layers=2, spread=0.4)


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    models.release_weights()


def judge(model: Path, **changes: Any) -> Any:
    return shipped("judge", "local", **{"model": str(model), **SETTINGS, **changes})


def requests(scale: tuple[float, float] | None = None) -> list[JudgeRequest]:
    return [
        JudgeRequest(
            key=text,
            system="Judge.",
            render=lambda subject: f"Why?\nA: {subject.response_a}\nB: No.",
            n_chars=0,
            schema="{}",
            subject=replace(COMPARISON, response_a=text),
            scale=scale,
        )
        for text in TEXTS
    ]


def replies(of: Any, scale: Any = None) -> dict[str, JudgeReply]:
    return {reply.key: reply for reply in of.answer(requests(scale))}


def found(reply: JudgeReply) -> tuple[dict[str, Any], dict[str, float]]:
    """The answer, and the probabilities of the labels."""
    return json.loads(reply.text), json.loads(reply.message or "")["probabilities"]


def one_by_one(of: Any, asked: JudgeRequest, lead: str, label: str) -> float:
    """The log-probability of a label after the lead, a forward pass for each of its tokens."""
    lm, total = models.load_weights(of.weights), 0.0
    ids = of.chat_ids(lm, asked.messages)
    ids += lm.tokenizer(lead)["input_ids"]
    for token in lm.tokenizer(f" {label}")["input_ids"]:
        with torch.inference_mode():
            logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
        total += float(logits.log_softmax(dim=-1)[token])
        ids = [*ids, token]
    return total


@pytest.mark.system
def test_a_labels_probability_is_that_of_its_tokens_and_the_likeliest_is_the_verdict(
    model, tmp_path
):
    """The tiny tokenizer writes ' TIE' as three tokens and ' B' as two."""
    of = judge(model)
    made = replies(of)
    for asked in requests():
        expected = {n: one_by_one(of, asked, "VERDICT:", n) for n in LABELS}
        message = json.loads(made[asked.key].message or "")
        assert message["log_probabilities"] == pytest.approx(expected, abs=1e-3)
        answer, chances = found(made[asked.key])
        assert sum(chances.values()) == pytest.approx(1)
        odds = math.log(chances["A"] / chances["TIE"])
        assert odds == pytest.approx(expected["A"] - expected["TIE"], abs=1e-3)
        assert answer["verdict"] == max(expected, key=expected.__getitem__)
        assert answer["evidence_b"] == f"probability {chances['B']:.3f}"


@pytest.mark.system
def test_the_verdicts_do_not_depend_on_the_batch(model, tmp_path):
    """The responses differ in length, so that a batch is padded."""
    one, other = (replies(judge(model, batch_size=n)) for n in (1, 4))
    for key, reply in one.items():
        assert found(reply)[1] == pytest.approx(found(other[key])[1], abs=1e-4)


def test_a_request_that_does_not_fit_is_invalid_and_the_rest_is_judged(tmp_path):
    short = {"kind": "llama", "n_layers": 2, "max_position_embeddings": 90}
    made = replies(judge(tiny_model(tmp_path / "model", **short)))
    reasons = [made[text].stop_reason for text in TEXTS]
    assert reasons.pop(2) == "model_context_window_exceeded"
    assert set(reasons) == {"end_turn"}


def test_the_model_is_loaded_for_requests_and_then_released(model, tmp_path):
    of = judge(model)
    loaded = weakref.ref(models.load_weights(of.weights).model)
    replies(of)
    assert loaded() is None
    with Store(tmp_path / "store.sqlite") as store:
        assert get_replies([], judge(tmp_path / "absent"), store) == {}


# One response by itself


@pytest.mark.system
def test_a_score_is_the_mean_over_the_whole_numbers_of_its_scale(model, tmp_path):
    """The tiny tokenizer writes 11 as 1 and 1: what begins 11 does not count as 1.

    The interval holds the middle 95% of the probability and no more.
    """
    of = judge(model)
    made = replies(of, (0, 20))
    tokenizer = models.load_weights(of.weights).tokenizer
    (one, *_) = tokenizer([" 1"])["input_ids"]
    assert [tokenizer(f" {n}")["input_ids"][:-1] for n in (11, 19)] == [one] * 2
    for asked in requests()[:2]:
        logprobs = [one_by_one(of, asked, SCORE_PREFIX, str(n)) for n in range(21)]
        expected = [math.exp(p) for p in logprobs]
        expected[1] -= sum(expected[11:20])
        expected[2] -= expected[20]
        mean = sum(n * p for n, p in enumerate(expected)) / sum(expected)
        answer, chances = found(made[asked.key])
        assert answer["score"] == pytest.approx(mean, abs=1e-5)
        below = sum(p for n, p in chances.items() if float(n) < answer["low"])
        above = sum(p for n, p in chances.items() if float(n) > answer["high"])
        assert below < 0.025
        assert above <= 0.025 + 1e-9


def test_a_scale_without_whole_numbers_to_choose_among_is_refused(model, tmp_path):
    message = r"scoring must have 2 to 101 whole numbers for a local judge, .*; 0 to 0\.5 has 1\."
    with pytest.raises(UserError, match=message):
        replies(judge(model), (0, 0.5))


@pytest.mark.system
def test_load_kwargs_go_to_from_pretrained(model, tmp_path):
    """A judge of several GPUs, or quantised: device_map and quantization_config, as of entrants."""
    eager = {"load_kwargs": {"attn_implementation": "eager", "device_map": "auto"}}
    loaded = models.load_weights(judge(model, **eager).weights)
    assert loaded.model.config._attn_implementation == "eager"
    plain, other = (replies(judge(model, **k)) for n, k in
                    (("plain", {}), ("eager", eager)))  # fmt: skip
    assert [*plain] == [*other]
    with pytest.raises(UserError, match="adapters must be merged into a 16-bit model"):
        judge(model, adapters=["a"], load_kwargs={"quantization_config": {}})
