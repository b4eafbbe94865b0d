"""Functions of Python as entrants and as judges: called side by side, stored, and not called again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import elo_exp
from elo_exp import functions
from tests.commands import Ran, attempt_program, environment

PROMPTS = [f"Name country {n}." for n in range(24)]
SMALL: dict[str, Any] = {"elo__n_perms": 2}


def shorter(prompt: str, a: str, b: str) -> str:
    return "A" if len(a) < len(b) else "B"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_module(*words: str, folder: Path) -> Ran:
    """The command as python -m elo_exp, which finds modules in its folder."""
    return attempt_program(sys.executable, "-m", "elo_exp", *words, folder=folder)


class Counted:
    """A function that counts its calls by their arguments."""

    def __init__(self, prefix: str, *, fails_at: int | None = None) -> None:
        self.prefix, self.fails_at = prefix, fails_at
        self.calls = Counter[str]()
        self.lock = threading.Lock()

    def __call__(self, prompt: str) -> str:
        with self.lock:
            self.calls[prompt] += 1
            if self.fails_at is not None and len(self.calls) > self.fails_at:
                raise ConnectionError("the index is away")
        return self.prefix + prompt


def test_functions_are_compared_by_a_function():
    async def wordy(prompt: str) -> str:
        await asyncio.sleep(0.001)
        return prompt * 2

    run = elo_exp.compare(
        {"loud": str.upper, "wordy one": wordy}, judge=shorter, prompts=PROMPTS, **SMALL
    )
    assert {row["entrant"] for row in run.responses} == {"loud", "wordy one"}
    assert [row["winner"] for row in run.verdicts] == ["loud"] * 2 * len(PROMPTS)
    (conclusion,) = run.conclusions
    assert (conclusion["first"], conclusion["judge"]) == ("loud", "shorter")


def test_a_function_is_compared_with_recorded_answers():
    rows = [{"prompt": text, "response": "no " * 20} for text in PROMPTS]
    run = elo_exp.compare(
        {"old": rows, "new": str.lower}, judge=shorter, prompts=PROMPTS, **SMALL
    )
    assert [row["winner"] for row in run.verdicts] == ["new"] * 2 * len(PROMPTS)


def test_one_failed_call_costs_no_result_of_the_calls_beside_it():
    """Eight calls wait for each other, so that all are under way when the first fails."""
    barrier = threading.Barrier(8)

    def fail_at_first(number: int) -> int:
        if number < 8:
            barrier.wait()
        if number == 0:
            raise ConnectionError("the index is away")
        return number

    results: list[int] = []
    with pytest.raises(ConnectionError, match="the index is away"):
        for number, _ in functions.call_each(
            fail_at_first, range(24), lambda number: (number,), max_concurrency=8
        ):
            results.append(number)
    assert set(range(1, 8)) <= set(results)


def test_a_call_starts_when_an_earlier_result_is_taken():
    """A program that is killed then loses as many results as run at a time."""
    started: list[int] = []
    for n_taken, _ in enumerate(
        functions.call_each(
            started.append, range(24), lambda number: (number,), max_concurrency=4
        )
    ):
        assert len(started) <= n_taken + 4


def test_a_run_that_failed_goes_on_where_it_stopped():
    old, broken = Counted("o "), Counted("new ", fails_at=10)
    with pytest.raises(ConnectionError, match="the index is away"):
        elo_exp.compare(
            {"old": old, "new": broken},
            judge=shorter,
            prompts=PROMPTS,
            out="r",
            **SMALL,
        )
    mended = Counted("new ")
    run = elo_exp.compare(
        {"old": old, "new": mended}, judge=shorter, prompts=PROMPTS, out="r", **SMALL
    )
    assert set(old.calls.values()) == {1}
    assert 0 < len(mended.calls) <= len(PROMPTS) - 1
    assert len(run.responses) == 2 * len(PROMPTS)


@pytest.mark.system
def test_a_version_is_used_by_other_runs_and_another_version_is_not():
    def compare(version: str) -> Counted:
        counted = Counted("x")
        entrant = elo_exp.add_version(counted, version)
        elo_exp.compare(
            {"old": str.upper, "new": entrant}, judge=shorter, prompts=PROMPTS, **SMALL
        )
        return counted

    assert [len(compare(version).calls) for version in ("1", "1", "2")] == [24, 0, 24]


def test_without_a_version_another_run_calls_the_function_again():
    counted = Counted("x")
    for _ in range(2):
        run = elo_exp.compare(
            {"old": str.upper, "new": counted}, judge=shorter, prompts=PROMPTS, **SMALL
        )
    assert set(counted.calls.values()) == {2}
    assert sum("the function has no version" in note for note in run.notes) == 3


def test_no_more_calls_run_at_a_time_than_are_allowed():
    running, most, lock = 0, 0, threading.Lock()
    barrier = threading.Barrier(3, timeout=20)

    def call(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait()
        with lock:
            running -= 1
        return item

    found = functions.call_each(
        call, range(12), lambda item: (item,), max_concurrency=3
    )
    assert sorted(found) == [(n, n) for n in range(12)]
    assert most == 3


def test_functions_need_prompts():
    with pytest.raises(elo_exp.SettingError, match="Functions need prompts to answer"):
        elo_exp.compare({"a": str.upper, "b": str.lower}, judge=shorter)


def test_functions_are_planned_and_not_called():
    counted = Counted("x")
    plan = elo_exp.plan(
        answers={"a": counted, "b": str.lower}, judge="sonnet", prompts=PROMPTS
    )
    assert plan.rows[0]["pairs"] == len(PROMPTS)
    assert plan.dollars > 0
    assert not counted.calls


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ("A", ("A", "")),
        (" tie ", ("TIE", "")),
        (0.7, ("A", "share of A 0.7")),
        (0.5, ("TIE", "share of A 0.5")),
        ({"verdict": "b", "reason": "It is short."}, ("B", "It is short.")),
    ],
)
def test_a_verdict_is_read(result: Any, verdict: tuple[str, str]):
    assert functions.read_verdict(result) == verdict


@pytest.mark.parametrize("result", [None, "better", 1.2, True, {"reason": "x"}, ["A"]])
def test_what_is_no_verdict_is_refused(result: Any):
    with pytest.raises(
        elo_exp.SettingError, match="must return A, B or tie, or the share of A"
    ):
        elo_exp.compare(
            {"a": str.upper, "b": str.lower},
            judge=lambda *_: result,
            prompts=PROMPTS,
            **SMALL,
        )


def test_an_answer_that_is_no_text_is_refused():
    with pytest.raises(
        elo_exp.SettingError, match="function of entrant a must return a text; got 3"
    ):
        elo_exp.compare(
            {"a": lambda _: 3, "b": str.lower}, judge=shorter, prompts=PROMPTS, **SMALL
        )


@pytest.mark.system
def test_a_command_imports_its_functions(here: Path):
    (here / "chain.py").write_text(
        "def long(prompt): return prompt * 3\n"
        "def short(prompt): return prompt\n"
        "def compare(prompt, a, b): return 'A' if len(a) < len(b) else 'B'\n",
        encoding="utf-8",
    )
    (here / "bank.jsonl").write_text(
        "".join(f'{{"prompt": "{text}"}}\n' for text in PROMPTS), encoding="utf-8"
    )
    entrants = ("entrant=[long=chain:long,chain:short]", "entrant.long.version=1", "entrant.short.version=1")  # fmt: skip
    judge = ("judge=chain:compare", "judge.version=1")
    rest = ("tracker=local", "figures=false", "elo.n_perms=2")
    ran = run_module("prompts=bank.jsonl", *entrants, *judge, *rest, folder=here)
    assert ran.code == 0, ran.err
    assert "short to long by at least" in ran.out
    absent = run_module(
        "prompts=bank.jsonl", *entrants, "judge=chain:nothing", "judge.version=1", *rest, folder=here
    )  # fmt: skip
    assert absent.code == 2
    assert (
        "judge.function names no function that Python can import: chain:nothing."
        in absent.err
    )


@pytest.mark.system
def test_a_chain_that_is_killed_is_asked_for_nothing_twice(here: Path):
    """Each call is written down by the chain itself; a call under way when the process dies may come again."""
    program = here / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, time
            import elo_exp

            def chain(prompt):
                with open("calls.txt", "a") as file:
                    file.write(prompt + "\\n")
                time.sleep(0.05)
                return prompt * 2

            entrant = elo_exp.add_version(chain, "1")
            prompts = {PROMPTS!r}
            elo_exp.compare(
                {{"old": str.upper, "chain": entrant}}, judge=lambda p, a, b: "A", prompts=prompts,
                out="run", elo__n_perms=2,
            )
            """
        ),
        encoding="utf-8",
    )
    calls = here / "calls.txt"
    with subprocess.Popen(
        [sys.executable, str(program)], cwd=here, env=environment(here)
    ) as process:
        while not calls.exists() or len(calls.read_text().splitlines()) < 10:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    n_before = len(calls.read_text().splitlines())
    done = subprocess.run(
        [sys.executable, str(program)], cwd=here, env=environment(here), check=False
    )
    assert done.returncode == 0
    counts = Counter(calls.read_text().splitlines())
    assert set(counts) == set(PROMPTS)
    assert n_before < len(PROMPTS)
    assert sum(counts.values()) <= len(PROMPTS) + 8  # as many as run at a time
