"""Pairs of answers whose better one is known: a file of our own columns, LLMBar's or JudgeBench's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.data import tables
from elo_exp.records import Record, UserError, fingerprint, one_of

# By our name of a column: what files call it; those of a row, the first that is there.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "input", "question"),
    "response_a": ("response_a", "output_1", "response_A"),
    "response_b": ("response_b", "output_2", "response_B"),
    "label": ("label",),
    "subset": ("subset", "source"),
    "author_a": ("author_a",),
    "author_b": ("author_b",),
    "reference": ("reference",),
}
_LABELS = {"1": "a", "2": "b", "A>B": "a", "B>A": "b", "A=B": "tie"}
_EXPECTED = (
    "prompt, response_a, response_b and label (a, b or tie), or the columns of LLMBar or "
    "JudgeBench"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldPair(Record):
    """Two answers and which is better.

    pair_id  of the texts; equal in files that hold the same pair
    label    a, b or tie
    """

    pair_id: str
    prompt: str
    response_a: str
    response_b: str
    label: str
    subset: str | None = None
    author_a: str | None = None
    author_b: str | None = None
    reference: str | None = None


def read(path: Path) -> list[GoldPair]:
    """Read the pairs of a .json (a list), .jsonl, .csv or .parquet file; equal ones count once.

    Raises UserError with the place of the first row that is no pair.
    """
    rows = _listed(path) if path.suffix == ".json" else tables.rows(path)
    pairs = {pair.pair_id: pair for pair in (_pair(*row) for row in rows)}
    if not pairs:
        raise UserError(f"{path}: has no pair. Expected {_EXPECTED}.")
    return list(pairs.values())


def _listed(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with files.open_text(path) as text:
        try:
            found = json.load(text)
        except ValueError as error:
            raise UserError(f"{path}: not JSON ({error}).") from None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UserError(f"{path}: no list of objects. Expected {_EXPECTED}.")
    yield from ((f"{path}: row {n}", row) for n, row in enumerate(found, start=1))


def _pair(place: str, row: Mapping[str, Any]) -> GoldPair:
    found = {}
    for name, columns in _COLUMNS.items():
        found[name] = next((tables.text(row[c]) for c in columns if c in row), None)
    texts = [found[name] for name in ("prompt", "response_a", "response_b", "label")]
    if None in texts:
        raise UserError(
            f"{place}: has no text as prompt, response or label. Expected {_EXPECTED}."
        )
    label = _LABELS.get(str(found["label"]), str(found["label"]))
    one_of(f"{place}: label", label, ("a", "b", "tie"))
    pair_id = fingerprint(texts[:3])[:16]
    return GoldPair.from_dict({**found, "label": label, "pair_id": pair_id})
