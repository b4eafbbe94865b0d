"""Files of evaluation programs, each in the shape that its program writes, and each with something odd."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from omegaconf import OmegaConf

from elo_exp.analysis.standings import rate_scores
from elo_exp.data import answers, battle_files, formats, scores
from elo_exp.data.bank import load_bank
from elo_exp.data.file_kinds import recognise_kinds
from elo_exp.errors import FileError
from elo_exp.files import write_json, write_jsonl
from elo_exp.judges.replay import ReplayJudge
from elo_exp.paths import CONF
from tests.answer_files import MADE, asked
from tests.commands import attempt, run
from tests.data import write_table
from tests.score_files import inspect_log
from tests.test_formats import talk, vote
from tests.test_gold import OWN as OWN_PAIR

COLUMNS = dict(OmegaConf.load(CONF / "experiment/rate.yaml").battles_columns)


def read_scores(*paths: Path, metric: str | None = None) -> list[scores.Score]:
    files = {path: formats.recognise(path) for path in paths}
    found, _ = scores.read_scores(files, metric=metric, cluster="cluster")
    return found


def read_battles(path: Path) -> Any:
    return battle_files.read(path, columns=COLUMNS, filters={})[0]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


# ragas

RAGAS = [
    {"user_input": f"What is {i}?", "response": "One.", "retrieved_contexts": "['a', 'b']", "reference": "Two.",
     "faithfulness": value, "tone": ("pass", "fail", "")[i], "answer_relevancy": "", "latency": 0.3}
    for i, value in enumerate(("0.5", "", "nan"))
]  # fmt: skip


def test_each_metric_of_ragas_is_a_dimension(tmp_path: Path):
    path = write_csv(tmp_path / "gpt-4.1.csv", RAGAS)
    assert recognise_kinds(path)[:2] == ("scores", "answers")
    found = read_scores(path)
    assert {row.entrant for row in found} == {"gpt-4.1"}
    values = [(row.dimension, row.item, row.value) for row in found]
    assert values[0] == ("faithfulness", "What is 0?", 0.5)
    of_words = [value for dimension, _, value in values if dimension == "tone"]
    of_numbers = [value for dimension, _, value in values if dimension != "tone"]
    assert {row.dimension for row in found} == {"faithfulness", "tone"}
    assert (of_numbers, of_words) == ([0.5, None, None], [1.0, 0.0, None])


def test_older_names_of_ragas_are_read_and_a_repeated_question_is_a_draw(
    tmp_path: Path,
):
    row = {
        "id": 7,
        "question": "Why?",
        "answer": "So.",
        "contexts": ["a"],
        "ground_truth": "So!",
    }
    rows = [row | {"faithfulness": 1.0}, row | {"answer": "Thus.", "faithfulness": 0.0}]
    path = write_jsonl(tmp_path / "old.jsonl", rows)
    assert [row.draw for row in read_scores(path)] == ["1", "2"]
    form, found = answers.read_answers(path)
    assert (form.name, [row.draw_idx for row in found]) == ("ragas", [0, 1])
    assert (found[0].id, found[0].reference, found[1].text) == ("7", "So!", "Thus.")


def test_a_conversation_of_ragas_is_refused_as_an_answer(tmp_path: Path):
    row = {"user_input": [{"content": "Hi", "type": "human"}], "response": None}
    path = write_jsonl(tmp_path / "talk.jsonl", [row | {"goal_accuracy": 1.0}])
    assert [row.value for row in read_scores(path)] == [1.0]
    with pytest.raises(FileError, match="user_input must be a text"):
        answers.read_answers(path)


# Prometheus and BiGGen-Bench


def write_biggen(path: Path, **more: Any) -> Path:
    """Pretty JSON, as the program writes it."""
    rows = {
        key: row | more
        for key, row in MADE["BiGGen-Bench"](asked("So", 2), "ann").items()
    }
    path.write_text(json.dumps(rows, indent=4), encoding="utf-8")
    return path


def test_a_capability_by_a_judge_is_a_dimension_of_biggen(tmp_path: Path):
    judged = {"score": 4, "feedback": "Good.", "eval_model_name": "prometheus-8x7b"}
    path = write_biggen(tmp_path / "evals.json", **judged)
    found = read_scores(path)
    assert [(row.entrant, row.item, row.value) for row in found] == [
        ("ann", "q0", 4.0),
        ("ann", "q1", 4.0),
    ]
    assert {row.dimension for row in found} == {"reasoning by prometheus-8x7b"}
    assert formats.recognise(path).scale == (1.0, 5.0)


def test_responses_of_biggen_without_scores_are_answers_alone(tmp_path: Path):
    assert recognise_kinds(write_biggen(tmp_path / "responses.json")) == ("answers",)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_tries_of_a_judge_are_averaged_and_minus_one_is_none(
    tmp_path: Path, ending: str
):
    (row,) = MADE["BiGGen-Bench's table"](asked("So", 1), "ann")
    path = write_table(tmp_path / f"results.{ending}", [row])
    values = {row.dimension: row.value for row in read_scores(path)}
    assert values == {"reasoning by human": 4.0, "reasoning by prometheus_8x7b": 4.5}


def test_rows_of_prometheus_are_scores_by_criterion(tmp_path: Path):
    rows = [
        {"instruction": f"q{i // 2}", "response": "So.", "feedback": "Yes.", "score": i + 1,
         "criteria": ("[tone]\nScore 1: rude", "facts")[i % 2], "model": "ann"}
        for i in range(4)
    ]  # fmt: skip
    path = write_jsonl(tmp_path / "graded.jsonl", [*rows, rows[0] | {"score": None}])
    found = [
        (row.dimension, row.item, row.draw, row.value) for row in read_scores(path)
    ]
    assert found[:2] == [("tone", "q0", "0", 1.0), ("facts", "q0", "0", 2.0)]
    assert found[-1] == ("tone", "q0", "1", None)


# inspect_scout


def scout_row(i: int, value: Any, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "transcript_id": f"t{i}",
        "transcript_task_set": "ctf",
        "transcript_task_id": f"task{i // 2}",
        "transcript_task_repeat": i % 2 + 1,
        "transcript_model": "openai/gpt",
        "transcript_agent": "react",
        "scanner_key": "refusals",
        "scanner_name": "refusals",
        "label": None,
        "value": value,
        "value_type": kind,
        "explanation": "It said no.",
        "scan_error": None,
        **more,
    }


def test_a_scanner_of_scout_is_a_dimension_and_repeats_are_draws(tmp_path: Path):
    rows = [
        scout_row(0, "true", "boolean"),
        scout_row(1, "0.25", "number"),
        scout_row(2, None, "null", scan_error="refused"),
        scout_row(3, '[{"value": 1}]', "array"),
    ]
    found = read_scores(write_table(tmp_path / "refusals.parquet", rows))
    assert {(row.dimension, row.entrant) for row in found} == {
        ("refusals", "openai/gpt, react")
    }
    assert [(row.item, row.draw, row.value) for row in found] == [
        ("ctf task0", "1", 1.0),
        ("ctf task0", "2", 0.25),
        ("ctf task1", "1", None),
        ("ctf task1", "2", None),
    ]


def test_words_of_scout_are_refused_with_another_column(tmp_path: Path):
    path = write_jsonl(tmp_path / "s.jsonl", [scout_row(0, "deceptive", "string")])
    with pytest.raises(FileError, match="battles_metric=transcript_score"):
        read_scores(path)
    unknown = scout_row(0, 1, "number", transcript_model=None, transcript_agent=None)
    with pytest.raises(
        FileError, match="neither transcript_model nor transcript_agent"
    ):
        read_scores(write_jsonl(tmp_path / "u.jsonl", [unknown]))


# RAGElo


def game(a: str, b: str, winner: str | None, **more: Any) -> dict[str, Any]:
    reply = (
        None if winner is None else {"comparison_reasoning": "So.", "winner": winner}
    )
    result = {
        "qid": "q0",
        "evaluator_name": "pairwise",
        "exception": None,
        "answer": reply,
    }
    return {**result, "agent_a": a, "agent_b": b, "game_id": f"{a}-{b}", **more}


def test_two_rows_of_ragelo_are_two_orders_of_one_game(tmp_path: Path):
    rows = [
        {"query_id": "0", "agent_a": " ann", "agent_b": " bob", "answer": "[[A]]", "relevant": "A"},
        {"query_id": "0", "agent_a": " bob", "agent_b": " ann", "answer": "[[A]]", "relevant": "A"},
        {"query_id": "1", "agent_a": " bob", "agent_b": " ann", "answer": "?", "relevant": None},
        {"query_id": "2", "agent_a": " bob", "agent_b": " ann", "answer": "", "relevant": "C"},
    ]  # fmt: skip
    found = read_battles(write_jsonl(tmp_path / "eval.jsonl", rows)).rows()
    assert [
        (row.model_a, row.winner, row.verdict_ab, row.verdict_ba) for row in found
    ] == [
        ("ann", "tie", "model_a", "model_b"),
        ("bob", "tie", None, None),
    ]


def test_results_of_ragelo_hold_games_and_grades(tmp_path: Path):
    orders = {
        "a_vs_b_result": game("ann", "bob", "A"),
        "b_vs_a_result": game("bob", "ann", "B"),
    }
    document = {
        "qid": "q0",
        "did": "d0",
        "evaluator_name": "reasoner",
        "answer": {"score": 1},
    }
    grade = {"qid": "q0", "agent": "ann", "evaluator_name": "expert", "exception": None,
             "answer": {"reasoning": "So.", "score": 2}}  # fmt: skip
    tournament = {
        "evaluator_name": "EloTournament",
        "agents": ["ann"],
        "scores": {"ann": 9},
    }
    games = [document, game("ann", "bob", "A", **orders), tournament]
    (row,) = read_battles(write_jsonl(tmp_path / "results.jsonl", games)).rows()
    assert (row.winner, row.verdict_ab, row.verdict_ba) == ("model_a",) * 3
    (score,) = read_scores(write_jsonl(tmp_path / "grades.jsonl", [document, grade]))
    assert (score.entrant, score.item, score.value) == ("ann", "q0", 2.0)


def test_queries_of_ragelo_are_prompts(tmp_path: Path):
    path = write_csv(tmp_path / "queries.csv", [{"qid": "q_1", "query": " Why? "}])
    assert recognise_kinds(path) == ("prompts",)
    (prompt,) = load_bank(path)
    assert (prompt.prompt_id, prompt.text.strip()) == ("q_1", "Why?")


def test_a_game_of_ragelo_in_one_order_twice_is_refused(tmp_path: Path):
    path = write_jsonl(tmp_path / "twice.jsonl", [game("ann", "bob", "A")] * 2)
    with pytest.raises(FileError, match="judged twice in one order"):
        read_battles(path)


# orq-arena and LMArena


def orq_row(*votes: dict[str, Any], **more: Any) -> dict[str, Any]:
    texts = {"response_a": "One.", "response_b": "Two.", "prompt_text": "What?"}
    pair = {"prompt_hash": "h", "model_a": "ann", "model_b": "bob", **texts}
    return {**pair, "judge_votes": list(votes), "winner": "inconclusive", **more}


def test_each_vote_of_orq_arena_is_a_battle_and_flips_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    rows = [
        orq_row(vote("opus", "A"), vote("nano", None, flipped=True)),
        orq_row(prompt_hash="i", winner="void", error="timed out"),
        orq_row(vote("opus", None), vote("nano", "tie"), prompt_hash="j"),
    ]
    found = read_battles(write_jsonl(tmp_path / "battles.jsonl", rows)).rows()
    assert [(row.judge_model, row.winner) for row in found] == [
        ("opus", "model_a"),
        ("nano", "tie"),
        ("nano", "tie"),
    ]
    said = "the order of the answers changes 1 of 2 verdicts of nano."
    assert [message for message in caplog.messages if said in message]


@pytest.mark.parametrize("as_text", [False, True])
def test_conversations_of_lmarena_are_texts_of_both_models(
    tmp_path: Path, as_text: bool
):
    pair = {
        "question_id": "q",
        "model_a": "ann",
        "model_b": "bob",
        "winner": "tie (bothbad)",
    }
    talks: list[Any] = [
        talk("Why?", "So."),
        [*talk("Why?", "# Thus."), *talk("And?", "So.")],
    ]
    cells = [json.dumps(value) if as_text else value for value in talks]
    row = {
        **pair,
        "conversation_a": cells[0],
        "conversation_b": cells[1],
        "category_tag": {"math_v0.1": {"math": True}, "criteria_v0.1": {"real": True}},
        "judge_hash": "x",
    }
    path = write_jsonl(tmp_path / "arena.jsonl", [row])
    form = formats.recognise(path)
    assert (form.name, form.is_votes) == ("lmarena_conversations", True)
    (text,) = battle_files.read_texts(path, columns=COLUMNS, filters={}, chosen=form)
    assert (text.question, text.answers) == ("Why?", ("So.", "# Thus.\n\nSo."))
    assert (text.battle and text.battle.style_b) == (12, 1, 0, 0)
    assert text.category == "math"


def test_a_whole_conversation_of_lmarena_has_both_sides(tmp_path: Path):
    side = {"role": "assistant", "content": [{"type": "text", "text": "So."}]}
    turns = [{"user": {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
              "model_side_a": side, "model_side_b": None}]  # fmt: skip
    row = {
        "evaluation_session_id": "s",
        "model_a": "ann",
        "model_b": "bob",
        "winner": "both_bad",
    }
    path = write_jsonl(tmp_path / "arena.jsonl", [row | {"full_conversation": turns}])
    form = formats.recognise(path)
    (text,) = battle_files.read_texts(path, columns=COLUMNS, filters={}, chosen=form)
    assert (form.name, text.answers) == ("lmarena", ("So.", ""))


# LLMBar


def llmbar_row(n: int, label: int, ab: str | None, ba: str | None) -> dict[str, Any]:
    texts = {"input": f"What is {n}?", "output_1": "One.", "output_2": "Two."}
    orders = {"swap = False": {"completion": ["(a)", "stop"], "winner": ab},
              "swap = True": {"completion": ["(b)", "stop"], "winner": ba}}  # fmt: skip
    return {**texts, "label": label, "results": [["metrics", "stop"], orders]}


LLMBAR = [
    llmbar_row(0, 1, "1", "1"),
    llmbar_row(1, 2, "1", "2"),
    llmbar_row(2, 2, None, "2"),
]
FLAT = [
    {"prompt": f"What is {n}?", "response_a": "One.", "response_b": "Two.", "label": label,
     "verdict_ab": ab, "verdict_ba": ba}
    for n, (label, ab, ba) in enumerate([("a", "a", "a"), ("b", "a", "b"), ("b", "", "b")])
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "name"),
    [(LLMBAR, "result.json"), (FLAT, "flat.csv"), (FLAT, "flat.jsonl")],
)
def test_verdicts_beside_labels_are_replayed_in_an_audit(
    tmp_path: Path, rows: list[dict[str, Any]], name: str
):
    """Right, flipped, and one valid order of two: an accuracy of (1 + ½ + ½) / 3."""
    path = tmp_path / name
    if name == "result.json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        write_table(path, rows)
    assert recognise_kinds(path)[0] == "labelled pairs"
    ran = run(
        "experiment=audit", f"audit.gold={path}", "rubric=[preference]", "probe=[]", "audit.retest_share=0",
        "judge=replay", f"judge.path={path}", "tracker=local", "figures=false", folder=tmp_path,
    )  # fmt: skip
    assert "gold labels (all): accuracy 0.667" in ran.out


def test_labelled_pairs_are_refused_elsewhere_with_the_command(tmp_path: Path):
    path = write_jsonl(tmp_path / "pairs.jsonl", [OWN_PAIR])
    ran = attempt(str(path), folder=tmp_path / "here")
    assert ran.code == 2
    assert f"experiment=audit audit.gold={path} 'rubric=[preference]'" in ran.err
    assert "judge=replay" not in ran.err
    ran = attempt(
        str(write_jsonl(path, LLMBAR)), "judge=lexical", folder=tmp_path / "here"
    )
    assert f"judge=replay judge.path={path}" in ran.err


@pytest.mark.parametrize("verdict", ["(a)", ["a"], 3])
def test_a_verdict_that_names_no_response_is_refused(tmp_path: Path, verdict: Any):
    path = write_jsonl(tmp_path / "pairs.jsonl", [FLAT[0] | {"verdict_ab": verdict}])
    judge = ReplayJudge(kind=None, path=str(path), judge_model=None)
    with pytest.raises(FileError, match="has the verdict"):
        judge.check()


# Texts in any table of battles


@pytest.mark.parametrize(
    "names", ["response_a,response_b", "answer_a,answer_b", "output_1,output_2"]
)
def test_answers_under_usual_names_have_a_style(tmp_path: Path, names: str):
    a, b = names.split(",")
    row = {"question": "Why?", "model_a": "ann", "model_b": "bob", "winner": "model_a"}
    rows = [
        row | {a: "So **it** is.", b: "No."},
        row | {a: None, b: "No.", "question": "How?"},
    ]
    found = read_battles(write_table(tmp_path / "battles.csv", rows)).rows()
    assert [(row.style_a, row.style_b) for row in found] == [
        ((13, 0, 0, 1), (3, 0, 0, 0)),
        (None, (3, 0, 0, 0)),
    ]


# Rankings


def read_rows(path: Path) -> list[tuple[Any, ...]]:
    return [
        (row.question_id, row.model_a, row.model_b, row.winner, row.judge_model)
        for row in read_battles(path).rows()
    ]


@pytest.mark.parametrize(
    "cell",
    [
        ["b", "a", "c"],
        '["b", "a", "c"]',
        "b > a > c",
        "b,a,c",
        {"a": 2, "b": 1, "c": 3},
        [{"model": "b", "score": 9}, {"model": "a"}, {"model": "c"}],
    ],
)
def test_a_ranking_implies_its_pairs_on_one_prompt(tmp_path: Path, cell: Any):
    path = write_jsonl(
        tmp_path / "r.jsonl", [{"item": 1, "ranking": cell, "judge": "opus"}]
    )
    assert (formats.recognise(path).name, recognise_kinds(path)[0]) == (
        "rankings",
        "battles",
    )
    assert read_rows(path) == [
        ("1", "a", "b", "model_b", "opus"),
        ("1", "a", "c", "model_a", "opus"),
        ("1", "b", "c", "model_a", "opus"),
    ]


def test_level_and_numbered_entrants_of_a_ranking(tmp_path: Path):
    rows = [
        {"question": "Why?", "ranking": [["a", "b"], "c"]},
        {"question": "Why?", "ranking": "c = a > b", "annotator": "zoe"},
        {"question": "How?", "ranking": [2, 0, 1], "candidates": ["a", "b", "c"]},
        {"question": "How?", "ranking": None, "candidates": ["a", "b", "c"]},
    ]
    battles, facts = battle_files.read(
        write_jsonl(tmp_path / "r.jsonl", rows), columns=COLUMNS, filters={}
    )
    winners = [row.winner.removeprefix("model_") for row in battles.rows()]
    assert winners == ["tie", "a", "a", "a", "tie", "b", "a", "b", "b"]
    assert (battles.n_prompts(), facts["rows"]["invalid"]) == (2, 3)


def test_ranks_in_rows_are_rankings_by_item_and_rater(tmp_path: Path):
    ranks = [("q1", "a", 2, "x"), ("q1", "b", 1, "x"), ("q1", "a", 1, "y"), ("q1", "b", 1, "y"),
             ("q2", "a", "", "x"), ("q2", "b", 1, "x"), ("q2", "c", 2, "x")]  # fmt: skip
    rows = [
        dict(zip(("item", "model", "rank", "annotator"), row, strict=True))
        for row in ranks
    ]
    path = write_csv(tmp_path / "ranks.csv", rows)
    assert read_rows(path) == [
        ("q1", "a", "b", "model_b", "x"),
        ("q1", "a", "b", "tie", "y"),
        ("q2", "b", "c", "model_a", "x"),
    ]
    assert battle_files.read(path, columns=COLUMNS, filters={})[0].n_prompts() == 2


def test_the_best_of_n_beats_each_other_and_no_loser_beats_a_loser(tmp_path: Path):
    texts = {"a": "One.", "b": "Two.", "c": "Three."}
    rows = [
        {"candidates": texts, "best": "b", "note": "é"},
        {"candidates": [*texts], "best": "tie"},
    ]
    path = write_jsonl(tmp_path / "best.jsonl", rows)
    battles = read_battles(path)
    found = [(row.model_a, row.model_b, row.winner) for row in battles.rows()]
    assert found[:2] == [("a", "b", "model_b"), ("b", "c", "model_a")]
    assert [winner for *_, winner in found[2:]] == ["tie"] * 3
    assert battles.n_prompts() == 2
    assert battles.rows()[0].style_a == (4, 0, 0, 0)


@pytest.mark.parametrize(
    ("best", "expected"),
    [((0, 1), "ab"), ((3, 1), "ca"), (("B", "C"), "bc"), (("2", "3"), "bc")],
)
def test_numbers_and_letters_of_the_best_are_places(
    tmp_path: Path, best: Any, expected: str
):
    rows = [
        {"item": n, "candidates": ["a", "b", "c"], "best": one}
        for n, one in enumerate(best)
    ]
    found = read_battles(write_jsonl(tmp_path / "best.jsonl", rows)).rows()
    winners = [
        {"model_a": row.model_a, "model_b": row.model_b}[row.winner] for row in found
    ]
    assert winners == [expected[0]] * 2 + [expected[1]] * 2


def test_letters_of_a_ranking_are_places(tmp_path: Path):
    row = {"item": 1, "models": ["gpt", "claude"], "ranking": "B > A"}
    (battle,) = read_battles(write_jsonl(tmp_path / "r.jsonl", [row])).rows()
    assert (battle.model_a, battle.winner) == ("claude", "model_a")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"item": 1, "candidates": ["a", "b", "c"], "best": 1}, 'got "1"'),
        ({"item": 1, "ranking": ["a", "b", "a"]}, 'ranks "a" twice'),
        ({"item": 1, "ranking": ["a", None]}, "must hold names of entrants; got null"),
        (
            {"item": 1, "ranking": [1, 2]},
            "must name entrants, or number all candidates",
        ),
        (
            {"item": 1, "ranking": {"a": "x", "b": 1}},
            'a rank must be a number, 1 for the best; got "x"',
        ),
        (
            {"item": 1, "candidates": ["a", "b"], "best": "c"},
            "must be a candidate of its row",
        ),
    ],
)
def test_a_faulty_ranking_stops_the_reading_at_its_row(
    tmp_path: Path, row: Any, said: str
):
    path = write_jsonl(tmp_path / "r.jsonl", [row])
    with pytest.raises(FileError) as refused:
        read_battles(path)
    assert f"{path}:1" in str(refused.value)
    assert said in str(refused.value)


def test_a_table_of_scores_with_ranks_is_a_table_of_scores(tmp_path: Path):
    rows = [
        {"item": f"q{i // 2}", "model": "ab"[i % 2], "score": i, "rank": 1}
        for i in range(4)
    ]
    assert recognise_kinds(write_csv(tmp_path / "s.csv", rows)) == ("scores",)


# A table of epochs


def test_a_long_table_with_epochs_clusters_by_item(tmp_path: Path):
    """198 items, 5 epochs, 2 models: the interval over items by hand, and that of two logs with the same scores."""
    rng, models = np.random.default_rng(4206), ("new", "old")
    ease = rng.beta(2, 2, size=198)
    right = rng.random((2, 198, 5)) < np.stack([ease + 0.06, ease])[:, :, None]
    rows = [
        {"item_id": f"item{i}", "model_id": model, "score": int(right[m, i, e]), "epoch": e + 1}
        for m, model in enumerate(models)
        for i in range(198)
        for e in range(5)
    ]  # fmt: skip
    logs = []
    for m, model in enumerate(models):
        log = inspect_log(model, range(198), n_epochs=5)
        for sample in log["samples"]:
            is_right = right[m, sample["id"], sample["epoch"] - 1]
            sample["scores"]["match"]["value"] = "C" if is_right else "I"
        logs.append(write_json(tmp_path / f"{model}.json", log))
    table = write_csv(tmp_path / "scores.csv", rows)
    assert recognise_kinds(table)[0] == "scores"
    of_table, of_logs = find_difference(table), find_difference(*logs)
    gaps = right[0].mean(axis=1) - right[1].mean(axis=1)
    error = gaps.std(ddof=1) / np.sqrt(198)
    half_width = scipy.stats.t.ppf(0.975, 197) * error
    low, high = gaps.mean() - half_width, gaps.mean() + half_width
    ends = (of_table.difference, of_table.std_error, of_table.ci_low, of_table.ci_high)
    assert ends == pytest.approx((gaps.mean(), error, low, high))
    assert ends == (
        of_logs.difference,
        of_logs.std_error,
        of_logs.ci_low,
        of_logs.ci_high,
    )


def find_difference(*paths: Path) -> Any:
    (pair,) = rate_scores(read_scores(*paths), allow_missing=False).differences[
        "mean_score"
    ]
    return pair
