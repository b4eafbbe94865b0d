"""The socket of experiments: a dataclass whose fields are its settings and parts.

conf/experiment/NAME.yaml names the class as the root's `_target_`; the rest of the composed configuration are its fields.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from elo_exp.files import escape_name
from elo_exp.judges import roles_by_dimension
from elo_exp.records import Plot, Rows
from elo_exp.store.answer_store import Store
from elo_exp.trackers import Tracker, Value


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a run is given besides its settings.

    run_dir     folder of its artifacts, which exists when `run` is called
    overrides   words of the command, as given
    with_texts  whether the page holds all verdicts with their texts; not in the jobs of a sweep
    in_sweep    whether it is a job of a sweep, which has one leaderboard in each dimension
    """

    run_dir: Path
    store: Store
    tracker: Tracker
    overrides: Sequence[str] = ()
    with_texts: bool = True
    in_sweep: bool = False

    def of_judge(self, name: str) -> "Context":
        """Return where the part of one of several judges lies, which reads as a run of its own."""
        return replace(self, run_dir=judge_folder(self.run_dir, name))


def judge_folder(run_dir: Path, judge: str) -> Path:
    """Return where the files of one of several judges are."""
    return run_dir / "judges" / escape_name(judge)


def link_to_judge_page(judge: str) -> str:
    """Return where its page is, as a link beside the page of all."""
    return quote(f"judges/{escape_name(judge)}/report.html")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an experiment concluded.

    headline   one number by which a sweeper may compare jobs; NaN where there is none
    headline_is  the name under which the tracker has it, if it has it under another one, too
    text       for the console
    follow_up  a command to try next, and what it does
    facts      for manifest.json
    artifacts  files that the run has written
    metrics    final values and charts for the tracker, under names that are the same in every run
    tables     for the tracker; "verdicts" alone may hold prompts, answers and reasons
    traces     for the tracker, by number of permutations; a chart among the metrics shows them
    figures    draws them; called unless they are not wanted
    page       report.html from its title, the manifest and the figures
    exit_code  of the command; of no job of a sweep
    of_judges  the reports of single judges by their names, whose files are in their `judge_folder`: each reads as a
               run of its own
    settings   of a single judge: those by which it would be alone, in place of the run's
    """

    headline: float
    text: str
    follow_up: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Sequence[Path] = ()
    metrics: Mapping[str, Value] = field(default_factory=dict)
    tables: Mapping[str, Rows] = field(default_factory=dict)
    traces: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    figures: Callable[[], Sequence[Plot]] = tuple
    page: Callable[[str, Mapping[str, Any], Sequence[Plot]], str] | None = None
    exit_code: int = 0
    headline_is: str = "headline"
    of_judges: Mapping[str, "Report"] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Experiment(Protocol):
    """May also have `prepare(config, overrides)`, a static method that edits the configuration before parts are built,
    `input_files`, the files beside those of its parts that decide what it concludes, and `opening`, a text for the
    first line of the console: what runs, known before it does; without it the line counts entrants and dimensions."""

    def dry_run(self, context: Context) -> str | None:
        """Check all that can be known to be wrong before anything is begun; return what to print in place of a run,
        such as its plan. Raises UserError."""

    def run(self, context: Context) -> Report: ...


@runtime_checkable
class HasPlans(Protocol):
    def plans(self, store: Store) -> Sequence[Any]:
        """Return what each judge would be asked, and cost: pipeline.Plan."""


@runtime_checkable
class HasInputFiles(Protocol):
    @property
    def input_files(self) -> Mapping[str, Path]:
        """Files, and folders of which all files are read, by their role; '' is the main one."""


@runtime_checkable
class HasWeights(Protocol):
    @property
    def weight_files(self) -> Sequence[Path]:
        """Files that loading the model reads; none of a model of the hub."""


@runtime_checkable
class DeclaresMetrics(Protocol):
    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        """The kinds of numbers that it logs, by the first part of their names, with the last parts that there are;
        empty: any. A `headline` of another name is refused before anything is begun."""


def list_parts(experiment: object) -> dict[str, Any]:
    """The values of an experiment's fields by their names in the configuration: `judge`, `entrant.NAME`."""
    parts: dict[str, Any] = {}
    assert is_dataclass(experiment)
    for name in (setting.name for setting in fields(experiment) if setting.init):
        value = getattr(experiment, name)
        if isinstance(value, dict):
            parts |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            parts[name] = value
    return parts


def input_files(experiment: object) -> dict[str, Path]:
    """All files that decide what the experiment concludes, by part and role: "rubric factuality system"."""
    files = (
        dict(experiment.input_files) if isinstance(experiment, HasInputFiles) else {}
    )
    for name, part in list_parts(experiment).items():
        if isinstance(part, HasInputFiles):
            label = name.replace(".", " ", 1)
            files |= {
                f"{label} {role}".rstrip(): path
                for role, path in part.input_files.items()
            }
    return files


def recorded_answers(experiment: object) -> dict[str, Path]:
    """The files that have the answers of entrants, by their names."""
    return {
        name: entrant.input_files[""]
        for name, entrant in getattr(experiment, "entrant", {}).items()
        if isinstance(entrant, HasInputFiles) and "" in entrant.input_files
    }


def weight_files(experiment: object) -> dict[str, Sequence[Path]]:
    """The files that the models among the parts are loaded from."""
    return {
        name.replace(".", " ", 1): part.weight_files
        for name, part in list_parts(experiment).items()
        if isinstance(part, HasWeights)
    }


def describe_judge(experiment: object) -> dict[str, Any]:
    """The study of an experiment with a judge, and what its judge is told that it is, by dimension; for the manifest."""
    judge = getattr(experiment, "judge", None)
    if judge is None:
        return {}
    study = getattr(experiment, "study", None)
    rubrics = getattr(experiment, "rubric", {}).values()
    return {
        "study": study and study.name,
        "judge_roles": roles_by_dimension(judge, rubrics),
    }


def make_tracker_labels(experiment: object) -> dict[str, str]:
    """By which a tracker groups runs, whatever their parts are made of."""
    judge = getattr(experiment, "judge", None)
    judges_setting = getattr(experiment, "judges", None)
    judges = judges_setting if isinstance(judges_setting, Mapping) else {}
    label_by_name = {
        "entrants": ", ".join(getattr(experiment, "entrant", ())),
        "dimensions": ", ".join(
            r.dimension for r in getattr(experiment, "rubric", {}).values()
        ),
        "judge_model": ", ".join(judges) or (judge.model if judge else ""),
    }
    return {name: label for name, label in label_by_name.items() if label}
