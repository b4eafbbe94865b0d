"""People label what a judge has judged, blind, and say which of its leads stand.

python -m elo_exp experiment=label run=outputs/pilot_...                                   # makes the page
python -m elo_exp experiment=label run=outputs/pilot_... 'labels=[anna.jsonl,ben.jsonl]'   # reads the labels back
"""

import dataclasses
import functools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from elo_exp.analysis import human_agreement, standings
from elo_exp.analysis.agreement import label_errors
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.labels_conclusion import conclude_judge, conclude_lead
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.analysis.standings import Standings
from elo_exp.arena import joint_fit
from elo_exp.data import labels
from elo_exp.data.battles import Battles
from elo_exp.data.labels import Key, Label
from elo_exp.errors import EvidenceError, FileError, SettingError, UserError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.files import read_text, sha256, write_json, write_whole
from elo_exp.formatting import join_names as listed
from elo_exp.judges import guess_judge_kind
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, MissingBattle
from elo_exp.report import artifacts, page, people_page
from elo_exp.report.label_page import label_page
from elo_exp.report.people_page import Certificate
from elo_exp.report.sentences import arena_sentences as arena_words
from elo_exp.report.sentences import label_sentences as words
from elo_exp.runs.reading import FinishedRun, manifest_path, read_runs
from elo_exp.types import Count, Natural, Orders, Share

logger = logging.getLogger(__name__)

_LABELS_ONLY_METHOD = "bradley_terry"
_JOINT_BOARD = "joint"
_UNNAMED_JUDGE = "an unnamed judge"


@dataclass(kw_only=True)
class LabelSettings:
    dimension: str | None
    half_width: Annotated[float, Field(strict=True, gt=0, le=1000)]
    n: Count | None
    annotators: Annotated[int, Field(strict=True, ge=1, le=100)]
    overlap: Share
    seed: Natural


@dataclass(kw_only=True)
class LabelJudging:
    orders: Orders


@dataclass(kw_only=True)
class LabelByPeople(Experiment):
    """Without files of labels the page is made, in place of a run.

    folder  of the run that was judged: the setting `run`
    """

    folder: str
    labels: list[str]
    label: LabelSettings
    judging: LabelJudging
    elo: EloMethod
    rating: dict[str, RatingMethod]

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration with the setting `run` as `folder`: an experiment's `run` is what it does."""
        settings = {name: value for name, value in config.items() if name != "run"}
        if config["run"] == "???":
            raise SettingError(
                "run: has no value yet. Set it to the folder of the run whose comparisons people are to label: "
                "run=DIR."
            )
        if _LABELS_ONLY_METHOD not in config["rating"]:
            raise SettingError(
                f"rating: found {listed([*config['rating']]) or 'none'}. Expected {_LABELS_ONLY_METHOD} among them, "
                "by which people's differences are tested."
            )
        return {**settings, "folder": config["run"]}

    @property
    def opening(self) -> str:
        rows, _ = self._labels_and_key
        annotators = listed(list(dict.fromkeys(name for name, _, _ in rows)))
        return f"{len(rows):,} comparisons of {self.folder}, labelled by {annotators}"

    @property
    def input_files(self) -> Mapping[str, Path]:
        files = {f"labels {Path(name).stem}": Path(name) for name in self.labels}
        return {"run": manifest_path(Path(self.folder)), **files}

    def check_files(self) -> None:
        """Read them: what cannot be used stops a run before it has a folder. Raises UserError."""
        if self.labels:
            _ = self._certification

    def dry_run(self, context: Context) -> str | None:
        return None if self.labels else self._make_pages()

    # The run

    @functools.cached_property
    def _finished_run(self) -> FinishedRun:
        try:
            runs, _ = read_runs([self.folder])
        except UserError as error:
            raise error.reword(f"run: {str(error).removeprefix('runs: ')}") from None
        if len(runs) != 1:
            raise SettingError(
                f"run: found {len(runs)} runs in {self.folder}. Name the folder of one."
            )
        return runs[0]

    @functools.cached_property
    def _comparisons(self) -> Mapping[str, Sequence[Comparison]]:
        """What the run has compared, by dimension, where it has rated it."""
        comparisons: dict[str, list[Comparison]] = {}
        for comparison in self._finished_run.comparisons():
            if comparison.dimension in self._finished_run.boards:
                comparisons.setdefault(comparison.dimension, []).append(comparison)
        if not comparisons:
            raise FileError(
                f"run: {self.folder} has no texts of comparisons (matches/matches.jsonl). Name a tournament's "
                "run, whose judge compared answers."
            )
        return comparisons

    @property
    def _labels_folder(self) -> Path:
        """Folder of the label pages and their key, shared by all judges of a run because they compared the same pairs."""
        return (self._several_judges_folder or Path(self.folder)) / "labels"

    @property
    def _several_judges_folder(self) -> Path | None:
        """The folder of the run of several judges, if `folder` is the folder of one of them; else None."""
        above = Path(self.folder).resolve().parent
        return above.parent if above.name == "judges" else None

    # The pages

    @property
    def _dimension(self) -> str:
        dimension, dimensions = self.label.dimension, [*self._comparisons]
        if dimension is None and len(dimensions) == 1:
            return dimensions[0]
        if dimension not in dimensions:
            value_text = "none" if dimension is None else repr(dimension)
            raise SettingError(
                f"label.dimension: found {value_text}. Expected one of {', '.join(dimensions)}, in which "
                f"{self.folder} has comparisons."
            )
        return dimension

    def _make_pages(self) -> str:
        """Write a page for each annotator and the key; say how many labels they take, and how long."""
        label, dimension = self.label, self._dimension
        comparisons = self._comparisons[dimension]
        n_entrants = len(
            {entrant for comparison in comparisons for entrant in comparison.entrants}
        )
        n_wanted = label.n or human_agreement.labels_needed(
            n_entrants, label.half_width
        )
        sample = labels.draw_comparisons(comparisons, n_wanted, seed=label.seed)
        key = Key.read_or_create(self._labels_folder / "key.json")
        rubric = self._read_rubric(dimension)
        if rubric is None:
            logger.warning(
                "warning: the rubric of %s is not there as the judge was told it, and its name alone is on the page.",
                dimension,
            )
        paths, shares = (
            [],
            labels.assign_to_annotators(sample, label.annotators, label.overlap),
        )
        for number, share in enumerate(shares, start=1):
            annotator = number if label.annotators > 1 else None
            name = "label.html" if annotator is None else f"label_{number}.html"
            text = label_page(
                share, key, dimension=dimension, rubric=rubric, annotator=annotator
            )
            paths.append(write_whole(self._labels_folder / name, text))
        return words.describe_pages(
            [len(share) for share in shares],
            n_shown=len(sample),
            n_there=len(comparisons),
            n_prompts=len({comparison.prompt_id for comparison in sample}),
            dimension=dimension,
            half_width=None if label.n else label.half_width,
            is_short=label.n is None and n_wanted > len(comparisons),
            pages=paths,
            folder=self.folder,
        )

    def _read_rubric(self, dimension: str) -> str | None:
        """Read the rubric that the judge was given; None if its file is not the one that the run has read.

        A manifest may name any file: its text is shown where whoever wrote the manifest knew it.
        """
        manifest = self._finished_run.manifest
        rubrics = manifest["config"].get("rubric")
        for name, settings in rubrics.items() if isinstance(rubrics, dict) else ():
            if isinstance(settings, dict) and settings.get("dimension") == dimension:
                path = Path(manifest.get("input_paths", {}).get(f"rubric {name}", ""))
                expected_hash = manifest["input_hashes"].get(f"rubric {name}")
                if path.is_file() and sha256(path) == expected_hash:
                    lines = read_text(path).strip().splitlines()
                    return "\n".join(lines[1:]).strip()  # the first is its version
        return None

    # The labels

    @functools.cached_property
    def _labels_and_key(self) -> tuple[list[tuple[str, Label, Comparison]], Key]:
        path = self._labels_folder / "key.json"
        if not path.is_file():
            raise FileError(
                f"labels: {path} is not there, without which nobody knows what was labelled. Give the run whose page "
                "it was: run=DIR."
            )
        key = Key.read(path)
        all_comparisons = [
            comparison for group in self._comparisons.values() for comparison in group
        ]
        return labels.read_labels(
            [*map(Path, self.labels)], key, key.comparisons_by_id(all_comparisons)
        ), key

    @functools.cached_property
    def _votes(self) -> dict[str, dict[str, list[Battle]]]:
        """A battle for each label, by dimension and annotator. Raises UserError where they say too little."""
        rows, _ = self._labels_and_key
        votes_by_dimension: dict[str, dict[str, list[Battle]]] = {}
        run_clusters = dict[str, str]()
        for battles in self._finished_run.battles().values():
            run_clusters |= battles.clusters_by_question()
        for vote in labels.votes_from_labels(
            rows, labels.merge_clusters(rows, run_clusters)
        ):
            by_annotator = votes_by_dimension.setdefault(str(vote.dimension), {})
            by_annotator.setdefault(str(vote.judge_model), []).append(vote)
        if not votes_by_dimension:
            raise EvidenceError("labels: all comparisons were skipped.")
        for dimension, by_annotator in votes_by_dimension.items():
            votes = [
                vote
                for annotator_votes in by_annotator.values()
                for vote in annotator_votes
            ]
            n, n_prompts = len(votes), len(np.unique(Battles.from_rows(votes).units()))
            if (
                n < human_agreement.MIN_LABELS
                or n_prompts < human_agreement.MIN_PROMPTS
            ):
                dimension_note = (
                    f" of {dimension}" if len(votes_by_dimension) > 1 else ""
                )
                raise EvidenceError(
                    f"labels: {n} labels{dimension_note} on {n_prompts} prompts: too few to say anything. "
                    f"Expected {human_agreement.MIN_LABELS} on {human_agreement.MIN_PROMPTS} or more: "
                    "the page goes on where it was left."
                )
        return votes_by_dimension

    @functools.cached_property
    def _skipped_battles(self) -> dict[str, list[MissingBattle]]:
        """The comparisons that an annotator skipped, by dimension."""
        rows, _ = self._labels_and_key
        skipped: dict[str, list[MissingBattle]] = {name: [] for name in self._votes}
        for battle in labels.skipped_comparisons(rows):
            if (dimension_skips := skipped.get(str(battle.dimension))) is not None:
                dimension_skips.append(battle)
        return skipped

    @functools.cached_property
    def _agreement(self) -> dict[str, list[dict[str, Any]]]:
        """Of the judge with people, and of people with each other. Raises UserError for people who do not agree."""
        agreement = {}
        for dimension, votes in self._votes.items():
            rows = human_agreement.compare_with_people(
                votes,
                self._judge_battles[dimension],
                name=self._judge_name,
                dimension=dimension,
            )
            low, n = rows[1]["ci_low"], rows[1]["n_comparisons"]
            annotators = listed([*votes])
            if len(votes) > 1 and not n:
                raise EvidenceError(
                    f"labels: {annotators} share no comparison, so that nobody knows how far they agree. Label on: second "
                    "opinions come last on a page; or give the file of one."
                )
            if len(votes) > 1 and (low is None or low <= 0):
                raise EvidenceError(
                    f"labels: {annotators} are not known to agree more than by chance: kappa {words.kappa(rows[1])} on "
                    f"{n} comparisons.{words.more_of_both(rows[1])} Agree on what to go by, and label on, or give "
                    "the file of one."
                )
            agreement[dimension] = rows
        return agreement

    @functools.cached_property
    def _judge_battles(self) -> Mapping[str, Battles]:
        """The judge's battles by dimension."""
        battles = self._finished_run.battles()
        if absent_dimensions := [name for name in self._votes if name not in battles]:
            raise FileError(
                f"run: {self.folder} has no battles of {listed(absent_dimensions)} (battles.jsonl), with which labels are "
                "compared."
            )
        return battles

    @functools.cached_property
    def _battles_by_judge(self) -> Mapping[str, Mapping[str, Battles]]:
        """The battles of all judges of the run that this judge's folder belongs to, by name and dimension."""
        if self._several_judges_folder is None:
            return {}
        runs, _ = read_runs([str(self._several_judges_folder / "judges" / "*")])
        return {run.folder.name: run.battles() for run in runs}

    def _estimate_votes(self, dimension: str, votes: Battles) -> EffectiveVotes | None:
        """Estimate how many independent judges these are worth, by people's labels; None for one judge."""
        battles_by_judge = {
            name: battles[dimension]
            for name, battles in self._battles_by_judge.items()
            if dimension in battles
        }
        if len(battles_by_judge) < 2:
            return None
        judge_errors, prompts = label_errors(votes, battles_by_judge)
        return effective_votes(
            judge_errors, [str(prompt) for prompt in prompts.tolist()]
        )

    @property
    def _judge_name(self) -> str:
        return str(self._finished_run.manifest.get("judge_model") or _UNNAMED_JUDGE)

    @functools.cached_property
    def _certification(self) -> tuple[Standings, Standings, list[Certificate]]:
        """The standings by labels alone, people's board, and a certificate for each dimension."""
        agreement, files = self._agreement, listed([*self.labels])
        all_votes = Battles.from_rows(
            [
                vote
                for by_annotator in self._votes.values()
                for votes in by_annotator.values()
                for vote in votes
            ]
        )
        scope = Scope(kind="people", source=files)
        rated_standings = standings.rate(
            all_votes.split_by_dimension(self._votes),
            elo=self.elo,
            ratings=self.rating,
            models=all_votes.models,
        )
        method = self.rating[_LABELS_ONLY_METHOD]
        labels_only = add_conclusions(
            standings.add_missing(rated_standings, self._skipped_battles, method),
            scope,
        )
        boards = {name: self._fit_jointly(name) for name in labels_only.battles}
        certificates = [
            self._certify(
                dimension,
                labels_only,
                agreement[dimension],
                scope,
                boards[dimension][1],
            )
            for dimension in self._votes
        ]
        joint = {name: board for name, (board, _) in boards.items() if board}
        people_board = standings.drop_elo(labels_only)
        if len(joint) == len(boards):
            people_board = dataclasses.replace(
                people_board,
                boards={_JOINT_BOARD: joint},
                differences={},
                groups={},
            )
            labels_only = dataclasses.replace(
                labels_only, boards={**labels_only.boards, _JOINT_BOARD: joint}
            )
        return labels_only, people_board, certificates

    def _make_label_battles(self, dimension: str) -> Battles:
        """Make one battle of each labelled comparison, however many people have labelled it."""
        by_annotator = self._votes[dimension].values()
        return Battles.from_rows(
            labels.average_votes(vote for votes in by_annotator for vote in votes)
        )

    def _fit_jointly(self, dimension: str) -> tuple[Leaderboard | None, str | None]:
        """Fit labels and verdicts jointly; return the board, or why there is none for so many entrants."""
        judge_battles = self._judge_battles[dimension]
        if len(judge_battles.models) < human_agreement.MIN_ENTRANTS_FOR_JOINT_FIT:
            return None, None
        votes = self._make_label_battles(dimension)
        fit = joint_fit.fit_jointly(
            votes, judge_battles, judge_battles.select(judge_battles.winner < 0), ()
        )
        if fit.refusal:
            conclusion = Conclusion(state="refused", reasons=(fit.refusal,))
            explanation = arena_words.explain_reason(fit.refusal, conclusion)
            return None, f"labels alone; the judge cannot be calibrated: {explanation}"
        counts = dict(zip(votes.models, votes.n_battles().tolist(), strict=True))
        return joint_fit.make_leaderboard(
            fit,
            np.array([counts.get(model, 0) for model in fit.models]),
            level=self.elo.initial_rating,
            baseline=None,
            unrated={},
        ), None

    def _certify(
        self,
        dimension: str,
        labels_only: Standings,
        agreement: Sequence[Mapping[str, Any]],
        scope: Scope,
        refusal: str | None,
    ) -> Certificate:
        by_annotator = self._votes[dimension]
        votes = Battles.from_rows(
            [v for annotator_votes in by_annotator.values() for v in annotator_votes]
        )
        leads = [*self._conclude_leads(dimension, labels_only, scope)]
        row = self._finished_run.conclusions.get(dimension)
        skipped = self._skipped_battles[dimension]
        may_hide = row is not None and human_agreement.may_hide_disagreement(
            votes,
            skipped,
            self._judge_battles[dimension],
            [lead for lead, _ in leads if lead.higher == row.get("first")],
            self.rating[_LABELS_ONLY_METHOD],
        )
        return Certificate(
            dimension=dimension,
            judge=self._judge_name,
            n_labels={
                name: len(annotator_votes)
                for name, annotator_votes in by_annotator.items()
            },
            n_comparisons=len(self._make_label_battles(dimension)),
            n_prompts=votes.n_prompts(),
            n_skipped=len(skipped),
            said=row["sentence"] if row else "no conclusion",
            corrected=conclude_judge(
                row,
                [lead for _, lead in leads],
                kind=guess_judge_kind([self._judge_name]),
                agreement=agreement[0] if agreement else None,
                n_hiding=len(skipped) if may_hide else 0,
            )
            if row
            else None,
            leads=leads,
            agreement=agreement,
            first_shown=human_agreement.first_shown_share(votes),
            half_width=self.label.half_width,
            refusal=refusal,
            votes=self._estimate_votes(dimension, votes),
        )

    def _conclude_leads(
        self, dimension: str, labels_only: Standings, scope: Scope
    ) -> Iterator[tuple[Difference, Conclusion]]:
        method = self.rating[_LABELS_ONLY_METHOD]
        differences = labels_only.differences[_LABELS_ONLY_METHOD]
        cautious_differences = human_agreement.count_skipped(
            differences, labels_only.battles, self._skipped_battles, method
        )
        lost_pairs = [
            {difference.higher, difference.lower}
            for difference, cautious in zip(
                differences, cautious_differences, strict=True
            )
            if difference.dimension == dimension
            and difference.significant
            and not cautious.significant
        ]
        rows = self._finished_run.differences.get(
            self._finished_run.primary_method(dimension), ()
        )
        n_labels = len(labels_only.battles[dimension])
        for lead, people_difference in human_agreement.pair_leads(
            [*map(Difference.from_dict, rows)],
            cautious_differences,
            dimension=dimension,
        ):
            n_more = human_agreement.labels_to_decide(
                people_difference,
                n_labels=n_labels,
                n_tests=len(cautious_differences),
                half_width=self.label.half_width,
            )
            yield (
                lead,
                conclude_lead(
                    lead,
                    people_difference,
                    n_more=n_more,
                    scope=scope,
                    n_annotators=len(self._votes[dimension]),
                    n_skipped=len(self._skipped_battles[dimension])
                    if {lead.higher, lead.lower} in lost_pairs
                    else 0,
                ),
            )

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"people": human_agreement.LOGGED_NUMBERS}

    def run(self, context: Context) -> Report:
        labels_only, board, certificates = self._certification
        run_dir = context.run_dir
        written_paths = [
            *artifacts.write_standings(run_dir, labels_only),
            write_json(
                run_dir / "certificate.json",
                {
                    certificate.dimension: certificate.to_dict()
                    for certificate in certificates
                },
            ),
        ]
        values = people_page.metrics(labels_only, certificates)
        return Report(
            headline=people_page.count_contradictions(certificates),
            text=people_page.format_console(board, certificates),
            facts={"labelled": self.folder, "labelled_judge": self._judge_name},
            artifacts=written_paths,
            metrics=values,
            page=page.make_page_renderer(
                functools.partial(
                    people_page.build_document, labels_only, board, certificates
                )
            ),
        )
