"""Files of answers that a command gives in place of entrants, and the entrants that read from them."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.data import answer_joins, column_roles, field_names
from elo_exp.data.bank import PromptBank
from elo_exp.data.column_roles import Columns
from elo_exp.errors import SettingError

logger = logging.getLogger(__name__)

_ROLES = (*column_roles.ANSWER_COLUMNS, "cluster")


@dataclass(frozen=True, kw_only=True)
class AnswerFiles:
    """The files of answers that are joined to the prompts of a bank.

    files      in the order of the command, with their names
    bank       None: the prompts are those that the files hold
    columns    the column of each role, in the files that have it
    n_draws    answers of each entrant to each prompt
    keeps_all  whether no prompt is left out that only some of them answer, as the log has it
    """

    files: Sequence[answer_joins.NamedFile]
    bank: PromptBank | None
    columns: Columns
    n_draws: int
    keeps_all: bool = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.files)

    @cached_property
    def joined(self) -> answer_joins.JoinedAnswers:
        """The answers by prompt. Raises UserError if they cannot be compared."""
        return answer_joins.join(self._answer_sets, self.bank, draws=self.n_draws)

    def describe_joined(self) -> list[str]:
        """Describe what was read and how it was joined; nothing without files."""
        return self.joined.describe(keeps_all=self.keeps_all) if self.files else []

    def describe_unjoined(self) -> list[str]:
        """Describe only what was read."""
        return [answers.describe() for answers in self._answer_sets.values()]

    def list_facts(self) -> list[dict[str, Any]]:
        """List what the manifest says of each file."""
        return [answers.facts() for answers in self._answer_sets.values()]

    @property
    def _answer_sets(self) -> dict[str, answer_joins.AnswerSet]:
        return answer_joins.read_answer_sets([*self.files], self.columns)


def log_lines(lines: Iterable[str]) -> None:
    """Log what was read from files of answers."""
    for line in lines:
        is_warning = line.startswith("warning: ")
        logger.log(logging.WARNING if is_warning else logging.INFO, "%s", line)


def warn_of_look_alikes(names: Iterable[str], noun: str) -> None:
    """Warn of different names that look alike."""
    for line in field_names.describe_alike(names, noun):
        logger.warning("warning: %s", line)


def prepare_columns(
    config: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the configuration with the columns that the command names, those of clusters as prompts.cluster.

    Raises SettingError for a role without effect, and FileError for a column that no file has.
    """
    columns = column_roles.parse_columns_setting(config["columns"])
    experiment = str(config["_target_"]).split(".")[-2]
    column_roles.refuse_unused_roles(columns, _ROLES, experiment)
    prompts = dict(config["prompts"])
    if (cluster := columns.pop("cluster", None)) is not None:
        if any(word.lstrip("+").startswith("prompts.cluster=") for word in overrides):
            raise SettingError(
                "columns.cluster and prompts.cluster are two names of one setting. Give one of them."
            )
        prompts["cluster"] = cluster
    files = answer_joins.parse_answers_setting(config.get("answers"))
    baseline = (config.get("gate") or {}).get("baseline")
    paths = [path for _, path in files if path is not None]
    paths += [Path(path) for path in (baseline, prompts["bank_path"]) if path]
    column_roles.refuse_absent_columns(paths, columns)
    return {**config, "columns": columns, "prompts": prompts}


def configure_entrants(
    config: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the settings of the entrants by name.

    With answers, entrants that read them from these files, in place of those that no word names. With recorded_dir,
    entrants that read their answers from it in place of those chosen.
    """
    folder, entrants = config.get("recorded_dir"), config["entrant"]
    files = answer_joins.parse_answers_setting(config.get("answers"))
    for name, node in entrants.items():
        if "base_url" in node and node["base_url"] is None:
            raise SettingError(
                f"Entrant {name} needs a server. Set api.base_url, and api.key_variable if the server asks for a key, "
                f"for example:",
                "  api.base_url=http://localhost:8000/v1 api.key_variable=NAME",
            )
    if files and folder is not None:
        raise SettingError(
            f"recorded_dir and answers cannot be combined; got recorded_dir={folder}. Leave one of them out."
        )
    if files:
        chosen_entrants = entrants if _chooses_entrants(overrides) else {}
        answers_by_name = answer_joins.read_answer_sets(files, config["columns"])
        if duplicates := answers_by_name.keys() & chosen_entrants.keys():
            name = min(duplicates)
            raise SettingError(
                f"Two entrants are called {name}: the answers in {answers_by_name[name].path}, and entrant={name}. "
                f"Rename the answers:",
                f"  'answers={{NAME:{answers_by_name[name].path}}}'",
            )
        nodes = {
            name: describe_recorded_entrant(name, answers)
            for name, answers in answers_by_name.items()
        }
        return {**nodes, **chosen_entrants}
    if folder is not None:
        target = "elo_exp.entrants.recorded.RecordedEntrant"
        return {
            name: {"_target_": target, "entrant_id": name, "path": folder}
            for name in entrants
        }
    return dict(entrants)


def _chooses_entrants(overrides: Sequence[str]) -> bool:
    """Whether words of the command choose entrants."""
    return any(re.match(r"\+?entrant(@[^=]+)?=", word) for word in overrides)


def describe_recorded_entrant(
    name: str, answers: answer_joins.AnswerSet
) -> dict[str, Any]:
    """Describe an entrant that answers from a file."""
    return {
        "_target_": "elo_exp.entrants.recorded.AnswersEntrant",
        "entrant_id": name,
        "path": str(answers.path),
        "inside": answers.inner_name,
        **({"columns": dict(answers.columns)} if answers.columns else {}),
    }
