"""A model behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elo_exp.api.costs import Prices, token_prices
from elo_exp.api.jobs import Completion, Message
from elo_exp.api.openai import OpenAiApi, check_extra_body, parse_completion
from elo_exp.entrants import ApiEntrant
from elo_exp.records import Prompt, UserError
from elo_exp.types import Dollars, Integer, MaxTokensName, NonNegative, Positive, TopP


@dataclass(kw_only=True)
class OpenAiCompatibleEntrant(ApiEntrant):
    """The settings are described in conf/entrant/openai_compatible.yaml.

    All that is sent, and where to, enters the key of an answer; concurrency and prices do not.
    """

    key_variable: str | None
    max_tokens_name: MaxTokensName
    temperature: NonNegative | None
    top_p: TopP | None
    seed: Integer | None
    extra_body: dict[str, Any]
    timeout_seconds: Positive
    input_usd_per_million: Dollars | None
    output_usd_per_million: Dollars | None

    def __post_init__(self) -> None:
        check_extra_body(self.extra_body)
        super().__post_init__()

    def _connect(self) -> OpenAiApi:
        return OpenAiApi(
            self.base_url,
            key_variable=self.key_variable,
            timeout_seconds=self.timeout_seconds,
            part=self.part,
        )

    def prices_of(self, model: str) -> Prices | None:
        per_input, per_output = self.input_usd_per_million, self.output_usd_per_million
        if per_input is None and per_output is None:
            return None
        if per_input is None or per_output is None:
            raise UserError(
                "input_usd_per_million: set without output_usd_per_million, or the reverse. Set "
                "both."
            )
        return token_prices(
            input_usd_per_million=per_input,
            output_usd_per_million=per_output,
            cached_input_usd_per_million=per_input,
        )

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

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        messages = [{"role": "user", "content": request.text}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            self.max_tokens_name: self.max_tokens,
        }
        for name in ("temperature", "top_p", "seed"):
            if (value := getattr(self, name)) is not None:
                body[name] = value
        if self.extra_body:
            body["extra_body"] = self.extra_body
        return body

    def parse(self, message: Message) -> Completion:
        return parse_completion(message, max_tokens=self.max_tokens)
