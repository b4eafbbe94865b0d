"""Pairs with a known better answer: their files, and how often a judge is right on them."""

import json
from dataclasses import replace

import pytest

from elo_exp.analysis.agreement import gold_results
from elo_exp.data import gold
from elo_exp.data.gold import GoldPair
from elo_exp.records import UserError
from tests.test_judge_quality import judgment

OWN = {"prompt": "2 + 2?", "response_a": "4", "response_b": "5", "label": "a"}
LLMBAR = {"input": "2 + 2?", "output_1": "4", "output_2": "5", "label": 1}
JUDGE_BENCH = {
    "question": "2 + 2?",
    "response_A": "4",
    "response_B": "5",
    "label": "A>B",
    "source": "maths",
}


@pytest.mark.parametrize(
    ("row", "subset"), [(OWN, None), (LLMBAR, None), (JUDGE_BENCH, "maths")]
)
def test_three_formats_are_one_pair(tmp_path, row, subset):
    lines, whole = tmp_path / "pairs.jsonl", tmp_path / "dataset.json"
    lines.write_text(json.dumps(row) + "\n")
    whole.write_text(json.dumps([row, row]))
    (pair,) = gold.read(lines)
    assert (pair.prompt, pair.response_a, pair.response_b) == ("2 + 2?", "4", "5")
    assert (pair.label, pair.subset) == ("a", subset)
    assert gold.read(whole) == [pair]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{**OWN, "label": "c"}], "label: found 'c'"),
        ([{**OWN, "prompt": None}], "row 1: lacks a prompt"),
        ([{"text": "x"}], "Expected prompt, response_a"),
        ([], "has no pair"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, content, message):
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        gold.read(file)


def pair(number: int, label: str, subset: str) -> GoldPair:
    row = {**OWN, "pair_id": str(number), "prompt": str(number)}
    return GoldPair(**{**row, "label": label, "subset": subset})


def test_accuracy_and_kappa_by_hand():
    """Right, right, flip, wrong and one invalid: (1 + 1 + ½ + 0) / 4.

    Labels a, b, a, b and winners a, b, tie, a agree on 2 of 4; chance is ½·½ + ½·¼ = 3/8, so that
    kappa is (1/2 - 3/8) / (5/8) = 1/5.
    """
    rows = [
        (pair(1, "a", "x"), judgment("A", "B")),
        (pair(2, "b", "x"), judgment("B", "A")),
        (pair(3, "a", "y"), judgment("A", "A")),
        (pair(4, "b", "y"), judgment("A", "B")),
        (pair(5, "b", "y"), judgment("INVALID", "B")),
    ]
    pairs = [row[0] for row in rows]
    judgments = [replace(row[1], prompt_id=row[0].pair_id) for row in rows]
    every, x, y = gold_results(pairs, judgments)
    assert (every["n"], every["n_invalid"], every["n_flips"]) == (4, 1, 1)
    assert (every["accuracy"], every["strict"]) == (0.625, 0.5)
    assert every["low"] < 0.625 < every["high"]
    assert every["kappa"] == pytest.approx(0.2)
    assert [(row["subset"], row["accuracy"]) for row in (x, y)] == [
        ("x", 1.0),
        ("y", 0.25),
    ]
    assert 0.3 < x["low"] < x["high"] == 1.0
