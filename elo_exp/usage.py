"""What --help prints. Hydra's own help lists the same groups, but takes three times as long over it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from elo_exp import CONF


def help_text(arguments: Sequence[str]) -> str:
    """The help, with the options of every group: the shipped ones and those of the user's --config-dir."""
    options: dict[str, set[str]] = {}
    for folder in (CONF, *config_dirs(arguments)):
        for path in folder.glob("*/*.yaml"):
            options.setdefault(path.parent.name, set()).add(path.stem)
    groups = "".join(
        f"  {group:<11} {', '.join(sorted(names))}\n" for group, names in sorted(options.items())
    )
    return (CONF / "help.txt").read_text(encoding="utf-8").replace("{groups}\n", groups).rstrip()


def config_dirs(arguments: Sequence[str]) -> list[Path]:
    """--config-dir DIR or --config-dir=DIR."""
    joined = [
        argument.partition("=")[2] for argument in arguments if argument.startswith("--config-dir=")
    ]
    apart = [
        value for flag, value in itertools.pairwise(arguments) if flag in ("--config-dir", "-cd")
    ]
    return [Path(folder) for folder in joined + apart]
