"""Claude as entrant, through the Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.api.answering import Answering, Said
from elo_exp.api.anthropic_answers import text_of, usage_of
from elo_exp.api.anthropic_api import (
    API_VERSION,
    AnthropicApi,
    api_key,
    check_lifetime,
    no_key,
)
from elo_exp.api.calls import Message
from elo_exp.api.costs import Prices, token_prices
from elo_exp.api.transport import check_base_url
from elo_exp.records import Prompt, Response, UserError
from elo_exp.types import Count, Dollars, Effort


@dataclass(kw_only=True)
class TokenPrices:
    """Dollars per million tokens."""

    input: Dollars
    output: Dollars


@dataclass(kw_only=True)
class ClaudeEntrant:
    """model   an id with an entry in `prices`

    The rest is described in conf/entrant/claude.yaml. All that is sent, and where to, enters the key of an answer.
    """

    entrant_id: str
    base_url: str
    model: str
    system_prompt: str | None
    effort: Effort | None
    max_tokens: Count
    concurrency: Count
    prices: dict[str, TokenPrices]
    budget_usd: Dollars | None

    def __post_init__(self) -> None:
        check_base_url(self.base_url)
        self.base_url = self.base_url.rstrip("/")
        self._part = f"entrant.{self.entrant_id}"
        self._api = AnthropicApi(self.base_url, part=self._part)
        self._answering = Answering(
            self.entrant_id,
            preflight=self._check,
            send=self._api.message,
            params=self._params,
            read=_read,
            prices=self._prices(),
            budget_usd=self.budget_usd,
            max_tokens=self.max_tokens,
            concurrency=self.concurrency,
        )

    def _prices(self) -> Prices:
        found = self.prices.get(self.model)
        if found is None:
            raise UserError(
                f"model: found {self.model!r}, whose prices are not known. Known: {', '.join(self.prices)}. Add it to "
                "prices as '{input: .., output: ..}', in dollars per million tokens."
            )
        return token_prices(
            input_usd_per_million=found.input,
            output_usd_per_million=found.output,
            cached_input_usd_per_million=found.input,
        )

    @property
    def max_answer_tokens(self) -> int:
        return self.max_tokens

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        request = self._params(prompt)
        return {
            "loader": "claude",
            "endpoint": self.base_url,
            "api_version": API_VERSION,
            "request": request,
        }

    @property
    def may_bill(self) -> bool:
        return True

    def preflight(self) -> None:
        self._answering.preflight()

    def _check(self) -> None:
        if api_key() is None:
            raise UserError(no_key())
        check_lifetime(self.model, self._part)
        self._api.check_model(self.model)

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        return self._answering.answers(prompts)

    def _params(self, prompt: Prompt) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            **({"system": self.system_prompt} if self.system_prompt is not None else {}),
            "messages": [{"role": "user", "content": prompt.text}],
            **({"output_config": {"effort": self.effort}} if self.effort is not None else {}),
        }


def _read(message: Message) -> Said:
    return Said(
        text=text_of(message),
        stop_reason=str(message.get("stop_reason")),
        model=message.get("model"),
        usage=usage_of(message),
    )
