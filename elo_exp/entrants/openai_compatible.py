"""A model behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elo_exp.api.costs import Prices, token_prices
from elo_exp.api.openai import OpenAiSettings
from elo_exp.entrants import ApiEntrant
from elo_exp.records import Prompt, UserError
from elo_exp.types import Dollars, Integer, TopP


@dataclass(kw_only=True)
class OpenAiCompatibleEntrant(OpenAiSettings, ApiEntrant):
    """The settings are described in conf/entrant/openai_compatible.yaml.

    All that is sent, and where to, enters the key of an answer; concurrency and prices do not.
    """

    top_p: TopP | None
    seed: Integer | None
    input_usd_per_million: Dollars | None
    output_usd_per_million: Dollars | None

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

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        sampling = {"top_p": self.top_p, "seed": self.seed}
        return self._body(self.system_prompt, request.text, **sampling)
