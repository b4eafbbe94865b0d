"""What is odd about an entrant's answers: empty, refusing, cut off, or the same on many prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elo_exp.records import Record, Response

REPEATED = 0.10  # of the prompts: the same answer to more of them is no answer to each
_REFUSAL = re.compile(
    r"(i'?m sorry,? but i|i apologi[sz]e,? but i|sorry,? i|i)"
    r" (can'?t|can ?not|am unable to|am not able to|won'?t)"
    r" (help|assist|answer|provide|comply|respond|do that|discuss|fulfil|give)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCheck(Record):
    """Counts over the answers of one entrant."""

    model: str
    n_responses: int
    n_empty: int
    n_refused: int
    n_cut_off: int  # at the limit of their length
    n_repeated: int  # prompts that got its most frequent answer, if more than one did
    repeated_text: str | None  # the beginning of that answer

    @property
    def is_repeated(self) -> bool:
        return self.n_repeated > REPEATED * self.n_responses

    @property
    def is_odd(self) -> bool:
        """Whether a reader of the leaderboard must know."""
        return self.is_repeated or self.n_empty > 0 or self.n_refused > 0


def check_responses(model: str, responses: Mapping[str, Response]) -> ResponseCheck:
    """Count what is odd about an entrant's answers, by prompt.

    A refusal is one that the API reports, or that begins as refusals do.
    """
    texts = {p: response.response_text.strip() for p, response in responses.items()}
    counts = Counter(text for text in texts.values() if text)
    ((text, n),) = counts.most_common(1) or [("", 0)]
    return ResponseCheck(
        model=model,
        n_responses=len(responses),
        n_empty=sum(not text for text in texts.values()),
        n_refused=sum(
            response.finish_reason == "refusal" or bool(_REFUSAL.match(texts[p]))
            for p, response in responses.items()
        ),
        n_cut_off=sum(r.finish_reason == "length" for r in responses.values()),
        n_repeated=n if n > 1 else 0,
        repeated_text=text[:80] if n > 1 else None,
    )
