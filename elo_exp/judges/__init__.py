"""Judges turn requests into replies; rubrics render the requests and parse the replies."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from elo_exp.analysis.conclusions import Scope
from elo_exp.api import first_token
from elo_exp.api.batch_protocol import BatchSettings, check_quarantine
from elo_exp.api.costs import Budget, Prices, TokenEstimator
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.api.openai import OpenAiSettings
from elo_exp.data.rubrics import Instructions
from elo_exp.default_keys import make_default_key
from elo_exp.errors import BudgetError, SettingError
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.types import (
    CacheKey,
    Count,
    Dollars,
    JudgeKind,
    NonNegative,
    Positive,
    VerdictForm,
)

R = TypeVar("R", bound=Instructions)

LEXICAL_MODEL = "lexical"
_CHAT_KEY_FIELDS = (
    "model",
    "structured",
    "max_tokens",
    "max_tokens_name",
    "temperature",
    "extra_body",
)
_ONE_TOKEN_KEY_FIELDS = ("model", "max_tokens_name", "extra_body", "verdict", "lead")


class Judge(ABC):
    """Base class of judges: a dataclass whose fields are its settings. Only `model` and `answer` have no default.

    Building one reads no file, network or environment: that is for `check` and `cache_key`. A field `kind` (model, words,
    people) words the conclusions.

    model        name of the judge in verdicts and on pages
    key_fields   fields of the comparison, beyond the rendered text, that can change a reply
    is_instant   replies take no time: many are committed together, and no other process waits for them
    is_recorded  replies are those of others, which are in files
    answers_criteria  it can answer the yes/no criteria of a scoring
    gives_numbers  it scores an answer by numbers of its own, and reads no rubric
    """

    required_attributes = ("model",)
    model: str
    key_fields: tuple[str, ...] = ()
    is_instant = False
    is_recorded = False
    answers_criteria = True
    gives_numbers = False

    @abstractmethod
    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """Yield `request.reply(...)` for each request, in any order, as replies are made; leave out those without an answer.

        Each is stored before the next is asked for, and none is asked for again.
        """

    def cache_key(self) -> CacheKey:
        """Return everything of the judge that can change a reply, as JSON; part of every key.

        By default the file of the class and the settings. Raises UserError for a model or a file that is absent.
        """
        return make_default_key(self, omitted=("kind",))

    @property
    def reads_shares(self) -> bool:
        """Whether verdicts are read as shares, by the probabilities of A, B and TIE: judge.verdict=probabilities."""
        return False

    def probabilities(self, message: str) -> Mapping[str, float] | None:
        """Return what each of LABELS has, by the message of a reply; they add up to 1. None where it does not say."""
        return None

    def share(self, reply: JudgeReply) -> float | None:
        """Return the share of the response shown as A, a tie counting half; None where labels alone are to be read."""
        if reply.message is None or not self.reads_shares:
            return None
        chances = self.probabilities(reply.message)
        return None if chances is None else chances["A"] + chances["TIE"] / 2.0

    @property
    def receives_instructions(self) -> bool:
        """Whether it is shown the header of a rubric: a language model is; words, votes and what is on file are not."""
        return not self.is_recorded and self._kind == "model"

    @property
    def header(self) -> str | None:
        """The text that replaces the headers of rubrics; None: the headers are used."""
        return None

    def instruct(self, rubric: R) -> R:
        """Return a rubric with the header that this judge is shown."""
        if self.header is None:
            return rubric
        return replace(rubric, system_prompt=self.header)

    @property
    def missing_replies_hint(self) -> str:
        """What to do about requests without a reply."""
        return f"{type(self).__name__}.answer yielded no reply to them: yield request.reply(...) for each request"

    def make_scope(self) -> Scope:
        """Return whose verdicts these are, by `model` and the field `kind`: a language model without it."""
        return Scope(judge=self.model, kind=self._kind)

    @property
    def _kind(self) -> JudgeKind:
        kind: JudgeKind | None = getattr(self, "kind", None)
        return kind or "model"

    @staticmethod
    def each(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the settings of each of several judges that one part stands for, by their names; {} if it is one judge.

        A tournament then has all of them.
        """
        return {}


LABELS = ("A", "B", "TIE")
# Why a reply that was asked for probabilities has none, and no other reply will
THINKS, NO_LOGPROBS = "thinks", "no_logprobs"


def make_likeliest_verdict(chances: Mapping[str, float]) -> dict[str, str]:
    """Return the verdict that is most likely, as a reply says it."""
    return {
        "evidence_a": f"probability {chances['A']:.3f}",
        "evidence_b": f"probability {chances['B']:.3f}",
        "verdict": max(LABELS, key=chances.__getitem__),
    }


def build_unpriced_error(
    model: str, known_models: Iterable[str], path: str
) -> SettingError:
    """Return the error for a model without prices, which are read from the file at `path`."""
    return SettingError.bad_value(
        "model",
        model,
        "be a model whose prices are known",
        f"  Known: {', '.join(known_models)}",
        f"  To add it, write its prices under models in {path}.",
    )


@dataclass(kw_only=True)
class NoJudge(Judge):
    """No judge is chosen yet.

    offers         judges by the names by which they are chosen; a run lists their prices and calls none
    system_prompt  of the judge to be chosen
    """

    offers: dict[str, Judge]
    system_prompt: str | None = None

    model = "none"

    @property
    def receives_instructions(self) -> bool:
        return False

    def cache_key(self) -> CacheKey:
        raise SettingError(
            "judge is not set. Choose a judge:",
            f"  {', '.join(f'judge={name}' for name in self.offers)}",
            "  judge=openai_compatible for a server of your own",
            "  judge=lexical, which is free and counts words",
        )

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        self.cache_key()
        return iter(())


def roles_by_dimension(judge: Judge, rubrics: Iterable[Instructions]) -> dict[str, str]:
    """Return by dimension the role that a judge is given; {} for a judge without instructions."""
    if not judge.receives_instructions:
        return {}
    instructed = map(judge.instruct, rubrics)
    return {rubric.dimension: rubric.role for rubric in instructed if rubric.role}


def role_suffix(roles: Iterable[str]) -> str:
    """Say what a judge is told that it is, behind its name: ' as "an expert, impartial evaluator"'; '' where nothing is.

    roles  of the rubrics; equal ones are said once
    """
    quoted_roles = [f'"{role}"' for role in dict.fromkeys(roles)]
    return f" as {' and '.join(quoted_roles)}" if quoted_roles else ""


def qualified_judge_name(model: str, name: str) -> str:
    """Return how files call one of several judges with one model: this, whose family and kind it has, and its name."""
    return f"{model} ({name})"


def guess_judge_kind(names: Sequence[str]) -> JudgeKind:
    """Return what judges are of whom only names are known."""
    models = {name.partition(" (")[0] for name in names}
    return "words" if models == {LEXICAL_MODEL} else "model"


class _PricedJudge(Judge):
    """What the settings of a judge behind an API have in common, be they fields or fixed.

    transport          batches or messages
    cache              of prompts: measured, 1h, 5m or none; None: the server decides
    expected_hit_rate  of that cache, for a plan
    """

    transport: str
    cache: str | None
    expected_hit_rate: float

    @abstractmethod
    def prices_of(self, model: str) -> Prices | None:
        """Return the prices of a model; None: unknown. It may be another's: that of a batch that was taken over."""

    @abstractmethod
    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the body of a request.

        ttl  time to live that it asks of the prompt cache, if any
        """

    @abstractmethod
    def parse(self, message: Mapping[str, Any]) -> Completion:
        """Return what a message of the API says."""


@dataclass(kw_only=True)
class ApiJudge(ApiSettings, _PricedJudge):
    """Base class of judges behind an API: it builds requests and knows prices; pipeline and api send them.

    A subclass has `prices_of`, `params` and `parse`, and builds its client in `_connect`.

    system_prompt  header in place of those of rubrics, which the key of a request holds; None: these
    """

    kind: JudgeKind
    system_prompt: str | None = None
    budget_usd: Dollars
    expected_output_tokens: Count
    chars_per_token: Positive

    server = "the judge's API"

    def __post_init__(self) -> None:
        self.budget = Budget(self.budget_usd)
        self.estimator = TokenEstimator(self.chars_per_token)
        self.name_settings("judge", "judging.budget_usd")

    @property
    def header(self) -> str | None:
        return self.system_prompt

    def cache_key(self) -> CacheKey:
        return make_default_key(self, omitted=("kind", "system_prompt"))

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """Refuse: requests are paid for, and go through pipeline.paying."""
        raise NotImplementedError

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None:
        """Return what counts the tokens of a request free of charge; None where nothing does."""
        return None

    @property
    def missing_replies_hint(self) -> str:
        return "Ask again with the same command"

    def list_remedies(self) -> list[str]:
        """Return the settings to try, the likeliest first, if replies hold no verdict."""
        return [f"a larger {self.part}.max_tokens", f"another {self.part}.model"]

    def _check_budget(self) -> None:
        if not self.budget_usd > 0:
            raise BudgetError(
                f"{self.budget_setting} must be above 0 (US dollars), as {self.model} costs money; got {self.budget_usd:g}. "
                "Set the most that may be spent, for example:",
                f"  {self.budget_setting}=5",
            )


@dataclass(kw_only=True)
class BatchJudge(ApiJudge):
    """Base class of judges whose API takes batches, chosen for this run or for an earlier one: two transports, the same
    store and keys."""

    transport: Literal["batches", "messages"]
    chunk_size: Count
    poll_initial_seconds: Positive
    poll_max_seconds: Positive
    quarantine_seconds: NonNegative

    def __post_init__(self) -> None:
        super().__post_init__()
        check_quarantine(self.quarantine_seconds, self.api)
        self.batch_settings = BatchSettings(
            chunk_size=self.chunk_size,
            poll_initial_seconds=self.poll_initial_seconds,
            poll_max_seconds=self.poll_max_seconds,
            quarantine_seconds=self.quarantine_seconds,
        )


def list_format_remedies(judge_setting: str, structured: str) -> list[str]:
    """Return the settings to try for a judge whose server may hold its answers to a form, which `structured` names."""
    is_held_to_form = structured != "none"
    return [
        *[f"{judge_setting}.structured=none"] * is_held_to_form,
        f"a larger {judge_setting}.max_tokens",
        "thinking off",
    ]


@dataclass(kw_only=True)
class ChatJudge(OpenAiSettings, ApiJudge):
    """structured  json_schema: the server holds the answer to the schema of a verdict or a score;
                json_object: to JSON; none: to nothing, so that the requested JSON or the last line
                is read
    verdict     probabilities: one token is asked for behind the `lead`, and read with what else it could have been

    All that is sent, and where to, enters the key of a verdict; prices, concurrency and transport do not.
    """

    structured: Literal["json_schema", "json_object", "none"]
    verdict: VerdictForm
    lead: str

    cache = None  # the server's business
    expected_hit_rate = 0.0

    def __post_init__(self) -> None:
        if self.reads_shares:
            if self.temperature not in (None, 1.0):
                raise SettingError(
                    "temperature must be null with judge.verdict=probabilities, which are read at temperature 1; got "
                    f"{self.temperature:g}."
                )
            self.max_tokens = self.expected_output_tokens = 1
        super().__post_init__()

    @property
    def reads_shares(self) -> bool:
        return self.verdict == "probabilities"

    def list_remedies(self) -> list[str]:
        return list_format_remedies(self.part, self.structured)

    def cache_key(self) -> CacheKey:
        names = _ONE_TOKEN_KEY_FIELDS if self.reads_shares else _CHAT_KEY_FIELDS
        sent_settings = {name: getattr(self, name) for name in names}
        return {
            "judge": "openai_compatible",
            "endpoint": self.api.endpoint,
            **sent_settings,
        }

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the body of a request; the prompt cache is the server's business."""
        if self.reads_shares:
            return self._make_one_token_params(request)
        response_format: dict[str, Any] = {"type": self.structured}
        if self.structured == "json_schema":
            schema = json.loads(request.schema)
            name = "score" if request.scale else "verdict"
            response_format["json_schema"] = {
                "name": name,
                "strict": True,
                "schema": schema,
            }
        requested_format = None if self.structured == "none" else response_format
        return self._request_body(request.messages, response_format=requested_format)

    def _make_one_token_params(self, request: JudgeRequest) -> dict[str, Any]:
        if request.scale:
            raise SettingError(
                f"{self.part}.verdict must be label for scores; got probabilities, which are read only for pairs."
            )
        *earlier_messages, last_message = request.messages
        question = {
            **last_message,
            "content": f"{last_message['content'].rstrip()}\n\n{self.lead}",
        }
        body = self._request_body(
            [*earlier_messages, question],
            logprobs=True,
            top_logprobs=first_token.N_TOP_LOGPROBS,
        )
        return {**body, "temperature": 1.0}

    def parse(self, message: Mapping[str, Any]) -> Completion:
        completion = super().parse(message)
        if not self.reads_shares:
            return completion
        text, reason = completion.text, completion.stop_reason
        if first_token.is_thinking(message):
            reason = THINKS
        elif not first_token.has_logprobs(message):
            reason = NO_LOGPROBS
        elif reason in ("end_turn", "max_tokens"):  # which one token is
            reason, chances = (
                "end_turn",
                first_token.name_probabilities(message, LABELS),
            )
            text = (
                json.dumps(make_likeliest_verdict(chances))
                if chances
                else f"no label: {text}"
            )
        return replace(completion, text=text, stop_reason=reason)

    def probabilities(self, message: str) -> dict[str, float] | None:
        """Return those of the labels, by the message of a reply; None where they have less than half of all."""
        return first_token.name_probabilities(json.loads(message), LABELS)
