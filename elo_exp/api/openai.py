"""An OpenAI-compatible API: chat completions as plain JSON, errors as the kinds of api/transport.

Servers differ: what comes back is read as it is, without the SDK's types, and nothing beyond the
choices is relied on.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from elo_exp.api.costs import has_token_counts, read_token_count
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.api.transport import (
    HINT_BY_STATUS,
    UNCHARGED_NOTE,
    RefusedError,
    UnexpectedResponseError,
    UnknownOutcomeError,
    build_missing_key_error,
    build_unreachable_error,
    call_with_deadline,
    check_base_url,
    check_variable,
    classify_submission_errors,
    describe_briefly,
    find_error_message,
    format_embedded_error,
    join_text_blocks,
    read_key,
    read_raw_json,
)
from elo_exp.errors import RESUME_HINT, ServerError, SettingError, UserError
from elo_exp.types import MaxTokensName, NonNegative, Positive

if TYPE_CHECKING:
    from openai import OpenAI

logger = logging.getLogger(__name__)

# The SDK sends no request without a key.
_PLACEHOLDER_KEY = "not-needed"
_LISTING_TIMEOUT_SECONDS = 30.0
# Of requests that bill nothing
_MAX_SDK_RETRIES = 5
_MAX_NAMED_MODELS = 5
# The SDK lets extra_body replace the fields beside it, and with them those that a budget reckons with.
_RESERVED_BODY_FIELDS = {
    "max_tokens": "Set max_tokens",
    "max_completion_tokens": "Set max_tokens, and max_tokens_name=max_completion_tokens",
    "n": "One answer is read, and all are paid for: ask again with judging.repeats",
    "best_of": "One answer is read, and all are paid for: ask again with judging.repeats",
    "model": "Set model",
    "messages": "They are the prompt or the rubric: set system_prompt of an entrant, or rubric",
    "stream": "Answers are read whole: set timeout_seconds for one that takes long",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def check_extra_body(extra_body: Mapping[str, Any] | None) -> None:
    """Raise SettingError for what has a setting, or would cost more than a budget knows of."""
    for name in extra_body or ():
        if name in _RESERVED_BODY_FIELDS:
            raise SettingError(
                f"extra_body must leave out {name}, which would bypass the settings. {_RESERVED_BODY_FIELDS[name]}."
            )


@dataclass(eq=False)
class OpenAiApi:
    """The server at `base_url`. Its errors are those of api/transport, and none of the SDK's.

    key_variable     the environment variable, or line of .env, that holds the key; None: the server
                     asks for none
    timeout_seconds  after which an answer is given up
    part             what asks, in the words of the configuration: judge, or entrant.NAME
    """

    base_url: str
    key_variable: str | None
    timeout_seconds: float
    part: str

    def __post_init__(self) -> None:
        check_base_url(self.base_url)
        if self.key_variable is not None:
            check_variable(self.key_variable)
        self.endpoint = self.base_url.rstrip("/")

    @cached_property
    def _client(self) -> OpenAI:
        sdk, key = import_openai(), self._read_key()
        client: OpenAI = sdk.OpenAI(
            api_key=key,
            base_url=self.endpoint,
            timeout=self.timeout_seconds,
            max_retries=0,  # api/calls retries, and counts what a loss may cost
            # whatever else the environment would have it send
            default_headers={"Authorization": f"Bearer {key}"},
        )
        atexit.register(client.close)
        return client

    def check_access(self) -> None:
        """Raise UserError if the SDK is not installed or the key is not set. The server is not called."""
        import_openai()
        self._read_key()

    def _read_key(self, charge_note: str = "") -> str:
        if self.key_variable is None:
            return _PLACEHOLDER_KEY
        if key := read_key(self.key_variable):
            return key
        raise build_missing_key_error(
            self.part,
            "an API key",
            self.key_variable,
            f"  Another name: {self.part}.key_variable=NAME. For a server without keys: {self.part}.key_variable=null.",
            charge_note=charge_note,
        )

    def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return one chat completion, as the JSON that came. Raises RefusedError or
        DoubtfulError."""
        create = self._client.chat.completions.with_raw_response.create
        with classify_submission_errors(import_openai(), self._describe):
            message = call_with_deadline(
                self.timeout_seconds, lambda: read_raw_json(create(**params))
            )
        try:
            return parse_completion_answer(message)
        except UnexpectedResponseError as error:
            words = str(error).removeprefix("it ")
            raise UnknownOutcomeError(f"{self.endpoint} {words}") from None

    def post_for_free(
        self, url: str, body: Mapping[str, Any], read: Callable[[Any], Any]
    ) -> Any:
        """Return what `read` makes of the JSON that answers a request, which is retried and bills
        nothing. Raises ServerError."""
        client = self._client.with_options(max_retries=_MAX_SDK_RETRIES)
        try:
            with classify_submission_errors(import_openai(), self._describe):
                return read(client.post(url, body=body, cast_to=object))
        except (RefusedError, UnknownOutcomeError) as error:
            raise ServerError(
                f"{url} does not answer ({error}). {RESUME_HINT}"
            ) from None
        except (LookupError, TypeError):
            raise ServerError(
                f"{url} does not answer as vLLM's server does, and logprobs=true works with that server alone."
            ) from None

    def check_model(self, model: str) -> None:
        """Raise ServerError if the server or a valid key is missing, and UserError if the SDK is; free.

        Not every server lists its models, or lists them by the names that it takes: one that is not
        listed is only warned of.
        """
        import httpx2

        sdk, seconds = (
            import_openai(),
            min(_LISTING_TIMEOUT_SECONDS, self.timeout_seconds),
        )
        problem, fix, names = "", "", []
        self._read_key(UNCHARGED_NOTE)
        client = self._client.with_options(timeout=seconds, max_retries=2)
        try:
            listing = client.models.with_raw_response.list().http_response.json()
            names = [str(row["id"]) for row in listing["data"] or []]
        except sdk.APIStatusError as error:
            status = error.status_code
            if status in (502, 503, 504):  # it is not there, or still loading
                problem = f"has no answers now ({self._describe(error)})"
            elif status == 401 and "scope" not in str(error.body):
                problem = f"refuses (401): {self._describe(error)}"
            else:
                # a gateway may have no list, and a key may be good for completions and nothing else
                _log_once(
                    logging.INFO,
                    f"{self.endpoint} does not list its models ({status}); going on",
                )
        except (sdk.APIError, httpx2.HTTPError) as error:
            raise build_unreachable_error(
                self.endpoint, describe_briefly(error), self.part
            ) from None
        except (ValueError, TypeError, LookupError, AttributeError):
            problem = "does not answer as an OpenAI-compatible API does"
            fix = f"  Check {self.part}.base_url, which mostly ends in /v1."
        if problem:
            line = f"{self.endpoint} {problem}. Nothing was charged."
            raise ServerError(line, *filter(None, [fix]))
        if names and model not in names:
            model_names = ", ".join(names[:_MAX_NAMED_MODELS]) + (
                ", ..." if len(names) > _MAX_NAMED_MODELS else ""
            )
            _log_once(
                logging.WARNING,
                f"warning: {self.part}.model: {self.endpoint} does not list {model}; it lists {model_names}",
            )

    def _describe(self, error: Any) -> str:
        """What the server says, and what to do. A server may quote the key that it refuses."""
        status, code = error.status_code, error.code
        words = find_error_message(error.body).replace(
            self._client.api_key, "[the key]"
        )
        hint = HINT_BY_STATUS.get(status, "").format(
            part=self.part, key=self.key_variable
        )
        if status == 401:
            words = "the key is not accepted"
            if self.key_variable is None:
                hint = (
                    f"It asks for a key: set {self.part}.key_variable to the name of the variable "
                    "that holds it"
                )
        elif status == 404:
            hint += ", which mostly ends in /v1"
        if words and isinstance(code, str) and not code.isdigit() and code not in words:
            words = f"{words} ({code})"
        words = words or f"status {status}"
        return f"{words}. {hint}" if hint else words


@cache
def _log_once(level: int, text: str) -> None:
    """Log a text once, although a server that has gone away is asked for its models again."""
    logger.log(level, "%s", text)


def import_openai() -> ModuleType:
    try:
        import openai
    except ModuleNotFoundError:
        raise UserError(
            "OpenAI-compatible APIs need the Python package openai, which is not installed. Install it:",
            "  pip install 'elo-exp[openai]'",
        ).mark_as_need("pip install 'elo-exp[openai]'") from None
    return openai


def parse_completion_answer(answer: Any) -> dict[str, Any]:
    """A chat completion. Raises OddAnswerError for anything else, such as the error of a gateway."""
    match answer:
        case {"choices": [{"message": dict()} as choice, *_]}:
            pass
        case _:
            raise UnexpectedResponseError(answer, "a chat completion")
    is_error = choice.get("finish_reason") == "error"
    if answer.get("error") or choice.get("error") or is_error:
        error_source = answer if format_embedded_error(answer) else choice
        raise UnexpectedResponseError(error_source, "a text: an error in its place")
    return dict(answer)


def parse_completion(message: Mapping[str, Any], *, max_tokens: int) -> Completion:
    """What a chat completion says.

    text         after the thought that some servers send beside it, if there is one
    stop_reason  as in a JudgeReply, or the server's own. Where the server does not say, an answer
                 was cut off if it has as many tokens as were allowed
    usage        tokens that the server found in its prompt cache, or wrote there, are not input tokens
    """
    choice = message["choices"][0]
    reply, reason = choice["message"], choice.get("finish_reason")
    text = join_text_blocks(reply.get("content"))
    thought = join_text_blocks(reply.get("reasoning") or reply.get("reasoning_content"))
    if thought:
        text = f"<think>{thought}{'</think>' if text else ''}{text}"
    details = ("usage", "prompt_tokens_details")
    n_prompt = read_token_count(message, "usage", "prompt_tokens")
    n_cached = read_token_count(message, *details, "cached_tokens")
    n_written = read_token_count(message, *details, "cache_write_tokens")
    if n_cached + n_written > n_prompt:  # they were counted apart
        n_prompt += n_cached + n_written
    n_out = read_token_count(message, "usage", "completion_tokens")
    if reply.get("refusal"):
        reason = "content_filter"
    elif reason is None:
        reason = "length" if n_out >= max_tokens else "stop"
    usage = {
        "cache_read_tokens": n_cached,
        **({"cache_write_5m_tokens": n_written} if n_written else {}),
        "input_tokens": n_prompt - n_cached - n_written,
        "output_tokens": n_out,
    }
    return Completion(
        text=text,
        stop_reason=_STOP_REASONS.get(str(reason), str(reason)),
        usage=usage if has_token_counts(message) else {},
        model=str(message["model"]) if message.get("model") else None,
    )


@dataclass(kw_only=True)
class OpenAiSettings(ApiSettings):
    """Settings that entrants and judges behind an OpenAI-compatible API share."""

    key_variable: str | None
    max_tokens_name: MaxTokensName
    temperature: NonNegative | None
    chat_template_kwargs: dict[str, Any]
    extra_body: dict[str, Any]
    timeout_seconds: Positive

    _api_class: ClassVar[type[OpenAiApi]] = OpenAiApi

    def _connect(self) -> OpenAiApi:
        check_extra_body(self.extra_body)
        if self.chat_template_kwargs:
            variables = {"chat_template_kwargs": self.chat_template_kwargs}
            self.extra_body = self.extra_body | variables
        return self._api_class(
            self.base_url, self.key_variable, self.timeout_seconds, self.part
        )

    def _check_server(self) -> None:
        self.api.check_model(self.model)

    def _request_body(self, messages: Sequence[Any], **options: Any) -> dict[str, Any]:
        """Return the body of a request; options that are None are not sent."""
        body = {
            "model": self.model,
            "messages": messages,
            self.max_tokens_name: self.max_tokens,
            "temperature": self.temperature,
            "extra_body": self.extra_body or None,
            **options,
        }
        return {name: x for name, x in body.items() if x is not None}

    def parse(self, message: Mapping[str, Any]) -> Completion:
        return parse_completion(message, max_tokens=self.max_tokens)
