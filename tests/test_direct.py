"""Draws with scores and some labels, and nothing else: estimates without a logging policy."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import Report
from elo_exp.files import write_jsonl
from elo_exp.oracle.data import Dataset, Rows, read_dataset
from elo_exp.oracle.estimates import PolicyEstimate
from tests.experiments import printed
from tests.oracle_demo import ran
from tests.oracle_simulation import NAMES, analysed, with_labels
from tests.oracle_worlds import WORLDS, World, study

CHOSEN = {
    "medium": WORLDS["medium overlap"],
    "curved": WORLDS["curved judge"],
    "piled": WORLDS["scores at the top"],
    "disliked": WORLDS["the same style, poor overlap"],
    "worse": WORLDS["far worse"],
}
FREE = World(shift=0.3, style=0.3)  # a score means nearly the same for it
ROW = {"prompt_id": "q1", "policy": "a", "judge_score": 0.8, "oracle_label": 0.7}


def drawn(
    worlds: Mapping[str, World],
    seed: int,
    labels: int | Mapping[str, int],
    *,
    n: int = 500,
) -> Dataset:
    """Draws of policies on the same prompts; so many of each, on the same prompts, are labelled."""
    data = study(worlds, seed, n_labels=0, n_own=n, n=n)
    order = np.random.default_rng(seed).permutation(n)

    def own(policy: str) -> Rows:
        rows = data.probe_draws[policy]
        rows = rows[np.argsort(rows.prompt)]
        n_labels = labels if isinstance(labels, int) else labels.get(policy, 0)
        return with_labels(rows, order[:n_labels])

    return dataclasses.replace(
        data,
        logging_policy=None,
        logged_rows=data.logged_rows[:0],
        logging_logprob=np.empty(0),
        target_logprob={},
        fresh_draws={policy: own(policy) for policy in worlds},
        probe_draws={},
    )


def headlines(data: Dataset) -> dict[str, PolicyEstimate]:
    return {e.policy: e for e in analysed(data, ["direct"]).estimates if e.headline}


def covers(e: PolicyEstimate, truth: float) -> bool:
    assert e.ci_low is not None and e.ci_high is not None
    return e.ci_low <= truth <= e.ci_high


@pytest.mark.system
def test_with_every_draw_labelled_the_value_is_the_mean_label():
    """And its error that of a mean over prompts; also where a prompt has several draws."""
    data = drawn({"one": FREE, "other": WORLDS["far worse"]}, 1, 500)
    rows = data.fresh_draws["one"]
    thrice = Rows.join([rows, rows[:1], rows[:1]])
    for some in (
        data,
        dataclasses.replace(data, fresh_draws={**data.fresh_draws, "one": thrice}),
    ):
        e = headlines(some)["one"]
        assert e.value == pytest.approx(rows.label.mean())
        assert e.std_error == pytest.approx(rows.label.std(ddof=1) / 500**0.5, rel=0.02)
        assert (e.status, e.rests_on, e.reason) == ("report", "own labels", "")


def test_fewer_than_20_labels_of_its_own_are_borrowed_with_caution():
    data = drawn({"many": FREE, "few": FREE, "none": FREE}, 2, {"many": 100, "few": 19})
    found = headlines(data)
    assert [e.status for e in found.values()] == ["report", "caution", "caution"]
    assert found["many"].n_labels == found["none"].n_labels == 119
    assert found["none"].rests_on == "borrowed calibration"
    assert found["none"].reason.startswith(
        "it borrows its calibration from many, few (calibration transfer: not done): 0 of its own answers"
    )
    direct = {
        e.policy: e for e in analysed(data, ["direct"]).estimates if not e.headline
    }
    assert direct["few"].status == "caution"
    values = [direct[name].value for name in found]
    assert values == [e.value for e in found.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "labels", [40, 100, dict.fromkeys(CHOSEN, 30) | {"medium": 250}]
)
def test_intervals_by_own_labels_cover_alone_and_in_differences(
    labels: int | Mapping[str, int],
):
    """300 draws of five policies on 500 prompts; figures in docs/evidence.md."""
    truth = {policy: world.truth for policy, world in CHOSEN.items()}
    alone, pairs, together = [], [], []
    for seed in range(300):
        found = analysed(drawn(CHOSEN, seed, labels), ["direct"])
        rows = [e for e in found.estimates if e.headline and e.status == "report"]
        alone += [covers(e, truth[e.policy]) for e in rows]
        gaps = [
            (d, truth[d["a"]] - truth[d["b"]]) for d in found.comparison.differences
        ]
        pairs += [d["ci_low"] <= gap <= d["ci_high"] for d, gap in gaps]
        together.append(all(d["low"] <= gap <= d["high"] for d, gap in gaps))
    print(labels, len(alone) / 1500, *map(np.mean, (alone, pairs, together)))
    assert len(alone) >= 0.95 * 1500
    assert min(map(np.mean, (alone, pairs, together))) >= 0.93


# Files


def rows(n: int = 24) -> list[dict[str, object]]:
    """Two policies on 2 n prompts; half of the answers of the first one are labelled."""
    return [
        {"prompt_id": f"q{i}", "policy": policy, "judge_score": 50 + i}
        | ({"oracle_label": 40 + i} if policy == "a" and i % 2 else {})
        for policy, i in itertools.product("ab", range(2 * n))
    ]


def run_on(folder: Path, *settings: str) -> Report:
    return ran(folder, "oracle.scale=[0,100]", *settings)[0]


@pytest.mark.system
def test_one_file_of_answers_scores_and_labels_is_enough(tmp_path: Path):
    path = write_jsonl(tmp_path / "answers.jsonl", rows())
    report = run_on(tmp_path, f"oracle.fresh_dir={path}")
    found = {(e["policy"], e["estimator"]): e for e in report.tables["estimates"]}
    assert list(dict.fromkeys(policy for policy, _ in found)) == ["a", "b"]
    statuses = [found[at]["status"] for at in (("a", "anchored"), ("b", "direct"))]
    assert statuses == ["report", "caution"]
    for name in NAMES[:-1]:
        row = found["a", name]
        assert (row["status"], row["reason"]) == ("refuse", "no log-probabilities")
        assert not any(f"a/{name}" in key for key in report.metrics if "est" in key)
    assert "labels: 24 of its own answers" in report.text
    assert report.page is not None
    assert " logged answers, " not in report.page("run", {}, report.figures())
    only = run_on(tmp_path, f"oracle.fresh_dir={path}", "oracle.policies=[b]")
    assert only.tables["estimates"] == report.tables["estimates"][9:]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["oracle.fresh_dir=.", "compat=cje-0.3"], "compat=cje-0.3, oracle.grid=true and oracle.truth=labels need "
         "log-probabilities"),
        (["oracle.fresh_dir=.", "oracle.label_fraction=.5"], "oracle.label_fraction has no effect here: it applies to"),
        (["oracle.fresh_dir=.", "oracle.check_nats=1"], "oracle.check_nats has no effect here: it applies to answers"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str], words: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refusal:
        printed(tmp_path, "experiment=oracle", *settings)
    assert str(refusal.value).startswith(words)


def test_files_that_cannot_be_analysed_are_refused(tmp_path: Path):
    def read(*rows: object) -> Dataset:
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return read_dataset(fresh_dir=path, seed=42)

    with pytest.raises(UserError, match="^File not found: nowhere "):
        read_dataset(fresh_dir="nowhere", seed=42)
    with pytest.raises(UserError, match="answers.jsonl:2 has no policy. Each row"):
        read(ROW, {"prompt_id": "q1", "judge_score": 0.8})
    with pytest.raises(UserError, match='answers.jsonl:3 repeats prompt "q1", draw_i'):
        read(ROW, {**ROW, "policy": "b"}, ROW)
