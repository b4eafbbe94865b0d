"""Texts in a command: system prompts and rubrics, given as they are or as files, and never read as Hydra reads values.

    entrant.v1.system_prompt=@v1.txt        ++entrant.v1.system_prompt="..."
    judge.system_prompt=Be fair: no ties.   ++judge.system_prompt="Be fair: no ties."
    rubric=polite.md                        rubric=[] +rubric={polite:{text:"..."}}
    rubric=Which answer is more polite?     rubric=[] +rubric={which_answer_is_more_polite:{text:"..."}}

`prepare` gives such a rubric its other settings. A name with + or ++ before it takes values as Hydra reads them, so
that rewritten words stay as they are.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elo_exp.errors import FileError, SettingError
from elo_exp.files import read_text
from elo_exp.launching.quoting import (
    is_quoted,
    quote_value,
    shorten_word,
    split_at_commas,
    split_list,
    strip_quotes,
    unquote_text,
)

SWEEP_FLAGS = {"-m", "--multirun"}
_TEXT_SETTING = re.compile(r"\w[\w.-]*\.system_prompt")
_TEXT_FILE = re.compile(r"\S+\.(?:md|txt)")
_NAMED_ITEM = re.compile(r"([A-Za-z_]\w*)=(@.*|\".*\"|'.*')", re.DOTALL | re.ASCII)
_MAX_NAME_CHARS = 30


def is_text_setting(name: str, value: str = "") -> bool:
    """Return whether a setting takes its value as it is typed: a prompt, and a chat template that is no file."""
    is_template = name.endswith(".chat_template") and not is_quoted(value)
    return _TEXT_SETTING.fullmatch(name) is not None or (
        is_template and re.search(r"\{[{%]", value) is not None
    )


def expand_texts(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return the words of a command with texts in place of the files of texts, in quotes that Hydra reads.

    Raises FileError for a file that is missing, and SettingError for files that need a sweep or a list.
    """
    is_sweep = bool(SWEEP_FLAGS & {*flags})
    expanded_words, rubrics = list[str](), dict[str, None]()
    for word in words:
        name, _, value = word.partition("=")
        if is_text_setting(name, value) and value != "null":
            texts = _read_texts(name, value, is_sweep=is_sweep)
            expanded_words.append(f"++{name}={','.join(map(quote_value, texts))}")
        elif name == "rubric" and (parsed := _parse_rubrics(value, is_sweep=is_sweep)):
            listed_names, jobs = parsed
            expanded_words.append(f"rubric=[{','.join(listed_names)}]")
            expanded_words.append(f"+rubric={','.join(map(_format_rubrics, jobs))}")
            rubrics |= dict.fromkeys(rubric.name for job in jobs for rubric in job)
        else:
            expanded_words.append(word)
    # Other settings of such a rubric are added to its text
    return [
        f"++{word}" if _get_rubric_name(word) in rubrics else word
        for word in expanded_words
    ]


def _get_rubric_name(word: str) -> str | None:
    match = re.match(r"rubric\.(\w+)\.[\w.]+=", word)
    return match[1] if match else None


def _read_texts(setting: str, value: str, *, is_sweep: bool) -> list[str]:
    """Return the text of a setting, or one text for each job of a sweep."""
    if not re.match("@(?!@)", value):
        return [_unescape_at(value)]
    paths = re.split(r",\s*@", value[1:])
    if len(paths) == 1 or _is_file(value[1:]):
        if re.search(r"\s", value) and not _is_file(value[1:]):
            raise SettingError(
                f"{setting} begins with @ and names no file. If this is a text, begin it with @@."
            )
        return [_read_file(value[1:], setting)]
    if not is_sweep:
        raise SettingError(
            f"{setting} takes one text; got {len(paths)} files. To run one job with each, add -m:",
            f"  -m {setting}={value}",
        )
    return [_read_file(path, setting) for path in paths]


def _unescape_at(value: str) -> str:
    return value.removeprefix("@") if value.startswith("@@") else value


def _read_file(path: str, setting: str) -> str:
    if not _is_file(path):
        raise FileError.not_found(path, f"given as {setting}")
    return read_text(path, newline="")


def _is_file(path: str) -> bool:
    try:
        return bool(path) and Path(path).is_file()
    except (OSError, ValueError):
        return False


# Rubrics


@dataclass(frozen=True)
class TextRubric:
    """A rubric that a text makes.

    name       in the configuration
    dimension  in every file and figure
    """

    name: str
    dimension: str
    text: str


def _parse_rubrics(
    value: str, *, is_sweep: bool
) -> tuple[list[str], list[list[TextRubric]]] | None:
    """Return the names of rubrics in a value, and the rubrics that its texts make, of a sweep by job.

    None for a value without texts, which Hydra reads.
    """
    items = split_list(value)
    if items is not None:
        return _parse_listed_rubrics(items)
    if files := _split_files(value):
        if not is_sweep:
            raise SettingError(
                f"rubric takes a list in brackets; got {shorten_word(value)}. Write:",
                f"  'rubric=[{','.join(files)}]'",
            )
        rubrics = [_read_rubric_file(file.removeprefix("@")) for file in files]
        return [], [[rubric] for rubric in rubrics]
    if value.startswith("{") or (rubric := _read_rubric(value)) is None:
        return None
    return [], [[rubric]]


def _parse_listed_rubrics(
    items: Sequence[str],
) -> tuple[list[str], list[list[TextRubric]]] | None:
    rubrics = [_read_listed_rubric(item) for item in items]
    text_rubrics = [rubric for rubric in rubrics if rubric is not None]
    listed_names = [
        strip_quotes(item)
        for item, rubric in zip(items, rubrics, strict=True)
        if rubric is None
    ]
    if not text_rubrics:
        return None
    names = [*listed_names, *(rubric.name for rubric in text_rubrics)]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise SettingError(
            f"Two rubrics are called {doubled}. Name one of them yourself:",
            "  'rubric=[NAME=@FILE,...]'",
        )
    return listed_names, [text_rubrics]


def _split_files(value: str) -> list[str]:
    """Return several files of rubrics; [] for any other value."""
    if _is_file(value.removeprefix("@")):
        return []
    files = re.split(r",\s*(?=@)", value) if value.startswith("@") else []
    if len(files) < 2 and not re.search(r"\s", value):
        files = split_at_commas(value)
    is_several = len(files) > 1 and all(
        file.startswith("@") or _TEXT_FILE.fullmatch(file) for file in files
    )
    return files if is_several else []


def _read_listed_rubric(item: str) -> TextRubric | None:
    named = _NAMED_ITEM.fullmatch(item)
    if named is None:
        return _read_rubric(unquote_text(item))
    name, value = named[1], unquote_text(named[2])
    if re.match("@(?!@)", value):
        return TextRubric(name, name, _read_file(value[1:], "rubric"))
    return TextRubric(name, name, _unescape_at(value))


def _read_rubric(value: str) -> TextRubric | None:
    """Return the rubric that a text or a file makes; None for the name of a rubric."""
    if re.match("@(?!@)", value):
        return _read_rubric_file(value[1:])
    if _TEXT_FILE.fullmatch(value) or _is_file(value):
        return _read_rubric_file(value)
    text = _unescape_at(value)
    line = text.strip()
    # A name with a mistake in it must not become a rubric that is paid for
    if not re.search(r"\s", line):
        return None
    if "\n" not in line and re.search(r"\.(?:md|txt)$", line):
        raise FileError.not_found(text, "given as rubric")
    name = _make_name(text)
    return TextRubric(name, name, text)


def _read_rubric_file(path: str) -> TextRubric:
    text, stem = _read_file(path, "rubric"), Path(path).stem
    if not text.strip():
        raise FileError.bad_file(path, "holds no text", "Write the rubric into it.")
    key = re.sub(r"\W", "_", stem, flags=re.ASCII)
    # Hydra reads such a key as a number or as nothing
    is_no_name = re.match(r"\d|(?i:null|true|false|nan|inf)$", key) is not None
    return TextRubric(f"_{key}" if is_no_name else key, stem, text)


def _make_name(text: str) -> str:
    """Return the first words of a text, as a name."""
    name = ""
    for token in re.findall("[a-z0-9]+", text.lower()):
        if len(name) + len(token) >= _MAX_NAME_CHARS:
            break
        name = f"{name}_{token}" if name else token
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return name if re.match("[a-z]", name) else f"rubric_{digest}"


def _format_rubrics(rubrics: Sequence[TextRubric]) -> str:
    """Return rubrics as Hydra reads them in a value."""
    items = list[str]()
    for rubric in rubrics:
        dimension = f"dimension:{quote_value(rubric.dimension)},"
        is_other = rubric.dimension != rubric.name
        items.append(
            f"{rubric.name}:{{{dimension * is_other}text:{quote_value(rubric.text)}}}"
        )
    return f"{{{','.join(items)}}}"
