"""Phase 1 of the oracle experiment: what is left out and counted, what is refused before anybody is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from elo_exp.files import write_jsonl, write_whole
from elo_exp.oracle.collection import LoggedData, Numbers, summary_table
from elo_exp.records import Prompt, Response, Score, UserError
from tests import openai_server
from tests.commands import attempt
from tests.oracle_demo import answered, oracle_of, ran, said, small

TEXTS = ("One.", "Two.", "", "Four.", "Five.")
FORCED = {
    "base": [-3.0, -2.0, 0.0, -5.0, 0.0],
    "other": [-3.0, -2.0 - math.log(5.1), 0.0, None, 0.0],
}
SCORES = {"base": [0.1, 0.5, None, 0.3, 0.2], "other": [0.7, None, 0.9, 0.8, 0.6]}
LABELS = {"base": [0.2, None], "other": [0.4]}  # of the first prompts


def named(values: list[float | None]) -> dict[str, float | None]:
    return {f"p{i}": value for i, value in enumerate(values)}


def scores(values: Mapping[str, list[float | None]]) -> dict[str, dict[str, Score]]:
    return {
        policy: {
            name: Score(
                prompt_id=name,
                policy=policy,
                draw_idx=0,
                judge_model="judge",
                judge_score=value,
                judge_score_variance=None,
                cache_key=name,
            )
            for name, value in named(some).items()
        }
        for policy, some in values.items()
    }


def collected() -> LoggedData:
    prompts = [
        Prompt(prompt_id=f"p{i}", text=f"{i}?", source="own", subject="")
        for i in range(len(TEXTS))
    ]
    answers = {
        name: {
            p.prompt_id: Response(
                entrant_id=name,
                prompt_id=p.prompt_id,
                response_text=text,
                finish_reason="length",
            )
            for p, text in zip(prompts, TEXTS, strict=True)
        }
        for name in FORCED
    }
    return LoggedData(
        prompts=prompts,
        logging_policy="base",
        responses=answers,
        logprobs={name: named(values) for name, values in FORCED.items()},
        scores=scores(SCORES),
        labels=scores(LABELS),
        checks=[],
        judge_model="judge",
        oracle_model="oracle",
        rubric_versions={},
    )


def test_an_answer_without_a_readable_score_is_left_out():
    assert [row.prompt_id for row in collected().logged()] == ["p0", "p1", "p3", "p4"]
    assert [row.prompt_id for row in collected().fresh("other")] == [
        "p0",
        "p2",
        "p3",
        "p4",
    ]


def test_an_unreadable_label_is_no_label():
    assert [row.oracle_label for row in collected().logged()] == [0.2, None, None, None]
    (probe,) = collected().probe("other")
    assert (probe.prompt_id, probe.judge_score, probe.oracle_label) == ("p0", 0.7, 0.4)


def test_labels_of_the_targets_only_check():
    assert {row.oracle_label for row in collected().fresh("other")} == {None}


def test_a_missing_log_probability_is_null_and_never_zero():
    targets = [row.target_logps["other"] for row in collected().logged()]
    assert targets == [-3.0, -2.0 - math.log(5.1), None, 0.0]


def test_the_summary_counts_nulls_zeros_and_extreme_weights():
    """A zero is odd of an answer that says something; a weight of 1 / 5.1 is beyond 1/5 .. 5."""
    base, other = collected().summaries
    assert (base.n_null, base.n_zero, base.n_exactly_one, base.n_extreme) == (
        0,
        1,
        5,
        0,
    )
    assert (other.n_null, other.n_zero, other.n_exactly_one, other.n_extreme) == (
        1,
        1,
        3,
        1,
    )
    assert other.max_abs_log_ratio == pytest.approx(math.log(5.1))
    assert (base.n_responses, base.n_empty, base.n_cut_off, base.n_logprobs) == (
        5,
        1,
        5,
        5,
    )


def test_the_summary_has_the_means_of_what_can_be_read():
    base, other = collected().summaries
    assert (base.scores.n, base.scores.n_unreadable, base.scores.mean) == (
        4,
        1,
        pytest.approx(1.1 / 4),
    )
    assert base.scores.std == pytest.approx(
        math.sqrt((0.175**2 + 0.225**2 + 0.025**2 + 0.075**2) / 3)
    )
    assert (base.labels, other.labels) == (
        Numbers(n=1, n_unreadable=1, mean=0.2, std=None),
        Numbers(n=1, n_unreadable=0, mean=0.4, std=None),
    )
    lines = {
        line.split()[0]: line.split()
        for line in summary_table([base, other]).splitlines()
        if line.strip()
    }
    assert lines["other"][1:] == [
        "5",
        "5",
        "1",
        "1",
        "3",
        "1",
        "4",
        "0.750",
        "1",
        "0.400",
        "1",
    ]


# Mistakes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mistakes")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["oracle.label_fraction=1.5"], "oracle.label_fraction: found 1.5. Expected less than or equal to 1."),
        (["oracle.prompts=web"], "oracle.prompts: found 'web'. Expected 'bank' or 'arena'."),
        (["oracle.probe_dir=probe"], "oracle.logged: names no file. Set it with oracle.logged=FILE, the logging "),
        (["entrant=[]"], "entrant: none is chosen. Choose the logging policy and others: "),
        (["entrant=[tiny_base]"], "entrant: found tiny_base alone. Choose target policies beside it."),
        (["oracle.logging_policy=base"], "oracle.logging_policy: found 'base'. Expected one of tiny_base, tiny_clone"),
        (["entrant=[tiny_base,probe_hedged]"], "entrant.probe_hedged: records no log-probabilities. Expected "),
        (["entrant.tiny_clone.logprobs=false"], "entrant.tiny_clone: records no log-probabilities. Expected logprobs="),
        (["entrant.tiny_clone.entrant_id=tiny_base"], "entrant.tiny_clone.entrant_id: found 'tiny_base'. Expected "),
        (["oracle.policies=[tiny_clone,tiny_clone]"], "oracle.policies: 'tiny_clone' is named twice. Name each once."),
        (["oracle.policies=[tiny_base]"], "oracle.policies: found 'tiny_base'. Expected one of tiny_clone, tiny_unh"),
        (["oracle.prompts=arena"], "arena.path: names no file. Set it with arena.path=FILE, or choose a data set: "),
        (["scoring@oracle_scoring=score"], "judge@oracle_judge: is the judge itself, and every label would be "),
        (["judge=haiku", "entrant=[tiny_base,tiny_clone]"], "judge@oracle_judge: found lexical, which only compares "),
        (["judge@oracle_judge=opus", "oracle_judge.budget_usd=5"], "oracle_judge.budget_usd: found 5. Leave it out: "),
        (["judge@oracle_judge=opus"], "entrant: none is named, and claude-opus-5-5 would judge the demonstration's "),
        (["mode=pilot", "judge@oracle_judge=opus"], "entrant: none is named, and claude-sonnet-5-5 and claude-opus-"),
        (["judge@oracle_judge=opus", "entrant.tiny_base.batch_size=1"], "entrant: none is named, and claude-opus-5-5"),
        (["oracle.n_prompts=15"], "oracle.label_fraction: 0.5 of 15 logged answers are 8 labels. Expected 10 or more"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_before_anybody_is_asked(
    folder: Path, overrides: list[str], words: str
):
    with (
        pytest.raises(UserError) as refusal,
        oracle_of(folder, *overrides) as (experiment, context),
    ):
        experiment.builder(context.store)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    "named", [["replay", "path=labels.jsonl"], ["local", "model=./mine"]]
)
def test_a_judge_that_is_free_may_judge_the_demonstration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str]
):
    monkeypatch.chdir(tmp_path)
    write_jsonl(
        tmp_path / "labels.jsonl",
        [{"prompt_id": "p", "policy": "tiny_base", "judge_score": 0.5}],
    )
    for name in ("config.json", "model.safetensors"):
        write_whole(tmp_path / "mine" / name, "")
    oracle, wants = named
    planned = str(
        said(
            tmp_path,
            f"judge@oracle_judge={oracle}",
            f"oracle_judge.{wants}",
            "plan=true",
        )
    )
    assert planned.count("which costs nothing") == 2


def test_nobody_pays_for_the_demonstration_unawares(folder: Path):
    ran = attempt(
        "mode=pilot",
        "experiment=oracle",
        "judge@oracle_judge=opus",
        "tracker=local",
        folder=folder,
    )
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "elo_exp: entrant: none is named, and claude-sonnet-5-5 and claude-opus-5-5 would judge"
    )
    assert ran.err.count("\n") == 1


def arena(folder: Path, n: int) -> list[str]:
    rows = [
        {
            "model_a": "a",
            "model_b": "b",
            "winner": "tie",
            "question_id": str(i),
            "prompt": f"What is {i} and {i}?",
        }
        | {"response_a": "One.", "response_b": "Two."}
        for i in range(n)
    ]
    return [
        "oracle.prompts=arena",
        f"arena.path={write_jsonl(folder / 'arena.jsonl', rows)}",
    ]


def test_an_oracle_that_is_shown_references_cannot_label_an_arena(folder: Path):
    with (
        oracle_of(folder, *arena(folder, 30)) as (experiment, context),
        pytest.raises(UserError) as refusal,
    ):
        experiment.builder(context.store)
    assert str(refusal.value).startswith(
        "scoring: none of 30 prompts has a reference answer, which the rubric shows."
    )


def test_prompts_come_from_an_arena_where_that_is_said(folder: Path):
    """The signal of the oracle is another, so that it is not the judge."""
    oracle = ("scoring@oracle_scoring=score", "oracle_judge.default_signal=overlap")
    status = str(
        said(
            folder,
            *small("tiny_base", "tiny_clone"),
            *arena(folder, 30),
            *oracle,
            "status=true",
        )
    )
    assert "missing: 60 answers, 60 log-probabilities, 60 scores, 23 labels." in status


def test_judge_and_oracle_have_caps_of_their_own(folder: Path):
    """Their plan needs no key, and pays nothing."""
    judges = (
        "judge=haiku",
        "judge@oracle_judge=opus",
        "judging.budget_usd=1",
        "oracle.budget_usd=2",
    )
    planned = str(said(folder, *small("tiny_base", "tiny_clone"), *judges, "plan=true"))
    judge, oracle = planned.split("oracle: its slices of them")
    assert "judge claude-haiku-5-5, cap $1.00 (judging.budget_usd)" in judge
    assert "judge claude-opus-5-5, cap $2.00 (oracle.budget_usd)" in oracle


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"base_url": "http://127.0.0.1:9/v1"},
            "Check that the server runs, and oracle_judge.base_url; nothing was sp",
        ),
        (
            {"key_variable": "THEIR_KEY"},
            "THEIR_KEY: not set, and oracle_judge.key_variable names it.",
        ),
    ],
)
def test_what_would_stop_the_oracle_is_said_before_the_judge_is_paid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Mapping[str, str],
    words: str,
):
    """The answers are there already, so that nothing was looked at before they were made."""
    openai_server.alone(monkeypatch, tmp_path)
    policies = (
        *small("tiny_base", "tiny_clone"),
        "oracle.n_prompts=20",
        "oracle.label_fraction=1",
    )
    answered(tmp_path, *policies, shard="0/1")
    with openai_server.OpenAiServer() as server:
        paid = ("judging.budget_usd=9", "oracle.budget_usd=9")
        for name, model, url in (
            ("judge", "small", server.url),
            ("oracle_judge", "large", server.url),
        ):
            settings = {"base_url": url, "model": model, "output_usd_per_million": "1"}
            settings |= wrong if name == "oracle_judge" else {}
            paid += tuple(
                f"{name}.{setting}={value}" for setting, value in settings.items()
            )
        judges = ("judge=openai_compatible", "judge@oracle_judge=openai_compatible")
        with pytest.raises(UserError, match=re.escape(words)):
            ran(tmp_path, *policies, *judges, *paid)
    assert server.asked == []


def test_with_the_store_alone_neither_judge_nor_oracle_is_asked(tmp_path: Path):
    """What is missing is counted; here it is all of it."""
    policies = (
        *small("tiny_base", "tiny_clone"),
        "oracle.n_prompts=20",
        "oracle.label_fraction=1",
    )
    with pytest.raises(
        UserError, match="^judge: no answer of tiny_base has a readable score"
    ):
        ran(tmp_path, *policies, "judging.stored_only=true")
    status = str(said(tmp_path, *policies, "status=true"))
    assert "missing: 40 scores, " in status
