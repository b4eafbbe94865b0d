"""The functions of the library: what the command does, called from Python."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from elo_exp import interrupts
from elo_exp.data.battle_columns import FIELDS
from elo_exp.errors import FileError, SettingError, StoppedError
from elo_exp.files import write_whole
from elo_exp.launching import composing, running
from elo_exp.launching.composing import NothingToPlanError
from elo_exp.library.arguments import (
    CallFolder,
    File,
    Table,
    make_words,
    open_folder,
)
from elo_exp.library.notes import collect_notes
from elo_exp.library.results import Plan, Run
from elo_exp.library.rows import Rows
from elo_exp.library.user_mistakes import raise_user_errors
from elo_exp.masking import current_mask, mask_text
from elo_exp.progress import silence
from elo_exp.runs.reading import read_manifest, sweep_jobs

if TYPE_CHECKING:
    from elo_exp.pipeline.planning import Plan as Planned
    from elo_exp.pipeline.planning import PlanRow

# Hydra's parsers belong to the process
_PREPARE_LOCK = threading.RLock()
_PLAN_COLUMNS = (
    *("dimension", "n_prompts", "n_entrants", "pairs", "queries", "stored"),
    *("under_way", "new", "input_tokens", "output_tokens", "dollars", "dollars_plain"),
)


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
        Such as `"sonnet"`; docs/judges.md has all. There is no default: `"lexical"` is free, counts words,
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
        collect_notes() as notes,
        silence(),
    ):
        chosen = {**settings, **_budget_setting(budget_usd), "plan": True}
        folder = CallFolder(Path(temporary))
        override_words, mappings = make_words(words, chosen, folder)
        with folder.naming(notes), raise_user_errors(override_words):
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
    FileError
        Where there is no run, or it did not finish.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.open_run("outputs/first").ratings  # doctest: +SKIP
    """
    path = Path(folder)
    with raise_user_errors():
        if sweep_jobs(path):
            return Run(path)
        if not (path / "manifest.json").is_file():
            raise FileError.bad_file(
                path,
                "is not a run folder, as it has no manifest.json",
                "Give the folder that a run printed after files.",
            )
        manifest = read_manifest(path)
        if not manifest.get("finished_at"):
            why = manifest.get("error") or "it was stopped"
            raise FileError.bad_file(
                path, f"did not finish ({why})", "Run its command again to finish it."
            )
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
        collect_notes() as notes,
        silence(),
        open_folder(out, is_temporary) as folder,
    ):
        places = {} if not is_temporary else {"cache_dir": folder.path("cache")}
        override_words, mappings = make_words(words, {**places, **settings}, folder)
        with folder.naming(notes), raise_user_errors(override_words):
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
    folder: CallFolder,
    notes: list[str],
) -> Run:
    try:
        job, composed = _prepare(override_words, mappings)
    except NothingToPlanError as nothing:
        raise SettingError(f"There is nothing to plan: {nothing}") from None
    if job.config.get("plan"):
        raise SettingError(
            "run() cannot plan. To plan, call elo_exp.plan() with the same words."
        )
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
    return Run(
        run_dir,
        text=mask_text(report.text),
        notes=notes,
        exit_code=report.exit_code,
        report=report if is_lazy else None,
    )


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
