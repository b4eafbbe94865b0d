"""Twenty-five tasks of a first day: exact command, the lines that the console begins with, the exit code.

Whoever comes with files of their own gives these commands before reading a page. In a folder with their files each is
run as it stands; a line is asked for by what it begins with.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from tests.commands import Ran, attempt, environment, run
from tests.data import shared_data, write_table
from tests.openai_server import OpenAiServer

CAPITALS = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Norway": "Oslo",
    "Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi", "Egypt": "Cairo",
    "Greece": "Athens", "Cuba": "Havana", "Ghana": "Accra", "Iran": "Tehran",
    "Iraq": "Baghdad", "Chile": "Santiago", "Latvia": "Riga", "Qatar": "Doha",
    "Malta": "Valletta", "Nepal": "Kathmandu", "Oman": "Muscat", "Poland": "Warsaw",
    "Serbia": "Belgrade", "Sudan": "Khartoum", "Syria": "Damascus", "Tunisia": "Tunis",
}  # fmt: skip
NEUTRAL = '"an expert, impartial evaluator"'


@dataclass(frozen=True, kw_only=True)
class Task:
    """words   of the command, behind elo-exp; {url} is a server's
    begins  what lines of the console begin with, in this order
    holds   what stands anywhere in its output
    """

    number: int
    words: str
    begins: tuple[str, ...]
    holds: tuple[str, ...] = ()
    code: int = 0

    def __str__(self) -> str:
        return f"{self.number}: {self.words}"


TASKS = (
    Task(
        number=1,
        words="old.jsonl new.jsonl",
        begins=(
            "elo_exp: judge is not set. Nothing was sent or charged. Choose a judge for 46 judge calls on preference:",
        ),
        holds=("judge=haiku", "judge=sonnet", "judge=opus", "judge=lexical"),
        code=2,
    ),
    Task(
        number=2,
        words="old.jsonl new.jsonl judge=sonnet plan=true",
        begins=(
            "old.jsonl: plain rows: 23 answers of old",
            "new.jsonl: plain rows: 24 answers of new",
            "prompts: 23 of 24 answered by both entrants (old lacks 1), 23 with a reference answer",
            f"plan: judge claude-sonnet-5-5 as {NEUTRAL}",
            "  budget $5",
        ),
    ),
    Task(
        number=3,
        words="old.jsonl new.jsonl judge=sonnet",
        begins=(
            "elo_exp: The judge needs an Anthropic API key, and ANTHROPIC_API_KEY is not",
        ),
        code=2,
    ),
    Task(
        number=4,
        words="old.jsonl new.jsonl judge=openai_compatible judge.base_url={url} judge.model=small",
        begins=(f"own: preset own, 1 rubric (preference), judge small as {NEUTRAL}",),
    ),
    Task(
        number=5,
        words="old.csv new.parquet judge=lexical",
        begins=("own: baseline: word overlap; no model judges the answers",),
    ),
    Task(
        number=6,
        words="phi-2/model_outputs.json.gz alpaca-7b/model_outputs.json.gz judge=haiku plan=true",
        begins=(
            "phi-2/model_outputs.json.gz: alpaca_eval's outputs: 803 answers of phi-2",
        ),
    ),
    Task(
        number=7,
        words="NullModel/model_outputs.json.gz text_davinci_003/model_outputs.json.gz judge=haiku plan=true",
        begins=(
            "NullModel/model_outputs.json.gz: alpaca_eval's outputs: 805 answers of example",
        ),
        holds=("call it otherwise: 'answers={NAME:FILE,...}'",),
    ),
    Task(
        number=8,
        words="'answers={{null:NullModel/model_outputs.json.gz,davinci:text_davinci_003/model_outputs.json.gz}}'"
        " judge=haiku plan=true",
        begins=(
            "NullModel/model_outputs.json.gz: alpaca_eval's outputs: 805 answers of null",
        ),
        holds=("805 answers of davinci; 2 empty",),
    ),
    Task(
        number=9,
        words="model_answer/gpt-4-0314.jsonl.gz model_answer/gpt-3.5-turbo-0125.jsonl.gz judge=opus plan=true",
        begins=(
            "model_answer/gpt-4-0314.jsonl.gz: arena_hard's answers: 500 answers of gpt-4-0314",
        ),
    ),
    Task(
        number=10,
        words="model_answer/gpt-4-0314.jsonl.gz v2.0/o3.jsonl judge=opus plan=true",
        begins=("elo_exp: No prompt is answered by all entrants",),
        code=2,
    ),
    Task(
        number=11,
        words="mt_bench/gpt-4.jsonl mt_bench/other.jsonl judge=sonnet",
        begins=("elo_exp: The files of answers hold no prompts. Add the questions",),
        code=2,
    ),
    Task(
        number=12,
        words="mt_bench/gpt-4.jsonl mt_bench/other.jsonl judge=sonnet prompts=mt_bench/question.jsonl plan=true",
        begins=("mt_bench/gpt-4.jsonl: FastChat's answers: 30 answers of gpt-4",),
    ),
    Task(
        number=13,
        words="a.eval b.eval judge=sonnet plan=true",
        begins=("a.eval: inspect_ai log: 10 answers of openai/gpt-4o-mini",),
        holds=("gave the same answer to all 10 prompts, so there is nothing",),
        code=2,
    ),
    Task(
        number=14,
        words="a.eval b.eval",
        begins=("a.eval: read as inspect_ai: 10 scores used",),
    ),
    Task(
        number=15,
        words="m1/samples_gsm8k_T.jsonl m2/samples_gsm8k_T.jsonl judge=haiku plan=true",
        begins=("m1/samples_gsm8k_T.jsonl: lm_eval: 24 answers of m1",),
    ),
    Task(
        number=16,
        words="batch_output.jsonl other.jsonl prompts=bank.jsonl judge=haiku plan=true",
        begins=("batch_output.jsonl: OpenAI batch output: 24 answers of gpt-5-mini",),
        holds=("1 failed",),
    ),
    Task(
        number=17,
        words="prompts=bank.jsonl 'entrant=[hf:models/a,hf:models/b]' judge=sonnet plan=true",
        begins=("a: 24 answers not generated yet; cost estimated from",),
        holds=(f"plan: judge claude-sonnet-5-5 as {NEUTRAL}",),
    ),
    Task(
        number=18,
        words="prompts=bank.jsonl 'entrant=[api:small,api:large]' api.base_url={url} judge=lexical",
        begins=(
            "own: baseline: word overlap; no model judges the answers",
            "answers: 48 new",
        ),
    ),
    Task(
        number=19,
        words="--config-dir mine 'entrant=[old,new]' recorded_dir=recorded prompts=bank.jsonl judge=opus plan=true",
        begins=("plan: judge claude-opus-5-5",),
    ),
    Task(
        number=20,
        words="--config-dir bare 'entrant=[old,new]' recorded_dir=recorded prompts=bank.jsonl judge=opus plan=true",
        begins=(
            "elo_exp: bare/entrant/old.yaml does not say where its settings belong. Its first line must be '# @package",
        ),
        code=2,
    ),
    Task(
        number=21,
        words="study=medical prompts=bank.jsonl old.jsonl new.jsonl judge=opus plan=true",
        begins=("plan: judge claude-opus-5-5 as ",),
        holds=("physician-evaluator",),
    ),
    Task(
        number=22,
        words="votes.csv battles_columns.model_a=left_model battles_columns.model_b=right_model"
        " battles_columns.winner=preferred 'battles_values={{left:model_a,right:model_b}}'"
        "",
        begins=("votes.csv: read as battles: 24 used",),
    ),
    Task(
        number=23,
        words="outputs/first/battles.jsonl",
        begins=("rate: 2,274 battles on 3 rubrics",),
        holds=("factuality", "calibration", "clinical_utility"),
    ),
    Task(
        number=24,
        words="experiment=gate prompts=bank.jsonl gate.baseline=old.jsonl answers=new.jsonl judge=sonnet plan=true",
        begins=("plan: judge claude-sonnet-5-5 as",),
    ),
)


def prompt_of(country: str) -> str:
    return f"What is the capital of {country}?"


def answers(style: str) -> list[dict[str, Any]]:
    """Plain rows: prompt, answer and reference of every country."""
    return [
        {
            "id": country.lower(),
            "prompt": prompt_of(country),
            "answer": f"{city}." if style == "old" else f"It is {city}, I think.",
            "reference": city,
        }
        for country, city in CAPITALS.items()
    ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a newcomer's files."""
    folder = tmp_path_factory.mktemp("desk")
    (old, new) = (answers(style) for style in ("old", "new"))
    write_table(folder / "old.jsonl", old[1:])
    write_table(folder / "new.jsonl", new)
    write_table(folder / "old.csv", old)
    write_table(folder / "new.parquet", new)
    bank = [
        {"id": row["id"], "prompt": row["prompt"], "reference": row["reference"]}
        for row in old
    ]
    write_table(folder / "bank.jsonl", bank)
    recorded = folder / "recorded"
    for name, rows in (("old", old), ("new", new)):
        given = [{"prompt_id": r["id"], "response_text": r["answer"]} for r in rows]
        write_table(recorded / f"responses_{name}.jsonl", given)
        body = f"defaults: [recorded@_here_, _self_]\nentrant_id: {name}\n"
        for where, head in (("mine", f"# @package entrant.{name}\n"), ("bare", "")):
            path = folder / where / "entrant" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(head + body, encoding="utf-8")
        samples = [
            {
                "doc_id": n,
                "doc_hash": row["prompt_id"],
                "doc": {},
                "target": "",
                "arguments": {"gen_args_0": {"arg_0": f"Question {n}?", "arg_1": {}}},
                "resps": [[row["response_text"]]],
                "filtered_resps": [row["response_text"]],
            }
            for n, row in enumerate(given)
        ]
        place = folder / ("m1" if name == "old" else "m2")
        write_table(place / "samples_gsm8k_T.jsonl", samples)
    write_table(folder / "batch_output.jsonl", [*map(completed, old), failed()])
    write_table(folder / "other.jsonl", new)
    votes = [
        {
            "left_model": "ann",
            "right_model": "bob",
            "preferred": ("left", "right", "left", "tie")[n % 4],
        }
        for n in range(24)
    ]
    write_table(folder / "votes.csv", votes)
    real_files(folder)
    return folder


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a batch of chat completions."""
    message = {"role": "assistant", "content": row["answer"]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"model": "gpt-5-mini-2026-08-07", "choices": [choice]}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": row["id"], "response": response, "error": None}


def failed() -> dict[str, Any]:
    error = {"code": "batch_expired", "message": "expired"}
    return {"id": "b", "custom_id": "late", "response": None, "error": error}


def real_files(folder: Path) -> None:
    """Answers of other programs, as they publish them."""
    for name in ("phi-2", "alpaca-7b", "NullModel", "text_davinci_003"):
        (folder / name).symlink_to(shared_data(f"answers/alpaca_eval/{name}"))
    (folder / "model_answer").symlink_to(shared_data("answers/arena_hard/v0.1"))
    newer = {"uid": "n1", "model": "o3", "messages": messages("Why?", "So.")}
    write_table(folder / "v2.0" / "o3.jsonl", [newer])
    turns = shared_data("answers/mt_bench/gpt-4.jsonl").read_text(encoding="utf-8")
    (folder / "mt_bench").mkdir()
    (folder / "mt_bench" / "gpt-4.jsonl").write_text(turns, encoding="utf-8")
    other = [json.loads(line) | {"model_id": "other"} for line in turns.splitlines()]
    for row in other:
        row["choices"][0]["turns"] = ["Yes.", "No."]
    write_table(folder / "mt_bench" / "other.jsonl", other)
    (folder / "mt_bench" / "question.jsonl").symlink_to(
        shared_data("answers/mt_bench/question.jsonl")
    )
    log = shared_data("formats/inspect_scored.eval")
    (folder / "a.eval").symlink_to(log)
    with ZipFile(log) as read, ZipFile(folder / "b.eval", "w", ZIP_DEFLATED) as written:
        for name in read.namelist():
            text = read.read(name).replace(b"openai/gpt-4o-mini", b"openai/gpt-4.1")
            written.writestr(name, text)


def messages(question: str, answer: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": {"answer": answer}},
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer() as started:
        yield started


def do(task: Task, desk: Path, url: str) -> Ran:
    words = shlex.split(task.words.format(url=url))
    quick = (
        () if "plan=true" in words or task.code else ("tracker=local", "figures=false")
    )
    return attempt(*words, *quick, folder=desk, NO_PROXY="127.0.0.1")


def run_folders(desk: Path) -> list[Path]:
    return sorted((desk / "outputs").glob("*_20*"))


def begins_in_order(lines: list[str], begins: tuple[str, ...]) -> bool:
    rest = iter(lines)
    return all(any(line.startswith(text) for line in rest) for text in begins)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=[pytest.mark.system] * (task.number == 23))
        for task in TASKS
    ],
    ids=str,
)
def test_a_task_of_the_first_day(task: Task, desk: Path, server: OpenAiServer):
    if task.number == 23:
        run(
            "tracker=local", "figures=false", "hydra.run.dir=outputs/first", folder=desk
        )
    before = run_folders(desk)
    ran = do(task, desk, server.url)
    console = f"{ran.err}{ran.out}"
    assert ran.code == task.code, console
    assert begins_in_order(console.splitlines(), task.begins), console
    assert not [text for text in task.holds if text not in console], console
    assert "Traceback" not in console
    if task.code or "plan=true" in task.words:
        assert run_folders(desk) == before


@pytest.mark.parametrize(
    "task",
    [t for t in TASKS if not t.code and "judge=" in t.words and "plan=" not in t.words],
    ids=str,
)
def test_what_runs_also_plans(task: Task, desk: Path, server: OpenAiServer):
    words = shlex.split(task.words.format(url=server.url))
    n_before = len(server.asked)
    ran = attempt(*words, "plan=true", folder=desk, NO_PROXY="127.0.0.1")
    assert ran.code == 0, ran.err
    assert re.search(r"^plan: judge ", ran.out, re.MULTILINE)
    assert len(server.asked) == n_before


@pytest.mark.system
def test_a_table_is_rated_in_one_line_of_python(desk: Path):
    """The twenty-fifth, in a process of its own, as it stands in a shell."""
    folder = desk / "outputs" / "first"
    if not folder.exists():
        run(
            "tracker=local", "figures=false", "hydra.run.dir=outputs/first", folder=desk
        )
    line = "import elo_exp; print(elo_exp.rate('outputs/first/battles.jsonl'))"
    done = subprocess.run(
        [sys.executable, "-c", line],
        cwd=desk,
        env=environment(desk),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(
        name in done.stdout for name in ("factuality (93 prompts)", "probe_hedged")
    )
