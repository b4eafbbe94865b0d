"""The sentences of several judges, and the limits of more judges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.conclusions.judges_conclusion import JudgesResult
from elo_exp.analysis.judge_panel import judges_needed
from elo_exp.analysis.verdict_sources import RepeatedComparisons
from elo_exp.formatting import format_number, join_names
from elo_exp.report.sentences.check_sentences import word_overlap
from elo_exp.report.sentences.state_rows import StateRow, index_by_state
from elo_exp.report.sentences.tournament_sentences import (
    WORD_OVERLAP_NOTE,
    describe_worst_case_lead,
    format_difference,
    say_failures,
)

_MAX_VOTER_NAMES = 5
_SHARED_TASTE_CAVEAT = "More judges cannot reveal a preference that all of them share"


def sentence(conclusion: Conclusion, judges: Sequence[str]) -> str:
    """Return the conclusion of all judges together as a sentence.

    judges  their names
    """
    row = STATE_ROWS[conclusion.state]
    is_joint = conclusion.effect is not None
    describe = row.describe_joint if is_joint else row.describe_separate
    assert describe, f"no sentence of {conclusion.state}"
    return describe(conclusion, _count_all_judges(judges))


def headline(opinions: Sequence[JudgesResult]) -> str:
    """Return the title of the page: the conclusion of each rubric without numbers, rubrics with the same one together."""
    rubrics_by_text: dict[str, list[str]] = {}
    for opinion in opinions:
        conclusion = opinion.conclusion
        summary = STATE_ROWS[conclusion.state].summary
        text = summary.format(
            leader=conclusion.subject, judges=_count_all_judges([*opinion.own])
        )
        rubrics_by_text.setdefault(text, []).append(opinion.dimension)
    if len(opinions) == 1:
        (title,) = rubrics_by_text
        return title
    n = len(opinions)
    everywhere = "both rubrics" if n == 2 else f"all {n} rubrics"
    parts = [
        f"{text} on {everywhere if len(rubrics) == n else join_names(rubrics)}"
        for text, rubrics in rubrics_by_text.items()
    ]
    return ", ".join(parts)


def _format_margin(conclusion: Conclusion) -> str:
    return (
        format_difference(conclusion.effect)
        if conclusion.effect
        else "an unknown margin"
    )


def _describe_with_caution(conclusion: Conclusion, prefers: str, leads: str) -> str:
    """Say who is preferred if judges have not passed their checks, or who leads, with the objection to it."""
    reason = conclusion.reasons[0]
    judge_names = join_names(reason.about["judges"])
    if reason.name == "against":
        return f"{leads}, but other evidence speaks against it for {judge_names}"
    if reason.name == "votes":
        verb = "has" if len(reason.about["judges"]) == 1 else "have"
        return f"{prefers}, but {judge_names} {verb} {reason.about['model']} ahead"
    verb = "has" if len(reason.about["judges"]) == 1 else "have"
    return f"{prefers}, but {judge_names} {verb} not passed all judge checks"


def _describe_few_prompts(conclusion: Conclusion, _: str) -> str:
    n = conclusion.scope.n_prompts
    if n is None:
        return "no battle names its prompt, so the entrants cannot be ranked"
    verb = "s are" if n != 1 else " is"
    return f"{n} prompt{verb} too few to rank the entrants"


def _describe_no_ranking(conclusion: Conclusion, _: str) -> str:
    return "no ranking: fewer than two entrants are linked by wins and losses"


def _describe_undecided(conclusion: Conclusion, _: str) -> str:
    if conclusion.reasons[0].name == "failures":
        failure_text = say_failures(conclusion, _format_margin(conclusion))
        return f"no clear winner across judges of this kind: {failure_text}"
    other_models = join_names(conclusion.reasons[0].about["models"])
    return (
        f"no clear winner across judges of this kind: {conclusion.subject} is ahead of {conclusion.rival} by "
        f"{_format_margin(conclusion)}, but {other_models} may be as good"
    )


def _describe_disagreement(conclusion: Conclusion, _: str) -> str:
    pairs = conclusion.reasons[0].about["pairs"]
    judge, other_judge, higher, lower = pairs[0]
    more = f" ({len(pairs) - 1} more in judges.json)" if pairs[1:] else ""
    return (
        f"the judges disagree on {higher} and {lower}: {judge} has {higher} ahead, and {other_judge} has {lower} "
        f"ahead{more}"
    )


def _describe_joint_caution(conclusion: Conclusion, _: str) -> str:
    margin = _format_margin(conclusion)
    return _describe_with_caution(
        conclusion,
        f"the judges prefer {conclusion.subject} to {conclusion.rival} by {margin}",
        f"{conclusion.subject} leads {conclusion.rival} across judges of this kind, by {margin}",
    )


def _describe_joint_lead(conclusion: Conclusion, _: str) -> str:
    return (
        f"{conclusion.subject} leads {conclusion.rival} across judges of this kind, "
        f"by {_format_margin(conclusion)}{describe_worst_case_lead(conclusion)}"
    )


def _describe_joint_lead_by_words(conclusion: Conclusion, _: str) -> str:
    return f"{conclusion.subject} is ahead of {conclusion.rival} by {_format_margin(conclusion)}{WORD_OVERLAP_NOTE}"


def _name_rival(conclusion: Conclusion) -> str:
    """Return the rival, or "all others" if judges compare the leader with different entrants."""
    return conclusion.rival or "all others"


def _describe_leader(conclusion: Conclusion, all_of_them: str) -> str:
    return f"{all_of_them} have {conclusion.subject} ahead of {_name_rival(conclusion)}"


def _describe_not_significant(conclusion: Conclusion, all_of_them: str) -> str:
    judge_names = join_names(conclusion.reasons[0].about["judges"])
    return f"{_describe_leader(conclusion, all_of_them)}, but not significantly for {judge_names}"


def _describe_different_leaders(conclusion: Conclusion, _: str) -> str:
    leaders = conclusion.reasons[0].about["leaders"]
    return ", ".join(f"{judge} has {model} ahead" for judge, model in leaders)


def _describe_no_leader(conclusion: Conclusion, _: str) -> str:
    judges = conclusion.reasons[0].about["judges"]
    return (
        f"{join_names(judges)} {'has' if len(judges) == 1 else 'have'} no entrant ahead"
    )


def _describe_lost_to_failures(conclusion: Conclusion, all_of_them: str) -> str:
    judge_names = join_names(conclusion.reasons[0].about["judges"])
    return (
        f"{_describe_leader(conclusion, all_of_them)}, but for {judge_names} the lead is lost if missing answers "
        "and unknown verdicts count against it"
    )


_SEPARATE_UNDECIDED_SENTENCES: Mapping[str, Callable[[Conclusion, str], str]] = {
    "not_significant": _describe_not_significant,
    "different_leaders": _describe_different_leaders,
    "no_leader": _describe_no_leader,
    "failures": _describe_lost_to_failures,
}


def _describe_separate_undecided(conclusion: Conclusion, all_of_them: str) -> str:
    describe = _SEPARATE_UNDECIDED_SENTENCES[conclusion.reasons[0].name]
    return f"no clear winner: {describe(conclusion, all_of_them)}"


def _describe_separate_lead_by_words(conclusion: Conclusion, all_of_them: str) -> str:
    return f"{_describe_leader(conclusion, all_of_them)}{WORD_OVERLAP_NOTE}"


def _describe_separate_caution(conclusion: Conclusion, all_of_them: str) -> str:
    return _describe_with_caution(
        conclusion,
        f"{all_of_them} prefer {conclusion.subject} to {_name_rival(conclusion)}",
        _describe_leader(conclusion, all_of_them),
    )


_Describe = Callable[[Conclusion, str], str]


@dataclass(frozen=True, kw_only=True)
class JudgesStateRow(StateRow):
    """How a state of several judges is shown and worded; None if the state does not occur.

    summary            the state in a title, with the fields leader and judges
    describe_joint     sentence with a combined leaderboard, from the conclusion and "both" or "all 3"
    describe_separate  sentence without a combined leaderboard
    """

    summary: str
    describe_joint: _Describe | None = None
    describe_separate: _Describe | None = None


STATE_ROWS = index_by_state(
    [
        JudgesStateRow(
            state="none",
            chip="No ranking",
            summary="no ranking",
            tone="open",
            describe_separate=_describe_no_ranking,
        ),
        JudgesStateRow(
            state="few",
            chip="Too few prompts",
            summary="too few prompts to rank",
            tone="open",
            describe_joint=_describe_few_prompts,
            describe_separate=_describe_few_prompts,
        ),
        JudgesStateRow(
            state="disagree",
            chip="Judges disagree",
            summary="the judges disagree",
            tone="caution",
            describe_separate=_describe_disagreement,
        ),
        JudgesStateRow(
            state="undecided",
            chip="Undecided",
            summary="no clear winner",
            tone="open",
            describe_joint=_describe_undecided,
            describe_separate=_describe_separate_undecided,
        ),
        JudgesStateRow(
            state="words",
            chip="Word overlap only",
            summary="by word overlap, {leader} is ahead",
            tone="open",
            describe_joint=_describe_joint_lead_by_words,
            describe_separate=_describe_separate_lead_by_words,
        ),
        JudgesStateRow(
            state="caution",
            chip="Caution",
            summary="the judges prefer {leader}",
            tone="caution",
            describe_joint=_describe_joint_caution,
            describe_separate=_describe_separate_caution,
        ),
        JudgesStateRow(
            state="agree",
            chip="Judges agree",
            summary="{judges} judges have {leader} ahead",
            tone="supported",
            describe_separate=_describe_leader,
        ),
        JudgesStateRow(
            state="leads",
            chip="Supported",
            summary="{leader} leads across judges of this kind",
            tone="supported",
            describe_joint=_describe_joint_lead,
        ),
    ]
)


def _count_all_judges(judges: Sequence[str]) -> str:
    return "both" if len(judges) == 2 else f"all {len(judges)}"


def cannot_show(opinion: JudgesResult) -> str:
    """Say what more judges cannot reveal, and who can."""
    if opinion.populations:
        return f"{_SHARED_TASTE_CAVEAT}. The votes of {join_names(opinion.populations)} can"
    suffix = "" if opinion.conclusion.scope.source else " (experiment=label)"
    return f"{_SHARED_TASTE_CAVEAT}. Labels from people can{suffix}"


def describe_spread(opinion: JudgesResult) -> str:
    """Say how much the judges differ: "3 judges, between-judge variation (tau) 41 points"."""
    n, panel = len(opinion.judges), opinion.panel
    judge_count = f"{n} judge{'s' if n != 1 else ''}{_name_populations(opinion)}"
    if panel is None:
        return f"{judge_count}. {_capitalize(explain_no_joint_board(opinion.refusal))}"
    judge, model, points = panel.largest_preference()
    direction = "higher" if points > 0 else "lower"
    text = f"{judge_count}, between-judge variation (tau) {format_number(panel.tau)} points"
    if abs(points) >= 1.0:
        other_judges = "the others do" if n > 2 else "the other does"
        text += f". {judge} rates {model} {format_number(abs(points))} points {direction} than {other_judges}"
    if not panel.has_joint_board:
        text += (
            f". {n} judges are too few for a reliable combined interval of {len(panel.models)} entrants, so each judge "
            "has its own leaderboard"
        )
    return text


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _name_populations(opinion: JudgesResult) -> str:
    """Name the voter populations, which are not judges."""
    return (
        f" and the votes of {join_names(opinion.populations)}"
        if opinion.populations
        else ""
    )


def explain_no_joint_board(reason: Reason | None) -> str:
    """Say why there is no combined leaderboard, and no tau."""
    if reason is None:
        return ""
    text = _NO_JOINT_BOARD_REASONS[reason.name].format(
        **reason.about, entrants=join_names(reason.about.get("models", ()))
    )
    return f"no combined leaderboard: {text}"


_NO_JOINT_BOARD_REASONS = {
    "few_entrants": "with two entrants, a judge preference cannot be separated from a different scale",
    "no_verdicts": "{judge} has no verdict",
    "no_prompts": "battles of {judge} name no prompt, so the judges cannot be compared",
    "unrated": "{judge} has no rating of {entrants} (won or lost every comparison, or met nobody)",
    "no_error": "for {judge} the prompts do not differ, so its error is not known",
    "apart": "{judge} and {other} have no prompt in common",
    "method": "it needs Bradley-Terry without style and baseline_model ('rating=[bradley_terry]' with its defaults)",
    "scored": "each judge scores answers on a scale of its own",
    "one_judge": "{judge} is the only judge",
}


def warn_pooled_judges(
    judges: Sequence[str], *, column: str | None, is_asked: bool
) -> str:
    """Say that the verdicts of several judges are rated as if one had given them.

    column    column of the file that names them
    is_asked  whether a setting pools them; otherwise they are votes
    """
    n, shown_names = len(judges), sorted(judges)[:_MAX_VOTER_NAMES]
    pool = f"{n} judges are pooled" if is_asked else f"{n} voters are pooled"
    name_list = ", ".join(map(repr, shown_names)) + (
        ", ..." if n > len(shown_names) else ""
    )
    if is_asked:
        return (
            f"the verdicts of {pool} ({name_list}), as if one judge had given them. Intervals cover other prompts, but not "
            "other judges."
        )
    return (
        f"the verdicts of {pool} ({name_list}), as one population. Intervals cover other prompts, but not other voters. "
        f"To rate each voter separately, set battles_columns.rubric={column}. To rate one, set "
        "battles_filter.judge_model=NAME."
    )


def warn_repeated_judging(
    repeat_counts: RepeatedComparisons, *, column: str | None
) -> str:
    """Say that comparisons were judged more than once by one judge.

    column  column of the file that names judges
    """
    n = len(repeat_counts.judges) - _MAX_VOTER_NAMES
    more = [f"{n} more"] if n > 0 else []
    judge_names = join_names([*repeat_counts.judges[:_MAX_VOTER_NAMES], *more])
    return (
        f"{judge_names} judged {repeat_counts.n:,} of {repeat_counts.of:,} comparisons more than once. "
        f"All verdicts count, and those on one prompt form one observation of an interval. "
        f"If they come from two judges, give each its own name in {column}."
    )


def kappas(rows: Sequence[Mapping[str, Any]]) -> str:
    """List kappa of every two judges: "sonnet and gpt 0.61 [0.52, 0.70] · ..."."""
    text = " · ".join(
        f"{row['first']} and {row['second']} {kappa(row)}" for row in rows
    )
    return text + word_overlap(
        name for row in rows for name in (row["first"], row["second"])
    )


def kappa(row: Mapping[str, Any]) -> str:
    """Say a kappa with its interval."""
    value = format_number(row["kappa"], 2)
    if row["ci_low"] is None:
        return value
    return f"{value} [{format_number(row['ci_low'], 2)}, {format_number(row['ci_high'], 2)}]"


def suggest_next_step(opinion: JudgesResult) -> str:
    """Say how much another judge or more prompts would narrow an interval."""
    n, panel = len(opinion.judges), opinion.panel
    if panel is None:
        return ""
    if not panel.has_joint_board:
        text = f"{judges_needed(len(panel.models))} judges give a combined leaderboard"
        if opinion.conclusion.scope.source:  # on file, where no other judge is asked
            return text
        return f"{text}: 'judge=[{','.join(opinion.judges)},...]'"
    now = format_number(panel.half_width())
    judge = format_number(panel.half_width(more_judges=1))
    prompts = format_number(panel.half_width(times_prompts=2.0))
    return (
        f"a typical difference has an interval of ± {now} points. A {_format_ordinal(n + 1)} judge would make it "
        f"± {judge}, twice the prompts ± {prompts}"
    )


def _format_ordinal(n: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{'th' if 10 < n % 100 < 14 else ending}"
