"""What may be said of the first of a leaderboard: one state and one sentence from each evidence."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from elo_exp.analysis.checks import Check
from elo_exp.analysis.comparisons import Difference, Leader
from elo_exp.analysis.conclusions import Conclusion, Reason, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import (
    NO_RESULT_REASONS,
    STATES,
    UNDECIDED_REASONS,
    conclude,
    equal_answer_reasons,
    explain_undecided_lead,
    failed_check_reasons,
    is_measured,
    list_judge_reasons,
    list_other_reasons,
    stratum_reversal_reasons,
)
from elo_exp.analysis.diagnosis import StrataDiagnosis
from elo_exp.analysis.stratum_reversals import RivalAhead
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report.sentences import tournament_sentences as words
from tests.documented import read

ABOUT: dict[str, dict[str, Any]] = {  # what a reason's words need
    "no_result": {"kind": "first", "n": 60, "of": 60},
    "same": {"models": ["B"], "n_prompts": 100, "has_others": False},
    "level": {"models": ["B"], "is_equivalent": True, "margin": 70.4},
    "rivals": {"models": ["B", "C"]},
    "failures": {"models": ["B"]},
    "not_met": {"models": ["E", "F"]},
    "annotators": {"names": ["anna", "ben"]},
    "obeys": {"probes": ["injection:plain"]},
    "invalid_by_entrant": {"differing": [{"model": "A"}]},
    "kin": {"family": "Anthropic"},
    "chance": {"ci_low": -0.12, "ci_high": 0.10, "n_comparisons": 180},
    "people": {
        **{"rival": "B", "low": 10.0, "high": 170.0, "p_value": 0.01},
        **{"one_sided": False, "n_prompts": None},
    },
    "answers": {"kind": "phrases"},
    "support": {"model": "A", "feature": "length"},
    "stratum": {
        **{"stratum": "curated", "n_prompts": 50, "rival": "B", "ci_low": 5.0},
        **{"ci_high": 33.0, "p_holm": 0.02, "one_sided": False},
    },
}


@functools.cache
def reason(name: str, value: float | None = 0.23) -> Reason:
    about = ABOUT.get(name, {})
    value = 300.0 if name in ("unnamed_prompts", "unnamed_people") else value
    return Reason(
        name=name, value=value, about=about, judges=name in list_judge_reasons()
    )


def lead(**changes: Any) -> Leader:
    """A is 275 points ahead of B, its second."""
    ahead = {
        **{"dimension": "d", "higher": "A", "lower": "B", "difference": 275.2},
        **{"ci_low": 204.1, "ci_high": 346.3, "p_holm": 0.0002, "significant": True},
        **changes,
    }
    return Leader(
        model="A",
        second="B",
        lead=Difference(**ahead),
        level=(),
        below=("B", "C"),
        rivals=(),
        not_met=(),
    )


def one_sided(n_prompts: int = 60) -> Leader:
    return lead(
        **{"difference": None, "ci_low": 479.0, "ci_high": None},
        **{"one_sided": True, "n_prompts": n_prompts},
    )


def concluded(
    *reasons: str,
    first: Leader | None = lead(),  # noqa: B008
    kind: str = "model",
    n_prompts: int | None = 100,
    measured: bool = True,
) -> Conclusion:
    return conclude(
        first,
        [reason(name) for name in reasons],
        Scope(judge="opus", kind=kind, n_prompts=n_prompts),
        is_measured=measured,
    )


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [(), *((name,) for name in names), tuple(names)]


@pytest.mark.system
def test_more_doubt_never_says_more():
    check_that_doubt_says_less(step=7)


@pytest.mark.slow
def test_more_doubt_never_says_more_in_any_combination():
    check_that_doubt_says_less(step=1)


def check_that_doubt_says_less(step: int) -> None:
    """Each combination without a doubt of the judge or others, and each `step`-th of the rest, has one state.

    Each kind of doubt added to it says no more.
    """
    leaders = {"bounded": lead(), "one-sided": one_sided(), "none": None}
    seen, said = set(), set()
    every = product(
        leaders,
        (5, 100, None),
        (*subsets(UNDECIDED_REASONS), NO_RESULT_REASONS),
        ("model", "words", "people", "scores"),
        subsets(list_judge_reasons()),
        (True, False),
        subsets(list_other_reasons()),
    )

    @functools.cache
    def conclude_once(
        names: frozenset[str],
        leader: str,
        n_prompts: int | None,
        kind: str,
        measured: bool,
    ) -> tuple[str, str, str]:
        """Return the state, the sentence and the headline: many combinations are worse than several others."""
        conclusion = concluded(
            *sorted(names),
            first=leaders[leader],
            kind=kind,
            n_prompts=n_prompts,
            measured=measured,
        )
        headline = words.headline([conclusion])
        return conclusion.state, words.sentence(conclusion), headline

    n = 0
    for number, case in enumerate(every):
        leader, n_prompts, tests, kind, judges, measured, others = case
        if number % step and (judges or others):
            continue
        n += 1
        names = frozenset((*tests, *judges, *others))
        given = (names, leader, n_prompts, kind, measured)
        state, sentence, headline = conclude_once(*given)
        seen.add(state)
        said.add(sentence)
        rank = STATES.index(state)
        if state == "leads":
            assert not names and (measured or kind in ("people", "scores"))
            assert leader != "none" and n_prompts == 100
        elif "A leads B by" in sentence:
            assert state == "caution" and not judges and ", but " in sentence
            assert measured or kind in ("people", "scores")
        if kind == "words":
            assert "leads" not in sentence + headline
        for worse in (
            (names, leader, 5, kind, measured),
            (names, leader, None, kind, measured),
            (names, leader, n_prompts, "words", measured),
            (names.union(list_judge_reasons()), *given[1:]),
            (names.union(list_other_reasons()), *given[1:]),
            (names.union(NO_RESULT_REASONS), *given[1:]),
            (names.union(UNDECIDED_REASONS), *given[1:]),
            (*given[:-1], False),
        ):
            assert STATES.index(conclude_once(*worse)[0]) <= rank
    assert seen == {*STATES} == {*words.STATE_ROWS}
    assert n > 14_400 / step and len(said) > 50


SAID = [
    (
        concluded(first=None),
        "no ranking: fewer than two entrants are linked by wins and losses",
    ),
    (
        concluded(n_prompts=12),
        "12 prompts are too few to rank the entrants; A is ahead of B by 275 points [204, 346], p < .001",
    ),
    (
        concluded("same"),
        "A and B gave the same answer to all 100 prompts: nothing to compare",
    ),
    (
        concluded("rivals"),
        "no clear winner: A is ahead of B by 275 points [204, 346], p < .001; C, too, may be as good",
    ),
    (
        concluded("no_result"),
        "no result: the judge named the first answer in 60 of 60 comparisons",
    ),
    (
        concluded("unnamed_prompts", n_prompts=None),
        "if each of the 300 battles is on a different prompt, A is ahead of B by "
        "275 points [204, 346], p < .001",
    ),
    (concluded("level"), "A and B are equal within 70 points"),
    (concluded("no_error"), "no clear winner: the error of A over B is unknown"),
    (
        concluded("undone"),
        "no clear winner: invalid verdicts may explain that A is ahead of B by "
        "275 points [204, 346], p < .001",
    ),
    (
        concluded("unnamed_people", kind="people"),
        "if each of the 300 votes is by a different person, A is ahead of B by 275 points [204, 346], p < .001",
    ),
    (
        concluded("not_met"),
        "A is ahead of the entrants that it met; E and F met none of them",
    ),
    (
        concluded(kind="words"),
        "A is ahead of B by 275 points [204, 346], p < .001. Word overlap only, not a quality judgement",
    ),
    (
        concluded("stratum", kind="words"),
        "A is ahead of B by 275 points [204, 346], p < .001, but not on curated "
        "(50 prompts: B is ahead by 0 points [5, 33], p = .020). Word overlap only, not a quality judgement",
    ),
    (
        concluded("flips", "answers"),
        "the judge prefers A to B by 275 points [204, 346], p < .001; 23% of its verdicts change with the "
        "order",
    ),
    (
        concluded("invalid"),
        "the judge prefers A to B by 275 points [204, 346], p < .001; 23% of its verdicts are invalid",
    ),
    (
        concluded("kin"),
        "the judge prefers A to B by 275 points [204, 346], p < .001; A and the judge belong to the same model "
        "family (Anthropic)",
    ),
    (
        concluded("answers"),
        "A leads B by 275 points [204, 346], p < .001, but 23% of its answers are boilerplate",
    ),
    (
        concluded("answers", measured=False),
        "according to opus (not checked), A is ahead of B by 275 points [204, 346], p < .001, but 23% of its "
        "answers are boilerplate",
    ),
    (
        concluded(measured=False),
        "according to opus (not checked), A is ahead of B by 275 points [204, 346], p < .001",
    ),
    (concluded(), "A leads B by 275 points [204, 346], p < .001"),
    (
        concluded(kind="people", measured=False),
        "A leads B by 275 points [204, 346], p < .001",
    ),
    (
        concluded(first=one_sided()),
        "A leads B by at least 479 points, having won all 60 prompts, p < .001",
    ),
    (
        concluded(
            "rivals",
            first=lead(
                **{"difference": None, "ci_low": -64.0, "ci_high": None},
                **{"one_sided": True, "n_prompts": 3, "p_holm": 0.25},
            ),
        ),
        "no clear winner: A won all 3 prompts against B, p = .250; C, too, may be as good",
    ),
    (
        concluded(
            n_prompts=1,
            first=lead(
                **{"difference": None, "ci_low": -636.0, "ci_high": None},
                **{"one_sided": True, "n_prompts": 1, "p_holm": 1.0},
            ),
        ),
        "1 prompt is too few to rank the entrants; A won the one prompt against B, p > .999",
    ),
    (
        concluded(
            "rivals",
            first=lead(difference=12.0, ci_low=-3.0, ci_high=27.0, p_holm=0.21),
        ),
        "no clear winner: A is ahead of B by 12 points [−3, 27], p = .210; C, too, may be as good",
    ),
    (
        conclude(
            lead(),
            [Reason(name="people", value=90.0, about=ABOUT["people"], judges=True)],
            Scope(judge="opus", n_prompts=100),
            is_measured=True,
        ),
        "the judge prefers A to B by 275 points [204, 346], p < .001; people prefer B to A by 90 points [10, 170], "
        "p = .010",
    ),
    (
        conclude(
            lead(),
            [Reason(name="stratum", value=19.0, about=ABOUT["stratum"])],
            Scope(judge="opus", n_prompts=100),
            is_measured=True,
        ),
        "A leads B by 275 points [204, 346], p < .001, but not on curated (50 prompts: B is ahead by 19 points "
        "[5, 33], p = .020)",
    ),
]


@pytest.mark.parametrize(("conclusion", "sentence"), SAID)
def test_a_state_has_one_sentence(conclusion: Conclusion, sentence: str):
    assert words.sentence(conclusion) == sentence
    assert words.headline([conclusion]) == sentence


def test_the_states_are_described_with_what_is_said():
    """docs/states.md: each state with its card, and a sentence that is in fact said for it."""
    table = read("docs/states.md").partition("| card |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()]
    rows = [row[1:5] for row in cells[2:]]
    described = [(card, state.strip("`")) for card, state, *_ in rows if state]
    assert described == [(words.STATE_ROWS[state].chip, state) for state in STATES]
    said = {sentence: conclusion.state for conclusion, sentence in SAID}
    state = ""
    for _, named, _, sentence in rows:
        state = named.strip("`") or state
        assert said[sentence] == state


def test_the_headline_of_several_dimensions_begins_with_the_worst():
    def of(dimension: str, *reasons: str) -> Conclusion:
        scope = Scope(judge="opus", dimension=dimension, n_prompts=100)
        found = [reason(name) for name in reasons]
        return conclude(lead(), found, scope, is_measured=True)

    assert words.headline([of("a"), of("b")]) == "A leads B on both rubrics"
    assert words.headline([of("a"), of("b", "rivals"), of("c", "stratum")]) == (
        "no clear winner on b; with caution, A is ahead of B on c; A leads B on a"
    )
    assert words.headline([of("a", "kin"), of("b", "flips"), of("c", "kin")]) == (
        "the judge prefers A to B on all 3 rubrics"
    )
    assert words.headline([of("a", "same"), of("b", "same")]) == (
        "A and B gave the same answers on both rubrics"
    )


# Reasons


def test_reasons_come_from_failed_checks_alone():
    flagged = {"A": {"phrases": 0.053, "short": 0.02}}
    checks = [
        Check(name="responses", state="failed", value=0.5, about={"flagged": flagged}),
        Check(name="flips", state="not done", about={"n_one_order": 60}),
        Check(name="ties", state="passed", value=0.1),
        Check(name="fit", state="passed", value=0.2, is_notable=True),
        Check(
            name="audit",
            state="failed",
            value=1.0,
            about={
                "results": [
                    {"probe": "constant", "verdict": "biased"},
                    {"probe": "length", "verdict": "ok"},
                ]
            },
        ),
    ]
    reasons = list(failed_check_reasons(checks, "A"))
    assert [(r.name, r.judges) for r in reasons] == [
        ("answers", False),
        ("one_order", True),
        ("obeys", True),
    ]
    conclusion = conclude(lead(), reasons, Scope(), is_measured=False)
    said = [row["words"] for row in words.as_row(conclusion)["reasons"]]
    assert said == [
        "its audit found that it obeys answers or cannot tell good answers from bad ones (constant)",
        "it judged each comparison in one order only",
        "5.3% of its answers are boilerplate",
    ]


@pytest.mark.parametrize(
    ("pairs", "same", "says"),
    [
        ([("A", "B", 60, 60)], ["B"], "nothing to compare between them"),
        ([("A", "B", 60, 60), ("C", "A", 60, 60)], ["B", "C"], "nothing to compare"),
        ([("A", "B", 59, 60)], [], ""),  # one differs
        ([("B", "C", 60, 60)], [], ""),  # the first is not among them
    ],
)
def test_entrants_with_the_answers_of_the_first_are_never_level_with_it(
    pairs: list[tuple[str, str, int, int]], same: list[str], says: str
):
    """A, B and C have one rating; what is said of those that did not give A's answers stays."""
    names = ("first", "second", "n_equal", "n_prompts")
    level = {"level": ("B", "C"), "rivals": ("B", "C"), "below": ()}
    first = dataclasses.replace(lead(difference=0.0, significant=None), **level)
    rows = [EqualAnswers(**dict(zip(names, pair, strict=True))) for pair in pairs]
    reasons = list(equal_answer_reasons(first, rows))
    told = [model for one in reasons for model in one.about["models"]]
    assert told == same
    board = Leaderboard(
        label="", interval="", models=("A", "B", "C"), rating=np.full(3, 1400.0)
    )
    rest = list(explain_undecided_lead(first, board, (), told))
    others = [model for model in ("B", "C") if model not in same]
    assert [one.about["models"] for one in rest] == ([others] if others else [])
    said = conclude(first, [*reasons, *rest], Scope(n_prompts=60), is_measured=True)
    assert said.state == ("same" if same else "undecided")
    assert words.sentence(said).endswith(says)
    assert ("no difference found" in words.sentence(said)) == (not same)
    assert "level" not in words.sentence(said)  # no test has shown that they are


@pytest.mark.parametrize(
    ("known", "measured"),
    [
        ({"flips": 0.0, "first_shown": 0.5}, True),
        ({"flips": 0.0, "first_shown": None}, False),
        ({"flips": None, "first_shown": 0.5}, False),
        ({"ties": 0.1}, False),
    ],
)
def test_a_judge_is_checked_where_flips_and_first_shown_have_a_value(
    known: dict[str, float | None], measured: bool
):
    checks = [
        Check(name=name, state="passed", value=value) for name, value in known.items()
    ]
    assert is_measured(checks) is measured


def test_the_widest_lead_of_a_rival_that_a_stratum_shows_is_a_reason():
    """On two of three strata the test shows that the leader is behind."""
    wide, shown, small = (
        RivalAhead(
            stratum=stratum, rival="B", n_prompts=50, n_effective=50.0, df=49.0, lead=lead,
            ci_low=5.0, ci_high=90.0, p_value=p, p_holm=p, reverses=p < 0.05,
        )
        for stratum, lead, p in (("wide", 80.0, 0.3), ("shown", 60.0, 0.01), ("small", 40.0, 0.02))
    )  # fmt: skip
    strata = StrataDiagnosis(
        dimension="d", strata=["wide", "shown", "small"], n_prompts=[50, 50, 50], df=2,
        chi_square=12.3, p_value=0.01, ratings=[], most_varied_gap=None, leader="A",
        ahead=[wide, shown, small],
    )  # fmt: skip
    (found,) = stratum_reversal_reasons(strata, "A")
    assert (found.about["stratum"], found.about["rival"], found.value) == ("shown", "B", 60.0)  # fmt: skip
    assert not [
        *stratum_reversal_reasons(dataclasses.replace(strata, ahead=[wide]), "A")
    ]
    assert not [*stratum_reversal_reasons(strata, "B")]
    assert not [*stratum_reversal_reasons(None, "A")]
    all_won = dataclasses.replace(shown, lead=None, ci_low=300.0, ci_high=None)
    (found,) = stratum_reversal_reasons(
        dataclasses.replace(strata, ahead=[all_won]), "A"
    )
    assert found.about["one_sided"]
    assert found.value == 300.0


@pytest.mark.parametrize(("low", "names"), [(1390.0, ["undone"]), (1410.0, [])])
def test_invalid_verdicts_may_undo_a_lead_of_all_points(low: float, names: list[str]):
    """A took every valid point from B, which has 1400; counting A's invalid verdicts as lost bounds it."""
    board = Leaderboard(
        label="", interval="", models=("A", "B"), rating=np.array([np.nan, 1400.0])
    )
    row = {"model": "A", "bound_low": low, "bound_high": None}
    check = Check(name="invalid_by_entrant", state="failed", about={"differing": [row]})
    first = dataclasses.replace(one_sided(), rivals=(), not_met=())
    assert [one.name for one in explain_undecided_lead(first, board, [check])] == names


@pytest.mark.parametrize(
    ("conclusion", "wins", "ties", "n", "title"),
    [
        (concluded(), 61, 0, 100, "A wins 61 of 100 comparisons against B"),
        (concluded(), 1383, 1, 2274, "A wins 1,383, ties 1 and loses 890 of 2,274 comparisons against B"),
        (concluded(), 40, 30, 100, "A wins 40, ties 30 and loses 30 of 100 comparisons against B"),
        (concluded(), 59, 0, 59, "A wins 59 of 59 comparisons against B"),
        (concluded("kin"), 51, 2, 100, "The judge prefers A to B in 51 of 100 comparisons, with 2 ties"),
        (concluded("rivals"), 20, 30, 59, "No clear winner: A wins 20, ties 30 and loses 9 of 59 comparisons against B"),
        (concluded("stratum"), 61, 0, 100, None),
        (concluded(measured=False), 61, 0, 100, None),
        (concluded(), 40, 20, 100, None),
        (concluded("rivals"), 30, 10, 100, None),
    ],
)  # fmt: skip
def test_a_title_counts_wins_if_the_lead_needs_no_more_words(
    conclusion: Conclusion, wins: int, ties: int, n: int, title: str | None
):
    assert words.title_in_wins(conclusion, wins, ties, n) == title


def test_a_sentence_that_begins_with_an_entrant_gets_no_capital():
    """An entrant called b must not become B."""
    conclusion = concluded("rivals")
    assert not words.begins_with_word("A wins 61 of 100 comparisons", [conclusion])
    (rivals,) = conclusion.reasons
    because = words.because(rivals, conclusion)
    assert not words.begins_with_word(because, [conclusion])
    assert words.begins_with_word("no clear winner", [conclusion])


def test_a_title_of_several_dimensions_is_short_only_if_all_say_the_same():
    other = dataclasses.replace(lead(), second="C", below=("C", "B"))

    def both(*reasons: str, **options: Any) -> list[Conclusion]:
        return [
            concluded(*reasons, first=first, **options) for first in (lead(), other)
        ]

    assert {conclusion.rival for conclusion in both()} == {"B", "C"}
    assert words.title_of_all(both()) == "A leads on both rubrics"
    assert words.title_of_all([*both(kind="words"), concluded(kind="words")]) == (
        "By word overlap, A is ahead on all 3 rubrics"
    )
    assert words.title_of_all([*both(), concluded("kin")]) is None
    assert words.title_of_all(both("kin")) is None
    assert words.title_of_all([concluded(), concluded()]) is None
