"""The conclusion of several judges: from a combined leaderboard, or else from the conclusions of each judge."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis import judge_panel, missing_answers
from elo_exp.analysis.agreement import pairwise_kappa
from elo_exp.analysis.comparisons import (
    MIN_PROMPTS_FOR_LEAD,
    Difference,
    Leader,
    adjust_by_holm,
    find_leader,
)
from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import (
    find_worst_case,
    missing_result_reasons,
)
from elo_exp.analysis.judge_panel import JudgePanelFit
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.analysis.standings import Standings
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.ratings.leaderboard import Leaderboard

# The first that applies; "agree" and "disagree" need judges without a combined leaderboard
STATES = (
    *("none", "few", "disagree", "undecided", "words", "caution", "agree", "leads"),
)
# States of one judge's own conclusion
_STATES_NAMING_A_LEADER = ("words", "caution", "unchecked", "leads")


@dataclass(frozen=True, kw_only=True)
class JudgesResult:
    """The results of several judges on one dimension.

    own            conclusion of each judge and of each population of voters
    boards         leaderboard of each of them
    populations    names whose verdicts are votes of many people: they are no judges
    conclusion     conclusion of all judges together
    panel          fit of all judges; None if their spread cannot be estimated, for the reason in `refusal`
    board          combined leaderboard; None if the judges are too few for a reliable interval
    differences    differences on the combined leaderboard
    kappas         rows of `agreement.kappa` of every two judges
    disagreements  rows of `judges.disagreements`
    """

    dimension: str
    n_prompts: int | None  # None: the battles name none
    own: Mapping[str, Conclusion]
    boards: Mapping[str, Leaderboard]
    populations: Sequence[str]
    conclusion: Conclusion
    panel: JudgePanelFit | None
    refusal: Reason | None
    board: Leaderboard | None
    differences: Sequence[Difference]
    kappas: Sequence[Mapping[str, Any]]
    disagreements: Sequence[tuple[str, str, str, str]]

    @property
    def judges(self) -> list[str]:
        """The names of those who are judges."""
        return [name for name in self.own if name not in self.populations]


def sum_up_judges(
    by_judge: Mapping[str, Standings],
    *,
    orders: str,
    initial_rating: float,
    populations: Collection[str] = (),
    jointly: bool = True,
) -> list[JudgesResult]:
    """Return what several judges made of each dimension.

    by_judge        standings of each, with conclusions, of the same dimensions
    orders          what is a game, as in `games`
    initial_rating  rating points of the mean of the entrants
    populations     names of those whose verdicts are votes of many, no draw of a judge's taste
    jointly         whether their leaderboards are of plain Bradley-Terry, as a joint one is
    """
    dimensions = next(iter(by_judge.values())).dimensions
    is_scored = any(standings.is_scored for standings in by_judge.values())
    voters = [name for name in by_judge if name in populations]
    judge_standings = {
        name: standings for name, standings in by_judge.items() if name not in voters
    }
    panels = {
        name: _fit_panel(
            {
                judge: standings.battles[name]
                for judge, standings in judge_standings.items()
            },
            orders=orders,
        )
        if jointly
        else Reason(name="scored" if is_scored else "method")
        for name in dimensions
    }
    joint_panels = {
        name: panel
        for name, panel in panels.items()
        if isinstance(panel, JudgePanelFit) and panel.has_joint_board
    }
    all_differences = judge_panel.compute_joint_differences(joint_panels)
    cases = _test_worst_cases(
        judge_standings, joint_panels, all_differences, orders=orders
    )
    all_opinions = []
    for name, panel in panels.items():
        pairs = [pair for pair in all_differences if pair.dimension == name]
        board = None
        if name in joint_panels:
            board = judge_panel.joint_leaderboard(
                joint_panels[name], initial_rating=initial_rating
            )
            battle_counts = [
                _count_battles(standings.battles[name], board)
                for standings in judge_standings.values()
            ]
            board = dataclasses.replace(
                _add_ranks(board, pairs), n_battles=np.sum(battle_counts, axis=0)
            )
            index = {row.model: i for i, row in enumerate(board.ratings)}
            pairs.sort(key=lambda pair: (index[pair.higher], index[pair.lower]))
        own_conclusions = {
            judge: standings.conclusions[name] for judge, standings in by_judge.items()
        }
        counts = [standings.n_prompts(name) for standings in judge_standings.values()]
        n_prompts = max((n for n in counts if n is not None), default=None)
        disagreements = judge_panel.list_contradictions(
            {judge: standings.pairs(name) for judge, standings in by_judge.items()}
        )
        leader = find_leader(board, pairs) if board else None
        conclusion = conclude(
            own_conclusions
            if board is None
            else {judge: own_conclusions[judge] for judge in judge_standings},
            leader,
            disagreements,
            [
                (voter, pair.higher)
                for voter in voters
                for pair in by_judge[voter].pairs(name)
                if leader and pair.significant and pair.lower == leader.model
            ],
            n_prompts=n_prompts,
            has_joint=board is not None,
            cases=cases.get(name, ()),
        )
        all_opinions.append(
            JudgesResult(
                dimension=name,
                n_prompts=n_prompts,
                own=own_conclusions,
                boards={
                    judge: judge_board
                    for judge, standings in by_judge.items()
                    if (judge_board := standings.board(name)) is not None
                },
                populations=voters,
                conclusion=conclusion,
                panel=panel if isinstance(panel, JudgePanelFit) else None,
                refusal=panel if isinstance(panel, Reason) else None,
                board=board,
                differences=pairs,
                kappas=pairwise_kappa(
                    {
                        judge: standings.battles[name]
                        for judge, standings in by_judge.items()
                        if not is_scored
                    },
                    dimension=name,
                ),
                disagreements=disagreements,
            )
        )
    return all_opinions


def _fit_panel(
    battles: Mapping[str, Battles], *, orders: str
) -> JudgePanelFit | Reason:
    """Fit the judges of a dimension; one alone has no spread."""
    if len(battles) < 2:
        return Reason(name="one_judge", about={"judge": next(iter(battles))})
    return JudgePanelFit.fit(battles, orders=orders)


def _test_worst_cases(
    judge_standings: Mapping[str, Standings],
    joint_panels: Mapping[str, JudgePanelFit],
    all_differences: Sequence[Difference],
    *,
    orders: str,
) -> dict[str, list[WorstCase]]:
    """Test each joint lead once more, with the missing results of every judge counted against it.

    The p values take the place of those of the answered comparisons in Holm's adjustment.

    judge_standings  by judge
    joint_panels     panels with a joint leaderboard, by dimension
    all_differences  on these
    """
    case_by_claim = dict[tuple[str, str, str], WorstCase]()
    in_both = orders == "both"
    for name, panel in joint_panels.items():
        missing = {
            judge: standings.missing.get(name, ())
            for judge, standings in judge_standings.items()
        }
        pairs = [pair for pair in all_differences if pair.dimension == name]
        board = judge_panel.joint_leaderboard(panel, initial_rating=0.0)
        leader = find_leader(_add_ranks(board, pairs), pairs)
        battles = {
            judge: standings.battles[name]
            for judge, standings in judge_standings.items()
        }
        is_complete = not any(missing.values()) and not (
            in_both and any(map(_lacks_order, battles.values()))
        )
        if leader is None or is_complete:
            continue
        n_battles = sum(map(len, battles.values()))
        for higher, lower in missing_answers.list_claims(
            leader.model, leader.below, pairs, n_battles
        ):
            claim = {higher: 1.0, lower: -1.0}
            counted_battles = {
                judge: missing_answers.count_against(
                    judge_battles,
                    missing[judge],
                    missing_answers.compute_influence(judge_battles, claim),
                    in_both_orders=in_both,
                )
                for judge, judge_battles in battles.items()
            }
            worst_panel = JudgePanelFit.fit(counted_battles, orders=orders)
            pair = None
            if isinstance(worst_panel, JudgePanelFit) and worst_panel.has_joint_board:
                pair = next(
                    difference
                    for difference in judge_panel.compute_joint_differences(
                        {name: worst_panel}
                    )
                    if {difference.higher, difference.lower} == {higher, lower}
                )
            all_missing = [
                battle for judge_missing in missing.values() for battle in judge_missing
            ]
            counts = missing_answers.count_missing(
                concatenate_battles(*battles.values()),
                all_missing,
                higher,
                lower,
                in_both_orders=in_both,
            )
            case = missing_answers.add_test(counts, pair)
            case_by_claim[name, higher, lower] = case
    keys = [
        (difference.dimension, difference.higher, difference.lower)
        for difference in all_differences
    ]
    p_values = [
        case_by_claim[key].p_value if key in case_by_claim else difference.p_value
        for key, difference in zip(keys, all_differences, strict=True)
    ]
    cases = dict[str, list[WorstCase]]()
    adjusted = adjust_by_holm(np.array(p_values, dtype=np.float64)).tolist()
    for key, p_holm in zip(keys, adjusted, strict=True):
        if key in case_by_claim:
            holds = missing_answers.is_significant(p_holm)
            case = dataclasses.replace(case_by_claim[key], p_holm=p_holm, holds=holds)
            cases.setdefault(key[0], []).append(case)
    return cases


def _lacks_order(battles: Battles) -> bool:
    return bool(missing_answers.find_missing_orders(battles).any())


def _count_battles(battles: Battles, board: Leaderboard) -> list[int]:
    """Count a judge's battles of each entrant."""
    counts = dict(zip(battles.models, battles.n_battles().tolist(), strict=True))
    return [counts[name] for name in board.models]


def _add_ranks(board: Leaderboard, pairs: Sequence[Difference]) -> Leaderboard:
    """Add rank sets: a rank counts the entrants that are better by Holm's tests, which hold at once."""
    significant_pairs = [pair for pair in pairs if pair.significant]
    n_better = Counter(pair.lower for pair in significant_pairs)
    n_worse = Counter(pair.higher for pair in significant_pairs)
    better = np.array([n_better[name] for name in board.models])
    worse = np.array([n_worse[name] for name in board.models])
    return dataclasses.replace(
        board, rank_low=1.0 + better, rank_high=float(len(better)) - worse
    )


def conclude(
    own_conclusions: Mapping[str, Conclusion],
    leader: Leader | None,
    disagreements: Sequence[tuple[str, str, str, str]],
    votes: Sequence[tuple[str, str]] = (),
    *,
    n_prompts: int | None,
    has_joint: bool,
    cases: Sequence[WorstCase] = (),
) -> Conclusion:
    """Conclude from all judges together, by the table in docs/states.md.

    own_conclusions  conclusion of each judge
    leader           leader of the combined leaderboard
    disagreements    rows of `judges.disagreements`
    votes            populations of voters, with an entrant that they have significantly ahead of the leader
    has_joint        whether there is a combined leaderboard
    cases            tests of the lead if missing results count against it; empty if none is missing
    """
    first_scope = next(iter(own_conclusions.values())).scope
    is_words = all(
        conclusion.scope.kind == "words" for conclusion in own_conclusions.values()
    )
    scope = Scope(
        judge=", ".join(own_conclusions),
        kind="words" if is_words else "model",
        dimension=first_scope.dimension,
        n_prompts=n_prompts,
        source=first_scope.source,
    )
    doubted_judges = [
        name
        for name, conclusion in own_conclusions.items()
        if conclusion.state in ("unchecked", "no_result")
        or conclusion.scope.kind == "words"
        or any(reason.judges for reason in conclusion.reasons)
    ]
    opposing_judges = [
        name
        for name, conclusion in own_conclusions.items()
        if (conclusion.state == "caution" or (has_joint and _was_shown(conclusion)))
        and name not in doubted_judges
    ]
    subjects = {
        conclusion.subject
        for conclusion in own_conclusions.values()
        if conclusion.state in _STATES_NAMING_A_LEADER
    }
    are_ahead = all(
        conclusion.state in _STATES_NAMING_A_LEADER
        for conclusion in own_conclusions.values()
    )
    reasons = []
    if has_joint and leader is None:
        state = "none"
    elif n_prompts is None or n_prompts < MIN_PROMPTS_FOR_LEAD:
        state = "few"
    elif not has_joint and disagreements:
        state = "disagree"
        reasons = [Reason(name="disagree", about={"pairs": [*disagreements]})]
    elif has_joint and leader and (leader.rivals or leader.level):
        state = "undecided"
        reasons = [Reason(name="rivals", about={"models": [*leader.rivals]})]
    elif lost := [*missing_result_reasons(leader, cases)]:
        state, reasons = "undecided", lost
    elif not has_joint and not (are_ahead and len(subjects) == 1):
        state = "undecided"
        reasons = [_explain_indecision(own_conclusions)]
    elif is_words:
        state = "words"
    elif votes:
        state = "caution"
        population, entrant = votes[0]
        about = {"judges": [population], "model": entrant}
        reasons = [Reason(name="votes", about=about, judges=True)]
    elif doubted_judges:
        state = "caution"
        reasons = [Reason(name="checks", about={"judges": doubted_judges}, judges=True)]
    elif opposing_judges:
        state = "caution"
        reasons = [Reason(name="against", about={"judges": opposing_judges})]
    else:
        state = "leads" if has_joint else "agree"
    lead = leader.lead if leader else None
    effect = None
    if lead is not None:
        effect = Effect(
            value=lead.difference,
            low=lead.ci_low,
            high=lead.ci_high,
            p_value=lead.p_holm,
            significant=lead.significant,
        )
    leaders = {_leader(conclusion) for conclusion in own_conclusions.values()}
    subject = next(iter(leaders)) if len(leaders) == 1 else None
    rivals = {conclusion.rival for conclusion in own_conclusions.values()}
    rival = next(iter(rivals)) if subject and len(rivals) == 1 else None
    return Conclusion(
        state=state,
        subject=leader.model if leader else subject,
        rival=leader.second if leader else rival,
        effect=effect,
        reasons=tuple(reasons),
        is_checked=not doubted_judges,
        scope=scope,
        worst_case=find_worst_case(leader, cases),
    )


def _was_shown(conclusion: Conclusion) -> bool:
    """Return whether a judge's result was shown before verdicts were added: a joint lead then is no first look, too."""
    return any(
        reason.name in ("looked", "exploratory") for reason in conclusion.reasons
    )


def _leader(conclusion: Conclusion) -> str | None:
    """Return the entrant that a judge has ahead, significantly or not; None if it has none ahead."""
    if conclusion.state in _STATES_NAMING_A_LEADER:
        return conclusion.subject
    effect = conclusion.effect
    is_level = effect is not None and effect.value == 0
    is_compared = conclusion.state == "undecided" and effect is not None
    return conclusion.subject if is_compared and not is_level else None


def _explain_indecision(own_conclusions: Mapping[str, Conclusion]) -> Reason:
    """Return why judges without a joint leaderboard decide nothing together.

    no_leader          a judge has no entrant ahead
    different_leaders  not all judges have the same entrant ahead
    not_significant    they have, but not every judge significantly
    failures           they have, but a lead is lost if what is missing counts against it, and no other is open
    """
    leaders = {
        judge: _leader(conclusion) for judge, conclusion in own_conclusions.items()
    }
    without_leader = [judge for judge, leader in leaders.items() if leader is None]
    if without_leader:
        return Reason(name="no_leader", about={"judges": without_leader})
    if len({*leaders.values()}) > 1:
        return Reason(
            name="different_leaders", about={"leaders": [*map(list, leaders.items())]}
        )
    not_significant = [
        judge
        for judge, conclusion in own_conclusions.items()
        if conclusion.state not in _STATES_NAMING_A_LEADER
    ]
    lost_leads = [
        judge
        for judge in not_significant
        if _is_lost_to_failures(own_conclusions[judge])
    ]
    if lost_leads == not_significant:
        return Reason(name="failures", about={"judges": lost_leads})
    return Reason(name="not_significant", about={"judges": not_significant})


def _is_lost_to_failures(conclusion: Conclusion) -> bool:
    """Return whether nothing but missing answers and verdicts keeps a lead open."""
    case = conclusion.worst_case
    return bool(conclusion.reasons) and (
        conclusion.reasons[0].name == "failures" and case is not None and not case.holds
    )
