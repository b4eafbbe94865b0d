"""Calls of an API that answers at once, some at a time: retried, never past a cap, every answer that arrives kept.

The APIs know no idempotency: an answer that is lost on its way, or while this process is killed, is paid for and gone,
and its question is asked again. That is at most `concurrency` answers a crash; what a lost answer may have cost stays
reserved in the budget.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from elo_exp import progress
from elo_exp.api.batches import stop_if_many
from elo_exp.api.costs import Budget
from elo_exp.api.counts import NOT_COUNTED, is_counted
from elo_exp.api.services import NO_CONNECTION, DoubtfulError, RefusedError, no_hope
from elo_exp.records import UserError
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 6
_BACK_OFF_SECONDS = 1.0  # doubled at every attempt
_PASSING = frozenset({429, NO_CONNECTION})
_NOT_BILLED = frozenset(
    {529}
)  # overloaded: doubtful for a batch, which outlives the call, but not for a message
_FATAL = frozenset({401, 402, 403, 404})  # no other request will fare better
_STORED = "Every answer so far is stored"

Message = Mapping[str, Any]  # an API's answer, as JSON
Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Generic[Answer]):
    answer: Answer
    dollars: float  # what it cost


class Work(Protocol[Item_contra, Answer]):
    """What is to be asked, and what becomes of the answers. All but `send` is called in one thread."""

    @property
    def server(self) -> str:
        """Whom an error speaks of."""

    @property
    def cap(self) -> str:
        """The setting that holds the budget."""

    def name(self, item: Item_contra) -> str: ...

    def params(self, item: Item_contra) -> Mapping[str, Any]: ...

    def reserve(self, item: Item_contra) -> float:
        """The most dollars that it may cost."""

    def is_ours(self, item: Item_contra) -> bool:
        """Whether it is still this process's to ask."""

    def keep(self, item: Item_contra, message: Message) -> Kept[Answer]: ...


class _Interrupt:
    """Ctrl-C while answers are on their way: it waits until they have been handed over. A second one does not wait."""

    def __enter__(self) -> Self:
        self.wanted = False
        self._before = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        self._takes_it = in_main and self._before is not None  # None: somebody's who is not Python
        if self._takes_it:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._takes_it:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        logger.info("interrupted: waiting for the answers on their way; Ctrl-C again gives them up")


class Calls(Generic[Item, Answer]):
    """One piece of work. `failed` says, by the item's name, why it has no answer.

    send      turns the parameters of a call into the API's answer; raises RefusedError or DoubtfulError
    n_wanted  items in all, over several runs
    """

    def __init__(
        self,
        work: Work[Item, Answer],
        *,
        send: Callable[[Mapping[str, Any]], Message],
        budget: Budget,
        concurrency: int,
        n_wanted: int,
    ) -> None:
        self._work = work
        self._send = send
        self._budget = budget
        self._concurrency = concurrency
        self._n_wanted = n_wanted
        self._attempts: Counter[str] = Counter()
        self._stop = threading.Event()
        self._is_silent = False  # the server, about what its answers cost
        self._lost = ""  # why the last answer was lost that may have been billed
        self.failed: dict[str, str] = {}

    def run(self, items: Sequence[Item]) -> Iterator[Answer]:
        """The answers as they come, each kept. An item without one is in `failed`.

        When the work is broken off, what has been sent is paid for: its answers are waited for, kept and handed over
        before the error is raised.
        """
        waiting = deque((item, 0.0) for item in items)
        running: dict[Future[Message], Item] = {}
        with _Interrupt() as interrupt, ThreadPoolExecutor(max_workers=self._concurrency) as pool:
            try:
                while running or (waiting and not interrupt.wanted):
                    if interrupt.wanted:
                        self._stop.set()
                    else:
                        self._fill(pool, waiting, running)
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        item = running[future]
                        if (error := future.exception()) is None:
                            answers = self._keep(item, future.result())
                            del running[future]
                            yield from answers
                        else:
                            del running[future]
                            if (delay := self._retry(item, error)) is not None:
                                waiting.append((item, delay))
                        stop_if_many(
                            self.failed, self._n_wanted, f"{_STORED}; the same command goes on."
                        )
                    self._note()
                if interrupt.wanted:
                    raise KeyboardInterrupt
            except BaseException as broken:
                self._stop.set()
                last = self._last(running)
                if not isinstance(broken, GeneratorExit):
                    yield from last
                raise

    def _fill(
        self,
        pool: ThreadPoolExecutor,
        waiting: deque[tuple[Item, float]],
        running: dict[Future[Message], Item],
    ) -> None:
        """Send what there are hands and money for."""
        while waiting and len(running) < self._concurrency:
            item, delay = waiting[0]
            name, reserve = self._work.name(item), self._work.reserve(item)
            if not self._budget.fits([reserve]):
                if running:
                    return  # what is under way makes room when it is answered
                raise UserError(self._over_budget(reserve))
            waiting.popleft()
            if self._work.is_ours(item):
                self._budget.reserve(name, reserve)
                running[pool.submit(self._ask, self._work.params(item), delay)] = item

    def _over_budget(self, reserve: float) -> str:
        return (
            f"{self._work.cap}: {self._budget.state(self._lost)}, and the next request may cost ${reserve:.4f}. "
            f"{_STORED}; the same command with a higher cap goes on."
        )

    def _ask(self, params: Mapping[str, Any], delay: float) -> Message:
        """In a thread of its own, with no access to the store."""
        if self._stop.wait(delay) if delay else self._stop.is_set():
            raise RefusedError("interrupted before it was sent", status=429)
        check_lifeline()
        return self._send(params)

    def _keep(self, item: Item, message: Message) -> list[Answer]:
        """The answer; none where it cannot be read, and may have cost the most that was reserved for it."""
        name = self._work.name(item)
        try:
            kept = self._work.keep(item, message)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.failed[name] = (
                f"{self._work.server} answered with what cannot be read ({type(error).__name__}: {error})"
            )
            return []
        if is_counted(message):
            self._budget.release(name)
        elif self._work.reserve(item) and not self._is_silent:
            self._is_silent = True
            logger.warning("warning: %s %s", self._work.server, NOT_COUNTED)
        self._budget.spent += kept.dollars
        return [kept.answer]

    def _last(self, running: Mapping[Future[Message], Item]) -> list[Answer]:
        """The answers to what cannot be called back. One that cannot be kept takes no other along."""
        answers: list[Answer] = []
        for future, item in running.items():
            if not future.cancel() and future.exception() is None:
                try:
                    answers += self._keep(item, future.result())
                except UserError as error:
                    logger.warning(
                        "warning: the answer to %s is not kept: %s", self._work.name(item), error
                    )
        return answers

    def _retry(self, item: Item, error: BaseException) -> float | None:
        """After how many seconds it is asked again; None: not at all. Raises UserError where no other will fare
        better."""
        name = self._work.name(item)
        self._attempts[name] += 1
        if isinstance(error, DoubtfulError) and error.status not in _NOT_BILLED:
            self._budget.reserve(f"{name} lost {self._attempts[name]}", self._work.reserve(item))
            self._lost = str(error).rstrip(".")
        self._budget.release(name)
        if not isinstance(error, RefusedError | DoubtfulError):
            raise error
        asked = error.retry_after if isinstance(error, RefusedError) else None
        if why := self._is_fatal(error, self._attempts[name]):
            raise UserError(f"{why} {_STORED}.")
        if (isinstance(error, RefusedError) and error.status not in _PASSING) or self._attempts[
            name
        ] >= MAX_ATTEMPTS:
            self.failed[name] = str(error)
            return None
        return asked if asked is not None else _BACK_OFF_SECONDS * 2.0 ** (self._attempts[name] - 1)

    def _is_fatal(self, error: RefusedError | DoubtfulError, n_attempts: int) -> str:
        """Why nothing more is to be had from this server; empty where more may be."""
        server = self._work.server
        if isinstance(error, RefusedError) and error.status in _FATAL:
            return f"{server} refuses ({error.status}): {error}."
        if why := no_hope(server, error):
            return why
        if (
            isinstance(error, RefusedError)
            and error.status == NO_CONNECTION
            and n_attempts >= MAX_ATTEMPTS
        ):
            return f"{server} cannot be reached ({error})."
        return ""

    def _note(self) -> None:
        if 0 < self._budget.cap < float("inf"):
            progress.note(f"{self._budget.spent_of_cap} spent")
