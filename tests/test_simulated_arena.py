"""`arena=simulated`, the default of `experiment=arena`: voters whose law is known, and so the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from elo_exp.arena.placement import Placement
from elo_exp.arena.simulated_arena import SimulatedVotes, compute_true_abilities
from elo_exp.data import bank
from elo_exp.experiments import arena
from elo_exp.experiments.arena import Arena
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, fit_abilities
from tests.commands import Ran, attempt, run
from tests.data import BANK, shipped
from tests.experiments import opened

TRUTH = {
    **{"plain_100": 1155, "plain_80": 1100, "plain_60": 1041, "plain_45": 992},
    **{"plain_30": 952, "plain_15": 907, "hedged_90": 1075, "hedged_70": 1026},
    **{"hedged_50": 965, "hedged_35": 917, "hedged_20": 870, "newcomer": 993},
}
ANCHORS = list(TRUTH)[:-1]


def simulated_by(seed: int = 1) -> SimulatedVotes:
    return SimulatedVotes(n_votes=4000, seed=seed, bank_path=str(BANK))


# The law


def test_the_truth_is_no_draw():
    newcomer = shipped("entrant", "newcomer", bank_path=str(BANK))

    def rounded(baseline: str | None, seed: int = 1) -> dict[str, int]:
        voters = simulated_by(seed)
        board = voters.true_leaderboard([newcomer], level=1000.0, baseline=baseline)
        return dict(
            zip(board.models, board.rating.round().astype(int).tolist(), strict=True)
        )

    assert rounded(None) == rounded(None, seed=2) == TRUTH
    assert rounded("plain_45")["newcomer"] == 1002


def test_the_quadrature_is_the_mean_over_drawn_likings():
    """Over 4,000 draws of what all voters think of each answer; the error is some .005."""
    rng = np.random.default_rng(0)
    worth = rng.uniform(-0.15, 1.0, (4, 5))
    appeal = 2.2 * worth + rng.normal(0.0, 0.5, (4000, 4, 5))
    wins = special.expit(appeal[:, :, None] - appeal[:, None]).mean(axis=(0, 3))
    np.fill_diagonal(wins, 0.0)
    expected = fit_abilities(wins)
    assert compute_true_abilities(worth) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("n_seeds", "margin"), [(4, 30), pytest.param(10, 20, marks=pytest.mark.slow)]
)
def test_votes_follow_the_truth_and_tie_at_times(n_seeds: int, margin: int):
    """Of one seed voters like some answers better than their words; several seeds tell."""
    rows = [row for seed in range(n_seeds) for row in simulated_by(seed).votes]
    score = {"model_a": 1.0, "tie": 0.5, "model_b": 0.0}
    wins = np.zeros((len(ANCHORS),) * 2)
    for row in rows:
        i, j = (ANCHORS.index(row[side]) for side in ("model_a", "model_b"))
        wins[i, j] += score[row["winner"]]
        wins[j, i] += 1.0 - score[row["winner"]]
    found = 1000 + POINTS_PER_LOG_ODDS * fit_abilities(wins)
    assert found == pytest.approx([TRUTH[name] for name in ANCHORS], abs=margin)
    assert 0.25 < np.mean([row["winner"] == "tie" for row in rows]) < 0.3
    golds = {p.prompt_id: p.text for p in bank.load_bank(BANK) if p.gold_answer}
    assert {row["question_id"]: row["prompt"] for row in rows} == golds


# The command


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    given = ("experiment=arena", "tracker=local", "figures=false")
    return run(*given, folder=tmp_path_factory.mktemp("a"))


@pytest.mark.system
def test_alone_it_places_a_newcomer_of_known_rating(ran: Ran):
    about = ran.read("manifest.json")["arena"]
    assert (about["name"], about["n_battles"]) == ("simulated", 4000)
    assert len(ran.rows("arena.jsonl")) == 4000
    truth = ran.read("ratings.json")["dimensions"]["preference"]["truth"]["ratings"]
    assert {row["model"]: round(row["rating"]) for row in truth} == TRUTH


@pytest.mark.system
def test_it_ends_with_how_near_the_truth_it_came(ran: Ran):
    """The same on console, page and metrics, and what is simulated is said."""
    found = ran.read("elo_ratings.json")
    mine, raw = (
        next(row for row in found[name] if row["model"] == "newcomer")
        for name in ("ratings", "by_judge")
    )
    placed, on_own_scale = (
        f"{row['ci_low']:.0f} to {row['ci_high']:.0f}" for row in (mine, raw)
    )
    line = (
        "The true rating of newcomer is 993 (known because the voters are simulated). It is inside the interval "
        f"{placed}. On the judge's own scale, the rating is {raw['rating']:.0f} ({on_own_scale})."
    )
    printed = " ".join(ran.out.split("\n\nfiles")[0].split())
    audit = "Judge audit: not done. See the price: python -m elo_exp experiment=audit plan=true"
    assert printed.endswith(f"{line} {audit}")
    page = ran.page
    assert line in page.said
    assert "This is a demonstration with simulated voters." in page.said
    assert " by humans" not in page.said
    logged = ran.rows("tracker/log.jsonl")
    (summary,) = [entry["value"] for entry in logged if entry["kind"] == "summary"]
    assert summary["newcomer/error"] == pytest.approx(mine["rating"] - 993, abs=0.5)
    assert summary["arena_mean/error"] == abs(summary["newcomer/error"])


@pytest.mark.system
def test_an_entrant_of_ones_own_has_no_known_rating(tmp_path: Path):
    both = run(
        *("experiment=arena", "entrant=[newcomer,probe_hedged]"),
        *("tracker=local", "figures=false"),
        folder=tmp_path,
    )
    assert both.out.count("The true rating of ") == 1
    assert "On the judge's own scale, probe_hedged is rated " in both.out


@pytest.mark.system
def test_its_votes_are_a_template_for_an_arena_of_ones_own(ran: Ran):
    """Read from the file, the newcomer is placed as it was, and asks for no new verdict."""
    read = (f"arena.path={ran.run_dir}/arena.jsonl", "arena.n_battles=300")
    again = run(
        *("experiment=arena", "arena=file", *read, "entrant=[newcomer]"),
        *("tracker=local", "figures=false"),
        folder=ran.folder,
    )
    assert (
        again.read("elo_ratings.json")["ratings"]
        == ran.read("elo_ratings.json")["ratings"]
    )
    assert ": 0 new from lexical, 1,186 from cache" in again.err


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["arena.path=a.jsonl"], "To read a file, set arena=file."),
        (["arena=[simulated,file]"], "arena=simulated reads no battles, so it"),
        (["arena=file"], "experiment=arena needs the models to place. Set entrant"),
        (
            ["arena=file", "arena.path=a.jsonl"],
            "experiment=arena needs the models to place. Set entrant",
        ),
    ],
)
def test_other_arenas_have_no_default_entrant(
    overrides: Sequence[str], words: str, tmp_path: Path
):
    for plan in ((), ("plan=true",)):
        refused = attempt("experiment=arena", *overrides, *plan, folder=tmp_path)
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.err


# Over seeds


def place(folder: Path, seed: int) -> Placement:
    seeds = (f"arena.seed={seed}", f"arena.simulated.seed={seed}")
    with opened(folder, "experiment=arena", *seeds, "figures=false") as (job, context):
        assert isinstance(job.experiment, Arena)
        run = job.experiment.placement(context.store)
        run.run()
        return arena.place_models(job.experiment, run)


@pytest.mark.slow
def test_over_seeds_the_calibrated_interval_holds_the_truth_and_the_raw_one_does_not(
    tmp_path: Path,
):
    errors, within = [], []
    for seed in range(100):
        found = place(tmp_path, seed)
        assert found.refusal is None
        boards = [found.board, found.judge_board]
        rows = [board.row("newcomer") for board in boards if board]
        errors.append([abs(row.rating - 993) for row in rows])
        within.append([row.ci_low <= 993 <= row.ci_high for row in rows])
    distance, coverage = np.mean(errors, axis=0), np.mean(within, axis=0)
    print(distance, coverage)
    assert coverage[0] >= 0.9
    assert coverage[1] < 0.5
    assert distance[0] < distance[1]
