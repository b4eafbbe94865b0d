"""Models of random weights, made on the device that runs them: nothing is written, and nothing read."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from elo_exp.entrants.huggingface import HuggingFaceEntrant
from elo_exp.models.checkpoints import CausalLM
from elo_exp.models.tiny import TEMPLATE, train_tokenizer


@dataclass(frozen=True, kw_only=True)
class RandomWeights:
    """What to make: an OLMo-2 of a shape. Equal ones share a load, as checkpoints do.

    attention  of transformers: sdpa, flash_attention_2, ...
    """

    hidden: int
    layers: int
    inner: int
    vocabulary: int
    head_size: int
    device: str
    dtype: str
    attention: str = "sdpa"

    @property
    def n_bytes(self) -> int:
        """Of the weights in 16 bits; norms are not counted."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.inner
        return 2 * (self.layers * layer + 2 * self.vocabulary * self.hidden)

    def load(self) -> CausalLM:
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig, Olmo2Config

        config = Olmo2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.hidden // self.head_size,
            max_position_embeddings=4096,
            eos_token_id=None,
            pad_token_id=None,
            bos_token_id=None,
            architectures=["Olmo2ForCausalLM"],
        )
        torch.manual_seed(0)
        with torch.device(self.device):
            model = AutoModelForCausalLM.from_config(
                config,
                dtype=getattr(torch, self.dtype),
                attn_implementation=self.attention,
            )
        ends = {"eos_token_id": [0], "pad_token_id": 1, "do_sample": False}
        model.generation_config = GenerationConfig(**ends)
        return CausalLM(
            model=model.eval().requires_grad_(requires_grad=False),
            tokenizer=train_tokenizer(TEMPLATE, vocabulary=min(self.vocabulary, 512)),
            device=model.get_input_embeddings().weight.device,
            name="random weights",
        )


@dataclass(kw_only=True)
class RandomEntrant(HuggingFaceEntrant):
    """An entrant of transformers whose weights are random.

    shape  fields of RandomWeights
    """

    shape: dict[str, Any]

    @cached_property
    def weights(self) -> Any:
        return replace(RandomWeights(**self.shape), dtype=self.dtype)
