"""The console text about a cache: its answers, its spending and its open batches."""

import time
from collections.abc import Sequence
from functools import partial

from elo_exp.api.costs import format_dollars
from elo_exp.api.jobs import describe_spending
from elo_exp.console import format_table
from elo_exp.store.admin import StoreSummary
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_rows import Batch
from elo_exp.store.caps import Spending, find_command, list_earlier_spending
from elo_exp.store.ledger import Ledger

_NOUN_BY_KIND = {
    "Response": "responses",
    "JudgeReply": "verdicts",
    "Score": "scores",
    "ForcedLogprob": "log-probabilities",
}


def format_answers(
    store: str,
    summaries: Sequence[StoreSummary],
    *,
    n_bytes: int,
    n_lost: int,
    dollars_lost: float,
) -> str:
    """Return a table of the cached answers, and the largest possible cost of calls without an answer."""
    rows = [
        [
            _NOUN_BY_KIND.get(row.kind, row.kind),
            row.source or "-",
            row.dimension or "",
            f"{row.n:,}",
            f"{row.dollars:,.2f}",
        ]
        for row in summaries
    ]
    head = ["kind", "from", "rubric", "number", "paid $"]
    lines = [f"{store}, {n_bytes / 1e6:.1f} MB"]
    lines.append(format_table(head, rows, text=["from", "rubric"]))
    if n_lost:
        lines.append(
            f"calls without an answer: {n_lost:,}. They may have cost up to ${dollars_lost:.4f} more."
        )
    return "\n".join(lines)


def format_spending(store: Store) -> list[str]:
    """Return a line for each month with charges, and for the rest of each cap: of this month, each sweep and each run
    folder."""
    query = (
        "SELECT scope, dollars FROM spending WHERE scope LIKE 'month %' ORDER BY scope"
    )
    months = [
        f"spent in {scope.partition(' ')[2]}: {format_dollars(dollars)}"
        for scope, dollars in store.query(query)
    ]
    cap_lines = [
        f"{s.setting}: {describe_spending(s)}, {_format_remaining(s)}"
        for s in store.list_spending()
    ]
    for kind in ("sweep", "folder"):
        for row, command in store.read_with(
            partial(list_earlier_spending, account=store.account, kind=kind)
        ):
            source = f"by {command}" if command else f"in {row.scope}"
            spent_text = f"{format_dollars(row.dollars, beside=row.cap)} of {format_dollars(row.cap)} spent"
            cap_lines.append(
                f"{row.setting}: {spent_text} {source}, {_format_remaining(row)}"
            )
    return [*months, *cap_lines]


def _format_remaining(spent: Spending) -> str:
    return f"{format_dollars(max(0.0, spent.remaining), beside=spent.cap)} left"


def format_open_batches(ledger: Ledger) -> str:
    """Return a line for each open batch, and for each command that continues with them."""
    open_batches = [batch for batch in ledger.batches() if batch.is_open]
    commands = dict.fromkeys(
        ledger.store.read_with(partial(find_command, name=batch.nonce))
        for batch in open_batches
    )
    lines = [
        _format_batch_line(batch, ledger.count_pending(batch)) for batch in open_batches
    ]
    lines += [f"to continue: {command}" for command in commands if command]
    return "\n".join(lines) or "no open batches"


def _format_batch_line(batch: Batch, n_open: int) -> str:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(batch.created_at))
    location = f"{batch.batch_id or 'not confirmed yet'} at {batch.endpoint}"
    return (
        f"open batch: {batch.nonce}  {batch.size:,} requests to {batch.judge_model} since {since}, "
        f"{n_open:,} open, up to ${batch.reserve:.2f} reserved\n"
        f"            {location}{f' ({batch.note})' if batch.note else ''}"
    )
