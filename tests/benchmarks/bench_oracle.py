"""How long an analysis takes, how that grows with the rows, and how long cje-eval 0.3 takes.

    python -m tests.benchmarks.bench_oracle

Four policies, a quarter of the logged answers labelled, one fresh draw on each prompt. CPU seconds,
one thread. cje-eval needs other versions of its libraries than this suite: CJE_PYTHON names the
Python of an environment with it; without it that part is left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elo_exp.oracle.data import Dataset, read_dataset, split_truth_from_labels
from elo_exp.oracle.estimates import Analysis, Options, analyse
from elo_exp.oracle.grid import Grid, GridSettings
from tests.oracle_simulation import (
    NAMES,
    OPTIONS,
    World,
    estimators,
    several,
    write,
)

SIZES = (2482, 4965, 9930, 19860)
GRID_SIZES = [250, 500, 1000, 2000, 3000, 5000]
FULL = 9930  # rows of the experiment that this one follows
SHIFTS = {
    "clone": 0.0,
    "parallel_universe_prompt": 0.3,
    "premium": 0.8,
    "unhelpful": -1.5,
}
PEERS = {
    "snips": "raw-ips",
    "calibrated_ips": "calibrated-ips",
    "dr_cpo": "dr-cpo",
    "tmle": "tmle",
}
COMPAT = dataclasses.replace(OPTIONS, compat="cje-0.3")
_PEER = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore")
from cje import analyze_dataset
logging.disable(logging.CRITICAL)
for name in sys.argv[2:]:
    start = time.process_time()
    found = analyze_dataset(
        logged_data_path=f"{sys.argv[1]}/logged.jsonl",
        fresh_draws_dir=f"{sys.argv[1]}/fresh",
        estimator=name,
    )
    numbers = zip(map(float, found.estimates), map(float, found.standard_errors))
    by_policy = dict(zip(found.metadata["target_policies"], numbers))
    print(json.dumps([name, time.process_time() - start, by_policy]), flush=True)
"""


def data(n: int) -> Dataset:
    worlds = {p: World(n=n, shift=shift, style=0.3) for p, shift in SHIFTS.items()}
    return several(20260425, **worlds)


def timed(
    found: Dataset, options: Options, names: Sequence[str] = NAMES
) -> tuple[float, Analysis]:
    """The best of three."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        analysis = analyse(found, estimators(names), options)
        taken.append(time.process_time() - start)
    return min(taken), analysis


def show_growth() -> bool:
    """Print a table; whether eight times the rows take at most twelve times as long."""
    print(
        f"\n{len(SHIFTS)} policies x {len(NAMES)} estimators, all checks: CPU seconds"
    )
    print(f"  {'rows':>8}{'as shipped':>14}{'compat=cje-0.3':>18}")
    times = []
    for n in SIZES:
        found = data(n)
        times.append(timed(found, OPTIONS)[0])
        print(f"  {n:>8,}{times[-1]:>14.2f}{timed(found, COMPAT)[0]:>18.2f}")
    return times[-1] < 12 * times[0]


def show_peer(python: str) -> bool:
    """Both from the files, estimator by estimator; whether the numbers are the same to 1e-6."""
    with tempfile.TemporaryDirectory() as name:
        write(data(FULL), Path(name))
        start = time.process_time()
        found = read_dataset(f"{name}/logged.jsonl", fresh_dir=f"{name}/fresh", seed=42)
        reading = time.process_time() - start
        ran = subprocess.run(
            [python, "-c", _PEER, name, *PEERS.values()],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "HOME": name},
        )
    print(f"\n{FULL:,} rows from files, CPU seconds; reading is {reading:.2f} of ours")
    print(
        f"  {'estimator':<18}{'elo_exp':>10}{'cje-eval':>12}{'ratio':>10}{'difference':>14}"
    )
    theirs = {row[0]: row[1:] for row in map(json.loads, ran.stdout.splitlines())}
    largest = 0.0
    for ours, peer in PEERS.items():
        taken, analysis = timed(found, COMPAT, [ours])
        their_time, numbers = theirs[peer]
        off = max(
            max(abs(e.value - numbers[p][0]), abs(e.std_error - numbers[p][1]))
            for (p, _), e in analysis.estimates_by_policy.items()
        )
        largest = max(largest, off)
        taken += reading
        print(
            f"  {ours:<18}{taken:>10.2f}{their_time:>12.1f}{their_time / taken:>10.0f}{off:>14.1e}"
        )
    return largest < 1e-6


def show_grid() -> bool:
    """Print what a grid of 50 draws takes; whether sharing a draw beats estimating one by one."""
    full = dataclasses.replace(
        World(), n=2 * GRID_SIZES[-1], labelled=1.0, n_own=2 * GRID_SIZES[-1]
    )
    worlds = {p: dataclasses.replace(full, shift=shift) for p, shift in SHIFTS.items()}
    hidden, truth = split_truth_from_labels(several(1, **worlds))
    axes = GridSettings(
        sizes=GRID_SIZES,
        label_shares=[0.05, 0.1, 0.25, 0.5, 1.0],
        weights=["raw", "simcal"],
        calibrations=["monotone"],
        seeds=1,
    )
    grid = Grid(
        data=hidden,
        truth=truth,
        estimators=axes.expand_estimators(estimators(NAMES)),
        calibrations=axes.calibrations,
        options=OPTIONS,
        cells=axes.make_cells(len(hidden.prompts)),
        folder=Path(),
    )
    start = time.process_time()
    for cell in grid.cells:
        grid.estimate(cell)
    shared = time.process_time() - start
    start = time.process_time()
    for cell in grid.cells:
        drawn = cell.draw(hidden)
        for name, part in grid.estimators.items():
            analyse(drawn, {name: part}, OPTIONS)
    alone = time.process_time() - start
    print(
        f"\ngrid: {len(SHIFTS)} policies x {len(NAMES)} estimators x {len(GRID_SIZES)} sizes x 5 shares "
        f"x 2 weights x 50 draws: {50 * shared:.0f} CPU seconds, {25 * shared:.0f} on two cores;\n"
        f"  one estimator at a time takes {alone / shared:.1f} times that"
    )
    return alone > shared


def main() -> int:
    print(f"python {platform.python_version()}, numpy {np.__version__}, 1 thread used")
    good = show_growth() and show_grid()
    if python := os.environ.get("CJE_PYTHON"):
        good = show_peer(python) and good
    else:
        print("\ncje-eval left out: CJE_PYTHON names no Python that has cje-eval 0.3")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
