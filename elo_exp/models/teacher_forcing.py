"""Score given tokens: sums of log-probabilities in nats, added in float64.

Each answer goes through a model of transformers by itself, without padding and without cached keys
and values, whose rounding depends on the rest of the batch: a total is the same in any order and
company. vLLM batches them as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from elo_exp.files import utc_now
from elo_exp.models import LanguageModel
from elo_exp.models.generation import too_small
from elo_exp.records import ForcedLogprob, Response, UserError, fingerprint

VERSION = 1  # part of every cache key: raise it when scoring changes


def tokenizer_fingerprint(lm: LanguageModel) -> str:
    """Identify a tokenizer: equal where each id is the same text and the same ids end an answer."""
    return fingerprint([lm.vocabulary, sorted(lm.end_ids)])


def force(
    lm: LanguageModel,
    prompts: Mapping[str, Sequence[int]],
    responses: Sequence[Response],
    *,
    policy: str,
    temperature: float,
) -> Iterator[ForcedLogprob]:
    """Yield the log-probability of each response's recorded tokens under a policy.

    prompts  token ids by prompt_id
    It is None where prompt and answer are longer than the model's context. Raises UserError where
    a response has no recorded tokens or those of another tokenizer, where a log-probability is
    not finite, and where memory is too small.
    """
    tokenizer = tokenizer_fingerprint(lm)
    tokens = {r.prompt_id: recorded_ids(r, policy, tokenizer) for r in responses}
    rows = {
        name: (prompts[name], ids)
        for name, ids in tokens.items()
        if len(prompts[name]) + len(ids) <= (lm.context_length or math.inf)
    }
    totals = lm.total_logprobs(list(rows.values()), temperature=temperature)
    for name, ids in tokens.items():
        total = None
        if name in rows:
            with too_small(policy):
                total = next(totals)
            if not math.isfinite(total):
                raise UserError(
                    f"{policy}, {name}: the log-probability is {total}. Use dtype=float32 or "
                    "bfloat16, which do not overflow."
                )
        yield ForcedLogprob(
            entrant_id=policy,
            prompt_id=name,
            total_logprob=total,
            n_tokens=len(ids),
            timestamp=utc_now(),
        )


def recorded_ids(response: Response, policy: str, tokenizer: str) -> list[int]:
    """Return the tokens of an answer. Raises UserError for none, or those of another tokenizer."""
    recorded = response.diagnostics
    answer = f"{policy}: the answer of {response.entrant_id} to {response.prompt_id}"
    if not {"token_ids", "tokenizer"} <= recorded.keys():
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
