"""What `experiment=rate` takes as a whole command, beside importing the modules that it uses.

    python -m tests.benchmarks.bench_rate

A file of headline size, 858 battles in each of three dimensions, rated in a fresh process; then a process that does
nothing but import the same modules. Seconds of processor time and by the clock, each the fastest of the repeats, with
figures and reports and all that is written; the time of drawing figures is a part of it, and shown by itself.

Machines differ, and one machine from minute to minute. What is over the imports is therefore also said in seconds of a
machine on which plain Python plays an Elo match in a quarter of a microsecond, as in the figures behind the targets:
each repeat by the matches that are played right after it, of the repeats the middle one.

Then a million battles of 20 models, with five permutations, no bootstrap and no figures: the processor time of the
command as a multiple of what `json.loads` takes for the lines in plain Python (at most 6), and its memory (at most
700 MB); and 10,000 battles of 300 models.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from elo_exp.files import write_jsonl
from tests.benchmarks.bench_elo import games, plain_sweep
from tests.data import DIMENSIONS
from tests.simulation import Tournament

N_PROMPTS = 143
REPEATS = 7
TRACKERS = ("local", "wandb")
A_MATCH = 0.25e-6  # seconds in plain Python on that machine
# The command, leaving behind what it imported, and the processor time and the seconds of its figures.
COMMAND = """
import json, runpy, sys, time
from elo_exp.figures import elo, ratings
took = [0.0, 0.0]
def timed(draw):
    def plots(*arguments):
        before = time.process_time(), time.perf_counter()
        drawn = draw(*arguments)
        took[0] += time.process_time() - before[0]
        took[1] += time.perf_counter() - before[1]
        return drawn
    return plots
for module in (elo, ratings):
    module.plots = timed(module.plots)
note = sys.argv.pop(1)
try:
    runpy.run_module("elo_exp", run_name="__main__", alter_sys=True)
except SystemExit:
    pass
with open(note, "w") as file:
    json.dump({"modules": list(sys.modules), "figures": took}, file)
"""
IMPORTS = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
for name in json.load(open(sys.argv[1]))["modules"]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # made at run time
"""


@dataclass(frozen=True)
class Took:
    processor: float
    clock: float

    def __sub__(self, other: Took) -> Took:
        return Took(self.processor - other.processor, self.clock - other.clock)

    def fastest(self, other: Took) -> Took:
        return Took(min(self.processor, other.processor), min(self.clock, other.clock))


def write_battles(path: Path) -> None:
    rows = [
        battle.to_dict()
        for seed, dimension in enumerate(DIMENSIONS)
        for battle in Tournament().battles(
            N_PROMPTS, np.random.default_rng(seed), dimension=dimension
        )
    ]
    write_jsonl(path, rows)


def run(program: str, *arguments: str, folder: Path) -> Took:
    """A program in a process of its own, with an empty home and no Weights & Biases settings."""
    dropped = ("WANDB_", "HYDRA_", "PYTHONDONTWRITEBYTECODE")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(dropped)
    }
    environment = kept | {
        "HOME": str(folder),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(Path.cwd()),
    }
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    clock, after = (
        time.perf_counter() - start,
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return Took(
        after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, clock
    )


LARGE = {
    "1,000,000 of 20": (1_000_000, 20),
    "10,000 of 300": (10_000, 300),
}  # battles of models
PARSE = "import json, sys\nfor line in open(sys.argv[1]): json.loads(line)"
RATE = """
import resource, runpy, sys
note = sys.argv.pop(1)
try:
    runpy.run_module("elo_exp", run_name="__main__", alter_sys=True)
except SystemExit:
    pass
with open(note, "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


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
            }
            file.write(json.dumps({**row, "question_id": f"q{q}"}) + "\n")


def large(folder: Path) -> None:
    print("\n  battles              command   json.loads   times   memory")
    settings = [
        "experiment=rate",
        "tracker=local",
        "figures=false",
        "battles=many.jsonl",
    ]
    settings += ["elo.n_perms=5", "elo.n_bootstraps=0"]
    for name, (n, m) in LARGE.items():
        write_many(folder / "many.jsonl", n, m)
        whole = parsing = Took(float("inf"), float("inf"))
        for _ in range(3):
            whole = whole.fastest(run(RATE, "memory", *settings, folder=folder))
            parsing = parsing.fastest(run(PARSE, "many.jsonl", folder=folder))
        megabytes = int((folder / "memory").read_text()) / 1024
        times = whole.processor / parsing.processor
        print(
            f"  {name:<19}{whole.processor:>7.1f} s{parsing.processor:>11.1f} s{times:>8.1f}{megabytes:>6.0f} MB"
        )


def a_match() -> float:
    """Seconds that plain Python takes here and now for one match of Elo, shuffled."""
    played, n_perms = [games(858, np.random.default_rng(0))], 200
    start = time.perf_counter()
    plain_sweep(played, n_perms, ks=(16.0,))
    return (time.perf_counter() - start) / (858 * n_perms)


def main() -> None:
    print(
        "                            whole            imports             figures    over the imports   there"
    )
    print(
        "  tracker         processor clock    processor clock    processor clock    processor clock   seconds"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_battles(folder / "battles.jsonl")
        for tracker in TRACKERS:
            note = str(folder / f"{tracker}.json")
            settings = [
                "experiment=rate",
                "battles=battles.jsonl",
                "battles_columns.dimension=dimension",
            ]
            nothing = Took(float("inf"), float("inf"))
            whole = imports = figures = nothing
            there, matches = [], []
            for _ in range(REPEATS + 1):  # the first looks for the fonts of the machine
                command = run(
                    COMMAND, note, *settings, f"tracker={tracker}", folder=folder
                )
                nothing_but = run(IMPORTS, note, folder=folder)
                matches.append(a_match())
                there.append((command - nothing_but).clock * A_MATCH / matches[-1])
                whole, imports = whole.fastest(command), imports.fastest(nothing_but)
                figures = figures.fastest(
                    Took(*json.loads(Path(note).read_text(encoding="utf-8"))["figures"])
                )
            found = [whole, imports, figures, whole - imports]
            columns = "".join(
                f"{took.processor:>13.2f}{took.clock:>6.2f}" for took in found
            )
            print(
                f"  {tracker:<12}{columns}{median(there):>10.2f}   {median(matches) * 1e6:.2f} us a match"
            )
        large(folder)


if __name__ == "__main__":
    main()
