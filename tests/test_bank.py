"""The prompt bank: what ships, what is refused on loading, and how the pilot's subset is drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from elo_exp.data import bank
from elo_exp.files import write_jsonl
from elo_exp.records import Prompt, UserError
from tests.data import BANK, shared_data

STRATA = {"medmcqa_open": 24, "medqa": 69, "curated": 50}
PILOT = {"medmcqa_open": 8, "medqa": 24, "curated": 18}
PILOT_SEED = 20260427
FULL = {
    "prompt_id": "p1",
    "source": "medqa",
    "subject": "renal",
    "text": "Why?",
    "gold_answer": "Because.",
}


def row(**changes: Any) -> dict[str, Any]:
    """A row of a bank; a change to None takes the key out."""
    changed = {**FULL, **changes}
    return {key: value for key, value in changed.items() if value is not None}


@pytest.fixture(scope="module")
def shipped() -> list[Prompt]:
    return bank.load(BANK)


# The bank that ships


def test_the_shipped_bank_has_143_prompts_in_three_strata(shipped):
    """A curated prompt has an expected behaviour, every other one a gold answer that its text does
    not give away."""
    assert Counter(p.source for p in shipped) == STRATA
    for prompt in shipped:
        curated = prompt.source == "curated"
        assert (prompt.gold_answer is None) == curated, prompt.prompt_id
        assert (prompt.expected_behavior is None) != curated, prompt.prompt_id
        gold = (prompt.gold_answer or "?!").lower()
        assert gold not in prompt.text.lower(), prompt.prompt_id
    behaviors = Counter(p.expected_behavior for p in shipped if p.source == "curated")
    assert behaviors == {"answer": 20, "hedge": 20, "abstain": 10}


def test_the_original_bank_loads():
    prompts = bank.load(shared_data("tap_bank.jsonl"))
    assert Counter(p.source for p in prompts) == STRATA
    assert len(bank.select(prompts, PILOT, seed=PILOT_SEED)) == 50


# Loading


def test_rows_become_prompts_in_file_order_and_unknown_keys_are_ignored(tmp_path):
    rows = [
        row(prompt_id="p2", tags=["x"], _provenance={"id": 8}),
        row(gold_answer=None, expected_behavior="hedge"),
    ]
    first, second = bank.load(write_jsonl(tmp_path / "bank.jsonl", rows))
    assert first == Prompt(**{**FULL, "prompt_id": "p2", "tags": ("x",)})
    changes = {"gold_answer": None, "expected_behavior": "hedge"}
    assert second == Prompt(**{**FULL, **changes})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"prompt_id": 1}, "prompt_id: found 1. Input should be a valid string."),
        ({"prompt_id": None, "text": None}, "no prompt: none of prompt, question, input, "),
        ({"text": "  \n"}, "text: found '  \\n'. String should have at least 1 character."),
        ({"gold_answer": ""}, "gold_answer: found ''. String should have at least 1 "),
        ({"expected_behavior": "refuse"}, "expected_behavior: found 'refuse'. Input should"),
        ({"tags": [1]}, "tags.0: found 1. Input should be a valid string. Leave out an"),
        ({"prompt_id": "p0"}, "prompt_id 'p0' is already at {path}:1. Give each its own."),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_file_line_and_remedy(tmp_path, bad, words):
    rows = [row(prompt_id="p0"), row(**bad)]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    with pytest.raises(UserError) as error:
        bank.load(path)
    assert str(error.value).startswith(f"{path}:2: {words.format(path=path)}")


def test_an_empty_bank_is_refused(tmp_path):
    with pytest.raises(UserError, match="no prompts. Expected one JSON object a line"):
        bank.load(write_jsonl(tmp_path / "bank.jsonl", []))


def test_prompts_that_repeat_the_text_of_another_are_warned_of_once(tmp_path, caplog):
    texts = ("Why?", "How?", "Why?", "Why?\n")
    rows = [row(prompt_id=f"p{i}", text=text) for i, text in enumerate(texts)]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    assert len(bank.load(path)) == len(bank.load(path)) == 4
    (message,) = caplog.messages
    said = "2 of 4 prompts repeat the text of another ('p2' that of 'p0'). They count"
    assert message.startswith(f"warning: {path}: {said}")


# The pilot's subset


def test_the_pilot_subset_is_the_one_specified(shipped):
    """One generator; 8 of medmcqa_open, 24 of medqa, 18 of curated, drawn in this order without
    replacement; handed back in bank order."""
    rng = np.random.default_rng(20260427)
    expected = set()
    for source, size in (("medmcqa_open", 8), ("medqa", 24), ("curated", 18)):
        stratum = [p.prompt_id for p in shipped if p.source == source]
        drawn = rng.choice(len(stratum), size=size, replace=False)
        expected |= {stratum[i] for i in drawn}
    selected = bank.select(shipped, PILOT, seed=PILOT_SEED)
    assert selected == [p for p in shipped if p.prompt_id in expected]
    assert len(selected) == 50
