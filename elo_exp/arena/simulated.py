"""An arena whose voters are simulated, so that the true rating of each model is known.

Anchors are probes that keep more or less of the bank's references, some behind hedges. A voter
values the words of the reference and dislikes hedges; besides, all voters like or dislike an answer
for reasons that no reader of the words can know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import special

from elo_exp.arrays import Array
from elo_exp.data import bank
from elo_exp.entrants.probe import GradedProbe
from elo_exp.files import write_jsonl
from elo_exp.judges.lexical import content_words, is_hedged, without_hedges
from elo_exp.ratings.bradley_terry import POINTS, abilities
from elo_exp.records import Prompt

# Shares of the reference that the anchors give, plainly and hedged
_PLAIN = (1.0, 0.8, 0.6, 0.45, 0.3, 0.15)
_HEDGED = (0.9, 0.7, 0.5, 0.35, 0.2)
_LAPSES = 0.1  # share of prompts on which an anchor answers another one
_HEDGE_COST = 0.15  # of an answer's worth, which is at most 1
_DECISIVENESS = 2.2  # log-odds of preferring an answer for each unit of worth
_LIKING = 0.5  # standard deviation of an answer's log-odds beyond its worth
_MOST_TIES = 0.3
_TIES = 1.8  # ties for each vote against the favourite
_NODES = 21


def write(
    path: Path,
    bank_path: Path,
    placed: Sequence[GradedProbe],
    *,
    n_votes: int,
    seed: int,
) -> dict[str, float]:
    """Draw votes between anchors, and write them with the texts as an arena of one's own.

    Returns the true ratings of anchors and placed probes, in points from the anchors' mean.
    """
    prompts = [prompt for prompt in bank.load(bank_path) if prompt.gold_answer]
    anchors = [
        GradedProbe(
            entrant_id=f"{style}_{100 * keep:02.0f}",
            keep=keep,
            hedged=style == "hedged",
            lapse_rate=_LAPSES,
            bank_path=str(bank_path),
        )
        for style, shares in (("plain", _PLAIN), ("hedged", _HEDGED))
        for keep in shares
    ]
    answers = {
        probe.entrant_id: [probe.answer(prompt) for prompt in prompts]
        for probe in [*anchors, *placed]
    }
    worth = np.array([list(map(_worth, prompts, texts)) for texts in answers.values()])
    write_jsonl(path, _votes(prompts, answers, worth[: len(anchors)], n_votes, seed))
    theta = true_abilities(worth)
    points = POINTS * (theta - theta[: len(anchors)].mean())
    return dict(zip(answers, points.tolist(), strict=True))


def _worth(prompt: Prompt, answer: str) -> float:
    wanted = content_words(prompt.gold_answer or "")
    shared = len(wanted & content_words(without_hedges(answer)))
    return shared / len(wanted) - _HEDGE_COST * is_hedged(answer)


def _votes(
    prompts: Sequence[Prompt],
    answers: Mapping[str, Sequence[str]],
    worth: Array,
    n_votes: int,
    seed: int,
) -> list[dict[str, str]]:
    """Rows of votes between the models of worth (models, prompts), the first ones of `answers`."""
    rng = np.random.default_rng([seed, n_votes])  # another stream than that of the draw
    appeal = _DECISIVENESS * worth + rng.normal(0.0, _LIKING, worth.shape)
    n_models, n_prompts = worth.shape
    a = rng.integers(n_models, size=n_votes)
    b = (a + 1 + rng.integers(n_models - 1, size=n_votes)) % n_models
    at = rng.integers(n_prompts, size=n_votes)
    p = special.expit(appeal[a, at] - appeal[b, at])
    tied = np.minimum(_MOST_TIES, _TIES * np.minimum(p, 1.0 - p))
    u = rng.random(n_votes)
    winner = np.select(
        [u < p - tied / 2, u < p + tied / 2], ["model_a", "tie"], "model_b"
    )
    names = list(answers)
    return [
        {
            "question_id": prompts[q].prompt_id,
            "model_a": names[i],
            "model_b": names[j],
            "winner": word,
            "prompt": prompts[q].text,
            "response_a": answers[names[i]][q],
            "response_b": answers[names[j]][q],
        }
        for i, j, q, word in zip(
            a.tolist(), b.tolist(), at.tolist(), winner.tolist(), strict=True
        )
    ]


def true_abilities(worth: Array) -> Array:
    """Return Bradley-Terry abilities (models,) on the expected scores of all pairs and prompts.

    worth  (models, prompts)
    The likings of the two answers are integrated out by Gauss-Hermite quadrature, so that no draw
    enters. Ties are half a win, and shift no expected score.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    gap = _DECISIVENESS * (worth[:, None] - worth)
    liking = math.sqrt(2.0) * _LIKING * node
    expected = special.expit(gap[..., None] + liking) @ (weight / weight.sum())
    wins = expected.mean(axis=2)
    np.fill_diagonal(wins, 0.0)
    return abilities(wins)
