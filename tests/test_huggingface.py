"""Entrants that are models: their answers and cache keys, shared loads, a killed tournament."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data import bank
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.files import sha256, write_jsonl
from elo_exp.models import causal_lm
from elo_exp.models.generation import prompt_seed
from elo_exp.records import Prompt, Response, UserError, fingerprint
from elo_exp.store.store import Store
from tests.commands import Ran, attempt_program, run, start
from tests.data import BANK, shipped
from tests.hub_server import Hub, serving
from tests.tiny_models import tiny_adapter, tiny_model

PROMPTS = bank.load(BANK)[:5]
SMALL = {
    "dtype": "float32",
    "device": "cpu",
    "max_new_tokens": 8,
    "cache_dir": "absent",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models base, other and judge (a long context), and lora, of base."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "base", n_layers=2)
    tiny_model(folder / "other", kind="llama", n_layers=2, seed=1)
    tiny_model(
        folder / "judge",
        kind="llama",
        n_layers=2,
        seed=2,
        max_position_embeddings=32_768,
    )
    tiny_adapter(folder / "lora", folder / "base")
    return folder


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    causal_lm.release()


def entrant(
    model: Path, *adapters: Path, entrant_id: str = "ann", **changes: Any
) -> HuggingFaceEntrant:
    settings = {
        **SMALL,
        "entrant_id": entrant_id,
        "model": str(model),
        "adapters": [*map(str, adapters)],
    }
    made = shipped("entrant", "huggingface", **{**settings, **changes})
    assert isinstance(made, HuggingFaceEntrant)
    return made


def answers(
    of: HuggingFaceEntrant, prompts: Sequence[Prompt] = PROMPTS
) -> dict[str, Response]:
    return {response.prompt_id: response for response in of.generate(prompts)}


def test_an_answer_and_its_diagnostics(models):
    made = answers(entrant(models / "base"))
    assert set(made) == {prompt.prompt_id for prompt in PROMPTS}
    for prompt_id, response in made.items():
        found = dict(response.diagnostics)
        assert response.entrant_id == "ann"
        assert response.response_text == response.response_text.strip() != ""
        assert response.finish_reason == (
            "length" if found["n_tokens_generated"] == 8 else "stop"
        )
        assert (found["seed"], found["batch_size"]) == (prompt_seed(prompt_id), 5)
        assert (found["device"], found["dtype"]) == ("cpu", "float32")
        assert set(found) >= {"n_tokens_prompt", "torch", "transformers"}
        json.dumps(response.to_dict())


def test_special_tokens_are_not_part_of_the_text(models):
    texts = [
        response.response_text
        for response in answers(
            entrant(models / "base", max_new_tokens=40, temperature=3.0)
        ).values()
    ]
    assert not any(
        token in text for text in texts for token in ("<|end|>", "<|pad|>", "<|user|>")
    )


def test_nothing_is_loaded_to_answer_nothing_or_a_prompt_that_is_too_long(
    models, tmp_path
):
    assert answers(entrant(tmp_path / "absent"), []) == {}
    with pytest.raises(
        UserError, match=r"ann: \S+ has \d+ tokens and max_new_tokens is 2000, more"
    ):
        next(entrant(models / "base", max_new_tokens=2000).generate(PROMPTS))


# Cache keys


def key(
    model: Path, *adapters: Path, prompt: Prompt = PROMPTS[0], **changes: Any
) -> str:
    return fingerprint(entrant(model, *adapters, **changes).cache_key(prompt))


def test_a_cache_key_depends_on_all_that_can_change_the_answer(models):
    base = models / "base"
    keys = [key(base), key(models / "other"), key(base, models / "lora")]
    keys += [key(base, prompt=PROMPTS[1])]
    changes = [
        {"dtype": "bfloat16"},
        {"chat_template": "none"},
        {"system_prompt": "Be brief."},
        {"temperature": 0.7, "top_p": 0.5},
        {"temperature": 0.7, "top_p": 0.6},
        {"max_new_tokens": 9},
        {"trust_remote_code": True},
    ]
    keys += [key(base, **change) for change in changes]
    assert len(set(keys)) == len(keys)


def test_a_cache_key_depends_on_nothing_else(models, tmp_path):
    base = models / "base"
    changes = [
        {"device": "auto"},
        {"batch_size": 3},
        {"top_p": 0.5},
        {"entrant_id": "bob"},
    ]
    assert {key(base, **change) for change in changes} == {key(base)}
    text = "{{ messages[-1].content }}"
    (tmp_path / "mine.jinja").write_text(text)
    in_file = entrant(base, chat_template=str(tmp_path / "mine.jinja"))
    assert fingerprint(in_file.cache_key(PROMPTS[0])) == key(base, chat_template=text)
    assert in_file.input_files == {"template": tmp_path / "mine.jinja"}


# Several entrants


def generated(
    store: Path, of: dict[str, Any], prompts: Sequence[Prompt] = PROMPTS
) -> tuple[dict[str, dict[str, Response]], Any]:
    with Store(store) as opened:
        return pipeline.generate(prompts, of, opened, allow_missing=False), opened.usage  # type: ignore[return-value]


def test_entrants_with_the_same_weights_share_a_load_and_keep_their_places(
    models, tmp_path, caplog
):
    probe: ProbeEntrant = shipped("entrant", "probe_reference")
    of = {
        "greedy": entrant(models / "base", entrant_id="greedy"),
        "probe": probe,
        "other": entrant(models / "other", entrant_id="other"),
        "warm": entrant(models / "base", entrant_id="warm", temperature=0.9),
    }
    with caplog.at_level(logging.INFO):
        responses, _ = generated(tmp_path / "store.sqlite", of)
    assert list(responses) == ["greedy", "probe", "other", "warm"]
    loads = [
        r.message.split()[1] for r in caplog.records if r.message.startswith("loading ")
    ]
    assert loads == [str(models / "base"), str(models / "other")]


@pytest.mark.parametrize("max_new_tokens", [8, 2000], ids=["answered", "failed"])
def test_the_weights_are_released_after_the_last_entrant(
    models, tmp_path, max_new_tokens
):
    of = entrant(models / "base", max_new_tokens=max_new_tokens)
    model = weakref.ref(causal_lm.load(of.weights).model)
    with suppress(UserError):
        generated(tmp_path / "store.sqlite", {"ann": of})
    assert model() is None


def test_answers_that_were_cut_off_are_counted(models, tmp_path, caplog):
    of = {"ann": entrant(models / "base")}
    with caplog.at_level(logging.INFO):
        responses, _ = generated(tmp_path / "store.sqlite", of)
    n_cut = sum(
        response.finish_reason == "length" for response in responses["ann"].values()
    )
    assert n_cut > 0
    assert f"ann: {n_cut} of 5 answers are cut off at their limit" in caplog.text


def test_shards_answer_each_prompt_once_and_together_all(models, tmp_path):
    store, of = tmp_path / "store.sqlite", {"ann": entrant(models / "base")}
    counts = [
        generated(store, of, pipeline.sharded(PROMPTS, (i, 3)))[1].responses_generated
        for i in range(3)
    ]
    assert counts == [2, 2, 1]
    _, usage = generated(store, of)
    assert (usage.responses_generated, usage.responses_stored) == (0, 5)


def test_a_shard_is_a_run_that_answers_and_stops(tmp_path):
    """The second of three shares of 143 prompts is 48, from each of the four probes."""
    shard = run("shard=1/3", folder=tmp_path)
    end = "run without shard= to judge"
    assert shard.out.splitlines()[0] == f"shard 1/3: 192 responses made; {end}"
    assert not (shard.run_dir / "ratings.json").exists()
    again = run("shard=1/3", folder=tmp_path)
    assert (
        again.out.splitlines()[0]
        == f"shard 1/3: 0 responses made, 192 were there; {end}"
    )


# A tournament of models


BLOCK = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "peft")))  # as if not installed
runpy.run_module("elo_exp", run_name="__main__")
"""
ENTRANTS = {
    "base": "model: tiny/base",
    "tuned": "model: tiny/base\nadapters: [tiny/lora]",
    "other": "model: {folder}/other\ntemperature: 0.8\ntop_p: 0.9",
}
YAML = """\
# @package entrant.{name}
defaults: [huggingface@_here_, _self_]
entrant_id: {name}
dtype: float32
device: cpu
max_new_tokens: 24
batch_size: 1
{differs}
"""
N_PROMPTS = 6


@pytest.fixture(scope="module")
def hub(models: Path) -> Iterator[Hub]:
    with serving(base=models / "base", lora=models / "lora") as served:
        yield served


@pytest.fixture(scope="module")
def place(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three entrants of one's own and six prompts."""
    folder = tmp_path_factory.mktemp("tournament")
    (folder / "mine" / "entrant").mkdir(parents=True)
    for name, differs in ENTRANTS.items():
        text = YAML.format(name=name, differs=differs.format(folder=models))
        (folder / "mine" / "entrant" / f"{name}.yaml").write_text(
            text, encoding="utf-8"
        )
    write_jsonl(
        folder / "bank.jsonl",
        [prompt.to_dict() for prompt in bank.load(BANK)[:N_PROMPTS]],
    )
    return folder


@pytest.fixture(scope="module")
def arguments(models: Path) -> list[str]:
    chosen = [
        "entrant=[base,other,tuned]",
        "judge=local",
        "rubric=[clinical_utility]",
        "tracker=local",
    ]
    sizes = [
        "judging.limit_pairs=3",
        "elo.n_perms=5",
        "elo.k_sweep=[16]",
        "prompts.bank_path=bank.jsonl",
    ]
    judged = [f"judge.model={models}/judge", "judge.dtype=float32", "judge.device=cpu"]
    return ["--config-dir=mine", *chosen, *sizes, *judged]


@pytest.fixture(scope="module")
def killed(place: Path, hub: Hub, arguments: list[str]) -> int:
    """How many answers a run had stored when it was killed in the midst of answering."""
    online = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(place / "hub"),
        "OMP_NUM_THREADS": "1",
    }
    with start(*arguments, folder=place, **online) as victim:
        give_up = time.monotonic() + 100
        while (
            not stored(place) and victim.poll() is None and time.monotonic() < give_up
        ):
            time.sleep(0.02)
        victim.kill()
    return stored(place)


@pytest.fixture(scope="module")
def resumed(place: Path, hub: Hub, arguments: list[str], killed: int) -> Ran:
    """The same command once more."""
    return run(
        *arguments,
        folder=place,
        HF_ENDPOINT=hub.url,
        HF_HOME=str(place / "hub"),
        OMP_NUM_THREADS="1",
    )


def stored(place: Path) -> int:
    path = place / "outputs" / "cache" / "store.sqlite"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return int(
                db.execute(
                    "SELECT COUNT(*) FROM answers WHERE kind = 'Response'"
                ).fetchone()[0]
            )
    except sqlite3.OperationalError:  # not there yet
        return 0


def test_a_killed_run_resumes_to_the_answers_of_one_that_was_not(
    models, place, killed, resumed
):
    """Of one made in another process, in one batch, from the folders that the hub served."""
    assert 0 < killed < 3 * N_PROMPTS
    usage = resumed.read("manifest.json")["usage"]
    assert usage["responses_stored"] == killed
    assert usage["responses_generated"] == 3 * N_PROMPTS - killed
    prompts = bank.load(place / "bank.jsonl")
    like = {"dtype": "float32", "max_new_tokens": 24, "batch_size": 6}
    unkilled = {
        "base": entrant(models / "base", **like),
        "other": entrant(models / "other", temperature=0.8, top_p=0.9, **like),
        "tuned": entrant(models / "base", models / "lora", **like),
    }
    for name, of in unkilled.items():
        rows = resumed.rows(f"responses/responses_{name}.jsonl")
        made = answers(of, prompts)
        assert {row["prompt_id"]: row["response_text"] for row in rows} == {
            prompt_id: response.response_text for prompt_id, response in made.items()
        }


def test_the_manifest_names_judge_versions_and_hashes_of_weights(models, resumed):
    """The base model comes from the hub, and is identified by its commit."""
    manifest = resumed.read("manifest.json")
    weights = manifest["weights"]
    assert set(weights) == {"entrant other", "judge"}
    for folder, hashes in zip(
        (models / "other", models / "judge"), weights.values(), strict=True
    ):
        assert hashes[f"{folder}/model.safetensors"] == sha256(
            folder / "model.safetensors"
        )
        assert f"{folder}/config.json" in hashes
    (quality,) = manifest["judge_quality"]
    assert manifest["judge_model"] == f"{models}/judge"
    assert (quality["n_judgments"], quality["n_invalid"]) == (3, 0)
    assert manifest["usage"]["judge_calls"] == 6
    assert set(manifest["truncated_responses"]) == {"base", "other", "tuned"}
    assert {"torch", "transformers", "peft"} <= set(manifest["versions"])


def test_the_second_run_needs_no_network_and_no_torch(place, hub, arguments, resumed):
    hub.asked.clear()
    program = [sys.executable, "-W", "error", "-c", BLOCK, *arguments]
    variables = {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(place / "hub"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    again = attempt_program(*program, folder=place, **variables)
    assert again.code == 0, again.err
    usage = again.read("manifest.json")["usage"]
    assert (usage["responses_generated"], usage["judge_calls"]) == (0, 0)
    for name in (
        "elo_results.json",
        "battles.jsonl",
        "responses/responses_other.jsonl",
    ):
        assert (again.run_dir / name).read_bytes() == (
            resumed.run_dir / name
        ).read_bytes()
    assert hub.asked == []
