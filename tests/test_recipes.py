"""The recipes of CONTRIBUTING.md as a reader follows them: their files are copied into an empty folder, their commands run
there, and what they show is printed."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from elo_exp.analysis import checks
from elo_exp.paths import HOME
from tests.commands import run
from tests.documented import Block, blocks


@dataclass(frozen=True)
class Recipe:
    files: dict[str, str]
    commands: list[str]
    shown: list[str]


def read_recipes() -> dict[str, Recipe]:
    """The recipes by the part that each makes."""
    page = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"^### ", page, flags=re.MULTILINE)
    all_blocks = blocks("CONTRIBUTING.md")
    recipes = {}
    for section in sections:
        title, _, text = section.partition("\n")
        text = re.split(r"^## ", text, flags=re.MULTILINE)[0]
        own = [block for block in all_blocks if block.text in text]
        if any(block.kind == "python" for block in own):
            recipes[title] = Recipe(
                files={
                    str(block.file): block.text
                    for block in own
                    if block.kind in ("python", "yaml")
                },
                commands=_list_texts(own, "bash"),
                shown=_list_texts(own, "text"),
            )
    return recipes


def _list_texts(own: list[Block], kind: str) -> list[str]:
    return [block.text.strip() for block in own if block.kind == kind]


RECIPES = read_recipes()
CHECK = "A check of a judge"
GATE_CHECK = "A check of a gate"


def write_files(folder: Path, recipe: Recipe) -> None:
    for name, text in recipe.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_page_has_these_recipes():
    parts = (
        *("judge", "entrant", "rating method", "estimator", "probe of an audit"),
        *("tracker", "check of a judge", "check of a gate", "experiment"),
    )
    assert [title.partition(" ")[2] for title in RECIPES] == [*parts]
    for title, recipe in RECIPES.items():
        assert 1 <= len(recipe.files) <= 2, title
        code = "".join(recipe.files.values())
        imported = set(re.findall(r"^from (elo_exp\S*) import", code, re.MULTILINE))
        assert (imported == {"elo_exp.extending"}) == (title not in (CHECK, GATE_CHECK))


@pytest.mark.parametrize(
    "title", [title for title, recipe in RECIPES.items() if recipe.commands]
)
def test_its_files_run_as_they_stand_and_print_what_is_shown(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = RECIPES[title]
    write_files(tmp_path, recipe)
    monkeypatch.syspath_prepend(tmp_path)
    for name in recipe.files:  # modules of these names that other tests have imported
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    (command,) = recipe.commands
    program, words = command.partition(" --")[::2]
    assert program == "python -m elo_exp"
    ran = run(*shlex.split(f"--{words}"), "figures=false", folder=tmp_path)
    (shown,) = recipe.shown
    assert shown in ran.out + ran.err
    for name in recipe.files:
        sys.modules.pop(Path(name).stem, None)


@pytest.mark.system
def test_the_check_is_on_the_page_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = RECIPES[CHECK]
    ((name, text),) = recipe.files.items()
    (tmp_path / Path(name).name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
    checks.check_definitions.cache_clear()
    try:
        ran = run(
            *("judge=lexical", "rubric=[factuality]", "judging.limit_pairs=60"),
            *("tracker=local", "figures=false"),
            folder=tmp_path,
        )
        page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
        assert "Comparisons that the judge refuses" in page
    finally:
        checks.check_definitions.cache_clear()
        sys.modules.pop(f"{checks.__name__}.{Path(name).stem}", None)
