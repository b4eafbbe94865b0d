"""Logged answers and fresh draws: how files are read, validated and arranged as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.oracle.data import Dataset, Scale, read_dataset, read_truth
from elo_exp.records import UserError

GOOD: dict[str, Any] = {
    "prompt_id": "p1",
    "policy": "base",
    "judge_score": 0.8,
    "total_logprob": -10.0,
    "target_logps": {"clone": -10.0, "premium": None},
    "oracle_label": 0.7,
}
DRAW = {"prompt_id": "p1", "judge_score": 0.4}


def written(folder: Path, *rows: Any, name: str = "logged.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def changed(**changes: Any) -> dict[str, Any]:
    """A good row with some values changed; without those that are `...`."""
    row = {**GOOD, **changes}
    return {key: value for key, value in row.items() if value is not ...}


def many(n: int = 12, **changes: Any) -> list[dict[str, Any]]:
    return [changed(**{"prompt_id": f"p{i}", **changes}) for i in range(n)]


def read(folder: Path, *rows: Any, policies: Any = ("clone",), **given: Any) -> Dataset:
    path = written(folder, *rows)
    return read_dataset(path, policies=policies, seed=42, **given)


LATER = {
    "total_logprob": ...,
    "target_logps": ...,
    "base_policy_logprob": -9.0,
    "target_policy_logprobs": {"clone": -8.0},
}


@pytest.mark.parametrize(
    ("changes", "prompt", "numbers"),
    [
        ({}, "p", (-10.0, -10.0, np.nan)),
        (LATER, "p", (-9.0, -8.0, np.nan)),
        ({"prompt_id": ..., "metadata": {"prompt_id": "m1"}}, "m1", (-10, -10, np.nan)),
        ({"prompt_id": 7, "response": "Yes."}, "7", (-10.0, -10.0, 4)),
        # Rounding may leave a certain answer slightly above zero.
        ({"total_logprob": 5e-8, "response_chars": 3}, "p", (0.0, -10.0, 3)),
    ],
)
def test_a_row_is_read(
    changes: dict[str, Any], prompt: str, numbers: tuple[float, ...], tmp_path: Path
):
    data = read(tmp_path, changed(**{"prompt_id": "p", **changes}), *many())
    first = (data.logging_logprob, data.target_logprob["clone"], data.logged.chars)
    assert data.prompts[0] == prompt
    assert [column[0] for column in first] == pytest.approx(numbers, nan_ok=True)


def test_scores_labels_and_truth_are_on_the_declared_scale(tmp_path: Path):
    scale, given = Scale(1, 5), {"judge_score": 4.5, "oracle_label": 1}
    data = read(tmp_path, *many(**given), scale=scale)
    assert (data.scale, data.logged.score[0], data.logged.label[0]) == (scale, 4.5, 1)
    words = (
        ":13: judge_score: found 0.5. Expected a number from 1 to 5. Declare another"
    )
    with pytest.raises(UserError, match=words):
        read(tmp_path, *many(**given), changed(judge_score=0.5), scale=scale)
    path = written(tmp_path, {"clone": {"mean": 0.7}}, name="truth.json")
    with pytest.raises(UserError, match="truth.json: clone: found 0.7. Expected a num"):
        read_truth(path, scale)


def test_a_prompt_without_an_id_is_named_by_its_text(tmp_path: Path):
    rows = [changed(prompt_id=..., prompt=text) for text in ("Why?", "How?")]
    data = read(tmp_path, *rows, *many(11), {**rows[0], "draw_idx": 1})
    assert data.logged.prompt.tolist() == [*range(13), 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_logps": ...}, "target_logps: found {'prompt_id': 'p1', 'policy': 'base'"),
        ({"total_logprob": 12.5}, "total_logprob: found 12.5. Input should be less than"),
        ({"total_logprob": "-10"}, "total_logprob: found '-10'."),
        ({"oracle_label": 7}, "oracle_label: found 7. Expected a number from 0 to 1. Declare"),
        ({"judge_score": True}, "judge_score: found True."),
        ({"judge_score_variance": -1}, "judge_score_variance: found -1."),
        ({"policy": "other"}, "policy is 'other'. Expected 'base', as in"),
        ({"prompt_id": ...}, "has neither prompt_id nor prompt."),
        ({"prompt_id": "p0"}, "repeats prompt 'p0', draw_idx 0 of "),
    ],
)  # fmt: skip
def test_an_invalid_row_is_refused_with_its_place(
    changes: dict[str, Any], words: str, tmp_path: Path
):
    with pytest.raises(UserError) as refusal:
        read(tmp_path, changed(prompt_id="p0"), changed(**changes))
    assert str(refusal.value).startswith(f"{tmp_path}/logged.jsonl:2: ")
    assert words in str(refusal.value)


def test_covariates_are_numeric_columns_and_the_length_of_the_response(tmp_path: Path):
    rows = many(response_chars=9, difficulty=3)
    names = ("response_length", "difficulty")
    data = read(tmp_path, *rows, covariates=names)
    assert data.logged.covariates[0].tolist() == [np.log1p(9), 3]
    rows[4]["difficulty"] = "hard"
    words = ":5: covariates.difficulty: found 'hard'. .* Covariates are numbers"
    with pytest.raises(UserError, match=words):
        read(tmp_path, *rows, covariates=names)
    with pytest.raises(UserError, match=":1: covariates.response_length: found None"):
        read(tmp_path, *many(), covariates=names[:1])


def test_draws_are_read_from_the_file_of_their_policy(tmp_path: Path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    written(folder, DRAW, {**DRAW, "draw_idx": 1}, name="clone_responses.jsonl")
    data = read(tmp_path, *many(), fresh_dir=folder)
    assert data.fresh["clone"].score.tolist() == [0.4, 0.4]
    assert read(tmp_path, *many(), probe_dir=folder).probe.keys() == {"clone"}
    words = (
        f"{folder}: found no draws of 'premium', but of clone. Add premium.jsonl, or leave the "
        r"policy out: oracle.policies=\[clone\]."
    )
    with pytest.raises(UserError, match=words):
        read(tmp_path, *many(), fresh_dir=folder, policies=None)


def test_draws_of_another_policy_and_empty_files_are_refused(tmp_path: Path):
    other = {**DRAW, "prompt_id": "p2", "policy": "premium"}
    path = written(tmp_path, DRAW, other, name="clone.jsonl")
    with pytest.raises(UserError, match=f"{path}:2: policy is 'premium'. Expected 'cl"):
        read(tmp_path, *many(), fresh_dir=tmp_path)
    path = written(tmp_path, name="clone.jsonl")
    with pytest.raises(UserError, match=f"{path}: is empty"):
        read(tmp_path, *many(), fresh_dir=tmp_path)


# Columns


def test_missing_values_are_not_a_number_and_prompts_are_the_same_in_every_table(
    tmp_path: Path,
):
    fresh = [{**DRAW, "prompt_id": name} for name in ("p3", "p1", "new")]
    written(tmp_path, *fresh, name="premium.jsonl")
    data = read(tmp_path, *many(), fresh_dir=tmp_path, policies=["premium"])
    assert np.isnan(data.target_logprob["premium"]).all()
    assert np.isnan(data.logged.variance).all()
    draws = data.fresh["premium"]
    assert [data.prompts[i] for i in draws.prompt] == ["p3", "p1", "new"]
    assert draws.fold[:2].tolist() == data.logged.fold[[3, 1]].tolist()
    assert data.logged.labelled.sum() == 12


@pytest.mark.parametrize(
    ("rows", "prompt", "words"),
    [
        (many(oracle_label=None), "p0", "answers to 0 prompts have an oracle_label"),
        ([changed(draw_idx=i) for i in range(12)], "p1", "answers to 1 prompts have"),
        (many(), None, "'premium' has neither log-probabilities nor fresh draws"),
        (many(), "q", r"no prompt_id in common \(for example 'q' and 'p0'\)"),
    ],
)
def test_data_that_cannot_be_analysed_are_refused(
    rows: list[Any], prompt: str | None, words: str, tmp_path: Path
):
    given: dict[str, Any] = {"policies": None}
    if prompt is not None:
        for name in ("clone.jsonl", "premium.jsonl"):
            written(tmp_path, {**DRAW, "prompt_id": prompt}, name=name)
        given["fresh_dir"] = tmp_path
    with pytest.raises(UserError, match=words):
        read(tmp_path, *rows, **given)
