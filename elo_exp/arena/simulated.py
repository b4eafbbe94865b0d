"""An arena whose voters are simulated, so that the true rating of each model is known.

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
from elo_exp.judges.lexical import content_words, is_hedged, without_hedges
from elo_exp.ratings.fit import POINTS, abilities
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Prompt
from elo_exp.types import Count, Natural

# Shares of the reference that the anchors give, as it is or hedged
_ANCHORS: dict[Style, tuple[float, ...]] = {
    "reference": (1.0, 0.8, 0.6, 0.45, 0.3, 0.15),
    "hedged": (0.9, 0.7, 0.5, 0.35, 0.2),
}
_LAPSE_RATE = 0.1  # share of prompts on which an anchor gives another one's
_HEDGE_COST = 0.15  # of an answer's worth, which is at most 1
_DECISIVENESS = 2.2  # log-odds of preferring an answer for each unit of worth
_LIKING = 0.5  # standard deviation of an answer's log-odds beyond its worth
_MOST_TIES = 0.3
_TIES = 1.8  # ties for each vote against the favourite
_NODES = 21


@dataclass(kw_only=True)
class Simulated:
    """Votes between graded probes on the prompts of a bank that have a reference."""

    n_votes: Count
    seed: Natural
    bank_path: str

    @cached_property
    def _prompts(self) -> list[Prompt]:
        return bank.texts(Path(self.bank_path), "arena")

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
            for style, shares in _ANCHORS.items()
            for keep in shares
        ]

    @cached_property
    def votes(self) -> list[dict[str, str]]:
        """Rows of an arena of one's own, with the texts."""
        rng = np.random.default_rng(self.seed)
        worth = self._worth(self._anchors)
        appeal = _DECISIVENESS * worth + rng.normal(0.0, _LIKING, worth.shape)
        rows = []
        for _ in range(self.n_votes):
            i, j = rng.choice(len(appeal), 2, replace=False)
            at = rng.integers(len(self._prompts))
            p = scipy.special.expit(appeal[i, at] - appeal[j, at])
            tied = min(_MOST_TIES, _TIES * min(p, 1.0 - p))
            chances = (p - tied / 2, tied, 1.0 - p - tied / 2)
            a, b, prompt = self._anchors[i], self._anchors[j], self._prompts[at]
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

    def truth(
        self, placed: Sequence[GradedProbe], *, level: float, baseline: str | None
    ) -> Leaderboard:
        """Return the true ratings of anchors and placed probes.

        level  that of the baseline, or the mean of the anchors
        """
        probes = sorted([*self._anchors, *placed], key=lambda probe: probe.entrant_id)
        points = POINTS * true_abilities(self._worth(probes))
        names = [probe.entrant_id for probe in probes]
        fixed = [baseline] if baseline else [a.entrant_id for a in self._anchors]
        return Leaderboard(
            label="Truth",
            interval=None,
            models=tuple(names),
            rating=level + points - points[np.isin(names, fixed)].mean(),
        )

    def _worth(self, probes: Sequence[GradedProbe]) -> Array:
        """What each answer is worth to the voters (probes, prompts)."""

        rows = []
        for prompt in self._prompts:
            wanted = content_words(prompt.gold_answer or "")
            answers = [probe.answer(prompt) for probe in probes]
            shown = [content_words(without_hedges(answer)) for answer in answers]
            shares = [len(wanted & words) / len(wanted) for words in shown]
            rows.append(
                np.subtract(shares, _HEDGE_COST * np.array([*map(is_hedged, answers)]))
            )
        return np.array(rows).T


@dataclass(kw_only=True)
class Assumed(Simulated):
    """Battles of assumed lengths, in place of a data set that is not here: enough to count what a placement asks.

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
                    "prompt": _filler(f"question {n}", self.prompt),
                    "response_a": _filler(f"answer {n} of {i}", self.response),
                    "response_b": _filler(f"answer {n} of {j}", self.response),
                }
            )
        return rows


def _filler(name: str, n_chars: int) -> str:
    """Return a text of so many characters, which a tokenizer cuts as it cuts English."""
    sentence = f"{name}: the quick brown fox jumps over the lazy dog. "
    return (sentence * (n_chars // len(sentence) + 1))[:n_chars]


def true_abilities(worth: Array) -> Array:
    """Return Bradley-Terry abilities (models,) on the expected scores of all pairs and prompts.

    worth  (models, prompts)
    The likings of the two answers are integrated out by Gauss-Hermite quadrature, so that no draw
    enters. Ties are half a win, and shift no expected score.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    gap = _DECISIVENESS * (worth[:, None] - worth)
    liking = math.sqrt(2.0) * _LIKING * node
    expected = scipy.special.expit(gap[..., None] + liking) @ (weight / weight.sum())
    wins = expected.mean(axis=2)
    np.fill_diagonal(wins, 0.0)
    return abilities(wins)
