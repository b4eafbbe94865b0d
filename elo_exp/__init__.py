"""Which of my language-model configurations is really better, by how much, and how sure may I be?

import elo_exp

run = elo_exp.rate(frame)  # battles: a frame, rows, a file, files
run = elo_exp.compare({"old": "a.jsonl", "new": frame}, judge="sonnet")
run.ratings
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elo_exp.library import Plan as Plan
    from elo_exp.library import Run as Run
    from elo_exp.library import StoppedError as StoppedError
    from elo_exp.library import audit as audit
    from elo_exp.library import compare as compare
    from elo_exp.library import open_run as open_run
    from elo_exp.library import plan as plan
    from elo_exp.library import rate as rate
    from elo_exp.library import run as run
    from elo_exp.records import UserError as UserError

__version__ = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent
HOME = _PACKAGE / "home" if (_PACKAGE / "home").is_dir() else _PACKAGE.parent
"""The folder of conf/, rubrics/ and prompts/: inside the package in a wheel, the checkout's root otherwise."""

CONF = HOME / "conf"

__all__ = [
    "Plan",
    "Run",
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
    module = "records" if name == "UserError" else "library"
    return getattr(importlib.import_module(f"elo_exp.{module}"), name)


def __dir__() -> list[str]:
    return __all__
