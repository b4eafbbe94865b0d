"""Answers of judges and entrants behind an API: each is paid for once, by one process.

From `pay` to the wire a reader passes api/batches or api/calls, then the provider's module.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar

from elo_exp.api.batches import Batcher
from elo_exp.api.calls import RequestPool
from elo_exp.api.jobs import Job, Recorder, summarize_failures
from elo_exp.api.transport import UnreachableError
from elo_exp.entrants import ApiEntrant
from elo_exp.errors import ServerError, SettingError, UserError
from elo_exp.judges import ApiJudge, BatchJudge
from elo_exp.pipeline.planning import choose_first_ttl, choose_measured_ttl
from elo_exp.records import Record
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import Claims, make_once
from elo_exp.store.ledger import CANCELLED_NOTE, Ledger, describe_unresolved

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)


class Watch(Protocol):
    """Whether answers hold what was asked for; pipeline.watching has the judges'."""

    def alone(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs whose answers are to be seen before others are sent."""

    def see(self, answer: Any) -> None:
        """Take in an answer. Raises UserError where no more are to be paid for."""

    def check(self, *, is_through: bool) -> None:
        """Raise UserError where the answers to the first jobs are not what was asked for."""


class NoWatch:
    """A watch that lets every answer pass."""

    def alone(self, jobs: Sequence[Job]) -> Sequence[Job]:
        return ()

    def see(self, answer: Any) -> None: ...

    def check(self, *, is_through: bool) -> None: ...


def pay_for_answers(
    jobs: Mapping[str, Job],
    model: ApiJudge | ApiEntrant,
    store: Store,
    *,
    record: type[R],
    key: Callable[[R], str],
    make: Recorder[R],
    noun: str,
    watch: Watch | None = None,
) -> Iterator[R]:
    """Yield the answers to jobs, by the keys of their answers, as they are committed.

    record, make  the kind of the answers, and what makes one of an API's message
    key           of an answer
    noun          plural noun for the answers
    watch         sees each answer when it is committed, and may end the work; None: nobody looks
    """
    failed: dict[str, str] = {}
    watch = watch or NoWatch()
    if not isinstance(model, BatchJudge):
        _refuse_batched(jobs, model, store)

    def pay_for(claimed_jobs: Mapping[str, Job], claims: Claims) -> Iterator[R]:
        unanswered = dict(claimed_jobs)
        if isinstance(model, BatchJudge):
            ledger = Ledger(store, claims.owner)
            for answer in _pay_in_batches(
                claimed_jobs, model, ledger, make, failed, watch
            ):
                unanswered.pop(key(answer), None)
                yield answer
            for name in ledger.list_pending_keys() | failed.keys():
                unanswered.pop(name, None)
            if model.transport == "batches":
                return
        yield from _pay_singly(
            list(unanswered.values()), model, claims, make, failed, watch
        )

    yield from make_once(
        jobs,
        store,
        record=record,
        key=key,
        make=pay_for,
        failed=failed,
        noun=noun,
        endpoint=model.api.endpoint if isinstance(model, BatchJudge) else None,
    )
    if failed:
        logger.warning("warning: %s: %s", model.server, summarize_failures(failed))


def _refuse_batched(
    jobs: Mapping[str, Job], model: ApiJudge | ApiEntrant, store: Store
) -> None:
    """Raise SettingError where some answers are in batches under way, which a model of single requests cannot collect."""
    if n := len(Ledger(store).list_pending_keys() & jobs.keys()):
        raise SettingError(
            f"{n:,} of these queries to {model.model} are in batches under way. Collect them first, with the judge that "
            "submitted them:",
            "  python -m elo_exp experiment=store store.action=wait judge=openai judge.base_url=URL judge.model=NAME",
        )


def _pay_singly(
    jobs: Sequence[Job],
    model: ApiJudge | ApiEntrant,
    claims: Claims,
    make: Recorder[R],
    failed: dict[str, str],
    watch: Watch,
) -> Iterator[R]:
    """Send the first job of each prefix, which writes the prompt cache, before the others; then the canary by itself."""
    first_jobs: list[Job] = []
    ttl = None
    if isinstance(model, ApiJudge) and jobs:
        first_jobs, ttl = (
            _first_of_each_prefix(jobs),
            _choose_first_ttl(jobs, model, claims.store),
        )
    canary_jobs = _exclude(watch.alone(jobs), first_jobs)
    other_jobs = _exclude(jobs, [*first_jobs, *canary_jobs])
    with RequestPool(model, claims, make) as pool:
        pool.expect([*canary_jobs, *other_jobs])
        try:
            yield from _check_each(pool.run(first_jobs, ttl), watch)
            yield from _check_each(pool.run(canary_jobs, ttl), watch)
            if canary_jobs:
                watch.check(is_through=True)
            yield from _check_each(pool.run(other_jobs, ttl), watch)
        finally:
            failed.update(pool.failed)


def _check_each(answers: Generator[R], watch: Watch) -> Iterator[R]:
    """Pass on answers. If the watch ends the work, the answers on their way are waited for and kept."""
    with closing(answers):
        for answer in answers:
            watch.see(answer)
            yield answer


def _exclude(jobs: Sequence[Job], excluded: Sequence[Job]) -> list[Job]:
    keys = {job.key for job in excluded}
    return [job for job in jobs if job.key not in keys]


def _pay_in_batches(
    jobs: Mapping[str, Job],
    judge: BatchJudge,
    ledger: Ledger,
    make: Recorder[R],
    failed: dict[str, str],
    watch: Watch,
) -> Iterator[R]:
    """Yield the answers of new batches, and of those that an earlier run has submitted.

    A cache that is to be measured is warmed by the first job of each prefix alone; then the hit
    rate of half a chunk decides the time to live for the rest. What is watched alone is a batch of
    its own, in place of that half chunk where there is one.
    """
    store, under_way = ledger.store, ledger.list_pending_keys()
    new_jobs = [job for name, job in jobs.items() if name not in under_way]
    stop_errors: list[UserError] = []

    def watch_answers(answers: Iterator[R]) -> Iterator[R]:
        """Pass on answers. The work ends between two polls, lest paid rows of a batch stay unread."""
        for answer in answers:
            try:
                watch.see(answer)
            except UserError as error:
                stop_errors.append(error)
            yield answer

    def raise_stop_error() -> None:
        if stop_errors:
            raise stop_errors[0]

    with Batcher(judge, ledger, make, jobs, raise_stop_error) as batcher:
        if judge.transport == "batches":
            ttl = _choose_first_ttl(new_jobs, judge, store) if new_jobs else None
            first_jobs, canary_jobs = (
                _first_of_each_prefix(new_jobs),
                watch.alone(new_jobs),
            )
            if (
                ttl
                and judge.cache == "measured"
                and len(new_jobs) <= 2 * len(first_jobs)
            ):
                ttl, store.usage.cache = (
                    None,
                    "none: too few requests for a cache to pay",
                )
            elif ttl and judge.cache == "measured":
                for job in first_jobs:
                    yield from watch_answers(batcher.run([job], ttl))
                half = judge.batch_settings.chunk_size // 2
                chunk = (
                    _exclude(canary_jobs, first_jobs)
                    or _exclude(new_jobs, first_jobs)[:half]
                )
                yield from watch_answers(batcher.run(chunk, ttl))
                hits = [batcher.hits[j.key] for j in chunk if j.key in batcher.hits]
                if hits:
                    ttl, store.usage.cache = choose_measured_ttl(hits, judge, ttl)
            elif canary_jobs:
                yield from watch_answers(batcher.run(canary_jobs, ttl))
            if canary_jobs:
                watch.check(is_through=True)
            yield from watch_answers(batcher.run(list(jobs.values()), ttl))
        yield from watch_answers(batcher.drain())
    failed.update(batcher.failed)


def _first_of_each_prefix(jobs: Sequence[Job]) -> list[Job]:
    """Return the first job of each prefix."""
    return list({job.prefix: job for job in reversed(jobs)}.values())[::-1]


def _choose_first_ttl(jobs: Sequence[Job], judge: ApiJudge, store: Store) -> str | None:
    ttl, why = choose_first_ttl([job.request for job in jobs], judge)
    store.usage.cache = why or store.usage.cache
    return ttl


# Batches that an earlier run has submitted


def collect(judge: BatchJudge, store: Store, make: Recorder[R]) -> None:
    """Wait for the batches under way and store their answers; submit nothing."""
    with Claims(store) as claims:
        ledger, endpoint = Ledger(store, claims.owner), judge.api.endpoint
        claims.take(sorted(ledger.list_pending_keys(endpoint)), endpoint=endpoint)
        with Batcher(judge, ledger, make, {}) as batcher:
            for _ in batcher.drain():
                pass


def recover(judge: BatchJudge, store: Store, make: Recorder[R]) -> int:
    """Store the answers of batches that were submitted and that the store does not know; return how many batches they
    are. Submit nothing. Raises ServerError if the server gives no answer."""
    with Claims(store) as claims:
        ledger = Ledger(store, claims.owner)
        with Batcher(judge, ledger, make, {}) as batcher:
            try:
                n = batcher.recover(is_asked=True)
            except UnreachableError as error:
                raise ServerError(
                    f"{judge.api.endpoint} cannot be reached ({error}). Nothing was recovered."
                ) from None
            for _ in batcher.drain():
                pass
    return n


def cancel(judge: BatchJudge, store: Store) -> int:
    """Ask the server to end the batches under way; return how many it has ended.

    A batch that may not have arrived has no id, and is only warned of. Raises ServerError where there
    is no other.
    """
    ledger, endpoint = Ledger(store), judge.api.endpoint
    own_batches = [batch for batch in ledger.batches() if batch.endpoint == endpoint]
    n_ended = 0
    for batch in own_batches:
        try:
            if batch.state == "submitted" and judge.api.cancel(str(batch.batch_id)):
                ledger.add_note(batch, CANCELLED_NOTE)
                n_ended += 1
        except UnreachableError as error:
            raise ServerError(
                f"{endpoint} cannot be reached ({error}). {n_ended} batches were cancelled before."
            ) from None
    if unresolved_note := describe_unresolved(own_batches):
        if not n_ended:
            raise ServerError(unresolved_note)
        logger.warning("warning: %s", unresolved_note)
    return n_ended
