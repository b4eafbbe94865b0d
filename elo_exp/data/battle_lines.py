"""Battles as the lines of battles.jsonl."""

import json
from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np

from elo_exp.data.battles import Battles

# The text of one block of rows is in memory at a time
_BLOCK_ROWS = 10_000
_OMITTED_IF_ZERO = ("draw_a", "draw_b")


def encode_battles(battles: Battles) -> Iterator[str]:
    """Yield the text of battles.jsonl in blocks; each name is encoded once."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    pieces, separator = [], "{"
    for name, (names, codes) in battles.columns().items():
        encoded_names = [
            ""
            if name in _OMITTED_IF_ZERO and not value
            else f'{separator}"{name}": {encode(value)}'
            for value in (*names, None)
        ]
        pieces.append((np.array(encoded_names, dtype=object), codes))
        separator = ", "
    for start in range(0, len(battles), _BLOCK_ROWS):
        block = [
            texts[codes[start : start + _BLOCK_ROWS]].tolist()
            for texts, codes in pieces
        ]
        rows = zip(*block, repeat("}\n"), strict=False)
        yield "".join(chain.from_iterable(rows))
