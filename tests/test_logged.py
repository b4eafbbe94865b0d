"""Logged answers and fresh draws: what is read, and what is said of a file that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.oracle.dataset import Dataset, dataset, fold
from elo_exp.oracle.logged import (
    FreshDraw,
    LoggedSample,
    policies_with_draws,
    read_draws,
    read_logged,
    read_truth,
)
from elo_exp.records import UserError
from tests.data import shared_data

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
DRAW = {"prompt_id": "p1", "draw_idx": 0, "judge_score": 0.4}


def written(tmp_path: Path, *rows: Any, name: str = "logged.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def test_a_row_is_read_as_it_is_written(tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, GOOD))
    assert sample == LoggedSample.from_dict(GOOD)
    assert sample.target_logps == {"clone": -10.0, "premium": None}
    assert sample.judge_score_variance is None


def test_later_names_of_the_log_probabilities_are_read_too(tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, LATER))
    assert (sample.total_logprob, sample.target_logps, sample.policy) == (
        -10.0,
        {"clone": -10.0},
        "base",
    )


def test_a_prompt_has_an_id_or_a_text(tmp_path: Path):
    rows = [
        {**without("prompt_id"), "metadata": {"prompt_id": "m1"}},
        {**without("prompt_id"), "prompt": "Why?"},
    ]
    first, second = read_logged(written(tmp_path, *rows))
    assert first.prompt_id == "m1"
    assert len(second.prompt_id) == 40


def test_the_length_of_a_response_is_counted_where_it_is_not_given(tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, {**GOOD, "response": "Yes."}))
    assert sample.response_chars == 4


def test_rounding_above_certainty_is_certainty(tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, {**GOOD, "total_logprob": 5e-8}))
    assert sample.total_logprob == 0.0


WRONG = [
    (without("target_logps"), "has no field 'target_logps' (found prompt_id, policy"),
    (
        {**without("target_logps"), "target_logprobs": {}},
        "target_logprobs). Is it 'target_logprobs'? Rename it.",
    ),
    ({**without("judge_score"), "score": 1}, "has no field 'judge_score'"),
    (
        {**GOOD, "base_policy_logprob": -10.0},
        "has 'base_policy_logprob', and logged.jsonl:1 has 'total_logprob'. Keep to one",
    ),
    (
        LATER,
        "has 'base_policy_logprob', and logged.jsonl:1 has 'total_logprob'. Keep to one of the two names.",
    ),
    (
        {**GOOD, "total_logprob": 12.5},
        "total_logprob is 12.5. Expected the sum of the tokens' log-probabilities in nats",
    ),
    ({**GOOD, "target_logps": {"clone": 0.2}}, "target_logps.clone is 0.2. Expected the sum"),
    (
        {**GOOD, "total_logprob": float("nan")},
        "total_logprob is nan. Expected a finite number, or null",
    ),
    ({**GOOD, "total_logprob": "-10"}, "total_logprob is '-10'. Expected a finite number, or null"),
    (
        {**GOOD, "target_logps": {}},
        "target_logps is {}. Expected an object, policy: log-probability or null",
    ),
    (
        {**GOOD, "oracle_label": 7},
        "oracle_label is 7. Expected a number in [0, 1]: divide one of a scale from 0 to 10 by",
    ),
    ({**GOOD, "judge_score": 1.2}, "judge_score is 1.2. Expected a number in [0, 1]"),
    ({**GOOD, "judge_score": None}, "judge_score is None. Expected a number in [0, 1]"),
    (
        {**GOOD, "judge_score_variance": -1},
        "judge_score_variance is -1. Expected 0 or more, or null.",
    ),
    ({**GOOD, "draw_idx": 0.5}, "draw_idx is 0.5. Expected a whole number from 0."),
    ({**GOOD, "response_chars": "long"}, "response_chars is 'long'. Expected 0 or more, or null."),
    (
        {**GOOD, "policy": "other"},
        "policy is 'other', above it was 'base'. Expected the answers of one logging policy",
    ),
    (without("prompt_id"), "has neither prompt_id nor prompt."),
    (
        GOOD,
        "prompt 'p1', draw_idx 0 was there before (logged.jsonl:1). Remove one of the two, or number several",
    ),
    ([1], "found a list. Expected one JSON object a line."),
]


@pytest.mark.parametrize(("row", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_a_wrong_row_is_named_with_its_remedy(row: Any, words: str, tmp_path: Path):
    first = GOOD if row is GOOD else {**GOOD, "prompt_id": "p0"}
    with pytest.raises(UserError) as refusal:
        read_logged(written(tmp_path, first, row))
    said = str(refusal.value).replace(f"{tmp_path}/", "")
    assert said.startswith("logged.jsonl:2: ")
    assert words in said


def test_an_empty_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="logged.jsonl: is empty"):
        read_logged(written(tmp_path))


@pytest.mark.parametrize("name", ["clone.jsonl", "clone_responses.jsonl"])
def test_draws_stand_in_a_file_of_their_policy(name: str, tmp_path: Path):
    written(tmp_path, DRAW, {**DRAW, "draw_idx": 1}, name=name)
    draws = read_draws(tmp_path, "clone")
    assert draws is not None
    assert [draw.draw_idx for draw in draws] == [0, 1]
    assert {draw.policy for draw in draws} == {"clone"}
    assert policies_with_draws(tmp_path) == ["clone"]


def test_a_policy_may_have_no_file_of_draws(tmp_path: Path):
    assert read_draws(tmp_path, "clone") is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            DRAW,
            r"clone.jsonl:2: prompt 'p1', draw_idx 0 was there before \(.*clone.jsonl:1\). Remove one of the two",
        ),
        (
            {**DRAW, "policy": "premium"},
            "clone.jsonl:2: policy is 'premium' in the file of 'clone'",
        ),
        (
            {**DRAW, "prompt_id": "p2", "oracle_label": 3},
            "clone.jsonl:2: oracle_label is 3. Expected a number in",
        ),
    ],
)
def test_a_wrong_draw_is_named_with_its_remedy(row: Any, words: str, tmp_path: Path):
    written(tmp_path, DRAW, row, name="clone.jsonl")
    with pytest.raises(UserError, match=words):
        read_draws(tmp_path, "clone")


def test_the_truth_is_a_mean_for_each_policy(tmp_path: Path):
    path = tmp_path / "truth.json"
    path.write_text('{"clone": {"mean": 0.7, "n": 500, "std_error": 0.01}}', encoding="utf-8")
    assert read_truth(path)["clone"].std_error == 0.01
    path.write_text('{"clone": 0.7}', encoding="utf-8")
    with pytest.raises(UserError, match="truth.json: not readable as"):
        read_truth(path)


# Columns


def columns(samples: list[LoggedSample], draws: dict[str, list[FreshDraw]]) -> Dataset:
    return dataset(samples, fresh=draws, probe={}, policies=None, n_folds=5, seed=42)


def samples(n: int, **more: Any) -> list[LoggedSample]:
    return [LoggedSample.from_dict({**GOOD, "prompt_id": f"p{i}", **more}) for i in range(n)]


def test_what_is_not_known_is_not_a_number():
    draws = [FreshDraw(prompt_id="p1", policy="premium", judge_score=0.5)]
    data = columns(samples(12), {"premium": draws})
    assert data.policies == ("clone", "premium")
    assert np.isnan(data.target_logprob["premium"]).all()
    assert np.isnan(data.logged.variance).all()
    assert data.n_labels == 12


def test_a_prompt_keeps_its_number_and_fold_in_every_table():
    draws = [FreshDraw(prompt_id=f"p{i}", policy="clone", judge_score=0.5) for i in (3, 1)]
    data = columns(samples(12, target_logps={"clone": -9.0}), {"clone": draws})
    assert [data.prompts[i] for i in data.fresh["clone"].prompt] == ["p3", "p1"]
    assert data.fresh["clone"].fold.tolist() == data.logged.fold[[3, 1]].tolist()


def test_the_fold_of_a_prompt_is_a_hash_of_its_id_the_seed_and_how_many_there_are():
    folds = [fold(f"q{i}", n_folds=5, seed=42) for i in range(5000)]
    assert np.bincount(folds).tolist() == pytest.approx([1000] * 5, abs=120)
    assert folds[:3] == [fold(f"q{i}", n_folds=5, seed=42) for i in range(3)]
    assert folds != [fold(f"q{i}", n_folds=5, seed=43) for i in range(5000)]


@pytest.mark.parametrize(
    ("label", "words"), [(None, "answers to no prompts have"), (0.5, "answers to 9 prompts have")]
)
def test_too_few_labels_are_refused(label: float | None, words: str):
    few = [
        *samples(9, oracle_label=label),
        *(
            LoggedSample.from_dict({**GOOD, "prompt_id": f"r{i}", "oracle_label": None})
            for i in range(5)
        ),
    ]
    with pytest.raises(
        UserError, match=f"oracle.logged: {words}.*Expected 10 or more: label a random slice"
    ):
        columns(few, {})


def test_ten_labels_on_one_prompt_are_one():
    thrice = [LoggedSample.from_dict({**GOOD, "draw_idx": i}) for i in range(12)]
    with pytest.raises(UserError, match="answers to 1 prompts have an oracle_label"):
        columns(thrice, {})


def test_a_policy_of_which_nothing_is_known_is_named():
    with pytest.raises(
        UserError, match="oracle.policies: 'premium' has neither a log-probability in any row nor"
    ):
        columns(samples(12), {})


def test_draws_on_other_prompts_altogether_are_refused():
    draws = [FreshDraw(prompt_id="q-1", policy="clone", judge_score=0.5)]
    with pytest.raises(
        UserError,
        match=r"share no prompt_id with the logged answers \(for example 'q-1' and 'p0'\)",
    ):
        columns(samples(12, target_logps={"clone": -9.0}), {"clone": draws})


def test_the_sample_is_read_whole():
    folder = shared_data("oracle_sample")
    logged = read_logged(folder / "logged.jsonl")
    draws = {
        policy: read_draws(folder / "fresh", policy) or [] for policy in logged[0].target_logps
    }
    data = columns(logged, draws)
    assert (len(data.logged), data.n_labels, len(data.fresh)) == (1000, 480, 3)
    assert policies_with_draws(folder / "fresh") == [
        "base",
        "clone",
        "parallel_universe_prompt",
        "unhelpful",
    ]
