"""Where a model stands among human battles: which of them it enters, against whom, and how well its rating fits.

The model that is placed answers the prompts of some human battles, and a judge compares its answer with that of one of
the two models that met there. Anchors are the models with so many human battles that their ratings carry the scale.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.arena.judge_calibration import Calibration
from elo_exp.arena.rows import At
from elo_exp.arena.sources import Arena
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Record, UserError, fingerprint

_NEAR = 78.0  # rating points apart, within which a battle tells 95 % of what one between equals does: sech²(.225) = .95
_SCORE = {"model_a": 1.0, "model_b": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw(Record):
    """A human battle that placed models enter, and which of its two models they meet."""

    at: At
    question_id: str
    opponent: str
    side: str  # a or b: where the opponent stands


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
    """Where the placed models stand, and what it rests on."""

    arena: str
    dimension: str
    judge_model: str
    placed: tuple[str, ...]
    judged: Sequence[Battle]  # a placed model is model_a of each
    human: Sequence[Battle]  # between anchors
    board: Leaderboard
    opponents: Sequence[Opponent]
    calibration: Calibration | None = None
    human_board: Leaderboard | None = (
        None  # by humans alone, where placed models were held out
    )

    @property
    def battles(self) -> list[Battle]:
        """All that the ratings rest on."""
        return [*self.judged, *self.human]

    def n_judged(self, model: str) -> int:
        return sum(battle.model_a == model for battle in self.judged)

    def source(self, model: str) -> str:
        """Whose battles rate the model."""
        return "evaluated" if model in self.placed else "human"


def anchors(arena: Arena, min_battles: int) -> list[str]:
    """The models with that many human battles, sorted. Raises UserError for fewer than two."""
    counts = Counter(model for battle in arena.battles for model in battle.models)
    found = sorted(model for model, n in counts.items() if n >= min_battles)
    if len(found) < 2:
        (model, most), *_ = counts.most_common(1)
        raise UserError(
            f"arena.min_battles: {len(found)} models of {arena.name} have {min_battles} human battles or more (most: "
            f"{model} with {most}). A placement needs two anchors at least. Lower arena.min_battles."
        )
    return found


def among(battles: Sequence[Battle], models: Collection[str]) -> list[Battle]:
    """The battles both of whose models are among these."""
    chosen = set(models)
    return [b for b in battles if b.model_a in chosen and b.model_b in chosen]


def check_new(placed: Collection[str], arena: Arena) -> None:
    """Raise UserError for a model that is placed and has human battles already."""
    for model in placed:
        if model in arena.models:
            raise UserError(
                f"entrant: {model!r} is a model of {arena.name} already. Give the entrant another name, or hold the "
                f"model's human battles out with 'arena.hold_out=[{model}]'."
            )


def draws(
    arena: Arena, anchors: Collection[str], *, seed: int, sides: int = 1
) -> list[Draw]:
    """The human battles between anchors in a random order, each with one side drawn as opponent, or with both.

    The first n of one seed are the same whatever n is, so that a larger draw asks the judge nothing twice. An opponent
    is met once on a question, however many humans have judged it there.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(arena.battles)).tolist()
    is_b = rng.integers(2, size=len(arena.battles)).tolist()
    eligible = set(anchors)
    found: dict[tuple[str, str], Draw] = {}
    for i in order:
        battle = arena.battles[i]
        if battle.model_a not in eligible or battle.model_b not in eligible:
            continue
        drawn = ("a", "b") if not is_b[i] else ("b", "a")
        for side in drawn[:sides]:
            opponent = battle.model_a if side == "a" else battle.model_b
            question = str(battle.question_id)
            draw = Draw(
                at=arena.at[i], question_id=question, opponent=opponent, side=side
            )
            found.setdefault((question, opponent), draw)
    return list(found.values())


def adaptive(
    candidates: Sequence[Draw],
    taken: Collection[Draw],
    ratings: Mapping[str, float],
    estimate: float,
    n: int,
) -> list[Draw]:
    """The next n, each of a battle not taken yet: at random among opponents near the estimate, in rating points; where
    these are too few, the nearest."""
    used = {draw.at for draw in taken}
    left = [draw for draw in candidates if draw.at not in used]
    return first(
        sorted(
            left, key=lambda draw: max(_NEAR, abs(ratings[draw.opponent] - estimate))
        ),
        n,
    )


def estimate(board: Leaderboard, model: str) -> float:
    """Its rating; while it has none, that of the best or of the worst, whichever it is beyond."""
    rating = board.row(model)
    rated = [r.rating for r in board.ratings if r.rating is not None]
    return (
        rating.rating
        if rating.rating is not None
        else min(rated)
        if rating.flag == "winless"
        else max(rated)
    )


def first(candidates: Sequence[Draw], n: int) -> list[Draw]:
    """The first n, one of each human battle."""
    found: dict[At, Draw] = {}
    for draw in candidates:
        if len(found) == n:
            break
        found.setdefault(draw.at, draw)
    return list(found.values())


def draw_fingerprint(draws: Sequence[Draw]) -> str:
    return fingerprint([[draw.question_id, draw.opponent, draw.side] for draw in draws])


def opponents(
    judged: Sequence[Battle], board: Leaderboard, *, use: str
) -> list[Opponent]:
    """Each placed model, model_a of its battles, against each opponent, in the order of their first battle."""
    scores: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    n_judged: Counter[tuple[str, str]] = Counter()
    for battle in judged:
        pair = (battle.model_a, battle.model_b)
        n_judged[pair] += 1
        scores[pair] += [_SCORE.get(winner, 0.5) for winner in battle.results(use=use)]
    rating = {r.model: r.rating for r in board.ratings}
    return [
        Opponent(
            model=model,
            opponent=opponent,
            n_battles=n_judged[model, opponent],
            n_games=len(some),
            observed=sum(some) / len(some),
            predicted=_expected(rating[model], rating[opponent]),
        )
        for (model, opponent), some in scores.items()
    ]


def _expected(rating: float | None, other: float | None) -> float | None:
    return (
        None
        if rating is None or other is None
        else 1.0 / (1.0 + 10.0 ** ((other - rating) / 400.0))
    )
