"""The Gemini API: its batches and single answers, its errors as the kinds of api/transport.

A batch is created in one step, with its requests inside. Its display name is the nonce, which list and retrieval repeat:
the proof of whose it is. The list promises no order. The SDK makes the requests; it drops some of what comes back (sizes,
errors, states that it does not know), so that the answers are read here.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from elo_exp.api.batch_protocol import Login, RemoteBatch, ResultRow, UnreadablePart
from elo_exp.api.gemini_answers import (
    batch_in,
    message_in,
    page_in,
    parse_document,
    parse_message,
    parse_result_rows,
)
from elo_exp.api.gemini_sdk import (
    API_VERSION,
    GeminiSdk,
    SdkErrors,
    StatusError,
    check_package,
)
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.api.result_lines import download
from elo_exp.api.transport import (
    HINT_BY_STATUS,
    REFUSAL_STATUSES,
    UNCHARGED_NOTE,
    RefusedError,
    UnexpectedResponseError,
    UnknownOutcomeError,
    UnreachableError,
    WebPageError,
    build_missing_key_error,
    build_unreachable_error,
    check_base_url,
    check_variable,
    classify_submission_errors,
    convert_status_error,
    describe,
    describe_briefly,
    read_key,
)
from elo_exp.errors import ServerError
from elo_exp.types import Positive

if TYPE_CHECKING:
    from google.genai import Client

# The server allows 20 MB.
_MAX_BATCH_BYTES = 18_000_000
_BATCHES_PER_PAGE = 100


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

    @cached_property
    def _sdk(self) -> GeminiSdk:
        return GeminiSdk(self.endpoint, self._read_key, self.timeout_seconds)

    def check_access(self) -> None:
        """Raise UserError if the SDK is not installed or the key is not set. The server is not called."""
        check_package()
        self._read_key()

    def login(self) -> Login:
        return Login(self._read_key(), None)  # its answers name no organization

    def _read_key(self, charge_note: str = "") -> str:
        if key := read_key(self.key_variable):
            return key
        raise build_missing_key_error(
            self.part,
            "a Gemini API key",
            self.key_variable,
            charge_note=charge_note,
        )

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
        sdk = self._sdk
        model = next(iter(requests.values()))["model"]
        with classify_submission_errors(SdkErrors, self._describe):
            try:
                answer = sdk.call(
                    lambda client: client.batches.create(
                        model=model, src=rows, config={"display_name": nonce}
                    )
                )
            except UnknownOutcomeError:
                # it must not go on arriving while it is looked for
                sdk.close()
                del self._sdk
                raise
            return batch_in(answer).batch_id

    def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return one answer."""
        sdk = self._sdk
        with classify_submission_errors(SdkErrors, self._describe):
            answer = sdk.call(
                lambda client: client.models.generate_content(
                    model=params["model"],
                    contents=params["contents"],
                    config=params["config"],
                )
            )
            return message_in(answer)

    # ---- questions, which are free: UnreachableError, or UserError where refused

    def check_model(self, model: str) -> None:
        """Raise ServerError where the server cannot be reached, refuses the key or does not know the model."""
        self._read_key(UNCHARGED_NOTE)
        try:
            self._ask(
                lambda answer: answer, lambda client: client.models.get(model=model)
            )
        except UnreachableError as error:
            raise build_unreachable_error(self.endpoint, error, self.part) from None

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, in whatever order."""
        token: str | None = None
        while True:
            batches, token = self._read_page(token)
            yield from batches
            if not token:
                return

    def _read_page(self, token: str | None) -> tuple[list[RemoteBatch], str | None]:
        """Return some batches, and the token of the next page; None if this is the last."""
        options: Any = {"page_size": _BATCHES_PER_PAGE, "page_token": token}
        page: tuple[list[RemoteBatch], str | None] = self._ask(
            page_in, lambda client: client.batches.list(config=options)
        )
        return page

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
        absent = {400, 404, 409}
        return bool(
            self._ask(
                lambda answer: True,
                lambda client: client.batches.cancel(name=batch_id),
                absent,
            )
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
        """Return a batch with the rows that arrived, and the error that ended the download early.

        The batch is None if too little of it arrived. The SDK would return the whole batch or raise an error.
        """
        key = self._read_key()

        @contextmanager
        def open_chunks() -> Iterator[Iterator[bytes]]:
            url = f"{self.endpoint}/{API_VERSION}/{batch_id}"
            headers = {"x-goog-api-key": key}
            with self._http_client.stream("GET", url, headers=headers) as response:
                if response.status_code != 200:
                    raise StatusError.from_response(response)
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
        call: Callable[[Client], Any],
        absent: Collection[int] = (),
    ) -> Any:
        """The parsed answer to a question; None where its status says that there is no such thing."""
        sdk = self._sdk
        with self._classify_question_errors():
            try:
                return parse(sdk.call(call))
            except StatusError as error:
                if error.status_code in absent:
                    return None
                raise

    @contextmanager
    def _classify_question_errors(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except StatusError as error:
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
