"""A judge of your own: a class with one method. The pipeline stores each reply before it asks for the next, and what a
first try gets wrong is said in a line."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import EvidenceError, SettingError, UserError
from elo_exp.judges import Judge
from elo_exp.launching.composing import build
from elo_exp.pipeline import JudgingSettings, judge_pairs, score_responses
from elo_exp.records import (
    Comparison,
    Item,
    JudgeReply,
    JudgeRequest,
    Judgment,
    make_fingerprint,
)
from elo_exp.store.answer_store import Store
from tests.data import shipped
from tests.paying import RUBRIC, comparisons

Answer = Callable[[Sequence[JudgeRequest]], Any]


@dataclass(kw_only=True)
class OwnJudge(Judge):
    """Answers as it is told."""

    answers: Answer
    asked: list[int] = field(default_factory=list)

    model = "own"

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        self.asked.append(len(requests))
        return self.answers(requests)

    def cache_key(self) -> dict[str, str]:
        return {"judge": "own"}


def judged(judge: Judge, n: int = 3, **settings: Any) -> list[Judgment]:
    with Store(Path("store.sqlite")) as store:
        asking = JudgingSettings(**settings)
        wanted = {RUBRIC.dimension: comparisons(n)}
        return judge_pairs(wanted, [RUBRIC], judge, store, asking)[RUBRIC.dimension]


def rows() -> list[tuple[Any, ...]]:
    with Store(Path("store.sqlite")) as store:
        return store.query("SELECT key, kind, value FROM answers ORDER BY key")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def prefer_longer(requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
    for request in requests:
        subject = request.subject
        assert isinstance(subject, Comparison)
        is_longer = len(subject.response_a) > len(subject.response_b)
        yield request.reply("A" if is_longer else "B", reason="It is longer.")


def test_verdicts_and_reasons_are_read_and_stored_under_the_judges_name():
    judge = OwnJudge(answers=prefer_longer)
    judgments = judged(judge)
    assert [judgment.raw[0].verdict for judgment in judgments] == ["A"] * 3
    assert [judgment.raw[1].verdict for judgment in judgments] == ["B"] * 3
    assert judgments[0].raw[0].reasoning == "It is longer."
    assert judgments[0].raw[0].judge_model == "own"
    with Store(Path("store.sqlite")) as store:
        keys = [key for key, *_ in rows()]
        replies = store.get(JudgeReply, keys).values()
    assert {reply.judge_model for reply in replies} == {"own"}
    assert all(reply.timestamp and reply.prompt_id for reply in replies)
    assert judged(judge) == judgments
    assert judge.asked == [6]


def test_a_crash_loses_no_reply_and_none_is_made_twice():
    def crash(requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        for number, reply in enumerate(prefer_longer(requests)):
            if number == 4:
                raise KeyboardInterrupt
            yield reply

    with pytest.raises(KeyboardInterrupt):
        judged(OwnJudge(answers=crash))
    before = rows()
    assert len(before) == 4
    judge = OwnJudge(answers=prefer_longer)
    judged(judge)
    assert judge.asked == [2]
    assert set(before) <= set(rows())


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (
            lambda requests: (request.reply("a") for request in requests),
            """request.reply must get verdict="A", "B" or "TIE", where A is subject.response_a; got verdict='a'.""",
        ),
        (
            lambda requests: (request.reply(score=1) for request in requests),
            """request.reply must get verdict="A", "B" or "TIE", where A is subject.response_a; got score=1.""",
        ),
        (
            lambda requests: None,
            "OwnJudge.answer must be a generator that yields request.reply(...) for each request; it returned None.",
        ),
        (
            lambda requests: ("A" for _ in requests),
            "OwnJudge.answer must be a generator that yields request.reply(...) for each request; it yielded 'A'.",
        ),
        (
            lambda requests: (
                dataclasses.replace(request, key="x").reply("A") for request in requests
            ),
            "OwnJudge.answer must be a generator that yields request.reply(...) for each request; it yielded a reply "
            "with the key 'x', which no request has.",
        ),
    ],
)
def test_what_is_no_reply_is_refused_in_a_line(answers: Answer, line: str):
    with pytest.raises(SettingError) as error:
        judged(OwnJudge(answers=answers))
    assert error.value.line == line
    assert rows() == []


def test_a_generator_that_yields_nothing_is_named():
    with pytest.raises(EvidenceError) as error:
        judged(OwnJudge(answers=lambda requests: iter(())))
    assert "6 of 6 verdicts are missing" in error.value.line
    assert "OwnJudge.answer yielded no reply to them" in error.value.line


def vague(requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
    for request in requests:
        yield JudgeReply(key=request.key, text="Both are fine.")


def test_the_first_replies_that_cannot_be_read_stop_a_judge_and_are_quoted():
    with pytest.raises(EvidenceError) as error:
        judged(OwnJudge(answers=vague), n=30, canary=20, max_invalid=0.5)
    assert str(error.value).splitlines() == [
        "20 of the first 20 replies hold no verdict (judge own on factuality). All replies are stored.",
        '  The first: "Both are fine." (end_turn)',
        '  A reply must be JSON with "verdict": "A", "B" or "TIE", as request.reply(verdict="A") writes it. To go on '
        "anyway, set judging.canary=0.",
    ]
    assert len(rows()) == 20


def test_a_few_replies_none_of_which_can_be_read_stop_the_run_at_its_end_each_time():
    for _ in range(2):
        with pytest.raises(EvidenceError, match="None of 6 replies holds a verdict"):
            judged(OwnJudge(answers=vague), canary=20, max_invalid=0.5)
    assert len(rows()) == 6
    assert all(judgment.invalid for judgment in judged(OwnJudge(answers=vague)))


def test_a_part_of_a_run_may_be_without_a_verdict():
    settings = {"canary": 20, "max_invalid": 0.5, "is_part": True}
    assert all(j.invalid for j in judged(OwnJudge(answers=vague), **settings))


# Scores


ITEM = Item(
    prompt_id="p",
    entrant_id="e",
    dimension="score",
    prompt_text="Why?",
    response_text="So.",
    source="own",
)


def scored(answers: Answer, rubric: str = "score") -> float | None:
    with Store(Path("store.sqlite")) as store:
        (score,) = score_responses(
            [ITEM], shipped("scoring", rubric), OwnJudge(answers=answers), store
        )
    return score.judge_score


def test_a_single_response_is_scored_on_the_scale():
    def answers(requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        for request in requests:
            assert request.scale is not None
            low, high = request.scale
            middle = (low + high) / 2
            yield request.reply(score=middle, interval=(low, high), reason="Middling.")

    assert scored(answers) == 0.5


@pytest.mark.parametrize("found", [{"verdict": "A"}, {"score": 1e9}, {}])
def test_a_score_off_the_scale_is_refused(found: dict[str, Any]):
    with pytest.raises(
        SettingError, match=r"must get score=NUMBER from \d+ to \d+; got "
    ):
        scored(lambda requests: (request.reply(**found) for request in requests))


# What a first try leaves out


CLASS = """\
from dataclasses import dataclass

from elo_exp.judges import Judge


@dataclass(kw_only=True)
class Mine(Judge):
    letter: str
    model = "mine"

    def answer(self, requests):
        for request in requests:
            yield request.reply(self.letter)
"""


def built(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Judge:
    Path(f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(Path.cwd())
    judge = build({"_target_": f"{name}.Mine", "letter": "A"}, "judge")
    assert isinstance(judge, Judge)
    return judge


def test_its_key_is_its_file_and_its_settings(monkeypatch: pytest.MonkeyPatch):
    judge = built(monkeypatch, "mine_1", CLASS)
    same = dataclasses.replace(judge)
    other = dataclasses.replace(judge, letter="B")
    keys = [make_fingerprint(j.cache_key()) for j in (judge, same, other)]
    assert keys[0] == keys[1] != keys[2]
    Path("mine_1.py").write_text(f"{CLASS}\n", encoding="utf-8")
    assert make_fingerprint(judge.cache_key()) != keys[0]


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        (
            "mine_2",
            '    model = "mine"\n',
            "",
            "judge: the class Mine has no attribute model. Add a field, `model: str`, or set it in the class.",
        ),
        (
            "mine_3",
            "def answer(",
            "def reply(",
            "judge._target_: the class mine_3.Mine lacks the method answer. Its base class says what each returns.",
        ),
    ],
)
def test_what_is_left_out_of_a_class_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, line: str
):
    with pytest.raises(UserError) as error:
        built(monkeypatch, name, CLASS.replace(old, new))
    assert error.value.line == line


def test_a_class_without_a_file_writes_its_own_key():
    namespace: dict[str, Any] = {"__name__": "nowhere"}
    exec(CLASS, namespace)
    with pytest.raises(
        SettingError, match=r"Move it to a file, or write its cache_key\.$"
    ):
        namespace["Mine"](letter="A").cache_key()


def test_a_setting_that_is_no_json_is_named():
    judge = OwnJudge(answers=prefer_longer)
    with pytest.raises(SettingError, match="Write its cache_key, which returns"):
        Judge.cache_key(judge)
