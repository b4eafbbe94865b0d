"""How far the judge may be trusted: flips between the two orders, a taste for a position, invalid replies."""

from __future__ import annotations

from collections.abc import Sequence

from elo_exp.data.pairing import repeated
from elo_exp.records import Judgment
from elo_exp.results import JudgeQuality


def judge_quality(judgments: Sequence[Judgment], *, dimension: str) -> JudgeQuality:
    """Counts over one dimension. A mirrored verdict and one on equal answers say nothing of order, and enter no order
    statistic."""
    two_order = [
        j
        for j in judgments
        if not j.invalid and not j.equal_answers and not any(v.mirrored for v in j.raw[:2])
    ]
    decisive = [v for j in two_order for v in j.raw[:2] if v.verdict != "TIE"]
    repeats = [pair for j in judgments for pair in repeated(j)]
    return JudgeQuality(
        dimension=dimension,
        n_judgments=len(judgments),
        n_invalid=sum(j.invalid for j in judgments),
        n_two_order=len(two_order),
        n_flips=sum(j.inconsistent for j in two_order),
        n_decisive_verdicts=len(decisive),
        n_first_shown_wins=sum(v.verdict == "A" for v in decisive),
        n_ties=sum(j.winner is None and not j.inconsistent and not j.invalid for j in judgments),
        n_refused=_count(judgments, {"refusal"}),
        n_cut_off=_count(judgments, {"max_tokens", "model_context_window_exceeded"}),
        n_equal_answers=sum(j.equal_answers for j in judgments),
        n_repeated=len(repeats),
        n_repeats_agree=sum(first.verdict == again.verdict for first, again in repeats),
    )


def _count(judgments: Sequence[Judgment], stop_reasons: set[str]) -> int:
    return sum(
        j.invalid and any(v.stop_reason in stop_reasons for v in j.raw[:2]) for j in judgments
    )
