"""The tables of a store in PostgreSQL: made in an empty schema, upgraded, and told from those of other programs."""

import re

from elo_exp.errors import ServerError
from elo_exp.store.database import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    TABLES,
    DatabaseError,
    insert_identity_sql,
)
from elo_exp.store.postgres_connection import (
    Connection,
    begin_writing,
    run_statements,
)

_MARKER_TABLE = "elo_exp_store"
_POSTGRES_TYPES = {
    "TEXT": 'TEXT COLLATE "C"',
    "REAL": "DOUBLE PRECISION",
    "WITHOUT ROWID": "",
}
_STORE_TABLES = re.sub(
    "|".join(_POSTGRES_TYPES), lambda match: _POSTGRES_TYPES[match[0]], TABLES
)
_ALL_TABLES = (
    _STORE_TABLES
    + f"""
ALTER TABLE batches ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
ALTER TABLE judges ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY;
CREATE TABLE commits (session TEXT PRIMARY KEY, number BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL);
CREATE TABLE {_MARKER_TABLE} (application_id BIGINT NOT NULL, version INTEGER NOT NULL);
INSERT INTO {_MARKER_TABLE} VALUES ({APPLICATION_ID}, {SCHEMA_VERSION});
"""
)


def prepare_schema(db: Connection, url: str, busy_seconds: float) -> None:
    """Make the tables where there are none, all or none, and add those that an older version does not have.

    What is not ours stays as it is. Raises ServerError or DatabaseError for it, and for a database that cannot be used.
    """
    encoding = db.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ServerError(
            f"The database of {url} must have the encoding UTF8, which can hold every answer; it has {encoding}. Make one:",
            "  createdb --encoding=UTF8 --template=template0 NAME",
        )
    if not is_store(db, url):
        begin_writing(db, busy_seconds)
        if not is_store(db, url):  # another process may have been first
            run_statements(db, f"{_ALL_TABLES}; {insert_identity_sql()}")
        run_statements(db, "COMMIT")
    if _read_version(db) < SCHEMA_VERSION:
        begin_writing(db, busy_seconds)
        # Another process may have been first
        if _read_version(db) < SCHEMA_VERSION:
            # those that an older version does not have
            run_statements(db, f"{_STORE_TABLES}; {insert_identity_sql()}")
            run_statements(db, f"UPDATE {_MARKER_TABLE} SET version = {SCHEMA_VERSION}")
        run_statements(db, "COMMIT")


def _read_version(db: Connection) -> int:
    query = f"SELECT version FROM {_MARKER_TABLE}"
    (version,) = db.execute(query.encode()).fetchone() or (0,)
    return int(version)


def is_store(db: Connection, url: str) -> bool:
    """Whether the tables are there; False where there are none. Raises ServerError for those of others."""
    (schema,) = db.execute("SELECT current_schema()").fetchone() or (None,)
    if schema is None:
        raise ServerError(
            f"The schema that {url} names does not exist. Create it in the database."
        )
    query = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = %s"
    tables = [name for (name,) in db.execute(query, (schema,))]
    if _MARKER_TABLE not in tables:
        if not tables:
            return False
        raise ServerError(
            f"The schema {schema} of {url} holds tables of another program ({', '.join(sorted(tables)[:3])}).",
            "  Use an empty schema, or one with a store: createdb NAME makes a database, and",
            "  ?options=-csearch_path%3DNAME at the end of the URL names a schema.",
        )
    query = f"SELECT application_id, version FROM {_MARKER_TABLE}"
    owner, version = db.execute(query.encode()).fetchone() or (0, 0)
    if owner != APPLICATION_ID:
        raise DatabaseError("it is the database of another program")
    if version > SCHEMA_VERSION:
        raise ServerError(
            f"{url} was written by a newer elo_exp (store version {version}, this program knows {SCHEMA_VERSION}).",
            "  Upgrade elo_exp, or choose another database.",
        )
    return True
