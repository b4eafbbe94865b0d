"""The batches of this process whose results are still to come."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elo_exp.api.batch_protocol import BatchModel
from elo_exp.api.jobs import Completion
from elo_exp.api.server_patience import ServerPatience
from elo_exp.api.transport import Clock
from elo_exp.store.batch_accounts import hash_account
from elo_exp.store.batch_rows import Batch
from elo_exp.store.ledger import Ledger

_MAX_VAIN_CHECKS = 10


@dataclass(kw_only=True)
class OpenBatch:
    """A batch of this process whose results are still to come.

    names   of its requests, by key
    is_own  submitted by this process, and not taken over
    since   when the answer to its submission was lost, or when it was taken over, by our clock
    doubt   why the answer to its submission was lost
    """

    batch: Batch
    names: Mapping[str, Mapping[str, Any]]
    is_own: bool
    since: float
    doubt: str = ""


class OpenBatches:
    """The open batches by their nonces, as ledger and budget know them.

    n_lost      submissions in a row that did not arrive
    last_doubt  why the answer to the last of them was lost
    """

    def __init__(
        self,
        model: BatchModel,
        ledger: Ledger,
        clock: Clock,
        patience: ServerPatience,
    ) -> None:
        self._model, self._ledger = model, ledger
        self._clock, self._patience = clock, patience
        self._n_vain_checks: Counter[str] = Counter()  # by the server's id
        self.by_nonce: dict[str, OpenBatch] = {}
        self.n_lost, self.last_doubt = 0, ""

    def __len__(self) -> int:
        return len(self.by_nonce)

    @property
    def keys(self) -> set[str]:
        """The keys of all their requests."""
        return {key for opened in self.by_nonce.values() for key in opened.names}

    def track(self, batch: Batch, *, is_own: bool = False) -> OpenBatch:
        opened = self.by_nonce[batch.nonce] = OpenBatch(
            batch=batch,
            names=self._ledger.read_request_names(batch),
            is_own=is_own,
            since=self._clock.elapsed(),
        )
        self._model.budget.reserve(batch.nonce, batch.reserve)
        return opened

    def move_to_end(self, opened: OpenBatch) -> None:
        nonce = opened.batch.nonce
        if nonce in self.by_nonce:
            self.by_nonce[nonce] = self.by_nonce.pop(nonce)

    def mark_submitted(self, opened: OpenBatch, batch_id: str) -> None:
        self._ledger.mark_submitted(opened.batch, batch_id)
        opened.batch = replace(opened.batch, state="submitted", batch_id=batch_id)
        opened.since = self._clock.elapsed()
        self.n_lost = 0
        self._patience.note_accepted()

    def abandon(self, opened: OpenBatch, why: str) -> bool:
        """Give up what the server certainly does not have. False where another process has taken it
        over meanwhile."""
        self.close(opened)
        return self._ledger.abandon(opened.batch, why)

    def close(self, opened: OpenBatch) -> None:
        self.by_nonce.pop(opened.batch.nonce)
        self._model.budget.release(opened.batch.nonce)

    def count_vain_check(self, batch_id: str) -> bool:
        """Count a check of a batch that showed nothing; return whether it was the last."""
        self._n_vain_checks[batch_id] += 1
        return self._n_vain_checks[batch_id] >= _MAX_VAIN_CHECKS

    def price_completion(self, batch: Batch, completion: Completion) -> float:
        prices = self._model.prices_of(batch.judge_model)
        return prices.dollars(completion.usage, batched=True) if prices else 0.0

    def account_hash(self) -> str:
        """Return who asks the server, as the ledger keeps it."""
        login = self._model.api.login()
        return hash_account(self._ledger.store, login.key, login.organization)


def repay_hint(batch: Batch) -> tuple[str, str]:
    """Return the lines that say how to pay for the queries of a batch again."""
    return (
        "  To give this batch up and pay for its queries again, run:",
        f"  python -m elo_exp experiment=store store.action=repay store.batch={batch.nonce}",
    )
