"""Whatever goes wrong, and wherever a run is killed: nothing is lost, nothing is paid twice, nothing past the budget.

The invariants are those of the judge's design: tests/killing.py asserts them, and the docstrings here name them.

    make test                                                        # an everyday subset
    make test-faults                                                 # every write, every call, every fault
    python -m pytest -m "" tests/test_faults.py -k "write and 17"    # some of it

The negative controls come last: mistakes put into the judge on purpose, which the same invariants have to see.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from signal import SIGKILL
from typing import Any

import anthropic
import pytest

from tests import commands
from tests.anthropic_server import (
    DAY,
    AcceptThenHang,
    AcceptThenReset,
    AcceptThenStatus,
    AlienRow,
    AnthropicServer,
    Call,
    Clock,
    DoubleAccept,
    DropRows,
    DupRow,
    Fault,
    LateAccept,
    NeverEnd,
    ResetBefore,
    SlowBody,
    Stage,
    Status,
    Truncate,
    UnknownType,
)
from tests.anthropic_verdicts import (
    LOW_BALANCE,
    Canceled,
    Errored,
    Expired,
    Outcome,
    Says,
    StopReason,
    longer,
)
from tests.killing import (
    BATCH,
    BATCHES,
    COUNT,
    MESSAGES,
    MODEL,
    N_QUERIES,
    RESULTS,
    Ran,
    Watch,
    World,
    answers,
    attempt,
    bill_is_bounded,
    metered,
    paid_once,
    reference,
    said_to,
    stored_within,
    submissions,
    usage_agrees,
    world,
)

# What a run does to which nothing happens; the matrix kills it at each of these. A test below counts them anew.
COMMITS = 58
CALLS = {
    ("GET", MODEL): 1,
    ("POST", COUNT): 6,
    ("GET", BATCHES): 12,
    ("POST", BATCHES): 12,
    ("GET", BATCH): 24,
    ("GET", RESULTS): 12,
}
MESSAGE_COMMITS = 101
NAMES = {
    COUNT: "count",
    BATCHES: "batches",
    BATCH: "batch",
    RESULTS: "results",
    MESSAGES: "messages",
    MODEL: "model",
}
STAGES: tuple[Stage, ...] = ("before", "accepted", "answered")
FOURTH = 4  # the first submission that is neither a pre-warm nor the measured chunk

LOST = {  # what may become of a submission, without the client's knowing whether it was accepted
    "reset before": ResetBefore(),
    "reset after": AcceptThenReset(),
    "500 after": AcceptThenStatus(500),
    "504 after": AcceptThenStatus(504),
    "529 after": AcceptThenStatus(529),
    "late": LateAccept(0.3),
    "500": Status(500),
    "408": Status(408),
    "409": Status(409),
    "529": Status(529),
    "answer cut at 0": Truncate(at_byte=0, how="clean"),
    "answer cut, reset": Truncate(at_byte=60, how="rst"),
    "answer cut, closed": Truncate(at_byte=60, how="eof"),
    "answer cut": Truncate(at_byte=60, how="clean"),
    "answer slow": SlowBody(pause=0.005, piece=40),
}
UNHEARD = {  # what may become of a question, which costs nothing
    "reset": ResetBefore(),
    "reset after": AcceptThenReset(),
    "500": Status(500),
    "529": Status(529),
    "429": Status(429, headers={"retry-after": "0.02"}),
    "cut at 0": Truncate(at_byte=0, how="clean"),
    "cut, reset": Truncate(at_byte=60, how="rst"),
    "cut, closed": Truncate(at_byte=60, how="eof"),
    "cut": Truncate(at_byte=60, how="clean"),
    "slow": SlowBody(pause=0.005, piece=40),
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


def scenarios(
    cases: Iterable[Any],
    *,
    everyday: Collection[Any] = (),
    name: Callable[[Any], str] = str,
) -> Any:
    """The cases as parameters, each a scenario of `make test-faults`, but for the everyday ones."""
    return [
        pytest.param(
            case, id=name(case), marks=() if case in everyday else pytest.mark.faults
        )
        for case in cases
    ]


def words(case: Iterable[Any]) -> str:
    return " ".join(NAMES.get(part, str(part)) for part in case)


def finishes(here: World, *arguments: str) -> Ran:
    """The same command again, which comes to its end: and everything that must hold then."""
    ran = here.run(*arguments)
    assert ran.code == 0, ran.said
    here.check(reference())
    return ran


def fails(here: World, *arguments: str, saying: str) -> Ran:
    """A run that ends with exit code 2, and with words that are wanted."""
    ran = here.run(*arguments)
    assert ran.code == 2, ran.said
    assert re.search(saying, ran.said.splitlines()[-1]), ran.said
    return ran


# Nothing happens


def test_what_a_run_sends_what_it_costs_and_that_it_is_not_asked_twice(tmp_path):
    """I1 to I9 of a run to which nothing happens."""
    with world(tmp_path) as here:
        ran = finishes(here)
        usage_agrees(here.server, ran.usage)
        first_of = {}
        for call in submissions(here.server):
            for each in call.json()["requests"]:
                first_of.setdefault(each["params"]["system"][0]["text"], (call, each))
    for (
        call,
        first,
    ) in first_of.values():  # I8: the pre-warm is a wanted query, alone in its batch
        assert call.json()["requests"] == [first]
        assert "«p0»" in said_to(first["params"])
    table = json.loads(ran.table)["factuality"]
    assert {(row["winner"], row["inconsistent"], row["invalid"]) for row in table} >= {
        ("bob", False, False),
        (None, True, False),
    }


def test_the_matrix_kills_at_every_write_and_every_call():
    """Where a run writes or asks more or less often than it did, the numbers at the top have to follow."""
    assert reference().commits == COMMITS
    assert reference().calls == CALLS
    assert reference("--transport", "messages").commits == MESSAGE_COMMITS


def test_a_fresh_interpreter_does_the_same_with_warnings_as_errors(tmp_path):
    with world(tmp_path) as here:
        done = attempt(here)
        assert done.returncode == 0, done.stderr
        here.check(reference())


def test_swapping_the_two_responses_swaps_the_verdict(tmp_path):
    """I11: for a judge without a position bias the winners are the same; the same texts are not paid for again."""

    def winners(ran: Ran) -> list[Any]:
        return [
            [row["winner"] for row in rows] for rows in json.loads(ran.table).values()
        ]

    def verdicts(ran: Ran) -> list[Any]:
        return [
            verdict["verdict"]
            for rows in json.loads(ran.table).values()
            for row in rows
            for verdict in row["raw"]
        ]

    with (
        world(tmp_path / "one", verdicts=longer) as one,
        world(tmp_path / "other", verdicts=longer) as other,
    ):
        plain, mirrored = one.run(), other.run("--mirrored")
        assert winners(plain) == winners(mirrored)
        assert verdicts(mirrored) == [
            {"A": "B", "B": "A", "TIE": "TIE"}[verdict] for verdict in verdicts(plain)
        ]
        assert {"A", "B", "TIE"} == set(verdicts(plain))
        n_posts = one.server.meter.posts()
        assert winners(one.run("--mirrored")) == winners(plain)
        assert one.server.meter.posts() == n_posts


@pytest.mark.parametrize("order", scenarios(["given", "reversed"]))
def test_the_order_of_the_results_changes_nothing(tmp_path, order):
    """I5"""
    with world(tmp_path, order=order) as here:
        finishes(here)


# Killed at a write, at a call, at any time


def killed(here: World, *arguments: str) -> None:
    """A run that is killed on its way, and what it leaves: a sound store, with true answers only (I4)."""
    ran = here.run(*arguments)
    assert ran.code == -SIGKILL, f"it was not killed: {ran.said}"
    stored_within(here.store, reference())


WRITES = list(itertools.product(("before", "after"), range(1, COMMITS + 1)))
SOME_WRITES = [
    ("before", 6),
    ("after", 6),
    ("before", 15),
    ("after", 31),
    ("after", COMMITS),
]


@pytest.mark.parametrize("write", scenarios(WRITES, everyday=SOME_WRITES, name=words))
def test_killed_at_a_write(tmp_path, write):
    with world(tmp_path) as here:
        killed(here, f"--kill-{write[0]}-commit", str(write[1]))
        finishes(here)


KILLS = [
    (stage, *call, n)
    for call, times in CALLS.items()
    for stage in (*STAGES, *(("halfway",) if call[1] == RESULTS else ()))
    for n in range(1, times + 1)
]
SOME_KILLS = [
    ("accepted", "POST", BATCHES, 1),
    *((stage, "POST", BATCHES, FOURTH) for stage in STAGES),
    ("halfway", "GET", RESULTS, 6),
]


@pytest.mark.parametrize("kill", scenarios(KILLS, everyday=SOME_KILLS, name=words))
def test_killed_at_a_call(tmp_path, kill):
    stage, method, path, nth = kill
    with world(tmp_path) as here:
        here.kill_on(stage, method, path, nth=nth)
        killed(here)
        finishes(here)


@pytest.mark.parametrize("seed", scenarios(range(50), everyday=range(1)))
def test_killed_at_any_time_and_again(tmp_path, seed):
    """Batches take a while, so that most of the time is spent waiting, as in life."""
    rng = random.Random(seed)
    with world(tmp_path, seconds_to_end=0.05) as here:
        for _ in range(3):
            client = here.start()
            time.sleep(rng.uniform(0, 0.6))
            client.kill()
            client.wait()
            stored_within(here.store, reference())
        finishes(here)


@pytest.mark.parametrize("commit", scenarios(range(1, COMMITS + 1), everyday=(15,)))
def test_the_disk_is_full_at_a_write(tmp_path, commit):
    """Said in words; and the next run, with room on the disk, goes on."""
    with world(tmp_path) as here:
        fails(
            here,
            "--fail-at-commit",
            str(commit),
            saying="cannot be used as the store .*disk is full",
        )
        stored_within(here.store, reference())
        finishes(here)


# A submission goes wrong

SUBMISSIONS = list(itertools.product(LOST, range(1, 13)))
SOME_SUBMISSIONS = [
    *((name, FOURTH) for name in ("reset before", "reset after", "500 after", "late")),
    ("reset after", 1),
]


@pytest.mark.parametrize(
    "case", scenarios(SUBMISSIONS, everyday=SOME_SUBMISSIONS, name=words)
)
def test_a_submission_of_which_nobody_knows_whether_it_arrived(tmp_path, case):
    name, nth = case
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, LOST[name], nth=nth)
        ran = finishes(here)
        usage_agrees(here.server, ran.usage)
        assert name == "answer slow" or "looking for it" in ran.said


@pytest.mark.parametrize("name", scenarios(LOST, everyday=["reset after"]))
def test_all_submissions_go_wrong_and_batches_take_their_time(tmp_path, name):
    """Those that arrive are found when they have ended; if none does, the run does not end either: it is killed."""
    with world(tmp_path, "--chunk-size", "12", seconds_to_end=0.2) as here:
        for nth in range(1, 8):
            here.server.fault("POST", BATCHES, LOST[name], nth=nth)
        finishes(here)


def test_the_answer_to_a_submission_comes_after_the_client_has_given_up(tmp_path):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, AcceptThenHang(0.8), nth=FOURTH)
        assert "looking for it" in finishes(here, "--timeout", "0.3").said


@pytest.mark.parametrize("name", scenarios(["reset after", "late"]))
@pytest.mark.parametrize("write", scenarios(range(1, COMMITS + 3)))
def test_killed_while_it_looks_for_a_lost_submission(tmp_path, name, write):
    """The fourth submission is lost; then the process is killed at a write."""
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, LOST[name], nth=FOURTH)
        ran = here.run("--kill-before-commit", str(write))
        assert ran.code in (0, -SIGKILL), ran.said
        stored_within(here.store, reference())
        finishes(here)


REFUSALS = {
    400: "Refused",
    401: "ANTHROPIC_API_KEY",
    402: "balance",
    403: "may not",
    404: "base_url",
    422: "Refused",
}


@pytest.mark.parametrize("nth", scenarios((1, 3, FOURTH, 12), everyday=(FOURTH,)))
@pytest.mark.parametrize("code", scenarios(REFUSALS, everyday=(400, 401)))
def test_a_submission_that_is_refused_stops_the_run_with_its_cause(tmp_path, code, nth):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, Status(code), nth=nth)
        fails(
            here,
            saying=f"refuses the batch \\({code}\\): .*{REFUSALS[code]}.*same command goes on",
        )
        finishes(here)


def test_a_batch_that_is_too_large_is_halved(tmp_path):
    with world(tmp_path, max_bytes=25_000) as here:
        finishes(here)
        assert max(batch.n for batch in here.server.batches) == 2


@pytest.mark.faults
def test_a_single_request_that_is_too_large_stops_the_run(tmp_path):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, Status(413), nth=None)
        fails(here, saying=r"refuses the batch \(413\)")
        assert {len(call.json()["requests"]) for call in submissions(here.server)} == {
            1
        }


@pytest.mark.parametrize("nth", scenarios((1, 3, FOURTH, 12), everyday=(FOURTH,)))
def test_the_server_asks_to_wait(tmp_path, nth):
    with world(tmp_path, clock=Clock()) as here:
        here.server.fault(
            "POST", BATCHES, Status(429, headers={"retry-after": "0.4"}), nth=nth
        )
        finishes(here)
        times = [call.time for call in submissions(here.server)]
        assert times[nth] - times[nth - 1] >= 0.4


# A question goes wrong

QUESTIONS = [
    (name, path, nth)
    for (method, path), times in CALLS.items()
    if method == "GET" and path != MODEL
    for name in UNHEARD
    for nth in sorted({1, 3, 4, times})
]


@pytest.mark.parametrize(
    "case",
    scenarios(
        QUESTIONS,
        everyday=[("reset", BATCHES, 4), ("cut", BATCH, 4), ("529", RESULTS, 4)],
        name=words,
    ),
)
def test_a_question_gets_no_answer(tmp_path, case):
    name, path, nth = case
    with world(tmp_path) as here:
        here.server.fault("GET", path, UNHEARD[name], nth=nth)
        usage_agrees(here.server, finishes(here).usage)


@pytest.mark.parametrize("name", scenarios(UNHEARD))
@pytest.mark.parametrize(
    "path", scenarios((BATCHES, BATCH, RESULTS), name=NAMES.__getitem__)
)
def test_questions_get_no_answer_for_a_while(tmp_path, path, name):
    """More often than the SDK repeats them by itself; a results file less often than the judge reads it by itself."""
    with world(tmp_path) as here:
        for nth in range(5, 9):
            here.server.fault("GET", path, UNHEARD[name], nth=nth)
        finishes(here)


@pytest.mark.parametrize("nth", scenarios((1, 4, 5, 24)))
def test_a_batch_is_unknown_for_a_while(tmp_path, nth):
    with world(tmp_path) as here:
        for k in range(3):
            here.server.fault("GET", BATCH, Status(404), nth=nth + k)
        finishes(here)


@pytest.mark.faults
def test_a_batch_stays_unknown(tmp_path):
    """As with the key of another workspace: nothing is submitted again by itself."""
    with world(tmp_path) as here:
        here.kill_on("answered", "POST", BATCHES, nth=FOURTH)
        killed(here)
        here.server.fault("GET", BATCH, Status(404), nth=None)
        fails(here, saying="unknown to .*another workspace.*store.action=repay")
        fails(here, saying="unknown to .*another workspace.*store.action=repay")
        here.heal()
        finishes(here)


@pytest.mark.parametrize("name", scenarios(("reset", "500", "cut at 0")))
def test_tokens_that_cannot_be_counted_are_estimated(tmp_path, name):
    with world(tmp_path) as here:
        here.server.fault("POST", COUNT, UNHEARD[name], nth=None)
        assert "they are estimated" in finishes(here).said


# A results file goes wrong


@pytest.mark.parametrize("nth", scenarios((1, 3, FOURTH, 12), everyday=(FOURTH,)))
@pytest.mark.parametrize(
    "name",
    scenarios(SPOILT, everyday=("clean after 1 rows", "a row twice", "an alien row")),
)
def test_a_results_file_is_spoilt_once(tmp_path, name, nth):
    with world(tmp_path) as here:
        here.server.fault("GET", RESULTS, SPOILT[name], nth=nth)
        usage_agrees(here.server, finishes(here).usage)


@pytest.mark.parametrize(
    "name",
    scenarios(
        (
            "clean after 0 rows",
            "rst after 1 rows",
            "a row short",
            "an unknown type",
            "404",
        )
    ),
)
def test_a_results_file_stays_spoilt(tmp_path, name):
    """It is said which rows are missing, and nothing is submitted in their place; a whole file is taken in later."""
    with world(tmp_path / "first") as here:
        for nth in range(FOURTH, FOURTH + 60):
            here.server.fault("GET", RESULTS, SPOILT[name], nth=nth)
        fails(
            here,
            saying="results can be read .*Missing: .* p.*Nothing is submitted again",
        )
        n_posts = here.server.meter.posts(BATCHES)
        fails(here, saying="Nothing is submitted again")
        assert here.server.meter.posts(BATCHES) == n_posts
        here.heal()
        finishes(here)


@pytest.mark.parametrize("how", scenarios(("rst", "eof", "clean")))
@pytest.mark.parametrize("byte", scenarios(range(0, 1600, 97)))
def test_a_results_file_is_cut_at_a_byte(tmp_path, byte, how):
    """Also in the middle of a character."""
    with world(tmp_path) as here:
        here.server.fault("GET", RESULTS, Truncate(at_byte=byte, how=how), nth=FOURTH)
        finishes(here)


def test_a_results_file_is_cut_within_a_character(tmp_path):
    class WithinACharacter(Truncate):
        def length(self, body: bytes) -> int:
            return body.index("é".encode()) + 1

    with world(tmp_path) as here:
        here.server.fault("GET", RESULTS, WithinACharacter(how="clean"), nth=FOURTH)
        finishes(here)


@pytest.mark.parametrize("name", scenarios(SPOILT, everyday=("clean after 0 rows",)))
@pytest.mark.parametrize("nth", scenarios((1, FOURTH), everyday=(FOURTH,)))
def test_the_proof_of_a_lost_submission_is_spoilt(tmp_path, name, nth):
    """The results of the batch that is looked for are needed to know it by. A short file proves nothing."""
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, AcceptThenReset(), nth=nth)
        here.server.fault("GET", RESULTS, SPOILT[name], nth=nth)
        finishes(here)


# What is looked for: ours, all of it, and in time


def of_somebody_else(here: World, n: int) -> dict[str, int]:
    """A batch of so many requests that another program has submitted in the same workspace."""
    asked = [
        {
            "custom_id": f"somebody-else-{k}",
            "params": {
                "model": "claude-haiku-5-5",
                "max_tokens": 100,
                "messages": [
                    {"role": "user", "content": (
                        f"<question>\n{k}\n</question>\n"
                        '<response_a id="">\nann:\n</response_a id="">\n'
                        '<response_b id="">\nbob:\n</response_b id="">\n'
                    )}
                ],
            },
        }
        for k in range(n)
    ]  # fmt: skip
    with anthropic.Anthropic(base_url=here.server.url, api_key="test-key") as client:
        return {client.messages.batches.create(requests=asked).id: n}  # type: ignore[arg-type]


def lose_the_fourth(
    here: World, fault: Fault, *, moment: Stage = "before"
) -> dict[str, int]:
    """The fourth submission, of five requests, is lost as `fault` says, and somebody else submits five just then."""
    others: dict[str, int] = {}

    def meanwhile(stage: Stage, call: Call) -> None:
        fourth = (
            call.method == "POST"
            and re.search(BATCHES, call.path)
            and len(submissions(here.server)) == FOURTH
        )
        if stage == moment and fourth:
            others.update(of_somebody_else(here, 5))

    here.server.fault("POST", BATCHES, fault, nth=FOURTH)
    here.server.on_call = meanwhile
    return others


STRANGERS = [
    *((name, "before") for name in LOST),
    ("reset after", "accepted"),
    ("500 after", "accepted"),
]


@pytest.mark.parametrize(
    "case",
    scenarios(
        STRANGERS,
        everyday=[("reset before", "before"), ("reset after", "accepted")],
        name=words,
    ),
)
@pytest.mark.parametrize("seconds", scenarios((0, 0.3), everyday=(0,)))
def test_the_batch_of_somebody_else_is_not_taken_for_ours(tmp_path, case, seconds):
    """It has as many requests, and came while ours was lost; it is told by its ids, when it has ended."""
    name, moment = case
    with world(tmp_path, seconds_to_end=seconds) as here:
        others = lose_the_fourth(here, LOST[name], moment=moment)
        ran = here.run()
        assert ran.code == 0, ran.said
        here.check(reference(), foreign=others)
        assert len(others) == 1


def test_a_submission_that_was_accepted_twice_is_a_loss_that_is_reported(tmp_path):
    """Which the API should never do. The bill is right all the same."""
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, DoubleAccept(), nth=FOURTH)
        here.server.fault("POST", BATCHES, AcceptThenReset(), nth=FOURTH)
        ran = here.run()
        assert ran.code == 0
        assert "has taken a submission of ours twice" in ran.said
        assert ran.table == reference().table
        _, dollars = metered(here.server)
        assert ran.usage["dollars"] == pytest.approx(dollars)
        assert max(here.server.meter.billed.values()) == 2


@pytest.mark.faults
def test_a_submission_is_not_given_up_before_the_quarantine_has_passed(tmp_path):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, ResetBefore(), nth=FOURTH)
        finishes(here, "--quarantine", "1.5")
        sent = submissions(here.server)
        lost = {custom_id[9:] for custom_id in ids(sent[FOURTH - 1])}
        (again,) = (
            call
            for call in sent[FOURTH:]
            if {custom_id[9:] for custom_id in ids(call)} & lost
        )
        assert again.time - sent[FOURTH - 1].time >= 1.5


def ids(call: Call) -> list[str]:
    return [each["custom_id"] for each in call.json()["requests"]]


def test_a_submission_that_arrives_while_it_is_looked_for_the_last_time(tmp_path):
    """The list was drawn up before the quarantine had passed, and arrives after: it cannot say that nothing came."""
    searched: list[Call] = []

    def hold_up(stage: Stage, call: Call) -> None:
        if (
            stage == "accepted"
            and re.search(BATCHES, call.path)
            and call.query.get("limit", "1") != "1"
        ):
            searched.append(call)
            time.sleep(1.4 if len(searched) == 1 else 0)

    with world(tmp_path, "--quarantine", "1.0") as here:
        here.server.fault("POST", BATCHES, LateAccept(0.8), nth=FOURTH)
        here.server.on_call = hold_up
        finishes(here)
        assert searched


def test_the_quarantine_begins_when_the_answer_is_lost(tmp_path):
    """A submission may take longer than the quarantine to fail, and arrive after that."""

    def stall(stage: Stage, call: Call) -> None:
        if (
            stage == "before"
            and call.method == "POST"
            and len(submissions(here.server)) == FOURTH
        ):
            time.sleep(1.2)

    with world(tmp_path, "--quarantine", "1.0") as here:
        here.server.fault("POST", BATCHES, LateAccept(0.7), nth=FOURTH)
        here.server.on_call = stall
        finishes(here)


def test_what_another_run_has_left_unresolved_does_not_hold_up_this_one(tmp_path):
    """Killed between the intent of a pre-warm and its submission; then other questions are asked, with one store."""
    with world(tmp_path) as here:
        killed(here, "--kill-after-commit", "4")
        assert here.server.batches == []
        ran = here.run("--max-tokens", "201")
        assert ran.code == 0, ran.said


# Requests fail


def fail(
    outcome: Outcome, *, runs: int = 1, of: str = ""
) -> Callable[[Mapping[str, Any], int], Outcome | None]:
    """The first so many runs of each request whose user message holds this text."""
    return lambda params, run: (
        outcome if run <= runs and of in said_to(params) else None
    )


PASSING = {
    "api_error": Errored("api_error"),
    "overloaded": Errored("overloaded_error"),
    "rate limit": Errored("rate_limit_error"),
    "expired": Expired(),
    "canceled": Canceled(),
}


@pytest.mark.parametrize("runs", scenarios((1, 3), everyday=(1,)))
@pytest.mark.parametrize("name", scenarios(PASSING, everyday=("api_error",)))
def test_what_fails_in_a_way_that_may_pass_is_asked_again(tmp_path, name, runs):
    with world(tmp_path, outcomes=fail(PASSING[name], runs=runs, of="«p1»")) as here:
        usage_agrees(here.server, finishes(here).usage)
        again = Counter(
            custom_id[9:]
            for call in submissions(here.server)
            for custom_id in ids(call)
        )
        assert Counter(again.values()) == {1: 36, 1 + runs: 12}


@pytest.mark.parametrize("name", scenarios(PASSING))
def test_everything_fails_once(tmp_path, name):
    with world(tmp_path, outcomes=fail(PASSING[name])) as here:
        finishes(here)


def test_what_fails_four_times_has_failed_for_good(tmp_path):
    """It is said; the others are judged; and the next run asks it once more."""
    with world(
        tmp_path, outcomes=fail(Errored("api_error"), runs=4, of="«p2» é")
    ) as here:
        fails(here, saying=r"\d+ of 48 verdicts are missing .*allow_missing=true")
        stored = len(answers(here.store))
        assert 0 < stored < N_QUERIES
        failed = N_QUERIES - stored
        attempts = Counter(
            custom_id[9:]
            for call in submissions(here.server)
            for custom_id in ids(call)
        )
        assert Counter(attempts.values()) == {1: stored, 4: failed}
        finishes(here)


@pytest.mark.parametrize(
    "transport", ["batches", pytest.param("messages", marks=pytest.mark.faults)]
)
def test_a_few_invalid_requests_are_left_out_and_not_repeated(tmp_path, transport):
    few = fail(
        Errored("invalid_request_error", "prompt is too long"), runs=99, of="p0» ééé"
    )
    with world(tmp_path, "--transport", transport, outcomes=few) as here:
        ran = here.run("--allow-missing")
        assert ran.code == 0, ran.said
        n_failed = N_QUERIES - len(answers(here.store))
        assert 0 < n_failed < 20
        assert (
            f"{n_failed} queries have failed for good; {n_failed} of them: " in ran.said
        )
        assert "prompt is too long" in ran.said
        assert set(here.server.meter.billed_bodies.values()) == {1}
        assert here.server.meter.billed_bodies.total() == N_QUERIES - n_failed
        stored_within(here.store, reference())


@pytest.mark.parametrize(
    "transport", scenarios(("batches", "messages"), everyday=("batches",))
)
def test_many_invalid_requests_stop_the_run_with_their_cause(tmp_path, transport):
    many = fail(Errored("invalid_request_error", "effort: not for this model"), runs=99)
    with world(
        tmp_path,
        "--transport",
        transport,
        "--chunk-size",
        "50",
        "--cache",
        "none",
        outcomes=many,
    ) as here:
        fails(
            here,
            "--allow-missing",
            saying=r"(\d+) queries have failed for good; \1 of them: .*effort: not for this model",
        )
        assert here.server.meter.billed_bodies.total() == 0
        here.server.outcomes = None
        finishes(here)


@pytest.mark.parametrize("transport", ["batches", "messages"])
def test_an_account_that_runs_dry_stops_the_run(tmp_path, transport):
    """In the middle; what was paid for is kept, and the same command goes on once there is money."""
    with world(
        tmp_path,
        "--transport",
        transport,
        outcomes=fail(LOW_BALANCE, runs=99, of="«p2»"),
    ) as here:
        fails(here, "--allow-missing", saying="credit balance|run dry")
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


@pytest.mark.parametrize(
    "transport", scenarios(("batches", "messages"), everyday=("batches",))
)
@pytest.mark.parametrize("name", scenarios(PAID, everyday=("refused", "no JSON")))
def test_an_answer_that_is_no_verdict_is_paid_stored_and_not_asked_for_again(
    tmp_path, name, transport
):
    with world(
        tmp_path,
        "--transport",
        transport,
        outcomes=fail(PAID[name], runs=99, of="«p1»"),
    ) as here:
        ran = here.run()
        assert ran.code == 0, ran.said
        rows = [row for rows in json.loads(ran.table).values() for row in rows]
        assert {row["invalid"] for row in rows if row["prompt_id"] == "p1"} == {True}
        assert {row["invalid"] for row in rows if row["prompt_id"] != "p1"} == {False}
        usage_agrees(here.server, ran.usage)
        n_posts = here.server.meter.posts()
        assert here.run().table == ran.table
        assert here.server.meter.posts() == n_posts


# Several processes with one store


def share(here: World, *each: Sequence[str]) -> list[Ran]:
    """Clients that run side by side, each with arguments of its own; all of them finish."""
    clients = [here.start(*arguments) for arguments in each]
    ran = [client.wait() for client in clients]
    assert {each.code for each in ran} == {0}, [each.said for each in ran]
    return ran


@pytest.mark.parametrize(
    "clients",
    scenarios(
        [
            ([], []),
            ([], [], []),
            (["--chunk-size", "3"], ["--chunk-size", "7"]),
            (["--transport", "messages"], []),
            (["--transport", "messages"], ["--transport", "messages"]),
            (["--prompts", "2"], []),
            (["--cache", "none"], ["--cache", "5m"], ["--mirrored"]),
        ],
        everyday=[([], []), ([], [], [])],
        name=lambda clients: " and ".join(
            " ".join(each) or "plain" for each in clients
        ),
    ),
)
@pytest.mark.parametrize("seconds", scenarios((0, 0.1), everyday=(0.1,)))
def test_processes_share_a_store(tmp_path, clients, seconds):
    """I10: each question is paid for once, and all of them conclude the same."""
    with world(tmp_path, seconds_to_end=seconds) as here:
        ran = share(here, *clients)
        same = {
            each.table
            for each, given in zip(ran, clients, strict=True)
            if given != ["--mirrored"] and "--prompts" not in given
        }
        assert same == {reference().table}
        here.check(reference())
        _, dollars = metered(here.server)
        assert sum(each.usage["dollars"] for each in ran) == pytest.approx(dollars)


@pytest.mark.parametrize("name", scenarios(LOST, everyday=("reset after",)))
def test_processes_share_a_store_while_submissions_are_lost(tmp_path, name):
    """The batches of two clients are told apart."""
    with world(tmp_path, seconds_to_end=0.05) as here:
        for nth in (1, 3, 4, 6, 7):
            here.server.fault("POST", BATCHES, LOST[name], nth=nth)
        share(here, [], [])
        here.check(reference())


@pytest.mark.parametrize(
    "kill",
    scenarios(
        [(stage, nth) for stage in STAGES for nth in range(1, 13)],
        everyday=[("accepted", FOURTH)],
        name=words,
    ),
)
def test_one_of_two_processes_is_killed(tmp_path, kill):
    """The other takes over what it has left, and pays for none of it again."""
    stage, nth = kill
    with world(tmp_path, seconds_to_end=0.05) as here:
        here.kill_on(stage, "POST", BATCHES, nth=nth)
        first = here.start()
        other = here.start()
        ran = other.wait()
        first.wait()
        assert ran.code == 0, ran.said
        here.check(reference())


@pytest.mark.faults
def test_a_process_that_is_stopped_keeps_what_it_has_claimed(tmp_path):
    """As when a laptop's lid is closed over one of two terminals: the other waits, and says for whom."""
    with world(tmp_path, seconds_to_end=0.1) as here:
        first = here.start()
        time.sleep(0.35)
        first.send(signal.SIGSTOP)
        other = here.start()
        time.sleep(1.5)
        first.send(signal.SIGCONT)
        assert (first.wait().code, other.wait().code) == (0, 0)
        here.check(reference())


# The budget


@pytest.mark.parametrize("seconds", scenarios((0, 0.1), everyday=(0.1,)))
@pytest.mark.parametrize(
    "transport", scenarios(("batches", "messages"), everyday=("batches", "messages"))
)
def test_what_may_be_spent_never_passes_the_cap(tmp_path, transport, seconds):
    """I12: at no time would the worst answers to everything that is under way bring the run past its cap."""
    cap = 0.06 if transport == "batches" else 0.07
    with world(
        tmp_path, "--transport", transport, "--budget", str(cap), seconds_to_end=seconds
    ) as here:
        watch = Watch(here.server)
        finishes(here)
        assert max(watch.exposures) <= cap + 1e-9
        assert max(watch.exposures) > 0.7 * cap, (
            "the cap was no constraint: this shows nothing"
        )


@pytest.mark.parametrize("transport", ["batches", "messages"])
def test_a_run_stops_at_its_cap_and_goes_on_with_a_higher_one(tmp_path, transport):
    cap = 0.05 if transport == "batches" else 0.1
    with world(
        tmp_path,
        "--transport",
        transport,
        "--max-tokens",
        "400",
        thinking_tokens=300,
        seconds_to_end=0.05,
    ) as here:
        watch = Watch(here.server)
        fails(
            here,
            "--budget",
            str(cap),
            saying=r"judging.budget_usd: \$.* are spent.*higher cap goes on",
        )
        assert max(watch.exposures) <= cap
        _, dollars = metered(here.server)
        assert 0.4 * cap < dollars <= cap
        assert 0 < len(answers(here.store)) < N_QUERIES
        here.heal()
        ran = here.run("--budget", "5")
        assert ran.code == 0, ran.said
        known = reference(
            "--transport", transport, "--max-tokens", "400", thinking_tokens=300
        )
        here.check(known)


def test_a_plan_that_passes_the_cap_is_not_begun(tmp_path):
    with world(tmp_path) as here:
        fails(
            here,
            "--budget",
            "0.001",
            saying="48 verdicts .* expected to cost .* cap is .*Nothing was spent",
        )
        assert submissions(here.server) == []


# Time passes


@pytest.mark.parametrize("nth", scenarios((1, 3, FOURTH, 12), everyday=(FOURTH,)))
def test_a_batch_expires_and_is_asked_again(tmp_path, nth):
    """I13: 24 hours pass while it does not end."""
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, NeverEnd(), nth=nth)
        client = here.start()
        while len(submissions(here.server)) < nth:
            time.sleep(0.01)
        time.sleep(0.2)
        here.server.clock.advance(DAY + 60)
        ran = client.wait()
        assert ran.code == 0, ran.said
        here.check(reference())


@pytest.mark.parametrize(
    "stage", scenarios(("accepted", "answered"), everyday=("answered",))
)
def test_results_that_are_no_longer_kept_are_not_paid_for_again_by_themselves(
    tmp_path, stage
):
    """I13: 29 days after a run was killed, with the batch's id in the ledger or without."""
    with world(tmp_path) as here:
        here.kill_on(stage, "POST", BATCHES, nth=12)
        killed(here)
        here.server.clock.advance(30 * DAY)
        for _ in range(2):
            fails(
                here,
                saying="results are no longer kept by the server.*store.action=repay store.batch=[0-9a-f]{8}",
            )
        assert len(submissions(here.server)) == 12


@pytest.mark.parametrize("hours", scenarios((-30, 7), everyday=(-30,)))
def test_a_server_whose_clock_differs_from_ours(tmp_path, hours):
    """No deadline compares the two: a healthy batch is waited for, whatever the date."""
    with world(
        tmp_path, clock=Clock(time.time() + hours * 3600), seconds_to_end=0.1
    ) as here:
        finishes(here)


@pytest.mark.parametrize("step", scenarios((3600, -3600), everyday=(3600,)))
def test_the_clock_is_set_while_a_lost_submission_is_looked_for(tmp_path, step):
    """The quarantine is of seconds that have passed."""
    with world(tmp_path, "--quarantine", "20", seconds_to_end=0.1) as here:
        here.server.fault("POST", BATCHES, LateAccept(1.5), nth=2)
        finishes(here, "--clock-step", str(step))


@pytest.mark.faults
def test_killed_while_a_batch_expires(tmp_path):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, NeverEnd(), nth=FOURTH)
        here.kill_on("answered", "POST", BATCHES, nth=12)
        killed(here)
        here.server.clock.advance(DAY + 60)
        killed_again = here.run("--kill-after-commit", "20")
        assert killed_again.code == -SIGKILL
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


def test_a_cache_that_is_never_hit_is_not_written_any_more(tmp_path):
    """I14: two pre-warms and the measured chunk pay for writing it; the rest does not."""
    with world(tmp_path, miss_rate=1.0) as here:
        ran = finishes(here)
        assert breakpoints(here.server) == [{"1h"}] * 3 + [{None}] * 9
        assert (
            "warning: prompt cache: no cache from here on: 0% of 2 requests" in ran.said
        )
        assert ran.usage["cache"].startswith("no cache from here on")


@pytest.mark.faults
def test_a_cache_that_is_hit_now_and_then_is_kept_for_five_minutes(tmp_path):
    """Between 21 % and 51 % of hits."""
    with world(tmp_path, "--chunk-size", "20", miss_rate=0.6, seed=3) as here:
        ran = finishes(here)
        assert breakpoints(here.server)[:3] == [{"1h"}] * 3
        assert breakpoints(here.server)[3:] == [{"5m"}] * 2, ran.usage["cache"]


@pytest.mark.parametrize("cache", scenarios(("1h", "5m", "none")))
def test_the_cache_may_be_chosen(tmp_path, cache):
    with world(tmp_path, "--cache", cache) as here:
        finishes(here)
        assert {ttl for ttls in breakpoints(here.server) for ttl in ttls} == {
            None if cache == "none" else cache
        }


def test_a_model_that_caches_no_prefix_so_short_and_takes_no_schema(tmp_path):
    with world(tmp_path, "--model", "claude-haiku-4-5", "--effort", "") as here:
        ran = here.run()
        assert ran.code == 0, ran.said
        assert ran.usage["cache"].startswith(
            "none: claude-haiku-4-5 caches no prefix of fewer than 4096 tokens"
        )
        paid_once(here.server, n=N_QUERIES)
        usage_agrees(here.server, ran.usage)
        assert {ttl for ttls in breakpoints(here.server) for ttl in ttls} == {None}
        assert all(
            "output_config" not in each["params"]
            for call in submissions(here.server)
            for each in call.json()["requests"]
        )
        verdicts = [
            [verdict["verdict"] for verdict in row["raw"]]
            for row in json.loads(ran.table)["factuality"]
        ]
        known = [
            [verdict["verdict"] for verdict in row["raw"]]
            for row in json.loads(reference().table)["factuality"]
        ]
        assert verdicts == known


# One message at a time

SINGLY = ("--transport", "messages")


def lost(server: AnthropicServer) -> int:
    """How many answers were paid for once too often."""
    return sum(times - 1 for times in server.meter.billed_bodies.values())


@pytest.mark.parametrize(
    "kill",
    scenarios(
        [(stage, nth) for stage in STAGES for nth in range(1, N_QUERIES + 1)],
        everyday=[("accepted", 9)],
        name=words,
    ),
)
def test_killed_at_a_message(tmp_path, kill):
    """At most as many answers are lost as were under way; none of the others is asked for again."""
    stage, nth = kill
    with world(tmp_path, *SINGLY) as here:
        here.kill_on(stage, "POST", MESSAGES, nth=nth)
        killed(here)
        stored = answers(here.store)
        n_posts = here.server.meter.posts(MESSAGES)
        assert n_posts - len(stored) <= 4
        ran = here.run()
        assert ran.code == 0, ran.said
        assert here.server.meter.posts(MESSAGES) - n_posts == N_QUERIES - len(stored)
        assert lost(here.server) <= 4
        bill_is_bounded(here.server, here.store)
        assert ran.table == reference().table
        n_posts = here.server.meter.posts()
        assert here.run().table == ran.table
        assert here.server.meter.posts() == n_posts


@pytest.mark.parametrize(
    "write",
    scenarios(
        list(itertools.product(("before", "after"), range(1, MESSAGE_COMMITS + 1))),
        everyday=[("before", 20)],
        name=words,
    ),
)
def test_killed_at_a_write_of_a_message(tmp_path, write):
    with world(tmp_path, *SINGLY) as here:
        killed(here, f"--kill-{write[0]}-commit", str(write[1]))
        ran = here.run()
        assert ran.code == 0, ran.said
        assert lost(here.server) <= 4
        bill_is_bounded(here.server, here.store)
        assert ran.table == reference().table


@pytest.mark.parametrize("commit", scenarios(range(1, MESSAGE_COMMITS + 1)))
def test_the_disk_is_full_at_a_message(tmp_path, commit):
    with world(tmp_path, *SINGLY) as here:
        fails(
            here,
            "--fail-at-commit",
            str(commit),
            saying="cannot be used as the store .*disk is full",
        )
        ran = here.run()
        assert ran.code == 0, ran.said
        assert lost(here.server) <= 4
        bill_is_bounded(here.server, here.store)
        assert ran.table == reference().table


@pytest.mark.parametrize("nth", scenarios((1, 2, 9, 48), everyday=(9,)))
@pytest.mark.parametrize(
    "name",
    scenarios(
        [*(name for name in LOST if name != "late"), "429"],
        everyday=("reset after", "429"),
    ),
)
def test_a_message_gets_no_answer(tmp_path, name, nth):
    """It is asked again: the API knows no other way. What may be lost is as many answers as were."""
    fault = Status(429, headers={"retry-after": "0.2"}) if name == "429" else LOST[name]
    with world(tmp_path, *SINGLY) as here:
        here.server.fault("POST", MESSAGES, fault, nth=nth)
        ran = here.run()
        assert ran.code == 0, ran.said
        assert lost(here.server) == ("after" in name or "cut" in name)
        assert ran.usage["calls_lost"] == (
            name not in ("answer slow", "429") and "529" not in name
        )
        if name != "529 after":  # overloaded: a server that says so has billed nothing
            bill_is_bounded(here.server, here.store)
            _, dollars = metered(here.server)
            assert ran.usage["dollars"] <= dollars + 1e-9
            assert dollars <= ran.usage["dollars_at_most"] + 1e-9
        assert ran.table == reference().table
        assert here.server.meter.posts(MESSAGES) == N_QUERIES + (name != "answer slow")
        if name == "429":
            bodies = [
                call
                for call in here.server.meter.calls
                if re.search(MESSAGES, call.path)
            ]
            (again,) = (
                call for call in bodies[nth:] if call.body == bodies[nth - 1].body
            )
            assert again.time - bodies[nth - 1].time >= 0.2


def test_answers_that_may_have_been_lost_stay_in_the_budget(tmp_path):
    """Every answer but the last is lost: what they may have cost is not spent a second time."""
    with world(tmp_path, *SINGLY, "--budget", "0.1") as here:
        here.server.fault("POST", MESSAGES, AcceptThenReset(), nth=None)
        ran = here.run()
        assert ran.code == 2, ran.said
        assert metered(here.server)[1] <= 0.1
        bill_is_bounded(here.server, here.store)


@pytest.mark.parametrize("code", scenarios((401, 402, 403), everyday=(401,)))
def test_a_message_that_is_refused_stops_the_run(tmp_path, code):
    with world(tmp_path, *SINGLY) as here:
        here.server.fault("POST", MESSAGES, Status(code), nth=9)
        fails(here, saying=f"refuses \\({code}\\).*Every answer so far is stored")
        finishes(here)


@pytest.mark.parametrize("nth", scenarios(range(1, 13), everyday=(FOURTH,)))
def test_batches_that_were_left_under_way_are_collected_by_a_run_of_messages(
    tmp_path, nth
):
    with world(tmp_path) as here:
        here.kill_on("accepted", "POST", BATCHES, nth=nth)
        killed(here)
        ran = here.run(*SINGLY)
        assert ran.code == 0, ran.said
        here.check(reference())


# Everything at once


@pytest.mark.parametrize("seed", scenarios(range(120), everyday=range(1)))
def test_a_history_of_faults_and_kills(tmp_path, seed):
    """Some faults, and three clients, two at a time, most of which are killed; then one that has to finish."""
    rng = random.Random(seed)
    with world(
        tmp_path,
        seconds_to_end=rng.choice((0, 0.05, 0.2)),
        miss_rate=rng.choice((0.0, 0.5, 1.0)),
    ) as here:
        for _ in range(rng.randint(1, 6)):
            here.server.fault(
                "POST", BATCHES, rng.choice(list(LOST.values())), nth=rng.randint(1, 20)
            )
        for path, faults in (
            (BATCHES, UNHEARD),
            (BATCH, UNHEARD),
            (RESULTS, UNHEARD),
            (RESULTS, PASSING_SPOILT),
        ):
            for _ in range(rng.randint(0, 4)):
                here.server.fault(
                    "GET",
                    path,
                    rng.choice(list(faults.values())),
                    nth=rng.randint(1, 40),
                )
        sizes = [("--chunk-size", str(rng.randint(1, 12))) for _ in range(3)]
        running = []
        for size in sizes:
            running.append(here.start(*size))
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


PASSING_SPOILT = {
    name: fault
    for name, fault in SPOILT.items()
    if name not in ("clean after 0 rows", "empty")
}


# The command itself


def judge_arguments(here: World) -> list[str]:
    return [
        "judge=sonnet",
        f"judge.base_url={here.server.url}",
        "judge.chunk_size=5",
        "judge.poll_initial_seconds=0.02",
        "judge.poll_max_seconds=0.04",
        "judge.quarantine_seconds=2",
        "mode.prompt_cache=measured",
        "rubric=[factuality]",
        "judging.limit_pairs=10",
        "judging.budget_usd=5",
        "elo.n_perms=20",
        "tracker=local",
    ]


KEY = {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}


def begin(here: World, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        commands.command(*judge_arguments(here)),
        cwd=folder,
        env=commands.environment(folder) | KEY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "which", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.faults)]
)
def test_the_command_is_killed_and_given_again(tmp_path, which):
    with world(tmp_path / "server", verdicts=longer) as here:
        started: Future[subprocess.Popen[str]] = Future()

        def perhaps_kill(stage: Stage, call: Call) -> None:
            if (
                stage == "accepted"
                and call.method == "POST"
                and len(submissions(here.server)) == 3
            ):
                process = started.result()
                process.send_signal(which)
                if which == signal.SIGKILL:
                    process.wait()

        here.server.on_call = perhaps_kill
        process = begin(here, tmp_path / "run")
        started.set_result(process)
        _, said = process.communicate(timeout=60)
        assert process.returncode == (-SIGKILL if which == SIGKILL else 130), said
        here.heal()
        ran = commands.run(*judge_arguments(here), folder=tmp_path / "run", **KEY)
        paid_once(here.server, n=12)  # equal texts are asked about once
        assert ran.read("elo_results.json")
        n_posts = here.server.meter.posts()
        commands.run(*judge_arguments(here), folder=tmp_path / "run", **KEY)
        assert here.server.meter.posts() == n_posts


# Negative controls: the same harness must see these mistakes


def broken(here: World, name: str, *arguments: str) -> None:
    """A judge with this mistake in it, killed or not; and then again, with the mistake, to its end."""
    for ran in (here.run("--broken", name, *arguments), here.run("--broken", name)):
        assert ran.code != 1, f"this is a crash, and not the mistake: {ran.said}"


@pytest.mark.parametrize("name", ["sdk_retries", "naive_resubmission"])
@pytest.mark.parametrize(
    "fault", scenarios(("reset after", "500 after"), everyday=("reset after",))
)
def test_control_a_lost_answer_and_a_second_submission(tmp_path, name, fault):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, LOST[fault], nth=FOURTH)
        broken(here, name)
        with pytest.raises(AssertionError, match="paid twice: 5 of 48"):
            here.check(reference())


def test_control_no_intent_before_the_submission(tmp_path):
    with world(tmp_path) as here:
        here.kill_on("accepted", "POST", BATCHES, nth=FOURTH)
        broken(here, "no_intent")
        with pytest.raises(AssertionError, match="paid twice: 5 of 48"):
            here.check(reference())


@pytest.mark.faults
def test_control_no_intent_harms_nobody_while_nothing_happens(tmp_path):
    """Which is why the mistake is easily made."""
    with world(tmp_path) as here:
        broken(here, "no_intent")
        here.check(reference())


def test_control_no_quarantine(tmp_path):
    with world(tmp_path) as here:
        here.server.fault("POST", BATCHES, LateAccept(2.0), nth=FOURTH)
        assert here.run("--quarantine", "0").code == 0
        time.sleep(2.0)
        with pytest.raises(AssertionError, match="paid twice: 5 of 48"):
            here.check(reference())


def test_control_a_short_results_file_is_taken_for_whole(tmp_path):
    with world(tmp_path) as here:
        here.server.fault(
            "GET", RESULTS, Truncate(after_rows=2, how="clean"), nth=FOURTH
        )
        broken(here, "short_file")
        with pytest.raises(AssertionError, match="paid twice: 3 of 48"):
            here.check(reference())


def test_control_a_batch_is_known_by_its_size_only(tmp_path):
    with world(tmp_path) as here:
        others = lose_the_fourth(here, ResetBefore())
        broken(here, "any_of_that_size")
        with pytest.raises(
            AssertionError, match="48 of 53 questions were paid|43|of 53"
        ):
            here.check(reference(), foreign=others)


def test_control_no_claims(tmp_path):
    with world(tmp_path, seconds_to_end=0.5) as here:
        clients = [here.start("--broken", "no_claims") for _ in range(2)]
        ran = [client.wait() for client in clients]
        assert 1 not in {each.code for each in ran}, (
            f"this is a crash, and not the mistake: {ran[0].said}"
        )
        with pytest.raises(AssertionError, match="paid twice"):
            here.check(reference())


def test_control_a_budget_that_only_counts_what_has_come_back(tmp_path):
    with world(tmp_path, "--budget", "0.06", seconds_to_end=0.1) as here:
        watch = Watch(here.server)
        here.run("--broken", "no_reserves")
        assert max(watch.exposures) > 0.06


def test_control_a_batch_is_settled_before_its_answers_are_written(tmp_path):
    """Killed in between, after a results file has been read."""
    with world(tmp_path) as here:
        broken(here, "answers_before_commit", "--kill-after-commit", "35")
        with pytest.raises(AssertionError, match="paid twice: 2 of 48"):
            here.check(reference())
