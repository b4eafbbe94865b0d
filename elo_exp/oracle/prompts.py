"""The prompts of the policies: from the bank, or the first turns of an arena, in English."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSource
from elo_exp.data.scoring import ScoreRubric
from elo_exp.records import Prompt, UserError, fingerprint

logger = logging.getLogger(__name__)

_ENGLISH = ("english", "en", "eng")  # what data sets call it


def shuffled(names: Iterable[str], *, seed: int, purpose: str) -> list[str]:
    """Shuffle by a hash, so that the first n of a larger set include those of a smaller one."""
    return sorted(names, key=lambda name: fingerprint([purpose, seed, name]))


def sample_bank(prompts: Sequence[Prompt], n: int | None, *, seed: int) -> list[Prompt]:
    """Sample n prompts, or all where there are not more, in their order."""
    chosen = set(
        shuffled((p.prompt_id for p in prompts), seed=seed, purpose="prompts")[:n]
    )
    return [prompt for prompt in prompts if prompt.prompt_id in chosen]


def sample_arena(arena: ArenaSource, n: int | None, *, seed: int) -> list[Prompt]:
    """Sample n first turns of an arena, or all where there are not more, numbered as drawn.

    Empty, repeated and too long ones are left out, and those that are not English by the data set's
    label, or by their words where it has none. Raises UserError where none is left.
    """
    texts: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for language, question in arenas.questions(arena):
        text = (question or "").strip()
        reason = "repeated" if text in texts else _reason_to_drop(language, text, arena)
        if reason:
            dropped[reason] += 1
        else:
            texts[text] = None
    reasons = (
        ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "-"
    )
    if not texts:
        raise UserError(
            f"arena {arena.name}: no prompt is left ({reasons}). Expected rows with an English one."
        )
    logger.info("arena %s: %d prompts; dropped: %s", arena.name, len(texts), reasons)
    return [
        Prompt(
            prompt_id=f"{arena.name}_{number}", text=text, source=arena.name, subject=""
        )
        for number, text in enumerate(shuffled(texts, seed=seed, purpose="prompts")[:n])
    ]


def usable(prompts: Sequence[Prompt], rubrics: Sequence[ScoreRubric]) -> list[Prompt]:
    """Keep the prompts that all rubrics apply to. Raises UserError where there is none."""
    found = [
        prompt
        for prompt in prompts
        if all(rubric.applies_to(prompt) for rubric in rubrics)
    ]
    if not found:
        raise UserError(
            f"scoring: none of {len(prompts)} prompts has a reference answer, which the rubric "
            "shows. Choose rubrics without one: scoring=score scoring@oracle_scoring=score."
        )
    if len(found) < len(prompts):
        n_dropped = len(prompts) - len(found)
        logger.info(
            "%d of %d prompts dropped: no reference answer", n_dropped, len(prompts)
        )
    return found


def _reason_to_drop(language: str | None, text: str, arena: ArenaSource) -> str | None:
    if not text:
        return "empty"
    if len(text) > arena.max_chars:
        return f"longer than {arena.max_chars} characters"
    return None if (language or "").casefold() in _ENGLISH else "not in English"
