"""Compare language-model configurations: which one is better, by how much, and how sure you can be.

`compare` lets a judge compare answers, `rate` rates battles that already exist, `audit` tests a judge, `plan` shows the
cost of a run before you start it, `run` runs any experiment, and `open_run` opens a finished run. Importing the package is
fast: the first call loads the other modules.

Examples
--------
>>> import elo_exp
>>> battles = [{"model_a": "new", "model_b": "old", "winner": name} for name in ["new"] * 30 + ["old"] * 10]
>>> run = elo_exp.rate(battles)
>>> run.leaderboard[0]["entrant"]
'new'
"""

import importlib
from typing import TYPE_CHECKING, Any

from elo_exp.version import __version__ as __version__

if TYPE_CHECKING:
    from elo_exp.errors import BudgetError as BudgetError
    from elo_exp.errors import EvidenceError as EvidenceError
    from elo_exp.errors import FileError as FileError
    from elo_exp.errors import ServerError as ServerError
    from elo_exp.errors import SettingError as SettingError
    from elo_exp.errors import StoppedError as StoppedError
    from elo_exp.errors import UserError as UserError
    from elo_exp.functions import add_version as add_version
    from elo_exp.library import Plan as Plan
    from elo_exp.library import Run as Run
    from elo_exp.library import audit as audit
    from elo_exp.library import compare as compare
    from elo_exp.library import open_run as open_run
    from elo_exp.library import plan as plan
    from elo_exp.library import rate as rate
    from elo_exp.library import run as run

__all__ = [
    "BudgetError",
    "EvidenceError",
    "FileError",
    "Plan",
    "Run",
    "ServerError",
    "SettingError",
    "StoppedError",
    "UserError",
    "__version__",
    "add_version",
    "audit",
    "compare",
    "open_run",
    "plan",
    "rate",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import the library when a name is first used. `import elo_exp` loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "functions" if name == "add_version" else "library"
    if name.endswith("Error"):
        module = "errors"
    return getattr(importlib.import_module(f"elo_exp.{module}"), name)


def __dir__() -> list[str]:
    return __all__
