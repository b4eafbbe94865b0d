"""Load causal language models: one at a time, LoRA adapters merged, errors as one line.

torch, transformers and peft are imported by the functions that need them.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

NO_TEMPLATE = "none"  # the chat template that sends the prompt as it is
_MAX_NAMES = 3  # missing weights named in an error


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What to load. Equal checkpoints share one load.

    model     a folder, or a name on the Hugging Face hub
    revision  branch, tag or commit of a name on the hub
    dtype     float32, bfloat16, float16; auto is float32 on a CPU and bfloat16 on an accelerator
    device    cuda, mps, cpu, or one of several GPUs, cuda:1; auto is the first of these present
    adapters  LoRA folders or hub names (NAME@REVISION), merged in this order
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    adapters: tuple[str, ...] = ()
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalLM:
    """A model in evaluation mode without gradients, and its tokenizer, which pads on the left."""

    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    device: torch.device
    checkpoint: Checkpoint

    @property
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its answer; None where the model's configuration has none."""
        return getattr(
            self.model.config.get_text_config(), "max_position_embeddings", None
        )

    @property
    def end_ids(self) -> list[int]:
        """Ids of the tokens that end an answer."""
        return list(self.model.generation_config.eos_token_id)


_loaded: list[CausalLM] = []  # none or one


def load(checkpoint: Checkpoint) -> CausalLM:
    """Load a model, in place of the one that is loaded; an equal checkpoint is not loaded again.

    Raises UserError where model, adapter, package or device is absent, or memory is too small.
    """
    if not (_loaded and _loaded[0].checkpoint == checkpoint):
        release()
        _loaded.append(_load(checkpoint))
    return _loaded[0]


def release() -> None:
    """Drop the loaded model and free the accelerator's memory."""
    if _loaded:
        _loaded.clear()
        free_memory()


def free_memory() -> None:
    """Return the memory of dropped tensors to the accelerator."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()


def choose_device(name: str) -> str:
    """Resolve auto to the best device present. Raises UserError for a device that is absent."""
    import torch

    n_gpus = torch.cuda.device_count()
    present = ["cuda", *(f"cuda:{i}" for i in range(n_gpus))] if n_gpus else []
    present += ["mps"] if torch.backends.mps.is_available() else []
    present += ["cpu"]
    if name == "auto":
        return present[0]
    if name not in present:
        raise UserError(
            f"device: found {name!r}, which this machine does not have. Expected "
            f"{' or '.join(present)}."
        )
    return name


def choose_dtype(name: str, device: str) -> torch.dtype:
    """Resolve auto to float32 on a CPU and bfloat16 on an accelerator."""
    import torch

    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def split_revision(adapter: str) -> tuple[str, str | None]:
    """Split NAME@REVISION; a folder has no revision, whatever its name is."""
    name, at, revision = adapter.rpartition("@")
    if not at or Path(adapter).expanduser().is_dir():
        return adapter, None
    return name, revision


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory, which not every device has a class of errors for."""
    messages = ("out of memory", "can't allocate memory", "Invalid buffer size")
    return isinstance(error, RuntimeError) and any(
        message in str(error) for message in messages
    )


def chat_ids(
    lm: CausalLM,
    prompt_text: str,
    *,
    system_prompt: str | None,
    chat_template: str | None,
) -> list[int]:
    """Tokenise a prompt: system message, the prompt as user message, the assistant's opening.

    chat_template  a Jinja text in place of the tokenizer's own; NO_TEMPLATE: the bare texts
    Raises UserError where there is no template, or one that cannot take these messages.
    """
    tokenizer, model = lm.tokenizer, lm.checkpoint.model
    if chat_template == NO_TEMPLATE:
        return list(tokenizer(bare_text(prompt_text, system_prompt))["input_ids"])
    with template_errors(model, chat_template or tokenizer.chat_template):
        encoded = tokenizer.apply_chat_template(
            messages(prompt_text, system_prompt),
            chat_template=chat_template,
            add_generation_prompt=True,
            return_dict=True,
        )
        return list(encoded["input_ids"])


def bare_text(prompt_text: str, system_prompt: str | None) -> str:
    """Join a prompt to the system prompt without a chat template."""
    return "\n\n".join(filter(None, [system_prompt, prompt_text]))


def messages(prompt_text: str, system_prompt: str | None) -> list[dict[str, str]]:
    """Word a prompt as the messages of a chat."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": prompt_text}]


@contextmanager
def template_errors(model: str, template: str | None) -> Iterator[None]:
    """Raise UserError where there is no chat template, or one that cannot be rendered."""
    from jinja2 import TemplateError

    another = f"with chat_template=FILE.jinja, or chat_template={NO_TEMPLATE} to send"
    if not template:
        raise UserError(
            f"{model}: has no chat template. Give one {another} the prompt as it is."
        )
    try:
        yield
    except (TemplateError, ValueError) as error:
        raise UserError(
            f"{model}: its chat template cannot take these messages ({_first_line(error)}). Give "
            f"another {another} the prompt as it is, or leave system_prompt out if there is one."
        ) from None


def require_packages(model: str) -> None:
    """Raise UserError where a package that a model needs is not installed."""
    needed = ("torch", "transformers", "peft")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise UserError(
            f"{model}: needs {', '.join(absent)}, not installed: pip install 'elo-exp[hf]'."
        )


@contextmanager
def ignore_peft_deprecation() -> Iterator[None]:
    """Hide a warning about a name that peft reads and transformers is about to drop."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore",
            message="`is_gradient_checkpointing` is deprecated",
            category=FutureWarning,
        )
        yield


def _load(checkpoint: Checkpoint) -> CausalLM:
    """Load from folders and the hub's cache; only where something is absent, ask the hub.

    The hub's client asks about each file, which takes minutes where the hub cannot be reached.
    """
    require_packages(checkpoint.model)
    import torch
    from transformers.utils import logging as transformers_logging

    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    device = torch.device(choose_device(checkpoint.device))
    logger.info("loading %s on %s", checkpoint.model, device)
    names = [
        checkpoint.model,
        *(split_revision(adapter)[0] for adapter in checkpoint.adapters),
    ]
    try:
        return _load_parts(checkpoint, device, local_files_only=True)
    except UserError:
        if all(Path(name).is_dir() for name in names):
            raise
    return _load_parts(checkpoint, device, local_files_only=False)


def _load_parts(
    checkpoint: Checkpoint, device: torch.device, *, local_files_only: bool
) -> CausalLM:
    source = {
        "revision": checkpoint.revision,
        "trust_remote_code": checkpoint.trust_remote_code,
        "local_files_only": local_files_only,
    }
    with _library_errors(checkpoint.model, device):
        tokenizer = _load_tokenizer(checkpoint.model, source)
        dtype = choose_dtype(checkpoint.dtype, device.type)
        model = _load_model(checkpoint.model, dtype, device, source)
    for adapter in checkpoint.adapters:
        with _library_errors(adapter, device):
            model = _merge(model, adapter, device, local_files_only=local_files_only)
    model = model.eval().requires_grad_(requires_grad=False)
    model.generation_config = _greedy_config(model, tokenizer)
    return CausalLM(
        model=model, tokenizer=tokenizer, device=device, checkpoint=checkpoint
    )


def _load_tokenizer(name: str, source: Mapping[str, Any]) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left", **source)
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"{name}: its tokenizer has no end token, so no answer would ever end."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_model(
    name: str, dtype: torch.dtype, device: torch.device, source: Mapping[str, Any]
) -> Any:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=dtype,
        device_map={"": str(device)},
        output_loading_info=True,
        **source,
    )
    model, info = loaded
    if missing := sorted(
        [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])]
    ):
        names = ", ".join(missing[:_MAX_NAMES]) + (
            ", ..." if len(missing) > _MAX_NAMES else ""
        )
        raise UserError(
            f"{name}: {len(missing)} weights are missing or of another shape ({names}), and would "
            "be random. Check that all files are there and belong to the model in config.json."
        )
    return model


def _merge(
    model: Any, adapter: str, device: torch.device, *, local_files_only: bool
) -> Any:
    from peft import PeftModel

    name, revision = split_revision(adapter)
    with ignore_peft_deprecation():
        warnings.filterwarnings("error", message="Found missing adapter keys")
        return PeftModel.from_pretrained(
            model,
            name,
            revision=revision,
            torch_device=str(device),
            local_files_only=local_files_only,
        ).merge_and_unload()


def _greedy_config(model: Any, tokenizer: Any) -> Any:
    """Keep the model's end tokens, and none of the sampling that its authors recommend."""
    from transformers import GenerationConfig

    ends = model.generation_config.eos_token_id if model.generation_config else None
    known = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=sorted({*known, tokenizer.eos_token_id}),
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )


@contextmanager
def _library_errors(name: str, device: torch.device) -> Iterator[None]:
    """Turn what the libraries raise while they load into one line."""
    from safetensors import SafetensorError

    kinds = (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        ImportError,
        SafetensorError,
        UserWarning,
    )
    try:
        yield
    except kinds as error:
        raise UserError(f"{name}: {_reason(name, error, device)}") from error


def _reason(name: str, error: Exception, device: torch.device) -> str:
    import torch
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if is_out_of_memory(error):
        free = ""
        if device.type == "cuda":
            free = f" ({torch.cuda.mem_get_info(device)[0] / 2**30:.1f} GiB free)"
        return (
            f"does not fit into the memory of {device}{free}. Use dtype=bfloat16, device=cpu or a "
            "smaller model."
        )
    if "trust_remote_code" in str(error):
        return (
            "brings code of its own. Read it, and set trust_remote_code=true if it may run on this "
            "machine."
        )
    if HF_HUB_OFFLINE and not Path(name).is_dir():
        return (
            "is not complete in the hub's cache, and HF_HUB_OFFLINE is set. Load it once with a "
            "network."
        )
    return f"cannot be loaded ({_first_line(error)})."


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
