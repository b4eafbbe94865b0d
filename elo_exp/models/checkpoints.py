"""Identify a checkpoint without loading it: a hub name by its commit, a folder by its contents.

torch is not needed: a machine without it finds the answers that another has stored.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from elo_exp.files import open_text, sha256, write_json
from elo_exp.models import LanguageModel, first_line, tiny
from elo_exp.models.causal_lm import Checkpoint
from elo_exp.records import UserError
from elo_exp.types import Device, DType

logger = logging.getLogger(__name__)

_COMMIT = re.compile("[0-9a-f]{40}")
# The files that transformers loads, by suffix and by name.
_SUFFIXES = {".json", ".jinja", ".model", ".tiktoken", ".safetensors", ".bin", ".py"}
_NAMES = {"merges.txt", "vocab.txt"}
_PLACEMENT = {  # options of transformers and of vLLM that change no answer
    "device_map", "max_memory", "offload_folder", "attn_implementation",
    "tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization",
    "max_num_seqs", "enforce_eager",
}  # fmt: skip
_LARGE = 1 << 20  # bytes; hashes of larger files are cached
_NO_TEMPLATE = "none"  # the chat template that sends the prompt as it is
_REASONS = {  # by the class of an error of the hub's client, or the first of its bases
    "GatedRepoError": "is gated. Accept its terms on its page of the hub, and log in: hf auth "
    "login.",
    "HFValidationError": "is no folder here, and no name on the hub. Check the path.",
    "RepositoryNotFoundError": "is no folder here, and not on the hub. Check the name; for a "
    "private one log in: hf auth login.",
    "RevisionNotFoundError": "the hub has no such revision. Expected a branch, tag or commit.",
    "LocalEntryNotFoundError": "is no folder here and not in the hub's cache, and the hub cannot "
    "be reached or HF_HUB_OFFLINE is set. Download it on a machine with a network, and give its "
    "folder in place of the name.",
    "EntryNotFoundError": "lacks a file on the hub. Expected config.json of a model, "
    "adapter_config.json of an adapter.",
}


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
            with open_text(path) as file:
                return file.read()
        return self.chat_template

    @property
    def model_key(self) -> dict[str, Any]:
        """What of these settings changes what the model says, for cache keys."""
        key = {"chat_template": self.template}
        variables = self.chat_template_kwargs
        return {**key, "chat_template_kwargs": variables} if variables else key

    def check(self) -> None:
        """Raise UserError for a template's file that is absent."""
        _ = self.template

    def chat_ids(
        self, lm: LanguageModel, text: str, system_prompt: str | None
    ) -> list[int]:
        """Tokenise a prompt: system message, the prompt as user message, the assistant's opening.

        Raises UserError where there is no chat template, or one that cannot take these messages or
        does not read a variable of chat_template_kwargs.
        """
        from jinja2 import TemplateError

        variables = self.chat_template_kwargs
        if self.template == _NO_TEMPLATE and not variables:
            return lm.bare_ids("\n\n".join(filter(None, [system_prompt, text])))
        messages = [{"role": "user", "content": text}]
        if system_prompt:
            messages.insert(0, {"role": "system", "content": system_prompt})
        try:
            return lm.chat_ids(messages, self.template, variables)
        except (TemplateError, ValueError, TypeError) as error:
            raise UserError(
                f"{lm.name}: its chat template cannot take these messages ({first_line(error)}). "
                f"Give another with chat_template=FILE.jinja, or chat_template={_NO_TEMPLATE} to "
                "send the prompt as it is, or leave system_prompt and chat_template_kwargs out."
            ) from None


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
        return [p for folder in folders if folder.is_dir() for p in loaded_from(folder)]

    @cached_property
    def weights(self) -> Checkpoint:
        """The checkpoint, with absolute paths of folders and commits of hub names.

        What is loaded is then what was identified, even if a branch moves on meanwhile. Asks the
        hub, or in its offline mode its cache. Raises UserError for what is in neither.
        """
        name = tiny.build(self.model, Path(self.cache_dir))
        model, revision = _pin(name, self.revision, "config.json")
        adapters = map(split_revision, getattr(self, "adapters", ()))
        return Checkpoint(
            model=model,
            revision=revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(_pin(*each, "adapter_config.json") for each in adapters),
            options=json.dumps(getattr(self, "load_kwargs", {})),
            trust_remote_code=self.trust_remote_code,
        )

    @property
    def model_key(self) -> dict[str, Any]:
        return {"weights": self.weights_key, "dtype": self.dtype, **super().model_key}

    @cached_property
    def weights_key(self) -> dict[str, Any]:
        """What the weights are, for cache keys.

        Hub names have their commits, folders the SHA-256 of each file that is loaded, wherever they
        are. Of the options there are those that change the weights, and not where they go.
        """
        known, options = self.weights, getattr(self, "load_kwargs", {})
        changes = {name: options[name] for name in options.keys() - _PLACEMENT}
        keys: list[dict[str, Any]] = []
        for place, commit in ((known.model, known.revision), *known.adapters):
            if commit:
                keys.append({"hub": place, "commit": commit})
                continue
            digests = hashes(loaded_from(Path(place)), Path(self.cache_dir))
            keys.append({"files": {Path(p).name: digests[p] for p in digests}})
        return {
            "model": keys[0],
            "adapters": keys[1:],
            "trust_remote_code": self.trust_remote_code,
            **({"load_kwargs": changes} if changes else {}),
        }


def split_revision(adapter: str) -> tuple[str, str | None]:
    """Split NAME@REVISION; a folder has no revision, whatever its name is."""
    name, at, revision = adapter.rpartition("@")
    if not at or Path(adapter).expanduser().is_dir():
        return adapter, None
    return name, revision


def loaded_from(folder: Path) -> list[Path]:
    """Return the files that loading reads; of weights in both formats, safetensors."""
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    is_safe = any(path.suffix == ".safetensors" for path in paths)
    known = _SUFFIXES - {".bin"} if is_safe else _SUFFIXES
    return [path for path in paths if path.suffix in known or path.name in _NAMES]


def hashes(paths: Sequence[Path], cache_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path. Raises OSError for one that is absent.

    `cache_dir` caches those of large files by path, size and time of change.
    """
    file = cache_dir / "file_hashes.json"
    found = {}
    for path in paths:
        stat, name = path.stat(), str(path)
        if stat.st_size < _LARGE:
            found[name] = sha256(path)
            continue
        try:
            cached = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # an unreadable cache is written anew
            cached = {}
        mark = [stat.st_size, stat.st_mtime_ns]
        if cached.get(name, [])[:2] != mark:
            logger.info("hashing %.1f GB of %s, once", stat.st_size / 1e9, path)
            cached[name] = [*mark, sha256(path)]
            write_json(file, cached)
        found[name] = cached[name][2]
    return found


def _pin(name: str, revision: str | None, config: str) -> tuple[str, str | None]:
    """Return the absolute path of a folder, or a hub name and the commit of its branch or tag: the
    folder of the hub's cache that the config is stored in. `config` tells a model from an adapter.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise UserError(
                f"{name}: is a folder, which has no revision (found {revision!r}). Leave it out."
            )
        if not (folder / config).is_file():
            raise UserError(
                f"{name}: holds no {config}. Expected a folder as save_pretrained writes it; one "
                "of a LoRA adapter goes into adapters=[...], and what it was trained on into model."
            )
        return str(folder.resolve()), None
    revision = revision or "main"
    if _COMMIT.fullmatch(revision):
        return name, revision
    try:
        from huggingface_hub import hf_hub_download

        file = hf_hub_download(
            name, config, revision=revision, local_files_only=not reaches_hub()
        )
        return name, Path(file).parent.name
    except ImportError:
        reason = "needs huggingface-hub, not installed: pip install 'elo-exp[hf]'."
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        unknown = f"cannot be found on the hub ({first_line(error)})."
        reason = next((_REASONS[k] for k in kinds if k in _REASONS), unknown)
    raise UserError(f"{name} (revision {revision}): {reason}")


@cache
def reaches_hub() -> bool:
    """Look once, since the hub's client retries for half a minute with each file."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of httpx or of requests, by its version
        return False
    return True
