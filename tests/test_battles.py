"""Battles: judgments become battles, and battles files of any make are read, checked and counted."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from elo_exp.data import battle_files, formats
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.data.pairing import reconcile
from elo_exp.errors import UserError
from elo_exp.files import write_whole
from elo_exp.paths import CONF
from elo_exp.records import Battle, Judgment, Verdict
from tests.commands import run
from tests.data import COMPARISON, shared_data, write_table

COLUMNS = dict(OmegaConf.load(CONF / "experiment/rate.yaml").battles_columns)
LEFT_RIGHT = {"model_a": "left", "model_b": "right", "winner": "winner"}
GOOD = {"model_a": "ann", "model_b": "bob", "winner": "tie"}
ROWS = [
    {**GOOD, "winner": "model_a", "judge_model": "opus", "question_id": "q1"},
    {**GOOD, "judge_model": "opus", "question_id": "q2", "equal_answers": True},
    {**GOOD, "winner": "tie (bothbad)", "source": "llm-judge"},
    {**GOOD, "verdict_ab": "model_b", "verdict_ba": "model_a", "judge_model": "haiku"},
]
BATTLES = [Battle(**row) for row in ROWS]
WRITTEN = [battle.to_dict() for battle in BATTLES]


def read_file(path: Path, **how: Any) -> tuple[Battles, dict[str, Any]]:
    return battle_files.read(path, **{"columns": COLUMNS, "filters": {}, **how})


def read(path: Path, **how: Any) -> list[Battle]:
    return read_file(path, **how)[0].rows()


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(UserError) as error:
        read_file(path, **how)
    return str(error.value).removeprefix(str(path))


# From judgments


def judgment(ab: str, ba: str, *, mirrored: bool = False) -> Judgment:
    """ann against bob, from the judge's two letters: ann shown first, then bob."""
    straight = Verdict(
        cache_key="0f",
        rubric_version="v1",
        judge_model="opus",
        position_swap=False,
        verdict=ab,
    )
    swapped = replace(straight, position_swap=True, verdict=ba, mirrored=mirrored)
    return reconcile(COMPARISON, [straight, swapped])


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("swap", [False, True])
def test_one_order_fills_one_verdict_by_who_was_really_shown_first(swap, mirrored):
    """A mirrored verdict was given in the other order."""
    verdict = replace(judgment("A", "A").raw[swap], mirrored=mirrored)
    (found,) = battles_from_judgments([reconcile(COMPARISON, [verdict])])
    winner = "model_b" if swap else "model_a"
    both = (None, winner) if swap != mirrored else (winner, None)
    assert (found.winner, found.verdict_ab, found.verdict_ba) == (winner, *both)


def test_one_order_is_only_told_where_it_is_not_the_same_in_all_battles():
    one = [reconcile(COMPARISON, [verdict]) for verdict in judgment("A", "A").raw]
    battles = Battles.from_rows(battles_from_judgments([*one, judgment("A", "B")]))
    assert battles.has_single_order().tolist() == [True, True, False]
    assert not battles.select(battles.verdict_ab >= 0).has_single_order().any()


@pytest.mark.parametrize(
    ("ab", "ba", "winner", "verdict_ab", "verdict_ba"),
    [
        ("A", "B", "model_a", "model_a", "model_a"),
        ("B", "A", "model_b", "model_b", "model_b"),
        ("TIE", "TIE", "tie", "tie", "tie"),
        ("A", "A", "tie", "model_a", "model_b"),
        ("TIE", "A", "tie", "tie", "model_b"),
    ],
)
def test_a_judgment_becomes_a_battle_that_names_models_and_not_positions(
    ab, ba, winner, verdict_ab, verdict_ba
):
    """A mirrored verdict is no second observation."""
    expected = Battle(
        model_a="ann",
        model_b="bob",
        winner=winner,
        source="llm-judge",
        question_id="p1",
        judge_model="opus",
        dimension="factuality",
        verdict_ab=verdict_ab,
        verdict_ba=verdict_ba,
    )
    once = replace(expected, verdict_ba=None)
    assert battles_from_judgments([judgment(ab, ba)]) == [expected]
    assert battles_from_judgments([judgment(ab, ba, mirrored=True)]) == [once]


@pytest.mark.parametrize(("ab", "ba"), [("INVALID", "A"), ("B", "INVALID")])
def test_an_invalid_judgment_is_no_battle(ab, ba):
    assert battles_from_judgments([judgment(ab, ba)]) == []


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
    score=st.none() | st.just(0.7),
    equal_answers=st.booleans(),
    style_a=st.none() | st.just((12, 0, 1, 2)),
).filter(lambda b: b.model_a != b.model_b)


@given(st.lists(ROW, max_size=8))
def test_law_rows_become_columns_and_rows_again(rows):
    some = Battles.from_rows(rows)
    assert some.rows() == rows
    lines = "".join(encode_battles(some)).splitlines()
    assert [Battle.from_dict(json.loads(line)) for line in lines] == rows
    assert some.models == tuple(sorted({name for row in rows for name in row.models}))
    counts = [sum(name in row.models for row in rows) for name in some.models]
    assert some.n_battles().tolist() == counts
    own = [row.question_id or i for i, row in enumerate(rows)]
    assert some.n_prompts() == len(set(own))
    both = [
        None not in (row.verdict_ab, row.verdict_ba) and not row.equal_answers
        for row in rows
    ]
    assert some.has_both_orders().tolist() == both
    assert some.is_inconsistent().tolist() == both  # model_a and a tie
    assert some.is_tie().tolist() == [row.winner.startswith("tie") for row in rows]


@given(st.lists(ROW, max_size=8))
def test_law_dimensions_share_their_questions_and_keep_their_own_models(rows):
    found = Battles.from_rows(rows).split_by_dimension(["e", "none"])
    names = dict.fromkeys(["e", "none", *(row.dimension or "overall" for row in rows)])
    assert list(found) == list(names)
    for name, some in found.items():
        own = [row for row in rows if (row.dimension or "overall") == name]
        assert some.rows() == own
        assert some.models == Battles.from_rows(own).models
    assert len({id(some.questions) for some in found.values()}) == 1


# Reading files

KINDS = ["jsonl", "csv", "parquet"]


@pytest.mark.parametrize("ending", [*KINDS, *(f"{kind}.gz" for kind in KINDS)])
def test_the_same_battles_are_read_from_every_kind_of_file(tmp_path, ending):
    """Those that name no question, among others that do, are one cluster."""
    expected = [
        row if row.question_id else replace(row, cluster=UNNAMED_CLUSTER)
        for row in BATTLES
    ]
    assert read(write_table(tmp_path / f"battles.{ending}", WRITTEN)) == expected


@pytest.mark.parametrize("ending", KINDS)
def test_columns_may_have_other_names_and_winners_be_named_by_them_or_by_model(
    tmp_path, ending
):
    rows = [
        {"left": "ann", "right": "bob", "winner": winner, "ab": "left", "is": "renal"}
        for winner in ("left", "right", "tie", "ann", "bob")
    ]
    columns = {**LEFT_RIGHT, "dimension": "is", "verdict_ab": "ab"}
    found = read(write_table(tmp_path / f"battles.{ending}", rows), columns=columns)
    words = ["model_a", "model_b", "tie", "model_a", "model_b"]
    assert [b.winner for b in found] == words
    assert {(b.dimension, b.verdict_ab) for b in found} == {("renal", "model_a")}
    plain = read(tmp_path / f"battles.{ending}", columns=LEFT_RIGHT)
    assert {(b.dimension, b.verdict_ab) for b in plain} == {(None, None)}


@pytest.mark.parametrize(
    ("row", "battle"),
    [
        (
            {"model_a": "model_a", "model_b": "model_b", "winner": "model_b"},
            {"model_a": "model_a", "model_b": "model_b", "winner": "model_b"},
        ),
        (
            {"model_a": 1, "model_b": 2, "winner": 2, "question_id": 0},
            {"model_a": "1", "model_b": "2", "winner": "model_b", "question_id": "0"},
        ),
        ({**GOOD, "question_id": math.nan, "judge_model": ""}, GOOD),
        ({**GOOD, "conversation": "Why? " * 50_000}, GOOD),
    ],
    ids=["called like columns", "numbers", "missing values", "a long text beside"],
)
def test_a_row_with_unusual_values_is_read(tmp_path, row, battle):
    path = write_table(tmp_path / "battles.jsonl", [row])
    assert read(path) == [Battle(**battle)]


def test_lines_of_any_content_are_read(tmp_path):
    """Blank lines, a key with an escape, one that another object has, a text that holds a key."""
    lines = [
        "\ufeff" + '{"model_a": "ann", "model_b": "bob", "winner": "model_a"}',
        "",
        '{"model_\\u0061": "ann", "model_b": "bob", "winner" : "tie"}',
        '{"model_a": "ann", "model_b": "bob", "winner": "tie", "more": {"winner": "x"}}',
        '{"model_a": "ann", "model_b": "bob", "winner": "tie", "t": "\\"winner\\": \\"x"}',
    ]
    path = write_whole(tmp_path / "battles.jsonl", "\n".join(lines))
    assert [b.winner for b in read(path)] == ["model_a", "tie", "tie", "tie"]


def test_real_battles_of_people_and_models_are_read():
    """The judges of one file are told apart by a filter; nothing is dropped."""
    path = shared_data("llmfao/battles.jsonl.gz")
    for judge, n in ((None, 15_403), ("crowd", 8_931), ("gpt-4", 3_236)):
        battles, facts = read_file(path, filters={"judge_model": judge})
        assert len(battles) == n
        assert facts["rows"].get("filtered out", 0) == 15_403 - n
        assert "dropped" not in facts["rows"]


# Dimensions


def test_dimensions_are_read_apart_where_a_file_has_them(tmp_path, caplog):
    """null pools them, and so does another column, which is said."""
    rows = [{**GOOD, "dimension": d, "topic": "x", "question_id": 1} for d in "ab"]
    path = write_table(tmp_path / "battles.csv", rows)
    assert list(read_file(path)[0].split_by_dimension()) == ["a", "b"]
    assert caplog.messages == []
    for column, name in ((None, "overall"), ("topic", "x")):
        battles, _ = read_file(path, columns={**COLUMNS, "dimension": column})
        assert list(battles.split_by_dimension()) == [name]
    assert caplog.messages == [f"{path}: 2 dimensions are pooled ('a', 'b')."] * 2


# The words of a file for who won

SAYS = {"left": "model_a", "right": "model_b", "same": "tie", "none": "both_bad"}
VOTES = {"model_a": "left_model", "model_b": "right_model", "winner": "vote"}


def votes(folder: Path, words: Sequence[Any], ending: str = "csv", **more: Any) -> Path:
    """A file in which ann and bob meet once for each word."""
    names = dict(zip(VOTES.values(), ("ann", "bob"), strict=False))
    rows = [{**names, "vote": word, **more} for word in words]
    return write_table(folder / f"votes.{ending}", rows)


@pytest.mark.parametrize("ending", KINDS)
def test_a_files_own_words_for_winners_are_read_as_they_are_said_to_mean(
    tmp_path, ending
):
    """Beside them those that are known everywhere, and the names of models; null is no verdict."""
    words = [*SAYS, "error", "tie", "bob", "left_model"]
    path = votes(tmp_path, words, ending)
    battles, facts = read_file(path, columns=VOTES, values={**SAYS, "error": None})
    won = ["model_a", "model_b", "tie", "tie (bothbad)", "tie", "model_b", "model_a"]
    assert [b.winner for b in battles.rows()] == won
    assert facts["rows"]["invalid"] == 1


def test_the_words_of_both_orders_are_those_of_the_winner(tmp_path):
    """The winner that they name is still checked against the row's."""
    columns = {**VOTES, "verdict_ab": "ab", "verdict_ba": "ba"}
    path = votes(tmp_path, ["same"], ab="left", ba="right")
    (row,) = read(path, columns=columns, values=SAYS)
    both = (row.verdict_ab, row.verdict_ba)
    assert (row.winner, both) == ("tie", ("model_a", "model_b"))
    said = refused(path, columns=columns, values={**SAYS, "same": "model_a"})
    assert said.startswith(
        ":2: winner must be the verdict of both orders, or a tie if they disagree; got same for verdict_ab=left"
    )
    said = refused(path, columns=columns, values={"left": "model_a"})
    setting = "To say what they mean instead of ?: 'battles_values={right:?}'"
    assert said.endswith(f'The column ba holds "right".\n  {setting}')


def test_a_format_whose_words_are_known_keeps_them(tmp_path):
    """A setting for one file of several does not turn the winners of another round."""
    row = {"question_id": 1, "model_1": "ann", "model_2": "bob", "turn": 1}
    row |= {"g1_winner": "model_1", "g2_winner": "model_1", "judge": ["gpt", "pair"]}
    path = write_table(tmp_path / "pairs.jsonl", [row])
    (found,) = read(path, values={"model_a": "model_b", "model_1": "model_b"})
    assert found.winner == "model_a"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["left", "right", "tie"],
            'holds "tie", "left", "right".\n'
            "  To say what they mean: 'battles_values={left:model_a,right:model_b}'",
        ),
        (
            ["Left wins", "right wins", "a draw", "ann"],
            "'battles_values={Left wins:model_a,right wins:model_b,a draw:tie}'",
        ),
        (["A", "B"], "mean instead of ?: 'battles_values={A:?,B:?}'"),
        (["win", "loss"], "'battles_values={win:?,loss:?}'"),
        (["left", "loss"], "'battles_values={left:?,loss:?}'"),
        ([1, 0], "'battles_values={1:?,0:?}'"),
        (["A>B", "B>A"], """'battles_values=[["A>B",?],["B>A",?]]'"""),
        (["gagné", "perdu"], """'battles_values=[["gagné",?],["perdu",?]]'"""),
        (["true", "false"], """'battles_values=[["true",?],["false",?]]'"""),
        (["it's", "left"], 'holds "left", "it\'s".'),
        (["${oc.env:HOME}", "left"], 'holds "left", "${oc.env:HOME}".'),
        (
            [f"m{i}" for i in range(20)],
            'holds "m19", "m0", "m1", "m2", "m3", "m4", "m5", "m6" and 12 more.',
        ),
        (["x" * 61], f'holds "{"x" * 60}…".'),
    ],
)
def test_a_word_that_is_not_known_is_refused_with_the_setting_to_paste(
    tmp_path, words, said
):
    """What a word means stands in it only where it names the column of one side; A and B are positions."""
    assert refused(votes(tmp_path, [*words, words[-1]]), columns=VOTES).endswith(said)


def test_a_word_that_names_no_column_is_left_to_the_user(tmp_path):
    """A judge says A for the answer that it was shown first, whatever a column is called."""
    rows = [{"model_a": "ann", "model_b": "bob", "winner": word} for word in "AB"]
    said = refused(write_table(tmp_path / "battles.jsonl", rows))
    assert said.endswith("mean instead of ?: 'battles_values={A:?,B:?}'")


WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")),
    min_size=1,
    max_size=200,
).filter(lambda word: word not in ("ann", "bob"))
MEANING = st.sampled_from([*formats.WINNER_WORDS, None])


@pytest.mark.system
@given(st.dictionaries(WORD, MEANING, min_size=1, max_size=6))
@example({"None": "model_b"})  # is no missing verdict
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_law_words_are_read_as_said_and_the_setting_that_is_offered_names_them(
    tmp_path, values
):
    """Whatever they are: through the file, and through the command that the message proposes."""
    path = votes(tmp_path, [*values, *["ann"] * 6], "jsonl")  # most have a verdict
    battles, _ = read_file(path, columns=VOTES, values=values)
    meant = [formats.WINNER_WORDS[meant] for meant in values.values() if meant]
    assert [b.winner for b in battles.rows()] == [*meant, *["model_a"] * 6]
    known = {*formats.WINNER_WORDS, *VOTES.values(), "ann", "bob"}
    unknown = [word for word in values if word not in known]
    if unknown and "battles_values=" in (said := refused(path, columns=VOTES)):
        (setting,) = shlex.split(said.partition("mean")[2].partition(": ")[2])
        given = OverridesParser.create().parse_override(setting).value()
        pairs = given.items() if isinstance(given, dict) else given
        assert [str(word) for word, _ in pairs] == unknown


# What is refused

ONE_OF = "must be one of model_a, model_b, tie, tie (bothbad), both_bad"
NO_RESULT = f'{ONE_OF}, or a model of its row (ann or bob); got "eve".'
MALFORMED = [
    ({"winner": "eve"}, f"winner {NO_RESULT}"),
    ({"winner": None}, "winner must be a winner: text without control characters, at most 200 long; got null."),
    ({"model_b": ""}, "model_b must be a model: text without control characters, at most 200 long; got null."),
    ({"model_b": "ann"}, 'the models must differ; got "ann" twice.'),
    ({"model_a": "a\x1b[31m"},
     'model_a must be a model: text without control characters, at most 200 long; got "a\\x1b[31m".'),
    ({"verdict_ab": "A", "verdict_ba": "B"}, f'verdict_ab {ONE_OF}; got "A".'),
    ({"model_b": "A", "verdict_ab": "A"}, f'verdict_ab {ONE_OF}; got "A".'),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), MALFORMED)
@pytest.mark.parametrize(
    ("ending", "place"), [("jsonl", ":2"), ("csv", ":3"), ("parquet", ": row 2")]
)
def test_a_malformed_row_is_named_with_what_was_found_and_expected(
    tmp_path, ending, place, change, words
):
    nothing = dict.fromkeys(("verdict_ab", "verdict_ba"))
    rows = [{**GOOD, **nothing}, {**GOOD, **nothing, **change}]
    said = refused(write_table(tmp_path / f"battles.{ending}", rows))
    assert said.startswith(f"{place}: {words}")
    assert ".\n  To leave out such rows: battles_on_error=drop" in said


@pytest.mark.parametrize("model", ["tie", "model_b", "left", "void"])
def test_a_model_that_is_called_like_a_word_for_a_result_is_not_guessed_at(
    tmp_path, model
):
    """Dropping such rows would leave others of the file, which may be read in the other way."""
    values = {"void": None}
    sides = ("ann", model) if model == "left" else (model, "bob")
    rows = [
        dict(zip(LEFT_RIGHT.values(), values, strict=True))
        for values in (("ann", "bob", "left"), (*sides, model))
    ]
    path = write_table(tmp_path / "battles.jsonl", rows)
    words = f' has the winner "{model}", which is both a model and the word'
    how = {"columns": LEFT_RIGHT, "values": values, "on_error": "drop"}
    assert refused(path, **how).startswith(words)


@pytest.mark.parametrize(
    ("winner", "ab", "ba", "is_battle"),
    [
        ("model_a", "model_b", "model_b", False),
        ("model_a", "model_a", "model_b", False),
        ("tie", "model_a", "model_a", False),
        ("tie (bothbad)", "tie", "tie", True),
        ("tie", "model_b", "tie", True),
        ("model_b", "model_b", None, True),
    ],
)
def test_a_winner_that_its_two_orders_do_not_name_is_refused(
    tmp_path, winner, ab, ba, is_battle
):
    """Elo plays winners and Bradley-Terry orders: the two would say the opposite. Where both are
    there, a winner is a word, also where models are called so."""
    row = {"winner": winner, "verdict_ab": ab, "verdict_ba": ba}
    names = {"model_a": "model_b", "model_b": "model_a"} if ba else GOOD
    path = write_table(tmp_path / "battles.jsonl", [{**GOOD, **names, **row}])
    if is_battle:
        assert [b.winner for b in read(path)] == [winner]
    else:
        said = f"got {winner} for verdict_ab={ab} and verdict_ba={ba}."
        assert said in refused(path)


def test_malformed_rows_may_be_dropped_and_are_counted(tmp_path, caplog):
    rows = [GOOD, *({**GOOD, **change} for change, _ in MALFORMED), GOOD]
    path = write_table(tmp_path / "battles.jsonl", rows)
    battles, facts = read_file(path, on_error="drop")
    assert facts["rows"]["used"] == len(battles) == 2
    assert facts["rows"]["dropped"] == len(MALFORMED)
    n = len(MALFORMED)
    said = (
        f"{path}: dropped {n} malformed rows; the first: {path}:2: winner {NO_RESULT}"
    )
    assert said in caplog.messages


def test_a_column_that_is_chosen_by_name_must_be_there(tmp_path):
    """No file need have a dimension, but who names a column wants each of its values rated apart."""
    path = write_table(tmp_path / "battles.jsonl", [{**GOOD, "domain": "renal"}])
    for name, column, words in (
        ("dimension", "dommain", "has no column dommain"),
        ("model_a", None, "battles_columns.model_a must name a column; got null"),
    ):
        assert words in refused(path, columns={**COLUMNS, name: column})


def test_a_filter_keeps_what_it_names_and_counts_the_rest(tmp_path):
    path = write_table(tmp_path / "battles.jsonl", WRITTEN)
    filters = {"judge_model": "opus", "source": None}
    battles, facts = read_file(path, filters=filters)
    assert battles.rows() == BATTLES[:2]
    assert facts["rows"]["filtered out"] == 2
    said = refused(path, filters={"judge_model": "gpt", "source": "human"})
    words = " has no battle that can be rated with judge_model=gpt and source=human (4 filtered out)."
    assert said == words


HEAD = {
    "b.csv": "model_a,model_b,winner\nann,bob,tie\n",
    "b.jsonl": '{"model_a": "a", "model_b": "b", "winner": "tie"}\n',
}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("b.jsonl", '{"winner" : "tie", "winner": "model_a"}',
         ":2 is not valid JSON: the key 'winner' stands twice in one object."),
        ("b.jsonl", '{"model_a": "a"', ":2 is not valid JSON: a comma or a closing bracket is missing at character 16."),
        ("b.csv", 'ann,"bob,tie', ":3 cannot be read as CSV (unexpected end of data). A quote"),
        ("b.csv", 'ann,"bob"x,tie', ":3 cannot be read as CSV"),
        ("b.csv", "ann,bob,tie,more", ":3 does not have the 3 fields of the header."),
        ("b.csv", "ann,bob", ":3 does not have the 3 fields of the header."),
        ("c.csv", "winner,a,winner\nann,bob,model_a", ":1 has the column winner twice."),
        ("b.parquet", "PAR1", " cannot be read as Parquet"),
        ("b.zip", "PK\3\4", " cannot be read as zip"),
        ("b.json", "[{}, 1]", " has no format that can be read."),
        ("b.json", "{", " is not valid JSON: a key in double quotes is missing at line 2, character 1."),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table_is_refused(tmp_path, name, text, words):
    """An unclosed quote would leave five of a thousand rows; a doubled key takes its last value."""
    path = write_whole(tmp_path / name, HEAD.get(name, "") + text + "\n")
    assert refused(path, on_error="drop").startswith(words)


@pytest.mark.parametrize("ending", [*KINDS, *(f"{kind}.gz" for kind in KINDS)])
def test_a_file_that_is_absent_or_cut_off_is_refused(tmp_path, ending):
    path = tmp_path / f"b.{ending}"
    with pytest.raises(UserError, match=rf"File not found: {path}\."):
        read_file(path)
    write_table(path, WRITTEN * 99).write_bytes(path.read_bytes()[:-20])
    assert refused(path)


# What is warned of


def test_battles_that_name_no_question_are_warned_of(tmp_path, caplog):
    """They may all be on one prompt; the column may be misspelt."""
    rows = [{**GOOD, "asked": name} for name in ("q1", None, "q2", None)]
    path = write_table(tmp_path / "battles.jsonl", rows)
    read(path)
    read(path, columns={**COLUMNS, "question_id": "asked"})
    none, some = caplog.messages
    assert "4 of 4 battles name no question, so that nobody knows how many" in none
    assert "2 of 4 battles name no question, and count together as one prompt" in some


def test_names_that_look_alike_are_warned_of(tmp_path, caplog):
    rows = [{**GOOD, "model_a": name, "question_id": "q"} for name in ("a", "A ", "ａ")]
    read(write_table(tmp_path / "battles.jsonl", rows))
    (warning,) = caplog.messages
    assert warning.endswith(
        "the models 'A ', 'a', 'ａ' look alike and are taken for different ones."
    )


@pytest.mark.parametrize("field", ["model_a", "dimension", "judge_model", "source"])
def test_a_name_is_at_most_200_characters_long(tmp_path, field):
    rows = [{**GOOD, field: n * "n"} for n in (200, 201)]
    read(write_table(tmp_path / "battles.jsonl", rows[:1]))
    said = refused(write_table(tmp_path / "battles.jsonl", rows))
    assert said.startswith(f":2: {field} must be a ")
    assert "at most 200" in said and 'got "nnnnn' in said
    assert len(said) < 250


def test_on_console_and_page_no_name_reorders_what_is_beside_it(tmp_path):
    rows = [{**GOOD, "model_a": "ann\u202eeve", "model_b": "bob\u200b"}] * 3
    write_table(tmp_path / "battles.jsonl", [*rows, {**rows[0], "winner": "tie"}])
    short = ("tracker=local", "figures=false", "elo.n_perms=5", "elo.n_bootstraps=0")
    ran = run("battles.jsonl", *short, folder=tmp_path)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    for text in (ran.out, ran.err, page):
        assert not {"\u202e", "\u200b"} & {*text}
    assert r"ann\u202eeve" in page
    assert r"ann\u202eeve" in ran.out


def test_a_column_of_thousands_of_names_is_none_of_models(tmp_path):
    rows = [{**GOOD, "model_a": f"answer {i}"} for i in range(3000)]
    words = " has 3,001 models, more than the 3,000 that can be rated. Are model_a and model_b the"
    assert refused(write_table(tmp_path / "battles.csv", rows)).startswith(words)


def test_a_column_of_hundreds_of_values_is_none_of_dimensions(tmp_path):
    """A board for each would say nothing; with null they are one."""
    rows = [{**GOOD, "dimension": f"row {i}"} for i in range(101)]
    path = write_table(tmp_path / "battles.csv", rows)
    said = refused(path)
    assert said.startswith(
        " has 101 dimensions in the column dimension, more than 100."
    )
    assert said.endswith("\n  battles_columns.rubric=null")
    assert len(read(path, columns={**COLUMNS, "dimension": None})) == 101


# Shares without a winner

SHARES = [
    {"model_a": "x", "model_b": "y", "question_id": f"q{n}", "share": share}
    for n, share in enumerate((0.9, 0.5, 0.2, ""))
]


@pytest.mark.parametrize("winner", ["winner", None])
def test_a_share_decides_who_wins_if_its_column_is_named(
    tmp_path: Path, winner: str | None
):
    path = write_table(tmp_path / "battles.csv", SHARES)
    columns = {**COLUMNS, "score": "share", "winner": winner}
    battles, facts = read_file(path, columns=columns)
    assert [battle.winner for battle in battles.rows()] == ["model_a", "tie", "model_b"]
    assert [battle.score for battle in battles.rows()] == [0.9, 0.5, 0.2]
    assert facts["rows"]["invalid"] == 1


def test_a_share_outside_its_range_is_refused(tmp_path: Path):
    path = write_table(tmp_path / "battles.csv", [SHARES[0] | {"share": 1.2}])
    said = refused(path, columns={**COLUMNS, "score": "share"})
    assert "got 1.2" in said or 'got "1.2"' in said


def test_a_table_without_a_winner_is_told_how_shares_are_named(tmp_path: Path):
    path = write_table(tmp_path / "battles.csv", SHARES)
    assert "  columns.share=share     if share is the share of model_a" in refused(path)
    assert "promptfoo" not in refused(path)


def test_a_winner_that_is_not_read_needs_shares(tmp_path: Path):
    path = write_table(tmp_path / "battles.csv", SHARES)
    said = refused(path, columns={**COLUMNS, "winner": None})
    assert said.startswith("battles_columns.winner must name a column; got null.")
