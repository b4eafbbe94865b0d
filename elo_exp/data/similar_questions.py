"""Questions that differ by little, such as by a space or a full stop, in files that share none."""

import difflib
from collections.abc import Mapping, Sequence

from elo_exp.data.field_names import fold_spaces
from elo_exp.formatting import shorten

_MAX_QUESTIONS_COMPARED = 200
_MIN_SIMILARITY = 0.8
_MAX_QUESTION_CHARACTERS = 70


def shorten_question(text: str) -> str:
    """Return the beginning of a question, quoted."""
    return repr(shorten(fold_spaces(text), _MAX_QUESTION_CHARACTERS))


def describe_closest_questions(
    questions_by_entrant: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return lines with the two most similar questions of the first two entrants; none if no two are alike."""
    if len(questions_by_entrant) < 2:
        return []
    (name_a, texts_a), (name_b, texts_b), *_ = questions_by_entrant.items()
    similarity, text_a, text_b = max(
        (
            (_compare_texts(text_a, text_b), text_a, text_b)
            for text_a in texts_a[:_MAX_QUESTIONS_COMPARED]
            for text_b in texts_b[:_MAX_QUESTIONS_COMPARED]
        ),
        key=lambda pair: pair[0],
        default=(0.0, "", ""),
    )
    if not similarity:
        return []
    return [
        "  The closest two questions differ:",
        f"    {name_a}: {shorten_question(text_a)}",
        f"    {name_b}: {shorten_question(text_b)}",
    ]


def _compare_texts(text_a: str, text_b: str) -> float:
    """Return how similar two texts are, from 0 to 1; 0 if they are clearly different."""
    matcher = difflib.SequenceMatcher(
        None, fold_spaces(text_a).casefold(), fold_spaces(text_b).casefold()
    )
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < _MIN_SIMILARITY:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= _MIN_SIMILARITY else 0.0
