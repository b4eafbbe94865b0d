"""What agents did for their answers, as their logs say it: reported beside the ratings, and never fitted.

To adjust a rating for what an agent does would take away part of what is asked: an agent that wins because it looks things
up is one that wins.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from elo_exp.data import conversations, trajectories
from elo_exp.records import Response

_MEASURED = ("tokens", "seconds")  # of diagnostics


def effort(responses: Mapping[str, Iterable[Response]]) -> list[dict[str, Any]]:
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
    given = {name: list(some) for name, some in responses.items()}
    if not any("calls" in one.diagnostics for some in given.values() for one in some):
        return []
    return [{"model": name, **_means(some)} for name, some in given.items()]


def _means(responses: list[Response]) -> dict[str, Any]:
    done = [trajectories.effort(conversations.said(one)) for one in responses]
    own = [one.diagnostics.get("scores") or {} for one in responses]
    names = dict.fromkeys(name for scores in own for name in scores)
    return {
        "n": len(responses),
        **{key: _mean(one[key] for one in done) for key in ("steps", "calls")},
        **{
            key: _mean(one.diagnostics.get(key) for one in responses)
            for key in _MEASURED
        },
        "scores": {name: _mean(scores.get(name) for scores in own) for name in names},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
