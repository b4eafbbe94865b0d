"""Whether replies hold what was asked for, watched while they are made: nothing is paid for rubbish.

The first new replies of each rubric, the canary, go alone; from then on the last of them are watched. What has been
paid is in the store whatever is concluded.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elo_exp.api.jobs import Job
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.judges import NO_LOGPROBS, THINKS, ApiJudge, Judge
from elo_exp.records import JudgeReply, JudgeRequest

REPLY_WINDOW = 200
_MAX_QUOTED_CHARACTERS = 200
# By stop_reason
_NO_PROBABILITIES_PHRASES = {
    THINKS: (
        "thinks before it answers",
        "  Set {part}.verdict=label, or switch thinking off ({part}.extra_body).",
    ),
    NO_LOGPROBS: (
        "returns no log-probabilities of its tokens",
        "  Set {part}.verdict=label, or use a server that returns them.",
    ),
}
# By plural noun; else a verdict
_SINGULAR_NOUNS = {"scores": "score"}
_GO_ON_HINT = "To go on anyway, set judging.canary=0."
# By singular noun: of judges that answer by themselves
_EXPECTED_TEXTS = {
    "verdict": 'JSON with "verdict": "A", "B" or "TIE", as request.reply(verdict="A") writes it',
    "score": 'JSON with a "score" on the scale, as request.reply(score=1) writes it',
}


@dataclass
class _ReplyWindow:
    """The last replies on one rubric: whether each could be read, and the first that could not."""

    are_read: deque[bool] = field(default_factory=lambda: deque(maxlen=REPLY_WINDOW))
    first_unread: JudgeReply | None = None

    def add(self, reply: JudgeReply, *, is_read: bool) -> None:
        self.are_read.append(is_read)
        if not is_read and self.first_unread is None:
            self.first_unread = reply

    @property
    def n_unread(self) -> int:
        return self.are_read.count(False)

    def exceeds(self, share: float) -> bool:
        return self.n_unread > share * len(self.are_read)

    def forget(self) -> None:
        self.are_read.clear()
        self.first_unread = None


class ReplyGuard:
    """What the replies to requests have held so far, by rubric.

    Parameters
    ----------
    requests : by key, all that are asked for
    stored : replies to them that the store holds; as many of a rubric as `canary` make it need none
    reads : whether a reply holds what its request asks for
    canary : so many new replies of a rubric go alone; 0: nothing is watched
    max_invalid : share of the replies of the canary, or of a window, beyond which the run stops
    is_known : whether this judge has judged before; its batches go without a canary, which takes up to a day
    noun : plural noun for what replies hold
    """

    def __init__(
        self,
        requests: Mapping[str, JudgeRequest],
        stored: Mapping[str, JudgeReply],
        judge: Judge,
        *,
        reads: Callable[[JudgeRequest, JudgeReply], bool],
        canary: int,
        max_invalid: float,
        is_known: bool,
        noun: str,
    ) -> None:
        self._requests = requests
        self._judge = judge
        self._is_readable = reads
        self._canary = canary
        self._max_invalid = max_invalid
        is_batched = isinstance(judge, ApiJudge) and judge.transport == "batches"
        self._is_known = is_known and is_batched
        self._noun = _SINGULAR_NOUNS.get(noun, "verdict")
        self._n_read = self._n_unread = 0
        self._first_unread: JudgeReply | None = None
        self._replies: defaultdict[str, _ReplyWindow] = defaultdict(_ReplyWindow)
        self._reply_without_probabilities: JudgeReply | None = None
        if canary:
            self._reply_without_probabilities = next(
                (
                    reply
                    for reply in stored.values()
                    if reply.stop_reason in _NO_PROBABILITIES_PHRASES
                ),
                None,
            )
            for reply in stored.values():
                self._add_reply(reply)
            for replies in self._replies.values():
                # After one canary, and the query that warms the cache, the server may have been mended.
                is_single_canary = len(replies.are_read) <= canary + 1
                if is_single_canary and replies.exceeds(max_invalid):
                    replies.forget()

    def alone(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs whose answers are to be seen before others are sent; none where these would be all.

        They are drawn evenly from the jobs of each rubric, so that no entrant or prompt speaks for the others.
        """
        if not self._canary or self._is_known:
            return []
        by_rubric = defaultdict[str, list[Job]](list)
        for job in jobs:
            by_rubric[job.request.subject.dimension].append(job)
        canary_jobs = []
        for name, rubric_jobs in by_rubric.items():
            n = min(self._canary - len(self._replies[name].are_read), len(rubric_jobs))
            canary_jobs += [rubric_jobs[i * len(rubric_jobs) // n] for i in range(n)]
        return canary_jobs if len(canary_jobs) < len(jobs) else []

    def see(self, reply: JudgeReply) -> None:
        """Take in a reply. Raises UserError where too few of its rubric's last ones could be read, and where it was
        asked for probabilities that its model does not give."""
        self._check_probabilities(reply)
        if self._canary and reply.key in self._requests:
            name = self._add_reply(reply)
            if len(self._replies[name].are_read) == REPLY_WINDOW:
                self._check_rubric(name)

    def check(self, *, is_through: bool = False) -> None:
        """Raise UserError where too few replies of a rubric could be read, or a stored one has no probabilities.

        is_through  the canary has been answered, but for what failed: half of it is enough to tell
        """
        if self._reply_without_probabilities:
            self._check_probabilities(self._reply_without_probabilities)
        min_replies = (self._canary + 1) // 2 if is_through else self._canary
        for name, replies in self._replies.items():
            if len(replies.are_read) >= min_replies:
                self._check_rubric(name)

    def check_all(self) -> None:
        """Raise EvidenceError where none of all replies could be read: there is nothing to report."""
        if self._first_unread is None or self._n_read:
            return
        quote = quote_beginning(self._first_unread.text)
        raise EvidenceError(
            f"None of {self._n_unread} replies holds a {self._noun} (judge {self._judge.model}). {self._stored_note}",
            f"  The first: {quote} ({self._first_unread.stop_reason})",
            self._remedy(),
        )

    def _check_probabilities(self, reply: JudgeReply) -> None:
        """Raise SettingError for a reply without the probabilities that were asked for: no other will have them."""
        if phrases := _NO_PROBABILITIES_PHRASES.get(reply.stop_reason):
            cause, remedy = phrases
            part = self._judge.part if isinstance(self._judge, ApiJudge) else "judge"
            raise SettingError(
                f"{part}.verdict=probabilities cannot work: {self._judge.model} {cause}. {self._stored_note}",
                remedy.format(part=part),
                "  This command pays no more. To ask the model again, set judging.canary=0.",
            )

    def _add_reply(self, reply: JudgeReply) -> str:
        request = self._requests[reply.key]
        name = request.subject.dimension
        is_read = self._is_readable(request, reply)
        if is_read:
            self._n_read += 1
        else:
            self._n_unread += 1
            self._first_unread = self._first_unread or reply
        self._replies[name].add(reply, is_read=is_read)
        return str(name)

    def _check_rubric(self, name: str) -> None:
        replies = self._replies[name]
        n, n_unread = len(replies.are_read), replies.n_unread
        if not replies.exceeds(self._max_invalid) or replies.first_unread is None:
            return
        position = "last" if n == REPLY_WINDOW else "first"
        raise EvidenceError(
            f"{n_unread} of the {position} {n} replies hold no {self._noun} (judge {self._judge.model} on {name}). "
            f"{self._stored_note}",
            f"  The first: {quote_beginning(replies.first_unread.text)} ({replies.first_unread.stop_reason})",
            self._remedy(),
        )

    @property
    def _stored_note(self) -> str:
        if isinstance(self._judge, ApiJudge):
            return "Replies that were paid for are stored, and are not paid for again."
        return "All replies are stored."

    def _remedy(self) -> str:
        if not isinstance(self._judge, ApiJudge):
            return f"  A reply must be {_EXPECTED_TEXTS[self._noun]}. {_GO_ON_HINT}"
        *other_remedies, last_remedy = self._judge.list_remedies()
        return f"  Try {', '.join(other_remedies)} or {last_remedy}. {_GO_ON_HINT}"


def quote_beginning(text: str) -> str:
    """Return the beginning of a reply on one line, in quotation marks."""
    line = " ".join(text.split())
    return f'"{line[:_MAX_QUOTED_CHARACTERS]}{"..." if len(line) > _MAX_QUOTED_CHARACTERS else ""}"'
