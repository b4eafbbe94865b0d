"""Whether labels are a random sample of the answers, and labels that were chosen by known chances."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from elo_exp.arrays import Array, Mask
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.oracle.data import Dataset, read_dataset
from elo_exp.oracle.label_sampling import check_label_sample, compute_selection_p_value
from tests.commands import run
from tests.oracle_simulation import answers, with_labels
from tests.test_own_labels import drawn, headlines

N = 300  # prompts


def study(seed: int, kind: str, n_labels: int = 90) -> tuple[Dataset, dict[str, float]]:
    """Two policies, whose labels are right or wrong, and their true values on these prompts.

    kind  of the labelled slice: random; first of a file in which easy prompts come first; low: the
          lowest scores; uncertain: the scores nearest to the middle; chances: the lower the score, the
          likelier, by known chances
    """
    rng = np.random.default_rng((seed, 77))
    fold = rng.permutation(N) % 5
    difficulty = rng.normal(0, 0.5, N) + np.where(np.arange(N) < N // 3, 1.0, -0.5)
    fresh, truth = {}, {}
    chosen = rng.permutation(N)[:n_labels]
    for policy, shift in (("a", 0.0), ("b", 0.4)):
        quality = difficulty + shift + rng.normal(0, 1, N)
        mean = 0.15 + 0.7 * expit(1.5 * quality)
        noise = 0.3 + 0.8 * rng.standard_normal(N)
        score = np.clip(np.round(10 * expit(1.2 * quality + noise)), 1, 10) / 10
        tie = 1e-3 * rng.random(N)
        if kind == "first":
            chosen = np.arange(n_labels)
        elif kind == "low":
            chosen = np.argsort(score + tie)[:n_labels]
        elif kind == "uncertain":
            chosen = np.argsort(np.abs(score - 0.5) + tie)[:n_labels]
        rows = answers(score, (rng.random(N) < mean).astype(float), fold)
        if kind == "chances":
            rows = dataclasses.replace(
                rows, chance=np.clip(0.9 - 0.7 * score, 0.25, 0.9)
            )
            chosen = np.flatnonzero(rng.random(N) < rows.chance)
        fresh[policy] = with_labels(rows, chosen)
        truth[policy] = float(mean.mean())
    return drawn(fresh), truth


def test_labels_are_compared_with_all_answers_of_their_set():
    rows = study(1, "random")[0].fresh_draws["a"]
    sample = check_label_sample(rows, policy="a", source="fresh")
    assert (sample.status, sample.n_labelled, sample.n) == ("passed", 90, N)
    assert sample.p_value is not None
    whole = with_labels(rows, np.flatnonzero(rows.is_labelled))[rows.is_labelled]
    assert check_label_sample(whole, policy="a", source="fresh").status == "passed"
    none = check_label_sample(rows.without_labels, policy="a", source="fresh")
    assert (none.status, none.p_value) == ("not done", None)
    alike = dataclasses.replace(rows, score=np.full(N, 0.5))
    assert check_label_sample(alike, policy="a", source="fresh").status == "cannot tell"


@pytest.mark.parametrize("kind", ["first", "low", "uncertain"])
def test_a_chosen_slice_is_refused_and_a_random_one_is_not(kind: str):
    assert {e.status for e in headlines(study(3, "random")[0])} == {"report"}
    found = headlines(study(3, kind)[0])
    assert {e.status for e in found} == {"refuse"}
    assert all(
        e.reason.startswith("the labels are not a random sample: ") for e in found
    )


def test_known_chances_make_a_chosen_slice_one_to_report():
    """Labels count by 1 / chance; the same labels without their chances are refused."""
    data, truth = study(5, "chances")
    found = headlines(data)
    assert [e.status for e in found] == ["report", "report"]
    for e in found:
        assert e.ci_low is not None and e.ci_high is not None
        assert e.ci_low <= truth[e.policy] <= e.ci_high
    unknown = {
        policy: dataclasses.replace(rows, chance=np.full(N, np.nan))
        for policy, rows in data.fresh_draws.items()
    }
    refused = headlines(dataclasses.replace(data, fresh_draws=unknown))
    assert {e.status for e in refused} == {"refuse"}


def test_equal_chances_change_no_number():
    data, _ = study(6, "random")
    known = {
        policy: dataclasses.replace(rows, chance=np.full(N, 0.3))
        for policy, rows in data.fresh_draws.items()
    }
    for one, other in zip(
        headlines(data),
        headlines(dataclasses.replace(data, fresh_draws=known)),
        strict=True,
    ):
        assert (one.status, other.status) == ("report", "report")
        for name in ("value", "ci_low", "ci_high"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9)


def rows_of(seed: int, kind: str) -> list[dict[str, Any]]:
    data, _ = study(seed, kind)
    return [
        {"prompt_id": f"q{i}", "policy": policy, "judge_score": float(rows.score[i])}
        | ({} if np.isnan(rows.label[i]) else {"oracle_label": float(rows.label[i])})
        | ({} if np.isnan(rows.chance[i]) else {"label_chance": float(rows.chance[i])})
        for policy, rows in data.fresh_draws.items()
        for i in range(N)
    ]


@pytest.mark.system
def test_console_page_files_and_tracker_say_that_labels_were_chosen(tmp_path: Path):
    path = write_jsonl(tmp_path / "draws.jsonl", rows_of(3, "low"))
    ran = run("experiment=oracle", f"oracle.fresh_dir={path}", "tracker=local", "figures=false",
              folder=tmp_path)  # fmt: skip
    words = "the labels are not a random sample: the judge's scores of the 90 labelled answers and the 210 other"
    assert words in " ".join(ran.out.split())
    assert "The labels are not a random sample" in ran.page.said
    assert words in ran.read("estimates.json")[0]["reason"]
    manifest = ran.read("manifest.json")
    assert words in manifest["conclusions"]["a"]["sentence"]
    assert [r["name"] for r in manifest["conclusions"]["a"]["reasons"]] == ["sample"]
    advice = "Label a random sample of the answers of a and b. The present labels were not chosen at random."
    assert ran.read("next.json")["advice"].startswith(advice)
    assert advice in " ".join(ran.out.split())
    tracked = (ran.run_dir / "tracker" / "log.jsonl").read_text(encoding="utf-8")
    assert words in tracked
    found = ran.read("weight_diagnostics.json")["policies"]["a"]["label_samples"]
    assert [(row["policy"], row["status"]) for row in found] == [
        ("a", "failed"),
        ("b", "failed"),
    ]


def test_the_chances_of_a_file_are_read_and_those_of_some_rows_alone_refused(
    tmp_path: Path,
):
    rows = rows_of(5, "chances")
    data = read_dataset(fresh_dir=write_jsonl(tmp_path / "a.jsonl", rows), seed=42)
    assert data.fresh_draws["a"].has_chances
    del rows[7]["label_chance"]
    path = write_jsonl(tmp_path / "b.jsonl", rows)
    with pytest.raises(
        UserError,
        match=r"b.jsonl:8 has no label_chance, and 299 other answers of a have",
    ):
        read_dataset(fresh_dir=path, seed=42)
    rows[7]["label_chance"] = 0
    with pytest.raises(UserError, match="label_chance"):
        read_dataset(fresh_dir=write_jsonl(path, rows), seed=42)


# Simulated


def chosen(rng: np.random.Generator, design: str, shape: tuple[int, int]) -> Mask:
    """(prompts, draws) which answers are labelled: a quarter, whatever their score."""
    labelled = np.zeros(shape, dtype=bool)
    prompts = rng.permutation(shape[0])[: shape[0] // 4]
    if design == "rows":
        labelled.ravel()[rng.permutation(labelled.size)[: labelled.size // 4]] = True
    else:
        labelled[prompts, : shape[1] if design == "prompts" else shape[1] - 1] = True
    return labelled


@pytest.mark.parametrize("n_runs", [300, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("design", ["rows", "prompts", "most of a prompt"])
@pytest.mark.parametrize("n_draws", [1, 5])
def test_random_labels_are_seldom_taken_for_chosen_ones(
    n_draws: int, design: str, n_runs: int
):
    """Scores of 0 to 10 that are alike within a prompt; nominal .002, as two tests at .001 share the data."""
    rng, shape, wrong = np.random.default_rng(2), (100, n_draws), 0
    for _ in range(n_runs):
        quality = rng.normal(size=(shape[0], 1)) + 0.5 * rng.normal(size=shape)
        score = np.round(10 * expit(quality))
        labelled = chosen(rng, "prompts" if n_draws == 1 else design, shape)
        prompt = np.repeat(np.arange(shape[0]), n_draws)
        unknown = np.full(score.size, np.nan)
        p = compute_selection_p_value(score.ravel(), labelled.ravel(), prompt, unknown)
        wrong += p is not None and p < 0.001
    print(n_draws, design, wrong / n_runs)
    assert wrong <= max(2, 0.003 * n_runs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "chances", "first", "low", "uncertain"])
def test_reported_rows_cover_and_chosen_labels_are_found(kind: str):
    """200 studies of two policies; figures in docs/evidence.md."""
    found: list[tuple[bool, bool]] = []
    for seed in range(200):
        data, truth = study(seed, kind)
        for e in headlines(data):
            covers = e.ci_low is not None and e.ci_high is not None
            covers = covers and e.ci_low <= truth[e.policy] <= e.ci_high  # type: ignore[operator]
            found.append((e.status == "report", covers))
    reported: Array = np.array(found, dtype=float)
    share = reported[:, 0].mean()
    cover = reported[reported[:, 0] > 0, 1].mean() if share else float("nan")
    print(kind, "reported", share, "of them covered", cover)
    if kind in ("random", "chances"):
        assert share >= 0.95 and cover >= 0.94
    else:
        assert share <= 0.01
