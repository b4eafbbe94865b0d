"""A finished run whose comparisons people label, and their labels."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis import human_agreement
from elo_exp.analysis.agreement import label_errors
from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.data import labels
from elo_exp.data.battle_clusters import map_questions_to_clusters
from elo_exp.data.battles import Battles
from elo_exp.data.column_roles import Columns
from elo_exp.data.labels import Key, Label
from elo_exp.data.rubrics import strip_version
from elo_exp.errors import EvidenceError, FileError, SettingError, UserError
from elo_exp.files import read_text, sha256
from elo_exp.formatting import join_names as listed
from elo_exp.records import Battle, Comparison, MissingBattle
from elo_exp.report.sentences import label_sentences as words
from elo_exp.runs.reading import FinishedRun, read_runs

_UNNAMED_JUDGE = "an unnamed judge"


@dataclass(frozen=True, kw_only=True)
class LabelledRun:
    """A finished run of a judge.

    folder  folder of the run, or of one of its judges
    """

    folder: str

    @functools.cached_property
    def finished_run(self) -> FinishedRun:
        try:
            runs, _ = read_runs([self.folder])
        except UserError as error:
            raise error.reword(
                error.line.removeprefix("runs: "), *error.below
            ) from None
        if len(runs) != 1:
            raise SettingError(
                f"run must be the folder of one run; {self.folder} holds {len(runs)}. Choose one of them:",
                *(f"  run={run.folder}" for run in runs[:3]),
            )
        return runs[0]

    @functools.cached_property
    def comparisons(self) -> Mapping[str, Sequence[Comparison]]:
        """The comparisons of the run, for each rated dimension."""
        comparisons: dict[str, list[Comparison]] = {}
        for comparison in self.finished_run.comparisons():
            if comparison.dimension in self.finished_run.boards:
                comparisons.setdefault(comparison.dimension, []).append(comparison)
        if not comparisons:
            raise FileError(
                f"{self.folder} has no texts to label (matches/matches.jsonl). Set run to a tournament in which a "
                f"judge compared answers."
            )
        return comparisons

    @property
    def labels_folder(self) -> Path:
        """Folder of the label pages and their key, shared by all judges of a run because they compared the same pairs."""
        return (self.several_judges_folder or Path(self.folder)) / "labels"

    @property
    def several_judges_folder(self) -> Path | None:
        """The folder of the run of several judges, if `folder` is the folder of one of them; else None."""
        above = Path(self.folder).resolve().parent
        return above.parent if above.name == "judges" else None

    @functools.cached_property
    def battles_by_judge(self) -> Mapping[str, Mapping[str, Battles]]:
        """The battles of all judges of the run that this judge's folder belongs to, by name and dimension."""
        if self.several_judges_folder is None:
            return {}
        runs, _ = read_runs([str(self.several_judges_folder / "judges" / "*")])
        return {run.folder.name: run.battles() for run in runs}

    @property
    def judge_name(self) -> str:
        return str(self.finished_run.manifest.get("judge_model") or _UNNAMED_JUDGE)

    def read_rubric(self, dimension: str) -> str | None:
        """Read the rubric of the judge; None if its file differs from the one that the run has read.

        The hash is checked because a manifest may name any file, and the label page shows its text.
        """
        manifest = self.finished_run.manifest
        rubrics = manifest["config"].get("rubric")
        for name, settings in rubrics.items() if isinstance(rubrics, dict) else ():
            if isinstance(settings, dict) and settings.get("dimension") == dimension:
                if isinstance(text := settings.get("text"), str):
                    return strip_version(text)
                path = Path(manifest.get("input_paths", {}).get(f"rubric {name}", ""))
                expected_hash = manifest["input_hashes"].get(f"rubric {name}")
                if path.is_file() and sha256(path) == expected_hash:
                    return strip_version(read_text(path))
        return None


@dataclass(frozen=True, kw_only=True)
class LabelEvidence:
    """People's labels by dimension, next to the verdicts of the judge.

    labels   files of labels
    columns  the column of each role, in files that no page exported
    """

    run: LabelledRun
    labels: Sequence[str]
    columns: Columns

    @functools.cached_property
    def labels_and_key(self) -> tuple[list[tuple[str, Label, Comparison]], Key]:
        path, files = self.run.labels_folder / "key.json", [*map(Path, self.labels)]
        has_key = path.is_file()
        if not has_key and (not files or any(map(labels.is_exported, files))):
            raise FileError(
                f"File not found: {path}, the key of the label page. Set run to the run whose label page was used."
            )
        key = Key.read(path) if has_key else Key.draw()
        all_comparisons = [
            comparison
            for group in self.run.comparisons.values()
            for comparison in group
        ]
        return labels.read_labels(
            files, key, key.comparisons_by_id(all_comparisons), self.columns
        ), key

    @functools.cached_property
    def votes(self) -> dict[str, dict[str, list[Battle]]]:
        """A battle for each label, by dimension and annotator. Raises EvidenceError for too few labels."""
        rows, _ = self.labels_and_key
        votes_by_dimension: dict[str, dict[str, list[Battle]]] = {}
        run_clusters = dict[str, str]()
        for battles in self.run.finished_run.battles().values():
            run_clusters |= map_questions_to_clusters(battles)
        for vote in labels.votes_from_labels(
            rows, labels.merge_clusters(rows, run_clusters)
        ):
            by_annotator = votes_by_dimension.setdefault(str(vote.dimension), {})
            by_annotator.setdefault(str(vote.judge_model), []).append(vote)
        if not votes_by_dimension:
            raise EvidenceError(
                "All comparisons in the labels were skipped. Label some of them."
            )
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
                    f"{n} labels{dimension_note} on {n_prompts} prompts are too few. At least "
                    f"{human_agreement.MIN_LABELS} labels on "
                    f"{human_agreement.MIN_PROMPTS} prompts are needed.",
                    "  Open the page again to continue where you stopped.",
                )
        return votes_by_dimension

    @functools.cached_property
    def skipped_battles(self) -> dict[str, list[MissingBattle]]:
        """The comparisons that an annotator skipped, by dimension."""
        rows, _ = self.labels_and_key
        skipped: dict[str, list[MissingBattle]] = {name: [] for name in self.votes}
        for battle in labels.skipped_comparisons(rows):
            if (dimension_skips := skipped.get(str(battle.dimension))) is not None:
                dimension_skips.append(battle)
        return skipped

    @functools.cached_property
    def agreement(self) -> dict[str, list[dict[str, Any]]]:
        """Agreement of the judge with people, and of people with each other.

        Raises EvidenceError if people do not agree more than by chance.
        """
        agreement = {}
        for dimension, votes in self.votes.items():
            rows = human_agreement.compare_with_people(
                votes,
                self.judge_battles[dimension],
                name=self.run.judge_name,
                dimension=dimension,
            )
            low, n = rows[1]["ci_low"], rows[1]["n_comparisons"]
            annotators = listed([*votes])
            if len(votes) > 1 and not n:
                raise EvidenceError(
                    f"{annotators} labelled no comparison in common, so their agreement is unknown. Choose one:",
                    "  Label more: the shared comparisons come last on a page.",
                    "  Give the labels of one person.",
                )
            if len(votes) > 1 and (low is None or low <= 0):
                raise EvidenceError(
                    f"{annotators} do not agree measurably more than by chance: kappa {words.kappa(rows[1])} on {n} "
                    f"comparisons.",
                    *(f"  {line}" for line in [words.more_of_both(rows[1])] if line),
                    "  Agree on the criteria and label more, or give the labels of one person.",
                )
            agreement[dimension] = rows
        return agreement

    @functools.cached_property
    def judge_battles(self) -> Mapping[str, Battles]:
        """The judge's battles by dimension."""
        battles = self.run.finished_run.battles()
        if absent_dimensions := [name for name in self.votes if name not in battles]:
            raise FileError(
                f"{self.run.folder} has no battles on {listed(absent_dimensions)} (battles.jsonl) to compare the labels with."
            )
        return battles

    def estimate_votes(self, dimension: str, votes: Battles) -> EffectiveVotes | None:
        """Estimate the number of independent votes, by people's labels; None for one judge."""
        battles_by_judge = {
            name: battles[dimension]
            for name, battles in self.run.battles_by_judge.items()
            if dimension in battles
        }
        if len(battles_by_judge) < 2:
            return None
        judge_errors, prompts = label_errors(votes, battles_by_judge)
        return effective_votes(
            judge_errors, [str(prompt) for prompt in prompts.tolist()]
        )

    def make_label_battles(self, dimension: str) -> Battles:
        """Make one battle of each labelled comparison, for any number of labels."""
        by_annotator = self.votes[dimension].values()
        return Battles.from_rows(
            labels.average_votes(vote for votes in by_annotator for vote in votes)
        )
