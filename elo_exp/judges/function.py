"""A judge that is a function of Python: of two answers it names the better one, to a single answer it gives a number."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp import functions
from elo_exp.judges import Judge
from elo_exp.records import Item, JudgeReply, JudgeRequest
from elo_exp.types import CacheKey, Count, JudgeKind


@dataclass(kw_only=True)
class FunctionJudge(Judge):
    """function         module:function; it gets a prompt and the answers A and B, and returns A, B, tie or the share of A.
                     With scoring=number it gets a prompt and an answer, and returns a number or several by name
    version          stored verdicts of another version are not used
    run_scope        without a version: the run whose stored verdicts are used
    max_concurrency  calls at a time
    """

    model: str
    kind: JudgeKind | None
    function: str
    version: str | None
    run_scope: str | None
    max_concurrency: Count

    answers_criteria = False
    gives_numbers = True

    def check(self) -> None:
        functions.find_function(self.function, "judge.function")

    @property
    def receives_instructions(self) -> bool:
        return False

    def cache_key(self) -> CacheKey:
        function = functions.find_function(self.function, "judge.function")
        key = functions.make_function_key(function, self.version, self.run_scope)
        return {"judge": "function", **key}

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        function = functions.find_function(self.function, "judge.function")
        for request, result in functions.call_each(
            function,
            requests,
            _list_arguments,
            max_concurrency=self.max_concurrency,
        ):
            if isinstance(request.subject, Item):
                yield _make_number_reply(request, result)
                continue
            verdict, reason = functions.read_verdict(result)
            yield request.reply(verdict, reason=reason)


def _list_arguments(request: JudgeRequest) -> tuple[str, ...]:
    subject = request.subject
    if isinstance(subject, Item):
        return subject.prompt_text, subject.response_text
    return subject.prompt_text, subject.response_a, subject.response_b


def _make_number_reply(request: JudgeRequest, result: Any) -> JudgeReply:
    """Return the numbers of a function as `NumberRubric` reads them."""
    score, criteria, reason = functions.read_numbers(result)
    numbers = {"criteria": criteria} if criteria else {"score": score}
    text = json.dumps({"reason": reason, **numbers})
    return JudgeReply(key=request.key, text=text, **request.names)
