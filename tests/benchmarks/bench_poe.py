"""What several heads cost: nine on one trunk, for one prompt and for several at once.

    python -m tests.benchmarks.bench_poe

A model of random weights on one thread of the processor, or on the GPU where there is one. Tokens a
second are of decoding alone, the prompts' share taken off; on a processor of processor time, so that
other work counts less. Read `x one`: what a batch gains over one prompt at a time.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Olmo2Config

from elo_exp.models.multihead import Decoded, MultiHead, Sampling, decode, geometry

HIDDEN, LAYERS, INNER, VOCABULARY = 512, 12, 1376, 8192
HEADS, DEPTH, RANK = 9, 3, 8
SPREAD = 0.1  # of the updates; with beta, the jury accepts some two drafts in three
WIDTH = 80  # tokens of a prompt
SHORT, LONG, REPEATS = 8, 32, 3
BATCHES = (1, 8, 32)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def config() -> Olmo2Config:
    return Olmo2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // 64,
        max_position_embeddings=1024,
        eos_token_id=None,
        pad_token_id=None,
        bos_token_id=None,
        architectures=["Olmo2ForCausalLM"],
    )


def model() -> Any:
    """A model of random weights, in bfloat16 on a GPU."""
    torch.manual_seed(0)
    dtype = torch.float32 if DEVICE.type == "cpu" else torch.bfloat16
    with DEVICE:
        return AutoModelForCausalLM.from_config(config(), dtype=dtype).eval()


def build() -> MultiHead:
    """A random model's heads, with random updates."""
    whole = model()
    places = [
        ((layer, projection), sizes)
        for layer in range(DEPTH)
        for projection, sizes in geometry(whole, DEPTH).sizes.items()
    ]
    updates = [
        {place: tuple(torch.randn(RANK, n) * SPREAD for n in s) for place, s in places}
        for _ in range(HEADS)
    ]
    return MultiHead(whole, geometry(whole, DEPTH), updates)


def answers(heads: MultiHead, how: Any, n_prompts: int, n_tokens: int) -> list[Decoded]:
    source = np.random.default_rng(0)
    ids = torch.from_numpy(source.integers(VOCABULARY, size=(n_prompts, WIDTH)))
    return decode(
        heads,
        ids.to(DEVICE),
        torch.ones_like(ids, device=DEVICE),
        n_heads=HEADS,
        drafters=[i % HEADS for i in range(n_prompts)],
        uniforms=torch.from_numpy(source.random((n_prompts, n_tokens, 3))),
        sampling=Sampling(
            decode=how,
            beta=0.3,
            temperature=0.98,
            max_new_tokens=n_tokens,
            end_ids=(),
        ),
    )


def clock() -> float:
    if DEVICE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def tokens_per_second(heads: MultiHead, how: str, n_prompts: int) -> float:
    times = [clock()]
    for n_tokens in (SHORT, LONG):
        answers(heads, how, n_prompts, n_tokens)
        times.append(clock())
    short, long = np.diff(times)
    return float(n_prompts * (LONG - SHORT) / (long - short))


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    heads = build()
    print(
        f"hidden {HIDDEN}, {LAYERS} layers, vocabulary {VOCABULARY}, {DEVICE}; {HEADS} heads of "
        f"{DEPTH} layers\n\n  {'':<14}prompts   tokens/s   x one"
    )
    for how in ("speculative", "direct", "draft"):
        one = 0.0
        for n_prompts in BATCHES:
            every = [tokens_per_second(heads, how, n_prompts) for _ in range(REPEATS)]
            rate = statistics.median(every)
            one = one or rate
            print(f"  {how:<14}{n_prompts:>7}{rate:>11.1f}{rate / one:>8.2f}")
    found = answers(heads, "speculative", BATCHES[-1], LONG)
    accepted = np.mean([accepted for answer in found for accepted in answer.accepted])
    print(f"\nspeculative: {accepted:.0%} of the drafts accepted")


if __name__ == "__main__":
    main()
