"""What was submitted and is not in the store any more is found at the server, before anything is paid for again.

The store was brought back from a copy, or its journal is gone, or a PostgreSQL took the place of another. The real SDKs
talk to real servers on 127.0.0.1, which keep the bill.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from elo_exp import pipeline
from elo_exp.api import batches, lost_batches
from elo_exp.api.transport import Clock
from elo_exp.store.answer_store import Store
from elo_exp.store.ledger import Ledger
from tests.batch_judges import (
    each_provider,
    judge,
    judged,
    machine,
    n_stored,
    serving,
)
from tests.batch_server import BatchServer
from tests.commands import run as command
from tests.http_server import Status
from tests.killing import N_QUERIES, World, answers, world
from tests.stores import Place, place, rows, write

__all__ = ["machine", "place"]
pytestmark = pytest.mark.usefixtures("machine")

N = 4  # comparisons: 8 queries, in batches of 5 and 3
HERE = Path("cache/store.sqlite")
FAST = ("figures=false", "elo.n_perms=10")
TABLES = ("answers", "queries", "batches", "accounts", "charges", "spending")


def run(provider: str, server: BatchServer, place: Place, n: int = N) -> int:
    return judged(provider, server, place, chunk_size=5, n=n)


class Impatient(Clock):
    """Whoever has to wait gives up, as with Ctrl-C."""

    @staticmethod
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt


def forget(place: Place) -> None:
    """All that was written since the store was made is gone; it is the same store."""
    for table in TABLES:
        write(place, f"DELETE FROM {table}")


def bring_back(copy: Path) -> None:
    for journal in HERE.parent.glob(f"{HERE.name}-*"):
        journal.unlink()
    shutil.copy(copy, HERE)


def bill(server: BatchServer) -> tuple[int, bool]:
    """How many answers were billed, and whether one was twice."""
    return server.meter.billed.total(), bool(server.meter.paid_twice)


@each_provider
def test_a_run_takes_what_its_store_has_lost_and_pays_nothing(provider, place, caplog):
    with serving(provider) as server:
        run(provider, server, place)
        before = sorted(rows(place, "SELECT key FROM answers"))
        names = sorted(rows(place, "SELECT names FROM queries"))
        [(spent,)] = rows(place, "SELECT SUM(dollars) FROM spending")
        forget(place)
        caplog.set_level("INFO")
        assert run(provider, server, place) == 2 * N
        assert "that was submitted but is not in the cache" in caplog.text
        assert bill(server) == (2 * N, False)
        assert sorted(rows(place, "SELECT key FROM answers")) == before
        assert sorted(rows(place, "SELECT names FROM queries")) == names
        [(now,)] = rows(place, "SELECT SUM(dollars) FROM spending")
        assert now == pytest.approx(spent)
        assert {state for (state,) in rows(place, "SELECT state FROM batches")} == {
            "settled"
        }


@each_provider
def test_a_copy_that_is_brought_back_pays_for_nothing_twice(provider):
    """Also for what it does not lack: the next comparisons are paid for once."""
    with serving(provider) as server:
        run(provider, server, HERE, n=2)
        copy = Path("copy.sqlite")
        shutil.copy(HERE, copy)  # the file alone, without its journal
        run(provider, server, HERE, n=6)
        bring_back(copy)
        assert n_stored(HERE) == 4
        assert run(provider, server, HERE, n=8) == 16
        assert bill(server) == (16, False)


@each_provider
def test_an_empty_store_recovers_the_batches_of_its_account_if_asked(provider, place):
    """Without being asked it leaves what other stores have submitted."""
    with serving(provider) as server:
        made = judge(provider, server)
        run(provider, server, Path("lost.sqlite"))
        with Store(place) as store:
            assert pipeline.recover(made, store) == 2
            assert pipeline.recover(made, store) == 0
        assert n_stored(place) == 2 * N
        assert run(provider, server, place) == 2 * N
        assert bill(server) == (2 * N, False)
        [(value, *_), *_] = rows(place, "SELECT value FROM answers")
        assert json.loads(value)["judge_model"] == made.model
        assert json.loads(value)["dollars"] > 0
        other = Path("other.sqlite")
        run(provider, server, other)
        assert bill(server) == (4 * N, True)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_lost_batch_that_still_runs_is_waited_for(provider, caplog):
    """OpenAI says whose it is. Of Anthropic's that shows at its end: a run warns of it, and recover waits."""
    with serving(provider, polls_to_end=10**9) as server:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(batches, "Clock", Impatient)
            run(provider, server, HERE)
        forget(HERE)
        server.polls_to_end = 3
        if provider == "anthropic":
            with Store(HERE) as store:
                assert pipeline.recover(judge(provider, server), store) == 2
        assert run(provider, server, HERE) == 2 * N
        assert bill(server) == (2 * N, False)


def test_a_batch_of_anthropic_s_that_runs_is_warned_of(caplog):
    with serving("anthropic", polls_to_end=10**9) as server:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(batches, "Clock", Impatient)
            run("anthropic", server, HERE)
        server.polls_to_end = 3
        other = Path("other.sqlite")
        assert run("anthropic", server, other, n=1) == 2
        assert "has 2 batches under way that are not in the cache" in caplog.text


def test_a_foreign_batch_that_cannot_be_read_stops_nobody():
    with serving("anthropic") as server:
        run("anthropic", server, Path("others.sqlite"))
        server.fault("GET", "/results$", Status(403), nth=1)
        assert run("anthropic", server, HERE) == 2 * N


def test_batches_of_others_are_read_to_their_first_row_and_not_all_of_them():
    """Each once, and a limited number."""
    with serving("anthropic") as server:
        for n in range(1, 4):
            run("anthropic", server, Path(f"others{n}.sqlite"), n=n)
        n_batches, before = len(server.batches), server.meter.count("GET", "/results$")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lost_batches, "_MAX_UNKNOWN_BATCHES_READ", 2)
            run("anthropic", server, HERE, n=1)
        assert server.meter.count("GET", "/results$") - before == 2 + 1 < n_batches


# The journal


def killed_and_robbed(here: World, *arguments: str) -> int:
    """A run that is killed after a commit, and whose journal is deleted; how many answers that loses."""
    ran = here.run(*arguments)
    assert ran.code == -SIGKILL, ran.said
    assert isinstance(here.store, Path)
    alone = here.store.with_name("alone.sqlite")
    shutil.copy(here.store, alone)
    n_alone = rows(alone, "SELECT COUNT(*) FROM answers")[0][0]
    n_with = rows(here.store, "SELECT COUNT(*) FROM answers")[0][0]
    for journal in here.store.parent.glob("store.sqlite-*"):
        journal.unlink()
    shutil.copy(alone, here.store)
    assert rows(here.store, "PRAGMA integrity_check") == [("ok",)]
    return int(n_with - n_alone)


def kill_at(nths: range, everyday: int) -> Callable[..., None]:
    return pytest.mark.parametrize(
        "nth",
        [
            pytest.param(n, marks=() if n == everyday else pytest.mark.faults)
            for n in nths
        ],
    )


@pytest.mark.system
@each_provider
@kill_at(range(1, 55), everyday=30)
def test_law_without_its_journal_a_store_has_lost_one_commit_at_most(
    provider, nth, tmp_path
):
    """The results of a batch are read again, so that nothing is paid for twice."""
    with world(tmp_path / "world", provider=provider) as here:
        lost = killed_and_robbed(here, "--kill-after-commit", str(nth))
        assert lost <= 2  # results in one transaction
        assert here.run().code == 0
        here.check(here.known())


@kill_at(range(3, 102, 7), everyday=52)
def test_law_without_its_journal_a_store_of_single_answers_has_lost_one_at_most(
    nth, tmp_path
):
    singly = ("--transport", "messages")
    with world(tmp_path / "world") as here:
        lost = killed_and_robbed(here, *singly, "--kill-after-commit", str(nth))
        assert lost <= 1
        assert here.run(*singly).code == 0
        assert len(answers(here.store)) == N_QUERIES
        # those on their way when it was killed, of 4 at a time, and the one that was lost
        assert here.server.meter.billed_bodies.total() <= N_QUERIES + 4 + 1


def test_a_store_counts_the_answers_that_it_ever_had(place):
    with serving("openai") as server:
        run("openai", server, place)
    with Store(place) as store:
        assert store.n_answers_ever() == 2 * N
        store.write(lambda db: db.execute("DELETE FROM answers"))
        assert store.n_answers_ever() == 2 * N
        assert Ledger(store).batches()[0].nonce.endswith(store.nonce_suffix)


@pytest.mark.system
def test_a_store_that_went_back_is_said_before_anything_is_paid_for(tmp_path):
    """By the manifests of runs beside it. The count of a store whose answers were purged does not go back."""
    words = ("rubric=[factuality]", "judging.limit_pairs=4", "tracker=local", *FAST)
    first = command(*words, "hydra.run.dir=outputs/first", folder=tmp_path)
    store = tmp_path / "outputs/cache/store.sqlite"
    copy = Path(shutil.copy(store, tmp_path / "copy.sqlite"))
    more = command(
        *words, "judging.limit_pairs=9", "hydra.run.dir=outputs/more", folder=tmp_path
    )
    n = [ran.read("manifest.json")["store"]["n_answers"] for ran in (first, more)]
    assert 0 < n[0] < n[1]
    shutil.copy(copy, store)
    again = command(*words, "hydra.run.dir=outputs/again", folder=tmp_path)
    said = f"this store had {n[1]} answers and has {n[0]}"
    assert said in again.err + again.out
    write(store, "DELETE FROM answers")
    after = command(*words, "hydra.run.dir=elsewhere/after", folder=tmp_path)
    assert "this store had" not in after.err + after.out
