"""Whose taste the points are: one line on console and page, in gate.md and in the files."""

from elo_exp.analysis.conclusions import Scope
from elo_exp.report.formats import number, percent


def whose(scope: Scope) -> str:
    """Say whose taste a rating is, and what its interval does not cover.

    Parameters
    ----------
    scope
        Of the conclusions that the line stands under; `n_prompts` are those that were judged.
    """
    if scope.kind == "words":
        return "Points count shared words and say nothing about quality."
    if scope.kind == "people":
        return f"Points are the votes in {scope.source or 'the battles file'}."
    if scope.kind == "scores":
        return f"Scores are those in {scope.source or 'the file'}."
    n = "" if scope.n_prompts is None else f"{scope.n_prompts:,} "
    prompts = "this prompt" if scope.n_prompts == 1 else f"these {n}prompts"
    return (
        f"Points are {scope.judge or 'an unnamed judge'}'s taste on {prompts}. Intervals cover other "
        "prompts, not another judge."
    )


def of_gold(agreement: float, low: float, high: float, n_pairs: int) -> str:
    """Say how often an audited judge names the better answer of pairs with a known one.

    agreement, low, high  shares, with the ends of a 95 % interval
    """
    ends = f"[{number(100 * low)}, {number(100 * high)}]"
    share = percent(agreement).replace("\N{NO-BREAK SPACE}", " ")
    return f"It agrees with the gold labels on {share} {ends} of {n_pairs:,} pairs."


def of_calibrated_arena(taste: float) -> str:
    """Say what a placement among human battles rests on.

    taste  the judge's taste for a single model, half the width of its 95 % range, in rating points
    """
    return f"On the voters' scale; the judge's taste (± {number(taste)} points) is in the interval."


def of_oracle(oracle: str) -> str:
    """Say what the values of policies estimate: `oracle` gave the labels."""
    return f"Values are what {oracle} would label."
