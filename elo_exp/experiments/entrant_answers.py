"""The answers of an experiment's entrants: made, assumed for a plan, or found in the store."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from elo_exp import pipeline
from elo_exp.api.jobs import ApiSettings
from elo_exp.data.pairing import Responses
from elo_exp.entrants import (
    ApiEntrant,
    Entrant,
    draws_of,
)
from elo_exp.errors import RunNeeds, SettingError
from elo_exp.experiments.answer_files import AnswerFiles
from elo_exp.judges import ApiJudge, Judge
from elo_exp.records import Prompt
from elo_exp.report.sentences import opening_line
from elo_exp.store.answer_store import Store

logger = logging.getLogger(__name__)

_OF_A_RUN = RunNeeds()


@dataclass(frozen=True, kw_only=True)
class EntrantAnswers:
    """What entrants answer.

    canary         first new answers of a model that are read before others are paid for
    counts_absent  whether answers that a file lacks are no reason to stop
    """

    entrants: Mapping[str, Entrant]
    allow_missing: bool
    canary: int
    counts_absent: bool = True

    def generate(self, prompts: Sequence[Prompt], store: Store) -> Responses:
        """Have entrants answer what the store does not have."""
        return pipeline.generate(
            prompts,
            self.entrants,
            store,
            allow_missing=self.allow_missing,
            canary=self.canary,
            counts_absent=self.counts_absent,
        )

    def assume(
        self, prompts: Sequence[Prompt], store: Store, *, at_least: bool = False
    ) -> Responses:
        """Return the answers by which a plan reckons; no model is asked."""
        return pipeline.assume_responses(
            prompts,
            self.entrants,
            store,
            allow_missing=self.allow_missing,
            at_least=at_least,
            counts_absent=self.counts_absent,
        )

    def make_plans(
        self, prompts: Sequence[Prompt], store: Store
    ) -> list[pipeline.AnswerPlan]:
        """Plan the answers that entrants have still to make."""
        return pipeline.plan_answers(
            prompts, self.entrants, store, allow_missing=self.allow_missing
        )

    def log_missing(self, prompts: Sequence[Prompt], store: Store) -> None:
        """Log which answers are missing, and by which length a plan reckons."""
        if text := pipeline.answers_table(self.make_plans(prompts, store)):
            logger.info("%s", text)

    def find_known(self, prompts: Sequence[Prompt], store: Store) -> Responses:
        """Return the answers that need no model."""
        return pipeline.find_known_responses(prompts, self.entrants, store)

    def find_failed_prompts(
        self, prompts: Sequence[Prompt], responses: Responses, files: AnswerFiles
    ) -> dict[str, Collection[str]]:
        """Find the prompts on which each entrant failed on record: a model that was asked, or as its file says."""
        failed_by_entrant: dict[str, Collection[str]] = {}
        for name, entrant in self.entrants.items():
            if not entrant.is_instant:
                answered_ids = {prompt_id for prompt_id, _ in responses.get(name, {})}
                failed_by_entrant[name] = {p.prompt_id for p in prompts} - answered_ids
            elif files and name in files.joined.answer_sets:
                failed_by_entrant[name] = {*files.joined.failed_ids[name]}
        return failed_by_entrant

    def refuse_absent(self, prompts: Sequence[Prompt], store: Store) -> None:
        """Raise EvidenceError for answers that files lack, unless answers may be missing."""
        if self.allow_missing:
            return
        recorded = {name: e for name, e in self.entrants.items() if e.is_instant}
        replace(self, entrants=recorded).assume(prompts, store)

    def refuse_unanswered(
        self, prompts: Sequence[Prompt], store: Store, shard: str
    ) -> None:
        """Raise SettingError for a share of verdicts on answers that models have still to make: each share would make all."""
        model_entrants = {
            name: entrant
            for name, entrant in self.entrants.items()
            if not entrant.is_instant
        }
        incomplete = [
            name
            for name, entrant in model_entrants.items()
            if not pipeline.has_all_responses(prompts, {name: entrant}, store)
        ]
        if incomplete and not self.allow_missing:
            raise SettingError(
                f"shard={shard} judges a share of the prompts, and {', '.join(incomplete)} has not answered all of them. "
                "Generate the answers first:",
                f"  python -m elo_exp experiment=answer shard={shard}",
            )


def count_draws(entrants: Mapping[str, Entrant], n_wanted: int) -> int:
    """Count the answers to a prompt that are compared: no more than recorded ones there are of those that vary."""
    recorded_counts = [
        draws_of(entrant, n_wanted)
        for entrant in entrants.values()
        if entrant.n_draws is not None
    ]
    return min([n_wanted, *(n for n in recorded_counts if n > 1)])


def log_draws(entrants: Mapping[str, Entrant], n_wanted: int, n_draws: int) -> None:
    """Log which entrants have one draw although several are wanted, and which have fewer than wanted."""
    if n_wanted == 1:
        return
    draws_by_entrant = {
        name: draws_of(entrant, n_wanted) for name, entrant in entrants.items()
    }
    for line in opening_line.draws(n_wanted, n_draws, draws_by_entrant):
        logger.info("%s", line)


def look_for(model: ApiSettings, needs: RunNeeds) -> None:
    """Raise UserError for a server that cannot be asked; a plan does not ask it, and lists what a run needs of it."""
    if not needs.is_plan:
        model.preflight()
        return
    with needs.collect():
        model.check_access()
    if getattr(model, "key_variable", "") is None:
        needs.add(f"the server {model.api.endpoint}")


def preflight(
    prompts: Sequence[Prompt],
    entrants: Mapping[str, Entrant],
    judge: Judge | None,
    store: Store,
    *,
    stored_only: bool,
    needs: RunNeeds = _OF_A_RUN,
) -> None:
    """Raise SettingError or another UserError for what would stop the first call, before models work for hours.

    judge        None: none is asked
    stored_only  refuse an entrant behind an API that lacks stored answers
    needs        takes what a plan does without
    """
    for name, entrant in entrants.items():
        if not entrant.is_instant:
            with needs.collect():
                for prompt in prompts[:1]:
                    entrant.cache_key(prompt)
        if not isinstance(entrant, ApiEntrant):
            continue
        if pipeline.has_all_responses(prompts, {name: entrant}, store):
            continue
        if stored_only:
            raise SettingError(
                f"Entrant {name} lacks answers to some prompts, and judging.stored_only=true forbids paid requests. "
                "Leave the entrant out, or set:",
                "  judging.stored_only=false",
            )
        look_for(entrant, needs)
    if isinstance(judge, ApiJudge):
        with needs.collect():
            if not pipeline.has_all_responses(prompts, entrants, store):
                look_for(judge, needs)
