"""The wheel alone is enough: configuration, rubrics and prompts come with it, into any folder on any machine."""

import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from elo_exp.paths import HOME
from tests.commands import QUICK, attempt_program

pytest.importorskip(
    "build", reason="building a wheel needs the packages build and hatchling"
)
pytest.importorskip(
    "hatchling", reason="building a wheel needs the packages build and hatchling"
)

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--wheel", "--no-isolation", "--outdir", str(folder))
    built = attempt_program(
        sys.executable, "-m", "build", *options, str(HOME), folder=folder
    )
    assert built.code == 0, built.out + built.err
    (path,) = folder.glob("elo_exp-*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel in it; the dependencies are borrowed, so nothing is fetched."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    options = ("--quiet", "--no-deps", "--no-index")
    installed = attempt_program(*pip, "install", *options, str(wheel), folder=folder)
    assert installed.code == 0, installed.err
    (site,) = folder.glob("lib/python*/site-packages")
    # Python reads this line and adds the folder, but not the .pth files in it: the checkout stays out of sight.
    (site / "borrowed.pth").write_text(
        sysconfig.get_path("purelib") + "\n", encoding="utf-8"
    )
    return python


def test_every_file_of_conf_rubrics_and_prompts_is_in_the_wheel(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    for folder, ending in (
        ("conf", "*.yaml"),
        ("rubrics", "*.md"),
        ("prompts", "*.json*"),
        ("prompts", "*.md"),
    ):
        files = [
            path.relative_to(HOME).as_posix() for path in (HOME / folder).rglob(ending)
        ]
        assert files
        assert {f"elo_exp/home/{file}" for file in files} <= packed
    assert not [
        name for name in packed if name.startswith(("tests/", "outputs/", "notebooks/"))
    ]


def test_the_demo_runs_from_the_wheel_in_an_unrelated_folder(
    python: Path, tmp_path: Path
):
    where = "import elo_exp; from elo_exp.paths import HOME; print(elo_exp.__file__); print(HOME)"
    package, home = attempt_program(
        str(python), "-c", where, folder=tmp_path
    ).out.split()
    assert Path(package).is_relative_to(python.parents[1])
    assert Path(home) == Path(package).parent / "home"

    ran = attempt_program(
        str(python), "-W", "error", "-m", "elo_exp", *QUICK, folder=tmp_path
    )
    assert ran.code == 0, ran.err
    manifest = ran.read("manifest.json")
    assert manifest["config"]["prompts"]["bank_path"] == f"{home}/prompts/bank.jsonl"
    assert manifest["git_commit"] is None
    assert ran.read("elo_results.json")["primary"]["factuality"]


def test_the_wheel_brings_the_command_elo_exp(python: Path, tmp_path: Path):
    helped = attempt_program(
        str(python.with_name("elo-exp")), "--options", folder=tmp_path
    )
    assert helped.code == 0
    assert "\n  sonnet  " in helped.out
