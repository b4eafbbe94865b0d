"""One judge of an experiment: what its verdicts are, what it costs, and what stands against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from elo_exp import pipeline
from elo_exp.analysis import families
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.families import JudgeFamily
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.rubrics import Instructions, Rubric
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.experiments import Context
from elo_exp.experiments.entrant_answers import look_for
from elo_exp.experiments.settings import JudgingOptions
from elo_exp.experiments.stored_audits import load_stored_audits
from elo_exp.judges import ApiJudge, Judge, NoJudge
from elo_exp.pipeline import JudgingSettings, Plan, Subjects
from elo_exp.records import Item, Judgment, Score
from elo_exp.report.sentences.check_sentences import describe_same_family_plan
from elo_exp.report.viewer import Comparisons
from elo_exp.store.answer_store import Store


@dataclass(frozen=True, kw_only=True)
class JudgeRun:
    """A judge with everything that it is asked by.

    called         its name in verdicts and battles
    scorings       rubrics by which it scores single answers
    family_hints   further names of the models of entrants, by entrant
    compares_equal whether it may be paid for entrants whose answers are all equal
    """

    judge: Judge
    called: str
    rubrics: Sequence[Rubric]
    options: JudgingOptions
    settings: JudgingSettings
    entrants: Mapping[str, Entrant]
    family_hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    compares_equal: bool
    scorings: Sequence[PointwiseRubric] = ()

    @property
    def instructions(self) -> list[Instructions]:
        """All rubrics, those of pairs first."""
        return [*self.rubrics, *self.scorings]

    @property
    def scope(self) -> Scope:
        """Whose verdicts these are.

        Words counted in answers of unknown quality are a baseline: only probes, whose order is known, show what
        counting words is worth.
        """
        scope = self.judge.make_scope()
        is_known = all(entrant.is_probe for entrant in self.entrants.values())
        return replace(scope, is_baseline=scope.kind == "words" and not is_known)

    @property
    def kin(self) -> JudgeFamily:
        """Which entrants are of the judge's family."""
        names_by_entrant = {
            name: families.list_family_hints(entrant)
            for name, entrant in self.entrants.items()
        }
        for name, hints in self.family_hints.items():
            names_by_entrant[name] = [*hints, *names_by_entrant.get(name, ())]
        return families.find_judge_family(
            self.options.families, self.judge.model, names_by_entrant
        )

    @property
    def allows_kin(self) -> bool:
        """Whether a judge of the family of an entrant is no reason against what it says."""
        return self.options.self_judging == "allow"

    @property
    def paid_judge(self) -> ApiJudge | None:
        """The judge, if the run would pay it for what the store does not have."""
        if self.settings.stored_only or not isinstance(self.judge, ApiJudge):
            return None
        return self.judge

    def describe_kin_plan(self, kin: JudgeFamily) -> list[str]:
        """Describe, before money is spent, that the judge is of the family of some entrants."""
        warns = self.options.self_judging == "warn" and kin.is_unequal
        kin_entrants = [name for name in kin.models if name in self.entrants]
        return (
            [describe_same_family_plan(kin_entrants, kin.family)]
            if warns and kin_entrants and kin.family
            else []
        )

    def diagnose_kin(self) -> dict[str, Diagnosis]:
        """Return the diagnosis `kin` of each dimension: which entrants are of the judge's family."""
        if not (kin := self.kin).models:
            return {}
        diagnosis: Diagnosis = {"kin": kin.to_diagnosis(is_allowed=self.allows_kin)}
        return {rubric.dimension: diagnosis for rubric in self.rubrics}

    def refuse_excluded(self) -> None:
        """Raise SettingError where no verdict could link the judge's kin and the others."""
        kin = self.kin
        if self.options.self_judging == "exclude" and kin.is_unequal:
            raise SettingError(
                "judging.self_judging=exclude leaves out all comparisons that link the judge's family with the others.",
                f"  Family {kin.family}: {_format_names(kin.models)}. Others: {_format_names(kin.others)}.",
                "  Choose a judge of another family, or set:",
                "  judging.self_judging=warn",
            )

    def load_audits(self, store: Store) -> dict[str, Diagnosis]:
        """Return the diagnosis `audit` of each dimension. Raises FileError for a file that no audit wrote."""
        return load_stored_audits(self.judge, self.rubrics, store)

    def check_audits(self, store: Store) -> None:
        """Raise FileError for a file that no audit wrote, before anything is paid."""
        if not isinstance(self.judge, NoJudge):  # by whose key it looks for the models
            self.load_audits(store)

    def make_plan(self, subjects: Subjects, store: Store) -> Plan:
        """Plan what the judge would be asked, and what that costs."""
        return pipeline.plan_judging(
            subjects, self.instructions, self.judge, store, self.settings
        )

    def plan_anew(self, subjects: Subjects) -> Plan:
        """Plan the same calls as if nothing were stored."""
        return pipeline.plan_anew(
            subjects, self.instructions, self.judge, self.settings
        )

    def judge_pairs(
        self, comparisons: Comparisons, store: Store, *, is_part: bool = False
    ) -> dict[str, list[Judgment]]:
        """Have comparisons judged as the settings say.

        is_part  they are some of the comparisons of a run, none of whose replies need hold a verdict
        """
        return pipeline.judge_pairs(
            comparisons,
            self.rubrics,
            self.judge,
            store,
            replace(self.settings, is_part=is_part),
            name=self.called,
        )

    def score_answers(
        self, items: Sequence[Item], rubric: PointwiseRubric, store: Store
    ) -> list[Score]:
        """Have answers scored one by one, and return their scores in order."""
        scores = pipeline.score_responses(
            items, rubric, self.judge, store, self.settings
        )
        return [replace(score, judge_model=self.called) for score in scores]

    def refuse_missing_replies(self, subjects: Subjects, store: Store) -> None:
        """Raise EvidenceError if replies are on file, and the file lacks some on these subjects."""
        if self.judge.is_recorded:
            pipeline.refuse_missing_replies(
                subjects, self.instructions, self.judge, store, self.settings
            )

    def preflight(self, subjects: Subjects, context: Context) -> None:
        """Look for the judge's key, before the run has a folder, if known answers still lack a verdict."""
        judge = self.paid_judge
        if judge and not pipeline.has_all_replies(
            subjects, self.instructions, self.judge, context.store, self.settings
        ):
            look_for(judge, context.needs)

    def pays_for_equal_answers(
        self, pair: EqualAnswers, comparisons: Comparisons, store: Store
    ) -> bool:
        """Return whether the judge would be paid for two entrants that gave the same answers."""
        if self.compares_equal or not (pair.is_all and self.paid_judge):
            return False
        pair_names = {pair.first, pair.second}
        pair_comparisons = {
            dimension: [c for c in pairs if {*c.entrants} == pair_names]
            for dimension, pairs in comparisons.items()
        }
        n_new = pipeline.count_new_queries(
            pair_comparisons, self.rubrics, self.judge, store, self.settings
        )
        return n_new > 0


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
