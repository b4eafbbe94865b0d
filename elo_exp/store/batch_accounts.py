"""At whose account of an API a batch was submitted: only that account's list can say that it never arrived."""

from elo_exp.records import make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_rows import Batch
from elo_exp.store.database import Database

# In place of an account: it is that of any key.
CONFIRMED_ACCOUNT = "confirmed by the user"


def hash_account(store: Store, key: str, organization: str | None) -> str:
    """Return what tells an account from others in this store, and shows nobody its key."""
    texts = [key, *([organization] if organization else [])]
    return "/".join(make_fingerprint([store.identity, text])[:16] for text in texts)


def same_account(account: str, other_account: str) -> bool:
    """Return whether two accounts are one: they have the same key, and no two organizations."""
    key, _, organization = account.partition("/")
    other_key, _, other_organization = other_account.partition("/")
    organizations = {organization, other_organization} - {""}
    return key == other_key and len(organizations) < 2


def insert_account(db: Database, nonce: str, account: str) -> None:
    """Note in a transaction to which account a batch is submitted."""
    db.execute("INSERT INTO accounts VALUES (?, ?)", (nonce, account))


def find_account(store: Store, batch: Batch) -> str | None:
    """Return whose batch it is; CONFIRMED_ACCOUNT if a user says that every key is of that account; None if it was not
    noted."""
    query = "SELECT account FROM accounts WHERE nonce = ?"
    rows = store.query(query, (batch.nonce,))
    return str(rows[0][0]) if rows else None


def confirm_account(store: Store, batch: Batch) -> None:
    """Note that the keys used from now on are of the account that a batch was submitted to: the user says so."""
    store.write(
        lambda db: db.execute(
            "INSERT INTO accounts VALUES (?, ?) "
            "ON CONFLICT (nonce) DO UPDATE SET account = excluded.account",
            (batch.nonce, CONFIRMED_ACCOUNT),
        )
    )
