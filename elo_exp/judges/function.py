"""A judge that is a function of Python: it gets a prompt and two answers, and names the better one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elo_exp import functions
from elo_exp.errors import SettingError
from elo_exp.judges import Judge
from elo_exp.records import Comparison, JudgeReply, JudgeRequest
from elo_exp.types import CacheKey, Count, JudgeKind


@dataclass(kw_only=True)
class FunctionJudge(Judge):
    """function         module:function; it gets a prompt and the answers A and B, and returns A, B, tie or the share of A
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
        if any(request.scale is not None for request in requests):
            raise SettingError(
                "A judge that is a function compares two answers, and the rubric asks it for a score. Choose another rubric."
            )
        for request, result in functions.call_each(
            function,
            requests,
            _list_arguments,
            max_concurrency=self.max_concurrency,
        ):
            verdict, reason = functions.read_verdict(result)
            yield request.reply(verdict, reason=reason)


def _list_arguments(request: JudgeRequest) -> tuple[str, str, str]:
    subject = request.subject
    assert isinstance(subject, Comparison)
    return subject.prompt_text, subject.response_a, subject.response_b
