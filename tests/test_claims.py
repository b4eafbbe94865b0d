"""Who is paying for which answer: one process at a time, and never one that is dead."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.records import JudgeReply, UserError
from elo_exp.store import claims, processes
from elo_exp.store.claims import LEASE_SECONDS, Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store
from tests.stores import failing, go_on, process, rows, said, write

on_linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(),
    reason="process start times are read from /proc",
)


def reply(key: str, text: str = "VERDICT: A", dollars: float = 0.0) -> JudgeReply:
    return JudgeReply(key=key, text=text, dollars=dollars)


def claimed(path: Path) -> dict[object, object]:
    return dict(rows(path, "SELECT key, owner FROM claims"))


def owner(
    path: Path,
    name: str,
    *keys: str,
    host: str | None = None,
    boot: str | None = None,
    pid: int = 1,
    started: str = "1",
    heartbeat: float = 0.0,
) -> None:
    """A process that has claimed these keys, written by hand; on this machine and boot unless said otherwise."""
    with Store(path) as store, Claims(store) as me:
        ((here, now),) = rows(
            path, f"SELECT host, boot FROM owners WHERE owner = '{me.owner}'"
        )
    place = (here if host is None else host, now if boot is None else boot)
    write(
        path,
        "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?)",
        name,
        *place,
        pid,
        started,
        heartbeat,
    )
    for key in keys:
        write(path, "INSERT INTO claims VALUES (?, ?)", key, name)


def submit(ledger: Ledger, *keys: str, batch_id: str | None = None) -> str:
    """A batch of these claimed keys, intended and then perhaps submitted; its nonce."""
    queries = {key: {"dimension": "factuality"} for key in keys}
    how = {
        "endpoint": "https://api",
        "judge_model": "opus",
        "ttl": None,
        "high_water": None,
    }
    batch = ledger.intend(queries, reserve=1.0, now=time.time(), **how)  # type: ignore[arg-type]
    assert batch is not None
    if batch_id is not None:
        ledger.submitted(batch, batch_id)
    return batch.nonce


def kill(other: subprocess.Popen[str]) -> None:
    """SIGKILL: no handler runs. The process is then dead, but its number not yet free: nobody has asked after it."""
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.sqlite"


# Taking


def test_a_worked_example(path: Path) -> None:
    """Ann and Bob want some answers of the same store; k1 is there.

    step               ann holds   bob holds   answered
    ann takes k1-k3    k2 k3                   k1
    bob takes k2-k5    k2 k3       k4 k5       k1
    ann keeps k2       k3          k4 k5       k1 k2
    bob takes k2 k3    k3          k4 k5       k1 k2
    ann closes                     k4 k5       k1 k2
    bob takes k2 k3                k3-k5       k1 k2
    """
    with Store(path) as one, Store(path) as two, Claims(two) as bob:
        list(one.keep([reply("k1")], key=lambda r: r.key))
        with Claims(one) as ann:
            assert ann.take(["k1", "k2", "k3"]) == ["k2", "k3"]
            assert bob.take(["k2", "k3", "k4", "k5"]) == ["k4", "k5"]
            ann.keep("k2", reply("k2"))
            assert bob.take(["k2", "k3"]) == []
            assert claimed(path) == {"k3": ann.owner, "k4": bob.owner, "k5": bob.owner}
        assert bob.take(["k2", "k3"]) == ["k3"]
        assert claimed(path) == dict.fromkeys(["k3", "k4", "k5"], bob.owner)


def test_a_call_is_in_the_books_from_before_it_leaves_until_its_answer_is_stored(
    path: Path,
) -> None:
    losses = "SELECT key, dollars, why FROM losses ORDER BY key, why"
    with Store(path) as one, Store(path) as two, Claims(one) as ann, Claims(two) as bob:
        ann.take(["k1", "k2"])
        assert ann.send("k1", 0.25)
        assert ann.send("k2", 0.5)
        assert not bob.send("k1", 0.25)  # it is not his to ask
        assert rows(path, losses) == [("k1", 0.25, None), ("k2", 0.5, None)]
        ann.unsend("k1", lost="reset")
        ann.unsend("k2")
        assert rows(path, losses) == [("k1", 0.25, "reset")]
        ann.send("k1", 0.25)
        ann.keep("k1", reply("k1"))
        assert rows(path, losses) == [("k1", 0.25, "reset")]


def test_what_lies_in_a_batch_does_not_leave_as_a_single_call(path: Path) -> None:
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k1", "k2"])
        submit(Ledger(store, mine.owner), "k1")
        assert not mine.send("k1", 0.25)
        assert mine.send("k2", 0.25)


CALLER = """
import sys
from pathlib import Path
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store

with Store(Path(sys.argv[1])) as store, Claims(store) as claims:
    claims.take(["k1", "k2"])
    claims.send("k1", 0.25)
    claims.send("k2", 0.5)
    print("sent", flush=True)
    sys.stdin.readline()
"""


def test_the_calls_of_a_killed_process_are_losses_of_whoever_asks_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer may have been paid for, and nobody has it."""
    with process(CALLER, path) as dead:
        assert said(dead) == ["sent"]
        with Store(path) as store, Claims(store) as heir:
            assert heir.take(["k1"]) == []
            kill(dead)
            assert heir.take(["k1"]) == heir.take(["k1"]) == ["k1"]
            assert (store.usage.calls_lost, store.usage.dollars_at_most) == (1, 0.25)
            assert rows(path, "SELECT key, why FROM losses ORDER BY key") == [
                ("k1", "its process died"),
                ("k2", None),
            ]
    assert "1 calls of an earlier run got no answer" in caplog.text


def test_more_keys_than_a_query_takes_and_keys_with_quotes_are_taken(
    path: Path,
) -> None:
    keys = [f'it\'s "key" {n}; DROP TABLE claims --' for n in range(3000)]
    with Store(path) as store, Claims(store) as mine:
        assert mine.take(keys) == keys
        assert len(claimed(path)) == 3000


KEYS = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["take", "keep"]), KEYS),
        max_size=12,
    )
)
@settings(max_examples=15, deadline=None)
def test_law_a_key_is_held_by_the_first_who_took_it_until_it_is_answered(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, list[str]]]
) -> None:
    path = tmp_path_factory.mktemp("law") / "store.sqlite"
    holder: dict[str, int] = {}
    answered: set[str] = set()
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(path)) for _ in range(3)]
        people = [stack.enter_context(Claims(store)) for store in stores]
        for who, action, keys in steps:
            if action == "take":
                got = people[who].take(keys)
                for key in keys:
                    if key not in answered:
                        holder.setdefault(key, who)
                assert got == [key for key in keys if holder.get(key) == who]
            else:
                for key in [key for key in keys if holder.get(key) == who]:
                    people[who].keep(key, reply(key))
                    answered.add(key)
                    del holder[key]
        assert claimed(path) == {key: people[who].owner for key, who in holder.items()}
        assert set(stores[0].get(JudgeReply, "abcdefgh")) == answered


RACER = """
import random, sys
from pathlib import Path
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store

path, seed = Path(sys.argv[1]), int(sys.argv[2])
keys = [f"k{n:03}" for n in range(1000)]
chunks = [keys[n : n + 20] for n in range(0, 1000, 20)]
random.Random(seed).shuffle(chunks)
with Store(path) as store, Claims(store) as claims:
    print("ready", flush=True)
    sys.stdin.readline()
    print(*(key for chunk in chunks for key in claims.take(chunk)), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "seeds", [(0, 0), (0, 1)], ids=["in the same order", "in different orders"]
)
def test_two_processes_that_race_for_the_same_keys_share_them_out(
    path: Path, seeds: tuple[int, int]
) -> None:
    """Fifty transactions each, with nothing that keeps them apart but the store."""
    with process(RACER, path, seeds[0]) as one, process(RACER, path, seeds[1]) as two:
        assert (said(one), said(two)) == (["ready"], ["ready"])
        go_on(one)
        go_on(two)
        first, second = said(one), said(two)
    assert set(first) & set(second) == set()
    assert sorted(first + second) == [f"k{n:03}" for n in range(1000)]


# The dead


OWNER = """
import sys, time
from pathlib import Path
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import Store

path, name = Path(sys.argv[1]), sys.argv[2]
with Store(path) as store, Claims(store) as claims:
    ledger = Ledger(store, claims.owner)
    assert len(claims.take([f"{name}{n}" for n in range(6)])) == 6
    for state, keys in (("submitted", range(2)), ("intended", range(2, 5))):
        batch = ledger.intend(
            {f"{name}{n}": {} for n in keys},
            endpoint="e", judge_model="m", reserve=1.0, ttl=None, high_water=None, now=time.time(),
        )
        assert batch is not None
        if state == "submitted":
            ledger.submitted(batch, f"batch of {name}")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_what_a_killed_process_held_goes_to_the_next_at_once_and_what_a_living_one_holds_does_not(
    path: Path,
) -> None:
    """Each has claimed six keys: two in a batch with an id, three in one whose fate is unknown, one in none."""
    with process(OWNER, path, "dead") as dead:
        assert said(dead) == ["ready"]
        write(
            path, "UPDATE batches SET size = 30 WHERE state = 'intended'"
        )  # no two of a size may be unresolved
        with process(OWNER, path, "live") as live:
            assert said(live) == ["ready"]
            kill(dead)
            with Store(path) as store, Claims(store) as heir:
                wanted = [f"{name}{n}" for n in range(6) for name in ("live", "dead")]
                assert heir.take(wanted) == [f"dead{n}" for n in range(6)]
                ledger = Ledger(store, heir.owner)
                assert [batch.size for batch in ledger.under_way()] == [2, 30]
                assert ledger.pending() == {
                    f"{name}{n}" for n in range(5) for name in ("live", "dead")
                }
                assert (
                    heir.holders(wanted)
                    == f"process {live.pid} on {socket.gethostname()} (6)"
                )


def test_whoever_inherits_a_batch_claims_only_what_it_wants_of_it(path: Path) -> None:
    """Of k1 to k4, all in one batch, k1 is answered. The heir asks for k3 only. Another may claim k2 and k4, but they
    are under way and cannot be submitted again."""
    with Store(path) as store:
        with Claims(store) as former:
            former.take(["k1", "k2", "k3", "k4"])
            ledger = Ledger(store, former.owner)
            nonce = submit(ledger, "k1", "k2", "k3", "k4", batch_id="b")
            ledger.record(
                ledger.find(nonce), {"k1": "succeeded"}, {"k1": reply("k1")}, now=1.0
            )
        with Claims(store) as heir, Store(path) as another, Claims(another) as third:
            assert heir.take(["k3"]) == ["k3"]
            assert claimed(path) == {"k3": heir.owner}
            assert third.take(["k1", "k2", "k3", "k4"]) == ["k2", "k4"]
            assert [batch.nonce for batch in Ledger(store, heir.owner).under_way()] == [
                nonce
            ]
            ledger = Ledger(another, third.owner)
            assert (ledger.under_way(), ledger.pending()) == ([], {"k2", "k3", "k4"})
            with pytest.raises(UserError, match="Nothing more is submitted"):
                submit(ledger, "k2")


def test_a_batch_that_may_not_have_arrived_is_inherited_by_the_next_whatever_it_wants(
    path: Path,
) -> None:
    """Nobody can submit another of its size, until somebody has looked for it."""
    with Store(path) as store:
        with Claims(store) as former:
            former.take(["k1"])
            nonce = submit(Ledger(store, former.owner), "k1")
        with Claims(store) as heir:
            ledger = Ledger(store, heir.owner)
            assert heir.take(["k2"], endpoint="https://elsewhere") == ["k2"]
            assert ledger.under_way() == []
            assert heir.take(["k2"], endpoint=ledger.find(nonce).endpoint) == ["k2"]
            assert [batch.nonce for batch in ledger.under_way()] == [nonce]
            assert claimed(path) == {"k2": heir.owner}


@on_linux
def test_a_process_id_that_was_given_out_again_is_not_its_former_bearer(
    path: Path,
) -> None:
    """The number of this very process, which lives; but it began at another time."""
    owner(path, "former", "k", pid=os.getpid(), started="17", heartbeat=time.time())
    with Store(path) as store, Claims(store) as heir:
        assert heir.take(["k"]) == ["k"]


@on_linux
def test_the_start_of_a_process_is_its_own(path: Path) -> None:
    """Second opinion: the clock that counts from the machine's boot, read before and after the process is made."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with process(OWNER, path, "k") as other:
        said(other)
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        ((pid, started),) = rows(path, "SELECT pid, started FROM owners")
    assert pid == other.pid
    assert before - 0.02 <= int(str(started)) / os.sysconf("SC_CLK_TCK") <= after + 0.02


@on_linux
def test_a_process_may_be_called_anything(path: Path, tmp_path: Path) -> None:
    """Linux puts the name, parentheses and all, among the facts on a process: this one looks like a zombie's."""
    python = tmp_path / "x) Z (y"
    python.symlink_to(Path(sys.executable).resolve())
    with process(OWNER, path, "k", python=[str(python)]) as other:
        assert said(other) == ["ready"]
        assert "(x) Z (y)" in Path(f"/proc/{other.pid}/stat").read_text()
        with Store(path) as store, Claims(store) as mine:
            assert mine.take(["k1"]) == []
            kill(other)
            assert mine.take(["k1"]) == ["k1"]


class Time:
    """Our own clock, which nothing moves but the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(claims.time, "monotonic", lambda: self.now)


@pytest.mark.parametrize(
    "place", [{"host": "elsewhere"}, {"boot": "the boot before"}], ids=["host", "boot"]
)
@pytest.mark.parametrize("heartbeat", [0.0, 1e12], ids=["clock behind", "clock ahead"])
def test_a_process_out_of_sight_is_dead_when_its_heart_has_stood_still_while_we_watched(
    path: Path, place: dict[str, str], heartbeat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its clock says. A number that lives here says nothing of a process elsewhere."""
    time_ = Time(monkeypatch)
    owner(path, "far", "k1", "k2", **place, heartbeat=heartbeat, pid=os.getpid())  # type: ignore[arg-type]
    with Store(path) as store, Claims(store) as mine:
        submit(Ledger(store, "far"), "k1", "k2", batch_id="b")
        assert mine.take(["k1"]) == []
        time_.now += LEASE_SECONDS - 1
        write(path, "UPDATE owners SET heartbeat = heartbeat + 1 WHERE owner = 'far'")
        assert mine.take(["k1"]) == []
        time_.now += LEASE_SECONDS - 1
        assert mine.take(["k1"]) == []
        assert claimed(path) == {"k1": "far", "k2": "far"}
        time_.now += 2
        assert mine.take(["k1"]) == ["k1"]
        assert claimed(path) == {"k1": mine.owner, "k2": "far"}
        assert len(Ledger(store, mine.owner).under_way()) == 1
    assert claimed(path) == {}  # nor is what nobody wants of a dead process remembered


@on_linux
def test_a_process_that_is_hidden_from_us_is_judged_by_its_heartbeat(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc is mounted where users shall not see each other: its number is given out, and no more can be known."""
    hidden, read_text = Path(f"/proc/{os.getpid()}/stat"), Path.read_text

    def seen(self: Path, *args: Any, **options: Any) -> str:
        if self == hidden:
            raise FileNotFoundError(self)
        return read_text(self, *args, **options)

    owner(path, "hidden", "k", pid=os.getpid(), started="17")
    time_ = Time(monkeypatch)
    monkeypatch.setattr(Path, "read_text", seen)
    with Store(path) as store, Claims(store) as mine:
        assert mine.take(["k"]) == []
        time_.now += LEASE_SECONDS + 1
        assert mine.take(["k"]) == ["k"]


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
from pathlib import Path
from elo_exp.store.claims import Claims
from elo_exp.store.store import Store

with Store(Path(sys.argv[1])) as store, Claims(store) as claims:
    print("took", *claims.take(["k1", "k2"]), flush=True)
"""


@on_linux
def test_a_process_that_cannot_be_seen_from_within_a_container_is_alive(
    path: Path,
) -> None:
    """One machine, one boot and one name, but in the container our process id is nobody's."""
    try:
        subprocess.run([*CONTAINER, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process may be given a view of its own of the process ids here")
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k1"])
        with process(TAKER, path, python=[*CONTAINER, sys.executable]) as inside:
            assert said(inside) == ["took", "k2"]
            inside.wait()


def test_nobody_takes_itself_for_dead(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It slept for a day, and no one has wanted its keys."""
    caplog.set_level(logging.INFO)
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k1"])
        submit(Ledger(store, mine.owner), "k1", batch_id="b")
        write(path, "UPDATE owners SET host = 'elsewhere', heartbeat = 0")
        assert mine.take(["k1", "k2"]) == ["k1", "k2"]
    assert caplog.messages == []  # it takes nothing over from itself


# The heartbeat


def eventually(path: Path, query: str, former: object) -> Any:
    """What the query finds once it is no longer what it was."""
    give_up = time.monotonic() + 10
    while (found := rows(path, query)) == former and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


def test_the_heart_beats_while_the_owner_is_busy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    query = "SELECT heartbeat FROM owners"
    with Store(path) as store, Claims(store):
        first = rows(path, query)
        second = eventually(path, query, first)
        assert first < second < eventually(path, query, second)


def test_a_beat_that_is_missed_is_said_and_the_next_is_tried(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    query = "SELECT heartbeat FROM owners"
    with Store(path) as store, Claims(store):
        with store.transaction():  # so long that the beat gives up waiting for its end
            give_up = time.monotonic() + 10
            while not caplog.messages and time.monotonic() < give_up:
                time.sleep(0.01)
            before = rows(path, query)
        assert eventually(path, query, before) > before
    words = (
        f"warning: {path}: the claims' heartbeat was not written (database is locked)"
    )
    assert set(caplog.messages) == {words}


def test_one_who_was_forgotten_and_goes_on_is_heard_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    with Store(path) as store, Claims(store) as mine:
        write(path, "DELETE FROM owners")
        assert eventually(path, "SELECT owner FROM owners", []) == [(mine.owner,)]


# Letting go


@pytest.mark.parametrize(
    "end",
    [None, UserError("stop"), KeyboardInterrupt()],
    ids=["done", "an error", "Ctrl-C"],
)
def test_closing_lets_everything_go_however_the_work_ends(
    path: Path, end: BaseException | None
) -> None:
    def work(store: Store) -> None:
        with Claims(store) as mine:
            mine.take(["k1", "k2"])
            if end is not None:
                raise end

    with Store(path) as store, ExitStack() as stack:
        if end is not None:
            stack.enter_context(pytest.raises(type(end)))
        work(store)
    assert (rows(path, "SELECT * FROM claims"), rows(path, "SELECT * FROM owners")) == (
        [],
        [],
    )
    with Store(path) as store, Claims(store) as another:
        assert another.take(["k1", "k2"]) == ["k1", "k2"]


def test_closing_forgets_the_dead_whom_nobody_misses(path: Path) -> None:
    """Their claims with them. A batch that one of them has left under way stays, for whoever wants it."""
    with process(OWNER, path, "dead") as dead, Store(path) as store:
        assert said(dead) == ["ready"]
        kill(dead)
        with Claims(store) as mine:
            mine.take(["k"])
            assert len(rows(path, "SELECT * FROM owners")) == 2
        assert (
            rows(path, "SELECT * FROM claims"),
            rows(path, "SELECT * FROM owners"),
        ) == ([], [])
        assert len(Ledger(store, "").pending()) == 5


@pytest.mark.parametrize("when", ["INSERT ON answers", "DELETE ON claims"])
def test_an_answer_is_kept_and_let_go_together_or_not_at_all(
    path: Path, when: str
) -> None:
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k"])
        with (
            failing(path, when),
            pytest.raises(
                UserError, match=r"cannot be used as the store \(the disk gave up\)"
            ),
        ):
            mine.keep("k", reply("k", dollars=0.5))
        assert rows(path, "SELECT key FROM answers") == []
        assert claimed(path) == {"k": mine.owner}
        assert store.usage.judge_calls == 0
        mine.keep("k", reply("k"))
        assert (claimed(path), store.get(JudgeReply, ["k"])["k"].text) == (
            {},
            "VERDICT: A",
        )


def test_the_first_answer_stays_and_the_second_was_paid_for_all_the_same(
    path: Path,
) -> None:
    """The owner slept, another took over and answered; then the owner's own answer came."""
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k"])
        list(store.keep([reply("k", "first", dollars=0.25)], key=lambda r: r.key))
        assert (
            mine.keep("k", reply("k", "second", dollars=0.5)).text == "first"
        )  # every run shall see the same
        assert store.get(JudgeReply, ["k"])["k"].text == "first"
        assert (claimed(path), store.usage.dollars) == ({}, 0.75)


# Words


def test_the_holders_are_named_with_their_machine_and_how_much_they_hold(
    path: Path,
) -> None:
    owner(path, "a", "k1", "k2", "k3", host="elsewhere", pid=7, heartbeat=time.time())
    owner(path, "b", "k4", host="yonder", pid=8, heartbeat=time.time())
    with Store(path) as store, Claims(store) as mine:
        mine.take(["k5"])
        assert (
            mine.holders(["k1", "k2", "k4", "k5", "k6"])
            == "process 7 on elsewhere (2), process 8 on yonder (1)"
        )
        assert mine.holders(["k5", "k6"]) == mine.holders([]) == ""


# A sweep and its jobs


SWEEP = """
import os
from elo_exp.store import processes

processes.export_lifeline()
print(os.environ[processes._SWEEP_VARIABLE], flush=True)
input()
"""


@on_linux
def test_an_orphan_of_a_sweep_pays_for_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with process(SWEEP) as sweep:
        monkeypatch.setenv(processes._SWEEP_VARIABLE, " ".join(said(sweep)))
        processes.check_lifeline()
        kill(sweep)
        with pytest.raises(
            UserError, match="^the sweep that started this job has ended"
        ):
            processes.check_lifeline()
    monkeypatch.setenv(
        processes._SWEEP_VARIABLE, '["elsewhere", "another boot", 1, "1"]'
    )
    processes.check_lifeline()  # of a sweep on another machine nothing is known
