"""Oracle experiments of which the truth is known, as fast as they can be drawn.

The model. A prompt has a difficulty d ~ N(0, 1/4). The logging policy answers it with quality
q ~ N(d, 1) and style z ~ N(0, 1), the target with q ~ N(d + shift, 1) and z ~ N(style, 1), so that
the log ratio of the two is

    shift (q - d) - shift^2 / 2 + style z - style^2 / 2

The judge sees the quality only: its score is logistic(1.4 q), rounded to 1/20. The oracle's label
has the mean m(s) - dislike tanh(z), and labels on one prompt are correlated. m is `linear`,
.25 + .5 s; `curved`, .05 + .8 s^3, for a judge who is too kind in the middle; or a `hump` that falls
again above .6, so that no rising curve fits. With `dislike` the judge overrates the target at every
score, by dislike E tanh(z).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.arrays import Array, Index
from elo_exp.estimators import Estimator
from elo_exp.files import write_jsonl
from elo_exp.oracle.calibration import calibrate
from elo_exp.oracle.data import Dataset, Rows
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.gates import GatedEvidence
from tests.data import shipped

WEIGHTED = ("ips", "snips", "calibrated_ips")
ROBUST = ("dr_cpo", "mrdr", "tmle", "stacked_dr")
NAMES = (*WEIGHTED, *ROBUST, "direct")
OPTIONS = Options(
    by_variance=False,
    max_residual=0.05,
    tolerance=0.05,
    half_widths=(0.02,),
    compat=None,
)
N_FOLDS = 5
_DIFFICULTY = 0.5
_ALIKE = 0.3  # of the noise of two labels on one prompt, what they share
_LEVELS = 20
MEANS: Mapping[str, Callable[[Array], Array]] = {
    "linear": lambda s: 0.25 + 0.5 * s,
    "curved": lambda s: 0.05 + 0.8 * s**3,
    "hump": lambda s: 0.75 - np.where(s > 0.6, 3.0, 1.5) * (s - 0.6) ** 2,
}


@dataclass(frozen=True, kw_only=True)
class World:
    judge: str = "linear"
    n: int = 1000  # prompts
    labelled: float = 0.25  # share of the logged answers
    shift: float = 0.3
    style: float = 0.3
    dislike: float = 0.0
    n_probe: int = (
        0  # labels of the target's own answers, which only check the calibration
    )
    n_own: int = 0  # the same among the fresh draws, which correct direct

    def mean(self, score: Array) -> Array:
        return np.asarray(MEANS[self.judge](score))

    @property
    def truth(self) -> float:
        """The mean label of the target's answers, by integration over their quality and style."""
        x = np.linspace(-8.0, 8.0, 16001)
        density = np.exp(-(x**2) / 2)
        score = _score(self.shift + x * np.sqrt(1 + _DIFFICULTY**2))
        label = self.mean(score) - self.dislike * np.tanh(x + self.style)
        return float(density @ label / density.sum())

    def draw(self, rng: np.random.Generator) -> Dataset:
        """One logged answer and one fresh draw on each prompt; folds at random."""
        difficulty, shared, z, z_fresh, q, q_fresh = rng.standard_normal((6, self.n))
        q += _DIFFICULTY * difficulty
        q_fresh += _DIFFICULTY * difficulty + self.shift
        ratio = (
            self.shift * (q - _DIFFICULTY * difficulty)
            - self.shift**2 / 2
            + self.style * z
            - self.style**2 / 2
        )
        folds = rng.permutation(self.n) % N_FOLDS
        order, others = rng.permutation(self.n), rng.permutation(self.n)
        logged = self._rows(_score(q), z, shared, folds, rng)
        draws = self._rows(_score(q_fresh), z_fresh + self.style, shared, folds, rng)
        probe = draws[others[self.n - self.n_probe :]]
        return dataset(
            with_labels(logged, order[: round(self.labelled * self.n)]),
            {"target": ratio},
            fresh_draws={"target": with_labels(draws, others[: self.n_own])},
            probe_draws={"target": probe} if self.n_probe else {},
        )

    def _rows(
        self,
        score: Array,
        style: Array,
        shared: Array,
        folds: Index,
        rng: np.random.Generator,
    ) -> Rows:
        mean = self.mean(score) - self.dislike * np.tanh(style)
        noise = np.tanh(
            np.sqrt(_ALIKE) * shared + np.sqrt(1 - _ALIKE) * rng.standard_normal(self.n)
        )
        return answers(score, mean + np.minimum(mean, 1 - mean) * noise, folds)


def answers(score: Array, label: Array, fold: Index, *covariates: Array) -> Rows:
    """One answer to each prompt."""
    n = len(score)
    return Rows(
        prompt=np.arange(n),
        question=np.arange(n),
        fold=fold,
        score=score,
        variance=np.full(n, np.nan),
        label=label,
        chars=np.full(n, 100.0),
        chance=np.full(n, np.nan),
        covariates=np.array(covariates).reshape(len(covariates), n).T,
    )


def with_labels(rows: Rows, kept: Index) -> Rows:
    """The same rows, of which only these keep their labels."""
    label = np.full(len(rows), np.nan)
    label[kept] = rows.label[kept]
    return dataclasses.replace(rows, label=label)


def dataset(
    logged: Rows, log_ratio: Mapping[str, Array], **draws: Mapping[str, Rows]
) -> Dataset:
    """One logged answer to each prompt, log ratios (n,) by policy; fresh draws and probes."""
    n = len(logged)
    return Dataset(
        logging_policy="base",
        policies=tuple(log_ratio),
        prompts=tuple(f"q{i}" for i in range(n)),
        logged_rows=logged,
        logging_logprob=np.full(n, -1000.0),
        target_logprob={p: ratio - 1000.0 for p, ratio in log_ratio.items()},
        **draws,
    )


def draw(seed: int = 0, **world: float) -> Dataset:
    return World(**world).draw(np.random.default_rng(seed))  # type: ignore[arg-type]


def several(seed: int = 0, **worlds: World) -> Dataset:
    """Targets of one logging policy, that of the first world."""
    drawn = {
        name: world.draw(np.random.default_rng(seed)) for name, world in worlds.items()
    }
    return dataclasses.replace(
        next(iter(drawn.values())),
        policies=tuple(drawn),
        target_logprob={p: some.target_logprob["target"] for p, some in drawn.items()},
        fresh_draws={
            policy: some.fresh_draws["target"] for policy, some in drawn.items()
        },
        probe_draws={
            p: some.probe_draws["target"]
            for p, some in drawn.items()
            if some.probe_draws
        },
    )


def write(data: Dataset, folder: Path) -> Path:
    """Write the files that the experiment reads, and cje-eval, too."""

    def listed(rows: Rows) -> list[dict[str, Any]]:
        names = [data.prompts[i] for i in rows.prompt]
        columns = (names, rows.score.tolist(), rows.label.tolist())
        return [
            {
                "prompt_id": name,
                "prompt": name,
                "response": "x" * 100,
                "draw_idx": 0,
                "judge_score": score,
                **({} if math.isnan(label) else {"oracle_label": label}),
            }
            for name, score, label in zip(*columns, strict=True)
        ]

    logged = listed(data.logged_rows)
    for i, row in enumerate(logged):
        row["base_policy_logprob"] = float(data.logging_logprob[i])
        row["target_policy_logprobs"] = {
            policy: float(logprob[i]) for policy, logprob in data.target_logprob.items()
        }
    write_jsonl(folder / "logged.jsonl", logged)
    for name, draws in (("fresh", data.fresh_draws), ("probe", data.probe_draws)):
        for policy, rows in draws.items():
            path = folder / name / f"{policy}_responses.jsonl"
            write_jsonl(path, listed(rows))
    return folder


def checks_of(data: Dataset, policy: str = "target") -> GatedEvidence:
    calibration = calibrate(data.pooled_rows)
    return GatedEvidence(
        data=data, policy=policy, calibration=calibration, max_residual=0.05
    )


def estimators(names: Sequence[str] = NAMES) -> dict[str, Estimator]:
    """As shipped."""
    return {name: shipped("estimator", name) for name in names}


def analysed(data: Dataset, names: Sequence[str] = NAMES, **options: Any) -> Analysis:
    return analyse(data, estimators(names), dataclasses.replace(OPTIONS, **options))


def _score(quality: Array) -> Array:
    return np.asarray(np.round(_LEVELS / (1 + np.exp(-1.4 * quality))) / _LEVELS)
