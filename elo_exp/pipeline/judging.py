"""Pairs of responses judged in both orders: asked where the store does not have the verdict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from elo_exp.api.planning import Plan
from elo_exp.data.pairing import reconcile
from elo_exp.data.rubrics import Rubric
from elo_exp.judges import Judge, PaidJudge
from elo_exp.pipeline import bill
from elo_exp.pipeline.missing import report_missing
from elo_exp.pipeline.replies import ask, plan
from elo_exp.records import (
    Comparison,
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Judgment,
    UserError,
    fingerprint,
)
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_AT_LEAST = (
    "That is if the answers that are yet to be made are as long as their makers' others, "
    "or, of who has none, empty. "
)


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

    A comparison of which a verdict is missing has no judgment. Raises UserError where some are
    missing, unless that is allowed or only the store is to be read.
    """
    identity = identify(judge)
    store.remember(identity)
    requests = _requests(comparisons, rubrics, identity, repeats)
    every = [
        request for some in requests.values() for queries in some for request in queries
    ]
    replies = ask(
        every, judge, store, stored_only=stored_only, spent_usd=store.usage.dollars
    )
    lost = [_name(r) for r in every if r.key not in replies]
    if lost:
        store.usage.verdicts_missing += len(lost)
        report_missing(
            "verdicts",
            lost,
            len(every),
            allow_missing or stored_only,
            hint=how_to_go_on(judge),
        )
    return _judgments(comparisons, rubrics, requests, replies, identity)


def other_judges(
    comparisons: Mapping[str, Sequence[Comparison]],
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
) -> dict[str, dict[str, list[Judgment]]]:
    """What other judges have said of the same comparisons, as far as the store has it: by judge,
    then by dimension.

    A judge that was asked under several settings is several judges, told apart by the first digits
    of their keys.
    """
    mine = identify(judge)
    others = [found for found in store.judges() if found.key != mine.key]
    models = Counter([mine.judge_model, *(found.judge_model for found in others)])
    said = {}
    for found in others:
        requests = _requests(comparisons, rubrics, found, repeats=1)
        keys = {
            request.key
            for some in requests.values()
            for queries in some
            for request in queries
        }
        replies = store.get(JudgeReply, list(keys))
        judgments = _judgments(comparisons, rubrics, requests, replies, found)
        if any(judgments.values()):
            model = found.judge_model
            said[model if models[model] == 1 else f"{model} ({found.key[:6]})"] = (
                judgments
            )
    return said


def identify(judge: Judge) -> JudgeIdentity:
    """The judge as the keys of its replies know it."""
    key = fingerprint([judge.model, judge.cache_key()])
    return JudgeIdentity(
        key=key, judge_model=judge.model, key_fields=tuple(judge.key_fields)
    )


def identify_for_plan(judge: Judge) -> JudgeIdentity:
    """Identify a judge; one whose model or files are absent has no stored replies."""
    try:
        return identify(judge)
    except UserError as error:
        logger.warning("warning: %s The plan counts no reply as stored.", error)
        return JudgeIdentity(
            key="", judge_model=judge.model, key_fields=tuple(judge.key_fields)
        )


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
            for comparison, queries in zip(
                comparisons[rubric.dimension], requests[rubric.dimension], strict=True
            )
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
    stored_only: bool = False,
) -> Plan:
    """What judge_pairs would ask and pay. Asks nothing of the judge and pays nothing."""
    by_dimension = _requests(comparisons, rubrics, identify_for_plan(judge), repeats)
    every = [
        request
        for some in by_dimension.values()
        for queries in some
        for request in queries
    ]
    return plan(
        every, judge, store, stored_only=stored_only, spent_usd=store.usage.dollars
    )


def _requests(
    comparisons: Mapping[str, Sequence[Comparison]],
    rubrics: Sequence[Rubric],
    judge: JudgeIdentity,
    repeats: int,
) -> dict[str, list[list[JudgeRequest]]]:
    """By dimension and comparison: order ab, order ba, then any repeats of the two."""
    return {
        rubric.dimension: [
            [
                rubric.request(
                    comparison,
                    judge=judge.key,
                    position_swap=swap,
                    repeat=repeat,
                    key_fields=judge.key_fields,
                )
                for repeat in range(repeats)
                for swap in (False, True)
            ]
            for comparison in comparisons[rubric.dimension]
        ]
        for rubric in rubrics
    }


def check_before_answers(plan: Plan, least: Plan, store: Store) -> None:
    """Show the plan of answers that are yet to be made. Raises UserError where the cap would not
    even reach for the `least` that they may be."""
    logger.info("%s", bill.plan_table(plan))
    least.check(store.usage, hint=_AT_LEAST)


def _judgment(
    comparison: Comparison,
    queries: Sequence[JudgeRequest],
    replies: Mapping[str, JudgeReply],
    rubric: Rubric,
    judge: JudgeIdentity,
) -> Judgment:
    ab, ba, *repeats = (
        rubric.parse(q, replies[q.key], judge_model=judge.judge_model) for q in queries
    )
    return reconcile(comparison, ab, ba, repeats)


def _name(request: JudgeRequest) -> str:
    subject = request.subject
    return f"{subject.dimension} {subject.prompt_id} {' v '.join(subject.entrants)}"


def how_to_go_on(judge: Judge) -> str:
    """What can be done about answers that this judge has not given."""
    return (
        "Ask again with the same command"
        if isinstance(judge, PaidJudge)
        else "Supply them"
    )
