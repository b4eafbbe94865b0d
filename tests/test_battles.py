"""Battles: judgments become battles, and battles files of any make are read, checked and counted."""

from __future__ import annotations

import csv
import gzip
import io
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from pyarrow import parquet

from elo_exp import CONF
from elo_exp.data import battles
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import reconcile
from elo_exp.files import jsonl, write_jsonl, write_whole
from elo_exp.records import Battle, Judgment, UserError, Verdict
from tests.data import COMPARISON, shared_data

COLUMNS = dict(OmegaConf.load(CONF / "experiment/rate.yaml").battles_columns)
LEFT_RIGHT = {"model_a": "left", "model_b": "right", "winner": "winner"}
ROWS = [
    {
        "model_a": "ann",
        "model_b": "bob",
        "winner": "model_a",
        "judge_model": "opus",
        "question_id": "q1",
    },
    {
        "model_a": "bob",
        "model_b": "zoe",
        "winner": "tie",
        "judge_model": "opus",
        "question_id": "q2",
    },
    {
        "model_a": "zoe",
        "model_b": "ann",
        "winner": "tie (bothbad)",
        "judge_model": "haiku",
        "question_id": "q2",
    },
    {
        "model_a": "zoe",
        "model_b": "ann",
        "winner": "model_b",
        "judge_model": None,
        "question_id": None,
    },
]
BATTLES = [
    Battle(**{key: value for key, value in row.items() if value is not None})
    for row in ROWS
]


def judgment(ab: str, ba: str, *, mirrored: bool = False) -> Judgment:
    """ann against bob, from the judge's two letters: ann shown first, then bob."""
    straight, swapped = (
        Verdict(
            cache_key="0f",
            rubric_version="v1",
            judge_model="opus",
            position_swap=swap,
            verdict=letter,
            mirrored=mirrored and swap,
        )
        for swap, letter in ((False, ab), (True, ba))
    )
    return reconcile(COMPARISON, straight, swapped)


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    content = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), content)
    return content.getvalue()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the form that the name asks for."""
    match path.name.split(".")[1]:
        case "csv":
            content = as_csv(rows)
        case "parquet":
            content = as_parquet(rows)
        case "jsonl":
            content = write_jsonl(path.with_suffix(".plain"), rows).read_bytes()
    return write_whole(
        path, gzip.compress(content) if path.suffix == ".gz" else content
    )


@dataclass
class Found:
    """What was read, with the battles as rows."""

    battles: list[Battle]
    n_dropped: int = 0
    n_filtered: int = 0


def read(path: Path, **how: Any) -> Found:
    found = battles.read(path, **{"columns": COLUMNS, "filters": {}, **how})
    return Found(found.battles.rows(), found.n_dropped, found.n_filtered)


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(UserError) as error:
        read(path, **how)
    assert str(error.value).startswith(str(path))
    return str(error.value)


# From judgments


def test_a_judgment_becomes_a_battle_that_names_models_and_not_positions():
    """The judge said A and then B: ann both times."""
    assert from_judgments([judgment("A", "B")]) == [
        Battle(
            model_a="ann",
            model_b="bob",
            winner="model_a",
            source="llm-judge",
            question_id="p1",
            judge_model="opus",
            dimension="factuality",
            verdict_ab="model_a",
            verdict_ba="model_a",
        )
    ]


@pytest.mark.parametrize(
    ("ab", "ba", "winner", "verdict_ab", "verdict_ba", "inconsistent"),
    [
        ("A", "B", "model_a", "model_a", "model_a", False),
        ("B", "A", "model_b", "model_b", "model_b", False),
        ("TIE", "TIE", "tie", "tie", "tie", False),
        ("A", "A", "tie", "model_a", "model_b", True),
        ("B", "B", "tie", "model_b", "model_a", True),
        ("TIE", "A", "tie", "tie", "model_b", True),
    ],
)
def test_orders_that_disagree_are_a_tie_and_both_verdicts_are_kept(
    ab, ba, winner, verdict_ab, verdict_ba, inconsistent
):
    (battle,) = from_judgments([judgment(ab, ba)])
    assert (battle.winner, battle.verdict_ab, battle.verdict_ba) == (
        winner,
        verdict_ab,
        verdict_ba,
    )
    assert battle.is_inconsistent is inconsistent


@pytest.mark.parametrize(
    ("ab", "ba"), [("INVALID", "A"), ("B", "INVALID"), ("INVALID", "INVALID")]
)
def test_an_invalid_judgment_is_no_battle(ab, ba):
    assert from_judgments([judgment(ab, ba)]) == []


def test_a_mirrored_verdict_is_no_second_observation():
    (battle,) = from_judgments([judgment("A", "B", mirrored=True)])
    assert (battle.winner, battle.verdict_ab, battle.verdict_ba) == (
        "model_a",
        "model_a",
        None,
    )


# Reading files


@pytest.mark.parametrize(
    "ending", ["jsonl", "csv", "parquet", "jsonl.gz", "csv.gz", "parquet.gz"]
)
def test_the_same_battles_are_read_from_every_kind_of_file(tmp_path, ending):
    found = read(write(tmp_path / f"battles.{ending}", ROWS))
    assert found == Found(battles=BATTLES, n_dropped=0, n_filtered=0)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_columns_may_have_other_names_and_a_winner_may_be_named_by_its_column(
    tmp_path, ending
):
    rows = [
        {"left": "ann", "right": "bob", "winner": "left", "domain": "renal"},
        {"left": "ann", "right": "bob", "winner": "right", "domain": "renal"},
        {"left": "ann", "right": "bob", "winner": "tie", "domain": "cardiac"},
    ]
    path = write(tmp_path / f"battles.{ending}", rows)
    found = read(path, columns={**LEFT_RIGHT, "dimension": "domain"}).battles
    assert [(b.model_a, b.winner, b.dimension) for b in found] == [
        ("ann", "model_a", "renal"),
        ("ann", "model_b", "renal"),
        ("ann", "tie", "cardiac"),
    ]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_winner_may_be_named_by_its_own_name(tmp_path, ending):
    rows = [{**row, "winner": row.get(row["winner"], row["winner"])} for row in ROWS]
    assert [row["winner"] for row in rows] == ["ann", "tie", "tie (bothbad)", "ann"]
    assert read(write(tmp_path / f"battles.{ending}", rows)).battles == BATTLES


@pytest.mark.parametrize("on_error", ["stop", "drop"])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            ("tie", "bob", "tie"),
            "winner is 'tie', which is the name of one model and the word for another result. Rename",
        ),
        (
            ("model_b", "bob", "model_b"),
            "winner is 'model_b', which is the name of one model and the word for another result.",
        ),
        (
            ("ann", "left", "left"),
            "winner is 'left', which is the name of one model and the word for another result.",
        ),
    ],
)
def test_a_model_that_is_called_like_a_word_for_a_result_is_not_guessed_at(
    tmp_path, row, words, on_error
):
    """Dropping these rows alone would leave others of the file, which may be read in the other way."""
    rows = [
        dict(zip(LEFT_RIGHT.values(), values, strict=True))
        for values in (("ann", "bob", "left"), row)
    ]
    assert f":2: {words}" in refused(
        write(tmp_path / "battles.jsonl", rows), columns=LEFT_RIGHT, on_error=on_error
    )


def test_where_both_orders_are_there_a_result_is_a_word(tmp_path):
    """As in the battles of a run whose entrants are called so."""
    row = {"model_a": "model_b", "model_b": "model_a", "winner": "model_b"}
    (battle,) = read(
        write(
            tmp_path / "b.jsonl",
            [row | {"verdict_ab": "model_b", "verdict_ba": "model_b"}],
        )
    ).battles
    assert battle.winner == "model_b"


def test_a_model_may_be_called_like_the_column_that_it_stands_in(tmp_path):
    row = {"model_a": "model_a", "model_b": "model_b", "winner": "model_b"}
    assert read(write(tmp_path / "battles.csv", [row])).battles == [Battle(**row)]


def test_a_column_that_is_not_asked_for_is_not_read(tmp_path):
    path = write(tmp_path / "battles.jsonl", [{**ROWS[0], "dimension": "factuality"}])
    assert read(path).battles[0].dimension is None
    assert (
        read(path, columns={**COLUMNS, "dimension": "dimension"}).battles[0].dimension
        == "factuality"
    )


def test_a_column_that_is_asked_for_by_name_and_is_not_there_is_refused(tmp_path):
    """No file need have a question_id, but who names a dimension wants it: else all would be rated in one."""
    path = write(tmp_path / "battles.jsonl", [{**ROWS[0], "domain": "renal"}])
    assert "has no column 'dommain'" in refused(
        path, columns={**COLUMNS, "dimension": "dommain"}
    )


def test_names_that_are_numbers_are_read_as_texts(tmp_path):
    path = write(
        tmp_path / "battles.jsonl",
        [{"model_a": 1, "model_b": 2, "winner": "model_b", "question_id": 0}],
    )
    assert read(path).battles == [
        Battle(model_a="1", model_b="2", winner="model_b", question_id="0")
    ]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_mark_that_spreadsheets_put_before_the_first_letter_is_ignored(
    tmp_path, ending
):
    path = write(tmp_path / f"battles.{ending}", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(path).battles == BATTLES


def test_a_long_conversation_in_another_column_does_no_harm(tmp_path):
    path = write(
        tmp_path / "battles.csv", [{**ROWS[0], "conversation": "Why? " * 50_000}]
    )
    assert read(path).battles == BATTLES[:1]


def test_real_battles_of_people_and_models_are_read():
    """The judges of one file are told apart by a filter; nothing is dropped."""
    path = shared_data("llmfao/battles.jsonl.gz")
    assert (len(read(path).battles), read(path).n_dropped) == (15_403, 0)
    for judge, n in (
        ("crowd", 8_931),
        ("gpt-4", 3_236),
        ("gpt-3.5-turbo-instruct", 3_236),
    ):
        found = read(path, filters={"judge_model": judge})
        assert (len(found.battles), found.n_filtered) == (n, 15_403 - n)


@pytest.mark.parametrize(
    ("name", "n_battles"), [("simple", 16), ("food", 30), ("llmfao", 8_931)]
)
def test_the_comparisons_of_another_library_are_read(name, n_battles):
    path = shared_data(f"golden/{name}.csv")
    assert len(read(path, columns=LEFT_RIGHT).battles) == n_battles


# Both verdicts, where a file has them


def test_both_verdicts_are_read(tmp_path):
    rows = [{**ROWS[0], "winner": "tie", "verdict_ab": "model_a", "verdict_ba": "tie"}]
    (battle,) = read(write(tmp_path / "battles.jsonl", rows)).battles
    assert (battle.verdict_ab, battle.verdict_ba, battle.is_inconsistent) == (
        "model_a",
        "tie",
        True,
    )


def test_verdicts_may_be_named_by_the_column_as_winners_may(tmp_path):
    rows = [
        {
            "left": "ann",
            "right": "bob",
            "winner": "left",
            "verdict_ab": "left",
            "verdict_ba": "left",
        }
    ]
    columns = {**LEFT_RIGHT, "verdict_ab": "verdict_ab", "verdict_ba": "verdict_ba"}
    (battle,) = read(write(tmp_path / "battles.jsonl", rows), columns=columns).battles
    assert (battle.verdict_ab, battle.verdict_ba) == ("model_a", "model_a")


def test_a_verdict_that_names_no_model_is_refused(tmp_path):
    """The letters of a judge are positions; taken for results they would all be ties."""
    path = write(
        tmp_path / "battles.jsonl", [{**ROWS[0], "verdict_ab": "A", "verdict_ba": "B"}]
    )
    assert (
        ":1: verdict_ab is 'A'. Expected one of model_a, model_b, tie, tie (bothbad)."
        in refused(path)
    )
    path = write(
        tmp_path / "named.jsonl",
        [{**ROWS[0], "model_b": "A", "verdict_ab": "A", "verdict_ba": "B"}],
    )
    assert ":1: verdict_ab is 'A'." in refused(path)


@pytest.mark.parametrize(
    ("winner", "ab", "ba", "expected"),
    [
        ("model_a", "model_b", "model_b", "model_b"),
        ("model_a", "model_a", "model_b", "tie"),
        ("tie", "model_a", "model_a", "model_a"),
        ("tie (bothbad)", "tie", "tie", None),
        ("tie", "model_b", "tie", None),
        ("model_b", "model_b", None, None),
    ],
)
def test_a_winner_that_its_two_orders_do_not_name_is_refused(
    tmp_path, winner, ab, ba, expected
):
    """Elo plays winners and Bradley-Terry orders: the two would say the opposite."""
    path = write(
        tmp_path / "battles.jsonl",
        [{**ROWS[0], "winner": winner, "verdict_ab": ab, "verdict_ba": ba}],
    )
    if expected is None:
        assert read(path).battles[0].winner == winner
    else:
        said = f"winner is '{winner}', verdict_ab is '{ab}' and verdict_ba is '{ba}'. Expected what both"
        assert said in refused(path)


# Filters


def test_a_filter_keeps_what_it_names_and_counts_the_rest(tmp_path):
    found = read(
        write(tmp_path / "battles.jsonl", ROWS),
        filters={"judge_model": "opus", "source": None},
    )
    assert found == Found(battles=BATTLES[:2], n_dropped=0, n_filtered=2)


def test_a_filter_that_leaves_nothing_is_refused(tmp_path):
    path = write(tmp_path / "battles.jsonl", ROWS)
    words = refused(path, filters={"judge_model": "gpt", "source": "human"})
    assert (
        words
        == f"{path}: no battle is left with judge_model=gpt and source=human (4 filtered out)."
    )


def test_a_file_without_battles_is_refused(tmp_path):
    assert "no battle is left (0 filtered out)" in refused(
        write_jsonl(tmp_path / "battles.jsonl", [])
    )


# Malformed rows

GOOD = {"model_a": "ann", "model_b": "bob", "winner": "tie"}
MALFORMED = [
    (
        {**GOOD, "winner": "eve"},
        "winner is 'eve'. Expected one of model_a, model_b, tie, tie (bothbad), 'ann' or 'bob'.",
    ),
    (
        {**GOOD, "winner": "TIE"},
        "winner is 'TIE'. Expected one of model_a, model_b, tie, tie (bothbad), 'ann' or 'bob'.",
    ),
    ({**GOOD, "winner": None}, "column 'winner' is empty. Expected a winner."),
    ({**GOOD, "model_b": ""}, "column 'model_b' is empty. Expected a model."),
    (
        {**GOOD, "model_b": "ann"},
        "'ann' battles itself. Expected two different models.",
    ),
]


@pytest.mark.parametrize(
    ("bad", "words"), MALFORMED, ids=[words for _, words in MALFORMED]
)
@pytest.mark.parametrize(
    ("ending", "place"), [("jsonl", ":2"), ("csv", ":3"), ("parquet", ": row 2")]
)
def test_a_malformed_row_is_named_with_what_was_found_and_expected(
    tmp_path, ending, place, bad, words
):
    path = write(tmp_path / f"battles.{ending}", [GOOD, bad])
    assert (
        refused(path)
        == f"{path}{place}: {words} battles_on_error=drop leaves such rows out."
    )


def test_malformed_rows_may_be_dropped_and_are_counted(tmp_path, caplog):
    path = write(
        tmp_path / "battles.jsonl", [GOOD, *(bad for bad, _ in MALFORMED), GOOD]
    )
    with caplog.at_level(logging.WARNING):
        found = read(path, on_error="drop")
    assert found == Found(
        battles=[Battle(**GOOD)] * 2, n_dropped=len(MALFORMED), n_filtered=0
    )
    assert (
        f"{path}: dropped 5 malformed rows; the first: {path}:2: winner is 'eve'"
        in caplog.text
    )


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_which_battles_are_of_equal_answers_is_read_again(tmp_path, ending):
    some = [
        Battle(**GOOD, verdict_ab="model_a", verdict_ba="model_b", equal_answers=equal)
        for equal in (True, False)
    ]
    found = read(
        write(tmp_path / f"battles.{ending}", [battle.to_dict() for battle in some])
    )
    assert [battle.equal_answers for battle in found.battles] == [True, False]


POOLED = [
    {**GOOD, "judge_model": name, "question_id": "q1"} for name in ("opus", "haiku")
]


def test_that_the_verdicts_of_several_judges_are_pooled_is_said(tmp_path, caplog):
    path = write(tmp_path / "battles.jsonl", POOLED)
    read(path)
    assert caplog.messages == [
        f"{path}: the verdicts of 2 judges are pooled (haiku, opus). battles_columns.dimension=judge_model rates each "
        "apart, battles_filter.judge_model=NAME one alone."
    ]


@pytest.mark.parametrize(
    "how",
    [
        {"filters": {"judge_model": "opus"}},
        {"columns": {**COLUMNS, "dimension": "judge_model"}},
        {"columns": {**COLUMNS, "judge_model": None}},
    ],
    ids=["one is chosen", "each is rated apart", "nobody asks who judged"],
)
def test_nothing_is_said_where_no_judges_are_pooled(tmp_path, caplog, how):
    read(write(tmp_path / "battles.jsonl", POOLED), **how)
    assert not caplog.messages


def test_that_some_battles_name_no_question_is_said(tmp_path, caplog):
    """Each of them counts for as much as all battles on one question."""
    path = write(
        tmp_path / "battles.jsonl",
        [{**GOOD, "question_id": name} for name in ("q1", None, "q2", None, None)],
    )
    read(path)
    assert caplog.messages == [
        f"{path}: 3 of 5 battles name no question, and each of them counts as a prompt of its own."
    ]


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    """The second would be read, and the first lost."""
    path = tmp_path / "battles.csv"
    path.write_text(
        "model_a,model_b,winner,winner\nann,bob,model_a,model_b\n", encoding="utf-8"
    )
    assert "has the column 'winner' twice. Expected each name once." in refused(path)


def test_a_misspelt_column_is_answered_with_the_columns_there_are(tmp_path):
    path = write(
        tmp_path / "battles.csv", [{"left": "ann", "right": "bob", "winner": "left"}]
    )
    words = refused(path, columns={**LEFT_RIGHT, "model_b": "rihgt"})
    assert ":2: has no column 'rihgt' (found 'left', 'right', 'winner')." in words
    assert "Name it with battles_columns.model_b=COLUMN." in words


def test_a_space_in_the_name_of_a_column_is_seen(tmp_path):
    path = write(
        tmp_path / "battles.csv",
        [{"model_a": "ann", " model_b": "bob", "winner": "tie"}],
    )
    words = "has no column 'model_b' (found 'model_a', ' model_b', 'winner'). Name it with battles_columns.model_b=COLUMN."
    assert refused(path) == f"{path}:2: {words}"


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_dropping_rows_is_advised_only_where_some_would_be_left(tmp_path, ending):
    """A file of JSON lines may lack a field in one of its rows; a column is there or not."""
    drop = "battles_on_error=drop"
    renamed = [{"model_a": "ann", "modelB": "bob", "winner": "tie"}] * 2
    assert drop not in refused(write(tmp_path / f"renamed.{ending}", renamed))
    missing = {**COLUMNS, "dimension": "domain"}
    assert drop not in refused(
        write(tmp_path / f"missing.{ending}", [GOOD]), columns=missing
    )
    bad = [{**GOOD, "winner": "eve"}, GOOD]
    assert drop in refused(write(tmp_path / f"bad.{ending}", bad))
    if ending == "jsonl":
        assert drop in refused(write(tmp_path / "mixed.jsonl", [*renamed, GOOD]))


def test_dropping_every_row_says_why(tmp_path):
    path = write(tmp_path / "battles.csv", [GOOD, GOOD])
    words = refused(path, columns={**COLUMNS, "winner": "winer"}, on_error="drop")
    assert "no battle is left" in words
    assert "2 dropped" in words
    assert "has no column 'winer'" in words


# Files that cannot be read


@pytest.mark.parametrize(
    "name", ["battles.xlsx", "battles", "battles.gz", "battles.json"]
)
def test_an_ending_that_is_not_known_is_refused(tmp_path, name):
    assert "Expected .jsonl, .csv or .parquet, each also .gz." in refused(
        write_whole(tmp_path / name, "x")
    )


@pytest.mark.parametrize(
    "name", ["b.jsonl", "b.csv", "b.parquet", "b.jsonl.gz", "b.csv.gz", "b.parquet.gz"]
)
def test_a_file_that_is_not_there_is_refused(tmp_path, name):
    assert "No such file or directory" in refused(tmp_path / name)


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.csv.gz", "b.parquet.gz"])
def test_a_gzipped_file_that_was_cut_off_is_refused(tmp_path, name):
    path = write(tmp_path / name, ROWS * 99)
    path.write_bytes(path.read_bytes()[:-20])
    assert "cannot be read" in refused(path)


def test_a_parquet_file_that_is_none_is_refused(tmp_path):
    assert "cannot be read as parquet" in refused(
        write_whole(tmp_path / "battles.parquet", "model_a,model_b\n")
    )


# Who took part


def test_the_models_are_sorted_and_their_battles_counted():
    some = Battles.from_rows(BATTLES)
    assert some.models == ("ann", "bob", "zoe")
    assert some.n_battles().tolist() == [3, 2, 3]


# Columns

NAMES = st.sampled_from(["ann", "bob", "zoe", 'é"\n'])
ROW = st.builds(
    Battle,
    model_a=NAMES,
    model_b=NAMES,
    winner=st.sampled_from(["model_a", "model_b", "tie", "tie (bothbad)"]),
    source=st.sampled_from(["human", "llm-judge"]),
    question_id=st.none() | st.sampled_from(["q1", "q2"]),
    judge_model=st.none() | st.just("opus"),
    dimension=st.none() | st.sampled_from(["d", "e"]),
    verdict_ab=st.none() | st.just("model_a"),
    verdict_ba=st.none() | st.just("tie"),
    equal_answers=st.booleans(),
).filter(lambda b: b.model_a != b.model_b)


@given(st.lists(ROW, max_size=8))
def test_law_rows_become_columns_and_rows_again(rows):
    some = Battles.from_rows(rows)
    assert some.rows() == rows
    assert "".join(some.jsonl()) == jsonl(row.to_dict() for row in rows)
    assert some.models == tuple(sorted({name for row in rows for name in row.models}))
    assert some.n_prompts() == len({row.question_id for row in rows} - {None}) + sum(
        row.question_id is None for row in rows
    )
    for name in ("is_tie", "is_inconsistent"):
        assert getattr(some, name)().tolist() == [getattr(row, name) for row in rows]
    assert some.both_orders().tolist() == [row.has_both_orders for row in rows]


@given(st.lists(ROW, max_size=8))
def test_law_dimensions_share_their_questions_and_keep_their_own_models(rows):
    found = Battles.from_rows(rows).by_dimension(["e", "none"], unnamed="overall")
    names = dict.fromkeys(["e", "none", *(row.dimension or "overall" for row in rows)])
    assert list(found) == list(names)
    for name, some in found.items():
        own = [row for row in rows if (row.dimension or "overall") == name]
        assert some.rows() == own
        assert some.models == Battles.from_rows(own).models
    assert len({id(some.questions) for some in found.values()}) == 1


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_blocks_are_read_as_line_by_line(tmp_path, monkeypatch, block):
    """Blank lines, a key written with an escape, one that another object has, and a text that holds a key."""
    monkeypatch.setattr(battles, "_BLOCK", block)
    lines = [
        '{"model_a": "ann", "model_b": "bob", "winner": "model_a"}',
        "",
        '{"model_\\u0061": "ann", "model_b": "bob", "winner" : "tie"}',
        '{"model_a": "ann", "model_b": "bob", "winner": "tie", "more": {"winner": "x", "model_a": "y"}}',
        '{"model_a": "ann", "model_b": "bob", "winner": "tie", "text": "\\"winner\\": \\"model_b\\", {"}',
    ]
    path = write_whole(tmp_path / "battles.jsonl", "\n".join(lines))
    assert [b.winner for b in read(path).battles] == ["model_a", "tie", "tie", "tie"]


GOOD_LINE = '{"model_a": "ann", "model_b": "bob", "winner": "tie"}'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("b.jsonl", '{"model_a": "a", "winner": "tie", "winner": "model_a"}', ":2: not JSON (the key 'winner' stands twice"),
        ("b.jsonl", '{"model_a": "a"', ":2: not JSON"),
        ("b.jsonl", '{"model_a": ["a"], "model_b": "b", "winner": "tie"}', ":2: model_a is ['a']. Expected a name"),
        ("b.jsonl", '{"model_a": {"n": 1}, "model_b": "b", "winner": "tie"}', ":2: model_a is {'n': 1}. Expected a name"),
        ("b.jsonl", '{"model_a": "a\\u0000", "model_b": "b", "winner": "tie"}', ":2: model_a is 'a\\x00'. Expected a name"),
        ("b.jsonl", '{"model_a": "a\\u001b[31m", "model_b": "b", "winner": "tie"}', ":2: model_a is 'a\\x1b[31m'."),
        ("b.csv", 'ann,"bob,tie', ":3: cannot be read as CSV (unexpected end of data). A quote may be missing."),
        ("b.csv", 'ann,"bob"x,tie', ":3: cannot be read as CSV"),
        ("b.csv", "ann,bob,tie,more", ":3: has 4 fields. Expected 3, as in the header."),
        ("b.csv", "ann,bob", ":3: has 2 fields. Expected 3, as in the header."),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table_of_names_is_refused(tmp_path, name, text, words):
    """An unclosed quote would leave five of a thousand rows; a doubled key takes its last value."""
    head = (
        "model_a,model_b,winner\nann,bob,tie\n" if name == "b.csv" else GOOD_LINE + "\n"
    )
    assert words in refused(write_whole(tmp_path / name, head + text + "\n"))


def test_names_that_look_alike_are_warned_of(tmp_path, caplog):
    rows = [
        {**GOOD, "model_a": name, "model_b": "zoe"} for name in ("a", "A ", "ａ", "b")
    ]
    read(write(tmp_path / "battles.jsonl", rows))
    (warning,) = [
        r.getMessage() for r in caplog.records if "look alike" in r.getMessage()
    ]
    assert warning.endswith(
        "the models 'A ', 'a', 'ａ' look alike and are rated apart."
    )


def test_a_column_of_thousands_of_names_is_none_of_models(tmp_path):
    rows = [{**GOOD, "model_a": f"answer {i}"} for i in range(3000)]
    words = refused(write(tmp_path / "battles.csv", rows))
    assert (
        "found 3,001 models. Expected at most 3,000: are 'model_a' and 'model_b' the right"
        in words
    )
