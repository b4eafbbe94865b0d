"""Answers that the store could not take, in files that the next command with this store takes in.

A file lies in the folder of the store, or in a private folder for temporary files if there is no room.
"""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.errors import FileError
from elo_exp.files import read_jsonl, utc_now, write_jsonl
from elo_exp.records import Record, make_fingerprint, storable_json

_COLUMNS = ("key", "kind", "value", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a call is charged as, and what it has cost in dollars; None: as much as it may have cost."""

    name: str
    dollars: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsavedAnswer:
    """A row of the table of answers, and the charge of its call."""

    row: tuple[str, str, str, str]
    charge: Charge | None


class UnsavedAnswers:
    """The files of one store.

    location  of the store: a file or a URL
    folder    of the files
    """

    def __init__(self, location: Path | str, folder: Path) -> None:
        name = str(location.resolve()) if isinstance(location, Path) else location
        self._folder, self._name = folder, f"unsaved_{make_fingerprint(name)[:12]}"

    def write(self, answers: Mapping[str, Record], charge: Charge | None) -> Path:
        """Write answers, by key. Raises OSError if there is no room anywhere."""
        now = utc_now()
        charge_fields = {} if charge is None else {"charge": charge.name, "dollars": charge.dollars}  # fmt: skip
        rows = [
            {
                "key": key,
                "kind": type(answer).__name__,
                "value": json.loads(storable_json(answer.to_dict())),
                "created_at": now,
                **charge_fields,
            }
            for key, answer in answers.items()
        ]
        name = f"{self._name}_{secrets.token_hex(4)}.jsonl"
        try:
            return write_jsonl(self._folder / name, rows, keeps_secrets=True)
        except OSError:
            private = Path(tempfile.mkdtemp(prefix=f"elo_exp_{self._name}_"))
            return write_jsonl(private / name, rows, keeps_secrets=True)

    def set_aside(
        self, answers: Mapping[str, Record], charge: Charge | None
    ) -> list[str]:
        """Write answers that the store did not take; return a sentence that says where they are, or none."""
        if not answers:
            return []
        n = f"{len(answers):,} answer{'s' * (len(answers) != 1)}"
        try:
            path = self.write(answers, charge)
        except OSError as error:
            return [
                f"  {n} could not be written anywhere else, either ({error.strerror})."
            ]
        return [
            f"  {n} in hand: kept in {path}.",
            "  The next command with this store reads this file.",
        ]

    def files(self) -> list[Path]:
        """Return the files that are there. Those of another user are not looked at."""
        temporary = Path(tempfile.gettempdir())
        private = [
            folder
            for folder in temporary.glob(f"elo_exp_{self._name}_*")
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid()
        ]
        return [
            path
            for folder in (self._folder, *private)
            for path in sorted(folder.glob(f"{self._name}_*.jsonl"))
        ]

    def read(self, path: Path) -> Iterator[UnsavedAnswer]:
        """Yield the answers of a file. Raises FileError if it is damaged."""
        for location, row in read_jsonl(path):
            texts = [row.get(name) for name in _COLUMNS if name != "value"]
            if not all(isinstance(text, str) for text in texts):
                raise FileError.bad_file(
                    location,
                    "is not an answer",
                    "Restore the file, or delete it to pay for its answers again.",
                    "  It holds answers that were paid for while the store could not be written.",
                )
            stored: dict[str, Any] = {**row, "value": storable_json(row.get("value"))}
            charge = None
            if isinstance(name := row.get("charge"), str):
                charge = Charge(name=name, dollars=row.get("dollars"))
            key, kind, value, at = (stored[name] for name in _COLUMNS)
            yield UnsavedAnswer(row=(key, kind, value, at), charge=charge)

    def remove(self, path: Path) -> None:
        if path.parent == self._folder:
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)
