"""deepeval: a test run with the metrics of each test case.

github.com/confident-ai/deepeval, deepeval/test_run/test_run.py
"""

from collections.abc import Iterator
from pathlib import Path

from elo_exp import files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield the score of each metric of each test case. An item is a test case's input."""
    for case in files.read_json(path)["testCases"]:
        for measured in case.get("metricsData") or ():
            if metric in (None, measured["name"]):
                yield Score(
                    dimension=measured["name"],
                    entrant=path.stem,
                    item=case["input"],
                    value=measured.get("score"),
                    columns={"name": case.get("name")},
                )


FORMATS = (
    Format(
        name="deepeval",
        shapes=("object",),
        required=("testCases",),
        scores=scores,
        assumption="the file names the entrant",
    ),
)
