"""Results of the library: finished runs, plans and figures."""

from __future__ import annotations

import html
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.experiments import Report
from elo_exp.launching import running
from elo_exp.library import tables
from elo_exp.library.arguments import File
from elo_exp.library.rows import Rows
from elo_exp.library.run_files import RunFiles
from elo_exp.library.user_mistakes import raise_user_errors
from elo_exp.runs.reading import read_manifest

# Matplotlib's style belongs to the process
_DRAW_LOCK = threading.RLock()
_SHOWN_COLUMNS = ("entrant", "rating", "ci_low", "ci_high", "rank_low", "rank_high")


class Picture:
    """A figure of a run, which a notebook shows.

    Attributes
    ----------
    path : Path
        The SVG file in the run folder.
    svg : str
        The text of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.svg = path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"Picture({self.path.name!r})"

    def _repr_svg_(self) -> str:
        return self.svg


class Run:
    """A finished run, read from its folder. In a notebook it shows its conclusions and leaderboards.

    Tables are lists of dictionaries, so `pandas.DataFrame(run.ratings)` makes a data frame. The column `dimension` holds
    the name of the rubric. A value that is not known is None. Of a sweep, each table has the rows of all finished jobs,
    with the columns `job` and the swept settings, such as `elo.k`, first.

    Attributes
    ----------
    folder : Path
        The run folder (docs/files.md lists its files). If you call `rate` without `out`, the folder is temporary and is
        deleted when the program ends.
    text : str
        The text that the command prints. An opened run has its conclusions and leaderboards here.
    notes : list of str
        Further lines and warnings that the command prints while it runs.
    exit_code : int
        The exit code of the command. It is 0, except for a gate that does not pass (docs/gate.md).

    Examples
    --------
    >>> import elo_exp
    >>> battles = [{"model_a": "new", "model_b": "old", "winner": name} for name in ["new"] * 30 + ["old"] * 10]
    >>> run = elo_exp.rate(battles)
    >>> run.conclusions[0]["first"]
    'new'
    >>> round(run.differences[0]["ci_low"]), round(run.differences[0]["ci_high"])
    (61, 321)
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
        """The settings, versions, input hashes, token usage and dollars of the run, as in manifest.json."""
        with raise_user_errors():
            return read_manifest(self.folder)

    @property
    def headline(self) -> float:
        """The number that a sweep compares: mostly the lead in rating points. NaN if the run has none."""
        value = self.manifest.get("headline")
        return math.nan if value is None else float(value)

    @cached_property
    def conclusions(self) -> Rows:
        """The conclusions, a row per rubric: `dimension`, `state`, `sentence` and the numbers behind the sentence.

        A run of the oracle has a row per policy, and a row `choice` for the choice among the policies.
        """
        return self._list_rows(tables.list_conclusions)

    @cached_property
    def leaderboard(self) -> Rows:
        """The leaderboard by the primary rating method, a row per rubric and entrant, the best entrant first.

        `rating`, `ci_low` and `ci_high` are in the unit of the column `unit`. `rank_low` and `rank_high` are the ranks
        that the data leave possible.
        """
        return self._list_rows(tables.list_leaderboard)

    @cached_property
    def ratings(self) -> Rows:
        """The ratings by all methods, a row per rubric, method and entrant. The primary method comes first.

        `rating`, `std_error`, `ci_low` and `ci_high` are in rating points. `p_best` is a probability (0 to 1). The file
        ratings.json has the same fields, and calls the entrant `model` (docs/ratings.md).
        """
        return self._list_rows(tables.list_ratings)

    @cached_property
    def differences(self) -> Rows:
        """The differences between entrants, a row per method, rubric and pair.

        `difference`, `ci_low` and `ci_high` are in rating points, `higher` minus `lower`. `p_holm` is the p-value after
        Holm's adjustment for all pairs and rubrics.
        """
        return self._list_rows(tables.list_differences)

    @cached_property
    def battles(self) -> Rows:
        """The rated comparisons, a row per comparison, with the columns of a battle file.

        The columns are `model_a`, `model_b`, `winner`, `question_id` and so on (docs/row_files.md).
        """
        return self._list_rows(tables.list_battles)

    @cached_property
    def verdicts(self) -> Rows:
        """The verdicts of the judge, a row per verdict. A comparison has one in each order of its answers.

        `question`, `answer_a` and `answer_b` are the texts that the judge saw. `order` is `"ab"` if the judge saw
        `answer_a` first. `verdict` is `"entrant_a"`, `"entrant_b"`, `"tie"` or `"invalid"`, whatever the order, and
        `winner` is the name of that entrant. `share` is the share of `entrant_a`, if the judge gives one. `inconsistent`
        is true if the two orders of the comparison disagree. `cost` is in US dollars. Equal texts share one reply, whose
        cost is in one row.
        """
        return self._list_rows(tables.list_verdicts)

    @cached_property
    def scores(self) -> Rows:
        """The scores of single answers, a row per answer and rubric: `entrant`, `score`, `criteria`, `reason` and so on."""
        return self._list_rows(tables.list_scores)

    @cached_property
    def responses(self) -> Rows:
        """The answers, a row per entrant and prompt: `entrant`, `prompt_id`, `response_text` and so on."""
        return self._list_rows(tables.list_responses)

    @cached_property
    def probes(self) -> Rows:
        """The tests of an audit, a row per rubric and test: `estimate`, its 95% interval `low` to `high`, and `verdict`."""
        return self._list_rows(tables.list_probes)

    @property
    def sweep(self) -> list[Run]:
        """The finished jobs of a sweep, in order. The list is empty for a single run."""
        return [Run(job) for job in tables.list_finished_jobs(self.folder)]

    @property
    def page(self) -> Path:
        """The path of report.html, the page of the run with its figures."""
        self._draw()
        path = self.folder / "report.html"
        if not path.is_file():
            raise FileError(f"{self.folder} has no page, as it is {self._files.kind}.")
        return path

    @property
    def figures(self) -> list[str]:
        """The names of the figures of the run. The first access draws them."""
        self._draw()
        return sorted(path.stem for path in (self.folder / "figures").glob("*.svg"))

    def figure(self, name: str) -> Picture:
        """Return a figure of the run. A notebook shows it.

        Parameters
        ----------
        name : str
            The name of the figure, such as `"ratings"`. `figures` lists all names.

        Returns
        -------
        Picture
            The figure. `svg` is its text and `path` its file.

        Raises
        ------
        SettingError
            If the run has no figure with this name.
        """
        if name not in self.figures:
            names = ", ".join(self.figures) or "none: figures=true draws them"
            raise SettingError(
                f"The run has no figure {format_value(name)}. It has {names}."
            )
        return Picture(self.folder / "figures" / f"{name}.svg")

    def read(self, name: str) -> Any:
        """Return the content of a file in the run folder.

        Parameters
        ----------
        name : str
            The path of the file in the folder, such as `"estimates.json"`.

        Returns
        -------
        list of dict, dict of str to ndarray, or dict
            The rows of a `.jsonl`, `.parquet` or `.csv` file, the arrays of an `.npz` file by name, or the object of a
            `.json` file.

        Raises
        ------
        FileError
            If the run has no such file.
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

    def _list_rows(self, list_table: Callable[[RunFiles], Rows]) -> Rows:
        """Return a table of the run. A sweep has the rows of its jobs, with the swept settings as columns."""
        if not (jobs := tables.list_finished_jobs(self.folder)):
            return list_table(self._files)
        return tables.join_jobs(
            {job: list_table(RunFiles(job)) for job in jobs},
            tables.list_swept_settings(self.folder),
        )

    def _boards(self) -> dict[str, Rows]:
        """Return the leaderboard of each rubric as it is shown."""
        if not self._files.has("ratings.json"):
            return {}
        boards: dict[str, Rows] = {}
        for row in self.leaderboard:
            shown_row = {name: row[name] for name in _SHOWN_COLUMNS}
            boards.setdefault(row["dimension"], Rows()).append(shown_row)
        return boards

    def _summary(self) -> str:
        if jobs := self.sweep:
            return "\n".join([f"{len(jobs)} jobs", *(str(job.folder) for job in jobs)])
        lines = [str(row["sentence"]) for row in self.conclusions]
        boards = [f"{name}\n{rows!r}" for name, rows in self._boards().items()]
        return "\n".join([*lines, *boards, str(self.folder)])

    def _draw(self) -> None:
        """Draw the figures that are not drawn yet, if this program made the run."""
        with _DRAW_LOCK:
            report, self._report = self._report, None
            if report is not None:
                running.draw_later(report, self.folder)


@dataclass(frozen=True)
class Plan:
    """The judge calls and the cost of a run that has not started.

    Attributes
    ----------
    rows : list of dict
        A row per judge and rubric. `pairs` counts comparisons and `queries` counts judge calls. `stored` of these calls
        are in the cache, and `new` of them are to pay for. `dollars` is the expected cost. `detects` is the true gap in
        rating points that the run would find with 80% power.
    dollars : float
        The expected cost of all judge calls and answers, in US dollars.
    text : str
        The table that `plan=true` prints.
    notes : list of str
        Further lines and warnings that the command prints.
    answers : list of dict
        A row per model that has still to answer. `new` answers are to be made, and each is assumed to have `n_chars`
        characters. `is_upper_bound` tells whether that is the model's limit. `dollars` is None if no price is known.

    Examples
    --------
    >>> import elo_exp
    >>> plan = elo_exp.plan(rubric=["factuality"], prompts__n=20)
    >>> plan.rows[0]["pairs"], plan.rows[0]["queries"]
    (66, 132)
    """

    rows: Rows
    dollars: float
    text: str
    notes: list[str]
    answers: Rows = field(default_factory=Rows)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        heading = html.escape(self.text.partition("\n")[0])
        return f"<p>{heading}</p>{self.rows._repr_html_()}"
