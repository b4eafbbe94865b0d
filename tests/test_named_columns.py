"""Tables whose columns the command names: every kind of file opens under other names, or says what it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from elo_exp.data import (
    answer_joins,
    answers,
    battle_columns,
    column_roles,
    labelled_pairs,
    labels,
)
from elo_exp.data.bank import PromptBank
from elo_exp.data.file_kinds import find_label_roles, recognise_kinds
from elo_exp.errors import UserError
from elo_exp.experiments.battle_source import BattleSource
from elo_exp.launching.shorthand import expand_shorthand
from elo_exp.oracle import answer_tables
from elo_exp.oracle.data import read_dataset
from elo_exp.paths import CONF
from elo_exp.records import Comparison
from tests.commands import attempt
from tests.csv_files import write_xlsx
from tests.data import shared_data, write_table

N = 12
TEXTS = [f"What is {n}?" for n in range(N)]
REPLIES = [f"It is {n}." for n in range(N)]
OTHERS = [f"{n}, of course." for n in range(N)]
MARKS = [n % 2 for n in range(N)]
BATTLE_FIELDS = dict(OmegaConf.load(CONF / "experiment/rate.yaml").battles_columns)


def made(
    folder: Path, columns: Mapping[str, Sequence[Any]], ending: str = "csv"
) -> Path:
    """A file with these columns."""
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    if ending == "xlsx":
        cells = [[*columns], *([*row.values()] for row in rows)]
        return write_xlsx(folder / "table.xlsx", {"rows": cells})
    return write_table(folder / f"table.{ending}", rows)


def source_of(path: Path, columns: Mapping[str, Any]) -> BattleSource:
    """What experiment=rate reads."""
    return BattleSource(
        paths=str(path), format_name=None, metric=None, roles=columns,
        columns=battle_columns.name_fields(columns, BATTLE_FIELDS), values={}, filters={},
        on_error="stop", judges=None, arena=None, with_style=False,
    )  # fmt: skip


def read_answers(path: Path, columns: Mapping[str, Any]) -> object:
    sets = answer_joins.read_answer_sets([(None, path)], columns)
    return {
        name: [(row.prompt, row.text, row.draw_idx) for row in answer_set.rows]
        for name, answer_set in sets.items()
    }


def read_scores(path: Path, columns: Mapping[str, Any]) -> object:
    rows, _ = source_of(path, columns).scores
    return [(row.entrant, row.item, row.value) for row in rows]


def read_battles(path: Path, columns: Mapping[str, Any]) -> object:
    battles, _ = source_of(path, columns).all_battles
    return [
        (row.model_a, row.model_b, row.winner, row.question_id)
        for row in battles.rows()
    ]


def read_pairs(path: Path, columns: Mapping[str, Any]) -> object:
    return [
        (pair.prompt, pair.response_a, pair.label)
        for pair in labelled_pairs.read_pairs(path, columns)
    ]


def read_prompts(path: Path, columns: Mapping[str, Any]) -> object:
    prompts = PromptBank(path=path, columns=columns).prompts
    return [(prompt.prompt_id, prompt.text, prompt.gold_answer) for prompt in prompts]


def read_judged(path: Path, columns: Mapping[str, Any]) -> object:
    rows = answer_tables.read_judged_answers(path, columns)
    names = ("prompt_id", "judge_score", "oracle_label")
    return [tuple(row.get(name) for name in names) for _, row in rows]


# reader, columns of the file, the roles that the command names, the first thing that is read
OPENED = [
    (read_answers, {"user_input": TEXTS, "reply": REPLIES},
     {"prompt": "user_input", "answer": "reply"}, ("table", (TEXTS[0], REPLIES[0], 0))),
    (read_answers, {"prompt": ["-"] * N, "q": TEXTS, "answer": ["-"] * N, "said": REPLIES, "who": ["ann"] * N},
     {"prompt": "q", "answer": "said", "entrant": "who"}, ("ann", (TEXTS[0], REPLIES[0], 0))),
    (read_answers, {"question": TEXTS, "gpt4": REPLIES, "claude": OTHERS, "note": OTHERS},
     {"answer": ["gpt4", "claude"]}, ("gpt4", (TEXTS[0], REPLIES[0], 0))),
    (read_answers, {"Question ": [TEXTS[0]] * N, "answer": REPLIES, "try": range(N)},
     {"draw": "Try"}, ("table", (TEXTS[0], REPLIES[0], 0))),
    (read_scores, {"case": TEXTS, "bot": ["ann"] * N, "mark": MARKS},
     {"item": "case", "entrant": "bot", "score": "mark"}, ("ann", TEXTS[0], 0.0)),
    (read_scores, {"case": TEXTS, "ann": MARKS, "bob": MARKS, "chars": range(N), "why": REPLIES},
     {"item": "case", "score": ["ann", "bob"]}, ("ann", TEXTS[0], 0.0)),
    (read_scores, {"case": TEXTS, "ann": MARKS, "bob": MARKS}, {"item": "case"}, ("ann", TEXTS[0], 0.0)),
    (read_scores, {"question": TEXTS, "answer": REPLIES, "mark": MARKS},
     {"score": "mark"}, ("table", TEXTS[0], 0.0)),
    (read_battles, {"a": ["ann"] * N, "b": ["bob"] * N, "won": ["ann"] * N, "case": TEXTS},
     {"model_a": "a", "model_b": "b", "verdict": "won", "item": "case"}, ("ann", "bob", "model_a", TEXTS[0])),
    (read_battles, {"model_a": ["ann"] * N, "model_b": ["bob"] * N, "margin": [0.25] * N, "case": TEXTS},
     {"share": "margin", "item": "case"}, ("ann", "bob", "model_b", TEXTS[0])),
    (read_pairs, {"q": TEXTS, "left": REPLIES, "right": OTHERS, "better": ["1"] * N},
     {"prompt": "q", "answer_a": "left", "answer_b": "right", "human_label": "better"}, (TEXTS[0], REPLIES[0], "a")),
    (read_prompts, {"nr": range(N), "user_input": TEXTS, "truth": REPLIES},
     {"item": "nr", "prompt": "user_input", "reference": "truth"}, ("0", TEXTS[0], REPLIES[0])),
    (read_judged, {"nr": range(N), "grader": MARKS, "expert": ["fail"] * N},
     {"item": "nr", "judge_score": "grader", "human_label": "expert"}, ("0", 0.0, 0.0)),
    (read_judged, {"id": range(N), "judge": MARKS, "human": ["yes"] * N}, {}, ("0", 0.0, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl", "xlsx"])
@pytest.mark.parametrize(("read", "columns", "named", "first"), OPENED)
def test_a_file_opens_under_other_names(
    read: Any, columns: Any, named: Any, first: Any, ending: str, tmp_path: Path
):
    if ending == "jsonl":  # which keeps the types of cells
        columns = {name: [*values] for name, values in columns.items()}
    rows = read(made(tmp_path, columns, ending), named)
    if isinstance(rows, dict):
        name, row = first
        assert rows[name][0] == row
        assert sum(map(len, rows.values())) == N * len(rows)
    else:
        assert rows[0] == first
        assert len(rows) in (N, 2 * N)


# reader, columns of the file, the roles that the command names, the message, the line to paste
REFUSED = [
    (read_answers, {"question": TEXTS, "anwser": REPLIES}, {},
     "has no column for the answer. Did you mean the column anwser as the answer?", "  columns.answer=anwser"),
    (read_answers, {"user_input": TEXTS, "reply": REPLIES}, {},
     "has no column for the prompt and the answer. Did you mean user_input and reply?",
     "  columns.prompt=user_input columns.answer=reply"),
    (read_answers, {"question": TEXTS, "gpt4": ["yes"] * N, "claude": ["no"] * N}, {},
     "has no column for the answer. If each column of texts is an entrant, write:", "  'columns.answer=[gpt4,claude]'"),
    (read_scores, {"task": TEXTS, "bot": ["ann"] * N, "reward": MARKS}, {},
     "has no column for the id of the item and the entrant. Name their columns:",
     "  columns.item=COLUMN columns.entrant=COLUMN"),
    (read_scores, {"a": TEXTS, "b": MARKS}, {}, "has no columns of battles or scores.",
     "  columns.model_a=COLUMN columns.model_b=COLUMN columns.verdict=COLUMN     if a row is a battle"),
    (read_battles, {"left_model": ["ann"] * N, "right_model": ["bob"] * N, "vote": ["tie"] * N}, {},
     "has no column for model A, model B and the verdict. Did you mean left_model, right_model and vote?",
     "  columns.model_a=left_model columns.model_b=right_model columns.verdict=vote"),
    (read_pairs, {"prompt": TEXTS, "output_1": REPLIES, "output_2": OTHERS}, {},
     "has no column for the human label. Name its column:", "  columns.human_label=COLUMN"),
    (read_judged, {"id": range(N), "human": MARKS}, {}, "has no column for the judge's score. Name its column:",
     "  columns.judge_score=COLUMN"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "columns", "named", "message", "remedy"), REFUSED)
def test_a_file_that_lacks_a_role_names_its_columns_and_the_setting(
    read: Any, columns: Any, named: Any, message: str, remedy: str, tmp_path: Path
):
    path = made(tmp_path, columns)
    with pytest.raises(UserError) as refusal:
        read(path, named)
    assert refusal.value.line.startswith(f"{path} {message}")
    assert refusal.value.below[0] == remedy
    (described,) = (
        line for line in refusal.value.below if line.startswith("  Its columns: ")
    )
    assert all(name in described for name in columns)
    assert not any("It is not" in line for line in refusal.value.below)


def test_a_refusal_says_what_each_column_holds(tmp_path: Path):
    columns = {"q": TEXTS[:3], "mark": [1, "", 0.5], "mixed": ["a", 2, ""]}
    with pytest.raises(UserError) as refusal:
        read_answers(made(tmp_path, columns), {})
    assert refusal.value.below[-1] == (
        "  Its columns: q (3 texts), mark (2 numbers, 1 empty), mixed (1 text, 1 number, 1 empty)."
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of answers, a wide one, and one of battles, all under other names."""
    for name, replies in {"old": REPLIES, "new": OTHERS}.items():
        rows = zip(TEXTS, replies, strict=True)
        write_table(
            tmp_path / f"{name}.csv", [{"user_input": q, "reply": a} for q, a in rows]
        )
    rows = zip(TEXTS, REPLIES, OTHERS, strict=True)
    write_table(
        tmp_path / "wide.csv",
        [{"question": q, "gpt4": a, "claude": b} for q, a, b in rows],
    )
    write_table(tmp_path / "votes.csv", [{"left": "a", "right": "b", "vote": "a"}] * N)
    return tmp_path  # fmt: skip


LOCAL = ("tracker=local", "figures=false", "elo.n_perms=20")


@pytest.mark.system
def test_a_bare_command_takes_named_columns(folder: Path):
    words = ("columns.prompt=user_input", "columns.answer=reply", "judge=lexical")
    ran = attempt("old.csv", "new.csv", *words, *LOCAL, folder=folder)
    assert ran.code == 0
    assert "prompts: 12 of 12 answered by both entrants" in ran.err + ran.out


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("old.csv new.csv columns.prompt=userinput columns.answer=reply",
         "old.csv has no column userinput. Did you mean user_input?\n  columns.prompt=user_input\n"
         "  Its columns: user_input (12 texts), reply (12 texts)."),
        ("answers=old.csv columns.answer=reply columns.share=reply",
         "columns.share has no effect with experiment=tournament. Its columns are item, prompt, entrant, answer, "
         "reference, draw and cluster."),
        ("votes.csv columns.model_a=left battles_columns.model_a=right columns.model_b=right columns.verdict=vote",
         "columns.model_a=left and battles_columns.model_a=right are two columns for one thing."),
        ("votes.csv columns.prompt=[left,right] columns.verdict=vote",
         "columns.prompt must name one column; got "),
        ("experiment=oracle columns.judge_score=mark", "columns.judge_score names a column of scored answers"),
        ("experiment=audit judge=lexical columns.prompt=q", "columns.prompt names a column of labelled pairs"),
        ("old.csv new.csv columns.prompt=user_input columns.answer=reply columns.cluster=x prompts.cluster=y",
         "columns.cluster and prompts.cluster are two names of one setting."),
        ("wide.csv judge=sonnet judging.budget_usd=1",
         "wide.csv has no column for the answer. Nothing was sent or charged. If gpt4 and claude are entrants, add:\n"
         "  'columns.answer=[gpt4,claude]'\n  Its columns: question (12 texts)"),
        ("old.csv", "old.csv has no column for the prompt and the answer. Did you mean user_input and reply?"),
    ],
)  # fmt: skip
def test_a_mistake_with_columns_is_refused_before_anything_is_spent(
    words: str, message: str, folder: Path
):
    ran = attempt(*words.split(), *LOCAL[:2], folder=folder)
    assert ran.code == 2
    assert ran.err.partition("elo_exp: ")[2].startswith(message)
    assert not [*folder.glob("outputs/*/manifest.json")]


def test_a_role_without_effect_and_two_columns_for_one_thing_are_refused():
    with pytest.raises(
        UserError, match="Did you mean columns.prompt\\? The roles are item,"
    ):
        expand_shorthand(["columns.promt=x"])
    with pytest.raises(UserError, match="Its columns are item and prompt.$"):
        column_roles.refuse_unused_roles({"share": "x"}, ("item", "prompt"), "gate")
    with pytest.raises(UserError, match="must name one column"):
        column_roles.refuse_unused_roles({"item": ["x"]}, ("item",), "gate")
    with pytest.raises(UserError, match="are two columns for one thing"):
        battle_columns.name_fields({"item": "x"}, {"question_id": "y"})
    assert battle_columns.name_fields({"share": "x"}, BATTLE_FIELDS)["score"] == "x"


def test_a_wide_table_is_recognised_where_nothing_is_paid(folder: Path):
    path = folder / "wide.csv"
    assert recognise_kinds(path) == ("answers", "prompts")
    guessed, named = ({}, {"answer": ["gpt4", "claude"]})
    assert read_answers(path, guessed) == read_answers(path, named)
    assert answers.recognise(path).name == answers.WIDE_TABLE
    joined = answer_joins.join(answer_joins.read_answer_sets([(None, path)]), None)
    assert "  'columns.answer=[gpt4,claude]'" in joined.describe()


@pytest.mark.parametrize(
    "columns",
    [
        {"question": TEXTS, "topic": REPLIES, "context": OTHERS},
        {"question": TEXTS, "gpt4": REPLIES},
        {"question": TEXTS, "gpt4": ["yes", "no"] * 6, "claude": ["no", "yes"] * 6},
        {"prompt": TEXTS, "model_a": REPLIES, "x": OTHERS, "y": OTHERS},
    ],
)
def test_other_texts_beside_a_prompt_are_no_entrants(columns: Any, tmp_path: Path):
    assert "answers" not in recognise_kinds(made(tmp_path, columns))


def test_scores_beside_answers_are_mentioned_and_their_command_works():
    paths = [shared_data(f"doors/t01_{name}.jsonl") for name in ("small", "large")]
    sets = answer_joins.read_answer_sets([(None, path) for path in paths])
    described = answer_joins.join(sets, None).describe()
    assert (
        "scores: each row also has a number in score. To rate by it, without a judge:"
        in described
    )
    rows = read_scores(paths[0], {"score": "score"})
    assert rows[0] == ("t01_small", "What is item q00?", 1.0)  # type: ignore[index]


# A judge's scores and people's labels


def test_labels_in_a_column_or_in_a_file_of_their_own_are_the_same():
    together = read_dataset(fresh_dir=shared_data("doors/t16_judge_human.csv"), seed=42)
    joined = read_dataset(
        fresh_dir=shared_data("doors/t16_log.json"),
        labels=shared_data("doors/t16_human.csv"),
        seed=42,
    )
    (one,), (two,) = together.fresh_draws.values(), joined.fresh_draws.values()
    assert one.is_labelled.sum() == two.is_labelled.sum() == 30
    assert one.label[one.is_labelled].tolist() == two.label[two.is_labelled].tolist()
    assert one.score.tolist() == two.score.tolist()


def test_a_bare_file_with_both_opens_in_the_oracle():
    path = shared_data("doors/t16_judge_human.csv")
    assert find_label_roles(path) == {"judge_score", "human_label"}
    words = expand_shorthand([str(path)])
    assert words == ["experiment=oracle", f'oracle.fresh_dir="{path}"']
    log, labels = (
        shared_data(f"doors/t16_{name}") for name in ("log.json", "human.csv")
    )
    assert expand_shorthand([str(labels), str(log)]) == [
        "experiment=oracle",
        f'oracle.fresh_dir="{log}"',
        f'oracle.labels="{labels}"',
    ]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"id": ["x1", "x2"], "human": [1, 0]}, "has no label of an answer that has a score: its ids are x1, x2, and"),
        ({"id": ["0", "0"], "human": [1, 0]}, ":3 labels 0 again, after "),
        ({"id": ["0", "1"], "human": ["good", "bad"]}, ':2 has the label "good", which is no number.'),
        ({"id": ["0", "1"], "note": ["good", "bad"]}, "has no column for the human label. Name its column:"),
        ({"nr": ["0", "1"], "human": [1, 0]}, "has no column for the id of the item. Name its column:"),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_are_refused(labels: Any, message: str, tmp_path: Path):
    scored = {
        "prompt_id": [*map(str, range(N))],
        "policy": ["p"] * N,
        "judge_score": MARKS,
    }
    path = made(tmp_path, scored, "jsonl")
    with pytest.raises(UserError) as refusal:
        read_dataset(fresh_dir=path, labels=made(tmp_path, labels), seed=42)
    assert message in refusal.value.line


def test_a_label_names_its_entrant_if_several_answered(tmp_path: Path):
    scored = {"prompt_id": ["0", "0"], "policy": ["p", "q"], "judge_score": [0, 1]}
    path = made(tmp_path, scored, "jsonl")
    with pytest.raises(UserError, match="has one label for two answers to 0 "):
        read_dataset(
            fresh_dir=path, labels=made(tmp_path, {"id": ["0"], "human": [1]}), seed=42
        )
    labels = made(tmp_path, {"id": ["0"], "model": ["q"], "human": [1]})
    rows = answer_tables.add_labels(answer_tables.read_judged_answers(path), labels)
    assert [row.get("oracle_label") for _, row in rows] == [None, 1.0]


# People's verdicts on the comparisons of a run

KEY = labels.Key(key="ab" * 32)
KNOWN = KEY.comparisons_by_id(
    Comparison(
        prompt_id=item, dimension=dimension, source="own", prompt_text="?",
        entrant_a="old", entrant_b="new", response_a="1", response_b="2",
    )
    for item in ("q1", "q2", "q3")
    for dimension in ("style",) + ("facts",) * (item == "q3")
)  # fmt: skip
VERDICTS = {
    "case": ["q1", "q2", "q3"], "left": ["old", "new", "old"], "right": ["new", "old", "new"],
    "vote": ["old", "both_bad", ""], "dimension": ["style", "style", "facts"],
}  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl", "xlsx"])
def test_verdicts_of_people_by_prompt_and_entrant_are_labels(
    ending: str, tmp_path: Path
):
    path = made(tmp_path, VERDICTS, ending)
    rows = labels.read_labels([path], KEY, KNOWN, {"item": "case"})
    assert [(name, label.choice, *shown.entrants) for name, label, shown in rows] == [
        ("table", "1", "old", "new"),
        ("table", "both bad", "new", "old"),
        ("table", "skip", "old", "new"),
    ]
    assert [shown.dimension for *_, shown in rows] == ["style", "style", "facts"]


def test_a_column_may_name_the_annotators(tmp_path: Path):
    columns = {**VERDICTS, "case": ["q1"] * 3, "dimension": ["style"] * 3}
    columns |= {
        "left": ["old"] * 3,
        "right": ["new"] * 3,
        "annotator": ["ann", "bob", "cy"],
    }
    rows = labels.read_labels([made(tmp_path, columns)], KEY, KNOWN, {"item": "case"})
    assert [name for name, *_ in rows] == ["ann", "bob", "cy"]
    with pytest.raises(UserError, match="labels a comparison again"):
        columns["annotator"] = ["ann"] * 3
        labels.read_labels([made(tmp_path, columns)], KEY, KNOWN, {"item": "case"})


def test_labels_that_a_page_exported_may_be_saved_as_a_table(tmp_path: Path):
    exported = {
        "page": [KEY.page] * 2, "browser": ["b"] * 2, "id": [*KNOWN][:2], "choice": [1, "tie"], "seconds": [1.5, ""],
    }  # fmt: skip
    for ending in ("csv", "xlsx"):
        path = made(tmp_path, exported, ending)
        rows = labels.read_labels([path], KEY, KNOWN)
        assert [(label.choice, label.seconds) for _, label, _ in rows] == [
            ("1", 1.5),
            ("tie", None),
        ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"case": ["q9"] * 3}, ":2 labels old and new on q9, which the run did not compare."),
        ({"vote": ["A"] * 3}, ':2 has the verdict "A". Write old, new, model_a, model_b, tie or both_bad.'),
        ({"dimension": [""] * 3}, ':4 has the rubric "". Name one of the run in a column dimension: style, facts.'),
        ({"vote": None}, " has no column for the verdict. Name its column:"),
    ],
)  # fmt: skip
def test_verdicts_that_do_not_fit_the_run_are_refused(
    changes: Any, message: str, tmp_path: Path
):
    columns = {k: v for k, v in {**VERDICTS, **changes}.items() if v is not None}
    with pytest.raises(UserError) as refusal:
        labels.read_labels([made(tmp_path, columns)], KEY, KNOWN, {"item": "case"})
    assert message in refusal.value.line
