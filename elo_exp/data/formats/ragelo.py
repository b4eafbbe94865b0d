"""RAGElo: games between the answers of two agents, and grades of answers.

github.com/zetaalphavector/RAGElo, ragelo/types/results.py (the lines of NAME_results.jsonl, in which a game in both
orders holds a_vs_b_result and b_vs_a_result) and, of older versions, pairwise_answers_evaluations.csv and rows with
query_id and relevant. A winner is A, B or C, which is a tie.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from elo_exp.data import table_files
from elo_exp.data.formats import (
    Format,
    MalformedError,
    Rows,
    check_orders,
    join_orders,
    parse_number,
)
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Row, Source
from elo_exp.errors import format_value

_WINNER_BY_LETTER = {"A": "model_a", "B": "model_b", "C": "tie", "TIE": "tie"}
_OTHER_SIDE = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
_RESULT_KEYS = ("qid", "evaluator_name", "answer")
# Columns of a graded answer that are no grades
_ANSWER_COLUMNS = ("qid", "agent", "raw_answer", "answer", "exception", "reasoning")


def find_faults_of_games(path: Source, _: set[str]) -> list[str]:
    """Return what a file of results lacks to hold games."""
    is_game = any("agent_a" in row for _, row in table_files.read_rows(path))
    return [] if is_game else ["lacks agent_a"]


def find_faults_of_grades(path: Source, _: set[str]) -> list[str]:
    """Return what a file of results lacks to hold grades of answers."""
    is_grade = any("agent" in row for _, row in table_files.read_rows(path))
    return [] if is_grade else ["lacks agent"]


def find_faults_of_ranking(_: Source, keys: set[str]) -> list[str]:
    """Return why a table is more than a ranking."""
    return [] if keys == {"agent", "score"} else ["has other columns"]


def join_games(rows: Rows) -> Rows:
    """Make one row of the orders of each game, which may stand in rows of their own or inside one row.

    Results of other kinds are left out.
    """
    games = ((location, row) for location, row in rows if "agent_a" in row)
    columns = ("qid", "query_id", "evaluator_name")
    for location, row in join_orders(games, columns, ("agent_a", "agent_b")):
        inner = [row.get(name) for name in ("a_vs_b_result", "b_vs_a_result")]
        inner_orders = [order for order in inner if order]
        has_one_row = len(row["orders"]) == 1
        yield (
            location,
            {**row, "orders": inner_orders} if inner_orders and has_one_row else row,
        )


def fields(row: Row) -> Mapping[str, Any]:
    """Read the verdict of each order; one order alone decides the winner."""
    agents = [_read_name(row[name]) for name in ("agent_a", "agent_b")]
    verdicts = dict[str, str | None]()
    for order in check_orders(row, "agent_a"):
        verdict = _read_winner(order)
        is_ab = _read_name(order["agent_a"]) == agents[0]
        verdicts["verdict_ab" if is_ab else "verdict_ba"] = (
            verdict if is_ab or verdict is None else _OTHER_SIDE[verdict]
        )
    has_one_order = len(verdicts) == 1
    return {
        "agent_a": agents[0],
        "agent_b": agents[1],
        "dimension": row.get("evaluator_name"),
        "question_id": _read_name(row["qid"] if "qid" in row else row["query_id"]),
        **({"winner": next(iter(verdicts.values()))} if has_one_order else verdicts),
    }


def _read_name(value: Any) -> str | None:
    return (table_files.to_text(value) or "").strip() or None


def _read_winner(row: Row) -> str | None:
    """Return the winner of one order; None if the judge named none."""
    reply = row.get("relevant", row.get("answer"))
    letter = reply.get("winner") if isinstance(reply, Mapping) else reply
    if table_files.to_text(letter) is None:
        return None
    if letter not in _WINNER_BY_LETTER:
        raise MalformedError(
            f"the winner must be A, B or C; got {format_value(letter)}."
        )
    return _WINNER_BY_LETTER[letter]


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each grade of each answer. An item is a query."""
    for _, row in table_files.read_rows(path):
        reply = row.get("answer")
        if "agent" not in row:
            continue
        grades = reply if isinstance(reply, Mapping) else row
        for name, value in grades.items():
            if metric in (None, name) and _is_grade(str(name), value):
                yield Score(
                    dimension=str(name),
                    entrant=_read_name(row["agent"]),  # type: ignore[arg-type]
                    item=_read_name(row["qid"]),  # type: ignore[arg-type]
                    value=parse_number(value),
                    columns=row,
                )


def _is_grade(name: str, value: Any) -> bool:
    """Whether a cell is a number, or could be and is missing."""
    if name in _ANSWER_COLUMNS or isinstance(value, list | dict):
        return False
    try:
        _ = parse_number(value)
    except (TypeError, ValueError):
        return False
    return True


_GAMES = Format(
    name="RAGElo",
    required=("qid", "agent_a", "agent_b", "answer"),
    columns={"model_a": "agent_a", "model_b": "agent_b"},
    join=join_games,
    fields=fields,
    is_judged=True,
    assumption="C is a tie; the judge is not named",
)
_GRADES = Format(
    name="RAGElo's grades",
    required=("qid", "agent", "raw_answer"),
    scores=scores,
    assumption="each number of an evaluation is a dimension",
)
FORMATS = (
    _GAMES,
    replace(_GAMES, required=("query_id", "agent_a", "agent_b", "relevant")),
    replace(
        _GAMES,
        shapes=("lines",),
        required=_RESULT_KEYS,
        find_faults=find_faults_of_games,
    ),
    _GRADES,
    replace(
        _GRADES,
        shapes=("lines",),
        required=_RESULT_KEYS,
        find_faults=find_faults_of_grades,
    ),
    Format(
        name="RAGElo's ranking",
        shapes=("csv",),
        required=("agent", "score"),
        remedy="It holds totals. Give the results of the games.",
        find_faults=find_faults_of_ranking,
    ),
)
