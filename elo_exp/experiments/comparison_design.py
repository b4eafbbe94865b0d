"""The design of a tournament: it makes comparisons by dimension from prompts and answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from elo_exp.analysis.answer_effort import average_effort
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.data import conversations, pairing
from elo_exp.data.conversations import Extent, ViewSettings
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Instructions, Rubric
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.data.single_answers import list_items
from elo_exp.experiments.entrant_answers import EntrantAnswers
from elo_exp.experiments.gate_control import GateControl
from elo_exp.experiments.prompt_source import PromptSource
from elo_exp.experiments.shards import select_shard
from elo_exp.pipeline import Subjects
from elo_exp.records import Comparison, Item, Judgment, MissingBattle, Prompt, Score
from elo_exp.report.sentences.check_sentences import conversations as say_conversations
from elo_exp.report.viewer import Comparisons
from elo_exp.store.answer_store import Store

S = TypeVar("S", Comparison, Item, Comparison | Item)


@dataclass(frozen=True, kw_only=True)
class ComparisonDesign:
    """The comparisons of an experiment.

    shown        how much of a conversation a judge is shown
    limit_pairs  the first so many pairs of each dimension; None: all
    shard        i/n: those on a share of the prompts; None: all
    n_opponents  that each entrant meets on a prompt; None: all others
    control      comparisons to be judged beside those of the entrants; None: there are none
    scorings     rubrics by which single answers are scored
    """

    prompt_source: PromptSource
    answers: EntrantAnswers
    rubrics: Sequence[Rubric]
    shown: ViewSettings
    limit_pairs: int | None
    shard: str | None
    n_opponents: int | None = None
    control: GateControl | None = None
    scorings: Sequence[PointwiseRubric] = ()

    @property
    def instructions(self) -> list[Instructions]:
        """All rubrics, those of pairs first."""
        return [*self.rubrics, *self.scorings]

    def pair(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, list[Comparison]]:
        """Pair the answers to each prompt."""
        return {
            rubric.dimension: pairing.pair_up(
                prompts,
                responses,
                rubric,
                settings=self.shown,
                limit=self.limit_pairs,
                opponents=self.n_opponents,
            )
            for rubric in self.rubrics
        }

    def pose_singly(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, list[Item]]:
        """Put each answer to the judge by itself, by the dimension of the scoring."""
        return {
            rubric.dimension: list_items(prompts, responses, rubric, self.shown)
            for rubric in self.scorings
        }

    def list_subjects(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> Subjects:
        """Return what a judge is asked about in this shard: comparisons and single answers."""
        comparisons = self.add_control(self.pair(prompts, responses))
        return self.select({**comparisons, **self.pose_singly(prompts, responses)})

    def add_control(self, comparisons: Comparisons) -> Comparisons:
        """Return the comparisons that a judge is asked about."""
        return self.control.add(comparisons) if self.control else comparisons

    def select(self, subjects: Mapping[str, Sequence[S]]) -> Mapping[str, Sequence[S]]:
        """Select the subjects of this shard. All queries on a prompt belong to one shard."""
        if self.shard is None:
            return subjects
        prompts = self.prompt_source.select()
        ids = {prompt.prompt_id for prompt in select_shard(prompts, self.shard)}
        return {
            dimension: [subject for subject in group if subject.prompt_id in ids]
            for dimension, group in subjects.items()
        }

    def assume(self, store: Store, *, at_least: bool = False) -> Subjects:
        """Return the comparisons that a plan counts. No model is called."""
        prompts = self.prompt_source.repeat()
        responses = self.answers.assume(prompts, store, at_least=at_least)
        return self.list_subjects(prompts, responses)

    def counts_at_limit(self, store: Store) -> bool:
        """Whether `assume` takes answers of an entrant at its limit, as none of them is known."""
        prompts = self.prompt_source.repeat()
        plans = self.answers.make_plans(prompts, store)
        return any(plan.is_upper_bound for plan in plans)

    def list_unanswered(
        self, responses: Responses, comparisons: Comparisons
    ) -> dict[str, list[MissingBattle]]:
        """Return the planned comparisons without a usable answer, by dimension."""
        prompts = self.prompt_source.repeat()
        failed = self.answers.find_failed_prompts(
            prompts, responses, self.prompt_source.answer_files
        )
        return {
            rubric.dimension: pairing.list_unanswered(
                prompts,
                responses,
                rubric,
                failed=failed,
                compared=comparisons[rubric.dimension],
                limit=self.limit_pairs,
                opponents=self.n_opponents,
            )
            for rubric in self.rubrics
        }

    def measure_extent(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> Extent | None:
        """Count the turns that are asked, and measure how much of the answers the judge is shown."""
        answers = [
            response for by_slot in responses.values() for response in by_slot.values()
        ]
        showings = [rubric.merge_settings(self.shown) for rubric in self.instructions]
        return conversations.count_extent(prompts, answers, showings)

    def describe_conversations(self, store: Store) -> list[str]:
        """Describe, before money is spent, how many turns are asked if prompts or answers are conversations."""
        prompts = self.prompt_source.select()
        is_assumed = any(prompt.messages for prompt in prompts)
        get_responses = self.answers.assume if is_assumed else self.answers.find_known
        extent = self.measure_extent(prompts, get_responses(prompts, store))
        return [f"conversations  {say_conversations(vars(extent))}"] if extent else []

    def collect_facts(
        self,
        judge_model: str,
        responses: Responses,
        judgments: Mapping[str, Sequence[Judgment | Score]],
        quality: Sequence[JudgeQuality],
    ) -> dict[str, Any]:
        """Collect what the manifest says about prompts, answers and judge."""
        prompt_ids = {
            judgment.prompt_id for group in judgments.values() for judgment in group
        }
        has_conversations = any(
            response.messages
            for group in responses.values()
            for response in group.values()
        )
        extent = (
            self.measure_extent(self.prompt_source.select(), responses)
            if has_conversations
            else None
        )
        facts: dict[str, Any] = {
            "judge_model": judge_model,
            "entrants": list(self.answers.entrants),
            "rubric_versions": {
                rubric.dimension: rubric.version for rubric in self.instructions
            },
            "bank_size": self.prompt_source.n_known,
            "selected_prompt_count": len(prompt_ids),
            "truncated_responses": {
                name: sum(
                    response.finish_reason == "length" for response in answers.values()
                )
                for name, answers in responses.items()
            },
            "judge_quality": [row.to_dict() for row in quality],
        }
        if effort_rows := average_effort(
            {name: answers.values() for name, answers in responses.items()}
        ):
            facts["effort"] = effort_rows
        if extent:
            facts["conversations"] = vars(extent)
        if self.prompt_source.answer_files:
            facts["answers"] = self.prompt_source.answer_files.list_facts()
        return facts
