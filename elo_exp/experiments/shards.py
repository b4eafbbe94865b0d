"""Shards of the prompts for several machines: shard=0/4."""

import re
from collections.abc import Mapping, Sequence

from elo_exp import pipeline
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.experiments import Report
from elo_exp.records import Prompt
from elo_exp.store.answer_store import Store


def answer_shard(
    prompts: Sequence[Prompt],
    entrants: Mapping[str, Entrant],
    store: Store,
    shard: str,
    *,
    allow_missing: bool,
    canary: int,
) -> Report:
    """Answer a shard of the prompts, and report the number of answers."""
    pipeline.generate(
        select_shard(prompts, shard),
        entrants,
        store,
        allow_missing=allow_missing,
        canary=canary,
    )
    usage = store.usage
    stored_note = (
        f", {usage.responses_stored} from cache" if usage.responses_stored else ""
    )
    text = (
        f"shard {shard}: {usage.responses_generated} answers generated{stored_note}. To judge all answers, leave out "
        "shard."
    )
    return Report(headline=0.0, text=text)


def select_shard(prompts: Sequence[Prompt], shard: str | None) -> Sequence[Prompt]:
    """Return every n-th prompt for the shard i/n; all prompts for None."""
    if shard is None:
        return prompts
    i, n = parse_shard(shard)
    return prompts[i::n]


def parse_shard(shard: str) -> tuple[int, int]:
    """Return the number of a shard, from 0, and the number of shards.

    Raises SettingError for anything but i/n with i below n.
    """
    match = re.fullmatch("([0-9]+)/([0-9]+)", shard)
    if not match or int(match[1]) >= int(match[2]):
        raise SettingError.bad_value(
            "shard", shard, "be NUMBER/TOTAL, counted from 0: the first of four is 0/4"
        )
    return int(match[1]), int(match[2])
