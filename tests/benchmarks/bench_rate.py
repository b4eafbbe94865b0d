"""What `experiment=rate` takes for many battles, as a whole command in a fresh process.

    python -m tests.benchmarks.bench_rate

A million battles of 20 models and 10,000 of 300, with five permutations, no bootstrap and no
figures: the processor time of the command as a multiple of what `json.loads` takes for the lines in
plain Python (at most 6 for the million), and its memory (at most 700 MB); before it, the same of
recognising and reading the file alone (at most 2). Each the fastest of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BATTLES = {"1,000,000 of 20": (1_000_000, 20), "10,000 of 300": (10_000, 300)}
REPEATS = 3
SETTINGS = ("tracker=local", "figures=false", "elo.n_perms=5", "elo.n_bootstraps=0")
RATE = ("-m", "elo_exp", "experiment=rate", "battles=many.jsonl", *SETTINGS)
READ = (
    "-c",
    "from pathlib import Path\n"
    "from elo_exp.data import battle_files\n"
    "columns = {name: name for name in battle_files.NAMES[:-2]}\n"
    "battle_files.read(Path('many.jsonl'), columns=columns, filters={})",
)
IMPORT = ("-c", "import elo_exp.data.battle_files")
PARSE = ("-c", "import json\nfor line in open('many.jsonl'): json.loads(line)")


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


def measure(*arguments: str, folder: Path) -> tuple[float, float]:
    """Seconds of processor time and megabytes of a Python process with an empty home."""
    path = {"HOME": str(folder), "PYTHONPATH": str(Path.cwd())}
    running = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | path | {"OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, code, used = os.wait4(running.pid, 0)
    assert code == 0
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return used.ru_utime + used.ru_stime, kilobytes / 1024


def main() -> None:
    print(
        "  battles              reading  times  command   json.loads   times   memory"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, (n, m) in BATTLES.items():
            write_many(folder / "many.jsonl", n, m)
            took, memory = min(measure(*RATE, folder=folder) for _ in range(REPEATS))
            parsing, _ = min(measure(*PARSE, folder=folder) for _ in range(REPEATS))
            importing, _ = min(measure(*IMPORT, folder=folder) for _ in range(REPEATS))
            reading = min(measure(*READ, folder=folder)[0] for _ in range(REPEATS))
            reading -= importing
            read = f"{reading:>9.2f} s{reading / parsing:>5.1f}"
            ratio = f"{took / parsing:>8.1f}{memory:>6.0f} MB"
            print(f"  {size:<19}{read}{took:>7.1f} s{parsing:>11.2f} s{ratio}")


if __name__ == "__main__":
    main()
