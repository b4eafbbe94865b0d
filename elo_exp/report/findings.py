"""What ratings allow to be said of the leader of a dimension."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elo_exp.analysis.comparisons import Difference
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.report.checks import Check

MIN_PROMPTS = 20  # for a claim about a leader
_WITH_P_BEST = ("unknown", "undecided", "invalid", "caution", "supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The best entrant of a dimension, and how certain that is.

    case     the first that applies: unrated (fewer than two ratings), few_prompts, level (equal
             ratings), unknown (no test), undecided (a rival is not significantly lower), invalid
             (invalid verdicts could undo the lead), open (entrants without a rating may be
             better), caution (the judge failed a check), supported
    others   the entrants level with the leader, or those not significantly lower
    reasons  the checks that the judge failed
    """

    case: str
    n_prompts: int | None
    leader: str | None = None
    second: str | None = None
    gap: float = 0.0  # rating points; shrunken, with its 95 % interval, where possible
    gap_low: float | None = None
    gap_high: float | None = None
    p_best: float | None = None  # of the leader
    evidence: Difference | None = None  # of leader and second
    others: Sequence[str] = ()
    reasons: Sequence[Check] = ()

    @property
    def is_decided(self) -> bool:
        return self.case in ("supported", "caution")

    @property
    def win_rate(self) -> float:
        """Expected of the leader against the second, ties counting half."""
        return float(1.0 / (1.0 + 10.0 ** (-self.gap / 400.0)))


def finding(
    board: Leaderboard | None,
    pairs: Sequence[Difference],
    checks: Sequence[Check] = (),
    *,
    n_prompts: int | None = None,
) -> Finding:
    """Decide what may be said of the leader of one dimension.

    Whether the lead is significant is tested without shrinkage; how large it is, is said with it.

    pairs      its differences
    n_prompts  None where the battles name none
    """
    ratings = board.ratings if board else ()
    rated = [rating for rating in ratings if rating.rating is not None]
    reasons = [check for check in checks if check.state == "caution"]
    leader = rated[0].model if rated else None
    found = Finding(case="unrated", n_prompts=n_prompts, leader=leader, reasons=reasons)
    if board is None or len(rated) < 2:
        return found
    first, second = rated[:2]
    leaders = {first.model, second.model}
    tested = [d for d in pairs if d.significant is not None]
    evidence = next((d for d in tested if {d.higher, d.lower} == leaders), None)
    level = [r.model for r in rated[1:] if r.rank == first.rank]
    rivals = [d.lower for d in pairs if d.higher == first.model and not d.significant]
    rivals += [d.higher for d in pairs if d.lower == first.model]  # at an early look
    if n_prompts is not None and n_prompts < MIN_PROMPTS:
        case = "few_prompts"
    elif level:
        case = "level"
    elif evidence is None:
        case = "unknown"
    elif rivals:
        case = "undecided"
    elif _undone(reasons, first, second):
        case = "invalid"
    elif any(r.rating is None and r.flag != "winless" for r in ratings):
        case = "open"
    else:
        case = "caution" if reasons else "supported"
    gap, low, high = (first.rating or 0.0) - (second.rating or 0.0), None, None
    if evidence:
        gap, low, high = board.lead or (gap, evidence.ci_low, evidence.ci_high)
    return replace(
        found,
        case=case,
        second=second.model,
        gap=gap,
        gap_low=low,
        gap_high=high,
        p_best=first.p_best if case in _WITH_P_BEST else None,
        evidence=evidence,
        others=level or rivals,
    )


def _undone(reasons: Sequence[Check], first: Rating, second: Rating) -> bool:
    """Whether the bounds of what invalid verdicts hide let another entrant be as good."""
    for check in reasons:
        if check.name != "invalid_by_entrant":
            continue
        for row in (check.about or {})["differing"]:
            low, high = row["bound_low"], row["bound_high"]
            if row["model"] == first.model:
                is_undone = low is not None and low <= (second.rating or 0.0)
            else:
                is_undone = high is not None and high >= (first.rating or 0.0)
            if is_undone:
                return True
    return False
