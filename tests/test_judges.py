"""The judges that need no network: lexical and replay."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp import pipeline
from elo_exp.analysis.judge_quality import judge_quality
from elo_exp.analysis.win_rates import win_rates
from elo_exp.data import bank
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import pair_up
from elo_exp.files import read_jsonl, write_jsonl
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


def judged(
    judge: Any, folder: Path, *comparisons: Comparison, **how: Any
) -> list[Judgment]:
    """The judgments of comparisons on one dimension, from an empty store."""
    dimension = comparisons[0].dimension
    with Store(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        return pipeline.judge_pairs(
            {dimension: comparisons}, [RUBRICS[dimension]], judge, store, **how
        )[dimension]


def letters(judgment: Judgment) -> str:
    """The verdicts on the two orders."""
    return " ".join(verdict.verdict for verdict in judgment.raw)


@pytest.fixture(scope="module")
def probed() -> dict[str, list[Comparison]]:
    """Comparisons of the shipped probes on the shipped bank, by dimension."""
    prompts = bank.load(BANK)
    responses = {
        name: {
            r.prompt_id: r
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
    """The entrants by their mean win share, best first."""
    share: Counter[str] = Counter()
    battles = Battles.from_rows(from_judgments(judgments))
    for rate in win_rates(battles, dimension="x"):
        of_a = (rate.a_wins + rate.ties / 2) / (rate.a_wins + rate.b_wins + rate.ties)
        share[rate.entrant_a] += of_a
        share[rate.entrant_b] += 1 - of_a
    return [name.removeprefix("probe_") for name, _ in share.most_common()]


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


def test_every_probe_wins_and_loses_somewhere(demo):
    """So that Bradley-Terry ratings are finite."""
    for judgments in demo.values():
        won = [j for j in judgments if j.winner]
        losers = {j.entrant_b if j.winner == j.entrant_a else j.entrant_a for j in won}
        assert losers == {j.winner for j in won} == set(PROBES)


def test_it_never_contradicts_itself(demo, probed, tmp_path):
    again = judge_all(LEXICAL, tmp_path, probed)
    for dimension, judgments in demo.items():
        quality = judge_quality(judgments, dimension=dimension)
        rates = (quality.flip_rate, quality.first_shown_rate, quality.invalid_rate)
        assert rates == (0.0, 0.5, 0.0)
        assert list(map(letters, again[dimension])) == list(map(letters, judgments))


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
        assert hedging(comparison(expected_behavior=behavior), text) == score
    assert hedging(comparison(expected_behavior=None), text) == scores["answer"]


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


def test_its_reply_is_the_json_that_every_judge_gives(tmp_path):
    request = RUBRICS["factuality"].request(
        comparison(), judge="x", position_swap=False
    )
    (reply,) = replies(LEXICAL, tmp_path, request)
    evidence = {"evidence_a": "score 0.690", "evidence_b": "score 0.000"}
    assert (reply.key, json.loads(reply.text)) == (
        request.key,
        {**evidence, "verdict": "A"},
    )


def test_replies_are_committed_before_they_are_yielded(tmp_path):
    rubric = RUBRICS["factuality"]
    requests = [
        rubric.request(comparison(), judge="x", position_swap=s) for s in (False, True)
    ]
    with (
        Store(tmp_path / "store.sqlite") as store,
        Store(tmp_path / "store.sqlite") as other,
    ):
        for reply in LEXICAL.answer(requests, store):
            assert other.get(JudgeReply, [reply.key]) == {reply.key: reply}


WORDS = [
    "firm",
    "pressure",
    "wound",
    "bleeding",
    "might",
    "perhaps",
    "prayer",
    "cannot",
    "answer",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("scratch") / "store.sqlite") as store:
        yield store


@pytest.mark.parametrize("dimension", DIMENSIONS)
@given(a=TEXTS, b=TEXTS, margin=st.sampled_from([0.0, 0.05]))
def test_swapping_the_responses_swaps_the_verdict(scratch, dimension, a, b, margin):
    shown = comparison(a, b, dimension=dimension, expected_behavior="hedge")
    rubric = RUBRICS[dimension]
    requests = [
        rubric.request(shown, judge="x", position_swap=s) for s in (False, True)
    ]
    answers = shipped("judge", "lexical", margin=margin).answer(requests, scratch)
    verdicts = {reply.key: json.loads(reply.text)["verdict"] for reply in answers}
    straight, swapped = (
        verdicts[request.key] for request in requests
    )  # one key of equal texts
    assert swapped == {"A": "B", "B": "A", "TIE": "TIE"}[straight]


def test_scores_within_the_margin_are_a_tie(tmp_path):
    """Firm pressure: 20 / 29 = .69. The same and one word more: 20 / 30 = .67."""
    shown = comparison("Firm pressure.", "Firm pressure always.")
    for margin, verdicts in ((0.05, "TIE TIE"), (0.02, "A B")):
        (judgment,) = judged(
            shipped("judge", "lexical", margin=margin), tmp_path, shown
        )
        assert letters(judgment) == verdicts


# A position effect, put there on purpose


def test_equal_answers_are_one_query_and_show_no_position_effect(tmp_path):
    same = comparison("Firm pressure.", "Firm pressure.")
    (judgment,) = judged(
        shipped("judge", "lexical", position_effect=1.0), tmp_path, same
    )
    assert judgment.raw[0].cache_key == judgment.raw[1].cache_key
    verdicts = saved(tmp_path / "verdicts", {"factuality": [judgment]})
    (again,) = judged(replay(verdicts), tmp_path / "verdicts", same)
    for found in (judgment, again):
        assert (letters(found), found.winner, found.inconsistent) == (
            "A A",
            None,
            False,
        )
        assert found.equal_answers
        quality = judge_quality([found], dimension="factuality")
        assert (quality.flip_rate, quality.first_shown_rate) == (None, None)
        assert quality.n_equal_answers == 1


def test_a_position_effect_flips_its_share_of_the_judgments_and_no_others(
    demo, probed, tmp_path
):
    """.3 of 733 comparisons of different answers: within three standard errors (.017)."""
    judge = shipped("judge", "lexical", position_effect=0.3)
    affected = judge_all(judge, tmp_path, probed)
    judgments = affected["clinical_utility"]
    quality = judge_quality(judgments, dimension="clinical_utility")
    assert (quality.n_judgments, quality.n_two_order, quality.n_equal_answers) == (
        858,
        733,
        125,
    )
    assert quality.flip_rate == pytest.approx(0.3, abs=0.051)
    assert (
        sum(letters(j) == "A A" and not j.equal_answers for j in judgments)
        == quality.n_flips
    )
    assert quality.first_shown_rate > 0.6
    for dimension in DIMENSIONS:
        for before, after in zip(demo[dimension], affected[dimension], strict=True):
            assert after.inconsistent or after.winner == before.winner


def test_its_cache_key_has_every_setting():
    names = {field.name for field in dataclasses.fields(LexicalJudge)}
    assert LEXICAL.cache_key() == {
        **{name: getattr(LEXICAL, name) for name in names},
        "judge": "lexical",
        "version": 1,
    }


# Replaying the verdicts of a run


def saved(folder: Path, judgments: dict[str, list[Judgment]]) -> Path:
    """Judgments as a run writes them: verdicts/<dimension>.jsonl."""
    for dimension, some in judgments.items():
        write_jsonl(
            folder / f"{dimension}.jsonl", (judgment.to_dict() for judgment in some)
        )
    return folder


def replay(path: Path, judge_model: str | None = None) -> ReplayJudge:
    return ReplayJudge(path=str(path), judge_model=judge_model)


def test_the_verdicts_or_battles_of_a_run_conclude_what_the_run_did(
    demo, probed, tmp_path
):
    battles_file = battles(
        tmp_path, *(b.to_dict() for some in demo.values() for b in from_judgments(some))
    )
    for path in (saved(tmp_path / "verdicts", demo), battles_file):
        folder = tmp_path / f"from {path.name}"
        folder.mkdir()
        again = judge_all(replay(path), folder, probed)
        for dimension in DIMENSIONS:
            assert list(map(letters, again[dimension])) == list(
                map(letters, demo[dimension])
            )
            assert from_judgments(again[dimension]) == [
                dataclasses.replace(battle, judge_model="replay")
                for battle in from_judgments(demo[dimension])
            ]


def test_flips_stay_flips_and_the_pair_may_be_listed_the_other_way_round(tmp_path):
    flipped = judged(
        shipped("judge", "lexical", position_effect=1.0), tmp_path, comparison()
    )
    (again,) = judged(
        replay(saved(tmp_path / "a", {"factuality": flipped})), tmp_path, comparison()
    )
    assert (letters(again), again.inconsistent) == ("A A", True)
    path = saved(
        tmp_path / "b", {"factuality": judged(LEXICAL, tmp_path, comparison())}
    )
    (again,) = judged(replay(path), tmp_path, comparison().swapped())
    assert (again.entrant_a, again.winner, letters(again)) == ("bob", "ann", "B A")


def test_invalid_verdicts_stay_invalid_and_repeats_repeats(tmp_path):
    (judgment,) = judged(LEXICAL, tmp_path, comparison(), repeats=2)
    row = judgment.to_dict()
    row["raw"][1]["verdict"], row["raw"][3]["verdict"] = "INVALID", "TIE"
    path = write_jsonl(tmp_path / "v.jsonl", [row])
    (once,) = judged(replay(path), tmp_path, comparison())
    assert (once.invalid, letters(once)) == (True, "A INVALID")
    (twice,) = judged(replay(path), tmp_path, comparison(), repeats=2)
    assert (letters(twice), [v.repeat for v in twice.raw]) == (
        "A INVALID A TIE",
        [0, 0, 1, 1],
    )
    with pytest.raises(
        UserError, match="judging.repeats: found 3, but .* holds 2 for each order"
    ):
        judged(replay(path), tmp_path, comparison(), repeats=3)


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


def replayed(
    folder: Path, *rows: dict[str, Any], judge_model: str | None = None
) -> Judgment:
    (judgment,) = judged(
        replay(battles(folder, *rows), judge_model), folder, comparison()
    )
    return judgment


EXCHANGED = {**BATTLE, "model_a": "bob", "model_b": "ann"}


@pytest.mark.parametrize(
    ("rows", "verdicts", "mirrored"),
    [
        ([BATTLE], "B A", [False, True]),  # one observation answers both orders
        ([{**BATTLE, "shown_first": "b"}], "B A", [True, False]),
        ([{**BATTLE, "winner": "tie"}], "TIE TIE", [False, True]),
        ([{**BATTLE, "winner": "tie (bothbad)"}], "TIE TIE", [False, True]),
        (
            [
                {
                    **BATTLE,
                    "winner": "tie",
                    "verdict_ab": "model_a",
                    "verdict_ba": "model_b",
                }
            ],
            "A A",
            [False, False],
        ),
        (
            [{**BATTLE, "winner": "model_a"}, {**EXCHANGED, "winner": "model_a"}],
            "A A",
            [False] * 2,
        ),
        (
            [{**EXCHANGED, "winner": "model_b"}, {**BATTLE, "winner": "model_a"}],
            "A B",
            [False] * 2,
        ),
        (
            [{**BATTLE, "winner": "tie"}, {**EXCHANGED, "winner": "model_a"}],
            "TIE A",
            [False] * 2,
        ),
    ],
)
def test_battles_answer_the_orders_that_they_were_shown_in(
    tmp_path, rows, verdicts, mirrored
):
    judgment = replayed(tmp_path, *rows)
    assert letters(judgment) == verdicts
    assert [v.mirrored for v in judgment.raw] == mirrored
    assert judgment.inconsistent == (verdicts in ("A A", "TIE A"))
    quality = judge_quality([judgment], dimension="factuality")
    assert (quality.flip_rate is None) == any(mirrored)
    again = judged(
        replay(saved(tmp_path / "verdicts", {"factuality": [judgment]})),
        tmp_path,
        comparison(),
    )
    assert [v.mirrored for v in again[0].raw] == mirrored


def test_a_verdict_without_a_dimension_serves_all_that_have_none(tmp_path):
    rows = [BATTLE, {**BATTLE, "winner": "model_a", "dimension": "calibration"}]
    judge = replay(battles(tmp_path, *rows))
    winners = {
        d: judged(judge, tmp_path, comparison(dimension=d))[0].winner
        for d in DIMENSIONS
    }
    assert winners == {
        "factuality": "bob",
        "calibration": "ann",
        "clinical_utility": "bob",
    }


def test_one_of_several_judges_is_replayed_or_all_with_a_warning(tmp_path, caplog):
    rows = [
        {**BATTLE, "judge_model": f"j{i}", "question_id": f"p{i}"} for i in range(1, 8)
    ]
    path = battles(tmp_path, *rows)
    assert replay(path).model == "replay"
    replay(path).cache_key()
    assert caplog.messages == [
        f"{path}: 7 judges (j1, j2, j3, j4, j5, ...); name one as judge.judge_model"
    ]
    assert replay(path, "j1").model == "j1"
    assert judged(replay(path, "j1"), tmp_path, comparison())[0].winner == "bob"
    assert len(caplog.messages) == 1
    with pytest.raises(
        UserError, match=f"judge_model: {path} holds no verdict of 'opus'."
    ):
        replay(path, "opus").cache_key()


def test_the_first_of_several_verdicts_on_a_pair_is_taken(tmp_path, caplog):
    rows = [BATTLE, {**BATTLE, "winner": "model_a"}, {**BATTLE, "winner": "tie"}]
    assert replayed(tmp_path, *rows).winner == "bob"
    assert "2 repeated answers; the first of each was taken" in caplog.text


def test_a_verdict_is_about_names_also_where_texts_are_equal(tmp_path):
    """zoe's answer is bob's, word for word, and only one of the pairs may be on file."""
    shown = [comparison(), comparison(names=("ann", "zoe"))]
    path = battles(tmp_path, BATTLE, {**BATTLE, "model_b": "zoe", "winner": "model_a"})
    assert [j.winner for j in judged(replay(path), tmp_path, *shown)] == ["bob", "ann"]
    path = battles(tmp_path, BATTLE)
    found = judged(replay(path), tmp_path, *shown, allow_missing=True)
    assert [(j.entrant_b, j.winner) for j in found] == [("bob", "bob")]


def test_real_battles_are_replayed_with_their_winners(tmp_path):
    """GPT-4's verdicts on 70 models, one order for each pair."""
    path = shared_data("llmfao/battles.jsonl.gz")
    winners: dict[tuple[str, str, str], str] = {}
    for _, row in read_jsonl(path):
        if row["judge_model"] == "gpt-4":
            a, b = sorted((row["model_a"], row["model_b"]))
            winner = (
                row[row["winner"]] if row["winner"] in ("model_a", "model_b") else "tie"
            )
            winners.setdefault((row["question_id"], a, b), winner)
    shown = [
        dataclasses.replace(
            comparison(f"{a} on {q}", f"{b} on {q}", names=(a, b)), prompt_id=q
        )
        for q, a, b in winners
    ]
    judgments = judged(replay(path, "gpt-4"), tmp_path, *shown)
    assert [j.winner or "tie" for j in judgments] == list(winners.values())
    assert len(judgments) > 3000
    assert judge_quality(judgments, dimension="factuality").flip_rate is None


# Files that cannot be replayed


def test_a_changed_file_is_another_judge(tmp_path):
    before = replay(battles(tmp_path, BATTLE)).cache_key()
    assert replay(battles(tmp_path, {**BATTLE, "winner": "tie"})).cache_key() != before


VERDICT = {"judge_model": "opus", "position_swap": False, "verdict": "A"}
JUDGMENT = {
    "prompt_id": "p1",
    "dimension": "factuality",
    "entrant_a": "ann",
    "entrant_b": "bob",
    "raw": [VERDICT],
}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"left": "ann"}, "question_id is None. Expected text. Expected a verdict"),
        ({"raw": [VERDICT], "prompt_id": "p1"}, "entrant_a is None. Expected text."),
        (
            {**BATTLE, "winner": "left"},
            "winner: found 'left'. Expected one of model_a, model_b, tie",
        ),
        (
            {**BATTLE, "verdict_ab": "A", "verdict_ba": "B"},
            "verdict_ab: found 'A'. Expected one of model_a, model_b, tie",
        ),
        (
            {**JUDGMENT, "prompt_id": ["p1"]},
            "prompt_id is ['p1']. Expected text.",
        ),
        (
            {**JUDGMENT, "raw": None},
            "raw is None. Expected a list.",
        ),
        (
            {**JUDGMENT, "raw": [{**VERDICT, "repeat": "1"}]},
            "repeat is '1'. Expected a whole number.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_of_another_shape_is_refused(tmp_path, row, message):
    path = battles(tmp_path, BATTLE, row)
    with pytest.raises(UserError) as error:
        replay(path).cache_key()
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_a_file_or_folder_without_verdicts_is_refused_when_it_is_read(tmp_path):
    with pytest.raises(
        UserError,
        match=r"path: found no \.jsonl file in .*\. Expected verdicts or battles",
    ):
        replay(tmp_path).cache_key()
    with pytest.raises(
        UserError, match=r"absent\.jsonl: cannot be read \(No such file"
    ):
        replay(tmp_path / "absent.jsonl").cache_key()
    (tmp_path / "verdicts").mkdir()
    with pytest.raises(
        UserError, match="path: found no file of verdicts in .*, the folder of a run. "
    ):
        replay(tmp_path).cache_key()
