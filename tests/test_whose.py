"""Whose taste the points are, in one line."""

import pytest

from elo_exp.analysis.conclusions import Scope
from elo_exp.report.words.whose import of_gold, whose


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            Scope(judge="opus", n_prompts=1143),
            "Points are opus's taste on these 1,143 prompts. Intervals cover other prompts, not "
            "another judge.",
        ),
        (
            Scope(),
            "Points are an unnamed judge's taste on these prompts. Intervals cover other prompts, "
            "not another judge.",
        ),
        (
            Scope(judge="lexical", kind="words", n_prompts=93),
            "Points count shared words and say nothing about quality.",
        ),
        (
            Scope(kind="people", source="votes.csv"),
            "Points are the votes in votes.csv.",
        ),
        (Scope(kind="scores", source="a.json"), "Scores are those in a.json."),
    ],
)
def test_a_line_names_whose_taste_the_points_are(scope: Scope, words: str):
    assert whose(scope) == words


def test_an_audited_judge_is_held_against_its_gold_labels():
    assert (
        of_gold(0.834, 0.781, 0.873, 240)
        == "It agrees with the gold labels on 83 % [78, 87] of 240 pairs."
    )
