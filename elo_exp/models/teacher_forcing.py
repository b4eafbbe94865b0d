"""Score given tokens: sums of log-probabilities in nats, added in float64.

Each answer goes through the model by itself, without padding and without cached keys and values,
whose rounding depends on the rest of the batch: a total is the same in any order and company.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.generation import Throughput, in_batches
from elo_exp.records import MAX_LOGPROB, Response, UserError, fingerprint

VERSION = 1  # part of every cache key: raise it when scoring changes
_ROWS = (
    256  # positions whose distribution over the vocabulary is held in float64 at a time
)


@dataclass(frozen=True, kw_only=True)
class Forced:
    """The tokens of a prompt, and those of the answer to be scored after it."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]


def tokenizer_fingerprint(vocabulary: Mapping[str, int], end_ids: Sequence[int]) -> str:
    """Identify a tokenizer: equal where each id is the same text and the same ids end an answer."""
    return fingerprint([dict(vocabulary), sorted(end_ids)])


def recorded_ids(response: Response, *, policy: str, tokenizer: str) -> list[int]:
    """Return the tokens recorded when the response was drawn.

    tokenizer  fingerprint of the policy's tokenizer
    Raises UserError where they are not recorded, or are those of another tokenizer.
    """
    recorded = response.diagnostics
    answer = f"{policy}: the answer of {response.entrant_id} to {response.prompt_id}"
    if "token_ids" not in recorded or "tokenizer" not in recorded:
        raise UserError(
            f"{answer} has no recorded token_ids. Expected an answer made with "
            f"entrant.{response.entrant_id}.logprobs=true: tokenising the text again does not "
            "always give the tokens that were drawn."
        )
    if recorded["tokenizer"] != tokenizer:
        raise UserError(
            f"{answer} has the tokens of another tokenizer, or of one with other end tokens. "
            "Expected policies that share a tokenizer; leave one of the two out."
        )
    return list(recorded["token_ids"])


def totals(
    lm: CausalLM, items: Mapping[str, Forced], *, temperature: float, label: str
) -> Iterator[tuple[str, float | None]]:
    """Yield the log-probability of each item's tokens under softmax(logits / temperature), in nats.

    None for an item longer than the model's context. `label` names the throughput in the log.
    Raises UserError where memory is too small, and where the model's arithmetic overflows.
    """
    throughput = Throughput(label)

    def work(names: Sequence[str]) -> float | None:
        start = time.monotonic()
        (name,) = names
        total = _total(lm, items[name], temperature)
        if total is None:
            return None
        throughput.add(len(items[name].token_ids), time.monotonic() - start)
        return check_logprob(total, f"{label}, {name}")

    hint = "Use dtype=bfloat16 or another device."
    for (name,), total in in_batches(
        list(items), work, batch_size=1, label=label, hint=hint
    ):
        yield name, total
    throughput.log()


def check_logprob(total: float, place: str) -> float:
    """Return a log-probability that is finite and not above zero. Raises UserError for others."""
    if not math.isfinite(total):
        raise UserError(
            f"{place}: the log-probability is {total}. Use dtype=float32 or bfloat16, which do not "
            "overflow."
        )
    if total > MAX_LOGPROB:
        raise ArithmeticError(f"{place}: the log-probability is {total:g}, above zero")
    return total


def supported(lm: CausalLM, **options: Any) -> dict[str, Any]:
    """Keep the options that the model's forward takes: the models of transformers differ."""
    known = inspect.signature(lm.model.forward).parameters
    return {name: value for name, value in options.items() if name in known}


def _total(lm: CausalLM, item: Forced, temperature: float) -> float | None:
    import torch

    row = [*item.prompt_ids, *item.token_ids]
    if lm.context_length is not None and len(row) > lm.context_length:
        return None
    n = len(item.token_ids)
    with torch.inference_mode():
        ids = torch.tensor([row], device=lm.device)
        mask = torch.ones_like(ids)
        options = supported(
            lm, attention_mask=mask, use_cache=False, logits_to_keep=n + 1
        )
        logits = lm.model(input_ids=ids, **options).logits[
            0, -n - 1 : -1
        ]  # (token, vocabulary)
        tokens = ids[0, -n:]
        return math.fsum(
            _log_likelihood(logits[i : i + _ROWS], tokens[i : i + _ROWS], temperature)
            for i in range(0, n, _ROWS)
        )


def _log_likelihood(logits: Any, tokens: Any, temperature: float) -> float:
    """Sum over the positions of logits (position, vocabulary) and tokens (position,)."""
    if logits.device.type == "mps":  # which has no float64
        logits, tokens = logits.cpu(), tokens.cpu()
    logprobs = (logits.double() / temperature).log_softmax(dim=-1)
    return float(logprobs.gather(1, tokens[:, None]).sum())
