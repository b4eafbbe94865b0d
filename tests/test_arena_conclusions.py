"""What may be said of a placed model: one state from the evidence, and more doubt never says more."""

import json
from itertools import chain, combinations
from pathlib import Path

import pytest

from elo_exp.analysis.conclusions import Reason, Scope
from elo_exp.analysis.conclusions.arena_conclusion import (
    FIT_REASONS,
    REFUSALS,
    STATES,
    STATUS_BY_STATE,
    conclude,
)
from elo_exp.arena.placement import MissingResults
from elo_exp.files import read_json, write_jsonl
from elo_exp.ratings.leaderboard import Rating
from elo_exp.records import Comparison
from elo_exp.report.sentences.arena_sentences import explain_reason
from tests.arena_files import SCORE, TheJudge, World, placed

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
        (1031.0, 965.0, ["failures"], "caution"),
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
    names = (*REFUSALS[2:], *FIT_REASONS[:2], "raw", "style", "flips", "kin")
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
    assert set(STATUS_BY_STATE) == set(STATES)


# Missing results


def results(low: float | None, high: float | None, n_lacks: int = 5) -> MissingResults:
    ends = [None if one is None else row(one) for one in (low, high)]
    return MissingResults(
        n_battles=300,
        n_lacks=n_lacks,
        n_failed=0,
        n_unjudged=2,
        low=ends[0],
        high=ends[1],
    )


def test_missing_results_are_a_reason_if_they_could_move_a_rating_by_a_quarter_of_its_half_width():
    """The interval is 1031 [965, 1097], so that the limit is 16.5 points."""
    assert results(1015.0, 1047.0).list_reasons(row()) == []
    (reason,) = results(1014.0, 1031.0).list_reasons(row())
    assert (reason.name, reason.value) == ("failures", 7.0)
    assert explain_reason(reason, conclude(row(), [reason], SCOPE)) == (
        "7 of its 300 battles have no result. Its rating is 1014 if it lost all of them, and 1031 if it won the battles "
        "with an unknown result"
    )
    (unknown,) = results(None, 1031.0).list_reasons(row())
    assert "its position is unknown" in explain_reason(
        unknown, conclude(row(), [], SCOPE)
    )


@pytest.mark.system
def test_missing_answers_of_a_placed_model_are_its_losses_at_one_end(tmp_path: Path):
    """`mine` has no answer where it would have been worst, an empty one, and unreadable verdicts."""
    anchors = {f"m{i}": 1000 + 40.0 * (i - 4.5) for i in range(10)}
    world = World(anchors=anchors, placed={"mine": 1000.0}, n_battles=200)
    folder = world.write(tmp_path)
    path = folder / "responses_mine.jsonl"
    answers = [json.loads(line) for line in path.read_text().splitlines()]
    answers.sort(key=lambda one: float(SCORE.findall(one["response_text"])[0]))
    answers[60]["response_text"] = ""
    write_jsonl(path, answers[60:])
    given = ("arena.n_battles=150", "allow_missing=true", "figures=false")
    found = placed(
        world, folder, *given, judge=TheJudge(scores=empty_loses, spoilt="?", every=50)
    )
    row = read_json(found.run_dir / "elo_ratings.json")["conclusions"]["mine"]
    missing = row["missing"]
    assert row["state"] == "caution" and missing["n_battles"] == 150
    assert 30 <= missing["n_lacks"] < 60 and 1 <= missing["n_unjudged"] <= 4
    assert missing["rating_if_lost"] < row["rating"] - 50
    assert missing["rating_if_won"] > row["rating"]
    assert missing["n_failed"] == 0  # nobody knows why a file lacks an answer
    assert "failures" in {reason["name"] for reason in row["reasons"]}
    assert "If it lost all of these" in found.report.text


def empty_loses(shown: Comparison) -> list[float]:
    texts = (shown.response_a, shown.response_b)
    return [float(SCORE.findall(text)[0]) if text else -9.0 for text in texts]
