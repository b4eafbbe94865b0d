"""What may be said of the first of a leaderboard: one state and its reasons, from the evidence of one dimension."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from elo_exp.analysis import missing_answers
from elo_exp.analysis.checks import (
    FAILED,
    LEADS,
    LEVEL,
    Check,
    check_definitions,
    list_reason_names,
    name_file_of_mistakes,
)
from elo_exp.analysis.comparisons import MIN_PROMPTS_FOR_LEAD, Leader, find_leader
from elo_exp.analysis.conclusions import Conclusion, Effect, Gold, Reason, Scope
from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.analysis.repeated_files import EarlierLook
from elo_exp.analysis.standings import Standings, add_checks
from elo_exp.analysis.style_support import find_adjustment, style_support_reasons
from elo_exp.data.battle_judges import find_annotators
from elo_exp.data.battles import Battles
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.ratings.games import MIN_ANNOTATORS
from elo_exp.ratings.leaderboard import Leaderboard

# The first that applies; each says more than those before it.
STATES = (
    *("none", "same", "no_result", "few", "undecided"),
    *("words", "unchecked", "caution", "leads"),
)
# Reasons by their weight: of verdicts that compare nothing or of which nobody knows the prompts,
# of a test that decides nothing, the judge's by its checks and by labels, all others
NO_RESULT_REASONS = ("no_result",)
UNKNOWN_PROMPTS_REASONS = ("unnamed_prompts",)
UNDECIDED_REASONS = (
    *("same", "level", "no_error", "rivals", "failures", "undone", "not_met"),
    *("annotators", "unnamed_people"),
)
_LABELS_REASONS = ("people", "chance", "skipped")
_OTHER_REASONS = ("support", "stratum", "exploratory", "looked", "no_scale")
# Of a win rate, from one half: entrants nearer than that are level; the gate's margin by default
LEVEL_MARGIN_OF_WIN_RATE = 0.10
_KINDS_WITHOUT_JUDGE = ("people", "scores")


def add_conclusions(
    standings: Standings,
    scope: Scope,
    *,
    quality: Sequence[JudgeQuality] = (),
    n_seen: int = 0,
) -> Standings:
    """Add the checks of the judge, and what may be said of the first, by dimension.

    scope    of all dimensions: whose verdicts the battles are
    quality  of the judgments of each dimension; empty where they are not known
    n_seen   verdicts that had been looked at under another design
    """
    checked_standings, conclusions = add_checks(standings, quality), {}
    for name in checked_standings.dimensions:
        board, checks = checked_standings.board(name), checked_standings.checks[name]
        leader = find_leader(board, checked_standings.pairs(name)) if board else None
        n_prompts, n_effective = count_prompts_of_pair(checked_standings, name, leader)
        strata = checked_standings.diagnoses.get(name, {}).get("strata")
        pairs = checked_standings.diagnoses.get(name, {}).get("equal_answers", ())
        reasons = [*equal_answer_reasons(leader, pairs)]
        identical_models = [
            model for reason in reasons for model in reason.about["models"]
        ]
        if (
            leader
            and checked_standings.n_prompts(name) is None
            and not checked_standings.is_scored
        ):
            reasons += [
                *unnamed_prompt_reasons(checked_standings.battles[name].n_total())
            ]
        level_ends = checked_standings.level_ends.get(name)
        reasons += [
            *explain_undecided_lead(leader, board, checks, identical_models, level_ends)
        ]
        reasons += [*exploratory_reasons(n_seen)]
        if scope.kind not in _KINDS_WITHOUT_JUDGE:
            reasons += [*no_result_reasons(checks)]
        cases = checked_standings.worst_cases.get(name, ())
        reasons += [*missing_result_reasons(leader, cases)]
        if board and checked_standings.is_scored:
            reasons += [*unknown_scale_reasons(board)]
        if leader and scope.kind == "people":
            reasons += [*annotator_reasons(checked_standings.battles[name])]
        if leader:
            reasons += [*failed_check_reasons(checks, leader.model)]
            reasons += [*stratum_reversal_reasons(strata, leader.model)]
            looks = checked_standings.diagnoses.get(name, {}).get("earlier_looks", ())
            reasons += [*earlier_look_reasons(looks, leader.model)]
            reasons += [
                *style_support_reasons(
                    checked_standings.battles[name],
                    leader,
                    checked_standings.controlled_features,
                )
            ]
        leader_adjustment = None
        if leader and board and name in checked_standings.uncontrolled_boards:
            leader_adjustment = find_adjustment(
                checked_standings.uncontrolled_boards[name],
                leader,
                checked_standings.controlled_features,
                board.unit,
            )
        conclusion = conclude(
            leader,
            reasons,
            dataclasses.replace(
                scope,
                dimension=name,
                n_prompts=n_prompts,
                n_effective=n_effective,
                gold=Gold.of(
                    checked_standings.diagnoses.get(name, {}).get("audit", {})
                ),
            ),
            is_measured=is_measured(checks),
            unit=board.unit if board else "points",
            worst_case=find_worst_case(leader, cases),
        )
        conclusions[name] = dataclasses.replace(
            conclusion, adjustment=leader_adjustment
        )
    return dataclasses.replace(checked_standings, conclusions=conclusions)


def conclude(
    leader: Leader | None,
    reasons: Sequence[Reason],
    scope: Scope,
    *,
    is_measured: bool,
    unit: str = "points",
    worst_case: WorstCase | None = None,
) -> Conclusion:
    """Decide what may be said of the first, by the table that docs/states.md describes.

    Parameters
    ----------
    leader
        What the tests say of the first; None if fewer than two are ranked.
    reasons
        Any of NO_RESULT, UNKNOWN, UNDECIDED, OF_JUDGE and OTHERS, in any order.
    scope
        Of the dimension; `n_prompts` are those of the pair that is compared. None, where the battles name none, is like
        too few.
    is_measured
        Whether position bias was measured: the share of flips, and how often the first shown wins.
    unit
        Of the ratings: points, or score.
    worst_case
        The lead of the first if what is missing counts against it; None if nothing is.
    """
    names_by_weight = [
        *NO_RESULT_REASONS,
        *UNKNOWN_PROMPTS_REASONS,
        *UNDECIDED_REASONS,
        *list_judge_reasons(),
        *list_other_reasons(),
    ]
    sorted_reasons = sorted(
        reasons, key=lambda reason: names_by_weight.index(reason.name)
    )
    names = {reason.name for reason in sorted_reasons}
    if leader is None:
        state = "none"
    elif "same" in names:
        state = "same"
    elif names & {*NO_RESULT_REASONS}:
        state = "no_result"
    elif (
        scope.n_counted_prompts is None
        or scope.n_counted_prompts < MIN_PROMPTS_FOR_LEAD
    ):
        state = "few"
    elif names & {*UNDECIDED_REASONS}:
        state = "undecided"
    elif scope.kind == "words":
        state = "words"
    elif not is_measured and scope.kind not in _KINDS_WITHOUT_JUDGE:
        state = "unchecked"
    elif names:
        state = "caution"
    else:
        state = "leads"
    return Conclusion(
        state=state,
        subject=leader.model if leader else None,
        rival=leader.second if leader else None,
        effect=_make_effect(leader, unit) if leader else None,
        reasons=tuple(sorted_reasons),
        is_checked=is_measured or scope.kind in _KINDS_WITHOUT_JUDGE,
        scope=scope,
        worst_case=worst_case,
    )


def count_prompts_of_pair(
    standings: Standings, dimension: str, leader: Leader | None
) -> tuple[int | None, float | None]:
    """Count the prompts on which the first and the second were compared, with each other or with others.

    Returns
    -------
    n_prompts : int or None
        Of the one of the two that was on fewer; those of the dimension if the board has no such number, None where the
        battles name none.
    n_effective : float or None
        How many of equal size would tell as much; None if that is not less.
    """
    n_prompts, board = standings.n_prompts(dimension), standings.board(dimension)
    if n_prompts is None or board is None or leader is None:
        return n_prompts, None
    if leader.lead and leader.lead.one_sided:
        return leader.lead.n_prompts, None
    indices = [board.models.index(model) for model in (leader.model, leader.second)]
    n_effective = board.n_effective_clusters
    if standings.is_scored:  # items, of which several may be one cluster
        n_effective = n_effective or n_prompts
        n_prompts = int(board.parameters["n_common"] or n_prompts)
    if board.n_prompts is not None and np.isfinite(board.n_prompts[indices]).all():
        n_units = board.n_prompts[indices].min()
        n_effective, battles = float(n_units), standings.battles[dimension]
        battles_of_each = (
            battles.select_with_any([model]) for model in (leader.model, leader.second)
        )
        n_prompts = min(model_battles.n_prompts() for model_battles in battles_of_each)
        if board.n_effective is not None:
            n_effective = float(board.n_effective[indices].min())
    is_less = n_effective is not None and n_effective < n_prompts
    return n_prompts, n_effective if is_less else None


def list_judge_reasons() -> list[str]:
    """Return the names of reasons that are the judge's, by its checks and by labels, the weightiest first."""
    return [*list_reason_names(is_about_judge=True), *_LABELS_REASONS]


def list_other_reasons() -> list[str]:
    """Return the names of all other reasons for a caution, the weightiest first."""
    return [*list_reason_names(is_about_judge=False), *_OTHER_REASONS]


def _make_effect(leader: Leader, unit: str) -> Effect | None:
    lead = leader.lead
    if lead is None:
        return None
    return Effect(
        value=lead.difference,
        low=lead.ci_low,
        high=lead.ci_high,
        unit=unit,
        p_value=lead.p_holm,
        one_sided=lead.one_sided,
        n_prompts=lead.n_prompts,
        look=getattr(lead, "look", None),
        significant=lead.significant,
    )


# Reasons


def equal_answer_reasons(
    leader: Leader | None, pairs: Sequence[EqualAnswers]
) -> Iterator[Reason]:
    """Yield a reason if other entrants gave exactly the leader's answers to every prompt."""
    if leader is None:
        return
    n_prompts = {
        model: pair.n_prompts
        for pair in pairs
        for model in {pair.first, pair.second} - {leader.model}
        if leader.model in (pair.first, pair.second) and pair.n_equal == pair.n_prompts
    }
    if n_prompts:
        other_models = {leader.second, *leader.below, *leader.rivals, *leader.not_met}
        about = {
            "models": [*n_prompts],
            "n_prompts": max(n_prompts.values()),
            "has_others": bool(other_models - n_prompts.keys()),
        }
        yield Reason(name="same", about=about)


def explain_undecided_lead(
    leader: Leader | None,
    board: Leaderboard | None,
    checks: Sequence[Check],
    identical_models: Collection[str] = (),
    level_ends: tuple[float, float] | None = None,
) -> Iterator[Reason]:
    """Yield why the test does not decide who is first.

    identical_models  that gave the leader's answers, of which no test says anything
    level_ends        the interval of a difference of zero, whichever of the two missing results count against; None if
                      nothing is missing
    """
    if leader is None or board is None:
        return
    level = [model for model in leader.level if model not in identical_models]
    rivals = [model for model in leader.rivals if model not in identical_models]
    has_no_error = leader.lead is None or leader.lead.significant is None
    if level:
        equivalence = _test_equivalence(leader, checks, board.unit, level_ends)
        yield Reason(name="level", about={"models": level, **equivalence})
    elif has_no_error and leader.second not in identical_models:
        yield Reason(name="no_error")
    elif rivals:
        yield Reason(name="rivals", about={"models": rivals})
    if _is_undone_by_invalid(checks, board, leader):
        yield Reason(name="undone")
    if leader.not_met:
        yield Reason(name="not_met", about={"models": [*leader.not_met]})


def _test_equivalence(
    leader: Leader,
    checks: Sequence[Check],
    unit: str,
    level_ends: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Test whether entrants with one rating are level, within `margin` rating points; of scores nobody knows a margin.

    Two one-sided tests: the 95% interval that is printed is inside the margin (so each is at 2.5%), and so is the one
    with missing results counted against either of the two. A check that stands against "level", as of a judge that
    flips, leaves it open.
    """
    margin = 400.0 * math.log10(
        (0.5 + LEVEL_MARGIN_OF_WIN_RATE) / (0.5 - LEVEL_MARGIN_OF_WIN_RATE)
    )
    lead, is_equivalent = leader.lead, False
    low, high = (lead.ci_low, lead.ci_high) if lead else (None, None)
    is_tested = unit == "points" and len(leader.level) == 1
    if is_tested and low is not None and high is not None:
        intervals = [(low, high), level_ends or (low, high)]
        is_inside = all(-margin < a < b < margin for a, b in intervals)
        is_equivalent = is_inside and not any(c.blocks(LEVEL) for c in checks)
    return {"is_equivalent": is_equivalent, "margin": margin}


def missing_result_reasons(
    leader: Leader | None, cases: Sequence[WorstCase]
) -> Iterator[Reason]:
    """Yield that a lead is lost if failures to answer, and unknown verdicts, count against the first.

    cases  the tests on which the lead rests, with what is missing counted so; empty if nothing is missing
    """
    if leader is None or not cases:
        return
    holds = missing_answers.models_still_behind(leader.model, cases)
    if lost := [model for model in leader.below if model not in holds]:
        case = _find_case(leader, cases, lost)
        about = {"models": lost, **(case.to_dict() if case else {})}
        value = float(case.n_missing) if case else None
        yield Reason(name="failures", value=value, about=about)


def unknown_scale_reasons(board: Leaderboard) -> Iterator[Reason]:
    """Yield that nobody knows between which ends scores lie, so that no test covers a large loss that was not drawn."""
    if board.parameters.get("scale_low") is None:
        yield Reason(name="no_scale")


def find_worst_case(
    leader: Leader | None, cases: Sequence[WorstCase]
) -> WorstCase | None:
    """Return the lead over the rival that the sentence names, or over the first that is lost, if something is missing."""
    if leader is None or not cases:
        return None
    holds = missing_answers.models_still_behind(leader.model, cases)
    lost = [model for model in leader.below if model not in holds]
    case = _find_case(leader, cases, lost or [leader.second])
    return case if case and case.n_missing else None


def _find_case(
    leader: Leader, cases: Sequence[WorstCase], models: Sequence[str]
) -> WorstCase | None:
    """Find the leader's test against the rival of the sentence, if it is among the models, else against the first model."""
    by_rival = {case.rival: case for case in cases if case.leader == leader.model}
    wanted_models = [leader.second] * (leader.second in models) + [*models]
    return next((by_rival[model] for model in wanted_models if model in by_rival), None)


def _is_undone_by_invalid(
    checks: Sequence[Check], board: Leaderboard, leader: Leader
) -> bool:
    """Return whether another entrant may be as good, by the bounds of what invalid verdicts hide."""
    best, second = board.row(leader.model).rating, board.row(leader.second).rating
    for check in checks:
        for row in (check.about or {}).get("differing", ()):
            low, high = row["bound_low"], row["bound_high"]
            if row["model"] == leader.model:
                is_undone = None not in (low, second) and low <= second
            else:
                is_undone = None not in (high, best) and high >= best
            if is_undone:
                return True
    return False


def failed_check_reasons(checks: Sequence[Check], leader: str) -> Iterator[Reason]:
    """Yield a reason for each check that blocks a lead of the first."""
    for check in checks:
        if check.blocks(LEADS):
            with name_file_of_mistakes(check.definition):
                reason = check.definition.make_reason(check, leader)
            yield reason


def no_result_reasons(checks: Sequence[Check]) -> Iterator[Reason]:
    """Yield that the judge compared nothing: it gave one verdict whatever it was shown."""
    for check in checks:
        if check.definition.leaves_no_result and check.state == FAILED:
            yield check.definition.make_reason(check, "")


def stratum_reversal_reasons(
    strata: StrataDiagnosis | None, leader: str
) -> Iterator[Reason]:
    """Yield the widest lead over the first that a stratum's own test shows (Holm over strata and entrants)."""
    if strata is None or strata.leader != leader:
        return
    for rival in strata.ahead:
        if rival.reverses:
            about = {
                name: getattr(rival, name)
                for name in ("stratum", "n_prompts", "rival", "ci_low", "ci_high")
            }
            value = rival.ci_low if rival.lead is None else rival.lead
            about |= {"one_sided": rival.lead is None, "p_holm": rival.p_holm}
            yield Reason(name="stratum", value=value, about=about)
            return


def annotator_reasons(battles: Battles) -> Iterator[Reason]:
    """Yield that one or two people voted, who speak for themselves alone, or that nobody is named.

    If nobody is named, any number of votes may be by one person.
    """
    annotators = find_annotators(battles)
    if annotators is None:
        yield Reason(name="unnamed_people", value=float(battles.n_total()))
        return
    names = [
        battles.judges[code] for code in np.unique(annotators[annotators >= 0]).tolist()
    ]
    if len(names) < MIN_ANNOTATORS:
        yield Reason(name="annotators", value=float(len(names)), about={"names": names})


def unnamed_prompt_reasons(n_battles: int) -> Iterator[Reason]:
    """Yield that the battles name no prompts: any number of them may be on one prompt."""
    yield Reason(name="unnamed_prompts", value=float(n_battles))


def exploratory_reasons(n_seen: int) -> Iterator[Reason]:
    """Yield that verdicts had been seen under another design, so that tests err more often."""
    if n_seen:
        yield Reason(name="exploratory", value=float(n_seen))


def earlier_look_reasons(looks: Sequence[EarlierLook], leader: str) -> Iterator[Reason]:
    """Yield that a result of the first was shown before verdicts were added to it.

    Its test then is one of several, of which the first has used all of alpha. A lead that this first test had
    claimed for the same entrant adds no error: it was found with one test.
    """
    n_looks = max(
        (
            look.n_looks
            for look in looks
            if leader in (look.first, look.second) and look.first_leader != leader
        ),
        default=0,
    )
    if n_looks:
        yield Reason(name="looked", value=float(n_looks))


def is_measured(checks: Sequence[Check]) -> bool:
    """Return whether position bias was measured: how often the first shown wins, and flips.

    If comparisons were judged in one order alone, there are no flips to measure: that is a reason by
    itself.
    """
    measured_checks = {c.name for c in checks if c.value is not None or c.is_one_order}
    required_checks = {d.name for d in check_definitions().values() if d.missing_label}
    return required_checks <= measured_checks
