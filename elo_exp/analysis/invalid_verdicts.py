"""Whether invalid verdicts fall on one entrant more than on others, and how far they could move it.

Failed verdicts are left out of the ratings. That is harmless where they fall at random; where a
judge fails on the answers that would have lost, the entrant is rated too high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from elo_exp.analysis.comparisons import ALPHA, holm
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidShare(Record):
    """The invalid judgments of one entrant; None where the prompts do not tell."""

    dimension: str
    model: str
    n_judgments: int
    n_invalid: int
    p_holm: float | None = None  # two-sided, adjusted for all entrants
    differs: bool | None = None  # p_holm <= ALPHA

    @property
    def share(self) -> float | None:
        return self.n_invalid / self.n_judgments if self.n_judgments else None


def invalid_shares(
    judgments: Sequence[Judgment], *, dimension: str
) -> list[InvalidShare]:
    """Compare each entrant's share of invalid judgments with that of the others.

    A t test over prompts of the entrant's share less the mean share of all on the prompt.
    """
    models = sorted({m for j in judgments for m in (j.entrant_a, j.entrant_b)})
    prompts = sorted({j.prompt_id for j in judgments})
    row = {prompt: q for q, prompt in enumerate(prompts)}
    column = {model: i for i, model in enumerate(models)}
    judged, invalid = np.zeros((2, len(prompts), len(models)))
    for judgment in judgments:
        sides = [column[judgment.entrant_a], column[judgment.entrant_b]]
        judged[row[judgment.prompt_id], sides] += 1
        invalid[row[judgment.prompt_id], sides] += judgment.invalid
    share = np.divide(
        invalid, judged, out=np.full(judged.shape, np.nan), where=judged > 0
    )
    p_values = np.full(len(models), np.nan)
    if invalid.any() and len(prompts) > 1:
        excess = share - np.nanmean(share, axis=1, keepdims=True)
        n = np.isfinite(excess).sum(axis=0)
        error = np.nanstd(excess, axis=0) / np.sqrt(np.maximum(n - 1, 1))
        varies = error > 0.0
        t = np.nanmean(excess, axis=0)[varies] / error[varies]
        p_values[varies] = 2.0 * special.stdtr(n[varies] - 1, -np.abs(t))
    adjusted = holm(p_values)
    return [
        InvalidShare(
            dimension=dimension,
            model=model,
            n_judgments=int(judged[:, i].sum()),
            n_invalid=int(invalid[:, i].sum()),
            p_holm=None if np.isnan(p) else float(p),
            differs=None if np.isnan(p) else bool(p <= ALPHA),
        )
        for i, (model, p) in enumerate(zip(models, adjusted, strict=True))
    ]


def bounds(
    battles: Sequence[Battle],
    judgments: Sequence[Judgment],
    model: str,
    rate: Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]],
) -> tuple[float | None, float | None]:
    """Return the interval of a model that holds whatever its invalid verdicts would have been.

    From the lower end if it had lost all of them to the upper end if it had won all.
    """
    mine = [j for j in judgments if j.invalid and model in (j.entrant_a, j.entrant_b)]
    ends = []
    for won in (False, True):
        assumed = [_assumed(j, model if won else _other(j, model)) for j in mine]
        every = Battles.from_rows([*battles, *assumed])
        ends.append(rate({"": every})[""].row(model))
    return ends[0].ci_low, ends[1].ci_high


def _other(judgment: Judgment, model: str) -> str:
    is_first = model == judgment.entrant_a
    return judgment.entrant_b if is_first else judgment.entrant_a


def _assumed(judgment: Judgment, winner: str) -> Battle:
    won = "model_a" if winner == judgment.entrant_a else "model_b"
    return Battle(
        model_a=judgment.entrant_a,
        model_b=judgment.entrant_b,
        winner=won,
        verdict_ab=won,
        verdict_ba=won,
        question_id=judgment.prompt_id,
        dimension=judgment.dimension,
    )
