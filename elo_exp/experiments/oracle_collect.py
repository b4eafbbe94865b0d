"""Phase 1 of the oracle experiment, step by step: what is asked, answered, teacher-forced, scored and labelled.

Each answer is stored as it is made, so that a run that was stopped goes on where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp import pipeline
from elo_exp.api.planning import Plan
from elo_exp.arena import rows as arena_rows
from elo_exp.data import bank
from elo_exp.data.pairing import Responses
from elo_exp.data.scoring import ScoreRubric
from elo_exp.experiments.judged import parse_shard
from elo_exp.files import utc_now, write_json, write_jsonl
from elo_exp.judges import Judge, PaidJudge
from elo_exp.models import tiny
from elo_exp.oracle import collection
from elo_exp.oracle import prompts as oracle_prompts
from elo_exp.oracle.collection import LoggedData, PolicySummary
from elo_exp.oracle.data import MIN_LABELS
from elo_exp.pipeline import LogprobCheck, bill
from elo_exp.records import Item, Prompt, Score, UserError, one_of
from elo_exp.store.store import Store

if TYPE_CHECKING:
    from elo_exp.experiments.oracle import Oracle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What Phase 1 leaves behind."""

    found: LoggedData
    checks: Sequence[LogprobCheck]
    judge_model: str
    oracle_model: str
    rubrics: Mapping[str, ScoreRubric]  # scoring, the judge's; oracle_scoring, the oracle's

    @cached_property
    def _files(self) -> dict[str, list[dict[str, Any]]]:
        return self.found.files()

    @cached_property
    def info(self) -> dict[str, Any]:
        """What there is and how sound it is, as JSON."""
        return {
            "logging_policy": self.found.logging_policy,
            "n_prompts": len(self.found.prompts),
            "judge_model": self.judge_model,
            "oracle_model": self.oracle_model,
            "rubric_versions": {name: rubric.version for name, rubric in self.rubrics.items()},
            "checks": [found.to_dict() for found in self.checks],
            "policies": [summary.to_dict() for summary in self.summaries],
            "n_rows": {name: len(rows) for name, rows in self._files.items()},
        }

    @cached_property
    def summaries(self) -> list[PolicySummary]:
        return self.found.summaries()

    def write(self, run_dir: Path) -> list[Path]:
        return [
            write_json(run_dir / "dataset_info.json", {"created_at": utc_now(), **self.info}),
            *(write_jsonl(run_dir / name, rows) for name, rows in self._files.items()),
        ]

    def table(self) -> str:
        lines = [
            f"{found.differences}: {found.n_checked:,} compared, {found.max_difference:.2g} nats apart at most"
            for found in self.checks
        ]
        return "\n".join([collection.summary_table(self.summaries), *lines, ""])


@dataclass(frozen=True, kw_only=True)
class Rater:
    """A judge, the rubric that it goes by, and of each policy the prompts of the answers that it is shown."""

    judge: Judge
    rubric: ScoreRubric
    shown: Mapping[str, Sequence[str]]

    def items(self, prompts: Mapping[str, Prompt], responses: Responses) -> list[Item]:
        """Those of the answers that there are."""
        return [
            self.rubric.item(prompts[prompt_id], some[prompt_id])
            for policy, some in responses.items()
            for prompt_id in self.shown[policy]
            if prompt_id in some
        ]


def check(experiment: Oracle, overrides: Sequence[str]) -> None:
    """Raise UserError for whatever can be known to be wrong of policies and judges before they are asked."""
    chosen = experiment.oracle
    if not experiment.entrant:
        raise UserError(
            "entrant: none is chosen. Choose the logging policy and others: 'entrant=[base,other]'."
        )
    is_named = any(word.startswith("entrant=") for word in overrides)
    if not (experiment.plan or experiment.status or experiment.judging.stored_only or is_named):
        _check_worth_paying(experiment)
    logging_policy = one_of(
        "oracle.logging_policy", _logging_policy(experiment), experiment.entrant
    )
    pipeline.as_policies(experiment.entrant, logging_policy=logging_policy)
    targets = [name for name in experiment.entrant if name != logging_policy]
    if not targets:
        raise UserError(
            f"entrant: found {logging_policy} alone. Choose policies beside it, to be estimated."
        )
    for policy in chosen.policies or ():
        one_of("oracle.policies", policy, targets)
        if (chosen.policies or []).count(policy) > 1:
            raise UserError(f"oracle.policies: {policy!r} is named twice. Name each once.")
    if chosen.prompts == "arena":
        arena_rows.check(experiment.arena)
    _check_judges(experiment)


def _logging_policy(experiment: Oracle) -> str:
    return experiment.oracle.logging_policy or next(iter(experiment.entrant))


def _check_judges(experiment: Oracle) -> None:
    assert experiment.judge is not None
    assert experiment.oracle_judge is not None
    judge = (experiment.judge.model, experiment.judge.cache_key(), experiment.scoring)
    if judge == (
        experiment.oracle_judge.model,
        experiment.oracle_judge.cache_key(),
        experiment.oracle_scoring,
    ):
        raise UserError(
            "judge@oracle_judge: is the judge itself, and every label would be its score. Choose another, or show it "
            "more: scoring@oracle_scoring=reference."
        )
    if isinstance(experiment.judge, PaidJudge) and experiment.oracle_judge.model == "lexical":
        raise UserError(
            f"judge@oracle_judge: found lexical, which only compares words, as the oracle for {experiment.judge.model}. "
            "Choose a better judge than that: judge@oracle_judge=opus."
        )


def _check_worth_paying(experiment: Oracle) -> None:
    """Raise UserError where the demonstration's policies, which stand in where nobody names others, would be judged for
    money."""
    paid = [
        judge.model
        for judge in (experiment.judge, experiment.oracle_judge)
        if isinstance(judge, PaidJudge)
    ]
    random = [
        str(getattr(entrant, "model", "")).startswith(tiny.PREFIX)
        for entrant in experiment.entrant.values()
    ]
    if paid and all(random):
        raise UserError(
            f"entrant: none is named, and {' and '.join(paid)} would judge the demonstration's models of random "
            "weights. Name your policies: 'entrant=[base,other]'. To try the judges on random ones, name these: "
            "'entrant=[tiny_base,tiny_clone]'."
        )


class Collecting:
    """The steps of Phase 1, for the prompts and slices that the settings draw. Raises UserError where they would give
    too few labels."""

    def __init__(self, experiment: Oracle, store: Store) -> None:
        assert experiment.judge is not None
        assert experiment.oracle_judge is not None
        assert experiment.scoring is not None
        assert experiment.oracle_scoring is not None
        chosen = experiment.oracle
        self._settings, self._store = experiment, store
        self.logging_policy = _logging_policy(experiment)
        names = [self.logging_policy]
        names += [
            name for name in chosen.policies or experiment.entrant if name != self.logging_policy
        ]
        entrants = {name: experiment.entrant[name] for name in names}
        self._policies = pipeline.as_policies(entrants, logging_policy=self.logging_policy)
        self._prompts = _prompts(experiment, [experiment.scoring, experiment.oracle_scoring])
        self._by_id = {prompt.prompt_id: prompt for prompt in self._prompts}
        shares = dict.fromkeys(names, chosen.validation_fraction) | {
            self.logging_policy: chosen.label_fraction
        }
        slices = {name: self._slice(name, share) for name, share in shares.items()}
        everything = {name: list(self._by_id) for name in names}
        self._judge = Rater(judge=experiment.judge, rubric=experiment.scoring, shown=everything)
        self._oracle = Rater(
            judge=experiment.oracle_judge, rubric=experiment.oracle_scoring, shown=slices
        )
        if (n := len(slices[self.logging_policy])) < MIN_LABELS:
            raise UserError(
                f"oracle.label_fraction: {chosen.label_fraction:g} of {len(self._prompts)} logged answers are {n} "
                f"labels. Expected {MIN_LABELS} or more: raise it, or oracle.n_prompts."
            )

    def _slice(self, policy: str, share: float) -> list[str]:
        """The prompts of the answers of a policy that are labelled."""
        drawn = oracle_prompts.shuffled(
            self._by_id, seed=self._settings.oracle.seed, purpose=f"labels of {policy}"
        )
        return drawn[: round(share * len(drawn))]

    def run(self) -> Collection:
        """All steps. Raises UserError for a log-probability that is not what it should be, and where a budget does not
        reach; what would stop the oracle is known before the judge is paid."""
        self._preflight()
        responses, logprobs, checks = self._answer(self._prompts)
        self._check_before_paying(responses)
        oracle = self._oracle
        collected = LoggedData(
            prompts=self._prompts,
            logging_policy=self.logging_policy,
            responses=responses,
            logprobs=logprobs,
            scores=self._rated(self._judge, responses),
            labels=self._rated(oracle, responses),
        )
        return Collection(
            found=collected,
            checks=checks,
            judge_model=self._judge.judge.model,
            oracle_model=oracle.judge.model,
            rubrics={"scoring": self._judge.rubric, "oracle_scoring": oracle.rubric},
        )

    def _preflight(self) -> None:
        """What would stop the first paid call is said before models work for hours."""
        asks = not self._settings.judging.stored_only
        if asks and not pipeline.all_generated(self._prompts, self._policies, self._store):
            for rater in (self._judge, self._oracle):
                if isinstance(rater.judge, PaidJudge):
                    rater.judge.preflight()

    def _check_before_paying(self, responses: Responses) -> None:
        """Raise UserError for what would stop judge or oracle once one of them has been paid."""
        plans = [(rater, self._plan(rater, responses)) for rater in (self._judge, self._oracle)]
        for _, plan in plans:
            plan.check(self._store.usage)
        for rater, plan in plans:
            if plan.to_pay and isinstance(rater.judge, PaidJudge):
                rater.judge.preflight()

    def _plan(self, rater: Rater, responses: Responses) -> Plan:
        items, stored_only = rater.items(self._by_id, responses), self._settings.judging.stored_only
        return pipeline.plan_scores(
            items, rater.rubric, rater.judge, self._store, stored_only=stored_only
        )

    def _answer(
        self, prompts: Sequence[Prompt]
    ) -> tuple[Responses, dict[str, dict[str, float | None]], list[LogprobCheck]]:
        """The logging policy first, and how likely every policy is to say the same: policies that cannot be compared
        are found out before they answer themselves."""
        chosen, store, allow_missing = (
            self._settings.oracle,
            self._store,
            self._settings.allow_missing,
        )
        first = {self.logging_policy: self._policies[self.logging_policy]}
        logged = pipeline.generate(prompts, first, store, allow_missing=allow_missing)
        answers = logged[self.logging_policy]
        logprobs = pipeline.teacher_force(prompts, answers, self._policies, store)
        checks = [
            pipeline.generation_check(
                answers, logprobs[self.logging_policy], allowed=chosen.check_nats
            ),
            pipeline.clone_check(
                prompts,
                answers,
                self._policies,
                logging_policy=self.logging_policy,
                n_answers=chosen.check_answers,
                seed=chosen.seed,
            ),
        ]
        for found in checks:
            found.check()
        targets = {name: policy for name, policy in self._policies.items() if name not in first}
        return (
            {**logged, **pipeline.generate(prompts, targets, store, allow_missing=allow_missing)},
            logprobs,
            checks,
        )

    def _rated(self, rater: Rater, responses: Responses) -> dict[str, dict[str, Score]]:
        """What the judge says of each answer that it is shown, by policy and prompt."""
        items = rater.items(self._by_id, responses)
        stored_only, allow_missing = (
            self._settings.judging.stored_only,
            self._settings.allow_missing,
        )
        scores = pipeline.score_responses(
            items,
            rater.rubric,
            rater.judge,
            self._store,
            stored_only=stored_only,
            allow_missing=allow_missing,
        )
        found: dict[str, dict[str, Score]] = {policy: {} for policy in responses}
        for score in scores:
            found[score.policy][score.prompt_id] = score
        return found

    def share(self, shard: str) -> str:
        """Answers and log-probabilities of a share of the prompts are made; what was done, in words."""
        self._answer(pipeline.sharded(self._prompts, parse_shard(shard)))
        usage = self._store.usage
        there = usage.responses_stored + usage.logprobs_stored
        return (
            f"shard {shard}: {usage.responses_generated} responses and {usage.logprobs_forced} log-probabilities made"
            f"{f', {there} were there' if there else ''}; run without shard= to score them"
        )

    def plan(self) -> str:
        """What judge and oracle would be asked and paid. No model and no judge is asked."""
        allow_missing = self._settings.allow_missing
        responses = pipeline.assumed(
            self._prompts, self._policies, self._store, allow_missing=allow_missing
        )
        named = {"judge: all answers": self._judge, "oracle: its slices of them": self._oracle}
        return "\n".join(
            f"{what}\n{bill.plan_table(self._plan(r, responses))}" for what, r in named.items()
        )

    def status(self) -> str:
        """What the store holds of each policy and step, as a table. Nobody is asked."""
        responses = pipeline.stored_responses(self._prompts, self._policies, self._store)
        n_forced = pipeline.n_forced(
            self._prompts, responses[self.logging_policy], self._policies, self._store
        )
        rows = {}
        for policy, some in responses.items():
            done = [(len(some), len(self._prompts)), (n_forced[policy], len(self._prompts))]
            for rater in (self._judge, self._oracle):
                items = rater.items(self._by_id, {policy: some})
                n = pipeline.n_scored(items, rater.rubric, rater.judge, self._store)
                done.append((n, len(rater.shown[policy])))
            rows[policy] = done
        return collection.status_table(rows)


def _prompts(experiment: Oracle, rubrics: Sequence[ScoreRubric]) -> list[Prompt]:
    """What the policies are asked: prompts that all rubrics apply to."""
    chosen = experiment.oracle
    if chosen.prompts == "arena":
        return oracle_prompts.usable(
            oracle_prompts.sample_arena(experiment.arena, chosen.n_prompts, seed=chosen.seed),
            rubrics,
        )
    whole = bank.load(Path(experiment.prompts.bank_path))
    some = bank.select(whole, experiment.mode.strata, seed=experiment.mode.pilot_seed)
    return oracle_prompts.sample_bank(
        oracle_prompts.usable(some, rubrics), chosen.n_prompts, seed=chosen.seed
    )
