"""People beside a judge: how far they agree, and which of its leads their labels confirm."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from elo_exp.analysis.agreement import kappa, mutual_kappa
from elo_exp.analysis.comparisons import ALPHA, Difference, adjust_by_holm
from elo_exp.analysis.missing_answers import add_test, count_missing, rate_worst_case
from elo_exp.analysis.power import prompts_needed
from elo_exp.analysis.win_rates import interval_by_prompt
from elo_exp.arrays import make_row
from elo_exp.data.battles import Battles
from elo_exp.ratings import RatingMethod
from elo_exp.records import Battle, MissingBattle

MIN_LABELS = 30
MIN_PROMPTS = 20
# entrants, from which on the board is the joint fit of labels and verdicts
MIN_ENTRANTS_FOR_JOINT_FIT = 20
PEOPLE = "people"
# A labelling run logs these for each dimension
LOGGED_NUMBERS = (
    *("n_labels", "agreement", "kappa", "kappa_of_people"),
    *("leads_confirmed", "leads_contradicted", "leads_open"),
    *("rho", "votes"),  # of the folder of one of several judges
)
# In rating points, of a difference by labels alone, in simulations of 4 to 10 entrants; it falls with the root of
# labels / entrants
_HALF_WIDTH_AT_ONE_LABEL_PER_ENTRANT = 670.0
_SECONDS_PER_LABEL = 30.0


def labels_needed(n_entrants: int, half_width: float) -> int:
    """Return how many labels tell differences to within so many rating points.

    m (670 / half_width)^2, by simulations of 4, 6 and 10 entrants with 50 to 400 labels.

    Parameters
    ----------
    n_entrants : int
        m, two or more.
    half_width : float
        Of the 95% interval of a difference, in rating points.

    Returns
    -------
    int

    Examples
    --------
    >>> labels_needed(4, 100.0)
    180
    """
    return math.ceil(
        n_entrants * (_HALF_WIDTH_AT_ONE_LABEL_PER_ENTRANT / half_width) ** 2
    )


def labelling_minutes(n_labels: int) -> int:
    """Return the minutes that labels are reckoned to take: 30 seconds each.

    Parameters
    ----------
    n_labels : int

    Returns
    -------
    int
        One or more.
    """
    return max(1, round(n_labels * _SECONDS_PER_LABEL / 60.0))


def compare_with_people(
    votes: Mapping[str, Sequence[Battle]], judge: Battles, *, name: str, dimension: str
) -> list[dict[str, Any]]:
    """Compare a judge with people, and people with each other, which is the ceiling of the judge.

    Parameters
    ----------
    votes : mapping of str to sequence of Battle
        By annotator, of one dimension: a battle for each label.
    judge : Battles
        Of the same dimension; two orders that disagree are a tie.
    name : str
        Of the judge.
    dimension : str
        Of the rows.

    Returns
    -------
    list of dict
        Rows of `agreement.kappa`: the judge with people, people with each other, and of several annotators each
        two, and the judge with each.
    """
    all_votes = Battles.from_rows(
        [vote for annotator_votes in votes.values() for vote in annotator_votes]
    )
    votes_by_annotator = {
        annotator: _name_draws(annotator_votes)
        for annotator, annotator_votes in votes.items()
    }
    rows = [
        kappa(judge, all_votes, names=(name, PEOPLE), dimension=dimension),
        mutual_kappa(votes_by_annotator, name=PEOPLE, dimension=dimension),
    ]
    if len(votes) > 1:
        rows += [
            kappa(
                votes_by_annotator[a],
                votes_by_annotator[b],
                names=(a, b),
                dimension=dimension,
            )
            for a, b in combinations(votes, 2)
        ]
        rows += [
            kappa(
                judge,
                Battles.from_rows(annotator_votes),
                names=(name, annotator),
                dimension=dimension,
            )
            for annotator, annotator_votes in votes.items()
        ]
    return rows


def _name_draws(votes: Sequence[Battle]) -> Battles:
    """Return battles in which each draw of an entrant is a model of its own."""
    return Battles.from_rows(
        [
            dataclasses.replace(
                vote,
                model_a=f"{vote.model_a} {vote.draw_a}",
                model_b=f"{vote.model_b} {vote.draw_b}",
            )
            for vote in votes
        ]
    )


def first_shown_share(votes: Battles) -> dict[str, Any]:
    """Compute how often the answer shown as 1 is preferred, of labels that prefer one.

    Parameters
    ----------
    votes : Battles
        A battle for each label, whose model_a was shown as 1.

    Returns
    -------
    dict
        `share`, its 95% interval `low` to `high`, and the number of labels `n`; None without any.
    """
    is_decisive = ~votes.is_tie()
    prefers_first, units = votes.winner[is_decisive] == 0, votes.units()[is_decisive]
    n, share = len(prefers_first), math.nan
    low = high = math.nan
    if n:
        share = float(prefers_first.mean())
        low, high = interval_by_prompt(
            prefers_first.astype(np.float64), units.astype(np.int64)
        )
    return make_row(share=share, low=low, high=high, n=n)


def pair_leads(
    of_judge: Sequence[Difference], of_people: Sequence[Difference], *, dimension: str
) -> list[tuple[Difference, Difference | None]]:
    """Pair each lead of a judge, which is a significant difference, with people's.

    Parameters
    ----------
    of_judge, of_people : sequence of Difference
        By the judge's verdicts and by labels alone, each with Holm's p values of its own tests.
    dimension : str
        Whose differences are paired.

    Returns
    -------
    list of tuple of Difference and Difference or None
        Of the judge, and of people; None where labels do not link the two.
    """
    people_differences = {
        frozenset((d.higher, d.lower)): d for d in of_people if d.dimension == dimension
    }
    return [
        (lead, people_differences.get(frozenset((lead.higher, lead.lower))))
        for lead in of_judge
        if lead.dimension == dimension and lead.significant
    ]


def count_skipped(
    tested: Sequence[Difference],
    battles: Mapping[str, Battles],
    skipped: Mapping[str, Sequence[MissingBattle]],
    method: RatingMethod,
) -> list[Difference]:
    """Test people's differences once more, with each label that was skipped counted against them.

    Parameters
    ----------
    tested : sequence of Difference
        By labels alone, of all dimensions, which Holm's method adjusts together.
    battles : mapping of str to Battles
        The labels by dimension.
    skipped : mapping of str to sequence of MissingBattle
        By dimension.
    method : RatingMethod
        That rates the labels.

    Returns
    -------
    list of Difference
        Those that are then not significant say so, with the larger p value.
    """
    p_values = []
    for difference in tested:
        p_value = math.nan if difference.p_value is None else difference.p_value
        missing_labels = skipped.get(difference.dimension, ())
        if difference.significant and missing_labels:
            labels = battles[difference.dimension]
            pair = rate_worst_case(
                labels, missing_labels, difference.higher, difference.lower, method
            )
            counts = count_missing(
                labels, missing_labels, difference.higher, difference.lower
            )
            p_value = max(p_value, add_test(counts, pair).p_value or 0.0)
        p_values.append(p_value)
    p_holms = adjust_by_holm(np.array(p_values, dtype=np.float64)).tolist()
    return [
        dataclasses.replace(difference, significant=False, p_holm=p_holm)
        if difference.significant and p_holm > ALPHA
        else difference
        for difference, p_holm in zip(tested, p_holms, strict=True)
    ]


def may_hide_disagreement(
    votes: Battles,
    skipped: Sequence[MissingBattle],
    judge: Battles,
    leads: Sequence[Difference],
    method: RatingMethod,
) -> bool:
    """Return whether labels of the skipped comparisons could speak against a judge.

    They could if the judge's agreement with people may be chance when each of them disagrees with its verdict, or if
    people have the rival of a lead significantly ahead when each of them is for the rival.

    Parameters
    ----------
    votes : Battles
        The labels of one dimension.
    skipped : sequence of MissingBattle
        Of that dimension.
    judge : Battles
        The judge's verdicts.
    leads : sequence of Difference
        Leads that the judge's conclusion names.
    method : RatingMethod
        That rates the labels.

    Returns
    -------
    bool
        False without skipped comparisons.
    """
    if not skipped:
        return False
    contrary = Battles.from_rows([*votes.rows(), *_contrary_labels(skipped, judge)])
    agreement = kappa(judge, contrary, names=("judge", PEOPLE), dimension=None)
    if is_at_chance(agreement):
        return True
    for lead in leads:
        pair = rate_worst_case(votes, skipped, lead.higher, lead.lower, method)
        if pair and pair.higher == lead.lower and (pair.p_value or 0.0) <= ALPHA:
            return True
    return False


def _contrary_labels(
    skipped: Sequence[MissingBattle], judge: Battles
) -> Iterator[Battle]:
    """Yield a label for each skipped comparison, for the answer that the judge did not prefer."""

    def identify(battle: Battle | MissingBattle) -> tuple[str | None, frozenset[Any]]:
        sides = (battle.model_a, battle.draw_a), (battle.model_b, battle.draw_b)
        return battle.question_id, frozenset(sides)

    preferred_models = {
        identify(row): {"model_a": row.model_a, "model_b": row.model_b}.get(row.winner)
        for row in judge.rows()
    }
    for battle in skipped:
        prefers_a = preferred_models.get(identify(battle)) == battle.model_a
        yield Battle(
            model_a=battle.model_a,
            model_b=battle.model_b,
            winner="model_b" if prefers_a else "model_a",
            question_id=battle.question_id,
            judge_model=battle.judge_model,
            source="human",
            dimension=battle.dimension,
            draw_a=battle.draw_a,
            draw_b=battle.draw_b,
        )


def is_at_chance(agreement: Mapping[str, Any]) -> bool | None:
    """Return whether a judge's agreement with people may be chance: the interval of kappa contains 0.

    Its upper end may be far above: then the labels do not show that the judge agrees.

    Parameters
    ----------
    agreement : mapping
        A row of `agreement.kappa`.

    Returns
    -------
    bool or None
        None of fewer than 20 comparisons, or without an interval.
    """
    if agreement["n_comparisons"] < MIN_PROMPTS or agreement["ci_low"] is None:
        return None
    return bool(agreement["ci_low"] <= 0.0)


def labels_to_decide(
    people: Difference | None, *, n_labels: int, n_tests: int, half_width: float
) -> int | None:
    """Return how many labels more would decide a difference that is open.

    With 80% power by Holm's first step, if the difference is as large as labels show it, but at least
    `half_width`: a smaller one is not asked for.

    Parameters
    ----------
    people : Difference or None
        By labels alone; None where they do not link the two.
    n_labels : int
        Behind it, in its dimension.
    n_tests : int
        Pairs that labels are tested on.
    half_width : float
        Rating points to which a difference is to be known.

    Returns
    -------
    int or None
        0 where so many labels would have shown such a difference; None where its error is not known.
    """
    if people is None or people.std_error is None or not people.std_error > 0.0:
        return None
    difference = max(abs(people.difference or 0.0), half_width)
    sigma = people.std_error * math.sqrt(n_labels)
    n_needed = prompts_needed(sigma, difference, alpha=ALPHA / max(n_tests, 1))
    return max(n_needed - n_labels, 0)
