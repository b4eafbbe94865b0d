"""Numbers and names as a reader wants them, on pages, on the console and in the sentences of checks."""

import hashlib
import math
import re
from collections.abc import Sequence

NO_VALUE = "–"
_MAX_NAMES_IN_SENTENCE = 4
_MAX_TEXT_CHARACTERS = 40
_HASH_CHARACTERS = 6
# Processors agree on so many decimals after the printed ones
_N_REPRODUCIBLE_DECIMALS = 6


def format_number(value: float | None, digits: int = 0, *, sign: bool = False) -> str:
    """Return a number with a true minus, and a plus where `sign` asks for it.

    197 of 200 is 98.5% on every processor: sums whose last bits differ are rounded alike.
    """
    if value is None:
        return NO_VALUE
    value = round(value, digits + _N_REPRODUCIBLE_DECIMALS)
    plus = "+" if sign and round(value, digits) > 0 else ""
    return plus + f"{value:z.{digits}f}".replace("-", "−")


def format_count(value: int | None) -> str:
    return NO_VALUE if value is None else f"{value:,}"


def all_prompts(n: int) -> str:
    return "the one prompt" if n == 1 else f"all {n:,} prompts"


def format_interval(low: float | None, high: float | None, digits: int = 0) -> str:
    """Return an interval, one end of which may be open: "1443 to 1548", "1967 or more"."""
    if low is None and high is None:
        return NO_VALUE
    if high is None:
        return f"{format_number(low, digits)} or more"
    if low is None:
        return f"{format_number(high, digits)} or less"
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def format_p(p: float | None) -> str:
    """Return a p value without its leading zero: "< .001", ".460", "> .999"."""
    if p is None:
        return NO_VALUE
    if p < 0.001:
        return "< .001"
    return "> .999" if p >= 0.9995 else f"{p:.3f}"[1:]


def format_p_equation(p: float | None) -> str:
    """Return "p < .001", "p = .460"."""
    text = format_p(p)
    return f"p {'= ' if text[0] == '.' else ''}{text}"


def format_percent(share: float | None, digits: int = 0) -> str:
    """Return a share in percent; only what is certain is 0 or 100."""
    if share is None:
        return NO_VALUE
    half_step = 0.5 * 10.0**-digits
    percentage = round(100.0 * share, digits + _N_REPRODUCIBLE_DECIMALS)
    if share > 0.0 and percentage <= half_step:
        return f"<{10.0**-digits:g}%"
    if 100.0 - half_step <= percentage and share < 1.0:
        return f">{100.0 - 10.0**-digits:g}%"
    return f"{format_number(100.0 * share, digits)}%"


def format_percent_floor(share: float | None) -> str:
    """Return a share in whole percent, rounded down: 94.9% of the way is not 95%."""
    if share is None:
        return NO_VALUE
    return format_percent(
        math.floor(round(100.0 * share, _N_REPRODUCIBLE_DECIMALS)) / 100.0
    )


def format_percent_interval(
    low: float | None, high: float | None, digits: int = 0
) -> str:
    if low is None or high is None:
        return NO_VALUE
    return f"{format_interval(100.0 * low, 100.0 * high, digits)}%"


def format_percent_in_sentence(share: float | None) -> str:
    """Return a share in percent with a plain space; with one decimal if it is small."""
    is_small = share is not None and share < 0.1 and round(share, 2) != round(share, 3)
    return format_percent(share, 1 if is_small else 0)


def format_percent_of_limit(share: float) -> str:
    """Return a limit in percent with a plain space: "10%"."""
    return f"{100.0 * share:g}%"


def format_probability_limit(limit: float) -> str:
    """Return a limit of p values without its leading zero: ".05"."""
    return f"{limit:g}"[1:]


def expected_win_rate(gap: float) -> str:
    """Return in percent the share of points that a lead of so many rating points is worth."""
    return format_percent(1.0 / (1.0 + math.pow(10.0, -gap / 400.0)))


def join_names(models: Sequence[str], max_names: int = _MAX_NAMES_IN_SENTENCE) -> str:
    """Join names as a sentence does; of many, the first and how many more there are."""
    shown_names = list(models[:max_names])
    if len(models) > max_names:
        return f"{', '.join(shown_names)} and {len(models) - max_names:,} more"
    return " and ".join(
        [", ".join(shown_names[:-1]), shown_names[-1]]
        if shown_names[1:]
        else shown_names
    )


def format_time(time: str | None) -> str:
    """Return a time of manifest.json to the minute."""
    return NO_VALUE if time is None else f"{time[:16].replace('T', ' ')} UTC"


def shorten(text: str, max_characters: int = 100) -> str:
    """Return a text of at most about so many characters, cut between words."""
    if len(text) <= max_characters + 5:
        return text
    return f"{text[: max_characters - 3].rsplit(' ', 1)[0]}..."


def rating_or_bound(
    rating: float | None,
    low: float | None,
    high: float | None,
    *,
    flag: str | None = None,
    digits: int = 0,
) -> str:
    """Return a rating; of an entrant that took every point or none the end that is known, "over 1967"."""
    if rating is not None:
        return format_number(rating, digits)
    if low is not None:
        return f"over {format_number(low, digits)}"
    return flag or NO_VALUE if high is None else f"under {format_number(high, digits)}"


def shorten_override(word: str) -> str:
    """Return an override as names and tables show it: a text by its beginning and its hash, a rubric by its name.

    >>> shorten_override('+rubric={polite:{text:"Which answer is more polite?"}}')
    'rubric=polite'
    """
    name, _, value = word.lstrip("+").partition("=")
    if name == "rubric" and value.startswith("{"):
        names = re.findall(r'(?:^\{|"\},)(\w+):\{(?:dimension|text):"', value)
        return f"rubric={names[0] if len(names) == 1 else f'[{chr(44).join(names)}]'}"
    if not (name.endswith(".system_prompt") and value.startswith('"')):
        return word
    text = " ".join(value[1:-1].replace(r"\${", "${").split())
    if len(text) > _MAX_TEXT_CHARACTERS:
        digest = hashlib.sha256(value.encode()).hexdigest()[:_HASH_CHARACTERS]
        text = f"{text[:_MAX_TEXT_CHARACTERS].rstrip(' .,;:')}… ({digest})"
    return f"{name}={text}"
