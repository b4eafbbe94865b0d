"""Faulty versions of a JSON document, each with one place changed: for readers of result files."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every container within a document, with each of its keys."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    for key in keys:
        yield document, key
        if isinstance(document[key], dict | list):
            yield from places(document[key])


def faulty(document: Any, n: int, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """n copies with a key renamed, or a value that is gone, doubled, null, a list or a word."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        changed = copy.deepcopy(document)
        every = list(places(changed))
        within, key = every[rng.integers(len(every))]
        kind = rng.choice(["renamed", "gone", "doubled", "null", "list", "word"])
        value = within.pop(key) if kind in ("renamed", "gone") else within[key]
        if kind == "renamed" and isinstance(within, dict):
            within[f"{key}_"] = value
        elif kind == "doubled" and isinstance(within, list):
            within.append(value)
        elif kind in ("null", "list", "word"):
            within[key] = {"null": None, "list": [value], "word": "zzz"}[kind]
        yield f"{kind} {key!r}", changed
