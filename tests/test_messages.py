"""Messages of a conversation, and the fields that came later: written only where they say something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp import pipeline
from elo_exp.data.battles import battles_from_judgments
from elo_exp.data.pairing import choose_orders, reconcile, tie_judgment
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.files import write_jsonl
from elo_exp.models.generation import prompt_seed
from elo_exp.records import (
    Battle,
    Comparison,
    Judgment,
    Message,
    Prompt,
    Record,
    Response,
    ToolCall,
    Verdict,
)
from elo_exp.store.answer_store import Store
from tests.data import COMPARISON, prompt, shipped

TEXTS = st.text(max_size=20)
NAMES = st.text(min_size=1, max_size=8)
CALLS = st.builds(ToolCall, call_id=NAMES, name=NAMES, arguments=TEXTS)
MESSAGES = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "user"]), content=TEXTS),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=TEXTS,
        tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    ),
    st.builds(
        Message,
        role=st.just("tool"),
        content=TEXTS,
        tool_call_id=st.none() | NAMES,
        name=st.none() | NAMES,
    ),
)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=text, tool_calls=calls)


def read(row: Any) -> Message:
    return Message.from_dict(row)


# The form of a message


def test_a_message_is_written_as_openais_chat_completions_has_it():
    call = ToolCall(call_id="c1", name="bash", arguments='{"cmd": "ls"}')
    assert user("Why?").to_dict() == {"role": "user", "content": "Why?"}
    assert json.loads(json.dumps(assistant("", call).to_dict())) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"cmd": "ls"}'},
            }
        ],
    }
    said = Message(role="tool", content="a.txt", tool_call_id="c1", name="bash")
    assert said.to_dict() == {
        "role": "tool",
        "content": "a.txt",
        "tool_call_id": "c1",
        "name": "bash",
    }


def test_inspects_form_is_read_too_and_thoughts_are_left_out():
    """Arguments are an object there, and a tool's name is its function."""
    called = {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "I look."}],
        "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}}],
        "model": "m",
    }  # fmt: skip
    call = ToolCall(call_id="c1", name="bash", arguments='{"cmd": "ls"}')
    assert read(called) == assistant("I look.", call)
    said = {"role": "tool", "content": "a.txt", "function": "bash", "tool_call_id": "c1"}  # fmt: skip
    assert (read(said).name, read(said).tool_call_id) == ("bash", "c1")
    assert read({"role": "assistant", "content": None}) == assistant("")


def test_what_nobody_compares_is_refused():
    with pytest.raises(
        ValueError,
        match=r'^has the role "function", which is none of system, user, assistant, tool\.$',
    ):
        read({"role": "function", "content": "x"})
    with pytest.raises(
        ValueError,
        match=r'^has a part of type "image_url"\. Only text can be compared: leave the row out\.$',
    ):
        read({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})


@given(st.lists(MESSAGES, max_size=4).map(tuple), st.integers(0, 3))
def test_law_prompt_and_response_are_read_back_equal_and_serve_as_keys(
    messages: tuple[Message, ...], draw_idx: int
):
    asked = prompt(messages=messages, gold_turns=("So.",), draw_idx=draw_idx)
    said = Response(
        entrant_id="ann",
        prompt_id="p1",
        response_text="Yes.",
        messages=messages,
        draw_idx=draw_idx,
    )
    for record in (asked, said):
        again = type(record).from_dict(json.loads(json.dumps(record.to_dict())))
        assert again == record
        assert again.slot == ("p1", draw_idx)
    assert {asked: 1}[Prompt.from_dict(asked.to_dict())] == 1


# The normal form: equal content, equal key


def test_one_user_message_is_the_text_and_one_message_of_words_the_response():
    one = prompt(text="", messages=(user("Why?"),))
    assert one == prompt(text="Why?")
    about = {"entrant_id": "ann", "prompt_id": "p1", "response_text": ""}
    said = Response(**about, messages=(assistant("So."),))
    assert said == Response(**{**about, "response_text": "So."})


@pytest.mark.parametrize(
    "messages",
    [
        (user("Why?"), user("And how?")),
        (Message(role="system", content="Be brief."), user("Why?")),
        (assistant("Why not?"),),
    ],
)
def test_a_prompt_of_more_than_that_keeps_its_messages(messages: tuple[Message, ...]):
    assert prompt(messages=messages).messages == messages


def test_a_response_of_a_call_keeps_its_message():
    called = assistant("", ToolCall(call_id="c1", name="bash", arguments="{}"))
    said = Response(
        entrant_id="ann", prompt_id="p1", response_text="", messages=(called,)
    )
    assert said.messages == (called,)


# Later fields are silent: rows without them are those of before, in all bytes


def judgment(comparison: Comparison = COMPARISON) -> Judgment:
    verdict = Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="lexical",
        position_swap=False,
        verdict="A",
    )
    return reconcile(comparison, [verdict])


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        (prompt(), "prompt_id text source subject gold_answer expected_behavior tags"),
        (Response(entrant_id="ann", prompt_id="p1", response_text="Yes."),
         "entrant_id prompt_id response_text p_correct finish_reason diagnostics timestamp"),
        (COMPARISON, "prompt_id dimension source prompt_text entrant_a entrant_b response_a response_b gold_answer "
         "expected_behavior"),
        (judgment(), "prompt_id dimension entrant_a entrant_b winner inconsistent invalid equal_answers raw"),
        (Battle(model_a="ann", model_b="bob", winner="tie"),
         "model_a model_b winner source question_id judge_model dimension verdict_ab verdict_ba score equal_answers "
         "style_a style_b"),
    ],
)  # fmt: skip
def test_a_row_without_later_fields_has_the_columns_it_always_had(
    record: Record, columns: str
):
    assert list(record.to_dict()) == columns.split()


def test_a_later_draw_is_written_everywhere():
    drawn = replace(COMPARISON, draw_a=2, draw_b=1)
    assert (drawn.swapped().draw_a, drawn.swapped().draw_b) == (1, 2)
    judged = judgment(drawn)
    (battle,) = battles_from_judgments([judged])
    for record in (drawn, judged, battle, tie_judgment(drawn)):
        row = record.to_dict()
        assert (row["draw_a"], row["draw_b"]) == (2, 1)


# Keys, seeds and orders of a draw


def test_a_second_draw_is_another_answer_and_the_first_one_is_found(tmp_path: Path):
    rows = [
        {
            "prompt_id": f"p{number}",
            "response_text": f"{number}, {draw}",
            "draw_idx": draw,
        }
        for number in (1, 2)
        for draw in (0, 1)
    ]
    path = str(write_jsonl(tmp_path / "ann.jsonl", rows))
    entrants = {"ann": RecordedEntrant(entrant_id="ann", path=path)}
    asked = [prompt(number) for number in (1, 2)]

    def n_new(some: list[Prompt]) -> int:
        with Store(tmp_path / "store.sqlite") as store:
            pipeline.generate(some, entrants, store, allow_missing=False)
            return store.usage.responses_generated

    second = [replace(one, draw_idx=1) for one in asked]
    assert [n_new(some) for some in (asked, second, asked, second)] == [2, 2, 0, 0]


def test_each_draw_has_its_own_seed_and_the_first_the_seed_of_before():
    seeds = [
        prompt_seed(prompt(prompt_id="medqa-017", draw_idx=draw)) for draw in range(3)
    ]
    assert seeds[0] == 935607308
    assert len(set(seeds)) == 3


def test_a_seed_that_is_set_counts_on_from_draw_to_draw():
    about = {"entrant_id": "ann", "model": "m", "base_url": "http://localhost:1/v1"}
    entrant = shipped("entrant", "openai_compatible", **about, seed=7)
    sent = [entrant.params(prompt(draw_idx=draw), None)["seed"] for draw in range(3)]
    assert sent == [7, 8, 9]


def test_law_draws_that_are_judged_in_one_order_take_turns_in_being_shown_first():
    """Draw i meets draw i, or the one answer of an entrant that always says the same."""
    for number in range(20):
        one = replace(COMPARISON, prompt_id=f"p{number}")
        first = choose_orders(one, 0.0)[0]
        for draws in ("draw_a", "draw_b"), ("draw_a",), ("draw_b",):
            drawn = [replace(one, **dict.fromkeys(draws, k)) for k in range(4)]
            assert [choose_orders(c, 0.0) for c in drawn] == [
                (first,),
                (not first,),
            ] * 2
            assert [choose_orders(c.swapped(), 0.0) for c in drawn] == [
                (not first,),
                (first,),
            ] * 2
