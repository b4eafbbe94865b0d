"""An entrant that is a function of Python, such as a retrieval chain: it gets a prompt and returns an answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elo_exp import functions
from elo_exp.entrants import Entrant
from elo_exp.errors import SettingError
from elo_exp.records import Prompt, Response
from elo_exp.types import CacheKey, Count


@dataclass(kw_only=True)
class FunctionEntrant(Entrant):
    """function         module:function; it gets the text of a prompt and returns an answer, also as a coroutine
    version          stored answers of another version are not used
    run_scope        without a version: the run whose stored answers are used
    max_concurrency  calls at a time
    """

    entrant_id: str
    function: str
    version: str | None
    run_scope: str | None
    max_concurrency: Count

    def check(self) -> None:
        functions.find_function(self.function, self._setting)

    @property
    def _setting(self) -> str:
        return f"entrant.{self.entrant_id}.function"

    def cache_key(self, prompt: Prompt) -> CacheKey:
        function = functions.find_function(self.function, self._setting)
        key = functions.make_function_key(function, self.version, self.run_scope)
        return {"entrant": "function", **key, **prompt.content}

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        function = functions.find_function(self.function, self._setting)
        for prompt, answer in functions.call_each(
            function,
            prompts,
            lambda prompt: (prompt.text,),
            max_concurrency=self.max_concurrency,
        ):
            if not isinstance(answer, str):
                raise SettingError(
                    f"The function of entrant {self.entrant_id} must return a text; got {answer!r:.80}."
                )
            yield self.respond(prompt, answer)
