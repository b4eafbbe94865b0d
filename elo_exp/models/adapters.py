"""The LoRA updates of the heads: find their files and read them.

    security_dir/manifest.json                 {"config": {"num_shards": 9, "heads_depth": 3, ...}}
    security_dir/shard_0_lora.pt ... shard_8_lora.pt          one file per head
    robustness_dir/shard_0_lora.pt ...                        the final checkpoint (-1)
    robustness_dir/shard_0/**/checkpoint_step_200*.pt ...     the checkpoint of step 200
    uncertainty_path                                          one file

A file is `.safetensors`, or `.pt`, `.pth` or `.bin` with a state dict of tensors, possibly under
`head_state_dict`. It is read without running code from it. docs/poe.md describes the format.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from elo_exp.files import open_text, sha256
from elo_exp.records import UserError, fingerprint
from elo_exp.types import Count

if TYPE_CHECKING:
    import torch

# The update of one head, see read().
Update: TypeAlias = "Mapping[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]"

FINAL = -1  # the last checkpoint of a training run
# OLMo's names of the projections, and those of transformers.
PROJECTIONS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_TENSOR = re.compile(
    r"(?:^|\.)(blocks|layers)\.(\d+)\.(?:.+\.)?(\w+)\.lora_([AB])(?:\.\w+)?\.weight$"
)
_Positive = Annotated[int | float, Field(gt=0)]  # an int stays one, for the digest
_Projection = Literal["w1", "w2", "w3", "gate_proj", "down_proj", "up_proj"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The `config` of a manifest.json. `heads_depth`: last layers that each head has to itself."""

    num_shards: Count | None = None
    heads_depth: Count = 3
    lora_r: _Positive | None = None
    lora_alpha: _Positive | None = None
    target_modules: list[_Projection] | None = None


@dataclass(frozen=True, kw_only=True)
class AdapterFile:
    """One file. `rank` is the manifest's; where `alpha` is None, it is twice the rank."""

    path: Path
    rank: float | None = None
    alpha: float | None = None


@dataclass(frozen=True, kw_only=True)
class HeadFiles:
    """The files of each language head, in the order of training, and of the uncertainty head."""

    depth: int
    heads: Sequence[Sequence[AdapterFile]]
    uncertainty: AdapterFile | None

    @property
    def paths(self) -> list[Path]:
        return [file.path for files in self._groups for file in files]

    def digest(self) -> str:
        """Fingerprint the contents of the files and their scale."""
        groups = [
            [[sha256(file.path), file.alpha] for file in files]
            for files in self._groups
        ]
        return fingerprint([self.depth, groups])

    @property
    def _groups(self) -> list[Sequence[AdapterFile]]:
        return [*self.heads, [self.uncertainty] if self.uncertainty else []]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Sizes of a model: its layers, the heads' depth, and (size in, size out) by projection."""

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
    """Find the files of every head. Raises UserError, naming the setting, where one is absent.

    rob_checkpoint  the checkpoint of `robustness_dir` that follows the security update: a training
                    step, or FINAL; None for no robustness update
    """
    folder = Path(security_dir).expanduser()
    manifest = _manifest(folder)
    if manifest.num_shards is None:
        raise UserError(
            f"security_dir: found no manifest.json with num_shards in {folder}. Expected one that "
            "counts the heads."
        )
    heads = [
        [_described(_final("security_dir", folder, shard), manifest)]
        for shard in range(manifest.num_shards)
    ]
    if rob_checkpoint is not None:
        if robustness_dir is None:
            raise UserError(
                f"robustness_dir: has no value with rob_checkpoint={rob_checkpoint}. Expected "
                "the folder of the robustness adapters (ELO_EXP_ROBUSTNESS_DIR), or "
                "rob_checkpoint=null."
            )
        later = Path(robustness_dir).expanduser()
        for shard, files in enumerate(heads):
            path = _checkpoint(later, shard, rob_checkpoint)
            files.append(_described(path, _manifest(later)))
    uncertainty = None
    if uncertainty_path is not None:
        path = Path(uncertainty_path).expanduser()
        if not path.is_file() or path.suffix not in _SUFFIXES:
            raise UserError(
                f"uncertainty_path: found no file {path}. Expected one that ends in "
                f"{', '.join(_SUFFIXES)}."
            )
        uncertainty = _described(path, _manifest(path.parent))
    return HeadFiles(
        depth=manifest.heads_depth,
        heads=tuple(map(tuple, heads)),
        uncertainty=uncertainty,
    )


def read(files: Sequence[AdapterFile], geometry: Geometry) -> Update:
    """Read the sum of the files' updates, by head layer (0 is the head's first) and projection.

    An update of a matrix (size out, size in) is up.T @ down with down (rank, size in) and up
    (rank, size out), scaled by alpha / rank. Updates are added by concatenating their ranks.
    Raises UserError for a file that does not fit the model.
    """
    import torch

    parts: dict[tuple[int, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for file in files:
        for place, factors in _factors(file, geometry).items():
            parts.setdefault(place, []).append(factors)
    return {
        place: (
            torch.cat([down for down, _ in some]),
            torch.cat([up for _, up in some]),
        )
        for place, some in parts.items()
    }


def _factors(
    file: AdapterFile, geometry: Geometry
) -> dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]:
    halves: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
    for name, tensor in _tensors(file.path).items():
        if "lora_" not in name:
            continue  # training checkpoints hold the frozen weights as well
        layer, projection, half = _place(file.path, name, geometry)
        halves.setdefault((layer, projection), {})[half] = tensor.float()
    if not halves:
        raise UserError(
            f"{file.path}: holds no tensor named ...lora_A.weight. Expected the LoRA update of a "
            "head."
        )
    return {
        place: _pair(file, place, pair, geometry)
        for place, pair in sorted(halves.items())
    }


def _place(path: Path, name: str, geometry: Geometry) -> tuple[int, str, str]:
    """Parse a tensor's name into head layer, projection and half (A or B).

    `blocks` are counted from the head's first layer, `layers` from the model's.
    """
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
            f"{first + geometry.depth - 1}: the last {geometry.depth} of {geometry.n_layers} "
            "layers are the heads'."
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
        raise UserError(
            f"{where}: found only lora_{''.join(halves)}. Expected lora_A and lora_B."
        )
    down, up = halves["A"], halves["B"]
    size_in, size_out = geometry.sizes[place[1]]
    rank = len(down)
    if down.shape != (rank, size_in) or up.shape != (size_out, rank):
        raise UserError(
            f"{where}: found lora_A {tuple(down.shape)}, lora_B {tuple(up.shape)}. Expected (rank, "
            f"{size_in}), ({size_out}, rank), as in the model. Is it another model's adapter?"
        )
    if file.rank not in (None, rank):
        raise UserError(
            f"{where}: found rank {rank}. Expected {file.rank}, the lora_r of manifest.json."
        )
    alpha = 2 * rank if file.alpha is None else file.alpha
    return down, up.T * (alpha / rank)


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """Read a state dict; of torch files only tensors and plain containers are unpickled."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path}: refused, because it holds more than tensors, and reading that would run its "
            "code. Save its state dict alone, as .safetensors or with torch.save."
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: cannot be read ({reason}). Expected a state dict of tensors."
        ) from None
    if isinstance(state, dict):
        state = state.get("head_state_dict", state)
        if all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
            return dict(state)
    raise UserError(f"{path}: found no state dict. Expected tensors by name.")


def _final(setting: str, folder: Path, shard: int) -> Path:
    for suffix in _SUFFIXES:
        path = folder / f"shard_{shard}_lora{suffix}"
        if path.is_file():
            return path
    raise UserError(
        f"{setting}: found no shard_{shard}_lora{{{','.join(_SUFFIXES)}}} in {folder}. "
        "Check the path."
    )


def _checkpoint(folder: Path, shard: int, step: int) -> Path:
    if step == FINAL:
        return _final("robustness_dir", folder, shard)
    where = folder / f"shard_{shard}"
    steps: dict[int, list[Path]] = {}
    for path in sorted(where.rglob("checkpoint_step_*")):
        number = re.match(r"checkpoint_step_(\d+)(?!\d)", path.name)
        if number and path.suffix in _SUFFIXES:
            steps.setdefault(int(number[1]), []).append(path)
    if step not in steps:
        known = f"steps {', '.join(map(str, sorted(steps)))}"
        raise UserError(
            f"rob_checkpoint: found {step}; {where} has "
            f"{known if steps else 'no checkpoint_step_N'}. Expected one of them, or {FINAL}."
        )
    path, *others = steps[step]
    if others:
        raise UserError(
            f"rob_checkpoint: step {step} is both {path} and {others[0]}. Keep one of them there."
        )
    return path


def _described(path: Path, manifest: Manifest) -> AdapterFile:
    return AdapterFile(path=path, rank=manifest.lora_r, alpha=manifest.lora_alpha)


def _manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.json; an empty manifest where there is none."""
    path = folder / "manifest.json"
    if not path.is_file():
        return Manifest()
    try:
        with open_text(path) as file:
            return TypeAdapter(Manifest).validate_python(json.load(file)["config"])
    except ValidationError as error:
        fault = error.errors()[0]
        name = fault["loc"][0] if fault["loc"] else "config"
        raise UserError(
            f"{path}: {name}: found {fault['input']!r}. {fault['msg']}."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f'{path}: found no settings. Expected {{"config": {{"num_shards": 9, ...}}}}.'
        ) from None
