"""Manage the cache: list it, wait for batches, recover or cancel them, export, import, merge, copy and purge."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elo_exp import pipeline
from elo_exp.errors import SettingError, format_value
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.judges import BatchJudge, Judge
from elo_exp.report.store_table import (
    format_answers,
    format_open_batches,
    format_spending,
)
from elo_exp.store import admin
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_accounts import confirm_account
from elo_exp.store.batch_rows import Batch
from elo_exp.store.copying import copy_store
from elo_exp.store.database import check_url
from elo_exp.store.ledger import Ledger


@dataclass(kw_only=True)
class StoreSettings:
    url: str | None
    action: Literal[
        "list",
        "wait",
        "recover",
        "cancel",
        "confirm",
        "repay",
        "export",
        "import",
        "merge",
        "copy",
        "purge",
    ]
    judge: str | None
    entrant: str | None
    rubric: str | None
    file: str | None
    to: str | None
    batch: str | None
    confirm: bool


@dataclass(kw_only=True)
class ManageStore(Experiment):
    """An experiment without a run: each action is done at once, and its outcome is printed."""

    judge: Judge
    store: StoreSettings

    @property
    def _filter(self) -> admin.AnswerFilter:
        """The answers that an action is about."""
        settings = self.store
        return admin.AnswerFilter(
            judge=settings.judge, entrant=settings.entrant, rubric=settings.rubric
        )

    @property
    def _file(self) -> Path:
        """The file of an action that has one."""
        if self.store.file is None:
            raise SettingError.no_value(
                "store.file",
                needed_for=f"store.action={self.store.action}",
                value="a file",
                example=f"python -m elo_exp experiment=store store.action={self.store.action} store.file=FILE",
            )
        return Path(self.store.file)

    @property
    def _batch_judge(self) -> BatchJudge:
        """The judge whose batches are meant."""
        if not isinstance(self.judge, BatchJudge):
            raise SettingError(
                f"store.action={self.store.action} needs a judge that uses batches. Choose the judge whose batches "
                f"are meant, "
                "for example judge=opus."
            )
        return self.judge

    def dry_run(self, context: Context) -> None:
        """Check what the action needs; the store is not changed."""
        settings, store = self.store, context.store
        match settings.action:
            case "export":
                admin.check_export_name(self._file)
            case "import":
                admin.check_exported(self._file)
            case "merge":
                admin.check_merge(store, self._file)
            case "copy":
                _check_copy(settings)
            case "purge":
                _check_filter(self._filter)
            case "repay":
                _find_open(store, settings.batch, "repay")
            case "confirm":
                _find_unconfirmed(store, settings.batch)
            case "wait" | "recover" | "cancel":
                _ = self._batch_judge

    def act(self, context: Context) -> str:
        """Do the action, and return its outcome."""
        settings, store = self.store, context.store
        match settings.action:
            case "export":
                n = admin.export_answers(store, self._file, self._filter)
                text = f"wrote {n:,} answers to {self._file}"
            case "import":
                n, n_new = admin.import_answers(store, self._file)
                text = f"read {n:,} answers, {n_new:,} of them new"
            case "merge":
                n, n_new = admin.merge_store(store, self._file)
                text = f"found {n:,} answers in the other cache, {n_new:,} of them new"
            case "copy":
                text = _copy_store(store, settings)
            case "purge":
                text = _purge(store, self._filter, confirmed=settings.confirm)
            case "repay":
                text = _repay(store, settings.batch)
            case "confirm":
                text = _confirm(store, settings.batch)
            case "list":
                text = _list(store, self._filter)
            case "wait" | "recover" | "cancel":
                text = _act_on_batches(store, self._batch_judge, settings.action)
        return text

    def run(self, context: Context) -> Report:
        raise NotImplementedError("experiment=store only manages the cache")


def _act_on_batches(store: Store, judge: BatchJudge, action: str) -> str:
    """Wait for the batches of a judge, look for those that the cache does not know, or cancel them."""
    if action == "wait":
        pipeline.collect(judge, store)
        return (
            f"collected {store.usage.judge_calls:,} answers\n"
            f"{pipeline.spend(store.usage)}\n{format_open_batches(Ledger(store))}"
        )
    if action == "recover":
        n = pipeline.recover(judge, store)
        return (
            f"found {n:,} batches at {judge.api.endpoint} that were not in the cache, and added their "
            f"{store.usage.judge_calls:,} answers, which were paid for earlier"
        )
    n = pipeline.cancel(judge, store)
    if not n:
        return f"no batches to cancel at {judge.api.endpoint}"
    return (
        f"cancelled {n}. Requests that are answered before the end are charged. Collect them with "
        "store.action=wait."
    )


def _list(store: Store, entry_filter: admin.AnswerFilter) -> str:
    n_lost, dollars = admin.count_lost_calls(store)
    table = format_answers(
        store.name,
        admin.count_answers_by_source(store, entry_filter),
        n_bytes=store.read_with(lambda db: db.n_bytes()),
        n_lost=n_lost,
        dollars_lost=dollars,
    )
    return "\n".join(
        [table, *format_spending(store), format_open_batches(Ledger(store))]
    )


def _check_copy(settings: StoreSettings) -> str:
    """Return the URL of the database to copy to."""
    if settings.to is None or settings.file is not None:
        raise SettingError(
            "store.action=copy needs store.to, the URL of an empty database, and no store.file. For example:",
            "  python -m elo_exp experiment=store store.action=copy store.to=postgresql://user@host/database",
        )
    check_url(settings.to)
    return settings.to


def _copy_store(store: Store, settings: StoreSettings) -> str:
    with Store(_check_copy(settings)) as target:
        counts = copy_store(store, target)
    rows = ", ".join(f"{n:,} {table}" for table, n in counts.items() if n)
    return (
        f"copied from {store.name} to {settings.to}: {rows}. Counts and keys are equal.\n"
        f"From now on use store={settings.to}. Later entries in {store.name} are not in the copy."
    )


def _repay(store: Store, name: str | None) -> str:
    batch = _find_open(store, name, "repay")
    ledger = Ledger(store)
    ledger.give_up(batch, "given up by the user")
    return (
        f"gave up batch {batch.nonce}. Its {ledger.count_pending(batch):,} open judge calls are sent and charged again "
        "when a run needs them."
    )


def _find_unconfirmed(store: Store, name: str | None) -> Batch:
    """Return the open batch of which nobody knows whether it has arrived."""
    batch = _find_open(store, name, "confirm")
    if batch.state != "intended":
        raise SettingError(
            f"Batch {batch.nonce} has arrived as {batch.batch_id}, so there is nothing to confirm."
        )
    return batch


def _confirm(store: Store, name: str | None) -> str:
    batch = _find_unconfirmed(store, name)
    confirm_account(store, batch)
    return (
        f"the present API key counts as a key of the account that received batch {batch.nonce}. The same command now "
        "looks for the batch there, and submits its requests again if it never arrived."
    )


def _find_open(store: Store, name: str | None, action: str) -> Batch:
    """Return the open batch with this nonce or id."""
    if name is None:
        raise SettingError(
            f"store.action={action} needs a batch. List the batches, and set store.batch=NAME:",
            "  python -m elo_exp experiment=store store.action=list",
        )
    matches = [
        batch
        for batch in Ledger(store).batches()
        if batch.is_open and name in (batch.nonce, batch.batch_id)
    ]
    if not matches:
        raise SettingError(
            f"No batch {format_value(name)} is under way. List the batches:",
            "  python -m elo_exp experiment=store store.action=list",
        )
    if len(matches) > 1:  # ids are a server's own
        raise SettingError(
            f"{len(matches)} batches have the id {format_value(name)}. Choose one:",
            *(
                f"  store.batch={batch.nonce}   at {batch.endpoint}"
                for batch in matches
            ),
        )
    return matches[0]


def _check_filter(entry_filter: admin.AnswerFilter) -> None:
    if not entry_filter:
        raise SettingError(
            "store.action=purge needs to know which answers to delete. Set one or more of these:",
            "  store.judge=MODEL store.entrant=NAME store.rubric=NAME",
        )


def _purge(store: Store, entry_filter: admin.AnswerFilter, *, confirmed: bool) -> str:
    counts = admin.count_answers_by_source(store, entry_filter)
    n, dollars = (
        sum(count.n for count in counts),
        sum(count.dollars for count in counts),
    )
    if not confirmed:
        return (
            f"would delete {n:,} answers, which cost ${dollars:.2f}. Nothing has changed. To delete them, add "
            "store.confirm=true."
        )
    n, path = admin.purge_answers(store, entry_filter)
    return (
        f"moved {n:,} answers, which cost ${dollars:.2f}, to {path}. To bring them back, use "
        "store.action=import."
    )
