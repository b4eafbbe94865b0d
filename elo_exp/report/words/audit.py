"""What an audit says of a judge, on the console and on its page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elo_exp.analysis.conclusions import Conclusion
from elo_exp.records import Verdict
from elo_exp.report.formats import NONE, count, names, number, percent
from elo_exp.report.words.judge import points, word_overlap

_NAMED = {"A": "the first", "B": "the second", "TIE": "a tie"}
_SIDE = {"bias": "± ", "share": "< ", "floor": "> "}  # of the bound that is ok


def conclusion(one: Conclusion) -> str:
    """Say how many probes were ok, which found a bias, and how many could not tell."""
    biased = [r.name for r in one.reasons if r.about["verdict"] == "biased"]
    listed = f" ({names(biased)})" if biased else ""
    n_undecided = len(one.reasons) - len(biased)
    return (
        f"{one.subject} on {one.scope.dimension}: {len(one.others)} ok, {len(biased)} biased{listed}, "
        f"{n_undecided} undecided{word_overlap([str(one.subject)])}"
    )


def of_several(one: Conclusion) -> str:
    """Say of several judges which are ok, which are biased, and of which nobody can tell."""
    where = f"on {one.scope.dimension}"
    if not one.reasons:
        n = len(one.others)
        said = "both" if n == 2 else f"all {n}"
        return f"{where} {said} judges are ok{word_overlap(one.others)}"
    told = []
    for state, say in _OF_JUDGES.items():
        who = [r.about["judge"] for r in one.reasons if r.name == state]
        who = [*one.others] if state == "ok" else who
        if who:
            told.append(say(names(who), "is" if len(who) == 1 else "are"))
    every = [*one.others, *(str(r.about["judge"]) for r in one.reasons)]
    return f"{where} {'; '.join(told)}{word_overlap(every)}"


_OF_JUDGES: Mapping[str, Callable[[str, str], str]] = {
    "biased": lambda who, verb: f"{who} {verb} biased",
    "cannot tell": lambda who, _: f"of {who} nobody can tell with so few prompts",
    "not audited": lambda who, verb: f"{who} {verb} not audited",
    "ok": lambda who, verb: f"{who} {verb} ok",
}


def counts(n_prompts: int, n_questions: int, n_invalid: int, dollars: float) -> str:
    """Say what was asked, and what it cost."""
    paid = f"${dollars:.2f}" if dollars else "nothing paid"
    return (
        f"{count(n_prompts)} prompts, {count(n_questions)} questions, {count(n_invalid)} without a valid "
        f"verdict; {paid}"
    )


def of_turns(n: int, n_bank: int) -> str:
    """Say how many prompts an audit leaves out, as they are of several turns; empty where none is."""
    if not n:
        return ""
    verb = "is" if n == 1 else "are"
    return f"{n:,} of {n_bank:,} prompts {verb} left out: an answer to several turns has no ladder."


def allowed(kind: str, bound: float) -> str:
    """Say what is ok: ± the margin of a bias, below a share, above a floor."""
    return f"{_SIDE[kind]}{number(bound, 2)}" if kind in _SIDE else NONE


def verdict(row: Mapping[str, Any]) -> str:
    """Say what was decided on a probe, and how many prompts would decide."""
    need = row["need"]
    return f"{row['verdict']}: {count(need)} prompts would" if need else row["verdict"]


def elo(row: Mapping[str, Any]) -> str:
    """Return the rating points that a bias is worth between two equals."""
    if row["kind"] != "bias" or not row["n"]:
        return NONE
    return points(row["estimate"], sign=True)


def gold(what: str, row: Mapping[str, Any]) -> str:
    """Say how often a judge names the better of labelled pairs; `what` are these, or who that is."""
    accuracy, low, high, strict, kappa = (
        number(row[key], 3) for key in ("accuracy", "low", "high", "strict", "kappa")
    )
    invalid = f", {row['n_invalid']} invalid" * bool(row["n_invalid"])
    return (
        f"gold {what}: accuracy {accuracy} [{low}, {high}], {strict} in both orders, kappa {kappa}, "
        f"{row['n']} pairs{invalid}"
    )


def shown(one: Verdict) -> str:
    """Say what a verdict on x and y was, and which of them had been shown first."""
    again = ", asked again" if one.repeat else ""
    better = "" if one.verdict == "TIE" else " is better"
    letter = "y" if one.position_swap else "x"
    return f"{letter} shown first{again}: {_NAMED[one.verdict]}{better}."


def orders(
    dimension: str, n_pairs: int, n_flips: int, results: Sequence[Mapping[str, Any]]
) -> str:
    """Say how often the orders of a pair disagree, and a judge with itself; empty where nothing was asked twice."""
    told = []
    if n_pairs:
        told.append(
            f" the two orders of a pair disagree in {percent(n_flips / n_pairs)} of pairs"
        )
    for row in results:
        if row["estimate"] is None:
            continue
        if row["probe"] == "retest":
            told.append(
                f" a repeated query has the same verdict in {percent(row['estimate'])}"
            )
        elif row["probe"] == "twin":
            told.append(f" an answer ties with itself in {percent(row['estimate'])}")
        elif row["probe"].startswith("rubric: "):
            told.append(
                f" under the {row['probe']} kappa with the verdicts is {number(row['estimate'], 2, sign=True)} "
                "beside that of a repeat"
            )
    return f"{dimension}:{';'.join(told)}." if told else ""
