"""How far can a judge be trusted? Ask what is known: python -m elo_exp experiment=audit judge=haiku"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import audit
from elo_exp.analysis.agreement import gold_results
from elo_exp.analysis.audit import GOLD, REPHRASED, Asked, Measure, measures, simulate
from elo_exp.console import text_table
from elo_exp.data import bank, gold
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import reconcile, swaps
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Prompts
from elo_exp.files import sha256, utc_now, write_json, write_jsonl
from elo_exp.judges import Judge
from elo_exp.probes import VERSION, Case, Kind, Probe, Question
from elo_exp.records import (
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Plot,
    Prompt,
    UserError,
    fingerprint,
)
from elo_exp.report import page
from elo_exp.trackers import Rows
from elo_exp.types import Count, Dollars, Integer, Positive, Share

_WHAT = "audit verdicts"
_WORST_FIRST = ("biased", "cannot tell", "ok", "reported")
_RANKED = {"answer": 3, "hedge": 2, "abstain": 3}  # levels, by expected behaviour


@dataclass(kw_only=True)
class AuditSettings:
    n_prompts: Count | None
    delta: Positive
    retest_share: Share
    seed: Integer
    paraphrases: dict[str, list[str]] | None
    gold: str | None
    families: dict[str, str] | None


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One dimension: what audit.json and verdicts.jsonl have of it, and what it rests on."""

    audit: Mapping[str, Any]
    verdicts: Sequence[Mapping[str, Any]]
    measures: Sequence[Measure]


@dataclass(kw_only=True)
class AuditJudge:
    plan: bool
    prompts: Prompts
    judging: dict[str, Dollars]
    levels: dict[str, ProbeEntrant]  # best first
    judge: Judge
    rubric: dict[str, Rubric]
    probe: dict[str, Probe]
    audit: AuditSettings

    @property
    def input_files(self) -> Mapping[str, Path]:
        paths = {"bank": self.prompts.bank_path, "gold": self.audit.gold}
        return {name: Path(path) for name, path in paths.items() if path}

    def dry_run(self, context: Context) -> str | None:
        check_dimensions(list(self.rubric.values()))
        if not self._queries:
            raise UserError(
                "probe: there is nothing to ask. Choose a rubric that applies to prompts of the "
                "bank, 'rubric=[factuality]', and probes, 'probe=[ladder,formatting]'."
            )
        if not self.plan:
            return None
        plan = pipeline.plan_replies(
            self._queries, self.judge, context.store, what=_WHAT
        )
        head = ["dimension", "probe", "prompts", "finds", "ok in reach"]
        table = text_table(head, self._reach(), text=["probe"])
        return f"{pipeline.plan_table(plan)}\n{page.text('audit_plan', table=table)}"

    def run(self, context: Context) -> Report:
        store, run_dir = context.store, context.run_dir
        store.usage.flips = None
        replies = pipeline.ask(self._queries, self.judge, store, what=_WHAT)
        found = [self._audited(rubric, replies) for rubric in self.rubric.values()]
        audits = {one.audit["dimension"]: one.audit for one in found}
        for one in audits.values():
            place = one["judge_key"], one["rubric_key"]
            write_json(audit.path(store.path.parent, *place), one)
        rows = [
            {"dimension": dimension} | row
            for dimension, one in audits.items()
            for row in one["results"]
        ]
        return Report(
            headline=float(sum(row["verdict"] == "biased" for row in rows)),
            text=page.text("audit", found=found, probes=self.probe),
            facts={"judge_model": self.judge.model},
            artifacts=[
                write_json(run_dir / "audit.json", audits),
                write_jsonl(
                    run_dir / "verdicts.jsonl",
                    (v for one in found for v in one.verdicts),
                ),
            ],
            tables={"audit": rows},
            figures=lambda: _figures(rows, self.audit.delta),
            page=page.maker("audit", found=found, probes=self.probe),
        )

    def _reach(self) -> list[list[str]]:
        """What each probe can find, and whether it can be called ok, by a simulated judge."""
        rng, delta, cells = np.random.default_rng(self.audit.seed), self.audit.delta, []
        for rubric in self.rubric.values():
            judged = simulate(self._asked[rubric.dimension], rng)
            found = measures(judged, delta, self._paraphrases(rubric))
            decided = [measure for measure in found if measure.kind != "reported"]
            for one in decided:
                n, sd = len(one.values), float(one.values.std())
                effect = audit.smallest_effect(n, sd, len(decided))
                # A judge without a fault varies in biases alone.
                margin = abs(one.bound - (one.kind == "floor" and one.bound > 0))
                need = audit.prompts_for_ok(
                    sd * one.is_bias, margin, two_sided=one.is_bias
                )
                reach = "yes" if need <= n else f"from {need:,}"
                row = [rubric.dimension, one.name, f"{n:,}", f"{effect:.2f}", reach]
                cells.append(row)
        return cells

    # Questions

    @cached_property
    def _asked(self) -> dict[str, list[Asked]]:
        """All questions by dimension."""
        return {
            rubric.dimension: [*self._of_probes(rubric), *self._of_gold(rubric)]
            for rubric in self.rubric.values()
        }

    @property
    def _queries(self) -> list[JudgeRequest]:
        return [
            q for asked in self._asked.values() for one in asked for q in one.queries
        ]

    @cached_property
    def _identity(self) -> JudgeIdentity:
        return pipeline.identify(self.judge)

    @cached_property
    def _gold(self) -> list[GoldPair]:
        return gold.read(Path(self.audit.gold)) if self.audit.gold else []

    def _paraphrases(self, rubric: Rubric) -> list[str]:
        return (self.audit.paraphrases or {}).get(rubric.dimension, [])

    def _of_probes(self, rubric: Rubric) -> Iterator[Asked]:
        """Yield the questions of the probes, on a share of the prompts twice; those of a ladder
        under paraphrases, too."""
        settings, cases = self.audit, self._cases(rubric)
        paths = enumerate(self._paraphrases(rubric), start=REPHRASED)
        paraphrases = [(replace(rubric, path=path), repeat) for repeat, path in paths]
        for i, (prompt, case) in enumerate(cases):
            is_again = i < settings.retest_share * len(cases)
            for name, probe in self.probe.items():
                if rubric.dimension in probe.not_for:
                    continue
                bound = settings.delta if probe.bound is None else probe.bound
                others = paraphrases if probe.kind == "floor" else []
                again = [(rubric, 1)] if is_again or others else []
                for n, question in enumerate(probe.questions(case)):
                    about = prompt, question, f"{name}: {question.form} {n}"
                    yield self._ask(
                        name, probe.kind, bound, *about, (rubric, 0), *again, *others
                    )

    def _of_gold(self, rubric: Rubric) -> Iterator[Asked]:
        """Yield labelled pairs; those of equals with one author of the judge's family measure
        whether it prefers its own, which is x."""
        families = self.audit.families or {}
        own = families.get(self.judge.model)
        for pair in self._gold:
            subset, name = pair.subset or "all", GOLD
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
            authors = (pair.author_a or "", pair.author_b or "")
            is_own = [own == families.get(author, "") for author in authors]
            if pair.label == "tie" and sum(is_own) == 1:
                name, (x, y) = f"self: {subset}", (y, x) if is_own[1] else (x, y)
            question = Question(form=name, x=x, y=y)
            about = prompt, question, name, (rubric, 0)
            yield self._ask(name, "bias", 2 * self.audit.delta, *about)

    def _ask(
        self,
        probe: str,
        kind: Kind,
        bound: float,
        prompt: Prompt,
        question: Question,
        name: str,
        *wordings: tuple[Rubric, int],
    ) -> Asked:
        """Put a question under each wording of the rubric, which is one of its repeats."""
        comparison = wordings[0][0].compare(
            prompt,
            entrant_a=name,
            entrant_b="other",
            response_a=question.x,
            response_b=question.y,
        )
        return Asked(
            probe=probe,
            kind=kind,
            bound=bound,
            question=question,
            comparison=comparison,
            queries=[
                rubric.request(
                    comparison,
                    judge=self._identity.key,
                    position_swap=swap,
                    repeat=repeat,
                    key_fields=self._identity.key_fields,
                )
                for rubric, repeat in wordings
                for swap in swaps(comparison, float(question.both_orders))
            ],
        )

    def _cases(self, rubric: Rubric) -> list[tuple[Prompt, Case]]:
        """Return prompts with answers of three qualities, made of references or of behaviours.

        The order of behaviours is known where the rubric shows which one is expected; to a prompt
        that expects a hedge, an answer is as wrong as an abstention.
        """
        seed, cases = self.audit.seed, []
        prompts = filter(rubric.applies_to, bank.load(Path(self.prompts.bank_path)))
        for prompt in sorted(prompts, key=lambda p: fingerprint([seed, p.prompt_id])):
            levels = tuple(level.answer(prompt) for level in self.levels.values())
            n_ranked = 3 if prompt.gold_answer else 0
            if rubric.shows_expected_behavior:
                known = _RANKED.get(prompt.expected_behavior or "", 0)
                n_ranked = 0 if prompt.gold_answer else known
            name = prompt.prompt_id
            case = Case(prompt_id=name, levels=levels, n_ranked=n_ranked, seed=seed)
            if len(set(levels)) == len(levels):
                cases.append((prompt, case))
        return cases[: self.audit.n_prompts]

    # Answers

    def _audited(self, rubric: Rubric, replies: Mapping[str, JudgeReply]) -> Audited:
        """Decide on all that was measured on one dimension; `audit` is as audit.json has it."""
        settings, dimension = self.audit, rubric.dimension
        asked, judgments = [], []
        for one in self._asked[dimension]:
            verdicts = [
                rubric.parse(query, replies[query.key], judge_model=self.judge.model)
                for query in one.queries
            ]
            judgments.append(reconcile(one.comparison, verdicts))
            asked.append(replace(one, judgment=judgments[-1]))
        found = measures(asked, settings.delta, self._paraphrases(rubric))
        results = audit.decide(found, settings.delta)
        results.sort(key=lambda result: _WORST_FIRST.index(result.verdict))
        keys = {query.key for one in asked for query in one.queries}
        return Audited(
            measures=found,
            verdicts=[
                one.comparison.to_dict() | judgment.to_dict()
                for one, judgment in zip(asked, judgments, strict=True)
            ],
            audit={
                "schema": 1,
                "date": utc_now(),
                "judge_key": self._identity.key,
                "judge_model": self.judge.model,
                "dimension": dimension,
                "rubric_version": rubric.version,
                "rubric_key": rubric.key,
                "bank": sha256(Path(self.prompts.bank_path)),
                "probes_version": VERSION,
                "settings": asdict(settings),
                "n_prompts": len(self._cases(rubric)),
                "n_questions": len(asked),
                "n_queries": len(keys),
                "n_invalid": sum(judgment.invalid for judgment in judgments),
                "dollars": sum(replies[key].dollars for key in keys),
                "results": [result.to_dict() for result in results],
                "gold": gold_results(self._gold, judgments),
            },
        )


def _figures(rows: Rows, delta: float) -> list[Plot]:
    from elo_exp.figures.audit import plots

    return plots(rows, delta)
