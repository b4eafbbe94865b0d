"""The library's names, and the public functions of ratings and analysis, have numpydoc sections and true examples.

Throughout the package, a docstring that says what is raised names the class of each error that the function itself raises.
"""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import elo_exp
from elo_exp.errors import UserError
from tests.openai_server import alone

PACKAGE = Path(elo_exp.__file__).parent
MODULES = sorted(
    f"{folder}.{path.stem}"
    for folder in ("analysis", "ratings")
    for path in (PACKAGE / folder).glob("*.py")
    if path.stem != "__init__"
)


def functions(module: str) -> dict[str, ast.FunctionDef]:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        node.name: node
        for node in body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def documented(doc: str) -> list[str]:
    """The names in the section Parameters."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", doc, re.M | re.S)
    lines = section[1].splitlines() if section else []
    heads = [line.partition(" : ")[0] for line in lines if line[:1].strip()]
    return [name.lstrip("*") for head in heads for name in head.split(", ")]


@pytest.mark.parametrize("module", MODULES)
def test_parameters_and_what_is_returned_are_documented(module: str):
    for name, node in functions(module).items():
        doc = ast.get_docstring(node) or ""
        every = (
            *node.args.args,
            *filter(None, [node.args.vararg]),
            *node.args.kwonlyargs,
        )
        parameters = [argument.arg for argument in every]
        if node.args.kwarg:
            parameters.append(node.args.kwarg.arg)
        assert documented(doc) == parameters, f"{module}.{name}"
        assert "\nReturns\n-------\n" in doc, f"{module}.{name}"


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module: str):
    found = doctest.testmod(importlib.import_module(f"elo_exp.{module}"))
    assert found.failed == 0


# The library

LIBRARY = (
    "elo_exp",
    *(f"elo_exp.{name}" for name in ("errors", "library.calls", "library.results")),
)
CALLABLES = [name for name in elo_exp.__all__ if not name.startswith("__")]


@pytest.mark.parametrize("module", LIBRARY)
def test_examples_of_the_library_are_true(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    alone(monkeypatch, tmp_path)
    found = doctest.testmod(
        importlib.import_module(module), optionflags=doctest.ELLIPSIS
    )
    assert (found.failed, found.attempted > 0) == (0, True)


@pytest.mark.parametrize("name", CALLABLES)
def test_a_name_of_the_library_says_what_it_is(name: str):
    """Each docstring has a summary of one line.

    A function also describes its parameters, results and errors and shows an example. A result class
    describes its attributes.
    """
    named = getattr(elo_exp, name)
    doc = inspect.getdoc(named) or ""
    assert re.match(r"[A-Z].*\.(\n\n|$)", doc)
    sections = {"Parameters", "Returns", "Raises", "Examples"}
    if not inspect.isfunction(named):
        is_error = issubclass(named, Exception)
        sections = set() if is_error else {"Attributes", "Examples"}
    else:
        assert documented(doc) == [*inspect.signature(named).parameters]
    assert sections <= set(re.findall(r"^(\w+)\n-+$", doc, re.M))
    assert "+SKIP" not in doc


ERRORS = {error.__name__ for error in UserError.__subclasses__()}


def errors_raised(node: ast.FunctionDef) -> set[str]:
    """The user's mistakes that a function raises by a statement of its own."""
    calls = [
        inner.exc.func
        for inner in ast.walk(node)
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call)
    ]
    return {ast.unparse(call).rpartition(".")[2] for call in calls} & ERRORS


def errors_not_named(source: str) -> list[str]:
    """The functions of a module whose docstrings say what is raised, with the errors that these leave out."""
    lacking = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        doc = ast.get_docstring(node) or ""
        missing = errors_raised(node) - set(re.findall(r"\w+", doc))
        if missing and re.search(r"\braises?\b", doc, re.IGNORECASE):
            lacking.append(f"{node.name}: {', '.join(sorted(missing))}")
    return lacking


def test_errors_that_a_function_raises_are_named_by_their_class():
    lacking = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := errors_not_named(path.read_text(encoding="utf-8")))
    }
    assert lacking == {}


def test_an_error_that_is_named_by_its_base_class_is_seen():
    source = (
        "def f():\n    '''Raises UserError for none.'''\n    raise FileError('none')"
    )
    assert errors_not_named(source) == ["f: FileError"]
    assert errors_not_named(source.replace("UserError", "FileError")) == []
