"""Claude as judge, through the Message Batches API or one message at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from elo_exp.api.anthropic_answers import text_of, usage_of
from elo_exp.api.anthropic_api import (
    API_VERSION,
    AnthropicApi,
    api_key,
    check_lifetime,
    check_quarantine,
    no_key,
)
from elo_exp.api.batches import BatchRun
from elo_exp.api.collector import in_doubt
from elo_exp.api.costs import PER_MILLION, Budget, Prices
from elo_exp.api.messages import MessagesRun
from elo_exp.api.once import answer_once
from elo_exp.api.planning import Estimate
from elo_exp.api.services import BatchSettings, BatchTools, Clock, UnreachableError
from elo_exp.api.token_estimator import Density, most_tokens, sample
from elo_exp.api.transport import check_base_url
from elo_exp.files import utc_now
from elo_exp.records import JudgeReply, JudgeRequest, UserError
from elo_exp.store.claims import Claims
from elo_exp.store.ledger import CANCELLED, Ledger
from elo_exp.store.store import Store
from elo_exp.types import Count, Dollars, Effort, NonNegative, Positive, Share

logger = logging.getLogger(__name__)

_CACHE_WORDS = {
    "1h": "the 1-hour cache (1h), not measured",
    "5m": "the 5-minute cache (5m), not measured",
}
_ASKED_OF = ("dimension", "prompt_id", "entrant_a", "entrant_b")
_COUNTED = 3  # queries of each prefix whose tokens the API is asked to count


@dataclass(kw_only=True)
class ClaudeModel(Prices):
    """What is to be known of a model id."""

    structured_output: (
        bool  # takes a JSON schema for its answer; else the verdict is the last line of a text
    )
    takes_effort: bool


@dataclass(kw_only=True)
class ClaudeJudge:
    """model   an id with an entry in `models`, which says what it costs
    cache   measured: warm the prompt cache, measure it on a first chunk, then decide; or 1h, 5m, none

    The rest is described in conf/judge/claude.yaml. Only model, effort, max_tokens, the API's version and its address
    enter the key of a verdict: how it is paid for and transported does not.
    """

    model: str
    effort: Effort | None
    max_tokens: Count
    transport: Literal["batches", "messages"]
    base_url: str
    budget_usd: Dollars
    cache: Literal["measured", "1h", "5m", "none"]
    models: dict[str, ClaudeModel]
    expected_output_tokens: Count
    expected_hit_rate: Share
    chars_per_token: Positive
    chunk_size: Count
    poll_initial_seconds: Positive
    poll_max_seconds: Positive
    quarantine_seconds: NonNegative
    concurrency: Count

    key_fields = ()
    clock = Clock()
    budget_setting = "judging.budget_usd"

    def __post_init__(self) -> None:
        check_base_url(self.base_url)
        self.base_url = self.base_url.rstrip("/")
        check_quarantine(self.quarantine_seconds, self.base_url)
        self._facts = self._look_up(self.model)
        if self.effort is not None and not self._facts.takes_effort:
            raise UserError(
                f"effort: found {self.effort!r}, and {self.model} takes none. Set judge.effort=null."
            )
        self._budget = Budget(self.budget_usd)
        self.part = "judge"
        self._was_reached = False
        self._density = Density(self.chars_per_token)

    @property
    def part(self) -> str:
        """What the judge is called in the configuration, for the words of an error."""
        return self._part

    @part.setter
    def part(self, name: str) -> None:
        self._part = name
        self._api = AnthropicApi(self.base_url, part=name)

    def _look_up(self, model: str) -> ClaudeModel:
        facts = self.models.get(model)
        if facts is None:
            raise UserError(
                f"model: found {model!r}, whose prices are not known. Known: {', '.join(self.models)}. Add another to "
                "models in conf/judge/claude.yaml, with its prices."
            )
        return facts

    def cache_key(self) -> Mapping[str, Any]:
        return {
            "judge": "claude",
            "model": self.model,
            "effort": self.effort,
            "max_tokens": self.max_tokens,
            "structured_output": self._facts.structured_output,
            "api_version": API_VERSION,
            "endpoint": self.base_url,
        }

    def preflight(self) -> None:
        """Raise UserError for what would stop the first paid call; warn of a model that is about to go."""
        if api_key() is None:
            raise UserError(no_key())
        if not self.budget_usd > 0:
            raise UserError(
                f"{self.budget_setting}: is ${self.budget_usd:g}, and {self.model} is paid for. Set a cap in dollars "
                f"with {self.budget_setting}=..."
            )
        check_lifetime(self.model, self.part)
        if not self._was_reached:
            self._api.check_model(self.model)
            self._was_reached = True

    def estimate(self, requests: Sequence[JudgeRequest]) -> Estimate:
        """What the requests would cost. With a key the API counts the tokens of some of them, and the others are taken
        to be as dense."""
        if requests and api_key() is not None:
            self._count(requests)
        n_prefix = sum(self._density.tokens(len(request.system)) for request in requests)
        n_user = sum(self._density.tokens(request.n_chars) for request in requests) - n_prefix
        n_output = len(requests) * self.expected_output_tokens
        facts = self._facts
        ttl = self._first_ttl(requests)
        hit_rate = self.expected_hit_rate if ttl else 0.0
        prefix = hit_rate * facts.cache_read + (1 - hit_rate) * facts.write(ttl)
        rest = n_user * facts.input + n_output * facts.output
        return Estimate(
            input_tokens=round(n_prefix + n_user),
            output_tokens=n_output,
            dollars=(n_prefix * prefix + rest) * PER_MILLION * self._factor,
            dollars_plain=(n_prefix * facts.input + rest) * PER_MILLION,
            counted=self._density.n_counted,
        )

    def _count(self, requests: Sequence[JudgeRequest]) -> None:
        some = sample(requests, n_each=_COUNTED)
        try:
            self._density.learn(
                some, sum(self._api.count_tokens(self.params(request, None)) for request in some)
            )
        except (UnreachableError, UserError) as error:
            logger.warning(
                "warning: the API does not count tokens now (%s); they are estimated", error
            )

    def _prefix_is_short(self, requests: Sequence[JudgeRequest]) -> bool:
        longest = max(
            (self._density.tokens(len(request.system)) for request in requests), default=0.0
        )
        return longest < self._facts.min_cacheable_tokens

    def params(self, request: JudgeRequest, ttl: str | None) -> dict[str, Any]:
        """The message of a request. Up to the breakpoint it is the same, byte for byte, for all of a rubric."""
        breakpoint_ = {"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}
        output = {"effort": self.effort} if self.effort else {}
        if self._facts.structured_output:
            output |= {"format": {"type": "json_schema", "schema": json.loads(request.schema)}}  # type: ignore[dict-item]
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{"type": "text", "text": request.system, **breakpoint_}],
            "messages": [{"role": "user", "content": request.user}],
            **({"output_config": output} if output else {}),
        }

    def reserve(self, request: JudgeRequest, ttl: str | None) -> float:
        """The most that a request may cost: dense texts, a prefix that is missed, an answer as long as it may be."""
        facts = self._facts
        n_prefix = most_tokens(len(request.system.encode(errors="replace")))
        prefix = n_prefix * max(facts.input, facts.write(ttl))
        rest = (
            most_tokens(request.n_bytes) - n_prefix
        ) * facts.input + self.max_tokens * facts.output
        return (prefix + rest) * PER_MILLION * self._factor

    def reply(self, key: str, names: Mapping[str, str], message: Mapping[str, Any]) -> JudgeReply:
        """The whole message, with what it says and what it cost. A batch that was taken over may be another model's."""
        model = names.get("judge_model", self.model)
        facts = self._facts if model == self.model else self._look_up(model)
        usage = usage_of(message)
        said = message.get("usage")
        in_batch = isinstance(said, Mapping) and said.get("service_tier") == "batch"
        return JudgeReply(
            key=key,
            text=text_of(message),
            stop_reason=str(message.get("stop_reason")),
            usage=usage,
            dollars=facts.dollars(usage, factor=facts.batch_factor if in_batch else 1.0),
            timestamp=utc_now(),
            judge_model=model,
            message=json.dumps(message),
            **{name: names.get(name) for name in _ASKED_OF},  # type: ignore[arg-type]
        )

    def best_ttl(self, hit_rate: float) -> str | None:
        return self._facts.best_ttl(hit_rate)

    @property
    def _factor(self) -> float:
        return self._facts.batch_factor if self.transport == "batches" else 1.0

    def answer(self, requests: Sequence[JudgeRequest], store: Store) -> Iterator[JudgeReply]:
        return answer_once(
            requests,
            store,
            pay=partial(self._pay, store),
            endpoint=self.base_url,
            clock=self.clock,
            pause_seconds=min(1.0, self.poll_initial_seconds),
        )

    def _pay(
        self, store: Store, requests: Sequence[JudgeRequest], claims: Claims, failed: dict[str, str]
    ) -> Iterator[JudgeReply]:
        """The answers to what has been claimed. What an earlier run has left in batches is collected from them, and the
        rest goes by the transport that is chosen now."""
        ledger = Ledger(store, claims.owner)
        pending = ledger.pending()
        new = [request for request in requests if request.key not in pending]
        batches = self._batch_run(ledger)
        batches.ttl = self._first_ttl(new)
        if new:
            self.preflight()
            ledger.usage.cache = (
                _CACHE_WORDS[batches.ttl] if batches.ttl else f"none: {self._why_no_cache()}"
            )
        if self.transport == "batches":
            yield from batches.answer(
                requests, measure_cache=self.cache == "measured" and batches.ttl is not None
            )
        else:
            messages = MessagesRun(
                send=self._api.message,
                judge=self,
                claims=claims,
                budget=self._budget,
                concurrency=self.concurrency,
                ttl=batches.ttl,
            )
            yield from batches.answer([request for request in requests if request.key in pending])
            yield from messages.answer(new)
            failed |= messages.failed
        failed |= batches.failed

    def _first_ttl(self, requests: Sequence[JudgeRequest]) -> str | None:
        """The time to live to begin with; what is asked one by one is asked within minutes."""
        measured = "1h" if self.transport == "batches" else "5m"
        chosen = {"none": None, "measured": measured}.get(self.cache, self.cache)
        return None if self._prefix_is_short(requests) else chosen

    def _why_no_cache(self) -> str:
        n = self._facts.min_cacheable_tokens
        return (
            "so it was chosen"
            if self.cache == "none"
            else f"{self.model} caches no prefix of fewer than {n} tokens"
        )

    def collect(self, store: Store) -> None:
        """Wait for what is under way, and take it in; submits nothing."""
        with Claims(store) as claims:
            ledger = Ledger(store, claims.owner)
            claims.take(sorted(ledger.pending(self.base_url)), endpoint=self.base_url)
            for _ in self._batch_run(ledger).answer([]):
                pass

    def cancel(self, store: Store) -> int:
        """Ask the server to end what is under way there; how many batches that was. What may not have arrived has no id
        to end it by: it is warned of, and a UserError where there is nothing else."""
        ledger = Ledger(store, owner="")
        ours = [b for b in ledger.batches() if b.endpoint == self.base_url]
        n_ended = 0
        for batch in (b for b in ours if b.state == "submitted"):
            try:
                if self._api.cancel(str(batch.batch_id)):
                    ledger.note(batch, CANCELLED)
                    n_ended += 1
            except UnreachableError as error:
                raise UserError(
                    f"{self.base_url} cannot be reached ({error}). {n_ended} batches were ended."
                ) from None
        if (left := in_doubt(ours)) and not n_ended:
            raise UserError(left)
        if left:
            logger.warning("warning: %s", left)
        return n_ended

    def _batch_run(self, ledger: Ledger) -> BatchRun:
        names = ("chunk_size", "poll_initial_seconds", "poll_max_seconds", "quarantine_seconds")
        settings = BatchSettings(**{name: getattr(self, name) for name in names})
        tools = BatchTools(
            service=self._api,
            judge=self,
            ledger=ledger,
            budget=self._budget,
            settings=settings,
            clock=self.clock,
        )
        return BatchRun(tools)
