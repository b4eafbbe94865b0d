"""The Gemini API: its answers read as they came, its errors as the kinds of api/transport.

A batch is created in one step, with its requests inside. Its display name is the nonce, which list and retrieval repeat:
the proof of whose it is. The list promises no order. The SDK makes the requests; it drops some of what comes back (sizes,
errors, states that it does not know), so that the answers are read here.
"""

from __future__ import annotations

import atexit
import json
import re
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from elo_exp.api.batch_protocol import Login, RemoteBatch, ResultRow, UnreadablePart
from elo_exp.api.costs import read_token_count
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.api.result_lines import download, parse_row, split_rows
from elo_exp.api.transport import (
    HINT_BY_STATUS,
    REFUSAL_STATUSES,
    RefusedError,
    UnexpectedResponseError,
    UnknownOutcomeError,
    UnreachableError,
    WebPageError,
    call_with_deadline,
    check_base_url,
    check_variable,
    classify_submission_errors,
    convert_status_error,
    describe,
    describe_briefly,
    read_json,
    read_key,
)
from elo_exp.errors import ServerError, UserError
from elo_exp.types import Positive

if TYPE_CHECKING:
    from google.genai import Client

# pinned: it is part of what a verdict depends on, and an upgraded SDK may send another
API_VERSION = "v1beta"
# The server allows 20 MB.
_MAX_BATCH_BYTES = 18_000_000
_BATCHES_PER_PAGE = 100
_BATCH_LIFETIME_SECONDS = 172_800.0
_STOP_REASONS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}
# For requests without a row
_OUTCOME_BY_END_STATE = {
    "SUCCEEDED": None,
    "PARTIALLY_SUCCEEDED": "api_error",
    "FAILED": "api_error",
    "CANCELLED": "canceled",
    "EXPIRED": "expired",
}
# With the words of api/batches for them
_TRANSIENT_ERROR_CODES = {
    4: "timeout_error",
    8: "rate_limit_error",
    13: "api_error",
    14: "overloaded_error",
}
_RESOURCE_EXHAUSTED_CODE = 8
# For a document that is no JSON
_METADATA_PATTERNS = {
    "state": re.compile(r'"state"\s*:\s*"([A-Z_]{1,60})"'),
    "displayName": re.compile(r'"displayName"\s*:\s*"([0-9a-z]{1,60})"'),
    "requestCount": re.compile(r'"requestCount"\s*:\s*"?([0-9]{1,9})'),
}


class _StatusError(Exception):
    """An error of the SDK, under the names that those of Anthropic's and OpenAI's have."""

    def __init__(self, status_code: int, body: Any, response: Any) -> None:
        super().__init__(f"status {status_code}")
        self.status_code, self.body, self.response = status_code, body, response

    @classmethod
    def from_sdk_error(cls, error: Any) -> Self:
        return cls(int(error.code or 500), error.details, error.response)

    @classmethod
    def from_response(cls, response: Any) -> Self:
        response.read()
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = response.text
        return cls(response.status_code, body, response)


class _SdkErrors:
    """The errors of an SDK, for `submitting`."""

    APIStatusError = APIError = _StatusError


@dataclass(eq=False)
class GeminiApi:
    """A BatchApi, and single answers.

    key_variable     the environment variable, or line of .env, that holds the key
    timeout_seconds  after which an answer is given up
    part             what asks, in the words of the configuration: judge
    """

    base_url: str
    key_variable: str
    timeout_seconds: float
    part: str

    is_ordered = False

    def __post_init__(self) -> None:
        check_base_url(self.base_url)
        check_variable(self.key_variable)
        self.endpoint = self.base_url.rstrip("/")
        self._last_call = threading.local()  # the response to a call, in its thread

    @cached_property
    def _client(self) -> Client:
        try:
            from google import genai
            from google.genai import types
        except ModuleNotFoundError:
            raise UserError(
                "the package google-genai is not installed. Install it: pip install 'elo-exp[gemini]'"
            ) from None
        import httpx2

        key = self._read_key()
        http = httpx2.Client(
            timeout=self.timeout_seconds,
            event_hooks={"response": [self._keep_response]},
        )
        # an ended state that is read here
        warnings.filterwarnings("ignore", message=".* is not a valid JobState")
        client = genai.Client(
            api_key=key,
            vertexai=False,  # whatever the environment says
            http_options=types.HttpOptions(
                base_url=self.endpoint,
                api_version=API_VERSION,
                timeout=round(1000 * self.timeout_seconds),
                # a lost answer that is asked for again would make two batches
                retry_options=types.HttpRetryOptions(attempts=1),
                httpx_client=http,
            ),
        )
        atexit.register(http.close)
        return client

    def login(self) -> Login:
        return Login(self._read_key(), None)  # its answers name no organization

    def _read_key(self) -> str:
        if key := read_key(self.key_variable):
            return key
        raise ServerError(
            f"{self.key_variable}: not set, and {self.part}.key_variable names it. Put the key into the "
            f"environment, or as {self.key_variable}=... into a file .env here."
        )

    def _keep_response(self, response: Any) -> None:
        response.read()
        self._last_call.response = response

    def _call_for_json(self, call: Callable[[], Any]) -> Any:
        """The JSON that answers a call of the SDK, whatever the SDK makes of it; None for what is none."""
        from google.genai import errors

        self._last_call.response = None
        try:
            call()
        except errors.APIError as error:
            raise _StatusError.from_sdk_error(error) from None
        except (ValueError, TypeError, AttributeError, LookupError):
            if self._last_call.response is None:  # it was never sent
                raise
        return read_json(self._last_call.response)

    # ---- what is paid for: RefusedError or DoubtfulError

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit a batch; return its id."""
        rows: Any = [
            {
                "contents": params["contents"],
                "config": params["config"],
                "metadata": {"key": name},
            }
            for name, params in requests.items()
        ]
        if (
            size := len(json.dumps(rows, ensure_ascii=False).encode())
        ) > _MAX_BATCH_BYTES:
            raise RefusedError(
                f"its requests have {size / 1e6:.0f} MB, and {_MAX_BATCH_BYTES / 1e6:.0f} are sent at most",
                status=413,
            )
        create = self._client.batches.create
        model = next(iter(requests.values()))["model"]
        with classify_submission_errors(_SdkErrors, self._describe):
            try:
                answer = call_with_deadline(
                    self.timeout_seconds,
                    self._call_for_json,
                    lambda: create(
                        model=model, src=rows, config={"display_name": nonce}
                    ),
                )
            except (
                UnknownOutcomeError
            ):  # it must not go on arriving while it is looked for
                self._client.close()
                del self._client
                raise
            return batch_in(answer).batch_id

    def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return one answer."""
        generate = self._client.models.generate_content
        with classify_submission_errors(_SdkErrors, self._describe):
            answer = call_with_deadline(
                self.timeout_seconds,
                self._call_for_json,
                lambda: generate(
                    model=params["model"],
                    contents=params["contents"],
                    config=params["config"],
                ),
            )
            return message_in(answer)

    # ---- questions, which are free: UnreachableError, or UserError where refused

    def check_model(self, model: str) -> None:
        """Raise ServerError where the server cannot be reached, refuses the key or does not know the model."""
        get = self._client.models.get
        try:
            self._ask(lambda answer: answer, lambda: get(model=model))
        except UnreachableError as error:
            raise ServerError(
                f"{self.endpoint} cannot be reached ({error}). Check the network and {self.part}.base_url; nothing was "
                "spent."
            ) from None

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, in whatever order."""
        page = self._client.batches.list
        token: str | None = None
        while True:
            options: Any = {"page_size": _BATCHES_PER_PAGE, "page_token": token}
            batches, token = self._ask(page_in, lambda: page(config=options))  # noqa: B023
            yield from batches
            if not token:
                return

    def check(self, batch_id: str) -> RemoteBatch | None:
        """Return the batch as it stands; None where the server knows of no such batch."""
        answer, error = self._download_batch(batch_id)
        with self._classify_question_errors():
            if answer is not None:
                return batch_in(answer)
            if getattr(error, "status_code", None) == 404:
                return None
            raise error or UnexpectedResponseError(None, "a batch")

    def cancel(self, batch_id: str) -> bool:
        """Request a batch's end; False where it had ended, or is unknown."""
        cancel = self._client.batches.cancel
        absent = {400, 404, 409}
        return bool(
            self._ask(lambda answer: True, lambda: cancel(name=batch_id), absent)
        )

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow | UnreadablePart]:
        """Yield the rows of a batch that has ended, which come inside it."""
        answer, error = self._download_batch(batch.batch_id)
        if answer is not None:
            yield from parse_result_rows(answer)
        if getattr(error, "status_code", None) == 404:
            raise UnreachableError(f"batch {batch.batch_id} is unknown for now")
        if error is not None:
            with self._classify_question_errors():
                raise error

    def first_id(self, batch: RemoteBatch) -> str | None:
        rows = (row for row in self.results(batch) if isinstance(row, ResultRow))
        return next((row.custom_id for row in rows if row.outcome is not None), None)

    def _download_batch(self, batch_id: str) -> tuple[Any, Exception | None]:
        """Return a batch with its rows, as far as it came, and the error that ended it early. None in place of a batch if
        there is none in what came.

        The SDK would take all of it or nothing.
        """
        key = self._read_key()

        @contextmanager
        def open_chunks() -> Iterator[Iterator[bytes]]:
            url = f"{self.endpoint}/{API_VERSION}/{batch_id}"
            headers = {"x-goog-api-key": key}
            with self._http_client.stream("GET", url, headers=headers) as response:
                if response.status_code != 200:
                    raise _StatusError.from_response(response)
                yield response.iter_bytes()

        data, error = download(self.timeout_seconds, open_chunks)
        return parse_document(batch_id, data), error

    @cached_property
    def _http_client(self) -> Any:
        """A client for answers that are read as far as they came."""
        import httpx2

        http = httpx2.Client(timeout=self.timeout_seconds)
        atexit.register(http.close)
        return http

    def _ask(
        self,
        parse: Callable[[Any], Any],
        call: Callable[[], Any],
        absent: Collection[int] = (),
    ) -> Any:
        """The parsed answer to a question; None where its status says that there is no such thing."""
        with self._classify_question_errors():
            try:
                return parse(
                    call_with_deadline(self.timeout_seconds, self._call_for_json, call)
                )
            except _StatusError as error:
                if error.status_code in absent:
                    return None
                raise

    @contextmanager
    def _classify_question_errors(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except _StatusError as error:
            words = self._describe(error)
            if error.status_code in REFUSAL_STATUSES - {429}:
                raise ServerError(
                    f"{self.endpoint} refuses ({error.status_code}): {words}."
                ) from None
            raise convert_status_error(UnreachableError, error, words) from None
        except (
            httpx2.HTTPError,
            ValueError,
            MemoryError,
            UnknownOutcomeError,
        ) as error:
            is_page = isinstance(error, WebPageError)
            raise UnreachableError(describe_briefly(error), is_page=is_page) from None

    def _describe(self, error: Any) -> str:
        """What the server says, and what to do; never what was sent."""
        hint = HINT_BY_STATUS.get(error.status_code, "")
        return describe(error, hint.format(part=self.part, key=self.key_variable))


# ---- answers


def batch_in(answer: Any) -> RemoteBatch:
    """A batch. Raises OddAnswerError for what is none."""
    match answer:
        case {"name": str(batch_id), "metadata": {"state": str(state), **metadata}}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "a batch")
    end_state = state.rpartition("STATE_")[2]
    rows = _list_rows(answer)
    size = _parse_count(metadata.get("batchStats"), "requestCount")
    refusal = (
        _find_refusal(answer.get("error"))
        if end_state == "FAILED" and not rows
        else None
    )
    is_whole = end_state == "SUCCEEDED"
    return RemoteBatch(
        batch_id=batch_id,
        size=size,
        is_ended=end_state in _OUTCOME_BY_END_STATE,
        n_rows=(size or len(rows)) if is_whole else len(rows),
        missing_outcome=_OUTCOME_BY_END_STATE.get(end_state),
        refusal=refusal,
        nonce=str(metadata["displayName"]) if metadata.get("displayName") else None,
        lifetime_seconds=_BATCH_LIFETIME_SECONDS,
    )


def _parse_count(stats: Any, name: str) -> int | None:
    """Return a count, which JSON has as text, of 64 bits; None if there is none."""
    text = str(stats.get(name)) if isinstance(stats, Mapping) else ""
    return int(text) or None if text.isascii() and text.isdigit() else None


def _find_refusal(error: Any) -> RefusedError | None:
    """Return why the server has begun none of a batch that it had accepted; None for an error that may pass."""
    match error:
        case {"code": int(code), **error_fields} if (
            code == _RESOURCE_EXHAUSTED_CODE or code not in _TRANSIENT_ERROR_CODES
        ):
            message = (
                f"{error_fields.get('message') or 'it does not say why'} (code {code})"
            )
            return RefusedError(
                message, status=429 if code == _RESOURCE_EXHAUSTED_CODE else 400
            )
        case {"code": int()}:
            return None
    return RefusedError("it does not say why", status=400)


def _list_rows(answer: Mapping[str, Any]) -> list[Any]:
    """The rows that came with a batch."""
    for container in (answer.get("response"), answer.get("metadata")):
        output = (
            container.get("output", container)
            if isinstance(container, Mapping)
            else None
        )
        match output:
            case {"inlinedResponses": {"inlinedResponses": list(rows)}}:
                return rows
    return []


def parse_result_rows(answer: Any) -> list[ResultRow | UnreadablePart]:
    batch_in(answer)
    return [
        parse_row(f"row {number}", row, row_in)
        for number, row in enumerate(_list_rows(answer), start=1)
    ]


def parse_document(batch_id: str, data: bytes) -> Any:
    """Return a batch with its rows. In a spoilt one a row that cannot be read is None, and more may be missing; None
    if nothing in it is of a batch."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        rows, around = split_rows(data)
    matches = {
        name: pattern.search(around) for name, pattern in _METADATA_PATTERNS.items()
    }
    state, name, count = ((match and match[1]) for match in matches.values())
    if not rows and state is None:
        return None
    if None not in rows:  # it is spoilt elsewhere, or cut short
        rows.append(None)
    output = {"inlinedResponses": {"inlinedResponses": rows}}
    metadata = {
        "state": state or "BATCH_STATE_SUCCEEDED",  # a batch has rows when it has ended
        "displayName": name,
        "batchStats": {"requestCount": count},
        "output": output,
    }
    return {"name": batch_id, "metadata": metadata}


def page_in(answer: Any) -> tuple[list[RemoteBatch], str | None]:
    """Return the batches of a page, and the token of the next page; None if this is the last."""
    match answer:
        case {"operations": list(rows)}:
            return [batch_in(row) for row in rows], answer.get("nextPageToken")
        case {**answer_fields} if not answer_fields:  # no batch
            return [], None
    raise UnexpectedResponseError(answer, "a list of batches")


def row_in(line: Any) -> ResultRow:
    """The result of one request. What is no answer of a model did not succeed, whatever the row says."""
    row = line if isinstance(line, Mapping) else {}
    metadata = row.get("metadata")
    custom_id = str(metadata.get("key") if isinstance(metadata, Mapping) else None)
    match row:
        case {"error": {"code": int(code), **error_fields}}:
            kind = _TRANSIENT_ERROR_CODES.get(code, f"error {code}")
            detail = str(error_fields.get("message") or "")
            return ResultRow(custom_id=custom_id, outcome=kind, detail=detail)
        case {"response": answer} if _is_damaged(answer):
            return ResultRow(custom_id=custom_id, outcome=None)
        case {"response": answer}:
            try:
                message = message_in(answer)
            except UnexpectedResponseError as error:
                return ResultRow(
                    custom_id=custom_id,
                    outcome="api_error",
                    detail=str(error),
                    possibly_billed=True,
                )
            return ResultRow(custom_id=custom_id, outcome="succeeded", message=message)
    return ResultRow(custom_id=custom_id, outcome=None)


def _is_damaged(answer: Any) -> bool:
    """Whether what should be an answer of a model has parts of other types, which no server sends."""
    match answer:
        case None:
            return False
        case {"candidates": list(candidates)}:
            contents = [
                candidate.get("content")
                if isinstance(candidate, Mapping)
                else candidate
                for candidate in candidates
            ]
            return not all(
                isinstance(content, Mapping | None)
                and isinstance((content or {}).get("parts"), list | None)
                for content in contents
            )
        case {**parts}:
            return parts.get("candidates") is not None
    return True


def message_in(answer: Any) -> dict[str, Any]:
    """An answer of a model, with its tokens as the other providers count them: thoughts, which stand beside the answer's,
    are output. Raises OddAnswerError for anything else.
    """
    match answer:
        case {"candidates": [dict(), *_]} | {"promptFeedback": {"blockReason": str()}}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "an answer of a model")
    message = dict(answer)
    usage = answer.get("usageMetadata")
    if isinstance(usage, Mapping) and "promptTokenCount" in usage:
        names = ("candidatesTokenCount", "thoughtsTokenCount")
        n_cached = usage.get("cachedContentTokenCount") or 0
        message["usage"] = {
            "prompt_tokens": usage["promptTokenCount"],
            "cached_tokens": n_cached,
            "completion_tokens": sum(
                read_token_count(answer, "usageMetadata", name) for name in names
            ),
        }
    return message


def parse_message(message: Mapping[str, Any]) -> Completion:
    """What an answer says; its model is named as the server names it."""
    # A blocked prompt has no candidate
    blocked_candidate = {"finishReason": "SAFETY"}
    candidate = next(iter(message.get("candidates") or [blocked_candidate]))
    content = candidate.get("content") or {}
    parts = [
        content_part
        for content_part in content.get("parts") or ()
        if isinstance(content_part, Mapping)
    ]
    texts = [
        str(content_part.get("text") or "")
        for content_part in parts
        if not content_part.get("thought")
    ]
    reason = str(candidate.get("finishReason") or "STOP")
    n_prompt = read_token_count(message, "usage", "prompt_tokens")
    n_cached = min(n_prompt, read_token_count(message, "usage", "cached_tokens"))
    usage = {
        "cache_read_tokens": n_cached,
        "input_tokens": n_prompt - n_cached,
        "output_tokens": read_token_count(message, "usage", "completion_tokens"),
    }
    return Completion(
        text="".join(texts).encode(errors="replace").decode(),
        stop_reason=_STOP_REASONS.get(reason, reason.lower()),
        usage=usage if message.get("usage") else {},
        model=str(message["modelVersion"]) if message.get("modelVersion") else None,
    )


@dataclass(kw_only=True)
class GeminiSettings(ApiSettings):
    """Settings of whatever asks Gemini."""

    key_variable: str
    timeout_seconds: Positive

    def _connect(self) -> GeminiApi:
        return GeminiApi(
            self.base_url, self.key_variable, self.timeout_seconds, self.part
        )

    def _check_server(self) -> None:
        self.api.check_model(self.model)

    def parse(self, message: Mapping[str, Any]) -> Completion:
        return parse_message(message)
