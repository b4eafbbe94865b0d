"""Arguments of the library, turned into the words of a command and into files."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from elo_exp.data import frames
from elo_exp.errors import SettingError, UserError
from elo_exp.files import escape_name
from elo_exp.launching.quoting import quote_text, quote_value
from elo_exp.launching.setting_names import (
    find_name_in_files,
    restore_typed_names,
)
from elo_exp.launching.shorthand import expand_shorthand, override_key
from elo_exp.launching.text_words import is_text_setting


class Frame(Protocol):
    """A table of pandas, polars or pyarrow."""

    @property
    def columns(self) -> Any: ...


File: TypeAlias = str | os.PathLike[str]
Table: TypeAlias = File | Frame | Sequence[Mapping[str, Any]]

_TABLE_SETTINGS = ("answers", "battles", "prompts")
# Parameters of the library that have another name in a command
_PARAMETERS = {"budget_usd": "judging.budget_usd"}
_PART_SETTINGS = ("entrant", "judge", "rubric")
_WORDS_TO_QUOTE = ("null", "true", "false", "nan", "inf")


def make_words(
    words: Sequence[str], settings: Mapping[str, Any], folder: CallFolder
) -> tuple[list[str], dict[str, Any]]:
    """Return the words of a command, and the settings with mappings, which such words cannot hold."""
    if tables := [word for word in words if not isinstance(word, str)]:
        raise SettingError(
            f"Words of the command must be texts; got a {type(tables[0]).__name__}. To compare tables, name them:",
            '  compare({"old": OLD, "new": NEW}, ...)',
        )
    if flags := [w for w in words if w.startswith("-") and "--config-dir=" not in w]:
        raise SettingError(
            f"{flags[0]} is a flag of the command and not of the library.",
            "  For a sweep, call run() in a loop.",
            "  For a folder with your own configuration, write '--config-dir=DIR' as one word.",
        )
    override_words, mappings = list(words), dict[str, Any]()
    keys = [_PARAMETERS.get(name, name.replace("__", ".")) for name in settings]
    if doubled := next((key for key in keys if keys.count(key) > 1), None):
        pair = " and ".join(
            n for n, key in zip(settings, keys, strict=True) if key == doubled
        )
        raise SettingError(f"{pair} are two names of one setting. Give one of them.")
    for key, value in zip(keys, settings.values(), strict=True):
        if key in _TABLE_SETTINGS:
            value = _name_files(key, value, folder)  # noqa: PLW2901
        if key == "columns" and isinstance(value, Mapping):
            override_words += [
                f"columns.{role}={format_value(column, f'columns.{role}')}"
                for role, column in value.items()
            ]
        elif (text := _format_typed_value(key, value)) is not None:
            override_words.append(f"{key}={text}")
        elif isinstance(value, Mapping):
            mappings[find_name_in_files(key)] = frames.to_plain(value)
        else:
            override_words.append(f"{key}={format_value(value, key)}")
    if not any(override_key(word).startswith("tracker") for word in override_words):
        override_words.append("tracker=local")
    folder.words = tuple(override_words)
    return expand_shorthand(override_words), mappings


def _format_typed_value(key: str, value: Any) -> str | None:
    """Return the value of a text, a rubric, entrants or judges as a command has it; None for any other value."""
    if is_text_setting(key) or key == "rubric":
        if isinstance(value, os.PathLike):
            return f"@{os.fspath(value)}"
        if isinstance(value, str):
            return value
    if key not in _PART_SETTINGS:
        return None
    if isinstance(value, Mapping) and value and all(map(_is_file, value.values())):
        items = [
            f"{name}={_format_item(key, item, is_named=True)}"
            for name, item in value.items()
        ]
    elif isinstance(value, list | tuple) and all(map(_is_file, value)):
        items = [_format_item(key, item) for item in value]
    else:
        return None
    return f"[{','.join(items)}]"


def _format_item(key: str, item: File, *, is_named: bool = False) -> str:
    """Return an item of a list of parts; the text of a rubric in quotes."""
    text = f"@{os.fspath(item)}" if isinstance(item, os.PathLike) else item
    if key != "rubric" or (is_named and text.startswith("@") and text[1:2] != "@"):
        return text if "," not in text else quote_text(text)
    return quote_text(text)


def format_value(value: Any, key: str) -> str:
    """Return a value as Hydra reads it in a word of a command."""
    value = frames.to_plain(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        is_name = re.fullmatch(r"[A-Za-z_][\w/-]*", value, re.ASCII)
        is_word = is_name and value.lower() not in _WORDS_TO_QUOTE
        return value if is_word else quote_value(value)
    if isinstance(value, list):
        return f"[{','.join(format_value(item, key) for item in value)}]"
    if isinstance(value, dict) and set(value) == {"name", "file"}:
        return (
            f"{{name:{quote_value(value['name'])},file:{quote_value(value['file'])}}}"
        )
    raise SettingError.bad_value(key, value, "be a number, a text, a list or a mapping")


# Tables


class CallFolder:
    """The folder of a run, and the tables and words that the caller gave.

    place  None: the run has not made its folder yet
    words  of the command, with the settings as the caller named them
    """

    def __init__(self, root: Path | None, *, is_new: bool = False) -> None:
        self.place = root
        self.words: tuple[str, ...] = ()
        self._is_new = is_new
        self._tables: dict[str, str] = {}  # by their files

    def write(self, name: str, table: Any) -> str:
        """Write a table to a file. Messages name the table, not the file."""
        path = frames.write_table(table, name, self.path("given", escape_name(name)))
        self._tables[str(path)] = name
        return str(path)

    @contextlib.contextmanager
    def naming(self, notes: list[str]) -> Iterator[None]:
        """Let errors and notes name the tables, not their files, and settings as the caller named them."""
        try:
            yield
        except UserError as error:
            raise error.reword(
                self._named(error.line), *map(self._named, error.below)
            ) from None
        finally:
            notes[:] = map(self._named, notes)

    def _named(self, text: str) -> str:
        for path, name in self._tables.items():
            text = text.replace(path, name)
        return restore_typed_names(text, self.words)

    def path(self, *parts: str) -> Path:
        if self.place is None:
            now = datetime.now()
            name = f"own_{now:%Y-%m-%d_%H-%M-%S}_{secrets.token_hex(4)}"
            self.place = Path("outputs", name).absolute()
        if not self.place.exists():
            self.place.mkdir(parents=True)
            self._is_new = True
        return self.place.joinpath(*parts)

    def remove_if_unused(self) -> None:
        """Remove the folder of a run that did not begin."""
        is_used = self.place and (self.place / "manifest.json").exists()
        if self._is_new and self.place and not is_used:
            shutil.rmtree(self.place, ignore_errors=True)


@contextlib.contextmanager
def open_folder(out: File | None, is_temporary: bool) -> Iterator[CallFolder]:
    root = None if out is None else Path(out).absolute()
    if is_temporary:
        root = Path(tempfile.mkdtemp(prefix="elo_exp_"))
    folder = CallFolder(root, is_new=is_temporary)
    try:
        yield folder
    except BaseException:
        folder.remove_if_unused()
        raise


def _name_files(key: str, value: Any, folder: CallFolder) -> Any:
    """Return the files that a value names, or the files that its tables are written to."""
    if isinstance(value, Mapping) and key == "answers":
        return [
            {"name": str(name), "file": _name_file(key, table, folder, str(name))}
            for name, table in value.items()
        ]
    if key == "prompts" and _are_texts(value):
        return _name_file(key, [{"prompt": text} for text in value], folder, key)
    is_files = isinstance(value, list | tuple) and all(map(_is_file, value))
    if is_files and value:
        return [os.fspath(file) for file in value]
    return value if value is None else _name_file(key, value, folder, key)


def _are_texts(value: Any) -> bool:
    """Return whether a value is a list of prompts, and not of files."""
    return isinstance(value, list | tuple) and any(
        isinstance(text, str) and not Path(text).exists() for text in value
    )


def _is_file(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _name_file(key: str, table: Any, folder: CallFolder, name: str) -> str:
    if _is_file(table):
        return os.fspath(table)  # type: ignore[no-any-return]
    return folder.write(name, table)
