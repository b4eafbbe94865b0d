"""Files of answers as their programs write them: the same prompts, answered alike, in every format."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from elo_exp.files import write_json, write_jsonl, write_whole
from tests.data import write_table


class Asked(NamedTuple):
    """A prompt, what was answered, and the reference."""

    id: str
    prompt: str
    answer: str
    reference: str | None = None


def asked(says: str, n: int = 24) -> list[Asked]:
    """Prompts with the answers of one who says this of each."""
    return [
        Asked(f"q{i}", f"What is {i}\nand {i}?", f"{says} {i}.", f"It is {2 * i}.")
        for i in range(n)
    ]


def own_responses(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "entrant_id": model,
            "prompt_id": row.id,
            "response_text": row.answer,
            "p_correct": None,
            "finish_reason": "stop",
            "diagnostics": {"n_tokens": 8},
            "timestamp": "2026-11-24T00:00:00Z",
        }
        for row in rows
    ]


def alpaca_eval(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "instruction": row.prompt,
            "dataset": "helpful_base",
            "output": row.answer,
            "generator": model,
        }
        for row in rows
    ]


def fastchat(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "question_id": row.id,
            "answer_id": f"a{row.id}",
            "model_id": model,
            "choices": [{"index": 0, "turns": [row.answer, "And more."]}],
            "tstamp": 1.5,
        }
        for row in rows
    ]


def arena_hard(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "uid": row.id,
            "ans_id": f"a{row.id}",
            "model": model,
            "messages": [
                {"role": "user", "content": row.prompt},
                {"role": "assistant", "content": {"answer": row.answer}},
            ],
            "tstamp": 1.5,
        }
        for row in rows
    ]


def lm_eval(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    """Two filters: a row each. The model is the folder's name."""
    return [
        {
            "doc_id": i,
            "doc": {"question": row.prompt},
            "target": row.reference,
            "arguments": {
                "gen_args_0": {"arg_0": row.prompt, "arg_1": {"until": ["\n"]}}
            },
            "resps": [[row.answer]],
            "filtered_resps": [row.answer[:n]],
            "filter": name,
            "doc_hash": f"h{i}",
            "exact_match": 1,
        }
        for i, row in enumerate(rows)
        for n, name in ((4, "strict-match"), (9, "flexible-extract"))
    ]


def inspect_ai(rows: Sequence[Asked], model: str) -> dict[str, Any]:
    samples = [
        {
            "id": row.id,
            "epoch": 1,
            "input": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": row.prompt},
            ],
            "target": row.reference,
            "output": {
                "model": model,
                "choices": [
                    {
                        "message": {
                            "role": "assistant",
                            "content": [
                                {"type": "reasoning", "reasoning": "Hm."},
                                {"type": "text", "text": row.answer},
                            ],
                        },
                        "stop_reason": "stop",
                    }
                ],
            },
            "scores": {"match": {"value": "C"}},
        }
        for row in rows
    ]
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "quiz", "model": model},
        "samples": samples,
    }


def openai_batch(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    """In another order than they were asked in, as it may be."""
    return [
        {
            "id": f"batch_req_{row.id}",
            "custom_id": row.id,
            "response": {
                "status_code": 200,
                "request_id": "r",
                "body": {
                    "object": "chat.completion",
                    "model": model,
                    "choices": [
                        {
                            "index": 0,
                            "message": {
                                "role": "assistant",
                                "content": row.answer,
                                "refusal": None,
                            },
                            "finish_reason": "stop",
                        }
                    ],
                },
            },
            "error": None,
        }
        for row in reversed(rows)
    ]


def conversations(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "id": row.id,
            "model": model,
            "reference": row.reference,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": row.prompt},
                {"role": "assistant", "content": row.answer},
            ],
        }
        for row in rows
    ]


def plain(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "question": row.prompt,
            "response": row.answer,
            "model": model,
            "reference": row.reference,
        }
        for row in rows
    ]


def ragas(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "user_input": row.prompt,
            "retrieved_contexts": ["A page.", "Another page."],
            "response": row.answer,
            "reference": row.reference,
            "model": model,
            "faithfulness": 0.5,
            "answer_relevancy": None,
        }
        for row in rows
    ]


def biggen(rows: Sequence[Asked], model: str) -> dict[str, Any]:
    return {row.id: biggen_instance(row, model) for row in rows}


def biggen_instance(row: Asked, model: str) -> dict[str, Any]:
    criteria = {"criteria": "Is it right?", "score1_description": "No."}
    return {
        "id": row.id,
        "capability": "reasoning",
        "task": "sums",
        "instance_idx": 0,
        "system_prompt": "Be brief.",
        "input": row.prompt,
        "reference_answer": row.reference,
        "score_rubric": criteria,
        "response": row.answer,
        "response_model_name": model,
    }


def biggen_table(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    scores = {"human_score": 4, "prometheus_8x7b_score": [4, 5, -1]}
    return [{**biggen_instance(row, model), **scores} for row in rows]


def prometheus(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [
        {
            "instruction": row.prompt,
            "response": row.answer,
            "reference_answer": row.reference,
            "rubric": "Is it right?",
            "feedback": "It is.",
            "score": 4,
            "model": model,
        }
        for row in rows
    ]


def ragelo(rows: Sequence[Asked], model: str) -> list[dict[str, Any]]:
    return [{"qid": row.id, "agent": f" {model}", "answer": row.answer} for row in rows]


def ragelo_experiment(rows: Sequence[Asked], model: str) -> dict[str, Any]:
    queries = {
        row.id: {
            "qid": row.id,
            "query": row.prompt,
            "answers": {model: {"agent": model, "qid": row.id, "text": row.answer}},
        }
        for row in rows
    }
    return {"queries": queries, "experiment_name": "try", "elo_tournaments": []}


MADE: dict[str, Callable[[Sequence[Asked], str], Any]] = {
    "elo_exp's responses": own_responses,
    "alpaca_eval's outputs": alpaca_eval,
    "FastChat's answers": fastchat,
    "arena_hard's answers": arena_hard,
    "lm_eval": lm_eval,
    "inspect_ai log": inspect_ai,
    "OpenAI batch output": openai_batch,
    "conversations": conversations,
    "plain rows": plain,
    "ragas": ragas,
    "BiGGen-Bench": biggen,
    "BiGGen-Bench's table": biggen_table,
    "Prometheus": prometheus,
    "RAGElo's answers": ragelo,
    "RAGElo's experiment": ragelo_experiment,
}
# Those without prompts: prompts=FILE has them
BY_ID = {
    *("elo_exp's responses", "FastChat's answers", "OpenAI batch output"),
    "RAGElo's answers",
}


def write(path: Path, name: str, document: Any) -> Path:
    """A file as its program writes it: a log, an array, or lines."""
    if name == "inspect_ai log":
        return write_log(path, document)
    if name == "alpaca_eval's outputs":
        return write_whole(path, json.dumps(document))
    if isinstance(document, dict):
        return write_whole(path, json.dumps(document, indent=4))
    return write_jsonl(path, document)


def write_log(path: Path, log: dict[str, Any]) -> Path:
    """A log of inspect_ai: an .eval is a zip file, with a part for each sample."""
    if path.suffix != ".eval":
        return write_json(path, log)
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        archive.writestr("header.json", json.dumps({**log, "samples": None}))
        for sample in log["samples"]:
            part = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(part, json.dumps(sample))
    return write_whole(path, content.getvalue())


def made(folder: Path, name: str, says: str, model: str, **how: Any) -> Path:
    """A file of answers in a format, in the folder of its model."""
    rows = asked(says, **how)
    return write(folder / model / "answers.json", name, MADE[name](rows, model))


def bank(folder: Path, n: int = 24) -> Path:
    """The prompts that these files are answers to."""
    rows = [
        {"prompt_id": one.id, "text": one.prompt, "gold_answer": one.reference}
        for one in asked("", n)
    ]
    return write_table(folder / "bank.jsonl", rows)
