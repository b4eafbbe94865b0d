"""Equal answers: a pair that gave the same answers is said before it is judged, and no judge is paid for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.data.battles import Battles
from elo_exp.data.identical_answers import (
    EqualAnswers,
    count_equal_in_battles,
    count_equal_in_comparisons,
    count_equal_in_responses,
)
from elo_exp.records import Battle, Comparison, Response
from elo_exp.report.sentences.check_sentences import equal_answers
from tests.anthropic_server import AnthropicServer
from tests.anthropic_verdicts import longer
from tests.commands import Ran, attempt

N = 24  # prompts
Texts = Mapping[str, Mapping[str, str]]  # of each entrant, by prompt


def comparisons(texts: Texts, dimensions: tuple[str, ...] = ("d",)) -> list[Comparison]:
    """Each entrant against each after it, on the prompts that both have answered."""
    names = list(texts)
    return [
        Comparison(
            prompt_id=prompt,
            dimension=dimension,
            entrant_a=a,
            entrant_b=b,
            prompt_text="Why?",
            response_a=texts[a][prompt],
            response_b=texts[b][prompt],
            source="s",
        )
        for dimension in dimensions
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        for prompt in texts[a]
        if prompt in texts[b]
    ]


def pair(first: str, second: str, n_equal: int, n_prompts: int) -> EqualAnswers:
    return EqualAnswers(
        first=first, second=second, n_equal=n_equal, n_prompts=n_prompts
    )


def test_a_pair_is_named_from_half_of_its_prompts_on():
    texts = {
        "cold": {"p": "4", "q": "5", "r": "6", "s": "7"},
        "hot": {"p": "4", "q": "5", "r": "6", "s": "7"},
        "warm": {"p": "4", "q": "5", "r": "six", "s": "7.0"},
        "odd": {"p": "4", "q": "five", "r": "six", "s": "seven"},
    }
    expected = [
        pair("cold", "hot", 4, 4),
        pair("cold", "warm", 2, 4),
        pair("hot", "warm", 2, 4),
        pair("warm", "odd", 2, 4),
    ]
    # In two dimensions a prompt is still one prompt
    assert count_equal_in_comparisons(comparisons(texts, ("d", "e"))) == expected
    assert equal_answers(expected) == [
        "cold and hot gave the same answer to 4 of 4 prompts. Was the setting applied?",
        "cold and warm gave the same answer to 2 of 4 prompts. Was the setting applied?",
        "hot and warm gave the same answer to 2 of 4 prompts. Was the setting applied?",
        "so did 1 more pair",
    ]


@pytest.mark.parametrize(("a", "b"), [("4", "4 "), ("4", "4."), ("Yes", "yes")])
def test_answers_are_equal_byte_for_byte(a: str, b: str):
    assert count_equal_in_comparisons(comparisons({"x": {"p": a}, "y": {"p": b}})) == []


ANSWERS = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from("pqrst"), st.sampled_from(["0", "1"])),
)


@given(ANSWERS)
def test_answers_comparisons_and_battles_tell_the_same(
    texts: dict[str, dict[str, str]],
):
    """Whether pairs are counted from answers, from their comparisons or from the battles of these."""
    responses = {
        name: {
            (prompt, 0): Response(entrant_id=name, prompt_id=prompt, response_text=text)
            for prompt, text in answers.items()
        }
        for name, answers in texts.items()
    }
    compared = comparisons(texts)
    assert named(count_equal_in_responses(responses)) == named(
        count_equal_in_comparisons(compared)
    )
    rows = [
        Battle(
            model_a=one.entrant_a,
            model_b=one.entrant_b,
            winner="tie",
            question_id=one.prompt_id,
            equal_answers=one.response_a == one.response_b,
        )
        for one in compared
    ]
    battles = Battles.from_rows(rows)
    assert named(count_equal_in_battles(battles)) == named(
        count_equal_in_comparisons(compared)
    )


def named(pairs: list[EqualAnswers]) -> set[tuple[frozenset[str], int, int]]:
    return {(frozenset((p.first, p.second)), p.n_equal, p.n_prompts) for p in pairs}


# What a run says


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer(verdicts=longer) as server:
        yield server


def write(folder: Path, name: str, n_equal: int) -> None:
    """Write a file of answers, the first so many of which are those of every such file."""
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for i in range(N):
            text = (
                f"It is {2 * i}." if i < n_equal else f"{name} takes it to be {2 * i}."
            )
            row = {"prompt": f"What is {i} and {i}?", "response": text}
            file.write(f"{json.dumps(row)}\n")


def judged(folder: Path, server: AnthropicServer, files: str, *words: str) -> Ran:
    return attempt(
        *(f"answers=[{files}]", "study=own", "mode=own", "judge=haiku"),
        *("judge.transport=messages", f"judge.base_url={server.url}"),
        *("tracker=local", "figures=false", "elo.n_perms=2", *words),
        folder=folder,
        ANTHROPIC_API_KEY=server.key,
    )


ALL = "cold and hot gave the same answer to 24 of 24 prompts. Was the setting applied?"
REFUSED = (
    "elo_exp: cold and hot gave the same answer to all 24 prompts, so there is nothing to compare. No judge was paid.\n"
    "  Check that the setting in which they differ was applied, or leave one of them out.\n"
    "  To judge them anyway, set judging.allow_equal=true."
)
SAME = "cold and hot gave the same answer to all 24 prompts: nothing to compare"


@pytest.mark.system
def test_equal_answers_are_refused_before_a_judge_is_paid(tmp_path, server):
    write(tmp_path, "cold", N)
    write(tmp_path, "hot", N)
    files = "cold.jsonl,hot.jsonl"
    ran = judged(tmp_path, server, files)
    assert (ran.code, ran.err.splitlines()[-3:]) == (2, REFUSED.splitlines())
    assert server.meter.posts() == 0
    assert not list(tmp_path.glob("outputs/own_*"))
    plan = judged(tmp_path, server, files, "plan=true")
    assert (plan.code, plan.err.splitlines()[-3:]) == (2, REFUSED.splitlines())
    assert judged(tmp_path, server, files, "judging.stored_only=true").code == 0


@pytest.mark.system
def test_with_allow_equal_they_are_judged_and_the_state_says_that_nothing_is_compared(
    tmp_path, server
):
    write(tmp_path, "cold", N)
    write(tmp_path, "hot", N)
    files = "cold.jsonl,hot.jsonl"
    ran = judged(tmp_path, server, files, "judging.allow_equal=true")
    assert ran.code == 0, ran.err
    assert server.meter.billed_bodies.total() == N  # one query serves both orders
    assert f"warning: {ALL}" in ran.err
    assert ALL in " ".join(ran.out.split())
    assert f"preference (24 prompts) {SAME}" in " ".join(ran.out.split())
    for text in (ran.out, ran.page.said):
        assert SAME in text and " level" not in text
    assert "Was the setting applied in which they differ?" in ran.page.said
    assert "cold and hot, 24 of 24 prompts" in ran.page.said
    ratings = ran.read("ratings.json")
    conclusion = ratings["conclusions"]["preference"]
    assert (conclusion["state"], conclusion["sentence"]) == ("same", SAME)
    assert [reason["name"] for reason in conclusion["reasons"]] == ["same"]
    assert ratings["judge"]["preference"]["equal_answers"] == [
        pair("cold", "hot", N, N).to_dict()
    ]
    # What is stored costs nothing, and needs no leave
    again = judged(tmp_path, server, files)
    assert (again.code, server.meter.billed_bodies.total()) == (0, N)
    # Battles tell as much without the texts
    rated = attempt(
        *("experiment=rate", f"battles={ran.run_dir}/battles.jsonl", "elo.n_perms=2"),
        *("tracker=local", "figures=false"),
        folder=tmp_path,
    )
    said = " ".join(rated.out.split())
    assert f"preference (24 prompts) {SAME}" in said, rated.err


@pytest.mark.system
def test_half_of_the_answers_are_said_and_judged(tmp_path, server):
    write(tmp_path, "cold", N // 2)
    write(tmp_path, "hot", N // 2)
    ran = judged(tmp_path, server, "cold.jsonl,hot.jsonl")
    line = ALL.replace("24 of", "12 of")
    assert f"warning: {line}" in ran.err and line in " ".join(ran.out.split())
    assert line in ran.page.said
    conclusion = ran.read("ratings.json")["conclusions"]["preference"]
    assert conclusion["state"] != "same"
    write(tmp_path, "hot", N // 2 - 1)
    ran = judged(tmp_path, server, "cold.jsonl,hot.jsonl")
    assert "same answer" not in ran.err + ran.out + ran.page.said


@pytest.mark.system
def test_of_three_the_two_that_are_the_same_are_named(tmp_path, server):
    for name, n_equal in (("cold", N), ("hot", N), ("talks", 0)):
        write(tmp_path, name, n_equal)
    files = "cold.jsonl,talks.jsonl,hot.jsonl"
    refusal = judged(tmp_path, server, files).err
    assert refusal.splitlines()[-3:] == REFUSED.splitlines()
    ran = judged(tmp_path, server, files, "judging.allow_equal=true")
    said = ran.read("ratings.json")["conclusions"]["preference"]
    assert said["first"] == "talks"  # the longer answer wins
    assert "same" not in [reason["name"] for reason in said["reasons"]]
    assert ALL in " ".join(ran.out.split())


@pytest.mark.system
def test_models_placed_together_in_an_arena_are_held_against_each_other(
    tmp_path, server
):
    """Each meets the arena's models, not the other: the same answers are placed twice."""
    words = (
        *("experiment=arena", "+entrant@entrant.twin=newcomer", "arena.n_battles=20"),
        *("entrant.twin.entrant_id=twin", "entrant.newcomer.lapse_rate=0"),
        *("entrant.twin.lapse_rate=0", "judge=haiku", "judge.transport=messages"),
        *(f"judge.base_url={server.url}", "judging.budget_usd=10", "tracker=local"),
    )
    ran, plan = (
        attempt(*words, *more, folder=tmp_path, ANTHROPIC_API_KEY=server.key)
        for more in ((), ("plan=true",))
    )
    said = "newcomer and twin gave the same answer to"
    assert (ran.code, server.meter.billed_bodies.total()) == (2, 0)
    assert (
        f"elo_exp: {said} all 18 prompts, so there is nothing to compare. No judge was paid."
        in ran.err
    )
    assert f"answers  {said} 18 of 18 prompts. Was the setting applied?" in plan.out
