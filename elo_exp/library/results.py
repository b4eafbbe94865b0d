"""What the library gives: finished runs, plans and figures."""

from __future__ import annotations

import html
import math
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.experiments import Report
from elo_exp.launching import running
from elo_exp.library.arguments import File
from elo_exp.library.rows import Rows
from elo_exp.library.run_files import RunFiles
from elo_exp.library.user_mistakes import raise_user_errors
from elo_exp.runs.reading import battles_file, primary_method, read_manifest, sweep_jobs

# Matplotlib's style belongs to the process
_DRAW_LOCK = threading.RLock()
_BOARD_COLUMNS = ("model", "rating", "ci_low", "ci_high", "rank_low", "rank_high")


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
        self._files = RunFiles(self.folder)
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
        content = self._files.read_document(name)
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
            for dimension, methods in self._files.ratings["dimensions"].items()
            for method, board in methods.items()
            for row in board.get("ratings", ())
        )

    @cached_property
    def differences(self) -> Rows:
        """A row for each method, dimension and pair: the difference, its interval, Holm's p-value."""
        return Rows(
            {"method": method, **row}
            for method, rows in self._files.ratings.get("differences", {}).items()
            for row in rows
        )

    @cached_property
    def battles(self) -> Rows:
        """The battles that were rated, one a row."""
        path = battles_file(self.folder)
        return self._files.read_rows("battles", path.name if path else None)

    @cached_property
    def verdicts(self) -> Rows:
        """The judge's verdicts, one comparison a row, in both orders."""
        return self._files.read_rows("verdicts", "verdicts.jsonl")

    @cached_property
    def responses(self) -> Rows:
        """The answers, one a row: entrant_id, prompt_id, response_text ..."""
        return self._files.read_rows("responses")

    @cached_property
    def probes(self) -> Rows:
        """Of an audit, a row for each dimension and probe: its estimate, interval and verdict."""
        return Rows(
            {"dimension": dimension, **row}
            for dimension, audit in self._files.read_document("audit.json").items()
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
            raise FileError(f"{self.folder} has no page, as it is {self._files.kind}.")
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
            raise SettingError(
                f"The run has no figure {format_value(name)}. It has {names}."
            )
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
        return self._files.read_file(name)

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

    def _boards(self) -> dict[str, Rows]:
        """By dimension, the ratings of the method that leads."""
        if not (self.folder / "ratings.json").is_file():
            return {}
        boards = {}
        for dimension, methods in self._files.ratings["dimensions"].items():
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
        gap in rating points that is found with 80% power.
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
