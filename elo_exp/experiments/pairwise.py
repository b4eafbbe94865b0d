"""Settings and stages of experiments in which entrants answer a bank of prompts, and a judge compares pairs of answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.data import bank, pairing
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.experiments import Context
from elo_exp.experiments.judged import Judged, preflight
from elo_exp.judges import Judge, PaidJudge
from elo_exp.pipeline import Plan
from elo_exp.records import Comparison, Judgment, Prompt, UserError
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
Judgments = Mapping[str, Sequence[Judgment]]


@dataclass(kw_only=True)
class Pairwise(Judged):
    judge: Judge
    rubric: dict[str, Rubric]

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {"bank": Path(self.prompts.bank_path)}

    def dry_run(self, context: Context) -> str | None:
        """With plan=true, what judging would cost."""
        self._check(context.store)
        return pipeline.plan_table(self._plan(context.store)) if self.plan else None

    @property
    def _rubrics(self) -> list[Rubric]:
        return list(self.rubric.values())

    def _check(self, store: Store) -> None:
        pairing.check_entrants(list(self.entrant))
        if not self.rubric:
            raise UserError(
                "rubric: none is chosen. Choose at least one: 'rubric=[factuality]'."
            )
        check_dimensions(self._rubrics)
        _, prompts = self._prompts()
        for rubric in self._rubrics:
            if not any(map(rubric.applies_to, prompts)):
                logger.warning(
                    "warning: rubric %s: no prompt has a gold_answer, so it judges nothing. Leave "
                    "it out: rubric=[...]",
                    rubric.dimension,
                )
        if not self.plan:
            self._check_access(prompts, store)

    def _check_access(self, prompts: Sequence[Prompt], store: Store) -> None:
        """Raise UserError for models that are missing, and for what would stop the first paid call."""
        self.judge.cache_key()  # like all_generated, it looks for the models
        stored_only = self.judging.stored_only
        asks = not (stored_only or self.shard)
        judge = self.judge if asks else None
        preflight(prompts, self.entrant, judge, store, stored_only=stored_only)
        is_paid = asks and isinstance(self.judge, PaidJudge)
        if is_paid and pipeline.needs_paid_answers(prompts, self.entrant, store):
            pipeline.check_before_answers(
                self._plan(store), self._plan(store, at_least=True), store
            )

    def _plan(self, store: Store, *, at_least: bool = False) -> Plan:
        _, prompts = self._prompts()
        responses = pipeline.assume_responses(
            prompts,
            self.entrant,
            store,
            allow_missing=self.allow_missing,
            at_least=at_least,
        )
        return pipeline.plan_pairs(
            self._paired(prompts, responses),
            self._rubrics,
            self.judge,
            store,
            both_orders=self.judging.both_orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
        )

    def _prompts(self) -> tuple[list[Prompt], list[Prompt]]:
        """The whole bank, and the prompts that this mode takes of it."""
        every = bank.load(Path(self.prompts.bank_path))
        return every, bank.select(every, self.mode.strata, seed=self.mode.pilot_seed)

    @property
    def _opponents(self) -> int | None:
        """How many others each entrant meets on a prompt; None: all of them."""
        return None

    def _paired(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, list[Comparison]]:
        return {
            rubric.dimension: pairing.pair_up(
                prompts,
                responses,
                rubric,
                limit=self.judging.limit_pairs,
                opponents=self._opponents,
            )
            for rubric in self._rubrics
        }

    def _judge(
        self, comparisons: Comparisons, store: Store
    ) -> dict[str, list[Judgment]]:
        return pipeline.judge_pairs(
            comparisons,
            self._rubrics,
            self.judge,
            store,
            both_orders=self.judging.both_orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
            allow_missing=self.allow_missing,
        )

    def _facts(
        self,
        responses: Responses,
        judgments: Judgments,
        quality: Sequence[JudgeQuality],
    ) -> dict[str, Any]:
        """What the manifest says of prompts, answers and judge."""
        judged = {one.prompt_id for some in judgments.values() for one in some}
        return {
            "judge_model": self.judge.model,
            "entrants": list(self.entrant),
            "rubric_versions": {
                rubric.dimension: rubric.version for rubric in self._rubrics
            },
            "bank_size": len(self._prompts()[0]),
            "selected_prompt_count": len(judged),
            "truncated_responses": {
                name: sum(
                    response.finish_reason == "length" for response in some.values()
                )
                for name, some in responses.items()
            },
            "judge_quality": [q.to_dict() for q in quality],
        }
