"""The words of a command, rewritten into those that Hydra reads."""

import json
import re
from collections.abc import Sequence
from pathlib import Path


def rewritten(words: Sequence[str]) -> list[str]:
    """Return the words of a command as Hydra reads them: flags first, and no word that is a file."""
    parts = [part for word in words for part in _each_arena(word)]
    is_override = re.compile(r"~|[^-].*=").match
    return _with_files(sorted(parts, key=lambda word: bool(is_override(word))))


def _with_files(words: list[str]) -> list[str]:
    """Words that are files stand for battles=[...] of experiment=rate."""
    files = [w for w in words if not w.startswith("-") and Path(w).is_file()]
    if not files:
        return words
    others = [word for word in words if word not in files]
    if not any(word.startswith("experiment=") for word in others):
        others.append("experiment=rate")
    return [*others, f"battles={json.dumps(files, ensure_ascii=False)}"]


def _each_arena(word: str) -> list[str]:
    """Of arena=[one,two], which Hydra would merge into one: the first, and a union with the others."""
    chosen = re.fullmatch(r"arena=\[(.+)\]", word)
    if chosen is None:
        return [word]
    first, *others = chosen[1].replace(" ", "").split(",")
    return [f"arena={first}", *(f"+arena@arena.union.{n}={n}" for n in others)]
