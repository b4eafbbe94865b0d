"""experiment=gate: a candidate against the recorded answers of a baseline."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import ttest_1samp
from statsmodels.stats.power import TTestPower

from elo_exp.analysis.gate import Share, decide, pass_probability, share_of_points
from elo_exp.data.battles import SCORES
from elo_exp.experiments.gate import EXIT_CODES, GateSettings
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import SCRIPTS, Ran, attempt, attempt_program, run
from tests.documented import blocks
from tests.readers_machine import answered
from tests.simulation import Tournament, in_one_order

SMALL = (
    "+mode.strata.medqa=30",
    "rubric=[factuality]",
    "tracker=local",
    "figures=false",
)


def share(points: np.ndarray, margin: float = 0.1, n_dimensions: int = 1) -> Share:
    return share_of_points(
        points, margin=margin, alpha=0.05, dimension="d", n_dimensions=n_dimensions
    )


def test_bounds_are_those_of_scipys_one_sided_tests():
    """Of 30 prompts 16 are won, 4 tied and 10 lost: 18 points, .6."""
    points = np.repeat([1.0, 0.5, 0.0], [16, 4, 10])
    found = share(points, n_dimensions=3)
    low, high = (
        ttest_1samp(points, 0.5, alternative=side).confidence_interval(level)
        for side, level in (("greater", 0.95), ("less", 1 - 0.05 / 3))
    )
    assert found.share == 0.6
    assert (found.low, found.high) == pytest.approx((low.low, high.high))
    assert share(points[::2]).low is None  # of fewer than 20 prompts


def test_a_margin_in_elo_points_is_one_of_the_share_of_points():
    settings = GateSettings(
        baseline="", margin=0.1, margin_elo=20, alpha=0.05, comment=None
    )
    assert settings.margin == pytest.approx(0.02875, abs=1e-5)


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ([(0.41, 0.6), (0.45, 0.49)], "pass"),
        ([(0.39, 0.6), (0.45, 0.6)], "cannot tell"),
        ([(0.39, 0.6), (0.35, 0.49)], "fail"),
        ([(0.45, 0.6), (None, None)], "cannot tell"),
    ],
)
def test_every_dimension_has_to_pass_and_one_suffices_to_fail(
    bounds: list[tuple[float | None, float | None]], verdict: str
):
    shares = [
        Share(dimension="d", n_prompts=30, low=low, high=high) for low, high in bounds
    ]
    assert decide(shares, margin=0.1) == verdict


@pytest.mark.parametrize(("n", "sd", "margin"), [(90, 0.378, 0.1), (143, 0.5, 0.05)])
def test_statsmodels_finds_the_same_chance_to_pass(n: int, sd: float, margin: float):
    expected = TTestPower().power(margin / sd, n, 0.05, alternative="larger")
    assert pass_probability(n, sd, margin, 0.05) == pytest.approx(expected, abs=1e-6)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tournament of all probes, and a gate that the hedged one passes against itself."""
    folder = tmp_path_factory.mktemp("gate")
    run(*SMALL, "elo.n_perms=5", "hydra.run.dir=four", folder=folder)
    hedged = "gate.baseline=four/responses/responses_probe_hedged.jsonl"
    given = ("experiment=gate", *SMALL, "entrant=probe_hedged", hedged)
    run(*given, "hydra.run.dir=baselines/main", folder=folder)
    row = '{"prompt_id": "p", "source": "medqa", "subject": "s", "text": "Why?"}\n'
    (folder / "bank.jsonl").write_text(row, encoding="utf-8")
    return folder


def gate(*given: str, folder: Path) -> Ran:
    """Against the candidate of an earlier gate, by its folder."""
    main = ("experiment=gate", *SMALL, "gate.baseline=baselines/main")
    return attempt(*main, *given, folder=folder)


@pytest.mark.parametrize(
    ("given", "code", "verdict"),
    [
        (("entrant=probe_reference",), 0, "pass"),
        (("entrant=probe_swapped",), 1, "fail"),
        (("entrant=probe_swapped", "judging.limit_pairs=10"), 3, "cannot tell"),
    ],
)
def test_the_exit_code_is_the_verdict(
    given: tuple[str, ...], code: int, verdict: str, folder: Path
):
    ran = gate(*given, folder=folder)
    assert ran.code == code, ran.err
    comment = (folder / "gate.md").read_text(encoding="utf-8")
    assert comment.startswith(f"## Gate: {verdict}\n") and comment in ran.out
    assert "\nWorst prompts:\n" in comment
    assert "Judge not audited" in comment
    assert ("at least 20 prompts" in comment) == (code == 3)
    assert ran.read("gate.json")["verdict"] == verdict
    page = ran.page.text
    assert f"<h1>Gate: {verdict}</h1>" in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("gate.baseline=four", "four has the answers of 4 entrants"),
        ("entrant=[]", "Expected one candidate"),
        ("prompts.bank_path=bank.jsonl", "another bank (bank.jsonl)"),
        ("rubric=[calibration]", "another rubric calibration"),
    ],
)
def test_what_cannot_be_compared_is_refused(given: str, words: str, folder: Path):
    ran = gate("entrant=probe_partial", given, "plan=true", folder=folder)
    assert ran.code == 2 and words in ran.err


def test_a_plan_gives_the_chance_that_an_equal_candidate_passes(folder: Path):
    ran = gate("entrant=probe_partial", "plan=true", folder=folder)
    assert f"P(pass | equal) = {pass_probability(30, 0.371, 0.1, 0.05):.2f}" in ran.out
    assert "87 prompts give .80" in ran.out


def test_the_workflow_of_the_page_runs_and_pays_for_nothing_twice(folder: Path):
    (block,) = (b for b in blocks("docs/decide.md") if b.kind == "yaml")
    steps = yaml.safe_load(block.text)["jobs"]["gate"]["steps"]
    entrant = folder / "conf/entrant/candidate.yaml"
    entrant.parent.mkdir(parents=True)
    with AnthropicServer(verdicts=longer, outcomes=answered) as server:
        entrant.write_text(
            "# @package entrant.candidate\ndefaults: [claude@_here_, _self_]\n"
            f"entrant_id: candidate\nbase_url: {server.url}\n",
            encoding="utf-8",
        )
        variables = {
            "PATH": f"{SCRIPTS}:/usr/bin:/bin",
            "ANTHROPIC_API_KEY": server.key,
            "GITHUB_STEP_SUMMARY": "summary.md",
            "NO_PROXY": "127.0.0.1",
        }
        small = f"{SMALL[0]} '{SMALL[1]}' judge.base_url={server.url} judge="
        for _ in range(2):
            codes = [
                attempt_program(
                    *(
                        "bash",
                        "-c",
                        "pip() { :; }; " + step["run"].replace("judge=", small),
                    ),
                    folder=folder,
                    **variables,
                ).code
                for step in steps
                if "run" in step
            ]
            assert codes == [0, 1, 0]
        assert set(server.meter.billed_bodies.values()) == {1}
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert summary.count("## Gate: fail\n") == 2


# How often it errs


def drawn(expected: float, n: int, runs: int, orders: str) -> np.ndarray:
    """The points (runs, n) of an entrant that scores so much, a fifth of the verdicts being ties."""
    won = 0.5 + (expected - 0.5) / 0.8
    world = Tournament(ratings=(0.0, 400 * math.log10((1 - won) / won)))
    rng = np.random.default_rng(n)
    battles = world.columns(n * runs, rng)
    if orders == "one":
        return in_one_order(battles, rng).scores().reshape(runs, n)
    both = SCORES[battles.verdict_ab] + SCORES[battles.verdict_ba]
    return both.reshape(runs, n) / 2


@pytest.mark.slow
@pytest.mark.parametrize("orders", ["both", "one"])
@pytest.mark.parametrize("margin", [0.05, 0.1])
@pytest.mark.parametrize("n", [29, 60, 143, 400])
def test_it_errs_rarely_and_the_prompts_it_names_have_their_power(
    n: int, margin: float, orders: str
):
    """Passes at the margin and failures of equals in at most .06, and two Monte Carlo errors."""
    runs = 2000

    def rates(expected: float, n: int) -> tuple[dict[str, float], float]:
        found = [share(p, margin) for p in drawn(expected, n, runs, orders)]
        said = [decide([one], margin) for one in found]
        needed = np.median([one.n_needed for one in found])
        return {v: said.count(v) / runs for v in EXIT_CODES}, float(needed)

    most = 0.06 + 2 * math.sqrt(0.06 * 0.94 / runs)
    at_margin, _ = rates(0.5 - margin, n)
    equal, needed = rates(0.5, n)
    enough, _ = rates(0.5, round(needed))
    assert max(at_margin["pass"], equal["fail"]) <= most
    assert enough["pass"] == pytest.approx(0.8, abs=0.05)
