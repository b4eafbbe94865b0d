"""Errors that a user can correct, by what went wrong."""

import copy
import traceback
from typing import Self

from elo_exp.masking import mask_text


class UserError(Exception):
    """A mistake that the user can correct: shown as one line, exit code 2, no traceback.

    Every error below is one. A plain `UserError` is raised if none of them fits, such as for a package that is not
    installed or for too little memory.

    below  what there is to choose from, shown under the line as it is
    """

    def __init__(self, line: object, *below: str) -> None:
        line, below = mask_text(str(line)), tuple(map(mask_text, below))
        super().__init__("\n".join([line, *below]))
        self.line, self.below = line, below

    def reword(self, line: object, *below: str) -> Self:
        """Return an error of the same class with another text."""
        error = copy.copy(self)
        UserError.__init__(error, line, *below)
        return error


class SettingError(UserError):
    """A setting, an argument or a word of the command is missing, unknown or does not fit the others."""


class FileError(UserError):
    """A file, folder or table is missing, cannot be read or written, or does not hold what is expected."""


class BudgetError(UserError):
    """A cap in dollars is reached, or too small for the next request or for what a run is expected to cost."""


class ServerError(UserError):
    """A server or a database cannot be reached, refuses, or needs a key. So does an API that gives no usable answers."""


class EvidenceError(UserError):
    """The data say too little: too few labels, no battle left, answers missing, or replies that cannot be read."""


class StoppedError(UserError):
    """A run has ended early, since its caller has set `stop`."""


def describe_mistake(error: BaseException, path: str) -> str:
    """Return a mistake in a file of Python code in one line: where in the file it arose, and what Python says of it."""
    numbers = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    if isinstance(error, SyntaxError) and error.filename == path:
        numbers.append(error.lineno)
    line = f", line {numbers[-1]}" if numbers else ""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    text = error.msg if isinstance(error, SyntaxError) else error
    return f"{path}{line}: {kind}{text}"


def name_error(error: BaseException) -> str:
    """Return the name that run files and logs give the class of an error: all of the user's mistakes have one."""
    kinds = (SettingError, FileError, BudgetError, ServerError, EvidenceError)
    return UserError.__name__ if type(error) in kinds else type(error).__name__
