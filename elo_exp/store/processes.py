"""Which process is which, and whether it is still alive: claims and the jobs of a sweep depend on
it."""

import json
import os
import socket
from pathlib import Path

from elo_exp.errors import RESUME_HINT, UserError

_SWEEP_PROCESS_VARIABLE = (
    "ELO_EXP_SWEEP"  # holds the process that started this job's sweep
)
# Of a process whose start cannot be seen from here
_HIDDEN_START = "hidden"

Process = tuple[str, str, int, str]  # host, boot, process id, start


def identify_this_process() -> Process:
    return socket.gethostname(), _read_boot_id(), os.getpid(), _read_start(os.getpid())


def find_slurm_job() -> tuple[str, int] | None:
    """The job of Slurm that this process is of, and how often it has begun anew; None outside of one.

    A task of an array has a job id of its own, and keeps it when it is requeued, on whichever node.
    """
    if not (job := os.environ.get("SLURM_JOB_ID")):
        return None
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    cluster = os.environ.get("SLURM_CLUSTER_NAME", "")
    return f"{cluster}/{job}", int(restarts) if restarts.isdecimal() else 0


def is_alive(host: str, boot: str, pid: int, start: str) -> bool | None:
    """Whether a process is alive; None where it cannot be seen from here."""
    if not boot or (host, boot) != (socket.gethostname(), _read_boot_id()):
        return None
    current_start = _read_start(pid)
    return None if current_start == _HIDDEN_START else current_start == start


def set_lifeline() -> None:
    """Make this process the one whose death stops the spending of all that it starts from now
    on."""
    os.environ[_SWEEP_PROCESS_VARIABLE] = json.dumps(identify_this_process())


def is_job_of_sweep() -> bool:
    """Whether another process has started this one for a job of its sweep."""
    sweep = os.environ.get(_SWEEP_PROCESS_VARIABLE)
    return sweep is not None and tuple(json.loads(sweep)) != identify_this_process()


def check_lifeline() -> None:
    """Raise UserError in a job whose sweep has died: an orphan pays for nothing more."""
    sweep = os.environ.get(_SWEEP_PROCESS_VARIABLE)
    if sweep and is_alive(*json.loads(sweep)) is False:
        raise UserError(
            f"The sweep that started this job has ended, so nothing more is submitted. {RESUME_HINT}"
        )


def _read_boot_id() -> str:
    """One boot of this machine and one container's view of its processes; empty where the system
    does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot.strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _read_start(pid: int) -> str:
    """When a process began, as process ids are reused; empty if it is gone, _HIDDEN_START if it is hidden
    from us."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _HIDDEN_START if _exists(pid) else ""
    fields = stat.rpartition(")")[2].split()  # its name may hold anything
    return "" if fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
