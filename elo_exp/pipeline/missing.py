"""What a stage does where answers or verdicts are missing: go on without them, or say which."""

import logging
from collections import Counter
from collections.abc import Sequence

from elo_exp.errors import EvidenceError

logger = logging.getLogger(__name__)

_MAX_NAMED_ANSWERS = 3


def report_missing(
    noun: str,
    missing: Sequence[str],
    n_wanted: int,
    allowed: bool,
    *,
    hint: str = "Supply them",
) -> None:
    """Warn of missing answers where that is allowed, else raise EvidenceError.

    missing  a name each, which starts with the entrant or dimension to count them by
    hint     what the user can do
    """
    if not missing:
        return
    by_owner = sorted(Counter(name.split()[0] for name in missing).items())
    counts = ", ".join(f"{owner} {n}" for owner, n in by_owner)
    named_answers = ", ".join(missing[:_MAX_NAMED_ANSWERS]) + (
        ", ..." if len(missing) > _MAX_NAMED_ANSWERS else ""
    )
    message = (
        f"{len(missing)} of {n_wanted} {noun} are missing ({counts}): {named_answers}."
    )
    if not allowed:
        raise EvidenceError(
            f"{message} {hint}, or add allow_missing=true to go on without them."
        )
    logger.warning("warning: %s The run goes on without them.", message)
