"""What the jobs of a sweep have in common: sweep.json in its folder.

They read it there, since not every launcher hands its environment on.
"""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from elo_exp.errors import UserError
from elo_exp.files import read_json, write_json


class Sweep(BaseModel):
    """group  its name in trackers, which it keeps when it is continued
    swept  keys of the settings that it varies
    """

    group: str
    swept: tuple[str, ...]


def write_sweep(folder: Path, sweep: Sweep) -> None:
    write_json(folder / "sweep.json", sweep.model_dump())


def sweep_if_any(folder: Path) -> Sweep | None:
    """Return sweep.json of a folder; None where there is none that can be read."""
    try:
        return Sweep.model_validate(read_json(folder / "sweep.json"))
    except (UserError, ValidationError):
        return None
