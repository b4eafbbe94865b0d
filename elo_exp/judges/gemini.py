"""Gemini as judge, by batches at half price, or one request at a time."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.costs import Prices, make_token_prices
from elo_exp.api.gemini import GeminiSettings
from elo_exp.api.gemini_sdk import API_VERSION
from elo_exp.judges import BatchJudge, build_unpriced_error, list_format_remedies
from elo_exp.records import JudgeRequest
from elo_exp.types import CacheKey, Dollars, NonNegative


@dataclass(kw_only=True)
class GeminiModel:
    """Dollars per million tokens.

    batch_factor  what a batch pays of all of these
    """

    input: Dollars
    cached_input: Dollars
    output: Dollars
    batch_factor: NonNegative


@dataclass(kw_only=True)
class GeminiJudge(GeminiSettings, BatchJudge):
    """model       an id with an entry in `models`, which has its prices
    structured  json_schema: the server holds the answer to the schema of a verdict or a score; json_object: to JSON; none:
                to nothing, so that the requested JSON or the last line is read

    The rest is described in conf/judge/gemini.yaml. What is sent, the API's version and its address enter the key of a
    verdict; payment and transport do not.
    """

    thinking_level: Literal["minimal", "low", "medium", "high", "xhigh"] | None
    temperature: NonNegative | None
    structured: Literal["json_schema", "json_object", "none"]
    models: dict[str, GeminiModel]

    cache = None  # the server's business
    expected_hit_rate = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prices_of(self.model)

    def prices_of(self, model: str) -> Prices:
        """Return the prices of a model; a batch of an earlier run may be another model's."""
        gemini_model = self.models.get(model)
        if gemini_model is None:
            raise build_unpriced_error(model, self.models, "conf/judge/gemini.yaml")
        return make_token_prices(
            gemini_model.input,
            gemini_model.output,
            gemini_model.cached_input,
            batch_factor=gemini_model.batch_factor,
        )

    def cache_key(self) -> CacheKey:
        return {
            "judge": "gemini",
            "model": self.model,
            "thinking_level": self.thinking_level,
            "temperature": self.temperature,
            "structured": self.structured,
            "max_tokens": self.max_tokens,
            "api_version": API_VERSION,
            "endpoint": self.api.endpoint,
        }

    def _check_server(self) -> None:
        self._check_budget()
        super()._check_server()

    def list_remedies(self) -> list[str]:
        return list_format_remedies(self.part, self.structured)

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the arguments of a request; the prompt cache is the server's business."""
        config: dict[str, Any] = {
            "system_instruction": request.system,
            "max_output_tokens": self.max_tokens,
        }
        if self.temperature is not None:
            config["temperature"] = self.temperature
        if self.thinking_level is not None:
            config["thinking_config"] = {"thinking_level": self.thinking_level}
        if self.structured != "none":
            config["response_mime_type"] = "application/json"
        if self.structured == "json_schema":
            config["response_json_schema"] = json.loads(request.schema)
        return {"model": self.model, "contents": request.user, "config": config}
