"""Claude as judge, through the Message Batches API or one message at a time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.anthropic import (
    API_VERSION,
    KEY_VARIABLE,
    ClaudeSettings,
    api_key,
)
from elo_exp.api.costs import Prices
from elo_exp.errors import SettingError
from elo_exp.judges import BatchJudge, build_unpriced_error
from elo_exp.records import JudgeRequest
from elo_exp.types import CacheKey, Effort, Share


@dataclass(kw_only=True)
class ClaudeModel(Prices):
    """Prices and capabilities of a model.

    structured_output  takes a JSON schema for its answer; else the verdict is the last line
    """

    structured_output: bool
    takes_effort: bool


@dataclass(kw_only=True)
class ClaudeJudge(ClaudeSettings, BatchJudge):
    """model   an id with an entry in `models`, which has its prices
    cache   measured: warm the prompt cache, measure it on a first chunk, then decide; or 1h, 5m,
            none

    The rest is described in conf/judge/claude.yaml. Only model, effort, max_tokens, the API's
    version and its address enter the key of a verdict; payment and transport do not.
    """

    effort: Effort | None
    cache: Literal["measured", "1h", "5m", "none"]
    models: dict[str, ClaudeModel]
    expected_hit_rate: Share

    key_variable = KEY_VARIABLE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.effort is not None and not self.prices_of(self.model).takes_effort:
            raise SettingError.bad_value(
                "effort",
                self.effort,
                f"be null for {self.model}, which has no effort levels",
            )

    def prices_of(self, model: str) -> ClaudeModel:
        """Return what is known of a model; a batch of an earlier run may be another model's."""
        claude_model = self.models.get(model)
        if claude_model is None:
            raise build_unpriced_error(model, self.models, "conf/judge/claude.yaml")
        return claude_model

    def cache_key(self) -> CacheKey:
        return {
            "judge": "claude",
            "model": self.model,
            "effort": self.effort,
            "max_tokens": self.max_tokens,
            "structured_output": self.prices_of(self.model).structured_output,
            "api_version": API_VERSION,
            "endpoint": self.api.endpoint,
        }

    def _check_server(self) -> None:
        if api_key() is not None:  # which is named first
            self._check_budget()
        super()._check_server()

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None:
        """With a key the API counts tokens, free of charge."""
        return self.api.count_tokens if api_key() is not None else None

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the body of a message. Up to the cache breakpoint, the bytes are equal for all
        requests of a rubric."""
        system: dict[str, Any] = {"type": "text", "text": request.system}
        if ttl:
            system["cache_control"] = {"type": "ephemeral", "ttl": ttl}
        output: dict[str, Any] = {"effort": self.effort} if self.effort else {}
        if self.prices_of(self.model).structured_output:
            schema = json.loads(request.schema)
            output["format"] = {"type": "json_schema", "schema": schema}
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [system],
            "messages": [{"role": "user", "content": request.user}],
            **({"output_config": output} if output else {}),
        }
