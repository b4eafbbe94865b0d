"""Collect the data of the oracle experiment: answers, log-probabilities, scores and labels.

Each answer is stored as it is made, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elo_exp import pipeline
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSource
from elo_exp.data import bank, conversations, pairing
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.entrants import Entrant, Policy
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.experiments import Context
from elo_exp.experiments.entrant_answers import EntrantAnswers, look_for, preflight
from elo_exp.experiments.settings import ModeSettings
from elo_exp.experiments.shards import parse_shard
from elo_exp.files import check_choice, utc_now, write_json, write_jsonl
from elo_exp.judges import ApiJudge, Judge
from elo_exp.oracle.data import MIN_CALIBRATION_LABELS
from elo_exp.oracle.weights import EXTREME_WEIGHT
from elo_exp.pipeline import JudgingSettings, LogprobCheck, Plan
from elo_exp.records import Item, Prompt, Response, Score, make_fingerprint
from elo_exp.report import oracle_page
from elo_exp.store.answer_store import Store
from elo_exp.types import Count, Natural, NonNegative, PositiveShare, Share

logger = logging.getLogger(__name__)

_ENGLISH_LABELS = ("english", "en", "eng")


@dataclass(kw_only=True)
class CollectionSettings:
    """What is collected; conf/experiment/oracle.yaml describes them."""

    prompts: Literal["bank", "arena"]
    n_prompts: Count | None
    logging_policy: str | None
    label_fraction: PositiveShare
    validation_fraction: Share
    check_nats: NonNegative | None
    check_answers: Count
    policies: list[str] | None
    seed: Natural

    def weighted(self, entrants: Mapping[str, Entrant]) -> dict[str, Policy]:
        """Return entrants that record log-probabilities, the logging policy first; none without a target.

        Raises SettingError for a logging policy that records none.
        """
        candidates = [
            name
            for name, entrant in entrants.items()
            if isinstance(entrant, Policy) and entrant.logprobs
        ]
        logging_policy = self.logging_policy or next(iter(candidates), None)
        targets = set(self.policies or candidates).intersection(candidates) - {
            logging_policy
        }
        if logging_policy is None or (logging_policy in candidates and not targets):
            return {}
        check_choice("oracle.logging_policy", logging_policy, entrants)
        policy_names = [
            logging_policy,
            *(name for name in candidates if name in targets),
        ]
        return pipeline.require_policies(
            {name: entrants[name] for name in policy_names}
        )


def shuffle_by_hash(names: Iterable[str], *, seed: int, purpose: str) -> list[str]:
    """Shuffle by a hash, so that the first n of a larger set include those of a smaller one."""
    return sorted(names, key=lambda name: make_fingerprint([purpose, seed, name]))


def sample_bank(prompts: Sequence[Prompt], n: int | None, *, seed: int) -> list[Prompt]:
    """Sample n prompts, or all where there are not more, in their order."""
    sampled_ids = set(
        shuffle_by_hash((p.prompt_id for p in prompts), seed=seed, purpose="prompts")[
            :n
        ]
    )
    return [prompt for prompt in prompts if prompt.prompt_id in sampled_ids]


def sample_arena(arena: ArenaSource, n: int | None, *, seed: int) -> list[Prompt]:
    """Sample n first turns of an arena, or all where there are not more, numbered as drawn.

    Empty, repeated and too long ones are left out, and those that are not English by the data set's
    label, or by their words where it has none. Raises EvidenceError where none is left.
    """
    texts: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for language, question in arenas.read_questions(arena):
        text = (question or "").strip()
        if text in texts:
            dropped["repeated"] += 1
        elif not text:
            dropped["empty"] += 1
        elif len(text) > arena.max_chars:
            dropped[f"longer than {arena.max_chars} characters"] += 1
        elif (language or "").casefold() not in _ENGLISH_LABELS:
            dropped["not in English"] += 1
        else:
            texts[text] = None
    reasons = (
        ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "-"
    )
    if not texts:
        raise EvidenceError(
            f"Arena {arena.name} has no usable prompt ({reasons}). Its rows must have an English prompt."
        )
    logger.info("arena %s: %d prompts; dropped: %s", arena.name, len(texts), reasons)
    return [
        Prompt(
            prompt_id=f"{arena.name}_{number}", text=text, source=arena.name, subject=""
        )
        for number, text in enumerate(
            shuffle_by_hash(texts, seed=seed, purpose="prompts")[:n]
        )
    ]


def draw_prompts(
    settings: CollectionSettings,
    rubrics: Sequence[PointwiseRubric],
    *,
    arena: ArenaSource,
    bank_path: Path,
    mode: ModeSettings,
) -> list[Prompt]:
    """Sample prompts that all rubrics apply to. Raises SettingError if there are none, or if a rubric has another scale."""
    for rubric in rubrics:
        if rubric.bounds != (0.0, 1.0):
            raise SettingError(
                f"experiment=oracle needs scores from 0 to 1, and {rubric.dimension} may give others. If its numbers lie "
                "between 0 and 1, set:",
                "  scoring.low=0 scoring.high=1",
            )
    if settings.prompts == "arena":
        prompts = sample_arena(arena, settings.n_prompts, seed=settings.seed)
    else:
        prompts = bank.sample_strata(
            bank.load_bank(bank_path), mode.strata, seed=mode.pilot_seed
        )
    usable = [p for p in prompts if all(rubric.applies_to(p) for rubric in rubrics)]
    if not usable:
        raise SettingError(
            f"The rubric shows reference answers, and none of the {len(prompts)} prompts has one. Choose rubrics "
            f"without them:",
            "  scoring=score scoring@oracle_scoring=score",
        )
    for prompt in usable:
        if (n := conversations.n_turns(prompt)) > 1:
            raise SettingError(
                f"experiment=oracle needs prompts with one user turn to answer; prompt {prompt.prompt_id} has {n}. "
                "Move the earlier turns and their answers into messages."
            )
    if n_dropped := len(prompts) - len(usable):
        logger.info(
            "%d of %d prompts dropped: no reference answer", n_dropped, len(prompts)
        )
    return sample_bank(usable, settings.n_prompts, seed=settings.seed)


Logprobs = Mapping[str, Mapping[str, float | None]]
Scores = Mapping[str, Mapping[str, Score]]
Responses = Mapping[str, Mapping[str, Response]]


class Scorer(NamedTuple):
    """Who scores answers, and by which rubric."""

    judge: Judge
    rubric: PointwiseRubric


class Rater(NamedTuple):
    """The judge or the oracle, its rubric, and the prompts whose answers it rates, by policy."""

    judge: Judge
    rubric: PointwiseRubric
    prompt_ids: Mapping[str, Sequence[str]]


class Collection:
    """The steps of the collection.

    entrants  by name, the logging policy first
    policies  of them, those that are weighted by log-probabilities, the logging policy first; none
              where every entrant is estimated from its own answers alone
    raters    judge and oracle
    """

    def __init__(
        self,
        settings: CollectionSettings,
        store: Store,
        *,
        prompts: Sequence[Prompt],
        entrants: Mapping[str, Entrant],
        judge: Scorer,
        oracle: Scorer,
        asking: JudgingSettings,
    ) -> None:
        """Draw slices of the prompts. Raises EvidenceError where they would give too few labels."""
        self.chosen, self.store, self.asking = settings, store, asking
        self.prompts, self.policies = prompts, settings.weighted(entrants)
        ids = [prompt.prompt_id for prompt in self.prompts]
        logging_names = [*self.policies][:1]
        names = dict.fromkeys([*logging_names, *(settings.policies or entrants)])
        self.entrants = {name: entrants[name] for name in names}
        labelled_ids = {}
        for name in names:
            is_target = bool(logging_names) and name not in logging_names
            share = (
                settings.validation_fraction if is_target else settings.label_fraction
            )
            purpose = f"labels of {name if logging_names else 'all'}"
            order = shuffle_by_hash(ids, seed=settings.seed, purpose=purpose)
            labelled_ids[name] = order[: round(share * len(ids))]
        if (n := len(next(iter(labelled_ids.values())))) < MIN_CALIBRATION_LABELS:
            raise EvidenceError(
                f"A calibration needs at least {MIN_CALIBRATION_LABELS} labels; "
                f"oracle.label_fraction={settings.label_fraction:g} of "
                f"{len(ids)} answers gives {n}. Raise it or oracle.n_prompts."
            )
        ids_by_policy = dict.fromkeys(names, ids)
        self.raters = (
            Rater(*judge, ids_by_policy),
            Rater(*oracle, labelled_ids),
        )

    @property
    def answers(self) -> EntrantAnswers:
        """The answers of the policies."""
        return EntrantAnswers(
            entrants=self.entrants,
            allow_missing=self.asking.allow_missing,
            canary=self.asking.canary,
        )

    def plan_answers(self) -> list[pipeline.AnswerPlan]:
        """Plan the answers that policies have still to make, and what they cost."""
        return self.answers.make_plans(self.prompts, self.store)

    def build(self) -> LoggedData:
        """Run all steps.

        Raises UserError for a log-probability that differs, BudgetError for a budget that is too small,
        and EvidenceError if no answer has a score that the calibration needs. What would stop the oracle is
        checked before the judge is paid, and what would stop either before an entrant is paid.
        """
        if pipeline.needs_paid_answers(self.prompts, self.entrants, self.store):
            assumed_answers, least_answers = (
                self.assume_responses(at_least=at_least) for at_least in (False, True)
            )
            for rater in self.raters:
                pipeline.check_before_answers(
                    self.make_plan(rater, assumed_answers),
                    self.make_plan(rater, least_answers),
                    self.store,
                )
        responses, logprobs, checks = self._answer_prompts(self.prompts)
        plans = [self.make_plan(rater, responses) for rater in self.raters]
        for plan in plans:
            plan.check(self.store)
        rater_plans = zip(self.raters, plans, strict=True)
        self._preflight([rater for rater, plan in rater_plans if plan.new])
        scores, labels = (
            self._rate_responses(rater, responses) for rater in self.raters
        )
        judge, oracle = self.raters
        data = LoggedData(
            prompts=self.prompts,
            logging_policy=next(iter(self.policies), None),
            responses=responses,
            logprobs=logprobs,
            scores=scores,
            labels=labels,
            checks=checks,
            models={
                "judge_model": judge.judge.model,
                "oracle_model": oracle.judge.model,
                "rubric_versions": {
                    "scoring": judge.rubric.version,
                    "oracle_scoring": oracle.rubric.version,
                },
            },
        )
        logging_policy = data.logging_policy
        if not data.files or (logging_policy and "logged.jsonl" not in data.files):
            raise EvidenceError(
                f"The judge gave no readable score for any answer{f' of {logging_policy}' if logging_policy else ''}. "
                "To read its replies:",
                "  python -m elo_exp experiment=store store.action=export store.file=FILE.jsonl",
            )
        return data

    def _preflight(self, raters: Sequence[Rater]) -> None:
        for rater in raters:
            if isinstance(rater.judge, ApiJudge) and not self.asking.stored_only:
                rater.judge.preflight()

    def _answer_prompts(
        self, prompts: Sequence[Prompt]
    ) -> tuple[Responses, Logprobs, list[LogprobCheck]]:
        """Have the logging policy answer, compute all log-probabilities, check them, and have the others answer."""
        settings, store = self.chosen, self.store

        def generate(entrants: Mapping[str, Entrant]) -> Responses:
            return _index_by_prompt(
                pipeline.generate(
                    prompts,
                    entrants,
                    store,
                    allow_missing=self.asking.allow_missing,
                    canary=self.asking.canary,
                )
            )

        if not self.policies:
            return generate(self.entrants), {}, []
        other_entrants = dict(self.entrants)
        logging_policy = next(iter(other_entrants))
        logged = generate({logging_policy: other_entrants.pop(logging_policy)})
        logprobs = pipeline.teacher_force(
            prompts,
            logged[logging_policy],
            self.policies,
            store,
            check_nats=settings.check_nats,
            check_answers=settings.check_answers,
        )
        check = pipeline.compare_logprobs(
            logged[logging_policy],
            logprobs[logging_policy],
            allowed=settings.check_nats,
        )
        return {**logged, **generate(other_entrants)}, logprobs, [check]

    def assume_responses(self, *, at_least: bool = False) -> Responses:
        return _index_by_prompt(
            pipeline.assume_responses(
                self.prompts,
                self.entrants,
                self.store,
                allow_missing=self.asking.allow_missing,
                at_least=at_least,
            )
        )

    def _make_queries(
        self, rater: Rater, responses: Responses
    ) -> tuple[list[Item], PointwiseRubric, Judge, Store]:
        """Return the arguments of the scoring stages, with those answers to be rated that exist."""
        prompts = {prompt.prompt_id: prompt for prompt in self.prompts}
        items = [
            rater.rubric.item(prompts[prompt_id], answers[prompt_id])
            for policy, answers in responses.items()
            for prompt_id in rater.prompt_ids[policy]
            if prompt_id in answers
        ]
        return items, rater.rubric, rater.judge, self.store

    def make_plan(self, rater: Rater, responses: Responses) -> Plan:
        queries = self._make_queries(rater, responses)
        return pipeline.plan_scores(*queries, self.asking)

    def _rate_responses(self, rater: Rater, responses: Responses) -> Scores:
        queries = self._make_queries(rater, responses)
        scores = pipeline.score_responses(*queries, self.asking)
        return {
            policy: {s.prompt_id: s for s in scores if s.policy == policy}
            for policy in responses
        }

    def answer_shard(self, shard: str) -> str:
        """Answer and force the i-th of n shares of the prompts; return a summary."""
        i, n = parse_shard(shard)
        self._answer_prompts(self.prompts[i::n])
        usage = self.store.usage
        n_stored = usage.responses_stored + usage.logprobs_stored
        stored = f", {n_stored} were in the store" if n_stored else ""
        return (
            f"shard {shard}: {usage.responses_generated} responses and {usage.logprobs_forced} "
            f"log-probabilities made{stored}; run without shard= to score them"
        )

    def plans(self) -> list[Plan]:
        """Return what judge and oracle would be asked, and cost; makes no call."""
        assumed_answers = self.assume_responses()
        is_upper_bound = any(plan.is_upper_bound for plan in self.plan_answers())
        return [
            replace(
                self.make_plan(rater, assumed_answers), is_upper_bound=is_upper_bound
            )
            for rater in self.raters
        ]

    def status(self) -> str:
        """A table of what the store holds, by policy and step; makes no call."""
        responses = _index_by_prompt(
            pipeline.read_stored_responses(self.prompts, self.entrants, self.store)
        )
        logged, n = responses[next(iter(self.entrants))], len(self.prompts)
        n_forced = pipeline.count_forced(
            self.prompts, logged, self.policies, self.store
        )
        done = {}  # by policy: by step, how many of how many
        for policy, answers in responses.items():
            n_scored, n_labelled = (
                pipeline.count_scored(*self._make_queries(rater, {policy: answers}))
                for rater in self.raters
            )
            done[policy] = {
                "answers": (len(answers), n),
                "log-probabilities": (
                    n_forced.get(policy, 0),
                    n * (policy in n_forced),
                ),
                "scores": (n_scored, n),
                "labels": (n_labelled, len(self.raters[1].prompt_ids[policy])),
            }
        return oracle_page.status(done)


def check_collection(collection: Collection, context: Context) -> None:
    """Raise UserError for models that are missing, answers that files lack, and what would stop the first paid call."""
    collection.answers.refuse_absent(collection.prompts, collection.store)
    stored_only = collection.asking.stored_only
    preflight(
        collection.prompts,
        collection.entrants,
        None,
        collection.store,
        stored_only=stored_only,
        needs=context.needs,
    )
    for rater in () if stored_only else collection.raters:
        judge = rater.judge
        if (
            isinstance(judge, ApiJudge)
            and collection.make_plan(rater, collection.assume_responses()).new
        ):
            look_for(judge, context.needs)


def format_plans(plans: Sequence[Plan]) -> str:
    """Format what judge and oracle would be asked."""
    judge, oracle = map(pipeline.plan_table, plans)
    return f"judge: all answers\n{judge}\noracle: its slices of them\n{oracle}"


def _index_by_prompt(responses: pairing.Responses) -> Responses:
    """Index the only answer of each policy to a prompt by prompt id."""
    return {
        name: {prompt_id: answer for (prompt_id, _), answer in answers.items()}
        for name, answers in responses.items()
    }


@dataclass(frozen=True, kw_only=True)
class LoggedData:
    """Everything collected; the mappings are from policy, the logging one first, to prompt id.

    logging_policy  None where no log-probabilities are compared
    logprobs  nats, of the logging policy's answers
    models    names of judge and oracle and versions of their rubrics
    """

    prompts: Sequence[Prompt]
    logging_policy: str | None
    responses: Responses
    logprobs: Logprobs
    scores: Scores
    labels: Scores
    checks: Sequence[LogprobCheck]
    models: Mapping[str, Any]

    @cached_property
    def files(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by file name, as oracle.logged, fresh_dir and probe_dir read them.

        They have the answers with a score; those of the targets that have a label are the probe,
        or, without a logging policy, keep it.
        """
        prompts = {prompt.prompt_id: prompt.text for prompt in self.prompts}
        rows_by_file: dict[str, list[dict[str, Any]]] = {}
        for policy, scores in self.scores.items():
            rows = []
            for name, score in scores.items():
                text = self.responses[policy][name].response_text
                label = self.labels[policy].get(name)
                row: dict[str, Any] = {
                    "prompt_id": name,
                    "prompt": prompts[name],
                    "response": text,
                    "policy": policy,
                    "judge_score": score.judge_score,
                    "draw_idx": 0,
                    "judge_score_variance": score.judge_score_variance,
                    "oracle_label": label and label.judge_score,
                    "response_chars": len(text),
                }
                if policy == self.logging_policy:
                    # Rounding may leave a certain answer slightly above zero.
                    logps = {
                        target: value
                        if (value := logprobs[name]) is None
                        else min(value, 0.0)
                        for target, logprobs in self.logprobs.items()
                    }
                    row |= {"total_logprob": logps.pop(policy), "target_logps": logps}
                if score.judge_score is not None:
                    rows.append(row)
            if policy == self.logging_policy:
                rows_by_file["logged.jsonl"] = rows
            elif self.logging_policy is None:
                rows_by_file[f"fresh/{policy}.jsonl"] = rows
            else:
                rows_without_labels = [{**row, "oracle_label": None} for row in rows]
                labelled_rows = [row for row in rows if row["oracle_label"] is not None]
                rows_by_file[f"fresh/{policy}.jsonl"] = rows_without_labels
                rows_by_file[f"probe/{policy}.jsonl"] = labelled_rows
        return {name: rows for name, rows in rows_by_file.items() if rows}

    @cached_property
    def info(self) -> dict[str, Any]:
        """Counts and checks, for dataset_info.json and the manifest."""
        return {
            "logging_policy": self.logging_policy,
            "n_prompts": len(self.prompts),
            **self.models,
            "checks": [check.to_dict() for check in self.checks],
            "policies": [self._summarize(policy) for policy in self.responses],
            "n_rows": {name: len(rows) for name, rows in self.files.items()},
        }

    def write(self, run_dir: Path) -> dict[str, Any]:
        """Write all files; return the arguments of `read_dataset`, without targets that lack scores."""
        write_json(
            run_dir / "dataset_info.json", {"created_at": utc_now(), **self.info}
        )
        for name, rows in self.files.items():
            write_jsonl(run_dir / name, rows)
        drawn_policies = [
            name for name in self.responses if f"fresh/{name}.jsonl" in self.files
        ]
        for policy in self.responses.keys() - {*drawn_policies, self.logging_policy}:
            logger.warning(
                "warning: %s is left out, because it has no readable score", policy
            )
        path_by_setting = {
            "logged": run_dir / "logged.jsonl",
            "fresh_dir": run_dir / "fresh",
            "probe_dir": run_dir / "probe",
        }
        existing = {
            name: path for name, path in path_by_setting.items() if path.exists()
        }
        return {"policies": drawn_policies, **existing}

    def _summarize(self, policy: str) -> dict[str, Any]:
        """Count one policy's answers, and its log-probabilities of the logged answers."""
        responses = self.responses[policy].values()
        logged = self.responses.get(self.logging_policy or "", {})
        base = self.logprobs.get(self.logging_policy or "", {})
        forced = self.logprobs.get(policy, {})
        known_logprobs = [
            (value, base[name], logged[name].response_text)
            for name, value in forced.items()
            if value is not None
        ]
        ratios = [
            value - base_value
            for value, base_value, _ in known_logprobs
            if base_value is not None
        ]
        return {
            "policy": policy,
            "n_responses": len(responses),
            "n_cut_off": sum(r.finish_reason == "length" for r in responses),
            "n_logprobs": len(known_logprobs),
            "n_null": len(forced) - len(known_logprobs),
            "n_zero": sum(
                value == 0 and text != "" for value, _, text in known_logprobs
            ),
            "n_exactly_one": ratios.count(0.0),  # importance weights
            "n_extreme": sum(abs(ratio) > math.log(EXTREME_WEIGHT) for ratio in ratios),
            "scores": _summarize_scores(self.scores[policy]),
            "labels": _summarize_scores(self.labels[policy]),
        }


def _summarize_scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    judge_scores = [score.judge_score for score in scores.values()]
    values = [value for value in judge_scores if value is not None]
    return {
        "n": len(values),
        "n_unreadable": len(scores) - len(values),
        "mean": statistics.fmean(values) if values else None,
    }
