"""People label what a judge has judged: what they are shown, what their labels are worth, and what they say of the judge."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elo_exp
from elo_exp.analysis import human_agreement
from elo_exp.analysis.agreement import label_errors
from elo_exp.analysis.comparisons import Difference, differences
from elo_exp.analysis.complete_separation import rate_with_unbeaten
from elo_exp.analysis.conclusions import Conclusion, Scope
from elo_exp.analysis.conclusions.labels_conclusion import conclude_judge, conclude_lead
from elo_exp.data import labels
from elo_exp.data.battles import Battles
from elo_exp.data.labels import Key
from elo_exp.files import write_jsonl
from elo_exp.records import WINNERS, Battle, MissingBattle
from elo_exp.report.sentences import label_sentences as words
from elo_exp.report.sentences import tournament_sentences
from tests import people_worlds
from tests.commands import Ran, attempt, run
from tests.data import COMPARISON, PROBES, battle
from tests.people_worlds import Labelled
from tests.standings import BRADLEY_TERRY

LOCAL = ("tracker=local", "figures=false", "elo.n_perms=20")
WORLD = Labelled(4, 200, n_prompts=30)
KEY = Key(key="ab" * 32)


# Which comparisons people see


def test_every_prompt_comes_once_before_any_comes_twice_and_pairs_are_balanced():
    shown = labels.draw_comparisons(WORLD.comparisons, 90, seed=1)
    for start in (0, 30, 60):
        assert len({one.prompt_id for one in shown[start : start + 30]}) == 30
    n_of_pair = Counter(frozenset(one.entrants) for one in shown)
    assert set(n_of_pair.values()) == {15}
    assert len({(one.prompt_id, frozenset(one.entrants)) for one in shown}) == 90
    n_first = sum(one.entrant_a < one.entrant_b for one in shown)
    assert 30 < n_first < 60


def test_more_comparisons_of_a_seed_go_on_where_fewer_ended_and_there_are_no_more_than_all():
    every = labels.draw_comparisons(WORLD.comparisons, 1000, seed=3)
    assert len(every) == len(WORLD.comparisons) == 180
    assert labels.draw_comparisons(WORLD.comparisons, 40, seed=3) == every[:40]
    assert labels.draw_comparisons(WORLD.comparisons, 40, seed=4) != every[:40]


def test_law_whatever_was_answered_the_same_comparisons_are_drawn():
    longer = [replace(one, response_a="x" * 9) for one in WORLD.comparisons]
    ids = [
        [KEY.label_id(one) for one in labels.draw_comparisons(some, 50, seed=0)]
        for some in (WORLD.comparisons, longer)
    ]
    assert ids[0] == ids[1]


def test_annotators_have_comparisons_of_their_own_first_and_second_opinions_last():
    shown = labels.draw_comparisons(WORLD.comparisons, 60, seed=0)
    one, two, three = labels.assign_to_annotators(shown, 3, 0.2)
    assert [len(some) for some in (one, two, three)] == [24, 24, 24]
    assert one[:20] == shown[::3]
    assert one[20:] == two[:4] and two[20:] == three[:4] and three[20:] == one[:4]
    assert labels.assign_to_annotators(shown, 1, 0.2) == [shown]


def test_half_the_width_takes_four_times_the_labels():
    """180 for four entrants, by the simulations below: 200 labels know differences to 92 points."""
    assert human_agreement.labels_needed(4, 100.0) == 180
    assert human_agreement.labels_needed(4, 50.0) == pytest.approx(4 * 179.6, abs=1)
    assert human_agreement.labelling_minutes(180) == 90


def test_an_id_names_both_the_comparison_and_the_answer_shown_first_to_who_has_the_key():
    known = KEY.comparisons_by_id([COMPARISON])
    assert known == {
        KEY.label_id(COMPARISON): COMPARISON,
        KEY.label_id(COMPARISON.swapped()): COMPARISON.swapped(),
    }
    assert len(known) == 2
    other = Key(key="cd" * 32)
    assert known.keys().isdisjoint(other.comparisons_by_id([COMPARISON]))
    assert KEY.page != other.page


def test_a_comparison_counts_once_however_many_have_labelled_it():
    votes = [
        battle("b", "a", "model_a", question_id="1", dimension="d"),
        battle("a", "b", "model_a", question_id="1", dimension="d"),
        battle("a", "b", "model_b", question_id="1", dimension="d"),
        battle("a", "b", "model_b", question_id="2", dimension="d"),
        battle("a", "b", "tie (bothbad)", question_id="3", dimension="d"),
        battle("a", "b", "tie", question_id="4", dimension="d"),
        battle("b", "a", "tie (bothbad)", question_id="4", dimension="d"),
    ]
    one, two, three, four = labels.average_votes(votes)
    assert (one.winner, one.score) == ("model_b", pytest.approx(1 / 3))
    assert (two.winner, two.score) == ("model_b", None)
    assert (three.winner, four.winner) == ("tie (bothbad)", "tie")
    assert Battles.from_rows([one, two, three, four]).scores().tolist() == (
        pytest.approx([1 / 3, 0, 0.5, 0.5])
    )


def test_several_answers_of_an_entrant_are_comparisons_of_their_own():
    again = replace(COMPARISON, draw_a=1, draw_b=1)
    known = KEY.comparisons_by_id([COMPARISON, again])
    assert len(known) == 4
    rows = [
        ("anna", labels.Label(page="", browser="", id="", choice="1"), shown)
        for shown in known.values()
    ]
    votes = labels.votes_from_labels(rows)
    first, second = labels.average_votes(votes)
    assert (first.draw_a, second.draw_a) == (0, 1)
    by = {"anna": votes[:2], "ben": votes[2:]}  # of different answers
    none = Battles.from_rows([])
    mutual = human_agreement.compare_with_people(by, none, name="opus", dimension="d")[
        1
    ]
    assert mutual["n_comparisons"] == 0


# What they say of a lead


def difference(higher: str, lower: str, value: float, **others: Any) -> Difference:
    about = {"dimension": "d", "std_error": 40.0, "significant": False}
    ends = {"ci_low": value - 80, "ci_high": value + 80, "p_holm": 0.3}
    return Difference(
        higher=higher, lower=lower, difference=value, **{**about, **ends, **others}
    )


LEAD = difference("ann", "bob", 275.0, significant=True, p_holm=0.001)
SIGNIFICANT: Mapping[str, Any] = {"significant": True, "p_holm": 0.01}


@pytest.mark.parametrize(
    ("of_people", "n_more", "said"),
    [
        (difference("ann", "bob", 90.0, **SIGNIFICANT), None, "confirmed"),
        (difference("bob", "ann", 90.0, **SIGNIFICANT), None, "contradicted"),
        (difference("bob", "ann", 40.0), 113, "open: needs about 120 more labels"),
        (
            difference("ann", "bob", 40.0),
            0,
            "open: the labels show a difference below 100 points",
        ),
        (None, None, "open: no labels connect the two"),
    ],
)
def test_a_lead_is_confirmed_contradicted_or_open(
    of_people: Difference | None, n_more: int | None, said: str
):
    scope = Scope(kind="people")
    found = conclude_lead(LEAD, of_people, n_more=n_more, scope=scope)
    assert words.state(found, 100.0) == said
    assert (found.subject, found.rival) == ("ann", "bob")
    if of_people is not None and of_people.higher == "bob":
        assert found.effect is not None
        value = -(of_people.difference or 0)
        assert found.effect.value == value
        assert (found.effect.low, found.effect.high) == (value - 80, value + 80)


def test_a_difference_that_skipped_comparisons_may_explain_is_open():
    """ann won 30 of 36 prompts. If she lost the 20 that were skipped, she won 30 of 56."""
    votes = [
        Battle(
            model_a="ann",
            model_b="bob",
            winner=WINNERS[int(q % 6 == 5)],
            question_id=f"q{q}",
            judge_model=f"p{q % 7}",
            source="human",
            dimension="d",
        )
        for q in range(36)
    ]
    battles = {"d": Battles.from_rows(votes)}
    skipped = [
        MissingBattle(model_a="bob", model_b="ann", question_id=f"q{q}", judge_model=f"p{q % 7}")
        for q in range(36, 56)
    ]  # fmt: skip
    tested = differences(rate_with_unbeaten(BRADLEY_TERRY, battles))
    assert [one.significant for one in tested] == [True]
    (found,) = human_agreement.count_skipped(
        tested, battles, {"d": skipped}, BRADLEY_TERRY
    )
    assert not found.significant and (found.p_holm or 0.0) > 0.05
    assert [
        *human_agreement.count_skipped(tested, battles, {}, BRADLEY_TERRY)
    ] == tested
    said = conclude_lead(LEAD, found, n_more=9, scope=Scope(), n_skipped=20)
    assert (
        words.state(said, 100.0)
        == "open: the 20 skipped comparisons may explain the difference"
    )


def test_labels_more_are_those_that_show_the_difference_four_times_in_five():
    """An error of 40 at 200 labels; six tests, so p < .05 / 6, 2.64 errors, and .84 for the power."""
    found = difference("ann", "bob", 120.0)
    asked = {"n_labels": 200, "n_tests": 6, "half_width": 100.0}
    n = human_agreement.labels_to_decide(found, **asked)
    assert n == pytest.approx(200 * ((2.64 + 0.84) * 40 / 120) ** 2 - 200, abs=5)
    # a smaller difference than was asked for is not looked for
    small, hundred = (
        human_agreement.labels_to_decide(difference("ann", "bob", value), **asked)
        for value in (3.0, 100.0)
    )
    assert small == hundred > n
    enough = difference("ann", "bob", 3.0, std_error=20.0)
    assert human_agreement.labels_to_decide(enough, **asked) == 0
    assert human_agreement.labels_to_decide(None, **asked) is None


ROW = {
    "first": "ann",
    "second": "bob",
    "difference": 275.0,
    "ci_low": 204.0,
    "ci_high": 346.0,
    "p_holm": 0.0002,
    "one_sided": False,
    "n_prompts": 93,
    "judge": "opus",
}


def contradicted(higher: str = "ann") -> list[Conclusion]:
    found = difference("bob", higher, 90.0, **SIGNIFICANT)
    lead = replace(LEAD, higher=higher)
    return [conclude_lead(lead, found, n_more=None, scope=Scope(kind="people"))]


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        (
            "leads",
            "model",
            "the judge prefers ann to bob by 275 points [204, 346], p < .001; people prefer bob to ann by 90 points "
            "[10, 170], p = .010",
        ),
        (
            "unchecked",
            "model",
            "according to opus (not checked), ann is ahead of bob by 275 points [204, 346], p < .001; people prefer "
            "bob to ann by 90 points [10, 170], p = .010",
        ),
        (
            "words",
            "words",
            "ann is ahead of bob by 275 points [204, 346], p < .001, but people prefer bob to ann by 90 points "
            "[10, 170], p = .010. Word overlap only, not a quality judgement",
        ),
    ],
)
def test_a_judge_whose_lead_is_contradicted_loses_leads(
    state: str, kind: str, said: str
):
    found = conclude_judge({**ROW, "state": state}, contradicted(), kind=kind)
    assert found is not None
    assert found.state == ("caution" if state == "leads" else state)
    assert tournament_sentences.sentence(found) == said
    assert "leads" not in tournament_sentences.sentence(found)


def test_a_revoked_lead_at_equal_length_says_so():
    raw = {"raw_difference": 310.0, "raw_ci_low": 240.0, "raw_ci_high": 380.0}
    row = {**ROW, "state": "leads", "adjusted_for": ["length"], **raw}
    found = conclude_judge(row, contradicted(), kind="model")
    assert found is not None
    said = tournament_sentences.sentence(found)
    assert said.startswith("at equal length, the judge prefers ann to bob by 275 ")
    assert "(raw lead 310 points [240, 380])" in said
    assert tournament_sentences.as_row(found)["raw_difference"] == 310.0


@pytest.mark.parametrize(
    ("low", "n", "is_chance"),
    [(-0.12, 180, True), (0.0, 180, True), (0.01, 180, False), (-0.12, 19, None), (None, 180, None)],
)  # fmt: skip
def test_a_judge_that_agrees_with_people_by_chance_loses_leads(
    low: float | None, n: int, is_chance: bool | None
):
    """Its kappa is -0.01 up to 0.10, from 20 comparisons on; fewer do not tell."""
    row = {"kappa": -0.01, "ci_low": low, "ci_high": 0.10, "n_comparisons": n}
    assert human_agreement.is_at_chance(row) is is_chance
    found = conclude_judge({**ROW, "state": "leads"}, [], kind="model", agreement=row)
    assert (found is not None) == bool(is_chance)
    if found is not None:
        assert found.state == "caution"
        assert "its agreement with people may be chance (kappa −0.01 [" in (
            tournament_sentences.sentence(found)
        )


@pytest.mark.parametrize(
    ("n_for", "n_against", "n_skipped", "hides"),
    [
        (55, 5, 0, False),
        (55, 5, 3, False),
        (10, 5, 45, True),  # all but five of 50 labels against the judge are skipped
        (40, 0, 30, True),  # people who agree with the judge wherever they label
    ],
)
def test_labels_that_people_skip_do_not_bring_a_lead_back(
    n_for: int, n_against: int, n_skipped: int, hides: bool
):
    """Each comparison is on a different prompt. The judge prefers ann on two thirds, and people label or skip each."""

    def one(i: int, winner: str) -> Battle:
        sides = {"model_a": "ann", "model_b": "bob"}
        return Battle(**sides, winner=winner, question_id=f"p{i}", dimension="d")

    n = n_for + n_against
    judge = Battles.from_rows(
        [one(i, "model_a" if i % 3 else "model_b") for i in range(n + n_skipped)]
    )
    opposite = {"model_a": "model_b", "model_b": "model_a"}
    votes = [
        replace(row, winner=row.winner if i < n_for else opposite[row.winner])
        for i, row in enumerate(judge.rows())
        if i < n
    ]
    skipped = [
        MissingBattle(model_a="ann", model_b="bob", question_id=f"p{i}", dimension="d")
        for i in range(n, n + n_skipped)
    ]
    lead = Difference(
        dimension="d", higher="ann", lower="bob", difference=100.0, significant=True
    )
    found = human_agreement.may_hide_disagreement(
        Battles.from_rows(votes), skipped, judge, [lead], BRADLEY_TERRY
    )
    assert found is hides
    hiding = n_skipped if found else 0
    row = {**ROW, "state": "leads"}
    corrected = conclude_judge(row, [], kind="model", n_hiding=hiding)
    assert (corrected is not None) == hides
    if corrected is not None:
        assert corrected.state == "caution"
        said = tournament_sentences.sentence(corrected)
        assert f"people skipped {n_skipped} comparisons, on which they may" in said


def test_what_is_not_said_of_the_first_is_not_corrected():
    """A conclusion that names no first stays, and so does one whose own leads all stand."""
    assert (
        conclude_judge({**ROW, "state": "undecided"}, contradicted(), kind="model")
        is None
    )
    assert (
        conclude_judge({**ROW, "state": "leads"}, contradicted("cat"), kind="model")
        is None
    )


# The command, from the page to the certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament of the probes on 93 prompts, and the page of 180 of its comparisons."""
    folder = tmp_path_factory.mktemp("people")
    run(*LOCAL, "rubric=[factuality]", "hydra.run.dir=first", folder=folder)
    make(folder)
    return folder


def make(folder: Path, *settings: str) -> str:
    return run("experiment=label", "run=first", *settings, folder=folder).out


def island(page: Path) -> dict[str, Any]:
    """What the page holds for its script."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


RANKS = {
    "probe_hedged": 0,
    "probe_reference": 1,
    "probe_partial": 2,
    "probe_swapped": 3,
}


def label(
    folder: Path,
    name: str,
    *,
    page: str = "label.html",
    seed: int = 0,
    n: int | None = None,
    noise: float = 0.2,
    ranks: Mapping[str, int] = RANKS,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A file as the page exports it, of somebody who mostly prefers those first in RANKS."""
    key = Key.read(folder / "first/labels/key.json")
    rows = [
        json.loads(line)
        for line in (folder / "first/matches/matches.jsonl").read_text().splitlines()
    ]
    known = key.comparisons_by_id(
        replace(
            COMPARISON,
            **{name: row[name] for name in ("prompt_id", "dimension", "entrant_a", "entrant_b")},
        )
        for row in rows
    )  # fmt: skip
    rng, data = np.random.default_rng(seed), island(folder / "first/labels" / page)
    found = []
    for item in data["items"][:n]:
        shown = known[item["id"]]
        is_first = ranks[shown.entrant_a] < ranks[shown.entrant_b]
        drawn, said = rng.random(2)
        choice = "1" if is_first == (drawn > noise) else "2"
        choice = "tie" if said < 0.1 else "both bad" if said > 0.95 else choice
        found.append(
            {"page": data["page"], "browser": f"{name}", "id": item["id"], "choice": choice}
            | {"seconds": 12.5, **(changes or {})}
        )  # fmt: skip
    return write_jsonl(folder / f"{name}.jsonl", found)


def read_back(folder: Path, *names: str, **others: Any) -> Ran:
    files = ",".join(f"{name}.jsonl" for name in names)
    given = ("experiment=label", "run=first", f"labels=[{files}]", *LOCAL)
    return attempt(*given, folder=folder)


@pytest.mark.system
def test_the_page_names_no_entrant_verdict_or_score_and_fetches_nothing(folder: Path):
    text = (folder / "first/labels/label.html").read_text(encoding="utf-8")
    for name in (*PROBES, "lexical", "medqa-", "medmcqa-", "score_a", "winner"):
        assert name not in text
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="(.*?)"', text
    )
    assert html.unescape(policy).startswith("default-src 'none'; ")
    assert not re.search(r"https?:|src=|url\(|@import", text.replace(policy, ""))
    items = island(folder / "first/labels/label.html")["items"]
    assert len(items) == len({item["id"] for item in items}) == 180
    assert {*items[0]} == {"id", "prompt", "reference", "expected", "answers"}
    assert "Which response is truer?" in text  # what the judge was told to go by


@pytest.mark.system
def test_it_says_how_many_labels_there_are_and_how_long_they_take(folder: Path):
    out = make(folder)
    assert (
        "label: 180 of 558 comparisons on factuality, 93 prompts. They give differences to ± 100 points"
        in out
    )
    assert "180 labels, about 90 minutes" in out
    assert "first/labels/key.json" in out
    assert (
        "              python -m elo_exp experiment=label run=first 'labels=[anna.jsonl]'"
        in out
    )
    assert "too few to know differences to ± 10 points" in make(
        folder, "label.half_width=10"
    )
    make(folder)  # the page of the others


def test_a_changed_rubric_is_not_shown_as_what_the_judge_went_by(folder: Path):
    path = folder / "first/manifest.json"
    manifest = path.read_text(encoding="utf-8")
    other = json.loads(manifest)
    other["input_hashes"]["rubric factuality"] = "0" * 64
    path.write_text(json.dumps(other), encoding="utf-8")
    ran = run("experiment=label", "run=first", folder=folder)
    text = (folder / "first/labels/label.html").read_text(encoding="utf-8")
    path.write_text(manifest, encoding="utf-8")
    make(folder)
    assert "the rubric file of factuality is missing or has changed" in ran.err
    assert "Which response is truer?" not in text
    assert "Go by: factuality<" in text


def test_one_annotator_speaks_for_herself_and_revokes_no_lead(folder: Path):
    label(folder, "anna", noise=0.1)
    ran = read_back(folder, "anna")
    assert ran.code == 0, ran.err
    assert len(ran.rows("battles.jsonl")) == 180
    ratings = ran.read("ratings.json")
    said = ratings["conclusions"]["factuality"]
    assert (said["first"], said["state"]) == ("probe_hedged", "undecided")
    assert said["sentence"].startswith("anna prefers probe_hedged to ")
    assert said["whose"] == "These points reflect the votes in anna.jsonl."
    (one,) = ran.read("certificate.json").values()
    assert {lead["state"] for lead in one["leads"]} == {"open"}
    assert "labelled by one annotator, who may differ from others" in ran.out
    assert one["n_labels"] == {"anna": 180}
    assert one["conclusion"] is None
    assert "now:" not in ran.out
    with_people, mutual = one["agreement"]
    assert with_people["n_comparisons"] == 180
    assert mutual["n_comparisons"] == 0
    assert "not known, because no comparison has two labels" in ran.out


@pytest.mark.system
def test_five_annotators_are_people_and_may_revoke_a_lead(folder: Path):
    """Each has a file; rated as any other votes, the same rows make the same claim."""
    make(folder, "label.annotators=5", "label.n=300")
    for n in range(1, 6):
        label(folder, f"p{n}", page=f"label_{n}.html", seed=n, noise=0.05)
    ran = read_back(folder, *(f"p{n}" for n in range(1, 6)))
    assert ran.code == 0, ran.err
    said = ran.read("ratings.json")["conclusions"]["factuality"]
    assert (said["first"], said["state"]) == ("probe_hedged", "leads")
    (one,) = ran.read("certificate.json").values()
    states = {(lead["higher"], lead["lower"]): lead["state"] for lead in one["leads"]}
    assert states["probe_reference", "probe_hedged"] == "contradicted"
    assert states["probe_reference", "probe_swapped"] == "confirmed"
    assert one["conclusion"]["state"] == "words"
    assert one["conclusion"]["reasons"][0]["name"] == "people"
    assert "with the labels: probe_reference is ahead" in " ".join(ran.out.split())
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    assert "Before the labels" in page
    battles = ran.run_dir / "battles.jsonl"
    given = ("experiment=rate", f"battles={battles}", "elo.n_perms=2", *LOCAL[:2])
    again = run(*given, folder=folder)
    rated = again.read("ratings.json")["conclusions"]["factuality"]
    assert [rated[name] for name in ("state", "sentence", "ci_low")] == [
        said[name] for name in ("state", "sentence", "ci_low")
    ]


def test_two_annotators_have_a_ceiling_and_each_label_counts(folder: Path):
    out = make(folder, "label.annotators=2", "label.n=120")
    assert "72 labels" in out
    label(folder, "one", page="label_1.html", seed=1, noise=0.1)
    label(folder, "two", page="label_2.html", seed=2, noise=0.1)
    ran = read_back(folder, "one", "two")
    assert ran.code == 0, ran.err
    (one,) = ran.read("certificate.json").values()
    assert one["n_labels"] == {"one": 72, "two": 72}
    assert one["n_comparisons"] == 120
    assert len(ran.rows("battles.jsonl")) == 144
    mutual = one["agreement"][1]
    assert mutual["n_comparisons"] == 24
    assert mutual["ci_low"] > 0
    assert "people agree with each other on" in ran.out


# What is refused


def refused(ran: Ran) -> str:
    assert ran.code == 2, ran.out
    assert "Traceback" not in ran.err
    return ran.err[ran.err.index("elo_exp: ") :].rstrip()


def test_too_few_labels_are_an_error_of_evidence(folder: Path):
    label(folder, "too_few", n=12)
    labels_setting = f"labels=[{folder / 'too_few.jsonl'}]"
    with pytest.raises(
        elo_exp.EvidenceError, match="12 labels on 12 prompts are too few"
    ):
        elo_exp.run("experiment=label", f"run={folder / 'first'}", labels_setting)


def test_too_few_labels_say_nothing(folder: Path):
    """Twelve labels, and thirty on twelve prompts."""
    label(folder, "few", n=12)
    assert refused(read_back(folder, "few")).startswith(
        "elo_exp: 12 labels on 12 prompts are too few. At least 30 labels on 20 prompts are needed."
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"page": "0" * 16}, "bad.jsonl:1 is of another run's page. Give the run whose page was labelled:\n  run=DIR"),
        ({"id": "0" * 16}, 'bad.jsonl:1 labels the comparison "0000000000000000", which the run does not have.'),
        ({"choice": "3"}, 'bad.jsonl:1: choice must be 1, 2, tie, both bad or skip; got "3".'),
    ],
)  # fmt: skip
def test_labels_of_other_pages_and_comparisons_are_refused(
    folder: Path, changes: Mapping[str, Any], words: str
):
    label(folder, "bad", changes=changes)
    assert words in refused(read_back(folder, "bad"))


def test_annotators_who_agree_no_more_than_by_chance_are_refused(folder: Path):
    make(folder)
    label(folder, "anna")
    label(folder, "dice", noise=0.5, seed=9)
    line = refused(read_back(folder, "anna", "dice"))
    assert "anna and dice do not agree measurably more than by chance: kappa " in line


def test_how_many_shared_comparisons_would_tell_is_said():
    """An interval as wide as its kappa takes (2.8 / 1.96)^2, twice as many; one twice as wide, eight times."""
    row = {"kappa": 0.25, "ci_low": 0.0, "n_comparisons": 36}
    assert "about 74 comparisons with labels of both are enough" in words.more_of_both(
        row
    )
    wide = words.more_of_both({**row, "ci_low": -0.25})
    assert "about 300 comparisons with labels of both are enough" in wide
    assert words.more_of_both({**row, "kappa": -0.1, "ci_low": -0.3}) == ""


def test_annotators_without_a_comparison_in_common_are_refused(folder: Path):
    make(folder, "label.annotators=2", "label.overlap=0")
    label(folder, "one", page="label_1.html")
    label(folder, "two", page="label_2.html")
    assert "one and two labelled no comparison in common" in refused(
        read_back(folder, "one", "two")
    )


def test_one_persons_labels_are_not_two_persons(folder: Path):
    make(folder)
    label(folder, "anna")
    label(folder, "copy", changes={"browser": "anna"})
    assert "labels has two files from one browser" in refused(
        read_back(folder, "anna", "copy")
    )
    assert "labels has two files called anna" in refused(
        read_back(folder, "anna", "anna")
    )


def test_a_comparison_that_stands_twice_is_refused(folder: Path):
    path = label(folder, "twice")
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text.splitlines()[0] + "\n", encoding="utf-8")
    assert "twice.jsonl:181 labels a comparison again, after twice.jsonl:1." in (
        refused(read_back(folder, "twice"))
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((), "experiment=label needs the folder of a finished run"),
        (("run=absent",), "absent is not a run folder: it has no manifest.json."),
        (("run=first", "label.dimension=tone"),
         'label.dimension must be a rubric on which first has comparisons; got "tone". '
         'Choose one:\n  label.dimension=factuality'),
        (("run=first", "labels=[absent.jsonl]"), "File not found: absent.jsonl"),
        (("run=first", "rating=[davidson]"),
         "rating must include bradley_terry, which tests the labels' differences; got davidson."),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(folder: Path, given: Sequence[str], line: str):
    assert line in refused(attempt("experiment=label", *given, *LOCAL, folder=folder))


def test_labels_without_the_key_of_their_run_are_refused(folder: Path):
    path = folder / "first/labels/key.json"
    text = path.read_text(encoding="utf-8")
    label(folder, "anna")
    path.write_text('{"key": "xyz"}', encoding="utf-8")
    assert 'key.json: key must be hexadecimal digits; got "xyz".' in refused(
        read_back(folder, "anna")
    )
    path.unlink()
    assert "File not found: first/labels/key.json" in refused(read_back(folder, "anna"))
    path.write_text(text, encoding="utf-8")


# Many entrants


N_MANY = 20


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twenty entrants, m00 the best, whose judge mostly knows it, and a page."""
    folder = tmp_path_factory.mktemp("many")
    names, prompts = [f"m{i:02}" for i in range(N_MANY)], [f"q{k}" for k in range(30)]
    for name in names:
        rows = [
            {"question_id": q, "question": f"Why {q}?", "answer": f"{name} {q}"}
            for q in prompts
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    rng = np.random.default_rng(1)
    write_jsonl(folder / "verdicts.jsonl", [
        {"model_a": a, "model_b": b, "question_id": q, "dimension": "preference", "judge_model": "opus"}
        | {"winner": w, "verdict_ab": w, "verdict_ba": w}
        for q in prompts
        for a, b in combinations(names, 2)
        for w in ["model_a" if rng.random() < 0.5 + (int(b[1:]) - int(a[1:])) / 45 else "model_b"]
    ])  # fmt: skip
    files = [f"{name}.jsonl" for name in names]
    asked = ("judge=replay", "judge.path=verdicts.jsonl", "judging.orders=one")
    run(*files, *asked, "judging.opponents=4", *LOCAL, "hydra.run.dir=first", folder=folder)  # fmt: skip
    make(folder, "label.n=150")
    return folder


@pytest.mark.system
def test_from_twenty_entrants_on_peoples_board_is_the_joint_fit_and_claims_are_of_labels_alone(
    many: Path,
):
    ranks = {f"m{i:02}": i for i in range(N_MANY)}
    label(many, "anna", ranks=ranks)
    ran = read_back(many, "anna")
    assert ran.code == 0, ran.err
    boards = ran.read("ratings.json")["dimensions"]["preference"]
    assert boards["joint"]["label"] == "Calibrated"
    assert {row["model"] for row in boards["joint"]["ratings"]} == {*ranks}
    assert None not in [row["rating"] for row in boards["joint"]["ratings"]]
    assert "Calibrated, joint fit of votes and verdicts" in ran.out
    alone = {row["model"]: row["rating"] for row in boards["bradley_terry"]["ratings"]}
    joint = {row["model"]: row["rating"] for row in boards["joint"]["ratings"]}
    truth = {name: -rank for name, rank in ranks.items()}
    of_joint, of_labels = (
        np.corrcoef([truth[name] for name in board], [*board.values()])[0, 1]
        for board in (joint, {name: r for name, r in alone.items() if r is not None})
    )
    assert of_joint > of_labels
    differences = ran.read("ratings.json")["differences"]
    assert [*differences] == ["bradley_terry"]


@pytest.mark.system
def test_a_judge_that_does_not_follow_people_leaves_their_labels_alone(many: Path):
    """Its order is theirs turned round."""
    ranks = {f"m{i:02}": -i for i in range(N_MANY)}
    label(many, "ben", ranks=ranks)
    ran = read_back(many, "ben")
    assert ran.code == 0, ran.err
    assert (
        "leaderboard labels alone, because the judge has not been shown to follow"
        in (" ".join(ran.out.split()))
    )
    assert [*ran.read("ratings.json")["dimensions"]["preference"]] == [
        "elo",
        "bradley_terry",
    ]


# What labels are worth


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(4, 200), (4, 50), (6, 200)])
def test_intervals_of_labels_alone_hold_the_truth(m: int, n: int):
    """In .947, .955 and .958 of the differences; of few labels those of a tournament that cannot be rated are left out."""
    found = people_worlds.of_labels(Labelled(m, n), 400)
    assert 0.93 <= found["coverage"] <= 0.97, found
    assert found["wrong"] <= 0.01, found
    assert found["half_width"] <= 1.1 * 670 / (n / m) ** 0.5, found


@pytest.mark.slow
def test_from_many_entrants_on_the_joint_fit_holds_the_crowds_ratings_and_misses_by_less():
    found = people_worlds.of_crowd(200, 6)
    assert 0.93 <= found["joint"]["coverage"] <= 0.98, found
    assert found["joint"]["rmse"] < found["labels"]["rmse"], found
    assert found["joint"]["rated"] == 1.0 > found["labels"]["rated"], found


# Several judges


@pytest.mark.system
def test_labels_say_how_many_votes_several_judges_are_worth(tmp_path: Path):
    """The labels belong to the folder of one judge. Judges that compare words make the same mistakes."""
    given = (
        "judge=[near:lexical,wide:lexical,first:lexical]",
        "judges.wide.margin=0.2",
        "judges.first.position_effect=0.5",
        "rubric=[factuality]",
    )
    run(*LOCAL, *given, "hydra.run.dir=all", folder=tmp_path)
    (tmp_path / "first").symlink_to("all/judges/near", target_is_directory=True)
    (tmp_path / "all/judges/near/labels").symlink_to("../../labels")
    make(tmp_path)
    assert (tmp_path / "all/labels/label.html").is_file()
    label(tmp_path, "anna", noise=0.1)
    said = "3 judges tend to make the same errors (rho "
    found = []
    for name in ("near", "wide"):  # the same labels say what each judge is worth, too
        words = ("experiment=label", f"run=all/judges/{name}", "labels=[anna.jsonl]")
        ran = run(*words, *LOCAL, folder=tmp_path)
        assert said in " ".join(ran.out.split()) and said in ran.page.text
        found.append(ran.read("certificate.json")["factuality"])
    near, wide = found
    assert near["agreement"][0] != wide["agreement"][0]
    votes = near["votes"]
    assert votes == wide["votes"]
    assert votes["judges"] == ["first", "near", "wide"] and votes["n"] == 180
    assert 0.3 < votes["rho"] < 0.9 and votes["votes"] < 2.0
    assert votes["no_claim"] is None


def test_an_error_is_another_outcome_than_a_label():
    """Two labels that differ leave half an error whatever a judge says; comparisons that one has not judged are out."""
    people_say = [
        battle("a", "b", "model_a", question_id="1"),
        battle("a", "b", "model_b", question_id="1"),
        battle("a", "b", "tie", question_id="2"),
        battle("b", "a", "model_a", question_id="3"),
    ]
    one = [battle("b", "a", "model_b", question_id=q) for q in "123"]
    other = [battle("a", "b", "tie", question_id=q) for q in "12"]
    found, prompts = label_errors(
        Battles.from_rows(people_say),
        {"one": Battles.from_rows(one), "other": Battles.from_rows(other)},
    )
    assert found["one"].tolist() == [0.5, 1.0]
    assert found["other"].tolist() == [1.0, 0.0]
    assert len(set(prompts.tolist())) == 2
