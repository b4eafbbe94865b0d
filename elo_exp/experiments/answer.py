"""Generate answers without judging them, on one machine or in shards on several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from elo_exp import pipeline
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report
from elo_exp.experiments.answer_files import log_lines, warn_of_look_alikes
from elo_exp.experiments.comparison_experiment import ComparisonExperiment
from elo_exp.experiments.entrant_answers import preflight
from elo_exp.experiments.shards import select_shard
from elo_exp.pipeline import AnswerPlan, Plan
from elo_exp.records import Prompt
from elo_exp.store.answer_store import Store


@dataclass(kw_only=True)
class Answer(ComparisonExperiment):
    """A run that generates answers; its judge and rubrics belong to the later tournament and are not used."""

    @property
    def opening(self) -> str:
        n = len(self.entrant)
        share = "" if self.shard is None else f", shard {self.shard} of the prompts"
        return f"answers of {n} entrant{'s' if n > 1 else ''}{share}, without judging"

    def dry_run(self, context: Context) -> str | None:
        """Raise UserError for settings and files that the run would refuse."""
        if not self.entrant:
            raise SettingError.no_value(
                "entrant",
                needed_for="experiment=answer",
                value="at least one entrant",
                example="'entrant=[hf:ORG/MODEL]'",
            )
        warn_of_look_alikes(self.entrant, "entrants")
        log_lines(self.answer_files.describe_joined())
        prompts = self._select_shard_prompts()
        preflight(
            prompts,
            self.entrant,
            None,
            context.store,
            stored_only=False,
            needs=context.needs,
        )
        return None

    def answer_plans(self, store: Store) -> list[AnswerPlan]:
        return self.entrant_answers.make_plans(self._select_shard_prompts(), store)

    def plans(self, store: Store) -> list[Plan]:
        """Return nothing, as no judge is asked."""
        return []

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        """Return the numbers of cached answers and of answers to generate."""
        return self._describe_plan(self._select_shard_prompts(), context.store)

    def run(self, context: Context) -> Report:
        prompts, usage = self._select_shard_prompts(), context.store.usage
        pipeline.generate(
            prompts,
            self.entrant,
            context.store,
            allow_missing=self.allow_missing,
            canary=self.judging.canary,
        )
        n_made, n_stored = usage.responses_generated, usage.responses_stored
        stored_note = f", {n_stored} from cache" if n_stored else ""
        subject = "answers" if self.shard is None else f"shard {self.shard}"
        return Report(
            headline=math.nan,
            text=f"{subject}: {n_made} generated{stored_note}. To judge them, use experiment=tournament.",
            facts={
                "entrants": list(self.entrant),
                "selected_prompt_count": len(prompts),
            },
        )

    def _select_shard_prompts(self) -> Sequence[Prompt]:
        """Return the prompts of this shard, repeated for each answer. Raises SettingError for none."""
        ids = {
            prompt.prompt_id
            for prompt in select_shard(self.prompt_source.select(), self.shard)
        }
        prompts = [
            prompt for prompt in self.prompt_source.repeat() if prompt.prompt_id in ids
        ]
        if not prompts:
            n_prompts = len(self.prompt_source.select())
            raise SettingError(
                f"shard={self.shard} holds no prompt: there are only {n_prompts}. Split them into at most {n_prompts} shards."
            )
        return prompts

    def _describe_plan(self, prompts: Sequence[Prompt], store: Store) -> str:
        known_responses = pipeline.find_known_responses(prompts, self.entrant, store)
        lines = [
            f"  {name}: {len(known_responses[name])} of {len(prompts)} answers in cache"
            for name in self.entrant
        ]
        return "\n".join(["plan: generates answers, without judging", *lines])
