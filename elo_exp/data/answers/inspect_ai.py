"""inspect_ai: a log of one model on one task, .eval or .json (src/inspect_ai/log/_log.py)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elo_exp.data import conversations, inspect_log, recorded_work
from elo_exp.data.answers import (
    Answer,
    Format,
    MalformedError,
    convert_row_errors,
    message_text,
    parse_name,
    parse_reference,
    short_cells,
)
from elo_exp.data.inspect_log import Sample
from elo_exp.errors import format_value


def answers(path: Path) -> Iterator[Answer]:
    """Yield the answer of each epoch of each sample; none where the sample is void.

    Where a sample was answered by more than words, the log is of an agent: what its answers took is
    recorded.
    """
    log = inspect_log.read_log(path)
    model = parse_name(log.model, "eval.model")
    if model is None:
        raise MalformedError("eval.model must be a name; got null.")
    all_fields = []
    for sample in log.samples():
        with convert_row_errors(sample.location, "inspect_ai's log"):
            all_fields.append(_read_fields(sample, model))
    is_agent = any(fields["messages"] for fields in all_fields)
    for fields in all_fields:
        recorded = fields.pop("recorded")
        yield Answer(entrant=model, recorded=recorded if is_agent else {}, **fields)


def _read_fields(sample: Sample, model: str) -> dict[str, Any]:
    key, epoch = parse_name(sample.row["id"], "id"), sample.row["epoch"]
    if key is None or not isinstance(epoch, int) or epoch < 1:
        raise MalformedError(
            f"epoch must be a whole number of 1 or more, and id a name; got {format_value(epoch)} and {format_value(key)}."
        )
    question = recorded_work.drop_system(sample.question)
    recorded = {
        "finish_reason": sample.finish_reason,
        "diagnostics": sample.effort(model),
    }
    messages = () if sample.is_void else sample.answer
    text, notes = None, list[str]()
    if recorded_work.is_words(messages):
        text, notes = _read_words(sample, conversations.final_answer(messages) or None)
        messages = ()
    elif not sample.is_void:
        text = conversations.final_answer(messages)
    is_text = len(question) == 1
    return {
        "location": sample.location,
        "columns": short_cells(sample.row.get("metadata") or {}),
        "id": key,
        "draw_idx": epoch - 1,
        "prompt": question[0].content
        if is_text
        else conversations.transcript(question),
        "question_messages": () if is_text else question,
        "text": text,
        "messages": messages,
        "reference": parse_reference(sample.row.get("target")),
        "is_cut": recorded["finish_reason"] == "length",
        "is_failed": text is None and sample.is_void,
        "notes": tuple(notes),
        "recorded": recorded,
    }


def _read_words(sample: Sample, last: str | None) -> tuple[str | None, list[str]]:
    """Return the words of an answer that has no more, and what was left aside.

    last  the last message, for a log without the model's output
    """
    choices = (sample.row.get("output") or {}).get("choices") or []
    notes = ["first choice"] if len(choices) > 1 else []
    if not choices or sample.is_void:
        return last, notes
    content = sample.resolve_attachments(choices[0]["message"]["content"])
    if isinstance(content, list) and sum("text" in part for part in content) > 1:
        notes.append("several parts, joined,")
    return message_text(content, "output"), notes


FORMATS = (
    Format(
        name="inspect_ai log",
        shapes=("zip", "object"),
        required=("samples",),
        answers=answers,
    ),
)
