"""What the pages of sweeps, comparisons and placements share."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from elo_exp.figures import style
from elo_exp.records import Plot
from elo_exp.report.markup import Markup, listed, tag
from elo_exp.store.usage import TOKEN_CLASSES, added_up, paid

_PNG_WIDTH = slice(16, 20)  # of the file: pixels, the largest byte first


def when(time: str) -> str:
    """A time of manifest.json, to the minute."""
    return f"{time[:16].replace('T', ' ')} UTC"


def figure(plot: Plot, *, numbers: str) -> Markup:
    """As wide as it was drawn; `numbers`: the file that has them."""
    caption = plot.caption or plot.name.replace("_", " ").capitalize() + "."
    data = base64.b64encode(plot.png).decode("ascii")
    width = round(
        int.from_bytes(plot.png[_PNG_WIDTH]) * 96 / style.DPI
    )  # a pixel of CSS is 1/96 of an inch
    image = f'<img alt="{escape(caption)}" width="{width}" src="data:image/png;base64,{data}">'
    source = [" Its numbers: ", tag("code", numbers), "."]
    return tag(
        "figure",
        tag("div", Markup(image), class_="scroll"),
        tag("figcaption", caption, *source),
    )


def cost(
    usage: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> Iterator[Markup]:
    """`usage`, and what was paid `before`: as manifest.json has them."""
    if not (usage.get("verdicts_wanted") or usage.get("responses_wanted")):
        return
    calls, stored = usage.get("judge_calls", 0), usage.get("verdicts_stored", 0)
    made, kept = usage.get("responses_generated", 0), usage.get("responses_stored", 0)
    bill = added_up([usage, before])
    spent, earlier = paid(bill), paid(before or {})
    tokens = {
        name.removesuffix("_tokens").replace("_", " "): usage.get(name)
        for name in TOKEN_CLASSES
    }
    rows: dict[str, object] = {
        "Paid": f"${spent:,.2f}" if spent else "nothing",
        "Before": f"${earlier:,.2f} of it, by earlier attempts in the same folder"
        if earlier
        else "",
        "By dimension": ", ".join(
            f"{name} ${d:,.2f}"
            for name, d in bill.get("dollars_by_dimension", {}).items()
        ),
        "By entrant": ", ".join(
            f"{name} ${d:,.2f}"
            for name, d in bill.get("dollars_by_entrant", {}).items()
        ),
        "Responses": f"{made:,} made, {kept:,} from the store" if made or kept else "",
        "Verdicts": f"{calls:,} asked of the judge, {stored:,} from the store"
        if calls or stored
        else "",
        "Missing": f"{usage['verdicts_missing']:,} verdicts"
        if usage.get("verdicts_missing")
        else "",
        "Tokens": ", ".join(f"{n:,} {name}" for name, n in tokens.items() if n),
        "Prompt cache": usage.get("cache"),
    }
    yield listed(rows)
