"""Results of pairs that runs have shown: whether a result was known before verdicts or scores were added to it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.analysis.repeated_files import EarlierLook
from elo_exp.analysis.standings import Standings
from elo_exp.store.answer_store import Store
from elo_exp.store.looks import PairResult, record_looks

# The stored verdicts or scores behind the result of two entrants in a dimension
KeysByPair: TypeAlias = Mapping[tuple[str, frozenset[str]], Sequence[str]]


def record_shown_pairs(
    store: Store, rated_standings: Standings, keys_by_pair: KeysByPair
) -> dict[str, Diagnosis]:
    """Store that the results of all pairs are shown; return, by dimension, results shown before verdicts were added."""
    leaders = {
        (dimension, frozenset((d.higher, d.lower))): d.higher
        for dimension in rated_standings.dimensions
        for d in rated_standings.pairs(dimension)
        if d.significant
    }
    shown_pairs = [
        PairResult(verdicts=keys, leader=leaders.get(pair))
        for pair, keys in keys_by_pair.items()
    ]
    earlier_looks: dict[str, list[EarlierLook]] = {}
    for (dimension, pair), looks in zip(
        keys_by_pair, record_looks(store, shown_pairs), strict=True
    ):
        if looks.n_looks:
            name_a, name_b = sorted(pair)
            earlier_looks.setdefault(dimension, []).append(
                EarlierLook(
                    first=name_a,
                    second=name_b,
                    n_looks=looks.n_looks,
                    first_leader=looks.first_leader,
                )
            )
    return {name: {"earlier_looks": looks} for name, looks in earlier_looks.items()}
