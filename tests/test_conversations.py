"""Conversations: which turns are asked, what is sent next, and how a judge is shown what was said."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.data.conversations import (
    AnswerView,
    ViewSettings,
    build_turn_prompt,
    elide_middle,
    escape_tags,
    final_answer,
    insert_answers,
    join_turns,
    own_words,
    question_indices,
    reference_transcript,
    transcript,
    view_answer,
    view_prompt,
)
from elo_exp.records import Message, Prompt, Response, ToolCall
from tests.data import COMPARISON, prompt, shared_data, shipped
from tests.test_messages import MESSAGES, assistant, user

WHOLE = ViewSettings(view="whole", turns=None, tool_chars=1_000, answer_chars=24_000)
SYSTEM = Message(role="system", content="Be brief.")
IN_TURNS = replace(COMPARISON, in_turns=True)
LS = ToolCall(call_id="c1", name="bash", arguments='{"cmd": "ls"}')


def tool(text: str, name: str = "bash") -> Message:
    return Message(role="tool", content=text, tool_call_id="c1", name=name)


def response(*messages: Message, text: str = "") -> Response:
    return Response(
        entrant_id="ann",
        prompt_id="p1",
        response_text=text or final_answer(messages),
        messages=messages,
    )


def shown(*messages: Message, **changes: object) -> AnswerView:
    return view_answer(response(*messages), replace(WHOLE, **changes))  # type: ignore[arg-type]


# What is asked


@pytest.mark.parametrize(
    ("messages", "places"),
    [
        ([user("q1"), user("q2")], [0, 1]),  # MT-Bench
        ([SYSTEM, user("q1"), assistant("a1"), user("q2")], [3]),  # a fixed history
        ([user("q1"), assistant("a1"), user("q2"), user("q3")], [2, 3]),
        ([user("q1"), assistant("a1")], []),
        ([user("q1"), assistant("", LS), tool("a.txt"), user("q2")], [3]),
    ],
)
def test_each_user_message_that_no_assistant_follows_is_answered_in_order(
    messages: list[Message], places: list[int]
):
    assert question_indices(messages) == places


def test_an_entrant_is_sent_all_up_to_its_turn_with_its_own_answers_put_in():
    messages = [SYSTEM, user("q1"), user("q2"), user("q3")]
    own = [[assistant("a1")], [assistant("", LS), tool("a.txt"), assistant("a2")]]
    assert insert_answers(messages, []) == (SYSTEM, user("q1"))
    assert insert_answers(messages, own[:1]) == (
        SYSTEM,
        user("q1"),
        assistant("a1"),
        user("q2"),
    )
    assert insert_answers(messages, own) == (
        *(SYSTEM, user("q1"), assistant("a1")),
        *(user("q2"), assistant("", LS), tool("a.txt"), assistant("a2")),
        user("q3"),
    )


def test_a_turn_is_a_prompt_of_its_own_with_its_own_reference():
    """The first one is that of a bank of one turn: its answer is the same."""
    both = prompt(
        text="(both)",
        messages=(user("Why?"), user("Shorter?")),
        gold_turns=("So.", "Yes."),
        gold_answer="(both)",
    )
    first = build_turn_prompt(both, [])
    assert first == prompt(text="Why?", gold_answer="So.")
    second = build_turn_prompt(both, [response(text="Because.")])
    assert second.messages == (user("Why?"), assistant("Because."), user("Shorter?"))
    assert (second.gold_answer, second.gold_turns) == ("Yes.", ())


def test_turns_are_put_together_and_the_last_has_the_final_answer():
    both = prompt(messages=(user("Why?"), user("Shorter?")))
    first = replace(
        response(assistant("", LS), tool("a.txt"), assistant("Because.")),
        finish_reason="length",
        diagnostics={"dollars": 0.5, "n_tokens": 9},
    )
    second = replace(
        response(text="Yes."), finish_reason="stop", diagnostics={"dollars": 0.25}
    )
    whole = join_turns(both, [first, second])
    assert whole.messages == (
        *(assistant("", LS), tool("a.txt"), assistant("Because.")),
        *(user("Shorter?"), assistant("Yes.")),
    )
    assert (whole.response_text, whole.finish_reason) == ("Yes.", "length")
    assert whole.diagnostics == {
        "turns": [{"dollars": 0.5, "n_tokens": 9}, {"dollars": 0.25}],
        "dollars": 0.75,
    }
    assert join_turns(prompt(), [second]) is second


# What a judge is shown


def test_words_of_one_turn_are_shown_as_they_are():
    assert shown(assistant("Yes.")).single_turn_text == "Yes."
    assert view_answer(response(text="<turn>"), WHOLE).single_turn_text == "<turn>"


def test_calls_tools_and_later_turns_are_blocks():
    found = shown(
        assistant("I look.", LS), tool("a.txt"), assistant("One file."),
        user("Sure?"), assistant("Yes."),
    )  # fmt: skip
    assert found.single_turn_text is None
    assert not found.is_cut
    assert found.transcript == (
        '<turn role="assistant">\nI look.\n<call>bash({"cmd": "ls"})</call>\n</turn>\n'
        '<turn role="tool" of="bash">\na.txt\n</turn>\n'
        '<turn role="assistant">\nOne file.\n</turn>\n'
        '<turn role="user">\nSure?\n</turn>\n'
        '<turn role="assistant">\nYes.\n</turn>'
    )
    assert own_words(IN_TURNS, found.transcript) == "I look.\n\nOne file.\nYes."


def test_turns_and_view_say_how_much_of_an_answer_is_shown():
    said = (assistant("a1"), user("q2"), assistant("", LS), tool("."), assistant("a2"))
    assert shown(*said, turns=1).single_turn_text == "a1"
    assert shown(*said, turns=2).transcript == shown(*said).transcript
    assert shown(*said, view="final").single_turn_text == "a2"
    assert shown(*said, view="final", turns=1).single_turn_text == "a1"
    assert shown(*said[:4], view="final").single_turn_text == ""  # ends in a call


def test_a_question_is_all_up_to_the_first_turn_that_is_asked():
    one = prompt(text="(transcript)", messages=(user("Why?"), user("Shorter?")))
    assert view_prompt(one, WHOLE, in_turns=False).text == "Why?"
    after = prompt(messages=(SYSTEM, user("q1"), assistant("a1"), user("q2")))
    assert view_prompt(after, WHOLE, in_turns=True).text == (
        '<turn role="system">\nBe brief.\n</turn>\n<turn role="user">\nq1\n</turn>\n'
        '<turn role="assistant">\na1\n</turn>\n<turn role="user">\nq2\n</turn>'
    )


def test_a_reference_has_as_many_turns_as_the_answers():
    """A turn by itself is shown as that of a bank of one turn, in all bytes."""
    both = prompt(messages=(user("Why?"), user("Shorter?")), gold_turns=("So.", "Yes."))
    first = view_prompt(both, replace(WHOLE, turns=1), in_turns=False)
    assert first == prompt(text="Why?", gold_answer="So.")
    assert view_prompt(both, WHOLE, in_turns=True).gold_answer == reference_transcript(
        both
    )
    assert reference_transcript(both) == transcript(
        [assistant("So."), user("Shorter?"), assistant("Yes.")]
    )


def test_mt_bench_is_shown_as_fastchat_shows_it_with_tags_for_headings():
    """The template pair-v2-multi-turn of fastchat/llm_judge/data/judge_prompts.jsonl."""
    path = shared_data("answers/mt_bench/question.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 80
    for q1, q2 in (json.loads(line)["turns"] for line in lines):
        one = prompt(messages=(user(q1), user(q2)))
        said = join_turns(one, [response(text="a1"), response(text="a2")])
        question = view_prompt(one, WHOLE, in_turns=True).text
        text = f'<turn role="user">\n{question}\n</turn>\n{view_answer(said, WHOLE).transcript}'
        headed = re.sub(r"</turn>\n", "\n", text).removesuffix("\n</turn>")
        headed = headed.replace('<turn role="user">', "### User:")
        headed = headed.replace('<turn role="assistant">', "### Assistant A:")
        assert headed == (
            f"### User:\n{q1}\n\n### Assistant A:\na1\n\n"
            f"### User:\n{q2}\n\n### Assistant A:\na2"
        )


# What is left out is said, and never what a user says or a turn ends with


def test_of_long_tools_and_calls_the_middle_is_left_out():
    assert elide_middle("abcdefgh", 8) == "abcdefgh"
    assert elide_middle("abcdefghi", 4) == "ab\n[... 5 characters left out ...]\nhi"
    long = ToolCall(call_id="c1", name="bash", arguments="x" * 30)
    found = shown(assistant("", long), tool("y" * 30), assistant("z" * 30), tool_chars=10)  # fmt: skip
    assert found.is_cut
    assert found.transcript.count("[... 20 characters left out ...]") == 2
    assert "z" * 30 in found.transcript


def test_whole_steps_are_left_out_from_the_middle_outwards():
    steps = [
        message
        for i in range(5)
        for message in (assistant(f"step {i}", LS), tool(f"file {i}" * 20))
    ]
    asked_again = (user("q2"), assistant("done"))
    found = shown(*steps, assistant("words"), *asked_again, answer_chars=700)
    kept = [i for i in range(5) if f"step {i}" in found.transcript]
    assert kept == [0, 4]
    assert [f"file {i}" in found.transcript for i in range(5)] == [i in kept for i in range(5)]  # fmt: skip
    assert found.transcript.count('<left_out messages="6"/>') == 1
    assert found.is_cut
    assert all(text in found.transcript for text in ("words", "q2", "done"))


@given(
    st.lists(MESSAGES.filter(lambda m: m.role != "system"), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 300),
)
def test_law_cuts_spare_user_turns_and_the_words_that_a_turn_ends_with(
    messages: list[Message], tool_chars: int, answer_chars: int
):
    how = replace(WHOLE, tool_chars=tool_chars, answer_chars=answer_chars)
    found = AnswerView(messages=tuple(messages), shown=how)
    text = found.transcript
    ends = [*messages[1:], user("")]
    for message, after in zip(messages, ends, strict=True):
        is_last_word = message.role == "assistant" and not message.tool_calls
        if message.role == "user" or (is_last_word and after.role == "user"):
            assert transcript([message]) in text
    if not found.is_cut:
        assert text == transcript(messages)
    n_left_out = sum(map(int, re.findall(r'<left_out messages="(\d+)"/>', text)))
    assert len(re.findall("^<turn ", text, re.M)) == len(messages) - n_left_out


# Nothing in a text opens or closes a block

TAGS = ("turn", "call", "left_out", "response_a", "response_b", "question")
TAGS += ("reference_answer", "expected_behavior")
STARTS = ("<", "</", "< /", "<\t/ ", "<")
ENDS = (">", ' role="user">', ' id="0">', "\n>", "/>")
PAYLOADS = [f"{start}{tag}{end}" for tag, start, end in product(TAGS, STARTS, ENDS)]
PAYLOADS += [payload.upper() for payload in PAYLOADS]
RUBRIC = shipped("rubric", "factuality")


def blocks(payload: str, asked_of: Prompt) -> list[str]:
    """The tags of a query about an answer that has the payload in six places."""
    call = ToolCall(
        call_id="c1", name=payload, arguments=json.dumps({"x": payload + "y"})
    )
    said = shown(
        assistant(payload, call),
        tool(payload * 90, name=payload),
        user(payload),
        assistant(payload),
        tool_chars=200,
    )
    comparison = RUBRIC.compare(
        view_prompt(asked_of, WHOLE, in_turns=True),
        entrant_a="ann",
        entrant_b="bob",
        response_a=said.transcript,
        response_b="no",
    )
    query = RUBRIC.request(comparison, judge="")
    names = "|".join(TAGS)
    return re.findall(rf"(?<!\\)<\s*/?\s*(?:{names})\b", query.user, re.IGNORECASE)


def test_four_hundred_payloads_in_an_answer_open_and_close_nothing():
    plain = prompt(text="Why?", gold_answer="So.")
    clean = blocks("x", plain)
    assert len(PAYLOADS) == 400
    for payload in PAYLOADS:
        assert blocks(payload, plain) == clean
        posed = replace(plain, text=payload, gold_answer=payload)
        assert blocks("x", posed) == clean


@given(st.text(alphabet="<>/ turncalleft_o\n\\", max_size=60))
def test_law_own_words_are_those_that_were_said(text: str):
    """Also where they look like a turn."""
    found = own_words(
        IN_TURNS, transcript([assistant(text), user("q2"), assistant("a2")])
    )
    said = escape_tags(text).replace("\\<", "<")
    assert found in (f"{said}\na2", f"{said.removesuffix(chr(10))}\na2")
