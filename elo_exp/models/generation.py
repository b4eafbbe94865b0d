"""Generate text with a causal language model: left-padded batches, one seed for each prompt."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from elo_exp import progress
from elo_exp.models.causal_lm import CausalLM, free_memory, is_out_of_memory
from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How an answer's tokens are chosen.

    temperature     divides the logits before sampling; None takes the likeliest token
    top_p           sample from the likeliest tokens that together have this probability
    max_new_tokens  limit at which an answer is cut off
    """

    temperature: float | None
    top_p: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A generated answer, its end token included.

    total_logprob  log-probability of the tokens under softmax(logits / temperature) as they were
                   drawn, in nats; None for a greedy answer
    finish_reason  stop: the model ended it; length: max_new_tokens did
    batch_size     prompts in its batch
    """

    token_ids: list[int]
    total_logprob: float | None
    finish_reason: str
    batch_size: int


def prompt_seed(prompt_id: str) -> int:
    """Return the seed of a prompt, in [0, 2**32): the same for every entrant."""
    return int(hashlib.sha256(prompt_id.encode()).hexdigest(), 16) % 2**32


def check_lengths(
    context_length: int | None,
    prompts: Mapping[str, Sequence[int]],
    *,
    max_new_tokens: int,
    label: str,
) -> None:
    """Raise UserError where a prompt (token ids by name) and an answer exceed the context."""
    for name, ids in prompts.items():
        if context_length is not None and len(ids) + max_new_tokens > context_length:
            raise UserError(
                f"{label}: {name} has {len(ids)} tokens and max_new_tokens is {max_new_tokens}, "
                f"more than the model's context of {context_length}. Lower max_new_tokens, or "
                "leave the prompt out of the bank."
            )


def environment(lm: CausalLM) -> dict[str, str]:
    """Device, dtype and library versions, which change rounding, for an answer's diagnostics."""
    return {
        "device": str(lm.device),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def continuations(
    lm: CausalLM,
    prompts: Mapping[str, Sequence[int]],
    *,
    decoding: Decoding,
    batch_size: int,
    label: str,
) -> Iterator[tuple[str, Continuation]]:
    """Generate a continuation of each prompt (token ids by name), the longest prompts first.

    An answer depends on the prompt's name, not on the rest of its batch. `label` names the
    throughput in the log. Raises UserError where memory is too small for one prompt.
    """
    throughput = Throughput(label)
    for names, made in in_batches(
        sorted(prompts, key=lambda name: -len(prompts[name])),
        lambda names: _continue(lm, {name: prompts[name] for name in names}, decoding),
        batch_size=batch_size,
        label=label,
        hint="Lower max_new_tokens, or use dtype=bfloat16 or another device.",
    ):
        throughput.add(sum(len(each.token_ids) for each in made))
        yield from zip(names, made, strict=True)
    throughput.log()


def in_batches(
    items: Sequence[T],
    work: Callable[[Sequence[T]], R],
    *,
    batch_size: int,
    label: str,
    hint: str,
) -> Iterator[tuple[Sequence[T], R]]:
    """Yield each batch of items with the result of `work`; halve batches where memory runs out.

    Raises UserError, which ends with the hint, where memory is too small for one item.
    """
    start = 0
    while start < len(items):
        batch = items[start : start + batch_size]
        try:
            made = work(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                message = f"{label}: out of memory with a single prompt. {hint}"
                raise UserError(message) from None
            batch_size = len(batch) // 2
        else:
            start += len(batch)
            yield batch, made
            continue
        free_memory()  # only here, where the exception no longer holds the batch's tensors
        logger.info(
            "%s: out of memory with %d prompts a batch, continuing with %d",
            label,
            len(batch),
            batch_size,
        )


class Throughput:
    """Tokens per second since it was made, shown in progress and logged at the end."""

    def __init__(self, label: str) -> None:
        self._label, self._n_tokens, self._start = label, 0, time.monotonic()

    def add(self, n_tokens: int) -> None:
        self._n_tokens += n_tokens
        progress.note(f"{self._label}: {self._rate():,.0f} tokens/s")

    def log(self) -> None:
        logger.info(
            "%s: %d tokens, %.0f tokens/s", self._label, self._n_tokens, self._rate()
        )

    def _rate(self) -> float:
        return self._n_tokens / max(time.monotonic() - self._start, 1e-9)


def left_padded(
    lm: CausalLM, rows: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, both (row, position) on the model's device."""
    import torch

    width = max(map(len, rows))
    pad = lm.tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids.to(lm.device), mask.to(lm.device)


def _continue(
    lm: CausalLM, prompts: Mapping[str, Sequence[int]], decoding: Decoding
) -> list[Continuation]:
    ids, mask = left_padded(lm, list(prompts.values()))
    sampler = None if decoding.temperature is None else _Sampler(decoding, prompts, lm)
    generated = lm.model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=decoding.max_new_tokens,
        logits_processor=[sampler] if sampler else [],
    )
    made = []
    for i, row in enumerate(generated[:, ids.shape[1] :].tolist()):
        ends = [place for place, token in enumerate(row) if token in lm.end_ids]
        n = ends[0] + 1 if ends else len(row)  # padding follows
        made.append(
            Continuation(
                token_ids=row[:n],
                total_logprob=sampler.total_logprob(i, n) if sampler else None,
                finish_reason="stop" if ends else "length",
                batch_size=len(prompts),
            )
        )
    return made


class _Sampler:
    """A logits processor that leaves one token of each row: the one at its next uniform number.

    The uniform numbers are drawn on the CPU, by a generator for each prompt's name, so that they
    are the same on every device and in every batch.
    """

    def __init__(self, decoding: Decoding, names: Iterable[str], lm: CausalLM) -> None:
        import torch

        self._decoding = decoding
        rows = []
        for name in names:
            source = torch.Generator().manual_seed(prompt_seed(name))
            n, dtype = decoding.max_new_tokens, torch.float64
            rows.append(torch.rand(n, generator=source, dtype=dtype))
        self._dtype = torch.float32 if lm.device.type == "mps" else torch.float64
        self._uniforms = torch.stack(rows).to(self._dtype).to(lm.device)
        self._logprobs: list[torch.Tensor] = []  # (row,) of the tokens, by step

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        assert self._decoding.temperature is not None
        logits = scores.to(self._dtype) / self._decoding.temperature
        probabilities = torch.softmax(logits, dim=-1)
        uniforms = self._uniforms[:, len(self._logprobs), None]
        tokens = token_at(uniforms, probabilities, self._decoding.top_p)
        self._logprobs.append(probabilities.gather(1, tokens)[:, 0].log())
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)

    def total_logprob(self, row: int, n: int) -> float:
        """Log-probability of a row's first n tokens, in nats."""
        import torch

        return math.fsum(torch.stack(self._logprobs[:n])[:, row].tolist())


def token_at(
    uniforms: torch.Tensor, probabilities: torch.Tensor, top_p: float
) -> torch.Tensor:
    """Sample by inverse cumulative probability, within the nucleus.

    uniforms       (row, 1), in [0, 1)
    probabilities  (row, vocabulary)
    top_p          the nucleus is the likeliest tokens up to the one that reaches top_p;
                   Holtzman et al. (2020)
    Returns tokens (row, 1).
    """
    import torch

    tokens = None
    if top_p < 1:
        probabilities, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    cumulative = probabilities.cumsum(dim=-1)
    place = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
    place = place.clamp(max=probabilities.shape[-1] - 1)
    return place if tokens is None else tokens.gather(1, place)
