"""Entrants through vLLM: over a fake of its module, which draws and scores with a tiny model of transformers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.records import Response, UserError
from tests import tiny_engine
from tests.data import BANK, shipped
from tests.tiny_models import tiny_adapter, tiny_model

PROMPTS = bank.load(BANK)[:4]
BY_ID = {prompt.prompt_id: prompt for prompt in PROMPTS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    base = tiny_model(folder / "model", kind="llama", n_layers=2)
    tiny_adapter(folder / "adapter", base)
    return folder


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tiny_engine.install(monkeypatch)
    yield
    models.release()


def policy(folder: Path, kind: str = "vllm", **changes: Any) -> Any:
    settings = {
        "model": str(folder / "model"),
        "dtype": "float32",
        "temperature": 1.0,
        "max_new_tokens": 12,
        "logprobs": True,
        "cache_dir": str(folder),
    }
    return shipped("entrant", kind, **{**settings, **changes})


def answers(of: Any, prompts: Any = PROMPTS) -> dict[str, Response]:
    return {response.prompt_id: response for response in of.generate(prompts)}


def forced(by: Any, responses: dict[str, Response]) -> dict[str, float | None]:
    found = by.teacher_force(BY_ID, list(responses.values()))
    return {each.prompt_id: each.total_logprob for each in found}


@pytest.mark.parametrize("adapters", [[], ["adapter"]])
def test_what_is_drawn_is_scored_as_likely_also_by_transformers(folder, adapters):
    chosen = {"adapters": [str(folder / name) for name in adapters]}
    of = policy(folder, **chosen, system_prompt="Be brief.")
    made = answers(of)
    check = pipeline.generation_check(made, forced(of, made), allowed=None)
    assert (check.n_checked, check.allowed) == (4, 1e-4)
    assert check.mean_difference < 1e-6
    other = policy(folder, "huggingface", **chosen, system_prompt="Be brief.")
    by_other = forced(other, made)
    assert by_other == pytest.approx(forced(of, made), abs=1e-3)
    first = made[PROMPTS[0].prompt_id]
    assert first.diagnostics["vllm"] == "0.33.0"
    assert (
        len(first.diagnostics["token_ids"]) == first.diagnostics["n_tokens_generated"]
    )


def test_an_answer_depends_on_its_prompt_and_not_on_its_company(folder, monkeypatch):
    whole = {i: r.response_text for i, r in answers(policy(folder)).items()}
    monkeypatch.setattr("elo_exp.entrants.vllm._AT_ONCE", 3)
    again = answers(policy(folder), PROMPTS[::-1])
    assert {i: r.response_text for i, r in again.items()} == whole
    assert len(set(whole.values())) == len(PROMPTS)
    greedy = policy(folder, temperature=None, logprobs=False)
    (plain,) = answers(greedy, PROMPTS[:1]).values()
    by_other = policy(folder, "huggingface", temperature=None, logprobs=False)
    assert plain.response_text == answers(by_other)[plain.prompt_id].response_text
    assert "token_ids" not in plain.diagnostics


def test_what_does_not_fit_has_no_log_probability(folder):
    made = answers(policy(folder))
    name = PROMPTS[0].prompt_id
    made[name].diagnostics["token_ids"] *= tiny_engine.CONTEXT
    totals = forced(policy(folder), made)
    assert totals.pop(name) is None
    assert all(total is not None and math.isfinite(total) for total in totals.values())


def test_mistakes_are_one_line_before_anything_is_loaded(folder, monkeypatch):
    for changes in ({"temperature": 0.7}, {"top_p": 0.9}, {"temperature": None}):
        with pytest.raises(UserError, match="^logprobs: found true .* temperature 1,"):
            policy(folder, **changes)
    with pytest.raises(UserError, match="at most 1 item"):
        policy(folder, adapters=["one", "two"])
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match="needs vllm, not installed: pip install vllm"):
        answers(policy(folder))
