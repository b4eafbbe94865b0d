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

N_SMALLEST = 16  # hashes of an entrant's rows that are kept
_ODD = np.uint64(0x9E3779B97F4A7C15)  # of Knuth's multiplicative hashing

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFile:
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
    some = battles.select(is_named)
    questions, models = _of_names(battles.questions), _of_names(battles.models)
    judges = _of_names([*battles.judges, ""])  # -1 is the last
    a, b, score = models[some.model_a], models[some.model_b], some.scores()
    is_turned = a > b
    values = np.where(is_turned, 1.0 - score, score).round(9) + 0.0
    rows = _mixed(
        questions[some.question],
        np.where(is_turned, b, a),
        np.where(is_turned, a, b),
        values.view(np.uint64),
        judges[some.judge],
        *(draw.astype(np.uint64) for draw in _draws(some, is_turned)),
    )
    return {
        name: np.sort(rows[(some.model_a == code) | (some.model_b == code)])
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
    found: dict[str, list[np.uint64]] = {}
    for row in rows:
        text = "\n".join((row.item, row.draw, repr(row.value)))
        found.setdefault(row.entrant, []).append(_of_name(text))
    return {name: np.sort(np.array(some)) for name, some in found.items()}


def as_evidence(hashes: Mapping[str, Hashes]) -> dict[str, Any]:
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
        name: [len(some), [f"{one:016x}" for one in np.unique(some)[:N_SMALLEST]]]
        for name, some in sorted(hashes.items())
    }


def earlier_files(
    shown: Sequence[ShownFile], hashes: Mapping[str, Hashes]
) -> list[dict[str, Any]]:
    """Return the entrants whose results were shown before rows were added to them.

    Parameters
    ----------
    shown : sequence of ShownFile
        Results of this dimension that were shown before, the oldest first.
    hashes : mapping of str to uint64 array
        Of the rows of each entrant.

    Returns
    -------
    list of dict
        As the looks of a tournament: `first` is the entrant, `second` None, how many results were shown, and who was
        significantly ahead at the first of them.
    """
    found = []
    for name, now in hashes.items():
        leaders = [
            one.leader
            for one in shown
            if name in one.rows and _adds_to(now, *one.rows[name])
        ]
        if leaders:
            found.append(
                {
                    "first": name,
                    "second": None,
                    "n_looks": len(leaders),
                    "first_leader": leaders[0],
                }
            )
    return found


def _adds_to(now: Hashes, n_before: int, smallest: Sequence[str]) -> bool:
    """Whether rows were added: there are more, and most of those that were known are still there."""
    if not smallest or len(now) <= n_before:
        return False
    known = np.array([int(text, 16) for text in smallest], dtype=np.uint64)
    return bool(2 * np.isin(known, now).sum() > len(known))


def _draws(battles: Battles, is_turned: NDArray[np.bool_]) -> tuple[Codes, Codes]:
    zeros = np.zeros(len(battles), dtype=np.int32)
    a = zeros if battles.draw_a is None else battles.draw_a
    b = zeros if battles.draw_b is None else battles.draw_b
    return np.where(is_turned, b, a), np.where(is_turned, a, b)


def _of_name(text: str) -> np.uint64:
    raw = text.encode(errors="surrogatepass")
    return np.uint64(int.from_bytes(blake2b(raw, digest_size=8).digest(), "big"))


def _of_names(names: Sequence[str]) -> Hashes:
    return np.array([_of_name(name) for name in names], dtype=np.uint64)


def _mixed(*columns: Hashes) -> Hashes:
    """One hash for each row of some columns."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        found = (found ^ column) * _ODD
        found ^= found >> np.uint64(29)
    return found
