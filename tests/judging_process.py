"""A run of a paid judge without Hydra and figures: what tests/test_faults.py starts, kills and starts again.

    python -m tests.judging_process --url URL --store STORE.sqlite --out OUT.json

pairs up some responses, has them judged in both orders on two rubrics, and writes what was concluded and what it cost
to OUT.json. Everything between the command line and the wires is what ships. --broken NAME swaps one part of it for a
mistake that somebody might make.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import os
import random
import secrets
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# What a client would import while it runs. Its processes are forked from one that has it already.
import anthropic  # noqa: F401
import charset_normalizer  # noqa: F401
import google.genai.types  # noqa: F401
import httpcore2  # noqa: F401
import openai.resources.batches
import openai.resources.files  # noqa: F401
import rich.progress  # noqa: F401
import scipy.special  # noqa: F401

from elo_exp import pipeline
from elo_exp.api import anthropic as anthropic_api
from elo_exp.api import batch_results, calls
from elo_exp.api.anthropic import AnthropicApi, batch_in, read_raw_json
from elo_exp.api.batch_protocol import RemoteBatch, ResultRow
from elo_exp.api.batch_results import BatchResults
from elo_exp.api.costs import Budget
from elo_exp.api.submission_search import SubmissionSearch
from elo_exp.api.transport import Clock, RefusedError, UnknownOutcomeError
from elo_exp.data import pairing
from elo_exp.errors import UserError
from elo_exp.judges import BatchJudge
from elo_exp.judges.claude import ClaudeJudge
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.records import Judgment, Prompt, Response, canonical_json
from elo_exp.store import batch_rows, claims
from elo_exp.store import ledger as ledger_module
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_rows import Batch
from elo_exp.store.caps import Account, Caps
from elo_exp.store.claims import Claims
from elo_exp.store.database import Database
from elo_exp.store.ledger import Ledger
from tests.data import shipped, shipped_settings
from tests.stores import place_of

DIMENSIONS = ("factuality", "calibration")
RUBRICS = [shipped("rubric", name) for name in DIMENSIONS]
N_PROMPTS = 4  # times 3 pairs, 2 orders and 2 rubrics: 48 queries


# What is asked


def asked(n_prompts: int, *, mirrored: bool = False) -> tuple[Any, list[Any]]:
    """Comparisons by dimension, and the rubrics. Lengths differ, so that the longer response can win; two are equal."""
    prompts = [
        Prompt(
            prompt_id=f"p{n}",
            text=f"Frage {n}: wie viele Gäste?",
            source="test",
            subject="arithmetic",
            gold_answer=str(n),
        )
        for n in range(n_prompts)
    ]

    def response(name: str, n: int) -> Response:
        length = {"ann": 1, "bob": 3, "cid": 3}[name] + (n + len(name)) % 2
        text = f"{name}: «p{n}» " + "é" * length
        return Response(entrant_id=name, prompt_id=f"p{n}", response_text=text)

    responses = {
        name: {(f"p{n}", 0): response(name, n) for n in range(n_prompts)}
        for name in ("ann", "bob", "cid")
    }
    comparisons = {
        rubric.dimension: pairing.pair_up(prompts, responses, rubric)
        for rubric in RUBRICS
    }
    if mirrored:
        comparisons = {
            name: [one.swapped() for one in some] for name, some in comparisons.items()
        }
    return comparisons, RUBRICS


def table(judgments: Mapping[str, Sequence[Judgment]]) -> Any:
    """What was concluded, without what differs from run to run: times, tokens, and the address in the keys."""
    rows = {
        dimension: [judgment.to_dict() for judgment in some]
        for dimension, some in judgments.items()
    }
    for judgment in (judgment for some in rows.values() for judgment in some):
        for verdict in judgment["raw"]:
            for name in ("cache_key", "timestamp", "usage", "dollars"):
                del verdict[name]
    return rows


# Killed at a write


class Commits:
    """Counts the transactions of the process, and kills it, or its connection, at one of them."""

    n = 0
    # at which it dies, and at which its connection is lost: "before" or "after" a commit
    deaths: Mapping[str, int] = {}
    losses: Mapping[str, int] = {}
    fail_at = 0

    @classmethod
    def perhaps_die(cls, moment: str) -> None:
        if cls.deaths.get(moment) == cls.n:
            os.kill(os.getpid(), signal.SIGKILL)


class CountingConnection(sqlite3.Connection):
    """A connection to SQLite whose commits are counted."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return super().execute(sql, *values)
        Commits.n += 1
        Commits.perhaps_die("before")
        if Commits.fail_at == Commits.n:
            raise sqlite3.OperationalError("database or disk is full")
        done = super().execute(sql)
        Commits.perhaps_die("after")
        return done


def count_postgres() -> None:
    """The same of the main thread's connections to PostgreSQL."""
    import psycopg

    class Counting(psycopg.Connection[Any]):
        def execute(self, query: Any, *given: Any, **how: Any) -> Any:
            if query != b"COMMIT":
                return super().execute(query, *given, **how)
            Commits.n += 1
            Commits.perhaps_die("before")
            if Commits.fail_at == Commits.n:
                raise psycopg.errors.DiskFull("No space left: the disk is full")
            if Commits.losses.get("before") == Commits.n:
                self._lose()
            done = super().execute(query, *given, **how)
            if Commits.losses.get("after") == Commits.n:
                self._lose()
                super().execute("SELECT 1")
            Commits.perhaps_die("after")
            return done

        def _lose(self) -> None:
            """As an administrator ends it, or a network."""
            with connect(self.info.dsn) as other:
                other.execute(
                    "SELECT pg_terminate_backend(%s)", [self.info.backend_pid]
                )

    connect = psycopg.connect

    def connect_and_count(*given: Any, **settings: Any) -> Any:
        is_main = threading.current_thread() is threading.main_thread()
        return (Counting.connect if is_main else connect)(*given, **settings)

    psycopg.connect = connect_and_count


# Mistakes that somebody might make. Each must be seen by the invariants, or they would prove nothing.


def _swap(owner: object, **functions: Any) -> None:
    for name, function in functions.items():
        assert hasattr(owner, name), (
            f"{owner} has no {name} any more: the mistake has to be made elsewhere"
        )
        setattr(owner, name, function)


def sdk_retries(judge: ClaudeJudge) -> None:
    """The SDK is left to repeat a submission whose answer is lost, as it does by default."""

    def create(api: AnthropicApi, nonce: str, requests: Mapping[str, Any]) -> str:
        batches = api._client.messages.batches.with_raw_response
        body: Any = [
            {"custom_id": name, "params": params} for name, params in requests.items()
        ]
        return batch_in(read_raw_json(batches.create(requests=body))).batch_id

    _swap(judge.api, create=functools.partial(create, judge.api))


def naive_resubmission(judge: ClaudeJudge) -> None:
    """What got no answer is taken for not accepted, and submitted again."""

    def create(api: AnthropicApi, nonce: str, requests: Mapping[str, Any]) -> str:
        try:
            return AnthropicApi.create(api, nonce, requests)
        except UnknownOutcomeError as doubt:
            raise RefusedError(str(doubt), status=429, retry_after=0.01) from None

    _swap(judge.api, create=functools.partial(create, judge.api))


def no_intent(judge: ClaudeJudge) -> None:
    """The ledger hears of a batch when the server has answered, not before."""
    intended: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
    intend, submitted, names = (
        Ledger.record_intent,
        Ledger.mark_submitted,
        Ledger.read_request_names,
    )

    def intend_later(
        ledger: Ledger, about: Mapping[str, Any], reserves: Any, **facts: Any
    ) -> Batch | None:
        now, account = facts.pop("now"), facts.pop("account")
        batch = Batch(
            nonce=secrets.token_hex(4),
            owner=ledger._owner,
            state="intended",
            size=len(about),
            reserve=sum(reserves),
            batch_id=None,
            created_at=now,
            **facts,
        )
        intended[batch.nonce] = (
            about,
            {**facts, "reserves": reserves, "now": now, "account": account},
        )
        return batch

    def submit_now(ledger: Ledger, batch: Batch, batch_id: str) -> None:
        if batch.nonce in intended:
            about, facts = intended.pop(batch.nonce)
            written = intend(ledger, about, **facts)
            assert written is not None
            nonces = (batch.nonce, written.nonce)

            def rename(db: Database) -> None:
                for name in ("batches", "queries"):
                    db.execute(f"UPDATE {name} SET nonce = ? WHERE nonce = ?", nonces)
                db.execute("UPDATE charges SET name = ? WHERE name = ?", nonces)

            ledger.store.write(rename)
        submitted(ledger, batch, batch_id)

    def names_of(ledger: Ledger, batch: Batch) -> dict[str, Any]:
        return dict(intended.get(batch.nonce, (names(ledger, batch), None))[0])

    _swap(
        Ledger,
        record_intent=intend_later,
        mark_submitted=submit_now,
        read_request_names=names_of,
    )


def short_file(judge: ClaudeJudge) -> None:
    """A results file is taken for whole when it ends; what is missing in it is submitted again."""

    def collect(
        self: BatchResults[Any], opened: Any, remote: RemoteBatch
    ) -> Iterator[Any]:
        seen = set[str]()
        yield from self._read_results(opened, remote, seen, [])
        self._open.close(opened)
        self._ledger.give_up(opened.batch, "that was all")
        for key in opened.names:
            if key not in seen:
                yield key, ResultRow(custom_id=key, outcome=None)

    _swap(BatchResults, collect=collect)


def any_of_that_size(judge: ClaudeJudge) -> None:
    """The size of a batch is taken for the proof that it is ours."""
    _swap(SubmissionSearch, _is_ours=lambda self, batch, remote: True)


def no_claims(judge: ClaudeJudge) -> None:
    """Each process pays for whatever the store does not hold."""
    take, intend = Claims.take, Ledger.record_intent

    def take_all(claims: Claims, keys: Sequence[str], **where: Any) -> list[str]:
        take(claims, keys, **where)
        return list(keys)

    def intend_anyway(
        ledger: Ledger, about: Mapping[str, Any], *given: Any, **facts: Any
    ) -> Batch | None:
        rows = [(key, ledger._owner) for key in about]
        claim = (
            "INSERT INTO claims VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET owner = excluded.owner"
        )
        # or the ledger would see that they are somebody else's
        ledger.store.write(lambda db: db.executemany(claim, rows))
        return intend(ledger, about, *given, **facts)

    _swap(Claims, take=take_all)
    _swap(Ledger, record_intent=intend_anyway)
    none = "SELECT key FROM queries JOIN batches USING (nonce) WHERE FALSE"
    for module in (ledger_module, batch_rows):
        _swap(module, PENDING_KEYS_SQL=none)


def no_reserves(judge: ClaudeJudge) -> None:
    """Only what has come back counts against the budget."""
    _swap(Budget, reserve=lambda self, name, dollars: None)


def answers_before_commit(judge: ClaudeJudge) -> None:
    """A batch is settled first, and its answers are written afterwards."""
    record = Ledger.record_results

    def settle_first(
        ledger: Ledger,
        batch: Batch,
        outcomes: Any,
        answers: Any,
        *rest: Any,
        **now: Any,
    ) -> Any:
        new, _ = record(ledger, batch, outcomes, {}, *rest, **now)
        ledger.store.write(lambda db: ledger.store.put(db, answers))
        for answer in answers.values():
            ledger.store.usage.add_answer(answer)
        return new, answers

    _swap(Ledger, record_results=settle_first)


_MISTAKES: list[Callable[[ClaudeJudge], None]] = [
    sdk_retries,
    naive_resubmission,
    no_intent,
    short_file,
    any_of_that_size,
    no_claims,
    no_reserves,
    answers_before_commit,
]
BROKEN = {mistake.__name__: mistake for mistake in _MISTAKES}


# The process


def _counting(connect: Callable[..., sqlite3.Connection]) -> Any:
    """The same for the main thread, its transactions being counted; the heartbeat's go uncounted."""

    def connect_and_count(*given: Any, **settings: Any) -> sqlite3.Connection:
        if threading.current_thread() is threading.main_thread():
            settings["factory"] = CountingConnection
        return connect(*given, **settings)

    return connect_and_count


OPTIONS: Mapping[str, Any] = {
    "--prompts": N_PROMPTS,
    "--orders": "both",
    "--looks": 1,
    "--provider": "anthropic",
    "--model": "claude-sonnet-5-5",
    "--effort": "low",
    "--max-tokens": 200,
    "--transport": "batches",
    "--chunk-size": 5,
    "--cache": "measured",
    "--quarantine": 1.0,
    "--budget": 5.0,
    "--month-cap": 0.0,  # of the store
    "--timeout": 20.0,  # of a call
    "--canary": 0,
    "--clock-step": 0.0,  # of the wall clock, at once, in seconds
    "--kill-before-commit": 0,
    "--kill-after-commit": 0,
    "--fail-at-commit": 0,  # as a full disk does
    "--wait-minutes": 1.0,  # for the store
    "--lose-before-commit": 0,  # the connection to PostgreSQL
    "--lose-after-commit": 0,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judging_process", allow_abbrev=False
    )
    for name in ("--url", "--store", "--out"):
        parser.add_argument(name, required=True)
    for name, default in OPTIONS.items():
        parser.add_argument(name, type=type(default), default=default)
    parser.add_argument("--mirrored", action="store_true", help="responses swapped")
    parser.add_argument("--allow-missing", action="store_true")
    parser.add_argument("--broken", choices=BROKEN)
    return parser.parse_args(arguments)


# The file of each provider's judge, and its model; that of Anthropic is chosen by options.
JUDGES: Mapping[str, tuple[str, str]] = {
    "anthropic": ("claude", ""),
    "openai": ("openai", "gpt-6.2-sol"),
    "gemini": ("gemini", "gemini-4-hydrogen"),
}
for _name, _ in JUDGES.values():
    shipped_settings(
        "judge", _name
    )  # read once, by the process that clients are forked from


def build(chosen: argparse.Namespace) -> BatchJudge:
    """What an answer is expected to cost is low: the plan is not what stops a run."""
    name, model = JUDGES[chosen.provider]
    own: dict[str, Any] = {"model": model, "timeout_seconds": chosen.timeout}
    if chosen.provider == "anthropic":
        own = {
            "model": chosen.model,
            "effort": chosen.effort or None,
            "cache": chosen.cache,
            "expected_hit_rate": 1.0,
        }
    judge: Any = shipped(
        "judge",
        name,
        max_tokens=chosen.max_tokens,
        transport=chosen.transport,
        base_url=chosen.url,
        budget_usd=chosen.budget,
        expected_output_tokens=1,
        chunk_size=chosen.chunk_size,
        poll_initial_seconds=0.02,
        poll_max_seconds=0.04,
        quarantine_seconds=chosen.quarantine,
        concurrency=4,
        **own,
    )
    if chosen.broken:
        BROKEN[chosen.broken](judge)
    found: BatchJudge = judge
    return found


def step_the_clock(seconds: float) -> None:
    """Set the wall clock of this process ahead when the answer to a submission has been lost."""
    real, create, lost = time.time, AnthropicApi.create, threading.Event()

    def stepped() -> float:
        return real() + (seconds if lost.is_set() else 0.0)

    def notice(api: AnthropicApi, nonce: str, requests: Mapping[str, Any]) -> str:
        try:
            return create(api, nonce, requests)
        except UnknownOutcomeError:
            threading.Timer(0.1, lost.set).start()
            raise

    time.time = stepped
    _swap(Clock, wall=staticmethod(stepped))
    _swap(AnthropicApi, create=notice)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 2 for what the user can mend, which is said on stderr."""
    chosen = parse(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
    os.environ.update(dict.fromkeys(keys, "test-key"), NO_PROXY="127.0.0.1")
    # Back-offs as short as the waits between polls: they are repetitions all the same.
    calls._FIRST_BACK_OFF_SECONDS = 0.02
    anthropic_api._TIMEOUT_SECONDS = chosen.timeout
    batch_results._ROWS_PER_TRANSACTION = 2  # results in one transaction
    claims.CLAIM_POLL_SECONDS = 0.02
    if chosen.clock_step:
        step_the_clock(chosen.clock_step)
    Commits.deaths = {
        "before": chosen.kill_before_commit,
        "after": chosen.kill_after_commit,
    }
    Commits.losses = {
        "before": chosen.lose_before_commit,
        "after": chosen.lose_after_commit,
    }
    Commits.fail_at = chosen.fail_at_commit
    sqlite3.connect = _counting(sqlite3.connect)
    store_at = place_of(chosen.store)
    folder = Path(chosen.out).parent
    if isinstance(store_at, str):
        count_postgres()
    comparisons, rubrics = asked(chosen.prompts, mirrored=chosen.mirrored)
    try:
        with Store(store_at, folder=folder, wait_minutes=chosen.wait_minutes) as store:
            caps = Caps(month_usd=chosen.month_cap or None)
            store.account = Account(caps=caps)
            judge = functools.partial(
                pipeline.judge_pairs,
                rubrics=rubrics,
                judge=build(chosen),
                store=store,
                asking=pipeline.JudgingSettings(
                    both_orders=0.0 if chosen.orders == "one" else 1.0,
                    allow_missing=chosen.allow_missing,
                    canary=chosen.canary,
                    max_invalid=0.5,
                ),
            )
            if chosen.looks == 1:
                judgments, resolved = judge(comparisons), []
            else:
                wave, judgments = pipeline.judge_in_waves(
                    comparisons,
                    judge,
                    method=BradleyTerry(
                        initial_rating=1500,
                        orders=chosen.orders,
                        interval="sandwich",
                        n_bootstraps=2,
                        seed=0,
                    ),
                    looks=chosen.looks,
                    drop=True,
                )
                resolved = [one.to_dict() for one in wave.resolutions]
            usage = dataclasses.asdict(store.usage)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = {
        "judgments": {**table(judgments), "resolved": resolved},
        "usage": usage,
        "commits": Commits.n,
    }
    Path(chosen.out).write_text(canonical_json(facts), encoding="utf-8")
    return 0


def forked(arguments: Sequence[str], said: str) -> None:
    """The same in a process that has been forked with everything imported; what it says goes to the file `said`."""
    random.seed()  # or every fork would wait for the same time
    with Path(said).open("ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
