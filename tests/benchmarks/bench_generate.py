"""How fast entrants that are models answer, beside transformers' own generate.

    python -m tests.benchmarks.bench_generate           # a random OLMo-2 of 6 million parameters
    python -m tests.benchmarks.bench_generate MODEL     # a folder or hub name, in bfloat16 on a GPU

All answer the same prompts of the bank greedily, in batches and one prompt at a time. Every figure is
the fastest of interleaved repeats: read the ratios, not the seconds. Tokens are those of the answers,
the end token among them. `equal answers` are those of generate, one prompt at a time; in bfloat16
some differ by rounding.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp import models
from elo_exp.data import bank
from elo_exp.records import Prompt
from tests.data import BANK, shipped
from tests.tiny_models import tiny_model

N_PROMPTS = 32
MAX_NEW_TOKENS = 24
BATCH_SIZE = 8
REPEATS = 3

Answers = Mapping[str, tuple[str, int]]  # by prompt: text and number of tokens
Contestant = Callable[[Any, Sequence[Prompt]], Answers]


def plain(of: Any, prompts: Sequence[Prompt]) -> Answers:
    """transformers' generate on the prompts in their order, padded on the left."""
    lm, answers = models.load_weights(of.weights), {}
    for start in range(0, len(prompts), of.batch_size):
        some = prompts[start : start + of.batch_size]
        ids, mask = lm.pad_rows([of.chat_ids(lm, p.sent(None)) for p in some])
        made = lm.model.generate(
            ids, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS, do_sample=False
        )
        for prompt, row in zip(some, made[:, ids.shape[1] :].tolist(), strict=True):
            ends = [i + 1 for i, token in enumerate(row) if token in lm.end_ids]
            n = min(ends, default=len(row))
            answers[prompt.prompt_id] = (lm.decode(row[:n]).strip(), n)
    return answers


def ours(of: Any, prompts: Sequence[Prompt]) -> Answers:
    return {
        r.prompt_id: (r.response_text, r.diagnostics["n_tokens_generated"])
        for r in of.generate(prompts)
    }


def report(**settings: Any) -> None:
    """Time every contestant in turn, after a first round that counts for nothing."""
    settings["max_new_tokens"] = MAX_NEW_TOKENS
    entrants = {
        name: shipped("entrant", "huggingface", **settings, batch_size=n)
        for name, n in (("one at a time", 1), (f"batches of {BATCH_SIZE}", BATCH_SIZE))
    }
    lm = models.load_weights(entrants["one at a time"].weights)
    n_weights = sum(weights.numel() for weights in lm.model.parameters())
    about = ", ".join(f"{name} {value}" for name, value in lm.environment.items())
    print(f"{about}; {n_weights / 1e6:,.1f} M parameters, {N_PROMPTS} prompts\n")
    runs: dict[str, Contestant] = {"generate": plain, "vanilla_hf": ours}
    prompts = bank.load_bank(BANK)[:N_PROMPTS]
    answers: dict[str, Answers] = {}
    seconds: dict[str, float] = {}
    for repeat in range(REPEATS + 1):
        for kind, run in runs.items():
            for how, of in entrants.items():
                name, start = f"{kind}, {how}", time.perf_counter()
                answers[name] = run(of, prompts)
                spent = time.perf_counter() - start
                if repeat:
                    seconds[name] = min(seconds.get(name, spent), spent)
    reference = next(iter(answers.values()))
    print(f"  {'':<24}{'tokens/s':>10}{'equal answers':>16}")
    for name, made in answers.items():
        rate = sum(n for _, n in made.values()) / seconds[name]
        n_equal = sum(made[prompt] == answer for prompt, answer in reference.items())
        print(f"  {name:<24}{rate:>10,.0f}{n_equal:>11} of {len(prompts)}")


def main(arguments: Sequence[str]) -> None:
    if arguments:
        report(model=arguments[0], dtype="bfloat16", device="auto")
        return
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8}
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_model(
            Path(folder), hidden_size=256, n_layers=8, spread=0.1, **heads
        )
        report(model=str(path), dtype="float32", device="cpu")


if __name__ == "__main__":
    main(sys.argv[1:])
