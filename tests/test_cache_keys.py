"""Cache keys: what can change an answer is in them and nothing else, and what an earlier version has stored is found."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from elo_exp.records import Prompt, make_fingerprint
from tests.data import described, prompt, shipped

PROMPT = prompt(gold_answer="Because.")
Settings = Mapping[str, Any]
HUB = {"model": "me/model", "revision": "a" * 40, "dtype": "float32"}
ADAPTERS = [f"me/{name}@{'a' * 40}" for name in ("one", "other")]
BATTLE = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "p1"}
FILES = {
    "model.gguf": "weights",
    "copy.gguf": "weights",
    "other.gguf": "other weights",
    "manifest.json": '{"config": {"num_shards": 2, "lora_r": 8, "lora_alpha": 16}}',
    "shard_0_lora.pt": "one",
    "shard_1_lora.pt": "two",
    "other/manifest.json": '{"config": {"num_shards": 2}}',
    "other/shard_0_lora.pt": "one",
    "other/shard_1_lora.pt": "two",
    "responses.jsonl": '{"prompt_id": "p1", "response_text": "So."}\n',
    "other.jsonl": '{"prompt_id": "p1", "response_text": "No."}\n',
    "battles.jsonl": json.dumps(BATTLE),
}


@pytest.fixture(autouse=True)
def in_a_folder_with_files(tmp_path, monkeypatch) -> None:
    (tmp_path / "other").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def key(group: str, name: str, settings: Settings, asked: Prompt = PROMPT) -> str:
    """Of an entrant's answer, of a policy's log-probability, or of all that a judge is."""
    part = shipped("entrant" if group == "policy" else group, name, **settings)
    if group == "judge":
        return make_fingerprint([part.model, part.cache_key(), part.key_fields])
    if group == "policy":
        return make_fingerprint(part.logprob_key(asked))
    return make_fingerprint(part.cache_key(asked))


FROZEN: list[tuple[str, str, Settings, str]] = [
    ("entrant", "huggingface", {**HUB, "temperature": 0.7, "logprobs": True},
     "154acd9560cd78deb17549b84e0bb0c8e2ec12b6"),  # before races b52005d6...
    ("entrant", "huggingface", {**HUB, "dtype": "auto"},
     "4a0bccda6905986a03e6bd01de0e0e8a2c597685"),
    ("entrant", "huggingface", {**HUB, "dtype": "bfloat16"},
     "4a0bccda6905986a03e6bd01de0e0e8a2c597685"),
    ("entrant", "llama_cpp", {"path": "model.gguf"},
     "ea593e9429833188ff2f359a7db830835129f6a9"),
    ("entrant", "poe", {**HUB, "security_dir": ".", "rob_checkpoint": None},
     "6318c16ce7ce86075a02ff4c775c25a92837a2cf"),  # before races 686c7718...
    ("entrant", "poe", {**HUB, "security_dir": ".", "rob_checkpoint": None,
                        "temperature": None, "dtype": "auto"},
     "3a6ce302b1174f51a0383eb7e04d3621ed55089d"),
    ("entrant", "recorded", {"entrant_id": "ann", "path": "responses.jsonl"},
     "76dedb8de05633795f6bde644d856b039e7bd38c"),
    ("entrant", "probe_hedged", {"entrant_id": "ann"},
     "ee5064f055d6dc94f7abb7ccc15e00247d9f967c"),
    ("policy", "huggingface", {**HUB, "temperature": 0.7},
     "0301798df7497cfb7cde8fb1266057b44848c4ae"),
    ("policy", "llama_cpp", {"path": "model.gguf"},
     "7a91c36ab1adec25b26f88597154ebaca727a83d"),
    ("judge", "local", HUB, "a13e25b081a2b985ef86549e46d91db90916667a"),
    ("judge", "local", {**HUB, "dtype": "auto"}, "a4a0badd818a99f34b8a4fe7d850ddf08a459886"),
    ("judge", "lexical", {}, "f71b57438daa44acf659d3c8a3fecd90f5570055"),
    ("judge", "replay", {"path": "battles.jsonl", "judge_model": None},
     "3aa3de4fee4bb67ed274931d67471fbed0e5f2fe"),
]  # fmt: skip


@pytest.mark.parametrize(("group", "name", "settings", "expected"), FROZEN)
def test_what_an_earlier_version_has_stored_is_found(group, name, settings, expected):
    assert key(group, name, settings) == expected


OPUS = dict(described("judge", "claude").models["claude-opus-5-5"])
HOST = {"base_url": "http://127.0.0.1:9/v1", "model": "small"}
PRICED = {"input_usd_per_million": 3.0, "output_usd_per_million": 15.0}
SENT: list[Settings] = [
    {"base_url": "http://127.0.0.1:8/v1"}, {"model": "large"}, {"max_tokens": 7},
    {"max_tokens_name": "max_completion_tokens"}, {"temperature": 0.0},
    {"extra_body": {"top_k": 1}}, {"chat_template_kwargs": {"think": False}},
]  # fmt: skip
NOT_SENT: list[Settings] = [
    {"concurrency": 1, "timeout_seconds": 1.0}, {"key_variable": "MY_KEY"},
    {**PRICED, "budget_usd": 1.0}, {"base_url": "http://127.0.0.1:9/v1/"},
]  # fmt: skip
DECODED: list[Settings] = [
    {"revision": "b" * 40}, {"dtype": "bfloat16"}, {"chat_template": "none"},
    {"chat_template_kwargs": {"think": False}},
]  # fmt: skip
CASES: dict[tuple[str, str], tuple[Settings, list[Settings], list[Settings]]] = {
    ("entrant", "openai_compatible"): (
        HOST,
        [*SENT, {"system_prompt": ""}, {"top_p": 1.0}, {"seed": 0}, {"weights": "v2"}],
        NOT_SENT,
    ),
    ("policy", "openai_compatible"): (
        {**HOST, "temperature": 1.0, "top_p": 1.0, "logprobs": True},
        [*SENT[:2], {"extra_body": {"lora": 1}}, {"system_prompt": ""}, {"weights": "v2"}],
        NOT_SENT[:2],
    ),
    ("entrant", "vllm"): (
        HUB,
        [{"adapters": ADAPTERS[:1]}, {"temperature": 0.7}, {"load_kwargs": {"max_model_len": 512}}],
        [{"top_p": 0.5}, {"entrant_id": "b"}, {"load_kwargs": {"max_num_seqs": 8}}],
    ),
    ("judge", "openai_compatible"): (
        HOST,
        [*SENT, {"structured": "none"}],
        [*NOT_SENT, {"expected_output_tokens": 1, "chars_per_token": 1.0}],
    ),
    ("entrant", "claude"): (
        {},
        [{"model": "claude-opus-5-5"}, {"system_prompt": "x"}, {"effort": "low"},
         {"max_tokens": 9}],
        [{"concurrency": 1, "budget_usd": 1.0}],
    ),
    ("judge", "opus"): (
        {},
        [{"model": "claude-opus-5"}, {"effort": "medium"}, {"effort": None},
         {"max_tokens": 2001}, {"base_url": "https://gateway.example.org"},
         {"models": {"claude-opus-5-5": {**OPUS, "structured_output": False}}}],
        [{"budget_usd": 1.0}, {"cache": "none"}, {"transport": "messages"},
         {"chunk_size": 7, "concurrency": 1}, {"base_url": "https://api.anthropic.com/"},
         {"poll_initial_seconds": 1.0, "poll_max_seconds": 2.0, "quarantine_seconds": 400.0},
         {"expected_output_tokens": 1, "expected_hit_rate": 0.1, "chars_per_token": 1.0},
         {"models": {"claude-opus-5-5": {**OPUS, "input": 99.0}}}],
    ),
    ("entrant", "huggingface"): (
        HUB,
        [*DECODED, {"model": "me/other"}, {"adapters": ADAPTERS},
         {"adapters": ADAPTERS[::-1]}, {"system_prompt": "Be brief."},
         {"temperature": 0.7, "top_p": 0.5}, {"temperature": 0.7, "top_p": 0.6},
         {"max_new_tokens": 9}, {"trust_remote_code": True},
         {"load_kwargs": {"quantization_config": {"load_in_4bit": True}}}],
        [{"device": "auto"}, {"batch_size": 3}, {"top_p": 0.5}, {"entrant_id": "b"},
         {"load_kwargs": {"device_map": "auto", "attn_implementation": "eager"}}],
    ),
    ("policy", "huggingface"): (
        {**HUB, "temperature": 1.0},
        [*DECODED, {"temperature": 0.9}, {"system_prompt": "Be brief."}],
        [{"max_new_tokens": 9}, {"batch_size": 2}, {"entrant_id": "ann"}],
    ),
    ("entrant", "poe"): (
        {**HUB, "security_dir": ".", "rob_checkpoint": None},
        [*DECODED, {"beta": 0.5}, {"decode": "direct"}, {"temperature": None},
         {"max_new_tokens": 13}, {"bypass_jury": True}, {"system_prompt": "Be brief."},
         {"security_dir": "other"}, {"needs_uncertainty": True, "uncertainty_path": "other.gguf"}],
        [{"device": "auto"}, {"batch_size": 1}, {"uncertainty_path": "absent"}],
    ),
    ("entrant", "security_only"): (
        {**HUB, "security_dir": ".", "bypass_jury": True},
        [{"temperature": None}],
        [{"beta": 0.5, "decode": "direct"}],
    ),
    ("judge", "local"): (
        HUB,
        [*DECODED, {"lead": ":"},
         {"load_kwargs": {"quantization_config": {"load_in_4bit": True}}}],
        [{"batch_size": 1}, {"device": "auto"}, {"load_kwargs": {"device_map": "auto"}}],
    ),
    ("entrant", "recorded"): (
        {"entrant_id": "ann", "path": "responses.jsonl"},
        [{"path": "other.jsonl"}],
        [{"entrant_id": "ann"}],
    ),
    ("entrant", "probe_hedged"): ({}, [{"style": "partial"}], [{"lapse_rate": 0.0}]),
    ("entrant", "llama_cpp"): (
        {"path": "model.gguf"},
        [{"path": "other.gguf"}, {"temperature": 0.5},
         {"chat_template_kwargs": {"think": False}}],
        [{"path": "copy.gguf"}, {"n_threads": 2}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", CASES, ids=" ".join)
def test_a_key_has_all_that_can_change_an_answer_and_nothing_else(
    part,
):
    base, changes, same = CASES[part]
    keys = {key(*part, {**base, **some}) for some in ({}, *changes)}
    assert len(keys) == 1 + len(changes)
    assert {key(*part, {**base, **some}) for some in same} == {key(*part, base)}
    assert part[0] == "judge" or key(*part, base, prompt(2, "How?")) not in keys
