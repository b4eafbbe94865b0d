"""Records read back from the rows of a store."""

import json
from collections.abc import Sequence
from typing import TypeVar

from elo_exp.errors import FileError
from elo_exp.records import Record
from elo_exp.store.database import Database
from elo_exp.store.field_types import check_types

_PARSE_ERRORS = (AttributeError, LookupError, TypeError, ValueError, RecursionError)

R = TypeVar("R", bound=Record)


def build_damage_error(
    store_name: str, kind: str, key: object, error: Exception
) -> FileError:
    """Return the error for a stored answer that cannot be read."""
    return FileError.bad_file(
        store_name,
        f"holds a {kind} that cannot be read ({error})",
        "",
        f"  Its key is {key!r:.80}.",
        "  Restore the store from a copy, or choose another one with cache_dir=DIR or store=URL.",
    )


def read_records(
    db: Database,
    record: type[R],
    keys: Sequence[str],
    *,
    store_name: str,
    with_messages: bool = False,
) -> dict[str, R]:
    """Return the stored answers by key, in a transaction or outside. Raises FileError for one that is damaged.

    with_messages  whether they have the raw messages that some were read from
    """
    records: dict[str, R] = {}
    for key, value in db.read_answers(keys, with_messages=with_messages):
        try:
            fields = json.loads(value)
            if not with_messages:
                fields.pop("message", None)
            check_types(record, fields)
            records[key] = record.from_dict(fields)
        except _PARSE_ERRORS as error:
            raise build_damage_error(store_name, record.__name__, key, error) from None
    return records
