"""elo_exp in Python: the command's experiments as functions, by the same configuration, store and words.

    import elo_exp
    run = elo_exp.rate(frame, winner="preferred")
    run = elo_exp.compare({"old": "old.jsonl", "new": frame}, judge="sonnet", budget_usd=2)
    pandas.DataFrame(run.ratings)

Two defaults differ from the command's: a run is tracked in its folder (tracker=local), and figures are drawn when they
are asked for (figures=False). Nothing is printed: what the command says before its table goes to the logger `elo_exp`
and to `Run.notes`.
"""

import contextlib
import contextvars
import dataclasses
import html
import logging
import math
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elo_exp import CONF, config
from elo_exp.console import text_table
from elo_exp.data.battle_files import NAMES
from elo_exp.errors import format_user_error
from elo_exp.experiments import Context, Plans
from elo_exp.files import read_json, read_jsonl, write_jsonl
from elo_exp.records import Plot, UserError
from elo_exp.running import dry_run
from elo_exp.running import run as run_job
from elo_exp.runs.reading import primary_method, read_manifest, sweep_jobs
from elo_exp.store.store import Store
from elo_exp.words import rewritten

Table = Any  # a frame of pandas, polars or pyarrow, rows, or a dictionary of columns
Source = str | Path | Table

_LOGGER = logging.getLogger("elo_exp")
_DRAWING = threading.Lock()  # Matplotlib is not made for threads
_notes: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "notes", default=None
)
_MISSING = ("NAType", "NaTType")  # of pandas
_BOARD = ("dimension", "rank", "model", "rating", "ci_low", "ci_high")


class _Notes(logging.Handler):
    """Keeps the lines of the run that this thread is in."""

    def emit(self, record: logging.LogRecord) -> None:
        if (lines := _notes.get()) is not None:
            lines.append(record.getMessage())


_LOGGER.addHandler(_Notes())
if _LOGGER.level == logging.NOTSET:
    _LOGGER.setLevel(logging.INFO)


class Rows(list[dict[str, Any]]):
    """Rows as dictionaries, which `pandas.DataFrame(rows)` and `polars.DataFrame(rows,
    infer_schema_length=None)` take as they are; a table in a notebook."""

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self for name in row))
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>"
            for row in self
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Run:
    """A finished run, read from its folder: what `rate`, `compare`, `audit` and `run` return.

    Printed it is the console's text, in a notebook a board.

    Attributes
    ----------
    folder : Path
        The run folder; docs/files.md describes what is in it.
    text : str
        What the command would print.
    notes : list of str
        Lines that it would print before: what was read, warnings, spending.
    exit_code : int
        What it would exit with: of a gate 0 (pass), 1 (fail) or 3 (cannot tell).
    """

    def __init__(
        self,
        folder: str | Path,
        text: str = "",
        *,
        notes: Sequence[str] = (),
        exit_code: int = 0,
        draw: Callable[[], Sequence[Plot]] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.text = text
        self.notes = list(notes)
        self.exit_code = exit_code
        self._draw = draw

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """manifest.json: configuration, versions, hashes of inputs, seeds, usage and cost."""
        return read_manifest(self.folder)

    @cached_property
    def ratings(self) -> Rows:
        """One row for each dimension, method and model.

        `rating`, `std_error`, `ci_low` and `ci_high` are points, `rank_low` and `rank_high` the ranks that the
        intervals leave open, `p_best` the probability of being the best. Raises `UserError` for a run without ratings.
        """
        return Rows(
            {"dimension": dimension, "method": method, **row}
            for dimension, by_method in self._ratings["dimensions"].items()
            for method, board in by_method.items()
            for row in board["ratings"]
        )

    @cached_property
    def differences(self) -> Rows:
        """One row for each method and pair: the difference in points, its interval, p-value and Holm's."""
        by_method = self._ratings["differences"]
        return Rows(
            {"method": method, **row}
            for method, rows in by_method.items()
            for row in rows
        )

    @cached_property
    def conclusions(self) -> Rows:
        """One row for each dimension: the state of the evidence, and the sentence that may be said."""
        found = self._ratings.get("conclusions", {})
        return Rows({"dimension": name, **row} for name, row in found.items())

    @cached_property
    def battles(self) -> Rows:
        """One row for each battle, as in battles.jsonl; none where the run wrote no such file."""
        path = self.folder / "battles.jsonl"
        return Rows(row for _, row in read_jsonl(path)) if path.is_file() else Rows()

    @cached_property
    def verdicts(self) -> Rows:
        """One row for each judged comparison, with the verdict on each order in `raw`; of an audit, as verdicts.jsonl."""
        paths = sorted((self.folder / "verdicts").glob("*.jsonl"))
        single = self.folder / "verdicts.jsonl"
        paths += [single] if single.is_file() else []
        return Rows(row for path in paths for _, row in read_jsonl(path))

    @cached_property
    def probes(self) -> Rows:
        """Of an audit, one row for each dimension and probe: its estimate, interval and verdict."""
        path = self.folder / "audit.json"
        found = read_json(path) if path.is_file() else {}
        return Rows(
            {"dimension": dimension, **row}
            for dimension, audit in found.items()
            for row in audit["results"]
        )

    @cached_property
    def sweep(self) -> list["Run"]:
        """Of a sweep's folder, its jobs in their order; none of any other run."""
        return [Run(job) for job in sweep_jobs(self.folder)]

    def figure(self, name: str) -> Any:
        """Return a figure, such as "ratings", as IPython's SVG.

        Raises
        ------
        UserError
            Where the run has no figure of this name, naming those that it has.
        """
        from IPython.display import SVG  # of the notebook

        folder = self.folder / "figures"
        if not folder.is_dir() and self._draw is not None:
            from elo_exp.report.artifacts import write_plots

            with _DRAWING:
                write_plots(self.folder, self._draw())
        path = folder / f"{name}.svg"
        if not path.is_file():
            names = ", ".join(sorted(p.stem for p in folder.glob("*.svg"))) or "none"
            raise UserError(
                f"figure: found {name!r}. Expected one of this run's: {names}."
            )
        return SVG(filename=str(path))  # type: ignore[no-untyped-call]

    @cached_property
    def _ratings(self) -> dict[str, Any]:
        path = self.folder / "ratings.json"
        if not path.is_file():
            raise UserError(
                f"{self.folder}: has no ratings.json. Expected the folder of a tournament, an arena "
                "or of experiment=rate."
            )
        found: dict[str, Any] = read_json(path)
        return found

    @property
    def _board(self) -> Rows:
        """The rows of the method that leads, with the columns that a reader looks for."""
        return Rows(
            {name: row[name] for name in _BOARD}
            for row in self.ratings
            if row["method"]
            == primary_method(self._ratings["dimensions"][row["dimension"]])
        )

    def __repr__(self) -> str:
        if self.text:
            return self.text
        if not (self.folder / "ratings.json").is_file():
            return f"Run({str(self.folder)!r})"
        rows = [[_text(cell) for cell in row.values()] for row in self._board]
        said = [f"{row['dimension']}: {row['sentence']}" for row in self.conclusions]
        return "\n".join([*said, text_table(_BOARD, rows, text=("model",))])

    def _repr_html_(self) -> str:
        if not (self.folder / "ratings.json").is_file():
            return f"<pre>{html.escape(repr(self))}</pre>"
        said = "".join(
            f"<li>{html.escape(row['dimension'])}: {html.escape(row['sentence'])}</li>"
            for row in self.conclusions
        )
        board = self._board._repr_html_()
        return (
            f"<ul>{said}</ul>{board}<p><code>{html.escape(str(self.folder))}</code></p>"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What judging would cost, before anything is paid.

    Attributes
    ----------
    text : str
        The table that `plan=true` prints.
    rows : Rows
        One row for each judge and dimension: `pairs`, `queries`, `stored`, `new`, `input_tokens`, `output_tokens`,
        `dollars`, and `detects`, the gap in points that is found with 80 % power.
    notes : list of str
        Lines before the table: what was read, and warnings.
    """

    text: str
    rows: Rows = dataclasses.field(default_factory=Rows)
    notes: Sequence[str] = ()

    @property
    def dollars(self) -> float:
        """Expected cost of all rows, in dollars."""
        return math.fsum(row["dollars"] for row in self.rows)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def run(*words: str, out: str | Path | None = None, **settings: Any) -> Run:
    """Run the command in this process.

    Parameters
    ----------
    *words : str
        Words of the command, such as "mode=headline", "judge=opus" or a file.
    out : str or Path, optional
        The run folder; by default the command's, below outputs/.
    **settings
        Settings by name, two underscores for a dot: `judging__looks=5`. Values are taken as they are. A group of the
        configuration is chosen by name: `judge="opus"`, `rubric=["factuality"]`.

    Returns
    -------
    Run
        The finished run, read from its folder.

    Raises
    ------
    UserError
        With the line that the command would print.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.run("mode=demo", elo__n_perms=100).ratings  # doctest: +SKIP
    """
    finished = _run(words, settings, out)
    assert isinstance(finished, Run)
    return finished


def rate(
    battles: Source | Sequence[str | Path],
    *words: str,
    out: str | Path | None = None,
    values: Mapping[str, str] | None = None,
    **settings: Any,
) -> Run:
    """Rate battles or scores of any program that is known.

    Parameters
    ----------
    battles : str, Path, list of them, or a table
        Files, or a frame of pandas or polars, a pyarrow table, rows or a dictionary of columns.
    *words : str
        More words of the command.
    out : str or Path, optional
        The run folder; by default a temporary one.
    values : mapping, optional
        The table's words for winners, to `model_a`, `model_b` and `tie`: `{"left": "model_a"}`.
    **settings
        Names of columns (`winner="preferred"`, `model_a="left"`, `judge_model`, `question_id`, `dimension`, ...), and
        settings as in `run`.

    Returns
    -------
    Run

    Raises
    ------
    UserError
        Naming row, what it holds and what was expected.

    Examples
    --------
    >>> rows = [dict(model_a="a", model_b="b", winner="model_a")] * 3
    >>> rows += [dict(model_a="a", model_b="b", winner="model_b")]
    >>> elo_exp.rate(rows).conclusions[0]["first"]  # doctest: +SKIP
    'a'
    """
    folder = Path(tempfile.mkdtemp(prefix="elo_exp_"))
    columns = {name: settings.pop(name) for name in NAMES if name in settings}
    named = {f"battles_columns__{name}": column for name, column in columns.items()}
    if out is None:
        settings.setdefault("cache_dir", str(folder / "cache"))
    given = {
        "battles": _files(battles, folder / "battles.jsonl"),
        "battles_values": dict(values or {}),
        **named,
        **settings,
    }
    finished = _run(("experiment=rate", *words), given, out or folder / "run")
    assert isinstance(finished, Run)
    return finished


def compare(
    answers: Mapping[str, Source] | Sequence[str | Path],
    *words: str,
    judge: str,
    prompts: Source | None = None,
    budget_usd: float | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Have a judge compare answers that exist, pair by pair in both orders, and rate them.

    Parameters
    ----------
    answers : mapping or sequence
        Files of answers in any format that is known, or tables with the columns `prompt` (or `id`) and `answer`, by
        the name of whoever answered; a sequence of files takes the names from the files.
    *words : str
        More words of the command, such as "judge.model=NAME".
    judge : str
        Who judges: an option of the group `judge`. There is no default.
    prompts : str, Path or table, optional
        The prompts, where the answers do not hold them.
    budget_usd : float, optional
        Never spend more, in dollars; by default the mode's cap.
    out : str or Path, optional
        The run folder; by default below outputs/.
    **settings
        As in `run`.

    Returns
    -------
    Run

    Raises
    ------
    UserError
        With the line that the command would print, before anything is spent.
    """
    with _tables() as folder:
        given = _judged(answers, judge, prompts, budget_usd, folder)
        finished = _run(_own(words), given | settings, out)
    assert isinstance(finished, Run)
    return finished


def audit(
    *words: str,
    judge: str,
    prompts: Source | None = None,
    budget_usd: float | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Ask a judge questions whose right answer is known: how far can it be trusted?

    Parameters
    ----------
    *words : str
        More words of the command.
    judge : str
        An option of the group `judge`.
    prompts : str, Path or table, optional
        Prompts with references; by default the bank that ships.
    budget_usd : float, optional
        Never spend more, in dollars.
    out : str or Path, optional
        The run folder; by default below outputs/.
    **settings
        As in `run`.

    Returns
    -------
    Run
        Its `probes` are the rows.

    Raises
    ------
    UserError
        With the line that the command would print, before anything is spent.
    """
    with _tables() as folder:
        given = _judged(None, judge, prompts, budget_usd, folder)
        own = (
            ("study=own",) if prompts is not None and not _names(words, "study") else ()
        )
        finished = _run(("experiment=audit", *own, *words), given | settings, out)
    assert isinstance(finished, Run)
    return finished


def plan(
    *words: str,
    answers: Mapping[str, Source] | Sequence[str | Path] | None = None,
    judge: str | None = None,
    prompts: Source | None = None,
    budget_usd: float | None = None,
    **settings: Any,
) -> Plan:
    """Say what judging would cost, and which differences it would detect; needs no key and no model.

    Parameters
    ----------
    *words : str
        Words of the command, such as "mode=pilot" or "experiment=audit".
    answers, judge, prompts, budget_usd
        As in `compare`.
    **settings
        As in `run`.

    Returns
    -------
    Plan

    Raises
    ------
    UserError
        Where the plan cannot be counted.
    """
    with _tables() as folder:
        given = _judged(answers, judge, prompts, budget_usd, folder)
        is_own = answers is not None or prompts is not None
        found = _run(
            _own(words) if is_own else words, given | settings, None, plans=True
        )
    assert isinstance(found, Plan)
    return found


def open_run(folder: str | Path) -> Run:
    """Open a finished run, or a sweep, by its folder.

    Parameters
    ----------
    folder : str or Path
        The folder that a run printed.

    Returns
    -------
    Run
        What is in the folder is data: nothing of it is run or resolved.

    Raises
    ------
    UserError
        Where the folder holds no run.
    """
    opened = Run(folder)
    if not sweep_jobs(opened.folder):
        with _mistakes(()):
            _ = opened.manifest
    return opened


def _run(
    words: Sequence[str],
    settings: Mapping[str, Any],
    out: str | Path | None,
    *,
    plans: bool = False,
) -> Run | Plan:
    """Compose, build and run a job; with `plans`, plan it."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        chosen, values = _apart(settings)
        given = rewritten(["tracker=local", "figures=false", *words, *chosen])
        with _mistakes(given):
            return _done(given, values, out, notes, plans=plans)
    finally:
        _notes.reset(token)


def _done(
    given: Sequence[str],
    values: Mapping[str, Any],
    out: str | Path | None,
    notes: list[str],
    *,
    plans: bool,
) -> Run | Plan:
    composed = config.compose(given)
    if plans:
        values = {**values, "plan": True}
    config.put(composed.cfg, values)
    overrides = [word for word in given if not word.startswith("-")]
    job = config.prepare(composed.cfg, overrides)
    folder = Path(out).absolute() if out else composed.run_dir
    kind = str(composed.choices["experiment"])
    told = [*overrides, *(f"{key}={value}" for key, value in values.items())]
    with Store(job.store_path) as store:
        context = Context(
            run_dir=folder,
            store=store,
            tracker=job.settings.tracker,
            overrides=overrides,
        )
        if (text := dry_run(job, context)) is not None:
            if not plans:
                return Run(folder, text, notes=notes)
            rows = [
                {"judge": plan.judge_model, **row.to_dict()}
                for plan in _plans(job.experiment, store)
                for row in plan.rows
            ]
            return Plan(text=text, rows=Rows(rows), notes=notes)
        if plans:
            raise UserError(
                f"plan: experiment={kind} asks no judge, and costs nothing."
            )
        folder.mkdir(parents=True, exist_ok=True)
        info = config.described(job, folder, kind, told, name=folder.name)
        report, _ = run_job(job, info, context)
    return Run(
        folder,
        report.text,
        notes=notes,
        exit_code=report.exit_code,
        draw=report.figures,
    )


def _plans(experiment: object, store: Store) -> Sequence[Any]:
    return experiment.plans(store) if isinstance(experiment, Plans) else ()


@contextlib.contextmanager
def _mistakes(words: Sequence[str]) -> Iterator[None]:
    """The user's mistakes as UserError, in the words of the command; ours as they are."""
    try:
        yield
    except config.NothingToPlanError as error:
        raise UserError(f"plan: {error}") from None
    except Exception as error:
        if (line := format_user_error(error, words)) is None:
            raise
        raise UserError(line) from None


# What is given


def _apart(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the words that choose options of groups, and the values of other settings by dotted name."""
    words, values = list[str](), dict[str, Any]()
    for name, value in settings.items():
        key = name.replace("__", ".")
        if "." not in key and (CONF / key).is_dir():
            listed = value if isinstance(value, str) else f"[{','.join(value)}]"
            words.append(f"{key}={listed}")
        else:
            values[key] = value
    return words, values


def _own(words: Sequence[str]) -> tuple[str, ...]:
    """The words, and the study and the mode of one's own data where they choose none."""
    added = [f"{name}=own" for name in ("study", "mode") if not _names(words, name)]
    return (*added, *words)


def _names(words: Sequence[str], group: str) -> bool:
    return any(word.startswith(f"{group}=") for word in words)


def _judged(
    answers: Mapping[str, Source] | Sequence[str | Path] | None,
    judge: str | None,
    prompts: Source | None,
    budget_usd: float | None,
    folder: Path,
) -> dict[str, Any]:
    """Settings of answers, judge, prompts and cap; tables are written to files of the folder."""
    given: dict[str, Any] = {}
    if judge is not None:
        given["judge"] = judge
    if isinstance(answers, Mapping):
        given["answers"] = [
            {"name": name, "file": _file(source, folder / f"answers_{n}.jsonl")}
            for n, (name, source) in enumerate(answers.items())
        ]
    elif answers is not None:
        given["answers"] = [str(source) for source in answers]
    if prompts is not None:
        given["prompts__bank_path"] = _file(prompts, folder / "prompts.jsonl")
    if budget_usd is not None:
        given["judging__budget_usd"] = budget_usd
    return given


@contextlib.contextmanager
def _tables() -> Iterator[Path]:
    """A folder for tables that are given as such."""
    yield Path(tempfile.mkdtemp(prefix="elo_exp_"))


def _files(source: Source | Sequence[str | Path], path: Path) -> list[str]:
    if isinstance(source, list | tuple) and all(
        isinstance(one, str | Path) for one in source
    ):
        return [str(one) for one in source]
    return [_file(source, path)]


def _file(source: Source, path: Path) -> str:
    """The path of a file, or of one to which a table is written."""
    if isinstance(source, str | Path):
        return str(source)
    rows = (
        {name: _plain(value) for name, value in row.items()} for row in _rows(source)
    )
    return str(write_jsonl(path, rows))


@runtime_checkable
class _Polars(Protocol):
    def to_dicts(self) -> list[dict[str, Any]]: ...


@runtime_checkable
class _Arrow(Protocol):
    def to_pylist(self) -> list[dict[str, Any]]: ...


@runtime_checkable
class _Pandas(Protocol):
    def to_dict(self, orient: str) -> Any: ...


def _rows(table: Table) -> Iterable[Mapping[str, Any]]:
    """The rows of a frame, of a dictionary of columns, or rows. Raises UserError for anything else."""
    if isinstance(table, _Polars):
        return table.to_dicts()
    if isinstance(table, _Arrow):
        return table.to_pylist()
    if isinstance(table, _Pandas) and not isinstance(table, Mapping):
        rows: list[dict[str, Any]] = table.to_dict("records")
        return rows
    if isinstance(table, Mapping):
        names = list(table)
        columns = zip(*(table[name] for name in names), strict=True)
        return [dict(zip(names, values, strict=True)) for values in columns]
    if isinstance(table, Iterable):
        rows = list(table)
        if all(isinstance(row, Mapping) for row in rows):
            return rows
    raise UserError(
        f"found {type(table).__name__}. Expected a file, a frame of pandas, polars or pyarrow, rows as "
        "dictionaries, or a dictionary of columns."
    )


def _plain(value: Any) -> Any:
    """A value as JSON has it: None for what is missing, a number for a numpy scalar, text for the rest."""
    if type(value).__name__ in _MISSING or (
        isinstance(value, float) and math.isnan(value)
    ):
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return _plain(value.tolist())
    return value if isinstance(value, str | int | float | None) else str(value)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"
    return "" if value is None else str(value)


def _cell(value: object) -> str:
    return html.escape(_text(value))
