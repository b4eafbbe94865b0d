"""Whether invalid verdicts fall on one entrant more than on others, and how far they could move it.

Failed verdicts are left out of the ratings. That is harmless where they fall at random; where a
judge fails on the answers that would have lost, the entrant is rated too high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from elo_exp.analysis.comparisons import ALPHA, holm
from elo_exp.arrays import rows
from elo_exp.data.battles import Battles
from elo_exp.data.style import with_style
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, Judgment


def invalid_shares(
    judgments: Sequence[Judgment], *, dimension: str
) -> list[dict[str, Any]]:
    """Compare each entrant's share of invalid judgments with that of the others.

    A t test over prompts of the entrant's share less the mean share of all on the prompt; p_holm is
    adjusted for all entrants, None where the prompts do not differ.
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
    n_judgments, n_invalid = judged.sum(axis=0), invalid.sum(axis=0)
    return rows(
        dimension=dimension,
        model=models,
        n_judgments=n_judgments.astype(int),
        n_invalid=n_invalid.astype(int),
        share=n_invalid / n_judgments,
        p_holm=adjusted,
        differs=[None if np.isnan(p) else bool(p <= ALPHA) for p in adjusted],
    )


def bounds(
    battles: Sequence[Battle],
    judgments: Sequence[Judgment],
    comparisons: Sequence[Comparison],
    model: str,
    rate: Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]],
) -> tuple[float | None, float | None]:
    """Return an interval of a model's rating that is valid whatever its invalid verdicts would be.

    From the lower end if it had lost all of them to the upper end if it had won all.
    """
    mine = [j for j in judgments if j.invalid and model in (j.entrant_a, j.entrant_b)]
    ends = []
    for has_won in (False, True):
        assumed = []
        for j in mine:
            winner = "model_a" if (model == j.entrant_a) == has_won else "model_b"
            assumed.append(
                Battle(
                    model_a=j.entrant_a,
                    model_b=j.entrant_b,
                    winner=winner,
                    verdict_ab=winner,
                    verdict_ba=winner,
                    source="llm-judge",
                    question_id=j.prompt_id,
                    dimension=j.dimension,
                )
            )
        assumed = with_style(assumed, comparisons)
        every = Battles.from_rows([*battles, *assumed])
        ends.append(rate({"": every})[""].row(model))
    return ends[0].ci_low, ends[1].ci_high
