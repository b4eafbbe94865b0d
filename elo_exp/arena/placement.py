"""Where a model stands among human battles: which of them it enters, and against whom.

The model that is placed answers the prompts of some human battles, and a judge compares its answer
with that of one of the two models that met there. Anchors are the models with so many human battles
that their ratings carry the scale.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from elo_exp.analysis.agreement import Agreement
from elo_exp.analysis.win_rates import shares
from elo_exp.arena.joint_fit import JointFit
from elo_exp.arena.sources import Arena, At
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, Fit
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import UserError

# Rating points apart within which a battle has 95 % of the information of one between equals:
# sech²(.225) = .95.
_NEAR = 78.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A human battle that placed models enter, and which of its two models, 0 or 1, they meet."""

    at: At
    question_id: str
    models: tuple[str, str]
    side: int

    @property
    def opponent(self) -> str:
        return self.models[self.side]


@dataclass(slots=True, kw_only=True)
class Placement:
    """Where the placed models stand, and by which battles.

    board     calibrated; with arena.placement=raw by the judge; of humans alone where refused
    by_judge  beside a calibrated board, the judge's verdicts taken as votes
    refusal   why they are
    reliability  status and reason of each calibrated model
    agreement, temperature, fit  of the judge and the humans; None where it judged no human battle
    """

    arena: str
    dimension: str
    judge_model: str
    placed: tuple[str, ...]
    judged: Battles  # a placed model is model_a of each
    human: Battles  # between anchors
    battles: Battles  # all of them
    board: Leaderboard
    human_board: Leaderboard  # by humans alone, of anchors and placed models held out
    by_judge: Leaderboard | None = None
    soft: Leaderboard | None = None  # by the judge's scores
    refusal: str | None = None
    reliability: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    agreement: Agreement | None = None
    temperature: float | None = None
    fit: JointFit | None = None
    truth: Leaderboard | None = None  # of simulated voters

    @property
    def votes(self) -> str:
        """Whose votes the scale rests on, as an adjective."""
        return "simulated" if self.truth else "human"

    @property
    def mae(self) -> float | None:
        """Mean absolute distance of the anchors from where humans alone put them, in points.

        Their mean is the same on both boards. None where the placement is refused.
        """
        ours, humans = self.board, self.human_board
        names, i, j = np.intersect1d(ours.models, humans.models, return_indices=True)
        gaps = (ours.rating[i] - humans.rating[j])[~np.isin(names, self.placed)]
        gaps = gaps[np.isfinite(gaps)]
        if self.refusal or not len(gaps):
            return None
        return float(np.abs(gaps - gaps.mean()).mean())

    def n_judged(self, model: str) -> int:
        return int(self.judged.n_battles()[self.judged.models.index(model)])

    def source(self, model: str) -> str:
        """Whose battles rate the model."""
        return "evaluated" if model in self.placed else "human"


def anchors(arena: Arena, min_battles: int, *, n_least: int = 2) -> list[str]:
    """List the models with so many human battles, sorted. Raises UserError for too few."""
    models, counts = arena.battles.models, arena.battles.n_battles()
    found = [
        m for m, n in zip(models, counts.tolist(), strict=True) if n >= min_battles
    ]
    if len(found) < n_least:
        most = int(counts.argmax())
        raise UserError(
            f"arena.min_battles: {len(found)} models of {arena.name} have {min_battles} human "
            f"battles or more (most: {models[most]} with {counts[most]}). A placement needs "
            f"{n_least} anchors at least. Lower arena.min_battles"
            f"{', or take arena.placement=raw' if len(found) > 1 else ''}."
        )
    return found


def draws(
    arena: Arena,
    anchors: Collection[str],
    *,
    seed: int,
    sides: int = 1,
    max_per_language: int | None = None,
) -> list[Draw]:
    """Draw human battles between anchors in a random order, with one side as opponent or with both.

    max_per_language  battles; the first of each language in the random order
    The first n of one seed are the same whatever n is, so that a larger draw asks the judge nothing
    twice. An opponent is met once on a question, however many humans have judged it there.
    """
    battles = arena.battles
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(battles))
    coin = rng.integers(2, size=len(battles)).tolist()
    is_anchor = np.isin(battles.models, list(anchors))
    eligible = is_anchor[battles.model_a] & is_anchor[battles.model_b]
    found: dict[tuple[str, str], Draw] = {}
    n_drawn: Counter[str | None] = Counter()
    for i in order[eligible[order]].tolist():
        if max_per_language is not None:
            n_drawn[arena.languages[i]] += 1
            if n_drawn[arena.languages[i]] > max_per_language:
                continue
        a, b = battles.model_a[i], battles.model_b[i]
        for side in (coin[i], 1 - coin[i])[:sides]:
            draw = Draw(
                at=arena.at[i],
                question_id=battles.questions[battles.question[i]],
                models=(battles.models[a], battles.models[b]),
                side=side,
            )
            found.setdefault((draw.question_id, draw.opponent), draw)
    return list(found.values())


def first(
    candidates: Sequence[Draw], n: int, taken: Collection[Draw] = ()
) -> list[Draw]:
    """Return the first n, one of each human battle, of battles that are not taken yet."""
    used = {draw.at for draw in taken}
    found: dict[At, Draw] = {}
    for draw in candidates:
        if len(found) < n and draw.at not in used:
            found.setdefault(draw.at, draw)
    return list(found.values())


def adaptive(
    candidates: Sequence[Draw],
    n: int,
    taken: Collection[Draw],
    battles: Battles,
    model: str,
) -> list[Draw]:
    """Return the next n at random among opponents near the model's rating by its battles so far.

    Where these are too few, then the nearest; opponents without a rating are not met. A model
    without one is beyond the best, or the worst.
    """
    fit = Fit.of(games(battles, orders="both"))
    names: list[str] = np.array(battles.models)[fit.rated].tolist()
    points: list[float] = (POINTS * fit.theta).tolist()
    rating = dict(zip(names, points, strict=True))
    if not rating:
        return first(candidates, n, taken)
    is_winless = not fit.wins[battles.models.index(model)].any()
    end = min(rating.values()) if is_winless else max(rating.values())
    place = rating.get(model, end)

    def distance(draw: Draw) -> float:
        return max(_NEAR, abs(rating[draw.opponent] - place))

    known = [draw for draw in candidates if draw.opponent in rating]
    return first(sorted(known, key=distance), n, taken)


def opponents(
    judged: Battles, placed: Collection[str], board: Leaderboard
) -> list[dict[str, Any]]:
    """Compare each placed model with each opponent, over both orders; a tie is half a win.

    predicted  share of wins by the ratings; None where one of the two has none
    """
    rating = {row.model: row.rating for row in board.ratings}
    rows = []
    for pair, won in shares(judged).items():
        is_first = pair[0] in placed
        model, opponent = pair if is_first else pair[::-1]
        mine, theirs, predicted = rating[model], rating[opponent], None
        if mine is not None and theirs is not None:
            predicted = float(special.expit((mine - theirs) / POINTS))
        rows.append(
            {
                "model": model,
                "opponent": opponent,
                "n_battles": won.n_prompts,
                "n_games": won.n_games,
                "observed": won.share if is_first else 1.0 - won.share,
                "predicted": predicted,
            }
        )
    return rows
