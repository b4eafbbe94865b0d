"""Test whether a candidate is not worse than a recorded baseline, and return the result as the exit code.

Only the candidate answers. A judge compares its answers with the answers of the baseline's run.
"""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.data import answer_joins, pairing
from elo_exp.data.degraded_copies import DEGRADED_COPY
from elo_exp.data.pairing import Responses
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report
from elo_exp.experiments.answer_files import AnswerFiles, describe_recorded_entrant
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.comparison_experiment import PairwiseExperiment
from elo_exp.experiments.entrant_answers import EntrantAnswers
from elo_exp.experiments.gate_baseline import (
    BASELINE_NAME,
    GateBaseline,
    GateSettings,
    find_baseline,
)
from elo_exp.experiments.gate_control import GateControl, are_equal
from elo_exp.experiments.gate_evidence import GateEvidence
from elo_exp.experiments.gate_measurement import GateMeasurement
from elo_exp.experiments.gate_plan import estimate_pass_chance
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.experiments.prompt_source import PromptSource
from elo_exp.experiments.stored_audits import suggest_audit_command
from elo_exp.files import write_json, write_whole
from elo_exp.pipeline import Plan
from elo_exp.records import Plot
from elo_exp.report import gate_ci, gate_page, page, viewer
from elo_exp.report.artifacts import verdict_rows, write_judging
from elo_exp.report.gate_page import GateResult
from elo_exp.report.sentences import gate_sentences as words
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.trackers import Value

_RESERVED_NAMES = {
    BASELINE_NAME: "the recorded baseline",
    DEGRADED_COPY: "the copies of the baseline's answers",
}
EXIT_CODE_BY_VERDICT = {"same answers": 0, "pass": 0, "fail": 1, "cannot tell": 3}
_SHARE_METRICS = (
    "share",
    "low",
    "high",
    "n_invalid",
    "n_needed",
)


@dataclass(kw_only=True)
class Gate(PairwiseExperiment):
    """A candidate, the entrant that a command chooses, against a baseline whose answers are on file."""

    gate: GateSettings

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Add the baseline to the entrants."""
        config = PairwiseExperiment.prepare(config, overrides)
        location = config["gate"]["baseline"]
        if location == "???":
            return config
        for name, reason in _RESERVED_NAMES.items():
            if name in config["entrant"]:
                raise SettingError(
                    f"The candidate cannot be called {name}, which is the name of {reason}. Rename it:",
                    "  'answers={NAME:FILE}'",
                )
        baseline = find_baseline(Path(location))
        node = {
            "_target_": "elo_exp.entrants.recorded.RecordedEntrant",
            "entrant_id": BASELINE_NAME,
            "path": str(baseline.path),
        }
        if baseline.is_joined(config["answers"], config["prompts"]["bank_path"]):
            named_file = (BASELINE_NAME, baseline.path)
            answer_sets = answer_joins.read_answer_sets([named_file], config["columns"])
            ((_, answers),) = answer_sets.items()
            node = describe_recorded_entrant(BASELINE_NAME, answers)
        config["entrant"][BASELINE_NAME] = node
        return config

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"gate": ("passed", *_SHARE_METRICS), "usage": ()}

    @cached_property
    def baseline(self) -> GateBaseline:
        """The file of the baseline's answers."""
        return find_baseline(Path(self.gate.baseline))

    @property
    def control(self) -> GateControl:
        """Degraded copies of the baseline's answers, which are judged, too."""
        return GateControl(is_wanted=self.gate.control)

    @cached_property
    def answer_files(self) -> AnswerFiles:
        """The candidate's and, unless it is compared as a run of ours has written it, the baseline's."""
        candidate, path = super().answer_files, self.baseline.path
        is_joined = self.baseline.is_joined(self.answers, self.prompts.bank_path)
        files = [*candidate.files, *([(BASELINE_NAME, path)] if is_joined else [])]
        return replace(candidate, files=files, keeps_all=True)

    @cached_property
    def prompt_source(self) -> PromptSource:
        """The bank; with files of answers, the prompts to which the baseline has a row, answered or not."""
        return replace(super().prompt_source, baseline=BASELINE_NAME)

    @cached_property
    def entrant_answers(self) -> EntrantAnswers:
        """The answers of candidate and baseline: a candidate has to say that it failed."""
        return replace(super().entrant_answers, counts_absent=False)

    @cached_property
    def design(self) -> ComparisonDesign:
        """The candidate's answers with the baseline's, and the control."""
        return replace(super().design, control=self.control)

    @cached_property
    def judge_runs(self) -> dict[str, JudgeRun]:
        """The judge, which is paid for no candidate that gave the baseline's answers: that takes no judge."""
        hints = {BASELINE_NAME: self.baseline.model_names}
        return {
            name: replace(run, family_hints=hints, compares_equal=True)
            for name, run in super().judge_runs.items()
        }

    @property
    def measurement(self) -> GateMeasurement:
        """How the candidate is measured."""
        return GateMeasurement(
            settings=self.gate,
            candidate=next(iter(self.entrant)),
            prompt_source=self.prompt_source,
            judge_run=self.judge_run,
        )

    def check_entrants(self) -> None:
        candidates = [name for name in self.entrant if name != BASELINE_NAME]
        if len(self.entrant) != 2:
            raise SettingError(
                f"experiment=gate needs one candidate besides the baseline; got {', '.join(candidates) or 'none'}. For "
                f"example:",
                "  python -m elo_exp experiment=gate new.csv gate.baseline=old.csv",
            )

    def check_settings(self, context: Context) -> None:
        files = self.list_input_files()
        self.baseline.refuse_changed_inputs(files, self.rubric)
        _ = self.prompt_source.clusters

    def format_plan(self, plans: Sequence[Plan]) -> str:
        (plan,) = plans
        if not plan.rows:
            return (
                "plan: the candidate gave the baseline's answers, so no judge is called"
            )
        margin, both_orders = self.gate.margin, self.judging.both_orders
        ids = [prompt.prompt_id for prompt in self.prompt_source.select()]
        chance, n_needed = estimate_pass_chance(
            plan,
            self.measurement.assign_clusters(ids),
            margin=margin,
            alpha=self.gate.alpha,
            both_orders=both_orders,
        )
        controls = [row for row in plan.rows if row.is_control]
        return "\n".join(
            [
                super().format_plan(plans),
                *words.plan(chance, n_needed, margin, both_orders=both_orders),
                *words.describe_control_plan(
                    sum(row.queries for row in controls),
                    sum(row.new for row in controls),
                    sum(row.dollars for row in controls)
                    if plan.budget_usd is not None
                    else None,
                    is_wanted=self.gate.control,
                ),
            ]
        )

    def conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        judge_run = self.judge_run
        controls: Comparisons = dict.fromkeys(comparisons, ())
        control_judgments: Judgments = {}
        if are_equal(comparisons):
            judgments: Judgments = {
                d: list(map(pairing.tie_judgment, c)) for d, c in comparisons.items()
            }
        else:
            controls = self.control.make(comparisons)
            all_judgments = judge_run.judge_pairs(
                self.design.add_control(comparisons), context.store
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
        evidence = GateEvidence(
            responses=responses,
            comparisons=comparisons,
            judgments=judgments,
            controls=controls,
            control_judgments=control_judgments,
            quality=quality,
        )
        gate = self.measurement.measure(evidence, context.store)
        facts = self.design.collect_facts(
            judge_run.judge.model, responses, judgments, quality
        )
        return self._report(context, gate, evidence, facts)

    def _report(
        self,
        context: Context,
        gate: GateResult,
        evidence: GateEvidence,
        facts: Mapping[str, Any],
    ) -> Report:
        """Write what a gate leaves, and report it."""
        judge = self.judge_run.judge
        responses, comparisons = evidence.responses, evidence.comparisons
        judgments = evidence.judgments
        state, markdown = gate.conclusion.state, f"{gate_page.format_markdown(gate)}\n"
        if self.gate.comment is not None:
            write_whole(Path(self.gate.comment), markdown)
        if self.gate.junit is not None:
            write_whole(Path(self.gate.junit), gate_ci.format_junit(gate))
        rows = [share.to_dict() for share in gate.shares]
        colors = page.number_colors(self.entrant)
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
            text="\n\n".join(
                [gate_page.format_console(gate), *_list_annotations(gate)]
            ),
            follow_up=suggest_audit_command(judge, self.rubric, context),
            exit_code=EXIT_CODE_BY_VERDICT[state],
            facts={**facts} | {"entrants": [gate.conclusion.subject]},
            artifacts=[
                *write_judging(
                    context.run_dir,
                    responses=responses,
                    comparisons=comparisons,
                    judgments=judgments,
                ),
                write_json(
                    context.run_dir / "gate.json",
                    _make_gate_file(self.gate, gate),
                ),
                write_whole(context.run_dir / "gate.md", markdown),
            ],
            metrics=metrics,
            tables={"gate": rows, "verdicts": verdict_rows(comparisons, judgments)},
            figures=lambda: _draw_figures(rows, self.gate.margin),
            page=page.make_page_renderer(
                partial(
                    gate_page.build_document,
                    gate,
                    texts=viewer.collect_texts(comparisons, judgments, {}),
                    losses=viewer.list_loss_blocks(
                        comparisons,
                        judgments,
                        [prompt.prompt_id for prompt in gate.worst],
                        loser=gate.conclusion.subject or "",
                        colors=colors,
                    ),
                    colors=colors,
                )
            ),
        )


def _draw_figures(rows: Sequence[Mapping[str, Any]], margin: float) -> list[Plot]:
    from elo_exp.figures.gate_figures import plots

    return plots(rows, margin)


def _list_annotations(gate: GateResult) -> list[str]:
    """Return an annotation of the result if GitHub Actions runs the command."""
    is_on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    return [gate_ci.format_annotation(gate)] if is_on_github else []


def _make_gate_file(settings: GateSettings, gate: GateResult) -> dict[str, Any]:
    """Make the contents of gate.json."""
    conclusion = gate.conclusion
    return {
        "verdict": conclusion.state,
        "conclusion": conclusion.to_dict() | {"sentence": gate.sentence},
        "whose": gate.scope_sentence,
        "candidate": conclusion.subject,
        "judge_model": conclusion.scope.judge,
        "orders": gate.orders,
        **dataclasses.asdict(settings),
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
