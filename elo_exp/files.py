"""Files that are read with their line numbers and written whole."""

import codecs
import csv
import errno
import gzip
import hashlib
import io
import json
import re
import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, partial, wraps
from itertools import chain
from pathlib import Path
from typing import IO, Any, ParamSpec, TextIO, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.masking import current_mask
from elo_exp.requirements import describe_requirement, find_type

P = ParamSpec("P")
T = TypeVar("T")

_make_adapter = cache(TypeAdapter)
# In names of files, on any system
_FORBIDDEN_NAME_CHARACTERS = re.compile(r'[\x00-\x1f/\\:*?"<>|%]')
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
_COMPRESSION_BY_FIRST_BYTES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ONE_OBJECT_A_LINE = "Each line must hold one complete JSON object."
# What Python's json module says, in plain words
_JSON_FAULTS = {
    "Expecting value": "a value is missing",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Illegal trailing comma before end of object": "a comma is too many",
    "Illegal trailing comma before end of array": "a comma is too many",
    "Unterminated string starting at": "a text has no closing quote: it begins",
    "Invalid control character at": "a text holds a line break or another control character",
    "Invalid \\escape": "a backslash is followed by a character that it cannot escape",
    "Invalid \\uXXXX escape": "\\u is not followed by four hexadecimal digits",
    "Extra data": "there is more text after the value,",
}
# A longer line is no row.
_MAX_LINE_CHARACTERS = 100_000_000
_BLOCK_BYTES = 2**20
_MAX_WHOLE_FILE_BYTES = 1_000_000_000
# A file may unpack to either, whichever is more.
_UNPACKED_ALLOWANCE_BYTES, _MAX_UNPACK_RATIO = 256_000_000, 200
_MAX_BLANK_MB = 16
# Too few for a number that Python does not parse
_MAX_SHORT_LINE_CHARACTERS = 4000
# With or without the mark that some programs put first
_TEXT_ENCODING = "utf-8-sig"


# What to do about an error of the system
_ADVICE_BY_NUMBERS = {
    (
        errno.ENOSPC,
        errno.EDQUOT,
    ): "Free some space, then run the same command again. What is in the store stays there.",
    (
        errno.EFBIG,
    ): "The file is as large as a file may be here: raise the limit (ulimit -f, or that of the file system). "
    "What is in the store stays there. Then run the same command again.",
    (
        errno.EROFS,
    ): "The file system is read-only: mount it for writing, or choose another folder.",
    (errno.EACCES, errno.EPERM): "Check who may read and write there.",
    (
        errno.EIO,
    ): "The disk reports an error: see the log of the system, and copy what matters to another disk.",
    (
        errno.EMFILE,
        errno.ENFILE,
    ): "Too many files are open: raise the limit (ulimit -n), or run fewer jobs at once.",
    (
        errno.EBUSY,
        errno.ETXTBSY,
    ): "Another program holds it: wait until it ends, or end it.",
}
_ADVICE_BY_NUMBER = {
    n: advice for numbers, advice in _ADVICE_BY_NUMBERS.items() for n in numbers
}


_is_writing_forbidden = ContextVar("_is_writing_forbidden", default=False)


def errno_advice(number: int | None) -> str | None:
    """Return what to do about an error of the system, by its number; None for an error that explains itself."""
    return _ADVICE_BY_NUMBER.get(number or 0)


@contextmanager
def forbid_writing() -> Iterator[None]:
    """Let nothing be written, not even caches, in this thread: `may_write` is False, and `write_whole` refuses."""
    token = _is_writing_forbidden.set(True)
    try:
        yield
    finally:
        _is_writing_forbidden.reset(token)


def may_write() -> bool:
    """Whether files may be written: a plan only reads."""
    return not _is_writing_forbidden.get()


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_whole(
    path: Path, content: bytes | Iterable[str | bytes], *, keeps_secrets: bool = False
) -> Path:
    """Write bytes or text, also in blocks, whole or not at all: a temporary file, then a rename.

    Secrets in text are masked. A block holds whole lines.

    keeps_secrets  leave them: the text is masked already, or it is data that is read back as it was
    """
    assert may_write(), f"a plan would write {path}"
    mask = current_mask()
    is_page = path.suffix == ".html"
    mask_text = mask.page if is_page else mask.text
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = [content] if isinstance(content, str | bytes) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # its mode is the umask's
            for block in blocks:
                if isinstance(block, str):
                    file.write(_encode(block if keeps_secrets else mask_text(block)))
                else:
                    file.write(block)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _encode(text: str) -> bytes:
    """Encode a text as UTF-8; lone surrogates are written as escapes."""
    return text.encode(errors="backslashreplace")


def escape_name(text: str) -> str:
    """Return a text as part of a file's name: characters that names cannot hold as in URLs (%2F)."""
    return _FORBIDDEN_NAME_CHARACTERS.sub(lambda match: f"%{ord(match[0]):02X}", text)


def write_json(path: Path, value: object) -> Path:
    """Write a JSON document. Secrets in it are masked, except in paths of files that exist: those are read back."""
    text, mask = _format_document(value), current_mask()
    if mask.is_needed(text):
        text = _format_document(mask.values(value, keeps_paths=True))
    return write_whole(path, text, keeps_secrets=True)


def _format_document(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_jsonl(
    path: Path, rows: Iterable[Mapping[str, Any]], *, keeps_secrets: bool = False
) -> Path:
    """Write one JSON object a line; compressed if the name ends in .gz.

    keeps_secrets  leave them: the rows are read back as they were
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # one for all
    mask = current_mask()

    def encode_row(row: Mapping[str, Any]) -> bytes:
        text = encode(row)
        if not keeps_secrets and mask.is_needed(text):
            text = encode(mask.values(row, keeps_paths=True))
        return _encode(f"{text}\n")

    lines = map(encode_row, rows)
    return write_whole(path, _compress(lines) if path.suffix == ".gz" else lines)


def _compress(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress blocks as gzip, without a time in it."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    yield from map(packer.compress, blocks)
    yield packer.flush()


def write_csv(
    path: Path, rows: Iterable[Mapping[str, Any]], *, guards_formulas: bool = True
) -> Path:
    """Write rows that share their keys as CSV; a missing value is an empty cell.

    Parameters
    ----------
    path : Path
        Of the file.
    rows : iterable of mapping
        Their keys are the first row's.
    guards_formulas : bool
        Write an apostrophe before a text that a spreadsheet would take for a formula. A program that reads the file
        takes the apostrophe for a part of the text.
    """
    blocks = _csv_blocks(iter(rows), guards_formulas)
    return write_whole(path, blocks, keeps_secrets=True)


def _csv_blocks(
    rows: Iterator[Mapping[str, Any]], guards_formulas: bool
) -> Iterator[str]:
    """Yield the text, a block of rows at a time; a row with a carriage return has each cell in quotes.

    Secrets are masked cell by cell, so that they break no row.
    """
    first_row = next(rows, None)
    if first_row is None:
        return
    mask = current_mask()
    text, names = io.StringIO(), list(first_row)
    plain_writer, quoting_writer = (
        csv.DictWriter(text, names, lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    (quoting_writer if "\r" in "".join(names) else plain_writer).writeheader()
    for row in chain([first_row], rows):
        cells = dict(row)
        if guards_formulas:
            cells = {name: _guard_formula(value) for name, value in row.items()}
        texts = "\n".join(cell for cell in cells.values() if isinstance(cell, str))
        if mask.is_needed(texts):
            cells = {name: mask.values(value) for name, value in cells.items()}
        (quoting_writer if "\r" in texts else plain_writer).writerow(cells)
        if text.tell() > _BLOCK_BYTES:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _guard_formula(value: object) -> object:
    if not isinstance(value, str) or value[:1] not in tuple("=+-@\t\r"):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows with their place ('file:line'), without blank lines.

    Raises FileError for a line that is no JSON object.
    """
    name = str(path)
    for number, line in read_lines(path):
        location = f"{name}:{number}"
        try:
            row = from_json(line)
        except ValueError:
            row = None
        is_flat = type(row) is dict and line.count(":") == len(row)
        # No key twice, no endless number
        if is_flat and len(line) < _MAX_SHORT_LINE_CHARACTERS:
            yield location, row
        elif not line.isspace():
            try:
                row = json.loads(line.rstrip(), object_pairs_hook=make_unique_object)
            except (ValueError, RecursionError) as error:
                raise FileError.bad_file(
                    location,
                    f"is not valid JSON: {describe_json_error(error)}",
                    _ONE_OBJECT_A_LINE,
                ) from None
            if not isinstance(row, dict):
                raise FileError.bad_file(
                    location,
                    f"is not a JSON object but {format_value(row)}",
                    _ONE_OBJECT_A_LINE,
                )
            yield location, row


def read_lines(
    path: Path, newline: str | None = None, *, encoding: str | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file by number. Raises FileError for one too long to be a row.

    newline, encoding  as of open_text
    """
    with open_text(path, newline, encoding=encoding) as text:
        lines = iter(partial(text.readline, _MAX_LINE_CHARACTERS), "")
        for number, line in enumerate(lines, start=1):
            if len(line) == _MAX_LINE_CHARACTERS:
                raise FileError.bad_file(
                    f"{path}:{number}",
                    f"has more than {_MAX_LINE_CHARACTERS:,} characters",
                    "Each line must hold one row.",
                )
            yield number, line


def read_json(path: Path) -> Any:
    """Read one JSON document. Raises FileError for anything else, or a key that stands twice."""
    try:
        return json.loads(read_text(path), object_pairs_hook=make_unique_object)
    except (ValueError, RecursionError) as error:
        raise FileError.bad_file(
            path, f"is not valid JSON: {describe_json_error(error)}"
        ) from None


def describe_json_error(error: Exception) -> str:
    """Return what is wrong with a JSON text, and where in it."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        is_long_number = "int_max_str_digits" in str(error)
        return "a number has too many digits" if is_long_number else str(error)
    fault = _JSON_FAULTS.get(error.msg, "it cannot be read")
    line = f"line {error.lineno}, " if "\n" in error.doc else ""
    return f"{fault} at {line}character {error.colno}"


def make_unique_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object. Raises ValueError for a key that stands twice: the last would win."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated_name!r} stands twice in one object")
    return row


def validate(kind: Any, value: Any, location: object, *hints: str) -> Any:
    """Read a value as pydantic reads this type. Raises FileError for the first field at fault, with hints below."""
    try:
        return _make_adapter(kind).validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(map(str, fault["loc"])) or "the content"
        if fault["type"] == "missing":
            message = f"{location}: {name} is missing."
        else:
            must = describe_requirement(find_type(kind, fault["loc"]), fault["msg"])
            value = format_value(fault["input"])
            message = f"{location}: {name} must {must}; got {value}."
        raise FileError(message, *(f"  {hint}" for hint in hints)) from None


def read_texts(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file whose texts models are sent.

    Raises FileError also for a lone surrogate, which JSON can hold and no request.
    """
    return check_sendable(read_jsonl(path))


def check_sendable(
    rows: Iterable[tuple[str, Mapping[Any, Any]]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows with their places. Raises FileError for a lone surrogate."""
    for location, row in rows:
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise FileError.bad_file(
                location,
                "holds half of a character, such as \\ud83d",
                "Write the whole character.",
            ) from None
        yield location, dict(row)


def read_text(path: str | Path, *, newline: str | None = None) -> str:
    """Read a text whole. Raises FileError for one that is too large for that.

    newline  as of open(): "" keeps line breaks as they are
    """
    path = Path(path)
    n = path.stat().st_size if path.is_file() else 0
    if detect_compression(path):  # counted before it is held
        with open_binary(path) as content:
            n = sum(map(len, iter(partial(content.read, _BLOCK_BYTES), b"")))
    if n > _MAX_WHOLE_FILE_BYTES:
        raise FileError.bad_file(
            path,
            f"has {n:,} bytes, more than the {_MAX_WHOLE_FILE_BYTES:,} that are read at once",
            "Write it as JSON Lines, CSV or Parquet, which may be larger.",
        )
    with open_text(path, newline) as file:
        return file.read()


@contextmanager
def open_text(
    path: Path, newline: str | None = None, *, encoding: str | None = None
) -> Iterator[TextIO]:
    """Open a text file for reading, compressed or not. Raises FileError if it cannot be read.

    newline   as of open(): "" keeps line breaks as they are
    encoding  None: UTF-8, or UTF-16 if the file begins with its byte order mark
    """
    encoding = encoding or ("utf-16" if is_utf16(path) else _TEXT_ENCODING)
    with (
        open_binary(path) as content,
        io.TextIOWrapper(content, encoding=encoding, newline=newline) as file,
    ):
        try:
            yield file
        except UnicodeDecodeError as error:
            raise FileError.bad_file(
                path,
                f"is not UTF-8 text (byte {error.start:,} cannot be read)",
                "Save it with the encoding UTF-8.",
            ) from None


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if it begins as gzip or Zstandard does.

    Raises FileError as above; for one that unpacks to far more than it has, and for one of blanks without end.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise FileError.bad_file(
                path,
                "is a pipe or a device",
                "Write its content into a file first.",
            )
        compression = detect_compression(path)
        with path.open("rb") as raw:
            if compression == "zstd":
                with _open_zstandard(raw) as content:
                    yield _BoundedReader.open_buffered(content, path)
                return
            content = (
                cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if compression else raw
            )
            yield _BoundedReader.open_buffered(content, path)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise FileError.not_found(path) from None
        reason = getattr(error, "strerror", None) or error
        raise FileError.bad_file(path, f"cannot be read ({reason})") from None


def is_utf16(path: Path) -> bool:
    """Return whether a file begins with the byte order mark of UTF-16, as text saved by Excel or PowerShell does."""
    if not path.is_file():
        return False
    with open_binary(path) as content:
        return content.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def detect_compression(path: Path) -> str:
    """Return how a file is compressed, by its first bytes: gzip, zstd, or ""."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        head = file.read(max(map(len, _COMPRESSION_BY_FIRST_BYTES)))
    return next(
        (
            compression
            for start, compression in _COMPRESSION_BY_FIRST_BYTES.items()
            if head.startswith(start)
        ),
        "",
    )


class _BoundedReader(io.RawIOBase):
    """A reader that raises UserError for far more bytes, or blanks, than anybody can have meant."""

    def __init__(self, content: IO[bytes], path: Path) -> None:
        self._content, self._path = content, path
        self._n = self._n_blank = 0

    @classmethod
    def open_buffered(cls, content: IO[bytes], path: Path) -> IO[bytes]:
        return io.BufferedReader(cls(content, path), _BLOCK_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._content.read(len(buffer))
        buffer[: len(block)] = block
        self._n += len(block)
        check_unpacked(self._path, self._n)
        self._n_blank = self._n_blank + len(block) if block.isspace() else 0
        if self._n_blank > _MAX_BLANK_MB * _BLOCK_BYTES:
            raise FileError.bad_file(
                self._path,
                f"holds more than {_MAX_BLANK_MB} MB of white space",
                "Is it the right file?",
            )
        return len(block)


def check_unpacked(path: Path, n: int) -> None:
    """Raise FileError where a file unpacks to n bytes that are far more than it has itself."""
    limit = max(_UNPACKED_ALLOWANCE_BYTES, _MAX_UNPACK_RATIO * path.stat().st_size)
    if n > limit:
        raise FileError.bad_file(
            path,
            f"unpacks to more than {limit:,} bytes, {_MAX_UNPACK_RATIO} times its size or more",
            "If you expect that, unpack it first.",
        )


@contextmanager
def _open_zstandard(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    from backports import zstd

    try:
        yield cast(IO[bytes], zstd.ZstdFile(raw))
    except zstd.ZstdError as error:
        raise OSError(str(error)) from None


# What values of a file from elsewhere raise where a reader has not looked for them
FOREIGN_FILE_ERRORS = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, RecursionError, MemoryError, NotImplementedError, zlib.error),
)


def report_read_errors(read: Callable[P, T]) -> Callable[P, T]:
    """Have a reader say in one line that its file cannot be read, whatever is in it.

    The file is the first argument that is a path, or has one. The error is the cause of what is raised, so
    that a mistake of ours is not hidden: hydra.verbose=true shows both in full.
    """

    @wraps(read)
    def read_or_raise(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except FOREIGN_FILE_ERRORS as error:
            candidates = (
                getattr(argument, "path", argument)
                for argument in (*args, *kwargs.values())
            )
            path = next(
                (
                    candidate
                    for candidate in candidates
                    if isinstance(candidate, str | Path)
                ),
                "file",
            )
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise FileError.bad_file(path, f"cannot be read ({reason:.200})") from error

    return read_or_raise


def check_choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return the value if it is one of the choices; raise SettingError otherwise."""
    if value not in choices:
        raise SettingError.bad_value(name, value, f"be one of {', '.join(choices)}")
    return value


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal. Raises FileError for a git-LFS pointer."""
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise FileError.bad_file(
                path, "is a pointer of Git LFS, not the file", "Run git lfs pull."
            )
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()
