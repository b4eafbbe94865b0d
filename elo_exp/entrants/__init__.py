"""Entrants respond to the prompts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp import models
from elo_exp.api.costs import Prices, entrant_budget
from elo_exp.api.jobs import ApiSettings, Completion
from elo_exp.data.thoughts import OPEN_AT_END, split_thought
from elo_exp.default_keys import make_default_key
from elo_exp.errors import SettingError
from elo_exp.files import utc_now
from elo_exp.models.checkpoints import CausalLM, ModelSettings, TemplateSettings
from elo_exp.models.generation import (
    GeneratedAnswer,
    convert_memory_errors,
    prompt_seed,
)
from elo_exp.records import Prompt, Response, make_fingerprint
from elo_exp.types import CacheKey, Count, Dollars, Positive, TopP

# Part of every policy's keys: raise it when scoring changes
FORCING_VERSION = 1

TokenIdsByPrompt = Mapping[Prompt, Sequence[int]]  # prompts with their token ids
LogprobsById = Iterator[tuple[str, float | None]]  # by prompt_id


class NoRoomError(SettingError):
    """`prompts` leave no room for an answer in the context of a model on this machine."""

    def __init__(
        self, line: object, prompts: Collection[Prompt] = (), *below: str
    ) -> None:
        super().__init__(line, *below)
        self.prompts = frozenset(prompts)


class Entrant(ABC):
    """Base class of entrants: a dataclass whose fields are its settings. Only `entrant_id` and `generate` have no default.

    Building one reads no file, network or environment: that is for `check` and `cache_key`.

    turns       it also takes prompts with messages, one turn at a time
    whole       one Response has the answers to all turns of a prompt; an entrant with neither is asked texts alone
    is_instant  answers take no time: many are committed together, no other process waits for them, and a plan makes them
    is_probe    it is made to a known quality, to audit a judge
    """

    required_attributes = ("entrant_id",)
    entrant_id: str
    turns = False
    whole = False
    is_instant = False
    is_probe = False

    @abstractmethod
    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """Yield `self.respond(prompt, text)` for each prompt, in any order, as answers are made; leave out those without one.

        Each is stored before the next is asked for, and none is asked for again.
        """

    def respond(
        self, prompt: Prompt, text: str, *, finish_reason: str = "stop"
    ) -> Response:
        """Return an answer to a prompt.

        finish_reason  stop, or length if the answer was cut off
        """
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt.prompt_id,
            draw_idx=prompt.draw_idx,
            response_text=text,
            finish_reason=finish_reason,
            timestamp=utc_now(),
        )

    def cache_key(self, prompt: Prompt) -> CacheKey:
        """Return everything that can change the answer, as JSON: the store finds answers by it.

        By default the file of the class, the settings and what is asked. Raises UserError for a model or a file that is
        absent.
        """
        return {**make_default_key(self), **prompt.content}

    @property
    def max_answer_tokens(self) -> int | None:
        """Limit at which an answer is cut off, by which a plan reckons; None: there is none."""
        return None

    @property
    def loaded_weights(self) -> Hashable:
        """What is loaded before it answers; entrants with equal weights answer in turn, from one load. None: nothing."""
        return None

    @property
    def varies(self) -> bool:
        """Whether it answers a prompt in other words when it is asked again; if not, its one answer meets all of others."""
        return False

    @property
    def n_draws(self) -> int | None:
        """How many answers it has to each prompt that it has answered, at least; None: it makes them."""
        return None

    @property
    def missing_answers_hint(self) -> str:
        """What to do if it has answered nothing."""
        if self.n_draws is not None or self.max_answer_tokens is not None:
            return "Supply them"
        name = type(self).__name__
        return f"{name}.generate yielded no answer: yield self.respond(prompt, text) for each prompt"

    def lacks(self, prompt: Prompt) -> bool:
        """Whether it has no answer to a prompt, which is no reason to stop: the answer counts as missing."""
        return False

    def known_rank(self, dimension: str) -> int | None:
        """Return the place among entrants of known quality, from 0, best first; None where it has none."""
        return None


def draws_of(entrant: Entrant, draws: int) -> int:
    """Return how many answers to a prompt an entrant gives where so many are wanted."""
    if draws == 1 or not entrant.varies:
        return 1
    return draws if entrant.n_draws is None else min(draws, entrant.n_draws)


class Policy(Entrant):
    """Base class of entrants that can score answers, their own or another policy's."""

    # Whether answers record, in their diagnostics, `token_ids`, their `total_logprob` in nats as
    # drawn, and the `tokenizer`. Where this is false, the entrant is no policy.
    logprobs: bool

    @abstractmethod
    def logprob_key(self, prompt: Prompt) -> CacheKey:
        """Return everything that can change log-probabilities after this prompt, as JSON.

        Policies with equal keys are clones.
        """

    @abstractmethod
    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> LogprobsById:
        """Yield, by prompt_id, the log-probability of each response's recorded tokens after its
        prompt, in nats; None where they are longer than the model's context.

        prompts  by prompt_id
        Raises SettingError for a response without recorded tokens, or of another tokenizer.
        """


@dataclass(kw_only=True)
class ApiEntrant(ApiSettings, Entrant):
    """Base class of entrants behind an API: it builds requests and knows prices; pipeline and api send them.

    A subclass has `prices_of`, `params` and `parse`, and builds its client in `_connect`.
    """

    entrant_id: str
    system_prompt: str | None
    budget_usd: Dollars | None

    turns = True

    def __post_init__(self) -> None:
        part = f"entrant.{self.entrant_id}"
        self.name_settings(part, f"{part}.budget_usd")
        self.server = f"the entrant {self.entrant_id}'s API"
        self.budget = entrant_budget(self.budget_usd, self.prices_of(self.model))

    @abstractmethod
    def prices_of(self, model: str) -> Prices | None:
        """Return the prices of a model; None: unknown."""

    @abstractmethod
    def params(self, request: Prompt, ttl: str | None) -> dict[str, Any]:
        """Return the body of a request."""

    @abstractmethod
    def parse(self, message: Mapping[str, Any]) -> Completion:
        """Return what a message of the API says."""

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """Refuse: prompts are paid for, and go through pipeline.paying."""
        raise NotImplementedError

    @property
    def may_bill(self) -> bool:
        """Whether answers may cost money."""
        return True

    @property
    def max_answer_tokens(self) -> int:
        return self.max_tokens


def check_unit_temperature(temperature: float | None, top_p: float | None) -> None:
    """Raise SettingError for a policy that vLLM could draw from, and not score."""
    if (temperature, top_p) != (1, 1):
        raise SettingError(
            f"logprobs must be false unless temperature and top_p are 1, as vLLM scores at temperature 1; got "
            f"temperature={temperature} and top_p={top_p}."
        )


def read_recorded_ids(response: Response, policy: str, tokenizer: str) -> list[int]:
    """Return the tokens of an answer. Raises SettingError for none, or those of another tokenizer."""
    diagnostics = response.diagnostics
    answer = f"the answer of {response.entrant_id} to {response.prompt_id}"
    if not {"token_ids", "tokenizer"} <= diagnostics.keys():
        raise SettingError(
            f"{policy} cannot score {answer}, which has no recorded tokens. Generate the answers again with:",
            f"  entrant.{response.entrant_id}.logprobs=true",
        )
    if diagnostics["tokenizer"] != tokenizer:
        raise SettingError(
            f"{policy} cannot score {answer}: their tokenizers or end tokens differ. Leave out one of the two policies."
        )
    return list(diagnostics["token_ids"])


@dataclass(kw_only=True)
class WeightsEntrant(TemplateSettings, Entrant):
    """Settings that entrants with weights in memory share, and what they do alike.

    A subclass has `weights`, answers tokenised prompts in `_generate_answers`, and adds to `model_key` what
    else of its settings changes the model, to `_sampling_key` what else changes its answers.
    """

    turns = True

    entrant_id: str
    system_prompt: str | None
    temperature: Positive | None
    max_new_tokens: Count

    @property
    def version(self) -> int:
        """Part of every cache key: raise it when answers change, of sampled or of greedy ones."""
        return 1

    @property
    def weights(self) -> Any:
        raise NotImplementedError

    @property
    def loaded_weights(self) -> Hashable:
        weights: Hashable = self.weights
        return weights

    def _generate_answers(
        self, lm: Any, ids: TokenIdsByPrompt
    ) -> Iterator[tuple[Prompt, GeneratedAnswer]]:
        raise NotImplementedError

    @property
    def _sampling_key(self) -> CacheKey:
        return {}

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    @property
    def varies(self) -> bool:
        """Whether tokens are drawn, and not the likeliest taken."""
        return self.temperature is not None

    def cache_key(self, prompt: Prompt) -> CacheKey:
        return {
            **self._sampling_key,
            **self.model_key,
            "system_prompt": self.system_prompt,
            "version": self.version,
            "max_new_tokens": self.max_new_tokens,
            **prompt.content,
        }

    def logprob_key(self, prompt: Prompt) -> CacheKey:
        return {
            **self.model_key,
            "system_prompt": self.system_prompt,
            "version": FORCING_VERSION,
            "temperature": self.temperature,
            **prompt.content,
        }

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        """Answer prompts. Raises NoRoomError, before any is answered, for those that leave no room for their answers."""
        if not prompts:
            return
        lm: CausalLM = models.load_weights(self.weights)
        ids = {p: self.chat_ids(lm, p.sent(self.system_prompt)) for p in prompts}
        room = lm.context_length - self.max_new_tokens
        if too_long := [prompt for prompt, row in ids.items() if len(row) > room]:
            more = f" (and {len(too_long) - 1} others)" if too_long[1:] else ""
            raise NoRoomError(
                f"Prompt {too_long[0].prompt_id}{more} does not fit into the context of {self.entrant_id}: "
                f"{len(ids[too_long[0]])} tokens and "
                f"max_new_tokens={self.max_new_tokens} are more than {lm.context_length}.",
                too_long,
                "  Lower max_new_tokens, leave it out of the bank, or go on without its answer: allow_missing=true.",
            )
        is_policy = isinstance(self, Policy) and self.logprobs
        tokenizer = _fingerprint_tokenizer(lm) if is_policy else None
        for prompt, answer in self._generate_answers(lm, ids):
            tokens = answer.token_ids
            policy_diagnostics = {
                "token_ids": tokens,
                "total_logprob": answer.total_logprob,
                "tokenizer": tokenizer,
            }
            # tags may be special tokens, and the prompt may end with one
            prompt_end = lm.decode(ids[prompt][-16:], special=True)
            opening_tag = "".join(OPEN_AT_END.findall(prompt_end))
            generated_text = lm.decode(
                tokens[: len(tokens) - answer.has_ended], special=True
            )
            text, thought = split_thought(opening_tag + generated_text)
            if thought["thought"] == "none":
                text = lm.decode(tokens).strip()
            is_whole = answer.has_ended and thought["thought"] != "unclosed"
            yield Response(
                entrant_id=self.entrant_id,
                prompt_id=prompt.prompt_id,
                draw_idx=prompt.draw_idx,
                response_text=text,
                p_correct=answer.p_correct,
                finish_reason="stop" if is_whole else "length",
                diagnostics={
                    "seed": prompt_seed(prompt),
                    "n_tokens_prompt": len(ids[prompt]),
                    "n_tokens_generated": len(tokens),
                    **thought,
                    **answer.diagnostics,
                    **(policy_diagnostics if is_policy else {}),
                    **lm.environment,
                },
                timestamp=utc_now(),
            )

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> LogprobsById:
        """Yield the log-probability of each response's recorded tokens after its prompt.

        It is the sum over the tokens, added in float64. Each answer goes through a model of
        transformers by itself, without padding and without cached keys and values, whose rounding
        depends on the rest of the batch: a total is the same in any order and company. vLLM batches
        them as it likes.
        Raises SettingError if a response has no recorded tokens or those of another tokenizer, or if
        a log-probability is not finite; UserError if memory is too small.
        """
        if not responses:
            return
        assert self.temperature is not None
        lm: CausalLM = models.load_weights(self.weights)
        tokenizer = _fingerprint_tokenizer(lm)
        rows: dict[str, tuple[list[int], list[int]]] = {}
        for r in responses:
            ids = read_recorded_ids(r, self.entrant_id, tokenizer)
            messages = prompts[r.prompt_id].sent(self.system_prompt)
            prompt_ids = self.chat_ids(lm, messages)
            if len(prompt_ids) + len(ids) <= lm.context_length:
                rows[r.prompt_id] = (prompt_ids, ids)
        totals = lm.total_logprobs(list(rows.values()), temperature=self.temperature)
        for response in responses:
            name, total = response.prompt_id, None
            if name in rows:
                with convert_memory_errors(self.entrant_id):
                    total = next(totals)
                if not math.isfinite(total):
                    raise SettingError(
                        f"{self.entrant_id} gives the answer to {name} a log-probability of {total}. Use dtype=float32 "
                        "or bfloat16, which do not overflow."
                    )
            yield name, total


def _fingerprint_tokenizer(lm: CausalLM) -> str:
    """Identify a tokenizer: equal where each id is the same text and the same ids end an answer."""
    return make_fingerprint([lm.vocabulary, sorted(lm.end_ids)])


@dataclass(kw_only=True)
class CheckpointEntrant(ModelSettings, WeightsEntrant, Policy):
    """Settings that entrants with a checkpoint of transformers share.

    The cache key holds the weights (a hub name at its commit, or the contents of a folder), the
    adapters in order, what of `load_kwargs` changes them, dtype as configured, template, system
    prompt, sampling, max_new_tokens and prompt. It omits device, batch size and library versions,
    which change only rounding: a machine without the GPU still finds the answers, and an upgrade
    does not pay for them again. An answer's diagnostics name them.
    """

    adapters: list[str]
    top_p: TopP
    logprobs: bool
    loader: str

    def __post_init__(self) -> None:
        if self.logprobs and (self.temperature is None or self.top_p != 1):
            raise SettingError(
                f"logprobs must be false unless temperature is set and top_p is 1; got temperature={self.temperature} and "
                f"top_p={self.top_p}.",
                "  Other answers are not drawn with the model's own probabilities.",
            )

    @property
    def model_key(self) -> CacheKey:
        return {"loader": self.loader, **super().model_key}

    @property
    def _sampling_key(self) -> CacheKey:
        sampling = {"temperature": self.temperature, "top_p": self.top_p}
        key = {"sampling": None if self.temperature is None else sampling}
        return {**key, "logprobs": True} if self.logprobs else key
