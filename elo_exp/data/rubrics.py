"""Rubrics: which prompts they take, what they show the judge, and how its replies are read."""

import hashlib
import json
import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from elo_exp import files
from elo_exp.data.thoughts import split_thought
from elo_exp.records import (
    Comparison,
    Item,
    JudgeReply,
    JudgeRequest,
    Prompt,
    UserError,
    Verdict,
    fingerprint,
)

_DECODER = json.JSONDecoder(object_pairs_hook=files.unique_keys)
_VERSION = re.compile(r"#\s*version:\s*(v\d+)\s*$")


def tags_of(*responses: str) -> re.Pattern[str]:
    """Match what opens or closes a block of a message that shows these responses."""
    names = "|".join(["question", "reference_answer", "expected_behavior", *responses])
    return re.compile(rf"<(?=\s*/?\s*(?:{names})\b)", re.IGNORECASE)


@dataclass(kw_only=True)
class Instructions(ABC):
    """One dimension of quality, from a markdown file that starts with a line `# version: vN`.

    needs_reference         show the gold answer, and leave out the prompts that have none
    shows_expected_behavior show `answer`, `hedge` or `abstain` where the prompt has it
    """

    dimension: str
    path: str
    system_path: str
    template_path: str
    needs_reference: bool = False
    shows_expected_behavior: bool = False

    placeholders: ClassVar[tuple[str, ...]]  # of the template
    # Texts under judgment may not close their own block or open another.
    tags: ClassVar[re.Pattern[str]]

    def __post_init__(self) -> None:
        usable = files.safe_name(self.dimension).strip(". ")
        if not usable or self.dimension != usable:
            raise UserError(
                f"dimension: found {self.dimension!r}. Expected a name that files can have, such "
                "as 'empathy': without slashes, and no dot at either end."
            )

    def check(self) -> None:
        """Raise UserError for a file that is missing or cannot be used."""
        _ = self.version, self.system, self.template, self.schema

    @cached_property
    def text(self) -> str:
        return read(self.path)

    @cached_property
    def version(self) -> str:
        lines = filter(None, map(str.strip, self.text.splitlines()))
        first = next(lines, "")
        if not (match := _VERSION.match(first)):
            raise UserError(
                f"{self.path}: starts with {first[:40]!r}. Expected '# version: v1' (or v2, ...) "
                "as the first non-empty line."
            )
        return match[1]

    @cached_property
    def template(self) -> str:
        template = read(self.template_path)
        try:
            template.format_map(dict.fromkeys(self.placeholders, ""))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"{self.template_path}: cannot be filled in ({error!r}). Known placeholders: "
                f"{', '.join(self.placeholders)}."
            ) from None
        return template

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {
            "": Path(self.path),
            "system": Path(self.system_path),
            "template": Path(self.template_path),
        }

    @property
    @abstractmethod
    def schema(self) -> str:
        """The form of the reply, as JSON."""

    @abstractmethod
    def _texts(self, shown: Any) -> Mapping[str, str]:
        """Texts for the template, beside the blocks that all messages have."""

    @cached_property
    def system(self) -> str:
        """The cacheable prefix: every request of this rubric starts with it, byte for byte."""
        return f"{read(self.system_path).strip()}\n\n{self.text.strip()}\n"

    @cached_property
    def _prefix(self) -> str:
        text = f"{self.system}\0{self.schema}\0{self.dimension}"
        return hashlib.sha256(text.encode()).hexdigest()

    def applies_to(self, prompt: Prompt) -> bool:
        return prompt.gold_answer is not None or not self.needs_reference

    def _shown_of(self, prompt: Prompt) -> dict[str, Any]:
        """The fields of a subject that come from the prompt, with only what this rubric shows."""
        shown: dict[str, Any] = {
            "prompt_id": prompt.prompt_id,
            "dimension": self.dimension,
            "source": prompt.source,
            "prompt_text": prompt.text,
        }
        if self.needs_reference:
            shown["gold_answer"] = prompt.gold_answer
        if self.shows_expected_behavior:
            shown["expected_behavior"] = prompt.expected_behavior
        return shown

    def _request(
        self,
        subject: Comparison | Item,
        *,
        judge: str,
        repeat: int,
        known: Sequence[Any],
        **fields: Any,
    ) -> JudgeRequest:
        """One query, by a key of the judge, every byte that it sees, and what else it knows."""
        user = self._user_text(subject)
        return JudgeRequest(
            key=fingerprint([judge, self._prefix, user, repeat, known]),
            system=self.system,
            render=self._user_text,
            n_chars=len(self.system) + len(user),
            schema=self.schema,
            subject=subject,
            repeat=repeat,
            **fields,
        )

    def _user_text(self, shown: Comparison | Item) -> str:
        common = {
            "question": self._inert(shown.prompt_text),
            "reference": self._block("reference_answer", shown.gold_answer),
            "expected": self._block("expected_behavior", shown.expected_behavior),
        }
        return self.template.format_map({**common, **self._texts(shown)})

    def _block(self, tag: str, text: str | None) -> str:
        return f"<{tag}>\n{self._inert(text)}\n</{tag}>\n\n" if text is not None else ""

    def _inert(self, text: str) -> str:
        """Put a backslash before every tag that could be taken for one of ours."""
        return self.tags.sub(r"\\<", text)


def nonce(*texts: str) -> str:
    """Derive a nonce from the texts: none can contain it, and equal queries give equal bytes."""
    return fingerprint(texts)[:16]


def line_of(name: str, value: str) -> re.Pattern[str]:
    """Match a line such as 'VERDICT: A', in markdown or not; the groups are in `value`."""
    pattern = rf"^[ \t>#*_`]*{name}:[\s*_`\"]*{value}[\s*_`\".]*$"
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def read_reply(
    text: str, line: re.Pattern[str], value: Callable[[Mapping[str, Any]], Any]
) -> tuple[dict[str, Any], str]:
    """Return the fields of the last thing that a reply says, and the text before it.

    That is a JSON object, or a line whose groups are the fields; a thought is no part of the reply.
    value  reads fields; None where they say nothing
    There are no fields where the reply says nothing or two things, or goes on.
    """
    answer = line.sub(_as_json, split_thought(text)[0])
    answer = answer.rstrip("`" + string.whitespace)
    values, fields, start, end = set(), dict[str, Any](), 0, 0
    for brace in re.finditer("{", answer):
        if brace.start() >= end:
            with suppress(ValueError, RecursionError):
                fields, end = _DECODER.raw_decode(answer, brace.start())
                start = brace.start()
                values.add(value(fields))
    if end == len(answer) and values - {None} == {value(fields)}:
        return fields, answer[:start].strip()
    return {}, ""


def _as_json(line: re.Match[str]) -> str:
    groups = [(name, group) for name, group in line.groupdict().items() if group]
    return json.dumps({name: x if x.isalpha() else float(x) for name, x in groups})


def read(path: str) -> str:
    with files.open_text(Path(path)) as file:
        return file.read()


# Of pairs

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
