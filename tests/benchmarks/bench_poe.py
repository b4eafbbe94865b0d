"""What several heads cost: nine on one trunk, against one head alone and against a loop over the heads without caches.

    python -m tests.benchmarks.bench_poe

A model of random weights on one thread of the processor, or on the GPU where there is one. `ms/token` is of decoding
alone, the prompt's share taken off; on a processor it is processor time, so that other work counts less. Read `x one
head`: what the jury costs; `of the bound`: how near to the time that it takes to read one head's weights once from
memory; and for speculative decoding what it costs over what its acceptance rate allows, (gamma + 1) passes for the
tokens of a round. `peak` is the most memory above that of the loaded model, in a process of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elo_exp.models.adapters import Update
from elo_exp.models.decoding import Decoded, Sampling, sampled, verified
from elo_exp.models.multihead import Heads, KeyValueCache, MultiHead, geometry
from elo_exp.models.speculative import draw, product

HIDDEN, LAYERS, INNER, VOCABULARY, CONTEXT = 768, 12, 2048, 8192, 1024
HEADS, DEPTH, RANK = 9, 3, 8
SPREAD = 0.1  # of the factors of the updates; with beta, it makes the jury accept some two drafts in three
PROMPT = list(range(100, 180))
SHORT, LONG, REPEATS = 8, 32, 3
DRAFTER, JURY = 0, list(range(1, HEADS))
SAMPLING = Sampling(
    beta=0.3, temperature=0.98, gamma=4, max_new_tokens=LONG, end_ids=()
)
STATUS, CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Bench:
    model: Any
    updates: Sequence[Update]

    @functools.cached_property
    def batch(self) -> MultiHead:
        return MultiHead(self.model, depth=DEPTH, updates=self.updates)

    @functools.cached_property
    def copies(self) -> MultiHead:
        return MultiHead(self.model, depth=DEPTH, updates=self.updates, merge=True)

    @functools.cached_property
    def one_by_one(self) -> list[Heads]:
        return [self.copies.heads([head]) for head in JURY]

    def generate(self, n: int) -> None:
        ids = torch.tensor([PROMPT], device=DEVICE)
        self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False
        )

    def one_head(self, n: int) -> Decoded:
        return sampled(
            self.batch,
            PROMPT,
            heads=[DRAFTER],
            sampling=_sampling(n, beta=1.0),
            rng=_rng(),
        )

    def direct(self, n: int) -> Decoded:
        return sampled(
            self.batch, PROMPT, heads=JURY, sampling=_sampling(n), rng=_rng()
        )

    def speculative(self, n: int) -> Decoded:
        return verified(
            self.batch,
            PROMPT,
            drafter=DRAFTER,
            jury=JURY,
            sampling=_sampling(n),
            rng=_rng(),
        )

    def merged_direct(self, n: int) -> Decoded:
        return sampled(
            self.copies, PROMPT, heads=JURY, sampling=_sampling(n), rng=_rng()
        )

    def loop_without_caches(self, n: int) -> None:
        """The product drawn from, token by token, every head reading everything anew with layers of its own."""
        rng, ids = _rng(), list(PROMPT)
        for _ in range(n):
            given = []
            for head in self.one_by_one:
                states = self.copies.trunk(ids, KeyValueCache(len(ids)))
                given.append(
                    self.copies.logits(head(states, head.cache(len(ids)))[0, -1])
                )
            p = product(
                torch.stack(given), beta=SAMPLING.beta, temperature=SAMPLING.temperature
            )
            ids.append(draw(p, rng.random()))


WAYS = ("one_head", "generate", "direct", "speculative", "merged_direct")


def _sampling(n: int, beta: float = SAMPLING.beta) -> Sampling:
    return dataclasses.replace(SAMPLING, max_new_tokens=n, beta=beta)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def build() -> Bench:
    from transformers import AutoModelForCausalLM, Olmo2Config

    torch.manual_seed(0)
    config = Olmo2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        max_position_embeddings=CONTEXT,
        eos_token_id=None,
        pad_token_id=None,
        bos_token_id=None,
    )
    model = (
        AutoModelForCausalLM.from_config(config)
        .eval()
        .requires_grad_(requires_grad=False)
        .to(DEVICE)
    )
    sizes = geometry(model, DEPTH).sizes
    updates = [
        {
            (layer, projection): (
                torch.randn(RANK, size_in) * SPREAD,
                torch.randn(RANK, size_out) * SPREAD,
            )
            for layer in range(DEPTH)
            for projection, (size_in, size_out) in sizes.items()
        }
        for _ in range(HEADS)
    ]
    return Bench(model, updates)


def clock() -> float:
    if DEVICE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds_per_token(way: Callable[[int], Any], short: int, long: int) -> float:
    began = clock()
    way(short)
    between = clock()
    way(long)
    return ((clock() - between) - (between - began)) / (long - short) * 1e3


def bound_milliseconds(n_bytes: int) -> float:
    """How long it takes to read so much of memory."""
    memory = torch.zeros(1 << 28, device=DEVICE)
    took = []
    for _ in range(REPEATS):
        began = clock()
        memory.sum()
        took.append(clock() - began)
    return min(took) / memory.nbytes * n_bytes * 1e3


def weights(model: Any, *, without: Any = None) -> int:
    left_out = set(map(id, without.parameters())) if without else set()
    return sum(
        tensor.nbytes for tensor in model.parameters() if id(tensor) not in left_out
    )


def factors(heads: MultiHead) -> int:
    return sum(factor.nbytes for pair in heads.updates.values() for factor in pair)


def peak_mb(way: str) -> float:
    """Of memory above that of the loaded model: this process's, or the GPU's."""
    bench = build()
    if DEVICE.type == "cpu":
        CLEAR_PEAK.write_text("5", encoding="ascii")
    before = _peak_mb()
    with torch.inference_mode():
        getattr(bench, way)(SHORT)
    return _peak_mb() - before


def _peak_mb() -> float:
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    status = dict(
        line.split(":") for line in STATUS.read_text(encoding="ascii").splitlines()
    )
    return int(status["VmHWM"].split()[0]) * 1024 / 1e6


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(peak_mb(sys.argv[1]))
        return
    bench = build()
    base, apart = weights(bench.model), factors(bench.batch)
    copied = (HEADS - 1) * sum(
        weights(layer) for layer in bench.model.model.layers[-DEPTH:]
    )
    print(
        f"hidden {HIDDEN}, {LAYERS} layers, vocabulary {VOCABULARY}, {DEVICE}; {HEADS} heads of {DEPTH} layers"
    )
    shares = 1 + apart / base, 1 + copied / base
    print(
        f"weights: {base / 1e6:.0f} MB; with all heads {shares[0]:.3f} times that, merged {shares[1]:.2f}\n"
    )
    ways: dict[str, Callable[[int], Any]] = {
        name: getattr(bench, name) for name in WAYS
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        bound = bound_milliseconds(
            weights(bench.model, without=bench.model.model.embed_tokens)
        )
        for _ in range(REPEATS):
            for name, way in ways.items():
                took[name].append(milliseconds_per_token(way, SHORT, LONG))
        answer = bench.speculative(LONG)
        bench.loop_without_caches(1)
        slow = milliseconds_per_token(bench.loop_without_caches, 1, 3)
    typical = {name: statistics.median(some) for name, some in took.items()} | {
        "loop_without_caches": slow
    }
    print(f"  {'':<22}ms/token   tokens/s   x one head   of the bound   peak")
    for name, ms in typical.items():
        memory = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.bench_poe", name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        print(
            f"  {name:<22}{ms:>8.1f}{1e3 / ms:>11.1f}{ms / typical['one_head']:>13.2f}{ms / bound:>15.2f}"
            f"{float(memory):>7.0f} MB"
        )
    accepted = answer.n_accepted / (answer.n_accepted + len(answer.rejections))
    per_round = len(answer.tokens) / answer.n_rounds
    allowed = (SAMPLING.gamma + 1) / per_round
    print(
        f"\nspeculative: {accepted:.0%} accepted, {per_round:.2f} tokens a round; allowed x {allowed:.2f}, "
        f"found {typical['speculative'] / typical['one_head'] / allowed:.2f} times that"
    )


if __name__ == "__main__":
    main()
