"""A model behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elo_exp.api.answering import Answering, Said
from elo_exp.api.calls import Message
from elo_exp.api.costs import Prices, token_prices
from elo_exp.api.counts import is_counted
from elo_exp.api.openai_api import (
    OpenAiApi,
    check_extra_body,
    stop_reason_of,
    text_of,
    usage_of,
)
from elo_exp.records import Prompt, Response, UserError
from elo_exp.types import Count, Dollars, Integer, MaxTokensName, NonNegative, Positive, TopP


@dataclass(kw_only=True)
class OpenAiCompatibleEntrant:
    """The settings are described in conf/entrant/openai_compatible.yaml. All that is sent, and where to, enters the
    key of an answer; how many are asked at a time and what they cost does not."""

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
        self._api = OpenAiApi(
            self.base_url,
            key_variable=self.key_variable,
            timeout_seconds=self.timeout_seconds,
            part=f"entrant.{self.entrant_id}",
        )
        self._answering = Answering(
            self.entrant_id,
            preflight=partial(self._api.check, self.model),
            send=self._api.complete,
            params=self._params,
            read=self._read,
            prices=self._prices(),
            budget_usd=self.budget_usd,
            max_tokens=self.max_tokens,
            concurrency=self.concurrency,
        )

    def _prices(self) -> Prices | None:
        given = self.input_usd_per_million, self.output_usd_per_million
        if given == (None, None):
            return None
        if self.input_usd_per_million is None or self.output_usd_per_million is None:
            raise UserError(
                "input_usd_per_million: set without output_usd_per_million, or the reverse. Set both."
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
            "endpoint": self._api.endpoint,
            "request": self._params(prompt),
        }

    @property
    def may_bill(self) -> bool:
        return self.key_variable is not None or self.input_usd_per_million is not None

    def preflight(self) -> None:
        self._answering.preflight()

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        return self._answering.answers(prompts)

    def _params(self, prompt: Prompt) -> dict[str, Any]:
        prompt_ = self.system_prompt
        system = [{"role": "system", "content": prompt_}] if prompt_ is not None else []
        sampling = {name: getattr(self, name) for name in ("temperature", "top_p", "seed")}
        return {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": prompt.text}],
            self.max_tokens_name: self.max_tokens,
            **{name: value for name, value in sampling.items() if value is not None},
            **({"extra_body": self.extra_body} if self.extra_body else {}),
        }

    def _read(self, message: Message) -> Said:
        return Said(
            text=text_of(message),
            stop_reason=stop_reason_of(message, max_tokens=self.max_tokens),
            model=str(message["model"]) if message.get("model") else None,
            usage=usage_of(message) if is_counted(message) else {},
        )
