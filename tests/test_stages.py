"""The stages: each asks only for what the store does not have yet, and says what is missing."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data.pairing import Responses, pair_up
from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, Judgment, Prompt
from elo_exp.store.answer_store import Store
from elo_exp.store.usage import Usage
from tests.data import DIMENSIONS, prompt, shipped

RUBRICS = [shipped("rubric", dimension) for dimension in DIMENSIONS]
FACTUALITY = RUBRICS[:1]
LEXICAL = shipped("judge", "lexical")
PROMPTS = [
    prompt(1, "What stops bleeding?", gold_answer="Firm pressure."),
    prompt(2, "What cools a burn?", gold_answer="Running cool water."),
    prompt(3, "When will I die?", expected_behavior="abstain"),
]
TEXTS = {
    "ann": ["Firm pressure on the wound.", "Cool water.", "I cannot say."],
    "bob": ["A prayer.", "Butter.", "In March."],
    "zoe": ["Maybe pressure.", "Water, I think.", "Soon."],
}


def entrants(folder: Path, **texts: Sequence[str | None]) -> dict[str, Any]:
    """Entrants that answer p1, p2, ... with these texts, None for no answer."""
    made = {}
    for name, some in texts.items():
        rows = [
            {"prompt_id": f"p{i}", "response_text": text}
            for i, text in enumerate(some, start=1)
            if text
        ]
        path = write_jsonl(folder / f"responses_{name}.jsonl", rows)
        made[name] = RecordedEntrant(entrant_id=name, path=str(path))
    return made


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "store.sqlite"


def generated(
    path: Path,
    of: dict[str, Any],
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    allow_missing: bool = False,
) -> tuple[Responses, Usage]:
    """The responses, and what this call used."""
    with Store(path) as store:
        made = pipeline.generate(prompts, of, store, allow_missing=allow_missing)
        return made, store.usage


def compared(
    responses: Responses,
    prompts: Sequence[Prompt] = PROMPTS,
    rubrics: Sequence[Any] = RUBRICS,
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
    rubrics: Sequence[Any] = RUBRICS,
    **how: Any,
) -> tuple[dict[str, list[Judgment]], Usage]:
    """The judgments, and what this call used."""
    with Store(path) as store:
        asking = pipeline.JudgingSettings(**how)
        made = pipeline.judge_pairs(comparisons, rubrics, judge, store, asking)
        return made, store.usage


# Generating


def test_every_entrant_answers_every_prompt_once_in_the_order_given(tmp_path, path):
    of = entrants(tmp_path, zoe=TEXTS["zoe"], ann=TEXTS["ann"])
    responses, usage = generated(path, of)
    ids = [("p1", 0), ("p2", 0), ("p3", 0)]
    assert [(name, list(some)) for name, some in responses.items()] == [
        ("zoe", ids),
        ("ann", ids),
    ]
    assert responses["ann"]["p2", 0].response_text == "Cool water."
    assert (usage.responses_wanted, usage.responses_generated) == (6, 6)
    changed = entrants(tmp_path, zoe=TEXTS["zoe"], ann=["Press.", *TEXTS["ann"][1:]])
    responses, usage = generated(path, changed)
    assert responses["ann"]["p1", 0].response_text == "Press."
    assert (usage.responses_generated, usage.responses_stored) == (1, 5)


def test_missing_responses_stop_the_run_or_are_named_and_what_was_made_is_kept(
    tmp_path, path, caplog
):
    some = entrants(
        tmp_path,
        ann=["Firm pressure.", None, None],
        bob=TEXTS["bob"],
        zoe=["Pressure."],
    )
    missing = "4 of 9 responses are missing (ann 2, zoe 2): ann on p2, ann on p3, zoe on p2, ...."
    with pytest.raises(UserError) as error:
        generated(path, some)
    hint = " Supply them, or add allow_missing=true to go on without them."
    assert str(error.value) == missing + hint
    with caplog.at_level(logging.WARNING):
        responses, usage = generated(path, some, allow_missing=True)
    assert (list(responses["ann"]), usage.responses_stored) == ([("p1", 0)], 5)
    assert f"{missing} The run goes on without them." in caplog.text


# Judging


@pytest.fixture
def responses(tmp_path) -> Responses:
    """Two prompts for factuality, three for the other rubrics; three pairs each."""
    made, _ = generated(tmp_path / "responses.sqlite", entrants(tmp_path, **TEXTS))
    return made


def test_every_comparison_is_judged_once_in_both_orders(path, responses):
    comparisons = compared(responses)
    judgments, usage = judged(path, comparisons)
    assert list(map(len, judgments.values())) == [6, 9, 9]
    for dimension, some in judgments.items():
        pairs = [(j.prompt_id, j.entrant_a, j.entrant_b) for j in some]
        asked = comparisons[dimension]
        assert pairs == [(c.prompt_id, c.entrant_a, c.entrant_b) for c in asked]
        assert {tuple(v.position_swap for v in j.raw) for j in some} == {(False, True)}
    winners = {(j.prompt_id, j.entrant_b): j.winner for j in judgments["factuality"]}
    assert winners["p1", "bob"] == winners["p2", "bob"] == "ann"
    assert usage.verdicts_wanted == usage.judge_calls == 48
    again, usage = judged(path, comparisons)
    assert again == judged(path, comparisons, stored_only=True)[0] == judgments
    assert (usage.judge_calls, usage.verdicts_stored) == (0, 48)


def test_equal_texts_are_judged_once(tmp_path, path):
    """Of three pairs in two orders, ann v bob and ann v eve are the same two queries, and bob v
    eve reads the same in both orders: three queries in place of six."""
    of = entrants(tmp_path, ann=TEXTS["ann"], bob=TEXTS["bob"], eve=TEXTS["bob"])
    same, _ = generated(path, of, PROMPTS[:1])
    comparisons = compared(same, PROMPTS[:1], FACTUALITY)
    judgments, usage = judged(path, comparisons, rubrics=FACTUALITY)
    assert (usage.verdicts_wanted, usage.verdicts_distinct) == (6, 3)
    assert usage.judge_calls == 3
    assert [j.winner for j in judgments["factuality"]] == ["ann", "ann", None]


def test_only_what_has_changed_is_judged_again(tmp_path, path, responses):
    judged(path, compared(responses, limit=2))

    def n_judged(comparisons: Any, *how: Any, **more: Any) -> int:
        return judged(path, comparisons, *how, **more)[1].judge_calls

    assert n_judged(compared(responses)) == 36  # the pairs beyond the limit
    # A gold answer: factuality alone shows it. Three pairs in two orders.
    gold = dataclasses.replace(PROMPTS[0], gold_answer="A tourniquet.")
    assert n_judged(compared(responses, [gold, *PROMPTS[1:]])) == 3 * 2
    # A response of zoe: against ann and bob, in two orders, on three dimensions.
    texts = {**TEXTS, "zoe": ["Do press.", *TEXTS["zoe"][1:]]}
    changed, _ = generated(path, entrants(tmp_path, **texts))
    assert n_judged(compared(changed)) == 2 * 2 * 3
    # A rubric: its own dimension.
    file = tmp_path / "calibration.md"
    file.write_text(Path(RUBRICS[1].path).read_text() + "\nBe brief.\n")
    edited = shipped("rubric", "calibration", path=str(file))
    rubrics = [RUBRICS[0], edited, RUBRICS[2]]
    assert n_judged(compared(responses, rubrics=rubrics), rubrics=rubrics) == 9 * 2
    # A setting of the judge: everything.
    judge = shipped("judge", "lexical", margin=0.2)
    assert n_judged(compared(responses), judge) == 48


def test_a_repeat_judges_everything_once_more_and_changes_no_winner(path, responses):
    comparisons = compared(responses, rubrics=FACTUALITY)
    once, _ = judged(path, comparisons, rubrics=FACTUALITY)
    twice, usage = judged(path, comparisons, rubrics=FACTUALITY, repeats=2)
    assert (usage.verdicts_stored, usage.judge_calls) == (12, 12)
    for one, two in zip(once["factuality"], twice["factuality"], strict=True):
        assert (two.winner, two.raw[:2]) == (one.winner, one.raw)
        more = [(v.repeat, v.position_swap) for v in two.raw[2:]]
        assert more == [(1, False), (1, True)]


def test_stored_only_judges_nothing_and_counts_what_is_missing(path, responses, caplog):
    judgments, usage = judged(path, compared(responses), stored_only=True)
    assert judgments == {dimension: [] for dimension in DIMENSIONS}
    assert usage.verdicts_missing == 48
    some, _ = judged(path, compared(responses, limit=2))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        judgments, usage = judged(path, compared(responses), stored_only=True)
    assert judgments == some
    assert (usage.judge_calls, usage.verdicts_stored) == (0, 12)
    counts = "(calibration 14, clinical_utility 14, factuality 8)"
    assert f"36 of 48 verdicts are missing {counts}" in caplog.text


def test_missing_verdicts_stop_the_run_or_their_comparisons_have_no_judgment(
    tmp_path, path, responses
):
    """The judge knows one battle, ann against bob on p1."""
    row = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "p1"}
    file = write_jsonl(tmp_path / "battles.jsonl", [row])
    judge = ReplayJudge(kind=None, path=str(file), judge_model=None)
    comparisons = compared(responses, rubrics=FACTUALITY)
    with pytest.raises(UserError) as error:
        judged(path, comparisons, judge, FACTUALITY)
    message = "10 of 12 verdicts are missing (factuality 10): factuality p1 ann v zoe,"
    assert str(error.value).startswith(message)
    judgments, usage = judged(path, comparisons, judge, FACTUALITY, allow_missing=True)
    assert [(j.prompt_id, j.winner) for j in judgments["factuality"]] == [("p1", "ann")]
    assert usage.verdicts_missing == 10
