"""The last line of a run, `next`: the one command that helps from there, or nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from elo_exp.files import write_jsonl
from tests.commands import QUICK, Ran, attempt, run
from tests.openai_server import OpenAiServer

SMALL = ("tracker=local", "figures=false", "elo.n_perms=3")


def given(ran: Ran) -> Sequence[str]:
    """The words of the command that `next` names; none where there is no such line."""
    _, found, command = ran.out.partition("\nnext ")
    return shlex.split(command.splitlines()[1])[1:] if found else []


def two_files(folder: Path) -> Sequence[str]:
    for name in ("old", "new"):
        rows = [
            {"prompt": f"Is {n} even?", "response": f"{name}: {n}"} for n in range(3)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    return ("old.jsonl", "new.jsonl")


@pytest.mark.system
def test_after_the_demo_comes_own_work(tmp_path: Path):
    words = given(run(*QUICK, folder=tmp_path))
    assert words == ["FILE", "FILE", "judge=sonnet", "plan=true"]
    plan = attempt(*two_files(tmp_path), *words[2:], folder=tmp_path)
    assert plan.code == 0, plan.err
    assert plan.out.startswith("plan: judge claude-sonnet")


@pytest.mark.system
def test_words_that_were_counted_on_own_answers_lead_nowhere(tmp_path: Path):
    ran = run(*two_files(tmp_path), "judge=lexical", *SMALL, folder=tmp_path)
    assert given(ran) == []


@pytest.mark.system
def test_after_a_judge_that_nobody_has_audited_comes_the_plan_of_its_audit(
    tmp_path: Path,
):
    files = two_files(tmp_path)
    with OpenAiServer(models=("m",)) as server:
        judge = (
            "judge=openai_compatible",
            f"judge.base_url={server.url}",
            "judge.model=m",
        )
        first = run(*files, *judge, *SMALL, folder=tmp_path)
        words = given(first)
        assert words == ["experiment=audit", *judge, "rubric=[preference]", "plan=true"]
        assert run(*words, folder=tmp_path).out.startswith("plan: judge m")
        few = ("audit.n_prompts=2", "probe=[constant]", "judging.budget_usd=1")
        run(*words[:-1], *few, *SMALL[:2], folder=tmp_path)
        assert given(run(*files, *judge, *SMALL, folder=tmp_path)) == []
