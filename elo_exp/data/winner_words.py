"""Words of a file for winners that are not known: which they are, and the setting that says what they mean."""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from elo_exp.data import table_files
from elo_exp.data.battle_cells import CONTROL_CHARACTER
from elo_exp.data.battle_row_parser import BattleRowParser
from elo_exp.errors import UserError, format_value

_MAX_LISTED_WORDS = 8
_MAX_WORD_CHARS = 40
_MAX_ROWS_SEARCHED_FOR_WORDS = 100_000
_UNQUOTED_WORD = re.compile(
    r"[A-Za-z_][\w-]*( [A-Za-z_][\w-]*)*|0|-?[1-9]\d*", re.ASCII
)
# A command reads these as values rather than text
_COMMAND_CONSTANTS = ("true", "false", "null", "nan", "inf")
_TIE_WORDS = {"tie", "tied", "draw", "drawn"}


def describe_words(parser: BattleRowParser, field: str) -> list[str]:
    """Return lines with the words of a column, and the setting that says what unknown words mean."""
    column, counts = parser.columns.fields[field], Counter[str]()
    sides = [parser.columns.fields["model_a"], parser.columns.fields["model_b"]]
    unknown = dict[str, None]()
    with suppress(UserError):  # the file may be damaged further down
        rows = table_files.read_rows(parser.columns.path, {column, *sides})
        for _, row in itertools.islice(rows, _MAX_ROWS_SEARCHED_FOR_WORDS):
            word = table_files.to_text(row.get(column))
            names = sides if field == "winner" else ()
            if word and word not in (
                table_files.to_text(row.get(name)) for name in names
            ):
                unknown |= {word: None} if word not in parser.words else {}
            counts.update([word] if word else [])
    words = [word for word, _ in counts.most_common(_MAX_LISTED_WORDS)]
    more = f" and {len(counts) - len(words)} more" if len(counts) > len(words) else ""
    lines = [f"The column {column} holds {', '.join(map(format_value, words))}{more}."]
    if setting := _suggest_setting(list(unknown), *sides):
        placeholder_hint = " instead of ?" if "?" in setting else ""
        lines.append(f"To say what they mean{placeholder_hint}: {setting}")
    return lines


def _suggest_setting(words: Sequence[str], column_a: str, column_b: str) -> str:
    """Return battles_values for words, quoted for a shell; a word that names a side's column means this side.

    The meaning of any other word is left to the user, as ?. Returns "" for more words than a column of
    winners has, and for a word that no command can hold.
    """
    a, b = (_split_name(column) for column in (column_a, column_b))
    if (
        not 0 < len(words) <= _MAX_LISTED_WORDS
        or max(map(len, words)) > _MAX_WORD_CHARS
    ):
        return ""
    if any(
        CONTROL_CHARACTER.search(word) or set(word) & set("\"'\\$") for word in words
    ):
        return ""
    meanings = dict[str, str]()
    for word in words:
        word_parts = _split_name(word)
        sides = {
            "model_a": word_parts & (a - b),
            "model_b": word_parts & (b - a),
            "tie": word_parts & _TIE_WORDS,
        }
        matches = [side for side, common_words in sides.items() if common_words]
        meanings[word] = matches[0] if len(matches) == 1 else "?"
    if not {"model_a", "model_b"} <= set(meanings.values()):
        meanings = {
            word: meaning if meaning == "tie" else "?"
            for word, meaning in meanings.items()
        }
    if all(
        _UNQUOTED_WORD.fullmatch(w) and w.lower() not in _COMMAND_CONSTANTS
        for w in words
    ):
        pairs = ",".join(f"{word}:{meaning}" for word, meaning in meanings.items())
        return shlex.quote(f"battles_values={{{pairs}}}")
    pairs = ",".join(f'["{word}",{meaning}]' for word, meaning in meanings.items())
    return shlex.quote(f"battles_values=[{pairs}]")


def _split_name(name: str) -> set[str]:
    """Return the words in a name without a and b, which mean positions and are also words of a language."""
    return set(re.findall(r"[^\W_]+", name.casefold())) - {"a", "b"}
