"""The LoRA updates of the heads: where their files are, and what is in them.

    security_dir/manifest.json                    {"config": {"num_shards": 9, "heads_depth": 3, "lora_r": 8, ...}}
    security_dir/shard_0_lora.pt ... shard_8_lora.pt          one file a head
    robustness_dir/shard_0_lora.pt ...                        the final checkpoint (-1)
    robustness_dir/shard_0/**/checkpoint_step_200*.pt ...     the one of step 200
    uncertainty_path                                          one file

A file is `.safetensors`, or `.pt`, `.pth` or `.bin` with a state dict of tensors, which may stand under
`head_state_dict`. It is read without running code from it. docs/poe.md describes the format.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from elo_exp.files import open_text, sha256
from elo_exp.records import UserError, fingerprint

if TYPE_CHECKING:
    import torch

Update: TypeAlias = (
    "Mapping[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]"  # of one head; read() says which
)

FINAL = -1  # of the checkpoints of a training run, the last
DEPTH = 3  # last layers of the model that each head has to itself, where a manifest does not say
PROJECTIONS = {
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
}  # OLMo's names, and those of transformers
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_TENSOR = re.compile(
    r"(?:^|\.)(blocks|layers)\.(\d+)\.(?:.+\.)?(\w+)\.lora_([AB])(?:\.\w+)?\.weight$"
)


@dataclass(frozen=True, kw_only=True)
class AdapterFile:
    """One file. `rank` is what a manifest says of it; where `alpha` is None, it is twice the rank."""

    path: Path
    rank: int | None = None
    alpha: float | None = None


@dataclass(frozen=True, kw_only=True)
class HeadFiles:
    """Every language head's files, in the order in which they were trained; the uncertainty head's."""

    depth: int
    heads: tuple[tuple[AdapterFile, ...], ...]
    uncertainty: AdapterFile | None

    @property
    def paths(self) -> list[Path]:
        return [file.path for some in self._all for file in some]

    def digest(self) -> str:
        """A name of all that is in the files and of how it is scaled."""
        return fingerprint(
            [self.depth, [[[sha256(f.path), f.alpha] for f in some] for some in self._all]]
        )

    @property
    def _all(self) -> list[Sequence[AdapterFile]]:
        return [*self.heads, [self.uncertainty] if self.uncertainty else []]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Of the model that the heads belong to: its layers, and by projection (size in, size out)."""

    n_layers: int
    depth: int
    sizes: Mapping[str, tuple[int, int]]


def find(
    *,
    security_dir: str,
    robustness_dir: str | None,
    rob_checkpoint: int | None,
    uncertainty_path: str | None,
) -> HeadFiles:
    """The files of every head, all of which are there. Raises UserError, by the name of the setting, where one is not.

    rob_checkpoint  which checkpoint of `robustness_dir` follows the security update: a training step, or -1 for the
                    final one; None for no robustness update
    """
    if rob_checkpoint is not None and robustness_dir is None:
        raise UserError(
            f"robustness_dir: found nothing, and rob_checkpoint={rob_checkpoint}. Expected the folder of the robustness"
            " adapters (ELO_EXP_ROBUSTNESS_DIR), or rob_checkpoint=null."
        )
    folder = Path(security_dir).expanduser()
    manifest = _manifest(folder, needed="security_dir")
    n_heads = _whole(manifest, "num_shards", folder)
    depth = _whole(manifest, "heads_depth", folder, default=DEPTH)
    security = [_final(folder, shard, "security_dir") for shard in range(n_heads)]
    heads = [[_described(path, manifest)] for path in security]
    if rob_checkpoint is not None and robustness_dir is not None:
        later = Path(robustness_dir).expanduser()
        manifest = _manifest(later)
        for shard, files in enumerate(heads):
            files.append(_described(_checkpoint(later, shard, rob_checkpoint), manifest))
    uncertainty = (
        None if uncertainty_path is None else _lone_file(Path(uncertainty_path).expanduser())
    )
    return HeadFiles(depth=depth, heads=tuple(map(tuple, heads)), uncertainty=uncertainty)


def read(files: Sequence[AdapterFile], geometry: Geometry) -> Update:
    """The sum of the files' updates, by head layer (0 is the first of the head) and projection.

    An update of a (size out, size in) matrix is up.T @ down: down (rank, size in), up (rank, size out), scaled by
    alpha / rank. Updates are added by putting their ranks together.
    Raises UserError for a file that does not fit the model.
    """
    import torch

    parts: dict[tuple[int, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for file in files:
        for place, factors in _factors(file, geometry).items():
            parts.setdefault(place, []).append(factors)
    return {
        place: (torch.cat([down for down, _ in some]), torch.cat([up for _, up in some]))
        for place, some in parts.items()
    }


def _factors(
    file: AdapterFile, geometry: Geometry
) -> dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]:
    halves: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
    for name, tensor in _tensors(file.path).items():
        if "lora_" not in name:
            continue  # a whole head's state dict holds the weights it was trained on as well
        layer, projection, half = _place(file.path, name, geometry)
        halves.setdefault((layer, projection), {})[half] = tensor.float()
    if not halves:
        raise UserError(
            f"{file.path}: holds no tensor named ...lora_A.weight. Expected the LoRA update of a head."
        )
    return {place: _pair(file, place, pair, geometry) for place, pair in sorted(halves.items())}


def _place(path: Path, name: str, geometry: Geometry) -> tuple[int, str, str]:
    """Head layer, projection and half (A or B). `blocks` count from the head's first layer, `layers` the model's."""
    match = _TENSOR.search(name)
    projection = "" if match is None else PROJECTIONS.get(match[3], match[3])
    if match is None or projection not in geometry.sizes:
        raise UserError(
            f"{path}: found an update {name!r}. Expected updates of {', '.join(PROJECTIONS)} (or "
            f"{', '.join(PROJECTIONS.values())}) alone, in blocks.N or layers.N."
        )
    first = 0 if match[1] == "blocks" else geometry.n_layers - geometry.depth
    layer = int(match[2]) - first
    if not 0 <= layer < geometry.depth:
        raise UserError(
            f"{path}: found an update of {match[1]}.{match[2]}. Expected {match[1]} {first} to "
            f"{first + geometry.depth - 1}: the last {geometry.depth} of {geometry.n_layers} layers are the heads'."
        )
    return layer, projection, match[4]


def _pair(
    file: AdapterFile,
    place: tuple[int, str],
    halves: Mapping[str, torch.Tensor],
    geometry: Geometry,
) -> tuple[torch.Tensor, torch.Tensor]:
    where = f"{file.path}: head layer {place[0]}, {place[1]}"
    if set(halves) != {"A", "B"}:
        raise UserError(f"{where}: found only lora_{''.join(halves)}. Expected lora_A and lora_B.")
    down, up = halves["A"], halves["B"]
    size_in, size_out = geometry.sizes[place[1]]
    rank = len(down)
    if down.shape != (rank, size_in) or up.shape != (size_out, rank):
        raise UserError(
            f"{where}: found lora_A {_shape(down)}, lora_B {_shape(up)}. Expected rank x {size_in} and {size_out} x "
            "rank, as the model's layers are. Is it another model's adapter?"
        )
    if file.rank not in (None, rank):
        raise UserError(
            f"{where}: found rank {rank}. Expected {file.rank}, as lora_r of manifest.json says."
        )
    alpha = 2 * rank if file.alpha is None else file.alpha
    return down, up.T * (alpha / rank)


def _shape(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """A file's state dict. torch files are unpickled as tensors and plain containers only."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except pickle.UnpicklingError:
        raise UserError(
            f"{path}: refused, because it holds more than tensors, and reading that would run its code. Save its "
            "state dict alone, as .safetensors or with torch.save."
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: cannot be read ({reason}). Expected a state dict of tensors."
        ) from None
    state = state.get("head_state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise UserError(f"{path}: found no state dict. Expected tensors by name.")
    return state


def _final(folder: Path, shard: int, setting: str) -> Path:
    found = _with_suffix(folder, f"shard_{shard}_lora")
    if found is None:
        raise UserError(
            f"{setting}: found no shard_{shard}_lora{{{','.join(_SUFFIXES)}}} in {folder}. Check the path."
        )
    return found


def _checkpoint(folder: Path, shard: int, step: int) -> Path:
    if step == FINAL:
        return _final(folder, shard, "robustness_dir")
    kept = (
        path
        for path in sorted((folder / f"shard_{shard}").rglob("checkpoint_step_*"))
        if path.suffix in _SUFFIXES
    )
    steps: dict[int, list[Path]] = {}
    for path in kept:
        if number := re.match(r"checkpoint_step_(\d+)(?!\d)", path.name):
            steps.setdefault(int(number[1]), []).append(path)
    found = steps.get(step, [])
    if not found:
        has = (
            f"steps {', '.join(map(str, sorted(steps)))}" if steps else "no checkpoint_step_N file"
        )
        where = folder / f"shard_{shard}"
        raise UserError(
            f"rob_checkpoint: found {step}; {where} has {has}. Expected one of them, or -1."
        )
    if len(found) > 1:
        raise UserError(
            f"rob_checkpoint: step {step} is both {found[0]} and {found[1]}. Keep one of them there."
        )
    return found[0]


def _with_suffix(folder: Path, stem: str) -> Path | None:
    return next(
        (path for path in (folder / f"{stem}{suffix}" for suffix in _SUFFIXES) if path.is_file()),
        None,
    )


def _lone_file(path: Path) -> AdapterFile:
    if not path.is_file() or path.suffix not in _SUFFIXES:
        raise UserError(
            f"uncertainty_path: found no file {path}. Expected one that ends in {', '.join(_SUFFIXES)}."
        )
    return _described(path, _manifest(path.parent))


def _described(path: Path, manifest: Mapping[str, Any]) -> AdapterFile:
    rank, alpha = manifest.get("lora_r"), manifest.get("lora_alpha")
    return AdapterFile(path=path, rank=rank, alpha=alpha)


def _manifest(folder: Path, *, needed: str | None = None) -> Mapping[str, Any]:
    """The `config` of a folder's manifest.json; nothing where there is none and none is needed."""
    path = folder / "manifest.json"
    if not path.is_file():
        if needed:
            raise UserError(
                f"{needed}: found no manifest.json in {folder}. Expected one that counts the heads."
            )
        return {}
    try:
        with open_text(path) as file:
            config = json.load(file)["config"]
    except (ValueError, KeyError, TypeError):
        config = None
    if not isinstance(config, dict):
        raise UserError(
            f'{path}: found no settings. Expected {{"config": {{"num_shards": 9, ...}}}}.'
        )
    for name in ("lora_r", "lora_alpha"):
        if config.get(name) is not None and not (
            isinstance(config[name], int | float) and config[name] > 0
        ):
            raise UserError(f"{path}: found {name} = {config[name]!r}. Expected a positive number.")
    unknown = set(config.get("target_modules") or ()) - {*PROJECTIONS, *PROJECTIONS.values()}
    if unknown:
        raise UserError(
            f"{path}: target_modules has {min(unknown)!r}. Expected {', '.join(PROJECTIONS)} alone."
        )
    return config


def _whole(manifest: Mapping[str, Any], name: str, folder: Path, default: int | None = None) -> int:
    value = manifest.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise UserError(
            f"{folder / 'manifest.json'}: found {name} = {value!r}. Expected a whole number from 1."
        )
    return value
