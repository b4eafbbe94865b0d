"""Batches that the store does not know any more, because its last commits were lost or it came back from a copy."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from elo_exp import interrupts, progress
from elo_exp.api.batch_protocol import BatchModel, RemoteBatch, ResultRow
from elo_exp.api.batch_results import PARSE_ERRORS
from elo_exp.api.jobs import Completion, Job, Message
from elo_exp.api.open_batches import OpenBatches
from elo_exp.api.transport import Clock, UnreachableError
from elo_exp.errors import UserError
from elo_exp.store.batch_rows import Batch
from elo_exp.store.ledger import Ledger

logger = logging.getLogger(__name__)

# Older batches than so many that the store knows are not lost any more.
_MAX_KNOWN_BATCHES_LISTED = 20
# To see whose they are, before a run
_MAX_UNKNOWN_BATCHES_READ = 20
_NONCE_PATTERN = re.compile(r"[abcdf][0-9a-f]{7}")


class LostBatches:
    """Takes over batches that the store has submitted and does not know any more."""

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
        # nonces of batches at the server, by its id, as their results have them
        self._nonces: dict[str, str] = {}

    def take_over(self, poll_seconds: float, *, is_asked: bool = False) -> int:
        """Take over the batches that this store has submitted and does not know any more: its last commits were lost, or it
        was brought back from a copy. Return how many.

        poll_seconds  between two looks at the server's batches
        is_asked  those of other stores of this account are taken, too, however far back, and batches are waited for of
                  which their end alone shows whose they are
        """
        n, has_gone_back = 0, self._ledger.store.has_lost_answers
        while True:
            ended_batches, running = self._find_lost(is_asked=is_asked)
            for nonce, remote in ended_batches.items():
                n += self._adopt(nonce, remote)
            is_certain = any(remote.nonce for remote in running)
            if not running or not (is_asked or is_certain or has_gone_back):
                break
            progress.show_note(
                f"{len(running)} batches are under way at {self._api.endpoint} that may belong to this run but are not "
                "in the cache: waiting until they end"
            )
            self._clock.sleep(poll_seconds)
            interrupts.check_interrupt()
        if running:
            logger.warning(
                "warning: %s has %d batches under way that are not in the cache. If the cache was restored from a "
                "copy, they may belong to it: experiment=store store.action=recover waits for them and pays nothing",
                self._api.endpoint,
                len(running),
            )
        return n

    def _find_lost(
        self, *, is_asked: bool
    ) -> tuple[dict[str, RemoteBatch], list[RemoteBatch]]:
        """The batches of ours that have ended and are not known, by nonce; and those that run and may be ours."""
        own_batches = [
            b for b in self._ledger.batches() if b.endpoint == self._api.endpoint
        ]
        ids = {batch.batch_id for batch in own_batches}
        nonces = {batch.nonce: batch for batch in own_batches}
        ended_batches: dict[str, RemoteBatch] = {}
        running: list[RemoteBatch] = []
        n_known = n_read = 0
        for listed_batch in self._api.recent():
            is_far_enough = (
                n_known >= _MAX_KNOWN_BATCHES_LISTED
                or n_read >= _MAX_UNKNOWN_BATCHES_READ
            )
            if is_far_enough and self._api.is_ordered and not is_asked:
                break
            if listed_batch.batch_id in ids or listed_batch.is_archived:
                n_known += listed_batch.batch_id in ids
                continue
            remote, nonce = listed_batch, listed_batch.nonce
            if not remote.is_ended and nonce not in nonces:
                remote = self._api.check(remote.batch_id) or remote
            if nonce is None:
                n_read += 1
                nonce = self._read_nonce(remote) if remote.is_ended else None
            if nonce in nonces and not _is_given_up(nonces[nonce]):
                continue
            is_foreign = nonce not in nonces and not self._is_of_store(nonce, is_asked)
            if nonce is not None and is_foreign:
                continue
            if not remote.is_ended:
                running.append(remote)
            elif nonce is not None and remote.refusal is None:
                ended_batches[nonce] = remote
        return ended_batches, running

    def _read_nonce(self, remote: RemoteBatch) -> str | None:
        """Return the nonce in the results of a batch; None if they show none."""
        if remote.batch_id not in self._nonces:
            try:
                name = self._api.first_id(remote)
            except UserError:  # nobody else's batch stops a run
                name = None
            except UnreachableError:
                if not self._open.count_vain_check(remote.batch_id):
                    raise
                name = None
            self._nonces[remote.batch_id] = name.partition("-")[0] if name else ""
        return self._nonces[remote.batch_id]

    def _is_of_store(self, nonce: str | None, is_asked: bool) -> bool:
        """Whether a nonce is one of this store's; if asked for, of any store's."""
        if not nonce or not _NONCE_PATTERN.fullmatch(nonce):
            return False
        return is_asked or nonce.endswith(self._ledger.store.nonce_suffix)

    def _adopt(self, nonce: str, remote: RemoteBatch) -> bool:
        """Write down a batch that has ended, whose results are then read as those of any other. False if there is nothing
        in it that the store does not have."""
        keys: dict[str, Message | None] = {}
        try:
            for row in self._api.results(remote):
                if isinstance(row, ResultRow) and row.custom_id.startswith(f"{nonce}-"):
                    key = row.custom_id.partition("-")[2]
                    keys[key] = keys.get(key) or row.message
        except UnreachableError:
            if not self._open.count_vain_check(remote.batch_id):
                raise
        if not self._ledger.store.lacks_any(list(keys)):
            return False
        completions = []
        for message in filter(None, keys.values()):
            with suppress(*PARSE_ERRORS):
                completions.append(self._model.parse(message))
        model = self._find_priced_model(completions)
        prices = self._model.prices_of(model)
        usages = [completion.usage for completion in completions]
        batch = self._ledger.adopt(
            {
                key: self._jobs[key].names
                if key in self._jobs
                else {"judge_model": model}
                for key in keys
            },
            nonce=nonce,
            batch_id=remote.batch_id,
            endpoint=self._api.endpoint,
            judge_model=model,
            cost=sum(prices.dollars(u, batched=True) for u in usages) if prices else 0,
            now=self._clock.wall(),
        )
        if batch is None:
            return False
        logger.info(
            "found a batch of %d requests that was submitted but is not in the cache: %s",
            len(keys),
            remote.batch_id,
        )
        self._open.track(batch)
        return True

    def _find_priced_model(self, completions: Sequence[Completion]) -> str:
        """Return the model by whose prices answers are paid for: the one that they name, if it has prices."""
        names = Counter(completion.model for completion in completions)
        for name, _ in names.most_common():
            with suppress(UserError):
                if name and self._model.prices_of(name) is not None:
                    return name
        return self._model.model


def _is_given_up(batch: Batch) -> bool:
    """Whether a batch was given up without anybody knowing whether the server has it."""
    return batch.state == "abandoned" and batch.batch_id is None
