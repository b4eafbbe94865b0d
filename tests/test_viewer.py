"""The verdicts inside a page: every comparison with its texts, and harmless whatever the texts are."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp.records import Comparison, Judgment, Verdict
from elo_exp.report import page, viewer
from tests.test_tournament_page import HOSTILE, rated, simulated
from tests.test_tournament_page import page as whole_page


def judged(
    prompt: str, first: str, second: str, *, text: str = "answer"
) -> tuple[Comparison, Judgment]:
    """The verdicts of both orders by the letters that the judge gave."""
    comparison = Comparison(
        prompt_id=prompt,
        dimension="d",
        source="medqa",
        prompt_text=f"What is {prompt}?",
        entrant_a="ann",
        entrant_b="bob",
        response_a=f"{text} of ann to {prompt}",
        response_b=f"{text} of bob to {prompt}",
    )
    named = [
        named_by(letter, swap) for letter, swap in ((first, False), (second, True))
    ]
    verdicts = [
        Verdict(
            cache_key="k",
            rubric_version="v1",
            judge_model="j",
            position_swap=swap,
            verdict=letter,
            reasoning=f"because {text}",
        )
        for letter, swap in ((first, False), (second, True))
    ]
    is_invalid = None in named
    agree = named[0] == named[1]
    judgment = Judgment(
        prompt_id=prompt,
        dimension="d",
        entrant_a="ann",
        entrant_b="bob",
        winner=named[0] if agree and named[0] in ("ann", "bob") else None,
        inconsistent=not is_invalid and not agree,
        invalid=is_invalid,
        raw=tuple(verdicts),
    )
    return comparison, judgment


def named_by(letter: str, swapped: bool) -> str | None:
    """The entrant whom a letter names."""
    shown = ["bob", "ann"] if swapped else ["ann", "bob"]
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
    return viewer.texts({"d": comparisons}, {"d": judgments}, ratings, **options)


def unpacked(found: Any) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(base64.b64decode(found.island))))


def test_every_comparison_can_be_read_back():
    data = unpacked(texts())
    for row, (comparison, judgment) in zip(data["rows"], PAIRS, strict=True):
        number, dimension, a, b, _, orders = row
        prompt = data["prompts"][number]
        assert (prompt["id"], prompt["text"]) == (
            comparison.prompt_id,
            comparison.prompt_text,
        )
        assert data["dimensions"][dimension] == "d"
        assert [data["entrants"][i] for i in (a, b)] == ["ann", "bob"]
        assert prompt["answers"] == {
            "0": comparison.response_a,
            "1": comparison.response_b,
        }
        for (swapped, winner, reason), verdict in zip(
            orders, judgment.raw, strict=True
        ):
            named = named_by(verdict.verdict, bool(swapped))
            shown = ["ann", "bob", "tie", "flipped", None][winner]
            assert shown == named
            assert data["reasons"][reason] == verdict.reasoning
    outcomes = [viewer.OUTCOMES[row[4]] for row in data["rows"]]
    assert outcomes == ["a", "b", "tie", "flipped", "invalid"]


def test_an_upset_a_flip_and_an_invalid_verdict_are_worth_reading():
    found = texts().notable
    assert [some.kind for some in found] == ["upset", "flipped", "invalid"]
    assert (found[0].winner, found[0].gap) == ("bob", 200.0)


def test_of_more_texts_than_fit_those_with_flips_and_invalid_verdicts_are_kept():
    found = texts(max_characters=200)
    prompts = {prompt["id"]: prompt for prompt in unpacked(found)["prompts"]}
    kept = {name for name, prompt in prompts.items() if "text" in prompt}
    assert kept == {"q4", "q5"}
    assert (found.n_kept, found.n_prompts, found.n_comparisons) == (2, 5, 5)
    assert viewer.texts({}, {}, {}) is None


@pytest.mark.parametrize("hostile", HOSTILE)
def test_texts_are_shown_and_not_run(hostile: str):
    some = rated(
        simulated(("ann", "bob"), n_prompts=25), ("ann", "bob"), "bradley_terry"
    )
    pairs = [judged(hostile, "A", "A", text=hostile)]
    comparisons, judgments = zip(*pairs, strict=True)
    reader = whole_page(
        some, comparisons={"d": comparisons}, judgments={"d": judgments}
    )
    tags = [tag for tag, _ in reader.tags]
    assert "img" not in tags
    assert tags.count("script") == 2  # the data, and the page's own
    assert " ".join(f"{hostile} of ann".split()) in reader.said
    assert "A cell leads to its verdicts." in reader.said


def test_the_script_makes_text_of_everything():
    script = Path(page.__file__).with_name("templates") / "report.js"
    sinks = (
        "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval|setTimeout|fetch"
    )
    assert not re.search(sinks, script.read_text(encoding="utf-8"))
