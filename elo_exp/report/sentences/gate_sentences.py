"""The sentences of a gate on the console, in gate.md and on its page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.analysis.checks import Check, name_file_of_mistakes
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.conclusions.gate_conclusion import RubricResult
from elo_exp.analysis.gate_checks import GateCheckDefinition, gate_check_definitions
from elo_exp.analysis.noninferiority import MIN_PROMPTS_FOR_VERDICT, PointShare
from elo_exp.analysis.repeated_gates import EarlierGates
from elo_exp.formatting import (
    format_count,
    format_number,
    format_percent,
    join_names,
)
from elo_exp.report.sentences.state_rows import StateRow, index_by_state
from elo_exp.report.sentences.tournament_sentences import WORD_OVERLAP_NOTE


def verdict(conclusion: Conclusion) -> str:
    """Say what a gate concluded. An inconclusive gate also says why, and what would help."""
    return STATE_ROWS[conclusion.state].describe(conclusion)


def title(conclusion: Conclusion, unclear: Sequence[str] = ()) -> str:
    """Return the title of a gate: its result, and the rubrics on which it failed.

    unclear  rubrics with an inconclusive result; () if this is true of all
    """
    subject = conclusion.subject
    if conclusion.state == "same answers":
        return f"Nothing to compare: {subject} gave the baseline’s answers"
    by = " by word overlap" if conclusion.scope.kind == "words" else ""
    if conclusion.state == "pass":
        return f"Gate passed{by}: {subject} is not worse than the baseline"
    if conclusion.state == "fail":
        verb = "loses to" if conclusion.reasons else "is worse than"
        return f"Gate failed{by}: {subject} {verb} the baseline{_describe_failed_rubrics(conclusion)}"
    if {reason.name for reason in conclusion.reasons} == {"control"}:
        return f"Inconclusive{by}: the judge was not shown to notice worse answers"
    where = f" on {join_names(unclear)}" if unclear else ""
    return f"Inconclusive{by}: {subject} may be worse than the baseline{where}"


def _describe_failed_rubrics(conclusion: Conclusion) -> str:
    has_several = conclusion.scope.dimension is not None
    return f" on {join_names(conclusion.others)}" if has_several else ""


def _end_sentence(conclusion: Conclusion) -> str:
    return f"{WORD_OVERLAP_NOTE}." if conclusion.scope.kind == "words" else "."


def _describe_same_answers(conclusion: Conclusion) -> str:
    return (
        f"{conclusion.subject} gave the baseline's answer to all {format_count(conclusion.scope.n_prompts)} prompts, "
        "so there is nothing to compare. No judge was called. Check that the change was applied."
    )


def _describe_pass(conclusion: Conclusion) -> str:
    has_several = conclusion.scope.dimension is not None
    scope_text = " on any rubric" if has_several else ""
    return (
        f"{conclusion.subject} is not worse than the baseline by more than the margin{scope_text}"
        f"{_end_sentence(conclusion)}"
    )


def _describe_fail(conclusion: Conclusion) -> str:
    where, end = _describe_failed_rubrics(conclusion), _end_sentence(conclusion)
    if not conclusion.reasons:
        return f"{conclusion.subject} is worse than the baseline{where}{end}"
    sentences = _list_reason_sentences(
        conclusion.reasons,
        str(conclusion.subject),
        has_several=len(conclusion.others) > 1,
    )
    loss_sentence = f"{conclusion.subject} loses to the baseline{where}{end}"
    cause_sentence = "A cause other than quality could explain the loss."
    return " ".join([loss_sentence, cause_sentence, *sentences])


def _describe_cannot_tell(conclusion: Conclusion) -> str:
    subject = str(conclusion.subject)
    has_several = conclusion.scope.dimension is not None
    sentences = _list_reason_sentences(
        conclusion.reasons, subject, has_several=has_several
    )
    opening = f"It is unclear whether {subject} is worse than the baseline by more than the margin."
    has_opening = not _stands_alone(conclusion.reasons[0])
    return " ".join([opening, *sentences] if has_opening else sentences)


@dataclass(frozen=True, kw_only=True)
class GateStateRow(StateRow):
    """How a state of a gate is shown and worded.

    result  its name as the result on one rubric
    """

    result: str
    describe: Callable[[Conclusion], str]


STATE_ROWS = index_by_state(
    [
        GateStateRow(
            state="same answers",
            chip="same answers",
            tone="open",
            result="same answers",
            describe=_describe_same_answers,
        ),
        GateStateRow(
            state="pass",
            chip="pass",
            tone="supported",
            result="pass",
            describe=_describe_pass,
        ),
        GateStateRow(
            state="fail",
            chip="fail",
            tone="caution",
            result="worse than the baseline",
            describe=_describe_fail,
        ),
        GateStateRow(
            state="cannot tell",
            chip="inconclusive",
            tone="open",
            result="inconclusive",
            describe=_describe_cannot_tell,
        ),
    ]
)


def _list_reason_sentences(
    reasons: Sequence[Reason], subject: str, *, has_several: bool
) -> list[str]:
    """Say why a gate is inconclusive, and what would help: each sentence once, with the rubrics that it holds for."""
    dimensions_by_text: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        text = _explain_reason(reason, subject)
        text_dimensions = dimensions_by_text.setdefault((reason.name, text), [])
        if has_several and reason.name != "power":
            text_dimensions += filter(None, [reason.about.get("dimension")])
    sentences = []
    for (_, text), text_dimensions in dimensions_by_text.items():
        is_lowered = not text.startswith((f"{subject} ", f"{subject}'s "))
        first_letter = text[:1].lower() if text_dimensions and is_lowered else text[:1]
        sentences.append(
            f"{f'On {join_names(text_dimensions)}, ' * bool(text_dimensions)}{first_letter}{text[1:]}"
        )
    return sentences


def _explain_reason(reason: Reason, subject: str) -> str:
    if definition := _find_check(reason):
        with name_file_of_mistakes(definition):
            return definition.explain_reason(reason, subject)
    return _BOUND_REASON_TEXTS[reason.name](reason, subject)


def _find_check(reason: Reason) -> GateCheckDefinition | None:
    """Return the check that gave a reason; None if the bounds did, which may use the name of a check."""
    is_from_check = "state" in reason.about
    return gate_check_definitions()[reason.name] if is_from_check else None


def _stands_alone(reason: Reason) -> bool:
    """Whether the sentence of a reason says by itself that the gate is inconclusive."""
    definition = _find_check(reason)
    if definition is None:
        return reason.name == "invalid"
    return definition.leaves_no_result


def _explain_few_prompts(reason: Reason, subject: str) -> str:
    n, n_prompts = int(reason.value or 0), reason.about["n_prompts"]
    groups = f" These {format_count(n_prompts)} prompts form {format_count(n)} groups."
    return (
        f"A result needs at least {MIN_PROMPTS_FOR_VERDICT} prompts on each rubric."
        f"{groups if n < n_prompts else ''}"
    )


def _explain_lost_answers(reason: Reason, subject: str) -> str:
    about = reason.about
    share = format_percent(reason.value)
    return (
        f"{format_count(about['n_lost'])} of {subject}'s {format_count(about['n_prompts'])} answers "
        f"({share}) are missing or empty. "
        f"If they count as lost, the win rate may be as low as {format_number(about['low'], 3)}."
    )


def _explain_disagreement(reason: Reason, subject: str) -> str:
    about = reason.about
    needed = (
        "With such a judge, no number of prompts lets an equal candidate pass."
        if about["n_needed"] is None
        else _explain_needed_prompts(about["n_needed"])
    )
    return (
        "Some verdicts change when the answers swap places, which hides losses. Allowing for this, the lower bound is "
        f"{format_number(about['low'], 3)} "
        f"instead of {format_number(about['low_of_points'], 3)}. {needed}{_advise_next_alpha(reason)}"
    )


def _explain_needed_prompts(n: int, where: str = "") -> str:
    return f"An equal candidate needs {format_count(n)} prompts{where} to pass with 80% probability."


def _explain_earlier_looks(reason: Reason, subject: str) -> str:
    about, n = reason.about, int(reason.value or 0)
    times = "once" if n == 1 else f"{format_count(n)} times"
    return (
        f"{subject} would {about['would']} by its bounds. But its result was shown {times} before prompts were added, "
        f"which used an alpha of {about['spent']:g}. No alpha is left. To decide again, set "
        f"gate.alpha={about['next_alpha']:g}, which is then the error rate of all these results together."
    )


def _advise_next_alpha(reason: Reason) -> str:
    """Say which alpha the gate needs after prompts are added; without it, adding prompts cannot help."""
    if "next_alpha" not in reason.about:
        return ""
    return (
        " If you add prompts to this comparison, the next gate is a second analysis of it. Set "
        f"gate.alpha={reason.about['next_alpha']:g} then: this result has used {reason.about['spent']:g}."
    )


def _explain_power(reason: Reason, subject: str) -> str:
    if reason.value is None:
        return "With such verdicts, no number of prompts lets an equal candidate pass."
    needed = _explain_needed_prompts(int(reason.value), " on each rubric")
    return f"{needed}{_advise_next_alpha(reason)}"


def _explain_close_call(reason: Reason, subject: str) -> str:
    return (
        f"With these prompts, an equal candidate passes each rubric with over 80% probability, so {subject} may be "
        f"somewhat worse.{_advise_next_alpha(reason)}"
    )


def _explain_invalid(reason: Reason, subject: str) -> str:
    """Say what invalid verdicts may hide."""
    about = reason.about
    share = format_percent(reason.value)
    count_sentence = (
        f"{format_count(about['n_invalid'])} of {format_count(about['n_prompts'])} prompts "
        f"({share}) have no valid verdict."
    )
    as_lost = f"If they count as lost, the win rate may be as low as {format_number(about['low'], 3)}."
    if about["would"] == "pass":
        return f"{count_sentence} {as_lost} Without them, {subject} would pass."
    if about["would"] == "fail":
        as_won = f"If they count as won, the win rate may be as high as {format_number(about['high'], 3)}."
        return f"{count_sentence} {as_won} Without them, {subject} would fail."
    return f"{count_sentence} {as_lost} With so many, no number of prompts lets an equal candidate pass."


_BOUND_REASON_TEXTS: Mapping[str, Callable[[Reason, str], str]] = {
    "few": _explain_few_prompts,
    "invalid": _explain_invalid,
    "lost": _explain_lost_answers,
    "looked": _explain_earlier_looks,
    "flips": _explain_disagreement,
    "power": _explain_power,
    "close": _explain_close_call,
}


def margin(share: float, elo: float | None, alpha: float) -> str:
    """Say how much worse a candidate may be. elo: the margin in points, if it was given in points."""
    points = "" if elo is None else f", from {elo:g} Elo points"
    return (
        f"The gate tolerates a loss of {format_number(share, 3)} in the win rate (gate.margin{points}). "
        f"Its bounds are one-sided at alpha {alpha:g}."
    )


def looks(earlier: Mapping[str, EarlierGates], alpha: float) -> list[str]:
    """Say how much of alpha results with fewer prompts have used; [] if there are none."""
    spent_alpha = {
        name: gates.spent.get("pass", 0.0) for name, gates in earlier.items()
    }
    name = max(spent_alpha, key=spent_alpha.__getitem__, default="")
    if not spent_alpha or not spent_alpha[name]:
        return []
    remaining_alpha, n_looks = (
        earlier[name].alpha_left("pass", alpha),
        earlier[name].n_looks,
    )
    results = "result was" if n_looks == 1 else "results were"
    return [
        f"{format_count(n_looks)} {results} shown before prompts were added. This used {spent_alpha[name]:g} of alpha, "
        f"and {remaining_alpha:g} is left."
    ]


def describe_invalid(n_invalid: int) -> str:
    """Say how comparisons without a valid verdict count."""
    return (
        f"Comparisons without a valid verdict: {format_count(n_invalid)}. They count as lost in lower bounds and as won "
        "in upper bounds."
    )


def groups(shares: Sequence[PointShare]) -> list[str]:
    """Say how many groups the prompts form, if some belong together."""
    fewest = min(shares, key=lambda share: share.n_units)
    if fewest.n_units == fewest.n_prompts:
        return []
    return [
        f"The {format_count(fewest.n_prompts)} prompts form {format_count(fewest.n_units)} groups. The mean of a group "
        "is one observation."
    ]


def describe_lost_answers(n_prompts: int) -> str:
    """Say how missing answers of the candidate count."""
    return (
        f"Prompts with a missing or empty answer of the candidate: {format_count(n_prompts)}. They count as lost in the "
        "lower bound."
    )


def rules(margin: float) -> list[str]:
    """Say what a win rate means here, and which win rates pass and fail."""
    min_share = format_number(0.5 - margin, 3)
    return [
        "A win rate of 0.500 means that the candidate is as good as the baseline. A tie counts as half a win.",
        f"The gate passes if every lower bound is above {min_share} and no check speaks against it. It fails if an "
        "upper bound is below 0.500 and the judge does not favour the baseline.",
        f"If the two orders name different winners, the comparison counts {min_share} in the lower bound, because it may "
        "hide a loss.",
    ]


def describe_result(result: RubricResult) -> str:
    """Return the result on one rubric, and the checks that limit it."""
    row = STATE_ROWS[result.state]
    if not result.causes:
        return row.result
    causes = join_names([_name_cause(name) for name in result.causes])
    if result.state == "fail":
        return f"loses ({causes} may explain it)"
    return f"{row.result} ({causes})"


def _name_cause(name: str) -> str:
    if name in _CAUSE_NAMES:
        return _CAUSE_NAMES[name]
    title = gate_check_definitions()[name].title
    return f"{title[:1].lower()}{title[1:]}"


_CAUSE_NAMES = {
    "few": f"under {MIN_PROMPTS_FOR_VERDICT} prompts",
    "looked": "no alpha left",
}


def describe_check_results(checks: Mapping[str, Sequence[Check]]) -> list[str]:
    """Return the lines that checks add below the table of win rates. checks: by dimension."""
    all_checks = [check for group in checks.values() for check in group]
    return [
        line
        for name, definition in gate_check_definitions().items()
        for line in definition.describe_results(
            [check for check in all_checks if check.name == name]
        )
    ]


def plan(
    chance: float, needed: int | None, margin: float, *, both_orders: float
) -> list[str]:
    """Say how likely a candidate as good as the baseline is to pass.

    needed       prompts with which it passes in 4 of 5 gates; None: no number is enough
    both_orders  share of the comparisons that are judged in both orders
    """
    lines = [
        f"  Chance that a candidate as good as the baseline passes: {format_percent(chance)}, with a margin of "
        f"{margin:.3f} in the win rate."
    ]
    if not both_orders:
        return [
            *lines,
            "  A pass needs comparisons in both orders: set judging.orders=both or judging.both_orders_share=0.2.",
        ]
    enough = (
        "No number of prompts gives 80%"
        if needed is None
        else f"{needed:,} prompts give 80%"
    )
    return [
        *lines,
        f"  {enough} on one rubric, if the judge changes its verdicts as often as in simulations.",
    ]


def describe_control_plan(
    n_calls: int, n_new: int, dollars: float | None, *, is_wanted: bool
) -> list[str]:
    """Say how many calls the control needs, and what they cost.

    n_new    calls whose verdicts are not in the cache
    dollars  their price; None for a judge that costs nothing
    """
    if not is_wanted:
        return ["  Without the control (gate.control=false), the gate cannot pass."]
    if not n_calls:
        return []
    cost = "" if dollars is None else f", ${dollars:.2f}"
    return [
        f"  The control takes {format_count(n_calls)} of the calls ({format_count(n_new)} new{cost}). It shows "
        "the judge degraded copies of the",
        "  baseline's answers. A judge that does not notice them cannot show that the candidate is not worse.",
    ]
