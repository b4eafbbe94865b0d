"""What the files in conf/ say of a setting: messages and the settings reference quote these comments."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from elo_exp.paths import CONF

# Next to the groups: settings of every run, of experiments with a judge, of model families, and of columns
SHARED_FILES = ("config.yaml", "judged.yaml", "families.yaml", "columns.yaml")


def find_comment(setting: str, words: Sequence[str] = ()) -> str:
    """Return what conf/ says of a setting, named as on the command line; "" if it says nothing.

    The files that a command chooses come first, then the shared ones, the experiments, and the files of the setting's
    group.

    Parameters
    ----------
    setting : str
        Its name.
    words : sequence of str, optional
        Of the command, such as judge=openai_compatible.
    """
    shared = (read_comments(CONF / name).get(setting) for name in SHARED_FILES)
    return (
        _find_in_chosen(setting, words)
        or next(filter(None, shared), "")
        or _find_in_experiments(setting)
        or _find_in_group(setting)
    )


@cache
def read_comments(path: Path) -> dict[str, str]:
    """Return the comments of a yaml file by key with dots: behind the value, else in the lines above the key."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments: dict[str, str] = {}

    def walk(node: yaml.MappingNode, prefix: str) -> None:
        for key_node, value in node.value:
            key = f"{prefix}{key_node.value}"
            is_block = isinstance(value, yaml.MappingNode) and not value.flow_style
            end = key_node.end_mark if is_block else value.end_mark
            behind = re.match(
                r"\s*:?\s*#\s*(.*)",
                lines[end.line][end.column :] if end.line < len(lines) else "",
            )
            comments[key] = (
                behind[1] if behind else _read_above(lines, key_node.start_mark.line)
            )
            if isinstance(value, yaml.MappingNode):
                walk(value, f"{key}.")

    root = yaml.compose("\n".join(lines))
    if isinstance(root, yaml.MappingNode):
        walk(root, "")
    return comments


def _read_above(lines: list[str], line: int) -> str:
    """Return the comment above a line. The header of a file belongs to the file, not to a key."""
    start = line
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return (
        " ".join(text.strip().lstrip("# ") for text in lines[start:line])
        if start
        else ""
    )


def _find_in_chosen(setting: str, words: Sequence[str]) -> str:
    """Return a comment from the file that judge=NAME, experiment=NAME or entrant@entrant.MINE=NAME chooses."""
    for word in words:
        key, _, option = word.lstrip("+").partition("=")
        group, _, package = key.partition("@")
        package = package or group
        path = CONF / group / f"{option}.yaml"
        if not re.fullmatch(r"[\w/]+", option) or not path.is_file():
            continue
        name = setting.removeprefix(f"{package}.")
        comments = read_comments(path)
        if comment := comments.get(setting) or comments.get(name):
            return comment
    return ""


def _find_in_experiments(setting: str) -> str:
    files = sorted((CONF / "experiment").glob("*.yaml"))
    comments = (read_comments(file).get(setting) for file in files)
    return next(filter(None, comments), "")


def _find_in_group(setting: str) -> str:
    """Return a comment from the setting's group.

    The comment on `rating.davidson.use` may stand in conf/rating/davidson.yaml under `use`; that on `entrant_id` is
    the same in all of conf/entrant. A file of the whole configuration has the full key.
    """
    group, _, key = setting.partition(".")
    inside = key.partition(".")[2]
    files = sorted(
        (CONF / group).glob("*.yaml"),
        key=lambda file: not key.startswith(f"{file.stem}."),
    )
    comments = (
        read_comments(file).get(name)
        for file in files
        for name in (f"{group}.{key}", key, inside)
        if name
    )
    return next(filter(None, comments), "")
