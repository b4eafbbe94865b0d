"""Manage the store: list it, wait for batches or cancel them, export, import, merge and purge."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elo_exp import pipeline
from elo_exp.console import text_table
from elo_exp.experiments import Context, Report
from elo_exp.judges import BatchJudge, Judge
from elo_exp.records import UserError
from elo_exp.store import admin
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store

_KINDS = {
    "Response": "responses",
    "JudgeReply": "verdicts",
    "Score": "scores",
    "ForcedLogprob": "log-probabilities",
}


@dataclass(kw_only=True)
class StoreSettings:
    action: Literal[
        "list", "wait", "cancel", "repay", "export", "import", "merge", "purge"
    ]
    judge: str | None
    entrant: str | None
    rubric: str | None
    file: str | None
    batch: str | None
    confirm: bool


@dataclass(kw_only=True)
class ManageStore:
    """Never runs: each action is done, and its outcome printed, in place of a run."""

    judge: Judge
    store: StoreSettings

    def dry_run(self, context: Context) -> str:
        chosen = self.store
        if chosen.action in ("export", "import", "merge") and chosen.file is None:
            raise UserError(
                "store.file: names no file. Set it with store.file=FILE; "
                f"store.action={chosen.action} needs it."
            )
        if chosen.action == "purge" and not self._filter:
            raise UserError(
                "store.action=purge: purges nothing as it is. Say what: store.judge=, "
                "store.entrant=, store.rubric="
            )
        if chosen.action == "repay" and chosen.batch is None:
            raise UserError(
                "store.batch: names no batch. Set it with store.batch=NAME; store.action=list "
                "names them."
            )
        if chosen.action in ("wait", "cancel") and not isinstance(
            self.judge, BatchJudge
        ):
            raise UserError(
                "judge: has no batches. Choose the judge whose batches are meant, such as "
                "judge=opus."
            )
        action: Callable[[Store], str] = getattr(self, f"_{chosen.action}")
        return action(context.store)

    def run(self, context: Context) -> Report:
        raise NotImplementedError("experiment=store only manages the store")

    @property
    def _filter(self) -> admin.Filter:
        chosen = self.store
        return admin.Filter(
            judge=chosen.judge, entrant=chosen.entrant, rubric=chosen.rubric
        )

    def _list(self, store: Store) -> str:
        rows = [
            [
                _KINDS.get(some.kind, some.kind),
                some.source or "-",
                some.dimension or "",
                f"{some.n:,}",
                f"{some.dollars:,.2f}",
            ]
            for some in admin.count(store, self._filter)
        ]
        head = ["answers", "by", "on", "number", "paid $"]
        parts = [f"{store.path}, {store.path.stat().st_size / 1e6:.1f} MB"]
        parts.append(text_table(head, rows, text=("by", "on")))
        n_lost, most = admin.losses(store)
        if n_lost:
            parts.append(
                f"{n_lost:,} calls got no answer, and may have cost ${most:.4f} on top"
            )
        return "\n".join([*parts, _under_way(store) or "nothing under way"])

    def _wait(self, store: Store) -> str:
        assert isinstance(self.judge, BatchJudge)
        pipeline.collect(self.judge, store)
        usage = store.usage
        left = _under_way(store) or "nothing under way"
        return (
            f"{usage.judge_calls:,} answers collected; {pipeline.spend(usage)}\n{left}"
        )

    def _cancel(self, store: Store) -> str:
        assert isinstance(self.judge, BatchJudge)
        n = pipeline.cancel(self.judge, store)
        if not n:
            return f"nothing is left to end at {self.judge.api.endpoint}"
        return (
            f"{n} asked to end. What has been answered by then is paid for: store.action=wait "
            "collects it."
        )

    def _repay(self, store: Store) -> str:
        ledger = Ledger(store, owner="")
        batch = next(
            (b for b in ledger.batches() if self.store.batch in (b.nonce, b.batch_id)),
            None,
        )
        if batch is None or not batch.is_open:
            raise UserError(
                f"store.batch: found no batch {self.store.batch!r} under way. store.action=list "
                "names them."
            )
        ledger.give_up(batch, "given up by the user")
        n = ledger.n_pending(batch)
        return (
            f"batch {batch.nonce} is given up: its {n:,} open queries are paid for again when they "
            "are next wanted."
        )

    def _export(self, store: Store) -> str:
        path = Path(str(self.store.file))
        return f"{admin.export(store, path, self._filter):,} answers written to {path}"

    def _import(self, store: Store) -> str:
        n, n_new = admin.load(store, Path(str(self.store.file)))
        return f"{n:,} answers read, {n_new:,} of them new"

    def _merge(self, store: Store) -> str:
        n, n_new = admin.merge(store, Path(str(self.store.file)))
        return f"{n:,} answers there, {n_new:,} of them new here"

    def _purge(self, store: Store) -> str:
        chosen = self._filter
        found = admin.count(store, chosen)
        n, dollars = sum(some.n for some in found), sum(some.dollars for some in found)
        if not self.store.confirm:
            return (
                f"{n:,} answers, ${dollars:.2f} worth, would go. Nothing has been changed; "
                "add store.confirm=true to do it."
            )
        n, path = admin.purge(store, chosen)
        return (
            f"{n:,} answers, ${dollars:.2f} worth, taken out, into {path}; store.action=import "
            "brings them back"
        )


def _under_way(store: Store) -> str:
    ledger = Ledger(store, owner="")
    lines = []
    for batch in ledger.batches():
        if not batch.is_open:
            continue
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(batch.created_at))
        where = batch.batch_id or "not known yet to have arrived"
        noted = f"; {batch.note}" if batch.note else ""
        lines.append(
            f"under way: {batch.nonce}  {batch.size:,} requests to {batch.judge_model} since "
            f"{since}, {ledger.n_pending(batch):,} open, at most ${batch.reserve:.2f}; {where} "
            f"at {batch.endpoint}{noted}"
        )
    return "\n".join(lines)
