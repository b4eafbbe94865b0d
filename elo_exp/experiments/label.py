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

from elo_exp.analysis import people, standings
from elo_exp.analysis.agreement import errors
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.people import of_judge, of_lead
from elo_exp.analysis.conclusions.tournament import with_conclusions
from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.analysis.standings import Standings
from elo_exp.arena import joint_fit
from elo_exp.data import labels
from elo_exp.data.battles import Battles
from elo_exp.data.labels import Key, Label
from elo_exp.experiments import Context, Report
from elo_exp.files import read_text, sha256, write_json, write_whole
from elo_exp.judges import kind_of_recorded
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, MissingBattle, UserError
from elo_exp.report import artifacts, page, people_page
from elo_exp.report.formats import names as listed
from elo_exp.report.label_page import label_page
from elo_exp.report.people_page import Certificate
from elo_exp.report.words import arena as arena_words
from elo_exp.report.words import people as words
from elo_exp.runs.reading import FinishedRun, manifest_path, read_runs
from elo_exp.types import Count, Natural, Orders, Share

logger = logging.getLogger(__name__)

_LABELS_ALONE = "bradley_terry"
_JOINT = "joint"
_JUDGE = "an unnamed judge"


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
class LabelByPeople:
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
        found = {name: value for name, value in config.items() if name != "run"}
        if config["run"] == "???":
            raise UserError(
                "run: has no value yet. Set it to the folder of the run whose comparisons people are to label: "
                "run=DIR."
            )
        if _LABELS_ALONE not in config["rating"]:
            raise UserError(
                f"rating: found {listed([*config['rating']]) or 'none'}. Expected {_LABELS_ALONE} among them, "
                "by which people's differences are tested."
            )
        return {**found, "folder": config["run"]}

    @property
    def opening(self) -> str:
        rows, _ = self._read
        who = listed(list(dict.fromkeys(name for name, _, _ in rows)))
        return f"{len(rows):,} comparisons of {self.folder}, labelled by {who}"

    @property
    def input_files(self) -> Mapping[str, Path]:
        files = {f"labels {Path(name).stem}": Path(name) for name in self.labels}
        return {"run": manifest_path(Path(self.folder)), **files}

    def check_files(self) -> None:
        """Read them: what cannot be used stops a run before it has a folder. Raises UserError."""
        if self.labels:
            _ = self._certified

    def dry_run(self, context: Context) -> str | None:
        return None if self.labels else self._make_pages()

    # The run

    @functools.cached_property
    def _run(self) -> FinishedRun:
        try:
            found, _ = read_runs([self.folder])
        except UserError as error:
            raise UserError(f"run: {str(error).removeprefix('runs: ')}") from None
        if len(found) != 1:
            raise UserError(
                f"run: found {len(found)} runs in {self.folder}. Name the folder of one."
            )
        return found[0]

    @functools.cached_property
    def _comparisons(self) -> Mapping[str, Sequence[Comparison]]:
        """What the run has compared, by dimension, where it has rated it."""
        found: dict[str, list[Comparison]] = {}
        for comparison in self._run.comparisons():
            if comparison.dimension in self._run.boards:
                found.setdefault(comparison.dimension, []).append(comparison)
        if not found:
            raise UserError(
                f"run: {self.folder} has no texts of comparisons (matches/matches.jsonl). Name a tournament's "
                "run, whose judge compared answers."
            )
        return found

    @property
    def _folder(self) -> Path:
        """Where the pages and their key lie: of one of several judges beside all of them, who have compared the same."""
        return (self._several or Path(self.folder)) / "labels"

    @property
    def _several(self) -> Path | None:
        """The folder of the run of several judges whose folder of one this is; None of one judge alone."""
        above = Path(self.folder).resolve().parent
        return above.parent if above.name == "judges" else None

    # The pages

    @property
    def _dimension(self) -> str:
        wanted, there = self.label.dimension, [*self._comparisons]
        if wanted is None and len(there) == 1:
            return there[0]
        if wanted not in there:
            found = "none" if wanted is None else repr(wanted)
            raise UserError(
                f"label.dimension: found {found}. Expected one of {', '.join(there)}, in which "
                f"{self.folder} has comparisons."
            )
        return wanted

    def _make_pages(self) -> str:
        """Write a page for each annotator and the key; say how many labels they take, and how long."""
        label, dimension = self.label, self._dimension
        there = self._comparisons[dimension]
        n_entrants = len({entrant for one in there for entrant in one.entrants})
        wanted = label.n or people.labels_needed(n_entrants, label.half_width)
        shown = labels.drawn(there, wanted, seed=label.seed)
        key = Key.of(self._folder / "key.json")
        rubric = self._rubric(dimension)
        if rubric is None:
            logger.warning(
                "warning: the rubric of %s is not there as the judge was told it, and its name alone is on the page.",
                dimension,
            )
        paths, dealt = [], labels.dealt(shown, label.annotators, label.overlap)
        for number, own in enumerate(dealt, start=1):
            of_several = number if label.annotators > 1 else None
            name = "label.html" if of_several is None else f"label_{number}.html"
            text = label_page(
                own, key, dimension=dimension, rubric=rubric, annotator=of_several
            )
            paths.append(write_whole(self._folder / name, text))
        return words.made(
            [len(own) for own in dealt],
            n_shown=len(shown),
            n_there=len(there),
            n_prompts=len({one.prompt_id for one in shown}),
            dimension=dimension,
            half_width=None if label.n else label.half_width,
            is_short=label.n is None and wanted > len(there),
            pages=paths,
            folder=self.folder,
        )

    def _rubric(self, dimension: str) -> str | None:
        """What the judge was told to go by; None where its file is not the one that the run has read.

        A manifest may name any file: its text is shown where whoever wrote the manifest knew it.
        """
        manifest = self._run.manifest
        chosen = manifest["config"].get("rubric")
        for name, settings in chosen.items() if isinstance(chosen, dict) else ():
            if isinstance(settings, dict) and settings.get("dimension") == dimension:
                path = Path(manifest.get("input_paths", {}).get(f"rubric {name}", ""))
                known = manifest["input_hashes"].get(f"rubric {name}")
                if path.is_file() and sha256(path) == known:
                    lines = read_text(path).strip().splitlines()
                    return "\n".join(lines[1:]).strip()  # the first is its version
        return None

    # The labels

    @functools.cached_property
    def _read(self) -> tuple[list[tuple[str, Label, Comparison]], Key]:
        path = self._folder / "key.json"
        if not path.is_file():
            raise UserError(
                f"labels: {path} is not there, without which nobody knows what was labelled. Give the run whose page "
                "it was: run=DIR."
            )
        key = Key.read(path)
        every = [one for some in self._comparisons.values() for one in some]
        return labels.read([*map(Path, self.labels)], key, key.ids(every)), key

    @functools.cached_property
    def _votes(self) -> dict[str, dict[str, list[Battle]]]:
        """A battle for each label, by dimension and annotator. Raises UserError where they say too little."""
        rows, _ = self._read
        found: dict[str, dict[str, list[Battle]]] = {}
        of_run = dict[str, str]()
        for battles in self._run.battles().values():
            of_run |= battles.cluster_of()
        for vote in labels.votes(rows, labels.clusters(rows, of_run)):
            by_annotator = found.setdefault(str(vote.dimension), {})
            by_annotator.setdefault(str(vote.judge_model), []).append(vote)
        if not found:
            raise UserError("labels: all comparisons were skipped.")
        for dimension, by_annotator in found.items():
            votes = [vote for own in by_annotator.values() for vote in own]
            n, n_prompts = len(votes), len(np.unique(Battles.from_rows(votes).units()))
            if n < people.MIN_LABELS or n_prompts < people.MIN_PROMPTS:
                where = f" of {dimension}" if len(found) > 1 else ""
                raise UserError(
                    f"labels: {n} labels{where} on {n_prompts} prompts: too few to say anything. Expected "
                    f"{people.MIN_LABELS} on {people.MIN_PROMPTS} or more: the page goes on where it was left."
                )
        return found

    @functools.cached_property
    def _skipped(self) -> dict[str, list[MissingBattle]]:
        """The comparisons that an annotator skipped, by dimension."""
        rows, _ = self._read
        found: dict[str, list[MissingBattle]] = {name: [] for name in self._votes}
        for one in labels.skipped(rows):
            if (own := found.get(str(one.dimension))) is not None:
                own.append(one)
        return found

    @functools.cached_property
    def _agreement(self) -> dict[str, list[dict[str, Any]]]:
        """Of the judge with people, and of people with each other. Raises UserError for people who do not agree."""
        found = {}
        for dimension, votes in self._votes.items():
            rows = people.agreements(
                votes,
                self._judged[dimension],
                name=self._judge,
                dimension=dimension,
            )
            low, n = rows[1]["ci_low"], rows[1]["n_comparisons"]
            who = listed([*votes])
            if len(votes) > 1 and not n:
                raise UserError(
                    f"labels: {who} share no comparison, so that nobody knows how far they agree. Label on: second "
                    "opinions come last on a page; or give the file of one."
                )
            if len(votes) > 1 and (low is None or low <= 0):
                raise UserError(
                    f"labels: {who} are not known to agree more than by chance: kappa {words.kappa(rows[1])} on "
                    f"{n} comparisons.{words.more_of_both(rows[1])} Agree on what to go by, and label on, or give "
                    "the file of one."
                )
            found[dimension] = rows
        return found

    @functools.cached_property
    def _judged(self) -> Mapping[str, Battles]:
        """The judge's battles by dimension."""
        found = self._run.battles()
        if absent := [name for name in self._votes if name not in found]:
            raise UserError(
                f"run: {self.folder} has no battles of {listed(absent)} (battles.jsonl), with which labels are "
                "compared."
            )
        return found

    @functools.cached_property
    def _together(self) -> Mapping[str, Mapping[str, Battles]]:
        """The battles of all judges of the run of several that this judge's folder belongs to, by name and dimension."""
        if self._several is None:
            return {}
        runs, _ = read_runs([str(self._several / "judges" / "*")])
        return {run.folder.name: run.battles() for run in runs}

    def _worth(self, dimension: str, votes: Battles) -> EffectiveVotes | None:
        """What these judges are worth together, by people's labels; None of one judge."""
        judged = {
            name: some[dimension]
            for name, some in self._together.items()
            if dimension in some
        }
        if len(judged) < 2:
            return None
        wrong, prompts = errors(votes, judged)
        return effective_votes(wrong, [str(prompt) for prompt in prompts.tolist()])

    @property
    def _judge(self) -> str:
        return str(self._run.manifest.get("judge_model") or _JUDGE)

    @functools.cached_property
    def _certified(self) -> tuple[Standings, Standings, list[Certificate]]:
        """Labels alone, people's board, and a certificate for each dimension."""
        agreement, files = self._agreement, listed([*self.labels])
        every = Battles.from_rows(
            [
                vote
                for by_annotator in self._votes.values()
                for votes in by_annotator.values()
                for vote in votes
            ]
        )
        scope = Scope(kind="people", source=files)
        rated = standings.rate(
            every.by_dimension(self._votes),
            elo=self.elo,
            ratings=self.rating,
            models=every.models,
        )
        method = self.rating[_LABELS_ALONE]
        alone = with_conclusions(
            standings.with_missing(rated, self._skipped, method), scope
        )
        boards = {name: self._joint(name) for name in alone.battles}
        certificates = [
            self._certificate(
                dimension, alone, agreement[dimension], scope, boards[dimension][1]
            )
            for dimension in self._votes
        ]
        joint = {name: board for name, (board, _) in boards.items() if board}
        shown = dataclasses.replace(alone, elo={}, convergence={})
        if len(joint) == len(boards):
            shown = dataclasses.replace(
                shown, companions={_JOINT: joint}, differences={}, groups={}
            )
            alone = dataclasses.replace(
                alone, companions={**alone.companions, _JOINT: joint}
            )
        return alone, shown, certificates

    def _compared(self, dimension: str) -> Battles:
        """A battle of each comparison that was labelled, however many people have labelled it."""
        by_annotator = self._votes[dimension].values()
        return Battles.from_rows(
            labels.joined(vote for votes in by_annotator for vote in votes)
        )

    def _joint(self, dimension: str) -> tuple[Leaderboard | None, str | None]:
        """The joint fit of labels and verdicts, or why there is none where there are so many entrants."""
        judged = self._judged[dimension]
        if len(judged.models) < people.JOINT_FROM:
            return None, None
        votes = self._compared(dimension)
        fit = joint_fit.fit(votes, judged, judged.select(judged.winner < 0), ())
        if fit.refusal:
            refused = Conclusion(state="refused", reasons=(fit.refusal,))
            said = arena_words.because(fit.refusal, refused)
            return None, f"labels alone; the judge cannot be calibrated: {said}"
        counts = dict(zip(votes.models, votes.n_battles().tolist(), strict=True))
        return joint_fit.leaderboard(
            fit,
            np.array([counts.get(model, 0) for model in fit.models]),
            level=self.elo.initial_rating,
            baseline=None,
            unrated={},
        ), None

    def _certificate(
        self,
        dimension: str,
        alone: Standings,
        agreement: Sequence[Mapping[str, Any]],
        scope: Scope,
        refusal: str | None,
    ) -> Certificate:
        by_annotator = self._votes[dimension]
        votes = Battles.from_rows([v for own in by_annotator.values() for v in own])
        leads = [*self._leads(dimension, alone, scope)]
        row = self._run.conclusions.get(dimension)
        skipped = self._skipped[dimension]
        may_hide = row is not None and people.may_hide_disagreement(
            votes,
            skipped,
            self._judged[dimension],
            [lead for lead, _ in leads if lead.higher == row.get("first")],
            self.rating[_LABELS_ALONE],
        )
        return Certificate(
            dimension=dimension,
            judge=self._judge,
            n_labels={name: len(own) for name, own in by_annotator.items()},
            n_comparisons=len(self._compared(dimension)),
            n_prompts=votes.n_prompts(),
            n_skipped=len(skipped),
            said=row["sentence"] if row else "no conclusion",
            corrected=of_judge(
                row,
                [lead for _, lead in leads],
                kind=kind_of_recorded([self._judge]),
                agreement=agreement[0] if agreement else None,
                n_hiding=len(skipped) if may_hide else 0,
            )
            if row
            else None,
            leads=leads,
            agreement=agreement,
            first_shown=people.first_shown(votes),
            half_width=self.label.half_width,
            refusal=refusal,
            votes=self._worth(dimension, votes),
        )

    def _leads(
        self, dimension: str, alone: Standings, scope: Scope
    ) -> Iterator[tuple[Difference, Conclusion]]:
        method = self.rating[_LABELS_ALONE]
        labelled = alone.differences[_LABELS_ALONE]
        of_people = people.count_skipped(labelled, alone.battles, self._skipped, method)
        lost = [
            {one.higher, one.lower}
            for one, less in zip(labelled, of_people, strict=True)
            if one.dimension == dimension and one.significant and not less.significant
        ]
        rows = self._run.differences.get(self._run.primary(dimension), ())
        n_labels = len(alone.battles[dimension])
        for lead, found in people.leads(
            [*map(Difference.from_dict, rows)], of_people, dimension=dimension
        ):
            n_more = people.labels_more(
                found,
                n_labels=n_labels,
                n_tests=len(of_people),
                half_width=self.label.half_width,
            )
            yield (
                lead,
                of_lead(
                    lead,
                    found,
                    n_more=n_more,
                    scope=scope,
                    n_annotators=len(self._votes[dimension]),
                    n_skipped=len(self._skipped[dimension])
                    if {lead.higher, lead.lower} in lost
                    else 0,
                ),
            )

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {"people": people.NUMBERS}

    def run(self, context: Context) -> Report:
        alone, board, certificates = self._certified
        to = context.run_dir
        written = [
            *artifacts.write_standings(to, alone),
            write_json(
                to / "certificate.json",
                {one.dimension: one.to_dict() for one in certificates},
            ),
        ]
        values = people_page.metrics(alone, certificates)
        return Report(
            headline=people_page.number_of_contradictions(certificates),
            text=people_page.text(board, certificates),
            facts={"labelled": self.folder, "labelled_judge": self._judge},
            artifacts=written,
            metrics=values,
            page=page.maker(
                "people", **people_page.context(alone, board, certificates)
            ),
        )
