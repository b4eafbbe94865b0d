"""Ratings of battles by every method, and their analysis, as one plain object."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis import bounded_scores, missing_answers
from elo_exp.analysis.agreement import (
    correlate_judge_ratings,
    pairwise_kappa,
    repeat_agreement,
)
from elo_exp.analysis.bounded_scores import Scale, find_scale
from elo_exp.analysis.checks import Check, check_judge
from elo_exp.analysis.comparisons import (
    ALPHA,
    Difference,
    add_ranks,
    adjust_by_holm,
    differences,
    find_leader,
)
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.analysis.conclusions import Conclusion
from elo_exp.analysis.diagnosis import Diagnosis, KnownOrder, StrataDiagnosis
from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.goodness_of_fit import (
    count_cycles,
    find_most_varied_gap,
    heterogeneity,
    split_by_stratum,
    transitivity,
)
from elo_exp.analysis.judge_bias import length_control, position_effect
from elo_exp.analysis.judge_quality import (
    InvalidShare,
    JudgeQuality,
    bound_rating,
    invalid_shares,
)
from elo_exp.analysis.mean_scores import mean_scores, pass_rates
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.analysis.power import Precision, estimate_precision
from elo_exp.analysis.sequential_tests import Wave
from elo_exp.analysis.shrinkage import add_p_best
from elo_exp.analysis.stratum_reversals import rivals_ahead
from elo_exp.analysis.variance import Variance, estimate_variance
from elo_exp.analysis.win_rates import WinRate, win_rates
from elo_exp.arrays import make_rows
from elo_exp.data import identical_answers
from elo_exp.data.battles import Battles
from elo_exp.data.scores import Score
from elo_exp.data.writing_style import Feature, add_style
from elo_exp.errors import UserError
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard, compute_running_means
from elo_exp.records import FIXED_SEED, Comparison, Judgment, MissingBattle, Rows

_STRATUM_COLUMNS = ("model", "rating", "ci_low", "ci_high", "n_battles")
ELO = "elo"
_SCORE_METHOD = "mean_score"

_DimensionCase = tuple[str, WorstCase]
Rate = Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All that was concluded about who is better, by dimension."""

    models: tuple[str, ...]  # in the order in which they were chosen
    battles: Mapping[str, Battles]
    # method -> dimension; Elo is a method, at the K of the run, of the dimensions with a match
    boards: Mapping[str, Mapping[str, Leaderboard]]
    k: float = 0.0
    # of Elo at every K: dimension -> K
    elo_by_k: Mapping[str, Mapping[float, Leaderboard]] = field(default_factory=dict)
    # of Elo, by dimension
    convergence: Mapping[str, Convergence] = field(default_factory=dict)
    # by dimension, of the primary method: groups that nothing links to its leaderboard
    unlinked_groups: Mapping[str, Sequence[Leaderboard]] = field(default_factory=dict)
    win_rates: Sequence[WinRate] = ()
    # by dimension, if the primary method controls for style: its ratings without the control, and the features
    uncontrolled_boards: Mapping[str, Leaderboard] = field(default_factory=dict)
    controlled_features: tuple[Feature, ...] = ()
    # by method
    differences: Mapping[str, Sequence[Difference]] = field(default_factory=dict)
    # by method
    precision: Mapping[str, Sequence[Precision]] = field(default_factory=dict)
    # by dimension, what the diagnoses of the judge read
    fits: Mapping[str, DimensionFit] = field(default_factory=dict)
    # by dimension, JSON
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=dict)
    # by dimension, of those with several draws
    variance: Mapping[str, Variance] = field(default_factory=dict)
    agreement: Rows = ()  # of dimensions with each other
    responses: Rows = ()
    judges_agreement: Rows = ()  # of every two judges in the store, by dimension
    judges_ranks: Rows = ()  # of the ratings by what both of them judged
    # by dimension, of the judge and of the leaderboard of the primary method
    checks: Mapping[str, Sequence[Check]] = field(default_factory=dict)
    conclusions: Mapping[str, Conclusion] = field(default_factory=dict)
    # by dimension: planned comparisons without a result
    missing: Mapping[str, Sequence[MissingBattle]] = field(default_factory=dict)
    # by dimension: the tests on which a lead rests, if what is missing counts against it; none without a missing result
    worst_cases: Mapping[str, Sequence[WorstCase]] = field(default_factory=dict)
    # by dimension: of a first that is level with one other, the interval of their difference if what is missing counts
    # against either of them; none without a missing result
    level_ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self.battles)

    @property
    def is_scored(self) -> bool:
        """Whether items were scored, and nothing was compared: no battles, and no Elo."""
        return self.primary_method == _SCORE_METHOD

    @property
    def primary_method(self) -> str | None:
        """The method that leads; None if Elo alone was chosen, which tests no difference."""
        return primary_method([method for method in self.boards if method != ELO])

    def board(self, dimension: str, method: str | None = None) -> Leaderboard | None:
        """Return the leaderboard of a method, by default that of the method that leads, or of Elo alone."""
        boards = self.boards.get(method or self.primary_method or ELO, {})
        return boards.get(dimension)

    @property
    def mean_boards(self) -> Mapping[str, Leaderboard]:
        """The leaderboards of mean scores, by dimension; none if nothing was scored."""
        return self.boards.get(_SCORE_METHOD, {})

    def pairs(self, dimension: str) -> list[Difference]:
        """Return the differences on that leaderboard."""
        tested = self.differences.get(self.primary_method or "", ())
        return [pair for pair in tested if pair.dimension == dimension]

    def n_prompts(self, dimension: str) -> int | None:
        """Count the prompts, or the independent items that were scored; None where none is named."""
        battles, board = self.battles[dimension], self.board(dimension)
        if self.is_scored and board:
            return board.n_clusters
        return battles.n_prompts() if battles.names_prompts() else None


def rate(
    battles: Mapping[str, Battles],
    *,
    elo: EloMethod,
    ratings: Mapping[str, RatingMethod],
    models: Sequence[str],
    matches: Mapping[str, Battles] | None = None,
) -> Standings:
    """Rate the battles of each dimension by every method and analyse them.

    Parameters
    ----------
    battles : mapping of str to Battles
        By dimension.
    elo : EloMethod
        With its values of K.
    ratings : mapping of str to RatingMethod
        By name; the primary one also ranks models that took every point, or none.
    models : sequence of str
        In the order that fixes their colours.
    matches : mapping of str to Battles, optional
        The battles that Elo plays; None: all.

    Returns
    -------
    Standings
        In rating points; without diagnoses that need texts or judgments, and without checks.

    Raises
    ------
    UserError
        For battles that a method cannot rate.
    """
    matches = matches or battles
    method, k = primary_method(ratings), float(elo.k)
    boards = leaderboards(battles, ratings, one_sided_of=method)
    elo_by_k = elo.rate_each_k(matches)
    elo_boards = {name: by_k[k] for name, by_k in elo_by_k.items() if k in by_k}
    fitted = {
        dimension: DimensionFit.of(dimension_battles)
        for dimension, dimension_battles in battles.items()
    }
    raw, controlled = (
        _rate_without_control(ratings[method], battles) if method else ({}, ())
    )
    return Standings(
        models=tuple(models),
        battles=battles,
        boards={ELO: elo_boards, **boards},
        k=k,
        elo_by_k=elo_by_k,
        convergence=elo.convergence(matches),
        unlinked_groups={
            dimension: _rate_unlinked_groups(battles[dimension], board, ratings[method])
            for dimension, board in boards[method].items()
        }
        if method
        else {},
        win_rates=[
            row
            for dimension, dimension_battles in battles.items()
            for row in win_rates(dimension_battles, dimension=dimension)
        ],
        uncontrolled_boards=raw,
        controlled_features=controlled,
        differences={
            name: differences(method_boards) for name, method_boards in boards.items()
        },
        precision={
            name: estimate_precision(method_boards)
            for name, method_boards in boards.items()
        },
        fits=fitted,
        diagnoses={name: _diagnose_judge(fit, name) for name, fit in fitted.items()},
        variance={
            name: components
            for name, dimension_battles in battles.items()
            if (components := estimate_variance(dimension_battles)) is not None
        },
        agreement=pairwise_kappa(battles),
    )


def _rate_without_control(
    method: RatingMethod, battles: Mapping[str, Battles]
) -> tuple[Mapping[str, Leaderboard], tuple[Feature, ...]]:
    """Rate by the same method without its control for style; {} and () if it has none."""
    features: Sequence[Feature] = getattr(method, "style", ())
    if not features:
        return {}, ()
    plain: Any = method
    return rate_with_unbeaten(dataclasses.replace(plain, style=()), battles), (
        *features,
    )


def rate_scores(
    rows: Sequence[Score],
    *,
    allow_missing: bool,
    at: Sequence[int] = (),
    hat: Sequence[int] = (),
    scale: Sequence[float] | Mapping[str, Scale | None] | None = None,
) -> Standings:
    """Compare mean scores in each dimension, by the tests and rank sets of ratings.

    Pass rates are further methods, each with tests of its own.

    Parameters
    ----------
    rows : sequence of Score
        Of all dimensions.
    allow_missing : bool
        Whether fewer than half of the items may be in common.
    at, hat : sequence of int
        Each k of pass@k, and of pass^k.
    scale : sequence of float or mapping of str to (float, float), optional
        The least and the greatest score, of all dimensions or by dimension; None: 0 and 1, if no score lies outside
        them.

    Returns
    -------
    Standings
        In the unit of the scores, without battles.

    Raises
    ------
    FileError, SettingError, EvidenceError
        As `mean_scores` and `pass_rates`.
    """
    by_method: dict[str, dict[str, Leaderboard]] = {_SCORE_METHOD: {}}
    scales = dict[str, Scale | None]()
    for name in dict.fromkeys(row.dimension for row in rows):
        dimension_rows = [row for row in rows if row.dimension == name]
        declared = scale.get(name) if isinstance(scale, Mapping) else scale
        scales[name] = find_scale(dimension_rows, declared)
        boards = {
            _SCORE_METHOD: mean_scores(
                name, dimension_rows, allow_missing, scale=scales[name]
            )
        }
        boards |= pass_rates(name, dimension_rows, allow_missing, at=at, hat=hat)
        for method, board in boards.items():
            ranked = add_ranks(board, np.random.default_rng(FIXED_SEED))
            by_method.setdefault(method, {})[name] = ranked
    score_boards = by_method[_SCORE_METHOD]
    standings = Standings(
        models=tuple(
            sorted({model for b in score_boards.values() for model in b.models})
        ),
        battles=dict.fromkeys(score_boards, Battles.from_rows([])),
        boards=by_method,
        differences={
            method: differences(boards) for method, boards in by_method.items()
        },
    )
    return _test_with_missing_scores(standings, rows, scales)


def _test_with_missing_scores(
    standings: Standings, rows: Sequence[Score], scales: Mapping[str, Scale | None]
) -> Standings:
    """Test the leader of each dimension again on all items, with missing scores counted against it."""
    cases = list[_DimensionCase]()
    for name, board in standings.boards[_SCORE_METHOD].items():
        counts = board.parameters
        if counts["n_common"] == counts["n_items"] and not counts["n_missing"]:
            continue
        dimension_rows = [row for row in rows if row.dimension == name]
        pairs = standings.pairs(name)
        if (leader := find_leader(board, pairs)) is None:
            continue
        for higher, lower in missing_answers.list_claims(
            leader.model, leader.below, pairs
        ):
            case = bounded_scores.worst_case(
                dimension_rows, higher, lower, scales[name]
            )
            cases.append((name, case))
    return _add_worst_cases(standings, cases)


def primary_method(methods: Collection[str]) -> str | None:
    """Return the method that leads.

    Parameters
    ----------
    methods : collection of str
        Names of those that were chosen beside Elo.

    Returns
    -------
    str or None
        Bradley-Terry, or the first of the methods chosen instead; None: Elo alone was.
    """
    return "bradley_terry" if "bradley_terry" in methods else next(iter(methods), None)


def _rate_unlinked_groups(
    battles: Battles, board: Leaderboard, method: RatingMethod
) -> list[Leaderboard]:
    """Rate the groups of models that are linked to each other but not to the models of the leaderboard."""
    groups: list[Leaderboard] = []
    while True:
        unlinked = [
            row.model
            for row in board.ratings
            if row.flag in ("disconnected", "separated")
        ]
        linked = battles.select_between(unlinked)
        try:
            boards = leaderboards({"": linked}, {"": method})[""] if len(linked) else {}
        except UserError:  # the model that fixes the scale is not among them
            boards = {}
        if not boards or not np.isfinite(boards[""].rating).any():
            return groups
        board = boards[""]
        groups.append(board)


def leaderboards(
    battles: Mapping[str, Battles],
    ratings: Mapping[str, RatingMethod],
    *,
    one_sided_of: str | None = None,
) -> dict[str, dict[str, Leaderboard]]:
    """Rate the battles of each dimension by every method, with rank sets and the chance of being best.

    Each has draws of its own, so that no dimension depends on another.

    Parameters
    ----------
    battles : mapping of str to Battles
        By dimension.
    ratings : mapping of str to RatingMethod
        By name.
    one_sided_of : str, optional
        The method that also ranks models that took every point, or none.

    Returns
    -------
    dict of str to dict of str to Leaderboard
        By method and dimension.
    """
    boards = {}
    for name, method in ratings.items():
        is_primary = name == one_sided_of
        rated = (
            rate_with_unbeaten(method, battles) if is_primary else method.rate(battles)
        )
        boards[name] = {
            dimension: add_p_best(add_ranks(board, np.random.default_rng(FIXED_SEED)))
            for dimension, board in rated.items()
        }
    return boards


def _diagnose_judge(fitted: DimensionFit, dimension: str) -> Diagnosis:
    """Diagnose the judge by its battles; both orders count, whatever the ratings use."""
    test, residuals = transitivity(fitted, dimension=dimension)
    return {
        "position": position_effect(fitted, dimension=dimension),
        "transitivity": test,
        "pair_residuals": residuals,
        "cycles": count_cycles(fitted.battles, dimension=dimension),
        "equal_answers": identical_answers.count_equal_in_battles(fitted.battles),
    }


def add_diagnoses(
    standings: Standings, *additions: Mapping[str, Diagnosis], **changes: Any
) -> Standings:
    """Add diagnoses to those of a dimension.

    Parameters
    ----------
    standings : Standings
        Whose dimensions are kept.
    *additions : mapping of str to mapping
        Diagnoses by name, by dimension; later ones replace those of the same name.
    **changes
        Other fields of the standings.

    Returns
    -------
    Standings
    """
    diagnoses = dict(standings.diagnoses)
    for addition in additions:
        for dimension in diagnoses.keys() & addition.keys():
            diagnoses[dimension] = {**diagnoses[dimension], **addition[dimension]}
    return dataclasses.replace(standings, diagnoses=diagnoses, **changes)


def diagnose_texts(
    standings: Standings,
    comparisons: Mapping[str, Sequence[Comparison]],
    judgments: Mapping[str, Sequence[Judgment]],
    rate: Rate,
    *,
    initial_rating: float,
) -> dict[str, Diagnosis]:
    """Diagnose the effect of length, invalid verdicts, repeated queries and equal answers.

    Parameters
    ----------
    standings : Standings
        With battles from these judgments.
    comparisons : mapping of str to sequence of Comparison
        By dimension, with both texts.
    judgments : mapping of str to sequence of Judgment
        By dimension.
    rate : callable
        From battles by dimension to leaderboards: the method that bounds what invalid verdicts hide.
    initial_rating : float
        Rating points of the mean.

    Returns
    -------
    dict of str to Diagnosis
        `length`, `repeats`, `invalid` and `equal_answers` by dimension.
    """
    diagnoses = dict[str, Diagnosis]()
    for dimension, battles in standings.battles.items():
        rows, own_judgments = battles.rows(), judgments[dimension]
        invalid = list[InvalidShare]()
        for share in invalid_shares(own_judgments, dimension=dimension):
            low, high = None, None
            if share.differs:
                low, high = bound_rating(
                    rows, own_judgments, comparisons[dimension], share.model, rate
                )
            invalid.append(dataclasses.replace(share, bound_low=low, bound_high=high))
        diagnoses[dimension] = {
            "length": length_control(
                Battles.from_rows(add_style(rows, comparisons[dimension])),
                dimension=dimension,
                initial_rating=initial_rating,
            ),
            "repeats": repeat_agreement(own_judgments, dimension=dimension),
            "invalid": invalid,
            "equal_answers": identical_answers.count_equal_in_comparisons(
                comparisons[dimension]
            ),
        }
    return diagnoses


def add_checks(standings: Standings, quality: Sequence[JudgeQuality] = ()) -> Standings:
    """Add the checks of the judge.

    Parameters
    ----------
    standings : Standings
        With all of its diagnoses.
    quality : sequence of JudgeQuality, optional
        Of the judgments of each dimension; empty where they are not known.

    Returns
    -------
    Standings
        With checks by dimension.
    """
    dimension_quality, dimension_checks = {row.dimension: row for row in quality}, {}
    for name, battles in standings.battles.items():
        board = standings.board(name)
        leader = find_leader(board, standings.pairs(name)) if board else None
        is_ahead = leader is not None and leader.lead and leader.lead.significant
        dimension_checks[name] = check_judge(
            battles,
            standings.diagnoses.get(name, {}),
            dimension_quality.get(name),
            (leader.model, leader.second) if leader and is_ahead else (),
            standings.responses,
        )
    return dataclasses.replace(standings, checks=dimension_checks)


def drop_elo(standings: Standings) -> Standings:
    """Drop Elo, which has no interval of votes.

    Parameters
    ----------
    standings : Standings
        With or without Elo.

    Returns
    -------
    Standings
    """
    boards = {name: b for name, b in standings.boards.items() if name != ELO}
    return dataclasses.replace(standings, boards=boards, elo_by_k={}, convergence={})


def apply_looks(standings: Standings, wave: Wave) -> Standings:
    """Put what planned looks have resolved in place of tests that know of no looks.

    A rank counts the entrants that are significantly better.

    Parameters
    ----------
    standings : Standings
        Of all that was judged.
    wave : Wave
        The last one.

    Returns
    -------
    Standings
        With the differences and ranks of the looks, for the primary method, and a row for each look.
    """
    method = standings.primary_method or ""
    resolved_pairs = sorted(
        wave.resolutions, key=lambda d: -(d.difference or d.ci_low or 0.0)
    )
    boards, looks = {}, dict[str, Diagnosis]()
    for dimension, board in standings.boards[method].items():
        resolved = [
            r for r in resolved_pairs if r.dimension == dimension and r.significant
        ]
        n_better = [[r.lower for r in resolved].count(name) for name in board.models]
        n_worse = [[r.higher for r in resolved].count(name) for name in board.models]
        ranks = np.where(board.ranks() > 0, 1.0, np.nan)
        boards[dimension] = add_p_best(
            dataclasses.replace(
                board,
                rank_low=ranks + n_better,
                rank_high=ranks * np.nansum(ranks) - n_worse,
                p_best=None,
            )
        )
        looks[dimension] = {
            "looks": [look for look in wave.looks if look.dimension == dimension]
        }
    return add_diagnoses(
        standings,
        looks,
        boards={**standings.boards, method: boards},
        differences={method: resolved_pairs},
    )


def add_missing(
    standings: Standings,
    missing: Mapping[str, Sequence[MissingBattle]],
    method: RatingMethod | EloMethod,
) -> Standings:
    """Test the first of each dimension once more, with what is missing counted against it.

    The p values take the place of those of the answered comparisons among the tests of all dimensions, which Holm's
    method adjusts together. After planned looks a lead has to be beyond the boundary of its look.

    Parameters
    ----------
    standings : Standings
        With the differences of the answered comparisons.
    missing : mapping of str to sequence of MissingBattle
        Planned comparisons without a result, by dimension.
    method : RatingMethod or EloMethod
        Of the leaderboard; Elo has no test, and no worst case.

    Returns
    -------
    Standings
        With `missing` and `worst_cases`.
    """
    name = standings.primary_method
    in_both = missing_answers.plans_both_orders(method)
    is_incomplete = {
        dimension: bool(missing.get(dimension))
        or (in_both and bool(missing_answers.find_missing_orders(battles).any()))
        for dimension, battles in standings.battles.items()
    }
    if name is None or not any(is_incomplete.values()):
        return dataclasses.replace(standings, missing=missing)
    cases = list[_DimensionCase]()
    level_ends = dict[str, tuple[float, float]]()
    for dimension, battles in standings.battles.items():
        board, pairs = standings.board(dimension), standings.pairs(dimension)
        missing_battles = missing.get(dimension, ())
        leader = find_leader(board, pairs) if board else None
        if not leader or not is_incomplete[dimension]:
            continue
        for higher, lower in missing_answers.list_claims(
            leader.model, leader.below, pairs, len(battles)
        ):
            pair = missing_answers.rate_worst_case(
                battles, missing_battles, higher, lower, method
            )
            counts = missing_answers.count_missing(
                battles, missing_battles, higher, lower, in_both_orders=in_both
            )
            cases.append((dimension, missing_answers.add_test(counts, pair)))
        if len(leader.level) == 1:
            level_model = leader.level[0]
            level_ends[dimension] = missing_answers.level_interval(
                battles, missing_battles, (leader.model, level_model), method
            )
    with_level_ends = dataclasses.replace(
        standings, missing=missing, level_ends=level_ends
    )
    return _add_worst_cases(with_level_ends, cases)


def _add_worst_cases(
    standings: Standings, dimension_cases: Sequence[_DimensionCase]
) -> Standings:
    """Add worst cases; their p values replace those of the answered comparisons in Holm's adjustment."""
    cases = {(name, case.leader, case.rival): case for name, case in dimension_cases}
    pairs = standings.differences[standings.primary_method or ""]
    pair_cases = [cases.get((d.dimension, d.higher, d.lower)) for d in pairs]
    p_values = np.array(
        [
            case.p_value if case else d.p_value
            for case, d in zip(pair_cases, pairs, strict=True)
        ],
        dtype=np.float64,
    )
    cases_by_dimension: dict[str, list[WorstCase]] = {}
    for d, case, adjusted in zip(
        pairs, pair_cases, adjust_by_holm(p_values).tolist(), strict=True
    ):
        if case is None:
            continue
        level, p_holm = ALPHA, adjusted
        if d.p_value is None:  # of planned looks
            level, p_holm = _level_of_look(standings, d), case.p_value
        holds = missing_answers.is_significant(p_holm, level)
        adjusted_case = dataclasses.replace(case, p_holm=p_holm, holds=holds)
        cases_by_dimension.setdefault(d.dimension, []).append(adjusted_case)
    return dataclasses.replace(standings, worst_cases=cases_by_dimension)


def _level_of_look(standings: Standings, pair: Difference) -> float:
    """Return the two-sided level of the boundary at which a pair was resolved."""
    number = getattr(pair, "look", None)
    looks = standings.diagnoses.get(pair.dimension, {}).get("looks", ())
    bounds = [look.boundary for look in looks if look.look == number]
    return 2.0 * float(scipy.special.ndtr(-bounds[0])) if bounds else 0.0


def leaders(standings: Standings) -> dict[str, str]:
    """Return the leader of each dimension that ranks two entrants.

    Parameters
    ----------
    standings : Standings
        With ratings.

    Returns
    -------
    dict of str to str
    """
    return {
        name: leader.model
        for name in standings.dimensions
        if (board := standings.board(name))
        and (leader := find_leader(board, standings.pairs(name)))
    }


def rate_strata(
    fitted: Mapping[str, DimensionFit],
    strata: Mapping[str, str],
    rate: Rate,
    leaders: Mapping[str, str] | None = None,
) -> dict[str, Diagnosis]:
    """Rate each stratum of the prompts, and test whether they differ.

    Parameters
    ----------
    fitted : mapping of str to Fitted
        By dimension.
    strata : mapping of str to str
        The stratum of each prompt, by its id.
    rate : callable
        From battles by stratum to leaderboards: the method of the ratings.
    leaders : mapping of str to str, optional
        By dimension; None: the highest rated by Bradley-Terry.

    Returns
    -------
    dict of str to Diagnosis
        `strata` by dimension.
    """
    diagnoses = dict[str, Diagnosis]()
    for dimension, fit in fitted.items():
        battles_by_stratum = split_by_stratum(fit.battles, strata)
        boards = rate(battles_by_stratum) if len(battles_by_stratum) > 1 else {}
        leader = (
            _highest_rated_model(fit) if leaders is None else leaders.get(dimension)
        )
        diagnoses[dimension] = {
            "strata": StrataDiagnosis(
                **heterogeneity(fit, strata, dimension=dimension).to_dict(),
                ratings=[
                    {"stratum": stratum}
                    | {name: getattr(row, name) for name in _STRATUM_COLUMNS}
                    for stratum, board in boards.items()
                    for row in board.ratings
                ],
                most_varied_gap=find_most_varied_gap(boards),
                leader=leader,
                ahead=rivals_ahead(battles_by_stratum, boards, leader)
                if leader
                else [],
            )
        }
    return diagnoses


def _highest_rated_model(fitted: DimensionFit) -> str | None:
    """Return the model with the highest rating; None if none has a rating."""
    fit = fitted.fit
    if not fit.is_rated.any():
        return None
    names = np.array(fitted.battles.models, dtype=object)[fit.is_rated]
    return str(names[fit.theta.argmax()])


def count_recovered_pairs(
    tested: Sequence[Difference], ranks: Mapping[str, Mapping[str, float]]
) -> dict[str, Diagnosis]:
    """Count how often ratings recover the order of entrants of known quality.

    Parameters
    ----------
    tested : sequence of Difference
        The differences of the primary method.
    ranks : mapping of str to mapping of str to float
        Of those entrants by dimension, the best first.

    Returns
    -------
    dict of str to Diagnosis
        `known_order` by dimension; dimensions without a pair are left out.
    """
    diagnoses = dict[str, Diagnosis]()
    for dimension, rank in ranks.items():
        models = sorted(rank, key=rank.__getitem__)
        pairs = set(combinations(models, 2))
        if not pairs:
            continue
        recovered = [
            d
            for d in tested
            if d.dimension == dimension
            and (d.one_sided or (d.difference or 0.0) > 0)
            and (d.higher, d.lower) in pairs
        ]
        order = KnownOrder(
            dimension=dimension,
            models=models,
            n_pairs=len(pairs),
            n_recovered=len(recovered),
            n_significant=sum(bool(d.significant) for d in recovered),
        )
        diagnoses[dimension] = {"known_order": order}
    return diagnoses


def add_judge_agreement(
    standings: Standings,
    judge: str,
    other_judges: Mapping[str, Mapping[str, Battles]],
    rate: Rate,
) -> Standings:
    """Add how far every two judges agree on the same comparisons.

    Parameters
    ----------
    standings : Standings
        Of one judge.
    judge : str
        Its name.
    other_judges : mapping of str to mapping of str to Battles
        Battles of other judges, by judge and dimension.
    rate : callable
        From battles by dimension to leaderboards: the method whose ratings are correlated.

    Returns
    -------
    Standings
        With kappa and rank correlation of every two judges, by dimension.
    """
    kappas: list[dict[str, Any]] = []
    ranks: list[dict[str, Any]] = []
    for dimension, dimension_battles in standings.battles.items():
        by_judge = {judge: dimension_battles}
        by_judge |= {
            name: battles[dimension]
            for name, battles in other_judges.items()
            if len(battles[dimension])
        }
        kappas += pairwise_kappa(by_judge, dimension=dimension)
        ranks += correlate_judge_ratings(by_judge, rate, dimension=dimension)
    return dataclasses.replace(standings, judges_agreement=kappas, judges_ranks=ranks)


def trace_rows(standings: Standings) -> list[dict[str, Any]]:
    """Return the running means of Elo with their Monte Carlo errors.

    Parameters
    ----------
    standings : Standings
        With Elo.

    Returns
    -------
    list of dict
        A row for each dimension, number of permutations and model, in rating points.
    """
    trace = []
    for dimension in standings.dimensions:
        board = standings.board(dimension, ELO)
        if board is not None and board.samples is not None:
            counts, means, errors = compute_running_means(board.samples)
            trace += make_rows(
                dimension=dimension,
                n_perms=np.repeat(counts, len(board.models)),
                model=board.models * len(counts),
                running_mean=means.ravel(),
                ordering_error=errors.ravel(),
            )
    return trace
