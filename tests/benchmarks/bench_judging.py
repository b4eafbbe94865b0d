"""How much of a judged run is ours: the client side of a headline, and of 25,000 queries, against the test server.

    python -m tests.benchmarks.bench_judging

The server runs in a process of its own, on the same machine, and ends a batch at the second look. `ours` is the
processor time of this process: rendering, hashing, claiming, submitting, harvesting, storing, reconciling. `before` is
the memory that the texts take, `peak` the most that was held, and `grown/query` what lies between. Read what five
times the queries do to time and memory.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from elo_exp import pipeline
from elo_exp.records import Comparison
from elo_exp.store.answer_store import Store
from tests.data import DIMENSIONS, shipped

ENTRANTS = ("base_olmo", "full_poe", "security_only", "security_plus_robustness")
WORKLOADS = (143 * 6, 700 * 6)  # pairs in each of three dimensions
_LENGTH = 1500  # characters of a response


@dataclass(frozen=True)
class Measured:
    n_queries: int
    wall: float
    ours: float
    peak_mb: float
    before_mb: float


def comparisons(n_pairs: int, dimension: str) -> list[Comparison]:
    filler = "The mechanism is well described and the first step follows from it. " * (
        _LENGTH // 68
    )
    pairs = list(combinations(ENTRANTS, 2))
    return [
        Comparison(
            prompt_id=f"p{number // len(pairs)}",
            dimension=dimension,
            source="bench",
            prompt_text=f"Question {number // len(pairs)}: what is to be done, and why? "
            * 8,
            entrant_a=a,
            entrant_b=b,
            response_a=f"{a} says: {filler}",
            response_b=f"{b} says: {filler}",
        )
        for number, (a, b) in enumerate((pairs * (n_pairs // len(pairs) + 1))[:n_pairs])
    ]


def measure(n_pairs: int, url: str, folder: Path) -> Measured:
    judge = shipped(
        "judge",
        "opus",
        base_url=url,
        budget_usd=1e6,
        poll_initial_seconds=0.02,
        poll_max_seconds=0.1,
    )
    rubrics = [shipped("rubric", dimension) for dimension in DIMENSIONS]
    questions = {dimension: comparisons(n_pairs, dimension) for dimension in DIMENSIONS}
    before = _memory_mb()
    wall, ours = time.perf_counter(), time.process_time()
    with Store(folder / "store.sqlite") as store:
        judgments = pipeline.judge_pairs(questions, rubrics, judge, store)
    n_queries = sum(2 * len(some) for some in judgments.values())
    return Measured(
        n_queries,
        time.perf_counter() - wall,
        time.process_time() - ours,
        _memory_mb(),
        before,
    )


def _memory_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(workloads: Sequence[int] = WORKLOADS) -> None:
    """Each workload in a process of its own, so that each has its own peak."""
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(int(sys.argv[1]), sys.argv[2], Path(folder))
        per_query = (
            found.ours / found.n_queries * 1e3,
            (found.peak_mb - found.before_mb) / found.n_queries * 1e3,
        )
        print(
            f"{found.n_queries:>9,}{found.wall:>9.1f} s{found.ours:>9.1f} s{per_query[0]:>11.2f} ms"
            f"{found.before_mb:>12.0f} MB{found.peak_mb:>9.0f} MB{per_query[1]:>9.1f} kB"
        )
        return
    print(
        "  queries       wall       ours    ours/query   before      peak    grown/query"
    )
    os.environ |= {"NO_PROXY": "127.0.0.1", "ANTHROPIC_API_KEY": "test-key"}
    for n_pairs in workloads:
        command = [sys.executable, "-m", "tests.anthropic_server"]
        command += ["--seconds-to-end", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            try:
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "tests.benchmarks.bench_judging",
                        str(n_pairs),
                        url,
                    ],
                    check=True,
                )
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
