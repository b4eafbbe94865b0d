"""The stages on which money and hours are spent: each asks only for what the store does not have yet.

Calling a stage twice gives the same result, and costs nothing the second time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import groupby

from elo_exp import bill, planning
from elo_exp.entrants import Entrant, LoadedEntrant, ModelEntrant
from elo_exp.judges import Judge, PaidJudge
from elo_exp.ledger import Ledger
from elo_exp.pairs import Responses, reconcile
from elo_exp.planning import Estimate, Plan
from elo_exp.progress import track
from elo_exp.records import (
    Comparison,
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Judgment,
    Prompt,
    Response,
    UserError,
    canonical_json,
    fingerprint,
)
from elo_exp.rubrics import Rubric
from elo_exp.store import Store

logger = logging.getLogger(__name__)

_CHARS_PER_TOKEN = 4  # of English, in an answer that is not there yet
_NAMED = 3  # of many missing things, how many an error names


def generate(
    prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store, *, allow_missing: bool
) -> Responses:
    """Every entrant's response to every prompt. Raises UserError where some are missing, unless that is allowed.

    Entrants with equal weights answer one after the other, and the weights go when the last of them has answered.
    """
    keys = {name: _response_keys(name, entrant, prompts) for name, entrant in entrants.items()}
    found: dict[str, dict[str, Response]] = {}
    for names in _by_weights(entrants):
        try:
            for name in names:
                found[name] = _answers(name, entrants[name], prompts, keys[name], store)
        finally:
            if isinstance(last := entrants[names[-1]], LoadedEntrant):
                last.release()
    usage = store.usage
    logger.info("responses: %d made, %d from the store", usage.responses_generated, usage.responses_stored)
    missing = [f"{name} on {p.prompt_id}" for name in entrants for p in prompts if p.prompt_id not in found[name]]
    if missing:
        _report_missing("responses", missing, len(entrants) * len(prompts), allow_missing)
    return {
        name: {p.prompt_id: found[name][p.prompt_id] for p in prompts if p.prompt_id in found[name]}
        for name in entrants
    }


def _by_weights(entrants: Mapping[str, Entrant]) -> Iterable[Sequence[str]]:
    """The names of entrants that can be answered for with one load, by the order in which a load is first wanted."""
    groups: dict[Hashable, list[str]] = {}
    for name, entrant in entrants.items():
        weights = entrant.weights if isinstance(entrant, LoadedEntrant) else None
        groups.setdefault(weights, []).append(name)
    return groups.values()


def _answers(
    name: str, entrant: Entrant, prompts: Sequence[Prompt], keys: Mapping[str, str], store: Store
) -> dict[str, Response]:
    """The entrant's responses by prompt; those that are new are in the store before they are here."""
    stored = store.get(Response, list(keys.values()))
    wanted = [p for p in prompts if keys[p.prompt_id] not in stored]
    store.usage.responses_wanted += len(prompts)
    store.usage.responses_stored += len(stored)
    found = {r.prompt_id: r for r in stored.values()}
    made = store.keep(entrant.generate(wanted), key=lambda r: keys[r.prompt_id])
    for response in track(made, label=f"answering: {name}", total=len(wanted)):
        found[response.prompt_id] = Response.from_dict(json.loads(canonical_json(response.to_dict())))  # as stored
    if n_cut := sum(response.finish_reason == "length" for response in found.values()):
        logger.info("%s: %d of %d answers are cut off at their limit and judged so", name, n_cut, len(found))
    return found


def assumed(
    prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store, *, allow_missing: bool
) -> Responses:
    """What a plan takes for the responses: a model that has not answered a prompt yet is taken to answer at the mean
    length of its stored answers, or, where there are none, as long as it may. No model is asked."""
    responses: dict[str, Mapping[str, Response]] = {}
    for name, entrant in entrants.items():
        if not isinstance(entrant, ModelEntrant):
            responses |= generate(prompts, {name: entrant}, store, allow_missing=allow_missing)
            continue
        stored = store.get(Response, list(_response_keys(name, entrant, prompts).values()))
        found = {r.prompt_id: r for r in stored.values()}
        lengths = [len(r.response_text) for r in stored.values()]
        n_chars = sum(lengths) // len(lengths) if lengths else _CHARS_PER_TOKEN * entrant.max_answer_tokens
        if n_absent := len(prompts) - len(found):
            logger.info("%s: %d answers are yet to be made, taken to be of %d characters", name, n_absent, n_chars)
        responses[name] = {p.prompt_id: found.get(p.prompt_id) or _assumed(name, p, n_chars) for p in prompts}
    return responses


def _assumed(name: str, prompt: Prompt, n_chars: int) -> Response:
    """A response of this length, unlike any other."""
    text = f"{name} on {prompt.prompt_id}: " + "as it may say " * n_chars
    return Response(entrant_id=name, prompt_id=prompt.prompt_id, response_text=text[:n_chars])


def sharded(prompts: Sequence[Prompt], shard: tuple[int, int]) -> list[Prompt]:
    """The prompts that one of n processes answers: every n-th, from its own number on."""
    number, n = shard
    return list(prompts[number::n])


def all_generated(prompts: Sequence[Prompt], entrants: Mapping[str, Entrant], store: Store) -> bool:
    """Whether the store holds every entrant's response to every prompt."""
    keys = [key for name, entrant in entrants.items() for key in _response_keys(name, entrant, prompts).values()]
    return len(store.get(Response, keys)) == len(set(keys))


def _response_keys(name: str, entrant: Entrant, prompts: Sequence[Prompt]) -> dict[str, str]:
    return {p.prompt_id: fingerprint([name, p.prompt_id, entrant.inputs(p)]) for p in prompts}


def judge_pairs(
    comparisons: Mapping[str, Sequence[Comparison]],
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    *,
    repeats: int = 1,
    stored_only: bool = False,
    allow_missing: bool = False,
) -> dict[str, list[Judgment]]:
    """Both orders of every comparison, judged and reconciled, by dimension.

    A comparison of which a verdict is missing has no judgment. Raises UserError where some are missing, unless that
    is allowed or only the store is to be read.
    """
    identity = _identity(judge)
    store.remember(identity)
    requests = _requests(comparisons, rubrics, identity, repeats)
    every = [request for some in requests.values() for queries in some for request in queries]
    replies = ask(every, judge, store, stored_only=stored_only)
    lost = [_name(r) for r in every if r.key not in replies]
    if lost:
        store.usage.verdicts_missing += len(lost)
        _report_missing("verdicts", lost, len(every), allow_missing or stored_only, mend=_how_to_mend(judge))
    return _judgments(comparisons, rubrics, requests, replies, identity)


def other_judges(
    comparisons: Mapping[str, Sequence[Comparison]], rubrics: Sequence[Rubric], judge: Judge, store: Store
) -> dict[str, dict[str, list[Judgment]]]:
    """What other judges have said of the same comparisons, as far as the store has it: by judge, then by dimension.

    A judge that was asked under several settings is several judges, told apart by the first digits of their keys.
    """
    mine = _identity(judge)
    others = [found for found in store.judges() if found.key != mine.key]
    models = Counter([mine.judge_model, *(found.judge_model for found in others)])
    said = {}
    for found in others:
        requests = _requests(comparisons, rubrics, found, repeats=1)
        keys = {request.key for some in requests.values() for queries in some for request in queries}
        replies = store.get(JudgeReply, list(keys))
        judgments = _judgments(comparisons, rubrics, requests, replies, found)
        if any(judgments.values()):
            model = found.judge_model
            said[model if models[model] == 1 else f"{model} ({found.key[:6]})"] = judgments
    return said


def _identity(judge: Judge) -> JudgeIdentity:
    key = fingerprint([judge.model, judge.settings()])
    return JudgeIdentity(key=key, judge_model=judge.model, reads=tuple(judge.reads))


def _judgments(
    comparisons: Mapping[str, Sequence[Comparison]],
    rubrics: Sequence[Rubric],
    requests: Mapping[str, Sequence[Sequence[JudgeRequest]]],
    replies: Mapping[str, JudgeReply],
    judge: JudgeIdentity,
) -> dict[str, list[Judgment]]:
    """Of the comparisons of which every query has its reply."""
    return {
        rubric.dimension: [
            _judgment(comparison, queries, replies, rubric, judge)
            for comparison, queries in zip(comparisons[rubric.dimension], requests[rubric.dimension], strict=True)
            if all(request.key in replies for request in queries)
        ]
        for rubric in rubrics
    }


def plan_pairs(
    comparisons: Mapping[str, Sequence[Comparison]],
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    *,
    repeats: int = 1,
) -> Plan:
    """What judge_pairs would ask and pay. Asks nothing of the judge and pays nothing."""
    by_dimension = _requests(comparisons, rubrics, _identity(judge), repeats)
    every = [request for some in by_dimension.values() for queries in some for request in queries]
    stored = store.get(JudgeReply, list({request.key for request in every}))
    return _plan(every, stored, Ledger(store, owner="").pending(), judge)


def _requests(
    comparisons: Mapping[str, Sequence[Comparison]], rubrics: Sequence[Rubric], judge: JudgeIdentity, repeats: int
) -> dict[str, list[list[JudgeRequest]]]:
    """By dimension and comparison: order ab, order ba, then any repeats of the two."""
    return {
        rubric.dimension: [
            [
                rubric.request(comparison, judge=judge.key, position_swap=swap, repeat=repeat, reads=judge.reads)
                for repeat in range(repeats)
                for swap in (False, True)
            ]
            for comparison in comparisons[rubric.dimension]
        ]
        for rubric in rubrics
    }


def _plan(requests: Sequence[JudgeRequest], stored: Collection[str], under_way: Collection[str], judge: Judge) -> Plan:
    if isinstance(judge, PaidJudge):
        estimate, budget_usd = judge.estimate, judge.budget_usd
        return planning.plan(
            requests, stored, under_way, judge_model=judge.model, estimate=estimate, budget_usd=budget_usd
        )
    return planning.plan(
        requests, stored, under_way, judge_model=judge.model, estimate=lambda _: Estimate(), budget_usd=None
    )


def _check_before_paying(
    requests: Sequence[JudgeRequest], stored: Collection[str], judge: PaidJudge, store: Store
) -> None:
    """Show the plan. Raises UserError for whatever would stop the run once it has begun to pay."""
    under_way = Ledger(store, owner="").pending()
    if any(request.key not in stored and request.key not in under_way for request in requests):
        judge.preflight()
    plan = _plan(requests, stored, under_way, judge)
    logger.info("%s", bill.plan_table(plan))
    plan.check()


def ask(
    requests: Sequence[JudgeRequest], judge: Judge, store: Store, *, stored_only: bool = False
) -> dict[str, JudgeReply]:
    """The replies by key; equal requests are asked once. Before a judge that costs money is asked, the plan is shown.
    Raises UserError where its budget does not reach."""
    unique = {request.key: request for request in requests}
    replies = store.get(JudgeReply, list(unique))
    wanted = [] if stored_only else [request for key, request in unique.items() if key not in replies]
    usage = store.usage
    usage.verdicts_wanted += len(requests)
    usage.verdicts_distinct += len(unique)
    usage.verdicts_stored += len(replies)
    if wanted and isinstance(judge, PaidJudge):
        _check_before_paying(requests, replies, judge, store)
    for reply in track(judge.answer(wanted, store), label=f"judging: {judge.model}", total=len(wanted)):
        replies[reply.key] = dataclasses.replace(reply, message=None)  # it is in the store, and not needed here
    logger.info(
        "verdicts: %d wanted, %d of them distinct; %d asked of %s, %d from the store",
        len(requests), len(unique), usage.judge_calls, judge.model, usage.verdicts_stored,
    )  # fmt: skip
    if usage.dollars:
        logger.info("%s", bill.spend(usage))
    return replies


def _judgment(
    comparison: Comparison,
    queries: Sequence[JudgeRequest],
    replies: Mapping[str, JudgeReply],
    rubric: Rubric,
    judge: JudgeIdentity,
) -> Judgment:
    ab, ba, *repeats = (rubric.parse(q, replies[q.key], judge_model=judge.judge_model) for q in queries)
    return reconcile(comparison, ab, ba, repeats)


def _name(request: JudgeRequest) -> str:
    subject = request.subject
    return f"{subject.dimension} {subject.prompt_id} {subject.entrant_a} v {subject.entrant_b}"


def _how_to_mend(judge: Judge) -> str:
    return "Ask again with the same command" if isinstance(judge, PaidJudge) else "Supply them"


def _report_missing(
    what: str, missing: Sequence[str], n_wanted: int, allowed: bool, *, mend: str = "Supply them"
) -> None:
    by_owner = {owner: len(list(some)) for owner, some in groupby(sorted(m.split()[0] for m in missing))}
    counts = ", ".join(f"{owner} {n}" for owner, n in by_owner.items())
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    line = f"{len(missing)} of {n_wanted} {what} are missing ({counts}): {named}."
    if not allowed:
        raise UserError(f"{line} {mend}, or go on without with allow_missing=true.")
    logger.warning("warning: %s Going on without them.", line)
