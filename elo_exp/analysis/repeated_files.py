"""Files that are rated again after rows were added: which entrants' results were shown before.

A file has no keys of verdicts. Its rows are known again by a hash of what they say, and the rows of an entrant by
their number and the smallest of these hashes, so that a result of a million votes takes no more room than one of a
hundred.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.data.battles import Battles, Codes
from elo_exp.data.scores import Score
from elo_exp.records import Record

# Hashes that are kept of an entrant's rows
N_KEPT_HASHES = 16
# Of Knuth's multiplicative hashing
_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFileResult:
    """A result of one dimension of a file that was shown.

    rows    by entrant, how many rows it has, and the smallest of their hashes
    leader  who was significantly ahead; None: nobody
    """

    rows: Mapping[str, tuple[int, Sequence[str]]]
    leader: str | None


def hashes_of_battles(battles: Battles) -> dict[str, Hashes]:
    """Return the hashes of the rows of each entrant, smallest first.

    Parameters
    ----------
    battles : Battles
        Of one dimension.

    Returns
    -------
    dict of str to uint64 array, shape (n,)
        By entrant; rows that name no question are left out.
    """
    is_named = battles.question < len(battles.questions)
    named_battles = battles.select(is_named)
    questions, models = _hash_names(battles.questions), _hash_names(battles.models)
    judges = _hash_names([*battles.judges, ""])  # -1 is the last
    a, b, score = (
        models[named_battles.model_a],
        models[named_battles.model_b],
        named_battles.scores(),
    )
    is_turned = a > b
    values = np.where(is_turned, 1.0 - score, score).round(9) + 0.0
    rows = _mix(
        questions[named_battles.question],
        np.where(is_turned, b, a),
        np.where(is_turned, a, b),
        values.view(np.uint64),
        judges[named_battles.judge],
        *(draw.astype(np.uint64) for draw in _turn_draws(named_battles, is_turned)),
    )
    return {
        name: np.sort(
            rows[(named_battles.model_a == code) | (named_battles.model_b == code)]
        )
        for code, name in enumerate(battles.models)
    }


def hashes_of_scores(rows: Iterable[Score]) -> dict[str, Hashes]:
    """Return the hashes of the scores of each entrant, smallest first.

    Parameters
    ----------
    rows : iterable of Score
        Of one dimension.

    Returns
    -------
    dict of str to uint64 array, shape (n,)
        By entrant.
    """
    hashes: dict[str, list[np.uint64]] = {}
    for row in rows:
        text = "\n".join((row.item, row.draw, repr(row.value)))
        hashes.setdefault(row.entrant, []).append(_hash_name(text))
    return {
        name: np.sort(np.array(entrant_hashes))
        for name, entrant_hashes in hashes.items()
    }


def to_evidence(hashes: Mapping[str, Hashes]) -> dict[str, Any]:
    """Return what the store keeps of a result.

    Parameters
    ----------
    hashes : mapping of str to uint64 array
        Of the rows of each entrant.

    Returns
    -------
    dict of str to list
        By entrant, the number of rows and the smallest hashes.
    """
    return {
        name: [
            len(entrant_hashes),
            [f"{value:016x}" for value in np.unique(entrant_hashes)[:N_KEPT_HASHES]],
        ]
        for name, entrant_hashes in sorted(hashes.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLook(Record):
    """Results of a pair, or of an entrant, that were shown before verdicts were added to it.

    first, second  the pair in alphabetical order; without a second, the entrant of a file
    n_looks        how many results were shown
    first_leader   who was significantly ahead at the first of them; None: nobody
    """

    first: str
    second: str | None = None
    n_looks: int
    first_leader: str | None


def find_earlier_results(
    earlier_results: Sequence[EarlierFileResult], hashes: Mapping[str, Hashes]
) -> list[EarlierLook]:
    """Return the entrants whose results were shown before rows were added to them.

    Parameters
    ----------
    earlier_results : sequence of EarlierFileResult
        Results of this dimension that were shown before, the oldest first.
    hashes : mapping of str to uint64 array
        Of the rows of each entrant.

    Returns
    -------
    list of EarlierLook
        `first` is the entrant.
    """
    looks = []
    for name, entrant_hashes in hashes.items():
        leaders = [
            result.leader
            for result in earlier_results
            if name in result.rows and _adds_to(entrant_hashes, *result.rows[name])
        ]
        if leaders:
            looks.append(
                EarlierLook(first=name, n_looks=len(leaders), first_leader=leaders[0])
            )
    return looks


def _adds_to(hashes: Hashes, n_before: int, smallest: Sequence[str]) -> bool:
    """Return whether rows were added: there are more, and most of the earlier ones are still there."""
    if not smallest or len(hashes) <= n_before:
        return False
    earlier_hashes = np.array([int(text, 16) for text in smallest], dtype=np.uint64)
    return bool(2 * np.isin(earlier_hashes, hashes).sum() > len(earlier_hashes))


def _turn_draws(battles: Battles, is_turned: NDArray[np.bool_]) -> tuple[Codes, Codes]:
    zeros = np.zeros(len(battles), dtype=np.int32)
    a = zeros if battles.draw_a is None else battles.draw_a
    b = zeros if battles.draw_b is None else battles.draw_b
    return np.where(is_turned, b, a), np.where(is_turned, a, b)


def _hash_name(text: str) -> np.uint64:
    raw = text.encode(errors="surrogatepass")
    return np.uint64(int.from_bytes(blake2b(raw, digest_size=8).digest(), "big"))


def _hash_names(names: Sequence[str]) -> Hashes:
    return np.array([_hash_name(name) for name in names], dtype=np.uint64)


def _mix(*columns: Hashes) -> Hashes:
    """Mix the hashes of each row's columns into one."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = (hashes ^ column) * _HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes
