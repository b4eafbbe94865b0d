"""orq-arena: rounds of two models with both answers and the votes of several judges, schema 2 and 3.

github.com/orq-ai/orq-arena, src/orq_arena/data/schemas.py (BattleRecord). A judge votes after it has seen both orders of
the answers; `flipped` says that its two verdicts differ. orq-arena leaves such a vote out; here it is a tie.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from elo_exp.data.formats import Format, MalformedError, Rows
from elo_exp.data.table_files import Row
from elo_exp.errors import format_value

_WINNER_BY_VOTE = {"A": "model_a", "B": "model_b", "tie": "tie", None: None}


def split_votes(rows: Rows) -> Rows:
    """Make a row of each vote, and one of each round without votes."""
    for location, row in rows:
        votes = row.get("judge_votes") or [{}]
        for vote in votes if isinstance(votes, list) else [votes]:
            yield location, {**row, "vote": vote}


def list_notes(rows: Rows) -> list[str]:
    """Say how often the order of the answers changes the verdict of each judge."""
    n_votes, n_flips = Counter[str](), Counter[str]()
    for _, row in split_votes(rows):
        vote = row["vote"]
        if isinstance(vote, Mapping) and vote.get("completed"):
            n_votes[str(vote.get("model"))] += 1
            n_flips[str(vote.get("model"))] += bool(vote.get("flipped"))
    return [
        f"the order of the answers changes {n_flips[judge]} of {n} verdicts of {judge}."
        for judge, n in sorted(n_votes.items())
        if n_flips[judge]
    ]


def fields(row: Row) -> Mapping[str, Any]:
    vote = row["vote"]
    word = vote.get("vote")
    if word not in _WINNER_BY_VOTE:
        raise MalformedError(
            f"vote must be A, B, tie or null; got {format_value(word)}."
        )
    has_failed = row.get("error") or not vote.get("completed", word is not None)
    winner = "tie" if vote.get("flipped") else _WINNER_BY_VOTE[word]
    return {
        "question_id": row["prompt_hash"],
        "prompt": row.get("prompt_text"),
        "judge_model": vote.get("model"),
        "source": "llm-judge",
        "winner": None if has_failed else winner,
        "reasoning": vote.get("explanation"),
    }


FORMATS = (
    Format(
        name="orq-arena",
        required=("prompt_hash", "model_a", "model_b", "judge_votes"),
        fields=fields,
        join=split_votes,
        list_notes=list_notes,
        assumption="a vote that depends on the order of the answers is a tie",
    ),
)
