"""A model behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elo_exp.api.costs import Prices, entrant_budget, token_prices
from elo_exp.api.jobs import Completion, Message
from elo_exp.api.openai_api import (
    OpenAiApi,
    check_extra_body,
    parse_completion,
)
from elo_exp.records import Prompt, UserError
from elo_exp.types import (
    Count,
    Dollars,
    Integer,
    MaxTokensName,
    NonNegative,
    Positive,
    TopP,
)


@dataclass(kw_only=True)
class OpenAiCompatibleEntrant:
    """The settings are described in conf/entrant/openai_compatible.yaml. All that is sent, and
    where to, enters the key of an answer; how many are asked at a time and what they cost does
    not."""

    entrant_id: str
    base_url: str
    model: str
    key_variable: str | None
    system_prompt: str | None
    max_tokens: Count
    max_tokens_name: MaxTokensName
    temperature: NonNegative | None
    top_p: TopP | None
    seed: Integer | None
    extra_body: dict[str, Any]
    concurrency: Count
    timeout_seconds: Positive
    input_usd_per_million: Dollars | None
    output_usd_per_million: Dollars | None
    budget_usd: Dollars | None

    def __post_init__(self) -> None:
        check_extra_body(self.extra_body)
        self.api = OpenAiApi(
            self.base_url,
            key_variable=self.key_variable,
            timeout_seconds=self.timeout_seconds,
            part=f"entrant.{self.entrant_id}",
        )
        self._prices = self._known_prices()
        self.budget = entrant_budget(self.budget_usd, self._prices)
        self.budget_setting = f"entrant.{self.entrant_id}.budget_usd"
        self.server = f"the entrant {self.entrant_id}'s API"
        self._was_reached = False

    def _known_prices(self) -> Prices | None:
        given = self.input_usd_per_million, self.output_usd_per_million
        if given == (None, None):
            return None
        if self.input_usd_per_million is None or self.output_usd_per_million is None:
            raise UserError(
                "input_usd_per_million: set without output_usd_per_million, or the reverse. Set "
                "both."
            )
        return token_prices(
            input_usd_per_million=self.input_usd_per_million,
            output_usd_per_million=self.output_usd_per_million,
            cached_input_usd_per_million=self.input_usd_per_million,
        )

    @property
    def max_answer_tokens(self) -> int:
        return self.max_tokens

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {
            "loader": "openai_compatible",
            "endpoint": self.api.endpoint,
            "request": self.params(prompt, None),
        }

    @property
    def may_bill(self) -> bool:
        return self.key_variable is not None or self.input_usd_per_million is not None

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""
        if not self._was_reached:
            self.api.check(self.model)
            self._was_reached = True

    def prices_of(self, model: str) -> Prices | None:
        return self._prices

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        text = self.system_prompt
        system = [{"role": "system", "content": text}] if text is not None else []
        sampling = {
            name: getattr(self, name) for name in ("temperature", "top_p", "seed")
        }
        return {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": request.text}],
            self.max_tokens_name: self.max_tokens,
            **{name: value for name, value in sampling.items() if value is not None},
            **({"extra_body": self.extra_body} if self.extra_body else {}),
        }

    def parse(self, message: Message) -> Completion:
        return parse_completion(message, max_tokens=self.max_tokens)
