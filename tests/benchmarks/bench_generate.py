"""How fast entrants that are models answer: beside transformers' own generate, in batches and one prompt at a time.

    python -m tests.benchmarks.bench_generate           # a random OLMo-2 of 6 million parameters, in float32
    python -m tests.benchmarks.bench_generate MODEL     # a folder or a name on the hub, in bfloat16 on a GPU

Everyone answers the same prompts of the bank greedily. Every figure is the fastest of interleaved repeats: read the
ratios, not the seconds. Tokens are those of the answers, the end token among them, not the padding after it. The table
says how many answers are to the letter those of generate, asked prompt by prompt; in bfloat16 some differ by rounding.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elo_exp.data import bank
from elo_exp.entrants import Entrant
from elo_exp.models import causal_lm
from elo_exp.models.causal_lm import CausalLM, Checkpoint, chat_ids
from elo_exp.models.generation import environment, left_padded
from elo_exp.records import Prompt
from tests.data import BANK, shipped
from tests.tiny_models import tiny_model

N_PROMPTS = 32
MAX_NEW_TOKENS = 24
BATCH_SIZE = 8
REPEATS = 3

Answers = Mapping[
    str, tuple[str, int]
]  # by prompt: the text, and of how many tokens it is


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    run: Callable[[Sequence[Prompt]], Answers]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of one contestant after the race."""

    name: str
    n_tokens: int
    seconds: float
    n_equal: int  # answers that are those of the reference

    @property
    def rate(self) -> float:
        return self.n_tokens / self.seconds


def plain(lm: CausalLM, *, batch_size: int) -> Callable[[Sequence[Prompt]], Answers]:
    """transformers' generate as its documentation has it: the prompts in their order, padded on the left."""

    def run(prompts: Sequence[Prompt]) -> Answers:
        answers = {}
        for start in range(0, len(prompts), batch_size):
            some = prompts[start : start + batch_size]
            ids, mask = left_padded(
                lm,
                [
                    chat_ids(lm, p.text, system_prompt=None, chat_template=None)
                    for p in some
                ],
            )
            made = lm.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
            )
            for prompt, row in zip(some, made[:, ids.shape[1] :].tolist(), strict=True):
                end = next(
                    (i + 1 for i, token in enumerate(row) if token in lm.end_ids),
                    len(row),
                )
                text = lm.tokenizer.decode(row[:end], skip_special_tokens=True).strip()
                answers[prompt.prompt_id] = (text, end)
        return answers

    return run


def answered_by(entrant: Entrant) -> Callable[[Sequence[Prompt]], Answers]:
    """Any entrant that says in its diagnostics how many tokens it has generated."""
    return lambda prompts: {
        r.prompt_id: (r.response_text, r.diagnostics["n_tokens_generated"])
        for r in entrant.generate(prompts)
    }


def contestants(checkpoint: Checkpoint) -> list[Contestant]:
    """The reference first. All of them work on the one model that is loaded."""
    lm = causal_lm.load(checkpoint)
    settings = {
        "model": checkpoint.model,
        "dtype": checkpoint.dtype,
        "device": checkpoint.device,
    }
    settings |= {"revision": checkpoint.revision, "max_new_tokens": MAX_NEW_TOKENS}
    vanilla = {
        n: shipped("entrant", "huggingface", **settings, batch_size=n)
        for n in (1, BATCH_SIZE)
    }
    return [
        Contestant(name="generate, one at a time", run=plain(lm, batch_size=1)),
        Contestant(
            name=f"generate, batches of {BATCH_SIZE}",
            run=plain(lm, batch_size=BATCH_SIZE),
        ),
        Contestant(name="vanilla_hf, one at a time", run=answered_by(vanilla[1])),
        Contestant(
            name=f"vanilla_hf, batches of {BATCH_SIZE}",
            run=answered_by(vanilla[BATCH_SIZE]),
        ),
    ]


def race(entries: Sequence[Contestant], prompts: Sequence[Prompt]) -> list[Row]:
    """Time every contestant in turn, REPEATS times over, after a first round that counts for nothing."""
    answers = {entry.name: entry.run(prompts) for entry in entries}
    seconds = {entry.name: float("inf") for entry in entries}
    for _ in range(REPEATS):
        for entry in entries:
            start = time.perf_counter()
            entry.run(prompts)
            seconds[entry.name] = min(seconds[entry.name], time.perf_counter() - start)
    reference = answers[entries[0].name]
    return [
        Row(
            name=name,
            n_tokens=sum(n_tokens for _, n_tokens in made.values()),
            seconds=seconds[name],
            n_equal=sum(
                made[prompt_id][0] == text for prompt_id, (text, _) in reference.items()
            ),
        )
        for name, made in answers.items()
    ]


def report(checkpoint: Checkpoint) -> int:
    prompts = bank.load(BANK)[:N_PROMPTS]
    entries = contestants(checkpoint)
    lm = causal_lm.load(checkpoint)
    n_weights = sum(weights.numel() for weights in lm.model.parameters())
    print(
        ", ".join(f"{name} {value}" for name, value in environment(lm).items()),
        end="; ",
    )
    print(
        f"{n_weights / 1e6:,.1f} M parameters, {N_PROMPTS} prompts, at most {MAX_NEW_TOKENS} tokens each; ",
        end="",
    )
    print(f"fastest of {REPEATS} interleaved repeats\n")
    rows = race(entries, prompts)
    plain_batched = rows[1]
    print(
        f"  {'':<30}{'tokens/s':>10}{'times generate in batches':>28}{'equal answers':>16}"
    )
    for row in rows:
        ratio = row.rate / plain_batched.rate
        print(
            f"  {row.name:<30}{row.rate:>10,.0f}{ratio:>28.2f}{row.n_equal:>11} of {N_PROMPTS}"
        )
    return 0


def main(arguments: Sequence[str]) -> int:
    if arguments:
        return report(Checkpoint(model=arguments[0], dtype="bfloat16"))
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(
            Path(folder), hidden_size=256, n_layers=8, n_heads=8, spread=0.1
        )
        return report(Checkpoint(model=str(model), dtype="float32", device="cpu"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
