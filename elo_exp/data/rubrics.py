"""A rubric for pairs: which prompts it takes, what it shows the judge, how its replies are read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.data.instructions import (
    Instructions,
    line_of,
    nonce,
    read,
    read_reply,
    tags_of,
)
from elo_exp.records import (
    Comparison,
    JudgeReply,
    JudgeRequest,
    Prompt,
    UserError,
    Verdict,
    fingerprint,
)

_LINE = line_of("VERDICT", "(?P<verdict>A|B|TIE)")


@dataclass(kw_only=True)
class Rubric(Instructions):
    """Which of two responses is better on one dimension."""

    schema_path: str

    placeholders = (
        "question",
        "reference",
        "expected",
        "response_a",
        "response_b",
        "nonce",
    )
    tags = tags_of("response_a", "response_b")

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {**super().input_files, "schema": Path(self.schema_path)}

    @property
    def key(self) -> str:
        """A fingerprint of every byte of system text, rubric, template and schema."""
        return fingerprint([self._prefix, self.template])

    @cached_property
    def schema(self) -> str:
        try:
            return json.dumps(json.loads(read(self.schema_path)))
        except json.JSONDecodeError as error:
            raise UserError(f"{self.schema_path}: not JSON ({error}).") from None

    def compare(self, prompt: Prompt, **answers: str) -> Comparison:
        """Compare two responses, with only what this rubric shows of the prompt.

        answers  entrant_a, entrant_b, response_a and response_b
        """
        return Comparison(**self._shown_of(prompt), **answers)

    def request(
        self,
        comparison: Comparison,
        *,
        judge: str,
        position_swap: bool,
        repeat: int = 0,
        key_fields: Sequence[str] = (),
    ) -> JudgeRequest:
        """Build one query.

        Its key hashes the judge's fingerprint, every byte that the judge sees, and the fields
        that it reads of the comparison itself.
        """
        shown = comparison.swapped() if position_swap else comparison
        known = [getattr(shown, name) for name in key_fields]
        return self._request(
            shown, judge=judge, repeat=repeat, known=known, position_swap=position_swap
        )

    def _texts(self, shown: Comparison) -> Mapping[str, str]:
        return {
            "response_a": self._inert(shown.response_a),
            "response_b": self._inert(shown.response_b),
            "nonce": nonce(shown.prompt_text, shown.response_a, shown.response_b),
        }

    def parse(
        self, request: JudgeRequest, reply: JudgeReply, *, judge_model: str
    ) -> Verdict:
        """Read a verdict. A refusal, a truncation and anything unreadable are INVALID, no tie."""
        fields: dict[str, Any] = {}
        evidence = ""
        if reply.stop_reason == "end_turn":
            fields, evidence = read_reply(reply.text, _LINE, _label)
        if fields.keys() & {"evidence_a", "evidence_b"}:
            evidence = (
                f"A: {fields.get('evidence_a', '')} | B: {fields.get('evidence_b', '')}"
            )
        scores: list[Any] = [fields.get("score_a"), fields.get("score_b")]
        is_scored = all(type(x) in (int, float) and 0 <= x <= 10 for x in scores)
        return Verdict(
            cache_key=reply.key,
            rubric_version=self.version,
            judge_model=judge_model,
            position_swap=request.position_swap,
            verdict=_label(fields) or "INVALID",
            scores=(float(scores[0]), float(scores[1])) if is_scored else None,
            reasoning=evidence or reply.text,
            mirrored=reply.mirrored,
            repeat=request.repeat,
            stop_reason=reply.stop_reason,
            timestamp=reply.timestamp,
            usage=reply.usage,
        )


def check_dimensions(rubrics: Sequence[Rubric]) -> None:
    """Raise UserError where two rubrics have one dimension: verdicts could not be told apart."""
    paths: dict[str, str] = {}
    for rubric in rubrics:
        if rubric.dimension in paths:
            raise UserError(
                f"rubric: two are of the dimension {rubric.dimension!r}, {paths[rubric.dimension]} "
                f"and {rubric.path}. Give each a dimension of its own: rubric.NAME.dimension=..."
            )
        paths[rubric.dimension] = rubric.path


def _label(fields: Mapping[str, Any]) -> str | None:
    label = str(fields.get("verdict")).strip().upper()
    return label if label in ("A", "B", "TIE") else None
