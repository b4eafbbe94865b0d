"""Arenas: human battles in one schema, whatever file they come from, and what was left out of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from elo_exp.arena import rows as arena_rows
from elo_exp.arena import sources as arenas
from elo_exp.arena.settings import ArenaColumns, ArenaSource
from elo_exp.arena.sources import Texts
from elo_exp.records import Battle, UserError
from tests.data import described

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

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
    """The arena that conf/arena/<name>.yaml describes, with the shipped settings of a run, but for `changes`."""
    values = OmegaConf.to_container(described("arena", name))
    assert isinstance(values, dict)
    columns = values.pop("columns") | changes.pop("columns", {})
    return ArenaSource(**{**values, "columns": ArenaColumns(**columns), **changes})


def conversation(
    prompt: str, answer: str, turns: int, *, blocks: bool
) -> list[dict[str, Any]]:
    def said(text: str) -> Any:
        return [{"type": "text", "text": text, "image": None}] if blocks else text

    return [
        {"role": role, "content": said(text)}
        for role, text in (("user", prompt), ("assistant", answer))
    ] * turns


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of rows in the format of its name."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    data = io.BytesIO()
    if plain.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), data, row_group_size=2)
    elif plain.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        data.write(text.getvalue().encode())
    else:
        data.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        gzip.compress(data.getvalue()) if path.suffix == ".gz" else data.getvalue()
    )
    return path


def own() -> list[dict[str, Any]]:
    names = (
        "question_id",
        "model_a",
        "model_b",
        "winner",
        "prompt",
        "response_a",
        "response_b",
    )
    return [dict(zip(names, row, strict=False)) for row in ROWS if row[-1] == 1]


def lmarena_55k() -> list[dict[str, Any]]:
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


def lmarena_100k() -> list[dict[str, Any]]:
    """Conversations of plain texts, and how many turns they have."""
    return [
        {
            "question_id": i,
            "model_a": a,
            "model_b": b,
            "winner": winner,
            "conversation_a": conversation(prompt, one, turns, blocks=False),
            "conversation_b": conversation(prompt, two, turns, blocks=False),
            "turn": turns,
            "language": "English",
        }
        for i, a, b, winner, prompt, one, two, turns in ROWS
    ]


def lmarena_140k() -> list[dict[str, Any]]:
    """Conversations of blocks; nothing says how many turns they have."""
    return [
        {
            "id": i,
            "model_a": a,
            "model_b": b,
            "winner": winner,
            "conversation_a": conversation(prompt, one, turns, blocks=True),
            "conversation_b": conversation(prompt, two, turns, blocks=True),
            "language": "en",
        }
        for i, a, b, winner, prompt, one, two, turns in ROWS
    ]


def comparia() -> list[dict[str, Any]]:
    """The name of the chosen model, or both equal."""
    return [
        {
            "id": int(i),
            "model_a_name": a,
            "model_b_name": b,
            "chosen_model_name": {"model_a": a, "model_b": b}.get(winner),
            "both_equal": winner == "tie",
            "conversation_a": conversation(prompt, one, turns, blocks=False),
            "conversation_b": conversation(prompt, two, turns, blocks=False),
            "conv_turns": float(turns),
        }
        for i, a, b, winner, prompt, one, two, turns in ROWS
    ]


SOURCES: list[tuple[str, str, Callable[[], list[dict[str, Any]]]]] = [
    ("lmarena_55k", "train.csv", lmarena_55k),
    ("lmarena_100k", "data.parquet", lmarena_100k),
    ("lmarena_140k", "train.parquet", lmarena_140k),
    ("lmarena_140k", "train.jsonl.gz", lmarena_140k),
    ("comparia", "votes.parquet", comparia),
    ("comparia", "votes.parquet.gz", comparia),
    *(
        ("file", f"mine{ending}", own)
        for ending in (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")
    ),
]


@pytest.mark.parametrize(("name", "file", "rows"), SOURCES)
def test_every_arena_is_read_into_one_schema(
    name: str, file: str, rows: Callable[[], list[dict[str, Any]]], tmp_path: Path
) -> None:
    chosen = settings(name, path=str(lines(tmp_path / file, rows())))
    found = arenas.read(chosen)
    assert found.battles == BATTLES
    assert arenas.texts(chosen, found.at[1:]) == {
        found.at[1]: Texts(
            prompt="Three and three?", response_a="Nine.", response_b="Six."
        ),
        found.at[2]: Texts(prompt="One and one?", response_a="Two.", response_b="2"),
    }
    several = {} if name == "file" else {"of several turns": 1}
    assert (found.n_rows, found.dropped) == (len(rows()), several)


@pytest.mark.parametrize(
    "name", ["lmarena_55k", "lmarena_100k", "lmarena_140k", "comparia"]
)
def test_a_data_set_of_the_hub_is_pinned_to_a_commit(name: str) -> None:
    chosen = settings(name)
    assert chosen.dataset is not None
    assert chosen.revision is not None
    assert len(bytes.fromhex(chosen.revision)) == 20


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "file", "rows"), [SOURCES[0], SOURCES[2]])
def test_a_data_set_says_the_same_as_its_files(
    name: str,
    file: str,
    rows: Callable[[], list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read by `datasets` from a folder, as it would be from the hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = lines(tmp_path / "set" / file, rows()).parent
    chosen = settings(name, dataset=str(folder), data_files=file)
    found = arenas.read(chosen)
    assert found.battles == BATTLES
    assert next(iter(arenas.texts(chosen, found.at).values())) == Texts(
        prompt="Two and two?", response_a="Four.", response_b="Five."
    )


def test_a_folder_of_files_is_one_arena(tmp_path: Path) -> None:
    rows = own()
    lines(tmp_path / "arena" / "b.jsonl", rows[1:])
    lines(tmp_path / "arena" / "a.jsonl", rows[:1])
    chosen = settings(path=str(tmp_path / "arena"))
    found = arenas.read(chosen)
    assert found.battles == BATTLES
    assert found.at == [(0, 0), (1, 0), (1, 1)]
    assert arenas.texts(chosen, [(1, 1)]) == {
        (1, 1): Texts(prompt="One and one?", response_a="Two.", response_b="2")
    }


def test_who_met_is_read_without_the_texts(tmp_path: Path) -> None:
    """Of a conversation in parquet only who spoke: an arena of gigabytes takes a moment and no memory."""
    chosen = settings(
        "lmarena_140k", path=str(lines(tmp_path / "train.parquet", lmarena_140k()))
    )
    first = next(iter(arena_rows.light(chosen)))
    assert first.values["conversation_a"] == [{"role": "user"}, {"role": "assistant"}]
    assert "conversation_b" not in first.values


def read(tmp_path: Path, *changed: dict[str, Any], **changes: Any) -> arenas.Arena:
    """The arena of our own rows, the first of them changed so, one after the other."""
    rows = [own()[0] | row for row in changed] + own()
    return arenas.read(
        settings(path=str(lines(tmp_path / "arena.jsonl", rows)), **changes)
    )


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
def test_a_row_that_is_no_battle_is_counted_and_said_why(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    gpt = {"model_a": "gpt", "question_id": "9"}
    found = read(tmp_path, change, gpt, winners={"weird": None}, hold_out=["gpt"])
    assert found.battles == BATTLES
    assert found.dropped[reason] >= 1
    assert sum(found.dropped.values()) == 2


def test_the_words_of_an_arena_are_translated(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"winner": "both_bad"},
        {"winner": "bob"},
        winners={"both_bad": "tie (bothbad)"},
    )
    assert [b.winner for b in found.battles[:2]] == ["tie (bothbad)", "model_b"]


def test_the_battles_of_a_model_that_is_held_out_are_kept_apart(tmp_path: Path) -> None:
    found = read(tmp_path, {"model_a": "gpt"}, hold_out=["gpt"])
    assert [(b.model_a, b.model_b) for b in found.held_out] == [("gpt", "bob")]
    assert "gpt" not in found.models


def test_a_battle_without_a_question_is_one_by_itself(tmp_path: Path) -> None:
    found = read(tmp_path, columns={"question_id": None})
    assert len({b.question_id for b in found.battles}) == len(BATTLES)


@pytest.mark.parametrize(
    ("languages", "n"), [(None, 4), (["FR"], 1), (["fr", "en"], 4)]
)
def test_languages_are_filtered_whatever_their_case(
    languages: list[str] | None, n: int, tmp_path: Path
) -> None:
    rows = [{**row, "language": "en"} for row in own()] + [
        {**own()[0], "language": "fr"}
    ]
    path = str(lines(tmp_path / "arena.jsonl", rows))
    found = arenas.read(
        settings(path=path, columns={"language": "language"}, languages=languages)
    )
    assert len(found.battles) == n


@pytest.mark.parametrize(
    ("change", "changes", "message"),
    [
        (
            {},
            {"columns": {"winner": "won"}},
            "arena.jsonl:1: has no column 'won' (found question_id, model_a, model_b",
        ),
        (
            {"winner": "left"},
            {},
            "arena.jsonl:1: winner is 'left'. Expected model_a, model_b, tie, tie (bothbad), 'ann'",
        ),
        (
            {"winner": None, "t": 2},
            {"columns": {"tied": "t"}},
            "arena.jsonl:1: t is 2. Expected true or false, 1 or 0.",
        ),
        (
            {"t": 1},
            {"columns": {"tied": "t", "won_by_a": "t"}},
            "arena.jsonl:1: t and t are both true.",
        ),
        (
            {"n": "few"},
            {"columns": {"turns": "n"}},
            "arena.jsonl:1: n is 'few'. Expected a number of turns.",
        ),
        ({"prompt": "{"}, {"text_lists": True}, "arena.jsonl:1: prompt is not JSON"),
        (
            {"prompt": 4},
            {"text_lists": True},
            "arena.jsonl:1: prompt holds a int. Expected a list.",
        ),
        (
            {"c": ["Hello."]},
            {"columns": {"conversation_a": "c", "conversation_b": "c"}},
            "arena.jsonl:1: c holds no conversation. Expected a list of messages with role and content.",
        ),
        (
            {},
            {"languages": ["fr"]},
            "arena.languages: found fr, but no column of file says the language.",
        ),
        (
            {"language": "en"},
            {"languages": ["xx"], "columns": {"language": "language"}},
            "arena file: no battle is left of 1 rows (1 another language). Found in arena.columns.language: en 1.",
        ),
        (
            {},
            {"hold_out": ["gpt"]},
            "arena.hold_out: 'gpt' has no battle in file. Check the name.",
        ),
    ],
)
def test_what_is_wrong_with_an_arena_is_said_in_one_line(
    change: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = lines(tmp_path / "arena.jsonl", [own()[0] | change])
    with pytest.raises(UserError) as refusal:
        arenas.read(settings(path=str(path), **changes))
    assert str(refusal.value).removeprefix(f"{tmp_path}/").startswith(message)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "arena.path: names no file."),
        (
            {"path": "nowhere.jsonl"},
            "arena.path: found no file of battles at nowhere.jsonl.",
        ),
        ({"path": __file__}, "has the ending '.py'. Expected .jsonl, .csv or .parquet"),
        (
            {"path": "x.jsonl", "columns": {"prompt": None}},
            "arena.columns: names no texts.",
        ),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_before_anything_is_done(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=r".*") as refusal:
        arena_rows.check(settings(**changes))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": "x" * 101}, "longer than 100 characters"),
        ({"response_b": "  "}, "without a text, or with more than text"),
        ({"response_a": None}, "without a text, or with more than text"),
    ],
)
def test_a_battle_without_texts_to_judge_says_so(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    chosen = settings(
        path=str(lines(tmp_path / "arena.jsonl", [own()[0] | change])), max_chars=100
    )
    assert arenas.texts(chosen, [(0, 0)]) == {(0, 0): reason}


def test_a_message_with_a_picture_cannot_be_judged_as_text(tmp_path: Path) -> None:
    (row, *_) = lmarena_140k()
    row["conversation_a"][0]["content"].append(
        {"type": "image", "text": None, "image": "..."}
    )
    chosen = settings("lmarena_140k", path=str(lines(tmp_path / "train.jsonl", [row])))
    assert arenas.texts(chosen, [(0, 0)]) == {
        (0, 0): "without a text, or with more than text"
    }


def test_a_conversation_in_which_no_user_speaks_is_left_out(tmp_path: Path) -> None:
    rows = lmarena_140k()
    rows[0]["conversation_a"] = rows[0]["conversation_a"][1:]
    found = arenas.read(
        settings("lmarena_140k", path=str(lines(tmp_path / "train.parquet", rows)))
    )
    assert found.battles == BATTLES[1:]
    assert found.dropped == {"without a message of the user": 1, "of several turns": 1}


def test_a_file_that_is_no_parquet_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "arena.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(UserError, match="arena.parquet: cannot be read as parquet"):
        arenas.read(settings(path=str(tmp_path / "arena.parquet")))
