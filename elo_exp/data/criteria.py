"""Rubrics of several criteria: yes/no questions that a judge answers at once, and numbers that a function returns."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from elo_exp.data.rubrics import compile_line_pattern, read_reply
from elo_exp.data.scoring import PointwiseRubric, Reading
from elo_exp.errors import SettingError
from elo_exp.records import JudgeReply
from elo_exp.types import Number

MAX_CRITERIA = 40
_BOOL_BY_WORD = {"YES": True, "NO": False}


@dataclass(kw_only=True)
class CriteriaRubric(PointwiseRubric):
    """Which criteria one response meets. Its score is the share of criteria that it meets.

    criteria  questions that yes or no answers
    """

    criteria: list[str]

    scale = (0.0, 1.0)

    def __post_init__(self) -> None:
        self.criteria = [question.strip() for question in self.criteria]
        questions = {*self.criteria}
        n = len(self.criteria)
        if not 1 <= n <= MAX_CRITERIA or len(questions) < n or "" in questions:
            raise SettingError(
                f"criteria must be 1 to {MAX_CRITERIA} different questions that yes or no answers; got {n}. For example:",
                "  criteria: [Does the answer name a price?, Is the answer polite?]",
            )
        super().__post_init__()

    @property
    def _keys(self) -> list[str]:
        return [f"criterion_{n}" for n, _ in enumerate(self.criteria, start=1)]

    @cached_property
    def schema(self) -> str:
        answers = {
            key: {"type": "boolean", "description": question}
            for key, question in zip(self._keys, self.criteria, strict=True)
        }
        return json.dumps(
            {
                "type": "object",
                "properties": {"evidence": {"type": "string"}, **answers},
                "required": ["evidence", *answers],
                "additionalProperties": False,
            }
        )

    @cached_property
    def system(self) -> str:
        """The header, the rubric and the numbered criteria, which all requests share."""
        questions = "\n".join(
            f"{n}. {question}" for n, question in enumerate(self.criteria, start=1)
        )
        text = super().system.rstrip()
        return f"{text}\n\n## The criteria\n\n{questions}\n"

    def parse_reply(self, reply: JudgeReply) -> tuple[Reading, str]:
        """Read the answers to all criteria. A reply that leaves out one of them, or adds one, has no score."""
        values = r"[\s,]++".join(f"(?P<{key}>YES|NO)" for key in self._keys)
        line = compile_line_pattern("CRITERIA", values)
        fields, evidence = read_reply(reply, line, self._read_answers)
        reason = str(fields.get("evidence", evidence)) or reply.text
        answers = self._read_answers(fields)
        if answers is None:
            return Reading(score=None), reason
        criteria = dict(zip(self.criteria, map(float, answers), strict=True))
        return Reading(score=sum(answers) / len(answers), criteria=criteria), reason

    def _read_answers(self, fields: Mapping[str, Any]) -> tuple[bool, ...] | None:
        """Return the answer to each criterion; None unless the reply answers exactly these."""
        answered = {key: value for key, value in fields.items() if key != "evidence"}
        if answered.keys() != {*self._keys}:
            return None
        answers = [
            _BOOL_BY_WORD.get(str(answered[key]).upper(), answered[key])
            for key in self._keys
        ]
        if not all(isinstance(answer, bool) for answer in answers):
            return None
        return tuple(answers)


@dataclass(kw_only=True)
class NumberRubric(PointwiseRubric):
    """A number that a function gives one response, or several numbers by name, whose mean is the score.

    low, high  the least and the greatest number; others are invalid; None: not known
    """

    low: Number | None
    high: Number | None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise SettingError(
                f"low and high must both be numbers or both be null; got {self.low} and {self.high}."
            )
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise SettingError.bad_value(
                "low", self.low, f"be below high, which is {self.high}"
            )
        super().__post_init__()

    @property
    def bounds(self) -> tuple[float, float] | None:
        if self.low is None or self.high is None:
            return None
        return float(self.low), float(self.high)

    @property
    def schema(self) -> str:
        return json.dumps(
            {"type": "object", "properties": {"score": {"type": "number"}}}
        )

    @property
    def scale(self) -> tuple[float, float]:
        return self.bounds or (-math.inf, math.inf)

    def parse_reply(self, reply: JudgeReply) -> tuple[Reading, str]:
        """Read a number, or the mean of several. If one of several is missing, so is the score."""
        try:
            fields = json.loads(reply.text) if reply.stop_reason == "end_turn" else {}
        except ValueError:
            fields = {}
        reason = str(fields.get("reason", ""))
        criteria = {
            name: self._read_number(value)
            for name, value in fields.get("criteria", {}).items()
        }
        if not criteria:
            return Reading(score=self._read_number(fields.get("score"))), reason
        numbers = [value for value in criteria.values() if value is not None]
        is_whole = len(numbers) == len(criteria)
        score = math.fsum(numbers) / len(numbers) if is_whole else None
        return Reading(score=score, criteria=criteria), reason

    def _read_number(self, value: Any) -> float | None:
        low, high = self.scale
        is_number = type(value) in (int, float) and math.isfinite(value)
        return float(value) if is_number and low <= value <= high else None
