"""Who is paying for which answer: one process at a time, and never one that is dead."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.records import JudgeReply
from elo_exp.store import claims, processes
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import (
    MAX_HEARTBEAT_AGE_SECONDS,
    MAX_LOCK_FREE_SECONDS,
    Claims,
)
from elo_exp.store.ledger import Ledger
from tests.stores import Place, empty_schema, go_on, place, process, rows, said, write
from tests.test_postgres import OwnServer

__all__ = ["place"]

on_linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(),
    reason="process start times are read from /proc",
)
HOW: dict[str, Any] = {
    "endpoint": "https://api",
    "judge_model": "opus",
    "ttl": None,
    "high_water": None,
    "now": 1.0,
}


def reply(key: str, dollars: float = 0.0) -> dict[str, JudgeReply]:
    return {key: JudgeReply(key=key, text="VERDICT: A", dollars=dollars)}


def claimed(place: Place) -> dict[object, object]:
    return dict(rows(place, "SELECT key, owner FROM claims"))


def owner(place: Place, name: str, *keys: str, **facts: Any) -> None:
    """A process that has claimed these keys, written by hand; on this machine and boot unless `facts` say otherwise."""
    host, boot, _, _ = processes.identify_this_process()
    known = {"host": host, "boot": boot, "pid": 1, "started": "1", "heartbeat": 0.0}
    known |= facts
    with Store(place):
        pass
    marks = ", ".join("?" * 6)
    write(place, f"INSERT INTO owners VALUES ({marks})", name, *known.values())
    for key in keys:
        write(place, "INSERT INTO claims VALUES (?, ?)", key, name)


def submit(ledger: Ledger, *keys: str, batch_id: str | None = None) -> str:
    """A batch of these claimed keys, intended and then perhaps submitted; its nonce."""
    batch = ledger.record_intent({key: {} for key in keys}, [1.0] * len(keys), **HOW)
    assert batch is not None
    if batch_id is not None:
        ledger.mark_submitted(batch, batch_id)
    return batch.nonce


def kill(other: subprocess.Popen[str]) -> None:
    """SIGKILL: the process is then dead, but its number not yet free, as nobody has asked after it."""
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)


# Taking


def test_a_worked_example(place: Place):
    """Ann and Bob want some answers of the same store; k1 is there.

    step               ann holds   bob holds   answered
    ann takes k1-k3    k2 k3                   k1
    bob takes k2-k5    k2 k3       k4 k5       k1
    ann stores k2      k3          k4 k5       k1 k2
    bob takes k2 k3    k3          k4 k5       k1 k2
    ann closes                     k4 k5       k1 k2
    bob takes k2 k3                k3-k5       k1 k2
    """
    with Store(place) as one, Store(place) as two, Claims(two) as bob:
        one.commit(reply("k1"))
        with Claims(one) as ann:
            assert ann.take(["k1", "k2", "k3"]) == ["k2", "k3"]
            assert bob.take(["k2", "k3", "k4", "k5"]) == ["k4", "k5"]
            one.commit(reply("k2"))
            assert bob.take(["k2", "k3"]) == []
            assert claimed(place) == {"k3": ann.owner, "k4": bob.owner, "k5": bob.owner}
        assert bob.take(["k2", "k3"]) == ["k3"]
        assert claimed(place) == dict.fromkeys(["k3", "k4", "k5"], bob.owner)


RACER = """
import random, sys
from elo_exp.store.claims import Claims
from elo_exp.store.answer_store import Store
from tests.stores import place_of

keys = [f"k{n:03}" for n in range(1000)]
chunks = [keys[n : n + 20] for n in range(0, 1000, 20)]
random.Random(int(sys.argv[2])).shuffle(chunks)
with Store(place_of(sys.argv[1])) as store, Claims(store) as claims:
    print("ready", flush=True)
    sys.stdin.readline()
    print(*(key for chunk in chunks for key in claims.take(chunk)), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.system
def test_two_processes_that_race_for_the_same_keys_share_them_out(place: Place):
    """Fifty transactions each, with nothing that keeps them apart but the store."""
    with process(RACER, place, 0) as one, process(RACER, place, 1) as two:
        assert (said(one), said(two)) == (["ready"], ["ready"])
        go_on(one)
        go_on(two)
        taken = said(one) + said(two)
    assert sorted(taken) == [f"k{n:03}" for n in range(1000)]


# Single calls


def test_a_call_leaves_once_and_not_beside_a_batch_or_without_the_claim(place: Place):
    """Ann holds a, b and c; b is in a batch of hers that is under way, d is claimed by nobody.

    call   leaves   because
    a      yes
    b      no       its answer is to come from the batch
    b      yes      the batch has said that it expired
    d      no       it is not hers
    c      no       another has taken it over
    """
    with Store(place) as store, Claims(store) as ann:
        assert ann.take(["a", "b", "c"]) == ["a", "b", "c"]
        ledger = Ledger(store, ann.owner)
        assert ann.record_call("a", 0.5)
        submit(ledger, "b", batch_id="msgbatch_1")
        assert not ann.record_call("b", 0.5)
        (batch,) = ledger.list_own_open_batches()
        ledger.record_results(batch, {"b": "expired"}, {}, {}, now=2.0)
        assert ann.record_call("b", 0.25)
        assert not ann.record_call("d", 0.5)
        write(place, "UPDATE claims SET owner = 'bob' WHERE key = 'c'")
        assert not ann.record_call("c", 0.5)
        query = "SELECT key, dollars, why FROM losses ORDER BY key"
        assert rows(place, query) == [("a", 0.5, None), ("b", 0.25, None)]
        ann.end_call("a")
        ann.end_call("b", lost="reset")
        assert rows(place, query) == [("b", 0.25, "reset")]
        store.commit(reply("b"))  # asked again: the loss stays in the books
        assert rows(place, query) == [("b", 0.25, "reset")]


def test_what_a_dead_process_waited_for_is_a_loss_where_it_is_wanted_again(
    place: Place,
):
    """Counted once, by whoever asks again; not what lives, and not what nobody wants."""
    owner(place, "dead", "a", "b")
    write(place, "INSERT INTO losses VALUES ('a', 'dead', 0.5, 'then', NULL)")
    write(place, "INSERT INTO losses VALUES ('b', 'dead', 0.25, 'then', NULL)")
    with Store(place) as store, Claims(store) as heir:
        assert heir.take(["a", "c"]) == ["a", "c"]
        assert heir.record_call("c", 1.0)
        assert heir.take(["a", "c"]) == ["a", "c"]
        usage = store.usage
        assert (usage.calls_lost, usage.dollars_at_most) == (1, 0.5)
        query = "SELECT key, why FROM losses ORDER BY key"
        assert rows(place, query) == [
            ("a", "its process died"),
            ("b", None),
            ("c", None),
        ]


def test_what_a_server_says_is_kept_whatever_characters_it_has(place: Place):
    """Half an emoji, which ended the run with a traceback, and a zero byte, which PostgreSQL cannot hold."""
    with Store(place) as store, Claims(store) as ann:
        ann.take(["a", "b"])
        ann.record_call("a", 0.5)
        ann.end_call("a", lost="half \ud83d and \0")
        ledger = Ledger(store, ann.owner)
        submit(ledger, "b")
        ledger.abandon(ledger.list_own_open_batches()[0], "half \ud83d and \0")
    said = [(r"half \ud83d and \x00",)]
    assert rows(place, "SELECT why FROM losses") == said
    assert rows(place, "SELECT note FROM batches") == said


# The dead


@on_linux
def test_a_process_id_that_was_given_out_again_is_not_its_former_bearer(place: Place):
    """The number of this very process, which lives; but it began at another time."""
    owner(place, "former", "k", pid=os.getpid(), started="17", heartbeat=time.time())
    with Store(place) as store, Claims(store) as heir:
        assert heir.take(["k"]) == ["k"]


class Time:
    """Our own clock, which nothing moves but the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(claims.time, "monotonic", lambda: self.now)


def watched(claims: Claims, clock: Time, seconds: float, key: str = "k1") -> list[str]:
    """What is taken of a key after so many seconds in which it was looked at every nine."""
    while seconds > 0:
        clock.now += min(9.0, seconds)
        seconds -= 9.0
        taken = claims.take([key])
    return taken


@contextmanager
def connected(store: Store, name: str) -> Iterator[None]:
    """A connection that shows, where the store is on a server, that a process is there."""
    with closing(store.open_second(busy_seconds=1.0)) as db:
        if store.has_locks:
            db.hold_lock(name)
        yield


@pytest.mark.parametrize("where", [{"host": "elsewhere"}, {"boot": "the boot before"}])
@pytest.mark.parametrize("heartbeat", [0.0, 1e12], ids=["clock behind", "clock ahead"])
def test_a_process_out_of_sight_is_dead_when_its_heart_has_stood_still_while_we_watched(
    place: Place,
    where: dict[str, str],
    heartbeat: float,
    monkeypatch: pytest.MonkeyPatch,
):
    """Whatever its clock says. A number that lives here says nothing of a process elsewhere."""
    clock, far = Time(monkeypatch), "fa" * 8
    owner(place, far, "k1", "k2", **where, heartbeat=heartbeat, pid=os.getpid())
    with Store(place) as store, connected(store, far), Claims(store) as mine:
        submit(Ledger(store, far), "k1", "k2", batch_id="b")
        assert mine.take(["k1"]) == []
        clock.now += MAX_HEARTBEAT_AGE_SECONDS - 1
        write(place, "UPDATE owners SET heartbeat = heartbeat + 1 WHERE owner = ?", far)
        assert mine.take(["k1"]) == []
        assert watched(mine, clock, MAX_HEARTBEAT_AGE_SECONDS - 1) == []
        assert (
            mine.describe_holders(["k1", "k2"])
            == f"process {os.getpid()} on "
            + where.get("host", socket.gethostname())
            + " (2)"
        )
        clock.now += 2
        assert mine.take(["k1"]) == ["k1"]
        assert claimed(place) == {"k1": mine.owner, "k2": far}
        assert len(Ledger(store, mine.owner).list_own_open_batches()) == 1
    assert claimed(place) == {}  # nor is what nobody wants of a dead process remembered


def test_a_process_elsewhere_is_dead_when_its_connection_has_been_gone_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
):
    """One that connects again within that time is alive; and a time in which nobody looked, as when the server was away,
    does not count."""
    place, clock, far = empty_schema(), Time(monkeypatch), "fa" * 8
    owner(place, far, "k", host="elsewhere")
    with Store(place) as store, Claims(store) as mine:
        for _ in range(2):
            assert mine.take(["k"]) == []
            assert watched(mine, clock, MAX_LOCK_FREE_SECONDS - 1, "k") == []
            with connected(store, far):
                assert mine.take(["k"]) == []
        assert watched(mine, clock, MAX_LOCK_FREE_SECONDS - 1, "k") == []
        clock.now += 3600
        assert mine.take(["k"]) == []
        assert watched(mine, clock, MAX_LOCK_FREE_SECONDS - 1, "k") == []
        assert watched(mine, clock, 1, "k") == ["k"]


def test_a_process_holds_its_lock_from_its_start_to_its_end_on_whichever_connection():
    place = empty_schema()
    with Store(place) as store:
        with Claims(store) as mine:
            wait_until(
                lambda: mine.owner in store.read_with(lambda db: db.list_held_locks())
            )
        wait_until(
            lambda: mine.owner not in store.read_with(lambda db: db.list_held_locks())
        )
        with closing(store.open_second(busy_seconds=1.0)) as db:
            db.hold_lock("fa" * 8)
            write(place, KILL_OTHERS.format(own="pg_backend_pid()", name="fa" * 8))
            assert "fa" * 8 not in store.read_with(lambda db: db.list_held_locks())
            db.hold_lock("fa" * 8)
            assert "fa" * 8 in store.read_with(lambda db: db.list_held_locks())


@pytest.mark.system
def test_a_process_takes_its_lock_again_when_the_server_was_started_anew(
    monkeypatch: pytest.MonkeyPatch,
):
    """All locks are free then; long before the half minute is over, those who live have theirs again."""
    monkeypatch.setattr(claims, "LOCK_CHECK_SECONDS", 0.1)
    server = OwnServer()
    try:
        with Store(server.url, wait_minutes=1) as store, Claims(store) as mine:
            mine.take(["k"])
            for _ in range(2):
                wait_until(
                    lambda: (
                        mine.owner in store.read_with(lambda db: db.list_held_locks())
                    )
                )
                server.stop()
                server.start()
            wait_until(
                lambda: mine.owner in store.read_with(lambda db: db.list_held_locks())
            )
            assert claimed(server.url) == {"k": mine.owner}
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("job", "restarts", "is_taken_over"),
    [("/17", 0, True), ("/17", 1, False), ("/18", 0, False), (None, 0, False)],
    ids=["the run before", "the same run", "another job", "no job"],
)
def test_a_requeued_job_of_slurm_owns_the_claims_of_its_earlier_run_at_once(
    place: Place,
    job: str | None,
    restarts: int,
    is_taken_over: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    """It comes back on another node, from which the process that was killed cannot be seen: no 300 s of waiting."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    owner(place, "far", "k1", host="another node", pid=os.getpid())
    if job is not None:
        write(place, "INSERT INTO slurm_jobs VALUES ('far', ?, ?)", job, restarts)
    with Store(place) as store, Claims(store) as mine:
        submit(Ledger(store, "far"), "k1", batch_id="b")
        assert mine.take(["k1"]) == ["k1"] * is_taken_over
        assert len(Ledger(store, mine.owner).list_own_open_batches()) == is_taken_over
        own = rows(place, "SELECT job, restarts FROM slurm_jobs WHERE owner != 'far'")
        assert own == [("/17", 1)]
    assert rows(place, "SELECT * FROM slurm_jobs WHERE owner != 'far'") == []


@on_linux
def test_a_process_that_is_hidden_from_us_is_judged_by_its_heartbeat(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """As /proc is mounted where users shall not see each other: its number is given out, and no more can be known."""
    hidden, read_text = Path(f"/proc/{os.getpid()}/stat"), Path.read_text

    def seen(self: Path, *args: Any, **options: Any) -> str:
        if self == hidden:
            raise FileNotFoundError(self)
        return read_text(self, *args, **options)

    owner(place, "1d" * 8, "k", pid=os.getpid(), started="17")
    clock = Time(monkeypatch)
    monkeypatch.setattr(Path, "read_text", seen)
    with Store(place) as store, Claims(store) as mine, connected(store, "1d" * 8):
        assert mine.take(["k"]) == []
        assert watched(mine, clock, MAX_HEARTBEAT_AGE_SECONDS + 1, "k") == ["k"]


CONTAINER = [
    "unshare",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
TAKER = """
import sys
from elo_exp.store.claims import Claims
from elo_exp.store.answer_store import Store
from tests.stores import place_of

with Store(place_of(sys.argv[1])) as store, Claims(store) as claims:
    print("took", *claims.take(["k1", "k2"]), flush=True)
"""


@on_linux
def test_a_process_that_cannot_be_seen_from_within_a_container_is_alive(tmp_path: Path):
    """One machine, one boot and one name, but in the container our process id is nobody's."""
    place = tmp_path / "store.sqlite"
    try:
        subprocess.run([*CONTAINER, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process may be given a view of its own of the process ids here")
    with Store(place) as store, Claims(store) as mine:
        mine.take(["k1"])
        with process(TAKER, place, python=[*CONTAINER, sys.executable]) as inside:
            assert said(inside) == ["took", "k2"]
            inside.wait()


# The heartbeat


KILL_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND pid != {own} "
    "AND lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0') = '{name}'"
)


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        time.sleep(0.01)
    pytest.fail("it has not come to be so within half a minute")


def changed(place: Place, query: str, former: object) -> Any:
    """What the query finds once it is no longer what it was."""
    while (found := rows(place, query)) == former:
        time.sleep(0.01)
    return found


def test_the_heart_beats_on_whatever_happens(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """While the owner is busy; after others have taken it for dead; and after a beat that could not be written."""
    monkeypatch.setattr(claims, "HEARTBEAT_INTERVAL_SECONDS", 0.02)
    query = "SELECT heartbeat FROM owners"
    with Store(place) as store, Claims(store) as mine:
        first = rows(place, query)
        assert first < changed(place, query, first)
        write(place, "DELETE FROM owners")
        assert changed(place, "SELECT owner FROM owners", []) == [(mine.owner,)]

        def at_length(_: Any) -> Any:  # so that the beat gives up waiting for its end
            while not caplog.messages:
                time.sleep(0.01)
            return rows(place, query)

        before = store.write(at_length)
        assert changed(place, query, before) > before
    why = (
        "database is locked"
        if isinstance(place, Path)
        else "canceling statement due to lock timeout"
    )
    words = f"this run could not renew its claims on calls under way ({why})"
    assert set(caplog.messages) == {f"warning: {place}: {words}"}


# Letting go


# A sweep and its jobs

SWEEP = """
import os
from elo_exp.store import processes

processes.set_lifeline()
print(os.environ[processes._SWEEP_PROCESS_VARIABLE], flush=True)
input()
"""


@on_linux
def test_an_orphan_of_a_sweep_pays_for_nothing_more(monkeypatch: pytest.MonkeyPatch):
    with process(SWEEP) as sweep:
        monkeypatch.setenv(processes._SWEEP_PROCESS_VARIABLE, " ".join(said(sweep)))
        processes.check_lifeline()
        kill(sweep)
        with pytest.raises(UserError, match="^The sweep that started this job has end"):
            processes.check_lifeline()
    elsewhere = '["elsewhere", "another boot", 1, "1"]'
    monkeypatch.setenv(processes._SWEEP_PROCESS_VARIABLE, elsewhere)
    processes.check_lifeline()  # of a sweep on another machine nothing is known
