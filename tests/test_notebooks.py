"""Every notebook runs from its first cell to its last on a run folder, and shows figures and tables."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from elo_exp import HOME
from tests.commands import run
from tests.oracle_demo import small

NOTEBOOKS = sorted(path.stem for path in (HOME / "notebooks").glob("*.py"))
SMALL = ("tracker=local", "judge.position_effect=0.2", "judging.limit_pairs=120", "elo.n_perms=50")


@pytest.fixture(scope="module")
def tournament(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(*SMALL, folder=tmp_path_factory.mktemp("tournament")).run_dir


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policies = small("tiny_base", "tiny_clone", "tiny_unhelpful")
    few = ("oracle.n_prompts=40", "estimator=[ips,snips,dr_cpo,direct]")
    return run("experiment=oracle", "tracker=local", *few, *policies, folder=tmp_path_factory.mktemp("oracle")).run_dir


@pytest.fixture
def executed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    """The notebook that the test names, in a kernel of its own."""
    kind = "oracle" if request.param == "oracle" else "tournament"
    variables = {"ELO_EXP_RUN": request.getfixturevalue(kind), "HOME": tmp_path, "JUPYTER_PLATFORM_DIRS": 1}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    notebook = jupytext.read(HOME / "notebooks" / f"{request.param}.py")
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
    return client.execute()


@pytest.mark.parametrize("executed", NOTEBOOKS, indirect=True)
def test_a_notebook_runs_and_shows_figures_and_tables(executed: NotebookNode):
    shown = [output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in shown if output.output_type in ("error",) or output.get("name") == "stderr"] == []
    kinds = [kind for output in shown for kind in output.get("data", {})]
    assert kinds.count("image/png") >= 3
    assert kinds.count("text/markdown") >= 3


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_a_story_kept_as_text(name: str):
    cells = jupytext.read(HOME / "notebooks" / f"{name}.py").cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    assert sum(cell.cell_type == "markdown" for cell in cells) >= 4
    assert f"`{name}.py`" in (HOME / "notebooks" / "README.md").read_text(encoding="utf-8")


def test_no_output_is_kept():
    assert {path.suffix for path in (HOME / "notebooks").iterdir() if path.is_file()} <= {".py", ".md"}
