"""Files with verdicts of several judges: a board each, from three on a joint one, as of a tournament; people are beside
them; votes of many are one population."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elo_exp
from elo_exp.analysis.agreement import pairwise_kappa
from elo_exp.analysis.judge_panel import JudgePanelFit, joint_leaderboard
from elo_exp.analysis.verdict_sources import (
    RepeatedComparisons,
    find_repeats,
    must_rate_separately,
    split_by_source,
)
from elo_exp.data import battle_columns, battle_files
from elo_exp.data.battles import Battles
from elo_exp.records import Battle
from tests.commands import Ran, attempt, run, table
from tests.data import shared_data, write_table
from tests.judges_worlds import Panel as World

RATE = ("experiment=rate", "tracker=local", "figures=false", "elo.n_perms=2")
JUDGES = ("sonnet", "gpt", "local", "haiku", "opus", "mini", "flash", "pro")


def drawn(n_judges: int = 3, n_entrants: int = 4, **changes: Any) -> dict[str, Battles]:
    world = World(n_judges=n_judges, n_entrants=n_entrants, **changes)
    battles, _ = world.draw(np.random.default_rng(7))
    return dict(zip(JUDGES, battles.values(), strict=False))


def rows(battles: Mapping[str, Battles], **more: Any) -> list[dict[str, Any]]:
    """Rows of a file, with the name of each judge."""
    return [
        {
            name: value
            for name, value in row.to_dict().items()
            if value is not None and name != "source"
        }
        | {"judge_model": judge, **more}
        for judge, some in battles.items()
        for row in some.rows()
    ]


def rate(path: Path, *more: str) -> Ran:
    return run(*RATE, f"battles={path}", *more, folder=path.parent)


def refused(path: Path, *more: str) -> str:
    ran = attempt(*RATE, f"battles={path}", *more, folder=path.parent)
    assert ran.code == 2 and ran.out == ""
    assert list(path.parent.rglob("manifest.json")) == []
    return ran.err.rpartition("elo_exp: ")[2].rstrip("\n")


# The boards


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("three")
    return rate(write_table(folder / "battles.jsonl", rows(drawn())))


@pytest.mark.parametrize(
    "n_judges",
    [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 8))],
)
def test_a_file_has_the_joint_board_of_its_verdicts(n_judges, tmp_path):
    """Whose intervals cover: tests/test_several_judges.py."""
    battles = drawn(n_judges)
    ran = rate(write_table(tmp_path / "battles.jsonl", rows(battles)))
    panel = JudgePanelFit.fit(battles, orders="both")
    assert isinstance(panel, JudgePanelFit)
    board = joint_leaderboard(panel, initial_rating=1400.0)
    found = ran.read("judges.json")["overall"]
    assert found["tau"] == pytest.approx(panel.tau, abs=1e-9)
    for row, expected in zip(found["board"], board.ratings, strict=True):
        assert row["model"] == expected.model
        for name in ("rating", "ci_low", "ci_high", "std_error"):
            assert row[name] == pytest.approx(getattr(expected, name), abs=1e-9)


@pytest.mark.system
def test_the_first_line_says_whose_boards_there_are(three):
    assert "rate: 1,800 battles on 1 rubric; a leaderboard for each of sonnet, gpt and local\n" in three.err  # fmt: skip
    for said in (
        "3 judges, between-judge variation (tau)",
        "sonnet and gpt 0.",
        "A 4th judge would make it ±",
    ):
        assert said in three.out
    assert "Judges: sonnet, gpt, local" in three.page.said
    assert three.read("manifest.json")["judge_model"] == "sonnet, gpt, local"


@pytest.mark.system
def test_a_judges_board_is_that_of_its_verdicts_alone(three):
    path = three.folder / "battles.jsonl"
    alone = rate(path, "battles_filter.judge_model=gpt")
    own = three.run_dir / "judges" / "gpt"
    found = json.loads((own / "ratings.json").read_text(encoding="utf-8"))
    expected = alone.read("ratings.json")
    for part in ("dimensions", "conclusions", "differences"):
        assert found[part] == expected[part]
    manifest = json.loads((own / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"] == alone.read("manifest.json")["config"]
    assert manifest["n_battles"] == 600 and manifest["judge_model"] == "gpt"


def test_the_folders_of_judges_are_compared(three):
    folder = three.run_dir / "judges"
    two = f"runs=[{folder}/gpt,{folder}/local]"
    ran = run("experiment=compare", two, "tracker=local", folder=three.folder)
    found = ran.read("compare.json")
    (row,) = found["overlaps"]
    assert row["n_shared_prompts"] == 100 and row["no_interval"] is None
    assert found["differences"] == {
        "battles_filter.judge_model": {"gpt": "gpt", "local": "local"}
    }


@pytest.mark.system
def test_a_table_in_memory_has_the_same_boards(three, tmp_path):
    found = elo_exp.rate(rows(drawn()), out=tmp_path / "run", elo__n_perms=2)
    (row,) = found.conclusions
    (expected,) = elo_exp.open_run(three.run_dir).conclusions
    assert row["sentence"] == expected["sentence"]
    with pytest.raises(elo_exp.UserError, match="has the ratings of 3 judges. Open"):
        _ = found.ratings
    assert len(elo_exp.open_run(found.folder / "judges" / "gpt").ratings) > 3


@pytest.mark.system
def test_files_of_a_judge_each_are_several_judges(tmp_path):
    paths = [
        write_table(tmp_path / f"{name}.csv", rows({name: some}))
        for name, some in drawn(2).items()
    ]
    ran = run(*RATE, f"battles=[{paths[0]},{paths[1]}]", folder=tmp_path)
    found = ran.read("judges.json")["overall"]
    assert set(found["judges"]) == {"sonnet", "gpt"} and found["board"] is None
    assert "3 judges give a combined leaderboard\n" in ran.out  # which no command asks


# Without a joint board


def test_two_judges_have_a_board_each_and_no_interval_together(tmp_path):
    ran = rate(write_table(tmp_path / "battles.jsonl", rows(drawn(2))))
    found = ran.read("judges.json")["overall"]
    assert found["board"] is None and found["differences"] == []
    assert found["tau"] is not None
    assert "across judges of this kind" not in ran.out


@pytest.mark.system
def test_battles_that_name_no_prompt_give_a_board_each_and_none_jointly(tmp_path):
    some = [{k: v for k, v in row.items() if k != "question_id"} for row in rows(drawn())]  # fmt: skip
    ran = rate(write_table(tmp_path / "battles.jsonl", some))
    found = ran.read("judges.json")["overall"]
    assert (
        found["no_joint_board"]
        == "no combined leaderboard: battles of sonnet name no prompt, so the judges cannot be compared"
    )
    assert found["n_prompts"] is None and "prompts:" not in ran.out
    assert len(list((ran.run_dir / "judges").iterdir())) == 3


@pytest.mark.system
def test_a_dimension_that_one_judge_has_not_judged_is_rated_by_the_others(tmp_path):
    some = rows(drawn(), dimension="style")
    some += rows({"gpt": drawn()["gpt"]}, dimension="facts")
    ran = rate(write_table(tmp_path / "battles.jsonl", some))
    found = ran.read("judges.json")
    assert found["style"]["board"] is not None
    assert (
        found["facts"]["no_joint_board"]
        == "no combined leaderboard: sonnet has no verdict"
    )


@pytest.mark.system
def test_a_joint_board_is_by_plain_bradley_terry(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn()))
    ran = rate(path, "rating=[davidson]")
    found = ran.read("judges.json")["overall"]
    assert found["board"] is None
    assert found["no_joint_board"].startswith(
        "no combined leaderboard: it needs Bradley-Terry"
    )


# Pooled


@pytest.mark.system
def test_verdicts_are_pooled_where_that_is_asked_for(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn()))
    ran = rate(path, "judges=pooled")
    assert not (ran.run_dir / "judges").exists()
    assert (
        f"{path}: the verdicts of 3 judges are pooled ('gpt', 'local', 'sonnet'), as if one judge had given them. "
        "Intervals cover other prompts, but not other judges.\n"
    ) in ran.err
    board = ran.read("ratings.json")["dimensions"]["overall"]["bradley_terry"]
    assert sum(row["n_battles"] for row in board["ratings"]) == 2 * 1800


@pytest.mark.system
def test_of_one_judge_pooling_says_nothing(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn(1)))
    alone, pooled = rate(path), rate(path, "judges=pooled")
    assert alone.err == pooled.err.replace(" judges=pooled", "")
    first, second = (one.read("ratings.json") for one in (alone, pooled))
    assert first == second


@pytest.mark.system
def test_judges_that_are_dimensions_each_are_rated_as_these(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn()))
    ran = rate(path, "battles_columns.dimension=judge_model")
    assert set(ran.read("ratings.json")["dimensions"]) == {"sonnet", "gpt", "local"}
    assert "pooled" not in ran.err


# Judges and voters


def votes(n_each: int, n_voters: int, n_prompts: int = 60) -> Iterator[Battle]:
    """Each voter has judged so many comparisons of a and b, on prompts one after the other."""
    for n in range(n_each * n_voters):
        yield Battle(
            model_a="a",
            model_b="b",
            winner="model_a",
            source="llm-judge",
            question_id=f"q{n % n_prompts}",
            judge_model=f"voter {n // n_each}",
        )


def split(
    some: list[Battle], *, says_votes: bool = True
) -> dict[str, tuple[int, bool]]:
    """By party: how many battles it has, and whether it is a population."""
    found = split_by_source(Battles.from_rows(some), says_votes=says_votes)
    return {n: (len(one.battles), one.is_population) for n, one in found.items()}


def of_judge(judge: str, n: int, source: str = "llm-judge") -> list[Battle]:
    return [
        Battle(
            model_a="a",
            model_b="b",
            winner="model_a",
            source=source,
            question_id=f"q{q}",
            judge_model=judge or None,
        )
        for q in range(n)
    ]


@pytest.mark.parametrize(
    ("some", "found"),
    [
        (of_judge("x", 60) + of_judge("y", 60), {"x": (60, False), "y": (60, False)}),
        # a dear judge, of a sample
        (of_judge("x", 60) + of_judge("y", 20), {"x": (60, False), "y": (20, False)}),
        # a judge's few are its own
        (of_judge("x", 60) + of_judge("y", 3), {"x": (60, False), "y": (3, False)}),
        ([*votes(6, 10)], {"voters": (60, True)}),
        ([*votes(30, 13)], {f"voter {n}": (30, False) for n in range(13)}),
        ([*votes(25, 13)], {"voters": (325, True)}),
        (
            [*of_judge("x", 60), *votes(6, 20)],
            {"x": (60, False), "voters": (120, True)},
        ),
        (
            of_judge("x", 60) + of_judge("crowd", 60, "human"),
            {"x": (60, False), "crowd": (60, True)},
        ),
        (
            of_judge("x", 9)
            + of_judge("ann", 9, "human")
            + of_judge("ben", 9, "human"),
            {"x": (9, False), "people": (18, True)},
        ),
        (
            of_judge("x", 9) + of_judge("", 9, "human") + of_judge("", 9),
            {"x": (9, False), "people": (9, True), "unnamed": (9, True)},
        ),
    ],
    ids=[
        "judges", "sample", "few", "voters", "many_judges", "many_voters", "judge_and_voters", "crowd", "people",
        "unnamed",
    ],
)  # fmt: skip
def test_who_judged_much_is_a_judge_and_many_who_judged_little_are_one_population(
    some: list[Battle], found: dict[str, tuple[int, bool]]
):
    assert split(some) == found


def test_only_a_judge_and_somebody_else_on_one_dimension_are_apart():
    def is_apart(*some: Battle, says_votes: bool = True) -> bool:
        found = split_by_source(Battles.from_rows(some), says_votes=says_votes)
        return must_rate_separately(found)

    x, people = of_judge("x", 30), of_judge("", 30, "human")
    assert is_apart(*x, *of_judge("y", 30)) and is_apart(*x, *people)
    assert not is_apart(*x) and not is_apart(*votes(6, 10))
    # Whoever is unnamed may be x
    assert not is_apart(*x, *people, says_votes=False)
    assert not is_apart(*x, *of_judge("", 30))


# Repeated verdicts


ROW = Battle(
    **{"model_a": "a", "model_b": "b", "winner": "tie", "source": "llm-judge"},
    question_id="1",
    judge_model="gpt-4",
    dimension="taste",
)
TURNED = replace(ROW, model_a="b", model_b="a")
BOTH = {"verdict_ab": "tie", "verdict_ba": "tie"}


@pytest.mark.parametrize(
    ("again", "n"),
    [
        (ROW, 1),
        (replace(ROW, winner="model_a", score=0.9), 1),
        (TURNED, 0),  # a row for each order
        (replace(TURNED, verdict_ba="tie"), 1),  # the order of the first row
        (replace(ROW, dimension="style"), 0),
        (replace(ROW, judge_model="haiku"), 0),
        (replace(ROW, draw_b=1), 0),
        (replace(ROW, question_id="2"), 0),
    ],
)
def test_a_verdict_is_repeated_on_the_same_answers_in_the_same_order(again, n):
    found = find_repeats(Battles.from_rows([ROW, again]))
    assert found == (RepeatedComparisons(judges=("gpt-4",), n=1, of=1) if n else None)


def test_both_orders_are_the_same_whichever_model_is_named_first():
    twice = [replace(row, **BOTH) for row in (ROW, TURNED)]
    assert find_repeats(Battles.from_rows(twice))
    draws = [replace(ROW, draw_a=1, **BOTH), replace(TURNED, draw_b=1, **BOTH)]
    assert find_repeats(Battles.from_rows(draws))


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, source="human"),
        replace(ROW, judge_model=None),
        replace(ROW, question_id=None),
    ],
)
def test_votes_and_verdicts_without_a_prompt_or_a_judge_repeat_nothing(row):
    assert find_repeats(Battles.from_rows([row, row])) is None


@pytest.mark.system
def test_repeated_verdicts_are_rated_and_one_line_counts_them(tmp_path):
    """Two judges with one name are as one that was asked twice, and only their user knows."""
    one, other, *_ = drawn().values()
    few = rows({"gpt-4": other})[:12]
    for name, some in (("first", rows({"gpt-4": one})), ("second", few)):
        write_table(tmp_path / f"{name}.jsonl", some)
    ran = run(*RATE, "battles=[first.jsonl,second.jsonl]", folder=tmp_path)
    said = "first.jsonl and second.jsonl: gpt-4 judged 12 of 600 comparisons more than once."
    assert ran.err.count("more than once") == 1 and said in ran.err
    assert "give each its own name in judge_model" in ran.err
    assert ran.read("manifest.json")["n_battles"] == 612


@pytest.mark.system
def test_votes_of_many_are_pooled_and_a_line_says_so(tmp_path):
    """As on an arena: who judges is a draw, too, of which each has few votes."""
    some = rows(drawn(1, n_prompts=80))
    for n, row in enumerate(some):
        row["judge_model"] = f"voter {n % 100:02d}"
    path = write_table(tmp_path / "battles.jsonl", some)
    ran = rate(path)
    assert (
        f"{path}: the verdicts of 100 voters are pooled ('voter 00', 'voter 01', 'voter 02', 'voter 03', 'voter 04', "
        "...), as one population. Intervals cover other prompts, but not other voters. "
        "To rate each voter separately, set battles_columns.rubric=judge_model. To rate one, set "
        "battles_filter.judge_model=NAME.\n"
    ) in ran.err
    assert (ran.run_dir / "ratings.json").is_file()


def with_people() -> list[dict[str, Any]]:
    """Three judges that have one entrant far ahead, and people who have another."""
    battles = drawn(3, spread=1.5, taste=0.1)
    some = rows(battles, source="llm-judge")
    turned = {"model_a": "model_b", "model_b": "model_a"}
    for row in rows({"crowd": battles["gpt"]}, source="human"):
        for name in ("winner", "verdict_ab", "verdict_ba"):
            row[name] = turned.get(row[name], row[name])
        some.append(row)
    return some


@pytest.mark.system
def test_people_are_beside_the_judges_and_no_draw_of_their_taste(tmp_path):
    some = with_people()
    ran = rate(write_table(tmp_path / "battles.jsonl", some), "figures=true")
    without = rate(
        tmp_path / "battles.jsonl",
        "battles_filter.source=llm-judge",
        "hydra.run.dir=without",
    )
    found, alone = (one.read("judges.json")["overall"] for one in (ran, without))
    for part in ("board", "differences", "tau"):
        assert found[part] == alone[part]
    drawn_rows = [
        (row["judge"], row["model"])
        for row in table(ran.run_dir / "figures/judges.csv")
    ]
    assert len(drawn_rows) == 5 * 4 and ("all, jointly", "m00") in drawn_rows
    assert "Ratings by each judge" in ran.page.text
    assert {*found["judges"]} == {*alone["judges"], "crowd"}
    assert len(found["agreement"]) == 6
    assert alone["conclusion"]["state"] in ("leads", "caution")
    first = alone["conclusion"]["first"]
    assert found["conclusion"]["state"] == "caution"
    said = found["conclusion"]["sentence"]
    assert said.startswith(f"the judges prefer {first} to ")
    assert ", but crowd has m0" in said and said.endswith(" ahead")
    assert "3 judges and the votes of crowd, between-judge variation" in ran.out
    assert "The votes of crowd can" in ran.out


def test_real_verdicts_of_two_judges_and_a_crowd():
    """llmfao: 70 models by GPT-4 and GPT-3.5 on 19 prompts, 59 of them by people on 13; kappa as docs/evidence.md has it."""
    path = shared_data("llmfao/battles.jsonl.gz")
    columns = {name: name for name in battle_columns.FIELDS if name != "dimension"}
    battles, _ = battle_files.read(path, columns=columns, filters={})
    found = split_by_source(battles, says_votes=True)
    assert [(n, len(one.battles), one.is_population) for n, one in found.items()] == [
        ("gpt-3.5-turbo-instruct", 3236, False),
        ("gpt-4", 3236, False),
        ("crowd", 8931, True),
    ]
    rows_of = pairwise_kappa({name: one.battles for name, one in found.items()})
    assert [round(row["kappa"], 3) for row in rows_of] == [0.183, 0.090, 0.153]
    workers, _ = battle_files.read(
        path,
        columns=columns | {"judge_model": "worker"},
        filters={"source": "human"},
    )
    (name, crowd), *others = split_by_source(workers, says_votes=True).items()
    assert not others and (name, len(crowd.names)) == ("people", 124)


# What cannot be


@pytest.mark.system
def test_names_of_judges_that_look_alike_are_one_judge_perhaps(tmp_path):
    names = {"sonnet": "gpt-5", "gpt": "GPT-5 ", "local": "x"}
    some = [row | {"judge_model": names[row["judge_model"]]} for row in rows(drawn())]
    path = write_table(tmp_path / "battles.jsonl", some)
    assert refused(path) == (
        'The judges "gpt-5" and "GPT-5 " look like one judge, which would count twice. Choose one:\n'
        "  Give the judge one name in the file.\n"
        "  judges=pooled rates all verdicts together."
    )
    assert "3 judges are pooled" in rate(path, "judges=pooled").err


@pytest.mark.system
def test_a_judge_whose_name_is_a_path_has_a_folder_inside(tmp_path):
    names = {"sonnet": "org/a:low", "gpt": "../b", "local": "50% {c}"}
    some = [row | {"judge_model": names[row["judge_model"]]} for row in rows(drawn())]
    ran = rate(write_table(tmp_path / "battles.jsonl", some))
    folders = sorted(path.name for path in (ran.run_dir / "judges").iterdir())
    assert folders == ["..%2Fb", "50%25 {c}", "org%2Fa%3Alow"]
    assert "judges/org%252Fa%253Alow/report.html" in ran.page.text
    assert "org/a:low</a>" in ran.page.text


@pytest.mark.parametrize("name", ["..", "日" * 100])
def test_a_judge_whose_name_no_folder_can_have_is_one_line(name: str, tmp_path):
    some = [row | {"judge_model": name} for row in rows(drawn(1))]
    path = write_table(tmp_path / "battles.jsonl", some + rows(drawn(2)))
    said = refused(path)
    assert said.startswith(f'The judge "{name[:60]}')
    assert "cannot name a folder: a name must have fewer than" in said


@pytest.mark.system
def test_a_sweep_rates_the_verdicts_of_one_judge_in_each_job(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn()))
    ran = attempt(*RATE, "-m", f"battles={path}", "elo.k=8", folder=tmp_path)
    assert ran.code != 0
    assert (
        "A sweep rates one judge, and the file has verdicts of sonnet, gpt and local. Choose one:\n"
        "  battles_filter.judge_model=NAME\n"
        "  judges=pooled   rates all verdicts together"
    ) in ran.err


def test_what_judges_may_be_is_said(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", rows(drawn(1)))
    assert refused(path, "judges=voted").startswith(
        'judges must be pooled or null; got "voted".'
    )
