"""Verdicts from probabilities: the share of points that a judge's A, B and TIE give, of a model here or behind an API.

The real SDK talks to a real server on 127.0.0.1, which keeps the bill; the local judge is a tiny model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elo_exp import pipeline
from elo_exp.data.battle_judges import count_shares_and_labels
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.errors import UserError
from elo_exp.judges import LABELS
from elo_exp.records import JudgeReply, Judgment, Verdict
from elo_exp.store.answer_store import Store
from tests.commands import LOCAL, attempt, run
from tests.data import COMPARISON, battle, shipped, write_table
from tests.openai_server import OpenAiServer, Says, alone
from tests.paying import RUBRIC, STORE, comparisons, judged, request
from tests.test_local_judge import judge as local_judge
from tests.test_local_judge import model, one_by_one, replies, requests
from tests.test_openai_judge import judge

_ = model  # the fixture
WEIGHED = {"verdict": "probabilities"}
CHANCES = {" A": 0.5, "A": 0.06, " B": 0.3, "T": 0.07, " TIE": 0.03, " The": 0.04}


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)


def first(chances: Mapping[str, float] = CHANCES) -> Any:
    return lambda params: chances


# A share, and the battle of two


def verdict(
    letter: str, share_of_a: float | None, *, swapped: bool = False, **others: Any
) -> Verdict:
    return Verdict(
        cache_key="k",
        rubric_version="v1",
        judge_model="m",
        position_swap=swapped,
        verdict=letter,
        share=share_of_a,
        **others,
    )


def judgment(*raw: Verdict) -> Judgment:
    names = {"entrant_a": "ann", "entrant_b": "bob"}
    about = {"prompt_id": "p1", "dimension": "d", "winner": None, "invalid": False}
    return Judgment(inconsistent=True, raw=raw, **names, **about)


def test_a_battles_score_is_the_mean_of_both_orders_and_labels_stay_beside_it():
    """.9 for ann, then .6 for bob, who is shown first: ann has .9 and .4."""
    (found,) = battles_from_judgments(
        [judgment(verdict("A", 0.9), verdict("A", 0.6, swapped=True))]
    )
    assert found.score == pytest.approx(0.65)
    assert (found.verdict_ab, found.verdict_ba) == ("model_a", "model_b")
    (one,) = battles_from_judgments([judgment(verdict("A", 0.9, swapped=True))])
    assert one.score == pytest.approx(0.1)


def test_a_label_beside_a_share_gives_no_score_and_a_repeat_does_not_count():
    (mixed,) = battles_from_judgments(
        [judgment(verdict("A", 0.9), verdict("A", None, swapped=True))]
    )
    assert mixed.score is None
    (again,) = battles_from_judgments(
        [judgment(verdict("A", 0.9), verdict("A", 0.1, repeat=1))]
    )
    assert again.score == 0.9


def test_a_share_is_written_only_where_there_is_one():
    assert "share" not in verdict("A", None).to_dict()
    whole = verdict("A", 0.9)
    assert Verdict.from_dict(whole.to_dict()) == whole


# A model on this machine


def test_the_share_of_a_local_judge_is_the_enumerated_probability(
    model: Path, tmp_path: Path
):
    """By a forward pass for each token of each label."""
    of = local_judge(model, batch_size=1, **WEIGHED)
    made = replies(of)
    for asked in requests():
        logprobs = {n: one_by_one(of, asked, "VERDICT:", n) for n in LABELS}
        weight = {n: math.exp(p - max(logprobs.values())) for n, p in logprobs.items()}
        expected = (weight["A"] + weight["TIE"] / 2) / sum(weight.values())
        assert of.share(made[asked.key]) == pytest.approx(expected, abs=1e-6)
        assert local_judge(model).share(made[asked.key]) is None


def test_stored_replies_of_a_local_judge_are_read_as_shares_and_nothing_is_judged_again(
    model: Path, tmp_path: Path
):
    def battles(**changes: Any) -> tuple[list[Any], int]:
        of = local_judge(model, **changes)
        with Store(tmp_path / "store.sqlite") as store:
            found = pipeline.judge_pairs(
                {"factuality": comparisons(2)}, [short()], of, store
            )
            return battles_from_judgments(
                found["factuality"]
            ), store.usage.verdicts_stored

    labels, n_stored = battles()
    assert n_stored == 0
    weighed, n_stored = battles(**WEIGHED)
    assert n_stored == 4
    assert [one.score for one in labels] == [None, None]
    assert all(0.0 < one.score < 1.0 for one in weighed)
    assert [replace(one, score=None) for one in weighed] == labels


def short() -> Any:
    """A rubric of some words, for a model whose tokens are letters."""
    for name, text in (
        ("rubric.md", "# version: v1\nTruth."),
        ("system.md", "Judge."),
        ("template.md", "{question} {response_a} {response_b}"),
    ):
        Path(name).write_text(text, encoding="utf-8")
    return shipped(
        "rubric",
        "factuality",
        path="rubric.md",
        system_path="system.md",
        template_path="template.md",
    )


# A server with log-probabilities


def test_one_token_is_asked_for_behind_the_lead_and_read_with_what_it_could_have_been():
    """(.56 + .10 / 2) / .96 of the labels together; leading spaces do not count, and T begins a tie."""
    with OpenAiServer(first=first()) as server:
        judgments, usage = judged(judge(server.url, **WEIGHED), 3)
        asked = server.asked[0]
        assert server.usage["completion_tokens"] == usage.judge_calls == 6
    expected = request(judge(server.url, **WEIGHED), comparisons(1)[0])
    assert asked == {
        "model": "large",
        "messages": [
            {"role": "system", "content": expected.system},
            {"role": "user", "content": f"{expected.user.rstrip()}\n\nVERDICT:"},
        ],
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 20,
        "temperature": 1.0,
    }
    of_a = (0.56 + 0.05) / 0.96
    for one in judgments:
        assert [v.share for v in one.raw] == pytest.approx([of_a, of_a])
        assert [v.verdict for v in one.raw] == ["A", "A"]
        assert one.inconsistent
    assert [b.score for b in battles_from_judgments(judgments)] == pytest.approx(
        [0.5] * 3
    )


def test_the_judge_may_name_another_lead_and_another_name_for_its_length():
    changes = {"lead": "Answer:", "max_tokens_name": "max_completion_tokens"}
    with OpenAiServer(first=first()) as server:
        judged(judge(server.url, **WEIGHED, **changes), 1)
        asked = server.asked[0]
    assert asked["messages"][1]["content"].endswith("\n\nAnswer:")
    assert asked["max_completion_tokens"] == 1


def test_less_than_half_of_the_probability_on_the_labels_is_no_verdict():
    with OpenAiServer(first=first({"Both": 0.6, " A": 0.4})) as server:
        judgments, _ = judged(judge(server.url, **WEIGHED), 1)
    assert [one.invalid for one in judgments] == [True]
    assert [v.share for v in judgments[0].raw] == [None, None]
    assert judgments[0].raw[0].reasoning == "no label: Both"


def test_verdict_and_lead_enter_the_key_only_where_probabilities_are_asked_for():
    label = judge().cache_key()
    assert not {"verdict", "lead"} & label.keys()
    assert judge(lead="Answer:").cache_key() == label
    one, other = (judge(**WEIGHED, lead=lead).cache_key() for lead in ("a:", "b:"))
    assert one != other
    lengths = [judge(**WEIGHED, max_tokens=n).cache_key() for n in (7, 9)]
    assert lengths[0] == lengths[1]


def test_what_is_paid_for_is_found_again_and_read_anew():
    with OpenAiServer(first=first()) as server:
        of = judge(server.url, **WEIGHED)
        before, _ = judged(of, 2)
        again, usage = judged(of, 2)
        assert len(server.asked) == 4
    assert (again, usage.judge_calls) == (before, 0)


# What is refused


THOUGHT = {"reasoning_content": "Okay, so"}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            {"outcomes": lambda params, n: Says("", "length", beside=THOUGHT)},
            "(?s)verdict=probabilities cannot work: large thinks before it answers.*judge.verdict=label, or switch",
        ),
        (
            {"first": first({"<think>": 0.99, " A": 0.01})},
            "(?s)verdict=probabilities cannot work: large thinks before it answers.*judge.verdict=label, or switch",
        ),
        (
            {"outcomes": lambda params, n: Says("A")},
            "(?s)verdict=probabilities cannot work: large returns no log-prob.*Set judge.verdict=label, or use",
        ),
    ],
)  # fmt: skip
def test_a_model_that_gives_no_probabilities_is_refused_at_its_first_answer(
    server: Mapping[str, Any], words: str
):
    """One question of the rubric is asked before all others, and what it has cost is stored: once, whatever often the
    command is given."""
    said = []
    with OpenAiServer(**server) as serving:
        for _ in range(2):
            with pytest.raises(UserError, match=words) as refused:
                _watched(serving)
            said.append(str(refused.value))
            assert len(serving.asked) == 1
    assert said[0] == said[1]
    with Store(STORE) as store:
        assert len(store.query("SELECT key FROM answers")) == 1


def test_a_canary_of_zero_asks_a_refused_model_again():
    """It may give probabilities now, at the same address: a new first reply decides."""
    with OpenAiServer(outcomes=lambda params, n: Says("A")) as server:
        for n_asked in (1, 2):
            with pytest.raises(
                UserError, match="To ask the model again, set judging.canary=0"
            ):
                _watched(server, canary=0)
            assert len(server.asked) == n_asked


def _watched(server: OpenAiServer, *, canary: int = 20) -> None:
    """As a command has the judge asked."""
    asking = pipeline.JudgingSettings(canary=canary, max_invalid=0.5)
    wanted = {RUBRIC.dimension: comparisons(5, dimension=RUBRIC.dimension)}
    with Store(STORE) as store:
        pipeline.judge_pairs(
            wanted, [RUBRIC], judge(server.url, **WEIGHED), store, asking
        )


def test_another_temperature_than_that_of_the_probabilities_is_refused():
    with pytest.raises(
        UserError,
        match="temperature must be null with judge.verdict=probabilities, .*; got 0",
    ):
        judge(**WEIGHED, temperature=0.0)


def test_a_score_is_not_read_from_one_token():
    asked = replace(request(judge(), COMPARISON), scale=(0.0, 10.0))
    with pytest.raises(
        UserError, match="judge.verdict must be label for scores; got probabilities"
    ):
        judge(**WEIGHED).params(asked, None)


# What is not pooled


def rows(*, weighed: bool, n: int = 30, judge_model: str = "m") -> list[dict[str, Any]]:
    return [
        {
            **battle("ann", "bob", "model_a" if q % 3 else "model_b").to_dict(),
            "source": "llm-judge",
            "judge_model": judge_model,
            "question_id": f"q{q}",
            "score": (0.8 if q % 3 else 0.3) if weighed else None,
        }
        for q in range(n)
    ]


def test_rate_does_not_pool_shares_and_labels(tmp_path: Path):
    write_table(tmp_path / "mixed.jsonl", rows(weighed=True) + rows(weighed=False))
    given = ("mixed.jsonl", "battles_columns.score=score", *LOCAL[2:])
    ran = attempt(*given, "tracker=local", folder=tmp_path)
    assert ran.code == 2
    assert "On overall, 30 verdicts are probabilities and 30 are labels" in ran.err


def test_votes_stand_beside_shares():
    every = Battles.from_rows(
        [battle("ann", "bob"), battle("ann", "bob", source="llm-judge", score=0.8)]
    )
    assert count_shares_and_labels(every) == (1, 0)


@pytest.mark.system
def test_compare_does_not_set_shares_beside_labels(tmp_path: Path):
    for name, weighed in (("labels", False), ("shares", True), ("again", True)):
        write_table(tmp_path / f"{name}.jsonl", rows(weighed=weighed))
        given = (f"{name}.jsonl", "battles_columns.score=score", "tracker=local")
        run(*given, "figures=false", f"hydra.run.dir={name}_run", folder=tmp_path)

    def compared(*names: str) -> Any:
        runs = ",".join(f"{name}_run" for name in names)
        given = ("experiment=compare", f"runs=[{runs}]", "tracker=local")
        return attempt(*given, "figures=false", folder=tmp_path)

    refused = compared("labels", "shares")
    assert refused.code == 2
    assert (
        "On overall, the verdicts of shares_run are probabilities and those of labels_run"
        in (refused.err)
    )
    assert compared("shares", "again").code == 0


def test_a_run_of_shares_reads_its_battles_back(tmp_path: Path):
    """Two orders that name different winners are a tie, whatever their share."""
    flipped = {"winner": "tie", "verdict_ab": "model_a", "verdict_ba": "model_b"}
    some = [{**row, **flipped, "score": 0.6} for row in rows(weighed=True)]
    write_table(tmp_path / "flips.jsonl", some)
    given = ("flips.jsonl", "battles_columns.score=score", "tracker=local")
    ran = run(*given, "figures=false", folder=tmp_path)
    (first_row, *_) = ran.read("ratings.json")["dimensions"]["overall"][
        "bradley_terry"
    ]["ratings"]
    assert first_row["model"] == "ann"
    (one, *_) = ran.rows("battles.jsonl")
    assert (one["winner"], one["score"]) == ("tie", 0.6)


def test_what_a_reply_says_is_kept_though_only_its_share_is_read(tmp_path: Path):
    reply = JudgeReply(key="k", text="{}", message=None)
    assert judge(**WEIGHED).share(reply) is None
    assert (
        RUBRIC.parse(request(judge()), reply, judge_model="m", share=0.7).share is None
    )
