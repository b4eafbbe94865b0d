"""Candidates of a gate: verdicts alone; answers that break the replies of a judge on this machine's protocol server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.gate_checks import CandidateEvidence
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.files import read_jsonl, write_jsonl
from elo_exp.records import Judgment, Response
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import Shown


def candidate_evidence(
    judgments: Sequence[Judgment], answers: Sequence[str] = ()
) -> CandidateEvidence:
    """Of a candidate of which verdicts, and perhaps answers, are known."""
    responses = {
        (f"q{i}", 0): Response(entrant_id="new", prompt_id=f"q{i}", response_text=text)
        for i, text in enumerate(answers)
    }
    return CandidateEvidence(
        candidate="new",
        baseline="baseline",
        comparisons=[],
        judgments=judgments,
        quality=judge_quality(judgments, dimension="d"),
        controls=[],
        control_judgments=[],
        wants_control=True,
        responses={"new": responses, "baseline": {}},
        points={},
        clusters=[],
        margin=0.1,
        pass_alpha=0.05,
        fail_alpha=0.05,
        kin=JudgeFamily(),
        is_family_known=False,
        allows_kin=False,
        audit={},
    )


NONSENSE = "}{ VERDICT VERDICT }{"


def more_words(shown: Shown) -> str:
    """The response with more different words wins: a judge that sees that a degraded copy is worse."""
    a, b = (
        len(set(text.split())) if text.strip() else -1
        for text in (shown.response_a, shown.response_b)
    )
    return "TIE" if a == b else "A" if a > b else "B"


def unread_of_nonsense(shown: Shown) -> str:
    """The same, but what is said of nonsense has no verdict in it."""
    answers = shown.response_a, shown.response_b
    return "?" if NONSENSE in answers else more_words(shown)


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
