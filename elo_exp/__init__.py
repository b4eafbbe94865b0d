"""Which of my language-model configurations is really better, by how much, and how sure may I be?

import elo_exp

run = elo_exp.rate(frame)  # battles: a frame, rows, a file, files
run = elo_exp.compare({"old": "a.jsonl", "new": frame}, judge="sonnet")
run.ratings
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
    "audit",
    "compare",
    "open_run",
    "plan",
    "rate",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import the library at its first use: `import elo_exp` loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "errors" if name.endswith("Error") else "library"
    return getattr(importlib.import_module(f"elo_exp.{module}"), name)


def __dir__() -> list[str]:
    return __all__
