"""Checkpoints of transformers: settings, identity without loading, and the loaded model.

A hub name is identified by its commit, a folder by its contents, without torch: a machine without it
finds the answers that another has stored. torch, transformers and peft are imported by the functions
that need them.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.files import may_write, read_text, sha256, write_json
from elo_exp.models import (
    TokenRows,
    check_template_variables,
    first_error_line,
    require_packages,
    tiny,
)
from elo_exp.types import CacheKey, Device, DType

if TYPE_CHECKING:
    import torch
    from torch import Tensor

logger = logging.getLogger(__name__)

_COMMIT_HASH = re.compile("[0-9a-f]{40}")
# The files that transformers loads, by suffix and by name.
_LOADED_SUFFIXES = {
    ".json",
    ".jinja",
    ".model",
    ".tiktoken",
    ".safetensors",
    ".bin",
    ".py",
}
_LOADED_NAMES = {"merges.txt", "vocab.txt"}
# Options of transformers and of vLLM that change no answer
_PLACEMENT_OPTIONS = {
    "device_map", "max_memory", "offload_folder", "attn_implementation",
    "tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization",
    "max_num_seqs", "enforce_eager",
}  # fmt: skip
_MIN_BYTES_OF_CACHED_HASHES = 1 << 20
# Sends the prompt as it is
_NO_TEMPLATE = "none"
# By the class of an error of the hub's client, or the first of its bases
_HUB_ERROR_REASONS = {
    "GatedRepoError": "is gated. Accept its terms on its page of the hub, and log in: hf auth login",
    "HFValidationError": "is neither a folder here nor a name on the hub. Check the path.",
    "RepositoryNotFoundError": "is neither a folder here nor on the hub. Check the name. If it is private, log in: "
    "hf auth login",
    "RevisionNotFoundError": "does not exist on the hub. revision must be a branch, a tag or a commit.",
    "LocalEntryNotFoundError": "is neither a folder here nor in the hub's cache, and the hub cannot be reached or "
    "HF_HUB_OFFLINE is set. Download it elsewhere and give its folder.",
    "EntryNotFoundError": "lacks a file on the hub: config.json of a model, or adapter_config.json of an adapter.",
}
# The distributions of one block of positions are in float64 at a time
_LOGPROB_BLOCK_ROWS = 256


@dataclass(kw_only=True)
class TemplateSettings:
    """The chat template of an entrant or a judge with weights, and the cache of their hashes."""

    chat_template: str | None
    chat_template_kwargs: dict[str, Any]
    cache_dir: str

    @property
    def input_files(self) -> dict[str, Path]:
        """The .jinja file of a chat template that is the name of one."""
        name = self.chat_template or ""
        return {"template": Path(name).expanduser()} if name.endswith(".jinja") else {}

    @cached_property
    def template(self) -> str | None:
        """The text of the chat template. Raises UserError for a file that is absent."""
        for path in self.input_files.values():
            return read_text(path)
        return self.chat_template

    @property
    def model_key(self) -> CacheKey:
        """What of these settings changes what the model says, for cache keys."""
        key = {"chat_template": self.template}
        variables = self.chat_template_kwargs
        return {**key, "chat_template_kwargs": variables} if variables else key

    def check(self) -> None:
        """Raise UserError for a template's file that is absent."""
        _ = self.template

    def chat_ids(
        self, lm: CausalLM, messages: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Tokenise messages, as Prompt.sent has them, and the assistant's opening.

        Raises SettingError where there is no chat template, or one that cannot take these messages or
        does not read a variable of chat_template_kwargs.
        """
        from jinja2 import TemplateError

        variables = self.chat_template_kwargs
        sent_messages = [m for m in messages if m["role"] != "system" or m["content"]]
        if self.template == _NO_TEMPLATE and not variables:
            return lm.bare_ids(
                "\n\n".join(message["content"] for message in sent_messages)
            )
        try:
            return lm.chat_ids(
                list(map(_parse_call_arguments, sent_messages)),
                self.template,
                variables,
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise SettingError(
                f"The chat template of {lm.name} cannot take these messages ({first_error_line(error)}). Use another "
                "template, or none, or leave out system_prompt and chat_template_kwargs:",
                "  chat_template=FILE.jinja",
                f"  chat_template={_NO_TEMPLATE}",
            ) from None


def _parse_call_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parse the arguments of calls in a message, which chat templates take as objects."""
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        with suppress(ValueError, RecursionError):
            function["arguments"] = json.loads(function["arguments"])
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


@dataclass(kw_only=True)
class ModelSettings(TemplateSettings):
    """Settings of an entrant or a judge that is a model of transformers.

    conf/entrant/huggingface.yaml describes them.
    """

    model: str
    revision: str | None
    dtype: DType
    device: Device
    trust_remote_code: bool

    @property
    def weight_files(self) -> list[Path]:
        """The files that are loaded from folders; none of a hub name."""
        names = (self.model, *getattr(self, "adapters", ()))
        folders = [Path(split_revision(name)[0]).expanduser() for name in names]
        return [
            p
            for folder in folders
            if folder.is_dir()
            for p in list_loaded_files(folder)
        ]

    @cached_property
    def weights(self) -> Checkpoint:
        """The checkpoint, with absolute paths of folders and commits of hub names.

        What is loaded is then what was identified, even if a branch moves on meanwhile. Asks the
        hub, or in its offline mode its cache. Raises UserError for what is in neither.
        """
        name = tiny.build_tiny_model(self.model, Path(self.cache_dir))
        model, revision = _pin(name, self.revision, "config.json")
        adapters = map(split_revision, getattr(self, "adapters", ()))
        return Checkpoint(
            model=model,
            revision=revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(
                _pin(*adapter, "adapter_config.json") for adapter in adapters
            ),
            options=json.dumps(getattr(self, "load_kwargs", {})),
            trust_remote_code=self.trust_remote_code,
        )

    @property
    def dtype_key(self) -> str:
        """The dtype of cache keys. What the device decides is bfloat16, as by default it once was."""
        return "bfloat16" if self.dtype == "auto" else self.dtype

    @property
    def model_key(self) -> CacheKey:
        dtype = {"dtype": self.dtype_key}
        return {"weights": self.weights_key, **dtype, **super().model_key}

    @cached_property
    def weights_key(self) -> CacheKey:
        """What the weights are, for cache keys.

        Hub names have their commits, folders the SHA-256 of each file that is loaded, wherever they
        are. Of the options there are those that change the weights, and not where they go.
        """
        checkpoint, options = self.weights, getattr(self, "load_kwargs", {})
        changes = {name: options[name] for name in options.keys() - _PLACEMENT_OPTIONS}
        keys: list[dict[str, Any]] = []
        for source, commit in (
            (checkpoint.model, checkpoint.revision),
            *checkpoint.adapters,
        ):
            if commit:
                keys.append({"hub": source, "commit": commit})
                continue
            digests = hash_files(list_loaded_files(Path(source)), Path(self.cache_dir))
            keys.append({"files": {Path(p).name: digests[p] for p in digests}})
        return {
            "model": keys[0],
            "adapters": keys[1:],
            "trust_remote_code": self.trust_remote_code,
            **({"load_kwargs": changes} if changes else {}),
        }


def refuse_quantised_merge(
    adapters: Sequence[str], load_kwargs: Mapping[str, Any]
) -> None:
    """Raise SettingError for adapters that would be merged into a quantised model."""
    if adapters and "quantization_config" in load_kwargs:
        raise SettingError(
            "adapters must be merged into a 16-bit model, and this model has a quantization_config. "
            "Merge them first, and load the merged model."
        )


def split_revision(adapter: str) -> tuple[str, str | None]:
    """Split NAME@REVISION; a folder has no revision, whatever its name is."""
    name, at, revision = adapter.rpartition("@")
    if not at or Path(adapter).expanduser().is_dir():
        return adapter, None
    return name, revision


def list_loaded_files(folder: Path) -> list[Path]:
    """Return the files that loading reads; of weights in both formats, safetensors."""
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    is_safe = any(path.suffix == ".safetensors" for path in paths)
    suffixes = _LOADED_SUFFIXES - {".bin"} if is_safe else _LOADED_SUFFIXES
    return [
        path for path in paths if path.suffix in suffixes or path.name in _LOADED_NAMES
    ]


def hash_files(paths: Sequence[Path], cache_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path. Raises OSError for one that is absent.

    `cache_dir` caches those of large files by path, size and time of change.
    """
    file = cache_dir / "file_hashes.json"
    hash_of_path = {}
    for path in paths:
        stat, name = path.stat(), str(path)
        if stat.st_size < _MIN_BYTES_OF_CACHED_HASHES:
            hash_of_path[name] = sha256(path)
            continue
        try:
            cached_hashes = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # an unreadable cache is written anew
            cached_hashes = {}
        size_and_time = [stat.st_size, stat.st_mtime_ns]
        if cached_hashes.get(name, [])[:2] != size_and_time:
            logger.info("hashing %.1f GB of %s, once", stat.st_size / 1e9, path)
            cached_hashes[name] = [*size_and_time, sha256(path)]
            if may_write():
                write_json(file, cached_hashes)
        hash_of_path[name] = cached_hashes[name][2]
    return hash_of_path


def _pin(name: str, revision: str | None, config: str) -> tuple[str, str | None]:
    """Return the absolute path of a folder, or a hub name and the commit of its branch or tag: the
    folder of the hub's cache that the config is stored in. `config` tells a model from an adapter.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise SettingError(
                f"{name} is a folder, and a folder has no revision. Leave out revision={revision}."
            )
        if not (folder / config).is_file():
            raise FileError.bad_file(
                name,
                f"holds no {config}",
                "Give a folder that save_pretrained wrote. A LoRA adapter belongs into "
                "adapters=[...], its base model into model.",
            )
        return str(folder.resolve()), None
    revision = revision or "main"
    if _COMMIT_HASH.fullmatch(revision):
        return name, revision
    try:
        from huggingface_hub import hf_hub_download

        file = hf_hub_download(
            name,
            config,
            revision=revision,
            local_files_only=not (may_write() and reaches_hub()),
        )
        return name, Path(file).parent.name
    except ImportError:
        raise UserError(
            f"{name} needs the Python package huggingface-hub, which is not installed. To install it:",
            "  pip install 'elo-exp[hf]'",
        ).mark_as_need("pip install 'elo-exp[hf]'") from None
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        default_reason = f"cannot be found on the hub ({first_error_line(error)})."
        reason = next(
            (_HUB_ERROR_REASONS[k] for k in kinds if k in _HUB_ERROR_REASONS),
            default_reason,
        )
    raise FileError(f"{name} (revision {revision}) {reason}").mark_as_need(
        f"the model {name}"
    )


@cache
def reaches_hub() -> bool:
    """Look once, since the hub's client retries for half a minute with each file."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of httpx or of requests, by its version
        return False
    return True


# Loaded


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What to load.

    model     a folder, or a name on the Hugging Face hub
    revision  branch, tag or commit of a name on the hub
    dtype     float32, bfloat16, float16; auto is float32 on a CPU and bfloat16 on an accelerator
    device    cuda, mps, cpu, or one of several GPUs, cuda:1; auto is the first of these present
    adapters  LoRA folders and hub names, each with its revision, merged in this order
    options   what else from_pretrained takes, as JSON
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    adapters: tuple[tuple[str, str | None], ...] = ()
    options: str = "{}"
    trust_remote_code: bool = False

    def load(self) -> CausalLM:
        """Load from folders and the hub's cache; only where something is absent, ask the hub.

        The hub's client asks about each file, which takes minutes where the hub cannot be reached.
        Raises UserError where model, adapter, package or device is absent, or memory is too small.
        """
        require_packages(self.model, "torch", "transformers", "peft", extra="hf")
        import torch
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        if not sys.stderr.isatty():
            transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        device = self.device
        if device == "auto":
            device = "mps" if torch.backends.mps.is_available() else "cpu"
            device = "cuda" if torch.cuda.is_available() else device
        logger.info("loading %s on %s", self.model, device)
        sources = [self.model, *(source for source, _ in self.adapters)]
        try:
            return self._load(device, local_files_only=True)
        except UserError:
            if all(Path(source).is_dir() for source in sources):
                raise
        return self._load(device, local_files_only=False)

    def _load(self, device: str, *, local_files_only: bool) -> CausalLM:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

        name, dtype = self.model, self.dtype
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        source = {
            "revision": self.revision,
            "trust_remote_code": self.trust_remote_code,
            "local_files_only": local_files_only,
        }
        with convert_library_errors(name):
            tokenizer = AutoTokenizer.from_pretrained(
                name, padding_side="left", **source
            )
            model_and_info: Any = AutoModelForCausalLM.from_pretrained(
                name,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below
                **source,
                **{"device_map": {"": device}, **json.loads(self.options)},
            )
        model, info = model_and_info
        if missing := sorted(info["missing_keys"]):
            raise FileError.bad_file(
                name,
                f"lacks {len(missing)} weights, such as {missing[0]}",
                "Check that all files are there and belong to the model in config.json.",
            )
        if mismatched := sorted(info["mismatched_keys"]):
            weight, shape, expected_shape = mismatched[0]
            raise FileError.bad_file(
                name,
                f"has {len(mismatched)} weights that do not fit config.json ({weight}: {list(shape)} instead of "
                f"{list(expected_shape)})",
                "Are all files of one model?",
            )
        if tokenizer.eos_token_id is None:
            raise FileError.bad_file(
                name,
                "has a tokenizer without an end token, so no answer would ever end",
                "Set eos_token in tokenizer_config.json.",
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        for adapter, revision in self.adapters:
            with convert_library_errors(adapter), warnings.catch_warnings():
                # a name that peft reads and transformers is about to drop
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is dep")
                for fault in ("Found missing adapter keys", "Merge lora module to"):
                    warnings.filterwarnings("error", fault)
                model = PeftModel.from_pretrained(
                    model,
                    adapter,
                    revision=revision,
                    torch_device=device,
                    local_files_only=local_files_only,
                ).merge_and_unload()
        ends = getattr(model.generation_config, "eos_token_id", None)
        end_ids = ends if isinstance(ends, list) else [ends]
        # The model's own end tokens, and none of the sampling that its authors recommend.
        model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            eos_token_id=sorted({*end_ids, tokenizer.eos_token_id} - {None}),
            pad_token_id=tokenizer.pad_token_id,
            do_sample=False,
        )
        return CausalLM(
            model=model.eval().requires_grad_(requires_grad=False),
            tokenizer=tokenizer,
            device=model.get_input_embeddings().weight.device,  # where its inputs go
            name=name,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalLM:
    """A model in evaluation mode without gradients, and its tokenizer, which pads on the left."""

    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    device: torch.device
    name: str

    @property
    def context_length(self) -> float:
        """Most tokens of a prompt and its answer; infinite where the configuration has none."""
        config = self.model.config.get_text_config()
        return getattr(config, "max_position_embeddings", None) or math.inf

    @property
    def end_ids(self) -> list[int]:
        """Ids of the tokens that end an answer."""
        return list(self.model.generation_config.eos_token_id)

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of each token's text."""
        return dict(self.tokenizer.get_vocab())

    @property
    def environment(self) -> dict[str, str]:
        """Device, dtype and library versions, which change rounding."""
        return {
            "device": str(self.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def bare_ids(self, text: str) -> list[int]:
        """Tokenise a text without a chat template."""
        return list(self.tokenizer(text)["input_ids"])

    def chat_ids(
        self,
        messages: Sequence[Any],
        template: str | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        """Tokenise a chat's messages and the opening of the assistant's.

        template   a Jinja text in place of the model's own
        variables  which it reads
        Raises ValueError, TypeError or TemplateError where there is none, or one that cannot take
        them.
        """
        check_template_variables(self.tokenizer.get_chat_template(template), variables)
        encoding = self.tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            add_generation_prompt=True,
            return_dict=True,
            **variables,
        )
        return list(encoding["input_ids"])

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Decode tokens, with or without the special ones."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=not special))

    def total_logprobs(self, rows: TokenRows, *, temperature: float) -> Iterator[float]:
        """Yield the log-probability of each answer under softmax(logits / temperature), in nats.

        rows  token ids of a prompt and of its answer
        An answer goes through the model in one pass, without other rows and without cached keys.
        """
        import torch

        for prompt_ids, ids in rows:
            with torch.inference_mode():
                logits = self.last_logits([[*prompt_ids, *ids]], len(ids) + 1)[0, :-1]
                if logits.device.type == "mps":  # which has no float64
                    logits = logits.cpu()
                tokens = torch.tensor(ids, device=logits.device)[:, None]
                total = 0.0
                for start in range(0, len(ids), _LOGPROB_BLOCK_ROWS):
                    block = slice(start, start + _LOGPROB_BLOCK_ROWS)
                    logprobs = (logits[block].double() / temperature).log_softmax(-1)
                    total += float(logprobs.gather(1, tokens[block]).sum())
            yield total

    def pad_rows(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return token ids, padded on the left, and attention mask, both (row, position)."""
        batch = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        batch = batch.to(self.device)
        return batch["input_ids"], batch["attention_mask"]

    def last_logits(self, rows: Sequence[Sequence[int]], n: int) -> Tensor:
        """Return the logits (row, n, vocabulary) after the last n tokens of each row."""
        ids, mask = self.pad_rows(rows)
        options = {
            "attention_mask": mask,
            "position_ids": mask_positions(mask),
            "logits_to_keep": n,
            "use_cache": False,
        }
        # The models of transformers differ in what they take.
        parameters = inspect.signature(self.model.forward).parameters
        options = {name: value for name, value in options.items() if name in parameters}
        logits: Tensor = self.model(input_ids=ids, **options).logits[:, -n:]
        return logits


def mask_positions(mask: Tensor) -> Tensor:
    """Return the positions (row, position) of tokens by their mask, 0 where they are padding."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory, which not every device has a class of errors for; cuBLAS calls it ALLOC_FAILED."""
    words = "out of memory|can't allocate memory|Invalid buffer size|ALLOC_FAILED"
    return isinstance(error, RuntimeError) and bool(re.search(words, str(error)))


@contextmanager
def convert_library_errors(name: str) -> Iterator[None]:
    """Turn whatever the libraries raise while they load into one line."""
    try:
        yield
    except Exception as error:
        error_class: type[UserError]
        if is_out_of_memory(error):
            error_class, reason = (
                UserError,
                (
                    "does not fit into the memory of its device. Use dtype=bfloat16, device=cpu or a smaller model."
                ),
            )
        elif "trust_remote_code" in str(error):
            error_class, reason = (
                SettingError,
                (
                    "has code of its own. Read it, and set trust_remote_code=true if it may run on this machine."
                ),
            )
        else:
            error_class, reason = (
                FileError,
                f"cannot be loaded ({first_error_line(error)}).",
            )
        raise error_class(f"{name} {reason}") from error
