"""The link to a server of PostgreSQL: a connection that is waited for and made again when it is lost."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from elo_exp.store.database import DatabaseError
from elo_exp.store.postgres_connection import (
    connect,
    describe_error,
    is_connection_lost,
    is_retryable,
    roll_back,
)
from elo_exp.store.session_commits import SessionCommits

logger = logging.getLogger(__name__)

_RECONNECT_PAUSES_SECONDS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)

T = TypeVar("T")


class ServerLink:
    """A link to the database at a URL. A new connection is used once the server has all that it had acknowledged.

    db            the connection of now
    wait_minutes  how long to wait for a connection that was lost
    """

    def __init__(
        self, url: str, commits: SessionCommits, *, wait_minutes: float
    ) -> None:
        self._url, self._commits, self._wait_minutes = url, commits, wait_minutes
        self._has_given_up = False
        self.db = connect(url)

    def make_wait(self) -> "ReconnectWait":
        """Return a wait for one piece of work, which may lose the connection several times."""
        return ReconnectWait(self._url, self._wait_minutes)

    def retry(self, action: Callable[[], T]) -> T:
        """Do something that changes nothing; do it again if the connection is lost."""
        wait = self.make_wait()
        while True:
            try:
                return action()
            except psycopg.Error as error:
                self.wait_after(error, wait)

    def wait_after(self, error: psycopg.Error, wait: "ReconnectWait") -> None:
        """Wait until what has failed can be tried again, with a connection. Raises an error that will not pass, and
        DatabaseError when it has been waited for long enough."""
        if not is_connection_lost(self.db, error):
            if not is_retryable(error) or not self._wait_minutes:
                raise error
            wait.pause(error, is_lost=False)
            return
        self._reconnect(error, wait)

    def _reconnect(self, error: psycopg.Error, wait: "ReconnectWait") -> None:
        """Connect anew, and see that the server has all that was acknowledged."""
        self._has_given_up = True  # unless it comes back
        while True:
            try:
                while self.db.closed:
                    wait.pause(error)
                    self.db = connect(self._url)
                self._commits.rewrite_lost(self.db)
                break
            except psycopg.Error as new_error:
                if not (
                    is_connection_lost(self.db, new_error) or is_retryable(new_error)
                ):
                    raise
                if not self.db.closed:
                    wait.pause(new_error, is_lost=False)
                error = new_error
        self._has_given_up = False
        wait.end()

    def close(self) -> None:
        """Close the connection. What those that were killed have left in `commits` goes when it is old.

        A server that has gone away is waited for, since the one in its place may lack what was acknowledged.
        """
        if self._commits.n_begun and not self._has_given_up:
            try:
                self._commits.forget(self.db)
            except psycopg.Error as error:
                self._reconnect_at_close(error)
        elif self._has_given_up:
            self._commits.warn_about_last_answers("it did not come back")
        self.db.close()
        self._commits.close()

    def _reconnect_at_close(self, error: psycopg.Error) -> None:
        """Have a server that has gone away take what it lacks, before the run ends."""
        # somebody holds the lock: the row goes when it is old
        if not is_connection_lost(self.db, error):
            roll_back(self.db)
            return
        try:
            self._reconnect(error, self.make_wait())
        except (psycopg.Error, DatabaseError) as new_error:
            self._commits.warn_about_last_answers(str(new_error))


class ReconnectWait:
    """A wait for a connection that was lost: how long, and its log messages."""

    def __init__(self, url: str, minutes: float) -> None:
        self._url, self._minutes = url, minutes
        self._since = 0.0
        self._n = 0  # attempts to connect

    def pause(self, error: psycopg.Error, *, is_lost: bool = True) -> None:
        """Wait until the next attempt. Raises DatabaseError when there is to be none.

        is_lost  the connection, and not only the time that a statement may take
        """
        problem = "the connection is lost" if is_lost else "a statement took too long"
        now = time.monotonic()
        if self._n == 0:
            self._since = now
        elif now - self._since >= 60 * self._minutes:
            suffix = f", and {self._minutes:g} minutes later "
            suffix += "there is none" if is_lost else "it still does"
            failure = (
                "the connection was lost" if is_lost else "a statement takes too long"
            )
            raise DatabaseError(
                f"{failure}{suffix if self._minutes else ''}: {describe_error(error)}"
            )
        elif self._n == 1:
            logger.warning(
                "warning: %s: %s (%s). Waiting up to %g minutes for it",
                self._url,
                problem,
                describe_error(error),
                self._minutes,
            )
        time.sleep(
            _RECONNECT_PAUSES_SECONDS[min(self._n, len(_RECONNECT_PAUSES_SECONDS) - 1)]
        )
        self._n += 1

    def end(self) -> None:
        if self._minutes:
            logger.warning("%s: the connection was lost and is back", self._url)
