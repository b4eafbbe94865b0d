"""What is on the reader's machine besides the checkout: a bank, votes, responses, models, heads, Slurm."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from elo_exp.files import write_jsonl
from tests.arena_files import World
from tests.commands import SCRIPTS
from tests.data import BANK, PROBES
from tests.documented import blocks

COMMIT = "a" * 40
N_PROMPTS = {"medmcqa_open": 6, "medqa": 6, "curated": 4}
RECORDED = ("base_olmo", "security_only", "security_plus_robustness", "full_poe")
OWN_PARTS = {  # of which the pages speak, and show no file -> what such a file says behind its package and its name
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
exec "$@" >"$out" 2>"$err"
"""
PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
PROGRAMS = {"python": PYTHON, "sbatch": SBATCH, "srun": SRUN, "sacct": "#!/bin/sh\n"}


def write(folder: Path) -> None:
    (folder / "tmp").mkdir()
    for name, text in PROGRAMS.items():
        _text(folder / "bin" / name, text).chmod(0o755)
    for name in ("jupytext", "pre-commit"):
        (folder / "bin" / name).symlink_to(SCRIPTS / name)
    (folder / ".venv").mkdir()
    (folder / ".venv/bin").symlink_to(folder / "bin")
    for name in (".venv/demo", ".venv/dev"):  # newer than pyproject.toml: make installs nothing
        (folder / name).touch()
    for name, text in OWN_PARTS.items():
        entrant = Path(name).stem
        _text(folder / name, f"# @package entrant.{entrant}\n{text}entrant_id: {entrant}\n")
    _bank(folder)
    _questions(folder)
    _votes(folder)


def write_parts(folder: Path, page: str, here: Callable[[str], str]) -> None:
    """The yaml files that a page shows, over those of entrants.md, of which other pages speak."""
    for block in (
        block
        for name in ("docs/entrants.md", page)
        for block in blocks(name)
        if block.kind == "yaml"
    ):
        package = re.match(r"# @package (\w+)\.(\w+)", block.text)
        name = f"mine/{package[1]}/{package[2]}.yaml" if package else str(block.file)
        _text(folder / name, here(block.text))


def _text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _bank(folder: Path) -> None:
    """Some prompts of each source, and answers of some entrants to them, the longer the better the entrant."""
    rows = [json.loads(line) for line in BANK.read_text(encoding="utf-8").splitlines()]
    chosen = [
        row
        for source, n in N_PROMPTS.items()
        for row in [row for row in rows if row["source"] == source][:n]
    ]
    write_jsonl(folder / "prompts/bank.jsonl", chosen)
    for i, name in enumerate((*RECORDED, *PROBES), start=1):
        answers = [
            {"prompt_id": row["prompt_id"], "response_text": row["text"][: 9 * i]} for row in chosen
        ]
        write_jsonl(folder / f"responses/responses_{name}.jsonl", answers)


def _questions(folder: Path) -> None:
    """As many as the page asks for of the two data sets that a bank is made of."""
    options = {
        "opa": "Lead",
        "opb": "Potassium",
        "opc": "Zinc",
        "opd": "Cobalt",
        "cop": 1,
        "choice_type": "single",
    }
    rest = {"subject_name": "Pharmacology", "topic_name": None}
    names = [f"{letter}amycin" for letter in "BCDFGHJKLMNPQRSTVWXYZ"] + [
        "digoxin",
        "heparin",
        "lithium",
        "warfarin",
    ]
    write_jsonl(
        folder / "medmcqa.jsonl",
        [
            {"id": name, "question": f"Antidote for poisoning with {name}", **options, **rest}
            for name in names
        ],
    )
    letters = {"A": "Facial", "B": "Hypoglossal", "C": "Recurrent laryngeal", "D": "Phrenic"}
    right = {
        "options": letters,
        "answer": "Recurrent laryngeal",
        "answer_idx": "C",
        "meta_info": "step2&3",
    }
    asked = "is hoarse. Which of the following nerves is injured?"
    write_jsonl(
        folder / "medqa.jsonl",
        [{"question": f"A man of {age} {asked}", **right} for age in range(20, 90)],
    )


def _votes(folder: Path) -> None:
    """Human battles, the same as LMArena writes them, answers to their questions, and verdicts on these."""
    anchors = {"one": 900.0, "two": 1000.0, "three": 1100.0, "Weaver 12k": 950.0}
    world = World(anchors=anchors, placed={"mine": 1050.0, "other": 950.0}, n_battles=60)
    rows = world.rows()
    world.write(folder / "votes")
    shutil.copy(folder / "votes/responses_mine.jsonl", folder / "responses.jsonl")
    write_jsonl(
        folder / "lmarena.jsonl",
        [
            {
                "id": row["question_id"],
                "language": "en",
                **{name: row[name] for name in ("model_a", "model_b", "winner")},
            }
            | {
                f"conversation_{side}": [
                    {"role": "user", "content": row["prompt"]},
                    {"role": "assistant", "content": row[f"response_{side}"]},
                ]
                for side in "ab"
            }
            for row in rows
        ],
    )
    names = ("model_a", "model_b", "winner", "question_id")
    verdicts = [{name: row[name] for name in names} for row in rows]
    verdicts += [
        {
            "model_a": placed,
            "model_b": row[side],
            "winner": "model_a",
            "question_id": row["question_id"],
        }
        for row in rows
        for placed in world.placed
        for side in ("model_a", "model_b")
    ]
    write_jsonl(folder / "verdicts.jsonl", verdicts)
    who = ("crowd", "somebody")
    write_jsonl(
        folder / "battles.jsonl",
        [{**row, "judge_model": who[i % 2]} for i, row in enumerate(verdicts)],
    )


def write_models(folder: Path) -> None:
    """A hub's cache with a model and an adapter under the names of the pages, a judge, and heads of the model."""
    from tests.tiny_heads import model_geometry, tiny_heads
    from tests.tiny_models import tiny_adapter, tiny_model

    model = tiny_model(folder / "models/olmo", n_layers=4, max_position_embeddings=16384)
    tiny_model(
        folder / "models/judge",
        n_layers=1,
        n_heads=1,
        hidden_size=8,
        seed=1,
        max_position_embeddings=16384,
    )
    tiny_adapter(folder / "home/runs/sft/lora", model, seed=1)
    _on_the_hub(folder, "allenai/OLMo-2-1124-7B-Instruct", "main", model)
    _on_the_hub(folder, "me/dpo-lora", "v2", tiny_adapter(folder / "models/dpo", model, seed=2))
    for seed, name in enumerate(("heads", "weights/prod", "weights/robustness")):
        tiny_heads(folder / name, model_geometry(model, 3), n_heads=3, seed=seed)


def _on_the_hub(folder: Path, name: str, revision: str, model: Path) -> None:
    cache = folder / "hub/hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, cache / "snapshots" / COMMIT)
    _text(cache / "refs" / revision, COMMIT)
