"""Claude as entrant, through the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elo_exp.api.anthropic_api import (
    API_VERSION,
    AnthropicApi,
    api_key,
    check_lifetime,
    no_key,
    parse_message,
)
from elo_exp.api.costs import Prices, entrant_budget, token_prices
from elo_exp.api.jobs import Completion, Message
from elo_exp.api.transport import check_base_url
from elo_exp.records import Prompt, UserError
from elo_exp.types import Count, Dollars, Effort


@dataclass(kw_only=True)
class TokenPrices:
    """Dollars per million tokens."""

    input: Dollars
    output: Dollars


@dataclass(kw_only=True)
class ClaudeEntrant:
    """model   an id with an entry in `prices`

    The rest is described in conf/entrant/claude.yaml. All that is sent, and where to, enters the
    key of an answer.
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
        self.api = AnthropicApi(self.base_url, part=self._part)
        self.budget = entrant_budget(self.budget_usd, self.prices_of(self.model))
        self.budget_setting = f"{self._part}.budget_usd"
        self.server = f"the entrant {self.entrant_id}'s API"
        self._was_reached = False

    def prices_of(self, model: str) -> Prices:
        found = self.prices.get(model)
        if found is None:
            raise UserError(
                f"model: found {model!r}, whose prices are not known. Known: "
                f"{', '.join(self.prices)}. Add it to "
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
        request = self.params(prompt, None)
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
        """Raise UserError for what would stop the first request, such as a missing key."""
        if self._was_reached:
            return
        if api_key() is None:
            raise UserError(no_key())
        check_lifetime(self.model, self._part)
        self.api.check_model(self.model)
        self._was_reached = True

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            **(
                {"system": self.system_prompt} if self.system_prompt is not None else {}
            ),
            "messages": [{"role": "user", "content": request.text}],
            **(
                {"output_config": {"effort": self.effort}}
                if self.effort is not None
                else {}
            ),
        }

    def parse(self, message: Message) -> Completion:
        return parse_message(message)
