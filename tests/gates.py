"""A candidate whose answers break the judge's replies, before a judge on this machine's protocol server."""

from __future__ import annotations

from pathlib import Path

from elo_exp.files import read_jsonl, write_jsonl
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Shown, longer

NONSENSE = "}{ VERDICT VERDICT }{"


def unread_of_nonsense(shown: Shown) -> str:
    """The longer response wins, but what is said of nonsense has no verdict in it."""
    answers = shown.response_a, shown.response_b
    return "?" if NONSENSE in answers else longer(shown)


def write_broken(baseline: Path, path: Path, *, n_broken: int) -> None:
    """Write the baseline's own answers, but for nonsense on the first so many prompts."""
    rows = [row for _, row in read_jsonl(baseline)]
    for i, row in enumerate(rows):
        row["entrant_id"] = "broken"
        if i < n_broken:
            row["response_text"] = NONSENSE
    write_jsonl(path, rows)


def judged_by(server: AnthropicServer) -> tuple[str, ...]:
    """The settings by which a gate is judged by this server."""
    return (
        "judge=haiku",
        "judge.transport=messages",
        f"judge.base_url={server.url}",
        "judging.budget_usd=10",
    )


BROKEN = (
    "entrant=[recorded]",
    "entrant.recorded.path=broken.jsonl",
)
