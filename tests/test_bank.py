"""The prompt bank: what ships, what is refused on loading, and how the pilot's subset is drawn."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.data import bank
from elo_exp.files import write_jsonl
from elo_exp.records import Prompt, UserError
from tests.data import BANK, shared_data

PILOT = {"medmcqa_open": 8, "medqa": 24, "curated": 18}
PILOT_SEED = 20260427


def row(**changes: Any) -> dict[str, Any]:
    """A row of a bank; a change to None takes the key out."""
    full = {
        "prompt_id": "p1",
        "source": "medqa",
        "subject": "renal",
        "text": "Why?",
        "gold_answer": "Because.",
    }
    return {
        key: value for key, value in {**full, **changes}.items() if value is not None
    }


def prompts_of(**sizes: int) -> list[Prompt]:
    """A bank with so many prompts of each source, the sources taking turns as long as they last."""
    waiting = Counter(sizes)
    prompts = []
    while waiting := +waiting:
        for source in list(waiting):
            waiting[source] -= 1
            name = f"{source}-{waiting[source]}"
            prompts.append(
                Prompt(prompt_id=name, text=f"{name}?", source=source, subject="renal")
            )
    return prompts


def shingles(text: str) -> set[tuple[str, ...]]:
    """The runs of three words."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


@pytest.fixture(scope="module")
def shipped() -> list[Prompt]:
    return bank.load(BANK)


# The bank that ships


def test_the_shipped_bank_has_143_prompts_in_three_strata(shipped):
    assert Counter(p.source for p in shipped) == {
        "medmcqa_open": 24,
        "medqa": 69,
        "curated": 50,
    }


def test_a_curated_prompt_has_an_expected_behavior_and_every_other_one_a_gold_answer(
    shipped,
):
    for prompt in shipped:
        curated = prompt.source == "curated"
        assert (prompt.gold_answer is None) == curated, prompt.prompt_id
        assert (prompt.expected_behavior is None) != curated, prompt.prompt_id
    behaviors = Counter(p.expected_behavior for p in shipped if p.source == "curated")
    assert behaviors == {"answer": 20, "hedge": 20, "abstain": 10}


def test_no_two_shipped_prompts_are_alike(shipped):
    """Jaccard similarity of their runs of three words. Independent questions share a stock phrase at most: below 0.05
    on this bank; a paraphrase that keeps half its sentences is at 0.3 or more."""
    runs = {p.prompt_id: shingles(p.text) for p in shipped}
    likeness = {
        (a, b): len(runs[a] & runs[b]) / len(runs[a] | runs[b])
        for a, b in combinations(runs, 2)
    }
    closest = max(likeness, key=likeness.__getitem__)
    assert likeness[closest] < 0.15, closest


def test_no_shipped_prompt_gives_its_answer_away(shipped):
    for prompt in shipped:
        assert (prompt.gold_answer or "?!").lower() not in prompt.text.lower(), (
            prompt.prompt_id
        )


def test_the_original_bank_loads():
    prompts = bank.load(shared_data("tap_bank.jsonl"))
    assert Counter(p.source for p in prompts) == {
        "medmcqa_open": 24,
        "medqa": 69,
        "curated": 50,
    }
    assert len(bank.select(prompts, PILOT, seed=PILOT_SEED)) == 50


# Loading


def test_rows_become_prompts_in_file_order_and_unknown_keys_are_ignored(tmp_path):
    rows = [
        row(prompt_id="p2", tags=["x"], _provenance={"id": 8}),
        row(gold_answer=None, expected_behavior="hedge"),
    ]
    assert bank.load(write_jsonl(tmp_path / "bank.jsonl", rows)) == [
        Prompt(
            prompt_id="p2",
            source="medqa",
            subject="renal",
            text="Why?",
            gold_answer="Because.",
            tags=("x",),
        ),
        Prompt(
            prompt_id="p1",
            source="medqa",
            subject="renal",
            text="Why?",
            expected_behavior="hedge",
        ),
    ]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (row(prompt_id=None), "the row has no 'prompt_id'. Expected a non-empty text."),
        (row(text="  \n"), "the row has '  \\n' as 'text'. Expected a non-empty text."),
        (
            row(gold_answer=["Because."]),
            "prompt 'p1' has an empty gold_answer. Write one, or remove the key",
        ),
        (
            row(expected_behavior="refuse"),
            "has expected_behavior 'refuse'. Expected one of answer, hedge, abstain.",
        ),
        (row(tags=[1]), "prompt 'p1' has tags [1]. Expected a list of texts."),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:40],
)
def test_a_bad_row_is_named_with_file_line_and_remedy(tmp_path, bad, words):
    path = write_jsonl(tmp_path / "bank.jsonl", [row(prompt_id="p0"), bad])
    with pytest.raises(UserError) as error:
        bank.load(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert words in str(error.value)


def test_an_id_that_comes_twice_is_refused_with_both_places(tmp_path):
    path = write_jsonl(
        tmp_path / "bank.jsonl",
        [row(), row(prompt_id="p2"), row(text="Something else?")],
    )
    with pytest.raises(
        UserError,
        match=re.escape(f"{path}:3: prompt_id 'p1' stands already at {path}:1."),
    ):
        bank.load(path)


def test_prompts_that_repeat_the_text_of_another_are_warned_of_once(tmp_path, caplog):
    rows = [
        row(prompt_id="p1"),
        row(prompt_id="p2", text="How?"),
        row(prompt_id="p3"),
        row(prompt_id="p4", text="Why?\n"),
    ]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    assert len(bank.load(path)) == len(bank.load(path)) == 4
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"warning: {path}: 2 of 4 prompts repeat the text of another ('p3' that of 'p1'). They count as independent"
    )


def test_an_empty_bank_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "bank.jsonl", [])
    with pytest.raises(
        UserError, match="holds no prompts. Expected one JSON object a line."
    ):
        bank.load(path)


# The pilot's subset


def test_the_pilot_subset_is_the_one_specified(shipped):
    """One generator; 8 of medmcqa_open, 24 of medqa, 18 of curated, drawn in this order without replacement; handed
    back in bank order. Written out here a second time, from the raw file."""
    rows = [json.loads(line) for line in Path(BANK).read_text().splitlines()]
    rng = np.random.default_rng(20260427)
    expected = set()
    for source, size in (("medmcqa_open", 8), ("medqa", 24), ("curated", 18)):
        stratum = [row["prompt_id"] for row in rows if row["source"] == source]
        expected |= {
            stratum[i] for i in rng.choice(len(stratum), size=size, replace=False)
        }
    selected = bank.select(shipped, PILOT, seed=PILOT_SEED)
    assert [p.prompt_id for p in selected] == [
        row["prompt_id"] for row in rows if row["prompt_id"] in expected
    ]
    assert len(selected) == 50


def test_the_subset_keeps_the_order_of_the_bank_and_takes_no_prompt_twice():
    prompts = prompts_of(medqa=20, curated=20)
    places = [
        prompts.index(p)
        for p in bank.select(prompts, {"curated": 15, "medqa": 15}, seed=7)
    ]
    assert places == sorted(set(places))
    assert len(places) == 30


@pytest.mark.parametrize("strata", [None, {}])
def test_without_strata_the_whole_bank_is_taken(strata):
    prompts = prompts_of(medqa=3, curated=2)
    assert bank.select(prompts, strata, seed=0) == prompts


def test_a_stratum_that_is_too_small_is_refused_with_what_the_bank_has():
    with pytest.raises(UserError) as error:
        bank.select(prompts_of(medqa=3, curated=2), {"medqa": 3, "curated": 18}, seed=0)
    assert (
        "mode.strata: asks for 18 prompts of source 'curated', the bank holds 2"
        in str(error.value)
    )
    assert "(it has medqa 3, curated 2)" in str(error.value)
