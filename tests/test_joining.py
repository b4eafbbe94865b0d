"""Answers joined to their prompts: by text, else by id; named; what is missing on either side is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elo_exp.data import answer_joins
from elo_exp.data.answer_joins import AnswerSet, JoinedAnswers
from elo_exp.data.answers import Answer
from elo_exp.data.bank import PromptBank
from elo_exp.errors import UserError
from elo_exp.files import write_json, write_jsonl, write_whole
from tests.answer_files import BY_ID, MADE, asked, bank, made, write
from tests.data import shared_data, write_table
from tests.faulty_documents import faulty


def joined(*files: Any, prompts: Path | None = None) -> JoinedAnswers:
    """Files, or pairs of a name and a file, joined."""
    pairs = [one if isinstance(one, tuple) else (None, one) for one in files]
    questions = None if prompts is None else PromptBank(path=prompts)
    return answer_joins.join(answer_joins.read_answer_sets(pairs), questions)


def texts(found: JoinedAnswers) -> dict[str, list[str | None]]:
    """What each entrant says to the prompts that all answered."""
    return {
        name: [
            row.text if (row := one.find_answer(p)) else None
            for p in found.shared_prompts
        ]
        for name, one in found.answer_sets.items()
    }


def rows(*pairs: tuple[str, str], **others: Any) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "answer": text, **others} for prompt, text in pairs]


# A worked example


def test_two_files_are_joined_by_the_text_of_their_prompts(tmp_path):
    """One has an id and white space of its own, the other a prompt more; the first has a failed request."""
    old = write_jsonl(
        tmp_path / "old.jsonl",
        [
            {"id": 7, "prompt": "Why \n so?", "answer": "It is."},
            {"id": 8, "prompt": "How?", "answer": None},
            {"id": 9, "prompt": "Who?", "answer": ""},
        ],
    )
    new = write_jsonl(
        tmp_path / "new.jsonl", rows(("Who?", "He."), ("Why so?", "So."), ("How?", "A"))
    )
    found = joined(old, new)
    assert texts(found) == {"old": ["It is.", ""], "new": ["So.", "He."]}
    assert [(p.prompt_id, p.text) for p in found.shared_prompts] == [
        ("7", "Why \n so?"),
        ("9", "Who?"),
    ]
    assert found.describe() == [
        f"{old}: plain rows: 2 answers of old; 1 empty; 1 failed",
        f"{new}: plain rows: 3 answers of new",
        "prompts: 2 of 3 answered by both entrants (old lacks 1), 0 with a reference answer",
        "warning: 1 of 3 prompts lack an answer. A lead holds only if it survives when these prompts count "
        "against it.",
    ]


# Laws


@pytest.mark.parametrize("name", MADE)
def test_the_same_answers_are_the_same_in_every_format(tmp_path, name):
    """Answers, prompts and the responses that keys are made of, whatever program wrote the file."""
    prompts = bank(tmp_path)
    plain = joined(made(tmp_path, "plain rows", "Said", "ann"), prompts=prompts)
    other = joined(made(tmp_path / "other", name, "Said", "ann"), prompts=prompts)
    assert texts(other) == texts(plain)
    assert other.shared_prompts == plain.shared_prompts
    if name not in BY_ID:
        assert [
            p.text for p in joined(made(tmp_path, name, "Said", "ann")).shared_prompts
        ] == [one.prompt for one in asked("Said")] or name in (
            "alpaca_eval's outputs",
            "plain rows",
            "lm_eval",
            "ragas",
            "Prometheus",
        )
    for prompt in plain.shared_prompts:
        mine = other.answer_sets["ann"].find_response(prompt)
        assert mine is not None
        if name != "elo_exp's responses":  # which have more to say
            assert mine == plain.answer_sets["ann"].find_response(prompt)


WORDS = st.text(alphabet="ab \n", max_size=3).map(lambda text: f"q{text}")
TABLE = st.dictionaries(WORDS, st.sampled_from(["A", "B", ""]), min_size=1, max_size=6)


def of(name: str, table: Mapping[str, str], order: Sequence[int]) -> AnswerSet:
    by_text = {answer_joins.fold_spaces(prompt): text for prompt, text in table.items()}
    every = [
        Answer(location=f"{name}:{i}", prompt=prompt, text=text)
        for i, (prompt, text) in enumerate(by_text.items())
    ]
    chosen = sorted(every, key=lambda row: order[every.index(row) % len(order)])
    about = {
        "path": Path(name),
        "format": "plain rows",
        "is_named": False,
        "inner_name": None,
    }
    return AnswerSet(entrant=name, rows=chosen, **about)  # type: ignore[arg-type]


@pytest.mark.system
@given(st.lists(TABLE, min_size=2, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_any_order_of_rows_and_files_gives_one_bank_and_a_lost_row_is_named(
    tables, data
):
    n = len(tables)
    orders = st.permutations(range(6))
    files = {f"m{i}": of(f"m{i}", one, range(6)) for i, one in enumerate(tables)}
    whole = answer_joins.join(files, None)
    again = {
        name: of(name, tables[int(name[1:])], data.draw(orders))
        for name in data.draw(st.permutations(list(files)))
    }
    other = answer_joins.join(again, None)
    assert other.prompts == whole.prompts
    assert {k: other.answered_ids[k] for k in files} == whole.answered_ids
    shared = set.intersection(
        *({*map(answer_joins.fold_spaces, one)} for one in tables)
    )
    texts = [{*map(answer_joins.fold_spaces, one)} for one in tables]
    if not any(one & other for one, other in combinations(texts, 2)):
        with pytest.raises(UserError, match="No prompt is answered by"):
            _ = whole.planned_prompts
        return
    assert {
        answer_joins.fold_spaces(p.text) for p in whole.planned_prompts
    } == set.union(*texts)
    assert {answer_joins.fold_spaces(p.text) for p in whole.shared_prompts} == shared
    counts = whole.describe()[n]
    for name, one in files.items():
        lacking = len(whole.prompts) - len(one.rows)
        assert (f"{name} lacks {lacking}" in counts) == bool(lacking)


# Names


def test_an_entrant_is_called_as_the_command_the_file_or_the_folder_says(tmp_path):
    pairs = [("Why?", "So.")]
    named = write_jsonl(tmp_path / "a.jsonl", rows(*pairs, model="gpt"))
    stem = write_jsonl(tmp_path / "responses_old.jsonl.gz", rows(*pairs))
    one, two = (
        write_jsonl(tmp_path / name / "outputs.jsonl", rows(*pairs))
        for name in ("one", "two")
    )
    files = [(None, named), (None, stem), (None, one), (None, two), ("null", stem)]
    assert list(answer_joins.read_answer_sets(files)) == [
        "gpt",
        "old",
        "one",
        "two",
        "null",
    ]
    assert joined(named, stem).describe()[0] == (
        f"{named}: plain rows: 1 answers of gpt; call it otherwise: 'answers={{NAME:FILE,...}}'"
    )


def test_two_files_of_one_name_stop_with_words_to_paste(tmp_path):
    a, b = (
        write_jsonl(tmp_path / f"{name}.jsonl", rows(("Why?", name), model="gpt"))
        for name in "ab"
    )
    with pytest.raises(UserError) as error:
        joined(a, b)
    assert str(error.value) == (
        f"{a} and {b} both hold answers of gpt. Name the two:\n  'answers={{a:{a},b:{b}}}'"
    )
    assert list(joined(("x", a), ("y", b)).answer_sets) == ["x", "y"]


def test_a_file_of_several_entrants_is_several_and_a_name_chooses_one(tmp_path):
    path = write_jsonl(
        tmp_path / "all.jsonl",
        [{"id": i, "prompt": str(i), "answer": m, "model": m} for m in "abcd" for i in (1, 2)],
    )  # fmt: skip
    assert list(joined(path).answer_sets) == ["a", "b", "c", "d"]
    assert joined(path).describe()[0] == (
        f"{path}: plain rows: 8 answers of 4 entrants (a, b, c and 1 more)"
    )
    chosen = joined(("c", path), ("a", path))
    assert texts(chosen) == {"c": ["c", "c"], "a": ["a", "a"]}
    assert list(answer_joins.read_answer_sets([(None, path), ("b", None)])) == [
        "a",
        "c",
        "d",
    ]
    with pytest.raises(
        UserError, match=r"answers leaves out x \(null\), and no file has it"
    ):
        answer_joins.read_answer_sets([(None, path), ("x", None)])
    with pytest.raises(UserError, match=r"4 entrants, and none is called x. Choose"):
        joined(("x", path))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a.jsonl", [(None, "a.jsonl")]),
        (["a.jsonl", "b.jsonl"], [(None, "a.jsonl"), (None, "b.jsonl")]),
        ({"old": "a.jsonl", 4: "b"}, [("old", "a.jsonl"), ("4", "b")]),
        ([{"name": "null", "file": "a"}, "b"], [("null", "a"), (None, "b")]),
        (["a", {"name": "x", "file": None}], [(None, "a"), ("x", None)]),
        (None, []),
        ({}, []),
    ],
)
def test_the_setting_names_files(value, expected):
    assert answer_joins.parse_answers_setting(value) == [
        (name, path and Path(path)) for name, path in expected
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "answers must be a file, a list of files, or NAME: FILE; got 1."),
        (5, "answers must be a file, a list of files, or NAME: FILE; got 5."),
        ("", 'answers must be a file, a list of files, or NAME: FILE; got "".'),
        (
            {"a": {"b": "c"}},
            "answers must be a file, a list of files, or NAME: FILE; got {'b': 'c'}.",
        ),
        (
            [{"name": "a", "file": "x"}] * 2,
            "answers must have each name once; got a twice.",
        ),
    ],
)
def test_another_value_of_the_setting_is_refused(value, words):
    with pytest.raises(UserError) as error:
        answer_joins.parse_answers_setting(value)
    assert str(error.value).startswith(words)


def test_a_folder_stands_for_the_files_in_it(tmp_path):
    for name in "ba":
        write_jsonl(tmp_path / f"{name}.jsonl", rows(("Why?", name)))
    (tmp_path / ".hidden").write_text("x", encoding="utf-8")
    found = answer_joins.parse_answers_setting(str(tmp_path))
    assert [path.name for _, path in found] == ["a.jsonl", "b.jsonl"]


# With a bank


def test_with_a_bank_its_rows_are_the_prompts_and_strays_are_named(tmp_path):
    prompts = write_jsonl(
        tmp_path / "bank.jsonl",
        [{"id": i, "text": f"Is it {i}?", "gold_answer": "Yes."} for i in range(4)],
    )
    old = write_jsonl(
        tmp_path / "old.jsonl",
        [{"id": i, "prompt": f"Is  it {i}?", "answer": "A"} for i in (0, 1, 2, 3, 9)],
    )
    new = write_jsonl(
        tmp_path / "new.jsonl",
        [{"id": i, "prompt": f"Q: is it {i}?", "answer": "B"} for i in range(4)],
    )
    found = joined(old, new, prompts=prompts)
    assert [p.prompt_id for p in found.shared_prompts] == ["0", "1", "2", "3"]
    assert found.describe()[2:] == [
        "warning: old: 1 answers are to no prompt of the bank (9), and left out.",
        "warning: new: 4 answers are joined by id alone: their file has another text for the prompt "
        "(0).",
        "prompts: 4 of 4 answered by both entrants, 4 with a reference answer",
    ]


def test_a_question_in_two_templates_is_one_prompt_where_its_id_is_that_of_its_content(
    tmp_path,
):
    """As lm_eval writes what it asked of two chat models, each in a template of its own."""
    paths = []
    for model, template in (("m1", "<user>{}</user>"), ("m2", "[INST]{}[/INST]")):
        samples = MADE["lm_eval"](asked(model, 3), model)
        for row in samples:
            context = template.format(row["doc"]["question"])
            row["arguments"] = {"gen_args_0": {"arg_0": context, "arg_1": {}}}
        paths.append(write_jsonl(tmp_path / model / "samples_x.jsonl", samples))
    found = joined(*paths)
    assert [p.text for p in found.shared_prompts] == [
        one.prompt for one in asked("", 3)
    ]
    assert texts(found) == {m: [f"{m} {i}." for i in range(3)] for m in ("m1", "m2")}
    assert found.describe()[2].startswith(
        "warning: m1: 3 answers are joined by id alone"
    )


def test_of_equal_prompts_the_id_says_which_is_answered(tmp_path):
    twice = [{"id": name, "prompt": "Why?", "answer": name} for name in "ab"]
    path = write_jsonl(tmp_path / "old.jsonl", twice)
    prompts = [{"prompt_id": row["id"], "text": row["prompt"]} for row in twice]
    found = joined(path, prompts=write_jsonl(tmp_path / "bank.jsonl", prompts))
    assert texts(found) == {"old": ["a", "b"]}


def test_a_bank_of_other_prompts_is_named(tmp_path):
    prompts = write_jsonl(tmp_path / "bank.jsonl", [{"text": "Whence?"}])
    path = write_jsonl(tmp_path / "old.jsonl", rows(("Why?", "So.")))
    with pytest.raises(UserError) as error:
        joined(path, prompts=prompts).describe()
    assert str(error.value) == (
        "No prompt is answered by all entrants (old has 0, none shared). Are these answers to the "
        f"prompts of {prompts}?"
    )


def test_the_closest_questions_of_files_that_share_none_are_shown(tmp_path):
    one = write_jsonl(
        tmp_path / "one.jsonl", rows(("Why is it?", "A"), ("Is 2 even?", "B"))
    )
    two = write_jsonl(
        tmp_path / "two.jsonl", rows(("is 2 even ?", "A"), ("Name a river.", "B"))
    )
    with pytest.raises(UserError) as error:
        joined(one, two).describe()
    assert error.value.below == (
        "  The closest two questions differ:",
        "    one: 'Is 2 even?'",
        "    two: 'is 2 even ?'",
    )


# What stops


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([{"prompt": "Why?", "answer": "A"}, {"prompt": "Why?", "answer": "B"}],
         [{"prompt": "Why?", "answer": "A"}],
         "one.jsonl:2 holds a second, different answer of one to 'Why?'. The first is at "),
        ([{"prompt": "Why?", "answer": "A", "target": "1"}],
         [{"prompt": "Why?", "answer": "A", "target": "2"}],
         "two.jsonl:1 has another reference for its prompt than "),
        ([{"id": 1, "prompt": "Why?", "answer": "A"}, {"id": 1, "prompt": "How?", "answer": "A"}],
         [{"id": 1, "answer": "A"}],
         "two.jsonl:1 has the id 1, which stands for two prompts in these files. Add prompts=FILE."),
        ([{"id": 1, "answer": "A"}], [{"id": 1, "answer": "A"}],
         "The files of answers hold no prompts. Add the questions that they answer:\n  prompts=FILE"),
        ([{"prompt": "Why?", "answer": "A"}], [{"prompt": "How?", "answer": "A"}],
         "No prompt is answered by all entrants (one has 1, two has 1, none shared). Are these"),
        ([{"prompt": "Why?", "answer": "A"}], [{"id": 1, "answer": "A"}], "two.jsonl holds no prompts. Add prompts=FILE."),
        ([{"prompt": "Why?", "answer": "A", "model": "m"}, {"prompt": "How?", "answer": "A", "model": None}],
         [{"prompt": "Why?", "answer": "A"}], "one.jsonl:2 names no model, and other rows do."),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_stops(tmp_path, first, second, words):
    one = write_jsonl(tmp_path / "one.jsonl", first)
    two = write_jsonl(tmp_path / "two.jsonl", second)
    with pytest.raises(UserError) as error:
        joined(one, two).describe()
    assert words in str(error.value)


def test_a_retried_request_has_the_answer_that_came(tmp_path):
    twice = [
        {"prompt": "Why?", "answer": None},
        *rows(("Why?", "So."), ("Why?", "So.")),
    ]
    found = joined(write_jsonl(tmp_path / "old.jsonl", twice))
    assert texts(found) == {"old": ["So."]}


def test_many_missing_answers_are_a_warning(tmp_path):
    """Three answer all ten, one only two."""
    files = [
        write_jsonl(
            tmp_path / f"{name}.jsonl", rows(*((f"Q{i}?", name) for i in range(n)))
        )
        for name, n in {"a": 10, "b": 10, "c": 2, "d": 10}.items()
    ]
    *_, counts, warning = joined(*files).describe()
    assert "2 of 10 answered by all 4 entrants (c lacks 8)" in counts
    assert warning == (
        "warning: 8 of 10 prompts lack an answer. A lead holds only if it survives when these prompts count "
        "against it."
    )


def test_a_changed_file_is_read_anew(tmp_path):
    path = write_jsonl(tmp_path / "old.jsonl", rows(("Why?", "A")))
    assert texts(joined(path)) == {"old": ["A"]}
    write_jsonl(path, rows(("Why?", "Another")))
    assert texts(joined(path)) == {"old": ["Another"]}


# Real files


def test_published_answers_are_joined(tmp_path):
    folder = shared_data("answers")
    alpaca = [
        folder / "alpaca_eval" / name / "model_outputs.json.gz"
        for name in ("phi-2", "NullModel", "text_davinci_003")
    ]
    found = joined(*alpaca)
    assert list(found.answer_sets) == ["phi-2", "example", "text_davinci_003"]
    assert (len(found.prompts), len(found.shared_prompts)) == (805, 803)
    assert found.describe()[2].endswith("805 answers of text_davinci_003; 2 empty")
    hard = [
        folder / "arena_hard/v0.1" / f"{name}.jsonl.gz"
        for name in ("gpt-4-0314", "gpt-3.5-turbo-0125")
    ]
    assert len(joined(*hard).shared_prompts) == 500
    bench = joined(
        folder / "mt_bench/gpt-4.jsonl", prompts=folder / "mt_bench/question.jsonl"
    )
    assert (len(bench.prompts), len(bench.shared_prompts)) == (80, 30)
    assert bench.describe()[0].endswith("30 answers of gpt-4")
    first = bench.shared_prompts[0]
    said = bench.answer_sets["gpt-4"].find_response(first)
    assert (first.prompt_id, said.response_text) == ("101", said.messages[-1].content)
    assert [m.role for m in said.messages] == ["assistant", "user", "assistant"]
    assert said.messages[1] == first.messages[1]


TURNS = {"question_id": "1", "category": "maths", "turns": ["1+1?", "And 2?"]}


def test_answers_to_fewer_turns_than_are_asked_stop_and_failed_ones_are_missing(
    tmp_path,
):
    def said(*texts: str) -> Path:
        row = {"question_id": "1", "model_id": "ann", "choices": [{"turns": texts}]}
        return write_jsonl(tmp_path / "ann.jsonl", [row])

    prompts = write_jsonl(tmp_path / "question.jsonl", [TURNS])
    one = joined(said("2"), prompts=prompts)
    with pytest.raises(UserError, match=":1 answers 1 of the 2 turns of prompt 1"):
        one.answer_sets["ann"].find_response(one.prompts[0])
    failed = joined(said("2", "$ERROR$"), prompts=prompts)
    assert failed.answered_ids == {"ann": []}


def test_of_answers_to_two_turns_a_bank_of_first_turns_asks_the_first(tmp_path):
    row = {"question_id": "1", "model_id": "ann", "choices": [{"turns": ["2", "4"]}]}
    path = write_jsonl(tmp_path / "ann.jsonl", [row])
    prompts = write_jsonl(tmp_path / "bank.jsonl", [{"id": 1, "prompt": "1+1?"}])
    found = joined(path, prompts=prompts)
    assert found.answer_sets["ann"].find_response(found.prompts[0]).response_text == "2"
    assert (
        "ann: the first turn of 1 answers, whose prompts ask no more"
        in found.describe()
    )


def test_seventy_models_of_which_none_answered_all(tmp_path):
    folder = shared_data("llmfao")
    found = joined(folder / "responses.jsonl.gz", prompts=folder / "prompts.jsonl.gz")
    assert len(found.answer_sets) == 70
    assert len(found.shared_prompts) == 2
    assert len(found.planned_prompts) == 19


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_published_answers_are_the_same_as_a_table(tmp_path, ending):
    path = shared_data("answers/alpaca_eval/NullModel/model_outputs.json.gz")
    one = answer_joins.read_answer_sets([("null", path)])["null"]
    table = [{"question": row.prompt, "answer": row.text} for row in one.rows]
    other = write_table(tmp_path / f"null.{ending}", table)
    found, again = joined(("null", path)), joined(("null", other))
    assert [p.text for p in again.prompts] == [p.text for p in found.prompts]
    assert texts(again) == texts(found)


# Faulty files


def content(found: JoinedAnswers) -> dict[str, tuple[Any, ...]]:
    """By prompt: its reference, and what each entrant says, and whether it was cut off."""
    said = {
        p.text: (
            p.gold_answer,
            *(one.find_answer(p) for one in found.answer_sets.values()),
        )
        for p in found.shared_prompts
    }
    return {
        text: (reference, *((row.text, row.is_cut) for row in rows if row))
        for text, (reference, *rows) in said.items()
    }


@pytest.mark.parametrize("name", MADE)
def test_a_faulty_file_is_refused_or_spoken_of_or_says_the_same(tmp_path, name):
    """A hundred of each format, one place changed in each, and fifty that end too early.

    What a text says is nobody's mistake: one text that became another word is read as it stands.
    """
    prompts = bank(tmp_path, 8) if name in BY_ID else None
    other = made(tmp_path, "plain rows", "Other", "bob", n=8)
    document = MADE[name](asked("Said", 8), "ann")
    path = tmp_path / "ann" / ("log.eval" if name == "inspect_ai log" else "file.json")
    whole = joined(write(path, name, document), other, prompts=prompts)
    before, lines = content(whole), whole.describe()
    fates = Counter[str]()

    def check(what: str) -> None:
        try:
            found = joined(path, other, prompts=prompts)
            after, now = content(found), found.describe()
        except UserError as error:
            assert "\n" not in error.line
            fates["refused"] += 1
            return
        if after == before:
            fates["equal"] += 1
        elif now != lines:
            fates["spoken of"] += 1
        else:
            changed = [key for key in before if before[key] != after[key]]
            assert len(changed) == 1 and "zzz" in str(after[changed[0]]), what
            fates["another text"] += 1

    for what, changed in faulty(document, 100, seed=11):
        if name == "inspect_ai log" and not can_be_zipped(changed):
            write_json(path, changed)
        else:
            write(path, name, changed)
        check(what)
    data = write(path, name, document).read_bytes()
    for end in np.linspace(1, len(data) - 2, 50, dtype=int):
        write_whole(path, data[:end])
        check(f"ends after {end} bytes")
    assert fates["refused"] >= 30 and fates["equal"] >= 5, fates


def can_be_zipped(log: Any) -> bool:
    """Whether a log has samples that parts of an archive can be named after."""
    samples = log.get("samples")
    if not isinstance(samples, list):
        return False
    names = [
        (str(sample["id"]), str(sample["epoch"]))
        for sample in samples
        if isinstance(sample, dict) and {"id", "epoch"} <= sample.keys()
    ]
    return len(set(names)) == len(samples)
