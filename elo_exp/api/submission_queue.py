"""Requests that wait for a batch, and how they leave: as many as caps, budget and server have room for."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence, Set
from itertools import islice

from elo_exp.api.batch_protocol import BatchModel
from elo_exp.api.costs import count_fitting
from elo_exp.api.jobs import (
    Job,
    make_budget_error,
    make_cap_error,
    max_cost,
)
from elo_exp.api.open_batches import OpenBatch, OpenBatches
from elo_exp.api.server_patience import ServerPatience
from elo_exp.api.transport import (
    NO_CONNECTION_STATUS,
    RATE_LIMIT_STATUS,
    Clock,
    RefusedError,
    UnknownOutcomeError,
    UnreachableError,
    as_subject,
    fatal_reason,
)
from elo_exp.errors import RESUME_HINT, ServerError
from elo_exp.store.caps import OverCapError
from elo_exp.store.ledger import Ledger
from elo_exp.store.processes import check_lifeline

logger = logging.getLogger(__name__)

# A single request waits this often for room at the server.
_MAX_CAPACITY_RETRIES = 9
_TOO_LARGE_STATUS = 413


class SubmissionQueue:
    """The jobs that wait, in order.

    last_error  that left a cost open
    """

    def __init__(
        self,
        model: BatchModel,
        ledger: Ledger,
        open_batches: OpenBatches,
        patience: ServerPatience,
        jobs: Mapping[str, Job],
        clock: Clock,
    ) -> None:
        self._model, self._api = model, model.api
        self._ledger, self._open, self._patience = ledger, open_batches, patience
        self._jobs, self._clock = jobs, clock
        self._chunk_size = model.batch_settings.chunk_size
        # If there is no room at the server, one batch is sent at a time until one has ended.
        self._is_server_full = False
        self._n_capacity_retries = 0
        self._not_before = 0.0  # the server has asked to wait until then
        self.jobs: deque[Job] = deque()
        self.last_error = ""

    @property
    def keys(self) -> set[str]:
        return {job.key for job in self.jobs}

    def drop(self, keys: Set[str]) -> None:
        """Take jobs out that need not be submitted."""
        self.jobs = deque(job for job in self.jobs if job.key not in keys)

    def note_room(self) -> None:
        """A batch has ended, which makes room at the server."""
        self._is_server_full, self._n_capacity_retries = False, 0

    def submit(self, ttl: str | None) -> bool:
        """Submit the first jobs of the queue; False where none of them has left."""
        has_to_wait = self._is_server_full and bool(self._open)
        if self._clock.elapsed() < self._not_before or has_to_wait or not self.jobs:
            return False
        check_lifeline()
        jobs = list(islice(self.jobs, self._chunk_size))
        bodies = [self._model.params(job.request, ttl) for job in jobs]
        max_costs = [max_cost(self._model, body, ttl, batched=True) for body in bodies]
        n = self._n_affordable(max_costs)
        if n < len(jobs) and self._open:
            return False  # what is under way makes room when it is settled
        try:
            newest = next(self._api.recent(), None) if self._api.is_ordered else None
        except UnreachableError as error:
            self._patience.note_unreachable(error)
            return False
        self._patience.note_answer()
        try:
            batch = self._ledger.record_intent(
                {job.key: job.names for job in jobs[:n]},
                max_costs,
                endpoint=self._api.endpoint,
                judge_model=self._model.model,
                ttl=ttl,
                high_water=newest.batch_id if newest else None,
                now=self._clock.wall(),
                account=self._open.account_hash(),
            )
        except OverCapError:  # another process has come between
            batch = None
        if batch is None:
            return False
        sent_jobs = [self.jobs.popleft() for _ in range(batch.size)]
        opened = self._open.track(batch, is_own=True)
        ids = [batch.custom_id(job.key) for job in sent_jobs]
        try:
            batch_id = self._api.create(
                batch.nonce, dict(zip(ids, bodies, strict=False))
            )
        except RefusedError as refusal:
            self._open.abandon(opened, str(refusal))
            self.jobs.extendleft(reversed(sent_jobs))
            self._adapt_to_refusal(refusal, batch.size)
            self._patience.note_refused(refusal, is_alone=not self._open)
            return False
        except UnknownOutcomeError as doubt:
            if doubt.is_page:
                raise ServerError(f"{doubt} {RESUME_HINT}") from None
            logger.warning(
                "warning: no answer to a submission of %d requests (%s): looking for it",
                batch.size,
                doubt,
            )
            opened.since, opened.doubt = self._clock.elapsed(), str(doubt)
        else:
            self._open.mark_submitted(opened, batch_id)
        return True

    def _n_affordable(self, max_costs: Sequence[float]) -> int:
        """Return how many of these requests, from the first, the caps have room for. Raises BudgetError if there is room for
        none, and nothing that is under way here will make room."""
        n, fullest_cap = (
            self._model.budget.count_affordable(max_costs),
            self._ledger.store.find_tightest_cap(),
        )
        n_within_caps = (
            len(max_costs)
            if fullest_cap is None
            else count_fitting(max_costs, fullest_cap.remaining)
        )
        if self._open or min(n, n_within_caps):
            return min(n, n_within_caps)
        if fullest_cap is not None and n:
            raise make_cap_error(fullest_cap, max_costs[0])
        raise make_budget_error(self._model, max_costs[0], self.last_error)

    def requeue_refused(self, opened: OpenBatch, refusal: RefusedError) -> None:
        """Queue the requests of a batch again that the server has accepted and then not begun, or raise ServerError.

        If there was no room for it, it waits until another of ours has ended; if there is no other, it is halved.
        """
        size = opened.batch.size
        self._ledger.mark_refused(opened.batch, str(refusal))
        self._open.close(opened)
        own_jobs = [self._jobs[key] for key in opened.names if key in self._jobs]
        self.jobs.extendleft(reversed(own_jobs))
        self._is_server_full = refusal.status == RATE_LIMIT_STATUS
        if not self._is_server_full:
            self._adapt_to_refusal(refusal, size)
        elif self._open:
            logger.info(
                "the server has no room for %d requests yet (%s)", size, refusal
            )
        elif size > 1:
            size_refusal = RefusedError(str(refusal), status=_TOO_LARGE_STATUS)
            self._adapt_to_refusal(size_refusal, size)
        elif self._n_capacity_retries < _MAX_CAPACITY_RETRIES:
            self._n_capacity_retries += 1
            wait = self._model.batch_settings.poll_max_seconds
            retry_refusal = RefusedError(
                str(refusal), status=RATE_LIMIT_STATUS, retry_after=wait
            )
            self._adapt_to_refusal(retry_refusal, size)
        else:
            raise ServerError(
                f"{as_subject(self._model.server)} has no room for a single request ({refusal}). {RESUME_HINT}"
            )

    def _adapt_to_refusal(self, refusal: RefusedError, size: int) -> None:
        """Go on with smaller batches or later, or raise ServerError."""
        if why := fatal_reason(self._model.server, refusal):
            raise ServerError(f"{why} {RESUME_HINT}")
        if refusal.status == _TOO_LARGE_STATUS and size > 1:
            self._chunk_size = size // 2
            text = "the server takes no batch of %d requests; going on with %d"
            logger.info(text, size, self._chunk_size)
        elif refusal.status == NO_CONNECTION_STATUS:
            self._patience.note_unreachable(refusal)
        elif refusal.status == RATE_LIMIT_STATUS:
            wait = (
                refusal.retry_after or self._model.batch_settings.poll_initial_seconds
            )
            self._not_before = self._clock.elapsed() + wait
            logger.info("the server asks to wait %.0f s before the next batch", wait)
        else:
            raise ServerError(
                f"{as_subject(self._model.server)} refuses the batch ({refusal.status}): {refusal}. {RESUME_HINT}"
            )
