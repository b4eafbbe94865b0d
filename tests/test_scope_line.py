"""What the points of a run cover, in one line."""

import pytest

from elo_exp.analysis.conclusions import Gold, Scope
from elo_exp.report.sentences.scope_line import describe_run_scope, describe_scope


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            Scope(judge="opus", n_prompts=1143),
            "These points reflect the preferences of opus on 1,143 prompts. Another judge may disagree, "
            "which the intervals do not cover.",
        ),
        (
            Scope(),
            "These points reflect the preferences of an unnamed judge on these prompts. Another judge may "
            "disagree, which the intervals do not cover.",
        ),
        (
            Scope(judge="lexical", kind="words", n_prompts=93),
            "Points count shared words and say nothing about quality.",
        ),
        (
            Scope(kind="people", source="votes.csv"),
            "These points reflect the votes in votes.csv.",
        ),
        (Scope(kind="scores", source="a.json"), "The scores are those in a.json."),
    ],
)
def test_a_line_names_whose_preferences_the_points_reflect(scope: Scope, words: str):
    assert describe_scope(scope) == words


PAIRS = {"subset": "all", "accuracy": 0.834, "low": 0.781, "high": 0.873, "n": 240}
AGREES = "agrees with the gold labels on 83% [78, 87] of 240 pairs."


def test_an_audited_judge_is_held_against_its_gold_labels():
    gold = Gold.of({"gold": [PAIRS, {**PAIRS, "subset": "law"}]})
    assert gold is not None
    assert describe_scope(Scope(judge="opus", n_prompts=93, gold=gold)) == (
        "These points reflect the preferences of opus on 93 prompts. Another judge may disagree, which the "
        f"intervals do not cover. It {AGREES}"
    )
    with_invalid = Gold.of({"gold": [{**PAIRS, "n_invalid": 9}]})
    assert with_invalid is not None
    assert describe_scope(Scope(judge="opus", gold=with_invalid)).endswith(
        "on 83% [78, 87] of 240 pairs, 9 without a valid verdict."
    )
    assert Gold.of({}) is None  # not audited
    assert Gold.of({"gold": [{**PAIRS, "accuracy": None}]}) is None


def test_of_several_rubrics_those_with_gold_labels_are_named():
    gold, opus = Gold.of({"gold": [PAIRS]}), Scope(judge="opus", n_prompts=93)
    assert describe_run_scope(opus, {"d": gold}).endswith(f"cover. It {AGREES}")
    assert describe_run_scope(opus, {"d": gold, "e": None}).endswith(
        f"cover. On d it {AGREES}"
    )
    assert describe_run_scope(opus, {"d": None}) == describe_scope(opus)
    words = Scope(judge="lexical", kind="words")
    assert describe_run_scope(words, {"d": gold}) == describe_scope(words)
