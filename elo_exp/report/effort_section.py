"""The steps, tool calls, tokens and seconds of agents, as a section of a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.formatting import format_count, format_number
from elo_exp.report.document import Table

_NOTE = (
    "Means over the compared answers, taken from the logs. The ratings are not adjusted for them, because the work of an "
    "agent is part of its answer."
)


def build_effort_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the means of each entrant, from the rows of the manifest."""
    scores = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    return Table(
        label="Effort per answer",
        columns=[
            *("Entrant", "Answers", "Steps", "Tool calls", "Tokens", "Seconds"),
            *scores,
        ],
        rows=[
            [
                row["model"],
                format_count(row["n"]),
                *(format_number(row[key], 1) for key in ("steps", "calls")),
                format_count(row["tokens"] and round(row["tokens"])),
                format_number(row["seconds"], 1),
                *(format_number(row["scores"].get(name), 3) for name in scores),
            ]
            for row in rows
        ],
        note=f"{_NOTE} The scores come from the logs: {', '.join(scores)}."
        if scores
        else _NOTE,
    )
