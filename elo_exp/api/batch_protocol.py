"""What a server of batches is asked, and what it answers; the models whose requests go to one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from elo_exp.api.jobs import Api, Message, Model
from elo_exp.api.transport import RefusedError
from elo_exp.errors import SettingError

# Until the server has noticed that a submission has passed its deadline
_SUBMISSION_SLACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBatch:
    """A batch as the server describes it.

    size              None while the server does not say
    n_rows            how many rows the results must have
    missing_outcome   the outcome of the requests without a row: expired, canceled, ...; None: each has one
    refusal           why the server, which had accepted the batch, has begun none of it
    nonce             where the server repeats it before the end
    is_archived       its results are no longer kept
    results_url       where they are, once it has ended, where the server says so
    lifetime_seconds  from its creation to its expiry, both by the server's clock
    """

    batch_id: str
    size: int | None
    is_ended: bool
    n_rows: int
    missing_outcome: str | None = None
    refusal: RefusedError | None = None
    nonce: str | None = None
    is_archived: bool = False
    results_url: str | None = None
    lifetime_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """The result of one request.

    outcome          succeeded, expired, canceled, the type of an error, or None: not understood
    possibly_billed  it should have been a success, and holds no message
    """

    custom_id: str
    outcome: str | None
    detail: str = ""
    message: Message | None = None
    possibly_billed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePart:
    """A part of the results that is no result of a request.

    location  such as "line 17"
    reason    continues a sentence about it
    """

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks a server.

    organization  that its answers have named so far; None if they named none
    """

    key: str
    organization: str | None


class BatchApi(Api, Protocol):
    """A server of batches. Every question may raise UnreachableError, or UserError where the server
    refuses it.

    is_ordered       whether it lists its batches by their age
    timeout_seconds  after which a submission without an answer is given up
    """

    is_ordered: bool
    timeout_seconds: float

    def create(self, nonce: str, requests: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit requests by their custom ids; return the batch's id. Raises RefusedError or
        DoubtfulError, and never submits a second time by itself."""

    def check(self, batch_id: str) -> RemoteBatch | None:
        """Return the batch as it stands; None where the server knows of no such batch."""

    def results(self, batch: RemoteBatch) -> Iterator[ResultRow | UnreadablePart]:
        """Yield the results in any order, and what stands among them that is none. Raises UnreachableError behind those
        that came if some that the server has are missing."""

    def first_id(self, batch: RemoteBatch) -> str | None:
        """Return the custom id of one of the results of a batch that has ended; None if there is none. It reads no more
        of them than it has to."""

    def recent(self) -> Iterator[RemoteBatch]:
        """Yield all batches, newest first where `is_ordered`."""

    def login(self) -> Login:
        """Return who asks."""

    def cancel(self, batch_id: str) -> bool:
        """Request a batch's end; False where it had ended, or is unknown."""


@dataclass(kw_only=True)
class BatchSettings:
    chunk_size: int
    poll_initial_seconds: float
    poll_max_seconds: float
    quarantine_seconds: float


def check_quarantine(seconds: float, api: BatchApi) -> None:
    """Raise SettingError where a submission could still be accepted after it was given up; a test
    server is excepted."""
    min_seconds = api.timeout_seconds + _SUBMISSION_SLACK_SECONDS
    is_local = urlsplit(api.endpoint).hostname in ("127.0.0.1", "localhost")
    if seconds < min_seconds and not is_local:
        raise SettingError.bad_value(
            "quarantine_seconds",
            seconds,
            f"be {min_seconds:g} or more",
            "  Until then the server may still accept a submission, which would be paid for twice.",
        )


class BatchModel(Model, Protocol):
    api: BatchApi
    batch_settings: BatchSettings
