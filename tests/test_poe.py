"""The product of experts: its answers, their distribution and their diagnostics.

The second opinion is a loop over whole models, each with one head's update merged in, uncached.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from elo_exp import models
from elo_exp.data import bank
from elo_exp.entrants import poe
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.models.multihead import (
    DecodedAnswer,
    MultiHead,
    Sampling,
    decode,
    measure_geometry,
    p_correct,
    step,
)
from elo_exp.records import Response
from tests.commands import run
from tests.data import BANK, shipped
from tests.tiny_heads import (
    jury_logits,
    merged,
    model_geometry,
    save,
    tensors,
    tiny_heads,
)
from tests.tiny_models import tiny_model

DEPTH, N_HEADS, N_TOKENS = 2, 4, 24
# Of 40 different lengths; each head drafts for some.
ROWS = [
    [(7 * i + 11 * n) % 90 + 3 for i in range(n)] for n in (5, 1, 9, *range(10, 47))
]
DRAFTERS = [i % N_HEADS for i in range(len(ROWS))]
SAMPLING = Sampling(
    decode="speculative",
    beta=1 / 3,
    temperature=0.7,
    max_new_tokens=N_TOKENS,
    end_ids=(),
)
GREEDY = replace(SAMPLING, temperature=None)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Any:
    path = tiny_model(tmp_path_factory.mktemp("world"), n_layers=3)
    return AutoModelForCausalLM.from_pretrained(path).eval()


@pytest.fixture(scope="module")
def updates(model, tmp_path_factory) -> list[Any]:
    """Of four heads."""
    sizes, folder = measure_geometry(model, DEPTH), tmp_path_factory.mktemp("updates")
    paths = [
        save(folder / f"{i}.safetensors", tensors(sizes, seed=i)) for i in range(4)
    ]
    files = [poe.AdapterFile(path, poe.AdapterManifest()) for path in paths]
    return [poe.read_updates([file], sizes) for file in files]


@pytest.fixture(scope="module")
def heads(model, updates) -> MultiHead:
    return MultiHead(model, measure_geometry(model, DEPTH), updates)


@pytest.fixture(scope="module")
def wholes(model, updates) -> list[Any]:
    """Whole models that are the heads."""
    return [merged(model, update, DEPTH) for update in updates]


@torch.inference_mode()
def decoded(heads: MultiHead, sampling: Sampling, *some: int) -> list[DecodedAnswer]:
    """Answers to all of ROWS together, or to some of them."""
    chosen = list(some or range(len(ROWS)))
    width = max(len(ROWS[i]) for i in chosen)
    ids = [[0] * (width - len(ROWS[i])) + ROWS[i] for i in chosen]
    mask = [[0] * (width - len(ROWS[i])) + [1] * len(ROWS[i]) for i in chosen]
    return decode(
        heads,
        torch.tensor(ids),
        torch.tensor(mask),
        n_heads=N_HEADS,
        drafters=[DRAFTERS[i] for i in chosen],
        seeds=chosen,
        sampling=sampling,
    )


@torch.inference_mode()
def uncached(wholes: Sequence[Any], sampling: Sampling, i: int) -> list[int]:
    """The answer of whole models, every prefix read anew."""
    tokens: list[int] = []
    for position in range(sampling.max_new_tokens):
        logits = jury_logits(wholes, [*ROWS[i], *tokens])[:, -1:]
        if sampling.decode == "draft":
            logits = logits[[DRAFTERS[i]]]
        drafter = torch.tensor(DRAFTERS[i : i + 1])
        found = step(logits, drafter, [i], position, sampling)
        tokens.append(int(found.token[0]))
        if tokens[-1] in sampling.end_ids:
            break
    return tokens


# Decoding


@pytest.mark.parametrize(
    ("temperature", "how"),
    [
        (0.7, "speculative"),
        (None, "direct"),
        (0.7, "draft"),
        *(
            pytest.param(temperature, how, marks=pytest.mark.slow)
            for temperature, how in (
                (None, "speculative"),
                (0.7, "direct"),
                (None, "draft"),
            )
        ),
    ],
)
def test_a_batch_answers_as_whole_models_one_prompt_at_a_time(
    heads, wholes, how, temperature
):
    """Also where prompts of the batch end before others."""
    sampling = replace(SAMPLING, decode=how, temperature=temperature)
    free = decoded(heads, sampling)
    ends = [answer.tokens[3 + i] for i, answer in enumerate(free[:4])]
    sampling = replace(sampling, end_ids=ends)
    together = decoded(heads, sampling)
    tokens = [answer.tokens for answer in together]
    assert tokens[:6] == [uncached(wholes, sampling, i) for i in range(6)]
    assert len({len(some) for some in tokens}) > 2
    for i, answer in enumerate(together if how == "speculative" else together[:3]):
        (alone,) = decoded(heads, sampling, i)
        assert torch.allclose(alone.witness, answer.witness, atol=1e-4)
        for name, values in answer.diagnostics.items():
            assert alone.diagnostics[name] == pytest.approx(values, abs=1e-5)
        assert (alone.tokens, alone.accepted) == (answer.tokens, answer.accepted)
        *before, last = [token in ends for token in answer.tokens]
        assert (any(before), last) == (False, answer.has_ended)
    rejected = sum(len(answer.diagnostics["rejected_at"]) for answer in together)
    assert (rejected > 0) == (how == "speculative")


def test_equal_heads_reject_nothing(model):
    plain = MultiHead(model, measure_geometry(model, DEPTH), [{}] * N_HEADS)
    for sampling in (SAMPLING, GREEDY):
        for answer in decoded(plain, sampling):
            assert answer.accepted == [True] * N_TOKENS
            assert answer.n_rounds == N_TOKENS / 4
            # 3 votes to 0
            assert answer.diagnostics["plurality_lead"] == [1] * N_TOKENS


def test_p_correct_adds_the_witness_to_the_residual_stream(heads, wholes):
    """Against the whole model, with the witness added before its last layers by a hook."""
    witness = torch.randn(32, generator=torch.Generator().manual_seed(3))

    def add(_: Any, args: Any) -> None:
        args[0][:, -1] += witness

    hook = wholes[3].model.layers[-DEPTH].register_forward_pre_hook(add)
    logits = jury_logits([wholes[3]], ROWS[0])[0, -1]
    hook.remove()
    ids, mask = torch.tensor([[0, *ROWS[0]]]), torch.tensor([[0, 1, 1, 1, 1, 1]])
    parts = {"head": 3, "witnesses": witness[None], "yes": 35, "no": 36}
    with torch.inference_mode():
        found = p_correct(heads, ids, mask, **parts)
    assert found == pytest.approx(
        [float((logits[35] - logits[36]).sigmoid())], abs=1e-5
    )


@pytest.mark.parametrize("how", ["speculative", "direct", "draft"])
def test_the_witness_is_the_head_behind_the_first_token(heads, wholes, how):
    """The drafter, where it was accepted; else the head of the jury that finds it likeliest."""
    one = replace(SAMPLING, decode=how, max_new_tokens=1)
    for i, answer in enumerate(decoded(heads, one)):
        logits = jury_logits(wholes, ROWS[i])[:, -1].log_softmax(-1)
        jury = [head for head in range(N_HEADS) if head != DRAFTERS[i]]
        behind = max(jury, key=lambda head: float(logits[head, answer.tokens[0]]))
        if how == "draft" or answer.accepted == [True]:
            behind = DRAFTERS[i]
        whole = wholes[behind]
        found = whole.lm_head(whole.model.norm(answer.witness)).log_softmax(-1)
        assert torch.allclose(found, logits[behind], atol=1e-4)


# The entrant

PROMPTS = bank.load_bank(BANK)[:8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, security and robustness adapters of four heads, an uncertainty head."""
    folder = tmp_path_factory.mktemp("poe")
    sizes = model_geometry(tiny_model(folder / "model", n_layers=3), DEPTH)
    tiny_heads(folder / "security", sizes, n_heads=4, spread=0.15)
    tiny_heads(folder / "robustness", sizes, n_heads=4, spread=0.15, seed=1)
    save(folder / "uncertainty" / "final.safetensors", tensors(sizes, seed=9))
    return folder


def entrant(folder: Path, name: str = "full_poe", **changes: Any) -> Any:
    places = {
        "model": "model",
        "security_dir": "security",
        "robustness_dir": "robustness",
        "uncertainty_path": "uncertainty/final.safetensors",
        "cache_dir": "cache",
    }
    paths = {setting: str(folder / place) for setting, place in places.items()}
    small = {"dtype": "float32", "device": "cpu", "max_new_tokens": 12}
    return shipped("entrant", name, **{**paths, **small, **changes})


def answers(entrant: Any, prompts: Any = PROMPTS[:3]) -> list[Response]:
    """Without their times, in the order of the prompts."""
    found = {answer.prompt_id: answer for answer in entrant.generate(prompts)}
    return [replace(found[prompt.prompt_id], timestamp=None) for prompt in prompts]


def test_a_bypassed_jury_leaves_the_drafting_heads_own_answer(folder):
    """Greedy: what generate gives with the security and the robustness update merged in."""
    greedy = entrant(folder, "security_plus_robustness", temperature=None)
    lm = models.load_weights(greedy.weights)
    for prompt, answer in zip(PROMPTS[:3], answers(greedy), strict=True):
        found = answer.diagnostics
        name = f"shard_{found['draft_head_idx']}_lora.safetensors"
        paths = [folder / kind / name for kind in ("security", "robustness")]
        files = [poe.AdapterFile(path, poe.AdapterManifest()) for path in paths]
        whole = merged(
            lm.model, poe.read_updates(files, measure_geometry(lm.model, DEPTH)), DEPTH
        )
        ids, mask = lm.pad_rows([greedy.chat_ids(lm, prompt.sent(None))])
        made = whole.generate(ids, attention_mask=mask, max_new_tokens=12)
        tokens = made[0, ids.shape[1] :].tolist()
        assert answer.response_text == lm.decode(tokens).strip()
        assert found["n_tokens_generated"] == len(tokens)
        assert (found["bypass_jury"], found["n_resampled"]) == (True, 0)
        assert "mean_entropy_nats" not in found


def test_the_diagnostics_of_a_verified_and_of_a_direct_answer(folder):
    for answer in answers(entrant(folder)):
        found = answer.diagnostics
        n_tokens, n_rejected = found["n_tokens_generated"], found["n_resampled"]
        assert answer.finish_reason == ("length" if n_tokens == 12 else "stop")
        assert len(found["entropy_nats"]) == n_tokens
        assert len(found["rejected_at"]) == n_rejected
        mean = pytest.approx(np.mean(found["entropy_nats"]), abs=1e-5)
        assert found["mean_entropy_nats"] == mean
        assert found["acceptance_rate"] == pytest.approx(1 - n_rejected / n_tokens)
        assert -(-n_tokens // 4) <= found["n_rounds"] <= n_tokens
    found = answers(entrant(folder, decode="direct"))[0].diagnostics
    assert len(found["entropy_nats"]) == found["n_tokens_generated"]
    assert (found["n_resampled"], found["mean_suppression_score"]) == (0, None)
    assert "acceptance_rate" not in found


def test_an_answer_depends_on_its_prompt_alone_and_its_p_correct_changes_no_text(
    folder,
):
    of = entrant(folder, needs_uncertainty=True)
    together, plain = answers(of), answers(entrant(folder))
    for prompt, answer in zip(PROMPTS[:3], together, strict=True):
        (alone,) = answers(of, [prompt])
        assert alone.p_correct == pytest.approx(answer.p_correct, abs=1e-5)
        assert alone.response_text == answer.response_text
    assert len({a.p_correct for a in together if 0 < a.p_correct < 1}) == 3
    assert [replace(a, p_correct=None) for a in together] == plain
    places = {path.relative_to(folder).parts[0] for path in of.weight_files}
    assert places == {"model", "security", "robustness", "uncertainty"}


def test_adapters_that_do_not_do_are_refused(folder, tmp_path):
    """When they are needed: an entrant is built without them, and a plan needs none."""
    alone = tiny_heads(tmp_path, model_geometry(folder / "model", DEPTH), n_heads=1)
    one = {"security_dir": str(alone), "rob_checkpoint": None}
    unsure = {"needs_uncertainty": True, "uncertainty_path": None}
    for change, message in (
        ({"security_dir": None}, "security_dir is not set: the folder"),
        (unsure, "uncertainty_path must be the file of the uncertainty head; None"),
        (one, "security_dir must hold two heads or more, as one head leaves no jury"),
    ):
        with pytest.raises(UserError, match=message):
            entrant(folder, **change).check()
    assert answers(entrant(folder, **one, bypass_jury=True), PROMPTS[:1])


@pytest.mark.system
def test_the_four_of_the_original_meet_by_one_command(folder, tmp_path):
    write_jsonl(tmp_path / "bank.jsonl", [prompt.to_dict() for prompt in PROMPTS[:4]])
    four = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
    model = f"{{model: {folder / 'model'}, dtype: float32, device: cpu, max_new_tokens: 12}}"
    ran = run(
        f"entrant=[{','.join(four)}]",
        *(f"entrant.{name}={model}" for name in four),
        *("study=medical", "judge=lexical", "prompts.bank_path=bank.jsonl"),
        "tracker=local",
        *("elo.n_perms=5", "figures=false"),
        folder=tmp_path,
        ELO_EXP_SECURITY_DIR=str(folder / "security"),
        ELO_EXP_ROBUSTNESS_DIR=str(folder / "robustness"),
    )
    responses = {name: ran.rows(f"responses/responses_{name}.jsonl") for name in four}
    texts = {tuple(row["response_text"] for row in responses[name]) for name in four}
    assert (len(texts), {len(some) for some in responses.values()}) == (4, {4})
    heads = {  # the same drafts for every entrant
        tuple(row["diagnostics"]["draft_head_idx"] for row in responses[name])
        for name in four[1:]
    }
    assert len(heads) == 1
    assert len(set(*heads)) > 1  # not one head for all prompts
    rated = ran.read("ratings.json")["dimensions"]["clinical_utility"]["bradley_terry"]
    assert {row["model"] for row in rated["ratings"]} == set(four)
