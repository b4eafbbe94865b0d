"""Agreement between judges: stored judgments of other judges on the same texts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data.pairing import pair_up
from elo_exp.files import write_jsonl
from elo_exp.judges.replay import ReplayJudge
from elo_exp.records import Comparison, Judgment
from elo_exp.store.answer_store import Store
from tests.commands import QUICK, run
from tests.data import prompt, responses, shipped

RUBRIC = shipped("rubric", "factuality")
LEXICAL = shipped("judge", "lexical")
N = 4
PROMPTS = [
    prompt(i, f"Question {i}?", gold_answer=f"Answer {i}.") for i in range(1, N + 1)
]
TEXTS = {
    "ann": "Answer {i}.",
    "bob": "No idea about {i}.",
    "zoe": "Answer {i}, or not.",
}


def comparisons(**texts: str) -> dict[str, list[Comparison]]:
    said = {
        name: [text.format(i=i) for i in range(1, N + 1)]
        for name, text in {**TEXTS, **texts}.items()
    }
    return {"factuality": pair_up(PROMPTS, responses(**said), RUBRIC)}


def contrary(folder: Path, prompts: int = N) -> ReplayJudge:
    """A judge for whom the second by name wins, on the first prompts."""
    rows = [
        {"model_a": a, "model_b": b, "winner": "model_b", "question_id": f"p{i}"}
        for i in range(1, prompts + 1)
        for a, b in (("ann", "bob"), ("ann", "zoe"), ("bob", "zoe"))
    ]
    return ReplayJudge(
        kind=None,
        path=str(write_jsonl(folder / "contrary.jsonl", rows)),
        judge_model=None,
    )


def judged(store: Store, judge: Any, **texts: str) -> list[Judgment]:
    missing = pipeline.JudgingSettings(allow_missing=True)
    found = pipeline.judge_pairs(comparisons(**texts), [RUBRIC], judge, store, missing)
    return found["factuality"]


def others(store: Store, judge: Any, **texts: str) -> dict[str, list[Judgment]]:
    found = pipeline.read_other_judgments(comparisons(**texts), [RUBRIC], judge, store)
    return {name: said["factuality"] for name, said in found.items()}


@pytest.fixture
def store(tmp_path) -> Any:
    with Store(tmp_path / "store.sqlite") as store:
        yield store


def test_stored_judgments_of_another_judge_are_found_and_nothing_is_asked(
    store, tmp_path
):
    by_lexical = judged(store, LEXICAL)
    assert others(store, LEXICAL) == {}
    before = store.query("SELECT * FROM answers"), dataclasses.asdict(store.usage)
    replay = contrary(tmp_path, prompts=2)
    assert others(store, replay) == {LEXICAL.model: by_lexical}
    assert (
        store.query("SELECT * FROM answers"),
        dataclasses.asdict(store.usage),
    ) == before
    judged(store, replay)
    assert {j.prompt_id for j in others(store, LEXICAL)[replay.model]} == {"p1", "p2"}


def test_verdicts_on_texts_that_have_changed_are_not_found(store, tmp_path):
    judged(store, LEXICAL)
    found = others(store, contrary(tmp_path), bob="Another thing about {i}.")
    assert {(j.entrant_a, j.entrant_b) for j in found[LEXICAL.model]} == {
        ("ann", "zoe")
    }


def test_a_model_with_other_settings_is_another_judge(store, tmp_path):
    judged(store, LEXICAL)
    judged(store, dataclasses.replace(LEXICAL, margin=0.31))
    (name,) = others(store, LEXICAL)
    assert name.startswith(f"{LEXICAL.model} (")
    assert len(others(store, contrary(tmp_path))) == 2


@pytest.mark.system
def test_a_second_judge_of_a_run_is_compared_with_the_first(tmp_path):
    """The second judge reverses every tenth battle."""
    first = run(*QUICK, folder=tmp_path)
    turned = {"model_a": "model_b", "model_b": "model_a", "tie": "tie"}
    rows, n_turned = [], 0
    for i, row in enumerate(first.rows("battles.jsonl")):
        winner = turned[row["winner"]] if i % 10 == 0 else row["winner"]
        n_turned += winner != row["winner"]
        rows.append(row | {"winner": winner, "verdict_ab": None})
    path = write_jsonl(tmp_path / "second.jsonl", rows)
    second = run(*QUICK, "judge=replay", f"judge.path={path}", folder=tmp_path)
    assert first.read("ratings.json")["agreement_between_judges"] == []
    ratings, n = second.read("ratings.json"), len(rows)
    (found,) = ratings["agreement_between_judges"]
    assert (found["first"], found["second"]) == ("replay", "lexical")
    assert (found["dimension"], found["n_comparisons"]) == ("factuality", n)
    assert found["agreement"] == pytest.approx(1 - n_turned / n)
    (rank,) = ratings["rank_correlation_between_judges"]
    assert (rank["n_models"], rank["dimension"]) == (4, "factuality")
