"""What entrants, judges and runs are called in figures, where a long name does not fit."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

_MOST = 28  # characters
_END = 13  # characters, of each end that is kept
_WORD = re.compile(r"[^\W_]{1,12}|[\W_]")  # letters and digits, so many at most, or one other sign


def short(name: str) -> str:
    """A name that fits beside a panel: of a long one both ends."""
    return name if len(name) <= _MOST else f"{name[:_END]}…{name[-_END:]}"


def labels(names: Iterable[str]) -> Mapping[str, str]:
    """Each name as it is drawn, no two alike.

    It is `short`; where that is the same for several, the words in which these, and others that begin so, part from one
    another, and as much round them as there is room for. A label is longer where nothing less tells names apart. With
    all names of a run, an entrant has the same label in each of its figures.
    """
    return _labels(frozenset(names))


@functools.lru_cache(maxsize=64)
def _labels(names: frozenset[str]) -> Mapping[str, str]:
    found = {name: short(name) for name in names}
    for most in itertools.count(_MOST, 4):  # once it holds the longest name, labels are names
        n_called = Counter(found.values())
        begun = {name[:_END] for name, label in found.items() if n_called[label] > 1}
        if not begun:
            break
        alike = [name for name in names if name[:_END] in begun]
        n_begun = Counter(start for name in alike for start in _starts(name))
        found |= {name: _parting(name, n_begun, most) for name in alike}
    return MappingProxyType(found)


def _starts(name: str) -> Iterator[str]:
    return (name[:i] for i in range(len(name) + 1))


def _parting(name: str, n_begun: Mapping[str, int], most: int) -> str:
    """The words in which a name parts from others, and what `most` characters hold of the rest: first what lies between
    them, then what comes after them, from the name's end, then what comes before them.

    n_begun  how many names begin so
    """
    if len(name) <= most:
        return name
    words = _WORD.findall(name)
    ends = list(itertools.accumulate(map(len, words)))
    parts = [i for i in range(len(name)) if n_begun[name[: i + 1]] < n_begun[name[:i]]]
    kept = {next(w for w, end in enumerate(ends) if i < end) for i in parts} or {len(words) - 1}
    first, last = min(kept), max(kept)
    for before, after in itertools.pairwise(sorted(kept)):
        between = set(range(before + 1, after))
        kept |= between if len(_cut(words, kept | between)) <= most else set()
    for walk in (range(len(words) - 1, last, -1), range(first - 1, -1, -1)):
        for word in walk:
            if len(_cut(words, kept | {word})) > most:
                break
            kept.add(word)
    return _cut(words, kept)


def _cut(words: Sequence[str], kept: set[int]) -> str:
    """The words that are kept, and an ellipsis for each run of others."""
    runs = itertools.groupby(range(len(words)), kept.__contains__)
    return "".join("".join(words[i] for i in run) if is_kept else "…" for is_kept, run in runs)
