"""OpenAI evals: the log of one model on one eval, a line for each event.

github.com/openai/evals, evals/record.py
"""

from collections.abc import Iterator
from pathlib import Path

from elo_exp.data import table_files
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Source


def find_faults(path: Source, keys: set[str]) -> list[str]:
    """Return what a file lacks to be such a log."""
    if "spec" not in keys:
        return []
    _, row = next(table_files.read_rows(path), ("", {}))
    spec = row.get("spec")
    if isinstance(spec, dict) and "completion_fns" in spec:
        return []
    return ["lacks spec.completion_fns"]


def scores(path: Path, metric: str | None) -> Iterator[Score]:
    """Yield whether each sample matches, or one number of its metrics."""
    spec = dict[str, object]()
    for _, row in table_files.read_rows(path):
        if "spec" in row:
            spec = row["spec"]
            continue
        kind, data = row.get("type"), row.get("data")
        if kind not in ("match", "metrics") or not isinstance(data, dict):
            continue
        name = metric or ("correct" if kind == "match" else next(iter(data), ""))
        if name not in data:
            continue
        models = spec["completion_fns"]
        assert isinstance(models, list)
        yield Score(
            dimension=f"{spec.get('base_eval') or spec.get('eval_name')} {name}",
            entrant=", ".join(map(str, models)),
            item=row["sample_id"],
            value=float(data[name]),
        )


FORMATS = (
    Format(
        name="OpenAI evals",
        shapes=("lines",),
        required=("spec",),
        find_faults=find_faults,
        scores=scores,
        assumption="a match is 1, and battles_metric=NAME takes another number of an event",
    ),
)
