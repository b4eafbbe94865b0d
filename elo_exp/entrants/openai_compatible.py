"""A model behind an OpenAI-compatible API: vLLM, llama.cpp, Ollama, or hosted."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from elo_exp.api.costs import Prices, make_token_prices
from elo_exp.api.jobs import Completion
from elo_exp.api.openai import OpenAiSettings
from elo_exp.entrants import (
    FORCING_VERSION,
    ApiEntrant,
    LogprobsById,
    Policy,
    check_unit_temperature,
    read_recorded_ids,
)
from elo_exp.errors import SettingError
from elo_exp.models.generation import prompt_seed
from elo_exp.records import Prompt, Response, make_fingerprint
from elo_exp.types import CacheKey, Dollars, Integer, TopP

# A policy sends these against the recommendations of the model's authors, which servers follow.
_NO_TRUNCATION = {"top_k": 0, "min_p": 0, "repetition_penalty": 1}
# Its tokens identify a tokenizer.
_TOKENIZER_TEST_TEXT = (
    "The 3 naïve bakers (aged 47.5) didn't pay €1,024:\n\tif x != None: return 東京"
)


@dataclass(kw_only=True)
class OpenAiCompatibleEntrant(OpenAiSettings, ApiEntrant, Policy):
    """The settings are described in conf/entrant/openai_compatible.yaml.

    All that is sent, and where to, enters the key of an answer; concurrency and prices do not. With
    `logprobs` it is a policy, for servers that speak as vLLM's does.
    """

    top_p: TopP | None
    seed: Integer | None
    logprobs: bool
    weights: str | None
    input_usd_per_million: Dollars | None
    output_usd_per_million: Dollars | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.logprobs:
            return
        check_unit_temperature(self.temperature, self.top_p)
        if (
            self.input_usd_per_million is not None
            or self.extra_body.keys() & _NO_TRUNCATION.keys()
        ):
            raise SettingError(
                "logprobs must be false with prices, and with top_k, min_p or repetition_penalty in extra_body; got true."
            )

    def prices_of(self, model: str) -> Prices | None:
        per_input, per_output = self.input_usd_per_million, self.output_usd_per_million
        if per_input is None and per_output is None:
            return None
        if per_input is None or per_output is None:
            absent, present = (
                ("input", "output") if per_input is None else ("output", "input")
            )
            raise SettingError(
                f"{absent}_usd_per_million must be set as well, because {present}_usd_per_million is set; got null."
            )
        return make_token_prices(per_input, per_output, per_input)

    @property
    def varies(self) -> bool:
        """Whether tokens are drawn: at the server's own temperature, too, which is not known."""
        return self.temperature != 0

    @property
    def may_bill(self) -> bool:
        return self.key_variable is not None or self.input_usd_per_million is not None

    def cache_key(self, prompt: Prompt) -> CacheKey:
        key = {
            "loader": "openai_compatible",
            "endpoint": self.api.endpoint,
            "request": self.params(prompt, None),
        }
        return key if self.weights is None else {**key, "weights": self.weights}

    def logprob_key(self, prompt: Prompt) -> CacheKey:
        return {**self.cache_key(prompt), "version": FORCING_VERSION}

    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        seed = None if self.seed is None else self.seed + request.draw_idx
        sampling = {"top_p": self.top_p, "seed": seed}
        body = self._request_body(request.sent(self.system_prompt), **sampling)
        if not self.logprobs:
            return body
        extra = {**self.extra_body, **_NO_TRUNCATION, "return_token_ids": True}
        logprob_options = {"logprobs": True, "extra_body": extra}
        return {"seed": prompt_seed(request), **body, **logprob_options}

    def parse(self, message: Mapping[str, Any]) -> Completion:
        completion = super().parse(message)
        if not self.logprobs:
            return completion
        choice = message["choices"][0]
        ids, entries = choice["token_ids"], choice["logprobs"]["content"]
        policy_diagnostics = {
            "token_ids": ids,
            "total_logprob": math.fsum(
                entry["logprob"] for _, entry in zip(ids, entries, strict=True)
            ),
            "tokenizer": self._tokenizer,
        }
        return replace(completion, diagnostics=policy_diagnostics)

    def _check_server(self) -> None:
        super()._check_server()
        if self.logprobs:
            _ = self._tokenizer

    @cached_property
    def _tokenizer(self) -> str:
        return make_fingerprint(self._tokenize(prompt=_TOKENIZER_TEST_TEXT)[0])

    def _tokenize(self, **text: Any) -> tuple[list[int], int]:
        """Return token ids, and the length of the model's context."""
        return self.api.post_for_free(  # type: ignore[no-any-return]
            f"{self.api.endpoint.removesuffix('/v1')}/tokenize",
            {"model": self.model, **text},
            lambda reply: (reply["tokens"], reply["max_model_len"]),
        )

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> LogprobsById:
        def force(response: Response) -> tuple[str, float | None]:
            ids = read_recorded_ids(response, self.entrant_id, self._tokenizer)
            start, context = self._tokenize(
                messages=self.params(prompts[response.prompt_id], None)["messages"],
                chat_template_kwargs=self.extra_body.get("chat_template_kwargs"),
            )
            body = {"model": self.model, "max_tokens": 1, "prompt_logprobs": 0}
            total = None
            if len(start) + len(ids) < context:  # with the token that is drawn
                entries = self.api.post_for_free(
                    f"{self.api.endpoint}/completions",
                    {**body, "prompt": start + ids},
                    lambda reply: reply["choices"][0]["prompt_logprobs"][len(start) :],
                )
                total = math.fsum(
                    entry[str(token)]["logprob"]
                    for token, entry in zip(ids, entries, strict=True)
                )
            return response.prompt_id, total

        with ThreadPoolExecutor(self.concurrency) as pool:
            yield from pool.map(force, responses)
