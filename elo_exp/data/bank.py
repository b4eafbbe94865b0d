"""The prompt bank: load it, check it, and draw the pilot's stratified subset."""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, StringConstraints

from elo_exp.data import bank_formats, fields, inspect_log, tables
from elo_exp.data.answers import reference_of
from elo_exp.data.tables import Row
from elo_exp.files import checked, foreign, read_texts, sendable
from elo_exp.records import Prompt, UserError, canonical_json, fingerprint

logger = logging.getLogger(__name__)

_FIELDS = (
    " Leave out an optional field that is empty; prompts/README.md has the fields."
)
_NAMES = {
    "prompt_id",
    "source",
    "subject",
}  # of a row of a bank of ours, with text or messages
OWN = "own"  # source and subject of a prompt that has none
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _About(BaseModel):
    prompt_id: _Text
    source: _Text
    subject: _Text
    expected_behavior: Literal["answer", "hedge", "abstain"] | None = None
    tags: list[str] = []


class _Row(_About):
    text: _Text
    gold_answer: _Text | None = None


class _Conversation(_About):
    """Messages and references are looked at by data.bank_formats."""

    messages: Annotated[list[Any], Field(min_length=1)]
    gold_answer: _Text | list[Any] | None = None


def load(path: Path, *, history: bool = False) -> list[Prompt]:
    """Load every prompt of a bank, in file order.

    A row with prompt_id, source, subject, and text or messages, is read by these names. Others are in a form of
    data.bank_formats, or need a prompt, under any of the names of data.fields: its id is then found alike or made of
    its text, and source and subject are "own". Raises UserError naming file, line and remedy for the first bad row.

    history  of an arena's conversations, keep what model_a said, and ask the last turn
    """
    return [prompt for prompt, _ in _rows(path, history=history)]


def texts(path: Path, what: str) -> list[Prompt]:
    """Load the prompts that have a reference, for a simulation.

    what  is simulated. Raises UserError for a conversation.
    """
    found = [prompt for prompt in load(path) if prompt.gold_answer]
    for prompt in found:
        if prompt.messages:
            raise UserError(
                f"{what}: prompt {prompt.prompt_id} of {path} has messages. Expected texts alone: "
                "conversations are not simulated."
            )
    return found


@foreign
def _rows(path: Path, *, history: bool = False) -> list[tuple[Prompt, Row]]:
    """Every prompt with its row."""
    found: list[tuple[Prompt, Row]] = []
    again = []
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for place, row in _texts(path):
        prompt = _prompt(row, place, history=history)
        if (earlier := places.setdefault(prompt.prompt_id, place)) != place:
            is_made = fields.first(row, (*fields.ID, "custom_id")) is None
            raise UserError(
                f"{place}: the prompt of {earlier} again. Remove one of them, or give each a "
                "prompt_id."
                if is_made
                else f"{place}: prompt_id {prompt.prompt_id!r} is already at {earlier}. Give each "
                "its own."
            )
        first = texts.setdefault(prompt.text.strip(), prompt.prompt_id)
        if first != prompt.prompt_id:
            again.append(f"{prompt.prompt_id!r} that of {first!r}")
        found.append((prompt, row))
    if not found:
        raise UserError(f"{path}: has no prompts. Expected one JSON object a line.")
    if again:
        _warn_once(
            f"{path}: {len(again)} of {len(found)} prompts repeat the text of another "
            f"({again[0]}). They count as one observation."
        )
    return found


def _prompt(row: Row, place: str, *, history: bool) -> Prompt:
    if {"text", "messages"} <= {name for name in row if row[name] is not None}:
        raise UserError(f"{place}: has text and messages. Give one.")
    own = dict(row)
    if not row.keys() >= _NAMES or not row.keys() & {"text", "messages"}:
        known = bank_formats.fields_of(row, place, history=history)
        own = known or _in_other_names(row, place)
    if "messages" not in own:
        checked(_Row, own, place, _FIELDS)
        return Prompt.from_dict(own)
    if "prompt_id" not in own:
        own["prompt_id"] = _made(own["messages"])
    own = {"source": OWN, "subject": OWN, **own}
    checked(_Conversation, own, place, _FIELDS)
    return bank_formats.conversation(own, place)


def _made(messages: Sequence[Any]) -> str:
    """The id of messages that have none: of one text, that of the text."""
    match messages:
        case [{"role": "user", "content": str(text)}]:
            return hashed(text)
    return bank_formats.hashed(messages)


def _texts(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a bank: JSON lines or, where it is none by its name, any table, or the samples of a log."""
    if ".jsonl" in path.suffixes:
        return read_texts(path)
    if inspect_log.is_one(path):
        return sendable(_samples(path))
    if tables.shape(path) in ("lines", "object"):
        return read_texts(path)
    return sendable(
        (place, {name: value for name, value in row.items() if value not in (None, "")})
        for place, row in tables.rows(path)
    )


def _samples(path: Path) -> Iterator[tuple[str, Row]]:
    """The questions of a log of Inspect; what its metadata says of one is a column, unless it is a list or an object."""
    log = inspect_log.read(path)
    seen = set[str]()
    for sample in log.samples():
        key = str(sample.row.get("id"))
        if key in seen:  # a later epoch
            continue
        seen.add(key)
        about = sample.row.get("metadata") or {}
        given = {k: x for k, x in about.items() if isinstance(x, str | int | float)}
        reference = reference_of(sample.row.get("target"))
        yield (
            sample.place,
            {
                **{k: x for k, x in given.items() if k not in ("text", "tags")},
                "prompt_id": key,
                "source": str(log.task),
                "subject": OWN,
                "messages": [message.to_dict() for message in sample.question],
                "expected_behavior": None,
                "gold_answer": reference,
            },
        )


def _in_other_names(row: Row, place: str) -> dict[str, Any]:
    """Return a row of a bank that was written for another program."""
    text = row["text"] if "text" in row else fields.prompt_of(row)
    if text is None:
        tables.refuse_trace(place, row.keys())
        raise UserError(
            f"{place}: no prompt: none of {', '.join(fields.PROMPT)}. Expected one of them, with a "
            "text."
        )
    key = fields.first(row, fields.ID)
    if key is None:
        key = hashed(text) if isinstance(text, str) else None
    found = {
        "prompt_id": str(key) if isinstance(key, int) else key,
        "source": fields.first(row, fields.SOURCE) or OWN,
        "subject": fields.first(row, ("subject",)) or OWN,
        "text": text,
        "gold_answer": _reference(row),
        "expected_behavior": row.get("expected_behavior"),
        "tags": row.get("tags") or [],
    }
    return {name: value for name, value in found.items() if value is not None}


def _reference(row: Row) -> Any:
    """Of several turns that of the first; a number as text."""
    found = fields.first(row, fields.REFERENCE)
    if isinstance(found, list):
        found = found[0] or None if len(found) == 1 or "turns" in row else None
    return str(found) if isinstance(found, int | float) else found


def hashed(text: str) -> str:
    """Return the id of a prompt that has none: of its text, whatever the white space."""
    return hashlib.sha256(fields.folded(text).encode()).hexdigest()[:12]


@cache
def _warn_once(line: str) -> None:
    """Once in a command, in which several parts read the bank."""
    logger.warning("warning: %s", line)


def strata(path: Path, column: str, *, setting: str = "stratum") -> dict[str, str]:
    """Return each prompt's value of a column, by prompt_id.

    setting  that names it, in a message

    Raises UserError for a column that no row has, unless it is the usual one of clusters.
    """
    rows = _rows(path)
    if not any(column in row for _, row in rows):
        if (setting, column) == ("prompts.cluster", fields.CLUSTER):
            return {}
        known = ", ".join(sorted({name for _, row in rows for name in row}))
        raise UserError(
            f"{setting}: found no column {column!r} in {path}. Choose one of {known}."
        )
    return {
        prompt.prompt_id: str(row[column])
        for prompt, row in rows
        if row.get(column) is not None
    }


def has_column(path: Path, column: str) -> bool:
    """Return whether a row of the bank has a column."""
    return any(column in row for _, row in _rows(path))


def clusters(prompts: Sequence[Prompt], named: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster of each prompt that belongs with others, by prompt_id: a named one, or that of its text.

    named  by prompt_id, as `strata` returns a column

    Prompts of one text, whatever its white space, are one cluster, and so are those of named clusters that share a text.
    """
    texts = defaultdict[str, list[str]](list)
    for prompt in prompts:
        key = fields.folded(canonical_json(prompt.content))
        if not prompt.messages:
            key = fields.folded(prompt.text)
        if prompt.prompt_id not in texts[key]:
            texts[key].append(prompt.prompt_id)
    found = {name: str(group) for name, group in named.items()}
    for same in texts.values():
        if len(same) > 1:
            first = next((found[name] for name in same if name in found), same[0])
            merged = {found[name] for name in same if name in found}
            found |= {name: first for name, group in found.items() if group in merged}
            found |= dict.fromkeys(same, first)
    return found


def select(
    prompts: Sequence[Prompt], strata: Mapping[str, int] | None, *, seed: int
) -> list[Prompt]:
    """Sample so many prompts of each source, in bank order; the whole bank without strata.

    The strata are drawn one after the other from one generator, so that the subset depends on their
    order and on `seed` alone. Raises UserError where a stratum has too few.
    """
    if not strata:
        return list(prompts)
    rng = np.random.default_rng(seed)
    chosen: set[int] = set()
    for source, count in strata.items():
        stratum = [i for i, prompt in enumerate(prompts) if prompt.source == source]
        if len(stratum) < count:
            sizes = Counter(p.source for p in prompts).items()
            raise UserError(
                f"mode.strata: found {count} prompts of source {source!r}. Expected at most "
                f"{len(stratum)}: the bank has {', '.join(f'{name} {n}' for name, n in sizes)}. Of a "
                f"bank of your own, mode.strata={{}} prompts.n={sum(strata.values())} takes so many."
            )
        chosen.update(rng.choice(stratum, size=count, replace=False).tolist())
    return [prompt for i, prompt in enumerate(prompts) if i in chosen]


def draw(prompts: Sequence[Prompt], n: int | None) -> list[Prompt]:
    """Take so many prompts, drawn by a hash of their ids, in their order; all where n is None.

    Of a larger n those of a smaller one are part: more later pay for the new ones only.
    Raises UserError for more than there are.
    """
    if n is not None and n > len(prompts):
        raise UserError(
            f"prompts.n: found {n:,}. Expected at most {len(prompts):,}, as many as there are."
        )
    chosen = sorted(prompts, key=lambda prompt: fingerprint(prompt.prompt_id))[:n]
    taken = {prompt.prompt_id for prompt in chosen}
    return [prompt for prompt in prompts if prompt.prompt_id in taken]
