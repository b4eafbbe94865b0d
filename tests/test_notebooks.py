"""Each notebook runs in a fresh kernel without an error, and its committed outputs are those of its run."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from elo_exp.paths import HOME

NOTEBOOKS = sorted((HOME / "notebooks").glob("*.ipynb"))
_ROUNDED = re.compile(r"\d(\.\d+)?e-0[6-9]")  # an error that depends on the processor
_MAX_PICTURE = 100_000  # bytes


def words(notebook: NotebookNode) -> list[list[str]]:
    """The words and numbers that each code cell shows, pictures aside."""
    return [
        [
            word
            for output in cell.outputs
            for word in output.data.get(
                "text/markdown", output.data["text/plain"]
            ).split()
            if not _ROUNDED.fullmatch(word)
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.system
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_committed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    committed = nbformat.read(path, 4)
    anew = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(anew, timeout=300, resources=resources).execute()
    assert words(anew) == words(committed)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_names_no_machine(path: Path):
    outputs = [
        output
        for cell in nbformat.read(path, 4).cells
        for output in cell.get("outputs", [])
    ]
    pictures = [o.data["image/svg+xml"] for o in outputs if "image/svg+xml" in o.data]
    assert len(pictures) >= 2
    assert max(map(len, pictures)) < _MAX_PICTURE
    assert not re.search("/tmp|/home|/Users", str(outputs))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_the_library_and_three_lines_before_its_first_table(path: Path):
    cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    first = list(filter(None, cells[0].splitlines()))
    assert first[0] == "import elo_exp"
    assert first[-1] == "run"
    assert len(first[:-1]) <= 3
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse("\n".join(cells)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (
            node.names
            if isinstance(node, ast.Import)
            else [ast.alias(str(node.module))]
        )
    }
    assert imported <= {"elo_exp", "pandas", "IPython"}
