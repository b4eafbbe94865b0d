"""The names under which tables hold a prompt, its id, a reference, an answer and who gave it."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROMPT = ("prompt", "question", "input", "instruction", "text", "query")
ID = ("prompt_id", "question_id", "uid", "id", "qid")
# The column is read even if no setting names it
CLUSTER_FIELD = "cluster"
REFERENCE = ("gold_answer", "reference", "target")
SOURCE = ("source", "category", "dataset")
ANSWER = (
    *("response_text", "response", "answer", "output", "completion"),
    "generation",
)
ENTRANT = ("entrant_id", "model", "model_id", "generator")


def fold_spaces(text: str) -> str:
    """Return a text by which it is found: white space of any kind and length is one space."""
    return " ".join(text.split())


def group_alike(names: Iterable[str]) -> list[list[str]]:
    """Return groups of different names that look alike: but for case, white space, dashes and what is not seen."""
    groups = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        plain = unicodedata.normalize("NFKC", name).casefold()
        categories = (
            (character, unicodedata.category(character)) for character in plain
        )
        visible = (
            "-" if category == "Pd" else character
            for character, category in categories
            if category != "Cf"
        )
        groups[fold_spaces("".join(visible))].append(name)
    return [group for group in groups.values() if len(group) > 1]


def describe_alike(names: Iterable[str], noun: str = "models") -> list[str]:
    """Say which of these look alike, a sentence for each group."""
    return [
        f"the {noun} {', '.join(map(repr, group))} look alike and are taken for different ones."
        for group in group_alike(names)
    ]


def entrant_stem(path: Path) -> str:
    """Return a file's name without its endings and without "responses_"."""
    name = Path(path.name.removesuffix(".gz")).stem
    return name.removeprefix("responses_") or name


def first_value(row: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """Return the value under the first of these names that is not missing or empty, else None."""
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def find_prompt(row: Mapping[Any, Any]) -> Any:
    """Return the prompt of a row: of several turns the first, of an instruction also its input."""
    turns = row.get("turns")
    if isinstance(turns, list) and turns:
        return turns[0]
    instruction = row.get("instruction")
    if isinstance(instruction, str) and instruction:
        return join_input(instruction, row.get("input"))
    return first_value(row, PROMPT)


def join_input(instruction: str, input_text: Any) -> str:
    """Return an instruction and the text that it is about, as alpaca_eval puts them."""
    return f"{instruction}\n\n{input_text}" if input_text else instruction


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts q2 before q10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(p), p) if p.isdecimal() else (0, 0, p) for p in parts]
