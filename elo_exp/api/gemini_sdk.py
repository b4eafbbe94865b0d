"""Google's SDK: it makes the requests, and the responses are read as they came, whatever it makes of them."""

from __future__ import annotations

import atexit
import importlib
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from elo_exp.api.transport import call_with_deadline, read_json
from elo_exp.errors import UserError

if TYPE_CHECKING:
    from google.genai import Client

# pinned: it is part of what a verdict depends on, and an upgraded SDK may send another
API_VERSION = "v1beta"


class StatusError(Exception):
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


class SdkErrors:
    """The errors of the SDK, for `classify_submission_errors`."""

    APIStatusError = APIError = StatusError


def check_package() -> None:
    """Raise UserError where Google's SDK is not installed."""
    try:
        importlib.import_module("google.genai")
    # Not of the subclass for modules alone: another package may have made the namespace google
    except ImportError:
        raise UserError(
            "Gemini needs the Python package google-genai, which is not installed. Install it:",
            "  pip install 'elo-exp[gemini]'",
        ).mark_as_need("pip install 'elo-exp[gemini]'") from None


class GeminiSdk:
    """A client of the SDK. Raises UserError if the SDK is not installed.

    read_key  returns the key
    """

    def __init__(
        self, endpoint: str, read_key: Callable[[], str], timeout_seconds: float
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._last_call = threading.local()  # the response to a call, in its thread
        self._client = self._make_client(endpoint, read_key)

    def _make_client(self, endpoint: str, read_key: Callable[[], str]) -> Client:
        check_package()
        import httpx2
        from google import genai
        from google.genai import types

        key = read_key()
        http = httpx2.Client(
            timeout=self._timeout_seconds,
            event_hooks={"response": [self._keep_response]},
        )
        # an ended state that is read here
        warnings.filterwarnings("ignore", message=".* is not a valid JobState")
        client = genai.Client(
            api_key=key,
            vertexai=False,  # whatever the environment says
            http_options=types.HttpOptions(
                base_url=endpoint,
                api_version=API_VERSION,
                timeout=round(1000 * self._timeout_seconds),
                # a lost answer that is asked for again would make two batches
                retry_options=types.HttpRetryOptions(attempts=1),
                httpx_client=http,
            ),
        )
        atexit.register(http.close)
        return client

    def _keep_response(self, response: Any) -> None:
        response.read()
        self._last_call.response = response

    def close(self) -> None:
        """Close the client, so that nothing goes on arriving at the server."""
        self._client.close()

    def call(self, call: Callable[[Client], Any]) -> Any:
        """Return the JSON that answers a call of the client; None if the answer is none. Raises StatusError."""
        return call_with_deadline(self._timeout_seconds, self._call_for_json, call)

    def _call_for_json(self, call: Callable[[Client], Any]) -> Any:
        from google.genai import errors

        self._last_call.response = None
        try:
            call(self._client)
        except errors.APIError as error:
            raise StatusError.from_sdk_error(error) from None
        except (ValueError, TypeError, AttributeError, LookupError):
            if self._last_call.response is None:  # it was never sent
                raise
        return read_json(self._last_call.response)
