"""The measurement of a gate: points of the candidate's answers, win rates by dimension, and the conclusion."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elo_exp.analysis.checks import PASSED, Check
from elo_exp.analysis.checks.control_check import GATE_CHECK as CONTROL
from elo_exp.analysis.conclusions.gate_conclusion import (
    RubricResult,
    conclude,
    decide_rubric,
)
from elo_exp.analysis.gate_checks import check_fail_claim, check_pass_claim
from elo_exp.analysis.noninferiority import (
    SlotPoints,
    order_points,
    prompt_points,
    share_of_points,
    worst_prompts,
)
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.data import pairing
from elo_exp.data.conversations import own_words
from elo_exp.data.pairing import Responses
from elo_exp.experiments.gate_baseline import BASELINE_NAME, GateSettings
from elo_exp.experiments.gate_control import are_equal
from elo_exp.experiments.gate_evidence import GateEvidence
from elo_exp.experiments.gate_history import GateHistory
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.experiments.prompt_source import PromptSource
from elo_exp.judges import roles_by_dimension
from elo_exp.records import Comparison, Judgment, Slot
from elo_exp.report.gate_page import GateResult
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import total_dollars

_NOT_ANSWERED = SlotPoints(orders=(None, None), is_lost=True)


@dataclass(frozen=True, kw_only=True)
class GateMeasurement:
    """The candidate, measured against the baseline by a judge."""

    settings: GateSettings
    candidate: str
    prompt_source: PromptSource
    judge_run: JudgeRun

    def score_slots(
        self, responses: Responses, comparisons: Comparisons, judgments: Judgments
    ) -> dict[str, dict[Slot, SlotPoints | None]]:
        """Score each of the candidate's answers, by dimension.

        Prompts that the candidate did not answer, or whose verdicts are missing, which `allow_missing` and
        `stored_only` let pass, may have been lost as well as won: leaving them out would hide failures. An empty
        answer counts as lost whatever the judge says. A prompt that the baseline did not answer is unknown.
        """
        candidate, baseline = (
            responses[self.candidate],
            responses[BASELINE_NAME],
        )
        has_candidate, has_baseline = map(
            pairing.answered_prompts, (candidate, baseline)
        )
        prompts = [
            prompt
            for prompt in self.prompt_source.select()
            if prompt.prompt_id not in has_candidate & has_baseline
        ]
        points = {}
        for rubric in self.judge_run.rubrics:
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

    def measure(self, evidence: GateEvidence, store: Store) -> GateResult:
        """Measure the candidate against the baseline, and conclude."""
        margin, alpha = self.settings.margin, self.settings.alpha
        known_audits = self.judge_run.load_audits(store)
        slots = self.score_slots(
            evidence.responses, evidence.comparisons, evidence.judgments
        )
        history = GateHistory(
            settings=self.settings,
            judge_model=self.judge_run.judge.model,
            store=store,
        )
        points_by_prompt, shares = {}, []
        checks: dict[str, list[Check]] = {}
        checks_of_fail: dict[str, list[Check]] = {}
        is_same = are_equal(evidence.comparisons)
        counts_looks = not is_same and self.judge_run.scope.kind != "words"
        earlier = history.load(evidence.judgments) if counts_looks else {}
        for row in evidence.quality:
            name = row.dimension
            points_by_prompt[name], floor = prompt_points(slots[name], margin)
            clusters = self.assign_clusters(points_by_prompt[name])
            looks = earlier.get(name, EarlierGates())
            # A claim without alpha of its own is not made: its bound is shown at gate.alpha
            levels = {
                claim: looks.claim_alpha(claim, alpha) or alpha
                for claim in ("pass", "fail")
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
                candidate_evidence = evidence.select(
                    row,
                    points_by_prompt[name],
                    clusters,
                    known_audits[name]["audit"],
                    candidate=self.candidate,
                    settings=self.settings,
                    judge_run=self.judge_run,
                    levels=levels,
                )
                checks[name] = check_pass_claim(candidate_evidence)
                checks_of_fail[name] = check_fail_claim(candidate_evidence)
                if not _sees_control(checks[name]):
                    share = dataclasses.replace(share, n_needed=None)
            shares.append(share)
            if name in earlier and share.high is not None:
                history.add(name, share, earlier[name], evidence.judgments[name])
        questions = {
            c.prompt_id: c.prompt_text
            for pairs in evidence.comparisons.values()
            for c in pairs
        }
        ends = {
            name: {
                q: (points.lowest, points.highest)
                if points.known is None
                else (points.known,) * 2
                for q, points in points_by_id.items()
            }
            for name, points_by_id in points_by_prompt.items()
        }
        conclusion = conclude(
            shares,
            margin=margin,
            candidate=self.candidate,
            baseline=self.settings.baseline,
            is_same=is_same,
            scope=dataclasses.replace(
                self.judge_run.scope,
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
        )
        return GateResult(
            conclusion=conclusion,
            shares=shares,
            results={
                share.dimension: RubricResult(state="same answers")
                if conclusion.state == "same answers"
                else decide_rubric(
                    share,
                    margin=margin,
                    checks=checks.get(share.dimension, ()),
                    checks_of_fail=checks_of_fail.get(share.dimension, ()),
                    earlier=earlier.get(share.dimension),
                    alpha=alpha,
                )
                for share in shares
            },
            worst=worst_prompts(ends, questions),
            quality=evidence.quality,
            checks=checks,
            audits=known_audits,
            orders=self.judge_run.options.orders,
            margin=margin,
            margin_elo=self.settings.margin_elo,
            alpha=alpha,
            earlier=earlier,
            dollars=total_dollars(dataclasses.asdict(store.usage)),
            roles=[
                *roles_by_dimension(
                    self.judge_run.judge, self.judge_run.rubrics
                ).values()
            ],
        )

    def assign_clusters(self, prompt_ids: Iterable[str]) -> list[str]:
        """Return the cluster of each prompt: the one that the bank names, else the prompt itself."""
        cluster_of = self.prompt_source.clusters
        return [
            f"cluster {cluster_of[name]}" if name in cluster_of else name
            for name in prompt_ids
        ]


def _sees_control(checks: Sequence[Check]) -> bool:
    return any(check.name == CONTROL.name and check.state == PASSED for check in checks)


def _is_empty(comparison: Comparison) -> bool:
    """Whether the candidate's answer is empty, and the baseline's is not."""
    texts = comparison.response_a, comparison.response_b
    candidate_text, baseline_text = (
        own_words(comparison, text).strip() for text in texts
    )
    return not candidate_text and bool(baseline_text)


def _get_slot(record: Comparison | Judgment) -> Slot:
    return record.prompt_id, max(record.draw_a, record.draw_b)
