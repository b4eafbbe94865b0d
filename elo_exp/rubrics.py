"""A rubric: which prompts it applies to, what the judge is shown, and what the judge's reply means."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elo_exp import files
from elo_exp.records import Comparison, JudgeReply, JudgeRequest, Prompt, UserError, Verdict, fingerprint

_VERSION = re.compile(r"#\s*version:\s*(v\d+)\s*$")
_LAST_LINE = re.compile(r"VERDICT:\s*(A|B|TIE)\.?$")
_PLACEHOLDERS = ("question", "reference", "expected", "response_a", "response_b", "nonce")
# Texts under judgment may not close their own block or open another.
_OUR_TAGS = re.compile(r"<(?=\s*/?\s*(?:question|reference_answer|expected_behavior|response_[ab])\b)", re.IGNORECASE)


@dataclass(kw_only=True)
class Rubric:
    """One dimension of quality, read from a markdown file whose first non-empty line is `# version: vN`.

    needs_reference         show the gold answer, and leave out the prompts that have none
    shows_expected_behavior show `answer`, `hedge` or `abstain` where the prompt says so
    """

    dimension: str
    path: str
    system_path: str
    template_path: str
    schema_path: str
    needs_reference: bool = False
    shows_expected_behavior: bool = False

    def __post_init__(self) -> None:
        self.text = _read(self.path)
        self.version = _version(self.path, self.text)
        self.header = _read(self.system_path)
        self.template = _read(self.template_path)
        try:
            self.template.format_map(dict.fromkeys(_PLACEHOLDERS, ""))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"{self.template_path}: cannot be filled in ({error!r}). Known placeholders: "
                f"{', '.join(_PLACEHOLDERS)}."
            ) from None
        try:
            self.schema = json.dumps(json.loads(_read(self.schema_path)))
        except json.JSONDecodeError as error:
            raise UserError(f"{self.schema_path}: not JSON ({error}).") from None

    @cached_property
    def system(self) -> str:
        """What every request of this rubric starts with, byte for byte: the cacheable prefix."""
        return f"{self.header.strip()}\n\n{self.text.strip()}\n"

    @cached_property
    def _n_bytes(self) -> int:
        return len(self.system.encode(errors="replace"))

    @cached_property
    def _prefix(self) -> str:
        return hashlib.sha256(f"{self.system}\0{self.schema}\0{self.dimension}".encode()).hexdigest()

    def applies_to(self, prompt: Prompt) -> bool:
        return prompt.gold_answer is not None or not self.needs_reference

    def compare(
        self, prompt: Prompt, *, entrant_a: str, entrant_b: str, response_a: str, response_b: str
    ) -> Comparison:
        """The question put to the judge, holding of the prompt only what this rubric shows."""
        return Comparison(
            prompt_id=prompt.prompt_id,
            dimension=self.dimension,
            source=prompt.source,
            prompt_text=prompt.text,
            entrant_a=entrant_a,
            entrant_b=entrant_b,
            response_a=response_a,
            response_b=response_b,
            gold_answer=prompt.gold_answer if self.needs_reference else None,
            expected_behavior=prompt.expected_behavior if self.shows_expected_behavior else None,
        )

    def request(
        self,
        comparison: Comparison,
        *,
        judge: str,
        position_swap: bool,
        repeat: int = 0,
        reads: Sequence[str] = (),
    ) -> JudgeRequest:
        """One query. Its key covers the judge's fingerprint, every byte that the judge sees, and the fields that it
        reads of the comparison itself."""
        shown = comparison.swapped() if position_swap else comparison
        user = self._user_text(shown)
        key = fingerprint([judge, self._prefix, user, repeat, [getattr(shown, name) for name in reads]])
        return JudgeRequest(
            key=key,
            system=self.system,
            render=self._user_text,
            n_chars=len(self.system) + len(user),
            n_bytes=self._n_bytes + len(user.encode(errors="replace")),
            schema=self.schema,
            subject=shown,
            position_swap=position_swap,
            repeat=repeat,
        )

    def _user_text(self, shown: Comparison) -> str:
        texts = {
            "question": _inert(shown.prompt_text),
            "response_a": _inert(shown.response_a),
            "response_b": _inert(shown.response_b),
            "reference": _block("reference_answer", shown.gold_answer),
            "expected": _block("expected_behavior", shown.expected_behavior),
            # No text can hold a nonce that depends on the text, and equal queries still give equal bytes.
            "nonce": fingerprint([shown.prompt_text, shown.response_a, shown.response_b])[:16],
        }
        return self.template.format_map(texts)

    def parse(self, request: JudgeRequest, reply: JudgeReply, *, judge_model: str) -> Verdict:
        """What a reply says. A refusal, a truncation and anything unreadable are INVALID, never a tie."""
        verdict, reasoning = _read_verdict(reply.text) if reply.stop_reason == "end_turn" else (None, "")
        return Verdict(
            cache_key=reply.key,
            rubric_version=self.version,
            judge_model=judge_model,
            position_swap=request.position_swap,
            verdict=verdict or "INVALID",
            reasoning=reasoning or reply.text,
            mirrored=reply.mirrored,
            repeat=request.repeat,
            stop_reason=reply.stop_reason,
            timestamp=reply.timestamp,
            usage=reply.usage,
        )


def _read(path: str) -> str:
    with files.open_text(Path(path)) as file:
        return file.read()


def _version(path: str, text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not (match := _VERSION.match(first)):
        raise UserError(
            f"{path}: starts with {first[:40]!r}. Expected '# version: v1' (or v2, ...) as the first non-empty line."
        )
    return match[1]


def _block(tag: str, text: str | None) -> str:
    return f"<{tag}>\n{_inert(text)}\n</{tag}>\n\n" if text is not None else ""


def _inert(text: str) -> str:
    """The text with a backslash before every tag that could be taken for one of ours."""
    return _OUR_TAGS.sub(r"\\<", text)


def _read_verdict(text: str) -> tuple[str | None, str]:
    """The verdict and the evidence of a reply: the JSON object asked for, or 'VERDICT: X' as the last line."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        match = _LAST_LINE.match(lines[-1]) if lines else None
        return (match[1], "\n".join(lines[:-1])) if match else (None, "")
    if not isinstance(answer, dict) or answer.get("verdict") not in ("A", "B", "TIE"):
        return None, ""
    return answer["verdict"], f"A: {answer.get('evidence_a', '')} | B: {answer.get('evidence_b', '')}"
