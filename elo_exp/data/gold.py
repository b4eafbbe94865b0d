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

# Our names of the columns, by those that a format requires.
_FORMATS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("prompt", "response_a", "response_b", "label"): {},
    ("input", "output_1", "output_2", "label"): {
        "prompt": "input",
        "response_a": "output_1",
        "response_b": "output_2",
    },
    ("question", "response_A", "response_B", "label"): {
        "prompt": "question",
        "response_a": "response_A",
        "response_b": "response_B",
        "subset": "source",
    },
}
_LABELS = {"1": "a", "2": "b", "A>B": "a", "B>A": "b", "A=B": "tie"}
_TEXTS = ("prompt", "response_a", "response_b")
_EXPECTED = " or ".join(f"({', '.join(keys)})" for keys in _FORMATS)
_OPTIONAL = ("subset", "author_a", "author_b", "reference")


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
    columns = next((c for keys, c in _FORMATS.items() if set(keys) <= set(row)), None)
    if columns is None:
        raise UserError(
            f"{place}: has the columns {', '.join(map(str, row))}. Expected {_EXPECTED}."
        )
    texts = {name: row[columns.get(name, name)] for name in _TEXTS}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise UserError(f"{place}: {name} is {text!r}. Expected a text.")
    label = str(row["label"])
    more = {name: tables.text(row.get(columns.get(name, name))) for name in _OPTIONAL}
    fields = {
        "pair_id": fingerprint(list(texts.values()))[:16],
        "label": one_of(
            f"{place}: label", _LABELS.get(label, label), ("a", "b", "tie")
        ),
    }
    return GoldPair.from_dict({**fields, **texts, **more})
