"""What the policies are asked: drawn by a hash, in English, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from elo_exp.data import bank
from elo_exp.files import write_jsonl
from elo_exp.oracle.questions import drawn, is_english, of_arena, of_bank
from elo_exp.records import UserError
from tests.data import BANK
from tests.test_arenas import conversation, settings

ROWS = [  # language, question
    ("English", "What is the capital of France?"),
    ("english", "  What is the capital of France?  "),
    ("English", "Quelle est la capitale de la France, et pour qui ?"),
    ("French", "Explain how a tide works."),
    ("English", "   "),
    ("English", "Столица Франции?"),
    ("English", "x" * 50),
    ("en", "Write a poem about tea."),
]


def arena(folder: Path, **changes: object) -> object:
    rows = [
        {
            "model_a": "a",
            "model_b": "b",
            "winner": "tie",
            "question_id": str(i),
            "language": language,
        }
        | {"prompt": question, "response_a": "Yes.", "response_b": "No."}
        for i, (language, question) in enumerate(ROWS)
    ]
    path = write_jsonl(folder / "arena.jsonl", rows)
    return settings(
        path=str(path), **{"max_chars": 49, "columns": {"language": "language"}} | changes
    )


def test_a_larger_draw_holds_the_smaller_one_whoever_is_added():
    names = [f"p{i}" for i in range(100)]
    small, large = (drawn(some, seed=1, purpose="labels") for some in (names[:50], names))
    assert [name for name in large if name in set(small)] == small
    assert drawn(reversed(names), seed=1, purpose="labels") == large
    assert (
        len({tuple(drawn(names, seed=s, purpose=p)) for s in (1, 2) for p in ("labels", "probe")})
        == 4
    )


def test_prompts_of_the_bank_keep_their_order():
    every = bank.load(BANK)
    some, more = (of_bank(every, n, seed=42) for n in (10, 20))
    assert (len(some), len(more), of_bank(every, None, seed=42)) == (10, 20, every)
    assert [p for p in more if p in some] == some
    assert [p for p in every if p in some] == some


def test_of_an_arena_what_is_english_by_label_and_by_its_words_is_asked_once(tmp_path: Path):
    """The labels of a data set alone let other languages through."""
    prompts = of_arena(arena(tmp_path), None, seed=1)
    assert {p.text for p in prompts} == {
        "What is the capital of France?",
        "Write a poem about tea.",
    }
    assert [p.prompt_id for p in prompts] == ["file_0", "file_1"]
    assert of_arena(arena(tmp_path), 1, seed=1) == prompts[:1]


def test_without_labels_the_words_alone_are_asked(tmp_path: Path):
    found = of_arena(arena(tmp_path, columns={}), None, seed=1)
    assert {p.text for p in found} == {ROWS[0][1], ROWS[3][1], ROWS[7][1]}


def test_of_a_conversation_the_first_turn_is_asked(tmp_path: Path):
    talk = {
        side: conversation("And what is a tide?", "Water.", 2, blocks=False) for side in ("a", "b")
    }
    row = {"model_a": "a", "model_b": "b", "winner": "tie", "question_id": "1"}
    path = write_jsonl(
        tmp_path / "arena.jsonl",
        [{**row, "conversation_a": talk["a"], "conversation_b": talk["b"]}],
    )
    columns = {"conversation_a": "conversation_a", "conversation_b": "conversation_b"}
    columns |= dict.fromkeys(("prompt", "response_a", "response_b"))
    (prompt,) = of_arena(settings(path=str(path), columns=columns), None, seed=1)
    assert prompt.text == "And what is a tide?"


def test_an_arena_without_english_questions_is_refused_with_the_counts(tmp_path: Path):
    with pytest.raises(
        UserError,
        match=r"arena file: no question is left \(7 longer than 2 characters, 1 empty.*\)",
    ):
        of_arena(arena(tmp_path, max_chars=2), None, seed=1)


@pytest.mark.parametrize(
    "text",
    ["Who am I?", "def f(x): return x ** 2", "Bonjour means hello in French.", "2 + 2 =", ""],
)
def test_what_may_be_english_passes(text: str):
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "¿Qué es la vida?",
        "Schreibe ein Gedicht und erkläre es",
        "Écris une lettre pour ma mère",
        "什么是潮汐？",
        "Scrivi una poesia che non finisce",
    ],
)
def test_what_is_not_english_does_not(text: str):
    assert not is_english(text)
