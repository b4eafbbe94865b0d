"""What may be said where several judges were asked: of three or more jointly, of two by what both have said."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis import judges, missing_answers
from elo_exp.analysis.agreement import pairwise_kappa
from elo_exp.analysis.checks import MIN_PROMPTS
from elo_exp.analysis.comparisons import Difference, First, first_of, holm
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.tournament import of_missing, worst_case
from elo_exp.analysis.judges import Panel
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard

# The first that applies; "agree" and "disagree" are of judges without a joint board
STATES = (
    *("none", "few", "disagree", "undecided", "words", "caution", "agree", "leads"),
)
_AHEAD = ("words", "caution", "unchecked", "leads")  # a judge's own, that name a first


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What several judges made of one dimension.

    own            each judge's conclusion by itself, and those of populations
    boards         and its leaderboard
    populations    those of whom the verdicts are votes of many: they stand beside the judges, and are none
    conclusion     of all
    panel          None where nothing can be said of their spread; `refusal` is why
    board          the joint one; None of two judges, or of few entrants, for no interval would cover
    differences    on it
    kappas         rows of `agreement.kappa` of every two judges
    disagreements  rows of `judges.disagreements`
    """

    dimension: str
    n_prompts: int | None  # None: the battles name none
    own: Mapping[str, Conclusion]
    boards: Mapping[str, Leaderboard]
    populations: Sequence[str]
    conclusion: Conclusion
    panel: Panel | None
    refusal: Reason | None
    board: Leaderboard | None
    differences: Sequence[Difference]
    kappas: Sequence[Mapping[str, Any]]
    disagreements: Sequence[tuple[str, str, str, str]]

    @property
    def judges(self) -> list[str]:
        """The names of those who are judges."""
        return [name for name in self.own if name not in self.populations]


def opinions(
    by_judge: Mapping[str, Standings],
    *,
    orders: str,
    initial_rating: float,
    populations: Collection[str] = (),
    jointly: bool = True,
) -> list[Opinion]:
    """Return what several judges made of each dimension.

    by_judge        standings of each, with conclusions, of the same dimensions
    orders          what is a game, as in `games`
    initial_rating  rating points of the mean of the entrants
    populations     names of those whose verdicts are votes of many, no draw of a judge's taste
    jointly         whether their leaderboards are of plain Bradley-Terry, as a joint one is
    """
    dimensions = next(iter(by_judge.values())).dimensions
    voted = [name for name in by_judge if name in populations]
    judging = {name: one for name, one in by_judge.items() if name not in voted}
    panels = {
        name: _panel(
            {judge: one.battles[name] for judge, one in judging.items()},
            orders=orders,
        )
        if jointly
        else Reason(name="method")
        for name in dimensions
    }
    joint = {
        name: one
        for name, one in panels.items()
        if isinstance(one, Panel) and one.has_joint
    }
    tested = judges.differences(joint)
    cases = _worst_cases(judging, joint, tested, orders=orders)
    found = []
    for name, panel in panels.items():
        pairs = [pair for pair in tested if pair.dimension == name]
        board = None
        if name in joint:
            board = judges.leaderboard(joint[name], initial_rating=initial_rating)
            each = [_n_battles(one.battles[name], board) for one in judging.values()]
            board = dataclasses.replace(
                _with_ranks(board, pairs), n_battles=np.sum(each, axis=0)
            )
            place = {row.model: i for i, row in enumerate(board.ratings)}
            pairs.sort(key=lambda pair: (place[pair.higher], place[pair.lower]))
        own = {judge: one.conclusions[name] for judge, one in by_judge.items()}
        counts = [one.n_prompts(name) for one in judging.values()]
        n_prompts = max((n for n in counts if n is not None), default=None)
        against = judges.disagreements(
            {judge: one.pairs(name) for judge, one in by_judge.items()}
        )
        first = first_of(board, pairs) if board else None
        conclusion = conclude(
            own if board is None else {judge: own[judge] for judge in judging},
            first,
            against,
            [
                (vote, pair.higher)
                for vote in voted
                for pair in by_judge[vote].pairs(name)
                if first and pair.significant and pair.lower == first.model
            ],
            n_prompts=n_prompts,
            has_joint=board is not None,
            cases=cases.get(name, ()),
        )
        found.append(
            Opinion(
                dimension=name,
                n_prompts=n_prompts,
                own=own,
                boards={
                    judge: shown
                    for judge, one in by_judge.items()
                    if (shown := one.board(name)) is not None
                },
                populations=voted,
                conclusion=conclusion,
                panel=panel if isinstance(panel, Panel) else None,
                refusal=panel if isinstance(panel, Reason) else None,
                board=board,
                differences=pairs,
                kappas=pairwise_kappa(
                    {judge: one.battles[name] for judge, one in by_judge.items()},
                    dimension=name,
                ),
                disagreements=against,
            )
        )
    return found


def _panel(battles: Mapping[str, Battles], *, orders: str) -> Panel | Reason:
    """The judges of a dimension; of one alone there is no spread."""
    if len(battles) < 2:
        return Reason(name="one_judge", about={"judge": next(iter(battles))})
    return Panel.of(battles, orders=orders)


def _worst_cases(
    judging: Mapping[str, Standings],
    joint: Mapping[str, Panel],
    tested: Sequence[Difference],
    *,
    orders: str,
) -> dict[str, list[WorstCase]]:
    """Test each joint lead once more, with the missing results of every judge counted against it.

    The p values take the place of those of the answered comparisons in Holm's adjustment.

    judging  standings by judge
    joint    panels with a joint leaderboard, by dimension
    tested   all differences on these
    """
    found = dict[tuple[str, str, str], WorstCase]()
    in_both = orders == "both"
    for name, panel in joint.items():
        missing = {judge: one.missing.get(name, ()) for judge, one in judging.items()}
        pairs = [pair for pair in tested if pair.dimension == name]
        board = judges.leaderboard(panel, initial_rating=0.0)
        first = first_of(_with_ranks(board, pairs), pairs)
        battles = {judge: one.battles[name] for judge, one in judging.items()}
        is_complete = not any(missing.values()) and not (
            in_both and any(map(_lacks_order, battles.values()))
        )
        if first is None or is_complete:
            continue
        n_battles = sum(map(len, battles.values()))
        for leader, rival in missing_answers.claims(
            first.model, first.below, pairs, n_battles
        ):
            claim = {leader: 1.0, rival: -1.0}
            against = {
                judge: missing_answers.count_against(
                    some,
                    missing[judge],
                    missing_answers.influence_of(some, claim),
                    in_both_orders=in_both,
                )
                for judge, some in battles.items()
            }
            other = Panel.of(against, orders=orders)
            pair = None
            if isinstance(other, Panel) and other.has_joint:
                pair = next(
                    one
                    for one in judges.differences({name: other})
                    if {one.higher, one.lower} == {leader, rival}
                )
            some, *more = battles.values()
            every = [one for lacking in missing.values() for one in lacking]
            counts = missing_answers.counted(
                some.concatenate(*more), every, leader, rival, in_both_orders=in_both
            )
            case = missing_answers.with_test(counts, pair)
            found[name, leader, rival] = case
    keys = [(one.dimension, one.higher, one.lower) for one in tested]
    p_values = [
        found[key].p_value if key in found else one.p_value
        for key, one in zip(keys, tested, strict=True)
    ]
    cases = dict[str, list[WorstCase]]()
    adjusted = holm(np.array(p_values, dtype=np.float64)).tolist()
    for key, p_holm in zip(keys, adjusted, strict=True):
        if key in found:
            holds = missing_answers.is_significant(p_holm)
            case = dataclasses.replace(found[key], p_holm=p_holm, holds=holds)
            cases.setdefault(key[0], []).append(case)
    return cases


def _lacks_order(battles: Battles) -> bool:
    return bool(missing_answers.lacking_order(battles).any())


def _n_battles(battles: Battles, board: Leaderboard) -> list[int]:
    """Count a judge's battles of each entrant."""
    counts = dict(zip(battles.models, battles.n_battles().tolist(), strict=True))
    return [counts[name] for name in board.models]


def _with_ranks(board: Leaderboard, pairs: Sequence[Difference]) -> Leaderboard:
    """Add rank sets: a rank counts the entrants that are better by Holm's tests, which hold at once."""
    ahead = [pair for pair in pairs if pair.significant]
    n_better = Counter(pair.lower for pair in ahead)
    n_worse = Counter(pair.higher for pair in ahead)
    better = np.array([n_better[name] for name in board.models])
    worse = np.array([n_worse[name] for name in board.models])
    return dataclasses.replace(
        board, rank_low=1.0 + better, rank_high=float(len(better)) - worse
    )


def conclude(
    own: Mapping[str, Conclusion],
    first: First | None,
    disagreements: Sequence[tuple[str, str, str, str]],
    votes: Sequence[tuple[str, str]] = (),
    *,
    n_prompts: int | None,
    has_joint: bool,
    cases: Sequence[WorstCase] = (),
) -> Conclusion:
    """Decide what may be said of all judges together, by the table that docs/files.md describes.

    own            each judge's conclusion by itself
    first          of the joint board
    disagreements  rows of `judges.disagreements`
    votes          populations, with an entrant that they have significantly ahead of the first of the joint board
    has_joint      whether there is a joint board
    cases          the tests on which a joint lead rests, if what is missing counts against it; none if nothing is
    """
    some = next(iter(own.values())).scope
    is_words = all(one.scope.kind == "words" for one in own.values())
    scope = Scope(
        judge=", ".join(own),
        kind="words" if is_words else "model",
        dimension=some.dimension,
        n_prompts=n_prompts,
        source=some.source,
    )
    doubted = [
        name
        for name, one in own.items()
        if one.state in ("unchecked", "no_result")
        or one.scope.kind == "words"
        or any(reason.judges for reason in one.reasons)
    ]
    against = [
        name
        for name, one in own.items()
        if (one.state == "caution" or (has_joint and _was_shown(one)))
        and name not in doubted
    ]
    subjects = {one.subject for one in own.values() if one.state in _AHEAD}
    are_ahead = all(one.state in _AHEAD for one in own.values())
    reasons = []
    if has_joint and first is None:
        state = "none"
    elif n_prompts is None or n_prompts < MIN_PROMPTS:
        state = "few"
    elif not has_joint and disagreements:
        state = "disagree"
        reasons = [Reason(name="disagree", about={"pairs": [*disagreements]})]
    elif has_joint and first and (first.rivals or first.level):
        state = "undecided"
        reasons = [Reason(name="rivals", about={"models": [*first.rivals]})]
    elif lost := [*of_missing(first, cases)]:
        state, reasons = "undecided", lost
    elif not has_joint and not (are_ahead and len(subjects) == 1):
        state = "undecided"
        reasons = [_why_apart(own)]
    elif is_words:
        state = "words"
    elif votes:
        state = "caution"
        who, other = votes[0]
        about = {"judges": [who], "model": other}
        reasons = [Reason(name="votes", about=about, judges=True)]
    elif doubted:
        state = "caution"
        reasons = [Reason(name="checks", about={"judges": doubted}, judges=True)]
    elif against:
        state = "caution"
        reasons = [Reason(name="against", about={"judges": against})]
    else:
        state = "leads" if has_joint else "agree"
    lead = first.lead if first else None
    effect = None
    if lead is not None:
        effect = Effect(
            value=lead.difference,
            low=lead.ci_low,
            high=lead.ci_high,
            p_value=lead.p_holm,
            significant=lead.significant,
        )
    leaders = {_leader(one) for one in own.values()}
    subject = next(iter(leaders)) if len(leaders) == 1 else None
    rivals = {one.rival for one in own.values()}
    rival = next(iter(rivals)) if subject and len(rivals) == 1 else None
    return Conclusion(
        state=state,
        subject=first.model if first else subject,
        rival=first.second if first else rival,
        effect=effect,
        reasons=tuple(reasons),
        is_checked=not doubted,
        scope=scope,
        worst_case=worst_case(first, cases),
    )


def _was_shown(conclusion: Conclusion) -> bool:
    """Return whether a judge's result was shown before verdicts were added: a joint lead then is no first look, too."""
    return any(
        reason.name in ("looked", "exploratory") for reason in conclusion.reasons
    )


def _leader(conclusion: Conclusion) -> str | None:
    """Return the entrant that a judge has ahead, significantly or not; None if it has none ahead."""
    if conclusion.state in _AHEAD:
        return conclusion.subject
    effect = conclusion.effect
    is_level = effect is not None and effect.value == 0
    is_compared = conclusion.state == "undecided" and effect is not None
    return conclusion.subject if is_compared and not is_level else None


def _why_apart(own: Mapping[str, Conclusion]) -> Reason:
    """Return why judges without a joint leaderboard decide nothing together.

    no_leader          a judge has no entrant ahead
    different_leaders  not all judges have the same entrant ahead
    not_significant    they have, but not every judge significantly
    failures           they have, but a lead is lost if what is missing counts against it, and no other is open
    """
    leaders = {judge: _leader(one) for judge, one in own.items()}
    without = [judge for judge, leader in leaders.items() if leader is None]
    if without:
        return Reason(name="no_leader", about={"judges": without})
    if len({*leaders.values()}) > 1:
        return Reason(
            name="different_leaders", about={"leaders": [*map(list, leaders.items())]}
        )
    not_significant = [judge for judge, one in own.items() if one.state not in _AHEAD]
    lost = [judge for judge in not_significant if _is_lost_to_failures(own[judge])]
    if lost == not_significant:
        return Reason(name="failures", about={"judges": lost})
    return Reason(name="not_significant", about={"judges": not_significant})


def _is_lost_to_failures(conclusion: Conclusion) -> bool:
    """Return whether nothing but missing answers and verdicts keeps a lead open."""
    case = conclusion.worst_case
    return bool(conclusion.reasons) and (
        conclusion.reasons[0].name == "failures" and case is not None and not case.holds
    )
