"""PostgreSQL as the engine of the store: what is its own. What every store promises, tests/test_store.py and others ask
of both engines."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import Context
from elo_exp.experiments.store import ManageStore
from elo_exp.records import JudgeReply, Response
from elo_exp.store import claims as claims_module
from elo_exp.store.answer_store import Store
from elo_exp.store.caps import Account, Caps
from elo_exp.store.claims import Claims
from elo_exp.store.database import APPLICATION_ID, SCHEMA_VERSION, Database
from elo_exp.store.ledger import Ledger
from tests.commands import attempt, run
from tests.experiments import built
from tests.stores import empty_schema, postgres, rows, write

HOW: dict[str, Any] = {
    "endpoint": "https://api",
    "judge_model": "opus",
    "ttl": None,
    "high_water": None,
    "now": 1.0,
}


def reply(key: str, text: str = "VERDICT: A", **facts: Any) -> JudgeReply:
    return JudgeReply(key=key, text=text, **facts)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store without a folder puts what it could not save."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def url() -> str:
    return empty_schema()


def tables(url: str) -> set[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    return {name for (name,) in rows(url, query)}


# Opening


def changed(url: str, **parts: str) -> str:
    """Another URL of the same server."""
    for name, value in parts.items():
        before = {"user": "postgres:", "database": "/postgres?"}[name]
        after = {"user": f"{value}", "database": f"/{value}?"}[name]
        url = url.replace(before, after)
    return url


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda url: "postgresql://127.0.0.1:1/db", "Connection refused"),
        (lambda url: changed(url, database="absent"), 'database "absent" does not ex'),
        (lambda url: changed(url, user="absent"), 'role "absent" does not exist'),
        (lambda url: f"{url}&no_such_option=1", 'invalid URI query parameter: "no_su'),
    ],
)
def test_a_server_that_does_not_let_us_in_is_one_line(
    url: str, make: Callable[[str], str], why: str
):
    place = make(url)
    with pytest.raises(UserError) as error:
        Store(place)
    line, *below = str(error.value).splitlines()
    assert line.startswith(f"The store {place} cannot be reached (")
    assert why in line
    assert below == [
        "  Check that the server runs, and the host, port, user and database of the URL.",
        "  A password is read from PGPASSWORD or ~/.pgpass.",
    ]


def test_a_password_is_read_from_the_environment_and_never_said(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    """Absent or wrong it is one line, and the right one opens the store."""
    name = url.rpartition("%3D")[2]
    write(url, f"CREATE ROLE {name}_ann LOGIN PASSWORD 'geheim'")
    write(url, f"GRANT ALL ON SCHEMA {name} TO {name}_ann")
    rules = Path(socket_folder(), "pg_hba.conf")
    rules.write_text(f"local all {name}_ann scram-sha-256\n{rules.read_text()}")
    write(url, "SELECT pg_reload_conf()")
    ann = changed(url, user=f"{name}_ann")
    for password, why in (
        (None, "no password supplied"),
        ("falsch", "failed for user"),
    ):
        if password:
            monkeypatch.setenv("PGPASSWORD", password)
        with pytest.raises(UserError, match=why) as error:
            Store(ann)
        assert "falsch" not in str(error.value)
    monkeypatch.setenv("PGPASSWORD", "geheim")
    with Store(ann):
        assert "elo_exp_store" in tables(url)


def test_a_database_that_cannot_hold_every_character_is_refused(url: str):
    write(url, "CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
    with pytest.raises(
        UserError, match="must have the encoding UTF8, .*; it has LATIN1"
    ):
        Store(changed(url.partition("&")[0], database="latin"))


def anothers(url: str) -> None:
    write(url, "CREATE TABLE answers (name TEXT)")


def newer(url: str) -> None:
    with Store(url):
        pass
    write(url, f"UPDATE elo_exp_store SET version = {SCHEMA_VERSION + 1}")


def not_ours(url: str) -> None:
    with Store(url):
        pass
    write(url, "UPDATE elo_exp_store SET application_id = 7")


def dropped(url: str) -> None:
    write(url, f"DROP SCHEMA {url.rpartition('%3D')[2]}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            anothers,
            "holds tables of another program (answers).\n  Use an empty schema",
        ),
        (newer, f"a newer elo_exp (store version {SCHEMA_VERSION + 1}, this program"),
        (not_ours, "cannot be used as the store (it is the database of another progra"),
        (dropped, "names does not exist. Create it"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line_and_left_alone(
    url: str, make: Callable[[str], None], words: str
):
    make(url)
    before = tables(url)
    with pytest.raises(UserError) as error:
        Store(url)
    assert words in str(error.value)
    assert "\n" not in str(error.value).replace("\n  ", "")
    assert tables(url) == before


def test_the_tables_are_made_whole_or_not_at_all(url: str):
    """A role that may not make the last one leaves none of them."""
    name = url.rpartition("%3D")[2]
    write(url, f"CREATE ROLE {name}_guest LOGIN")
    write(url, f"GRANT USAGE ON SCHEMA {name} TO {name}_guest")
    guest = changed(url, user=f"{name}_guest")
    with pytest.raises(UserError, match=f"permission denied for schema {name}"):
        Store(guest)
    assert tables(url) == set()
    with Store(url):
        pass
    assert "elo_exp_store" in tables(url)
    words = "permission denied for table elo_exp_store"
    with pytest.raises(UserError, match=words):
        Store(guest)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "sqlite:///x.db",
            'store must be postgresql://user@host/database, or null for a file in cache_dir; got "sqlite:///x.db".',
        ),
        ("postgresql:db", "store must be postgresql://user@host/database, or null for"),
        ("postgresql://[::1", "store must be postgresql://user@host/database, or null"),
        ("postgresql://ann:secret@h/db", "store holds a URL with a password, and set"),
        ("postgresql://h/db?password=secret", "store holds a URL with a password, and"),
        ("postgresql://h/db?sslp%61ssword=secret", "store holds a URL with a password"),
    ],
)
def test_a_setting_that_is_no_url_or_holds_a_password_is_refused(given: str, line: str):
    """Before anything is opened or written: settings are kept in run folders and sent to trackers."""
    with pytest.raises(UserError) as error:
        built("experiment=rate", "battles=[x.csv]", "tracker=local", f"store='{given}'")
    assert str(error.value).startswith(line)
    assert "secret" not in str(error.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "elo_exp.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r"pip install 'elo-exp\[postgres\]'"):
        Store("postgresql://host/db")


# What it holds


def test_without_a_folder_its_files_are_kept_in_the_working_directory(url: str):
    """And not in one that is named after the URL."""
    with Store(url) as store:
        assert store.folder == Path()


def test_a_text_that_postgresql_cannot_hold_is_kept_and_counted(url: str):
    """Zero bytes and half an emoji stand in JSON as escapes."""
    texts = {"zero": "a\0b \\u0000", "half": "\ud83d", "escape": "\\ud83d \\\\u0000"}
    with Store(url) as store:
        store.commit({k: reply(k, t, dollars=0.5) for k, t in texts.items()})
        found = store.get(JudgeReply, list(texts))
        assert {key: one.text for key, one in found.items()} == texts
    assert "3 verdicts" not in listed(url)
    assert "verdicts" in listed(url)
    assert "1.50" in listed(url)


def test_an_answer_is_found_among_many_with_its_message_where_it_is_wanted(url: str):
    keys = [f"k{n}" for n in range(5_001)]
    with Store(url) as store:
        store.commit({key: reply(key, message={"id": key}) for key in keys})
        assert len(store.get(JudgeReply, keys)) == len(keys)
        for wanted, message in ((False, None), (True, {"id": "k7"})):
            found = store.get(JudgeReply, ["k7"], with_messages=wanted)["k7"]
            assert found.message == message


# The command


def manage(place: str, *words: str) -> str:
    """What `python -m elo_exp experiment=store store=... ...` prints."""
    given = ("experiment=store", "tracker=local", "cache_dir=beside", *words)
    job = built(*given, *([f"store.url='{place}'"] if place else ()))
    with job.open_store() as store:
        context = Context(
            run_dir=Path("run"), store=store, tracker=job.settings.tracker
        )
        assert isinstance(job.experiment, ManageStore)
        job.experiment.dry_run(context)
        return job.experiment.act(context)


def listed(place: str) -> str:
    """The table, without the line that names the store."""
    return manage(place).partition("\n")[2]


EVERYTHING = {
    "k1": reply(
        "k1",
        judge_model="opus",
        dimension="factuality",
        entrant_a="ann",
        entrant_b="bob",
        dollars=0.25,
    ),
    "k2": reply(
        "k2",
        judge_model="opus",
        dimension="calibration",
        entrant_a="ann",
        entrant_b="bob",
        dollars=0.5,
    ),
    "k3": reply("k3", judge_model="haiku", entrant_a="ann", dollars=0.125),
    "Ann p1": Response(
        entrant_id="Ann",
        prompt_id="p1",
        response_text="é",
        diagnostics={"dollars": 2.0},
    ),
    "bob p1": Response(entrant_id="bob", prompt_id="p1", response_text="b"),
}


@pytest.mark.system
def test_every_action_does_on_postgresql_what_it_does_on_sqlite(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Exported, brought in, merged and purged: the same texts, the same rows, the same file to the byte."""
    monkeypatch.chdir(tmp_path)
    with Store(Path("beside/store.sqlite")) as store:
        store.commit(EVERYTHING)
    n = len(EVERYTHING)
    manage("", "store.action=export", "store.file=lite.jsonl")
    for n_new in (n, 0):
        merged = manage(url, "store.action=merge", "store.file=beside/store.sqlite")
        assert merged == f"found {n} answers in the other cache, {n_new} of them new"
    assert listed(url) == listed("")
    said = manage(url, "store.action=export", "store.file=post.jsonl")
    assert said == f"wrote {n} answers to post.jsonl"
    assert Path("post.jsonl").read_bytes() == Path("lite.jsonl").read_bytes()
    said = manage(url, "store.action=purge", "store.judge=opus", "store.confirm=true")
    assert said.startswith("moved 2 answers, which cost $0.75, to beside/purged_")
    purged = said.partition(", to ")[2].partition(". To bring")[0]
    said = manage(url, "store.action=import", f"store.file='{purged}'")
    assert said == "read 2 answers, 2 of them new"
    assert listed(url) == listed("")
    entrant = manage(url, "store.entrant=ann")
    assert (
        entrant.partition("\n")[2] == manage("", "store.entrant=ann").partition("\n")[2]
    )
    Path("bad.jsonl").write_bytes(Path("lite.jsonl").read_bytes() + b'{"key": 1}\n')
    with pytest.raises(UserError, match="bad.jsonl:6 is not an exported answer"):
        manage(url, "store.action=import", "store.file=bad.jsonl")
    assert listed(url) == listed("")


@pytest.mark.system
def test_a_command_with_a_store_of_postgresql_pays_nothing_twice(
    url: str, tmp_path: Path
):
    """Two runs of a tournament on machines that share nothing else; a mistake in the URL is one line, before a folder."""
    words = (
        *("judge=lexical", "mode=pilot", "judging.limit_pairs=5", "tracker=local"),
        *("entrant=[probe_reference,probe_hedged]", "figures=false"),
        *("rubric=[factuality]", "elo.n_perms=20"),
    )
    first = run(*words, f"store={url}", folder=tmp_path / "one")
    second = run(*words, f"store={url}", folder=tmp_path / "two")
    made = [
        one.read("manifest.json")["usage"]["judge_calls"] for one in (first, second)
    ]
    assert made[0] > 0
    assert made[1] == 0
    assert not list(tmp_path.glob("*/outputs/cache/store.sqlite"))
    shown = run("experiment=store", f"store={url}", folder=tmp_path / "one")
    assert f"{made[0]}" in shown.out
    absent = "store=postgresql://127.0.0.1:1/db"
    refused = attempt(*words, absent, folder=tmp_path / "three")
    assert refused.code == 2
    assert (
        "\nelo_exp: The store postgresql://127.0.0.1:1/db cannot be reached"
        in f"\n{refused.err}"
    )
    assert not list((tmp_path / "three").glob("outputs/*/manifest.json"))


# A lost connection


def socket_folder() -> str:
    return parse_qs(urlsplit(postgres()).query)["host"][0]


class Proxy:
    """A socket in front of the server's, that breaks connections when a message says COMMIT.

    reaches  whether that message still reaches the server
    closes   whether the server is told that the connection has ended
    """

    def __init__(self, folder: Path, *, reaches: bool, closes: bool = True) -> None:
        self.reaches, self.closes = reaches, closes
        self.n_cuts = 0  # still to be made
        self._to = f"{socket_folder()}/.s.PGSQL.5432"
        self._kept: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listening, *self._kept):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._to)
                self._kept += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if b"COMMIT\0" in data and self.n_cuts:
                    self.n_cuts -= 1
                    self._cut(data, client=source, server=to)
                    return
                to.sendall(data)
            to.shutdown(socket.SHUT_RDWR)

    def _cut(
        self, data: bytes, *, client: socket.socket, server: socket.socket
    ) -> None:
        if self.reaches:
            server.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
        if self.closes:
            server.shutdown(socket.SHUT_WR)


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits less long for a process that has gone silent in a transaction."""
    monkeypatch.setattr("elo_exp.store.postgres_connection._MAX_IDLE_SECONDS", 1)


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(
    ("reaches", "closes", "n_times"),
    [(True, True, 1), (False, True, 2), (False, False, 2)],
)
def test_a_connection_that_is_lost_at_a_commit_writes_once(
    url: str,
    reaches: bool,
    closes: bool,
    n_times: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    """What the message had done is found out: where it arrived, nothing is repeated.

    COMMIT               server is told   the body runs
    arrives, no answer   yes              once
    never arrives        yes              twice
    never arrives        no               twice, when the server has given the first up
    """
    with Proxy(tmp_path, reaches=reaches, closes=closes) as proxy:
        through = url.replace(socket_folder(), str(tmp_path))
        with Store(through, wait_minutes=1) as store, Claims(store) as claims:
            store.account = Account(caps=Caps(month_usd=9.0))
            claims.take(["a", "b"])
            n_runs = 0

            def note(db: Database) -> int:
                nonlocal n_runs
                n_runs += 1
                db.execute("INSERT INTO commands VALUES (?, ?)", ("f", str(n_runs)))
                return n_runs

            proxy.n_cuts = 1
            assert store.write(note) == n_runs == n_times
            proxy.n_cuts = 1
            ledger = Ledger(store, claims.owner)
            batch = ledger.record_intent({"a": {}, "b": {}}, [1.0, 1.5], **HOW)
            assert batch is not None
            assert [one.nonce for one in ledger.batches()] == [batch.nonce]
            assert proxy.n_cuts == 0
    assert rows(url, "SELECT * FROM commands") == [("f", str(n_times))]
    assert [row[2] for row in rows(url, "SELECT * FROM charges")] == [2.5]
    assert set(caplog.messages) == {f"{through}: the connection was lost and is back"}


def test_a_connection_that_ends_in_a_transaction_has_it_run_again(url: str):
    """Also what was set aside for it, and a reading."""
    with Store(url, wait_minutes=1) as store:
        n_runs = 0

        def end(db: Database) -> None:
            nonlocal n_runs
            n_runs += 1
            if n_runs == 1:
                ((pid,),) = db.execute("SELECT pg_backend_pid()").fetchall()
                write(url, "SELECT pg_terminate_backend(?)", pid)

        def add(db: Database) -> int:
            end(db)
            db.execute("INSERT INTO answers SELECT * FROM incoming")
            return n_runs

        incoming = [("k", "JudgeReply", '{"key":"k","text":"t"}', "now")]
        assert store.write(add, incoming=lambda: incoming) == 2
        n_runs = 0
        store.read_with(end)
        assert store.get(JudgeReply, ["k"])["k"].text == "t"
        assert n_runs == 1


class OwnServer:
    """A server that the test stops and starts again."""

    def __init__(self) -> None:
        postgres()  # or the test is skipped
        self.folder = tempfile.mkdtemp(prefix="elo_exp_postgres_")
        self.start()

    def start(self) -> None:
        import pgserver

        self._server = pgserver.get_server(self.folder, cleanup_mode="stop")
        self.url = str(self._server.get_uri())

    def stop(self) -> None:
        self._server.cleanup()


@pytest.mark.system
def test_a_server_that_goes_away_is_waited_for_or_the_run_ends_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A line when the waiting begins, and one when it ends; the heartbeat goes on, too."""
    monkeypatch.setattr(claims_module, "HEARTBEAT_INTERVAL_SECONDS", 0.05)
    server = OwnServer()
    try:
        with Store(server.url, wait_minutes=1) as store, Claims(store) as claims:
            assert claims.take(["a", "b"]) == ["a", "b"]
            server.stop()
            starting = threading.Timer(0.5, server.start)
            starting.start()
            assert claims.record_call("a", 0.5)
            starting.join()
            claims.commit_answer("a", reply("a"), 0.25)
            said = [text for text in caplog.messages if "renew its claims" not in text]
            assert len(said) == 2
            assert said[0].startswith(
                f"warning: {server.url}: the connection is lost ("
            )
            assert said[0].endswith("). Waiting up to 1 minutes for it")
            assert said[1] == f"{server.url}: the connection was lost and is back"
            beat = "SELECT heartbeat FROM owners"
            before = rows(server.url, beat)
            while rows(server.url, beat) == before:
                time.sleep(0.01)
        with Store(server.url, wait_minutes=0.001) as store:
            server.stop()
            with pytest.raises(UserError) as error:
                store.commit({"b": reply("b")})
            assert "the connection was lost, and 0.001 minutes later there is" in str(
                error.value
            )
            assert "\n" not in str(error.value).replace("\n  ", "")
            server.start()
            store.commit({"b": reply("b")})
            assert set(store.get(JudgeReply, ["a", "b"])) == {"a", "b"}
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


# A server that has lost commits


class Replica:
    """What a server has at a moment, which is all that it has when it takes over later."""

    def __init__(self, url: str) -> None:
        self._url, self._tables = url, sorted(tables(url))
        for name in self._tables:
            write(url, f"CREATE TABLE copy_of_{name} AS TABLE {name}")

    def take_over(self) -> None:
        """Have the rows of that moment, and end every other connection."""
        for name in self._tables:
            identity = "OVERRIDING SYSTEM VALUE"
            write(self._url, f"DELETE FROM {name}")
            write(self._url, f"INSERT INTO {name} {identity} TABLE copy_of_{name}")
        write(
            self._url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() "
            "AND application_name = 'elo_exp' AND datname = current_database()",
        )


@pytest.mark.parametrize("at", ["write", "read", "end"])
def test_a_server_that_lacks_acknowledged_commits_is_given_them_again(
    url: str, at: str, caplog: pytest.LogCaptureFixture
):
    """Answers, the batch that was submitted and what was spent, each once, whenever it is noticed."""
    account = Account(caps=Caps(month_usd=9.0))
    with Store(url, wait_minutes=1) as store, Claims(store) as claims:
        store.account = account
        ledger = Ledger(store, claims.owner)
        claims.take(["a", "b", "c", "d"])
        claims.record_call("a", 1.0)
        claims.commit_answer("a", reply("a"), 0.5)
        replica = Replica(url)
        claims.record_call("b", 1.0)
        claims.commit_answer("b", reply("b", "x" * 1000), 0.25)
        batch = ledger.record_intent({"c": {}}, [1.0], **HOW)
        assert batch is not None
        ledger.mark_submitted(batch, "msgbatch_1")
        claims.take(["e"])
        replica.take_over()
        if at == "write":
            store.commit({"d": reply("d")})
        elif at == "read":
            assert set(store.get(JudgeReply, ["a", "b"])) == {"a", "b"}
    said = [text for text in caplog.messages if "lacks the last" in text]
    assert len(said) == 1
    assert said[0].endswith("They are written again")
    with Store(url) as store:
        store.account = account
        found = store.get(JudgeReply, ["a", "b", "d"])
        assert {"a", "b"} <= found.keys()
        assert found["b"].text == "x" * 1000
        (only,) = Ledger(store).batches()
        assert (only.state, only.batch_id) == ("submitted", "msgbatch_1")
        (spent,) = store.list_spending()
        assert (spent.dollars, spent.reserved) == (1.75, 1.0)
    assert rows(url, "SELECT * FROM commits") == []


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_a_limit_of_time_is_waited_for_like_a_lost_connection(
    url: str,
    setting: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """Somebody holds the writers' lock longer than the server lets a statement wait."""
    import psycopg

    if setting == "lock_timeout":
        monkeypatch.setattr("elo_exp.store.postgres.MAX_LOCK_WAIT_SECONDS", 0.1)
    with Store(url, wait_minutes=1) as store, psycopg.connect(url) as other:
        if setting == "statement_timeout":
            store.query("SELECT set_config('statement_timeout', '100', false)")
        other.execute(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})")
        freed = threading.Timer(1.0, other.rollback)
        freed.start()
        store.commit({"a": reply("a")})
        freed.join()
        assert set(store.get(JudgeReply, ["a"])) == {"a"}
    assert any("a statement took too long" in text for text in caplog.messages)


@pytest.mark.parametrize("version", [6, 7, 8])
def test_a_store_of_before_is_brought_up_to_date_and_keeps_what_it_holds(
    url: str, version: int
):
    with Store(url) as store, Claims(store) as claims:
        claims.take(["k"])
        store.commit({"k": reply("k")})
        ledger = Ledger(store, claims.owner)
        claims.take(["b"])
        assert ledger.record_intent({"b": {}}, [1.0], **HOW) is not None
    new = tables(url)
    later = {"looks": 9, "slurm_jobs": 8, "commands": 7}
    for name, since in later.items():
        if version < since:
            write(url, f"DROP TABLE {name}")
    write(url, f"UPDATE elo_exp_store SET version = {version}")
    for _ in range(2):
        with Store(url) as store:
            assert set(store.get(JudgeReply, ["k"])) == {"k"}
            assert Ledger(store).list_pending_keys() == {"b"}
    assert tables(url) == new
    assert rows(url, "SELECT version FROM elo_exp_store") == [(SCHEMA_VERSION,)]
