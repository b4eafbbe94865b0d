"""lm-evaluation-harness: samples of one model on one task, MODEL/samples_TASK_TIME.jsonl.

github.com/EleutherAI/lm-evaluation-harness, lm_eval/evaluator.py and loggers/evaluation_tracker.py
"""

from collections.abc import Mapping
from typing import Any

from elo_exp.data import field_names
from elo_exp.data.answers import (
    Format,
    MalformedError,
    parse_name,
    parse_reference,
    require_list,
    require_text,
)
from elo_exp.data.table_files import Row


def answer(row: Row) -> Mapping[str, Any]:
    """The request's context is the prompt; a row of each filter has one and the same answer in `resps`."""
    arguments = row["arguments"]
    requests = require_list(
        list(arguments.values()) if isinstance(arguments, dict) else arguments,
        "arguments",
    )
    request = requests[0]
    request_arguments = list(request.values()) if isinstance(request, dict) else request
    context = require_list(request_arguments, "the first of the arguments")[0]
    responses = require_list(row.get("resps") or [row["filtered_resps"]], "resps")
    answers = require_list(responses[0], "resps")
    if len(requests) > 1 or not isinstance(answers[0], str):
        raise MalformedError(
            "resps holds log-likelihoods of options, and no answer that could be judged. To rate its scores: experiment=rate."
        )
    doc = parse_name(row["doc_id"], "doc_id")
    if doc is None:
        raise MalformedError("doc_id must be a number; got null.")
    content_hash = parse_name(row.get("doc_hash"), "doc_hash")
    question = field_names.find_prompt(row["doc"]) if content_hash else None
    return {
        "id": f"{doc} {content_hash or ''}".strip(),
        "question": question if isinstance(question, str) else None,
        "prompt": require_text(context, "the first argument"),
        "text": answers[0],
        "reference": parse_reference(row["target"]),
        "notes": ("first of several answers",) if len(answers) > 1 else (),
    }


FORMATS = (
    Format(
        name="lm_eval",
        shapes=("lines",),
        required=("doc_id", "doc", "target", "filtered_resps", "arguments"),
        answer=answer,
        in_folder=True,
    ),
)
