"""The prompt bank: what ships, what is refused on loading, and how the pilot's subset is drawn."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.data import bank
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.records import Prompt
from tests.data import BANK, shared_data, write_table

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
    return bank.load_bank(BANK)


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
    prompts = bank.load_bank(shared_data("tap_bank.jsonl"))
    assert Counter(p.source for p in prompts) == STRATA
    assert len(bank.sample_strata(prompts, PILOT, seed=PILOT_SEED)) == 50


# Loading


def test_rows_become_prompts_in_file_order_and_unknown_keys_are_ignored(tmp_path):
    rows = [
        row(prompt_id="p2", tags=["x"], _provenance={"id": 8}),
        row(gold_answer=None, expected_behavior="hedge"),
    ]
    first, second = bank.load_bank(write_jsonl(tmp_path / "bank.jsonl", rows))
    assert first == Prompt(**{**FULL, "prompt_id": "p2", "tags": ("x",)})
    changes = {"gold_answer": None, "expected_behavior": "hedge"}
    assert second == Prompt(**{**FULL, **changes})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"prompt_id": 1}, "prompt_id must be text that is not empty; got 1."),
        ({"prompt_id": None, "text": None},
         "has no prompt. Give it a column called prompt, question, input, instruction, text or query."),
        ({"text": "  \n"}, "text must be text that is not empty; got "),
        ({"gold_answer": ""}, 'gold_answer must be text that is not empty, or null; got "".'),
        ({"expected_behavior": "refuse"}, 'expected_behavior must be answer, hedge, abstain or null; got "refuse".'),
        ({"tags": [1]}, "tags.0 must be text; got 1.\n  Leave out an"),
        ({"prompt_id": "p0"}, "repeats the prompt_id p0 of {path}:1. Give each prompt its own."),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_file_line_and_remedy(tmp_path, bad, words):
    rows = [row(prompt_id="p0"), row(**bad)]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    with pytest.raises(UserError) as error:
        bank.load_bank(path)
    message = str(error.value).replace(f"{path}:2:", f"{path}:2")
    assert message.startswith(f"{path}:2 {words.format(path=path)}")


def test_an_empty_bank_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no prompts. Write one prompt per line"):
        bank.load_bank(write_jsonl(tmp_path / "bank.jsonl", []))


def test_prompts_that_repeat_the_text_of_another_are_warned_of_once(tmp_path, caplog):
    texts = ("Why?", "How?", "Why?", "Why?\n")
    rows = [row(prompt_id=f"p{i}", text=text) for i, text in enumerate(texts)]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    assert len(bank.load_bank(path)) == len(bank.load_bank(path)) == 4
    (message,) = caplog.messages
    said = "2 of 4 prompts repeat the text of another ('p2' that of 'p0'). They count"
    assert message.startswith(f"warning: {path}: {said}")


# Banks that were written for other programs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt": "Why?"}, {"text": "Why?", "source": "own", "subject": "own"}),
        ({"id": 7, "question": "Why?", "reference": "So."},
         {"prompt_id": "7", "text": "Why?", "gold_answer": "So."}),
        ({"question_id": 81, "category": "math", "turns": ["1+1?"], "reference": ["2"]},
         {"prompt_id": "81", "text": "1+1?", "gold_answer": "2", "source": "math"}),
        ({"instruction": "Add.", "input": "1, 2", "target": 3},
         {"text": "Add.\n\n1, 2", "gold_answer": "3"}),
        ({"instruction": "Add.", "input": ""}, {"text": "Add.", "gold_answer": None}),
        ({"prompt_id": "p", "text": "Why?", "reference": ["a", "b"]}, {"gold_answer": None}),
        ({**FULL, "reference": "Another.", "question": "How?"}, FULL),
    ],
)  # fmt: skip
def test_a_row_of_another_program_is_read_under_the_names_in_use(
    tmp_path, given, expected
):
    """A row with the four names of our own is read by these alone."""
    (prompt,) = bank.load_bank(write_jsonl(tmp_path / "bank.jsonl", [given]))
    assert {key: getattr(prompt, key) for key in expected} == expected


def test_a_prompt_without_an_id_is_known_by_its_text(tmp_path):
    """Whatever the white space: 12 digits of its SHA-256."""
    rows = [{"prompt": "Why  so?\n"}, {"prompt": "How?"}]
    first, second = bank.load_bank(write_jsonl(tmp_path / "bank.jsonl", rows))
    assert first.prompt_id == sha256(b"Why so?").hexdigest()[:12] != second.prompt_id
    path = write_jsonl(tmp_path / "again.jsonl", [*rows, {"prompt": "Why so?"}])
    with pytest.raises(UserError) as error:
        bank.load_bank(path)
    assert str(error.value) == (
        f"{path}:3 repeats the prompt of {path}:1. Remove one of them, or give each a prompt_id."
    )


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl.gz"])
def test_a_bank_may_be_any_table_whose_empty_cells_are_left_out(tmp_path, ending):
    rows = [row(prompt_id="p2", text="How?"), row(gold_answer="")]
    if ending == "jsonl.gz":  # which can leave a key out
        del rows[1]["gold_answer"]
    second, first = bank.load_bank(write_table(tmp_path / f"bank.{ending}", rows))
    assert (second.prompt_id, second.gold_answer) == ("p2", "Because.")
    assert (first.prompt_id, first.gold_answer) == ("p1", None)


def test_strata_of_a_bank_without_ids_are_found_by_the_ids_that_it_gets(tmp_path):
    rows = [{"prompt": "Why?", "level": "hard"}, {"prompt": "How?", "level": None}]
    path = write_jsonl(tmp_path / "bank.jsonl", rows)
    assert bank.PromptBank(path=path).read_column("level") == {
        bank.hash_text("Why?"): "hard"
    }


# So many of the prompts


@given(st.integers(1, 30), st.integers(1, 30))
def test_a_larger_draw_holds_a_smaller_one_in_the_order_of_the_bank(n, m):
    prompts = [Prompt(**{**FULL, "prompt_id": f"p{i}"}) for i in range(30)]
    few, many = (
        bank.sample_prompts(prompts, min(n, m)),
        bank.sample_prompts(prompts, max(n, m)),
    )
    assert (len(few), len(many)) == (min(n, m), max(n, m))
    assert few == [p for p in prompts if p in few]
    assert {p.prompt_id for p in few} <= {p.prompt_id for p in many}


def test_more_than_there_are_cannot_be_drawn(shipped):
    assert bank.sample_prompts(shipped, None) == shipped
    with pytest.raises(UserError, match=r"prompts\.n must be at most 143, .*; got 144"):
        bank.sample_prompts(shipped, 144)


# The pilot's subset


def test_a_bank_without_the_pilots_sources_is_told_how_to_draw(shipped):
    own = [p for p in shipped if p.source != "medqa"]
    with pytest.raises(UserError) as error:
        bank.sample_strata(own, PILOT, seed=1)
    assert str(error.value).endswith(
        "With prompts of your own, write:\n  mode.strata={} prompts.n=50\n"
        "  (prompts by source: medmcqa_open 24, curated 50)"
    )


def test_the_pilot_subset_is_the_one_specified(shipped):
    """One generator; 8 of medmcqa_open, 24 of medqa, 18 of curated, drawn in this order without
    replacement; handed back in bank order."""
    rng = np.random.default_rng(20260427)
    expected = set()
    for source, size in (("medmcqa_open", 8), ("medqa", 24), ("curated", 18)):
        stratum = [p.prompt_id for p in shipped if p.source == source]
        drawn = rng.choice(len(stratum), size=size, replace=False)
        expected |= {stratum[i] for i in drawn}
    selected = bank.sample_strata(shipped, PILOT, seed=PILOT_SEED)
    assert selected == [p for p in shipped if p.prompt_id in expected]
    assert len(selected) == 50


def test_a_bank_is_read_once(tmp_path):
    path = write_jsonl(tmp_path / "bank.jsonl", [{"prompt": "Why?", "level": "hard"}])
    questions = bank.PromptBank(path=path)
    (prompt,) = questions.prompts
    path.unlink()
    assert questions.read_column("level") == {prompt.prompt_id: "hard"}
    assert questions.prompts == [prompt]
