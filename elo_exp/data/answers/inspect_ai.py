"""inspect_ai: a log of one model on one task, .eval or .json (src/inspect_ai/log/_log.py)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elo_exp.data import inspect_log
from elo_exp.data.answers import (
    Answer,
    Format,
    MalformedError,
    malformed,
    name,
    reference_of,
    said,
    text,
)
from elo_exp.data.inspect_log import Sample

_ATTACHED = "attachment://"


def answers(path: Path) -> Iterator[Answer]:
    """Yield the answer of the first epoch of each sample; none where the sample is void."""
    log = inspect_log.read(path)
    model = name(log.model, "eval.model")
    if model is None:
        raise MalformedError("eval.model is missing. Expected a name.")
    first: dict[str, int] = {}
    found = []
    for sample in log.samples():
        with malformed(sample.place, "inspect_ai's log"):
            key, epoch = name(sample.row["id"], "id"), sample.row["epoch"]
            if key is None or not isinstance(epoch, int):
                raise MalformedError(f"is epoch {epoch!r} of sample {key!r}.")
            first[key] = min(first.get(key, epoch), epoch)
            found.append((key, epoch, sample.place, _fields(sample)))
    several = ["first epoch"] if len({epoch for _, epoch, *_ in found}) > 1 else []
    for key, epoch, place, fields in found:
        if epoch == first[key]:
            notes = (*several, *fields["notes"])
            yield Answer(
                place=place, id=key, entrant=model, **{**fields, "notes": notes}
            )


def _fields(sample: Sample) -> Mapping[str, Any]:
    row = sample.row
    asked, attached = row["input"], row.get("attachments") or {}
    notes = []
    if not isinstance(asked, str):
        turns = [turn["content"] for turn in asked if turn["role"] == "user"]
        if not turns:
            raise MalformedError("input has no message of a user.")
        notes += ["last turn"] if len(turns) > 1 else []
        asked = said(turns[-1], "input")
    choices = (row.get("output") or {}).get("choices") or []
    answered = None
    if choices and not sample.is_void:
        content = choices[0]["message"]["content"]
        answered = _whole(said(content, "output"), attached)
        if isinstance(content, list) and sum("text" in part for part in content) > 1:
            notes.append("several parts, joined,")
    notes += ["first choice"] if len(choices) > 1 else []
    return {
        "prompt": _whole(asked, attached),
        "text": answered,
        "reference": reference_of(row.get("target")),
        "is_cut": bool(choices) and choices[0].get("stop_reason") == "max_tokens",
        "notes": tuple(notes),
    }


def _whole(content: str, attached: Mapping[str, Any]) -> str:
    """Return a text, or the attachment that it stands for."""
    if not content.startswith(_ATTACHED):
        return content
    key = content.removeprefix(_ATTACHED)
    if key not in attached:
        raise MalformedError(f"attachment {key!r} is not in the log.")
    return text(attached[key], "an attachment")


FORMATS = (
    Format(
        name="inspect_ai log",
        shapes=("zip", "object"),
        required=("samples",),
        answers=answers,
    ),
)
