"""How long an analysis takes, and how that grows with the rows; beside cje-eval 0.3 where it is installed.

    python -m tests.benchmarks.bench_oracle

Four policies, a quarter of the logged answers labelled, one fresh draw on each prompt. CPU seconds, one thread.
cje-eval needs other versions of its libraries than this suite: CJE_PYTHON names the Python of an environment with it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.experiments.oracle import OracleSettings, read
from elo_exp.oracle.data import Dataset
from elo_exp.oracle.estimates import Options, analyse
from tests.data import shipped
from tests.oracle_simulation import World

SIZES = (2482, 4965, 9930, 19860)
FULL = 9930  # rows of the experiment that this one follows
SHIFTS = {
    "clone": 0.0,
    "parallel_universe_prompt": 0.3,
    "premium": 0.8,
    "unhelpful": -1.5,
}
NAMES = (
    "ips",
    "snips",
    "calibrated_ips",
    "dr_cpo",
    "mrdr",
    "tmle",
    "stacked_dr",
    "direct",
)
PEERS = {
    "snips": "raw-ips",
    "calibrated_ips": "calibrated-ips",
    "dr_cpo": "dr-cpo",
    "tmle": "tmle",
}
OPTIONS = Options(
    calibration="monotone",
    by_variance=False,
    max_residual=0.05,
    half_widths=(0.02,),
    compat=None,
)
_PEER = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore")
from cje import analyze_dataset
logging.disable(logging.CRITICAL)
for name in sys.argv[2:]:
    start = time.process_time()
    found = analyze_dataset(
        logged_data_path=f"{sys.argv[1]}/logged.jsonl", fresh_draws_dir=f"{sys.argv[1]}/fresh", estimator=name
    )
    values = dict(zip(found.metadata["target_policies"], map(float, found.estimates)))
    errors = dict(zip(found.metadata["target_policies"], map(float, found.standard_errors)))
    print(json.dumps([name, time.process_time() - start, values, errors]), flush=True)
"""


def data(n: int) -> Dataset:
    """Four targets of one logging policy: the logged answers of the first, and the log-probabilities of all."""
    drawn = {
        policy: World(n=n, shift=shift, style=0.3).draw(np.random.default_rng(20260425))
        for policy, shift in SHIFTS.items()
    }
    return dataclasses.replace(
        drawn["clone"],
        policies=tuple(SHIFTS),
        target_logprob={
            policy: some.target_logprob["target"] for policy, some in drawn.items()
        },
        fresh={policy: some.fresh["target"] for policy, some in drawn.items()},
    )


def write(found: Dataset, folder: Path) -> None:
    """As files that both can read."""
    (folder / "fresh").mkdir()
    with (folder / "logged.jsonl").open("w", encoding="utf-8") as file:
        for i in range(len(found.logged)):
            label = found.logged.label[i]
            row = {
                **_answer(found, found.logged.prompt[i], found.logged.score[i]),
                "base_policy_logprob": float(found.logging_logprob[i]),
                "target_policy_logprobs": {
                    p: float(logprob[i]) for p, logprob in found.target_logprob.items()
                },
                **({} if np.isnan(label) else {"oracle_label": float(label)}),
            }
            file.write(json.dumps(row) + "\n")
    for policy, draws in found.fresh.items():
        with (folder / "fresh" / f"{policy}_responses.jsonl").open(
            "w", encoding="utf-8"
        ) as file:
            for prompt, score in zip(draws.prompt, draws.score, strict=True):
                file.write(
                    json.dumps({**_answer(found, prompt, score), "draw_idx": 0}) + "\n"
                )


def _answer(found: Dataset, prompt: int, score: float) -> dict[str, Any]:
    name = found.prompts[prompt]
    return {
        "prompt_id": name,
        "prompt": name,
        "response": "x" * 100,
        "judge_score": float(score),
    }


def settings(folder: Path) -> OracleSettings:
    return OracleSettings(
        logged=str(folder / "logged.jsonl"),
        fresh_dir=str(folder / "fresh"),
        probe_dir=None,
        truth=None,
        policies=None,
        calibration="monotone",
        by_variance=False,
        n_folds=5,
        seed=42,
        max_residual=0.05,
        half_widths=[0.02],
        ablation=False,
    )


def seconds(found: Dataset, options: Options) -> float:
    estimators = {name: shipped("estimator", name) for name in NAMES}
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        analyse(found, estimators, options)
        best = min(best, time.process_time() - start)
    return best


def show_growth() -> bool:
    """Print a table; whether twice the rows take at most three times as long."""
    print(
        f"\n{len(SHIFTS)} policies x {len(NAMES)} estimators, with all checks: CPU seconds"
    )
    print(
        f"  {'rows':>8}{'as shipped':>14}{'compat=cje-0.3':>18}{'us a row and estimate':>25}"
    )
    times = []
    for n in SIZES:
        found = data(n)
        times.append(seconds(found, OPTIONS))
        compat = seconds(found, dataclasses.replace(OPTIONS, compat="cje-0.3"))
        each = 1e6 * times[-1] / (n * len(SHIFTS) * len(NAMES))
        print(f"  {n:>8,}{times[-1]:>14.2f}{compat:>18.2f}{each:>25.2f}")
    return all(after < 3 * before for before, after in itertools.pairwise(times))


def show_peer(python: str) -> bool:
    """Both from the files, one estimator after the other; whether the numbers are the same to 1e-6."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(data(FULL), folder)
        start = time.process_time()
        found = read(settings(folder))
        reading = time.process_time() - start
        print(
            f"\n{FULL:,} rows from files, CPU seconds for all {len(SHIFTS)} policies; reading is {reading:.2f} of ours"
        )
        print(
            f"  {'estimator':<18}{'elo_exp':>10}{'cje-eval':>12}{'ratio':>10}{'largest difference':>22}"
        )
        program = [python, "-c", _PEER, name, *PEERS.values()]
        ran = subprocess.run(
            program,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "HOME": name},
        )
        theirs = {row[0]: row[1:] for row in map(json.loads, ran.stdout.splitlines())}
        same = [
            _beside(found, reading, ours, theirs[peer]) for ours, peer in PEERS.items()
        ]
        return all(same)


def _beside(
    found: Dataset,
    reading: float,
    name: str,
    theirs: tuple[float, Mapping[str, float], Mapping[str, float]],
) -> bool:
    start = time.process_time()
    analysis = analyse(
        found,
        {name: shipped("estimator", name)},
        dataclasses.replace(OPTIONS, compat="cje-0.3"),
    )
    ours = time.process_time() - start + reading
    taken, values, errors = theirs
    off = max(
        max(
            abs(estimate.value - values[policy]),
            abs(estimate.std_error - errors[policy]),
        )
        for (policy, _), estimate in analysis.unfiltered.items()
    )
    print(f"  {name:<18}{ours:>10.2f}{taken:>12.1f}{taken / ours:>10.0f}{off:>22.1e}")
    return off < 1e-6


def main() -> int:
    print(f"python {platform.python_version()}, numpy {np.__version__}, 1 thread used")
    good = show_growth()
    if python := os.environ.get("CJE_PYTHON"):
        good = show_peer(python) and good
    else:
        print("\ncje-eval left out: CJE_PYTHON names no Python that has cje-eval 0.3")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
