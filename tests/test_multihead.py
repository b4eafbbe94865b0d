"""Heads as a batch compute what whole models do; verification emits samples of their product."""

import math
from collections import Counter
from itertools import combinations
from itertools import product as tuples
from typing import Any

import pytest
import torch
from scipy import stats
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import DynamicLayer

from elo_exp.errors import UserError
from elo_exp.models.multihead import (
    DecodedAnswer,
    KeyValueBuffer,
    MultiHead,
    Sampling,
    Step,
    measure_geometry,
    new_caches,
    residual,
    softmax,
    step,
    validity_radius,
    vote_stability,
)
from tests.tiny_heads import jury_logits, merged

DEPTH = 2
IDS = list(range(20, 44))
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "olmo2": {"tie_word_embeddings": True},
    "olmo3": {"sliding_window": 8},
    "mistral": {"sliding_window": 8},
    "qwen3": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 8},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8},
    "granite": {},
}


def built(kind: str, **config: Any) -> Any:
    """A random model of one of the library's families."""
    described = AutoConfig.for_model(kind, **{**SIZES, **config})
    model = AutoModelForCausalLM.from_config(described).eval()
    source = torch.Generator().manual_seed(0)
    for weights in model.requires_grad_(requires_grad=False).parameters():
        if weights.dim() > 1:
            weights.normal_(0, 0.25, generator=source)
    return model


def random_update(model: Any, *, rank: int) -> Any:
    source = torch.Generator().manual_seed(rank)
    return {
        (layer, name): tuple(torch.randn(rank, n, generator=source) / 5 for n in sizes)
        for layer in range(DEPTH)
        for name, sizes in measure_geometry(model, DEPTH).sizes.items()
    }


@torch.inference_mode()
def logits(model: MultiHead, heads: list[list[int]], ends: list[int]) -> Any:
    """By end, the logits (H, 2, V) of IDS read in pieces that end there.

    The second of the two prompts is the first without five tokens: padded on the left.
    """
    ids, mask = torch.tensor([IDS, [0] * 5 + IDS[5:]]), torch.ones(2, len(IDS))
    mask[1, :5] = 0
    caches, found = new_caches(), []
    for start, end in zip([0, *ends], [*ends, len(IDS)], strict=True):
        row, seen = ids[:, start:end], mask[:, :end].long()
        _, some = model.read_tokens(row, seen, torch.tensor(heads), caches)
        found.append(some)
    return found


def test_a_buffer_returns_what_the_librarys_layer_does():
    """Over its room and back to one row."""
    ours, theirs = KeyValueBuffer(), DynamicLayer()
    for i, n in enumerate((5, 1, 70, 1, 66, 2)):
        keys, values = torch.randn(2, 2 - i // 4, 3, n, 4)
        for layer in (ours, theirs):
            if i == 4:
                layer.batch_select_indices(torch.tensor([1]))
        expected = theirs.update(keys, values)
        found = ours.update(keys.clone(), values.clone())
        assert all(map(torch.equal, found, expected))
        assert ours.get_seq_length() == theirs.get_seq_length()


@pytest.mark.parametrize("kind", FAMILIES)
def test_heads_in_pieces_are_whole_models_with_their_updates_merged_in(kind):
    """Of different ranks, one of them without an update in some places, one without any."""
    model = built(kind, **FAMILIES[kind])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    full, other = random_update(model, rank=2), random_update(model, rank=3)
    updates = [full, other, {(1, "up_proj"): other[1, "up_proj"]}, {}]
    wholes = [merged(model, each, DEPTH) for each in updates]
    long, short = (jury_logits(wholes, row) for row in (IDS, IDS[5:]))  # (H, T, V)
    scale = long.abs().max()
    assert (long[0] - long[1]).abs().max() > 0.1 * scale
    heads = MultiHead(model, measure_geometry(model, DEPTH), updates)
    for ends in ([], [6, 7, 15, 16]):
        found = logits(heads, [[0], [1], [2], [3]], ends)
        for end, some in zip([*ends, len(IDS)], found, strict=True):
            expected = torch.stack([long[:, end - 1], short[:, end - 6]], dim=1)
            assert (some - expected).abs().max() < 1e-4 * scale
    (own,) = logits(heads, [[2, 1]], [])
    expected = torch.stack([long[2, -1], short[1, -1]])
    assert (own[0] - expected).abs().max() < 1e-4 * scale
    assert all(torch.equal(now, before[n]) for n, now in model.state_dict().items())
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("gpt2", {"n_embd": 32, "n_head": 2}),
        ("phi3", {}),
        ("qwen3_next", {"head_dim": 16}),
        ("granite", {"embedding_multiplier": 9.0}),  # it scales what the heads read
    ],
)
def test_a_model_of_another_build_is_refused(kind, config):
    with pytest.raises(
        UserError, match="model must be built like Llama or Olmo2, .*; got a "
    ):
        model = built(kind, **config)
        MultiHead(model, measure_geometry(model, DEPTH), [{}])


def test_heads_as_deep_as_the_model_are_refused():
    with pytest.raises(
        UserError, match="heads_depth in manifest.json must be below 4, .*; got 4"
    ):
        measure_geometry(built("llama"), 4)


# The product of experts


def sampling(
    beta: float, temperature: float | None, decode: Any = "speculative"
) -> Sampling:
    return Sampling(
        decode=decode, beta=beta, temperature=temperature, max_new_tokens=9, end_ids=()
    )


def random_logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 1.5


def chosen(logits: torch.Tensor, drafters: Any, how: Sampling) -> Step:
    return step(logits, torch.as_tensor(drafters), range(len(drafters)), 0, how)


@pytest.mark.parametrize(("beta", "temperature"), [(1.0, 1.0), (0.125, 0.98), (2, 0.5)])
def test_the_target_multiplies_the_probabilities_of_all_heads_but_the_drafter(
    beta, temperature
):
    logits, drafters = random_logits(4, 3, 7), [2, 0, 3]
    found = chosen(logits, drafters, sampling(beta, temperature)).target
    for i, drafter in enumerate(drafters):
        jury = logits[[head for head in range(4) if head != drafter], i]
        weights = (jury.double() / temperature).softmax(-1).prod(0) ** beta
        assert torch.allclose(found[i], weights / weights.sum(), atol=1e-12)
    cold = chosen(logits, drafters, sampling(beta, 1e-3, "direct"))
    assert torch.equal(
        chosen(logits, drafters, sampling(beta, None, "direct")).token, cold.token
    )


@pytest.mark.parametrize("seed", range(5))
def test_accepted_drafts_and_replacements_add_up_to_the_target(seed):
    """A token is an accepted draft, min(P, q), or replaces a rejected one: together exactly P."""
    q, p = softmax(random_logits(2, 9, seed=seed), 1.0)
    accepted = torch.minimum(p, q)
    left = residual(p, q)
    emitted = accepted + (1 - accepted.sum()) * left / left.sum()
    assert torch.allclose(emitted, p, atol=1e-12)
    assert torch.equal(residual(p, p), p)  # where rounding leaves nothing


@pytest.mark.system
@pytest.mark.parametrize("decode", ["speculative", "direct"])
def test_tokens_are_distributed_as_the_target(decode):
    """Chi-square of 20,000 tokens, by the same logits of three heads."""
    n = 20_000
    logits = random_logits(3, 1, 9).expand(3, n, 9)
    found = chosen(logits, [1] * n, sampling(0.5, 0.7, decode))
    counts = torch.bincount(found.token, minlength=9)
    assert stats.chisquare(counts, n * found.target[0]).pvalue > 1e-3
    if decode == "speculative":
        assert 0.2 < found.accepted.double().mean() < 0.8


def test_a_greedy_draft_is_accepted_if_it_is_the_targets_own_choice():
    drafts, choices = [1, 2, 2], [1, 0, 2]
    logits = torch.stack([torch.eye(3)[drafts], torch.eye(3)[choices]])
    found = chosen(logits, [0, 0, 0], sampling(1.0, None))
    assert found.accepted.tolist() == [True, False, True]
    assert found.token.tolist() == choices


def test_rounds_are_those_of_drafting_four_tokens_ahead():
    """A round ends with its first rejected draft, or after four accepted ones."""

    def n_rounds(accepted: str) -> int:
        return DecodedAnswer(accepted=[each == "a" for each in accepted]).n_rounds

    found = {
        each: n_rounds(each) for each in ("", "a", "aaaa", "aaaaa", "rrr", "aarar")
    }
    assert found == {"": 0, "a": 1, "aaaa": 1, "aaaaa": 2, "rrr": 3, "aarar": 2}


# Diagnostics


@pytest.mark.parametrize("temperature", [1.0, None])
def test_the_diagnostics_of_a_token_by_hand(temperature):
    """A jury of three over four tokens: for one prompt all prefer token 2, for another no two agree.

    The other's draft is token 3, which is rejected. Greedy answers are diagnosed at temperature 1.
    """
    sure = torch.tensor([0.0, 0.0, math.log(5), 0.0]).expand(3, -1)
    torn = torch.eye(4)[:3] * math.log(2)
    drafts = torch.eye(4)[[2, 3]] * 99
    logits = torch.cat([drafts[None], torch.stack([sure, torn], dim=1)])
    how = sampling(1 / 3, temperature)
    found = step(logits, torch.tensor([0, 0]), [1, 2], 0, how)  # verdicts VVV
    first, second = DecodedAnswer(tokens=[7]), DecodedAnswer(tokens=[7, 7, 7])
    found.diagnose([first, second])
    assert (first.accepted, second.accepted) == ([True], [False])
    assert first.diagnostics["margin"] == pytest.approx([5 / 8 - 1 / 8])
    assert second.diagnostics["margin"] == pytest.approx([0])
    entropies = [stats.entropy([5, 1, 1, 1]), stats.entropy([2 ** (1 / 3)] * 3 + [1])]
    each = [one.diagnostics["entropy_nats"][0] for one in (first, second)]
    assert each == pytest.approx(entropies)
    # Of 3 votes to 0, with one gone it leads.
    assert first.diagnostics["stability_radius"] == [1]
    assert second.diagnostics["stability_radius"] == [0]
    assert first.diagnostics["plurality_lead"] == [1]
    scores = second.diagnostics["suppression_score"]
    assert scores == pytest.approx([1 / (1 + 3 * 2 ** (1 / 3))])
    assert second.diagnostics["rejected_at"] == [3]
    assert second.diagnostics["validity_radius"] == [2]
    assert first.diagnostics["rejected_at"] == []


@pytest.mark.parametrize(
    ("votes", "of_a", "of_b"),
    [
        *(("aaaaaaaa", 4, 0), ("aaaaaaab", 3, 0), ("aaaabbbb", 0, 0)),
        *(("aaaabbcc", 1, 0), ("a", 0, 0), ("bbbc", 0, 1)),
    ],
)
def test_the_lead_is_half_the_votes_ahead_of_any_other_token(votes, of_a, of_b):
    cast = [ord(vote) for vote in votes]
    assert (vote_stability(cast, ord("a")), vote_stability(cast, ord("b"))) == (
        of_a,
        of_b,
    )


def fewest_flips(votes: tuple[int, ...], token: int) -> int:
    """By trying all: the smallest set of votes whose change gives the token the most."""
    for n in range(len(votes) + 1):
        for some in combinations(range(len(votes)), n):
            changed = [token if i in some else vote for i, vote in enumerate(votes)]
            counts = Counter(changed)
            mine = counts.pop(token, 0)
            if all(mine > count for count in counts.values()):
                return n
    raise AssertionError


def test_the_validity_radius_is_the_fewest_votes_to_change():
    assert validity_radius([1, 1, 1, 2, 2, 3], 3) == 2  # 1 loses two: 1 2 2 3 3 3
    for votes in tuples(range(3), repeat=5):
        assert validity_radius(votes, 0) == fewest_flips(votes, 0)
