"""Causal language models in memory: loaded once, on the device there is, their LoRA adapters merged.

One process holds one model at a time. torch, transformers and peft are imported by the functions that need them.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

NO_TEMPLATE = "none"  # of a chat template: the prompt goes to the model as it is
_NAMED = 3  # of many missing weights, how many an error names


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What is loaded; equal ones share one load.

    model     a folder, or a model of the Hugging Face hub, and of that the `revision`: a branch, tag or commit
    dtype     float32, bfloat16, float16; auto is float32 on a processor and bfloat16 on an accelerator
    device    cuda, mps, cpu, or one of several GPUs: cuda:1; auto takes the first of cuda, mps, cpu that there is
    adapters  LoRA folders or hub names (NAME@REVISION), merged into the weights in this order
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    adapters: tuple[str, ...] = ()
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalLM:
    """A model in evaluation mode that takes no gradients, and its tokenizer, which pads on the left."""

    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    device: torch.device
    checkpoint: Checkpoint

    @property
    def context_length(self) -> int | None:
        """How many tokens the model was made for, the answer's included; None where it does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def end_ids(self) -> list[int]:
        """The tokens that end an answer."""
        return list(self.model.generation_config.eos_token_id)


_loaded: list[CausalLM] = []  # the slot: none or one


def load(checkpoint: Checkpoint) -> CausalLM:
    """The model. It stays loaded until another one is wanted; the same checkpoint gives the same object.

    Raises UserError for a model, adapter, package or device that is not there, and for one that does not fit into
    memory.
    """
    if not (_loaded and _loaded[0].checkpoint == checkpoint):
        release()
        _loaded.append(_load(checkpoint))
    return _loaded[0]


def release() -> None:
    """Let go of the model that is loaded, and give the accelerator's memory back."""
    if not _loaded:
        return
    model = weakref.ref(_loaded.pop().model)
    if model() is not None:  # something in it refers back to it
        gc.collect()
    empty_cache()


def empty_cache() -> None:
    """Hand the memory that torch keeps in reserve back to the accelerator."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()


def choose_device(name: str) -> str:
    """The device of that name; for auto the best there is. Raises UserError for one that this machine has not."""
    import torch

    n_gpus = torch.cuda.device_count()
    present = ["cuda", *(f"cuda:{i}" for i in range(n_gpus))] if n_gpus else []
    present += ["mps"] if torch.backends.mps.is_available() else []
    present += ["cpu"]
    if name == "auto":
        return present[0]
    if name not in present:
        raise UserError(
            f"device: found {name!r}, which this machine does not have. Expected {' or '.join(present)}."
        )
    return name


def choose_dtype(name: str, device: str) -> torch.dtype:
    """The type of the weights; for auto float32 on a processor and bfloat16 on an accelerator."""
    import torch

    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def name_and_revision(adapter: str) -> tuple[str, str | None]:
    """The two parts of NAME@REVISION; a folder has no revision, whatever it is called."""
    name, at, revision = adapter.rpartition("@")
    return (name, revision) if at and not Path(adapter).expanduser().is_dir() else (adapter, None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is how torch says that memory is used up: by a class of its own on CUDA, in words elsewhere."""
    import torch

    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    words = ("out of memory", "can't allocate memory", "Invalid buffer size")
    return isinstance(error, RuntimeError) and any(some in str(error) for some in words)


def chat_ids(
    lm: CausalLM, prompt_text: str, *, system_prompt: str | None, chat_template: str | None
) -> list[int]:
    """The tokens that the model is to continue: a system message, the prompt as the user's, the assistant's opening.

    chat_template  a Jinja text in place of the tokenizer's own; 'none': the bare texts, one after the other
    Raises UserError where there is no template, or one that cannot take these messages.
    """
    from jinja2 import TemplateError

    tokenizer = lm.tokenizer
    if chat_template == NO_TEMPLATE:
        return list(tokenizer("\n\n".join(filter(None, [system_prompt, prompt_text])))["input_ids"])
    if chat_template is None and not tokenizer.chat_template:
        raise UserError(
            f"{lm.checkpoint.model}: its tokenizer has no chat template. Give one with chat_template=FILE.jinja, or "
            f"chat_template={NO_TEMPLATE} to send the prompt as it is."
        )
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages = [*system, {"role": "user", "content": prompt_text}]
    try:
        text = tokenizer.apply_chat_template(
            messages, chat_template=chat_template, tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:
        with_system = " with a system prompt" if system else ""
        raise UserError(
            f"{lm.checkpoint.model}: the chat template cannot be used{with_system} ({_first_line(error)}). Give "
            "another with chat_template=FILE.jinja"
            + (", or leave system_prompt out." if system else ".")
        ) from None
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def require_packages(model: str) -> None:
    """Raise UserError where what a model needs is not installed."""
    absent = [
        name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None
    ]
    if absent:
        raise UserError(
            f"{model}: needs {', '.join(absent)}, not installed: pip install 'elo-exp[hf]'."
        )


def _load(checkpoint: Checkpoint) -> CausalLM:
    require_packages(checkpoint.model)
    import torch
    from transformers.utils import logging as transformers_logging

    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    device = torch.device(choose_device(checkpoint.device))
    logger.info("loading %s on %s", checkpoint.model, device)
    names = [checkpoint.model, *(name_and_revision(adapter)[0] for adapter in checkpoint.adapters)]
    try:  # without asking the hub about each file: where it cannot be reached, that takes minutes
        return _assembled(checkpoint, device, local_files_only=True)
    except UserError:
        if all(Path(name).is_dir() for name in names):
            raise
    return _assembled(checkpoint, device, local_files_only=False)


def _assembled(checkpoint: Checkpoint, device: torch.device, *, local_files_only: bool) -> CausalLM:
    source = {
        "revision": checkpoint.revision,
        "trust_remote_code": checkpoint.trust_remote_code,
        "local_files_only": local_files_only,
    }
    with _explained(checkpoint.model, device):
        tokenizer = _tokenizer(checkpoint.model, source)
        model = _model(
            checkpoint.model, choose_dtype(checkpoint.dtype, device.type), device, source
        )
    for adapter in checkpoint.adapters:
        with _explained(adapter, device):
            model = _merged(model, adapter, device, local_files_only=local_files_only)
    model = model.eval().requires_grad_(requires_grad=False)
    model.generation_config = _plain_generation(model, tokenizer)
    return CausalLM(model=model, tokenizer=tokenizer, device=device, checkpoint=checkpoint)


def _tokenizer(name: str, source: Mapping[str, Any]) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left", **source)
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"{name}: its tokenizer has no end token, so that no answer would ever end."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _model(name: str, dtype: torch.dtype, device: torch.device, source: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, device_map={"": str(device)}, output_loading_info=True, **source
    )
    model, found = loaded
    if missing := sorted([*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])]):
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        raise UserError(
            f"{name}: {len(missing)} weights are missing or of another shape ({named}), and would be random. Check "
            "that the files are all there, and of the model that its config.json describes."
        )
    return model


def _merged(model: Any, adapter: str, device: torch.device, *, local_files_only: bool) -> Any:
    from peft import PeftModel

    name, revision = name_and_revision(adapter)
    with as_peft_is():
        warnings.filterwarnings("error", message="Found missing adapter keys")
        merged = PeftModel.from_pretrained(
            model,
            name,
            revision=revision,
            torch_device=str(device),
            local_files_only=local_files_only,
        ).merge_and_unload()
    vars(merged).pop(
        "peft_config", None
    )  # older versions leave it, and then warn that there are two adapters
    return merged


@contextmanager
def as_peft_is() -> Iterator[None]:
    """peft asks transformers by a name that transformers is about to drop; that is between the two of them."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning
        )
        yield


def _plain_generation(model: Any, tokenizer: Any) -> Any:
    """What ends an answer, and nothing of how the model's authors would have it sampled: that is for the settings."""
    from transformers import GenerationConfig

    ends = model.generation_config.eos_token_id if model.generation_config else None
    known = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=sorted({*known, tokenizer.eos_token_id}),
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )


@contextmanager
def _explained(name: str, device: torch.device) -> Iterator[None]:
    """Whatever the libraries raise while they load: in one line, with what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        ImportError,
        SafetensorError,
        UserWarning,
    ) as error:
        raise UserError(f"{name}: {_reason(name, error, device)}") from error


def _reason(name: str, error: Exception, device: torch.device) -> str:
    import torch
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if is_out_of_memory(error):
        free = (
            f" ({torch.cuda.mem_get_info(device)[0] / 2**30:.1f} GiB free)"
            if device.type == "cuda"
            else ""
        )
        return f"does not fit into the memory of {device}{free}. Use dtype=bfloat16, device=cpu or a smaller model."
    if "trust_remote_code" in str(error):
        return "brings code of its own. Read it, and set trust_remote_code=true if it may run on this machine."
    if HF_HUB_OFFLINE and not Path(name).is_dir():
        return (
            "is not whole in the hub's cache, and HF_HUB_OFFLINE is set. Load it once with network."
        )
    return f"cannot be loaded ({_first_line(error)})."


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
