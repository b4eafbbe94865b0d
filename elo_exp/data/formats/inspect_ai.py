"""inspect_ai: the scores in a log of one model on one task, .eval or .json (src/inspect_ai/scorer/_metric.py)."""

import logging
from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import inspect_log
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score

logger = logging.getLogger(__name__)

_WORDS = {"C": 1, "P": 0.5, "I": 0, "N": 0, "YES": 1, "TRUE": 1, "NO": 0, "FALSE": 0}


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each scorer's value of each sample, missing where it was not scored or is void.

    A scorer of several values has each of them as a scorer.
    """
    log = inspect_log.read(path)
    if log.status != "success":
        logger.warning("%s: the status of the log is %s", path, log.status)
    found = [
        (one.row["id"], one.row["epoch"], one.row.get("metadata"), one.valid_scores)
        for one in log.samples()
    ]
    scorers = dict.fromkeys(name for *_, own in found for name in own)
    for item, epoch, metadata, own in found:
        for scorer in [metric] if metric else scorers:
            value = own.get(scorer)
            yield Score(
                dimension=f"{log.task} {scorer}",
                entrant=log.model,
                item=item,
                draw=epoch,
                value=_WORDS.get(str(value).upper(), value),
                columns=metadata,
            )


FORMATS = (
    Format(
        name="inspect_ai",
        shapes=("zip", "object"),
        required=("samples",),
        scores=scores,
        has_answers=True,
        assumes="epochs of a sample are averaged",
    ),
)
