"""The conclusion of a tournament, and of rated battles, in a sentence: who is ahead, and the main objection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.checks import find_check_of_reason, name_file_of_mistakes
from elo_exp.analysis.conclusions import Adjustment, Conclusion, Effect, Reason
from elo_exp.analysis.conclusions.tournament_conclusion import STATES
from elo_exp.analysis.missing_answers import WorstCase
from elo_exp.analysis.power import Precision
from elo_exp.formatting import (
    all_prompts,
    expected_win_rate,
    format_number,
    format_p_equation,
    format_percent_in_sentence,
    join_names,
)
from elo_exp.report.sentences.scope_line import (
    count_prompts,
    describe_run_scope,
    describe_scope,
)
from elo_exp.report.sentences.state_rows import StateRow, index_by_state

WORD_OVERLAP_NOTE = ". Word overlap only, not a quality judgement"


def chip(conclusion: Conclusion) -> str:
    """Return the label of a card."""
    if conclusion.state == "few" and conclusion.scope.kind == "scores":
        return "Too few items"
    is_unknown = conclusion.state == "few" and conclusion.scope.n_prompts is None
    return "Prompts unknown" if is_unknown else STATE_ROWS[conclusion.state].chip


def choose_tone(conclusion: Conclusion) -> str:
    """Return the colour of a card: supported, caution or open."""
    is_probed = conclusion.state == "words" and not conclusion.scope.is_baseline
    if is_probed and conclusion.reasons:
        return "caution"
    return STATE_ROWS[conclusion.state].tone


def begins_with_word(sentence: str, conclusions: Sequence[Conclusion]) -> bool:
    """Return whether a page may begin a sentence with a capital: it begins with no entrant's name."""
    entrants = set[str]()
    for conclusion in conclusions:
        entrants |= {*filter(None, (conclusion.subject, conclusion.rival))}
        for reason in conclusion.reasons:
            entrants |= {*reason.about.get("models", ())}
    return not sentence.startswith(tuple(entrants))


def further(conclusion: Conclusion) -> list[str]:
    """Return the reasons that the sentence leaves out."""
    main_sentence = sentence(conclusion)
    reason_texts = [because(reason, conclusion) for reason in conclusion.reasons]
    return [text for text in reason_texts if text not in main_sentence]


def sentence(conclusion: Conclusion) -> str:
    """Say what the evidence supports about the top entrant, with the weightiest reason against it."""
    margin = (
        format_difference(conclusion.effect)
        if conclusion.effect
        else "an unknown margin"
    )
    row = STATE_ROWS[conclusion.state]
    if conclusion.adjustment and row.compares:
        margin += _describe_raw_lead(conclusion.adjustment)
    if row.describe:
        text = row.describe(conclusion, margin)
        text += WORD_OVERLAP_NOTE * _counts_words(conclusion)
        return _describe_control(conclusion) + text
    judge_reasons = [reason for reason in conclusion.reasons if reason.judges]
    other_reasons = [reason for reason in conclusion.reasons if not reason.judges]
    end = ""
    if judge_reasons and conclusion.state in ("caution", "unchecked"):
        end = f"; {because(judge_reasons[0], conclusion)}"
    elif other_reasons:
        end = f", but {because(other_reasons[0], conclusion)}"
    end = end or describe_worst_case_lead(conclusion)
    end += WORD_OVERLAP_NOTE * (conclusion.state == "words")
    return f"{_describe_control(conclusion)}{_describe_leader(conclusion)} by {margin}{end}"


def describe_worst_case_lead(conclusion: Conclusion) -> str:
    """Say a lead that holds if what is missing counts against it; "" if nothing between the two is missing."""
    case = conclusion.worst_case
    if case is None or case.rival != conclusion.rival:
        return ""
    lead = Effect(
        value=case.difference,
        low=case.ci_low,
        high=case.ci_high,
        unit=conclusion.effect.unit if conclusion.effect else "points",
        p_value=case.p_holm,
    )
    missing = _describe_missing_of(conclusion, case)
    return f". With {missing}, it leads by {format_difference(lead)}"


def _describe_control(conclusion: Conclusion) -> str:
    """Say what an adjusted lead holds equal: "at equal length, "; nothing if it is not adjusted."""
    if conclusion.adjustment is None or not STATE_ROWS[conclusion.state].compares:
        return ""
    return f"{describe_control(conclusion.adjustment.features)}, "


def describe_control(features: Sequence[str]) -> str:
    """Say which features of answers a fit holds equal: "at equal length" or "at equal style"."""
    return f"at equal {'length' if [*features] == ['length'] else 'style'}"


def _describe_raw_lead(adjustment: Adjustment) -> str:
    """Say the lead without the control: " (raw lead 120 [60, 180])"."""
    raw = adjustment.raw
    return (
        f" (raw lead {format_difference(raw)})" if raw and raw.value is not None else ""
    )


def _describe_leader(conclusion: Conclusion) -> str:
    """Return who is ahead of whom, and according to which judge."""
    leader, rival = conclusion.subject, conclusion.rival
    if conclusion.state == "words":
        return f"{leader} is ahead of {rival}"
    if not conclusion.is_checked:
        judge = conclusion.scope.judge or "an unnamed judge"
        return f"according to {judge} (not checked), {leader} is ahead of {rival}"
    if any(reason.judges for reason in conclusion.reasons):
        is_of_people = conclusion.scope.kind == "people"
        subject = "voters prefer" if is_of_people else "judge prefers"
        return f"the {subject} {leader} to {rival}"
    return f"{leader} leads {rival}"


def _counts_words(conclusion: Conclusion) -> bool:
    """Return whether even an undecided comparison has to mention that only words were counted."""
    compares = conclusion.state in ("few", "undecided")
    return compares and conclusion.scope.is_baseline


def _describe_no_ranking(conclusion: Conclusion, _: str) -> str:
    is_scored = conclusion.scope.kind == "scores" or conclusion.scope.is_pointwise
    condition = "were scored" if is_scored else "are linked by wins and losses"
    return f"no ranking: fewer than two entrants {condition}"


def _describe_same_answers(conclusion: Conclusion, _: str) -> str:
    return because(conclusion.reasons[0], conclusion)


def _describe_no_result(conclusion: Conclusion, _: str) -> str:
    return f"no result: {because(conclusion.reasons[0], conclusion)}"


def _describe_lead(conclusion: Conclusion, margin: str) -> str:
    """Say "A is ahead of B by 12 [−3, 27]"; of a lead that nothing bounds "A won all 3 prompts against B"."""
    leader, rival, effect = conclusion.subject, conclusion.rival, conclusion.effect
    if effect is not None and is_unbounded(effect):
        test = (
            f", {format_p_equation(effect.p_value)}"
            if effect.p_value is not None
            else ""
        )
        return f"{leader} won {_format_won_prompts(effect)} against {rival}{test}"
    return f"{leader} is ahead of {rival} by {margin}"


def is_unbounded(effect: Effect) -> bool:
    """Return whether an entrant took every point on so few prompts that no lead above zero is shown."""
    return effect.one_sided and (effect.low is None or effect.low <= 0.0)


def _format_won_prompts(effect: Effect) -> str:
    return all_prompts(effect.n_prompts) if effect.n_prompts else "all battles"


def _describe_few_prompts(conclusion: Conclusion, margin: str) -> str:
    scope, leader = conclusion.scope, conclusion.subject
    is_of_items = scope.kind == "scores" and not scope.is_pointwise
    if conclusion.scope.n_prompts is None:
        return f"{_describe_unnamed_prompts(conclusion)}, {_describe_lead(conclusion, margin)}"
    prompts = count_prompts(conclusion.scope, "item" if is_of_items else "prompt")
    verb = "is" if conclusion.scope.n_prompts == 1 else "are"
    too_few = f"{prompts} {verb} too few to rank the entrants"
    if conclusion.effect is not None and conclusion.effect.value == 0:
        return f"{too_few}; {leader} and {conclusion.rival} have the same rating"
    return f"{too_few}; {_describe_lead(conclusion, margin)}"


def _describe_unnamed_prompts(conclusion: Conclusion) -> str:
    """Say what would have to be true if battles name no prompts."""
    for reason in conclusion.reasons:
        if reason.name == "unnamed_prompts":
            return because(reason, conclusion)
    return "if each battle is on a different prompt"


def _describe_undecided(conclusion: Conclusion, margin: str) -> str:
    leader, rival = conclusion.subject, conclusion.rival
    reason = conclusion.reasons[0]
    why = because(reason, conclusion)
    sentence_by_reason = {
        "level": why,
        "not_met": f"{leader} is ahead of the entrants that it met; {why}",
        "annotators": f"{why} by {margin}",
        "unnamed_people": f"{why}, {_describe_lead(conclusion, margin)}",
        "no_error": f"no clear winner: {why}",
    }
    if reason.name in sentence_by_reason:
        return sentence_by_reason[reason.name]
    if reason.name == "failures":
        return say_failures(conclusion, margin)
    if reason.name == "undone":
        return f"no clear winner: {why} that {_describe_lead(conclusion, margin)}"
    other_models = [model for model in reason.about["models"] if model != rival]
    suffix = f"; {why}" if other_models else ""
    return f"no clear winner: {_describe_lead(conclusion, margin)}{suffix}"


def say_failures(conclusion: Conclusion, margin: str) -> str:
    """Say both results of a lead that missing answers may explain: without them, and with them counted against it."""
    case = conclusion.worst_case
    if case is None:
        why = because(conclusion.reasons[0], conclusion)
        return f"no clear winner: {conclusion.subject} is ahead by {margin}, but {why}"
    scope = conclusion.scope
    is_of_items = scope.kind == "scores" and not scope.is_pointwise
    noun = "items" if is_of_items else "prompts"
    n_compared = case.n_answered + case.n_empty + case.n_one_order
    scope_text = f"the {n_compared:,} of {case.n_prompts:,} {noun}"
    if case.n_empty:
        scope_text += " that were compared"
    elif (
        case.n_lacks_leader
        and not (case.n_lacks_rival or case.n_unjudged)
        and not scope.is_pointwise
    ):
        scope_text += " that it answered"
    elif case.n_lacks_leader or case.n_lacks_rival:
        scope_text += " on which nothing is missing"
    else:
        scope_text += " with valid verdicts"
    if n_compared == case.n_prompts:
        scope_text = f"{n_compared:,} {noun}"
    lead = f"is ahead of {case.rival}"
    if case.rival == conclusion.rival:
        lead += f" by {margin}"
    missing = _describe_missing_of(conclusion, case)
    return f"{conclusion.subject} {lead}, on {scope_text}. With {missing}, {_describe_worst_case(case)}"


def _describe_missing_of(conclusion: Conclusion, case: WorstCase) -> str:
    """Say what is missing and how it counts; scores of single answers count at the ends of their scale."""
    if not conclusion.scope.is_pointwise:
        return describe_missing(case)
    parts = [
        f"the {n:,} missing score{'s' if n > 1 else ''} of {model} counted as the {end}"
        for n, model, end in (
            (case.n_lacks_leader, conclusion.subject, "lowest"),
            (case.n_lacks_rival, case.rival, "highest"),
        )
        if n
    ]
    return join_names(parts) or "missing scores counted against it"


def describe_missing(case: WorstCase) -> str:
    """Say what is missing and how it counts: "its 45 failures counted as losses"."""
    parts = []
    if case.n_lacks_leader:
        failures = "failure" if case.n_lacks_leader == 1 else "failures"
        losses = "a loss" if case.n_lacks_leader == 1 else "losses"
        parts.append(f"its {case.n_lacks_leader:,} {failures} counted as {losses}")
    if n := case.n_lacks_rival - case.n_failed_rival:
        answers = "answer" if n == 1 else "answers"
        parts.append(f"the {n:,} {answers} that {case.rival} lacks counted against it")
    if case.n_failed_rival:
        n = case.n_failed_rival
        failures = "failure" if n == 1 else "failures"
        losses = "a loss" if n == 1 else "losses"
        parts.append(f"{n:,} {failures} of {case.rival} counted as {losses}")
    if case.n_unjudged:
        verdicts = "verdict" if case.n_unjudged == 1 else "verdicts"
        parts.append(f"the {case.n_unjudged:,} unknown {verdicts} counted against it")
    if n := case.n_one_order:
        orders = "order of one prompt" if n == 1 else f"orders of {n:,} prompts"
        parts.append(f"the blank {orders} counted against it")
    return join_names(parts) or "missing results counted against it"


def _describe_worst_case(case: WorstCase) -> str:
    """Say who is ahead in the worst case."""
    if case.difference is not None and case.difference < 0:
        return f"{case.rival} is ahead"
    if case.difference == 0:
        return "the two are equal"
    return "the lead is not significant"


@dataclass(frozen=True, kw_only=True)
class LeadStateRow(StateRow):
    """How a state of a ranking is shown and worded.

    describe  the sentence, from the conclusion and the margin; None: who leads whom, and what stands against it
    summary   in a headline of several dimensions; None: who leads whom
    compares  whether two entrants are compared, so that what the fit holds equal is named
    """

    describe: Callable[[Conclusion, str], str] | None = None
    summary: str | None = None
    compares: bool = True


STATE_ROWS = index_by_state(
    [
        LeadStateRow(
            state="none",
            chip="No ranking",
            tone="open",
            describe=_describe_no_ranking,
            summary="no ranking",
            compares=False,
        ),
        LeadStateRow(
            state="same",
            chip="Same answers",
            tone="open",
            describe=_describe_same_answers,
            compares=False,
        ),
        LeadStateRow(
            state="no_result",
            chip="No result",
            tone="open",
            describe=_describe_no_result,
            summary="no result",
            compares=False,
        ),
        LeadStateRow(
            state="few",
            chip="Too few prompts",
            tone="open",
            describe=_describe_few_prompts,
        ),
        LeadStateRow(
            state="undecided",
            chip="Undecided",
            tone="open",
            describe=_describe_undecided,
            summary="no clear winner",
        ),
        LeadStateRow(state="words", chip="Word overlap only", tone="open"),
        LeadStateRow(state="unchecked", chip="Judge not checked", tone="open"),
        LeadStateRow(state="caution", chip="Caution", tone="caution"),
        LeadStateRow(state="leads", chip="Supported", tone="supported"),
    ]
)


def format_difference(effect: Effect) -> str:
    """Say a lead: "275 points [204, 346], p < .001", "at least 479 points, having won all 60 prompts, p < .001"."""
    digits, unit = (0, " points") if effect.unit == "points" else (3, "")
    if effect.look is None:
        test = format_p_equation(effect.p_value) if effect.p_value is not None else None
    else:
        test = (
            f"at interim analysis {effect.look}"
            if effect.significant
            else "not decided"
        )
    if effect.one_sided:
        size = f"at least {format_number(effect.low, digits)}{unit}, having won {_format_won_prompts(effect)}"
        if is_unbounded(effect):
            size = f"{_format_won_prompts(effect)} won"
    elif effect.low is None or effect.high is None:
        size = f"{format_number(effect.value, digits)}{unit}"
    else:
        ends = (
            f"{format_number(effect.low, digits)}, {format_number(effect.high, digits)}"
        )
        size = f"{format_number(effect.value, digits)}{unit} [{ends}]"
    return f"{size}, {test}" if test else size


# Reasons


def because(reason: Reason, conclusion: Conclusion) -> str:
    """Say one reason, as the end of the sentence about the top entrant, or alone in a list of reasons."""
    if check := find_check_of_reason(reason.name):
        with name_file_of_mistakes(check):
            return check.explain_reason(reason, conclusion)
    return _REASON_TEXTS[reason.name](reason, conclusion)


def _explain_rivals(reason: Reason, conclusion: Conclusion) -> str:
    models = reason.about["models"]
    other_models = [model for model in models if model != conclusion.rival]
    suffix = ", too," if other_models and len(other_models) < len(models) else ""
    return f"{join_names(other_models or models)}{suffix} may be as good"


def _explain_same_answers(reason: Reason, conclusion: Conclusion) -> str:
    models = join_names([str(conclusion.subject), *reason.about["models"]])
    between = " between them" if reason.about["has_others"] else ""
    prompts = all_prompts(reason.about["n_prompts"])
    return f"{models} gave the same answer to {prompts}: nothing to compare{between}"


def _format_times(n: int) -> str:
    return "once" if n == 1 else f"{n:,} times"


def _explain_support(reason: Reason, _: Conclusion) -> str:
    about, share = reason.about, reason.value or 0.0
    is_less = share > 0.5
    phrase = _FEATURE_PHRASES[about["feature"]][is_less]
    return f"{about['model']} {phrase} in {format_percent_in_sentence(1.0 - share if is_less else share)} of its comparisons"


# What an answer has more of, and less of, by feature
_FEATURE_PHRASES = {
    "length": ("is longer", "is shorter"),
    "headers": ("has more headers", "has fewer headers"),
    "lists": ("has more list items", "has fewer list items"),
    "bold": ("has more bold text", "has less bold text"),
}


def _explain_stratum(reason: Reason, _: Conclusion) -> str:
    about = reason.about
    lead = Effect(
        value=None if about["one_sided"] else reason.value,
        low=about["ci_low"],
        high=about["ci_high"],
        p_value=about["p_holm"],
        one_sided=about["one_sided"],
        n_prompts=about["n_prompts"],
    )
    return (
        f"not on {about['stratum']} ({about['n_prompts']:,} prompts: {about['rival']} "
        f"is ahead by {format_difference(lead)})"
    )


def _explain_people(reason: Reason, conclusion: Conclusion) -> str:
    about = reason.about
    effect = Effect(
        value=reason.value,
        low=about["low"],
        high=about["high"],
        p_value=about["p_value"],
        one_sided=about["one_sided"],
        n_prompts=about["n_prompts"],
    )
    return f"people prefer {about['rival']} to {conclusion.subject} by {format_difference(effect)}"


def _explain_level(reason: Reason, conclusion: Conclusion) -> str:
    """Say that a test shows two entrants to be equal within a margin, or that no difference was found."""
    models, margin = join_names(reason.about["models"]), reason.about["margin"]
    if reason.about["is_equivalent"]:
        return f"{conclusion.subject} and {models} are equal within {format_number(margin)} points"
    return (
        f"no difference found: {conclusion.subject} and {models} have the same "
        f"{'score' if conclusion.effect and conclusion.effect.unit == 'score' else 'rating'}"
    )


_ReasonText = Callable[[Reason, Conclusion], str]
_VERDICT_NOUN_BY_KIND = {"people": "votes", "scores": "scores"}
_REASON_TEXTS: dict[str, _ReasonText] = {
    "same": _explain_same_answers,
    "unnamed_prompts": lambda reason, _: (
        f"if each of the {format_number(reason.value)} battles is on a different prompt"
    ),
    "level": _explain_level,
    "no_error": lambda _, c: f"the error of {c.subject} over {c.rival} is unknown",
    "rivals": _explain_rivals,
    "failures": lambda reason, _: (
        f"missing answers and verdicts may explain the lead over {join_names(reason.about['models'])}"
    ),
    "undone": lambda *_: "invalid verdicts may explain",
    "annotators": lambda reason, c: (
        f"{join_names(reason.about['names'])} "
        f"{'prefers' if len(reason.about['names']) == 1 else 'prefer'} {c.subject} to {c.rival}"
    ),
    "unnamed_people": lambda reason, _: (
        f"if each of the {format_number(reason.value)} votes is by a different person"
    ),
    "not_met": lambda reason, _: (
        f"{join_names(reason.about['models'])} met none of them"
    ),
    "chance": lambda reason, _: (
        f"its agreement with people may be chance (kappa {format_number(reason.value, 2)} "
        f"[{format_number(reason.about['ci_low'], 2)}, {format_number(reason.about['ci_high'], 2)}])"
    ),
    "people": _explain_people,
    "skipped": lambda reason, _: (
        f"people skipped {format_number(reason.value)} comparisons, on which they may disagree with it"
    ),
    "support": _explain_support,
    "stratum": _explain_stratum,
    "looked": lambda reason, c: (
        f"the result had been shown {_format_times(int(reason.value or 0))} before "
        f"{_VERDICT_NOUN_BY_KIND.get(c.scope.kind, 'verdicts')} were added"
    ),
    "no_scale": lambda _, c: (
        "no bound of these scores is known "
        f"({'scoring.number.low and scoring.number.high' if c.scope.is_pointwise else 'battles_scale=[LOW,HIGH]'} "
        f"{'name' if c.scope.is_pointwise else 'names'} it)"
    ),
    "exploratory": lambda reason, _: (
        f"{format_number(reason.value)} verdicts had been seen under another design"
    ),
}


def as_row(conclusion: Conclusion) -> dict[str, Any]:
    """Return a conclusion as ratings.json has it, with its sentences."""
    effect = conclusion.effect or Effect(value=None)
    adjustment = conclusion.adjustment
    raw = (adjustment.raw if adjustment else None) or Effect(value=None)
    return {
        "state": conclusion.state,
        "sentence": sentence(conclusion),
        "reasons": [
            {
                "name": reason.name,
                "value": reason.value,
                "words": because(reason, conclusion),
            }
            for reason in conclusion.reasons
        ],
        "first": conclusion.subject,
        "second": conclusion.rival,
        "difference": effect.value,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "p_holm": effect.p_value,
        "one_sided": effect.one_sided,
        "adjusted_for": [*adjustment.features] if adjustment else [],
        "raw_difference": raw.value,
        "raw_ci_low": raw.low,
        "raw_ci_high": raw.high,
        "n_prompts": conclusion.scope.n_prompts,
        "n_effective": conclusion.scope.n_effective,
        "judge": conclusion.scope.judge,
        "whose": describe_scope(conclusion.scope),
        "worst_case": conclusion.worst_case and conclusion.worst_case.to_dict(),
    }


# All rubrics


def headline(conclusions: Sequence[Conclusion]) -> str:
    """Say the conclusions of a run in one line: the sentence of one rubric, or the worst state first.

    conclusions  by rubric, which is named in their scope
    """
    if len(conclusions) == 1:
        return sentence(conclusions[0])
    groups: dict[str, list[str]] = {}
    for conclusion in sorted(
        conclusions, key=lambda conclusion: STATES.index(conclusion.state)
    ):
        groups.setdefault(_summarize(conclusion), []).append(
            conclusion.scope.dimension or ""
        )
    n = len(conclusions)
    all_rubrics = "both rubrics" if n == 2 else f"all {n} rubrics"
    return "; ".join(
        f"{text} on {all_rubrics if len(rubrics) == n else join_names(rubrics)}"
        for text, rubrics in groups.items()
    )


def _summarize(conclusion: Conclusion) -> str:
    if conclusion.state == "same":
        models = conclusion.reasons[0].about["models"]
        return f"{join_names([str(conclusion.subject), *models])} gave the same answers"
    if conclusion.state == "few":
        is_scored = conclusion.scope.kind == "scores"
        if conclusion.scope.n_prompts is None and not is_scored:
            return "prompts unknown"
        return "too few items" if is_scored else "too few prompts"
    fixed_text = STATE_ROWS[conclusion.state].summary
    beginning = _describe_leader(conclusion)
    leader, rival = conclusion.subject, conclusion.rival
    if conclusion.state == "caution" and beginning == f"{leader} leads {rival}":
        beginning = f"with caution, {leader} is ahead of {rival}"
    note = " by word overlap" if conclusion.state == "words" else ""
    return _describe_control(conclusion) + (fixed_text or beginning) + note


def points(conclusions: Sequence[Conclusion]) -> str:
    """Say whose preferences the points of a run reflect, in one line for all rubrics."""
    scopes = [conclusion.scope for conclusion in conclusions]
    scope = max(scopes, key=lambda scope: scope.n_prompts or 0)
    golds = {
        conclusion.scope.dimension or "": conclusion.scope.gold
        for conclusion in conclusions
    }
    return describe_run_scope(scope, golds)


def title_of_all(conclusions: Sequence[Conclusion]) -> str | None:
    """Return who is first on all rubrics; None if the conclusions differ in more, or less, than the rival."""
    if len({conclusion.rival for conclusion in conclusions}) == 1:
        return None
    leaders = {conclusion.subject for conclusion in conclusions}
    states = {conclusion.state for conclusion in conclusions}
    if len(leaders) > 1 or states not in ({"leads"}, {"words"}):
        return None
    where = (
        "both rubrics" if len(conclusions) == 2 else f"all {len(conclusions)} rubrics"
    )
    (leader,), (state,) = leaders, states
    if state == "words":
        return f"By word overlap, {leader} is ahead on {where}"
    return f"{leader} leads on {where}"


def title_in_wins(
    conclusion: Conclusion, n_wins: int, n_ties: int, n_comparisons: int
) -> str | None:
    """Return the lead of one of two entrants as counts of wins; None if its sentence says more than that.

    Parameters
    ----------
    conclusion
        Of two entrants on one rubric.
    n_wins, n_ties
        Comparisons that the leader won, and ties.
    n_comparisons
        Comparisons of the two.
    """
    leader, rival = conclusion.subject, conclusion.rival
    if conclusion.adjustment or 2 * n_wins + n_ties <= n_comparisons:
        return None
    n_losses = n_comparisons - n_wins - n_ties
    counts = f"wins {n_wins:,}"
    if n_ties:
        counts += f", ties {n_ties:,} and loses {n_losses:,}"
    wins = f"{leader} {counts} of {n_comparisons:,} comparisons against {rival}"
    if conclusion.state == "leads":
        return wins
    if conclusion.state == "words" and not conclusion.reasons:
        return f"By word overlap, {wins}"
    if conclusion.state == "undecided" and conclusion.reasons[0].name == "rivals":
        prefix = "By word overlap, no" if conclusion.scope.is_baseline else "No"
        return f"{prefix} clear winner: {wins}"
    if conclusion.state == "caution" and _describe_leader(conclusion).startswith(
        "the judge"
    ):
        ties = f", with {n_ties:,} {'tie' if n_ties == 1 else 'ties'}" if n_ties else ""
        return (
            f"The judge prefers {leader} to {rival} in {n_wins:,} of {n_comparisons:,} "
            f"comparisons{ties}"
        )
    return None


def comment(conclusion: Conclusion, precision: Precision | None = None) -> str:
    """Say what a lead in points is as a win rate; of one that decides nothing, what the prompts could detect."""
    effect = conclusion.effect
    if conclusion.state == "same":
        return "Was the setting applied in which they differ?"
    if conclusion.state == "undecided" and precision:
        return (
            f"{precision.n_prompts:,} prompts give 80% power to detect "
            f"{format_number(precision.detectable)} points."
        )
    if not effect or not effect.value or effect.unit != "points":
        return ""
    share = expected_win_rate(effect.value)
    return (
        f"Expected win rate of {conclusion.subject} over {conclusion.rival}: {share}."
    )
