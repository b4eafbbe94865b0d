"""A plan is the run up to its first side effect: for each file that a run refuses, its plan refuses with the same line.

Neither a plan nor a refusal changes a folder. The table is made of all experiments, the settings that name files, and
the ways in which a file can be wrong.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import elo_exp
from elo_exp.errors import UserError
from elo_exp.files import write_jsonl
from elo_exp.launching import composing
from elo_exp.launching.running import open_run
from tests.experiments import composed
from tests.run_folders import label_all

FREE = ("tracker=local", "figures=false")
QUESTIONS = [f"Question {n}?" for n in range(30)]


@functools.cache
def _composed(*words: str) -> Any:
    return composed(*words)


def list_tree(folder: Path) -> list[tuple[str, int, int]]:
    """List the files and folders of a folder with their sizes and times of change."""
    return sorted(
        (str(path.relative_to(folder)), path.stat().st_size * path.is_file(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    )  # fmt: skip


def prepare(words: Sequence[str], values: Mapping[str, Any], *, is_plan: bool) -> str:
    """Check a command in the working folder; return the first line of its refusal, or the empty text."""
    words = (*FREE, *words)
    cfg = deepcopy(_composed(*words))
    composing.put_values(cfg, {"cache_dir": "cache", **values, "plan": is_plan})
    try:
        job = composing.prepare(cfg, words)
        with open_run(job, Path("run").absolute(), words) as prepared_run:
            prepared_run.dry_run()
    except UserError as error:
        return error.line
    return ""


def write_inputs(folder: Path) -> None:
    """Write a small file of each kind that an experiment reads."""
    for name, text in (("old", "It may be."), ("new", "Yes, it is so.")):
        rows = [
            {"question": q, "answer": f"{text} {n}"} for n, q in enumerate(QUESTIONS)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)
    write_jsonl(
        folder / "bank.jsonl",
        [
            {"prompt_id": f"q{n}", "text": q, "gold_answer": "Yes"}
            for n, q in enumerate(QUESTIONS)
        ],
    )
    pair = {"model_a": "old", "model_b": "new", "winner": "model_b"}
    write_jsonl(
        folder / "battles.jsonl", [{**pair, "question_id": f"q{n}"} for n in range(12)]
    )
    write_jsonl(
        folder / "pairs.jsonl",
        [
            {"prompt": q, "response_a": "Yes", "response_b": "No", "label": "a"}
            for q in QUESTIONS
        ],
    )
    models = [
        ("m1", "m2"),
        ("m2", "m3"),
        ("m1", "m3"),
        ("m4", "m1"),
        ("m2", "m4"),
        ("m3", "m4"),
    ]
    write_jsonl(
        folder / "arena.jsonl",
        [
            {
                "model_a": a,
                "model_b": b,
                "winner": "model_a" if n % 3 else "model_b",
                "question_id": f"{a}{b}{n}",
                "prompt": f"Question {a}{b}{n}?",
                "response_a": f"Yes {n}",
                "response_b": f"No {n}",
            }
            for a, b in models
            for n in range(12)
        ],
    )
    drawn = [
        {"prompt_id": f"p{n}", "judge_score": n / 24, "oracle_label": n / 24}
        for n in range(24)
    ]
    write_jsonl(folder / "fresh" / "mine.jsonl", drawn)
    write_jsonl(
        folder / "logged.jsonl",
        [
            {
                **row,
                "response": "Yes",
                "total_logprob": -9.0,
                "target_logps": {"mine": -9.5},
            }
            for row in drawn
        ],
    )
    (folder / "truth.json").write_text(
        '{"mine": {"mean": 0.5, "std_error": 0.1}}', encoding="utf-8"
    )
    (folder / "rubric.md").write_text(
        "# version: v1\nWhich answer is better?\n", encoding="utf-8"
    )


# The words of a command, its settings, and which of them name a file
TOURNAMENT = ("experiment=tournament", "judge=lexical", "study=own")
COMMANDS: dict[str, tuple[Sequence[str], Mapping[str, Any], Sequence[str]]] = {
    "tournament": (TOURNAMENT, {"answers": ["old.jsonl", "new.jsonl"]}, ("answers.1",)),
    "tournament, prompts": (
        TOURNAMENT,
        {"answers": ["old.jsonl", "new.jsonl"], "prompts.bank_path": "bank.jsonl"},
        ("answers.0", "prompts.bank_path", "rubric.preference.path"),
    ),
    "tournament, verdicts": (
        ("experiment=tournament", "judge=replay", "study=own"),
        {"answers": ["old.jsonl", "new.jsonl"], "judge.path": "run/verdicts"},
        ("judge.path",),
    ),
    "tournament, paid": (
        ("experiment=tournament", "judge=sonnet", "study=own"),
        {"answers": ["old.jsonl", "new.jsonl"], "judging.budget_usd": 5},
        ("answers.0",),
    ),
    "gate": (
        ("experiment=gate", "judge=lexical", "study=own"),
        {"answers": ["new.jsonl"], "gate.baseline": "old.jsonl"},
        ("answers.0", "gate.baseline"),
    ),
    "answer": (
        ("experiment=answer", "entrant=[probe_reference]"),
        {"prompts.bank_path": "bank.jsonl"},
        ("prompts.bank_path",),
    ),
    "rate": (("experiment=rate",), {"battles": "battles.jsonl"}, ("battles",)),
    "rate, several": (
        ("experiment=rate",),
        {"battles": ["battles.jsonl", "battles.jsonl"]},
        ("battles.1",),
    ),
    "audit": (
        (
            "experiment=audit",
            "judge=lexical",
            "rubric=[factuality]",
            "probe=[ladder]",
        ),
        {"prompts.bank_path": "bank.jsonl", "audit.gold": "pairs.jsonl"},
        ("prompts.bank_path", "audit.gold"),
    ),
    "arena": (
        ("experiment=arena", "arena=file", "judge=lexical", "entrant=[probe_partial]"),
        {"arena.path": "arena.jsonl", "arena.min_battles": 1},
        ("arena.path",),
    ),
    "oracle": (
        ("experiment=oracle",),
        {"oracle.fresh_dir": "fresh"},
        ("oracle.fresh_dir",),
    ),
    "oracle, logged": (
        ("experiment=oracle",),
        {
            "oracle.logged": "logged.jsonl",
            "oracle.fresh_dir": "fresh",
            "oracle.truth": "truth.json",
        },
        ("oracle.logged", "oracle.fresh_dir", "oracle.probe_dir", "oracle.truth"),
    ),
    "oracle, simulated": (
        ("experiment=oracle",),
        {"prompts.bank_path": "bank.jsonl"},
        ("prompts.bank_path",),
    ),
    "oracle, collected": (
        ("experiment=oracle", "entrant=[probe_reference,probe_partial]"),
        {"prompts.bank_path": "bank.jsonl", "oracle.label_fraction": 1.0},
        ("prompts.bank_path", "scoring.path"),
    ),
    "compare": (("experiment=compare",), {"runs": ["run", "run2"]}, ("runs.1",)),
    "export": (("experiment=export",), {"folder": "run"}, ("folder",)),
    "label": (("experiment=label",), {"run": "run"}, ("run",)),
    "label, read": (
        ("experiment=label",),
        {"run": "run", "labels": ["anna.jsonl"]},
        ("run", "labels.0"),
    ),
    "dashboard": (
        ("experiment=dashboard", "tracker=wandb"),
        {"runs": ["run"]},
        ("runs.0", "dashboard.baseline"),
    ),
    "store, import": (
        ("experiment=store",),
        {"store.action": "import", "store.file": "answers.jsonl"},
        ("store.file",),
    ),
    "store, merge": (
        ("experiment=store",),
        {"store.action": "merge", "store.file": "cache2/store.sqlite"},
        ("store.file",),
    ),
}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


# What is wrong with the file that a setting names
SPOILS: Mapping[str, Callable[[Path], object]] = {
    "absent": lambda path: None,
    "empty": lambda path: _write(path, b""),
    "a broken line": lambda path: _write(path, b'{"question": "Why?", \n'),
    "another table": lambda path: _write(path, b"colour,size\nred,1\nblue,2\n"),
    "a number": lambda path: _write(path, b"7\n"),
    "no text": lambda path: _write(path, bytes(range(128, 256)) * 4),
    "a folder": lambda path: path.mkdir(),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a small file of each kind, two finished runs, and labels of the first."""
    folder = tmp_path_factory.mktemp("law")
    write_inputs(folder)
    answers = {name: str(folder / f"{name}.jsonl") for name in ("old", "new")}
    store = str(folder / "elsewhere")
    for name in ("run", "run2"):
        elo_exp.compare(answers, judge="lexical", out=folder / name, cache_dir=store)
    label_all(folder / "run").rename(folder / "anna.jsonl")
    return folder


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same as the working folder; a test must leave it as it was."""
    monkeypatch.chdir(world)
    for name in ("ANTHROPIC_API_KEY", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield world
    path = world / "bad.jsonl"
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)


def refused_alike(folder: Path, words: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return the line with which plan and run refuse; neither may change the folder, nor say another line."""
    before = list_tree(folder)
    of_plan = prepare(words, values, is_plan=True)
    assert list_tree(folder) == before
    of_run = prepare(words, values, is_plan=False)
    assert list_tree(folder) == before
    assert of_plan == of_run
    return of_run


def spoil(values: Mapping[str, Any], setting: str, path: Path) -> dict[str, Any]:
    """Return settings in which one names another file."""
    name, _, position = setting.rpartition(".")
    if not position.isdecimal():
        return {**values, setting: str(path)}
    items = [*values.get(name, [])]
    items[int(position) :] = [str(path), *items[int(position) + 1 :]]
    return {**values, name: items}


# An export of no answers, and a folder in which nobody has put labelled answers yet
ACCEPTED = {
    ("store, import", "store.file", "empty"),
    ("oracle, logged", "oracle.probe_dir", "a folder"),
}


def list_spoilt() -> Iterator[tuple[str, str, str]]:
    """Yield each setting that names a file: with none there, and with one that is wrong in a way of its own."""
    ways = itertools.cycle(way for way in SPOILS if way != "absent")
    for name, (_, _, settings) in COMMANDS.items():
        for setting in settings:
            yield name, setting, "absent"
            yield name, setting, next(ways)


@pytest.mark.parametrize(("name", "setting", "how"), [*list_spoilt()])
def test_a_file_that_a_run_refuses_is_refused_by_its_plan(
    name: str, setting: str, how: str, here: Path
):
    words, values, _ = COMMANDS[name]
    path = here / "bad.jsonl"
    SPOILS[how](path)
    line = refused_alike(here, words, spoil(values, setting, path))
    assert bool(line) == ((name, setting, how) not in ACCEPTED)


OTHER_QUESTIONS = [{"question": f"Else {n}?", "answer": "Yes"} for n in range(30)]
SCORED = [
    {"prompt_id": f"p{n}", "policy": "mine", "judge_score": n / 24} for n in range(24)
]
BATTLE = {"model_a": "old", "model_b": "new", "winner": "model_b"}
# A command, what it sets otherwise, the rows of bad.jsonl, and a word of the refusal
MISTAKES: Sequence[tuple[str, Mapping[str, Any], Sequence[Any], str]] = (
    ("tournament", {"answers": ["old.jsonl"]}, (), "at least two"),
    ("tournament", {"answers": ["old.jsonl", "bad.jsonl"]}, OTHER_QUESTIONS, ""),
    ("tournament", {"sweep_pair": ["old", "old"]}, (), "sweep_pair"),
    ("tournament", {"judging.opponents": 3}, (), "judging.opponents"),
    ("tournament", {"judging.limit_pairs": -1}, (), "judging.limit_pairs"),
    ("tournament", {"shard": "3/2"}, (), "shard"),
    ("tournament", {"rubric": {}}, (), "rubric"),
    ("tournament", {"prompts.cluster": "nowhere"}, (), "prompts.cluster"),
    ("tournament, prompts", {"stratum": "nowhere"}, (), "stratum"),
    ("tournament, verdicts", {"judge.judge_model": "nobody"}, (), "judge_model"),
    ("tournament, verdicts", {"judge.path": "bad.jsonl"}, [{**BATTLE, "question_id": "q0"}], "missing"),
    ("gate", {"gate.baseline": "bad.jsonl"}, OTHER_QUESTIONS, ""),
    ("gate", {"gate.margin": 0.7}, (), "gate.margin"),
    ("gate", {"answers": ["new.jsonl", "old.jsonl"]}, (), "one candidate"),
    ("gate", {"answers": {"baseline": "new.jsonl"}}, (), "baseline"),
    ("gate", {"gate.baseline": "???"}, (), "gate.baseline is not set"),
    ("answer", {"entrant": {}}, (), "entrant"),
    ("answer", {"shard": "0/99"}, (), ""),
    ("rate", {"battles": "bad.jsonl"}, [{**BATTLE, "winner": "nobody"}] * 3, ""),
    ("rate", {"battles": "???"}, (), "battles is not set"),
    ("rate", {"elo.k": -1}, (), "elo.k"),
    ("rate", {"rating.bradley_terry.baseline_model": "nobody"}, (), "baseline_model"),
    ("rate", {"rating.bradley_terry.style": ["length"]}, (), "style"),
    ("rate", {"battles_columns.winner": "nowhere"}, (), "nowhere"),
    ("rate", {"battles": "bad.jsonl", "elo.shuffle": False}, [{**BATTLE, "count": 3}], "elo.shuffle"),
    ("audit", {"audit.paraphrases": {"factuality": ["nowhere.md"]}}, (), "nowhere.md"),
    ("audit", {"audit.n_prompts": 0}, (), "audit.n_prompts"),
    ("audit", {"prompts.bank_path": "bad.jsonl", "audit.gold": None}, [{"prompt_id": "q", "text": "Q"}], "no questions"),
    ("audit", {"audit.gold": "bad.jsonl"}, [{"prompt": "Q", "response_a": "x", "response_b": "y", "label": "z"}], "label"),
    ("arena", {"arena.columns.winner": "nowhere"}, (), "nowhere"),
    ("arena", {"arena.min_battles": 1000}, (), ""),
    ("arena", {"arena.n_calibration": 0}, (), "arena.n_calibration"),
    ("arena", {"arena.max_chars": 1}, (), "cannot be placed"),
    ("arena", {"arena.hold_out": ["nobody"]}, (), "nobody"),
    ("oracle", {"oracle.fresh_dir": "bad.jsonl"}, SCORED, "oracle_label"),
    ("oracle", {"oracle.by_variance": True}, (), "judge_score_variance"),
    ("oracle", {"oracle.scale": [1, 0]}, (), "oracle.scale"),
    ("oracle", {"oracle.scale": [0, 0.5]}, (), "0.5"),
    ("oracle", {"oracle.policies": ["nobody"]}, (), "nobody"),
    ("oracle", {"oracle.covariates": ["difficulty"]}, (), "difficulty"),
    ("oracle", {"oracle.truth": "labels"}, (), "log-probabilities"),
    ("oracle, collected", {"oracle.label_fraction": 0.1}, (), "labels"),
    ("oracle, collected", {"prompts.n": 3}, (), "prompts.n"),
    ("compare", {"runs": ["run"]}, (), "at least two"),
    ("compare", {"runs": "???"}, (), "runs is not set"),
    ("label", {"label.dimension": "nobody"}, (), "label.dimension"),
    ("label, read", {"run": "run2"}, (), "label"),
    ("store, import", {"store.action": "purge"}, (), "needs to know"),
    ("store, import", {"store.action": "export", "store.file": "x.csv"}, (), "store.file"),
    ("store, import", {"store.action": "merge", "store.file": "cache/store.sqlite"}, (), "store"),
    ("store, import", {"store.action": "copy"}, (), "store.to"),
    ("store, import", {"store.action": "repay"}, (), "batch"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "rows", "word"), MISTAKES)
def test_a_mistake_that_a_run_refuses_is_refused_by_its_plan(
    name: str, changes: Mapping[str, Any], rows: Sequence[Any], word: str, here: Path
):
    words, values, _ = COMMANDS[name]
    if rows:
        write_jsonl(here / "bad.jsonl", rows)
    assert word in refused_alike(here, words, {**values, **changes})


@pytest.mark.parametrize("name", COMMANDS)
def test_what_runs_also_plans_without_keys_and_packages_and_changes_nothing(
    name: str, here: Path
):
    words, values, _ = COMMANDS[name]
    if name.startswith("store"):
        values = {"store.action": "list"}
    before = list_tree(here)
    assert prepare(words, values, is_plan=True) == ""
    assert list_tree(here) == before
