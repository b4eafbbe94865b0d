"""Files of answers of other programs: recognised by their keys, and read as their programs mean them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import answers
from elo_exp.data.answers import Answer
from elo_exp.data.file_kinds import recognise_kinds
from elo_exp.errors import UserError
from elo_exp.files import write_json, write_jsonl, write_whole
from tests.answer_files import BY_ID, MADE, asked, made, write_log
from tests.data import shared_data, write_table
from tests.score_files import promptfoo_results

PROMPTS = {one.prompt for one in asked("")}


def row_of(folder: Path, name: str, **changes: Any) -> Answer:
    """The only row of a file, with changes."""
    (row,) = MADE[name](asked("Said", 1), "ann")[:1]
    return answers.read_answers(write_jsonl(folder / "one", [row | changes]))[1][0]


# What is read


@pytest.mark.parametrize("name", MADE)
def test_a_file_is_recognised_by_its_keys_and_every_answer_is_read(tmp_path, name):
    path = made(tmp_path, name, "Said", "ann")
    form, rows = answers.read_answers(path)
    assert form.name == name
    assert {row.text for row in rows} == {one.answer for one in asked("Said")}
    if name in BY_ID:
        assert {row.id for row in rows} == {one.id for one in asked("Said")}
    else:
        assert {row.prompt for row in rows} == PROMPTS
    assert {row.entrant for row in rows} == ({None} if form.in_folder else {"ann"})
    assert all(str(path) in row.location for row in rows)


def test_every_format_has_rows_here():
    assert {one.name for one in answers.formats()} == {*MADE, answers.WIDE_TABLE}


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "csv.gz"])
def test_plain_rows_are_of_any_table(tmp_path, ending):
    """With its names in any case, spaces around them, and the mark that some programs put first."""
    rows = [
        {" Prompt": "Why?", "RESPONSE ": "So.", "Gold Answer": "Because."},
        {" Prompt": "How?", "RESPONSE ": "", "Gold Answer": None},
    ]
    path = write_table(tmp_path / f"old.{ending}", rows)
    if ending == "csv":
        write_whole(path, b"\xef\xbb\xbf" + path.read_bytes())
    form, (first, second) = answers.read_answers(path)
    assert form.name == "plain rows"
    assert (first.prompt, first.text, first.reference) == ("Why?", "So.", "Because.")
    assert (second.prompt, second.text, second.reference) == ("How?", "", None)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("alpaca_eval's outputs", {"input": "x = 1"}, {"prompt": "What is 0\nand 0?\n\nx = 1"}),
        ("alpaca_eval's outputs", {"output": ""}, {"text": ""}),
        ("alpaca_eval's outputs", {"output": None}, {"text": None}),
        ("FastChat's answers", {"choices": [{"turns": ["$ERROR$"]}]}, {"text": None}),
        ("FastChat's answers", {"choices": [{"turns": ["A"]}, {"turns": ["B"]}]},
         {"text": "A", "notes": ("first choice",)}),
        ("FastChat's answers", {"question_id": 81}, {"id": "81", "later_turns": ("And more.",), "notes": ()}),
        ("arena_hard's answers", {"messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1?"},
            {"role": "assistant", "content": "One."}, {"role": "user", "content": "2?"},
            {"role": "assistant", "content": "Two."}]},
         {"prompt": "1?", "text": "One.", "notes": ("first turn",)}),
        ("lm_eval", {"arguments": [["Q?", {"until": []}]], "resps": [["A", "B"]]},
         {"prompt": "Q?", "text": "A", "notes": ("first of several answers",)}),
        ("lm_eval", {"target": 7}, {"reference": "7", "id": "0 h0"}),
        ("OpenAI batch output", {"response": None, "error": {"code": "batch_expired"}}, {"text": None}),
        ("OpenAI batch output", {"response": {"status_code": 400, "body": {}}}, {"text": None}),
        ("OpenAI batch output", {"response": {"status_code": 200, "body": {"model": "m", "choices": [
            {"message": {"content": "Half", "refusal": None}, "finish_reason": "length"}]}}},
         {"text": "Half", "entrant": "m", "is_cut": True}),
        ("OpenAI batch output", {"response": {"status_code": 200, "body": {"model": "m", "choices": [
            {"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]}}}, {"text": "No."}),
        ("OpenAI batch output", {"response": {"status_code": 200, "body": {"model": "m", "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}]}}}, {"text": "Yes."}),
        ("plain rows", {"response": 42}, {"text": "42"}),
        ("plain rows", {"answer": "Gold?"}, {"text": "Said 0.", "notes": ["answer by 'response', not 'answer'"]}),
        ("plain rows", {"finish_reason": "length"}, {"is_cut": True}),
        ("elo_exp's responses", {"finish_reason": "length"}, {"is_cut": True}),
    ],
)  # fmt: skip
def test_a_row_is_read_as_its_program_means_it(tmp_path, name, changes, expected):
    row = row_of(tmp_path, name, **changes)
    assert {key: getattr(row, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("alpaca_eval's outputs", {"output": ["a"]}, ":1: output must be text; got ['a']."),
        ("alpaca_eval's outputs", {"instruction": " "}, ":1 has an empty prompt."),
        ("alpaca_eval's outputs", {"generator": "a\nb"},
         ':1: generator must be a name of at most 200 characters, none of them a control character; got "a\\nb".'),
        ("FastChat's answers", {"choices": []}, ":1: choices must be a list that is not empty; got []."),
        ("FastChat's answers", {"choices": [{"turns": "zzz"}]}, ':1: turns must be a list that is not empty; got "zzz".'),
        ("FastChat's answers", {"choices": [{}]}, ":1 is not a row of FastChat's answers: it lacks turns."),
        ("lm_eval", {"resps": "zzz"}, ':1: resps must be a list that is not empty; got "zzz".'),
        ("arena_hard's answers", {"messages": [{"role": "user", "content": "1?"}]},
         ":1: messages must be of user and assistant in turn; got user."),
        ("lm_eval", {"resps": [[[-1.5, False]]]}, ":1: resps holds log-likelihoods of options, and no answer"),
        ("OpenAI batch output", {"custom_id": "i" * 201}, ":1: custom_id must be a name of at most 200 characters"),
        ("OpenAI batch output", {"custom_id": None}, ":1: custom_id must be a name; got null."),
        ("plain rows", {"question": "a \ud800"}, ":1 holds half of a character"),
        ("plain rows", {"question": None}, ":1 has neither a prompt nor an id."),
        ("elo_exp's responses", {"p_correct": "x"}, ':1: p_correct must be '),
    ],
)  # fmt: skip
def test_a_malformed_row_is_refused_with_its_place(tmp_path, name, changes, words):
    with pytest.raises(UserError) as error:
        row_of(tmp_path, name, **changes)
    assert words in str(error.value)
    assert "\n" not in error.value.line


def test_a_file_of_no_format_is_told_what_it_lacks(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"uid": 1, "model": "m", "prompt": "?"}])
    with pytest.raises(UserError) as error:
        answers.read_answers(path)
    assert str(error.value) == (
        f"{path} has no column for the answer. Name its column:\n"
        "  columns.answer=COLUMN\n"
        "  Its columns: uid (1 number), model (1 text), prompt (1 text)."
    )


@pytest.mark.parametrize("ending", ["eval", "json"])
def test_of_a_log_each_epoch_is_a_draw_and_an_error_is_no_answer(tmp_path, ending):
    log = MADE["inspect_ai log"](asked("Said", 2), "openai/gpt")
    second, failed = json.loads(json.dumps(log["samples"]))
    second["epoch"] = 2
    failed |= {"id": "q9", "error": {"message": "timeout"}}
    log["samples"] = [second, *log["samples"], failed]
    path = write_log(tmp_path / f"a.{ending}", log)
    _, rows = answers.read_answers(path)
    found = {(row.id, row.draw_idx): row.text for row in rows}
    first = {("q0", 0): "Said 0.", ("q1", 0): "Said 1.", ("q9", 0): None}
    assert found == first | {("q0", 1): "Said 0."}
    assert {row.entrant for row in rows} == {"openai/gpt"}


def test_a_long_text_of_a_log_may_stand_in_its_attachments(tmp_path):
    log = MADE["inspect_ai log"](asked("Said", 1), "gpt")
    log["samples"][0] |= {"input": "attachment://ab", "attachments": {"ab": "Long?"}}
    assert answers.read_answers(write_json(tmp_path / "a", log))[1][0].prompt == "Long?"
    log["samples"][0]["attachments"] = {}
    with pytest.raises(
        UserError, match=r"sample 1 names the attachment ab, which is not in the log"
    ):
        answers.read_answers(write_json(tmp_path / "b", log))


def test_a_thought_is_split_off_as_it_is_of_an_entrants_answers(tmp_path):
    """A closing tag alone ends one where most answers have it; elsewhere it is a word of the answer."""
    said = [
        "<think>Hm.</think> So.",
        "It ends with </think>, see.",
        "Plain.",
        "<think>On",
    ]
    rows = [{"id": i, "response": text} for i, text in enumerate(said)]
    _, found = answers.read_answers(write_jsonl(tmp_path / "a.jsonl", rows))
    assert [row.text for row in found] == ["So.", said[1], "Plain.", ""]
    assert [row.is_cut for row in found] == [False, False, False, True]
    assert [len(row.notes) for row in found] == [1, 0, 0, 1]
    _, found = answers.read_answers(
        write_jsonl(
            tmp_path / "b.jsonl",
            [{"id": i, "response": "Hm.</think>\n\nSo."} for i in range(3)],
        )
    )
    assert {row.text for row in found} == {"So."}
    assert {tuple(row.notes) for row in found} == {("thought split off",)}


# Real files


@pytest.mark.parametrize(
    ("file", "name", "n", "entrant"),
    [
        ("answers/alpaca_eval/alpaca-7b/model_outputs.json.gz", "alpaca_eval's outputs", 805, "alpaca-7b"),
        ("answers/alpaca_eval/NullModel/model_outputs.json.gz", "alpaca_eval's outputs", 805, "example"),
        ("answers/alpaca_eval/phi-2/model_outputs.json.gz", "alpaca_eval's outputs", 803, "phi-2"),
        ("answers/arena_hard/v0.1/gpt-4-0314.jsonl.gz", "arena_hard's answers", 500, "gpt-4-0314"),
        ("answers/mt_bench/gpt-4.jsonl", "FastChat's answers", 30, "gpt-4"),
        ("formats/inspect_scored.eval", "inspect_ai log", 10, "openai/gpt-4o-mini"),
        ("formats/samples_lm_eval_schema_only.jsonl", "lm_eval", 48, None),
    ],
)  # fmt: skip
def test_a_published_file_is_read_whole(file, name, n, entrant):
    form, rows = answers.read_answers(shared_data(file))
    assert (form.name, len(rows)) == (name, n)
    assert {row.entrant for row in rows} == {entrant}
    assert all(row.text is not None for row in rows)


def test_the_answers_of_mt_bench_are_to_two_turns():
    _, rows = answers.read_answers(shared_data("answers/mt_bench/gpt-4.jsonl"))
    assert {len(row.later_turns) for row in rows} == {1}
    assert str(rows[0].text).startswith("If you have just overtaken the second person")


# Kinds


def test_a_file_says_what_it_can_be_read_as_what_it_is_meant_for_first(tmp_path):
    ways = {
        "battles": [{"model_a": "a", "model_b": "b", "winner": "tie"}],
        "prompts": [{"prompt_id": "p", "text": "Why?"}],
        "answers": [{"prompt_id": "p", "response": "So."}],
        "answers prompts": [{"question": "Why?", "answer": "So."}],
        "": [{"x": 1}],
    }
    for expected, rows in ways.items():
        path = write_jsonl(tmp_path / "file", rows)
        assert recognise_kinds(path) == tuple(expected.split()), rows
    results = write_json(tmp_path / "results.json", promptfoo_results(a=[1.0]))
    assert recognise_kinds(results) == ("scores",)
    log = made(tmp_path, "inspect_ai log", "Said", "gpt")
    samples = made(tmp_path, "lm_eval", "Said", "gpt")
    assert recognise_kinds(log) == recognise_kinds(samples) == ("scores", "answers")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x00" * 9, b"PK\x03\x04 no zip", b"PAR1 no table", b"\x1f\x8b no gzip"),
        *(b"{", b"[" * 5000, b'{"a": 1, "a": 2}', b"\xff\xfe", b"[1]", b'a,a\n1,"'),
    ],
)  # fmt: skip
def test_whatever_a_file_holds_nothing_is_raised(tmp_path, content):
    assert recognise_kinds(write_whole(tmp_path / "file", content)) == ()
    for path in (tmp_path, tmp_path / "absent", Path("x" * 300), Path("a\0b")):
        assert recognise_kinds(path) == ()
