"""`experiment=arena`: models placed among human battles, and how others rate the battles again.

Tests that name a defect are of those that a public pipeline for the same purpose was found to have.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions
from elo_exp.arena import joint_fit
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.rubrics import Rubric
from elo_exp.errors import UserError
from elo_exp.experiments.arena import Arena
from elo_exp.experiments.placement_run import PlacementRun
from elo_exp.files import read_json, read_jsonl, write_json, write_jsonl, write_whole
from elo_exp.judges.replay import ReplayJudge
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, Comparison, make_fingerprint
from elo_exp.store.answer_store import Store
from elo_exp.store.judge_identities import list_judges
from tests.arena_files import TheJudge, World, arena_of, placed
from tests.commands import Ran, attempt, run
from tests.data import by_dimension, shared_data, shipped
from tests.experiments import built
from tests.openai_server import OpenAiServer
from tests.pages import Reader, flowed
from tests.simulation import BRADLEY_TERRY

RATINGS = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
WORLD = World(anchors=RATINGS, placed={"mine": 1100.0})
TWO = World(anchors=RATINGS, placed={"mine": 1100.0, "other": 900.0})
N_DRAWN = 150
ALONE = ("arena.n_calibration=0", "arena.placement=raw")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TWO.write(tmp_path)


def command(folder: Path, *overrides: str, world: World = TWO) -> Ran:
    """As on the command line."""
    judge = ("judge=lexical", "judge.default_signal=overlap", "judge.margin=0.01")
    few = (f"arena.n_battles={N_DRAWN}", f"arena.n_calibration={N_DRAWN}")
    given = (f"--config-dir={folder}/mine", *world.overrides(folder), *few, *judge)
    return run(*given, *overrides, folder=folder)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two models placed."""
    return command(TWO.write(tmp_path_factory.mktemp("arena")))


@pytest.fixture(scope="module")
def shared(ran: Ran) -> Ran:
    """The same by another judge, without the battles that anybody can read from the arena."""
    chosen = ("judge.position_effect=0.3", "arena.inline_human=false")
    kind = "arena.battles_format=parquet"
    return command(ran.folder, *chosen, kind, "figures=false")


# Where it stands


@pytest.mark.system
def test_models_land_where_they_belong(folder: Path) -> None:
    """The humans' ties draw all distances together, of the anchors and so of the scale, the judge's
    verdicts do not: by the truth both stay in their order. Both enter the same battles, of which
    both orders are one observation (a defect: rows were resampled)."""
    found = placed(TWO, folder, "arena.n_battles=250", *ALONE).placement
    points = [found.board.row(m).rating or 0 for m in RATINGS]
    spread = np.polyfit(list(RATINGS.values()), points, 1)[0]
    for name, truth in TWO.placed.items():
        row = found.board.row(name)
        assert row.ci_low is not None and row.ci_high is not None
        expected = 1000 + (truth - 1000) * (1 + spread) / 2
        assert row.rating == pytest.approx(expected, abs=row.ci_high - row.ci_low)
    rows = found.judged_battles.rows()
    mine, other = (
        [(b.question_id, b.model_b) for b in rows if b.model_a == m] for m in TWO.placed
    )
    assert mine == other
    assert len(mine) == 250
    assert found.board.n_clusters == TWO.n_battles


@pytest.mark.system
@pytest.mark.parametrize("where", ["{is_code: true}", "{evaluation_order: 1}", "{}"])
def test_a_vote_late_in_a_conversation_is_never_judged(
    where: str, folder: Path
) -> None:
    """Whatever arena.where asks for; it asks for the votes alone."""
    rows = [
        {**row, "is_code": i % 3 > 0, "evaluation_order": 1 + i % 2}
        for i, row in enumerate(WORLD.rows())
    ]
    write_jsonl(folder / "arena.jsonl", rows)
    order = "arena.columns.evaluation_order=evaluation_order"
    given = (order, "arena.n_battles=60", f"+arena.where={where}")
    found = placed(WORLD, folder, *given)
    asked = {"{is_code: true}": "is_code", "{evaluation_order: 1}": "evaluation_order"}
    name = asked.get(where)
    wanted = {row["question_id"] for row in rows if name is None or row[name] == 1}
    assert set(found.placement.human_battles.questions) == wanted
    prompts = {c.prompt_id for c in found.run.comparisons}
    early = {row["question_id"] for row in rows if row["evaluation_order"] == 1}
    assert prompts <= wanted & early
    assert len(prompts) == 60 or name != "evaluation_order"


@pytest.mark.system
def test_more_battles_ask_only_for_the_new_ones(folder: Path) -> None:
    for n, asked in ((50, 50), (80, 30)):
        judge = TheJudge()
        placed(WORLD, folder, f"arena.n_battles={n}", *ALONE, judge=judge)
        assert len(judge.seen) == 2 * asked


@pytest.mark.system
@pytest.mark.parametrize(
    ("opponents", "n_battles", "limit", "of_each", "of_humans"),
    [("random", 30, 33, 16, 0), ("adaptive", 12, 30, 12, 6)],
)
def test_a_limit_is_of_all_pairs_and_shared_by_the_models(
    opponents: str,
    n_battles: int,
    limit: int,
    of_each: int,
    of_humans: int,
    folder: Path,
) -> None:
    """Of a plan as of a run. The humans' battles get what the models leave; no answer is made that
    is not judged."""
    n_pairs = 2 * of_each + of_humans
    few = (f"arena.n_battles={n_battles}", f"judging.limit_pairs={limit}")
    limited = (*few, f"arena.opponents={opponents}")
    judge = TheJudge()
    with arena_of(TWO, folder, *limited, "plan=true", judge=judge) as (job, context):
        job.dry_run(context)
        plan = job.describe_plan(context, job.plans(context.store))
    assert re.search(rf"preference +{n_pairs} +{2 * n_pairs} ", plan), plan
    share = f"{of_humans} of the {n_pairs} comparisons repeat human battles"
    assert (share in plan) == (of_humans > 0)
    assert judge.seen == []
    found = placed(TWO, folder, *limited, judge=judge)
    assert len(judge.seen) == 2 * n_pairs
    assert (found.placement.agreement is not None) == (of_humans > 0)
    refusal = "the judge repeated no human battle"
    assert (refusal in flowed(found.report.text)) == (of_humans == 0)
    entered = Counter(c.entrant_a for c in found.run.comparisons)
    assert {entered[name] for name in TWO.placed} == {of_each}


@pytest.mark.system
def test_a_second_judge_never_gets_the_first_ones_verdicts(folder: Path) -> None:
    """A defect: the key of a verdict had no judge in it."""
    judges = [TheJudge(model="one"), TheJudge(model="two")]
    for judge in judges:
        placed(WORLD, folder, "arena.n_battles=30", *ALONE, judge=judge)
    assert [len(judge.seen) for judge in judges] == [60, 60]


def test_a_share_of_the_answers_can_be_made_elsewhere(folder: Path) -> None:
    """Half of 12 prompts, for each of two models."""
    with arena_of(TWO, folder, "judging.limit_pairs=24", "shard=0/2") as (job, context):
        text = job.run(context).text
    assert (
        text
        == "shard 0/2: 12 answers generated. To judge all answers, leave out shard."
    )


@pytest.mark.parametrize(("limit", "is_warned"), [(30, True), (31, False)])
def test_a_limit_that_leaves_no_battle_to_calibrate_is_warned_of_before_any_call(
    limit: int, is_warned: bool, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = ("arena.n_battles=30", f"judging.limit_pairs={limit}", "plan=true")
    judge = TheJudge()
    with arena_of(WORLD, folder, *few, judge=judge) as (job, context):
        job.dry_run(context)
    said = (
        "leaves no human battle to calibrate the judge, so the run cannot place mine."
    )
    assert (said in caplog.text) == is_warned
    assert judge.seen == []


@pytest.mark.system
def test_adaptive_rounds_are_checked_against_the_cap_before_the_first(
    folder: Path,
) -> None:
    """Each of two rounds of ten would fit, and both do not. What is judged needs no cap."""
    given = [
        *WORLD.overrides(folder),
        "arena.opponents=adaptive",
        "arena.rounds=2",
        "arena.n_battles=20",
        *ALONE,
        "judge=openai_compatible",
        "judge.model=large",
        "judge.input_usd_per_million=0",
        "judge.output_usd_per_million=10",
        "judge.max_tokens=250",
        "judge.temperature=0",
        "figures=false",
    ]
    with OpenAiServer() as server:

        def placed_by(cap: float) -> Ran:
            paid = (f"judging.budget_usd={cap}", f"judge.base_url={server.url}")
            mine = f"--config-dir={folder}/mine"
            here = {"NO_PROXY": "127.0.0.1"}
            return attempt(mine, *given, *paid, folder=folder, **here)

        refused = placed_by(0.06)
        assert refused.code == 2
        said = "elo_exp: 40 verdicts by large are expected to cost $0.1000, and"
        assert said in refused.err
        assert "Nothing was spent.\n" in refused.err
        assert "\n  Raise the cap with judging.budget_usd=" in refused.err
        assert server.asked == []
        assert placed_by(0.15).code == 0
        assert placed_by(0.0).code == 0
        assert len(server.asked) == server.billed.total() <= 40


@pytest.mark.system
def test_adaptive_opponents_are_nearer_and_the_same_each_time(folder: Path) -> None:
    """Battles without texts are drawn once."""
    rows = [
        row | ({} if i % 4 else {"prompt": ""}) for i, row in enumerate(WORLD.rows())
    ]
    write_jsonl(folder / "arena.jsonl", rows)
    chosen = ("arena.n_battles=60", "arena.opponents=adaptive", *ALONE)
    found = placed(WORLD, folder, *chosen)
    assert len(found.run.drawn["mine"]) == 60
    assert 0 < len(found.run.texts.unusable) < 30
    met = [
        abs(RATINGS[b.model_b] - 1100) for b in found.placement.judged_battles.rows()
    ]
    at_random = [abs(rating - 1100) for rating in RATINGS.values()]
    assert np.mean(met) < 0.8 * np.mean(at_random)
    judge = TheJudge()
    placed(WORLD, folder, *chosen, judge=judge)
    assert judge.seen == []


@pytest.mark.parametrize("anchors", [RATINGS, {"high": 50_000.0, "low": 0.0}])
def test_a_model_that_wins_everything_is_flagged_and_gets_no_number(
    anchors: dict[str, float], tmp_path: Path
) -> None:
    """Nor do the others by Davidson where the best has won or tied each of its battles: gaps and
    ties would grow for ever."""
    world = World(anchors=anchors, placed={"mine": 99_000.0}, n_battles=400)
    few = (world.write(tmp_path), "arena.n_battles=20", *ALONE)
    with arena_of(world, *few) as (experiment, context):
        experiment.rating = {"davidson": Davidson(initial_rating=1000.0, orders="both")}
        report = experiment.run(context)
    found = json.loads((context.run_dir / "elo_ratings.json").read_text())
    assert found["rating_settings"]["method"] == "davidson"
    assert found["n_bootstraps"] == 0
    rated = {r["model"]: r["rating"] for r in found["ratings"]}
    assert rated["mine"] is None
    assert any(rated.values()) == (anchors is RATINGS)
    assert np.isnan(report.headline)
    assert "mine has no rating: it lost no battle" in report.text
    drawn = report.figures()
    assert len(drawn) == (anchors is RATINGS)
    assert Reader(report.page("run", {}, drawn)).said


# Beside the humans


@pytest.mark.system
def test_the_judge_is_asked_about_human_battles_as_about_its_own(folder: Path) -> None:
    """A defect: the calibration had a judge without the run's prompt and settings."""
    judge = TheJudge()
    chosen = ("arena.n_battles=60", "arena.n_calibration=25")
    found = placed(WORLD, folder, *chosen, judge=judge).placement
    of_humans = [r for r in judge.seen if "mine" not in r.subject.entrants]
    assert len(of_humans) == 50
    assert len({(r.system, r.schema) for r in judge.seen}) == 1
    assert found.agreement is not None
    assert found.agreement["n_comparisons"] == 25
    assert found.temperature is not None
    assert {b.model_a for b in found.judged_battles.rows()} == {"mine"}


@pytest.mark.system
def test_a_model_that_is_held_out_is_compared_with_what_humans_say_of_it(
    folder: Path,
) -> None:
    world = World(anchors=RATINGS, placed={"m7": RATINGS["m7"]})
    world.write(folder)
    n = sum("m7" in (row["model_a"], row["model_b"]) for row in WORLD.rows())
    found = placed(world, folder, "arena.hold_out=[m7]", f"arena.n_battles={N_DRAWN}")
    assert "m7" not in found.placement.human_battles.models
    board = found.placement.human_board
    assert board.row("m7").n_battles == n > 50
    assert "By human votes alone" in found.report.text
    said = r"(?s)Entrant m7 has the name of a model in file.*arena.hold_out=\[m7\]"
    with pytest.raises(UserError, match=said):
        placed(world, folder)


@pytest.mark.system
def test_the_anchors_are_compared_with_where_humans_alone_put_them(
    ran: Ran,
) -> None:
    """Their ratings by the human battles alone, and the mean distance of those that are shown, both
    with the anchors' mean at the same level; a placed model's place moves that of the others."""
    ratings = ran.read("elo_ratings.json")
    shown, humans = (
        {row["model"]: row["rating"] for row in ratings[name]}
        for name in ("ratings", "by_humans")
    )
    assert list(humans) == sorted(RATINGS, key=lambda m: -humans[m])
    names = ("model_a", "model_b", "winner", "question_id")
    votes = [Battle(**{name: row[name] for name in names}) for row in TWO.rows()]
    (alone,) = BRADLEY_TERRY.rate(by_dimension({"d": votes})).values()
    expected = dict(zip(alone.models, alone.rating - 400, strict=True))
    assert humans == pytest.approx(expected)
    gaps = np.array([shown[model] - humans[model] for model in RATINGS])
    mae = np.abs(gaps - gaps.mean()).mean()
    assert ratings["mae"] == pytest.approx(mae)
    assert (
        f"the anchors are {mae:.1f} points from their ratings by human votes" in ran.out
    )


@pytest.mark.system
@pytest.mark.parametrize(
    ("families", "n_kin", "reason"),
    [
        ("{mine: Us, our: Us}", 0, "no anchor is from the judge's model family"),
        ("{mine: Us, our: Us, m2: Us, m3: Us}", 2, ""),
        ("{mine: Them, our: Us}", None, ""),
    ],
)
def test_a_model_of_the_judges_family_is_told_from_it_by_anchors_that_are_kin(
    families: str, n_kin: int | None, reason: str, folder: Path
) -> None:
    """Families are read from the names of anchors, placed models and judge."""
    more = ("arena.n_battles=300", "arena.n_calibration=300")
    added = (f"+judging.families={families}", *more)
    found = placed(WORLD, folder, *added, judge=TheJudge(model="our-judge"))
    fit = found.placement.fit
    assert fit is not None
    assert (fit.n_kin_anchors, fit.kin is None) == (n_kin or 0, n_kin is None)
    files = read_json(found.run_dir / "elo_ratings.json")
    said, row = files["conclusions"]["mine"], files["calibration"]
    assert reason in said["sentence"]
    assert ("judge's model family" in said["sentence"]) == (n_kin == 0)
    assert said["state"] == "caution" or n_kin != 0
    assert (row["kin"], row["n_kin_anchors"]) == (fit.kin, n_kin or 0)


@pytest.mark.system
@pytest.mark.parametrize(
    ("families", "met"),
    [
        ("{our: Us, mine: Us, m2: Us, m3: Us, m4: Us, m5: Us}", {"m2", "m3", "m4", "m5"}),
        ("{our: Us, m2: Us, m3: Us}", {*RATINGS} - {"m2", "m3"}),
    ],
)  # fmt: skip
def test_a_judge_that_is_not_asked_about_its_family_and_others_compares_each_side_alone(
    families: str, met: set[str], folder: Path
) -> None:
    """Human battles link the two. The keys are those of any other run."""
    given = (f"+judging.families={families}", "arena.n_battles=40")
    judge, again = TheJudge(model="our-judge"), TheJudge(model="our-judge")
    exclude = "judging.self_judging=exclude"
    found = placed(WORLD, folder, *given, exclude, judge=judge)
    pairs = [{c.entrant_a, c.entrant_b} - {"mine"} for c in found.run.comparisons]
    assert set().union(*pairs) == met
    assert sum("mine" in c.entrants for c in found.run.comparisons) == 40
    placed(WORLD, folder, *given, exclude, judge=again)
    assert (len(judge.seen) > 80, again.seen) == (True, [])


@pytest.mark.parametrize(
    ("world", "families", "line"),
    [
        (WORLD, "{our: Us, mine: Us, m2: Us}", "judging.self_judging=exclude leaves 1 of 10 anchors, those of the "
         "judge's family Us."),
        (TWO, "{our: Us, mine: Us, m2: Us}", "mine is of the judge's family Us, and other is not."),
    ],
)  # fmt: skip
def test_where_no_anchor_is_left_to_meet_it_is_refused_before_anything_is_asked(
    world: World, families: str, line: str, folder: Path
) -> None:
    given = (f"+judging.families={families}", "judging.self_judging=exclude")
    judge = TheJudge(model="our-judge")
    with pytest.raises(UserError, match=line):
        placed(world, folder, *given, judge=judge)
    assert judge.seen == []


@pytest.mark.system
def test_a_draw_needs_no_experiment(tmp_path: Path) -> None:
    """But the settings that it reads, the parts by name, and a store."""
    job = built("experiment=arena", "arena.n_battles=6", "arena.n_calibration=4")
    assert isinstance(job.experiment, Arena)
    rubric: Rubric = shipped("rubric", "preference")
    with Store(tmp_path / "store.sqlite") as store:
        run = PlacementRun(
            job.experiment.arena,
            store,
            entrants=job.experiment.entrant,
            judge=shipped("judge", "lexical"),
            rubric=rubric,
            limit_pairs=8,
        )
        assert run.plan(run.random(run.n_battles)).new == 16
        run.run()
    assert len(run.comparisons) == 8
    assert {c.entrant_a for c in run.comparisons[:6]} == {"newcomer"}


# The defects


@pytest.mark.parametrize("spoilt", ["", "score_A: 7.5\nscore_B: 7.9"])
def test_what_cannot_be_read_is_no_tie(spoilt: str, folder: Path) -> None:
    """A defect: it was one. So was a pair of scores that was cut to its whole numbers, 7 and 7."""
    judge = TheJudge(spoilt=spoilt, every=3)
    found = placed(
        WORLD, folder, "arena.n_battles=90", "judging.canary=0", *ALONE, judge=judge
    )
    drawn = [int(draw.question_id[1:]) for draw in found.run.drawn["mine"]]
    n_spoilt = sum(question % 3 == 0 for question in drawn)
    assert found.report.facts["judge_quality"][0]["n_invalid"] == n_spoilt > 10
    assert len(found.placement.judged_battles) == 90 - n_spoilt
    assert not found.placement.judged_battles.is_tie().any()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("judging.stored_only=true", "drew 20 battles with texts, answered 20 prompts and was judged on 0"),
        ("recorded_dir={folder}/else", "drew 20 battles with texts, answered 0 prompts and was judged on 0"),
        ("arena.max_chars=1", "drew 0 battles with texts, answered 0 prompts and was judged on 0"),
        ("arena.opponents=adaptive", "answered 20 prompts and was judged on 20"),
    ],
)  # fmt: skip
def test_the_error_says_why_a_model_cannot_be_placed(
    override: str, message: str, folder: Path
) -> None:
    answer = {"prompt_id": "else", "response_text": "Never asked for."}
    write_jsonl(folder / "else" / "responses_mine.jsonl", [answer])
    given = (
        "arena.n_battles=20",
        *ALONE,
        "allow_missing=true",
        override.format(folder=folder),
    )
    with pytest.raises(
        UserError, match="^mine cannot be placed, as none of its verdicts is valid"
    ) as refusal:
        placed(WORLD, folder, *given, judge=TheJudge(spoilt="?", every=1))
    assert message in str(refusal.value)


# What a run leaves behind


@pytest.mark.system
def test_a_run_leaves_its_ratings_and_battles(ran: Ran) -> None:
    found = ran.read("elo_ratings.json")
    assert (found["model"], found["models"]) == ("mine", ["mine", "other"])
    rows = {r["model"]: r for r in found["ratings"]}
    assert list(rows) == sorted(rows, key=lambda m: -rows[m]["rating"])
    by_source = {m for m, row in rows.items() if row["source"] == "evaluated"}
    assert by_source == set(TWO.placed)
    assert np.mean([rows[m]["rating"] for m in RATINGS]) == pytest.approx(1000.0)
    battles = ran.rows("battles.jsonl")
    counted = Counter(m for b in battles for m in (b["model_a"], b["model_b"]))
    assert {m: row["n_battles"] for m, row in rows.items()} == counted
    counts = Counter(row["source"] for row in battles)
    assert counts == {"llm-judge": 2 * N_DRAWN, "human": TWO.n_battles}
    hashes = ran.read("manifest.json")["input_hashes"]
    assert {"arena arena.jsonl", "entrant mine"} <= set(hashes)
    parts = ("responses/responses_mine", "matches/matches", "verdicts/preference")
    for file in (*(f"{part}.jsonl" for part in parts), "figures/leaderboard.png"):
        assert (ran.run_dir / file).is_file()


def summary(ran: Ran) -> dict[str, Any]:
    """What the tracker has at the end."""
    logged = ran.rows("tracker/log.jsonl")
    (found,) = [entry["value"] for entry in logged if entry["kind"] == "summary"]
    return dict(found)


def test_page_console_and_tracker_agree(ran: Ran) -> None:
    page = ran.page
    ratings = ran.read("elo_ratings.json")
    mine, by_judge = (
        next(row for row in ratings[name] if row["model"] == "mine")
        for name in ("ratings", "by_judge")
    )
    interval = f"{mine['ci_low']:.0f} to {mine['ci_high']:.0f}"
    rank = f"rank {mine['rank_low']} to {mine['rank_high']} of 12"
    place = f"mine is rated {mine['rating']:.0f} (95% interval {interval}), {rank}"
    said = ratings["conclusions"]["mine"]
    assert said["sentence"].startswith(place)
    out = flowed(ran.out)
    assert f"{said['sentence']}. Battles judged: 150." in page.said
    assert f"{said['sentence']}." in out
    names = f"On {N_DRAWN} human battles, the judge chose the humans' winner in "
    for words in (names, f"mine is rated {by_judge['rating']:.0f} "):
        assert words in page.said and words in out
    row = next(row for row in page.cells if row[1:2] == ["mine"])
    assert row[0].split(" / ")[0] == str(mine["rank"])
    logged = summary(ran)
    assert logged["mine/rating"] == mine["rating"]
    assert logged["mine/by_judge"] == by_judge["rating"]
    assert logged["mine/status"] == mine["status"]
    for name in ("state", "sentence", "rating", "ci_low"):
        assert logged[f"conclusion/mine/{name}"] == said[name]
    assert logged["human/agreement"] <= 1


@pytest.mark.system
def test_soft_elo_stands_below_the_raw_line_and_scores_are_asked_for(
    folder: Path,
) -> None:
    chosen = ("rubric=[preference_scores]", "arena.soft=calibrated", "figures=false")
    soft = command(folder, *chosen, "judging.orders=one")
    found = soft.read("elo_ratings.json")["soft"]
    (mine,) = (row for row in found["ratings"] if row["model"] == "mine")
    words = (
        f"mine has a soft Elo rating of {mine['rating']:.0f} ({mine['ci_low']:.0f} to {mine['ci_high']:.0f}) on "
        f"the judge's own scale (temperature {found['temperature']:.2f})."
    )
    page = soft.page
    out = flowed(soft.out)
    assert words in out and words in page.said
    assert "because each pair was judged in one order" in out
    (verdict, *_) = soft.rows("verdicts/preference.jsonl")[0]["raw"]
    assert 0 <= min(verdict["scores"]) <= max(verdict["scores"]) <= 10
    assert summary(soft)["mine/soft"] == mine["rating"]
    assert "judge/preference/flip_rate" not in summary(soft)


# A judge that does not follow the humans


def coin(shown: Comparison) -> list[float]:
    words = (shown.prompt_id, *sorted(shown.entrants))
    heads = int(make_fingerprint(words)[:8], 16) % 2
    return [float((name == words[1]) == heads) for name in shown.entrants]


def favourites(shown: Comparison) -> list[float]:
    return [float(make_fingerprint(["taste", name]) > "8") for name in shown.entrants]


@pytest.mark.system
@pytest.mark.parametrize("judge", [coin, favourites])
def test_nothing_of_a_refused_placement_is_shown_anywhere(
    judge: Callable[[Comparison], list[float]], folder: Path
) -> None:
    """Neither as the judge has it nor as the joint fit would: no rating, error, rank or chance of
    being best, in files, figures, page, console or tracker."""
    many = ("arena.n_battles=150", "arena.n_calibration=150")
    made = placed(WORLD, folder, *many, judge=TheJudge(scores=judge))
    found, report = made.placement, made.report
    assert report.text.startswith(
        "mine cannot be placed: the judge has not been shown to "
    )
    assert found.fit is not None
    every = concatenate_battles(found.judged_battles, found.human_battles)
    shown_else: dict[str, Any] = {"level": 1000.0, "baseline": None, "unrated": {}}
    of_fit = joint_fit.make_leaderboard(found.fit, every.n_battles(), **shown_else)
    plots = report.figures()
    page = Reader(report.page("run", {}, plots) if report.page else "")
    folders = {path.parent for path in report.artifacts}
    shown = [p.read_text() for f in folders for p in f.iterdir() if p.is_file()]
    shown += map(repr, (report.metrics, report.tables, *(plot.rows for plot in plots)))
    for board in (made.experiment.rate(every), of_fit):
        row = board.row("mine")
        for number in (row.rating, row.std_error, row.ci_low, row.ci_high):
            assert not [text for text in shown if str(number)[:9] in text]
            assert f"{number:.1f}" not in page.said + report.text
    assert "The judge is refused." in page.said
    rows = read_json(made.run_dir / "elo_ratings.json")["ratings"]
    (mine,) = (row for row in rows if row["model"] == "mine")
    assert (mine["status"], mine["flag"]) == ("refuse", "refused")
    known = {name for name, value in mine.items() if value is not None}
    assert known == {"model", "n_battles", "flag", "source", "status", "reason"}
    of_mine = {name for name in report.metrics if name.startswith("mine/")}
    assert of_mine == {"mine/n_judged", "mine/status", "mine/reason"}
    assert np.isnan(report.headline)
    assert "mine" not in (made.run_dir / "bootstrap_ratings.csv").read_text()
    (cells,) = (row for row in page.cells if row[1:2] == ["mine"])
    assert cells[:3] == ["–", "mine", "refused"]


# Rated again


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "file"), [("ran", "battles.jsonl"), ("shared", "battles.parquet")]
)
def test_the_battles_of_a_run_give_its_ratings_again(
    name: str, file: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With the resamples and so the intervals; also where humans are read from the arena again, and
    by the settings of a run from when an arena had the setting split."""
    first: Ran = request.getfixturevalue(name)
    manifest = first.read("manifest.json")
    manifest["config"]["arena"]["split"] = "train"
    write_json(tmp_path / "manifest.json", manifest)
    given = (f"battles={first.run_dir / file}", f"ratings_from={tmp_path}")
    again = run(
        "experiment=rate", *given, "tracker=local", "figures=false", folder=first.folder
    )
    board = again.read("ratings.json")["dimensions"]["overall"]["bradley_terry"]
    found = {row["model"]: row for row in board["ratings"]}
    ratings = first.read("elo_ratings.json")["by_judge"]
    for rating in ratings:
        for same in ("rating", "std_error", "ci_low", "ci_high", "n_battles"):
            expected = pytest.approx(rating[same], abs=1e-9)
            assert found[rating["model"]][same] == expected
    before, after = (
        (r.run_dir / "bootstrap_ratings.csv").read_text(encoding="utf-8")
        for r in (first, again)
    )
    assert before == after
    resamples = [float(row["mine"]) for row in csv.DictReader(before.splitlines())]
    assert len(resamples) == 200
    mine = next(r for r in ratings if r["model"] == "mine")
    assert np.percentile(resamples, 2.5) == pytest.approx(mine["ci_low"])


# Refusals


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("rubric=[factuality]",), "rubric must be one rubric without a reference answer, as people vote on one "
         "question; got factuality."),
        (("rating=[bradley_terry,davidson]",), "rating must be one method with experiment=arena; got 2."),
        (("arena.opponents=adaptive", "shard=0/2"), "shard=0/2 cannot be combined with arena.opponents=adaptive"),
        (("judging.limit_pairs=1",), "judging.limit_pairs must be 2 or more, one battle for each model to place, or "
         "null for all; got 1."),
        (("arena.min_battles=1000",), "A placement needs at least "),
        (("arena.soft=0.3",), "arena.soft needs scores, which judge the judge does not give with rubric preference. Use"),
        (("arena.soft=-1",), "arena.soft must be a temperature of 0 or more, calibrated or null; got -1.0."),
        (("rating.bradley_terry.baseline_model=gpt",), "baseline_model must be a rated model, such as "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    overrides: tuple[str, ...], message: str, folder: Path
) -> None:
    with pytest.raises(UserError) as refusal:
        placed(TWO, folder, "arena.n_battles=10", *overrides)
    assert refusal.value.line.startswith(message)
    assert "\n" not in refusal.value.line


def test_a_question_that_is_asked_in_two_ways_is_refused(folder: Path) -> None:
    rows = [row | {"question_id": "q0"} for row in WORLD.rows()]
    write_jsonl(folder / "arena.jsonl", rows)
    said = 'Two different prompts have the name "q0". Set arena.columns.question_id'
    with pytest.raises(UserError, match=said):
        placed(WORLD, folder)


def test_a_stored_audit_that_none_wrote_stops_before_anybody_is_asked(
    folder: Path,
) -> None:
    with arena_of(TWO, folder, "arena.n_battles=10", *ALONE) as (experiment, context):
        (rubric,) = experiment.rubric.values()
        key = pipeline.identify(experiment.judge_run.judge).key
        path = audit_decisions.audit_path(context.store.folder, key, rubric.key)
        write_json(path, {"date": 3})
        run = experiment.placement(context.store)
        with pytest.raises(
            UserError,
            match=r"audits/.* is not as a run writes it: date must be text; got 3",
        ):
            run.run()
        assert (run.comparisons, list_judges(context.store)) == ([], [])


def test_a_model_that_looks_like_one_of_the_arena_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the same name it is refused; under one that differs in case it would be placed beside itself."""
    world = World(anchors=RATINGS, placed={"M3": 1100.0})
    placed(world, world.write(tmp_path), "arena.n_battles=10", *ALONE)
    said = "warning: the models 'M3', 'm3' look alike and are taken for different ones."
    assert caplog.text.count(said) == 1


# Real battles


def llmfao(folder: Path, model: str) -> Path:
    """The crowd's battles of llmfao with their texts, and one model's responses."""

    def rows(name: str) -> list[dict[str, Any]]:
        path = shared_data("llmfao") / f"{name}.jsonl.gz"
        return [dict(row) for _, row in read_jsonl(path)]

    prompts = {row["prompt_id"]: row["prompt"] for row in rows("prompts")}
    answers = rows("responses")
    said = {(row["prompt_id"], row["model"]): row["response"] for row in answers}
    crowd = [
        {
            **row,
            "prompt": prompts[row["question_id"]],
            "response_a": said[row["question_id"], row["model_a"]],
            "response_b": said[row["question_id"], row["model_b"]],
        }
        for row in rows("battles")
        if row["judge_model"] == "crowd"
    ]
    own = [
        {"prompt_id": question, "response_text": text}
        for (question, name), text in said.items()
        if name == model
    ]
    World(anchors={}, placed={model: 0.0}, n_battles=0).write(folder)
    write_jsonl(folder / "arena.jsonl", crowd)
    write_jsonl(folder / f"responses_{model}.jsonl", own)
    return folder


@pytest.mark.system
def test_a_real_model_is_placed_by_gpt_4_and_compared_with_the_crowd(
    tmp_path: Path,
) -> None:
    """docs/evidence.md has the numbers: the judge puts Weaver 12k lower than the crowd does, because it
    is more decisive; calibrated it is where the crowd has it."""
    model = "Weaver 12k"
    path = str(shared_data("llmfao") / "battles.jsonl.gz")
    many = (
        "arena.n_battles=10000",
        "arena.n_calibration=400",
        "arena.min_battles=100",
        "allow_missing=true",
        f"arena.hold_out=[{model}]",
    )
    ran = placed(
        World(anchors={}, placed={model: 0.0}),
        llmfao(tmp_path, model),
        *many,
        judge=ReplayJudge(kind=None, path=path, judge_model="gpt-4"),
    )
    found = ran.placement
    counts = (
        len(found.judged_battles),
        len(found.human_battles),
        len(found.board.models),
    )
    assert counts == (550, 5998, 57)
    assert (
        not found.judged_battles.has_both_orders().any()
    )  # gpt-4 was asked in one order
    assert found.judge_board is not None
    by_judge, by_humans, calibrated = (
        board.row(model).rating or 0
        for board in (found.judge_board, found.human_board, found.board)
    )
    assert (by_judge, by_humans) == pytest.approx((872, 955), abs=1.0)
    assert abs(calibrated - by_humans) < 0.5 * abs(by_judge - by_humans)
    said = read_json(ran.run_dir / "elo_ratings.json")["conclusions"][model]
    assert said["state"] == "caution"
    assert "13 prompts" in " ".join(reason["words"] for reason in said["reasons"])


# Adaptive opponents


@pytest.mark.slow
@pytest.mark.parametrize("spread", [80.0, 150.0])
def test_adaptive_opponents_save_less_than_a_fifth_of_the_battles(
    spread: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is why they are not the default. The saving at equal width of the interval is
    1 - (width / width at random)^2; by the place of the new model among 60 anchors."""
    ratings = 1000 + spread * np.sort(np.random.default_rng(1).normal(size=60))
    anchors = {f"m{i:02}": rating for i, rating in enumerate(ratings.tolist())}
    savings = []
    for quantile in (0.05, 0.5, 0.95):
        mine = {"mine": float(np.quantile(ratings, quantile))}
        world = World(anchors=anchors, placed=mine, n_battles=10_000)
        world.write(tmp_path)
        width = {}
        for how in ("random", "adaptive"):
            few = ("arena.n_battles=400", f"arena.opponents={how}", *ALONE)
            found = placed(
                world, tmp_path, *few, "rating.bradley_terry.interval=sandwich"
            )
            row = found.placement.board.row("mine")
            width[how] = (row.ci_high or 0) - (row.ci_low or 0)
        savings.append(1 - (width["adaptive"] / width["random"]) ** 2)
        with capsys.disabled():
            print(
                f"\nspread {spread:.0f}, place {quantile}: adaptive saves {savings[-1]:.0%}"
            )
    assert np.mean(savings) < 0.2
    assert max(savings) < 0.3


@pytest.mark.system
def test_a_union_of_arenas_says_whether_their_votes_differ(tmp_path: Path) -> None:
    """The second is a copy of the first with other prompts, where most votes are turned round."""
    WORLD.write(tmp_path)
    swap = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    rows = WORLD.rows()
    for i, row in enumerate(rows):
        row["prompt"] += " Please!"
        row["winner"] = swap[row["winner"]] if i % 5 else row["winner"]
    write_jsonl(tmp_path / "turned.jsonl", rows)
    yaml = f"defaults: [file, _self_]\nname: turned\npath: {tmp_path}/turned.jsonl\n"
    write_whole(tmp_path / "mine" / "arena" / "turned.yaml", yaml)
    answers = tmp_path / "responses_mine.jsonl"
    prefixed = [
        {**row, "prompt_id": f"{name}:{row['prompt_id']}"}
        for _, row in [*read_jsonl(answers)]
        for name in ("file", "turned")
    ]
    write_jsonl(answers, prefixed)
    ran = command(tmp_path, "arena=[file,turned]", "figures=false", world=WORLD)
    arena = ran.read("manifest.json")["arena"]
    assert (arena["name"], arena["n_battles"]) == ("file + turned", 1200)
    found = ran.read("ratings.json")["judge"]["preference"]["strata"]
    assert sorted(found["strata"]) == ["file", "turned"]
    assert found["p_value"] < 1e-6
    page = ran.page
    assert "Ratings differ between arenas (p" in page.said
