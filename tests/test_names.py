"""Names explain themselves: four kinds of names that do not must not become more.

Each kind has a limit: what was left when the package was read name by name. A failing test lists all names of the kind.
Rename yours: a function is a verb phrase, a constant is complete without its comment, a variable names the thing. The
others were judged to be fine (`cached`, a pair `first, second`), or can go: then lower the limit.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from elo_exp.paths import HOME
from tests.test_architecture import PACKAGE

LIMITS = {
    "a local name that is a pronoun": 62,
    "a function named by a participle": 19,
    "a function named by a preposition": 16,
    "a constant that a trailing comment explains": 2,
}
PRONOUNS = {
    *("every", "each", "both", "either", "neither", "such", "same", "own", "one"),
    *("some", "other", "others", "another", "many", "most", "few", "none", "all"),
    *("this", "that", "these", "those", "what", "which", "who", "whose"),
    *("first", "rest", "whole", "part", "place", "thing"),
    *("found", "given", "kept", "known", "made", "put", "said", "seen", "shown"),
    *("taken", "told", "held"),
}
PREPOSITIONS = re.compile(
    "_*(as|at|between|beyond|by|for|in|into|of|on|over|per|through|under|with|without)_"
)
IRREGULAR_PARTICIPLES = {
    *("begun", "built", "chosen", "cut", "drawn", "found", "given", "held", "kept"),
    *("known", "left", "lost", "made", "meant", "met", "paid", "put", "read", "said"),
    *("seen", "sent", "shown", "spent", "taken", "thrown", "told", "won", "written"),
}
PARTICIPLE = re.compile("[a-z]{3,}(ed|ing)")


def files() -> list[Path]:
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if "home" not in path.relative_to(PACKAGE).parts
    ]


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(d) for d in function.decorator_list)


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR_PARTICIPLES or PARTICIPLE.fullmatch(word) is not None


def bound_names(function: ast.AST) -> set[str]:
    """Return the parameters and variables of a function and of those inside it."""
    return {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(function)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


def unclear_names(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind and the place of each name of a file that does not explain itself."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for name in sorted(bound_names(node) & PRONOUNS):
            yield "a local name that is a pronoun", f"{place} {node.name}: {name}"
        if is_participle(node.name) and not is_property(node):
            yield "a function named by a participle", f"{place} {node.name}"
        if PREPOSITIONS.match(node.name) and not node.name.startswith("__"):
            yield "a function named by a preposition", f"{place} {node.name}"
    commented = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.line.lstrip().startswith("#")
    }
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        is_constant = isinstance(target, ast.Name) and target.id.isupper()
        if is_constant and {statement.lineno, statement.end_lineno} & commented:
            place = f"{path.relative_to(PACKAGE)}:{statement.lineno}"
            kind = "a constant that a trailing comment explains"
            yield kind, f"{place} {ast.unparse(target)}"


@pytest.fixture(scope="module")
def unclear() -> list[tuple[str, str]]:
    return [entry for path in files() for entry in unclear_names(path)]


@pytest.mark.parametrize("kind", LIMITS)
def test_unclear_names_do_not_become_more(unclear: list[tuple[str, str]], kind: str):
    names = [name for its_kind, name in unclear if its_kind == kind]
    assert len(names) <= LIMITS[kind], "\n".join(names)


def test_file_names_are_unique():
    """Sockets are left out: their files are named after the programs and commands that they serve."""
    sockets = {
        "api",
        "answers",
        "entrants",
        "experiments",
        "formats",
        "judges",
        "trackers",
    }
    names = Counter(
        path.name
        for path in files()
        if path.name != "__init__.py" and path.parent.name not in sockets
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_function_is_named_like_a_test():
    """pytest would collect it from each test file that imports it."""
    named_like_tests = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path in files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.startswith(("test", "Test"))
    ]
    assert named_like_tests == []


def test_the_words_of_the_glossary_are_used_in_names():
    text = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Words in the code")[2].partition("\n## ")[0]
    words = set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) - {"word"}
    names = {
        part
        for path in files()
        for name in re.findall(r"\w+", path.read_text(encoding="utf-8"))
        for part in re.split("_|(?<=[a-z])(?=[A-Z])", name)
    }
    assert words
    assert words - {name.lower().removesuffix("s") for name in names} == set()
