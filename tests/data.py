"""What the tests take from the world: the parts and prompts that ship, real data beside the checkout, a full disk."""

from __future__ import annotations

import copy
import csv
import functools
import gzip
import io
import json
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from omegaconf import OmegaConf

from elo_exp import pipeline
from elo_exp.data.battles import Battles
from elo_exp.files import write_whole
from elo_exp.launching import composing
from elo_exp.paths import CONF, HOME
from elo_exp.records import Battle, Comparison, Judgment, Prompt, Response, Slot
from elo_exp.store.answer_store import Store

BANK = HOME / "prompts" / "bank.jsonl"
DIMENSIONS = ("factuality", "calibration", "clinical_utility")
PROBES = ("probe_reference", "probe_hedged", "probe_partial", "probe_swapped")

COMPARISON = Comparison(
    prompt_id="p1",
    dimension="factuality",
    source="medqa",
    prompt_text="Why?",
    entrant_a="ann",
    entrant_b="bob",
    response_a="Yes.",
    response_b="No.",
)


def prompt(number: int = 1, text: str = "Why?", **others: Any) -> Prompt:
    about = {"prompt_id": f"p{number}", "source": "medqa", "subject": "er"}
    return Prompt(**{**about, "text": text, **others})


BLEEDING = prompt(
    text="What stops bleeding?",
    gold_answer="Firm pressure.",
    expected_behavior="answer",
)


def responses(**texts: Sequence[str]) -> dict[str, dict[Slot, Response]]:
    """What each entrant says to p1, p2, ..."""
    return {
        name: {
            (f"p{i}", 0): Response(
                entrant_id=name, prompt_id=f"p{i}", response_text=text
            )
            for i, text in enumerate(some, start=1)
        }
        for name, some in texts.items()
    }


def judged(
    judge: Any, folder: Path, *comparisons: Comparison, **how: Any
) -> list[Judgment]:
    """The judgments of comparisons on one dimension, from an empty store in the folder."""
    dimension = comparisons[0].dimension
    with Store(folder / f"{len(list(folder.iterdir()))}.sqlite") as store:
        return pipeline.judge_pairs(
            {dimension: comparisons},
            [shipped("rubric", dimension)],
            judge,
            store,
            pipeline.JudgingSettings(**how),
        )[dimension]


def letters(judgment: Judgment) -> str:
    """The verdicts on the two orders."""
    return " ".join(verdict.verdict for verdict in judgment.raw)


def battle(a: str, b: str, winner: str = "model_a", **others: Any) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, **others)


def by_dimension(rows: Mapping[str, Sequence[Battle]]) -> dict[str, Battles]:
    """Rows by dimension as columns that share their questions."""
    every = [
        replace(b, dimension=dimension)
        for dimension, some in rows.items()
        for b in some
    ]
    return Battles.from_rows(every).split_by_dimension(rows)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows in the form that the name asks for: .jsonl, .csv or .parquet, each also .gz or .zst."""
    content = io.BytesIO()
    if ".parquet" in path.suffixes:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
    elif ".csv" in path.suffixes:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        content.write(text.getvalue().encode())
    else:
        content.writelines(f"{json.dumps(row)}\n".encode() for row in rows)
    data = content.getvalue()
    packed = {".gz": gzip.compress, ".zst": zstd.compress}.get(path.suffix)
    return write_whole(path, packed(data) if packed else data)


def shipped(group: str, name: str, **changes: Any) -> Any:
    """The part that conf/<group>/<name>.yaml describes, built as it ships but for `changes`."""
    return composing.build({**copy.deepcopy(shipped_settings(group, name)), **changes})


@functools.cache
def shipped_settings(group: str, name: str) -> dict[str, Any]:
    """Return what that file describes as plain data."""
    root = {
        "cache_dir": "outputs/cache",
        "wait_minutes": 10,
        "prompts": {"bank_path": str(BANK)},
        "judging": {"budget_usd": 100.0},
        "mode": {"prompt_cache": "measured"},
        "part": described(group, name),
    }
    settings = OmegaConf.to_container(OmegaConf.create(root).part, resolve=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def described(group: str, name: str) -> Any:
    """What conf/<group>/<name>.yaml says, over what the files say that it starts from."""
    part = OmegaConf.load(CONF / group / f"{name}.yaml")
    bases = [
        described(group, base.partition("@")[0])
        for base in part.pop("defaults", [])
        if base != "_self_"
    ]
    return OmegaConf.merge(*bases, part)


def shared_data(name: str) -> Path:
    """A file of the folder $ELO_EXP_TEST_DATA, by default ../shared/data beside the checkout.

    Where it is absent the calling test is skipped; it fails instead where the environment variable CI is set.
    """
    folder = Path(
        os.environ.get("ELO_EXP_TEST_DATA") or HOME.parent / "shared" / "data"
    )
    path = folder / name
    if not path.exists():
        reason = f"{path} is absent. Point ELO_EXP_TEST_DATA at the folder that holds {name}."
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return path


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
