"""Responses scored one by one: asked where the store does not have the score. An oracle's label is
a score too."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from elo_exp.api.planning import Plan
from elo_exp.data.scoring import ScoreRubric
from elo_exp.judges import Judge
from elo_exp.pipeline.judging import how_to_go_on, identify
from elo_exp.pipeline.missing import report_missing
from elo_exp.pipeline.replies import ask, plan
from elo_exp.records import Item, JudgeReply, JudgeRequest, Score
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)


def score_responses(
    items: Sequence[Item],
    rubric: ScoreRubric,
    judge: Judge,
    store: Store,
    *,
    stored_only: bool = False,
    allow_missing: bool = False,
) -> list[Score]:
    """A score for each item, in their order.

    One that cannot be read has no number, and is counted in a warning; nor has one that the judge
    did not give. Raises UserError where some of these are missing, unless that is allowed or only
    the store is to be read.
    """
    requests = _requests(items, rubric, judge)
    replies = ask(requests, judge, store, stored_only=stored_only, what="scores")
    lost = [
        f"{r.subject.entrants[0]} on {r.subject.prompt_id}"
        for r in requests
        if r.key not in replies
    ]
    if lost:
        store.usage.verdicts_missing += len(lost)
        report_missing(
            "scores",
            lost,
            len(requests),
            allow_missing or stored_only,
            hint=how_to_go_on(judge),
        )
    scores = [
        rubric.parse(r, replies.get(r.key) or _missing(r), judge_model=judge.model)
        for r in requests
    ]
    _warn_of_unread(scores)
    return scores


def plan_scores(
    items: Sequence[Item],
    rubric: ScoreRubric,
    judge: Judge,
    store: Store,
    *,
    stored_only: bool = False,
) -> Plan:
    """What score_responses would ask and pay. Asks nothing of the judge and pays nothing."""
    return plan(_requests(items, rubric, judge), judge, store, stored_only=stored_only)


def n_scored(
    items: Sequence[Item], rubric: ScoreRubric, judge: Judge, store: Store
) -> int:
    """To how many of the items the store holds the judge's reply."""
    keys = [request.key for request in _requests(items, rubric, judge)]
    stored = store.get(JudgeReply, list(set(keys)))
    return sum(key in stored for key in keys)


def _requests(
    items: Sequence[Item], rubric: ScoreRubric, judge: Judge
) -> list[JudgeRequest]:
    identity = identify(judge)
    return [
        rubric.request(item, judge=identity.key, key_fields=identity.key_fields)
        for item in items
    ]


def _missing(request: JudgeRequest) -> JudgeReply:
    return JudgeReply(key=request.key, text="", stop_reason="missing")


def _warn_of_unread(scores: Sequence[Score]) -> None:
    reasons = Counter(
        s.stop_reason
        for s in scores
        if s.judge_score is None and s.stop_reason != "missing"
    )
    if reasons:
        causes = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
        logger.warning(
            "warning: %d of %d replies hold no score (%s): those responses have none",
            reasons.total(), len(scores), causes,
        )  # fmt: skip
