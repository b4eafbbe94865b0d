"""The speeds of docs/poe.md on a GPU: a model of the shape of OLMo-2 7B with random weights, in bfloat16.

    make bench-gpu                                              # product of experts and transformers
    vllm-env/bin/python -m tests.benchmarks.bench_gpu vllm      # vLLM, in its environment
    python -m tests.benchmarks.bench_gpu [vllm] tiny            # the same code on a small model, without a GPU

Tokens a second of the product of experts are of decoding alone, of the others of whole answers of 256
tokens to prompts of 40 to 300. Some answers of a batch are compared with those of one prompt at a time.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from elo_exp import models, pipeline
from elo_exp.models.tiny import TEMPLATE, tokenizer
from elo_exp.records import Prompt, Response
from tests.benchmarks import bench_poe
from tests.data import shipped

BIG = {"HIDDEN": 4096, "LAYERS": 32, "INNER": 11008, "VOCABULARY": 100_352}
SMALL = {"HIDDEN": 64, "LAYERS": 4, "INNER": 64, "VOCABULARY": 512}
FLASH = {"attn_implementation": "flash_attention_2"}
FOUR_BITS = {
    "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}
}


def row(name: str, how: str, tokens_per_second: float) -> None:
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    print(f"| {name} | {how} | {tokens_per_second:,.0f} | {peak / 2**30:.1f} GiB |")


def heads(batches: Sequence[int]) -> None:
    """Three ways of decoding, by number of prompts; then what a step launches."""
    several = bench_poe.build()
    for how in ("speculative", "direct", "draft"):
        for n in batches:
            rate = bench_poe.tokens_per_second(several, how, n)
            row("product of experts", f"{how}, {n} prompts", rate)
    with torch.profiler.profile() as profile:
        bench_poe.answers(several, "speculative", batches[-1], 4)
    events = profile.key_averages()
    launches = sum(event.count for event in events if "LaunchKernel" in event.key)
    print(f"{launches / 4:,.0f} launches a token")
    print(events.table(sort_by="self_device_time_total", row_limit=12))


def answered(kind: str, how: str, n: int, **settings: Any) -> dict[str, Response]:
    """An entrant's answers to n prompts by name, timed after its model is loaded."""
    prompts = [
        Prompt(prompt_id=f"p{i}", text="Why? " * (20 + i % 130), source="", subject="")
        for i in range(n)
    ]
    of = shipped("entrant", kind, temperature=1.0, logprobs=True, **settings)
    try:
        models.load(of.weights)
        start = time.perf_counter()
        responses = {r.prompt_id: r for r in of.generate(prompts)}
    except Exception as error:  # a kernel or a package that is not here
        print(f"| {kind} | {how} | not measured: {str(error).splitlines()[0]} |")
        return {}
    seconds = time.perf_counter() - start
    tokens = [r.diagnostics["n_tokens_generated"] for r in responses.values()]
    row(kind, how, sum(tokens) / seconds)
    if kind == "vllm":
        by_id = {prompt.prompt_id: prompt for prompt in prompts}
        totals = dict(of.teacher_force(by_id, list(responses.values())))
        print(pipeline.generation_check(responses, totals, allowed=float("inf")))
    return responses


def main(*arguments: str) -> None:
    is_small = "tiny" in arguments
    if not (is_small or torch.cuda.is_available()):
        sys.exit("bench-gpu: found no GPU that torch can use. Expected one of 40 GiB.")
    vars(bench_poe).update(SMALL if is_small else BIG)
    with tempfile.TemporaryDirectory() as folder:
        here = {
            "model": folder,
            "cache_dir": folder,
            "max_new_tokens": 4 if is_small else 256,
        }
        GenerationConfig(eos_token_id=0, pad_token_id=1).save_pretrained(folder)
        tokenizer(TEMPLATE, vocabulary=512).save_pretrained(folder)
        if "vllm" in arguments:
            bench_poe.config().save_pretrained(folder)
            chosen = {"load_format": "dummy", "max_model_len": 1024}
            n = 3 if is_small else 1000
            answered("vllm", f"{n} prompts", n, load_kwargs=chosen, **here)
            return
        heads((1, 2) if is_small else (1, 8, 32, 64))
        bench_poe.model().save_pretrained(folder)
        alone = answered("huggingface", "1 prompt", 4, batch_size=1, **here)
        sizes = [(n, "sdpa", {}) for n in (16, 64, 128)]
        for n, name, chosen in (
            *sizes,
            (64, "flash", FLASH),
            (64, "4 bits", FOUR_BITS),
        ):
            more = {"batch_size": n, "load_kwargs": chosen}
            some = answered("huggingface", f"{n} prompts, {name}", n, **here, **more)
            equal = [
                r
                for i, r in alone.items()
                if i in some and r.response_text == some[i].response_text
            ]
            print(f"{len(equal)} of {len(alone)} texts equal to those of one prompt")


if __name__ == "__main__":
    main(*sys.argv[1:])
