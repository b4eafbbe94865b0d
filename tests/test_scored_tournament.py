"""Answers that a judge scores one by one in a tournament: each is asked about once, and mean scores are compared.

What a rubric of single answers reads, test_scoring.py tests. Mean scores, test_bounded.py and test_score_tables.py test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elo_exp
from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.order_agreement import compare_orders
from elo_exp.data.conversations import ViewSettings
from elo_exp.data.criteria import NumberRubric
from elo_exp.data.scores import Score as ItemScore
from elo_exp.data.single_answers import list_item_scores, list_items
from elo_exp.errors import SettingError, UserError
from elo_exp.functions import read_numbers
from elo_exp.records import JudgeReply, Prompt, Response
from elo_exp.report.scores_section import describe_order
from tests import openai_server
from tests.anthropic_verdicts import plain_text
from tests.data import shipped
from tests.openai_server import OpenAiServer, Says

SMALL: dict[str, Any] = {"elo__n_perms": 2}
QUESTIONS = ["Does it name a number?", "Is it short?"]
CRITERIA = shipped("scoring", "criteria", criteria=QUESTIONS)
NUMBER = shipped("scoring", "number")
VIEW = ViewSettings(view="whole", turns=None, tool_chars=1_000, answer_chars=24_000)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    openai_server.alone(monkeypatch, tmp_path)
    return tmp_path


def answers(n: int = 24, good: int = 20) -> dict[str, list[dict[str, str]]]:
    """Two entrants: `new` is right on the first so many prompts, `old` never."""
    prompts = [f"How much is {i} plus {i}?" for i in range(n)]
    return {
        "old": [{"prompt": p, "response": f"I cannot say, case {i}."} for i, p in enumerate(prompts)],
        "new": [
            {"prompt": p, "response": f"It is {2 * i}." if i < good else f"Who knows about {i}?"}
            for i, p in enumerate(prompts)
        ],
    }  # fmt: skip


def says_score(params: Mapping[str, Any], _: int) -> Says | None:
    """A judge that gives 9 to a right answer and 2 to others; None where two are compared."""
    text = plain_text(params["messages"][-1]["content"])
    response = re.search(r"<response id=.*?>\n(.*?)\n</response", text, re.DOTALL)
    if response is None:
        return None
    is_right = "It is" in response[1]
    if "CRITERIA" in text:
        return Says(json.dumps({"evidence": "", "criterion_1": is_right, "criterion_2": True}))  # fmt: skip
    return Says(json.dumps({"evidence": "seen", "score": 9 if is_right else 2}))


def judged(server: OpenAiServer, out: str, **settings: Any) -> elo_exp.Run:
    return elo_exp.compare(
        answers(),
        judge="openai_compatible",
        judge__base_url=server.url,
        judge__model="small",
        out=out,
        **SMALL,
        **settings,
    )


def test_each_answer_is_asked_about_once_and_stored():
    with OpenAiServer(outcomes=says_score) as server:
        run = judged(server, "a", scoring="score")
        assert len(server.asked) == 48
        again = judged(server, "b", scoring="score")
        assert len(server.asked) == 48
    (conclusion,) = run.conclusions
    assert (conclusion["first"], conclusion["second"]) == ("new", "old")
    assert conclusion["difference"] == pytest.approx(0.7 * 20 / 24)
    # nobody has checked a judge that saw each answer alone
    assert conclusion["state"] == "unchecked"
    assert again.conclusions == run.conclusions
    assert {row["method"] for row in run.ratings} == {"mean_score"}
    rows = [json.loads(line) for line in Path("a/scores/usefulness.jsonl").read_text().splitlines()]  # fmt: skip
    assert len(rows) == 48
    assert {row["judge_score"] for row in rows} == {0.9, 0.2}


@pytest.mark.system
def test_scores_of_a_run_are_replayed():
    with OpenAiServer(outcomes=says_score) as server:
        run = judged(server, "a", scoring="score")
    replayed = elo_exp.compare(
        answers(), judge="replay", judge__path="a/scores/usefulness.jsonl", scoring="score"
    )  # fmt: skip
    assert replayed.conclusions[0]["difference"] == run.conclusions[0]["difference"]


def test_pairs_and_single_answers_stand_side_by_side():
    with OpenAiServer(outcomes=says_score) as server:
        run = judged(server, "a", scoring=["pairwise", "score"])
        assert len(server.asked) == 48 + 48
    assert [row["dimension"] for row in run.conclusions] == ["preference"]
    content = json.loads(Path("a/scores.json").read_text())
    assert list(content["ratings"]["conclusions"]) == ["usefulness"]
    assert [row["judge_calls"] for row in content["cost"]] == [48, 48]
    (order,) = content["orders"]
    assert (order["rubric"], order["scoring"], order["n_pairs"]) == (
        *("preference", "usefulness"),
        1,
    )
    page = Path("a/report.html").read_text(encoding="utf-8")
    assert "Scores of single answers" in page
    assert "Cost of each" in page
    assert "Mean score" in run.text
    assert "preference" in run.text


def test_a_plan_counts_both_and_needs_no_key():
    words = {"answers": answers(), "judge": "sonnet"}
    single = elo_exp.plan(**words, scoring="score")
    both = elo_exp.plan(**words, scoring=["pairwise", "score"])
    (row,) = single.rows
    assert (row["dimension"], row["queries"], row["detects"]) == ("usefulness", 48, None)  # fmt: skip
    assert [(row["dimension"], row["pairs"], row["queries"]) for row in both.rows] == [
        ("preference", 24, 48),
        ("usefulness", 48, 48),
    ]
    assert both.dollars > single.dollars > 0


def test_a_budget_that_holds_one_of_both_pays_for_neither():
    with OpenAiServer(outcomes=says_score) as server:
        priced = {
            "judge": "openai_compatible",
            "judge__base_url": server.url,
            "judge__model": "small",
            "judge__input_usd_per_million": 1.0,
        }
        single = elo_exp.plan(answers=answers(), scoring="score", **priced).dollars
        with pytest.raises(UserError, match="96 verdicts and scores by small are"):
            elo_exp.compare(
                answers(),
                scoring=["pairwise", "score"],
                budget_usd=round(1.2 * single, 4),
                **priced,
            )
        assert not server.asked


@pytest.mark.system
def test_each_of_several_judges_scores_all_answers():
    """No board joins them, as each has a scale of its own."""
    with OpenAiServer(outcomes=says_score) as server:
        run = elo_exp.compare(
            answers(),
            judge=["lexical", "openai_compatible"],
            judges__openai_compatible__base_url=server.url,
            judges__openai_compatible__model="small",
            scoring="score",
            out="a",
            **SMALL,
        )
        assert len(server.asked) == 48
    assert "each judge scores answers on a scale of its own" in run.text
    single = elo_exp.open_run("a/judges/openai_compatible")
    assert single.conclusions[0]["first"] == "new"
    assert len(single.scores) == 48


def test_an_invalid_reply_weakens_a_claim():
    """The same judge, which breaks off on some right answers: the lead is smaller with each counted at the low end."""

    def breaks(params: Mapping[str, Any], n: int) -> Says | None:
        said = says_score(params, n)
        is_hit = "It is 4." in str(params) or "It is 6." in str(params)
        return Says("I would rather not.") if is_hit else said

    with OpenAiServer(outcomes=breaks) as server:
        run = judged(server, "a", scoring="score")
    (conclusion,) = run.conclusions
    case = conclusion["worst_case"]
    assert case["n_lacks_leader"] == 2
    assert case["difference"] < 0.7 * 20 / 24
    assert "the 2 missing scores of new counted as the lowest" in conclusion["sentence"]


# Criteria


def test_criteria_are_answered_at_once_and_each_is_a_row():
    with OpenAiServer(outcomes=says_score) as server:
        run = judged(
            server, "a", scoring="criteria", scoring__criteria__criteria=QUESTIONS
        )
        assert len(server.asked) == 48
    (conclusion,) = run.conclusions
    assert (conclusion["dimension"], conclusion["first"]) == ("criteria", "new")
    assert conclusion["difference"] == pytest.approx(0.5 * 20 / 24)
    rows = json.loads(Path("a/scores.json").read_text())["criteria"]
    means = {(row["criterion"], row["entrant"]): row["mean"] for row in rows}
    assert means == {
        (QUESTIONS[0], "new"): pytest.approx(20 / 24),
        (QUESTIONS[0], "old"): 0.0,
        (QUESTIONS[1], "new"): 1.0,
        (QUESTIONS[1], "old"): 1.0,
    }
    assert QUESTIONS[0] in Path("a/report.html").read_text(encoding="utf-8")
    assert QUESTIONS[0] in run.text


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"evidence": "x", "criterion_1": true, "criterion_2": false}', 0.5),
        ("It does.\nCRITERIA: yes, no", 0.5),
        ("**Criteria:** YES NO", 0.5),
        ('{"criterion_1": true, "criterion_2": true}', 1.0),
        ('{"evidence": "x", "criterion_1": true}', None),
        ('{"criterion_1": true, "criterion_2": true, "criterion_3": true}', None),
        ('{"criterion_1": true, "criterion_2": null}', None),
        ('{"criterion_1": 1, "criterion_2": 0}', None),
        ("CRITERIA: yes", None),
        ("CRITERIA: yes, no, yes", None),
        ("CRITERIA: yes, no\nCRITERIA: no, no", None),
        ("I like it.", None),
    ],
)
def test_a_reply_that_does_not_answer_exactly_the_criteria_has_no_score(text, score):
    reading, _ = CRITERIA.parse_reply(JudgeReply(key="k", text=text))
    assert reading.score == score
    assert bool(reading.criteria) == (score is not None)


def test_the_questions_are_part_of_the_key():
    item = CRITERIA.item(PROMPTS[0], response("new", 0))
    keys = {
        shipped("scoring", "criteria", criteria=questions).request(item, judge="j").key
        for questions in (QUESTIONS, QUESTIONS[::-1], QUESTIONS[:1])
    }
    assert len(keys) == 3


@pytest.mark.parametrize("questions", [[], ["Is it?", " Is it?"], [""], ["Is it?"] * 2])
def test_criteria_are_different_questions(questions):
    with pytest.raises(SettingError, match="criteria must be 1 to 40 different"):
        shipped("scoring", "criteria", criteria=questions)


# Functions


def count_words(prompt: str, answer: str) -> float:
    return len(answer.split()) / 10


def test_a_function_scores_answers_and_is_called_once_for_each():
    calls: list[tuple[str, str]] = []

    async def score(prompt: str, answer: str) -> dict[str, float | bool]:
        calls.append((prompt, answer))
        return {"right": "It is" in answer, "words": count_words(prompt, answer)}

    run = elo_exp.compare(answers(), scorer=elo_exp.add_version(score, "1"))
    assert len(calls) == len({*calls}) == 48
    elo_exp.compare(answers(), scorer=elo_exp.add_version(score, "1"))
    assert len(calls) == 48
    elo_exp.compare(answers(), scorer=elo_exp.add_version(score, "2"))
    assert len(calls) == 96
    (conclusion,) = run.conclusions
    assert (conclusion["state"], conclusion["first"], conclusion["judge"]) == (
        *("leads", "new"),
        "score",
    )
    rows = json.loads((run.folder / "scores.json").read_text())["criteria"]
    assert {row["criterion"] for row in rows} == {"right", "words"}


@pytest.mark.system
def test_a_function_without_a_version_is_used_again_by_its_run_folder_alone():
    calls: list[str] = []

    def score(prompt: str, answer: str) -> float:
        calls.append(answer)
        if len(calls) == 30:
            raise ConnectionError("the index is away")
        return len(answer)

    with pytest.raises(ConnectionError):
        elo_exp.compare(answers(), scorer=score, out="a")
    n_before = len(calls)
    run = elo_exp.compare(answers(), scorer=score, out="a")
    assert len(calls) - n_before <= 48 - (n_before - 8)
    assert any("scorer: the function has no version" in note for note in run.notes)


def test_a_score_that_a_function_does_not_know_is_missing():
    run = elo_exp.compare(
        answers(), scorer=lambda _, answer: None if "It is 4." in answer else 1.0
    )
    assert run.conclusions[0]["state"] != "leads"
    rows = [json.loads(line) for line in (run.folder / "scores/score.jsonl").read_text().splitlines()]  # fmt: skip
    assert sum(row["judge_score"] is None for row in rows) == 1


def test_equal_scores_are_no_proof_that_entrants_are_equal():
    run = elo_exp.compare(answers(), scorer=lambda *_: 0.5)
    (conclusion,) = run.conclusions
    assert conclusion["state"] == "undecided"
    assert conclusion["sentence"] == (
        "no difference found: new and old have the same score"
    )
    assert {row["score"] for row in run.scores} == {0.5}


def test_a_constant_score_has_no_interval():
    """That 24 answers got one half does not say that all would."""
    run = elo_exp.compare(
        answers(), scorer=lambda _, a: 0.5 if "cannot" in a else float("It is" in a)
    )
    intervals = {row["entrant"]: (row["ci_low"], row["ci_high"]) for row in run.leaderboard}  # fmt: skip
    assert intervals["old"] == (None, None)
    assert None not in intervals["new"]


@pytest.mark.parametrize("result", ["much", {"right": "yes"}, {}, [1.0], {1: 2.0}])
def test_what_is_no_number_is_refused(result):
    with pytest.raises(SettingError, match="must return a number, None, or a dict"):
        read_numbers(result)


def test_numbers_have_a_reason_and_may_be_missing():
    assert read_numbers(True) == (1.0, {}, "")
    assert read_numbers(float("nan")) == (None, {}, "")
    numbers = {"f1": np.float32(0.5), "exact": None, "reason": "near"}
    assert read_numbers(numbers) == (None, {"f1": 0.5, "exact": None}, "near")


@pytest.mark.system
def test_the_command_names_a_function_of_a_module(here: Path):
    Path("my_scores.py").write_text("def score(prompt, answer):\n    return len(answer)\n")  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        run = elo_exp.compare(
            answers(),
            judge="function",
            judge__function="my_scores:score",
            judge__version="1",
            scoring="number",
        )
    assert run.conclusions[0]["first"] == "old"


def test_numbers_outside_the_declared_scale_are_no_scores():
    rubric: NumberRubric = shipped("scoring", "number", low=0, high=1)
    texts = ['{"score": 0.5}', '{"score": 1.5}', '{"criteria": {"a": 1, "b": null}}']
    readings = [rubric.parse_reply(JudgeReply(key="k", text=t))[0] for t in texts]
    assert [reading.score for reading in readings] == [0.5, None, None]
    assert rubric.bounds == (0.0, 1.0)
    assert NUMBER.bounds is None
    for ends in ({"low": 1, "high": 0}, {"low": 0, "high": None}):
        with pytest.raises(SettingError):
            shipped("scoring", "number", **ends)


# What is put to the judge, and what is missing

PROMPTS = [
    Prompt(prompt_id=f"p{i}", text=f"Why {i}?", source="own", subject="")
    for i in range(3)
]


def response(name: str, i: int, text: str = "Because.", draw: int = 0) -> Response:
    return Response(
        entrant_id=name, prompt_id=f"p{i}", response_text=text, draw_idx=draw
    )


def by_slot(rows: Sequence[Response]) -> dict[Any, Response]:
    return {row.slot: row for row in rows}


def test_absent_and_empty_answers_are_asked_about_never_and_stay_planned():
    responses = {
        "a": by_slot([response("a", 0), response("a", 1), response("a", 2)]),
        "b": by_slot([response("b", 0), response("b", 1, " ")]),
    }
    score = shipped("scoring", "score")
    items = list_items(PROMPTS, responses, score, VIEW)
    assert [(item.entrant_id, item.prompt_id) for item in items] == [
        *(("a", "p0"), ("b", "p0")),
        *(("a", "p1"), ("a", "p2")),
    ]
    scores = [
        score.parse(
            score.request(item, judge="j"),
            JudgeReply(key="k", text='{"score": 5}'),
            judge_model="j",
        )
        for item in items
    ]
    rows = list_item_scores(PROMPTS, responses, score, scores, {"p1": "group"})
    assert [(row.entrant, row.item, row.value) for row in rows] == [
        *(("a", "p0", 0.5), ("b", "p0", 0.5)),
        *(("a", "p1", 0.5), ("b", "p1", None)),
        *(("a", "p2", 0.5), ("b", "p2", None)),
    ]
    assert {row.cluster for row in rows if row.item == "p1"} == {"group"}
    assert all(isinstance(row, ItemScore) for row in rows)


def test_answers_whose_criteria_differ_have_no_score():
    """A mean of fewer numbers may be higher because the hard one is left out."""
    responses = {name: by_slot([response(name, 0)]) for name in "ab"}
    items = list_items(PROMPTS[:1], responses, NUMBER, VIEW)
    texts = ['{"criteria": {"easy": 1.0, "hard": 0.0}}', '{"criteria": {"easy": 1.0}}']
    scores = [
        NUMBER.parse(
            NUMBER.request(item, judge="j"),
            JudgeReply(key="k", text=text),
            judge_model="j",
        )
        for item, text in zip(items, texts, strict=True)
    ]
    rows = list_item_scores(PROMPTS[:1], responses, NUMBER, scores, {})
    assert [row.value for row in rows] == [0.5, None]


# Orders


def difference(higher: str, lower: str, points: float, significant: bool) -> Difference:
    return Difference(
        dimension="d",
        higher=higher,
        lower=lower,
        difference=points,
        significant=significant,
    )


def test_orders_are_compared_pair_by_pair():
    pairs = [
        difference("a", "b", 50, True),
        difference("a", "c", 80, True),
        difference("b", "c", 30, False),
    ]
    same = compare_orders("preference", pairs, "score", pairs)
    assert same.is_same
    assert "in the same order" in describe_order(same)
    scores = [
        difference("b", "a", 0.2, True),
        difference("a", "c", 0.3, True),
        difference("b", "c", 0, False),
    ]
    other = compare_orders("preference", pairs, "score", scores)
    assert (other.n_pairs, other.n_same, other.n_tied) == (3, 1, 1)
    assert other.contradicted == (("a", "b"),)
    assert "preference prefers a over b, and score the reverse" in describe_order(other)


# Mistakes


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"judge": "lexical", "scoring": "scor"}, "scoring must be one of pairwise, "),
        ({"judge": "lexical", "scoring": "number"}, "scoring=number needs a function"),
        ({"judge": count_words, "scoring": "score"}, "A function gives numbers and reads no rubric"),
        ({"judge": "lexical", "scoring": "criteria", "scoring__criteria__criteria": QUESTIONS},
         "The judge lexical cannot answer the criteria"),
        ({"judge": "lexical", "scoring": "score", "rubric": ["preference"]}, "scoring=score compares no pairs, so "),
        ({"judge": "lexical", "scoring": "score", "scoring__low": 1}, "does not say of which scoring"),
        ({"judge": "lexical", "scoring": "score", "judging__repeats": 2}, "judging.repeats must be 1 with scoring"),
        ({"judge": "lexical", "scoring": "score", "judging__limit_pairs": 2}, "judging.limit_pairs=2 limits"),
        ({"judge": "lexical", "scoring": "score", "shard": "0/2"}, "shard=0/2 cannot be combined with scoring"),
        ({"judge": "lexical", "scoring": '"score,interval"'}, "Several scorings are a list in brackets"),
        ({"judge": "lexical", "scoring": ["score", "interval"]}, "have the dimension usefulness"),
        ({"scorer": count_words, "judge": "lexical"}, "scorer and judge cannot be combined"),
        ({"scorer": "words"}, "scorer must be a function"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_before_anything_is_judged(settings, said):
    with pytest.raises(UserError, match=said):
        elo_exp.compare(answers(3), **settings)
    assert not list(Path("outputs").glob("own*/manifest.json"))
