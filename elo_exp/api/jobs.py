"""Requests to a model behind an API, their answers, and what both transports say of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from elo_exp.api.costs import Budget, Prices, format_dollars
from elo_exp.errors import RESUME_HINT, BudgetError, ServerError, UserError
from elo_exp.records import Record
from elo_exp.store.caps import Spending
from elo_exp.types import Count, NonNegative

_MIN_FAILED_TO_STOP = 20
_MAX_FAILED_SHARE = 0.05

Message = Mapping[str, Any]  # an API's answer, as JSON
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request.

    key     of its answer
    names   what it asks about, in the fields of the answer's record
    prefix  the part of the prompt that other jobs share, and the server may cache
    """

    key: str
    names: Mapping[str, Any]
    request: Any
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A message, parsed.

    stop_reason  end_turn, max_tokens, refusal, ..., as in a JudgeReply
    usage        tokens by class; empty where the API does not say
    model        what the API calls the model that answered
    diagnostics  what else is recorded of an answer
    """

    text: str
    stop_reason: str
    usage: Mapping[str, int]
    model: str | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


class Api(Protocol):
    """A server of single messages."""

    endpoint: str

    def send(self, params: Mapping[str, Any]) -> Message:
        """One message at once. Raises RefusedError or DoubtfulError."""

    def check_model(self, model: str) -> None:
        """Raise UserError where the server does not answer, or refuses; free."""


class Model(Protocol):
    """What a judge or an entrant knows of its requests, and nothing of how they travel."""

    api: Api
    concurrency: int  # single requests at a time
    wait_minutes: float  # for a server that goes away, or refuses everybody

    @property
    def model(self) -> str: ...

    @property
    def server(self) -> str:
        """Name of the server, for messages."""

    @property
    def max_tokens(self) -> int:
        """Where an answer is cut off."""

    @property
    def budget(self) -> Budget:
        """What a whole run may spend on this model."""

    @property
    def budget_setting(self) -> str:
        """The setting that holds the cap, for messages."""

    def prices_of(self, model: str) -> Prices | None:
        """Prices of a model, which may be another's: a batch that was taken over may have asked it.
        None: unknown."""

    def params(self, request: Any, ttl: str | None) -> dict[str, Any]:
        """The body of a request; `ttl` is the time to live that it asks of the prompt cache, if
        any."""

    def parse(self, message: Message) -> Completion: ...


@dataclass(kw_only=True)
class ApiSettings:
    """Settings that entrants and judges behind an API share.

    A subclass builds its client in `_connect`, and looks at the server in `_check_server`.
    """

    base_url: str
    model: str
    max_tokens: Count
    concurrency: Count
    wait_minutes: NonNegative

    def name_settings(self, part: str, budget_setting: str) -> None:
        """Set the names of these settings and of their cap, for messages."""
        self.part, self.budget_setting = part, budget_setting
        self.api = self._connect()
        self._was_reached = False

    def _connect(self) -> Any:
        raise NotImplementedError

    def _check_server(self) -> None:
        raise NotImplementedError

    def check_access(self) -> None:
        """Raise UserError for a package or a key that is missing; the server is not asked."""
        self.api.check_access()

    def preflight(self) -> None:
        """Raise UserError for what would stop the first request, such as a missing key."""
        if not self._was_reached:
            self._check_server()
            self._was_reached = True


# Makes the record of an answer from its key, names, text, dollars (None: unknown) and message.
Recorder = Callable[[str, Mapping[str, Any], Completion, float | None, Message], R]


def max_cost(
    model: Model, params: Mapping[str, Any], ttl: str | None, *, batched: bool
) -> float:
    """The most that one request may cost; 0 where its prices are not known."""
    prices = model.prices_of(model.model)
    return (
        prices.max_cost(params, model.max_tokens, ttl, batched=batched)
        if prices
        else 0.0
    )


def make_budget_error(model: Model, dollars: float, last_error: str) -> UserError:
    """The error of a cap that leaves no room for the next request, which may cost `dollars`."""
    return _build_budget_error(
        model.budget_setting, model.budget.describe(last_error), dollars
    )


def make_cap_error(cap: Spending, dollars: float) -> UserError:
    """The error of a cap of the store that leaves no room for the next request, which may cost `dollars`."""
    return _build_budget_error(cap.setting, describe_spending(cap), dollars)


def _build_budget_error(setting: str, spending: str, dollars: float) -> BudgetError:
    return BudgetError(
        f"{setting} is too low for the next request, which may cost ${dollars:.4f}: {spending}.",
        f"  Every answer so far is stored. To continue, run the same command again with a higher {setting}.",
    )


def describe_spending(spent: Spending) -> str:
    """Such as "$3.20 of $5.00 are spent in 2026-11, $0.40 of it held for calls under way"."""
    kind, _, name = spent.scope.partition(" ")
    scope = {"month": name, "sweep": "this sweep", "folder": "this run folder"}[kind]
    amount = f"{format_dollars(spent.dollars, beside=spent.cap)} of {format_dollars(spent.cap)} are spent in {scope}"
    if spent.reserved < 1e-9:
        return amount
    held_dollars = format_dollars(spent.reserved, beside=spent.cap)
    return f"{amount}, {held_dollars} of it held for calls under way"


def check_failures(failed: Mapping[str, str], n_wanted: int) -> None:
    """Raise ServerError where so many requests have failed for good that something is wrong with all
    of them."""
    if (
        len(failed) >= _MIN_FAILED_TO_STOP
        and len(failed) > _MAX_FAILED_SHARE * n_wanted
    ):
        raise ServerError(f"{summarize_failures(failed)}. {RESUME_HINT}")


def summarize_failures(failed: Mapping[str, str]) -> str:
    """How many requests have no answer, and the most common cause."""
    [(cause, count)] = Counter(failed.values()).most_common(1)
    return f"{len(failed)} queries have failed for good, {count} of them with this error: {cause}"
