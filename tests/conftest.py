"""Tests neither see what a shell has set, nor reach the network.

Ctrl-C reaches the programs they start, also where the shell has turned it off for tests in the background. None has
threads for linear algebra: each core has its worker of pytest, and they would wait for each other.
"""

import functools
import gc
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import settings

PRIVATE = re.compile(
    "(ANTHROPIC|COMP|ELO_EXP(?!_TEST_DATA)|HF|HUGGINGFACE|HYDRA|OPENAI|SLURM|TRACKIO|TRANSFORMERS"
    "|WANDB|XDG)_|MPL|PYTHON(?!PATH)|.*_proxy$",
    re.IGNORECASE,
)

for name in filter(PRIVATE.match, list(os.environ)):
    del os.environ[name]
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "110"}
# Which take half a minute and more, so that no worker begins one where the others have finished.
LONG_FILES = (
    *("test_faults", "test_sweeps", "test_trackers", "test_end_to_end", "test_command_line"),
    *("test_gate", "test_arena", "test_key", "test_first_day", "test_grid", "test_postgres"),
    *("test_docs_commands", "test_launchers", "test_docs", "test_notebooks"),
)  # fmt: skip

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
signal.signal(signal.SIGINT, signal.default_int_handler)


def refuse_network(connect: Callable[..., Any]) -> Callable[..., Any]:
    """Return a way to connect that refuses addresses that are not of this machine.

    An audit hook would be called for whatever Python does, a fortieth of the time of all tests.
    """

    @functools.wraps(connect)
    def connect_here(self: socket.socket, address: Any) -> Any:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise ConnectionRefusedError(f"{address}: tests reach no other machine")
        return connect(self, address)

    return connect_here


socket.socket.connect = refuse_network(socket.socket.connect)  # type: ignore[method-assign]
socket.socket.connect_ex = refuse_network(socket.socket.connect_ex)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than there are cores, which works while another waits for a disk, a server or a process."""
    return (yield) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests that are collected, nor later among them and what they import.

    There is none, and each look at so many objects takes half a second: a third of the time of all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


def excluded_marks(config: pytest.Config) -> set[str]:
    """Return the marks that `-m` leaves out, if that is all it says."""
    expression = config.option.markexpr
    if not re.fullmatch(r"not \w+( and not \w+)*", expression):
        return set()
    return set(re.findall(r"not (\w+)", expression))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no test of a case whose mark is left out: two thirds of all cases are of the matrix of faults."""
    excluded = excluded_marks(metafunc.config)
    markers = metafunc.definition.own_markers
    for number, marker in enumerate(markers):
        if marker.name != "parametrize" or len(marker.args) < 2:
            continue
        names, cases = marker.args[:2]
        cases = list(cases)
        kept = [
            case
            for case in cases
            if not excluded & {mark.name for mark in getattr(case, "marks", ())}
        ]
        if kept and len(kept) < len(cases):
            again = pytest.mark.parametrize(names, kept, **marker.kwargs)
            markers[number] = again.mark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files."""
    items.sort(key=lambda item: item.path.stem not in LONG_FILES)
