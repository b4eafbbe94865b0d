"""Load causal language models of transformers: LoRA adapters merged, errors as one line.

torch, transformers and peft are imported by the functions that need them.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.models import TokenRows, check_variables, first_line, require_packages
from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# Of a name that peft reads and transformers is about to drop
PEFT_DEPRECATION = "`is_gradient_checkpointing` is deprecated"
_ROWS = 256  # positions whose distribution is held in float64 at a time


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
        places = [self.model, *(place for place, _ in self.adapters)]
        try:
            return self._load(device, local_files_only=True)
        except UserError:
            if all(Path(place).is_dir() for place in places):
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
        with library_errors(name):
            tokenizer = AutoTokenizer.from_pretrained(
                name, padding_side="left", **source
            )
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                name,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below
                **source,
                **{"device_map": {"": device}, **json.loads(self.options)},
            )
        model, info = loaded
        if missing := sorted(info["missing_keys"]):
            raise UserError(
                f"{name}: {len(missing)} weights are missing, such as {missing[0]}, and would be "
                "random. Check that all files are there and belong to the model in config.json."
            )
        if unlike := sorted(info["mismatched_keys"]):
            weight, found, expected = unlike[0]
            raise UserError(
                f"{name}: found {len(unlike)} weights of another shape than config.json has, such as "
                f"{weight} of {list(found)}. Expected {list(expected)}. Check that all files belong to "
                "one model."
            )
        if tokenizer.eos_token_id is None:
            raise UserError(
                f"{name}: its tokenizer has no end token, so no answer would ever end."
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        for place, revision in self.adapters:
            with library_errors(place), warnings.catch_warnings():
                warnings.filterwarnings("ignore", PEFT_DEPRECATION)
                for fault in ("Found missing adapter keys", "Merge lora module to"):
                    warnings.filterwarnings("error", fault)
                model = PeftModel.from_pretrained(
                    model,
                    place,
                    revision=revision,
                    torch_device=device,
                    local_files_only=local_files_only,
                ).merge_and_unload()
        ends = getattr(model.generation_config, "eos_token_id", None)
        known = ends if isinstance(ends, list) else [ends]
        # The model's own end tokens, and none of the sampling that its authors recommend.
        model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            eos_token_id=sorted({*known, tokenizer.eos_token_id} - {None}),
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
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its answer; None where the configuration has none."""
        config = self.model.config.get_text_config()
        return getattr(config, "max_position_embeddings", None)

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
        check_variables(self.tokenizer.get_chat_template(template), variables)
        encoded = self.tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            add_generation_prompt=True,
            return_dict=True,
            **variables,
        )
        return list(encoded["input_ids"])

    def text(self, ids: Sequence[int], *, special: bool = False) -> str:
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
                parts = zip(
                    torch.split(logits, _ROWS), torch.split(tokens, _ROWS), strict=True
                )
                for some, chosen in parts:
                    logprobs = (some.double() / temperature).log_softmax(-1)
                    total += float(logprobs.gather(1, chosen).sum())
            yield total

    def padded(
        self, rows: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids, padded on the left, and attention mask, both (row, position)."""
        batch = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        batch = batch.to(self.device)
        return batch["input_ids"], batch["attention_mask"]

    def last_logits(self, rows: Sequence[Sequence[int]], n: int) -> torch.Tensor:
        """Return the logits (row, n, vocabulary) after the last n tokens of each row."""
        ids, mask = self.padded(rows)
        options = {
            "attention_mask": mask,
            "position_ids": positions_of(mask),
            "logits_to_keep": n,
            "use_cache": False,
        }
        # The models of transformers differ in what they take.
        known = inspect.signature(self.model.forward).parameters
        options = {name: value for name, value in options.items() if name in known}
        logits: torch.Tensor = self.model(input_ids=ids, **options).logits[:, -n:]
        return logits


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """Return the positions (row, position) of tokens by their mask, 0 where they are padding."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory, which not every device has a class of errors for."""
    words = "out of memory|can't allocate memory|Invalid buffer size"
    return isinstance(error, RuntimeError) and bool(re.search(words, str(error)))


@contextmanager
def library_errors(name: str) -> Iterator[None]:
    """Turn whatever the libraries raise while they load into one line."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            reason = (
                "does not fit into the memory of its device. Use dtype=bfloat16, device=cpu or a "
                "smaller model."
            )
        elif "trust_remote_code" in str(error):
            reason = (
                "brings code of its own. Read it, and set trust_remote_code=true if it may run on "
                "this machine."
            )
        else:
            reason = f"cannot be loaded ({first_line(error)})."
        raise UserError(f"{name}: {reason}") from error
