"""Pages and consoles of the oracle experiment and of its grid, as they were last agreed on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp.experiments import Report, oracle_analysis
from elo_exp.experiments.collection import LoggedData
from elo_exp.oracle.data import Dataset, Truth
from elo_exp.pipeline import LogprobCheck
from elo_exp.records import Prompt, Response, Score
from tests import golden
from tests.oracle_demo import ran, said
from tests.oracle_simulation import World, analysed, several, write

NAMES = ["snips", "dr_cpo", "direct"]
WORLDS = {
    "clone": World(n=400, shift=0.0, style=0.0, labelled=0.5, n_probe=60),
    "near": World(n=400, shift=0.3, style=0.1, labelled=0.5),
    "unhelpful": World(n=400, shift=-4.0, labelled=0.5),
}
TRUTH = {name: Truth(mean=world.truth) for name, world in WORLDS.items()}
COMMON = ("tracker=local", "figures=false")
PROBES = ("entrant=[probe_hedged,probe_partial]", "oracle.n_prompts=40", *COMMON)


def agreed(name: str, report: Report, manifest: dict[str, Any]) -> None:
    assert report.page is not None
    golden.same(f"{name}.txt", report.text)
    golden.same(f"{name}.html", report.page(name, manifest, ()))


def drawn(shift: float) -> Dataset:
    """Two policies, their own answers and labels of them, no log-probabilities."""
    worlds = {
        "one": World(n=300, shift=shift, style=0.0, labelled=0.0, n_own=40),
        "other": World(n=300, shift=0.0, style=0.0, labelled=0.0, n_own=60),
    }
    data = several(4, **worlds)
    return dataclasses.replace(data, logging_policy=None, target_logprob={})


def alone(data: Dataset) -> Dataset:
    """The first policy."""
    first = data.policies[0]
    return dataclasses.replace(
        data, policies=(first,), fresh_draws={first: data.fresh_draws[first]}
    )


@pytest.mark.parametrize(
    ("name", "data", "truth", "compat"),
    [
        ("oracle", several(1, **WORLDS), TRUTH, None),
        ("oracle_compat", several(1, **WORLDS), {}, "cje-0.3"),
        ("oracle_close", drawn(0.05), {}, None),
        ("oracle_apart", drawn(2.0), {}, None),
        ("oracle_one", alone(drawn(2.0)), {}, None),
        ("oracle_refused", World(n=200, shift=4.0).draw(np.random.default_rng(0)), {}, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_reported_with_caution_refused_and_of_the_other_library(
    tmp_path: Path, name: str, data: Dataset, truth: dict[str, Truth], compat: str
):
    report = oracle_analysis.report(
        analysed(data, NAMES, compat=compat), truth, tmp_path
    )
    agreed(name, report, {"config": {"oracle": {"seed": 42, "covariates": []}}})


def test_a_collection(tmp_path: Path):
    """What was collected stands above the estimates, with the checks of log-probabilities."""

    def scores(*values: float | None) -> dict[str, Score]:
        return {
            f"p{i}": Score(
                prompt_id=f"p{i}",
                policy="",
                draw_idx=0,
                judge_model="judge",
                judge_score=value,
                judge_score_variance=None,
                cache_key="",
            )
            for i, value in enumerate(values)
        }

    answers = {f"p{i}": f"{i}." for i in range(3)}
    responses = {
        policy: {
            name: Response(entrant_id=policy, prompt_id=name, response_text=text)
            for name, text in answers.items()
        }
        for policy in ("base", "other")
    }
    check = LogprobCheck(
        n_checked=3,
        mean_difference=0.00012,
        max_difference=0.001,
        allowed=0.02,
    )
    collected = LoggedData(
        prompts=[Prompt(prompt_id=name, text=name, source="own", subject="") for name in answers],
        logging_policy="base",
        responses=responses,
        logprobs={
            "base": {"p0": -3.0, "p1": -2.0, "p2": -4.0},
            "other": {"p0": -3.0, "p1": None, "p2": -9.0},
        },
        scores={"base": scores(0.25, 0.5, None), "other": scores(0.5, 0.75, 1.0)},
        labels={"base": scores(0.25, None), "other": {}},
        checks=[check],
        models={},
    )  # fmt: skip
    analysis = analysed(drawn(2.0), NAMES)
    report = oracle_analysis.report(analysis, {}, tmp_path, collection=collected.info)
    agreed("oracle_collected", report, {"collection": collected.info})


def test_the_status_of_a_collection(tmp_path: Path):
    before = said(tmp_path, *PROBES, "status=true")
    ran(tmp_path, *PROBES)
    after = said(tmp_path, *PROBES, "status=true")
    golden.same("oracle_status.txt", f"{before}\n\n{after}")


@pytest.mark.parametrize("n", [60, 200])
def test_a_grid(tmp_path: Path, n: int):
    """Of few prompts nothing may be reported; of more the headlines are."""
    worlds = {
        name: World(n=n, shift=shift, style=0.1, labelled=1.0, n_own=n)
        for name, shift in {"near": 0.2, "far": -1.0}.items()
    }
    write(several(3, **worlds), tmp_path)
    files = [
        f"oracle.logged={tmp_path}/logged.jsonl",
        f"oracle.fresh_dir={tmp_path}/fresh",
    ]
    axes = (
        f"grid.sizes=[{n // 2},{n}]",
        "grid.label_shares=[0.25,1.0]",
        "grid.seeds=2",
    )
    chosen = ("oracle.grid=true", f"estimator=[{','.join(NAMES)}]", *COMMON)
    report, _ = ran(tmp_path, *chosen, *files, *axes)
    agreed(f"grid_{n}", report, {})
