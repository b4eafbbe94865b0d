"""Result files of other programs: recognised by their keys, read as their own programs read them,
and refused, or spoken of, where anything is wrong with them."""

import copy
import csv
import io
import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from elo_exp.data import battle_files, formats
from elo_exp.data.battles import Battles
from elo_exp.errors import UserError
from elo_exp.files import write_whole
from elo_exp.paths import CONF
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS
from elo_exp.records import Battle
from tests.data import shared_data, write_table
from tests.faulty_documents import faulty

COLUMNS = dict(OmegaConf.load(CONF / "experiment/rate.yaml").battles_columns)
RNG = np.random.default_rng(5)
N = 24


def read(path: Path, **how: Any) -> tuple[Battles, dict[str, Any]]:
    return battle_files.read(path, **{"columns": COLUMNS, "filters": {}, **how})


def rated(battles: Battles) -> Any:
    method = BradleyTerry(
        initial_rating=1400, orders="both", interval="sandwich", n_bootstraps=0, seed=1
    )
    return method.rate({"d": battles})["d"]


# Rows as each program writes them


def pick(*words: Any) -> Any:
    return words[RNG.integers(len(words))]


def one_of(n: int, labels: Sequence[str]) -> dict[str, int]:
    chosen = RNG.integers(n)
    return {label: int(i == chosen) for i, label in enumerate(labels)}


def comparia_winner() -> dict[str, Any]:
    chosen = pick("ann", "bob", "")
    return {"chosen_model_name": chosen, "both_equal": str(chosen == "")}


LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
SIDES = ("model_1", "model_2", "tie")
WON = ("winner_model_a", "winner_model_b", "winner_tie")
WINNERS = ("model_a", "model_b", "tie")


def two_orders() -> dict[str, str]:
    ab, ba = pick(*WINNERS), pick(*WINNERS)
    return {
        "winner": ab if ab == ba else "tie",
        "verdict_ab": ab,
        "verdict_ba": ba,
    }


def talk(question: str, answer: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]


def vote(judge: str, word: str | None, *, flipped: bool = False) -> dict[str, Any]:
    return {
        "model": judge,
        "vote": word,
        "flipped": flipped,
        "completed": flipped or word is not None,
        "replacement": False,
        "explanation": "So.",
    }


ROWS: dict[str, list[dict[str, Any]]] = {
    "alpaca_eval": [
        {
            "instruction": f"What is {i}?",
            "output_1": "# One",
            "output_2": "Two",
            "generator_1": "base",
            "generator_2": "new",
            "annotator": "gpt",
            "preference": pick(1.0, 1.25, 1.5, 1.9, 2),
        }
        for i in range(N)
    ],
    "fastchat": [
        {
            "question_id": 81 + i // 2,
            "model_1": "ann",
            "model_2": "bob",
            "g1_winner": pick(*SIDES),
            "g2_winner": pick(*SIDES),
            "judge": ["gpt-4", pick("pair-v2", "pair-math-v1")],
            "turn": 1 + i % 2,
            "tstamp": 1.5,
        }
        for i in range(2 * N)
    ],
    "arena_hard": [
        {
            "uid": f"u{i}",
            "model": pick("ann", "bob"),
            "judge": "gpt-4",
            "baseline": "o3",
            "games": [{"score": pick(*LABELS)}, {"score": pick(*LABELS)}],
        }
        for i in range(N)
    ],
    "judge_arena": [
        {
            "judge_completion": f"<think>score_A: 9</think>\nscore_A: {pick(2, 5, 9)}\n"
            f"Score_B: {pick(2, 5, 9)}",
            "instruction_index": i % N,
            "model_A": "ann" if i < N else "bob",
            "model_B": "bob" if i < N else "ann",
            "judge": "qwen",
        }
        for i in range(2 * N)
    ],
    "lmarena_votes": [
        {"id": i, "model_a": "ann", "model_b": pick("bob", "zoe"), **one_of(3, WON)}
        for i in range(N)
    ],
    "lmarena": [
        {
            "evaluation_session_id": f"s{i}",
            "model_a": "ann",
            "model_b": "bob",
            "winner": pick(*WINNERS, "both_bad"),
        }
        for i in range(N)
    ],
    "comparia": [
        {"id": i, "model_a_name": "ann", "model_b_name": "bob", **comparia_winner()}
        for i in range(N)
    ],
    "lmarena_conversations": [
        {
            "question_id": f"q{i}",
            "model_a": "ann",
            "model_b": "bob",
            "winner": pick(*WINNERS, "tie (bothbad)"),
            "conversation_a": talk(f"What is {i}?", "One."),
            "conversation_b": json.dumps(talk(f"What is {i}?", "# Two")),
            "category_tag": {"math_v0.1": {"math": True}},
            "language": "English",
        }
        for i in range(N)
    ],
    "orq-arena": [
        {
            "schema_version": 3,
            "prompt_hash": f"h{i}",
            "prompt_text": f"What is {i}?",
            "prompt_category": "general",
            "model_a": "ann",
            "model_b": "bob",
            "response_a": "One.",
            "response_b": "Two.",
            "judge_votes": [vote("opus", pick("A", "B", "tie"))],
            "majority_verdict": "A",
            "winner": "ann",
            "error": None,
        }
        for i in range(N)
    ],
    "RAGElo": [
        {
            "qid": i,
            "agent_a": "ann",
            "agent_b": " bob",
            "raw_answer": "So. [[A]]",
            "answer": pick("A", "B", "C"),
            "relevance": "",
        }
        for i in range(N)
    ],
    "rankings": [
        {"item": i, "judge": "opus", "ranking": pick(["ann", "bob"], ["bob", "ann"])}
        for i in range(N)
    ],
    "best of n": [
        {"item": i, "candidates": ["ann", "bob"], "best": pick("ann", "bob")}
        for i in range(N)
    ],
    "ranks": [
        {"item": i // 2, "model": ("ann", "bob")[i % 2], "rank": pick(1, 2)}
        for i in range(2 * N)
    ],
    "evalica": [
        {
            "prompt": i,
            "left": "ann",
            "right": pick("bob", "zoe"),
            "winner": pick("left", "right", "tie"),
        }
        for i in range(N)
    ],
    "elo_exp": [
        {
            "model_a": "ann",
            "model_b": "bob",
            "question_id": f"q{i}",
            "judge_model": "opus",
            **two_orders(),
        }
        for i in range(N)
    ],
    "battles": [
        {"model_a": "ann", "model_b": "bob", "winner": pick(*WINNERS), "question_id": i}
        for i in range(N)
    ],
}
ENDING = {"judge_arena": "csv", "lmarena_votes": "csv", "comparia": "csv"}
ENDING |= {"evalica": "csv", "RAGElo": "csv"}


def write(folder: Path, name: str, rows: Sequence[Any] | None = None) -> Path:
    """The file as its program writes it, under a name that says nothing."""
    rows = ROWS[name] if rows is None else rows
    if name in ENDING:
        return write_table(folder / "of.csv", rows)
    lines = [json.dumps(row) for row in rows]
    is_array = name == "alpaca_eval"
    text = f"[{', '.join(lines)}]" if is_array else "\n".join(lines)
    return write_whole(folder / "file", text)


# What is read


@pytest.mark.parametrize("name", ROWS)
def test_a_file_is_recognised_and_every_row_counted(tmp_path, name, caplog):
    caplog.set_level(logging.INFO)
    path = write(tmp_path, name)
    battles, facts = read(path)
    assert (facts["file"], facts["format"]) == (str(path), name)
    n_turns = 2 if name == "fastchat" else 1
    assert facts["rows"]["used"] == len(battles) == battles.n_prompts() * n_turns
    assert facts["rows"]["tied"] == battles.is_tie().sum()
    (line,) = caplog.messages
    assert line.startswith(f"{path}: read as {name}: {len(battles)} used, ")
    assert facts["assumed"] in line


def test_every_format_has_rows_here():
    known = {f.name for f in formats.formats() if not (f.scores or f.remedy)}
    assert known == {*ROWS, "arena_hard_weighted"}


def base(**changes: Any) -> Battle:
    return Battle(**{"model_a": "ann", "model_b": "bob", "winner": "tie", **changes})


JUDGED = {"source": "llm-judge"}
READ: list[tuple[str, dict[str, Any], dict[str, Any] | str]] = [
    ("alpaca_eval", {"preference": 1}, {"winner": "model_a", "score": 1.0}),
    ("alpaca_eval", {"preference": 1.75}, {"winner": "model_b", "score": 0.25}),
    ("alpaca_eval", {"preference": 1.5}, {"winner": "tie", "score": 0.5}),
    ("alpaca_eval", {"preference": 0}, {"winner": "tie", "score": 0.5}),
    ("alpaca_eval", {"preference": None}, "invalid"),
    ("alpaca_eval", {"preference": 3}, "preference must be a number from 1 to 2, 0 or null; got 3."),
    ("alpaca_eval", {"output_1": "# a\n* b"}, {"style_a": (7, 1, 1, 0)}),
    ("fastchat", {"g1_winner": "model_2", "g2_winner": "model_2"},
     {"winner": "model_b", "verdict_ab": "model_b", "verdict_ba": "model_b"}),
    ("fastchat", {"g1_winner": "model_1", "g2_winner": "tie"},
     {"winner": "tie", "verdict_ab": "model_a", "verdict_ba": "tie", "dimension": "turn 1"}),
    ("fastchat", {"g1_winner": "model_1", "g2_winner": "error"}, "invalid"),
    ("fastchat", {"g1_winner": "model_1", "g2_winner": "ann"}, "verdict_ba must be one of "),
    ("fastchat", {"g1_winner": "tie", "g2_winner": "tie", "m1_score": 7},
     {"winner": "tie", "verdict_ab": None, "judge_model": "gpt-4"}),
    ("arena_hard", {"games": [{"score": "A>>B"}, {"score": "B>A"}]},
     {"winner": "model_a", "verdict_ab": "model_a", "verdict_ba": "model_a", "model_a": "o3"}),
    ("arena_hard", {"games": [{"score": "B<<A"}, {"score": "A>B"}]},
     {"winner": "tie", "verdict_ab": "model_a", "verdict_ba": "model_b"}),
    ("arena_hard", {"baseline": None}, {"model_a": "gpt-4-0314"}),
    ("arena_hard", {"games": [None, {"score": "A>B"}]}, "invalid"),
    ("arena_hard", {"games": [{"score": "A>B"}, {"score": None}]}, "invalid"),
    ("arena_hard", {"games": [{"score": "A>B"}, {"score": "A"}]}, 'score must be A>>B, A>B, A=B, B>A or B>>A; got "A".'),
    ("arena_hard", {"games": [{"score": "A>B"}]}, {"winner": "model_a", "verdict_ab": None, "verdict_ba": None}),
    ("arena_hard", {"games": [{"score": "A>B"}] * 3}, "the row has more than two games."),
    ("arena_hard", {"games": []}, "the row is not a row of arena_hard: a value has another form."),
    ("arena_hard", {"games": [{"judgment": 1}]}, "the row is not a row of arena_hard: it lacks score."),
    ("judge_arena", {"judge_completion": "none"}, "invalid"),
    ("lmarena_conversations", {"winner": "tie"}, {"style_a": (4, 0, 0, 0), "style_b": (5, 1, 0, 0), "source": "human"}),
    ("orq-arena", {"judge_votes": [vote("opus", "B")]},
     {"winner": "model_b", "judge_model": "opus", "question_id": "h0", **JUDGED, "style_a": (4, 0, 0, 0)}),
    ("orq-arena", {"judge_votes": [vote("opus", None, flipped=True)]}, {"winner": "tie", "verdict_ab": None}),
    ("orq-arena", {"judge_votes": [vote("opus", None)]}, "invalid"),
    ("orq-arena", {"judge_votes": [], "error": "timed out"}, "invalid"),
    ("orq-arena", {"judge_votes": [vote("opus", "C")]}, 'vote must be A, B, tie or null; got "C".'),
    ("RAGElo", {"answer": "A"}, {"model_b": "bob", "winner": "model_a", "verdict_ab": None, **JUDGED}),
    ("RAGElo", {"answer": "C"}, {"winner": "tie"}),
    ("RAGElo", {"answer": ""}, "invalid"),
    ("RAGElo", {"answer": "D"}, 'the winner must be A, B or C; got "D".'),
    ("lmarena_votes", dict.fromkeys(WON, 1), "winner_model_a and winner_model_b and winner_tie are true, and only one"),
    ("lmarena", {"winner": "both_bad"}, {"winner": "tie (bothbad)", "source": "human"}),
    ("comparia", {"chosen_model_name": "bob", "both_equal": "False"}, {"winner": "model_b"}),
    ("comparia", {"chosen_model_name": "", "both_equal": "True"}, {"winner": "tie"}),
    ("comparia", {"chosen_model_name": "", "both_equal": "False"}, "invalid"),
    ("comparia", {"chosen_model_name": "bob", "both_equal": "True"}, "chosen_model_name must be empty if both_equal is true"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "expected"), READ)
def test_the_first_row_is_read_as_its_program_reads_it(
    tmp_path, name, changes, expected
):
    first, *rest = copy.deepcopy(ROWS[name])
    path = write(tmp_path, name, [first | changes, *rest])
    if isinstance(expected, dict):
        row = read(path)[0].rows()[0].to_dict()
        assert {key: row[key] for key in expected} == expected
    elif expected == "invalid":
        battles, facts = read(path)
        assert facts["rows"]["invalid"] == 1
        assert len(read(write(tmp_path, name))[0]) - len(battles) == 1
    else:
        with pytest.raises(
            UserError, match=r"(?s)(:\d|: row \d).*battles_on_error=drop"
        ) as error:
            read(path)
        assert f": {expected}" in str(error.value)
        assert read(path, on_error="drop")[1]["rows"]["dropped"] == 1


def test_both_orders_of_judge_arena_are_one_battle_of_their_mean_share(tmp_path):
    """Scores 9 and 5 with ann first, 2 and 5 with bob first."""
    texts = ["Score A: 9\nscore_b: 5", '"score_A": 2\n"score_B": 5']
    pair = ROWS["judge_arena"][0], ROWS["judge_arena"][N]
    rows = [
        {**row, "judge_completion": text} for row, text in zip(pair, texts, strict=True)
    ]
    (battle,) = read(write(tmp_path, "judge_arena", rows))[0].rows()
    ab, ba = (1 / (1 + math.exp(-0.3 * gap)) for gap in (4, 3))
    assert battle.score == pytest.approx((ab + ba) / 2)
    assert (battle.verdict_ab, battle.verdict_ba) == ("model_a", "model_a")
    third = [*rows, rows[0]]
    with pytest.raises(UserError, match="judged twice in one order"):
        read(write(tmp_path, "judge_arena", third))


def test_a_run_may_have_judged_a_comparison_in_several_dimensions(tmp_path):
    rows = [row | {"dimension": d} for d in "xy" for row in ROWS["elo_exp"]]
    path = write(tmp_path, "elo_exp", rows)
    assert read(path)[1]["rows"]["used"] == 2 * N
    apart, _ = read(path, columns={**COLUMNS, "dimension": "dimension"})
    assert list(apart.split_by_dimension()) == ["x", "y"]


def test_most_rows_must_have_a_verdict(tmp_path):
    """Another preset of JudgeArena has another form of reply."""
    rows = [{**row, "judge_completion": "[[A]]"} for row in ROWS["judge_arena"]]
    path = write(tmp_path, "judge_arena", [*rows[:-3], *ROWS["judge_arena"][-3:]])
    with pytest.raises(
        UserError, match="no battle that can be rated|rows without a verdict"
    ):
        read(path)


# As the programs themselves reckon


def test_a_real_file_of_alpaca_eval_has_the_win_rate_of_its_leaderboard():
    """llama-2-13b-chat: 652 of 804, one annotation without a preference; the gap is its logit."""
    path = shared_data("formats/alpaca_eval_1_annotations.json.gz")
    battles, facts = read(path)
    assert facts["rows"] == {"used": 804, "tied": 0, "invalid": 1}
    share = 1.0 - battles.scores()
    assert share.mean() == pytest.approx(0.8109452736318408, abs=1e-12)
    error = share.std(ddof=1) / math.sqrt(len(share))
    assert error == pytest.approx(0.013817573087734824, abs=1e-9)
    board = rated(battles)
    gap = POINTS_PER_LOG_ODDS * math.log(share.mean() / (1 - share.mean()))
    assert board.rating[0] - board.rating[1] == pytest.approx(gap)
    slope = POINTS_PER_LOG_ODDS / (share.mean() * (1 - share.mean()))
    assert board.std_error[0] == pytest.approx(slope * error / 2)


def test_fastchat_counts_as_its_show_result_does(tmp_path):
    """A win takes both games, whatever else is a tie; a row with an error does not count."""
    error = {**ROWS["fastchat"][0], "question_id": 1, "g1_winner": "error"}
    found, _ = read(write(tmp_path, "fastchat", [*ROWS["fastchat"], error]))
    games = [(row["g1_winner"], row["g2_winner"]) for row in ROWS["fastchat"]]
    won = [g1 if g1 == g2 else "tie" for g1, g2 in games]
    ours = {"model_a": "model_1", "model_b": "model_2"}
    assert [ours.get(b.winner, b.winner) for b in found.rows()] == won


@pytest.mark.parametrize(("name", "weight"), [("", 1), ("_weighted", 3)])
def test_arena_hard_scores_as_its_show_result_does(tmp_path, name, weight):
    """The mean over both games of each model's score, in which the baseline is A first."""
    score = {"A>>B": 0.0, "A>B": 0.0, "A=B": 0.5, "B>A": 1.0, "B>>A": 1.0}
    theirs: dict[str, list[float]] = {"ann": [], "bob": []}
    for row in ROWS["arena_hard"]:
        first, second = (game["score"] for game in row["games"])
        theirs[row["model"]] += [score[first]] * (weight if ">>" in first else 1)
        theirs[row["model"]] += [1 - score[second]] * (weight if ">>" in second else 1)
    path = write(tmp_path, "arena_hard")
    chosen = formats.recognise(path, f"arena_hard{name}")
    board = rated(read(path, chosen=chosen)[0])
    assert board.models == (*theirs, "o3")
    for rating, scores in zip(board.rating, theirs.values(), strict=False):
        share = np.mean(scores)
        gap = POINTS_PER_LOG_ODDS * math.log(share / (1 - share))
        assert rating - board.rating[2] == pytest.approx(gap, abs=1e-4)


# What is refused


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(UserError) as error:
        read(path, **how)
    return str(error.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"left": "a", "right": "b", "won": "left"},
         "has no column for model A, model B and the verdict. Did you mean left and right?\n"
         "  columns.model_a=left columns.model_b=right columns.verdict=COLUMN\n"
         "  Its columns: left (1 text), right (1 text), won (1 text)."),
        ({"generator_1": "a", "generator_2": "b", "instruction": "?", "pref": 1},
         "  It is not alpaca_eval: it lacks preference."),
        ({"x": 1}, "has no columns of battles or scores. Name them, or see docs/formats.md:\n"
         "  columns.model_a=COLUMN columns.model_b=COLUMN columns.verdict=COLUMN     if a row is a battle\n"
         "  columns.item=COLUMN columns.entrant=COLUMN columns.score=COLUMN     if a row is a score\n"
         "  Its columns: x (1 number)."),
        ({"question_id": 1, "model": "a", "judgment": "", "score": 7},
         "has no column model_a. Did you mean model?\n  columns.model_a=model\n  Its columns: question_id (1 "),
    ],
)  # fmt: skip
def test_a_file_of_no_format_is_refused_with_what_the_nearest_lacks(
    tmp_path, row, words
):
    assert words in refused(write_whole(tmp_path / "f", json.dumps(row)))


def test_a_format_may_be_forced_and_only_on_a_file_that_has_its_keys(tmp_path):
    path = write(tmp_path, "elo_exp")
    plain = formats.recognise(path, "battles")
    assert read(path, chosen=plain)[1]["format"] == "battles"
    with pytest.raises(
        UserError, match="It is not evalica: it lacks left, lacks right"
    ):
        formats.recognise(path, "evalica")
    with pytest.raises(
        UserError, match='battles_format must be one of .*; got "evalico"'
    ):
        formats.recognise(path, "evalico")


CORE = (
    "model_a",
    "model_b",
    "winner",
    "verdict_ab",
    "verdict_ba",
    "score",
    "dimension",
)


def core(battles: Battles) -> list[tuple[Any, ...]]:
    return [tuple(getattr(b, name) for name in CORE) for b in battles.rows()]


def texts(name: str, folder: Path) -> list[tuple[str, bytes]]:
    """Mutants of a file's text: with a mark of UTF-8, cut, with a key twice, columns swapped."""
    content = write(folder, name).read_bytes()
    found = [("mark", b"\xef\xbb\xbf" + content), ("cut", content[: len(content) - 7])]
    if name in ENDING:
        head, _, rest = content.partition(b"\r\n")
        names = head.decode().split(",")
        names[0], names[-1] = names[-1], names[0]
        found.append(("swapped", ",".join(names).encode() + b"\r\n" + rest))
        found.append(("twice", head + b"," + head + b"\r\n" + rest))
    else:
        found.append(
            ("twice", content.replace(b"{", b'{"winner": 1, "winner": 2, ', 1))
        )
        found.append(("latin", content + "µ".encode("latin-1")))
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_mutant_is_refused_or_equal_or_spoken_of(tmp_path, name, caplog):
    """Never a traceback, and never another number in silence. A question's name may change."""
    whole, facts = read(write(tmp_path, name))
    fates: Counter[str] = Counter()

    def check(what: str, path: Path) -> None:
        caplog.clear()
        caplog.set_level(logging.WARNING)
        try:
            if name == "arena_hard":
                read(path, chosen=formats.recognise(path, "arena_hard_weighted"))
            found, now = read(path)
        except UserError as error:
            assert "\n" not in error.line
            fates["refused"] += 1
            return
        if core(found) == core(whole):
            fates["equal"] += 1
        else:
            assert caplog.messages or now["rows"] != facts["rows"], what
            fates["spoken of"] += 1

    for what, rows in faulty(ROWS[name], 30, seed=3):
        if name in ENDING:
            text = io.StringIO()
            kept = [row for row in rows if isinstance(row, dict)]
            keys = dict.fromkeys(key for row in kept for key in row)
            writer = csv.DictWriter(text, list(keys))
            writer.writeheader()
            writer.writerows(kept)
            check(what, write_whole(tmp_path / "mutant", text.getvalue()))
        else:
            check(what, write(tmp_path, name, rows))
    for what, content in texts(name, tmp_path):
        check(what, write_whole(tmp_path / "mutant", content))
    assert fates["refused"] >= 3 and fates["equal"] >= 1
