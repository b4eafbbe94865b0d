"""The configuration reference, read from conf/: every setting with its default, its type and what is said of it there.

What a key means stands behind it in its yaml. Where nothing does, it is what the same key says elsewhere: in the file
that this one starts from, at the field of the dataclass that checks it, in the docstring of the class that it builds.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from pydantic import PydanticUserError, TypeAdapter

from elo_exp.launching.composing import RunSettings, _setting_name
from elo_exp.launching.setting_comments import (
    SHARED_FILES,
    find_comment,
    read_comments,
)
from elo_exp.launching.setting_names import find_name_to_type
from elo_exp.paths import CONF

GROUPS = {
    "mode": "How much to spend.",
    "experiment": "What the command does.",
    "study": "Which prompts, judge role, rubrics and strata belong together (docs/rubrics.md).",
    "entrant": "Who answers. Choose several with `'entrant=[one,two]'`.",
    "judge": "Who compares the answers. `judge@oracle_judge=NAME` chooses the second judge of `experiment=oracle`. Its "
    "settings begin with `oracle_judge.`",
    "rubric": "What the judge is asked. You can choose several.",
    "probe": "Which tests an audit makes. You can choose several.",
    "scoring": "What the judges of `experiment=oracle` are asked about one answer. `scoring@oracle_scoring=NAME` is for "
    "the second judge. Its settings begin with `oracle_scoring.`",
    "elo": "How Elo is averaged over match orders.",
    "rating": "Which ratings are computed next to Elo. You can choose several.",
    "arena": "Which human battles a model is placed among.",
    "estimator": "How `experiment=oracle` estimates the value of a policy. You can choose several.",
    "tracker": "Where runs are logged.",
    "sweep": "Named sweeps, for `-m`.",
}
_KINDS = {
    **{
        "integer": "int",
        "number": "float",
        "string": "str",
        "boolean": "bool",
        "null": "null",
    },
    **{"array": "list", "object": "mapping"},
}
_BOUNDS = {
    **{"minimum": "at least", "exclusiveMinimum": "more than"},
    **{"maximum": "at most", "exclusiveMaximum": "less than"},
}
# Modules of the dataclasses that are sections of settings. The other ones are parts, which a `_target_` names.
_SECTION_MODULES = (
    *("elo_exp.experiments.", "elo_exp.arena.", "elo_exp.oracle.grid"),
    *("elo_exp.store.caps", "elo_exp.data.conversations"),
)
# Settings that an experiment's class calls otherwise
_FIELD_SETTINGS = {("LabelByPeople", "folder"): "run"}
_SWEEPER = (
    "hydra.sweeper"  # the package of a file that holds nothing but what is swept over
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`path` as on the command line; `default` as yaml; `kind` is its type, empty where nothing checks one."""

    path: str
    default: str
    kind: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """A file of a group: what it says of itself, the files that it starts from, what it chooses of other groups or
    sweeps over, and its settings."""

    group: str
    name: str
    about: str
    starts_from: tuple[str, ...]
    chooses: tuple[str, ...]
    sweeps: tuple[str, ...]
    settings: tuple[Setting, ...]


def settings() -> list[Setting]:
    """Those of every run and of every experiment with a judge, in the order of their files."""
    return [
        setting
        for name in SHARED_FILES
        for setting in _settings(CONF / name, package="")
    ]


def options() -> list[Option]:
    """Every file of every group of GROUPS."""
    return [
        _option(path)
        for group in GROUPS
        for path in sorted((CONF / group).glob("*.yaml"))
    ]


def settings_page() -> str:
    """In Markdown."""
    every = settings()
    sections = dict.fromkeys(
        setting.path.partition(".")[0] for setting in every if "." in setting.path
    )
    text = [
        "# Settings",
        "These settings belong to every run, or to every experiment with a judge. Write them on the command line as they "
        "are shown here. [Options](options.md) has the other settings of each experiment, entrant, judge and part.",
        "If a name does not exist, or a value has the wrong type or range, the command stops with one line and exit code "
        "2, before it spends anything. `--cfg job` prints all settings of a run with their values. A few settings have "
        "[two names](../upgrading.md#which-settings-have-two-names): YAML files and run folders have the name in brackets.",
        "## The run",
        _listed([setting for setting in every if "." not in setting.path]),
    ]
    for section in sections:
        inside = [
            setting for setting in every if setting.path.startswith(f"{section}.")
        ]
        text += [f"## {section}", _listed(inside)]
    return "\n\n".join(text) + "\n"


def options_page() -> str:
    """In Markdown."""
    text = [
        "# Options",
        "Every option is a file in `conf/`, which you choose with `group=option`. `--config-dir DIR` adds your own files. "
        "Each option is listed with its settings and their values. An option that starts from another option also has "
        "the settings of that option. If a value is `???`, you must set it.",
    ]
    every = options()
    for group, about in GROUPS.items():
        sections = (_section(option) for option in every if option.group == group)
        text += [
            f"## {find_name_to_type(group)}",
            about,
            *itertools.chain.from_iterable(sections),
        ]
    return "\n\n".join(text) + "\n"


def _section(option: Option) -> Iterator[str]:
    yield f"### {find_name_to_type(option.group)}={option.name} {{#{option.group}-{option.name}}}"
    if option.about:
        yield _prose(option.about)
    if option.starts_from:
        names = ", ".join(
            f"[{name}](#{option.group}-{name})" for name in option.starts_from
        )
        yield f"Starts from {names}."
    if option.chooses:
        yield f"Chooses {', '.join(f'`{choice}`' for choice in option.chooses)}."
    if option.sweeps:
        yield f"Sweeps over {', '.join(f'`{swept}`' for swept in option.sweeps)}."
    if option.settings:
        yield _listed(option.settings)


def _listed(settings: Sequence[Setting]) -> str:
    """A definition list: each setting as it is given on the command line, and what it means."""
    return "\n\n".join(map(_format_setting, settings))


def _format_setting(setting: Setting) -> str:
    name = find_name_to_type(setting.path)
    other = f" (`{setting.path}`)" if name != setting.path else ""
    return (
        f"`{name}={setting.default}`{other} {setting.kind}\n:   {_prose(setting.note)}"
    )


def _prose(comment: str) -> str:
    """A comment as Markdown: its signs are no mark-up, but for code; a page of docs/ is a link."""
    parts = comment.split("`")
    parts[::2] = [
        re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]
    ]
    return re.sub(
        r"docs/([\w\\]+)\.md",
        lambda page: f"[docs/{page[1]}.md](../{page[1].replace(chr(92), '')}.md)",
        "`".join(parts),
    )


def _option(path: Path) -> Option:
    text = path.read_text(encoding="utf-8")
    content = yaml.safe_load(text) or {}
    header = re.match(r"(?:#.*\n)*", text)
    lines = [line[1:].strip() for line in (header[0] if header else "").splitlines()]
    package = next(
        (line.split()[1] for line in lines if line.startswith("@package")),
        path.parent.name,
    )
    package = "" if package == "_global_" else package
    about = " ".join(line for line in lines if not line.startswith("@package"))
    if not about and "_target_" in content:
        about = _first_paragraph(_import(content["_target_"]))
    swept = (
        content if package == _SWEEPER else content.get("hydra", {}).get("sweeper", {})
    ).get("params", {})
    return Option(
        group=path.parent.name,
        name=path.stem,
        about=about,
        starts_from=tuple(base.partition("@")[0] for base in _bases(content)),
        chooses=tuple(dict.fromkeys(_choices(content))),
        sweeps=tuple(f"{key}={values}" for key, values in swept.items()),
        settings=tuple(_settings(path, package=package)),
    )


def _bases(content: Mapping[str, Any]) -> list[str]:
    """The files of the same group in a defaults list."""
    return [
        entry
        for entry in content.get("defaults", ())
        if isinstance(entry, str) and entry != "_self_" and not entry.startswith("/")
    ]


def _choices(content: Mapping[str, Any]) -> Iterator[str]:
    """`judge=opus` for `override /judge: opus` in a defaults list."""
    for entry in content.get("defaults", ()):
        for key, value in entry.items() if isinstance(entry, Mapping) else ():
            group = find_name_to_type(key.removeprefix("override ").removeprefix("/"))
            yield (
                f"'{group}=[{','.join(value)}]'"
                if isinstance(value, list)
                else f"{group}={'null' if value is None else value}"
            )


def _settings(path: Path, *, package: str) -> list[Setting]:
    notes = read_comments(path)
    target = _target(path)
    found = []
    for key, default in _leaves(path, package, target):
        full = f"{package}.{key}".strip(".")
        note = (
            notes.get(key)
            or _from_bases(path, key)
            or _from_class(target, key)
            or _from_elsewhere(full)
        )
        kind = _kinds(target).get(key) or _find_kind(full, target)
        found.append(Setting(path=full, default=default, kind=kind, note=note))
    return found


def _find_kind(setting: str, target: Any) -> str:
    """The type of a setting of a run or an experiment, the experiment's own first, else of a part such as elo.k."""
    group, _, field = setting.partition(".")
    fields = dict(_fields(target, "")) if dataclasses.is_dataclass(target) else {}
    kind = fields.get(setting, ("", ""))[0] or _schema().get(setting, ("", ""))[0]
    if not kind and group in GROUPS:
        parts = sorted((CONF / group).glob("*.yaml"))
        kinds = (_kinds(_target(path)).get(field, "") for path in parts if field)
        kind = next(filter(None, kinds), "") if field else "name of an option or null"
    return kind


def _leaves(path: Path, package: str, target: Any) -> Iterator[tuple[str, str]]:
    """Keys with dots and defaults. A mapping is descended into where the schema has fields for what is in it; hydra's
    own settings and the class that a part builds are left out."""
    root = yaml.compose(path.read_text(encoding="utf-8"))

    def walk(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, str]]:
        for key_node, value in node.value:
            key = f"{prefix}{key_node.value}"
            is_group = (
                key in GROUPS
                and isinstance(value, yaml.MappingNode)
                and not value.value
            )
            if (
                key in ("defaults", "hydra", "_target_")
                or package == _SWEEPER
                or is_group
            ):
                continue
            full = f"{package}.{key}".strip(".")
            has_inner = any(path.startswith(f"{full}.") for path in _schema())
            is_one = key in _kinds(target) or (full in _schema() and not has_inner)
            if isinstance(value, yaml.MappingNode) and not is_one:
                yield from walk(value, f"{key}.")
            else:
                yield key, _default(value)

    if isinstance(root, yaml.MappingNode):
        yield from walk(root, "")


def _default(node: yaml.Node) -> str:
    """As in the file, on one line; of a mapping of mappings only the names."""
    plain = yaml.safe_load(yaml.serialize(node))
    if isinstance(plain, dict) and any(
        isinstance(value, dict) for value in plain.values()
    ):
        return f"{{{', '.join(f'{name}: ...' for name in plain)}}}"
    text = yaml.safe_dump(
        plain,
        default_flow_style=True,
        width=10_000,
        sort_keys=False,
        allow_unicode=True,
    )
    return text.removesuffix("...\n").strip()


def _from_bases(path: Path, key: str) -> str:
    for base in _bases(yaml.safe_load(path.read_text(encoding="utf-8")) or {}):
        start = path.with_name(f"{base.partition('@')[0]}.yaml")
        if start.is_file() and (
            note := read_comments(start).get(key) or _from_bases(start, key)
        ):
            return note
    return ""


def _from_class(target: Any, key: str) -> str:
    """The entry of a class's docstring that begins with the name of the field and at least two spaces."""
    doc = (inspect.getdoc(target) or "") if target else ""
    entry = re.search(
        rf"^{re.escape(key)} {{2,}}(.+(?:\n {{8,}}.+)*)", doc, re.MULTILINE
    )
    return " ".join(entry[1].split()) if entry else ""


def _from_elsewhere(path: str) -> str:
    """What conf/ says of what a mode or an experiment changes, else the class."""
    return find_comment(path) or _schema().get(path, ("", ""))[1]


def _target(path: Path) -> Any:
    """The class that a file builds, its own or that of a file that it starts from; None for plain settings."""
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if "_target_" in content:
        return _import(content["_target_"])
    starts = (
        path.with_name(f"{base.partition('@')[0]}.yaml") for base in _bases(content)
    )
    return next((_target(start) for start in starts if start.is_file()), None)


def _import(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _kinds(target: Any) -> dict[str, str]:
    """Types of a part's fields; of an experiment's, _schema has them all."""
    if not target or target.__module__.startswith("elo_exp.experiments."):
        return {}
    hints = get_type_hints(target, include_extras=True)
    return {
        field.name: _kind(hints[field.name]) for field in dataclasses.fields(target)
    }


def _kind(hint: Any) -> str:
    """A type in words, with its bounds or choices; nothing for a part."""
    try:
        return _in_words(TypeAdapter(hint).json_schema())
    except PydanticUserError:
        return ""


def _in_words(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_in_words, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    kind = _KINDS.get(schema.get("type", "object"), "")
    if kind == "list":
        kind = f"list of {_in_words(schema['items'])}"
    bounds = [
        f"{words} {_format_bound(schema[key])}"
        for key, words in _BOUNDS.items()
        if key in schema
    ]
    return ", ".join([kind, *bounds])


def _format_bound(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:g}"


@cache
def _schema() -> dict[str, tuple[str, str]]:
    """Type and comment of every setting of a run or an experiment that is no section, by path."""
    targets = [_target(path) for path in sorted((CONF / "experiment").glob("*.yaml"))]
    return {
        path: found
        for cls in (*targets, RunSettings)
        for path, found in _fields(cls, "")
    }


def _fields(schema: Any, prefix: str) -> Iterator[tuple[str, tuple[str, str]]]:
    hints, comments = get_type_hints(schema, include_extras=True), _comments(schema)
    for field in dataclasses.fields(schema):
        hint = hints[field.name]
        name = f"{prefix}{_FIELD_SETTINGS.get((schema.__name__, field.name)) or _setting_name(field.name)}"
        types = [t for t in (hint, *get_args(hint)) if isinstance(t, type)]
        inner = next(filter(dataclasses.is_dataclass, types), None)
        if inner is schema:  # arena.union: arenas by name
            yield name, ("mapping", comments[field.name])
        elif inner and inner.__module__.startswith(_SECTION_MODULES):
            if NoneType in types and name not in GROUPS:
                yield name, ("mapping or null", comments[field.name])
            yield from _fields(inner, f"{name}.")
        elif get_origin(hint) is dict and inner:  # parts by name
            yield name, ("mapping", comments[field.name])
        elif inner is None and "Protocol" not in str(getattr(hint, "__mro__", "")):
            yield name, (_kind(hint), comments[field.name])


def _comments(schema: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for cls in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        source = inspect.getsource(cls)
        (body,) = ast.parse(source).body
        assert isinstance(body, ast.ClassDef)
        lines = source.splitlines()
        fields = [node for node in body.body if isinstance(node, ast.AnnAssign)]
        found |= {
            ast.unparse(node.target): lines[node.lineno - 1].partition("  # ")[2]
            for node in fields
        }
    return found


def _first_paragraph(target: Any) -> str:
    """Of a class's docstring, else of its module's."""
    docs = (
        inspect.getdoc(target) or "",
        inspect.getdoc(inspect.getmodule(target)) or "",
    )
    return next(
        " ".join(doc.partition("\n\n")[0].split())
        for doc in docs
        if re.match("[A-Z]", doc)
    )
