"""Values of overrides: texts in quotes that Hydra reads as they are, and the items of lists."""

import re

_MAX_QUOTED_CHARS = 80


def quote_value(text: str) -> str:
    """Return a text as a value that Hydra reads as it is: in quotes, no variable being resolved."""
    return quote_text(escape_variables(text))


def escape_variables(text: str) -> str:
    """Escape what OmegaConf would resolve."""
    return re.sub(r"(?<!\\)(\\*)\$\{", r"\1\1\\${", text)


def quote_text(text: str) -> str:
    """Return a text in quotes. Its variables are resolved."""
    inside = re.sub(r'(?<!\\)(\\*)"', r'\1\1\\"', text)
    # Before the closing quote they would escape it
    n_last_backslashes = len(inside) - len(inside.rstrip("\\"))
    return f'"{inside}{n_last_backslashes * chr(92)}"'


def unquote_text(value: str) -> str:
    """Return the text of a value in quotes; a value without quotes as it is."""
    if not is_quoted(value):
        return value
    mark, inside = value[0], value[1:-1]

    def unescape(match: re.Match[str]) -> str:
        return match[1][: len(match[1]) // 2] + mark if match[2] == mark else match[0]

    text = re.sub(r"""(?<!\\)(\\*)\\(["'])""", unescape, inside)
    n_last_backslashes = len(text) - len(text.rstrip("\\"))
    return text[: len(text) - n_last_backslashes // 2]


def is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"


def split_at_commas(text: str) -> list[str]:
    """Split at commas that stand in no quotes."""
    pieces = re.findall(
        r'(?:"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[^,])+', text, re.DOTALL
    )
    return [piece.strip() for piece in pieces if piece.strip()]


def split_list(value: str) -> list[str] | None:
    """Return the items of a list in brackets; None for any other value, such as two lists of a sweep."""
    if not (value.startswith("[") and value.endswith("]")):
        return None
    items = split_at_commas(value[1:-1])
    is_list = not any(item[0] == "[" or item[-1] == "]" for item in items)
    return items if is_list else None


def strip_quotes(text: str) -> str:
    return text[1:-1] if is_quoted(text) else text


def shorten_word(word: str) -> str:
    """Return a word as a message quotes it: on one line, of a long word the beginning."""
    line = " ".join(word.split()) if "\n" in word else word
    return line if len(line) <= _MAX_QUOTED_CHARS else f"{line[:_MAX_QUOTED_CHARS]}..."
