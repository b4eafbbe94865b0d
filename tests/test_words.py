"""Sentences on judges, strata, entrants without a rating and the order experiment; the axis and the lists of a page."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.checks import Check, check_judge
from elo_exp.analysis.conclusions import audit_conclusion, labels_conclusion
from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.analysis.goodness_of_fit import VariedGap
from elo_exp.analysis.judge_bias import LengthControl, LengthEffect, SignTest
from elo_exp.analysis.odd_answers import describe_odd_answers
from elo_exp.analysis.stratum_reversals import RivalAhead
from elo_exp.formatting import expected_win_rate
from elo_exp.ratings.convergence import Convergence, Progress
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Plot
from elo_exp.report import provenance
from elo_exp.report.document import Cell, Facts, Paragraph, Styled, Table
from elo_exp.report.leaderboard_section import fit_scale
from elo_exp.report.page import Contents, Figures
from elo_exp.report.sentences import (
    audit_sentences,
    check_sentences,
    label_sentences,
    order_sentences,
    standings_sentences,
    strata_sentences,
)
from elo_exp.store.usage import Usage
from tests.data import by_dimension


def plain(text: str) -> str:
    return text


# The judge


@pytest.mark.parametrize(
    ("check", "value", "detail", "reason"),
    [
        (
            Check(name="flips", state="failed", value=0.21, n=21, of=100),
            "21%",
            "21 of 100 comparisons in both orders",
            "The judge names another winner in 21% of comparisons when the answers swap places.",
        ),
        (
            Check(name="flips", state="not done", n=0, of=0, about={"n_one_order": 9}),
            "not measured: one order",
            "0 of 0 comparisons in both orders",
            "Each comparison was judged in one order, so nobody knows how often the order changes the verdict.",
        ),
        (
            Check(name="first_shown", state="failed", value=0.6, low=0.56, high=0.64, n=900),
            "60.0%",
            "95% CI 56.0 to 64.0%, 900 decisive verdicts",
            "The first of two equally good answers wins 60% of decisive verdicts (95% CI 56 to 64%).",
        ),
        (
            Check(
                name="length", state="failed", value=0.3, low=0.2, high=0.4,
                about={"scale": 120.4, "gap": 100.0, "gap_at_equal_length": 20.0},
            ),
            "30.0%",
            "95% CI 20.0 to 40.0%, 120 characters apart; lead 100, at equal length 20",
            "At equal length the lead would be 20 points instead of 100. The shorter of two equally rated "
            "answers wins 70% of comparisons.",
        ),
        (
            Check(
                name="invalid", state="failed", value=0.05, n=5, of=100,
                about={"refused": 3, "cut off": 0},
            ),
            "5%",
            "5 of 100, 3 refused",
            "5% of comparisons have no valid verdict.",
        ),
    ],
)  # fmt: skip
def test_a_check_is_said_with_its_counts(
    check: Check, value: str, detail: str, reason: str
):
    definition = check.definition
    words = (
        definition.format_value(check),
        definition.describe_counts(check),
        definition.explain_failure(check),
    )
    assert tuple(map(plain, words)) == (value, detail, reason)


@pytest.mark.parametrize(
    ("effect", "points"), [(0.2, "147"), (-0.2, "−147"), (0.0, "0"), (None, "–"), (0.6, "1200")]
)  # fmt: skip
def test_the_points_of_a_bias_are_the_gap_at_which_a_half_becomes_so_much_more(
    effect: float | None, points: str
):
    """400 log10(.7 / .3) = 147; a share beyond .999 is taken as that."""
    assert check_sentences.effect_to_points(effect) == points


def test_a_verdict_names_each_failed_check_and_what_was_not_measured():
    flips = Check(name="flips", state="failed", value=0.3, n=3, of=10)
    fit = Check(name="fit", state="passed", value=0.01, about={})
    said = "The judge did not pass: verdict changes when the answers swap places"
    assert check_sentences.verdict({"d": [flips], "e": [fit]}) == [f"{said} (d)."]
    assert check_sentences.verdict({"d": [flips]}) == [f"{said}."]
    (sentence,) = check_sentences.verdict({"d": [fit]})
    assert sentence.startswith("Position bias is not known")
    unknown = dataclasses.replace(flips, state="cannot tell")
    open_check = "The data cannot decide: verdict changes when the answers swap places."
    assert check_sentences.verdict({"d": [unknown]}) == ["No check failed.", open_check]
    passed = dataclasses.replace(flips, state="passed")
    assert check_sentences.verdict({"d": [passed]}) == ["No check failed."]
    refused = check_sentences.verdict({"d": [passed]}, "too few battles")
    assert refused == ["The judge is refused. Too few battles."]


def _find_length_check(sign_test: SignTest | None, leaders: tuple[str, ...]) -> Check:
    """Check length without a fit at equal length, as of an entrant that won every comparison."""
    effect = LengthEffect(
        dimension="d", n_prompts=40, n_games=80, n_without_length=0, scale=60.0, effect=None, std_error=None, ci_low=None,
        ci_high=None,
    )  # fmt: skip
    tests = [sign_test] if sign_test else []
    control = LengthControl(effect=effect, sign_tests=tests)
    checks = check_judge(
        by_dimension({"d": []})["d"], {"length": control}, leaders=leaders
    )
    (check,) = (check for check in checks if check.name == "length")
    return check


@pytest.mark.parametrize(
    ("p", "state", "end"),
    [
        (0.01, "passed", "where it is not the shorter one (sign tests, p = .010)."),
        (0.3, "cannot tell", "or not the shorter one (sign tests, p = .300)."),
    ],
)
def test_a_lead_that_no_fit_bounds_names_the_test_that_decides(
    p: float, state: str, end: str
):
    test = SignTest(first="a", second="b", p_not_longer=p, p_not_shorter=0.001)
    check = _find_length_check(test, ("a", "b"))
    assert check.state == state
    assert check.definition.format_value(check).startswith("sign test, p = ")
    (note,) = check_sentences.describe_findings(check.definition, {"d": check})
    assert note.startswith("No lead at equal length can be computed")
    assert note.endswith(end)


def test_without_a_lead_and_a_fit_nothing_is_said_of_length():
    check = _find_length_check(None, ())
    assert (check.state, check.definition.format_value(check)) == (
        "not done",
        "not checked",
    )
    (sentence,) = check_sentences.describe_findings(check.definition, {"d": check})
    assert sentence == "Not checked: no effect of length could be estimated."


def test_a_finding_has_one_value_a_value_by_rubric_or_a_range():
    check = Check(name="ties", state="passed", value=0.1, n=0)
    more = dataclasses.replace(check, value=0.2)

    def found(*checks: Check) -> str:
        rubrics = dict(zip("abcdef", checks, strict=False))
        (sentence,) = check_sentences.describe_findings(check.definition, rubrics)
        return sentence

    assert found(check, check) == "10% of comparisons are ties."
    assert found(check, more) == "10% (a) and 20% (b) of comparisons are ties."
    assert found(check, *[more] * 5) == "10% to 20% of comparisons are ties."


def test_odd_answers_are_said_by_kind():
    odd = {"a": {"phrases": 0.3}, "b": {"phrases": 0.05, "refused": 0.26}}
    assert (
        plain(describe_odd_answers(odd)) == "boilerplate: a 30%, b 5%; refusals: b 26%"
    )


# Standings


def board(*rows: tuple[str, float, str | None], **columns: Any) -> Leaderboard:
    return Leaderboard(
        label="L",
        interval=None,
        models=tuple(model for model, *_ in rows),
        rating=np.array([rating for _, rating, _ in rows]),
        flags={i: flag for i, (*_, flag) in enumerate(rows) if flag},
        **columns,
    )


def test_each_entrant_without_a_rating_is_named_once_with_its_reason():
    nan = float("nan")
    found = board(
        ("a", 1500.0, None), ("b", 1300.0, None), ("u", nan, "unbeaten"), ("w", nan, "winless"),
        ("x", nan, "disconnected"), ("y", nan, "disconnected"),
        n_prompts=np.array([9.0, 1.0, 9.0, 9.0, 9.0, 9.0]), n_clusters=9,
    )  # fmt: skip
    apart = [Rating(model="x", rating=1400.0), Rating(model="y", rating=1400.0)]
    lines = standings_sentences.list_unrated(found, [apart])
    assert [line.split(" (")[0] for line in lines] == [
        "A separate group: x and y",
        "Not rated: u",
        "Not rated: w",
        "No interval, because there is only one prompt: b.",
    ]
    assert standings_sentences.list_unrated(None, []) == []


GAPS = [{"stratum": "one", "gap": 80.0}, {"stratum": "other", "gap": -30.0}]
STRATA = StrataDiagnosis(
    dimension="d", strata=["one", "other"], n_prompts=[60, 40], p_value=0.01, chi_square=12.3, df=2,
    ratings=[], most_varied_gap=VariedGap(model_a="a", model_b="b", gaps=GAPS), leader="a", ahead=[],
)  # fmt: skip
AHEAD = RivalAhead(
    stratum="other", rival="b", n_prompts=40, n_effective=40.0, df=39.0, lead=90.2, ci_low=20.0,
    ci_high=160.0, p_value=0.012, p_holm=0.012, reverses=True,
)  # fmt: skip


def test_strata_on_which_a_rival_leads_are_to_be_reported_separately():
    begin = (
        "Ratings differ between sources (p = .010, χ² = 12, 2 df). The lead of a over b varies most, in points: "
        "+80 on one and −30 on other."
    )
    assert strata_sentences.sentence(STRATA) == begin
    found = dataclasses.replace(STRATA, ahead=[AHEAD])
    assert strata_sentences.sentence(found) == (
        f"{begin} On other b is ahead of a by 90 points [20, 160], p = .012. The ranking reverses, so "
        "report the sources separately."
    )
    wide = dataclasses.replace(AHEAD, ci_low=-20.0, p_holm=0.3, reverses=False)
    assert strata_sentences.sentence(dataclasses.replace(found, ahead=[wide])) == (
        f"{begin} On other b is ahead of a by 90 points [−20, 160], p = .300. That is no evidence of a reversal."
    )
    few = dataclasses.replace(wide, p_holm=None)
    assert strata_sentences.sentence(dataclasses.replace(found, ahead=[few])).endswith(
        "b is ahead of a by 90 points [−20, 160]. The prompts are too few for a test."
    )
    alike = strata_sentences.sentence(
        dataclasses.replace(STRATA, p_value=0.2), "arenas"
    )
    assert (
        alike
        == "There is no evidence that ratings differ between arenas (p = .200, χ² = 12, 2 df)."
    )
    assert not dataclasses.replace(STRATA, p_value=None).is_significant


@pytest.mark.parametrize(
    ("limit", "at", "sufficient_k", "end"),
    [
        ({}, None, None, "no limit, because an entrant won or lost every comparison."),
        ({"a": 1.0}, None, None, "too small for a share of it."),
        ({"a": 1.0}, 0.999, 10.0, ", which is enough to read its gaps."),
        ({"a": 1.0}, 0.8, None, "No K up to 64 covers 95% for every entrant, because there are too few matches for Elo."),
        ({"a": 1.0}, 0.8, 30.2, "for every entrant from K = 31 on, so use K = 32 of the sweep."),
        ({"a": 1.0}, 0.8, 33.2, "95% for every entrant from K = 34 on."),
    ],
)  # fmt: skip
def test_how_far_elo_has_come(
    limit: Any, at: float | None, sufficient_k: float | None, end: str
):
    by_k = {}
    if at is not None:
        by_k[16.0] = Progress(convergence=at, slowest="a", slowest_share=at)
    way = Convergence(limit=limit, by_k=by_k, sufficient_k=sufficient_k)
    said = plain(order_sentences.convergence(way, 16.0, [4.0, 16.0, 32.0]))
    assert said.endswith(end)
    assert ("at K = 16 Elo covers" in said) == bool(by_k)


# What templates loop over


def test_an_axis_holds_every_interval_and_marks_stand_where_their_values_are():
    rows = [
        Rating(model="a", rating=1500.0, ci_low=1400.0, ci_high=1600.0),
        Rating(model="b", rating=1300.0),
        Rating(model="c", rating=None),
    ]
    axis = fit_scale(rows, digits=0)
    assert (axis.low, axis.high) == (1288.0, 1612.0)  # 4% of 300 on both sides
    a, b, c = (axis.bar(row, {"a": 3}) for row in rows)
    assert a
    assert (a.color, a.left, a.mark, a.right) == (3, "34.57", "65.43", "3.70")
    assert a.label == "1500, 95% interval 1400 to 1600"
    assert b
    assert (b.left, b.right) == (None, None)
    assert c is None
    assert [value for _, value in axis.ticks] == [
        "1300", "1350", "1400", "1450", "1500", "1550", "1600",
    ]  # fmt: skip
    assert fit_scale([], digits=0).ticks


def test_a_table_tells_text_from_numbers():
    table = Table(
        label="T", columns=["Name", "Where", "n"], words=["Where"], rows=["xyz"]
    )
    name, *words = (Cell([Styled(text, "name")]) for text in "xy")
    assert table.lines == [(name, [*words, Cell("z", "num")])]


def test_a_lead_of_400_points_is_worth_ten_points_of_eleven():
    assert plain(expected_win_rate(400.0)) == "91%"
    assert plain(expected_win_rate(-400.0)) == "9%"


def test_a_figure_is_shown_once_and_a_section_listed_when_it_is_filled():
    plots = [Plot(name=n, png=b"", svg="", rows=[], caption="") for n in "abc"]
    figures, contents = Figures(plots, without=["b"]), Contents()
    assert figures.take("a") is plots[0]
    assert [figures.take(name) for name in "ab"] == [None, None]
    assert figures.rest() == ["c"]
    assert contents.listed("result", "Result") == "Result"
    assert contents.sections == [("result", "Result")]


def test_a_bill_has_what_was_paid_before_in_its_total():
    usage = dataclasses.asdict(Usage(verdicts_wanted=9, judge_calls=4, dollars=1.5))
    total, facts = provenance.list_bill_blocks(usage, {"dollars": 1.0})
    assert total == Paragraph("$2.50", "lede")
    assert facts == Facts(
        [
            ("Before", "$1.00 of it in earlier attempts in the same folder"),
            ("Verdicts", "4 new, 0 from cache"),
        ]
    )
    assert provenance.list_bill_blocks(dataclasses.asdict(Usage()), None) == []
    assert provenance.list_bill_blocks(None, None) == []


def test_every_state_of_audits_and_of_labels_has_a_row():
    assert [*audit_sentences.STATE_ROWS] == [*audit_conclusion.STATES]
    assert {*label_sentences.STATE_ROWS} == {*labels_conclusion.STATES}
