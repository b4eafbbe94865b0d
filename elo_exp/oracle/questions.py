"""What the policies are asked: the prompts of the bank, or what people first asked in an arena, in English."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from elo_exp.arena import sources as arenas
from elo_exp.data.scoring import ScoreRubric
from elo_exp.records import Prompt, UserError, fingerprint
from elo_exp.settings import ArenaSettings

logger = logging.getLogger(__name__)

_LABELS = ("english", "en", "eng")  # what data sets call it
_MIN_ASCII = 0.9  # of the letters of an English text
_LETTERS = re.compile(r"[^\W\d_]+")
_ENGLISH = """
the of and to is are was it that this with for what how why which when who you your my can could would should do does
have has be if or not from about please write give tell explain make
"""
_OTHERS = """
el las un una que qué es por para con como del der das und ist nicht ein eine ich mit wie le les des une est dans pour
qui je di che sono non um uma na não het een niet och att en de
"""  # of Spanish, German, French, Italian, Portuguese, Dutch, Swedish; none is an English word


def drawn(names: Iterable[str], *, seed: int, purpose: str) -> list[str]:
    """The names in a random order that every machine repeats: whoever is added does not change the order of the others,
    so that a larger draw holds the smaller one."""
    return sorted(names, key=lambda name: fingerprint([purpose, seed, name]))


def of_bank(prompts: Sequence[Prompt], n: int | None, *, seed: int) -> list[Prompt]:
    """A random n of the prompts, or all where there are not more, in their order."""
    chosen = set(drawn((p.prompt_id for p in prompts), seed=seed, purpose="prompts")[:n])
    return [prompt for prompt in prompts if prompt.prompt_id in chosen]


def of_arena(arena: ArenaSettings, n: int | None, *, seed: int) -> list[Prompt]:
    """A random n of what was first asked in an arena, or all where there is not more, numbered as drawn.

    Left out is what is empty, longer than `arena.max_chars`, asked before, or not English by the data set's label or by
    its words. Raises UserError where nothing is left.
    """
    asked: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for language, question in arenas.questions(arena):
        text = (question or "").strip()
        reason = _unfit(language, text, arena)
        if reason or text in asked:
            dropped[reason or "asked before"] += 1
        else:
            asked[text] = None
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "-"
    if not asked:
        raise UserError(
            f"arena {arena.name}: no question is left ({reasons}). Expected rows with an English prompt."
        )
    logger.info("arena %s: %d questions; left out: %s", arena.name, len(asked), reasons)
    texts = drawn(asked, seed=seed, purpose="prompts")[:n]
    return [
        Prompt(prompt_id=f"{arena.name}_{number}", text=text, source=arena.name, subject="")
        for number, text in enumerate(texts)
    ]


def usable(prompts: Sequence[Prompt], rubrics: Sequence[ScoreRubric]) -> list[Prompt]:
    """Those that all rubrics apply to. Raises UserError where there is none."""
    found = [prompt for prompt in prompts if all(rubric.applies_to(prompt) for rubric in rubrics)]
    if not found:
        raise UserError(
            f"scoring: none of {len(prompts)} prompts has the reference answer that is to be shown. Choose rubrics "
            "that show none: scoring=score scoring@oracle_scoring=score."
        )
    if len(found) < len(prompts):
        logger.info(
            "%d of %d prompts have no reference answer and are left out",
            len(prompts) - len(found),
            len(prompts),
        )
    return found


def _unfit(language: str | None, text: str, arena: ArenaSettings) -> str | None:
    """Why a question is not taken, in words."""
    if not text:
        return "empty"
    if len(text) > arena.max_chars:
        return f"longer than {arena.max_chars} characters"
    if arena.columns.language is not None and (language or "").casefold() not in _LABELS:
        return "labelled as another language"
    return None if is_english(text) else "in other words than English ones"


def is_english(text: str) -> bool:
    """Whether a text looks English whatever its label says: letters of its alphabet, and no more common words of other
    languages than of English. It lets through what it cannot tell, such as a name or a formula."""
    letters = "".join(_LETTERS.findall(text))
    if sum(letter.isascii() for letter in letters) < _MIN_ASCII * len(letters):
        return False
    words = Counter(_LETTERS.findall(text.lower()))
    english, others = (
        sum(words[word] for word in common.split()) for common in (_ENGLISH, _OTHERS)
    )
    return others <= english
