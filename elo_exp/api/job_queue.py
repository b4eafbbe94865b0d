"""Single requests that wait to be sent."""

import time
from collections import deque
from collections.abc import Sequence

from elo_exp.api.jobs import Job


class JobQueue:
    """Jobs that wait, in their order. A job that was added once is not added again."""

    def __init__(self) -> None:
        # with the moment, by our clock, before which it does not leave
        self._waiting: deque[tuple[Job, float]] = deque()
        self._expected_jobs: deque[Job] = deque()
        self._added_keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def n_added(self) -> int:
        """How many jobs were added, those that have left included."""
        return len(self._added_keys)

    def expect(self, jobs: Sequence[Job]) -> None:
        """Name jobs that are to be added later."""
        self._expected_jobs.extend(jobs)

    def has_expected_jobs(self) -> bool:
        """Return whether a job that was named is still to be added."""
        while self._expected_jobs and self._expected_jobs[0].key in self._added_keys:
            self._expected_jobs.popleft()
        return bool(self._expected_jobs)

    def add(self, job: Job, *, is_first: bool = False) -> None:
        """Add a job at the end, or as the first."""
        if job.key in self._added_keys:
            return
        self._added_keys.add(job.key)
        if is_first:
            self._waiting.appendleft((job, 0.0))
        else:
            self._waiting.append((job, 0.0))

    def put_back(self, job: Job, seconds: float = 0.0) -> None:
        """Have a job wait again at the end, for so many seconds at least."""
        self._waiting.append((job, time.monotonic() + seconds))

    def remove(self, job: Job) -> None:
        """Remove a job that leaves."""
        entries = enumerate(self._waiting)
        del self._waiting[next(i for i, (waiting, _) in entries if waiting is job)]

    def find_ready(self) -> Job | None:
        """Return the job that may leave now; None if none may."""
        now = time.monotonic()
        return next((job for job, at in self._waiting if at <= now), None)

    def find_probe(self, asked: str | None) -> Job | None:
        """Return the job that asks whether an outage is over: another than `asked`, unless there is none.

        It may be an expected job, lest the only request at hand is what the server cannot take.
        """
        while self._expected_jobs and all(job.key == asked for job, _ in self._waiting):
            self.add(self._expected_jobs.popleft(), is_first=True)
        other_jobs = (job for job, _ in self._waiting if job.key != asked)
        return next(other_jobs, self._waiting[0][0] if self._waiting else None)

    def seconds_to_next(self, default: float) -> float:
        """Return the seconds until a job may leave, negative if it may already; `default` if none waits."""
        now = time.monotonic()
        return min((at - now for _, at in self._waiting), default=default)
