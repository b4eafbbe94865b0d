"""Whether a lead survives if each missing answer and each unknown verdict counts against the claimed leader.

A missing result is a value in [0, 1] and no absence: an entrant that fails where it would have lost has no lead. The
bound takes the value that is worst for the claim [1]_. One rule serves all experiments (`points_against`):

- a recorded failure (an error, a refusal, an empty reply) is the loss of the entrant that failed, whoever leads;
- nobody knows why another answer, or a verdict, is missing: it counts against the leader, whichever side lacks it.
  If the rival's blank answers were its losses, blanking the answers with which it won would make the claim stronger.
- a judge that gave a comparison's winner, and other comparisons' verdicts in both orders, was asked in both orders: a
  verdict that is blank has the value that the winner leaves possible and that is the worst for the leader
  (`fill_orders`). If the comparison were one game only, blanking the second orders that the leader lost would halve
  its losses.

Only planned comparisons count: sparse designs, limits and early stops leave none.

.. [1] J. L. Horowitz and C. F. Manski (2000), "Nonparametric analysis of randomized experiments with missing covariate
   and outcome data", Journal of the American Statistical Association 95, 77-84.
"""

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.comparisons import ALPHA, Difference, differences
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.arrays import Mask
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER, map_questions_to_clusters
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import FEATURES
from elo_exp.ratings import RatingMethod
from elo_exp.ratings.fit import Fit, inverse_information
from elo_exp.ratings.games import make_games
from elo_exp.records import WINNERS, Battle, MissingBattle, Record

# Each claim rates the battles again: of more claims, or of more battles in all, only those of the leader are tested
_MAX_CLAIMS = 300
_MAX_CLAIMS_TIMES_BATTLES = 10_000_000
_TIE = WINNERS.index("tie")
# In place of the code of a judge
_UNNAMED_JUDGE, _PEOPLE_AS_JUDGE = -1, -2
# A game moves a difference if it does so by this part of what a game of the two moves it
_MIN_INFLUENCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase(Record):
    """A claimed lead if everything that is missing counts against the leader.

    n_prompts         planned for the two, each counted once
    n_answered        of these, on which nothing between the two is missing
    n_lacks_leader    on which the leader has no usable answer
    n_lacks_rival     on which it has one, and the rival has none
    n_failed_rival    of these, on which the rival is on record as having failed: its losses
    n_unjudged        on which both have one, and a verdict is unknown
    n_one_order       on which the winner is known, and the verdict of an order is blank
    n_empty           on which an empty answer was judged all the same
    difference        in the unit of the ratings; None if nothing else is known than who won
    holds             whether the lead is still significant
    """

    leader: str
    rival: str
    n_prompts: int
    n_answered: int
    n_lacks_leader: int
    n_lacks_rival: int
    n_failed_rival: int
    n_unjudged: int
    n_empty: int = 0
    n_one_order: int = 0
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    p_holm: float | None = None
    holds: bool = False

    @property
    def n_missing(self) -> int:
        return self.n_prompts - self.n_answered


def points_against(
    leader: str, failed: Collection[str], models: tuple[str, str]
) -> float:
    """Return the points of the claimed leader in a comparison of its own that has no result.

    Parameters
    ----------
    leader : str
        One of the two.
    failed : collection of str
        Those that are on record as having failed.
    models : tuple of str
        Both.

    Returns
    -------
    float
        1 if the rival alone has failed on record, 1/2 if both have, else 0.

    Examples
    --------
    >>> points_against("new", ["old"], ("new", "old")), points_against("new", [], ("new", "old"))
    (1.0, 0.0)
    """
    (rival,) = set(models) - {leader}
    if rival not in failed:
        return 0.0
    return 0.5 if leader in failed else 1.0


def rate_worst_case(
    battles: Battles,
    missing: Sequence[MissingBattle],
    leader: str,
    rival: str,
    method: RatingMethod,
) -> Difference | None:
    """Rate the battles together with the missing ones, these as they count against a claimed lead.

    An unknown result between others counts against the claim, too, by the sign of its influence on the difference of
    the two: the maximum of the likelihood moves that way.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    missing : sequence of MissingBattle
        Of that dimension.
    leader, rival : str
        The claim is that the first is better.
    method : RatingMethod
        That rates the battles.

    Returns
    -------
    Difference or None
        Of the two, whoever is then higher; None if they cannot be compared.
    """
    influence = compute_influence(battles, {leader: 1.0, rival: -1.0})
    orders = plans_both_orders(method)
    counted_battles = count_against(battles, missing, influence, in_both_orders=orders)
    if getattr(method, "interval", "sandwich") != "sandwich":
        method = dataclasses.replace(method, interval="sandwich")  # type: ignore[type-var]
    boards = rate_with_unbeaten(method, {"": counted_battles}, only=(leader, rival))
    for pair in differences(boards):
        if {pair.higher, pair.lower} == {leader, rival}:
            return pair
    return None


def count_against(
    battles: Battles,
    missing: Sequence[MissingBattle],
    influence: Mapping[str, float],
    *,
    in_both_orders: bool,
    everybody: bool = False,
) -> Battles:
    """Return the battles together with the missing ones, these as they count against a claim.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    missing : sequence of MissingBattle
        Of that dimension.
    influence : mapping of str to float
        By model, as `compute_influence` returns it.
    in_both_orders : bool
        Whether each order is a game, so that a blank verdict of an order is missing.
    everybody : bool, default False
        As of `find_missing_orders`.

    Returns
    -------
    Battles
    """
    if in_both_orders:
        battles = fill_orders(battles, influence, everybody=everybody)
    in_two_orders = bool(battles.has_both_orders().any())
    source = "human" if _is_of_people(battles) else "llm-judge"
    is_styled = bool(battles.styles)
    cluster_of = _map_clusters(battles)
    rows, n_replaced = list[Battle](), Counter[Any]()
    names_judges = any(battle.judge_model for battle in missing)
    for battle in missing:
        share = _assume_points(battle, influence)
        if share is None:
            continue
        # Without a prompt nobody knows which battle it is: the loss counts besides
        if battle.is_judged and battle.question_id is not None:
            n_replaced[_identify(battle, names_judges=names_judges)] += 1
        cluster = battle.cluster or cluster_of.get(battle.question_id)
        row = _make_battle(
            battle,
            share,
            in_two_orders=in_two_orders,
            is_styled=is_styled,
            cluster=cluster,
        )
        rows.append(dataclasses.replace(row, source=source))
    remaining = battles
    if n_replaced:
        is_kept = list[bool]()
        for row in battles.rows():
            key = _identify(row, names_judges=names_judges)
            is_kept.append(n_replaced[key] == 0)
            n_replaced[key] -= not is_kept[-1]
        remaining = battles.select(np.array(is_kept, dtype=bool))
    return (
        concatenate_battles(remaining, Battles.from_rows(rows)) if rows else remaining
    )


def plans_both_orders(method: object) -> bool:
    """Return whether a rating method has each order of a comparison as a game.

    Parameters
    ----------
    method : object
        A rating method.

    Returns
    -------
    bool
        False if a comparison is judged in one order by design, or is one game whatever its orders say.
    """
    return getattr(method, "orders", None) == "both"


def find_missing_orders(battles: Battles, *, everybody: bool = False) -> Mask:
    """Find the battles with a winner whose judge was asked in both orders, and whose verdict of an order is blank.

    A judge was asked in both orders if any of its battles has both verdicts. A battle that does not name its judge may
    be any judge's. All people who voted are one judge here.

    Parameters
    ----------
    battles : Battles
        n battles of one dimension.
    everybody : bool, default False
        Whether all judges were asked in both orders, but for people.

    Returns
    -------
    Mask, shape (n,)
        A share of points, or one query for equal answers, has no order.
    """
    has_both = (battles.verdict_ab >= 0) & (battles.verdict_ba >= 0)
    has_no_order = battles.equal_answers | np.isfinite(battles.score)
    is_vote = np.array([*(name == "human" for name in battles.sources), False])
    judge = np.where(is_vote[battles.source], _PEOPLE_AS_JUDGE, battles.judge)
    judges_of_both = np.unique(judge[has_both & ~has_no_order])
    may_be_asked = np.isin(judge, judges_of_both)
    if (judges_of_both != _PEOPLE_AS_JUDGE).any():
        may_be_asked |= judge == _UNNAMED_JUDGE
    if everybody or _UNNAMED_JUDGE in judges_of_both:
        may_be_asked |= judge != _PEOPLE_AS_JUDGE
    return np.asarray(may_be_asked & ~has_both & ~has_no_order)


def fill_orders(
    battles: Battles, influence: Mapping[str, float], *, everybody: bool = False
) -> Battles:
    """Fill the blank verdicts of an order with the worst that the winner leaves possible for a claim.

    The winner of two orders that agree is the verdict of both. A tie is two ties, or two orders that disagree.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    influence : mapping of str to float
        By model: how far one of its points moves the claimed difference.
    everybody : bool, default False
        As of `find_missing_orders`.

    Returns
    -------
    Battles
        Those of `find_missing_orders` have both verdicts.
    """
    is_lacking = find_missing_orders(battles, everybody=everybody)
    if not is_lacking.any():
        return battles
    slope = np.array([influence.get(name, 0.0) for name in battles.models])
    helps_a = slope[battles.model_a] > slope[battles.model_b]
    loss = np.where(helps_a, 1, 0)  # a verdict for the other side
    ab, ba = battles.verdict_ab, battles.verdict_ba
    known_verdict = np.maximum(ab, ba)
    # of a tie: what the verdict of the other order leaves possible
    opposite = np.where(known_verdict == loss, _TIE, loss)
    is_decided = battles.winner < _TIE
    filled = []
    for verdict, usual in ((ab, _TIE), (ba, loss)):
        blank = np.where(known_verdict < 0, usual, opposite)
        verdict_of_tie = np.where(verdict < 0, blank, verdict)
        assumed_verdict = np.where(is_decided, battles.winner, verdict_of_tie)
        filled.append(np.where(is_lacking, assumed_verdict, verdict).astype(np.int32))
    return dataclasses.replace(battles, verdict_ab=filled[0], verdict_ba=filled[1])


def count_for_model(
    battles: Battles, missing: Sequence[MissingBattle], model: str, *, wins: bool
) -> Battles:
    """Return the battles together with the missing ones of one model, as if it had lost them, or won them.

    A recorded failure is the loss of the model that failed in both cases.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    missing : sequence of MissingBattle
        Of the model.
    model : str
        One of the two in each missing battle.
    wins : bool
        Whether it wins those whose result is unknown. A verdict on an empty answer then stands.

    Returns
    -------
    Battles
        Without those whose verdict on an empty answer is replaced.
    """
    in_two_orders, is_styled = (
        bool(battles.has_both_orders().any()),
        bool(battles.styles),
    )
    cluster_of = _map_clusters(battles)
    rows, replaced_keys = list[Battle](), set[Any]()
    for battle in missing:
        if battle.is_judged and (wins or model not in battle.lacking):
            continue
        (opponent,) = {*battle.models} - {model}
        share = points_against(model, battle.failed, battle.models)
        if wins:
            share = 1.0 - points_against(opponent, battle.failed, battle.models)
        if battle.is_judged:
            replaced_keys.add(_identify(battle, names_judges=False))
        cluster = battle.cluster or cluster_of.get(battle.question_id)
        rows.append(
            _make_battle(
                battle,
                share if battle.model_a == model else 1.0 - share,
                in_two_orders=in_two_orders,
                is_styled=is_styled,
                cluster=cluster,
            )
        )
    is_kept = [
        _identify(row, names_judges=False) not in replaced_keys
        for row in battles.rows()
    ]
    remaining = (
        battles.select(np.array(is_kept, dtype=bool)) if replaced_keys else battles
    )
    return (
        concatenate_battles(remaining, Battles.from_rows(rows)) if rows else remaining
    )


def level_interval(
    battles: Battles,
    missing: Sequence[MissingBattle],
    models: tuple[str, str],
    method: RatingMethod,
) -> tuple[float, float]:
    """Return the interval of the difference of two, whichever of them the missing results count against.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    missing : sequence of MissingBattle
        Of that dimension.
    models : tuple of str
        Two with the same rating.
    method : RatingMethod
        That rates the battles.

    Returns
    -------
    low, high : float
        Of the first less the second; infinite if there is no interval.
    """
    first_model, second_model = models
    ends = []
    for leader, rival in (models, (second_model, first_model)):
        pair = rate_worst_case(battles, missing, leader, rival, method)
        end = math.inf
        if pair and None not in (pair.ci_low, pair.ci_high):
            low, high = float(pair.ci_low or 0.0), float(pair.ci_high or 0.0)
            end = -low if pair.higher == leader else high
        ends.append(end)
    return -ends[0], ends[1]


def _assume_points(
    missing: MissingBattle, influence: Mapping[str, float]
) -> float | None:
    """Return the points of model_a that count against the claim; None if the comparison cannot move it or stays as judged."""
    a, b = missing.models
    slope = influence.get(a, 0.0) - influence.get(b, 0.0)
    is_idle = abs(slope) <= _MIN_INFLUENCE
    worse, better = (a, b) if slope > 0 else (b, a)
    if missing.is_judged:
        # The verdict stands if the rival's empty answer is on record, or those of both are
        is_loss = worse in missing.lacking or better not in missing.failed
        is_of_both = {*missing.failed} == {a, b}
        points = 0.0 if is_loss and not (is_of_both or is_idle) else None
    elif len(missing.failed) == len(missing.lacking) and missing.failed:
        points = points_against(worse, missing.failed, (worse, better))
    else:
        points = None if is_idle else points_against(worse, missing.failed, (worse, better))  # fmt: skip
    if points is None or worse == a:
        return points
    return 1.0 - points


def compute_influence(
    battles: Battles, contrast: Mapping[str, float]
) -> dict[str, float]:
    """Compute how far a point of each model moves a contrast of ratings.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    contrast : mapping of str to float
        The weight of each model's rating; the weights add up to zero.

    Returns
    -------
    dict of str to float
        By model, in units in which the contrast of two moves by 2 with their own games; the contrast itself if no fit
        is finite.
    """
    fit = Fit.from_games(make_games(battles, orders="both"))
    rated_models = np.array(battles.models, dtype=object)[fit.is_rated].tolist()
    if not contrast.keys() <= {*rated_models}:
        return dict(contrast)
    weights = np.array([contrast.get(model, 0.0) for model in rated_models])
    moved_ratings = inverse_information(fit.theta, fit.games) @ weights
    scale = float(moved_ratings @ weights)
    return {
        **contrast,
        **dict(zip(rated_models, (2.0 * moved_ratings / scale).tolist(), strict=True)),
    }


def _map_clusters(battles: Battles) -> dict[str | None, str]:
    """Return the cluster of each question; that of battles without a question, if they have one, is under None."""
    if battles.cluster is None:
        return {}
    clusters: dict[str | None, str] = dict(map_questions_to_clusters(battles).items())
    return clusters | (
        {None: UNNAMED_CLUSTER} if UNNAMED_CLUSTER in battles.clusters else {}
    )


def _is_of_people(battles: Battles) -> bool:
    """Whether all battles are votes of people."""
    is_vote = np.array([*(name == "human" for name in battles.sources), False])
    return bool(is_vote[battles.source].all())


def _make_battle(
    missing: MissingBattle,
    share: float,
    *,
    in_two_orders: bool,
    is_styled: bool,
    cluster: str | None,
) -> Battle:
    winner = {0.0: "model_b", 0.5: "tie", 1.0: "model_a"}[share]
    plain = (0,) * len(FEATURES) if is_styled else None
    return Battle(
        model_a=missing.model_a,
        model_b=missing.model_b,
        winner=winner,
        verdict_ab=winner if in_two_orders else None,
        verdict_ba=winner if in_two_orders else None,
        source="llm-judge",
        question_id=missing.question_id,
        dimension=missing.dimension,
        judge_model=missing.judge_model,
        style_a=plain,
        style_b=plain,
        count=missing.count,
        draw_a=missing.draw_a,
        draw_b=missing.draw_b,
        cluster=cluster,
    )


def _identify(battle: Battle | MissingBattle, *, names_judges: bool) -> tuple[Any, ...]:
    """Return a key of a comparison: its question, judge and draws. Without the judge if missing battles name none."""
    draws = dict(zip(battle.models, (battle.draw_a, battle.draw_b), strict=True))
    judge = battle.judge_model if names_judges else None
    return battle.question_id, judge, tuple(sorted(draws.items()))


def list_claims(
    leader: str,
    below: Collection[str],
    pairs: Sequence[Difference],
    n_battles: int = 0,
) -> list[tuple[str, str]]:
    """List the significant differences on which it rests that a leader is ahead of others.

    Parameters
    ----------
    leader : str
        The first of a leaderboard.
    below : collection of str
        Those that it is said to be better than, by its own tests or by chains of tests.
    pairs : sequence of Difference
        Of the dimension.
    n_battles : int
        That are rated again for each.

    Returns
    -------
    list of (str, str)
        Higher and lower; of more than 300, or of so many that rating them again would take minutes, those of the
        leader alone.
    """
    ahead = {leader, *below}
    significant_pairs = [
        (pair.higher, pair.lower)
        for pair in pairs
        if pair.significant and pair.higher in ahead and pair.lower in ahead
    ]
    if (
        len(significant_pairs) <= _MAX_CLAIMS
        and len(significant_pairs) * n_battles <= _MAX_CLAIMS_TIMES_BATTLES
    ):
        return significant_pairs
    return [pair for pair in significant_pairs if pair[0] == leader]


def count_missing(
    battles: Battles,
    missing: Sequence[MissingBattle],
    leader: str,
    rival: str,
    *,
    in_both_orders: bool = False,
) -> WorstCase:
    """Count what is missing between two entrants, in prompts.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    missing : sequence of MissingBattle
        Of that dimension.
    leader, rival : str
        The two.
    in_both_orders : bool, default False
        Whether each order is a game, so that a blank verdict of an order is missing.

    Returns
    -------
    WorstCase
        Without its test.
    """
    pair = {leader, rival}
    lacks: dict[str, set[Any]] = defaultdict(set)
    n_by_row = dict[Any, int]()  # rows that stand for several prompts
    for n, battle in enumerate(missing):
        if {*battle.models} != pair:
            continue
        prompt = battle.question_id if battle.question_id is not None else ("", n)
        if battle.question_id is None and battle.count is not None:
            n_by_row[prompt] = battle.count
        lacks["missing"].add(prompt)
        if battle.is_judged:
            lacks["empty"].add(prompt)
        if leader in battle.lacking:
            lacks["leader"].add(prompt)
        elif rival in battle.lacking:
            lacks["rival"].add(prompt)
            if rival in battle.failed:
                lacks["failed"].add(prompt)
        else:
            lacks["verdict"].add(prompt)
    is_of_pair = [name in pair for name in battles.models]
    codes = np.flatnonzero(is_of_pair)
    met = np.isin(battles.model_a, codes) & np.isin(battles.model_b, codes)
    pair_battles = battles.select(met)
    named_prompts = {
        pair_battles.questions[q]
        for q in pair_battles.question.tolist()
        if q < len(pair_battles.questions)
    }
    is_in_one_order = (
        find_missing_orders(battles)[met]
        if in_both_orders
        else np.zeros(len(pair_battles), bool)
    )
    is_named = pair_battles.question < len(pair_battles.questions)
    lacks["order"] = {
        pair_battles.questions[q]
        for q in pair_battles.question[is_in_one_order & is_named].tolist()
    }
    n_unnamed = pair_battles.count_at(
        is_in_one_order & (pair_battles.units() >= pair_battles.n_named_units)
    )
    n_one_order = n_unnamed + len(lacks["order"] - lacks["missing"])
    lacks["missing"] |= lacks["order"]

    def n_of(prompts: set[Any]) -> int:
        return sum(n_by_row.get(prompt, 1) for prompt in prompts)

    n_prompts = pair_battles.n_unnamed() + n_of(named_prompts | lacks["missing"])
    return WorstCase(
        leader=leader,
        rival=rival,
        n_prompts=n_prompts,
        n_answered=n_prompts - n_of(lacks["missing"]) - n_unnamed,
        n_lacks_leader=n_of(lacks["leader"]),
        n_lacks_rival=n_of(lacks["rival"] - lacks["leader"]),
        n_failed_rival=n_of(lacks["failed"] - lacks["leader"]),
        n_unjudged=n_of(lacks["verdict"] - lacks["leader"] - lacks["rival"]),
        n_empty=n_of(lacks["empty"]),
        n_one_order=n_one_order,
    )


def add_test(case: WorstCase, pair: Difference | None) -> WorstCase:
    """Add the test of the lead, as `rate_worst_case` found it, to the counts.

    Parameters
    ----------
    case : WorstCase
        The counts.
    pair : Difference or None
        Of leader and rival, whoever is higher.

    Returns
    -------
    WorstCase
        With a p value of 1 if the leader is not ahead, or if nothing can be tested.
    """
    if pair is None:
        return dataclasses.replace(case, p_value=1.0)
    ends = pair.difference, pair.ci_low, pair.ci_high
    is_ahead = pair.higher == case.leader and pair.difference != 0
    if not is_ahead:
        middle, low, high = (None if end is None else -end for end in ends)
        ends = middle, high, low
    p = 1.0 if pair.p_value is None or not is_ahead else pair.p_value
    return dataclasses.replace(
        case, difference=ends[0], ci_low=ends[1], ci_high=ends[2], p_value=p
    )


def models_still_behind(leader: str, cases: Iterable[WorstCase]) -> set[str]:
    """Return whom a leader is still ahead of, by its own tests or by chains of tests that hold.

    Parameters
    ----------
    leader : str
        The first.
    cases : iterable of WorstCase
        Tested.

    Returns
    -------
    set of str
    """
    worse: dict[str, list[str]] = {}
    for case in cases:
        if case.holds:
            worse.setdefault(case.leader, []).append(case.rival)
    behind, frontier = set[str](), [leader]
    while frontier:
        frontier = [
            m for better in frontier for m in worse.get(better, ()) if m not in behind
        ]
        behind |= {*frontier}
    return behind


def count_by_entrant(missing: Sequence[MissingBattle]) -> list[dict[str, Any]]:
    """Count the prompts without a usable answer of each entrant, and those without a verdict.

    Parameters
    ----------
    missing : sequence of MissingBattle
        Of one dimension.

    Returns
    -------
    list of dict
        `model` (None: both answered, and a verdict is unknown), `n_prompts`, `n_failed`, of these on record, `n_empty`,
        of these judged as empty answers, and `prompts`, their ids.
    """
    prompts: dict[str | None, dict[Any, MissingBattle]] = {}
    for n, battle in enumerate(missing):
        for model in battle.lacking or (None,):
            key = battle.question_id if battle.question_id is not None else ("", n)
            prompts.setdefault(model, {}).setdefault(key, battle)
    return [
        {
            "model": model,
            "n_prompts": len(battles_by_prompt),
            "n_failed": sum(
                model in battle.failed for battle in battles_by_prompt.values()
            ),
            "n_empty": sum(battle.is_judged for battle in battles_by_prompt.values()),
            "prompts": [key for key in battles_by_prompt if isinstance(key, str)],
        }
        for model, battles_by_prompt in sorted(
            prompts.items(), key=lambda item: -len(item[1])
        )
    ]


def is_significant(p_value: float | None, level: float = ALPHA) -> bool:
    """Return whether a p value is at most a level.

    Parameters
    ----------
    p_value : float or None
        None: nothing was tested.
    level : float, default ALPHA
        Of the test.

    Returns
    -------
    bool
        False for none.
    """
    return p_value is not None and p_value <= level
