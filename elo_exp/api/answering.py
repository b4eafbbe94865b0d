"""Prompts put to a model behind an API, some at a time: what the entrants of all APIs share.

Answers are handed over as they come, so that whoever stores them loses no more in a crash than is on its way.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.api.batches import summary
from elo_exp.api.calls import Calls, Kept, Message
from elo_exp.api.costs import PER_MILLION, Budget, Prices
from elo_exp.api.token_estimator import most_tokens
from elo_exp.files import utc_now
from elo_exp.records import Prompt, Response, UserError

logger = logging.getLogger(__name__)

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an API's answer says."""

    text: str
    stop_reason: str  # end_turn, max_tokens, refusal, ..., as in a JudgeReply
    model: str | None  # what the API calls the model that answered
    usage: Mapping[str, int]  # tokens by class; empty where the API does not say


class Answering:
    """The work of one entrant, and the budget that it has for it.

    preflight   raises UserError for what would stop the first call
    send        turns the parameters of a call into the API's answer; raises RefusedError or DoubtfulError
    params      the parameters of a prompt's call
    prices      None: not known, so that no dollars are counted
    budget_usd  the cap that nothing is sent past; None: none
    """

    def __init__(
        self,
        entrant_id: str,
        *,
        preflight: Callable[[], None],
        send: Callable[[Mapping[str, Any]], Message],
        params: Callable[[Prompt], Mapping[str, Any]],
        read: Callable[[Message], Said],
        prices: Prices | None,
        budget_usd: float | None,
        max_tokens: int,
        concurrency: int,
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("concurrency", concurrency)):
            if value < 1:
                raise UserError(f"{name}: found {value}. Expected 1 or more.")
        if budget_usd is not None and not budget_usd > 0:
            raise UserError(
                f"budget_usd: found {budget_usd}. Expected more than 0 dollars, or null for no cap."
            )
        if budget_usd is not None and prices is None:
            raise UserError(
                f"budget_usd: found {budget_usd:g}, and no prices. Set what a million tokens cost, too."
            )
        self._entrant_id = entrant_id
        self._preflight = preflight
        self._is_ready = False
        self._send = send
        self.params = params
        self._read = read
        self._prices = prices
        self._budget = Budget(math.inf if budget_usd is None else budget_usd)
        self._max_tokens = max_tokens
        self._concurrency = concurrency
        self._counts: Counter[str] = Counter()  # of answers, by what is to be said of them

    def preflight(self) -> None:
        if not self._is_ready:
            self._preflight()
            self._is_ready = True

    def answers(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """A response to each prompt as they come; none where the API has refused the request for good."""
        if not prompts:
            return
        self.preflight()
        calls = Calls(
            self,
            send=self._send,
            budget=self._budget,
            concurrency=self._concurrency,
            n_wanted=len(prompts),
        )
        yield from calls.run(prompts)
        self._report()
        if calls.failed:
            logger.warning("warning: entrant %s: %s", self._entrant_id, summary(calls.failed))

    def _report(self) -> None:
        counts, self._counts = self._counts, Counter()
        odd = ", ".join(f"{counts[kind]} {kind}" for kind in ("refused", "empty") if counts[kind])
        if odd:
            logger.warning(
                "warning: entrant %s: of %d answers %s", self._entrant_id, counts["answers"], odd
            )
        if self._budget.spent:
            logger.info("entrant %s: spent $%.4f", self._entrant_id, self._budget.spent)

    @property
    def server(self) -> str:
        return f"the entrant {self._entrant_id}'s API"

    @property
    def cap(self) -> str:
        return f"entrant.{self._entrant_id}.budget_usd"

    def name(self, prompt: Prompt) -> str:
        return prompt.prompt_id

    def reserve(self, prompt: Prompt) -> float:
        if self._prices is None:
            return 0.0
        n_bytes = len(json.dumps(self.params(prompt), ensure_ascii=False).encode(errors="replace"))
        most = most_tokens(n_bytes) * self._prices.input + self._max_tokens * self._prices.output
        return most * PER_MILLION

    def is_ours(self, prompt: Prompt) -> bool:
        return True

    def keep(self, prompt: Prompt, message: Message) -> Kept[Response]:
        """What is handed over, and stored by whoever takes it."""
        said = self._read(message)
        dollars = self._prices.dollars(said.usage) if self._prices and said.usage else None
        diagnostics: dict[str, Any] = {
            "model": said.model,
            **{name: n for name, n in said.usage.items() if n},
        }
        if dollars is not None:
            diagnostics["dollars"] = dollars
        response = Response(
            entrant_id=self._entrant_id,
            prompt_id=prompt.prompt_id,
            response_text=said.text,
            finish_reason=_FINISH_REASONS.get(said.stop_reason, said.stop_reason),
            diagnostics=diagnostics,
            timestamp=utc_now(),
        )
        self._counts.update(_kinds(response))
        return Kept(answer=response, dollars=dollars or 0.0)


def _kinds(response: Response) -> list[str]:
    """What a response counts as."""
    refused, empty = response.finish_reason == "refusal", not response.response_text.strip()
    return ["answers", *["refused"] * refused, *["empty"] * empty]
