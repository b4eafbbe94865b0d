"""A judge's queries answered one by one, some at a time: for small runs, where a batch's wait is not worth its half
price, and for judges without batches. An answer is committed as it arrives; calls.py says what a crash can cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from elo_exp.api.batches import firsts_of
from elo_exp.api.calls import Calls, Kept, Message
from elo_exp.api.costs import Budget
from elo_exp.api.services import Queries
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.claims import Claims


class MessagesRun:
    """One process's work on the queries that it has claimed. `failed` says why a query has no answer.

    `send` turns the parameters of a message into the message, and raises RefusedError or DoubtfulError.
    """

    server = "the judge's API"

    def __init__(
        self,
        *,
        send: Callable[[Mapping[str, Any]], Message],
        judge: Queries,
        claims: Claims,
        budget: Budget,
        concurrency: int,
        ttl: str | None,
    ) -> None:
        self._send = send
        self._judge = judge
        self.cap = judge.budget_setting
        self._claims = claims
        self._budget = budget
        self._concurrency = concurrency
        self._ttl = ttl  # of the prompt cache
        self.failed: dict[str, str] = {}

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """The answers as they come, each committed. A request without one is in `failed`."""
        calls = Calls(
            self,
            send=self._send,
            budget=self._budget,
            concurrency=self._concurrency,
            n_wanted=len(requests),
        )
        self.failed = calls.failed
        firsts = firsts_of(requests)  # they write the prompt cache that the others read
        yield from calls.run(firsts)
        yield from calls.run(
            [request for request in requests if all(request is not first for first in firsts)]
        )

    def name(self, request: JudgeRequest) -> str:
        return request.key

    def params(self, request: JudgeRequest) -> Mapping[str, Any]:
        return self._judge.params(request, self._ttl)

    def reserve(self, request: JudgeRequest) -> float:
        return self._judge.reserve(request, self._ttl)

    def is_ours(self, request: JudgeRequest) -> bool:
        """False where this process slept, and another has taken the query over."""
        return self._claims.holds(request.key)

    def keep(self, request: JudgeRequest, message: Message) -> Kept[JudgeReply]:
        reply = self._judge.reply(request.key, request.names, message)
        return Kept(answer=self._claims.keep(reply), dollars=reply.dollars)
