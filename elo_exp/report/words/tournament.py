"""How the conclusion of a tournament is said: on the console, on the cards of the page, in its headline."""

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.looks import Resolution
from elo_exp.analysis.power import Precision
from elo_exp.report.formats import between, names, number, p_equals, percent

_SPACE = "\N{NO-BREAK SPACE}"
Finding = Mapping[str, Any]  # of one dimension, as analysis.checks.finding returns it


def claim(finding: Finding, *, scored: bool) -> str:
    """Return the conclusion as the console has it.

    scored  whether items were scored, and nothing was compared
    """
    leader, case = finding["leader"], finding["case"]
    if case == "unrated":
        why = "were scored" if scored else "are linked by wins and losses"
        return f"no ranking; fewer than two entrants {why}"
    ahead = _gap(finding, scored=scored)
    match case:
        case "few_prompts":
            noun = "items" if scored else "prompts"
            text = f"too few {noun} to rank; {leader} is ahead by {ahead}"
        case "level":
            text = f"{leader} is level with {names(finding['others'])}"
        case "unknown":
            text = f"{leader} is ahead by {ahead}; its error cannot be estimated"
        case "undecided":
            text = (
                f"no clear winner; {leader} is ahead of {finding['second']} by {ahead}"
            )
        case "invalid":
            text = f"no clear winner; invalid verdicts may explain that {leader} is ahead by {ahead}"
        case "open":
            text = (
                f"{leader} leads by {ahead}; some that cannot be compared may be better"
            )
        case "caution":
            text = f"the judge prefers {leader} by {ahead}"
        case _:
            text = f"{leader} leads by {ahead}"
    return text


def _gap(finding: Finding, *, scored: bool) -> str:
    digits = 3 if scored else 0
    is_less = finding["gap"] <= 0.5 and not scored
    text = "less than a point" if is_less else f"about {number(finding['gap'], digits)}"
    if finding["evidence"]:
        low, high = (number(finding[end], digits) for end in ("gap_low", "gap_high"))
        text += f" [{low}, {high}], {_test(finding['evidence'])}"
    return text


def _test(pair: Difference) -> str:
    if isinstance(pair, Resolution):
        return f"at look {pair.look}" if pair.significant else "unresolved"
    return p_equals(pair.p_holm)


def chip(finding: Finding, *, scored: bool) -> str:
    """Return the state of a dimension in two words."""
    chips = {
        "unrated": "Not rated",
        "few_prompts": "Too few items" if scored else "Too few prompts",
        "supported": "Supported",
        "caution": "Caution",
    }
    return chips.get(finding["case"], "Undecided")


def title(finding: Finding, *, scored: bool) -> str:
    """Return the conclusion in a few words, as the heading of a card."""
    leader = finding["leader"]
    match finding["case"]:
        case "unrated":
            text = "No ranking is possible."
        case "few_prompts":
            n = finding["n_prompts"]
            noun = "item" if scored else "prompt"
            text = f"{n} {noun}{'s' if n != 1 else ''} cannot rank these entrants."
        case "open":
            text = f"{leader} leads those that it can be compared with."
        case "supported":
            text = f"{leader} leads."
        case "caution":
            text = f"The judge prefers {leader}."
        case _:
            text = "No clear winner."
    return text


def sentence(
    finding: Finding, *, scored: bool, precision: Precision | None = None
) -> str:
    """Return the evidence for a conclusion, as the text of a card.

    precision  of the dimension; None where it is not known
    """
    leader, case, others = finding["leader"], finding["case"], finding.get("others", ())
    if case == "unrated":
        if leader:
            return f"Only {leader} has a rating, and none to be compared with."
        why = "were scored" if scored else "are linked by wins and losses"
        return f"No entrant can be rated: fewer than two entrants {why}."
    ahead = _ahead(finding, scored=scored)
    match case:
        case "few_prompts":
            noun = "independent items" if scored else "prompts"
            text = f"{leader} is {ahead} A claim needs at least 20 {noun}."
        case "level":
            text = f"{names([leader, *others])} have equal ratings."
        case "unknown":
            text = (
                f"{leader} is {ahead} No test is possible: the error of the gap cannot be "
                "estimated."
            )
        case "invalid":
            text = f"{leader} is {ahead} Its lead may be due to invalid verdicts."
        case "undecided":
            text = f"{leader} is {ahead} {names(others)} may be as good."
            if precision:
                text += (
                    f" {precision.n_prompts} prompts give 80{_SPACE}% power to detect "
                    f"{number(precision.detectable)} points."
                )
        case _:
            text = f"It is {ahead}"
    return text


def _ahead(finding: Finding, *, scored: bool) -> str:
    """How far the leader is ahead, and how certain that is."""
    gap, case, digits = finding["gap"], finding["case"], 3 if scored else 0
    text = number(gap, digits)
    if not scored:
        text = f"about {text} points" if gap > 0.5 else "less than a point"
    text += f" ahead of {finding['second']}"
    if pair := finding["evidence"]:
        interval = between(finding["gap_low"], finding["gap_high"], digits)
        test = f"Holm {p_equals(pair.p_holm)}"
        if isinstance(pair, Resolution):
            test = (
                f"resolved at look {pair.look}" if pair.significant else "not resolved"
            )
        text += f" (95{_SPACE}% CI {interval}; {test})"
    if not scored and gap > 0.5:
        text += f"; expected win rate {percent(1.0 / (1.0 + 10.0 ** (-gap / 400.0)))}"
    text += "."
    if finding["p_best"] is not None and case not in ("few_prompts", "open"):
        subject = "By its verdicts it" if case == "caution" else "It"
        share = percent(min(finding["p_best"], 0.999))
        text += f" {subject} is the best with {share} probability."
    return text


def headline(findings: Mapping[str, Finding]) -> str:
    """Return one sentence on all dimensions.

    "x leads in a and, with caution, in b; y leads in c; the judge prefers z in d, but fails a check"

    findings  by dimension
    """
    decided = {
        name: finding
        for name, finding in findings.items()
        if finding["case"] in ("supported", "caution")
    }
    if not decided:
        n = len(findings)
        return "No clear winner" + (f" in any of {n} dimensions" if n > 1 else "")
    led, doubtful = (
        {name for name, finding in decided.items() if finding["case"] == case}
        for case in ("supported", "caution")
    )
    leaders = list(dict.fromkeys(f["leader"] for n, f in decided.items() if n in led))
    parts = []
    for leader in leaders:
        own = [name for name, finding in decided.items() if finding["leader"] == leader]
        text = f"{leader} leads{_in([n for n in own if n in led], findings)}"
        if cautions := [name for name in own if name in doubtful]:
            text += f" and, with caution,{_in(cautions, findings)}"
        parts.append(text)
    others = sorted({f["leader"] for f in decided.values()} - {*leaders})
    if others:
        preferred = [
            leader
            + _in([n for n, f in decided.items() if f["leader"] == leader], findings)
            for leader in others
        ]
        failed = [
            check
            for finding in decided.values()
            for check in finding["reasons"]
            if check.value is not None
        ]
        parts.append(
            f"{'the' if parts else 'The'} judge prefers {' and '.join(preferred)}"
            + (", but fails a check" if failed else ", in one order")
        )
    return "; ".join(parts)


def _in(some: Sequence[str], findings: Mapping[str, Finding]) -> str:
    """Return " in" these of all dimensions; nothing where there is one alone."""
    n = len(findings)
    if n == 1:
        return ""
    if len(some) < n:
        return f" in {names(some)}"
    return " in both dimensions" if n == 2 else f" in all {n} dimensions"
