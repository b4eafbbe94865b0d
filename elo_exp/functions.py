"""Functions of Python as entrants and judges: how they are named, found and called side by side."""

import asyncio
import importlib
import inspect
import itertools
import math
import numbers
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from elo_exp.errors import SettingError

T = TypeVar("T")
_PREFIX = "call:"
_registered_functions: dict[str, Callable[..., Any]] = {}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Versioned:
    """A function and the version of what it does, by which its stored results are found."""

    function: Callable[..., Any]
    version: str


def add_version(function: Callable[..., Any], version: str) -> Versioned:
    """Give a function a version, so that its stored results are used again by other runs.

    Change the version when the function, or anything that it calls, changes its results.

    Parameters
    ----------
    function : callable
        An entrant, a judge or a scorer for `compare`.
    version : str
        Any text, such as `"2"` or a commit.

    Returns
    -------
    Versioned
        The function with its version.

    Raises
    ------
    SettingError
        If `function` cannot be called.

    Examples
    --------
    >>> import elo_exp
    >>> entrant = elo_exp.add_version(lambda prompt: prompt.upper(), "1")
    >>> entrant.version
    '1'
    """
    if not callable(function):
        raise SettingError(f"add_version needs a function; got {function!r:.60}.")
    return Versioned(function, str(version))


def register_function(function: Callable[..., Any]) -> str:
    """Return a name by which a part of this process finds the function."""
    name = f"{_PREFIX}{next(_numbers)}"
    _registered_functions[name] = function
    return name


def find_function(name: str, setting: str) -> Callable[..., Any]:
    """Return the function that a setting names, as module:function. Raises SettingError."""
    if name in _registered_functions:
        return _registered_functions[name]
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError):
        raise SettingError(
            f"{setting} names no function that Python can import: {name}. Example:",
            f"  {setting}=my_module:my_function",
        ) from None
    if not callable(function):
        raise SettingError(f"{setting} must name a function; got {name}.")
    return function  # type: ignore[no-any-return]


def describe_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, for keys and pages."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or '__main__'}:{name}"


def make_function_key(
    function: Callable[..., Any], version: str | None, run_scope: str | None
) -> dict[str, Any]:
    """Return what the results of a function are stored by: its version, or else the run that called it."""
    scope = {"version": version} if version is not None else {"run": run_scope}
    return {"function": describe_function(function), **scope}


def call_each(
    function: Callable[..., Any],
    items: Sequence[T],
    arguments: Callable[[T], tuple[Any, ...]],
    *,
    max_concurrency: int,
) -> Iterator[tuple[T, Any]]:
    """Yield each item with the result of the function, as results come. A coroutine is awaited.

    An exception of the function is raised after the results of the calls under way.
    """
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
    calls = _call_async if is_async else _call_in_threads
    yield from calls(function, items, arguments, max_concurrency)


def _call_in_threads(
    function: Callable[..., Any],
    items: Sequence[T],
    arguments: Callable[[T], tuple[Any, ...]],
    max_concurrency: int,
) -> Iterator[tuple[T, Any]]:
    remaining = iter(items)
    with ThreadPoolExecutor(max_concurrency) as pool:
        running: dict[Future[Any], T] = {
            pool.submit(function, *arguments(item)): item
            for item in itertools.islice(remaining, max_concurrency)
        }
        yield from _collect(running, remaining, lambda item: pool.submit(function, *arguments(item)))  # fmt: skip


def _call_async(
    function: Callable[..., Coroutine[Any, Any, Any]],
    items: Sequence[T],
    arguments: Callable[[T], tuple[Any, ...]],
    max_concurrency: int,
) -> Iterator[tuple[T, Any]]:
    """Await coroutines in a loop of their own, as the caller's loop may be running."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def submit(item: T) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(function(*arguments(item)), loop)

    try:
        remaining = iter(items)
        running = {
            submit(item): item for item in itertools.islice(remaining, max_concurrency)
        }
        yield from _collect(running, remaining, submit)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _collect(
    running: dict[Future[Any], T],
    remaining: Iterator[T],
    submit: Callable[[T], Future[Any]],
) -> Iterator[tuple[T, Any]]:
    error: BaseException | None = None
    try:
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if future.exception() is None:
                    yield running[future], future.result()
                error = error or future.exception()
                # Not before the result is stored: a kill then loses at most `max_concurrency` results.
                del running[future]
                if error is None:
                    for item in itertools.islice(remaining, 1):
                        running[submit(item)] = item
        if error is not None:
            raise error
    finally:
        for future in running:
            future.cancel()
        wait(running)


def read_verdict(result: Any) -> tuple[str, str]:
    """Return the verdict and the reason that a judge's function gave. Raises SettingError.

    result  "A", "B" or "tie"; the share of A from 0 to 1; or a mapping with such a `verdict` and a `reason`
    """
    reason, verdict = "", result
    if isinstance(result, Mapping):
        verdict, reason = result.get("verdict"), str(result.get("reason") or "")
    if isinstance(verdict, str) and verdict.strip().upper() in ("A", "B", "TIE"):
        return verdict.strip().upper(), reason
    is_share = isinstance(verdict, int | float) and not isinstance(verdict, bool)
    if is_share and 0.0 <= verdict <= 1.0:
        share_note = f"share of A {verdict:g}"
        word = "TIE" if verdict == 0.5 else "A" if verdict > 0.5 else "B"
        return word, "; ".join(filter(None, [reason, share_note]))
    raise SettingError(
        f"A judge's function must return A, B or tie, or the share of A from 0 to 1; got {result!r:.80}."
    )


def read_numbers(result: Any) -> tuple[float | None, dict[str, float | None], str]:
    """Return the number that a scorer's function gave, or its numbers by name, and the reason. Raises SettingError.

    result  a number; None or NaN if there is no score; or a mapping with numbers by name, and a text as `reason`
    """
    if not isinstance(result, Mapping):
        return _read_number(result, result), {}, ""
    by_name = dict(result)
    reason = ""
    if isinstance(by_name.get("reason"), str):
        reason = by_name.pop("reason")
    if not by_name or not all(isinstance(name, str) for name in by_name):
        raise _build_number_error(result)
    criteria = {name: _read_number(value, result) for name, value in by_name.items()}
    return None, criteria, reason


def _read_number(value: Any, result: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, numbers.Real):
        raise _build_number_error(result)
    return float(value) if math.isfinite(value) else None


def _build_number_error(result: Any) -> SettingError:
    return SettingError(
        f"A scorer's function must return a number, None, or a dict of numbers by name; got {result!r:.80}."
    )
