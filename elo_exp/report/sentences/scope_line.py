"""Whose taste the points are: one line on console and page, in gate.md and in the files."""

import math
from collections.abc import Mapping
from dataclasses import replace

from elo_exp.analysis.comparisons import MIN_PROMPTS_FOR_LEAD
from elo_exp.analysis.conclusions import Gold, Scope
from elo_exp.formatting import format_number, format_percent

# If the prompts are worth a larger share of their number, their number alone is reported
_MAX_TOLD_WORTH_SHARE = 0.75


def describe_scope(scope: Scope) -> str:
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
    prompts = "these prompts"
    if scope.n_prompts is not None:
        is_one = scope.n_prompts == 1
        prompts = "this prompt" if is_one else f"these {prompts_worth(scope)}"
    agrees = f" {describe_gold_agreement(scope.gold)}" if scope.gold else ""
    return (
        f"Points are {scope.judge or 'an unnamed judge'}'s taste on {prompts}. Intervals cover other "
        f"prompts, not another judge.{agrees}"
    )


def prompts_worth(scope: Scope, noun: str = "prompt") -> str:
    """Count prompts, and say how many of equal size would tell as much if that is clearly less: "25 prompts, worth 6"."""
    n = scope.n_prompts or 0
    counted = f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
    worth = scope.n_effective
    if worth is None or not (
        worth <= _MAX_TOLD_WORTH_SHARE * n or worth < MIN_PROMPTS_FOR_LEAD <= n
    ):
        return counted
    return f"{counted}, worth {math.floor(worth):,}"


def describe_run_scope(scope: Scope, golds: Mapping[str, Gold | None]) -> str:
    """Say whose taste the points of all dimensions are.

    golds  by dimension: how often the judge agrees with labelled pairs
    """
    gold_sentences = [
        describe_gold_agreement(gold, dimension if len(golds) > 1 else None)
        for dimension, gold in golds.items()
        if gold and scope.kind == "model"
    ]
    return " ".join([describe_scope(replace(scope, gold=None)), *gold_sentences])


def describe_gold_agreement(gold: Gold, dimension: str | None = None) -> str:
    """Say how often an audited judge names the better answer of pairs with a known one."""
    subject = "It" if dimension is None else f"On {dimension} it"
    share = format_percent(gold.share)
    interval = ""
    if gold.low is not None and gold.high is not None:
        interval = (
            f" [{format_number(100 * gold.low)}, {format_number(100 * gold.high)}]"
        )
    invalid = f", {gold.n_invalid:,} without a valid verdict" * bool(gold.n_invalid)
    return f"{subject} agrees with the gold labels on {share}{interval} of {gold.n_pairs:,} pairs{invalid}."


def describe_arena_scope(taste: float) -> str:
    """Say what a placement among human battles rests on.

    taste  the judge's taste for a single model, half the width of its 95% range, in rating points
    """
    return f"On the voters' scale; the judge's taste (± {format_number(taste)} points) is in the interval."


def describe_oracle_scope(oracle: str) -> str:
    """Say what the values of policies estimate: `oracle` gave the labels."""
    return f"Values are what {oracle} would label."
