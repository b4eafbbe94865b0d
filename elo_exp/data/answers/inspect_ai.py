"""inspect_ai: a log of one model on one task, .eval or .json (src/inspect_ai/log/_log.py)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from elo_exp import files
from elo_exp.data import tables
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

_ATTACHED = "attachment://"


def answers(path: Path) -> Iterator[Answer]:
    """Yield the answer of the first epoch of each sample; none where it ended in an error."""
    if tables.shape(path) == "zip":
        with ZipFile(path) as archive:
            names = archive.namelist()
            head = next(
                name for name in ("header.json", "_journal/start.json") if name in names
            )
            log = _read(archive, head)
            parts = sorted(name for name in names if name.startswith("samples/"))
            samples = [(f"{path}: {name}", _read(archive, name)) for name in parts]
    else:
        log = files.read_json(path)
        numbered = enumerate(log["samples"], start=1)
        samples = [(f"{path}: sample {n}", sample) for n, sample in numbered]
    model = name(log["eval"]["model"], "eval.model")
    if model is None:
        raise MalformedError("eval.model is missing. Expected a name.")
    first: dict[str, int] = {}
    found = []
    for place, sample in samples:
        with malformed(place, "inspect_ai's log"):
            key, epoch = name(sample["id"], "id"), sample["epoch"]
            if key is None or not isinstance(epoch, int):
                raise MalformedError(f"is epoch {epoch!r} of sample {key!r}.")
            first[key] = min(first.get(key, epoch), epoch)
            found.append((key, epoch, place, sample))
    n_epochs = len({epoch for _, epoch, _, _ in found})
    for key, epoch, place, sample in found:
        if epoch == first[key]:
            with malformed(place, "inspect_ai's log"):
                fields = _fields(sample, n_epochs)
            yield Answer(place=place, id=key, entrant=model, **fields)


def _read(archive: ZipFile, part: str) -> Any:
    return json.loads(archive.read(part), object_pairs_hook=files.unique_keys)


def _fields(sample: Any, n_epochs: int) -> Mapping[str, Any]:
    asked, attached = sample["input"], sample.get("attachments") or {}
    notes = ["first epoch"] if n_epochs > 1 else []
    if not isinstance(asked, str):
        turns = [turn["content"] for turn in asked if turn["role"] == "user"]
        if not turns:
            raise MalformedError("input has no message of a user.")
        notes += ["last turn"] if len(turns) > 1 else []
        asked = said(turns[-1], "input")
    choices = (sample.get("output") or {}).get("choices") or []
    answered = None
    if choices and not sample.get("error"):
        content = choices[0]["message"]["content"]
        answered = _whole(said(content, "output"), attached)
        if isinstance(content, list) and sum("text" in part for part in content) > 1:
            notes.append("several parts, joined,")
    notes += ["first choice"] if len(choices) > 1 else []
    return {
        "prompt": _whole(asked, attached),
        "text": answered,
        "reference": reference_of(sample.get("target")),
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
