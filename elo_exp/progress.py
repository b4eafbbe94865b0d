"""Progress on long work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
_SECONDS_A_LINE = 10.0
_SECONDS_A_NOTE = 30.0
_SECONDS_UNSEEN = (
    3.0  # of work that is measured: where it takes no longer, nothing is shown of it
)
_say: list[Callable[[str], None]] = []  # of the bar that is shown, if one is
_last_note = [0.0]


def track(items: Iterable[T], *, label: str, total: int) -> Generator[T]:
    """Pass the items on and show how far they are."""
    if total == 0:
        yield from items
    elif (
        sys.stderr.isatty() and multiprocessing.parent_process() is None
    ):  # one bar: not of each worker of a launcher
        yield from _bar(items, label, total)
    else:
        yield from _lines(items, label, total)


@contextmanager
def meter(label: str, *, total: int) -> Iterator[Callable[[float], None]]:
    """For work that is no row of items: what is to be told, by any thread, how much of `total` was done since.

    Work of a few seconds shows nothing.
    """
    begun = time.monotonic()
    done, shown = 0.0, 0
    telling = threading.Lock()

    def tell(more: float) -> None:
        nonlocal done, shown
        with telling:
            done += more
            if time.monotonic() - begun < _SECONDS_UNSEEN:
                return
            while shown < min(int(done), total):
                next(items)
                shown += 1

    with closing(track(range(total), label=label, total=total)) as items:
        yield tell


def note(text: str) -> None:
    """What work that is being tracked is waiting for: beside the bar, or as a line, not too often."""
    if _say:
        _say[-1](text)
    elif time.monotonic() - _last_note[0] >= _SECONDS_A_NOTE:
        _last_note[0] = time.monotonic()
        logger.info("%s", text)


def _bar(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    from rich import progress as rich
    from rich.console import Console, RenderableType
    from rich.text import Text

    class BarAndNote(rich.Progress):
        note = ""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            if self.note:
                yield Text(f"  {self.note}", style="dim")

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
    )
    times = rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
    with BarAndNote(
        *columns, *times, console=Console(stderr=True), transient=True
    ) as progress:
        _say.append(lambda text: setattr(progress, "note", text))
        try:
            yield from progress.track(items, total=total, description=label)
        finally:
            _say.pop()


def _lines(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last > _SECONDS_A_LINE:
            last = time.monotonic()
            logger.info("%s: %d of %d", label, done, total)
