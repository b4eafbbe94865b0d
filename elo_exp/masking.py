"""Secrets in text that leaves the process: each is replaced by the name of its variable, such as $ANTHROPIC_API_KEY.

Files, messages in the store, trackers, the log and the console all pass through `masked` or a `Mask`. Stored answers do
not: they are data, and their keys are made of them.
"""

import functools
import html
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
# Shorter values stand in ordinary text, too
MIN_SECRET_CHARACTERS = 8
# A line of a private key that a server may quote by itself
_MIN_LINE_CHARACTERS = 20
_ALPHANUMERIC = re.compile("[A-Za-z0-9]+")
# Variables, by the values that were read
_registered_secrets = dict[str, str]()


def register_secret(variable: str, value: str) -> None:
    """Have a key masked from now on: one of a variable with another name, or of .env."""
    _registered_secrets[value] = variable


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """Return text in which secrets are the names of their variables."""
    return current_mask().text(text)


def current_mask() -> "Mask":
    """Return the mask of the secrets that the environment holds now and of those that were read."""
    secrets = []
    for name in os.environ:
        value = os.environ.get(name, "")
        if is_secret_name(name) and not _is_path(value):
            secrets.append((value, name))
    return _make_mask((*secrets, *_registered_secrets.copy().items()))


def _is_path(value: str) -> bool:
    """Whether a value is the place of a secret, such as SSH_KEY_FILE, and not the secret."""
    return value.startswith(os.sep) and _exists(value)


class Mask:
    """Replaces secrets, also as JSON, URLs, HTML, CSV, YAML and Python write them.

    secrets  values, each with the name of its variable
    """

    def __init__(self, secrets: tuple[tuple[str, str], ...]) -> None:
        self._replacement_by_form: dict[str, str] = {}
        # By the letters and digits that all forms of a secret share: they are looked for first
        self._forms: list[tuple[str, list[str]]] = []
        for value, variable in secrets:
            name = "$" + re.sub(r"\W", "_", variable)
            for secret in _secret_parts(value):
                if forms := _written_forms(secret):
                    common_part = max(
                        _ALPHANUMERIC.findall(secret), key=len, default=""
                    )
                    self._forms.append((common_part, forms))
                    self._replacement_by_form = (
                        dict.fromkeys(forms, name) | self._replacement_by_form
                    )

    def is_needed(self, text: str) -> bool:
        """Whether a text holds a secret."""
        return any(
            common_part in text and any(form in text for form in forms)
            for common_part, forms in self._forms
        )

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not self.is_needed(text):
            return text
        return self._pattern.sub(
            lambda match: self._replacement_by_form[match[0]], text
        )

    def page(self, text: str) -> str:
        """Return a page without secrets in its text; styles and scripts are ours, and a page knows its script by a hash."""
        if not self.is_needed(text):
            return text
        return "".join(
            section if is_ours else self.text(section)
            for section, is_ours in _page_parts(text)
        )

    def values(
        self, value: Any, *, keeps_paths: bool = False, kept_text: str = ""
    ) -> Any:
        """Return JSON data without secrets in its texts and names.

        keeps_paths  leave the path of a file that exists as it is: it is read back
        kept_text    a text whose parts stay as they are
        """
        if not self._forms:
            return value
        if isinstance(value, str):
            stays = value in kept_text or (keeps_paths and _is_file_path(value))
            return value if stays else self.text(value)
        mask_inner = functools.partial(
            self.values, keeps_paths=keeps_paths, kept_text=kept_text
        )
        if isinstance(value, Mapping):
            return {
                mask_inner(name): mask_inner(inner) for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [mask_inner(inner) for inner in value]
        return value

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The longest form first, since one secret may begin with another."""
        longest_first = sorted(self._replacement_by_form, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


_make_mask = functools.lru_cache(maxsize=8)(Mask)


def _is_file_path(text: str) -> bool:
    return os.sep in text and _exists(text)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # no path at all
        return False


def _page_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a page, and whether each is a style or a script."""
    start = 0
    while start < len(text):
        tags_by_start = {
            text.find(f"<{tag}>", start): tag for tag in ("script", "style")
        }
        tags_by_start.pop(-1, None)
        if not tags_by_start:
            break
        begin = min(tags_by_start)
        end = text.find(f"</{tags_by_start[begin]}>", begin)
        if end < 0:
            break
        yield text[start:begin], False
        yield text[begin:end], True
        start = end
    yield text[start:], False


def _escape_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _escape_unicode_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escape_slashed_json(text: str) -> str:
    return _escape_json(text).replace("/", r"\/")


def _escape_script_json(text: str) -> str:
    """Write JSON as a script in a page has it."""
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


_percent_encode = functools.partial(quote, errors="surrogateescape")


def _percent_encode_in_lower_case(text: str) -> str:
    return re.sub(
        "%[0-9A-F]{2}", lambda match: match[0].lower(), _percent_encode(text, safe="")
    )


def _escape_jinja(text: str) -> str:
    return html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


_WRITERS: tuple[Callable[[str], str], ...] = (
    _escape_json,
    _escape_unicode_json,
    _escape_slashed_json,
    lambda text: _escape_script_json(_escape_json(text)),
    lambda text: _escape_script_json(_escape_unicode_json(text)),
    html.escape,
    lambda text: html.escape(text, quote=False),
    _escape_jinja,
    lambda text: _percent_encode(text, safe=""),
    _percent_encode,
    lambda text: quote_plus(text, errors="surrogateescape"),
    _percent_encode_in_lower_case,
    lambda text: repr(text)[1:-1],
    lambda text: text.replace("'", "\\'"),
    lambda text: text.encode(errors="backslashreplace").decode(),
    lambda text: text.replace('"', '""'),
    lambda text: text.replace("'", "''"),
    lambda text: shlex.quote(text)[1:-1] if "'" in text else text,
)


def _secret_parts(value: str) -> list[str]:
    """Return a secret as it is, without space around it, in one line, and the long lines of one that has several."""
    lines = [line.strip() for line in value.splitlines()]
    long_lines = [n for n in lines if len(n) >= _MIN_LINE_CHARACTERS and " " not in n]
    whole_forms = [value, value.strip(), " ".join(value.split())]
    return [*dict.fromkeys(whole_forms + long_lines * (len(lines) > 1))]


def _written_forms(text: str) -> list[str]:
    """Return a text as it is, and as texts hold it that quote it once or twice; none if it is too short for a secret."""
    if len(text) < MIN_SECRET_CHARACTERS:
        return []
    forms = dict.fromkeys([text])
    for _ in range(2):
        forms |= dict.fromkeys(write(form) for form in [*forms] for write in _WRITERS)
    return [*forms]
