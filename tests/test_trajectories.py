"""Recorded trajectories: what an agent did to answer, from a log of Inspect or rows of messages, as an answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis.answer_effort import average_effort
from elo_exp.data import answer_joins, answers, inspect_log
from elo_exp.data import bank as prompts
from elo_exp.data.answers import Answer
from elo_exp.entrants.trajectories import TrajectoriesEntrant
from elo_exp.errors import UserError
from elo_exp.files import write_json, write_jsonl, write_whole
from elo_exp.records import Message, Prompt, Response
from tests import agents_example
from tests.answer_files import asked, bank, made
from tests.commands import attempt, attempt_program, run
from tests.data import shared_data
from tests.documented import blocks

SUMS = Path(__file__).parent / "logs" / "sums.eval"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"cmd": "ls"}'},
}
WORK = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "Which files are here?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    {"role": "assistant", "content": "One, a.txt."},
]


def agent(path: Path, name: str = "ann") -> TrajectoriesEntrant:
    return TrajectoriesEntrant(entrant_id=name, path=str(path))


def prompt(key: str, text: str, **others: Any) -> Prompt:
    return Prompt(
        **{"prompt_id": key, "text": text, "source": "own", "subject": "own"} | others
    )


def answer(path: Path, *prompts: Prompt) -> list[Response]:
    return list(agent(path).generate(prompts))


def row(folder: Path, **changes: Any) -> Answer:
    given = {"id": "q1", "model": "ann", "messages": WORK, **changes}
    (found,) = answers.read_answers(write_jsonl(folder / "rows.jsonl", [given]))[1]
    return found


# Logs of Inspect


def test_a_sample_is_answered_by_what_followed_the_question():
    """The system's words that the agent put before it are no part of either."""
    (found,) = answer(SUMS, prompt("s1", "What is 1 times 2?"))
    assert [(one.role, one.content) for one in found.messages] == [
        ("assistant", "Let me see."),
        ("tool", "2"),
        ("assistant", "It is 2."),
    ]
    (call,) = found.messages[0].tool_calls
    assert (call.name, call.arguments) == ("multiply", '{"a": 1, "b": 2}')
    assert found.messages[1].tool_call_id == call.call_id
    assert (found.response_text, found.finish_reason) == ("It is 2.", "stop")


def test_an_epoch_is_a_draw():
    first = prompt("s2", "What is 2 times 3?")
    second = prompt("s2", "What is 2 times 3?", draw_idx=1)
    one, two = answer(SUMS, first, second)
    assert (one.slot, two.slot) == (("s2", 0), ("s2", 1))
    assert len(one.messages) == 3
    assert (two.messages, two.response_text) == ((), "It is 6.")  # words are a text
    assert answer(SUMS, prompt("s2", "What is 2 times 3?", draw_idx=2)) == []


def test_the_words_of_a_tool_that_failed_are_its_error():
    (found,) = answer(SUMS, prompt("s3", "What is 3 times 4?"))
    assert found.messages[1].content == "no threes today"


def test_a_limit_has_cut_an_answer_off():
    (found,) = answer(SUMS, prompt("s4", "What is 4 times 5?"))
    assert (found.finish_reason, found.response_text) == ("length", "")
    assert found.messages[-1].role == "tool"


def test_what_an_answer_took_is_recorded_with_the_logs_own_score():
    (found,) = answer(SUMS, prompt("s4", "What is 4 times 5?"))
    seconds = found.diagnostics["seconds"]
    assert found.diagnostics == {
        "steps": 3,
        "calls": 3,
        "tokens": 45,
        "seconds": seconds,
        "scores": {"match": 0},
    }
    assert 0 < seconds < 10


def test_what_an_agent_was_asked_may_be_more_than_a_text(tmp_path):
    """What the assistant says in the question is not yet its answer."""
    asked = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2."},
        {"role": "user", "content": "And 2 + 2?"},
    ]
    said = [
        *asked,
        {"role": "assistant", "content": "<think>Hm.</think>I count.", "tool_calls": [
            {"id": "c", "function": "count", "arguments": {"n": 4}, "type": "function"}]},
        {"role": "tool", "tool_call_id": "c", "function": "count", "content": "4"},
        {"role": "user", "content": "Please go on."},
        {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "4."}]},
    ]  # fmt: skip
    sample = {"id": 7, "epoch": 1, "input": asked, "messages": [WORK[0], *said]}
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    path = write_json(tmp_path / "a.json", log | {"samples": [sample]})
    (found,) = answers.read_answers(path)[1]
    assert [one.content for one in found.question_messages] == [
        "1 + 1?",
        "2.",
        "And 2 + 2?",
    ]
    assert [one.content for one in found.messages] == ["I count.", "4", "Please go on.", "4."]  # fmt: skip
    assert found.text == "4."
    bank = prompt("7", "", messages=found.question_messages)
    assert answer(path, bank)[0].messages == found.messages
    joined = answer_joins.join(answer_joins.read_answer_sets([("ann", path)]), None)
    assert joined.prompts[0].messages == found.question_messages


def test_the_question_of_a_log_is_its_input_however_a_solver_put_it(tmp_path):
    put = {"role": "user", "content": "Think step by step. Question: Why?"}
    sample = {"id": 7, "epoch": 1, "input": "Why?", "messages": [WORK[0], put, *WORK[2:]]}  # fmt: skip
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    path = write_json(tmp_path / "a.json", log | {"samples": [sample]})
    (found,) = answer(path, prompt("7", "Why?"))
    assert [one.role for one in found.messages] == ["assistant", "tool", "assistant"]


def test_a_sample_that_ended_in_an_error_is_missing(tmp_path):
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    sample = {"id": 7, "epoch": 1, "input": "Why?", "messages": WORK[1:]}
    samples = [sample | {"error": {"message": "timeout"}}, sample | {"id": 8}]
    samples[1]["messages"] = [{"role": "user", "content": "Why?"}, *WORK[2:]]
    path = write_json(tmp_path / "a.json", log | {"samples": samples})
    found = answer(path, prompt("7", "Why?"), prompt("8", "Why?"))
    assert [one.prompt_id for one in found] == ["8"]


def test_a_log_of_words_alone_is_read_as_before(tmp_path):
    """Its answers have neither messages nor diagnostics: what is stored of them stays found."""
    path = made(tmp_path, "inspect_ai log", "Said", "gpt")
    (found,) = answer(path, prompt("q0", "What is 0 and 0?"))
    assert found == Response(
        entrant_id="ann", prompt_id="q0", response_text="Said 0.", diagnostics={}
    )
    published = shared_data("formats/inspect_scored.eval")
    assert {row.messages for row in answers.read_answers(published)[1]} == {()}
    assert "messages" not in found.to_dict()


def test_a_log_is_a_bank(tmp_path):
    """Each sample once, with its target as reference and its task as source; metadata are columns."""
    found = prompts.load_bank(SUMS)
    assert [(one.prompt_id, one.text, one.gold_answer) for one in found] == [
        (f"s{i}", f"What is {i} times {i + 1}?", str(i * (i + 1))) for i in (1, 2, 3, 4)
    ]
    assert {one.source for one in found} == {"sums"}
    assert [one.slot for one in answer(SUMS, *found)] == [(f"s{i}", 0) for i in (1, 2, 3, 4)]  # fmt: skip
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]  # fmt: skip
    sample = {"id": 7, "epoch": 1, "input": asked, "messages": [*asked, WORK[-1]]}
    sample["metadata"] = {"topic": "reasons", "files": ["a"]}
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    path = write_json(tmp_path / "a.json", log | {"samples": [sample]})
    (one,) = prompts.load_bank(path)
    assert [message.role for message in one.messages] == ["system", "user"]
    assert prompts.PromptBank(path=path).read_column("topic") == {"7": "reasons"}
    assert answer(path, one)[0].response_text == "One, a.txt."


def test_two_entrants_answer_from_logs_to_the_questions_of_one(tmp_path):
    agents_example.write_files(tmp_path)
    words = [f"+entrant@entrant.{name}=trajectories" for name in ("careful", "quick")]
    for name in ("careful", "quick"):
        words += [f"entrant.{name}.entrant_id={name}", f"entrant.{name}.path={name}.eval"]  # fmt: skip
    ran = run("entrant=[]", *words, "prompts.bank_path=careful.eval", "judge=lexical",
              "tracker=local", "figures=false", "elo.n_perms=10", folder=tmp_path)  # fmt: skip
    assert {row["model"]: row["n"] for row in ran.read("manifest.json")["effort"]} == {
        "careful": 40,
        "quick": 40,
    }
    rows = ran.rows("responses/responses_careful.jsonl")
    assert {row["prompt_id"] for row in rows} == set(agents_example.FILES)
    assert rows[0]["messages"][0]["tool_calls"][0]["function"]["name"] == "bash"


# Rows of messages


def test_rows_of_messages_are_read_alike(tmp_path):
    changes = {"draw_idx": 2, "usage": {"total_tokens": 90}, "seconds": 1.5}
    found = row(tmp_path, **changes)
    assert (found.id, found.entrant, found.draw_idx) == ("q1", "ann", 2)
    assert (found.prompt, found.text) == ("Which files are here?", "One, a.txt.")
    assert [one.role for one in found.messages] == ["assistant", "tool", "assistant"]
    assert found.recorded == {
        "finish_reason": "stop",
        "diagnostics": {"steps": 2, "calls": 1, "tokens": 90, "seconds": 1.5},
    }


def test_a_conversation_of_one_answer_is_a_text(tmp_path):
    found = row(tmp_path, messages=[*WORK[:2], WORK[4]])
    assert (found.text, found.messages, found.question_messages) == (
        "One, a.txt.",
        (),
        (),
    )


def test_a_call_that_nobody_ran_ends_an_answer(tmp_path):
    found = row(tmp_path, messages=WORK[:3])
    assert (found.text, found.recorded["finish_reason"]) == ("", "tool_calls")


def test_a_row_with_an_error_has_no_answer(tmp_path):
    found = row(tmp_path, messages=WORK[:2], error={"code": "timeout"})
    assert found.text is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"messages": [WORK[1], {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
         'rows.jsonl:1: message 2 has a part of type "image_url". Only text can be compared: leave the row out.'),
        ({"messages": [WORK[1], {"role": "function", "content": "x"}]},
         'rows.jsonl:1: message 2 has the role "function", which is none of system, user, assistant, tool.'),
        ({"messages": [WORK[1], "x"]}, "rows.jsonl:1: message 2 must have role and content; a value has another form."),
        ({"messages": WORK[:2]}, "rows.jsonl:1: messages must be a user's message and an answer. If"),
        ({"messages": WORK[2:]}, "rows.jsonl:1: messages must be a user's message and an answer. If"),
        ({"messages": []}, "rows.jsonl:1: messages must be a list that is not empty; got []."),
        ({"draw_idx": "x"}, 'rows.jsonl:1: draw_idx must be a whole number of 0 or more; got "x".'),
        ({"seconds": "x"}, 'rows.jsonl:1: seconds must be a number; got "x".'),
        ({"messages": [WORK[1], {"role": "assistant", "content": "\ud800"}]}, "holds half of a character"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_with_its_place(tmp_path, changes, words):
    with pytest.raises(UserError) as error:
        row(tmp_path, **changes)
    assert words in str(error.value)
    assert "\n" not in error.value.line


def test_an_image_in_a_log_is_refused_where_answers_are_read_and_not_where_scores_are(
    tmp_path,
):
    picture = {"type": "image", "image": "attachment://a"}
    sample = {
        "id": 7,
        "epoch": 1,
        "input": [{"role": "user", "content": [picture]}],
        "attachments": {"a": "data:image/png;base64,"},
        "scores": {"match": {"value": "C"}},
    }
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    path = write_json(tmp_path / "a.json", log | {"samples": [sample]})
    assert [one.scores for one in inspect_log.read_log(path).samples()] == [
        {"match": 1}
    ]
    with pytest.raises(UserError) as error:
        answers.read_answers(path)
    assert str(error.value) == (
        f'{path}: sample 1: message 1 has a part of type "image". Only text can be compared: leave the row out.'
    )


TRACE = "{} is a trace of OpenTelemetry. Write its messages as rows (docs/conversations.md)."
SPAN = {"name": "chat gpt", "start_time": "2026-11-26T12:00:00Z", "attributes": {"gen_ai.request.model": "gpt"}}  # fmt: skip


@pytest.mark.parametrize(
    "span",
    [
        {"resourceSpans": [{"scopeSpans": []}]},
        SPAN | {"context": {"trace_id": "0x1", "span_id": "0x2"}},
        SPAN | {"traceId": "1", "spanId": "2"},
        SPAN | {"trace_id": "1", "span_id": "2"},
    ],
)
def test_a_trace_of_opentelemetry_is_said_to_be_one(tmp_path, span):
    """One document over many lines is recognised, too."""
    write_jsonl(tmp_path / "trace.jsonl", [span, span])
    write_json(tmp_path / "trace.json", span)
    for name in ("trace.jsonl", "trace.json"):
        with pytest.raises(UserError) as error:
            agent(tmp_path / name).check()
        assert str(error.value) == TRACE.format(tmp_path / name)


def test_a_trace_is_refused_whatever_it_was_given_for_and_a_table_with_ids_is_none(
    tmp_path,
):
    write_jsonl(tmp_path / "trace.jsonl", [SPAN | {"context": {}}])
    for words in ("trace.jsonl", "trace.jsonl judge=lexical"):
        ran = attempt(*words.split(), folder=tmp_path)
        assert (ran.code, ran.err) == (2, f"elo_exp: {TRACE.format('trace.jsonl')}\n")
    with pytest.raises(UserError, match=r"trace.jsonl:1 is a trace of OpenTelemetry"):
        prompts.load_bank(tmp_path / "trace.jsonl")
    rows = [{"trace_id": "1", "span_id": "2", "input": "Why?", "output": "So."}]
    assert (
        answers.read_answers(write_jsonl(tmp_path / "rows.jsonl", rows))[1][0].text
        == "So."
    )


# Pairing


def test_logs_of_two_tasks_are_not_paired():
    other = prompt("s1", "What is the capital of France?")
    with pytest.raises(UserError) as error:
        agent(SUMS, "b").cache_key(other)
    assert str(error.value) == (
        f"{SUMS} asks another question at sample s1 than the prompts of b. Give logs of one task."
    )
    assert answer(SUMS, prompt("s1", "What  is 1\ntimes 2?"))  # white space is none


def test_a_conversation_of_fixed_user_turns_is_an_answer_to_them(tmp_path):
    turns = [Message(role="user", content=text) for text in ("One?", "Two?")]
    said = [{"role": role, "content": text} for role, text in (
        ("user", "One?"), ("assistant", "1."), ("user", "Two?"), ("assistant", "2."))]  # fmt: skip
    path = write_jsonl(tmp_path / "a.jsonl", [{"id": "q1", "messages": said}])
    (found,) = answer(path, prompt("q1", "", messages=tuple(turns)))
    assert [one.content for one in found.messages] == ["1.", "Two?", "2."]
    turns[1] = Message(role="user", content="Three?")
    with pytest.raises(UserError, match="asks another question at sample q1"):
        answer(path, prompt("q1", "", messages=tuple(turns)))


def test_answers_of_another_make_are_no_trajectories(tmp_path):
    path = made(tmp_path, "alpaca_eval's outputs", "Said", "ann")
    with pytest.raises(UserError) as error:
        agent(path).check()
    assert str(error.value) == (
        f"{path} holds neither a log of Inspect nor rows of messages, but alpaca_eval's outputs. For such answers, write:\n"
        f"  answers={path}"
    )


def test_own_logs_are_joined_draw_by_draw(tmp_path):
    files = answer_joins.read_answer_sets([("a", SUMS), ("b", SUMS)])
    joined = answer_joins.join(files, None)
    assert [one.prompt_id for one in joined.shared_prompts] == ["s1", "s2", "s3", "s4"]
    assert files["a"].n_draws == 2
    assert files["a"].describe() == (
        f"{SUMS}: inspect_ai log: 4 answers of a; 1 empty; 1 cut off; 4 later draws"
    )
    response = files["a"].find_response(prompt("s2", "What is 2 times 3?", draw_idx=1))
    assert response is not None
    assert (response.slot, response.response_text) == (("s2", 1), "It is 6.")
    log = made(tmp_path, "inspect_ai log", "Said", "gpt")
    (one,) = answer_joins.read_answer_sets([("c", log)]).values()
    assert (one.n_draws, "later draws" in one.describe()) == (1, False)
    assert len(
        answer_joins.join(
            {"c": one}, prompts.PromptBank(path=bank(tmp_path))
        ).shared_prompts
    ) == len(asked(""))


def test_a_prompt_that_lacks_a_draw_is_left_out_where_draws_are_wanted(tmp_path):
    """For all, as one that lacks an answer is; and what is not compared is said."""
    log = {"status": "success", "eval": {"task": "t", "model": "m"}}
    samples = [
        {"id": key, "epoch": epoch, "input": f"{key}?", "messages": WORK[1:]}
        for key in ("s1", "s2")
        for epoch in (1, 2)
    ]
    for sample in samples:
        sample["messages"] = [{"role": "user", "content": sample["input"]}, *WORK[2:]]
    samples[3]["error"] = {"message": "timeout"}
    path = write_json(tmp_path / "a.json", log | {"samples": samples})
    files = answer_joins.read_answer_sets([("a", path), ("b", path)])
    assert len(answer_joins.join(files, None).shared_prompts) == 2
    assert answer_joins.join(files, None).describe()[-1] == (
        "answers: 1 of 2 per prompt; answers_per_prompt=2 compares all"
    )
    twice = answer_joins.join(files, None, draws=2)
    assert [one.prompt_id for one in twice.shared_prompts] == ["s1"]
    assert "draws:" not in "".join(twice.describe())
    assert [
        one.prompt_id for one in answer_joins.join(files, None, draws=9).shared_prompts
    ] == ["s1"]
    one = answer_joins.read_answer_sets(
        [("a", path), ("c", made(tmp_path, "plain rows", "Said", "x"))]
    )
    assert one["c"].n_draws == 1


# What the answers took


def test_what_agents_did_is_averaged_by_entrant_and_never_fitted(tmp_path):
    """Words alone are one step; what no log says of an answer is not counted as nothing."""
    rows = answer_joins.read_answer_sets([("a", SUMS)])["a"]
    prompts = [prompt(f"s{i}", f"What is {i} times {i + 1}?") for i in (1, 2, 3, 4)]
    seconds = [prompt(p.prompt_id, p.text, draw_idx=1) for p in prompts]
    found = [one for p in (*prompts, *seconds) if (one := rows.find_response(p))]
    said = Response(entrant_id="b", prompt_id="s1", response_text="It is 2.")
    first, second = average_effort({"a": found, "b": [said]})
    assert (first["model"], first["n"]) == ("a", 8)
    assert (first["steps"], first["calls"]) == (18 / 8, 12 / 8)
    assert (first["tokens"], first["scores"]) == (33.75, {"match": 0.75})
    assert second == {
        "model": "b",
        "n": 1,
        "steps": 1,
        "calls": 0,
        "tokens": None,
        "seconds": None,
        "scores": {},
    }
    assert average_effort({"b": [said]}) == []


@pytest.mark.system
def test_the_page_of_two_agents_says_what_their_answers_took(tmp_path):
    agents_example.write_files(tmp_path)
    ran = run("careful.eval", "quick.eval", "judge=lexical", "tracker=local",
              "figures=false", "elo.n_perms=10", folder=tmp_path)  # fmt: skip
    rows = {row["model"]: row for row in ran.read("manifest.json")["effort"]}
    careful, quick = rows["lab/careful"], rows["lab/quick"]
    assert careful["n"] == quick["n"] == 40
    assert careful["calls"] > 1 > quick["calls"]
    assert careful["scores"]["includes"] == 1 > quick["scores"]["includes"]
    cells = ran.page.cells
    heads = [
        "Entrant",
        "Answers",
        "Steps",
        "Tool calls",
        "Tokens",
        "Seconds",
        "includes",
    ]
    at = cells.index(heads)
    means = (f"{careful[key]:.1f}" for key in ("steps", "calls"))
    assert cells[at + 1][:5] == [
        "lab/careful",
        "40",
        *means,
        f"{careful['tokens']:.0f}",
    ]
    assert [row[0] for row in cells[at + 1 : at + 3]] == ["lab/careful", "lab/quick"]
    assert "The ratings are not adjusted for them" in ran.page.said


def test_the_lines_of_the_page_on_conversations_make_rows_of_spans(tmp_path: Path):
    """The last call of a conversation holds what was said before; other spans are passed over."""
    call = {"type": "tool_call", "id": "c1", "name": "bash", "arguments": {"cmd": "ls"}}
    told = {"type": "tool_call_response", "id": "c1", "response": "a.txt"}
    asked = {"role": "user", "parts": [{"type": "text", "content": "Which files?"}]}
    begun = {"role": "assistant", "parts": [call]}
    said = {"role": "assistant", "parts": [{"type": "text", "content": "a.txt."}]}
    spans = [
        span([asked], [begun]),
        {"name": "execute_tool bash", "attributes": {}},
        span([asked, begun, {"role": "tool", "parts": [told]}], [said]),
    ]
    (block,) = (b for b in blocks("docs/conversations.md") if b.kind == "python")
    program = write_whole(tmp_path / "spans.py", block.text)
    write_jsonl(tmp_path / "spans.jsonl", spans)
    line = f"{sys.executable} {program.name} < spans.jsonl > rows.jsonl"
    assert attempt_program("bash", "-c", line, folder=tmp_path).code == 0
    (row,) = answers.read_answers(tmp_path / "rows.jsonl")[1]
    assert (row.id, row.entrant, row.prompt) == ("q1", "gpt", "Which files?")
    assert [one.role for one in row.messages] == ["assistant", "tool", "assistant"]
    assert row.messages[0].tool_calls[0].arguments == '{"cmd": "ls"}'
    assert row.text == "a.txt."


def span(given: list[Any], said: list[Any]) -> dict[str, Any]:
    return {
        "name": "chat gpt",
        "context": {"trace_id": "0x1"},
        "attributes": {
            "gen_ai.conversation.id": "q1",
            "gen_ai.request.model": "gpt",
            "gen_ai.input.messages": json.dumps(given),
            "gen_ai.output.messages": json.dumps(said),
        },
    }
