"""Rubrics for one response by itself: what they show the judge, and how they read its scores."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from elo_exp.data.rubrics import Instructions, compile_line_pattern, read_reply
from elo_exp.errors import SettingError
from elo_exp.records import Item, JudgeReply, JudgeRequest, Prompt, Response, Score
from elo_exp.types import Number

# The width of a 95% normal interval, in standard deviations
INTERVAL_WIDTH = 3.92
# Why a reply that ended by itself has no score
UNREADABLE = "unreadable"
_NUMBER = r"-?\d+(?:\.\d+)?"
_SCORE_LINE = compile_line_pattern(
    "SCORE",
    rf"(?P<score>{_NUMBER})"
    rf"(?:\s*\[\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*\])?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reply says of one response.

    score     on the scale of files and pages; None if the reply holds no score
    variance  of the score; None without an interval
    criteria  the score of each criterion by its name; None if it is missing
    """

    score: float | None
    variance: float | None = None
    criteria: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(kw_only=True)
class PointwiseRubric(Instructions):
    """Base class of rubrics by which a judge scores one response, without sight of others."""

    responses: ClassVar[Mapping[str, str]] = {"response": "response_text"}

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest score in files and pages, or None if they are not known."""
        return 0.0, 1.0

    def parse_reply(self, reply: JudgeReply) -> tuple[Reading, str]:
        """Return what a reply says, and its reasons, or its whole text if it names none."""
        raise NotImplementedError

    def item(self, prompt: Prompt, response: Response, draw_idx: int = 0) -> Item:
        """Pose one response to the judge, with only what this rubric shows of the prompt."""
        return Item(
            **self._select_prompt_fields(prompt),
            entrant_id=response.entrant_id,
            response_text=response.response_text,
            draw_idx=draw_idx,
        )

    def request(
        self,
        subject: Item,
        *,
        judge: str,
        key_fields: Sequence[str] = (),
        **options: Any,
    ) -> JudgeRequest:
        """Build one query; the key for a judge that reads more than the text: whose response it is."""
        identity_fields = ("prompt_id", "entrant_id", "draw_idx") if key_fields else ()
        return super().request(
            subject, judge=judge, key_fields=identity_fields, **options
        )

    def parse(
        self, request: JudgeRequest, reply: JudgeReply, *, judge_model: str
    ) -> Score:
        """Read a score. A refusal, a truncation and anything unreadable or off the scale have no score."""
        assert isinstance(request.subject, Item)
        reading, evidence = self.parse_reply(reply)
        is_unreadable = reading.score is None and reply.stop_reason == "end_turn"
        return Score(
            prompt_id=request.subject.prompt_id,
            policy=request.subject.entrant_id,
            draw_idx=request.subject.draw_idx,
            judge_model=judge_model,
            judge_score=reading.score,
            judge_score_variance=reading.variance,
            cache_key=reply.key,
            stop_reason=UNREADABLE if is_unreadable else reply.stop_reason,
            reasoning=evidence,
            criteria=dict(reading.criteria) or None,
        )


@dataclass(kw_only=True)
class ScoreRubric(PointwiseRubric):
    """How good one response is.

    low, high    the declared scale; a score outside it is no score
    uncertainty  also ask for a 95% interval, whose width is the judge's uncertainty
    """

    low: Number
    high: Number
    uncertainty: bool

    numbers = ("low", "high")

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise SettingError.bad_value(
                "low", self.low, f"be below high, which is {self.high}"
            )
        super().__post_init__()

    @cached_property
    def schema(self) -> str:
        scale = f"from {self.low:g} to {self.high:g}"
        best = "your best estimate of " if self.uncertainty else ""
        fields = {"score": f"{best}how good the response is, {scale}"}
        if self.uncertainty:
            fields["low"] = f"the lower end of your 95% interval for it, {scale}"
            fields["high"] = f"the upper end of your 95% interval for it, {scale}"
        # The scale is in words: not every API takes minimum and maximum.
        numbers = {
            name: {"type": "number", "description": words}
            for name, words in fields.items()
        }
        return json.dumps(
            {
                "type": "object",
                "properties": {"evidence": {"type": "string"}, **numbers},
                "required": ["evidence", *numbers],
                "additionalProperties": False,
            }
        )

    @property
    def scale(self) -> tuple[float, float]:
        return self.low, self.high

    def parse_reply(self, reply: JudgeReply) -> tuple[Reading, str]:
        """Read a score, with the scale mapped to [0, 1]: 1 on a scale from 0 to 10 is 0.1.

        The variance is that of a normal distribution whose 95% interval the judge gave, widened to
        include the score.
        """
        fields, evidence = read_reply(reply, _SCORE_LINE, self._parse_score)
        score, variance = self._parse_score(fields) or (None, None)
        reason = str(fields.get("evidence", fields.get("reason", evidence)))
        return Reading(score=score, variance=variance), reason or reply.text

    def _parse_score(
        self, fields: Mapping[str, Any]
    ) -> tuple[float, float | None] | None:
        """Score and variance in [0, 1]; None for what has none."""
        names = ("score", "low", "high") if self.uncertainty else ("score",)
        numbers: list[Any] = [fields.get(name) for name in names]
        if not all(
            type(x) in (int, float) and self.low <= x <= self.high for x in numbers
        ):
            return None
        score, *ends = (float(x - self.low) / (self.high - self.low) for x in numbers)
        if not ends:
            return score, None
        low, high = ends
        width = max(high, score) - min(low, score)
        return (score, (width / INTERVAL_WIDTH) ** 2) if low <= high else None
