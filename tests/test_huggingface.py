"""Entrants that are models: their answers and cache keys, shared loads, a tournament resumed."""

import itertools
import logging
import multiprocessing
import os
import signal
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.errors import UserError
from elo_exp.files import sha256, write_jsonl
from elo_exp.models.generation import prompt_seed
from elo_exp.paths import HOME
from elo_exp.store.answer_store import Store
from tests.commands import Ran, attempt_program, run
from tests.data import BANK, shipped
from tests.hub_server import Hub, serving
from tests.stores import rows
from tests.tiny_models import BY_ID, answers, tiny_adapter, tiny_model

PROMPTS = bank.load_bank(BANK)[:5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The models base, other and judge (a long context), and lora, of base."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model(folder / "base", n_layers=2)
    tiny_model(folder / "other", kind="llama", n_layers=2, seed=1)
    tiny_model(folder / "judge", n_layers=2, max_position_embeddings=32_768)
    tiny_adapter(folder / "lora", folder / "base")
    return folder


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    models.release_weights()


def entrant(
    model: Path, *adapters: Path, name: str = "huggingface", **changes: Any
) -> Any:
    settings = {
        "entrant_id": "ann",
        "model": str(model),
        "adapters": [*map(str, adapters)],
        "dtype": "float32",
        "device": "cpu",
        "max_new_tokens": 8,
        "cache_dir": "absent",
        **changes,
    }
    return shipped("entrant", name, **settings)


def test_an_answer_and_its_diagnostics(folder):
    made = answers(
        entrant(folder / "base", max_new_tokens=40, temperature=3.0), PROMPTS
    )
    assert set(made) == {prompt.prompt_id for prompt in PROMPTS}
    for prompt_id, response in made.items():
        found = dict(response.diagnostics)
        assert response.response_text == response.response_text.strip() != ""
        assert not any(word in response.response_text for word in ("<|end", "<|user"))
        ended = "length" if found["n_tokens_generated"] == 40 else "stop"
        assert (response.entrant_id, response.finish_reason) == ("ann", ended)
        assert (found["seed"], found["batch_size"]) == (
            prompt_seed(BY_ID[prompt_id]),
            5,
        )
        assert (found["device"], found["dtype"]) == ("cpu", "float32")
        assert set(found) >= {"n_tokens_prompt", "torch", "transformers"}


def test_load_kwargs_go_to_from_pretrained(folder):
    loads = [
        models.load_weights(entrant(folder / "base", load_kwargs=options).weights)
        for options in ({}, {"attn_implementation": "eager", "device_map": "auto"})
    ]
    assert loads[1].model.config._attn_implementation == "eager"
    rows = [([5, 6], [7, 8])]
    totals = [next(iter(lm.total_logprobs(rows, temperature=1.0))) for lm in loads]
    assert totals[1] == pytest.approx(totals[0], abs=1e-4)
    for word in ("nonsense", "dtype"):
        wrong = entrant(folder / "base", load_kwargs={word: "float16"})
        with pytest.raises(UserError, match=rf"base cannot be loaded .*{word}"):
            models.load_weights(wrong.weights)


def test_adapters_are_not_merged_into_a_quantised_model(tmp_path):
    with pytest.raises(UserError, match="adapters must be merged into a 16-bit model"):
        entrant(tmp_path, tmp_path, name="huggingface_4bit")


def test_a_prompt_that_leaves_no_room_for_its_answer_is_refused(folder, tmp_path):
    assert answers(entrant(tmp_path / "absent"), []) == {}
    n = answers(entrant(folder / "base"), PROMPTS)[PROMPTS[0].prompt_id]
    room = 2048 - n.diagnostics["n_tokens_prompt"]
    message = rf"Prompt \S+ does not fit .* of ann: \d+ tokens and max_new_tokens={room + 1} are"
    with pytest.raises(UserError, match=message):
        answers(entrant(folder / "base", max_new_tokens=room + 1), PROMPTS[:1])


def test_a_prompt_without_room_is_a_missing_answer_where_answers_may_be_missing(
    folder, tmp_path, caplog
):
    """The others are answered, as behind an API; without allow_missing none is."""
    first, *_ = PROMPTS
    long = replace(first, prompt_id="long", text="Why? " * 2000)
    of = entrant(folder / "base")
    with Store(tmp_path / "store.sqlite") as store:
        prompts = [long, first]
        with pytest.raises(
            UserError, match="Prompt long does not fit .* of ann: [0-9]+ tokens .* 2048"
        ):
            pipeline.generate(prompts, {"ann": of}, store, allow_missing=False)
        assert store.usage.responses_generated == 0
        made = pipeline.generate(prompts, {"ann": of}, store, allow_missing=True)
    assert [name for name, _ in made["ann"]] == [first.prompt_id]
    assert any("Prompt long does not fit" in line for line in caplog.messages)


def test_a_template_in_a_file_is_the_template(folder, tmp_path):
    file, text = tmp_path / "mine.jinja", "{{ messages[-1].content }}"
    file.write_text(text)
    in_file = entrant(folder / "base", chat_template=str(file))
    inline = entrant(folder / "base", chat_template=text)
    assert in_file.cache_key(PROMPTS[0]) == inline.cache_key(PROMPTS[0])
    assert in_file.input_files == {"template": file}
    file.unlink()
    with pytest.raises(UserError, match=r"File not found: .*mine.jinja"):
        entrant(folder / "base", chat_template=str(file)).check()


THINKS = "{{ messages[0].content }}<|assistant|>{{ tag }}"


def saying(folder: Path, base: Path, said: str) -> Path:
    """A model that says this, greedily: the state is the last token's embedding, and it leads to the next.

    The tags of Qwen are tokens, and those of Magistral special tokens. No token may come twice.
    """
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.add_tokens(["[THINK]", "[/THINK]"], special_tokens=True)
    model = AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(len(tokenizer))
    ids = tokenizer(f"<|assistant|>{said}<|end|>")["input_ids"]
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "o_proj" in name or "down_proj" in name or "lm_head" in name:
                weights.zero_()
        torch.manual_seed(0)
        rows = model.get_input_embeddings().weight.normal_()
        model.lm_head.weight[ids[1:]] = 5 * rows[ids[:-1]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("tag", "said", "text", "thought"),
    [
        ("", "Yes.", "Yes.", "none"),
        ("<think>", "hm</think>Yes.", "Yes.", "closed"),
        ("<think>", "hm", "", "unclosed"),
        ("", "[THINK]hm[/THINK]Yes.", "Yes.", "closed"),
    ],
)
def test_a_thought_is_split_off_an_answer_and_recorded(
    folder, tmp_path, tag, said, text, thought
):
    """The prompt may open it, and its tags may be special tokens. Its tokens are the policy's, too."""
    of = entrant(
        saying(tmp_path, folder / "base", f"{tag}{said}"),
        chat_template=THINKS,
        chat_template_kwargs={"tag": tag},
        **{"temperature": 0.1, "logprobs": True},
    )
    (response,) = answers(of, PROMPTS[:1]).values()
    found = response.diagnostics
    assert (response.response_text, found["thought"]) == (text, thought)
    assert found.get("reasoning") == (None if thought == "none" else "hm")
    assert response.finish_reason == ("length" if thought == "unclosed" else "stop")
    ((_, total),) = of.teacher_force(BY_ID, [response])
    assert total == pytest.approx(found["total_logprob"], abs=1e-4)


@pytest.mark.parametrize("template", [None, "none", THINKS])
def test_a_variable_that_the_template_never_reads_is_refused(folder, template):
    variables = {"chat_template_kwargs": {"thinking": False}}
    of = entrant(folder / "base", chat_template=template, **variables)
    with pytest.raises(
        UserError, match="kwargs has values that it never reads: thinking"
    ):
        answers(of, PROMPTS)


def generated(store: Path, of: dict[str, Any], prompts: Any = PROMPTS) -> Any:
    with Store(store) as opened:
        found = pipeline.generate(prompts, of, opened, allow_missing=False)
        return found, opened.usage


def test_entrants_with_the_same_weights_share_a_load_and_keep_their_places(
    folder, tmp_path, caplog
):
    names = {"greedy": "base", "other": "other", "warm": "base"}
    of = {n: entrant(folder / place, entrant_id=n) for n, place in names.items()}
    of["warm"].temperature = 0.9
    with caplog.at_level(logging.INFO):
        responses, _ = generated(tmp_path / "store.sqlite", of)
    assert list(responses) == list(of)
    loads = [m.split()[1] for m in caplog.messages if m.startswith("loading ")]
    assert loads == [str(folder / "base"), str(folder / "other")]
    reasons = [response.finish_reason for response in responses["greedy"].values()]
    assert f"greedy: among 5 answers, {reasons.count('length')} cut off" in caplog.text


@pytest.mark.parametrize("max_new_tokens", [8, 2000], ids=["answered", "failed"])
def test_the_weights_are_released_after_the_last_entrant(
    folder, tmp_path, max_new_tokens
):
    of = entrant(folder / "base", max_new_tokens=max_new_tokens)
    model = weakref.ref(models.load_weights(of.weights).model)
    with suppress(UserError):
        generated(tmp_path / "store.sqlite", {"ann": of})
    assert model() is None


# A tournament of models that goes on from stored answers

BLOCK = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "peft")))  # as if not installed
runpy.run_module("elo_exp", run_name="__main__")
"""
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
N_PROMPTS = 4
WARM = {"temperature": 0.8, "top_p": 0.9, "max_new_tokens": 24}


@pytest.fixture(scope="module")
def hub(folder) -> Iterator[Hub]:
    with serving(base=folder / "base", lora=folder / "lora") as served:
        yield served


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with three entrants of one's own and six prompts."""
    place = tmp_path_factory.mktemp("tournament")
    (place / "mine" / "entrant").mkdir(parents=True)
    for name, differs in {
        "base": "model: tiny/base",
        "tuned": "model: tiny/base\nadapters: [tiny/lora]",
        "other": f"model: {folder}/other\ntemperature: 0.8\ntop_p: 0.9",
    }.items():
        text = YAML.format(name=name, differs=differs)
        (place / "mine" / "entrant" / f"{name}.yaml").write_text(text)
    write_jsonl(place / "bank.jsonl", [p.to_dict() for p in PROMPTS[:N_PROMPTS]])
    return place


@pytest.fixture(scope="module")
def arguments(folder) -> list[str]:
    return [
        *("--config-dir=mine", "entrant=[base,other,tuned]", "tracker=local"),
        "figures=false",
        *("judge=local", f"judge.model={folder}/judge"),
        *("judge.dtype=float32", "judge.device=cpu", "rubric=[clinical_utility]"),
        *("judging.limit_pairs=3", "elo.n_perms=5", "elo.k_sweep=[16]"),
        "prompts.bank_path=bank.jsonl",
    ]


def answer_until_killed(store: Path, of: Any) -> None:
    """Answer in a process that is killed in the midst of an answer, at its 60th token."""
    passes = itertools.count(1)

    def die(*_: object) -> None:
        if next(passes) == 60:
            os.kill(os.getpid(), signal.SIGKILL)

    models.load_weights(of.weights).model.register_forward_hook(die)
    generated(store, {"other": of}, PROMPTS[:N_PROMPTS])


@pytest.fixture(scope="module")
def killed(folder, place) -> int:
    """How many answers a process had stored when it was killed."""
    store = place / "outputs" / "cache" / "store.sqlite"
    store.parent.mkdir(parents=True)
    of = entrant(folder / "other", entrant_id="other", batch_size=1, **WARM)
    models.load_weights(of.weights)
    forks = multiprocessing.get_context("fork")  # without importing torch again
    victim = forks.Process(target=answer_until_killed, args=(store, of))
    victim.start()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL
    models.release_weights()
    return int(rows(store, "SELECT COUNT(*) FROM answers")[0][0])


@pytest.fixture(scope="module")
def resumed(place, hub, arguments, killed) -> Ran:
    """A run in whose store are the answers of the process that was killed."""
    online = {"HF_ENDPOINT": hub.url, "HF_HOME": str(place / "hub")}
    return run(*arguments, folder=place, **online)


@pytest.mark.system
def test_a_run_goes_on_from_a_killed_process_to_the_answers_of_one_batch(
    folder, place, killed, resumed
):
    """With those from the folders that the hub served."""
    usage = resumed.read("manifest.json")["usage"]
    assert 0 < killed < N_PROMPTS
    assert usage["responses_stored"] == killed
    assert usage["responses_generated"] == 3 * N_PROMPTS - killed
    prompts, base = bank.load_bank(place / "bank.jsonl"), folder / "base"
    at_once = {
        "base": entrant(base, max_new_tokens=24),
        "other": entrant(folder / "other", **WARM),
        "tuned": entrant(base, folder / "lora", max_new_tokens=24),
    }
    for name, of in at_once.items():
        answered = resumed.rows(f"responses/responses_{name}.jsonl")
        texts = {row["prompt_id"]: row["response_text"] for row in answered}
        assert texts == {n: r.response_text for n, r in answers(of, prompts).items()}


@pytest.mark.system
def test_the_manifest_names_judge_versions_and_hashes_of_weights(folder, resumed):
    """The base model comes from the hub, and is identified by its commit."""
    manifest = resumed.read("manifest.json")
    assert set(manifest["weights"]) == {"entrant other", "judge"}
    file = folder / "judge" / "model.safetensors"
    assert manifest["weights"]["judge"][str(file)] == sha256(file)
    assert manifest["judge_model"] == f"{folder}/judge"
    assert manifest["usage"]["judge_calls"] == 6
    assert set(manifest["truncated_responses"]) == {"base", "other", "tuned"}
    assert {"torch", "transformers", "peft"} <= set(manifest["versions"])
    (begun, *_) = resumed.rows("tracker/log.jsonl")
    assert begun["value"]["holds_weights"]  # so that trackers watch the machine


@pytest.mark.system
def test_the_second_run_needs_no_network_and_no_torch(place, hub, arguments, resumed):
    hub.asked.clear()
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hub")}
    program = [sys.executable, "-W", "error", "-c", BLOCK, *arguments]
    again = attempt_program(*program, folder=place, PYTHONPATH=str(HOME), **offline)
    assert again.code == 0, again.err
    usage = again.read("manifest.json")["usage"]
    assert (usage["responses_generated"], usage["judge_calls"]) == (0, 0)
    for name in ("elo_results.json", "battles.jsonl"):
        before = (resumed.run_dir / name).read_bytes()
        assert (again.run_dir / name).read_bytes() == before
    assert hub.asked == []
