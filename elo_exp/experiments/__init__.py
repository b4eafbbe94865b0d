"""The socket of experiments: the base class of a dataclass whose fields are its settings and parts.

conf/experiment/NAME.yaml names the class as the root's `_target_`; the rest of the composed configuration are its fields.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from elo_exp.data.rubrics import Instructions
from elo_exp.errors import FileError, RunNeeds
from elo_exp.files import escape_name
from elo_exp.judges import Judge, roles_by_dimension
from elo_exp.pipeline import AnswerPlan, Plan
from elo_exp.records import Plot, Rows
from elo_exp.store.answer_store import Store
from elo_exp.trackers import Tracker, Value

# How the only judge of an experiment is called
ONLY_JUDGE = "judge"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a run is given besides its settings.

    run_dir     folder of its artifacts, which exists when `run` is called
    overrides   words of the command, as given
    with_texts  whether the page holds all verdicts with their texts; not in the jobs of a sweep
    in_sweep    whether it is a job of a sweep, which has one leaderboard in each dimension
    needs       keys, packages, models and servers that a plan lists and a run must have
    """

    run_dir: Path
    store: Store
    tracker: Tracker
    overrides: Sequence[str] = ()
    with_texts: bool = True
    in_sweep: bool = False
    needs: RunNeeds = field(default_factory=RunNeeds)

    @property
    def is_plan(self) -> bool:
        """Whether only a plan is wanted: the run up to its first side effect."""
        return self.needs.is_plan

    def of_judge(self, name: str) -> "Context":
        """Return where the part of one of several judges lies, which reads as a run of its own."""
        return replace(self, run_dir=judge_folder(self.run_dir, name))


def refuse_absent(paths: Mapping[str, Path]) -> None:
    """Raise FileError for the first file or folder that is not there.

    paths  by role
    """
    for role, path in paths.items():
        if not path.exists():
            raise FileError.not_found(path, f"given as {role}" if role else "")


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
    follow_up  what to try next, and on a line of its own the command
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
class HasInputFiles(Protocol):
    """A part that reads files."""

    @property
    def input_files(self) -> Mapping[str, Path]:
        """Files, and folders of which all files are read, by their role; '' is the main one."""


@runtime_checkable
class HasWeights(Protocol):
    """A part that loads a model."""

    @property
    def weight_files(self) -> Sequence[Path]:
        """Files that loading the model reads; none of a model of the hub."""


@dataclass(kw_only=True)
class Experiment(ABC):
    """Base class of experiments: a dataclass whose fields are its settings and parts. Only `run` has no default.

    A field `judge` or `judges` holds one judge or several by name, `entrant` and `rubric` entrants and rubrics by name:
    the manifest and trackers name these.
    """

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Return the configuration to build parts from; by default as it is composed. Raises UserError."""
        return config

    @property
    def opening(self) -> str | None:
        """What runs, for the first line of the console; None: the line counts entrants and dimensions."""
        return None

    @property
    def numbers(self) -> Mapping[str, Collection[str]] | None:
        """The kinds of numbers that it logs, by the first part of their names, with the last parts that there are;
        empty: any. A `headline` of another name is refused before anything is begun. None: nothing is refused."""
        return None

    @property
    def input_files(self) -> Mapping[str, Path]:
        """Files, and folders of which all files are read, beside the files of its parts, by their role."""
        return {}

    def check_files(self) -> None:
        """Look for the files, and read what may be malformed. Raises UserError."""
        return

    def dry_run(self, context: Context) -> str | None:
        """Check everything that can be checked before the run begins. Return the text to print if there is no run.

        The check has no side effects. Raises UserError.

        A plan begins with this check. If `context.is_plan`, missing keys, packages, models and servers are collected in
        `context.needs` and raise no error.
        """
        return None

    def act(self, context: Context) -> str | None:
        """Do at once what needs no run folder, and return what to print in place of a run; None: there is a run.

        A plan does not call it.
        """
        return None

    def plans(self, store: Store) -> Sequence[Plan]:
        """Return what each judge would be asked, and cost; nothing by default."""
        return ()

    def answer_plans(self, store: Store) -> Sequence[AnswerPlan]:
        """Return the answers that each entrant has still to make, and what they cost; nothing by default."""
        return ()

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        """Return the plan as it is printed, after `dry_run`.

        plans  of each judge, as `plans` returned them
        """
        return "plan: this experiment calls no judge and costs nothing."

    @abstractmethod
    def run(self, context: Context) -> Report:
        """Run the experiment, write its artifacts into `context.run_dir`, and report what it concluded."""

    def list_parts(self) -> dict[str, Any]:
        """List the values of the fields by their names in the configuration: `judge`, `entrant.NAME`.

        The only one of `judges` is called `judge`, as the configuration calls it.
        """
        parts: dict[str, Any] = {}
        for setting in fields(self):
            if not setting.init:
                continue
            value = getattr(self, setting.name)
            if setting.name == "judges" and value and [*value] == [ONLY_JUDGE]:
                parts |= value
            elif isinstance(value, dict):
                parts |= {f"{setting.name}.{key}": part for key, part in value.items()}
            else:
                parts[setting.name] = value
        return parts

    def list_group(self, name: str) -> dict[str, Any]:
        """List the parts of a group such as `entrant`, by name."""
        prefix = f"{name}."
        return {
            label.removeprefix(prefix): value
            for label, value in self.list_parts().items()
            if label.startswith(prefix)
        }

    def list_judges(self) -> dict[str, Judge]:
        """List the judges by name."""
        judge = self.list_parts().get(ONLY_JUDGE)
        only = {} if judge is None else {ONLY_JUDGE: judge}
        return self.list_group("judges") or only

    def list_input_files(self) -> dict[str, Path]:
        """List all files that decide what the experiment concludes, by part and role: "rubric factuality system"."""
        files = dict(self.input_files)
        for name, part in self.list_parts().items():
            if isinstance(part, HasInputFiles):
                label = name.replace(".", " ", 1)
                files |= {
                    f"{label} {role}".rstrip(): path
                    for role, path in part.input_files.items()
                }
        return files

    def list_recorded_answers(self) -> dict[str, Path]:
        """List the files that have the answers of entrants, by the entrants' names."""
        return {
            name: entrant.input_files[""]
            for name, entrant in self.list_group("entrant").items()
            if isinstance(entrant, HasInputFiles) and "" in entrant.input_files
        }

    def list_weight_files(self) -> dict[str, Sequence[Path]]:
        """List the files that the models among the parts are loaded from, by part."""
        return {
            name.replace(".", " ", 1): part.weight_files
            for name, part in self.list_parts().items()
            if isinstance(part, HasWeights)
        }

    def _list_rubrics(self) -> list[Instructions]:
        """List the rubrics of pairs, and those of single answers."""
        groups = self.list_group("rubric"), self.list_group("scoring")
        return [rubric for group in groups for rubric in group.values()]

    def describe_judge(self) -> dict[str, Any]:
        """Return the study, and what the first judge is told that it is, by dimension, for the manifest; {} without one."""
        judge = next(iter(self.list_judges().values()), None)
        if judge is None:
            return {}
        study = self.list_parts().get("study")
        rubrics = self._list_rubrics()
        return {
            "study": study and study.name,
            "judge_roles": roles_by_dimension(judge, rubrics),
        }

    def make_tracker_labels(self) -> dict[str, str]:
        """Return the labels by which a tracker groups runs, whatever their parts are made of."""
        judges = self.list_group("judges")
        judge = self.list_parts().get("judge")
        rubrics = self._list_rubrics()
        label_by_name = {
            "entrants": ", ".join(self.list_group("entrant")),
            "dimensions": ", ".join(rubric.dimension for rubric in rubrics),
            "judge_model": ", ".join(judges) or (judge.model if judge else ""),
        }
        return {name: label for name, label in label_by_name.items() if label}
