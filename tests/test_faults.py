"""Whatever goes wrong, and wherever a run is killed: nothing is lost, nothing is paid twice, nothing past the budget.

The invariants are those of the judge's design: tests/killing.py asserts them, and the docstrings here name them.

    make test                                                        # one of each kind
    make test-system                                                 # an everyday subset, the others of it
    make test-faults                                                 # every write, every call, every fault
    python -m pytest -m "" tests/test_faults.py -k "write and 17"    # some of it

The negative controls come last: mistakes put into the judge on purpose, which the same invariants have to see.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import product
from pathlib import Path
from signal import SIGKILL
from typing import Any

import anthropic
import pytest

from tests import commands
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import (
    LOW_BALANCE,
    Canceled,
    Errored,
    Expired,
    NoisyBradleyTerry,
    Outcome,
    Says,
    StopReason,
    longer,
)
from tests.batch_server import (
    DAY,
    AlienRow,
    Clock,
    DoubleAccept,
    DropRows,
    DupRow,
    Fate,
    LateAccept,
    NeverEnd,
    UnknownType,
)
from tests.http_server import (
    AcceptThenHang,
    AcceptThenReset,
    AcceptThenStatus,
    Call,
    Fault,
    ResetBefore,
    SlowBody,
    Stage,
    Status,
    Truncate,
)
from tests.killing import (
    BATCH,
    BATCHES,
    COUNT,
    JUDGE,
    MESSAGES,
    MODEL,
    N_QUERIES,
    RESULTS,
    UPLOAD,
    Ran,
    Watch,
    World,
    answers,
    attempt,
    bill_is_bounded,
    ledger_agrees,
    metered,
    paid_once,
    read,
    reference,
    said_to,
    stored_within,
    submissions,
    usage_agrees,
    world,
)
from tests.stores import empty_schema

# What a run does to which nothing happens; the matrix kills it at each of these. A test below counts them anew.
COMMITS = {"anthropic": 58, "openai": 54, "gemini": 54}
CALLS = {
    "anthropic": {
        ("GET", MODEL): 1,
        ("POST", COUNT): 6,
        ("GET", BATCHES): 13,
        ("POST", BATCHES): 12,
        ("GET", BATCH): 24,
        ("GET", RESULTS): 12,
    },
    "openai": {
        ("GET", MODEL): 1,
        ("POST", UPLOAD): 10,
        ("GET", BATCHES): 12,
        ("POST", BATCHES): 10,
        ("GET", BATCH): 20,
        ("GET", RESULTS): 10,
    },
    "gemini": {
        ("GET", MODEL): 1,
        ("GET", BATCHES): 1,
        ("POST", BATCHES): 10,
        ("GET", BATCH): 20,
    },
}
PROVIDERS = tuple(CALLS)
MESSAGE_COMMITS = 101
NAMES = {
    COUNT: "count",
    UPLOAD: "upload",
    BATCHES: "batches",
    BATCH: "batch",
    RESULTS: "results",
    MESSAGES: "messages",
    MODEL: "model",
}
STAGES: tuple[Stage, ...] = ("before", "accepted", "answered")
FOURTH = 4  # the first submission that is neither a pre-warm nor the measured chunk

CUT = {  # what may become of an answer on its way
    "cut at 0": Truncate(at_byte=0, how="clean"),
    "cut, reset": Truncate(at_byte=60, how="rst"),
    "cut, closed": Truncate(at_byte=60, how="eof"),
    "cut": Truncate(at_byte=60, how="clean"),
    "slow": SlowBody(pause=0.005, piece=40),
}
LOST = {  # what may become of a submission, without the client's knowing whether it was accepted
    "reset before": ResetBefore(),
    "reset after": AcceptThenReset(),
    **{f"{code} after": AcceptThenStatus(code) for code in (500, 504, 529)},
    "late": LateAccept(0.3),
    **{str(code): Status(code) for code in (500, 408, 409, 529)},
    **{f"answer {name}": fault for name, fault in CUT.items()},
}
UNHEARD = {  # what may become of a question, free
    "reset": ResetBefore(),
    "reset after": AcceptThenReset(),
    "500": Status(500),
    "529": Status(529),
    "429": Status(429, headers={"retry-after": "0.02"}),
    **CUT,
}
SPOILT = {  # what may become of a results file
    **{
        f"{how} after {n} rows": Truncate(after_rows=n, how=how)
        for how in ("rst", "eof", "clean")
        for n in (0, 1, 3)
    },
    "a row short": DropRows(1),
    "empty": DropRows(5),
    "a row twice": DupRow(),
    "an alien row": AlienRow(),
    "an unknown type": UnknownType(),
    "404": Status(404),
    "slow": SlowBody(pause=0.002, piece=200),
}
PASSING_SPOILT = {
    name: fault
    for name, fault in SPOILT.items()
    if name not in ("clean after 0 rows", "empty")
}
SINGLY = ("--transport", "messages")
NTHS = (1, 3, FOURTH, 12)  # of the submissions


@pytest.fixture
def provider() -> str:
    """Whose batches: a parameter of the matrix; Anthropic's elsewhere, whose judge has a prompt cache to be measured, too."""
    return "anthropic"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.faults)])
def engine(request: pytest.FixtureRequest) -> str:
    """Of the store: PostgreSQL has the whole matrix in `make test-faults`, and every day what is `on_both`."""
    return str(request.param)


on_both = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


@pytest.fixture
def here(tmp_path: Path, provider: str, engine: str) -> Iterator[World]:
    """A server, a store and the clients that use both; a test may change the server's settings."""
    with world(tmp_path / "world", provider=provider) as made:
        if engine == "postgres":
            made.store = empty_schema()
        yield made


def each(
    names: str,
    cases: Iterable[Any],
    *,
    everyday: int = 0,
    name: Callable[[Any], str] = str,
) -> Any:
    """The cases as parameters: so many of them, evenly spread, are everyday ones, the others
    scenarios of `make test-faults`. One of three everyday ones, and one at least, is run by
    `make test`, the others by `make test-system`."""
    some = list(cases)
    chosen = [len(some) * (2 * n + 1) // (2 * everyday) for n in range(everyday)]
    marks = dict.fromkeys(chosen, (pytest.mark.system,))
    marks |= dict.fromkeys(chosen[everyday // 2 % 3 :: 3], ())
    parameters = [
        pytest.param(
            *(case if "," in names else (case,)),
            id=name(case),
            marks=marks.get(i, (pytest.mark.faults,)),
        )
        for i, case in enumerate(some)
    ]
    return pytest.mark.parametrize(names, parameters)


def words(case: Iterable[Any]) -> str:
    return " ".join(NAMES.get(part, str(part)) for part in case)


def finishes(here: World, *arguments: str) -> Ran:
    """The same command again, which comes to its end: and everything that must hold then."""
    ran = ends(here, *arguments)
    here.check(here.known())
    return ran


def ends(here: World, *arguments: str) -> Ran:
    ran = here.run(*arguments)
    assert ran.code == 0, ran.said
    return ran


def fails(here: World, *arguments: str, saying: str) -> Ran:
    """A run that ends with exit code 2, and with words that are wanted."""
    ran = here.run(*arguments)
    assert ran.code == 2, ran.said
    message = ran.said[ran.said.rfind("\nerror: ") + 1 :]
    assert re.search(saying, message, re.DOTALL), ran.said
    return ran


def killed(here: World, *arguments: str) -> None:
    """A run that is killed on its way, and what it leaves: a sound store, with true answers only (I4)."""
    ran = here.run(*arguments)
    assert ran.code == -SIGKILL, f"it was not killed: {ran.said}"
    stored_within(here.store, here.known())


def lost_submission(here: World, name: str, *nths: int) -> None:
    for nth in nths:
        here.server.fault("POST", BATCHES, LOST[name], nth=nth)


def ids(call: Call) -> list[str]:
    return [each["custom_id"] for each in call.json()["requests"]]


def of_each(cases: Callable[[str], Iterable[Any]]) -> list[tuple[Any, ...]]:
    """The cases of each provider, behind its name."""
    return [
        (name, *(case if isinstance(case, tuple) else (case,)))
        for name in PROVIDERS
        for case in cases(name)
    ]


def keys_sent(server: AnthropicServer) -> Counter[str]:
    """How often each question was submitted, by its key."""
    sent = [custom_id for call in submissions(server) for custom_id in ids(call)]
    return Counter(custom_id[9:] for custom_id in sent)


def raw(ran: Ran, dimension: str = "factuality") -> list[list[str]]:
    """The verdicts of each battle."""
    rows = json.loads(ran.table)[dimension]
    return [[verdict["verdict"] for verdict in row["raw"]] for row in rows]


# Nothing happens


@pytest.mark.system
def test_what_a_run_sends_what_it_costs_and_that_it_is_not_asked_twice(here):
    """I1 to I9 of a run to which nothing happens. I8: the pre-warm is a wanted query, alone in its batch."""
    ran = finishes(here)
    usage_agrees(here.server, ran.usage)
    first_of = {}
    for call in submissions(here.server):
        for each in call.json()["requests"]:
            first_of.setdefault(each["params"]["system"][0]["text"], (call, each))
    for call, first in first_of.values():
        assert call.json()["requests"] == [first]
        assert "«p0»" in said_to(first["params"])
    table = json.loads(ran.table)["factuality"]
    assert {(row["winner"], row["inconsistent"], row["invalid"]) for row in table} >= {
        ("bob", False, False),
        (None, True, False),
    }


@pytest.mark.system
def test_the_matrix_kills_at_every_write_and_every_call():
    """Where a run writes or asks more or less often than it did, the numbers at the top have to follow."""
    for name in PROVIDERS:
        assert reference(provider=name).commits == COMMITS[name]
        assert reference(provider=name).calls == CALLS[name]
    assert reference("--transport", "messages").commits == MESSAGE_COMMITS


@pytest.mark.system
def test_a_fresh_interpreter_does_the_same_with_warnings_as_errors(here):
    done = attempt(here)
    assert done.returncode == 0, done.stderr
    here.check(reference())


@pytest.mark.system
def test_swapping_the_two_responses_swaps_the_verdict(tmp_path, here):
    """I11: for a judge without a position bias the winners are the same; the same texts are not paid for again."""

    def winners(ran: Ran) -> list[Any]:
        tables = json.loads(ran.table).values()
        return [[row["winner"] for row in rows] for rows in tables]

    here.server.verdicts = longer
    with world(tmp_path / "other", verdicts=longer) as other:
        plain, mirrored = here.run(), other.run("--mirrored")
    assert winners(plain) == winners(mirrored)
    swapped = {"A": "B", "B": "A", "TIE": "TIE"}
    assert raw(mirrored) == [[swapped[v] for v in pair] for pair in raw(plain)]
    n_posts = here.server.meter.posts()
    assert winners(here.run("--mirrored")) == winners(plain)
    assert here.server.meter.posts() == n_posts


@each("order", ["given", "reversed"])
def test_the_order_of_the_results_changes_nothing(here, order):
    """I5"""
    here.server.order = order
    finishes(here)


@pytest.mark.system
@each("provider, name", of_each(lambda _: [None, *LOST]), everyday=3, name=words)
def test_two_servers_whose_batches_have_the_same_ids(here, tmp_path, provider, name):
    """One store, two endpoints: each is paid once, whatever becomes of the second's submissions."""
    here.server.counts_ids = True
    first = ends(here)
    with world(tmp_path / "other", provider=provider, counts_ids=True) as other:
        other.store = here.store
        if name:
            lost_submission(other, name, *NTHS)
        second = ends(other)
        assert second.table == first.table
        n = len(here.known().answers)
        for each_server in (here.server, other.server):
            paid_once(each_server, n=n)
            ledger_agrees(each_server, here.store)
        n_posts = other.server.meter.posts()
        assert ends(other).table == second.table
        assert other.server.meter.posts() == n_posts
    both = {batch.id for batch in here.server.batches}
    assert both & {batch.id for batch in other.server.batches} == both


# Killed at a write, at a call, at any time

WRITES = of_each(lambda name: product(("before", "after"), range(1, COMMITS[name] + 1)))


@each("provider, moment, nth", WRITES, everyday=6, name=words)
def test_killed_at_a_write(here, moment, nth):
    killed(here, f"--kill-{moment}-commit", str(nth))
    finishes(here)


@pytest.mark.system
@each("nth", range(1, COMMITS["anthropic"] // 2), everyday=1)
def test_killed_at_a_write_in_one_order_and_both_asked_later(here, nth):
    """Half of the questions; both orders then take what is there and ask the other half."""
    one = ("--orders", "one")
    killed(here, "--kill-after-commit", str(nth), *one)
    ends(here, *one)
    here.check(reference(*one), *one)
    n_one, n_both = (len(reference(*some).answers) for some in (one, ()))
    assert n_both / 2 <= n_one < n_both
    finishes(here)


LOSSES = [
    (transport, moment, nth)
    for transport in ((), SINGLY)
    for moment in ("before", "after")
    for nth in range(2, COMMITS["anthropic"] + 1 if not transport else 100, 2)
]


@pytest.mark.system
@pytest.mark.parametrize("engine", ["postgres"])
@each("transport, moment, nth", LOSSES, everyday=2, name=words)
def test_the_connection_to_the_store_is_lost_at_a_write(here, transport, moment, nth):
    """The run goes on as if nothing had happened, whether what it was committing is there or not."""
    ran = ends(here, *transport, f"--lose-{moment}-commit", str(nth))
    n = ran.said.count("the connection was lost and is back")
    assert n == (nth <= ran.result["commits"])
    here.check(reference(*transport), *transport)
    usage_agrees(here.server, ran.usage)


KILLS = of_each(
    lambda name: (
        (stage, *call, n)
        for call, times in CALLS[name].items()
        for stage in (*STAGES, *(("halfway",) if call[1] == RESULTS else ()))
        for n in range(1, times + 1)
    )
)


@each("provider, stage, method, path, nth", KILLS, everyday=6, name=words)
def test_killed_at_a_call(here, stage, method, path, nth):
    here.kill_on(stage, method, path, nth=nth)
    killed(here)
    finishes(here)


# Each of 2 looks is a wave, and a resolved pair is left out of the second.
FIRM = NoisyBradleyTerry(
    strengths=lambda response: {"ann:": 0.0, "bob:": 0.3, "cid:": 5.0}[response[:4]],
    tie_rate=0.2,
    seed=1,
)
LOOKS = ("--looks", "2", "--prompts", "60", "--orders", "one", "--chunk-size", "40")


@pytest.mark.system
@each("transport, nth", product(((), SINGLY), range(1, 200, 9)), everyday=2, name=words)
def test_killed_at_a_write_between_looks(here, transport, nth):
    """The same queries, the same resolved pairs, and nothing is paid twice."""
    here.server.verdicts, given = FIRM, (*LOOKS, *transport)
    known = reference(*given, verdicts=FIRM)
    ran = here.run("--kill-after-commit", str(nth), *given)
    assert ran.code in (0, -SIGKILL), ran.said
    stored_within(here.store, known)
    ended = ends(here, *given)
    if transport:
        bill_is_bounded(here.server, here.store)
    else:
        here.check(known, *given)
    assert ended.table == known.table
    resolved = json.loads(ended.table)["resolved"]
    n_prompts = [row["n_prompts"] for row in resolved]
    assert sorted(set(n_prompts)) == [30, 60]


TOURNAMENT = f"""
import sqlite3, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from elo_exp.__main__ import main
from elo_exp.api.transport import Clock
from tests import judging_process
Clock.elapsed = staticmethod(lambda: 1000 * time.monotonic())  # a quarantine in a second
Clock.sleep = staticmethod(lambda seconds: time.sleep(seconds / 1000))
nth, *sys.argv[1:] = sys.argv[1:]
judging_process.Commits.deaths = {{"after": int(nth)}}
sqlite3.connect = judging_process._counting(sqlite3.connect)
main()
"""


@each("transport, nth", product(("batches", "messages"), range(3, 12)), name=words)
def test_a_tournament_killed_at_the_registering_of_its_design(tmp_path, transport, nth):
    """From its first write on, through the first look: the same claims, and nothing is paid twice,
    but for single calls under way, which the bill names."""
    verdicts = NoisyBradleyTerry(strengths={"": 0.0}, tie_rate=0.2)
    with AnthropicServer(verdicts=verdicts, polls_to_end=0) as server:
        given = (
            *("judging.looks=2", "judging.orders=one", "judging.budget_usd=5"),
            *("+mode.strata.medqa=40", "entrant=[probe_reference,probe_swapped]"),
            *("rubric=[factuality]", "tracker=local", "figures=false", "judge=claude"),
            *(f"judge.base_url={server.url}", f"judge.transport={transport}"),
        )

        def play(folder: str, nth: int) -> commands.Ran:
            return commands.attempt_program(
                *(sys.executable, "-c", TOURNAMENT, str(nth), *given),
                folder=tmp_path / folder,
                ANTHROPIC_API_KEY=server.key,
                NO_PROXY="127.0.0.1",
            )

        assert play("killed", nth).code == -SIGKILL
        again = play("killed", 0)
        assert again.code == 0, again.err
        if transport == "batches":
            assert set(server.meter.billed_bodies.values()) == {1}
        bill_is_bounded(server, tmp_path / "killed/outputs/cache/store.sqlite")
        known = play("whole", 0)
        assert again.read("ratings.json") == known.read("ratings.json")


@pytest.mark.system
@each("provider, seed", of_each(lambda _: range(50)), everyday=2, name=words)
def test_killed_at_any_time_and_again(here, seed):
    """Batches take a while, so that most of the time is spent waiting, as in life."""
    rng = random.Random(seed)
    here.server.seconds_to_end = 0.05
    for _ in range(3):
        client = here.start()
        time.sleep(rng.uniform(0, 0.6))
        client.kill()
        client.wait()
        stored_within(here.store, here.known())
    finishes(here)


FULL = "cannot be used as the store .*disk is full"


@each("commit", range(1, COMMITS["anthropic"] + 1), everyday=1)
def test_the_disk_is_full_at_a_write(here, commit):
    """Said in words; and the next run, with room on the disk, goes on."""
    full = ("--fail-at-commit", str(commit), "--wait-minutes", "0")
    fails(here, *full, saying=FULL)
    stored_within(here.store, reference())
    finishes(here)


# A submission goes wrong

SUBMISSIONS = of_each(
    lambda name: product(LOST, range(1, CALLS[name]["POST", BATCHES] + 1))
)


@each("provider, name, nth", SUBMISSIONS, everyday=6, name=words)
def test_a_submission_of_which_nobody_knows_whether_it_arrived(here, name, nth):
    lost_submission(here, name, nth)
    ran = finishes(here)
    usage_agrees(here.server, ran.usage)
    assert name == "answer slow" or "looking for it" in ran.said


@pytest.mark.system
@each("name", LOST, everyday=1)
def test_all_submissions_go_wrong_and_batches_take_their_time(here, name):
    """Those that arrive are found when they have ended. Where none does, the run stops at the fifth in a row."""
    here.server.seconds_to_end = 0.2
    here.arguments = ("--chunk-size", "12")
    lost_submission(here, name, *range(1, 8))
    if name in ("reset before", "500", "408", "409", "529"):
        fails(here, saying="^error: 5 submissions in a row to .* did not arrive")
    finishes(here)


def test_the_answer_to_a_submission_comes_after_the_client_has_given_up(here):
    here.server.fault("POST", BATCHES, AcceptThenHang(0.8), nth=FOURTH)
    assert "looking for it" in finishes(here, "--timeout", "0.3").said


LOOKED_FOR = of_each(
    lambda name: product(("reset after", "late"), range(1, COMMITS[name] + 3))
)


@each("provider, name, write", LOOKED_FOR, name=words)
def test_killed_while_it_looks_for_a_lost_submission(here, name, write):
    """The fourth submission is lost; then the process is killed at a write."""
    lost_submission(here, name, FOURTH)
    ran = here.run("--kill-before-commit", str(write))
    assert ran.code in (0, -SIGKILL), ran.said
    stored_within(here.store, here.known())
    finishes(here)


REFUSALS = {
    400: r"refuses the batch \(400\): .*Refused",
    401: r"refuses the batch \(401\): .*ANTHROPIC_API_KEY",
    402: r"has no money or quota left \(.*balance",
    403: r"refuses the batch \(403\): .*may not",
    404: r"refuses the batch \(404\): .*base_url",
    422: r"refuses the batch \(422\): .*Refused",
}


@each("nth", NTHS, everyday=1)
@each("code", REFUSALS, everyday=2)
def test_a_submission_that_is_refused_stops_the_run_with_its_cause(here, code, nth):
    here.server.fault("POST", BATCHES, Status(code), nth=nth)
    fails(here, saying=f"{REFUSALS[code]}.*run the same command again")
    finishes(here)


@pytest.mark.system
def test_a_batch_that_is_too_large_is_halved(here):
    here.server.max_bytes = 25_000
    finishes(here)
    assert max(batch.n for batch in here.server.batches) == 2


@pytest.mark.faults
def test_a_single_request_that_is_too_large_stops_the_run(here):
    here.server.fault("POST", BATCHES, Status(413), nth=None)
    fails(here, saying=r"refuses the batch \(413\)")
    assert {len(ids(call)) for call in submissions(here.server)} == {1}


@pytest.mark.system
@each("nth", NTHS, everyday=1)
def test_the_server_asks_to_wait(here, nth):
    wait = Status(429, headers={"retry-after": "0.4"})
    here.server.fault("POST", BATCHES, wait, nth=nth)
    finishes(here)
    times = [call.time for call in submissions(here.server)]
    assert times[nth] - times[nth - 1] >= 0.4


UPLOADS = {
    **{name: fault for name, fault in LOST.items() if name != "late"},
    "429": Status(429, headers={"retry-after": "0.02"}),
}


@pytest.mark.parametrize("provider", ["openai"])
@each("name, nth", product(UPLOADS, (1, 3, 10)), everyday=1, name=words)
def test_an_upload_goes_wrong(here, name, nth):
    """Nothing was begun: it is made again, and no batch is looked for."""
    here.server.fault("POST", UPLOAD, UPLOADS[name], nth=nth)
    assert "looking for it" not in finishes(here).said


# Batches end early

NO_ROOM = {"openai": "token_limit_exceeded", "gemini": "8"}
EARLY = [
    (name, *case)
    for name in NO_ROOM
    for case in product(("before", "after"), range(1, 60))
]


@pytest.mark.system
@each("provider, moment, nth", EARLY, everyday=2, name=words)
def test_killed_at_a_write_while_batches_end_early(here, moment, nth):
    """One expires and one is cancelled on its way, one fails for want of room, and one is not run at all."""
    here.server.fates = {
        2: Fate(n_run=2),
        3: Fate(unanswered=Canceled(), n_run=1, is_silent=True),
        5: Fate(code=NO_ROOM[here.provider]),
        8: Fate(is_silent=True),
    }
    here.server.seconds_to_end = 0.02
    ran = here.run(f"--kill-{moment}-commit", str(nth))
    assert ran.code in (0, -SIGKILL), ran.said
    stored_within(here.store, here.known())
    finishes(here)


# A question goes wrong

QUESTIONS = of_each(
    lambda provider: (
        (name, path, nth)
        for (method, path), times in CALLS[provider].items()
        if method == "GET" and path != MODEL
        for name in UNHEARD
        for nth in sorted({1, 3, 4, times})
    )
)


@each("provider, name, path, nth", QUESTIONS, everyday=4, name=words)
def test_a_question_gets_no_answer(here, name, path, nth):
    here.server.fault("GET", path, UNHEARD[name], nth=nth)
    usage_agrees(here.server, finishes(here).usage)


@each("name", UNHEARD)
@each("path", (BATCHES, BATCH, RESULTS), name=NAMES.__getitem__)
def test_questions_get_no_answer_for_a_while(here, path, name):
    """More often than the SDK repeats them by itself; a results file less often than the judge reads it by itself."""
    for nth in range(5, 9):
        here.server.fault("GET", path, UNHEARD[name], nth=nth)
    finishes(here)


@each("nth", (1, 4, 5, CALLS["anthropic"]["GET", BATCH]))
def test_a_batch_is_unknown_for_a_while(here, nth):
    for k in range(3):
        here.server.fault("GET", BATCH, Status(404), nth=nth + k)
    finishes(here)


@pytest.mark.faults
def test_a_batch_stays_unknown(here):
    """As with the key of another workspace: nothing is submitted again by itself."""
    here.kill_on("answered", "POST", BATCHES, nth=FOURTH)
    killed(here)
    here.server.fault("GET", BATCH, Status(404), nth=None)
    for _ in range(2):
        fails(
            here,
            saying="unknown to .*another workspace.*store.action=repay store.batch=",
        )
    here.heal()
    finishes(here)


@each("name", ("reset", "500", "cut at 0"))
def test_tokens_that_cannot_be_counted_are_estimated(here, name):
    here.server.fault("POST", COUNT, UNHEARD[name], nth=None)
    assert "they are estimated" in finishes(here).said


# A results file goes wrong


# By provider: the calls whose answers are the results, as a path, and every how manyth of these
FETCHES = {"anthropic": (RESULTS, 1), "openai": (RESULTS, 1), "gemini": (BATCH, 2)}
FILES = of_each(lambda _: product(SPOILT, (1, 3, FOURTH, 10)))


def spoil(here: World, fault: Fault, nth: int) -> None:
    """From now on, the results of the nth batch."""
    path, every = FETCHES[here.provider]
    here.server.fault("GET", path, fault, nth=every * nth)


@each("provider, name, nth", FILES, everyday=4, name=words)
def test_a_results_file_is_spoilt_once(here, name, nth):
    spoil(here, SPOILT[name], nth)
    usage_agrees(here.server, finishes(here).usage)


STAYS_SPOILT = (
    "clean after 0 rows",
    "rst after 1 rows",
    "a row short",
    "an unknown type",
    "404",
)


@each("name", STAYS_SPOILT)
def test_a_results_file_stays_spoilt(here, name):
    """It is said which rows are missing, and nothing is submitted in their place; a whole file is taken in later."""
    for nth in range(FOURTH, FOURTH + 60):
        here.server.fault("GET", RESULTS, SPOILT[name], nth=nth)
    nothing = "It submits nothing again"
    fails(here, saying=f"results can be read.*Missing: .* p.*{nothing}")
    n_posts = here.server.meter.posts(BATCHES)
    fails(here, saying=nothing)
    assert here.server.meter.posts(BATCHES) == n_posts
    here.heal()
    finishes(here)


CUTS = of_each(lambda _: product(range(0, 1600, 97), ("rst", "eof", "clean")))


@each("provider, byte, how", CUTS, name=words)
def test_a_results_file_is_cut_at_a_byte(here, byte, how):
    """Also in the middle of a character."""
    spoil(here, Truncate(at_byte=byte, how=how), FOURTH)
    finishes(here)


def test_a_results_file_is_cut_within_a_character(here):
    class WithinACharacter(Truncate):
        def length(self, body: bytes) -> int:
            return body.index("é".encode()) + 1

    here.server.fault("GET", RESULTS, WithinACharacter(how="clean"), nth=FOURTH)
    finishes(here)


@each("name", SPOILT, everyday=1)
@each("nth", (1, FOURTH), everyday=1)
def test_the_proof_of_a_lost_submission_is_spoilt(here, name, nth):
    """The results of the batch that is looked for are needed to know it by. A short file proves nothing."""
    here.server.fault("POST", BATCHES, AcceptThenReset(), nth=nth)
    here.server.fault("GET", RESULTS, SPOILT[name], nth=nth)
    finishes(here)


# What is looked for: ours, all of it, and in time


def of_somebody_else(here: World, n: int) -> dict[str, int]:
    """A batch of so many requests that another program has submitted in the same workspace."""
    response = '<response_{0} id="">\n{1}:\n</response_{0} id="">\n'
    shown = response.format("a", "ann") + response.format("b", "bob")
    asked = [
        {
            "custom_id": f"somebody-else-{k}",
            "params": {
                "model": "claude-haiku-5-5",
                "max_tokens": 100,
                "messages": [
                    {
                        "role": "user",
                        "content": f"<question>\n{k}\n</question>\n{shown}",
                    }
                ],
            },
        }
        for k in range(n)
    ]
    with anthropic.Anthropic(base_url=here.server.url, api_key="test-key") as client:
        return {client.messages.batches.create(requests=asked).id: n}  # type: ignore[arg-type]


def at_the_fourth(
    here: World, do: Callable[[], Any], *, moment: Stage = "before"
) -> None:
    """Do this at the fourth submission."""

    def meanwhile(stage: Stage, call: Call) -> None:
        is_submission = call.method == "POST" and re.search(BATCHES, call.path)
        n = len(submissions(here.server))
        if stage == moment and is_submission and n == FOURTH:
            do()

    here.server.on_call = meanwhile


def lose_the_fourth(
    here: World, fault: Fault, *, moment: Stage = "before"
) -> dict[str, int]:
    """The fourth submission, of five requests, is lost as `fault` says, and somebody else submits five just then."""
    others: dict[str, int] = {}
    here.server.fault("POST", BATCHES, fault, nth=FOURTH)
    at_the_fourth(here, lambda: others.update(of_somebody_else(here, 5)), moment=moment)
    return others


STRANGERS = [
    *((name, "before") for name in LOST),
    ("reset after", "accepted"),
    ("500 after", "accepted"),
]


@pytest.mark.system
@each("name, moment", STRANGERS, everyday=2, name=words)
@each("seconds", (0, 0.3), everyday=1)
def test_the_batch_of_somebody_else_is_not_taken_for_ours(here, name, moment, seconds):
    """It has as many requests, and came while ours was lost; it is told by its ids, when it has ended."""
    here.server.seconds_to_end = seconds
    others = lose_the_fourth(here, LOST[name], moment=moment)
    ends(here)
    here.check(reference(), foreign=others)
    assert len(others) == 1


def test_a_submission_that_was_accepted_twice_is_a_loss_that_is_reported(here):
    """Which the API should never do. The bill is right all the same."""
    here.server.fault("POST", BATCHES, DoubleAccept(), nth=FOURTH)
    here.server.fault("POST", BATCHES, AcceptThenReset(), nth=FOURTH)
    ran = ends(here)
    assert "the server accepted one submission twice" in ran.said
    assert ran.table == reference().table
    assert ran.usage["dollars"] == pytest.approx(metered(here.server)[1])
    assert max(here.server.meter.billed.values()) == 2


@pytest.mark.faults
def test_a_submission_is_not_given_up_before_the_quarantine_has_passed(here):
    lost_submission(here, "reset before", FOURTH)
    finishes(here, "--quarantine", "1.5")
    sent = submissions(here.server)
    lost = {custom_id[9:] for custom_id in ids(sent[FOURTH - 1])}
    (again,) = (
        call for call in sent[FOURTH:] if lost & {name[9:] for name in ids(call)}
    )
    assert again.time - sent[FOURTH - 1].time >= 1.5


@pytest.mark.system
def test_a_submission_that_arrives_while_it_is_looked_for_the_last_time(here):
    """The list was drawn up before the quarantine had passed, and arrives after: it cannot say that nothing came."""
    searched: list[Call] = []

    def hold_up(stage: Stage, call: Call) -> None:
        is_search = (
            re.search(BATCHES, call.path) and call.query.get("limit", "1") != "1"
        )
        if stage == "accepted" and is_search:
            searched.append(call)
            time.sleep(1.4 if len(searched) == 1 else 0)

    here.arguments = ("--quarantine", "1.0")
    here.server.fault("POST", BATCHES, LateAccept(0.8), nth=FOURTH)
    here.server.on_call = hold_up
    finishes(here)
    assert searched


@pytest.mark.system
def test_the_quarantine_begins_when_the_answer_is_lost(here):
    """A submission may take longer than the quarantine to fail, and arrive after that."""
    here.arguments = ("--quarantine", "1.0")
    here.server.fault("POST", BATCHES, LateAccept(0.7), nth=FOURTH)
    at_the_fourth(here, lambda: time.sleep(1.2))
    finishes(here)


@pytest.mark.system
def test_what_another_run_has_left_unresolved_does_not_hold_up_this_one(here):
    """Killed between the intent of a pre-warm and its submission; then other questions are asked, with one store."""
    killed(here, "--kill-after-commit", "4")
    assert here.server.batches == []
    ends(here, "--max-tokens", "201")


# Requests fail


def fail(here: World, outcome: Outcome, *, runs: int = 99, of: str = "") -> None:
    """The first so many runs of each request whose user message holds this text."""
    here.server.outcomes = lambda params, run: (
        outcome if run <= runs and of in said_to(params) else None
    )


PASSING = {
    "api_error": Errored("api_error"),
    "overloaded": Errored("overloaded_error"),
    "rate limit": Errored("rate_limit_error"),
    "expired": Expired(),
    "canceled": Canceled(),
}


@each("runs", (1, 3), everyday=1)
@each("name", PASSING, everyday=1)
def test_what_fails_in_a_way_that_may_pass_is_asked_again(here, name, runs):
    fail(here, PASSING[name], runs=runs, of="«p1»")
    usage_agrees(here.server, finishes(here).usage)
    assert Counter(keys_sent(here.server).values()) == {1: 36, 1 + runs: 12}


@each("name", PASSING)
def test_everything_fails_once(here, name):
    fail(here, PASSING[name], runs=1)
    finishes(here)


@pytest.mark.system
def test_what_fails_four_times_has_failed_for_good(here):
    """It is said; the others are judged; and the next run asks it once more."""
    fail(here, Errored("api_error"), runs=4, of="«p2» é")
    fails(here, saying=r"\d+ of 48 verdicts are missing .*allow_missing=true")
    n_stored = len(answers(here.store))
    assert 0 < n_stored < N_QUERIES
    times = Counter(keys_sent(here.server).values())
    assert times == {1: n_stored, 4: N_QUERIES - n_stored}
    finishes(here)


each_transport = each("transport", ("batches", "messages"), everyday=1)
both_transports = pytest.mark.parametrize("transport", ["batches", "messages"])


@each_transport
def test_a_few_invalid_requests_are_left_out_and_not_repeated(here, transport):
    fail(here, Errored("invalid_request_error", "prompt is too long"), of="p0» ééé")
    ran = ends(here, "--transport", transport, "--allow-missing")
    n_failed = N_QUERIES - len(answers(here.store))
    assert 0 < n_failed < 20
    assert (
        f"{n_failed} queries have failed for good, {n_failed} of them with this error: "
        in ran.said
    )
    assert "prompt is too long" in ran.said
    paid_once(here.server, n=N_QUERIES - n_failed)
    stored_within(here.store, reference())


@each_transport
def test_many_invalid_requests_stop_the_run_with_their_cause(here, transport):
    here.arguments = ("--transport", transport, "--chunk-size", "50", "--cache", "none")
    fail(here, Errored("invalid_request_error", "effort: not for this model"))
    why = r"(\d+) queries have failed for good, \1 of them with this error: .*effort: not for this model"
    fails(here, "--allow-missing", saying=why)
    assert here.server.meter.billed_bodies.total() == 0
    here.server.outcomes = None
    finishes(here)


@both_transports
def test_an_account_that_runs_dry_stops_the_run(here, transport):
    """In the middle; what was paid for is kept, and the same command goes on once there is money."""
    here.arguments = ("--transport", transport)
    fail(here, LOW_BALANCE, of="«p2»")
    fails(here, "--allow-missing", saying="credit balance|no money or quota left")
    here.server.outcomes = None
    finishes(here)


PAID = {
    "refused": StopReason("refusal"),
    "cut off": StopReason("max_tokens"),
    "context window": StopReason("model_context_window_exceeded"),
    "no JSON": Says("I think that B is better."),
    "no verdict": Says('{"evidence_a": "", "evidence_b": "", "verdict": "C"}'),
    "nothing": Says(""),
}


@each_transport
@each("name", PAID, everyday=2)
def test_an_answer_that_is_no_verdict_is_paid_stored_and_not_asked_for_again(
    here, name, transport
):
    here.arguments = ("--transport", transport)
    fail(here, PAID[name], of="«p1»")
    ran = ends(here)
    for row in (row for rows in json.loads(ran.table).values() for row in rows):
        assert row["invalid"] == (row["prompt_id"] == "p1")
    usage_agrees(here.server, ran.usage)
    n_posts = here.server.meter.posts()
    assert here.run().table == ran.table
    assert here.server.meter.posts() == n_posts


# A judge whose replies hold nothing

CANARY = 4
WATCHED = ("--canary", str(CANARY))
MOST = (
    2 * 2 * (CANARY + 1)
)  # of two rubrics: two canaries, and the queries that warm the cache


def stops_at_the_canary(here: World, *given: str) -> None:
    """Whatever has happened to it before, and after two canaries without paying."""
    for _ in range(3):
        ran = here.run(*given)
        assert ran.code == 2 and "replies hold no verdict" in ran.said, ran.said
    assert here.server.meter.billed.total() <= MOST
    assert not here.server.meter.paid_twice


def goes_on_after_a_change(here: World, *given: str) -> None:
    """After a change of settings the run asks the judge again and keeps all paid answers."""
    n_before = len(read(here.store, "SELECT key FROM answers"))
    here.server.verdicts, here.server.outcomes = JUDGE, None
    ran = here.run(*given, "--max-tokens", "300")
    assert ran.code == 0, ran.said
    assert ran.table == reference(*given, "--max-tokens", "300").table
    assert not here.server.meter.paid_twice
    assert len(read(here.store, "SELECT key FROM answers")) == n_before + N_QUERIES


@each_transport
@each("moment, nth", product(("before", "after"), range(1, 25)), everyday=2, name=words)
def test_killed_while_the_canary_is_read(here, moment, nth, transport):
    given = (*WATCHED, "--transport", transport)
    here.server.verdicts = lambda shown: "neither"
    here.run(f"--kill-{moment}-commit", str(nth), *given)
    if transport == "messages":  # of which those on their way are lost with the process
        assert "replies hold no verdict" in here.run(*given).said
        assert here.server.meter.billed.total() <= MOST + 4
        return
    stops_at_the_canary(here, *given)
    goes_on_after_a_change(here, *given)


@pytest.mark.system
@each("name", PASSING, everyday=2)
def test_the_canary_fails_in_a_way_that_may_pass(here, name):
    here.server.verdicts = lambda shown: "neither"
    fail(here, PASSING[name], of="«p0»")
    stops_at_the_canary(here, *WATCHED)
    goes_on_after_a_change(here, *WATCHED)


@each_transport
def test_a_canary_that_says_something_changes_nothing(here, transport):
    given = (*WATCHED, "--transport", transport)
    assert here.run(*given).table == reference("--transport", transport).table
    assert not here.server.meter.paid_twice


# Several processes with one store


def share(here: World, *arguments: Sequence[str]) -> list[Ran]:
    """Clients that run side by side, each with arguments of its own; all of them finish."""
    clients = [here.start(*given) for given in arguments]
    ran = [client.wait() for client in clients]
    assert {each.code for each in ran} == {0}, [each.said for each in ran]
    return ran


CLIENTS = {
    "plain and plain": ([], []),
    "three": ([], [], []),
    "two sizes": (["--chunk-size", "3"], ["--chunk-size", "7"]),
    "messages and batches": (SINGLY, []),
    "messages and messages": (SINGLY, SINGLY),
    "some and all": (["--prompts", "2"], []),
    "caches": (["--cache", "none"], ["--cache", "5m"], ["--mirrored"]),
}


@each("name", CLIENTS, everyday=2)
@each("seconds", (0, 0.1), everyday=1)
def test_processes_share_a_store(here, name, seconds):
    """I10: each question is paid for once, and all of them conclude the same."""
    here.server.seconds_to_end = seconds
    ran = share(here, *CLIENTS[name])
    others = {"--mirrored", "--prompts"}
    for one, given in zip(ran, CLIENTS[name], strict=True):
        assert one.table == reference().table or others & set(given)
    here.check(reference())
    dollars = sum(one.usage["dollars"] for one in ran)
    assert dollars == pytest.approx(metered(here.server)[1])


@each("name", LOST)
def test_processes_share_a_store_while_submissions_are_lost(here, name):
    """The batches of two clients are told apart."""
    here.server.seconds_to_end = 0.05
    lost_submission(here, name, 1, 3, 4, 6, 7)
    share(here, [], [])
    here.check(reference())


EITHER = of_each(
    lambda name: product(STAGES, range(1, CALLS[name]["POST", BATCHES] + 1))
)


@pytest.mark.system
@on_both
@each("provider, stage, nth", EITHER, everyday=2, name=words)
def test_one_of_two_processes_is_killed(here, stage, nth):
    """The other takes over what it has left, and pays for none of it again."""
    here.server.seconds_to_end = 0.05
    here.kill_on(stage, "POST", BATCHES, nth=nth)
    first, other = here.start(), here.start()
    ran = other.wait()
    first.wait()
    assert ran.code == 0, ran.said
    here.check(here.known())


@pytest.mark.faults
def test_a_process_that_is_stopped_keeps_what_it_has_claimed(here):
    """As when a laptop's lid is closed over one of two terminals: the other waits, and says for whom."""
    here.server.seconds_to_end = 0.1
    first = here.start()
    time.sleep(0.35)
    first.send(signal.SIGSTOP)
    other = here.start()
    time.sleep(1.5)
    first.send(signal.SIGCONT)
    assert (first.wait().code, other.wait().code) == (0, 0)
    here.check(reference())


# The budget


@pytest.mark.system
@each("seconds", (0, 0.1), everyday=1)
@both_transports
def test_what_may_be_spent_never_passes_the_cap(here, transport, seconds):
    """I12: at no time would the worst answers to everything that is under way bring the run past its cap."""
    cap = 0.06 if transport == "batches" else 0.07
    here.server.seconds_to_end = seconds
    here.arguments = ("--transport", transport, "--budget", str(cap))
    watch = Watch(here.server)
    finishes(here)
    assert max(watch.exposures) <= cap + 1e-9
    assert max(watch.exposures) > 0.7 * cap, "the cap was no constraint"


@pytest.mark.system
@both_transports
def test_a_run_stops_at_its_cap_and_goes_on_with_a_higher_one(here, transport):
    cap = 0.05 if transport == "batches" else 0.1
    arguments = ("--transport", transport, "--max-tokens", "400")
    here.arguments = arguments
    here.server.thinking_tokens, here.server.seconds_to_end = 300, 0.05
    watch = Watch(here.server)
    why = r"judging.budget_usd is too low .*: \$.* are spent.*with a higher judging.budget_usd"
    fails(here, "--budget", str(cap), saying=why)
    assert max(watch.exposures) <= cap
    assert 0.4 * cap < metered(here.server)[1] <= cap
    assert 0 < len(answers(here.store)) < N_QUERIES
    here.heal()
    ends(here, "--budget", "5")
    here.check(reference(*arguments, thinking_tokens=300))


@pytest.mark.system
@pytest.mark.parametrize(
    ("engine", "transport"),
    [
        ("sqlite", "batches"),
        ("sqlite", "messages"),
        ("postgres", "messages"),
        pytest.param("postgres", "batches", marks=pytest.mark.faults),
    ],
)
def test_processes_never_pass_a_cap_of_the_store_together_or_one_after_the_other(
    here, transport
):
    """Four jobs, whose own caps are far away, and then a loop of the same command: one cap of the month holds all."""
    cap = 0.05 if transport == "batches" else 0.1
    arguments = ("--transport", transport, "--max-tokens", "400")
    here.arguments = arguments
    here.server.thinking_tokens, here.server.seconds_to_end = 300, 0.05
    watch, month = Watch(here.server), ("--month-cap", str(cap))
    why = r"are spent in \d{4}-\d\d.*(with a higher caps.month_usd|Raise the cap with caps.month_usd)"
    for client in [here.start(*month) for _ in range(4)]:
        ran = client.wait()
        assert ran.code == 2
        assert re.search(why, ran.said, re.DOTALL), ran.said
    for _ in range(2):
        fails(here, *month, saying=why)
    assert max(watch.exposures) <= cap
    assert 0.4 * cap < metered(here.server)[1] <= cap
    assert 0 < len(answers(here.store)) < N_QUERIES
    here.heal()
    ends(here, "--month-cap", "5")
    here.check(reference(*arguments, thinking_tokens=300))


def test_a_plan_that_passes_the_cap_is_not_begun(here):
    why = "48 verdicts .* expected to cost .* cap is .*Nothing was spent"
    fails(here, "--budget", "0.001", saying=why)
    assert submissions(here.server) == []


# Time passes


@each("nth", NTHS, everyday=1)
def test_a_batch_expires_and_is_asked_again(here, nth):
    """I13: 24 hours pass while it does not end."""
    here.server.fault("POST", BATCHES, NeverEnd(), nth=nth)
    client = here.start()
    while len(submissions(here.server)) < nth:
        time.sleep(0.01)
    time.sleep(0.2)
    here.server.clock.advance(DAY + 60)
    ran = client.wait()
    assert ran.code == 0, ran.said
    here.check(reference())


@each("stage", ("accepted", "answered"), everyday=1)
def test_results_that_are_no_longer_kept_are_not_paid_for_again_by_themselves(
    here, stage
):
    """I13: 29 days after a run was killed, with the batch's id in the ledger or without."""
    here.kill_on(stage, "POST", BATCHES, nth=12)
    killed(here)
    here.server.clock.advance(30 * DAY)
    why = "no longer kept by the server.*store.action=repay store.batch=[0-9a-f]{8}"
    for _ in range(2):
        fails(here, saying=why)
    assert len(submissions(here.server)) == 12


@each("hours", (-30, 7), everyday=1)
def test_a_server_whose_clock_differs_from_ours(here, hours):
    """No deadline compares the two: a healthy batch is waited for, whatever the date."""
    here.server.clock, here.server.seconds_to_end = Clock(), 0.1
    here.server.clock.advance(hours * 3600)
    finishes(here)


@pytest.mark.system
@each("step", (3600, -3600), everyday=1)
def test_the_clock_is_set_while_a_lost_submission_is_looked_for(here, step):
    """The quarantine is of seconds that have passed."""
    here.server.seconds_to_end = 0.1
    here.arguments = ("--quarantine", "20")
    here.server.fault("POST", BATCHES, LateAccept(1.5), nth=2)
    finishes(here, "--clock-step", str(step))


@pytest.mark.faults
def test_killed_while_a_batch_expires(here):
    here.server.fault("POST", BATCHES, NeverEnd(), nth=FOURTH)
    here.kill_on("answered", "POST", BATCHES, nth=12)
    killed(here)
    here.server.clock.advance(DAY + 60)
    assert here.run("--kill-after-commit", "20").code == -SIGKILL
    finishes(here)


# The prompt cache


def breakpoints(server: AnthropicServer) -> list[set[str | None]]:
    """The times to live that each batch asks for."""
    return [
        {
            (each["params"]["system"][0].get("cache_control") or {}).get("ttl")
            for each in call.json()["requests"]
        }
        for call in submissions(server)
    ]


def test_a_cache_that_is_never_hit_is_not_written_any_more(here):
    """I14: two pre-warms and the measured chunk pay for writing it; the rest does not."""
    here.server.miss_rate = 1.0
    ran = finishes(here)
    assert breakpoints(here.server) == [{"1h"}] * 3 + [{None}] * 9
    assert "warning: prompt cache: no cache from here on: 0% of 2 requests" in ran.said
    assert ran.usage["cache"].startswith("no cache from here on")


@pytest.mark.faults
def test_a_cache_that_is_hit_now_and_then_is_kept_for_five_minutes(here):
    """Between 21% and 51% of hits."""
    here.server.miss_rate, here.server.seed = 0.6, 3
    here.arguments = ("--chunk-size", "20")
    ran = finishes(here)
    assert breakpoints(here.server)[:3] == [{"1h"}] * 3
    assert breakpoints(here.server)[3:] == [{"5m"}] * 2, ran.usage["cache"]


@each("cache", ("1h", "5m", "none"))
def test_the_cache_may_be_chosen(here, cache):
    here.arguments = ("--cache", cache)
    finishes(here)
    asked = set().union(*breakpoints(here.server))
    assert asked == {None if cache == "none" else cache}


def test_a_model_that_caches_no_prefix_so_short_and_takes_no_schema(here):
    here.arguments = ("--model", "claude-haiku-4-5", "--effort", "")
    ran = ends(here)
    why = "none: claude-haiku-4-5 caches no prefix of fewer than 4096 tokens"
    assert ran.usage["cache"].startswith(why)
    paid_once(here.server, n=N_QUERIES)
    usage_agrees(here.server, ran.usage)
    assert breakpoints(here.server) == [{None}] * len(here.server.batches)
    sent = [
        each for call in submissions(here.server) for each in call.json()["requests"]
    ]
    assert all("output_config" not in each["params"] for each in sent)
    known = json.loads(reference().table)["factuality"]
    assert raw(ran) == [[verdict["verdict"] for verdict in row["raw"]] for row in known]


# One message at a time


def n_lost(server: AnthropicServer) -> int:
    """How many answers were paid for once too often."""
    return sum(times - 1 for times in server.meter.billed_bodies.values())


def goes_on_singly(here: World) -> Ran:
    """A run that ends: at most as many answers were lost as were under way, and all of them are counted."""
    ran = ends(here)
    assert n_lost(here.server) <= 4
    bill_is_bounded(here.server, here.store)
    assert ran.table == reference().table
    return ran


SINGLE_KILLS = list(product(STAGES, range(1, N_QUERIES + 1)))


@each("stage, nth", SINGLE_KILLS, everyday=1, name=words)
def test_killed_at_a_message(here, stage, nth):
    """None of the answers that are stored is asked for again."""
    here.arguments = SINGLY
    here.kill_on(stage, "POST", MESSAGES, nth=nth)
    killed(here)
    meter, n_stored = here.server.meter, len(answers(here.store))
    n_posts = meter.posts(MESSAGES)
    assert n_posts - n_stored <= 4
    ran = goes_on_singly(here)
    assert meter.posts(MESSAGES) - n_posts == N_QUERIES - n_stored
    n_posts = meter.posts()
    assert here.run().table == ran.table
    assert meter.posts() == n_posts


SINGLE_WRITES = list(product(("before", "after"), range(1, MESSAGE_COMMITS + 1)))


@each("moment, nth", SINGLE_WRITES, everyday=1, name=words)
def test_killed_at_a_write_of_a_message(here, moment, nth):
    here.arguments = SINGLY
    killed(here, f"--kill-{moment}-commit", str(nth))
    goes_on_singly(here)


@each("commit", range(1, MESSAGE_COMMITS + 1))
def test_the_disk_is_full_at_a_message(here, commit):
    """No answer is paid for twice: the next run takes in those that the store did not take."""
    here.arguments = SINGLY
    full = ("--fail-at-commit", str(commit), "--wait-minutes", "0")
    fails(here, *full, saying=FULL)
    goes_on_singly(here)
    assert n_lost(here.server) == 0


LOST_SINGLY = {name: fault for name, fault in LOST.items() if name != "late"}
LOST_SINGLY["429"] = Status(429, headers={"retry-after": "0.2"})


@each("nth", (1, 2, 9, 48), everyday=1)
@each("name", LOST_SINGLY, everyday=2)
def test_a_message_gets_no_answer(here, name, nth):
    """It is asked again: the API knows no other way. What may be lost is as many answers as were."""
    here.arguments = SINGLY
    here.server.fault("POST", MESSAGES, LOST_SINGLY[name], nth=nth)
    ran = ends(here)
    assert n_lost(here.server) == ("after" in name or "cut" in name)
    is_free = name in ("answer slow", "429") or "529" in name
    assert ran.usage["calls_lost"] == (not is_free)
    if name != "529 after":  # overloaded: a server that says so has billed nothing
        bill_is_bounded(here.server, here.store)
        _, dollars = metered(here.server)
        assert ran.usage["dollars"] <= dollars + 1e-9
        assert dollars <= ran.usage["dollars_at_most"] + 1e-9
    assert ran.table == reference().table
    assert here.server.meter.posts(MESSAGES) == N_QUERIES + (name != "answer slow")
    if name == "429":
        sent = [c for c in here.server.meter.calls if re.search(MESSAGES, c.path)]
        first = sent[nth - 1]
        (again,) = (call for call in sent[nth:] if call.body == first.body)
        assert again.time - first.time >= 0.2


def test_answers_that_may_have_been_lost_stay_in_the_budget(here):
    """Every answer is lost: what they may have cost is not spent a second time."""
    here.arguments = (*SINGLY, "--budget", "0.1")
    here.server.fault("POST", MESSAGES, AcceptThenReset(), nth=None)
    fails(here, saying="")
    assert metered(here.server)[1] <= 0.1
    bill_is_bounded(here.server, here.store)


@each("code", (401, 402, 403), everyday=1)
def test_a_message_that_is_refused_stops_the_run(here, code):
    here.arguments = SINGLY
    here.server.fault("POST", MESSAGES, Status(code), nth=9)
    fails(here, saying=f"refuses \\({code}\\).*Every answer so far is stored")
    finishes(here)


@each("nth", range(1, 13), everyday=1)
def test_batches_that_were_left_under_way_are_collected_by_a_run_of_messages(here, nth):
    here.kill_on("accepted", "POST", BATCHES, nth=nth)
    killed(here)
    ends(here, *SINGLY)
    here.check(reference())


# Everything at once


@pytest.mark.system
@each("provider, seed", of_each(lambda _: range(120)), everyday=2, name=words)
def test_a_history_of_faults_and_kills(here, seed):
    """Some faults, and three clients, two at a time, most of which are killed; then one that has to finish."""
    rng = random.Random(seed)
    here.server.seconds_to_end = rng.choice((0, 0.05, 0.2))
    if here.provider == "anthropic":
        here.server.miss_rate = rng.choice((0.0, 0.5, 1.0))
    for _ in range(rng.randint(1, 6)):
        lost_submission(here, rng.choice(list(LOST)), rng.randint(1, 20))
    for path, faults in (
        (BATCHES, UNHEARD),
        (BATCH, UNHEARD),
        (RESULTS, UNHEARD),
        (RESULTS, PASSING_SPOILT),
    ):
        for _ in range(rng.randint(0, 4)):
            fault = rng.choice(list(faults.values()))
            here.server.fault("GET", path, fault, nth=rng.randint(1, 40))
    running = []
    for size in [str(rng.randint(1, 12)) for _ in range(3)]:
        running.append(here.start("--chunk-size", size))
        time.sleep(rng.uniform(0, 0.8))
        if len(running) == 2 or rng.random() < 0.5:
            victim = running.pop(0)
            victim.kill()
            assert victim.wait().code in (0, -SIGKILL), victim.said
    for client in running:
        ran = client.wait()
        assert ran.code == 0, ran.said
    here.heal()
    finishes(here)


# The command itself

KEY = {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}


@each("which", (signal.SIGINT, SIGKILL))
def test_the_command_is_killed_and_given_again(here, which, tmp_path):
    here.server.verdicts = longer
    words = [
        "judge=sonnet",
        f"judge.base_url={here.server.url}",
        "judge.chunk_size=5",
        "judge.poll_initial_seconds=0.02",
        "judge.poll_max_seconds=0.04",
        "judge.quarantine_seconds=2",
        "mode.prompt_cache=measured",
        "rubric=[factuality]",
        "judging.limit_pairs=10",
        "judging.allow_equal=true",
        "judging.budget_usd=5",
        "elo.n_perms=20",
        "tracker=local",
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    started: Future[subprocess.Popen[str]] = Future()

    def perhaps_kill(stage: Stage, call: Call) -> None:
        n = len(submissions(here.server))
        if stage == "accepted" and call.method == "POST" and n == 3:
            process = started.result()
            process.send_signal(which)
            if which == SIGKILL:
                process.wait()

    here.server.on_call = perhaps_kill
    process = subprocess.Popen(
        commands.command(*words),
        cwd=folder,
        env=commands.environment(folder) | KEY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.set_result(process)
    _, said = process.communicate()
    assert process.returncode == (-SIGKILL if which == SIGKILL else 130), said
    here.heal()
    ran = commands.run(*words, folder=folder, **KEY)
    paid_once(here.server, n=12)  # equal texts are asked about once
    assert ran.read("elo_results.json")
    n_posts = here.server.meter.posts()
    commands.run(*words, folder=folder, **KEY)
    assert here.server.meter.posts() == n_posts


# Negative controls: the same harness must see these mistakes


def broken(here: World, name: str, *arguments: str) -> None:
    """A judge with this mistake in it, killed or not; and then again, with the mistake, to its end."""
    for ran in (here.run("--broken", name, *arguments), here.run("--broken", name)):
        assert ran.code != 1, f"this is a crash, and not the mistake: {ran.said}"


def sees(here: World, what: str, **foreign: Any) -> None:
    with pytest.raises(AssertionError, match=what):
        here.check(reference(), **foreign)


@pytest.mark.parametrize("name", ["sdk_retries", "naive_resubmission"])
@each("fault", ("reset after", "500 after"), everyday=1)
def test_control_a_lost_answer_and_a_second_submission(here, name, fault):
    lost_submission(here, fault, FOURTH)
    broken(here, name)
    sees(here, "paid twice: 5 of 48")


def test_control_no_intent_before_the_submission(here):
    here.kill_on("accepted", "POST", BATCHES, nth=FOURTH)
    broken(here, "no_intent")
    sees(here, "paid twice: 5 of 48")


@pytest.mark.faults
def test_control_no_intent_harms_nobody_while_nothing_happens(here):
    """Which is why the mistake is easily made."""
    broken(here, "no_intent")
    here.check(reference())


@pytest.mark.system
def test_control_no_quarantine(here):
    here.server.fault("POST", BATCHES, LateAccept(2.0), nth=FOURTH)
    ends(here, "--quarantine", "0")
    time.sleep(2.0)
    sees(here, "paid twice: 5 of 48")


def test_control_a_short_results_file_is_taken_for_whole(here):
    cut = Truncate(after_rows=2, how="clean")
    here.server.fault("GET", RESULTS, cut, nth=FOURTH)
    broken(here, "short_file")
    sees(here, "paid twice: 3 of 48")


def test_control_a_batch_is_known_by_its_size_only(here):
    others = lose_the_fourth(here, ResetBefore())
    broken(here, "any_of_that_size")
    sees(here, "48 of 53 questions were paid|43|of 53", foreign=others)


@pytest.mark.system
def test_control_no_claims(here):
    here.server.seconds_to_end = 0.5
    clients = [here.start("--broken", "no_claims") for _ in range(2)]
    ran = [client.wait() for client in clients]
    assert 1 not in {each.code for each in ran}, f"this is a crash: {ran[0].said}"
    sees(here, "paid twice")


def test_control_a_budget_that_only_counts_what_has_come_back(here):
    here.server.polls_to_end = 1  # none ends before all are submitted
    watch = Watch(here.server)
    here.run("--budget", "0.06", "--broken", "no_reserves")
    assert max(watch.exposures) > 0.06


def test_control_a_batch_is_settled_before_its_answers_are_written(here):
    """Killed in between, after a results file has been read."""
    broken(here, "answers_before_commit", "--kill-after-commit", "38")
    sees(here, "paid twice: 1 of 48")
