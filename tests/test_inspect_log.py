"""Logs of Inspect, as its versions write them: one reader for scores, answers and trajectories.

tests/logs/sums.eval was written by inspect_ai 0.3.285 and its mockllm: a zip file in Zstandard, as all of 2026.
"""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from backports.zstd import zipfile as zstd_zipfile

from elo_exp.data import answers, formats, inspect_log
from elo_exp.data.file_kinds import recognise_kinds
from elo_exp.data.formats import inspect_ai
from elo_exp.errors import UserError
from elo_exp.files import write_json
from tests.data import shared_data

SUMS = Path(__file__).parent / "logs" / "sums.eval"


def log(n: int = 3, **of_each: Any) -> dict[str, Any]:
    samples = [
        {
            "id": f"s{i}",
            "epoch": 1,
            "input": f"What is {i}?",
            "output": {"choices": [{"message": {"content": f"{i}."}}]},
            "scores": {"match": {"value": "C"}},
            **of_each,
        }
        for i in range(n)
    ]
    head = {"version": 2, "status": "success", "eval": {"task": "quiz", "model": "ann"}}
    return {**head, "samples": samples}


def zipped(path: Path, made: dict[str, Any], method: int) -> Path:
    """An .eval in this compression."""
    with zstd_zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps({**made, "samples": None}))
        for one in made["samples"]:
            name = f"samples/{one['id']}_epoch_{one['epoch']}.json"
            archive.writestr(name, json.dumps(one))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [dict(one.row) for one in inspect_log.read_log(path).samples()]


def test_a_log_in_zstandard_is_read_as_its_writer_sees_it():
    """Which today's Python cannot unpack by itself."""
    with (
        zipfile.ZipFile(SUMS) as archive,
        pytest.raises(NotImplementedError, match="compression method"),
    ):
        archive.read("header.json")
    found = inspect_log.read_log(SUMS)
    assert (found.task, found.model, found.status) == (
        "sums",
        "mockllm/model",
        "success",
    )
    samples = list(found.samples())
    numbers = [(one.row["id"], one.row["epoch"]) for one in samples]
    assert numbers == [(f"s{i}", epoch) for i in (1, 2, 3, 4) for epoch in (1, 2)]
    assert [one.scores["match"] for one in samples] == [1, 1, 1, 1, 1, 1, 0, 0]


def test_the_scores_and_the_answers_of_a_log_in_zstandard_are_recognised():
    assert recognise_kinds(SUMS) == ("scores", "answers")
    assert formats.recognise(SUMS).name == "inspect_ai"
    rows = list(inspect_ai.scores(SUMS, None))
    assert [row.value for row in rows] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert {(row.entrant, row.dimension) for row in rows} == {
        ("mockllm/model", "sums match")
    }
    form, found = answers.read_answers(SUMS)
    assert form.name == "inspect_ai log"
    assert [row.text for row in found][4:6] == ["It is 12.", "It is 12."]


@pytest.mark.parametrize("method", ["stored", "deflated", "zstandard", "json"])
def test_every_shape_of_a_log_says_the_same(tmp_path, method):
    numbers = {"stored": 0, "deflated": 8, "zstandard": 93}
    path = tmp_path / "a.log"
    if method == "json":
        write_json(path, log(12))
    else:
        zipped(path, log(12), numbers[method])
    assert read(path) == log(12)["samples"]
    rows = list(inspect_ai.scores(path, None))
    assert [(one.item, one.value) for one in rows] == [(f"s{i}", 1) for i in range(12)]
    assert [one.text for one in answers.read_answers(path)[1]] == [
        f"{i}." for i in range(12)
    ]


def test_of_a_sample_that_was_written_again_the_last_counts_once(tmp_path):
    """A zip file that is appended to keeps what was replaced."""
    path = zipped(tmp_path / "a.eval", log(scores={}), 8)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(match="Duplicate name"):
        archive.writestr("samples/s1_epoch_1.json", json.dumps(log()["samples"][1]))
    first, second, third = (one["scores"] for one in read(path))
    assert (first, second, third) == ({}, {"match": {"value": "C"}}, {})


def test_an_older_log_has_one_score_and_its_attachments_elsewhere(tmp_path):
    old = log(1, input="attachment://ab")
    (sample,) = old["samples"]
    sample["score"] = sample.pop("scores")["match"]
    sample["transcript"] = {"events": [], "content": {"ab": "Long?"}}
    path = write_json(tmp_path / "a.json", old)
    (score,) = inspect_ai.scores(path, None)
    assert (score.dimension, score.value) == ("quiz score", 1)
    assert answers.read_answers(path)[1][0].prompt == "Long?"


def test_a_sample_that_somebody_has_declared_invalid_says_nothing(tmp_path):
    made = log(2)
    made["samples"][1]["invalidation"] = {"author": "ann", "reason": "wrong question"}
    path = write_json(tmp_path / "a.json", made)
    assert [one.value for one in inspect_ai.scores(path, None)] == [1, None]
    assert [one.text for one in answers.read_answers(path)[1]] == ["0.", None]


def test_samples_are_unpacked_one_at_a_time(tmp_path):
    """Sixteen samples of four megabytes each take what one takes."""
    made = log(16, events=["x" * 4_000_000])
    path = zipped(tmp_path / "a.eval", made, 93)
    tracemalloc.start()
    assert sum(len(one.row) for one in inspect_log.read_log(path).samples()) == 16 * 6
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000


# What is not read


def refused(path: Path) -> str:
    with pytest.raises(UserError) as error:
        read(path)
    assert "\n" not in error.value.line
    return str(error.value)


def test_a_compression_that_nobody_here_can_unpack_is_said_with_what_to_do(tmp_path):
    path = zipped(tmp_path / "my log.eval", log(), 0)
    content = path.read_bytes()
    for head, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = content.index(head) + at
        content = content[:start] + b"\x62\x00" + content[start + 2 :]  # PPMd
    path.write_bytes(content)
    assert refused(path) == (
        f"{path} is a zip in a compression that this Python cannot read. Convert it:\n"
        f"  inspect log convert '{path}' --to json --output-dir DIR"
    )


def test_a_log_with_its_samples_in_pieces_is_said_with_what_to_do(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(log()))
        archive.writestr("samples/s1_epoch_1/sample.json", "{}")
        archive.writestr("samples/s1_epoch_1/messages/0.json", "[]")
    assert (
        "a.eval has its samples in pieces, which cannot be read. Convert it:"
        in refused(path)
    )


def test_a_part_that_unpacks_to_more_than_a_log_has_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.eval"
    with zstd_zipfile.ZipFile(path, "w", 93) as archive:
        archive.writestr("header.json", json.dumps(log()))
        with archive.open("samples/s1_epoch_1.json", "w") as part:
            for _ in range(300):
                part.write(b" " * 1_000_000)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    assert "s1_epoch_1.json, which unpacks to 300,000,000 bytes, more than" in refused(
        path
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("part", "content", "words"),
    [
        ("header.json", "{}", "cannot be read as a log of Inspect: it lacks eval"),
        ("header.json", "{",
         "header.json cannot be read as a log of Inspect: a key in double quotes is missing at character 2"),
        ("samples/1.json", "[]", "samples/1.json cannot be read as a log of Inspect: [] is not an object"),
        ("samples/1.json", '{"a": 1, "a": 2}', "the key 'a' stands twice in one object"),
    ],
)  # fmt: skip
def test_a_part_of_another_make_is_named(tmp_path, part, content, words):
    parts = {"header.json": json.dumps(log()), "samples/1.json": "{}", part: content}
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    assert words in refused(path)


def test_a_zip_of_something_else_and_half_a_zip_are_no_logs(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "text")
    assert refused(path) == f"{path} is not a log of Inspect: it lacks header.json."
    path.write_bytes(shared_data("formats/inspect_scored.eval").read_bytes()[:9000])
    assert "a.eval cannot be read as zip (File is not a zip file)." in refused(path)


@pytest.mark.filterwarnings("default")  # of its libraries
def test_a_log_that_inspect_writes_here_is_read(tmp_path):
    """Where inspect_ai is installed: whatever its version writes, by its mockllm and without a network."""
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def add() -> Any:
        async def execute(a: int, b: int) -> str:
            """Add.

            Args:
                a: One.
                b: Another.
            """
            return str(a + b)

        return execute

    outputs = []
    for _ in range(2):
        call = ModelOutput.for_tool_call("mockllm/model", "add", {"a": 1, "b": 2})
        for output in (call, ModelOutput.from_content("mockllm/model", "It is 3.")):
            output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
            outputs.append(output)
    task = inspect_ai.Task(
        dataset=[Sample(id="s1", input="1 + 2?", target="3")],
        solver=[use_tools(add()), generate()],
    )
    (log,) = inspect_ai.eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        epochs=2,
        max_samples=1,
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success"
    (path,) = tmp_path.glob("*.eval")
    first, second = answers.read_answers(path)[1]
    assert (first.draw_idx, second.draw_idx) == (0, 1)
    assert (first.prompt, first.text) == ("1 + 2?", "It is 3.")
    assert [one.role for one in first.messages] == ["assistant", "tool", "assistant"]
    assert (first.messages[1].content, first.recorded["diagnostics"]["tokens"]) == ("3", 20)  # fmt: skip
