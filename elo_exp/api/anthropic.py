"""The Anthropic API: its answers read as they came, its errors as the kinds of api/transport.

A status of 200 may be a login page's, and the SDK holds an answer to no shape; so every answer is
checked here.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from elo_exp.api.batch_protocol import Login, RemoteBatch, ResultRow, UnreadablePart
from elo_exp.api.costs import read_token_count
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.api.result_lines import download, parse_lines
from elo_exp.api.transport import (
    HINT_BY_STATUS,
    REFUSAL_STATUSES,
    UNCHARGED_NOTE,
    UnexpectedResponseError,
    UnknownOutcomeError,
    UnreachableError,
    WebPageError,
    as_subject,
    build_missing_key_error,
    build_unreachable_error,
    call_with_deadline,
    check_base_url,
    classify_submission_errors,
    convert_status_error,
    describe,
    describe_briefly,
    join_text_blocks,
    name_caller,
    read_key,
    read_raw_json,
)
from elo_exp.errors import ServerError, SettingError

if TYPE_CHECKING:
    from anthropic import Anthropic

logger = logging.getLogger(__name__)

KEY_VARIABLE = "ANTHROPIC_API_KEY"
# pinned: it is part of what a verdict depends on, and an upgraded SDK may send another
API_VERSION = "2026-10-21"
_TIMEOUT_SECONDS = 300.0
# A batch may be large.
_UPLOAD_TIMEOUT_SECONDS = 3 * _TIMEOUT_SECONDS
_BATCHES_PER_PAGE = 100


def api_key() -> str | None:
    return read_key(KEY_VARIABLE)


def _build_key_error(part: str, charge_note: str = "") -> ServerError:
    return build_missing_key_error(
        part,
        "an Anthropic API key",
        KEY_VARIABLE,
        "  To see the price without a key, add plan=true.",
        charge_note=charge_note,
    )


class AnthropicApi:
    """A BatchApi, and single messages.

    part  what asks, in the words of the configuration: judge, or entrant.NAME
    """

    is_ordered = True
    timeout_seconds = _TIMEOUT_SECONDS

    def __init__(self, base_url: str, *, part: str) -> None:
        self.endpoint = base_url
        self._part = part
        self._organization: str | None = None

    @cached_property
    def _client(self) -> Anthropic:
        import anthropic

        client = anthropic.Anthropic(
            api_key=self.login().key,
            base_url=self.endpoint,
            timeout=_TIMEOUT_SECONDS,
            default_headers={"anthropic-version": API_VERSION},
        )
        atexit.register(client.close)
        return client

    def check_access(self) -> None:
        """Raise ServerError if the key is not set. The server is not called."""
        self.login()

    def login(self) -> Login:
        key = api_key()
        if not key:
            raise _build_key_error(self._part)
        return Login(key, self._organization)

    def _read_answer(self, raw: Any) -> Any:
        """Return the JSON of an answer, and note the organization that it names."""
        organization = raw.headers.get("anthropic-organization-id")
        self._organization = organization or self._organization
        return read_raw_json(raw)

    # ---- what is paid for: RefusedError or DoubtfulError

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit a batch; return its id. The custom ids hold the nonce, which the server repeats in
        the results alone."""
        # a lost answer that is sent again would make two batches
        client = self._client.with_options(max_retries=0)
        batches = client.messages.batches.with_raw_response
        body: Any = [
            {"custom_id": name, "params": params} for name, params in requests.items()
        ]
        with self._classify_submission_errors():
            try:
                raw = call_with_deadline(
                    _UPLOAD_TIMEOUT_SECONDS, lambda: batches.create(requests=body)
                )
            except (
                UnknownOutcomeError
            ):  # it must not go on arriving while it is looked for
                self._client.close()
                del self._client
                raise
            return batch_in(self._read_answer(raw)).batch_id

    def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return one message."""
        client = self._client.with_options(max_retries=0)
        create = client.messages.with_raw_response.create
        with self._classify_submission_errors():
            message = call_with_deadline(
                _TIMEOUT_SECONDS, lambda: read_raw_json(create(**params))
            )
            return message_in(message)

    @contextmanager
    def _classify_submission_errors(self) -> Iterator[None]:
        import anthropic

        with classify_submission_errors(anthropic, self._describe):
            yield

    # ---- questions, which are free: UnreachableError, or UserError where refused

    def count_tokens(self, params: Mapping[str, Any]) -> int:
        """Return what a message would be billed as input."""
        counted_params = {
            name: value for name, value in params.items() if name != "max_tokens"
        }
        count = self._client.messages.with_raw_response.count_tokens
        return int(self._ask(count_in, lambda: count(**counted_params)))

    def check_model(self, model: str) -> None:
        """Raise ServerError if the server cannot be reached, refuses the key or does not know the
        model, and SettingError if it has retired the model; warn if it will."""
        retrieve = self._client.models.with_raw_response.retrieve

        def has_no_list(error: Any) -> bool:  # some gateways
            return error.status_code == 404 and model not in self._describe(error)

        try:
            listed_model = self._ask(model_in, lambda: retrieve(model), has_no_list)
        except UnreachableError as error:
            raise build_unreachable_error(self.endpoint, error, self._part) from None
        if listed_model is None:
            text = "%s has no list of models; going on with %s"
            logger.info(text, self.endpoint, model)
        else:
            check_lifetime(listed_model, self._part)

    @property
    def _batches(self) -> Any:
        return self._client.messages.batches.with_raw_response

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, newest first: that one alone is requested before the others."""
        options: dict[str, Any] = {"limit": 1}
        while True:
            page = self._ask(page_in, lambda: self._batches.list(**options))  # noqa: B023
            batches, last = page
            yield from batches
            if last is None:
                return
            options = {"limit": _BATCHES_PER_PAGE, "after_id": last}

    def check(self, batch_id: str) -> RemoteBatch | None:
        """Return the batch as it stands; None where the server knows of no such batch."""
        return self._ask_about_batch(self._batches.retrieve, batch_id, {404})

    def cancel(self, batch_id: str) -> bool:
        """Request a batch's end; False where it had ended, or is unknown."""
        return (
            self._ask_about_batch(self._batches.cancel, batch_id, {400, 404})
            is not None
        )

    def _ask_about_batch(
        self, call: Callable[[str], Any], batch_id: str, absent: Collection[int]
    ) -> RemoteBatch | None:
        batch: RemoteBatch | None = self._ask(
            batch_in, lambda: call(batch_id), lambda error: error.status_code in absent
        )
        return batch

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow | UnreadablePart]:
        """Yield the rows of a batch that has ended, perhaps cut short."""
        data, error = download(3 * _TIMEOUT_SECONDS, lambda: self._open_results(batch))
        yield from parse_lines(data, row_in)
        if error is None:
            return
        if getattr(error, "status_code", None) == 404:
            raise UnreachableError(self._describe(error))
        with self._classify_question_errors():
            raise error

    def first_id(self, batch: RemoteBatch) -> str | None:
        def read_start() -> str | None:
            start = b""
            with self._open_results(batch) as chunks:
                for chunk in chunks:
                    start += chunk
                    whole_lines = start[: start.rfind(b"\n") + 1]
                    for row in parse_lines(whole_lines, row_in):
                        if isinstance(row, ResultRow) and row.outcome is not None:
                            return row.custom_id
            return None

        with self._classify_question_errors():
            return call_with_deadline(_TIMEOUT_SECONDS, read_start)

    @contextmanager
    def _open_results(self, batch: RemoteBatch) -> Iterator[Iterator[bytes]]:
        our_host = urlsplit(self.endpoint).hostname
        results_host = urlsplit(batch.results_url or "").hostname
        # The SDK would follow it, with the key
        if results_host not in (None, our_host):
            raise ServerError(
                f"The server at {our_host} keeps the results at {results_host}, a host that is not sent the key."
            )
        try:
            # it looks at the batch once more, and takes what it sees for one
            decoder = self._client.messages.batches.results(batch.batch_id)
        except (AttributeError, TypeError):
            raise UnexpectedResponseError(None, "a batch") from None
        with closing(decoder.http_response) as response:
            yield response.iter_bytes()

    def _ask(
        self,
        parse: Callable[[Any], Any],
        call: Callable[[], Any],
        is_absent: Callable[[Any], bool] = lambda error: False,
    ) -> Any:
        """The parsed answer to a question, which the SDK sends three times before it gives up; None
        where the error says that there is no such thing."""
        import anthropic

        with self._classify_question_errors():
            try:
                return parse(
                    call_with_deadline(
                        _TIMEOUT_SECONDS, lambda: self._read_answer(call())
                    )
                )
            except anthropic.APIStatusError as error:
                if is_absent(error):
                    return None
                raise

    @contextmanager
    def _classify_question_errors(self) -> Iterator[None]:
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            words = self._describe(error)
            if error.status_code in REFUSAL_STATUSES - {429}:
                server = as_subject(f"{name_caller(self._part)}'s API")
                raise ServerError(
                    f"{server} refuses ({error.status_code}): {words}."
                ) from None
            raise convert_status_error(UnreachableError, error, words) from None
        except (
            anthropic.AnthropicError,
            httpx2.HTTPError,
            ValueError,  # a line cut short
            MemoryError,
            UnknownOutcomeError,
        ) as error:
            is_page = isinstance(error, WebPageError)
            raise UnreachableError(describe_briefly(error), is_page=is_page) from None

    def _describe(self, error: Any) -> str:
        """What the server says, and what to do; never what was sent."""
        hint = HINT_BY_STATUS.get(error.status_code, "")
        return describe(error, hint.format(part=self._part, key=KEY_VARIABLE))


# ---- models that go


@cache
def check_lifetime(model: ListedModel, part: str = "judge") -> None:
    """Raise SettingError for a retired model; warn, once, of one that is about to be."""
    if model.is_retired:
        raise SettingError(
            f"{part}.model must be a model that the server still has; {model.name} was retired."
        )
    if model.retires:
        logger.warning(
            "warning: %s.model: %s retires on %s. This run cannot be repeated after that.",
            part,
            model.name,
            model.retires,
        )


# ---- answers


def message_in(answer: Any) -> dict[str, Any]:
    """A message. Raises OddAnswerError for anything else, such as the error of a gateway."""
    match answer:
        case {"type": "message", "content": list(), "stop_reason": str()}:
            return dict(answer)
    raise UnexpectedResponseError(answer, "a message")


def count_in(answer: Any) -> int:
    match answer:
        case {"input_tokens": int(n)} if n >= 0:
            return n
    raise UnexpectedResponseError(answer, "a count of tokens")


@dataclass(frozen=True)
class ListedModel:
    """What the server knows of a model; gateways and older servers know its name alone.

    retires  the day for which its end is planned, as the server writes it; "" where none is
    """

    name: str
    is_retired: bool
    retires: str


def model_in(answer: Any) -> ListedModel:
    match answer:
        case {"id": str(name)}:
            retirement = answer.get("retires_at")
            retires = (
                retirement.partition("T")[0] if isinstance(retirement, str) else ""
            )
            return ListedModel(name, answer.get("lifecycle") == "retired", retires)
    raise UnexpectedResponseError(answer, "a model")


def batch_in(answer: Any) -> RemoteBatch:
    """A batch. Raises OddAnswerError for what is none, and ValueError for one that expires at no
    time."""
    match answer:
        case {
            "id": str(batch_id),
            "processing_status": str(status),
            "created_at": str(created_at),
            "expires_at": str(expires_at),
            "request_counts": {
                "processing": int(processing),
                "succeeded": int(succeeded),
                "errored": int(errored),
                "canceled": int(canceled),
                "expired": int(expired),
            },
        }:
            size = processing + succeeded + errored + canceled + expired
            start, end = map(datetime.fromisoformat, (created_at, expires_at))
            return RemoteBatch(
                batch_id=batch_id,
                size=size,
                n_rows=size,
                is_ended=status == "ended",
                is_archived=answer.get("archived_at") is not None,
                results_url=str(answer.get("results_url") or "") or None,
                lifetime_seconds=end.timestamp() - start.timestamp(),
            )
    raise UnexpectedResponseError(answer, "a batch")


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
    """A line of a batch's results. What is no message did not succeed, whatever the line says."""
    row = line if isinstance(line, Mapping) else {}
    custom_id = str(row.get("custom_id"))
    match row.get("result"):
        case {"type": "succeeded", "message": answer} if _is_damaged(answer):
            return ResultRow(custom_id=custom_id, outcome=None)
        case {"type": "succeeded", "message": answer}:
            try:
                message = message_in(answer)
            except UnexpectedResponseError as error:
                error_body = (
                    answer.get("error") if isinstance(answer, Mapping) else None
                )
                kind = (
                    error_body.get("type") if isinstance(error_body, Mapping) else None
                )
                return ResultRow(
                    custom_id=custom_id,
                    outcome=str(kind or "api_error"),
                    detail=str(error),
                    possibly_billed=True,
                )
            return ResultRow(custom_id=custom_id, outcome="succeeded", message=message)
        case {
            "type": "errored",
            "error": {"error": {"type": str(kind), **error_fields}},
        }:
            detail = str(error_fields.get("message", ""))
            return ResultRow(custom_id=custom_id, outcome=kind, detail=detail)
        case {"type": "expired" | "canceled" as outcome}:
            return ResultRow(custom_id=custom_id, outcome=outcome)
    return ResultRow(custom_id=custom_id, outcome=None)


def _is_damaged(answer: Any) -> bool:
    """Whether what should be a message has parts of other types, which no server sends."""
    match answer:
        case None:
            return False
        case {"content": list(blocks)} if not all(
            isinstance(block, Mapping) for block in blocks
        ):
            return True
        case {**parts}:
            is_list = isinstance(parts.get("content"), list | None)
            return not (is_list and isinstance(parts.get("stop_reason"), str | None))
    return True


def parse_message(message: Mapping[str, Any]) -> Completion:
    """Parse a message; its model is named as the server names it."""
    return Completion(
        text=read_text(message),
        stop_reason=str(message.get("stop_reason")),
        usage=read_usage(message),
        model=message.get("model"),
    )


def read_usage(message: Mapping[str, Any]) -> dict[str, int]:
    """Tokens by class; the writes of a server that does not tell them apart are 5-minute ones."""
    n_written = read_token_count(message, "usage", "cache_creation_input_tokens")
    creation = ("usage", "cache_creation")
    one_hour = read_token_count(message, *creation, "ephemeral_1h_input_tokens")
    five_minutes = read_token_count(message, *creation, "ephemeral_5m_input_tokens")
    return {  # in the order in which the store gives it back
        "cache_read_tokens": read_token_count(
            message, "usage", "cache_read_input_tokens"
        ),
        "cache_write_1h_tokens": one_hour,
        "cache_write_5m_tokens": max(five_minutes, n_written - one_hour),
        "input_tokens": read_token_count(message, "usage", "input_tokens"),
        "output_tokens": read_token_count(message, "usage", "output_tokens"),
    }


def read_text(message: Mapping[str, Any]) -> str:
    """Text blocks, joined. Others, such as thinking, may come before them."""
    return join_text_blocks(message.get("content"))


@dataclass(kw_only=True)
class ClaudeSettings(ApiSettings):
    """Settings that Claude as entrant and as judge shares."""

    def _connect(self) -> AnthropicApi:
        check_base_url(self.base_url)
        return AnthropicApi(self.base_url.rstrip("/"), part=self.part)

    def _check_server(self) -> None:
        if api_key() is None:
            raise _build_key_error(self.part, UNCHARGED_NOTE)
        self.api.check_model(self.model)

    def parse(self, message: Mapping[str, Any]) -> Completion:
        return parse_message(message)
