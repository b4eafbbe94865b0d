"""The page of a tournament: self-contained, harmless whatever the names are, and no claim that the numbers do not support."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.checks import check_judge
from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_bias import (
    LengthControl,
    LengthEffect,
    PositionEffect,
    WeakestLead,
)
from elo_exp.analysis.judge_quality import InvalidShare, JudgeQuality
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.standings import Standings, add_diagnoses, rate
from elo_exp.figures import ratings
from elo_exp.formatting import format_percent_floor
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, Plot, Response
from elo_exp.report import artifacts, tournament_console, tournament_page
from elo_exp.report.page import render_document
from elo_exp.report.sentences.tournament_sentences import sentence as said_of
from elo_exp.report.standings_view import build_view
from elo_exp.store.usage import Usage
from tests.data import DIMENSIONS, PROBES, by_dimension, shipped
from tests.pages import Reader
from tests.simulation import Tournament

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</table></script><script>alert(1)</script>",
    "{{ 7 * 7 }} $x %s",
    "'\"&amp;",
)
METHODS = {
    "bradley_terry": BradleyTerry(
        initial_rating=1400, orders="both", interval="sandwich", n_bootstraps=2, seed=0
    ),
    "davidson": Davidson(initial_rating=1400, orders="both"),
}
QUALITY = {
    "dimension": "factuality", "n_judgments": 105, "n_invalid": 5, "n_refused": 3, "n_cut_off": 1,
    "n_two_order": 100, "n_one_order": 0, "n_flips": 21, "n_equal_answers": 0,
    "flip_rate": 0.21, "first_shown_rate": 0.6, "tie_rate": 0.1, "invalid_rate": 5 / 105,
}  # fmt: skip
USAGE = Usage(
    verdicts_wanted=1300,
    judge_calls=1200,
    output_tokens=3456,
    dollars=12.345,
    dollars_by_dimension={"factuality": 12.345},
)
MANIFEST: dict[str, Any] = {
    "experiment": "tournament",
    "mode": "demo",
    "n_perms": 20,
    "shuffle_seed": 11,
    "pilot_seed": 12,
    "started_at": "2026-11-21T14:51:22Z",
    "overrides": ["judge.position_effect=0.2", "rubric=[<i>]"],
    "git_commit": "0123abcd+changes",
    "versions": {"elo_exp": "0.1.0"},
    "judge_model": "opus",
    "bank_size": 143,
    "selected_prompt_count": 50,
    "config": {"elo": {"k": 16, "k_sweep": [1, 16]}, "judging": {"orders": "both"}},
    "usage": dataclasses.asdict(USAGE),
}


def simulated(
    models: Sequence[str],
    dimensions: Sequence[str] = ("d",),
    *,
    gap: float = 1.0,
    n_prompts: int = 60,
) -> dict[str, list[Battle]]:
    """Every pair on every prompt: each model beats the next by odds of 1 + gap to 1, one battle in five is a tie."""
    draw = random.Random(5)

    def winner(apart: int) -> str:
        wins = draw.random() < 1 / (1 + (1 + gap) ** -apart)
        return "tie" if draw.random() < 0.2 else "model_a" if wins else "model_b"

    return {
        dimension: [
            Battle(
                model_a=a,
                model_b=b,
                winner=winner(models.index(b) - models.index(a)),
                question_id=f"q{q}",
                dimension=dimension,
            )
            for q in range(n_prompts)
            for a, b in itertools.combinations(models, 2)
        ]
        for dimension in dimensions
    }


def rated(
    battles: Mapping[str, Sequence[Battle]], models: Sequence[str], *methods: str
) -> Standings:
    chosen = {name: METHODS[name] for name in methods}
    elo = shipped("elo", "default", n_perms=20)
    return rate(by_dimension(battles), elo=elo, ratings=chosen, models=models)


def page(
    standings: Standings,
    plots: Sequence[Plot] = (),
    quality: Sequence[Any] = (),
    *texts: Any,
    title: str = "run",
    manifest: Mapping[str, Any] = MANIFEST,
    **changes: Any,
) -> Reader:
    view = build_view(concluded(standings, quality), *texts)
    document = tournament_page.build_document(view, {**manifest, **changes})
    return Reader(render_document(title, document, plots))


def concluded(standings: Standings, quality: Sequence[Any] = ()) -> Standings:
    """With what a run adds: checks, and conclusions of a judge called opus."""
    rows = [JudgeQuality.from_dict(row) for row in quality]
    return add_conclusions(standings, Scope(judge="opus"), quality=rows)


def fair(standings: Standings) -> Standings:
    """With the diagnosis of a judge that was measured, and does not prefer what is shown first."""
    position = PositionEffect(
        dimension="d", p_first=0.5, ci_low=0.46, ci_high=0.54, n_decisive=60
    )
    return add_diagnoses(
        standings, {name: {"position": position} for name in standings.dimensions}
    )


STEADY = {
    **{"n_judgments": 60, "n_invalid": 0, "n_refused": 0, "n_cut_off": 0},
    **{"n_two_order": 60, "n_one_order": 0, "n_flips": 0, "n_equal_answers": 0},
    **{"dimension": "d", "tie_rate": 0.1, "invalid_rate": 0.0},
}


def conclusion(standings: Standings) -> Conclusion:
    """Of a judge that passes its checks of position, in one dimension."""
    return concluded(fair(standings), [STEADY]).conclusions["d"]


def console(standings: Standings) -> str:
    return tournament_console.format_console(build_view(concluded(standings)))


def headline(reader: Reader) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", reader.text, re.DOTALL)
    assert found
    return html.unescape(" ".join(found[1].split()))


@pytest.fixture(scope="module")
def standings() -> Standings:
    return rated(simulated(PROBES, DIMENSIONS), PROBES, "bradley_terry", "davidson")


@pytest.fixture(scope="module")
def figures(standings: Standings) -> list[Plot]:
    return ratings.plots(standings)


@pytest.fixture(scope="module")
def whole(standings: Standings, figures: list[Plot]) -> Reader:
    return page(standings, figures, [QUALITY])


# The file


@pytest.mark.system
def test_it_fetches_nothing_and_allows_only_its_own_script(whole: Reader):
    assert not re.search(r"https?://|@import|url\((?!#)|<link|javascript:", whole.text)
    assert whole.links + whole.given("src") == []
    (script,) = re.findall("<script>(.*)</script>", whole.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (c for c in whole.given("content") if "default-src 'none'" in c)
    assert f"script-src 'sha256-{digest}'" in policy
    ids = whole.given("id")
    assert {link[1:] for link in whole.given("href") if link[0] == "#"} <= set(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.system
def test_figures_are_inside_in_the_colours_of_the_page(
    whole: Reader, figures: list[Plot]
):
    shown = [p for p in figures if p.name not in ("ratings", "pairwise_winrates")]
    assert [tag for tag, _ in whole.tags].count("svg") == len(shown) > 3
    assert all(plot.caption in whole.said for plot in shown)
    drawn = "".join(re.findall("<svg.*?</svg>", whole.text, re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", drawn)) <= {"#000000"}


@pytest.mark.system
def test_names_are_text_whatever_they_hold():
    some = rated(simulated(HOSTILE, HOSTILE[:2], n_prompts=25), HOSTILE, *METHODS)
    empty = Response(entrant_id="", prompt_id="", response_text="")
    odd = [check_responses(name, dict.fromkeys("abc", empty)) for name in HOSTILE]
    found = {"audit": {**AUDIT, "results": []}}
    some = add_diagnoses(some, dict.fromkeys(HOSTILE, found), responses=odd)
    reader = page(
        some,
        ratings.plots(some),
        [{**QUALITY, "dimension": HOSTILE[1]}],
        title=HOSTILE[1],
        judge_model=HOSTILE[0],
        overrides=HOSTILE,
        versions=dict.fromkeys(HOSTILE, HOSTILE[0]),
    )
    tags = [tag for tag, _ in reader.tags]
    assert "img" not in tags
    assert tags.count("script") == 1
    assert not [name for _, given in reader.tags for name in given if name[:2] == "on"]
    for name in HOSTILE:
        assert " ".join(name.split()) in reader.said
    cells = {cell for row in reader.cells for cell in row}
    assert set(HOSTILE) <= cells


# Claims


FLIPPING = {"n_flips": 18}
INVALID = {"n_invalid": 3, "invalid_rate": 0.05}


@pytest.mark.parametrize(
    ("points", "changes", "state"),
    [
        ((1500, 1400, 1300), {}, "leads"),
        ((1500, 1400, 1300), {"quality": FLIPPING}, "leads"),  # flips favour neither
        ((1500, 1400, 1300), {"quality": INVALID}, "caution"),
        ((1500, 1495, 1300), {"quality": INVALID}, "undecided"),
        ((1500, 1500, 1300), {}, "undecided"),
        ((1500, 1400, 1300), {"pairs": []}, "undecided"),
        ((1500, 1400, None), {}, "undecided"),  # c met neither of them
        ((1500, None, None), {}, "none"),
    ],
)
def test_the_first_state_that_applies_is_that_of_the_dimension(
    points: tuple[float | None, ...], changes: dict[str, Any], state: str
):
    """Of a, b and c with these ratings, each ± 10."""
    some = rated(simulated("abc"), "abc", "bradley_terry")
    board = dataclasses.replace(
        some.boards["bradley_terry"]["d"],
        rating=np.array([np.nan if p is None else p for p in points]),
        covariance=np.diag([25.0] * 3),
        flags={i: "disconnected" for i, p in enumerate(points) if p is None},
    )
    pairs = changes.get("pairs", differences({"d": board}))
    some = dataclasses.replace(
        fair(some),
        boards={"bradley_terry": {"d": board}},
        differences={"bradley_terry": pairs},
    )
    quality = {**STEADY, **changes.get("quality", {})}
    assert concluded(some, [quality]).conclusions["d"].state == state


def test_one_number_and_one_sentence_stand_on_console_page_files_and_tracker():
    some = fair(rated(simulated("abc", gap=3.0), "abc", "bradley_terry"))
    some = concluded(some, [STEADY])
    lead = some.differences["bradley_terry"][0]
    first, second, *_ = some.boards["bradley_terry"]["d"].ratings
    assert lead.difference == first.rating - second.rating
    sentence = said_of(some.conclusions["d"])
    assert sentence.startswith(
        f"a leads {lead.lower} by {lead.difference:.0f} points [{lead.ci_low:.0f}, "
    )
    view = build_view(some)
    reader = Reader(
        render_document("run", tournament_page.build_document(view, MANIFEST))
    )
    assert headline(reader) == sentence
    assert "Expected win rate of a over b: " in reader.said
    assert reader.said.count(sentence) == 1
    assert f"d (60 prompts)\n{sentence}.\n" in tournament_console.format_console(view)
    assert artifacts.ratings_json(some)["conclusions"]["d"]["sentence"] == sentence
    tracked = artifacts.list_final_metrics(some, view.dimensions)
    assert tracked["conclusion/d/sentence"] == sentence
    assert tracked["result/d/gap"] == lead.difference


@pytest.mark.parametrize(("model", "reasons"), [("a", ["answers"]), ("c", [])])
def test_odd_answers_are_named_and_need_caution_where_they_are_the_leaders(
    model: str, reasons: list[str]
):
    standings = rated(simulated("abc", gap=3.0), "abc", "bradley_terry")
    constant = check_responses(
        model,
        {
            f"p{i}": Response(entrant_id="m", prompt_id=f"p{i}", response_text="Yes.")
            for i in range(9)
        },
    )
    found = dataclasses.replace(standings, responses=[constant])
    said = page(found).said
    assert [reason.name for reason in conclusion(found).reasons] == reasons
    assert f"the same text: {model} 100%; repeated texts: {model} 100%" in said
    assert f"answers       the same text: {model} 100%" in console(found)
    with_quality = concluded(fair(found), [STEADY])
    view = build_view(with_quality)
    printed = tournament_console.format_console(view)
    assert (
        "checked: order changes the verdict 0%" in printed
    )  # the answers are not its own
    assert "No check failed." in page(fair(found), quality=[STEADY]).said
    tracked = artifacts.list_final_metrics(with_quality, view.dimensions)
    assert tracked["judge/caution"] is False


AUDIT = {"n_prompts": 93, "date": "2026-11-22T10:00:00Z"}


@pytest.mark.parametrize(
    ("probe", "estimate", "state"),
    [("injection: plea", 0.2, "caution"), ("formatting", 0.11, "leads")],
)
def test_an_audit_is_quoted_and_one_that_found_the_judge_obedient_needs_caution(
    probe: str, estimate: float, state: str
):
    biased = {"probe": probe, "kind": "bias", "verdict": "biased", "estimate": estimate}
    ok, twin = {"verdict": "ok"}, {"probe": "twin", "verdict": "reported"}
    audit = {**AUDIT, "results": [biased, *[ok] * 13, twin]}
    standings = rated(simulated("abc", gap=3.0), "abc", "bradley_terry")
    found = add_diagnoses(standings, {"d": {"audit": audit}})
    points = round(400 * np.log10((0.5 + estimate) / (0.5 - estimate)))
    line = (
        f"Judge audit on d, 2026-11-22: 13 tests ok, 1 biased ({probe} +{estimate:.2f}, about {points} "
        "Elo), 0 inconclusive."
    )
    said = page(found).said
    assert conclusion(found).state == state
    assert line in said
    assert line in re.sub(r"\s+", " ", console(found))


def test_a_judge_that_was_asked_about_labelled_pairs_is_held_against_them():
    pairs = {"subset": "all", "accuracy": 0.83, "low": 0.78, "high": 0.87, "n": 240}
    audit = {**AUDIT, "results": [], "gold": [pairs]}
    standings = rated(simulated("abc", gap=3.0), "abc", "bradley_terry")
    found = add_diagnoses(standings, {"d": {"audit": audit}})
    line = "It agrees with the gold labels on 83% [78, 87] of 240 pairs."
    assert line in page(found).said
    assert line in re.sub(r"\s+", " ", console(found))


def test_a_run_without_an_audit_says_so():
    standings = rated(simulated("abc", gap=3.0), "abc", "bradley_terry")
    found = add_diagnoses(standings, {"d": {"audit": {}}})
    line = "See the price: python -m elo_exp experiment=audit plan=true"
    assert line in page(found).said
    assert line in console(found)


@pytest.mark.parametrize(
    ("model", "low", "high", "state"),
    [
        ("a", 1510.0, 1720.0, "caution"),
        ("a", 1390.0, 1720.0, "undecided"),
        ("b", 1300.0, 1500.0, "caution"),
        ("b", 1300.0, 1720.0, "undecided"),
    ],
)
def test_invalid_verdicts_of_one_entrant_need_caution_and_may_undo_a_lead(
    model: str, low: float, high: float, state: str
):
    """a has some 1600 points, b 1400."""
    standings = rated(simulated("abc", gap=3.0), "abc", "bradley_terry")
    share = InvalidShare(
        dimension="d", model=model, n_invalid=9, n_judgments=60, share=0.15,
        p_holm=0.01, differs=True, bound_low=low, bound_high=high,
    )  # fmt: skip
    diagnosis = {**standings.diagnoses["d"], "invalid": [share]}
    found = dataclasses.replace(standings, diagnoses={"d": diagnosis})
    said = page(found).said
    assert f"the rating of {model} is between {low:.0f} and {high:.0f}." in said
    assert conclusion(found).state == state
    assert "invalid_by_entrant" in [r.name for r in conclusion(found).reasons]


def test_none_leads_where_the_prompts_leave_it_open():
    some = rated(simulated("abc", gap=0.0), "abc", "bradley_terry")
    reader = page(some)
    assert headline(reader).startswith("no clear winner: ")
    assert conclusion(some).reasons[0].name == "rivals"
    assert "80% power to detect" in reader.said
    assert "leads" not in reader.said


def test_the_headline_covers_all_dimensions():
    """A judge whose verdicts are invalid is doubted in the dimensions in which they are."""
    names = [*"xyz"]
    battles = simulated("ab", names, gap=9.0)
    steady = [{**STEADY, "dimension": name} for name in names]
    some = fair(rated(battles, "ab", "bradley_terry"))
    assert headline(page(some, quality=steady)) == "a leads b on all 3 rubrics"
    battles["z"] = [
        dataclasses.replace(b, dimension="z") for b in simulated("ba", gap=9.0)["d"]
    ]
    some = fair(rated(battles, "ab", "bradley_terry"))
    doubted = [{**row, **INVALID} for row in steady]
    for quality, words in (
        (steady, "a leads b on x and y; b leads a on z"),
        (
            [steady[0], doubted[1], steady[2]],
            "the judge prefers a to b on y; a leads b on x; b leads a on z",
        ),
        (doubted, "the judge prefers a to b on x and y; the judge prefers b to a on z"),
    ):
        assert headline(page(some, quality=quality)) == words


# Numbers


def test_its_numbers_are_those_of_ratings_json(standings: Standings, whole: Reader):
    found = artifacts.ratings_json(standings)
    for methods in found["dimensions"].values():
        other = {r["model"]: r for r in methods["davidson"]["ratings"]}
        for r in methods["bradley_terry"]["ratings"]:
            low, high = r["rank_low"], r["rank_high"]
            rank = f"{r['rank']}" + (f" / {low}–{high}" if low != high else "")
            (row,) = (
                row
                for row in whole.cells
                if row[:3] == [rank, r["model"], f"{r['rating']:.0f}"]
            )
            assert row[4] == f"{r['ci_low']:.0f} to {r['ci_high']:.0f}"
            assert row[6] == f"{other[r['model']]['rating']:.0f}"
            assert row[8] == str(r["n_battles"])
        for r in methods["elo"]["ratings"]:
            row = [f"{r['rating']:.1f}", f"{r['ci_low']:.0f} to {r['ci_high']:.0f}"]
            row += [f"{r['ordering_error']:.2f}"]
            assert [c for c in whole.cells if c[0] == r["model"] and c[2:5] == row]
    for d in found["differences"]["bradley_terry"]:
        says = "significant" if d["significant"] else "not significant"
        row = [d["higher"], d["lower"], d["dimension"], f"{d['difference']:.0f}"]
        assert [c for c in whole.cells if c[:4] == row and c[-1] == says]


def test_a_matrix_has_the_win_rates_and_its_mirror(standings: Standings, whole: Reader):
    names = [r.model for r in standings.boards["bradley_terry"]["calibration"].ratings]
    by_pair = {
        (r.entrant_a, r.entrant_b): (r.a_wins + r.ties / 2)
        / (r.a_wins + r.b_wins + r.ties)
        for r in standings.win_rates
        if r.dimension == "calibration"
    }
    by_pair |= {(b, a): 1 - share for (a, b), share in by_pair.items()}
    for row in names:
        cells = [f"{100 * by_pair[row, c]:.0f}" if c != row else "·" for c in names]
        assert [row, *cells] in whole.cells


@pytest.mark.system
def test_of_many_entrants_the_best_is_compared_with_the_others():
    models = [f"m{i:02}" for i in range(12)]
    some = rated(simulated(models, n_prompts=20), models, "bradley_terry")
    reader = page(some)
    best = some.boards["bradley_terry"]["d"].ratings[0].model
    assert f"shows only the pairs of {best}." in reader.said
    shown = [row for row in reader.cells if row[-1].endswith("significant")]
    assert {row[0] for row in shown} == {best}
    assert {row[1] for row in shown} == set(models) - {best}
    assert "names" in reader.given("id")  # the box that filters them


def test_the_order_experiment_says_how_much_of_the_limit_elo_covers(
    standings: Standings,
):
    some = dataclasses.replace(
        standings,
        convergence={
            name: dataclasses.replace(way, sufficient_k=k)
            for (name, way), k in zip(
                standings.convergence.items(), (30.2, 33.2, None), strict=True
            )
        },
    )
    said = page(some).said
    assert "every entrant from K = 31 on, so use K = 32 of the sweep." in said
    assert "every entrant from K = 34 on." in said
    assert "No K up to 64 covers 95% for every entrant" in said
    for name, way in standings.convergence.items():
        share = format_percent_floor(way.by_k[16.0].convergence).replace("\xa0", " ")
        assert f"{name}: at K = 16 Elo covers {share} of the final gap" in said


# The judge

NOTHING = by_dimension({"d": []})["d"]


def position(low: float | None, high: float | None) -> dict[str, Any]:
    found = PositionEffect(
        dimension="d", p_first=0.58, ci_low=low, ci_high=high, n_decisive=9
    )
    return {"position": found}


def length(
    difference: float, least: float | None, effect: float = 1.0, n_longer: int = 60
) -> dict[str, Any]:
    """Of two entrants 100 points apart, and `difference` apart at equal length, `least` at the least."""
    length_effect = LengthEffect(
        dimension="d", n_prompts=100, n_games=100, n_without_length=0, scale=120.4,
        effect=effect, std_error=0.25, ci_low=effect - 0.5, ci_high=effect + 0.5,
    )  # fmt: skip
    lead = WeakestLead(
        first="ann", second="bob", gap=100.0, difference=difference, least=least,
        n_games=100, n_longer=n_longer, n_shorter=5,
    )  # fmt: skip
    return {"length": LengthControl(effect=length_effect, weakest_leads=[lead])}


@pytest.mark.parametrize(
    ("diagnosis", "counts", "states"),
    [
        (position(0.56, 0.60), {}, {"first_shown": "failed"}),
        (position(0.40, 0.449), {}, {"first_shown": "failed"}),
        (position(0.549, 0.6), {}, {"first_shown": "cannot tell"}),
        (position(0.45, 0.55), {}, {"first_shown": "passed"}),
        (position(None, None), {}, {"first_shown": "cannot tell"}),
        (length(51.0, 1.0), {}, {"length": "passed"}),
        (length(49.0, 1.0), {}, {"length": "failed"}),
        (length(90.0, -1.0), {}, {"length": "failed"}),
        (length(90.0, None), {}, {"length": "failed"}),
        (length(90.0, -1.0, effect=0.1), {}, {"length": "cannot tell"}),
        (length(90.0, 1.0, effect=0.1), {}, {"length": "passed"}),
        (length(90.0, 1.0, effect=0.1, n_longer=95), {}, {"length": "passed"}),
        (length(90.0, 1.0, effect=0.1, n_longer=96), {}, {"length": "cannot tell"}),
        (
            {},
            {"n_flips": 4, "invalid_rate": 0.02},
            {"flips": "passed", "invalid": "passed"},
        ),
        (
            {},
            {"n_flips": 5, "invalid_rate": 0.02},
            {"flips": "cannot tell", "invalid": "passed"},
        ),
        (
            {},
            {"n_flips": 16, "invalid_rate": 0.021},
            {"flips": "cannot tell", "invalid": "failed"},
        ),
        (
            {},
            {"n_flips": 17, "invalid_rate": 0.021},
            {"flips": "failed", "invalid": "failed"},
        ),
    ],
)
def test_a_judge_is_checked_at_the_limits(
    diagnosis: dict[str, Any], counts: Any, states: dict[str, str]
):
    """A check passes if its whole interval is inside the limits, and fails if it is outside; length fails
    if it explains the lead, and cannot be told if it may."""
    quality = JudgeQuality.from_dict({**QUALITY, **counts}) if counts else None
    found = check_judge(NOTHING, diagnosis, quality, ("ann", "bob"))
    assert states.items() <= {check.name: check.state for check in found}.items()


def test_the_judge_is_described_by_the_numbers_of_ratings_json():
    """Verdicts of a judge that prefers the first shown; their flips are counted from the
    battles."""
    some = {"d": Tournament(first_shown=0.7).battles(100, np.random.default_rng(1))}
    standings = rated(some, "abcd", "bradley_terry")
    found = artifacts.ratings_json(standings)["judge"]["d"]
    cells = [r for r in page(standings).cells if len(r) == 2]
    rows = {
        re.sub(
            "^[✕?✓–] (Failed|Cannot tell|Passed|Not done) ", "", r[0].partition(" /")[0]
        ): r[1]
        for r in cells
    }
    position, test = found["position"], found["transitivity"]
    for name, words in (
        ("First answer wins", f"{position['p_first']:.1%}"),
        ("One rating per entrant explains all pairs", f"{test['chi_square']:.1f}, "),
        (
            "Prompts on which three entrants beat each other in a circle",
            f"/ {found['cycles']['n_cyclic_prompts']} of 100",
        ),
        ("Verdict changes when the answers swap places", "failed"),
    ):
        assert words in rows[name]


# Cost, and what is missing


def test_it_shows_the_counts_costs_and_settings_of_the_manifest(whole: Reader):
    for words in (
        "21 of 100 comparisons in both orders", "5 of 105, 3 refused, 1 cut off",
        "factuality $12.35", "3,456 output", "50 of the 143 in the prompt file", "rubric=[<i>]",
        "K = 16, 20 match orders", "0123abcd+changes", "2026-11-21 14:51 UTC",
    ):  # fmt: skip
        assert words in whole.said


def test_what_is_missing_is_left_out_and_said():
    """No match; one prompt; one method; battles of a file without a judge."""
    reader = page(rated({"d": []}, (), "bradley_terry"), usage=None)
    assert reader.headings == ["Result", "Details"]
    assert reader.folds == ["How this was made", "Glossary"]
    one = {"model_a": "a", "model_b": "b", "question_id": "q"}
    battles = simulated("ab", ["rated"]) | {
        "unbeaten": [Battle(winner="model_a", **one)],
        "tied": [Battle(winner="tie", **one)],
    }
    reader = page(rated(battles, "ab", *METHODS))
    assert ["1 / 1–2", "a", "won the one prompt against b"] in [
        row[:3] for row in reader.cells
    ]
    assert headline(reader).startswith("too few prompts on unbeaten and tied; ")
    assert not [cell for row in reader.cells for cell in row if "nan" in cell.lower()]
    some = rated(simulated("ab", ["overall"]), "ab")
    read = {"file": "b.csv", "format": "evalica", "assumed": "that"}
    read["rows"] = {"used": 60, "tied": 0, "dropped": 2}
    bare = {"experiment": "rate", "battles_files": [read], "overrides": []}
    reader = page(some, manifest=bare)
    line = "b.csv read as evalica: 60 used, 0 tied, 2 dropped; assumed: that."
    for words in (line, "Elo ratings", "the error of"):
        assert words in reader.said
    assert "Cost" not in reader.folds
