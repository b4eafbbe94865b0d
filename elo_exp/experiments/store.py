"""The store itself: what it holds and what is under way; wait for it, cancel it, share it, start afresh."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from elo_exp import pipeline
from elo_exp.experiments import Parts, Result
from elo_exp.judges import BatchJudge
from elo_exp.pipeline import bill
from elo_exp.records import UserError
from elo_exp.settings import Settings, one_of
from elo_exp.store import admin
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store

NEEDS = frozenset({"judge"})
_KINDS = {
    "Response": "responses",
    "JudgeReply": "verdicts",
    "Score": "scores",
    "ForcedLogprob": "log-probabilities",
}


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    return {}


def check(settings: Settings, parts: Parts) -> None:
    chosen = settings.store
    one_of("store.action", chosen.action, ACTIONS)
    if chosen.action in ("export", "import", "merge") and chosen.file is None:
        raise UserError(
            f"store.file: names no file. Set it with store.file=FILE; store.action={chosen.action} needs it."
        )
    if chosen.action == "purge" and not _filter(settings):
        raise UserError(
            "store.action=purge: purges nothing as it is. Say what: store.judge=, store.entrant=, store.rubric="
        )
    if chosen.action == "repay" and chosen.batch is None:
        raise UserError(
            "store.batch: names no batch. Set it with store.batch=NAME; store.action=list names them."
        )
    if chosen.action in ("wait", "cancel") and not isinstance(parts.judge, BatchJudge):
        raise UserError(
            "judge: has no batches. Choose the judge whose batches are meant, such as judge=opus."
        )


def errand(settings: Settings, parts: Parts) -> str:
    return ACTIONS[settings.store.action](settings, parts)


def run(settings: Settings, parts: Parts) -> Result:
    raise NotImplementedError("experiment=store does errands only")


def _list(settings: Settings, parts: Parts) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    store = parts.store
    text = io.StringIO()
    console = Console(file=text, width=160, markup=False)
    console.print(
        f"{store.path}, {store.path.stat().st_size / 1e6:.1f} MB", highlight=False, soft_wrap=True
    )
    held = Table(box=SIMPLE_HEAD)
    for column in ("answers", "by", "on"):
        held.add_column(column, no_wrap=True)
    for column in ("number", "paid $"):
        held.add_column(column, justify="right")
    for some in admin.count(store, _filter(settings)):
        kind = _KINDS.get(some.kind, some.kind)
        held.add_row(
            kind, some.source or "-", some.dimension or "", f"{some.n:,}", f"{some.dollars:,.2f}"
        )
    console.print(held)
    console.print(_under_way(store) or "nothing under way", highlight=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _under_way(store: Store) -> str:
    ledger = Ledger(store, owner="")
    lines = []
    for batch in ledger.batches():
        if batch.state not in ("intended", "submitted"):
            continue
        outcomes = ledger.outcomes(batch)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(batch.created_at))
        where = batch.batch_id or "not known yet to have arrived"
        noted = f"; {batch.note}" if batch.note else ""
        lines.append(
            f"under way: {batch.nonce}  {batch.size:,} requests to {batch.judge_model} since {since}, "
            f"{outcomes.get('pending', 0):,} open, at most ${batch.reserve:.2f}; {where} at {batch.endpoint}{noted}"
        )
    return "\n".join(lines)


def _wait(settings: Settings, parts: Parts) -> str:
    assert isinstance(parts.judge, BatchJudge)
    pipeline.collect(parts.judge, parts.store)
    usage = parts.store.usage
    left = _under_way(parts.store) or "nothing under way"
    return f"{usage.judge_calls:,} answers collected; {bill.spend(usage)}\n{left}"


def _cancel(settings: Settings, parts: Parts) -> str:
    assert isinstance(parts.judge, BatchJudge)
    n = pipeline.cancel(parts.judge, parts.store)
    if not n:
        return f"nothing is left to end at {parts.judge.api.endpoint}"
    return f"{n} asked to end. What has been answered by then is paid for: store.action=wait collects it."


def _repay(settings: Settings, parts: Parts) -> str:
    ledger = Ledger(parts.store, owner="")
    batch = next(
        (b for b in ledger.batches() if settings.store.batch in (b.nonce, b.batch_id)), None
    )
    if batch is None or batch.state not in ("intended", "submitted"):
        raise UserError(
            f"store.batch: found no batch {settings.store.batch!r} under way. store.action=list names them."
        )
    ledger.give_up(batch, "given up by the user")
    n = ledger.outcomes(batch).get("pending", 0)
    return f"batch {batch.nonce} is given up: its {n:,} open queries are paid for again when they are next wanted."


def _export(settings: Settings, parts: Parts) -> str:
    path = Path(str(settings.store.file))
    return f"{admin.export(parts.store, path, _filter(settings)):,} answers written to {path}"


def _import(settings: Settings, parts: Parts) -> str:
    n, n_new = admin.load(parts.store, Path(str(settings.store.file)))
    return f"{n:,} answers read, {n_new:,} of them new"


def _merge(settings: Settings, parts: Parts) -> str:
    n, n_new = admin.merge(parts.store, Path(str(settings.store.file)))
    return f"{n:,} answers there, {n_new:,} of them new here"


def _purge(settings: Settings, parts: Parts) -> str:
    chosen = _filter(settings)
    found = admin.count(parts.store, chosen)
    n, dollars = sum(some.n for some in found), sum(some.dollars for some in found)
    if not settings.store.confirm:
        return f"{n:,} answers, ${dollars:.2f} worth, would go. Nothing has been changed; add store.confirm=true to do it."
    n, path = admin.purge(parts.store, chosen)
    return f"{n:,} answers, ${dollars:.2f} worth, taken out, into {path}; store.action=import brings them back"


def _filter(settings: Settings) -> admin.Filter:
    chosen = settings.store
    return admin.Filter(judge=chosen.judge, entrant=chosen.entrant, rubric=chosen.rubric)


ACTIONS: Mapping[str, Callable[[Settings, Parts], str]] = {
    "list": _list,
    "wait": _wait,
    "cancel": _cancel,
    "repay": _repay,
    "export": _export,
    "import": _import,
    "merge": _merge,
    "purge": _purge,
}
