"""`experiment=arena`: models placed among human battles, what the run leaves behind, and how others rate it again.

The tests named after a defect are of those that a public pipeline for the same purpose was found to have.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.arena import placement
from elo_exp.arena.sources import Arena
from elo_exp.experiments import arena
from elo_exp.files import write_jsonl
from elo_exp.ratings.bradley_terry import POINTS, BradleyTerry
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, UserError
from tests.arena_files import TheJudge, World, arena_of, placed
from tests.commands import Ran, attempt, run
from tests.data import by_dimension, shared_data
from tests.openai_server import OpenAiServer
from tests.pages import Reader

RATINGS = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
WORLD = World(anchors=RATINGS, placed={"mine": 1100.0})
TWO = World(anchors=RATINGS, placed={"mine": 1100.0, "other": 900.0})
N_DRAWN = 150


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TWO.write(tmp_path)


def command(
    folder: Path, *overrides: str, world: World = TWO, anew: bool = False
) -> Ran:
    """As on the command line."""
    few = (f"arena.n_battles={N_DRAWN}", "elo.n_perms=20", "elo.n_bootstraps=0")
    judge = ("judge=lexical", "judge.default_signal=overlap", "judge.margin=0.01")
    given = (
        f"--config-dir={folder}/mine",
        *world.overrides(folder),
        *few,
        *judge,
        *overrides,
    )
    return run(*given, folder=folder, anew=anew)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two models placed."""
    return command(TWO.write(tmp_path_factory.mktemp("arena")))


@pytest.fixture(scope="module")
def shared(ran: Ran) -> Ran:
    """The same by another judge, its file of battles without those that anybody can read from the arena."""
    chosen = (
        "judge.position_effect=0.3",
        "arena.inline_human=false",
        "arena.battles_format=parquet",
        "figures=false",
    )
    return command(ran.folder, *chosen)


# Where it stands


def test_a_model_lands_where_it_belongs(folder: Path) -> None:
    """The humans' ties draw all distances together, of the anchors and so of the scale, the judge's verdicts do not: by
    the truth both stay in their order, above and below all but the nearest."""
    found = placed(
        TWO, folder, "arena.n_battles=250", "arena.n_calibration=0"
    ).placement
    by_rating = [r.model for r in found.board.ratings if r.model not in TWO.placed]
    spread = np.polyfit(
        [RATINGS[m] for m in RATINGS],
        [found.board.row(m).rating or 0 for m in RATINGS],
        1,
    )[0]
    assert by_rating.index("m9") < 3
    assert by_rating.index("m0") > 6
    for name, truth in TWO.placed.items():
        rating = found.board.row(name)
        assert rating.ci_low is not None
        assert rating.ci_high is not None
        width = rating.ci_high - rating.ci_low
        assert rating.rating == pytest.approx(
            1000 + (truth - 1000) * (1 + spread) / 2, abs=width
        )
        assert rating.ci_low < (rating.rating or 0) < rating.ci_high
        assert rating.rank_low is not None
        assert rating.rank_low <= (rating.rank or 0) <= (rating.rank_high or 0)


def test_several_models_enter_the_same_battles(folder: Path) -> None:
    found = placed(TWO, folder, f"arena.n_battles={N_DRAWN}").placement
    entered = {
        name: [(b.question_id, b.model_b) for b in found.judged if b.model_a == name]
        for name in TWO.placed
    }
    assert entered["mine"] == entered["other"]
    assert len(entered["mine"]) == N_DRAWN
    assert not {b.model_b for b in found.judged} & set(TWO.placed)


def test_more_battles_ask_only_for_the_new_ones(folder: Path) -> None:
    for n, asked in ((50, 50), (80, 30), (80, 0)):
        judge = TheJudge()
        placed(
            WORLD, folder, f"arena.n_battles={n}", "arena.n_calibration=0", judge=judge
        )
        assert len(judge.seen) == 2 * asked


def test_a_plan_asks_nothing_and_counts_both_orders(folder: Path) -> None:
    judge = TheJudge()
    with arena_of(
        TWO,
        folder,
        "arena.n_battles=50",
        "arena.n_calibration=10",
        "plan=true",
        judge=judge,
    ) as (experiment, context):
        plan = experiment.dry_run(context)
    assert plan is not None
    assert re.search(r"\b220\b", plan), (
        plan
    )  # two models on 50 battles and ten of the humans, both orders of each
    assert judge.seen == []


@pytest.mark.parametrize("opponents", ["random", "adaptive"])
@pytest.mark.parametrize(
    ("world", "n_battles", "limit", "of_each", "of_humans"),
    [
        (WORLD, 30, 5, 5, 0),
        (WORLD, 30, 1000, 30, 20),
        (TWO, 30, 2, 1, 0),
        (TWO, 30, 33, 16, 0),
        (TWO, 12, 30, 12, 6),
    ],
)
def test_a_limit_is_of_all_pairs_and_shared_by_the_models(
    world: World,
    n_battles: int,
    limit: int,
    of_each: int,
    of_humans: int,
    opponents: str,
    folder: Path,
) -> None:
    """Of a plan as of a run. The humans' battles get what the models leave; no answer is made that is not judged."""
    n_pairs = len(world.placed) * of_each + of_humans
    limited = (
        f"arena.n_battles={n_battles}",
        f"judging.limit_pairs={limit}",
        f"arena.opponents={opponents}",
    )
    with arena_of(world, folder, *limited, "plan=true") as (experiment, context):
        plan = experiment.dry_run(context)
    assert plan is not None
    assert re.search(rf"preference +{n_pairs} +{2 * n_pairs} ", plan), plan
    judge = TheJudge()
    play = placed(world, folder, *limited, judge=judge).play
    assert len(judge.seen) == 2 * n_pairs
    assert Counter(
        c.entrant_a for c in play.comparisons if c.entrant_a in world.placed
    ) == dict.fromkeys(world.placed, of_each)
    assert {name: len(some) for name, some in play.responses.items()} == dict.fromkeys(
        world.placed, of_each
    )


def test_a_plan_lets_no_model_answer(folder: Path) -> None:
    """Where the placed model is one that is asked, here at a port where nobody listens."""
    chosen = (
        "entrant=[openai_compatible]",
        "entrant.openai_compatible.base_url=http://localhost:9/v1",
    )
    model = (
        "entrant.openai_compatible.model=m",
        "entrant.openai_compatible.max_tokens=100",
    )
    ran = command(folder, *chosen, *model, "plan=true")
    assert (
        f"{N_DRAWN} answers are yet to be made, taken to be of 400 characters"
        in ran.err
    )
    assert re.search(rf"preference +{N_DRAWN + 20} +{2 * (N_DRAWN + 20)} ", ran.out)


def test_a_limit_without_a_battle_for_each_model_is_refused(folder: Path) -> None:
    with (
        pytest.raises(
            UserError,
            match="judging.limit_pairs: found 1 for 2 models to place. Expected 2 or more",
        ),
        arena_of(TWO, folder, "judging.limit_pairs=1"),
    ):
        pass


def test_a_share_of_a_limited_run_answers_nothing_else(folder: Path) -> None:
    with arena_of(TWO, folder, "judging.limit_pairs=24", "shard=0/2") as (
        experiment,
        context,
    ):
        said = experiment.run(context).text
    assert (
        said == "shard 0/2: 12 responses made; run without shard= to judge"
    )  # 6 of 12 prompts, two models


def test_a_share_of_the_answers_can_be_made_elsewhere(folder: Path) -> None:
    with arena_of(TWO, folder, "arena.n_battles=50", "shard=1/4") as (
        experiment,
        context,
    ):
        said = experiment.run(context).text
    assert (
        said == "shard 1/4: 26 responses made; run without shard= to judge"
    )  # 13 of 50 prompts, two models


def test_adaptive_rounds_are_held_against_the_cap_before_the_first(
    folder: Path,
) -> None:
    """Each of four rounds of ten would fit, and all of them do not. What is judged already needs no cap."""
    adaptive = (
        "arena.opponents=adaptive",
        "arena.rounds=4",
        "arena.n_battles=40",
        "arena.n_calibration=0",
    )
    with OpenAiServer() as server:
        judge = (
            "judge=openai_compatible",
            "judge.model=large",
            f"judge.base_url={server.url}",
        )
        prices = (
            "judge.input_usd_per_million=0",
            "judge.output_usd_per_million=10",
            "judge.max_tokens=250",
        )

        def placed_by(cap: float, *overrides: str) -> Ran:
            given = (
                *WORLD.overrides(folder),
                *adaptive,
                *judge,
                *prices,
                f"judging.budget_usd={cap}",
                "elo.n_perms=5",
            )
            quick = (
                "figures=false",
                "rating.bradley_terry.n_bootstraps=20",
                "judge.temperature=0",
            )
            return attempt(
                f"--config-dir={folder}/mine",
                *given,
                *quick,
                *overrides,
                folder=folder,
                NO_PROXY="127.0.0.1",
            )

        refused = placed_by(0.1)
        assert refused.code == 2
        assert (
            "judging.budget_usd: 80 verdicts by large are expected to cost $0.2000, and the cap is"
            in refused.err
        )
        assert refused.err.endswith("Nothing was spent.\n")
        assert server.asked == []
        assert placed_by(0.3).code == 0
        assert placed_by(0.0).code == 0
        assert len(server.asked) == server.billed.total() <= 80


def test_adaptive_opponents_are_nearer_and_the_same_each_time(folder: Path) -> None:
    def distances(how: str) -> tuple[list[str], float]:
        found = placed(
            WORLD, folder, "arena.n_battles=100", f"arena.opponents={how}"
        ).placement
        met = [b.model_b for b in found.judged]
        return met, float(np.mean([abs(RATINGS[m] - 1100) for m in met]))

    at_random, near = distances("random"), distances("adaptive")
    assert len(near[0]) == len(at_random[0]) == 100
    assert near[1] < 0.8 * at_random[1]
    judge = TheJudge()
    placed(
        WORLD, folder, "arena.n_battles=100", "arena.opponents=adaptive", judge=judge
    )
    assert judge.seen == []


def test_another_rating_takes_the_place_of_bradley_terry(folder: Path) -> None:
    """On the same scale: the two models stand in their order, with the intervals that their method has."""
    chosen = (
        "arena.n_battles=60",
        "arena.n_calibration=0",
        "elo.n_perms=1",
        "rating=[davidson]",
        "figures=false",
    )
    world = [o for o in TWO.overrides(folder) if "bradley_terry" not in o]
    judge = ("judge=lexical", "judge.default_signal=overlap", "judge.margin=0.01")
    ran = run(f"--config-dir={folder}/mine", *world, *chosen, *judge, folder=folder)
    found = ran.read("elo_ratings.json")
    assert (found["rating_settings"]["method"], found["n_bootstraps"]) == (
        "davidson",
        0,
    )
    rated = {r["model"]: r for r in found["ratings"]}
    assert rated["other"]["rating"] < rated["mine"]["rating"] < rated["mine"]["ci_high"]
    assert sum(r["rating"] for r in rated.values()) / len(rated) == pytest.approx(
        1000.0
    )


def test_where_nobody_has_a_rating_that_is_said(tmp_path: Path) -> None:
    """By Davidson: the best has won or tied each of its battles, so that gaps and ties would grow for ever."""
    world = World(
        anchors={"high": 50_000.0, "low": 0.0}, placed={"mine": 99_000.0}, n_battles=40
    )
    with arena_of(world, world.write(tmp_path), "arena.n_battles=20") as (
        experiment,
        context,
    ):
        experiment.rating = {"davidson": Davidson(initial_rating=1000.0, use="both")}
        play = experiment.play(context.store)
        placement = arena.place(experiment, play)
        report = arena.report(experiment, placement, play, context.run_dir)
    assert {r.model: r.rating for r in placement.board.ratings} == dict.fromkeys(
        ("high", "low", "mine")
    )
    assert "mine: no rating (unbeaten) by 20 judged battles." in report.text
    assert [plot.name for plot in report.figures()] == ["predicted_and_observed"]
    assert report.page is not None
    assert Reader(report.page("run", {}, report.figures())).said


def test_an_interval_that_is_chosen_is_taken(folder: Path) -> None:
    with arena_of(WORLD, folder, "rating.bradley_terry.interval=sandwich") as (
        experiment,
        _,
    ):
        assert experiment.rating["bradley_terry"].interval == "sandwich"


def test_a_model_that_wins_everything_is_flagged_and_gets_no_number(
    tmp_path: Path,
) -> None:
    world = World(anchors=RATINGS, placed={"mine": 99_000.0})
    found = placed(world, world.write(tmp_path), "arena.n_battles=30")
    (entry,) = [r for r in found.placement.board.ratings if r.model == "mine"]
    assert (entry.rating, entry.flag) == (None, "unbeaten")
    assert found.report.headline == 0.0
    assert "mine: no rating (unbeaten) by 30 judged battles." in found.report.text
    assert found.report.page is not None
    assert Reader(found.report.page("run", {}, found.report.figures())).said


# Beside the humans


def test_the_judge_is_asked_about_human_battles_as_about_its_own(folder: Path) -> None:
    """A defect: the calibration had a judge without the run's prompt and settings."""
    judge = TheJudge()
    found = placed(
        WORLD, folder, "arena.n_battles=60", "arena.n_calibration=25", judge=judge
    ).placement
    human = [
        r
        for r in judge.seen
        if "mine" not in (r.subject.entrant_a, r.subject.entrant_b)
    ]
    assert len(human) == 50
    assert len({(r.system, r.schema) for r in judge.seen}) == 1
    assert found.calibration is not None
    assert found.calibration.agreement.n_comparisons == 25
    assert found.calibration.temperature is not None
    assert not [b for b in found.judged if b.model_a != "mine"]


def test_no_calibration_costs_nothing(folder: Path) -> None:
    judge = TheJudge()
    found = placed(
        WORLD, folder, "arena.n_battles=20", "arena.n_calibration=0", judge=judge
    )
    assert len(judge.seen) == 40
    assert found.placement.calibration is None


def test_a_model_that_is_held_out_is_compared_with_what_humans_say_of_it(
    folder: Path,
) -> None:
    rows = WORLD.rows()
    answers = {
        r["question_id"]: r[f"response_{s}"]
        for r in rows
        for s in "ab"
        if r[f"model_{s}"] == "m7"
    }
    world = World(anchors=RATINGS, placed={"m7": RATINGS["m7"]})
    world.write(folder)
    assert len(answers) > 50
    found = placed(world, folder, "arena.hold_out=[m7]", f"arena.n_battles={N_DRAWN}")
    assert not [b for b in found.placement.human if "m7" in (b.model_a, b.model_b)]
    board = found.placement.human_board
    assert board is not None
    assert board.row("m7").n_battles == len(answers)
    assert "By humans alone" in found.report.text


# The defects


def test_a_second_judge_never_gets_the_first_ones_verdicts(folder: Path) -> None:
    """A defect: the key of a verdict had no judge in it."""
    judges = [
        TheJudge(model="one"),
        TheJudge(model="two"),
        TheJudge(model="two", every=3, spoilt="?"),
    ]
    for judge in judges:
        placed(
            WORLD, folder, "arena.n_battles=30", "arena.n_calibration=0", judge=judge
        )
    assert [len(judge.seen) for judge in judges] == [60, 60, 60]


@pytest.mark.parametrize(
    "spoilt",
    [
        "I cannot say.",
        "",
        "score_A: 7.5\nscore_B: 7.9",
        '{"evidence_a": "", "evidence_b": "", "verdict": "?"}',
    ],
)
def test_what_cannot_be_read_is_no_tie(spoilt: str, folder: Path) -> None:
    """A defect: it was one. Nor is a pair of scores cut to its whole numbers, which was another: 7 and 7."""
    found = placed(
        WORLD,
        folder,
        "arena.n_battles=90",
        "arena.n_calibration=0",
        judge=TheJudge(spoilt=spoilt, every=3),
    )
    spoilt_prompts = [
        d for d in found.play.drawn["mine"] if int(d.question_id[1:]) % 3 == 0
    ]
    assert (
        found.report.facts["judge_quality"][0]["n_invalid"] == len(spoilt_prompts) > 10
    )
    assert len(found.placement.judged) == 90 - len(spoilt_prompts)
    assert not [b for b in found.placement.judged if b.is_tie]


def test_decimals_in_the_evidence_change_no_verdict(folder: Path) -> None:
    reply = '{"evidence_a": "score 7.5 of 10", "evidence_b": "score 7.9 of 10", "verdict": "B"}'
    judge = TheJudge(spoilt=reply, every=1)
    found = placed(
        WORLD, folder, "arena.n_battles=10", "arena.n_calibration=0", judge=judge
    )
    assert {v.verdict for j in found.play.judgments for v in j.raw} == {"B"}


@pytest.mark.parametrize("opponents", ["random", "adaptive"])
def test_a_run_without_any_valid_verdict_says_so(opponents: str, folder: Path) -> None:
    judge = TheJudge(spoilt="?", every=1)
    with pytest.raises(
        UserError, match="mine: none of its 20 battles has a valid verdict"
    ):
        placed(
            WORLD,
            folder,
            "arena.n_battles=20",
            f"arena.opponents={opponents}",
            judge=judge,
        )


@pytest.mark.parametrize("opponents", ["random", "adaptive"])
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("judging.stored_only=true",),
            "20 drawn battles have texts to judge, it has answered 20 of their prompts",
        ),
        (
            ("recorded_dir={folder}/else",),
            "20 drawn battles have texts to judge, it has answered 0 of their prompts",
        ),
        (
            ("arena.max_chars=1",),
            "0 drawn battles have texts to judge, it has answered 0 of their prompts",
        ),
    ],
)
def test_a_model_of_which_nothing_was_judged_is_told_why(
    overrides: tuple[str, ...], message: str, opponents: str, folder: Path
) -> None:
    write_jsonl(
        folder / "else" / "responses_mine.jsonl",
        [{"prompt_id": "else", "response_text": "Never asked for."}],
    )
    chosen = (
        "arena.n_battles=20",
        f"arena.opponents={opponents}",
        "allow_missing=true",
    )
    with pytest.raises(UserError) as refusal:
        placed(
            WORLD,
            folder,
            *chosen,
            *(override.format(folder=folder) for override in overrides),
        )
    assert str(refusal.value).startswith(
        "mine: none of its battles has a verdict, so it cannot be placed"
    )
    assert message in str(refusal.value)


def test_adaptive_rounds_draw_no_battle_without_texts_again(folder: Path) -> None:
    rows = [
        row | {"prompt": ""} if i % 2 else row for i, row in enumerate(WORLD.rows())
    ]
    write_jsonl(folder / "arena.jsonl", rows)
    play = placed(WORLD, folder, "arena.n_battles=80", "arena.opponents=adaptive").play
    assert len(play.drawn["mine"]) + len(play.unusable) == 80


def test_both_orders_are_one_observation_of_their_prompt(folder: Path) -> None:
    """A defect: rows were resampled. A judge that never contradicts itself is known no better for being asked twice."""
    found = placed(
        WORLD, folder, f"arena.n_battles={N_DRAWN}", "arena.n_calibration=0"
    ).placement
    assert all(b.verdict_ab == b.verdict_ba for b in found.judged)
    questions = Counter(b.question_id for b in found.battles)
    assert found.board.n_clusters == len(questions) == WORLD.n_battles


def test_two_judges_leave_two_run_folders(ran: Ran, shared: Ran) -> None:
    """A defect: the second overwrote the first."""
    assert ran.run_dir != shared.run_dir
    assert ran.run_dir.parent == shared.run_dir.parent
    first, second = (r.read("elo_ratings.json")["ratings"] for r in (ran, shared))
    assert first != second
    assert shared.read("manifest.json")["usage"]["verdicts_stored"] == 0
    assert shared.read("manifest.json")["usage"]["responses_generated"] == 0


# What a run leaves behind


def test_the_files_of_a_run(ran: Ran) -> None:
    files = {
        path.relative_to(ran.run_dir).as_posix()
        for path in ran.run_dir.rglob("*")
        if path.is_file()
    }
    assert files >= {
        *(
            "manifest.json",
            "report.html",
            "battles.jsonl",
            "elo_ratings.json",
            "ratings.json",
            "bootstrap_ratings.csv",
        ),
        *(
            "responses/responses_mine.jsonl",
            "matches/matches.jsonl",
            "verdicts/preference.jsonl",
        ),
        *(
            f"figures/{name}.{kind}"
            for name in ("leaderboard", "predicted_and_observed")
            for kind in ("png", "svg", "csv")
        ),
    }


def test_the_ratings_are_sorted_and_say_whence_each_comes(ran: Ran) -> None:
    found = ran.read("elo_ratings.json")
    ratings = [r["rating"] for r in found["ratings"]]
    assert ratings == sorted(ratings, reverse=True)
    assert {r["model"]: r["source"] for r in found["ratings"]} == dict.fromkeys(
        RATINGS, "human"
    ) | {
        "mine": "evaluated",
        "other": "evaluated",
    }
    assert (found["arena"], found["model"], found["judge_model"]) == (
        "file",
        "mine",
        "lexical",
    )
    assert found["models"] == ["mine", "other"]
    assert (found["n_bootstraps"], found["rating_settings"]["interval"]) == (
        200,
        "percentile",
    )
    assert sum(ratings) / len(ratings) == pytest.approx(1000.0)
    counted = Counter(
        m for b in ran.rows("battles.jsonl") for m in (b["model_a"], b["model_b"])
    )
    assert {r["model"]: r["n_battles"] for r in found["ratings"]} == counted


def test_the_battles_are_all_that_was_rated(ran: Ran) -> None:
    by_source = Counter(row["source"] for row in ran.rows("battles.jsonl"))
    assert by_source == {"llm-judge": 2 * N_DRAWN, "human": WORLD.n_battles}


def test_the_manifest_says_what_was_drawn_and_left_out(ran: Ran) -> None:
    manifest = ran.read("manifest.json")
    about = manifest["arena"]
    assert (about["n_rows"], about["n_battles"], about["n_anchors"]) == (600, 600, 10)
    assert about["n_drawn"] == {"mine": N_DRAWN, "other": N_DRAWN}
    assert len(about["draw_fingerprint"]) == len(about["fingerprint"]) == 40
    rubric = {
        f"rubric preference{what}" for what in ("", " system", " template", " schema")
    }
    assert set(manifest["input_hashes"]) == {
        "arena arena.jsonl",
        "entrant mine",
        "entrant other",
        *rubric,
    }
    assert manifest["selected_prompt_count"] == N_DRAWN


def test_the_page_and_the_table_say_where_the_models_stand(ran: Ran) -> None:
    page = Reader((ran.run_dir / "report.html").read_text(encoding="utf-8"))
    rating = next(
        r for r in ran.read("elo_ratings.json")["ratings"] if r["model"] == "mine"
    )
    said = f"{rating['rating']:.0f} (95 %: {rating['ci_low']:.0f} to {rating['ci_high']:.0f}), rank {rating['rank']} of 12"
    assert said in page.said
    assert f"mine: {said}" in ran.out
    assert next(row for row in page.cells if row[1] == "mine")[0] == str(rating["rank"])
    assert "The judge beside the humans, on 20 of their battles" in page.said


def test_the_tracker_is_told_the_rating(ran: Ran) -> None:
    log = [
        json.loads(line)
        for line in (ran.run_dir / "tracker" / "log.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ]
    (summary,) = [entry["value"] for entry in log if entry["kind"] == "summary"]
    rating = next(
        r for r in ran.read("elo_ratings.json")["ratings"] if r["model"] == "mine"
    )
    assert summary["mine/rating"] == rating["rating"]
    assert summary["human/agreement"] <= 1


# Rated again


def of_rate(ran: Ran) -> dict[str, dict[str, Any]]:
    board = ran.read("ratings.json")["dimensions"]["overall"]["bradley_terry"][
        "ratings"
    ]
    return {row["model"]: row for row in board}


@pytest.mark.parametrize(
    ("name", "file"), [("ran", "battles.jsonl"), ("shared", "battles.parquet")]
)
def test_the_battles_of_a_run_give_its_ratings_again(
    name: str, file: str, request: pytest.FixtureRequest
) -> None:
    """To 1e-9, with the resamples and so the intervals; also where the human battles are read from the arena again."""
    first: Ran = request.getfixturevalue(name)
    given = (
        f"battles={first.run_dir / file}",
        f"ratings_from={first.run_dir}",
        "tracker=local",
        "figures=false",
    )
    again = run("experiment=rate", *given, folder=first.folder)
    found = of_rate(again)
    for rating in first.read("elo_ratings.json")["ratings"]:
        same = ("rating", "std_error", "ci_low", "ci_high", "n_battles")
        assert [found[rating["model"]][n] for n in same] == pytest.approx(
            [rating[n] for n in same], abs=1e-9
        )
    resamples = [
        (r.run_dir / "bootstrap_ratings.csv").read_text(encoding="utf-8")
        for r in (first, again)
    ]
    assert resamples[0] == resamples[1]


def test_the_resamples_are_there_for_an_interval_of_ones_own(ran: Ran) -> None:
    with (ran.run_dir / "bootstrap_ratings.csv").open(encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    mine = next(
        r for r in ran.read("elo_ratings.json")["ratings"] if r["model"] == "mine"
    )
    assert len(rows) == 200
    assert np.percentile([float(row["mine"]) for row in rows], 2.5) == pytest.approx(
        mine["ci_low"]
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("ratings_from=nowhere",),
            "ratings_from: nowhere/manifest.json cannot be read",
        ),
        (
            ("ratings_from=nowhere", "elo.k=8"),
            "ratings_from: the settings of nowhere are taken, and elo.k=8 besides.",
        ),
        (
            ("like=nowhere",),
            "like: is called ratings_from now.",
        ),
    ],
)
def test_settings_that_cannot_be_taken_are_refused(
    overrides: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    write_jsonl(
        tmp_path / "b.jsonl", [{"model_a": "a", "model_b": "b", "winner": "tie"}]
    )
    refused = attempt(
        "experiment=rate",
        "battles=b.jsonl",
        "tracker=local",
        *overrides,
        folder=tmp_path,
    )
    assert refused.code == 2
    assert refused.err.startswith(f"elo_exp: {message}")
    assert refused.err.count("\n") == 1


# Refusals


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("rubric=[factuality]",),
            "rubric: found factuality. A placement asks one thing",
        ),
        (
            ("rubric=[preference,calibration]",),
            "rubric: found preference, calibration.",
        ),
        (
            ("rating=[bradley_terry,davidson]",),
            "rating: found 2. A placement is rated by one",
        ),
        (
            ("arena.opponents=adaptive", "shard=0/2"),
            "shard: adaptive opponents are chosen as verdicts come in.",
        ),
        (
            ("arena.path=nowhere.jsonl",),
            "arena.path: found no file of battles at nowhere.jsonl.",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(
    overrides: tuple[str, ...], message: str, folder: Path
) -> None:
    with pytest.raises(UserError) as refusal, arena_of(WORLD, folder, *overrides):
        pass
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("arena.min_battles=1000",),
            "arena.min_battles: 0 models of file have 1000 human battles or more",
        ),
        (
            ("arena.languages=[en]",),
            "arena.languages: found en, but no column of file says the language.",
        ),
        (("arena.hold_out=[gpt]",), "arena.hold_out: 'gpt' has no battle in file."),
        (
            ("rating.bradley_terry.baseline_model=gpt",),
            "baseline_model: 'gpt' has no rating here.",
        ),
    ],
)
def test_what_is_wrong_with_the_arena_is_said_in_one_line(
    overrides: tuple[str, ...], message: str, folder: Path
) -> None:
    with pytest.raises(UserError) as refusal:
        placed(WORLD, folder, "arena.n_battles=10", *overrides)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_a_model_that_is_in_the_arena_is_refused(tmp_path: Path) -> None:
    world = World(anchors=RATINGS, placed={"m3": 1000.0})
    with pytest.raises(
        UserError,
        match=r"entrant: 'm3' is a model of file already.*arena.hold_out=\[m3\]",
    ):
        placed(world, world.write(tmp_path))


def test_a_question_that_is_asked_in_two_ways_is_refused(folder: Path) -> None:
    rows = [row | {"question_id": "q0"} for row in WORLD.rows()]
    write_jsonl(folder / "arena.jsonl", rows)
    with pytest.raises(
        UserError,
        match="arena.columns.question_id: 'q0' stands for two different prompts",
    ):
        placed(WORLD, folder)


# Real battles


def llmfao(folder: Path, model: str) -> Path:
    """The crowd's battles of llmfao with their texts, and one model's responses; the folder of both."""

    def rows(name: str) -> list[dict[str, Any]]:
        with gzip.open(
            shared_data("llmfao") / f"{name}.jsonl.gz", "rt", encoding="utf-8"
        ) as file:
            return [json.loads(line) for line in file]

    prompts = {row["prompt_id"]: row["prompt"] for row in rows("prompts")}
    said = {
        (row["prompt_id"], row["model"]): row["response"] for row in rows("responses")
    }
    crowd = [
        {
            **{
                name: row[name]
                for name in ("model_a", "model_b", "winner", "question_id")
            },
            "prompt": prompts[row["question_id"]],
            "response_a": said[row["question_id"], row["model_a"]],
            "response_b": said[row["question_id"], row["model_b"]],
        }
        for row in rows("battles")
        if row["judge_model"] == "crowd"
    ]
    answers = [
        {"prompt_id": q, "response_text": text}
        for (q, name), text in said.items()
        if name == model
    ]
    world = World(anchors={}, placed={model: 0.0}, n_battles=0)
    world.write(folder)
    write_jsonl(folder / "arena.jsonl", crowd)
    write_jsonl(folder / f"responses_{model}.jsonl", answers)
    return folder


def test_a_real_model_is_placed_by_gpt_4_and_compared_with_the_crowd(
    tmp_path: Path,
) -> None:
    """docs/arena.md has the numbers: the judge puts Weaver 12k lower than the crowd does, because it is more decisive;
    on the scale of the crowd it is where the crowd has it."""
    from elo_exp.judges.replay import ReplayJudge

    model = "Weaver 12k"
    world = World(anchors={}, placed={model: 0.0})
    judge = ReplayJudge(
        path=str(shared_data("llmfao") / "battles.jsonl.gz"), judge_model="gpt-4"
    )
    many = (
        "arena.n_battles=10000",
        "arena.n_calibration=400",
        "arena.min_battles=100",
        "allow_missing=true",
    )
    found = placed(
        world, llmfao(tmp_path, model), f"arena.hold_out=[{model}]", *many, judge=judge
    ).placement
    assert (len(found.judged), len(found.human), len(found.board.models)) == (
        550,
        5998,
        57,
    )
    assert {b.verdict_ba for b in found.judged} == {
        None
    }  # gpt-4 was asked in one order
    mine = found.board.row(model)
    assert found.human_board is not None
    by_humans = found.human_board.row(model).rating or 0
    assert (mine.rating or 0) == pytest.approx(872.1, abs=0.1)
    assert by_humans == pytest.approx(954.8, abs=0.1)
    assert found.calibration is not None
    assert found.calibration.decisiveness == pytest.approx(1.9, abs=0.1)
    assert abs(found.calibration.on_human_scale[model] - by_humans) < 0.5 * abs(
        (mine.rating or 0) - by_humans
    )


# Many models, many battles


def synthetic(
    n_models: int, n_battles: int, *, spread: float, seed: int
) -> tuple[Arena, dict[str, float]]:
    """An arena without texts, and abilities in log-odds; some models have many more battles than others."""
    rng = np.random.default_rng(seed)
    ability = np.sort(rng.normal(0.0, spread / POINTS, n_models))
    share = rng.pareto(1.5, n_models) + 0.5
    a, b = (rng.choice(n_models, n_battles, p=share / share.sum()) for _ in range(2))
    b = np.where(a == b, (b + 1) % n_models, b)
    u = rng.random(n_battles)
    win = 0.7 / (1 + np.exp(ability[b] - ability[a]))
    winners = np.where(
        u < win, "model_a", np.where(u < win + 0.3, "tie", "model_b")
    ).tolist()
    names = [f"model-{i:03d}-instruct" for i in range(n_models)]
    battles = [
        Battle(model_a=names[i], model_b=names[j], winner=winner, question_id=f"q{t}")
        for t, (i, j, winner) in enumerate(
            zip(a.tolist(), b.tolist(), winners, strict=True)
        )
    ]
    at = [(0, t) for t in range(n_battles)]
    known = Arena(
        name="synthetic",
        battles=battles,
        at=at,
        held_out=[],
        n_rows=n_battles,
        dropped={},
    )
    return known, dict(zip(names, ability.tolist(), strict=True))


def verdict(
    draw: placement.Draw, ability: float, abilities: dict[str, float]
) -> Battle:
    """Both orders of a judge that ties one time in five; the prompt moves both alike."""
    rng = np.random.default_rng(draw.at[1])
    p = 1 / (1 + np.exp(abilities[draw.opponent] - ability + rng.standard_normal()))
    ab, ba = (
        "tie" if rng.random() < 0.2 else "model_a" if rng.random() < p else "model_b"
        for _ in range(2)
    )
    return Battle(
        model_a="new",
        model_b=draw.opponent,
        winner=ab if ab == ba else "tie",
        question_id=draw.question_id,
        verdict_ab=ab,
        verdict_ba=ba,
    )


SANDWICH = BradleyTerry(
    initial_rating=1000, use="both", interval="sandwich", n_bootstraps=2, seed=0
)


def width(
    known: Arena,
    abilities: dict[str, float],
    ability: float,
    n: int,
    how: str,
    seed: int,
) -> float:
    """Of the interval of a new model by n judged battles, in four rounds where opponents are adaptive."""
    anchors = placement.anchors(known, 200)
    human = placement.among(known.battles, anchors)
    candidates = placement.draws(
        known, anchors, seed=seed, sides=1 if how == "random" else 2
    )
    taken = placement.first(candidates, n if how == "random" else n // 4)
    board = None
    while board is None or len(taken) < n:
        if board is not None:
            ratings = {r.model: r.rating for r in board.ratings if r.rating is not None}
            taken += placement.adaptive(
                candidates, taken, ratings, placement.estimate(board, "new"), n // 4
            )
        board = SANDWICH.rate(
            by_dimension(
                {"d": [*(verdict(draw, ability, abilities) for draw in taken), *human]}
            )
        )["d"]
    rating = board.row("new")
    return (rating.ci_high or 0) - (rating.ci_low or 0)


@pytest.mark.slow
def test_adaptive_opponents_save_less_than_a_fifth_of_the_battles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Which is why they are not the default. The saving at equal width is 1 - (width / width at random)^2, a width
    being as 1 / sqrt(n); 400 battles, by the place of the new model among 60 anchors and by how far these lie apart."""
    savings: dict[float, list[float]] = {}
    for spread in (80.0, 150.0):
        known, abilities = synthetic(60, 30_000, spread=spread, seed=1)
        for quantile in (0.05, 0.5, 0.95, 1.0):
            ability = float(np.quantile(list(abilities.values()), quantile)) + (
                50 / POINTS if quantile == 1.0 else 0.0
            )
            near, at_random = (
                float(
                    np.mean(
                        [
                            width(known, abilities, ability, 400, how, seed)
                            for seed in range(4)
                        ]
                    )
                )
                for how in ("adaptive", "random")
            )
            savings.setdefault(spread, []).append(1 - (near / at_random) ** 2)
            with capsys.disabled():
                print(
                    f"\nspread {spread:.0f}, place {quantile}: {at_random:.1f} points wide at random, {near:.1f} ",
                    end="",
                )
                print(f"adaptive: saves {savings[spread][-1]:.0%}", end="")
    assert all(np.mean(some) < 0.2 for some in savings.values())
    assert max(max(some) for some in savings.values()) < 0.3


def test_of_130_models_the_best_and_the_placed_are_drawn(tmp_path: Path) -> None:
    world = World(
        anchors={f"model-{i:03d}-instruct": 900.0 + i for i in range(129)},
        placed={"mine": 500.0},
        n_battles=5000,
    )
    found = placed(
        world, world.write(tmp_path), "arena.n_battles=200", "arena.min_battles=1"
    )
    leaderboard, shares = found.report.figures()
    assert len(leaderboard.rows) == 130
    assert "Only the first 60 of 130 models are shown." in leaderboard.caption
    assert leaderboard.svg.count("-instruct") == 60
    assert "mine" in leaderboard.svg
    assert (
        sum(row["n_battles"] for row in shares.rows)
        == len(found.placement.judged)
        == 200
    )


@pytest.mark.slow
def test_a_hundred_thousand_human_battles_are_rated_in_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command, from the file to the figures, 130 models; memory stays below half a gigabyte."""
    import resource
    import time

    world = World(
        anchors={f"model-{i:03d}-instruct": 900.0 + i for i in range(130)},
        placed={"mine": 1000.0},
        n_battles=100_000,
    )
    folder = world.write(tmp_path)
    before = time.perf_counter()
    ran = command(
        folder,
        "rating.bradley_terry.n_bootstraps=1000",
        "arena.n_battles=500",
        world=world,
        anew=True,
    )
    seconds = time.perf_counter() - before
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    with capsys.disabled():
        print(
            f"\n{len(ran.rows('battles.jsonl'))} battles: {seconds:.1f} s, {megabytes:.0f} MB",
            end="",
        )
    assert megabytes < 1000
