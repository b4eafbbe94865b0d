"""Arenas of which the truth is known, the judge that knows it, and the experiment on them.

Every response is a score: the model's ability plus Gumbel noise, so that the higher score is the
better model's with the probability of Bradley-Terry. `TheJudge` prefers the higher score; the
lexical judge, by overlap, nearly does, since a response repeats the more words of its question the
higher it scores. Humans vote by the abilities, not by the scores, with a tie in five.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from elo_exp.arena.placement import Placement
from elo_exp.experiments import ONLY_JUDGE, Context, Report, arena
from elo_exp.experiments.arena import Arena
from elo_exp.experiments.placement_run import PlacementRun
from elo_exp.files import write_jsonl, write_whole
from elo_exp.judges import Judge
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.records import Comparison, JudgeReply, JudgeRequest
from tests.experiments import opened

SCORE = re.compile(r"score (-?[0-9.]+)")


WORDS = [f"word{chr(ord('a') + i)}" for i in range(26)]


def said(score: float) -> str:
    n_words = max(1, int(13 + 4 * (score - 1000 / POINTS_PER_LOG_ODDS)))
    return f"score {score:.4f} {' '.join(WORDS[:n_words])}"


@dataclass(frozen=True, kw_only=True)
class World:
    """Ratings of the anchors by name, in points; and of the models that are placed."""

    anchors: Mapping[str, float]
    placed: Mapping[str, float]
    n_battles: int = 600
    seed: int = 1

    def rows(self) -> list[dict[str, Any]]:
        rng = np.random.default_rng(self.seed)
        names = list(self.anchors)
        found = []
        for i in range(self.n_battles):
            pair = [names[k] for k in rng.choice(len(names), size=2, replace=False)]
            gap = (self.anchors[pair[0]] - self.anchors[pair[1]]) / POINTS_PER_LOG_ODDS
            won = "model_a" if rng.random() < expit(gap) else "model_b"
            scores = [
                self.anchors[name] / POINTS_PER_LOG_ODDS + rng.gumbel() for name in pair
            ]
            row = {
                "question_id": f"q{i}",
                "model_a": pair[0],
                "model_b": pair[1],
                "winner": "tie" if rng.random() < 0.2 else won,
                "prompt": f"Repeat after me, for the {i}th time: {' '.join(WORDS)}",
                "response_a": said(scores[0]),
                "response_b": said(scores[1]),
            }
            found.append(row)
        return found

    def write(self, folder: Path) -> Path:
        """arena.jsonl, and of each placed model its answers and a yaml in mine/entrant."""
        rng = np.random.default_rng(self.seed + 1)
        write_jsonl(folder / "arena.jsonl", self.rows())
        for name, rating in self.placed.items():
            scores = rating / POINTS_PER_LOG_ODDS + rng.gumbel(size=self.n_battles)
            answers = [
                {"prompt_id": f"q{i}", "response_text": said(score)}
                for i, score in enumerate(scores.tolist())
            ]
            write_jsonl(folder / f"responses_{name}.jsonl", answers)
            entrant = {
                "_target_": "elo_exp.entrants.recorded.RecordedEntrant",
                "entrant_id": name,
                "path": str(folder),
            }
            text = f"# @package _global_\n{json.dumps({'entrant': {name: entrant}})}\n"
            write_whole(folder / "mine" / "entrant" / f"{name}.yaml", text)
        return folder

    def overrides(self, folder: Path) -> list[str]:
        """What places the models among the anchors, on the command line."""
        return [
            "experiment=arena",
            "arena=file",
            f"arena.path={folder}/arena.jsonl",
            f"entrant=[{','.join(self.placed)}]",
            "arena.min_battles=20",
            "arena.n_calibration=100",
            "rating.bradley_terry.n_bootstraps=200",
            f"cache_dir={folder}/cache",
            "tracker=local",
        ]


def scores(shown: Comparison) -> tuple[float, ...]:
    texts = (shown.response_a, shown.response_b)
    return tuple(float(SCORE.findall(text)[0]) for text in texts)


@dataclass(kw_only=True)
class TheJudge(Judge):
    """Prefers what scores higher; says `spoilt` in place of a verdict on a share of the prompts."""

    model: str = "the judge"
    scores: Callable[[Comparison], Sequence[float]] = scores  # of both answers shown
    spoilt: str = ""
    every: int = 0  # of so many prompts, one is spoilt; 0: none
    seen: list[JudgeRequest] = field(default_factory=list)

    def cache_key(self) -> Mapping[str, Any]:
        return {"judge": "the judge", "spoilt": self.spoilt, "every": self.every}

    is_instant = True

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        self.seen += requests
        return map(self._reply, requests)

    def _reply(self, request: JudgeRequest) -> JudgeReply:
        shown = request.subject
        assert isinstance(shown, Comparison)
        a, b = self.scores(shown)
        says = {"evidence_a": "", "evidence_b": "", "verdict": "A" if a > b else "B"}
        is_spoilt = self.every and int(shown.prompt_id[1:]) % self.every == 0
        text = self.spoilt if is_spoilt else json.dumps(says)
        return JudgeReply(key=request.key, text=text)


@dataclass(frozen=True)
class Placed:
    placement: Placement
    run: PlacementRun
    report: Report
    run_dir: Path
    experiment: Arena


@contextmanager
def arena_of(
    world: World, folder: Path, *overrides: str, judge: Judge | None = None
) -> Iterator[tuple[Arena, Context]]:
    """The experiment in the folder where the world was written, checked."""
    mine = f"hydra.searchpath=[file://{folder / 'mine'}]"
    with opened(folder, mine, *world.overrides(folder), *overrides) as (job, context):
        assert isinstance(job.experiment, Arena)
        job.experiment.judges = {ONLY_JUDGE: judge or TheJudge()}
        job.experiment.check()
        yield job.experiment, context


def placed(
    world: World, folder: Path, *overrides: str, judge: Judge | None = None
) -> Placed:
    """A run."""
    with arena_of(world, folder, *overrides, judge=judge) as (experiment, context):
        run = experiment.placement(context.store)
        run.run()
        found = arena.place_models(experiment, run)
        report = arena.report_placement(experiment, run, found, context)
        return Placed(found, run, report, context.run_dir, experiment)
