"""What there is to choose from: every file of every group in conf/, with the first sentence of its comment."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from elo_exp.launching.composing import parse_config_dirs
from elo_exp.launching.setting_names import find_name_to_type
from elo_exp.paths import CONF

# The groups of conf/ in the order in which they are listed, and what a choice means
GROUPS = {
    "experiment": "What the command does.",
    "judge": "Who compares the answers.",
    "entrant": "Who answers; several: 'entrant=[one,v1=api:MODEL]'.",
    "rubric": "What the judge is asked; several. Also a file or a question: rubric=FILE.md.",
    "mode": "How much to spend.",
    "study": "Which prompts, header and rubrics belong together (docs/rubrics.md).",
    "probe": "Which tests an audit makes; several.",
    "rating": "Which ratings are computed next to Elo; several.",
    "elo": "How Elo is averaged over match orders.",
    "arena": "Which human battles a model is placed among.",
    "scoring": "What a judge is asked of one answer: scoring=score, or with pairs 'scoring=[pairwise,score]'.",
    "estimator": "How experiment=oracle estimates the value of a policy; several.",
    "tracker": "Where runs are logged.",
    "sweep": "Named sweeps, for -m.",
}
_LINE_COLUMNS = 110
_NAME_COLUMNS = 26


def format_options(words: Sequence[str] = ()) -> str:
    """Return all options by group, each with what its file says of it first.

    Parameters
    ----------
    words : sequence of str
        Of the command: the files of --config-dir=DIR are listed, too.
    """
    folders = (CONF, *parse_config_dirs(words))
    lines = ["Choose with group=option, or several with 'group=[one,two]'."]
    for group, title in GROUPS.items():
        files = [file for folder in folders for file in folder.glob(f"{group}/*.yaml")]
        lines += ["", f"{find_name_to_type(group)}: {title}"]
        for file in sorted(files, key=lambda file: file.stem):
            lines += _format_option(file)
    return "\n".join(lines)


def _format_option(file: Path) -> Iterator[str]:
    text = f"  {file.stem:<{_NAME_COLUMNS - 1}} {read_first_sentence(file)}"
    indent = " " * (_NAME_COLUMNS + 2)
    yield from textwrap.wrap(text, _LINE_COLUMNS, subsequent_indent=indent)


def read_first_sentence(file: Path) -> str:
    """Return the first sentence of the comment that a yaml file begins with; "" if it begins otherwise."""
    comment = read_header(file)
    sentence = re.match(r".*?[.?](?= [A-Z`]|$)", comment)
    return sentence[0] if sentence else comment


def read_header(file: Path) -> str:
    """Return the comment that a yaml file begins with, on one line, without its @package."""
    header = re.match(r"(?:#.*\n)*", file.read_text(encoding="utf-8"))
    lines = [line[1:].strip() for line in (header[0] if header else "").splitlines()]
    return " ".join(line for line in lines if not line.startswith("@package"))
