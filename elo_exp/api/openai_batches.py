"""OpenAI's form of batches, which others speak, too (Azure, Groq): a file of requests, and results in two files.

An upload starts nothing and bills nothing, so that one step is doubtful, as with every provider: the creation of the
batch. Its metadata hold the nonce, which list and retrieval repeat at once: the proof of whose it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from elo_exp.api.batch_protocol import Login, RemoteBatch, ResultRow, UnreadablePart
from elo_exp.api.openai import OpenAiApi, import_openai, parse_completion_answer
from elo_exp.api.result_lines import download, parse_lines
from elo_exp.api.transport import (
    NO_CONNECTION_STATUS,
    REFUSAL_STATUSES,
    RefusedError,
    UnexpectedResponseError,
    UnknownOutcomeError,
    UnreachableError,
    WebPageError,
    call_with_deadline,
    classify_submission_errors,
    convert_status_error,
    describe_briefly,
    read_raw_json,
)
from elo_exp.errors import ServerError

logger = logging.getLogger(__name__)

_COMPLETIONS_URL: Final = "/v1/chat/completions"
_BATCHES_PER_PAGE = 100
# Of questions, which bill nothing
_MAX_SDK_RETRIES = 2
# For requests without a row
_OUTCOME_BY_END_STATUS = {
    "completed": None,
    "failed": "api_error",
    "expired": "expired",
    "cancelled": "canceled",
}
# The server accepted a batch and did not begin it; there may be room for it later.
_RETRYABLE_ERROR_CODES = {"token_limit_exceeded", "rate_limit_exceeded"}
# In the words of api/batches
_OUTCOME_BY_ERROR_CODE = {
    "batch_expired": "expired",
    "batch_cancelled": "canceled",
    "rate_limit_exceeded": "rate_limit_error",
    "server_error": "api_error",
}


class OpenAiBatches(OpenAiApi):
    """A BatchApi, and single chat completions."""

    is_ordered = True
    _has_warned = False
    _organization: str | None = None

    def login(self) -> Login:
        return Login(self._read_key(), self._organization)

    def _read_answer(self, raw: Any) -> Any:
        """Return the JSON of an answer, and note the organization that it names."""
        names = ("openai-organization", "openai-project")
        organization = [raw.headers[name] for name in names if raw.headers.get(name)]
        self._organization = "/".join(organization) or self._organization
        return read_raw_json(raw)

    # ---- what is paid for: RefusedError or DoubtfulError

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit a batch; return its id."""
        batches = self._client.batches.with_raw_response
        file_id = self._upload(nonce, requests)
        with classify_submission_errors(import_openai(), self._describe):
            try:
                raw = call_with_deadline(
                    self.timeout_seconds,
                    lambda: batches.create(
                        input_file_id=file_id,
                        endpoint=_COMPLETIONS_URL,
                        completion_window="24h",
                        metadata={"nonce": nonce},
                    ),
                )
            except (
                UnknownOutcomeError
            ):  # it must not go on arriving while it is looked for
                self._client.close()
                del self._client
                raise
            batch = batch_in(self._read_answer(raw))
        if batch.nonce is None and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "warning: %s does not repeat the metadata of a batch: one whose submission gets no answer is known by "
                "its size and its results, once it has ended", self.endpoint,
            )  # fmt: skip
        return batch.batch_id

    def _upload(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Upload the requests; return the id of their file. Whatever goes wrong, nothing was begun."""
        lines = [
            {
                "custom_id": name,
                "method": "POST",
                "url": _COMPLETIONS_URL,
                "body": _request_body(params),
            }
            for name, params in requests.items()
        ]
        data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
        try:
            with classify_submission_errors(import_openai(), self._describe):
                file = (f"{nonce}.jsonl", data.encode())
                create = self._client.files.with_raw_response.create
                answer = call_with_deadline(
                    3 * self.timeout_seconds,
                    lambda: read_raw_json(create(file=file, purpose="batch")),
                )
                match answer:
                    case {"id": str(file_id)}:
                        return file_id
                raise UnexpectedResponseError(answer, "a file")
        except UnknownOutcomeError as error:
            message = f"the upload of its requests: {error}"
            is_page = error.is_page
            raise RefusedError(
                message, status=NO_CONNECTION_STATUS, is_page=is_page
            ) from None

    # ---- questions, which are free: UnreachableError, or UserError where refused

    def check_batches(self) -> None:
        """Raise ServerError where the server takes no batches. One that gives no answer now is asked again later."""
        with suppress(UnreachableError):
            if self._ask_for_page({"limit": 1}) is None:
                raise ServerError(
                    f"{self.endpoint} takes no batches (404 for /batches). Set {self.part}.transport=messages."
                )

    def check(self, batch_id: str) -> RemoteBatch | None:
        """Return the batch as it stands; None where the server knows of no such batch."""
        answer = self._ask_about_batch(batch_id)
        return None if answer is None else batch_in(answer)

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, newest first: that one alone is requested before the others."""
        options: dict[str, Any] = {"limit": 1}
        while True:
            page = self._ask_for_page(options)
            if page is None:
                raise UnreachableError("it has no list of batches for now")
            batches, last_id = page
            yield from batches
            if last_id is None:
                return
            options = {"limit": _BATCHES_PER_PAGE, "after": last_id}

    def _ask_for_page(self, options: Mapping[str, Any]) -> Any:
        """A page of the list of batches; None where the server has no such list."""
        call = self._batches.list
        return self._ask(page_in, lambda: call(**options), {404, 405})

    def cancel(self, batch_id: str) -> bool:
        """Request a batch's end; False where it had ended, or is unknown."""
        absent = {400, 404, 409}
        call = self._batches.cancel
        return self._ask(batch_in, lambda: call(batch_id), absent) is not None

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow | UnreadablePart]:
        """Yield the rows of the output file, then those of the error file; either may be absent.

        Raises UnreachableError behind those that came if a file is cut short, or has fewer lines than the server has
        counted as completed.
        """
        answer = self._ask_about_batch(batch.batch_id)
        if answer is None:
            raise UnreachableError(f"batch {batch.batch_id} is unknown for now")
        problem, n_lines = "", 0
        for name in ("output_file_id", "error_file_id"):
            if not (file_id := answer.get(name)):
                continue
            data, cut_reason = self._download_file(str(file_id))
            problem = problem or cut_reason
            row_ids: set[str] = set()
            for row in parse_lines(data, row_in):
                row_ids.add(
                    row.custom_id if isinstance(row, ResultRow) else row.location
                )
                yield row
            if name == "output_file_id":
                n_lines = len(row_ids)
        if problem or n_lines < _read_counts(answer)["completed"]:
            raise UnreachableError(problem or "the output file ends early")

    def first_id(self, batch: RemoteBatch) -> str | None:
        """A server that drops the metadata is asked for all of its results."""
        rows = (row for row in self.results(batch) if isinstance(row, ResultRow))
        return next((row.custom_id for row in rows if row.outcome is not None), None)

    def _download_file(self, file_id: str) -> tuple[bytes, str]:
        """As much of a file as came, and why the rest did not; empty if all of it came."""
        stream = self._retrying_client.files.with_streaming_response.content

        @contextmanager
        def open_chunks() -> Iterator[Iterator[bytes]]:
            with stream(file_id) as response:
                yield response.iter_bytes()

        data, error = download(3 * self.timeout_seconds, open_chunks)
        if error is None:
            return data, ""
        if getattr(error, "status_code", None) == 404:
            return data, f"the server has no file {file_id}"
        try:
            with self._classify_question_errors():
                raise error
        except UnreachableError as unreachable:
            return data, str(unreachable)

    def _ask_about_batch(self, batch_id: str) -> Any:
        """The JSON of a batch; None where the server knows of no such batch."""

        def check_batch(answer: Any) -> Any:
            batch_in(answer)
            return answer

        return self._ask(check_batch, lambda: self._batches.retrieve(batch_id), {404})

    @property
    def _retrying_client(self) -> Any:
        return self._client.with_options(max_retries=_MAX_SDK_RETRIES)

    @property
    def _batches(self) -> Any:
        return self._retrying_client.batches.with_raw_response

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
                    self._read_answer(call_with_deadline(self.timeout_seconds, call))
                )
            except import_openai().APIStatusError as error:
                if error.status_code in absent:
                    return None
                raise

    @contextmanager
    def _classify_question_errors(self) -> Iterator[None]:
        import httpx2

        sdk = import_openai()
        try:
            yield
        except sdk.APIStatusError as error:
            words = self._describe(error)
            if error.status_code in REFUSAL_STATUSES - {429}:
                raise ServerError(
                    f"{self.endpoint} refuses ({error.status_code}): {words}."
                ) from None
            raise convert_status_error(UnreachableError, error, words) from None
        except (
            sdk.APIError,
            httpx2.HTTPError,
            ValueError,
            MemoryError,
            UnknownOutcomeError,
        ) as error:
            is_page = isinstance(error, WebPageError)
            raise UnreachableError(describe_briefly(error), is_page=is_page) from None


def _request_body(params: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request as the SDK would send it."""
    other_params = {
        name: value for name, value in params.items() if name != "extra_body"
    }
    return {**other_params, **(params.get("extra_body") or {})}


# ---- answers


def batch_in(answer: Any) -> RemoteBatch:
    """A batch. Raises OddAnswerError for what is none.

    A request that was not run is counted nowhere: one that has expired or was cancelled has the outcome of its batch.
    """
    match answer:
        case {"id": str(batch_id), "status": str(status), "created_at": int(created)}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "a batch")
    counts, metadata = _read_counts(answer), answer.get("metadata")
    expires = answer.get("expires_at")
    nonce = metadata.get("nonce") if isinstance(metadata, Mapping) else None
    total, completed = counts["total"], counts["completed"]
    return RemoteBatch(
        batch_id=batch_id,
        size=total or None,  # 0 while the file is looked through
        is_ended=status in _OUTCOME_BY_END_STATUS,
        n_rows=total if status == "completed" else completed,
        missing_outcome=_OUTCOME_BY_END_STATUS.get(status),
        refusal=_find_refusal(answer) if status == "failed" and not completed else None,
        nonce=str(nonce) if nonce else None,
        lifetime_seconds=float(expires - created)
        if isinstance(expires, int)
        else 86_400.0,
    )


def _read_counts(answer: Mapping[str, Any]) -> dict[str, int]:
    request_counts = answer.get("request_counts")
    counts = request_counts if isinstance(request_counts, Mapping) else {}
    names = ("total", "completed")
    return {
        name: counts[name] if isinstance(counts.get(name), int) else 0 for name in names
    }


def _find_refusal(answer: Mapping[str, Any]) -> RefusedError:
    """Return why the server has begun none of a batch that it had accepted."""
    match answer.get("errors"):
        case {"data": [{"code": code, **error_fields}, *_]}:
            message = f"{error_fields.get('message') or code} ({code})"
            return RefusedError(
                message, status=429 if code in _RETRYABLE_ERROR_CODES else 400
            )
    return RefusedError("it does not say why", status=400)


def page_in(answer: Any) -> tuple[list[RemoteBatch], str | None]:
    """Some batches, newest first; and after which one the next page begins, None where there is
    none."""
    match answer:
        case {"data": list(rows)}:
            batches = [batch_in(row) for row in rows]
            has_more = batches and answer.get("has_more")
            return batches, batches[-1].batch_id if has_more else None
    raise UnexpectedResponseError(answer, "a list of batches")


def row_in(line: Any) -> ResultRow:
    """A line of the output or the error file. What is no chat completion did not succeed, whatever the line says."""
    row = line if isinstance(line, Mapping) else {}
    custom_id = str(row.get("custom_id"))
    match row.get("response"), row.get("error"):
        case {"status_code": 200, "body": body}, _:
            return _parse_success(custom_id, body)
        case _, dict() as error if error:
            return _parse_failure(custom_id, error)
        case {"body": {"error": dict() as error}}, other_error if not other_error:
            return _parse_failure(custom_id, error)
        case {"status_code": int(), "body": dict() | str() | None}, _:
            return ResultRow(custom_id=custom_id, outcome="api_error")
    is_empty = "response" in row and row["response"] is None
    return ResultRow(custom_id=custom_id, outcome="api_error" if is_empty else None)


def _parse_success(custom_id: str, body: Any) -> ResultRow:
    """Return the row of a line with status 200."""
    if _is_damaged(body):
        return ResultRow(custom_id=custom_id, outcome=None)
    try:
        message = parse_completion_answer(body)
    except UnexpectedResponseError as error:
        return ResultRow(
            custom_id=custom_id,
            outcome="api_error",
            detail=str(error),
            possibly_billed=True,
        )
    return ResultRow(custom_id=custom_id, outcome="succeeded", message=message)


def _is_damaged(body: Any) -> bool:
    """Whether what should be a chat completion has parts of other types, which no server sends."""
    match body:
        case None | {"choices": None}:
            return False
        case {"choices": list(choices)}:
            messages = [c.get("message") for c in choices if isinstance(c, Mapping)]
            return len(messages) < len(choices) or not all(
                isinstance(message, Mapping | None) for message in messages
            )
    return not isinstance(body, Mapping) or "choices" in body


def _parse_failure(custom_id: str, error: Mapping[str, Any]) -> ResultRow:
    code = str(error.get("code") or error.get("type") or "api_error")
    return ResultRow(
        custom_id=custom_id,
        outcome=_OUTCOME_BY_ERROR_CODE.get(code, code),
        detail=str(error.get("message") or ""),
    )
