"""Placement of a model among human battles: the battles that it enters, and its opponents.

The placed model answers the prompts of some human battles. For each battle, a judge compares its answer with the
answer of one of the two models. Anchors are the models with enough human battles to carry the scale.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.agreement import comparison_codes
from elo_exp.analysis.conclusions import Reason
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.win_rates import pair_shares, sort_sides_by_name
from elo_exp.arena.joint_fit import JointFit
from elo_exp.arena.sources import Arena, RowLocation
from elo_exp.arena.style_distance import StyleDistance
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import Feature
from elo_exp.errors import EvidenceError
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit, make_leaderboard
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Battle, Judgment, Record

# Rating points apart within which a battle has 95% of the information of one between equals:
# sech²(.225) = .95.
_NEARBY_POINTS = 78.0
_MIN_BATTLES_FOR_TEMPERATURE = 10
# At this temperature the chances are within .00005 of 1
_MAX_TEMPERATURE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBattle:
    """A human battle that placed models enter, and which of its two models, 0 or 1, they meet."""

    location: RowLocation
    question_id: str
    models: tuple[str, str]
    side: int

    @property
    def opponent(self) -> str:
        return self.models[self.side]


# Largest accepted shift of a rating by missing results, in half-widths of its interval: with such a bias, the interval
# covers the truth in 92%
MAX_MISSING_SHIFT = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingResults(Record):
    """The battles of a placed model without a result, and its rating if it lost them, or won them.

    n_battles   battles that the model entered
    n_lacks     battles without a usable answer of the model
    n_failed    n_lacks that are recorded failures, which count as losses in both cases
    n_unjudged  battles with an answer but without a valid verdict
    low, high   its rating if it lost them, and if it won them; None if it then has no rating
    """

    n_battles: int
    n_lacks: int
    n_failed: int
    n_unjudged: int
    low: Rating | None = None
    high: Rating | None = None

    @property
    def n_missing(self) -> int:
        return self.n_lacks + self.n_unjudged

    def list_reasons(self, row: Rating) -> list[Reason]:
        """Return a reason if the missing results could move a rating by more than its interval allows for."""
        ends = [end.rating if end else None for end in (self.low, self.high)]
        half_width = None
        if row.ci_low is not None and row.ci_high is not None:
            half_width = (row.ci_high - row.ci_low) / 2.0
        if row.rating is not None and half_width is not None and None not in ends:
            shift = max(abs((end or 0.0) - row.rating) for end in ends)
            if shift <= MAX_MISSING_SHIFT * half_width:
                return []
        about = {"of": self.n_battles, "low": ends[0], "high": ends[1]}
        return [Reason(name="failures", value=float(self.n_missing), about=about)]


@dataclass(slots=True, kw_only=True)
class Placement:
    """The placed models with their leaderboards, battles and checks.

    board        calibrated; on the judge's scale with arena.placement=raw; by humans alone if the placement is refused
    judge_board  next to a calibrated board: the leaderboard on the judge's scale, with its verdicts as votes
    kin          placed models and anchors of the judge's model family
    refusal      why the placement is refused; else None
    reasons      by placed model, why its rating needs care
    controlled_features, uncontrolled_board  features that the rating controls for, and the board without this control
    style        by placed model, the style distance of its answers from the anchors
    missing      by placed model with missing results, their numbers and how far they could move its rating
    agreement, temperature, fit  of the judge and the humans; None if the judge repeated no human battle
    """

    arena: str
    judge_model: str
    placed_models: tuple[str, ...]
    judged_battles: Battles  # a placed model is model_a of each
    human_battles: Battles  # between anchors
    board: Leaderboard
    human_board: Leaderboard  # by humans alone, of anchors and placed models held out
    kin: JudgeFamily = field(default_factory=JudgeFamily)
    judge_board: Leaderboard | None = None
    soft_board: Leaderboard | None = None  # by the judge's scores
    refusal: Reason | None = None
    reasons: Mapping[str, Sequence[Reason]] = field(default_factory=dict)
    controlled_features: tuple[Feature, ...] = ()
    uncontrolled_board: Leaderboard | None = None
    style: Mapping[str, StyleDistance] = field(default_factory=dict)
    missing: Mapping[str, MissingResults] = field(default_factory=dict)
    agreement: Mapping[str, Any] | None = None
    temperature: float | None = None
    fit: JointFit | None = None
    true_board: Leaderboard | None = None  # of simulated voters

    @property
    def votes(self) -> str:
        """The adjective for the votes of the scale: human or simulated."""
        return "simulated" if self.true_board else "human"

    @property
    def anchor_mae(self) -> float | None:
        """Mean absolute distance of the anchors from their ratings by human votes alone, in points.

        Their mean is the same on both boards. None if the placement is refused.
        """
        ours, humans = self.board, self.human_board
        names, i, j = np.intersect1d(ours.models, humans.models, return_indices=True)
        gaps = (ours.rating[i] - humans.rating[j])[~np.isin(names, self.placed_models)]
        gaps = gaps[np.isfinite(gaps)]
        if self.refusal or not len(gaps):
            return None
        return float(np.abs(gaps - gaps.mean()).mean())

    def count_judged(self, model: str) -> int:
        return int(
            self.judged_battles.n_battles()[self.judged_battles.models.index(model)]
        )

    def source(self, model: str) -> str:
        """Return the kind of battles that rate the model: evaluated or human."""
        return "evaluated" if model in self.placed_models else "human"


def find_anchors(arena: Arena, min_battles: int, *, n_least: int = 2) -> list[str]:
    """Return the models with at least `min_battles` human battles, sorted. Raises EvidenceError for too few."""
    models, counts = np.array(arena.battles.models), arena.battles.n_battles()
    names: list[str] = models[counts >= min_battles].tolist()
    if len(names) < n_least:
        busiest = int(counts.argmax())
        raise EvidenceError(
            f"A placement needs at least {n_least} models with {min_battles} human battles; {arena.name} has {len(names)}. "
            "Lower arena.min_battles.",
            f"  {models[busiest]} has the most human battles, {counts[busiest]}.",
            *["  Or place on the judge's own scale: arena.placement=raw"]
            * (len(names) > 1),
        )
    return names


def draw_battles(
    arena: Arena,
    anchors: Collection[str],
    *,
    seed: int,
    sides: int = 1,
    max_per_language: int | None = None,
) -> list[DrawnBattle]:
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
    unique_draws: dict[tuple[str, str], DrawnBattle] = {}
    n_drawn: Counter[str | None] = Counter()
    for i in order[eligible[order]].tolist():
        if max_per_language is not None:
            n_drawn[arena.languages[i]] += 1
            if n_drawn[arena.languages[i]] > max_per_language:
                continue
        a, b = battles.model_a[i], battles.model_b[i]
        for side in (coin[i], 1 - coin[i])[:sides]:
            draw = DrawnBattle(
                location=arena.locations[i],
                question_id=battles.questions[battles.question[i]],
                models=(battles.models[a], battles.models[b]),
                side=side,
            )
            unique_draws.setdefault((draw.question_id, draw.opponent), draw)
    return list(unique_draws.values())


def take_first(
    candidates: Sequence[DrawnBattle], n: int, previous: Collection[DrawnBattle] = ()
) -> list[DrawnBattle]:
    """Return the first n battles that are not taken yet, at most one per human battle."""
    used = {draw.location for draw in previous}
    draw_by_location: dict[RowLocation, DrawnBattle] = {}
    for draw in candidates:
        if len(draw_by_location) < n and draw.location not in used:
            draw_by_location.setdefault(draw.location, draw)
    return list(draw_by_location.values())


def draw_near_rating(
    candidates: Sequence[DrawnBattle],
    n: int,
    previous: Collection[DrawnBattle],
    battles: Battles,
    model: str,
) -> list[DrawnBattle]:
    """Return the next n at random among opponents near the model's rating by its battles so far.

    Where these are too few, then the nearest; opponents without a rating are not met. A model
    without one is beyond the best, or the worst.
    """
    fit = Fit.from_games(make_games(battles, orders="both"))
    names: list[str] = np.array(battles.models)[fit.is_rated].tolist()
    points: list[float] = (POINTS_PER_LOG_ODDS * fit.theta).tolist()
    rating = dict(zip(names, points, strict=True))
    if not rating:
        return take_first(candidates, n, previous)
    is_winless = not fit.wins[battles.models.index(model)].any()
    end = min(rating.values()) if is_winless else max(rating.values())
    model_rating = rating.get(model, end)

    def distance(draw: DrawnBattle) -> float:
        return max(_NEARBY_POINTS, abs(rating[draw.opponent] - model_rating))

    rated_candidates = [draw for draw in candidates if draw.opponent in rating]
    return take_first(sorted(rated_candidates, key=distance), n, previous)


def compare_with_opponents(
    judged_battles: Battles, placed: Collection[str], board: Leaderboard
) -> list[dict[str, Any]]:
    """Compare each placed model with each opponent, over both orders; a tie is half a win.

    predicted  share of wins by the ratings; pairs of which one has none are left out
    """
    rating = dict(zip(board.models, board.rating.tolist(), strict=True))
    rows = []
    for pair, win_rate in pair_shares(judged_battles).items():
        is_first = pair[0] in placed
        model, opponent = pair if is_first else pair[::-1]
        predicted = float(
            scipy.special.expit(
                (rating[model] - rating[opponent]) / POINTS_PER_LOG_ODDS
            )
        )
        row = {
            "model": model,
            "opponent": opponent,
            "n_battles": win_rate.n_prompts,
            "n_games": win_rate.n_games,
            "observed": win_rate.share if is_first else 1.0 - win_rate.share,
            "predicted": predicted,
        }
        if not math.isnan(predicted):
            rows.append(row)
    return rows


# Judge and humans on the same battles


def fit_temperature(human: Battles, judged_battles: Battles) -> float | None:
    """Estimate T in [0, 10]: a human prefers model_a with probability 1 / (1 + exp(-T margin)).

    By maximum likelihood, from battles with a winner by both; None for too few. 0 where the judge's
    verdicts say nothing of what humans prefer, or the contrary. The margin is 1 where both orders of
    the judge name model_a, -1 where both name the other: 2 score - 1, the mean over the orders.
    """
    human, judged_battles = (
        sort_sides_by_name(human),
        sort_sides_by_name(judged_battles),
    )
    played = make_games(judged_battles, orders="both")
    score = np.bincount(played.battle, played.score) / np.bincount(played.battle)
    (vote_codes, verdict_codes), _ = comparison_codes([human, judged_battles])
    vote, verdict = np.nonzero(vote_codes[:, None] == verdict_codes)
    agreement = (2.0 * human.scores()[vote] - 1.0) * (2.0 * score[verdict] - 1.0)
    agreement = agreement[agreement != 0.0]
    if len(agreement) < _MIN_BATTLES_FOR_TEMPERATURE:
        return None
    optimum = scipy.optimize.minimize_scalar(
        lambda t: np.logaddexp(0.0, -t * agreement).sum(),
        bounds=(0.0, _MAX_TEMPERATURE),
        options={"xatol": 1e-9},
    )
    return round(float(optimum.x), 6)  # to the ends of the range, which are not tried


def rate_by_scores(
    judgments: Sequence[Judgment],
    human: Battles,
    placed: Collection[str],
    *,
    soft: float | str,
    initial_rating: float,
) -> Leaderboard | None:
    """Rate models by preferences 1 / (1 + exp(-T (s_a - s_b))) from the judge's scores s, 0 to 10.

    Each order is a game, but for those without scores; human votes are games, too.

    judgments  of placed models, and of the human battles that calibrate T
    soft       T; or calibrated: by the likelihood of untied human battles
    Returns the leaderboard on the judge's scale; None where too few battles calibrate T.
    """
    judged_battles, recalibration = (
        _build_score_battles(
            [j for j in judgments if (j.entrant_a in placed) == is_placed]
        )
        for is_placed in (True, False)
    )
    t = fit_temperature(human, recalibration) if isinstance(soft, str) else soft
    if t is None or not len(judged_battles):
        return None
    share = scipy.special.expit(t * (2.0 * judged_battles.score - 1.0))
    all_battles = concatenate_battles(replace(judged_battles, score=share), human)
    fit = Fit.from_games(make_games(all_battles, orders="reconciled"))
    return make_leaderboard(
        replace(fit, parameters={"temperature": t}),
        all_battles,
        label="Soft Elo",
        interval="prompt-clustered",
        initial_rating=initial_rating,
    )


def _build_score_battles(judgments: Sequence[Judgment]) -> Battles:
    """Make a battle of each order with scores; its margin, 2 score - 1, is how far these are apart."""
    rows = []
    for judgment in judgments:
        for verdict in judgment.orders:
            if verdict.scores is not None:
                first_score, second_score = verdict.scores
                entrants = judgment.entrant_a, judgment.entrant_b
                a, b = entrants[::-1] if verdict.position_swap else entrants
                row = Battle(
                    model_a=a,
                    model_b=b,
                    winner="tie",
                    question_id=judgment.prompt_id,
                    score=(1.0 + first_score - second_score) / 2.0,
                )
                rows.append(row)
    return Battles.from_rows(rows)
