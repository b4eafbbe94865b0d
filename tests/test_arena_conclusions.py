"""What may be said of a placed model: one state from the evidence, and more doubt never says more."""

from itertools import chain, combinations

import pytest

from elo_exp.analysis.conclusions import Reason, Scope
from elo_exp.analysis.conclusions.arena import (
    OF_FIT,
    REFUSALS,
    STATES,
    STATUS,
    conclude,
)
from elo_exp.ratings.leaderboard import Rating

SCOPE = Scope(judge="gpt-4", dimension="preference", source="file")


def row(rating: float | None = 1031.0, low: float | None = 965.0) -> Rating:
    high = None if low is None else 1097.0
    return Rating(model="mine", rating=rating, ci_low=low, ci_high=high, n_battles=300)


@pytest.mark.parametrize(
    ("rating", "low", "reasons", "state"),
    [
        (1031.0, 965.0, [], "placed"),
        (1031.0, 965.0, ["no_kin_anchor"], "caution"),
        (1031.0, 965.0, ["flips"], "caution"),
        (1031.0, 965.0, ["raw"], "caution"),
        (1031.0, 965.0, ["style"], "caution"),
        (1031.0, None, [], "no_interval"),
        (None, None, ["unrated"], "unrated"),
        (None, None, ["distances", "flips"], "refused"),
    ],
)
def test_the_first_state_that_applies(
    rating: float | None, low: float | None, reasons: list[str], state: str
):
    found = conclude(row(rating, low), [Reason(name=name) for name in reasons], SCOPE)
    assert (found.state, found.subject) == (state, "mine")
    assert found.effect is not None
    assert (found.effect.value, found.effect.low) == (rating, low)


def test_more_doubt_never_says_more_and_the_weightiest_reason_is_the_first():
    names = (*REFUSALS[2:], *OF_FIT[:2], "raw", "style", "flips", "kin")
    subsets = [*chain.from_iterable(combinations(names, n) for n in range(4))]
    states = {}
    for some in subsets:
        reasons = [Reason(name=name) for name in reversed(some)]
        found = conclude(row(), reasons, SCOPE)
        assert [reason.name for reason in found.reasons] == [*some]
        states[frozenset(some)] = STATES.index(found.state)
    for some, state in states.items():
        less = (some - {name} for name in some)
        assert all(state <= states[fewer] for fewer in less)
    assert set(STATUS) == set(STATES)
