"""Who may import whom. A lower level does not know the higher ones; the implementations in a socket not each other.

The levels are read from the import statements of every module, also those inside functions.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import elo_exp

PACKAGE = Path(elo_exp.__file__).parent
# A Protocol in __init__, one module for each implementation.
SOCKETS = ("entrants", "judges", "ratings", "estimators", "trackers")
LEVELS = {  # a module's own name goes before its package's
    0: [
        *["records", "files", "store.store", "store.usage", "store.__init__"],
        *["arrays", "progress", "types"],
    ],
    1: [
        *[
            "data.*",
            "api.*",
            "store.*",
            "models.*",
            "oracle.*",
            "arena.sources",
            "arena.rows",
            "arena.settings",
        ],
    ],
    2: [f"{socket}.{part}" for socket in SOCKETS for part in ("__init__", "*")],
    3: ["analysis.*", "arena.*", "runs"],
    4: [
        *["pipeline.*", "report.*", "figures.*", "arena.report"],
        *[
            "oracle.estimates",
            "oracle.ablation",
            "oracle.collection",
            "oracle.builder",
            "oracle.report",
        ],
    ],
    5: ["experiments.__init__", "experiments.*"],
    6: ["config", "errors", "sweeps", "__main__"],
}
ROOT = "__init__"  # the version and the place of conf/: everybody's
# What the rating methods share, and what others make of their leaderboards.
SHARED = {"ratings.games", "ratings.leaderboard", "ratings.bradley_terry"}
KNOW_HYDRA = {"config", "errors", "sweeps", "__main__"}
HEAVY = {
    "torch",
    "transformers",
    "peft",
    "huggingface_hub",
    "safetensors",
    "tokenizers",
    "llama_cpp",
    "jinja2",
    "anthropic",
    "openai",
    "wandb",
    "wandb_workspaces",
    "trackio",
    "matplotlib",
    "pandas",
    "pyarrow",
    "rich",
    "PIL",
    "datasets",
    "httpx2",
}


@dataclass(frozen=True)
class Import:
    """One import statement: of `importer`, line `line`, the module `name`."""

    importer: str
    line: int
    name: str
    at_top: bool
    only_for_types: bool

    @property
    def ours(self) -> str | None:
        """The module's name within the package; None for somebody else's."""
        first, _, rest = self.name.partition(".")
        return None if first != "elo_exp" else rest or ROOT

    def __str__(self) -> str:
        return f"elo_exp/{self.importer.replace('.', '/')}.py:{self.line} imports {self.name}"


def module_name(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


MODULES = sorted(
    module_name(path)
    for path in PACKAGE.rglob("*.py")
    if "home" not in path.relative_to(PACKAGE).parts
)


def level(module: str) -> int | None:
    for name in (module, f"{module.partition('.')[0]}.*"):
        for number, members in LEVELS.items():
            if name in members:
                return number
    return None


def imports(module: str) -> list[Import]:
    tree = ast.parse(
        (PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    )
    for_types = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inside in ast.walk(node)
    }
    in_functions = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inside in ast.walk(node)
    }
    return [
        Import(
            module,
            node.lineno,
            name,
            at_top=id(node) not in in_functions,
            only_for_types=id(node) in for_types,
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported(node)
    ]


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that a statement names; `from elo_exp import bank` names elo_exp.bank."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"line {node.lineno}: name the package in full"
    assert node.module
    for alias in node.names:
        inner = f"{node.module}.{alias.name}".removeprefix("elo_exp.")
        is_module = inner in MODULES or f"{inner}.__init__" in MODULES
        yield f"elo_exp.{inner}" if is_module else node.module


def known(name: str) -> str:
    """The file of one of our modules: a package is its __init__."""
    return f"{name}.__init__" if f"{name}.__init__" in MODULES else name


IMPORTS = [statement for module in MODULES for statement in imports(module)]
OURS = [(i, i.importer, known(i.ours)) for i in IMPORTS if i.ours is not None]


def is_implementation(module: str) -> bool:
    socket, _, part = module.partition(".")
    return socket in SOCKETS and part != "__init__" and module not in SHARED


@pytest.mark.parametrize("module", [m for m in MODULES if m != ROOT])
def test_every_module_has_a_level(module: str):
    assert level(module) is not None, (
        f"give elo_exp/{module.replace('.', '/')}.py a level in this file"
    )


def test_every_level_is_of_modules_that_are_there():
    named = {
        name
        for members in LEVELS.values()
        for name in members
        if not name.endswith("*")
    }
    assert named <= set(MODULES)
    assert named >= KNOW_HYDRA


def test_a_lower_level_does_not_import_a_higher_one():
    offenders = [
        str(statement)
        for statement, importer, name in OURS
        if ROOT not in (importer, name) and (level(importer) or 0) < (level(name) or 0)
    ]
    assert offenders == []


def test_the_implementations_of_a_socket_do_not_import_each_other_or_another_socket():
    """What they share is a module of level 1, or named as shared."""
    offenders = [
        str(statement)
        for statement, importer, name in OURS
        if is_implementation(importer)
        and level(name) == 2
        and name not in SHARED
        and name != f"{importer.partition('.')[0]}.__init__"
    ]
    assert offenders == []


def test_implementations_are_chosen_by_the_configuration_and_named_by_nobody():
    offenders = [
        str(statement) for statement, importer, name in OURS if is_implementation(name)
    ]
    assert offenders == []


def test_the_package_root_imports_nothing_of_ours():
    assert [str(statement) for statement, importer, _ in OURS if importer == ROOT] == []


def test_only_the_entrypoint_knows_hydra():
    users = {
        i.importer
        for i in IMPORTS
        if i.name.partition(".")[0] in ("hydra", "omegaconf")
    }
    assert users == KNOW_HYDRA


def test_heavy_libraries_are_imported_by_the_function_that_needs_them():
    """Figures import Matplotlib, and are themselves imported where they are drawn."""
    heavy = [i for i in IMPORTS if i.name.partition(".")[0] in HEAVY]
    assert {i.name.partition(".")[0] for i in heavy} >= {
        "wandb",
        "matplotlib",
        "rich",
        "pyarrow",
    }
    now = [i for i in IMPORTS if i.at_top and not i.only_for_types]
    drawing = {m for m in MODULES if m.startswith("figures.")} - {"figures.style"}
    early = [i for i in now if i in heavy and i.importer not in drawing]
    early += [i for i in now if i.ours in drawing and i.importer not in drawing]
    assert [str(i) for i in early] == []


def test_experiments_do_not_import_each_other():
    """What they share stands in standings.py."""
    scripts = {
        "experiments.tournament",
        "experiments.rate",
        "experiments.arena",
        "experiments.oracle",
        "experiments.store",
        "experiments.compare",
        "experiments.dashboard",
    }
    assert [
        str(statement)
        for statement, importer, name in OURS
        if {importer, name} <= scripts
    ] == []
