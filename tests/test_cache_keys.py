"""Cache keys are frozen: what an earlier version has stored is still found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elo_exp.records import Prompt, fingerprint
from tests.data import shipped

PROMPT = Prompt(
    prompt_id="p1", text="Why?", source="s", subject="s", gold_answer="Because."
)
HUB = {"model": "me/model", "revision": "a" * 40, "dtype": "float32"}
BATTLE = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "p1"}
FILES = {
    "model.gguf": "weights",
    "manifest.json": '{"config": {"num_shards": 2, "lora_r": 8, "lora_alpha": 16}}',
    "shard_0_lora.pt": "one",
    "shard_1_lora.pt": "two",
    "responses.jsonl": '{"prompt_id": "p1", "response_text": "So."}\n',
    "battles.jsonl": json.dumps(BATTLE),
}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return shipped


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        (
            "huggingface",
            {**HUB, "temperature": 0.7, "logprobs": True},
            "b52005d6e1d4291c667ea9340a005dc76556383a",
        ),
        (
            "llama_cpp",
            {"path": "model.gguf"},
            "ea593e9429833188ff2f359a7db830835129f6a9",
        ),
        (
            "poe",
            {**HUB, "security_dir": ".", "rob_checkpoint": None},
            "49211499da5110ed2b940653e1348c1f606b1a0b",
        ),
        (
            "recorded",
            {"entrant_id": "ann", "path": "responses.jsonl"},
            "76dedb8de05633795f6bde644d856b039e7bd38c",
        ),
        (
            "probe_hedged",
            {"entrant_id": "ann"},
            "ee5064f055d6dc94f7abb7ccc15e00247d9f967c",
        ),
    ],
)
def test_entrants(build: Any, name: str, settings: Mapping[str, Any], key: str):
    assert fingerprint(build("entrant", name, **settings).cache_key(PROMPT)) == key


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        (
            "huggingface",
            {**HUB, "temperature": 0.7},
            "0301798df7497cfb7cde8fb1266057b44848c4ae",
        ),
        (
            "llama_cpp",
            {"path": "model.gguf"},
            "7a91c36ab1adec25b26f88597154ebaca727a83d",
        ),
    ],
)
def test_policies(build: Any, name: str, settings: Mapping[str, Any], key: str):
    assert fingerprint(build("entrant", name, **settings).logprob_key(PROMPT)) == key


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("local", HUB, "a13e25b081a2b985ef86549e46d91db90916667a"),
        ("lexical", {}, "f71b57438daa44acf659d3c8a3fecd90f5570055"),
        (
            "replay",
            {"path": "battles.jsonl", "judge_model": None},
            "3aa3de4fee4bb67ed274931d67471fbed0e5f2fe",
        ),
    ],
)
def test_judges(build: Any, name: str, settings: Mapping[str, Any], key: str):
    judge = build("judge", name, **settings)
    assert fingerprint([judge.model, judge.cache_key(), judge.key_fields]) == key
