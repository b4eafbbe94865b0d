"""Tests neither see what a shell has set, nor reach the network.

Ctrl-C reaches the programs they start, also where the shell has turned it off for tests in the background. None has
threads for linear algebra: each core has its worker of pytest, and they would wait for each other.
"""

import ipaddress
import os
import signal
import sys

PRIVATE = (
    "ANTHROPIC_",
    "COMP_",
    "HF_",
    "HUGGINGFACE_",
    "HYDRA_",
    "MPL",
    "OPENAI_",
    "PYTHON",
    "SLURM_",
)
PRIVATE += ("TRACKIO_", "TRANSFORMERS_", "WANDB_", "XDG_", "ELO_EXP_")
KEPT = ("ELO_EXP_TEST_DATA", "PYTHONPATH")

for name in list(os.environ):
    is_proxy = name.lower().endswith("_proxy")
    if name not in KEPT and (is_proxy or name.startswith(PRIVATE)):
        del os.environ[name]
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
signal.signal(signal.SIGINT, signal.default_int_handler)


def refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse addresses that are not of this machine: an audit hook."""
    if event != "socket.connect" or not isinstance(address := arguments[1], tuple):
        return
    if address[0] != "localhost" and not ipaddress.ip_address(address[0]).is_loopback:
        raise ConnectionRefusedError(f"{address}: tests reach no other machine")


sys.addaudithook(refuse_network)
