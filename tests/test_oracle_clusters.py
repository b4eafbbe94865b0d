"""Prompts that belong together are one observation: those of one text, or of one `cluster`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.oracle.data import Dataset, read_dataset
from tests.oracle_simulation import analysed
from tests.test_own_labels import headlines

N_CLUSTERS, N_EACH = 60, 5


def rows(
    seed: int, name: str, *, alike: float = 0.9, labelled: int = 30
) -> list[dict[str, Any]]:
    """Five prompts a cluster, whose answers are alike; all labels of some clusters.

    name  what tells the cluster: cluster, prompt or nothing
    """
    rng = np.random.default_rng(seed)
    family, own = (
        rng.standard_normal((N_CLUSTERS, 1)),
        rng.standard_normal((N_CLUSTERS, N_EACH)),
    )
    quality = math.sqrt(alike) * family + math.sqrt(1 - alike) * own
    score = (
        np.round(20 * expit(quality + 0.3 * rng.standard_normal(quality.shape))) / 20
    )
    label = np.round(20 * expit(1.5 * quality)) / 20
    chosen = set(rng.permutation(N_CLUSTERS)[:labelled].tolist())
    found = []
    for i, j in np.ndindex(quality.shape):
        row = {
            "prompt_id": f"q{i}-{j}",
            "policy": "one",
            "judge_score": float(score[i, j]),
        }
        row |= {name: f"text {i}"} if name else {}
        row |= {"oracle_label": float(label[i, j])} if i in chosen else {}
        found.append(row)
    return found


def read(folder: Path, some: list[dict[str, Any]]) -> Dataset:
    return read_dataset(fresh_dir=write_jsonl(folder / "draws.jsonl", some), seed=42)


def test_a_cluster_is_one_observation_and_each_of_its_prompts_counts(tmp_path: Path):
    by_cluster = read(tmp_path, rows(1, "cluster", labelled=N_CLUSTERS))
    by_text = read(tmp_path, rows(1, "prompt", labelled=N_CLUSTERS))
    alone = read(tmp_path, rows(1, "", labelled=N_CLUSTERS))
    assert list(map(len, (d.prompts for d in (by_cluster, by_text, alone)))) == [
        60,
        60,
        300,
    ]
    label = alone.fresh_draws["one"].label
    (one,), (text,), (apart,) = map(headlines, (by_cluster, by_text, alone))
    assert one.value == text.value == pytest.approx(label.mean())
    means = label.reshape(N_CLUSTERS, N_EACH).mean(axis=1)
    error = means.std(ddof=1) / N_CLUSTERS**0.5
    assert one.std_error == pytest.approx(error, rel=0.01)
    assert text.std_error == pytest.approx(error, rel=0.02)
    assert apart.std_error is not None and apart.std_error < 0.6 * error


def test_labels_of_few_clusters_are_few_labels(tmp_path: Path):
    """95 labels on 19 clusters are less than 20 observations, and the calibration is borrowed."""
    (few,) = headlines(read(tmp_path, rows(1, "cluster", labelled=19)))
    assert few.status == "caution"
    assert (
        "its own answers are labelled on 19 prompts or clusters of prompts (20 needed)"
        in few.reason
    )
    checks = analysed(
        read(tmp_path, rows(1, "cluster", labelled=19)), []
    ).evidence_by_policy["one"]
    assert checks.transport_audit.status == "not done"


def test_a_prompt_in_two_clusters_is_refused(tmp_path: Path):
    some = rows(1, "cluster")
    some.append({**some[0], "policy": "two", "cluster": "another"})
    with pytest.raises(
        UserError, match='"q0-0" must be in one cluster .* got "text 0" and "another"'
    ):
        read(tmp_path, some)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster", ""])
def test_intervals_of_clustered_prompts_cover(tmp_path: Path, name: str):
    """300 studies; without the clusters the intervals are far too short. Figures in docs/evidence.md."""
    rng = np.random.default_rng(0)
    truth = float(
        (np.round(20 * expit(1.5 * rng.standard_normal(1_000_000))) / 20).mean()
    )
    covers = []
    for seed in range(300):
        (e,) = headlines(read(tmp_path, rows(seed, name)))
        if e.ci_low is None or e.ci_high is None:
            continue
        covers.append(e.ci_low <= truth <= e.ci_high)
    print(name, len(covers), np.mean(covers))
    assert np.mean(covers) >= 0.93 if name else np.mean(covers) < 0.9
