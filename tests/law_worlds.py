"""Random studies for the law of test_law.py: rows of a file, and what may be taken away from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from elo_exp.experiments import Context
from elo_exp.experiments.rate import Rate
from elo_exp.files import read_json, write_json, write_jsonl
from elo_exp.runs.reading import FinishedRun
from tests.experiments import opened
from tests.score_files import inspect_log

WINNERS = ("model_a", "model_b", "tie")
VERDICTS = ("winner", "verdict_ab", "verdict_ba")
Row = dict[str, Any]
Scores = dict[str, list[float | None]]  # of items, by entrant; None: blank
Taken = Callable[[Sequence[Row]], list[Row]]


def battles(
    rng: np.random.Generator, judge: str = "opus", ties: float = 0.0
) -> list[Row]:
    """Verdicts in both orders on two to four entrants; the first may be better, the judge may favour the first shown.

    ties    share of single verdicts that are a tie
    """
    m, n_prompts = int(rng.integers(2, 5)), int(rng.choice([8, 15, 25, 60]))
    gap, bias = rng.choice([0.0, 0.5, 1.5]), rng.choice([0.0, 0.8])
    quality = rng.standard_normal((n_prompts, m))
    quality[:, 0] += gap
    rows = []
    for q, (a, b) in itertools.product(
        range(n_prompts), itertools.combinations(range(m), 2)
    ):
        x = 2.0 * (quality[q, a] - quality[q, b])
        ab, ba = (int(rng.random() >= expit(x + by)) for by in (bias, -bias))
        if ties:
            ab, ba = (2 if rng.random() < ties else verdict for verdict in (ab, ba))
        rows.append(
            {
                "model_a": f"m{a}",
                "model_b": f"m{b}",
                "winner": WINNERS[ab if ab == ba else 2],
                "verdict_ab": WINNERS[ab],
                "verdict_ba": WINNERS[ba],
                "question_id": f"q{q}",
                "judge_model": judge,
                "source": "human" if judge == "human" else "llm-judge",
            }
        )
    return rows


_TURNED = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}


def judged_again(
    rows: Sequence[Row], rng: np.random.Generator, share: float
) -> list[Row]:
    """The same comparisons by another run: a share of those that m0 won go the other way, and some others flip.

    With a share of zero the rows are the same.
    """
    flip = dict(zip(VERDICTS, ("tie", "model_a", "model_b"), strict=True))
    found = []
    for row in rows:
        is_won = row["model_a"] == "m0" and row["winner"] == "model_a"
        turned = {name: _TURNED[row[name]] for name in VERDICTS}
        other = {**row, **turned} if is_won and rng.random() < share else row
        is_flipped = share > 0.0 and rng.random() < 0.15
        found.append({**other, **flip} if is_flipped else other)
    return found


def scores(rng: np.random.Generator) -> Scores:
    """Scores of items: right or wrong, graded, or a little better nearly everywhere and lost outright on a few."""
    m, n_items = int(rng.integers(2, 5)), int(rng.choice([12, 25, 60, 120]))
    kind, gap = rng.choice(["right", "graded", "skewed"]), rng.choice([0.0, 0.5, 1.0])
    ease, found = rng.normal(0.0, 0.7, n_items), Scores()
    for k in range(m):
        value = expit(ease + gap * (k == 0) + rng.normal(0.0, 0.5, n_items))
        if kind == "right":
            value = (rng.random(n_items) < value).astype(float)
        elif kind == "skewed":
            value = np.where(
                rng.random(n_items) < 0.04 * (k == 0), 0.0, 0.5 + 0.02 * (k == 0)
            )
        found[f"m{k}"] = [round(float(x), 4) for x in value]
    return found


def without(*columns: str) -> Taken:
    """Drop columns."""
    return lambda rows: [
        {key: value for key, value in row.items() if key not in columns} for row in rows
    ]


def blank(rows: Sequence[Row], which: Collection[int], *columns: str) -> list[Row]:
    """Blank cells of the rows with these numbers."""
    nothing = dict.fromkeys(columns)
    return [{**row, **nothing} if i in which else row for i, row in enumerate(rows)]


@dataclass(frozen=True)
class Said:
    """A conclusion as the files have it."""

    row: Row

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def width(self) -> float | None:
        """Points between the ends of the interval of the lead; None for an open one."""
        low, high = self.row.get("ci_low"), self.row.get("ci_high")
        return None if low is None or high is None else high - low


@dataclass
class Rater:
    """experiment=rate, prepared once; a call rates rows and returns what may be said of them."""

    experiment: Rate
    context: Context
    folder: Path
    n: int = field(default=0)

    def __call__(self, rows: Sequence[Row]) -> Said:
        """Rate battles."""
        self.n += 1
        return self._rated(write_jsonl(self.folder / f"{self.n}.jsonl", rows))

    def of_scores(self, scores: Scores) -> Said:
        """Rate scores, a log of inspect_ai for each entrant."""
        self.n += 1
        paths = []
        for model, values in scores.items():
            log = inspect_log(model, values)
            for sample in log["samples"]:
                if sample["scores"]["match"]["value"] is None:
                    sample["scores"] = {}
            paths.append(write_json(self.folder / f"{self.n}_{model}.json", log))
        return self._rated(*paths)

    def finished(self, rows: Sequence[Row]) -> FinishedRun:
        """Rate battles, and read the run as experiment=compare does."""
        self(rows)
        folder = self.folder / f"run_{self.n}"
        ratings = read_json(folder / "ratings.json")
        config = {"rating": {"bradley_terry": {"orders": "both"}}}
        empty: dict[str, Any] = {"input_hashes": {}, "versions": {}, "overrides": []}
        return FinishedRun(
            name=folder.name,
            folder=folder,
            manifest={"config": config, **empty},
            boards=ratings["dimensions"],
            conclusions=ratings["conclusions"],
            results=ratings["result"],
            differences=ratings["differences"],
        )

    def _rated(self, *paths: Path) -> Said:
        run_dir = self.folder / f"run_{self.n}"
        run_dir.mkdir()
        one = replace(self.experiment, battles=[str(path) for path in paths])
        one.check_files()
        one.run(replace(self.context, run_dir=run_dir))
        (said,) = read_json(run_dir / "ratings.json")["conclusions"].values()
        return Said(said)


@contextmanager
def rater(folder: Path, *words: str) -> Iterator[Rater]:
    """Read, rate and conclude as the command does, without a page."""
    given = (
        "experiment=rate",
        "battles=none.jsonl",
        "elo.n_perms=1",
        "elo.n_bootstraps=2",
    )
    with opened(folder, *given, *words) as (job, context):
        assert isinstance(job.experiment, Rate)
        yield Rater(job.experiment, context, folder)
