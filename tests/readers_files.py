"""What a reader of the pages has besides the checkout: prompts, votes, responses, models, Slurm."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path
from typing import Any

from elo_exp.files import read_jsonl, write_json, write_jsonl
from tests import agents_example, own_example
from tests.arena_files import World
from tests.commands import SCRIPTS
from tests.data import BANK, PROBES, write_table
from tests.score_files import inspect_log, lm_eval_rows, promptfoo_results
from tests.test_build_bank import medmcqa, medqa

COMMIT = "a" * 40
N_PROMPTS = {"medmcqa_open": 6, "medqa": 6, "curated": 4}
RECORDED = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
OWN_PARTS = {  # files that the pages name and do not show -> what follows their package
    "conf/entrant/mine.yaml": "defaults: [recorded@_here_, _self_]\npath: votes\n",
    "conf/entrant/other.yaml": "defaults: [recorded@_here_, _self_]\npath: votes\n",
    "mine/entrant/qwen.yaml": "defaults: [llama@_here_, _self_]\nmodel: qwen\n",
}
SBATCH = """#!/bin/bash
# The tasks of an array one after the other: of a script behind the caller's back, of --wrap before this ends.
script=${!#}
[ -f "$script" ] && given=$(grep '^#SBATCH' "$script") || given=$*
first=0 last=0
[[ $given =~ --array=([0-9]+)-([0-9]+) ]] && first=${BASH_REMATCH[1]} last=${BASH_REMATCH[2]}
export SLURM_JOB_ID=$$ SLURM_ARRAY_JOB_ID=$$ SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1
export SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
tasks() {
    for task in $(seq "$first" "$last"); do SLURM_ARRAY_TASK_ID=$task bash "$@" || exit; done
}
if [ -f "$script" ]; then tasks "$script" >/dev/null 2>&1 & else tasks -c "$script" || exit; fi
echo "Submitted batch job $$"
"""
SRUN = """#!/bin/bash
# The program, writing where it is told.
place() {
    local path=${1//%A/$SLURM_ARRAY_JOB_ID}
    path=${path//%a/$SLURM_ARRAY_TASK_ID}
    mkdir -p "$(dirname "$path")" && echo "${path//%t/0}"
}
while [[ $1 == -* ]]; do
    case $1 in --output) out=$(place "$2"); shift ;; --error) err=$(place "$2"); shift ;; esac
    shift
done
exec "$@" >"${out:-/dev/stdout}" 2>"${err:-/dev/stderr}"
"""
PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
PROGRAMS = {"python": PYTHON, "sbatch": SBATCH, "srun": SRUN, "sacct": "#!/bin/sh\n"}


def write(path: Path, text: str) -> Path:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_inputs(folder: Path) -> None:
    """Write what the commands of the pages read, and the programs that they start."""
    (folder / "tmp").mkdir()
    for name, text in PROGRAMS.items():
        write(folder / "bin" / name, text).chmod(0o755)
    for name in ("jupytext", "pre-commit"):
        (folder / "bin" / name).symlink_to(SCRIPTS / name)
    (folder / ".venv").mkdir()
    (folder / ".venv/bin").symlink_to(folder / "bin")
    for name in (
        ".venv/demo",
        ".venv/dev",
    ):  # newer than pyproject.toml: make installs nothing
        (folder / name).touch()
    for name, text in OWN_PARTS.items():
        entrant = Path(name).stem
        write(
            folder / name,
            f"# @package entrant.{entrant}\n{text}entrant_id: {entrant}\n",
        )
    own_example.write_files(folder)
    own_example.write_files(folder)
    _bank(folder)
    _questions(folder)
    _votes(folder)
    _scores(folder)
    _models(folder)


def _bank(folder: Path) -> None:
    """Some prompts of each source, and longer answers from each entrant than from the one before."""
    rows = [row for _, row in read_jsonl(BANK)]
    chosen = [
        row
        for source, n in N_PROMPTS.items()
        for row in [row for row in rows if row["source"] == source][:n]
    ]
    write_jsonl(folder / "prompts/bank.jsonl", chosen)
    for i, name in enumerate((*RECORDED, *PROBES), start=1):
        answers = [
            {"prompt_id": row["prompt_id"], "response_text": row["text"][: 9 * i]}
            for row in chosen
        ]
        write_jsonl(folder / f"responses/responses_{name}.jsonl", answers)


def _questions(folder: Path) -> None:
    """As many rows of MedMCQA and MedQA as prompts/README.md asks for, and questions of two turns in MT-Bench's form."""
    turns = ("Name a river of country {}.", "Where does it end?")
    write_jsonl(
        folder / "question.jsonl",
        [
            {
                "question_id": n,
                "category": "rivers",
                "turns": [t.format(n) for t in turns],
            }
            for n in range(6)
        ],
    )
    short = [medmcqa(f"Antidote for poisoning with drug {n}") for n in range(24)]
    write_jsonl(folder / "medmcqa.jsonl", short)
    asked = "is hoarse. Which of the following nerves is injured?"
    write_jsonl(
        folder / "medqa.jsonl",
        [medqa(f"A man of {age} {asked}") for age in range(20, 89)],
    )


def _votes(folder: Path) -> None:
    """Human battles, the same as LMArena writes them, answers to their questions, and verdicts on these."""
    names = ("one", "two", "three", "four", "Weaver 12k")
    anchors = dict(zip(names, (900.0, 1000.0, 1100.0, 1050.0, 950.0), strict=True))
    world = World(
        anchors=anchors, placed={"mine": 1050.0, "other": 950.0}, n_battles=60
    )
    rows = world.rows()
    world.write(folder / "votes")
    shutil.copy(folder / "votes/responses_mine.jsonl", folder / "responses.jsonl")
    names = ("model_a", "model_b", "winner", "question_id")
    battles = [{name: row[name] for name in names} for row in rows]
    lmarena = [
        battle
        | {"evaluation_session_id": row["question_id"], "evaluation_order": 1}
        | {"language": "en", **_conversations(row)}
        for battle, row in zip(battles, rows, strict=True)
    ]
    write_jsonl(folder / "lmarena.jsonl", lmarena)
    verdicts = battles + [
        battle | {"model_a": placed, "model_b": battle[side], "winner": "model_a"}
        for battle in battles
        for placed in world.placed
        for side in ("model_a", "model_b")
    ]
    write_jsonl(folder / "verdicts.jsonl", verdicts)
    families = [
        battle | {"question_id": n, "family": f"f{n % 12}"}
        for n, battle in enumerate(battles)
    ]
    write_table(folder / "families.csv", families)
    words = {"model_a": "left", "model_b": "right"}
    own = [
        f"{b['model_a']},{b['model_b']},{words.get(str(b['winner']), 'neither')}"
        for b in battles
    ]
    counts = [{**battle, "question_id": None, "count": 2} for battle in battles]
    for name in ("counts.parquet", "counts/000000000000.parquet"):
        write_table(folder / name, counts)
    head = "left_model,right_model,vote"
    write(folder / "votes.csv", "\n".join([head, *own, ""]))
    judges = itertools.cycle(("crowd", "somebody"))
    judged = [verdict | {"judge_model": next(judges)} for verdict in verdicts]
    write_jsonl(folder / "battles.jsonl", judged)


def _named_columns(folder: Path) -> None:
    """Tables with names of columns that nobody else has: answers, long and wide, scores, and people's labels."""
    numbers = range(59)
    for name, words in {"chat_old": "I think it is", "chat_new": "It is"}.items():
        rows = [
            {"user_input": f"What is {n} and {n}?", "reply": f"{words} {2 * n}."}
            for n in numbers
        ]
        write_table(folder / f"{name}.csv", rows)
    wide = [
        {
            "question": f"What is {n} and 1?",
            "gpt4": f"It is {n + 1}.",
            "claude": f"{n}.",
        }
        for n in numbers
    ]
    write_table(folder / "wide.csv", wide)
    graded = [
        {"case": f"q{n}", "bot": bot, "mark": n % 2 * (bot == "large")}
        for n in numbers
        for bot in ("small", "large")
    ]
    write_table(folder / "graded.csv", graded)
    rows = [{"case": f"q{n}", "small": 0, "large": n % 2} for n in numbers]
    write_table(folder / "graded_wide.csv", rows)
    judged = [
        {"id": f"q{n}", "judge": n % 2, "human": n % 3 % 2 if n < 30 else ""}
        for n in numbers
    ]
    write_table(folder / "judged.csv", judged)
    experts = [{"id": f"q{n}", "expert": n % 3 % 2} for n in range(30, 59)]
    write_table(folder / "experts.csv", experts)


def _scores(folder: Path) -> None:
    """Scores of two models by other programs."""
    right = {"gpt": [1, 1, 0, 1], "claude": [0, 1, 0, 1]}
    for name, values in right.items():
        write_json(folder / f"{name}.eval", inspect_log(name, values))
        write_jsonl(folder / name / "samples_gsm8k.jsonl", lm_eval_rows(values))
    write_json(folder / "results.json", promptfoo_results(**right))
    rows = [
        f"q{n},{name},{value}\n"
        for name, values in right.items()
        for n, value in enumerate(values)
    ]
    write(
        folder / "my_chain.py",
        "def answer(prompt): return prompt * 2\ndef guess(prompt): return prompt\n",
    )
    write(
        folder / "my_scores.py",
        "def check(prompt, answer): return len(answer) / 1000\n",
    )
    write(folder / "scores.csv", f"item_id,model_id,score\n{''.join(rows)}")
    _named_columns(folder)
    agents_example.write_files(folder)
    for name, agent in {"a": "careful", "b": "quick"}.items():
        agents_example.write_log(folder / f"{name}.eval", agent)


def _conversations(row: dict[str, Any]) -> dict[str, Any]:
    return {
        f"conversation_{side}": [
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row[f"response_{side}"]},
        ]
        for side in "ab"
    }


def _models(folder: Path) -> None:
    """A hub's cache with a model and an adapter under the names of the pages, a judge, and heads of the model."""
    from tests.tiny_heads import model_geometry, tiny_heads
    from tests.tiny_models import tiny_adapter, tiny_model

    model = tiny_model(
        folder / "models/olmo", n_layers=4, max_position_embeddings=16384
    )
    smallest = {"n_layers": 1, "n_heads": 1, "hidden_size": 8, "seed": 1}
    tiny_model(folder / "models/judge", **smallest, max_position_embeddings=16384)
    tiny_adapter(folder / "home/runs/sft/lora", model, seed=1)
    _on_the_hub(folder, "allenai/OLMo-2-1124-7B-Instruct", "main", model)
    _on_the_hub(
        folder, "me/dpo-lora", "v2", tiny_adapter(folder / "models/dpo", model, seed=2)
    )
    for seed, name in enumerate(("heads", "weights/prod", "weights/robustness")):
        tiny_heads(folder / name, model_geometry(model, 3), n_heads=3, seed=seed)


def _on_the_hub(folder: Path, name: str, revision: str, model: Path) -> None:
    cache = folder / "hub/hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, cache / "snapshots" / COMMIT)
    write(cache / "refs" / revision, COMMIT)
