"""How far a judge can be trusted: flips between the two orders, position, invalid replies."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from elo_exp.analysis.comparisons import ALPHA, holm
from elo_exp.arrays import rows
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import repeated
from elo_exp.data.style import with_style
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, Judgment, Record

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuality(Record):
    """How a judge behaved on one dimension; a rate is None where nothing was observed."""

    RATES: ClassVar = ("flip_rate", "first_shown_rate", "tie_rate", "invalid_rate")

    dimension: str
    n_judgments: int
    n_invalid: int
    # valid judgments, of different answers, whose two orders were both asked
    n_two_order: int
    n_flips: int  # of these, those whose orders disagree
    n_decisive_verdicts: int
    n_first_shown_wins: int
    # valid judgments in which both orders are ties, or both answers are equal
    n_ties: int
    n_one_order: int = 0  # the same as n_two_order, of those asked in one order
    n_refused: int = 0  # judgments that are invalid because the judge refused
    n_cut_off: int = 0  # judgments that are invalid because its reply ran into a limit
    # judgments of two answers that are the same, word for word
    n_equal_answers: int = 0
    n_repeated: int = 0  # valid verdicts that repeat an earlier query
    n_repeats_agree: int = 0

    def to_dict(self) -> dict[str, Any]:
        counts = dataclasses.asdict(self)
        return counts | {name: getattr(self, name) for name in self.RATES}

    @property
    def flip_rate(self) -> float | None:
        return self.n_flips / self.n_two_order if self.n_two_order else None

    @property
    def first_shown_rate(self) -> float | None:
        n = self.n_decisive_verdicts
        return self.n_first_shown_wins / n if n else None

    @property
    def tie_rate(self) -> float | None:
        """Of single verdicts, before the two orders are reconciled."""
        n = 2 * self.n_two_order + self.n_one_order
        return 1 - self.n_decisive_verdicts / n if n else None

    @property
    def invalid_rate(self) -> float | None:
        return self.n_invalid / self.n_judgments if self.n_judgments else None


def judge_quality(judgments: Sequence[Judgment], *, dimension: str) -> JudgeQuality:
    """Count over the judgments of one dimension.

    A mirrored verdict and one on equal answers say nothing about order, and enter no order
    statistic.
    """
    valid = [j for j in judgments if not j.invalid]
    invalid = [{v.stop_reason for v in j.orders} for j in judgments if j.invalid]
    shown = [
        j for j in valid if not (j.equal_answers or any(v.mirrored for v in j.orders))
    ]
    two_order = [j for j in shown if len(j.orders) == 2]
    decisive = [v for j in shown for v in j.orders if v.verdict != "TIE"]
    repeats = [pair for j in judgments for pair in repeated(j)]
    return JudgeQuality(
        dimension=dimension,
        n_judgments=len(judgments),
        n_invalid=len(invalid),
        n_two_order=len(two_order),
        n_flips=sum(bool(j.inconsistent) for j in two_order),
        n_one_order=len(shown) - len(two_order),
        n_decisive_verdicts=len(decisive),
        n_first_shown_wins=sum(v.verdict == "A" for v in decisive),
        n_ties=sum(j.winner is None and not j.inconsistent for j in valid),
        n_refused=sum("refusal" in reasons for reasons in invalid),
        n_cut_off=sum(not reasons.isdisjoint(_CUT_OFF) for reasons in invalid),
        n_equal_answers=sum(j.equal_answers for j in judgments),
        n_repeated=len(repeats),
        n_repeats_agree=sum(first.verdict == again.verdict for first, again in repeats),
    )


# Invalid verdicts: whether they fall on one entrant more than on others, and how far they could move it


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
