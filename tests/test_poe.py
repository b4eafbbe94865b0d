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

from elo_exp.data import bank
from elo_exp.files import write_jsonl
from elo_exp.models import adapters, causal_lm
from elo_exp.models.adapters import Update
from elo_exp.models.decoding import Decoded, Sampling, p_correct, sampled, verified
from elo_exp.models.generation import prompt_seed
from elo_exp.models.multihead import MultiHead, geometry
from elo_exp.models.speculative import distribution, draw, product, verify
from elo_exp.records import Prompt, Response, UserError, canonical_json, fingerprint
from tests.commands import attempt, run
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
ONE_KIND = pytest.mark.parametrize("world", ["olmo2"], indirect=True)


@dataclass(frozen=True)
class World:
    """A model, the updates of its four heads, and whole models that are these heads."""

    model: Any
    updates: Sequence[Update]
    heads: MultiHead
    wholes: Sequence[Any]

    def verified(
        self, sampling: Sampling = SAMPLING, seed: int = 0, ids: Sequence[int] = IDS
    ) -> Decoded:
        with torch.inference_mode():
            rng = np.random.default_rng(seed)
            return verified(
                self.heads, ids, drafter=DRAFTER, jury=JURY, sampling=sampling, rng=rng
            )

    def sampled(
        self,
        sampling: Sampling = SAMPLING,
        seed: int = 0,
        heads: Sequence[int] = JURY,
        ids: Sequence[int] = IDS,
    ) -> Decoded:
        with torch.inference_mode():
            return sampled(
                self.heads,
                ids,
                heads=heads,
                sampling=sampling,
                rng=np.random.default_rng(seed),
            )

    def target(
        self, tokens: Sequence[int], sampling: Sampling = SAMPLING
    ) -> torch.Tensor:
        """P (T, V) at each of an answer's tokens."""
        logits = jury_logits([self.wholes[head] for head in JURY], [*IDS, *tokens])[
            :, len(IDS) - 1 : -1
        ]
        return product(logits, beta=sampling.beta, temperature=sampling.temperature)


def made(model: Any, updates: Sequence[Update]) -> World:
    wholes = [merged(model, update, DEPTH) for update in updates]
    return World(model, updates, MultiHead(model, depth=DEPTH, updates=updates), wholes)


def tiny(folder: Path, kind: str) -> World:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        tiny_model(folder / "model", kind=kind, n_layers=3)
    ).eval()
    sizes = geometry(model, DEPTH)
    files = adapters.find(
        security_dir=str(tiny_heads(folder / "heads", sizes, n_heads=4)),
        robustness_dir=None,
        rob_checkpoint=None,
        uncertainty_path=None,
    )
    return made(model, [adapters.read(some, sizes) for some in files.heads])


@pytest.fixture(scope="module", params=["olmo2", "llama"])
def world(request, tmp_path_factory) -> World:
    return tiny(tmp_path_factory.mktemp("world"), request.param)


@pytest.fixture(scope="module")
def plain(world) -> World:
    """The same model, its heads without updates."""
    return made(world.model, [{}] * 4)


def continued(model: Any, prompt: Sequence[int] = IDS) -> list[int]:
    """What the library's own generate says, greedily."""
    ids = torch.tensor([prompt])
    mask, n = torch.ones_like(ids), SAMPLING.max_new_tokens
    answer = model.generate(
        ids, attention_mask=mask, max_new_tokens=n, do_sample=False, eos_token_id=[]
    )
    return answer[0, len(prompt) :].tolist()


# One head alone


def test_a_greedy_head_answers_as_a_whole_model_with_its_update(world, plain):
    answers = [world.sampled(GREEDY, heads=[head]).tokens for head in range(4)]
    assert answers == [continued(whole) for whole in world.wholes]
    assert len(set(map(tuple, answers))) == 4  # the heads differ
    assert plain.sampled(GREEDY, heads=[0]).tokens == continued(plain.model)
    assert plain.sampled(GREEDY, heads=[0], ids=[40]).tokens == continued(
        plain.model, [40]
    )
    assert (
        world.verified(GREEDY, ids=[40]).tokens
        == world.sampled(GREEDY, ids=[40]).tokens
    )


@ONE_KIND
def test_a_sampled_head_needs_nothing_of_the_others(world):
    rng = np.random.default_rng(5)
    ids = list(IDS)
    for _ in range(SAMPLING.max_new_tokens):
        logits = jury_logits([world.wholes[2]], ids)[0, -1]
        ids.append(draw(distribution(logits, SAMPLING.temperature), rng.random()))
    alone = world.sampled(replace(SAMPLING, beta=1.0), seed=5, heads=[2])
    assert alone.tokens == ids[len(IDS) :]
    assert alone.diagnostics == []


# The product: with caches and without


def uncached(world: World, sampling: Sampling, seed: int) -> list[int]:
    """Speculative verification over whole models, every prefix read anew."""
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    while (room := sampling.max_new_tokens - len(tokens)) > 0:
        drafts: list[int] = []
        q = []
        for _ in range(min(sampling.gamma, room)):
            logits = jury_logits([world.wholes[DRAFTER]], [*IDS, *tokens, *drafts])[
                0, -1
            ]
            q.append(distribution(logits, sampling.temperature))
            drafts.append(draw(q[-1], rng.random()))
        p = world.target([*tokens, *drafts], sampling)[len(tokens) :]
        verification = verify(drafts, torch.stack(q), p, rng)
        tokens += drafts[: verification.n_accepted] + (
            [] if verification.replacement is None else [verification.replacement]
        )
    return tokens


@pytest.mark.parametrize(
    "sampling",
    [SAMPLING, GREEDY, replace(SAMPLING, gamma=1)],
    ids=["sampled", "greedy", "single drafts"],
)
def test_caches_that_are_rolled_back_change_no_token(world, sampling):
    decoded = world.verified(sampling)
    assert decoded.tokens == uncached(world, sampling, seed=0)
    assert decoded.rejections  # there was something to roll back


@ONE_KIND
def test_merged_copies_of_the_heads_answer_alike(world):
    copies = replace(
        world,
        heads=MultiHead(world.model, depth=DEPTH, updates=world.updates, merge=True),
    )
    assert copies.verified().tokens == world.verified().tokens
    assert copies.sampled().tokens == world.sampled().tokens


def test_greedy_answers_are_the_same_with_and_without_drafts(world):
    answers = {
        tuple(world.verified(replace(GREEDY, gamma=gamma)).tokens) for gamma in (3, 4)
    }
    assert answers == {tuple(world.sampled(GREEDY).tokens)}
    assert list(*answers) == world.target(*answers, GREEDY).argmax(-1).tolist()


# The product: its distribution


def ranks(world: World, tokens: Sequence[int], seed: int) -> list[float]:
    """The share of P with likelier tokens and a random part of each token's own.

    Uniform in [0, 1) if the tokens are samples of P (the probability integral transform).
    """
    rng = np.random.default_rng(seed)
    p = world.target(tokens, LONG)
    own = p.gather(1, torch.tensor(tokens)[:, None])
    likelier = torch.where(p > own, p, 0.0).sum(1)
    return [
        float(x + rng.random() * y) for x, y in zip(likelier, own[:, 0], strict=True)
    ]


def chi_square(world: World, answers: Sequence[Decoded]) -> float:
    """The p-value of ten equal bins of the ranks."""
    every = [
        rank
        for seed, answer in enumerate(answers)
        for rank in ranks(world, answer.tokens, seed)
    ]
    return float(stats.chisquare(np.histogram(every, bins=10, range=(0, 1))[0]).pvalue)


LONG = replace(SAMPLING, beta=1.0, max_new_tokens=80)  # sharper than a head alone


@ONE_KIND
def test_the_tokens_are_samples_of_the_product(world):
    """And the same test tells the tokens of one head from them."""
    assert chi_square(world, [world.verified(LONG, seed) for seed in range(3)]) > 1e-3
    assert chi_square(world, [world.sampled(LONG, seed) for seed in range(3)]) > 1e-3
    one_head = [world.sampled(LONG, seed, heads=[DRAFTER]) for seed in range(3)]
    assert chi_square(world, one_head) < 1e-6


@pytest.mark.parametrize("sampling", [SAMPLING, GREEDY], ids=["sampled", "greedy"])
def test_equal_heads_reject_nothing(plain, sampling):
    decoded = plain.verified(sampling)
    assert decoded.rejections == []
    assert (decoded.n_rounds, decoded.n_accepted) == (6, 24)
    assert {each.stability_radius for each in decoded.diagnostics} == {
        1
    }  # three heads of one mind


# Where an answer ends


def test_an_answer_ends_with_an_end_token_also_within_a_draft(plain):
    """Of equal heads, which reject nothing, the answer is the same up to there."""
    whole = plain.verified().tokens
    for place in (0, 1, 5, 6):
        ended = plain.verified(replace(SAMPLING, end_ids=[whole[place]]))
        assert ended.tokens == whole[: whole.index(whole[place]) + 1]
        assert ended.ended


@ONE_KIND
def test_no_end_token_stands_within_an_answer(world):
    ends = range(0, 512, 10)
    for seed in range(4):
        for decoded in (
            world.verified(replace(SAMPLING, end_ids=ends), seed),
            world.sampled(replace(SAMPLING, end_ids=ends), seed),
        ):
            assert [token in ends for token in decoded.tokens] == [False] * (
                len(decoded.tokens) - 1
            ) + [decoded.ended]
            assert len(decoded.diagnostics) == len(decoded.tokens)


@ONE_KIND
@pytest.mark.parametrize("n", [1, 9])
def test_an_answer_is_cut_off_at_the_limit(world, n):
    limited = replace(SAMPLING, max_new_tokens=n)
    for decoded in (world.verified(limited), world.sampled(limited)):
        assert (len(decoded.tokens), decoded.ended) == (n, False)


# The uncertainty head


def test_the_uncertainty_head_weighs_the_letters_with_the_witness_in_the_residual_stream(
    world,
):
    """Against the whole model, with the witness added before its last layers by a hook."""
    witness = torch.randn(32, generator=torch.Generator().manual_seed(3))
    whole = merged(world.model, world.updates[3], DEPTH)
    whole.model.layers[-DEPTH].register_forward_pre_hook(
        lambda module, args: (
            torch.cat([args[0][:, :-1], args[0][:, -1:] + witness], dim=1),
            *args[1:],
        )
    )
    logits = jury_logits([whole], IDS)[0, -1]
    with torch.inference_mode():
        found = p_correct(world.heads, IDS, head=3, witness=witness, yes=35, no=36)
        without = p_correct(
            world.heads, IDS, head=3, witness=0 * witness, yes=35, no=36
        )
    assert found == pytest.approx(
        float(torch.sigmoid(logits[35] - logits[36])), abs=1e-5
    )
    assert 0 < found < 1
    assert abs(found - without) > 1e-3  # it responds to the witness


@ONE_KIND
def test_the_witness_is_the_head_behind_the_first_token(world):
    """Who drafted it, where it was accepted; else the head of the jury that finds it likeliest."""
    seen = set()
    for seed in range(12):
        decoded = world.verified(replace(SAMPLING, max_new_tokens=1), seed)
        logits = jury_logits(world.wholes, IDS)[:, -1].log_softmax(-1)
        rejected = bool(decoded.rejections)
        behind = (
            max(JURY, key=lambda head: float(logits[head, decoded.tokens[0]]))
            if rejected
            else DRAFTER
        )
        whole = world.wholes[behind]
        state = whole(torch.tensor([IDS]), output_hidden_states=True).logits[0, -1]
        assert decoded.witness is not None
        assert torch.allclose(world.heads.logits(decoded.witness), state, atol=1e-4)
        seen.add(rejected)
    assert seen == {True, False}


# The entrant

PROMPTS = [
    Prompt(
        prompt_id=f"p{i}",
        text=f"What is the dose of drug {i}?",
        source="medqa",
        subject="pharmacology",
    )
    for i in range(8)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, security and robustness adapters of four heads, an uncertainty head."""
    folder = tmp_path_factory.mktemp("poe")
    sizes = model_geometry(tiny_model(folder / "model", n_layers=3), DEPTH)
    tiny_heads(folder / "security", sizes, n_heads=4, spread=0.15)
    tiny_heads(folder / "robustness", sizes, n_heads=4, spread=0.15, seed=1)
    save(folder / "uncertainty" / "final.pt", tensors(sizes, seed=9))
    return folder


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {
        "model": "model",
        "security_dir": "security",
        "robustness_dir": "robustness",
        "cache_dir": "cache",
    }
    paths = {name: str(folder / place) for name, place in given.items()}
    return {
        **paths,
        "dtype": "float32",
        "device": "cpu",
        "max_new_tokens": 12,
        **changes,
    }


def entrant(folder: Path, name: str = "full_poe", **changes: Any) -> Any:
    return shipped("entrant", name, **settings(folder, **changes))


def answers(entrant: Any, prompts: Sequence[Prompt] = PROMPTS[:3]) -> list[Response]:
    return [replace(response, timestamp=None) for response in entrant.generate(prompts)]


def test_the_weight_files_are_those_of_the_model_and_of_every_head(folder):
    path = str(folder / "uncertainty" / "final.pt")
    paths = entrant(folder, uncertainty_path=path, needs_uncertainty=True).weight_files
    folders = {path.relative_to(folder).parts[0] for path in paths}
    assert folders == {"model", "security", "robustness", "uncertainty"}
    assert all(path.is_file() for path in paths)


def test_the_three_entrants_share_a_load_and_the_drafting_heads(folder):
    names = ("security_only", "security_plus_robustness", "full_poe")
    loads, texts, heads = set(), set(), set()
    for name in names:
        some = answers(entrant(folder, name, max_new_tokens=4), PROMPTS)
        texts.add(tuple(answer.response_text for answer in some))
        heads.add(tuple(answer.diagnostics["draft_head_idx"] for answer in some))
        loads.add(id(causal_lm.load(entrant(folder, name).weights)))
    assert (len(loads), len(texts), len(heads)) == (1, 3, 1)
    assert len(set(*heads)) > 2  # not one head for all prompts


def test_a_bypassed_jury_leaves_the_drafting_heads_own_answer(folder):
    """security_plus_robustness, greedy: what generate gives with both updates merged in."""
    lm = causal_lm.load(entrant(folder).weights)
    files = adapters.find(
        security_dir=str(folder / "security"),
        robustness_dir=str(folder / "robustness"),
        rob_checkpoint=-1,
        uncertainty_path=None,
    )
    greedy = entrant(folder, "security_plus_robustness", temperature=None)
    for prompt, answer in zip(PROMPTS, answers(greedy), strict=False):
        head = files.heads[answer.diagnostics["draft_head_idx"]]
        whole = merged(lm.model, adapters.read(head, geometry(lm.model, DEPTH)), DEPTH)
        ids = causal_lm.chat_ids(
            lm, prompt.text, system_prompt=None, chat_template=None
        )
        row = torch.tensor([ids])
        generated = whole.generate(
            row, attention_mask=torch.ones_like(row), max_new_tokens=12
        )
        tokens = generated[0, len(ids) :]
        assert (
            answer.response_text
            == lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        )
        assert answer.diagnostics["n_tokens_generated"] == len(tokens)


def test_the_diagnostics_of_a_verified_answer(folder):
    for answer in answers(entrant(folder)):
        found = answer.diagnostics
        n_tokens, n_rejected = found["n_tokens_generated"], found["n_resampled"]
        assert answer.finish_reason == ("length" if n_tokens == 12 else "stop")
        assert (found["seed"], found["bypass_jury"]) == (
            prompt_seed(answer.prompt_id),
            False,
        )
        for name in ("entropy_nats", "margin", "stability_radius"):
            assert len(found[name]) == n_tokens
        for name in ("rejected_at", "suppression_score", "validity_radius"):
            assert len(found[name]) == n_rejected
        assert found["mean_entropy_nats"] == pytest.approx(
            np.mean(found["entropy_nats"]), abs=1e-5
        )
        assert found["acceptance_rate"] == pytest.approx(1 - n_rejected / n_tokens)
        assert -(-n_tokens // 4) <= found["n_rounds"] <= n_tokens
        assert (
            Response.from_dict(json.loads(canonical_json(answer.to_dict()))).diagnostics
            == found
        )


def test_the_diagnostics_of_other_answers(folder):
    (bypassed,) = answers(entrant(folder, "security_only"), PROMPTS[:1])
    assert (
        bypassed.diagnostics["bypass_jury"],
        bypassed.diagnostics["n_resampled"],
    ) == (True, 0)
    assert "mean_entropy_nats" not in bypassed.diagnostics
    (direct,) = (
        answer.diagnostics for answer in answers(entrant(folder, decode="direct"))[:1]
    )
    assert len(direct["entropy_nats"]) == direct["n_tokens_generated"]
    assert (direct["n_resampled"], direct["mean_suppression_score"]) == (0, None)
    assert "acceptance_rate" not in direct


def test_p_correct_is_a_probability_and_changes_no_text(folder):
    path = str(folder / "uncertainty" / "final.pt")
    with_head = answers(entrant(folder, needs_uncertainty=True, uncertainty_path=path))
    plain = answers(entrant(folder, uncertainty_path=path))
    found = [answer.p_correct for answer in with_head]
    assert all(0 < p < 1 for p in found)
    assert len(set(found)) == len(found)
    assert {answer.p_correct for answer in plain} == {None}
    assert [a.response_text for a in plain] == [a.response_text for a in with_head]


def test_an_answer_depends_on_its_prompt_alone(folder):
    together = {
        answer.prompt_id: answer for answer in answers(entrant(folder), PROMPTS[:4])
    }
    for prompt in PROMPTS[3:1:-1]:
        assert answers(entrant(folder), [prompt]) == [together[prompt.prompt_id]]


def test_the_cache_key_has_all_that_can_change_an_answer_and_nothing_else(folder):
    def key(**changes: Any) -> str:
        return fingerprint(entrant(folder, **changes).cache_key(PROMPTS[0]))

    same = [
        {"merge": True},
        {"device": "auto"},
        {"uncertainty_path": str(folder / "none.pt")},
    ]
    assert {key(**change) for change in same} == {key()}
    other = [
        {"beta": 0.5},
        {"gamma": 3},
        {"decode": "direct"},
        {"temperature": None},
        {"max_new_tokens": 13},
        {"rob_checkpoint": None},
        {"bypass_jury": True},
        {"system_prompt": "Be brief."},
        {"dtype": "bfloat16"},
        {"security_dir": str(folder / "robustness")},
    ]
    assert len({key(), *(key(**change) for change in other)}) == 1 + len(other)
    assert key(decode="direct", gamma=3) == key(decode="direct")
    assert key(bypass_jury=True, beta=0.5, decode="direct") == key(bypass_jury=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"security_dir": None},
            "security_dir: has no value. Expected the folder",
        ),
        (
            {"needs_uncertainty": True, "uncertainty_path": None},
            "uncertainty_path: has no value with needs_uncertainty=true.",
        ),
    ],
)
def test_absent_adapters_are_refused_when_they_are_needed(folder, change, message):
    """An entrant is built without them: a plan needs none."""
    with pytest.raises(UserError, match=message):
        entrant(folder, **change).check()


def test_a_jury_of_no_heads_is_refused(folder, tmp_path):
    alone = str(
        tiny_heads(tmp_path, model_geometry(folder / "model", DEPTH), n_heads=1)
    )
    settings = {"security_dir": alone, "rob_checkpoint": None}
    with pytest.raises(
        UserError, match="security_dir: found one head, which leaves no jury"
    ):
        entrant(folder, **settings).check()
    assert answers(entrant(folder, **settings, bypass_jury=True), PROMPTS[:1])


def test_a_prompt_that_does_not_fit_is_refused(folder):
    with pytest.raises(
        UserError, match=r"full_poe: p0 has \d+ tokens and max_new_tokens is 2040"
    ):
        answers(entrant(folder, max_new_tokens=2040))


def test_a_command_without_the_adapters_is_refused_in_one_line(tmp_path):
    empty = {
        f"ELO_EXP_{name}_DIR": str(tmp_path) for name in ("SECURITY", "ROBUSTNESS")
    }
    ran = attempt("entrant=[full_poe,security_only]", folder=tmp_path, **empty)
    assert ran.code == 2
    message = (
        f"elo_exp: entrant.full_poe.security_dir: found no manifest.json in {tmp_path}."
    )
    assert ran.err.startswith(message)
    assert ran.err.count("\n") == 1


def test_the_four_of_the_original_meet_by_one_command(folder, tmp_path):
    write_jsonl(
        tmp_path / "bank.jsonl", [prompt.to_dict() for prompt in bank.load(BANK)[:4]]
    )
    four = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
    small = {
        "model": folder / "model",
        "dtype": "float32",
        "device": "cpu",
        "max_new_tokens": 12,
    }
    chosen = [
        f"entrant.{name}.{key}={value}" for name in four for key, value in small.items()
    ]
    places = {
        "SECURITY_DIR": "security",
        "ROBUSTNESS_DIR": "robustness",
        "UNCERTAINTY_PATH": "uncertainty/final.pt",
    }
    variables = {
        f"ELO_EXP_{name}": str(folder / place) for name, place in places.items()
    }
    given = (
        f"entrant=[{','.join(four)}]",
        *chosen,
        "judge=lexical",
        "prompts.bank_path=bank.jsonl",
        "tracker=local",
    )
    ran = run(
        *given,
        "elo.n_perms=5",
        "figures=false",
        folder=tmp_path,
        OMP_NUM_THREADS="1",
        **variables,
    )

    texts = {
        name: [
            row["response_text"]
            for row in ran.rows(f"responses/responses_{name}.jsonl")
        ]
        for name in four
    }
    assert {len(some) for some in texts.values()} == {4}
    assert len({tuple(some) for some in texts.values()}) == 4
    (verified,) = {
        row["diagnostics"]["bypass_jury"]
        for row in ran.rows("responses/responses_full_poe.jsonl")
    }
    assert not verified
    rated = ran.read("ratings.json")["dimensions"]["clinical_utility"]["elo"]["ratings"]
    assert {row["model"] for row in rated} == set(four)
