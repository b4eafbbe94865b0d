"""Banks of messages: rows of ours with `messages`, and three public forms that are recognised by their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import bank, conversations
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.records import Prompt, Response
from tests.data import shared_data
from tests.test_messages import assistant, user

ABOUT = {"prompt_id": "p1", "source": "chats", "subject": "maths"}
Q1, Q2 = {"role": "user", "content": "1+1?"}, {"role": "user", "content": "And 2?"}
A1 = {"role": "assistant", "content": "2"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def load(folder: Path, *rows: dict[str, Any], **how: bool) -> list[Prompt]:
    return bank.load_bank(write_jsonl(folder / "bank.jsonl", rows), **how)


def mine(*messages: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {**ABOUT, "messages": list(messages), **others}


# A bank of ours


def test_a_row_has_messages_in_place_of_a_text_and_a_reference_for_each_turn(
    tmp_path: Path,
):
    (prompt,) = load(tmp_path, mine(Q1, Q2, gold_answer=["2", "4"], tags=["sums"]))
    assert prompt.messages == (user("1+1?"), user("And 2?"))
    assert prompt.gold_turns == ("2", "4")
    assert prompt.gold_answer == conversations.reference_transcript(prompt)
    assert prompt.text == conversations.transcript(prompt.messages)
    assert (prompt.prompt_id, prompt.tags) == ("p1", ("sums",))


def test_one_user_message_is_the_same_prompt_as_its_text(tmp_path: Path):
    (message,) = load(tmp_path, mine(Q1, gold_answer="2"))
    (text,) = load(tmp_path, {**ABOUT, "text": "1+1?", "gold_answer": "2"})
    assert message == text


def test_after_a_fixed_history_the_last_turn_is_asked(tmp_path: Path):
    (prompt,) = load(tmp_path, mine(SYSTEM, Q1, A1, Q2, gold_answer="4"))
    assert conversations.n_turns(prompt) == 1
    assert (prompt.gold_answer, prompt.gold_turns) == ("4", ())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**mine(Q1), "text": "1+1?"}, "has both text and messages. Leave one of them out."),
        (mine(Q1, A1), "no user turn is open: messages end with an assistant."),
        (mine(SYSTEM), "no user turn is open: messages end with a system."),
        (mine(Q1, CALLS, {"role": "function", "content": "2"}),
         'message 3 has the role "function", which is none of system, user, assistant, tool.'),
        (mine(Q1, {"role": "user", "content": [{"type": "image_url"}]}),
         'message 2 has a part of type "image_url". Only text can be compared: leave the row out.'),
        (mine(Q1, {"content": "And 2?"}), "message 2 must have role and content; it lacks role."),
        (mine(Q1, {"role": "tool", "content": "2", "tool_call_id": "c1"}, Q2),
         "a tool speaks, and no call has the id 'c1'."),
        (mine(Q1, Q2, gold_answer=["2"]), "gold_answer must have one text for each of the 2 turns; got 1 text."),
        (mine(Q1, Q2, gold_answer="2"), "gold_answer must have one text for each of the 2 turns; got 1 text."),
        (mine(Q1, Q2, gold_answer=["2", 4]), "gold_answer must be a text, or one for each turn; got ['2', 4]."),
        (mine(Q1, SYSTEM, Q2), "a system message is not the first."),
        (mine(Q1, {"role": "user", "content": " "}), "message 2 is empty."),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_with_file_and_line(
    tmp_path: Path, row: dict[str, Any], words: str
):
    with pytest.raises(UserError) as error:
        load(tmp_path, {**ABOUT, "prompt_id": "p0", "text": "Why?"}, row)
    place = f"{tmp_path / 'bank.jsonl'}:2"
    assert str(error.value) in (f"{place}: {words}", f"{place} {words}")


# MT-Bench


def test_mt_benchs_questions_are_conversations_of_two_turns():
    """Under the id of their file: answers to first turns that are stored are found."""
    prompts = bank.load_bank(shared_data("answers/mt_bench/question.jsonl"))
    assert len(prompts) == 80
    assert {conversations.n_turns(prompt) for prompt in prompts} == {2}
    first = prompts[0]
    assert (first.prompt_id, first.source, first.subject) == ("81", "mt_bench", "writing")  # fmt: skip
    referred = [p.gold_answer is not None for p in prompts]
    assert [bool(prompt.gold_turns) for prompt in prompts] == referred
    assert sum(referred) == 39


def test_mt_benchs_references_are_one_for_each_turn_that_has_one(tmp_path: Path):
    rows = [
        {"question_id": i, "category": "maths", "turns": [f"{i}+1?", "And 2?"], "reference": some}
        for i, some in enumerate((["2", "4"], ["2", ""], ["", "4"], None))
    ]  # fmt: skip
    both, first, second, none = load(tmp_path, *rows)
    assert both.gold_turns == ("2", "4")
    assert first.gold_answer == "2"
    assert second.gold_answer == conversations.transcript(
        [user("And 2?"), assistant("4")]
    )
    assert (none.gold_answer, none.gold_turns) == (None, ())
    last = conversations.build_turn_prompt(first, [Response(entrant_id="ann", prompt_id="1", response_text="2")])  # fmt: skip
    assert last.gold_answer is None


# Conversations of an arena


@pytest.mark.parametrize(
    "row",
    [
        {"question_id": "q1", "model_a": "x", "conversation_a": [Q1, A1, Q2, A1], "conversation_b": []},
        {"question_id": "q1", "prompt": ["1+1?", "And 2?"], "response_a": ["2", "4"], "response_b": ["?", "?"]},
        {"question_id": "q1", "prompt": '["1+1?", "And 2?"]', "response_a": '["2", "4"]'},
    ],
)  # fmt: skip
def test_of_an_arenas_conversation_the_first_turn_is_asked_or_the_last_after_model_a(
    tmp_path: Path, row: dict[str, Any]
):
    """Later turns of its user answer what another model said."""
    (first,) = load(tmp_path, row)
    assert (first.prompt_id, first.text, first.messages) == ("q1", "1+1?", ())
    assert first.tags == ("turns:2",)
    (last,) = load(tmp_path, row, history=True)
    assert last.messages == (user("1+1?"), assistant("2"), user("And 2?"))


# OpenAI messages


def test_messages_are_asked_as_they_stand_and_a_last_answer_is_the_reference(
    tmp_path: Path,
):
    rows = [
        {"custom_id": "c1", "messages": [SYSTEM, Q1, A1]},
        {"messages": [Q1, A1, Q2]},
        {"prompt": [Q1], "id": 7},
    ]
    answered, history, one = load(tmp_path, *rows)
    assert (answered.prompt_id, answered.gold_answer) == ("c1", "2")
    assert len(answered.messages) == 2
    assert len(history.prompt_id) == 12
    assert (history.source, history.gold_answer) == ("own", None)
    assert (one.prompt_id, one.text) == ("7", "1+1?")


def test_messages_without_an_id_are_known_by_their_content(tmp_path: Path):
    (one,) = load(tmp_path, {"messages": [Q1]})
    (same,) = load(tmp_path, {"prompt": "1+1?"})
    assert one == same
    with pytest.raises(UserError, match=r"bank.jsonl:2 repeats the prompt of .*:1\."):
        load(tmp_path, {"messages": [Q1, A1, Q2]}, {"messages": [Q1, A1, Q2]})


def test_a_csv_has_messages_as_json(tmp_path: Path):
    path = tmp_path / "bank.csv"
    text = json.dumps([SYSTEM, Q1]).replace('"', '""')
    path.write_text(f'id,messages\n1,"{text}"\n', encoding="utf-8")
    (prompt,) = bank.load_bank(path)
    assert [message.role for message in prompt.messages] == ["system", "user"]
