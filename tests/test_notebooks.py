"""Each notebook runs in a fresh kernel without an error, and its committed outputs are the demo's."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from elo_exp import HOME
from tests.commands import run

NOTEBOOKS = sorted((HOME / "notebooks").glob("*.ipynb"))
SETTINGS = {"judge_audit": "judge.position_effect=0.2", "arena": "experiment=arena"}
OF_THE_DEMO = ("leaderboard", "order_sensitivity")  # one run serves both
_MAX_PICTURE = 100_000  # bytes


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run("tracker=local", folder=tmp_path_factory.mktemp("demo")).run_dir


def words(notebook: NotebookNode) -> list[list[str]]:
    """The words and numbers that each code cell shows, pictures aside."""
    return [
        [
            word
            for output in cell.outputs
            for word in output.data.get(
                "text/markdown", output.data["text/plain"]
            ).split()
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_committed(
    path: Path, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    if path.stem in OF_THE_DEMO:
        monkeypatch.setenv("ELO_EXP_RUN", str(demo))
    if given := SETTINGS.get(path.stem):
        ran = run("tracker=local", given, folder=tmp_path / "run")
        monkeypatch.setenv("ELO_EXP_RUN", str(ran.run_dir))
        assert f'demo("{given}")' in path.read_text(encoding="utf-8").replace("\\", "")
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
