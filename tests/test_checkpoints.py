"""What a checkpoint is, without loading it: the same weights are known again wherever they stand, others are not."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elo_exp import HOME
from elo_exp.files import sha256
from elo_exp.models import checkpoints
from elo_exp.models.causal_lm import Checkpoint
from elo_exp.records import UserError
from tests.hub_server import Hub, serving

COMMIT = "a" * 40


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return folder(tmp_path / "model", "config.json")


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    return folder(tmp_path / "lora", "adapter_config.json")


def folder(path: Path, config: str, weights: bytes = b"weights") -> Path:
    path.mkdir()
    (path / config).write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def known(
    model: Path | str, *adapters: Path | str, cache: Path = Path("absent"), **settings: object
) -> object:
    """The identity of what is pinned."""
    wanted = Checkpoint(model=str(model), adapters=tuple(map(str, adapters)), **settings)  # type: ignore[arg-type]
    return checkpoints.identity(checkpoints.pinned(wanted), cache)


def test_a_template_may_stand_in_a_file(tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages }}", encoding="utf-8")
    assert checkpoints.read_template(str(file)) == "{{ messages }}"
    assert checkpoints.template_paths(str(file)) == {"template": file}
    with pytest.raises(UserError, match="absent.jinja: cannot be read"):
        checkpoints.read_template("absent.jinja")


@pytest.mark.parametrize("text", [None, "none", "{{ messages }}"])
def test_another_template_is_no_file(text):
    assert checkpoints.read_template(text) == text
    assert checkpoints.template_paths(text) == {}


# Folders


def test_a_folder_is_known_by_the_hash_of_each_file_that_loading_reads(model):
    (model / "README.md").write_text("Made on Tuesday.")
    (model / "optimizer.pt").write_bytes(b"not needed to answer")
    (model / "pytorch_model.bin").write_bytes(b"the same weights, in the format that is not taken")
    assert known(model) == {
        "model": {
            "files": {name: sha256(model / name) for name in ("config.json", "model.safetensors")}
        },
        "adapters": [],
        "trust_remote_code": False,
    }


def test_a_folder_that_was_moved_is_the_same(model, tmp_path):
    before = known(model)
    assert known(shutil.move(model, tmp_path / "elsewhere")) == before


@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "merges.txt"],
)
def test_a_changed_or_a_new_file_makes_another_model(model, name):
    before = known(model)
    (model / name).write_text("another")
    assert known(model) != before


def test_the_order_of_adapters_counts(model, lora, tmp_path):
    other = folder(tmp_path / "other", "adapter_config.json", b"others")
    assert known(model, lora, other) != known(model, other, lora)
    assert known(model, lora) != known(model)


def test_remote_code_counts_and_device_does_not(model):
    assert known(model, trust_remote_code=True) != known(model)
    assert known(model, device="cpu") == known(model)


def test_the_hash_of_a_large_file_is_remembered_until_the_file_changes(model, tmp_path, caplog):
    """Remembered: a file put in its place with the same size and time would not be seen. Changed: read again."""
    weights = model / "model.safetensors"
    weights.write_bytes(b"1" * 2**21)
    with caplog.at_level(logging.INFO):
        first = known(model, cache=tmp_path)
    assert [r.message for r in caplog.records] == [
        f"reading 0.0 GB of {model} once, to know the weights again"
    ]
    times = weights.stat().st_atime_ns, weights.stat().st_mtime_ns
    weights.write_bytes(b"2" * 2**21)
    os.utime(weights, ns=times)
    assert known(model, cache=tmp_path) == first
    os.utime(weights, ns=(times[0], times[1] + 1))
    assert known(model, cache=tmp_path) == known(model, cache=tmp_path / "elsewhere") != first


def test_a_spoilt_memory_is_written_anew(model, tmp_path):
    (model / "model.safetensors").write_bytes(b"1" * 2**21)
    (tmp_path / "file_hashes.json").write_text("{")
    assert known(model, cache=tmp_path)["model"]["files"]["model.safetensors"] == sha256(
        model / "model.safetensors"
    )
    assert list(json.loads((tmp_path / "file_hashes.json").read_text())) == [
        str(model / "model.safetensors")
    ]


def refused(model: Path | str, *adapters: Path | str, **settings: str) -> str:
    with pytest.raises(UserError) as error:
        known(model, *adapters, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path):
    assert refused(tmp_path / "absent") == f"{tmp_path}/absent: no such folder. Check the path."
    for name in ("./absent", "~/absent", "my/own/absent"):
        assert refused(name) == f"{name}: no such folder. Check the path."


def test_a_folder_of_something_else_is_refused(model, lora, tmp_path):
    expected = "Expected a folder as save_pretrained writes it."
    hint = "It holds a LoRA adapter: set model to what it was trained on, and adapters=[...] to this folder."
    assert refused(tmp_path) == f"{tmp_path}: holds no config.json. {expected}"
    assert refused(lora) == f"{lora}: holds no config.json. {expected} {hint}"
    assert refused(model, model) == f"{model}: holds no adapter_config.json. {expected}"


def test_a_folder_has_no_revision(model):
    assert (
        refused(model, revision="v2")
        == f"{model}: is a folder, which has no revision (found 'v2'). Leave it out."
    )


def test_a_folder_may_be_called_anything(lora, model, tmp_path):
    odd = Path(shutil.copytree(lora, tmp_path / "lora@step-100"))
    assert known(model, odd) == known(model, lora)


# The hub: another process, since the client takes the hub's address and its cache from the environment as it starts


CLIENT = """
import json, sys
from pathlib import Path
from elo_exp.models import checkpoints
from elo_exp.models.causal_lm import Checkpoint
from elo_exp.records import UserError

for line in sys.stdin:
    wanted = json.loads(line)
    try:
        pinned = checkpoints.pinned(Checkpoint(**wanted | {"adapters": tuple(wanted.get("adapters", ()))}))
        said = {"model": pinned.model, "revision": pinned.revision, "adapters": pinned.adapters}
        said["identity"] = checkpoints.identity(pinned, Path("absent"))
    except UserError as error:
        said = {"refused": str(error)}
    print(json.dumps(said), flush=True)
assert not {"torch", "transformers"} & set(sys.modules)
"""
Ask = Callable[..., dict[str, Any]]


@contextmanager
def client(**environment: str) -> Iterator[Ask]:
    """What is asked with the fields of a Checkpoint is answered with its pinned names and its identity."""
    program = [sys.executable, "-W", "error", "-c", CLIENT]
    variables = {**os.environ, "PYTHONPATH": str(HOME), **environment}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(program, env=variables, text=True, **pipes) as process:  # type: ignore[call-overload]

        def ask(**checkpoint: Any) -> dict[str, Any]:
            process.stdin.write(json.dumps(checkpoint) + "\n")
            process.stdin.flush()
            return dict(json.loads(process.stdout.readline()))

        yield ask
        process.stdin.close()
        assert process.wait() == 0


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """tiny/model, tiny/lora and tiny/gated."""
    place = tmp_path_factory.mktemp("hub")
    model, lora = (
        folder(place / "model", "config.json"),
        folder(place / "lora", "adapter_config.json"),
    )
    with serving(model=model, lora=lora, gated=model) as served:
        served.gated.add("tiny/gated")
        yield served


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def online(hub: Hub, cache: str) -> Iterator[Ask]:
    with client(HF_ENDPOINT=hub.url, HF_HOME=cache) as ask:
        yield ask


def test_a_name_is_known_by_the_commit_that_it_stands_for_and_loaded_at_it(online):
    assert online(model="tiny/model", adapters=["tiny/lora@main"]) == {
        "model": "tiny/model",
        "revision": COMMIT,
        "adapters": [f"tiny/lora@{COMMIT}"],
        "identity": {
            "model": {"hub": "tiny/model", "commit": COMMIT},
            "adapters": [{"hub": "tiny/lora", "commit": COMMIT}],
            "trust_remote_code": False,
        },
    }


def test_a_commit_is_not_asked_about(hub, online):
    hub.asked.clear()
    assert online(model="tiny/model", revision="b" * 40)["identity"]["model"]["commit"] == "b" * 40
    assert hub.asked == []


def test_offline_the_commit_is_that_of_the_cache(hub, online, cache):
    before = online(model="tiny/model")
    hub.asked.clear()
    with client(HF_ENDPOINT=hub.url, HF_HOME=cache, HF_HUB_OFFLINE="1") as offline:
        assert offline(model="tiny/model") == before
        assert offline(model="tiny/none")["refused"] == (
            "tiny/none (revision main): is no folder here, the hub cannot be reached or is not to be asked "
            "(HF_HUB_OFFLINE), and its cache does not hold it. Download it on a machine with network, and set its "
            "folder in place of the name."
        )
    assert hub.asked == []


def test_a_branch_that_has_moved_on_is_another_model(hub, online, monkeypatch):
    before = online(model="tiny/model")
    monkeypatch.setattr(hub, "commit", "c" * 40)
    assert online(model="tiny/model")["identity"] != before["identity"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"model": "tiny/none"},
            "tiny/none (revision main): is no folder here, and not on the hub. Check the name; for a private one log "
            "in: hf auth login.",
        ),
        (
            {"model": "tiny/model", "revision": "v9"},
            "tiny/model (revision v9): the hub has no such revision. Expected a branch, tag or commit of it.",
        ),
        (
            {"model": "tiny/lora"},
            "tiny/lora (revision main): has no config.json on the hub. Is it an adapter?",
        ),
        (
            {"model": "tiny/model", "adapters": ["tiny/model"]},
            "tiny/model (revision main): has no adapter_config.json on the hub.",
        ),
        (
            {"model": "tiny/gated"},
            "tiny/gated (revision main): is gated. Accept its terms on its page of the hub, and log in: hf auth login.",
        ),
        (
            {"model": "two words"},
            "two words (revision main): cannot be found on the hub (Repo id must",
        ),
    ],
    ids=["name", "revision", "adapter as model", "model as adapter", "gated", "no name"],
)
def test_what_the_hub_does_not_have_is_a_line(online, asked: dict[str, Any], words: str):
    line = online(**asked)["refused"]
    assert line.startswith(words)
    assert "\n" not in line
