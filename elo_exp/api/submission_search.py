"""A submission whose answer was lost: found by its size and proved by its nonce, or known to arrive no more."""

import logging
from collections.abc import Iterator, Mapping

from elo_exp.api.batch_protocol import (
    BatchModel,
    RemoteBatch,
    ResultRow,
    UnreadablePart,
)
from elo_exp.api.jobs import Job
from elo_exp.api.open_batches import OpenBatch, OpenBatches, repay_hint
from elo_exp.api.transport import Clock, UnreachableError
from elo_exp.errors import ServerError
from elo_exp.store.batch_accounts import CONFIRMED_ACCOUNT, find_account, same_account
from elo_exp.store.batch_rows import Batch
from elo_exp.store.ledger import Ledger

logger = logging.getLogger(__name__)


class SubmissionSearch:
    """Looks for submissions that got no answer.

    is_draining          whether all batches are waited for, and nothing is submitted
    unknown_submissions  errors of those of which nobody knows whether they have arrived, found while draining
    """

    def __init__(
        self,
        model: BatchModel,
        ledger: Ledger,
        open_batches: OpenBatches,
        jobs: Mapping[str, Job],
        clock: Clock,
    ) -> None:
        self._model, self._api = model, model.api
        self._ledger, self._open = ledger, open_batches
        self._jobs, self._clock = jobs, clock
        # batches at the server, behind the nonce of the submission that they are not
        self._foreign_batches: set[tuple[str, str]] = set()
        self.is_draining = False
        self.unknown_submissions: list[ServerError] = []

    def recover(self, opened: OpenBatch) -> Iterator[tuple[str, ResultRow]]:
        """Find it by its size and prove it by its nonce; or know that it can no longer arrive."""
        # before the search, which takes time
        seconds_waited = self._clock.elapsed() - opened.since
        is_undecided, is_reached = self._search(opened)
        is_quarantine_over = (
            seconds_waited > self._model.batch_settings.quarantine_seconds
        )
        if opened.batch.batch_id is not None or is_undecided:
            return
        account = find_account(self._ledger.store, opened.batch)
        if why := self.explain_account_problem(account):
            self._stop_at_unknown_submission(opened, why, can_confirm=True)
            return
        if not is_quarantine_over:
            return
        if not is_reached:
            why = "the server's list no longer has the batch that was the newest before it"
            self._stop_at_unknown_submission(opened, why, can_confirm=False)
            return
        why = "not accepted: it did not turn up within the quarantine"
        if self._open.abandon(opened, why):
            logger.info("a submission of %d requests did not arrive", opened.batch.size)
            if opened.is_own:
                self._open.n_lost, self._open.last_doubt = (
                    self._open.n_lost + 1,
                    opened.doubt,
                )
            for key in opened.names:
                yield key, ResultRow(custom_id=key, outcome=None)

    def explain_account_problem(self, account: str | None) -> str:
        """Why the list of batches that this key sees cannot deny a submission; empty if it can."""
        if account is None:
            return (
                "it was noted by an older version, without the account that it went to"
            )
        if account == CONFIRMED_ACCOUNT or same_account(
            account, self._open.account_hash()
        ):
            return ""
        return "it was submitted with another key, whose batches this key may not see"

    def _stop_at_unknown_submission(
        self, opened: OpenBatch, why: str, *, can_confirm: bool
    ) -> None:
        """Go no further where nobody knows whether the server has a submission: raise UserError if its requests are wanted,
        or all batches are waited for; else leave it to whoever wants them."""
        batch = opened.batch
        confirm_lines = (
            "  If this key belongs to the same account (the same workspace or project), run:",
            f"  python -m elo_exp experiment=store store.action=confirm store.batch={batch.nonce}",
        )
        problem = ServerError(
            f"It is not known whether {batch.endpoint} has {batch.nonce}, a submission of {batch.size:,} requests without an "
            "answer.",
            f"  The reason: {why}.",
            "  It is not submitted again. The same command with the earlier key finds it.",
            *(confirm_lines if can_confirm else ()),
            *repay_hint(batch),
        )
        self._open.close(opened)
        if self.is_draining and not self._jobs:
            self.unknown_submissions.append(problem)
        elif self._jobs.keys().isdisjoint(opened.names):
            logger.warning("warning: %s", problem)
        else:
            raise problem

    def _search(self, opened: OpenBatch) -> tuple[bool, bool]:
        """Look through the server's batches. Return whether one is still running that may be it, and whether the list
        reaches back to when it was submitted."""
        batch, is_undecided = opened.batch, False
        is_reached = batch.high_water is None
        known_ids = {
            other_batch.batch_id
            for other_batch in self._ledger.batches()
            if other_batch.endpoint == batch.endpoint
        }
        known_ids.update(
            id_ for nonce, id_ in self._foreign_batches if nonce == batch.nonce
        )
        for remote in self._api.recent():
            if remote.batch_id == batch.high_water:
                is_reached = True
                break
            if remote.size not in (None, batch.size) or remote.batch_id in known_ids:
                continue
            if remote.is_archived:
                raise ServerError(
                    f"The results of batch {remote.batch_id} are no longer kept by the server.",
                    f"  It may be the submission of {batch.size:,} requests that got no answer.",
                    *repay_hint(batch),
                )
            if remote.nonce is None and not remote.is_ended:
                is_undecided = True
            elif not self._is_ours(batch, remote):
                self._foreign_batches.add((batch.nonce, remote.batch_id))
            elif opened.batch.batch_id is None:
                logger.info(
                    "found the batch whose submission got no answer: %s",
                    remote.batch_id,
                )
                self._open.mark_submitted(opened, remote.batch_id)
            else:
                self._report_duplicate(batch, remote)
        return is_undecided, is_reached

    def _is_ours(self, batch: Batch, remote: RemoteBatch) -> bool:
        """Return whether a batch is the one submitted, by its nonce, which the server or the results repeat. Only all
        results can deny it."""
        if remote.nonce is not None:
            return remote.nonce == batch.nonce
        foreign_ids: set[str] = set()
        n_unreadable = 0
        for row in self._api.results(remote):
            if isinstance(row, UnreadablePart):
                n_unreadable += 1
                continue
            if row.custom_id.startswith(batch.custom_id("")):
                return True
            foreign_ids.add(row.custom_id)
        is_whole = len(foreign_ids) + n_unreadable >= remote.n_rows
        if is_whole and n_unreadable <= len(foreign_ids):
            return False
        problem = f"the results of batch {remote.batch_id} are cut short, and show not whose it is"
        if self._open.count_vain_check(remote.batch_id):
            raise ServerError(
                f"The results of batch {remote.batch_id} are cut short, so it is not known who submitted it.",
                "  The same command reads the results again. It submits nothing again.",
                *repay_hint(batch),
            )
        raise UnreachableError(problem)

    def _report_duplicate(self, batch: Batch, remote: RemoteBatch) -> None:
        """Report a submission that the server has accepted twice: keep the first, and count the loss."""
        self._foreign_batches.add((batch.nonce, remote.batch_id))
        rows = [row for row in self._api.results(remote) if isinstance(row, ResultRow)]
        messages = [row.message for row in rows if row.message is not None]
        lost_dollars = sum(
            self._open.price_completion(batch, self._model.parse(message))
            for message in messages
        )
        self._model.budget.spent += lost_dollars
        self._ledger.store.usage.add_payment(lost_dollars)
        self._ledger.pay(batch, lost_dollars)
        logger.warning(
            "warning: the server accepted one submission twice: batch %s is the copy, and its $%.4f "
            "are lost",
            remote.batch_id,
            lost_dollars,
        )
