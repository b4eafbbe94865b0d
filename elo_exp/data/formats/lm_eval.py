"""lm-evaluation-harness: samples of one model on one task, MODEL/samples_TASK_TIME.jsonl.

github.com/EleutherAI/lm-evaluation-harness, lm_eval/loggers/evaluation_tracker.py
"""

import re
from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import table_files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score

_FILE_NAME = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT.*)?\.jsonl(\.gz)?")


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield one metric: acc, else exact_match, else the first of `metrics`; a filter is a dimension.

    A metric of a whole corpus has parts in each row, which are no score.
    """
    name = _FILE_NAME.fullmatch(path.name)
    task, model = name[1] if name else path.stem, path.resolve().parent.name
    for _, row in table_files.read_rows(path):
        metrics = [m for m in ("acc", "exact_match") if m in row] or row["metrics"]
        metric_name = metric or metrics[0]
        yield Score(
            dimension=f"{task} {metric_name}, filter {row.get('filter')}",
            entrant=model,
            item=f"{row['doc_id']} {row.get('doc_hash', '')}",
            value=row[metric_name],
            columns=row["doc"],
        )


FORMATS = (
    Format(
        name="lm_eval",
        shapes=("lines",),
        required=("doc_id", "doc", "target", "filtered_resps"),
        scores=scores,
        has_answers=True,
        assumption="model and task by the path; one doc_id and doc_hash is one item",
    ),
    Format(
        name="lm_eval's totals",
        shapes=("object",),
        required=("results", "versions", "n-shot"),
        remedy="Give the samples_*.jsonl that lm_eval writes with --log_samples.",
    ),
)
