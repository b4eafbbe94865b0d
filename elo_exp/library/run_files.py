"""Readers of the files in the folder of a finished run."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.errors import FileError
from elo_exp.files import read_json, read_jsonl
from elo_exp.library.rows import Rows
from elo_exp.library.user_mistakes import raise_user_errors
from elo_exp.runs import documents
from elo_exp.runs.reading import read_manifest

_DOCUMENTS = {
    "ratings.json": documents.Ratings,
    "gate.json": documents.Gate,
    "audit.json": documents.Audits,
    "judges.json": documents.Judges,
    "compare.json": documents.Conclusions,
    "manifest.json": documents.Conclusions,
}


class RunFiles:
    """The files in the folder of a run. Raises FileError if a file is missing or damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str) -> bool:
        """Return whether the folder has this file."""
        return (self.folder / name).is_file()

    @property
    def kind(self) -> str:
        """A description of the folder for messages: "a run of experiment=rate"."""
        path = self.folder / "manifest.json"
        kind = read_manifest(self.folder).get("experiment") if path.is_file() else None
        return f"a run of experiment={kind}" if kind else "not a run"

    def read_file(self, name: str) -> Any:
        """Return the content of a file: rows, arrays by name, or a JSON object."""
        path = self.folder / name
        with raise_user_errors():
            if not path.is_file():
                raise FileError(
                    f"{self.folder} has no file {name}, as it is {self.kind}."
                )
            if path.suffix == ".jsonl":
                return Rows(row for _, row in read_jsonl(path))
            if path.suffix in (".csv", ".parquet"):
                from elo_exp.data import table_files

                return Rows(dict(row) for _, row in table_files.read_rows(path))
            if path.suffix == ".npz":
                import numpy as np

                with np.load(path, allow_pickle=False) as arrays:
                    return dict(arrays)
            content = read_json(path)
        is_rows = isinstance(content, list) and all(
            isinstance(r, dict) for r in content
        )
        return Rows(content) if is_rows else content

    @cached_property
    def ratings(self) -> dict[str, Any]:
        """The object of ratings.json."""
        if not self.has("ratings.json"):
            raise self._build_missing_error("ratings")
        return self.read_document("ratings.json")

    def read_document(self, name: str) -> dict[str, Any]:
        """Return the checked JSON object of a file."""
        path = self.folder / name
        if not path.is_file():
            raise FileError(f"{self.folder} has no file {name}, as it is {self.kind}.")
        with raise_user_errors():
            content: dict[str, Any] = documents.read_document(_DOCUMENTS[name], path)
        return content

    def read_rows(self, name: str, single_file: str | None = None) -> Rows:
        """Return the rows of all files in a folder of the run, or of a single file if it exists."""
        if single_file and (self.folder / single_file).is_file():
            rows: Rows = self.read_file(single_file)
            return rows
        paths = sorted((self.folder / name).glob("*.jsonl"))
        if not paths:
            raise self._build_missing_error(name)
        with raise_user_errors():
            return Rows(row for path in paths for _, row in read_jsonl(path))

    def _build_missing_error(self, name: str) -> FileError:
        """Return the error for a table that the run does not have, or of which each judge has its own."""
        if judges := sorted((self.folder / "judges").glob("*/")):
            return FileError(
                f"{self.folder} has the {name} of {len(judges)} judges. Open the folder of one judge:",
                f"  elo_exp.open_run({str(judges[0])!r})",
            )
        return FileError(f"{self.folder} has no {name}, as it is {self.kind}.")
