"""What `rate` takes for many battles, as a whole command in a fresh process, against `json.loads` of the same battles.

    python -m tests.benchmarks.bench_rate            # all lines
    python -m tests.benchmarks.bench_rate 10000000   # so many battles of 20 models, once

Processor time of a process and its children, with five permutations, no bootstrap and no figures: of recognising and
reading the file alone (less the imports), and of the whole command, each the median of three runs in turns with
`json.loads` of every line of the same battles in plain Python, and as a multiple of this; and the most memory that the
process took. The acceptance: reading a million at most .7 times (csv .5, parquet .4), the command 2.2 times with 20
models, 3 with 300, 1.8 from parquet, and 450 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

REPEATS = 3
SETTINGS = ("tracker=local", "figures=false", "elo.n_perms=5", "elo.n_bootstraps=0")
READ = (
    "from pathlib import Path\n"
    "from elo_exp.data import battle_columns, battle_files\n"
    "columns = {name: name for name in battle_columns.FIELDS if name != 'score'}\n"
    "battle_files.read(Path('FILE'), columns=columns, filters={})"
)
IMPORT = ("-c", READ.partition("columns")[0])
PARSE = "import json\nfor line in open('FILE'): json.loads(line)"
LINES = (  # battles, models, the file's kind
    (200, 5, "jsonl"),
    (1_000_000, 20, "jsonl"),
    (1_000_000, 20, "csv"),
    (1_000_000, 20, "parquet"),
    (1_000_000, 300, "jsonl"),
    (10_000, 300, "jsonl"),
)


@dataclass(frozen=True)
class Used:
    """By a process: seconds of processor time and megabytes of memory at most."""

    seconds: float
    megabytes: float


def write_many(path: Path, n: int, m: int) -> None:
    """n battles of m models, five on each question."""
    rng = np.random.default_rng(0)
    theta = np.linspace(1, -1, m)
    a = rng.integers(m, size=n)
    b = (a + rng.integers(1, m, size=n)) % m
    won = rng.random(n) < 1 / (1 + np.exp(theta[b] - theta[a]))
    winner = np.where(rng.random(n) < 0.15, "tie", np.where(won, "model_a", "model_b"))
    question = rng.integers(n // 5, size=n)
    columns = (a.tolist(), b.tolist(), winner.tolist(), question.tolist())
    with path.open("w", encoding="utf-8") as file:
        for i, j, word, q in zip(*columns, strict=True):
            row = {
                "model_a": f"model-{i:03d}",
                "model_b": f"model-{j:03d}",
                "winner": word,
                "question_id": f"q{q}",
            }
            file.write(json.dumps(row) + "\n")


def write(path: Path, n: int, m: int) -> None:
    """Write a file of battles of the kind that its name says, and as JSON lines beside it, where they are not there."""
    text = path.with_suffix(".jsonl")
    if not text.is_file():
        write_many(text, n, m)
    if not path.is_file():
        duckdb.execute(f"copy (from read_json('{text}')) to '{path}'")


def used(*arguments: str, folder: Path) -> Used:
    """What a Python process with an empty home uses."""
    path = {"HOME": str(folder), "PYTHONPATH": str(Path.cwd())}
    running = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | path | {"OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, code, rusage = os.wait4(running.pid, 0)
    assert code == 0
    kilobytes = rusage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Used(rusage.ru_utime + rusage.ru_stime, kilobytes / 1024)


def show(n: int, m: int, kind: str, *, folder: Path, repeats: int) -> None:
    """Print the line of one file."""
    file = folder / f"many_{n}_{m}.{kind}"
    # In a process of its own: a program is said to have had the memory of the one that began it
    writing = get_context("spawn").Process(target=write, args=(file, n, m))
    writing.start()
    writing.join()
    parse = PARSE.replace("FILE", file.with_suffix(".jsonl").name)
    rounds = [
        (
            used("-c", parse, folder=folder).seconds,
            used(*IMPORT, folder=folder).seconds,
            used("-c", READ.replace("FILE", file.name), folder=folder),
            used("-m", "elo_exp", file.name, *SETTINGS, folder=folder),
        )
        for _ in range(repeats)
    ]
    parsing = median(one[0] for one in rounds)
    reading = median(one[2].seconds - one[1] for one in rounds)
    command = median(one[3].seconds for one in rounds)
    cells = [
        f"{parsing:>7.2f} s",
        f"{reading:>8.2f} s{_times(reading, parsing, n)}",
        f"{max(one[2].megabytes for one in rounds):>6.0f} MB",
        f"{command:>8.2f} s{_times(command, parsing, n)}",
        f"{max(one[3].megabytes for one in rounds):>6.0f} MB",
    ]
    print(f"  {f'{n:,} of {m}, {kind}':<26}{''.join(cells)}", flush=True)


def _times(seconds: float, parsing: float, n: int) -> str:
    """Of few battles plain parsing takes no time worth a ratio."""
    return f"{seconds / parsing:>6.2f}" if n >= 1_000_000 else f"{'-':>6}"


def main() -> None:
    print(
        f"  {'battles':<26}{'json':>9}{'reading':>10}{'times':>6}{'memory':>9}"
        f"{'command':>10}{'times':>6}{'memory':>9}"
    )
    given = [(int(sys.argv[1]), 20, "jsonl")] if sys.argv[1:] else LINES
    with tempfile.TemporaryDirectory() as name:
        for n, m, kind in given:
            repeats = REPEATS if n <= 1_000_000 else 1
            show(n, m, kind, folder=Path(name), repeats=repeats)


if __name__ == "__main__":
    main()
