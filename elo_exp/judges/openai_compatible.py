"""A judge behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted. One query at a
request."""

import json
import logging
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.costs import Prices, token_prices
from elo_exp.api.openai import OpenAiSettings
from elo_exp.judges import ApiJudge
from elo_exp.records import JudgeRequest
from elo_exp.types import CacheKey, Dollars

logger = logging.getLogger(__name__)

_SENT = (
    "model",
    "structured",
    "max_tokens",
    "max_tokens_name",
    "temperature",
    "extra_body",
)


@dataclass(kw_only=True)
class OpenAiCompatibleJudge(OpenAiSettings, ApiJudge):
    """structured  json_schema: the server holds the answer to the schema of a verdict or a score;
                json_object: to JSON; none: to nothing, so that the requested JSON or the last line
                is read

    The rest is described in conf/judge/openai_compatible.yaml. All that is sent, and where to,
    enters the key of a verdict; prices and concurrency do not.
    """

    structured: Literal["json_schema", "json_object", "none"]
    input_usd_per_million: Dollars
    cached_input_usd_per_million: Dollars
    output_usd_per_million: Dollars

    transport = "messages"
    cache = None  # the server's business
    expected_hit_rate = 0.0

    def cache_key(self) -> CacheKey:
        sent = {name: getattr(self, name) for name in _SENT}
        return {"judge": "openai_compatible", "endpoint": self.api.endpoint, **sent}

    def _check_server(self) -> None:
        is_priced = bool(self.input_usd_per_million or self.output_usd_per_million)
        if is_priced:
            self._check_budget()
        super()._check_server()
        if self.key_variable is not None and not is_priced:
            logger.warning(
                "warning: %s.input_usd_per_million: the prices of %s are 0: its cost is not "
                "counted, and no cap is held. Set them where it is paid for.", self.part, self.model,
            )  # fmt: skip

    def prices_of(self, model: str) -> Prices:
        return token_prices(
            self.input_usd_per_million,
            self.output_usd_per_million,
            self.cached_input_usd_per_million,
        )

    def token_counter(self) -> None:
        return None

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the body of a request; the prompt cache is the server's business."""
        form: dict[str, Any] = {"type": self.structured}
        if self.structured == "json_schema":
            schema = json.loads(request.schema)
            name = "score" if request.scale else "verdict"
            form["json_schema"] = {"name": name, "strict": True, "schema": schema}
        used = None if self.structured == "none" else form
        return self._body(request.system, request.user, response_format=used)
