"""Identify checkpoints without loading them."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.files import read_json, sha256
from elo_exp.paths import HOME
from tests.data import shipped
from tests.hub_server import Hub, serving

COMMIT = "a" * 40


@pytest.fixture
def model(tmp_path) -> Path:
    return folder(tmp_path / "model", "config.json")


@pytest.fixture
def lora(tmp_path) -> Path:
    return folder(tmp_path / "lora", "adapter_config.json")


def folder(path: Path, config: str, weights: bytes = b"weights") -> Path:
    path.mkdir()
    (path / config).write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def known(
    model: Path | str,
    *adapters: Path | str,
    cache: Path = Path("absent"),
    **settings: object,
) -> object:
    """What the weights of such a judge are."""
    names = {"model": str(model), "adapters": [*map(str, adapters)]}
    return shipped(
        "judge", "local", cache_dir=str(cache), **names, **settings
    ).weights_key


# Folders


def test_a_folder_is_identified_by_the_files_that_are_loaded_wherever_it_is(
    model, tmp_path
):
    for name in ("README.md", "optimizer.pt"):
        (model / name).write_text("not loaded")
    (model / "pytorch_model.bin").write_bytes(b"the format that is not preferred")
    loaded = ("config.json", "model.safetensors")
    before = known(model)
    assert before == {
        "model": {"files": {name: sha256(model / name) for name in loaded}},
        "adapters": [],
        "trust_remote_code": False,
    }
    assert known(shutil.move(model, tmp_path / "lora@step-100")) == before


def test_what_is_loaded_and_in_which_order_makes_the_model_and_the_device_does_not(
    model, lora, tmp_path
):
    other = folder(tmp_path / "lora@1", "adapter_config.json", b"others")
    keys = [known(model), known(model, trust_remote_code=True), known(model, lora)]
    keys += [known(model, lora, other), known(model, other, lora)]
    for name in ("config.json", "tokenizer.json", "merges.txt"):
        (model / name).write_text("another")
        keys.append(known(model))
    assert all(one != two for one, two in combinations(keys, 2))
    assert known(model, device="cpu") == known(model)


def test_the_hash_of_a_large_file_is_cached_until_its_time_changes(
    model, tmp_path, caplog
):
    weights = model / "model.safetensors"
    weights.write_bytes(b"1" * 2**21)
    with caplog.at_level(logging.INFO):
        first = known(model, cache=tmp_path)
    assert caplog.messages == [f"hashing 0.0 GB of {weights}, once"]
    time = weights.stat().st_mtime_ns
    weights.write_bytes(b"2" * 2**21)
    os.utime(weights, ns=(time, time))
    assert known(model, cache=tmp_path) == first
    os.utime(weights, ns=(time, time + 1))
    anew = known(model, cache=tmp_path / "elsewhere")
    assert known(model, cache=tmp_path) == anew != first
    (tmp_path / "file_hashes.json").write_text("{")
    assert known(model, cache=tmp_path) == anew  # an unreadable cache is written anew
    assert list(read_json(tmp_path / "file_hashes.json")) == [str(weights)]


@pytest.mark.parametrize("name", ["{}/absent", "./absent", "~/absent", "my/own/absent"])
def test_a_path_is_not_looked_for_on_the_hub(tmp_path, name):
    message = r"absent \(revision main\) is neither a folder here nor a name on the hub. Check"
    with pytest.raises(UserError, match=message):
        known(name.format(tmp_path))


def test_a_folder_without_a_model_is_refused(model, lora):
    for names, message in (
        ((lora,), "holds no config.json. Give .* LoRA adapter belongs into ada"),
        ((model, model), "holds no adapter_config.json. Give a folder that save_pre"),
    ):
        with pytest.raises(UserError, match=f"{names[-1]} {message}"):
            known(*names)
    with pytest.raises(
        UserError,
        match=r"is a folder, and a folder has no revision\. Leave out revision=",
    ):
        known(model, revision="v2")


# The hub, in another process: the client reads the hub's address and cache when it is imported


CLIENT = """
import json, sys
from elo_exp.judges.local import LocalJudge
from elo_exp.errors import UserError

given = {"adapters": [], "load_kwargs": {}, "cache_dir": "."}
settings = dict.fromkeys(LocalJudge.__dataclass_fields__) | given
for line in sys.stdin:
    judge = LocalJudge(**settings | json.loads(line))
    try:
        found = {"adapters": judge.weights.adapters, "identity": judge.weights_key}
    except UserError as error:
        found = {"refused": str(error)}
    print(json.dumps(found), flush=True)
assert not {"torch", "transformers"} & set(sys.modules)
"""
Ask = Callable[..., dict[str, Any]]


@contextmanager
def client(**environment: str) -> Iterator[Ask]:
    """Answer the settings of a judge with the commits of its adapters and what its weights are."""
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
def hub(tmp_path_factory) -> Iterator[Hub]:
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
def cache(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def online(hub, cache) -> Iterator[Ask]:
    with client(HF_ENDPOINT=hub.url, HF_HOME=cache) as ask:
        yield ask


def test_a_hub_name_is_identified_by_its_commit(hub, online, monkeypatch):
    identified = online(model="tiny/model", adapters=["tiny/lora@main"])
    assert identified == {
        "adapters": [["tiny/lora", COMMIT]],
        "identity": {
            "model": {"hub": "tiny/model", "commit": COMMIT},
            "adapters": [{"hub": "tiny/lora", "commit": COMMIT}],
            "trust_remote_code": None,
        },
    }
    monkeypatch.setattr(hub, "commit", "c" * 40)  # the branch moves on
    moved = online(model="tiny/model", adapters=["tiny/lora@main"])
    assert moved["identity"] != identified["identity"]


def test_the_hub_is_not_asked_about_a_commit_and_offline_the_cache_is(
    hub, online, cache
):
    before = online(model="tiny/model")
    hub.asked.clear()
    pinned = online(model="tiny/model", revision="b" * 40)["identity"]
    assert pinned["model"]["commit"] == "b" * 40
    with client(HF_ENDPOINT=hub.url, HF_HOME=cache, HF_HUB_OFFLINE="1") as offline:
        assert offline(model="tiny/model") == before
        refusal = offline(model="tiny/none")["refused"]
    assert "(revision main) is neither a folder here nor in the hub's cache" in refusal
    assert hub.asked == []


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (
            {"model": "tiny/none"},
            "tiny/none (revision main) is neither a folder here nor on the hub.",
        ),
        (
            {"model": "tiny/model", "revision": "v9"},
            "tiny/model (revision v9) does not exist on the hub.",
        ),
        (
            {"model": "tiny/lora"},
            "lacks a file on the hub: config.json of a model",
        ),
        (
            {"model": "tiny/model", "adapters": ["tiny/model"]},
            "tiny/model (revision main) lacks a file on the hub: config.json",
        ),
        ({"model": "tiny/gated"}, "is gated. Accept its terms on its page"),
        ({"model": "two words"}, "is neither a folder here nor a name on the hub."),
    ],
    ids=str,
)
def test_what_the_hub_does_not_have_is_one_line(online, checkpoint, message):
    line = online(**checkpoint)["refused"]
    assert message in line
    assert "\n" not in line
