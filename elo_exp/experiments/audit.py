"""How far can a judge be trusted? Ask what is known: python -m elo_exp experiment=audit judge=haiku"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from elo_exp import pipeline
from elo_exp.analysis import audit
from elo_exp.analysis.audit import Audit, Kind
from elo_exp.analysis.contrasts import PARAPHRASE, REPHRASED, SAME, Asked, measures
from elo_exp.analysis.gold import gold_results
from elo_exp.data import bank, gold
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import reconcile, swaps
from elo_exp.data.rubrics import Rubric, check_dimensions
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Prompts
from elo_exp.files import sha256, utc_now, write_jsonl
from elo_exp.judges import Judge
from elo_exp.probes import VERSION, Case, Probe, Question
from elo_exp.records import (
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Plot,
    Prompt,
    UserError,
    fingerprint,
)
from elo_exp.report import audit_report
from elo_exp.report.audit_report import Audited
from elo_exp.trackers import Rows
from elo_exp.types import Count, Dollars, Integer, Positive, Share

GOLD = "gold"
_WHAT = "audit verdicts"
_RANKED = {"answer": 3, "hedge": 2, "abstain": 3}  # levels, by expected behaviour
_LESS_EQUAL = (
    -0.1
)  # the least difference of equal verdicts that is ok under a paraphrase


@dataclass(kw_only=True)
class AuditSettings:
    n_prompts: Count | None
    delta: Positive
    alpha: Positive
    retest_share: Share
    seed: Integer
    paraphrases: dict[str, list[str]] | None
    gold: str | None
    families: dict[str, str] | None


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
        found = {
            dimension: measures(asked, self.audit.delta)
            for dimension, asked in self._asked.items()
        }
        table = audit_report.plan_text(found, self.audit.alpha)
        return f"{pipeline.plan_table(plan)}\n{table}"

    def run(self, context: Context) -> Report:
        store, run_dir = context.store, context.run_dir
        store.usage.flips = None
        replies = pipeline.ask(self._queries, self.judge, store, what=_WHAT)
        found = [self._audited(rubric, replies) for rubric in self.rubric.values()]
        audits = [one.audit for one in found]
        audit.keep(store.path.parent, audits)
        rows = [row for one in found for row in one.rows]
        verdicts = (
            one.comparison.to_dict() | one.judgment.to_dict()
            for some in found
            for one in some.asked
            if one.judgment
        )
        return Report(
            headline=float(sum(row["verdict"] == "biased" for row in rows)),
            text=audit_report.text(found),
            facts={"judge_model": self.judge.model},
            artifacts=[
                audit.write(run_dir / "audit.json", audits),
                write_jsonl(run_dir / "verdicts.jsonl", verdicts),
            ],
            tables={"audit": rows},
            figures=lambda: _figures(rows, self.audit.delta),
            page=partial(audit_report.page, found),
        )

    # Questions

    @cached_property
    def _asked(self) -> dict[str, list[Asked]]:
        """All questions by dimension."""
        return {
            rubric.dimension: list(self._of(rubric)) for rubric in self.rubric.values()
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

    def _of(self, rubric: Rubric) -> Iterator[Asked]:
        """Yield the questions of the probes, under paraphrases, and of labelled pairs."""
        settings, cases = self.audit, self._cases(rubric)
        once, twice = (rubric, range(1)), (rubric, range(2))
        rephrased = {
            PARAPHRASE + path: (twice, (replace(rubric, path=path), [REPHRASED]))
            for path in (settings.paraphrases or {}).get(rubric.dimension, ())
        }
        for i, (prompt, case) in enumerate(cases):
            wording = twice if i < settings.retest_share * len(cases) else once
            for name, probe in self.probe.items():
                if rubric.dimension in probe.not_for:
                    continue
                bound = settings.delta if probe.bound is None else probe.bound
                for n, question in enumerate(probe.questions(case)):
                    place = prompt, question, f"{question.form} {n}"
                    yield self._ask(name, probe.kind, bound, *place, wording)
                    for path, both in rephrased.items():
                        if probe.kind == "floor":
                            yield self._ask(path, "floor", SAME, *place, *both)
        families = settings.families or {}
        own = families.get(self.judge.model)
        for pair in self._gold:
            subset = pair.subset or "all"
            prompt = Prompt(
                prompt_id=pair.pair_id,
                text=pair.prompt,
                source=subset,
                subject="gold",
                gold_answer=pair.reference,
            )
            if not rubric.applies_to(prompt):
                continue
            question = Question(form="gold", x=pair.response_a, y=pair.response_b)
            yield self._ask(GOLD, "reported", 0.0, prompt, question, GOLD, once)
            authors = (pair.author_a or "", pair.author_b or "")
            is_own = [own == families.get(author, "") for author in authors]
            if pair.label == "tie" and sum(is_own) == 1:
                if is_own[1]:
                    question = replace(question, x=question.y, y=question.x)
                place = prompt, question, "own"
                name, bound = f"self: {subset}", 2 * settings.delta
                yield self._ask(name, "bias", bound, *place, once)

    def _ask(
        self,
        probe: str,
        kind: Kind,
        bound: float,
        prompt: Prompt,
        question: Question,
        name: str,
        *wordings: tuple[Rubric, Iterable[int]],
    ) -> Asked:
        """Put a question under each of some rubrics, so many times."""
        comparison = wordings[0][0].compare(
            prompt,
            entrant_a=f"{probe}: {name}",
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
                for rubric, repeats in wordings
                for repeat in repeats
                for swap in swaps(comparison, float(question.both_orders))
            ],
        )

    def _cases(self, rubric: Rubric) -> list[tuple[Prompt, Case]]:
        """Return prompts with answers of three qualities, made of references or of behaviours.

        The order of behaviours is known where the rubric shows which one is expected; to a prompt
        that expects a hedge, an answer is as wrong as an abstention.
        """
        seed = self.audit.seed
        cases = []
        for prompt in filter(
            rubric.applies_to, bank.load(Path(self.prompts.bank_path))
        ):
            levels = tuple(level.answer(prompt) for level in self.levels.values())
            n_ranked = 3 if prompt.gold_answer else 0
            if rubric.shows_expected_behavior:
                known = _RANKED.get(prompt.expected_behavior or "", 0)
                n_ranked = 0 if prompt.gold_answer else known
            name = prompt.prompt_id
            case = Case(prompt_id=name, levels=levels, n_ranked=n_ranked, seed=seed)
            if len(set(levels)) == len(levels):
                cases.append((prompt, case))
        cases.sort(key=lambda some: fingerprint([seed, some[0].prompt_id]))
        return cases[: self.audit.n_prompts]

    # Answers

    def _audited(self, rubric: Rubric, replies: Mapping[str, JudgeReply]) -> Audited:
        """Decide on all that was measured on one dimension."""
        settings, judgments, asked = self.audit, {}, []
        for one in self._asked[rubric.dimension]:
            verdicts = [
                rubric.parse(query, replies[query.key], judge_model=self.judge.model)
                for query in one.queries
            ]
            judgment = reconcile(one.comparison, verdicts)
            asked.append(replace(one, judgment=judgment))
            if one.probe == GOLD:
                judgments[judgment.prompt_id] = judgment
        found = measures(asked, settings.delta)
        decided = [measure.contrasts() for measure in found if measure.name != GOLD]
        keys = {query.key for one in asked for query in one.queries}
        labelled = gold_results(self._gold, judgments) if judgments else []
        return Audited(
            audit=Audit(
                judge_key=self._identity.key,
                judge_model=self.judge.model,
                dimension=rubric.dimension,
                rubric_version=rubric.version,
                rubric_key=rubric.key,
                bank=sha256(Path(self.prompts.bank_path)),
                probes_version=VERSION,
                delta=settings.delta,
                alpha=settings.alpha,
                n_prompts=len(self._cases(rubric)),
                date=utc_now(),
                dollars=sum(replies[key].dollars for key in keys),
                results=tuple(audit.decide(decided, settings.delta, settings.alpha)),
                gold=[row.to_dict() for row in labelled],
            ),
            asked=asked,
            measures=found,
            probes=self.probe,
        )


def _figures(rows: Rows, delta: float) -> list[Plot]:
    from elo_exp.figures.audit import plots

    return plots(rows, delta)
