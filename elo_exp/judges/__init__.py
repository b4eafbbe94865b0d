"""Judges turn requests into replies; rubrics render the requests and parse the replies."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

from elo_exp.analysis.conclusions import Scope
from elo_exp.api import first_token
from elo_exp.api.batches import BatchApi, BatchSettings, check_quarantine
from elo_exp.api.costs import Budget, TokenEstimator
from elo_exp.api.jobs import ApiSettings, Completion, Model
from elo_exp.api.openai import OpenAiSettings
from elo_exp.data.rubrics import Instructions
from elo_exp.errors import BudgetError, SettingError
from elo_exp.records import JudgeReply, JudgeRequest
from elo_exp.store.answer_store import Store
from elo_exp.types import (
    CacheKey,
    Count,
    Dollars,
    JudgeKind,
    NonNegative,
    Positive,
    VerdictForm,
)

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


@runtime_checkable
class Judge(Protocol):
    """An OfflineJudge or a PaidJudge.

    Building one reads no file, network or environment: that is for `check` and `cache_key`.
    """

    @property
    def model(self) -> str: ...

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Fields of the comparison, beyond the rendered text, that can change the reply."""

    def cache_key(self) -> CacheKey:
        """Return everything of the judge that can change a reply, as JSON; part of every key.

        Raises UserError for a model or a file that is absent.
        """


@runtime_checkable
class OfflineJudge(Judge, Protocol):
    """A judge that answers by itself, at no cost."""

    def answer(
        self, requests: Sequence[JudgeRequest], store: Store
    ) -> Iterator[JudgeReply]:
        """Reply to requests, in any order, each reply committed to the store before it is yielded;
        skip those it has no answer to."""


@runtime_checkable
class PaidJudge(Judge, Model, Protocol):
    """A judge behind an API: it builds requests and knows prices; pipeline and api send them."""

    transport: str  # batches or messages
    # Prompt cache: measured, 1h, 5m or none; None: the server decides.
    cache: str | None
    estimator: TokenEstimator
    expected_output_tokens: int
    expected_hit_rate: float

    def preflight(self) -> None:
        """Raise UserError for what would stop the first paid call, such as a missing key."""

    def token_counter(self) -> Callable[[Mapping[str, Any]], int] | None:
        """Return what counts the tokens of a request free of charge; None where nothing does."""


@runtime_checkable
class BatchJudge(PaidJudge, Protocol):
    """A judge whose API takes batches, chosen for this run or for an earlier one."""

    api: BatchApi
    batch_settings: BatchSettings


LABELS = ("A", "B", "TIE")
# Why a reply that was asked for probabilities has none, and no other reply will
THINKS, NO_LOGPROBS = "thinks", "no_logprobs"


@runtime_checkable
class ProbabilityJudge(Judge, Protocol):
    """A judge that knows how likely it holds each verdict to be."""

    verdict: VerdictForm

    def probabilities(self, message: str) -> Mapping[str, float] | None:
        """Return what each of LABELS has, by the message of a reply; they add up to 1. None where it does not say."""


def share(judge: Judge, reply: JudgeReply) -> float | None:
    """Return the share of the response shown as A, a tie counting half; None where labels alone are to be read."""
    if reply.message is None or not reads_shares(judge):
        return None
    chances = judge.probabilities(reply.message)
    return None if chances is None else chances["A"] + chances["TIE"] / 2.0


def reads_shares(judge: Judge) -> TypeGuard[ProbabilityJudge]:
    """Return whether verdicts are read as shares: judge.verdict=probabilities."""
    return isinstance(judge, ProbabilityJudge) and judge.verdict == "probabilities"


def make_likeliest_verdict(chances: Mapping[str, float]) -> dict[str, str]:
    """Return the verdict that is most likely, as a reply says it."""
    return {
        "evidence_a": f"probability {chances['A']:.3f}",
        "evidence_b": f"probability {chances['B']:.3f}",
        "verdict": max(LABELS, key=chances.__getitem__),
    }


@runtime_checkable
class RecordedJudge(Judge, Protocol):
    """A judge that repeats verdicts of others, which are in a file or folder.

    May also have `each(settings)`, a static method: of a file with several judges the settings of each, by its name, in place
    of its own. A tournament then has all of them.
    """

    path: str

    @property
    def recorded(self) -> tuple[str, ...]:
        """Names of those whose verdicts these are; empty where none is on file."""


@runtime_checkable
class JudgeNotChosen(Judge, Protocol):
    """What stands in the place of a judge until somebody chooses one."""

    @property
    def offers(self) -> Mapping[str, Judge]:
        """Judges that could be chosen, by the names by which they are."""


def receives_instructions(judge: Judge) -> bool:
    """Whether a judge is shown the header of a rubric: a language model is; words, votes and what is on file are not."""
    is_recorded = hasattr(type(judge), "recorded")  # which, asked of it, reads its file
    is_asked = not (is_recorded or isinstance(judge, JudgeNotChosen))
    return is_asked and (getattr(judge, "kind", None) or "model") == "model"


def roles_by_dimension(judge: Judge, rubrics: Iterable[Instructions]) -> dict[str, str]:
    """Return what a judge is told that it is, by dimension; {} of one that is told nothing."""
    return (
        {r.dimension: r.role for r in rubrics if r.role}
        if receives_instructions(judge)
        else {}
    )


def role_suffix(roles: Iterable[str]) -> str:
    """Say what a judge is told that it is, behind its name: ' as "an expert, impartial evaluator"'; '' where nothing is.

    roles  of the rubrics; equal ones are said once
    """
    quoted_roles = [f'"{role}"' for role in dict.fromkeys(roles)]
    return f" as {' and '.join(quoted_roles)}" if quoted_roles else ""


def make_scope(judge: Judge) -> Scope:
    """Return whose verdicts a judge's are: by its name and its field `kind`, or those on file.

    One that says no kind is a language model, unless it repeats verdicts of the lexical judge.
    """
    names: Sequence[str] = ()
    source = None
    if isinstance(judge, RecordedJudge):
        names, source = judge.recorded, judge.path
    kind = getattr(judge, "kind", None) or guess_judge_kind(names)
    return Scope(judge=", ".join(names) or judge.model, kind=kind, source=source)


def qualified_judge_name(model: str, name: str) -> str:
    """Return how files call one of several judges with one model: this, whose family and kind it has, and its name."""
    return f"{model} ({name})"


def guess_judge_kind(names: Sequence[str]) -> JudgeKind:
    """Return what judges are of whom only names are known."""
    models = {name.partition(" (")[0] for name in names}
    return "words" if models == {LEXICAL_MODEL} else "model"


@dataclass(kw_only=True)
class ApiJudge(ApiSettings):
    """Settings that judges behind an API share."""

    kind: JudgeKind
    budget_usd: Dollars
    expected_output_tokens: Count
    chars_per_token: Positive

    key_fields = ()
    server = "the judge's API"

    def __post_init__(self) -> None:
        self.budget = Budget(self.budget_usd)
        self.estimator = TokenEstimator(self.chars_per_token)
        self.name_settings("judge", "judging.budget_usd")

    def _check_budget(self) -> None:
        if not self.budget_usd > 0:
            raise BudgetError(
                f"{self.budget_setting}: is ${self.budget_usd:g}, and {self.model} is paid for. "
                f"Set a cap in dollars with {self.budget_setting}=..."
            )


@dataclass(kw_only=True)
class BatchingJudge(ApiJudge):
    """Settings that judges share whose API takes batches: two transports, the same store and keys."""

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
        if reads_shares(self):
            if self.temperature not in (None, 1.0):
                raise SettingError(
                    f"temperature: found {self.temperature:g}. With judge.verdict=probabilities leave it null: they are "
                    "read at 1."
                )
            self.max_tokens = self.expected_output_tokens = 1
        super().__post_init__()

    def cache_key(self) -> CacheKey:
        names = _ONE_TOKEN_KEY_FIELDS if reads_shares(self) else _CHAT_KEY_FIELDS
        sent_settings = {name: getattr(self, name) for name in names}
        return {
            "judge": "openai_compatible",
            "endpoint": self.api.endpoint,
            **sent_settings,
        }

    def token_counter(self) -> None:
        return None

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """Return the body of a request; the prompt cache is the server's business."""
        if reads_shares(self):
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
                f"{self.part}.verdict: found probabilities, which are read of pairs. Scores take label."
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
        if not reads_shares(self):
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
