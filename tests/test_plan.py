"""What a user sees of a paid judge before it is paid: the plan, the cap, and one clear line for a mistake.

`python -m elo_exp` judges with Claude against the server of tests/anthropic_server.py. The commands run once; the
tests read what came of them. tests/test_headline.py has the bill.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt
from tests.http_server import Call

KEY = {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
NO_KEY = {"NO_PROXY": "127.0.0.1"}
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
    """A command that has ended, and what it asked of the server."""

    ran: Ran
    calls: Sequence[Call]


def url(server: AnthropicServer) -> str:
    return f"judge.base_url={server.url}"


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
def stories(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Story]:
    """The commands, by what they show."""
    folder = tmp_path_factory.mktemp("plan")
    with AnthropicServer(verdicts=longer) as server:

        def told(*arguments: str, into: str, key: dict[str, str] = NO_KEY) -> Story:
            n_before = len(server.meter.calls)
            given = (*OPUS, url(server), *arguments)
            ran = attempt(*given, folder=folder / into, **key)
            return Story(ran, server.meter.calls[n_before:])

        low = "++judging.budget_usd=0.01"
        return {
            "plan": told("plan=true", into="plan"),
            "low": told(low, "plan=true", into="low"),
            "half": told("judging.limit_pairs=3", into="half", key=KEY),
            "half, planned": told("plan=true", into="half", key=KEY),
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
    "judge.base_url=http://:hush@127.0.0.1:1": "without a password in it",
    "judge.base_url=http://127.0.0.1:9": "cannot be reached",
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


def test_a_wrong_key_is_one_clear_line(mistaken: Attempt):
    ran = mistaken(**NO_KEY, ANTHROPIC_API_KEY="another")
    words = "refuses (401): invalid x-api-key. Check ANTHROPIC_API_KEY."
    assert_one_clear_line(ran, words)
    assert "another" not in ran.err
