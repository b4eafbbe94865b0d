"""Public functions of ratings and analysis have numpydoc sections, and their examples are true."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import elo_exp

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
