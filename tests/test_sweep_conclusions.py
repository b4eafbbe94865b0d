"""What the jobs of a sweep say together: ranges over jobs within a dimension, and no more than each job allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from elo_exp.analysis.conclusions.sweep_conclusion import (
    JobLead,
    SweepConclusion,
    conclude,
    find_job_lead,
    have_same_ratings,
    share_with_same_leader,
)
from elo_exp.files import read_json
from elo_exp.formatting import (
    format_number,
    format_percent,
    format_percent_floor,
)
from elo_exp.report.sentences import sweep_sentences as words
from tests.commands import Ran, run, table
from tests.data import write_table


def lead(job: str, first: str = "ann", gap: float | None = 110.0, **more: Any) -> Any:
    return JobLead(job=job, models=(first,), rating=1500.0, gap=gap, **more)


def of(*leads: JobLead | None, **more: Any) -> SweepConclusion:
    return conclude(leads, dimension="d", **more)


LEADS, UNDECIDED = {"state": "leads"}, {"state": "undecided"}
CASES = [
    ("none", "no job ranks two entrants", [None, lead("1", gap=None)]),
    ("leads", "ann leads by 110 to 121 in 2 of 2 jobs", [lead("0", **LEADS), lead("1", gap=121, **LEADS)]),
    ("leads", "ann leads by 110 in 1 of 1 job", [lead("0", **LEADS)]),
    ("ahead", "ann is ahead by 110 in 2 of 2 jobs (supported in 1, undecided in 1)",
     [lead("0", **LEADS), lead("1", **UNDECIDED)]),
    ("ahead", "ann is ahead by 110 in 1 of 1 job (word overlap only)", [lead("0", state="words")]),
    ("ahead", "ann is ahead by 110 in 1 of 1 job", [lead("0")]),
    ("ahead", "ann is ahead by at least 110 in 2 of 2 jobs",
     [lead("0", one_sided=True), lead("1", gap=400.0)]),
    ("some", "ann leads by 110 in 1 of 2 jobs", [lead("0", **LEADS), None]),
    ("differs", "bob leads by 90 to 110 in 2 of 3 jobs. ann is ahead by 3 in 1 of 3 jobs (undecided)",
     [lead("0", gap=3.0, **UNDECIDED), lead("1", "bob", **LEADS), lead("2", "bob", 90.0, **LEADS)]),
]  # fmt: skip


@pytest.mark.parametrize(("state", "sentence", "leads"), CASES)
def test_each_state_has_its_sentence(
    state: str, sentence: str, leads: Sequence[JobLead | None]
):
    found = of(*leads)
    assert (found.state, words.sentence(found)) == (state, sentence)


LENGTH, STYLE = ("length",), ("length", "bold")
SAME, LEADS_2 = (
    "the leader is the same in both jobs",
    "ann leads by 110 in 2 of 2 jobs",
)


@pytest.mark.parametrize(
    ("controls", "sentence", "headline"),
    [
        ([(), ()], LEADS_2, SAME),
        ([LENGTH, LENGTH], f"at equal length, {LEADS_2}", f"At equal length: {SAME}"),
        ([STYLE, STYLE], f"at equal style, {LEADS_2}", f"At equal style: {SAME}"),
        ([(), LENGTH], f"{LEADS_2} (at equal length in 1)", SAME),
    ],
)  # fmt: skip
def test_leads_at_equal_style_say_so(
    controls: Sequence[tuple[str, ...]], sentence: str, headline: str
):
    found = of(*(lead(f"{n}", state="leads", adjusted_for=c) for n, c in enumerate(controls)))  # fmt: skip
    assert words.sentence(found) == sentence
    assert (
        words.headline([found], "Bradley-Terry", ["rating.style"])
        == headline[0].upper() + headline[1:]
    )


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ([150.0, 150.0], f"at equal length, {LEADS_2} (raw lead 150)"),
        ([-20.0, 150.0], f"at equal length, {LEADS_2} (raw lead −20 to 150)"),
        ([None, 150.0], f"{LEADS_2} (at equal length in 1, raw lead 150)"),
    ],
)
def test_the_raw_lead_stands_beside_the_adjusted_one(
    raw: Sequence[float | None], sentence: str
):
    found = of(
        *(
            lead(
                f"{n}",
                state="leads",
                adjusted_for=LENGTH if gap is not None else (),
                raw_gap=gap,
            )
            for n, gap in enumerate(raw)
        )
    )
    assert words.sentence(found) == sentence


def test_a_job_is_read_with_its_control():
    rows = [
        {"model": name, "rating": rating, "rank": rank, "ci_low": None}
        for rank, (name, rating) in enumerate([("ann", 1600.0), ("bob", 1500.0)], 1)
    ]
    of_job = {"state": "leads", "adjusted_for": ["length"], "raw_difference": 140.0}
    found = find_job_lead("0", rows, {**of_job, "first": "ann", "second": "bob"})
    assert found is not None and found.adjusted_for == LENGTH
    assert found.raw_gap == 140.0
    other = find_job_lead("0", rows, {**of_job, "first": "bob", "second": "ann"})
    assert other is not None and other.raw_gap is None
    older = find_job_lead("0", rows, {"state": "leads"})
    assert older is not None and older.adjusted_for == ()


def test_no_sentence_says_leads_of_a_job_that_does_not():
    """In `leads` alone it is said of all jobs."""
    states = (
        "none",
        "few",
        "undecided",
        "words",
        "caution",
        "unchecked",
        "leads",
        None,
    )
    for first in states:
        for second in states:
            found = of(lead("0", state=first), lead("1", state=second))
            is_supported = first == second == "leads"
            assert (found.state == "leads") == is_supported
            assert ("leads" in words.sentence(found)) == is_supported
            assert ("leader" in words.headline([found], "Elo", [])) == is_supported


def test_the_same_leader_is_that_of_most_jobs_on_every_dimension():
    """Of three jobs two have ann on the first and two bob on the second, one of them both."""
    first = of(lead("0"), lead("1"), lead("2", "bob"))
    second = of(lead("0"), lead("1", "bob"), lead("2", "bob"))
    assert share_with_same_leader([first]) == 2 / 3
    assert share_with_same_leader([first, second]) == 1 / 3
    assert share_with_same_leader([first, of(None)]) == 2 / 3
    assert share_with_same_leader([of(None)]) is None


def entrants(**ratings: float | None) -> list[dict[str, Any]]:
    interval = {
        "ci_low": None,
        "ci_high": None,
        "rank": None,
        "method": "Bradley-Terry",
    }
    return [{"model": m, "rating": r, **interval} for m, r in ratings.items()]


def test_the_gap_is_to_the_second_and_not_to_the_last():
    found = find_job_lead("0", entrants(cat=1310.0, ann=1500.0, dan=None, bob=1390.0))
    assert found is not None
    assert (found.models, found.gap) == (("ann",), 110.0)
    alone = find_job_lead("0", entrants(ann=1500.0, dan=None))
    assert alone is not None
    assert alone.gap is None
    assert find_job_lead("0", entrants(ann=None)) is None


def test_entrants_that_differ_by_rounding_alone_are_level_in_any_order():
    one = find_job_lead("0", entrants(bob=1500.0 + 1e-12, ann=1500.0, cat=1310.0))
    other = find_job_lead("1", entrants(ann=1500.0, bob=1500.0, cat=1300.0))
    assert (
        words.sentence(of(one, other))
        == "ann and bob have the same rating in 2 of 2 jobs"
    )


def test_entrants_with_the_same_answers_are_level_in_no_job():
    """Unless one of the jobs has other answers."""
    level = entrants(ann=1500.0, bob=1500.0)
    same = find_job_lead("0", level, {"state": "same"})
    other = find_job_lead("1", level, {"state": "undecided"})
    said = "ann and bob gave the same answers"
    assert words.sentence(of(same, same)) == f"{said} in 2 of 2 jobs"
    assert words.sentence(of(same, same), is_same=True) == said
    assert words.sentence(of(same, other)) == (
        "ann and bob have the same rating in 2 of 2 jobs (same answers in 1, undecided in 1)"
    )


def test_an_entrant_that_took_every_point_is_first_by_its_bound():
    """It has the first rank and no rating, so that by ratings the second would be first."""
    first, *others = entrants(ann=None, bob=1480.0, cat=1310.0)
    rows = [{**first, "rank": 1, "ci_low": 1967.0}, *others]
    without = find_job_lead("0", rows)
    assert without is not None
    assert (without.models, without.gap, without.state) == (("ann",), 487.0, None)
    found = find_job_lead("0", rows, {"state": "leads", "ci_low": 479.0})
    assert found is not None
    assert (found.models, found.gap, found.one_sided) == (("ann",), 479.0, True)
    assert words.sentence(of(found)) == "ann leads bob by at least 479 in 1 of 1 job"
    assert words.first_of_job(found) == "ann (at least +479)"


def test_jobs_are_the_same_where_no_rating_differs_by_more_than_rounding():
    one = entrants(ann=1500.0, bob=1300.0, cat=None)
    again = entrants(bob=1300.0, ann=1500.0 + 1e-10, cat=None)
    moved = entrants(ann=1500.0, bob=1300.0 + 1e-6, cat=None)
    rated = entrants(ann=1500.0, bob=1300.0, cat=1200.0)
    assert have_same_ratings([one, again])
    assert not have_same_ratings([one])  # one job is the same as no other
    for other in (moved, rated, one[:2]):
        assert not have_same_ratings([one, again, other])
    davidson = [{**row, "method": "Davidson"} for row in one]
    assert not have_same_ratings([one, davidson])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["elo.k", "elo.n_perms"], "elo.k and elo.n_perms change Elo but do not affect the Davidson ratings"),
        (["elo.k", "tracker"], "elo.k changes Elo but does not affect the Davidson ratings"),
        (["judge"], "judge changed Elo but not the Davidson ratings"),
    ],
)  # fmt: skip
def test_what_does_not_move_is_said_once(settings: list[str], said: str):
    leads = [lead("0"), lead("1")]
    found = of(*leads, is_same=True)
    assert words.headline([found, found], "Davidson", settings) == said
    other = of(lead("0"), lead("1", gap=121.0))
    headline = words.headline([found, other], "Davidson", settings)
    assert headline == "The top entrant is the same in both jobs"
    still = words.headline([found, found], "Davidson", settings, elo_moved=False)
    assert still == "Nothing changed: both jobs have the same ratings"


def test_a_number_goes_from_its_least_to_its_most_and_is_one_where_both_read_alike():
    assert words.format_range("273", "378") == "273 to 378"
    assert words.format_range("275", "275") == "275"
    assert words.format_range("76%", "98%") == ("76 to 98%")


def test_a_setting_is_named_by_the_last_part_of_its_key():
    given = "rating.bradley_terry.orders=both prompts.bank_path=a/b.c.jsonl judge=opus"
    said = "orders=both bank_path=a/b.c.jsonl judge=opus"
    assert words.shorten_settings(given) == said


def test_whose_taste_the_ratings_are_is_said_once_and_of_some_jobs_with_their_numbers():
    opus, haiku = {"whose": "Opus's taste."}, {"whose": "Haiku's taste."}
    both = {"0": {"tone": opus, "facts": opus}, "1": {"tone": opus}}
    assert words.list_scope_lines(both) == ["Opus's taste."]
    assert words.list_scope_lines({**both, "2": {"tone": haiku}}, "run") == [
        "Runs 0, 1: Opus's taste.",
        "Run 2: Haiku's taste.",
    ]
    assert words.list_scope_lines({"0": {}}) == []


def test_the_share_of_jobs_that_have_the_first_of_most():
    assert of(lead("0"), lead("1", "bob"), lead("2")).share_with_same_leader == 2 / 3
    assert of(lead("0"), None).share_with_same_leader == 0.5
    assert of(None).share_with_same_leader is None


def test_seeds_are_held_against_the_monte_carlo_error():
    assert words.scatter({"tone": 0.808, "facts": 1.2}, 8) == (
        "Over 8 seeds, the standard deviation of Elo is 0.81 (tone), 1.20 (facts) times its random error. 1 is expected."
    )
    assert words.scatter({}, 8) == ""


# Jobs that have run


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two dimensions with gaps of their own; of dan there is no decisive battle on either."""
    folder = tmp_path_factory.mktemp("swept")
    battles = [
        {"model_a": a, "model_b": b, "winner": winner, "question_id": f"q{q}", "dimension": d}
        for d, won in (("tone", 3), ("facts", 4))
        for q in range(30)
        for a, b, winner in (
            ("ann", "bob", "model_a" if q % 5 < won else "model_b"),
            ("bob", "cat", "model_a" if q % 7 < won else "model_b"),
            ("ann" if q < 13 else "cat", "dan", "tie"),
        )
        if not (d == "facts" and "dan" in (a, b))
    ]  # fmt: skip
    write_table(folder / "battles.csv", battles)
    axes = ("elo.k=8,16,32", "elo.n_perms=10,50")
    given = ("experiment=rate", "battles=battles.csv", "figures=false", "tracker=local")
    return run("-m", *given, *axes, folder=folder)


@pytest.mark.system
def test_a_sweep_shows_what_moved_and_no_range_over_dimensions(swept: Ran):
    """K and permutations enter Elo alone."""
    rows = table(swept.run_dir / "sweep_summary.csv")
    said = (
        "elo.k and elo.n_perms change Elo but do not affect the Bradley-Terry ratings"
    )
    assert f"{said}.\n" in swept.out
    assert said in swept.page.said
    found = read_json(swept.run_dir / "sweep_conclusions.json")
    assert found.keys() == {"tone", "facts"}
    for dimension, conclusion in found.items():
        own = [
            row for row in rows if (row["job"], row["dimension"]) == ("0", dimension)
        ]
        first, second, *_ = sorted(
            (float(r["rating"]) for r in own if r["rating"]), reverse=True
        )
        gap = f"{first - second:.0f}"
        assert conclusion["is_same"]
        assert conclusion["leads"][0]["gap_high"] == first - second
        assert re.fullmatch(rf"ann is ahead of \w+ by {gap} .*", conclusion["sentence"])
        assert f"\n{dimension}: {conclusion['sentence']}.\n" in swept.out
        assert f"{conclusion['sentence']}." in swept.page.said


# A heading of the console -> the column of sweep_numbers.csv, and how one number is said
SAID = {
    "Bradley-Terry": ("result_gap", format_number),
    "Elo gap": ("order_gap", format_number),
    "final gap": ("order_convergence", format_percent_floor),
    "error": ("order_mc_error", lambda value: format_number(value, 1)),
    "final Elo": ("order_distance", format_number),
    "swapped": ("order_swaps", format_number),
    "different ranking": ("order_one_order_wrong", format_percent),
}


def console_table(out: str, title: str) -> tuple[list[str], list[list[str]]]:
    """The last line of the headings and the rows of a table of the console."""
    lines = out.partition(f"\n{title}\n\n")[2].partition("\n\n")[0].splitlines()
    (at,) = (n for n, line in enumerate(lines) if set(line.strip()) == {"─"})
    cells = [re.split(r"  +", line.strip()) for line in lines]
    return cells[at - 1], cells[at + 1 :]


@pytest.mark.system
def test_every_printed_range_is_that_of_sweep_numbers_csv_within_its_dimension(
    swept: Ran,
):
    """Nothing is taken over dimensions, and the lead, which cannot move, is one number."""
    rows = table(swept.run_dir / "sweep_numbers.csv")
    assert len(rows) == 6 * 2
    head, lines = console_table(swept.out, "Changes by rubric, over the 6 jobs")
    assert head[0] == "rubric"
    assert {"Bradley-Terry", "Elo gap", "error"} <= {*head}
    assert [line[0] for line in lines] == ["tone", "facts"]
    for line in lines:
        own = [row for row in rows if row["dimension"] == line[0]]
        for name, cell in zip(head[1:], line[1:], strict=True):
            column, said = SAID[name]
            values = [float(row[column]) for row in own if row[column]]
            if not values:  # on tone dan is second, who has no Elo
                assert (line[0], name, cell) == ("tone", "Elo gap", "–")
                continue
            ends = (
                said(min(values)),
                said(max(values)),
            )
            if ends[0] == ends[1]:
                assert cell == ends[0]
            else:
                assert cell == f"{ends[0].removesuffix('%')} to {ends[1]}"
        assert " to " not in line[1]
        assert " to " in line[head.index("final gap")]
    reader = swept.page
    for line in lines:
        assert line in [list(cells) for cells in reader.cells]


@pytest.mark.system
def test_the_numbers_of_a_job_are_those_of_its_ratings_json(swept: Ran):
    for row in table(swept.run_dir / "sweep_numbers.csv"):
        found = read_json(swept.run_dir / row["job"] / "ratings.json")
        order = found["dimensions"][row["dimension"]]["elo"]["order"]
        for prefix, own in (
            ("order", order),
            ("result", found["result"][row["dimension"]]),
        ):
            for name, value in own.items():
                assert float(row[f"{prefix}_{name}"]) == value
        assert row["judge_flip_rate"] == ""  # nobody judged here


@pytest.mark.system
def test_elo_by_k_has_the_limit_of_each_entrant_in_figure_and_tracker(swept: Ran):
    """It is that of ratings.json, and a flat line over the values of K."""
    (logged,) = (
        row["value"]
        for row in swept.rows("tracker/log.jsonl")
        if row["kind"] == "summary"
    )
    lines = logged["k_sensitivity/facts"]["lines"]
    for row in table(swept.run_dir / "sweep_summary.csv"):
        found = read_json(swept.run_dir / row["job"] / "ratings.json")
        elo = found["dimensions"][row["dimension"]]["elo"]
        limits = {one["model"]: one["rating"] for one in elo["limit"]}
        limit = limits.get(row["model"])
        assert row["elo_limit"] == ("" if limit is None else str(limit))
        if limit is not None and row["dimension"] == "facts":
            line = lines[f"{row['model']}, limit"]
            assert [k for k, _ in line] == [8, 32]
            assert {value for _, value in line} == {limit}
    assert sum(", limit" in name for name in lines) == 3


@pytest.mark.system
def test_jobs_are_compared_by_means_over_dimensions(swept: Ran):
    rows = table(swept.run_dir / "sweep_numbers.csv")
    title = "Changes by job, averaged over the rubrics"
    head, lines = console_table(swept.out, title)
    assert head[:4] == ["job", "K", "match orders", "Elo gap"]
    for line in lines:
        own = [row for row in rows if row["job"] == line[0]]
        errors = [float(row["order_mc_error"]) for row in own]
        assert line[head.index("error")] == format_number(sum(errors) / 2, 1)
        (gap,) = (float(row["order_gap"]) for row in own if row["order_gap"])
        assert line[3] == format_number(
            gap
        )  # of the dimension that has one in every job


@pytest.mark.system
def test_a_sweep_of_equals_says_that_nothing_moved(swept: Ran):
    given = ("experiment=rate", "battles=battles.csv", "figures=false", "tracker=local")
    equal = (
        "elo.n_perms=10",
        "battles_columns.dimension=dimension",
        "headline=null,headline/gap",
    )
    ran = run("-m", *given, *equal, folder=swept.folder)
    assert "Nothing changed: both jobs have the same ratings.\n" in ran.out
    assert "Changes by" not in ran.out
    assert "Nothing changed" in ran.page.said
    assert "What changed" not in ran.page.headings


@pytest.mark.system
def test_an_entrant_without_a_decisive_battle_has_no_elo(swept: Ran):
    """Its ties rate it by Bradley-Terry; Elo plays decisive battles, and 1400 would be no result."""
    rows = table(swept.run_dir / "sweep_summary.csv")
    (of_dan, *_) = (row for row in rows if row["model"] == "dan")
    assert (of_dan["dimension"], of_dan["elo"]) == ("tone", "")
    assert float(of_dan["rating"]) > 0
    page = swept.page
    heads = [line for line in page.cells if line[:1] == ["Job"] and "dan" in line]
    at = heads[0].index("dan")
    (elo,) = (
        line
        for line in page.cells
        if len(line) == len(heads[0]) and line[:3] == ["0", "8", "10"]
    )
    assert elo[at] == "–"


@pytest.mark.system
def test_the_tracker_has_the_sentences(swept: Ran):
    found = read_json(swept.run_dir / "sweep_conclusions.json")
    logged = {row["kind"]: row["value"] for row in swept.rows("tracker/log.jsonl")}
    for dimension, conclusion in found.items():
        for name in ("state", "sentence"):
            metric = f"conclusion/{dimension}/{name}"
            assert logged["summary"][metric] == conclusion[name]


@pytest.mark.system
def test_elo_scatters_over_seeds_as_its_monte_carlo_error_says(swept: Ran):
    """Within what the scatter of eight has by chance, with 7 degrees of freedom: .49 to 1.51."""
    given = ("experiment=rate", "battles=battles.csv", "figures=false", "tracker=local")
    seeds = ("sweep=seeds", "elo.n_perms=50", "battles_columns.dimension=dimension")
    ran = run("-m", *given, *seeds, folder=swept.folder)
    rows = ran.rows("tracker/log.jsonl")
    (found,) = (row["value"] for row in rows if row["kind"] == "summary")
    ratios = {d: found[f"seeds/{d}/sd_over_error"] for d in ("tone", "facts")}
    assert all(0.49 < ratio < 1.51 for ratio in ratios.values())
    assert words.scatter(ratios, 8) in ran.out
    assert words.scatter(ratios, 8) in ran.page.said
    assert found["sweep/tone/same_first"] == found["sweep/same_leader"] == 1
    assert not any(name.startswith("agree/") for name in found)
    low, high = (found[f"sweep/facts/order_mc_error_{end}"] for end in ("low", "high"))
    numbers = table(ran.run_dir / "sweep_numbers.csv")
    errors = [float(r["order_mc_error"]) for r in numbers if r["dimension"] == "facts"]
    assert (low, high) == (min(errors), max(errors))
