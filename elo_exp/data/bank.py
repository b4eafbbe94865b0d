"""The prompt bank: load it, check it, and draw the pilot's stratified subset."""

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, StringConstraints

from elo_exp.data import (
    bank_formats,
    column_roles,
    field_names,
    inspect_log,
    table_files,
)
from elo_exp.data.answers import parse_reference
from elo_exp.data.column_roles import NO_COLUMNS, PROMPT_COLUMNS, Columns
from elo_exp.data.table_files import NamedTable, Row
from elo_exp.errors import FileError, SettingError
from elo_exp.files import check_sendable, read_texts, report_read_errors, validate
from elo_exp.records import Prompt, canonical_json, make_fingerprint

logger = logging.getLogger(__name__)

_FIELDS_HINT = (
    "Leave out an optional field that is empty. prompts/README.md lists the fields."
)
# A row of a bank of ours has these, and text or messages
_NATIVE_FIELDS = {"prompt_id", "source", "subject"}
# Source and subject of a prompt that has none
DEFAULT_SOURCE = "own"
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _PromptRow(BaseModel):
    prompt_id: _Text
    source: _Text
    subject: _Text
    expected_behavior: Literal["answer", "hedge", "abstain"] | None = None
    tags: list[str] = []


class _TextRow(_PromptRow):
    text: _Text
    gold_answer: _Text | None = None


class _ConversationRow(_PromptRow):
    """Messages and references are looked at by data.bank_formats."""

    messages: Annotated[list[Any], Field(min_length=1)]
    gold_answer: _Text | list[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class PromptBank:
    """A bank with its columns. The file is read once, when something of it is first asked for.

    history  of an arena's conversations, keep what model_a said, and ask the last turn
    columns  the column of each role, which the file need not have
    """

    path: Path
    history: bool = False
    columns: Columns = field(default_factory=dict)

    @cached_property
    def _rows(self) -> list[tuple[Prompt, Row]]:
        return _load_rows(self.path, history=self.history, columns=self.columns)

    @property
    def prompts(self) -> list[Prompt]:
        """Every prompt, in file order."""
        return [prompt for prompt, _ in self._rows]

    def has_column(self, column: str) -> bool:
        """Return whether a row has a column."""
        return any(column in row for _, row in self._rows)

    def read_column(self, column: str, *, setting: str = "stratum") -> dict[str, str]:
        """Return each prompt's value of a column, by prompt_id.

        setting  that names it, in a message

        Raises SettingError for a column that no row has, unless it is the usual one of clusters.
        """
        if not self.has_column(column):
            if (setting, column) == ("prompts.cluster", field_names.CLUSTER_FIELD):
                return {}
            column_names = ", ".join(
                sorted({name for _, row in self._rows for name in row})
            )
            raise SettingError.bad_value(
                setting,
                column,
                f"be a column of {self.path}",
                f"  Its columns: {column_names}",
            )
        return {
            prompt.prompt_id: str(row[column])
            for prompt, row in self._rows
            if row.get(column) is not None
        }


def load_bank(path: Path, *, history: bool = False) -> list[Prompt]:
    """Load every prompt of a bank, in file order.

    A row with prompt_id, source, subject, and text or messages, is read by these names. Others are in a form of
    data.bank_formats, or need a prompt, under any of the names of data.fields: its id is then found alike or made of
    its text, and source and subject are "own". Raises FileError naming file, line and remedy for the first bad row.

    history  of an arena's conversations, keep what model_a said, and ask the last turn
    """
    return [prompt for prompt, _ in _load_rows(path, history=history)]


def load_referenced_texts(path: Path, purpose: str) -> list[Prompt]:
    """Load the prompts that have a reference, for a simulation.

    purpose  the simulation, as an error names it
    Raises FileError for a conversation.
    """
    prompts = [prompt for prompt in load_bank(path) if prompt.gold_answer]
    for prompt in prompts:
        if prompt.messages:
            raise FileError.bad_file(
                path,
                f"has messages at prompt {prompt.prompt_id}",
                f"{purpose} needs prompts of one text: conversations are not simulated.",
            )
    return prompts


@report_read_errors
def _load_rows(
    path: Path, *, history: bool = False, columns: Columns = NO_COLUMNS
) -> list[tuple[Prompt, Row]]:
    """Return every prompt with its row."""
    prompt_rows: list[tuple[Prompt, Row]] = []
    repeated_texts = []
    locations: dict[str, str] = {}
    texts: dict[str, str] = {}
    for location, row in _read_named_rows(path, columns):
        prompt = _parse_prompt(row, location, history=history)
        if (earlier := locations.setdefault(prompt.prompt_id, location)) != location:
            has_no_id = (
                field_names.first_value(row, (*field_names.ID, "custom_id")) is None
            )
            raise FileError(
                f"{location} repeats the prompt of {earlier}. Remove one of them, or give each a prompt_id."
                if has_no_id
                else f"{location} repeats the prompt_id {prompt.prompt_id} of {earlier}. Give each prompt its own."
            )
        first_id = texts.setdefault(prompt.text.strip(), prompt.prompt_id)
        if first_id != prompt.prompt_id:
            repeated_texts.append(f"{prompt.prompt_id!r} that of {first_id!r}")
        prompt_rows.append((prompt, row))
    if not prompt_rows:
        raise FileError.bad_file(
            path, "holds no prompts", "Write one prompt per line, as a JSON object."
        )
    if repeated_texts:
        _warn_once(
            f"{path}: {len(repeated_texts)} of {len(prompt_rows)} prompts repeat the text of another "
            f"({repeated_texts[0]}). They count as one observation."
        )
    return prompt_rows


def _parse_prompt(row: Row, location: str, *, history: bool) -> Prompt:
    if {"text", "messages"} <= {name for name in row if row[name] is not None}:
        raise FileError.bad_file(
            location, "has both text and messages", "Leave one of them out."
        )
    native_row = dict(row)
    if not row.keys() >= _NATIVE_FIELDS or not row.keys() & {"text", "messages"}:
        recognised_row = bank_formats.parse_row(row, location, history=history)
        native_row = recognised_row or _translate_row(row, location)
    if "messages" not in native_row:
        validate(_TextRow, native_row, location, _FIELDS_HINT)
        return Prompt.from_dict(native_row)
    if "prompt_id" not in native_row:
        native_row["prompt_id"] = _hash_messages(native_row["messages"])
    native_row = {"source": DEFAULT_SOURCE, "subject": DEFAULT_SOURCE, **native_row}
    validate(_ConversationRow, native_row, location, _FIELDS_HINT)
    return bank_formats.parse_conversation(native_row, location)


def _hash_messages(messages: Sequence[Any]) -> str:
    """Return an id for messages that have none; one text has the same id with and without messages."""
    match messages:
        case [{"role": "user", "content": str(text)}]:
            return hash_text(text)
    return bank_formats.hash_messages(messages)


def _read_named_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a bank under our names, if the command names its columns."""
    present = column_roles.select_present([path], columns).get(path, NO_COLUMNS)
    source = column_roles.name_columns(path, present, PROMPT_COLUMNS)
    for location, row in _read_rows(path):
        yield location, source.rename(row)[0] if isinstance(source, NamedTable) else row


def _read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a bank: JSON lines or, if its name does not end so, any table or the samples of a log."""
    if ".jsonl" in path.suffixes:
        return read_texts(path)
    if inspect_log.is_inspect_log(path):
        return check_sendable(_read_samples(path))
    if table_files.detect_shape(path) in ("lines", "object"):
        return read_texts(path)
    return check_sendable(
        (
            location,
            {name: value for name, value in row.items() if value not in (None, "")},
        )
        for location, row in table_files.read_rows(path)
    )


def _read_samples(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the questions of a log of Inspect; metadata are columns, unless they are lists or objects."""
    log = inspect_log.read_log(path)
    seen_ids = set[str]()
    for sample in log.samples():
        key = str(sample.row.get("id"))
        if key in seen_ids:  # a later epoch
            continue
        seen_ids.add(key)
        metadata = sample.row.get("metadata") or {}
        scalars = {
            k: x for k, x in metadata.items() if isinstance(x, str | int | float)
        }
        reference = parse_reference(sample.row.get("target"))
        yield (
            sample.location,
            {
                **{k: x for k, x in scalars.items() if k not in ("text", "tags")},
                "prompt_id": key,
                "source": str(log.task),
                "subject": DEFAULT_SOURCE,
                "messages": [message.to_dict() for message in sample.question],
                "expected_behavior": None,
                "gold_answer": reference,
            },
        )


def _translate_row(row: Row, location: str) -> dict[str, Any]:
    """Return a row written for another program under the names of our banks."""
    text = row["text"] if "text" in row else field_names.find_prompt(row)
    if text is None:
        table_files.refuse_trace(location, row.keys())
        raise FileError.bad_file(
            location,
            "has no prompt",
            f"Give it a column called {', '.join(field_names.PROMPT[:-1])} or {field_names.PROMPT[-1]}.",
        )
    key = field_names.first_value(row, field_names.ID)
    if key is None:
        key = hash_text(text) if isinstance(text, str) else None
    native_row = {
        "prompt_id": str(key) if isinstance(key, int) else key,
        "source": field_names.first_value(row, field_names.SOURCE) or DEFAULT_SOURCE,
        "subject": field_names.first_value(row, ("subject",)) or DEFAULT_SOURCE,
        "text": text,
        "gold_answer": _find_reference(row),
        "expected_behavior": row.get("expected_behavior"),
        "tags": row.get("tags") or [],
    }
    return {name: value for name, value in native_row.items() if value is not None}


def _find_reference(row: Row) -> Any:
    """Return the reference of a row: of several turns that of the first; a number as text."""
    reference = field_names.first_value(row, field_names.REFERENCE)
    if isinstance(reference, list):
        reference = (
            reference[0] or None if len(reference) == 1 or "turns" in row else None
        )
    return str(reference) if isinstance(reference, int | float) else reference


def hash_text(text: str) -> str:
    """Return the id of a prompt that has none: of its text, whatever the white space."""
    return hashlib.sha256(field_names.fold_spaces(text).encode()).hexdigest()[:12]


@cache
def _warn_once(line: str) -> None:
    """Once in a command, in which several parts read the bank."""
    logger.warning("warning: %s", line)


def merge_clusters(
    prompts: Sequence[Prompt], named_clusters: Mapping[str, str]
) -> dict[str, str]:
    """Return the cluster of each prompt that belongs with others, by prompt_id: a named one, or that of its text.

    named_clusters  by prompt_id, as `strata` returns a column

    Prompts of one text, whatever its white space, are one cluster, and so are those of named clusters that share a text.
    """
    ids_by_text = defaultdict[str, list[str]](list)
    for prompt in prompts:
        key = field_names.fold_spaces(canonical_json(prompt.content))
        if not prompt.messages:
            key = field_names.fold_spaces(prompt.text)
        if prompt.prompt_id not in ids_by_text[key]:
            ids_by_text[key].append(prompt.prompt_id)
    cluster_of = {name: str(group) for name, group in named_clusters.items()}
    for same_text_ids in ids_by_text.values():
        if len(same_text_ids) > 1:
            cluster = next(
                (cluster_of[name] for name in same_text_ids if name in cluster_of),
                same_text_ids[0],
            )
            merged_clusters = {
                cluster_of[name] for name in same_text_ids if name in cluster_of
            }
            cluster_of |= {
                name: cluster
                for name, group in cluster_of.items()
                if group in merged_clusters
            }
            cluster_of |= dict.fromkeys(same_text_ids, cluster)
    return cluster_of


def sample_strata(
    prompts: Sequence[Prompt], strata: Mapping[str, int] | None, *, seed: int
) -> list[Prompt]:
    """Sample so many prompts of each source, in bank order; the whole bank without strata.

    The strata are drawn one after the other from one generator, so that the subset depends on their
    order and on `seed` alone. Raises SettingError where a stratum has too few.
    """
    if not strata:
        return list(prompts)
    rng = np.random.default_rng(seed)
    chosen_indices: set[int] = set()
    for source, count in strata.items():
        stratum = [i for i, prompt in enumerate(prompts) if prompt.source == source]
        if len(stratum) < count:
            sizes = Counter(p.source for p in prompts).items()
            raise SettingError(
                f"mode.strata asks for {count} prompts of source {source}, and the bank has {len(stratum)}. With "
                "prompts of your own, write:",
                f"  mode.strata={{}} prompts.n={sum(strata.values())}",
                f"  (prompts by source: {', '.join(f'{name} {n}' for name, n in sizes)})",
            )
        chosen_indices.update(rng.choice(stratum, size=count, replace=False).tolist())
    return [prompt for i, prompt in enumerate(prompts) if i in chosen_indices]


def sample_prompts(prompts: Sequence[Prompt], n: int | None) -> list[Prompt]:
    """Take so many prompts, drawn by a hash of their ids, in their order; all where n is None.

    Of a larger n those of a smaller one are part: more later pay for the new ones only.
    Raises SettingError for more than there are.
    """
    if n is not None and n > len(prompts):
        raise SettingError.bad_value(
            "prompts.n", n, f"be at most {len(prompts):,}, the number of prompts"
        )
    sample = sorted(prompts, key=lambda prompt: make_fingerprint(prompt.prompt_id))[:n]
    chosen_ids = {prompt.prompt_id for prompt in sample}
    return [prompt for prompt in prompts if prompt.prompt_id in chosen_ids]
