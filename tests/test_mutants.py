"""Each mistake of tests/mutants.py is seen by the test that is there to see it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elo_exp.paths import HOME
from tests.mutants import MUTANTS, Mutant

NOT_COPIED = (".*", "__pycache__", "outputs", "site")
each_mutant = pytest.mark.parametrize(
    "mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS]
)


def marks_of_test(module: ast.Module, test: str) -> set[str]:
    """Return the names of the marks that a test, or its whole module, has."""
    parts: list[ast.expr] = []
    for node in module.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "pytestmark"
        ):
            parts.append(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name == test:
            parts += node.decorator_list
    return set(re.findall(r"pytest\.mark\.(\w+)", " ".join(map(ast.unparse, parts))))


@each_mutant
def test_a_mutant_names_a_line_and_a_test_that_are_there(mutant: Mutant):
    """Once each; else the mutant is to be written anew, or another test be named."""
    mistaken = mutant.mistaken((HOME / mutant.file).read_text())
    if mutant.file.suffix == ".py":
        ast.parse(mistaken)
    module, test = mutant.seen_by.split("::")
    source = (HOME / "tests" / module).read_text()
    assert len(re.findall(rf"^def {test}\(", source, re.MULTILINE)) == 1
    assert not marks_of_test(ast.parse(source), test) & {"slow", "faults"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder of their own, and the tests, which see the mistakes in none but these."""
    folder = tmp_path_factory.mktemp("copy") / "elo_exp"
    shutil.copytree(HOME, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    return folder


@pytest.fixture
def mistaken(mutant: Mutant, copy: Path) -> Iterator[None]:
    """The copy, with the mistake in it."""
    file = copy / mutant.file
    before = file.read_text()
    file.write_text(mutant.mistaken(before))
    yield
    file.write_text(before)


def run_tests(copy: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """These tests of the copy, in a process of their own, up to the first that fails."""
    options = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            *(f"tests/{test}" for test in tests),
        ],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_without_a_mistake_they_pass(copy: Path):
    ran = run_tests(copy, *dict.fromkeys(mutant.seen_by for mutant in MUTANTS))
    assert ran.returncode == 0, ran.stdout
    assert "skipped" not in ran.stdout


@pytest.mark.slow
@each_mutant
@pytest.mark.usefixtures("mistaken")
def test_a_mistake_is_seen(mutant: Mutant, copy: Path):
    ran = run_tests(copy, mutant.seen_by)
    assert ran.returncode == 1, ran.stdout  # a test has failed; 2: none could be run
