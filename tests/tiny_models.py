"""Causal language models of some hundred thousand random parameters, made in a moment.

torch is imported by whoever builds the first one, and takes two seconds.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from elo_exp.data import bank
from elo_exp.models import tiny
from elo_exp.models.tiny import TEMPLATE
from elo_exp.records import Prompt, Response
from tests.data import BANK

VOCABULARY = 512
BY_ID = {prompt.prompt_id: prompt for prompt in bank.load_bank(BANK)}


def tiny_model(
    folder: Path,
    *,
    kind: str = "olmo2",
    seed: int = 0,
    n_layers: int = 4,
    hidden_size: int = 32,
    chat_template: str | None = TEMPLATE,
    spread: float = 0.2,
    **config: Any,
) -> Path:
    """A model with its tokenizer, saved in the folder.

    kind    olmo2 or llama
    seed    of its weights: other seeds give other models
    spread  standard deviation of the weights; with the usual 0.02 greedy answers repeat one token
    """
    import torch

    torch.set_num_threads(1)  # the matrices are small, and other tests want the cores
    return tiny.save_random_model(
        folder,
        kind,
        seed=seed,
        spread=spread,
        chat_template=chat_template,
        vocabulary=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=n_layers,
        **config,
    )


def tiny_adapter(
    folder: Path,
    base: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    targets: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
    spread: float = 0.2,
    **config: Any,
) -> Path:
    """A LoRA adapter of the base model with random weights; lora_alpha is twice the rank."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    lora = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=list(targets),
        task_type="CAUSAL_LM",
        **config,
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.normal_(0.0, spread)
    model.save_pretrained(folder)
    return folder


def answers(of: Any, prompts: Iterable[Prompt]) -> dict[str, Response]:
    return {response.prompt_id: response for response in of.generate(list(prompts))}


def forced(by: Any, responses: Mapping[str, Response]) -> dict[str, float | None]:
    """The log-probability of each response under a policy."""
    return dict(by.teacher_force(BY_ID, list(responses.values())))
