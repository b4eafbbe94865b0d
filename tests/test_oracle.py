"""`experiment=oracle` on recorded answers: what a run writes, reports and refuses."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import oracle_analysis
from elo_exp.files import read_jsonl, write_json
from elo_exp.oracle.data import Dataset, Truth, read_truth
from tests.commands import Ran, attempt, run, table
from tests.experiments import printed
from tests.oracle_simulation import (
    NAMES,
    World,
    analysed,
    several,
    write,
)
from tests.pages import Reader

FIGURES = ("estimates", "calibration", "weights")


def given(folder: Path, **more: Any) -> list[str]:
    settings = {"logged": folder / "logged.jsonl", "fresh_dir": folder / "fresh"}
    return [f"oracle.{name}={value}" for name, value in (settings | more).items()]


def compared(folder: Path) -> list[str]:
    return given(folder, truth=folder / "truth.json", probe_dir=folder / "probe")


def run_oracle(folder: Path, *settings: str) -> Ran:
    return run("experiment=oracle", "tracker=local", *settings, folder=folder)


SHIFTS = {"clone": 0.0, "near": 0.2, "unhelpful": -4.0}
DRAWN = {name: World(shift=shift, style=0.1) for name, shift in SHIFTS.items()}
TRUE = {name: Truth(mean=w.truth, std_error=0.0) for name, w in DRAWN.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three policies, 400 prompts, 200 labels and 50 probes of each policy."""
    worlds = {
        name: World(n=400, shift=shift, style=0.0, labelled=0.5, n_probe=50)
        for name, shift in SHIFTS.items()
    }
    data = several(1, **worlds)
    fresh = {**data.fresh_draws, "base": data.fresh_draws["clone"]}
    folder = tmp_path_factory.mktemp("small")
    write(dataclasses.replace(data, fresh_draws=fresh), folder)
    truth = {name: {"mean": world.truth} for name, world in worlds.items()}
    write_json(folder / "truth.json", truth)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("oracle")
    return run_oracle(out, *compared(folder))


@pytest.mark.system
def test_the_first_line_says_whose_answers_are_analysed(ran: Ran):
    assert "oracle: recorded answers\n" in ran.err


@pytest.mark.system
def test_the_run_folder_holds_these_files(ran: Ran):
    names = ["estimates.json", "weight_diagnostics.json", "label_budget.json"]
    names += ["extreme_weights.csv", "report.html", "manifest.json"]
    names += [f"figures/{name}.{end}" for name in FIGURES for end in ("png", "csv")]
    for name in names:
        assert (ran.run_dir / name).stat().st_size > 0, name
    reader = ran.page
    assert reader.headings[:3] == ["Result", "Differences", "Estimates"]


def test_estimates_are_a_row_for_each_policy_and_estimator(ran: Ran):
    rows = ran.read("estimates.json")
    pairs = [(row["policy"], row["estimator"]) for row in rows]
    assert pairs == list(itertools.product(SHIFTS, ("anchored", *NAMES)))
    assert [row["policy"] for row in rows if row["headline"]] == list(SHIFTS)
    assert {row["status"] for row in rows if row["policy"] == "unhelpful"} == {
        "refuse",
        "report",  # by the probe's labels
    }
    lines = ran.out.splitlines()
    first = next(line.split() for line in lines if line.split()[:1] == ["anchored"])
    assert (first[1], first[-1]) == (f"{rows[0]['value']:.4f}", "report")
    assert (
        "unhelpful: 400 logged answers, 400 samples; labels: 50 of its own answers, 200 in the calibration"
        in lines
    )


def test_the_manifest_names_every_input(ran: Ran):
    manifest = ran.read("manifest.json")
    files = {
        "logged",
        "truth",
        "fresh/clone_responses.jsonl",
        "probe/near_responses.jsonl",
    }
    assert {*files, "fresh", "probe"} <= set(manifest["input_hashes"])
    counts = (manifest["n_logged"], manifest["n_labels"], manifest["n_probe"]["clone"])
    assert counts == (400, 200, 50)


def test_console_page_files_and_tracker_say_the_same_sentence_of_the_choice(ran: Ran):
    manifest, metrics = ran.read("manifest.json"), dict[str, Any]()
    for row in ran.rows("tracker/log.jsonl"):
        metrics |= row["value"] if row["kind"] == "summary" else {}
    sentence = ran.read("next.json")["advice"]
    assert sentence == manifest["choice"]["sentence"] == metrics["choice/sentence"]
    assert sentence in ran.out
    assert sentence in ran.page.said
    rows = {row["policy"]: row for row in ran.read("estimates.json") if row["headline"]}
    assert list(manifest["conclusions"]) == list(rows)
    for policy, conclusion in manifest["conclusions"].items():
        assert conclusion["state"] == rows[policy]["status"]
        assert conclusion["ci_low"] == rows[policy]["ci_low"]
        assert conclusion["sentence"] == metrics[f"conclusion/{policy}/sentence"]
    whose = "The values estimate the mean label that the oracle would give."
    assert manifest["choice"]["whose"] == whose
    assert whose in ran.out
    assert whose in ran.page.said


def test_the_diagnostics_are_those_that_the_statuses_were_decided_by(ran: Ran):
    found = ran.read("weight_diagnostics.json")
    assert found["policies"]["clone"]["weights"]["n_exactly_one"] == 400
    assert found["policies"]["unhelpful"]["score_overlap"]["affinity"] < 0.5
    values = [point["value"] for point in found["calibration"]["curve"]]
    assert values == sorted(values)
    weights = table(ran.run_dir / "extreme_weights.csv")
    rows = [row for row in weights if row["policy"] == "unhelpful"]
    ratios = [abs(float(row["log_ratio"])) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert min(ratios) > math.log(5)


# Results


def page_of(data: Dataset, folder: Path) -> str:
    report = oracle_analysis.report(analysed(data), {}, folder)
    assert report.page is not None
    plots = report.figures()
    assert [plot.name for plot in plots] == list(
        FIGURES[: 2 + bool(data.target_logprob)]
    )
    return Reader(report.page("run", {}, plots)).said


@pytest.mark.system
def test_the_page_names_a_best_policy_only_where_the_differences_do(tmp_path: Path):
    equal = {"one": World(n_probe=100), "other": World(n_probe=100, style=0.31)}
    assert "No clear best policy: o" in page_of(several(1, **equal), tmp_path)
    worlds = {"good": World(shift=0.8, n_probe=200), "worse": World(n_probe=200)}
    said = page_of(several(1, **worlds), tmp_path)
    assert "good is the best" in said
    lead = (
        r"good has a mean label of (\d\.\d+) \(95% interval (.*?) to (.*?)\)\. "
        r"It is 0\.\d+ \(0\.\d+ to 0\.\d+\) above worse"
    )
    match = re.search(lead, said)
    assert match
    value, low, high = map(float, match.groups())
    assert low < value < high
    assert "Next: Choose good: it is the best." in said


@pytest.mark.system
def test_without_entrants_policies_of_known_value_are_simulated(tmp_path: Path):
    """Judge and oracle disagree; those reported hold the truth, and those that mislead do not pass."""
    ran = run_oracle(tmp_path, "figures=false")
    rows = {row["policy"]: row for row in ran.read("estimates.json") if row["headline"]}
    status = {policy: row["status"] for policy, row in rows.items()}
    assert {status.pop("poser"), status.pop("shrug")} <= {"caution", "refuse"}
    assert status == dict.fromkeys(("clone", "tuned", "terse"), "report")
    true = {policy: row["mean"] for policy, row in ran.read("truth.json").items()}
    for policy in status:
        assert rows[policy]["ci_low"] <= true[policy] <= rows[policy]["ci_high"]
    logged = [row for _, row in read_jsonl(ran.run_dir / "logged.jsonl")]
    by_judge = {row["response"]: row["judge_score"] for row in logged}
    assert max(by_judge, key=by_judge.__getitem__).startswith("Certainly. ")
    off = max(abs(rows[policy]["value"] - true[policy]) for policy in status)
    ending = f"3 reported (largest error {off:.3f}, truth inside the interval in 3 of 3), 2 refused."
    out = " ".join(ran.out.split())
    assert f"Estimates against the known truth: {ending}" in out
    said = ran.page.said
    assert "tuned is the best of the 3 policies with an estimate" in said
    paid = attempt("experiment=oracle", "judge=haiku", folder=tmp_path)
    assert paid.code == 2
    assert "Without entrants the policies are simulated" in paid.err


def test_metrics_omit_what_is_refused_and_the_headline_is_the_error_or_its_estimate(
    tmp_path: Path,
):
    """The error where the truth is known, else the standard error, of those not refused."""
    analysis = analysed(several(1, **DRAWN))
    for truth, name in ((TRUE, "error"), ({}, "std_error")):
        found = oracle_analysis.report(analysis, truth, tmp_path)
        assert found.metrics["refused/unhelpful/direct"] == 1.0
        assert "estimate/unhelpful/direct" not in found.metrics
        near = [found.metrics[f"{name}/{p}/anchored"] for p in ("clone", "near")]
        size = np.sqrt(np.mean(np.square(near))) if truth else np.mean(near)
        assert found.headline == found.metrics[found.headline_is] == pytest.approx(size)
        assert found.headline_is == f"oracle_mean/{name}"
        statuses = [e.status for e in analysis.estimates if e.headline]
        share = statuses.count("report") / len(statuses)
        assert found.metrics["oracle_mean/reported"] == pytest.approx(share)


@pytest.mark.system
def test_a_run_without_log_probabilities_or_reportable_numbers_has_figures_and_page(
    tmp_path: Path,
):
    data = World(shift=3.2).draw(np.random.default_rng(0))
    refused = page_of(dataclasses.replace(data, target_logprob={}), tmp_path)
    assert "No estimate can be reported." in refused


# Sampling


def test_recorded_answers_are_sampled_where_asked(folder: Path, tmp_path: Path):
    sample = ("oracle.n_prompts=200", "oracle.label_fraction=0.5", "figures=false")
    manifest = run_oracle(tmp_path, *given(folder), *sample).read("manifest.json")
    assert (manifest["n_logged"], manifest["n_draws"]["clone"]) == (200, 200)
    assert manifest["n_labels"] == pytest.approx(50, abs=8)  # of 200 in 400
    settings = manifest["config"]["oracle"]
    assert (settings["n_prompts"], settings["label_fraction"]) == (200, 0.5)


# Mistakes


def test_policies_that_look_alike_are_warned_of_and_equal_answers_do_not_differ(
    tmp_path: Path,
):
    """One policy under two names: 50 labels without a difference may still be .07 off, by .025^(1/50)."""
    world = World(n=100, shift=0.0, style=0.0, labelled=0.5)
    write(several(1, clone=world, Clone=world), tmp_path)
    ran = run_oracle(tmp_path, *given(tmp_path), "figures=false")
    said = "look alike and are taken for different ones."
    assert ran.err.count(f"warning: the policies 'clone', 'Clone' {said}") == 1
    (row,) = ran.read("differences.json")
    assert (row["value"], row["std_error"]) == (0.0, None)
    assert (row["high"], row["low"]) == pytest.approx((0.071, -0.071), abs=0.01)
    assert ran.read("next.json")["decision_ready"] is False


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["oracle.logged=null", "oracle.fresh_dir=null", "oracle.probe_dir=probe"],
         "oracle.probe_dir applies to recorded answers."),
        (["compat=cje-0.3", "oracle.seed=4"], "oracle.seed must be 42 with compat=cje-0.3; got 4."),
        (["estimator=[]"], "experiment=oracle needs at least one estimator. Set estimator"),
        (["oracle.validation_fraction=0.5"],
         "oracle.validation_fraction has no effect here: it applies to answers that the run generates"),
        (["grid.seeds=2"], "grid.seeds has no effect here: it applies to a grid, which oracle.grid=true makes. Leave"),
        (["oracle.grid=true", "oracle.label_fraction=0.5"], "oracle.label_fraction has no effect here: the grid samples"),
        (["oracle.grid=true", "grid.calibrations=[two_stage]"], "grid.calibrations=two_stage needs"),
        (["oracle.grid=true", "compat=cje-0.3"], "compat cannot be combined with oracle.grid=true"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(
    folder: Path, tmp_path: Path, settings: list[str], words: str
):
    with pytest.raises(UserError) as refusal:
        printed(tmp_path, "experiment=oracle", *given(folder), *settings)
    assert str(refusal.value).startswith(words)


def test_a_truth_may_call_its_error_se_and_one_without_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rows = {"a": {"mean": 0.7, "se": 0.1}, "b": {"mean": 0.7, "n": 500}}
    found = read_truth(write_json(tmp_path / "truth.json", rows))
    with pytest.raises(
        UserError,
        match='(?s)must be a mapping, such as .*Write {"policy": {"mean": 0.7,',
    ):
        read_truth(write_json(tmp_path / "wrong.json", {"a": 0.7}))
    assert (found["a"].std_error, found["b"].std_error) == (0.1, None)
    assert "no std_error of b, so its true value is taken to be exact" in caplog.text


def test_the_command_ends_with_one_line_for_a_wrong_row(tmp_path: Path):
    row = json.dumps({"prompt_id": "p", "judge_score": 0.8})
    (tmp_path / "logged.jsonl").write_text(row, encoding="utf-8")
    given = ("oracle.logged=logged.jsonl", "estimator=[snips]", "tracker=local")
    ran = attempt("experiment=oracle", *given, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    found = "logged.jsonl:1: total_logprob is missing."
    assert found in ran.err


@pytest.mark.system
def test_the_logging_policy_is_estimated_where_it_is_named_and_ips_needs_no_draws(
    folder: Path, tmp_path: Path
):
    base = given(folder, policies="[base,clone]")
    rows = run_oracle(tmp_path, *base, "figures=false").read("estimates.json")
    known = [
        row["estimator"] for row in rows if row["value"] and row["policy"] == "base"
    ]
    assert known == ["anchored", "direct"]
    assert [row["status"] for row in rows if row["value"]][:2] == ["report"] * 2
    undrawn = (f"oracle.logged={folder}/logged.jsonl", "figures=false")
    alone = run_oracle(tmp_path, *undrawn).read("estimates.json")
    reasons = {row["estimator"]: row["reason"] for row in alone}
    assert reasons["dr_cpo"] == reasons["direct"] == "no samples of its own"
    compat = ("estimator=[ips,snips]", "compat=cje-0.3")
    rows = run_oracle(tmp_path, *undrawn, *compat).read("estimates.json")
    assert [(row["n"], row["degrees_of_freedom"]) for row in rows] == [(400, None)] * 6
