"""Progress on long work: a bar on a terminal, lines in a log, and calls to whoever listens."""

import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from elo_exp import interrupts
from elo_exp.masking import mask_text

logger = logging.getLogger(__name__)

T = TypeVar("T")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_NOTES = 30.0
# For work that `meter` measures
_MAX_HIDDEN_SECONDS = 3.0
# Of the bars that are shown
_bar_note_setters: list[Callable[[str], None]] = []
# Of the run whose thread it is: several may go on side by side
_listeners: ContextVar[tuple[Callable[[], None], ...]] = ContextVar(
    "_listeners", default=()
)
_is_silent = ContextVar("_is_silent", default=False)
_last_note_time = [0.0]


def track(items: Iterable[T], *, label: str, total: int) -> Generator[T]:
    """Pass the items on and show how many are done. Raises InterruptError where the run is asked to end.

    Listeners are called after every tenth of them and every ten seconds.
    """
    # One bar on a terminal, and not one for each worker of a launcher
    is_worker = multiprocessing.parent_process() is not None
    has_bar = sys.stderr.isatty() and not is_worker and not _is_silent.get()
    last_shown, tenth = time.monotonic(), max(total // 10, 1)
    shown_items = _show_bar(items, label, total) if has_bar and total else items
    for done, item in enumerate(shown_items, start=1):
        yield item
        interrupts.check_unless_finishing()
        is_due = time.monotonic() - last_shown > _SECONDS_BETWEEN_LINES
        if is_due:
            last_shown = time.monotonic()
            if not has_bar:
                logger.info("%s: %s of %s", label, f"{done:,}", f"{total:,}")
        if is_due or done % tenth == 0 or done == total:
            for listener in _listeners.get():
                listener()


@contextmanager
def listen(listener: Callable[[], None]) -> Iterator[None]:
    """Call the listener while tracked work of this thread goes on."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def silence() -> Iterator[None]:
    """Show no bar for the work of this thread: a program that calls us prints by itself."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


@contextmanager
def track_amount(label: str, *, total: int) -> Iterator[Callable[[float], None]]:
    """Give a function that any thread calls with how much of `total` was done since its last call.

    Work of a few seconds shows nothing.
    """
    started = time.monotonic()
    done, n_shown = 0.0, 0
    lock = threading.Lock()

    def report(amount: float) -> None:
        nonlocal done, n_shown
        with lock:
            done += amount
            if time.monotonic() - started < _MAX_HIDDEN_SECONDS:
                return
            while n_shown < min(int(done), total):
                next(items)
                n_shown += 1

    with closing(track(range(total), label=label, total=total)) as items:
        yield report


def show_note(text: str) -> None:
    """Say what tracked work is waiting for: beside the bar, or as a line, not too often."""
    text = mask_text(text)
    if _bar_note_setters:
        _bar_note_setters[-1](text)
    elif time.monotonic() - _last_note_time[0] >= _SECONDS_BETWEEN_NOTES:
        _last_note_time[0] = time.monotonic()
        logger.info("%s", text)


def _show_bar(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with rich.Progress(
        *columns, console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(label, total=total, note="")
        _bar_note_setters.append(lambda text: progress.update(task, note=text))
        try:
            yield from progress.track(items, task_id=task)
        finally:
            _bar_note_setters.pop()
