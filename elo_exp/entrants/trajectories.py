"""Trajectories that an agent has left: a log of Inspect, or rows of OpenAI messages with the calls of tools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elo_exp.data import answer_joins, recorded_work
from elo_exp.entrants import Entrant
from elo_exp.errors import FileError
from elo_exp.records import Prompt, Response
from elo_exp.types import CacheKey

_TRAJECTORY_FORMATS = ("inspect_ai log", "conversations")


@dataclass(kw_only=True)
class TrajectoriesEntrant(Entrant):
    """Answers with what followed a question until the agent was done: its words, calls, and what tools said.

    A sample is found by its id, and an epoch by its draw. A sample that ended in an error is missing.

    path  of a file with several agents, the rows of the one that is called as this entrant are taken
    """

    # an answer has all turns
    whole = True
    is_instant = True

    entrant_id: str
    path: str

    @cached_property
    def _answer_set(self) -> answer_joins.AnswerSet:
        answer_set = answer_joins.read_answer_set(
            Path(self.path), self.entrant_id, None
        )
        if answer_set.format not in _TRAJECTORY_FORMATS:
            raise FileError.bad_file(
                self.path,
                f"holds neither a log of Inspect nor rows of messages, but {answer_set.format}",
                "For such answers, write:",
                f"  answers={self.path}",
            )
        return answer_set

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
        response = self._find_response(prompt)
        return {
            "loader": "trajectories",
            "prompt_id": prompt.prompt_id,
            "response": response and response.to_dict(),
        }

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        return filter(None, map(self._find_response, prompts))

    def _find_response(self, prompt: Prompt) -> Response | None:
        """Return the answer to a prompt. Raises FileError where the sample of its id asks something else."""
        for row in self._answer_set.rows_with_id(prompt.prompt_id):
            if not recorded_work.matches_prompt(
                row.question_messages, row.prompt, row.messages, prompt
            ):
                raise FileError.bad_file(
                    self.path,
                    f"asks another question at sample {prompt.prompt_id} than the prompts of {self.entrant_id}",
                    "Give logs of one task.",
                )
        return self._answer_set.find_response(prompt)
