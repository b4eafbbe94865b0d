"""What a user sees of a paid judge: the plan and the cap before, one clear line for a mistake, the cost afterwards.

`python -m elo_exp` judges with Claude against the server of tests/anthropic_server.py. The commands run once; the
tests read what came of them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import bank
from elo_exp.files import write_jsonl
from tests.anthropic_server import AnthropicServer, Stage
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt, command, environment
from tests.data import BANK, DIMENSIONS
from tests.http_server import Call

KEY = {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
NO_KEY = {"NO_PROXY": "127.0.0.1"}
ENTRANTS = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
POLLING = ("judge.poll_initial_seconds=0.02", "judge.poll_max_seconds=0.05")
# Two prompts, three entrants, both orders: 6 pairs, 12 queries.
SMALL = (
    "+mode.strata.medqa=2",
    "entrant=[probe_reference,probe_partial,probe_swapped]",
    "rubric=[factuality]",
    "tracker=local",
    "elo.n_perms=5",
    "judging.budget_usd=5",
)
OPUS = ("judge=opus", *POLLING, *SMALL)


@dataclass
class Story:
    """A command that has ended, its server, and its calls. `early`: its stderr at the first paid call."""

    ran: Ran
    server: AnthropicServer
    calls: Sequence[Call]
    early: str = ""


def url(server: AnthropicServer) -> str:
    return f"judge.base_url={server.url}"


def watched(server: AnthropicServer, *arguments: str, folder: Path) -> Story:
    """The command, with its stderr when the first paid call arrived."""
    folder.mkdir()
    log, early = folder / "stderr.txt", list[str]()

    def look(stage: Stage, call: Call) -> None:
        is_paid = call.method == "POST" and re.search("/(batches|messages)$", call.path)
        if stage == "before" and is_paid:
            early.append(log.read_text(encoding="utf-8"))

    server.on_call = look
    with log.open("w", encoding="utf-8") as err:
        done = subprocess.run(
            command(*arguments, url(server)),
            cwd=folder,
            env=environment(folder) | KEY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            check=False,
        )
    ran = Ran(folder, done.returncode, done.stdout, log.read_text(encoding="utf-8"))
    return Story(ran, server, server.meter.calls, early[0])


def planned(text: str) -> dict[str, str]:
    """The row of factuality by column."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    (header,) = [cells for cells in lines if cells[:2] == ["dimension", "pairs"]]
    (row,) = [cells for cells in lines if cells[0] == "factuality"]
    return dict(zip(header, row, strict=True))


def answers(folder: Path) -> dict[str, str]:
    """The store of a command by key, read by another program than ours."""
    path = folder / "outputs" / "cache" / "store.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return dict(db.execute("SELECT key, value FROM answers"))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Story]]:
    """The commands, by what they show."""
    folder = tmp_path_factory.mktemp("plan")
    for rank, name in enumerate(ENTRANTS):
        rows = [
            {
                "prompt_id": prompt.prompt_id,
                "response_text": f"{name} on {prompt.prompt_id}: {'very ' * rank}likely.",
            }
            for prompt in bank.load(BANK)
        ]
        write_jsonl(folder / "recorded" / f"responses_{name}.jsonl", rows)
    with ExitStack() as servers:

        def serve(**settings: Any) -> AnthropicServer:
            return servers.enter_context(AnthropicServer(verdicts=longer, **settings))

        def told(
            server: AnthropicServer, *arguments: str, into: str, key: dict[str, str]
        ) -> Story:
            n_before = len(server.meter.calls)
            ran = attempt(*arguments, url(server), folder=folder / into, **key)
            return Story(ran, server, server.meter.calls[n_before:])

        recorded = (f"recorded_dir={folder}/recorded", *POLLING, "elo.n_perms=5")
        headline = ("mode=headline", "+mode.strata.medqa=2", "judge.chunk_size=20")
        less, half = "judging.limit_pairs=3", serve()
        yield {
            "headline": watched(
                serve(miss_rate=0.2),
                *headline,
                *recorded,
                "tracker=local",
                folder=folder / "headline",
            ),
            "plan": told(serve(), *OPUS, "plan=true", into="plan", key=NO_KEY),
            "low": told(
                serve(),
                *OPUS[:-1],
                "judging.budget_usd=0.01",
                "plan=true",
                into="low",
                key=NO_KEY,
            ),
            "half": told(half, *OPUS, less, into="half", key=KEY),
            "half, planned": told(half, *OPUS, "plan=true", into="half", key=KEY),
            "half, again": told(
                half, *OPUS[:-1], less, "judging.budget_usd=0", into="half", key=NO_KEY
            ),
        }


# Before


def test_a_plan_needs_no_key_and_asks_and_pays_nothing(stories: Mapping[str, Story]):
    ran = stories["plan"].ran
    assert ran.code == 0, ran.err
    assert stories["plan"].calls == []
    assert ran.out.startswith(
        "plan: judge claude-opus-5-5, cap $5.00 (judging.budget_usd), tokens estimated from the length"
    )
    assert list(ran.folder.rglob("manifest.json")) == []
    assert answers(ran.folder) == {}
    row = planned(ran.out)
    assert (row["pairs"], row["queries"], row["stored"]) == ("6", "12", "0")
    shared = re.search(r"(\d+) queries equal another", ran.out)
    assert int(row["new"]) == 12 - (int(shared[1]) if shared else 0)
    assert int(row["out"].replace(",", "")) == 550 * int(row["new"])
    plain = float(row["$ plain"])  # batches, and the demo has no prompt cache
    assert float(row["$ expected"]) == pytest.approx(plain / 2, abs=0.01)
    assert re.fullmatch(r"\d+", row["detects"])
    low = stories["low"].ran
    assert low.code == 0
    assert re.search(r"The cap is too low: \$0\.\d{4} of \$0\.0100\.", low.out)


def test_a_plan_after_half_is_stored_counts_the_other_half(
    stories: Mapping[str, Story],
):
    """Of 6 pairs 3 are judged; with a key the API counts the tokens of the rest, and that is all it is asked."""
    half, more = stories["half"].ran, stories["half, planned"]
    assert (half.code, more.ran.code) == (0, 0), half.err + more.ran.err
    n_paid = half.read("manifest.json")["usage"]["judge_calls"]
    before, after = planned(half.err), planned(more.ran.out)
    assert (before["queries"], before["stored"], int(before["new"])) == (
        "6",
        "0",
        n_paid,
    )
    assert (after["queries"], int(after["stored"])) == ("12", n_paid)
    n_all = int(planned(stories["plan"].ran.out)["new"])
    assert int(after["new"]) == n_all - n_paid
    assert {call.path for call in more.calls} == {"/v1/messages/count_tokens"}
    assert f"tokens scaled from {len(more.calls)} that the API counted" in more.ran.out


def test_a_paid_run_shows_its_plan_before_its_first_paid_call(
    stories: Mapping[str, Story],
):
    story = stories["headline"]
    assert story.ran.code == 0, story.ran.err
    basis = (
        "plan: judge claude-opus-5-5, cap $100.00 (judging.budget_usd), tokens scaled"
    )
    assert basis in story.early
    assert int(planned(story.early)["new"]) > 0


def test_a_run_with_everything_stored_needs_neither_key_nor_budget(
    stories: Mapping[str, Story],
):
    half, again = stories["half"].ran, stories["half, again"]
    assert again.ran.code == 0, again.ran.err
    assert again.calls == []
    assert "plan:" not in again.ran.err
    assert again.ran.read("manifest.json")["usage"]["dollars"] == 0
    for name in ("elo_results.json", "verdicts/factuality.jsonl"):
        before = (half.run_dir / name).read_bytes()
        assert (again.ran.run_dir / name).read_bytes() == before


# What was spent

# dollars per million in a batch, of the input, cache writes and reads, and output
PRICES = (2, 2.5, 4, 0.1, 10)
CLASSES = {
    "input_tokens": "input_tokens",
    "cache_write_5m_tokens": "cache_creation_5m",
    "cache_write_1h_tokens": "cache_creation_1h",
    "cache_read_tokens": "cache_read_input_tokens",
    "output_tokens": "output_tokens",
}


def test_manifest_console_and_tracker_agree_with_the_servers_meter(
    stories: Mapping[str, Story],
):
    ran, meter = stories["headline"].ran, stories["headline"].server.meter
    model = "claude-opus-5-5"
    assert ran.code == 0, ran.err
    usage = ran.read("manifest.json")["usage"]
    assert set(meter.tokens_by_model) == {(model, "batch")}
    by_class = meter.tokens_by_model[model, "batch"]
    tokens = {ours: by_class[theirs] for ours, theirs in CLASSES.items()}
    priced = zip(tokens.values(), PRICES, strict=True)
    dollars = sum(n * price for n, price in priced) * 1e-6
    assert {ours: usage[ours] for ours in CLASSES} == tokens
    by_dimension = usage["dollars_by_dimension"]
    assert set(by_dimension) == set(DIMENSIONS)
    for spent in (usage["dollars"], sum(by_dimension.values())):
        assert spent == pytest.approx(dollars, abs=1e-9)
    assert usage["judge_calls"] == meter.billed.total() == 3 * 2 * 12
    assert meter.paid_twice == set()

    (line,) = [line for line in ran.err.splitlines() if line.startswith("spent $")]
    written = tokens["cache_write_5m_tokens"] + tokens["cache_write_1h_tokens"]
    assert line.startswith(f"spent ${dollars:.4f} (")
    assert line.endswith(
        f"{tokens['input_tokens']:,} tokens in, {written:,} written to the prompt cache, "
        f"{tokens['cache_read_tokens']:,} read from it, {tokens['output_tokens']:,} out"
    )

    logged = ran.rows("tracker/log.jsonl")
    (summary,) = [row["value"] for row in logged if row["kind"] == "summary"]
    assert {ours: summary[f"usage/{ours}"] for ours in CLASSES} == tokens
    assert summary["usage/dollars"] == pytest.approx(dollars, abs=1e-9)
    assert all(summary[f"usage/dollars/{dimension}"] > 0 for dimension in DIMENSIONS)


# What the modes choose


# Mistakes

OTHER_MODEL = (
    "{input:4,output:20,cache_write_5m:5,cache_write_1h:8,cache_read:0.2,batch_factor:0.5,min_cacheable_tokens:512,"
    "structured_output:true,takes_effort:true}"
)
# The words after `judge=opus ...` -> what the line says. The store holds half of the verdicts.
MISTAKES = {
    "judging.budget_usd=0": "judging.budget_usd: is $0, and claude-opus-5-5 is paid for. Set a cap in dollars with",
    "judging.budget_usd=0.01": "verdicts by claude-opus-5-5 are expected to cost $0.",
    f"judge.model=claude-opus-6 +judge.models.claude-opus-6={OTHER_MODEL}": (
        "the judge's API refuses (404): model: claude-opus-6. Check judge.model and judge.base_url."
    ),
    "cache_dir=newer": "newer/store.sqlite: written by a newer elo_exp (store version 99, this program knows",
    "judge.base_url=http://:hush@127.0.0.1:1": "without a password in it",
    "judge.base_url=http://127.0.0.1:9": "cannot be reached",
}
KEYS = {
    "": (
        "ANTHROPIC_API_KEY: not set. Put the key into the environment, or as ANTHROPIC_API_KEY=... into a file .env "
        "here; plan=true shows what a run would cost without one."
    ),
    "another": "refuses (401): invalid x-api-key. Check ANTHROPIC_API_KEY.",
}

Attempt = Callable[..., Ran]


@pytest.fixture(scope="module")
def mistaken(
    stories: Mapping[str, Story], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attempt]:
    """Run the small command with these words; in the end nothing is spent and nothing is lost."""
    folder = tmp_path_factory.mktemp("mistakes")
    cache = stories["half"].ran.folder / "outputs" / "cache"
    shutil.copytree(cache, folder / "outputs" / "cache")
    shutil.copytree(cache, folder / "newer")
    with closing(sqlite3.connect(folder / "newer" / "store.sqlite")) as db:
        db.execute("PRAGMA user_version = 99")
    before = answers(folder)
    with AnthropicServer(verdicts=longer) as server:

        def run(words: str = "", **key: str) -> Ran:
            given = [*OPUS, url(server), *shlex.split(words)]
            last = {word.partition("=")[0]: word for word in given}
            return attempt(*last.values(), folder=folder, **key)

        yield run
        assert server.meter.posts("/v1/messages(/batches)?$") == 0
        assert server.meter.billed_bodies.total() == 0
    assert answers(folder) == before


def assert_one_clear_line(ran: Ran, words: str) -> None:
    """It comes last; no traceback, no output, exit code 2."""
    assert "Traceback" not in ran.err, ran.err
    lines = ran.err.splitlines()
    assert [line for line in lines if line.startswith("elo_exp: ")] == lines[-1:]
    assert words in lines[-1]
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(("given", "words"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_one_clear_line(given: str, words: str, mistaken: Attempt):
    ran = mistaken(given, **KEY)
    assert_one_clear_line(ran, words)
    assert "hush" not in ran.err


@pytest.mark.parametrize(("key", "words"), KEYS.items(), ids=["none", "wrong"])
def test_a_missing_or_wrong_key_is_one_clear_line(
    key: str, words: str, mistaken: Attempt
):
    ran = mistaken(**NO_KEY, **({"ANTHROPIC_API_KEY": key} if key else {}))
    assert_one_clear_line(ran, words)
    assert "another" not in ran.err
