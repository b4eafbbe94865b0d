"""Sentences about the sources of the variance, and the width of an interval with more prompts or samples."""

import math

from elo_exp.analysis.variance import Variance
from elo_exp.api.costs import format_dollars
from elo_exp.formatting import NO_VALUE, format_number, format_percent, join_names

_COMPONENT_NAMES = {
    "prompts": "prompts",
    "draws": "samples",
    "judge": "judge",
    "within": "samples and judge",
}


def format_share(variance: Variance, name: str) -> str:
    """Return a share of the variance of one comparison; "below 10%" if it cannot be told from zero."""
    if variance.is_noise.get(name):
        return "below 10%"
    return format_percent(variance.shares.get(name))


def describe_components(variance: Variance) -> str:
    """Return the components: "prompts 59%, samples 20%, judge 21%"."""
    if None in variance.shares.values():
        return "one sample per prompt cannot separate prompts and samples"
    parts = ", ".join(
        f"{_COMPONENT_NAMES[name]} {format_share(variance, name)}"
        for name in variance.shares
    )
    if "within" in variance.shares:
        parts += " (one order cannot separate them)"
    return parts


def format_width(variance: Variance, n: int, k: int) -> str:
    """Return the width of an interval with n prompts and k samples, in percent of its width now."""
    now, then = variance.of_mean(variance.n, variance.k), variance.of_mean(n, k)
    if not now or then is None:
        return NO_VALUE
    return format_percent(math.sqrt(then / now))


def format_floor(variance: Variance) -> str:
    """Return the width with any number of samples; no value if the share of the prompts cannot be told from zero."""
    if variance.is_noise.get("prompts"):
        return NO_VALUE
    return format_percent(variance.floor)


def next_dollar(variance: Variance) -> str:
    """Return the width of intervals with twice the prompts, with twice the samples, and the limit of samples."""
    n, k = variance.n, variance.k
    prompts = format_width(variance, 2 * n, k)
    draws = format_width(variance, n, 2 * k)
    floor_text = format_floor(variance)
    end = (
        ""
        if floor_text == NO_VALUE
        else f", and to {floor_text} with any number of samples"
    )
    return (
        f"intervals would shrink to {prompts} of their width with twice the prompts, to {draws} with {2 * k} samples "
        f"instead of {k}{end}"
    )


def plan(
    variance: Variance, half_width: float, *, dollars: float | None, n_more: int
) -> list[str]:
    """Return three lines of a plan: the variance of a pilot, and the gain from as much money again.

    half_width  of the pilot's lead, rating points
    dollars     None if nothing is paid
    n_more      prompts that the pilot has left
    """
    n, k = variance.n, variance.k

    def points(n: int, k: int) -> float:
        now, then = variance.of_mean(variance.n, variance.k), variance.of_mean(n, k)
        return half_width * math.sqrt((then or 0.0) / now) if now else half_width

    more = (
        f"the prompt file has {n_more:,} more"
        if n_more
        else "the prompt file has no more"
    )
    floor_note = ""
    if variance.floor is not None and not variance.is_noise["prompts"]:
        end = format_number(half_width * variance.floor)
        floor_note = f"more samples alone never go below {end} points"
    rows = [(f"{2 * n:,} prompts, {k} samples", points(2 * n, k), more)]
    rows += [(f"{n:,} prompts, {2 * k} samples", points(n, 2 * k), floor_note)]
    paid = "" if dollars is None else f"{format_dollars(dollars):<8} "
    lines = [
        f"{design:<24} {format_number(half):>4} points   {paid}{note}".rstrip()
        for design, half, note in rows
    ]
    return [
        f"variance      {describe_components(variance):<50} lead known to ± {format_number(half_width)} points",
        f"next dollar   {lines[0]}",
        f"{'':14}{lines[1]}",
    ]


def describe_dimensions(variance_by_dimension: dict[str, Variance]) -> list[str]:
    """Return a line for each rubric; rubrics with the same text share a line."""
    dimensions_by_text: dict[str, list[str]] = {}
    for dimension, variance in variance_by_dimension.items():
        text = f"{describe_components(variance)}; {next_dollar(variance)}"
        if variance.of_mean(variance.n, variance.k) == 0.0:
            text = "all prompts have the same outcome, so there is no variance"
        dimensions_by_text.setdefault(text, []).append(dimension)
    return [
        f"{join_names(dimensions)}: {text}"
        for text, dimensions in dimensions_by_text.items()
    ]
