"""What a result covers: one line on console and page, in gate.md and in the files."""

import math
from collections.abc import Mapping
from dataclasses import replace

from elo_exp.analysis.comparisons import MIN_PROMPTS_FOR_LEAD
from elo_exp.analysis.conclusions import Gold, Scope
from elo_exp.formatting import format_number, format_percent

# If the effective number is a larger share of the number of prompts, the number alone is reported
_MAX_REPORTED_SHARE = 0.75


def describe_scope(scope: Scope) -> str:
    """Say whose preferences a rating reflects, and what its interval does not cover.

    Parameters
    ----------
    scope
        Of the conclusions that the line stands under; `n_prompts` are those that were judged.
    """
    unit = "scores" if scope.is_pointwise else "points"
    if scope.kind == "words":
        return f"{unit.capitalize()} count shared words and say nothing about quality."
    if scope.kind == "people":
        return (
            f"These points reflect the votes in {scope.source or 'the battles file'}."
        )
    if scope.kind == "scores" and scope.is_pointwise:
        return f"The scores are numbers that a function returned ({scope.judge})."
    if scope.kind == "scores":
        return f"The scores are those in {scope.source or 'the file'}."
    prompts = "these prompts" if scope.n_prompts is None else count_prompts(scope)
    agrees = f" {describe_gold_agreement(scope.gold)}" if scope.gold else ""
    return (
        f"These {unit} reflect the preferences of {scope.judge or 'an unnamed judge'} on {prompts}. Another judge "
        f"may disagree, which the intervals do not cover.{agrees}"
    )


def count_prompts(scope: Scope, noun: str = "prompt") -> str:
    """Count prompts, with their effective number if that is clearly less: "25 prompts (effectively 6)"."""
    n = scope.n_prompts or 0
    counted = f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
    worth = scope.n_effective
    if worth is None or not (
        worth <= _MAX_REPORTED_SHARE * n or worth < MIN_PROMPTS_FOR_LEAD <= n
    ):
        return counted
    return f"{counted} (effectively {math.floor(worth):,})"


def describe_run_scope(scope: Scope, golds: Mapping[str, Gold | None]) -> str:
    """Say whose preferences the points of all rubrics reflect.

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


def describe_arena_scope(preference: float) -> str:
    """Return the scope note of an arena placement.

    preference  the judge's preference for a single model: half the width of its 95% range, in rating points
    """
    return (
        "The placement is on the voters' scale. Its interval allows for the judge's own preferences "
        f"(± {format_number(preference)} points)."
    )


def describe_oracle_scope(oracle: str) -> str:
    """Return the scope note of the values of policies; `oracle` gave the labels."""
    return f"The values estimate the mean label that {oracle} would give."
