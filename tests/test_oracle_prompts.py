"""The prompts of the policies: sampled by a hash, in English, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from elo_exp.arena.settings import ArenaSource
from elo_exp.data import bank
from elo_exp.files import write_jsonl
from elo_exp.oracle.prompts import is_english, sample_arena, sample_bank, shuffled
from elo_exp.records import UserError
from tests.data import BANK
from tests.test_arenas import conversation, settings

BATTLE = {"model_a": "a", "model_b": "b", "winner": "tie"}
ROWS = [  # language, prompt
    ("English", "What is the capital of France?"),
    ("english", "  What is the capital of France?  "),
    ("English", "Quelle est la capitale de la France, et pour qui ?"),
    ("French", "Explain how a tide works."),
    ("English", "   "),
    ("English", "Столица Франции?"),
    ("English", "x" * 50),
    ("en", "Write a poem about tea."),
]


def arena(folder: Path, **changes: object) -> ArenaSource:
    texts = {"response_a": "Yes.", "response_b": "No."}
    rows = [
        {
            **BATTLE,
            **texts,
            "question_id": str(i),
            "language": language,
            "prompt": prompt,
        }
        for i, (language, prompt) in enumerate(ROWS)
    ]
    path = str(write_jsonl(folder / "arena.jsonl", rows))
    given = {
        "path": path,
        "max_chars": 49,
        "columns": {"language": "language"},
    } | changes
    return settings(**given)  # type: ignore[no-any-return]


def test_a_larger_sample_includes_the_smaller_one():
    names = [f"p{i}" for i in range(100)]
    small, large = (
        shuffled(some, seed=1, purpose="labels") for some in (names[:50], names)
    )
    assert [name for name in large if name in set(small)] == small
    assert shuffled(reversed(names), seed=1, purpose="labels") == large
    orders = {
        tuple(shuffled(names, seed=s, purpose=p)) for s in (1, 2) for p in ("a", "b")
    }
    assert len(orders) == 4


def test_prompts_of_the_bank_keep_their_order():
    every = bank.load(BANK)
    some, more = (sample_bank(every, n, seed=42) for n in (10, 20))
    assert (len(some), len(more), sample_bank(every, None, seed=42)) == (10, 20, every)
    assert [p for p in more if p in some] == some
    assert [p for p in every if p in some] == some


def test_an_arena_gives_prompts_that_are_english_by_label_and_words_once_each(
    tmp_path: Path,
):
    prompts = sample_arena(arena(tmp_path), None, seed=1)
    assert {p.text for p in prompts} == {ROWS[0][1], ROWS[7][1]}
    assert [p.prompt_id for p in prompts] == ["file_0", "file_1"]
    assert sample_arena(arena(tmp_path), 1, seed=1) == prompts[:1]
    unlabelled = sample_arena(arena(tmp_path, columns={}), None, seed=1)
    assert {p.text for p in unlabelled} == {ROWS[0][1], ROWS[3][1], ROWS[7][1]}
    counts = r"arena file: no prompt is left \(7 longer than 2 characters, 1 empty.*\)"
    with pytest.raises(UserError, match=counts):
        sample_arena(arena(tmp_path, max_chars=2), None, seed=1)


def test_a_conversation_gives_its_first_turn(tmp_path: Path):
    talk = conversation("And what is a tide?", "Water.", 2, blocks=False)
    names = ("conversation_a", "conversation_b")
    row = {**BATTLE, "question_id": "1", **dict.fromkeys(names, talk)}
    columns = {name: name for name in names}
    columns |= dict.fromkeys(("prompt", "response_a", "response_b"))  # type: ignore[arg-type]
    path = str(write_jsonl(tmp_path / "arena.jsonl", [row]))
    (prompt,) = sample_arena(settings(path=path, columns=columns), None, seed=1)
    assert prompt.text == "And what is a tide?"


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("Who am I?", True),
        ("def f(x): return x ** 2", True),
        ("Bonjour means hello in French.", True),
        ("2 + 2 =", True),
        ("", True),
        ("¿Qué es la vida?", False),
        ("Schreibe ein Gedicht und erkläre es", False),
        ("Écris une lettre pour ma mère", False),
        ("什么是潮汐？", False),
        ("Scrivi una poesia che non finisce", False),
    ],
)
def test_english_is_told_by_its_words(text: str, english: bool):
    assert is_english(text) == english
