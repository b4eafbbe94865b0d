"""What docs/own.md is about: two files of answers to sixty questions, and a judge who goes by the steps in them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from elo_exp.files import write_jsonl
from tests.anthropic_verdicts import Shown, draw
from tests.data import write_table

_THINGS = (
    *("a cast-iron pan", "a wool jumper", "a leather shoe", "an oak table"),
    *("a bicycle chain", "a kitchen knife", "a white shirt", "a window frame"),
    *("a garden hose", "a linen curtain"),
)
_WANTS = ("clean", "store", "repair", "revive", "colour", "pack")
_STEPS = ("soak", "brush", "air", "cool", "warm", "wipe", "press", "rinse", "rest")
_ASIDES = ("at home", "in a rush", "on a dry day", "with a friend", "after lunch")
QUESTIONS = tuple(f"How do I {want} {thing}?" for thing in _THINGS for want in _WANTS)


def answer(question: str, n_steps: int, n_asides: int = 0) -> str:
    """So many steps, each of its own length, and asides that lead to nothing."""
    want, thing = question.removeprefix("How do I ").rstrip("?").split(" ", 1)
    first = int(len(_STEPS) * draw("first", question))
    steps = (_STEPS[(first + i) % len(_STEPS)].capitalize() for i in range(n_steps))
    asides = sorted(_ASIDES, key=lambda words: draw("aside", question, words))
    minutes = (int(2 + 58 * draw("minutes", question, i)) for i in range(n_steps))
    return " ".join(
        [
            *(f"{want.capitalize()} {thing} {aside}." for aside in asides[:n_asides]),
            *(
                f"{step} it for {n} minutes."
                for step, n in zip(steps, minutes, strict=True)
            ),
        ]
    )


def rows(name: str) -> list[dict[str, Any]]:
    """Answers of old or new, which has a step more on three questions of five, and one less on one of five."""
    found = []
    for question in QUESTIONS:
        more = draw("more", question)
        change = (1 if more < 0.6 else -1 if more > 0.8 else 0) if name == "new" else 0
        n_steps = 2 + int(draw("steps", question) < 0.5) + change
        n_asides = int(4 * draw("asides", name, question))
        text = answer(question, n_steps, n_asides)
        found.append({"question": question, "answer": text})
    return found


def write_files(folder: Path) -> None:
    """old.csv (and old.jsonl), which failed on the last question, new.jsonl, and questions.jsonl with references."""
    old = [row | {"error": ""} for row in rows("old")]
    old[-1] |= {"answer": "", "error": "timeout"}
    for ending in ("csv", "jsonl"):
        write_table(folder / f"old.{ending}", old)
    write_jsonl(folder / "new.jsonl", rows("new"))
    asked = [{"question": q, "reference": answer(q, 4)} for q in QUESTIONS]
    write_jsonl(folder / "questions.jsonl", asked)


def judge(shown: Shown) -> str:
    """The answer with more of the steps that fit the question; with as many a tie, now and then with an error."""
    best = answer(shown.question.strip(), len(_STEPS))
    steps = set(re.findall(r"[^.]+\.", best))
    texts = shown.response_a, shown.response_b
    counts = [sum(step.strip() in text for step in steps) for text in texts]
    order = 1 if texts[0] < texts[1] else -1
    gap = order * 3.0 * (counts[0] - counts[1])
    chances = math.exp(gap / 2), math.exp(-gap / 2), 3.0
    u = draw("verdict", shown.question, *sorted(texts))
    if draw("slip", shown.user) < 0.04:
        u = 1.0 - u
    at = sum(chances) * u
    first, second = ("A", "B") if order == 1 else ("B", "A")
    return first if at < chances[0] else "TIE" if at < chances[0] + 3.0 else second
