"""The product of experts: its answers, their distribution and their diagnostics.

The second opinion is a loop over whole models, each with one head's update merged in, uncached.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
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
from elo_exp.records import Prompt, Response, UserError, canonical_json, fingerprint
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


@dataclass(frozen=True)
class World:
    """A model's four heads, and whole models that are these heads."""

    heads: MultiHead
    wholes: Sequence[Any]

    def verified(self, sampling: Sampling = SAMPLING, seed: int = 0) -> Decoded:
        rng = np.random.default_rng(seed)
        parties: dict[str, Any] = {"drafter": DRAFTER, "jury": JURY}
        with torch.inference_mode():
            return verified(self.heads, IDS, **parties, sampling=sampling, rng=rng)

    def sampled(
        self,
        sampling: Sampling = SAMPLING,
        seed: int = 0,
        heads: Sequence[int] = JURY,
        ids: Sequence[int] = IDS,
    ) -> Decoded:
        rng = np.random.default_rng(seed)
        with torch.inference_mode():
            return sampled(self.heads, ids, heads=heads, sampling=sampling, rng=rng)

    def target(self, tokens: Sequence[int], sampling: Sampling) -> torch.Tensor:
        """P (T + 1, V) at each of an answer's tokens and after them."""
        wholes = [self.wholes[head] for head in JURY]
        logits = jury_logits(wholes, [*IDS, *tokens])[:, len(IDS) - 1 :]
        return sampling.product(logits)


def made(folder: Path, *, has_updates: bool) -> World:
    path = tiny_model(folder / "model", n_layers=3)
    model = AutoModelForCausalLM.from_pretrained(path).eval()
    sizes = geometry(model, DEPTH)
    files = [
        [
            AdapterFile(
                path=save(folder / f"{i}.pt", tensors(sizes, seed=i)),
                manifest=Manifest(),
            )
        ]
        for i in range(4)
    ]
    updates = [adapters.read(some if has_updates else [], sizes) for some in files]
    wholes = [merged(model, update, DEPTH) for update in updates]
    return World(MultiHead(model, depth=DEPTH, updates=updates), wholes)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return made(tmp_path_factory.mktemp("world"), has_updates=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> World:
    """Four equal heads."""
    return made(tmp_path_factory.mktemp("plain"), has_updates=False)


def generated(model: Any, ids: Sequence[int], n: int) -> list[int]:
    """The greedy answer of the library's own generate."""
    row = torch.tensor([ids])
    settings = {"max_new_tokens": n, "do_sample": False}
    answer = model.generate(row, attention_mask=torch.ones_like(row), **settings)
    return answer[0, len(ids) :].tolist()


# Decoding


@pytest.mark.parametrize("ids", [IDS, [40]], ids=["prompt", "one token"])
def test_a_greedy_head_answers_as_a_whole_model_with_its_update(world, ids):
    greedy = replace(GREEDY, end_ids=[0])
    answers = [world.sampled(greedy, heads=[h], ids=ids).tokens for h in range(4)]
    assert answers == [generated(whole, ids, 24) for whole in world.wholes]
    assert len(set(map(tuple, answers))) == 4  # the heads differ


def uncached(world: World, sampling: Sampling, seed: int) -> list[int]:
    """Speculative verification over whole models, every prefix read anew."""
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    while (room := sampling.max_new_tokens - len(tokens)) > 0:
        drafts: list[int] = []
        q = []
        for _ in range(min(sampling.gamma, room)):
            ids = [*IDS, *tokens, *drafts]
            logits = jury_logits([world.wholes[DRAFTER]], ids)[0, -1]
            q.append(softmax(logits, sampling.temperature))
            drafts.append(draw(q[-1], rng.random()))
        p = world.target([*tokens, *drafts], sampling)[len(tokens) :]
        n_accepted, replacement = verify(drafts, torch.stack(q), p, rng)
        tokens += drafts[:n_accepted] + ([] if replacement is None else [replacement])
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [SAMPLING, GREEDY, replace(SAMPLING, gamma=1, max_new_tokens=9)],
    ids=["sampled", "greedy", "single drafts"],
)
def test_caches_that_are_rolled_back_change_no_token(world, sampling):
    decoded = world.verified(sampling)
    assert decoded.tokens == uncached(world, sampling, seed=0)
    assert decoded.diagnostics["rejected_at"]  # there was something to roll back
    margins = decoded.diagnostics["margin"]
    assert len(margins) == len(decoded.tokens) == sampling.max_new_tokens


def test_samples_are_drawn_from_the_product_token_by_token(world):
    rng, tokens = np.random.default_rng(5), []
    for _ in range(SAMPLING.max_new_tokens):
        tokens.append(draw(world.target(tokens, SAMPLING)[-1], rng.random()))
    assert world.sampled(seed=5).tokens == tokens
    greedy = world.sampled(GREEDY).tokens
    assert world.verified(GREEDY).tokens == greedy
    assert world.target(greedy, GREEDY)[:-1].argmax(-1).tolist() == greedy


def chi_square(world: World, answers: Sequence[Decoded]) -> float:
    """The p-value of ten equal bins of ranks.

    A rank is the share of P with likelier tokens and a random part of the token's own: uniform if
    the tokens are samples of P (the probability integral transform).
    """
    rng = np.random.default_rng(1)
    ranks: list[float] = []
    for answer in answers:
        p = world.target(answer.tokens, LONG)[:-1]
        own = p.gather(1, torch.tensor(answer.tokens)[:, None])
        likelier = torch.where(p > own, p, 0.0).sum(1).numpy()
        ranks += list(likelier + rng.random(len(p)) * own[:, 0].numpy())
    return float(stats.chisquare(np.histogram(ranks, bins=10, range=(0, 1))[0]).pvalue)


LONG = replace(SAMPLING, beta=1.0, max_new_tokens=80)  # sharper than a head alone


def test_the_tokens_are_samples_of_the_product(world):
    """And the same test tells the tokens of one head from them."""
    assert chi_square(world, [world.verified(LONG, seed) for seed in range(3)]) > 1e-3
    assert chi_square(world, [world.sampled(LONG, seed) for seed in range(3)]) > 1e-3
    one_head = [world.sampled(LONG, seed, heads=[DRAFTER]) for seed in range(3)]
    assert chi_square(world, one_head) < 1e-6


def test_equal_heads_reject_nothing_and_end_with_an_end_token_also_within_a_draft(
    plain,
):
    for sampling in (SAMPLING, GREEDY):
        decoded = plain.verified(sampling)
        assert (decoded.n_rounds, decoded.n_accepted) == (6, 24)
        assert decoded.diagnostics["rejected_at"] == []
        assert decoded.diagnostics["stability_radius"] == [1] * 24  # 3 votes to 0
    whole = plain.verified().tokens
    for place in (0, 1, 5, 6):
        ended = plain.verified(replace(SAMPLING, end_ids=[whole[place]]))
        assert ended.tokens == whole[: whole.index(whole[place]) + 1]
        assert ended.ended


def test_no_end_token_stands_within_an_answer(world):
    often = replace(SAMPLING, end_ids=range(0, 512, 10))
    for seed in range(4):
        for decoded in (world.verified(often, seed), world.sampled(often, seed)):
            *before, last = [token in often.end_ids for token in decoded.tokens]
            assert (any(before), last) == (False, decoded.ended)
            assert len(decoded.diagnostics["margin"]) == len(decoded.tokens) <= 24


def test_p_correct_adds_the_witness_to_the_residual_stream(world):
    """Against the whole model, with the witness added before its last layers by a hook."""
    witness = torch.randn(32, generator=torch.Generator().manual_seed(3))

    def add(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        last = args[0][:, -1:] + witness
        return (torch.cat([args[0][:, :-1], last], dim=1), *args[1:])

    def found(witness: torch.Tensor) -> float:
        given: dict[str, Any] = {"head": 3, "yes": 35, "no": 36}
        with torch.inference_mode():
            return p_correct(world.heads, IDS, witness=witness, **given)

    hook = world.wholes[3].model.layers[-DEPTH].register_forward_pre_hook(add)
    logits = jury_logits([world.wholes[3]], IDS)[0, -1]
    hook.remove()
    expected = float(torch.sigmoid(logits[35] - logits[36]))
    assert found(witness) == pytest.approx(expected, abs=1e-5)
    assert abs(found(witness) - found(0 * witness)) > 1e-3


def test_the_witness_is_the_head_behind_the_first_token(world):
    """The drafter, where it was accepted; else the head of the jury that finds it likeliest."""
    seen = set()
    logits = jury_logits(world.wholes, IDS)[:, -1].log_softmax(-1)
    for seed in range(12):
        decoded = world.verified(replace(SAMPLING, max_new_tokens=1), seed)
        behind = DRAFTER
        if decoded.diagnostics["rejected_at"]:
            behind = max(JURY, key=lambda head: float(logits[head, decoded.tokens[0]]))
        whole = world.wholes[behind]
        assert decoded.witness is not None
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


def answers(entrant: Any, prompts: Sequence[Prompt] = PROMPTS[:3]) -> list[Response]:
    return [replace(response, timestamp=None) for response in entrant.generate(prompts)]


def test_the_weight_files_are_those_of_the_model_and_of_every_head(folder):
    paths = entrant(folder, needs_uncertainty=True).weight_files
    folders = {path.relative_to(folder).parts[0] for path in paths}
    assert folders == {"model", "security", "robustness", "uncertainty"}
    assert all(path.is_file() for path in paths)


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
        head = answer.diagnostics["draft_head_idx"]
        files = [
            AdapterFile(
                path=folder / kind / f"shard_{head}_lora.pt", manifest=Manifest()
            )
            for kind in ("security", "robustness")
        ]
        whole = merged(lm.model, adapters.read(files, geometry(lm.model, DEPTH)), DEPTH)
        ids = greedy.chat_ids(lm, prompt.text, None)
        tokens = generated(whole, ids, 12)
        text = lm.tokenizer.decode(tokens, skip_special_tokens=True)
        assert answer.response_text == text.strip()
        found = answer.diagnostics
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
    direct = answers(entrant(folder, decode="direct"))[0].diagnostics
    assert len(direct["entropy_nats"]) == direct["n_tokens_generated"]
    assert (direct["n_resampled"], direct["mean_suppression_score"]) == (0, None)
    assert "acceptance_rate" not in direct


def test_p_correct_is_a_probability_and_changes_no_text(folder):
    with_head = answers(entrant(folder, needs_uncertainty=True))
    plain = answers(entrant(folder))
    found = [answer.p_correct for answer in with_head]
    assert all(0 < p < 1 for p in found)
    assert len(set(found)) == len(found)
    assert {answer.p_correct for answer in plain} == {None}
    assert [a.response_text for a in plain] == [a.response_text for a in with_head]


def test_an_answer_depends_on_its_prompt_alone(folder):
    together = answers(entrant(folder), PROMPTS[:4])
    for prompt, answer in [*zip(PROMPTS, together, strict=False)][:1:-1]:
        assert answers(entrant(folder), [prompt]) == [answer]


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
    one: dict[str, Any] = {"security_dir": str(alone), "rob_checkpoint": None}
    for change, message in (
        ({"security_dir": None}, "security_dir: has no value. Expected the folder"),
        (
            {"needs_uncertainty": True, "uncertainty_path": None},
            "uncertainty_path: has no value with needs_uncertainty=true.",
        ),
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
    assert len(texts) == 4
    assert {len(some) for some in responses.values()} == {4}
    bypassed = [row["diagnostics"]["bypass_jury"] for row in responses["full_poe"]]
    assert not any(bypassed)
    elo = ran.read("ratings.json")["dimensions"]["clinical_utility"]["elo"]
    assert {row["model"] for row in elo["ratings"]} == set(four)
