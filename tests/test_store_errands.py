"""The store's errands: what is held and under way, waiting, cancelling, paying again, sharing, starting afresh.

One story is told by real processes, one of them killed while its batches are under way. The rest gives the same words
to the same code in this process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.api import batches
from elo_exp.api.transport import Clock
from elo_exp.experiments import Context
from elo_exp.experiments.store import ManageStore
from elo_exp.files import write_jsonl
from elo_exp.judges.claude import ClaudeJudge
from elo_exp.records import (
    Comparison,
    ForcedLogprob,
    JudgeReply,
    Judgment,
    Response,
    UserError,
)
from elo_exp.store import admin
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import Ledger
from elo_exp.store.store import SCHEMA_VERSION, Store
from elo_exp.store.usage import Usage
from tests.anthropic_server import AcceptThenReset, AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt, command, environment
from tests.data import COMPARISON, shipped
from tests.experiments import built

KEY = {"ANTHROPIC_API_KEY": "test-key"}
HERE = {"NO_PROXY": "127.0.0.1"}
NEVER = 10**9  # looks at a batch until it ends
# Two prompts, three entrants, both orders: 12 queries in batches of 5, 5 and 2.
SMALL = (
    "judge=opus",
    "judge.chunk_size=5",
    "judge.poll_initial_seconds=0.02",
    "judge.poll_max_seconds=0.05",
    "elo.n_perms=5",
    "+mode.strata.medqa=2",
    "entrant=[probe_reference,probe_partial,probe_swapped]",
    "rubric=[factuality]",
    "tracker=local",
)
RUBRIC = shipped("rubric", "factuality")
MADE: list[ClaudeJudge] = []


@pytest.fixture(autouse=True)
def a_machine_with_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield
    for made in MADE:  # a client's sockets are the process's until it ends
        if (client := vars(made.api).get("_client")) is not None:
            client.close()
    MADE.clear()


def errand(*words: str, cache_dir: Path = Path("cache")) -> str:
    """What `python -m elo_exp experiment=store ...` prints; its mistakes are UserErrors."""
    job = built("experiment=store", "tracker=local", f"cache_dir={cache_dir}", *words)
    experiment = job.experiment
    assert isinstance(experiment, ManageStore)
    if isinstance(experiment.judge, ClaudeJudge):
        MADE.append(experiment.judge)
    with Store(job.store_path) as store:
        tracker = job.settings.tracker
        return experiment.dry_run(
            Context(run_dir=Path("run"), store=store, tracker=tracker)
        )


# A store by hand


def response(entrant: str, prompt: str) -> Response:
    return Response(
        entrant_id=entrant,
        prompt_id=prompt,
        response_text=f"{entrant} says «{prompt}»: ja, Gäste!",
    )


def reply(
    key: str,
    *,
    judge: str = "opus",
    dimension: str = "factuality",
    pair: str = "ann bob",
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


REPLIES = [
    reply("k1"),
    reply("k2", pair="bob ann"),
    reply("k3", pair="bob cid"),
    reply("k4", dimension="calibration"),
    reply("k5", judge="haiku"),
    JudgeReply(
        key="k6",
        text="A",
        entrant_a="ann",
        entrant_b="cid",
        dimension="factuality",
        judge_model="lexical",
    ),
]


def fill(
    folder: Path, replies: Sequence[JudgeReply] = REPLIES, entrants: str = "ann bob cid"
) -> Path:
    """A store of these verdicts, and of two responses by each of these entrants."""
    with Store(folder / "store.sqlite") as store:
        made = [
            response(name, prompt)
            for name in entrants.split()
            for prompt in ("p1", "p2")
        ]
        list(store.keep(made, key=lambda r: f"{r.entrant_id} {r.prompt_id}", chunk=99))
        list(store.keep(replies, key=lambda r: r.key, chunk=99))
    return folder / "store.sqlite"


def rows(folder: Path) -> dict[str, tuple[str, ...]]:
    """All that a store holds, read by another program than ours."""
    with closing(
        sqlite3.connect(f"file:{folder}/store.sqlite?mode=ro", uri=True)
    ) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = db.execute(
            "SELECT key, kind, value, created_at FROM answers"
        ).fetchall()
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


def judge(server: AnthropicServer, **changes: Any) -> ClaudeJudge:
    polling = {
        "poll_initial_seconds": 0.01,
        "poll_max_seconds": 0.02,
        "chunk_size": 4,
        "cache": "none",
    }
    made: ClaudeJudge = shipped(
        "judge", "opus", base_url=server.url, **{**polling, **changes}
    )
    MADE.append(made)
    return made


def comparisons(n: int = 5) -> list[Comparison]:
    return [
        dataclasses.replace(
            COMPARISON,
            prompt_id=f"p{number}",
            prompt_text=f"Why {number}?",
            gold_answer="Yes.",
        )
        for number in range(n)
    ]


def judged(
    made: ClaudeJudge, cache: Path = Path("cache")
) -> tuple[list[Judgment], Usage]:
    """Five comparisons in both orders: 10 queries, in batches of 4, 4 and 2."""
    with Store(cache / "store.sqlite") as store:
        return pipeline.judge_pairs(
            {"factuality": comparisons()}, [RUBRIC], made, store
        )["factuality"], store.usage


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    """Its batches do not end."""
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as running:
        yield running


def leave_under_way(server: AnthropicServer, cache: Path = Path("cache")) -> None:
    made = judge(server)
    with interrupted():
        judged(made, cache)
    assert [batch.status for batch in server.batches] == ["in_progress"] * 3


def end(server: AnthropicServer, *numbers: int) -> None:
    """These batches end now, and the others go on."""
    for number in numbers:
        server.batches[number].polls = NEVER
    assert [
        n for n, batch in enumerate(server.batches) if batch.status == "ended"
    ] == list(numbers)


def asking(server: AnthropicServer) -> tuple[str, ...]:
    return (
        f"judge.base_url={server.url}",
        "judge.poll_initial_seconds=0.01",
        "judge.poll_max_seconds=0.02",
    )


def test_calls_that_got_no_answer_are_listed_with_what_they_may_have_cost():
    with Store(Path("cache/store.sqlite")) as store, Claims(store) as claims:
        claims.take(["a", "b"])
        for key in "ab":
            claims.send(key, 0.25)
        claims.unsend("a", lost="reset")
    assert "1 calls got no answer, and may have cost $0.2500 on top" in errand()


# A run is killed while its batches are under way: told by real processes


@dataclasses.dataclass
class Killed:
    """What was said, in the order in which it was asked; and the server."""

    server: AnthropicServer
    folder: Path
    batch_ids: list[str]
    listed: Ran
    planned: Ran
    keyless: Ran
    merged: Ran
    waited: Ran
    n_posts_until_then: int
    again: Ran


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("killed")
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as server:
        given, store = (
            (*SMALL, f"judge.base_url={server.url}"),
            ("experiment=store", *asking(server)),
        )
        process = subprocess.Popen(
            command(*given, "judging.budget_usd=5"),
            cwd=folder,
            env=environment(folder) | KEY | HERE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up = time.monotonic() + 60
        while (
            submitted(folder) < 3
            and process.poll() is None
            and time.monotonic() < give_up
        ):
            time.sleep(0.02)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        batch_ids = [batch.id for batch in server.batches]
        listed = attempt("experiment=store", folder=folder)
        planned = attempt(*given, "plan=true", folder=folder)
        keyless = attempt(*store, "store.action=wait", folder=folder, **HERE)
        other = (
            "store.action=merge",
            "store.file=outputs/cache/store.sqlite",
            "cache_dir=elsewhere",
        )
        merged = attempt(*store, *other, folder=folder)
        server.polls_to_end = 1
        waited = attempt(*store, "store.action=wait", folder=folder, **KEY, **HERE)
        n_posts = server.meter.posts()
        again = attempt(*given, folder=folder, **HERE)
        yield Killed(
            server,
            folder,
            batch_ids,
            listed,
            planned,
            keyless,
            merged,
            waited,
            n_posts,
            again,
        )


def submitted(folder: Path) -> int:
    with (
        suppress(sqlite3.Error),
        closing(
            sqlite3.connect(
                f"file:{folder}/outputs/cache/store.sqlite?mode=ro", uri=True
            )
        ) as db,
    ):
        return int(
            db.execute(
                "SELECT COUNT(*) FROM batches WHERE state = 'submitted'"
            ).fetchone()[0]
        )
    return 0


def test_list_shows_what_is_under_way_and_where_and_needs_no_key(killed: Killed):
    assert killed.listed.code == 0, killed.listed.err
    lines = [
        line
        for line in killed.listed.out.splitlines()
        if line.startswith("under way: ")
    ]
    assert [
        re.search(r"(\d+) requests to claude-opus-5-5 since \d{4}-", line)[1]
        for line in lines
    ] == ["5", "5", "2"]
    assert [re.search(r"(\d+) open, at most \$0\.\d\d", line)[1] for line in lines] == [
        "5",
        "5",
        "2",
    ]
    for line, batch_id in zip(lines, killed.batch_ids, strict=True):
        assert line.endswith(f"{batch_id} at {killed.server.url}")
    assert re.search(r"responses +probe_partial +2 +0\.00", killed.listed.out)


def test_a_plan_counts_what_is_under_way_as_neither_stored_nor_to_pay(killed: Killed):
    assert killed.planned.code == 0, killed.planned.err
    assert re.search(r"factuality +6 +12 +0 +0 ", killed.planned.out)
    assert "12 queries are in batches that have been submitted" in killed.planned.out


def test_waiting_without_a_key_is_one_clear_line_and_loses_nothing(killed: Killed):
    assert killed.keyless.code == 2
    assert killed.keyless.out == ""
    assert killed.keyless.err.splitlines()[-1].startswith(
        "elo_exp: ANTHROPIC_API_KEY: not set. Put the key into"
    )


def test_a_store_with_batches_under_way_is_not_merged(killed: Killed):
    """Whoever merged it would pay for these queries again."""
    assert killed.merged.code == 2
    assert killed.merged.err == (
        "elo_exp: store.file: 3 batches of outputs/cache/store.sqlite are still under way. Collect them first: "
        "experiment=store store.action=wait cache_dir=outputs/cache\n"
    )


def test_wait_collects_them_and_says_what_they_cost(killed: Killed):
    assert killed.waited.code == 0, killed.waited.err
    first, last = killed.waited.out.splitlines()
    tokens = killed.server.meter.tokens["batch"]
    assert re.match(
        r"12 answers collected; spent \$0\.\d{4} \(factuality \$0\.\d{4}\): ", first
    )
    assert f"{tokens['input_tokens']:,} tokens in" in first
    assert f"{tokens['output_tokens']:,} out" in first
    assert last == "nothing under way"
    assert (
        "took over 3 batches that an earlier run has left under way"
        in killed.waited.err
    )


def test_the_next_run_asks_nothing_and_needs_neither_key_nor_budget(killed: Killed):
    assert killed.again.code == 0, killed.again.err
    assert killed.server.meter.posts() == killed.n_posts_until_then
    assert killed.again.read("manifest.json")["usage"]["dollars"] == 0
    assert set(killed.server.meter.billed.values()) == {1}
    assert killed.server.meter.billed.total() == 12


def test_errands_leave_no_run_folder(killed: Killed):
    """One of the run that was killed, one of the run that went on, and none of its plan."""
    outputs = killed.folder / "outputs"
    assert len([path for path in outputs.iterdir() if path.name != "cache"]) == 2
    assert {path.name for path in (outputs / "cache").iterdir()} <= {
        "store.sqlite",
        "store.sqlite-wal",
        "store.sqlite-shm",
        "elo_exp.log",
    }


# List


def table(text: str) -> dict[tuple[str, ...], tuple[str, str]]:
    """Number and dollars by kind, source and dimension."""
    cells = [
        re.split(r"\s{2,}", line.strip())
        for line in text.splitlines()
        if re.search(r"^ +(verdicts|resp)", line)
    ]
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in cells}


def test_list_counts_by_kind_source_and_dimension_with_what_was_paid():
    fill(Path("cache"))
    assert table(errand()) == {
        ("responses", "ann"): ("2", "0.00"),
        ("responses", "bob"): ("2", "0.00"),
        ("responses", "cid"): ("2", "0.00"),
        ("verdicts", "haiku", "factuality"): ("1", "0.25"),
        ("verdicts", "lexical", "factuality"): ("1", "0.00"),
        ("verdicts", "opus", "calibration"): ("1", "0.25"),
        ("verdicts", "opus", "factuality"): ("3", "0.75"),
    }
    assert errand().splitlines()[-1] == "nothing under way"


@pytest.mark.parametrize(
    ("words", "n"),
    [
        (("store.judge=opus",), 4),
        (("store.rubric=calibration",), 1),
        (("store.entrant=cid",), 4),  # its two responses, and k3 and k6
        (("store.judge=opus", "store.entrant=ann"), 3),
        (("store.judge=opus", "store.entrant=ann", "store.rubric=factuality"), 2),
        (("store.judge=nobody",), 0),
        (("store.judge=OPUS",), 0),
        (('store.entrant="x\' OR 1=1 --"',), 0),
        (("store.entrant='%'",), 0),
    ],
)
def test_judge_entrant_and_rubric_choose_answers_together(
    words: tuple[str, ...], n: int
):
    fill(Path("cache"))
    assert sum(int(number) for number, _ in table(errand(*words)).values()) == n


def test_list_shows_a_submission_whose_fate_is_not_known():
    fill(Path("cache"), [])
    with Store(Path("cache/store.sqlite")) as store, store.transaction() as db:
        db.execute(
            "INSERT INTO batches (nonce, owner, endpoint, judge_model, state, size, reserve, created_at) "
            "VALUES ('ab12cd34', 'nobody', 'http://h', 'opus', 'intended', 7, 0.5, 0.0)"
        )
    (line,) = [line for line in errand().splitlines() if line.startswith("under way: ")]
    assert line.startswith("under way: ab12cd34  7 requests to opus since ")
    assert line.endswith("at most $0.50; not known yet to have arrived at http://h")


# Wait and cancel


def test_waiting_where_nothing_is_under_way_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, server: AnthropicServer
):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    fill(Path("cache"))
    assert (
        errand("store.action=wait", *asking(server))
        == "0 answers collected; nothing spent\nnothing under way"
    )
    assert server.meter.calls == []


def test_wait_collects_what_another_model_was_asked_at_that_models_price(
    server: AnthropicServer,
):
    """The errand's judge is Sonnet unless told otherwise; the batches are Opus's, twice as dear."""
    leave_under_way(server)
    server.polls_to_end = 1
    assert errand("store.action=wait", *asking(server)).startswith(
        "10 answers collected; spent $0.0"
    )
    tokens = server.meter.tokens["batch"]
    dollars = (tokens["input_tokens"] * 2 + tokens["output_tokens"] * 10) * 1e-6
    with Store(Path("cache/store.sqlite")) as store:
        (held,) = admin.count(store, admin.Filter())
    assert (held.source, held.n) == ("claude-opus-5-5", 10)
    assert held.dollars == pytest.approx(dollars)


def test_cancelled_batches_are_collected_and_the_next_run_pays_for_the_rest(
    server: AnthropicServer,
):
    """Of each batch the server has answered half when it is told."""
    leave_under_way(server)
    said = errand("store.action=cancel", *asking(server))
    assert said.startswith(
        "3 asked to end. What has been answered by then is paid for: store.action=wait"
    )
    assert errand("store.action=wait", *asking(server)).startswith(
        "5 answers collected; spent $0.0"
    )
    server.polls_to_end = 1
    judgments, usage = judged(judge(server))
    assert len(judgments) == 5
    assert (usage.verdicts_stored, usage.judge_calls) == (5, 5)
    assert set(server.meter.billed.values()) == {1}


def test_a_run_that_finds_its_batches_cancelled_does_not_ask_again_by_itself(
    server: AnthropicServer, caplog: pytest.LogCaptureFixture
):
    """Whoever cancels means it, and is asked to say otherwise; the same command once more is saying so."""
    leave_under_way(server)
    errand("store.action=cancel", *asking(server))
    with pytest.raises(UserError, match="5 of 10 verdicts are missing"):
        judged(judge(server))
    assert (
        "warning: 5 queries have failed for good; 5 of them: cancelled by the user"
        in caplog.messages
    )
    server.polls_to_end = 1
    assert judged(judge(server))[1].judge_calls == 5
    assert set(server.meter.billed.values()) == {1}


def test_cancel_ends_every_batch_also_where_one_has_ended_already(
    server: AnthropicServer,
):
    leave_under_way(server)
    end(server, 0)
    with suppress(UserError):
        errand("store.action=cancel", *asking(server))
    assert [batch.status for batch in server.batches] == [
        "ended",
        "canceling",
        "canceling",
    ]


def test_cancelling_what_has_ended_is_no_mistake(server: AnthropicServer):
    leave_under_way(server)
    end(server, 0, 1, 2)
    assert (
        errand("store.action=cancel", *asking(server))
        == f"nothing is left to end at {server.url}"
    )


def test_cancelling_where_the_server_cannot_be_reached_is_one_clear_line():
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as gone:
        leave_under_way(gone)
    with pytest.raises(UserError, match="127.0.0.1|reached"):
        errand("store.action=cancel", *asking(gone))


def test_cancelling_a_submission_of_which_nobody_knows_says_so_and_what_to_do(
    server: AnthropicServer,
):
    """The process is gone before the server has answered. Once the batch has been found, it can be ended."""
    made = judge(server, chunk_size=10)
    server.fault("POST", "/batches$", AcceptThenReset())
    with interrupted():
        judged(made)
    with Store(Path("cache/store.sqlite")) as store:
        (batch,) = Ledger(store, owner="").batches()
    with pytest.raises(UserError) as refusal:
        errand("store.action=cancel", *asking(server))
    assert str(refusal.value) == (
        f"nobody knows whether the server has {batch.nonce} (10 requests): the submission got no answer. "
        "store.action=wait looks for it, and knows after judge.quarantine_seconds; once it is found, "
        "store.action=cancel ends it."
    )
    assert server.batches[0].status == "in_progress"


def test_cancel_ends_what_it_can_and_warns_of_the_others(
    server: AnthropicServer, caplog: pytest.LogCaptureFixture
):
    made = judge(server)
    server.fault("POST", "/batches$", AcceptThenReset(), nth=2)
    with interrupted():
        judged(made)
    assert errand("store.action=cancel", *asking(server)).startswith("2 asked to end. ")
    (line,) = [line for line in caplog.messages if "nobody knows" in line]
    assert re.match(
        r"warning: nobody knows whether the server has \w{8} \(4 requests\): the submission got no",
        line,
    )


def test_a_batch_that_was_not_cancelled_is_not_marked_as_if_it_had_been():
    with AnthropicServer(verdicts=longer, polls_to_end=NEVER) as gone:
        leave_under_way(gone)
    with suppress(Exception):
        errand("store.action=cancel", *asking(gone))
    with Store(Path("cache/store.sqlite")) as store:
        assert [batch.note for batch in Ledger(store, owner="").batches()] == [None] * 3


@pytest.mark.parametrize("action", ["wait", "cancel"])
def test_a_judge_without_batches_cannot_wait_for_any(action: str):
    with pytest.raises(
        UserError,
        match="^judge: has no batches. Choose the judge whose batches are meant, such as",
    ):
        errand(f"store.action={action}", "judge=lexical")


# Repay


@pytest.mark.parametrize("by", ["nonce", "id"])
def test_a_batch_that_is_given_up_is_paid_again_and_the_others_are_not(
    by: str, server: AnthropicServer
):
    leave_under_way(server)
    with Store(Path("cache/store.sqlite")) as store:
        batch = Ledger(store, owner="").batches()[1]
    name = batch.nonce if by == "nonce" else batch.batch_id
    assert errand("store.action=repay", f"store.batch='{name}'") == (
        f"batch {batch.nonce} is given up: its 4 open queries are paid for again when they are next wanted."
    )
    assert (
        len([line for line in errand().splitlines() if line.startswith("under way: ")])
        == 2
    )
    server.polls_to_end = 1
    judgments, usage = judged(judge(server))
    assert (len(judgments), usage.judge_calls) == (5, 10)
    assert [b.n for b in server.batches] == [4, 4, 2, 4]
    assert Counter(server.meter.billed.values()) == {
        1: 6,
        2: 4,
    }  # the server has not heard that it was given up


@pytest.mark.parametrize(
    "nonce", ["a2345678", "b0123456", "c1e23456", "d2345e67", "f0000000"]
)
def test_every_name_that_a_batch_can_have_can_be_given(
    nonce: str, server: AnthropicServer
):
    """Eight hexadecimal digits may be a number, 12345e67 say; so the first of them is a letter that starts none."""
    leave_under_way(server)
    with Store(Path("cache/store.sqlite")) as store, store.transaction() as db:
        first = Ledger(store, owner="").batches()[0].nonce
        for name in ("batches", "queries"):
            db.execute(f"UPDATE {name} SET nonce = ? WHERE nonce = ?", (nonce, first))
    assert errand("store.action=repay", f"store.batch={nonce}").startswith(
        f"batch {nonce} is given up: its 4 open"
    )


def test_only_what_is_under_way_can_be_given_up(server: AnthropicServer):
    leave_under_way(server)
    end(server, 0, 1, 2)
    errand("store.action=wait", *asking(server))
    with Store(Path("cache/store.sqlite")) as store:
        settled = Ledger(store, owner="").batches()[0]
    for name in (settled.nonce, settled.batch_id, "nobody"):
        with pytest.raises(
            UserError,
            match=f"store.batch: found no batch '{name}' under way. store.action=list",
        ):
            errand("store.action=repay", f"store.batch='{name}'")


# Export and import


def test_what_is_exported_and_brought_in_elsewhere_is_the_same_to_the_byte():
    fill(Path("cache"))
    assert (
        errand("store.action=export", "store.file=shared/all.jsonl")
        == "12 answers written to shared/all.jsonl"
    )
    assert errand(
        "store.action=import", "store.file=shared/all.jsonl", cache_dir=Path("fresh")
    ) == ("12 answers read, 12 of them new")
    assert rows(Path("fresh")) == rows(Path("cache"))
    assert errand(
        "store.action=import", "store.file=shared/all.jsonl", cache_dir=Path("fresh")
    ) == ("12 answers read, 0 of them new")


def test_a_fresh_store_with_what_another_paid_for_asks_nothing(server: AnthropicServer):
    server.polls_to_end = 1
    judgments, paid = judged(judge(server))
    errand("store.action=export", "store.file=all.jsonl")
    errand("store.action=import", "store.file=all.jsonl", cache_dir=Path("fresh"))
    n_calls = len(server.meter.calls)
    again, free = judged(judge(server, budget_usd=0.0), Path("fresh"))
    assert again == judgments
    assert (paid.judge_calls, free.judge_calls, free.dollars) == (10, 0, 0.0)
    assert len(server.meter.calls) == n_calls


def test_a_filter_exports_a_part():
    fill(Path("cache"))
    errand("store.action=export", "store.file=opus.jsonl", "store.judge=opus")
    exported = [
        json.loads(line)
        for line in Path("opus.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["key"] for row in exported] == ["k1", "k2", "k3", "k4"]
    assert set(exported[0]) == {"key", "kind", "created_at", "value"}
    assert exported[0]["value"] == reply("k1").to_dict()


def test_an_empty_store_is_exported_as_an_empty_file():
    assert (
        errand("store.action=export", "store.file=none.jsonl")
        == "0 answers written to none.jsonl"
    )
    assert (
        errand("store.action=import", "store.file=none.jsonl", cache_dir=Path("b"))
        == "0 answers read, 0 of them new"
    )


def test_what_is_there_already_stays():
    fill(Path("cache"), [reply("k1")])
    fill(
        Path("other"),
        [dataclasses.replace(reply("k1"), text='{"verdict": "B"}'), reply("k9")],
    )
    errand("store.action=export", "store.file=other.jsonl", cache_dir=Path("other"))
    before = rows(Path("cache"))
    assert errand("store.action=import", "store.file=other.jsonl").endswith(
        "1 of them new"
    )
    after = rows(Path("cache"))
    assert {key: after[key] for key in before} == before
    assert set(after) - set(before) == {"k9"}


def test_an_exported_file_can_be_compressed_and_brought_in():
    """By the name that is read as compressed."""
    fill(Path("cache"))
    errand("store.action=export", "store.file=all.jsonl.gz")
    assert errand(
        "store.action=import", "store.file=all.jsonl.gz", cache_dir=Path("b")
    ).endswith("12 of them new")


def test_log_probabilities_are_listed_exported_and_brought_in():
    forced = [
        ForcedLogprob(
            entrant_id="ann", prompt_id=prompt, total_logprob=total, n_tokens=9
        )
        for prompt, total in (("p1", -3.25), ("p2", None))
    ]
    with Store(Path("cache/store.sqlite")) as store:
        list(store.keep(forced, key=lambda each: each.prompt_id))
    assert re.search(r"log-probabilities +ann +2 ", errand())
    errand("store.action=export", "store.file=all.jsonl")
    assert errand(
        "store.action=import", "store.file=all.jsonl", cache_dir=Path("b")
    ).endswith("2 of them new")
    assert rows(Path("b")) == rows(Path("cache"))


@pytest.mark.parametrize("victim", ["cache", "other"])
def test_an_export_does_not_overwrite_a_store(victim: str):
    """`store.file=` is the store.sqlite of another in merge: one slip, and everything that was paid for is gone."""
    fill(Path("cache"))
    fill(Path("other"))
    before = rows(Path(victim))
    with pytest.raises(UserError, match="store.file"):
        errand("store.action=export", f"store.file={victim}/store.sqlite")
    assert rows(Path(victim)) == before


GOOD = {
    "key": "k1",
    "kind": "JudgeReply",
    "value": reply("k1").to_dict(),
    "created_at": "2026-11-21T12:00:00Z",
}
TOTAL = {"entrant_id": "ann", "prompt_id": "p1", "n_tokens": 9}
BAD_ROWS: dict[str, tuple[Any, str]] = {
    "not JSON": ("{", "bad.jsonl:2: not JSON"),
    "not an object": (
        [1],
        "bad.jsonl:2: found a list. Expected one JSON object a line.",
    ),
    "no key": ({**GOOD, "key": None}, "bad.jsonl:2: not an exported answer"),
    "another key": ({**GOOD, "key": "k2"}, "bad.jsonl:2: not an exported answer"),
    "another kind": (
        {**GOOD, "kind": "Prompt"},
        "Expected key, kind (Response, JudgeReply, ForcedLogprob) and value",
    ),
    "a total that is a text": (
        {**GOOD, "kind": "ForcedLogprob", "value": {**TOTAL, "total_logprob": "-3"}},
        "bad.jsonl:2: not an exported answer (what it says is of another type)",
    ),
    "a kind that is a list": (
        {**GOOD, "kind": ["JudgeReply"]},
        "bad.jsonl:2: not an exported answer",
    ),
    "no value": (
        {"key": "k1", "kind": "JudgeReply"},
        "bad.jsonl:2: not an exported answer ('value')",
    ),
    "a value that is a text": (
        {**GOOD, "value": "A"},
        "bad.jsonl:2: not an exported answer",
    ),
    "a value without its text": (
        {**GOOD, "value": {"key": "k1"}},
        "bad.jsonl:2: not an exported answer ('text')",
    ),
    "another file of ours": (
        {"prompt_id": "p1", "winner": "ann"},
        "bad.jsonl:2: not an exported answer ('key')",
    ),
    "a number that is none": (
        {**GOOD, "value": {**GOOD["value"], "dollars": float("nan")}},
        "bad.jsonl:2",
    ),
    "a text that is none": (
        {**GOOD, "value": {**GOOD["value"], "text": None}},
        "bad.jsonl:2",
    ),
    "a text that is a number": (
        {**GOOD, "value": {**GOOD["value"], "text": 1}},
        "bad.jsonl:2",
    ),
    "dollars that are a text": (
        {**GOOD, "value": {**GOOD["value"], "dollars": "many"}},
        "bad.jsonl:2",
    ),
}


@pytest.mark.parametrize(("row", "words"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_a_row_that_is_no_exported_answer_is_named_and_nothing_is_brought_in(
    row: Any, words: str
):
    first = json.dumps({**GOOD, "key": "k0", "value": {**GOOD["value"], "key": "k0"}})
    Path("bad.jsonl").write_text(
        f"{first}\n{row if isinstance(row, str) else json.dumps(row)}\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError) as refusal:
        errand("store.action=import", "store.file=bad.jsonl")
    assert words in str(refusal.value)
    assert rows(Path("cache")) == {}


def test_a_file_that_is_not_there_is_said_not_to_be():
    with pytest.raises(
        UserError,
        match=r"^missing.jsonl: cannot be read \(No such file or directory\). Check the path.",
    ):
        errand("store.action=import", "store.file=missing.jsonl")


# Merge


def test_two_stores_become_one_in_which_the_first_answer_stays():
    fill(Path("cache"), REPLIES[:3], "ann bob")
    fill(
        Path("other"),
        [dataclasses.replace(REPLIES[2], text="VERDICT: B"), *REPLIES[3:]],
        "bob cid",
    )
    ours, theirs = rows(Path("cache")), rows(Path("other"))
    bytes_before = Path("other/store.sqlite").read_bytes()
    assert (
        errand("store.action=merge", "store.file=other/store.sqlite")
        == "8 answers there, 5 of them new here"
    )
    assert rows(Path("cache")) == {**theirs, **ours}
    assert Path("other/store.sqlite").read_bytes() == bytes_before
    assert errand("store.action=merge", "store.file=other/store.sqlite").endswith(
        "0 of them new here"
    )


def test_what_a_killed_process_left_in_the_log_is_merged_too():
    """A copy of the files as a kill leaves them: the answers are in the write-ahead log only."""
    path = Path("other/store.sqlite")
    with Store(path) as store:
        list(store.keep(REPLIES, key=lambda r: r.key))
        shutil.copytree("other", "copy")
    assert Path("copy/store.sqlite-wal").stat().st_size > 0
    assert (
        errand("store.action=merge", "store.file=copy/store.sqlite")
        == "6 answers there, 6 of them new here"
    )


def test_a_store_of_the_first_version_is_merged():
    """It had no ledger."""
    fill(Path("other"))
    with closing(sqlite3.connect("other/store.sqlite", isolation_level=None)) as db:
        for name in ("owners", "claims", "batches", "queries"):
            db.execute(f"DROP TABLE {name}")
        db.execute("PRAGMA user_version = 1")
    assert (
        errand("store.action=merge", "store.file=other/store.sqlite")
        == "12 answers there, 12 of them new here"
    )


def alter(pragma: str) -> None:
    with closing(sqlite3.connect("other/store.sqlite", isolation_level=None)) as db:
        db.execute(f"PRAGMA {pragma}")


def cut_off() -> None:
    data = Path("other/store.sqlite").read_bytes()
    Path("other/store.sqlite").write_bytes(data[: len(data) // 2])


NOT_MERGED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "newer": (
        lambda: alter(f"user_version = {SCHEMA_VERSION + 1}"),
        "other/store.sqlite",
        "store.file: other/store.sqlite was written by a newer elo_exp. Upgrade elo_exp.",
    ),
    "of another program": (
        lambda: alter("application_id = 7"),
        "other/store.sqlite",
        "store.file: other/store.sqlite is the database of another program.",
    ),
    "empty": (
        lambda: Path("empty").touch(),
        "empty",
        "store.file: empty is the database of another program.",
    ),
    "a text": (
        lambda: Path("notes.txt").write_text("Ask Ada.\n" * 999, encoding="utf-8"),
        "notes.txt",
        "store.file: notes.txt cannot be read as a store (file is not a database).",
    ),
    "damaged": (
        cut_off,
        "other/store.sqlite",
        "store.file: other/store.sqlite cannot be read as a store (",
    ),
    "missing": (
        lambda: None,
        "missing.sqlite",
        "store.file: found no file missing.sqlite. Expected the store.sqlite of",
    ),
    "a folder": (
        lambda: None,
        "other",
        "store.file: found no file other. Expected the store.sqlite of another cache_dir",
    ),
    "this store": (
        lambda: None,
        "cache/store.sqlite",
        "store.file: cache/store.sqlite is this store itself.",
    ),
    "this store by another name": (
        lambda: Path("link").symlink_to("cache"),
        "link/store.sqlite",
        "store.file: link/store.sqlite is this store itself.",
    ),
}


@pytest.mark.parametrize(
    ("make", "file", "words"), NOT_MERGED.values(), ids=list(NOT_MERGED)
)
def test_what_is_no_other_store_is_refused_and_nothing_is_brought_in(
    make: Callable[[], Any], file: str, words: str
):
    fill(Path("cache"), REPLIES[:1])
    fill(Path("other"))
    make()
    before = rows(Path("cache"))
    with pytest.raises(UserError) as refusal:
        errand("store.action=merge", f"store.file={file}")
    assert words in str(refusal.value)
    assert rows(Path("cache")) == before
    assert not Path("missing.sqlite").exists()


def test_when_its_batches_are_collected_it_is_merged(server: AnthropicServer):
    leave_under_way(server, Path("other"))
    with pytest.raises(
        UserError,
        match="3 batches of other/store.sqlite are still under way. Collect them first",
    ):
        errand("store.action=merge", "store.file=other/store.sqlite")
    assert rows(Path("cache")) == {}
    server.polls_to_end = 1
    errand("store.action=wait", *asking(server), cache_dir=Path("other"))
    assert (
        errand("store.action=merge", "store.file=other/store.sqlite")
        == "10 answers there, 10 of them new here"
    )
    n_calls = len(server.meter.calls)
    assert judged(judge(server, budget_usd=0.0))[1].judge_calls == 0
    assert len(server.meter.calls) == n_calls


# Purge

PURGED = {
    ("store.judge=opus",): {"k1", "k2", "k3", "k4"},
    ("store.rubric=calibration",): {"k4"},
    ("store.entrant=ann",): {"ann p1", "ann p2", "k1", "k2", "k4", "k5", "k6"},
    ("store.judge=opus", "store.entrant=cid"): {"k3"},
    ("store.judge=nobody",): set(),
}


@pytest.mark.parametrize(
    ("words", "keys"), PURGED.items(), ids=[" ".join(words) for words in PURGED]
)
def test_purging_takes_out_what_was_meant_after_it_is_confirmed_and_it_can_be_brought_back(
    words: tuple[str, ...], keys: set[str]
):
    fill(Path("cache"))
    before = rows(Path("cache"))
    worth = 0.25 * sum(key in {"k1", "k2", "k3", "k4", "k5"} for key in keys)
    assert errand("store.action=purge", *words) == (
        f"{len(keys)} answers, ${worth:.2f} worth, would go. Nothing has been changed; add store.confirm=true to do it."
    )
    assert rows(Path("cache")) == before
    said = errand("store.action=purge", "store.confirm=true", *words)
    assert said.startswith(
        f"{len(keys)} answers, ${worth:.2f} worth, taken out, into cache/purged_"
    )
    assert set(rows(Path("cache"))) == set(before) - keys
    (purged,) = Path("cache").glob("purged_*.jsonl")
    assert (
        errand("store.action=import", f"store.file='{purged}'")
        == f"{len(keys)} answers read, {len(keys)} of them new"
    )
    assert rows(Path("cache")) == before


def test_a_purge_must_say_what():
    fill(Path("cache"))
    before = rows(Path("cache"))
    with pytest.raises(
        UserError,
        match="^store.action=purge: purges nothing as it is. Say what: store.judge=, store.ent",
    ):
        errand("store.action=purge", "store.confirm=true")
    assert rows(Path("cache")) == before


def test_what_was_purged_is_paid_for_again_and_nothing_else(server: AnthropicServer):
    server.polls_to_end = 1
    judged(judge(server))
    fill(Path("cache"), [reply("k1", judge="haiku")], "")
    errand("store.action=purge", "store.judge=claude-opus-5-5", "store.confirm=true")
    assert set(rows(Path("cache"))) == {"k1"}
    assert judged(judge(server))[1].judge_calls == 10
    assert set(server.meter.billed.values()) == {2}


def test_purges_of_the_same_second_do_not_overwrite_each_other():
    fill(Path("cache"))
    for name in ("ann", "bob", "cid"):
        errand("store.action=purge", f"store.entrant={name}", "store.confirm=true")
    files = sorted(Path("cache").glob("purged_*.jsonl"))
    assert len(files) == 3
    kept = {
        json.loads(line)["key"]
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    assert kept == {
        "ann p1",
        "ann p2",
        "bob p1",
        "bob p2",
        "cid p1",
        "cid p2",
        *(f"k{n}" for n in range(1, 7)),
    }


def test_what_is_under_way_survives_a_purge_and_is_collected(server: AnthropicServer):
    leave_under_way(server)
    errand("store.action=purge", "store.judge=claude-opus-5-5", "store.confirm=true")
    server.polls_to_end = 1
    assert errand("store.action=wait", *asking(server)).startswith(
        "10 answers collected"
    )


def test_a_purge_that_cannot_keep_what_it_takes_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    fill(Path("cache"))
    before = rows(Path("cache"))
    with Store(Path("cache/store.sqlite")) as store:

        def full(*_: Any) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(admin, "write_jsonl", full)
        with pytest.raises(UserError, match="No space left on device"):
            admin.purge(store, admin.Filter(judge="opus"))
    assert rows(Path("cache")) == before


# What is missing, in words


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "store.action=merge",
            "store.file: names no file. Set it with store.file=FILE; store.action=merge needs it.",
        ),
        (
            "store.action=export",
            "store.file: names no file. Set it with store.file=FILE; store.action=export needs it.",
        ),
        (
            "store.action=import",
            "store.file: names no file. Set it with store.file=FILE; store.action=import needs it.",
        ),
        (
            "store.action=repay",
            "store.batch: names no batch. Set it with store.batch=NAME; store.action=list names them.",
        ),
        (
            "store.action=lst",
            "store.action: found 'lst'. Expected 'list', 'wait', 'cancel', 'repay', 'export', 'import', 'merge' or 'purge'.",
        ),
    ],
)
def test_what_is_missing_is_named(words: str, line: str):
    with pytest.raises(UserError) as refusal:
        errand(words)
    assert str(refusal.value) == line


def test_the_command_says_the_same_in_one_line(tmp_path: Path):
    ran = attempt("experiment=store", "store.action=purge", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "elo_exp: store.action=purge: purges nothing as it is. Say what: store.judge=, "
    )
    assert ran.err.count("\n") == 1


def test_what_is_written_by_hand_in_an_export_is_brought_in():
    """Blank lines, other orders of keys, no time."""
    row = {"value": reply("k1").to_dict(), "kind": "JudgeReply", "key": "k1"}
    Path("hand.jsonl").write_text(
        f"\n{json.dumps(row, indent=None)}\n\n", encoding="utf-8"
    )
    assert (
        errand("store.action=import", "store.file=hand.jsonl")
        == "1 answers read, 1 of them new"
    )
    write_jsonl(Path("twice.jsonl"), [row, row])
    assert errand(
        "store.action=import", "store.file=twice.jsonl", cache_dir=Path("b")
    ) == ("2 answers read, 1 of them new")
