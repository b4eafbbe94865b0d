"""Rubrics: which prompts they take, what they show the judge, and how its replies are read."""

import hashlib
import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, ClassVar

from elo_exp import files
from elo_exp.data.conversations import ViewOverrides, ViewSettings
from elo_exp.data.thoughts import split_thought
from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.records import (
    Comparison,
    Item,
    JudgeReply,
    JudgeRequest,
    Prompt,
    Verdict,
    make_fingerprint,
)

_DECODER = json.JSONDecoder(object_pairs_hook=files.make_unique_object)
# A brace with nothing in it, or with a key behind it: no other brace begins an object
_OBJECT_START = re.compile(r'\{(?=\s*+(?:\}|"(?:[^"\\]|\\.)*+"\s*+:))', re.DOTALL)
_VERSION = re.compile(r"#\s*version:\s*(v\d+)\s*$")
_FIRST_SENTENCE = re.compile(r".+?(?=[.!?:;](?:\s|$)|$)")
_MAX_ROLE_CHARS = 100
_VERSION_HASH_CHARS = 8


@dataclass(kw_only=True)
class Instructions:
    """One dimension of quality: a criterion, from a file or given as a text, and the judge's instructions around it.

    path            markdown file with the criterion, which starts with a line `# version: vN`; None: `text` has it
    text            the criterion itself, whose version is its hash if it has no such line
    system_path     file with the header, which says who the judge is
    system_prompt   the header itself; None: that of the file
    needs_reference         show the gold answer, and leave out the prompts that have none
    shows_expected_behavior show `answer`, `hedge` or `abstain` where the prompt has it
    shown                   what of a conversation it shows otherwise than judging.shown
    """

    dimension: str
    path: str | None
    text: str | None = None
    system_path: str
    system_prompt: str | None = None
    template_path: str
    needs_reference: bool = False
    shows_expected_behavior: bool = False
    shown: ViewOverrides = field(default_factory=ViewOverrides)

    # The placeholder and tag of each response in the template, and its field of the subject
    responses: ClassVar[Mapping[str, str]]
    numbers: ClassVar[tuple[str, ...]] = ()  # settings that the template may show
    scale: ClassVar[Any] = None  # of a JudgeRequest

    def __post_init__(self) -> None:
        usable = files.escape_name(self.dimension).strip(". ")
        if not usable or self.dimension != usable:
            raise SettingError.bad_value(
                "dimension",
                self.dimension,
                "be a name that a file can have, such as empathy, without slashes and without a dot at either end",
            )
        if (self.path is None) == (self.text is None):
            raise SettingError(
                f"The rubric {self.dimension} must have either path, a file, or text."
            )

    def check(self) -> None:
        """Raise UserError for a file that is missing or cannot be used."""
        _ = self.version, self.system, self.template, self.schema

    @cached_property
    def criterion(self) -> str:
        """What the judge looks for."""
        if self.text is not None:
            return self.text
        assert self.path is not None
        return files.read_text(self.path)

    @cached_property
    def version(self) -> str:
        lines = filter(None, map(str.strip, self.criterion.splitlines()))
        first_line = next(lines, "")
        if match := _VERSION.match(first_line):
            return match[1]
        if self.text is not None:
            digest = hashlib.sha256(self.text.encode()).hexdigest()
            return digest[:_VERSION_HASH_CHARS]
        raise FileError.bad_file(
            self.path,
            f"starts with {format_value(first_line)}",
            "Its first line that is not empty must be '# version: v1' (or v2, ...).",
        )

    @cached_property
    def template(self) -> str:
        template = files.read_text(self.template_path)
        placeholders = ["question", "reference", "expected", "nonce"]
        placeholders += [*self.responses, *self.numbers]
        try:
            template.format_map(dict.fromkeys(placeholders, ""))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise FileError.bad_file(
                self.template_path,
                f"cannot be filled in ({error!r})",
                "It may use these placeholders:",
                f"  {', '.join(placeholders)}",
            ) from None
        return template

    @property
    def input_files(self) -> Mapping[str, Path]:
        paths = {
            "": self.path,
            "system": self.system_path if self.system_prompt is None else None,
            "template": self.template_path,
        }
        return {role: Path(path) for role, path in paths.items() if path is not None}

    @property
    def schema(self) -> str:
        """The form of the reply, as JSON."""
        raise NotImplementedError

    @cached_property
    def system(self) -> str:
        """The cacheable prefix: every request of this rubric starts with it, byte for byte."""
        header = self.system_prompt
        if header is None:
            header = files.read_text(self.system_path)
        return f"{header.strip()}\n\n{self.criterion.strip()}\n"

    @property
    def role(self) -> str:
        """What the judge is told that it is."""
        return extract_role(self.system)

    @cached_property
    def _prefix(self) -> str:
        text = f"{self.system}\0{self.schema}\0{self.dimension}"
        return hashlib.sha256(text.encode()).hexdigest()

    def applies_to(self, prompt: Prompt) -> bool:
        return prompt.gold_answer is not None or not self.needs_reference

    def merge_settings(self, settings: ViewSettings) -> ViewSettings:
        """Return how much of a conversation this rubric shows."""
        return self.shown.apply(settings)

    def _select_prompt_fields(self, prompt: Prompt) -> dict[str, Any]:
        """Return the fields of a subject that come from the prompt and that this rubric shows."""
        behavior = prompt.expected_behavior if self.shows_expected_behavior else None
        return {
            "prompt_id": prompt.prompt_id,
            "dimension": self.dimension,
            "source": prompt.source,
            "prompt_text": prompt.text,
            "gold_answer": prompt.gold_answer if self.needs_reference else None,
            "expected_behavior": behavior,
        }

    def request(
        self,
        subject: Any,
        *,
        judge: str,
        position_swap: bool = False,
        repeat: int = 0,
        key_fields: Sequence[str] = (),
    ) -> JudgeRequest:
        """Build one query about a Comparison or an Item.

        Its key hashes the judge's fingerprint, every byte that the judge sees, and the fields
        that it reads of the subject itself.
        """
        ordered_subject = subject.swapped() if position_swap else subject
        user = self._render_user_text(ordered_subject)
        key_values = [getattr(ordered_subject, name) for name in key_fields]
        return JudgeRequest(
            key=make_fingerprint([judge, self._prefix, user, repeat, key_values]),
            system=self.system,
            render=self._render_user_text,
            n_chars=len(self.system) + len(user),
            schema=self.schema,
            subject=ordered_subject,
            position_swap=position_swap,
            scale=self.scale,
            repeat=repeat,
        )

    def _render_user_text(self, subject: Comparison | Item) -> str:
        texts = {
            name: getattr(subject, field) for name, field in self.responses.items()
        }
        # No text can contain it, and equal queries give equal bytes.
        nonce = make_fingerprint([subject.prompt_text, *texts.values()])[:16]
        blocks = [
            f"<{tag}>\n{self._escape_tags(text)}\n</{tag}>\n\n"
            if text is not None
            else ""
            for tag, text in (
                ("reference_answer", subject.gold_answer),
                ("expected_behavior", subject.expected_behavior),
            )
        ]
        return self.template.format(
            question=self._escape_tags(subject.prompt_text),
            reference=blocks[0],
            expected=blocks[1],
            nonce=nonce,
            **{name: self._escape_tags(text) for name, text in texts.items()},
            **{name: f"{getattr(self, name):g}" for name in self.numbers},
        )

    def _escape_tags(self, text: str) -> str:
        """Put a backslash before every tag with which a text could close its block or open another."""
        return self._tag_pattern.sub(r"\\<", text)

    @cached_property
    def _tag_pattern(self) -> re.Pattern[str]:
        names = ["question", "reference_answer", "expected_behavior", *self.responses]
        return re.compile(rf"<(?=\s*+/?\s*+(?:{'|'.join(names)})\b)", re.IGNORECASE)


def extract_role(system: str) -> str:
    """Return what a header tells a judge that it is: its first sentence, without headings and "You are".

    A header may have no full stop, so that the sentence ends with its paragraph.
    """
    lines = [line.strip() for line in system.splitlines()]
    text_lines = dropwhile(lambda line: not line or line.startswith("#"), lines)
    words = " ".join(takewhile(bool, text_lines))
    sentence = _FIRST_SENTENCE.match(words)
    role = re.sub("^You are ", "", sentence[0]) if sentence else ""
    return (
        role
        if len(role) <= _MAX_ROLE_CHARS
        else f"{role[: _MAX_ROLE_CHARS - 1].rstrip()}…"
    )


def strip_version(criterion: str) -> str:
    """Return the text of a rubric without its first line, if this is the version."""
    first_line, _, text = criterion.strip().partition("\n")
    return text.strip() if _VERSION.match(first_line) else criterion.strip()


def compile_line_pattern(name: str, value: str) -> re.Pattern[str]:
    """Match a line such as 'VERDICT: A', in markdown or not; the groups are in `value`."""
    pattern = rf"^[ \t>#*_`]*{name}:[\s*_`\"]*{value}[\s*_`\".]*$"
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def read_reply(
    reply: JudgeReply, line: re.Pattern[str], value: Callable[[Mapping[str, Any]], Any]
) -> tuple[dict[str, Any], str]:
    """Return the fields of the last thing that a reply says, and the text before it.

    That is a JSON object, or a line whose groups are the fields; a thought is no part of the reply.
    value  reads fields; None where they say nothing
    There are no fields where the reply says nothing or two things, or goes on, and where it did not
    end by itself.
    """
    if reply.stop_reason != "end_turn":
        return {}, ""
    answer = line.sub(_convert_line, split_thought(reply.text)[0])
    answer = answer.rstrip("`" + string.whitespace)
    values, fields, start, end = set(), dict[str, Any](), 0, 0
    for brace in _OBJECT_START.finditer(answer):
        if brace.start() >= end:
            with suppress(ValueError, RecursionError):
                fields, end = _DECODER.raw_decode(answer, brace.start())
                start = brace.start()
                values.add(value(fields))
    if end == len(answer) and values - {None} == {value(fields)}:
        return fields, answer[:start].strip()
    return {}, ""


def _convert_line(line: re.Match[str]) -> str:
    groups = [(name, group) for name, group in line.groupdict().items() if group]
    return json.dumps({name: x if x.isalpha() else float(x) for name, x in groups})


# Of pairs

_VERDICT_LINE = compile_line_pattern("VERDICT", "(?P<verdict>A|B|TIE)")


@dataclass(kw_only=True)
class Rubric(Instructions):
    """Which of two responses is better on one dimension."""

    schema_path: str

    responses: ClassVar[Mapping[str, str]] = {
        "response_a": "response_a",
        "response_b": "response_b",
    }

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {**super().input_files, "schema": Path(self.schema_path)}

    @property
    def key(self) -> str:
        """A fingerprint of every byte of system text, rubric, template and schema."""
        return make_fingerprint([self._prefix, self.template])

    @cached_property
    def schema(self) -> str:
        return json.dumps(files.read_json(Path(self.schema_path)))

    def compare(self, prompt: Prompt, **answers: Any) -> Comparison:
        """Compare two responses, with only what this rubric shows of the prompt.

        answers  entrant_a, entrant_b, response_a, response_b and what else a Comparison has
        """
        return Comparison(**self._select_prompt_fields(prompt), **answers)

    def parse(
        self,
        request: JudgeRequest,
        reply: JudgeReply,
        *,
        judge_model: str,
        share: float | None = None,
    ) -> Verdict:
        """Read a verdict. A refusal, a truncation and anything unreadable are INVALID, no tie.

        share  what the reply gives to the response shown as A, where more than its label is read
        """
        fields, evidence = read_reply(reply, _VERDICT_LINE, _read_label)
        if fields.keys() & {"evidence_a", "evidence_b"}:
            evidence = (
                f"A: {fields.get('evidence_a', '')} | B: {fields.get('evidence_b', '')}"
            )
        elif fields.get("reason"):
            evidence = str(fields["reason"])
        scores: list[Any] = [fields.get("score_a"), fields.get("score_b")]
        is_scored = all(type(x) in (int, float) and 0 <= x <= 10 for x in scores)
        label = _read_label(fields)
        return Verdict(
            cache_key=reply.key,
            rubric_version=self.version,
            judge_model=judge_model,
            position_swap=request.position_swap,
            verdict=label or "INVALID",
            share=share if label else None,
            scores=(float(scores[0]), float(scores[1])) if is_scored else None,
            reasoning=evidence or reply.text,
            mirrored=reply.mirrored,
            repeat=request.repeat,
            stop_reason=reply.stop_reason,
            timestamp=reply.timestamp,
            usage=reply.usage,
            dollars=reply.dollars or None,
        )


def check_dimensions(rubrics: Sequence[Instructions]) -> None:
    """Raise SettingError where two rubrics have one dimension: verdicts could not be told apart."""
    paths: dict[str, str] = {}
    for rubric in rubrics:
        source = rubric.path or "a text"
        if rubric.dimension in paths:
            raise SettingError(
                f"Two rubrics have the dimension {rubric.dimension}: {paths[rubric.dimension]} and {source}. Give each "
                "its own:",
                "  rubric.NAME.dimension=DIMENSION",
            )
        paths[rubric.dimension] = source


def _read_label(fields: Mapping[str, Any]) -> str | None:
    label = str(fields.get("verdict")).strip().upper()
    return label if label in ("A", "B", "TIE") else None
