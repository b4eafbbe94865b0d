"""What a checkpoint is, told without loading it: the commit of a name on the Hugging Face hub, a folder's content.

torch is not needed for this: a machine without it finds the answers that another has stored.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from elo_exp.files import open_text, sha256, write_json
from elo_exp.models.causal_lm import Checkpoint, name_and_revision
from elo_exp.records import UserError

logger = logging.getLogger(__name__)

_COMMIT = re.compile("[0-9a-f]{40}")
_READ = {
    ".json",
    ".jinja",
    ".model",
    ".tiktoken",
    ".safetensors",
    ".bin",
    ".py",
}  # files that loading reads, by ending
_READ_NAMES = {"merges.txt", "vocab.txt"}
_LARGE = 1 << 20  # bytes; the hash of a larger file is remembered
_MODEL, _ADAPTER = "config.json", "adapter_config.json"


def pinned(checkpoint: Checkpoint) -> Checkpoint:
    """The same with folders as absolute paths and names of the hub at their commits, so that what is loaded is what
    was asked about, also where a branch moves on meanwhile.

    Asks the hub; where it cannot be reached, or in its offline mode, takes what its cache on this machine holds.
    Raises UserError for what is in neither.
    """
    model, revision = _pin(checkpoint.model, checkpoint.revision, _MODEL)
    places = []
    for adapter in checkpoint.adapters:
        place, commit = _pin(*name_and_revision(adapter), _ADAPTER)
        places.append(f"{place}@{commit}" if commit else place)
    return dataclasses.replace(checkpoint, model=model, revision=revision, adapters=tuple(places))


def identity(checkpoint: Checkpoint, cache_dir: Path) -> dict[str, Any]:
    """What the weights of a pinned checkpoint are, as JSON: names of the hub with their commits, folders by the SHA-256
    of each file that loading reads, wherever they stand.

    Large files are read once: their hashes are remembered in `cache_dir`, by path, size and time of change.
    """
    return {
        "model": _identity(checkpoint.model, checkpoint.revision, cache_dir),
        "adapters": [
            _identity(*name_and_revision(adapter), cache_dir) for adapter in checkpoint.adapters
        ],
        "trust_remote_code": checkpoint.trust_remote_code,
    }


def file_identity(path: Path, cache_dir: Path) -> str:
    """The SHA-256 of a model that is one file, remembered in the same place."""
    return hashes([path], cache_dir)[str(path)]


def weight_files(model: str, adapters: Sequence[str] = ()) -> list[Path]:
    """The files that loading reads of a model and of adapters that are folders; none of a name of the hub."""
    folders = [
        Path(name).expanduser()
        for name in (model, *(name_and_revision(adapter)[0] for adapter in adapters))
    ]
    return [path for folder in folders if folder.is_dir() for path in _files(folder)]


def template_files(template: str | None) -> dict[str, Path]:
    """The .jinja file that a chat template may be the name of."""
    return (
        {"template": Path(template).expanduser()}
        if template is not None and template.endswith(".jinja")
        else {}
    )


def read_template(template: str | None) -> str | None:
    """A chat template as chat_ids takes it, where it may also be the name of a .jinja file: what that holds."""
    for path in template_files(template).values():
        with open_text(path) as file:
            return file.read()
    return template


def _pin(name: str, revision: str | None, config: str) -> tuple[str, str | None]:
    """A folder as its absolute path, a name of the hub with its commit. `config`: the file that shows what it is."""
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
        other = _ADAPTER if config == _MODEL else _MODEL
        hint = " It holds a LoRA adapter: set model to what it was trained on, and adapters=[...] to this folder."
        raise UserError(
            f"{name}: holds no {config}. Expected a folder as save_pretrained writes it."
            + (hint if other == _ADAPTER and (folder / other).is_file() else "")
        )
    return str(folder.resolve()), None


def _commit(name: str, revision: str, config: str) -> str:
    """The commit of a branch or tag of the hub: the one that the hub's own download puts this file under."""
    if _COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import errors, hf_hub_download

    at = f"{name} (revision {revision})"
    try:
        return Path(hf_hub_download(name, config, revision=revision)).parent.name
    except errors.GatedRepoError:
        reason = "is gated. Accept its terms on its page of the hub, and log in: hf auth login."
    except errors.RepositoryNotFoundError:
        reason = "is no folder here, and not on the hub. Check the name; for a private one log in: hf auth login."
    except errors.RevisionNotFoundError:
        reason = "the hub has no such revision. Expected a branch, tag or commit of it."
    except errors.LocalEntryNotFoundError:
        reason = (
            "is no folder here, the hub cannot be reached or is not to be asked (HF_HUB_OFFLINE), and its cache does "
            "not hold it. Download it on a machine with network, and set its folder in place of the name."
        )
    except errors.EntryNotFoundError:
        reason = f"has no {config} on the hub." + (" Is it an adapter?" if config == _MODEL else "")
    except (errors.HFValidationError, errors.HfHubHTTPError, OSError) as error:
        reason = f"cannot be found on the hub ({str(error).splitlines()[0]})."
    raise UserError(f"{at}: {reason}")


def _identity(place: str, commit: str | None, cache_dir: Path) -> dict[str, Any]:
    if commit:
        return {"hub": place, "commit": commit}
    return {
        "files": {
            Path(path).name: digest
            for path, digest in hashes(_files(Path(place)), cache_dir).items()
        }
    }


def _files(folder: Path) -> list[Path]:
    """What loading reads of a folder; of weights in both formats, the one that is preferred."""
    found = [p for p in sorted(folder.iterdir()) if p.suffix in _READ or p.name in _READ_NAMES]
    safe = any(path.suffix == ".safetensors" for path in found)
    return [path for path in found if path.is_file() and not (safe and path.suffix == ".bin")]


def hashes(paths: Sequence[Path], cache_dir: Path) -> dict[str, str]:
    """The SHA-256 of each file by its path. Raises OSError for one that is not there."""
    memory = cache_dir / "file_hashes.json"
    marks = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}
    known = _remembered(memory)
    unread = [p for p in paths if marks[p][0] < _LARGE or known.get(str(p), ())[:2] != [*marks[p]]]
    if n_bytes := sum(marks[path][0] for path in unread if marks[path][0] >= _LARGE):
        logger.info(
            "reading %.1f GB of %s once, to know the weights again", n_bytes / 1e9, paths[0].parent
        )
    with ThreadPoolExecutor() as pool:
        read = dict(zip(unread, pool.map(sha256, unread), strict=True))
    if n_bytes:
        new = {
            str(path): [*marks[path], digest]
            for path, digest in read.items()
            if marks[path][0] >= _LARGE
        }
        write_json(memory, {**_remembered(memory), **new})
    return {str(path): read[path] if path in read else known[str(path)][2] for path in paths}


def _remembered(memory: Path) -> Mapping[str, Any]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # what is forgotten is read again
        return {}
    return known if isinstance(known, dict) else {}
