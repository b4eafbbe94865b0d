"""The product of experts: its answers, their distribution and their diagnostics.

The second opinion is a loop over whole models, each with one head's update merged in, uncached.
"""

from __future__ import annotations

import json
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
from elo_exp.files import write_jsonl
from elo_exp.models import adapters
from elo_exp.models.adapters import AdapterFile, Manifest
from elo_exp.models.multihead import MultiHead, geometry
from elo_exp.models.speculative import (
    Decoded,
    Sampling,
    draw,
    p_correct,
    sampled,
    softmax,
    verified,
    verify,
)
from elo_exp.records import Response, UserError, canonical_json, fingerprint
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

DEPTH = 2
IDS = [40, 77, 20, 31, 9]
DRAFTER, JURY = 1, [0, 2, 3]
SAMPLING = Sampling(beta=1 / 3, temperature=0.7, gamma=4, max_new_tokens=24, end_ids=())
GREEDY = replace(SAMPLING, temperature=None)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tiny_model(tmp_path_factory.mktemp("world"), n_layers=3)
    return AutoModelForCausalLM.from_pretrained(path).eval()


@pytest.fixture(scope="module")
def updates(model: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Of four heads."""
    sizes, folder = geometry(model, DEPTH), tmp_path_factory.mktemp("updates")
    paths = [save(folder / f"{i}.pt", tensors(sizes, seed=i)) for i in range(4)]
    files = [AdapterFile(path=path, manifest=Manifest()) for path in paths]
    return [adapters.read([file], sizes) for file in files]


@pytest.fixture(scope="module")
def heads(model: Any, updates: list[Any]) -> MultiHead:
    return MultiHead(model, depth=DEPTH, updates=updates)


@pytest.fixture(scope="module")
def wholes(model: Any, updates: list[Any]) -> list[Any]:
    """Whole models that are the heads."""
    return [merged(model, update, DEPTH) for update in updates]


@torch.inference_mode()
def by_drafts(heads: MultiHead, sampling: Sampling, seed: int = 0) -> Decoded:
    rng, parties = np.random.default_rng(seed), {"drafter": DRAFTER, "jury": JURY}
    return verified(heads, IDS, **parties, sampling=sampling, rng=rng)  # type: ignore[arg-type]


@torch.inference_mode()
def direct(
    heads: MultiHead, sampling: Sampling, some: Any = JURY, ids: Any = IDS
) -> Any:
    rng = np.random.default_rng(0)
    return sampled(heads, ids, heads=some, sampling=sampling, rng=rng)


def target(wholes: Sequence[Any], tokens: Sequence[int], sampling: Sampling) -> Any:
    """P (T + 1, V) at each of an answer's tokens and after them."""
    jury = [wholes[head] for head in JURY]
    return sampling.product(jury_logits(jury, [*IDS, *tokens])[:, len(IDS) - 1 :])


def generated(model: Any, ids: Sequence[int], n: int) -> list[int]:
    """The greedy answer of the library's own generate."""
    row = torch.tensor([ids])
    settings = {"max_new_tokens": n, "do_sample": False}
    answer = model.generate(row, attention_mask=torch.ones_like(row), **settings)
    return answer[0, len(ids) :].tolist()


# Decoding


@pytest.mark.parametrize("ids", [IDS, [40]], ids=["prompt", "one token"])
def test_a_greedy_head_answers_as_a_whole_model_with_its_update(heads, wholes, ids):
    greedy = replace(GREEDY, end_ids=[0])
    answers = [direct(heads, greedy, [head], ids).tokens for head in range(4)]
    assert answers == [generated(whole, ids, 24) for whole in wholes]
    assert len(set(map(tuple, answers))) == 4  # the heads differ


def uncached(wholes: Sequence[Any], sampling: Sampling) -> list[int]:
    """Speculative verification over whole models, every prefix read anew."""
    rng = np.random.default_rng(0)
    tokens: list[int] = []
    while (room := sampling.max_new_tokens - len(tokens)) > 0:
        drafts: list[int] = []
        q = []
        for _ in range(min(sampling.gamma, room)):
            ids = [*IDS, *tokens, *drafts]
            logits = jury_logits([wholes[DRAFTER]], ids)[0, -1]
            q.append(softmax(logits, sampling.temperature))
            drafts.append(draw(q[-1], rng.random()))
        p = target(wholes, [*tokens, *drafts], sampling)[len(tokens) :]
        n_accepted, replacement = verify(drafts, torch.stack(q), p, rng)
        tokens += drafts[:n_accepted] + ([] if replacement is None else [replacement])
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [SAMPLING, GREEDY, replace(SAMPLING, gamma=1, max_new_tokens=9)],
    ids=["sampled", "greedy", "single drafts"],
)
def test_caches_that_are_rolled_back_change_no_token(heads, wholes, sampling):
    decoded = by_drafts(heads, sampling)
    assert decoded.tokens == uncached(wholes, sampling)
    assert decoded.diagnostics["rejected_at"]  # there was something to roll back
    margins = decoded.diagnostics["margin"]
    assert len(margins) == len(decoded.tokens) == sampling.max_new_tokens


def test_samples_are_drawn_from_the_product_token_by_token(heads, wholes):
    rng, tokens = np.random.default_rng(0), []
    for _ in range(SAMPLING.max_new_tokens):
        tokens.append(draw(target(wholes, tokens, SAMPLING)[-1], rng.random()))
    assert direct(heads, SAMPLING).tokens == tokens
    assert by_drafts(heads, GREEDY).tokens == direct(heads, GREEDY).tokens


def test_equal_heads_reject_nothing_and_end_with_an_end_token_also_within_a_draft(
    model,
):
    plain = MultiHead(model, depth=DEPTH, updates=[{}] * 4)
    for sampling in (SAMPLING, GREEDY):
        decoded = by_drafts(plain, sampling)
        assert (decoded.n_rounds, decoded.n_accepted) == (6, 24)
        assert decoded.diagnostics["rejected_at"] == []
        assert decoded.diagnostics["stability_radius"] == [1] * 24  # 3 votes to 0
    whole = by_drafts(plain, SAMPLING).tokens
    for place in (0, 1, 5, 6):
        sampling = replace(SAMPLING, end_ids=[whole[place]])
        for ended in (by_drafts(plain, sampling), direct(plain, sampling, [0])):
            *before, last = [token == whole[place] for token in ended.tokens]
            assert (any(before), last) == (False, ended.ended)
        ended = by_drafts(plain, sampling)
        assert ended.tokens == whole[: whole.index(whole[place]) + 1]


def test_p_correct_adds_the_witness_to_the_residual_stream(heads, wholes):
    """Against the whole model, with the witness added before its last layers by a hook."""
    witness = torch.randn(32, generator=torch.Generator().manual_seed(3))

    def add(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        last = args[0][:, -1:] + witness
        return (torch.cat([args[0][:, :-1], last], dim=1), *args[1:])

    hook = wholes[3].model.layers[-DEPTH].register_forward_pre_hook(add)
    logits = jury_logits([wholes[3]], IDS)[0, -1]
    hook.remove()
    expected = float(torch.sigmoid(logits[35] - logits[36]))
    with torch.inference_mode():
        found = p_correct(heads, IDS, head=3, witness=witness, yes=35, no=36)
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_witness_is_the_head_behind_the_first_token(heads, wholes):
    """The drafter, where it was accepted; else the head of the jury that finds it likeliest."""
    seen = set()
    logits = jury_logits(wholes, IDS)[:, -1].log_softmax(-1)
    for seed in range(12):
        decoded = by_drafts(heads, replace(SAMPLING, max_new_tokens=1), seed)
        behind = DRAFTER
        if decoded.diagnostics["rejected_at"]:
            behind = max(JURY, key=lambda head: float(logits[head, decoded.tokens[0]]))
        whole = wholes[behind]
        found = whole.lm_head(whole.model.norm(decoded.witness)).log_softmax(-1)
        assert torch.allclose(found, logits[behind], atol=1e-4)
        seen.add(bool(decoded.diagnostics["rejected_at"]))
    assert seen == {True, False}


# The entrant

PROMPTS = bank.load(BANK)[:8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, security and robustness adapters of four heads, an uncertainty head."""
    folder = tmp_path_factory.mktemp("poe")
    sizes = model_geometry(tiny_model(folder / "model", n_layers=3), DEPTH)
    tiny_heads(folder / "security", sizes, n_heads=4, spread=0.15)
    tiny_heads(folder / "robustness", sizes, n_heads=4, spread=0.15, seed=1)
    save(folder / "uncertainty" / "final.pt", tensors(sizes, seed=9))
    return folder


def entrant(folder: Path, name: str = "full_poe", **changes: Any) -> Any:
    places = {
        "model": "model",
        "security_dir": "security",
        "robustness_dir": "robustness",
        "uncertainty_path": "uncertainty/final.pt",
        "cache_dir": "cache",
    }
    paths = {setting: str(folder / place) for setting, place in places.items()}
    small = {"dtype": "float32", "device": "cpu", "max_new_tokens": 12}
    return shipped("entrant", name, **{**paths, **small, **changes})


def answers(entrant: Any, prompts: Any = PROMPTS[:3]) -> list[Response]:
    return [replace(response, timestamp=None) for response in entrant.generate(prompts)]


def test_the_three_entrants_share_a_load_and_the_drafting_heads(folder):
    loads, texts, heads = set(), set(), set()
    for name in ("security_only", "security_plus_robustness", "full_poe"):
        some = answers(entrant(folder, name, max_new_tokens=4), PROMPTS)
        texts.add(tuple(answer.response_text for answer in some))
        heads.add(tuple(answer.diagnostics["draft_head_idx"] for answer in some))
        loads.add(id(models.load(entrant(folder, name).weights)))
    assert (len(loads), len(texts), len(heads)) == (1, 3, 1)
    assert len(set(*heads)) > 2  # not one head for all prompts


def test_a_bypassed_jury_leaves_the_drafting_heads_own_answer(folder):
    """Greedy: what generate gives with the security and the robustness update merged in."""
    greedy = entrant(folder, "security_plus_robustness", temperature=None)
    lm = models.load(greedy.weights)
    for prompt, answer in zip(PROMPTS[:3], answers(greedy), strict=True):
        found = answer.diagnostics
        name = f"shard_{found['draft_head_idx']}_lora.pt"
        paths = [folder / kind / name for kind in ("security", "robustness")]
        files = [AdapterFile(path=path, manifest=Manifest()) for path in paths]
        whole = merged(lm.model, adapters.read(files, geometry(lm.model, DEPTH)), DEPTH)
        tokens = generated(whole, greedy.chat_ids(lm, prompt.text, None), 12)
        assert answer.response_text == lm.text(tokens).strip()
        assert found["n_tokens_generated"] == len(tokens)
        assert (found["bypass_jury"], found["n_resampled"]) == (True, 0)
        assert "mean_entropy_nats" not in found


def test_the_diagnostics_of_a_verified_and_of_a_direct_answer(folder):
    for answer in answers(entrant(folder)):
        found = answer.diagnostics
        n_tokens, n_rejected = found["n_tokens_generated"], found["n_resampled"]
        assert answer.finish_reason == ("length" if n_tokens == 12 else "stop")
        for name in ("entropy_nats", "margin", "stability_radius"):
            assert len(found[name]) == n_tokens
        for name in ("rejected_at", "suppression_score", "validity_radius"):
            assert len(found[name]) == n_rejected
        mean = pytest.approx(np.mean(found["entropy_nats"]), abs=1e-5)
        assert found["mean_entropy_nats"] == mean
        assert found["acceptance_rate"] == pytest.approx(1 - n_rejected / n_tokens)
        assert -(-n_tokens // 4) <= found["n_rounds"] <= n_tokens
        written = json.loads(canonical_json(answer.to_dict()))
        assert Response.from_dict(written).diagnostics == found
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
        assert answers(of, [prompt]) == [answer]
    assert len({a.p_correct for a in together if 0 < a.p_correct < 1}) == 3
    assert [replace(a, p_correct=None) for a in together] == plain
    places = {path.relative_to(folder).parts[0] for path in of.weight_files}
    assert places == {"model", "security", "robustness", "uncertainty"}


def test_the_cache_key_has_all_that_can_change_an_answer_and_nothing_else(folder):
    def key(**changes: Any) -> str:
        return fingerprint(entrant(folder, **changes).cache_key(PROMPTS[0]))

    same = [{"device": "auto"}, {"uncertainty_path": str(folder / "none.pt")}]
    assert {key(**change) for change in same} == {key()}
    other: list[dict[str, Any]] = [
        {"beta": 0.5},
        {"gamma": 3},
        {"decode": "direct"},
        {"temperature": None},
        {"max_new_tokens": 13},
        {"rob_checkpoint": None},
        {"bypass_jury": True},
        {"needs_uncertainty": True},
        {"system_prompt": "Be brief."},
        {"dtype": "bfloat16"},
        {"security_dir": str(folder / "robustness")},
    ]
    assert len({key(), *(key(**change) for change in other)}) == 1 + len(other)
    assert key(decode="direct", gamma=3) == key(decode="direct")
    assert key(bypass_jury=True, beta=0.5, decode="direct") == key(bypass_jury=True)


def test_adapters_that_do_not_do_are_refused(folder, tmp_path):
    """When they are needed: an entrant is built without them, and a plan needs none."""
    alone = tiny_heads(tmp_path, model_geometry(folder / "model", DEPTH), n_heads=1)
    one = {"security_dir": str(alone), "rob_checkpoint": None}
    unsure = {"needs_uncertainty": True, "uncertainty_path": None}
    for change, message in (
        ({"security_dir": None}, "security_dir: has no value. Expected the folder"),
        (unsure, "uncertainty_path: has no value with needs_uncertainty=true."),
        (one, "security_dir: found one head, which leaves no jury"),
    ):
        with pytest.raises(UserError, match=message):
            entrant(folder, **change).check()
    assert answers(entrant(folder, **one, bypass_jury=True), PROMPTS[:1])


def test_the_four_of_the_original_meet_by_one_command(folder, tmp_path):
    write_jsonl(tmp_path / "bank.jsonl", [prompt.to_dict() for prompt in PROMPTS[:4]])
    four = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
    model = f"{{model: {folder / 'model'}, dtype: float32, device: cpu, max_new_tokens: 12}}"
    ran = run(
        f"entrant=[{','.join(four)}]",
        *(f"entrant.{name}={model}" for name in four),
        *("judge=lexical", "prompts.bank_path=bank.jsonl", "tracker=local"),
        *("elo.n_perms=5", "figures=false"),
        folder=tmp_path,
        ELO_EXP_SECURITY_DIR=str(folder / "security"),
        ELO_EXP_ROBUSTNESS_DIR=str(folder / "robustness"),
    )
    responses = {name: ran.rows(f"responses/responses_{name}.jsonl") for name in four}
    texts = {tuple(row["response_text"] for row in responses[name]) for name in four}
    assert (len(texts), {len(some) for some in responses.values()}) == (4, {4})
    elo = ran.read("ratings.json")["dimensions"]["clinical_utility"]["elo"]
    assert {row["model"] for row in elo["ratings"]} == set(four)
