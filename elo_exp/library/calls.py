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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from elo_exp import interrupts
from elo_exp.data.battle_columns import FIELDS
from elo_exp.errors import FileError, SettingError, StoppedError
from elo_exp.files import write_whole
from elo_exp.functions import Versioned
from elo_exp.launching import composing, running
from elo_exp.launching.setting_names import NAME_IN_FILES
from elo_exp.library.arguments import (
    CallFolder,
    File,
    Table,
    make_words,
    open_folder,
)
from elo_exp.library.function_arguments import replace_functions
from elo_exp.library.notes import collect_notes
from elo_exp.library.results import Plan, Run
from elo_exp.library.rows import Rows
from elo_exp.library.tables import list_finished_jobs
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
_ANSWER_COLUMNS = (
    *("entrant", "n_wanted", "new", "n_chars", "is_upper_bound"),
    *("input_tokens", "output_tokens", "dollars"),
)


def run(
    *words: str,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Run any experiment and return its finished run.

    This is `python -m elo_exp`, in this process. Use it if no other function of the library fits.

    Parameters
    ----------
    *words : str
        Words of the command, such as `"experiment=oracle"`, `"mode=pilot"` or the name of a file.
    out : path, optional
        The run folder. By default, the run makes a new folder in `outputs/`.
    stop : threading.Event, optional
        An event that another thread sets to end the call early, as Ctrl-C ends the command. Answers that are on their
        way are awaited and stored.
    **settings
        Settings as Python values. Write two underscores for a dot: `elo__k=8` is `elo.k=8`. The values of `answers`,
        `battles` and `prompts` may be tables. By default `tracker` is `"local"`, and figures are drawn when you ask
        for them.

    Returns
    -------
    Run
        The finished run, with its tables and figures.

    Raises
    ------
    UserError
        If a setting, a file or a cap stops the run. The text is the one line that the command prints.
    StoppedError
        If `stop` was set before the run ended. To continue, call the function again with the same arguments.

    Examples
    --------
    Run the offline demo on one rubric and 20 prompts.

    >>> import elo_exp
    >>> demo = elo_exp.run("rubric=[factuality]", prompts__n=20)
    >>> demo.leaderboard[0]["entrant"]
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
    """Rate battles or scores that already exist. No judge is called, and it costs nothing.

    Parameters
    ----------
    battles : DataFrame, sequence of dict, path, or sequence of paths
        One battle per row. A table may come from pandas, polars or pyarrow. Files may have any format of
        docs/formats.md, such as a log of lm-eval.
    *words : str
        Further words of the command.
    values : dict of str to str, optional
        The words in the winner column, each with its meaning: `model_a`, `model_b` or `tie`. An example is
        `{"left": "model_a", "right": "model_b"}`.
    out : path, optional
        The run folder. By default, it is a temporary folder that is deleted when the program ends.
    stop : threading.Event, optional
        An event that another thread sets to end the call early, as Ctrl-C ends the command. Answers that are on their
        way are awaited and stored.
    **settings
        Names of your columns, such as `winner="preferred"` or `question_id="item"`, and settings as in `run`, such as
        `elo__k=8`. `columns={"item": "case", "score": "mark"}` names the columns of scores.

    Returns
    -------
    Run
        The finished run. `leaderboard` has a row per rubric and entrant.

    Raises
    ------
    UserError
        If the rows are not battles. The text gives the row and the expected value.
    StoppedError
        If `stop` was set before the run ended.

    Examples
    --------
    Rate 40 battles of which the new model won 30.

    >>> import elo_exp
    >>> winners = ["new"] * 30 + ["old"] * 10
    >>> battles = [{"model_a": "new", "model_b": "old", "winner": name} for name in winners]
    >>> run = elo_exp.rate(battles)
    >>> [(row["entrant"], round(row["rating"])) for row in run.leaderboard]
    [('new', 1495), ('old', 1305)]

    Name the columns and words of your own table.

    >>> rows = [{"left": "new", "right": "old", "vote": side} for side in ["L"] * 30 + ["R"] * 10]
    >>> run = elo_exp.rate(
    ...     rows, model_a="left", model_b="right", winner="vote", values={"L": "model_a", "R": "model_b"}
    ... )
    >>> round(run.differences[0]["difference"])
    191
    """
    arguments: dict[str, Any] = {"battles": battles}
    for name, value in settings.items():
        column = f"battles_columns.{name}"
        is_column = name in FIELDS or column in NAME_IN_FILES
        arguments[column if is_column else name] = value
    if values is not None:
        arguments["battles_values"] = values
    return _run(("experiment=rate", *words), arguments, out, stop, is_free=True)


def compare(
    answers: Table
    | Sequence[File]
    | Mapping[str, Table | Callable[..., Any] | Versioned],
    *words: str,
    judge: str
    | Sequence[str]
    | Mapping[str, str]
    | Callable[..., Any]
    | Versioned
    | None = None,
    scorer: Callable[..., Any] | Versioned | None = None,
    prompts: Table | Sequence[str] | None = None,
    budget_usd: float | None = None,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Let a judge compare answers that already exist, and rate the models that gave them.

    The judge sees each pair of answers twice, with the answers in both orders. With `scoring="score"`, it scores each
    answer once instead, and the mean scores are compared.

    Parameters
    ----------
    answers : dict, DataFrame, sequence of dict, path, or sequence of paths
        One answer per row. A dict gives each table or file a name: `{"old": "a.jsonl", "new": frame}`. Without a
        dict, a file is named after itself, and a table needs a column `model`. docs/formats.md lists the formats.
        A dict may also name functions, which get the text of a prompt and return an answer. They may be coroutines.
    *words : str
        Further words of the command.
    judge : str, sequence of str, dict of str to str, or callable
        The judge, such as `"sonnet"` (docs/judges.md). It has no default. `"lexical"` is free and offline, but it
        compares only words. Several judges are a list, or a dict that names them: `{"low": "haiku", "high": "opus"}`.
        A function gets a prompt and the answers A and B. It returns "A", "B" or "tie", the share
        of A from 0 to 1, or a dict with such a `verdict` and a `reason`.
    scorer : callable, optional
        A function that scores single answers, in place of the judge. It gets a prompt and an answer. It returns a
        number, or a dict of numbers by name, whose mean is the score. None means that there is no score.
    prompts : DataFrame, sequence of dict or str, or path, optional
        The prompts, if the answers do not contain them. Functions need them.
    budget_usd : float, optional
        The most that the judge may cost, in US dollars. The default is 5.
    out : path, optional
        The run folder. By default, the run makes a new folder in `outputs/`.
    stop : threading.Event, optional
        An event that another thread sets to end the call early, as Ctrl-C ends the command. Answers that are on their
        way are awaited and stored.
    **settings
        Settings as in `run`, such as `rubric=["correctness"]` or `prompts__n=50`. If your columns have other names,
        `columns={"prompt": "user_input", "answer": "reply"}` names them.

    Returns
    -------
    Run
        The finished run, with its ratings, verdicts and conclusions.

    Raises
    ------
    UserError
        If the answers of the models do not belong to the same prompts, or if another setting or file is wrong.
    BudgetError
        If the judge would cost more than the budget.
    StoppedError
        If `stop` was set before the run ended.

    Examples
    --------
    Compare two sets of answers. The judge `lexical` is free, and says nothing about quality.

    >>> import elo_exp
    >>> new = [
    ...     {"prompt": f"What is the square of {n}?", "response": f"The square of {n} is {n * n}."}
    ...     for n in range(3, 15)
    ... ]
    >>> old = [{"prompt": row["prompt"], "response": "I do not know."} for row in new]
    >>> run = elo_exp.compare({"old": old, "new": new}, judge="lexical")
    >>> run.verdicts[0]["winner"]
    'new'
    >>> len(run.responses)
    24

    Compare two functions by a third one.

    >>> def shorter(prompt, a, b):
    ...     return "A" if len(a) < len(b) else "B"
    >>> run = elo_exp.compare(
    ...     {"loud": str.upper, "wordy": lambda prompt: prompt * 2}, judge=shorter, prompts=["Hello", "Good morning"]
    ... )
    >>> [row["winner"] for row in run.verdicts]
    ['loud', 'loud', 'loud', 'loud']

    Score single answers by a function.

    >>> def names_number(prompt, answer):
    ...     return any(character.isdigit() for character in answer)
    >>> run = elo_exp.compare({"old": old, "new": new}, scorer=names_number)
    >>> [(row["entrant"], row["rating"]) for row in run.leaderboard]
    [('new', 1.0), ('old', 0.0)]
    """
    arguments = {"answers": answers, "judge": judge, "scorer": scorer, **settings}
    arguments = {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in ("judge", "scorer")
    }
    if prompts is not None:
        arguments["prompts"] = prompts
    arguments |= _budget_setting(budget_usd)
    return _run(words, arguments, out, stop)


def audit(
    *words: str,
    judge: str,
    prompts: Table | None = None,
    budget_usd: float | None = None,
    out: File | None = None,
    stop: threading.Event | None = None,
    **settings: Any,
) -> Run:
    """Test how far a judge can be trusted, on questions with known answers.

    Parameters
    ----------
    *words : str
        Further words of the command.
    judge : str
        The judge, such as `"sonnet"`.
    prompts : DataFrame, sequence of dict, or path, optional
        Prompts with reference answers. By default, the audit uses the 143 bundled questions.
    budget_usd : float, optional
        The most that the judge may cost, in US dollars. The default is 0, so a paid judge needs a budget.
    out : path, optional
        The run folder. By default, the audit makes a new folder in `outputs/`.
    stop : threading.Event, optional
        An event that another thread sets to end the call early, as Ctrl-C ends the command. Answers that are on their
        way are awaited and stored.
    **settings
        Settings as in `run`, such as `audit__n_prompts=30`.

    Returns
    -------
    Run
        The finished audit. `conclusions` has a row per rubric with the state *ok*, *biased* or *cannot tell*.
        `probes` has a row per rubric and test with the numbers.

    Raises
    ------
    UserError
        If a setting, a file or a cap stops the audit.
    StoppedError
        If `stop` was set before the audit ended.

    Examples
    --------
    >>> import elo_exp
    >>> run = elo_exp.audit(judge="lexical", audit__n_prompts=5)
    >>> [(row["dimension"], row["state"]) for row in run.conclusions]
    [('factuality', 'cannot tell')]
    """
    arguments = {"judge": judge, **settings}
    if prompts is not None:
        arguments["prompts"] = prompts
    words = ("experiment=audit", *words)
    return _run(words, arguments | _budget_setting(budget_usd), out, stop)


def plan(*words: str, budget_usd: float | None = None, **settings: Any) -> Plan:
    """Return the judge calls and the cost of a run, before you start it.

    A plan is free. It calls no model and needs no key.

    Parameters
    ----------
    *words : str
        Words of the command, as in `run`.
    budget_usd : float, optional
        The budget to check the plan against, in US dollars.
    **settings
        Settings as in `run`.

    Returns
    -------
    Plan
        The expected cost in dollars, and a row per judge and rubric.

    Raises
    ------
    UserError
        If a setting or a file is wrong, so that the calls cannot be counted.

    Examples
    --------
    >>> import elo_exp
    >>> plan = elo_exp.plan(judge="sonnet", rubric=["factuality"], prompts__n=20)
    >>> plan.rows[0]["queries"]
    132
    >>> 0 < plan.dollars < 5
    True
    """
    with (
        tempfile.TemporaryDirectory(prefix="elo_exp_") as temporary,
        collect_notes() as notes,
        silence(),
    ):
        words, settings = replace_functions(words, settings, out=None)
        chosen = {**settings, **_budget_setting(budget_usd), "plan": True}
        folder = CallFolder(Path(temporary))
        override_words, mappings = make_words(words, chosen, folder)
        with folder.naming(notes), raise_user_errors(override_words):
            job, composed = _prepare(override_words, mappings)
            with running.open_run(
                job, composed.run_dir, _select_overrides(override_words)
            ) as prepared_run:
                text = prepared_run.dry_run()
                run_plan = prepared_run.plan
    rows = Rows(
        _make_plan_row(judge_plan, row)
        for judge_plan in run_plan.judges
        for row in judge_plan.rows
    )
    answers = Rows(
        {name: getattr(plan, name) for name in _ANSWER_COLUMNS}
        for plan in run_plan.answers
    )
    return Plan(rows, run_plan.dollars, text or "", notes, answers)


def open_run(folder: File) -> Run:
    """Open the folder of a finished run or of a sweep.

    Parameters
    ----------
    folder : path
        The folder that the command printed after `files`.

    Returns
    -------
    Run
        The run. If the folder is that of a sweep, its tables have the rows of all finished jobs, with the swept settings
        as columns, and `sweep` lists the runs of the jobs.

    Raises
    ------
    FileError
        If the folder holds no run, or if the run did not finish.

    Examples
    --------
    >>> import elo_exp
    >>> battles = [{"model_a": "new", "model_b": "old", "winner": "model_a"}] * 3
    >>> run = elo_exp.rate(battles, out="outputs/first")
    >>> elo_exp.open_run("outputs/first").ratings == run.ratings
    True
    """
    path = Path(folder)
    with raise_user_errors():
        if jobs := sweep_jobs(path):
            if not list_finished_jobs(path):
                raise FileError.bad_file(
                    path,
                    f"is a sweep without a finished job (it has {len(jobs)})",
                    "Run its command again to finish it.",
                )
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
    return {} if dollars is None else {"budget_usd": dollars}


def _run(
    words: Sequence[str],
    settings: Mapping[str, Any],
    out: File | None,
    stop: threading.Event | None,
    *,
    is_free: bool = False,
) -> Run:
    """Run words and settings.

    is_free  the run costs nothing: without `out` its folder is temporary, and is deleted when the program ends
    """
    is_temporary = is_free and out is None
    with (
        _handle_stop(stop),
        collect_notes() as notes,
        silence(),
        open_folder(out, is_temporary) as folder,
    ):
        places = {} if not is_temporary else {"cache_dir": folder.path("cache")}
        words, settings = replace_functions(words, settings, out)
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
            "The call was stopped. Every answer so far is stored. To continue, call it again with the same arguments."
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
    job, composed = _prepare(override_words, mappings)
    if job.settings.plan:
        raise SettingError(
            "run() cannot plan. To plan, call elo_exp.plan() with the same words."
        )
    run_dir = (folder.place or composed.run_dir).absolute()
    overrides = _select_overrides(override_words)
    with running.open_run(job, run_dir, overrides) as prepared_run:
        if (text := prepared_run.dry_run() or prepared_run.act()) is not None:
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
    is_of_pairs = judge_plan.what in ("verdicts", "verdicts and scores")
    gap = row.detects if is_of_pairs and not row.is_scored else math.nan
    return {
        "judge": judge_plan.judge_model,
        **fields,
        "detects": gap if math.isfinite(gap) else None,
    }
