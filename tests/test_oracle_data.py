"""Logged answers and fresh draws: how files are read, validated and arranged as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.oracle.data import (
    Dataset,
    FreshDraw,
    LoggedSample,
    build_dataset,
    fold,
    policies_with_draws,
    read_draws,
    read_logged,
    read_truth,
)
from elo_exp.records import UserError

GOOD: dict[str, Any] = {
    "prompt_id": "p1",
    "policy": "base",
    "judge_score": 0.8,
    "total_logprob": -10.0,
    "target_logps": {"clone": -10.0, "premium": None},
    "oracle_label": 0.7,
}
LATER = {
    "prompt_id": "p1",
    "judge_score": 0.8,
    "base_policy_logprob": -10.0,
    "target_policy_logprobs": {"clone": -10.0},
}
DRAW = {"prompt_id": "p1", "judge_score": 0.4}


def written(tmp_path: Path, *rows: Any, name: str = "logged.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key not in names}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            GOOD,
            {
                "target_logps": {"clone": -10.0, "premium": None},
                "judge_score_variance": None,
            },
        ),
        (
            LATER,
            {
                "total_logprob": -10.0,
                "target_logps": {"clone": -10.0},
                "policy": "base",
            },
        ),
        (
            {**without("prompt_id"), "metadata": {"prompt_id": "m1"}},
            {"prompt_id": "m1"},
        ),
        ({**GOOD, "prompt_id": 7}, {"prompt_id": "7"}),
        ({**GOOD, "response": "Yes."}, {"response_chars": 4}),
        (
            {**GOOD, "total_logprob": 5e-8},
            {"total_logprob": 0.0},
        ),  # rounding above certainty
    ],
)
def test_a_row_is_read(row: dict[str, Any], expected: dict[str, Any], tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, row))
    assert {name: getattr(sample, name) for name in expected} == expected


def test_a_prompt_without_an_id_is_named_by_its_text(tmp_path: Path):
    rows = [{**without("prompt_id"), "prompt": text} for text in ("Why?", "How?")]
    assert (
        len({sample.prompt_id for sample in read_logged(written(tmp_path, *rows))}) == 2
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            without("target_logps"),
            "has no field 'target_logps' (found prompt_id, policy",
        ),
        ({**without("judge_score"), "judge_scor": 1}, "Is it 'judge_scor'? Rename it."),
        (
            LATER,
            "has 'base_policy_logprob', and logged.jsonl:1 has 'total_logprob'. Keep to one",
        ),
        (
            {**GOOD, "total_logprob": 12.5},
            "total_logprob: found 12.5. Input should be less than",
        ),
        (
            {**GOOD, "target_logps": {"clone": 0.2}},
            "target_logps.clone: found 0.2. Input should",
        ),
        (
            {**GOOD, "total_logprob": float("nan")},
            "total_logprob: found nan. Input should be a f",
        ),
        (
            {**GOOD, "total_logprob": "-10"},
            "total_logprob: found '-10'. Input should be a valid",
        ),
        (
            {**GOOD, "target_logps": {}},
            "target_logps: found {}. Dictionary should have at least 1",
        ),
        ({**GOOD, "oracle_label": 7}, "Divide a label on a scale from 0 to 10 by 10"),
        (
            {**GOOD, "judge_score": None},
            "judge_score: found None. Input should be a valid number",
        ),
        ({**GOOD, "judge_score": True}, "judge_score: found True."),
        ({**GOOD, "judge_score_variance": -1}, "judge_score_variance: found -1."),
        (
            {**GOOD, "draw_idx": 0.5},
            "draw_idx: found 0.5. Input should be a valid integer.",
        ),
        ({**GOOD, "response_chars": "long"}, "response_chars: found 'long'."),
        ({**GOOD, "policy": "other"}, "policy is 'other', above it was 'base'."),
        (without("prompt_id"), "has neither prompt_id nor prompt."),
        (
            GOOD,
            "repeats prompt 'p1', draw_idx 0 of logged.jsonl:1. Remove one of the two, or",
        ),
        ([1], "found a list. Expected one JSON object a line."),
    ],
)
def test_an_invalid_row_is_refused_with_its_place(row: Any, words: str, tmp_path: Path):
    first = GOOD if row is GOOD else {**GOOD, "prompt_id": "p0"}
    with pytest.raises(UserError) as refusal:
        read_logged(written(tmp_path, first, row))
    message = str(refusal.value).replace(f"{tmp_path}/", "")
    assert message.startswith("logged.jsonl:2: ")
    assert words in message


@pytest.mark.parametrize("name", ["clone.jsonl", "clone_responses.jsonl"])
def test_draws_are_read_from_the_file_of_their_policy(name: str, tmp_path: Path):
    written(tmp_path, DRAW, {**DRAW, "draw_idx": 1}, name=name)
    draws = read_draws(tmp_path, "clone") or []
    assert [(draw.draw_idx, draw.policy) for draw in draws] == [
        (0, "clone"),
        (1, "clone"),
    ]
    assert policies_with_draws(tmp_path) == ["clone"]
    assert read_draws(tmp_path, "premium") is None


def test_draws_of_another_policy_and_empty_files_are_refused(tmp_path: Path):
    written(
        tmp_path,
        DRAW,
        {**DRAW, "prompt_id": "p2", "policy": "premium"},
        name="clone.jsonl",
    )
    with pytest.raises(
        UserError, match="clone.jsonl:2: policy is 'premium' in the file of 'clone"
    ):
        read_draws(tmp_path, "clone")
    written(tmp_path, name="premium.jsonl")
    with pytest.raises(UserError, match="premium.jsonl: is empty"):
        read_draws(tmp_path, "premium")
    with pytest.raises(UserError, match="logged.jsonl: is empty"):
        read_logged(written(tmp_path))


def test_the_truth_is_a_mean_for_each_policy(tmp_path: Path):
    path = tmp_path / "truth.json"
    path.write_text(
        '{"clone": {"mean": 0.7, "n": 500, "std_error": 0.01}}', encoding="utf-8"
    )
    assert read_truth(path)["clone"].std_error == 0.01
    for wrong in ('{"clone": 0.7}', '{"clone": {"mean": 7}}', "no JSON"):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(
            UserError, match=r'truth.json: .* Expected {"policy": {"mean": 0.7}}'
        ):
            read_truth(path)


# Columns


def columns(samples: list[LoggedSample], **draws: list[FreshDraw]) -> Dataset:
    return build_dataset(
        samples, fresh=draws, probe={}, policies=None, n_folds=5, seed=42
    )


def samples(n: int, **more: Any) -> list[LoggedSample]:
    return [
        LoggedSample.from_dict({**GOOD, "prompt_id": f"p{i}", **more}) for i in range(n)
    ]


def draw(prompt_id: str, policy: str) -> FreshDraw:
    return FreshDraw(prompt_id=prompt_id, policy=policy, judge_score=0.5)


def test_missing_values_are_not_a_number():
    data = columns(samples(12), premium=[draw("p1", "premium")])
    assert data.policies == ("clone", "premium")
    assert np.isnan(data.target_logprob["premium"]).all()
    assert np.isnan(data.logged.variance).all()
    assert data.n_labels == 12


def test_a_prompt_has_the_same_number_and_fold_in_every_table():
    draws = [draw(f"p{i}", "clone") for i in (3, 1)]
    data = columns(samples(12, target_logps={"clone": -9.0}), clone=draws)
    assert [data.prompts[i] for i in data.fresh["clone"].prompt] == ["p3", "p1"]
    assert data.fresh["clone"].fold.tolist() == data.logged.fold[[3, 1]].tolist()


def test_folds_are_a_hash_of_prompt_and_seed():
    folds = [fold(f"q{i}", n_folds=5, seed=42) for i in range(5000)]
    assert np.bincount(folds).tolist() == pytest.approx([1000] * 5, abs=120)
    assert folds != [fold(f"q{i}", n_folds=5, seed=43) for i in range(5000)]


CLONE = {"clone": -9.0}


@pytest.mark.parametrize(
    ("rows", "draws", "words"),
    [
        (
            samples(12, oracle_label=None),
            {},
            "answers to 0 prompts have an oracle_label. Expected",
        ),
        (
            [samples(1, draw_idx=i)[0] for i in range(12)],
            {},
            "answers to 1 prompts have",
        ),
        (samples(12), {}, "'premium' has neither log-probabilities nor fresh draws"),
        (
            samples(12, target_logps=CLONE),
            {"clone": [draw("q-1", "clone")]},
            r"have no prompt_id in common \(for example 'q-1' and 'p0'\)",
        ),
    ],
)
def test_a_data_set_that_tells_nothing_is_refused(
    rows: list[LoggedSample], draws: dict[str, list[FreshDraw]], words: str
):
    with pytest.raises(UserError, match=words):
        columns(rows, **draws)
