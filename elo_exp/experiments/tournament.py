"""Who wins among our entrants: everyone answers, a judge compares the answers pair by pair, the battles are rated."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis import judge_quality, standings
from elo_exp.analysis.responses import check_responses
from elo_exp.analysis.standings import Standings
from elo_exp.data import bank, battles, pairing
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants import OfKnownQuality
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Judged, answer_share, preflight
from elo_exp.experiments.standings import report
from elo_exp.judges import Judge, PaidJudge
from elo_exp.pipeline import Plan
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import Comparison, Judgment, Prompt, UserError
from elo_exp.report import artifacts
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_AFTER_DEMO = "python -m elo_exp mode=pilot plan=true     what a real run costs; free, needs no key"
Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
Judgments = Mapping[str, Sequence[Judgment]]


@dataclass(kw_only=True)
class Tournament(Judged):
    judge: Judge
    rubric: dict[str, Rubric]
    elo: EloMethod
    rating: dict[str, RatingMethod]
    stratum: str | None  # column of the bank; None: no strata
    sweep_pair: list[str] | None  # whose difference a sweep draws; None: the two best

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {"bank": Path(self.prompts.bank_path)}

    def dry_run(self, context: Context) -> str | None:
        """With plan=true, what judging would cost."""
        self._check(context.store)
        return pipeline.plan_table(self._plan(context.store)) if self.plan else None

    def run(self, context: Context) -> Report:
        store = context.store
        every_prompt, prompts = self._prompts()
        if self.shard is not None:
            return answer_share(self, prompts, store, self.shard)
        responses = pipeline.generate(
            prompts, self.entrant, store, allow_missing=self.allow_missing
        )
        comparisons = self._paired(prompts, responses)
        judgments = pipeline.judge_pairs(
            comparisons,
            self._rubrics,
            self.judge,
            store,
            orders=self.judging.orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
            allow_missing=self.allow_missing,
        )
        rated = (
            _on_whole_prompts(judgments, comparisons)
            if self.allow_missing
            else judgments
        )
        found = standings.rate(
            self._battles(rated, comparisons),
            elo=self.elo,
            ratings=self.rating,
            models=list(self.entrant),
        )
        found = standings.with_texts(
            found,
            comparisons,
            judgments,
            [check_responses(name, some) for name, some in responses.items()],
            self._primary.rate,
            initial_rating=self.elo.initial_rating,
        )
        if self.stratum is not None:
            strata = bank.strata(Path(self.prompts.bank_path), self.stratum)
            found = standings.with_strata(found, strata, self._primary.rate)
        found = standings.with_known_order(found, self._known_orders())
        others = pipeline.other_judges(
            comparisons, self._rubrics, self.judge, store, orders=self.judging.orders
        )
        found = self._with_judges(found, others, comparisons)
        quality = [
            judge_quality.judge_quality(some, dimension=name)
            for name, some in judgments.items()
        ]
        facts: dict[str, Any] = {
            "judge_model": self.judge.model,
            "entrants": list(self.entrant),
            "rubric_versions": {
                rubric.dimension: rubric.version for rubric in self._rubrics
            },
            "bank_size": len(every_prompt),
            "selected_prompt_count": len(
                {judgment.prompt_id for some in judgments.values() for judgment in some}
            ),
            "truncated_responses": {
                name: sum(
                    response.finish_reason == "length" for response in some.values()
                )
                for name, some in responses.items()
            },
            "judge_quality": [q.to_dict() for q in quality],
        }
        return report(
            found,
            context.run_dir,
            facts=facts,
            quality=quality,
            follow_up=_AFTER_DEMO if self.mode.name == "demo" else None,
            written=artifacts.write_judging(
                context.run_dir,
                responses=responses,
                comparisons=comparisons,
                judgments=judgments,
            ),
            comparisons=comparisons,
            judgments=judgments,
            with_texts=context.with_texts,
        )

    @property
    def _rubrics(self) -> list[Rubric]:
        return list(self.rubric.values())

    def _check(self, store: Store) -> None:
        pairing.check_entrants(list(self.entrant))
        if self.sweep_pair is not None and len(set(self.sweep_pair)) != 2:
            raise UserError(
                f"sweep_pair: found {self.sweep_pair}. Expected two entrants: "
                "'sweep_pair=[one,other]'."
            )
        if not self.rubric:
            raise UserError(
                "rubric: none is chosen. Choose at least one: 'rubric=[factuality]'."
            )
        check_dimensions(self._rubrics)
        if self.stratum is not None:
            bank.strata(Path(self.prompts.bank_path), self.stratum)
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
            orders=self.judging.orders,
            repeats=self.judging.repeats,
            stored_only=self.judging.stored_only,
        )

    def _prompts(self) -> tuple[list[Prompt], list[Prompt]]:
        """The whole bank, and the prompts that this mode takes of it."""
        every = bank.load(Path(self.prompts.bank_path))
        return every, bank.select(every, self.mode.strata, seed=self.mode.pilot_seed)

    def _paired(
        self, prompts: Sequence[Prompt], responses: Responses
    ) -> dict[str, list[Comparison]]:
        return {
            rubric.dimension: pairing.pair_up(
                prompts, responses, rubric, limit=self.judging.limit_pairs
            )
            for rubric in self._rubrics
        }

    def _known_orders(self) -> dict[str, list[str]]:
        """Entrants of known quality by dimension, best first, where there are two."""
        found = {}
        for rubric in self._rubrics:
            ranks = {
                name: rank
                for name, entrant in self.entrant.items()
                if isinstance(entrant, OfKnownQuality)
                and (rank := entrant.known_rank(rubric.dimension)) is not None
            }
            if len(ranks) > 1:
                found[rubric.dimension] = sorted(ranks, key=ranks.__getitem__)
        return found

    def _with_judges(
        self,
        found: Standings,
        others: Mapping[str, Judgments],
        comparisons: Comparisons,
    ) -> Standings:
        """Add how far other judges of the same comparisons agree with this one."""
        by_judge = {
            name: {self.judge.model: some} for name, some in found.battles.items()
        }
        for judge, judgments in others.items():
            for dimension, some in self._battles(judgments, comparisons).items():
                if len(some):
                    by_judge[dimension][judge] = some
        return standings.with_judges(found, by_judge, self._primary.rate)

    def _battles(
        self, judgments: Judgments, comparisons: Comparisons
    ) -> dict[str, Battles]:
        with_style = needs_style(self.rating)
        rows = [
            battle
            for name, some in judgments.items()
            for battle in battles.from_judgments(
                some, comparisons[name] if with_style else ()
            )
        ]
        return Battles.from_rows(rows).by_dimension(judgments)

    @property
    def _primary(self) -> RatingMethod:
        chosen = [*self.rating.values(), self.elo]
        return self.rating.get("bradley_terry", chosen[0])


def _on_whole_prompts(
    judgments: Judgments, comparisons: Comparisons
) -> dict[str, list[Judgment]]:
    """Leave out the prompts on which a verdict is missing, for all entrants."""
    found = {}
    for dimension, some in judgments.items():
        found[dimension] = pairing.on_whole_prompts(some, comparisons[dimension])
        asked = {comparison.prompt_id for comparison in comparisons[dimension]}
        if n := len(asked - {judgment.prompt_id for judgment in found[dimension]}):
            logger.warning(
                "warning: %s: %d prompts without all verdicts are left out for all entrants.",
                dimension,
                n,
            )
    return found
