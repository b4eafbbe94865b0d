"""An oracle sample: logged answers, fresh draws and probes of three policies, with labels of some.

`recorded` is a published one, 1,000 logged answers of which 480 have labels, for numbers that others
have printed. `small` has its form, and is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.files import write_json, write_jsonl
from elo_exp.oracle.data import Dataset, Truth, build_dataset, read_samples, read_truth
from tests.data import shared_data

# Of the labels that the truths are means of, as published with the sample.
STD_ERRORS = {"clone": 0.0103, "parallel_universe_prompt": 0.0096, "unhelpful": 0.0079}
POLICIES = tuple(STD_ERRORS)
SHIFTS = {"base": 0.0, "clone": 0.0, "parallel_universe_prompt": 0.2, "unhelpful": -4.0}
N, N_PROBES = 400, 50  # prompts of the small sample


def recorded() -> Path:
    return shared_data("oracle_sample")


def small(folder: Path) -> Path:
    """Write a sample in which quality is normal about each policy's shift, and rounds to a score."""
    rng = np.random.default_rng(0)
    quality = rng.standard_normal(N)
    for policy, shift in SHIFTS.items():
        draws = list(_rows(policy, quality + shift, rng))
        write_jsonl(folder / "fresh" / f"{policy}.jsonl", draws)
        if policy != "base":
            probes = [{**row, "oracle_label": _label(row, rng)} for row in draws]
            write_jsonl(folder / "probe" / f"{policy}.jsonl", probes[:N_PROBES])
    logged = list(_rows("base", quality, rng))
    for i, (row, q) in enumerate(zip(logged, quality, strict=True)):
        row["total_logprob"] = -90.0
        row["target_logps"] = {
            policy: SHIFTS[policy] * (q - SHIFTS[policy] / 2) - 90
            for policy in POLICIES
        }
        row["oracle_label"] = _label(row, rng) if i % 2 else None
    write_jsonl(folder / "logged.jsonl", logged)
    noise = rng.standard_normal(100_000)
    truth = {
        policy: {"mean": 0.25 + 0.5 * _score(noise + SHIFTS[policy]).mean()}
        for policy in POLICIES
    }
    write_json(folder / "truth.json", truth)
    return folder


def _score(quality: Any) -> Any:
    return np.round(20 / (1 + np.exp(-1.4 * quality))) / 20


def _rows(policy: str, quality: Any, rng: Any) -> Iterator[dict[str, Any]]:
    noise = 0.0 if policy == "base" else rng.standard_normal(N) / 4
    for i, score in enumerate(_score(quality + noise).tolist()):
        yield {"prompt_id": f"arena_{i}", "policy": policy, "judge_score": score}


def _label(row: dict[str, Any], rng: np.random.Generator) -> float:
    return float(np.clip(0.25 + 0.5 * row["judge_score"] + rng.normal(0, 0.1), 0, 1))


@cache
def sample(*, probe: bool = False) -> Dataset:
    """The recorded sample."""
    folder = recorded()
    samples = read_samples(
        folder / "logged.jsonl",
        fresh_dir=folder / "fresh",
        probe_dir=folder / "probe" if probe else None,
    )
    return build_dataset(samples, n_folds=5, seed=42)


def truth() -> dict[str, Truth]:
    return read_truth(recorded() / "truth.json")
