"""The Anthropic API as the suite uses it: the SDK's answers in our words, and every error as one of
three kinds."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from elo_exp.api.anthropic_answers import (
    OddAnswerError,
    batch_in,
    check_model_in,
    count_in,
    json_of,
    message_in,
    page_in,
    row_in,
)
from elo_exp.api.batches import RemoteBatch, Row
from elo_exp.api.transport import (
    REFUSALS,
    DoubtfulError,
    UnreachableError,
    brief,
    in_time,
    read_key,
    submitting,
    within,
)
from elo_exp.records import UserError

if TYPE_CHECKING:
    from anthropic import Anthropic

logger = logging.getLogger(__name__)

KEY_VARIABLE = "ANTHROPIC_API_KEY"
# pinned: it is part of what a verdict depends on, and an upgraded SDK may send another
API_VERSION = "2026-10-21"
_TIMEOUT_SECONDS = 300.0  # after which the client gives up on an answer
_UPLOAD_SECONDS = 3 * _TIMEOUT_SECONDS  # the same for a batch, which may be large
_SLACK_SECONDS = 60.0  # until the server has then certainly noticed
_PAGE = 100
_HINTS = {
    401: f"Check {KEY_VARIABLE}",
    402: "Check the account's balance",
    403: f"The key in {KEY_VARIABLE} may not do this",
    404: "Check {part}.model and {part}.base_url",
}


def api_key() -> str | None:
    return read_key(KEY_VARIABLE)


def check_quarantine(seconds: float, base_url: str) -> None:
    """Raise UserError where a submission could still be accepted after it was given up; a test
    server is excepted."""
    least = _TIMEOUT_SECONDS + _SLACK_SECONDS
    if seconds < least and urlsplit(base_url).hostname not in (
        "127.0.0.1",
        "localhost",
    ):
        raise UserError(
            f"quarantine_seconds: found {seconds:g}. Expected {least:g} or more: until then the "
            "server may accept "
            "what would then be paid again."
        )


class AnthropicApi:
    """A BatchApi, and single messages. Its errors are those of api/transport, and none of the
    SDK's.

    part  what asks, in the words of the configuration: judge, or entrant.NAME
    """

    def __init__(self, base_url: str, *, part: str) -> None:
        self.endpoint = base_url
        self._part = part

    @cached_property
    def _client(self) -> Anthropic:
        import anthropic

        key = api_key()
        if not key:
            raise UserError(no_key())
        client = anthropic.Anthropic(
            api_key=key,
            base_url=self.endpoint,
            timeout=_TIMEOUT_SECONDS,
            default_headers={"anthropic-version": API_VERSION},
        )
        atexit.register(client.close)
        return client

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit a batch; its id. The custom ids hold the nonce, which the server repeats in the
        results alone."""
        client = self._client.with_options(
            max_retries=0
        )  # a lost answer and a retry: two batches
        batches = client.messages.batches.with_raw_response
        body: Any = [
            {"custom_id": name, "params": params} for name, params in requests.items()
        ]
        with self._submitting():
            try:
                raw = within(_UPLOAD_SECONDS, lambda: batches.create(requests=body))
            except DoubtfulError:  # it must not go on arriving while it is looked for
                self._client.close()
                del self._client
                raise
            return batch_in(json_of(raw)).batch_id

    def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One message at once. Raises RefusedError or DoubtfulError."""
        client = self._client.with_options(max_retries=0)
        ask = client.messages.with_raw_response.create
        with self._submitting():
            return message_in(within(_TIMEOUT_SECONDS, lambda: json_of(ask(**params))))

    def count_tokens(self, params: Mapping[str, Any]) -> int:
        """What a message would be billed as input; free. Raises UnreachableError, or UserError
        where it is refused."""
        counted = {
            name: value for name, value in params.items() if name != "max_tokens"
        }
        with self._asking():
            return count_in(
                json_of(self._client.messages.with_raw_response.count_tokens(**counted))
            )

    def check_model(self, model: str) -> None:
        """Whether the server can be reached, takes the key and knows the model; free. Raises
        UserError where not."""
        import anthropic

        try:
            with self._asking():
                try:
                    check_model_in(
                        json_of(self._client.models.with_raw_response.retrieve(model))
                    )
                except anthropic.NotFoundError as error:
                    if model in self._describe(error):
                        raise
                    logger.info(
                        "%s has no list of models; going on with %s",
                        self.endpoint,
                        model,
                    )  # some gateways
        except UnreachableError as error:
            raise UserError(
                f"{self.endpoint} cannot be reached ({error}). Check the network and "
                f"{self._part}.base_url; nothing "
                "was spent."
            ) from None

    def recent(self) -> Iterator[RemoteBatch]:
        """All batches, newest first: that one alone is asked for before the others."""
        found, last = self._page(limit=1)
        yield from found
        while last is not None:
            found, last = self._page(limit=_PAGE, after_id=last)
            yield from found

    def _page(self, **which: Any) -> tuple[list[RemoteBatch], str | None]:
        ask = self._client.messages.batches.with_raw_response.list
        with self._asking():
            return page_in(within(_TIMEOUT_SECONDS, lambda: json_of(ask(**which))))

    def check(self, batch_id: str) -> RemoteBatch | None:
        import anthropic

        with self._asking():
            try:
                return batch_in(self._look_at(batch_id))
            except anthropic.NotFoundError:
                return None

    def _look_at(self, batch_id: str) -> Any:
        ask = self._client.messages.batches.with_raw_response.retrieve
        return within(_TIMEOUT_SECONDS, lambda: json_of(ask(batch_id)))

    def cancel(self, batch_id: str) -> bool:
        """Ask for its end; False for a batch that had ended, or that the server does not know."""
        import anthropic

        with self._asking():
            try:
                batch_in(
                    json_of(
                        self._client.messages.batches.with_raw_response.cancel(batch_id)
                    )
                )
            except (anthropic.BadRequestError, anthropic.NotFoundError):
                return False
        return True

    def results(self, batch: RemoteBatch) -> Iterator[Row]:
        import anthropic

        batch_id = batch.batch_id
        with self._asking():
            try:
                found = self._look_at(batch_id)
                batch_in(found)
                self._check_host(found.get("results_url"))
                rows = self._rows(batch_id)
            except anthropic.NotFoundError as error:
                raise UnreachableError(self._describe(error)) from None
            with closing(rows.http_response):
                for row in in_time(_TIMEOUT_SECONDS, iter(rows)):
                    is_model = hasattr(row, "to_dict")
                    yield row_in(
                        row.to_dict(mode="json", warnings=False) if is_model else row
                    )

    def _rows(self, batch_id: str) -> Any:
        """Open the stream of a batch's results: iterable, with its `http_response`."""
        try:
            return self._client.messages.batches.results(batch_id)
        except (
            AttributeError,
            TypeError,
        ):  # it looks at the batch once more, and takes what it sees for one
            raise OddAnswerError(None, "a batch") from None

    def _check_host(self, url: Any) -> None:
        """The SDK follows an absolute address, with the key, to whatever host it names."""
        ours, theirs = (
            urlsplit(self.endpoint).hostname,
            urlsplit(str(url or "")).hostname,
        )
        if theirs is not None and theirs != ours:
            raise UserError(
                f"the server at {ours} says that the results are at {theirs}, which does not get "
                "the key."
            )

    @contextmanager
    def _submitting(self) -> Iterator[None]:
        import anthropic

        with submitting(anthropic, self._describe):
            yield

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """The errors of a question that costs nothing. The SDK has retried it twice by now."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            if error.status_code in REFUSALS - {429}:
                server = f"the {self._part.replace('.', ' ')}'s API"
                raise UserError(
                    f"{server} refuses ({error.status_code}): {self._describe(error)}."
                ) from None
            raise UnreachableError(self._describe(error)) from None
        except (
            anthropic.AnthropicError,
            httpx2.HTTPError,
            ValueError,
            MemoryError,
            DoubtfulError,
        ) as error:  # a ValueError: a line cut short
            raise UnreachableError(brief(error)) from None

    def _describe(self, error: Any) -> str:
        """What the server says, and what to do; never what was sent."""
        body = error.body if isinstance(error.body, Mapping) else {}
        inner = body.get("error")
        message = inner.get("message") if isinstance(inner, Mapping) else None
        hint = _HINTS.get(error.status_code)
        said = str(message or f"status {error.status_code}").rstrip(".")
        return f"{said}. {hint.format(part=self._part)}" if hint else said


def no_key() -> str:
    return (
        f"{KEY_VARIABLE}: not set. Put the key into the environment, or as {KEY_VARIABLE}=... into "
        "a file .env here; "
        "plan=true shows what a run would cost without one."
    )


@cache
def check_lifetime(model: str, part: str = "judge") -> None:
    """Raise UserError for a retired model; warn, once, of one that is about to be."""
    end = end_of_life(model)
    if end is None:
        return
    if end <= datetime.now(UTC).date():
        raise UserError(f"{part}.model: {model} was retired on {end}. Choose another.")
    logger.warning(
        "warning: %s.model: %s will be retired on %s; then nobody can repeat this.",
        part,
        model,
        end,
    )


def end_of_life(model: str) -> date | None:
    """When a model is retired, by the SDK's list, which it heeds for single messages only; None for
    one that stays."""
    from anthropic.resources.messages.messages import DEPRECATED_MODELS

    if (words := DEPRECATED_MODELS.get(model)) is None:
        return None
    day, _, year = words.partition(",")
    return datetime.strptime(f"{day.rstrip('stndrh')},{year}", "%B %d, %Y").date()
