"""Claude as entrant, through the Messages API."""

from dataclasses import dataclass
from typing import Any

from elo_exp.api.anthropic import API_VERSION, ClaudeSettings
from elo_exp.api.costs import Prices, make_token_prices
from elo_exp.entrants import ApiEntrant
from elo_exp.errors import SettingError
from elo_exp.records import Prompt
from elo_exp.types import CacheKey, Dollars, Effort


@dataclass(kw_only=True)
class TokenPrices:
    """Dollars per million tokens."""

    input: Dollars
    output: Dollars


@dataclass(kw_only=True)
class ClaudeEntrant(ClaudeSettings, ApiEntrant):
    """model   an id with an entry in `prices`

    The rest is described in conf/entrant/claude.yaml. All that is sent, and where to, enters the
    key of an answer.
    """

    effort: Effort | None
    prices: dict[str, TokenPrices]

    varies = True

    def prices_of(self, model: str) -> Prices:
        model_prices = self.prices.get(model)
        if model_prices is None:
            raise SettingError.bad_value(
                "model",
                model,
                "be a model whose prices are known",
                f"  Known: {', '.join(self.prices)}",
                "  To add it, write '{input: .., output: ..}' into prices, in US dollars per million tokens.",
            )
        return make_token_prices(
            model_prices.input, model_prices.output, model_prices.input
        )

    def cache_key(self, prompt: Prompt) -> CacheKey:
        return {
            "loader": "claude",
            "endpoint": self.api.endpoint,
            "api_version": API_VERSION,
            "request": self.params(prompt, None),
        }

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        messages = request.sent(self.system_prompt)
        if any("tool_calls" in message for message in messages):
            raise SettingError(
                f"Prompt {request.prompt_id} has a tool call in its history, and entrant.{self.entrant_id} cannot send "
                "tool calls. Leave out the prompt or the entrant."
            )
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            # an empty message is refused
            "messages": [m for m in messages if m["role"] != "system" and m["content"]],
        }
        if messages[0]["role"] == "system":
            body["system"] = messages[0]["content"]
        if self.effort is not None:
            body["output_config"] = {"effort": self.effort}
        return body
