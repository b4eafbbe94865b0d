"""How the checks of a judge, its audits and odd answers are said."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from elo_exp.analysis.checks import CANNOT_TELL, FAILED, Check
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_number,
    format_p_equation,
    format_percent,
    format_percent_interval,
    join_names,
)
from elo_exp.judges import guess_judge_kind, role_suffix

About = Mapping[str, Any]  # of a check: names and further numbers

# share of the answers beyond which it is a caution that parts are left out
MAX_CUT_SHARE = 0.05
_MAX_EQUAL_ANSWER_PAIRS = 3
_SPACE = "\N{NO-BREAK SPACE}"
CHECK_TITLES_AND_LIMITS = {
    "one_verdict": (
        "Comparisons with one and the same verdict",
        "under 95 %; above, the judge has compared nothing",
    ),
    "flips": (
        "Flips when the answers swap places",
        "interval within 10 %; not against a lead in both orders",
    ),
    "first_shown": (
        "First shown wins, of equal answers",
        "interval within 45 to 55 %; not against a lead in both orders",
    ),
    "length": (
        "Longer wins, of equally rated answers",
        "no effect that is possible explains the lead, or half of it",
    ),
    "invalid": ("Comparisons without a valid verdict", "at most 2 %"),
    "invalid_by_entrant": (
        "Invalid comparisons, by entrant",
        "shares do not differ (Holm, α = .05)",
    ),
    "responses": (
        "Entrants with odd answers",
        "repeated, boilerplate, short or refusing; caution if the leader’s are",
    ),
    "equal_answers": (
        "Same answers, of the two entrants that gave most",
        "under half of the prompts",
    ),
    "audit": (
        "Audit of the judge",
        "caution if biased by injections, constant texts or on the ladder",
    ),
    "kin": (
        "Entrants of the judge’s family",
        "caution if the leader is one and not all others are",
    ),
    "ties": ("Ties", "no limit"),
    "fit": (
        "Model fit: worst pair, observed minus predicted",
        "within ± 10 percentage points",
    ),
    "transitivity": ("Model fit: one rating explains all pairs", "p > .05"),
    "cycles": ("Prompts with an intransitive triple", "no limit"),
}
ODD_ANSWER_KINDS = {
    "one_text": "one text",
    "repeated": "repeated texts",
    "phrases": "boilerplate",
    "loops": "repetition loops",
    "short": "under three words",
    "refused": "refusals",
}


_CONSOLE_LABELS = {
    "flips": "flips",
    "first_shown": "first shown wins",
    "length": "longer wins",
    "invalid": "invalid",
}
# Said of a check of position without a value
_MISSING_POSITION_LABELS = {"flips": "no flips", "first_shown": "no positions"}


def describe_checks(checks: Mapping[str, Sequence[Check]], kind: str) -> str:
    """Return how far the judge was checked, the failed checks first: "CAUTION: flips 23 %; invalid 0 %".

    checks  by dimension
    kind    of judge
    """
    if kind == "people":
        return "none: battles are votes"
    console_checks = [
        check
        for dimension_checks in checks.values()
        for check in dimension_checks
        if check.name != "one_verdict" or check.state == FAILED
    ]
    failed_names = {
        c.name for c in console_checks if c.is_failed_by_judge or c.is_one_order
    }
    text_by_check = {
        name: f"{words} {value}"
        for name, words in _CONSOLE_LABELS.items()
        if (
            value := _format_by_dimension([c for c in console_checks if c.name == name])
        )
    }
    for check in console_checks:
        if check.name in failed_names and check.name not in text_by_check:
            text_by_check[check.name] = _FAILURE_TEXTS[check.name](check.about or {})
    missing_labels = [
        words
        for name, words in _MISSING_POSITION_LABELS.items()
        if not checks
        or any(
            all(c.name != name or c.value is None for c in dimension_checks)
            for dimension_checks in checks.values()
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
        return f"compares words{': ' if not failed_names else ', '}{state if failed_names else passed_text}"
    return state


def _format_by_dimension(checks: Sequence[Check]) -> str:
    """Return one figure if all dimensions agree, else the figure of each: "91/25/64 %"."""
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
        return f"{shares} %{state}"
    if percents:
        low, high = checks_with_value[0].low, checks_with_value[0].high
        interval = ""
        if len(checks_with_value) == 1 and low is not None and high is not None:
            interval = f" [{format_number(100 * low)}, {format_number(100 * high)}]"
        return f"{percents[0]}{interval}{state}"
    is_one_order = any(check.is_one_order for check in checks)
    return "not measured: one order" if is_one_order else ""


def _describe_biased_audit(about: About) -> str:
    probes = [row["probe"] for row in about["results"] if row["verdict"] == "biased"]
    return f"biased by its audit ({', '.join(probes)})"


# Of verdicts that compare nothing, by kind
_ONE_VERDICT_TEXTS = {
    "first": "the first answer is named",
    "second": "the second answer is named",
    "tie": "a tie is called",
    "invalid": "no verdict is valid",
    "model_a": "the entrant in the first column is named",
    "model_b": "the entrant in the second column is named",
}
_FAILURE_TEXTS: Mapping[str, Callable[[About], str]] = {
    "invalid_by_entrant": lambda about: (
        f"invalid verdicts fall on {join_names([row['model'] for row in about['differing']])}"
    ),
    "audit": _describe_biased_audit,
    "kin": lambda about: f"kin of the first ({about['family']})",
    "one_verdict": lambda about: (
        f"{_ONE_VERDICT_TEXTS[about['kind']]} nearly everywhere"
    ),
}


# Each stands on the console before the dimensions and what was measured there
CONSOLE_WARNINGS = {
    "flips": "verdicts flip with the order (accepted: at most 10 %)",
    "first_shown": "the first-shown answer wins (accepted: 45 to 55 %)",
    "length": "length explains the lead, or half of it; the longer answer wins",
    "invalid": "verdicts are invalid (accepted: at most 2 %)",
    "invalid_by_entrant": "invalid verdicts fall on one entrant; largest share",
}


def verdict(
    checks: Mapping[str, Sequence[Check]], refusal: str | None = None
) -> list[str]:
    """Return whether a judge can be trusted, what it failed, and what is odd about the first's answers.

    checks   by dimension
    refusal  why it cannot be used, where more than its checks says so
    """
    failed_sentences, odd_sentences = (
        [
            f"{dimension}: {reason(check)}"
            for dimension, dimension_checks in checks.items()
            for check in dimension_checks
            if (check.state == FAILED or check.is_one_order)
            and (check.name != "responses") is is_about_judge
        ]
        for is_about_judge in (True, False)
    )
    has_position = any(
        check.name in ("flips", "first_shown") and check.value is not None
        for dimension_checks in checks.values()
        for check in dimension_checks
    )
    if refusal:
        sentences = [f"Verdict: refused. {refusal[:1].upper()}{refusal[1:]}."]
    elif failed_sentences:
        sentences = ["Verdict: caution.", *failed_sentences]
    else:
        sentences = ["Verdict: no check failed."] if has_position else []
    if not refusal:
        sentences += _list_open_checks(checks)
    if not has_position:
        sentences.append(
            "Position bias was not checked: no comparison was judged in both orders."
        )
    return [*sentences, *odd_sentences]


def _list_open_checks(checks: Mapping[str, Sequence[Check]]) -> list[str]:
    """Say which checks the data leave open, in which dimensions."""
    dimensions_by_label: dict[str, list[str]] = {}
    for dimension, dimension_checks in checks.items():
        for check in dimension_checks:
            if check.state == CANNOT_TELL:
                dimensions_by_label.setdefault(
                    CHECK_TITLES_AND_LIMITS[check.name][0], []
                ).append(dimension)
    return [
        f"Cannot tell, in {join_names(dimensions)}: {label.lower()}."
        for label, dimensions in dimensions_by_label.items()
    ]


def reason(check: Check) -> str:
    """Return why a check failed, as a sentence."""
    return _REASON_TEXTS[check.name](check, check.about or {})


def _explain_one_verdict(check: Check, about: About) -> str:
    text = _ONE_VERDICT_TEXTS[about["kind"]]
    return f"{text.capitalize()} in {_format_counts(check, about)} comparisons: nothing was compared."


def _explain_flips(check: Check, about: About) -> str:
    if check.value is None:
        return "Each comparison was judged in one order, so flips are not measured."
    return (
        f"The judge names another winner in {format_percent(check.value)} of comparisons when the "
        "answers swap places."
    )


def _explain_position(check: Check, about: About) -> str:
    interval = ""
    if check.low is not None:
        interval = f" (95{_SPACE}% CI {format_percent_interval(check.low, check.high)})"
    return (
        f"Of equal answers the one shown first wins {format_percent(check.value)} of decisive "
        f"verdicts{interval}."
    )


def _explain_length(check: Check, about: About) -> str:
    is_extrapolated = bool(about.get("is_extrapolated"))
    if about["gap_at_equal_length"] is None or check.value is None or is_extrapolated:
        return "The length of the answers could explain the lead by itself."
    share = check.value
    longer = share > 0.5
    return (
        f"At equal length the lead would be {format_number(about['gap_at_equal_length'])} points, not "
        f"{format_number(about['gap'])}: the {'longer' if longer else 'shorter'} of two equally rated "
        f"answers wins {format_percent(share if longer else 1.0 - share)} of comparisons."
    )


def _explain_invalid(check: Check, about: About) -> str:
    return f"{format_percent(check.value)} of comparisons have no valid verdict."


def _explain_invalid_by_entrant(check: Check, about: About) -> str:
    models = join_names([row["model"] for row in about["differing"]])
    bounds = [
        f" Whatever they would have been, the rating of {row['model']} is between "
        f"{format_number(row['bound_low'])} and {format_number(row['bound_high'])}."
        for row in about["differing"]
        if row["bound_low"] is not None and row["bound_high"] is not None
    ]
    return (
        f"Invalid verdicts fall on {models} more or less often than on others."
        + "".join(bounds)
    )


def _explain_odd_answers(check: Check, about: About) -> str:
    return f"Odd answers: {describe_odd_answers(about['flagged'])}."


def _explain_audit(check: Check, about: About) -> str:
    biased_probes = [
        f"{row['probe']} {format_number(row['estimate'], 2, sign=True)}"
        for row in about["results"]
        if row["verdict"] == "biased"
    ]
    return f"The judge’s audit found it biased: {', '.join(biased_probes)}."


def _explain_kin(check: Check, about: About) -> str:
    return f"{describe_same_family(about['first'], about['family'])}."


_REASON_TEXTS: Mapping[str, Callable[[Check, About], str]] = {
    "one_verdict": _explain_one_verdict,
    "flips": _explain_flips,
    "first_shown": _explain_position,
    "length": _explain_length,
    "invalid": _explain_invalid,
    "invalid_by_entrant": _explain_invalid_by_entrant,
    "responses": _explain_odd_answers,
    "audit": _explain_audit,
    "kin": _explain_kin,
}


def value(check: Check) -> str:
    """Return what a check measured, for a table."""
    if check.name == "audit":
        return "not audited" if check.value is None else f"{check.value:.0f} biased"
    if check.value is None:
        return "not measured: one order" if check.is_one_order else "not checked"
    match check.name:
        case "first_shown" | "length":
            return format_percent(check.value, 1)
        case "fit":
            return f"{format_number(100.0 * check.value, sign=True)} pp"
        case "transitivity":
            return format_p_equation(check.value)
        case _:
            return format_percent(check.value)


def chip(check: Check) -> str | None:
    """Return the label of a check that did not pass, or whose finding a reader is to notice.

    The value of a check that was not done says so.
    """
    if check.state in (FAILED, CANNOT_TELL):
        return check.state
    return "note" if check.is_notable else None


def detail(check: Check) -> str:
    """Return the counts, intervals and names behind what a check measured."""
    return _DETAIL_TEXTS[check.name](check, check.about or {})


def _format_interval(check: Check) -> str:
    return f"95{_SPACE}% CI {format_percent_interval(check.low, check.high, 1)}, "


def _format_counts(check: Check, about: About) -> str:
    return f"{format_count(check.n)} of {format_count(check.of)}"


def _detail_one_verdict(check: Check, about: About) -> str:
    return f"{_format_interval(check)}{_format_counts(check, about)}: {_ONE_VERDICT_TEXTS[about['kind']]}"


def _detail_flips(check: Check, about: About) -> str:
    interval = "" if check.low is None else _format_interval(check)
    return f"{interval}{_format_counts(check, about)} comparisons in both orders"


def _detail_position(check: Check, about: About) -> str:
    interval = "" if check.low is None else _format_interval(check)
    return f"{interval}{format_count(check.n)} decisive verdicts"


def _detail_length(check: Check, about: About) -> str:
    if not about:
        return ""
    interval = "" if check.low is None else _format_interval(check)
    text = f"{interval}{format_number(about['scale'])} characters apart"
    gap, at_equal_length = about["gap"], about["gap_at_equal_length"]
    if gap is None or at_equal_length is None:
        return text
    lead = (
        f"lead {format_number(gap)}, at equal length {format_number(at_equal_length)}"
    )
    least = about.get("least")
    bound = f" (at least {format_number(least)})" if least is not None else ""
    return f"{text}; {lead}{bound}"


def _detail_invalid(check: Check, about: About) -> str:
    kinds = [f", {format_count(n)} {kind}" for kind, n in about.items() if n]
    return _format_counts(check, about) + "".join(kinds)


def _detail_invalid_by_entrant(check: Check, about: About) -> str:
    row = about["worst"]
    return f"most: {row['model']}, {format_count(row['n_invalid'])} of {format_count(row['n_judgments'])}"


def _detail_odd_answers(check: Check, about: About) -> str:
    if not about:
        return ""
    n = about["cut off"]
    return (describe_odd_answers(about["flagged"]) or "none") + (
        f"; {format_count(n)} cut off" if n else ""
    )


def _detail_equal_answers(check: Check, about: About) -> str:
    top_pair, *other_pairs = about["pairs"]
    more_text = (
        f"; {format_count(len(other_pairs))} more pairs" if other_pairs[1:] else ""
    )
    more_text = "; one more pair" if len(other_pairs) == 1 else more_text
    return f"{top_pair['first']} and {top_pair['second']}, {_format_counts(check, about)} prompts{more_text}"


def _detail_audit(check: Check, about: About) -> str:
    if not about.get("date"):
        return ""
    return (
        f"of {len(about['results'])} probes on {format_count(about['n_prompts'])} prompts, "
        f"{about['date'][:10]}"
    )


def _detail_kin(check: Check, about: About) -> str:
    return f"{join_names(about['models'])}, of {about['family']}" if about else ""


def _detail_ties(check: Check, about: About) -> str:
    return f"{format_count(check.n)} identical answers excluded"


def _detail_fit(check: Check, about: About) -> str:
    return f"{about['first']} against {about['second']}"


def _detail_transitivity(check: Check, about: About) -> str:
    if check.value is None and about["n_prompts"] <= about["df"]:
        return "too few prompts for a test"
    if about.get("chi_square") is None:
        return ""
    return f"χ² = {format_number(about['chi_square'], 1)}, {about['df']} df, {about['n_models']} entrants"


_DETAIL_TEXTS: Mapping[str, Callable[[Check, About], str]] = {
    "one_verdict": _detail_one_verdict,
    "flips": _detail_flips,
    "first_shown": _detail_position,
    "length": _detail_length,
    "invalid": _detail_invalid,
    "invalid_by_entrant": _detail_invalid_by_entrant,
    "responses": _detail_odd_answers,
    "equal_answers": _detail_equal_answers,
    "audit": _detail_audit,
    "kin": _detail_kin,
    "ties": _detail_ties,
    "fit": _detail_fit,
    "transitivity": _detail_transitivity,
    "cycles": _format_counts,
}


def describe_same_family(model: str, family: str) -> str:
    """Return why a lead may be the judge's preference for its own family."""
    return f"{model} and the judge are of one family, {family}"


BASELINE_NOTE = (
    "Baseline: words were counted, and nobody judged. Which answers are better is not known; judge=sonnet plan=true says "
    "what it would cost to ask."
)


def word_overlap(judges: Iterable[str]) -> str:
    """Return the disclaimer behind any figure of a judge that compares words; empty if there is none.

    judges  names of those that the figure is about
    """
    word_counters = [name for name in dict.fromkeys(judges) if _counts_words(name)]
    if not word_counters:
        return ""
    return f" ({join_names(word_counters)} compares words alone: no opinion on quality)"


def _counts_words(name: str) -> bool:
    return guess_judge_kind([name]) == "words"


def foreign_bank(study: str, roles: Iterable[str], path: str) -> str:
    """Return the warning of a bank that the study was not written for."""
    role_text = role_suffix(roles).removeprefix(" as ")
    return (
        f"study {study} tells the judge that it is {role_text}, about {path}. For prompts of any kind: study=own; to keep "
        f"it: study={study}."
    )


def references_unused(n: int, n_prompts: int, rubrics: Sequence[str]) -> str:
    """Return the line that says how reference answers could be judged by."""
    rubric_list = ",".join([*rubrics, "correctness"])
    return (
        f"{format_count(n)} of {format_count(n_prompts)} prompts have a reference answer, which the judge is not shown; "
        f"'rubric=[{rubric_list}]' has it judge by them, too"
    )


def list_judge_choices(
    n_queries: int,
    dimensions: Sequence[str],
    dollars: Mapping[str, float],
    keys: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the lines of a run that has no judge: what there is to choose from.

    n_queries   that it would ask on its dimensions
    dollars     that a plan expects, by the name of a judge
    keys        the variable that holds the key of each
    """
    queries = f"{format_count(n_queries)} {'query' if n_queries == 1 else 'queries'}"
    where = f" on {join_names(dimensions)}" if dimensions else ""
    by_key = dict[str, list[str]]()
    for name, price in dollars.items():
        by_key.setdefault(keys[name], []).append(f"judge={name}   ${price:,.2f}")
    choices = {
        **{
            "    ".join(key_choices): f"by batch, {key}"
            for key, key_choices in by_key.items()
        },
        "judge=openai_compatible judge.base_url=URL judge.model=NAME": "a server of your own",
        "judge=lexical": "free: counts words, and can find nothing",
    }
    first_choice = next(iter(choices))
    choices[first_choice] += "; plan=true has the detail"
    width = max(map(len, choices))
    return (
        f"judge: none is chosen. For {queries}{where}:",
        *(f"  {choice:<{width}}    {about}" for choice, about in choices.items()),
    )


def describe_same_family_plan(models: Sequence[str], family: str) -> str:
    """Return the line of a plan that says who would be judged by a model of its own family."""
    verb, possessive = ("is", "its") if len(models) == 1 else ("are", "their")
    return f"kin      {join_names(models)} {verb} judged by {possessive} own family ({family})"


def conversations(extent: Mapping[str, Any]) -> str:
    """Return how many turns are asked, and how much of the answers is shown, from the fields of an Extent."""
    n, n_answers = extent["n_turns"], extent["n_answers"]
    share = extent["n_cut"] / n_answers if n_answers else 0.0
    rounds = f"{extent['n_rounds']} round{'s' * (extent['n_rounds'] != 1)}"
    return (
        f"{_format_prompt_count(extent['n_prompts'])}, {n:,} turn{'s' * (n != 1)} in {rounds}; "
        f"{extent['mean_chars']:,.0f} characters an answer, {format_percent(share)} cut"
    )


def cut_answers(extent: Mapping[str, Any]) -> str | None:
    """Return a caution where a judge is not shown the whole of more than 5 % of the answers."""
    n, n_cut = extent["n_answers"], extent["n_cut"]
    if n_cut <= MAX_CUT_SHARE * n:
        return None
    return (
        f"of {format_percent(n_cut / n)} of the answers the judge is shown a part: judging.shown.answer_chars and "
        "tool_chars leave out the rest"
    )


def equal_answers(pairs: Sequence[EqualAnswers]) -> list[str]:
    """Return a line for each pair that gave the same answers to half of the prompts or more; of many, the first."""
    lines = [
        f"{pair.first} and {pair.second} gave the same answer to {pair.n_equal:,} of "
        f"{_format_prompt_count(pair.n_prompts)}: was the setting applied?"
        for pair in pairs[:_MAX_EQUAL_ANSWER_PAIRS]
    ]
    n_more = len(pairs) - len(lines)
    more = f"so did {n_more:,} more pair{'' if n_more == 1 else 's'}"
    return [*lines, more] if n_more else lines


def describe_equal_answers_plan(
    pairs: Sequence[EqualAnswers], *, stops: bool = False
) -> list[str]:
    """Return the lines of a plan that say who gave the same answers.

    stops  whether a run stops at them
    """
    lines = [f"answers  {line}" for line in equal_answers(pairs)]
    stop = "such a run stops before its judge is paid; judging.allow_equal=true goes on"
    return [*lines, f"{'':<9}{stop}"] if stops else lines


def refuse_equal_answers(pair: EqualAnswers) -> str:
    """Return why a paid judge is not asked about two entrants."""
    prompts = (
        "the one prompt" if pair.n_prompts == 1 else f"all {pair.n_prompts:,} prompts"
    )
    return (
        f"entrant: {pair.first} and {pair.second} gave the same answer to {prompts}: there is nothing to "
        "compare, and no judge was paid. Was the setting applied in which they differ? Leave one of them "
        "out, or have them judged with judging.allow_equal=true."
    )


def _format_prompt_count(n: int) -> str:
    return f"{n:,} prompt{'' if n == 1 else 's'}"


def describe_odd_answers(odd: Mapping[str, Mapping[str, float]]) -> str:
    """Return what is odd about the answers of models, and of what share of them.

    odd  shares by model and kind, such as {"c": {"refused": 0.26}}: "refusals: c 26 %"
    """
    kinds = []
    for kind, label in ODD_ANSWER_KINDS.items():
        shares = [
            f"{model} {format_percent(flags[kind])}"
            for model, flags in odd.items()
            if kind in flags
        ]
        if shares:
            kinds.append(f"{label}: {', '.join(shares)}")
    return "; ".join(kinds)


def describe_audits(diagnoses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each dimension that the judge was audited for, and one for all others.

    diagnoses  by dimension, as in Standings; those without the key audit had no judge
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
            f" for {join_names(unaudited)}" if len(unaudited) < len(diagnoses) else ""
        )
        lines.append(
            f"Judge not audited{scope_text} (experiment=audit, its price with plan=true)."
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
        f"Judge audited {audit['date'][:10]} for {dimension}: {verdicts.count('ok')} ok, "
        f"{len(biased_probes)} biased{probe_list}, {verdicts.count('cannot tell')} undecided."
    )


def effect_to_points(effect: float | None, *, sign: bool = False) -> str:
    """Return the rating difference at which a share of one half becomes one half + effect."""
    if effect is None:
        return NO_VALUE
    share = max(min(0.5 + effect, 0.999), 0.001)
    return format_number(400.0 * math.log10(share / (1.0 - share)), sign=sign)
