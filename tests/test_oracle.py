"""`experiment=oracle` on recorded answers: what a run leaves behind, and what is said of a mistake."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.experiments import Report, oracle
from elo_exp.experiments.oracle import Oracle
from elo_exp.oracle.ablation import ablate, summaries
from elo_exp.oracle.data import Truth
from elo_exp.records import UserError
from tests.commands import Ran, attempt, run
from tests.experiments import built
from tests.oracle_sample import POLICIES, STD_ERRORS, recorded, sample, small, truth
from tests.oracle_simulation import World, draw
from tests.pages import Reader
from tests.test_cje import PUBLISHED
from tests.test_gates import OPTIONS, analysed
from tests.test_oracle_coverage import NAMES, shipped_estimators

FIGURES = ("estimates", "calibration", "weights", "label_budget")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"))


def given(folder: Path, **more: Any) -> list[str]:
    settings = {
        "logged": f"{folder}/logged.jsonl",
        "fresh_dir": f"{folder}/fresh",
        **more,
    }
    return [
        "experiment=oracle",
        "tracker=local",
        *(f"oracle.{name}={value}" for name, value in settings.items()),
    ]


def analyse(sample_folder: Path, folder: Path) -> Ran:
    more = {
        name: sample_folder / end
        for name, end in (("truth", "truth.json"), ("probe_dir", "probe"))
    }
    return run(*given(sample_folder, **more, ablation="true"), folder=folder)


@pytest.fixture(scope="module")
def ran(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return analyse(folder, tmp_path_factory.mktemp("oracle"))


def test_the_run_folder_holds_these_files(ran: Ran):
    names = [
        "estimates.json",
        "weight_diagnostics.json",
        "label_budget.json",
        "extreme_weights.csv",
        "ablation.json",
    ]
    names += [
        f"figures/{name}.{end}" for name in FIGURES for end in ("png", "svg", "csv")
    ]
    for name in (*names, "report.html", "manifest.json"):
        assert (ran.run_dir / name).stat().st_size > 0, name


def test_estimates_are_a_row_for_each_policy_and_estimator(ran: Ran):
    rows = ran.read("estimates.json")
    assert [(row["policy"], row["estimator"]) for row in rows] == [
        (p, name) for p in POLICIES for name in NAMES
    ]
    assert list(rows[0])[:10] == [
        "policy", "estimator", "value", "std_error", "ci_low", "ci_high", "n", "ess", "status", "reason",
    ]  # fmt: skip
    assert {row["status"] for row in rows if row["policy"] == "unhelpful"} == {"refuse"}


def test_the_table_says_which_numbers_may_be_used(ran: Ran):
    lines = ran.out.splitlines()
    dr_cpo = next(line.split() for line in lines if line.split()[:1] == ["dr_cpo"])
    assert dr_cpo[-1] == "report"
    assert "unhelpful: 400 logged answers, 400 fresh draws, 200 labels" in lines


def test_the_manifest_names_every_input(ran: Ran):
    manifest = ran.read("manifest.json")
    files = {"logged", "truth", "fresh/clone.jsonl", "probe/unhelpful.jsonl"}
    assert {*files, "fresh", "probe"} <= set(manifest["input_hashes"])
    counts = (manifest["n_logged"], manifest["n_labels"], manifest["n_probe"]["clone"])
    assert counts == (400, 200, 50)


def test_the_diagnostics_are_those_that_the_verdicts_were_made_from(ran: Ran):
    found = ran.read("weight_diagnostics.json")
    assert found["policies"]["clone"]["weights"]["n_exactly_one"] == 400
    assert found["policies"]["unhelpful"]["score_overlap"]["affinity"] < 0.5
    values = [point["value"] for point in found["calibration"]["curve"]]
    assert values == sorted(values)


def test_extreme_weights_are_listed_the_furthest_first(ran: Ran):
    with (ran.run_dir / "extreme_weights.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "unhelpful"]
    ratios = [abs(float(row["log_ratio"])) for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert min(ratios) > math.log(5)


def test_the_numbers_of_the_recorded_sample(tmp_path: Path):
    ran = analyse(recorded(), tmp_path)
    found = ran.read("weight_diagnostics.json")["policies"]
    (dr_cpo, *_) = (
        row for row in ran.read("estimates.json") if row["estimator"] == "dr_cpo"
    )
    assert (round(dr_cpo["value"], 4), dr_cpo["status"]) == (0.7634, "report")
    assert found["clone"]["weights"]["n_exactly_one"] == 898
    assert found["unhelpful"]["score_overlap"]["affinity"] == pytest.approx(
        0.474, abs=5e-4
    )
    assert found["unhelpful"]["transport"]["status"] == "fail"
    with (ran.run_dir / "extreme_weights.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "clone"]
    assert len(rows) == 32
    assert abs(float(rows[0]["log_ratio"])) == pytest.approx(4.0, abs=0.01)


def test_the_page_says_what_may_be_reported_before_anything_else(ran: Ran):
    said = Reader((ran.run_dir / "report.html").read_text(encoding="utf-8")).said
    assert (
        said.index("What may be reported")
        < said.index("Nothing may be reported.")
        < said.index("± SE")
    )


def test_compat_prints_the_published_numbers(tmp_path: Path):
    rows = run(*given(recorded()), "compat=cje-0.3", folder=tmp_path).read(
        "estimates.json"
    )
    for name, published in PUBLISHED.items():
        of_name = {row["policy"]: row for row in rows if row["estimator"] == name}
        for policy, (value, std_error, *_) in zip(POLICIES, published, strict=True):
            assert of_name[policy]["value"] == pytest.approx(value, abs=5.1e-6)
            assert of_name[policy]["std_error"] == pytest.approx(std_error, abs=5.1e-6)


# Results


@pytest.fixture
def reported(tmp_path: Path) -> Report:
    return oracle.report(analysed(sample()), truth(), [], None, tmp_path)


def test_the_metrics_leave_out_what_is_refused(reported: Report):
    found = reported.metrics
    assert found["refused/unhelpful/direct"] == 1.0
    assert "estimate/unhelpful/direct" not in found
    assert found["error/clone/direct"] == pytest.approx(
        found["estimate/clone/direct"] - 0.74316
    )
    assert found["overlap/clone"] == pytest.approx(0.998, abs=5e-4)


def test_the_headline_is_the_error_where_the_truth_is_known_and_else_the_standard_error(
    reported: Report, tmp_path: Path
):
    errors = [
        value for name, value in reported.metrics.items() if name.startswith("error/")
    ]
    assert reported.headline == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    alone = oracle.report(analysed(sample()), {}, [], None, tmp_path)
    std_errors = [
        value for name, value in alone.metrics.items() if name.startswith("std_error/")
    ]
    assert alone.headline == pytest.approx(np.mean(std_errors))


def test_every_figure_has_its_rows(reported: Report):
    plots = {plot.name: plot for plot in reported.figures()}
    assert tuple(plots) == FIGURES
    assert all(
        plot.png.startswith(b"\x89PNG") and plot.svg and plot.caption
        for plot in plots.values()
    )
    assert len(plots["estimates"].rows) == len(POLICIES) * len(NAMES)
    shares = [
        row["share_policy"]
        for row in plots["calibration"].rows
        if row["policy"] == "clone"
    ]
    assert sum(shares) == pytest.approx(1)


def test_a_run_without_log_probabilities_or_reportable_numbers_still_has_its_figures(
    tmp_path: Path,
):
    data = World(shift=3.2).draw(np.random.default_rng(0))
    analysis = analysed(dataclasses.replace(data, target_logprob={}))
    refused = oracle.report(analysis, {}, [], None, tmp_path)
    plots = refused.figures()
    assert [plot.name for plot in plots] == ["estimates", "calibration"]
    assert refused.page is not None
    assert "Nothing may be reported." in refused.page("refused", {}, plots)


# Ablation


def test_calibration_is_worth_what_the_judge_is_off_by():
    """Over 2,000 prompts, the judge's scores are .1 too low in the middle of their range."""
    world = World(judge="linear", shift=0.3, n=2000)
    data = world.draw(np.random.default_rng(1))
    truth = {"target": Truth(mean=world.truth)}
    judge, calibrated = ablate(data, shipped_estimators(("direct",)), OPTIONS, truth)
    assert judge["value"] == pytest.approx(data.fresh["target"].score.mean())
    assert abs(calibrated["error"]) < 2.5 * calibrated["std_error"]
    assert calibrated["covers"] and not judge["covers"]


def test_scores_with_a_variance_are_weighted_too():
    data = draw(2)
    logged = dataclasses.replace(data.logged, variance=np.full(1000, 0.01))
    known = dataclasses.replace(data, logged=logged)
    rows = ablate(known, shipped_estimators(("direct",)), OPTIONS, {})
    assert [row["scores"] for row in rows] == [
        "judge",
        "calibrated",
        "calibrated_by_variance",
    ]
    assert rows[1]["value"] == pytest.approx(rows[2]["value"])  # equal variances
    assert summaries(rows) == []


def test_summaries_are_over_the_policies_whose_truth_is_known():
    known = {p: Truth(mean=t.mean, std_error=STD_ERRORS[p]) for p, t in truth().items()}
    rows = ablate(sample(), shipped_estimators(("direct",)), OPTIONS, known)
    judge, calibrated = summaries(rows)
    errors = np.array([row["error"] for row in rows if row["scores"] == "calibrated"])
    assert (judge["scores"], calibrated["scores"]) == ("judge", "calibrated")
    assert calibrated["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert calibrated["bias"] == pytest.approx(errors.mean())
    assert (calibrated["n_policies"], calibrated["n_covered"]) == (3, 2)


# Mistakes


def experiment(folder: Path, *names: str, **changes: Any) -> Oracle:
    """On a recorded sample, by these estimators."""
    chosen = {
        "logged": folder / "logged.jsonl",
        "fresh_dir": folder / "fresh",
    } | changes
    outside = {"compat", "plan"}
    given = [
        f"{'' if k in outside else 'oracle.'}{k}={_word(v)}" for k, v in chosen.items()
    ]
    job = built(
        "experiment=oracle",
        *([f"estimator=[{','.join(names)}]"] if names else []),
        *given,
    )
    assert isinstance(job.experiment, Oracle)
    return job.experiment


def _word(value: Any) -> str:
    return "null" if value is None else str(value).replace("'", "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logged": None}, "oracle.logged: names no file. Set it with oracle.logged=FILE"),
        ({"fresh_dir": None}, "oracle.fresh_dir: names no folder, and dr_cpo, mrdr, tmle, stacked_dr, direct req"),
        ({"fresh_dir": "nowhere"}, "oracle.fresh_dir: found no folder nowhere. Check the path."),
        ({"probe_dir": "nowhere"}, "oracle.probe_dir: found no folder nowhere."),
        ({"compat": "cje-0.3", "n_folds": 4}, "oracle.n_folds: found 4. compat=cje-0.3 requires 5, as in"),
        ({"compat": "cje-0.3", "seed": 1}, "oracle.seed: found 1. compat=cje-0.3 requires 42, as in"),
        ({"compat": "cje-0.4"}, "compat: found 'cje-0.4'. Expected 'cje-0.3'."),
        ({"calibration": "spline"}, "oracle.calibration: found 'spline'. Expected 'monotone' or 'two_stage'."),
        ({"n_folds": 1}, "oracle.n_folds: found 1. Expected greater than or equal to 2."),
        ({"max_residual": 0.0}, "oracle.max_residual: found 0.0. Expected greater than 0."),
        ({"half_widths": [2.0]}, "oracle.half_widths.0: found 2.0. Expected less than 1."),
        ({"policies": ["cloen"]}, "oracle.policies: found 'cloen'. Expected one of clone, parallel_universe_"),
        ({"plan": True}, "plan: recorded answers are analysed and nothing is paid for. Leave plan=true out."),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_its_remedy(
    folder: Path, changes: dict[str, Any], words: str
):
    with pytest.raises(UserError, match=words):
        chosen = experiment(folder, **changes)
        chosen.check([])
        oracle.read(chosen.oracle)


def test_no_estimator_is_no_analysis(folder: Path):
    with pytest.raises(UserError, match="estimator: none is chosen"):
        dataclasses.replace(experiment(folder), estimator={}).check([])


def test_a_policy_without_draws_is_named_with_the_remedy(folder: Path, tmp_path: Path):
    (tmp_path / "clone.jsonl").write_text(
        json.dumps({"prompt_id": "arena_0", "judge_score": 0.5}) + "\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError) as refusal:
        oracle.read(experiment(folder, fresh_dir=tmp_path).oracle)
    assert (
        "found no draws of 'parallel_universe_prompt', but of clone. Add parallel_universe_prompt.jsonl, or"
        in str(refusal.value)
    )
    assert str(refusal.value).endswith("oracle.policies=[clone].")


def test_importance_sampling_needs_no_draws(folder: Path):
    chosen = experiment(folder, "ips", "snips", fresh_dir=None)
    chosen.check([])
    assert oracle.read(chosen.oracle).fresh == {}


def test_the_logging_policy_is_estimated_from_its_draws_when_it_is_asked_for(
    folder: Path,
):
    data = oracle.read(experiment(folder, policies=["base", "clone"]).oracle)
    assert data.policies == ("base", "clone")
    base = analysed(data).of("base")
    assert [e.estimator for e in base if e.value is not None] == ["direct"]


def test_a_wrong_line_ends_the_command_with_one_line(tmp_path: Path):
    (tmp_path / "logged.jsonl").write_text(
        '{"prompt_id": "p", "judge_score": 0.8}\n', encoding="utf-8"
    )
    ran = attempt(
        "experiment=oracle",
        "oracle.logged=logged.jsonl",
        "estimator=[snips]",
        "tracker=local",
        folder=tmp_path,
    )
    assert ran.code == 2
    assert ran.err.count("\n") <= 2
    assert (
        "logged.jsonl:1: has no field 'total_logprob' (found prompt_id, judge_score)."
        in ran.err
    )
