"""Who wins among our entrants: everyone answers, a judge compares the answers pair by pair, the battles are rated."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis import judge_quality, standings
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.api.planning import Plan
from elo_exp.data import bank, battles, pairing
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import check_dimensions
from elo_exp.entrants import HostedEntrant
from elo_exp.experiments import Parts
from elo_exp.experiments.standings import StandingsResult, rate
from elo_exp.judges import PaidJudge
from elo_exp.pipeline import bill
from elo_exp.records import Comparison, Judgment, Plot, Prompt, UserError
from elo_exp.report import artifacts
from elo_exp.report.verdicts import verdict_rows
from elo_exp.settings import Settings, parse_shard

logger = logging.getLogger(__name__)

NEEDS = frozenset({"entrant", "judge", "rubric", "rating"})


class TournamentResult(StandingsResult):
    """Standings, with the responses and judgments behind them."""

    def __init__(
        self,
        standings: Standings,
        facts: Mapping[str, Any],
        *,
        responses: Responses,
        comparisons: Mapping[str, Sequence[Comparison]],
        judgments: Mapping[str, Sequence[Judgment]],
    ) -> None:
        self.quality = _quality(judgments)
        super().__init__(
            standings, {**facts, "judge_quality": [_quality_row(q) for q in self.quality]}
        )
        self._responses = responses
        self._comparisons = comparisons
        self._judgments = judgments

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
        judging = artifacts.write_judging(
            run_dir,
            responses=self._responses,
            comparisons=self._comparisons,
            judgments=self._judgments,
        )
        return [*judging, *super().write(run_dir, plots)]

    def metrics(self) -> Mapping[str, float]:
        return artifacts.metrics(self.standings, self.quality)

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        verdicts = [
            row
            for name, some in self._judgments.items()
            for row in verdict_rows(self._comparisons[name], some)
        ]
        return {"judge_quality": [_quality_row(q) for q in self.quality], "verdicts": verdicts}

    def table(self) -> str:
        return artifacts.table(self.standings, self.quality)


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    return {"bank": Path(settings.prompts.bank_path), **parts.inputs()}


def check(settings: Settings, parts: Parts) -> None:
    pairing.check_entrants(list(parts.entrants))
    if not parts.rubrics:
        raise UserError("rubric: none is chosen. Choose at least one: 'rubric=[factuality]'.")
    check_dimensions(parts.rubrics)
    _, prompts = _prompts(settings)
    for rubric in parts.rubrics:
        if not any(map(rubric.applies_to, prompts)):
            logger.warning(
                "warning: rubric %s: no prompt has a gold_answer, so it judges nothing. Leave it out: rubric=[...]",
                rubric.dimension,
            )
    if settings.plan:  # which needs no model, key or server
        return
    asks = not (settings.judging.stored_only or settings.shard)
    assert parts.judge is not None
    parts.judge.cache_key()  # as the next line, it raises for a model that is absent
    all_generated = pipeline.all_generated(prompts, parts.entrants, parts.store)
    if asks and isinstance(parts.judge, PaidJudge) and not all_generated:
        parts.judge.preflight()  # before the entrants work for hours
    for name, entrant in parts.entrants.items():
        if not isinstance(entrant, HostedEntrant):
            continue
        if not pipeline.all_generated(prompts, {name: entrant}, parts.store):
            entrant.preflight()
    if (
        asks
        and isinstance(parts.judge, PaidJudge)
        and pipeline.api_is_to_answer(prompts, parts.entrants, parts.store)
    ):
        pipeline.check_before_answers(
            _plan(settings, parts), _plan(settings, parts, at_least=True), parts.store
        )


def errand(settings: Settings, parts: Parts) -> str | None:
    """With plan=true: what judging would cost, of all prompts, no model being asked. With shard=i/n: a share of the
    answers."""
    if settings.plan:
        return bill.plan_table(_plan(settings, parts))
    return None if settings.shard is None else _answer_share(settings, parts, settings.shard)


def _plan(settings: Settings, parts: Parts, *, at_least: bool = False) -> Plan:
    assert parts.judge is not None
    judging, prompts = settings.judging, _prompts(settings)[1]
    responses = pipeline.assumed(
        prompts,
        parts.entrants,
        parts.store,
        allow_missing=settings.allow_missing,
        at_least=at_least,
    )
    return pipeline.plan_pairs(
        _paired(settings, parts, prompts, responses),
        parts.rubrics,
        parts.judge,
        parts.store,
        repeats=judging.repeats,
        stored_only=judging.stored_only,
    )


def _answer_share(settings: Settings, parts: Parts, shard: str) -> str:
    prompts = pipeline.sharded(_prompts(settings)[1], parse_shard(shard))
    pipeline.generate(prompts, parts.entrants, parts.store, allow_missing=settings.allow_missing)
    usage = parts.store.usage
    done = f", {usage.responses_stored} were there" if usage.responses_stored else ""
    return f"shard {shard}: {usage.responses_generated} responses made{done}; run without shard= to judge"


def run(settings: Settings, parts: Parts) -> TournamentResult:
    assert parts.judge is not None
    judging = settings.judging
    every_prompt, prompts = _prompts(settings)

    responses = pipeline.generate(
        prompts, parts.entrants, parts.store, allow_missing=settings.allow_missing
    )
    comparisons = _paired(settings, parts, prompts, responses)
    judgments = pipeline.judge_pairs(
        comparisons,
        parts.rubrics,
        parts.judge,
        parts.store,
        repeats=judging.repeats,
        stored_only=judging.stored_only,
        allow_missing=settings.allow_missing,
    )
    rated = _on_whole_prompts(judgments, comparisons) if settings.allow_missing else judgments
    games = _battles(rated)
    facts = {
        "judge_model": parts.judge.model,
        "entrants": list(parts.entrants),
        "rubric_versions": {rubric.dimension: rubric.version for rubric in parts.rubrics},
        "bank_size": len(every_prompt),
        "selected_prompt_count": len(prompts),
        "truncated_responses": {
            name: sum(response.finish_reason == "length" for response in some.values())
            for name, some in responses.items()
        },
    }
    found = rate(parts, games, models=list(parts.entrants))
    found = standings.with_texts(
        found, comparisons, judgments, initial_rating=parts.elo.initial_rating
    )
    return TournamentResult(
        _with_judges(
            found,
            parts,
            pipeline.other_judges(comparisons, parts.rubrics, parts.judge, parts.store),
        ),
        facts,
        responses=responses,
        comparisons=comparisons,
        judgments=judgments,
    )


def _with_judges(
    found: Standings, parts: Parts, others: Mapping[str, Mapping[str, Sequence[Judgment]]]
) -> Standings:
    assert parts.judge is not None
    by_judge = {dimension: {parts.judge.model: some} for dimension, some in found.battles.items()}
    for name, judgments in others.items():
        for dimension, some in _battles(judgments).items():
            if len(some):
                by_judge[dimension][name] = some
    method = next(iter(parts.ratings.values()), parts.elo)
    return standings.with_judges(found, by_judge, method.rate)


def _paired(
    settings: Settings, parts: Parts, prompts: Sequence[Prompt], responses: Responses
) -> dict[str, list[Comparison]]:
    return {
        rubric.dimension: pairing.pair_up(
            prompts, responses, rubric, limit=settings.judging.limit_pairs
        )
        for rubric in parts.rubrics
    }


def _prompts(settings: Settings) -> tuple[list[Prompt], list[Prompt]]:
    """The whole bank, and the prompts that this mode takes of it."""
    every = bank.load(Path(settings.prompts.bank_path))
    return every, bank.select(every, settings.mode.strata, seed=settings.mode.pilot_seed)


def _on_whole_prompts(
    judgments: Mapping[str, Sequence[Judgment]], comparisons: Mapping[str, Sequence[Comparison]]
) -> dict[str, list[Judgment]]:
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


def _battles(judgments: Mapping[str, Sequence[Judgment]]) -> dict[str, Battles]:
    rows = [battle for some in judgments.values() for battle in battles.from_judgments(some)]
    return Battles.from_rows(rows).by_dimension(judgments)


def _quality(judgments: Mapping[str, Sequence[Judgment]]) -> list[JudgeQuality]:
    return [judge_quality.judge_quality(some, dimension=name) for name, some in judgments.items()]


def _quality_row(quality: JudgeQuality) -> dict[str, Any]:
    rates = {name: getattr(quality, name) for name in quality.RATES}
    return {**asdict(quality), **rates}
