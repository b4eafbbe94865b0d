"""What several heads cost: nine on one trunk, for one prompt and for several at once.

    python -m tests.benchmarks.bench_poe

A model of random weights on one thread of the processor, or on the GPU where there is one. Tokens a
second are of decoding alone, the prompts' share taken off; on a processor of processor time, so that
other work counts less. Read `x one`: what a batch gains over one prompt at a time.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elo_exp.models.checkpoints import CausalLM
from elo_exp.models.multihead import (
    DecodedAnswer,
    MultiHead,
    Sampling,
    decode,
    measure_geometry,
)
from tests.benchmarks.random_models import RandomWeights

HIDDEN, LAYERS, INNER, VOCABULARY = 512, 12, 1376, 8192
HEADS, DEPTH, RANK = 9, 3, 8
SPREAD = 0.1  # of the updates; with beta, the jury accepts some two drafts in three
WIDTH = 80  # tokens of a prompt
SHORT, LONG, REPEATS = 8, 32, 3
BATCHES = (1, 8, 32)
ON_GPU = torch.cuda.is_available()


def multi_head(lm: CausalLM) -> MultiHead:
    """The heads of a model, with random updates; the model itself stays as it is."""
    torch.manual_seed(0)
    sizes = measure_geometry(lm.model, DEPTH)
    places = [
        ((layer, projection), pair)
        for layer in range(DEPTH)
        for projection, pair in sizes.sizes.items()
    ]
    updates = [
        {place: tuple(torch.randn(RANK, n) * SPREAD for n in s) for place, s in places}
        for _ in range(HEADS)
    ]
    return MultiHead(lm.model, sizes, updates)


@torch.inference_mode()
def answers(
    lm: CausalLM, heads: MultiHead, how: Any, prompts: Sequence[int], n_tokens: int
) -> list[DecodedAnswer]:
    """Answer prompts by number: tokens, head and random numbers are those of the number alone."""
    sources = [np.random.default_rng(i) for i in prompts]
    vocabulary = lm.model.config.vocab_size
    ids = torch.from_numpy(
        np.stack([source.integers(vocabulary, size=WIDTH) for source in sources])
    )
    return decode(
        heads,
        ids.to(lm.device),
        torch.ones_like(ids, device=lm.device),
        n_heads=HEADS,
        drafters=[i % HEADS for i in prompts],
        seeds=prompts,
        sampling=Sampling(
            decode=how,
            beta=0.3,
            temperature=0.98,
            max_new_tokens=n_tokens,
            end_ids=(),
        ),
    )


def clock() -> float:
    """Seconds; on a GPU when it has done its work, on a processor those of this process."""
    if not ON_GPU:
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def tokens_per_second(lm: CausalLM, heads: MultiHead, how: str, n: int) -> float:
    times = [clock()]
    for n_tokens in (SHORT, LONG):
        answers(lm, heads, how, range(n), n_tokens)
        times.append(clock())
    short, long = np.diff(times)
    return float(n * (LONG - SHORT) / (long - short))


def main() -> None:
    torch.set_num_threads(1)
    lm = RandomWeights(
        hidden=HIDDEN,
        layers=LAYERS,
        inner=INNER,
        vocabulary=VOCABULARY,
        head_size=64,
        device="cuda" if ON_GPU else "cpu",
        dtype="bfloat16" if ON_GPU else "float32",
    ).load()
    heads = multi_head(lm)
    print(
        f"hidden {HIDDEN}, {LAYERS} layers, vocabulary {VOCABULARY}, {lm.device}; {HEADS} heads of "
        f"{DEPTH} layers\n\n  {'':<14}prompts   tokens/s   x one"
    )
    for how in ("speculative", "direct", "draft"):
        one = 0.0
        for n in BATCHES:
            tokens_per_second(lm, heads, how, n)  # a first call counts for nothing
            every = [tokens_per_second(lm, heads, how, n) for _ in range(REPEATS)]
            rate = statistics.median(every)
            one = one or rate
            print(f"  {how:<14}{n:>7}{rate:>11.1f}{rate / one:>8.2f}")
    found = answers(lm, heads, "speculative", range(BATCHES[-1]), LONG)
    accepted = np.mean([accepted for answer in found for accepted in answer.accepted])
    print(f"\nspeculative: {accepted:.0%} of the drafts accepted")


if __name__ == "__main__":
    main()
