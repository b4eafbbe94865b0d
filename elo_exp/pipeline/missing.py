"""What to say of answers that a stage wanted and did not get."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from elo_exp.records import UserError

logger = logging.getLogger(__name__)

_NAMED = 3  # of many missing things, how many an error names


def report_missing(
    what: str,
    missing: Sequence[str],
    n_wanted: int,
    allowed: bool,
    *,
    hint: str = "Supply them",
) -> None:
    """Warn of what is missing where that is allowed, else raise UserError. A name starts with its
    owner's.

    hint  what the user can do about it
    """
    by_owner = {
        owner: len(list(some))
        for owner, some in groupby(sorted(m.split()[0] for m in missing))
    }
    counts = ", ".join(f"{owner} {n}" for owner, n in by_owner.items())
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    line = f"{len(missing)} of {n_wanted} {what} are missing ({counts}): {named}."
    if not allowed:
        raise UserError(f"{line} {hint}, or go on without with allow_missing=true.")
    logger.warning("warning: %s Going on without them.", line)
