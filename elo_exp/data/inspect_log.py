"""Logs of Inspect: what one model made of one task, a sample for each item and epoch (src/inspect_ai/log/_log.py).

An .eval is a zip file with a part for each sample, deflated or, as Inspect writes it since 2026, in Zstandard; a log
as .json is one document. Parts are read one at a time, when they are asked for.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from backports.zstd.zipfile import BadZipFile, ZipFile

from elo_exp import files
from elo_exp.data import recorded_work, table_files
from elo_exp.data.field_names import natural_key
from elo_exp.data.recorded_work import Messages
from elo_exp.errors import FileError

# A log that is not yet closed has the second one
_HEADER_FILES = ("header.json", "_journal/start.json")
_SAMPLES_FOLDER = "samples/"
_SAMPLE_FOLDER = re.compile(r"_epoch_\d+/")
_MAX_PART_BYTES = 256_000_000
_CUT_STOP_REASONS = ("max_tokens", "model_length")
_ATTACHMENT_PREFIX = "attachment://"
# Values of scores that are words (src/inspect_ai/scorer/_metric.py)
_SCORE_WORDS = {
    "C": 1,
    "P": 0.5,
    "I": 0,
    "N": 0,
    "YES": 1,
    "TRUE": 1,
    "NO": 0,
    "FALSE": 0,
}
_READ_ERRORS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample as the log has it.

    place  of the log, in words
    row    its fields: those that older logs have under other names under the new ones
    """

    location: str
    row: Mapping[str, Any]

    @property
    def is_void(self) -> bool:
        """Whether it ended in an error, or somebody has declared it invalid."""
        return bool(self.row.get("error") or self.row.get("invalidation"))

    @property
    def scores(self) -> dict[str, Any]:
        """The value of each scorer by name, of one with several values each, by both names; none of a void sample.

        Words that stand for numbers are these numbers.
        """
        scores_by_name = dict[str, Any]()
        for name, score in (self.row.get("scores") or {}).items():
            value = score["value"]
            parts = value if isinstance(value, dict) else {"": value}
            for key, part in parts.items():
                number = _SCORE_WORDS.get(str(part).upper(), part)
                scores_by_name[f"{name} {key}".rstrip()] = number
        return {} if self.is_void else scores_by_name

    @cached_property
    def question(self) -> Messages:
        """What the sample asks. Raises FileError for messages that hold more than text."""
        with _convert_errors(self.location):
            input_messages = self.row["input"]
            if isinstance(input_messages, str):
                input_messages = [{"role": "user", "content": input_messages}]
            messages = recorded_work.parse_messages(
                map(self.resolve_attachments, input_messages), self.location
            )
        if not any(message.role == "user" for message in messages):
            raise FileError(f"{self.location} has no message of a user in its input.")
        return messages

    @cached_property
    def answer(self) -> Messages:
        """What followed. Raises FileError for messages that hold more than text."""
        with _convert_errors(self.location):
            rows = map(
                _insert_tool_error,
                map(self.resolve_attachments, self.row.get("messages") or ()),
            )
            messages = recorded_work.parse_messages(rows, self.location)
        return recorded_work.split_question(messages, self.question)[1]

    @property
    def finish_reason(self) -> str:
        """Why the answer ended: stop, length or tool_calls."""
        with _convert_errors(self.location):
            choices = (self.row.get("output") or {}).get("choices") or [{}]
            is_cut = choices[0].get("stop_reason") in _CUT_STOP_REASONS
        if is_cut or self.row.get("limit"):
            return "length"
        return recorded_work.finish_reason(self.answer)

    def effort(self, model: str) -> dict[str, Any]:
        """What the answer took, as far as the log says it, and the log's own scores.

        model  whose tokens are counted: a model that scores the answer takes some, too
        """
        counts: dict[str, Any] = {**recorded_work.count_effort(self.answer)}
        with _convert_errors(self.location):
            usage = self.row.get("model_usage") or {}
            if n := (usage.get(model) or {}).get("total_tokens"):
                counts["tokens"] = n
            for name in ("working_time", "total_time"):
                if self.row.get(name) is not None:
                    counts.setdefault("seconds", self.row[name])
            numbers = {
                k: x for k, x in self.scores.items() if recorded_work.is_number(x)
            }
        return {**counts, **({"scores": numbers} if numbers else {})}

    def resolve_attachments(self, value: Any) -> Any:
        """Put in the texts that stand among the attachments."""
        if isinstance(value, dict):
            return {
                name: self.resolve_attachments(item) for name, item in value.items()
            }
        if isinstance(value, list):
            return [self.resolve_attachments(item) for item in value]
        if not (isinstance(value, str) and value.startswith(_ATTACHMENT_PREFIX)):
            return value
        key = value.removeprefix(_ATTACHMENT_PREFIX)
        text = (self.row.get("attachments") or {}).get(key)
        if not isinstance(text, str):
            raise FileError(
                f"{self.location} names the attachment {key}, which is not in the log."
            )
        return text


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log's head.

    task, model  what was asked, and who answered, as the log names them
    status       success, or how the run ended; None: it did not end
    """

    path: Path
    task: Any
    model: Any
    status: Any
    _document: Mapping[str, Any] | None

    def samples(self) -> Iterator[Sample]:
        """Yield the samples, 2 before 10. Raises FileError for one that cannot be read."""
        if self._document is not None:
            for number, row in enumerate(self._document["samples"], start=1):
                location = f"{self.path}: sample {number}"
                yield _parse_sample(location, row)
            return
        with _open_archive(self.path) as archive:
            names = {
                name for name in archive.namelist() if name.startswith(_SAMPLES_FOLDER)
            }
            if any(map(_SAMPLE_FOLDER.search, names)):
                raise _build_conversion_error(
                    self.path, "has its samples in pieces, which cannot be read"
                )
            unpacked_bytes = 0
            for name in sorted(names, key=natural_key):
                if not name.endswith("/"):
                    row = _read_part(archive, self.path, name)
                    unpacked_bytes += archive.getinfo(name).file_size
                    files.check_unpacked(self.path, unpacked_bytes)
                    yield _parse_sample(f"{self.path}: {name}", row)


def is_inspect_log(path: Path) -> bool:
    """Whether a file is a log, by its keys. Raises FileError for one that cannot be read."""
    kind, keys = table_files.detect_shape(path), table_files.read_keys(path)
    return "samples" in keys and (kind == "zip" or "eval" in keys)


def read_log(path: Path) -> Log:
    """Read a log's head. Raises FileError for a file that is no log."""
    document = None
    if table_files.detect_shape(path) == "zip":
        with _open_archive(path) as archive:
            part_names = archive.namelist()
            name = next((name for name in _HEADER_FILES if name in part_names), None)
            if name is None:
                raise FileError.bad_file(
                    path, f"is not a log of Inspect: it lacks {_HEADER_FILES[0]}"
                )
            head = _read_part(archive, path, name)
    else:
        head = document = files.read_json(path)
    with _convert_errors(path):
        eval_fields = head["eval"]
        return Log(
            path=path,
            task=eval_fields["task"],
            model=eval_fields["model"],
            status=head.get("status"),
            _document=document,
        )


@contextmanager
def _open_archive(path: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(path) as archive:
            yield archive
    except (BadZipFile, OSError) as error:
        raise FileError.bad_file(path, f"cannot be read as zip ({error})") from None


def _read_part(archive: ZipFile, path: Path, name: str) -> Any:
    """Read a part of a zip file as JSON. No more of it is unpacked than its size says."""
    size = archive.getinfo(name).file_size
    if size > _MAX_PART_BYTES:
        raise FileError.bad_file(
            path,
            f"holds {name}, which unpacks to {size:,} bytes, more than the {_MAX_PART_BYTES:,} that a part of a log may have",
        )
    try:
        content = archive.read(name)
    except NotImplementedError:
        raise _build_conversion_error(
            path, "is a zip in a compression that this Python cannot read"
        ) from None
    except RuntimeError as error:  # a password, for one
        raise FileError.bad_file(path, f"cannot be read as zip ({error})") from None
    with _convert_errors(f"{path}: {name}"):
        return json.loads(content, object_pairs_hook=files.make_unique_object)


@contextmanager
def _convert_errors(location: object) -> Iterator[None]:
    """Turn what reading a part raises into a FileError that names its place."""
    try:
        yield
    except _READ_ERRORS as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = files.describe_json_error(error)
        elif isinstance(error, LookupError | AttributeError):
            reason = table_files.describe_row_error(error)
        words = " ".join(reason.split())
        raise FileError(
            f"{location} cannot be read as a log of Inspect: {words:.200}"
        ) from None


def _parse_sample(location: str, row: Any) -> Sample:
    """Return a sample; of an older log as a newer one has it, as Inspect does (EvalSample.migrate_deprecated)."""
    with _convert_errors(location):
        if not isinstance(row, dict):
            raise TypeError(f"{row!r:.40} is not an object")
        sample_row = dict(row)
        if sample_row.get("scores") is None and sample_row.get("score") is not None:
            sample_row["scores"] = {"score": sample_row["score"]}
        if "transcript" in sample_row:
            sample_row["attachments"] = sample_row["transcript"].get("content")
    return Sample(location=location, row=sample_row)


def _insert_tool_error(row: Any) -> Any:
    """Put the error of a failed tool, which the model was told, in place of the tool's words."""
    if not (isinstance(row, dict) and row.get("role") == "tool" and row.get("error")):
        return row
    return {**row, "content": row["error"]["message"]}


def _build_conversion_error(path: Path, problem: str) -> FileError:
    name = shlex.quote(str(path))
    command = f"  inspect log convert {name} --to json --output-dir DIR"
    return FileError.bad_file(path, problem, "Convert it:", command)
