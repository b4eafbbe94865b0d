"""Claude as judge, through the Message Batches API or one message at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.anthropic_api import (
    API_VERSION,
    AnthropicApi,
    api_key,
    check_lifetime,
    check_quarantine,
    no_key,
    parse_message,
)
from elo_exp.api.batches import BatchSettings
from elo_exp.api.costs import Budget, Prices
from elo_exp.api.jobs import Completion, Message
from elo_exp.api.token_estimator import TokenEstimator
from elo_exp.api.transport import check_base_url
from elo_exp.records import JudgeRequest, UserError
from elo_exp.types import Count, Dollars, Effort, NonNegative, Positive, Share


@dataclass(kw_only=True)
class ClaudeModel(Prices):
    """What is to be known of a model id."""

    structured_output: bool  # takes a JSON schema for its answer; else the verdict is the last line of a text
    takes_effort: bool


@dataclass(kw_only=True)
class ClaudeJudge:
    """model   an id with an entry in `models`, which says what it costs
    cache   measured: warm the prompt cache, measure it on a first chunk, then decide; or 1h, 5m,
            none

    The rest is described in conf/judge/claude.yaml. Only model, effort, max_tokens, the API's
    version and its address enter the key of a verdict: how it is paid for and transported does not.
    """

    model: str
    effort: Effort | None
    max_tokens: Count
    transport: Literal["batches", "messages"]
    base_url: str
    budget_usd: Dollars
    cache: Literal["measured", "1h", "5m", "none"]
    models: dict[str, ClaudeModel]
    expected_output_tokens: Count
    expected_hit_rate: Share
    chars_per_token: Positive
    chunk_size: Count
    poll_initial_seconds: Positive
    poll_max_seconds: Positive
    quarantine_seconds: NonNegative
    concurrency: Count

    key_fields = ()
    budget_setting = "judging.budget_usd"
    server = "the judge's API"

    def __post_init__(self) -> None:
        check_base_url(self.base_url)
        self.base_url = self.base_url.rstrip("/")
        check_quarantine(self.quarantine_seconds, self.base_url)
        facts = self.prices_of(self.model)
        if self.effort is not None and not facts.takes_effort:
            raise UserError(
                f"effort: found {self.effort!r}, and {self.model} takes none. Set "
                "judge.effort=null."
            )
        self.budget = Budget(self.budget_usd)
        self.estimator = TokenEstimator(self.chars_per_token)
        self.batch_settings = BatchSettings(
            chunk_size=self.chunk_size,
            poll_initial_seconds=self.poll_initial_seconds,
            poll_max_seconds=self.poll_max_seconds,
            quarantine_seconds=self.quarantine_seconds,
        )
        self.pause_seconds = min(1.0, self.poll_initial_seconds)
        self.part = "judge"
        self._was_reached = False

    @property
    def part(self) -> str:
        """What the judge is called in the configuration, for the words of an error."""
        return self._part

    @part.setter
    def part(self, name: str) -> None:
        self._part = name
        self.api = AnthropicApi(self.base_url, part=name)

    @property
    def _facts(self) -> ClaudeModel:
        return self.prices_of(self.model)

    def prices_of(self, model: str) -> ClaudeModel:
        """What is known of a model, with its prices. A batch that was taken over may be another
        model's."""
        facts = self.models.get(model)
        if facts is None:
            raise UserError(
                f"model: found {model!r}, whose prices are not known. Known: "
                f"{', '.join(self.models)}. Add another to "
                "models in conf/judge/claude.yaml, with its prices."
            )
        return facts

    def cache_key(self) -> Mapping[str, Any]:
        return {
            "judge": "claude",
            "model": self.model,
            "effort": self.effort,
            "max_tokens": self.max_tokens,
            "structured_output": self._facts.structured_output,
            "api_version": API_VERSION,
            "endpoint": self.base_url,
        }

    def preflight(self) -> None:
        """Raise UserError for what would stop the first paid call; warn of a model that is about to
        go."""
        if api_key() is None:
            raise UserError(no_key())
        if not self.budget_usd > 0:
            raise UserError(
                f"{self.budget_setting}: is ${self.budget_usd:g}, and {self.model} is paid for. "
                "Set a cap in dollars "
                f"with {self.budget_setting}=..."
            )
        check_lifetime(self.model, self.part)
        if not self._was_reached:
            self.api.check_model(self.model)
            self._was_reached = True

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None:
        """With a key the API counts tokens, free of charge."""
        return self.api.count_tokens if api_key() is not None else None

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """The message of a request. Up to the breakpoint it is the same, byte for byte, for all of
        a rubric."""
        breakpoint_ = (
            {"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}
        )
        output: dict[str, Any] = {"effort": self.effort} if self.effort else {}
        if self._facts.structured_output:
            schema = json.loads(request.schema)
            output["format"] = {"type": "json_schema", "schema": schema}
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{"type": "text", "text": request.system, **breakpoint_}],
            "messages": [{"role": "user", "content": request.user}],
            **({"output_config": output} if output else {}),
        }

    def parse(self, message: Message) -> Completion:
        return parse_message(message)
