"""A missing answer is a value in [0, 1]: what it does to a lead, by hand, as laws, and where failures hide losses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from elo_exp.analysis import bounded_scores
from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import STATES, add_conclusions
from elo_exp.analysis.missing_answers import (
    count_by_entrant,
    count_missing,
    fill_orders,
    find_missing_orders,
    points_against,
    rate_worst_case,
)
from elo_exp.analysis.standings import Standings, add_missing, rate_scores
from elo_exp.data import battle_columns, battle_files
from elo_exp.data.battles import Battles
from elo_exp.data.scores import Score
from elo_exp.records import Battle, MissingBattle
from elo_exp.report.artifacts import ratings_json
from elo_exp.report.sentences import tournament_sentences as words
from tests.data import write_table
from tests.standings import BRADLEY_TERRY, standings

COLUMNS = {name: name for name in battle_columns.FIELDS} | {"score": None}
WINNERS = {1.0: "model_a", 0.5: "tie", 0.0: "model_b"}


def battle(share: float, q: int, a: str = "new", b: str = "old") -> Battle:
    """Both orders were judged alike; a share of one half is a tie."""
    winner = WINNERS[share]
    return Battle(
        model_a=a,
        model_b=b,
        winner=winner,
        verdict_ab=winner,
        verdict_ba=winner,
        question_id=f"q{q}",
        judge_model="m",
        source="llm-judge",
    )


def missing(
    q: int,
    lacking: Sequence[str] = (),
    failed: Sequence[str] = (),
    a: str = "new",
    b: str = "old",
    *,
    is_judged: bool = False,
) -> MissingBattle:
    return MissingBattle(
        model_a=a,
        model_b=b,
        question_id=f"q{q}",
        lacking=tuple(lacking),
        failed=tuple(failed),
        is_judged=is_judged,
    )


def rated(rows: Sequence[Battle], lacking: Sequence[MissingBattle]) -> Standings:
    """With its conclusion; both orders agree, so that no check of the judge fails."""
    found = add_missing(standings({"d": rows}), {"d": lacking}, BRADLEY_TERRY)
    return add_conclusions(found, Scope(judge="m"))


def concluded(rows: Sequence[Battle], lacking: Sequence[MissingBattle]) -> Conclusion:
    return rated(rows, lacking).conclusions["d"]


WON = [battle(1.0, q) for q in range(40)] + [battle(0.0, q) for q in range(40, 55)]


# By hand


def test_failures_of_the_leader_are_losses():
    """40 of 55 answered prompts are won; with 45 failures as losses it is 40 of 100."""
    lost = [missing(q, ["new"], ["new"]) for q in range(55, 100)]
    found = rated(WON, lost)
    conclusion = found.conclusions["d"]
    assert (conclusion.state, conclusion.reasons[0].name) == ("undecided", "failures")
    said = words.sentence(conclusion)
    assert said.startswith("new is ahead of old by 170 points [")
    assert said.endswith(
        "on the 55 of 100 prompts that it answered. With its 45 failures counted as losses, old is ahead"
    )
    case = conclusion.worst_case
    assert case is not None and (case.n_answered, case.n_lacks_leader) == (55, 45)
    assert case.difference == pytest.approx(400 * math.log10(0.4 / 0.6))
    row = ratings_json(found)
    assert row["conclusions"]["d"]["worst_case"]["n_lacks_leader"] == 45
    assert row["conclusions"]["d"]["reasons"][0]["name"] == "failures"
    assert row["missing"]["d"][0]["n_prompts"] == 45


def test_a_lead_that_survives_says_so():
    lost = [missing(q, ["new"]) for q in range(55, 58)]
    conclusion = concluded(WON, lost)
    assert conclusion.state == "leads"
    assert ". With its 3 failures counted as losses, it leads by 139 points [" in (
        words.sentence(conclusion)
    )
    assert concluded(WON, []).worst_case is None


@pytest.mark.parametrize(
    ("lacking", "failed", "state", "said"),
    [
        (["old"], ["old"], "leads", "With 20 failures of old counted as losses, it leads"),
        (["old"], [], "undecided", "With the 20 answers that old lacks counted against it, the lead is not"),
        ([], [], "undecided", "With the 20 unknown verdicts counted against it, the lead is not"),
        (["new", "old"], [], "undecided", "With its 20 failures counted as losses, the lead is not"),
    ],
)  # fmt: skip
def test_a_recorded_failure_of_the_rival_is_its_loss_and_nobody_knows_of_a_blank_cell(
    lacking, failed, state, said
):
    conclusion = concluded(WON, [missing(q, lacking, failed) for q in range(55, 75)])
    assert conclusion.state == state
    assert said in words.sentence(conclusion)


def test_an_empty_answer_that_was_judged_is_a_loss_of_the_leader_alone():
    """The judge calls 30 empty answers ties. Those of the leader are losses; those of the rival stay so if on record."""
    rows = [*WON, *(battle(0.5, q) for q in range(55, 85))]
    empty = [missing(q, ["new"], is_judged=True) for q in range(55, 85)]
    conclusion = concluded(rows, empty)
    assert conclusion.state == "undecided"
    assert "on 85 prompts. With its 30 failures counted as losses, old is ahead" in (
        words.sentence(conclusion)
    )
    of_rival = {"lacking": ["old"], "is_judged": True}
    on_record = [missing(q, failed=["old"], **of_rival) for q in range(55, 85)]
    assert concluded(rows, on_record).state == "leads"
    blank = [missing(q, **of_rival) for q in range(55, 85)]
    assert concluded(rows, blank).state == "undecided"


def test_a_blank_order_has_the_worst_verdict_that_the_winner_leaves_possible():
    """The winner of two orders is the verdict of both; a tie may hide a loss beside a tie, or beside a win."""
    blank = {
        "lost": (replace(battle(0.0, 1), verdict_ba=None), ("model_b", "model_b")),
        "won": (replace(battle(1.0, 2), verdict_ab=None), ("model_a", "model_a")),
        "tied": (replace(battle(0.5, 3), verdict_ba=None), ("tie", "model_b")),
        "flips": (
            replace(battle(0.5, 4), verdict_ab="model_b", verdict_ba=None),
            ("model_b", "tie"),
        ),
        "won one": (
            replace(battle(0.5, 5), verdict_ab=None, verdict_ba="model_a"),
            ("model_b", "model_a"),
        ),
        "no verdict": (
            replace(battle(0.5, 6), verdict_ab=None, verdict_ba=None),
            ("tie", "model_b"),
        ),
    }
    rows = [battle(1.0, 0), *(row for row, _ in blank.values())]
    filled = fill_orders(Battles.from_rows(rows), {"new": 1.0, "old": -1.0}).rows()
    assert [(row.verdict_ab, row.verdict_ba) for row in filled[1:]] == [
        verdicts for _, verdicts in blank.values()
    ]


@pytest.mark.parametrize(
    ("judges", "lacking"),
    [
        (["m", "m", "m"], [False, True, True]),
        (["m", "n", "m"], [False, False, True]),
        (["m", None, "n"], [False, True, False]),
        ([None, "m", "n"], [False, True, True]),
    ],
)
def test_a_judge_with_both_orders_was_asked_in_both(judges, lacking):
    """The first row has both. A row without a name may be of any judge; votes are of other people."""
    rows = [replace(battle(1.0, q), judge_model=name) for q, name in enumerate(judges)]
    rows[1:] = [replace(row, verdict_ba=None) for row in rows[1:]]
    vote = replace(rows[1], source="human", question_id="q9")
    shares = replace(rows[1], score=0.7), replace(rows[1], equal_answers=True)
    found = find_missing_orders(Battles.from_rows([*rows, vote, *shares]))
    assert found.tolist() == [*lacking, False, False, False]


def test_losses_whose_second_order_is_blank_count_as_in_both():
    """Of 60 prompts new wins 33. If each of its losses is one game and each win is two, it is ahead of an equal."""
    rows = [battle(1.0 if q < 33 else 0.0, q) for q in range(60)]
    less = [
        replace(row, verdict_ba=None) if n >= 33 else row for n, row in enumerate(rows)
    ]
    full, conclusion = concluded(rows, []), concluded(less, [])
    assert full.reasons[0].name == "rivals" and full.worst_case is None
    assert (conclusion.state, conclusion.reasons[0].name) == ("undecided", "failures")
    said = words.sentence(conclusion)
    assert said.startswith("new is ahead of old by 155 points [") and said.endswith(
        "on 60 prompts. With the blank orders of 27 prompts counted against it, the lead is not significant"
    )
    case = conclusion.worst_case
    assert case is not None and (case.n_answered, case.n_one_order) == (33, 27)
    assert full.effect is not None
    assert case.difference == pytest.approx(full.effect.value)
    by_design = replace(BRADLEY_TERRY, orders="one")
    found = standings({"d": less}, ratings={"bradley_terry": by_design})
    found = add_conclusions(add_missing(found, {}, by_design), Scope(judge="m"))
    assert found.conclusions["d"].worst_case is None


def test_what_others_lack_takes_nothing_from_a_lead_of_two():
    """A third entrant has few answers: the lead of the first over the second is tested on all prompts."""
    rows = [*WON, *(battle(0.0, q, "third", "old") for q in range(40))]
    rows += [battle(0.0, q, "third", "new") for q in range(30)]
    rows += [battle(1.0, q, "third", "new") for q in range(30, 40)]
    rows += [battle(1.0, q, "third", "old") for q in range(40, 45)]
    lost = [
        missing(q, ["third"], ["third"], "third", name)
        for q in range(45, 55)
        for name in ("old", "new")
    ]
    found = rated(rows, lost)
    (case, *_) = [c for c in found.worst_cases["d"] if c.rival == "old"]
    assert (case.n_prompts, case.n_missing) == (55, 0)
    assert [row["model"] for row in count_by_entrant(lost)] == ["third"]


def test_points_of_two_failures_are_halved():
    assert points_against("new", ["new", "old"], ("old", "new")) == 0.5
    assert points_against("new", ["new"], ("old", "new")) == 0.0


# Laws

CELLS = st.lists(st.integers(0, 2), min_size=60, max_size=60)


@pytest.mark.system
@given(CELLS, st.integers(0, 59), st.data())
@settings(max_examples=10, deadline=None)
def test_blanking_an_answer_never_raises_the_state(seed, n_blank, data):
    """Three entrants; the answers of one of them are blanked on any prompts, each alone or with others."""
    names = ("new", "old", "third")
    rng = np.random.default_rng(sum(seed))
    strength = rng.standard_normal((60, 3)) + np.array([0.9, 0.0, 0.3])
    pairs = [(0, 1), (0, 2), (1, 2)]
    table = {
        (q, i, j): float(np.clip(round(2 * expit(2 * (s[i] - s[j]))) / 2, 0, 1))
        for q, s in enumerate(strength)
        for i, j in pairs
    }
    rows = [battle(x, q, names[i], names[j]) for (q, i, j), x in table.items()]
    who = data.draw(st.integers(0, 2))
    # the prompts on which it does worst, or best, or any
    order = data.draw(st.sampled_from([1, -1, 0]))
    worth = order * strength[:, who] if order else rng.random(60)
    blank = set(np.argsort(worth)[:n_blank].tolist())
    kept = [
        one
        for one, (q, i, j) in zip(rows, table, strict=True)
        if not (q in blank and who in (i, j))
    ]
    lost = [
        missing(q, [names[who]], (), names[i], names[j])
        for (q, i, j) in table
        if q in blank and who in (i, j)
    ]
    before, after = concluded(rows, []), concluded(kept, lost)
    assert STATES.index(after.state) <= max(
        STATES.index(before.state), STATES.index("undecided")
    )


# Scores


def scores(**of: Mapping[int, float | None]) -> list[Score]:
    return [
        Score(dimension="acc", entrant=name, item=str(i), value=value)
        for name, values in of.items()
        for i, value in values.items()
    ]


def of_items(rows: Sequence[Score], scale: Sequence[float] | None = None) -> Conclusion:
    found = rate_scores(rows, allow_missing=True, scale=scale)
    return add_conclusions(found, Scope(kind="scores")).conclusions["acc"]


def test_a_missing_score_counts_against_the_leader():
    """On 60 of 100 items new is right on 50 and old on 30; on the others old is right on 20."""
    old = {i: float(i < 30 or 60 <= i < 80) for i in range(100)}
    new: dict[int, float | None] = {i: float(i < 50) for i in range(60)}
    conclusion = of_items(scores(new=new, old=old))
    assert (conclusion.state, conclusion.reasons[0].name) == ("undecided", "failures")
    case = conclusion.worst_case
    assert case is not None and case.difference == pytest.approx(0.0)
    assert "on the 60 of 100 items that it answered. With its 40 failures" in (
        words.sentence(conclusion)
    )
    # of a blank cell nobody knows either, whichever side it is on
    blank = {i: None if 30 <= i < 90 else value for i, value in old.items()}
    assert of_items(scores(new={**old, 40: 1.0}, old=blank)).state != "leads"


def test_scores_beyond_zero_and_one_need_a_scale():
    new = {i: 7.0 + i % 3 for i in range(40)}
    old = {i: 3.0 + i % 2 for i in range(40)}
    rows = scores(new=new, old=old)
    assert bounded_scores.find_scale(rows) is None
    unknown, known = of_items(rows), of_items(rows, [0.0, 10.0])
    assert unknown.state == "caution"
    assert "no bound of these scores is known" in words.sentence(unknown)
    assert known.state == "leads"


def test_slightly_better_on_each_item_is_no_lead():
    rng = np.random.default_rng(4)
    base = {i: float(x) for i, x in enumerate(rng.uniform(0.5, 0.9, 24))}
    new = {i: x + 0.02 + 0.0002 * (i % 3) for i, x in base.items()}
    conclusion = of_items(scores(new=new, old=base))
    assert conclusion.state == "undecided"
    assert conclusion.effect is not None
    assert (conclusion.effect.low or 0.0) < 0.0 < (conclusion.effect.high or 0.0)


# Worlds


def wrong_leads(
    n: int, share: float, n_studies: int, *, whose: str = "leader", seed: int = 21
) -> tuple[float, float]:
    """How often new is said to lead an equal, on the answered prompts and by the rule.

    whose  leader    new fails on the prompts with its worst answers
           rival     old's best answers are blank
           verdicts  verdicts are unknown on the prompts that new would have lost
           orders    on these prompts the second verdict is blank, and the winner is known
    """
    rng, answered, by_rule = np.random.default_rng(seed), 0, 0
    in_one_order = replace(BRADLEY_TERRY, orders="one")
    for _ in range(n_studies):
        new, old = rng.standard_normal((2, n))
        points = rng.binomial(2, expit(2 * (new - old))) / 2.0
        worth = {"leader": new, "rival": -old}.get(whose, points + rng.random(n) / 10)
        lost = np.argsort(worth)[: round(share * n)].tolist()
        lacking = {"leader": ["new"], "rival": ["old"]}.get(whose, [])
        rows = [battle(x, q) for q, x in enumerate(points.tolist())]
        if whose == "orders":
            rows = [
                replace(row, verdict_ba=None) if q in lost else row
                for q, row in enumerate(rows)
            ]
            lost = []
        some = Battles.from_rows([row for q, row in enumerate(rows) if q not in lost])
        plain = rate_worst_case(some, [], "new", "old", in_one_order)
        if plain is None or plain.higher != "new" or (plain.p_value or 1.0) > 0.05:
            continue
        answered += 1
        gone = [missing(q, lacking) for q in lost]
        case = rate_worst_case(some, gone, "new", "old", BRADLEY_TERRY)
        by_rule += (
            case is not None and case.higher == "new" and (case.p_value or 1) <= 0.05
        )
    return answered / n_studies, by_rule / n_studies


@pytest.mark.system
def test_failures_hide_losses_and_the_rule_sees_them():
    answered, by_rule = wrong_leads(60, 0.45, 60)
    assert answered > 0.4 and by_rule == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["leader", "rival", "verdicts", "orders"])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.45])
@pytest.mark.parametrize("n", [60, 100, 300])
def test_wrong_leads_are_at_most_nominal_wherever_results_are_missing(n, share, whose):
    """The table of docs/evidence.md; two Monte Carlo errors are allowed."""
    _, by_rule = wrong_leads(n, share, 400, whose=whose)
    assert by_rule <= 0.025 + 2 * math.sqrt(0.025 * 0.975 / 400)


# Level


def level(rows: Sequence[Battle], lacking: Sequence[MissingBattle]) -> bool:
    (reason,) = [one for one in concluded(rows, lacking).reasons if one.name == "level"]
    return bool(reason.about["is_equivalent"])


def test_missing_results_count_against_a_level_result():
    """600 answered prompts are half won and half lost. Ten more are nothing, and 60 may be all one side's."""
    rows = [battle(float(q % 2), q) for q in range(600)]
    assert level(rows, [])
    assert level(rows, [missing(q) for q in range(600, 610)])
    for lacking in ([], ["new"], ["old"]):
        assert not level(rows, [missing(q, lacking) for q in range(600, 760)])


def test_two_that_always_tie_are_level_if_a_judge_tells_others_apart():
    """The interval of 120 ties is the bounded-mean one, 0 [-15, 15]. A judge that always ties compares nothing."""
    ties = [battle(0.5, q) for q in range(120)]
    decided = [
        battle(float(q % 4 > 0), q, name, "third")
        for q in range(120)
        for name in ("new", "old")
    ]
    assert level([*ties, *decided], [])
    assert not level([*ties, *decided], [missing(q) for q in range(120, 240)])
    assert not level(ties, [])


# Files of battles


FILE = [
    ("new", "old", "model_a", "q0", "5"),
    ("new", "old", "", "q1", "1"),
    ("new", "old", "unclear", "q2", "1"),
    ("old", "new", "no verdict", "q3", "2"),
    ("old", "old", "", "q4", "1"),
    ("new", "", "", "q5", "1"),
    ("new", "old", "no verdict", "", "3"),
    ("old", "new", "tie", "q6", "1"),
    ("new", "old", "tie", "q7", "1"),
]


@pytest.mark.parametrize("large", [0, 10**9])
def test_rows_whose_result_is_unknown_are_read_as_missing(tmp_path, monkeypatch, large):
    """Blank winners, unknown words and words that mean no verdict, by rows and by DuckDB; a filter leaves rows out."""
    monkeypatch.setattr(battle_files, "MIN_DUCKDB_BYTES", large)
    file = tmp_path / "battles.csv"
    lines = ["model_a,model_b,winner,question_id,count", *map(",".join, FILE)]
    file.write_text("\n".join(lines) + "\n")
    names = ("model_a", "model_b", "winner", "question_id", "count")

    def read(**filters: str) -> list[tuple[str | None, int | None]]:
        _, _, found = battle_files.read_with_missing(
            file,
            columns={name: name for name in names},
            filters=filters,
            values={"no verdict": None},
            on_error="drop",
        )
        return [(one.question_id, one.count) for one in found]

    every = [("q1", 1), ("q2", 1), ("q3", 2), (None, 3)]
    assert read() == every
    assert read(model_a="new") == [every[0], every[1], every[3]]
    assert read(winner="tie") == []


def test_a_row_that_stands_for_several_comparisons_is_as_many_that_are_missing():
    rows = Battles.from_rows([replace(one, question_id=None, count=1) for one in WON])
    lost = [
        MissingBattle(model_a="new", model_b="old", count=30),
        MissingBattle(model_a="old", model_b="new", count=15),
    ]
    case = count_missing(rows, lost, "new", "old")
    assert (case.n_prompts, case.n_answered, case.n_unjudged) == (100, 55, 45)
    pair = rate_worst_case(rows, lost, "new", "old", BRADLEY_TERRY)
    assert pair is not None and pair.higher == "old"
    assert pair.difference == pytest.approx(400 * math.log10(0.6 / 0.4))


def test_a_missing_vote_is_one_of_people():
    """Errors of votes are clustered by person, too, also with what is missing."""
    rows = [
        replace(row, source="human", judge_model=f"p{n % 5}")
        for n, row in enumerate(WON)
    ]
    lost = [replace(missing(q), judge_model=f"p{q % 5}") for q in range(11)]
    found = rate_worst_case(Battles.from_rows(rows), lost, "new", "old", BRADLEY_TERRY)
    known = [
        replace(battle(0.0, q), source="human", judge_model=f"p{q % 5}")
        for q in range(11)
    ]
    (same,) = differences(
        rate_with_unbeaten(BRADLEY_TERRY, {"": Battles.from_rows([*rows, *known])})
    )
    assert found is not None and found.p_value == pytest.approx(same.p_value)


def test_a_missing_result_belongs_to_the_cluster_of_its_prompt():
    """All 55 prompts are in eleven clusters: one more comparison on each adds no observation."""
    rows = [replace(one, cluster=f"c{n % 11}") for n, one in enumerate(WON)]
    battles = Battles.from_rows(rows)
    lost = [missing(q) for q in range(11)]
    found = rate_worst_case(battles, lost, "new", "old", BRADLEY_TERRY)
    known = [replace(battle(0.0, q), cluster=f"c{q}") for q in range(11)]
    (same,) = differences(
        rate_with_unbeaten(BRADLEY_TERRY, {"": Battles.from_rows([*rows, *known])})
    )
    assert found is not None and found.p_value == pytest.approx(same.p_value)


def annotation(
    q: int, preference: float | None, **outputs: str | None
) -> dict[str, Any]:
    """A row of AlpacaEval: `old` is the baseline, and a preference of 2 is a win of `new`."""
    texts = {"output_1": f"a long answer {q}", "output_2": f"another answer {q}"}
    return {
        "generator_1": "old",
        "generator_2": "new",
        "preference": preference,
        "instruction": f"question {q}",
        "annotator": "m",
        **texts,
        **outputs,
    }


def of_annotations(
    folder: Path, rows: Sequence[Mapping[str, Any]]
) -> list[MissingBattle]:
    path = write_table(folder / "annotations.json", rows)
    return battle_files.read_with_missing(path, columns=COLUMNS, filters={})[2]


def test_a_blank_answer_of_a_rated_file_is_missing_with_and_without_a_verdict(tmp_path):
    """One blank answer with a verdict is on record as empty. A file without any text keeps no answers."""
    rows = [annotation(q, 2.0) for q in range(3)]
    rows += [annotation(3, 2.0, output_2=" "), annotation(4, None, output_1=None)]
    rows += [annotation(5, 1.0, output_1="", output_2=None)]
    found = of_annotations(tmp_path, rows)
    assert [(one.lacking, one.failed, one.is_judged) for one in found] == [
        (("new",), ("new",), True),
        (("old",), (), False),
        (("old", "new"), (), True),
    ]
    blank = [{**row, "output_1": None, "output_2": None} for row in rows[:3]]
    assert of_annotations(tmp_path, blank) == []


@pytest.mark.parametrize(
    ("blank", "holds", "said"),
    [
        ("output_2", False, "its 20 failures counted as losses"),
        ("output_1", True, "20 failures of old counted as losses"),
    ],
)
def test_a_verdict_on_an_empty_answer_stands_unless_the_leader_gave_it(
    tmp_path, blank, holds, said
):
    """`new` wins 35 of 60, and all of 20 on which one answer is empty."""
    rows = [annotation(q, 1.0 + (q < 35)) for q in range(60)]
    rows += [annotation(q, 2.0, **{blank: ""}) for q in range(60, 80)]
    path = write_table(tmp_path / "annotations.json", rows)
    battles, _, lost = battle_files.read_with_missing(path, columns=COLUMNS, filters={})
    conclusion = concluded(battles.rows(), lost)
    case = conclusion.worst_case
    assert case is not None and (case.n_prompts, case.n_empty) == (80, 20)
    assert case.holds == holds
    is_lost = "failures" in {reason.name for reason in conclusion.reasons}
    assert (conclusion.state, is_lost) == (
        "unchecked" if holds else "undecided",
        not holds,
    )
    assert words.describe_missing(case) == said


@pytest.mark.parametrize("large", [0, 10**9])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_blank_answers_of_a_table_are_read_by_rows_and_by_columns(
    tmp_path, monkeypatch, large, ending
):
    monkeypatch.setattr(battle_files, "MIN_DUCKDB_BYTES", large)
    rows = [
        {"model_a": "new", "model_b": "old", "winner": "model_a", "question_id": f"q{n}",
         "response_a": first, "response_b": second}
        for n, (first, second) in enumerate([("x", "y"), ("\n", "y"), ("x", None)])
    ]  # fmt: skip
    path = write_table(tmp_path / f"battles.{ending}", rows)
    _, _, found = battle_files.read_with_missing(path, columns=COLUMNS, filters={})
    assert [(one.question_id, one.lacking) for one in found] == [
        ("q1", ("new",)),
        ("q2", ("old",)),
    ]
