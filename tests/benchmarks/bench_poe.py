"""What several heads cost: nine on one trunk, against one head alone and generate.

    python -m tests.benchmarks.bench_poe

A model of random weights on one thread of the processor, or on the GPU where there is one. `ms/token`
is of decoding alone, the prompt's share taken off; on a processor it is processor time, so that other
work counts less. Read `x one head`, what the jury costs. What speculative decoding allows is (gamma +
1) passes for the tokens of a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Olmo2Config

from elo_exp.models.multihead import MultiHead, geometry
from elo_exp.models.speculative import Decoded, Sampling, sampled, verified

HIDDEN, LAYERS, INNER, VOCABULARY = 768, 12, 2048, 8192
HEADS, DEPTH, RANK = 9, 3, 8
SPREAD = (
    0.1  # of the updates; with beta, it makes the jury accept some two drafts in three
)
PROMPT = list(range(100, 180))
SHORT, LONG, REPEATS = 8, 32, 3
JURY = list(range(1, HEADS))
SAMPLING = Sampling(
    beta=0.3, temperature=0.98, gamma=4, max_new_tokens=LONG, end_ids=()
)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def ways(model: Any, heads: MultiHead) -> dict[str, Callable[[int], Any]]:
    """By name, how to answer the prompt in a number of tokens."""

    def generate(n: int) -> None:
        ids = torch.tensor([PROMPT], device=DEVICE)
        mask = torch.ones_like(ids)
        model.generate(ids, attention_mask=mask, max_new_tokens=n, do_sample=False)

    def given(n: int) -> dict[str, Any]:
        sampling = replace(SAMPLING, max_new_tokens=n)
        return {"sampling": sampling, "rng": np.random.default_rng(0)}

    def speculative(n: int) -> Decoded:
        return verified(heads, PROMPT, drafter=0, jury=JURY, **given(n))

    return {
        "one head": lambda n: sampled(heads, PROMPT, heads=[0], **given(n)),
        "generate": generate,
        "direct": lambda n: sampled(heads, PROMPT, heads=JURY, **given(n)),
        "speculative": speculative,
    }


def build() -> tuple[Any, MultiHead]:
    """A random model, and its heads with random updates."""
    torch.manual_seed(0)
    config = Olmo2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // 64,
        max_position_embeddings=1024,
        eos_token_id=None,
        pad_token_id=None,
        bos_token_id=None,
    )
    model = AutoModelForCausalLM.from_config(config).eval().to(DEVICE)
    places = [
        ((layer, projection), sizes)
        for layer in range(DEPTH)
        for projection, sizes in geometry(model, DEPTH).sizes.items()
    ]
    updates = [
        {place: tuple(torch.randn(RANK, n) * SPREAD for n in s) for place, s in places}
        for _ in range(HEADS)
    ]
    return model, MultiHead(model, depth=DEPTH, updates=updates)


def clock() -> float:
    if DEVICE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds_per_token(way: Callable[[int], Any]) -> float:
    times = [clock()]
    for n in (SHORT, LONG):
        way(n)
        times.append(clock())
    short, long = np.diff(times)
    return float(long - short) / (LONG - SHORT) * 1e3


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    model, heads = build()
    print(
        f"hidden {HIDDEN}, {LAYERS} layers, vocabulary {VOCABULARY}, {DEVICE}; {HEADS} heads of "
        f"{DEPTH} layers\n\n  {'':<14}ms/token   tokens/s   x one head"
    )
    every = ways(model, heads)
    took: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(REPEATS):
        for name, way in every.items():
            took[name].append(milliseconds_per_token(way))
    one_head = statistics.median(took["one head"])
    for name, some in took.items():
        ms = statistics.median(some)
        print(f"  {name:<14}{ms:>8.1f}{1e3 / ms:>11.1f}{ms / one_head:>13.2f}")
    answer = every["speculative"](LONG)
    n_rejected = len(answer.diagnostics["rejected_at"])
    accepted = answer.n_accepted / (answer.n_accepted + n_rejected)
    allowed = (SAMPLING.gamma + 1) * answer.n_rounds / len(answer.tokens)
    print(f"\nspeculative: {accepted:.0%} accepted, which allows x {allowed:.2f}")


if __name__ == "__main__":
    main()
