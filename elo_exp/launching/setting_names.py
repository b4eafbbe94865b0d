"""Settings with two names. A command and a call accept both, while YAML files and run folders have the first.

preset=medical         study=medical
judging.analyses=1,5   judging.looks=1,5
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from elo_exp.errors import SettingError

# By the name in files. The name to type says the same in the words of the field.
NAME_TO_TYPE = {
    "study": "preset",
    "draws": "answers_per_prompt",
    "headline": "objective",
    "judging.looks": "judging.analyses",
    "judging.flip_share": "judging.both_orders_share",
    "label.dimension": "label.rubric",
    "battles_columns.dimension": "battles_columns.rubric",
}
MAX_SUGGESTIONS = 3
_MIN_LIKENESS = 0.7
NAME_IN_FILES = {typed: name for name, typed in NAME_TO_TYPE.items()}
_OVERRIDE = re.compile(r"([+~]*)([\w.]+)(.*)", re.DOTALL)


def find_name_in_files(setting: str) -> str:
    """Return the name that YAML files have for a setting, or for the part that it belongs to: preset.name is study.name."""
    return _replace_name(setting, NAME_IN_FILES)


def find_name_to_type(setting: str) -> str:
    """Return the name that help and reference show for a setting."""
    return _replace_name(setting, NAME_TO_TYPE)


def _replace_name(setting: str, names: dict[str, str]) -> str:
    if setting in names:
        return names[setting]
    group, dot, field = setting.partition(".")
    return f"{names[group]}{dot}{field}" if group in names else setting


def resolve_names(words: Sequence[str]) -> list[str]:
    """Return the overrides of a command with the names that YAML files have.

    Raises SettingError for a setting that is given under both names.
    """
    resolved_words, typed_names = list[str](), dict[str, str]()
    for word in words:
        if (override := _OVERRIDE.fullmatch(word)) is None:
            resolved_words.append(word)
            continue
        sign, typed, value = override.groups()
        name = find_name_in_files(typed)
        if typed_names.setdefault(name, typed) != typed:
            raise SettingError(
                f"{name} and {find_name_to_type(name)} are two names of one setting. Give one of them."
            )
        resolved_words.append(f"{sign}{name}{value}")
    return resolved_words


def restore_typed_names(text: str, words: Iterable[str]) -> str:
    """Return a message that calls settings as the words of a command do.

    A name that is also an English word, such as study, is replaced only where the message means the setting.
    """
    overrides = map(_OVERRIDE.fullmatch, words)
    typed_names = {override[2] for override in overrides if override}
    for typed in sorted(typed_names):
        name = find_name_in_files(typed)
        if name == typed or name in typed_names:
            continue
        old_name = next(key for key in NAME_TO_TYPE if f"{name}.".startswith(f"{key}."))
        is_named = rf"(?:(?<=^Unknown )|^){old_name}(?= must | is not |: |\.\w)"
        pattern = rf"(?<![\w.]){old_name}(?=[=.]\w)|(?<=[Ll]eave ){old_name}(?= out)|{is_named}"
        if "." in old_name:
            pattern = rf"(?<![\w.]){re.escape(old_name)}(?!\w)"
        text = re.sub(pattern, NAME_TO_TYPE[old_name], text)
    return text


def add_names_to_type(names: Collection[str], parent: str = "") -> set[str]:
    """Return the names of the settings of a part, with the names to type of those that have two."""
    prefix = f"{parent}." if parent else ""
    typed = (NAME_TO_TYPE.get(f"{prefix}{name}", "") for name in names)
    return {*names, *(name.removeprefix(prefix) for name in typed if name)}


# Names that are meant


def find_full_names(name: str, settings: Collection[str]) -> list[str]:
    """Return the settings that end as a name does, such as judging.budget_usd for budget_usd, the shortest paths first.

    For entrant.foo.seed, these are only settings of entrants, because the first step says where it belongs.
    """
    group, dot, _ = name.partition(".")
    last = name.rpartition(".")[2]
    matches = [
        setting
        for setting in settings
        if "." in setting
        and setting.rpartition(".")[2] == last
        and (not dot or setting.startswith(f"{group}."))
        and setting != name
    ]
    return _choose_nearest(matches)


def find_similar_names(
    name: str, settings: Collection[str], siblings: Collection[str]
) -> list[str]:
    """Return the settings whose last step is most like a name: judge.max_tokens for max_token.

    siblings  names without a group; [] if one of them is more like it
    """
    last_steps = {setting.rpartition(".")[2] for setting in settings}
    candidates = [*siblings, *sorted(last_steps - {*siblings})]
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=_MIN_LIKENESS)
    if not close or close[0] in siblings:
        return []
    return find_full_names(close[0], settings)


def flatten_settings(node: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting, also of those that hold others."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{where}{key}", value
        yield from flatten_settings(value, f"{where}{key}.")


def _choose_nearest(settings: Iterable[str]) -> list[str]:
    ranked = sorted(settings, key=lambda name: (name.count("."), len(name), name))
    return ranked[:MAX_SUGGESTIONS]
