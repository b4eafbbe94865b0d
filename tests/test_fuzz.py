"""Whatever is read: 2,000 spoilt files over every reader (tests/fuzz.py), without a traceback, a hang or much memory."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from elo_exp.entrants.recorded import RecordedEntrant
from elo_exp.errors import UserError
from elo_exp.files import write_json, write_jsonl
from elo_exp.oracle import data as oracle
from elo_exp.paths import HOME
from elo_exp.store.answer_store import Store
from tests import fuzz
from tests.commands import attempt_program

N = 500  # files of a seed


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))]
)
def test_fuzz_every_reader_ends_in_what_it_has_read_or_in_one_line(
    tmp_path: Path, seed: int
) -> None:
    """In a process of its own, whose memory is what the readers take: at most 300 MB."""
    ran = attempt_program(
        *(sys.executable, "-m", "tests.fuzz", str(seed), str(N)),
        folder=tmp_path,
        PYTHONPATH=str(HOME),
    )
    said = re.search(r"500 files, 0 wrong, (\d+) MB\n$", ran.out)
    assert said, ran.out + ran.err
    assert int(said[1]) <= 300


def written(folder: Path, content: Any) -> Path:
    is_table = isinstance(content, list) and "estimator" not in content[0]
    write = write_jsonl if is_table else write_json
    return write(folder / f"responses.{'jsonl' if is_table else 'json'}", content)


@pytest.mark.parametrize("kind", fuzz.GOOD)
def test_a_good_file_is_read_by_its_readers(tmp_path: Path, kind: str) -> None:
    """Else no spoilt one would get far."""
    path = written(tmp_path, json.loads(json.dumps(fuzz.GOOD[kind])))
    with Store(tmp_path / "store.sqlite") as store:
        every = fuzz.readers(store)
        readers = every.get(kind) or every[""]
        failed = list[str]()
        for read in readers:
            try:
                read(path)
            except UserError as error:
                failed.append(str(error))
        assert not failed


@pytest.mark.parametrize("name", [{"model": "ann"}, ["ann"]])
def test_of_recorded_answers_a_name_that_is_none_is_refused(
    tmp_path: Path, name: Any
) -> None:
    row = {"entrant_id": name, "prompt_id": "p", "response_text": "So."}
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    with pytest.raises(UserError, match=r"a.jsonl:1: entrant_id must be a name; got "):
        RecordedEntrant(entrant_id="ann", path=str(path)).check()


@pytest.mark.parametrize("chars", [10**400, -(10**400), 1e400, "nine"])
def test_a_length_that_is_no_number_is_refused(tmp_path: Path, chars: Any) -> None:
    rows = [{**row, "response_chars": chars} for row in fuzz.GOOD["draws"]]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(
        UserError,
        match=r"a.jsonl:1: response_chars must be a number of 0 or more, or null; got ",
    ):
        oracle.read_dataset(
            fresh_dir=path, covariates=[oracle.LENGTH_COVARIATE], seed=1
        )
