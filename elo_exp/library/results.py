"""What the library gives: finished runs, plans, tables and figures."""

from __future__ import annotations

import contextlib
import html
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.console import format_table
from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.experiments import Report
from elo_exp.files import read_json, read_jsonl
from elo_exp.launching import running
from elo_exp.launching.error_messages import choose_error_class, format_user_error
from elo_exp.library.arguments import File
from elo_exp.runs import documents
from elo_exp.runs.reading import battles_file, primary_method, read_manifest, sweep_jobs

# Matplotlib's style belongs to the process
_DRAW_LOCK = threading.RLock()
_DOCUMENTS = {
    "ratings.json": documents.Ratings,
    "gate.json": documents.Gate,
    "audit.json": documents.Audits,
    "judges.json": documents.Judges,
    "compare.json": documents.Conclusions,
    "manifest.json": documents.Conclusions,
}
_MAX_SHOWN_ROWS = 60
_MAX_CELL_CHARS = 80
# Wider than any table, so that a table is as wide as its cells
_TABLE_WIDTH_CHARS = 1000
_BOARD_COLUMNS = ("model", "rating", "ci_low", "ci_high", "rank_low", "rank_high")


class Rows(list[dict[str, Any]]):
    """Rows of a table: `pandas.DataFrame(rows)` takes them, polars with `infer_schema_length=None`."""

    def __repr__(self) -> str:
        if not self:
            return "no rows"
        names = _list_columns(self)
        rows = self[:_MAX_SHOWN_ROWS]
        lines = [[_format_cell(row.get(name)) for name in names] for row in rows]
        text = [n for n in names if any(isinstance(row.get(n), str) for row in rows)]
        more = [f"... of {len(self):,} rows"] if len(self) > _MAX_SHOWN_ROWS else []
        return "\n".join(
            [format_table(names, lines, text=text, width=_TABLE_WIDTH_CHARS), *more]
        )

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no rows</p>"
        names = _list_columns(self)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(map(_format_html_cell, (row.get(name) for name in names)))
            + "</tr>"
            for row in self[:_MAX_SHOWN_ROWS]
        )
        more = (
            f"<p>... of {len(self):,} rows</p>" if len(self) > _MAX_SHOWN_ROWS else ""
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        )


class Picture:
    """A figure of a run: a notebook shows it; `svg` is its text, `path` its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.svg = path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"Picture({self.path.name!r})"

    def _repr_svg_(self) -> str:
        return self.svg


class Run:
    """A finished run. In a notebook its last line, `run`, shows what it concluded and its leaderboards.

    Attributes
    ----------
    folder : Path
        Its files, of which docs/files.md has the list. Of `rate` without `out` the folder is temporary, and
        goes when the program ends.
    text : str
        What the command would have printed; of an opened run, its conclusions and leaderboards.
    notes : list of str
        The lines and warnings that the command would have shown on the way.
    exit_code : int
        That of the command: 0; of a gate that does not pass another one.
    """

    def __init__(
        self,
        folder: File,
        *,
        text: str = "",
        notes: list[str] | None = None,
        exit_code: int = 0,
        report: Report | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.notes, self.exit_code = [] if notes is None else notes, exit_code
        self._text = text
        # It can draw
        self._report = report

    @property
    def text(self) -> str:
        return self._text or self._summary()

    @property
    def manifest(self) -> dict[str, Any]:
        """What ran and on what: settings, versions, hashes, usage, dollars."""
        with raise_user_errors():
            return read_manifest(self.folder)

    @property
    def headline(self) -> float:
        """The one number by which runs of this kind are compared; NaN where there is none."""
        value = self.manifest.get("headline")
        return math.nan if value is None else float(value)

    @cached_property
    def conclusions(self) -> Rows:
        """What may be said of each dimension: a row with its state and sentence.

        Of an oracle's run, of each policy, and of the choice among them.
        """
        files = (
            *("ratings.json", "gate.json", "audit.json", "judges.json"),
            "compare.json",
        )
        name = next((n for n in files if (self.folder / n).is_file()), "manifest.json")
        content = self._document(name)
        if name in ("audit.json", "judges.json"):
            by = {key: entry["conclusion"] for key, entry in content.items()}
        elif name == "gate.json":
            by = {"": content["conclusion"]}
        else:
            by = content.get("conclusions", {})
        if name == "manifest.json" and (choice := content.get("choice")):
            by = {**by, "choice": choice}
        return Rows({"dimension": key, **conclusion} for key, conclusion in by.items())

    @cached_property
    def ratings(self) -> Rows:
        """A row for each dimension, method and model: rating, ci_low, ci_high, rank_low, rank_high, p_best ..."""
        return Rows(
            {"dimension": dimension, "method": method, **row}
            for dimension, methods in self._rated["dimensions"].items()
            for method, board in methods.items()
            for row in board.get("ratings", ())
        )

    @cached_property
    def differences(self) -> Rows:
        """A row for each method, dimension and pair: the difference, its interval, Holm's p-value."""
        return Rows(
            {"method": method, **row}
            for method, rows in self._rated.get("differences", {}).items()
            for row in rows
        )

    @cached_property
    def battles(self) -> Rows:
        """The battles that were rated, one a row."""
        path = battles_file(self.folder)
        return self._of_folder("battles", path.name if path else None)

    @cached_property
    def verdicts(self) -> Rows:
        """The judge's verdicts, one comparison a row, in both orders."""
        return self._of_folder("verdicts", "verdicts.jsonl")

    @cached_property
    def responses(self) -> Rows:
        """The answers, one a row: entrant_id, prompt_id, response_text ..."""
        return self._of_folder("responses")

    @cached_property
    def probes(self) -> Rows:
        """Of an audit, a row for each dimension and probe: its estimate, interval and verdict."""
        return Rows(
            {"dimension": dimension, **row}
            for dimension, audit in self._document("audit.json").items()
            for row in audit["results"]
        )

    @property
    def sweep(self) -> list[Run]:
        """The finished jobs of a sweep, in their order; none of a single run."""
        jobs = sweep_jobs(self.folder)
        return [Run(job) for job in jobs if read_manifest(job).get("finished_at")]

    @property
    def page(self) -> Path:
        """The run's page, report.html, with its figures."""
        self._draw()
        path = self.folder / "report.html"
        if not path.is_file():
            raise FileError(f"{self.folder}: has no page, being of {self._kind}.")
        return path

    @property
    def figures(self) -> list[str]:
        """The names of its figures, which are drawn when they are first asked for."""
        self._draw()
        return sorted(path.stem for path in (self.folder / "figures").glob("*.svg"))

    def figure(self, name: str) -> Picture:
        """Return a figure, which a notebook shows.

        Parameters
        ----------
        name : str
            Such as `ratings`; `figures` lists them.

        Raises
        ------
        SettingError
            Where the run has no such figure.
        """
        if name not in self.figures:
            names = ", ".join(self.figures) or "none: figures=true draws them"
            raise SettingError(f"{name}: no such figure of this run. It has {names}.")
        return Picture(self.folder / "figures" / f"{name}.svg")

    def read(self, name: str) -> Any:
        """Return a file of the run: rows of `.jsonl`, `.parquet` and `.csv`, arrays by name of `.npz`, the object of `.json`.

        Parameters
        ----------
        name : str
            Its path in the folder, such as `estimates.json`.

        Raises
        ------
        FileError
            Where the run has no such file.
        """
        path = self.folder / name
        with raise_user_errors():
            if not path.is_file():
                raise FileError(f"{path}: no such file of the run, of {self._kind}.")
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

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        boards, conclusions = self._boards(), self.conclusions
        if not boards and not conclusions:
            return f"<pre>{html.escape(self.text)}</pre>"
        sentences = {row["dimension"]: str(row["sentence"]) for row in conclusions}
        parts = []
        for name in dict.fromkeys([*boards, *sentences]):
            board = boards[name]._repr_html_() if name in boards else ""
            sentence = html.escape(sentences.get(name, ""))
            parts.append(f"<h4>{html.escape(name)}</h4><p>{sentence}</p>{board}")
        whose = dict.fromkeys(row["whose"] for row in conclusions if row.get("whose"))
        parts += [f"<p><small>{html.escape(text)}</small></p>" for text in whose]
        return "".join(parts)

    # Inside

    @property
    def _kind(self) -> str:
        path = self.folder / "manifest.json"
        kind = read_manifest(self.folder).get("experiment") if path.is_file() else None
        return f"experiment={kind}" if kind else "no run"

    @cached_property
    def _rated(self) -> dict[str, Any]:
        if not (self.folder / "ratings.json").is_file():
            if judges := sorted((self.folder / "judges").glob("*/")):
                raise FileError(
                    f"{self.folder}: has ratings of each of {len(judges)} judges. Open one's folder: "
                    f"open_run({str(judges[0])!r})."
                )
            raise FileError(f"{self.folder}: has no ratings, being of {self._kind}.")
        return self._document("ratings.json")

    def _document(self, name: str) -> dict[str, Any]:
        """The object of a file whose fields are read by name, checked."""
        path = self.folder / name
        if not path.is_file():
            raise FileError(f"{path}: no such file of the run, of {self._kind}.")
        with raise_user_errors():
            content: dict[str, Any] = documents.read_document(_DOCUMENTS[name], path)
        return content

    def _of_folder(self, name: str, alone: str | None = None) -> Rows:
        """The rows of all files of a folder of the run, or of one file in its place."""
        if alone and (self.folder / alone).is_file():
            rows: Rows = self.read(alone)
            return rows
        paths = sorted((self.folder / name).glob("*.jsonl"))
        if not paths:
            raise FileError(f"{self.folder}: has no {name}, being of {self._kind}.")
        with raise_user_errors():
            return Rows(row for path in paths for _, row in read_jsonl(path))

    def _boards(self) -> dict[str, Rows]:
        """By dimension, the ratings of the method that leads."""
        if not (self.folder / "ratings.json").is_file():
            return {}
        boards = {}
        for dimension, methods in self._rated["dimensions"].items():
            rows = methods.get(primary_method(methods), {}).get("ratings", ())
            boards[dimension] = Rows(
                {name: row[name] for name in _BOARD_COLUMNS if name in row}
                for row in rows
            )
        return boards

    def _summary(self) -> str:
        if self.sweep:
            return "\n".join(
                [f"{len(self.sweep)} jobs", *(str(j.folder) for j in self.sweep)]
            )
        lines = [str(row["sentence"]) for row in self.conclusions]
        boards = [f"{name}\n{rows!r}" for name, rows in self._boards().items()]
        return "\n".join([*lines, *boards, str(self.folder)])

    def _draw(self) -> None:
        """Draw what has not been drawn, if this program has made the run."""
        with _DRAW_LOCK:
            report, self._report = self._report, None
            if report is not None:
                running.draw_later(report, self.folder)


@dataclass(frozen=True)
class Plan:
    """What a run would ask and cost, before anything is paid.

    Attributes
    ----------
    rows : Rows
        By judge and dimension: pairs, queries, those stored and new, tokens, dollars, and `detects`, the
        gap in rating points that is found with 80 % power.
    dollars : float
        Expected in all, by the chosen transport and prompt cache.
    text : str
        What `plan=true` prints.
    notes : list of str
        The lines and warnings that the command would have shown before.
    """

    rows: Rows
    dollars: float
    text: str
    notes: list[str]

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        heading = html.escape(self.text.partition("\n")[0])
        return f"<p>{heading}</p>{self.rows._repr_html_()}"


@contextlib.contextmanager
def raise_user_errors(words: Sequence[str] = ()) -> Iterator[None]:
    """Raise the user's mistakes as UserError, in the words of the command; ours as they are."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (line := format_user_error(error, words)) is None:
            raise
        raise choose_error_class(error)(line) from None


# Tables as text


def _list_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows[:_MAX_SHOWN_ROWS] for name in row))


def _format_html_cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{html.escape(_format_cell(value))}</td>"


def _format_cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"
