"""Entrants and judges in a command: one grammar for a part that has a file, a model or a function.

    'entrant=[v1=api:gpt-5,v2=api:gpt-5]'      entrant=[] +entrant@entrant.v1=openai_compatible entrant.v1.model=...
    'judge=[low=opus,high=claude:NAME]'        ~judge +judge@judges.low=opus +judge@judges.high=claude judges.high.model=...
    judge=my_judge:compare                     judge=function judge.function="my_judge:compare" judge.model=compare

A part is NAME=SPEC or SPEC. SPEC is a file of conf/, KIND:MODEL or MODULE:FUNCTION. NAME:FILE is an older form of NAME=FILE.
"""

import difflib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elo_exp.errors import SettingError
from elo_exp.launching.composing import parse_config_dirs
from elo_exp.launching.quoting import (
    quote_value,
    shorten_word,
    split_at_commas,
    split_list,
    strip_quotes,
)
from elo_exp.launching.text_words import SWEEP_FLAGS
from elo_exp.paths import CONF

# The files of conf/ whose model is chosen by KIND:MODEL
KINDS = {
    "entrant": {
        "api": "openai_compatible",
        "claude": "claude",
        "hf": "huggingface",
        "huggingface": "huggingface",
        "openai_compatible": "openai_compatible",
        "vllm": "vllm",
    },
    "judge": {
        "api": "openai_compatible",
        "claude": "claude",
        "gemini": "gemini",
        "hf": "local",
        "local": "local",
        "openai": "openai",
        "openai_compatible": "openai_compatible",
    },
}
_NAMED = re.compile(r"([\w-]+)=(.+)", re.DOTALL | re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXAMPLES = {
    "entrant": "  'entrant=[v1=api:MODEL,v2=api:MODEL]'",
    "judge": "  'judge=[low=sonnet,high=claude:MODEL]'",
}
_EXAMPLE_NAMES = {"entrant": ("v1", "v2"), "judge": ("low", "high")}
_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Part:
    """An entrant or a judge of a command.

    item      as it was typed
    name      by which it is called
    option    its file in conf/GROUP
    settings  further settings of it, as Hydra reads them
    """

    item: str
    name: str
    option: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it is the file of its name, with its own settings."""
        return self.item == self.name == self.option


def expand_entrants(word: str, flags: Sequence[str]) -> Iterator[str]:
    """Yield the words for a list in which entrants have names, models or functions; else the word itself.

    Raises SettingError for an item that is none of these, and for two of one name.
    """
    value = word.partition("=")[2]
    if not re.search("[=:]", value) or value[0] == "{":
        yield word
        return
    items = split_list(value)
    if items is None and value.startswith("["):
        raise SettingError(
            f"Each job of a sweep has the same list of entrants; got {shorten_word(value)}. To sweep over models:",
            "  -m entrant.NAME.model=MODEL,MODEL",
        )
    if items is None:
        raise SettingError(
            f"entrant takes a list in brackets; got {shorten_word(value)}. Write:",
            f"  'entrant=[{shorten_word(value)}]'",
        )
    parts = parse_parts("entrant", items, flags)
    yield f"entrant=[{','.join(entrant.name for entrant in parts if entrant.is_plain)}]"
    for entrant in parts:
        if entrant.is_plain:
            continue
        node = f"entrant.{entrant.name}"
        yield f"+entrant@{node}={entrant.option}"
        yield f"{node}.entrant_id={quote_value(entrant.name)}"
        for setting, setting_value in entrant.settings.items():
            yield f"{node}.{setting}={setting_value}"


def expand_judges(word: str, flags: Sequence[str]) -> Iterator[str]:
    """Yield the words for several judges, a judge with its model, or a function; else the word itself.

    The second judge of an oracle is chosen by judge@oracle_judge=...

    Raises SettingError for a part of the value that is none of these, and for two judges of one name.
    """
    name, _, value = word.partition("=")
    node = name.partition("@")[2] or name
    if several := list_judges(word, flags):
        yield "~judge"
        for judge in several:
            yield f"+judge@judges.{judge.name}={judge.option}"
            for setting, setting_value in judge.settings.items():
                yield f"judges.{judge.name}.{setting}={setting_value}"
        return
    if ":" not in value or value[0] in "[{" or "${" in value:
        yield word
        return
    options = split_at_commas(value)
    if len(options) > 1:
        if SWEEP_FLAGS & {*flags}:
            raise SettingError(
                f"A sweep takes judges by the names of their files; got {shorten_word(value)}. To sweep over models:",
                "  -m judge=claude judge.model=MODEL,MODEL",
            )
        raise SettingError(
            f"Several judges are a list in brackets; got {shorten_word(value)}. Write:",
            f"  'judge=[{value}]'",
        )
    judge = _parse_spec("judge", strip_quotes(value), None, flags, is_listed=False)
    yield f"{name}={judge.option}"
    for setting, setting_value in judge.settings.items():
        yield f"{node}.{setting}={setting_value}"


def list_judges(word: str, flags: Sequence[str]) -> list[Part]:
    """Return the judges of judge=[...]; [] where one judge is chosen. Raises SettingError for what is no judge."""
    name, _, value = word.partition("=")
    items = split_list(value) if name == "judge" else None
    if not items:
        return []
    parts = parse_parts("judge", items, flags)
    if len(parts) == 1:
        _, equals, spec = items[0].partition("=")
        raise SettingError(
            f"judge takes one value without brackets. Write judge={spec if equals else items[0]}."
        )
    return parts


def parse_parts(group: str, items: Sequence[str], flags: Sequence[str]) -> list[Part]:
    """Return the parts of a list. Raises SettingError for two of one name, and for what is no part."""
    parts = dict[str, Part]()
    for item in map(strip_quotes, items):
        named = _NAMED.fullmatch(item)
        name, spec = (named[1], named[2]) if named else (None, item)
        entry = _parse_spec(group, spec, name, flags)
        # A judge's name can stand in a variable
        is_variable = group == "entrant" or "-" not in entry.name
        if not (_NAME.fullmatch(entry.name) and is_variable):
            raise _build_name_error(group, item, entry.name)
        if earlier := parts.get(entry.name):
            name_a, name_b = _EXAMPLE_NAMES[group]
            pair = f"{name_a}={_get_spec(earlier.item)},{name_b}={_get_spec(item)}"
            raise SettingError(
                f"Two {group}s are called {entry.name}. Name them yourself:",
                f"  '{group}=[{pair}]'",
            )
        parts[entry.name] = entry
    return [*parts.values()]


def _get_spec(item: str) -> str:
    named = _NAMED.fullmatch(item)
    return named[2] if named else item


def _build_name_error(group: str, item: str, name: str) -> SettingError:
    characters = "letters, digits" + (
        ", _ and -" if group == "entrant" else " and underscores"
    )
    return SettingError(
        f"{group} cannot be {shorten_word(item)}: the name {shorten_word(name)!r} must begin with a letter and have only "
        f"{characters}. Example:",
        _EXAMPLES[group],
    )


def _parse_spec(
    group: str,
    spec: str,
    name: str | None,
    flags: Sequence[str],
    *,
    is_listed: bool = True,
) -> Part:
    """Return the part that a file, KIND:MODEL or MODULE:FUNCTION stands for, or in a list the older NAME:FILE."""
    item = spec if name is None else f"{name}={spec}"
    prefix, colon, target = spec.partition(":")
    if not colon:
        option, name = spec, name or spec.rpartition("/")[2]
        return Part(item=item, name=name, option=option)
    if option := KINDS[group].get(prefix, ""):
        last = target.rstrip("/").rpartition("/")[2]
        slug = re.sub(r"[^\w-]", "_", last, flags=re.ASCII)
        slug = slug.replace("-", "_") if group == "judge" else slug
        slug = re.sub(r"^(?=\d)|^$", "_", slug)
        settings = {"model": quote_value(target)}
        if (group, option) == ("entrant", "openai_compatible"):
            names = ("base_url", "key_variable")
            settings |= {setting: f"${{api.{setting}}}" for setting in names}
        return Part(item=item, name=name or slug, option=option, settings=settings)
    if is_listed and name is None and _is_option(group, target, flags):
        return Part(item=item, name=prefix, option=target)
    if _FUNCTION.fullmatch(spec) and _is_importable(prefix):
        settings = {"function": quote_value(spec)}
        last = target.rpartition(".")[2]
        if group == "judge":
            settings["model"] = quote_value(last)
        return Part(item=item, name=name or last, option="function", settings=settings)
    raise _build_unknown_error(group, item, prefix, target, flags)


def _build_unknown_error(
    group: str, item: str, prefix: str, target: str, flags: Sequence[str]
) -> SettingError:
    """Return the error for X:Y that is neither KIND:MODEL, NAME:FILE nor MODULE:FUNCTION."""
    kinds, options = KINDS[group], list_options(group, flags)
    hint = ""
    if close := difflib.get_close_matches(prefix, kinds, n=1):
        hint = f" Did you mean {close[0]}:{target}?"
    elif close := difflib.get_close_matches(target, options, n=1):
        hint = f" Did you mean {prefix}={close[0]}?"
    return SettingError(
        f"{group} cannot be {shorten_word(item)}: {prefix} is neither a kind ({', '.join(kinds)}) nor a Python module, "
        f"and {target} is not a file of conf/{group}.{hint} Example:",
        _EXAMPLES[group],
    )


def list_options(group: str, words: Sequence[str]) -> list[str]:
    """Return the names of the files of a group, also of --config-dir, in alphabetical order."""
    folders = (CONF, *parse_config_dirs(words))
    return sorted(
        {path.stem for folder in folders for path in folder.glob(f"{group}/*.yaml")}
    )


def _is_option(group: str, option: str, flags: Sequence[str]) -> bool:
    folders = (CONF, *parse_config_dirs(flags))
    try:
        return any((folder / group / f"{option}.yaml").is_file() for folder in folders)
    except (OSError, ValueError):
        return False


def _is_importable(module: str) -> bool:
    """Return whether Python finds the package that a module is in. Nothing is imported."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
