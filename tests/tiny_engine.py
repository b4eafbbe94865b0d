"""What vLLM does, over a tiny model of transformers: for a fake of its module, and for the test server.

As there, given tokens are scored at temperature 1, whatever is asked for.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

CONTEXT = 512


class TinyEngine:
    """Draws and scores token ids. `temperature`: the one of drawing, whatever is asked for."""

    def __init__(self, model: str | Path, adapter: str | None = None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModelForCausalLM.from_pretrained(model).eval()
        self.temperature: float | None = None
        if adapter is not None:
            self.model = PeftModel.from_pretrained(self.model, adapter).eval()

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([ids])).logits[0].double()
        return logits

    def draw(
        self, ids: Sequence[int], temperature: float, seed: int, limit: int
    ) -> tuple[list[int], list[float], str]:
        """Tokens, their log-probabilities, and why they end."""
        source, tokens, logprobs = torch.Generator().manual_seed(seed), [], []
        temperature = self.temperature or temperature
        while len(tokens) < limit:
            logits = self.logits([*ids, *tokens])[-1] / (temperature or 1e-6)
            token = int(torch.multinomial(logits.softmax(0), 1, generator=source))
            tokens.append(token)
            logprobs.append(float(logits.log_softmax(0)[token]))
            if token == self.tokenizer.eos_token_id:
                return tokens, logprobs, "stop"
        return tokens, logprobs, "length"

    def score(self, ids: Sequence[int]) -> list[dict[int, float] | None]:
        """The log-probability of each token after those before it, by its id."""
        rows = self.logits(ids).log_softmax(-1)
        after = zip(rows, ids[1:], strict=False)
        return [None, *({i: float(row[i])} for row, i in after)]


class LLM:
    """vllm.LLM. Its outputs are those of one answer, with objects in place of log-probabilities."""

    def __init__(self, model: str, **settings: Any) -> None:
        assert settings["dtype"] == "float32"
        self.model, self.settings = model, settings
        self.engine = TinyEngine(model)
        config = SimpleNamespace(max_model_len=CONTEXT, dtype=torch.float32)
        self.llm_engine = SimpleNamespace(model_config=config)

    def get_tokenizer(self) -> Any:
        return self.engine.tokenizer

    def generate(
        self,
        prompts: Sequence[Mapping[str, list[int]]],
        sampling_params: Sequence[SimpleNamespace],
        *,
        lora_request: SimpleNamespace | None,
        use_tqdm: bool,
    ) -> list[SimpleNamespace]:
        engine = self.engine
        if lora_request:
            assert self.settings["enable_lora"]
            engine = TinyEngine(self.model, lora_request.path)
        outputs = []
        for prompt, asked in zip(prompts, sampling_params, strict=True):
            ids = prompt["prompt_token_ids"]
            if hasattr(asked, "prompt_logprobs"):
                scored = [
                    p and {i: SimpleNamespace(logprob=x) for i, x in p.items()}
                    for p in engine.score(ids)
                ]
                outputs.append(SimpleNamespace(prompt_logprobs=scored))
                continue
            assert asked.logprobs == 0
            tokens, logprobs, reason = engine.draw(
                ids, asked.temperature, asked.seed, asked.max_tokens
            )
            drawn = {"token_ids": tuple(tokens), "finish_reason": reason}
            one = SimpleNamespace(**drawn, cumulative_logprob=sum(logprobs))
            outputs.append(SimpleNamespace(outputs=[one]))
        return outputs


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `import vllm` find this."""
    names = {
        "LLM": LLM,
        "SamplingParams": SimpleNamespace,
        "LoRARequest": lambda name, number, path: SimpleNamespace(path=path),
        "__version__": "0.33.0",
    }
    for name in ("vllm", "vllm.lora", "vllm.lora.request"):
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
