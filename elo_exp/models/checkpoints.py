"""Identify a checkpoint without loading it: a hub name by its commit, a folder by its contents.

torch is not needed: a machine without it finds the answers that another has stored.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.files import open_text, sha256, write_json
from elo_exp.models import tiny
from elo_exp.models.causal_lm import CausalLM, Checkpoint, chat_ids, split_revision
from elo_exp.records import UserError
from elo_exp.types import Device, DType

logger = logging.getLogger(__name__)

_COMMIT = re.compile("[0-9a-f]{40}")
# The files that transformers loads, by suffix and by name.
_SUFFIXES = {".json", ".jinja", ".model", ".tiktoken", ".safetensors", ".bin", ".py"}
_NAMES = {"merges.txt", "vocab.txt"}
_LARGE = 1 << 20  # bytes; hashes of larger files are cached
_MODEL, _ADAPTER = "config.json", "adapter_config.json"


@dataclass(kw_only=True)
class TemplateSettings:
    """The chat template of an entrant or a judge with weights, and the cache of their hashes."""

    chat_template: str | None
    cache_dir: str

    @property
    def input_files(self) -> Mapping[str, Path]:
        return template_files(self.chat_template)

    @functools.cached_property
    def template(self) -> str | None:
        """The text of the chat template."""
        return read_template(self.chat_template)


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

    def _adapters(self) -> Sequence[str]:
        return ()

    def check(self) -> None:
        """Raise UserError for a template's file that is absent."""
        _ = self.template

    @property
    def weight_files(self) -> Sequence[Path]:
        return weight_files(self.model, self._adapters())

    @functools.cached_property
    def weights(self) -> Checkpoint:
        """The checkpoint at its commit. Raises UserError for one that is nowhere."""
        checkpoint = Checkpoint(
            model=self.model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(self._adapters()),
            trust_remote_code=self.trust_remote_code,
        )
        return pin(tiny.build(checkpoint, Path(self.cache_dir)))

    @functools.cached_property
    def weights_key(self) -> Mapping[str, Any]:
        """What the weights are, for cache keys."""
        return identity(self.weights, Path(self.cache_dir))

    def chat_ids(self, lm: CausalLM, text: str, system_prompt: str | None) -> list[int]:
        return chat_ids(
            lm, text, system_prompt=system_prompt, chat_template=self.template
        )


def pin(checkpoint: Checkpoint) -> Checkpoint:
    """Replace folders by absolute paths and hub names by their commits.

    What is loaded is then what was identified, even if a branch moves on meanwhile. Asks the hub,
    or in its offline mode its cache. Raises UserError for what is in neither.
    """
    model, revision = _pin(checkpoint.model, checkpoint.revision, _MODEL)
    adapters = []
    for adapter in checkpoint.adapters:
        name, commit = _pin(*split_revision(adapter), _ADAPTER)
        adapters.append(f"{name}@{commit}" if commit else name)
    return dataclasses.replace(
        checkpoint, model=model, revision=revision, adapters=tuple(adapters)
    )


def identity(checkpoint: Checkpoint, cache_dir: Path) -> dict[str, Any]:
    """Identify the weights of a pinned checkpoint, as JSON.

    Hub names have their commits, folders the SHA-256 of each file that is loaded, wherever they
    are. `cache_dir` caches the hashes of large files by path, size and time of change.
    """
    return {
        "model": _identity(checkpoint.model, checkpoint.revision, cache_dir),
        "adapters": [
            _identity(*split_revision(adapter), cache_dir)
            for adapter in checkpoint.adapters
        ],
        "trust_remote_code": checkpoint.trust_remote_code,
    }


def weight_files(model: str, adapters: Sequence[str] = ()) -> list[Path]:
    """List the files that are loaded from folders; none of a hub name."""
    names = (model, *(split_revision(adapter)[0] for adapter in adapters))
    folders = [Path(name).expanduser() for name in names]
    return [path for folder in folders if folder.is_dir() for path in _files(folder)]


def template_files(template: str | None) -> dict[str, Path]:
    """The .jinja file of a chat template that is the name of one."""
    is_file = template is not None and template.endswith(".jinja")
    return {"template": Path(str(template)).expanduser()} if is_file else {}


def read_template(template: str | None) -> str | None:
    """Read a chat template that is the name of a .jinja file; return any other as it is."""
    for path in template_files(template).values():
        with open_text(path) as file:
            return file.read()
    return template


def hashes(paths: Sequence[Path], cache_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path. Raises OSError for one that is absent."""
    cache = cache_dir / "file_hashes.json"
    marks = {path: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
    large = {path for path in paths if marks[path][0] >= _LARGE}
    known = _read_cache(cache)
    unread = [
        p for p in paths if p not in large or known.get(str(p), ())[:2] != marks[p]
    ]
    new = large.intersection(unread)
    if new:
        n_bytes = sum(marks[path][0] for path in new)
        logger.info("hashing %.1f GB of %s, once", n_bytes / 1e9, paths[0].parent)
    with ThreadPoolExecutor() as pool:
        read = dict(zip(unread, pool.map(sha256, unread), strict=True))
    if new:
        added = {str(path): [*marks[path], read[path]] for path in new}
        write_json(cache, {**_read_cache(cache), **added})
    return {
        str(path): read[path] if path in read else known[str(path)][2] for path in paths
    }


def _read_cache(cache: Path) -> Mapping[str, Any]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # an unreadable cache is written anew
        return {}
    return known if isinstance(known, dict) else {}


def _pin(name: str, revision: str | None, config: str) -> tuple[str, str | None]:
    """Absolute path of a folder, or hub name and commit. `config` tells a model from an adapter."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise UserError(f"{name}: no such folder. Check the path.")
        return name, _commit(name, revision or "main", config)
    if revision is not None:
        raise UserError(
            f"{name}: is a folder, which has no revision (found {revision!r}). Leave it out."
        )
    if not (folder / config).is_file():
        hint = ""
        if config == _MODEL and (folder / _ADAPTER).is_file():
            hint = (
                " It holds a LoRA adapter: set model to what it was trained on, and "
                "adapters=[...] to this folder."
            )
        raise UserError(
            f"{name}: holds no {config}. Expected a folder as save_pretrained writes it.{hint}"
        )
    return str(folder.resolve()), None


def _commit(name: str, revision: str, config: str) -> str:
    """Commit of a branch or tag: the folder of the hub's cache that the config is stored in."""
    if _COMMIT.fullmatch(revision):
        return revision
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError:
        raise UserError(
            f"{name}: needs huggingface-hub, not installed: pip install 'elo-exp[hf]'."
        ) from None
    try:
        path = hf_hub_download(
            name, config, revision=revision, local_files_only=not reaches_hub()
        )
        return Path(path).parent.name
    except errors.GatedRepoError:
        reason = "is gated. Accept its terms on its page of the hub, and log in: hf auth login."
    except errors.RepositoryNotFoundError:
        reason = (
            "is no folder here, and not on the hub. Check the name; for a private one log in: hf "
            "auth login."
        )
    except errors.RevisionNotFoundError:
        reason = "the hub has no such revision. Expected a branch, tag or commit of it."
    except errors.LocalEntryNotFoundError:
        reason = (
            "is no folder here and not in the hub's cache, and the hub cannot be reached or "
            "HF_HUB_OFFLINE is set. Download it on a machine with a network, and give its folder "
            "in place of the name."
        )
    except errors.EntryNotFoundError:
        reason = f"has no {config} on the hub." + (
            " Is it an adapter?" if config == _MODEL else ""
        )
    except (errors.HFValidationError, errors.HfHubHTTPError, OSError) as error:
        reason = f"cannot be found on the hub ({str(error).splitlines()[0]})."
    raise UserError(f"{name} (revision {revision}): {reason}")


@functools.cache
def reaches_hub() -> bool:
    """Look once, since the hub's client retries for half a minute with each file."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # of httpx or of requests, by its version
        return False
    return True


def _identity(place: str, commit: str | None, cache_dir: Path) -> dict[str, Any]:
    if commit:
        return {"hub": place, "commit": commit}
    digests = hashes(_files(Path(place)), cache_dir)
    return {"files": {Path(path).name: digest for path, digest in digests.items()}}


def _files(folder: Path) -> list[Path]:
    """Files that loading reads; of weights in both formats, safetensors."""
    known = [
        p for p in sorted(folder.iterdir()) if p.suffix in _SUFFIXES or p.name in _NAMES
    ]
    safe = any(path.suffix == ".safetensors" for path in known)
    return [
        path
        for path in known
        if path.is_file() and not (safe and path.suffix == ".bin")
    ]
