"""What experiments are made of: the parts that Hydra built, and the result that each run hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elo_exp.data.rubrics import Rubric
from elo_exp.data.scoring import ScoreRubric
from elo_exp.entrants import Entrant
from elo_exp.estimators import Estimator
from elo_exp.judges import Judge
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.elo import PermutationElo
from elo_exp.records import Plot
from elo_exp.settings import Settings
from elo_exp.store.store import Store
from elo_exp.trackers import Tracker


@runtime_checkable
class ReadsFiles(Protocol):
    """A part that is made of files beside its settings."""

    @property
    def input_files(self) -> Mapping[str, Path]:
        """Files, and folders of which all files are read, by what they are to the part; '' is the chief of them."""


@runtime_checkable
class HasWeights(Protocol):
    """A part that is a model of this machine."""

    @property
    def weight_files(self) -> Sequence[Path]:
        """The files that loading reads; none of a model of the hub."""


@dataclass(kw_only=True)
class Parts:
    entrants: Mapping[str, Entrant]
    judge: Judge | None
    oracle_judge: Judge | None = None  # labels a slice of what the judge scores
    scoring: ScoreRubric | None = None
    oracle_scoring: ScoreRubric | None = None
    rubrics: Sequence[Rubric]
    elo: PermutationElo
    ratings: Mapping[str, RatingMethod]
    rates: bool = True  # whether battles are rated, by elo and these
    estimators: Mapping[str, Estimator] = field(default_factory=dict)
    tracker: Tracker
    store: Store
    named: frozenset[str] = frozenset()  # the groups and settings that the command names

    def labels(self) -> dict[str, str]:
        """By which a tracker groups runs, whatever their parts are made of."""
        found = {
            "entrants": ", ".join(self.entrants),
            "dimensions": ", ".join(r.dimension for r in self.rubrics),
        }
        found["judge_model"] = self.judge.model if self.judge else ""
        return {name: said for name, said in found.items() if said}

    def inputs(self) -> dict[str, Path]:
        """The files that the parts are made of, by part and what they are to it: "rubric factuality system"."""
        named = self._asked()
        named |= {"scoring": self.scoring, "oracle_scoring": self.oracle_scoring}
        named |= {f"rubric {rubric.dimension}": rubric for rubric in self.rubrics}
        return {
            f"{name} {what}".rstrip(): path
            for name, part in named.items()
            if isinstance(part, ReadsFiles)
            for what, path in part.input_files.items()
        }

    def weights(self) -> dict[str, Sequence[Path]]:
        """The files that the models of the parts are loaded from, by part."""
        return {
            name: part.weight_files
            for name, part in self._asked().items()
            if isinstance(part, HasWeights)
        }

    def by_name(self) -> dict[str, object]:
        return {
            **{f"entrant.{name}": entrant for name, entrant in self.entrants.items()},
            **{f"rubric.{rubric.dimension}": rubric for rubric in self.rubrics},
            "judge": self.judge,
            "oracle_judge": self.oracle_judge,
            "scoring": self.scoring,
            "oracle_scoring": self.oracle_scoring,
            "tracker": self.tracker,
        }

    def _asked(self) -> dict[str, object]:
        entrants = {f"entrant {name}": entrant for name, entrant in self.entrants.items()}
        return {**entrants, "judge": self.judge, "oracle_judge": self.oracle_judge}

    def summary(self) -> str:
        """The parts in one line."""
        chosen = [f"{len(self.entrants)} entrants"] if self.entrants else []
        chosen += [f"judge {self.judge.model}"] if self.judge else []
        chosen += [f"oracle {self.oracle_judge.model}"] if self.oracle_judge else []
        chosen += (
            [f"rubrics {', '.join(r.dimension for r in self.rubrics)}"] if self.rubrics else []
        )
        chosen += [f"estimators {', '.join(self.estimators)}"] if self.estimators else []
        chosen += [f"ratings {', '.join(['elo', *self.ratings])}"] if self.rates else []
        return "; ".join(chosen) or "asks nobody and rates nothing"


class Experiment(Protocol):
    """A module of this package: what it needs of the configuration, and its script."""

    @property
    def NEEDS(self) -> frozenset[str]:  # noqa: N802
        """Of the groups entrant, judge, oracle_judge, scoring, rubric and estimator, those that must be built; and
        rating, where battles are rated."""

    def inputs(self, settings: Settings, parts: Parts) -> Mapping[str, Path]:
        """The files, and the folders of such, that decide what a run concludes, by what they are to it. A finished job
        of a sweep is run again where one has changed."""

    def check(self, settings: Settings, parts: Parts) -> None:
        """Raise UserError for whatever can be known to be wrong before anything is begun."""

    def errand(self, settings: Settings, parts: Parts) -> str | None:
        """What is said in place of a run, such as its plan; None where a run is wanted."""

    def run(self, settings: Settings, parts: Parts) -> Result: ...


class Result(Protocol):
    """What an experiment concluded."""

    @property
    def headline(self) -> float:
        """One number by which a sweeper may compare jobs."""

    def facts(self) -> Mapping[str, Any]:
        """What the manifest should say beyond the configuration."""

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]: ...

    def metrics(self) -> Mapping[str, float]: ...

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]: ...

    def series(self) -> Sequence[Mapping[str, float]]:
        """Permutation traces by `n_perms`."""

    def plots(self) -> Sequence[Plot]:
        """Every figure, drawn anew: most of the time that a result takes to be written."""

    def table(self) -> str: ...

    def page(self, title: str, manifest: Mapping[str, Any], plots: Sequence[Plot]) -> str:
        """The report as one HTML file."""
