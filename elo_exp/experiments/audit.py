"""How far can a judge be trusted? Ask what is known: python -m elo_exp experiment=audit judge=haiku"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions
from elo_exp.analysis.agreement import gold_errors, gold_results, pairwise_kappa
from elo_exp.analysis.audit_decisions import (
    AskedQuestion,
    JudgedQuestions,
    measure_probes,
)
from elo_exp.analysis.conclusions.audit_conclusion import (
    conclude_judge,
    conclude_judges,
)
from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.analysis.families import find_family
from elo_exp.data import bank, conversations, labelled_pairs
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.data.labelled_pairs import GoldPair
from elo_exp.data.pairing import choose_orders, reconcile
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.errors import SettingError, UserError
from elo_exp.experiments import Context, Experiment, Report, link_to_judge_page, several
from elo_exp.experiments.judged import (
    BankSettings,
    Study,
    describe_opening,
    refuse_no_prompts,
    require_judge,
    warn_of_foreign_bank,
)
from elo_exp.files import sha256, utc_now, write_json, write_jsonl
from elo_exp.judges import ApiJudge, Judge
from elo_exp.pipeline import Plan
from elo_exp.probes import PROBE_TEXTS_VERSION, Case, Probe, Question
from elo_exp.records import (
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Message,
    Plot,
    Prompt,
    Rows,
    ToolCall,
    make_fingerprint,
)
from elo_exp.report import audit_page, audits_page, page
from elo_exp.report.audit_page import AuditResult, ReachRow
from elo_exp.report.audits_page import JudgeAudits
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.store.answer_store import Store
from elo_exp.types import Count, Dollars, Families, Integer, Natural, Positive, Share

logger = logging.getLogger(__name__)

# The column of a probe's results behind each number that trackers get
_COLUMN_BY_METRIC = {"value": "estimate", "low": "low", "high": "high"}
_REQUEST_NOUN = "audit verdicts"
_N_RANKED_LEVELS_BY_BEHAVIOR = {
    "answer": 3,
    "hedge": 2,
    "abstain": 3,
}


@dataclass(kw_only=True)
class AuditSettings:
    n_prompts: Count | None
    delta: Positive
    retest_share: Share
    seed: Integer
    paraphrases: dict[str, list[str]] | None
    gold: str | None
    families: Families


@dataclass(kw_only=True)
class AuditJudging:
    budget_usd: Dollars
    canary: Natural  # new replies of a rubric that are read before others are paid for
    max_invalid: Share  # of these, or of the last ones, beyond which the run stops
    families: Families


@dataclass(frozen=True, kw_only=True)
class _AuditOutcome:
    """The results of a judge's audit, by dimension."""

    audited: Sequence[AuditResult]
    judged: Mapping[str, JudgedQuestions]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each dimension and probe."""
        return [
            {"dimension": dimension_audit.audit["dimension"]} | row
            for dimension_audit in self.audited
            for row in dimension_audit.audit["results"]
        ]

    @property
    def n_biased(self) -> int:
        return sum(row["verdict"] == "biased" for row in self.rows)

    def battles(self, dimension: str) -> Battles:
        """Return a battle for each question with a valid verdict."""
        judgments = [judgment for _, judgment in self.judged[dimension]]
        return Battles.from_rows(battles_from_judgments(judgments))


@dataclass(kw_only=True)
class AuditJudge(Experiment):
    plan: bool
    study: Study
    prompts: BankSettings
    judging: AuditJudging
    levels: dict[str, ProbeEntrant]  # best first
    judge: Judge
    rubric: dict[str, Rubric]
    probe: dict[str, Probe]
    audit: AuditSettings

    @property
    def opening(self) -> str:
        """The first line of the console: what is judged, by whom, as what, and what it may cost."""
        return describe_opening(self.judge, [*self.rubric.values()], self.study)

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration as it is, with a bank to ask about; with several judges, an audit of these."""
        refuse_no_prompts(config)
        if config.get("judges"):
            config["_target_"] = "elo_exp.experiments.audit.MultiJudgeAudit"
        return config

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"audit": ("biased", *_COLUMN_BY_METRIC), "usage": ()}

    @property
    def input_files(self) -> Mapping[str, Path]:
        paths = {"bank": self.prompts.bank_path, "gold": self.audit.gold}
        return {name: Path(path) for name, path in paths.items() if path}

    def dry_run(self, context: Context) -> str | None:
        self._check(context)
        if not self.plan:
            return None
        return f"{self._plan_judging(context.store)}\n{self._plan_reach()}"

    def _check(self, context: Context) -> None:
        """Raise UserError for what cannot be asked."""
        check_dimensions(list(self.rubric.values()))
        if turns_note := words.describe_left_out_turns(*self._turn_counts):
            logger.info("audit: %s", turns_note)
        require_judge(self.judge, partial(self._make_plans, store=context.store))
        if not self._queries:
            raise SettingError(
                "probe: there is nothing to ask. Choose a rubric that applies to prompts of the "
                "bank, 'rubric=[factuality]', and probes, 'probe=[ladder,formatting]'."
            )
        warn_of_foreign_bank(
            self.study,
            self.prompts.bank_path,
            self.judge,
            [*self.rubric.values()],
            context,
        )

    def _plan_judging(self, store: Store) -> str:
        (plan,) = self.plans(store)
        return pipeline.plan_table(plan)

    def _plan_reach(self) -> str:
        """Describe which effects each probe would find, and which it would call ok."""
        rng, delta = np.random.default_rng(self.audit.seed), self.audit.delta
        rows = []
        for rubric in self.rubric.values():
            replies = _simulate_replies(self._questions[rubric.dimension], rng)
            measurements = measure_probes(self._read_judgments(rubric, replies), delta)
            rows += [
                ReachRow(
                    dimension=rubric.dimension,
                    probe=name,
                    n_prompts=n,
                    effect=effect,
                    n_needed=n_needed,
                )
                for name, n, effect, n_needed in audit_decisions.detectable_effects(
                    measurements
                )
            ]
        return audit_page.format_plan(rows)

    def plans(self, store: Store) -> list[Plan]:
        """Return what the judge would be asked, and cost."""
        return self._make_plans([self.judge], store=store)

    def _make_plans(self, judges: Sequence[Judge], *, store: Store) -> list[Plan]:
        """Plan what each judge would be asked, and what that costs."""
        return [
            pipeline.plan_replies(
                replace(self, judge=judge)._queries, judge, store, noun=_REQUEST_NOUN
            )
            for judge in judges
        ]

    def run(self, context: Context) -> Report:
        return self._write_report(context, self._run_audit(context.store))

    def _run_audit(self, store: Store) -> _AuditOutcome:
        """Ask the judge, decide on its verdicts, and write the audits where later runs find them."""
        store.usage.flips = None
        replies = pipeline.get_replies(
            self._queries,
            self.judge,
            store,
            pipeline.JudgingSettings(
                canary=self.judging.canary, max_invalid=self.judging.max_invalid
            ),
            reads=self._has_verdict,
            noun=_REQUEST_NOUN,
        )
        judged_by_dimension = {
            rubric.dimension: self._read_judgments(rubric, replies)
            for rubric in self.rubric.values()
        }
        dimension_audits = [
            self._decide_audit(rubric, judged_by_dimension[rubric.dimension], replies)
            for rubric in self.rubric.values()
        ]
        for dimension_audit in dimension_audits:
            keys = (
                dimension_audit.audit["judge_key"],
                dimension_audit.audit["rubric_key"],
            )
            write_json(
                audit_decisions.audit_path(store.folder, *keys), dimension_audit.audit
            )
        return _AuditOutcome(audited=dimension_audits, judged=judged_by_dimension)

    def _write_report(self, context: Context, outcome: _AuditOutcome) -> Report:
        run_dir = context.run_dir
        audits = {
            dimension_audit.audit["dimension"]: dimension_audit.audit
            for dimension_audit in outcome.audited
        }
        rows = outcome.rows
        n_biased = float(outcome.n_biased)
        return Report(
            headline=n_biased,
            headline_is="audit/biased",
            text=audit_page.format_console(outcome.audited, self.probe),
            facts={"judge_model": self.judge.model},
            artifacts=[
                write_json(run_dir / "audit.json", audits),
                write_jsonl(
                    run_dir / "verdicts.jsonl",
                    (
                        asked_question.comparison.to_dict() | judgment.to_dict()
                        for pairs in outcome.judged.values()
                        for asked_question, judgment in pairs
                    ),
                ),
            ],
            metrics={
                f"conclusion/{dimension}/{name}": audit["conclusion"][name]
                for dimension, audit in audits.items()
                for name in ("state", "sentence")
            }
            | {"audit/biased": n_biased}
            | {
                f"audit/{row['dimension']}/{row['probe']}/{name}": row[column]
                for row in rows
                for name, column in _COLUMN_BY_METRIC.items()
                if row[column] is not None
            },
            tables={"audit": rows},
            figures=lambda: _draw_figures(rows, self.audit.delta),
            page=page.make_page_renderer(
                partial(audit_page.build_document, outcome.audited, self.probe)
            ),
        )

    def _has_verdict(self, request: JudgeRequest, reply: JudgeReply) -> bool:
        """Whether a reply holds a verdict."""
        rubrics = {rubric.dimension: rubric for rubric in self.rubric.values()}
        rubric = rubrics[request.subject.dimension]
        verdict = rubric.parse(request, reply, judge_model=self.judge.model)
        return verdict.verdict != "INVALID"

    # Questions

    @cached_property
    def _questions(self) -> dict[str, list[AskedQuestion]]:
        """All questions by dimension."""
        return {
            rubric.dimension: [*self._ask_probes(rubric), *self._ask_gold(rubric)]
            for rubric in self.rubric.values()
        }

    @property
    def _queries(self) -> list[JudgeRequest]:
        return [
            q
            for questions in self._questions.values()
            for question in questions
            for q in question.queries
        ]

    @cached_property
    def _identity(self) -> JudgeIdentity:
        return pipeline.identify(self.judge)

    @cached_property
    def _bank(self) -> list[Prompt]:
        return bank.load_bank(Path(self.prompts.bank_path))

    @property
    def _turn_counts(self) -> tuple[int, int]:
        """The number of prompts with several turns, which an audit leaves out, and of all prompts."""
        n = sum(conversations.n_turns(prompt) != 1 for prompt in self._bank)
        return n, len(self._bank)

    @cached_property
    def _gold(self) -> list[GoldPair]:
        return (
            labelled_pairs.read_pairs(Path(self.audit.gold)) if self.audit.gold else []
        )

    def _ask_probes(self, rubric: Rubric) -> Iterator[AskedQuestion]:
        """Yield the questions of the probes: twice on a share of the prompts, and for a ladder
        also under paraphrases."""
        cases = self._make_cases(rubric)
        n_retests = self.audit.retest_share * len(cases)
        files = (self.audit.paraphrases or {}).get(rubric.dimension, [])
        for (i, (prompt, case)), name in product(enumerate(cases), self.probe):
            probe = self.probe[name]
            if rubric.dimension in probe.not_for:
                continue
            paths = files if probe.kind == "floor" else []
            retest = [rubric] if i < n_retests or paths else []
            paraphrased_rubrics = [replace(rubric, path=path) for path in paths]
            for n, question in enumerate(probe.questions(case)):
                yield self._make_question(
                    prompt,
                    f"{name}: {question.form} {n}",
                    [rubric, *retest, *paraphrased_rubrics],
                    probe=name,
                    kind=probe.kind,
                    bound=self.audit.delta if probe.bound is None else probe.bound,
                    question=question,
                    paraphrases=paths,
                )

    def _ask_gold(self, rubric: Rubric) -> Iterator[AskedQuestion]:
        """Yield questions on labelled pairs; equal pairs with one author of the judge's family
        measure whether it prefers its own, which is x."""
        families = self.audit.families
        own_family = find_family(families, self.judge.model)
        for pair in self._gold:
            subset, probe, name = pair.subset or "all", "", "gold"
            prompt = Prompt(
                prompt_id=pair.pair_id,
                text=pair.prompt,
                source=subset,
                subject="gold",
                gold_answer=pair.reference,
            )
            if not rubric.applies_to(prompt):
                continue
            x, y = pair.response_a, pair.response_b
            authors = pair.author_a or "", pair.author_b or ""
            is_own = [own_family == (find_family(families, a) or "") for a in authors]
            if pair.label == "tie" and sum(is_own) == 1:
                probe = name = f"self: {subset}"
                x, y = (y, x) if is_own[1] else (x, y)
            yield self._make_question(
                prompt,
                name,
                [rubric],
                probe=probe,
                kind="bias",
                bound=2 * self.audit.delta,
                question=Question(form=name, x=x, y=y),
            )

    def _make_question(
        self, prompt: Prompt, name: str, wordings: Sequence[Rubric], **about: Any
    ) -> AskedQuestion:
        """Make a question with a query for each wording of the rubric; each wording is one repeat."""
        question: Question = about["question"]
        x, y, in_turns = question.x, question.y, bool(question.x_tool)
        if in_turns:
            x = conversations.transcript(_add_tool_call(question.x_tool, x))
            y = conversations.transcript([Message(role="assistant", content=y)])
        comparison = wordings[0].compare(
            prompt,
            entrant_a=name,
            entrant_b="other",
            response_a=x,
            response_b=y,
            in_turns=in_turns,
        )
        queries = [
            rubric.request(
                comparison,
                judge=self._identity.key,
                position_swap=swap,
                repeat=repeat,
                key_fields=self._identity.key_fields,
            )
            for repeat, rubric in enumerate(wordings)
            for swap in choose_orders(comparison, float(question.both_orders))
        ]
        return AskedQuestion(comparison=comparison, queries=queries, **about)

    def _make_cases(self, rubric: Rubric) -> list[tuple[Prompt, Case]]:
        """Return prompts with answers of three qualities, made of references or of behaviours.

        The order of behaviours is known where the rubric shows which one is expected; to a prompt
        that expects a hedge, an answer is as wrong as an abstention.
        """
        seed, cases = self.audit.seed, []
        one_turn = [p for p in self._bank if conversations.n_turns(p) == 1]
        prompts = filter(rubric.applies_to, one_turn)
        for prompt in sorted(
            prompts, key=lambda p: make_fingerprint([seed, p.prompt_id])
        ):
            levels = tuple(level.answer(prompt) for level in self.levels.values())
            by_reference = bool(prompt.gold_answer)
            n_ranked = (
                3
                if by_reference
                else _N_RANKED_LEVELS_BY_BEHAVIOR.get(prompt.expected_behavior or "", 0)
            )
            if by_reference == rubric.shows_expected_behavior:
                n_ranked = 0
            name = prompt.prompt_id
            case = Case(prompt_id=name, levels=levels, n_ranked=n_ranked, seed=seed)
            if len(set(levels)) == len(levels):
                cases.append((prompt, case))
        return cases[: self.audit.n_prompts]

    # Answers

    def _read_judgments(
        self, rubric: Rubric, replies: Mapping[str, JudgeReply]
    ) -> JudgedQuestions:
        pairs, model = [], self.judge.model
        for asked_question in self._questions[rubric.dimension]:
            verdicts = [
                rubric.parse(query, replies[query.key], judge_model=model)
                for query in asked_question.queries
            ]
            pairs.append(
                (asked_question, reconcile(asked_question.comparison, verdicts))
            )
        return pairs

    def _decide_audit(
        self, rubric: Rubric, pairs: JudgedQuestions, replies: Mapping[str, JudgeReply]
    ) -> AuditResult:
        """Decide on everything that was measured on one dimension."""
        measurements = measure_probes(pairs, self.audit.delta)
        results = audit_decisions.decide(measurements, self.audit.delta)
        n_prompts = len(self._make_cases(rubric))
        conclusion = conclude_judge(
            results,
            judge=self.judge.model,
            dimension=rubric.dimension,
            n_prompts=n_prompts,
        )
        judgments = [judgment for _, judgment in pairs]
        keys = {
            query.key for asked_question, _ in pairs for query in asked_question.queries
        }
        audit = {
            "schema": 1,
            "date": utc_now(),
            "judge_key": self._identity.key,
            "judge_model": self.judge.model,
            "dimension": rubric.dimension,
            "rubric_version": rubric.version,
            "rubric_key": rubric.key,
            "bank": sha256(Path(self.prompts.bank_path)),
            "probes_version": PROBE_TEXTS_VERSION,
            "settings": asdict(self.audit),
            "n_prompts": n_prompts,
            "n_of_turns": self._turn_counts[0],
            "n_bank": self._turn_counts[1],
            "n_questions": len(pairs),
            "n_queries": len(keys),
            "n_invalid": sum(judgment.invalid for judgment in judgments),
            "dollars": sum(replies[key].dollars for key in keys),
            "conclusion": conclusion.to_dict()
            | {"sentence": words.describe_conclusion(conclusion)},
            "results": results,
            "gold": gold_results(self._gold, judgments),
        }
        return AuditResult(conclusion=conclusion, audit=audit, measures=measurements)


@dataclass(kw_only=True)
class MultiJudgeAudit(AuditJudge):
    """An audit of several judges: each is audited as it would be alone, one after the other, and all pay from one budget.

    judges  by name: judge=[one,other]
    judge   the first of them, for what is the same of all
    """

    judges: dict[str, Judge]
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = next(iter(self.judges.values()))
        several.share_budget(self.judges, self.judging.budget_usd)

    @cached_property
    def _audit_by_judge(self) -> dict[str, AuditJudge]:
        """The audit of each judge."""
        return {
            name: several.make_single_judge_experiment(AuditJudge, self, judge)
            for name, judge in self.judges.items()
        }

    @property
    def opening(self) -> str:
        rubrics = [*self.rubric.values()]
        return several.describe_opening(
            self.judges, rubrics, self.study, self.judging.budget_usd
        )

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"audit": ("biased", "rho", "votes"), "usage": ()}

    def _check(self, context: Context) -> None:
        super()._check(context)
        plans = self.plans(context.store)
        if self.plan:
            return
        for judge, plan in zip(self.judges.values(), plans, strict=True):
            if isinstance(judge, ApiJudge) and plan.new:
                judge.preflight()
        Plan.of_all(plans).check(context.store)

    def _plan_judging(self, store: Store) -> str:
        plans = zip(self.judges, self.plans(store), strict=True)
        return pipeline.plan_of_judges(dict(plans))

    def plans(self, store: Store) -> list[Plan]:
        plans = self._make_plans([*self.judges.values()], store=store)
        return several.require_distinct_judges(self.judges, plans)

    def _make_plans(self, judges: Sequence[Judge], *, store: Store) -> list[Plan]:
        return [
            plan
            for judge in judges
            for plan in several.make_single_judge_experiment(
                AuditJudge, self, judge
            ).plans(store)
        ]

    def run(self, context: Context) -> Report:
        outcomes, reports = dict[str, _AuditOutcome](), dict[str, Report]()
        errors = dict[str, UserError]()
        for name, audit in self._audit_by_judge.items():
            logger.info("judge %s: %s", name, audit.judge.model)
            try:
                outcomes[name] = audit._run_audit(context.store)
            except UserError as error:
                logger.warning("warning: judge %s is not audited: %s", name, error)
                errors[name] = error
                continue
            reports[name] = audit._write_report(context.of_judge(name), outcomes[name])
        if not outcomes:
            raise next(iter(errors.values()))
        comparisons = [
            self._compare_judges(rubric.dimension, outcomes, errors)
            for rubric in self.rubric.values()
        ]
        pages = {name: link_to_judge_page(name) for name in outcomes}
        n_biased = float(sum(outcome.n_biased for outcome in outcomes.values()))
        return Report(
            headline=n_biased,
            headline_is="audit/biased",
            text=audits_page.format_console(comparisons),
            facts={
                "judge_model": ", ".join(self.judges),
                "judges": {name: judge.model for name, judge in self.judges.items()},
            },
            artifacts=[
                write_json(
                    context.run_dir / "judges.json",
                    {
                        comparison.dimension: audits_page.as_json(comparison)
                        for comparison in comparisons
                    },
                )
            ],
            metrics={"audit/biased": n_biased} | audits_page.list_metrics(comparisons),
            page=page.make_page_renderer(
                partial(audits_page.build_document, comparisons, pages)
            ),
            exit_code=2 if errors else 0,
            of_judges=reports,
        )

    def _compare_judges(
        self,
        dimension: str,
        outcomes: Mapping[str, _AuditOutcome],
        errors: Mapping[str, UserError],
    ) -> JudgeAudits:
        audit_by_judge = {
            name: dimension_audit
            for name, outcome in outcomes.items()
            for dimension_audit in outcome.audited
            if dimension_audit.audit["dimension"] == dimension
        }
        return JudgeAudits(
            dimension=dimension,
            conclusion=conclude_judges(
                {
                    name: dimension_audit.conclusion
                    for name, dimension_audit in audit_by_judge.items()
                },
                [*errors],
            ),
            own=audit_by_judge,
            failed={name: error.line for name, error in errors.items()},
            kappas=pairwise_kappa(
                {
                    name: outcome.battles(dimension)
                    for name, outcome in outcomes.items()
                },
                dimension=dimension,
            ),
            votes=self._estimate_votes(dimension, outcomes),
        )

    def _estimate_votes(
        self, dimension: str, outcomes: Mapping[str, _AuditOutcome]
    ) -> EffectiveVotes | None:
        """Estimate how many independent judges these are worth, by labelled pairs; None without pairs, or for one judge."""
        judgments = {
            name: [judgment for _, judgment in outcome.judged[dimension]]
            for name, outcome in outcomes.items()
        }
        errors, prompts = gold_errors(self._gold, judgments)
        if not prompts or len(errors) < 2:
            return None
        return effective_votes(errors, prompts)


def _add_tool_call(tool_output: str, answer: str) -> list[Message]:
    """Put a call of a tool, and the tool's output, in front of an answer."""
    call = ToolCall(call_id="1", name="search", arguments='{"query": "the question"}')
    return [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=tool_output, tool_call_id="1", name="search"),
        Message(role="assistant", content=answer),
    ]


def _simulate_replies(
    questions: Sequence[AskedQuestion], rng: np.random.Generator
) -> dict[str, JudgeReply]:
    """Judge all answers as equals, without ties: a judge whose audit takes the most prompts.

    It goes by a taste that all questions of a probe on a prompt share, one for the question, and
    chance, in equal parts, so that every fourth pair of orders disagrees.
    """
    taste: dict[tuple[str, str], float] = defaultdict(rng.standard_normal)
    replies = {}
    for question in questions:
        liking = (
            taste[question.comparison.prompt_id, question.probe] + rng.standard_normal()
        )
        for query in question.queries:
            is_x = liking + rng.standard_normal() > 0
            letter = "AB"[is_x == query.position_swap]
            replies[query.key] = JudgeReply(key=query.key, text=f"VERDICT: {letter}")
    return replies


def _draw_figures(rows: Rows, delta: float) -> list[Plot]:
    from elo_exp.figures.audit_figures import plots

    return plots(rows, delta)
