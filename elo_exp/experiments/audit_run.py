"""The audit of one judge: questions with known right answers, and the results of its verdicts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions
from elo_exp.analysis.agreement import gold_results
from elo_exp.analysis.audit_decisions import (
    AskedQuestion,
    JudgedQuestions,
    measure_probes,
)
from elo_exp.analysis.conclusions.audit_conclusion import conclude_judge
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.data.pairing import reconcile
from elo_exp.data.rubrics import Rubric
from elo_exp.experiments import Context, Report
from elo_exp.experiments.audit_questions import AuditQuestions
from elo_exp.files import sha256, utc_now, write_json, write_jsonl
from elo_exp.judges import Judge
from elo_exp.pipeline import Plan
from elo_exp.probes import PROBE_TEXTS_VERSION
from elo_exp.records import JudgeReply, JudgeRequest, Plot, Rows
from elo_exp.report import audit_page, page
from elo_exp.report.audit_page import AuditResult, ReachRow
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.store.answer_store import Store
from elo_exp.types import Dollars, Families, Natural, Share

# The column of a probe's results behind each number that trackers get
COLUMN_BY_METRIC = {"value": "estimate", "low": "low", "high": "high"}
_REQUEST_NOUN = "audit verdicts"


@dataclass(kw_only=True)
class AuditJudgingOptions:
    """Settings of the judge calls.

    canary       number of first new replies per rubric that are checked before others are paid for
    max_invalid  maximum share of invalid replies (0 to 1), in these and in the last replies; above it the run stops
    """

    budget_usd: Dollars
    canary: Natural
    max_invalid: Share
    families: Families


@dataclass(frozen=True, kw_only=True)
class AuditOutcome:
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
        """The number of tests on which the judge is biased."""
        return sum(row["verdict"] == "biased" for row in self.rows)

    def battles(self, dimension: str) -> Battles:
        """Return a battle for each question with a valid verdict."""
        judgments = [judgment for _, judgment in self.judged[dimension]]
        return Battles.from_rows(battles_from_judgments(judgments))


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """A judge and its questions."""

    judge: Judge
    questions: AuditQuestions
    options: AuditJudgingOptions

    def make_plan(self, store: Store) -> Plan:
        """Plan the calls of the judge and their cost."""
        queries = self.questions.queries
        return pipeline.plan_replies(queries, self.judge, store, noun=_REQUEST_NOUN)

    def describe_reach(self) -> str:
        """Describe the effects that each test would detect, and whether it could be ok."""
        rng, delta = (
            np.random.default_rng(self.questions.settings.seed),
            self.questions.settings.delta,
        )
        rows = []
        for rubric in self.questions.rubric.values():
            replies = _simulate_replies(
                self.questions.question_groups[rubric.dimension], rng
            )
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

    def run(self, store: Store) -> AuditOutcome:
        """Call the judge, decide the tests, and write the audits where later runs find them."""
        store.usage.flips = None
        replies = pipeline.get_replies(
            self.questions.queries,
            self.judge,
            store,
            pipeline.JudgingSettings(
                canary=self.options.canary, max_invalid=self.options.max_invalid
            ),
            reads=self._has_verdict,
            noun=_REQUEST_NOUN,
        )
        judged_by_dimension = {
            rubric.dimension: self._read_judgments(rubric, replies)
            for rubric in self.questions.rubric.values()
        }
        dimension_audits = [
            self._decide_audit(rubric, judged_by_dimension[rubric.dimension], replies)
            for rubric in self.questions.rubric.values()
        ]
        for dimension_audit in dimension_audits:
            keys = (
                dimension_audit.audit["judge_key"],
                dimension_audit.audit["rubric_key"],
            )
            write_json(
                audit_decisions.audit_path(store.folder, *keys), dimension_audit.audit
            )
        return AuditOutcome(audited=dimension_audits, judged=judged_by_dimension)

    def write_report(self, context: Context, outcome: AuditOutcome) -> Report:
        """Write the files of an audit, and report it."""
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
            text=audit_page.format_console(outcome.audited, self.questions.probe),
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
                for name, column in COLUMN_BY_METRIC.items()
                if row[column] is not None
            },
            tables={"audit": rows},
            figures=lambda: _draw_figures(rows, self.questions.settings.delta),
            page=page.make_page_renderer(
                partial(
                    audit_page.build_document, outcome.audited, self.questions.probe
                )
            ),
        )

    def _has_verdict(self, request: JudgeRequest, reply: JudgeReply) -> bool:
        """Whether a reply holds a verdict."""
        rubrics = {
            rubric.dimension: rubric for rubric in self.questions.rubric.values()
        }
        rubric = rubrics[request.subject.dimension]
        verdict = rubric.parse(request, reply, judge_model=self.judge.model)
        return verdict.verdict != "INVALID"

    def _read_judgments(
        self, rubric: Rubric, replies: Mapping[str, JudgeReply]
    ) -> JudgedQuestions:
        pairs, model = [], self.judge.model
        for asked_question in self.questions.question_groups[rubric.dimension]:
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
        """Decide all tests on one dimension."""
        measurements = measure_probes(pairs, self.questions.settings.delta)
        results = audit_decisions.decide(measurements, self.questions.settings.delta)
        n_prompts = len(self.questions.prompts.make_cases(rubric))
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
            "judge_key": self.questions.identity.key,
            "judge_model": self.judge.model,
            "dimension": rubric.dimension,
            "rubric_version": rubric.version,
            "rubric_key": rubric.key,
            "bank": sha256(Path(self.questions.prompts.bank_path)),
            "probes_version": PROBE_TEXTS_VERSION,
            "settings": asdict(self.questions.settings),
            "n_prompts": n_prompts,
            "n_of_turns": self.questions.prompts.turn_counts[0],
            "n_bank": self.questions.prompts.turn_counts[1],
            "n_questions": len(pairs),
            "n_queries": len(keys),
            "n_invalid": sum(judgment.invalid for judgment in judgments),
            "dollars": sum(replies[key].dollars for key in keys),
            "conclusion": conclusion.to_dict()
            | {"sentence": words.describe_conclusion(conclusion)},
            "results": results,
            "gold": gold_results(self.questions.prompts.gold, judgments),
        }
        return AuditResult(conclusion=conclusion, audit=audit, measures=measurements)


def _simulate_replies(
    questions: Sequence[AskedQuestion], rng: np.random.Generator
) -> dict[str, JudgeReply]:
    """Simulate a judge for whom all answers are equal but who never ties: its audit takes the most prompts.

    A verdict depends in equal parts on a preference that all questions of a test on a prompt share, on a preference
    for the question, and on chance, so every fourth pair of orders disagrees.
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
