"""Text from a causal language model: left-padded batches, smaller where memory runs out; a seed for each prompt."""

from __future__ import annotations

import functools
import gc
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from elo_exp import progress
from elo_exp.models.causal_lm import CausalLM, empty_cache, is_out_of_memory
from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How an answer's tokens are chosen.

    temperature     what the logits are divided by before one is drawn; None takes the likeliest token
    top_p           draw among the likeliest tokens that together have this probability
    max_new_tokens  where an answer is cut off
    """

    temperature: float | None
    top_p: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What a model made of one prompt; the end token counts as one of its tokens.

    total_logprob  nats, of the tokens under softmax(logits / temperature), as it was when they were drawn; None for a
                   greedy answer
    """

    token_ids: list[int]
    total_logprob: float | None
    finish_reason: str  # stop: the model ended it; length: max_new_tokens did
    batch_size: int  # of the batch that it was made in


def prompt_seed(prompt_id: str) -> int:
    """The seed of everything drawn for one prompt, the same for every entrant: in [0, 2**32)."""
    return int(hashlib.sha256(prompt_id.encode()).hexdigest(), 16) % 2**32


def check_lengths(
    room: int | None, prompts: Mapping[str, Sequence[int]], *, max_new_tokens: int, label: str
) -> None:
    """Raise UserError where a prompt, by its name, and an answer to it do not fit into the `room` of the model."""
    for name, ids in prompts.items():
        if room is not None and len(ids) + max_new_tokens > room:
            raise UserError(
                f"{label}: {name} has {len(ids)} tokens and max_new_tokens is {max_new_tokens}, more than the {room} "
                "that the model takes. Lower max_new_tokens, or leave the prompt out of the bank."
            )


_version = functools.cache(version)  # which reads a file


def made_on(lm: CausalLM) -> dict[str, str]:
    """On what an answer is made, for its diagnostics: what changes its rounding."""
    versions = {package: _version(package) for package in ("torch", "transformers")}
    return {
        "device": str(lm.device),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        **versions,
    }


def continuations(
    lm: CausalLM,
    prompts: Mapping[str, Sequence[int]],
    *,
    decoding: Decoding,
    batch_size: int,
    label: str,
) -> Iterator[tuple[str, Continuation]]:
    """The continuation of each prompt, by its name, as each batch is made, the longest prompts first.

    What is drawn for a prompt depends on its name, not on what else is in its batch. Raises UserError where memory
    does not suffice for one prompt alone. `label` is what the speed is reported under.
    """
    speed = Speed(label)

    def work(names: Sequence[str]) -> list[Continuation]:
        began = time.monotonic()
        made = _continue(lm, {name: prompts[name] for name in names}, decoding)
        speed.add(sum(len(each.token_ids) for each in made), time.monotonic() - began)
        return made

    longest_first = sorted(prompts, key=lambda name: -len(prompts[name]))
    mend = "Lower max_new_tokens, or take dtype=bfloat16 or another device."
    for names, made in in_batches(
        longest_first, work, batch_size=batch_size, label=label, mend=mend
    ):
        yield from zip(names, made, strict=True)
    speed.conclude()


def in_batches(
    items: Sequence[T], work: Callable[[Sequence[T]], R], *, batch_size: int, label: str, mend: str
) -> Iterator[tuple[Sequence[T], R]]:
    """Each batch of items with what `work` makes of it; where memory runs out, on with batches half as large.

    Raises UserError, which says how to `mend` it, where it runs out on one item alone.
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
                raise UserError(
                    f"{label}: memory does not suffice for one prompt alone. {mend}"
                ) from None
            batch_size = len(batch) // 2
        else:
            start += len(batch)
            yield batch, made
            continue
        gc.collect()  # only here, where the failed batch's tensors are no longer held by their exception
        empty_cache()
        logger.info(
            "%s: out of memory with %d prompts at a time, going on with %d",
            label,
            len(batch),
            batch_size,
        )


class Speed:
    """Tokens a second, shown while they are made and told at the end."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._n_tokens = 0
        self._seconds = 0.0

    def add(self, n_tokens: int, seconds: float) -> None:
        self._n_tokens += n_tokens
        self._seconds += seconds
        progress.note(f"{self._label}: {self._n_tokens / self._seconds:,.0f} tokens/s")

    def conclude(self) -> None:
        rate = self._n_tokens / self._seconds if self._seconds else 0.0
        logger.info(
            "%s: %d tokens in %.0f s, %.0f tokens/s",
            self._label,
            self._n_tokens,
            self._seconds,
            rate,
        )


def left_padded(lm: CausalLM, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The token ids and the attention mask, both (row, position) on the model's device, of rows that end together."""
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
    seeds = [prompt_seed(name) for name in prompts]
    draw = None
    if decoding.temperature is not None:
        draw = _Draw(decoding, seeds, start=ids.shape[1], device=lm.device)
    made = lm.model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=decoding.max_new_tokens,
        logits_processor=[draw] if draw else [],
    )
    logprobs = draw.logprobs() if draw else [None] * len(prompts)
    rows = made[:, ids.shape[1] :].tolist()
    return [
        _cut(row, found, lm.end_ids, len(prompts))
        for row, found in zip(rows, logprobs, strict=True)
    ]


def _cut(
    row: list[int], logprobs: list[float] | None, end_ids: Sequence[int], batch_size: int
) -> Continuation:
    """One row, and the log-probability of each of its tokens, up to its end token; what follows is padding."""
    end = next((i for i, token in enumerate(row) if token in end_ids), None)
    n = len(row) if end is None else end + 1
    return Continuation(
        token_ids=row[:n],
        total_logprob=None if logprobs is None else math.fsum(logprobs[:n]),
        finish_reason="length" if end is None else "stop",
        batch_size=batch_size,
    )


class _Draw:
    """A logits processor that leaves one token for each row: that at the row's own uniform number of that step.

    The numbers are drawn beforehand on the processor, a generator for each row, so that they are the same on every
    device and in every batch.
    """

    def __init__(
        self, decoding: Decoding, seeds: Sequence[int], *, start: int, device: torch.device
    ) -> None:
        import torch

        assert decoding.temperature is not None
        self._temperature, self._top_p, self._start = decoding.temperature, decoding.top_p, start
        sources = (torch.Generator().manual_seed(seed) for seed in seeds)
        drawn = [
            torch.rand(decoding.max_new_tokens, generator=source, dtype=torch.float64)
            for source in sources
        ]
        self._uniforms = (
            torch.stack(drawn)
            .to(torch.float32 if device.type == "mps" else torch.float64)
            .to(device)
        )
        self._chances: list[torch.Tensor] = []  # by step, of the token that each row has drawn

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        step = input_ids.shape[1] - self._start
        likelihood = torch.softmax(scores.to(self._uniforms.dtype) / self._temperature, dim=-1)
        chosen = token_at(self._uniforms[:, step : step + 1], likelihood, self._top_p)
        self._chances.append(likelihood.gather(1, chosen))
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)

    def logprobs(self) -> list[list[float]]:
        """Of each row's tokens, in nats."""
        import torch

        found: list[list[float]] = torch.cat(self._chances, dim=1).log().tolist()
        return found


def token_at(uniforms: torch.Tensor, likelihood: torch.Tensor, top_p: float) -> torch.Tensor:
    """The token (row, 1) at which each row's cumulative probability, of the nucleus alone, passes the row's number.

    The nucleus are the likeliest tokens, up to the one that brings them to top_p. Holtzman et al. (2020).
    """
    import torch

    tokens = None
    if top_p < 1:
        likelihood, tokens = likelihood.sort(dim=-1, descending=True, stable=True)
        before = likelihood.cumsum(dim=-1) - likelihood
        likelihood = likelihood.masked_fill(before >= top_p, 0.0)
    cumulative = likelihood.cumsum(dim=-1)
    place = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
    place = place.clamp(max=likelihood.shape[-1] - 1)
    return place if tokens is None else tokens.gather(1, place)
