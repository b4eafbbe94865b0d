"""The judges that need no network: one compares words, one replays what is on file."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp import pipeline
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.analysis.win_rates import count
from elo_exp.data import bank
from elo_exp.data.battles import from_judgments
from elo_exp.data.pairing import pair_up
from elo_exp.files import read_jsonl, write_jsonl, write_whole
from elo_exp.judges.lexical import LexicalJudge, hedging, overlap, specificity
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, JudgeReply, JudgeRequest, Judgment, UserError
from elo_exp.store.store import Store
from tests.data import BANK, DIMENSIONS, PROBES, shared_data, shipped

RUBRICS = {dimension: shipped("rubric", dimension) for dimension in DIMENSIONS}
LEXICAL = shipped("judge", "lexical")


def comparison(
    response_a: str = "Firm pressure.",
    response_b: str = "A prayer.",
    *,
    names: tuple[str, str] = ("ann", "bob"),
    dimension: str = "factuality",
    **shown: Any,
) -> Comparison:
    return Comparison(
        prompt_id="p1",
        dimension=dimension,
        source="medqa",
        prompt_text="What stops bleeding from a wound?",
        entrant_a=names[0],
        entrant_b=names[1],
        response_a=response_a,
        response_b=response_b,
        **{"gold_answer": "Firm pressure on the wound.", **shown},
    )


def replies(judge: Any, folder: Path, *requests: JudgeRequest) -> list[JudgeReply]:
    with Store(folder / "store.sqlite") as store:
        return list(judge.answer(requests, store))


def judged(judge: Any, folder: Path, *comparisons: Comparison, **how: Any) -> list[Judgment]:
    """The judgments of comparisons on one dimension, from an empty store."""
    dimension = comparisons[0].dimension
    with Store(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        return pipeline.judge_pairs(
            {dimension: comparisons}, [RUBRICS[dimension]], judge, store, **how
        )[dimension]


def letters(judgment: Judgment) -> str:
    """What the judge said to the two orders."""
    return " ".join(verdict.verdict for verdict in judgment.raw)


@pytest.fixture(scope="module")
def probed() -> dict[str, list[Comparison]]:
    """The four shipped probes on the shipped bank, by dimension."""
    prompts = bank.load(BANK)
    responses = {
        name: {r.prompt_id: r for r in shipped("entrant", name, entrant_id=name).generate(prompts)}
        for name in PROBES
    }
    return {dimension: pair_up(prompts, responses, rubric) for dimension, rubric in RUBRICS.items()}


def judge_all(
    judge: Any, folder: Path, comparisons: dict[str, list[Comparison]]
) -> dict[str, list[Judgment]]:
    with Store(folder / "store.sqlite") as store:
        return pipeline.judge_pairs(comparisons, list(RUBRICS.values()), judge, store)


@pytest.fixture(scope="module")
def demo(probed, tmp_path_factory) -> dict[str, list[Judgment]]:
    """What the demo concludes: the probes judged by the lexical judge as it ships."""
    return judge_all(LEXICAL, tmp_path_factory.mktemp("demo"), probed)


# The lexical judge on the probes


def standing(judgments: Sequence[Judgment]) -> list[str]:
    """The entrants by their mean win share, best first."""
    share: Counter[str] = Counter()
    for rate in count(from_judgments(judgments), dimension="x"):
        of_a = (rate.a_wins + rate.ties / 2) / (rate.a_wins + rate.b_wins + rate.ties)
        share[rate.entrant_a] += of_a
        share[rate.entrant_b] += 1 - of_a
    return [name.removeprefix("probe_") for name, _ in share.most_common()]


@pytest.mark.parametrize(
    ("dimension", "order"),
    [
        ("factuality", ["reference", "hedged", "partial", "swapped"]),
        ("calibration", ["reference", "partial", "swapped", "hedged"]),
        ("clinical_utility", ["reference", "hedged", "partial", "swapped"]),
    ],
)
def test_the_probes_come_out_in_their_known_order(demo, dimension, order):
    """As elo_exp/entrants/probe.py documents it."""
    assert standing(demo[dimension]) == order


def test_no_probe_wins_every_match(demo):
    """The lapses see to it: else no Bradley-Terry rating would be finite."""
    for judgments in demo.values():
        losers = {
            j.entrant_b if j.winner == j.entrant_a else j.entrant_a for j in judgments if j.winner
        }
        winners = {j.winner for j in judgments if j.winner}
        assert losers == winners == set(PROBES)


def test_it_never_contradicts_itself(demo):
    for dimension, judgments in demo.items():
        quality = judge_quality(judgments, dimension=dimension)
        assert (quality.flip_rate, quality.first_shown_rate, quality.invalid_rate) == (
            0.0,
            0.5,
            0.0,
        )


def test_the_same_comparisons_get_the_same_verdicts_again(demo, probed, tmp_path):
    def verdicts(judgments: dict[str, list[Judgment]]) -> list[str]:
        return [letters(j) for some in judgments.values() for j in some]

    assert verdicts(judge_all(LEXICAL, tmp_path, probed)) == verdicts(demo)


# What the lexical judge measures


def test_overlap_weighs_the_reference_nine_times_the_response():
    """Of the reference's 'firm pressure wound', 'pressure bandage' shares one word: 10·1 / (9·3 + 2)."""
    assert overlap(comparison(), "Pressure and a bandage.") == pytest.approx(10 / 29)
    assert overlap(comparison(), "Firm pressure on the wound!") == 1.0
    assert overlap(comparison(), "A prayer.") == 0.0


def test_without_a_reference_overlap_is_with_the_question():
    """Of 'stop bleeding wound', 'bleeding' and 'stops' are there, and nothing else."""
    assert overlap(comparison(gold_answer=None), "It stops the bleeding.") == pytest.approx(
        20 / (27 + 2)
    )


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("Press on the wound.", {"answer": 1.0, "hedge": 0.5, "abstain": 0.0}),
        ("It depends on the vessel.", {"answer": 0.5, "hedge": 1.0, "abstain": 0.5}),
        ("I cannot answer this.", {"answer": 0.0, "hedge": 0.5, "abstain": 1.0}),
    ],
)
def test_hedging_is_how_near_the_commitment_is_to_the_expected_one(text, scores):
    found = {
        b: hedging(comparison(dimension="calibration", expected_behavior=b), text) for b in scores
    }
    assert found == scores
    assert hedging(comparison(expected_behavior=None), text) == scores["answer"]


def test_specificity_rises_with_content_on_the_topic_and_falls_with_stock_phrases():
    """Distinct words / (them + 15) · words of the question / (them + 3) · 0.95 for each stock phrase."""
    shown = comparison()
    assert specificity(shown, "Press the bleeding wound.") == pytest.approx(3 / 18 * 2 / 5)
    assert specificity(shown, "Press the bleeding wound. Consult a doctor.") == pytest.approx(
        3 / 18 * 2 / 5 * 0.95
    )
    assert specificity(shown, "Press elsewhere.") == 0.0


def test_a_dimension_of_ones_own_is_judged_by_the_default_signal(tmp_path):
    """Here by specificity: the answer that only repeats the reference says nothing of the question's topic."""
    rubric = shipped("rubric", "clinical_utility", dimension="empathy")
    shown = comparison(
        "Firm pressure.", "Stop the bleeding: press on the wound.", dimension="empathy"
    )
    with Store(tmp_path / "store.sqlite") as store:
        (judgment,) = pipeline.judge_pairs({"empathy": [shown]}, [rubric], LEXICAL, store)[
            "empathy"
        ]
    assert judgment.winner == "bob"


# The lexical judge as a judge


def test_its_reply_is_the_json_that_is_asked_of_every_judge(tmp_path):
    asked = RUBRICS["factuality"].request(comparison(), judge="x", position_swap=False)
    (reply,) = replies(LEXICAL, tmp_path, asked)
    assert reply.key == asked.key
    assert json.loads(reply.text) == {
        "evidence_a": "score 0.690",
        "evidence_b": "score 0.000",
        "verdict": "A",
    }


def test_replies_are_committed_before_they_are_passed_on(tmp_path):
    rubric = RUBRICS["factuality"]
    requests = [
        rubric.request(comparison(), judge="x", position_swap=swap) for swap in (False, True)
    ]
    with Store(tmp_path / "store.sqlite") as store, Store(tmp_path / "store.sqlite") as other:
        for reply in LEXICAL.answer(requests, store):
            assert other.get(JudgeReply, [reply.key]) == {reply.key: reply}


WORDS = ["firm", "pressure", "wound", "bleeding", "might", "perhaps", "prayer", "cannot", "answer"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("scratch") / "store.sqlite") as store:
        yield store


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("margin", [0.0, 0.05])
@given(a=TEXTS, b=TEXTS)
def test_swapping_the_responses_swaps_the_verdict(scratch, dimension, margin, a, b):
    """Without a position effect, whatever is said, the letters of the two orders are each other's mirror image."""
    shown = comparison(a, b, dimension=dimension, expected_behavior="hedge")
    requests = [
        RUBRICS[dimension].request(shown, judge="x", position_swap=swap) for swap in (False, True)
    ]
    replies = shipped("judge", "lexical", margin=margin).answer(requests, scratch)
    straight, swapped = (json.loads(reply.text)["verdict"] for reply in replies)
    assert swapped == {"A": "B", "B": "A", "TIE": "TIE"}[straight]


def test_scores_within_the_margin_are_a_tie(tmp_path):
    """Firm pressure: 20/29 = 0.69. The same and one word more: 20/30 = 0.67."""
    shown = comparison("Firm pressure.", "Firm pressure always.")
    assert (
        letters(judged(shipped("judge", "lexical", margin=0.05), tmp_path, shown)[0]) == "TIE TIE"
    )
    assert letters(judged(shipped("judge", "lexical", margin=0.02), tmp_path, shown)[0]) == "A B"


# A position effect, put there on purpose


def test_a_full_position_effect_always_takes_the_first_shown(tmp_path):
    judge = shipped("judge", "lexical", position_effect=1.0)
    (judgment,) = judged(judge, tmp_path, comparison())
    assert letters(judgment) == "A A"
    assert judgment.inconsistent


def test_equal_answers_are_one_query_and_show_no_taste_for_a_position(tmp_path):
    """The judge names the first shown, and is asked once: who is shown there is all that its answer turns on."""
    same = comparison("Firm pressure.", "Firm pressure.")
    (judgment,) = judged(shipped("judge", "lexical", position_effect=1.0), tmp_path, same)
    assert judgment.raw[0].cache_key == judgment.raw[1].cache_key
    (again,) = judged(
        replay(saved(tmp_path / "verdicts", {"factuality": [judgment]})),
        tmp_path / "verdicts",
        same,
    )
    for found in (judgment, again):
        assert (letters(found), found.winner, found.inconsistent, found.equal_answers) == (
            "A A",
            None,
            False,
            True,
        )
        quality = judge_quality([found], dimension="factuality")
        assert (quality.flip_rate, quality.first_shown_rate, quality.n_equal_answers) == (
            None,
            None,
            1,
        )


def test_a_position_effect_shows_up_in_about_its_share_of_the_judgments(probed, tmp_path):
    """0.3 of 733 comparisons of unlike answers: within three standard deviations (0.017). Each of them is A in both
    orders, each flips, and nothing else does."""
    judge = shipped("judge", "lexical", position_effect=0.3)
    judgments = judge_all(judge, tmp_path, probed)["clinical_utility"]
    quality = judge_quality(judgments, dimension="clinical_utility")
    assert (quality.n_judgments, quality.n_two_order, quality.n_equal_answers) == (858, 733, 125)
    assert quality.flip_rate == pytest.approx(0.3, abs=0.051)
    assert sum(letters(j) == "A A" and not j.equal_answers for j in judgments) == quality.n_flips
    assert quality.first_shown_rate > 0.6


def test_a_position_effect_leaves_the_other_judgments_alone(demo, probed, tmp_path):
    affected = judge_all(shipped("judge", "lexical", position_effect=0.3), tmp_path, probed)
    for dimension in DIMENSIONS:
        for before, after in zip(demo[dimension], affected[dimension], strict=True):
            assert after.inconsistent or after.winner == before.winner


@pytest.mark.parametrize(
    "changes",
    [
        {"margin": 0.1},
        {"seed": 1},
        {"position_effect": 0.1},
        {"default_signal": "overlap"},
        {"signals": {}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_setting_of_it_is_part_of_the_key(changes):
    assert shipped("judge", "lexical", **changes).cache_key() != LEXICAL.cache_key()
    assert set(LexicalJudge.__dataclass_fields__) <= set(LEXICAL.cache_key())


# Replaying the verdicts of a run


def saved(folder: Path, judgments: dict[str, list[Judgment]]) -> Path:
    """As a run writes them: verdicts/<dimension>.jsonl."""
    for dimension, some in judgments.items():
        write_jsonl(folder / f"{dimension}.jsonl", (judgment.to_dict() for judgment in some))
    return folder


def replay(path: Path, judge_model: str | None = None) -> ReplayJudge:
    judge = ReplayJudge(path=str(path), judge_model=judge_model)
    judge.check()
    return judge


def test_the_verdicts_of_a_run_are_given_again(demo, probed, tmp_path):
    """Both orders of all three dimensions, from the folder of them."""
    again = judge_all(replay(saved(tmp_path / "verdicts", demo)), tmp_path, probed)
    for dimension in DIMENSIONS:
        assert [letters(j) for j in again[dimension]] == [letters(j) for j in demo[dimension]]
        assert [j.winner for j in again[dimension]] == [j.winner for j in demo[dimension]]


def test_flips_are_given_again_as_flips(tmp_path):
    flipped = judged(shipped("judge", "lexical", position_effect=1.0), tmp_path, comparison())
    path = saved(tmp_path / "verdicts", {"factuality": flipped})
    (again,) = judged(replay(path), tmp_path, comparison())
    assert (letters(again), again.inconsistent) == ("A A", True)


def test_the_pair_may_be_listed_the_other_way_round(tmp_path):
    path = saved(tmp_path / "verdicts", {"factuality": judged(LEXICAL, tmp_path, comparison())})
    (again,) = judged(replay(path), tmp_path, comparison().swapped())
    assert (again.entrant_a, again.winner, letters(again)) == ("bob", "ann", "B A")


def test_an_invalid_verdict_stays_invalid(tmp_path):
    (judgment,) = judged(LEXICAL, tmp_path, comparison())
    row = judgment.to_dict()
    row["raw"][1]["verdict"] = "INVALID"
    (again,) = judged(replay(write_jsonl(tmp_path / "v.jsonl", [row])), tmp_path, comparison())
    assert (again.invalid, letters(again)) == (True, "A INVALID")


def test_repeats_are_not_replayed_as_first_answers(tmp_path):
    (judgment,) = judged(LEXICAL, tmp_path, comparison(), repeats=2)
    row = judgment.to_dict()
    for verdict in row["raw"][2:]:
        verdict["verdict"] = "TIE"
    (again,) = judged(replay(write_jsonl(tmp_path / "v.jsonl", [row])), tmp_path, comparison())
    assert letters(again) == "A B"


def test_repeats_are_given_again_as_repeats(tmp_path):
    (judgment,) = judged(LEXICAL, tmp_path, comparison(), repeats=2)
    row = judgment.to_dict()
    row["raw"][3]["verdict"] = "TIE"
    (again,) = judged(
        replay(write_jsonl(tmp_path / "v.jsonl", [row])), tmp_path, comparison(), repeats=2
    )
    assert (letters(again), [v.repeat for v in again.raw]) == ("A B A TIE", [0, 0, 1, 1])


@pytest.mark.parametrize("n_recorded", [1, 2])
def test_more_repeats_than_are_on_file_are_refused(tmp_path, n_recorded):
    recorded = judged(LEXICAL, tmp_path, comparison(), repeats=n_recorded)
    path = saved(tmp_path / "verdicts", {"factuality": recorded})
    with pytest.raises(UserError) as error:
        judged(replay(path), tmp_path, comparison(), repeats=3)
    assert str(error.value) == (
        f"judging.repeats: found 3, but {path} holds {n_recorded} for each order at most. "
        f"Nobody can be asked again: set judging.repeats={n_recorded}."
    )


# Replaying battles

BATTLE = {
    "model_a": "ann",
    "model_b": "bob",
    "winner": "model_b",
    "question_id": "p1",
    "judge_model": "crowd",
}


def battles(path: Path, *rows: dict[str, Any]) -> Path:
    return write_jsonl(path / "battles.jsonl", rows)


def test_a_battle_with_one_verdict_answers_both_orders_and_says_that_it_is_one(tmp_path):
    (judgment,) = judged(replay(battles(tmp_path, BATTLE)), tmp_path, comparison())
    assert (judgment.winner, letters(judgment)) == ("bob", "B A")
    assert [v.mirrored for v in judgment.raw] == [False, True]
    assert judge_quality([judgment], dimension="factuality").flip_rate is None
    (battle,) = from_judgments([judgment])
    assert (battle.winner, battle.verdict_ba) == ("model_b", None)


@pytest.mark.parametrize("rows", [(0, 1), (1, 0)], ids=["in order", "the second order first"])
@pytest.mark.parametrize(
    ("winners", "said", "inconsistent"),
    [
        (("model_a", "model_a"), "A A", True),
        (("model_a", "model_b"), "A B", False),
        (("tie", "model_a"), "TIE A", True),
    ],
)
def test_two_battles_with_the_sides_exchanged_are_the_two_orders(
    tmp_path, caplog, rows, winners, said, inconsistent
):
    """Ann is shown first in the one and bob in the other; neither row is the other turned round."""
    straight = {**BATTLE, "winner": winners[0]}
    exchanged = {**BATTLE, "model_a": "bob", "model_b": "ann", "winner": winners[1]}
    path = battles(tmp_path, *([straight, exchanged][i] for i in rows))
    (judgment,) = judged(replay(path), tmp_path, comparison())
    assert (letters(judgment), judgment.inconsistent) == (said, inconsistent)
    assert [v.mirrored for v in judgment.raw] == [False, False]
    assert judge_quality([judgment], dimension="factuality").n_flips == inconsistent
    assert not caplog.messages


def test_the_order_that_was_shown_is_the_one_that_is_not_mirrored(tmp_path):
    (judgment,) = judged(
        replay(battles(tmp_path, {**BATTLE, "shown_first": "b"})), tmp_path, comparison()
    )
    assert [v.mirrored for v in judgment.raw] == [True, False]
    assert judgment.winner == "bob"


def test_what_was_one_observation_stays_one_when_it_is_replayed_again(tmp_path):
    once = judged(replay(battles(tmp_path, BATTLE)), tmp_path, comparison())
    (again,) = judged(
        replay(saved(tmp_path / "verdicts", {"factuality": once})), tmp_path, comparison()
    )
    assert [v.mirrored for v in again.raw] == [False, True]


@pytest.mark.parametrize("winner", ["tie", "tie (bothbad)"])
def test_both_kinds_of_tie_are_a_tie(tmp_path, winner):
    (judgment,) = judged(
        replay(battles(tmp_path, {**BATTLE, "winner": winner})), tmp_path, comparison()
    )
    assert (letters(judgment), judgment.inconsistent) == ("TIE TIE", False)


def test_a_battle_with_both_verdicts_gives_each_order_its_own(tmp_path):
    row = {**BATTLE, "winner": "tie", "verdict_ab": "model_a", "verdict_ba": "model_b"}
    (judgment,) = judged(replay(battles(tmp_path, row)), tmp_path, comparison())
    assert (letters(judgment), judgment.inconsistent) == ("A A", True)
    assert [v.mirrored for v in judgment.raw] == [False, False]


def test_the_battles_of_a_run_conclude_what_the_run_concluded(demo, probed, tmp_path):
    rows = [b.to_dict() for some in demo.values() for b in from_judgments(some)]
    again = judge_all(replay(battles(tmp_path, *rows)), tmp_path, probed)
    for dimension in DIMENSIONS:
        before = [(b.winner, b.verdict_ab, b.verdict_ba) for b in from_judgments(demo[dimension])]
        assert [
            (b.winner, b.verdict_ab, b.verdict_ba) for b in from_judgments(again[dimension])
        ] == before


def test_a_verdict_without_a_dimension_serves_them_all_and_one_with_it_goes_before(tmp_path):
    judge = replay(
        battles(tmp_path, BATTLE, {**BATTLE, "winner": "model_a", "dimension": "calibration"})
    )
    winners = {d: judged(judge, tmp_path, comparison(dimension=d))[0].winner for d in DIMENSIONS}
    assert winners == {"factuality": "bob", "calibration": "ann", "clinical_utility": "bob"}


def test_of_several_judges_the_one_named_is_replayed(tmp_path):
    path = battles(tmp_path, BATTLE, {**BATTLE, "winner": "model_a", "judge_model": "gpt-4"})
    judge = replay(path, "gpt-4")
    assert judged(judge, tmp_path, comparison())[0].winner == "ann"
    assert (judge.model, replay(path).model) == ("gpt-4", "replay")


def test_that_a_file_holds_several_judges_is_said(tmp_path, caplog):
    path = battles(
        tmp_path, *({**BATTLE, "question_id": f"p{i}", "judge_model": f"j{i}"} for i in range(1, 8))
    )
    replay(path)
    assert caplog.messages == [
        f"{path}: 7 judges (j1, j2, j3, j4, j5, ...); name one as judge.judge_model"
    ]
    replay(path, "j1")
    assert len(caplog.messages) == 1


def test_of_several_verdicts_on_a_pair_the_first_is_taken_and_the_others_are_counted(
    tmp_path, caplog
):
    rows = [BATTLE, {**BATTLE, "winner": "model_a"}, {**BATTLE, "winner": "tie"}]
    with caplog.at_level(logging.WARNING):
        judge = replay(battles(tmp_path, *rows))
    assert "2 further verdicts on pairs that had one; the first was taken" in caplog.text
    assert judged(judge, tmp_path, comparison())[0].winner == "bob"


def test_what_is_not_on_file_is_not_answered(tmp_path):
    asked = RUBRICS["factuality"].request(
        comparison(names=("ann", "zoe")), judge="x", position_swap=False
    )
    assert replies(replay(battles(tmp_path, BATTLE)), tmp_path, asked) == []


def test_pairs_that_say_the_same_keep_their_own_verdicts(tmp_path):
    """zoe's text is bob's, word for word, and the crowd judged them differently: a verdict on file is about names."""
    path = battles(tmp_path, BATTLE, {**BATTLE, "model_b": "zoe", "winner": "model_a"})
    shown = [comparison(), comparison(names=("ann", "zoe"))]
    assert [j.winner for j in judged(replay(path), tmp_path, *shown)] == ["bob", "ann"]


def test_a_pair_that_says_the_same_as_one_that_is_not_on_file_is_still_answered(tmp_path):
    shown = [comparison(), comparison(names=("ann", "zoe"))]
    judgments = judged(replay(battles(tmp_path, BATTLE)), tmp_path, *shown, allow_missing=True)
    assert [(j.entrant_b, j.winner) for j in judgments] == [("bob", "bob")]


def test_real_battles_are_replayed_with_the_winners_on_file(tmp_path):
    """What GPT-4 said of 70 models on real questions, one order for each pair."""
    path = shared_data("llmfao/battles.jsonl.gz")
    on_file: dict[tuple[str, str, str], str] = {}
    for _, row in read_jsonl(path):
        if row["judge_model"] == "gpt-4":
            a, b = sorted((row["model_a"], row["model_b"]))
            winner = {"model_a": row["model_a"], "model_b": row["model_b"]}.get(
                row["winner"], "tie"
            )
            on_file.setdefault((row["question_id"], a, b), winner)
    shown = [
        dataclasses.replace(comparison(f"{a} on {q}", f"{b} on {q}", names=(a, b)), prompt_id=q)
        for q, a, b in on_file
    ]
    judgments = judged(replay(path, "gpt-4"), tmp_path, *shown)
    assert [j.winner or "tie" for j in judgments] == list(on_file.values())
    assert len(judgments) > 3000
    assert judge_quality(judgments, dimension="factuality").flip_rate is None


# Files that cannot be replayed


def test_a_changed_file_is_another_judge(tmp_path):
    before = replay(battles(tmp_path, BATTLE)).cache_key()
    assert replay(battles(tmp_path, BATTLE)).cache_key() == before
    assert replay(battles(tmp_path, {**BATTLE, "winner": "tie"})).cache_key() != before


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"left": "ann", "right": "bob"},
            "Expected a verdict (prompt_id, dimension, entrant_a, entrant_b, raw)",
        ),
        ({key: BATTLE[key] for key in ("model_a", "model_b", "winner")}, "has no 'question_id'"),
        ({"raw": [], "prompt_id": "p1"}, "has no 'entrant_a'"),
        ({**BATTLE, "winner": "left"}, "winner is 'left'. Expected one of model_a, model_b, tie"),
        (
            {**BATTLE, "verdict_ab": "A", "verdict_ba": "B"},
            "verdict_ab is 'A'. Expected one of model_a, model_b, tie",
        ),
    ],
    ids=["neither", "no question", "no entrants", "no winner", "letters"],
)
def test_a_row_that_is_neither_verdict_nor_battle_is_named(tmp_path, row, words):
    path = battles(tmp_path, BATTLE, row)
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert words in str(error.value)


VERDICTS = {
    "prompt_id": "p1",
    "dimension": "factuality",
    "entrant_a": "ann",
    "entrant_b": "bob",
    "raw": [{"judge_model": "opus", "position_swap": False, "verdict": "A"}],
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"prompt_id": ["p1"]},
            "a value has another shape (unhashable type: 'list'). Expected a verdict (prompt_id,",
        ),
        (
            {"raw": None},
            "a value has another shape ('NoneType' object is not iterable). Expected a verdict (prompt_id,",
        ),
        (
            {"raw": [{**VERDICTS["raw"][0], "repeat": "1"}]},
            "repeat is '1'. Expected a whole number.",
        ),
    ],
    ids=["a list for a name", "no list of verdicts", "a text for a number"],
)
def test_a_value_of_another_shape_is_said_to_be_one(tmp_path, changes, words):
    path = write_jsonl(tmp_path / "v.jsonl", [VERDICTS, {**VERDICTS, **changes}])
    with pytest.raises(UserError) as error:
        replay(path)
    assert str(error.value).startswith(f"{path}:2: {words}")


def test_a_judge_that_is_not_in_the_file_is_refused(tmp_path):
    path = battles(tmp_path, BATTLE)
    with pytest.raises(UserError) as error:
        replay(path, "opus")
    assert str(error.value) == f"judge_model: {path} holds no verdict of 'opus'."


def test_a_file_or_folder_without_verdicts_is_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"path: found no \.jsonl file in .*\. Expected verdicts or battles\."
    ):
        replay(tmp_path)
    with pytest.raises(
        UserError, match=r"absent\.jsonl: cannot be read \(No such file or directory\)"
    ):
        replay(tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="not JSON"):
        replay(write_whole(tmp_path / "battles.csv", "model_a,model_b,winner\n"))
