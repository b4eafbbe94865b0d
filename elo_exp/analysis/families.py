"""Families of models, read from their names: who is kin of the judge."""

import re
from collections.abc import Mapping


def family(families: Mapping[str, str], *names: str) -> str | None:
    """Return the family of a model, from the first of its names that tells it; None: no name does.

    A part of a name tells it where no letter stands on either side: `o1` is in `o1-mini`, not in `foo1`. Case
    does not matter. Of several parts the longest does, so that a whole name goes before its parts.

    families  by part of a name, as judging.families
    names     of one model, the most telling first
    """
    for name in names:
        parts = [part for part in families if _has(name, part)]
        if parts:
            return families[max(parts, key=len)]
    return None


def _has(name: str, part: str) -> bool:
    letter = r"[^\W\d_]"
    pattern = rf"(?<!{letter}){re.escape(part)}(?!{letter})"
    return re.search(pattern, name, re.IGNORECASE) is not None
