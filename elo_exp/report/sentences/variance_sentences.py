"""What the variance of comparisons is made of, and what more prompts or draws would make of an interval."""

import math

from elo_exp.analysis.variance import Variance
from elo_exp.api.costs import format_dollars
from elo_exp.formatting import NO_VALUE, format_number, format_percent, join_names

_COMPONENT_NAMES = {
    "prompts": "prompts",
    "draws": "draws",
    "judge": "judge",
    "within": "draws and judge",
}


def format_share(variance: Variance, name: str) -> str:
    """Return a share of the variance of one draw; of less than a tenth, which is noise, that it is so."""
    if variance.is_noise.get(name):
        return "below 10%"
    return format_percent(variance.shares.get(name))


def describe_components(variance: Variance) -> str:
    """Say the components: "prompts 59%, draws 20%, judge 21%"."""
    if None in variance.shares.values():
        return "one draw does not tell prompts and draws apart"
    parts = ", ".join(
        f"{_COMPONENT_NAMES[name]} {format_share(variance, name)}"
        for name in variance.shares
    )
    if "within" in variance.shares:
        parts += ", which one order does not tell apart"
    return parts


def format_width(variance: Variance, n: int, k: int) -> str:
    """Return how wide an interval of n prompts with k draws would be, in percent of that there is."""
    now, then = variance.of_mean(variance.n, variance.k), variance.of_mean(n, k)
    if not now or then is None:
        return NO_VALUE
    return format_percent(math.sqrt(then / now))


def format_floor(variance: Variance) -> str:
    """Return the same of any number of draws; where prompts are not told from none, neither is this."""
    if variance.is_noise.get("prompts"):
        return NO_VALUE
    return format_percent(variance.floor)


def next_dollar(variance: Variance) -> str:
    """Say what twice the money would buy: in prompts, in draws, and where draws end."""
    n, k = variance.n, variance.k
    prompts = format_width(variance, 2 * n, k)
    draws = format_width(variance, n, 2 * k)
    floor_text = format_floor(variance)
    end = "" if floor_text == NO_VALUE else f", any number of draws {floor_text}"
    return (
        f"twice the prompts would make intervals {prompts} as wide, {2 * k} draws in place of {k} "
        f"{draws}{end}"
    )


def plan(
    variance: Variance, half_width: float, *, dollars: float | None, n_more: int
) -> list[str]:
    """Say on three lines of a plan what a pilot is made of, and what as much money again buys.

    half_width  of the pilot's lead, rating points
    dollars     None where nothing is paid
    n_more      prompts that the pilot has left
    """
    n, k = variance.n, variance.k

    def points(n: int, k: int) -> float:
        now, then = variance.of_mean(variance.n, variance.k), variance.of_mean(n, k)
        return half_width * math.sqrt((then or 0.0) / now) if now else half_width

    more = f"{n_more:,} more are in the bank" if n_more else "the bank has no more"
    floor_note = ""
    if variance.floor is not None and not variance.is_noise["prompts"]:
        end = format_number(half_width * variance.floor)
        floor_note = f"draws alone never go below {end} on these {n:,} prompts"
    rows = [(f"{2 * n:,} prompts, {k} draws", points(2 * n, k), more)]
    rows += [(f"{n:,} prompts, {2 * k} draws", points(n, 2 * k), floor_note)]
    paid = "" if dollars is None else f"{format_dollars(dollars):<8} "
    lines = [
        f"{design:<24} {format_number(half):>4} points   {paid}{note}".rstrip()
        for design, half, note in rows
    ]
    return [
        f"variance      {describe_components(variance):<50} half-width of the lead {format_number(half_width)} points",
        f"next dollar   {lines[0]}",
        f"{'':14}{lines[1]}",
    ]


def describe_dimensions(variance_by_dimension: dict[str, Variance]) -> list[str]:
    """Say it of each dimension, of those with the same words once."""
    dimensions_by_text: dict[str, list[str]] = {}
    for dimension, variance in variance_by_dimension.items():
        text = f"{describe_components(variance)}; {next_dollar(variance)}"
        if variance.of_mean(variance.n, variance.k) == 0.0:
            text = "every prompt came out alike: there is no variance to split"
        dimensions_by_text.setdefault(text, []).append(dimension)
    return [
        f"{join_names(dimensions)}: {text}"
        for text, dimensions in dimensions_by_text.items()
    ]
