"""Golden files: pages and consoles as they were last agreed on, so that a change of words is seen in its diff.

`GOLDEN=write python -m pytest tests/test_golden*.py` writes them anew: read the diff before it is committed.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from elo_exp.files import write_whole

FOLDER = Path(__file__).with_name("golden")
_WRITES = os.environ.get("GOLDEN") == "write"
_OUT_OF_PLACE = (  # what differs between machines or is tested elsewhere
    (r"<style>.*?</style>", "<style>…</style>"),
    (r"<script>.*?</script>", "<script>…</script>"),
    (r"(<script [^>]*>)[^<]*</script>", r"\1…</script>"),
    (r"<svg.*?</svg>", "<svg>…</svg>"),
    (r"sha256-[\w+/=]+", "sha256-…"),
    (r"<dt>(Commit|Versions|Inputs)</dt><dd>.*?</dd>", r"<dt>\1</dt><dd>…</dd>"),
    (r"\d{4}-\d\d-\d\d[ T_]\d\d[:-]\d\d([:-]\d\d)?(_\w{4})?", "DATE"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
)


_BLOCK = (  # elements whose neighbouring white space a browser does not show
    r" ?(</?(?:article|aside|body|caption|dd|details|div|dl|dt|figcaption|figure|footer|h\d|head|header|html|li|main|meta|"
    r"nav|noscript|ol|p|script|section|style|summary|table|tbody|td|th|thead|title|tr|ul)\b[^>]*>) ?"
)


def settled(text: str) -> str:
    """A page or a console without dates, versions, hashes, figures, scripts and styles."""
    for pattern, instead in _OUT_OF_PLACE:
        text = re.sub(pattern, instead, text, flags=re.DOTALL)
    return text


def laid_out(page: str) -> str:
    """A page with a line for each element, and no white space but what a browser shows."""
    page = re.sub(r"[ \t\r\n]+", " ", page).replace("&nbsp;", "\N{NO-BREAK SPACE}")
    lines = re.sub(_BLOCK, r"\n\1\n", page).splitlines()
    return re.sub(r"\n(</)|(>)\n(?=[^<\n])", r"\1\2", "\n".join(filter(None, lines)))


def same(name: str, text: str) -> None:
    """Compare a text with tests/golden/NAME, line by line; of a page, what a browser shows of it."""
    path, shown = FOLDER / name, settled(text).rstrip("\n") + "\n"
    if name.endswith(".html"):
        shown = laid_out(shown) + "\n"
    if _WRITES:
        write_whole(path, shown.encode())
    now, agreed = shown.splitlines(), path.read_text(encoding="utf-8").splitlines()
    assert now == agreed, "\n".join(difflib.unified_diff(agreed, now, name, "now", n=1))
