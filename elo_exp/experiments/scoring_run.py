"""A tournament whose judge scores answers one by one: the scores, and the mean scores made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from elo_exp.analysis import standings
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.order_agreement import compare_orders
from elo_exp.analysis.standings import Standings
from elo_exp.data import identical_answers
from elo_exp.data.criteria import CriteriaRubric, NumberRubric
from elo_exp.data.pairing import Responses
from elo_exp.data.scores import Score as ItemScore
from elo_exp.data.single_answers import list_item_scores, split_criteria
from elo_exp.errors import SettingError
from elo_exp.experiments import Context, Report
from elo_exp.experiments.comparison_design import ComparisonDesign
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.experiments.rated import report_standings
from elo_exp.experiments.shown_pairs import KeysByPair, record_shown_pairs
from elo_exp.files import escape_name, write_jsonl
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Score, make_fingerprint
from elo_exp.report import artifacts
from elo_exp.report.scores_section import SingleScores
from elo_exp.report.standings_view import build_view
from elo_exp.store.answer_store import Store


@dataclass(frozen=True, kw_only=True)
class ScoringResult:
    """Answers as one judge has scored them.

    standings  of mean scores, with conclusions
    criteria   the mean of each criterion: by dimension, then by criterion
    scores     by dimension
    """

    standings: Standings
    criteria: Mapping[str, Mapping[str, Leaderboard]]
    scores: Mapping[str, Sequence[Score]]

    def write_scores(self, run_dir: Path) -> list[Path]:
        """Write the score of each answer, a file for each dimension, which judge=replay reads."""
        return [
            write_jsonl(
                run_dir / "scores" / f"{escape_name(name)}.jsonl",
                ({"dimension": name, **score.to_dict()} for score in dimension_scores),
            )
            for name, dimension_scores in self.scores.items()
        ]


@dataclass(frozen=True, kw_only=True)
class ScoringRun:
    """A judge that scores the answers of a tournament one by one.

    allow_missing  compare entrants that share fewer than half of the scored prompts
    """

    judge_run: JudgeRun
    design: ComparisonDesign
    allow_missing: bool

    @property
    def scope(self) -> Scope:
        """Whose scores these are. The numbers of a function are measurements unless it says that it is a judge."""
        scope, judge = self.judge_run.scope, self.judge_run.judge
        if judge.gives_numbers and getattr(judge, "kind", None) is None:
            scope = replace(scope, kind="scores")
        return replace(scope, is_pointwise=True)

    def score_and_rate(self, store: Store, responses: Responses) -> ScoringResult:
        """Have the answers scored, and average their scores."""
        prompts = self.design.prompt_source.repeat()
        items = self.design.pose_singly(prompts, responses)
        scores = dict[str, list[Score]]()
        rows, criterion_rows = (
            list[ItemScore](),
            dict[str, dict[str, list[ItemScore]]](),
        )
        for rubric in self.judge_run.scorings:
            name = rubric.dimension
            scores[name] = self.judge_run.score_answers(items[name], rubric, store)
            dimension_rows = list_item_scores(
                prompts,
                responses,
                rubric,
                scores[name],
                self.design.prompt_source.clusters,
            )
            rows += dimension_rows
            criterion_rows[name] = split_criteria(dimension_rows, scores[name])
        bounds = {rubric.dimension: rubric.bounds for rubric in self.design.scorings}
        rated = standings.rate_scores(
            rows, allow_missing=self.allow_missing, scale=bounds
        )
        criteria = {
            name: standings.rate_scores(
                [row for group in by_criterion.values() for row in group],
                allow_missing=True,
                scale=dict.fromkeys(by_criterion, bounds[name]),
            ).mean_boards
            for name, by_criterion in criterion_rows.items()
            if by_criterion
        }
        return ScoringResult(
            standings=add_conclusions(
                self._diagnose(rated, responses, scores, store), self.scope
            ),
            criteria=criteria,
            scores=scores,
        )

    def _diagnose(
        self,
        rated: Standings,
        responses: Responses,
        scores: Mapping[str, Sequence[Score]],
        store: Store,
    ) -> Standings:
        """Add what speaks against the scores: the judge's family, equal and unusual answers, results shown before."""
        kin, diagnosis = self.judge_run.kin, Diagnosis()
        if kin.models and self.scope.kind == "model":
            diagnosis["kin"] = kin.to_diagnosis(is_allowed=self.judge_run.allows_kin)
        if pairs := identical_answers.count_equal_in_responses(responses):
            diagnosis["equal_answers"] = pairs
        looks: Mapping[str, Diagnosis] = {}
        if self.scope.kind != "words":
            looks = record_shown_pairs(store, rated, _list_score_keys(scores))
        return replace(
            rated,
            models=tuple(self.design.answers.entrants),
            diagnoses={
                name: {**diagnosis, **looks.get(name, {})} for name in rated.dimensions
            },
            responses=[
                check_responses(name, answers) for name, answers in responses.items()
            ],
        )

    def report(
        self, context: Context, responses: Responses, scored: ScoringResult
    ) -> Report:
        """Write the scores of single answers, where no pair was compared, and report them."""
        model = self.judge_run.judge.model
        return report_standings(
            scored.standings,
            context,
            scope=self.scope,
            facts=self.design.collect_facts(model, responses, scored.scores, []),
            written=[
                *artifacts.write_responses(context.run_dir, responses),
                *scored.write_scores(context.run_dir),
            ],
            scored=SingleScores(criteria=scored.criteria),
        )

    def compare_with_pairs(
        self, scored: ScoringResult, rated_pairs: Standings, responses: Responses
    ) -> SingleScores:
        """Compare the scores with ratings of pairs by the same judge: their orders, and what each costs."""
        prompts = self.design.prompt_source.repeat()
        subjects = self.design.list_subjects(prompts, responses)
        return SingleScores(
            criteria=scored.criteria,
            view=build_view(scored.standings),
            orders=[
                compare_orders(
                    rubric,
                    rated_pairs.pairs(rubric),
                    name,
                    scored.standings.pairs(name),
                )
                for rubric in rated_pairs.dimensions
                for name in scored.standings.dimensions
            ],
            plan=self.judge_run.plan_anew(subjects),
        )


def _list_score_keys(scores: Mapping[str, Sequence[Score]]) -> KeysByPair:
    """Return what the result of each two entrants rests on: the scores of both, prompt by prompt."""
    keys: dict[tuple[str, frozenset[str]], list[str]] = {}
    for dimension, dimension_scores in scores.items():
        by_slot: dict[tuple[str, int], dict[str, str]] = {}
        for score in dimension_scores:
            if score.judge_score is not None:
                slot = score.prompt_id, score.draw_idx
                by_slot.setdefault(slot, {})[score.policy] = score.cache_key
        for key_by_entrant in by_slot.values():
            for pair in combinations(sorted(key_by_entrant), 2):
                key = make_fingerprint([key_by_entrant[name] for name in pair])
                keys.setdefault((dimension, frozenset(pair)), []).append(key)
    return keys


def check_scoring(
    judge_runs: Mapping[str, JudgeRun], *, shard: str | None, looks: int
) -> None:
    """Raise SettingError for a judge that cannot give the scores, and for settings that single answers do not have."""
    if shard is not None or looks > 1:
        setting = f"judging.looks={looks}" if shard is None else f"shard={shard}"
        raise SettingError(
            f"{setting} cannot be combined with scoring. Leave one of them out."
        )
    for judge_run in judge_runs.values():
        _check_judge(judge_run)


def _check_judge(judge_run: JudgeRun) -> None:
    judge, options = judge_run.judge, judge_run.options
    for rubric in judge_run.scorings:
        if isinstance(rubric, NumberRubric) and not judge.gives_numbers:
            raise SettingError(
                f"scoring=number needs a function that gives numbers; got the judge {judge.model}. Set one of these:",
                "  judge=MODULE:NAME judge.version=1",
                "  scoring=score",
            )
        if judge.gives_numbers and not isinstance(rubric, NumberRubric):
            raise SettingError(
                f"A function gives numbers and reads no rubric, so it cannot score by {rubric.dimension}. Set:",
                "  scoring=number",
            )
        if isinstance(rubric, CriteriaRubric) and not judge.answers_criteria:
            raise SettingError(
                f"The judge {judge.model} cannot answer the criteria of {rubric.dimension}. Choose a language model behind "
                "an API, for example:",
                "  judge=sonnet",
            )
    if options.repeats > 1:
        raise SettingError(
            f"judging.repeats must be 1 with scoring, as each answer is scored once; got {options.repeats}."
        )
    if options.limit_pairs is not None and not judge_run.rubrics:
        raise SettingError(
            f"judging.limit_pairs={options.limit_pairs} limits comparisons, and scoring makes none. To score fewer answers:",
            "  prompts.n=N",
        )
