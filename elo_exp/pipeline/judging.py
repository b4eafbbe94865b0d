"""Judge pairs of responses in both orders, and score single responses."""

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from elo_exp.api.jobs import Completion, Job, Message
from elo_exp.data.pairing import choose_orders, reconcile
from elo_exp.data.rubrics import Instructions, Rubric
from elo_exp.data.scoring import PointwiseRubric
from elo_exp.errors import SettingError, UserError
from elo_exp.files import utc_now
from elo_exp.judges import (
    ApiJudge,
    BatchJudge,
    Judge,
)
from elo_exp.masking import current_mask, mask_text
from elo_exp.pipeline import paying
from elo_exp.pipeline.missing import report_missing
from elo_exp.pipeline.plan_table import describe_calls, plan_table, spend
from elo_exp.pipeline.planning import Plan, make_plan
from elo_exp.pipeline.watching import ReplyGuard
from elo_exp.progress import track
from elo_exp.records import (
    Comparison,
    Item,
    JudgeIdentity,
    JudgeReply,
    JudgeRequest,
    Judgment,
    Score,
    make_fingerprint,
)
from elo_exp.store.answer_store import Store
from elo_exp.store.claims import get_or_create
from elo_exp.store.judge_identities import add_judge, list_judges
from elo_exp.store.ledger import Ledger
from elo_exp.store.usage import Usage

logger = logging.getLogger(__name__)

# Replies that take no time
_INSTANT_REPLIES_PER_TRANSACTION = 256
_LOWER_BOUND_NOTE = (
    "This estimate takes missing answers to be as long as their entrant's others, or empty where "
    "it has none."
)

Comparisons = Mapping[str, Sequence[Comparison]]  # by dimension
# What a judge is asked about: comparisons, and answers that are scored one by one
Subjects = Mapping[str, Sequence[Comparison | Item]]


@dataclass(frozen=True, kw_only=True)
class JudgingSettings:
    """How a judge is asked.

    both_orders    share of the comparisons that are judged in both orders
    repeats        times that each query is asked
    stored_only    read the store, and ask nothing
    allow_missing  go on without replies that are missing
    canary         new replies of a judge on a rubric that are read before others are asked for; 0: none is watched
    max_invalid    share of these, or of the last ones, that may hold nothing, beyond which a judge is stopped
    is_part        these are some of the comparisons of a run, none of whose replies need hold a verdict
    """

    both_orders: float = 1.0
    repeats: int = 1
    stored_only: bool = False
    allow_missing: bool = False
    canary: int = 0
    max_invalid: float = 1.0
    is_part: bool = False


_DEFAULT_ASKING = JudgingSettings()


def judge_pairs(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
    *,
    name: str | None = None,
) -> dict[str, list[Judgment]]:
    """Judge comparisons, a share of them in both orders, and reconcile them, by dimension.

    name  of the judge in its verdicts; None: its model's. What is stored names the model

    A comparison without all its verdicts has no judgment. Raises EvidenceError if verdicts are
    missing, unless that is allowed or only the store is to be read.
    """
    identity = identify(judge)
    if not asking.both_orders:
        store.usage.flips = None
    tasks = _make_tasks(comparisons, rubrics, identity, asking)
    by_dimension = {rubric.dimension: rubric for rubric in rubrics}

    def reads(request: JudgeRequest, reply: JudgeReply) -> bool:
        rubric = by_dimension[request.subject.dimension]
        verdict = rubric.parse(request, reply, judge_model=judge.model)
        return verdict.verdict != "INVALID"

    named_identity = dataclasses.replace(identity, judge_model=name or judge.model)
    on_reply = _make_reply_handler(tasks, named_identity, store.usage, judge.share)
    get_replies(
        _list_queries(tasks), judge, store, asking, reads=reads, on_reply=on_reply
    )
    add_judge(store, identity)  # now that it has judged
    return _list_judgments(tasks, rubrics)


def plan_judging(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> Plan:
    """Plan what judge_pairs and score_responses would ask and pay; makes no paid call.

    Of a judge whose model or files are absent no reply counts as stored.
    """
    try:
        identity = identify(judge)
    except UserError as error:
        logger.warning(
            "warning: %s The plan assumes that no reply is in the cache.", error
        )
        identity = JudgeIdentity(
            key="", judge_model=judge.model, key_fields=tuple(judge.key_fields)
        )
    requests = _make_requests(subjects, rubrics, identity, asking)
    is_scored = [isinstance(rubric, PointwiseRubric) for rubric in rubrics]
    noun = "verdicts"
    if any(is_scored):
        noun = "scores" if all(is_scored) else "verdicts and scores"
    return plan_replies(requests, judge, store, asking, noun=noun)


def count_new_queries(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> int:
    """Count the distinct queries that are neither stored nor in a batch under way."""
    unstored = _find_unstored_keys(comparisons, rubrics, judge, store, asking)
    return len(unstored - set(Ledger(store).list_pending_keys()))


def has_all_replies(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> bool:
    """Return whether the store has a reply to every query about these subjects."""
    return not _find_unstored_keys(subjects, rubrics, judge, store, asking)


def refuse_missing_replies(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> None:
    """Raise EvidenceError if a judge whose replies are on file lacks some of them, unless replies may be missing."""
    if asking.allow_missing or asking.stored_only:
        return
    requests = _make_requests(subjects, rubrics, identify(judge), asking)
    unique = {request.key: request for request in requests}
    replies = {*store.get(JudgeReply, list(unique))}
    unstored = [request for key, request in unique.items() if key not in replies]
    replies |= {reply.key for reply in judge.answer(unstored)}
    for kind, noun in ((Comparison, "verdicts"), (Item, "scores")):
        of_kind = [query for query in requests if isinstance(query.subject, kind)]
        _report_missing_replies(of_kind, replies, judge, asking, noun)


def read_stored_judgments(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> dict[str, list[Judgment]]:
    """Return the judgments whose replies are all stored, by dimension; nobody is asked, and nothing is counted."""
    identity = identify(judge)
    tasks = _make_tasks(comparisons, rubrics, identity, asking)
    keys = {query.key for query in _list_queries(tasks)}
    add = _make_reply_handler(tasks, identity, Usage())
    for reply in store.get(JudgeReply, list(keys)).values():
        add(reply)
    return _list_judgments(tasks, rubrics)


def estimate_price(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: Judge,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> dict[str, float]:
    """Return what asking the judge about as much again would cost, in dollars by dimension."""
    plan = plan_anew(comparisons, rubrics, judge, asking)
    return {row.dimension: row.dollars for row in plan.rows}


def plan_anew(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: Judge,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> Plan:
    """Plan the same calls as if nothing were stored. The plan has the full price of each rubric."""
    requests = _make_requests(subjects, rubrics, identify(judge), asking)
    return make_plan(requests, judge, (), ())


def _find_unstored_keys(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: Judge,
    store: Store,
    asking: JudgingSettings,
) -> set[str]:
    """Return the keys of the queries without a stored reply."""
    requests = _make_requests(subjects, rubrics, identify(judge), asking)
    keys = {request.key for request in requests}
    return keys - store.get(JudgeReply, list(keys)).keys()


def check_before_answers(plan: Plan, least: Plan, store: Store) -> None:
    """Show the plan of a run some of whose answers are missing.

    Raises UserError where the cap is too small even for the least that they may cost to judge.
    """
    logger.info("%s", plan_table(plan))
    least.check(store, hint=_LOWER_BOUND_NOTE)


def read_other_judgments(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> dict[str, dict[str, list[Judgment]]]:
    """Return the stored judgments of other judges on these comparisons, by judge and dimension.

    Of a query that was asked several times, the first reply counts.

    A model with several settings is several judges, distinguished by the first digits of their
    keys.
    """
    own_identity = identify(judge)
    other_identities = [
        identity for identity in list_judges(store) if identity.key != own_identity.key
    ]
    n_judges = Counter(
        [
            own_identity.judge_model,
            *(identity.judge_model for identity in other_identities),
        ]
    )
    by_judge, single_asking = {}, dataclasses.replace(asking, repeats=1)
    for identity in other_identities:
        tasks = _make_tasks(comparisons, rubrics, identity, single_asking)
        keys = {query.key for query in _list_queries(tasks)}
        add = _make_reply_handler(tasks, identity, Usage())
        for reply in store.get(JudgeReply, list(keys)).values():
            add(reply)
        judgments = _list_judgments(tasks, rubrics)
        if any(judgments.values()):
            name = identity.judge_model
            if n_judges[name] > 1:
                name += f" ({identity.key[:6]})"
            by_judge[name] = judgments
    return by_judge


def identify(judge: Judge) -> JudgeIdentity:
    """Identify a judge as the keys of its replies do."""
    key = make_fingerprint([judge.model, judge.cache_key()])
    return JudgeIdentity(
        key=key, judge_model=judge.model, key_fields=tuple(judge.key_fields)
    )


@dataclass
class _Task:
    """A comparison whose queries are being answered."""

    comparison: Comparison
    rubric: Rubric
    # order ab, order ba or one of them, then any repeats
    queries: Sequence[JudgeRequest]
    replies: dict[str, JudgeReply] = field(default_factory=dict)
    judgment: Judgment | None = None


def _make_tasks(
    comparisons: Comparisons,
    rubrics: Sequence[Rubric],
    judge: JudgeIdentity,
    asking: JudgingSettings,
) -> list[_Task]:
    tasks = []
    for rubric in rubrics:
        for comparison in comparisons[rubric.dimension]:
            queries = _make_requests_about(comparison, rubric, judge, asking)
            tasks.append(_Task(comparison, rubric, queries))
    return tasks


def _make_requests(
    subjects: Subjects,
    rubrics: Sequence[Instructions],
    judge: JudgeIdentity,
    asking: JudgingSettings,
) -> list[JudgeRequest]:
    return [
        request
        for rubric in rubrics
        for subject in subjects[rubric.dimension]
        for request in _make_requests_about(subject, rubric, judge, asking)
    ]


def _make_requests_about(
    subject: Comparison | Item,
    rubric: Instructions,
    judge: JudgeIdentity,
    asking: JudgingSettings,
) -> list[JudgeRequest]:
    """Return the queries about a comparison, by repeats and orders, or the one about a single answer."""
    if isinstance(subject, Item):
        return [rubric.request(subject, judge=judge.key, key_fields=judge.key_fields)]
    return [
        rubric.request(
            subject,
            judge=judge.key,
            position_swap=swap,
            repeat=repeat,
            key_fields=judge.key_fields,
        )
        for repeat in range(1 if subject.is_control else asking.repeats)
        for swap in choose_orders(subject, asking.both_orders)
    ]


def _list_queries(tasks: Sequence[_Task]) -> list[JudgeRequest]:
    return [query for task in tasks for query in task.queries]


def _make_reply_handler(
    tasks: Sequence[_Task],
    judge: JudgeIdentity,
    usage: Usage,
    share_of: Callable[[JudgeReply], float | None] = lambda reply: None,
) -> Callable[[JudgeReply], None]:
    """Return a function that takes in a reply, and makes each judgment when its last reply comes in.

    share_of  what a reply gives to the response shown as A; None: it names a label
    """
    shares = dict[str, float | None]()
    by_key: dict[str, list[_Task]] = {}
    for task in tasks:
        for key in {query.key for query in task.queries}:
            by_key.setdefault(key, []).append(task)

    def add(reply: JudgeReply) -> None:
        shares[reply.key] = share_of(reply)
        for task in by_key.get(reply.key, ()):
            task.replies[reply.key] = _drop_message(reply)
            is_partial = any(query.key not in task.replies for query in task.queries)
            if is_partial or task.judgment:
                continue
            verdicts = [
                task.rubric.parse(
                    query,
                    task.replies[query.key],
                    judge_model=judge.judge_model,
                    share=shares[query.key],
                )
                for query in task.queries
            ]
            task.judgment = reconcile(task.comparison, verdicts)
            usage.invalid += task.judgment.invalid
            if usage.flips is not None:
                usage.flips += bool(task.judgment.inconsistent)

    return add


def _list_judgments(
    tasks: Sequence[_Task], rubrics: Sequence[Rubric]
) -> dict[str, list[Judgment]]:
    """Return the judgments so far by dimension, in the order of their comparisons."""
    judgments: dict[str, list[Judgment]] = {rubric.dimension: [] for rubric in rubrics}
    for task in tasks:
        if task.judgment:
            judgments[task.rubric.dimension].append(task.judgment)
    return judgments


# Scores


def score_responses(
    items: Sequence[Item],
    rubric: PointwiseRubric,
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> list[Score]:
    """Return a score for each item, in their order. An oracle's label is a score, too.

    A reply that is missing or unreadable has no number. Raises EvidenceError where replies are missing,
    unless that is allowed or only the store is to be read.
    """
    requests = _make_score_requests(items, rubric, judge)

    def reads(request: JudgeRequest, reply: JudgeReply) -> bool:
        score = rubric.parse(request, reply, judge_model=judge.model)
        return score.judge_score is not None

    replies = get_replies(requests, judge, store, asking, reads=reads, noun="scores")
    scores = []
    for request in requests:
        missing_reply = JudgeReply(key=request.key, text="", stop_reason="missing")
        reply = replies.get(request.key, missing_reply)
        scores.append(rubric.parse(request, reply, judge_model=judge.model))
    reasons = Counter(
        score.stop_reason
        for score in scores
        if score.judge_score is None and score.stop_reason != "missing"
    )
    if reasons:
        causes = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
        logger.warning(
            "warning: %d of %d replies hold no score (%s), so these answers have none",
            reasons.total(), len(scores), causes,
        )  # fmt: skip
    return scores


def plan_scores(
    items: Sequence[Item],
    rubric: PointwiseRubric,
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
) -> Plan:
    """Plan what score_responses would ask and pay; makes no paid call."""
    requests = _make_score_requests(items, rubric, judge)
    return plan_replies(requests, judge, store, asking, noun="scores")


def count_scored(
    items: Sequence[Item], rubric: PointwiseRubric, judge: Judge, store: Store
) -> int:
    """Count the items with a stored reply."""
    keys = [request.key for request in _make_score_requests(items, rubric, judge)]
    stored = store.get(JudgeReply, list(set(keys)))
    return sum(key in stored for key in keys)


def _make_score_requests(
    items: Sequence[Item], rubric: PointwiseRubric, judge: Judge
) -> list[JudgeRequest]:
    identity = identify(judge)
    return [
        rubric.request(item, judge=identity.key, key_fields=identity.key_fields)
        for item in items
    ]


# Replies, by whichever rubric


def get_replies(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
    *,
    reads: Callable[[JudgeRequest, JudgeReply], bool] = lambda request, reply: True,
    noun: str = "verdicts",
    on_reply: Callable[[JudgeReply], None] = lambda reply: None,
) -> dict[str, JudgeReply]:
    """Return the replies by key, stored ones and new ones; equal requests are made once.

    The plan is shown before a judge is paid. Raises UserError where its budget is too small, where
    its replies hold nothing, and where replies are missing, unless that is allowed or only the store
    is to be read.

    reads     whether a reply holds what its request asks for
    noun      plural noun for what the replies hold
    on_reply  called with every reply, stored ones first
    """
    unique = {request.key: request for request in requests}
    needs_messages = judge.reads_shares
    replies = store.get(JudgeReply, list(unique), with_messages=needs_messages)
    usage, n_stored, n_before = store.usage, len(replies), store.usage.judge_calls
    usage.verdicts_wanted += len(requests)
    usage.verdicts_distinct += len(unique)
    usage.verdicts_stored += n_stored
    wanted = [request for key, request in unique.items() if key not in replies]
    if asking.stored_only:
        wanted = []
    new: Iterator[JudgeReply] = iter(())
    watch = ReplyGuard(
        unique,
        replies,
        judge,
        reads=reads,
        canary=0 if judge.is_recorded else asking.canary,
        max_invalid=asking.max_invalid,
        is_known=bool(wanted)
        and isinstance(judge, ApiJudge)
        and identify(judge) in list_judges(store),
        noun=noun,
    )
    if wanted and isinstance(judge, ApiJudge):
        under_way = Ledger(store).list_pending_keys()
        if any(request.key not in under_way for request in wanted):
            judge.preflight()
        expected_plan = make_plan(requests, judge, replies, under_way, noun=noun)
        logger.info("%s", plan_table(expected_plan))
        expected_plan.check(store)
        watch.check()
        new = _pay(wanted, judge, store, watch)
    elif wanted:
        new = _ask(wanted, judge, store, watch)
    usage.verdicts_left += len(wanted)
    for key, reply in replies.items():
        on_reply(reply)
        replies[key] = _drop_message(reply)
    for reply in track(new, label=f"judging: {judge.model}", total=len(wanted)):
        replies[reply.key] = _drop_message(reply)
        usage.verdicts_left -= 1
        on_reply(reply)
    logger.info(
        "%s: %s new from %s, %s from cache (%s)",
        noun,
        f"{usage.judge_calls - n_before:,}",
        judge.model,
        f"{n_stored:,}",
        describe_calls(len(requests), len(unique)),
    )
    if usage.dollars_at_most:
        logger.info("%s", spend(usage))
    if not asking.is_part:
        watch.check_all()
    usage.verdicts_missing += _report_missing_replies(
        requests, replies, judge, asking, noun
    )
    return replies


def _report_missing_replies(
    requests: Sequence[JudgeRequest],
    replies: Collection[str],
    judge: Judge,
    asking: JudgingSettings,
    noun: str = "verdicts",
) -> int:
    """Count the requests without a reply; raise EvidenceError for some, unless they may be missing."""
    missing = [_name_subject(r.subject) for r in requests if r.key not in replies]
    report_missing(
        noun,
        missing,
        len(requests),
        asking.allow_missing or asking.stored_only,
        hint=judge.missing_replies_hint,
    )
    return len(missing)


def _drop_message(reply: JudgeReply) -> JudgeReply:
    """Return a reply without its message, which the store has whole."""
    return dataclasses.replace(reply, message=None) if reply.message else reply


def _name_subject(subject: Comparison | Item) -> str:
    if isinstance(subject, Item):
        return f"{subject.entrant_id} on {subject.prompt_id}"
    n = max(subject.draw_a, subject.draw_b)
    draw = f", draw {n + 1}" if n else ""
    names = " v ".join(subject.entrants)
    return f"{subject.dimension} {subject.prompt_id} {names}{draw}"


def _ask(
    requests: Sequence[JudgeRequest], judge: Judge, store: Store, watch: ReplyGuard
) -> Iterator[JudgeReply]:
    """Yield the replies of a judge that answers by itself, each committed before the watch sees it.

    What takes time is made by one process, and the others wait for it.
    """

    def make_replies(requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        return _check_replies(judge, requests) if requests else iter(())

    replies = (
        store.keep(
            make_replies(requests),
            key=lambda reply: reply.key,
            chunk=_INSTANT_REPLIES_PER_TRANSACTION,
        )
        if judge.is_instant
        else get_or_create(
            {request.key: request for request in requests},
            store,
            record=JudgeReply,
            key=lambda reply: reply.key,
            make=make_replies,
            noun="verdicts",
        )
    )
    with closing(replies):
        for reply in replies:
            yield reply
            watch.see(reply)
            watch.check()


def _check_replies(
    judge: Judge, requests: Sequence[JudgeRequest]
) -> Iterator[JudgeReply]:
    """Yield the replies of a judge, with its name and the time. Raises SettingError for anything else that it yields."""
    name = f"{type(judge).__name__}.answer"
    must = "be a generator that yields request.reply(...) for each request"
    by_key = {request.key: request for request in requests}
    replies = judge.answer(requests)
    if not isinstance(replies, Iterable):
        raise SettingError(f"{name} must {must}; it returned {replies!r:.80}.")
    for reply in replies:
        if not isinstance(reply, JudgeReply):
            raise SettingError(f"{name} must {must}; it yielded {reply!r:.80}.")
        if reply.key not in by_key:
            raise SettingError(
                f"{name} must {must}; it yielded a reply with the key {reply.key!r:.50}, which no request has."
            )
        if reply.judge_model is not None:
            yield reply
            continue
        yield dataclasses.replace(
            reply,
            timestamp=reply.timestamp or utc_now(),
            judge_model=judge.model,
            **by_key[reply.key].names,
        )


def _pay(
    requests: Sequence[JudgeRequest],
    judge: ApiJudge,
    store: Store,
    watch: ReplyGuard | None = None,
) -> Iterator[JudgeReply]:
    jobs = {
        request.key: Job(
            key=request.key,
            names={**request.names, "judge_model": judge.model},
            request=request,
            prefix=request.system,
        )
        for request in requests
    }
    return paying.pay_for_answers(
        jobs,
        judge,
        store,
        record=JudgeReply,
        key=lambda reply: reply.key,
        make=_make_reply,
        noun="answers",
        watch=watch,
    )


def _make_reply(
    key: str,
    names: Mapping[str, Any],
    completion: Completion,
    dollars: float | None,
    message: Message,
) -> JudgeReply:
    answer = {
        "key": key,
        "text": completion.text,
        "stop_reason": mask_text(completion.stop_reason),
        "usage": completion.usage,
        "dollars": dollars or 0.0,
        "timestamp": utc_now(),
        # an answer stays as it came; a server may repeat a key beside it
        "message": json.dumps(
            current_mask().values(message, kept_text=completion.text)
        ),
    }
    return JudgeReply.from_dict({**names, **answer})


def collect(judge: BatchJudge, store: Store) -> None:
    """Wait for the batches under way and store their replies; submit nothing."""
    paying.collect(judge, store, _make_reply)


def recover(judge: BatchJudge, store: Store) -> int:
    """Store the replies of batches that the store does not know; return how many batches they are. Submit nothing."""
    return paying.recover(judge, store, _make_reply)


def plan_replies(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: Store,
    asking: JudgingSettings = _DEFAULT_ASKING,
    *,
    noun: str = "verdicts",
) -> Plan:
    """Plan what `ask` would ask and pay."""
    stored = store.get(JudgeReply, list({request.key for request in requests}))
    under_way = Ledger(store).list_pending_keys()
    return make_plan(
        requests, judge, stored, under_way, stored_only=asking.stored_only, noun=noun
    )
