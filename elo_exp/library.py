"""The library: what the command does, called from Python, with tables in and tables out.

Nothing is printed, the process stays as it was, and several calls may go on side by side in threads.
"""

from __future__ import annotations

import atexit
import contextlib
import html
import logging
import math
import os
import re
import secrets
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import yaml

from elo_exp import interrupts
from elo_exp.console import format_table
from elo_exp.data import frames
from elo_exp.data.battle_files import FIELDS
from elo_exp.errors import FileError, SettingError, StoppedError, UserError
from elo_exp.experiments import Report
from elo_exp.files import escape_name, read_json, read_jsonl, write_whole
from elo_exp.launching import composing, running
from elo_exp.launching.composing import NothingToPlanError
from elo_exp.launching.error_messages import choose_error_class, format_user_error
from elo_exp.launching.shorthand import expand_shorthand, override_key, quote_value
from elo_exp.masking import current_mask, mask_text
from elo_exp.progress import silence
from elo_exp.runs import documents
from elo_exp.runs.reading import battles_file, primary_method, read_manifest, sweep_jobs

if TYPE_CHECKING:
    from elo_exp.pipeline.planning import Plan as Planned
    from elo_exp.pipeline.planning import PlanRow


class Frame(Protocol):
    """A table of pandas, polars or pyarrow."""

    @property
    def columns(self) -> Any: ...


File: TypeAlias = str | os.PathLike[str]
Table: TypeAlias = File | Frame | Sequence[Mapping[str, Any]]

# Hydra's parsers and Matplotlib's style belong to the process
_PREPARE_LOCK = threading.RLock()
_DRAW_LOCK = threading.RLock()
_TABLE_SETTINGS = ("answers", "battles", "prompts")
_DOCUMENTS = {
    "ratings.json": documents.Ratings,
    "gate.json": documents.Gate,
    "audit.json": documents.Audits,
    "judges.json": documents.Judges,
    "compare.json": documents.Conclusions,
    "manifest.json": documents.Conclusions,
}
_LOGGER = logging.getLogger("elo_exp")
_PLAN_COLUMNS = (
    *("dimension", "n_prompts", "n_entrants", "pairs", "queries", "stored"),
    *("under_way", "new", "input_tokens", "output_tokens", "dollars", "dollars_plain"),
)
_WORDS_TO_QUOTE = ("null", "true", "false", "nan", "inf")
_MAX_SHOWN_ROWS = 60
_MAX_CELL_CHARS = 80
# Wider than any table, so that a table is as wide as its cells
_TABLE_WIDTH_CHARS = 1000
_BOARD_COLUMNS = ("model", "rating", "ci_low", "ci_high", "rank_low", "rank_high")

# Of a kernel without widgets, whose bars nobody asked for
warnings.filterwarnings("ignore", "IProgress not found")


# What a run gives


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
    ) -> None:
        self.folder = Path(folder)
        self.notes, self.exit_code = [] if notes is None else notes, exit_code
        self._text = text
        self._report: Report | None = None  # which can draw

    @property
    def text(self) -> str:
        return self._text or self._summary()

    @property
    def manifest(self) -> dict[str, Any]:
        """What ran and on what: settings, versions, hashes, usage, dollars."""
        with _raise_user_errors():
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
        UserError
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
        UserError
            Where the run has no such file.
        """
        path = self.folder / name
        with _raise_user_errors():
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
        with _raise_user_errors():
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
        with _raise_user_errors():
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


# What is called


def run(
    *words: str,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Run what `python -m elo_exp WORDS` runs, in this process.

    Parameters
    ----------
    *words : str
        Of the command, such as `"experiment=oracle"`, `"mode=pilot"` or a file.
    out : path, optional
        The run folder; by default a new one in `outputs/`.
    stop : threading.Event, optional
        Set it from another thread to end the run as Ctrl-C does: answers on their way are waited for and stored.
    **settings
        The same as values: `judge="sonnet"`, `judging__looks=5` for `judging.looks=5`. Of `answers`, `battles`
        and `prompts` a value may be a table. The tracker is `local` unless one is named, and figures are
        drawn when they are asked for unless `figures=True`.

    Returns
    -------
    Run
        Its folder, its tables and its figures.

    Raises
    ------
    UserError
        In the command's words, before anything is spent or written.
    StoppedError
        A UserError: `stop` was set before the run had ended. The same call goes on.

    Examples
    --------
    >>> import elo_exp
    >>> demo = elo_exp.run("rubric=[factuality]", elo__n_perms=20)  # doctest: +SKIP
    >>> demo.ratings[0]["model"]  # doctest: +SKIP
    'probe_reference'
    """
    return _run(words, settings, out, stop)


def rate(
    battles: Table | Sequence[File],
    *words: str,
    values: Mapping[str, str] | None = None,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Rate battles or scores that exist: who wins, by how much, and how sure that is. No judge, no cost.

    Parameters
    ----------
    battles : DataFrame, rows, file or files
        One battle a row: of pandas, polars or pyarrow, dictionaries, or files in any format of
        docs/formats.md, such as an lm-eval log.
    *words : str
        Further words of the command.
    values : dict, optional
        What the column of winners says, to model_a, model_b or tie: `{"left": "model_a"}`.
    out : path, optional
        The run folder; by default a temporary one, which goes when the program ends.
    stop : threading.Event, optional
        Set it from another thread to end the run as Ctrl-C does: answers on their way are waited for and stored.
    **settings
        The columns that are called otherwise, such as `winner="preferred"`, `model_a`, `question_id` or
        `dimension`; the rest as in `run`, such as `elo__k=8`.

    Returns
    -------
    Run
        Its folder, its tables and its figures.

    Raises
    ------
    UserError
        For rows that are no battles, with the row and what was expected.

    Examples
    --------
    >>> import elo_exp
    >>> battles = [
    ...     {"model_a": "new", "model_b": "old", "winner": "model_a" if n % 4 else "model_b"}
    ...     for n in range(40)
    ... ]
    >>> run = elo_exp.rate(battles, elo__n_perms=20)
    >>> [row["model"] for row in run.ratings if row["method"] == "bradley_terry"]
    ['new', 'old']
    """
    arguments: dict[str, Any] = {"battles": battles}
    for name, value in settings.items():
        arguments[f"battles_columns__{name}" if name in FIELDS else name] = value
    if values is not None:
        arguments["battles_values"] = values
    return _run(("experiment=rate", *words), arguments, out, stop, is_free=True)


def compare(
    answers: Table | Sequence[File] | Mapping[str, Table],
    *words: str,
    judge: str,
    prompts: Table | None = None,
    budget_usd: float | None = None,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Have a judge compare answers that exist, pair by pair in both orders, and rate who gave them.

    Parameters
    ----------
    answers : dict, files, file or DataFrame
        `{"old": "a.jsonl", "new": frame}` names them; files name themselves. One answer a row, in any
        format of docs/formats.md; a table with a column `model` holds those of several.
    *words : str
        Further words of the command.
    judge : str
        Such as `"sonnet"`; docs/judging.md has all. There is no default: `"lexical"` is free, counts words,
        and can find nothing.
    prompts : file or DataFrame, optional
        The prompts, where the answers do not have them.
    budget_usd : float, optional
        Never spend more; by default 5.
    out : path, optional
        The run folder; by default a new one in `outputs/`.
    stop : threading.Event, optional
        Set it from another thread to end the run as Ctrl-C does: answers on their way are waited for and stored.
    **settings
        As in `run`, such as `study="medical"`.

    Returns
    -------
    Run
        Its folder, its tables and its figures.

    Raises
    ------
    UserError
        For answers that cannot be joined, and where the judge would cost more than the budget.

    Examples
    --------
    >>> import elo_exp
    >>> run = elo_exp.compare({"old": "a.jsonl", "new": "b.jsonl"}, judge="sonnet")  # doctest: +SKIP
    >>> run.differences  # doctest: +SKIP
    """
    arguments = {"answers": answers, "judge": judge, **settings}
    if prompts is not None:
        arguments["prompts"] = prompts
    return _run(words, arguments | _budget_setting(budget_usd), out, stop)


def audit(
    *words: str,
    judge: str,
    prompts: Table | None = None,
    budget_usd: float | None = None,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Ask a judge questions whose right answer is known: how far can it be trusted?

    Parameters
    ----------
    *words : str
        Words of the command.
    judge : str
        Such as `"sonnet"`.
    prompts : file or DataFrame, optional
        With reference answers; by default the bank that ships.
    budget_usd : float, optional
        Never spend more.
    out : path, optional
        The run folder; by default a new one in `outputs/`.
    stop : threading.Event, optional
        Set it from another thread to end the run as Ctrl-C does: answers on their way are waited for and stored.
    **settings
        As in `run`, such as `audit__n_prompts=30`.

    Returns
    -------
    Run
        Its `conclusions` are *ok*, *biased* or *cannot tell*, by dimension; `probes` has the numbers.

    Raises
    ------
    UserError
        As the command does.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.audit(judge="haiku", budget_usd=2).conclusions  # doctest: +SKIP
    """
    arguments = {"judge": judge, **settings}
    if prompts is not None:
        arguments["prompts"] = prompts
    words = ("experiment=audit", *words)
    return _run(words, arguments | _budget_setting(budget_usd), out, stop)


def plan(*words: str, budget_usd: float | None = None, **settings: Any) -> Plan:
    """Say what a run would ask and cost. Free: no key, model or network is needed.

    Parameters
    ----------
    *words : str
        Those of `run`, such as `"mode=pilot"` or `"experiment=audit"`.
    budget_usd : float, optional
        The cap that the plan is held against.
    **settings
        Those of `run`: `plan(answers={"old": "a.jsonl", "new": frame}, judge="sonnet")`.

    Returns
    -------
    Plan
        A row for each judge and dimension, the dollars, and the text of `plan=true`.

    Raises
    ------
    UserError
        Where it cannot count.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.plan(judge="lexical").dollars  # doctest: +SKIP
    0.0
    """
    with (
        tempfile.TemporaryDirectory(prefix="elo_exp_") as temporary,
        _collect_notes() as notes,
        silence(),
    ):
        chosen = {**settings, **_budget_setting(budget_usd), "plan": True}
        folder = _Folder(Path(temporary))
        override_words, mappings = _make_words(words, chosen, folder)
        with folder.naming(notes), _raise_user_errors(override_words):
            try:
                job, composed = _prepare(override_words, mappings)
            except NothingToPlanError as nothing:
                return Plan(Rows(), 0.0, f"plan: {nothing}", notes)
            with running.open_run(
                job, composed.run_dir, _select_overrides(override_words)
            ) as prepared_run:
                text = prepared_run.dry_run()
                experiment, store = job.experiment, prepared_run.context.store
                plans = experiment.plans(store)
    rows = Rows(
        _make_plan_row(judge_plan, row)
        for judge_plan in plans
        for row in judge_plan.rows
    )
    dollars = math.fsum(judge_plan.dollars for judge_plan in plans)
    return Plan(rows, dollars, text or "", notes)


def open_run(folder: File) -> Run:
    """Open a finished run, or a sweep.

    Parameters
    ----------
    folder : path
        That the command printed behind `files`.

    Returns
    -------
    Run
        Of a sweep, `sweep` has the runs of its jobs.

    Raises
    ------
    UserError
        Where there is no run, or it did not finish.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.open_run("outputs/first").ratings  # doctest: +SKIP
    """
    path = Path(folder)
    with _raise_user_errors():
        if sweep_jobs(path):
            return Run(path)
        if not (path / "manifest.json").is_file():
            raise FileError(
                f"{path}: has no manifest.json. Expected the folder that a run printed behind 'files'."
            )
        manifest = read_manifest(path)
        if not manifest.get("finished_at"):
            why = manifest.get("error") or "it was stopped"
            raise FileError(f"{path}: did not finish ({why}). Give its command again.")
    return Run(path)


# How it is done


def _budget_setting(dollars: float | None) -> dict[str, Any]:
    return {} if dollars is None else {"judging__budget_usd": dollars}


def _run(
    words: Sequence[str],
    settings: Mapping[str, Any],
    out: File | None,
    stop: threading.Event | None,
    *,
    is_free: bool = False,
) -> Run:
    """Run words and settings.

    is_free  what is made costs nothing: without `out` its folder is temporary, and goes with the run
    """
    is_temporary = is_free and out is None
    with (
        _handle_stop(stop),
        _collect_notes() as notes,
        silence(),
        _open_folder(out, is_temporary) as folder,
    ):
        places = {} if not is_temporary else {"cache_dir": folder.path("cache")}
        override_words, mappings = _make_words(words, {**places, **settings}, folder)
        with folder.naming(notes), _raise_user_errors(override_words):
            done = _run_words(override_words, mappings, folder, notes)
    if is_temporary:
        atexit.register(_remove, done.folder, os.getpid())
    return done


@contextlib.contextmanager
def _handle_stop(stop: threading.Event | None) -> Iterator[None]:
    """Raise StoppedError for a run that its caller has stopped; a signal's KeyboardInterrupt stays as it is."""
    try:
        with interrupts.run_call(stop):
            interrupts.check_interrupt()
            yield
    except interrupts.InterruptError as error:
        if error.number is not None or stop is None or not stop.is_set():
            raise
        raise StoppedError(
            "stopped. Every answer so far is stored; the same call goes on."
        ) from None


def _remove(folder: Path, process: int) -> None:
    """Remove a temporary folder at the end of the process that made it; a forked child leaves it there."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _run_words(
    override_words: Sequence[str],
    mappings: Mapping[str, Any],
    folder: _Folder,
    notes: list[str],
) -> Run:
    try:
        job, composed = _prepare(override_words, mappings)
    except NothingToPlanError as nothing:
        raise SettingError(f"plan: {nothing}") from None
    if job.config.get("plan"):
        raise SettingError("plan: run() runs. elo_exp.plan(...) takes the same words.")
    run_dir = (folder.place or composed.run_dir).absolute()
    overrides = _select_overrides(override_words)
    with running.open_run(job, run_dir, overrides) as prepared_run:
        if (text := prepared_run.dry_run()) is not None:
            return Run(run_dir, text=text, notes=notes)
        run_dir.mkdir(parents=True, exist_ok=True)
        settings_given = [*overrides, *(f"{k}={v}" for k, v in mappings.items())]
        _write_settings(run_dir, job, settings_given)
        kind = str(composed.choices["experiment"])
        info = composing.describe_job(
            job, run_dir, kind, settings_given, name=run_dir.name
        )
        is_lazy = job.settings.figures is None
        if is_lazy:
            job.settings.figures = False
        report, _ = prepared_run.run(info)
    done = Run(
        run_dir, text=mask_text(report.text), notes=notes, exit_code=report.exit_code
    )
    done._report = report if is_lazy else None
    return done


def _prepare(
    override_words: Sequence[str], mappings: Mapping[str, Any]
) -> tuple[composing.Job, composing.ComposedConfig]:
    with _PREPARE_LOCK:
        composed = composing.compose(override_words)
        composing.put_values(composed.cfg, mappings)
        return composing.prepare(
            composed.cfg, _select_overrides(override_words)
        ), composed


def _select_overrides(override_words: Sequence[str]) -> list[str]:
    return [word for word in override_words if not re.match(r"-|\W*hydra[./]", word)]


def _write_settings(
    run_dir: Path, job: composing.Job, settings_given: Sequence[str]
) -> None:
    """Write what Hydra writes of a command."""
    folder = run_dir / ".hydra"
    folder.mkdir(exist_ok=True)
    overrides = current_mask().values(list(settings_given))
    for name, content in {"config": job.config, "overrides": overrides}.items():
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        write_whole(folder / f"{name}.yaml", text)


def _make_plan_row(judge_plan: Planned, row: PlanRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _PLAN_COLUMNS}
    gap = row.detects if judge_plan.what == "verdicts" else math.nan
    return {
        "judge": judge_plan.judge_model,
        **fields,
        "detects": gap if math.isfinite(gap) else None,
    }


@contextlib.contextmanager
def _raise_user_errors(words: Sequence[str] = ()) -> Iterator[None]:
    """Raise the user's mistakes as UserError, in the words of the command; ours as they are."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (line := format_user_error(error, words)) is None:
            raise
        raise choose_error_class(error)(line) from None


# Settings


def _make_words(
    words: Sequence[str], settings: Mapping[str, Any], folder: _Folder
) -> tuple[list[str], dict[str, Any]]:
    """Return words and settings as the words of a command, and the mappings, which Hydra's words cannot hold."""
    if flags := [w for w in words if w.startswith("-") and "--config-dir=" not in w]:
        raise SettingError(
            f"{flags[0]}: is a flag of the command, not of the library. In place of a sweep call run() "
            "in a loop; a folder of your own files is '--config-dir=DIR', one word."
        )
    override_words, mappings = list(words), dict[str, Any]()
    for name, value in settings.items():
        key = name.replace("__", ".")
        if key in _TABLE_SETTINGS:
            value = _name_files(key, value, folder)  # noqa: PLW2901
        if isinstance(value, Mapping):
            mappings[key] = frames.to_plain(value)
        else:
            override_words.append(f"{key}={_format_value(value, key)}")
    if not any(override_key(word).startswith("tracker") for word in override_words):
        override_words.append("tracker=local")
    return expand_shorthand(override_words), mappings


def _format_value(value: Any, key: str) -> str:
    """Return a value as a word of Hydra's has it."""
    value = frames.to_plain(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        is_name = re.fullmatch(r"[A-Za-z_][\w/-]*", value, re.ASCII)
        is_word = is_name and value.lower() not in _WORDS_TO_QUOTE
        return value if is_word else quote_value(value)
    if isinstance(value, list):
        return f"[{','.join(_format_value(item, key) for item in value)}]"
    if isinstance(value, dict) and set(value) == {"name", "file"}:
        return (
            f"{{name:{quote_value(value['name'])},file:{quote_value(value['file'])}}}"
        )
    raise SettingError(
        f"{key}: found {value!r:.80}. Expected a number, a text, a list or a mapping."
    )


# Tables


class _Folder:
    """Where a run leaves its files, and the tables that it is given.

    place  None: none is needed before the run has its own
    """

    def __init__(self, root: Path | None, *, is_new: bool = False) -> None:
        self.place = root
        self._is_new = is_new
        self._tables: dict[str, str] = {}  # by their files

    def write(self, name: str, table: Any) -> str:
        """Write a table that messages call by its name."""
        path = frames.write_table(table, name, self.path("given", escape_name(name)))
        self._tables[str(path)] = name
        return str(path)

    @contextlib.contextmanager
    def naming(self, notes: list[str]) -> Iterator[None]:
        """Call tables by their names in what is said, and not by their files."""
        try:
            yield
        except UserError as error:
            raise error.reword(self._named(error.line), *error.below) from None
        finally:
            notes[:] = map(self._named, notes)

    def _named(self, text: str) -> str:
        for path, name in self._tables.items():
            text = text.replace(path, name)
        return text

    def path(self, *parts: str) -> Path:
        if self.place is None:
            now = datetime.now()
            name = f"own_{now:%Y-%m-%d_%H-%M-%S}_{secrets.token_hex(4)}"
            self.place = Path("outputs", name).absolute()
        if not self.place.exists():
            self.place.mkdir(parents=True)
            self._is_new = True
        return self.place.joinpath(*parts)

    def remove_if_unused(self) -> None:
        """Leave nothing of a run that did not begin."""
        is_used = self.place and (self.place / "manifest.json").exists()
        if self._is_new and self.place and not is_used:
            shutil.rmtree(self.place, ignore_errors=True)


@contextlib.contextmanager
def _open_folder(out: File | None, is_temporary: bool) -> Iterator[_Folder]:
    root = None if out is None else Path(out).absolute()
    if is_temporary:
        root = Path(tempfile.mkdtemp(prefix="elo_exp_"))
    folder = _Folder(root, is_new=is_temporary)
    try:
        yield folder
    except BaseException:
        folder.remove_if_unused()
        raise


def _name_files(key: str, value: Any, folder: _Folder) -> Any:
    """Return the files that a value names, or those that its tables are written to."""
    if isinstance(value, Mapping) and key == "answers":
        return [
            {"name": str(name), "file": _name_file(key, table, folder, str(name))}
            for name, table in value.items()
        ]
    is_files = isinstance(value, list | tuple) and all(map(_is_file, value))
    if is_files and value:
        return [os.fspath(file) for file in value]
    return value if value is None else _name_file(key, value, folder, key)


def _is_file(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _name_file(key: str, table: Any, folder: _Folder, name: str) -> str:
    if _is_file(table):
        return os.fspath(table)  # type: ignore[no-any-return]
    return folder.write(name, table)


# What is said on the way


class _Notes(logging.Handler):
    """Keeps the lines of the runs that go on, each in its thread, and hands on what would have been shown without us."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, list[str]] = {}  # by thread
        self._before: tuple[int, bool, int, list[logging.Handler]] | None = None

    def add(self, notes: list[str]) -> None:
        with _NOTES_LOCK:
            if not self.of:
                level = _LOGGER.getEffectiveLevel()
                self._before = (_LOGGER.level, _LOGGER.propagate, level, _LOGGER.handlers)  # fmt: skip
                _LOGGER.handlers, _LOGGER.propagate = [self], False
                _LOGGER.setLevel(min(level, logging.INFO))
            self.of[threading.get_ident()] = notes

    def remove(self, outer: list[str] | None) -> None:
        with _NOTES_LOCK:
            del self.of[threading.get_ident()]
            if outer is not None:
                self.of[threading.get_ident()] = outer
            if not self.of and self._before is not None:
                level_before, _LOGGER.propagate, _, _LOGGER.handlers = self._before
                _LOGGER.setLevel(level_before)

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = mask_text(record.getMessage()), None
        notes = self.of.get(record.thread or 0)
        if notes is None and len(self.of) == 1:  # of a thread that the run has begun
            (notes,) = self.of.values()
        if notes is not None and record.levelno >= logging.INFO:
            notes.append(record.getMessage())
        if self._before is None:
            return
        _, propagates, level, handlers = self._before
        if record.levelno < level:
            return
        above = logging.getLogger().handlers if propagates else []
        for handler in [*handlers, *above]:
            if record.levelno >= handler.level:
                handler.handle(record)


_NOTES_LOCK = threading.RLock()
_HANDLER = _Notes()


@contextlib.contextmanager
def _collect_notes() -> Iterator[list[str]]:
    """Give a list that takes the lines of this thread's run. Nothing is printed but what the program's own logging shows."""
    notes: list[str] = []
    outer = _HANDLER.of.get(threading.get_ident())
    _HANDLER.add(notes)
    try:
        yield notes
    finally:
        _HANDLER.remove(outer)


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
