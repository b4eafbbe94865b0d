"""Tests neither see what a shell has set, nor reach the network.

Ctrl-C reaches the programs they start, also where the shell has turned it off for tests in the background. None has
threads for linear algebra: each core has its worker of pytest, and they would wait for each other.
"""

import gc
import ipaddress
import os
import pickle
import re
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import settings
from omegaconf import DictConfig, ListConfig, OmegaConf

PRIVATE = re.compile(
    "(ANTHROPIC|COMP|ELO_EXP(?!_TEST_DATA)|HF|HUGGINGFACE|HYDRA|OPENAI|SLURM|TRACKIO|TRANSFORMERS"
    "|WANDB|XDG)_|MPL|PYTHON(?!PATH)|.*_proxy$",
    re.IGNORECASE,
)

for name in filter(PRIVATE.match, list(os.environ)):
    del os.environ[name]
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
signal.signal(signal.SIGINT, signal.default_int_handler)


def refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse addresses that are not of this machine: an audit hook."""
    if event != "socket.connect" or not isinstance(address := arguments[1], tuple):
        return
    if address[0] != "localhost" and not ipaddress.ip_address(address[0]).is_loopback:
        raise ConnectionRefusedError(f"{address}: tests reach no other machine")


sys.addaudithook(refuse_network)


_read, _known = OmegaConf.load, dict[str, bytes]()


def load(file_: str | Path | IO[str]) -> DictConfig | ListConfig:
    """OmegaConf.load, which parses a text once: Hydra reads twenty for a command, two fifths of its composition."""
    if isinstance(file_, str | Path):
        return _read(file_)
    text = file_.read()
    if text not in _known:
        file_.seek(0)
        _known[text] = pickle.dumps(_read(file_))
    return pickle.loads(_known[text])


OmegaConf.load = staticmethod(load)


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than there are cores, which works while another waits for a disk, a server or a process."""
    return (yield) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage among what tests make: none of ten thousand collected tests is any, nor what they import."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _keep_what_is_imported() -> Generator[None, None, None]:
    """Look no more for garbage among what tests of this file have imported, such as torch."""
    yield
    gc.collect()
    gc.freeze()
