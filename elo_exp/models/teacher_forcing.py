"""How likely a model is to say given tokens, as sums over the tokens of float64 log-probabilities in nats.

Each answer goes through the model by itself: without padding and without the keys and values of an earlier pass,
whose rounding depends on what else is in the batch, a total is the same whatever is asked before, after or beside it.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.generation import Speed, in_batches
from elo_exp.records import MAX_LOGPROB, Response, UserError, fingerprint

VERSION = 1  # part of every stored log-probability's key: raise it when what is done with the settings changes
_ROWS = 256  # positions whose distribution over the vocabulary is held in float64 at a time


@dataclass(frozen=True, kw_only=True)
class Forced:
    """What is asked about: the tokens of an answer, after those of a prompt."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]


def tokenizer_fingerprint(vocabulary: Mapping[str, int], end_ids: Sequence[int]) -> str:
    """Whose token ids these are: equal where every id stands for the same text, and the same ids end an answer."""
    return fingerprint([dict(vocabulary), sorted(end_ids)])


def recorded_ids(response: Response, *, policy: str, tokenizer: str) -> list[int]:
    """The tokens that were drawn when the response was made. Raises UserError where they are not recorded, and where
    they are those of another tokenizer than the policy's."""
    found = response.diagnostics
    what = f"{policy}: the answer of {response.entrant_id} to {response.prompt_id}"
    if "token_ids" not in found or "tokenizer" not in found:
        raise UserError(
            f"{what} has no recorded token_ids. Expected an answer made with entrant.{response.entrant_id}.logprobs="
            "true: text that is tokenised again is not always what was drawn."
        )
    if found["tokenizer"] != tokenizer:
        raise UserError(
            f"{what} is in the tokens of another tokenizer, or of one with other end tokens: their ids mean nothing to "
            "this model. Expected policies that share a tokenizer; leave one of the two out."
        )
    return list(found["token_ids"])


def totals(
    lm: CausalLM, items: Mapping[str, Forced], *, temperature: float, label: str
) -> Iterator[tuple[str, float | None]]:
    """The log-probability of each item's tokens, by its name, under softmax(logits / temperature), in their order.

    None for what is longer than the model takes. Raises UserError where memory does not suffice, and where the model's
    arithmetic overflows. `label` is what the speed is reported under.
    """
    speed = Speed(label)

    def work(names: Sequence[str]) -> float | None:
        began = time.monotonic()
        (name,) = names
        total = _total(lm, items[name], temperature)
        if total is None:
            return None
        speed.add(len(items[name].token_ids), time.monotonic() - began)
        return checked(total, f"{label}, {name}")

    mend = "Take dtype=bfloat16 or another device."
    for (name,), total in in_batches(list(items), work, batch_size=1, label=label, mend=mend):
        yield name, total
    speed.conclude()


def checked(total: float, place: str) -> float:
    """A log-probability, which is finite and not above zero. Raises UserError for one that is not finite."""
    if not math.isfinite(total):
        raise UserError(
            f"{place}: the log-probability is {total}. Take dtype=float32 or bfloat16, which do not overflow."
        )
    if total > MAX_LOGPROB:
        raise ArithmeticError(f"{place}: the log-probability is {total:g}, above zero")
    return total


def _total(lm: CausalLM, item: Forced, temperature: float) -> float | None:
    import torch

    row = [*item.prompt_ids, *item.token_ids]
    if lm.context_length is not None and len(row) > lm.context_length:
        return None
    n = len(item.token_ids)
    known = inspect.signature(lm.model.forward).parameters
    with torch.inference_mode():
        ids = torch.tensor([row], device=lm.device)
        wishes: dict[str, Any] = {
            "attention_mask": torch.ones_like(ids),
            "use_cache": False,
            "logits_to_keep": n + 1,
        }
        logits = lm.model(
            input_ids=ids, **{name: wish for name, wish in wishes.items() if name in known}
        ).logits
        logits, tokens = (
            logits[0, -n - 1 : -1],
            ids[0, -n:],
        )  # (token of the answer, vocabulary), (token,)
        starts = range(0, n, _ROWS)
        sums = [
            _log_likelihood(logits[i : i + _ROWS], tokens[i : i + _ROWS], temperature)
            for i in starts
        ]
    return math.fsum(sums)


def _log_likelihood(logits: Any, tokens: Any, temperature: float) -> float:
    """The sum over positions. logits (position, vocabulary), tokens (position,)"""
    if logits.device.type == "mps":  # which has no float64
        logits, tokens = logits.cpu(), tokens.cpu()
    chances = (logits.double() / temperature).log_softmax(dim=-1)
    return float(chances.gather(1, tokens[:, None]).sum())
