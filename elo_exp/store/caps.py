"""Caps over all that a store pays for, whichever run pays it: in a month, for a sweep, for a run folder.

The most that a call may cost is charged in the transaction that notes the call before it leaves, so that
processes that share a store never pass a cap together. What it has cost takes the place of that charge with
its answer. A call of which nobody knows whether it was billed stays charged at its most.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from elo_exp.store.database import Database
from elo_exp.types import Dollars


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Caps in dollars; None: no cap.

    month_usd   in a calendar month (UTC)
    sweep_usd   for all jobs of a sweep, however often it is continued
    folder_usd  for a run folder, however often its command is given
    """

    month_usd: Dollars | None = None
    sweep_usd: Dollars | None = None
    folder_usd: Dollars | None = None


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who pays: what is charged to the month, to a sweep and to a run folder, and their caps.

    command  that goes on with the run of this folder
    """

    caps: Caps = Caps()
    sweep: str | None = None
    folder: str | None = None
    command: str | None = None

    def scopes(self) -> dict[str, tuple[str, float | None]]:
        """Return what is charged, as `spending` has it, with setting and cap."""
        month = time.strftime("%Y-%m", time.gmtime())
        scopes = {f"month {month}": ("caps.month_usd", self.caps.month_usd)}
        if self.sweep is not None:
            scopes[f"sweep {self.sweep}"] = ("caps.sweep_usd", self.caps.sweep_usd)
        if self.folder is not None:
            scopes[f"folder {self.folder}"] = ("caps.folder_usd", self.caps.folder_usd)
        return scopes


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What was paid, or may have been, within a scope that has a cap.

    scope    month, sweep or folder, and which
    dollars  of these `reserved` are the most that calls under way, and lost ones, may cost
    """

    scope: str
    setting: str
    cap: float
    dollars: float
    reserved: float

    @property
    def remaining(self) -> float:
        return self.cap - self.dollars


class OverCapError(Exception):
    """A cap has no room for the next call, which may cost `dollars`."""

    def __init__(self, spent: Spending, dollars: float) -> None:
        super().__init__(f"{spent.setting} has no room for ${dollars:.4f}")
        self.spent, self.dollars = spent, dollars


def list_spending(db: Database, account: Account) -> list[Spending]:
    """Return what was paid within each scope of an account that has a cap, the least room first."""
    scopes = [
        _read_spending(db, scope, setting, cap)
        for scope, (setting, cap) in account.scopes().items()
        if cap is not None
    ]
    return sorted(scopes, key=lambda scope: scope.remaining)


def list_earlier_spending(
    db: Database, account: Account, kind: str
) -> list[tuple[Spending, str | None]]:
    """Return what each sweep or run folder has paid, whoever asks, with the command of a folder; empty where there is no
    such cap."""
    cap = {"sweep": account.caps.sweep_usd, "folder": account.caps.folder_usd}[kind]
    if cap is None:
        return []
    query = "SELECT scope FROM spending WHERE scope LIKE ? AND scope NOT IN (?, ?) ORDER BY scope"
    own_scopes = (f"sweep {account.sweep}", f"folder {account.folder}")
    rows = db.execute(query, (f"{kind}%", *own_scopes)).fetchall()
    return [
        (
            _read_spending(db, scope, f"caps.{kind}_usd", cap),
            _find_command(db, [scope]),
        )
        for (scope,) in rows
    ]


def _read_spending(db: Database, scope: str, setting: str, cap: float) -> Spending:
    """Return what was paid within a scope."""
    held_query = (
        f"SELECT SUM(dollars) FROM charges, {db.members_sql('scopes')} WHERE value = ?"
    )
    return Spending(
        scope=scope,
        setting=setting,
        cap=cap,
        dollars=_read_number(db, "SELECT dollars FROM spending WHERE scope = ?", scope),
        reserved=_read_number(db, held_query, scope),
    )


def reserve_charge(db: Database, account: Account, name: str, dollars: float) -> None:
    """Charge the most that a call may cost, before it leaves.

    name  by which the charge is settled
    Raises OverCapError where a cap has no room for it; then nothing is charged.
    """
    if not dollars:
        return
    for spending in list_spending(db, account):
        if not dollars <= spending.remaining + 1e-9:
            raise OverCapError(spending, dollars)
    scopes = [*account.scopes()]
    db.execute(
        "INSERT INTO charges VALUES (?, ?, ?)", (name, json.dumps(scopes), dollars)
    )
    _add_spending(db, scopes, dollars)
    if account.folder and account.command:
        command_row = (account.folder, account.command)
        db.execute(
            "INSERT INTO commands VALUES (?, ?) "
            "ON CONFLICT (folder) DO UPDATE SET command = excluded.command",
            command_row,
        )


def find_command(db: Database, name: str) -> str | None:
    """Return the command of the run that a call under way is charged to; None where that is not known."""
    scopes, _ = _find_charge(db, name) or ((), 0.0)
    return _find_command(db, scopes)


def _find_command(db: Database, scopes: Sequence[str]) -> str | None:
    """Return the command of the run folder among these scopes; None if it is not known."""
    query = "SELECT command FROM commands WHERE folder = ?"
    for scope in scopes:
        kind, _, folder = scope.partition(" ")
        if kind == "folder" and (row := db.execute(query, (folder,)).fetchone()):
            return str(row[0])
    return None


def charge_past_caps(db: Database, account: Account, name: str, dollars: float) -> None:
    """Charge, past any cap, a call that is under way and was taken for one that had never arrived."""
    if _find_charge(db, name) is None:
        reserve_charge(db, replace(account, caps=Caps()), name, dollars)


def pay(db: Database, name: str, dollars: float) -> None:
    """Add what a part of a call has cost; its charge is settled with the last part."""
    if charge_row := _find_charge(db, name):
        _add_spending(db, charge_row[0], dollars)


def settle(db: Database, name: str, dollars: float | None) -> None:
    """Put what a call has cost in the place of its charge; None: as much as it may have cost."""
    if charge_row := _find_charge(db, name):
        scopes, reserved = charge_row
        db.execute("DELETE FROM charges WHERE name = ?", (name,))
        if dollars is not None:
            _add_spending(db, scopes, dollars - reserved)


def _find_charge(db: Database, name: str) -> tuple[Sequence[str], float] | None:
    query = "SELECT scopes, dollars FROM charges WHERE name = ?"
    row = db.execute(query, (name,)).fetchone()
    return (json.loads(row[0]), row[1]) if row else None


def _add_spending(db: Database, scopes: Iterable[str], dollars: float) -> None:
    db.executemany(
        "INSERT INTO spending VALUES (?, ?) "
        "ON CONFLICT (scope) DO UPDATE SET dollars = spending.dollars + excluded.dollars",
        [(scope, dollars) for scope in scopes],
    )


def _read_number(db: Database, query: str, scope: str) -> float:
    row = db.execute(query, (scope,)).fetchone()
    return float(row[0] or 0.0) if row else 0.0
