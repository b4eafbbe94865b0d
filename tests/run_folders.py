"""Run folders that no run wrote: whole ones, damaged in one place by a seed, and all that reads a run folder.

`damaged` spoils a file of a folder and `readers` are the programs that may meet it: each ends in what it concludes or in a
UserError of one line.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import elo_exp
from elo_exp.errors import UserError
from elo_exp.experiments.compare import Compare, compare_runs
from elo_exp.experiments.export import iterate_verdicts
from elo_exp.experiments.label import LabelByPeople, LabelJudgingOptions
from elo_exp.experiments.label_pages import LabelSettings
from elo_exp.experiments.rate import Rate
from elo_exp.files import write_json, write_jsonl
from elo_exp.report import compare_page, page, sweep_report
from elo_exp.runs.reading import read_runs
from tests.data import shipped
from tests.people_worlds import BRADLEY_TERRY

READ = (  # of a run folder, by whatever reads one
    *("manifest.json", "ratings.json", "battles.jsonl", "battles.parquet"),
    *("estimates.json", "influences.json", "gate.json", "audit.json"),
    *("matches/matches.jsonl", "labels/key.json"),
)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 0.5, "", "x", "7", [], {}, [[]], [None], {"x": None}),
    *(10**400, 1e308, -1e308, float("nan"), float("inf"), "\ud800", "\x1b[31m", "a\0b"),
    *(["model_a"], {"_target_": "os.system"}, "${oc.env:HOME}", "../../x", "x" * 300),
)


def damaged(folder: Path, seed: int) -> str:
    """Spoil one file of a run folder, and say which and how."""
    rng = random.Random(seed)
    answers = sorted(folder.glob("responses/*.jsonl"))
    files = [folder / name for name in READ if (folder / name).is_file()] + answers[:1]
    path = rng.choice(files)
    if path.suffix == ".json" and rng.random() < 0.85:
        content = json.loads(path.read_text(encoding="utf-8"))
        how = spoilt(content, rng)
        text = json.dumps(content)
        if rng.random() < 0.02:
            text = "[" * 300 + text + "]" * 300
    elif path.suffix == ".jsonl" and rng.random() < 0.7:
        lines = path.read_text(encoding="utf-8").splitlines()
        number = rng.randrange(len(lines))
        row = json.loads(lines[number])
        how = f"line {number + 1}, {spoilt(row, rng)}"
        lines[number] = json.dumps(row)
        text = "\n".join(lines)
    else:
        whole = bytearray(path.read_bytes())
        at, n = rng.randrange(len(whole)), rng.choice((1, 4, 1000, len(whole)))
        whole[at : at + n] = rng.randbytes(rng.choice((0, 1, 40)))
        path.write_bytes(whole)
        return f"{path.name}: other bytes at {at}"
    path.write_text(text, encoding="utf-8")
    return f"{path.name}: {how}"


def spoilt(content: Any, rng: random.Random, values: Sequence[Any] = ODD) -> str:
    """Replace or remove one value, anywhere in a document."""
    places: list[tuple[Any, Any, str]] = []
    left = [(content, "")]
    while left:
        node, name = left.pop()
        keys = [*node] if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key, f"{name}.{key}"))
            if isinstance(node[key], dict | list):
                left.append((node[key], f"{name}.{key}"))
    # Lists are long and alike: each depth has its share
    depth = rng.choice(sorted({name.count(".") for _, _, name in places}))
    node, key, name = rng.choice([p for p in places if p[2].count(".") == depth])
    if rng.random() < 0.2:
        del node[key]
        return f"{name} removed"
    node[key] = rng.choice(values)
    return f"{name} = {node[key]!r:.40}"


def readers(folder: Path, whole: Path, out: Path) -> Mapping[str, Callable[[], object]]:
    """What reads a run folder, by name; `whole` is another, to compare with, and `out` an empty folder."""

    def sweep() -> object:
        shutil.copytree(whole, out / "sweep/0")
        shutil.copytree(folder, out / "sweep/1")
        return sweep_report.write_sweep_report(out / "sweep")

    def opened() -> object:
        run = elo_exp.open_run(folder)
        _ = run.headline, repr(run), run._repr_html_(), run.text
        for name in (
            *("conclusions", "leaderboard", "ratings", "differences", "battles"),
            *("verdicts", "responses"),
        ):
            try:
                repr(getattr(run, name))
            except UserError as error:
                one_line(error)
        return run.probes

    return {
        "compare": lambda: _compared(whole, folder, out),
        "compared with": lambda: _compared(folder, whole, out),
        "runs": lambda: _comparison(whole, folder).input_files,
        "sweep": sweep,
        "open_run": opened,
        "ratings_from": lambda: Rate.prepare(
            {
                "ratings_from": str(folder),
                "elo": {},
                "battles_columns": {},
                "columns": {},
            }
            | {"rating": {"bradley_terry": {}}},
            [],
        ),
        "label": lambda: _labelled(folder),
        "export": lambda: [
            list(iterate_verdicts(battles))
            for battles in read_runs([str(folder)])[0][0].battles().values()
        ],
    }


def _labelled(folder: Path) -> object:
    """The page that people label, and labels of it read back."""
    path = label_all(folder)
    return replace(_label_experiment(folder), labels=[str(path)]).check_files()


def _label_experiment(folder: Path) -> LabelByPeople:
    settings = LabelSettings(
        dimension=None, half_width=100.0, n=200, annotators=1, overlap=0.0, seed=0
    )
    return LabelByPeople(
        folder=str(folder),
        labels=[],
        columns={},
        label=settings,
        judging=LabelJudgingOptions(orders="both"),
        elo=shipped("elo", "default", n_perms=2),
        rating={"bradley_terry": BRADLEY_TERRY},
    )


def label_all(folder: Path) -> Path:
    """Write the label page of a run, choose the first answer of each comparison, and return the file of labels."""
    _label_experiment(folder).act(None)  # type: ignore[arg-type]
    text = (folder / "labels/label.html").read_text(encoding="utf-8")
    found = re.search(r'id="data">(.*?)</script>', text)
    data = json.loads(found[1]) if found else {}
    label = {"page": data["page"], "browser": "one", "choice": "1"}
    rows = [{**label, "id": item["id"]} for item in data["items"]]
    return write_jsonl(folder / "anna.jsonl", rows)


def _comparison(first: Path, other: Path) -> Compare:
    return Compare(runs=[str(first), str(other)], downloads="")


def _compared(first: Path, other: Path, out: Path) -> object:
    """All that `experiment=compare` makes but figures."""
    compared = _comparison(first, other)
    _ = compared.opening
    found = compare_runs(compared._readable_runs[0])
    result = compare_page.conclude_comparison(found)
    compare_page.metrics(result)
    write_json(
        out / "compare.json", {**found, "conclusions": result.list_conclusion_rows()}
    )
    page.render_document("x", compare_page.build_document(result, {}))
    return compare_page.format_console(result)


def one_line(error: UserError) -> None:
    """Check the words of a refusal."""
    assert "\n" not in error.line.strip(), error
    assert len(error.line) < 1500, error
