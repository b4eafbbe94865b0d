"""No file takes more than a bounded share of the machine: what unpacks without end stops, in one line.

A bomb here is a small file that unpacks to 3 GB: compressed blocks of a megabyte, one behind the other.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from backports import zstd
from backports.zstd.zipfile import ZIP_ZSTANDARD, ZipFile

from elo_exp import files
from elo_exp.data import inspect_log, table_files
from elo_exp.data.file_kinds import recognise_kinds
from elo_exp.errors import UserError
from tests.commands import environment

MEGABYTE = 2**20
ROW = b'{"model_a": "ann", "model_b": "bob", "winner": "tie"}\n'
HEAD = b"model_a,model_b,winner\n"
BOMBS = {  # how each begins, and what comes for ever after
    "blank lines.jsonl": (ROW, b"\n"),
    "spaces.jsonl": (ROW, b" "),
    "a line.jsonl": (ROW[:-2] + b', "x": "', b"0"),
    "rows.jsonl": (b"", ROW),
    "objects.jsonl": (ROW, b"{}\n"),
    "an array.json": (b"[", ROW[:-1] + b","),
    "an array of nothing.json": (b"[", b"{},"),
    "a deep array.json": (b"[", b"["),
    "an object.json": (b'{"samples": ["', b"x"),
    "a cell.csv": (HEAD + b"ann,bob,", b"x"),
    "lines in quotes.csv": (HEAD + b'ann,bob,"', b"x\n"),
    "rows.csv": (HEAD, b"ann,bob,tie\n"),
    "empty rows.csv": (HEAD, b"\n"),
    "a header.csv": (b"model_a,", b"x,"),
}
PACKED = {"gz": gzip.compress, "zst": zstd.compress}


def bomb(folder: Path, name: str, how: str) -> Path:
    head, block = BOMBS[name]
    packed = PACKED[how]
    many = packed(block * (MEGABYTE // len(block))) * 3000
    path = folder / f"{name}.{how}"
    path.write_bytes(packed(head) + many)
    return path


def log_bomb(folder: Path) -> Path:
    path = folder / "log.eval"
    with ZipFile(path, "w", ZIP_ZSTANDARD) as archive:
        archive.writestr(
            "header.json", json.dumps({"eval": {"model": "m", "task": "t"}})
        )
        with archive.open("samples/1.json", "w", force_zip64=True) as part:
            for _ in range(3000):
                part.write(b" " * MEGABYTE)
    return path


# A small process between: what a process has held counts for the one that it forks, until that is another program
MEASURED = """
import json, os, subprocess, sys
pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
running = subprocess.Popen(sys.argv[1:], text=True, **pipes)
said = running.stdout.read()
_, status, used = os.wait4(running.pid, 0)
code = running.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([said, code, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def refused(path: Path, folder: Path, *settings: str) -> str:
    """What `rate` of a file says, which ends within 20 seconds of processor time and 500 MB."""
    given = ("experiment=rate", f"battles=['{path}']", "tracker=local", *settings)
    ran = subprocess.run(
        [sys.executable, "-c", MEASURED, sys.executable, "-m", "elo_exp", *given],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    said, code, seconds, most = json.loads(ran.stdout)
    kilobytes = most / (1024 if sys.platform == "darwin" else 1)
    assert code == 2, said
    assert said.count("\n") == 1, said
    assert seconds < 20
    assert kilobytes < 500_000
    return str(said)


@pytest.mark.system
def test_a_bomb_of_three_gigabytes_ends_in_one_line(tmp_path: Path) -> None:
    said = refused(bomb(tmp_path, "an array of nothing.json", "zst"), tmp_path)
    assert "unpacks to more than 256,000,000 bytes, 200 times its size or more" in said
    assert said.endswith("If you expect that, unpack it first.\n")


@pytest.mark.slow
@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("name", BOMBS)
def test_every_bomb_ends_in_one_line(tmp_path: Path, name: str, how: str) -> None:
    refused(bomb(tmp_path, name, how), tmp_path)


@pytest.mark.slow
def test_a_log_that_is_a_bomb_ends_in_one_line(tmp_path: Path) -> None:
    assert "samples/1.json unpacks to 3,145,728,000" in refused(
        log_bomb(tmp_path), tmp_path
    )


def test_all_parts_of_a_log_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a packed file has; tests/test_inspect_log.py has that of each part."""
    monkeypatch.setattr(files, "_UNPACKED_ALLOWANCE_BYTES", 20)
    path = tmp_path / "log.eval"
    with ZipFile(path, "w", ZIP_ZSTANDARD) as archive:
        archive.writestr("header.json", '{"eval": {"model": "m", "task": "t"}}')
        for n in range(20):
            archive.writestr(f"samples/{n}.json", '{"x": "' + 100_000 * "x" + '"}')
    with pytest.raises(UserError, match=r"log.eval unpacks to more than"):
        list(inspect_log.read_log(path).samples())


def test_a_document_that_is_read_whole_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed or not, in bytes as they are unpacked."""
    monkeypatch.setattr(files, "_MAX_WHOLE_FILE_BYTES", 10)
    text = json.dumps(["x" * 30])
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.json", "b.json.gz"):
        with pytest.raises(
            UserError, match=r"has 34 bytes, more than the 10 that are read at once"
        ):
            table_files.read_rows(tmp_path / name)


def test_a_packed_table_of_many_like_rows_is_no_bomb(tmp_path: Path) -> None:
    """It unpacks to a thousand times its size, and yet to little."""
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd.compress(ROW * 100_000))
    assert 1000 * path.stat().st_size < len(ROW) * 100_000
    assert sum(1 for _ in table_files.read_rows(path)) == 100_000


def test_what_a_bomb_is_is_asked_without_an_error(tmp_path: Path) -> None:
    assert recognise_kinds(bomb(tmp_path, "spaces.jsonl", "zst")) == ("battles",)
    assert recognise_kinds(bomb(tmp_path, "an object.json", "zst")) == ()
