"""What vLLM does, over a tiny model of transformers: for a fake of its module, and for the test server.

As there, given tokens are scored at temperature 1, whatever is asked for.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from elo_exp.models.causal_lm import PEFT_DEPRECATION

CONTEXT = 512


class TinyEngine:
    """Draws and scores token ids. `temperature`: the one of drawing, whatever is asked for."""

    def __init__(self, model: str | Path, adapter: str | None = None) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModelForCausalLM.from_pretrained(model).eval()
        if adapter is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", PEFT_DEPRECATION)
                self.model = PeftModel.from_pretrained(self.model, adapter).eval()
        self.temperature: float | None = None

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([ids])).logits[0].double()
        return logits

    def draw(
        self, ids: Sequence[int], *, temperature: float, seed: int, max_tokens: int
    ) -> tuple[list[int], list[float], str]:
        """Tokens, their log-probabilities, and why they end."""
        source, tokens, logprobs = torch.Generator().manual_seed(seed), [], []
        temperature = self.temperature or temperature
        while len(tokens) < max_tokens:
            last = self.logits([*ids, *tokens])[-1]
            if temperature:
                p = (last / temperature).softmax(0)
                token = int(torch.multinomial(p, 1, generator=source))
            else:
                token = int(last.argmax())
            tokens.append(token)
            scaled = last / (self.temperature or 1.0)
            logprobs.append(float(scaled.log_softmax(0)[token]))
            if token == self.tokenizer.eos_token_id:
                return tokens, logprobs, "stop"
        return tokens, logprobs, "length"

    def score(self, ids: Sequence[int]) -> list[float]:
        """The log-probability of each token but the first, after those before it."""
        rows = self.logits(ids)[:-1].log_softmax(-1)
        return [float(row[i]) for row, i in zip(rows, ids[1:], strict=True)]


# A module vllm


@dataclass(kw_only=True)
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    seed: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass(kw_only=True)
class LLM:
    model: str
    dtype: str
    enable_lora: bool
    others: Mapping[str, Any] = field(default_factory=dict)

    def __init__(self, model: str, *, dtype: str, enable_lora: bool, **others: Any):
        assert (dtype, enable_lora) in {("float32", False), ("float32", True)}
        self.model, self.others = model, others
        self.engines = {None: TinyEngine(model)}
        config = SimpleNamespace(max_model_len=CONTEXT, dtype=torch.float32)
        self.llm_engine = SimpleNamespace(model_config=config)

    def get_tokenizer(self) -> Any:
        return self.engines[None].tokenizer

    def generate(
        self,
        prompts: Sequence[Mapping[str, list[int]]],
        sampling_params: Sequence[SamplingParams],
        *,
        lora_request: LoRARequest | None,
        use_tqdm: bool,
    ) -> list[Any]:
        place = lora_request and lora_request.lora_path
        if place not in self.engines:
            self.engines[place] = TinyEngine(self.model, place)
        return [
            output(self.engines[place], prompt["prompt_token_ids"], params)
            for prompt, params in zip(prompts, sampling_params, strict=True)
        ]


def output(engine: TinyEngine, ids: list[int], params: SamplingParams) -> Any:
    """A RequestOutput: log-probabilities are dictionaries by token, and None at the first of a prompt."""
    tokens, logprobs, reason = engine.draw(
        ids,
        temperature=params.temperature,
        seed=params.seed,
        max_tokens=params.max_tokens,
    )
    drawn = SimpleNamespace(
        token_ids=tuple(tokens),
        finish_reason=reason,
        cumulative_logprob=None if params.logprobs is None else sum(logprobs),
    )
    places = None
    if params.prompt_logprobs is not None:
        scored = zip(ids[1:], engine.score(ids), strict=True)
        places = [None, *({i: SimpleNamespace(logprob=p)} for i, p in scored)]
    return SimpleNamespace(outputs=[drawn], prompt_logprobs=places)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `import vllm` find this."""
    names = {"LLM": LLM, "SamplingParams": SamplingParams, "__version__": "0.33.0"}
    for name in ("vllm", "vllm.lora", "vllm.lora.request"):
        module = ModuleType(name)
        vars(module).update(names, LoRARequest=LoRARequest)
        monkeypatch.setitem(sys.modules, name, module)
