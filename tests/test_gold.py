"""Pairs with a known better answer: their files, and how often a judge is right on them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from elo_exp.analysis.agreement import gold_results
from elo_exp.analysis.win_rates import wilson_interval
from elo_exp.data import labelled_pairs
from elo_exp.data.labelled_pairs import GoldPair
from elo_exp.errors import UserError
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
    (pair,) = labelled_pairs.read_pairs(lines)
    assert (pair.prompt, pair.response_a, pair.response_b) == ("2 + 2?", "4", "5")
    assert (pair.label, pair.subset) == ("a", subset)
    assert labelled_pairs.read_pairs(whole) == [pair]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{**OWN, "label": "c"}], 'label must be one of a, b, tie; got "c"'),
        ([{**OWN, "prompt": None}], "row 1 has no prompt, or not two responses"),
        (
            [{"text": "x"}],
            "has no column for the prompt, answer A, answer B and the human label",
        ),
        ([], "holds no pairs"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, content, message):
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        labelled_pairs.read_pairs(file)


def pair(number: int, label: str, subset: str) -> GoldPair:
    row = {**OWN, "pair_id": str(number), "prompt": str(number)}
    return GoldPair(**{**row, "label": label, "subset": subset})


def test_accuracy_and_kappa_by_hand():
    """Right, right, flip, wrong and one that is invalid and right: (1 + 1 + ½ + 0 + ½) / 5.

    Of the valid four, labels a, b, a, b and winners a, b, tie, a agree on 2 of 4; chance is ½·½ + ½·¼ = 3/8, so that
    kappa is (1/2 - 3/8) / (5/8) = 1/5.
    """
    rows = [
        (pair(1, "a", "x"), judgment("A", "B")),
        (pair(2, "b", "x"), judgment("B", "A")),
        (pair(3, "a", "y"), judgment("A", "A")),
        (pair(4, "b", "y"), judgment("A", "B")),
        (pair(5, "b", "y"), judgment("INVALID", "A")),
    ]
    pairs = [row[0] for row in rows]
    judgments = [replace(row[1], prompt_id=row[0].pair_id) for row in rows]
    every, x, y = gold_results(pairs, judgments)
    assert (every["n"], every["n_invalid"], every["n_flips"]) == (5, 1, 1)
    assert (every["accuracy"], every["strict"]) == (0.6, 0.4)
    ends = wilson_interval(0.6, 5)[0], wilson_interval(0.7, 5)[1]
    assert (every["low"], every["high"]) == pytest.approx(ends)
    assert every["kappa"] == pytest.approx(0.2)
    assert [(row["subset"], row["accuracy"]) for row in (x, y)] == [
        ("x", 1.0),
        ("y", pytest.approx(1 / 3)),
    ]
    assert 0.3 < x["low"] < x["high"] == 1.0


def test_accuracy_is_that_of_the_authors_of_labelled_pairs():
    """LLMBar counts an invalid verdict as wrong: PaLM 2 on its 100 natural pairs has 83%, of which two have no verdict.

    The counts are those of its repository: 78 right in the first order, 88 in the second, 73 in both.
    """
    orders = [("A", "B")] * 73 + [("A", "A")] * 5 + [("B", "B")] * 15 + [("B", "A")] * 5
    orders += [("INVALID", "INVALID")] * 2
    pairs = [pair(n, "a", "natural") for n in range(100)]
    judgments = [
        replace(judgment(*letters), prompt_id=one.pair_id)
        for one, letters in zip(pairs, orders, strict=True)
    ]
    (row,) = gold_results(pairs, judgments)
    assert (row["n"], row["n_invalid"]) == (100, 2)
    assert (row["accuracy"], row["strict"]) == (0.83, 0.73)
    low, high = wilson_interval(0.83, 100)[0], wilson_interval(0.85, 100)[1]
    assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_an_interval_holds_whatever_invalid_verdicts_would_have_been():
    """Of 30 pairs on ten prompts some lose their verdicts: the interval only widens."""
    rng = np.random.default_rng(5)
    pairs = [replace(pair(n, "a", "x"), prompt=str(n // 3)) for n in range(30)]
    letters = [("A", "B") if rng.random() < 0.7 else ("B", "A") for _ in pairs]
    ends = []
    for n_invalid in (0, 2, 5, 10):
        told = [
            ("INVALID", "INVALID") if n < n_invalid else own
            for n, own in enumerate(letters)
        ]
        judgments = [
            replace(judgment(*own), prompt_id=one.pair_id)
            for one, own in zip(pairs, told, strict=True)
        ]
        (row,) = gold_results(pairs, judgments)
        ends.append((row["low"], row["accuracy"], row["high"]))
    lows, _, highs = zip(*ends, strict=True)
    assert list(lows) == sorted(lows, reverse=True)
    assert list(highs) == sorted(highs)
    assert all(low <= share <= high for low, share, high in ends)
