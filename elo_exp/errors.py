"""Errors that a user can correct, by what went wrong."""

import copy
import shlex
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from elo_exp.masking import mask_text

RESUME_HINT = "Every answer so far is stored. To continue, run the same command again."
_MAX_VALUE_CHARACTERS = 60
# The file that hf://datasets/USER/NAME/FILE names
_HUB_ADDRESS = "https://huggingface.co/datasets/{}/{}/resolve/main/{}"


def _find_address(path: str) -> str | None:
    """Return the address from which a browser would download this, or None if it is a path of this machine."""
    scheme, separator, rest = path.partition(":/")
    rest = rest.lstrip("/")  # a path has lost one of two slashes
    if not separator or not rest:
        return None
    if scheme in ("http", "https"):
        return f"{scheme}://{rest}"
    kind, *names = rest.split("/", 3)
    if scheme == "hf" and kind == "datasets" and len(names) == 3:
        return _HUB_ADDRESS.format(*names)
    return None


class UserError(Exception):
    """A mistake that you can correct. The command prints it as one line and exits with code 2.

    It is the base class of the other errors. A plain `UserError` means that a package is not installed or that the
    memory is too small.

    Attributes
    ----------
    line : str
        The message in one line.
    below : tuple of str
        Lines to show below the message, such as a command that works.
    need : str or None
        The key, package, model or server that a run needs and its plan does not; None for any other mistake.

    Examples
    --------
    >>> import elo_exp
    >>> try:
    ...     elo_exp.rate("battles.csv")
    ... except elo_exp.UserError as error:
    ...     print(error.line)  # doctest: +ELLIPSIS
    File not found: battles.csv (in ..., battles).
    """

    def __init__(self, line: object, *below: str) -> None:
        line, below = mask_text(str(line)), tuple(map(mask_text, below))
        super().__init__("\n".join([line, *below]))
        self.line, self.below = line, below
        self.need: str | None = None

    def mark_as_need(self, need: str) -> Self:
        """Return the error itself, as one of something that a run needs and its plan does not.

        Parameters
        ----------
        need : str
            The key, package, model or server, as a noun phrase or the command that installs it.
        """
        self.need = need
        return self

    def reword(self, line: object, *below: str) -> Self:
        """Return an error of the same class with another text."""
        error, need = copy.copy(self), self.need
        UserError.__init__(error, line, *below)
        error.need = need
        return error


class SettingError(UserError):
    """A setting, an argument or a word of the command is missing, unknown or does not fit the others.

    Examples
    --------
    >>> import elo_exp
    >>> elo_exp.plan(elo__k=-1)
    Traceback (most recent call last):
    elo_exp.errors.SettingError: elo.k must be a number above 0 and at most 1,000; got -1.
    """

    @classmethod
    def bad_value(
        cls, setting: str, value: object, must: str, *below: str
    ) -> "SettingError":
        """Return the error for a value that a setting cannot have: "elo.k must be above 0; got -1."

        Parameters
        ----------
        setting : str
            Its name, as on the command line.
        value : object
            What it was set to.
        must : str
            What the value must do or be, such as "be between 0 and 1". Without a full stop.
        *below : str
            Lines shown below, such as a command that works.
        """
        return cls(f"{setting} must {must}; got {format_value(value)}.", *below)

    @classmethod
    def no_value(
        cls, setting: str, *, needed_for: str, value: str, example: str
    ) -> "SettingError":
        """Return the error for a setting that has no value.

        Parameters
        ----------
        setting : str
            Its name, as on the command line.
        needed_for : str
            What cannot work without it, such as "experiment=gate".
        value : str
            What the value is, as a noun phrase: "a run folder or an answer file".
        example : str
            Words of a command that set it, shown on a line of their own.
        """
        return cls(
            f"{needed_for} needs {value}. Set {setting}, for example:", f"  {example}"
        )


class FileError(UserError):
    """A file, folder or table is missing, cannot be read or written, or does not hold what is expected."""

    @classmethod
    def not_found(cls, path: str | Path, purpose: str = "") -> "FileError":
        """Return the error for a file or a folder that is not there.

        Parameters
        ----------
        path : str or Path
            As the user gave it.
        purpose : str, optional
            The setting that names it, or what it is read for.
        """
        if address := _find_address(str(path)):
            return cls(
                f"{address} is an address. Download the file, and give its path:",
                f"  curl -LO {shlex.quote(address)}",
            )
        folder = "" if Path(path).is_absolute() else f"in {Path.cwd()}"
        details = ", ".join(filter(None, [folder, purpose]))
        return cls(f"File not found: {path}{f' ({details})' * bool(details)}.")

    @classmethod
    def bad_file(
        cls, location: object, problem: str, fix: str = "", *below: str
    ) -> "FileError":
        """Return the error for a file that cannot be used: "answers.csv is empty (0 bytes)."

        Parameters
        ----------
        location : object
            The file, FILE:LINE, or a table that names itself as text.
        problem : str
            What is wrong with it, as a predicate: "is empty", "has no answer column". Without a full stop.
        fix : str, optional
            A whole sentence that says what to do.
        *below : str
            Lines shown below, such as a command that works.
        """
        return cls(f"{location} {problem}. {fix}".rstrip(), *below)


class BudgetError(UserError):
    """A cap in dollars is reached, or it is smaller than the cost of the next request or the expected cost of a run."""


class ServerError(UserError):
    """A server or a database cannot be reached, refuses a request, needs a key or gives no usable answers."""


class EvidenceError(UserError):
    """The data say too little: too few labels, no battles, missing answers or unreadable replies of the judge."""


class StoppedError(UserError):
    """A call ended early because another thread set its `stop` event.

    Examples
    --------
    >>> import threading, elo_exp
    >>> stop = threading.Event()
    >>> stop.set()
    >>> elo_exp.rate("battles.csv", stop=stop)
    Traceback (most recent call last):
    elo_exp.errors.StoppedError: The call was stopped. Every answer so far is stored...
    """


@dataclass(frozen=True, kw_only=True)
class RunNeeds:
    """Keys, packages, models and servers that a run must have. A plan does without, and lists those that are absent.

    is_plan  whether only a plan is wanted
    absent   what is not here, in the order in which it was looked for
    """

    is_plan: bool = False
    absent: dict[str, None] = field(default_factory=dict)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Take a missing key, package, model or server as a need of the run in a plan; raise all other errors."""
        try:
            yield
        except UserError as error:
            if not self.is_plan or error.need is None:
                raise
            if error.need:
                self.add(error.need)

    def add(self, need: str) -> None:
        self.absent[need] = None

    def describe(self) -> list[str]:
        """Return a line that lists what is absent, or none."""
        return [f"Needed for the run: {'; '.join(self.absent)}."] if self.absent else []


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


def format_value(value: object) -> str:
    """Return a value as a message shows it: on one line, text in double quotes, of a long value the beginning.

    >>> format_value("abc"), format_value(None), format_value(-1)
    ('"abc"', 'null', '-1')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    is_text = isinstance(value, str | Path)
    text = str(value) if is_text else repr(value)
    if len(text) > _MAX_VALUE_CHARACTERS:
        text = f"{text[:_MAX_VALUE_CHARACTERS]}…"
    # A line break or a lone surrogate would spoil the line
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f'"{line}"' if is_text else line
