"""How a CSV file is written: its encoding and its delimiter, told from its content."""

import codecs
import csv
import functools
import itertools
import logging
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from elo_exp import files

logger = logging.getLogger(__name__)

# A comma is taken before others that split the lines as well
DELIMITERS = (",", ";", "\t", "|")
_MAX_SAMPLE_LINES = 50
_BLOCK_BYTES = 2**20
WINDOWS_ENCODING = "cp1252"


def read_csv_text(path: Path) -> Generator[str]:
    """Yield the lines with their line ends, some of which are within a cell. Raises FileError."""
    encoding = detect_encoding(path)
    yield from (
        line for _, line in files.read_lines(path, newline="", encoding=encoding)
    )


def detect_encoding(path: Path) -> str | None:
    """Return the encoding of Windows for a file that is not UTF-8 but may be that; None for any other file."""
    modified_at, n_bytes = path.stat().st_mtime_ns, path.stat().st_size
    return _detect_encoding(path, modified_at, n_bytes)


@functools.lru_cache(maxsize=64)
def _detect_encoding(path: Path, modified_at: int, n_bytes: int) -> str | None:
    if files.is_utf16(path) or _can_decode(path, "utf-8"):
        return None
    if not _can_decode(path, WINDOWS_ENCODING):
        return None
    logger.warning(
        "warning: %s: is not UTF-8 and was read as Windows-1252. Check its accents, or save it as UTF-8.",
        path,
    )
    return WINDOWS_ENCODING


def _can_decode(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with files.open_binary(path) as content:
        try:
            while block := content.read(_BLOCK_BYTES):
                text = decoder.decode(block)
                if encoding == WINDOWS_ENCODING and "\0" in text:
                    return False
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def detect_delimiter(path: Path) -> str:
    """Return the delimiter that splits the first lines into the same number of fields; a comma if none does."""
    with closing(read_csv_text(path)) as text:
        sample = [*itertools.islice(text, _MAX_SAMPLE_LINES + 1)]
    is_whole = len(sample) <= _MAX_SAMPLE_LINES
    n_fields = {
        delimiter: _count_fields(sample, delimiter, is_whole=is_whole)
        for delimiter in DELIMITERS
    }
    if n_fields[","] > 1:
        return ","
    return max(DELIMITERS, key=lambda delimiter: n_fields[delimiter])


def _count_fields(sample: list[str], delimiter: str, *, is_whole: bool) -> int:
    """Return the number of fields if it is the same in all rows of the sample; 1 otherwise."""
    counts = set[int]()
    try:
        for row in csv.reader(sample, delimiter=delimiter, strict=True):
            counts |= {len(row)} if row else set()
    except csv.Error:
        if is_whole:  # else the sample ends within a cell
            return 1
    return counts.pop() if len(counts) == 1 else 1
