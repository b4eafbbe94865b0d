"""How far a judge can be trusted: flips between the two orders, position, invalid replies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA, adjust_by_holm
from elo_exp.arrays import make_rows
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import add_style
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, Judgment, Record

_CUT_OFF_REASONS = ("max_tokens", "model_context_window_exceeded")


RATES = ("flip_rate", "first_shown_rate", "tie_rate", "invalid_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuality(Record):
    """What the judgments of one dimension say of their judge: counts, and the shares `RATES`.

    A share is None if nothing was observed.

    Written as a row of `judge_quality` of manifest.json.

    n_two_order          of different answers, whose two orders were both asked; of these, `n_flips` disagree
    n_decisive_verdicts  single verdicts that name an answer; `n_first_shown_wins` name the one that was shown first
    n_refused, n_cut_off of the invalid ones
    tie_rate             of single verdicts, before the two orders are reconciled
    """

    dimension: str
    n_judgments: int = 0
    n_invalid: int = 0
    n_two_order: int = 0
    n_flips: int = 0
    n_one_order: int = 0
    n_decisive_verdicts: int = 0
    n_first_shown_wins: int = 0
    n_refused: int = 0
    n_cut_off: int = 0
    n_equal_answers: int = 0
    flip_rate: float | None = None
    first_shown_rate: float | None = None
    tie_rate: float | None = None
    invalid_rate: float | None = None

    def rates(self) -> dict[str, float | None]:
        """Return the shares `RATES` by name."""
        return {name: getattr(self, name) for name in RATES}


def judge_quality(judgments: Sequence[Judgment], *, dimension: str) -> JudgeQuality:
    """Count flips, positions, ties and invalid replies over the judgments of one dimension.

    A mirrored verdict and one on equal answers say nothing about order, and enter no order
    statistic.

    Parameters
    ----------
    judgments : sequence of Judgment
        Of the dimension.
    dimension : str
        Of the row.

    Returns
    -------
    JudgeQuality
    """
    valid = [j for j in judgments if not j.invalid]
    invalid = [{v.stop_reason for v in j.orders} for j in judgments if j.invalid]
    compared = [
        j for j in valid if not (j.equal_answers or any(v.mirrored for v in j.orders))
    ]
    n, n_two = len(judgments), sum(len(j.orders) == 2 for j in compared)
    n_flips = sum(bool(j.inconsistent) for j in compared)
    letters = [verdict.verdict for j in compared for verdict in j.orders]
    n_first, n_ties = letters.count("A"), letters.count("TIE")
    n_decisive = len(letters) - n_ties
    return JudgeQuality(
        dimension=dimension,
        n_judgments=n,
        n_invalid=len(invalid),
        n_two_order=n_two,
        n_flips=n_flips,
        n_one_order=len(compared) - n_two,
        n_decisive_verdicts=n_decisive,
        n_first_shown_wins=n_first,
        n_refused=sum("refusal" in reasons for reasons in invalid),
        n_cut_off=sum(not reasons.isdisjoint(_CUT_OFF_REASONS) for reasons in invalid),
        n_equal_answers=sum(j.equal_answers for j in judgments),
        flip_rate=n_flips / n_two if n_two else None,
        first_shown_rate=n_first / n_decisive if n_decisive else None,
        tie_rate=n_ties / len(letters) if letters else None,
        invalid_rate=len(invalid) / n if n else None,
    )


# Invalid verdicts: whether they fall on one entrant more than on others, and how far they could move it


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidShare(Record):
    """How many judgments of an entrant are invalid, beside those of the others.

    share    of its judgments
    p_holm   of the test that its share is that of the others, adjusted for all entrants; None if prompts do not differ
    differs  whether it is not, at 5%
    bound_low, bound_high  its rating whatever its invalid verdicts would be, in rating points; None if not known, or
             if its share does not differ
    """

    dimension: str
    model: str
    n_judgments: int
    n_invalid: int
    share: float | None
    p_holm: float | None
    differs: bool | None
    bound_low: float | None = None
    bound_high: float | None = None


def invalid_shares(
    judgments: Sequence[Judgment], *, dimension: str
) -> list[InvalidShare]:
    """Compare each entrant's share of invalid judgments with that of the others.

    A t test over prompts of the entrant's share less the mean share of all on the prompt.

    Parameters
    ----------
    judgments : sequence of Judgment
        Of the dimension.
    dimension : str
        Of the rows.

    Returns
    -------
    list of InvalidShare
        One for each entrant, without bounds of its rating.
    """
    models = sorted({m for j in judgments for m in (j.entrant_a, j.entrant_b)})
    prompts = sorted({j.prompt_id for j in judgments})
    row = {prompt: q for q, prompt in enumerate(prompts)}
    column = {model: i for i, model in enumerate(models)}
    judged_counts, invalid_counts = np.zeros((2, len(prompts), len(models)))
    for judgment in judgments:
        sides = [column[judgment.entrant_a], column[judgment.entrant_b]]
        judged_counts[row[judgment.prompt_id], sides] += 1
        invalid_counts[row[judgment.prompt_id], sides] += judgment.invalid
    share = np.divide(
        invalid_counts,
        judged_counts,
        out=np.full(judged_counts.shape, np.nan),
        where=judged_counts > 0,
    )
    p_values = np.full(len(models), np.nan)
    if invalid_counts.any() and len(prompts) > 1:
        excess = share - np.nanmean(share, axis=1, keepdims=True)
        n = np.isfinite(excess).sum(axis=0)
        error = np.nanstd(excess, axis=0) / np.sqrt(np.maximum(n - 1, 1))
        varies = error > 0.0
        t = np.nanmean(excess, axis=0)[varies] / error[varies]
        p_values[varies] = 2.0 * scipy.special.stdtr(n[varies] - 1, -np.abs(t))
    adjusted = adjust_by_holm(p_values)
    n_judgments, n_invalid = judged_counts.sum(axis=0), invalid_counts.sum(axis=0)
    rows = make_rows(
        dimension=dimension,
        model=models,
        n_judgments=n_judgments.astype(int),
        n_invalid=n_invalid.astype(int),
        share=n_invalid / n_judgments,
        p_holm=adjusted,
        differs=[None if np.isnan(p) else bool(p <= ALPHA) for p in adjusted],
    )
    return [InvalidShare(**row) for row in rows]


def bound_rating(
    battles: Sequence[Battle],
    judgments: Sequence[Judgment],
    comparisons: Sequence[Comparison],
    model: str,
    rate: Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]],
) -> tuple[float | None, float | None]:
    """Return an interval of a model's rating that is valid whatever its invalid verdicts would be.

    From the lower end if it had lost all of them to the upper end if it had won all.

    Parameters
    ----------
    battles : sequence of Battle
        Of one dimension, from the valid judgments.
    judgments : sequence of Judgment
        All of that dimension.
    comparisons : sequence of Comparison
        Their texts, for methods whose fit has the style of the answers.
    model : str
        One of the entrants.
    rate : callable
        From battles by dimension to leaderboards by dimension.

    Returns
    -------
    low, high : float or None
        In rating points; None where the method gives no such end.
    """
    invalid_judgments = [
        j for j in judgments if j.invalid and model in (j.entrant_a, j.entrant_b)
    ]
    ends = []
    for has_won in (False, True):
        assumed_battles = []
        for j in invalid_judgments:
            winner = "model_a" if (model == j.entrant_a) == has_won else "model_b"
            assumed_battles.append(
                Battle(
                    model_a=j.entrant_a,
                    model_b=j.entrant_b,
                    winner=winner,
                    verdict_ab=winner,
                    verdict_ba=winner,
                    source="llm-judge",
                    question_id=j.prompt_id,
                    draw_a=j.draw_a,
                    draw_b=j.draw_b,
                    dimension=j.dimension,
                )
            )
        assumed_battles = add_style(assumed_battles, comparisons)
        all_battles = Battles.from_rows([*battles, *assumed_battles])
        ends.append(rate({"": all_battles})[""].row(model))
    return ends[0].ci_low, ends[1].ci_high
