"""Logged answers and fresh draws: how files are read, validated and arranged as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.errors import UserError
from elo_exp.files import write_json, write_jsonl
from elo_exp.oracle.data import Dataset, Scale, read_dataset, read_truth

GOOD: dict[str, Any] = {
    "prompt_id": "p1",
    "policy": "base",
    "judge_score": 0.8,
    "total_logprob": -10.0,
    "target_logps": {"clone": -10.0, "premium": None},
    "oracle_label": 0.7,
}
DRAW = {"prompt_id": "p1", "judge_score": 0.4}


def changed(**changes: Any) -> dict[str, Any]:
    """A good row with some values changed; without those that are `...`."""
    row = {**GOOD, **changes}
    return {key: value for key, value in row.items() if value is not ...}


def many(n: int = 12, **changes: Any) -> list[dict[str, Any]]:
    return [changed(**{"prompt_id": f"p{i}", **changes}) for i in range(n)]


def read(
    folder: Path,
    *rows: Any,
    policies: Any = ("clone",),
    draws: Any = None,
    **given: Any,
) -> Dataset:
    """Read logged rows, and draws by the name of their file in the folder fresh."""
    for name, some in (draws or {}).items():
        write_jsonl(folder / "fresh" / name, some)
        given["fresh_dir"] = folder / "fresh"
    path = write_jsonl(folder / "logged.jsonl", rows)
    return read_dataset(path, policies=policies, seed=42, **given)


OF_CJE_EVAL = {
    "total_logprob": ...,
    "target_logps": ...,
    "base_policy_logprob": -9.0,
    "target_policy_logprobs": {"clone": -8.0},
}


@pytest.mark.parametrize(
    ("changes", "prompt", "numbers"),
    [
        ({}, "p", (-10.0, -10.0, np.nan)),
        (OF_CJE_EVAL, "p", (-9.0, -8.0, np.nan)),
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
    first = (data.logging_logprob, data.target_logprob["clone"], data.logged_rows.chars)
    assert data.prompts[0] == prompt
    assert [column[0] for column in first] == pytest.approx(numbers, nan_ok=True)


def test_scores_labels_and_truth_are_on_the_declared_scale(tmp_path: Path):
    scale, given = Scale(1, 5), {"judge_score": 4.5, "oracle_label": 1}
    data = read(tmp_path, *many(**given), scale=scale)
    assert (data.scale, data.logged_rows.score[0], data.logged_rows.label[0]) == (
        scale,
        4.5,
        1,
    )
    path = write_json(tmp_path / "truth.json", {"clone": {"mean": 0.7}})
    with pytest.raises(UserError, match="truth.json: clone must be from .*; got 0.7."):
        read_truth(path, scale)


def test_a_prompt_without_an_id_is_named_by_its_text(tmp_path: Path):
    rows = [changed(prompt_id=..., prompt=text) for text in ("Why?", "How?")]
    data = read(tmp_path, *rows, *many(11), {**rows[0], "draw_idx": 1})
    assert data.logged_rows.prompt.tolist() == [*range(13), 0]


def test_covariates_are_numeric_columns_and_the_length_of_the_response(tmp_path: Path):
    rows = many(response_chars=9, difficulty=3)
    data = read(tmp_path, *rows, covariates=("response_length", "difficulty"))
    assert data.logged_rows.covariates[0].tolist() == [np.log1p(9), 3]


def test_draws_are_read_from_the_file_of_their_policy(tmp_path: Path):
    some = [{**DRAW, "prompt_id": name} for name in ("p3", "p1", "new")]
    files = {"clone_responses.jsonl": [DRAW, {**DRAW, "draw_idx": 1}]}
    files["premium.jsonl"] = some
    data = read(tmp_path, *many(), draws=files, policies=None)
    assert data.fresh_draws["clone"].score.tolist() == [0.4, 0.4]
    draws = data.fresh_draws["premium"]
    assert [data.prompts[i] for i in draws.prompt] == ["p3", "p1", "new"]
    assert draws.fold[:2].tolist() == data.logged_rows.fold[[3, 1]].tolist()
    missing = (data.target_logprob["premium"], data.logged_rows.variance, draws.label)
    assert all(np.isnan(column).all() for column in missing)
    assert data.logged_rows.is_labelled.sum() == 12
    probe = read(tmp_path, *many(), probe_dir=tmp_path / "fresh").probe_draws
    assert probe.keys() == {"clone"}


def after(**changes: Any) -> list[dict[str, Any]]:
    """A row, the second one, after one that is good."""
    return [changed(prompt_id="p0"), changed(**changes)]


EVERY = {"policies": None}


@pytest.mark.parametrize(
    ("rows", "draws", "given", "words"),
    [
        (after(target_logps=...), {}, {},
         "logged.jsonl:2: target_logps is missing."),
        (after(total_logprob=12.5), {}, {}, ":2: total_logprob must be a number of 0 or less, or null; got 12.5."),
        (after(total_logprob="-10"), {}, {}, ':2: total_logprob must be a number of 0 or less, or null; got "-10".'),
        (after(oracle_label=7), {}, {},
         ":2: oracle_label must be from 0 to 1; got 7. Set another scale"),
        (after(), {}, {"scale": Scale(1, 5)}, ":1: judge_score must be from 1 to 5; got 0.8."),
        (after(judge_score=True), {}, {}, ":2: judge_score must be a number; got true."),
        (after(judge_score_variance=-1), {}, {}, ":2: judge_score_variance must be a number of 0 or more, or null; got -1."),
        (after(policy="other"), {}, {}, ':2 has the policy "other" in a file of base.'),
        (after(prompt_id=...), {}, {}, ":2 has neither prompt_id nor prompt."),
        (after(prompt_id="p0"), {}, {}, ':2 repeats prompt "p0", draw_idx 0 of '),
        ([*many(1, level=3), *after(level="hard")], {}, {"covariates": ["level"]},
         ":2: covariates.level must be a number; got null."),
        (many(), {}, {"covariates": ["response_length"]}, ":1: covariates.response_length must be a number; got null."),
        (many(), {"clone.jsonl": [DRAW]}, EVERY,
         "fresh has no draws of premium, only of clone. Add premium.jsonl, or leave the policy out:\n"
         "  'oracle.policies=[clone]'"),
        (many(), {"clone.jsonl": [DRAW, {**DRAW, "prompt_id": "p2", "policy": "premium"}]}, {},
         'clone.jsonl:2 has the policy "premium" in a file of clone.'),
        (many(), {"clone.jsonl": []}, {}, "clone.jsonl is empty (0 bytes)"),
        (many(oracle_label=None), {}, {}, "has an oracle_label on 0."),
        ([changed(draw_idx=i) for i in range(12)], {}, {}, "has an oracle_label on 1."),
        (many(), {}, EVERY, "must have log-probabilities or fresh draws; premium has neither."),
        (many(), {"clone.jsonl": [{**DRAW, "prompt_id": "q"}]}, {},
         'no prompt_id in common. Use the same names in both files.\n  Examples: "q" and "p0"'),
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_analysed_is_refused(
    rows: list[Any], draws: Any, given: Any, words: str, tmp_path: Path
):
    with pytest.raises(UserError) as refusal:
        read(tmp_path, *rows, draws=draws, **given)
    assert words in str(refusal.value)
