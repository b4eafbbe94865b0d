"""experiment=store: list, wait, cancel, repay, export, import, merge and purge, in this process."""

from __future__ import annotations

import dataclasses
import re
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api import batches
from elo_exp.api.transport import Clock
from elo_exp.errors import UserError
from elo_exp.experiments import Context
from elo_exp.experiments.store import ManageStore
from elo_exp.files import write_jsonl
from elo_exp.records import ForcedLogprob, JudgeReply, Judgment, Record, Response
from elo_exp.store import admin
from elo_exp.store.answer_store import Store
from elo_exp.store.batch_rows import Batch
from elo_exp.store.caps import Account, Caps
from elo_exp.store.claims import Claims
from elo_exp.store.database import SCHEMA_VERSION
from elo_exp.store.ledger import Ledger
from elo_exp.store.looks import count_queries_seen_before
from elo_exp.store.usage import Usage
from tests import stores
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.data import full_disk, shipped
from tests.experiments import built
from tests.http_server import AcceptThenReset
from tests.paying import claude, comparisons, paying

__all__ = ["paying"]
pytestmark = pytest.mark.usefixtures("paying")

NEVER = 10**9  # looks at a batch until it ends
OURS, OTHER = Path("cache/store.sqlite"), Path("other/store.sqlite")


def manage(*words: str, cache_dir: Path = OURS.parent) -> str:
    """What `python -m elo_exp experiment=store ...` prints; its mistakes are UserErrors."""
    job = built("experiment=store", "tracker=local", f"cache_dir={cache_dir}", *words)
    experiment = job.experiment
    assert isinstance(experiment, ManageStore)
    with job.open_store() as store:
        context = Context(
            run_dir=Path("run"), store=store, tracker=job.settings.tracker
        )
        experiment.dry_run(context)
        return experiment.act(context)


# A store by hand


def reply(
    key: str, pair: str = "ann bob", judge: str = "opus", dimension: str = "factuality"
) -> JudgeReply:
    a, b = pair.split()
    return JudgeReply(
        key=key,
        text='{"verdict": "A"}',
        usage={"input_tokens": 7},
        dollars=0.25,
        timestamp="2026-11-21T12:00:00Z",
        judge_model=judge,
        dimension=dimension,
        prompt_id="p1",
        entrant_a=a,
        entrant_b=b,
        message='{"content": []}',
    )


FREE = dataclasses.replace(reply("k6", "ann cid", "lexical"), dollars=0.0)
REPLIES: dict[str, Record] = {
    "k1": reply("k1"),
    "k2": reply("k2", "bob ann"),
    "k3": reply("k3", "bob cid"),
    "k4": reply("k4", dimension="calibration"),
    "k5": reply("k5", judge="haiku"),
    "k6": FREE,
}
RESPONSES: dict[str, Record] = {
    f"{name} {prompt}": Response(
        entrant_id=name, prompt_id=prompt, response_text=f"{name} says «{prompt}»: ja!"
    )
    for name in ("ann", "bob", "cid")
    for prompt in ("p1", "p2")
}
LOGPROBS: dict[str, Record] = {
    f"log {total}": ForcedLogprob(
        entrant_id="ann", prompt_id="p1", total_logprob=total, n_tokens=9
    )
    for total in (-3.25, None)
}
EVERYTHING = REPLIES | RESPONSES | LOGPROBS


def fill(path: Path = OURS, answers: dict[str, Record] = EVERYTHING) -> dict[Any, Any]:
    with Store(path) as store:
        store.commit(answers)
    return rows(path)


def rows(path: Path) -> dict[Any, Any]:
    """All that a store holds, by key, read by another program than ours."""
    assert stores.rows(path, "PRAGMA integrity_check") == [("ok",)]
    found = stores.rows(path, "SELECT key, kind, value, created_at FROM answers")
    return {key: rest for key, *rest in found}


# Batches under way


class Impatient(Clock):
    """Whoever has to wait gives up, as with Ctrl-C: what was submitted stays with the server."""

    @staticmethod
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt


@contextmanager
def interrupted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(batches, "Clock", Impatient)
        yield


def judged(
    server: AnthropicServer, path: Path = OURS, **changes: Any
) -> tuple[list[Judgment], Usage]:
    """Five comparisons in both orders: 10 queries, in batches of 4, 4 and 2."""
    made = claude(server.url, **{"chunk_size": 4, "cache": "none", **changes})
    rubric = shipped("rubric", "factuality")
    with Store(path) as store:
        wanted = {"factuality": comparisons(5)}
        found = pipeline.judge_pairs(wanted, [rubric], made, store)
        return found["factuality"], store.usage


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    """Its batches do not end."""
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as running:
        yield running


def leave_under_way(server: AnthropicServer, path: Path = OURS) -> list[Batch]:
    with interrupted():
        judged(server, path)
    assert [batch.status for batch in server.batches] == ["in_progress"] * 3
    with Store(path) as store:
        return Ledger(store).batches()


def at(server: AnthropicServer) -> tuple[str, ...]:
    return (
        f"judge.base_url={server.url}",
        "judge.poll_initial_seconds=0.01",
        "judge.poll_max_seconds=0.02",
    )


def under_way() -> list[str]:
    """The lines of open batches, each joined with the line on its place."""
    lines = manage().replace("\n            ", " ").splitlines()
    return [line for line in lines if line.startswith("open batch: ")]


# List


def table(text: str) -> dict[tuple[str, ...], tuple[str, str]]:
    """Number and dollars by kind, source and dimension."""
    lines = [line.strip() for line in text.splitlines()]
    cells = [
        re.split(r"\s{2,}", line)
        for line in lines
        if re.match(r"verd|resp|log-p", line)
    ]
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in cells}


def test_list_counts_by_kind_source_and_dimension_with_what_was_paid():
    fill()
    with Store(OURS) as store, Claims(store) as claims:
        claims.take(["a", "b"])
        claims.record_call("a", 0.25)
        claims.end_call("a", lost="reset")
        claims.record_call("b", 0.25)
    said = manage()
    assert table(said) == {
        ("responses", "ann"): ("2", "0.00"),
        ("responses", "bob"): ("2", "0.00"),
        ("responses", "cid"): ("2", "0.00"),
        ("log-probabilities", "ann"): ("2", "0.00"),
        ("verdicts", "haiku", "factuality"): ("1", "0.25"),
        ("verdicts", "lexical", "factuality"): ("1", "0.00"),
        ("verdicts", "opus", "calibration"): ("1", "0.25"),
        ("verdicts", "opus", "factuality"): ("3", "0.75"),
    }
    assert "calls without an answer: 1. They may have cost up to $0.2500 more." in said
    assert re.search(r"\nspent in \d{4}-\d\d: \$0.50\n", said)
    assert said.splitlines()[-1] == "no open batches"


# Wait and cancel


def test_wait_collects_what_another_model_was_asked_at_that_models_price(
    server: AnthropicServer,
):
    """The judge is Sonnet unless told otherwise; the batches are Opus's, twice as dear."""
    leave_under_way(server)
    for line, n, batch in zip(under_way(), (4, 4, 2), server.batches, strict=True):
        assert f"{n} requests to claude-opus-5-5 since 20" in line
        assert re.search(rf"{n} open, up to \$0\.\d\d reserved {batch.id} at ", line)
    server.polls_to_end = 1
    said = manage("store.action=wait", *at(server))
    assert re.match(r"collected 10 answers\nspent \$0\.\d{4} \(factuality \$0", said)
    assert said.splitlines()[-1] == "no open batches"
    tokens = server.meter.tokens["batch"]
    dollars = (tokens["input_tokens"] * 2 + tokens["output_tokens"] * 10) * 1e-6
    with Store(OURS) as store:
        (held,) = admin.count_answers_by_source(store, admin.AnswerFilter())
    assert (held.source, held.n) == ("claude-opus-5-5", 10)
    assert held.dollars == pytest.approx(dollars)


@pytest.mark.parametrize("collected_by", ["wait", "run"])
def test_cancelled_batches_are_collected_and_the_next_run_pays_for_the_rest(
    collected_by: str, server: AnthropicServer, caplog: pytest.LogCaptureFixture
):
    """Of each batch the server has answered half when it is told. A run that finds them cancelled does not ask again by
    itself: the same command once more says so."""
    leave_under_way(server)
    said = manage("store.action=cancel", *at(server))
    assert said.startswith(
        "cancelled 3. Requests that are answered before the end are charged"
    )
    if collected_by == "wait":
        said = manage("store.action=wait", *at(server))
        assert said.startswith("collected 5 answers\nspent $0.0")
    else:
        with pytest.raises(UserError, match="5 of 10 verdicts are missing"):
            judged(server)
        assert "5 of them with this error: cancelled by the user" in caplog.text
    server.polls_to_end = 1
    judgments, usage = judged(server)
    assert (len(judgments), usage.verdicts_stored, usage.judge_calls) == (5, 5, 5)
    assert set(server.meter.billed.values()) == {1}


@pytest.mark.system
def test_a_batch_that_cannot_be_cancelled_is_not_marked_as_if_it_had_been():
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as gone:
        leave_under_way(gone)
    with pytest.raises(UserError, match="127.0.0.1.* cannot be reached"):
        manage("store.action=cancel", *at(gone))
    with Store(OURS) as store:
        assert [batch.note for batch in Ledger(store).batches()] == [None] * 3


@pytest.mark.parametrize("chunk_size", [10, 4])
def test_cancelling_a_submission_of_which_nobody_knows_says_so_and_what_to_do(
    chunk_size: int, server: AnthropicServer, caplog: pytest.LogCaptureFixture
):
    """As an error where there is nothing else to end. Once the batch has been found, it can be ended."""
    server.fault("POST", "/batches$", AcceptThenReset())
    with interrupted():
        judged(server, chunk_size=chunk_size)
    assert sum("not confirmed yet" in line for line in under_way()) == 1
    words = (
        rf"It is not known whether the server has \w{{8}} \({chunk_size} requests\): the submission got no "
        r"answer\. store\.action=wait looks for it until judge\.quarantine_seconds have passed\."
    )
    if chunk_size == 10:
        with pytest.raises(UserError, match=f"^{words}"):
            manage("store.action=cancel", *at(server))
    else:
        said = manage("store.action=cancel", *at(server))
        assert said.startswith("cancelled 2. ")
        assert re.search(f"warning: {words}", caplog.text)
    assert server.batches[0].status == "in_progress"


# Repay


@pytest.mark.parametrize("by", ["nonce", "batch_id"])
def test_a_batch_that_is_given_up_is_paid_again_and_the_others_are_not(
    by: str, server: AnthropicServer
):
    batch = leave_under_way(server)[1]
    repay = ("store.action=repay", f"store.batch='{getattr(batch, by)}'")
    said = manage(*repay)
    assert said.startswith(f"gave up batch {batch.nonce}. Its 4 open judge calls are")
    assert len(under_way()) == 2
    with pytest.raises(
        UserError, match='No batch ".*" is under way. List the batches:'
    ):
        manage(*repay)
    server.polls_to_end = 1
    assert judged(server)[1].judge_calls == 10
    assert [b.n for b in server.batches] == [4, 4, 2, 4]
    # the server has not heard that it was given up
    assert Counter(server.meter.billed.values()) == {1: 6, 2: 4}


def test_an_id_that_two_servers_have_given_is_not_enough_to_give_a_batch_up(
    server: AnthropicServer,
):
    batch, other = leave_under_way(server)[:2]
    stores.write(
        OURS,
        "UPDATE batches SET endpoint = 'https://other', batch_id = ? WHERE nonce = ?",
        batch.batch_id,
        other.nonce,
    )
    both = (
        f"\n  store.batch={batch.nonce}   at {server.url}"
        f"\n  store.batch={other.nonce}   at https://other"
    )
    with pytest.raises(
        UserError, match=rf"2 batches have the id .*\. Choose one:{both}"
    ):
        manage("store.action=repay", f"store.batch='{batch.batch_id}'")
    assert len(under_way()) == 3
    manage("store.action=repay", f"store.batch={other.nonce}")
    assert len(under_way()) == 2


# Export and import


@pytest.mark.parametrize("file", ["shared/all.jsonl", "all.jsonl.gz"])
def test_what_is_exported_and_brought_in_elsewhere_is_the_same_to_the_byte(file: str):
    before = fill()
    n = len(before)
    said = manage("store.action=export", f"store.file={file}")
    assert said == f"wrote {n} answers to {file}"
    for n_new in (n, 0):
        said = manage("store.action=import", f"store.file={file}", cache_dir=Path("b"))
        assert said == f"read {n} answers, {n_new} of them new"
        assert rows(Path("b/store.sqlite")) == before


@pytest.mark.parametrize("victim", [OURS, OTHER])
def test_an_export_does_not_overwrite_a_store(victim: Path):
    """`store.file=` is the store.sqlite of another in merge: one slip, and everything that was paid for is gone."""
    fill(OURS)
    fill(OTHER)
    before = rows(victim)
    with pytest.raises(UserError, match="store.file"):
        manage("store.action=export", f"store.file={victim}")
    assert rows(victim) == before


VALUE = reply("k1").to_dict()
GOOD = {"key": "k1", "kind": "JudgeReply", "value": VALUE}
TOTAL = {"entrant_id": "ann", "prompt_id": "p1", "n_tokens": 9, "total_logprob": "-3"}
BAD_ROWS: dict[str, Any] = {
    "another kind": {**GOOD, "kind": "Prompt"},
    "a total that is a text": {**GOOD, "kind": "ForcedLogprob", "value": TOTAL},
    "a value without its text": {**GOOD, "value": {"key": "k1"}},
    "dollars that are none": {**GOOD, "value": {**VALUE, "dollars": -1}},
    "dollars without end": {**GOOD, "value": {**VALUE, "dollars": 10**400}},
    "dollars that are a text": {**GOOD, "value": {**VALUE, "dollars": "1"}},
    "half a surrogate": {**GOOD, "key": "\ud800", "value": {**VALUE, "key": "\ud800"}},
    "half a surrogate for a time": {**GOOD, "created_at": "\ud800"},
    "an object for a prompt": {**GOOD, "value": {**VALUE, "prompt_id": {"a": 1}}},
    "a list for a kind": {**GOOD, "kind": ["JudgeReply"]},
    "a list for a value": {**GOOD, "value": [VALUE]},
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_a_row_that_is_no_exported_answer_is_named_and_nothing_is_brought_in(row: Any):
    first = {**GOOD, "key": "k0", "value": {**VALUE, "key": "k0"}}
    write_jsonl(Path("bad.jsonl"), [first, row])
    with pytest.raises(UserError) as refusal:
        manage("store.action=import", "store.file=bad.jsonl")
    assert str(refusal.value).startswith("bad.jsonl:2 is not an exported answer (")
    assert not OURS.exists()


def test_an_answer_that_is_damaged_in_the_store_is_named_and_nothing_is_written():
    fill()
    stores.write(OURS, "UPDATE answers SET value = '{' WHERE key = 'k3'")
    with pytest.raises(UserError) as refusal:
        manage("store.action=export", "store.file=all.jsonl")
    said = str(refusal.value)
    assert said.startswith("cache/store.sqlite holds a JudgeReply that cannot be read")
    assert "\n  Its key is 'k3'.\n  Restore the store from a copy" in said
    assert not Path("all.jsonl").exists()


@pytest.mark.system
def test_export_import_merge_and_purge_hold_one_answer_at_a_time():
    """10 MB of verdicts move with less than half of that; 500,000 took 3.4 GB."""
    message = "x" * 10_000
    replies = {
        f"k{n}": dataclasses.replace(reply(f"k{n}"), message=message)
        for n in range(1000)
    }
    fill(OURS, replies)
    del replies
    with Store(OURS) as ours, Store(OTHER) as other:
        every = admin.AnswerFilter(judge="opus")
        steps: dict[str, Callable[[], Any]] = {
            "export": lambda: admin.export_answers(ours, Path("all.jsonl"), every),
            "packed": lambda: admin.export_answers(ours, Path("all.jsonl.gz"), every),
            "import": lambda: admin.import_answers(other, Path("all.jsonl")),
            "merge": lambda: admin.merge_store(other, OURS),
            "purge": lambda: admin.purge_answers(ours, every),
        }
        peaks = {}
        for name, step in steps.items():
            tracemalloc.start()
            step()
            peaks[name] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert max(peaks.values()) < 5_000_000, peaks


# Merge


def test_two_stores_become_one_in_which_the_first_answer_stays():
    ours = fill(OURS, {name: EVERYTHING[name] for name in ("k1", "k2", "ann p1")})
    theirs = fill(OTHER, {**EVERYTHING, "k2": reply("k2", "ann cid")})
    before = OTHER.read_bytes()
    for n_new in (len(theirs) - 3, 0):
        said = manage("store.action=merge", f"store.file={OTHER}")
        assert (
            said
            == f"found {len(theirs)} answers in the other cache, {n_new} of them new"
        )
        assert rows(OURS) == {**theirs, **ours}
    assert OTHER.read_bytes() == before


def test_what_a_killed_process_left_in_the_log_is_merged_too():
    """A copy of the files as a kill leaves them: the answers are in the write-ahead log only."""
    with Store(OTHER) as store:
        store.commit(REPLIES)
        shutil.copytree("other", "copy")
    assert Path("copy/store.sqlite-wal").stat().st_size > 0
    said = manage("store.action=merge", "store.file=copy/store.sqlite")
    assert said == "found 6 answers in the other cache, 6 of them new"


NOT_MERGED: list[tuple[Callable[[], Any], str, str]] = [
    (
        lambda: stores.write(OTHER, f"PRAGMA user_version = {SCHEMA_VERSION + 1}"),
        str(OTHER),
        "was written by a newer elo_exp. Upgrade elo_exp.",
    ),
    (
        lambda: Path("notes.txt").write_text("Ask Ada.\n" * 999, encoding="utf-8"),
        "notes.txt",
        "cannot be read as a store (file is not a database).",
    ),
    (lambda: None, "missing", "File not found: missing (in "),
    (
        lambda: Path("link").symlink_to("cache"),
        "link/store.sqlite",
        'store.file must be another store than the one in use; got "link/store.sqlite".',
    ),
]


@pytest.mark.parametrize(("make", "file", "words"), NOT_MERGED)
def test_what_is_no_other_store_is_refused_and_nothing_is_brought_in(
    make: Callable[[], Any], file: str, words: str
):
    before = fill(OURS, {"k1": REPLIES["k1"]})
    fill(OTHER)
    make()
    with pytest.raises(UserError) as refusal:
        manage("store.action=merge", f"store.file={file}")
    assert words in str(refusal.value)
    assert rows(OURS) == before
    assert not Path("missing").exists()


def test_when_its_batches_are_collected_a_store_is_merged(server: AnthropicServer):
    """Whoever merged it before would pay for them again."""
    leave_under_way(server, OTHER)
    words = "3 batches of other/store.sqlite are still under way. Collect them first"
    with pytest.raises(UserError, match=words):
        manage("store.action=merge", f"store.file={OTHER}")
    assert not OURS.exists()
    server.polls_to_end = 1
    manage("store.action=wait", *at(server), cache_dir=OTHER.parent)
    manage("store.action=merge", f"store.file={OTHER}")
    n_calls = len(server.meter.calls)
    assert judged(server, budget_usd=0.0)[1].judge_calls == 0
    assert len(server.meter.calls) == n_calls


@pytest.mark.system
def test_a_store_is_merged_into_one_of_postgresql():
    fill(OTHER)
    url = stores.empty_schema()
    for n_new in (len(EVERYTHING), 0):
        words = ("store.action=merge", f"store.file={OTHER}", f"store.url='{url}'")
        said = manage(*words)
        assert stores.rows(url, "SELECT COUNT(*) FROM answers") == [(len(EVERYTHING),)]
        assert (
            said
            == f"found {len(EVERYTHING)} answers in the other cache, {n_new} of them new"
        )


# Copy

COPIED = [
    "judges",
    "designs",
    "batches",
    "queries",
    "losses",
    "charges",
    "spending",
    "commands",
]


def test_a_whole_store_is_copied_and_a_run_on_the_copy_makes_nothing(
    server: AnthropicServer,
):
    """With what was paid through batches, and what a call of a process that died may have cost."""
    server.polls_to_end = 1
    judged(server)
    answers = fill()
    with Store(OURS) as store:
        count_queries_seen_before(store, ["k1", "k9"], "a design")
        store.account = Account(caps=Caps(month_usd=9.0), folder="f", command="do")
        with Claims(store) as dead:
            dead.take(["lost"])
            dead.record_call("lost", 0.5)
    to = stores.empty_schema()
    said = manage("store.action=copy", f"store.to='{to}'")
    counts = "10 queries, 1 losses, 1 charges, 2 spending, 1 commands"
    words = f"{len(answers)} answers, 1 judges, 1 designs, 3 batches, {counts}"
    assert said.startswith(f"copied from cache/store.sqlite to {to}: {words}. Counts")
    for table in ("answers", *COPIED):
        mine, copied = (
            sorted(stores.rows(place, f"SELECT {columns_of(table)} FROM {table}"))
            for place in (OURS, to)
        )
        assert mine == copied
        assert mine
    n_calls = len(server.meter.calls)
    rubric, made = shipped("rubric", "factuality"), claude(server.url, cache="none")
    with Store(to) as store:
        pipeline.judge_pairs({"factuality": comparisons(5)}, [rubric], made, store)
        assert store.usage.judge_calls == 0
        with Claims(store) as heir:
            assert heir.take(["lost"]) == ["lost"]
        assert store.usage.dollars_at_most == 0.5
    assert len(server.meter.calls) == n_calls


def columns_of(table: str) -> str:
    """Those that both engines have."""
    names = stores.rows(OURS, f"SELECT name FROM pragma_table_info('{table}')")
    return ", ".join(name for (name,) in names)


def used_schema() -> str:
    to = stores.empty_schema()
    with Store(to) as store:
        store.commit({"k1": REPLIES["k1"]})
    return to


def at_work() -> None:
    """A process elsewhere, which may be alive."""
    row = ("x", "node-3", "boot", 7, "1", 0.0)
    stores.write(OURS, "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?)", *row)


@pytest.mark.parametrize(
    ("prepare", "to", "words"),
    [
        (
            at_work,
            stores.empty_schema,
            "cache/store.sqlite cannot be copied while .*: process 7 on node-3 does",
        ),
        (
            lambda: None,
            used_schema,
            r"(?s)store.to must be an empty store.* holds 1 answers.*=merge",
        ),
        (
            lambda: None,
            lambda: "other/store.sqlite",
            "store must be postgresql:.*; got .other/store.sqlite",
        ),
    ],
)
def test_what_is_no_copy_of_a_whole_store_is_refused(
    prepare: Callable[[], None], to: Callable[[], str], words: str
):
    before = fill()
    place = to()
    prepare()
    with pytest.raises(UserError, match=words):
        manage("store.action=copy", f"store.to='{place}'")
    assert rows(OURS) == before
    for more in ((), ("store.to=postgresql://x/y", "store.file=F")):
        with pytest.raises(UserError, match="store.action=copy needs store.to"):
            manage("store.action=copy", *more)


def test_a_store_with_batches_under_way_is_not_copied(server: AnthropicServer):
    leave_under_way(server)
    words = "3 batches of cache/store.sqlite are still under way. Collect them first"
    with pytest.raises(UserError, match=words):
        manage("store.action=copy", f"store.to='{stores.empty_schema()}'")


# Purge


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("store.judge=opus",), "k1 k2 k3 k4"),
        (("store.judge=opus", "store.entrant=cid"), "k3"),
        (("store.judge=opus", "store.entrant=ann", "store.rubric=factuality"), "k1 k2"),
    ],
)
def test_a_purge_takes_out_what_was_meant_after_it_is_confirmed_and_can_be_undone(
    words: Sequence[str], keys: str
):
    before, gone = fill(), set(keys.split())
    worth = f"{len(gone)} answers, which cost ${0.25 * len(gone):.2f}"
    said = manage("store.action=purge", *words)
    nothing = "Nothing has changed. To delete them, add store.confirm=true."
    assert said == f"would delete {worth}. {nothing}"
    assert rows(OURS) == before
    said = manage("store.action=purge", "store.confirm=true", *words)
    assert said.startswith(f"moved {worth}, to cache/purged_")
    assert set(rows(OURS)) == set(before) - gone
    (purged,) = Path("cache").glob("purged_*.jsonl")
    manage("store.action=import", f"store.file='{purged}'")
    assert rows(OURS) == before


def test_a_purge_that_cannot_keep_what_it_takes_takes_nothing():
    long = dataclasses.replace(reply("k9"), text="x" * 200_000)
    before = fill(OURS, {**EVERYTHING, "k9": long})
    with Store(OURS) as store, full_disk(50_000), pytest.raises((UserError, OSError)):
        admin.purge_answers(store, admin.AnswerFilter(judge="opus"))
    assert rows(OURS) == before


# What is missing, in words


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("merge", "store.action=merge needs a file. Set store.file, for example:"),
        ("purge", "store.action=purge needs to know which answers to delete. Set one"),
        ("import store.file=no.jsonl", "File not found: no.jsonl (in "),
    ],
)
def test_what_is_missing_is_named(words: str, line: str):
    with pytest.raises(UserError) as refusal:
        manage(*f"store.action={words}".split())
    assert str(refusal.value).startswith(line)
