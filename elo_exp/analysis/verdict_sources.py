"""Whose verdicts a file holds: of judges, each of whom has a taste of its own, or of voters, who are a population.

A judge is asked about everything, and a voter about a little. The verdicts of two judges are never one sample, and each
has a leaderboard; hundreds of votes by as many people are, and theirs is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from elo_exp.analysis.comparisons import MIN_PROMPTS_FOR_LEAD
from elo_exp.arrays import Index, Mask
from elo_exp.data.battles import Battles, Codes

# Whoever has judged so many is a judge
_MIN_SHARE_OF_COMPARISONS = 0.5
# So few are judges with fewer comparisons, too, on MIN_PROMPTS prompts
_MAX_FEW_NAMES = 12
_VOTE_SOURCE = "human"
_PEOPLE, _VOTERS, _UNNAMED = "people", "voters", "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerdictSource:
    """Verdicts that are rated together.

    names          of whoever gave them; () where nobody is named
    is_population  whether they are votes of many, of which no single judge's taste can be told
    """

    battles: Battles
    names: tuple[str, ...]
    is_population: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedComparisons:
    """Comparisons that one judge has judged more than once.

    judges  the names of those who have
    n       the comparisons that they have judged more than once, each by one judge
    of      all that they have judged
    """

    judges: tuple[str, ...]
    n: int
    of: int


def are_judges(rater: Index, prompt: Index, comparison: Index, n_names: int) -> Mask:
    """Tell judges from voters, by how much each has judged.

    Parameters
    ----------
    rater, prompt, comparison : Index, shape (n,)
        Of each verdict: whose it is, below `n_names`; its prompt; and its prompt and models.
    n_names : int

    Returns
    -------
    Mask, shape (n_names,)
        Those with verdicts on half of the comparisons or more; of at most 12 names also those with verdicts on 20
        prompts.

    Examples
    --------
    Two judges of all, and ten people of whom each has judged one comparison of ten.

    >>> rater = np.append(np.repeat([0, 1], 10), np.arange(2, 12))
    >>> comparison = np.tile(np.arange(10), 3)
    >>> np.flatnonzero(are_judges(rater, comparison, comparison, 12)).tolist()
    [0, 1]
    """
    n_compared = _count_distinct(rater, comparison, n_names)
    is_judge = n_compared >= _MIN_SHARE_OF_COMPARISONS * len(np.unique(comparison))
    if n_names <= _MAX_FEW_NAMES:
        is_judge |= _count_distinct(rater, prompt, n_names) >= MIN_PROMPTS_FOR_LEAD
    return np.asarray(is_judge & (n_compared > 0))


def _count_distinct(rater: Index, codes: Index, n_names: int) -> Index:
    """Count the different codes of each rater: (n_names,)."""
    _, number = np.unique(codes, return_inverse=True)
    pairs = np.unique(rater.astype(np.int64) * len(codes) + number)
    return np.bincount(pairs // len(codes), minlength=n_names)


def split_by_source(battles: Battles, *, says_votes: bool) -> dict[str, VerdictSource]:
    """Split battles by whose verdicts they are.

    Parameters
    ----------
    battles : Battles
        Of one or more dimensions.
    says_votes : bool
        Whether the source of votes is said to be people, and not assumed where nobody is named.

    Returns
    -------
    dict of str to Party
        By the judge's name; then the others: `voters`, who are named and have judged too little for a leaderboard each;
        `people` who voted; and `unnamed`. Of a single one of these the name is that in the file.
    """
    is_people_source = np.array(
        [name == _VOTE_SOURCE for name in battles.sources], dtype=np.bool_
    )
    is_vote = is_people_source[battles.source]
    is_named = (battles.judge >= 0) & ~is_vote
    is_judge = is_named & _is_by_judge(battles, is_named)
    party_by_name = dict[str, VerdictSource]()
    for code in _sort_by_appearance(battles.judge[is_judge]):
        party_battles = battles.select(is_judge & (battles.judge == code))
        name = battles.judges[code]
        party_by_name[name] = VerdictSource(
            battles=party_battles, names=(name,), is_population=False
        )
    groups = {
        _VOTERS: is_named & ~is_judge,
        _PEOPLE: is_vote if says_votes else is_vote & (battles.judge >= 0),
    }
    groups[_UNNAMED] = ~np.any([is_judge, *groups.values()], axis=0)
    for label, is_in_group in groups.items():
        if is_in_group.any():
            party_battles = battles.select(is_in_group)
            names = tuple(
                battles.judges[code]
                for code in _sort_by_appearance(party_battles.judge)
            )
            name = names[0] if len(names) == 1 else label
            name = f"{name} (votes)" if name in party_by_name else name
            is_single = label == _VOTERS and len(names) == 1
            party_by_name[name] = VerdictSource(
                battles=party_battles, names=names, is_population=not is_single
            )
    return party_by_name


def must_rate_separately(party_by_name: Mapping[str, VerdictSource]) -> bool:
    """Return whether two parties have judged one dimension, a judge among them: verdicts that are no one sample.

    Whoever is unnamed may be one of the others.

    Parameters
    ----------
    party_by_name : mapping of str to Party
        As `parties` returns it.

    Returns
    -------
    bool
    """
    dimensions = [
        {*np.unique(party.battles.dimension).tolist()}
        for name, party in party_by_name.items()
        if party.names or name != _UNNAMED
    ]
    is_shared = any(a & b for a, b in combinations(dimensions, 2))
    return is_shared and not all(
        party.is_population for party in party_by_name.values()
    )


def find_repeats(battles: Battles) -> RepeatedComparisons | None:
    """Find comparisons that one judge has judged more than once: repeated verdicts, or those of two judges with one name.

    Parameters
    ----------
    battles : Battles

    Returns
    -------
    RepeatedComparisons or None
        None where there is none. A comparison is of two answers to a prompt that is named, in one dimension and in the
        order shown, so that a row for each order repeats nothing; votes of people are left out.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from elo_exp.records import Battle
    >>> row = Battle(model_a="a", model_b="b", winner="tie", source="llm-judge", judge_model="gpt-4", question_id="1")
    >>> other = replace(row, question_id="2")
    >>> find_repeats(Battles.from_rows([row, other, row]))
    RepeatedComparisons(judges=('gpt-4',), n=1, of=2)
    """
    is_people_source = np.array(
        [name == _VOTE_SOURCE for name in battles.sources], dtype=np.bool_
    )
    is_named = battles.question < len(battles.questions)
    judge_battles = battles.select(
        (battles.judge >= 0) & is_named & ~is_people_source[battles.source]
    )
    if not len(judge_battles):
        return None
    sides = np.stack(
        (judge_battles.model_a, judge_battles.model_b, *judge_battles.draws())
    )
    is_turned = judge_battles.model_a > judge_battles.model_b
    sides[:, is_turned] = sides[[1, 0, 3, 2]][:, is_turned]
    is_both = (judge_battles.verdict_ab >= 0) & (judge_battles.verdict_ba >= 0)
    is_ba = (judge_battles.verdict_ba >= 0) & ~is_both
    order_shown = np.where(is_both, 2, is_ba ^ is_turned)
    keys = (
        *sides,
        order_shown,
        judge_battles.question,
        judge_battles.dimension,
        judge_battles.judge,
    )
    order = np.lexsort(keys)
    is_new = np.ones(len(judge_battles), dtype=np.bool_)
    is_new[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    n_times = np.diff(np.append(np.flatnonzero(is_new), len(judge_battles)))
    judge = judge_battles.judge[order][is_new]
    n_repeated = np.bincount(judge[n_times > 1], minlength=len(judge_battles.judges))
    if not n_repeated.any():
        return None
    judges = np.flatnonzero(n_repeated)
    return RepeatedComparisons(
        judges=tuple(judge_battles.judges[i] for i in judges.tolist()),
        n=int(n_repeated.sum()),
        of=int(np.isin(judge, judges).sum()),
    )


def share_a_dimension(battles: Battles) -> bool:
    """Return whether two who are named have judged one dimension.

    Parameters
    ----------
    battles : Battles

    Returns
    -------
    bool
    """
    named_battles = battles.select(battles.judge >= 0)
    dimension_judges = np.unique(
        np.stack((named_battles.dimension, named_battles.judge)), axis=1
    )
    return bool(len(np.unique(dimension_judges[0])) < dimension_judges.shape[1])


def _is_by_judge(battles: Battles, is_named: Mask) -> Mask:
    """Return whether each verdict (n,) is by somebody named who is a judge, and no voter."""
    if not is_named.any():
        return is_named
    named_battles = battles.select(is_named)
    m = len(battles.models)
    sides = np.sort(
        np.stack((named_battles.model_a, named_battles.model_b)), axis=0
    ).astype(np.int64)
    _, prompt = np.unique(named_battles.question, return_inverse=True)
    n_dimensions = len(battles.dimensions) + 1
    comparison = (prompt * n_dimensions + named_battles.dimension + 1) * m * m
    comparison += sides[0] * m + sides[1]
    names, rater = np.unique(named_battles.judge, return_inverse=True)
    is_judge = np.zeros(len(battles.judges) + 1, dtype=np.bool_)
    is_judge[names] = are_judges(rater, prompt, comparison, len(names))
    return np.asarray(is_judge[battles.judge])


def _sort_by_appearance(codes: Codes) -> list[int]:
    """Return the codes from 0 on, each once, in the order in which they first occur."""
    values, first_index = np.unique(codes, return_index=True)
    return [code for code in values[np.argsort(first_index)].tolist() if code >= 0]
