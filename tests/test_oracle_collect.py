"""Collecting oracle data: what is left out and counted, what is refused before anything is paid."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp.data import bank
from elo_exp.errors import UserError
from elo_exp.experiments.collection import (
    Collection,
    CollectionSettings,
    LoggedData,
    Scorer,
)
from elo_exp.files import write_jsonl
from elo_exp.pipeline import JudgingSettings
from elo_exp.records import Prompt, Response, Score
from elo_exp.store.answer_store import Store
from tests import openai_server
from tests.data import BANK, shipped
from tests.oracle_demo import oracle_of, ran, said

TEXTS = ("One.", "Two.", "", "Four.", "Five.")
EXTREME = -2.0 - math.log(5.1)
FORCED = {
    "base": [-3.0, -2.0, 0.0, -5.0, 0.0],
    "other": [-3.0, EXTREME, 0.0, None, 0.0],
}
SCORES = {"base": [0.1, 0.5, None, 0.3, 0.2], "other": [0.7, None, 0.9, 0.8, 0.6]}
LABELS = {"base": [0.2, None], "other": [0.4]}  # of the first prompts


def named(values: list[Any]) -> dict[str, Any]:
    return {f"p{i}": value for i, value in enumerate(values)}


def score(value: float | None) -> Score:
    return Score(
        prompt_id="",
        policy="",
        draw_idx=0,
        judge_model="judge",
        judge_score=value,
        judge_score_variance=None,
        cache_key="",
    )


def response(policy: str, text: str) -> Response:
    return Response(
        entrant_id=policy, prompt_id="", response_text=text, finish_reason="length"
    )


@pytest.fixture
def collected() -> LoggedData:
    scores, labels = (
        {policy: named([score(v) for v in values]) for policy, values in some.items()}
        for some in (SCORES, LABELS)
    )
    return LoggedData(
        prompts=[
            Prompt(prompt_id=name, text=f"{name}?", source="own", subject="")
            for name in named(list(TEXTS))
        ],
        logging_policy="base",
        responses={
            policy: named([response(policy, text) for text in TEXTS])
            for policy in FORCED
        },
        logprobs={policy: named(values) for policy, values in FORCED.items()},
        scores=scores,
        labels=labels,
        checks=[],
        models={},
    )


def test_missing_scores_labels_and_log_probabilities_stay_missing(
    collected: LoggedData,
):
    """Without a score an answer is left out; labels of the targets only check."""
    files = collected.files
    assert [
        (
            row["prompt_id"],
            row["judge_score"],
            row["oracle_label"],
            row["target_logps"]["other"],
        )
        for row in files["logged.jsonl"]
    ] == [
        ("p0", 0.1, 0.2, -3.0),
        ("p1", 0.5, None, EXTREME),
        ("p3", 0.3, None, None),
        ("p4", 0.2, None, 0.0),
    ]
    fresh, (probe,) = files["fresh/other.jsonl"], files["probe/other.jsonl"]
    assert [row["prompt_id"] for row in fresh] == ["p0", "p2", "p3", "p4"]
    assert {row["oracle_label"] for row in fresh} == {None}
    assert (probe["prompt_id"], probe["oracle_label"]) == ("p0", 0.4)


def test_a_target_without_a_score_is_left_out(
    collected: LoggedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    assert collected.write(tmp_path)["policies"] == ["other"]
    scores = {**collected.scores, "other": {}}
    unread = dataclasses.replace(collected, scores=scores)
    assert unread.write(tmp_path)["policies"] == []
    assert "other is left out, because it has no readable score" in caplog.text


def test_the_summary_counts_nulls_zeros_and_extreme_weights(collected: LoggedData):
    """A zero is odd of an answer that says something; a weight of 1 / 5.1 is beyond 1/5 .. 5."""
    base, other = collected.info["policies"]
    names = ("n_logprobs", "n_null", "n_zero", "n_exactly_one", "n_extreme")
    assert [base[name] for name in names] == [5, 0, 1, 5, 0]
    assert [other[name] for name in names] == [4, 1, 1, 3, 1]
    assert base["scores"] == {"n": 4, "n_unreadable": 1, "mean": pytest.approx(0.275)}
    assert base["labels"] == {"n": 1, "n_unreadable": 1, "mean": 0.2}


# Mistakes

TINY = ("entrant=[tiny_base,tiny_clone]",)
PROBES = (
    "entrant=[probe_hedged,probe_partial]",
    "oracle.n_prompts=20",
    "oracle.label_fraction=1",
)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["oracle.probe_dir=probe"], "oracle.probe_dir applies to recorded answers."),
        (["oracle.scale=[0,100]"], "oracle.scale applies to recorded answers. Generated answers"),
        (["oracle.scale=[1,0]"], "oracle.scale must be two numbers, the lower one first, such as [0,10]; got [1.0, 0.0]."),
        ([*TINY, "oracle.logging_policy=base"], 'oracle.logging_policy must be one of tiny_base, tiny_clone; got "base".'),
        (["entrant=[tiny_base,probe_hedged]", "oracle.logging_policy=probe_hedged"],
         "entrant.probe_hedged records no log-prob"),
        (["entrant=[tiny_base,probe_hedged]", "compat=cje-0.3"], "compat=cje-0.3, oracle.grid=true and "
         "oracle.truth=labels need log-probabilities"),
        ([*TINY, "oracle.policies=[ann]"], 'oracle.policies must be one of tiny_base, tiny_clone; got "ann".'),
        ([*TINY, "oracle.prompts=arena"], "The arena has no source of human battles."),
        ([*TINY, "scoring@oracle_scoring=score"], "judge@oracle_judge is the judge itself"),
        (["judge=haiku", "entrant=[tiny_base,tiny_clone]"], "judge@oracle_judge must be better than the judge "),
        (["judge@oracle_judge=opus", "oracle_judge.budget_usd=5"], "oracle_judge.budget_usd has no effect here: the "
         "budget of the oracle is oracle.budget_usd."),
        (["mode=pilot"], "Without entrants the policies are simulated, and claude-"),
        ([*TINY, "oracle.n_prompts=15"], "A calibration needs at least 10 labels; oracle.label_fraction=0.5 of 15 "
         "answers gives 8."),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_anything_is_generated(
    tmp_path: Path, overrides: list[str], words: str
):
    with (
        pytest.raises(UserError) as refusal,
        oracle_of(tmp_path, *overrides) as (experiment, context),
    ):
        experiment.collection(context.store)
    assert str(refusal.value).startswith(words)


def test_a_free_judge_may_be_the_oracle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    label = {"prompt_id": "p", "policy": "probe_hedged", "judge_score": 0.5}
    write_jsonl(tmp_path / "labels.jsonl", [label])
    oracle = ("judge@oracle_judge=replay", "oracle_judge.path=labels.jsonl")
    planned = said(tmp_path, *PROBES, *oracle, "plan=true")
    assert planned.count(", free") == 2


def test_prompts_come_from_an_arena_but_without_references(tmp_path: Path):
    """The oracle's signal is another, so that it is not the judge."""
    battle = {"model_a": "a", "model_b": "b", "winner": "tie", "language": "en"}
    battle |= {"response_a": "One.", "response_b": "Two."}
    rows = [
        {**battle, "question_id": str(i), "prompt": f"What is {i} and {i}?"}
        for i in range(30)
    ]
    path = write_jsonl(tmp_path / "arena.jsonl", rows)
    given = [*TINY, f"arena.path={path}", "arena.columns.language=language"]
    given += ["oracle.prompts=arena", "status=true"]
    with pytest.raises(
        UserError,
        match="^The rubric shows reference answers, and none of the 30 prompts has one",
    ):
        said(tmp_path, *given)
    oracle = ("scoring@oracle_scoring=score", "oracle_judge.default_signal=overlap")
    status = said(tmp_path, *given, *oracle)
    assert "Missing: 60 answers, 60 log-probabilities, 60 scores, 23 labels." in status


def test_judge_and_oracle_have_caps_of_their_own(tmp_path: Path):
    """Their plan needs no key, and pays nothing."""
    judges = ("judge=haiku", "judge@oracle_judge=opus")
    caps = ("judging.budget_usd=1", "oracle.budget_usd=2")
    given = (*PROBES, *judges, *caps, "plan=true")
    judge, oracle = said(tmp_path, *given).split("oracle: its slices of them")
    assert (
        'judge claude-haiku-5-5 as "an expert, impartial evaluator"\n  budget $1.00'
        in judge
    )
    assert 'evaluator"\n  budget $2.00 (oracle.budget_usd)' in oracle


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, "Check that the server runs, the network, and oracle_judge.base_url"),
        ({"key_variable": "THEIR_KEY"}, "The oracle's judge needs an API key, and THEIR_KEY is not set."),
    ],
)  # fmt: skip
def test_what_would_stop_the_oracle_is_reported_before_the_judge_is_paid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Mapping[str, str],
    words: str,
):
    openai_server.alone(monkeypatch, tmp_path)
    given = ["judge=openai_compatible", "judge@oracle_judge=openai_compatible"]
    given += ["judging.budget_usd=9", "oracle.budget_usd=9"]
    with openai_server.OpenAiServer() as server:
        common = {"base_url": server.url, "output_usd_per_million": "1"}
        for part, settings in (
            ("judge", {**common, "model": "small"}),
            ("oracle_judge", {**common, "model": "large", **wrong}),
        ):
            given += [f"{part}.{name}={value}" for name, value in settings.items()]
        with pytest.raises(UserError, match=re.escape(words)):
            ran(tmp_path, *PROBES, *given)
    assert server.asked == []


def test_stored_only_asks_neither_judge_nor_oracle(tmp_path: Path):
    with pytest.raises(
        UserError, match="^The judge gave no readable score for any answer\\."
    ):
        ran(tmp_path, *PROBES, "judging.stored_only=true")
    status = said(tmp_path, *PROBES, "status=true")
    assert "Missing: 40 scores, 40 labels." in status


def test_a_collection_is_made_of_settings_and_parts_without_an_experiment(
    tmp_path: Path,
):
    """The larger of two nested slices holds the smaller; both policies are labelled on the same prompts."""
    names = ("probe_hedged", "probe_partial")
    chosen = CollectionSettings(
        prompts="bank",
        n_prompts=None,
        logging_policy=None,
        label_fraction=0.5,
        validation_fraction=0.25,
        check_nats=None,
        check_answers=8,
        policies=None,
        seed=42,
    )
    scorer = Scorer(shipped("judge", "lexical"), shipped("scoring", "score"))
    prompts = bank.load_bank(BANK)[:40]
    with Store(tmp_path / "store.sqlite") as store:

        def slice_of(share: float) -> Sequence[str]:
            made = Collection(
                dataclasses.replace(chosen, label_fraction=share),
                store,
                prompts=prompts,
                entrants={name: shipped("entrant", name) for name in names},
                judge=scorer,
                oracle=scorer,
                asking=JudgingSettings(),
            )
            assert made.policies == {}
            ids = made.raters[1].prompt_ids
            assert ids[names[0]] == ids[names[1]]
            return ids[names[0]]

        half, quarter = slice_of(0.5), slice_of(0.25)
    assert (len(half), len(quarter)) == (20, 10)
    assert set(quarter) < set(half)
