"""The lexical judge: its signals, its margin, and a position effect put there on purpose."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.data import bank
from elo_exp.data.pairing import pair_up
from elo_exp.judges.lexical import hedging_score, overlap, specificity
from elo_exp.records import Comparison, Judgment
from elo_exp.store.answer_store import Store
from tests.data import BANK, DIMENSIONS, PROBES, judged, letters, shipped

RUBRICS = {dimension: shipped("rubric", dimension) for dimension in DIMENSIONS}
LEXICAL = shipped("judge", "lexical")


def comparison(
    response_a: str = "Firm pressure.",
    response_b: str = "A prayer.",
    *,
    dimension: str = "factuality",
    **shown: Any,
) -> Comparison:
    return Comparison(
        prompt_id="p1",
        dimension=dimension,
        source="medqa",
        prompt_text="What stops bleeding from a wound?",
        entrant_a="ann",
        entrant_b="bob",
        response_a=response_a,
        response_b=response_b,
        **{"gold_answer": "Firm pressure on the wound.", **shown},
    )


@pytest.fixture(scope="module")
def probed() -> dict[str, list[Comparison]]:
    """Comparisons of the shipped probes on the shipped bank, by dimension."""
    prompts = bank.load_bank(BANK)
    responses = {
        name: {
            r.slot: r
            for r in shipped("entrant", name, entrant_id=name).generate(prompts)
        }
        for name in PROBES
    }
    return {
        dimension: pair_up(prompts, responses, rubric)
        for dimension, rubric in RUBRICS.items()
    }


def judge_all(
    judge: Any, folder: Path, comparisons: dict[str, list[Comparison]]
) -> dict[str, list[Judgment]]:
    with Store(folder / "store.sqlite") as store:
        return pipeline.judge_pairs(comparisons, list(RUBRICS.values()), judge, store)


@pytest.fixture(scope="module")
def demo(probed, tmp_path_factory) -> dict[str, list[Judgment]]:
    """The demo's judgments: the probes judged by the shipped lexical judge."""
    return judge_all(LEXICAL, tmp_path_factory.mktemp("demo"), probed)


# The lexical judge on the probes


def standing(judgments: Sequence[Judgment]) -> list[str]:
    """The entrants by their wins, best first; a tie is half a win of both."""
    wins: Counter[str] = Counter()
    for one in judgments:
        for name in (one.entrant_a, one.entrant_b):
            wins[name.removeprefix("probe_")] += (
                0.5 if one.winner is None else one.winner == name
            )
    return [name for name, _ in wins.most_common()]


@pytest.mark.system
def test_the_probes_come_out_in_their_known_order(demo):
    """As elo_exp/entrants/probe.py documents it."""
    by_claims = ["reference", "hedged", "partial", "swapped"]
    assert {
        dimension: standing(judgments) for dimension, judgments in demo.items()
    } == {
        "factuality": by_claims,
        "calibration": ["reference", "partial", "swapped", "hedged"],
        "clinical_utility": by_claims,
    }


# The lexical judge's signals


def test_overlap_weighs_recall_nine_times():
    """Of 'firm pressure wound', 'pressure bandage' has one word: 10 * 1 / (9 * 3 + 2)."""
    assert overlap(comparison(), "Pressure and a bandage.") == pytest.approx(10 / 29)
    assert overlap(comparison(), "Firm pressure on the wound!") == 1.0
    assert overlap(comparison(), "A prayer.") == 0.0
    # Without a reference, of the question's 'stop bleeding wound', two words.
    without = comparison(gold_answer=None)
    assert overlap(without, "It stops the bleeding.") == pytest.approx(20 / (27 + 2))


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("Press on the wound.", {"answer": 1.0, "hedge": 0.5, "abstain": 0.0}),
        ("It depends on the vessel.", {"answer": 0.5, "hedge": 1.0, "abstain": 0.5}),
        ("I cannot answer this.", {"answer": 0.0, "hedge": 0.5, "abstain": 1.0}),
    ],
)
def test_hedging_is_how_near_the_commitment_is_to_the_expected_one(text, scores):
    for behavior, score in scores.items():
        assert hedging_score(comparison(expected_behavior=behavior), text) == score
    assert hedging_score(comparison(expected_behavior=None), text) == scores["answer"]


def test_specificity_rises_with_content_on_the_topic_and_falls_with_stock_phrases():
    """Words / (words + 15) * shared / (shared + 3) * .95 for each stock phrase."""
    shown = comparison()
    plain = specificity(shown, "Press the bleeding wound.")
    assert plain == pytest.approx(3 / 18 * 2 / 5)
    stock = specificity(shown, "Press the bleeding wound. Consult a doctor.")
    assert stock == pytest.approx(plain * 0.95)
    assert specificity(shown, "Press elsewhere.") == 0.0


def test_another_dimension_is_judged_by_the_default_signal(tmp_path):
    """Specificity: the answer that repeats the reference has no word of the question."""
    rubric = shipped("rubric", "clinical_utility", dimension="empathy")
    answers = ("Firm pressure.", "Stop the bleeding: press on the wound.")
    shown = comparison(*answers, dimension="empathy")
    with Store(tmp_path / "store.sqlite") as store:
        found = pipeline.judge_pairs({"empathy": [shown]}, [rubric], LEXICAL, store)
    assert [judgment.winner for judgment in found["empathy"]] == ["bob"]


# The lexical judge as a judge


def test_scores_within_the_margin_are_a_tie(tmp_path):
    """Firm pressure: 20 / 29 = .69. The same and one word more: 20 / 30 = .67."""
    shown = comparison("Firm pressure.", "Firm pressure always.")
    for margin, verdicts in ((0.05, "TIE TIE"), (0.02, "A B")):
        (judgment,) = judged(
            shipped("judge", "lexical", margin=margin), tmp_path, shown
        )
        assert letters(judgment) == verdicts


# A position effect, put there on purpose


@pytest.mark.system
def test_a_position_effect_flips_its_share_of_the_judgments_and_no_others(
    demo, probed, tmp_path
):
    """.3 of 733 comparisons of different answers: within three standard errors (.017)."""
    judge = shipped("judge", "lexical", position_effect=0.3)
    affected = judge_all(judge, tmp_path, probed)
    judgments = affected["clinical_utility"]
    quality = judge_quality(judgments, dimension="clinical_utility")
    assert (quality.n_judgments, quality.n_two_order) == (858, 733)
    assert quality.n_equal_answers == 125
    assert quality.flip_rate == pytest.approx(0.3, abs=0.051)
    assert (
        sum(letters(j) == "A A" and not j.equal_answers for j in judgments)
        == quality.n_flips
    )
    assert quality.first_shown_rate is not None
    assert quality.first_shown_rate > 0.6
    for dimension in DIMENSIONS:
        for before, after in zip(demo[dimension], affected[dimension], strict=True):
            assert after.inconsistent or after.winner == before.winner
