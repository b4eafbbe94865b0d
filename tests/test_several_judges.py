"""Several judges of one tournament: one plan, one cap, a board each; from three on what holds whichever such judge is
asked, and of two never an interval together."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping

import numpy as np
import pytest

import elo_exp
from elo_exp.analysis import standings
from elo_exp.analysis.comparisons import Leader
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.judges_conclusion import (
    STATES,
    JudgesResult,
    conclude,
    sum_up_judges,
)
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_panel import (
    JudgePanelFit,
    compute_joint_differences,
    joint_leaderboard,
    judges_needed,
)
from elo_exp.arrays import Array
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.files import write_json, write_whole
from elo_exp.judges import guess_judge_kind
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, Fit
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import t_quantile
from elo_exp.records import MissingBattle
from elo_exp.report import judges_page
from elo_exp.report.sentences import judges_sentences as words
from elo_exp.runs.lineage import collect_files
from elo_exp.trackers import RunInfo
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt, run
from tests.data import shipped, write_table
from tests.documented import read
from tests.experiments import built
from tests.judges_worlds import Panel as World
from tests.openai_server import OpenAiServer
from tests.simulation import BRADLEY_TERRY, Tournament

KEY = {"ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
NO_KEY = {"NO_PROXY": "127.0.0.1"}
SMALL = (
    "+mode.strata.medqa=2",
    "entrant=[probe_reference,probe_partial,probe_swapped]",
    "rubric=[factuality]",
    "tracker=local",
    "figures=false",
    "elo.n_perms=5",
)
TWO = "judge=[sonnet,haiku]"
WORDS = (  # three judges that compare words, each in a way of its own
    "judge=[near:lexical,wide:lexical,hedged:lexical]",
    "judges.wide.margin=0.2",
    "judges.wide.signals.clinical_utility=overlap",
    "judges.hedged.signals.clinical_utility=hedging",
    "rubric=[clinical_utility]",
    "tracker=local",
    "figures=false",
    "elo.n_perms=5",
)


def at(server: AnthropicServer) -> list[str]:
    """Both judges of TWO, at a server of ours."""
    return [
        f"judges.{name}.{setting}"
        for name in ("sonnet", "haiku")
        for setting in (
            f"base_url={server.url}",
            "poll_initial_seconds=0.02",
            "poll_max_seconds=0.05",
        )
    ]


def rows(text: str, first: str) -> list[list[str]]:
    """The rows of a plan's tables that begin with a word."""
    cells = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return [line for line in cells if line[0] == first]


# The plan, and the cap


@pytest.mark.system
def test_a_plan_of_two_judges_is_the_sum_of_two_plans_and_needs_no_key(tmp_path):
    settings = (*SMALL, "judging.budget_usd=5", "plan=true")
    both = attempt(TWO, *settings, folder=tmp_path, **NO_KEY)
    assert both.code == 0, both.err
    each = [
        attempt(f"judge={name}", *settings, folder=tmp_path, **NO_KEY)
        for name in ("sonnet", "haiku")
    ]
    of_one = [rows(one.out, "factuality")[0] for one in each]
    assert [row[:9] for row in rows(both.out, "factuality")] == [r[:9] for r in of_one]
    (total,) = rows(both.out, "total")
    counts = [[int(cell.replace(",", "")) for cell in row[1:7]] for row in of_one]
    assert [int(cell.replace(",", "")) for cell in total[1:7]] == np.sum(
        counts, axis=0
    ).tolist()
    dollars = sum(float(row[7]) for row in of_one)
    assert float(total[7]) == pytest.approx(dollars, abs=0.011)
    assert "2 judges, one after the other, one budget of $5.00 (judging.budget_usd)" in both.out  # fmt: skip
    assert list(tmp_path.rglob("manifest.json")) == []


@pytest.mark.system
def test_one_cap_holds_for_both_and_is_looked_at_before_either_is_paid(tmp_path):
    """A cap that would hold either judge alone, and not the two."""
    with AnthropicServer(verdicts=longer) as server:
        given = ("judge=[sonnet,again:sonnet]", "judges.again.effort=high", *SMALL)
        urls = [word.replace("haiku", "again") for word in at(server)]
        cap = "judging.budget_usd=0.08"
        ran = attempt(*given, *urls, cap, folder=tmp_path, **KEY)
        calls = {call.path for call in server.meter.calls}
    expected = re.search(r"are expected to cost \$([\d.]+)", ran.err)
    assert ran.code == 2 and expected, ran.err
    assert "claude-sonnet-5-5, claude-sonnet-5-5" in ran.err
    assert float(expected[1]) / 2 < 0.08 < float(expected[1])
    assert "/v1/messages/batches" not in calls
    assert server.meter.billed == {}


def test_several_judges_pay_from_one_budget():
    given = ("judge=[sonnet,haiku,lexical]", "judging.budget_usd=5")
    job = built(*expand_shorthand(given))
    sonnet, haiku, _ = job.experiment.judges.values()  # type: ignore[attr-defined]
    assert sonnet.budget is haiku.budget and sonnet.budget.cap == 5.0
    assert (sonnet.part, haiku.part) == ("judges.sonnet", "judges.haiku")


# Runs


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran, float]:
    """Two paid judges that agree; the same command again; and what the server has billed, in dollars."""
    folder = tmp_path_factory.mktemp("paid")
    with AnthropicServer(verdicts=longer) as server:
        given = (TWO, *SMALL, *at(server), "judging.budget_usd=5")
        ran = attempt(*given, folder=folder, **KEY)
        n = len(server.meter.billed_bodies)
        again = attempt(*given, folder=folder, **KEY)
        assert len(server.meter.billed_bodies) == n
        assert server.meter.paid_twice == set()
        dollars = 0.0
        for (model, tier), spent in server.meter.tokens_by_model.items():
            name = "sonnet" if "sonnet" in model else "haiku"
            prices = shipped("judge", name).prices_of(model)
            dollars += prices.dollars(spent, batched=tier == "batch")
    return ran, again, dollars


@pytest.mark.system
def test_two_judges_have_a_board_each_and_nothing_together_but_what_both_say(paid):
    ran, _, _ = paid
    assert ran.code == 0, ran.err
    found = ran.read("judges.json")["factuality"]
    assert found["board"] is None and found["differences"] == []
    assert "whichever" not in ran.out
    assert "No combined leaderboard" in ran.out and "kappa" in ran.out
    for name in ("sonnet", "haiku"):
        folder = ran.run_dir / "judges" / name
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["judge_model"] == f"claude-{name}-5-5"
        assert (folder / "verdicts" / "factuality.jsonl").is_file()
    assert ran.read("manifest.json")["judge_model"] == "sonnet, haiku"


@pytest.mark.system
def test_what_two_judges_cost_is_what_the_server_has_billed(paid):
    ran, again, dollars = paid
    usage = ran.read("manifest.json")["usage"]
    assert sum(usage["dollars_by_dimension"].values()) == pytest.approx(
        dollars, abs=1e-6
    )
    assert again.read("manifest.json")["usage"]["judge_calls"] == 0


def test_the_folder_of_each_judge_reads_as_a_run(paid):
    ran, _, _ = paid
    folders = ",".join(f"{ran.run_dir}/judges/{name}" for name in ("sonnet", "haiku"))
    found = run("experiment=compare", f"runs=[{folders}]", "tracker=local", folder=ran.folder)  # fmt: skip
    assert "claude-sonnet-5-5" in found.out and "claude-haiku-5-5" in found.out
    whole = attempt("experiment=compare", f"runs=[{ran.run_dir}]", folder=ran.folder)
    assert whole.code == 2
    each = ", ".join(f"{ran.run_dir}/judges/{name}" for name in ("sonnet", "haiku"))
    assert f"has one leaderboard for each of 2 judges. Choose one: {each}." in whole.err
    labelled = attempt("experiment=label", f"run={ran.run_dir}", folder=ran.folder)
    assert labelled.code == 2
    assert labelled.err.endswith(f"Choose one: {each}.\n")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(*WORDS, folder=tmp_path_factory.mktemp("three"))


@pytest.mark.system
def test_three_judges_have_a_joint_board_with_the_spread_between_them(three):
    found = three.read("judges.json")["clinical_utility"]
    assert len(found["board"]) == 4 and found["tau"] > 0.0
    assert len(found["differences"]) == 6
    assert {row["first"] for row in found["agreement"]} == {"near", "wide"}
    boards = [
        json.loads(
            (three.run_dir / "judges" / name / "ratings.json").read_text(
                encoding="utf-8"
            )
        )["dimensions"]["clinical_utility"]["bradley_terry"]["ratings"]
        for name in ("near", "wide", "hedged")
    ]
    for row in found["board"]:
        own = [
            r["rating"] for some in boards for r in some if r["model"] == row["model"]
        ]
        assert row["rating"] == pytest.approx(np.mean(own), abs=1e-6)
    widest = max(r["ci_high"] - r["ci_low"] for some in boards for r in some)
    assert max(r["ci_high"] - r["ci_low"] for r in found["board"]) > widest
    for said in ("3 judges, between-judge", "A 4th judge", "Labels from people can"):
        assert said in three.out
    assert "near" in three.page.text and "Labels from people can" in three.page.text


@pytest.mark.system
def test_of_what_a_tracker_keeps_of_all_the_leaderboards_of_each_are_named(three):
    """As it is fetched, the joint board has no folder of a judge beside it."""
    manifest = three.read("manifest.json")
    info = RunInfo(run_dir=three.run_dir, name="", group=None, job_type="", config={})
    written = [path for path in three.run_dir.rglob("*") if path.is_file()]
    kept = collect_files(info, manifest, written, inputs={}, recorded={})
    joint, *each = sorted(
        (files for files in kept if files.kind == "leaderboard"),
        key=lambda files: files.name,
    )
    fetched = three.folder / "fetched"
    for name, path in joint.paths.items():
        write_whole(fetched / name, path.read_bytes())
    write_json(fetched / "artifact.json", {"name": "me/p/leaderboard:v2"})
    ran = attempt("experiment=compare", "runs=[fetched]", folder=three.folder)
    names = [f"wandb:me/p/leaderboard-{name}:VERSION" for name in ("near", "wide", "hedged")]  # fmt: skip
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert {files.name for files in each} == {
        name.rpartition("/")[2].partition(":")[0] for name in names
    }
    assert ran.err == (
        "elo_exp: wandb:me/p/leaderboard:v2 is the combined leaderboard of 3 judges. Choose one: "
        f"{', '.join(names)}.\n"
    )


@pytest.mark.system
def test_the_same_verdicts_on_file_have_the_same_joint_board(three, tmp_path):
    """A tournament, a file that is rated and one that is replayed are three ways to the same numbers."""
    rows = [
        row
        for name in ("near", "wide", "hedged")
        for row in three.rows(f"judges/{name}/battles.jsonl")
    ]
    path = write_table(tmp_path / "battles.jsonl", rows)
    given = ("tracker=local", "figures=false", "elo.n_perms=2")
    rated = run(str(path), *given, folder=tmp_path)
    replay = ("judge=replay", f"judge.path={path}", "rubric=[clinical_utility]")
    replayed = run(*replay, *given, folder=tmp_path)
    (asked,) = three.read("judges.json").values()
    for ran in (rated, replayed):
        text = json.dumps(ran.read("judges.json"))
        (found,) = json.loads(re.sub(r"lexical \((\w+)\)", r"\1", text)).values()
        assert found["conclusion"]["state"] == asked["conclusion"]["state"]
        assert found["tau"] == pytest.approx(asked["tau"], abs=1e-9)
        for part in ("board", "differences", "agreement"):
            assert len(found[part]) == len(asked[part])
            for row, other in zip(found[part], asked[part], strict=True):
                assert row == pytest.approx(other, abs=1e-9)
    swept = attempt(*replay, *given, "-m", "elo.k=8", folder=tmp_path)
    named = "lexical (near), lexical (wide), lexical (hedged)"
    assert (
        f"Each job of a sweep has one judge, and the file has verdicts of {named}."
        in swept.err
    )


@pytest.mark.system
def test_files_tell_judges_with_one_model_apart_and_the_store_does_not_name_them(three):
    """Rated together, these files are of several judges; a judge asked alone finds the replies, and has its model's name."""
    for name in ("near", "wide", "hedged"):
        own = f"lexical ({name})"
        battles = three.rows(f"judges/{name}/battles.jsonl")
        assert {row["judge_model"] for row in battles} == {own}
        verdicts = three.rows(f"judges/{name}/verdicts/clinical_utility.jsonl")
        assert {raw["judge_model"] for row in verdicts for raw in row["raw"]} == {own}
    given = ("judge=lexical", "judging.stored_only=true", *WORDS[4:])
    alone = run(*given, folder=three.folder)
    assert {row["judge_model"] for row in alone.rows("battles.jsonl")} == {"lexical"}


def test_words_are_words_whatever_the_judge_is_called():
    assert guess_judge_kind(["lexical (near)", "lexical (wide)", "lexical"]) == "words"
    assert guess_judge_kind(["lexical (near)", "claude-sonnet-5-5 (low)"]) == "model"


def test_files_name_judges_with_a_model_each_by_this(paid):
    ran, _, _ = paid
    for name in ("sonnet", "haiku"):
        battles = ran.rows(f"judges/{name}/battles.jsonl")
        assert {row["judge_model"] for row in battles} == {f"claude-{name}-5-5"}


def test_another_server_and_words_judge_in_one_run(tmp_path):
    """Providers differ, and nothing else: one run, one ledger."""
    with OpenAiServer() as server:
        ran = attempt(
            "judge=[lexical,other:openai_compatible]",
            f"judges.other.base_url={server.url}",
            "judges.other.model=large",
            "judges.other.key_variable=null",
            *SMALL,
            "judging.budget_usd=5",
            folder=tmp_path,
            **NO_KEY,
        )
        assert ran.code == 0, ran.err
        assert len(server.asked) > 0
    assert set(ran.read("manifest.json")["judges"]) == {"lexical", "other"}


REFUSED = {
    "judge=[sonnet,haiku] experiment=gate": "experiment=gate has one judge; got judge=[sonnet,haiku]. "
    "To run one job with each, add -m:\n  -m judge=sonnet,haiku\n",
    "judge=[sonnet,haiku] experiment=arena": "experiment=arena has one judge; got judge=[sonnet,haiku]. ",
    "judge=[sonnet,haiku] experiment=oracle": "experiment=oracle has one judge; got judge=[sonnet,haiku]. "
    "To run one job with each, add -m:\n"
    "  -m judge=sonnet,haiku",
    "-m judge=[sonnet,haiku] elo.k=8,16": "Each job of a sweep has one judge; got judge=[sonnet,haiku]. Leave -m out, or "
    "sweep over the judges:\n  -m judge=sonnet,haiku",
    "judge=[sonnet,haiku] judge.effort=high": "judge.effort=high does not say for which judge it is. Write:\n"
    "  judges.sonnet.effort=high",
    "judge=[sonnet,sonnet]": "Two judges are called sonnet. Name them yourself:\n"
    "  'judge=[low=sonnet,high=sonnet]'",
    "judge=[a-b:sonnet,haiku]": "judge cannot be a-b:sonnet: the name 'a-b' must begin with a letter",
    "judge=[lexical,b:lexical] judging.looks=3": "judging.looks must be 1 with several judges; got 3.",
    "judge=[lexical,b:lexical] shard=0/2": "shard=0/2 cannot be combined with several judges.",
    "judge=[lexical,b:lexical] rating=[]": "Several judges need Bradley-Terry ratings without style and baseline_model",
    "judge=[sonnet,haiku] judges.haiku.budget_usd=1": "judges.haiku.budget_usd must be left out, as several judges share one "
    "budget, which judging.budget_usd "
    "sets (US dollars); got 1.",
    "judge=[lexical,replay] judges.replay.path=x.jsonl": "File not found: x.jsonl (in ",
    "judge=[lexical,none]": "Each of several judges must be chosen; one of them is not set.",
}  # fmt: skip


@pytest.mark.parametrize(("line", "said"), REFUSED.items(), ids=list(REFUSED))
def test_what_several_judges_cannot_do_is_one_line(line: str, said: str, tmp_path):
    ran = attempt(*line.split(), "tracker=local", folder=tmp_path, **NO_KEY)
    assert ran.code == 2 and ran.out == "", ran.err
    assert ran.err[ran.err.index("elo_exp: ") :].startswith(f"elo_exp: {said}"), ran.err
    assert list(tmp_path.rglob("report.html")) == []


def test_one_judge_under_two_names_is_refused(tmp_path):
    """Their replies are equal, so that they would look like judges of one taste: also where a setting differs that this
    rubric does not take."""
    given = ("judge=[sonnet,again:sonnet]", "judges.again.concurrency=2", *SMALL)
    ran = attempt(*given, "judging.budget_usd=5", "plan=true", folder=tmp_path, **NO_KEY)  # fmt: skip
    assert ran.code == 2 and ran.out == ""
    assert "elo_exp: sonnet and again are the same judge, " in ran.err


def test_a_notebook_reads_what_all_judges_say(three):
    found = elo_exp.open_run(three.run_dir)
    (row,) = found.conclusions
    assert row["dimension"] == "clinical_utility"
    assert row["sentence"] in " ".join(three.out.split())
    assert len(elo_exp.open_run(three.run_dir / "judges" / "near").ratings) > 4


# The model


def drawn(n_judges: int, n_entrants: int = 4, **changes: float) -> dict[str, Battles]:
    world = World(n_judges=n_judges, n_entrants=n_entrants, **changes)  # type: ignore[arg-type]
    battles, _ = world.draw(np.random.default_rng(7))
    return battles


def panel(battles: Mapping[str, Battles]) -> JudgePanelFit:
    found = JudgePanelFit.fit(battles, orders="both")
    assert isinstance(found, JudgePanelFit)
    return found


def pairs(n: int) -> Array:
    first, second = np.triu_indices(n, k=1)
    return np.eye(n)[first] - np.eye(n)[second]


def test_judges_that_say_the_same_have_the_errors_of_one():
    """No taste, and no noise of their own: what is left is the sandwich over prompts."""
    (one,) = drawn(1).values()
    found = panel(dict.fromkeys("abc", one))
    assert found.tau == pytest.approx(0.0, abs=1e-4)
    value, std_error, df = found.estimates(pairs(4))
    fit = Fit.from_games(make_games(one, orders="both"))
    variance = np.einsum("pi,ij,pj->p", pairs(4), fit.covariance, pairs(4))
    np.testing.assert_allclose(value, pairs(4) @ fit.theta)
    np.testing.assert_allclose(std_error, np.sqrt(variance))
    np.testing.assert_allclose(df, 99.0)


def test_all_pairs_have_the_estimates_of_their_contrasts():
    """Of a thousand entrants the matrix of contrasts would take 4 GB."""
    found = panel(drawn(3))
    for one, other in zip(found.estimates(), found.estimates(pairs(4)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_tau_is_the_spread_of_tastes_whatever_the_scales():
    """Judges on other scales with one order of merit have no taste of their own."""
    theta = np.array([-0.6, 0.1, 0.5])
    scales = np.array([0.7, 1.0, 1.3])
    by_scale = JudgePanelFit(
        judges=("a", "b", "c"),
        models=("x", "y", "z"),
        abilities=scales[:, None] * theta,
        prompt_covariance=np.zeros((3, 3)),
        judge_covariance=np.zeros((3, 3)),
        n_prompts=10,
    )
    assert by_scale.tau == pytest.approx(0.0, abs=1e-6)
    taste = np.array([[0.3, -0.3, 0.0], [-0.3, 0.3, 0.0], [0.0, 0.0, 0.0]])
    found = dataclasses.replace(by_scale, abilities=theta + taste)
    left = found.judge_preferences
    np.testing.assert_allclose(left @ found.board, 0.0, atol=1e-12)
    assert found.tau == pytest.approx(
        POINTS_PER_LOG_ODDS * math.sqrt((left**2).sum() / 2)
    )


def test_a_fourth_judge_narrows_what_judges_add_and_prompts_what_prompts_do():
    found = panel(drawn(3, taste=0.8))
    now, judge, prompts = (
        found.half_width(),
        found.half_width(more_judges=1),
        found.half_width(times_prompts=2.0),
    )
    assert judge < prompts < now
    quiet = panel(drawn(3, taste=0.0))
    assert quiet.half_width(times_prompts=2.0) < quiet.half_width(more_judges=1)


@pytest.mark.parametrize(("n_judges", "n_entrants"), [(2, 4), (2, 12), (3, 3), (4, 3)])
def test_too_few_judges_have_no_interval_together(n_judges: int, n_entrants: int):
    found = panel(drawn(n_judges, n_entrants))
    with pytest.raises(ValueError, match=f"needs [0-9]+ judges; got {n_judges}"):
        joint_leaderboard(found, initial_rating=1400.0)
    with pytest.raises(ValueError, match=f"needs [0-9]+ judges; got {n_judges}"):
        compute_joint_differences({"d": found})
    assert n_judges < (judges_needed(n_entrants) or 0)


def test_why_there_is_no_joint_board():
    battles = drawn(3)
    two = {name: some.select_between(["m00", "m01"]) for name, some in battles.items()}
    assert JudgePanelFit.fit(two, orders="both") == Reason(
        name="few_entrants", about={"n": 2}
    )
    none = battles | {"judge1": battles["judge1"].select(np.zeros(600, dtype=bool))}
    assert JudgePanelFit.fit(none, orders="both") == Reason(
        name="no_verdicts", about={"judge": "judge1"}
    )
    some = battles["judge2"]
    unbeaten = some.select((some.model_a != 0) | (some.winner == 0))
    always = dataclasses.replace(
        unbeaten,
        verdict_ab=np.where(unbeaten.model_a == 0, 0, unbeaten.verdict_ab).astype(
            np.int8
        ),
        verdict_ba=np.where(unbeaten.model_a == 0, 0, unbeaten.verdict_ba).astype(
            np.int8
        ),
    )
    found = JudgePanelFit.fit(battles | {"judge2": always}, orders="both")
    assert found == Reason(name="unrated", about={"judge": "judge2", "models": ["m00"]})
    assert "judge2 has no rating of m00" in words.explain_no_joint_board(found)
    one, other = battles["judge0"], battles["judge1"]
    nameless = dataclasses.replace(one, question=one.question + (one.question == 0) * 100)  # fmt: skip
    found = JudgePanelFit.fit(battles | {"judge0": nameless}, orders="both")
    assert found == Reason(name="no_prompts", about={"judge": "judge0"})
    own = tuple(f"of judge1, {name}" for name in other.questions)
    elsewhere = dataclasses.replace(other, questions=own)
    found = JudgePanelFit.fit(battles | {"judge1": elsewhere}, orders="both")
    assert found == Reason(name="apart", about={"judge": "judge0", "other": "judge1"})
    assert "judge0 and judge1 have no prompt in common" in words.explain_no_joint_board(
        found
    )


# What is said


def opinion(
    *of: tuple[float, ...],
    kind: str = "model",
    n_prompts: int = 200,
    n_failed: int = 0,
) -> JudgesResult:
    """Of judges by whom a, b, c and d have these ratings; a has failed on further prompts."""
    by_judge = {}
    lost = [
        MissingBattle(
            model_a="a",
            model_b=other,
            question_id=f"failed{q}",
            lacking=("a",),
            failed=("a",),
        )
        for q in range(n_failed)
        for other in "bcd"
    ]
    for i, ratings in enumerate(of):
        battles = Tournament(ratings=ratings).columns(
            n_prompts, np.random.default_rng(i)
        )
        rated = standings.rate(
            {"d": battles},
            elo=shipped("elo", "default", n_perms=2),
            ratings={"bradley_terry": BRADLEY_TERRY},
            models=battles.models,
        )
        rated = standings.add_missing(rated, {"d": lost}, BRADLEY_TERRY)
        scope = Scope(judge=f"judge{i}", kind=kind)
        by_judge[f"judge{i}"] = add_conclusions(rated, scope)
    (found,) = sum_up_judges(by_judge, orders="both", initial_rating=1400.0)
    return found


def said(found: JudgesResult) -> str:
    return words.sentence(found.conclusion, [*found.own])


CLEAR, REVERSED = (200.0, 0.0, -100.0, -200.0), (-200.0, -100.0, 0.0, 200.0)
LEVEL = (0.0, 0.0, 0.0, 0.0)


def test_two_judges_that_contradict_each_other_disagree():
    found = opinion(CLEAR, REVERSED)
    assert found.conclusion.state == "disagree" and found.board is None
    assert said(found).startswith("the judges disagree on a and b: judge0 has a ahead, and judge1 has b")  # fmt: skip


def test_two_judges_with_one_first_both_have_it_ahead():
    found = opinion(CLEAR, CLEAR)
    assert said(found).startswith(("both have a ahead of b", "both prefer a to b"))
    assert found.conclusion.effect is None
    assert "5 judges" not in words.suggest_next_step(found)
    assert words.suggest_next_step(found).startswith(
        "3 judges give a combined leaderboard"
    )


def of_two(first: Conclusion, second: Conclusion) -> str:
    own = {"opus": first, "gpt": second}
    found = conclude(own, None, [], n_prompts=100, has_joint=False)
    assert found.state == "undecided"
    return words.sentence(found, [*own])


def ahead(subject: str, rival: str, state: str, value: float = 40.0) -> Conclusion:
    scope = Scope(dimension="d")
    effect = Effect(value=value)
    return Conclusion(
        state=state, subject=subject, rival=rival, effect=effect, scope=scope
    )


def test_two_judges_that_decide_nothing_together_say_which_of_three_reasons_it_is():
    """The same leader without significance, different leaders, and a judge that has no leader."""
    leads, open_ = ahead("a", "b", "leads"), ahead("a", "b", "undecided")
    assert of_two(leads, open_) == (
        "no clear winner: both have a ahead of b, but not significantly for gpt"
    )
    assert of_two(open_, open_) == (
        "no clear winner: both have a ahead of b, but not significantly for opus and gpt"
    )
    for other in (ahead("b", "a", "undecided"), ahead("b", "a", "caution")):
        assert of_two(leads, other) == (
            "no clear winner: opus has a ahead, gpt has b ahead"
        )
    level = ahead("a", "b", "undecided", value=0.0)
    assert of_two(leads, level) == "no clear winner: gpt has no entrant ahead"
    assert of_two(open_, ahead("a", "c", "undecided")).endswith(
        "both have a ahead of all others, but not significantly for opus and gpt"
    )


def test_two_judges_of_whom_one_sees_no_significant_first_decide_nothing():
    found = opinion(CLEAR, LEVEL)
    assert found.conclusion.state == "undecided"
    assert "the same one" not in said(found)


@pytest.mark.system
def test_three_judges_lead_only_beyond_what_their_tastes_differ():
    """By each judge alone a or b is ahead for certain; together nobody is."""
    first, second = (150.0, 100.0, -50.0, -200.0), (0.0, 150.0, 50.0, -200.0)
    apart = opinion(first, second, (150.0, -100.0, 150.0, -200.0))
    assert apart.conclusion.state == "undecided"
    assert "no clear winner across judges of this kind" in said(apart)
    together = opinion(CLEAR, CLEAR, CLEAR)
    assert together.conclusion.state in ("leads", "caution")
    assert together.conclusion.subject == "a"
    assert together.board is not None and together.board.rank_low is not None
    assert together.board.rank_low[0] == 1 and together.board.rank_high is not None


@pytest.mark.system
def test_a_joint_lead_has_to_hold_if_failures_count_as_losses():
    holds = opinion(CLEAR, CLEAR, CLEAR, n_failed=5).conclusion
    assert holds.state in ("leads", "caution")
    assert holds.worst_case is not None and holds.worst_case.n_prompts == 205
    found = opinion(CLEAR, CLEAR, CLEAR, n_failed=150)
    assert found.conclusion.state == "undecided"
    assert [reason.name for reason in found.conclusion.reasons] == ["failures"]
    assert re.search(
        r"^no clear winner across judges of this kind: a is ahead of b by .*, on the 200 of 350 prompts that it "
        "answered. With its 150 failures counted as losses, b is ahead$",
        said(found),
    )
    row = judges_page.as_json(found)["conclusion"]
    assert row["worst_case"]["n_lacks_leader"] == 150


def test_two_judges_say_that_failures_may_explain_their_leads():
    found = opinion(CLEAR, CLEAR, n_failed=150)
    assert found.conclusion.state == "undecided"
    assert said(found).endswith(
        "have a ahead of b, but for judge0 and judge1 the lead is lost if missing answers and unknown verdicts count "
        "against it"
    )


def test_judges_that_compare_words_lead_nobody():
    found = opinion(CLEAR, CLEAR, CLEAR, kind="words")
    assert found.conclusion.state == "words"
    assert said(found).startswith("a is ahead of b by")
    assert said(found).endswith(". Word overlap only, not a quality judgement")


def test_few_prompts_rank_nobody():
    found = opinion(CLEAR, CLEAR, CLEAR, n_prompts=12)
    assert said(found) == "12 prompts are too few to rank the entrants"


@pytest.mark.parametrize(
    ("state", "reasons", "end"),
    [
        ("leads", [], "both have a ahead of b"),
        ("unchecked", [], "both prefer a to b, but second has not passed all judge checks"),
        ("caution", [Reason(name="flips", judges=True)],
         "both prefer a to b, but second has not passed all judge checks"),
        ("caution", [Reason(name="stratum")], "both have a ahead of b, but other evidence speaks against it for second"),
    ],
)  # fmt: skip
def test_what_stands_against_one_judge_stands_against_both(
    state: str, reasons: list[Reason], end: str
):
    first = Conclusion(
        state="leads", subject="a", rival="b", scope=Scope(dimension="d")
    )
    second = dataclasses.replace(first, state=state, reasons=tuple(reasons))
    own = {"first": first, "second": second}
    found = conclude(own, None, [], n_prompts=100, has_joint=False)
    assert words.sentence(found, [*own]) == end


def test_a_result_of_a_judge_that_was_shown_before_stands_against_a_joint_lead():
    """The judge may have nobody ahead: its verdicts are in the joint board all the same."""
    first = Leader(
        model="a", second="b", lead=None, level=(), below=("b",), rivals=(), not_met=()
    )
    own = {name: ahead("a", "b", "undecided") for name in ("first", "second", "third")}
    for reasons, state in (((), "leads"), ((Reason(name="looked", value=1.0),), "caution")):  # fmt: skip
        own["third"] = dataclasses.replace(own["third"], reasons=reasons)
        found = conclude(own, first, [], n_prompts=100, has_joint=True)
        assert found.state == state


def test_every_state_has_a_label_and_pages_name_states_and_numbers():
    assert words.STATE_ROWS.keys() == {*STATES}
    table = read("docs/states.md").partition("## Several judges")[2]
    named = re.findall(r"^\| [^|]+ \| `(\w+)` \|", table, re.MULTILINE)
    assert tuple(named[: len(STATES)]) == STATES
    (line,) = (x for x in read("docs/tracked_names.md").splitlines() if x.startswith("| `judges/"))  # fmt: skip
    assert {*re.findall(r"[a-z_]+(?=`)", line)} == {*judges_page.JUDGE_METRIC_NAMES}
    json.dumps(judges_page.as_json(opinion(CLEAR, REVERSED)))


# Coverage


def covered(repeats: int, seed: int, world: World) -> tuple[float, float]:
    """The share of true differences that joint intervals cover, and those of verdicts that are pooled, as if one judge
    had given them."""
    rng, c = np.random.default_rng(seed), pairs(world.n_entrants)
    hits, pooled = [], []
    for _ in range(repeats):
        battles, truth = world.draw(rng)
        value, std_error, df = panel(battles).estimates(c)
        error = POINTS_PER_LOG_ODDS * value - truth
        hits.append(np.abs(error) <= POINTS_PER_LOG_ODDS * t_quantile(df) * std_error)
        first, *others = battles.values()
        fit = Fit.from_games(
            make_games(concatenate_battles(first, *others), orders="both")
        )
        half = np.sqrt(np.einsum("pi,ij,pj->p", c, fit.covariance, c))
        half *= POINTS_PER_LOG_ODDS * t_quantile(world.n_prompts - 1.0)
        pooled.append(np.abs(POINTS_PER_LOG_ODDS * c @ fit.theta - truth) <= half)
    return float(np.mean(hits)), float(np.mean(pooled))


@pytest.mark.slow
@pytest.mark.parametrize("n_entrants", [4, 6, 12])
@pytest.mark.parametrize("n_judges", [3, 5, 8])
def test_joint_intervals_of_several_judges_cover_and_pooled_ones_do_not(
    n_judges: int, n_entrants: int
):
    world = World(n_judges=n_judges, n_entrants=n_entrants)
    joint, pooled = covered(500, 100 * n_judges + n_entrants, world)
    assert 0.93 <= joint <= 0.97
    assert pooled < 0.80


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        World(n_judges=3, n_entrants=4, spread=0.0),
        World(n_judges=3, n_entrants=4, taste=0.0),
        World(n_judges=3, n_entrants=4, taste=0.7),
        World(n_judges=3, n_entrants=4, skewed=True),
        World(n_judges=5, n_entrants=6, spread=0.3, skewed=True, n_prompts=40),
        World(n_judges=5, n_entrants=3),
    ],
    ids=["equals", "no_taste", "strong_taste", "skewed", "few_prompts", "three"],
)
def test_joint_intervals_of_several_judges_cover_in_other_worlds(world: World):
    joint, _ = covered(300, 1, world)
    assert 0.91 <= joint <= 0.98
