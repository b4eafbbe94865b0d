"""What every API needs: an address, a key that stays secret, and the errors of its SDK in the words of services.py."""

from __future__ import annotations

import io
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import mktime_tz, parsedate_tz
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from elo_exp.api.services import NO_CONNECTION, DoubtfulError, RefusedError
from elo_exp.records import UserError

# What certainly was not accepted. Anything else may have been: 408, 409 and 5xx come from machines in between, too.
REFUSALS = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 429})
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LONGEST_WORDS = 300  # of a server's error
_BLOCK = 256  # results that have to come within the time that one answer may take

R = TypeVar("R")


def check_variable(name: str) -> None:
    """Raise UserError for what is no variable's name. It may be the key itself, so it is not repeated."""
    if not _VARIABLE.fullmatch(name):
        raise UserError(
            "key_variable: found something that is no variable's name, in capitals. Expected the name of the "
            "environment variable that holds the key, such as OPENAI_API_KEY, never the key itself: settings are "
            "written into the run folder."
        )


def read_key(variable: str) -> str | None:
    """The key from the environment, or else from a .env file in the working folder. Raises UserError for one that
    cannot be sent: the libraries below would repeat it in their error."""
    key = os.environ.get(variable, "").strip() or _from_file(variable)
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError(
            f"{variable}: holds a space, a line break or another character that no key has. Set it anew."
        )
    return key


def _from_file(variable: str) -> str | None:
    from dotenv import dotenv_values

    try:
        data = Path(".env").read_bytes()
    except OSError:
        return None
    text = (
        data.decode("utf-16")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff")
        else data.decode("utf-8-sig", "replace")
    )
    return (dotenv_values(stream=io.StringIO(text)).get(variable) or "").strip() or None


def check_base_url(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        well_formed = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        well_formed = False
    if "?" in base_url or "#" in base_url:  # not repeated: it may hold a key
        raise UserError("base_url: found a query in it. Expected http(s)://HOST/PATH alone.")
    if "@" in base_url:
        raise UserError(
            "base_url: found a name or password in it. Expected http(s)://HOST, without a password in it."
        )
    if not well_formed or " " in base_url:
        raise UserError(
            f"base_url: found {base_url!r}. Expected http(s)://HOST or http(s)://HOST:PORT."
        )


@contextmanager
def submitting(sdk: ModuleType, said: Callable[[Any], str]) -> Iterator[None]:
    """The errors of a call that costs money: either certainly not accepted, or doubtful.

    sdk   anthropic or openai, which name their errors alike
    said  what the server says in an error that has a status
    """
    import httpx2

    try:
        yield
    except sdk.APIStatusError as error:
        if error.status_code in REFUSALS:
            wait = retry_after(error.response.headers)
            raise RefusedError(said(error), status=error.status_code, retry_after=wait) from None
        raise DoubtfulError(said(error), status=error.status_code) from None
    except UnicodeEncodeError as error:
        raise RefusedError(f"its text cannot be sent ({error.reason})", status=400) from None
    except MemoryError:
        raise DoubtfulError("its answer is too large to be read") from None
    except (sdk.APIError, httpx2.HTTPError, ValueError, RecursionError) as error:
        if isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout):
            raise RefusedError(brief(error), status=NO_CONNECTION) from None
        raise DoubtfulError(brief(error)) from None


def within(seconds: float, call: Callable[..., R], *args: Any) -> R:
    """`call(*args)`, given up after `seconds` in all: a timeout of the SDK allows as much for each byte of an answer.

    Raises DoubtfulError then. The call goes on in its thread until it ends by itself.
    """
    done: queue.Queue[tuple[R | None, BaseException | None]] = queue.Queue()

    def work() -> None:
        try:
            done.put((call(*args), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, error = done.get(timeout=seconds)
    except queue.Empty:
        raise DoubtfulError(f"no whole answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def in_time(seconds: float, items: Iterator[R]) -> Iterator[R]:
    """The items of an answer that comes piece by piece: each block of them within `seconds`, or DoubtfulError."""
    while True:
        block, error = within(seconds, _read_block, items)
        yield from block
        if error is not None:
            raise error
        if not block:
            return


def _read_block(items: Iterator[R]) -> tuple[list[R], Exception | None]:
    """Some items, and the error that came after them."""
    block: list[R] = []
    try:
        for item in islice(items, _BLOCK):
            block.append(item)
    except Exception as error:
        return block, error
    return block, None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a server asks to wait; None where it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    date = parsedate_tz(headers.get("retry-after", ""))
    return max(0.0, mktime_tz(date) - time.time()) if date else None


def brief(error: BaseException) -> str:
    """What went wrong on the way, in a few words; where there was no connection, why not."""
    import httpx2

    if isinstance(error.__cause__, httpx2.ConnectError):
        error = error.__cause__
    return str(error).rstrip(".") or type(error).__name__


def words_of(body: Any) -> str:
    """The message in an error, in whichever shape; nothing of a web page."""
    if isinstance(body, Mapping):
        body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), "")
    text = " ".join(str(body or "").split())
    return "" if text.startswith("<") else text[:_LONGEST_WORDS].rstrip(".")


def error_in(answer: Any) -> str:
    """What a server says that answers with status 200 and an error, in brackets."""
    words = words_of(answer.get("error")) if isinstance(answer, Mapping) else ""
    return f" ({words})" if words else ""
