"""Generate text with a causal language model: left-padded batches, one seed for each prompt."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from elo_exp.errors import UserError
from elo_exp.models import free_memory, races
from elo_exp.models.checkpoints import CausalLM, is_out_of_memory
from elo_exp.records import Prompt

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

N = TypeVar("N", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class GeneratedAnswer:
    """Generated tokens, the end token included.

    ended          by an end token, not by the limit
    total_logprob  of the tokens under softmax(logits / temperature) as they were drawn, in nats;
                   None where that is not known
    diagnostics    what else is recorded of the answer
    """

    token_ids: list[int]
    has_ended: bool
    total_logprob: float | None = None
    p_correct: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


def prompt_seed(prompt: Prompt) -> int:
    """Return the seed of a prompt and draw, in [0, 2**32): the same for every entrant."""
    draw = f"\0{prompt.draw_idx}" if prompt.draw_idx else ""
    digest = hashlib.sha256(f"{prompt.prompt_id}{draw}".encode()).hexdigest()
    return int(digest, 16) % 2**32


def run_in_batches(
    rows: Mapping[N, Sequence[int]],
    work: Callable[[Mapping[N, Sequence[int]]], Sequence[R]],
    *,
    batch_size: int,
    label: str,
) -> Iterator[tuple[N, R]]:
    """Yield each name of a row with its result, the longest rows first.

    work  the results of a batch; batches are halved where memory runs out
    Raises UserError where memory is too small for one row.
    """
    remaining_names = sorted(rows, key=lambda name: -len(rows[name]))
    while remaining_names:
        batch, results = remaining_names[:batch_size], None
        with convert_memory_errors(label):
            try:
                results = work({name: rows[name] for name in batch})
            except RuntimeError as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
        if results is not None:
            remaining_names = remaining_names[len(batch) :]
            yield from zip(batch, results, strict=True)
            continue
        free_memory()  # only here, where the exception no longer holds the batch's tensors
        batch_size = len(batch) // 2
        message = "%s: out of memory with %d prompts a batch, continuing with %d"
        logger.info(message, label, len(batch), batch_size)


@contextmanager
def convert_memory_errors(label: str) -> Iterator[None]:
    """Raise UserError where memory is too small for a single prompt."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"{label} ran out of memory with a single prompt. Use dtype=bfloat16, another device, fewer max_new_tokens or "
            "a smaller model."
        ) from None


def generate_answers(
    lm: CausalLM,
    prompts: Mapping[Prompt, Sequence[int]],
    *,
    temperature: float | None,
    top_p: float,
    max_new_tokens: int,
) -> list[GeneratedAnswer]:
    """Answer prompts (with their token ids) together.

    temperature  divides the logits before sampling; None takes the likeliest token
    top_p        see races.winners()
    An answer depends on its prompt, not on the rest of its batch, but for rounding: the noise of its
    tokens is that of the prompt's seed.
    """
    import torch

    ids, mask = lm.pad_rows(list(prompts.values()))
    dtype = torch.float32 if lm.device.type == "mps" else torch.float64
    seeds = [prompt_seed(prompt) for prompt in prompts]
    logprobs: list[Tensor] = []  # (row,) of the tokens, by step

    def sample(_: Tensor, scores: Tensor) -> Tensor:
        """A logits processor that leaves one token of each row."""
        assert temperature is not None
        probabilities = torch.softmax(scores.to(dtype) / temperature, dim=-1)
        noise = races.exponentials(
            seeds,
            scores.shape[-1],
            draw=races.DRAFT,
            step=len(logprobs),
            device=scores.device,
        )
        tokens = races.race_winners(noise.to(probabilities), probabilities, top_p)[
            :, None
        ]
        logprobs.append(probabilities.gather(1, tokens)[:, 0].log())
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)

    output_ids = lm.model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=max_new_tokens,
        logits_processor=[] if temperature is None else [sample],
    )
    # (row, step)
    token_logprobs = torch.stack(logprobs, dim=1).tolist() if logprobs else None
    answers = []
    for i, row in enumerate(output_ids[:, ids.shape[1] :].tolist()):
        ends = [index for index, token in enumerate(row) if token in lm.end_ids]
        n = ends[0] + 1 if ends else len(row)  # padding follows
        answers.append(
            GeneratedAnswer(
                token_ids=row[:n],
                has_ended=bool(ends),
                total_logprob=math.fsum(token_logprobs[i][:n])
                if token_logprobs
                else None,
                diagnostics={"batch_size": len(prompts)},
            )
        )
    return answers
