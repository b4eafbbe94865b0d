"""What a user sees of a paid judge before it is paid: the plan and the cap.

`python -m elo_exp` judges with Claude against the server of tests/anthropic_server.py. The commands run once; the
tests read what came of them. tests/test_headline.py has the bill, tests/test_key.py and tests/test_claude.py mistakes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    "figures=false",
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


COLUMNS = (
    *("rubric", "comparisons", "judge calls", "in cache", "to pay for"),
    *("tokens in", "tokens out", "expected $", "detectable gap"),
)


def planned(text: str) -> dict[str, str]:
    """The row of factuality by column."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    (row,) = [cells for cells in lines if cells[0] == "factuality"]
    return dict(zip(COLUMNS, row, strict=True))


@pytest.fixture(scope="module")
def stories(tmp_path_factory) -> Mapping[str, Story]:
    """The commands, by what they show."""
    folder = tmp_path_factory.mktemp("plan")
    with AnthropicServer(verdicts=longer) as server:

        def told(*arguments: str, into: str, key: dict[str, str] = NO_KEY) -> Story:
            n_before = len(server.meter.calls)
            given = (*OPUS, url(server), *arguments)
            ran = attempt(*given, folder=folder / into, **key)
            return Story(ran, server.meter.calls[n_before:])

        return {
            "plan": told("plan=true", into="plan"),
            "half": told("judging.limit_pairs=3", into="half", key=KEY),
            "half, planned": told("plan=true", into="half", key=KEY),
        }


# Before


@pytest.mark.system
def test_a_plan_needs_no_key_and_asks_and_pays_nothing(stories):
    ran = stories["plan"].ran
    assert ran.code == 0, ran.err
    assert stories["plan"].calls == []
    assert ran.out.startswith(
        'plan: judge claude-opus-5-5 as "an expert, impartial physician-evaluator"\n  budget $5.00 '
        "(judging.budget_usd), tokens estimated from the length"
    )
    assert list(ran.folder.rglob("manifest.json")) == []
    assert list(ran.folder.rglob("*.sqlite")) == []
    row = planned(ran.out)
    assert (row["comparisons"], row["judge calls"], row["in cache"]) == ("6", "12", "0")
    shared = re.search(r"(\d+) judge calls? repeats? the text", ran.out)
    assert int(row["to pay for"]) == 12 - (int(shared[1]) if shared else 0)
    assert int(row["tokens out"].replace(",", "")) == 550 * int(row["to pay for"])
    plain = float(
        re.search(r"a cache cost \$(\d+\.\d+)", ran.out)[1]
    )  # batches, and the demo has no prompt cache
    assert float(row["expected $"]) == pytest.approx(plain / 2, abs=0.01)
    assert re.fullmatch(r"\d+", row["detectable gap"])


@pytest.mark.system
def test_a_plan_after_half_is_stored_counts_the_other_half(
    stories,
):
    """Of 6 pairs 3 are judged; with a key the API counts the tokens of the rest, and that is all it is asked."""
    half, more = stories["half"].ran, stories["half, planned"]
    assert (half.code, more.ran.code) == (0, 0), half.err + more.ran.err
    n_paid = half.read("manifest.json")["usage"]["judge_calls"]
    before, after = planned(half.err), planned(more.ran.out)
    assert (before["judge calls"], before["in cache"], int(before["to pay for"])) == (
        "6",
        "0",
        n_paid,
    )
    assert (after["judge calls"], int(after["in cache"])) == ("12", n_paid)
    n_all = int(planned(stories["plan"].ran.out)["to pay for"])
    assert int(after["to pay for"]) == n_all - n_paid
    assert {call.path for call in more.calls} == {"/v1/messages/count_tokens"}
    assert (
        f"estimated from {len(more.calls)} calls whose tokens the API counted"
        in more.ran.out
    )
