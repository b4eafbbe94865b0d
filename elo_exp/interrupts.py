"""A run is asked to end early: by Ctrl-C, SIGTERM or SIGHUP, by the `stop` event of a program that calls the library, or
with the sweep that it is a job of.

The first signal lets the run finish and store the work under way, which may have been paid for; the second ends it at
once. A signal that the process ignores when it starts, as under nohup, stays ignored.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)  # Windows has no SIGHUP
]
# By which a launcher asks a job to begin anew elsewhere
_LAUNCHER_SIGNALS = [
    getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)
]
# Holds the path of a file: when it exists, the jobs of a sweep end
_STOP_FILE_VARIABLE = "ELO_EXP_STOP_FILE"
_CHECK_INTERVAL_SECONDS = 0.2
_SHOW_CURSOR = "\x1b[?25h"

_caller_stop: ContextVar[threading.Event | None] = ContextVar(
    "_caller_stop", default=None
)


class InterruptError(KeyboardInterrupt):
    """A run was asked to end, and what was under way is stored.

    number  of the signal; None: it was asked by its caller or its sweep
    """

    def __init__(self, number: int | None) -> None:
        super().__init__(signal.Signals(number).name if number else "stopped")
        self.number = number


class _Process:
    """The signals of this process, which its main thread handles.

    number      the first that came
    is_command  the process is the command's: a second signal ends it
    n_callers   commands and calls of the library, of which the outermost forgets the signal
    stop_file   made when a sweep is asked to end
    redeliver   a launcher's handler, called when the work under way is stored
    terminal    the standard streams that are a terminal, which may hang up
    """

    number: int | None = None
    is_command = False
    n_callers = 0
    stop_file: Path | None = None
    has_given_up = False
    redeliver: Callable[[], Any] | None = None
    handlers: dict[int, Any] = {}  # noqa: RUF012, one for the process
    terminal: tuple[int, ...] = ()


class _Thread(threading.local):
    """How many sections of `finishing` a thread is in."""

    depth = 0


_thread = _Thread()
# When it was looked for, and whether it was there
_last_stop_file_check = (-1.0, False)


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the code with which a command ends that was asked to."""
    return 128 + (getattr(error, "number", None) or signal.SIGINT)


def is_requested() -> bool:
    """Whether the run of this thread is asked to end."""
    if _is_main() and _Process.number is not None:
        return True
    stop = _caller_stop.get()
    return (stop is not None and stop.is_set()) or _is_sweep_ending()


def check_interrupt() -> None:
    """Raise InterruptError if the run of this thread is asked to end."""
    if is_requested():
        raise InterruptError(_Process.number if _is_main() else None)


def check_unless_finishing() -> None:
    """The same, unless work that has to be finished is under way: then whoever does it looks."""
    if not _thread.depth:
        check_interrupt()


def pause(seconds: float) -> None:
    """Sleep, but no longer than until the run is asked to end."""
    end = time.monotonic() + seconds
    while (seconds_left := end - time.monotonic()) > 0 and not is_requested():
        time.sleep(min(seconds_left, _CHECK_INTERVAL_SECONDS))


def has_given_up() -> bool:
    """Whether even the work under way is not to be waited for."""
    return _is_main() and _Process.has_given_up


@contextmanager
def handle_signals(*, is_job: bool = False) -> Iterator[None]:
    """Handle the signals of a command, from its start to its end.

    is_job  of a sweep, in a worker of a launcher: a signal ends the jobs that would come after it, too
    """
    if not _is_main() or _Process.is_command:
        yield
        return
    _Process.is_command = True
    _Process.n_callers += 1
    _Process.terminal = tuple(fd for fd in (1, 2) if _is_terminal(fd))
    _install_handlers(is_command=True)
    try:
        yield
    finally:
        _restore_handlers()
        _Process.is_command = False
        _Process.n_callers -= 1
        if not is_job:
            _forget_signal()


@contextmanager
def run_call(stop: threading.Event | None) -> Iterator[None]:
    """Run a call of the library, which its program ends by setting `stop`.

    SIGTERM and SIGHUP that came meanwhile then do to the program what they would have done without us.
    """
    token = _caller_stop.set(stop or _caller_stop.get())
    is_main = _is_main()
    _Process.n_callers += is_main
    try:
        yield
    finally:
        _caller_stop.reset(token)
        if is_main:
            _Process.n_callers -= 1
            number = _Process.number or 0
            if not _Process.n_callers:
                _forget_signal()
                if number in _SIGNALS and number != signal.SIGINT:
                    signal.raise_signal(number)


@contextmanager
def finish_first() -> Iterator[None]:
    """Within, a request to end raises nothing: whoever is within looks for it by `is_requested`, finishes and stores the
    work under way, and calls `check`."""
    is_main = _is_main()
    _thread.depth += 1
    is_outermost = is_main and _thread.depth == 1
    if is_outermost:
        _install_handlers(is_command=False)
    try:
        yield
    finally:
        _thread.depth -= 1
        if is_outermost:
            if not _Process.is_command:
                _restore_handlers()
            redeliver, _Process.redeliver = _Process.redeliver, None
            if not _Process.n_callers:
                _forget_signal()
            if redeliver is not None:
                redeliver()


@contextmanager
def wait_for_jobs(stop_file: Path) -> Iterator[None]:
    """Wait for the jobs of a sweep in other processes of this machine: the first signal has them finish, store the work
    under way and end; the second is raised.

    stop_file  tells them; they know it by the environment
    """
    stop_file.unlink(missing_ok=True)
    earlier_value = os.environ.get(_STOP_FILE_VARIABLE)
    os.environ[_STOP_FILE_VARIABLE] = str(stop_file.absolute())
    _Process.stop_file = stop_file.absolute()
    _thread.depth += 1
    try:
        yield
    finally:
        _thread.depth -= 1
        _Process.stop_file = None
        if earlier_value is None:
            del os.environ[_STOP_FILE_VARIABLE]
        else:
            os.environ[_STOP_FILE_VARIABLE] = earlier_value
        stop_file.unlink(missing_ok=True)


# ---- signals


def _install_handlers(*, is_command: bool) -> None:
    """Handle those signals that the process does not ignore and nobody else handles; a command handles all that it does
    not ignore."""
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        is_ours = number in _Process.handlers
        is_free = handler in (signal.SIG_DFL, signal.default_int_handler)
        if is_ours or handler in (None, signal.SIG_IGN):
            continue
        if is_command or is_free or number == signal.SIGINT:
            _Process.handlers[number] = handler
            signal.signal(number, _receive)
    for number in _LAUNCHER_SIGNALS:
        handler = signal.getsignal(number)
        if number not in _Process.handlers and _is_launcher_handler(handler):
            _Process.handlers[number] = handler
            signal.signal(number, _receive_from_launcher)


def _restore_handlers() -> None:
    while _Process.handlers:
        signal.signal(*_Process.handlers.popitem())


def _forget_signal() -> None:
    _Process.number, _Process.has_given_up = None, False


def _receive(number: int, _: object) -> None:
    """Note a signal; raise InterruptError if there is nothing to be finished, or if it is the second."""
    is_second = _Process.number is not None
    _Process.number = _Process.number or number
    if number == getattr(signal, "SIGHUP", None):
        _leave_terminal()
    if not _thread.depth:
        raise InterruptError(number)
    if is_second:
        if _Process.is_command and _Process.stop_file is None:
            _end_process(number)
        _Process.has_given_up = True
        raise InterruptError(number)
    if _Process.stop_file is not None:
        with suppress(OSError):
            _Process.stop_file.touch()
    signal_name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    unfinished_work = "jobs that run" if _Process.stop_file else "answers on their way"
    with suppress(RuntimeError):  # the main thread was writing a line
        logger.info(
            "interrupted: waiting for the %s. Send %s again to give them up",
            unfinished_work,
            signal_name,
        )


def _receive_from_launcher(number: int, _: object) -> None:
    """Have a launcher's handler, which ends the process, wait for the work under way."""
    handler = _Process.handlers[number]
    if not _thread.depth:
        handler(number, None)
        return
    _Process.redeliver = lambda: handler(number, None)
    _Process.number = _Process.number or number


def _end_process(number: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    if 2 in _Process.terminal:  # a bar has hidden it
        with suppress(OSError):
            os.write(2, _SHOW_CURSOR.encode())
    os._exit(128 + number)


def _leave_terminal() -> None:
    """Write to nowhere instead of a terminal that has hung up, lest a line that cannot be written ends the work."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in _Process.terminal:
            os.dup2(nowhere, stream)
        os.close(nowhere)


def _is_launcher_handler(handler: Any) -> bool:
    owner = type(getattr(handler, "__self__", None)).__module__
    return owner.partition(".")[0] == "submitit"


def _is_terminal(stream: int) -> bool:
    with suppress(OSError):
        return os.isatty(stream)
    return False


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_sweep_ending() -> bool:
    global _last_stop_file_check  # noqa: PLW0603, it is one for the process
    if not (path := os.environ.get(_STOP_FILE_VARIABLE)):
        return False
    now, (last_look, is_there) = time.monotonic(), _last_stop_file_check
    if now - last_look >= _CHECK_INTERVAL_SECONDS:
        is_there = os.path.exists(path)  # noqa: PTH110, it is asked often
        _last_stop_file_check = now, is_there
    return is_there
