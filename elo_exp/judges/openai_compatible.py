"""A judge behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted. One query at a request."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from elo_exp.api.costs import PER_MILLION, Budget, token_prices
from elo_exp.api.messages import MessagesRun
from elo_exp.api.once import answer_once
from elo_exp.api.openai_api import (
    OpenAiApi,
    check_extra_body,
    stop_reason_of,
    text_of,
    usage_of,
)
from elo_exp.api.planning import Estimate
from elo_exp.api.services import Clock
from elo_exp.api.token_estimator import Density, most_tokens
from elo_exp.files import utc_now
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store
from elo_exp.types import Count, Dollars, MaxTokensName, NonNegative, Positive

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.5  # between looks at what other processes pay for


@dataclass(kw_only=True)
class OpenAiCompatibleJudge:
    """structured  json_schema: the server holds the answer to the schema of a verdict or a score; json_object: to JSON;
                none: to nothing, and what counts is the JSON that it was asked for or the last line

    The rest is described in conf/judge/openai_compatible.yaml. All that is sent, and where to, enters the key of a
    verdict; what it costs and how many are asked at a time does not.
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
    clock = Clock()
    budget_setting = "judging.budget_usd"

    def __post_init__(self) -> None:
        check_extra_body(self.extra_body)
        self.part = "judge"
        self._prices = token_prices(
            input_usd_per_million=self.input_usd_per_million,
            output_usd_per_million=self.output_usd_per_million,
            cached_input_usd_per_million=self.cached_input_usd_per_million,
        )
        self._costs = bool(self.input_usd_per_million or self.output_usd_per_million)
        self._budget = Budget(self.budget_usd)
        self._density = Density(self.chars_per_token)
        self._was_reached = False

    @property
    def part(self) -> str:
        """What the judge is called in the configuration, for the words of an error."""
        return self._part

    @part.setter
    def part(self, name: str) -> None:
        self._part = name
        self._api = OpenAiApi(
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
        return {"judge": "openai_compatible", "endpoint": self._api.endpoint, **sent}

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""
        if self._costs and not self.budget_usd > 0:
            raise UserError(
                f"{self.budget_setting}: is ${self.budget_usd:g}, and {self.model} is paid for. Set a cap in dollars "
                f"with {self.budget_setting}=..."
            )
        if self._was_reached:
            return
        self._api.check(self.model)
        if self.key_variable is not None and not self._costs:
            logger.warning(
                "warning: %s.input_usd_per_million: the prices of %s are 0: its cost is not counted, and no cap is "
                "held. Set them where it is paid for.", self.part, self.model,
            )  # fmt: skip
        self._was_reached = True

    def estimate(self, requests: Sequence[JudgeRequest]) -> Estimate:
        n_input = sum(self._density.tokens(request.n_chars) for request in requests)
        n_output = len(requests) * self.expected_output_tokens
        dollars = (n_input * self._prices.input + n_output * self._prices.output) * PER_MILLION
        return Estimate(
            input_tokens=round(n_input),
            output_tokens=n_output,
            dollars=dollars,
            dollars_plain=dollars,
            counted=0,
        )

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """The request; its prompt cache is the server's business."""
        temperature = {} if self.temperature is None else {"temperature": self.temperature}
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

    def reserve(self, request: JudgeRequest, ttl: str | None) -> float:
        """The most that a request may cost: dense texts, an answer as long as it may be."""
        most = (
            most_tokens(request.n_bytes) * self._prices.input
            + self.max_tokens * self._prices.output
        )
        return most * PER_MILLION

    def reply(self, key: str, names: Mapping[str, str], message: Mapping[str, Any]) -> JudgeReply:
        """The whole message, with what it says and what it cost."""
        usage = usage_of(message)
        return JudgeReply(
            key=key,
            text=text_of(message),
            stop_reason=stop_reason_of(message, max_tokens=self.max_tokens),
            usage=usage,
            dollars=self._prices.dollars(usage),
            timestamp=utc_now(),
            judge_model=self.model,
            message=json.dumps(message),
            **names,  # type: ignore[arg-type]
        )

    def best_ttl(self, hit_rate: float) -> str | None:
        return None

    def answer(self, requests: Sequence[JudgeRequest], store: Store) -> Iterator[JudgeReply]:
        return answer_once(
            requests,
            store,
            pay=self._pay,
            endpoint=None,
            clock=self.clock,
            pause_seconds=_PAUSE_SECONDS,
        )

    def _pay(
        self, requests: Sequence[JudgeRequest], claims: Claims, failed: dict[str, str]
    ) -> Iterator[JudgeReply]:
        if not requests:
            return
        self.preflight()
        run = MessagesRun(
            send=self._api.complete,
            judge=self,
            claims=claims,
            budget=self._budget,
            concurrency=self.concurrency,
            ttl=None,
        )
        yield from run.answer(requests)
        failed |= run.failed
