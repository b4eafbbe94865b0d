"""What all checks of a judge say together, its audits, and equal answers: each check has its words in analysis/checks/."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    FAILED,
    NOT_DONE,
    Check,
    CheckDefinition,
    list_definitions_by_row,
)
from elo_exp.analysis.diagnosis import Diagnosis
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_number,
    format_percent,
    join_names,
)
from elo_exp.judges import guess_judge_kind, role_suffix

# share of the answers beyond which it is a caution that parts are left out
MAX_CUT_SHARE = 0.05
_MAX_EQUAL_ANSWER_PAIRS = 3
# Values of more rubrics are said as a range
_MAX_VALUES_IN_SENTENCE = 4
AUDIT_PRICE_COMMAND = "python -m elo_exp experiment=audit plan=true"


def describe_checks(checks: Mapping[str, Sequence[Check]], kind: str) -> str:
    """Return how far the judge was checked, the failed checks first: "CAUTION: order changes the verdict 23%".

    checks  by rubric
    kind    of judge
    """
    if kind == "people":
        return "none: people voted"
    console_checks = [
        check for dimension_checks in checks.values() for check in dimension_checks
    ]
    failed_names = {
        c.name for c in console_checks if c.is_failed_by_judge or c.is_one_order
    }
    definitions = list_definitions_by_row()
    text_by_check = {
        d.name: f"{d.console_label}{':' * value.startswith('not ')} {value}"
        for d in definitions
        if d.console_label
        and (
            value := _format_by_dimension(
                [c for c in console_checks if c.name == d.name]
            )
        )
    }
    for check in console_checks:
        if check.name in failed_names and check.name not in text_by_check:
            text_by_check[check.name] = check.definition.summarize_failure(check)
    missing_labels = [
        d.missing_label
        for d in definitions
        if d.missing_label
        and (
            not checks
            or any(
                all(c.name != d.name or c.value is None for c in dimension_checks)
                for dimension_checks in checks.values()
            )
        )
    ]
    passed_text = ", ".join(
        words for name, words in text_by_check.items() if name not in failed_names
    )
    if failed_names:
        cautions = ", ".join(
            words for name, words in text_by_check.items() if name in failed_names
        )
        state = f"CAUTION: {cautions}" + (f"; {passed_text}" if passed_text else "")
    else:
        state = (
            f"NOT CHECKED: {', '.join(missing_labels)}" if missing_labels else "checked"
        )
        state += (
            f"{', ' if missing_labels else ': '}{passed_text}" if passed_text else ""
        )
    if kind == "words":
        return f"word overlap only{': ' if not failed_names else ', '}{state if failed_names else passed_text}"
    return state


def _format_by_dimension(checks: Sequence[Check]) -> str:
    """Return one value if all rubrics agree, otherwise the value of each: "91/25/64%"."""
    checks_with_value = [check for check in checks if check.value is not None]
    values = [check.value for check in checks_with_value]
    percents = list(dict.fromkeys(map(format_percent, values)))
    states = {check.state for check in checks_with_value}
    is_open = CANNOT_TELL in states and FAILED not in states
    state = " (cannot tell)" if is_open else ""
    if len(percents) > 1:
        shares = "/".join(
            format_number(100 * value) for value in values if value is not None
        )
        return f"{shares}%{state}"
    if percents:
        low, high = checks_with_value[0].low, checks_with_value[0].high
        interval = ""
        if len(checks_with_value) == 1 and low is not None and high is not None:
            interval = f" [{format_number(100 * low)}, {format_number(100 * high)}]"
        return f"{percents[0]}{interval}{state}"
    is_one_order = any(check.is_one_order for check in checks)
    return "not measured: one order" if is_one_order else ""


def verdict(
    checks: Mapping[str, Sequence[Check]], refusal: str | None = None
) -> list[str]:
    """Return which checks a judge and the leader failed, and which the data leave open.

    checks   by rubric
    refusal  why it cannot be used, if more than its checks says so
    """
    failed_titles = _list_titles(
        checks, lambda check: check.is_failed_by_judge or check.is_one_order
    )
    leader_titles = _list_titles(
        checks,
        lambda check: check.state == FAILED and not check.definition.is_about_judge,
    )
    open_titles = _list_titles(checks, lambda check: check.state == CANNOT_TELL)
    has_position = any(
        check.definition.missing_label and check.value is not None
        for dimension_checks in checks.values()
        for check in dimension_checks
    )
    if refusal:
        sentences = [f"The judge is refused. {refusal[:1].upper()}{refusal[1:]}."]
    elif failed_titles:
        sentences = [f"The judge did not pass: {join_names(failed_titles)}."]
    else:
        sentences = ["No check failed."] if has_position else []
    if open_titles and not refusal:
        sentences.append(f"The data cannot decide: {join_names(open_titles)}.")
    if leader_titles:
        sentences.append(f"The leader did not pass: {join_names(leader_titles)}.")
    if not has_position:
        sentences.append(
            "Position bias is not known, because no comparison was judged in both orders."
        )
    return sentences


def _list_titles(
    checks: Mapping[str, Sequence[Check]], is_wanted: Callable[[Check], bool]
) -> list[str]:
    """Return the titles of the checks that are wanted, each with its rubrics unless these are all."""
    rubrics_by_title: dict[str, list[str]] = {}
    for rubric, rubric_checks in checks.items():
        for check in filter(is_wanted, rubric_checks):
            title = check.definition.title
            rubrics = rubrics_by_title.setdefault(f"{title[:1].lower()}{title[1:]}", [])
            rubrics.append(rubric)
    return [
        title if len(rubrics) == len(checks) else f"{title} ({join_names(rubrics)})"
        for title, rubrics in rubrics_by_title.items()
    ]


def describe_findings(
    definition: CheckDefinition, checks: Mapping[str, Check]
) -> list[str]:
    """Return what a check found on all rubrics, then what a reader should know about single results.

    checks  its results, by rubric
    """
    measured = {
        name: check for name, check in checks.items() if check.value is not None
    }
    notes_by_text: dict[str, list[str]] = {}
    for name, check in checks.items():
        if note := definition.explain_note(check):
            notes_by_text.setdefault(note, []).append(name)
    sentences = []
    if measured:
        finding = definition.finding or f"{{values}} (accepted: {definition.accepted})."
        sentences.append(finding.format(values=_join_values(definition, measured)))
    elif not notes_by_text:
        is_empty = all(check.state == NOT_DONE for check in checks.values())
        sentences.append(definition.unknown if is_empty else f"{definition.not_done}.")
    return sentences + [
        _name_rubrics(names, len(checks)) + note
        for note, names in notes_by_text.items()
    ]


def _name_rubrics(names: Sequence[str], n_rubrics: int) -> str:
    """Return the rubrics that a note is about, with a colon; nothing if these are all."""
    return "" if len(names) == n_rubrics else f"{join_names(names)}: "


def _join_values(definition: CheckDefinition, checks: Mapping[str, Check]) -> str:
    """Return one value if all rubrics agree, otherwise "91% (factuality) and 25% (calibration)", or a range of many."""
    values = {name: definition.format_value(check) for name, check in checks.items()}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    if len(values) <= _MAX_VALUES_IN_SENTENCE:
        return join_names([f"{value} ({name})" for name, value in values.items()])
    ranked = sorted(checks.values(), key=lambda check: check.value or 0.0)
    ends = [definition.format_value(check) for check in (ranked[0], ranked[-1])]
    return f"{ends[0]} to {ends[1]}"


def chip(check: Check) -> str | None:
    """Return the label of a check that did not pass, or whose finding a reader should notice.

    The value of a check that was not done says so.
    """
    if check.state in (FAILED, CANNOT_TELL):
        return check.state
    return "note" if check.is_notable else None


BASELINE_NOTE = (
    "No model judged these answers: the baseline only counts words. To see the price of a judge, add judge=sonnet "
    "plan=true."
)


def word_overlap(judges: Iterable[str]) -> str:
    """Return the disclaimer behind any figure of a judge that compares words; empty if there is none.

    judges  names of those that the figure is about
    """
    word_counters = [name for name in dict.fromkeys(judges) if _counts_words(name)]
    if not word_counters:
        return ""
    return f" ({join_names(word_counters)}: word overlap only, not a quality judgement)"


def _counts_words(name: str) -> bool:
    return guess_judge_kind([name]) == "words"


def foreign_bank(study: str, roles: Iterable[str], path: str) -> str:
    """Return the warning of a bank that the study was not written for."""
    role_text = role_suffix(roles).removeprefix(" as ")
    return (
        f"The preset {study} tells the judge that it is {role_text}, but the prompts are from {path}. For other prompts "
        f"use preset=own. To keep the preset, set preset={study}."
    )


def references_unused(n: int, n_prompts: int, rubrics: Sequence[str]) -> str:
    """Return the line that says how the judge can use reference answers."""
    rubric_list = ",".join([*rubrics, "correctness"])
    return (
        f"{format_count(n)} of {format_count(n_prompts)} prompts have a reference answer that the judge does not "
        f"see. To compare the answers with it as well: 'rubric=[{rubric_list}]'"
    )


def list_judge_choices(
    n_queries: int,
    dimensions: Sequence[str],
    dollars: Mapping[str, float],
    keys: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the lines of a run that has no judge: the judges to choose from, with their prices.

    n_queries   judge calls of the run
    dollars     expected price, by the name of a judge
    keys        environment variable that holds the key, by the name of a judge
    """
    queries = f"{format_count(n_queries)} judge call{'' if n_queries == 1 else 's'}"
    where = f" on {join_names(dimensions)}" if dimensions else ""
    by_key = dict[str, list[str]]()
    for name, price in dollars.items():
        by_key.setdefault(keys[name], []).append(f"judge={name}   ${price:,.2f}")
    choices = {
        **{
            "    ".join(key_choices): f"batch price, needs {key}"
            for key, key_choices in by_key.items()
        },
        "judge=openai_compatible judge.base_url=URL judge.model=NAME": "your own server",
        "judge=lexical": "free: word overlap only, not a quality judgement",
    }
    width = max(map(len, choices))
    return (
        f"judge is not set. Nothing was sent or charged. Choose a judge for {queries}{where}:",
        *(f"  {choice:<{width}}    {about}" for choice, about in choices.items()),
        "Add plan=true for the details of a price.",
    )


def describe_same_family_plan(models: Sequence[str], family: str) -> str:
    """Return the line of a plan that names the entrants of the judge's model family."""
    verb, possessive = ("is", "its") if len(models) == 1 else ("are", "their")
    return f"family   {join_names(models)} {verb} judged by a model of {possessive} own family ({family})"


def conversations(extent: Mapping[str, Any]) -> str:
    """Return the number of turns, and how much of the answers the judge sees, from the fields of an Extent."""
    n, n_answers = extent["n_turns"], extent["n_answers"]
    share = extent["n_cut"] / n_answers if n_answers else 0.0
    rounds = f"{extent['n_rounds']} round{'s' * (extent['n_rounds'] != 1)}"
    return (
        f"{_format_prompt_count(extent['n_prompts'])}, {n:,} turn{'s' * (n != 1)} in {rounds}; "
        f"{extent['mean_chars']:,.0f} characters per answer, {format_percent(share)} of answers cut for the judge"
    )


def cut_answers(extent: Mapping[str, Any]) -> str | None:
    """Return a caution if a judge sees only parts of more than 5% of the answers."""
    n, n_cut = extent["n_answers"], extent["n_cut"]
    if n_cut <= MAX_CUT_SHARE * n:
        return None
    return (
        f"the judge sees only parts of {format_percent(n_cut / n)} of the answers (limits: judging.shown.answer_chars and "
        "judging.shown.tool_chars)"
    )


def equal_answers(pairs: Sequence[EqualAnswers]) -> list[str]:
    """Return a line for each pair that gave the same answers to half of the prompts or more; of many, the first."""
    lines = [
        f"{pair.first} and {pair.second} gave the same answer to {pair.n_equal:,} of "
        f"{_format_prompt_count(pair.n_prompts)}. Was the setting applied?"
        for pair in pairs[:_MAX_EQUAL_ANSWER_PAIRS]
    ]
    n_more = len(pairs) - len(lines)
    more = f"so did {n_more:,} more pair{'' if n_more == 1 else 's'}"
    return [*lines, more] if n_more else lines


def describe_equal_answers_plan(pairs: Sequence[EqualAnswers]) -> list[str]:
    """Return the lines of a plan that name entrants with the same answers."""
    return [f"answers  {line}" for line in equal_answers(pairs)]


def refuse_equal_answers(pair: EqualAnswers) -> list[str]:
    """Return the lines of the error for two entrants that a paid judge does not compare."""
    prompts = (
        "the one prompt" if pair.n_prompts == 1 else f"all {pair.n_prompts:,} prompts"
    )
    return [
        f"{pair.first} and {pair.second} gave the same answer to {prompts}, so there is nothing to compare. "
        "No judge was paid.",
        "  Check that the setting in which they differ was applied, or leave one of them out.",
        "  To judge them anyway, set judging.allow_equal=true.",
    ]


def _format_prompt_count(n: int) -> str:
    return f"{n:,} prompt{'' if n == 1 else 's'}"


def describe_audits(diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    """Return a sentence for each rubric that the judge was audited on, and one for all others.

    diagnoses  by rubric, as in Standings; those without the key audit had no judge
    """
    lines, unaudited = [], []
    for dimension, diagnosis in diagnoses.items():
        if "audit" not in diagnosis:
            continue
        if "date" in diagnosis["audit"]:
            lines.append(_describe_audit(dimension, diagnosis["audit"]))
        else:
            unaudited.append(dimension)
    if unaudited:
        scope_text = (
            f" on {join_names(unaudited)}" if len(unaudited) < len(diagnoses) else ""
        )
        lines.append(
            f"Judge audit{scope_text}: not done. See the price: {AUDIT_PRICE_COMMAND}"
        )
    return lines


def _describe_audit(dimension: str, audit: Mapping[str, Any]) -> str:
    verdicts = [row["verdict"] for row in audit["results"]]
    biased_probes = []
    for row in audit["results"]:
        if row["verdict"] == "biased":
            elo = f", about {effect_to_points(abs(row['estimate']))} Elo"
            estimate = format_number(row["estimate"], 2, sign=True)
            biased_probes.append(
                f"{row['probe']} {estimate}{elo if row['kind'] == 'bias' else ''}"
            )
    probe_list = f" ({'; '.join(biased_probes)})" if biased_probes else ""
    return (
        f"Judge audit on {dimension}, {audit['date'][:10]}: {verdicts.count('ok')} tests ok, "
        f"{len(biased_probes)} biased{probe_list}, {verdicts.count('cannot tell')} inconclusive."
    )


def effect_to_points(effect: float | None, *, sign: bool = False) -> str:
    """Return the rating difference at which a share of one half becomes one half + effect."""
    if effect is None:
        return NO_VALUE
    share = max(min(0.5 + effect, 0.999), 0.001)
    return format_number(400.0 * math.log10(share / (1.0 - share)), sign=sign)
