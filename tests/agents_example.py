"""What docs/tutorials/agents.md is about: logs of two agents that were given the same forty files to look into.

Both may call a shell. The careful one looks before it answers, the quick one in half of the cases; three epochs each.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from backports.zstd import zipfile

from tests.anthropic_verdicts import Shown, draw

EPOCHS = (1, 2, 3)
FILES = tuple(f"{name}{n}.txt" for name in ("notes", "log", "data", "list") for n in range(1, 11))  # fmt: skip
_LOOKS = {"careful": 1.0, "quick": 0.5}
_ZSTANDARD = 93  # the method of a zip file that Inspect writes


def question(file: str) -> str:
    return f"How many lines has {file}?"


def n_lines(file: str) -> int:
    return int(3 + 60 * draw("lines", file))


def steps(agent: str, file: str, epoch: int) -> list[dict[str, Any]]:
    """What an agent does after the question."""
    key = (agent, file, epoch)
    if draw("looks", *key) > _LOOKS[agent]:
        about = 5 * round((n_lines(file) + 20 * draw("guess", *key) - 10) / 5)
        words = f"I think {file} has about {about} lines."
        return [{"role": "assistant", "content": words}]
    call = {"id": f"c{epoch}", "function": "bash", "arguments": {"cmd": f"wc -l {file}"}, "type": "function"}  # fmt: skip
    told = f"{n_lines(file)} {file}"
    found = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "function": "bash", "content": told},
    ]  # fmt: skip
    if agent == "careful" and draw("again", *key) < 0.6:
        listed = {**call, "id": f"d{epoch}", "arguments": {"cmd": f"ls -l {file}"}}
        told = f"-rw-r--r-- 1 ann ann {30 * n_lines(file)} {file}"
        found += [
            {"role": "assistant", "content": "Let me make sure.", "tool_calls": [listed]},
            {"role": "tool", "tool_call_id": listed["id"], "function": "bash", "content": told},
        ]  # fmt: skip
    words = f"{file} has {n_lines(file)} lines, by wc."
    return [*found, {"role": "assistant", "content": words}]


def sample(agent: str, file: str, epoch: int) -> dict[str, Any]:
    said = steps(agent, file, epoch)
    own = [one for one in said if one["role"] == "assistant"]
    is_right = f" {n_lines(file)} lines" in own[-1]["content"]
    model = f"lab/{agent}"
    n_tokens = 120 * len(own) + len(json.dumps(said)) // 4
    return {
        "id": file,
        "epoch": epoch,
        "input": question(file),
        "target": str(n_lines(file)),
        "messages": [
            {"role": "system", "content": f"You are {agent}. You have a shell."},
            {"role": "user", "content": question(file)},
            *said,
        ],
        "output": {"model": model, "choices": [{"message": own[-1], "stop_reason": "stop"}]},
        "scores": {"includes": {"value": "C" if is_right else "I"}},
        "model_usage": {model: {"total_tokens": n_tokens}},
        "working_time": round(1.5 * len(said) + draw("time", agent, file, epoch), 3),
        "attachments": {},
    }  # fmt: skip


def log(agent: str, n: int = len(FILES)) -> dict[str, Any]:
    """What an agent did with the first n files."""
    head = {"task": "lines", "model": f"lab/{agent}", "dataset": {"samples": n}}
    samples = [sample(agent, file, epoch) for file in FILES[:n] for epoch in EPOCHS]
    return {"version": 2, "status": "success", "eval": head, "samples": samples}


def write_log(path: Path, agent: str) -> Path:
    """The log of an agent, as Inspect of 2026 writes it."""
    whole = log(agent)
    with zipfile.ZipFile(path, "w", _ZSTANDARD) as archive:
        for one in whole["samples"]:
            name = f"samples/{one['id']}_epoch_{one['epoch']}.json"
            archive.writestr(name, json.dumps(one))
        archive.writestr("header.json", json.dumps({**whole, "samples": None}))
    return path


def write_files(folder: Path) -> None:
    for agent in _LOOKS:
        write_log(folder / f"{agent}.eval", agent)


def judge(shown: Shown) -> str:
    """The answer that has looked and says what is there; of two alike either, whichever is shown first.

    Now and then the first.
    """
    if draw("slip", shown.user) < 0.05:
        return "A"
    asked = re.search(r"lines has (\S+)\?", shown.question)
    assert asked is not None
    texts = shown.response_a, shown.response_b
    right = f"{n_lines(asked[1])} lines, by wc"
    is_right = ["<call>" in text and right in text for text in texts]
    if is_right[0] != is_right[1]:
        return "A" if is_right[0] else "B"
    if texts[0] == texts[1]:
        return "TIE"
    taste = draw("taste", shown.question, *sorted(texts)) < 0.5
    return "A" if taste == (texts[0] < texts[1]) else "B"
