"""Nothing is paid for rubbish: the first replies of a rubric are read before others are paid for, and all are watched.

A judge that says nothing of use, an entrant that answers nothing: one line, exit code 2, and what was paid is kept.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from elo_exp.api import batch_results
from elo_exp.errors import UserError
from elo_exp.pipeline import JudgingSettings, judge_pairs
from elo_exp.store.answer_store import Store
from elo_exp.store.ledger import Ledger
from tests.anthropic_server import AnthropicServer
from tests.batch_server import NeverEnd
from tests.commands import Ran, attempt
from tests.data import shipped
from tests.http_server import Call
from tests.killing import metered
from tests.openai_server import OpenAiServer, Says, alone
from tests.paying import RUBRIC, STORE, claude, comparisons, paying

__all__ = ["paying"]
pytestmark = pytest.mark.usefixtures("paying")

VAGUE = "Both answers are fine, and I would say that it depends on who asks."
PRICES = {"input_usd_per_million": 2.0, "output_usd_per_million": 8.0}
LINE = (
    "elo_exp: 20 of the first 20 replies hold no verdict (judge small on factuality). Replies that were paid for are "
    f'stored, and are not paid for again.\n  The first: "{VAGUE}" (end_turn)\n'
    "  Try judge.structured=none, a larger judge.max_tokens or thinking off. To go on anyway, set judging.canary=0."
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)


def says_nothing(params: dict, n: int) -> Says | None:
    """Of verdicts; other questions are answered."""
    return Says(VAGUE) if "<response_a id=" in str(params["messages"]) else None


def demo(server: OpenAiServer, *words: str) -> Ran:
    return attempt(
        *(
            "judge=openai_compatible",
            f"judge.base_url={server.url}",
            "judge.model=small",
        ),
        *("judge.input_usd_per_million=2", "judge.output_usd_per_million=8"),
        *("judging.budget_usd=500", "tracker=local", "figures=false"),
        *words,
        folder=Path(),
    )


def n_by_rubric(server: OpenAiServer) -> Counter[str]:
    return Counter(params["messages"][0]["content"] for params in server.asked)


@pytest.mark.system
def test_a_judge_that_says_nothing_is_paid_for_twenty_replies_a_rubric():
    with OpenAiServer(outcomes=says_nothing) as server:
        ran = demo(server)
        assert ran.code == 2
        assert ran.err.endswith(f"\n{LINE}\n")
        assert set(n_by_rubric(server).values()) == {20} and len(server.asked) == 60
        with Store(Path("outputs/cache/store.sqlite")) as store:
            rows = store.query(
                "SELECT SUM(json_extract(value, '$.dollars')) FROM answers"
            )
        bill = (
            2e-6 * server.usage["prompt_tokens"]
            + 8e-6 * server.usage["completion_tokens"]
        )
        assert rows[0][0] == pytest.approx(bill)


@pytest.mark.system
def test_the_same_command_tries_once_more_and_another_setting_asks_anew():
    """After the first stop the server may have been mended; after forty replies a rubric nothing more is paid."""
    with OpenAiServer(outcomes=says_nothing) as server:
        for n_asked in (20, 40, 40):
            again = demo(server, "rubric=[factuality]")
            assert again.code == 2 and "replies hold no verdict" in again.err
            assert len(server.asked) == n_asked
        server.outcomes = None
        other = ("judge.max_tokens=2000", "judging.limit_pairs=60")
        ran = demo(server, "rubric=[factuality]", *other)
        assert ran.code == 0, ran.err
        assert set(server.billed.values()) == {1}


@pytest.mark.system
def test_a_canary_of_zero_goes_on():
    with OpenAiServer(outcomes=says_nothing) as server:
        ran = demo(
            server, "rubric=[factuality]", "judging.canary=0", "judging.limit_pairs=60"
        )
        assert ran.code == 0, ran.err
        assert len(server.asked) > 40
        assert "invalid verdicts 100%" in ran.out


@pytest.mark.system
def test_few_queries_are_asked_at_once_and_a_run_without_a_verdict_has_no_boards():
    """Ten prompts of two entrants: there is nothing left to save after them."""
    with OpenAiServer(outcomes=says_nothing) as server:
        words = (
            "rubric=[factuality]",
            "judging.limit_pairs=10",
            "judging.allow_equal=true",
        )
        ran = demo(server, *words)
        n = len(server.asked)
        assert (ran.code, 10 <= n <= 20) == (2, True)
        assert f"None of {n} replies holds a verdict (judge small). " in ran.err
        again = demo(server, *words)
        assert again.code == 2
        assert again.err.splitlines()[-3:] == ran.err.splitlines()[-3:]
        assert len(server.asked) == n
        assert demo(server, *words, "judging.canary=0").code == 0


@pytest.mark.system
def test_replies_that_hold_nothing_later_on_stop_a_run():
    """From the 101st query on: after a window of 200 that holds more of these than of the others."""

    def tires(params: dict, n: int) -> Says | None:
        return Says(VAGUE) if len(server.asked) > 101 else None

    with OpenAiServer(outcomes=tires) as server:
        with pytest.raises(
            UserError, match="101 of the last 200 replies hold no verdict"
        ):
            _judged(server, 400)
        assert 200 <= len(server.asked) <= 240


def test_what_was_on_its_way_is_kept():
    with OpenAiServer(outcomes=says_nothing) as server:
        with pytest.raises(UserError, match="Replies that were paid for are stored"):
            _judged(server, 400)
        n_asked = len(server.asked)
        with Store(STORE) as store:
            ((n_stored,),) = store.query("SELECT COUNT(*) FROM answers")
        assert n_stored == n_asked <= 20
        with pytest.raises(UserError, match="20 of the first 20"):
            _judged(server, 400)
        with pytest.raises(UserError, match="40 of the first 40"):
            _judged(server, 400)
        assert len(server.asked) == 2 * n_asked and set(server.billed.values()) == {1}


@pytest.mark.system
def test_a_server_that_was_mended_is_asked_on_by_the_same_command():
    with OpenAiServer(outcomes=says_nothing) as server:
        with pytest.raises(UserError, match="20 of the first 20"):
            _judged(server, 100)
        server.outcomes = None
        _judged(server, 100)
        assert len(server.asked) == 200 and set(server.billed.values()) == {1}


def _judged(server: OpenAiServer, n: int) -> None:
    made = shipped(
        "judge", "openai_compatible", base_url=server.url, model="small", **PRICES
    )
    with Store(STORE) as store:
        judge_pairs(
            {"factuality": comparisons(n)},
            [RUBRIC],
            made,
            store,
            JudgingSettings(canary=20, max_invalid=0.5),
        )


# Batches


@pytest.mark.parametrize("cache", ["none", "measured", "1h"])
def test_batches_of_a_new_judge_begin_with_a_small_one(cache: str):
    """With a cache that is measured the query that warms it goes first, and the canary measures it."""
    with AnthropicServer(verdicts=lambda shown: "neither", polls_to_end=0) as server:
        with pytest.raises(
            UserError, match=r"2[01] of the first 2[01] replies hold no verdict"
        ):
            _in_batches(server, 100, cache=cache)
        assert 20 <= server.meter.billed.total() <= 21
        for _ in range(2):
            with pytest.raises(UserError, match="hold no verdict"):
                _in_batches(server, 100, cache=cache)
        assert server.meter.billed.total() <= 42 and not server.meter.paid_twice


def test_batches_of_a_judge_that_has_judged_wait_for_no_canary():
    with AnthropicServer(polls_to_end=0) as server:
        _in_batches(server, 30)
        sizes = [len(call.json()["requests"]) for call in server.calls if submits(call)]
        assert sizes == [20, 40]
        _in_batches(server, 30, dimension="calibration")
        sizes = [len(call.json()["requests"]) for call in server.calls if submits(call)]
        assert sizes == [20, 40, 60]


@pytest.mark.system
def test_every_row_of_a_batch_is_stored_before_it_stops_a_run(caplog, monkeypatch):
    """What decides stands in the middle of a batch. One that is still under way is named."""
    monkeypatch.setattr(batch_results, "_ROWS_PER_TRANSACTION", 50)
    with AnthropicServer(polls_to_end=0) as server:
        _in_batches(server, 20)
        server.verdicts = lambda shown: "neither"
        server.fault("POST", r"/batches$", NeverEnd(), nth=2)
        with pytest.raises(UserError, match="160 of the last 200 replies"):
            _in_batches(server, 400, chunk_size=300)
        with Store(STORE) as store:
            ((n_stored, dollars),) = store.query(
                "SELECT COUNT(*), SUM(json_extract(value, '$.dollars')) FROM answers"
            )
            assert len(Ledger(store).list_pending_keys()) == 300
        assert n_stored == server.meter.billed.total() == 40 + 300 + 160
        assert dollars == pytest.approx(metered(server)[1])
        assert "batches still under way on the server: 1." in caplog.text


def submits(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/batches")


def _in_batches(
    server: AnthropicServer,
    n: int,
    *,
    cache: str = "none",
    dimension: str = "factuality",
    **settings: int,
) -> None:
    made = claude(server.url, cache=cache, **settings)
    rubric = dataclasses.replace(RUBRIC, dimension=dimension)
    with Store(STORE) as store:
        judge_pairs(
            {dimension: comparisons(n, dimension=dimension)},
            [rubric],
            made,
            store,
            JudgingSettings(canary=20, max_invalid=0.5),
        )


# Other stages


@pytest.mark.system
def test_an_audit_stops_alike():
    with OpenAiServer(outcomes=says_nothing) as server:
        ran = demo(server, "experiment=audit")
        assert ran.code == 2
        assert "of the first 20 replies hold no verdict" in ran.err
        assert len(server.asked) == 20


@pytest.mark.system
def test_looks_stop_alike():
    with OpenAiServer(outcomes=says_nothing) as server:
        ran = demo(server, "rubric=[factuality]", "judging.looks=3")
        assert ran.code == 2
        assert ran.err.endswith(f"\n{LINE}\n")
        assert len(server.asked) == 20


@pytest.mark.system
def test_an_entrant_that_answers_nothing_is_stopped_after_twenty_answers():
    words = (
        *("entrant=[openai_compatible,probe_reference]", "judge=lexical"),
        "entrant.openai_compatible.model=small",
    )

    def entrant(server: OpenAiServer, *more: str) -> Ran:
        url = f"entrant.openai_compatible.base_url={server.url}"
        return attempt(
            *words, url, "tracker=local", "figures=false", *more, folder=Path()
        )

    with OpenAiServer(outcomes=lambda params, n: Says("")) as server:
        ran = entrant(server)
        assert ran.code == 2
        assert (
            "elo_exp: All of the first 20 answers of entrant openai_compatible are empty or end within a thought. They "
            'are stored, and are not asked for again.\n  The first: "" (stop)\n  Allow more tokens, or turn thinking off'
        ) in ran.err
        assert 20 <= len(server.asked) <= 28
        ran = entrant(server, "judging.canary=0")
        assert ran.code == 0, ran.err
        assert set(server.billed.values()) == {1}


@pytest.mark.system
def test_one_answer_that_holds_something_is_enough():
    with OpenAiServer(
        outcomes=lambda params, n: Says("" if n_asked() % 5 else "Yes.")
    ) as server:

        def n_asked() -> int:
            return len(server.asked)

        ran = attempt(
            *("entrant=[openai_compatible,probe_reference]", "judge=lexical"),
            f"entrant.openai_compatible.base_url={server.url}",
            *(
                "entrant.openai_compatible.model=small",
                "tracker=local",
                "figures=false",
            ),
            folder=Path(),
        )
        assert ran.code == 0, ran.err
