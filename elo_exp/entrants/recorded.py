"""Answers made elsewhere: responses_<entrant_id>.jsonl, or a file in any format of data.answers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.data import answer_joins, conversations, recorded_work
from elo_exp.entrants import Entrant
from elo_exp.errors import FileError, format_value
from elo_exp.files import escape_name, read_jsonl, report_read_errors, validate
from elo_exp.records import Prompt, Response, Slot, canonical_json
from elo_exp.types import CacheKey


@dataclass(kw_only=True)
class RecordedEntrant(Entrant):
    """Answers with the rows of a file: `prompt_id` and `response_text`, or `messages`, and `draw_idx` where a prompt
    has several answers; unknown keys are ignored.

    Messages are a whole conversation, or what of it follows the first question; what the user says is what the prompt
    asks.

    path  the file, or a folder with responses_<entrant_id>.jsonl. Of a file with several entrants,
          the rows of this one are taken; a file of one entrant may give it any name.
    """

    whole = True
    is_instant = True

    entrant_id: str
    path: str

    @property
    def _file(self) -> Path:
        path = Path(self.path)
        name = f"responses_{escape_name(self.entrant_id)}.jsonl"
        return path / name if path.is_dir() else path

    @cached_property
    @report_read_errors
    def _responses(self) -> dict[Slot, Response]:
        """The answers to each prompt, numbered from 0 in the order of their draw_idx."""
        rows = list(read_jsonl(self._file))
        entrants = {_read_entrant_name(location, row) for location, row in rows}
        responses: dict[Slot, Response] = {}
        for location, row in rows:
            if (
                len(entrants) > 1
                and _read_entrant_name(location, row) != self.entrant_id
            ):
                continue
            row["entrant_id"] = self.entrant_id
            row["diagnostics"] = row.get("diagnostics") or {}
            if row.get("messages"):
                row["messages"] = recorded_work.parse_messages(
                    row["messages"], location
                )
                row.setdefault(
                    "response_text", conversations.final_answer(row["messages"])
                )
            response = validate(Response, row, location)
            try:
                canonical_json(response.to_dict())
            except ValueError:
                raise FileError.bad_file(
                    location,
                    "holds NaN or Infinity, which JSON does not have",
                    "Write null, or leave it out.",
                ) from None
            earlier = responses.setdefault(response.slot, response)
            compared_fields = "response_text", "messages"
            if any(
                getattr(earlier, x) != getattr(response, x) for x in compared_fields
            ):
                raise FileError.bad_file(
                    location,
                    f"holds a second, different answer to {response.prompt_id}",
                    "Keep one of them, or number them by draw_idx: 0, 1, ...",
                )
        if rows and not responses:
            names = ", ".join(sorted(map(str, entrants)))
            raise FileError.bad_file(
                self._file,
                f"holds no answer of {self.entrant_id}",
                f"It holds answers of {names}.",
            )
        by_prompt: dict[str, list[Response]] = {}
        for slot in sorted(responses, key=lambda slot: slot[1]):
            by_prompt.setdefault(slot[0], []).append(responses[slot])
        return {
            (name, i): replace(answer, draw_idx=i) if i != answer.draw_idx else answer
            for name, answers in by_prompt.items()
            for i, answer in enumerate(answers)
        }

    @property
    def n_draws(self) -> int:
        """The least number of answers to any prompt in the file."""
        counts = Counter(name for name, _ in self._responses)
        return min(counts.values(), default=1)

    @property
    def varies(self) -> bool:
        return self.n_draws > 1

    def check(self) -> None:
        """Raise UserError for a file that is absent or cannot be read."""
        _ = self._responses

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {"": self._file}

    def cache_key(self, prompt: Prompt) -> CacheKey:
        return _build_key(prompt, self._find_response(prompt))

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        return filter(None, map(self._find_response, prompts))

    def _find_response(self, prompt: Prompt) -> Response | None:
        """Return the response to a prompt. Raises FileError for one to other turns than the prompt's."""
        response = self._responses.get(prompt.slot)
        if response is None or not (prompt.messages or response.messages):
            return response
        try:
            return conversations.trim_to_prompt(prompt, response)
        except ValueError as error:
            raise FileError(
                f"{self._file}: the answer of {self.entrant_id} to {prompt.prompt_id} {error}"
            ) from None


@dataclass(kw_only=True)
class AnswersEntrant(Entrant):
    """Answers of a file in any format of data.answers, found by a prompt's text or else its id.

    inside   the file's own name for this entrant, where it has several
    columns  the file's column of each role that the command names
    """

    whole = True
    is_instant = True

    entrant_id: str
    path: str
    inside: str | None
    columns: dict[str, str | list[str]] = field(default_factory=dict)

    @cached_property
    def _answer_set(self) -> answer_joins.AnswerSet:
        return answer_joins.read_answer_set(
            Path(self.path), self.entrant_id, self.inside, self.columns
        )

    def check(self) -> None:
        """Raise UserError for a file that is absent or cannot be read."""
        _ = self._answer_set

    @property
    def n_draws(self) -> int:
        return self._answer_set.n_draws

    @property
    def varies(self) -> bool:
        return self.n_draws > 1

    @property
    def input_files(self) -> Mapping[str, Path]:
        return {"": Path(self.path)}

    def cache_key(self, prompt: Prompt) -> CacheKey:
        return _build_key(prompt, self._answer_set.find_response(prompt))

    def lacks(self, prompt: Prompt) -> bool:
        return self._answer_set.find_answer(prompt) is None

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        return filter(None, map(self._answer_set.find_response, prompts))


def _read_entrant_name(location: str, row: Mapping[str, Any]) -> str | None:
    """Return the entrant that a row names. Raises FileError for what is no name."""
    value = row.get("entrant_id")
    if isinstance(value, list | dict):
        raise FileError(
            f"{location}: entrant_id must be a name; got {format_value(value)}."
        )
    return None if value is None else str(value)


def _build_key(prompt: Prompt, response: Response | None) -> CacheKey:
    return {
        "loader": "recorded",
        "prompt_id": prompt.prompt_id,
        "response": response and response.to_dict(),
    }
