"""An arena with simulated voters, so that the true rating of each model is known.

Anchors are probes that give more or less of the bank's references, some behind hedges. A voter
values the words of the reference and dislikes hedges; besides, all voters like or dislike an answer
for reasons that no reader of the words can know.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import scipy

from elo_exp.arrays import Array
from elo_exp.data import bank
from elo_exp.entrants.probe import GradedProbe, Style
from elo_exp.judges.lexical import content_words, is_hedged, remove_hedges
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_abilities
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Prompt
from elo_exp.types import Count, Natural

# Shares of the reference that the anchors give, as it is or hedged
_ANCHOR_SHARES_BY_STYLE: dict[Style, tuple[float, ...]] = {
    "reference": (1.0, 0.8, 0.6, 0.45, 0.3, 0.15),
    "hedged": (0.9, 0.7, 0.5, 0.35, 0.2),
}
# Share of prompts on which an anchor gives the answer to another prompt
_LAPSE_RATE = 0.1
# Subtracted from the worth of a hedged answer; a worth is at most 1
_HEDGE_COST = 0.15
_LOG_ODDS_PER_WORTH = 2.2
# How much voters like an answer beyond its worth
_LIKING_SD_LOG_ODDS = 0.5
_MAX_TIE_RATE = 0.3
_TIES_PER_UPSET = 1.8
_N_QUADRATURE_NODES = 21


@dataclass(kw_only=True)
class SimulatedVotes:
    """Votes between graded probes on the prompts of a bank that have a reference."""

    n_votes: Count
    seed: Natural
    bank_path: str

    @cached_property
    def _prompts(self) -> list[Prompt]:
        return bank.load_referenced_texts(Path(self.bank_path), "arena")

    @cached_property
    def _anchors(self) -> list[GradedProbe]:
        return [
            GradedProbe(
                entrant_id=f"{'plain' if style == 'reference' else style}_{100 * keep:.0f}",
                style=style,
                keep=keep,
                lapse_style="swapped",
                lapse_rate=_LAPSE_RATE,
                bank_path=self.bank_path,
            )
            for style, shares in _ANCHOR_SHARES_BY_STYLE.items()
            for keep in shares
        ]

    @cached_property
    def votes(self) -> list[dict[str, str]]:
        """The votes as rows of a file arena, with the texts."""
        rng = np.random.default_rng(self.seed)
        worth = self._measure_worth(self._anchors)
        appeal = _LOG_ODDS_PER_WORTH * worth + rng.normal(
            0.0, _LIKING_SD_LOG_ODDS, worth.shape
        )
        rows = []
        for _ in range(self.n_votes):
            i, j = rng.choice(len(appeal), 2, replace=False)
            prompt_index = rng.integers(len(self._prompts))
            p = scipy.special.expit(appeal[i, prompt_index] - appeal[j, prompt_index])
            tie_rate = min(_MAX_TIE_RATE, _TIES_PER_UPSET * min(p, 1.0 - p))
            chances = (p - tie_rate / 2, tie_rate, 1.0 - p - tie_rate / 2)
            a, b, prompt = (
                self._anchors[i],
                self._anchors[j],
                self._prompts[prompt_index],
            )
            row = {
                "question_id": prompt.prompt_id,
                "model_a": a.entrant_id,
                "model_b": b.entrant_id,
                "winner": str(rng.choice(("model_a", "tie", "model_b"), p=chances)),
                "prompt": prompt.text,
                "response_a": a.answer(prompt),
                "response_b": b.answer(prompt),
            }
            rows.append(row)
        return rows

    def true_leaderboard(
        self, placed: Sequence[GradedProbe], *, level: float, baseline: str | None
    ) -> Leaderboard:
        """Return the true ratings of anchors and placed probes.

        level  that of the baseline, or the mean of the anchors
        """
        probes = sorted([*self._anchors, *placed], key=lambda probe: probe.entrant_id)
        points = POINTS_PER_LOG_ODDS * compute_true_abilities(
            self._measure_worth(probes)
        )
        names = [probe.entrant_id for probe in probes]
        fixed = [baseline] if baseline else [a.entrant_id for a in self._anchors]
        return Leaderboard(
            label="Truth",
            interval=None,
            models=tuple(names),
            rating=level + points - points[np.isin(names, fixed)].mean(),
        )

    def _measure_worth(self, probes: Sequence[GradedProbe]) -> Array:
        """Return the worth of each answer to the voters (probes, prompts)."""

        rows = []
        for prompt in self._prompts:
            reference_words = content_words(prompt.gold_answer or "")
            answers = [probe.answer(prompt) for probe in probes]
            answer_words = [content_words(remove_hedges(answer)) for answer in answers]
            shares = [
                len(reference_words & words) / len(reference_words)
                for words in answer_words
            ]
            rows.append(
                np.subtract(shares, _HEDGE_COST * np.array([*map(is_hedged, answers)]))
            )
        return np.array(rows).T


@dataclass(kw_only=True)
class AssumedVotes(SimulatedVotes):
    """Battles of assumed lengths that replace a missing data set in a plan.

    n_models  that meet each other in turn
    prompt, response  characters of each
    """

    n_models: Count
    prompt: Count
    response: Count

    @cached_property
    def votes(self) -> list[dict[str, str]]:
        pairs = list(combinations(range(self.n_models), 2))
        rows = []
        for n in range(self.n_votes):
            i, j = pairs[n % len(pairs)]
            rows.append(
                {
                    "question_id": f"assumed {n}",
                    "model_a": f"assumed {i}",
                    "model_b": f"assumed {j}",
                    "winner": ("model_a", "model_b")[n % 2],
                    "prompt": _make_filler(f"question {n}", self.prompt),
                    "response_a": _make_filler(f"answer {n} of {i}", self.response),
                    "response_b": _make_filler(f"answer {n} of {j}", self.response),
                }
            )
        return rows


def _make_filler(name: str, n_chars: int) -> str:
    """Return a text of this length that tokenizes like English."""
    sentence = f"{name}: the quick brown fox jumps over the lazy dog. "
    return (sentence * (n_chars // len(sentence) + 1))[:n_chars]


def compute_true_abilities(worth: Array) -> Array:
    """Return Bradley-Terry abilities (models,) on the expected scores of all pairs and prompts.

    worth  (models, prompts)
    The likings of the two answers are integrated out by Gauss-Hermite quadrature, so that no draw
    enters. Ties are half a win, and shift no expected score.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(_N_QUADRATURE_NODES)
    gap = _LOG_ODDS_PER_WORTH * (worth[:, None] - worth)
    liking = math.sqrt(2.0) * _LIKING_SD_LOG_ODDS * node
    expected = scipy.special.expit(gap[..., None] + liking) @ (weight / weight.sum())
    wins = expected.mean(axis=2)
    np.fill_diagonal(wins, 0.0)
    return fit_abilities(wins)
