"""The decision on each probe of an audit, and where later runs find it."""

import dataclasses
from types import SimpleNamespace as Row
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elo_exp import pipeline
from elo_exp.analysis import audit_decisions
from elo_exp.analysis.audit_decisions import Measure, decide, detectable_effects
from elo_exp.analysis.conclusions.audit_conclusion import conclude_judge
from elo_exp.experiments.stored_audits import load_stored_audits
from elo_exp.files import write_json
from elo_exp.report.sentences import audit_sentences as words
from elo_exp.report.sentences.check_sentences import effect_to_points
from elo_exp.store.answer_store import Store
from tests.commands import attempt
from tests.data import shipped
from tests.simulated_audits import DELTA, FAULTS, JUDGES, contrasts


def probed(*values: float, kind: Any = "bias", bound: float = 0.05) -> Measure:
    return Measure(name="p", kind=kind, bound=bound, values=np.array(values))


def decided(*values: float, kind: str = "bias", bound: float = 0.05) -> Row:
    (row,) = decide([probed(*values, kind=kind, bound=bound)], DELTA)
    return Row(**row)


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
    assert (result.verdict, result.estimate) == ("biased", 0.25)
    assert result.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    significant_but_small = decided(*np.tile([0.03, 0.01], 200))
    assert significant_but_small.verdict == "ok"
    assert significant_but_small.p_value < 1e-9


def test_prompts_without_a_valid_verdict_count_against_a_result():
    """A judge that is unreadable wherever it would have shown its bias is not ok, and one that may have been steady
    there is not biased."""
    steady, biased = probed(*[0.0] * 140), probed(*np.tile([0.5, 0.5, 0.5, -0.5], 20))
    for one, verdict in ((steady, "ok"), (biased, "biased")):
        found = [
            decide([dataclasses.replace(one, n_unanswered=n)], DELTA)[0]["verdict"]
            for n in (0, 1, 60)
        ]
        assert found == [verdict, verdict, "cannot tell"]


RIGHT, HALF = [1.0] * 80 + [0.0] * 20, [1.0] * 50 + [0.0] * 50


@pytest.mark.parametrize(
    ("values", "kind", "bound", "verdict"),
    [
        (RIGHT, "floor", 0.6, "ok"),
        (HALF, "floor", 0.75, "biased"),
        (RIGHT, "share", 0.05, "biased"),
        ([0.0] * 100, "share", 0.05, "ok"),
        (HALF, "reported", 0.05, "reported"),
        ([], "bias", 0.05, "cannot tell"),
    ],
)
def test_floors_and_shares_are_decided_on_their_own_side(values, kind, bound, verdict):
    result = decided(*values, kind=kind, bound=bound)
    assert (result.verdict, result.n) == (verdict, len(values))
    assert (result.estimate is None) == (not values)
    if kind in ("share", "floor") and any(values):
        side = "greater" if kind == "share" else "less"
        expected = stats.ttest_1samp(values, bound, alternative=side).pvalue
        assert result.p_value == pytest.approx(expected)


def test_an_interval_ends_at_what_its_mean_can_be():
    assert decided(*[0.0] * 100, kind="share").low == 0.0
    perfect = decided(*[1.0] * 20, kind="floor", bound=0.75)
    assert perfect.low < 1.0 == perfect.high
    # a difference of kappas may be negative
    lower = decided(*[-0.09] * 99, kind="floor", bound=-0.1)
    assert (lower.verdict, lower.low < -0.1) == ("cannot tell", True)


@pytest.mark.parametrize(
    ("effect", "said"), [(0.25, "191"), (-0.25, "−191"), (0.0, "0"), (None, "–")]
)
def test_a_bias_in_points_is_the_difference_of_ratings_that_moves_a_share_as_far(
    effect: float | None, said: str
):
    """From one half to three quarters, which is three wins for one loss: 400 log10(3) points."""
    assert effect_to_points(effect) == said


def test_holm_counts_all_probes_but_the_reported():
    values = np.tile([0.5, 0.0, 0.0, -0.25], 10)
    others = probed(*[0.0] * 40), probed(*values, kind="reported")
    rows = decide([probed(*values), *others], DELTA)
    found = {(row["kind"], row["estimate"]): row["p_value"] for row in rows}
    assert found["bias", 0.0625] == pytest.approx(2 * decided(*values).p_value)
    assert found["reported", 0.0625] is None


@pytest.mark.parametrize("sd", [0.1, 0.3])
def test_prompts_needed_give_the_interval_its_length(sd: float):
    ((_, n, effect, need),) = detectable_effects([probed(*[-sd, sd] * 50)])
    error = np.sqrt(sd**2 / need + 2 / need**2)
    assert (1.645 + 1.282) * error == pytest.approx(0.05, rel=0.01)
    z = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    assert effect == pytest.approx(z * sd / np.sqrt(n))


@pytest.mark.parametrize(
    ("verdicts", "state", "sentence"),
    [
        ([], "cannot tell", "j on d: 0 of 0 tests ok, 0 biased, 0 cannot tell"),
        (["ok", "reported"], "ok", "j on d: 1 of 1 tests ok, 0 biased, 0 cannot tell"),
        (
            ["ok", "cannot tell"],
            "cannot tell",
            "j on d: 1 of 2 tests ok, 0 biased, 1 cannot tell",
        ),
        (
            ["cannot tell", "biased", "ok", "biased"],
            "biased",
            "j on d: 1 of 4 tests ok, 2 biased (p1 and p3), 1 cannot tell",
        ),
    ],
)
def test_a_judge_is_ok_where_every_probe_that_decides_is(
    verdicts: list[str], state: str, sentence: str
):
    rows = [
        decide([probed(0.0)], DELTA)[0] | {"probe": f"p{i}", "verdict": verdict}
        for i, verdict in enumerate(verdicts)
    ]
    conclusion = conclude_judge(rows, judge="j", dimension="d", n_prompts=93)
    assert (conclusion.state, words.describe_conclusion(conclusion)) == (
        state,
        sentence,
    )
    assert [reason.about["verdict"] for reason in conclusion.reasons] == sorted(
        verdict for verdict in verdicts if verdict in ("biased", "cannot tell")
    )


def test_what_console_and_page_say_of_a_probe():
    row = {"verdict": "cannot tell", "need": 1200, "kind": "bias", "n": 30}
    assert words.verdict(row) == "cannot tell: needs 1,200 prompts"
    assert words.verdict(row | {"need": None}) == "cannot tell"
    assert words.elo(row | {"estimate": 0.05}) == "+35"
    assert words.elo(row | {"estimate": 0.05, "kind": "share"}) == "–"
    told = [
        words.format_bound(kind, 0.1) for kind in ("bias", "share", "floor", "reported")
    ]
    assert told == ["± 0.10", "< 0.10", "> 0.10", "–"]
    twin = {"probe": "twin", "estimate": 0.5}
    assert words.orders("d", 4, 1, [twin]) == (
        "d: Order changes the verdict in 25% of pairs. An answer ties with itself in 50%."
    )
    assert words.orders("d", 0, 0, []) == ""


AUDIT: dict[str, Any] = {
    "date": "2026-11-02T10:00:00Z",
    "n_prompts": 143,
    "results": [
        {"probe": "longer", "kind": "bias", "verdict": "biased", "estimate": 0.2}
    ],
    "gold": [],
}


def test_a_run_finds_the_last_audit_of_its_judge_and_rubric_to_the_byte(tmp_path):
    judge, rubric = shipped("judge", "claude"), shipped("rubric", "factuality")
    with Store(tmp_path / "store.sqlite") as store:
        for n in (93, 143):
            path = audit_decisions.audit_path(
                tmp_path, pipeline.identify(judge).key, rubric.key
            )
            write_json(path, AUDIT | {"n_prompts": n})
        assert (
            load_stored_audits(judge, [rubric], store)["factuality"]["audit"][
                "n_prompts"
            ]
            == 143
        )
        judge.model = "claude-haiku-5-5"
        assert load_stored_audits(judge, [rubric], store) == {
            "factuality": {"audit": {}}
        }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n_prompts": "143"}, 'n_prompts must be a whole number; got "143".'),
        ({"date": 2026}, "date must be text; got 2026."),
        ({"results": {}}, "results must be a list, such as [A,B]; got {}."),
        ({"results": [{"probe": "p"}]}, "results.0 must be of a known kind; got"),
        (
            {"results": [AUDIT["results"][0] | {"verdict": "no"}]},
            "results.0 must be of a known kind; got",
        ),
        (
            {"results": [AUDIT["results"][0] | {"estimate": None}]},
            "estimate must be a valid number; got null.",
        ),
        (
            {"gold": [{"subset": "all", "accuracy": "most"}]},
            "gold.0.accuracy must be a number or null; got",
        ),
    ],
)
def test_a_stored_audit_that_none_wrote_is_refused_before_anybody_answers(
    wrong: dict[str, Any], said: str, tmp_path
):
    judge, rubric = shipped("judge", "lexical"), shipped("rubric", "factuality")
    cache = tmp_path / "outputs" / "cache"
    path = audit_decisions.audit_path(cache, pipeline.identify(judge).key, rubric.key)
    write_json(path, AUDIT | wrong)
    ran = attempt("rubric=[factuality]", "tracker=local", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    *_, line, last = ran.err.splitlines()
    assert "Traceback" not in ran.err
    assert line.startswith("elo_exp: outputs/cache/audits/") and said in line
    assert last.endswith("Without the file, the judge counts as not audited.")
    assert list(tmp_path.rglob("manifest.json")) == []


# Simulated judges


@pytest.mark.slow
@pytest.mark.parametrize("name", JUDGES)
def test_a_clean_judge_is_rarely_called_biased(name: str):
    alarms = 0
    for seed in range(200):
        found = decide(contrasts(JUDGES[name], "", 0, n=143, seed=seed), DELTA)
        alarms += any(result["verdict"] == "biased" for result in found)
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
            found = {row["probe"]: row["verdict"] for row in decide(asked, DELTA)}
            verdicts.setdefault(margins, []).append(found[FAULTS[fault]])
    assert verdicts[4].count("biased") >= 90
    assert verdicts[1].count("ok") <= 10
    assert "ok" not in verdicts[2] + verdicts[4]


@pytest.mark.slow
def test_the_power_that_a_plan_promises():
    rng, n, sd = np.random.default_rng(4), 238, 0.263
    ((_, _, effect, needed),) = detectable_effects([probed(*[-sd, sd] * (n // 2))])
    verdicts = [
        (
            decided(*rng.normal(0.0, sd, needed)).verdict,
            decided(*rng.normal(effect, sd, n)).p_value,
        )
        for _ in range(1000)
    ]
    assert np.mean([ok == "ok" for ok, _ in verdicts]) == pytest.approx(0.8, abs=0.04)
    assert np.mean([p < 0.05 for _, p in verdicts]) == pytest.approx(0.8, abs=0.04)
