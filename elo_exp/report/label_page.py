"""The blind page that people label on: one file that fetches nothing, and names no entrant, verdict or score."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from elo_exp.data.labels import Key
from elo_exp.records import Comparison
from elo_exp.report import page

# The page may run this script alone and fetch nothing
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'"
)
_TEMPLATES = Path(page.__file__).with_name("templates")
_MAX_GUIDE_CHARACTERS = 240


def label_page(
    comparisons: Sequence[Comparison],
    key: Key,
    *,
    dimension: str,
    rubric: str | None,
    annotator: int | None,
) -> str:
    """Return the page of an annotator, which shows each comparison's entrant_a as answer 1.

    rubric     the text that the judge gets; None if it is not known
    annotator  its number; None if there is only one
    """
    items = [
        {
            "id": key.label_id(comparison),
            "prompt": comparison.prompt_text,
            "reference": comparison.gold_answer,
            "expected": comparison.expected_behavior,
            "answers": [comparison.response_a, comparison.response_b],
        }
        for comparison in comparisons
    ]
    data = {"page": key.page, "annotator": annotator, "items": items}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script = (_TEMPLATES / "label.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.load_template("label.html.j2").render(
        dimension=dimension,
        guide=(rubric and _find_guide(rubric)) or dimension,
        rubric=rubric,
        n=len(items),
        data=text.replace("<", "\\u003c"),  # no text of others ends the element
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        own_css=(_TEMPLATES / "label.css").read_text(encoding="utf-8"),
        script=script,
        policy=_CONTENT_SECURITY_POLICY.format(digest),
    )


def _find_guide(rubric: str) -> str:
    """Return the first sentence of a rubric, without its headings; empty if it has none that is short."""
    paragraphs = re.split(r"\n\s*\n", rubric)
    texts = (" ".join(p.split()) for p in paragraphs if not p.lstrip().startswith("#"))
    text = next(filter(None, texts), "")
    sentence = re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]
    return sentence if len(sentence) <= _MAX_GUIDE_CHARACTERS else ""
