"""A local model as judge: the likeliest label is the verdict, and probabilities are kept."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp import models, pipeline
from elo_exp.data.rubrics import Rubric
from elo_exp.data.scoring import ScoreRubric
from elo_exp.judges.local import LABELS, SCORE_LEAD, LocalJudge
from elo_exp.models.causal_lm import CausalLM
from elo_exp.records import Comparison, Item, JudgeReply, JudgeRequest, Score, UserError
from elo_exp.store.store import Store
from tests.data import COMPARISON, shipped
from tests.tiny_models import tiny_model

SYSTEM = "Judge."
TEMPLATE = (
    "{question}\n{reference}{expected}A: {response_a}\nB: {response_b}\n({nonce})"
)
COMPARISONS = [
    COMPARISON,
    *(
        Comparison(**{**COMPARISON.to_dict(), "prompt_id": f"p{i}", "response_a": text})
        for i, text in enumerate(
            ["Pressure on the wound.", "It may depend. " * 9, "Never."], start=2
        )
    ),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(
        tmp_path_factory.mktemp("judge"), kind="llama", n_layers=2, spread=0.4
    )


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    models.release()


@pytest.fixture
def rubric(tmp_path: Path) -> Rubric:
    """A short one: the tiny tokenizer makes five tokens of a word."""
    texts = {
        "rubric.md": "# version: v1\nWhich is better?",
        "system.md": SYSTEM,
        "pairwise.md": TEMPLATE,
    }
    for name, text in {**texts, "schema.json": "{}"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    rubric_md, system, pairwise, schema = (
        str(tmp_path / name) for name in (*texts, "schema.json")
    )
    return Rubric(
        dimension="factuality",
        path=rubric_md,
        system_path=system,
        template_path=pairwise,
        schema_path=schema,
    )


def judge(model: Path, **changes: Any) -> LocalJudge:
    settings = {
        "model": str(model),
        "dtype": "float32",
        "device": "cpu",
        "cache_dir": "absent",
        **changes,
    }
    made = shipped("judge", "local", **settings)
    assert isinstance(made, LocalJudge)
    return made


def requests(
    rubric: Rubric, of: LocalJudge, *, swaps: Sequence[bool] = (False,)
) -> list[JudgeRequest]:
    return [
        rubric.request(c, judge=of.model, position_swap=swap)
        for c in COMPARISONS
        for swap in swaps
    ]


def replies(
    rubric: Rubric, of: LocalJudge, folder: Path, **how: Any
) -> dict[str, JudgeReply]:
    with Store(folder / "store.sqlite") as store:
        return {
            reply.key: reply for reply in of.answer(requests(rubric, of, **how), store)
        }


def one_by_one(lm: CausalLM, ids: list[int], text: str) -> float:
    """The log-probability of a text after the tokens, a forward pass for each of its tokens."""
    total = 0.0
    for token in lm.tokenizer(text)["input_ids"]:
        with torch.inference_mode():
            logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
        total += float(logits.log_softmax(dim=-1)[token])
        ids = [*ids, token]
    return total


def test_a_labels_log_probability_is_the_sum_over_its_tokens(model, rubric, tmp_path):
    """The tiny tokenizer writes ' TIE' as three tokens and ' B' as two."""
    of = judge(model)
    found = replies(rubric, of, tmp_path)
    lm = models.load(of.weights)
    assert [len(lm.tokenizer(f" {label}")["input_ids"]) for label in LABELS] == [
        1,
        2,
        3,
    ]
    for request in requests(rubric, of):
        ids = of.chat_ids(lm, request.user, request.system)
        ids += lm.tokenizer("VERDICT:")["input_ids"]
        expected = {label: one_by_one(lm, ids, f" {label}") for label in LABELS}
        message = json.loads(found[request.key].message or "")
        assert message["log_probabilities"] == pytest.approx(expected, abs=1e-3)


def test_the_likeliest_label_is_the_verdict_and_the_three_are_normalised(
    model, rubric, tmp_path
):
    of = judge(model)
    found = replies(rubric, of, tmp_path)
    for request in requests(rubric, of):
        message = json.loads(found[request.key].message or "")
        chances, logs = message["probabilities"], message["log_probabilities"]
        assert sum(chances.values()) == pytest.approx(1)
        assert math.log(chances["A"] / chances["TIE"]) == pytest.approx(
            logs["A"] - logs["TIE"]
        )
        verdict = rubric.parse(request, found[request.key], judge_model=of.model)
        assert verdict.verdict == max(chances, key=chances.__getitem__)
        evidence = [f"{label}: probability {chances[label]:.3f}" for label in "AB"]
        assert verdict.reasoning == " | ".join(evidence)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_verdicts_do_not_depend_on_the_batch(model, rubric, tmp_path, batch_size):
    """The responses differ in length, so that a batch is padded."""
    expected = replies(rubric, judge(model), tmp_path / "one")
    found = replies(rubric, judge(model, batch_size=batch_size), tmp_path / "two")
    for key, reply in expected.items():
        one, two = (
            json.loads(r.message or "")["probabilities"] for r in (found[key], reply)
        )
        assert one == pytest.approx(two, abs=1e-4)


def test_a_request_that_does_not_fit_is_invalid_and_the_rest_is_judged(
    rubric, tmp_path
):
    """The third of four responses is nine sentences long."""
    short = tiny_model(
        tmp_path / "m", kind="llama", n_layers=2, max_position_embeddings=150
    )
    of = judge(short)
    found = replies(rubric, of, tmp_path)
    verdicts = [
        rubric.parse(request, found[request.key], judge_model=of.model)
        for request in requests(rubric, of)
    ]
    assert [v.verdict in LABELS for v in verdicts] == [True, True, False, True]
    assert verdicts[2].verdict == "INVALID"
    assert verdicts[2].stop_reason == "model_context_window_exceeded"


def test_the_model_is_loaded_for_requests_and_then_released(model, rubric, tmp_path):
    of = judge(model)
    loaded = weakref.ref(models.load(of.weights).model)
    replies(rubric, of, tmp_path)
    assert loaded() is None
    with Store(tmp_path / "store.sqlite") as store:
        assert list(judge(tmp_path / "absent").answer([], store)) == []


def test_the_cache_key_has_all_that_can_change_a_verdict_and_nothing_else(
    model, tmp_path
):
    key = judge(model).cache_key()
    for same in ({"batch_size": 1}, {"device": "auto"}):
        assert judge(model, **same).cache_key() == key
    for other in (
        {"lead": "Better:"},
        {"dtype": "bfloat16"},
        {"chat_template": "none"},
    ):
        assert judge(model, **other).cache_key() != key
    another = tiny_model(tmp_path, kind="llama", n_layers=2, seed=1)
    assert judge(another).cache_key() != key


# One response by itself


ITEMS = [
    Item(
        prompt_id=c.prompt_id,
        dimension="usefulness",
        source=c.source,
        prompt_text=c.prompt_text,
        entrant_id=c.entrant_a,
        response_text=c.response_a,
    )
    for c in COMPARISONS
]


@pytest.fixture
def scoring(tmp_path: Path) -> ScoreRubric:
    template = "{question}\n{reference}{expected}R: {response}\n({nonce}) {low} {high}"
    texts = {
        "score.md": "# version: v1\nHow good is it?",
        "score_system.md": SYSTEM,
        "pointwise.md": template,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path, system_path, template_path = (str(tmp_path / name) for name in texts)
    return ScoreRubric(
        dimension="usefulness",
        path=path,
        system_path=system_path,
        template_path=template_path,
        low=0,
        high=10,
        uncertainty=True,
    )


def scored(scoring: ScoreRubric, of: LocalJudge, folder: Path) -> list[Score]:
    with Store(folder / "store.sqlite") as store:
        return pipeline.score_responses(ITEMS, scoring, of, store)


def test_a_score_is_the_mean_over_the_whole_numbers_of_its_scale(
    model, scoring, tmp_path
):
    """The tiny tokenizer writes 11 as 1 and 1: what begins 11 does not count as 1."""
    scoring.high = 20
    of = judge(model)
    found = scored(scoring, of, tmp_path)
    lm = models.load(of.weights)
    assert [lm.tokenizer(f" {n}")["input_ids"][:-1] for n in (11, 19)] == [
        lm.tokenizer(" 1")["input_ids"]
    ] * 2
    for item, score in zip(ITEMS, found, strict=True):
        asked = scoring.request(item, judge="any")
        ids = of.chat_ids(lm, asked.user, asked.system)
        ids += lm.tokenizer(SCORE_LEAD)["input_ids"]
        chances = [math.exp(one_by_one(lm, ids, f" {number}")) for number in range(21)]
        chances[1] -= sum(chances[11:20])
        chances[2] -= chances[20]
        mean = sum(n * p for n, p in enumerate(chances)) / sum(chances)
        assert score.judge_score == pytest.approx(mean / 20, abs=1e-6)


def test_the_interval_holds_the_middle_of_the_probability_and_no_more(
    model, scoring, tmp_path
):
    of = judge(model)
    scored(scoring, of, tmp_path)
    with Store(tmp_path / "store.sqlite") as store:
        replies = [
            json.loads(value) for (value,) in store.read("SELECT value FROM answers")
        ]
    for reply in replies:
        answer, chances = (
            json.loads(reply["text"]),
            json.loads(reply["message"])["probabilities"],
        )
        numbers = {float(label): p for label, p in chances.items()}
        assert sum(numbers.values()) == pytest.approx(1)
        assert (
            sum(p for n, p in numbers.items() if answer["low"] <= n <= answer["high"])
            >= 0.95 - 1e-9
        )
        assert sum(p for n, p in numbers.items() if n < answer["low"]) < 0.025
        assert sum(p for n, p in numbers.items() if n > answer["high"]) <= 0.025 + 1e-9


def test_a_scale_without_whole_numbers_to_choose_among_is_refused(
    model, scoring, tmp_path
):
    scoring.high = 0.5
    with pytest.raises(
        UserError,
        match=r"scoring: found a scale from 0 to 0\.5 with 1 whole numbers\. Expected 2 to 101",
    ):
        scored(scoring, judge(model), tmp_path)
