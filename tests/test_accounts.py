"""Only the account to which a submission went can say that it never arrived: `abandoned` needs its list of batches.

The real SDKs talk to real servers on 127.0.0.1, on which each key sees the batches of its workspace.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from elo_exp.api import batches
from elo_exp.api.transport import Clock
from elo_exp.errors import UserError
from elo_exp.experiments.store import _confirm, _repay
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_accounts import hash_account, same_account
from elo_exp.store.ledger import Ledger
from tests.batch_judges import each_provider, judged, machine, n_stored, serving
from tests.batch_server import BatchServer
from tests.http_server import AcceptThenReset, Call, Fault, ResetBefore, Stage
from tests.killing import BATCHES, SERVERS
from tests.stores import Place, place, rows, write

__all__ = ["machine", "place"]
pytestmark = pytest.mark.usefixtures("machine")

N = 3  # comparisons: 6 queries
OLD, ROTATED, OTHER = "test-key", "rotated-key", "other-key"
WORKSPACES = {ROTATED: "", OTHER: "of somebody else"}
HERE = Path("store.sqlite")


def use_key(key: str) -> None:
    patch = pytest.MonkeyPatch()
    for provider in SERVERS:
        patch.setenv(f"{provider.upper()}_API_KEY", key)


class Impatient(Clock):
    """Whoever has to wait gives up, as with Ctrl-C."""

    @staticmethod
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt


def lose_a_submission(
    provider: str, server: BatchServer, place: Place, fault: Fault, *, n: int = N
) -> None:
    """A run whose submission gets no answer, after which it sees no list any more, and is ended."""

    def cut_off(stage: Stage, call: Call) -> None:
        if call.method == "POST" and re.search(BATCHES, call.path):
            server.fault("GET", "", ResetBefore(), nth=None)

    server.fault("POST", BATCHES, fault)
    server.on_call = cut_off
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(batches, "Clock", Impatient)
        judged(provider, server, place, n=n)
    server.on_call = None
    server.faults.clear()
    assert rows(place, "SELECT state FROM batches WHERE state = 'intended'")


def the_batch(store: Store) -> str:
    (nonce,) = [b.nonce for b in Ledger(store).batches() if b.state == "intended"]
    return nonce


@pytest.mark.system
@each_provider
def test_a_key_of_another_workspace_denies_no_submission(provider, place):
    """Whose list is empty. Nothing is paid for by itself; the earlier key finds the batch."""
    with serving(provider, workspaces=WORKSPACES) as server:
        lose_a_submission(provider, server, place, AcceptThenReset())
        use_key(OTHER)
        commands = r"store\.action=confirm store\.batch=(\w+)\n.*store\.action=repay store\.batch=\1$"
        words = rf"(?s)^It is not known whether .* has \w+, a submission of 6 .*another key.*{commands}"
        for _ in range(2):
            with pytest.raises(UserError, match=words):
                judged(provider, server, place, n=N)
        assert server.meter.billed.total() in (0, 6)  # a batch may be run later
        assert n_stored(place) == 0
        use_key(OLD)
        assert judged(provider, server, place, n=N) == 6
        assert server.meter.billed.total() == n_stored(place) == 6


@pytest.mark.system
@each_provider
def test_a_rotated_key_finds_what_arrived_and_denies_nothing(provider):
    with serving(provider, workspaces=WORKSPACES) as server:
        lose_a_submission(provider, server, HERE, AcceptThenReset())
        use_key(ROTATED)
        assert judged(provider, server, HERE, n=N) == 6
        assert server.meter.billed.total() == 6
    with serving(provider, workspaces=WORKSPACES) as server:
        use_key(OLD)
        other = Path("other.sqlite")
        lose_a_submission(provider, server, other, ResetBefore())
        use_key(ROTATED)
        with pytest.raises(UserError, match="another key"):
            judged(provider, server, other, n=N)
        with Store(other) as store:
            assert "counts as a key of the account" in _confirm(store, the_batch(store))
        assert judged(provider, server, other, n=N) == 6
        assert server.meter.billed.total() == 6


@pytest.mark.system
def test_what_is_repaid_is_paid_again_and_found_later_by_the_key_that_sees_it():
    with serving("openai", workspaces=WORKSPACES) as server:
        lose_a_submission("openai", server, HERE, AcceptThenReset())
        use_key(OTHER)
        with pytest.raises(UserError, match="another key"):
            judged("openai", server, HERE, n=N)
        with Store(HERE) as store:
            _repay(store, the_batch(store))
        assert judged("openai", server, HERE, n=N) == 6
        use_key(OLD)
        assert judged("openai", server, HERE, n=N + 1) == 8
        assert server.meter.billed.total() == 14  # 6 were paid twice, as was asked for


@pytest.mark.system
def test_an_intent_of_an_older_version_is_not_denied():
    """Which did not note whose key it was. What has arrived is found all the same."""
    with serving("anthropic") as server:
        lose_a_submission("anthropic", server, HERE, ResetBefore())
        write(HERE, "DELETE FROM accounts")
        with pytest.raises(UserError, match="(?s)older version.*store.action=confirm"):
            judged("anthropic", server, HERE, n=N)
        with Store(HERE) as store:
            _confirm(store, the_batch(store))
        assert judged("anthropic", server, HERE, n=N) == 6
    with serving("anthropic") as server:
        other = Path("other.sqlite")
        lose_a_submission("anthropic", server, other, AcceptThenReset())
        write(other, "DELETE FROM accounts")
        assert judged("anthropic", server, other, n=N) == 6
        assert server.meter.billed.total() == 6


@pytest.mark.system
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_one_key_at_two_organizations_is_two_accounts(provider):
    """As behind a gateway."""
    with serving(provider, organization="one") as server:
        judged(provider, server, HERE, n=1)
        lose_a_submission(provider, server, HERE, ResetBefore())
        server.organization = "other"
        with pytest.raises(UserError, match="another key"):
            judged(provider, server, HERE, n=N)
        server.organization = "one"
        assert judged(provider, server, HERE, n=N) == 6


@pytest.mark.system
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_list_that_does_not_reach_back_denies_nothing(provider):
    """The batch that was the newest before is not in it."""
    with serving(provider) as server:
        judged(provider, server, HERE, n=1)
        lose_a_submission(provider, server, HERE, ResetBefore())
        server._batches.clear()
        words = "(?s)list no longer has the batch that was the newest before it.*repay"
        with pytest.raises(UserError, match=words) as error:
            judged(provider, server, HERE, n=N)
        assert "store.action=confirm" not in str(error.value)


@pytest.mark.system
def test_a_submission_that_nobody_wants_holds_nobody_up(caplog):
    """Of another run, with another key."""
    with serving("anthropic", workspaces=WORKSPACES) as server:
        lose_a_submission("anthropic", server, HERE, AcceptThenReset())
        write(HERE, "UPDATE queries SET key = 'x' || key")
        use_key(OTHER)
        assert judged("anthropic", server, HERE, n=N) == 6
        assert "It is not known whether" in caplog.text


def attempt(
    provider: str, server: BatchServer, place: Place, fault: Fault | None, n: int
) -> None:
    """A run of n comparisons, one of whose submissions may be lost, whatever comes of it."""
    try:
        if fault is None:
            judged(provider, server, place, n=n)
        else:
            lose_a_submission(provider, server, place, fault, n=n)
    except UserError as error:
        assert "It is not known whether" in str(error)
    finally:
        server.on_call = None
        server.faults.clear()


def history(provider: str, place: Place, seed: int) -> int:
    """Runs with whichever key and fault, each of more comparisons than the one before. Law: nothing is abandoned without
    the list of its own account. Return how many submissions were."""
    draw = random.Random(seed)
    with serving(provider, workspaces=WORKSPACES) as server:
        submitted_with: dict[str, str] = {}
        denied: set[str] = set()
        for n in range(1, 6):
            key = draw.choice([OLD, ROTATED, OTHER])
            use_key(key)
            fault = draw.choice([AcceptThenReset(), ResetBefore(), None])
            attempt(provider, server, place, fault, n)
            query = "SELECT nonce, state, note FROM batches"
            for nonce, state, note in rows(place, query):
                submitted_with.setdefault(nonce, key)
                if (state, nonce in denied) == ("abandoned", False):
                    assert "not accepted" in note
                    assert submitted_with[nonce] == key
                    denied.add(nonce)
    assert not server.meter.paid_twice
    return len(denied)


@pytest.mark.system
@each_provider
def test_law_nothing_is_abandoned_without_evidence_of_its_account(provider):
    history(provider, HERE, 1)


@pytest.mark.faults
@each_provider
@pytest.mark.parametrize("seed", range(2, 30))
def test_law_in_many_more_histories(provider, place, seed):
    history(provider, place, seed)


def test_accounts_are_one_by_key_and_organization():
    assert same_account("k", "k") and same_account("k/o", "k")
    assert same_account("k/o", "k/o")
    assert not same_account("k/o", "k/p") and not same_account("k", "l")


def test_a_store_shows_nobody_a_key():
    with Store(HERE) as store, Store(Path("other.sqlite")) as other:
        account = hash_account(store, "secret-key", "org")
        assert re.fullmatch("[0-9a-f]{16}/[0-9a-f]{16}", account)
        assert account != hash_account(other, "secret-key", "org")
