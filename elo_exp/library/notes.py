"""The log lines and warnings of a run in this process, collected instead of printed."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from elo_exp.masking import mask_text

_LOGGER = logging.getLogger("elo_exp")


class _Notes(logging.Handler):
    """Collects the lines of each run by its thread, and passes on the lines that the program's own logging shows."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, list[str]] = {}  # by thread
        self._before: tuple[int, bool, int, list[logging.Handler]] | None = None

    def add(self, notes: list[str]) -> None:
        with _NOTES_LOCK:
            if not self.of:
                level = _LOGGER.getEffectiveLevel()
                self._before = (_LOGGER.level, _LOGGER.propagate, level, _LOGGER.handlers)  # fmt: skip
                _LOGGER.handlers, _LOGGER.propagate = [self], False
                _LOGGER.setLevel(min(level, logging.INFO))
            self.of[threading.get_ident()] = notes

    def remove(self, outer: list[str] | None) -> None:
        with _NOTES_LOCK:
            del self.of[threading.get_ident()]
            if outer is not None:
                self.of[threading.get_ident()] = outer
            if not self.of and self._before is not None:
                level_before, _LOGGER.propagate, _, _LOGGER.handlers = self._before
                _LOGGER.setLevel(level_before)

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = mask_text(record.getMessage()), None
        notes = self.of.get(record.thread or 0)
        if notes is None and len(self.of) == 1:  # of a thread that the run has begun
            (notes,) = self.of.values()
        if notes is not None and record.levelno >= logging.INFO:
            notes.append(record.getMessage())
        if self._before is None:
            return
        _, propagates, level, handlers = self._before
        if record.levelno < level:
            return
        above = logging.getLogger().handlers if propagates else []
        for handler in [*handlers, *above]:
            if record.levelno >= handler.level:
                handler.handle(record)


_NOTES_LOCK = threading.RLock()
_HANDLER = _Notes()


@contextlib.contextmanager
def collect_notes() -> Iterator[list[str]]:
    """Collect the lines of this thread's run in a list. Only the program's own logging still shows them."""
    notes: list[str] = []
    outer = _HANDLER.of.get(threading.get_ident())
    _HANDLER.add(notes)
    try:
        yield notes
    finally:
        _HANDLER.remove(outer)
