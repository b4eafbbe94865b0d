"""The prompts of an experiment: which there are, which of them are asked, and which belong together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from elo_exp import pipeline
from elo_exp.data.bank import (
    PromptBank,
    merge_clusters,
    sample_prompts,
    sample_strata,
)
from elo_exp.data.field_names import CLUSTER_FIELD
from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.experiments.answer_files import AnswerFiles
from elo_exp.experiments.settings import (
    ModeSettings,
    PromptSettings,
    build_no_prompts_error,
)
from elo_exp.formatting import join_names
from elo_exp.records import Prompt

_MAX_COLUMNS_IN_MESSAGE = 8


@dataclass(frozen=True, kw_only=True)
class PromptSource:
    """The prompts of a bank, or those that files of answers are to.

    n_draws   answers of each entrant to each prompt
    baseline  the file of answers whose rows decide which prompts there are; None: all files do
    """

    settings: PromptSettings
    mode: ModeSettings
    answer_files: AnswerFiles
    n_draws: int
    baseline: str | None = None

    @cached_property
    def bank(self) -> PromptBank | None:
        """The bank; None if the prompts are those that files of answers hold."""
        bank = self.answer_files.bank
        # Answers are joined to the first turn of an arena's conversations
        if bank is None or self.answer_files or not self.settings.history:
            return bank
        return replace(bank, history=True)

    @property
    def input_files(self) -> Mapping[str, Path]:
        """The bank, if there is one."""
        return {} if self.bank is None else {"bank": self.bank.path}

    def load_all(self) -> list[Prompt]:
        """Load all prompts: those of the bank, or those to which some file of answers has a row, answered or not."""
        if not self.answer_files:
            if self.bank is None:
                raise build_no_prompts_error("There are no prompts.")
            return self.bank.prompts
        joined = self.answer_files.joined
        if self.baseline is None:
            return list(joined.planned_prompts)
        baseline = joined.answer_sets[self.baseline]
        return [prompt for prompt in joined.prompts if baseline.rows_for_prompt(prompt)]

    @property
    def n_known(self) -> int:
        """The number of prompts in the bank, or in all files of answers."""
        return len(
            self.answer_files.joined.prompts if self.answer_files else self.load_all()
        )

    def select(self) -> list[Prompt]:
        """Select the prompts that this mode uses."""
        prompts = sample_strata(
            self.load_all(), self.mode.strata, seed=self.mode.pilot_seed
        )
        return sample_prompts(prompts, self.settings.n)

    def repeat(self) -> list[Prompt]:
        """Repeat each selected prompt as often as entrants that vary answer it."""
        return pipeline.repeat_prompts(self.select(), self.n_draws)

    def read_strata(self, column: str) -> dict[str, str]:
        """Read each prompt's value in a column of the bank. Raises SettingError for a column that is not there."""
        if column == "source":  # which a bank may leave out
            return {prompt.prompt_id: prompt.source for prompt in self.load_all()}
        if self.bank is not None:
            return self.bank.read_column(column)
        raise SettingError.bad_value(
            "stratum",
            column,
            "be source or null for answer files, whose prompts have no other columns",
        )

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The cluster of each prompt that belongs with others, as the bank or files of answers say.

        Raises SettingError for a column that is not there, and FileError for a prompt in two clusters.
        """
        column = self.settings.cluster
        if column is None:
            return merge_clusters(self.load_all(), {})
        files = self.answer_files
        in_files = files.joined.clusters(column) if files else None
        cluster_by_prompt = in_files or {}
        if self.bank and (in_files is None or self.bank.has_column(column)):
            bank_clusters = self.bank.read_column(column, setting="prompts.cluster")
            for name in sorted(bank_clusters.keys() & cluster_by_prompt.keys()):
                if bank_clusters[name] != cluster_by_prompt[name]:
                    raise FileError(
                        f"Prompt {name} must be in one cluster; it is in {format_value(bank_clusters[name])} in "
                        f"{self.bank.path} and in "
                        f"{format_value(cluster_by_prompt[name])} in an answer file."
                    )
            cluster_by_prompt = cluster_by_prompt | bank_clusters
        elif in_files is None and column != CLUSTER_FIELD:
            columns = files.joined.columns if files else ()
            columns_note = [
                f"  The answer files have {join_names([*columns], _MAX_COLUMNS_IN_MESSAGE)}."
            ] * bool(columns)
            raise SettingError.bad_value(
                "prompts.cluster",
                column,
                "be a column of the answer files or of a prompt file (prompts=FILE)",
                *columns_note,
            )
        return merge_clusters(self.load_all(), cluster_by_prompt)
