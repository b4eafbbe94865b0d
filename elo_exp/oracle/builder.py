"""Collect the data of the oracle experiment: answers, log-probabilities, scores and labels.

Each answer is stored as it is made, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elo_exp import pipeline
from elo_exp.console import text_table
from elo_exp.data.pairing import Responses
from elo_exp.data.scoring import ScoreRubric
from elo_exp.entrants import Entrant, Policy
from elo_exp.judges import Judge, PaidJudge
from elo_exp.oracle.collection import LoggedData, Logprobs, Scores
from elo_exp.pipeline import LogprobCheck, Plan
from elo_exp.records import Item, Prompt, UserError
from elo_exp.store.store import Store

_STEPS = ("answers", "log-probabilities", "scores", "labels")


@dataclass(frozen=True, kw_only=True)
class Rater:
    """The judge or the oracle, its rubric, and the prompts whose answers it rates, by policy."""

    judge: Judge
    rubric: ScoreRubric
    prompt_ids: Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class LoggedDataBuilder:
    """The steps of the collection.

    entrants       by name, the logging policy first
    policies       of them, those that are weighted by log-probabilities, the logging policy first;
                   none where every entrant is estimated from its own answers alone
    check_nats     by how many nats a token teacher forcing may differ from the log-probabilities
                   at generation; None: by what rounds in their arithmetic
    check_answers  number of answers for which that is checked before the others are forced
    """

    prompts: Sequence[Prompt]
    entrants: Mapping[str, Entrant]
    policies: Mapping[str, Policy]
    judge: Rater
    oracle: Rater
    store: Store
    stored_only: bool
    allow_missing: bool
    check_nats: float | None
    check_answers: int

    @property
    def logging_policy(self) -> str | None:
        return next(iter(self.policies), None)

    @property
    def _raters(self) -> list[Rater]:
        return [self.judge, self.oracle]

    def build(self) -> LoggedData:
        """Run all steps.

        Raises UserError for a log-probability that differs, for a budget that is too small, and
        where no answer has a score that the calibration needs. What would stop the oracle is
        checked before the judge is paid, and what would stop either before an entrant is paid.
        """
        if not pipeline.all_generated(self.prompts, self.entrants, self.store):
            self._preflight(self._raters)  # before models work for hours
        if pipeline.needs_paid_answers(self.prompts, self.entrants, self.store):
            assumed, least = (self._assumed(at_least=some) for some in (False, True))
            for rater in self._raters:
                pipeline.check_before_answers(
                    self._plan(rater, assumed), self._plan(rater, least), self.store
                )
        responses, logprobs, checks = self._answer(self.prompts)
        plans = [self._plan(rater, responses) for rater in self._raters]
        for plan in plans:
            plan.check(self.store.usage)
        planned = zip(self._raters, plans, strict=True)
        self._preflight([rater for rater, plan in planned if plan.new])
        data = LoggedData(
            prompts=self.prompts,
            logging_policy=self.logging_policy,
            responses=responses,
            logprobs=logprobs,
            scores=self._rate(self.judge, responses),
            labels=self._rate(self.oracle, responses),
            checks=checks,
            models={
                "judge_model": self.judge.judge.model,
                "oracle_model": self.oracle.judge.model,
                "rubric_versions": {
                    "scoring": self.judge.rubric.version,
                    "oracle_scoring": self.oracle.rubric.version,
                },
            },
        )
        first = self.logging_policy
        if not data.files or (first and "logged.jsonl" not in data.files):
            raise UserError(
                f"judge: no answer of {first or 'anybody'} has a readable score. See the store's "
                "replies."
            )
        return data

    def _preflight(self, raters: Sequence[Rater]) -> None:
        for rater in raters:
            if isinstance(rater.judge, PaidJudge) and not self.stored_only:
                rater.judge.preflight()

    def _answer(
        self, prompts: Sequence[Prompt]
    ) -> tuple[Responses, Logprobs, list[LogprobCheck]]:
        """Answer with the logging policy, force all, check, then answer with the others."""
        first = self.logging_policy
        if first is None:
            return self._generate(prompts, list(self.entrants)), {}, []
        logged = self._generate(prompts, [first])
        logprobs = pipeline.teacher_force(
            prompts,
            logged[first],
            self.policies,
            self.store,
            check_nats=self.check_nats,
            check_answers=self.check_answers,
        )
        check = pipeline.generation_check(
            logged[first], logprobs[first], allowed=self.check_nats
        )
        targets = [name for name in self.entrants if name != first]
        return {**logged, **self._generate(prompts, targets)}, logprobs, [check]

    def _generate(self, prompts: Sequence[Prompt], names: Sequence[str]) -> Responses:
        entrants = {name: self.entrants[name] for name in names}
        return pipeline.generate(
            prompts, entrants, self.store, allow_missing=self.allow_missing
        )

    def _assumed(self, *, at_least: bool = False) -> Responses:
        return pipeline.assume_responses(
            self.prompts,
            self.entrants,
            self.store,
            allow_missing=self.allow_missing,
            at_least=at_least,
        )

    def _queries(
        self, rater: Rater, responses: Responses
    ) -> tuple[list[Item], ScoreRubric, Judge, Store]:
        """What the stages of scoring are given: the answers to be rated, of those that exist."""
        prompts = {prompt.prompt_id: prompt for prompt in self.prompts}
        items = [
            rater.rubric.item(prompts[prompt_id], answers[prompt_id])
            for policy, answers in responses.items()
            for prompt_id in rater.prompt_ids[policy]
            if prompt_id in answers
        ]
        return items, rater.rubric, rater.judge, self.store

    def _plan(self, rater: Rater, responses: Responses) -> Plan:
        queries = self._queries(rater, responses)
        return pipeline.plan_scores(*queries, stored_only=self.stored_only)

    def _rate(self, rater: Rater, responses: Responses) -> Scores:
        scores = pipeline.score_responses(
            *self._queries(rater, responses),
            stored_only=self.stored_only,
            allow_missing=self.allow_missing,
        )
        return {
            policy: {s.prompt_id: s for s in scores if s.policy == policy}
            for policy in responses
        }

    def answer_shard(self, i: int, n: int) -> str:
        """Answer and force the i-th of n shares of the prompts; return a summary."""
        self._answer(self.prompts[i::n])
        usage = self.store.usage
        n_stored = usage.responses_stored + usage.logprobs_stored
        stored = f", {n_stored} were in the store" if n_stored else ""
        return (
            f"shard {i}/{n}: {usage.responses_generated} responses and {usage.logprobs_forced} "
            f"log-probabilities made{stored}; run without shard= to score them"
        )

    def plan(self) -> str:
        """Tables of what judge and oracle would be asked and paid; makes no call."""
        assumed = self._assumed()
        judge, oracle = (
            pipeline.plan_table(self._plan(rater, assumed)) for rater in self._raters
        )
        return f"judge: all answers\n{judge}\noracle: its slices of them\n{oracle}"

    def status(self) -> str:
        """A table of what the store holds, by policy and step; makes no call."""
        responses = pipeline.stored_responses(self.prompts, self.entrants, self.store)
        logged, n = responses.get(self.logging_policy or "", {}), len(self.prompts)
        n_forced = pipeline.n_forced(self.prompts, logged, self.policies, self.store)
        rows, missing = [], Counter[str]()
        for policy, answers in responses.items():
            forced = (n_forced[policy], n) if policy in n_forced else (0, 0)
            done = [(len(answers), n), forced]
            for rater in self._raters:
                queries = self._queries(rater, {policy: answers})
                n_wanted = len(rater.prompt_ids[policy])
                done.append((pipeline.n_scored(*queries), n_wanted))
            rows.append([policy, *(f"{some:,} of {wanted:,}" for some, wanted in done)])
            for step, (some, wanted) in zip(_STEPS, done, strict=True):
                missing[step] += wanted - some
        listed = ", ".join(f"{n:,} {step}" for step, n in missing.items() if n)
        conclusion = f"missing: {listed}. Run without status=true to continue."
        table = text_table(["policy", *_STEPS], rows)
        return f"{table}\n{conclusion if listed else 'complete'}"
