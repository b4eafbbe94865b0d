"""SWE-bench: the report of one run, with the ids of the instances that were resolved.

github.com/SWE-bench/SWE-bench, swebench/harness/reporting.py
"""

from collections.abc import Iterator
from pathlib import Path

from elo_exp import files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score


def scores(path: Path, _: str | None) -> Iterator[Score]:
    """Yield 1 for each submitted instance that was resolved, and 0 for each other one."""
    report = files.read_json(path)
    resolved_ids = {*report["resolved_ids"]}
    for instance in report["submitted_ids"]:
        yield Score(
            dimension="resolved",
            entrant=path.name.removesuffix(".json"),
            item=instance,
            value=float(instance in resolved_ids),
            columns={"repository": str(instance).rpartition("-")[0]},
        )


FORMATS = (
    Format(
        name="SWE-bench",
        shapes=("object",),
        required=("submitted_ids", "resolved_ids"),
        scores=scores,
        assumption="an instance that was submitted and not resolved scores 0, and the file names the model",
    ),
)
