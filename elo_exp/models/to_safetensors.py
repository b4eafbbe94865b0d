"""Write the updates of torch files as safetensors, a format that holds tensors alone.

    python -m elo_exp.models.to_safetensors FOLDER_OR_FILE ...

Each `.pt`, `.pth` or `.bin` file gets a `.safetensors` file beside it. Torch unpickles tensors and containers only, and
refuses a file that holds more.
"""

import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.errors import FileError, UserError
from elo_exp.models import first_error_line

if TYPE_CHECKING:
    from torch import Tensor

TORCH_SUFFIXES = (".pt", ".pth", ".bin")


def convert_file(path: Path) -> Path:
    """Write the updates of a torch file into a `.safetensors` file beside it, and return its path.

    The names of updates contain `lora_`. They may stand under `head_state_dict`. A training checkpoint also holds the
    frozen weights, which are left out.

    Raises
    ------
    FileError
        If the file holds more than tensors, or cannot be read.
    """
    from safetensors.torch import save_file

    state = _load_tensors(path)
    updates = {name: state[name].contiguous() for name in state if "lora_" in name}
    target = path.with_suffix(".safetensors")
    save_file(updates, target)
    return target


def _load_tensors(path: Path) -> Mapping[str, "Tensor"]:
    import torch

    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        tensors: Mapping[str, Tensor] = state.get("head_state_dict", state)
    except pickle.UnpicklingError:
        raise FileError.bad_file(
            path,
            "was not read: it holds more than tensors, and reading that would run its code",
            "Save its state dict alone, with safetensors or torch.save.",
        ) from None
    except Exception as error:
        raise FileError.bad_file(
            path,
            f"cannot be read ({first_error_line(error)})",
            "It must hold a state dict of tensors.",
        ) from None
    return tensors


def main(arguments: Sequence[str]) -> int:
    """Convert files, and all files in folders that are not converted yet."""
    if not arguments:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for path in map(Path, arguments):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            is_given = file == path
            is_new = not file.with_suffix(".safetensors").exists()
            if is_given or (file.suffix in TORCH_SUFFIXES and is_new):
                try:
                    print(convert_file(file))
                except UserError as error:
                    print(error, file=sys.stderr)
                    return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
