"""The decision on each probe of an audit, and where later runs find it."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from elo_exp import pipeline
from elo_exp.analysis import audit
from elo_exp.analysis.audit import Measure, Result, decide
from elo_exp.experiments.judged import audits
from elo_exp.files import write_json
from elo_exp.store.store import Store
from tests.data import shipped
from tests.simulated_audits import DELTA, FAULTS, JUDGES, contrasts


def probed(*values: float, kind="bias", bound=0.05) -> Measure:
    return Measure(name="p", kind=kind, bound=bound, values=np.array(values))


def decided(*values: float, kind="bias", bound=0.05) -> Result:
    return decide([probed(*values, kind=kind, bound=bound)], 0.05)[0]


def test_equal_contrasts_keep_an_open_interval():
    """Two pseudo-prompts at a distance of 1: 93 zeros give ±.025, not ±0."""
    result = decided(*[0.0] * 93)
    assert result.verdict == "ok"
    assert (result.low, result.high) == pytest.approx((-0.025, 0.025), abs=5e-4)
    few = decided(*[0.0] * 20)
    assert few.verdict == "cannot tell"
    assert 20 < few.need < 100


def test_a_bias_is_a_t_test_and_needs_the_size():
    values = np.tile([0.5, 0.5, 0.5, -0.5], 20)
    result = decided(*values)
    assert result.verdict == "biased"
    assert result.estimate == 0.25
    assert result.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    significant_but_small = decided(*np.tile([0.03, 0.01], 200))
    assert significant_but_small.verdict == "ok"
    assert significant_but_small.p_value < 1e-9


def test_floors_and_shares_are_decided_on_their_own_side():
    right, wrong = [1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50
    assert decided(*right, kind="floor", bound=0.6).verdict == "ok"
    assert decided(*wrong, kind="floor", bound=0.75).verdict == "biased"
    assert decided(*right, kind="share").verdict == "biased"
    none = decided(*[0.0] * 100, kind="share")
    assert (none.verdict, none.low) == ("ok", 0.0)
    assert decided(*wrong, kind="reported").verdict == "reported"
    worked = decided(*wrong, kind="share", bound=0.3)
    expected = stats.ttest_1samp(wrong, 0.3, alternative="greater").pvalue
    assert worked.p_value == pytest.approx(expected)
    ladder = Measure(name="l", kind="floor", bound=0.75, values=np.ones(20))
    (perfect,) = decide([ladder], delta=0.05)
    assert perfect.low < 1.0 == perfect.high


def test_holm_counts_all_probes_but_the_reported():
    values = np.tile([0.5, 0.0, 0.0, -0.25], 10)
    alone = decide([probed(*values)], 0.05)[0]
    among = decide(
        [
            probed(*values),
            probed(*[0.0] * 40),
            probed(*values, kind="reported"),
        ],
        0.05,
    )
    assert among[0].p_value == pytest.approx(2 * alone.p_value)
    assert among[2].p_value is None


def test_without_a_contrast_nothing_is_decided():
    nothing = decided()
    assert (nothing.verdict, nothing.n, nothing.estimate) == ("cannot tell", 0, None)


@pytest.mark.parametrize("sd", [0.0, 0.1, 0.3])
def test_prompts_needed_give_the_interval_its_length(sd: float):
    n = audit.prompts_for_ok(sd, 0.05)
    error = np.sqrt(sd**2 / n + 2 / n**2)
    assert (1.645 + 1.282) * error == pytest.approx(0.05, rel=0.01)
    if sd:
        found = audit.smallest_effect(n, sd, 16)
        z = stats.norm.isf(0.05 / 32) + stats.norm.isf(0.2)
        assert found == pytest.approx(z * sd / np.sqrt(n))


def audit_of_judge(*results: Result, **changes: Any) -> dict[str, Any]:
    values = {
        "judge_key": "j",
        "rubric_key": "r",
        "n_prompts": 93,
        "date": "2026-11-22T10:00:00Z",
        "results": [result.to_dict() for result in results],
    }
    return values | changes


def test_a_run_finds_the_last_audit_of_its_judge_and_rubric_to_the_byte(tmp_path):
    judge, rubric = shipped("judge", "claude"), shipped("rubric", "factuality")
    keys = {"judge_key": pipeline.identify(judge).key, "rubric_key": rubric.key}
    with Store(tmp_path / "store.sqlite") as store:
        for n in (93, 143):
            path = audit.path(tmp_path, *keys.values())
            write_json(path, audit_of_judge(**keys, n_prompts=n))
        (found,) = audits(judge, [rubric], store).values()
        assert found["audit"]["n_prompts"] == 143
        judge.model = "claude-haiku-5-5"
        assert audits(judge, [rubric], store) == {"factuality": {"audit": {}}}


# Simulated judges


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGES)
def test_a_clean_judge_is_rarely_called_biased(name: str):
    alarms = 0
    for seed in range(200):
        found = decide(contrasts(JUDGES[name], "", 0, n=143, seed=seed), DELTA)
        alarms += any(result.verdict == "biased" for result in found)
    assert alarms / 200 <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", JUDGES)
def test_a_fault_of_four_margins_is_found_and_one_of_two_is_never_ok(
    name: str, fault: str
):
    verdicts: dict[int, list[str]] = {}
    for margins in (1, 2, 4):
        for seed in range(100):
            asked = contrasts(JUDGES[name], fault, margins, n=143, seed=1000 + seed)
            found = {result.probe: result for result in decide(asked, DELTA)}
            verdicts.setdefault(margins, []).append(found[FAULTS[fault]].verdict)
    assert verdicts[4].count("biased") >= 90
    assert verdicts[1].count("ok") <= 10
    assert "ok" not in verdicts[2] + verdicts[4]


@pytest.mark.slow
def test_the_power_that_a_plan_promises():
    rng, n, sd = np.random.default_rng(4), 238, 0.263
    needed = audit.prompts_for_ok(sd, DELTA)
    effect = audit.smallest_effect(n, sd, 1)
    verdicts = [
        (
            decided(*rng.normal(0.0, sd, needed)).verdict,
            decided(*rng.normal(effect, sd, n)).p_value,
        )
        for _ in range(1000)
    ]
    assert np.mean([ok == "ok" for ok, _ in verdicts]) == pytest.approx(0.8, abs=0.04)
    assert np.mean([p < 0.05 for _, p in verdicts]) == pytest.approx(0.8, abs=0.04)
