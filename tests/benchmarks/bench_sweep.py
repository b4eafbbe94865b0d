"""What a job of a sweep over K and the number of match orders takes over the first one.

    python -m tests.benchmarks.bench_sweep

100 jobs in one process on the judged demo, and one job alone, each in a new folder with an empty store: the difference
is shared out among 99 jobs. Seconds of processor time and by the clock, with everything that a job of a sweep writes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
N_PERMS = (10, 20, 50, 100, 150, 200, 250, 300, 400, 500)
TRACKERS = ("local", "wandb")


def main() -> None:
    for tracker in TRACKERS:
        with tempfile.TemporaryDirectory() as folder:
            alone, _ = sweep(
                Path(folder) / "alone", tracker, ks=KS[:1], n_perms=N_PERMS[-1:]
            )
            took, calls = sweep(Path(folder) / "sweep", tracker, ks=KS, n_perms=N_PERMS)
        n_more = len(calls) - 1
        each = [
            (long - short) / n_more for long, short in zip(took, alone, strict=True)
        ]
        print(
            f"tracker={tracker}: {n_more + 1} jobs; each over the first {each[0]:.2f} s of processor time, "
            f"{each[1]:.2f} s by the clock; judge calls {calls[0]:,} in the first, {sum(calls[1:])} in the others"
        )


def sweep(
    folder: Path, tracker: str, *, ks: tuple[int, ...], n_perms: tuple[int, ...]
) -> tuple[tuple[float, float], list[int]]:
    """Seconds of processor time and by the clock; the judge calls of each job."""
    folder.mkdir()
    axes = [
        f"elo.k={','.join(map(str, ks))}",
        f"elo.n_perms={','.join(map(str, n_perms))}",
    ]
    command = [
        sys.executable,
        "-m",
        "elo_exp",
        "-m",
        *axes,
        f"tracker={tracker}",
        "hydra.sweep.dir=sweep",
    ]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        env=os.environ | {"WANDB_MODE": "offline"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    jobs = sorted(
        (folder / "sweep").glob("*/manifest.json"),
        key=lambda path: int(path.parent.name),
    )
    calls = [
        json.loads(path.read_text(encoding="utf-8"))["usage"]["judge_calls"]
        for path in jobs
    ]
    return (processor, time.perf_counter() - start), calls


if __name__ == "__main__":
    main()
