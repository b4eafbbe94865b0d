"""A judge behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted. One query at a
request."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.costs import Budget, Prices, token_prices
from elo_exp.api.jobs import Completion, Message
from elo_exp.api.openai_api import (
    OpenAiApi,
    check_extra_body,
    parse_completion,
)
from elo_exp.api.token_estimator import TokenEstimator
from elo_exp.records import JudgeRequest, UserError
from elo_exp.types import Count, Dollars, MaxTokensName, NonNegative, Positive

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class OpenAiCompatibleJudge:
    """structured  json_schema: the server holds the answer to the schema of a verdict or a score;
    json_object: to JSON;
                none: to nothing, and what counts is the JSON that it was asked for or the last line

    The rest is described in conf/judge/openai_compatible.yaml. All that is sent, and where to,
    enters the key of a verdict; what it costs and how many are asked at a time does not.
    """

    base_url: str
    model: str
    key_variable: str | None
    structured: Literal["json_schema", "json_object", "none"]
    max_tokens: Count
    max_tokens_name: MaxTokensName
    temperature: NonNegative | None
    extra_body: dict[str, Any]
    concurrency: Count
    timeout_seconds: Positive
    budget_usd: Dollars
    input_usd_per_million: Dollars
    cached_input_usd_per_million: Dollars
    output_usd_per_million: Dollars
    expected_output_tokens: Count
    chars_per_token: Positive

    key_fields = ()
    budget_setting = "judging.budget_usd"
    server = "the judge's API"
    transport = "messages"
    cache = None  # the server's business
    pause_seconds = 0.5
    expected_hit_rate = 0.0

    def __post_init__(self) -> None:
        check_extra_body(self.extra_body)
        self.part = "judge"
        self._prices = token_prices(
            input_usd_per_million=self.input_usd_per_million,
            output_usd_per_million=self.output_usd_per_million,
            cached_input_usd_per_million=self.cached_input_usd_per_million,
        )
        self._costs = bool(self.input_usd_per_million or self.output_usd_per_million)
        self.budget = Budget(self.budget_usd)
        self.estimator = TokenEstimator(self.chars_per_token)
        self._was_reached = False

    @property
    def part(self) -> str:
        """What the judge is called in the configuration, for the words of an error."""
        return self._part

    @part.setter
    def part(self, name: str) -> None:
        self._part = name
        self.api = OpenAiApi(
            self.base_url,
            key_variable=self.key_variable,
            timeout_seconds=self.timeout_seconds,
            part=name,
        )

    def cache_key(self) -> Mapping[str, Any]:
        names = (
            "model",
            "structured",
            "max_tokens",
            "max_tokens_name",
            "temperature",
            "extra_body",
        )
        sent = {name: getattr(self, name) for name in names}
        return {"judge": "openai_compatible", "endpoint": self.api.endpoint, **sent}

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""
        if self._costs and not self.budget_usd > 0:
            raise UserError(
                f"{self.budget_setting}: is ${self.budget_usd:g}, and {self.model} is paid for. "
                "Set a cap in dollars "
                f"with {self.budget_setting}=..."
            )
        if self._was_reached:
            return
        self.api.check(self.model)
        if self.key_variable is not None and not self._costs:
            logger.warning(
                "warning: %s.input_usd_per_million: the prices of %s are 0: its cost is not "
                "counted, and no cap is "
                "held. Set them where it is paid for.", self.part, self.model,
            )  # fmt: skip
        self._was_reached = True

    def prices_of(self, model: str) -> Prices:
        return self._prices

    def token_counter(self) -> None:
        return None

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """The request; its prompt cache is the server's business."""
        temperature = (
            {} if self.temperature is None else {"temperature": self.temperature}
        )
        return {
            "model": self.model,
            "messages": [
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.user},
            ],
            self.max_tokens_name: self.max_tokens,
            **temperature,
            **self._response_format(request),
            **({"extra_body": self.extra_body} if self.extra_body else {}),
        }

    def _response_format(self, request: JudgeRequest) -> dict[str, Any]:
        if self.structured == "none":
            return {}
        if self.structured == "json_object":
            return {"response_format": {"type": "json_object"}}
        name = "score" if request.scale else "verdict"
        schema = {"name": name, "strict": True, "schema": json.loads(request.schema)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

    def parse(self, message: Message) -> Completion:
        return parse_completion(message, max_tokens=self.max_tokens)
