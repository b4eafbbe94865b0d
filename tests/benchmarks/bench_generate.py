"""How fast entrants that are models answer, beside transformers' own generate.

    python -m tests.benchmarks.bench_generate           # a random OLMo-2 of 6 million parameters
    python -m tests.benchmarks.bench_generate MODEL     # a folder or hub name, in bfloat16 on a GPU

All answer the same prompts of the bank greedily, in batches and one prompt at a time. Every figure is
the fastest of interleaved repeats: read the ratios, not the seconds. Tokens are those of the answers,
the end token among them. `equal answers` are those of generate, one prompt at a time; in bfloat16
some differ by rounding.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elo_exp import models
from elo_exp.data import bank
from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.records import Prompt
from tests.data import BANK, shipped
from tests.tiny_models import tiny_model

N_PROMPTS = 32
MAX_NEW_TOKENS = 24
BATCH_SIZE = 8
REPEATS = 3

Answers = Mapping[str, tuple[str, int]]  # by prompt: text and number of tokens
Contestant = Callable[[Sequence[Prompt]], Answers]


def plain(of: HuggingFaceEntrant) -> Contestant:
    """transformers' generate on the prompts in their order, padded on the left."""
    lm = models.load(of.weights)

    def run(prompts: Sequence[Prompt]) -> Answers:
        answers = {}
        for start in range(0, len(prompts), of.batch_size):
            some = prompts[start : start + of.batch_size]
            rows = [of.chat_ids(lm, p.text, None) for p in some]
            ids, mask = lm.padded(rows)
            made = lm.model.generate(
                ids, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS, do_sample=False
            )
            for prompt, row in zip(some, made[:, ids.shape[1] :].tolist(), strict=True):
                ends = [i + 1 for i, token in enumerate(row) if token in lm.end_ids]
                n = min(ends, default=len(row))
                text = lm.tokenizer.decode(row[:n], skip_special_tokens=True)
                answers[prompt.prompt_id] = (text.strip(), n)
        return answers

    return run


def answered_by(of: HuggingFaceEntrant) -> Contestant:
    return lambda prompts: {
        r.prompt_id: (r.response_text, r.diagnostics["n_tokens_generated"])
        for r in of.generate(prompts)
    }


def race(entries: Mapping[str, Contestant], prompts: Sequence[Prompt]) -> None:
    """Time every contestant in turn, after a first round that counts for nothing."""
    answers = {name: run(prompts) for name, run in entries.items()}
    seconds = dict.fromkeys(entries, float("inf"))
    for _ in range(REPEATS):
        for name, run in entries.items():
            start = time.perf_counter()
            run(prompts)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    reference = next(iter(answers.values()))
    print(f"  {'':<24}{'tokens/s':>10}{'equal answers':>16}")
    for name, made in answers.items():
        n_tokens = sum(n for _, n in made.values())
        n_equal = sum(made[prompt] == answer for prompt, answer in reference.items())
        rate = n_tokens / seconds[name]
        print(f"  {name:<24}{rate:>10,.0f}{n_equal:>11} of {len(prompts)}")


def report(model: str, dtype: str, device: str) -> None:
    settings = {"model": model, "dtype": dtype, "device": device}
    entrants = {
        name: shipped(
            "entrant",
            "huggingface",
            **settings,
            max_new_tokens=MAX_NEW_TOKENS,
            batch_size=n,
        )
        for name, n in (("one at a time", 1), (f"batches of {BATCH_SIZE}", BATCH_SIZE))
    }
    lm = models.load(next(iter(entrants.values())).weights)
    n_weights = sum(weights.numel() for weights in lm.model.parameters())
    about = ", ".join(f"{name} {value}" for name, value in lm.environment.items())
    print(f"{about}; {n_weights / 1e6:,.1f} M parameters, {N_PROMPTS} prompts\n")
    entries = {f"generate, {name}": plain(of) for name, of in entrants.items()}
    entries |= {f"vanilla_hf, {name}": answered_by(of) for name, of in entrants.items()}
    race(entries, bank.load(BANK)[:N_PROMPTS])


def main(arguments: Sequence[str]) -> None:
    if arguments:
        report(arguments[0], "bfloat16", "auto")
        return
    with tempfile.TemporaryDirectory() as folder:
        sizes = {
            "hidden_size": 256,
            "n_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
        }
        report(
            str(tiny_model(Path(folder), **sizes, spread=0.1)),
            dtype="float32",
            device="cpu",
        )


if __name__ == "__main__":
    main(sys.argv[1:])
