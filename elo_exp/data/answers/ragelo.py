"""RAGElo: the answers of agents to queries, as a table without the queries or as a saved experiment with them.

github.com/zetaalphavector/RAGElo, tests/data/answers.csv and ragelo/types/experiment.py (save)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.data.answers import (
    Answer,
    Format,
    convert_row_errors,
    parse_name,
    require_text,
)
from elo_exp.data.table_files import Row


def answer(row: Row) -> Mapping[str, Any]:
    text = row["answer"]
    return {
        "id": parse_name(row["qid"], "qid"),
        "entrant": parse_name(row["agent"], "agent"),
        "text": None if text is None else require_text(text, "answer"),
        "prompt": row.get("query") or None,
    }


def answers_of_experiment(path: Path) -> Iterator[Answer]:
    """Yield the answers to each query. A conversation answers with its last message."""
    for query in files.read_json(path)["queries"].values():
        location = f"{path}: query {query['qid']}"
        for reply in (query.get("answers") or {}).values():
            with convert_row_errors(location, "RAGElo's experiment"):
                conversation = reply.get("conversation")
                text = conversation[-1]["content"] if conversation else reply["text"]
                yield Answer(
                    location=location,
                    id=parse_name(query["qid"], "qid"),
                    prompt=require_text(query["query"], "query"),
                    entrant=parse_name(reply["agent"], "agent"),
                    text=None if text is None else require_text(text, "text"),
                )


def _find_lack(keys: set[str]) -> str:
    return "has raw_answer, the reply of a judge" if "raw_answer" in keys else ""


FORMATS = (
    Format(
        name="RAGElo's answers",
        required=("qid", "agent", "answer"),
        answer=answer,
        find_lack=_find_lack,
    ),
    Format(
        name="RAGElo's experiment",
        shapes=("object",),
        required=("queries", "experiment_name"),
        answers=answers_of_experiment,
    ),
)
