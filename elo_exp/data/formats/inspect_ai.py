"""inspect_ai: a log of one model on one task, .eval or .json (src/inspect_ai/scorer/_metric.py)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from elo_exp import files
from elo_exp.data import tables
from elo_exp.data.formats import ScoresFormat
from elo_exp.data.scores import Score

logger = logging.getLogger(__name__)

_WORDS = {"C": 1, "P": 0.5, "I": 0, "N": 0, "YES": 1, "TRUE": 1, "NO": 0, "FALSE": 0}


def rows(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield each scorer's value of each sample, missing where it was not scored or had an error."""
    if tables.shape(path) == "zip":
        with ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        log = json.loads(content.get("header.json") or content["_journal/start.json"])
        samples = [
            json.loads(text)
            for name, text in content.items()
            if name.startswith("samples/")
        ]
    else:
        log = files.read_json(path)
        samples = log["samples"]
    if log.get("status") != "success":
        logger.warning("%s: the status of the log is %s", path, log.get("status"))
    values = [dict(_values(sample)) for sample in samples]
    scorers = dict.fromkeys(name for own in values for name in own)
    for sample, own in zip(samples, values, strict=True):
        for scorer in [metric] if metric else scorers:
            yield Score(
                dimension=f"{log['eval']['task']} {scorer}",
                entrant=log["eval"]["model"],
                item=sample["id"],
                draw=sample["epoch"],
                value=own.get(scorer),
                columns=sample.get("metadata"),
            )


def _values(sample: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values by scorer, and by key of those that give several."""
    scores = {} if sample.get("error") else sample.get("scores") or {}
    for scorer, score in scores.items():
        value = score["value"]
        several = value if isinstance(value, dict) else {"": value}
        for key, one in several.items():
            yield f"{scorer} {key}".rstrip(), _WORDS.get(str(one).upper(), one)


FORMATS = (
    ScoresFormat(
        name="inspect_ai",
        shapes=("zip", "object"),
        required=("samples",),
        read=rows,
        assumes="epochs of a sample are averaged",
    ),
)
