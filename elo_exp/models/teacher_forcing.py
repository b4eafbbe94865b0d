"""Score given tokens: sums of log-probabilities in nats, added in float64.

Each answer goes through the model by itself, without padding and without cached keys and values,
whose rounding depends on the rest of the batch: a total is the same in any order and company.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.files import utc_now
from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.generation import Throughput, in_batches
from elo_exp.records import (
    MAX_LOGPROB,
    ForcedLogprob,
    Prompt,
    Response,
    UserError,
    fingerprint,
)

VERSION = 1  # part of every cache key: raise it when scoring changes
_ROWS = (
    256  # positions whose distribution over the vocabulary is held in float64 at a time
)


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


def force(
    prompts: Mapping[str, Prompt],
    responses: Sequence[Response],
    score: Callable[[Prompt, Sequence[int]], float | None],
    *,
    policy: str,
    tokenizer: str,
) -> Iterator[ForcedLogprob]:
    """Yield the log-probability of each response's recorded tokens under a policy.

    prompts    by prompt_id
    score      the log-probability of an answer's tokens, in nats; None where prompt and answer
               are longer than the model's context
    tokenizer  fingerprint of the policy's tokenizer
    Raises UserError as recorded_ids() and check_logprob(), and where memory is too small.
    """
    tokens = {
        response.prompt_id: recorded_ids(response, policy=policy, tokenizer=tokenizer)
        for response in responses
    }
    throughput = Throughput(policy)
    for (name,), total in in_batches(
        list(tokens),
        lambda names: score(prompts[names[0]], tokens[names[0]]),
        batch_size=1,
        label=policy,
        hint="Use dtype=bfloat16 or another device.",
    ):
        if total is not None:
            check_logprob(total, f"{policy}, {name}")
        throughput.add(len(tokens[name]))
        yield ForcedLogprob(
            entrant_id=policy,
            prompt_id=name,
            total_logprob=total,
            n_tokens=len(tokens[name]),
            timestamp=utc_now(),
        )
    throughput.log()


def check_logprob(total: float, place: str) -> None:
    """Raise UserError for a log-probability that is not finite, ArithmeticError above zero."""
    if not math.isfinite(total):
        raise UserError(
            f"{place}: the log-probability is {total}. Use dtype=float32 or bfloat16, which do not "
            "overflow."
        )
    if total > MAX_LOGPROB:
        raise ArithmeticError(f"{place}: the log-probability is {total:g}, above zero")


def supported(lm: CausalLM, **options: Any) -> dict[str, Any]:
    """Keep the options that the model's forward takes: the models of transformers differ."""
    known = inspect.signature(lm.model.forward).parameters
    return {name: value for name, value in options.items() if name in known}


def total_logprob(
    lm: CausalLM,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    *,
    temperature: float,
) -> float | None:
    """Return the log-probability of tokens under softmax(logits / temperature), in nats.

    None where they and the prompt are longer than the model's context.
    """
    import torch

    row = [*prompt_ids, *token_ids]
    if lm.context_length is not None and len(row) > lm.context_length:
        return None
    n = len(token_ids)
    with torch.inference_mode():
        ids = torch.tensor([row], device=lm.device)
        mask = torch.ones_like(ids)
        options = supported(
            lm, attention_mask=mask, use_cache=False, logits_to_keep=n + 1
        )
        logits = lm.model(input_ids=ids, **options).logits[0, -n - 1 : -1]
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
