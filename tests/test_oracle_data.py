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
    Samples,
    build_dataset,
    read_logged,
    read_samples,
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
DRAW = {"prompt_id": "p1", "judge_score": 0.4}


def written(folder: Path, *rows: Any, name: str = "logged.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def changed(**changes: Any) -> dict[str, Any]:
    """A good row with some values changed; without those that are `...`."""
    row = {**GOOD, **changes}
    return {key: value for key, value in row.items() if value is not ...}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"target_logps": GOOD["target_logps"], "judge_score_variance": None}),
        (
            {
                "total_logprob": ...,
                "target_logps": ...,
                "base_policy_logprob": -9.0,
                "target_policy_logprobs": {"clone": -8.0},
            },
            {"total_logprob": -9.0, "target_logps": {"clone": -8.0}},
        ),
        ({"prompt_id": ..., "metadata": {"prompt_id": "m1"}}, {"prompt_id": "m1"}),
        ({"prompt_id": 7}, {"prompt_id": "7"}),
        ({"response": "Yes."}, {"response_chars": 4}),
        ({"total_logprob": 5e-8}, {"total_logprob": 0.0}),  # rounding above certainty
    ],
)
def test_a_row_is_read(changes: Any, expected: dict[str, Any], tmp_path: Path):
    (sample,) = read_logged(written(tmp_path, changed(**changes)))
    assert {name: getattr(sample, name) for name in expected} == expected


def test_a_prompt_without_an_id_is_named_by_its_text(tmp_path: Path):
    rows = [changed(prompt_id=..., prompt=text) for text in ("Why?", "How?")]
    first, second = read_logged(written(tmp_path, *rows))
    assert first.prompt_id != second.prompt_id


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_logps": ...}, "has no field 'target_logps' (found prompt_id, policy"),
        ({"judge_score": ..., "judge_scor": 1}, "Is it 'judge_scor'? Rename it."),
        ({"total_logprob": 12.5}, "total_logprob: found 12.5. Input should be less than"),
        ({"target_logps": {"clone": 0.2}}, "target_logps.clone: found 0.2. Input should"),
        ({"total_logprob": float("nan")}, "total_logprob: found nan."),
        ({"total_logprob": "-10"}, "total_logprob: found '-10'."),
        ({"target_logps": {}}, "target_logps: found {}."),
        ({"oracle_label": 7}, "Divide a label on a scale from 0 to 10 by 10"),
        ({"judge_score": None}, "judge_score: found None."),
        ({"judge_score": True}, "judge_score: found True."),
        ({"judge_score_variance": -1}, "judge_score_variance: found -1."),
        ({"draw_idx": 0.5}, "draw_idx: found 0.5."),
        ({"policy": "other"}, "policy is 'other', above it was 'base'."),
        ({"prompt_id": ...}, "has neither prompt_id nor prompt."),
        ({"prompt_id": "p0"}, "repeats prompt 'p0', draw_idx 0 of "),
    ],
)  # fmt: skip
def test_an_invalid_row_is_refused_with_its_place(
    changes: dict[str, Any], words: str, tmp_path: Path
):
    path = written(tmp_path, changed(prompt_id="p0"), changed(**changes))
    with pytest.raises(UserError) as refusal:
        read_logged(path)
    assert str(refusal.value).startswith(f"{path}:2: ")
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", ["clone.jsonl", "clone_responses.jsonl"])
def test_draws_are_read_from_the_file_of_their_policy(name: str, tmp_path: Path):
    logged = written(tmp_path, GOOD)
    folder = tmp_path / "fresh"
    folder.mkdir()
    written(folder, DRAW, {**DRAW, "draw_idx": 1}, name=name)
    draws = read_samples(logged, fresh_dir=folder, policies=["clone"]).fresh["clone"]
    assert [(d.draw_idx, d.policy) for d in draws] == [(0, "clone"), (1, "clone")]
    with pytest.raises(UserError) as refusal:
        read_samples(logged, fresh_dir=folder)
    assert str(refusal.value) == (
        f"{folder}: found no draws of 'premium', but of clone. Add premium.jsonl, or leave the "
        "policy out: oracle.policies=[clone]."
    )
    assert read_samples(logged, probe_dir=folder).probe.keys() == {"clone"}


def test_draws_of_another_policy_and_empty_files_are_refused(tmp_path: Path):
    logged = written(tmp_path, GOOD)
    other = {**DRAW, "prompt_id": "p2", "policy": "premium"}
    path = written(tmp_path, DRAW, other, name="clone.jsonl")
    with pytest.raises(UserError, match=f"{path}:2: policy is 'premium' in the file"):
        read_samples(logged, fresh_dir=tmp_path, policies=["clone"])
    for name in ("clone.jsonl", "logged.jsonl"):
        path = written(tmp_path, name=name)
        with pytest.raises(UserError, match=f"{path}: is empty"):
            read_samples(logged, fresh_dir=tmp_path, policies=["clone"])


def test_the_truth_is_a_mean_for_each_policy(tmp_path: Path):
    truth = {"clone": {"mean": 0.7, "n": 500, "std_error": 0.01}}
    path = written(tmp_path, truth, name="truth.json")
    assert read_truth(path)["clone"].std_error == 0.01
    for wrong in ({"clone": 0.7}, {"clone": {"mean": 7}}, "no object"):
        with pytest.raises(UserError, match='Expected {"policy": {"mean": 0.7}}'):
            read_truth(written(tmp_path, wrong, name="truth.json"))


# Columns


def columns(logged: list[LoggedSample], **draws: list[FreshDraw]) -> Dataset:
    samples = Samples(logged=logged, fresh=draws, probe={})
    return build_dataset(samples, n_folds=5, seed=42)


def logged(n: int, **more: Any) -> list[LoggedSample]:
    rows = ({"prompt_id": f"p{i}", **more} for i in range(n))
    return [LoggedSample.from_dict({**GOOD, **row}) for row in rows]


def draw(prompt_id: str) -> FreshDraw:
    return FreshDraw(prompt_id=prompt_id, policy="clone", judge_score=0.5)


def test_missing_values_are_not_a_number():
    data = columns(logged(12), premium=[draw("p1")])
    assert data.policies == ("clone", "premium")
    assert np.isnan(data.target_logprob["premium"]).all()
    assert np.isnan(data.logged.variance).all()
    assert data.n_labels == 12


def test_a_prompt_has_the_same_number_and_fold_in_every_table():
    rows = logged(12, target_logps={"clone": -9.0})
    data = columns(rows, clone=[draw("p3"), draw("p1")])
    assert [data.prompts[i] for i in data.fresh["clone"].prompt] == ["p3", "p1"]
    assert data.fresh["clone"].fold.tolist() == data.logged.fold[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("rows", "draws", "words"),
    [
        (logged(12, oracle_label=None), [], "answers to 0 prompts have an oracle_label"),
        (logged(12, prompt_id="p"), [], "answers to 1 prompts have"),
        (logged(12), [], "'premium' has neither log-probabilities nor fresh draws"),
        (logged(12), [draw("q")], r"no prompt_id in common \(for example 'q' and 'p0'\)"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_analysed_are_refused(
    rows: list[LoggedSample], draws: list[FreshDraw], words: str
):
    with pytest.raises(UserError, match=words):
        columns(rows, **({"premium": draws} if draws else {}))
