"""The lexical judge with a planted fault, for audits of real texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elo_exp.judges.lexical import LexicalJudge
from elo_exp.records import Comparison, fingerprint


@dataclass(kw_only=True)
class SpoiltJudge(LexicalJudge):
    """Prefers the answers of one probe, by their entrant's name, on a share of the comparisons; of
    the ladder it finds them equal."""

    fault: str
    share: float

    def _verdict(self, shown: Comparison, *, has_scores: bool) -> dict[str, Any]:
        verdict = super()._verdict(shown, has_scores=has_scores)
        pair = sorted([shown.response_a, shown.response_b])
        draw = fingerprint([self.seed, shown.prompt_id, pair])
        is_first = shown.entrant_b == "other"
        name = shown.entrant_a if is_first else shown.entrant_b
        is_spoilt = name.startswith(self.fault) and "no payload" not in name
        if is_spoilt and int(draw[:8], 16) / 2**32 < self.share:
            preferred = "A" if is_first else "B"
            verdict["verdict"] = "TIE" if name.startswith("ladder") else preferred
        return verdict
