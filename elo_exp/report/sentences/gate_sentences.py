"""What a gate says, on the console, in gate.md and on its page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elo_exp.analysis.checks import Check, name_file_of_mistakes
from elo_exp.analysis.conclusions import Conclusion, Reason
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


def verdict(conclusion: Conclusion) -> str:
    """Say what a gate concluded, and where it cannot tell, why and what would help."""
    return STATE_ROWS[conclusion.state].describe(conclusion)


def title(conclusion: Conclusion) -> str:
    """Return the title of a gate's page: what happened, and on which dimensions."""
    subject = conclusion.subject
    if conclusion.scope.kind == "words":
        subject = f"by shared words, {subject}"
    if conclusion.state == "pass":
        return f"Gate passed: {subject} is not worse than the baseline"
    if conclusion.state == "fail":
        has_several = conclusion.scope.dimension is not None
        where = f" on {join_names(conclusion.others)}" if has_several else ""
        return f"Gate failed: {subject} loses to the baseline{where}"
    if conclusion.state == "same answers":
        return f"Nothing to compare: {conclusion.subject} gave the baseline’s answers"
    return f"Inconclusive: {subject} may be worse than the baseline"


def _begin_sentence(conclusion: Conclusion) -> str:
    prefix = "By shared words " if conclusion.scope.kind == "words" else ""
    return f"{prefix}{conclusion.subject}"


def _describe_same_answers(conclusion: Conclusion) -> str:
    return (
        f"{conclusion.subject} gave the baseline's answer to all {format_count(conclusion.scope.n_prompts)} prompts: "
        "nothing to compare, and no judge was asked. Was the change applied?"
    )


def _describe_pass(conclusion: Conclusion) -> str:
    has_several = conclusion.scope.dimension is not None
    scope_text = " in any dimension" if has_several else ""
    return f"{_begin_sentence(conclusion)} is not worse than the baseline by more than the margin{scope_text}."


def _describe_fail(conclusion: Conclusion) -> str:
    has_several = conclusion.scope.dimension is not None
    scope_text = f" in {join_names(conclusion.others)}" if has_several else ""
    if not conclusion.reasons:
        return f"{_begin_sentence(conclusion)} is worse than the baseline{scope_text}."
    sentences = _list_reason_sentences(
        conclusion.reasons,
        str(conclusion.subject),
        has_several=len(conclusion.others) > 1,
    )
    loss_sentence = (
        f"{_begin_sentence(conclusion)} loses to the baseline{scope_text}, but another cause than quality could "
        "explain it."
    )
    return " ".join([loss_sentence, *sentences])


def _describe_cannot_tell(conclusion: Conclusion) -> str:
    subject = str(conclusion.subject)
    has_several = conclusion.scope.dimension is not None
    sentences = _list_reason_sentences(
        conclusion.reasons, subject, has_several=has_several
    )
    opening = f"It cannot be told whether {subject} is worse than the baseline by more than the margin."
    has_opening = not _stands_alone(conclusion.reasons[0])
    return " ".join([opening, *sentences] if has_opening else sentences)


@dataclass(frozen=True, kw_only=True)
class GateStateRow(StateRow):
    """How a state of a gate is shown and worded."""

    describe: Callable[[Conclusion], str]


STATE_ROWS = index_by_state(
    [
        GateStateRow(
            state="same answers",
            chip="same answers",
            tone="open",
            describe=_describe_same_answers,
        ),
        GateStateRow(
            state="pass", chip="pass", tone="supported", describe=_describe_pass
        ),
        GateStateRow(
            state="fail", chip="fail", tone="caution", describe=_describe_fail
        ),
        GateStateRow(
            state="cannot tell",
            chip="cannot tell",
            tone="open",
            describe=_describe_cannot_tell,
        ),
    ]
)


def _list_reason_sentences(
    reasons: Sequence[Reason], subject: str, *, has_several: bool
) -> list[str]:
    """Say why nothing can be told, and what would help: each sentence once, with the dimensions of which it is true."""
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
            f"{f'In {join_names(text_dimensions)}, ' * bool(text_dimensions)}{first_letter}{text[1:]}"
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
    """Whether the sentence of a reason says by itself that nothing can be told."""
    definition = _find_check(reason)
    if definition is None:
        return reason.name == "invalid"
    return definition.leaves_no_result


def _explain_few_prompts(reason: Reason, subject: str) -> str:
    n, n_prompts = int(reason.value or 0), reason.about["n_prompts"]
    groups = f" These {format_count(n_prompts)} prompts form {format_count(n)} groups."
    return (
        f"A verdict takes at least {MIN_PROMPTS_FOR_VERDICT} prompts in each dimension."
        f"{groups if n < n_prompts else ''}"
    )


def _explain_lost_answers(reason: Reason, subject: str) -> str:
    about = reason.about
    share = format_percent(reason.value)
    return (
        f"{format_count(about['n_lost'])} of {subject}'s {format_count(about['n_prompts'])} answers "
        f"({share}) are missing or empty. "
        f"Counted as lost, the share may be as low as {format_number(about['low'], 3)}."
    )


def _explain_disagreement(reason: Reason, subject: str) -> str:
    about = reason.about
    needed = (
        "With such a judge no number of prompts would pass an equal candidate."
        if about["n_needed"] is None
        else f"{format_count(about['n_needed'])} prompts would pass an equal candidate with 80% power."
    )
    return (
        "The judge's two orders disagree, which hides losses: counted so, the lower bound is "
        f"{format_number(about['low'], 3)} "
        f"in place of {format_number(about['low_of_points'], 3)}. {needed}{_advise_next_alpha(reason)}"
    )


def _explain_earlier_looks(reason: Reason, subject: str) -> str:
    about, n = reason.about, int(reason.value or 0)
    times = "once" if n == 1 else f"{format_count(n)} times"
    return (
        f"{subject} would {about['would']} by the bounds, but its result was shown {times} before prompts were added, and "
        f"that has used an alpha of {about['spent']:g}. No alpha is left. "
        f"gate.alpha={about['next_alpha']:g} decides again, and is then the error of all these looks together."
    )


def _advise_next_alpha(reason: Reason) -> str:
    """Say which alpha the gate needs after prompts are added; without it, adding prompts cannot help."""
    if "next_alpha" not in reason.about:
        return ""
    return (
        " If you add prompts to this comparison, the next gate is a second look: set "
        f"gate.alpha={reason.about['next_alpha']:g}, of which {reason.about['spent']:g} is used."
    )


def _explain_power(reason: Reason, subject: str) -> str:
    if reason.value is None:
        return "With such verdicts no number of prompts would pass an equal candidate."
    return (
        f"{format_count(int(reason.value))} prompts would pass an equal candidate with 80% power in each dimension."
        f"{_advise_next_alpha(reason)}"
    )


def _explain_close_call(reason: Reason, subject: str) -> str:
    return (
        "These prompts would pass an equal candidate with over 80% power in each dimension: it may be somewhat worse."
        f"{_advise_next_alpha(reason)}"
    )


def _explain_invalid(reason: Reason, subject: str) -> str:
    """Say what invalid verdicts may hide."""
    about = reason.about
    share = format_percent(reason.value)
    count_sentence = (
        f"{format_count(about['n_invalid'])} of {format_count(about['n_prompts'])} prompts "
        f"({share}) have no valid verdict."
    )
    as_lost = (
        f"Counted as lost, the share may be as low as {format_number(about['low'], 3)}"
    )
    if about["would"] == "pass":
        return f"{count_sentence} {as_lost}; without them {subject} would pass."
    if about["would"] == "fail":
        as_won = f"Counted as won, the share may be as high as {format_number(about['high'], 3)}"
        return f"{count_sentence} {as_won}; without them {subject} would fail."
    return f"{count_sentence} {as_lost}; with so many, no number of prompts would pass an equal candidate."


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
    """Say how much worse a candidate may be. elo: the margin in points, where it was given so."""
    points = "" if elo is None else f" ({elo:g} Elo points)"
    return f"Margin {format_number(share, 3)} of the share of points{points}, one-sided bounds, alpha {alpha:g}."


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
    return [
        f"Results shown before prompts were added: {format_count(n_looks)}, which used {spent_alpha[name]:g} of alpha "
        f"({remaining_alpha:g} is left)."
    ]


def describe_invalid(n_invalid: int) -> str:
    """Say what becomes of comparisons that have no valid verdict."""
    return (
        f"Comparisons without a valid verdict: {format_count(n_invalid)}, counted as lost in lower bounds and as won in "
        "upper ones."
    )


def groups(shares: Sequence[PointShare]) -> list[str]:
    """Say how many groups the prompts form, if some belong together."""
    fewest = min(shares, key=lambda share: share.n_units)
    if fewest.n_units == fewest.n_prompts:
        return []
    return [
        f"The {format_count(fewest.n_prompts)} prompts form {format_count(fewest.n_units)} groups: the "
        "mean of a group is one "
        "observation."
    ]


def describe_lost_answers(n_prompts: int) -> str:
    """Say what becomes of answers that the candidate lacks."""
    return (
        f"Prompts to which the candidate's answer is missing or empty: {format_count(n_prompts)}, counted "
        "as lost in the lower "
        "bound."
    )


def rules(margin: float) -> list[str]:
    """Say what a share of points is, and which shares pass and fail."""
    min_share = format_number(0.5 - margin, 3)
    return [
        "Share of points: 1 for a win, 1/2 for a tie, the mean over prompts with valid verdicts; 0.500 is as good as "
        "the baseline.",
        f"Pass: every lower bound above {min_share}, and no check against it. Fail: an upper bound below 0.500, "
        "by a judge that does not favour the baseline.",
        f"A comparison whose two orders name different winners counts {min_share} in the lower bound: it may hide a loss.",
    ]


def describe_check_results(checks: Mapping[str, Sequence[Check]]) -> list[str]:
    """Return the lines of checks that have one below the table of shares. checks: by dimension."""
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
    """Say with which probability a candidate as good as the baseline passes.

    needed       prompts with which it does in 4 of 5 gates; None: no number is enough
    both_orders  the share of the comparisons that is judged in both orders
    """
    lines = [
        f"  P(pass | equal) = {chance:.2f}: that a candidate as good as the baseline passes, with "
        f"a margin of {margin:.3f}"
    ]
    if not both_orders:
        return [
            *lines,
            "  of the share of points. A pass takes comparisons in both orders: judging.orders=both, or "
            "judging.flip_share=0.2.",
        ]
    enough = (
        "no number of prompts gives" if needed is None else f"{needed:,} prompts give"
    )
    return [
        *lines,
        f"  of the share of points; {enough} .80 in one dimension, if the judge disagrees with itself as in simulations.",
    ]


def describe_control_plan(
    n_calls: int, n_new: int, dollars: float | None, *, is_wanted: bool
) -> list[str]:
    """Say what the control takes.

    n_new    of the calls, those whose verdicts are not stored
    dollars  of these; None for a judge that costs nothing
    """
    if not is_wanted:
        return ["  No control (gate.control=false): the gate cannot pass."]
    if not n_calls:
        return []
    cost = "" if dollars is None else f", ${dollars:.2f}"
    return [
        f"  control: {format_count(n_calls)} of the calls ({format_count(n_new)} new{cost}) compare "
        "degraded copies of the baseline's "
        "answers with these answers:",
        "  a judge that does not see that the copies are worse cannot show that the candidate is not.",
    ]
