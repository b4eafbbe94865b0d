"""Scorings in a command: single answers in place of pairs, or next to them.

scoring=score                rubric=[] +scoring@scoring.score=score
scoring=[pairwise,score]     +scoring@scoring.score=score
"""

import difflib
from collections.abc import Iterator, Sequence

from elo_exp.errors import SettingError
from elo_exp.launching.part_words import list_options
from elo_exp.launching.quoting import shorten_word, split_list, strip_quotes

EXPERIMENTS_WITH_SCORINGS = (None, "tournament")
# In a list of scorings: pairs are compared as well
_PAIRWISE = "pairwise"


def expand_scorings(value: str) -> Iterator[str]:
    """Yield the words that choose scorings, and no rubric of pairs unless pairs are to be compared as well."""
    scorings = _list_scorings(value)
    if _PAIRWISE not in scorings:
        yield "rubric=[]"
    for scoring in scorings:
        if scoring != _PAIRWISE:
            yield f"+scoring@scoring.{scoring}={scoring}"


def _list_scorings(value: str) -> list[str]:
    """Return the items of a list, or the only one."""
    items = split_list(value)
    return [strip_quotes(item) for item in ([value] if items is None else items)]


def check_scorings(settings: Sequence[str], flags: Sequence[str]) -> None:
    """Raise SettingError for a scoring that is no file of conf/scoring, and for settings that do not go with it."""
    words = [word for word in settings if word.startswith("scoring=")]
    if not words:
        return
    scorings = _list_scorings(words[-1].partition("=")[2])
    _refuse_unknown(scorings, flags)
    if len(words) > 1 or len({*scorings}) < len(scorings):
        raise SettingError(
            f"scoring is given twice: {' '.join(words)}. Write each name once."
        )
    scoring_names = [scoring for scoring in scorings if scoring != _PAIRWISE]
    for setting in settings if scoring_names else ():
        key = setting.partition("=")[0].lstrip("+")
        if key == "rubric" and _PAIRWISE not in scorings:
            raise SettingError(
                f"scoring={','.join(scoring_names)} compares no pairs, so {shorten_word(setting)} has no effect. Leave it "
                "out, or compare pairs as well:",
                f"  'scoring=[{_PAIRWISE},{','.join(scoring_names)}]'",
            )
        group, _, field = key.partition(".")
        if (
            group == "scoring"
            and field
            and field.partition(".")[0] not in scoring_names
        ):
            raise SettingError(
                f"{shorten_word(setting)} does not say of which scoring it is a setting. Write:",
                f"  {setting.replace('scoring.', f'scoring.{scoring_names[0]}.', 1)}",
            )


def _refuse_unknown(scorings: Sequence[str], flags: Sequence[str]) -> None:
    if len(scorings) == 1 and "," in scorings[0]:
        raise SettingError(
            f"Several scorings are a list in brackets; got {shorten_word(scorings[0])}. Write:",
            f"  'scoring=[{scorings[0]}]'",
        )
    options = [_PAIRWISE, *sorted(list_options("scoring", flags))]
    for scoring in scorings or [""]:
        if scoring not in options:
            near = next(iter(difflib.get_close_matches(scoring, options, n=1)), "score")
            raise SettingError(
                f"scoring must be one of {', '.join(options)}, or several in a list; got {shorten_word(scoring) or 'none'}. "
                "Did you mean:",
                f"  scoring={near}",
            )
