"""Errors of other libraries that the user can correct, raised as UserError."""

import contextlib
from collections.abc import Iterator, Sequence

from elo_exp.errors import UserError
from elo_exp.launching.error_messages import choose_error_class, format_user_error


@contextlib.contextmanager
def raise_user_errors(words: Sequence[str] = ()) -> Iterator[None]:
    """Raise the user's mistakes as UserError, in the words of the command. Other errors pass unchanged."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (line := format_user_error(error, words)) is None:
            raise
        raise choose_error_class(error)(line) from None
