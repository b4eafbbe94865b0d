"""inspect_ai: a log of one model on one task, .eval or .json (src/inspect_ai/scorer/_metric.py)."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from elo_exp import files
from elo_exp.data import tables
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score

logger = logging.getLogger(__name__)

_WORDS = {"C": 1, "P": 0.5, "I": 0, "N": 0, "YES": 1, "TRUE": 1, "NO": 0, "FALSE": 0}


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each scorer's value of each sample, missing where it was not scored or had an error.

    A scorer of several values has each of them as a scorer.
    """
    if tables.shape(path) == "zip":
        with ZipFile(path) as archive:
            every = {
                name: json.loads(archive.read(name)) for name in archive.namelist()
            }
        log = every.get("header.json") or every["_journal/start.json"]
        samples = [part for name, part in every.items() if name.startswith("samples/")]
    else:
        log = files.read_json(path)
        samples = log["samples"]
    if log.get("status") != "success":
        logger.warning("%s: the status of the log is %s", path, log.get("status"))
    found = []
    for sample in samples:
        own: dict[str, Any] = {}
        for name, score in (sample.get("scores") or {}).items():
            value = score["value"]
            several = value if isinstance(value, dict) else {"": value}
            own |= {f"{name} {key}".rstrip(): one for key, one in several.items()}
        found.append({} if sample.get("error") else own)
    scorers = dict.fromkeys(name for own in found for name in own)
    for sample, own in zip(samples, found, strict=True):
        for scorer in [metric] if metric else scorers:
            value = own.get(scorer)
            yield Score(
                dimension=f"{log['eval']['task']} {scorer}",
                entrant=log["eval"]["model"],
                item=sample["id"],
                draw=sample["epoch"],
                value=_WORDS.get(str(value).upper(), value),
                columns=sample.get("metadata"),
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
