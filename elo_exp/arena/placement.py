"""Where a model stands among human battles: which of them it enters, and against whom.

The model that is placed answers the prompts of some human battles, and a judge compares its answer
with that of one of the two models that met there. Anchors are the models with so many human battles
that their ratings carry the scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from elo_exp.arena.judge_calibration import Calibration, Reliability
from elo_exp.arena.rows import At
from elo_exp.arena.sources import Arena
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Record, UserError, fingerprint

# Rating points apart within which a battle has 95 % of the information of one between equals:
# sech²(.225) = .95.
_NEAR = 78.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A human battle that placed models enter, and which of its two models they meet."""

    at: At
    question_id: str
    model_a: str
    model_b: str
    side: str  # a or b: where the opponent stands

    @property
    def opponent(self) -> str:
        return self.model_a if self.side == "a" else self.model_b


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponent(Record):
    """One placed model against one anchor, over both orders; a tie is half a win."""

    model: str
    opponent: str
    n_battles: int
    n_games: int  # both orders of each
    observed: float  # share of the games that `model` won
    predicted: float | None  # by the ratings; None where one of the two has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the placed models stand, and by which battles.

    board     calibrated; with arena.placement=raw by the judge; of humans alone where refused
    by_judge  the judge's verdicts taken as votes; None where all placements are refused
    refusal   why they are
    reliability  of each calibrated model
    """

    arena: str
    dimension: str
    judge_model: str
    placed: tuple[str, ...]
    judged: Battles  # a placed model is model_a of each
    human: Battles  # between anchors
    board: Leaderboard
    opponents: Sequence[Opponent]
    human_board: Leaderboard  # by humans alone, of anchors and placed models held out
    by_judge: Leaderboard | None = None
    soft: Leaderboard | None = None  # by the judge's scores
    refusal: str | None = None
    reliability: Mapping[str, Reliability] = field(default_factory=dict)
    calibration: Calibration | None = None
    truth: Leaderboard | None = None  # of simulated voters

    @property
    def votes(self) -> str:
        """Whose votes the scale rests on, as an adjective."""
        return "simulated" if self.truth else "human"

    @property
    def battles(self) -> Battles:
        """All battles that the ratings are fitted to."""
        return self.judged.concatenate(self.human)

    @property
    def mae(self) -> float | None:
        """Mean absolute distance of the anchors from where humans alone put them, in points.

        Their mean is the same on both boards. None where the placement is refused.
        """
        rating = {row.model: row.rating for row in self.board.ratings}
        pairs = [
            (row.rating, rating.get(row.model))
            for row in self.human_board.ratings
            if row.model not in self.placed
        ]
        gaps = np.array([a - b for a, b in pairs if a is not None and b is not None])
        if self.refusal or not len(gaps):
            return None
        return float(np.abs(gaps - gaps.mean()).mean())

    def n_judged(self, model: str) -> int:
        names = np.array(self.judged.models)
        return int((names[self.judged.model_a] == model).sum())

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


def check_new(placed: Collection[str], arena: Arena) -> None:
    """Raise UserError for a model that is placed and has human battles already."""
    for model in placed:
        if model in arena.battles.models:
            raise UserError(
                f"entrant: {model!r} is a model of {arena.name} already. Give the entrant another "
                "name, or hold the model's human battles out with "
                f"'arena.hold_out=[{model}]'."
            )


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
    is_b = rng.integers(2, size=len(battles)).tolist()
    is_anchor = np.isin(battles.models, list(anchors))
    eligible = is_anchor[battles.model_a] & is_anchor[battles.model_b]
    found: dict[tuple[str, str], Draw] = {}
    n_drawn: Counter[str | None] = Counter()
    for i in order[eligible[order]].tolist():
        if max_per_language is not None:
            n_drawn[arena.languages[i]] += 1
            if n_drawn[arena.languages[i]] > max_per_language:
                continue
        for side in ("ba" if is_b[i] else "ab")[:sides]:
            draw = Draw(
                at=arena.at[i],
                question_id=battles.questions[battles.question[i]],
                model_a=battles.models[battles.model_a[i]],
                model_b=battles.models[battles.model_b[i]],
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
    board: Leaderboard,
    model: str,
) -> list[Draw]:
    """Return the next n at random among opponents near the model's rating so far.

    Where these are too few, then the nearest; opponents without a rating are not met.
    """
    rating = {r.model: r.rating for r in board.ratings if r.rating is not None}
    if not rating:
        return first(candidates, n, taken)
    place = estimate(board, model)

    def distance(draw: Draw) -> float:
        return max(_NEAR, abs(rating[draw.opponent] - place))

    known = [draw for draw in candidates if draw.opponent in rating]
    return first(sorted(known, key=distance), n, taken)


def estimate(board: Leaderboard, model: str) -> float:
    """Return a model's rating; without one, that of the best or the worst, which it is beyond."""
    row = board.row(model)
    if row.rating is not None:
        return row.rating
    rated = board.rating[np.isfinite(board.rating)]
    return float(rated.min() if row.flag == "winless" else rated.max())


def draw_fingerprint(draws: Sequence[Draw]) -> str:
    return fingerprint([[draw.question_id, draw.opponent, draw.side] for draw in draws])


def opponents(judged: Battles, board: Leaderboard, *, orders: str) -> list[Opponent]:
    """Compare each placed model, model_a of its battles, with each opponent, by first battle."""
    played = games(judged, orders=orders)
    m = len(judged.models)
    pair, at, number = np.unique(
        played.first * m + played.second, return_index=True, return_inverse=True
    )
    n_games = np.bincount(number)
    observed = np.bincount(number, played.score) / n_games
    n_battles = np.bincount(judged.model_a.astype(np.intp) * m + judged.model_b)[pair]
    found = []
    for i in np.argsort(at).tolist():
        model, opponent = (judged.models[code] for code in divmod(int(pair[i]), m))
        found.append(
            Opponent(
                model=model,
                opponent=opponent,
                n_battles=int(n_battles[i]),
                n_games=int(n_games[i]),
                observed=float(observed[i]),
                predicted=_expected(
                    board.row(model).rating, board.row(opponent).rating
                ),
            )
        )
    return found


def _expected(rating: float | None, other: float | None) -> float | None:
    if rating is None or other is None:
        return None
    return float(1.0 / (1.0 + 10.0 ** ((other - rating) / 400.0)))
