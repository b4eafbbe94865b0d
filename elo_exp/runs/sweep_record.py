"""The record of a sweep in sweep.json, and the settings by which its jobs differ.

The jobs read sweep.json there, since not every launcher hands its environment on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from elo_exp.errors import UserError
from elo_exp.files import read_json, write_json
from elo_exp.formatting import NO_VALUE, shorten_override


class Sweep(BaseModel):
    """group  its name in trackers, which it keeps when it is continued
    swept  keys of the settings that it varies
    """

    group: str
    swept: tuple[str, ...]


def write_sweep(folder: Path, sweep: Sweep) -> None:
    write_json(folder / "sweep.json", sweep.model_dump())


def sweep_if_any(folder: Path) -> Sweep | None:
    """Return the sweep.json of a folder, or None if it is missing or cannot be read."""
    try:
        return Sweep.model_validate(read_json(folder / "sweep.json"))
    except (UserError, ValidationError):
        return None


class JobSettings:
    """Settings of the jobs of a sweep.

    swept  values of each setting that differs between jobs, in the order of the jobs
    fixed  settings that all jobs share, as they were given
    """

    def __init__(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        self._choices_by_job = {
            job["job"]: dict(
                shorten_override(word).split("=", 1)
                for word in job["overrides"] or ()
                if "=" in word
            )
            for job in jobs
        }
        known_choices = [
            choices for choices in self._choices_by_job.values() if choices
        ]
        values_by_name = {
            name: list(dict.fromkeys(choices.get(name) for choices in known_choices))
            for name in dict.fromkeys(
                name for choices in known_choices for name in choices
            )
        }
        self.swept = {
            name: [value for value in values if value is not None]
            for name, values in values_by_name.items()
            if len(values) > 1
        }
        self.fixed = [
            f"{name}={values[0]}"
            for name, values in values_by_name.items()
            if not values[1:]
        ]

    def choices(self, job: str) -> dict[str, str | None]:
        """Return the value of each swept setting in a job, as it was given; None if it was not."""
        return {name: self._choices_by_job[job].get(name) for name in self.swept}

    def of(self, jobs: Sequence[str]) -> list[str]:
        """Return the values of each setting that was swept in these jobs."""
        cells = []
        for name in self.swept:
            values = [self._choices_by_job[job].get(name) for job in jobs]
            cells.append(", ".join(dict.fromkeys(filter(None, values))) or NO_VALUE)
        return cells
