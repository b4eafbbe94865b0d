"""What a command imports: a library only where it does something with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.commands import QUICK, attempt_program

HEAVY = {
    *("wandb", "anthropic", "openai", "matplotlib", "torch", "transformers", "duckdb"),
}
# `import scipy` is cheap: it loads its parts, half a second, where one is first named
PARTS = {"scipy.special", "scipy.sparse", "scipy.optimize", "scipy.stats"}
_PROBE = """
import json, runpy, sys
try:
    runpy.run_module("elo_exp", run_name="__main__")
finally:
    print(json.dumps(sorted(sys.modules)), file=open("modules.json", "w"))
"""


def loaded(folder: Path, *words: str) -> set[str]:
    """The modules that a command has imported when it ends, in a process of its own."""
    ran = attempt_program(sys.executable, "-c", _PROBE, *words, folder=folder)
    assert ran.code == 0, ran.err
    return {*json.loads((folder / "modules.json").read_text())} & (HEAVY | PARTS)


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--help",), set()),
        (("experiment=store",), set()),
        # The power of its prompts takes Student's t
        (("plan=true",), {"scipy.special"}),
        (("plan=true", "judge=sonnet"), {"scipy.special"}),
        (("plan=true", "experiment=audit", "judge=sonnet"), {"scipy.special"}),
    ],
)
def test_help_plans_and_the_store_import_no_library_of_a_run(
    words: tuple[str, ...], expected: set[str], tmp_path: Path
):
    assert loaded(tmp_path, *words) <= expected


@pytest.mark.system
def test_a_run_without_figures_and_tracker_imports_neither_matplotlib_nor_wandb(
    tmp_path: Path,
):
    given = [word for word in QUICK if word != "tracker=local"]
    assert not loaded(tmp_path, *given, "tracker.mode=disabled") & HEAVY
    (folder,) = tmp_path.glob("outputs/demo_*")
    assert not list(folder.glob("wandb")) and (folder / "report.html").is_file()
