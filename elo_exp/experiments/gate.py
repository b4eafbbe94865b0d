"""Is a candidate no worse than a recorded baseline? For continuous integration: the exit code is the answer.

Only the candidate answers, and a judge compares its answers with those of the baseline's run.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from elo_exp import experiments, pipeline
from elo_exp.analysis.conclusions.gate import gate_conclusion
from elo_exp.analysis.gate import (
    pass_probability,
    points_of,
    prompts_to_pass,
    share_of_points,
    worst_prompts,
)
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.analysis.power import assumed_sigma
from elo_exp.data import joining, pairing
from elo_exp.data.equal_answers import EqualAnswers
from elo_exp.data.pairing import Responses
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import (
    Judged,
    Pairwise,
    answers_node,
    audits,
    next_audit,
)
from elo_exp.files import safe_name, write_json, write_whole
from elo_exp.judges import roles
from elo_exp.ratings.fit import POINTS
from elo_exp.records import Comparison, Judgment, Prompt, Slot, UserError
from elo_exp.report import gate_page, page, viewer
from elo_exp.report.artifacts import verdict_rows, write_judging
from elo_exp.report.gate_page import Gated
from elo_exp.report.viewer import Comparisons, Judgments
from elo_exp.runs.manifest import input_hashes
from elo_exp.runs.reading import read_manifest
from elo_exp.store.store import Store
from elo_exp.store.usage import paid
from elo_exp.trackers import Value
from elo_exp.types import Positive

BASELINE = "baseline"  # its name in the run, whatever it was called in its own
EXIT_CODES = {"same answers": 0, "pass": 0, "fail": 1, "cannot tell": 3}
_NUMBERS = (
    "share",
    "low",
    "high",
    "n_invalid",
    "n_needed",
)  # of a share, that trackers get
_TIES = 0.2  # of verdicts in the simulations of the planner, which draw shares together

BelowHalf = Annotated[float, Field(strict=True, gt=0, lt=0.5)]


@dataclass(kw_only=True)
class GateSettings:
    baseline: str  # a run folder, or a file of its responses/
    margin: BelowHalf  # of the share of points
    margin_elo: Positive | None  # the same in Elo points, in its place
    alpha: BelowHalf
    comment: str | None  # file to write gate.md to as well

    def __post_init__(self) -> None:
        if self.margin_elo is not None:
            self.margin = 0.5 - 1.0 / (1.0 + 10.0 ** (self.margin_elo / 400.0))


@dataclass(kw_only=True)
class Gate(Pairwise):
    gate: GateSettings

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """Add the baseline to the entrants."""
        config = Judged.prepare(config, overrides)
        place = config["gate"]["baseline"]
        if place == "???":
            return config
        if BASELINE in config["entrant"]:
            raise UserError(
                f"entrant: found a candidate called {BASELINE}, as the recorded one is here. Call it "
                "otherwise: 'answers={NAME:FILE}'."
            )
        path = _answers(Path(place))
        node = {
            "_target_": "elo_exp.entrants.recorded.RecordedEntrant",
            "entrant_id": BASELINE,
            "path": str(path),
        }
        if _is_joined(path, config["answers"], config["prompts"]["bank_path"]):
            ((_, one),) = joining.entrants([(BASELINE, path)]).items()
            node = answers_node(BASELINE, one)
        config["entrant"][BASELINE] = node
        return config

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"gate": ("passed", *_NUMBERS), "usage": ()}

    @property
    def _files(self) -> list[joining.Given]:
        """The candidate's and, unless it is compared as a run of ours has written it, the baseline's."""
        path = _answers(Path(self.gate.baseline))
        is_joined = _is_joined(path, self.answers, self.prompts.bank_path)
        return [*super()._files, *([(BASELINE, path)] if is_joined else [])]

    def _lines_of_answers(self) -> list[str]:
        return self._joined.lines(keeps_all=True)

    def _bank(self) -> list[Prompt]:
        """With files of answers, the prompts that the baseline answered: what the candidate lacks of them counts."""
        if not self._files:
            return super()._bank()
        answered = set(self._joined.answered[BASELINE])
        return [p for p in self._joined.prompts if p.prompt_id in answered]

    def _plan_text(self, plan: pipeline.Plan) -> str:
        margin, alpha = self.gate.margin, self.gate.alpha
        sigma = assumed_sigma(2, both_orders=self.judging.both_orders)
        sd = sigma * (1.0 - _TIES) / (4.0 * POINTS)
        if not plan.rows:
            return (
                "plan: the candidate gave the baseline's answers, so no judge is asked"
            )
        chance = math.prod(
            pass_probability(row.n_prompts, sd, margin, alpha) for row in plan.rows
        )
        return (
            f"{super()._plan_text(plan)}\n"
            f"  P(pass | equal) = {chance:.2f}: that a candidate as good as the baseline passes, with "
            f"a margin of {margin:.3f}\n"
            f"  of the share of points; {prompts_to_pass(sd, margin, alpha):,} prompts give .80 in one dimension."
        )

    def _to_judge(self, comparisons: Comparisons) -> Comparisons:
        """None where the candidate gave the baseline's answers: nothing tells them apart, and no judge is asked."""
        return (
            dict.fromkeys(comparisons, ()) if _are_equal(comparisons) else comparisons
        )

    def _is_waste(
        self, pair: EqualAnswers, comparisons: Comparisons, store: Store
    ) -> bool:
        """False: a candidate that gives the baseline's answers is no worse, which takes no judge."""
        return False

    def _conclude(
        self, context: Context, responses: Responses, comparisons: Comparisons
    ) -> Report:
        if _are_equal(comparisons):
            judgments = {d: list(map(pairing.tie, c)) for d, c in comparisons.items()}
        else:
            judgments = self.judge_pairs(comparisons, context.store)
        quality = [judge_quality(some, dimension=d) for d, some in judgments.items()]
        points = self._points(responses, comparisons, judgments)
        gate = self._measured(points, comparisons, quality, context.store)
        shown = gate_page.shown(gate)
        text, state = gate_page.markdown(shown), gate.conclusion.state
        if self.gate.comment is not None:
            write_whole(Path(self.gate.comment), f"{text}\n")
        facts = self._facts(responses, judgments, quality)
        rows = [share.to_dict() for share in gate.shares]
        metrics: dict[str, Value] = {
            "gate/verdict": state,
            "gate/passed": float(state == "pass"),
            "gate/sentence": shown.verdict,
        }
        metrics |= {
            f"gate/{row['dimension']}/{name}": row[name]
            for row in rows
            for name in _NUMBERS
            if row[name] is not None
        }
        return Report(
            headline=math.nan,
            text=text,
            follow_up=next_audit(self.judge, self.rubric, context),
            exit_code=EXIT_CODES[state],
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
                    self._file(gate, sentence=shown.verdict, whose=shown.whose),
                ),
                write_whole(context.run_dir / "gate.md", f"{text}\n"),
            ],
            metrics=metrics,
            tables={"gate": rows, "verdicts": verdict_rows(comparisons, judgments)},
            page=page.maker(
                "gate",
                gate=shown,
                texts=viewer.texts(comparisons, judgments, {}),
                color=page.colors(self.entrant),
            ),
        )

    def _points(
        self, responses: Responses, comparisons: Comparisons, judgments: Judgments
    ) -> dict[str, dict[str, tuple[float, float]]]:
        """The least and the most points of the candidate, by dimension and prompt, the mean over its draws.

        Prompts that the candidate did not answer, or whose verdicts are missing, which `allow_missing` and
        `stored_only` let pass, may have been lost as well as won: leaving them out would hide failures.
        """
        candidate, baseline = responses[next(iter(self.entrant))], responses[BASELINE]
        lacking = pairing.answered(baseline) - pairing.answered(candidate)
        unanswered = [one for one in self._prompts() if one.prompt_id in lacking]
        points = {}
        for rubric in self._rubrics:
            name = rubric.dimension
            compared = [_slot(one) for one in comparisons[name]]
            missing = [one.slot for one in unanswered if rubric.applies_to(one)]
            slots: list[Slot] = [*compared, *missing]
            by_slot = dict.fromkeys(slots, (0.0, 1.0))
            by_slot |= {_slot(one): points_of(one) for one in judgments[name]}
            by_prompt: dict[str, list[tuple[float, float]]] = {}
            for (prompt_id, _), ends in by_slot.items():
                by_prompt.setdefault(prompt_id, []).append(ends)
            points[name] = {
                prompt_id: (fmean(low), fmean(high))
                for prompt_id, ends in by_prompt.items()
                for low, high in [zip(*ends, strict=True)]
            }
        return points

    def _measured(
        self,
        points: Mapping[str, Mapping[str, tuple[float, float]]],
        comparisons: Comparisons,
        quality: Sequence[Mapping[str, Any]],
        store: Store,
    ) -> Gated:
        """What the gate found, and what may be said of it."""
        margin, alpha = self.gate.margin, self.gate.alpha
        shares = [
            share_of_points(
                np.array(list(by_prompt.values())),
                margin=margin,
                alpha=alpha,
                dimension=dimension,
                n_dimensions=len(points),
            )
            for dimension, by_prompt in points.items()
        ]
        questions = {
            c.prompt_id: c.prompt_text for some in comparisons.values() for c in some
        }
        return Gated(
            conclusion=gate_conclusion(
                shares,
                margin=margin,
                candidate=next(iter(self.entrant)),
                baseline=self.gate.baseline,
                is_same=_are_equal(comparisons),
                scope=dataclasses.replace(
                    self._scope,
                    n_prompts=len({q for by in points.values() for q in by}),
                ),
                is_checked=all(
                    row[rate] is not None
                    for row in quality
                    for rate in ("flip_rate", "first_shown_rate")
                ),
            ),
            shares=shares,
            worst=worst_prompts(points, questions),
            quality=quality,
            audits=audits(self.judge, self._rubrics, store),
            orders=self.judging.orders,
            margin=margin,
            margin_elo=self.gate.margin_elo,
            alpha=alpha,
            dollars=paid(dataclasses.asdict(store.usage)),
            roles=[*roles(self.judge, self._rubrics).values()],
        )

    def _file(self, gate: Gated, *, sentence: str, whose: str) -> dict[str, Any]:
        """What gate.json holds."""
        conclusion = gate.conclusion
        return {
            "verdict": conclusion.state,
            "conclusion": conclusion.to_dict() | {"sentence": sentence},
            "whose": whose,
            "candidate": conclusion.subject,
            "judge_model": conclusion.scope.judge,
            "orders": gate.orders,
            **dataclasses.asdict(self.gate),
            "dimensions": [share.to_dict() for share in gate.shares],
            "audits": gate.audits,
            "n_invalid": sum(share.n_invalid for share in gate.shares),
            "dollars": gate.dollars,
            "worst": [one.to_dict() for one in gate.worst],
        }

    def _check_number(self) -> None:
        if len(self.entrant) != 2:
            raise UserError(
                f"entrant: found {', '.join(self.entrant)}. Expected one candidate beside the "
                "baseline: entrant=[candidate]."
            )

    def _check(self, store: Store) -> None:
        files = experiments.input_files(self)
        answers = files[f"entrant {BASELINE}"]
        folder = answers.parent.parent
        manifest = read_manifest(folder) if _is_of_run(answers) else None
        judged = {
            n: str(p) for n, p in files.items() if n.split()[0] in ("bank", "rubric")
        }
        changed = [
            f"{name} ({judged[name]})"
            for name, digest in input_hashes(judged).items()
            if manifest is not None
            and digest not in manifest.get("input_hashes", {}).values()
        ]
        if changed:
            raise UserError(
                f"gate.baseline: the run of {answers} had another {', '.join(changed)}. Compare on "
                "the same prompts by the same rubrics, or run the baseline again."
            )
        super()._check(store)


def _are_equal(comparisons: Comparisons) -> bool:
    """Whether the candidate gave the baseline's answer to every prompt."""
    every = [one for some in comparisons.values() for one in some]
    return bool(every) and all(one.response_a == one.response_b for one in every)


def _slot(some: Comparison | Judgment) -> Slot:
    return some.prompt_id, max(some.draw_a, some.draw_b)


def _is_of_run(path: Path) -> bool:
    """Whether a run has written this file of answers."""
    return (
        path.parent.name == "responses" and (path.parents[1] / "manifest.json").exists()
    )


def _is_joined(path: Path, given: object, bank_path: str | None) -> bool:
    """Whether a baseline's answers are joined to the prompts as files of answers are."""
    return bool(given) or bank_path is None or not _is_of_run(path)


def _answers(place: Path) -> Path:
    """The file of the baseline's answers: the one named, or that of a run's only entrant."""
    if not place.is_dir():
        return place
    names = read_manifest(place).get("entrants", [])
    if len(names) != 1:
        raise UserError(
            f"gate.baseline: {place} has the answers of {len(names)} entrants. Name the file of one: "
            f"gate.baseline={place}/responses/responses_NAME.jsonl."
        )
    return place / "responses" / f"responses_{safe_name(names[0])}.jsonl"
