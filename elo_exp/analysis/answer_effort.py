"""What agents did for their answers, as their logs say it: reported beside the ratings, and never fitted.

To adjust a rating for what an agent does would take away part of what is asked: an agent that wins because it looks things
up is one that wins.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from elo_exp.data import conversations, recorded_work
from elo_exp.records import Response

_DIAGNOSTICS = ("tokens", "seconds")


def average_effort(responses: Mapping[str, Iterable[Response]]) -> list[dict[str, Any]]:
    """Average what the answers of each entrant took.

    Parameters
    ----------
    responses : mapping of str to iterable of Response
        By entrant.

    Returns
    -------
    list of dict
        A row for each entrant, none where no answer is a trajectory:

        model    the entrant
        n        its answers
        steps    messages of the assistant, on average; an answer of words alone is one
        calls    of tools, on average
        tokens   on average over the answers that say it; None where none does
        seconds  likewise
        scores   the log's own, by name, likewise
    """
    answers_by_entrant = {name: list(answers) for name, answers in responses.items()}
    if not any(
        "calls" in answer.diagnostics
        for answers in answers_by_entrant.values()
        for answer in answers
    ):
        return []
    return [
        {"model": name, **_average_effort(answers)}
        for name, answers in answers_by_entrant.items()
    ]


def _average_effort(responses: list[Response]) -> dict[str, Any]:
    efforts = [
        recorded_work.count_effort(conversations.answer_messages(response))
        for response in responses
    ]
    scores_of_answers = [
        response.diagnostics.get("scores") or {} for response in responses
    ]
    names = dict.fromkeys(name for scores in scores_of_answers for name in scores)
    return {
        "n": len(responses),
        **{key: _mean(row[key] for row in efforts) for key in ("steps", "calls")},
        **{
            key: _mean(response.diagnostics.get(key) for response in responses)
            for key in _DIAGNOSTICS
        },
        "scores": {
            name: _mean(scores.get(name) for scores in scores_of_answers)
            for name in names
        },
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return fmean(known_values) if known_values else None
