"""Who wins among our entrants: everyone answers, a judge compares the answers pair by pair, the battles are rated."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elo_exp import pipeline
from elo_exp.analysis import judge_quality, standings
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.looks import Wave
from elo_exp.analysis.responses import check_responses
from elo_exp.analysis.standings import Standings
from elo_exp.data import bank, battles, pairing
from elo_exp.data.battles import Battles
from elo_exp.entrants import OfKnownQuality
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Judging, Pairwise, answer_share, audits
from elo_exp.experiments.standings import report
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import Judgment, UserError, fingerprint
from elo_exp.report import artifacts
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.store.store import Store
from elo_exp.types import Count

logger = logging.getLogger(__name__)

_AFTER_DEMO = "python -m elo_exp mode=pilot plan=true     what a real run costs; free, needs no key"


@dataclass(kw_only=True)
class TournamentJudging(Judging):
    opponents: Count | None  # that each entrant meets on a prompt; None: all others
    looks: Count
    drop: Literal["resolved", "none"]


@dataclass(kw_only=True)
class Tournament(Pairwise):
    judging: TournamentJudging
    elo: EloMethod
    rating: dict[str, RatingMethod]
    stratum: str | None  # column of the bank; None: no strata
    sweep_pair: list[str] | None  # whose difference a sweep draws; None: the two best

    def _check(self, store: Store) -> None:
        if self.sweep_pair is not None and len(set(self.sweep_pair)) != 2:
            raise UserError(
                f"sweep_pair: found {self.sweep_pair}. Expected two entrants: "
                "'sweep_pair=[one,other]'."
            )
        if self.stratum is not None:
            bank.strata(Path(self.prompts.bank_path), self.stratum)
        k, m = self.judging.opponents, len(self.entrant)
        if k is not None and self.judging.orders != "one":
            raise UserError(
                f"judging.opponents: found {k} with judging.orders={self.judging.orders}. Half of "
                "the pairs in both orders tell less than all in one: add judging.orders=one."
            )
        if k is not None and (m < 6 or k >= m or k * m % 2):
            raise UserError(
                f"judging.opponents: found {k} with {m} entrants. Expected fewer opponents than "
                "entrants, of at least six, and an even number where that of entrants is odd."
            )
        looks = self.judging.looks
        if looks > 1 and (k is not None or not self.rating):
            raise UserError(
                f"judging.looks: found {looks}, which needs all opponents (judging.opponents=null) "
                "and a rating with errors (rating=[bradley_terry]). Set these, or judging.looks=1."
            )
        super()._check(store)

    @property
    def _opponents(self) -> int | None:
        return self.judging.opponents

    def _plan_text(self, plan: pipeline.Plan) -> str:
        text, looks = super()._plan_text(plan), self.judging.looks
        return f"{text}\n{pipeline.looks_table(plan, looks)}" if looks > 1 else text

    def run(self, context: Context) -> Report:
        store = context.store
        _, prompts = self._prompts()
        if self.shard is not None:
            return answer_share(self, prompts, store, self.shard)
        responses = pipeline.generate(
            prompts, self.entrant, store, allow_missing=self.allow_missing
        )
        comparisons: Comparisons = self._paired(prompts, responses)
        if self.judging.looks == 1:
            judgments = self._judge(comparisons, store)
            n_seen = store.n_seen(
                [
                    v.cache_key
                    for some in judgments.values()
                    for j in some
                    for v in j.raw
                ],
                None,
            )
            wave, matches = None, None
        else:
            wave, judgments, matches, n_seen = self._judge_in_waves(comparisons, store)
            comparisons = wave.asked
        if n_seen:
            logger.warning(
                "warning: exploratory: %d queries had been looked at under another design, so "
                "differences that are not there are found more often than stated.",
                n_seen,
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
            matches=matches,
        )
        if wave:
            found = standings.with_looks(found, wave)
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
        found = standings.with_diagnoses(
            found, audits(self.judge, self._rubrics, store)
        )
        others = pipeline.other_judges(
            comparisons,
            self._rubrics,
            self.judge,
            store,
            both_orders=self.judging.both_orders,
        )
        found = self._with_judges(found, others, comparisons)
        quality = [
            judge_quality.judge_quality(some, dimension=name)
            for name, some in judgments.items()
        ]
        return report(
            found,
            context.run_dir,
            facts={**self._facts(responses, judgments, quality), "n_seen": n_seen},
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

    def _judge_in_waves(
        self, comparisons: Comparisons, store: Store
    ) -> tuple[Wave, dict[str, list[Judgment]], dict[str, Battles], int]:
        """Store the design, if the cap holds the worst case, and judge up to each look.

        Returns the last wave, judgments, the battles that permutation Elo may play (in both orders,
        on the prompts on which every pair was judged), and the queries seen before.
        """
        judging, plan = self.judging, self._plan(store)
        plan.check(store.usage)
        sources = [c.source for some in comparisons.values() for c in some]
        design = [judging.looks, judging.drop, ALPHA, sources, plan.keys]
        n_seen = store.n_seen(plan.keys, fingerprint(design))
        wave, judgments = pipeline.judge_in_waves(
            comparisons,
            lambda wanted: self._judge(wanted, store),
            method=self._primary,
            looks=judging.looks,
            drop=judging.drop == "resolved",
        )
        whole = {
            name: pairing.on_whole_prompts(
                some if judging.orders != "one" else [], comparisons[name]
            )
            for name, some in judgments.items()
        }
        return wave, judgments, self._battles(whole, comparisons), n_seen

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
