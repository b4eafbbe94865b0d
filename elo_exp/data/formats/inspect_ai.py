"""inspect_ai: the scores in a log of one model on one task, .eval or .json."""

import logging
from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import inspect_log
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score

logger = logging.getLogger(__name__)


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each scorer's value of each sample, missing where it was not scored or is void.

    A scorer of several values has each of them as a scorer.
    """
    log = inspect_log.read_log(path)
    if log.status != "success":
        logger.warning("%s: the status of the log is %s", path, log.status)
    samples = [
        (
            sample.row["id"],
            sample.row["epoch"],
            sample.row.get("metadata"),
            sample.scores,
        )
        for sample in log.samples()
    ]
    scorers = dict.fromkeys(
        name for *_, sample_scores in samples for name in sample_scores
    )
    for item, epoch, metadata, sample_scores in samples:
        for scorer in [metric] if metric else scorers:
            yield Score(
                dimension=f"{log.task} {scorer}",
                entrant=log.model,
                item=item,
                draw=epoch,
                value=sample_scores.get(scorer),
                columns=metadata,
            )


FORMATS = (
    Format(
        name="inspect_ai",
        shapes=("zip", "object"),
        required=("samples",),
        scores=scores,
        has_answers=True,
        assumption="epochs of a sample are averaged",
    ),
)
