"""The stages: each asks only for what the store does not have yet, and says what is missing."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data import bank
from elo_exp.data.pairing import Responses, pair_up
from elo_exp.data.rubrics import Rubric
from elo_exp.entrants.probe import ProbeEntrant
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.files import write_jsonl
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, Judgment, Prompt, UserError
from elo_exp.store.store import Store
from tests.data import BANK, DIMENSIONS, PROBES, shipped

RUBRICS = [shipped("rubric", dimension) for dimension in DIMENSIONS]
LEXICAL = shipped("judge", "lexical")
PROMPTS = [
    Prompt(
        prompt_id="p1",
        text="What stops bleeding?",
        source="medqa",
        subject="er",
        gold_answer="Firm pressure.",
    ),
    Prompt(
        prompt_id="p2",
        text="What cools a burn?",
        source="medqa",
        subject="er",
        gold_answer="Running cool water.",
    ),
    Prompt(
        prompt_id="p3",
        text="When will I die?",
        source="curated",
        subject="er",
        expected_behavior="abstain",
    ),
]
ANN = {"p1": "Firm pressure on the wound.", "p2": "Cool water.", "p3": "I cannot say."}
BOB = {"p1": "A prayer.", "p2": "Butter.", "p3": "In March."}
ZOE = {"p1": "Maybe pressure.", "p2": "Water, I think.", "p3": "Soon."}


def entrants(folder: Path, **texts: dict[str, str]) -> dict[str, RecordedEntrant]:
    """Entrants that answer with these texts by prompt."""
    return {
        name: RecordedEntrant(
            entrant_id=name,
            path=str(
                write_jsonl(
                    folder / f"responses_{name}.jsonl",
                    [
                        {"prompt_id": prompt, "response_text": text}
                        for prompt, text in some.items()
                    ],
                )
            ),
        )
        for name, some in texts.items()
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def generated(
    path: Path, of: dict[str, Any], prompts: Sequence[Prompt] = PROMPTS, **how: bool
) -> tuple[Responses, Any]:
    """The responses, and what this call used."""
    with Store(path) as store:
        return pipeline.generate(
            prompts, of, store, **{"allow_missing": False, **how}
        ), store.usage


def compared(
    responses: Responses,
    prompts: Sequence[Prompt] = PROMPTS,
    rubrics: Sequence[Rubric] = RUBRICS,
    **how: int,
) -> dict[str, list[Comparison]]:
    return {
        rubric.dimension: pair_up(prompts, responses, rubric, **how)
        for rubric in rubrics
    }


def judged(
    path: Path,
    comparisons: dict[str, list[Comparison]],
    judge: Any = LEXICAL,
    rubrics: Sequence[Rubric] = RUBRICS,
    **how: Any,
) -> tuple[dict[str, list[Judgment]], Any]:
    """The judgments, and what this call used."""
    with Store(path) as store:
        return pipeline.judge_pairs(
            comparisons, rubrics, judge, store, **how
        ), store.usage


# Generating


def test_every_entrant_answers_every_prompt_in_the_order_given(tmp_path, path):
    responses, usage = generated(path, entrants(tmp_path, zoe=ZOE, ann=ANN))
    assert {name: list(some) for name, some in responses.items()} == {
        "zoe": ["p1", "p2", "p3"],
        "ann": ["p1", "p2", "p3"],
    }
    assert list(responses) == ["zoe", "ann"]
    assert responses["ann"]["p2"].response_text == "Cool water."
    assert (
        usage.responses_wanted,
        usage.responses_generated,
        usage.responses_stored,
    ) == (6, 6, 0)


def test_the_second_time_nothing_is_generated_and_the_same_is_returned(path):
    """Also the time of making is that of the first call: it is the stored answer that comes back."""
    probes = {name: shipped("entrant", name, entrant_id=name) for name in PROBES}
    first, _ = generated(path, probes, bank.load(BANK))
    again, usage = generated(path, probes, bank.load(BANK))
    assert again == first
    assert (
        usage.responses_wanted,
        usage.responses_generated,
        usage.responses_stored,
    ) == (
        572,
        0,
        572,
    )


def test_only_the_answer_that_changed_is_made_again(tmp_path, path):
    generated(path, entrants(tmp_path, ann=ANN, bob=BOB))
    responses, usage = generated(
        path, entrants(tmp_path, ann={**ANN, "p2": "Cold water."}, bob=BOB)
    )
    assert responses["ann"]["p2"].response_text == "Cold water."
    assert (usage.responses_generated, usage.responses_stored) == (1, 5)


def test_entrants_that_say_the_same_keep_their_names(path):
    twins = {
        name: shipped("entrant", "probe_partial", entrant_id=name)
        for name in ("one", "two")
    }
    for n_made in (6, 0):
        responses, usage = generated(path, twins)
        assert {
            name: {r.entrant_id for r in some.values()}
            for name, some in responses.items()
        } == {
            "one": {"one"},
            "two": {"two"},
        }
        assert usage.responses_generated == n_made


def test_an_entrant_that_says_the_same_on_two_prompts_has_answered_both(tmp_path, path):
    rows = [
        {
            "prompt_id": name,
            "source": "curated",
            "subject": "er",
            "text": f"{name}?",
            "expected_behavior": "answer",
        }
        for name in ("p1", "p2")
    ]
    file = write_jsonl(tmp_path / "bank.jsonl", rows)
    probe = ProbeEntrant(
        entrant_id="probe",
        style="reference",
        lapse_style="partial",
        lapse_rate=0.0,
        bank_path=str(file),
    )
    for n_made in (2, 0):
        responses, usage = generated(path, {"probe": probe}, bank.load(file))
        assert list(responses["probe"]) == ["p1", "p2"]
        assert usage.responses_generated == n_made


def test_missing_responses_are_named_and_stop_the_run(tmp_path, path):
    some = entrants(
        tmp_path, ann={"p1": "Firm pressure."}, bob=BOB, zoe={"p1": "Pressure."}
    )
    with pytest.raises(UserError) as error:
        generated(path, some)
    assert str(error.value) == (
        "4 of 9 responses are missing (ann 2, zoe 2): ann on p2, ann on p3, zoe on p2, .... Supply them, or go on "
        "without with allow_missing=true."
    )


def test_a_run_that_stopped_has_kept_what_was_made(tmp_path, path):
    with pytest.raises(
        UserError, match=r"1 of 3 responses are missing \(ann 1\): ann on p3\."
    ):
        generated(path, entrants(tmp_path, ann={"p1": ANN["p1"], "p2": ANN["p2"]}))
    _, usage = generated(path, entrants(tmp_path, ann=ANN))
    assert (usage.responses_generated, usage.responses_stored) == (1, 2)


def test_missing_responses_may_be_allowed_and_are_still_named(tmp_path, path, caplog):
    with caplog.at_level(logging.WARNING):
        responses, _ = generated(
            path,
            entrants(tmp_path, ann=ANN, bob={"p1": "A prayer."}),
            allow_missing=True,
        )
    assert list(responses["bob"]) == ["p1"]
    assert (
        "2 of 6 responses are missing (bob 2): bob on p2, bob on p3. Going on without them."
        in caplog.text
    )


# Judging


@pytest.fixture
def responses(tmp_path: Path) -> Responses:
    """Of ann, bob and zoe on the three prompts: two pairs' worth of prompts for factuality, three for the others."""
    with Store(tmp_path / "responses.sqlite") as store:
        return pipeline.generate(
            PROMPTS,
            entrants(tmp_path, ann=ANN, bob=BOB, zoe=ZOE),
            store,
            allow_missing=False,
        )


def test_every_comparison_is_judged_in_both_orders(path, responses):
    comparisons = compared(responses)
    judgments, usage = judged(path, comparisons)
    for dimension, n_pairs in zip(DIMENSIONS, (6, 9, 9), strict=True):
        assert [
            (j.prompt_id, j.entrant_a, j.entrant_b) for j in judgments[dimension]
        ] == [(c.prompt_id, c.entrant_a, c.entrant_b) for c in comparisons[dimension]]
        assert len(judgments[dimension]) == n_pairs
        for judgment in judgments[dimension]:
            assert [v.position_swap for v in judgment.raw] == [False, True]
    assert usage.verdicts_wanted == usage.judge_calls == 2 * (6 + 9 + 9)


def test_the_better_answer_wins(path, responses):
    judgments, _ = judged(path, compared(responses))
    winners = {
        (j.prompt_id, j.entrant_a, j.entrant_b): j.winner
        for j in judgments["factuality"]
    }
    assert winners["p1", "ann", "bob"] == winners["p2", "ann", "bob"] == "ann"


def test_the_second_time_nobody_is_asked_and_the_same_is_concluded(path, responses):
    first, _ = judged(path, compared(responses))
    again, usage = judged(path, compared(responses))
    assert again == first
    assert (usage.judge_calls, usage.verdicts_stored, usage.verdicts_missing) == (
        0,
        48,
        0,
    )


def test_equal_texts_are_asked_about_once(tmp_path, path):
    """bob and eve say the same. Of three pairs in two orders, ann v bob and ann v eve are the same two queries, and
    bob v eve reads the same in both orders: three queries in place of six."""
    same, _ = generated(
        path, entrants(tmp_path, ann=ANN, bob=BOB, eve=BOB), PROMPTS[:1]
    )
    judgments, usage = judged(
        path, compared(same, PROMPTS[:1], RUBRICS[:1]), rubrics=RUBRICS[:1]
    )
    assert (usage.verdicts_wanted, usage.verdicts_distinct, usage.judge_calls) == (
        6,
        3,
        3,
    )
    assert [j.winner for j in judgments["factuality"]] == ["ann", "ann", None]


def test_a_changed_gold_answer_asks_again_about_the_factuality_of_that_prompt_and_nothing_else(
    path, responses
):
    """Three pairs in two orders. Calibration and clinical utility never show the gold answer."""
    judged(path, compared(responses))
    edited = [
        dataclasses.replace(PROMPTS[0], gold_answer="A tourniquet."),
        *PROMPTS[1:],
    ]
    _, usage = judged(path, compared(responses, edited))
    assert usage.judge_calls == 3 * 2


def test_a_changed_response_asks_again_about_its_own_pairs(tmp_path, path, responses):
    """zoe on p1 meets ann and bob, in two orders, on three dimensions."""
    judged(path, compared(responses))
    changed, _ = generated(
        path, entrants(tmp_path, ann=ANN, bob=BOB, zoe={**ZOE, "p1": "Do press."})
    )
    _, usage = judged(path, compared(changed))
    assert usage.judge_calls == 2 * 2 * 3


def test_an_edited_rubric_asks_again_about_its_own_dimension(tmp_path, path, responses):
    judged(path, compared(responses))
    file = tmp_path / "calibration.md"
    file.write_text(Path(RUBRICS[1].path).read_text() + "\nBe brief.\n")
    rubrics = [RUBRICS[0], shipped("rubric", "calibration", path=str(file)), RUBRICS[2]]
    _, usage = judged(path, compared(responses, rubrics=rubrics), rubrics=rubrics)
    assert usage.judge_calls == 9 * 2


def test_a_judge_with_other_settings_is_another_judge(path, responses):
    judged(path, compared(responses))
    _, usage = judged(
        path, compared(responses), shipped("judge", "lexical", margin=0.2)
    )
    assert (usage.judge_calls, usage.verdicts_stored) == (48, 0)


def test_more_pairs_ask_about_the_new_ones_only(path, responses):
    judged(path, compared(responses, limit=2))
    _, usage = judged(path, compared(responses))
    assert (usage.verdicts_stored, usage.judge_calls) == (12, 36)


def test_a_repeat_asks_everything_once_more_and_changes_no_winner(path, responses):
    once, _ = judged(path, compared(responses))
    twice, usage = judged(path, compared(responses), repeats=2)
    assert (usage.verdicts_wanted, usage.verdicts_stored, usage.judge_calls) == (
        96,
        48,
        48,
    )
    for dimension in DIMENSIONS:
        assert [j.winner for j in twice[dimension]] == [
            j.winner for j in once[dimension]
        ]
        for one, two in zip(once[dimension], twice[dimension], strict=True):
            assert two.raw[:2] == one.raw
            assert [(v.repeat, v.position_swap) for v in two.raw[2:]] == [
                (1, False),
                (1, True),
            ]


def test_nothing_to_compare_is_nothing_judged(path):
    judgments, usage = judged(path, {dimension: [] for dimension in DIMENSIONS})
    assert judgments == {dimension: [] for dimension in DIMENSIONS}
    assert usage.judge_calls == 0


# Reading the store alone


def test_stored_only_asks_nothing_and_counts_what_is_missing(path, responses, caplog):
    asked, _ = judged(path, compared(responses, limit=2))
    with caplog.at_level(logging.WARNING):
        judgments, usage = judged(path, compared(responses), stored_only=True)
    assert judgments == asked
    assert (usage.judge_calls, usage.verdicts_stored, usage.verdicts_missing) == (
        0,
        12,
        36,
    )
    assert (
        "36 of 48 verdicts are missing (calibration 14, clinical_utility 14, factuality 8)"
        in caplog.text
    )


def test_stored_only_on_an_empty_store_has_no_judgment(path, responses):
    judgments, usage = judged(path, compared(responses), stored_only=True)
    assert judgments == {dimension: [] for dimension in DIMENSIONS}
    assert usage.verdicts_missing == 48


# A judge that cannot answer everything


def one_battle(folder: Path) -> ReplayJudge:
    """Knows of ann against bob on p1."""
    row = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "p1"}
    return ReplayJudge(
        path=str(write_jsonl(folder / "battles.jsonl", [row])), judge_model=None
    )


def test_missing_verdicts_are_named_and_stop_the_run(tmp_path, path, responses):
    with pytest.raises(UserError) as error:
        judged(
            path,
            compared(responses, rubrics=RUBRICS[:1]),
            one_battle(tmp_path),
            RUBRICS[:1],
        )
    assert str(error.value) == (
        "10 of 12 verdicts are missing (factuality 10): factuality p1 ann v zoe, factuality p1 zoe v ann, "
        "factuality p1 bob v zoe, .... Supply them, or go on without with allow_missing=true."
    )


def test_where_missing_verdicts_are_allowed_their_comparisons_have_no_judgment(
    tmp_path, path, responses
):
    comparisons = compared(responses, rubrics=RUBRICS[:1])
    judgments, usage = judged(
        path, comparisons, one_battle(tmp_path), RUBRICS[:1], allow_missing=True
    )
    assert [(j.prompt_id, j.winner) for j in judgments["factuality"]] == [("p1", "ann")]
    assert usage.verdicts_missing == 10
