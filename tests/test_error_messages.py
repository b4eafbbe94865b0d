"""Each message of the program to its user: one short line in plain words, and no word of a library's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import elo_exp
from elo_exp import errors

PACKAGE = Path(elo_exp.__file__).parent
MAX_LINE_CHARACTERS = 160
# What a value takes in a message on average
VALUE = "x" * 12
ERROR_CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.UserError)
}
# Words of pydantic, Hydra, OmegaConf and json, and the form that messages had: "NAME: found X. Expected Y."
FOREIGN_WORDS = re.compile(
    r"\bfound .*\. Expected |Input should|Expecting |Ambiguous value|Interpolation|delimiter|"
    r"\bNoneType\b|ListConfig|DictConfig|valid integer|greater than or equal"
)


def list_messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the first line of each message that is written where it is raised."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                line = read_line(node.exc)
                if line:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", line


def read_line(call: ast.Call) -> str:
    """Return the first line of a message, VALUE standing for each value; "" if it is made elsewhere."""
    name = ast.unparse(call.func)
    class_name, _, constructor = name.partition(".")
    if class_name not in ERROR_CLASSES:
        return ""
    texts = [render(argument) for argument in call.args]
    texts += [render(keyword.value) for keyword in call.keywords]
    if constructor == "bad_value":
        return f"{texts[0]} must {texts[2]}; got {VALUE}."
    if constructor == "bad_file":
        location, problem, *fix = texts[:3]
        return f"{location} {problem}. {''.join(fix)}".rstrip()
    return texts[0] if texts and not constructor else ""


def render(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(render, node.values))
    return VALUE


MESSAGES = dict(list_messages())


def test_messages_are_found():
    assert len(MESSAGES) > 300


@pytest.mark.parametrize("place", MESSAGES)
def test_a_message_has_no_word_of_a_library(place: str):
    assert not FOREIGN_WORDS.search(MESSAGES[place])


@pytest.mark.parametrize("place", MESSAGES)
def test_the_first_line_of_a_message_is_short(place: str):
    assert len(MESSAGES[place]) <= MAX_LINE_CHARACTERS


@pytest.mark.parametrize("place", MESSAGES)
def test_a_message_ends_as_a_sentence(place: str):
    assert re.search(r"[.?:)]$|x$", MESSAGES[place].splitlines()[0])
