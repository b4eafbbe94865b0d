"""Entrants that cost money: a plan asks none of them, and what stops a run stops it before they are paid.

`python -m elo_exp` lets a model behind an API answer, at a server of this machine that keeps the bill.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arena_files import World
from tests.commands import QUICK, Ran, attempt
from tests.openai_server import OpenAiServer

HERE = {"NO_PROXY": "127.0.0.1"}
WORLD = World(
    anchors={"a1": 0.0, "a2": 50.0, "a3": -50.0}, placed={"mine": 20.0}, n_battles=200
)
PRICES = ("input_usd_per_million=1", "output_usd_per_million=1")
PAID = tuple(f"entrant.openai_compatible.{price}" for price in PRICES)
JUDGED = (
    "judge=openai_compatible",
    "judge.model=large",
    *(f"judge.{price}" for price in PRICES),
)


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer() as server:
        yield server


def hosted(server: OpenAiServer) -> tuple[str, ...]:
    return (
        f"entrant.openai_compatible.base_url={server.url}",
        "entrant.openai_compatible.model=small",
    )


def tournament(server: OpenAiServer, *overrides: str, folder: Path) -> Ran:
    given = (
        "entrant=[openai_compatible,probe_reference]",
        "+mode.strata.medqa=2",
        "elo.n_perms=5",
        *QUICK[2:],
    )
    return attempt(*given, *hosted(server), *overrides, folder=folder, **HERE)


def arena(server: OpenAiServer, *overrides: str, folder: Path) -> Ran:
    if not (folder / "arena.jsonl").exists():
        WORLD.write(folder)
    given = [
        word for word in WORLD.overrides(folder) if not word.startswith("entrant=")
    ]
    few = (
        "arena.n_battles=8",
        "arena.n_calibration=2",
        "arena.placement=raw",
        "rating.bradley_terry.n_bootstraps=20",
    )
    placed = ("entrant=[openai_compatible]", "figures=false")
    return attempt(
        *given, *few, *placed, *hosted(server), *overrides, folder=folder, **HERE
    )


EXPERIMENTS = {"tournament": tournament, "arena": arena}


@pytest.mark.system
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_nobody_is_asked_for_a_plan_nor_where_only_the_store_is_read(
    name, server, tmp_path
):
    experiment = EXPERIMENTS[name]
    judge = (*JUDGED, f"judge.base_url={server.url}", "judging.stored_only=true")
    whole = experiment(server, "plan=true", folder=tmp_path)
    assert whole.out.startswith("openai_compatible: ")
    assert f"Needed for the run: the server {server.url}" in whole.out
    stored_only = experiment(server, *judge, "plan=true", folder=tmp_path)
    refused = experiment(server, *judge, folder=tmp_path)
    assert (whole.code, stored_only.code, refused.code) == (0, 2, 2)
    assert "Entrant openai_compatible lacks answers" in refused.err
    assert stored_only.err.endswith(refused.err[refused.err.index("elo_exp: ") :])
    assert server.asked == []


def test_the_plan_of_a_share_refuses_as_the_share_does(server, tmp_path):
    """Its judge needs answers that no share of it makes."""
    share = tournament(server, "plan=true", "shard=0/2", folder=tmp_path)
    assert share.code == 2
    assert "has not answered all of them" in share.err


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "too_low", "enough", "priced"),
    [("tournament", 0.004, 0.016, PAID), ("arena", 0.01, 0.056, ())],
)
def test_a_judge_s_cap_stops_a_run_that_cannot_fit_before_an_entrant_is_paid_and_no_other(
    name,
    too_low,
    enough,
    priced,
    server,
    tmp_path,
):
    """Not even empty answers fit in the lower cap. Answers of 4,000 tokens would exceed the higher one; those that come
    do not."""
    judge = (*JUDGED, f"judge.base_url={server.url}", "figures=false")

    def capped(dollars: float, *more: str) -> Ran:
        cap = f"judging.budget_usd={dollars}"
        return EXPERIMENTS[name](server, *judge, cap, *more, folder=tmp_path)

    refused = capped(too_low, *PAID)
    assert refused.code == 2
    assert 'evaluator"\n  budget $0.0' in refused.err
    assert re.search(
        r"\d+ verdicts by large are expected to cost .*\. Nothing was spent\.\n  .* it has none\.\n"
        r"  Raise the cap with judging\.budget_usd=\.\.\., or judge fewer: .*$",
        refused.err.rstrip(),
    )
    planned = capped(enough, *priced, "plan=true")
    assert "The budget is too low: " in planned.out
    text = "answers not generated yet; cost estimated from 4,096 characters each, its limit."
    assert text in " ".join(planned.out.split())
    assert server.asked == []
    ran = capped(enough, *priced)
    assert ran.code == 0, ran.err


@pytest.mark.system
def test_what_entrants_were_paid_is_in_every_bill_and_recorded_answers_are_not_paid_again(
    server, tmp_path
):
    dear = [word.replace("=1", "=1000") for word in PAID]
    ran = tournament(server, *dear, "cache_dir=cache", folder=tmp_path)
    bill = sum(server.usage.values()) * 1e-3
    usage = ran.read("manifest.json")["usage"]
    assert (usage["dollars"], usage["responses_unpriced"]) == (0, 0)
    assert usage["dollars_by_entrant"] == {"openai_compatible": pytest.approx(bill)}
    page = ran.page.text
    assert f"openai_compatible ${bill:,.2f}" in page

    def held(cache: str, *words: str) -> str:
        given = ("experiment=store", f"cache_dir={cache}", *words)
        return attempt(*given, folder=tmp_path).out

    (row,) = (row.split() for row in held("cache").splitlines() if "openai_c" in row)
    assert float(row[-1]) == pytest.approx(bill, abs=0.005)
    purge = held("cache", "store.action=purge", "store.entrant=openai_compatible")
    assert f"which cost ${bill:.2f}. Nothing has changed." in purge
    recorded = f"recorded_dir={ran.run_dir}/responses"
    read = tournament(server, recorded, "cache_dir=other", folder=tmp_path)
    assert read.read("manifest.json")["usage"]["dollars_by_entrant"] == {}
    assert " 0.00" in held("other", "store.entrant=openai_compatible")


@pytest.mark.system
def test_answers_without_a_price_are_counted_and_those_of_the_store_rated_again(
    server, tmp_path
):
    judge = (*JUDGED, f"judge.base_url={server.url}", "judging.budget_usd=1")
    first = tournament(server, *judge, folder=tmp_path)
    usage = first.read("manifest.json")["usage"]
    counts = [usage[f"responses_{how}"] for how in ("wanted", "generated", "stored")]
    assert counts == [4, 4, 0]
    assert (usage["responses_unpriced"], usage["dollars_by_entrant"]) == (2, {})
    n_asked = len(server.asked)
    again = tournament(server, *judge, "judging.stored_only=true", folder=tmp_path)
    assert again.read("elo_results.json") == first.read("elo_results.json")
    assert len(server.asked) == n_asked
