"""What every API needs: clock, address, secret key, deadlines, and the ways in which calls fail."""

import io
import json
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from elo_exp import interrupts
from elo_exp.errors import ServerError, SettingError
from elo_exp.masking import mask_text, register_secret

# What a text may begin with before its first sign
_BLANK_AND_MARK = b"\xef\xbb\xbf \t\r\n"
# Stands for the status of a request that found no connection
NO_CONNECTION_STATUS = 0
# Of a question that is asked before anything is paid for
UNCHARGED_NOTE = "Nothing was sent or charged."
# What certainly was not accepted. Anything else may have been: 408, 409 and 5xx come from machines
# in between, too.
REFUSAL_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 429})
# What to do about some of them; `part` asks, in the words of the configuration.
HINT_BY_STATUS = {
    401: "Check {key}",
    402: "Check the account's balance",
    403: "The key in {key} may not do this",
    404: "Check {part}.model and {part}.base_url",
}
# The server refuses all requests for now
RATE_LIMIT_STATUS = 429
BUSY_STATUSES = frozenset({RATE_LIMIT_STATUS, 529})
# How providers say that an account is exhausted: types or codes of errors, and words of messages. Others speak as OpenAI
# does, or have words of their own.
OUT_OF_CREDIT_SIGNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Anthropic": (
        ("billing_error",),
        ("credit balance", "reached your specified api usage limits"),
    ),
    "OpenAI": (
        ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
        ("exceeded your current quota", "billing hard limit", "account is not active"),
    ),
    "Gemini": (
        ("billing_disabled",),
        (
            "exceeded your current quota",
            "credits are depleted",
            "exceeded its spending cap",
        ),
    ),
    "others": (
        ("insufficient_balance", "insufficient_credits"),
        (
            "insufficient balance",
            "insufficient credits",
            "insufficient funds",
            "spending limit",
            "out of credits",
        ),
    ),
}
# Gemini has the same words for the quota of a day, and for that of a minute, which passes: its details name the quota
_DAILY_QUOTA_SIGNS = ("requestsperday", "tokensperday")
_MINUTE_QUOTA_SIGNS = ("perminute", "retrydelay", "retry in ")
# With these, a page is that of a gateway whose server is away for now
_GATEWAY_STATUSES = frozenset({502, 503, 504, *range(520, 531)})
_MAX_ERROR_CHARACTERS = 300
# A server that asks to wait for longer has no answers today.
_MAX_RETRY_AFTER_SECONDS = 900.0

R = TypeVar("R")


class CallError(Exception):
    """A call to a server got no answer.

    status            of HTTP; None: there was none
    retry_after       the seconds that the server asks to wait; None where it does not say
    is_cut            the connection ended before an answer had come whole
    is_page           a web page came instead of JSON
    is_out_of_credit  the server says that the account has no money or quota left
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_cut: bool = False,
        is_page: bool = False,
        is_out_of_credit: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.is_cut = is_cut
        self.is_page = is_page
        self.is_out_of_credit = is_out_of_credit


class RefusedError(CallError):
    """The server has certainly not accepted the request."""


class UnknownOutcomeError(CallError):
    """The server may or may not have accepted the request."""


class UnreachableError(CallError):
    """A question to the server, which costs nothing, got no answer now; it may later."""


class Clock:
    """`elapsed` for every wait and deadline, in seconds: no step of a clock moves it. `wall`, in
    seconds since 1970, is for stamps that people read. `sleep` ends when the run is asked to end."""

    elapsed = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(interrupts.pause)


def out_of_credit(kind: str | None, words: str, body: Any = None) -> bool:
    """Whether an error says that the account has no money or quota left: no later request will fare better today.

    kind  its type or code
    body  of the error, whole, if it is at hand
    """
    text_lower, body_text = words.lower(), json.dumps(body, default=str).lower()
    if any(sign in body_text for sign in _DAILY_QUOTA_SIGNS):
        return True
    if any(sign in body_text or sign in text_lower for sign in _MINUTE_QUOTA_SIGNS):
        return False
    return any(
        kind in kinds
        or any(name in text_lower or f'"{name}"' in body_text for name in kinds)
        or any(sign in text_lower for sign in signs)
        for kinds, signs in OUT_OF_CREDIT_SIGNS.values()
    )


def as_subject(server: str) -> str:
    """Return the name of a server as a sentence begins: an address stays as it is."""
    return server if "://" in server else server[:1].upper() + server[1:]


def format_out_of_credit(server: str, cause: object) -> str:
    return f"The account at {server} has no money or quota left ({cause})."


def fatal_reason(server: str, error: CallError) -> str:
    """Why no request to a server will fare better today, as a sentence; empty where one may."""
    if error.is_page:
        return str(error)
    if error.is_out_of_credit or out_of_credit(None, str(error)):
        return format_out_of_credit(server, error)
    wait = error.retry_after
    if wait is not None and wait > _MAX_RETRY_AFTER_SECONDS:
        return (
            f"{as_subject(server)} asks to wait for {wait / 60:.0f} minutes ({error})."
        )
    return ""


def check_variable(name: str) -> None:
    """Raise SettingError for what is no variable's name. It may be the key itself, so it is not
    repeated."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise SettingError(
            "key_variable must be the name of an environment variable, in capitals, such as OPENAI_API_KEY.",
            "  Never set it to the key itself: settings are written into the run folder.",
        )


def read_key(variable: str) -> str | None:
    """The key from the environment, or else from a .env file in the working folder. Raises
    ServerError for one that cannot be sent: the libraries below would repeat it in their error."""
    key = os.environ.get(variable, "").strip() or _read_key_file(variable)
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ServerError(
            f"{variable} holds a space, a line break or another character that no key has. Copy the key again."
        )
    if key:
        register_secret(variable, key)
    return key


def build_missing_key_error(
    part: str, key: str, variable: str, *below: str, charge_note: str = ""
) -> ServerError:
    """Return the error for a key that is not set.

    Parameters
    ----------
    part : str
        What asks, in the words of the configuration: judge, entrant.NAME.
    key : str
        What it needs: "an Anthropic API key".
    variable : str
        The environment variable that should hold the key.
    *below : str
        What else one can do.
    charge_note : str, optional
        `UNCHARGED_NOTE` if that is certain.
    """
    line = f"{as_subject(name_caller(part))} needs {key}, and {variable} is not set. {charge_note}"
    export_hint = f"  Export it, or add the line {variable}=... to a file .env here."
    return ServerError(line.rstrip(), export_hint, *below).mark_as_need(variable)


def build_unreachable_error(endpoint: str, error: object, part: str) -> ServerError:
    """Return the error of a server that gives no answer before anything is paid for."""
    return ServerError(
        f"{endpoint} cannot be reached ({error}). Nothing was charged.",
        f"  Check that the server runs, the network, and {part}.base_url.",
    )


def name_caller(part: str) -> str:
    """Return what asks a server as a noun phrase: "the judge", "the entrant NAME".

    part  in the words of the configuration
    """
    kind, _, name = part.partition(".")
    nouns = {"judges": "judge", "oracle_judge": "oracle's judge"}
    return f"the {nouns.get(kind, kind)} {name}".rstrip()


def _read_key_file(variable: str) -> str | None:
    from dotenv import dotenv_values

    try:
        data = Path(".env").read_bytes()
    except OSError:
        return None
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")
    return (dotenv_values(stream=io.StringIO(text)).get(variable) or "").strip() or None


def check_base_url(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_well_formed = is_http and parts.port != 0
    except ValueError:
        is_well_formed = False
    # neither is repeated: it may hold a key
    if "?" in base_url or "#" in base_url:
        raise SettingError(
            "base_url must be http(s)://HOST/PATH alone, without a query (? or #)."
        )
    if "@" in base_url:
        raise SettingError(
            "base_url must be http(s)://HOST, without a name or password in it."
        )
    if not is_well_formed or " " in base_url:
        raise SettingError.bad_value(
            "base_url", base_url, "be http(s)://HOST or http(s)://HOST:PORT"
        )


@contextmanager
def classify_submission_errors(
    sdk: Any, describe: Callable[[Any], str]
) -> Iterator[None]:
    """Raise the errors of a call that costs money as either certainly not accepted, or doubtful.

    sdk       anthropic or openai, which name their errors alike, or what has these names
    describe  puts an error that has a status into words
    """
    import httpx2

    try:
        yield
    except sdk.APIStatusError as error:
        is_refused = error.status_code in REFUSAL_STATUSES
        kind = RefusedError if is_refused else UnknownOutcomeError
        raise convert_status_error(kind, error, describe(error)) from None
    except WebPageError as page_error:
        raise UnknownOutcomeError(str(page_error), is_page=True) from None
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"its text cannot be sent ({error.reason})", status=400
        ) from None
    except MemoryError:
        raise UnknownOutcomeError("its answer is too large to be read") from None
    except (sdk.APIError, httpx2.HTTPError, ValueError, RecursionError) as error:
        connection_errors = httpx2.ConnectError | httpx2.ConnectTimeout
        if isinstance(error, connection_errors) or isinstance(
            error.__cause__, connection_errors
        ):
            raise RefusedError(
                describe_briefly(error), status=NO_CONNECTION_STATUS
            ) from None
        cause = error if isinstance(error, httpx2.HTTPError) else error.__cause__
        is_cut = isinstance(cause, httpx2.NetworkError | httpx2.RemoteProtocolError)
        raise UnknownOutcomeError(describe_briefly(error), is_cut=is_cut) from None


def call_with_deadline(seconds: float, call: Callable[..., R], *args: Any) -> R:
    """`call(*args)`, given up after `seconds` in all: a timeout of the SDK allows as much for each
    byte of an answer.

    Raises DoubtfulError then. The call goes on in its thread until it ends by itself.
    """
    outcome: queue.Queue[tuple[R | None, BaseException | None]] = queue.Queue()

    def work() -> None:
        try:
            outcome.put((call(*args), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise UnknownOutcomeError(f"no whole answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


C = TypeVar("C", bound=CallError)


def convert_status_error(kind: type[C], error: Any, words: str) -> C:
    """Return an SDK's error with a status as one of ours.

    words  that describe it
    """
    body, headers = error.body, getattr(error.response, "headers", {})
    wait = read_retry_after(headers)
    if is_page := _is_certain_page(error):
        words = str(WebPageError(str(error.response.url), error.status_code))
    return kind(
        words,
        is_page=is_page,
        status=error.status_code,
        retry_after=_find_delay(body) if wait is None else wait,
        is_out_of_credit=out_of_credit(None, find_error_message(body), body),
    )


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait, in seconds or until a date; None where it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    until_time, now = (
        _parse_http_date(headers.get("retry-after")),
        _parse_http_date(headers.get("date")),
    )
    if until_time is None:
        return None
    return max(0.0, until_time - (Clock.wall() if now is None else now))


def _parse_http_date(text: str | None) -> float | None:
    """Return a date of HTTP in seconds since 1970. It is compared with the server's own: our clock may be wrong."""
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _find_delay(body: Any) -> float | None:
    """Return the seconds to wait in the details of an error of Google's, such as "34.07s"."""
    match = re.search(
        r'"retrydelay": "(\d{1,6}(?:\.\d{1,9})?)s"',
        json.dumps(body, default=str).lower(),
    )
    return float(match[1]) if match else None


def format_duration(seconds: float) -> str:
    unit, n = ("minute", 60.0) if seconds >= 60.0 else ("second", 1.0)
    number = round(seconds / n)
    return f"{number} {unit}{'s' * (number != 1)}"


def describe_briefly(error: BaseException) -> str:
    """Describe what went wrong on the way in a few words; where there was no connection, why
    not."""
    import httpx2

    if isinstance(error.__cause__, httpx2.ConnectError):
        error = error.__cause__
    return str(error).rstrip(".") or type(error).__name__


def read_raw_json(response: Any) -> Any:
    """The JSON of an SDK's raw response; None for what is none. Raises WebPageError for a page."""
    return read_json(response.http_response)


def read_json(response: Any) -> Any:
    """The same of a response of HTTP."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        if _is_page(response):
            raise WebPageError(str(response.url)) from None
        return None


def _is_page(response: Any) -> bool:
    """Whether a response of HTTP, as far as it was read, is a web page."""
    import httpx2

    try:
        return bool(response.content.lstrip(_BLANK_AND_MARK)[:1] == b"<")
    except httpx2.StreamError:
        return False


def _is_certain_page(error: Any) -> bool:
    """Whether an SDK's error with a status has a web page that no later request gets past.

    The page of a gateway says that its server is away, and that of a limit says how long to wait.
    """
    is_passing = error.status_code in _GATEWAY_STATUSES | BUSY_STATUSES
    return not is_passing and _is_page(error.response)


def join_text_blocks(content: Any) -> str:
    """A text, or the text blocks of a list joined; a lone surrogate is no text."""
    if isinstance(content, list):
        blocks = [block for block in content if isinstance(block, Mapping)]
        texts = [block.get("text") for block in blocks if block.get("type") == "text"]
        content = "".join(str(text or "") for text in texts)
    return str(content or "").encode(errors="replace").decode()


def describe(error: Any, hint: str = "") -> str:
    """What an error with a status says, and what to do; never what was sent."""
    words = find_error_message(error.body) or f"status {error.status_code}"
    return f"{words}. {hint}" if hint else words


def find_error_message(body: Any) -> str:
    """The message in an error, in whichever shape; nothing of a web page."""
    if isinstance(body, Mapping):
        candidates = (
            find_error_message(body.get(name))
            for name in ("message", "error", "detail")
        )
        return next(filter(None, candidates), "")
    text = " ".join(mask_text(str(body or "")).split())  # before it is cut
    return "" if text.startswith("<") else text[:_MAX_ERROR_CHARACTERS].rstrip(".")


class UnexpectedResponseError(ValueError):
    """What came back with status 200 is not what was asked for."""

    def __init__(self, answer: Any, wanted: str) -> None:
        super().__init__(
            f"it answered with something else than {wanted}{format_embedded_error(answer)}"
        )


class WebPageError(ValueError):
    """The reply is a web page, for example of a login, a proxy or another service."""

    def __init__(self, url: str, status: int | None = None) -> None:
        of_status = "" if status is None else f" (status {status})"
        super().__init__(
            f"{url.partition('?')[0]} answered with a web page instead of JSON{of_status}. Is a login page or a proxy in "
            "between, or is base_url the address of something else?"
        )


def format_embedded_error(answer: Any) -> str:
    """The error in an answer with status 200, in brackets; empty where there is none."""
    words = (
        find_error_message(answer.get("error")) if isinstance(answer, Mapping) else ""
    )
    return f" ({words})" if words else ""
