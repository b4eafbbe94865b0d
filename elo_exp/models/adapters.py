"""The LoRA updates of the heads: find their files and read them.

    security_dir/manifest.json                 {"config": {"num_shards": 9, "heads_depth": 3, ...}}
    security_dir/shard_0_lora.pt ... shard_8_lora.pt          one file per head
    robustness_dir/shard_0_lora.pt ...                        the final checkpoint (-1), or
    robustness_dir/shard_0/**/checkpoint_final[_slim].pt ...
    robustness_dir/shard_0/**/checkpoint_step_200[_slim].pt ...   that of step 200
    uncertainty_path                                          one file

A file is `.safetensors`, or `.pt`, `.pth` or `.bin` with a state dict of tensors, possibly under
`head_state_dict`. It is read without running code from it. docs/poe.md describes the format.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from pydantic import Field

from elo_exp.files import checked, read_json, sha256
from elo_exp.models import first_line
from elo_exp.records import UserError, fingerprint
from elo_exp.types import Count

if TYPE_CHECKING:
    from torch import Tensor

# The update of one head, see read().
Update: TypeAlias = "Mapping[tuple[int, str], tuple[Tensor, Tensor]]"

FINAL = -1  # the last checkpoint of a training run
# OLMo's names of the projections, and those of transformers.
PROJECTIONS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_TENSOR = re.compile(
    r"(?:^|\.)(blocks|layers)\.(\d+)\.(?:.+\.)?(\w+)\.lora_([AB])(?:\.\w+)?\.weight$"
)
_Positive = Annotated[int | float, Field(gt=0)]  # an int stays one, for the digest


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a manifest.json has under `config`.

    heads_depth  last layers that each head has to itself
    lora_alpha   where it is absent, twice the rank
    """

    num_shards: Count | None = None
    heads_depth: Count = 3
    lora_r: _Positive | None = None
    lora_alpha: _Positive | None = None


@dataclass(frozen=True, kw_only=True)
class _ManifestFile:
    config: Manifest


class AdapterFile(NamedTuple):
    path: Path
    manifest: Manifest


class HeadFiles(NamedTuple):
    """The files of each language head, in the order of training, and last of the uncertainty head.

    Without an uncertainty head the last list is empty.
    """

    depth: int
    groups: Sequence[Sequence[AdapterFile]]

    @property
    def n_heads(self) -> int:
        """How many language heads."""
        return len(self.groups) - 1

    def digest(self) -> str:
        """Fingerprint the contents of the files and their scale."""
        groups = [
            [[sha256(file.path), file.manifest.lora_alpha] for file in files]
            for files in self.groups
        ]
        return fingerprint([self.depth, groups])


class Geometry(NamedTuple):
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
    groups = [
        [AdapterFile(_file("security_dir", folder, shard), manifest)]
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
        later_manifest = _manifest(later)
        for shard, files in enumerate(groups):
            path = _file("rob_checkpoint", later, shard, rob_checkpoint)
            files.append(AdapterFile(path, later_manifest))
    groups.append([])
    if uncertainty_path is not None:
        path = Path(uncertainty_path).expanduser()
        if not path.is_file():
            raise UserError(f"uncertainty_path: found no file {path}. Check the path.")
        groups[-1].append(AdapterFile(path, _manifest(path.parent)))
    return HeadFiles(manifest.heads_depth, groups)


def read(files: Sequence[AdapterFile], geometry: Geometry) -> Update:
    """Read the sum of the files' updates, by head layer (0 is the head's first) and projection.

    An update of a matrix (size out, size in) is up.T @ down with down (rank, size in) and up
    (rank, size out), scaled by alpha / rank. Updates are added by concatenating their ranks.
    Raises UserError for a file that does not fit the model.
    """
    import torch

    downs, ups = defaultdict(list), defaultdict(list)
    for file in files:
        halves: dict[tuple[int, str], dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in _tensors(file.path).items():
            layer, projection, half = _place(file.path, name, geometry)
            halves[layer, projection][half] = tensor
        if not halves:
            raise UserError(
                f"{file.path}: holds no tensor named ...lora_A.weight. Expected the LoRA update "
                "of a head."
            )
        for (layer, projection), pair in sorted(halves.items()):
            found = {half: tuple(pair[half].shape) for half in sorted(pair)}
            rank = file.manifest.lora_r or len(pair.get("A", "?"))
            size_in, size_out = geometry.sizes[projection]
            expected = {"A": (rank, size_in), "B": (size_out, rank)}
            if found != expected:
                raise UserError(
                    f"{file.path}: head layer {layer}, {projection}: found lora_ {found}. Expected "
                    f"{expected}, by the model and the lora_r of manifest.json. Is it another "
                    "model's adapter?"
                )
            scale = (file.manifest.lora_alpha or 2 * rank) / rank
            downs[layer, projection].append(pair["A"])
            ups[layer, projection].append(pair["B"].T * scale)
    return {place: (torch.cat(downs[place]), torch.cat(ups[place])) for place in downs}


def _place(path: Path, name: str, geometry: Geometry) -> tuple[int, str, str]:
    """Parse a tensor's name into head layer, projection and half (A or B).

    `blocks` are counted from the head's first layer, `layers` from the model's.
    """
    depth, first = geometry.depth, geometry.n_layers - geometry.depth
    if match := _TENSOR.search(name):
        layer = int(match[2]) - (0 if match[1] == "blocks" else first)
        projection = PROJECTIONS.get(match[3], match[3])
        if projection in geometry.sizes and 0 <= layer < depth:
            return layer, projection, match[4]
    raise UserError(
        f"{path}: found an update {name!r}. Expected updates of {', '.join(PROJECTIONS)} (or "
        f"{', '.join(PROJECTIONS.values())}) alone, in blocks 0 to {depth - 1} or layers {first} "
        f"to {first + depth - 1}, which are the heads'."
    )


def _tensors(path: Path) -> Mapping[str, Tensor]:
    """Read the updates of a state dict; of torch files only tensors and containers are unpickled.

    Training checkpoints hold the frozen weights as well.
    """
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("head_state_dict", state)
        return {name: state[name].float() for name in state if "lora_" in name}
    except pickle.UnpicklingError:
        raise UserError(
            f"{path}: refused, because it holds more than tensors, and reading that would run its "
            "code. Save its state dict alone, as .safetensors or with torch.save."
        ) from None
    except Exception as error:
        raise UserError(
            f"{path}: cannot be read ({first_line(error)}). Expected a state dict of tensors."
        ) from None


def _file(setting: str, folder: Path, shard: int, step: int = FINAL) -> Path:
    """The file of a head's final update, or of a step; of a training run the slim one."""
    final = folder / f"shard_{shard}_lora"
    for suffix in _SUFFIXES:
        if step == FINAL and (path := final.with_suffix(suffix)).is_file():
            return path
    where = folder / f"shard_{shard}"
    name = f"checkpoint_{'final' if step == FINAL else f'step_{step}'}"
    paths = [p for p in sorted(where.rglob("checkpoint_*")) if p.suffix in _SUFFIXES]
    by_run = {p.parent: p for p in paths if p.stem in (name, f"{name}_slim")}
    if len(by_run) != 1:
        known = ", ".join(str(path.relative_to(where)) for path in paths) or "none"
        expected = f"{name} in one training run"
        if step == FINAL:
            expected = f"{final.name}{{{','.join(_SUFFIXES)}}}, or {expected}"
        raise UserError(
            f"{setting}: found {len(by_run)} files for head {shard} in {folder} (in {where.name}: "
            f"{known}). Expected {expected}."
        )
    return by_run.popitem()[1]


def _manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.json; an empty manifest where there is none."""
    path = folder / "manifest.json"
    if not path.is_file():
        return Manifest()
    return checked(_ManifestFile, read_json(path), path).config
