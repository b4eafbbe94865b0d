"""The prompt bank: load it, check it, and draw the pilot's stratified subset."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.files import read_texts
from elo_exp.records import Prompt, UserError

logger = logging.getLogger(__name__)

BEHAVIORS = ("answer", "hedge", "abstain")
_REQUIRED = ("prompt_id", "source", "subject", "text")


def load(path: Path) -> list[Prompt]:
    """Load every prompt of a bank, in file order.

    Raises UserError naming file, line and remedy for the first bad row.
    """
    prompts, again = [], []
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for place, row in read_texts(path):
        prompt = _prompt(place, row)
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


def _prompt(place: str, row: Mapping[str, Any]) -> Prompt:
    for name in _REQUIRED:
        if not isinstance(row.get(name), str) or not row[name].strip():
            found = f"has {row[name]!r} as" if name in row else "has no"
            raise UserError(
                f"{place}: the row {found} {name!r}. Expected a non-empty text."
            )
    name = row["prompt_id"]
    gold, behavior = row.get("gold_answer"), row.get("expected_behavior")
    tags, wrong = row.get("tags", []), None
    if gold is not None and (not isinstance(gold, str) or not gold.strip()):
        wrong = (
            "an empty gold_answer. Write one, or remove the key to leave the prompt out of the "
            "dimensions that need a reference."
        )
    elif behavior is not None and behavior not in BEHAVIORS:
        wrong = (
            f"expected_behavior {behavior!r}. Expected one of {', '.join(BEHAVIORS)}."
        )
    elif not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        wrong = f"tags {tags!r}. Expected a list of texts."
    if wrong:
        raise UserError(f"{place}: prompt {row['prompt_id']!r} has {wrong}")
    return Prompt.from_dict({**row, "tags": tuple(tags)})


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
        chosen.update(
            stratum[i] for i in rng.choice(len(stratum), size=count, replace=False)
        )
    return [prompt for i, prompt in enumerate(prompts) if i in chosen]
