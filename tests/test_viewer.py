"""The verdicts inside a page: every comparison with its texts, and harmless whatever the texts are."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp.records import Comparison, Judgment, Verdict
from elo_exp.report import viewer
from tests.test_tournament_page import HOSTILE, page, rated, simulated


def judged(
    prompt: str,
    first: str,
    second: str,
    *,
    text: str = "answer",
    entrants: tuple[str, str] = ("ann", "bob"),
) -> tuple[Comparison, Judgment]:
    """The verdicts of both orders by the letters that the judge gave."""
    a, b = entrants
    comparison = Comparison(
        prompt_id=prompt,
        dimension="d",
        source="medqa",
        prompt_text=f"What is {prompt}?",
        entrant_a=a,
        entrant_b=b,
        response_a=f"{text} of {a} to {prompt}",
        response_b=f"{text} of {b} to {prompt}",
    )
    letters = ((first, False), (second, True))
    verdicts = [
        Verdict(
            cache_key="k", rubric_version="v1", judge_model="j", position_swap=swap,
            verdict=letter, reasoning=f"because {text}",
        )
        for letter, swap in letters
    ]  # fmt: skip
    named = [named_by(letter, swap, entrants) for letter, swap in letters]
    is_invalid, agree = None in named, named[0] == named[1]
    judgment = Judgment(
        prompt_id=prompt,
        dimension="d",
        entrant_a=a,
        entrant_b=b,
        winner=named[0] if agree and named[0] in entrants else None,
        inconsistent=not is_invalid and not agree,
        invalid=is_invalid,
        raw=tuple(verdicts),
    )
    return comparison, judgment


def named_by(letter: str, swapped: bool, entrants: tuple[str, str]) -> str | None:
    """The entrant that a letter names."""
    shown = entrants[::-1] if swapped else entrants
    return {"A": shown[0], "B": shown[1], "TIE": "tie", "INVALID": None}[letter]


PAIRS = [
    judged("q1", "A", "B"),
    judged("q2", "B", "A"),
    judged("q3", "TIE", "TIE"),
    judged("q4", "A", "A"),
    judged("q5", "A", "INVALID"),
]


def texts(pairs: Sequence[tuple[Comparison, Judgment]] = PAIRS, **options: Any) -> Any:
    comparisons, judgments = zip(*pairs, strict=True)
    ratings = {"d": {"ann": 1500.0, "bob": 1300.0}}
    return viewer.collect_texts(
        {"d": comparisons}, {"d": judgments}, ratings, **options
    )


def unpacked(found: Any) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(base64.b64decode(found.island))))


def test_every_comparison_can_be_read_back():
    data = unpacked(texts())
    for row, (c, judgment) in zip(data["rows"], PAIRS, strict=True):
        prompt_id, dimension, *entrants, _, orders = row
        assert (prompt_id, dimension, entrants) == (c.prompt_id, "d", ["ann", "bob"])
        prompt = data["prompts"][prompt_id]
        assert prompt["text"] == c.prompt_text
        assert prompt["answers"] == {"ann": c.response_a, "bob": c.response_b}
        for order, verdict in zip(orders, judgment.raw, strict=True):
            swapped, winner, reason = order
            named = named_by(verdict.verdict, bool(swapped), c.entrants)
            names = {"a": "ann", "b": "bob", "tie": "tie", "invalid": None}
            assert names[winner] == named
            assert reason == verdict.reasoning
    outcomes = [row[4] for row in data["rows"]]
    assert outcomes == ["a", "b", "tie", "flipped", "invalid"]


def test_the_reference_of_a_prompt_stays_where_another_rubric_does_not_show_it():
    comparison, judgment = judged("q1", "A", "B")
    shown = dataclasses.replace(comparison, gold_answer="the nerve"), judgment
    other = judged("q1", "A", "B", entrants=("ann", "cid"))
    (prompt,) = unpacked(texts([shown, other]))["prompts"].values()
    assert prompt["reference"] == "the nerve"


def test_an_upset_a_flip_and_an_invalid_verdict_are_worth_reading():
    found = texts().notable
    assert [one.kind for one in found] == ["upset", "flipped", "invalid"]
    assert (found[0].judgment.winner, found[0].upset) == ("bob", 200.0)


def test_of_more_texts_than_fit_those_worth_reading_come_first_then_some_of_each_pair():
    others = [
        judged(f"{pair}{q}", "A", "B", entrants=(pair, "z"))
        for pair in "xy"
        for q in range(200)
    ]
    found = texts([*others, *PAIRS], max_characters=3000)
    data = unpacked(found)
    kept = [name for name, prompt in data["prompts"].items() if "text" in prompt]
    assert len(kept) == found.n_kept < found.n_comparisons == 405
    assert {"q2", "q4", "q5"} <= set(kept)  # upset, flipped, invalid
    n_of = {pair: sum(name[0] == pair for name in kept) for pair in "xy"}
    assert 10 < n_of["x"] <= n_of["y"] + 1 <= n_of["x"] + 2
    sample = [int(name[1:]) for name in kept if name[0] == "x"]
    assert 50 < sum(sample) / len(sample) < 150  # and not the first of the bank
    whole = {row[0] for row in data["rows"] if row[5][0][2] is not None}
    assert whole == set(kept)
    assert viewer.collect_texts({}, {}, {}) is None


@pytest.mark.parametrize("hostile", HOSTILE)
def test_texts_are_shown_and_not_run(hostile: str):
    models = ("ann", "bob")
    some = rated(simulated(models, n_prompts=25), models, "bradley_terry")
    comparison, judgment = judged(hostile, "A", "A", text=hostile)
    reader = page(some, [], [], {"d": [comparison]}, {"d": [judgment]})
    tags = [tag for tag, _ in reader.tags]
    assert "img" not in tags
    assert tags.count("script") == 2  # the data, and the page's own
    assert " ".join(f"{hostile} of ann".split()) in reader.said
    assert "Select a cell to read its comparisons." in reader.said


def test_the_script_makes_text_of_everything():
    script = Path(viewer.__file__).with_name("templates") / "report.js"
    sinks = (
        "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval|setTimeout|fetch"
    )
    assert not re.search(sinks, script.read_text(encoding="utf-8"))


def test_rubrics_that_show_other_turns_have_their_own_texts():
    """The first turn alone, and the conversation with its turns: one prompt under two keys."""
    first, judgment = judged("p1", "A", "B")
    talk = dataclasses.replace(
        first,
        dimension="turn 2",
        response_a='<turn role="assistant">\na1\n</turn>',
        response_b='<turn role="assistant">\nb1\n</turn>',
        in_turns=True,
    )
    later = dataclasses.replace(judgment, dimension="turn 2")
    found = viewer.collect_texts({"d": [first], "turn 2": [talk]}, {"d": [judgment], "turn 2": [later]}, {})  # fmt: skip
    assert found is not None
    data = json.loads(gzip.decompress(base64.b64decode(found.island)))
    places = [row[0] for row in data["rows"]]
    assert places == ["p1", "p1\n1"]
    plain, turns = (data["prompts"][place] for place in places)
    assert plain["answers"]["ann"] == first.response_a
    assert (turns["id"], turns["in_turns"]) == ("p1", True)
    assert turns["answers"]["ann"] == talk.response_a
    assert "in_turns" not in plain


def test_three_wins_are_shown_that_the_two_best_entrants_can_be_understood_by():
    """Of each kind that whose answers differ most in length; a draw and a flip teach nothing."""
    answers = {"q1": ("a" * 90, "b" * 30), "q2": ("a" * 20, "b" * 80), "q3": ("a" * 50, "b" * 60),
               "q4": ("a" * 90, "b" * 80), "q5": ("a", "b" * 99)}  # fmt: skip
    letters = {"q1": "AB", "q2": "AB", "q3": "BA", "q4": "AB", "q5": ("TIE", "TIE")}
    pairs = []
    for prompt, (first, second) in answers.items():
        comparison, judgment = judged(prompt, *letters[prompt])
        changed = dataclasses.replace(comparison, response_a=first, response_b=second)
        pairs.append((changed, judgment))
    chosen = texts(pairs).instructive
    leader, rival = "ann", "bob"
    assert [(kind, c.comparison.prompt_id) for kind, c in chosen] == sorted(
        [
            (f"{leader} wins with the longer answer", "q1"),
            (f"{leader} wins without the longer answer", "q2"),
            (f"{rival} wins", "q3"),
        ]
    )
