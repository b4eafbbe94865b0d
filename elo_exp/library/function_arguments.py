"""Functions given to the library as entrants, as the judge and as the scorer, turned into settings."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.errors import SettingError
from elo_exp.functions import Versioned, register_function
from elo_exp.library.arguments import File

logger = logging.getLogger(__name__)

_ENTRANT_CLASS = "elo_exp.entrants.function.FunctionEntrant"
_MAX_CONCURRENCY = 8


def is_function(value: Any) -> bool:
    return isinstance(value, Versioned) or callable(value)


def split_functions(answers: Any) -> tuple[Any, dict[str, Any]]:
    """Return the answers without functions, None if nothing is left; and the functions by name."""
    if not isinstance(answers, Mapping):
        return answers, {}
    functions = {
        str(name): value for name, value in answers.items() if is_function(value)
    }
    tables = {name: value for name, value in answers.items() if not is_function(value)}
    return tables or None, functions


def make_entrant_settings(
    functions: Mapping[str, Any], out: File | None
) -> dict[str, Any]:
    """Return the settings of an entrant for each function, in place of the entrants of a command."""
    if not functions:
        return {}
    return {
        "entrant": {
            name: {
                "_target_": _ENTRANT_CLASS,
                "entrant_id": name,
                "max_concurrency": _MAX_CONCURRENCY,
                **_describe(function, out, f"entrant {name}"),
            }
            for name, function in functions.items()
        }
    }


def replace_functions(
    words: Sequence[str], settings: Mapping[str, Any], out: File | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the words and settings of a command, with settings of parts in place of functions.

    Raises SettingError for functions without prompts, and for a scorer that is no function or stands next to a judge.
    """
    tables, functions = split_functions(settings.get("answers"))
    judge, scorer = settings.get("judge"), settings.get("scorer")
    if not functions and not is_function(judge) and scorer is None:
        return tuple(words), dict(settings)
    names_prompts = "prompts" in settings or any(
        word.startswith("prompts") for word in words
    )
    if functions and tables is None and not names_prompts:
        raise SettingError(
            "Functions need prompts to answer. Add a list of texts or a file:",
            "  prompts=[...]",
        )
    replaced = {
        name: value
        for name, value in settings.items()
        if name not in ("answers", "judge", "scorer")
    }
    if tables is not None:
        replaced["answers"] = tables
    if scorer is not None:
        _check_scorer(scorer, settings)
        replaced |= _make_function_judge(scorer, out, "scorer") | {"scoring": "number"}
    elif judge is not None:
        replaced |= make_judge_settings(judge, out)
    if not functions:
        return tuple(words), replaced
    return ("entrant=[]", *words), replaced | make_entrant_settings(functions, out)


def make_judge_settings(judge: Any, out: File | None) -> dict[str, Any]:
    """Return the settings of a judge that is a name or a function."""
    if not is_function(judge):
        return {"judge": judge}
    return _make_function_judge(judge, out, "judge")


def _check_scorer(scorer: Any, settings: Mapping[str, Any]) -> None:
    """Raise SettingError for a scorer that is no function, and for settings that it replaces."""
    if not is_function(scorer):
        raise SettingError(
            f"scorer must be a function of a prompt and an answer; got {scorer!r:.60}. To have a judge score the answers, "
            "write:",
            '  judge="sonnet", scoring="score"',
        )
    for name in ("judge", "scoring"):
        if settings.get(name) is not None:
            raise SettingError(
                f"scorer and {name} cannot be combined, as the scorer gives all results. Leave one of them out."
            )


def _make_function_judge(judge: Any, out: File | None, role: str) -> dict[str, Any]:
    function = judge.function if isinstance(judge, Versioned) else judge
    name = re.sub(r"\W", "_", getattr(function, "__name__", "function"))
    described = _describe(judge, out, role)
    return {
        "judge": "function",
        "judge.model": name,
        **{f"judge.{key}": value for key, value in described.items()},
    }


def _describe(value: Any, out: File | None, part: str) -> dict[str, Any]:
    version: str | None = None
    function: Callable[..., Any] = value
    if isinstance(value, Versioned):
        function, version = value.function, value.version
    run_scope = None
    if version is None:
        run_scope = secrets.token_hex(8) if out is None else str(Path(out).absolute())
        logger.info(
            "%s: the function has no version, so only this run folder uses its results again: "
            "elo_exp.add_version(function, VERSION)",
            part,
        )
    return {
        "function": register_function(function),
        "version": version,
        "run_scope": run_scope,
    }
