"""Is a candidate no worse than a recorded baseline? For continuous integration: the exit code is the answer.

Only the candidate answers, and a judge compares its answers with those of the baseline's run.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from elo_exp import pipeline
from elo_exp.analysis import families
from elo_exp.analysis.checks import NOT_DONE, PASSED, Check
from elo_exp.analysis.checks.control_check import control_check
from elo_exp.analysis.checks.same_verdict_check import same_verdict_check
from elo_exp.analysis.conclusions.gate_conclusion import conclude
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.gate_checks import (
    answers_check,
    audit_check,
    family_check,
    length_check,
    order_checks,
)
from elo_exp.analysis.judge_quality import JudgeQuality, judge_quality
from elo_exp.analysis.noninferiority import (
    MIN_PROMPTS_FOR_VERDICT,
    PointShare,
    PromptPoints,
    SlotPoints,
    decide_gate,
    order_points,
    pass_probability,
    prompt_points,
    prompts_to_pass,
    share_of_points,
    worst_prompts,
)
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.power import assumed_sigma
from elo_exp.analysis.repeated_gates import (
    EarlierGateResult,
    EarlierGates,
    sum_up_earlier_gates,
)
from elo_exp.data import answer_joins, pairing
from elo_exp.data.conversations import own_words
from elo_exp.data.degraded_copies import DEGRADED_COPY, control_comparisons
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.pairing import Responses
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import (
    JudgedExperiment,
    PairwiseExperiment,
    describe_recorded_entrant,
    load_stored_audits,
    suggest_audit_command,
)
from elo_exp.files import escape_name, write_json, write_whole
from elo_exp.judges import roles_by_dimension
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.records import Comparison, Judgment, Prompt, Slot, make_fingerprint
from elo_exp.report import gate_page, page, viewer
from elo_exp.report.artifacts import verdict_rows, write_judging
from elo_exp.report.gate_page import GateResult
from elo_exp.report.sentences import gate_sentences as words
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.runs.manifest import input_hashes
from elo_exp.runs.reading import read_manifest
from elo_exp.store.answer_store import Store, StoredResult
from elo_exp.store.usage import total_dollars
from elo_exp.trackers import Value
from elo_exp.types import Positive

# The baseline's name in the run, whatever its own file calls it
BASELINE_NAME = "baseline"
_NOT_ANSWERED = SlotPoints(orders=(None, None), is_lost=True)
_RESERVED_NAMES = {
    BASELINE_NAME: "the recorded one is",
    DEGRADED_COPY: "copies of the baseline's answers are",
}
EXIT_CODE_BY_VERDICT = {"same answers": 0, "pass": 0, "fail": 1, "cannot tell": 3}
_SHARE_METRICS = (
    "share",
    "low",
    "high",
    "n_invalid",
    "n_needed",
)
_PROMPT_KEY_CHARS, _VERDICT_KEY_CHARS = 8, 16
# Stands for the verdicts on a prompt with the baseline's answer
_EQUAL_ANSWERS_KEY = "equal"
# Share of tied verdicts in the simulations behind the planner, which draw shares together
_SIMULATED_TIE_RATE = 0.2
# How far the points of the two orders differ in these simulations: the mean, and the mean square
_ORDER_DISAGREEMENT, _SQUARED_ORDER_DISAGREEMENT = 0.343, 0.264

BelowHalf = Annotated[float, Field(strict=True, gt=0, lt=0.5)]


@dataclass(kw_only=True)
class GateSettings:
    baseline: str  # a run folder, or a file of its responses/
    margin: BelowHalf  # of the share of points
    margin_elo: Positive | None  # the same in Elo points, in its place
    alpha: BelowHalf
    control: bool  # judge degraded copies of the baseline's answers, too
    comment: str | None  # file to write gate.md to as well

    def __post_init__(self) -> None:
        if self.margin_elo is not None:
            self.margin = 0.5 - 1.0 / (1.0 + 10.0 ** (self.margin_elo / 400.0))


@dataclass(kw_only=True)
class Gate(PairwiseExperiment):
    gate: GateSettings
    _counts_absent: ClassVar[bool] = False  # a candidate has to say that it failed

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Add the baseline to the entrants."""
        config = JudgedExperiment.prepare(config, overrides)
        baseline = config["gate"]["baseline"]
        if baseline == "???":
            return config
        for name, reason in _RESERVED_NAMES.items():
            if name in config["entrant"]:
                raise SettingError(
                    f"entrant: found a candidate called {name}, as {reason} here. Call it otherwise: "
                    "'answers={NAME:FILE}'."
                )
        path = _find_baseline_file(Path(baseline))
        node = {
            "_target_": "elo_exp.entrants.recorded.RecordedEntrant",
            "entrant_id": BASELINE_NAME,
            "path": str(path),
        }
        if _is_joined(path, config["answers"], config["prompts"]["bank_path"]):
            ((_, answers),) = answer_joins.read_answer_sets(
                [(BASELINE_NAME, path)]
            ).items()
            node = describe_recorded_entrant(BASELINE_NAME, answers)
        config["entrant"][BASELINE_NAME] = node
        return config

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"gate": ("passed", *_SHARE_METRICS), "usage": ()}

    @property
    def _files(self) -> list[answer_joins.NamedFile]:
        """The candidate's and, unless it is compared as a run of ours has written it, the baseline's."""
        path = _find_baseline_file(Path(self.gate.baseline))
        is_joined = _is_joined(path, self.answers, self.prompts.bank_path)
        return [*super()._files, *([(BASELINE_NAME, path)] if is_joined else [])]

    def _describe_answers(self) -> list[str]:
        return self._joined_answers.describe(keeps_all=True)

    def _load_bank(self) -> list[Prompt]:
        """Load the bank; with files of answers, the prompts to which the baseline has a row, answered or not."""
        if not self._files:
            return super()._load_bank()
        baseline = self._joined_answers.answer_sets[BASELINE_NAME]
        return [p for p in self._joined_answers.prompts if baseline.rows_for_prompt(p)]

    def _format_plan(self, plan: pipeline.Plan) -> str:
        margin, alpha = self.gate.margin, self.gate.alpha
        sigma = assumed_sigma(2, both_orders=self.judging.both_orders)
        sd = sigma * (1.0 - _SIMULATED_TIE_RATE) / (4.0 * POINTS_PER_LOG_ODDS)
        if not plan.rows:
            return (
                "plan: the candidate gave the baseline's answers, so no judge is asked"
            )
        rows = [row for row in plan.rows if not row.is_control]
        both_orders, floor = self.judging.both_orders, 0.0
        if both_orders:
            remaining_margin = margin * (1.0 - _ORDER_DISAGREEMENT)
            disagreement_variance = (
                _SQUARED_ORDER_DISAGREEMENT / both_orders - _ORDER_DISAGREEMENT**2
            )
            sd, floor = (
                math.hypot(sd, margin * math.sqrt(disagreement_variance)),
                min(0.0, 0.5 - margin / both_orders),
            )
            n_needed = prompts_to_pass(sd, remaining_margin, alpha, floor)
            ids = [prompt.prompt_id for prompt in self._select_prompts()]
            n_groups = len(set(self._assign_clusters(ids)))
            chance = math.prod(
                pass_probability(
                    row.n_prompts * n_groups // len(ids),
                    sd,
                    remaining_margin,
                    alpha,
                    floor,
                )
                for row in rows
            )
        else:
            chance, n_needed = 0.0, None
        return "\n".join(
            [
                super()._format_plan(plan),
                *words.plan(chance, n_needed, margin, both_orders=both_orders),
                *words.describe_control_plan(
                    sum(row.queries for row in plan.rows if row.is_control),
                    sum(row.new for row in plan.rows if row.is_control),
                    sum(row.dollars for row in plan.rows if row.is_control)
                    if plan.budget_usd is not None
                    else None,
                    is_wanted=self.gate.control,
                ),
            ]
        )

    def _select_comparisons(self, comparisons: Comparisons) -> Comparisons:
        """Add the control.

        None where the candidate gave the baseline's answers: nothing tells them apart, and no judge is asked.
        """
        if _are_equal(comparisons):
            return dict.fromkeys(comparisons, ())
        controls = self._make_controls(comparisons)
        return {name: [*pairs, *controls[name]] for name, pairs in comparisons.items()}

    def _make_controls(self, comparisons: Comparisons) -> Comparisons:
        """Compare degraded copies of the baseline's answers; none on a dimension that has too few prompts."""
        return {
            name: control_comparisons(pairs)
            if self.gate.control
            and len({comparison.prompt_id for comparison in pairs})
            >= MIN_PROMPTS_FOR_VERDICT
            else []
            for name, pairs in comparisons.items()
        }

    def _pays_for_equal_answers(
        self, pair: EqualAnswers, comparisons: Comparisons, store: Store
    ) -> bool:
        """False: a candidate that gives the baseline's answers is no worse, which takes no judge."""
        return False

    def _conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        controls: Comparisons = dict.fromkeys(comparisons, ())
        control_judgments: Judgments = {}
        if _are_equal(comparisons):
            judgments: Judgments = {
                d: list(map(pairing.tie_judgment, c)) for d, c in comparisons.items()
            }
        else:
            controls = self._make_controls(comparisons)
            all_judgments = self.judge_pairs(
                self._select_comparisons(comparisons), context.store
            )
            judgments, control_judgments = (
                {
                    name: [
                        j
                        for j in dimension_judgments
                        if (j.entrant_a == DEGRADED_COPY) is is_control
                    ]
                    for name, dimension_judgments in all_judgments.items()
                }
                for is_control in (False, True)
            )
        quality = [
            judge_quality(dimension_judgments, dimension=d)
            for d, dimension_judgments in judgments.items()
        ]
        slots = self._score_slots(responses, comparisons, judgments)
        gate = self._measure_gate(
            slots,
            GateEvidence(
                responses=responses,
                comparisons=comparisons,
                judgments=judgments,
                controls=controls,
                control_judgments=control_judgments,
                quality=quality,
            ),
            context.store,
        )
        text, state = gate_page.format_markdown(gate), gate.conclusion.state
        if self.gate.comment is not None:
            write_whole(Path(self.gate.comment), f"{text}\n")
        facts = self._collect_facts(responses, judgments, quality)
        rows = [share.to_dict() for share in gate.shares]
        metrics: dict[str, Value] = {
            "gate/verdict": state,
            "gate/passed": float(state == "pass"),
            "gate/sentence": gate.sentence,
        }
        metrics |= {
            f"gate/{row['dimension']}/{name}": row[name]
            for row in rows
            for name in _SHARE_METRICS
            if row[name] is not None
        }
        return Report(
            headline=math.nan,
            text=text,
            follow_up=suggest_audit_command(self.judge, self.rubric, context),
            exit_code=EXIT_CODE_BY_VERDICT[state],
            facts=facts | {"entrants": [gate.conclusion.subject]},
            artifacts=[
                *write_judging(
                    context.run_dir,
                    responses=responses,
                    comparisons=comparisons,
                    judgments=judgments,
                ),
                write_json(
                    context.run_dir / "gate.json",
                    self._make_gate_file(gate),
                ),
                write_whole(context.run_dir / "gate.md", f"{text}\n"),
            ],
            metrics=metrics,
            tables={"gate": rows, "verdicts": verdict_rows(comparisons, judgments)},
            page=page.make_page_renderer(
                partial(
                    gate_page.build_document,
                    gate,
                    texts=viewer.collect_texts(comparisons, judgments, {}),
                    colors=page.number_colors(self.entrant),
                )
            ),
        )

    def _score_slots(
        self, responses: Responses, comparisons: Comparisons, judgments: Judgments
    ) -> dict[str, dict[Slot, SlotPoints | None]]:
        """Score each of the candidate's answers, by dimension.

        Prompts that the candidate did not answer, or whose verdicts are missing, which `allow_missing` and
        `stored_only` let pass, may have been lost as well as won: leaving them out would hide failures. An empty
        answer counts as lost whatever the judge says. A prompt that the baseline did not answer is unknown.
        """
        candidate, baseline = (
            responses[next(iter(self.entrant))],
            responses[BASELINE_NAME],
        )
        has_candidate, has_baseline = map(
            pairing.answered_prompts, (candidate, baseline)
        )
        prompts = [
            prompt
            for prompt in self._select_prompts()
            if prompt.prompt_id not in has_candidate & has_baseline
        ]
        points = {}
        for rubric in self._rubrics:
            dimension_comparisons = comparisons[rubric.dimension]
            slots: dict[Slot, SlotPoints | None] = dict.fromkeys(
                map(_get_slot, dimension_comparisons)
            )
            for prompt in filter(rubric.applies_to, prompts):
                is_failure = prompt.prompt_id in has_baseline
                slots[prompt.slot] = _NOT_ANSWERED if is_failure else None
            slots |= {
                _get_slot(judgment): order_points(judgment)
                for judgment in judgments[rubric.dimension]
            }
            for comparison in filter(_is_empty, dimension_comparisons):
                slot_points = slots[_get_slot(comparison)] or _NOT_ANSWERED
                slots[_get_slot(comparison)] = dataclasses.replace(
                    slot_points, is_lost=True
                )
            points[rubric.dimension] = slots
        return points

    def _measure_gate(
        self,
        slots: Mapping[str, Mapping[Slot, SlotPoints | None]],
        evidence: "GateEvidence",
        store: Store,
    ) -> GateResult:
        """Measure the candidate against the baseline, and conclude."""
        margin, alpha = self.gate.margin, self.gate.alpha
        known_audits = load_stored_audits(self.judge, self._rubrics, store)
        points_by_prompt, shares = {}, []
        checks: dict[str, list[Check]] = {}
        checks_of_fail: dict[str, list[Check]] = {}
        is_same = _are_equal(evidence.comparisons)
        counts_looks = not is_same and self._scope.kind != "words"
        earlier = self._read_earlier_gates(evidence, store) if counts_looks else {}
        for row in evidence.quality:
            name = row.dimension
            points_by_prompt[name], floor = prompt_points(slots[name], margin)
            clusters = self._assign_clusters(points_by_prompt[name])
            looks = earlier.get(name, EarlierGates())
            # A claim without alpha of its own is not made: its bound is shown at gate.alpha
            levels = {
                claim: looks.level(claim, alpha) or alpha for claim in ("pass", "fail")
            }
            share = share_of_points(
                [*points_by_prompt[name].values()],
                clusters=clusters,
                floor=floor,
                margin=margin,
                alpha=levels["pass"],
                alpha_of_high=levels["fail"],
                dimension=name,
                n_dimensions=len(slots),
            )
            if not is_same:
                checks[name] = self._check_pass_claim(
                    row,
                    points_by_prompt[name],
                    clusters,
                    evidence,
                    known_audits[name]["audit"],
                    alpha=levels["pass"],
                )
                checks_of_fail[name] = self._check_fail_claim(
                    points_by_prompt[name],
                    clusters,
                    evidence,
                    known_audits[name]["audit"],
                    dimension=name,
                    alpha=levels["fail"],
                )
                if not _sees_control(checks[name]):
                    share = dataclasses.replace(share, n_needed=None)
            shares.append(share)
            if name in earlier and share.high is not None:
                self._store_shown_result(name, share, earlier[name], evidence, store)
        questions = {
            c.prompt_id: c.prompt_text
            for pairs in evidence.comparisons.values()
            for c in pairs
        }
        ends = {
            name: {
                q: (points.least, points.most)
                if points.known is None
                else (points.known,) * 2
                for q, points in points_by_id.items()
            }
            for name, points_by_id in points_by_prompt.items()
        }
        return GateResult(
            conclusion=conclude(
                shares,
                margin=margin,
                candidate=next(iter(self.entrant)),
                baseline=self.gate.baseline,
                is_same=is_same,
                scope=dataclasses.replace(
                    self._scope,
                    n_prompts=len(
                        {q for points in points_by_prompt.values() for q in points}
                    ),
                ),
                checks=checks,
                checks_of_fail=checks_of_fail,
                earlier=earlier,
                alpha=alpha,
                is_checked=all(
                    None not in (row.flip_rate, row.first_shown_rate)
                    for row in evidence.quality
                ),
            ),
            shares=shares,
            worst=worst_prompts(ends, questions),
            quality=evidence.quality,
            checks=checks,
            audits=known_audits,
            orders=self.judging.orders,
            margin=margin,
            margin_elo=self.gate.margin_elo,
            alpha=alpha,
            earlier=earlier,
            dollars=total_dollars(dataclasses.asdict(store.usage)),
            roles=[*roles_by_dimension(self.judge, self._rubrics).values()],
        )

    def _read_earlier_gates(
        self, evidence: "GateEvidence", store: Store
    ) -> dict[str, EarlierGates]:
        """Read the results that were shown of this candidate before prompts were added, by dimension."""
        gates_by_dimension = {}
        for name, judgments in evidence.judgments.items():
            verdicts, result = (
                _group_verdicts_by_prompt(judgments),
                self._name_result(name, evidence),
            )
            shown_gates = [
                EarlierGateResult(
                    verdicts={
                        prompt: {*keys}
                        for prompt, keys in shown_result.evidence["verdicts"].items()
                    },
                    alpha=shown_result.evidence["alpha"],
                    margin=shown_result.evidence["margin"],
                    claim=shown_result.claim,
                )
                for shown_result in store.list_earlier_results(
                    self._name_subject(name), result
                )
            ]
            gates_by_dimension[name] = sum_up_earlier_gates(
                shown_gates, verdicts, margin=self.gate.margin
            )
        return gates_by_dimension

    def _store_shown_result(
        self,
        dimension: str,
        share: PointShare,
        earlier: EarlierGates,
        evidence: "GateEvidence",
        store: Store,
    ) -> None:
        """Store that the result of a dimension is shown, and what its bounds claim at the remaining alpha."""
        alpha, margin = self.gate.alpha, self.gate.margin
        bounds = decide_gate([share], margin)
        is_claimed = bounds != "cannot tell" and earlier.level(bounds, alpha) > 0.0
        verdicts = _group_verdicts_by_prompt(evidence.judgments[dimension])
        result = StoredResult(
            name=self._name_result(dimension, evidence),
            evidence={
                "verdicts": {name: sorted(keys) for name, keys in verdicts.items()},
                "alpha": {
                    "pass": 0.0 if share.low is None else earlier.left("pass", alpha),
                    "fail": earlier.left("fail", alpha),
                },
                "margin": margin,
            },
            claim=bounds if is_claimed else None,
        )
        store.record_result(self._name_subject(dimension), result)

    def _name_subject(self, dimension: str) -> str:
        return f"gate {self.judge.model} {dimension}"

    def _name_result(self, dimension: str, evidence: "GateEvidence") -> str:
        """Return the name of a result: the same verdicts, alpha and margin show nothing new."""
        verdicts = _group_verdicts_by_prompt(evidence.judgments[dimension])
        rows = sorted((name, sorted(keys)) for name, keys in verdicts.items())
        return make_fingerprint([rows, self.gate.alpha, self.gate.margin])

    def _assign_clusters(self, prompt_ids: Iterable[str]) -> list[str]:
        """Return the cluster of each prompt: the one that the bank names, else the prompt itself."""
        cluster_of = self._cluster_of
        return [
            f"cluster {cluster_of[name]}" if name in cluster_of else name
            for name in prompt_ids
        ]

    def _check_pass_claim(
        self,
        quality: JudgeQuality,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        evidence: "GateEvidence",
        audit: Mapping[str, Any],
        *,
        alpha: float,
    ) -> list[Check]:
        """Check what stands for and against the claim that the candidate is not worse, on one dimension."""
        name, candidate = quality.dimension, next(iter(self.entrant))
        controls = evidence.controls[name]
        control = control_check(controls, evidence.control_judgments.get(name, ()))
        if control.state == NOT_DONE:
            reason = "not stored" if controls else "too few"
            reason = reason if self.gate.control else "left out"
            control = dataclasses.replace(
                control, about={**(control.about or {}), "why": reason}
            )
        return [
            same_verdict_check(
                evidence.judgments[name], sees_control=control.state == PASSED
            ),
            control,
            *order_checks(quality),
            self._check_length(
                points, clusters, evidence.comparisons[name], alpha=alpha
            ),
            answers_check(
                *(
                    check_responses(entrant, evidence.responses[entrant])
                    for entrant in (candidate, BASELINE_NAME)
                )
            ),
            self._check_family(audit),
            audit_check(audit),
        ]

    def _check_fail_claim(
        self,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        evidence: "GateEvidence",
        audit: Mapping[str, Any],
        *,
        dimension: str,
        alpha: float,
    ) -> list[Check]:
        """Check what stands for and against the claim that the candidate is worse, on one dimension."""
        comparisons, answers = evidence.comparisons[dimension], evidence.responses
        return [
            self._check_length(
                points,
                clusters,
                comparisons,
                alpha=alpha / len(evidence.comparisons),
                is_of_fail=True,
            ),
            answers_check(
                *(
                    check_responses(name, answers[name])
                    for name in (BASELINE_NAME, next(iter(self.entrant)))
                )
            ),
            self._check_family(audit, is_of_fail=True),
            audit_check(audit),
        ]

    def _check_length(
        self,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        comparisons: Sequence[Comparison],
        *,
        alpha: float,
        is_of_fail: bool = False,
    ) -> Check:
        differences_by_prompt: dict[str, list[int]] = {}
        lengths = [len(comparison.response_b) for comparison in comparisons]
        for comparison in comparisons:
            difference = len(comparison.response_a) - len(comparison.response_b)
            differences_by_prompt.setdefault(comparison.prompt_id, []).append(
                difference
            )
        cluster_by_prompt = dict(zip(points, clusters, strict=True))
        valid = [
            q
            for q, outcome in points.items()
            if outcome.least == outcome.most and q in differences_by_prompt
        ]
        return length_check(
            np.array([points[q].least for q in valid]),
            np.array([fmean(differences_by_prompt[q]) for q in valid]),
            np.array([cluster_by_prompt[q] for q in valid], dtype=object),
            margin=self.gate.margin,
            alpha=alpha,
            mean_length=fmean(lengths) if lengths else 0.0,
            is_of_fail=is_of_fail,
        )

    def _check_family(
        self, audit: Mapping[str, Any], *, is_of_fail: bool = False
    ) -> Check:
        """Check the candidate's family; for a fail, which favours the baseline, check the baseline's family."""
        kin, candidate = self.kin(), next(iter(self.entrant))
        names = families.list_family_hints(self.entrant[candidate])
        is_known = families.find_family(self.judging.families, *names) is not None
        self_verdicts = [
            row["verdict"]
            for row in audit.get("results", ())
            if row["probe"].partition(":")[0] == "self"
        ]
        favoured, rival = candidate, BASELINE_NAME
        if is_of_fail:
            favoured, rival, is_known = (
                BASELINE_NAME,
                candidate,
                BASELINE_NAME in kin.models,
            )
        return family_check(
            kin,
            candidate=favoured,
            baseline=rival,
            is_known=is_known and kin.family is not None,
            is_unbiased=self.allows_kin or set(self_verdicts) == {"ok"},
        )

    def kin(self) -> JudgeFamily:
        """Return which of the two is of the judge's family; the baseline's by the settings of its run, too."""
        names_by_entrant = {
            name: families.list_family_hints(entrant)
            for name, entrant in self.entrant.items()
        }
        names_by_entrant[BASELINE_NAME] = [
            *self._baseline_names,
            *names_by_entrant.get(BASELINE_NAME, ()),
        ]
        return families.find_judge_family(
            self.judging.families, self.judge.model, names_by_entrant
        )

    @property
    def _baseline_names(self) -> list[str]:
        """The names of the baseline's model, as the run that recorded its answers was set."""
        path = _find_baseline_file(Path(self.gate.baseline))
        if not _is_from_run(path):
            return []
        entrants = (
            read_manifest(path.parent.parent).get("config", {}).get("entrant", {})
        )
        return [
            model_name
            for name, settings in entrants.items()
            if path.stem == f"responses_{escape_name(name)}"
            for model_name in families.list_family_hints(SimpleNamespace(**settings))
        ]

    def _make_gate_file(self, gate: GateResult) -> dict[str, Any]:
        """Make the contents of gate.json."""
        conclusion = gate.conclusion
        return {
            "verdict": conclusion.state,
            "conclusion": conclusion.to_dict() | {"sentence": gate.sentence},
            "whose": gate.scope_sentence,
            "candidate": conclusion.subject,
            "judge_model": conclusion.scope.judge,
            "orders": gate.orders,
            **dataclasses.asdict(self.gate),
            "dimensions": [share.to_dict() for share in gate.shares],
            "checks": {
                name: [dataclasses.asdict(check) for check in checks]
                for name, checks in gate.checks.items()
            },
            "audits": gate.audits,
            "earlier_looks": {
                name: {
                    "n_looks": looks.n_looks,
                    "spent": {**looks.spent},
                    "claims": sorted(looks.claims),
                }
                for name, looks in gate.earlier.items()
                if looks.n_looks
            },
            "n_invalid": sum(share.n_invalid for share in gate.shares),
            "dollars": gate.dollars,
            "worst": [worst_prompt.to_dict() for worst_prompt in gate.worst],
        }

    def _check_entrant_count(self) -> None:
        if len(self.entrant) != 2:
            raise SettingError(
                f"entrant: found {', '.join(self.entrant)}. Expected one candidate beside the "
                "baseline: entrant=[candidate]."
            )

    def _check(self, store: Store) -> None:
        files = self.list_input_files()
        answers = files[f"entrant {BASELINE_NAME}"]
        folder = answers.parent.parent
        manifest = read_manifest(folder) if _is_from_run(answers) else None
        inputs = {
            n: str(p) for n, p in files.items() if n.split()[0] in ("bank", "rubric")
        }
        changed_inputs = [
            f"{name} ({inputs[name]})"
            for name, digest in input_hashes(inputs).items()
            if manifest is not None
            and digest not in manifest.get("input_hashes", {}).values()
        ]
        if changed_inputs:
            raise SettingError(
                f"gate.baseline: the run of {answers} had another {', '.join(changed_inputs)}. Compare on "
                "the same prompts by the same rubrics, or run the baseline again."
            )
        _ = self._cluster_of
        super()._check(store)


@dataclass(frozen=True, kw_only=True)
class GateEvidence:
    """What a gate has to go by.

    controls           comparisons of degraded copies of the baseline's answers, by dimension
    control_judgments  of these
    quality            of the judgments of each dimension
    """

    responses: Responses
    comparisons: Comparisons
    judgments: Judgments
    controls: Comparisons
    control_judgments: Judgments
    quality: Sequence[JudgeQuality]


def _sees_control(checks: Sequence[Check]) -> bool:
    return any(check.name == "control" and check.state == PASSED for check in checks)


def _group_verdicts_by_prompt(judgments: Sequence[Judgment]) -> dict[str, set[str]]:
    """Group the keys of the verdicts by prompt, cut to the characters that tell them apart."""
    keys_by_prompt: dict[str, set[str]] = {}
    for judgment in judgments:
        verdicts = keys_by_prompt.setdefault(
            make_fingerprint([judgment.prompt_id])[:_PROMPT_KEY_CHARS], set()
        )
        if judgment.equal_answers:
            verdicts.add(_EQUAL_ANSWERS_KEY)
        verdicts.update(
            verdict.cache_key[:_VERDICT_KEY_CHARS] for verdict in judgment.raw
        )
    return keys_by_prompt


def _is_empty(comparison: Comparison) -> bool:
    """Whether the candidate's answer is empty, and the baseline's is not."""
    texts = comparison.response_a, comparison.response_b
    candidate_text, baseline_text = (
        own_words(comparison, text).strip() for text in texts
    )
    return not candidate_text and bool(baseline_text)


def _are_equal(comparisons: Comparisons) -> bool:
    """Whether the candidate gave the baseline's answer to every prompt."""
    all_comparisons = [
        comparison for pairs in comparisons.values() for comparison in pairs
    ]
    return bool(all_comparisons) and all(
        comparison.response_a == comparison.response_b for comparison in all_comparisons
    )


def _get_slot(record: Comparison | Judgment) -> Slot:
    return record.prompt_id, max(record.draw_a, record.draw_b)


def _is_from_run(path: Path) -> bool:
    """Whether a run has written this file of answers."""
    return (
        path.parent.name == "responses" and (path.parents[1] / "manifest.json").exists()
    )


def _is_joined(path: Path, answers: object, bank_path: str | None) -> bool:
    """Whether a baseline's answers are joined to the prompts like files of answers."""
    return bool(answers) or bank_path is None or not _is_from_run(path)


def _find_baseline_file(location: Path) -> Path:
    """Return the file of the baseline's answers: the given file, or the file of the only entrant of a run."""
    if not location.is_dir():
        return location
    names = read_manifest(location).get("entrants", [])
    if len(names) != 1:
        raise SettingError(
            f"gate.baseline: {location} has the answers of {len(names)} entrants. Name the file of one: "
            f"gate.baseline={location}/responses/responses_NAME.jsonl."
        )
    return location / "responses" / f"responses_{escape_name(names[0])}.jsonl"
