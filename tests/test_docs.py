"""What the pages show is so: a tutorial's commands end with the output shown, extras bring what is said, files have the
fields named. That every other command ends well is tested in test_docs_commands.py and test_docs_models.py.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from elo_exp import HOME, __version__
from tests.commands import attempt_program
from tests.documented import PAGES, TUTORIALS, Block, commands, in_block, relative, shown
from tests.readers_machine import NOT_GIVEN

COMMANDS = {command.line for page in PAGES for command in commands(relative(page))}
NOT_HERE = {
    "llama_cpp",
    "ray",
}  # extras that an environment for tests does not hold: slow to build, and large


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# The tutorials


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def walked(folder: Path) -> dict[Block, str]:
    """What the commands before each output that a tutorial shows have said."""
    said = ""
    outputs = {}
    for block in (block for page in TUTORIALS for block in shown(page)):
        if block.kind == "text":
            outputs[block] = said
        elif block.kind in ("python", "csv"):
            write(folder / str(block.file), block.text)
        else:
            said = "".join(walk(line, folder) for line in in_block(block.text))
    return outputs


def walk(line: str, folder: Path) -> str:
    program, *arguments = shlex.split(line)
    assert program == "python"
    alone = {"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}  # other tests want the cores
    ran = attempt_program(sys.executable, *arguments, folder=folder, **alone)
    assert ran.code == 0, ran.err
    return ran.out + ran.err


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_shows_what_its_commands_say(page: str, walked: dict[Block, str]):
    outputs = {block: said for block, said in walked.items() if block.page == page}
    assert outputs
    for block, said in outputs.items():
        assert lines(block.text, page) <= lines(said, page)


def lines(text: str, page: str) -> set[str]:
    """What a model computes may end in other digits on another processor: of its numbers only the places are told."""
    return set((re.sub(r"\d", "0", text) if page.endswith("oracle.md") else text).splitlines())


# Installing, and what nobody gives here


def test_the_extras_of_the_pages_are_there_and_bring_what_the_tests_have_installed(tmp_path: Path):
    """pip would install nothing but elo_exp itself, and warns of an extra that there is not."""
    installing = [shlex.split(line)[-1] for line in COMMANDS if line.startswith("pip install")]
    assert {what.partition("[")[0] for what in installing} == {".", "elo-exp"}
    extras = {
        extra for what in installing for extra in re.findall(r"[\w-]+", what.partition("[")[2])
    }
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras & NOT_HERE <= set(project["optional-dependencies"])
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-build-isolation",
        "--dry-run",
    )
    ran = attempt_program(*pip, f"{HOME}[{','.join(extras - NOT_HERE)}]", folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "does not provide the extra" not in ran.out + ran.err
    assert ran.out.splitlines()[-1] == f"Would install elo-exp-{__version__}"


def test_continuous_integration_gives_what_is_left_to_it(tmp_path: Path):
    """In a fresh folder `make` begins with the environment, as the README does by hand."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(HOME / name, tmp_path)
    given = (HOME / ".ci/run").read_text(encoding="utf-8").splitlines()
    left = {line for line in COMMANDS if re.match(next(iter(NOT_GIVEN)), line)} - {".ci/run"}
    made = attempt_program("make", "-n", "demo", "test", folder=tmp_path).out
    assert {line for line in left if line not in given} == {"python -m pytest"}
    words = [
        "-m venv .venv",
        "pip install --quiet --editable .\n",
        "--editable '.[dev]'",
        "-m pytest\n",
    ]
    assert [each for each in words if each not in made] == []


@pytest.mark.parametrize("target", ["bench", "test-slow", "test-faults"])
def test_what_takes_half_an_hour_is_there(target: str, tmp_path: Path):
    assert f"make {target}" in COMMANDS
    recipe = attempt_program("make", "-nC", str(HOME), target, folder=tmp_path)
    assert recipe.code == 0, recipe.err
    modules = re.findall(r"-m (tests\.\S+)", recipe.out)
    markers = re.findall(r'-m pytest .*-m "?(\w+)', recipe.out)
    assert modules or markers
    assert [name for name in modules if not (HOME / f"{name.replace('.', '/')}.py").is_file()] == []
    tests = "".join(path.read_text(encoding="utf-8") for path in HOME.glob("tests/test_*.py"))
    assert [name for name in markers if f"pytest.mark.{name}" not in tests] == []


# Files


def test_every_file_of_a_run_is_described(walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    patterns = {re.sub("<.*>", "*", name) for name in re.findall(r"`([^`]+)`", text)}
    for path in (path for path in (folder / "outputs/first").rglob("*") if path.is_file()):
        name = path.relative_to(folder / "outputs/first")
        assert any(fnmatch(str(name), pattern) for pattern in patterns) or name.parts[0] in (
            "figures",
            ".hydra",
        ), name


@pytest.mark.parametrize(
    "file",
    [
        "responses/responses_probe_hedged.jsonl",
        "matches/matches.jsonl",
        "verdicts/factuality.jsonl",
        "battles.jsonl",
    ],
)
def test_every_field_of_a_row_is_described(file: str, walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    row = json.loads((folder / "outputs/first" / file).read_text(encoding="utf-8").splitlines()[0])
    names = {
        *row,
        *(f".{name}" for name in row.get("raw", [{}])[0]),
        *(["raw[]"] if row.pop("raw", None) else []),
    }
    assert {name for name in names - {"raw"} if f"`{name}`" not in text} == set()


def test_every_field_of_the_manifest_is_described(walked: dict[Block, str], folder: Path):
    text = (HOME / "docs/files.md").read_text(encoding="utf-8")
    manifest = json.loads((folder / "outputs/first/manifest.json").read_text(encoding="utf-8"))
    assert {
        name for name in manifest if f"`{name}`" not in text and f"`{name}[]`" not in text
    } == set()
