"""The prompt bank: load it, check it, and draw the pilot's stratified subset."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, StringConstraints

from elo_exp.files import checked, read_texts
from elo_exp.records import Prompt, UserError

logger = logging.getLogger(__name__)

_FIELDS = (
    " Leave out an optional field that is empty; prompts/README.md has the fields."
)
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Row(BaseModel):
    prompt_id: _Text
    source: _Text
    subject: _Text
    text: _Text
    gold_answer: _Text | None = None
    expected_behavior: Literal["answer", "hedge", "abstain"] | None = None
    tags: list[str] = []


def load(path: Path) -> list[Prompt]:
    """Load every prompt of a bank, in file order.

    Raises UserError naming file, line and remedy for the first bad row.
    """
    prompts, again = [], []
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for place, row in read_texts(path):
        checked(_Row, row, place, _FIELDS)
        prompt = Prompt.from_dict(row)
        if (earlier := places.setdefault(prompt.prompt_id, place)) != place:
            raise UserError(
                f"{place}: prompt_id {prompt.prompt_id!r} is already at {earlier}. Give each its "
                "own."
            )
        first = texts.setdefault(prompt.text.strip(), prompt.prompt_id)
        if first != prompt.prompt_id:
            again.append(f"{prompt.prompt_id!r} that of {first!r}")
        prompts.append(prompt)
    if not prompts:
        raise UserError(f"{path}: has no prompts. Expected one JSON object a line.")
    if again:
        _warn_once(
            f"{path}: {len(again)} of {len(prompts)} prompts repeat the text of another "
            f"({again[0]}). They count as independent, which makes intervals too narrow. Remove "
            "them."
        )
    return prompts


@cache
def _warn_once(line: str) -> None:
    """Once in a command, in which several parts read the bank."""
    logger.warning("warning: %s", line)


def strata(path: Path, column: str) -> dict[str, str]:
    """Return each prompt's value of a column, by prompt_id.

    Raises UserError for a column that no row has.
    """
    rows = [row for _, row in read_texts(path)]
    if not any(column in row for row in rows):
        known = ", ".join(sorted({name for row in rows for name in row}))
        raise UserError(
            f"stratum: found no column {column!r} in {path}. Choose one of {known}."
        )
    return {
        row["prompt_id"]: str(row[column])
        for row in rows
        if row.get(column) is not None
    }


def select(
    prompts: Sequence[Prompt], strata: Mapping[str, int] | None, *, seed: int
) -> list[Prompt]:
    """Sample so many prompts of each source, in bank order; the whole bank without strata.

    The strata are drawn one after the other from one generator, so that the subset depends on their
    order and on `seed` alone. Raises UserError where a stratum has too few.
    """
    if not strata:
        return list(prompts)
    rng = np.random.default_rng(seed)
    chosen: set[int] = set()
    for source, count in strata.items():
        stratum = [i for i, prompt in enumerate(prompts) if prompt.source == source]
        if len(stratum) < count:
            sizes = Counter(p.source for p in prompts).items()
            raise UserError(
                f"mode.strata: found {count} prompts of source {source!r}. Expected at most "
                f"{len(stratum)}: the bank has {', '.join(f'{name} {n}' for name, n in sizes)}."
            )
        chosen.update(rng.choice(stratum, size=count, replace=False).tolist())
    return [prompt for i, prompt in enumerate(prompts) if i in chosen]
