"""Caps over all that a store pays for. tests/test_faults.py and test_paid_once.py hold every charge to the bill."""

import re
import shlex
import time
from collections.abc import Iterator

import pytest

from elo_exp.store.answer_store import Store
from elo_exp.store.caps import Account, Caps, OverCapError, pay, reserve_charge, settle
from elo_exp.store.claims import Claims
from elo_exp.store.database import Database
from elo_exp.store.ledger import Ledger
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import attempt, run
from tests.http_server import Status
from tests.paying import BATCH, BATCHES, SINGLE, claude, judged, paying
from tests.stores import Place, place

__all__ = ["paying", "place"]

MONTH = time.strftime("%Y-%m", time.gmtime())
CAPS = Caps(month_usd=10.0, sweep_usd=5.0, folder_usd=2.0)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with Store(place) as made:
        yield made


def room(store: Store, **account: str) -> dict[str, tuple[float, float]]:
    """Dollars spent and held by setting, the least room first."""
    store.account = Account(caps=CAPS, **account)
    return {row.setting: (row.dollars, row.reserved) for row in store.list_spending()}


def test_a_worked_example(store):
    """Two run folders of one sweep: each call is charged at its most, to all three, and then at its cost."""
    assert room(store) == {"caps.month_usd": (0, 0)}
    store.account = Account(caps=CAPS, sweep="s", folder="a")

    def one(db: Database) -> None:
        reserve_charge(db, store.account, "batch", 1.5)
        pay(db, "batch", 0.25)  # some of its results

    store.write(one)
    all_three = dict.fromkeys(
        ["caps.folder_usd", "caps.sweep_usd", "caps.month_usd"], (1.75, 1.5)
    )
    assert room(store, sweep="s", folder="a") == all_three

    def two(db: Database) -> None:
        settle(db, "batch", 0.0)  # the rest of its charge
        reserve_charge(db, store.account, "call", 1.0)

    store.write(two)
    found = room(store, sweep="s", folder="b")
    assert found["caps.folder_usd"] == (0, 0)
    assert found["caps.sweep_usd"] == found["caps.month_usd"] == (1.25, 1.0)

    def three(db: Database) -> None:
        settle(db, "call", 0.125)
        settle(db, "call", 0.125)  # settled once
        reserve_charge(db, store.account, "lost", 1.5)
        settle(db, "lost", None)  # nobody knows: as much as it may have cost

    store.write(three)
    found = room(store, sweep="s", folder="b")
    assert found["caps.folder_usd"] == (1.5, 0)
    assert found["caps.sweep_usd"] == (1.875, 0)
    assert room(store)["caps.month_usd"] == (1.875, 0)


def test_a_charge_that_passes_a_cap_is_not_made(store):
    store.account = Account(caps=CAPS, folder="a")
    for name in ("first", "second"):
        store.write(lambda db, name=name: reserve_charge(db, store.account, name, 1.0))
    with pytest.raises(OverCapError) as error:
        store.write(lambda db: reserve_charge(db, store.account, "third", 0.001))
    assert error.value.spent.setting == "caps.folder_usd"
    assert room(store, folder="a")["caps.folder_usd"] == (2.0, 2.0)


@pytest.mark.usefixtures("paying")
def test_a_batch_that_arrives_after_it_was_given_up_is_charged_again(store):
    """By whoever followed it, past any cap: it is under way."""
    with Claims(store) as claims:
        claims.take(["q"])
        ledger = Ledger(store, claims.owner)
        batch = ledger.record_intent(
            {"q": {}},
            [1.5],
            endpoint="https://api",
            judge_model="opus",
            ttl=None,
            high_water=None,
            now=1.0,
        )
        assert batch is not None
        assert ledger.abandon(batch, "not there")
        assert room(store)["caps.month_usd"] == (0, 0)
        store.account = Account(caps=Caps(month_usd=1.0))
        ledger.mark_submitted(batch, "msgbatch_1")
        ledger.mark_submitted(batch, "msgbatch_1")
        assert room(store)["caps.month_usd"] == (1.5, 1.5)
        ledger.record_results(batch, {"q": "expired"}, {}, {}, now=2.0)
    assert room(store)["caps.month_usd"] == (0, 0)


# The command


@pytest.mark.system
@pytest.mark.usefixtures("paying")
def test_a_cap_of_the_month_is_planned_with_said_and_held(tmp_path):
    """A plan says what is left; a run that it cannot hold is not begun; the store lists it."""
    with AnthropicServer(verdicts=longer) as server:
        _, usage = judged(claude(server.url, transport="messages", cache="none"), 3)
        n_sent = server.meter.posts(f"{SINGLE}|{BATCHES}")
        cap = ("caps.month_usd=0.05", "cache_dir=.")
        words = (
            *("mode=pilot", "judge=haiku", f"judge.base_url={server.url}", *cap),
            *("entrant=[probe_reference,probe_hedged]", "tracker=local"),
        )
        key = {"ANTHROPIC_API_KEY": "test-key"}
        planned = run(*words, "plan=true", folder=tmp_path, **key)
        refused = attempt(*words, folder=tmp_path, **key)
        assert server.meter.posts(f"{SINGLE}|{BATCHES}") == n_sent
    listed = run("experiment=store", *cap, folder=tmp_path)
    dollars = re.escape(f"${usage.dollars:.6f}".rstrip("0"))
    of_cap = rf"caps.month_usd: \$0\.0\d of \$0\.05 are spent in {MONTH}"
    too_low = r"It is too low: \$0\.\d+ are needed, and \$0\.\d+ are left\."
    assert re.search(rf"\n  {of_cap}\. {too_low}\n$", planned.out)
    assert refused.code == 2
    message = (
        r"elo_exp: [\d,]+ verdicts by .* expected to cost .* of \$0.05 are spent.*\n"
        r"  Raise the cap with caps\.month_usd="
    )
    assert re.search(message, refused.err)
    assert re.search(rf"\nspent in {MONTH}: {dollars}\n{of_cap}, ", listed.out)
    assert re.search(r", \$0\.0\d left\nno open batches\n$", listed.out)


@pytest.mark.system
@pytest.mark.usefixtures("paying")
def test_the_store_names_the_command_that_goes_on_with_what_a_run_has_left(tmp_path):
    """Its cap of the run folder holds what is under way; the command that is printed collects it, and pays nothing twice."""
    with AnthropicServer(verdicts=longer) as server:
        words = (
            *("mode=pilot", "judge=haiku", f"judge.base_url={server.url}"),
            *("entrant=[probe_reference,probe_hedged]", "tracker=local"),
            *("judge.poll_initial_seconds=0.01", "judging.limit_pairs=4"),
            *("figures=false", "elo.n_perms=20", "rubric=[factuality]"),
            *("cache_dir=.", "judging.canary=0", "caps.month_usd=20"),
        )
        key = {"ANTHROPIC_API_KEY": "test-key"}
        server.fault("GET", BATCH, Status(401), nth=None)
        assert attempt(*words, folder=tmp_path, **key).code == 2
        listed = run("experiment=store", "cache_dir=.", folder=tmp_path)
        [again] = re.findall("^to continue: (.*)$", listed.out, re.MULTILINE)
        server.faults.clear()
        program, *given = shlex.split(again)
        assert (program, *given[:2]) == ("python", "-m", "elo_exp")
        assert {*given[2:-1]} == {*words}
        assert re.match("hydra.run.dir=.*/outputs/", given[-1])
        run(*given[2:], folder=tmp_path, **key)
        assert {*server.meter.billed.values()} == {1}
        # a loop of that command, with something new to ask, spends no more than the folder's cap
        more = (*given[2:], "judge.max_tokens=900", "caps.folder_usd=0.001")
        refused = attempt(*more, folder=tmp_path, **key)
        assert refused.code == 2
        assert "\nelo_exp: 8 verdicts" in refused.err
        assert "Raise the cap with caps.folder_usd=" in refused.err.splitlines()[-1]
    cap = "caps.folder_usd=0.001"
    listed = run("experiment=store", "cache_dir=.", cap, folder=tmp_path)
    of_cap = rf"caps.folder_usd: \$0.\d+ of \$0.001 spent by {re.escape(again)}, "
    assert re.search(of_cap + r"\$0.\d+ left\nno open batches\n$", listed.out)
