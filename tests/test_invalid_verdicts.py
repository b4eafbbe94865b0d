"""Invalid verdicts by entrant: shares by hand, and what the test and the bounds promise."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from elo_exp.analysis.judge_quality import InvalidShare, bound_rating, invalid_shares
from elo_exp.records import Battle, Judgment
from tests.simulation import BRADLEY_TERRY, Tournament


def judgment(prompt: str, a: str, b: str, *, invalid: bool) -> Judgment:
    return Judgment(
        prompt_id=prompt,
        dimension="d",
        entrant_a=a,
        entrant_b=b,
        winner=None,
        inconsistent=False,
        invalid=invalid,
        raw=(),
    )


def shares(judgments: Sequence[Judgment]) -> dict[str, InvalidShare]:
    return {row.model: row for row in invalid_shares(judgments, dimension="d")}


def test_shares_of_three_entrants_by_hand():
    """Each meets the others once on ten prompts; the judge fails on a against b on the first six."""
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    rows = [
        judgment(f"q{q}", *pair, invalid=pair == ("a", "b") and q < 6)
        for q in range(10)
        for pair in pairs
    ]
    found = shares(rows)
    counts = {m: (row.n_invalid, row.n_judgments) for m, row in found.items()}
    assert counts == {"a": (6, 20), "b": (6, 20), "c": (0, 20)}
    assert [row.share for row in found.values()] == [0.3, 0.3, 0.0]
    # On each of the six: a and b 1/2, c 0, the mean 1/3.
    of_c = stats.ttest_1samp([-1 / 3] * 6 + [0] * 4, 0).pvalue
    assert found["c"].p_holm == pytest.approx(3 * of_c)
    assert found["c"].differs


def test_without_an_invalid_verdict_nothing_is_tested():
    rows = [judgment(f"q{q}", "a", "b", invalid=False) for q in range(5)]
    assert [row.p_holm for row in shares(rows).values()] == [None, None]
    assert shares([]) == {}


def drawn(
    rng: np.random.Generator, *, of_losses: float, of_all: float
) -> tuple[Tournament, list[Battle], list[Judgment]]:
    """Four entrants on 143 prompts; a share of a's losses is invalid, and a share of all verdicts."""
    world = Tournament()
    rows = world.battles(143, rng)
    valid, judgments = [], []
    for row in rows:
        lost = row.winner == "model_b" and row.model_a == "a"
        fails = rng.random() < (of_losses if lost else of_all)
        judgments.append(
            judgment(str(row.question_id), row.model_a, row.model_b, invalid=fails)
        )
        valid += [] if fails else [row]
    return world, valid, judgments


@pytest.mark.slow
def test_failures_on_losses_are_found_and_bounded_and_failures_at_random_are_not():
    rng = np.random.default_rng(7)
    found, covered = [], []
    for _ in range(200):
        world, valid, judgments = drawn(rng, of_losses=0.3, of_all=0.0)
        found.append(shares(judgments)["a"].differs)
        low, high = bound_rating(valid, judgments, [], "a", BRADLEY_TERRY.rate)
        assert low is not None
        assert high is not None
        covered.append(low <= 1400 + world.true_ratings()[0] <= high)
    alarms = [
        any(
            row.differs
            for row in shares(drawn(rng, of_losses=0.05, of_all=0.05)[2]).values()
        )
        for _ in range(400)
    ]
    print(
        f"found {np.mean(found):.3f}, covered {np.mean(covered):.3f}, false alarms {np.mean(alarms):.3f}"
    )
    assert np.mean(found) > 0.95
    assert np.mean(covered) > 0.95
    assert np.mean(alarms) < 0.08
