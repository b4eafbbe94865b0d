"""What one process has worked out already, for the jobs of a sweep that differ in little and do the rest once.

Nothing is kept before `start`: a single run has no use for it. Results are taken as they are and never changed.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from elo_exp.records import Record

T = TypeVar("T")
R = TypeVar("R", bound=Record)

_VALUES, _RESULTS, _ROWS = (
    4,
    64,
    100_000,
)  # kept at a time: equal values of a kind, results and rows of all kinds
_values: dict[str, deque[Any]] = {}
_rows: dict[tuple[type[Record], str], Record] = {}
_results: OrderedDict[Hashable, tuple[tuple[object, ...], Any]] = OrderedDict()
_on = [False]


def start() -> None:
    """From now on, keep."""
    _on[0] = True


def is_on() -> bool:
    return _on[0]


def stop() -> None:
    """Forget all."""
    _on[0] = False
    _values.clear()
    _results.clear()
    _rows.clear()


def read(record: type[R], text: str) -> R:
    """The record that a JSON object is, read once."""
    if not _on[0]:
        return record.from_dict(json.loads(text))
    if (record, text) not in _rows:
        if len(_rows) == _ROWS:
            _rows.clear()
        _rows[record, text] = record.from_dict(json.loads(text))
    return cast(R, _rows[record, text])


def same(kind: str, value: T) -> T:
    """An earlier value of this kind that equals this one, so that what was made of it is found; else this one."""
    if not _on[0]:
        return value
    kept = _values.setdefault(kind, deque(maxlen=_VALUES))
    for earlier in kept:
        if earlier == value:
            return cast(T, earlier)
    kept.append(value)
    return value


def once(name: str, make: Callable[[], T], *, of: tuple[object, ...] = (), by: Hashable = ()) -> T:
    """What `make` gives, made once `of` these very objects and `by` these settings."""
    if not _on[0]:
        return make()
    key = (name, tuple(map(id, of)), by)
    if key not in _results:
        _results[key] = (of, make())  # held with its sources, whose ids then stay theirs
        while len(_results) > _RESULTS:
            _results.popitem(last=False)
    _results.move_to_end(key)
    return cast(T, _results[key][1])
